//! C headers in Rust, for build scripts: constants, structures and functions as the C compiler itself has them. The
//! compiler compiles a file that includes the headers, and the DWARF and the data about them are read back. So there is
//! no second description that could differ, and no second parser of C.

mod types;
mod values;

use anyhow::{Context, Result, anyhow, ensure};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// C headers, and the names that are wanted of them.
pub struct Headers {
    build: cc::Build,
    includes: Vec<String>,
    constants: Vec<Constant>,
    structures: Vec<Structure>,
    enumerations: Vec<Enumeration>,
    functions: Vec<String>,
}

struct Constant {
    /// In C, a macro.
    name: String,
    is_usize: bool,
}

/// A structure of C, and its form in Rust.
#[derive(Clone)]
pub struct Structure {
    c: String,
    rust: String,
    attributes: String,
    /// The fields from this one on are left out.
    until: Option<String>,
    /// Pointers are addresses in another process.
    foreign: bool,
}

/// The generated text: Rust, with assertions, and the same assertions in C.
#[derive(Default)]
struct Both {
    rust: String,
    c: String,
}

impl Both {
    fn assert(&mut self, rust: &str, c: &str, value: impl std::fmt::Display) {
        self.rust += &format!("const _: () = assert!({rust} == {value});\n");
        self.c += &format!("_Static_assert({c} == {value}, \"as in Rust\");\n");
    }
}

struct Enumeration {
    c: String,
    module: String,
    prefix: String,
}

impl Structure {
    pub fn new(c: &str, rust: &str) -> Structure {
        Structure {
            c: c.into(),
            rust: rust.into(),
            attributes: String::new(),
            until: None,
            foreign: false,
        }
    }

    pub fn derive(mut self, traits: &str) -> Structure {
        self.attributes = format!("#[derive({traits})]\n");
        self
    }

    pub fn until(mut self, field: &str) -> Structure {
        self.until = Some(field.into());
        self
    }

    pub fn foreign(mut self) -> Structure {
        self.foreign = true;
        self
    }
}

impl Headers {
    /// `folders` of the runtime are those in which headers are looked for.
    pub fn new(runtime: &Path, folders: &[&str], includes: &[&str]) -> Headers {
        let mut build = cc::Build::new();
        for folder in folders {
            let folder = runtime.join(folder);
            println!("cargo::rerun-if-changed={}", folder.display());
            build.include(folder);
        }
        build.std("gnu17").cargo_metadata(false);
        Headers {
            build,
            includes: includes.iter().map(|name| (*name).into()).collect(),
            constants: Vec::new(),
            structures: Vec::new(),
            enumerations: Vec::new(),
            functions: Vec::new(),
        }
    }

    /// Macros that are numbers. In Rust they are without `NOPAL_`, and of the type `u32`, or another where they need
    /// it.
    pub fn constants<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Headers {
        self.constants
            .extend(names.into_iter().map(|name| Constant {
                name: name.into(),
                is_usize: false,
            }));
        self
    }

    /// The same, for numbers of things: `usize`.
    pub fn counts<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Headers {
        for name in names {
            self.constants.retain(|known| known.name != name);
            self.constants.push(Constant {
                name: name.into(),
                is_usize: true,
            });
        }
        self
    }

    /// All that the first header defines itself, and gives a value.
    pub fn all_constants(self) -> Result<Headers> {
        let names = values::macros(&self.build, &self.includes)?;
        Ok(self.constants(names.iter().map(String::as_str)))
    }

    pub fn structures(mut self, structures: impl IntoIterator<Item = Structure>) -> Headers {
        self.structures.extend(structures);
        self
    }

    /// An enumeration becomes a module of constants, named without `prefix`.
    pub fn enumeration(mut self, c: &str, module: &str, prefix: &str) -> Headers {
        self.enumerations.push(Enumeration {
            c: c.into(),
            module: module.into(),
            prefix: prefix.into(),
        });
        self
    }

    pub fn functions<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Headers {
        self.functions.extend(names.into_iter().map(Into::into));
        self
    }

    /// Writes the generated files into cargo's folder for them.
    pub fn write(&self, name: &str) -> Result<()> {
        let out = PathBuf::from(env::var_os("OUT_DIR").context("no OUT_DIR")?);
        let text = self.rust(&out)?;
        Ok(fs::write(out.join(name), text)?)
    }

    fn rust(&self, out: &Path) -> Result<String> {
        let source = out.join("headers.c");
        fs::write(&source, self.source()?)?;
        let data = self.compiled(&source, out)?;
        let file = object::File::parse(&*data)?;
        let mut both = Both::default();
        for constant in &self.constants {
            values::constant(&file, &constant.name, constant.is_usize, &mut both)?;
        }
        types::all(&file, self, &mut both)?;
        self.check(&both.c, out)?;
        Ok(both.rust)
    }

    /// Has the compiler compare the generated declarations with the headers.
    fn check(&self, asserts: &str, out: &Path) -> Result<()> {
        let source = out.join("check.c");
        fs::write(
            &source,
            self.including() + "#include <stddef.h>\n" + asserts,
        )?;
        let mut build = self.build.clone();
        build.file(source).opt_level(2).out_dir(out);
        build.try_compile_intermediates()?;
        Ok(())
    }

    fn including(&self) -> String {
        let lines = self.includes.iter();
        lines.map(|name| format!("#include \"{name}\"\n")).collect()
    }

    /// C source with variables of all wanted types, and the constants as values.
    fn source(&self) -> Result<String> {
        let mut text = self.including();
        for Constant { name, .. } in &self.constants {
            text += &values::source(name);
        }
        for Structure { c, .. } in &self.structures {
            writeln!(text, "struct {c} shared_{c};")?;
        }
        for Enumeration { c, .. } in &self.enumerations {
            writeln!(text, "enum {c} shared_{c};")?;
        }
        for name in &self.functions {
            writeln!(text, "__typeof__({name}) *shared_{name};")?;
        }
        Ok(text)
    }

    /// The compiled and linked source: only linking settles places in debug information.
    fn compiled(&self, source: &Path, out: &Path) -> Result<Vec<u8>> {
        let mut build = self.build.clone();
        build.file(source).opt_level(0).out_dir(out).debug(true);
        for flag in ["-fno-lto", "-gz=none", "-fno-common", "-w"] {
            build.flag(flag);
        }
        let objects = build.try_compile_intermediates()?;
        let linked = out.join("headers.elf");
        let status = Command::new("ld")
            .args(["-e", "0", "-o"])
            .arg(&linked)
            .args(&objects)
            .status()
            .map_err(|error| anyhow!("ld: {error}"))?;
        ensure!(
            status.success(),
            "ld could not link what describes the headers"
        );
        Ok(fs::read(linked)?)
    }
}
