//! Compiles the programs that are measured, with the same compiler as their peers'.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The parts of SQLite that distributions compile in.
const WHOLE: [&str; 7] = [
    "-DSQLITE_ENABLE_FTS3",
    "-DSQLITE_ENABLE_FTS5",
    "-DSQLITE_ENABLE_RTREE",
    "-DSQLITE_ENABLE_GEOPOLY",
    "-DSQLITE_ENABLE_SESSION",
    "-DSQLITE_ENABLE_PREUPDATE_HOOK",
    "-DSQLITE_ENABLE_DBSTAT_VTAB",
];

pub struct Programs {
    sources: PathBuf,
    directory: PathBuf,
}

impl Programs {
    pub fn new(directory: &Path) -> Programs {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs");
        Programs {
            sources,
            directory: directory.to_owned(),
        }
    }

    /// The directory of the compiled programs.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Compiles `source.c` as `name`.
    pub fn compile(
        &self,
        compiler: &str,
        source: &str,
        name: &str,
        options: &[&str],
    ) -> Result<PathBuf> {
        let program = self.directory.join(name);
        let source = self.sources.join(source).with_extension("c");
        run(Command::new(compiler)
            .args(["-O2", "-o"])
            .arg(&program)
            .arg(source)
            .args(options)
            .arg("-pthread"))?;
        Ok(program)
    }

    /// Compiles the driver with SQLite, as `name`.
    pub fn sqlite(&self, compiler: &str, name: &str, flags: &[&str]) -> Result<PathBuf> {
        let object = self.sqlite_object(compiler, name, flags)?;
        let program = self.directory.join(name);
        let mut compile = Command::new(compiler);
        compile
            .args(["-O2", "-o"])
            .arg(&program)
            .args(flags)
            .arg("-I")
            .arg(sqlite_source()?);
        let driver = self.sources.join("sqlite.c");
        run(compile.arg(driver).arg(&object).args(["-lm", "-pthread"]))?;
        Ok(program)
    }

    /// The object of SQLite. It takes a minute to compile, and is kept.
    fn sqlite_object(&self, compiler: &str, name: &str, options: &[&str]) -> Result<PathBuf> {
        let library = sqlite_source()?;
        let object = self.directory.join(name).with_extension("o");
        if !is_newer(&object, &library.join("sqlite3.c")) {
            let unfinished = object.with_extension("new");
            let mut compile = Command::new(compiler);
            compile
                .args(["-O2", "-c", "-o"])
                .arg(&unfinished)
                .arg(library.join("sqlite3.c"))
                .args(options);
            run(&mut compile)?;
            std::fs::rename(&unfinished, &object)?;
        }
        Ok(object)
    }

    /// Compiles `resident.c` with the work of `resident_WORK`.
    pub fn resident(&self, work: &str) -> Result<PathBuf> {
        self.resident_by("gcc", work, "", &[])
    }

    /// Does the same with another compiler, gcc or clang, or with other `flags`, under a name that ends with `way`.
    pub fn resident_by(
        &self,
        compiler: &str,
        work: &str,
        way: &str,
        flags: &[&str],
    ) -> Result<PathBuf> {
        let program = self.directory.join(format!("resident_{work}{way}"));
        let own = self.sources.join(format!("resident_{work}"));
        let of_objects = own.with_extension("cc");
        let mut compile = Command::new(compiler);
        compile
            .args(["-O2", "-o"])
            .arg(&program)
            .arg(self.sources.join("resident.c"));
        match of_objects.exists() {
            true => compile.arg(of_objects).arg("-lstdc++"),
            false => compile.arg(own.with_extension("c")),
        };
        if work == "sqlite" {
            let name = format!("sqlite-whole{way}");
            let object = self.sqlite_object(compiler, &name, &[&WHOLE, flags].concat())?;
            compile.arg("-I").arg(sqlite_source()?).arg(object);
        }
        run(compile.args(flags).args(["-lm", "-pthread"]))?;
        Ok(program)
    }
}

pub fn is_installed(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success())
}

fn is_newer(made: &Path, source: &Path) -> bool {
    let time = |path: &Path| path.metadata().and_then(|metadata| metadata.modified());
    matches!((time(made), time(source)), (Ok(made), Ok(source)) if made > source)
}

/// Where Cargo keeps the source of the package that holds SQLite.
fn sqlite_source() -> Result<PathBuf> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args([
        "metadata",
        "--format-version=1",
        "--features=sqlite-source",
        "--manifest-path",
    ]);
    let output = cargo
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
        .output()?;
    ensure!(
        output.status.success(),
        "cargo metadata: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"]
        .as_array()
        .context("cargo metadata names no packages")?;
    let package = packages
        .iter()
        .find(|package| package["name"] == "libsqlite3-sys");
    let manifest = package.and_then(|package| package["manifest_path"].as_str());
    Ok(Path::new(manifest.context("libsqlite3-sys is not there")?).with_file_name("sqlite3"))
}

fn run(command: &mut Command) -> Result<()> {
    let output = command
        .output()
        .with_context(|| format!("cannot run {:?}", command.get_program()))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}
