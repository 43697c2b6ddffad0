//! Compiles the parser of the control language, which is part of the core, into this crate, and gives its declarations
//! names in Rust.

use nopal_headers::{Headers, Structure};
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let core = Path::new("../../runtime/core");
    println!(
        "cargo::rerun-if-changed={}",
        core.join("command_parser.c").display()
    );
    println!(
        "cargo::rerun-if-changed={}",
        core.join("command_parser.h").display()
    );
    let mut build = cc::Build::new();
    build
        .file(core.join("command_parser.c"))
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

    let headers = Headers::new(Path::new("../../runtime"), &["core"], &["command_parser.h"])
        .structures([
            Structure::new("nopal_span", "Span").derive("Clone, Copy, Default"),
            Structure::new("nopal_control", "Parsed"),
            Structure::new("nopal_location", "RawLocation").derive("Default"),
        ])
        .enumeration("nopal_command", "command", "NOPAL_COMMAND_")
        .enumeration("nopal_probe_part", "probe_part", "NOPAL_PROBE_")
        .enumeration("nopal_when_part", "when_part", "NOPAL_WHEN_")
        .enumeration("nopal_location_kind", "location_kind", "NOPAL_LOCATION_")
        .counts(["NOPAL_CONTROL_ARGUMENTS", "NOPAL_CONTROL_EXPECTED"])
        .functions([
            "nopal_control_parse",
            "nopal_action_parse",
            "nopal_control_form",
            "nopal_location_next",
            "nopal_number_next",
        ]);
    Ok(headers.write("grammar.rs")?)
}
