//! Programs in languages whose runtimes have stacks, collectors and exceptions of their own.

use crate::{Row, installed, row};
use nopal_tests::{Case, Program, compile, compile_copy, sources};

pub const ROWS: &[Row] = &[
    row("OCaml: collections, exceptions", || {
        Case::new(built("collected.ml", "ocamlopt -o \"$2\" collected.ml"))
    })
    .also_with_libs(),
    row("Ruby: callcc, fibers, threads", || {
        interpreted("ruby", &["-W0"], "continued.rb")
    })
    .also_with_libs(),
    row("Guile: continuations, threads", || {
        interpreted("guile", &["--no-auto-compile"], "delimited.scm")
    })
    .also_with_libs(),
    row("Chicken: a stack that is never left", || {
        Case::new(built("stacked.scm", "csc -O2 stacked.scm -o \"$2\""))
    })
    .also_with_libs(),
    row("Chez Scheme", || {
        interpreted("chezscheme", &["--script"], "segmented.ss")
    })
    .also_with_libs(),
    row("SBCL: code that moves", || {
        interpreted("sbcl", &["--script"], "pinned.lisp")
    })
    .also_with_libs(),
    row("GHC: code that jumps only", || {
        Case::new(built("Tabled.hs", "ghc -v0 -O -threaded Tabled.hs -o \"$2\""))
    })
    .also_with_libs(),
    row("Erlang: BEAM's own code", || {
        let script = "erlc messages.erl && mv messages.beam \"$2\"";
        let module = built("messages.erl", script).path;
        let load = format!("code:load_binary(messages, [], element(2, file:read_file({module:?}))), messages:main(0), halt().");
        // The emulator itself, not the script that starts it.
        installed("erl").arguments(["-noshell".to_owned(), "-eval".to_owned(), load])
    })
    .also_with_libs(),
    row("Lua: coroutines, errors", || {
        interpreted("lua5.4", &[], "coroutines.lua")
    })
    .also_with_libs(),
    row("Boehm's collector", || {
        let command = ["gcc", "-std=gnu17", "-O2", "-g", "-pthread", "-DHOLD"];
        Case::new(compile("runtimes/conservative.c", &command, &["-lgc"]))
    })
    .also_with_libs(),
    row("Free Pascal", || {
        Case::new(built("own_stacks.pas", "fpc -v0 own_stacks.pas -o\"$2\""))
    })
    .also_with_libs(),
];

fn built(source: &str, script: &str) -> Program {
    compile_copy(&format!("runtimes/{source}"), script)
}

fn interpreted(interpreter: &str, words: &[&str], source: &str) -> Case {
    let source = sources().join("runtimes").join(source);
    let words = words.iter().map(|word| word.into());
    installed(interpreter).arguments(words.chain([source.into_os_string()]))
}
