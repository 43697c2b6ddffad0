use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::{Built, Random, seed};
use crate::{Plan, stored};

const HEADER: usize = 32;

fn built(number: u32) -> Built {
    let source =
        format!("int f(int a) {{ return a * {number}; }}\nint g(int a) {{ return f(a) + 1; }}");
    Built::new("cached.c", &source, &["-shared", "-fPIC", "-O2"])
}

fn only_file(directory: &Path) -> PathBuf {
    let files: Vec<PathBuf> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files[0].clone()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_cached_plan_is_the_same_and_private() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("new/plans");
    let library = built(3);
    let made = Plan::make(&library.image()).unwrap();
    assert_eq!(Plan::cached(&library.image(), &directory).unwrap(), made);
    let file = only_file(&directory);
    assert_eq!((mode(&directory), mode(&file)), (0o700, 0o600));
    let written = fs::read(&file).unwrap();
    let cached = Plan::cached(&library.image(), &directory).unwrap();
    assert_eq!(cached, made);
    let image = library.image();
    for site in &cached.sites {
        let function = image.function_at(site.address).unwrap().unwrap();
        assert_eq!(site.name(), function.name);
    }
    assert_eq!(fs::read(&file).unwrap(), written);
}

/// Puts a plan with one site and one function less into the cache, as if it had been made so: a reader of it can be
/// told from others.
fn shortened(directory: &Path, library: &Built) -> (PathBuf, Plan) {
    let image = library.image();
    let made = Plan::cached(&image, directory).unwrap();
    let file = only_file(directory);
    let mut bytes = fs::read(&file).unwrap();
    let mut shorter = made.clone();
    shorter.sites.pop();
    let (_, functions) = image.functions().unwrap().split_last().unwrap();
    bytes.truncate(HEADER);
    let plan = stored::encode(&shorter).unwrap();
    bytes.extend((plan.len() as u64).to_le_bytes());
    bytes.extend(plan);
    bytes.extend(postcard::to_stdvec(functions).unwrap());
    let checksum = xxhash_rust::xxh3::xxh3_64(&bytes[16..]);
    bytes[8..16].copy_from_slice(&checksum.to_le_bytes());
    fs::write(&file, bytes).unwrap();
    assert_eq!(Plan::cached(&library.image(), directory).unwrap(), shorter);
    (file, made)
}

#[test]
fn what_is_damaged_is_made_anew() {
    let directory = tempfile::tempdir().unwrap();
    let library = built(3);
    let made = Plan::cached(&library.image(), directory.path()).unwrap();
    let file = only_file(directory.path());
    let good = fs::read(&file).unwrap();
    let step = good.len() / 50 + 1;
    for at in (0..HEADER).chain((HEADER..good.len()).step_by(step)) {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        fs::write(&file, &bad).unwrap();
        assert_eq!(
            Plan::cached(&library.image(), directory.path()).unwrap(),
            made,
            "{at}"
        );
        assert_eq!(fs::read(&file).unwrap(), good, "{at}");
    }
    for length in [0, 10, HEADER, good.len() - 1] {
        fs::write(&file, &good[..length]).unwrap();
        assert_eq!(
            Plan::cached(&library.image(), directory.path()).unwrap(),
            made,
            "{length}"
        );
    }
}

#[test]
fn a_plan_that_others_may_have_written_is_made_anew() {
    let directory = tempfile::tempdir().unwrap();
    let library = built(3);
    let (file, made) = shortened(directory.path(), &library);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o660)).unwrap();
    assert_eq!(
        Plan::cached(&library.image(), directory.path()).unwrap(),
        made
    );
    assert_eq!(mode(&file), 0o600);

    let (file, made) = shortened(directory.path(), &library);
    let elsewhere = tempfile::tempdir().unwrap();
    let moved = elsewhere.path().join("plan");
    fs::rename(&file, &moved).unwrap();
    symlink(&moved, &file).unwrap();
    assert_eq!(
        Plan::cached(&library.image(), directory.path()).unwrap(),
        made
    );
    assert!(fs::symlink_metadata(&file).unwrap().is_file());
}

#[test]
fn a_plan_of_another_file_is_not_taken() {
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = (built(3), built(5));
    Plan::cached(&first.image(), directory.path()).unwrap();
    let first_file = only_file(directory.path());
    let made = Plan::cached(&second.image(), directory.path()).unwrap();
    assert_eq!(made, Plan::make(&second.image()).unwrap());
    let second_file = directory
        .path()
        .join(format!("{}.plan", second.image().identity()));
    fs::copy(first_file, second_file).unwrap();
    assert_eq!(
        Plan::cached(&second.image(), directory.path()).unwrap(),
        made
    );
}

/// A stripped file keeps its build-id but has other names.
#[test]
fn a_stripped_file_has_a_plan_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let source = "static __attribute__((noinline)) int f(int a) { return a * 3; }\nint g(int a) { return f(a) + 1; }";
    let library = Built::new(
        "names.c",
        source,
        &["-shared", "-fPIC", "-O1", "-Wl,--build-id"],
    );
    let whole = Plan::cached(&library.image(), directory.path()).unwrap();
    let stripped = std::process::Command::new("strip")
        .arg(&library.path)
        .status()
        .unwrap();
    assert!(stripped.success());
    let image = library.image();
    assert_eq!(image.identity(), whole.identity);
    assert_eq!(
        Plan::cached(&image, directory.path()).unwrap(),
        Plan::make(&image).unwrap()
    );
}

/// Long after a file was changed its stamp is enough, and its content need not be looked at.
#[test]
fn a_cached_plan_spares_the_search_for_functions() {
    let directory = tempfile::tempdir().unwrap();
    let library = built(3);
    let (file, made) = shortened(directory.path(), &library);
    let later = SystemTime::now() + Duration::from_secs(3600);
    File::options()
        .append(true)
        .open(&file)
        .unwrap()
        .set_modified(later)
        .unwrap();
    let image = library.image();
    let shorter = Plan::cached(&image, directory.path()).unwrap();
    assert_eq!(shorter.sites, made.sites[..made.sites.len() - 1]);
    let all = library.image().functions().unwrap().to_vec();
    assert_eq!(image.functions().unwrap(), &all[..all.len() - 1]);

    let other = built(5);
    fs::copy(&other.path, &library.path).unwrap();
    let made = Plan::cached(&library.image(), directory.path()).unwrap();
    assert_eq!(made, Plan::make(&library.image()).unwrap());
}

/// Its size, its name, its inode and, as far as the clock tells, its times are the same.
#[test]
fn a_file_that_was_changed_at_once_is_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let library = built(3);
    let (file, _) = shortened(directory.path(), &library);
    let mut bytes = fs::read(&file).unwrap();
    bytes[24] ^= 1;
    let checksum = xxhash_rust::xxh3::xxh3_64(&bytes[16..]);
    bytes[8..16].copy_from_slice(&checksum.to_le_bytes());
    fs::write(&file, bytes).unwrap();
    let just_then = fs::metadata(&library.path).unwrap().modified().unwrap();
    File::options()
        .append(true)
        .open(&file)
        .unwrap()
        .set_modified(just_then)
        .unwrap();
    let made = Plan::cached(&library.image(), directory.path()).unwrap();
    assert_eq!(made, Plan::make(&library.image()).unwrap());
}

#[test]
fn a_cache_that_cannot_be_written_does_no_harm() {
    let library = built(3);
    let made = Plan::make(&library.image()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a file");
    fs::write(&file, "").unwrap();
    assert_eq!(
        Plan::cached(&library.image(), &file.join("below")).unwrap(),
        made
    );
}

#[test]
fn a_plan_that_cannot_be_written_is_made_each_time() {
    let directory = tempfile::tempdir().unwrap();
    let name = "n".repeat(70_000);
    let source =
        format!("int f(int a) __asm__(\"{name}\"); int f(int a) {{ return a * 1234567 + 89; }}");
    let library = Built::new("named.c", &source, &["-shared", "-fPIC", "-O2"]);
    let made = Plan::make(&library.image()).unwrap();
    assert!(made.sites.iter().any(|site| site.name().len() > 0xffff));
    for _ in 0..2 {
        assert_eq!(
            Plan::cached(&library.image(), directory.path()).unwrap(),
            made
        );
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}

/// Damage that a checksum would not find: any plan that `decode` accepts can be looked at.
#[test]
fn damaged_bytes_are_refused_or_make_a_plan_within_them() {
    let mut random = Random(seed());
    let library = built(3);
    let good = stored::encode(&Plan::make(&library.image()).unwrap()).unwrap();
    let mut refused = 0;
    for _ in 0..20_000 {
        let mut bad = good.clone();
        for _ in 0..1 + random.below(3) {
            bad[random.below(good.len())] = random.byte();
        }
        bad.truncate(good.len() - random.below(4) * random.below(20));
        let Ok(plan) = stored::decode(bad) else {
            refused += 1;
            continue;
        };
        for site in plan.sites.iter().chain(&plan.hooks) {
            let body = &site.body;
            let mut out = vec![0; body.code().len()];
            let _ = body.place(0, 0x1000, &mut out);
            let parts = body.map().len() + body.rows().len() + site.name().len();
            assert!(parts <= good.len() && site.expected().len() <= good.len());
        }
    }
    println!("{refused} were refused");
    assert!((1_000..19_000).contains(&refused));
}
