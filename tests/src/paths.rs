//! Paths: the sources of the test programs, their binaries, the tool.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

/// The `target/PROFILE` that holds this executable: a program directly, a test in `deps` below it.
fn profile_directory() -> PathBuf {
    let own = std::env::current_exe().expect("a process knows its own path");
    let directory = own.parent().expect("a program lies in a directory");
    match directory.file_name() {
        Some(name) if name == "deps" => directory.parent().expect("it is not the root"),
        _ => directory,
    }
    .to_path_buf()
}

pub fn target_directory() -> PathBuf {
    profile_directory()
        .parent()
        .expect("the profile's directory lies in target")
        .to_path_buf()
}

pub fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs")
}

/// The `nopal` binary of this test's profile, up to date, or the one that the variable NOPAL names.
pub fn nopal() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        if let Some(path) = std::env::var_os("NOPAL") {
            return std::path::absolute(path).expect("a path");
        }
        let directory = profile_directory();
        let name = directory
            .file_name()
            .and_then(|name| name.to_str())
            .expect("profiles have plain names");
        let profile = if name == "debug" { "dev" } else { name };
        let built = Command::new(env!("CARGO"))
            .args([
                "build",
                "--quiet",
                "--package",
                "nopal",
                "--profile",
                profile,
                "--target-dir",
            ])
            .arg(target_directory())
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()
            .expect("cargo runs");
        assert!(built.success(), "nopal does not build");
        directory.join("nopal")
    })
}

/// A directory of the caller's own, deleted with the value.
pub fn scratch() -> TempDir {
    let parent = target_directory().join("test-scratch");
    std::fs::create_dir_all(&parent).expect("the target directory can be written");
    tempfile::tempdir_in(parent).expect("a directory can be made")
}

/// A link to a file by a path without blanks, as `LD_PRELOAD` and `#!` need it; removed with the directory.
pub fn name_without_blanks(path: impl AsRef<Path>) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let name = directory.path().join("name");
    std::os::unix::fs::symlink(path, &name).expect("a link can be made");
    (directory, name)
}

/// A path as one word of a shell's.
pub fn shell_word(path: impl AsRef<Path>) -> String {
    let path = path.as_ref().to_str().expect("a plain path");
    format!("'{}'", path.replace('\'', r"'\''"))
}
