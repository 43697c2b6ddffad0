//! Compiles the parser of the control language, which is part of the core, into this crate.

use std::path::Path;

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
}
