mod common;

use common::{BuildDirectory, by_name, libc};
use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, LittleEndian, UnwindContext, UnwindSection,
    UnwindTable, X86_64,
};
use nopal_symbols::{Cfa, CfaChange, Image};

/// Every row of every entry, compared with gimli's own table of rules.
fn assert_rows(image: &Image) {
    let headers = std::fs::read(image.path()).unwrap();
    let file = object::read::elf::ElfFile64::<object::LittleEndian>::parse(&*headers).unwrap();
    let section = object::Object::section_by_name(&file, ".eh_frame").unwrap();
    let frames = EhFrame::new(object::ObjectSection::data(&section).unwrap(), LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(object::ObjectSection::address(&section));
    let mut context = UnwindContext::new();
    let mut entries = frames.entries(&bases);
    let mut compared = 0;
    while let Some(item) = entries.next().unwrap() {
        let CieOrFde::Fde(partial) = item else {
            continue;
        };
        let fde = partial.parse(EhFrame::cie_from_offset).unwrap();
        let mut expected: Vec<CfaChange> = Vec::new();
        let mut rows = UnwindTable::new(&frames, &bases, &mut context, &fde).unwrap();
        while let Some(row) = rows.next_row().unwrap() {
            let cfa = match *row.cfa() {
                CfaRule::RegisterAndOffset {
                    register: X86_64::RSP,
                    offset,
                } => Cfa::Rsp(offset),
                CfaRule::RegisterAndOffset {
                    register: X86_64::RBP,
                    offset,
                } => Cfa::Rbp(offset),
                _ => Cfa::Other,
            };
            if row.start_address() < row.end_address()
                && expected.last().is_none_or(|last| last.cfa != cfa)
            {
                expected.push(CfaChange {
                    address: row.start_address(),
                    cfa,
                });
            }
        }
        let range = fde.initial_address()..fde.end_address();
        let entry = image.unwind_rows(range.start).unwrap();
        assert_eq!((entry.start, entry.end), (range.start, range.end));
        assert_eq!(
            entry.entry_cfa_is_rsp_plus_8,
            expected[0].cfa == Cfa::Rsp(8)
        );
        assert_eq!(entry.is_signal_frame, fde.is_signal_trampoline());
        assert_eq!(image.cfa_changes(range.clone()), expected, "{range:x?}");
        assert_eq!(image.unwind_rows(range.end - 1), Some(entry));

        // A part of it shows the same rules.
        let middle = range.start + (range.end - range.start) / 2;
        let from_middle = image.cfa_changes(middle..range.end);
        let rule = |changes: &[CfaChange], address| {
            changes
                .iter()
                .rev()
                .find(|change| change.address <= address)
                .map(|change| change.cfa)
        };
        assert_eq!(from_middle[0].address, middle);
        for address in middle..range.end.min(middle + 64) {
            assert_eq!(
                rule(&from_middle, address),
                rule(&expected, address),
                "{address:#x}"
            );
        }
        compared += 1;
    }
    assert!(compared > 3);
}

#[test]
fn rows_of_compiled_programs() {
    let build = BuildDirectory::new();
    build.write(
        "a.c",
        "#include <stdio.h>
         #include <alloca.h>
         int push(int a, int b, int c, int d) { printf(\"%d\", a); return a + b + c + d; }
         int grow(int n) { char *p = alloca(n); return snprintf(p, n, \"%d\", n); }
         int main(int argc, char **argv) { return push(argc, 2, 3, 4) + grow(argc); }",
    );
    for flags in [
        "-O0",
        "-O2",
        "-O2 -fno-omit-frame-pointer",
        "-Os -static",
        "-O3 -mstackrealign -no-pie",
    ] {
        build.run(&format!("gcc {flags} a.c -o a"));
        assert_rows(&build.open("a"));
    }
}

#[test]
fn rows_of_the_c_library() {
    assert_rows(&Image::open(&libc()).unwrap());
}

#[test]
fn a_frame_pointer_takes_over() {
    let build = BuildDirectory::new();
    build.write(
        "a.c",
        "int f(int x) { return x; } int main(void) { return f(1); }",
    );
    build.run("gcc -O0 -fcf-protection=none a.c -o a");
    let image = build.open("a");
    let f = by_name(&image)["f"].address;
    // push %rbp is 1 byte, mov %rsp,%rbp is 3.
    let changes = image.cfa_changes(f..f + 5);
    let expected = [(0, Cfa::Rsp(8)), (1, Cfa::Rsp(16)), (4, Cfa::Rbp(16))];
    assert_eq!(
        changes,
        expected.map(|(offset, cfa)| CfaChange {
            address: f + offset,
            cfa
        })
    );
    assert_eq!(
        image.cfa_changes(f + 2..f + 3),
        [CfaChange {
            address: f + 2,
            cfa: Cfa::Rsp(16)
        }]
    );
    assert_eq!(image.cfa_changes(0..8), []);
    assert_eq!(image.unwind_rows(0), None);
}

#[test]
fn what_is_not_called_is_no_call_boundary() {
    let build = BuildDirectory::new();
    build.write("a.c", "int main(void) { return 0; }");
    build.run("gcc a.c -o a");
    let image = build.open("a");
    let start = image.unwind_rows(image.entry()).unwrap();
    assert!(
        start.entry_cfa_is_rsp_plus_8
            && !start.has_return_address
            && !start.starts_at_call_boundary()
    );
    let main = image.unwind_rows(image.symbol("main").unwrap()).unwrap();
    assert!(main.starts_at_call_boundary());
}

#[test]
fn files_without_unwinding() {
    let build = BuildDirectory::new();
    build.write("a.c", "int f(void) { return 0; }");
    build.run("gcc -O2 -shared -nostdlib -fno-asynchronous-unwind-tables a.c -o a.so");
    let image = build.open("a.so");
    assert!(!image.has_unwind_header());
    assert!(by_name(&image).contains_key("f"));
    let f = image.symbol("f").unwrap();
    assert_eq!(image.unwind_rows(f), None);
    assert_eq!(image.cfa_changes(f..f + 3), []);
}
