//! The use of return address, stack and flags in functions, judged from their instructions.

use super::{Built, Planned};
use crate::Reason;

/// Functions of assembly, one after the other: a name, and its code.
fn assembled(functions: &[(&str, &str)]) -> Planned {
    let texts = functions.iter().map(|(name, text)| {
        format!(
            ".globl {name}\n.hidden {name}\n.type {name}, @function\n.p2align 4\n{name}:\n{text}\n.size {name}, . - {name}\n"
        )
    });
    Built::library(&texts.collect::<String>()).planned()
}

fn assert_all(functions: &[(&str, &str)], reason: Option<Reason>) {
    let planned = assembled(functions);
    for (name, text) in functions {
        assert_eq!(planned.site(name).entries_only, reason, "{name}: {text}");
    }
}

#[test]
fn handlers_of_interpreters_are_known_by_their_registers() {
    let handlers = [
        (
            "advances",
            "movzbl (%rbx), %ecx\ninc %rbx\njmp *(%r14, %rcx, 8)",
        ),
        (
            "by_frame",
            "add -8(%rbp), %rax\nmovslq (%rdx), %rcx\nadd %rdx, %rcx\njmp *%rcx",
        ),
        (
            "by_index",
            "mov (%rdi, %r13, 8), %rax\nlea 8(%rdi), %rdi\njmp *%rax",
        ),
        (
            "on_a_branch",
            "test %eax, %eax\njz 1f\nret\n1: add $8, %r12\njmp *(%rsi)",
        ),
        (
            "through_another",
            "xor %eax, %eax\ninc %rbx\nnop\njmp advances",
        ),
    ];
    assert_all(&handlers, Some(Reason::SharesFrame));
    let others = [
        (
            "calls_last",
            "mov (%rdi), %rax\nxor %esi, %esi\njmp *24(%rax)",
        ),
        (
            "keeps",
            "push %rbx\npush %r12\nmov %rdi, %rbx\nmov (%rbx), %r12\ncall *(%r12)\nmov %rbx, %rdi\n\
             pop %r12\npop %rbx\njmp *%rax",
        ),
        (
            "keeps_aside",
            "mov %rbx, -8(%rsp)\nmov %rbp, %rdx\nmov (%rdi), %rbx\nmov (%rbx), %rbp\nmov 8(%rbp), %rax\n\
             mov -8(%rsp), %rbx\nmov %rdx, %rbp\njmp *%rax",
        ),
        (
            "returns",
            "movzbl (%rbx), %ecx\ninc %rbx\nmov %ecx, %eax\nret",
        ),
    ];
    assert_all(&others, None);
}

#[test]
fn who_uses_the_return_address_is_known_without_unwinding_information() {
    let uses = [
        ("reads", "mov (%rsp), %rax\nmov %rax, (%rdi)\nret"),
        (
            "reads_later",
            "push %rbx\nsub $16, %rsp\nmov 24(%rsp), %rax\nadd $16, %rsp\npop %rbx\nret",
        ),
        (
            "reads_by_copy",
            "mov %rsp, %rcx\npush %rbx\nmov (%rcx), %rax\npop %rbx\nret",
        ),
        (
            "reads_by_frame",
            "push %rbp\nmov %rsp, %rbp\nsub $32, %rsp\nmov 8(%rbp), %rax\nleave\nret",
        ),
        ("reads_a_part", "mov 4(%rsp), %eax\nmov %eax, (%rdi)\nret"),
        (
            "reads_above",
            "lea 8(%rsp), %rdx\npush %rbx\nmov -8(%rdx), %rax\npop %rbx\nret",
        ),
        (
            "reads_exchanged",
            "mov %rsp, %rdx\nxchg %rdx, %rcx\npush %rbx\nmov (%rcx), %rax\npop %rbx\nret",
        ),
        (
            "reads_saved",
            "push %rbp\nmov %rsp, %rax\nsub $64, %rsp\nmov %rax, 8(%rsp)\nxor %eax, %eax\n\
                         mov 8(%rsp), %rcx\nmov 8(%rcx), %rax\nadd $64, %rsp\npop %rbp\nret",
        ),
        ("pushes", "push (%rsp)\npop %rax\nmov %rax, (%rdi)\nret"),
        ("writes", "mov %rdi, (%rsp)\nxor %eax, %eax\nret"),
        (
            "compares",
            "cmp %rdi, (%rsp)\nsete %al\nmovzbl %al, %eax\nret",
        ),
        ("wide", "movups -8(%rsp), %xmm0\nmovups %xmm0, (%rdi)\nret"),
        (
            "on_a_branch",
            "test %edi, %edi\njz 1f\nxor %eax, %eax\nret\n1: push %rbx\nmov 8(%rsp), %rax\npop %rbx\nret",
        ),
        (
            "in_a_loop",
            "push %rbx\nnop\nnop\nnop\nnop\n1: dec %edi\njnz 1b\npush %rbx\nmov 16(%rsp), %rax\npop %rcx\npop %rbx\nret",
        ),
        (
            "its_place",
            "push %rbx\nlea 8(%rsp), %rdi\ncall *(%rsi)\npop %rbx\nret",
        ),
        ("keeps_its_place", "lea (%rsp), %rax\nmov %rax, (%rdi)\nret"),
        (
            "its_frame",
            "push %rbp\nmov %rsp, %rbp\nmov %rbp, %rdi\ncall *(%rsi)\npop %rbp\nret",
        ),
        ("further", "mov %rdi, %rsi\nxor %edi, %edi\njmp reads"),
        (
            "falls_through",
            "xor %edi, %edi\nnop\nnop\nnop\ntest %edi, %edi\njne reads\nret",
        ),
        (
            "a_copy",
            "lea 8(%rsp), %r10\nand $-16, %rsp\npush -8(%r10)\npush %rbp\nmov %rsp, %rbp\npush %r10\n\
                    mov 8(%rbp), %rax\npop %r10\npop %rbp\nlea -8(%r10), %rsp\nret",
        ),
    ];
    assert_all(&uses, Some(Reason::ReadsReturnAddress));
    let pops = [
        ("pops", "pop %rdx\nmov %rdx, %rax\njmp *%rdx"),
        (
            "pops_later",
            "push %rbx\ntest %edi, %edi\npop %rbx\npop %rcx\njmp *%rcx",
        ),
        ("drops", "mov %edi, %eax\nadd $8, %rsp\nret"),
        ("drops_by_lea", "xor %eax, %eax\nlea 16(%rsp), %rsp\nret"),
        (
            "too_many",
            "push %rbx\nnop\nnop\nnop\npop %rbx\npop %rbp\nret",
        ),
    ];
    assert_all(&pops, Some(Reason::PopsReturnAddress));
}

#[test]
fn who_leaves_the_stack_is_known() {
    let switches = [
        (
            "switches",
            "push %rbx\npush %rbp\nmov %rsp, (%rdi)\nmov %rsi, %rsp\npop %rbp\npop %rbx\nret",
        ),
        ("exchanges", "push %rbx\nxchg %rsp, (%rdi)\npop %rbx\nret"),
        (
            "leaps",
            "mov (%rdi), %rbx\nmov 8(%rdi), %rsp\njmp *16(%rdi)",
        ),
        ("pops_it", "mov %rdi, %rax\npush (%rdi)\npop %rsp\nret"),
        (
            "asks_where",
            "push %rbx\nmov %rsp, %rdi\ncall *(%rsi)\nmov %rax, %rsp\npop %rbx\nret",
        ),
        ("leaves", "mov %rdi, %rbp\nxor %eax, %eax\nleave\nret"),
        ("computes", "lea (%rsp,%rdi,8), %rsp\nxor %eax, %eax\nret"),
    ];
    assert_all(&switches, Some(Reason::SwitchesStack));
    let unknown = [
        (
            "unbalanced",
            "push %rbx\ntest %edi, %edi\njz 1f\npush %rbp\n1: mov %edi, %eax\nret",
        ),
        ("deeper", "push %rbx\npush %rdi\nxor %eax, %eax\nret"),
        ("jumps", "push %rbx\nmov %rdi, %rax\njmp *(%rax)"),
        (
            "spare",
            "sub %rdi, %rsp\nxor %eax, %eax\nadd %rdi, %rsp\nret",
        ),
    ];
    assert_all(&unknown, Some(Reason::StackNotFollowed));
}

#[test]
fn a_stack_that_can_be_followed_is_followed() {
    let fine = [
        (
            "frame",
            "push %rbp\nmov %rsp, %rbp\nsub %rdi, %rsp\nmov %rsp, %rdi\ncall *(%rsi)\nleave\nret",
        ),
        (
            "frame_by_lea",
            "push %rbp\nmov %rsp, %rbp\npush %rbx\nsub %rdi, %rsp\nlea -8(%rbp), %rsp\npop %rbx\npop %rbp\nret",
        ),
        (
            "locals",
            "sub $40, %rsp\nlea 8(%rsp), %rdi\nmov %rdi, (%rsi)\ncall *(%rsi)\nmov 8(%rsp), %rax\nadd $40, %rsp\nret",
        ),
        (
            "arguments",
            "mov 8(%rsp), %rax\nlea 16(%rsp), %rdx\nadd (%rdx), %rax\nmov %rdx, (%rdi)\nret",
        ),
        ("barrier", "lock orl $0, (%rsp)\nmov %edi, %eax\nret"),
        (
            "probed",
            "lea -0x8000(%rsp), %r11\n1: sub $0x1000, %rsp\norq $0, (%rsp)\ncmp %r11, %rsp\njne 1b\n\
                    mov 4(%rsp), %eax\nadd $0x8000, %rsp\nret",
        ),
        (
            "aligned",
            "mov %rsp, %rax\npush %rbx\nsub $72, %rsp\nand $-64, %rsp\nmov %rax, 24(%rsp)\nmov %rdi, (%rsp)\n\
                     mov (%rsp), %rbx\nmov 24(%rsp), %rsi\nmov %rbx, %rax\nmov -8(%rsi), %rbx\nlea (%rsi), %rsp\nret",
        ),
        (
            "aligned_main",
            "lea 8(%rsp), %r10\nand $-32, %rsp\npush -8(%r10)\npush %rbp\nmov %rsp, %rbp\npush %r10\n\
                          sub $40, %rsp\nlea -48(%rbp), %rdi\ncall *(%rsi)\nmov -8(%rbp), %r10\nleave\nlea -8(%r10), %rsp\nret",
        ),
        (
            "position",
            "push %rbx\ncall 1f\n1: pop %rbx\nlea 2f-1b(%rbx), %rax\n2: pop %rbx\nret",
        ),
        (
            "part",
            "push %rbx\nmov %edi, %ebx\ncall 1f\nmov %ebx, %eax\npop %rbx\nret\n1: add %ebx, %ebx\nret",
        ),
        ("trampoline", "lea frame(%rip), %rax\npush %rax\nret"),
        (
            "retpoline",
            "mov (%rdi), %rax\ncall 2f\n1: pause\nlfence\njmp 1b\n2: mov %rax, (%rsp)\nret",
        ),
        (
            "pushed_return",
            "push %rbx\nlea 1f(%rip), %rax\npush %rax\njmp frame\n1: pop %rbx\nret",
        ),
        ("tail", "push %rbx\nmov %edi, %ebx\npop %rbx\njmp *(%rdi)"),
        (
            "switch",
            "push %rbx\nlea 9f(%rip), %rdx\nmovslq (%rdx,%rdi,4), %rax\nadd %rdx, %rax\njmp *%rax\n\
                    1: pop %rbx\nret\n2: push %rax\npop %rax\npop %rbx\nret\n\
                    .section .rodata\n9: .long 1b-9b, 2b-9b\n.text",
        ),
        (
            "ends",
            "push %rbx\ntest %edi, %edi\njz 1f\npop %rbx\nret\n1: push %rbx\npush %rbx\ncall frame\n2: ud2\njmp 2b",
        ),
    ];
    assert_all(&fine, None);
}

/// Described by the file, as for exceptions, and not described at all.
#[test]
fn what_the_unwinder_comes_to_is_followed_too() {
    let source = "struct A { ~A(); }; void f(int *); int g();
        extern \"C\" void *lands(int n) { A a; try { f(&n); } catch (int) { return __builtin_return_address(0); } return 0; }
        extern \"C\" int plain(int n) { A a; try { f(&n); } catch (int i) { return i + g(); } return n; }";
    for options in [["-O2", "-fPIC"], ["-O2", "-fno-omit-frame-pointer"]] {
        let options = ["-shared", "-fPIC", options[0], options[1]];
        let planned = Built::with("g++", "lands.cc", source, &options).planned();
        let reads = Some(Reason::ReadsReturnAddress);
        assert_eq!(planned.site("lands").entries_only, reads, "{options:?}");
        assert_eq!(planned.site("plain").entries_only, None, "{options:?}");
    }
}

#[test]
fn what_compilers_make_is_followed() {
    let source = "#include <alloca.h>\n#include <stdarg.h>\nvoid take(void *, ...);\nint give(int);\n
        int grows(int n) { char *p = alloca(n); take(p); return p[n - 1]; }\n
        int varies(int n) { int a[n], b[n + 1]; take(a, b); return a[0] + b[n]; }\n
        int aligned(int n) { _Alignas(64) char a[100]; take(a); return a[n]; }\n
        int both(int n) { _Alignas(64) char a[100]; char *p = alloca(n); take(a, p); return a[n] + p[n]; }\n
        int large(int n) { char a[100000]; take(a); return a[n]; }\n
        int many(int n) { take(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, n); return n; }\n
        long list(int n, ...) { va_list l; va_start(l, n); long s = 0; while (n--) s += va_arg(l, long); va_end(l); return s; }\n
        int choose(int n) { switch (n) { case 1: return give(7); case 2: take(&n); return n; case 3: return give(n) + 2; \
        case 4: take(0); return 9; case 5: return 11; case 6: return give(1) * give(2); } return 0; }\n
        int nested(int n) { int inner(int m) { return m + n; } take(inner); return inner(n); }\n
        int main(int n, char **v) { take(v); return give(n); }";
    let names = [
        "grows", "varies", "aligned", "both", "large", "many", "list", "choose", "nested", "main",
    ];
    for options in [
        "-O0",
        "-O1",
        "-O2",
        "-O3",
        "-Os",
        "-fno-omit-frame-pointer",
        "-fstack-protector-all",
        "-fstack-clash-protection",
        "-fsplit-stack",
        "-mindirect-branch=thunk-inline",
        "-mavx2",
        "-fcf-protection",
        "-fsanitize=address",
    ] {
        let all = ["-shared", "-fPIC", "-w", "-O2", options];
        let planned = Built::new("made.c", source, &all).planned();
        for name in names {
            let site = planned.site(name);
            assert_eq!(site.entries_only, None, "{name} {options}");
        }
    }
}

#[test]
fn who_takes_or_returns_flags_is_left_alone() {
    let planned = assembled(&[
        ("carry", "mov %rdi, %rax\nadc %rsi, %rax\nret"),
        ("branches", "lea 1(%rdi), %rax\njnc 1f\nneg %rax\n1: ret"),
        ("keeps_carry", "inc %rdi\nmov %rdi, %rax\nadc $0, %rax\nret"),
        ("shifts", "mov %esi, %ecx\nshl %cl, %rdi\nsetc %al\nret"),
        ("saves", "pushf\npop %rax\nnop\nnop\nret"),
        (
            "calls_carry",
            "push %rbx\nmov %rdi, %rbx\ncall carry\npop %rbx\nret",
        ),
        ("jumps_to_carry", "mov %rdi, %rsi\nnop\nnop\njmp carry"),
        ("compare", "cmp %rsi, %rdi\nnop\nnop\nret"),
        ("compare_far", "mov %rdi, %rax\nnop\nnop\njmp compare"),
        (
            "compare_within",
            "push %rbx\nmov %rdi, %rax\ncall compare_last\npop %rbx\nret",
        ),
        ("compare_last", "cmp %rsi, %rdi\nnop\nnop\nret"),
        ("feeds", "cmp %rsi, %rdi\nnop\nnop\nret"),
        (
            "uses",
            "push %rbx\nxor %ebx, %ebx\ncall compare\nmov $1, %eax\njl 1f\ncall compare_far\njmp 2f\n\
                  2: sete %al\ncall compare_within\ncmovg %eax, %ebx\ncall feeds\ncall carry\n1: pop %rbx\nret",
        ),
        ("string", "mov %rdi, %rax\nmov %rsi, %rcx\nrep stosb\nret"),
        (
            "plain",
            "push %rbx\nxor %ebx, %ebx\nadc %rbx, %rbx\ncall string\nshr $32, %rax\nsete %al\npop %rbx\nret",
        ),
        (
            "counts",
            "mov %rdi, %rcx\njrcxz 1f\nmov %rsi, %rax\nsyscall\n1: ret",
        ),
        (
            "endless",
            "push %rbx\nmov %edi, %ebx\ntest %ebx, %ebx\njz 1f\npop %rbx\nret\n2: jnc 3f\n1: call string\n3: ud2",
        ),
    ]);
    for name in [
        "carry",
        "branches",
        "keeps_carry",
        "shifts",
        "saves",
        "calls_carry",
        "jumps_to_carry",
        "compare",
        "compare_far",
        "compare_within",
        "compare_last",
        "feeds",
    ] {
        assert_eq!(planned.reason(name), Reason::PassesFlags, "{name}");
    }
    for name in ["uses", "string", "plain", "counts", "endless"] {
        assert_eq!(planned.site(name).entries_only, None, "{name}");
    }
}

#[test]
fn jumps_to_functions_of_the_loader_that_look_at_their_caller_are_known() {
    let source = "void *dlsym(void *, const char *); void *dlopen(const char *, int); int dlclose(void *);
        void *looks(void *h, const char *n) { return dlsym(h, n); }
        void *opens(const char *n) { return dlopen(n, 2); }
        __attribute__((visibility(\"hidden\"), noinline)) void *inner(const char *n) { return dlsym((void *)-1, n); }
        void *further(const char *n) { return inner(n); }
        int closes(void *h) { return dlclose(h); }
        long calls(void *h, const char *n) { return (long)dlsym(h, n) + 1; }";
    let looks = Some(Reason::LooksAtCaller);
    for option in ["-fplt", "-fno-plt", "-fcf-protection", "-Wl,-z,now"] {
        let options = ["-shared", "-fPIC", "-O2", option];
        let planned = Built::new("looks.c", source, &options).planned();
        for (name, expected) in [
            ("looks", looks),
            ("opens", looks),
            ("inner", looks),
            ("further", looks),
            ("closes", None),
            ("calls", None),
        ] {
            assert_eq!(planned.site(name).entries_only, expected, "{name} {option}");
        }
    }
}

/// The loader binds calls to functions that the file exports, as another file may have one of that name before it.
#[test]
fn jumps_through_the_plt_to_functions_of_the_file_itself_are_known() {
    let source =
        "__attribute__((noinline)) void *where(long n) { return __builtin_return_address(0) + n; }
        __attribute__((noinline)) long plain(long n) { return n * n; }
        void *asks(long n) { return where(n + 1); }
        __attribute__((noinline)) void *outer(long n) { return asks(n + 1); }
        void *sometimes(long n) { return n ? where(n) : 0; }
        void *calls(long n) { return where(n) + 1; }
        long leaves(long n) { return plain(n + 1); }";
    for option in ["-fplt", "-fno-plt", "-fcf-protection", "-Wl,-z,now"] {
        let options = ["-shared", "-fPIC", "-O2", "-fno-ipa-icf", option];
        let planned = Built::new("where.c", source, &options).planned();
        let asks = planned.site("where").entries_only;
        assert!(asks.is_some(), "{option}");
        for (name, expected) in [
            ("asks", asks),
            ("outer", asks),
            ("sometimes", asks),
            ("calls", None),
            ("leaves", None),
        ] {
            assert_eq!(planned.site(name).entries_only, expected, "{name} {option}");
        }
    }
}

#[test]
fn functions_that_leave_to_others_that_pop_their_arguments_are_known() {
    let leaves = [
        ("jumps", "inc %rdi\nnop\njmp pops_arguments"),
        ("jumps_to_it", "mov %rdi, %rsi\nxor %edi, %edi\njmp jumps"),
        ("jumps_by_pointer", "mov 8(%rdi), %rax\nnop\njmp *%rax"),
        ("returns", "lea 1(%rdi), %rax\nnop\nret"),
    ];
    let pops = ("pops_arguments", "lea 1(%rdi), %rax\nnop\nret $8");
    let pops_arguments = Some(Reason::PopsArguments);
    let why = |planned: &Planned| leaves.map(|(name, _)| planned.site(name).entries_only);
    let planned = assembled(&[&leaves[..], &[pops]].concat());
    assert_eq!(
        why(&planned),
        [pops_arguments, pops_arguments, pops_arguments, None]
    );
    assert_eq!(planned.reason("pops_arguments"), Reason::PopsArguments);
    let pops = ("pops_arguments", "lea 1(%rdi), %rax\nnop\nret");
    let planned = assembled(&[&leaves[..], &[pops]].concat());
    assert_eq!(why(&planned), [None; 4]);
}
