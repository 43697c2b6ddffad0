//! Mappings and modules, mostly of this very process.

mod common;

use std::ffi::CString;
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::ptr;

use common::{Running, compile, compile_with};

use nopal_process::{Mapping, Module, maps, modules, modules_among, open_module};

fn own() -> i32 {
    std::process::id() as i32
}

/// Maps the second page of a file, and returns what `maps` says about it.
fn map_and_look(path: &Path, remove: bool) -> Mapping {
    fs::write(path, vec![1; 8192]).unwrap();
    let file = File::open(path).unwrap();
    let descriptor = file.as_raw_fd();
    let (access, flags) = (libc::PROT_READ, libc::MAP_SHARED);
    let address = unsafe { libc::mmap(ptr::null_mut(), 4096, access, flags, descriptor, 4096) };
    assert_ne!(address, libc::MAP_FAILED);
    if remove {
        fs::remove_file(path).unwrap();
    }
    let found = maps(own())
        .unwrap()
        .into_iter()
        .find(|mapping| mapping.start == address.addr() as u64);
    unsafe { libc::munmap(address, 4096) };
    let found = found.unwrap();
    let metadata = file.metadata().unwrap();
    assert_eq!(
        (found.end - found.start, found.offset, found.inode),
        (4096, 4096, metadata.ino())
    );
    assert!(found.readable && !found.writable && !found.executable && found.shared);
    found
}

#[test]
fn names_of_all_kinds() {
    let directory = tempfile::tempdir().unwrap();
    for name in [
        "plain",
        " two  words ",
        "new\nline",
        "(deleted)",
        "real (deleted)",
        "\u{e9} \t\u{1}",
    ] {
        let path = directory.path().join(name);
        let kept = map_and_look(&path, false);
        assert_eq!(
            (kept.path.as_deref(), kept.deleted),
            (Some(path.as_path()), false),
            "{name:?}"
        );
        let removed = map_and_look(&path, true);
        assert_eq!(
            (removed.path.as_deref(), removed.deleted),
            (Some(path.as_path()), true),
            "{name:?}"
        );
    }
    let odd = directory
        .path()
        .join(std::ffi::OsStr::from_bytes(b"\xff\xfe"));
    assert_eq!(map_and_look(&odd, false).path, Some(odd));
}

#[test]
fn what_is_no_file_has_a_label() {
    let maps = maps(own()).unwrap();
    let labelled = |label| {
        maps.iter()
            .filter(|one| one.label.as_deref() == Some(label))
            .count()
    };
    assert_eq!((labelled("[stack]"), labelled("[vdso]")), (1, 1));
    let stack = maps
        .iter()
        .find(|one| one.label.as_deref() == Some("[stack]"))
        .unwrap();
    assert!(stack.writable && stack.path.is_none() && stack.inode == 0);
    assert!(
        maps.iter()
            .any(|one| one.label.is_none() && one.path.is_none())
    );
    assert!(maps.windows(2).all(|two| two[0].end <= two[1].start));
    nopal_process::maps(i32::MAX).unwrap_err();
}

fn named<'a>(modules: &'a [Module], start: &str) -> Vec<&'a Module> {
    let fits = |module: &&Module| {
        module
            .path
            .file_name()
            .is_some_and(|name| name.as_bytes().starts_with(start.as_bytes()))
    };
    modules.iter().filter(fits).collect()
}

#[test]
fn modules_have_their_base_and_all_their_mappings() {
    let modules = modules(own()).unwrap();
    let mut information = unsafe { std::mem::zeroed::<libc::Dl_info>() };
    let function = libc::getpid as *const () as *const libc::c_void;
    assert_ne!(unsafe { libc::dladdr(function, &raw mut information) }, 0);
    // Another test may load libc once more.
    let base = information.dli_fbase.addr() as u64;
    let libc = named(&modules, "libc.so")
        .into_iter()
        .find(|module| module.base == base)
        .unwrap();
    assert!(libc.executable() && libc.mappings.len() >= 4);
    let all = maps(own()).unwrap();
    let inside = |one: &&Mapping| {
        one.path.as_ref() == Some(&libc.path) && (libc.base..libc.end()).contains(&one.start)
    };
    assert_eq!(
        all.iter().filter(inside).cloned().collect::<Vec<_>>(),
        libc.mappings
    );
    assert!(
        libc.mappings
            .iter()
            .any(|one| (one.start..one.end).contains(&(function.addr() as u64)))
    );
    let own = std::env::current_exe().unwrap();
    assert_eq!(
        modules.iter().filter(|module| module.path == own).count(),
        1
    );
}

/// `dlmopen` loads a library that is loaded already once more.
#[test]
fn a_library_loaded_twice_is_two_modules() {
    let name = CString::new("libm.so.6").unwrap();
    let before = named(&modules(own()).unwrap(), "libm.so").len();
    let open = || unsafe { libc::dlmopen(libc::LM_ID_NEWLM, name.as_ptr(), libc::RTLD_NOW) };
    let handles = [open(), open()];
    let modules = modules(own()).unwrap();
    let found = named(&modules, "libm.so");
    assert_eq!(found.len(), before + 2);
    for module in &found {
        let mut header = [0; 4];
        nopal_process::Memory::open(own())
            .unwrap()
            .read(module.base, &mut header)
            .unwrap();
        assert_eq!(&header, b"\x7fELF");
        assert_eq!(module.mappings.len(), found[0].mappings.len());
    }
    for handle in handles {
        unsafe { libc::dlclose(handle) };
    }
}

fn content(pid: i32, module: &Module) -> Vec<u8> {
    let mut content = Vec::new();
    open_module(pid, module)
        .unwrap()
        .read_to_end(&mut content)
        .unwrap();
    content
}

#[test]
fn the_file_of_a_module_is_found_even_if_it_has_been_replaced() {
    let program = compile("parent");
    let mut running = Running::start(&program, &[]);
    assert_eq!(running.line(), "ready");
    let original = fs::read(&program.path).unwrap();
    let find = || {
        let modules = modules(running.pid()).unwrap();
        named(&modules, "parent")[0].clone()
    };
    assert_eq!(content(running.pid(), &find()), original);
    fs::remove_file(&program.path).unwrap();
    fs::write(&program.path, "another").unwrap();
    let module = find();
    assert!(module.deleted);
    assert_eq!(module.path, program.path);
    assert_eq!(content(running.pid(), &module), original);
    let pid = running.pid();
    let exact = std::thread::spawn(move || without_privileges(|| content(pid, &module)));
    assert_eq!(exact.join().unwrap(), original);
}

/// An ordinary user may not follow the kernel's own links to mapped files.
#[test]
fn the_file_of_a_module_is_found_without_privileges() {
    let program = compile_with("loaded", &["-shared", "-fPIC", "-DLIBRARY"]);
    let name = CString::new(program.path.as_os_str().as_bytes()).unwrap();
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
    assert!(!handle.is_null());
    let module = || named(&modules(own()).unwrap(), "loaded")[0].clone();
    let look = |module: Module| {
        let open = move || without_privileges(|| open_module(own(), &module).map(drop).is_ok());
        std::thread::spawn(open).join().unwrap()
    };
    assert!(look(module()));
    // The same name, but another file.
    fs::remove_file(&program.path).unwrap();
    fs::write(&program.path, "another").unwrap();
    assert!(!look(module()));
    unsafe { libc::dlclose(handle) };
}

/// Runs something with this OS thread's right to follow those links taken away.
fn without_privileges<T>(run: impl FnOnce() -> T) -> T {
    #[repr(C)]
    struct Set {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    const CAP_SYS_ADMIN: u32 = 21;
    const CAP_CHECKPOINT_RESTORE: u32 = 40;
    let mut header = [0x2008_0522u32, 0];
    let mut sets = [const {
        Set {
            effective: 0,
            permitted: 0,
            inheritable: 0,
        }
    }; 2];
    let call = |number, header: &mut [u32; 2], sets: &mut [Set; 2]| {
        assert_eq!(
            unsafe { libc::syscall(number, header.as_mut_ptr(), sets.as_mut_ptr()) },
            0
        );
    };
    call(libc::SYS_capget, &mut header, &mut sets);
    sets[0].effective &= !(1 << CAP_SYS_ADMIN);
    sets[1].effective &= !(1 << (CAP_CHECKPOINT_RESTORE - 32));
    call(libc::SYS_capset, &mut header, &mut sets);
    run()
}

/// Where a mapping grows between two pages of the list, it overlaps the next; a JVM that was attached to was refused so.
#[test]
fn mappings_may_change_while_they_are_read() {
    const PAGE: usize = 4096;
    const PAGES: usize = 1000;
    let (access, flags) = (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let start = unsafe { libc::mmap(ptr::null_mut(), PAGES * PAGE, access, flags, -1, 0) };
    assert_ne!(start, libc::MAP_FAILED);
    let begin = start.addr();
    let protect = |page: usize, access| {
        let at = (begin + page * PAGE) as *mut libc::c_void;
        assert_eq!(unsafe { libc::mprotect(at, PAGE, access) }, 0);
    };
    let end = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let none = [libc::PROT_NONE, libc::PROT_READ];
            while !end.load(std::sync::atomic::Ordering::Relaxed) {
                for access in none {
                    (0..PAGES).step_by(2).for_each(|page| protect(page, access));
                }
            }
        });
        let results: Vec<_> = (0..300).map(|_| maps(own()).map(drop)).collect();
        end.store(true, std::sync::atomic::Ordering::Relaxed);
        results.into_iter().collect::<Result<(), _>>().unwrap();
    });
    unsafe { libc::munmap(start, PAGES * PAGE) };
}

/// Memory without a file is a module's code only where it fills a gap between two mappings of the module.
#[test]
fn copied_code_fills_a_gap() {
    let of_file = |start: u64, end: u64, executable: bool| Mapping {
        start,
        end,
        readable: true,
        writable: false,
        executable,
        shared: false,
        offset: start - 0x40_0000,
        device: 1,
        inode: 7,
        path: Some("/program".into()),
        label: None,
        deleted: false,
    };
    let copy = Mapping {
        offset: 0,
        device: 0,
        inode: 0,
        path: None,
        ..of_file(0x40_1000, 0x40_3000, true)
    };
    let huge = Mapping {
        inode: 9,
        path: Some("/anon_hugepage".into()),
        deleted: true,
        ..copy.clone()
    };
    let head = of_file(0x40_0000, 0x40_1000, false);
    let tail = of_file(0x40_3000, 0x40_4000, false);
    let belongs = |copy: &Mapping, tail: &Mapping| {
        let found = modules_among(vec![head.clone(), copy.clone(), tail.clone()]);
        let module = found.iter().find(|module| module.base == 0x40_0000);
        let code = module.unwrap().mappings.iter().find(|it| it.executable);
        code.map(|code| code.offset)
    };
    assert_eq!(belongs(&copy, &tail), Some(0x1000));
    assert_eq!(belongs(&huge, &tail), Some(0x1000));
    type Differs = fn(&mut Mapping);
    let others: [Differs; 6] = [
        |copy| copy.start += 0x1000,
        |copy| copy.end -= 0x1000,
        |copy| copy.shared = true,
        |copy| copy.executable = false,
        |copy| copy.label = Some("[heap]".to_owned()),
        |copy| copy.inode = 9,
    ];
    for differs in others {
        let mut other = copy.clone();
        differs(&mut other);
        assert_eq!(belongs(&other, &tail), None, "{other:?}");
    }
    // The file goes on elsewhere, and behind the last mapping is no gap.
    let elsewhere = Mapping {
        offset: 0x2000,
        ..tail.clone()
    };
    assert_eq!(belongs(&copy, &elsewhere), None);
    let behind = modules_among(vec![head.clone(), copy]);
    assert!(!behind[0].executable());
}
