//! One event of perf, as a descriptor.

use anyhow::{Context, Result};
use perf_event_open_sys as sys;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use sys::bindings::*;
use zerocopy::IntoBytes;

/// Further fields of each record, in this order: thread, and time.
pub const SAMPLE: u64 = (PERF_SAMPLE_TID | PERF_SAMPLE_TIME) as u64;

pub struct Descriptor(OwnedFd);

impl Descriptor {
    /// A tracepoint on a processor.
    pub fn tracepoint(id: u64, processor: u32) -> Result<Descriptor> {
        let mut attributes = attributes();
        attributes.type_ = PERF_TYPE_TRACEPOINT;
        attributes.config = id;
        attributes.__bindgen_anon_1.sample_period = 1;
        attributes.sample_type = SAMPLE | u64::from(PERF_SAMPLE_RAW);
        open(attributes, -1, processor)
    }

    /// Context switches of a thread and its descendants.
    pub fn switches(thread: i32, processor: u32) -> Result<Descriptor> {
        let mut attributes = attributes();
        attributes.type_ = PERF_TYPE_SOFTWARE;
        attributes.config = u64::from(PERF_COUNT_SW_DUMMY);
        attributes.sample_type = SAMPLE;
        attributes.set_context_switch(1);
        attributes.set_inherit(1);
        // Some users may only look at the user's own part.
        attributes.set_exclude_kernel(1);
        attributes.set_exclude_hv(1);
        open(attributes, thread, processor)
    }

    /// The places at which a processor runs, so many times a second, once it is enabled. Its records have other fields:
    /// address, and thread.
    pub fn positions(hertz: u64, processor: u32) -> Result<Descriptor> {
        let mut attributes = attributes();
        attributes.type_ = PERF_TYPE_SOFTWARE;
        attributes.config = u64::from(PERF_COUNT_SW_CPU_CLOCK);
        attributes.__bindgen_anon_1.sample_period = 1_000_000_000 / hertz;
        attributes.sample_type = (PERF_SAMPLE_IP | PERF_SAMPLE_TID).into();
        attributes.set_disabled(1);
        attributes.set_exclude_idle(1);
        open(attributes, -1, processor)
    }

    /// Redirects its records into the ring of another event of the same processor.
    pub fn write_to(&self, other: &Descriptor) -> Result<()> {
        // SAFETY: both descriptors are events of ours.
        let done = unsafe { sys::ioctls::SET_OUTPUT(self.0.as_raw_fd(), other.0.as_raw_fd()) };
        match done {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()).context("an event of perf refuses its ring"),
        }
    }

    pub fn enable(&self) {
        // SAFETY: the descriptor is an event of ours.
        unsafe { sys::ioctls::ENABLE(self.0.as_raw_fd(), 0) };
    }

    pub fn disable(&self) {
        // SAFETY: the descriptor is an event of ours.
        unsafe { sys::ioctls::DISABLE(self.0.as_raw_fd(), 0) };
    }

    /// The number of records that did not fit its ring, if the kernel counts them (since Linux 6.0).
    pub fn lost(&self) -> u64 {
        // The event's value, and its lost records.
        let mut values = [0u64; 2];
        match rustix::io::read(&self.0, values.as_mut_bytes()) {
            Ok(16) => values[1],
            _ => 0,
        }
    }
}

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

fn attributes() -> perf_event_attr {
    let mut attributes = perf_event_attr {
        size: size_of::<perf_event_attr>() as u32,
        read_format: u64::from(PERF_FORMAT_LOST),
        clockid: libc::CLOCK_MONOTONIC,
        ..perf_event_attr::default()
    };
    attributes.set_use_clockid(1);
    attributes.set_sample_id_all(1);
    attributes
}

fn open(attributes: perf_event_attr, thread: i32, processor: u32) -> Result<Descriptor> {
    let call = |mut attributes: perf_event_attr| {
        let flags = u64::from(PERF_FLAG_FD_CLOEXEC);
        // SAFETY: a whole structure of the size that it says.
        let descriptor =
            unsafe { sys::perf_event_open(&mut attributes, thread, processor as i32, -1, flags) };
        match descriptor {
            0.. => Ok(descriptor),
            _ => Err(io::Error::last_os_error()),
        }
    };
    let opened = call(attributes).or_else(|error| match error.raw_os_error() {
        // An older kernel does not count losses for each event.
        Some(libc::EINVAL) => call(perf_event_attr {
            read_format: 0,
            ..attributes
        }),
        _ => Err(error),
    });
    let descriptor = opened.context("perf_event_open")?;
    // SAFETY: new, and ours.
    Ok(Descriptor(unsafe { OwnedFd::from_raw_fd(descriptor) }))
}
