mod common;

use common::{BuildDirectory, addresses, by_name};
use nopal_symbols::{Image, Source, VariablePath};

const PROGRAM: &str = "
__attribute__((noinline)) static int hidden(int x) { __asm__ volatile(\"\" : \"+r\"(x)); return x + 1; }
int shown(int x) { return hidden(x) * 2; }
int main(int argc, char **argv) { return shown(argc) + (argv == 0); }
";

/// A stripped program `a`, its debug file `a.debug`, and the whole of it, `whole`.
fn split(flags: &str) -> BuildDirectory {
    let build = BuildDirectory::new();
    build.write("a.c", PROGRAM);
    build.run(&format!("gcc -g -O2 -rdynamic {flags} a.c -o whole"));
    build.run("objcopy --only-keep-debug whole a.debug");
    build.run("strip whole -o a");
    build
}

fn assert_whole(build: &BuildDirectory, image: &Image, source: Source) {
    let functions = by_name(image);
    assert_eq!(functions["hidden"].source, source);
    assert_eq!(
        functions["hidden"].address,
        build.address("whole", "hidden")
    );
    assert_eq!(
        functions["hidden"].size,
        by_name(&build.open("whole"))["hidden"].size
    );
    assert_eq!(image.symbol("hidden"), Some(functions["hidden"].address));
    assert_eq!(image.symbol("shown"), Some(functions["shown"].address));
}

fn assert_bare(image: &Image) {
    assert!(!by_name(image).contains_key("hidden"));
    assert_eq!(image.symbol("hidden"), None);
    assert!(by_name(image).contains_key("shown"));
}

#[test]
fn by_build_id() {
    let build = split("-Wl,--build-id=0xabcdef0123");
    assert_bare(&build.open("a"));
    let debug = std::fs::read(build.path("a.debug")).unwrap();
    build.write("debug/.build-id/ab/cdef0123.debug", &debug);
    assert_whole(&build, &build.open("a"), Source::DebugFile);
    assert_eq!(addresses(&build.open("a")), addresses(&build.open("whole")));
}

#[test]
fn a_debug_file_of_another_program_is_not_believed() {
    let build = split("-Wl,--build-id=0xabcdef0123");
    let other = split("-Wl,--build-id=0xabcdef0124");
    let debug = std::fs::read(other.path("a.debug")).unwrap();
    build.write("debug/.build-id/ab/cdef0123.debug", debug);
    assert_bare(&build.open("a"));
    build.write("debug/.build-id/ab/cdef0123.debug", "not even ELF");
    assert_bare(&build.open("a"));
}

#[test]
fn by_link() {
    for place in ["a.debug", ".debug/a.debug", "debug/PARENT/a.debug"] {
        for id in ["-Wl,--build-id=none", "-Wl,--build-id=0xabcdef0123"] {
            let build = split(id);
            build.run("objcopy --add-gnu-debuglink=a.debug a");
            let debug = std::fs::read(build.path("a.debug")).unwrap();
            build.run("rm a.debug");
            assert_bare(&build.open("a"));
            let parent = build.path("a").canonicalize().unwrap();
            let parent = parent.parent().unwrap().to_str().unwrap();
            build.write(
                &place.replace("PARENT", parent.trim_start_matches('/')),
                debug,
            );
            assert_whole(&build, &build.open("a"), Source::DebugFile);
        }
    }
}

#[test]
fn a_linked_file_must_have_the_right_sum() {
    let build = split("-Wl,--build-id=none");
    build.run("objcopy --add-gnu-debuglink=a.debug a");
    assert_whole(&build, &build.open("a"), Source::DebugFile);
    let mut debug = std::fs::read(build.path("a.debug")).unwrap();
    debug.push(0);
    build.write("a.debug", debug);
    assert_bare(&build.open("a"));
}

#[test]
fn a_link_does_not_lead_elsewhere() {
    let build = split("-Wl,--build-id=none");
    build.run("objcopy --add-gnu-debuglink=a.debug a");
    let debug = std::fs::read(build.path("a.debug")).unwrap();
    build.run("rm a.debug");
    build.write("sub/d/debug", &debug);
    build.write("bug", &debug);
    let bytes = std::fs::read(build.path("a")).unwrap();
    let at = bytes
        .windows(8)
        .position(|window| window == b"a.debug\0")
        .unwrap();
    for name in [
        b"d/debug\0",
        b"../bug\0\0",
        b"..\0\0\0\0\0\0",
        b"\0\0\0\0\0\0\0\0",
    ] {
        let mut changed = bytes.clone();
        changed[at..at + 8].copy_from_slice(name);
        build.write("sub/b", changed);
        assert_bare(&build.open("sub/b"));
    }
}

#[test]
fn in_mini_debug_info() {
    let build = split("");
    build.run("objcopy --only-keep-debug whole whole.debug");
    build.run("objcopy -S --keep-symbol=hidden whole.debug mini");
    build.run("xz -f mini");
    build.run("objcopy --add-section .gnu_debugdata=mini.xz a");
    assert_whole(&build, &build.open("a"), Source::MiniDebugInfo);
}

#[test]
fn damaged_mini_debug_info_is_left_aside() {
    let build = split("");
    build.write("garbage", [0xfd; 300]);
    build.run("objcopy --add-section .gnu_debugdata=garbage a");
    assert_bare(&build.open("a"));
}

#[test]
fn a_bomb_in_mini_debug_info_is_not_inflated() {
    let build = split("");
    let zeroes = std::fs::File::create(build.path("zeroes")).unwrap();
    zeroes.set_len(160 << 20).unwrap();
    build.run("xz -0 zeroes");
    build.run("objcopy --add-section .gnu_debugdata=zeroes.xz a");
    assert_bare(&build.open("a"));
}

/// Two programs of one source, whose debug information dwz has moved to a file that they have in common.
#[test]
fn what_dwz_moves_to_a_common_file_is_found_there() {
    let build = BuildDirectory::new();
    build.write(
        "a.c",
        "enum color { RED, GREEN };
         struct shape { long id; enum color color; const char *label; };
         int area(struct shape *shape, enum color color, const char *label)
         { return shape->color + color + label[0]; }
         int main(int argc, char **argv)
         { struct shape shape = { NUMBER, argc }; return area(&shape, GREEN, argv[0]); }",
    );
    for number in ["1", "2"] {
        build.run(&format!(
            "gcc -g -O1 -fno-inline -Wl,--build-id -DNUMBER={number} a.c -o a{number}"
        ));
    }
    let found = || {
        let image = build.open("a1");
        let address = image.symbol("area").unwrap();
        let color = VariablePath::parsed("shape->color").unwrap();
        let variable = image.variable(address, &color).ok();
        (image.prototypes(&[address]), variable)
    };
    let whole = found();
    assert!(whole.0.len() == 1 && whole.1.is_some());
    std::fs::create_dir_all(build.path("debug/.dwz")).unwrap();
    build.run("dwz -m debug/.dwz/common -M /nowhere/debug/.dwz/common a1 a2");
    assert_eq!(whole, found());
    build.run("strip --strip-all --remove-section=.note.gnu.build-id debug/.dwz/common");
    assert!(found().1.is_none());
}
