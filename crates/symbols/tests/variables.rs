//! Variables of damaged and of hostile debug information.

mod common;

use common::BuildDirectory;
use nopal_symbols::{Image, VariablePath};

fn path(text: &str) -> VariablePath {
    VariablePath::parsed(text).unwrap()
}

/// A function, and a unit of as many bytes of code as `length` says, from `low` on.
fn unit(low: &str, length: &str) -> String {
    format!(
        ".globl f
         .type f, @function
         f: ret
         .size f, . - f
         .section .debug_abbrev, \"\", @progbits
         .byte 1, 0x11, 0    # a compile unit, with DW_AT_low_pc by address and DW_AT_high_pc of eight bytes
         .byte 0x11, 1
         .byte 0x12, 7
         .byte 0, 0, 0
         .section .debug_info, \"\", @progbits
         .long 1f - 0f
         0: .value 4
         .long 0
         .byte 8
         .byte 1
         .quad {low}
         .quad {length}
         1:
         .section .note.GNU-stack, \"\", @progbits
        "
    )
}

#[test]
fn a_unit_that_is_longer_than_memory_holds_no_code() {
    let build = BuildDirectory::new();
    let why = |low: &str, length: &str| {
        build.write("f.s", unit(low, length));
        build.run("gcc -shared -nostdlib f.s -o f");
        let image = Image::open_with_debug_directories(&build.path("f"), &[]).unwrap();
        let address = image.symbol("f").unwrap();
        image.variable(address, &path("x")).unwrap_err().to_string()
    };
    assert!(why("0", "0x100000").contains("no variable is named x"));
    assert!(why("-16", "32").contains("no debug information"));
}

/// Fifteen structures, each of three nameless ones of the kind before: three to the fifteenth power ways to the
/// innermost.
#[test]
fn a_member_is_not_looked_for_without_end() {
    let nested: String = (1..=15)
        .map(|depth| {
            let inner = format!("struct s{};", depth - 1);
            format!("struct s{depth} {{ {} }};\n", inner.repeat(3))
        })
        .collect();
    let build = BuildDirectory::new();
    build.write(
        "f.c",
        format!("struct s0 {{ }};\n{nested}int f(struct s15 *held) {{ return held != 0; }}\n"),
    );
    build.run("gcc -O1 -g -fms-extensions -shared -fPIC f.c -o f");
    let image = Image::open_with_debug_directories(&build.path("f"), &[]).unwrap();
    let address = image.symbol("f").unwrap();
    let why = image.variable(address, &path("held.absent")).unwrap_err();
    assert!(
        why.to_string().contains("absent is not among the first"),
        "{why}"
    );
}
