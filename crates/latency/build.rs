//! Compiles the latency tracers and their histogram, which are part of the core, into this crate, and translates their
//! constants and structures into Rust.

use nopal_headers::{Headers, Structure};
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = Path::new("../../runtime");
    let arch = format!("arch/{}", std::env::var("CARGO_CFG_TARGET_ARCH")?);
    let folders = ["core", "port", &arch];
    let mut build = cc::Build::new();
    for folder in folders {
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
        .flag_if_supported("-mcx16")
        .warnings(true)
        .extra_warnings(true)
        .warnings_into_errors(true)
        .compile("nopal_latency");

    let headers = Headers::new(runtime, &folders, &["latency.h"])
        .structures([
            Structure::new("nopal_histogram", "Histogram"),
            Structure::new("nopal_tracer", "RawTracer"),
            Structure::new("nopal_event", "RawEvent"),
            Structure::new("nopal_case", "RawCase").derive("Default"),
            Structure::new("nopal_open_case", "RawOpenCase"),
            Structure::new("nopal_latency", "RawLatency"),
            Structure::new("nopal_kept_case", "RawKeptCase"),
            Structure::new("nopal_latency_own", "RawOwn"),
        ])
        .enumeration("nopal_outcome", "outcome", "NOPAL_OUTCOME_")
        .enumeration("nopal_key", "key", "NOPAL_KEY_")
        .enumeration("nopal_nesting", "nesting", "NOPAL_NESTING_")
        .counts(["NOPAL_CASES_OPEN", "NOPAL_HISTOGRAM_BUCKETS"])
        .functions([
            "nopal_latency_event",
            "nopal_latency_worst",
            "nopal_latency_reset",
            "nopal_latency_expire",
            "nopal_histogram_low",
            "nopal_histogram_high",
            "nopal_histogram_merge",
            "nopal_histogram_count",
        ]);
    Ok(headers.write("layout.rs")?)
}
