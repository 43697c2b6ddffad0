//! Small programs, compiled for a test.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use nopal_symbols::{Function, Image};
use tempfile::TempDir;

pub struct BuildDirectory(TempDir);

impl BuildDirectory {
    /// With the headers of this repository under the name `include`: its own path may have blanks in it.
    pub fn new() -> BuildDirectory {
        let build = BuildDirectory(TempDir::new().unwrap());
        let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include");
        let include = include.canonicalize().unwrap();
        std::os::unix::fs::symlink(include, build.path("include")).unwrap();
        build
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    /// Runs a command line in the directory.
    pub fn run(&self, line: &str) -> String {
        let mut words = line.split_whitespace();
        let program = words.next().unwrap();
        let output = Command::new(program)
            .args(words)
            .current_dir(self.0.path())
            .output()
            .unwrap_or_else(|error| {
                panic!("cannot run {program}, which these tests need: {error}")
            });
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn open(&self, name: &str) -> Image {
        Image::open_with_debug_directories(&self.path(name), &[&self.path("debug")]).unwrap()
    }

    /// `nm`'s defined symbols: name, address, type letter.
    pub fn nm(&self, name: &str) -> Vec<(String, u64, char)> {
        self.run(&format!("nm --defined-only {name}"))
            .lines()
            .map(|line| {
                let mut words = line.split_whitespace();
                let address = u64::from_str_radix(words.next().unwrap(), 16).unwrap();
                let kind = words.next().unwrap().chars().next().unwrap();
                (words.next().unwrap().to_owned(), address, kind)
            })
            .collect()
    }

    pub fn address(&self, file: &str, symbol: &str) -> u64 {
        let symbols = self.nm(file);
        let found = symbols.iter().find(|found| found.0 == symbol);
        found.unwrap_or_else(|| panic!("nm shows no {symbol}")).1
    }
}

pub fn by_name(image: &Image) -> BTreeMap<&str, &Function> {
    let functions = image.functions().unwrap();
    functions
        .iter()
        .map(|function| (function.name.as_str(), function))
        .collect()
}

pub fn addresses(image: &Image) -> Vec<u64> {
    image
        .functions()
        .unwrap()
        .iter()
        .map(|function| function.address)
        .collect()
}

/// The C library that this test runs with.
pub fn libc() -> PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let path = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5))
        .find(|path| path.contains("/libc.so"));
    Path::new(path.expect("the tests run with glibc")).to_owned()
}
