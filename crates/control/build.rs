//! Compiles the parser of the control language, which is part of the core, into this crate, and gives its commands
//! their names in Rust.

use std::path::Path;
use std::{env, fs};

fn main() {
    let core = Path::new("../../runtime/core");
    println!(
        "cargo::rerun-if-changed={}",
        core.join("control.c").display()
    );
    println!(
        "cargo::rerun-if-changed={}",
        core.join("control.h").display()
    );
    let mut build = cc::Build::new();
    build
        .file(core.join("control.c"))
        .include(core)
        .std("c17")
        .opt_level(2)
        .warnings(true)
        .extra_warnings(true)
        .warnings_into_errors(true);
    for flag in [
        "-Wshadow",
        "-Wstrict-prototypes",
        "-Wmissing-prototypes",
        "-ffreestanding",
    ] {
        build.flag(flag);
    }
    build.compile("nopal_control");

    let header = fs::read_to_string(core.join("control.h")).expect("the core's headers");
    let modules = [
        ("command", "NOPAL_COMMAND_"),
        ("probe_part", "NOPAL_PROBE_"),
        ("when_part", "NOPAL_WHEN_"),
    ];
    let modules = modules.map(|(name, prefix)| module(&header, name, prefix));
    let out = Path::new(&env::var_os("OUT_DIR").expect("cargo names it")).join("grammar.rs");
    fs::write(out, modules.concat()).expect("cargo's folder can be written");
}

/// The names of an enum in C that begin with `prefix`, without it, as constants: each with its value, or else numbered.
fn module(header: &str, module: &str, prefix: &str) -> String {
    let names = header.lines().filter_map(|line| {
        let (name, _) = line.trim().strip_prefix(prefix)?.split_once(',')?;
        Some(name)
    });
    let constants = names.enumerate().map(|(number, name)| {
        let (name, value) = name
            .split_once(" = ")
            .map_or((name, number.to_string()), |(name, value)| {
                (name, value.to_owned())
            });
        format!("    pub const {name}: u32 = {value};\n")
    });
    format!(
        "pub mod {module} {{\n{}}}\n",
        constants.collect::<Vec<_>>().concat()
    )
}
