//! Variables and parameters of damaged and of hostile debug information.

mod common;

use common::BuildDirectory;
use nopal_symbols::{Held, Image, VariablePath};

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

/// Types of a parameter that qualify themselves, or a type that qualifies them; and structures within themselves.
#[test]
fn types_that_are_made_of_themselves_have_no_prototype_without_end() {
    let build = BuildDirectory::new();
    let source = "
        .globl f
        .type f, @function
        f: ret
        .size f, . - f
        .section .debug_abbrev, \"\", @progbits
        .byte 1, 0x11, 1        # a compile unit: language, producer
        .byte 0x13, 0x0b, 0x25, 0x08, 0, 0
        .byte 2, 0x2e, 1        # a function: name, low_pc, high_pc, type
        .byte 3, 0x08, 0x11, 1, 0x12, 7, 0x49, 0x13, 0, 0
        .byte 3, 5, 0           # a parameter: type
        .byte 0x49, 0x13, 0, 0
        .byte 4, 0x26, 0        # const: type
        .byte 0x49, 0x13, 0, 0
        .byte 5, 0x13, 1        # a structure: size
        .byte 0x0b, 0x0b, 0, 0
        .byte 6, 0x0d, 0        # a member: type
        .byte 0x49, 0x13, 0, 0
        .byte 7, 1, 1           # an array: type
        .byte 0x49, 0x13, 0, 0
        .byte 0
        .section .debug_info, \"\", @progbits
        .long 1f - 0f
        0: .value 4
        .long 0
        .byte 8
        .set unit, 0b - 4
        .byte 1, 0x0c
        .asciz \"GNU C17\"
        .byte 2
        .asciz \"f\"
        .quad f, 1
        .long 3f - unit
        .byte 3
        .long 2f - unit
        .byte 3
        .long 3f - unit
        .byte 3
        .long 4f - unit
        .byte 0
        2: .byte 4              # const of itself
        .long 2b - unit
        3: .byte 5, 16          # a structure of itself, three times
        .byte 6
        .long 3b - unit
        .byte 6
        .long 3b - unit
        .byte 6
        .long 3b - unit
        .byte 0
        4: .byte 7              # an array of itself
        .long 4b - unit
        .byte 0
        .byte 0
        1:
        .section .note.GNU-stack, \"\", @progbits
    ";
    build.write("f.s", source);
    build.run("gcc -shared -nostdlib f.s -o f");
    let image = Image::open_with_debug_directories(&build.path("f"), &[]).unwrap();
    let address = image.symbol("f").unwrap();
    let prototypes = image.prototypes(&[address]);
    let prototype = &prototypes[&address];
    assert_eq!(prototype.parameters.len(), 3);
    for parameter in &prototype.parameters {
        assert_eq!(parameter.value.held, Held::Unknown);
    }
    assert_eq!(prototype.result.held, Held::Unknown);
}
