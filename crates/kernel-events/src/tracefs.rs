//! Finds tracefs: mounted by the system, or in a detached mount of this process.

use anyhow::{Context, Result};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The usual mount points.
const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// The directory of tracefs. If it is not mounted, root makes a detached mount: no other process sees it, and it ends
/// with its descriptor, which stays open as long as this process.
pub fn tracing() -> Result<&'static Path> {
    // Without permission to list it, its files show that it is there.
    let is_there = |place: &&Path| {
        let looked = fs::metadata(place.join("events"));
        !looked.is_err_and(|error| error.kind() == ErrorKind::NotFound)
    };
    if let Some(place) = PLACES.into_iter().map(Path::new).find(is_there) {
        return Ok(place);
    }
    static DETACHED: OnceLock<(OwnedFd, PathBuf)> = OnceLock::new();
    if let Some((_, place)) = DETACHED.get() {
        return Ok(place);
    }
    let [usual, _] = PLACES;
    let mount = detached_mount().with_context(|| match fs::metadata(usual) {
        Ok(_) => format!("tracefs is not mounted at {usual}, and only root can use it unmounted"),
        Err(_) => "this kernel has no tracefs".to_owned(),
    })?;
    let place = PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()));
    Ok(&DETACHED.get_or_init(|| (mount, place)).1)
}

/// Needs CAP_SYS_ADMIN.
fn detached_mount() -> io::Result<OwnedFd> {
    let tracefs = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&tracefs)?;
    let nothing_runs = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    Ok(fsmount(
        &tracefs,
        FsMountFlags::FSMOUNT_CLOEXEC,
        nothing_runs,
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_detached_mount_is_no_part_of_the_tree() {
        let mounts = || fs::read_to_string("/proc/self/mounts").unwrap();
        let before = mounts();
        match detached_mount() {
            Ok(mount) => {
                let events = format!("/proc/self/fd/{}/events/sched", mount.as_raw_fd());
                assert!(Path::new(&events).is_dir());
            }
            // As a user, or in a container.
            Err(error) => assert_eq!(error.kind(), ErrorKind::PermissionDenied),
        }
        assert_eq!(mounts(), before);
    }
}
