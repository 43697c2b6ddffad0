use super::{Built, Planned};
use crate::{How, Reason};

/// Assembly of functions: `function f` … `end f`, each with padding behind it.
fn assembled(body: &str, options: &[&str]) -> Planned {
    let source = format!(
        ".macro function name\n.globl \\name\n.type \\name, @function\n.p2align 4\n\\name:\n.cfi_startproc\n.endm\n\
         .macro end name\n.cfi_endproc\n.size \\name, .-\\name\n.endm\n.text\n{body}\n.p2align 4\n"
    );
    let mut all = vec!["-nostdlib"];
    all.extend_from_slice(options);
    Built::new("verdicts.s", &source, &all).planned()
}

pub(super) fn library(body: &str) -> Planned {
    assembled(body, &["-shared"])
}

#[test]
fn short_functions_need_padding() {
    let planned = library(
        "function bare\nret\nend bare\n
         .p2align 4\n.globl tight\n.type tight, @function\ntight: ret\n.size tight, 1\n
         .globl after\n.type after, @function\nafter: mov $1, %eax\nret\n.size after, .-after\n
         function falls\nnop\nend falls\n
         function last\nxor %eax, %eax\nret\nend last\n.byte 0xcc, 0xcc",
    );
    assert_eq!(planned.site("bare").window, 5);
    assert_eq!(planned.site("bare").body.code(), [0xc3]);
    assert_eq!(planned.reason("tight"), Reason::TooShort);
    assert_eq!(planned.site("after").window, 5);
    // It runs on into its padding, and so does the body.
    assert!(planned.site("falls").window > 5);
    assert_eq!(planned.site("last").body.code(), [0x31, 0xc0, 0xc3]);
}

/// A function with room for a short jump, and what is around it.
fn short_with(before: &str, behind: &str) -> Planned {
    let short = "xor %eax, %eax\n1: dec %edi\njnz 1b\nret";
    library(&format!(
        ".p2align 4\n{before}\n.globl f\n.type f, @function\nf: {short}\n.size f, .-f\n{behind}
         .globl g\n.type g, @function\ng: mov $1, %eax\nret\n.size g, .-g"
    ))
}

#[test]
fn short_jumps_lead_to_padding_within_their_reach() {
    let hole = |planned: &Planned| {
        let site = planned.site("f");
        (site.how == How::ShortJump).then(|| (site.hole.unwrap() - site.address) as i64)
    };
    let five = ".byte 0x66, 0x90, 0xcc, 0xcc, 0xcc";
    assert_eq!(hole(&short_with("", five)), Some(7));
    // The last place that it reaches, and the first that it does not.
    let far = |code: usize| {
        let function =
            ".globl h\n.type h, @function\nh: .rept N\npush %rax\n.endr\nret\n.size h, .-h";
        format!("{}\n{five}", function.replace('N', &code.to_string()))
    };
    assert_eq!(hole(&short_with("", &far(121))), Some(129));
    assert_eq!(short_with("", &far(122)).reason("f"), Reason::EnteredInside);
    // One function for each piece.
    let two = library(
        ".macro short name\n.globl \\name\n.type \\name, @function
         \\name: xor %eax, %eax\n2: dec %edi\njnz 2b\nret\n.size \\name, .-\\name\n.endm
         .p2align 4\nshort a\nshort b\nshort c\n.byte 0x66, 0x90, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc
         .globl g\n.type g, @function\ng: mov $1, %eax\nret\n.size g, .-g",
    );
    assert_eq!(two.site("a").hole, Some(two.address("c") + 7));
    assert_eq!(two.site("b").hole, Some(two.address("c") + 12));
    assert_eq!(two.reason("c"), Reason::EnteredInside);
}

#[test]
fn other_bytes_between_functions_are_no_room_for_short_jumps() {
    let refused = |behind: &str| {
        let planned = short_with("", behind);
        assert_eq!(planned.reason("f"), Reason::EnteredInside, "{behind}");
    };
    // Less than a jump; data; room that a compiler has left to be patched; code without a symbol.
    refused(".byte 0x66, 0x90, 0xcc, 0xcc");
    refused(".byte 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0x00");
    refused("nop\nnop\nnop\nnop\nnop");
    refused("1: .byte 0x66, 0x90, 0xcc, 0xcc, 0xcc\njmp 1b");
    let of = |last: &str, more: &str| {
        refused(&format!(
            ".globl h\n.type h, @function\nh: push %rax\n{last}\n.size h, .-h
             8: .byte 0x66, 0x90, 0xcc, 0xcc, 0xcc\n{more}"
        ));
    };
    // What runs on there; what calls return to; what something leads to.
    of("pop %rax", "");
    of("call g", "");
    of("lea 8f(%rip), %rax\nret", "");
    of("movups 8f(%rip), %xmm0\nret", "");
    of("ret", ".section .data.rel.ro, \"aw\"\n.quad 8b\n.text");
}

#[test]
fn padding_behind_a_function_of_unknown_size_is_room_for_a_short_jump() {
    let planned = |last: &str| {
        short_with(
            &format!(
                ".globl h\n.type h, @function\nh: {last}\n8: .byte 0x66, 0x90, 0xcc, 0xcc, 0xcc"
            ),
            "",
        )
    };
    let usable = planned("mov $1, %eax\nret");
    assert_eq!(usable.site("f").hole, Some(usable.address("f") - 5));
    // What runs on; what its own code reads and takes.
    for last in [
        "mov $1, %eax",
        "movb 8f(%rip), %al\nret",
        "lea 7f(%rip), %rax\nret\n7: ret",
    ] {
        assert_eq!(planned(last).reason("f"), Reason::EnteredInside, "{last}");
    }
}

#[test]
fn what_leads_to_a_thunk_lies_on_one_page() {
    let planned = |from_end: u64, before: &str, behind: &str| {
        let planned = library(&format!(
            ".p2align 12\n1: {before}\n.skip 4096 - {from_end} - (. - 1b), 0xcc\n
             .globl f\n.type f, @function\nf: xor %eax, %eax\ninc %eax\nret\n.size f, .-f\n{behind}"
        ));
        assert_eq!(planned.address("f") % 4096, 4096 - from_end);
        planned
    };
    let code = |pushes: u64| {
        format!(
            ".globl p\n.type p, @function\np: .rept {pushes}\npush %rax\n.endr\nret\n.size p, .-p"
        )
    };
    let full = |from_end: u64| code(4095 - from_end);
    let padded = &code(0);
    assert_eq!(planned(5, &full(5), "").site("f").how, How::Jump);
    let padding = ".skip 8, 0xcc\n.globl g\n.type g, @function\ng: mov $1, %eax\nret\n.size g, .-g";
    for from_end in 2..5 {
        // The padding behind the function is on the next page.
        let behind = planned(from_end, &full(from_end), padding);
        assert_eq!(behind.reason("f"), Reason::TwoPages, "{from_end}");
        let before = planned(from_end, padded, "");
        let (address, site) = (before.address("f"), before.site("f"));
        assert_eq!(site.how, How::ShortJump);
        let hole = site.hole.unwrap();
        assert!(
            hole / 4096 == address / 4096 && hole + 5 <= address,
            "{hole:#x}"
        );
    }
    assert_eq!(planned(1, padded, "").reason("f"), Reason::TwoPages);
}

#[test]
fn what_is_not_padding_is_left_alone() {
    let planned = library("function f\nret\nend f\n.byte 0x01, 0x02, 0x03, 0x04, 0x05, 0x06");
    assert_eq!(planned.reason("f"), Reason::TooShort);
}

#[test]
fn jumps_into_the_window_are_seen() {
    let planned = library(
        "function own\nxor %eax, %eax\n1: dec %edi\njnz 1b\nret\nend own
         function other\nmov $5, %edi\njmp own_inside\nend other
         function entered\npush %rax\n.hidden own_inside\nown_inside: pop %rax\nnop\nnop\nnop\nret\nend entered
         function called\nmov $5, %edi\ncall called_inside\nret\nend called
         function is_called\npush %rax\n.hidden called_inside\ncalled_inside: pop %rax\nnop\nnop\nnop\nret\nend is_called
         function taken\nlea taken_inside(%rip), %rax\nret\nend taken
         function is_taken\npush %rax\n.hidden taken_inside\ntaken_inside: pop %rax\nnop\nnop\nnop\nret\nend is_taken
         function relocated\npush %rax\n2: pop %rax\nnop\nnop\nnop\nret\nend relocated
         function fine\npush %rax\npop %rax\nnop\nnop\nnop\n3: ret\njmp 3b\nend fine
         .section .data.rel.ro, \"aw\"\n.quad 2b",
    );
    for name in ["entered", "is_called", "is_taken", "relocated"] {
        assert_eq!(planned.reason(name), Reason::EnteredInside, "{name}");
    }
    // Its first instruction has room for a short jump.
    assert_eq!(planned.site("own").how, How::ShortJump);
    for name in ["other", "called", "taken", "fine"] {
        planned.site(name);
    }
}

#[test]
fn jump_tables_are_followed() {
    let table = "
        function f\npush %rbx\n1: lea 9f(%rip), %rax\nmovslq (%rax,%rdi,4), %rdi\nadd %rdi, %rax\njmp *%rax
        2: pop %rbx\nret\nend f
        .section .rodata\n.p2align 2\n9: .long 2b - 9b, 2b - 9b, TARGET - 9b\n.long 0x7fffffff";
    // Tables may lie in the segment of the code.
    for options in [&["-shared"][..], &["-shared", "-Wl,-z,noseparate-code"]] {
        let into = assembled(&table.replace("TARGET", "1b"), options);
        assert_eq!(into.reason("f"), Reason::EnteredInside);
        assembled(&table.replace("TARGET", "2b"), options).site("f");
    }
}

#[test]
fn words_of_data_count_where_addresses_are_final() {
    let source = "
        function _main\npush %rax\n1: pop %rax\nnop\nnop\nnop\njmp *table(,%rdi,8)\nend _main
        function immediate\npush %rax\n2: pop %rax\nnop\nnop\nnop\nmov $2b, %eax\nret\nend immediate
        function fine\npush %rax\n3: pop %rax\nnop\nnop\nnop\nret\nend fine
        .section .rodata\n.p2align 3\ntable: .quad 1b";
    let planned = assembled(source, &["-static", "-no-pie", "-Wl,-e,_main"]);
    assert_eq!(planned.reason("_main"), Reason::EnteredInside);
    assert_eq!(planned.reason("immediate"), Reason::EnteredInside);
    planned.site("fine");
}

#[test]
fn loops_to_the_start_are_kept_inside_or_refused() {
    let planned = library(
        "function inside\n1: dec %edi\njnz 1b\nret\nend inside
         function outside\n2: dec %edi\nmov %edi, %eax\nmov %eax, %ecx\njnz 2b\nret\nend outside
         function recursive\nmov $5, %eax\ncall recursive@PLT\nret\nend recursive
         .hidden hidden\nfunction tail\nmov $5, %eax\njmp hidden\nend tail
         function hidden\nmov $6, %eax\nret\nend hidden",
    );
    assert!(planned.site("inside").body.fixups().len() == 0);
    assert_eq!(planned.reason("outside"), Reason::LoopsToStart);
    for name in ["recursive", "tail", "hidden"] {
        planned.site(name);
    }
}

#[test]
fn functions_whose_code_is_read_are_refused() {
    let function = |name: &str| {
        format!(
            ".p2align 5\nfunction {name}\nmov $5, %eax\nmov $6, %ecx\nret\nend {name}\n.hidden {name}\n"
        )
    };
    let names = [
        "loaded",
        "loaded_amid",
        "by_register",
        "copied",
        "moved",
        "compared",
        "called",
        "handed_on",
    ];
    let functions = names.map(function).concat();
    let planned = library(&format!(
        "{functions}
         function user\nmovdqu loaded(%rip), %xmm0\nmov loaded_amid + 3(%rip), %al\n\
         lea by_register(%rip), %rdx\nmov %rdx, %rcx\nmov 2(%rcx), %eax\nlea moved(%rip), %rsi\nmov $9, %ecx\nrep movsl\n\
         ret\nend user
         function copier\nsub $8, %rsp\npush %rbx\nlea copied(%rip), %rbx\ncall *%rax\nmov %rbx, %rsi\n\
         mov $64, %edx\ncall memcpy@PLT\npop %rbx\n\
         lea compared(%rip), %rdi\ncall *memcmp@GOTPCREL(%rip)\nlea called(%rip), %rax\ncall *%rax\n\
         lea handed_on(%rip), %rdi\ncall qsort@PLT\nadd $8, %rsp\nret\nend copier"
    ));
    for name in [
        "loaded",
        "loaded_amid",
        "by_register",
        "copied",
        "moved",
        "compared",
    ] {
        assert_eq!(planned.reason(name), Reason::ReadAsData, "{name}");
    }
    for name in ["called", "handed_on", "user", "copier"] {
        planned.site(name);
    }
}

#[test]
fn landing_pads_are_entries() {
    // A table for the unwinder: no base, no types, LEB128; from 0 to 5 the pad is at 3.
    let planned = library(
        ".globl f\n.type f, @function\nf: .cfi_startproc\n.cfi_lsda 0x1b, 9f\nxor %eax, %eax\nnop\nnop\nnop\nnop\nret\n
         .cfi_endproc\n.size f, .-f\n.p2align 4
         .section .gcc_except_table, \"a\"\n9: .byte 0xff, 0xff, 0x01, 4, 0, 5, 3, 0\n.text",
    );
    assert_eq!(planned.reason("f"), Reason::EnteredInside);
}

#[test]
fn what_the_caller_pops_and_what_is_no_function() {
    let planned = library(
        "function pops\nmov $5, %eax\ntest %edi, %edi\njz 1f\nret\n1: ret $16\nend pops
         function restores\nmov $15, %rax\nsyscall\nend restores
         function vfork\nmov $58, %eax\nsyscall\nret\nend vfork
         function begins\nxbegin 2f\n2: ret\nend begins
         function traps\nud2\nend traps
         .globl part\n.type part, @function\npart: .cfi_startproc\n.cfi_def_cfa_offset 32\nmov $5, %eax\nadd $24, %rsp\n
         ret\n.cfi_endproc\n.size part, .-part\n.p2align 4
         .globl odd\n.type odd, @function\nodd: .cfi_startproc\npush %rbx\n.cfi_escape 0x0f, 3, 0x77, 16, 0x06\n
         mov %rsp, %rbx\npop %rbx\nret\n.cfi_endproc\n.size odd, .-odd\n.p2align 4
         .globl chosen\n.type chosen, @gnu_indirect_function\nchosen: mov $5, %eax\nret\n.size chosen, .-chosen",
    );
    assert_eq!(planned.reason("pops"), Reason::PopsArguments);
    assert_eq!(planned.reason("restores"), Reason::SignalReturn);
    assert_eq!(planned.reason("vfork"), Reason::SharesStack);
    assert!(planned.plan.hook(planned.address("vfork")).is_ok());
    assert_eq!(planned.reason("begins"), Reason::Transaction);
    assert_eq!(planned.reason("traps"), Reason::Traps);
    assert_eq!(planned.reason("part"), Reason::NotAnEntry);
    assert_eq!(planned.reason("odd"), Reason::UnwindRules);
    assert_eq!(planned.reason("chosen"), Reason::Resolver);
}

#[test]
fn parts_that_are_only_jumped_to_are_no_functions() {
    let body = "function f\nmov $5, %eax\ntest %edi, %edi\njmp part\nend f
         part: .cfi_startproc\nmov $6, %eax\nret\n.cfi_endproc\n.p2align 4
         called: .cfi_startproc\nmov $7, %eax\nret\n.cfi_endproc\n.p2align 4
         function g\npush %rax\ncall called\npop %rax\njmp called\nend g";
    let planned = assembled(body, &["-shared", "-s"]);
    assert_eq!(planned.plan.sites.len(), 3);
    let refused: Vec<Reason> = planned
        .plan
        .refused
        .iter()
        .map(|refused| refused.reason)
        .collect();
    assert_eq!(refused, [Reason::OnlyJumpedTo]);
}

#[test]
fn restartable_sequences_are_left_alone() {
    let planned = library(
        "function f\n1: mov $5, %eax\nmov $6, %ecx\n2: ret\n.byte 0x0f, 0xb9, 0x3d\n.long 0x53053053\n3: ret\nend f
         function late\nmov $5, %eax\n4: mov $6, %ecx\n5: ret\nend late
         function handler\n.byte 0x0f, 0xb9, 0x3d\n.long 0x53053053\n6: nop\nret\nend handler
         .section __rseq_cs, \"aw\"\n.p2align 5\n.long 0, 0\n.quad 1b, 2b - 1b, 3b
         .long 0, 0\n.quad 4b, 5b - 4b, 6b",
    );
    assert_eq!(planned.reason("f"), Reason::RestartableSequence);
    planned.site("late");
    assert_eq!(planned.reason("handler"), Reason::Traps);
}

#[test]
fn code_that_the_loader_changes_is_left_alone() {
    let planned = assembled(
        "function f\nmovabs $outside, %rax\nret\nend f\nfunction g\nmov $5, %eax\nmovabs $outside, %rcx\nret\nend g",
        &["-shared", "-Wl,-z,notext"],
    );
    assert_eq!(planned.reason("f"), Reason::TextRelocation);
    planned.site("g");
}

#[test]
fn entries_made_for_tracing_are_recognised() {
    let source = "int f(int a) { return a * 3; }\nint g(int a) { return f(a) + 1; }";
    let how = |options: &[&str]| {
        let mut all = vec!["-shared", "-fPIC", "-O2"];
        all.extend_from_slice(options);
        let planned = Built::new("entries.c", source, &all).planned();
        planned.site("f").how
    };
    assert_eq!(how(&[]), How::Jump);
    assert_eq!(how(&["-fpatchable-function-entry=5"]), How::PatchableEntry);
    assert_eq!(
        how(&["-fpatchable-function-entry=7,2", "-fcf-protection=branch"]),
        How::PatchableEntry
    );
    assert_eq!(how(&["-pg", "-mfentry"]), How::Fentry);
    assert_eq!(
        how(&["-pg", "-mfentry", "-fno-plt", "-fcf-protection=branch"]),
        How::Fentry
    );
    assert_eq!(how(&["-pg"]), How::Jump);
    let planned = library(
        "function sled\njmp 1f\n.byte 0x66, 0x0f, 0x1f, 0x84, 0, 0, 2, 0, 0\n1: mov $5, %eax\nret\nend sled
         function mcount_nop\n.byte 0x0f, 0x1f, 0x44, 0, 0\nret\nend mcount_nop",
    );
    let sled = planned.site("sled");
    assert_eq!(
        (sled.how, sled.window, sled.body.code().len()),
        (How::XraySled, 5, 5)
    );
    assert_eq!(planned.site("mcount_nop").how, How::PatchableEntry);
}

#[test]
fn functions_that_look_at_their_return_address_are_told() {
    let source = "void *f(void) { return __builtin_return_address(0); }\nvoid take(void *);\n
        int g(int a) { return a + 1; }\nlong h(long a, ...) { __builtin_va_list l; __builtin_va_start(l, a);\n
        return __builtin_va_arg(l, long); }\nint many(int a, int b, int c, int d, int e, int f, int g) { return g; }\n
        void *calls(void) { take(0); return __builtin_return_address(0); }";
    for options in [
        ["-O0", "-fPIC"],
        ["-O2", "-fPIC"],
        ["-O2", "-fno-omit-frame-pointer"],
    ] {
        let planned = Built::new(
            "returns.c",
            source,
            &["-shared", "-fPIC", options[0], options[1]],
        )
        .planned();
        let tells =
            ["f", "calls", "g", "h", "many"].map(|name| planned.site(name).entries_only.is_some());
        assert_eq!(tells, [true, true, false, false, false], "{options:?}");
    }
}

#[test]
fn faults_that_become_exceptions_are_handled_where_they_were() {
    let source = "
        static volatile long cleaned;
        struct Cleaned { ~Cleaned() { cleaned = cleaned + 1; } };
        extern \"C\" __attribute__((noinline)) int handles(int *p) { Cleaned cleaned; return *p; }
        extern \"C\" __attribute__((noinline)) int passes(int *p) { return *p + 1; }";
    let planned = |option| {
        let options = ["-shared", "-fPIC", "-O2", option];
        Built::with("g++", "faults.cc", source, &options).planned()
    };
    let faulting = planned("-fnon-call-exceptions");
    assert_eq!(faulting.reason("handles"), Reason::HandlesFaults);
    assert_eq!(faulting.site("passes").how, How::Jump);
    assert_eq!(planned("-fexceptions").site("handles").how, How::Jump);
}

/// Programs recover from faults by the addresses of the instructions that raise them: these may not run elsewhere.
#[test]
fn what_signal_handlers_know_by_their_addresses_stays_in_its_place() {
    let fetch = |name: &str, label: &str| {
        format!(
            "function {name}\nmov 0x10(%rdi), %rax\nmov %rax, %rcx\nret\n{label}mov %rsi, %rax\nret\nend {name}\n"
        )
    };
    // A handler takes the place; another file's handler does; a table has pairs.
    let planned = library(
        &[
            &fetch("taken", "1: "),
            "function handler\nlea 1b(%rip), %rax\nret\nend handler\n",
            &fetch("named", ".globl named_goes_on\nnamed_goes_on: "),
            &fetch("tabled", "2: "),
            "function divides\nmov %rdi, %rax\ndiv %rsi\nret\n3: xor %eax, %eax\nret\nend divides\n",
            ".hidden copies\nfunction copies\nmov %rdx, %rcx\nrep movsb\nxor %eax, %eax\nret\nend copies\n",
            "4: mov $1, %eax\nret\n",
            "function on_the_stack\npush 8(%rsp)\npop %rax\nret\n5: ret\nend on_the_stack\n",
            "function itself\nmov 0x10(%rdi), %rax\nlea 6f(%rip), %rcx\npush %rcx\nret\n6: ret\nend itself\n",
            "function switches\nmov 0x10(%rdi), %rax\nlea 9f(%rip), %rcx\njmp *(%rcx,%rax,8)\n7: ret\nend switches\n",
            "function plain\nmov 0x10(%rdi), %rax\nmov %rax, %rcx\nret\nend plain\n",
            ".section .data.rel.ro, \"aw\"\n.quad tabled, 2b, 0, divides, 3b, 0, copies, 4b, 0, 5b, 0, plain, 0\n9: .quad 7b",
        ]
        .join(""),
    );
    for name in ["taken", "named", "tabled", "divides", "copies"] {
        assert_eq!(planned.reason(name), Reason::FaultsAreKnown, "{name}");
    }
    for name in ["on_the_stack", "itself", "switches", "plain", "handler"] {
        planned.site(name);
    }
}

/// A library of Go in a program of another language.
#[test]
fn code_of_go() {
    let text =
        ".globl f\n.type f, @function\nf:\nlea 1(%rdi), %rax\nnop\nnop\nret\n.size f, . - f\n";
    Built::library(text).planned().site("f");
    let note = ".section .note.go.buildid, \"a\", @note\n.long 4, 4, 4\n.ascii \"Go\\0\\0abcd\"\n";
    let go = Built::library(&format!("{text}{note}"));
    assert_eq!(go.planned().reason("f"), Reason::Go);
}

/// Code that ahead-of-time compilers write for their runtimes: only data leads to it, and the runtime reads it.
#[test]
fn code_that_only_data_leads_to() {
    let parts = |exported: &str, called: &str| {
        let text = format!(
            ".globl {exported}\n.type f, @function\nf:\nlea 1(%rdi), %rax\nnop\nnop\nret\n{called}\n.size f, . - f\n\
             .data\n.globl table\n.type table, @object\ntable: .quad f\n.size table, 8\n"
        );
        Built::library(&text).planned()
    };
    assert_eq!(parts("table", "").reason("f"), Reason::FoundByData);
    // Others may call it, or it calls others.
    parts("f", "").site("f");
    parts("table", "jmp elsewhere@PLT").site("f");
    // The loader does.
    let initialised = Built::new(
        "library.c",
        "static int f(int n) { return n * n + 7; } int (*const table)(int) = f;\n\
         __attribute__((constructor)) static void start(void) { __asm__(\"nop\"); }",
        &["-O2", "-shared", "-fPIC", "-nostdlib"],
    );
    initialised.planned().site("f");
}
