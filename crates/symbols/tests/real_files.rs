mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{addresses, libc};
use nopal_symbols::{Image, Kind, Source, demangle, without_parameters};

/// Programs and libraries that this machine has: libc and this test are on every one.
fn files() -> Vec<PathBuf> {
    let mut files = vec![libc(), std::env::current_exe().unwrap()];
    let more = [
        "/usr/bin/python3",
        "/usr/bin/git",
        "/usr/bin/gcc",
        "/lib64/ld-linux-x86-64.so.2",
        "/usr/bin/make",
    ];
    files.extend(more.iter().map(PathBuf::from).filter(|path| path.exists()));
    files
}

#[test]
fn exported_functions_are_those_of_nm() {
    for path in files() {
        let image = Image::open(&path).unwrap();
        let output = Command::new("nm")
            .args(["-D", "--defined-only"])
            .arg(&path)
            .output()
            .unwrap();
        for line in String::from_utf8(output.stdout).unwrap().lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [address, "T" | "W" | "i", name] = words[..] else {
                continue;
            };
            let address = u64::from_str_radix(address, 16).unwrap();
            let name = name.split('@').next().unwrap();
            let segment = image
                .segments()
                .iter()
                .rfind(|segment| segment.address <= address);
            if !segment.unwrap().executable {
                continue;
            }
            let function = image.function_at(address).unwrap();
            let function = function.unwrap_or_else(|| panic!("{}: {line}", path.display()));
            let is_named =
                function.name == name || function.aliases.iter().any(|alias| alias == name);
            assert!(
                is_named && function.address == address,
                "{}: {line}: {function:?}",
                path.display()
            );
        }
    }
}

#[test]
fn functions_are_sorted_and_lie_in_code() {
    for path in files() {
        let image = Image::open(&path).unwrap();
        let functions = image.functions().unwrap();
        assert!(addresses(&image).is_sorted_by(|a, b| a < b));
        for function in functions {
            assert!(!function.name.is_empty());
            assert!(
                image
                    .bytes(function.address, function.size.try_into().unwrap())
                    .is_some(),
                "{function:?}"
            );
            let segment = image
                .segments()
                .iter()
                .rfind(|segment| segment.address <= function.address);
            assert!(segment.unwrap().executable);
            if function.source == Source::Unwind {
                assert!(
                    image
                        .unwind_rows(function.address)
                        .unwrap()
                        .starts_at_call_boundary()
                );
                assert_eq!(
                    function.name,
                    format!("{}+{:#x}", image.file_name(), function.address)
                );
            }
        }
    }
}

#[test]
fn the_c_library_is_a_library_with_its_known_names() {
    let image = Image::open(&libc()).unwrap();
    assert_eq!(image.kind(), Kind::Library);
    assert_eq!(image.soname(), Some("libc.so.6"));
    for name in ["malloc", "puts", "fopen", "read", "qsort"] {
        let function = image
            .functions()
            .unwrap()
            .iter()
            .find(|function| function.name == name);
        assert!(function.is_some_and(|function| function.global), "{name}");
    }
    assert!(
        image
            .functions()
            .unwrap()
            .iter()
            .any(|function| function.name == "strlen" && function.indirect)
    );
    assert!(image.needed().contains(&"ld-linux-x86-64.so.2"));
}

#[test]
fn stripping_loses_names_but_no_functions() {
    let whole = Image::open(&std::env::current_exe().unwrap()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("stripped");
    let strip = Command::new("strip")
        .arg(whole.path())
        .arg("-o")
        .arg(&path)
        .status()
        .unwrap();
    assert!(strip.success());
    let stripped = Image::open_with_debug_directories(&path, &[]).unwrap();
    let (all, found) = (addresses(&whole), addresses(&stripped));
    assert!(
        found
            .iter()
            .all(|address| all.binary_search(address).is_ok())
    );
    let lost: Vec<_> = whole
        .functions()
        .unwrap()
        .iter()
        .filter(|function| found.binary_search(&function.address).is_err())
        .filter(|function| {
            whole
                .unwind_rows(function.address)
                .is_some_and(|entry| entry.starts_at_call_boundary())
        })
        .collect();
    assert!(lost.is_empty(), "{lost:?}");
}

#[test]
fn this_test_finds_itself() {
    let image = Image::open(Path::new("/proc/self/exe")).unwrap();
    let wanted = "this_test_finds_itself";
    let functions = image.functions().unwrap();
    let found = functions
        .iter()
        .find(|function| demangle(&function.name).ends_with(wanted))
        .unwrap();
    assert_eq!(found.source, Source::Symtab);
    let demangled = demangle(&found.name);
    assert_eq!(demangled, format!("{}::{wanted}", module_path!()));
    assert_eq!(without_parameters(&demangled), demangled);
}

#[test]
fn names_in_cpp_libraries_lose_their_parameters() {
    let output = Command::new("g++")
        .arg("-print-file-name=libstdc++.so.6")
        .output()
        .unwrap();
    let path = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim());
    let image = Image::open(&path.canonicalize().unwrap()).unwrap();
    let options = cpp_demangle::DemangleOptions::new()
        .no_params()
        .no_return_type();
    let mut compared = 0;
    for function in image
        .functions()
        .unwrap()
        .iter()
        .filter(|function| function.name.starts_with("_Z"))
    {
        let Ok(symbol) = cpp_demangle::Symbol::new(&function.name) else {
            continue;
        };
        let expected = symbol.demangle_with_options(&options).unwrap();
        if expected.contains("transaction clone for") || expected.contains("thunk") {
            continue;
        }
        let expected = expected
            .trim_end_matches(" &&")
            .trim_end_matches(" &")
            .trim_end_matches(" const");
        let demangled = demangle(&function.name);
        assert_eq!(without_parameters(&demangled), expected, "{demangled}");
        compared += 1;
    }
    assert!(compared > 1000);
}
