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
    let out = Path::new(&env::var_os("OUT_DIR").expect("cargo names it")).join("commands.rs");
    fs::write(out, constants(&header, "NOPAL_COMMAND_")).expect("cargo's folder can be written");
}

/// The names of an enum in C that begin with `prefix`, without it, as constants in its order.
fn constants(header: &str, prefix: &str) -> String {
    let names = header.lines().filter_map(|line| {
        let (name, _) = line.trim().strip_prefix(prefix)?.split_once(',')?;
        Some(name)
    });
    names
        .enumerate()
        .map(|(number, name)| format!("pub const {name}: u32 = {number};\n"))
        .collect()
}
