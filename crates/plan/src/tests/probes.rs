use super::verdicts::library;
use crate::{FrameChange, Reason, Site, Unprobed, probes};

/// The verdict so many bytes behind the beginning of a function of this assembly.
fn verdict(body: &str, function: &str, offset: u64) -> Result<Site, Unprobed> {
    let planned = library(body);
    let address = planned.address(function) + offset;
    probes(&planned.image, |probes| Ok(probes.site(address))).unwrap()
}

#[test]
fn only_instructions_that_there_are_can_be_probed() {
    let body = "function f\nmov $5, %eax\nmov $6, %edx\nret\nend f\n.byte 1, 2, 3, 4";
    assert_eq!(verdict(body, "f", 0).unwrap().window, 5);
    assert_eq!(verdict(body, "f", 5).unwrap().window, 5);
    let Err(Unprobed::WithinInstruction { before, after }) = verdict(body, "f", 7) else {
        panic!("it is inside an instruction")
    };
    assert_eq!(after - before, 5);
    assert_eq!(
        verdict(body, "f", 10),
        Err(Unprobed::Bytes(Reason::TooShort))
    );
}

#[test]
fn nothing_may_lead_behind_the_first_byte() {
    let body = "function f\npush %rax\n1: dec %edi\nnop\nnop\njnz 1b\npop %rax\nret\nend f
         function g\nmov $1, %eax\npush %rax\ncall f\npop %rax\nret\nend g
         function h\nmov $1, %eax\nmov $39, %eax\nsyscall\nret\nend h\nnop\nnop";
    let entered = Err(Unprobed::Bytes(Reason::EnteredInside));
    assert_eq!(verdict(body, "f", 0), entered);
    assert!(
        verdict(body, "f", 1).is_ok(),
        "to the first byte, who likes may jump"
    );
    assert!(verdict(body, "g", 5).is_ok(), "a call may end the window");
    assert_eq!(verdict(body, "h", 10), Err(Unprobed::SystemCall));
}

#[test]
fn a_breakpoint_needs_one_instruction() {
    let body = "function f\npush %rax\n1: dec %edi\nnop\nnop\njnz 1b\npop %rax\nret\nend f
         function h\nmov $39, %eax\nsyscall\nud2\nret\nend h";
    let planned = library(body);
    let (f, h) = (planned.address("f"), planned.address("h"));
    probes(&planned.image, |probes| {
        let of_f = probes.of_function(f).unwrap();
        assert!(of_f.iter().all(|one| one.breakpoint), "all of them");
        assert!(of_f[0].site.is_err(), "where no jump fits, too");
        let last = of_f.last().unwrap().address;
        assert_eq!(probes.breakpoint(last).unwrap().window, 1);
        assert_eq!(probes.breakpoint(f + 1).unwrap().window, 2);
        let within = probes.breakpoint(f + 2);
        assert!(matches!(within, Err(Unprobed::WithinInstruction { .. })));
        assert_eq!(probes.breakpoint(h + 5), Err(Unprobed::SystemCall));
        let traps = probes.breakpoint(h + 7);
        assert_eq!(traps, Err(Unprobed::Bytes(Reason::Traps)));
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_jump_back_to_the_probe_passes_it_again() {
    let body = "function f\nxor %eax, %eax\n1: dec %rdi\njnz 1b\nret\nend f";
    let site = verdict(body, "f", 2).unwrap();
    assert_eq!(site.window, 5);
    let leads = |target| {
        let mut targets = site.body.fixups().map(|fixup| match fixup {
            crate::Fixup::Relative { target, .. } | crate::Fixup::Absolute { target, .. } => target,
        });
        targets.any(|other| other == target)
    };
    assert!(leads(site.address) && leads(site.address + 5));
}

#[test]
fn computed_jumps_must_be_known() {
    let table =
        "function f\nlea 9f(%rip), %rdx\nmovslq (%rdx,%rdi,4), %rax\nadd %rdx, %rax\njmp *%rax
         1: mov $1, %ecx\nnop\n2: xor %ecx, %ecx\nmov $3, %esi\nret\nend f
         .section .rodata\n9: .long 1b - 9b, 2b - 9b\n.text";
    assert!(verdict(table, "f", 0).is_ok(), "by a table");
    let [first, second] = [0x10, 0x16];
    assert!(verdict(table, "f", first).is_ok());
    assert!(verdict(table, "f", second).is_ok());
    assert!(verdict(table, "f", second + 2).is_ok());
    let computed = "function f\nlea 1f(%rip), %rax\nlea (%rax,%rdi,2), %rax\njmp *%rax
         1: inc %eax\ninc %eax\ninc %eax\ninc %eax\nmov $7, %esi\nret\nend f";
    assert!(matches!(
        verdict(computed, "f", 0xd),
        Err(Unprobed::UnknownTargets { .. })
    ));
    assert_eq!(
        verdict(computed, "f", 0x15).unwrap().window,
        5,
        "one instruction"
    );
    let pointer = "function f\nmov 8(%rdi), %rax\ninc %ecx\ninc %ecx\ninc %ecx\njmp *%rax\nend f";
    assert!(verdict(pointer, "f", 4).is_ok(), "loaded from memory");
}

#[test]
fn functions_that_must_not_be_touched_are_not_within_either() {
    let body = "function setjmp\nmov $5, %eax\nmov $6, %edx\nret\nend setjmp\nnop";
    let refused = Err(Unprobed::Untouchable(Reason::ReturnsTwice));
    assert_eq!(verdict(body, "setjmp", 5), refused);
}

#[test]
fn unwinding_begins_with_the_rules_of_the_place() {
    let body = "function f\npush %rbx\n.cfi_def_cfa_offset 16\n.cfi_offset %rbx, -16\nmov $5, %ebx\npop %rbx\n\
         .cfi_def_cfa_offset 8\n.cfi_restore %rbx\nret\nend f";
    let site = verdict(body, "f", 1).unwrap();
    let cfa = FrameChange::Cfa {
        register: 7,
        offset: 16,
    };
    let saved = FrameChange::Saved {
        register: 3,
        offset: -16,
    };
    let rows: Vec<_> = site.body.rows().collect();
    assert!(rows.starts_with(&[(0, cfa), (0, saved)]), "{rows:?}");
}
