//! Compiles the latency tracers and their histogram, which are part of the core, into this crate.

use std::path::Path;

fn main() {
    let runtime = Path::new("../../runtime");
    let mut build = cc::Build::new();
    for folder in ["core", "port", "arch/x86_64"] {
        build.include(runtime.join(folder));
    }
    for name in ["latency", "histogram"] {
        let file = |ending: &str| runtime.join("core").join(format!("{name}.{ending}"));
        println!("cargo::rerun-if-changed={}", file("h").display());
        println!("cargo::rerun-if-changed={}", file("c").display());
        build.file(file("c"));
    }
    build
        .std("gnu17")
        .opt_level(2)
        .flag("-mcx16")
        .warnings(true)
        .extra_warnings(true)
        .warnings_into_errors(true)
        .compile("nopal_latency");
}
