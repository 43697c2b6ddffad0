//! The names of the kernel's functions, by their addresses.

use anyhow::{Context, Result, ensure};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};

const SYMBOLS: &str = "/proc/kallsyms";
const MODULES: &str = "/proc/modules";

pub struct Symbols {
    /// In order of their addresses, one name each.
    all: Vec<(u64, String)>,
    /// The kernel's own code ends there; modules lie beyond.
    end: u64,
    /// The modules that were loaded then.
    modules: String,
}

impl Symbols {
    pub fn read() -> Result<Symbols> {
        are_readable()?;
        // Before the names: a module that comes in between is found to be new later.
        let modules = fs::read_to_string(MODULES).unwrap_or_default();
        let text = fs::read_to_string(SYMBOLS).context(SYMBOLS)?;
        let (all, end) = parse(&text);
        Ok(Symbols { all, end, modules })
    }

    /// The function that contains an address, if known.
    pub fn at(&mut self, address: u64) -> Option<&str> {
        if address >= self.end {
            self.follow_modules();
        }
        let after = self.all.partition_point(|(begin, _)| *begin <= address);
        Some(&self.all.get(after.checked_sub(1)?)?.1)
    }

    fn follow_modules(&mut self) {
        let modules = fs::read_to_string(MODULES).unwrap_or_default();
        if modules != self.modules
            && let Ok(symbols) = Symbols::read()
        {
            *self = symbols;
        }
    }
}

/// Whether this process may see the addresses: all are 0 where it may not, and a few are elsewhere.
pub fn are_readable() -> Result<()> {
    let file = File::open(SYMBOLS).context(SYMBOLS)?;
    let lines = BufReader::new(file).lines().take(1000);
    let reported = lines
        .map_while(Result::ok)
        .any(|line| !line.starts_with("0000000000000000"));
    ensure!(
        reported,
        "{SYMBOLS} shows no addresses; run nopal as root, with sysctl kernel.kptr_restrict=0 or 1"
    );
    Ok(())
}

/// The functions among lines such as `ffffffff812a6040 T vfs_write`. Of several names of one address, the kernel itself
/// takes the first.
fn parse(text: &str) -> (Vec<(u64, String)>, u64) {
    let names = text.lines().filter_map(|line| {
        let (address, rest) = line.split_once(' ')?;
        let name = ["t ", "T ", "w ", "W "]
            .iter()
            .find_map(|kind| rest.strip_prefix(kind))?;
        let name = name.split_once('\t').map_or(name, |(name, _)| name);
        Some((u64::from_str_radix(address, 16).ok()?, name.to_owned()))
    });
    let mut names: Vec<(u64, String)> = names.collect();
    let end = names.iter().find(|(_, name)| name == "_etext");
    let end = end.map_or(0, |(address, _)| *address);
    names.sort_by_key(|(address, _)| *address);
    names.dedup_by_key(|(address, _)| *address);
    (names, end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_in_the_function_before_it() {
        let (all, end) = parse(
            "00000010 t first\n00000010 T alias\n00000018 D data\n00000030 T _etext\n00000020 t second\t[module]\nrubbish\n",
        );
        let modules = fs::read_to_string(MODULES).unwrap_or_default();
        let mut names = Symbols { all, end, modules };
        let mut at = |address| names.at(address).map(str::to_owned);
        assert_eq!(
            [at(0xf), at(0x10), at(0x1f), at(0x24)],
            [None, Some("first"), Some("first"), Some("second")]
                .map(|name| name.map(str::to_owned))
        );
        assert_eq!(names.end, 0x30);
    }
}
