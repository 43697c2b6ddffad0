mod cache;
mod coverage;
mod execution;
mod hostile;
mod manners;
mod meaning;
mod probes;
mod relocation;
mod stacks;
mod verdicts;
mod workloads;

use std::path::{Path, PathBuf};
use std::process::Command;

use nopal_symbols::Image;

use crate::{Plan, Reason, Site};

/// Files of this machine that are worth a look, where present.
fn installed() -> Vec<PathBuf> {
    let directories = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/bin"];
    let names = [
        "libc.so.6",
        "libcrypto.so.3",
        "libsqlite3.so.0",
        "libstdc++.so.6",
        "libpython3.11.so.1.0",
        "libgcc_s.so.1",
        "python3.11",
    ];
    let paths = directories
        .iter()
        .flat_map(|directory| names.iter().map(|name| Path::new(directory).join(name)));
    let found: Vec<PathBuf> = paths.filter(|path| path.exists()).collect();
    assert!(!found.is_empty(), "none of the files is installed");
    found
}

/// A number that differs from run to run, printed so that a failure can be repeated with NOPAL_SEED.
fn seed() -> u64 {
    let seed = match std::env::var("NOPAL_SEED") {
        Ok(seed) => seed.parse().expect("NOPAL_SEED is a number"),
        Err(_) => std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .expect("the clock is past 1970")
            .as_nanos() as u64,
    };
    println!("NOPAL_SEED={seed}");
    seed
}

/// splitmix64
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn byte(&mut self) -> u8 {
        self.next() as u8
    }
}

/// A library or program from source, in a directory that is removed with it.
struct Built {
    directory: tempfile::TempDir,
    path: PathBuf,
}

impl Built {
    /// `name` tells the language by its end.
    fn new(name: &str, source: &str, options: &[&str]) -> Built {
        Built::with("gcc", name, source, options)
    }

    fn with(compiler: &str, name: &str, source: &str, options: &[&str]) -> Built {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let input = directory.path().join(name);
        let path = directory.path().join("built");
        std::fs::write(&input, source).expect("the source is written");
        let mut command = Command::new(compiler);
        command
            .args(["-Wl,-z,noexecstack", "-o"])
            .arg(&path)
            .arg(&input)
            .args(options);
        let output = command.output().expect("a compiler");
        assert!(
            output.status.success(),
            "{command:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Built { directory, path }
    }

    /// A library from assembly.
    fn library(source: &str) -> Built {
        Built::new("library.s", source, &["-shared", "-nostdlib"])
    }

    fn image(&self) -> Image {
        Image::open(&self.path).expect("it can be read")
    }

    fn planned(&self) -> Planned {
        let image = self.image();
        let plan = Plan::make(&image).expect("it can be planned");
        Planned { image, plan }
    }
}

struct Planned {
    image: Image,
    plan: Plan,
}

impl Planned {
    fn address(&self, name: &str) -> u64 {
        self.image
            .symbol(name)
            .unwrap_or_else(|| panic!("there is no {name}"))
    }

    fn site(&self, name: &str) -> &Site {
        let address = self.address(name);
        let site = self.plan.sites.iter().find(|site| site.address == address);
        site.unwrap_or_else(|| panic!("{name} is refused: {:?}", self.plan.hook(address).err()))
    }

    fn reason(&self, name: &str) -> Reason {
        let address = self.address(name);
        let refused = self
            .plan
            .refused
            .iter()
            .find(|refused| refused.address == address);
        refused
            .unwrap_or_else(|| panic!("{name} is not refused"))
            .reason
    }
}
