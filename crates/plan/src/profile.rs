//! What a budget knew when the last session of a program ended: on disk beside plans, and checked like these.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::cache;

/// Changes whenever profiles are written differently, or mean something else.
const VERSION: &[u8; 8] = b"nopal-b2";
/// Version and checksum of the rest.
const HEADER: usize = 16;

/// Limits on what is read and written.
const MOST_BYTES: u64 = 4 << 20;
const MOST_FUNCTIONS: usize = 1 << 16;

/// The functions that were counted or off, and how much more it took to record a call, and to count one, than in the loop in
/// which that is measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    pub factors: [f64; 2],
    pub untimed: Vec<Untimed>,
}

/// A function that was counted or off.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Untimed {
    /// The identity of its file, and its address there.
    pub file: String,
    pub address: u64,
    pub is_off: bool,
    /// The cost of its recording, as a part of the processor time that the program uses without.
    pub share: f64,
    /// The worth of a recorded call, in nanoseconds.
    pub worth: f64,
    /// The number of times that it was recorded again in vain.
    pub failed: u32,
}

impl Untimed {
    fn is_possible(&self) -> bool {
        let is_time = |value: f64| value.is_finite() && value >= 0.0;
        is_time(self.share) && is_time(self.worth)
    }
}

/// The profile that is kept. `program` is the identity of its file. None if nothing is kept, or if it is
/// damaged, of another version, or if others could have written it.
pub fn kept_profile(cache_dir: &Path, program: &str) -> Option<Profile> {
    read(&path(cache_dir, program)).ok()
}

fn path(cache_dir: &Path, program: &str) -> PathBuf {
    cache_dir.join(format!("{program}.budget"))
}

fn read(path: &Path) -> Result<Profile> {
    let (file, _) = cache::open_ours(path)?;
    let mut bytes = Vec::new();
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    ensure!(bytes.len() as u64 <= MOST_BYTES, "longer than it can be");
    let (header, rest) = bytes
        .split_at_checked(HEADER)
        .context("shorter than its header")?;
    ensure!(
        header == self::header(rest),
        "damaged, or of another version"
    );
    let kept: Profile = postcard::from_bytes(rest)?;
    let (factors, untimed) = (&kept.factors, &kept.untimed);
    let is_possible = factors.iter().all(|factor| factor.is_finite())
        && untimed.len() <= MOST_FUNCTIONS
        && untimed.iter().all(Untimed::is_possible);
    ensure!(is_possible, "values that are not possible");
    Ok(kept)
}

/// Keeps a profile in place of the kept one.
pub fn keep_profile(cache_dir: &Path, program: &str, mut profile: Profile) -> Result<()> {
    profile.untimed.truncate(MOST_FUNCTIONS);
    let rest = postcard::to_stdvec(&profile)?;
    ensure!(
        (HEADER + rest.len()) as u64 <= MOST_BYTES,
        "too many functions"
    );
    let mut file = cache::new_in(cache_dir)?;
    file.write_all(&header(&rest))?;
    file.write_all(&rest)?;
    file.persist(path(cache_dir, program))?;
    Ok(())
}

fn header(rest: &[u8]) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(VERSION);
    header[8..].copy_from_slice(&xxh3_64(rest).to_le_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    fn function(address: u64) -> Untimed {
        Untimed {
            file: "ab12".into(),
            address,
            is_off: address > 0x1000,
            share: 0.25,
            worth: 70.0,
            failed: 2,
        }
    }

    fn profile(untimed: &[u64]) -> Profile {
        Profile {
            factors: [1.5, 40.0],
            untimed: untimed.iter().map(|address| function(*address)).collect(),
        }
    }

    #[test]
    fn what_was_untimed_is_kept_and_private() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("plans");
        assert_eq!(kept_profile(&directory, "p"), None);
        let off = profile(&[0x1000, 0x2000]);
        keep_profile(&directory, "p", off.clone()).unwrap();
        assert_eq!(kept_profile(&directory, "p").unwrap(), off);
        assert_eq!(kept_profile(&directory, "q"), None);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(
            (mode(&directory), mode(&path(&directory, "p"))),
            (0o700, 0o600)
        );
        keep_profile(&directory, "p", profile(&[])).unwrap();
        assert_eq!(kept_profile(&directory, "p").unwrap(), profile(&[]));
    }

    #[test]
    fn what_is_damaged_impossible_or_of_others_is_not_taken() {
        let place = tempfile::tempdir().unwrap();
        let (directory, path) = (place.path(), path(place.path(), "p"));
        keep_profile(directory, "p", profile(&[0x1000])).unwrap();
        let good = fs::read(&path).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            fs::write(&path, bad).unwrap();
            assert_eq!(kept_profile(directory, "p"), None, "byte {at}");
            fs::write(&path, &good[..at]).unwrap();
            assert_eq!(kept_profile(directory, "p"), None, "cut at {at}");
        }
        let hostile = |rest: &[u8]| {
            fs::write(&path, [&header(rest)[..], rest].concat()).unwrap();
            assert_eq!(kept_profile(directory, "p"), None);
        };
        // As many functions as there can be, of which none is there.
        hostile(&[&[0; 16][..], &[0xff, 0xff, 0xff, 0xff, 0x0f]].concat());
        for (share, worth) in [(f64::NAN, 1.0), (-1.0, 1.0), (1.0, f64::INFINITY)] {
            let one = Untimed {
                share,
                worth,
                ..function(0)
            };
            let mut hostile_one = profile(&[]);
            hostile_one.untimed.push(one);
            hostile(&postcard::to_stdvec(&hostile_one).unwrap());
        }
        let factors = [1.0, f64::INFINITY];
        let untimed = Vec::new();
        hostile(&postcard::to_stdvec(&Profile { factors, untimed }).unwrap());
        hostile(&vec![0; MOST_BYTES as usize]);
        fs::write(&path, &good).unwrap();
        assert!(kept_profile(directory, "p").is_some());
        fs::set_permissions(&path, Permissions::from_mode(0o622)).unwrap();
        assert_eq!(kept_profile(directory, "p"), None, "others may write it");
        fs::rename(&path, directory.join("other")).unwrap();
        std::os::unix::fs::symlink(directory.join("other"), &path).unwrap();
        assert_eq!(kept_profile(directory, "p"), None, "a symbolic link");
    }
}
