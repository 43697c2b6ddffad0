use super::{Built, Planned};
use crate::EntriesOnly;

/// A caller with this many calls behind which a table points, and this many other places to which one points.
fn tabled(calls: usize, others: usize, options: &[&str]) -> Planned {
    let mut source = String::from(
        ".text\n.globl called\n.type called, @function\ncalled: lea 1(%rdi), %rax\nret\n.size called, .-called\n\
         .globl caller\n.type caller, @function\ncaller: push %rbx\n",
    );
    for number in 0..calls {
        source += &format!("call called\nbehind_{number}: mov %rax, %rdi\n");
    }
    for number in 0..others {
        source += &format!("mov %rax, %rdi\nother_{number}: nop\n");
    }
    source += "pop %rbx\nret\n.size caller, .-caller\n.data\n";
    for number in 0..calls {
        source += &format!(".quad behind_{number}\n.short 16, 1, 8\n.p2align 3\n");
    }
    for number in 0..others {
        source += &format!(".quad other_{number}\n");
    }
    let options = [&["-nostdlib", "-Wl,-e,caller"], options].concat();
    Built::new("tabled.s", &source, &options).planned()
}

#[test]
fn tables_of_return_addresses_are_known_by_what_they_point_to() {
    for options in [
        &["-shared"][..],
        &["-no-pie"],
        &["-pie", "-s", "-rdynamic"],
        &["-shared", "-Wl,-z,pack-relative-relocs"],
    ] {
        let planned = tabled(60, 4, options);
        assert!(planned.plan.finds_frames, "{options:?}");
        for site in &planned.plan.sites {
            let why = planned.plan.entries_only(site, false);
            assert_eq!(why, Some(EntriesOnly::FoundByTable), "{options:?}");
        }
        // As tables of jumps are, of which some cases follow a call that does not return.
        assert!(!tabled(60, 100, options).plan.finds_frames, "{options:?}");
        assert!(!tabled(10, 0, options).plan.finds_frames, "{options:?}");
    }
}

/// A file with 32-bit words, `taken` by an instruction, that lead behind calls, and `others` that lead elsewhere. `word`:
/// how the assembler writes a word that leads to `%`.
fn distances(word: &str, others: usize, section: &str, options: &[&str]) -> Planned {
    let mut source = ".globl caller\n.type caller,@function\ncaller:\n".to_owned();
    for number in 0..60 {
        source += &format!("call callee\nback_{number}: mov $1, %eax\nother_{number}: nop\n");
    }
    source += "ret\n.size caller, . - caller\n\
        .type callee,@function\ncallee: lea table(%rip), %rax\nxor %eax, %eax\nret\n.size callee, . - callee\n";
    source += &format!(".section {section}\n.balign 4\n.long 7, 7\ntable:\n");
    let places = (0..60).map(|number| format!("back_{number}"));
    for place in places.chain((0..others).map(|number| format!("other_{}", number % 60))) {
        source += &format!(".long {}, 16\n", word.replace('%', &place));
    }
    let options = [&["-nostdlib", "-Wl,-e,caller"], options].concat();
    Built::new("distances.s", &source, &options).planned()
}

#[test]
fn tables_of_32_bit_distances_are_known_by_what_they_lead_to() {
    let read_only = ".rodata,\"a\",@progbits";
    let library = &["-shared"][..];
    for (word, section, options) in [
        ("% - table", read_only, library),
        ("% - table", ".data", library),
        ("% - table", ".text", library),
        ("% - .", read_only, library),
        ("% - caller", read_only, library),
        ("%", read_only, &["-no-pie"]),
    ] {
        let planned = distances(word, 4, section, options);
        assert!(planned.plan.finds_frames, "{word} in {section}");
        let planned = distances(word, 100, section, options);
        assert!(!planned.plan.finds_frames, "{word} in {section}");
    }
}

#[test]
fn an_address_at_the_end_of_all_memory_is_no_table() {
    let source = ".globl f\n.type f,@function\nf: lea last(%rip), %rax\nret\n.size f, . - f\n";
    let last = "-Wl,--defsym=last=0xffffffffffffffff";
    let options = ["-no-pie", "-static", "-nostdlib", "-Wl,-e,f", last];
    let planned = Built::new("last.s", source, &options).planned();
    assert!(!planned.plan.finds_frames);
}

/// Where cases follow each other at equal distances, their table seems to lead behind calls if it is taken to begin
/// elsewhere.
#[test]
fn jump_tables_are_no_tables_of_distances() {
    for before in (4..64).step_by(4) {
        let mut source = ".globl f\n.type f,@function\n\
            f: lea table(%rip), %rdx\nmovslq (%rdx, %rdi, 4), %rax\nadd %rdx, %rax\njmp *%rax\n"
            .to_owned();
        for number in 0..60 {
            let code = "mov $1, %eax\nmov $2, %ecx\nnop\ncall g\nret";
            source += &format!(".p2align 5\ncase_{number}: {code}\n");
        }
        source +=
            ".size f, . - f\n.type g,@function\ng: lea other(%rip), %rax\nret\n.size g, . - g\n";
        source += &format!(
            ".section .rodata,\"a\",@progbits\n.balign 4\nother: .zero {before}\ntable:\n"
        );
        for number in 0..60 {
            source += &format!(".long case_{number} - table\n");
        }
        let planned = Built::new("cases.s", &source, &["-shared", "-nostdlib"]).planned();
        assert!(!planned.plan.finds_frames, "{before}");
    }
}

#[test]
fn functions_that_follow_frame_pointers_are_known() {
    let source = "
        struct frame { struct frame *next; void *returns; };
        struct list { struct list *next; long value; };
        void take(void *);
        void *asks(void) { return __builtin_return_address(1); }
        void *asks_far(void) { take(0); return __builtin_return_address(3); }
        long loops(void) { long sum = 0; struct frame *f = __builtin_frame_address(0);
          for (int i = 0; f && i < 9; i++, f = f->next) sum += (long)f->returns; return sum; }
        void *own(void) { return __builtin_frame_address(0); }
        long listed(struct list *l) { long sum = 0; for (; l; l = l->next) { take(l); sum += l->value; } return sum; }
        long grown(int n, struct list *l) { char *room = __builtin_alloca(n); take(room); return l->next->value; }";
    let names = ["asks", "asks_far", "loops", "own", "listed", "grown"];
    for (compiler, option, frames) in [
        ("gcc", "-O0", "-fno-omit-frame-pointer"),
        ("gcc", "-O2", "-fno-omit-frame-pointer"),
        ("gcc", "-O2", "-fomit-frame-pointer"),
        ("clang", "-O0", "-fno-omit-frame-pointer"),
        ("clang", "-O2", "-fno-omit-frame-pointer"),
    ] {
        let options = [
            "-shared",
            "-fPIC",
            "-fno-optimize-sibling-calls",
            option,
            frames,
        ];
        let planned = Built::with(compiler, "walks.c", source, &options).planned();
        let walks = names.map(|name| planned.site(name).walks_frames);
        let expected = [true, true, true, false, false, false];
        assert_eq!(walks, expected, "{compiler} {option} {frames}");
        assert!(planned.plan.walks_frames);
        let listed = planned.site("listed");
        assert_eq!(listed.keeps_frame, frames == "-fno-omit-frame-pointer");
        let why = |walked| planned.plan.entries_only(listed, walked);
        let if_walked = listed.keeps_frame.then_some(EntriesOnly::FrameIsWalked);
        assert_eq!((why(false), why(true)), (None, if_walked));
    }
}

/// A function that takes the address of its local by the register that may be the frame pointer.
#[test]
fn another_use_of_the_register_is_no_frame() {
    let planned = super::verdicts::library(
        "function f\npush %rbp\npush %rbx\nsub $24, %rsp\nmov %rsp, %rbp\nmov (%rbp), %rax\nmov 8(%rax), %rax\n\
         add $24, %rsp\npop %rbx\npop %rbp\nret\nend f",
    );
    let site = planned.site("f");
    assert!(!site.keeps_frame && !site.walks_frames && !planned.plan.walks_frames);
}

/// Functions that leave their stack, one in each file: with a symbol, or behind another function without one.
fn copies_stacks(text: &str) -> bool {
    let begin = ".globl f\n.type f, @function\nf:\n";
    let known = format!("{begin}{text}\n.size f, .-f\n");
    let unknown = format!("{begin}ret\n.size f, .-f\n.p2align 4\n{text}\n");
    let [known, unknown] =
        [known, unknown].map(|source| Built::library(&source).planned().plan.copies_stacks);
    assert_eq!(known, unknown, "{text}");
    known
}

#[test]
fn functions_that_copy_stacks_are_known() {
    let begin = "push %rbp\npush %rbx\npush %r12\nmov %rsi, %r12\nmov %rdi, %rcx\n";
    let end = "1: pop %r12\npop %rbx\npop %rbp\nret";
    let copies = [
        // As in PyPy.
        "mov %rsp, %rdi\ncall *%rcx\ntest %rax, %rax\njz 1f\nmov %rax, %rsp\nmov %rax, %rdi\ncall *%r12",
        // As in greenlet.
        "mov %rsp, %rbx\nmov %rbx, %rdi\ncall *%rcx\ntest %eax, %eax\njnz 1f\nmov 8(%r12), %rax\n\
         sub %rbx, %rax\nadd %rax, %rsp\nadd %rax, %rbp\ncall *%r12",
    ];
    for text in copies {
        assert!(copies_stacks(&format!("{begin}{text}\n{end}")), "{text}");
    }
    let others = [
        // Calls on another stack, and comes back.
        "mov %rsp, %rbp\nmov %r12, %rsp\nmov %r12, %rdi\ncall *%rcx\nmov %rbp, %rsp",
        "mov %rsp, %rdi\ncall *%rcx\nmov %rsp, %rbp\nmov %rax, %rsp\nmov (%rbp), %rdi\ncall *%r12\nmov %rbp, %rsp",
        // Another stack, whose calls return there.
        "mov %rsp, %rdi\ncall *%rcx\nmov %rax, %rsp",
        // Room for a variable, and its end.
        "mov %rsp, %rbx\nmov %rsp, %rbp\nsub %rax, %rsp\nmov %rsp, %rdi\ncall *%rcx\nmov %rbx, %rsp\nmov %rbx, %rdi\ncall *%r12",
    ];
    for text in others {
        assert!(!copies_stacks(&format!("{begin}{text}\n{end}")), "{text}");
    }
}

#[test]
fn functions_that_bring_back_stacks_are_known() {
    let brings_back = |text: &str| {
        let begin = "function f\npush %rbx\nsub $16, %rsp\nmov (%rdi), %rbx\n";
        let end = "1: add $16, %rsp\npop %rbx\nret\nend f";
        super::verdicts::library(&format!("{begin}{text}\n{end}"))
            .plan
            .copies_stacks
    };
    let leaves = "mov %rdi, %rax\ncall longjmp@plt";
    for compares in [
        // As in Elk and SCM.
        "lea 7(%rsp, %r8), %r9\ncmp %r9, %rbx\njb 1f",
        "lea 8(%rsp), %rax\ncmp %rbx, %rax\njae 1f",
        "cmp 8(%rdi), %rsp\njae 1f",
        "mov %rsp, %r12\nmov 16(%rbx), %rbx\nsub %rcx, %rbx\ncall *%rax\ncmp %rbx, %r12\njbe 1f",
    ] {
        assert!(brings_back(&format!("{compares}\n{leaves}")), "{compares}");
        assert!(
            !brings_back(&format!("{compares}\ncall other@plt")),
            "{compares}"
        );
    }
    for compares in [
        // The end of a list, and of an array; a number.
        "mov %rsp, %rax\ncmp %rbx, %rax\nje 1f",
        "lea 8(%rsp), %rax\nmov %rsp, %rcx\ncmp %rcx, %rax\njb 1f",
        "mov (%rsp), %rax\ncmp %rbx, %rax\njb 1f",
        "mov %rsp, %rbx\nmov 8(%rdi), %rbx\ncmp %rax, %rbx\njb 1f",
    ] {
        assert!(!brings_back(&format!("{compares}\n{leaves}")), "{compares}");
    }
}

#[test]
fn v8_is_known_by_its_text_where_it_is_linked_into_a_file() {
    let walks = |text: &str, options: &[&str]| {
        let source = format!(
            ".globl f\n.type f,@function\nf: ret\n.size f, . - f\n.section .rodata,\"a\",@progbits\n{text}\n"
        );
        let options = [&["-nostdlib", "-Wl,-e,f"], options].concat();
        Built::new("engine.s", &source, &options)
            .planned()
            .plan
            .copies_stacks
    };
    let described = r#".asciz "expose-gc", "expose gc extension""#;
    for options in [&["-shared"][..], &["-pie", "-s"], &["-static"]] {
        assert!(walks(described, options), "{options:?}");
    }
    for text in [
        r#".asciz "expose-gc", "expose gc""#,
        r#".ascii "expose gc extensions by --expose-gc""#,
    ] {
        assert!(!walks(text, &["-shared"]), "{text}");
    }
}
