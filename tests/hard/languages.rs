//! Programs in languages whose runtimes have stacks, collectors and exceptions of their own.

use crate::{Row, installed, row};
use nopal_tests::{Case, compile, sources};

pub const ROWS: &[Row] = &[
    row("OCaml: collections, exceptions", || {
        Case::new(built("collected.ml", "ocamlopt -o \"$2\" collected.ml"))
    })
    .also_with_libs(),
    row("Ruby: callcc, fibers, threads", || {
        interpreted("ruby", &["-W0"], "continued.rb")
    })
    .also_with_libs(),
];

/// Compiled in a directory of its own, since compilers leave files beside the source.
fn built(source: &str, script: &str) -> nopal_tests::Program {
    let script = format!(
        "d=$(mktemp -d) && cp \"$0\" \"$d\" && (cd \"$d\" && {script}); s=$?; rm -r \"$d\"; exit $s"
    );
    compile(&format!("runtimes/{source}"), &["sh", "-c", &script], &[])
}

fn interpreted(interpreter: &str, words: &[&str], source: &str) -> Case {
    let source = sources().join("runtimes").join(source);
    let words = words.iter().map(|word| word.into());
    installed(interpreter).arguments(words.chain([source.into_os_string()]))
}
