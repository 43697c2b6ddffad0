//! npm packages that tests run in Node.js.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::target_directory;

/// A directory with the packages of `tests/browser`, as its lock file names them, and its scripts.
pub fn node_packages() -> &'static Path {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    PLACE.get_or_init(install)
}

fn install() -> PathBuf {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("browser");
    let to = target_directory().join("browser");
    fs::create_dir_all(&to).unwrap();
    let lock = fs::read(from.join("package-lock.json")).unwrap();
    let is_installed = fs::read(to.join("installed")).is_ok_and(|installed| installed == lock);
    for file in fs::read_dir(&from).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
    if !is_installed {
        let install = Command::new("npm")
            .args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"])
            .current_dir(&to)
            .output()
            .unwrap();
        assert!(install.status.success(), "{install:?}");
        fs::write(to.join("installed"), lock).unwrap();
    }
    to
}
