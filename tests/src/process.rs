//! A running process, seen from outside.

use std::time::{Duration, Instant};

/// The first file with `name` in its path whose code differs between the process and the file.
pub fn text_difference(process: i32, name: &str) -> Option<String> {
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).expect("the process lives");
    let memory = std::fs::File::open(format!("/proc/{process}/mem")).expect("memory is readable");
    let mut compared = 0;
    for line in maps.lines() {
        // The path is the rest of the line, and may have blanks in it.
        let fields: Vec<&str> = line.splitn(6, ' ').collect();
        let &[range, permissions, offset, _, _, path] = &fields[..] else {
            continue;
        };
        let path = path.trim_start();
        let is_code = permissions.contains('x') && path.starts_with('/');
        if !is_code || path.starts_with("/memfd:") || !path.contains(name) {
            continue;
        }
        let number = |text: &str| u64::from_str_radix(text, 16).expect("hexadecimal");
        let (start, end) = range
            .split_once('-')
            .map(|(start, end)| (number(start), number(end)))
            .expect("a range");
        let mut mapped = vec![0; (end - start) as usize];
        if std::os::unix::fs::FileExt::read_exact_at(&memory, &mut mapped, start).is_err() {
            return Some(format!("the code of {path} cannot be read"));
        }
        let file = std::fs::read(path).expect("a mapped file");
        let there = &file[number(offset) as usize..];
        let length = there.len().min(mapped.len());
        let differs = (0..length).find(|&at| mapped[at] != there[at]);
        if let Some(at) = differs {
            let at = number(offset) + at as u64;
            return Some(format!("the code of {path} is not what it was, at {at:#x}"));
        }
        compared += 1;
    }
    assert!(compared >= 1, "there is code to compare");
    None
}

/// Asserts that the code of each file that the process maps is as in the file.
pub fn assert_text_restored(process: i32) {
    if let Some(difference) = text_difference(process, "") {
        panic!("{difference}");
    }
}

pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !done() {
        assert!(Instant::now() < deadline, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether the code still holds anything of nopal's.
pub fn is_text_changed(process: i32) -> bool {
    text_difference(process, "").is_some()
}

/// Asserts that nothing of nopal's is mapped.
pub fn assert_nothing_left(process: i32) {
    let left = nopals_mappings(process);
    assert!(left.is_empty(), "memory is left behind: {left:#?}");
    assert_text_restored(process);
}

/// The lines of `/proc/PID/maps` that are nopal's. The program itself may lie in a directory of any name.
pub fn nopals_mappings(process: i32) -> Vec<String> {
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).expect("the process lives");
    let is_nopals = |line: &&str| line.ends_with(" /memfd:nopal (deleted)");
    maps.lines().filter(is_nopals).map(String::from).collect()
}

/// The processor time of a process so far.
pub fn processor_time(process: i32) -> Duration {
    let mut clock = 0;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: both write into locals of ours.
    let told = unsafe {
        libc::clock_getcpuclockid(process, &raw mut clock) == 0
            && libc::clock_gettime(clock, &raw mut time) == 0
    };
    assert!(told, "the process lives");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The resources of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resources {
    /// Its mappings, without the sizes of heap and stacks.
    pub maps: Vec<String>,
    pub descriptors: usize,
    /// Its private memory.
    pub kib: u64,
}

impl Resources {
    pub fn by(process: i32) -> Resources {
        let read = |name: &str| {
            std::fs::read_to_string(format!("/proc/{process}/{name}")).expect("the process lives")
        };
        let maps = read("maps");
        let maps = maps.lines().map(|line| line.split_whitespace());
        let maps = maps.map(|mut fields| {
            let end = fields.next().and_then(|range| range.split('-').nth(1));
            [end, fields.next(), fields.nth(3)]
                .map(Option::unwrap_or_default)
                .join(" ")
        });
        let status = read("status");
        let own = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"));
        let own = own.expect("it has memory").trim().trim_end_matches(" kB");
        let descriptors = std::fs::read_dir(format!("/proc/{process}/fd"));
        Resources {
            maps: maps.collect(),
            descriptors: descriptors.expect("the process lives").count(),
            kib: own.parse().expect("a number"),
        }
    }
}
