//! Tests the Rust that is generated of a header, and that a header which contradicts it is not believed.

use nopal_headers::{Headers, Structure};
use std::path::Path;

const HEADER: &str = "
#include <stdbool.h>
#include <stdint.h>
#ifndef GUARD
#define GUARD
#define NOPAL_COUNT 3
#define NOPAL_BELOW -7
#define NOPAL_LONG (~0ull)
#define NOPAL_SHIFTED (1u << NOPAL_COUNT)
enum nopal_kind { NOPAL_KIND_FIRST, NOPAL_KIND_TENTH = 10, NOPAL_KIND_NEXT };
struct nopal_inner { uint16_t half; uint64_t pair[NOPAL_COUNT][2]; };
struct nopal_outer {
	const char *name;
	struct nopal_inner inner[2];
	enum nopal_kind kind;
	bool is_it;
	char text[5];
	int32_t behind;
	struct nopal_outer *next;
};
bool nopal_does(const struct nopal_outer *outer, uint32_t number, void *where);
void nopal_ends(struct nopal_inner by_value);
#endif
";

fn generate(folder: &Path, structures: Vec<Structure>) -> String {
    let header = folder.join("shared.h");
    std::fs::write(&header, HEADER).unwrap();
    // The variables that cargo sets for build scripts.
    for (name, value) in [
        ("OUT_DIR", folder.to_str().unwrap()),
        ("TARGET", "x86_64-unknown-linux-gnu"),
        ("HOST", "x86_64-unknown-linux-gnu"),
        ("OPT_LEVEL", "0"),
    ] {
        // SAFETY: the only test of this program, and it has one thread.
        unsafe { std::env::set_var(name, value) };
    }
    Headers::new(folder, &["."], &["shared.h"])
        .all_constants()
        .unwrap()
        .counts(["NOPAL_COUNT"])
        .structures(structures)
        .enumeration("nopal_kind", "kind", "NOPAL_KIND_")
        .functions(["nopal_does", "nopal_ends"])
        .write("shared.rs")
        .unwrap();
    std::fs::read_to_string(folder.join("shared.rs")).unwrap()
}

#[test]
fn headers_are_the_same_in_rust() {
    let folder = tempfile::tempdir().unwrap();
    let inner = Structure::new("nopal_inner", "Inner").derive("Default");
    let outer = Structure::new("nopal_outer", "Outer");
    let head = Structure::new("nopal_outer", "Head")
        .until("kind")
        .foreign();
    let text = generate(folder.path(), vec![inner, outer, head]);
    for line in [
        "pub const BELOW: i32 = -7;",
        "pub const COUNT: usize = 3;",
        "pub const LONG: u64 = 0xffffffffffffffff;",
        "pub const SHIFTED: u32 = 8;",
        "    pub const FIRST: u32 = 0;",
        "    pub const NEXT: u32 = 11;",
        "    pub pair: [[u64; 2]; 3],",
        "    pub name: *const std::ffi::c_char,",
        "    pub name: u64,",
        "    pub inner: [Inner; 2],",
        "    pub kind: u32,",
        "    pub is_it: bool,",
        "    pub text: [u8; 5],",
        "    pub next: *mut Outer,",
        "const _: () = assert!(size_of::<Outer>() == 144);",
        "const _: () = assert!(size_of::<Head>() == 120);",
        "    pub fn nopal_does(_0: *const Outer, _1: u32, _2: *mut std::ffi::c_void) -> bool;",
        "    pub fn nopal_ends(_0: Inner);",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} of {text}");
    }
    assert!(!text.contains("GUARD"));

    // The compiler that runs this test agrees with all that is asserted in it.
    let program = folder.path().join("program.rs");
    std::fs::write(
        &program,
        format!("#![allow(dead_code)]\n{text}\nfn main() {{}}\n"),
    )
    .unwrap();
    let compiles = || {
        let mut compiler = std::process::Command::new("rustc");
        compiler.args(["--edition=2024", "--emit=metadata", "--out-dir"]);
        compiler.arg(folder.path()).arg(&program);
        compiler.output().unwrap().status.success()
    };
    assert!(compiles());
    let other = text.replace("pub text: [u8; 5]", "pub text: [u8; 9]");
    std::fs::write(
        &program,
        format!("#![allow(dead_code)]\n{other}\nfn main() {{}}\n"),
    )
    .unwrap();
    assert!(!compiles());
}
