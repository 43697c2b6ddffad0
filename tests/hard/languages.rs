//! Programs in languages whose runtimes have stacks, collectors and exceptions of their own.

use crate::{Row, installed, row};
use nopal_tests::{Case, Program, compile, compile_copy, sources};
use std::ffi::OsString;

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
        // The command is the emulator itself, not the script that starts it.
        let emulator = installed("erl").arguments(["-noshell".to_owned(), "-eval".to_owned(), load]);
        emulator.environment("ERL_CRASH_DUMP_SECONDS", "0")
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
    row("Racket: continuations, engines", || {
        interpreted("racket", &[], "conses.rkt")
    })
    .also_with_libs(),
    row("Gambit", || {
        let script = "{ echo '(define (environment name) (getenv name #f)) (define collect ##gc)'; cat moving.scm; } >own.scm && \
                      gsc -exe -o \"$2\" own.scm";
        Case::new(built("moving.scm", script))
    })
    .also_with_libs(),
    row("MIT Scheme", || {
        let before = "(begin (define environment get-environment-variable) (define (collect) (gc-flip)))";
        let source = sources().join("runtimes/moving.scm");
        let words = ["--quiet", "--eval", before, "--load"].map(OsString::from);
        let words = words.into_iter().chain([source.into_os_string()]);
        installed("mit-scheme").arguments(words.chain(["--eval".into(), "(exit 0)".into()]))
    })
    .also_with_libs(),
    row("ECL", || {
        interpreted("ecl", &["--norc", "--shell"], "conditions.lisp")
    })
    .also_with_libs(),
    row("CLISP", || interpreted("clisp", &["-norc"], "conditions.lisp")).also_with_libs(),
    row("Poly/ML: code that moves", || {
        interpreted("poly", &["-q", "--use"], "polymorphic.sml")
    })
    .also_with_libs(),
    row("SWI-Prolog: threads, continuations", || {
        interpreted("swipl", &[], "choices.pl")
    })
    .also_with_libs(),
    row("GNU Prolog: code that jumps only", || {
        let script = "gplc --no-top-level -o \"$2\" tailed.pl";
        Case::new(built("tailed.pl", script))
    })
    .also_with_libs(),
    row("LuaJIT: traces, the unwinder", || {
        interpreted("luajit", &[], "traced.lua")
    })
    .also_with_libs(),
    row("PHP: fibers", || interpreted("php", &[], "fibers.php")).also_with_libs(),
    row("Perl: errors by longjmp, threads", || {
        interpreted("perl", &[], "evaluated.perl")
    })
    .also_with_libs(),
    row("Tcl: coroutines", || {
        interpreted("tclsh", &[], "coroutines.tcl")
    })
    .also_with_libs(),
    row("Pike: threads", || {
        interpreted("pike8.0", &[], "messages.pike")
    })
    .also_with_libs(),
    row("Gforth: threaded code", || {
        interpreted("gforth-fast", &[], "words.fs")
    })
    .also_with_libs(),
    row("GNU Common Lisp: a heap by sbrk", || {
        // Debian has it as Maxima, in a directory of the version's name.
        let versions = std::fs::read_dir("/usr/lib/maxima").expect("maxima is installed");
        let mut images = versions.flatten().map(|it| it.path().join("binary-gcl/maxima"));
        let image = images.find(|image| image.exists()).expect("maxima is of this Lisp");
        let source = sources().join("runtimes/images.lisp");
        let words = [OsString::from("-load"), source.into_os_string()];
        Case::new(Program::installed(image)).arguments(words)
    })
    .also_with_libs(),
    row("R", || {
        let source = sources().join("runtimes/reified.R");
        let words = ["--no-echo", "--no-restore", "--vanilla", "-f"].map(OsString::from);
        Case::new(Program::installed("/usr/lib/R/bin/exec/R"))
            .environment("R_HOME", "/usr/lib/R")
            .environment("LD_LIBRARY_PATH", "/usr/lib/R/lib")
            .arguments(words.into_iter().chain([source.into_os_string()]))
    })
    .also_with_libs(),
    row("Octave: exceptions of C++", || {
        interpreted("octave-cli", &["--no-init-file"], "matrices.octave")
    })
    .also_with_libs(),
    row("PyPy: greenlets, its own code", || {
        interpreted("pypy3", &[], "jitted.py")
    })
    .also_with_libs(),
    row("Rakudo: MoarVM", || {
        interpreted("rakudo", &[], "promised.raku")
    })
    .also_with_libs(),
    row("Node.js: workers", || interpreted("node", &[], "isolates.js")).also_with_libs(),
    row("Java: HotSpot", || {
        interpreted("java", &["-Xmx512m"], "Collected.java")
    })
    .also_with_libs(),
    row("Mono", || {
        let program = built("Collected.cs", "mcs -out:\"$2\" Collected.cs").path;
        installed("mono").arguments([program])
    })
    .also_with_libs(),
    row("Crystal: fibers", || {
        Case::new(built("fibers.cr", "crystal build --release -o \"$2\" fibers.cr"))
    })
    .also_with_libs(),
    row("Nim", || {
        let script = "nim c --threads:on -d:release --hints:off --nimcache:own -o:\"$2\" collected.nim";
        Case::new(built("collected.nim", script))
    })
    .also_with_libs(),
    row("Objective-C: messages that jump", || {
        let script = "gcc -std=gnu17 -O2 -g -DHOLD $(gnustep-config --objc-flags) \"$0\" -o \"$2\" $(gnustep-config --base-libs)";
        Case::new(compile("runtimes/objects.m", &["sh", "-c", script], &[]))
    })
    .also_with_libs(),
    row("Vala: signals, asynchronous calls", || {
        let script = "valac --pkg gio-2.0 -X -w -X -O2 -o \"$2\" signals.vala";
        Case::new(built("signals.vala", script))
    })
    .also_with_libs(),
    row("COBOL", || {
        Case::new(built("ledger.cob", "cobc -x -O -o \"$2\" ledger.cob"))
    })
    .also_with_libs(),
    row("C that tcc runs from memory", || {
        interpreted("tcc", &["-run"], "compiled.c")
    })
    .also_with_libs(),
    row("C that LLVM's lli runs from memory", || {
        let script = "clang -O1 -S -emit-llvm -o \"$2\" compiled.c";
        installed("lli-14").arguments([built("compiled.c", script).path])
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
