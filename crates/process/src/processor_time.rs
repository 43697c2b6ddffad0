//! The processor time of a process.

use crate::information::stat_fields;
use std::time::Duration;

/// The processor time of all threads of a process so far, of those that have ended too, and of the children that it has
/// waited for. `None`: it is gone.
pub fn processor_time(pid: i32) -> Option<Duration> {
    Some(clock(pid)? + waited_for(pid).unwrap_or_default())
}

fn clock(pid: i32) -> Option<Duration> {
    let mut id = 0;
    // SAFETY: the function writes the id, and nothing else.
    if unsafe { libc::clock_getcpuclockid(pid, &raw mut id) } != 0 {
        return None;
    }
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes the time, and nothing else.
    if unsafe { libc::clock_gettime(id, &raw mut time) } != 0 {
        return None;
    }
    Some(Duration::new(
        u64::try_from(time.tv_sec).ok()?,
        u32::try_from(time.tv_nsec).ok()?,
    ))
}

/// The time of the children that were waited for, to a clock tick.
fn waited_for(pid: i32) -> Option<Duration> {
    let fields = stat_fields(&format!("/proc/{pid}/stat")).ok()?;
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let ticks = field(16)?.checked_add(field(17)?)?;
    let per_second = rustix::param::clock_ticks_per_second();
    Some(Duration::from_millis(
        ticks.checked_mul(1000)? / per_second.max(1),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_used_what_its_threads_and_children_have() {
        let own = std::process::id() as i32;
        let before = processor_time(own).unwrap();
        let spin = move || {
            let begun = processor_time(own).unwrap();
            while processor_time(own).unwrap() < begun + Duration::from_millis(5) {}
        };
        std::thread::spawn(spin).join().unwrap();
        let after = processor_time(own).unwrap();
        assert!(after >= before + Duration::from_millis(5), "{after:?}");
        let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        let mut child = std::process::Command::new("sh")
            .args(["-c", script])
            .spawn()
            .unwrap();
        let pid = child.id() as i32;
        assert!(processor_time(pid).is_some());
        child.wait().unwrap();
        assert!(waited_for(own).unwrap() > Duration::ZERO);
        assert_eq!(processor_time(pid), None);
    }
}
