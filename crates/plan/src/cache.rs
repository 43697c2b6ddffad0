//! Plans on disk, so that a file is worked out once.

use std::fs::{self, DirBuilder, File};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use nopal_symbols::Image;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::Plan;

/// Changes whenever plans are made differently or written differently.
const VERSION: &[u8; 8] = b"nopal-p3";

/// Version, what the plan was made from, checksum of the rest.
const HEADER: usize = 24;

impl Plan {
    /// The plan from `cache_dir`, or a new one, which is put there. What is damaged, was made from other content or by
    /// another version, or may have been written by somebody else is made anew.
    pub fn cached(image: &Image, cache_dir: &Path) -> Result<Plan> {
        let identity = image.identity();
        let source = source(image)?;
        let path = cache_dir.join(format!("{identity}.plan"));
        if let Ok(plan) = read(&path, source)
            && plan.identity == identity
        {
            return Ok(plan);
        }
        let plan = Plan::make(image)?;
        // A plan that cannot be kept is as good: the next run makes it again.
        let _ = write(cache_dir, &path, source, &plan);
        Ok(plan)
    }
}

/// A hash of all that a plan is made from: files with one build-id may differ, as may the debug files found for them.
fn source(image: &Image) -> Result<u64> {
    let mut hash = Xxh3::new();
    for segment in image.segments() {
        let bytes = usize::try_from(segment.file_size)
            .ok()
            .and_then(|size| image.bytes(segment.address, size));
        hash.update(&segment.address.to_le_bytes());
        hash.update(bytes.unwrap_or_default());
    }
    for function in image.functions()? {
        hash.update(&function.address.to_le_bytes());
        hash.update(&function.size.to_le_bytes());
        hash.update(&[function.source as u8, u8::from(function.indirect)]);
        for name in std::iter::once(&function.name).chain(&function.aliases) {
            hash.update(name.as_bytes());
            hash.update(&[0]);
        }
    }
    Ok(hash.digest())
}

fn read(path: &Path, source: u64) -> Result<Plan> {
    let mut file = File::options()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)?;
    let facts = file.metadata()?;
    ensure!(
        facts.is_file() && is_ours(&facts),
        "not a file that only this user writes"
    );
    let mut bytes = Vec::with_capacity(usize::try_from(facts.len())?);
    file.read_to_end(&mut bytes)?;
    let (header, rest) = bytes
        .split_at_checked(HEADER)
        .context("shorter than its header")?;
    ensure!(
        header == self::header(source, rest),
        "damaged, or of another file or version"
    );
    Ok(postcard::from_bytes(rest)?)
}

fn write(directory: &Path, path: &Path, source: u64, plan: &Plan) -> Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    ensure!(
        is_ours(&fs::metadata(directory)?),
        "not a directory that only this user writes"
    );
    let rest = postcard::to_stdvec(plan)?;
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    file.write_all(&header(source, &rest))?;
    file.write_all(&rest)?;
    file.persist(path)?;
    Ok(())
}

fn header(source: u64, rest: &[u8]) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(VERSION);
    header[8..16].copy_from_slice(&source.to_le_bytes());
    header[16..].copy_from_slice(&xxh3_64(rest).to_le_bytes());
    header
}

fn is_ours(facts: &fs::Metadata) -> bool {
    // SAFETY: it takes nothing and cannot fail.
    let user = unsafe { libc::geteuid() };
    facts.uid() == user && facts.mode() & 0o022 == 0
}
