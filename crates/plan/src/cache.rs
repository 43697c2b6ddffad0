//! Plans on disk, so that each file is analysed once.

use std::fs::{self, DirBuilder, File};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use memmap2::Mmap;
use nopal_symbols::{Image, Stamp};
use xxhash_rust::xxh3::Xxh3;

use crate::{Plan, stored};

/// Changes whenever functions are found differently, or plans are made or written differently.
const VERSION: &[u8; 8] = b"nopal-pu";

/// Version, checksum of the rest, stamp and hash of the files that the plan was made from. Then come the length of the
/// plan, the plan, and the functions.
const HEADER: usize = 32;

/// A plan that was written this many seconds after its file's last change is valid for every file with the same stamp.
/// One that was written sooner is valid for equal content only: the file may have changed again within the resolution
/// of its times.
const SETTLED: i64 = 2;

impl Plan {
    /// Loads the plan from `cache_dir`, or makes a new one and stores it there. A cached plan is replaced if it is
    /// damaged, was made from other content or by another version, or if others could have written it.
    pub fn cached(image: &Image, cache_dir: &Path) -> Result<Plan> {
        // The debug file's stamp, taken before the plan is made: the file may be replaced meanwhile.
        let Some(stamp) = image.stamp() else {
            return Plan::make(image);
        };
        if let Some(plan) = kept(image, stamp, cache_dir) {
            return Ok(plan);
        }
        let plan = Plan::make(image)?;
        // A plan that cannot be stored is valid, too: the next run makes it again.
        let _ = write(cache_dir, stamp, image, &plan);
        Ok(plan)
    }

    /// Loads the plan from `cache_dir`, if it is there.
    pub fn kept(image: &Image, cache_dir: &Path) -> Option<Plan> {
        kept(image, image.stamp()?, cache_dir)
    }
}

fn kept(image: &Image, stamp: Stamp, cache_dir: &Path) -> Option<Plan> {
    let identity = image.identity();
    let Cached { plan, functions } = read(&path(cache_dir, &identity), stamp, image).ok()?;
    if plan.identity != identity {
        return None;
    }
    image.remember(move || postcard::from_bytes(functions.bytes()?).ok());
    Some(plan)
}

fn path(cache_dir: &Path, identity: &str) -> PathBuf {
    cache_dir.join(format!("{identity}.plan"))
}

struct Cached {
    plan: Plan,
    functions: Functions,
}

/// Not decoded, as they are rarely needed.
struct Functions {
    file: Mmap,
    offset: usize,
}

impl Functions {
    fn bytes(&self) -> Option<&[u8]> {
        self.file.get(self.offset..)
    }
}

/// A file of the cache that only this user could have written.
pub fn open_ours(path: &Path) -> Result<(File, fs::Metadata)> {
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)?;
    let facts = file.metadata()?;
    ensure!(
        facts.is_file() && is_ours(&facts),
        "not a file that only this user writes"
    );
    Ok((file, facts))
}

/// A new file for the cache, which this user alone writes.
pub fn new_in(directory: &Path) -> Result<tempfile::NamedTempFile> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    ensure!(
        is_ours(&fs::metadata(directory)?),
        "not a directory that only this user writes"
    );
    Ok(tempfile::NamedTempFile::new_in(directory)?)
}

fn read(path: &Path, stamp: Stamp, image: &Image) -> Result<Cached> {
    let (file, facts) = open_ours(path)?;
    // SAFETY: the map is private and only read as bytes. Only this user can write the file, and nopal only replaces it
    // by another.
    let map = unsafe { Mmap::map(&file) }?;
    let (header, rest) = map
        .split_at_checked(HEADER)
        .context("shorter than its header")?;
    let (length, rest) = rest.split_first_chunk().context("no plan")?;
    let (plan, functions) = usize::try_from(u64::from_le_bytes(*length))
        .ok()
        .and_then(|length| rest.split_at_checked(length))
        .context("too short")?;
    // It is used as long as the session lasts: the bytes used later must be the ones checked here, even if the file
    // changes.
    let plan = plan.to_vec();
    let settled = facts.mtime().saturating_sub(SETTLED) > stamp.changed;
    let content = match header.last_chunk() {
        Some(hash) if settled => u64::from_le_bytes(*hash),
        _ => image.content_hash(),
    };
    ensure!(
        header == self::header(stamp, content, [length, &plan, functions]),
        "damaged, or of another file or version"
    );
    Ok(Cached {
        plan: stored::decode(plan)?,
        functions: Functions {
            offset: map.len() - functions.len(),
            file: map,
        },
    })
}

fn write(directory: &Path, stamp: Stamp, image: &Image, plan: &Plan) -> Result<()> {
    let mut file = new_in(directory)?;
    let path = path(directory, &plan.identity);
    let plan = stored::encode(plan)?;
    let length = (plan.len() as u64).to_le_bytes();
    let functions = postcard::to_stdvec(image.functions()?)?;
    let rest = [&length[..], &plan, &functions];
    file.write_all(&header(stamp, image.content_hash(), rest))?;
    rest.iter().try_for_each(|part| file.write_all(part))?;
    file.persist(path)?;
    Ok(())
}

fn header(stamp: Stamp, content: u64, rest: [&[u8]; 3]) -> [u8; HEADER] {
    let made_from = [stamp.facts.to_le_bytes(), content.to_le_bytes()];
    let made_from = made_from.as_flattened();
    let mut checksum = Xxh3::new();
    checksum.update(made_from);
    rest.iter().for_each(|part| checksum.update(part));
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(VERSION);
    header[8..16].copy_from_slice(&checksum.digest().to_le_bytes());
    header[16..].copy_from_slice(made_from);
    header
}

fn is_ours(facts: &fs::Metadata) -> bool {
    let user = rustix::process::geteuid().as_raw();
    facts.uid() == user && facts.mode() & 0o022 == 0
}
