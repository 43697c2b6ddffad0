//! The places of a trace's functions in the source.

use std::collections::{BTreeSet, HashMap};

use nopal_symbols::Image;
use nopal_trace::Trace;

use crate::images::Images;
use crate::names::{Function, Names, printable};

/// `FILE:LINE` of each function, if the debug information of its file tells.
#[derive(Default)]
pub struct Sources {
    /// By the function's number.
    lines: Vec<Option<String>>,
}

impl Sources {
    /// Reads the files of the trace that are still there.
    pub fn new(trace: &Trace, names: &Names) -> Sources {
        Sources::of_functions(trace, names, |_| true)
    }

    /// The same, of some functions.
    pub fn of_functions(trace: &Trace, names: &Names, is_wanted: impl Fn(u32) -> bool) -> Sources {
        let images = Images::new(trace);
        let mut by_path: HashMap<&str, Vec<usize>> = HashMap::new();
        for (number, function) in names.functions().iter().enumerate() {
            if is_wanted(number as u32) {
                by_path.entry(&function.path).or_default().push(number);
            }
        }
        let mut lines = vec![None; names.functions().len()];
        for (path, numbers) in by_path {
            let Some(image) = images.open(path) else {
                continue;
            };
            let address = |number: &usize| names.functions()[*number].address;
            let addresses: Vec<u64> = numbers.iter().map(address).collect();
            let places = image.places(&addresses);
            for number in numbers {
                let place = places.get(&address(&number));
                lines[number] = place.map(|(file, line)| printable(&format!("{file}:{line}")));
            }
        }
        Sources { lines }
    }

    /// The source line of a function, by its number in the names.
    pub fn of(&self, function: u32) -> Option<&str> {
        self.lines.get(function as usize)?.as_deref()
    }
}

/// Bytes of a function that are looked at.
const MOST_BYTES: u64 = 1 << 22;

/// The calls of functions to others of the same file by name: `FILE:LINE` of each, by caller and callee.
pub struct CallSites(HashMap<(u32, u32), Vec<String>>);

impl CallSites {
    /// The calls between these pairs of caller and callee.
    pub fn new(trace: &Trace, names: &Names, pairs: BTreeSet<(u32, u32)>) -> CallSites {
        let images = Images::new(trace);
        let mut by_path: HashMap<&str, Vec<(u32, u32)>> = HashMap::new();
        for pair in pairs {
            let [caller, callee] = [pair.0, pair.1].map(|one| names.functions().get(one as usize));
            if let (Some(caller), Some(callee)) = (caller, callee)
                && caller.path == callee.path
            {
                by_path.entry(&caller.path).or_default().push(pair);
            }
        }
        let mut sites = HashMap::new();
        for (path, pairs) in by_path {
            let Some(image) = images.open(path) else {
                continue;
            };
            for pair in pairs {
                let [caller, callee] = [pair.0, pair.1].map(|one| &names.functions()[one as usize]);
                sites.insert(pair, lines(&image, &calls(&image, caller, callee.address)));
            }
        }
        CallSites(sites)
    }

    pub fn of(&self, caller: u32, callee: u32) -> &[String] {
        self.0.get(&(caller, callee)).map_or(&[], Vec::as_slice)
    }
}

/// The instructions of a function that call the function at `target`, or jump to it. Bytes that merely look like one
/// would have to hold exactly its distance.
fn calls(image: &Image, function: &Function, target: u64) -> Vec<u64> {
    let size = function.size.min(MOST_BYTES) as usize;
    let code = image.bytes(function.address, size).unwrap_or_default();
    let calls = nopal_symbols::calls(code, function.address);
    let calls = calls.filter(|(_, called)| *called == target);
    calls.map(|(address, _)| address).collect()
}

/// Each line once, in order of the addresses.
fn lines(image: &Image, addresses: &[u64]) -> Vec<String> {
    let places = image.places(addresses);
    let mut lines = Vec::new();
    for address in addresses {
        if let Some((file, line)) = places.get(address) {
            let line = printable(&format!("{file}:{line}"));
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    lines
}
