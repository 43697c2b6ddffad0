//! The events that the kernel permits this process to record, found by trying.

use crate::event::Descriptor;
use crate::kinds::Kinds;
use crate::tracepoint::Tracepoints;
use anyhow::Error;
use std::fs;
use std::io::ErrorKind;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// Switches and wake-ups of all tasks.
    Everything,
    /// Switches of one's own threads only, and why.
    Own(String),
    /// Nothing, and why.
    Nothing(String),
}

/// Opens events, and closes them at once.
pub fn allowed() -> Allowed {
    let all = Tracepoints::read(Kinds::ALL).and_then(|tracepoints| {
        let mut ids = tracepoints.ids();
        ids.try_for_each(|id| Descriptor::tracepoint(id, 0).map(drop))
    });
    let Err(error) = all else {
        return Allowed::Everything;
    };
    let own = Descriptor::switches(std::process::id() as i32, 0);
    let why = |error: &Error, everything: bool| reason(error, paranoid(), everything);
    match own {
        Ok(_) => Allowed::Own(why(&error, true)),
        Err(own) => Allowed::Nothing(why(&own, false)),
    }
}

fn paranoid() -> Option<i32> {
    let text = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok()?;
    text.trim().parse().ok()
}

/// Explains a failure and its remedy.
fn reason(error: &Error, paranoid: Option<i32>, everything: bool) -> String {
    let forbidden = error.chain().any(|cause| {
        let cause = cause.downcast_ref::<std::io::Error>();
        cause.is_some_and(|cause| cause.kind() == ErrorKind::PermissionDenied)
    });
    let setting = paranoid.map_or(String::new(), |value| {
        format!("; kernel.perf_event_paranoid is {value}")
    });
    match (forbidden, everything) {
        (false, _) => format!("{error:#}"),
        (true, true) => format!(
            "{error:#}{setting}; run nopal as root, or give it CAP_PERFMON (setcap cap_perfmon+ep) and let it read \
             /sys/kernel/tracing (tracefs, mounted with mode=755)"
        ),
        (true, false) => format!(
            "{error:#}{setting}; as root, sysctl kernel.perf_event_paranoid=2 allows events of one's own threads; in a container, the seccomp profile must permit perf_event_open"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn what_is_forbidden_says_how_to_allow_it() {
        let forbidden = || Err::<(), _>(std::io::Error::from_raw_os_error(libc::EACCES));
        let error = forbidden().context("sched_switch").unwrap_err();
        let all = reason(&error, Some(2), true);
        for word in ["sched_switch", "is 2", "CAP_PERFMON", "/sys/kernel/tracing"] {
            assert!(all.contains(word), "{all}");
        }
        let own = reason(&error, Some(3), false);
        assert!(
            own.contains("is 3") && own.contains("perf_event_paranoid=2"),
            "{own}"
        );
        let missing = Err::<(), _>(std::io::Error::from_raw_os_error(libc::ENOENT));
        let error = missing.context("sched_switch").unwrap_err();
        assert!(!reason(&error, Some(2), true).contains("CAP_PERFMON"));
    }
}
