//! The memory that the control groups of a process leave it, as those of a container do. The kernel ends a process of a
//! group that has used it up: nopal takes a small part of it, or refuses the process.

use crate::members;
use anyhow::{Result, ensure};
use nopal_analysis::text::bytes;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The older kind of groups has a limit near this where there is none.
const UNLIMITED: u64 = 1 << 60;

/// The bytes of all buffers of this process's sessions that limited groups have to bear. Buffers add themselves, and take
/// themselves out.
static PROMISED: AtomicU64 = AtomicU64::new(0);

/// The bytes of a buffer that its processes may use.
#[derive(Debug)]
pub struct Promise(u64);

impl Promise {
    pub fn of(bytes: u64) -> Promise {
        PROMISED.fetch_add(bytes, Ordering::Relaxed);
        Promise(bytes)
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        PROMISED.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// Where the control groups are that limit memory.
static ROOTS: LazyLock<Vec<PathBuf>> = LazyLock::new(|| {
    let mut roots = members::roots();
    roots.retain(|root| {
        let controllers = fs::read_to_string(root.join("cgroup.controllers"));
        controllers.is_ok_and(|all| all.split_whitespace().any(|one| one == "memory"))
            || root.join("memory.limit_in_bytes").exists()
    });
    roots
});

/// The bytes that a process's groups leave it.
#[derive(Clone, Copy, Debug)]
pub struct Left(u64);

impl Left {
    /// `None`: no group limits its memory.
    pub fn of(process: i32) -> Option<Left> {
        let groups = fs::read_to_string(format!("/proc/{process}/cgroup")).ok()?;
        least_left(&ROOTS, &groups).map(Left)
    }

    /// The most bytes of a buffer that the process gets: all buffers together take no more than a quarter of what is left,
    /// and one no more than half of what is then left of that.
    pub fn most_for_buffer(self) -> u64 {
        (self.0 / 4).saturating_sub(PROMISED.load(Ordering::Relaxed)) / 2
    }

    /// An error if less is left than twice what the process needs, in bytes, beside the buffers.
    pub fn ensure(self, needed: u64) -> Result<()> {
        let left = self.0.saturating_sub(PROMISED.load(Ordering::Relaxed));
        ensure!(
            left / 2 >= needed,
            "the limit of its control group leaves {} of memory, of which nopal takes no more than half, and it may need {}: raise the limit, or choose fewer functions (-F)",
            bytes(left),
            bytes(needed)
        );
        Ok(())
    }
}

/// Bytes that a process may still use before the kernel ends one of its group's, or `None` if that is not limited.
///
/// `groups`: as `/proc/PID/cgroup` has them. In a container, their paths may not be those below the roots, which are
/// then the container's groups.
fn least_left(roots: &[PathBuf], groups: &str) -> Option<u64> {
    let paths = members::paths_with(groups, "memory");
    let with_those_above = paths.flat_map(|path| Path::new(path).ancestors());
    with_those_above
        .flat_map(|path| {
            roots
                .iter()
                .filter_map(move |root| left_in(&root.join(path)))
        })
        .min()
}

fn left_in(group: &Path) -> Option<u64> {
    let number = |file: &str| -> Option<u64> {
        let text = fs::read_to_string(group.join(file)).ok()?;
        text.trim().parse().ok()
    };
    let limits = ["memory.max", "memory.high", "memory.limit_in_bytes"].map(number);
    let limit = limits.into_iter().flatten().min()?;
    if limit >= UNLIMITED {
        return None;
    }
    let used = number("memory.current").or_else(|| number("memory.usage_in_bytes"))?;
    let statistics = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    // The kernel takes these back before it ends a process. The older kind of groups has them with those below, too.
    let cached = statistics.lines().filter_map(|line| {
        let (name, bytes) = line.split_once(' ')?;
        let is_cache = ["inactive_file", "total_inactive_file"].contains(&name);
        bytes.parse::<u64>().ok().filter(|_| is_cache)
    });
    let needed = used.saturating_sub(cached.max().unwrap_or(0));
    Some(limit.saturating_sub(needed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(path: &Path, files: &[(&str, &str)]) {
        fs::create_dir_all(path).unwrap();
        for (file, text) in files {
            fs::write(path.join(file), text).unwrap();
        }
    }

    #[test]
    fn the_least_of_all_groups_above_is_left() {
        let root = tempfile::tempdir().unwrap();
        let roots = [root.path().to_owned()];
        let outer = root.path().join("kubepods");
        group(root.path(), &[]);
        let cached = "anon 5\ninactive_file 30\n";
        let files = [
            ("memory.max", "1000\n"),
            ("memory.current", "900\n"),
            ("memory.stat", cached),
        ];
        group(&outer, &files);
        group(
            &outer.join("pod"),
            &[("memory.max", "max\n"), ("memory.current", "8\n")],
        );
        assert_eq!(least_left(&roots, "0::/kubepods/pod\n"), Some(130));
        group(&outer.join("pod"), &[("memory.high", "100\n")]);
        assert_eq!(least_left(&roots, "0::/kubepods/pod\n"), Some(92));
        assert_eq!(least_left(&roots, "0::/\n"), None);
    }

    #[test]
    fn the_older_kind_has_a_tree_of_its_own_and_a_container_sees_its_own_group_as_root() {
        let root = tempfile::tempdir().unwrap();
        let roots = [root.path().to_owned()];
        let files = [
            ("memory.limit_in_bytes", "500\n"),
            ("memory.usage_in_bytes", "60\n"),
        ];
        group(root.path(), &files);
        let groups = "5:cpu,cpuacct:/docker/4f\n4:memory:/docker/4f\n";
        assert_eq!(least_left(&roots, groups), Some(440));
        assert_eq!(least_left(&roots, "5:cpu,cpuacct:/\n"), None);
        fs::write(
            root.path().join("memory.limit_in_bytes"),
            "9223372036854771712\n",
        )
        .unwrap();
        assert_eq!(least_left(&roots, groups), None);
    }
}
