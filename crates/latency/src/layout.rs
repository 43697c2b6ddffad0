//! The structures and functions of `runtime/core/latency.h` and `histogram.h`, which assert the same sizes.

use std::ffi::c_char;

use crate::Histogram;

pub const CASES_OPEN: usize = 1024;
const CASES_KEPT: usize = 8;
pub const BUCKETS: usize = (64 - 5 + 1) << 5;

#[repr(C)]
pub struct RawTracer {
    pub name: *const c_char,
    pub begins: u32,
    pub ends: u32,
    pub key: u32,
    pub nesting: u32,
    pub most_urgent: bool,
}

#[repr(C)]
pub struct RawEvent {
    pub event: u32,
    pub processor: u32,
    pub thread: u32,
    pub rank: u32,
    pub value: u64,
    pub clock: u64,
    pub position: u64,
}

#[repr(C)]
#[derive(Default)]
pub struct RawCase {
    pub key: u64,
    pub begin: u64,
    pub end: u64,
    begin_position: u64,
    end_position: u64,
    pub begin_thread: u32,
    pub end_thread: u32,
    pub begin_processor: u32,
    pub end_processor: u32,
    age: u32,
}

#[repr(C)]
struct RawOpenCase([u64; 6]);

#[repr(C)]
pub struct RawLatency {
    pub tracer: *const RawTracer,
    pub threshold: u64,
    pub timeout: u64,
    age: u32,
    pub begins_lost: u64,
    pub ends_alone: u64,
    pub never_ended: u64,
    pub clock_went_back: u64,
    most_urgent: u64,
    open: [RawOpenCase; CASES_OPEN],
}

#[repr(C)]
struct RawKeptCase {
    ticket: u64,
    worst: RawCase,
}

#[repr(C)]
pub struct RawOwn {
    pub histogram: Histogram,
    worst: u64,
    tickets: u64,
    kept: [RawKeptCase; CASES_KEPT],
}

const _: () = assert!(
    size_of::<RawTracer>() == 32
        && size_of::<RawEvent>() == 40
        && size_of::<RawCase>() == 64
        && size_of::<RawLatency>() == 49224
        && size_of::<RawOwn>() == 15952,
    "as in the core"
);

unsafe extern "C" {
    pub fn nopal_latency_event(
        latency: *mut RawLatency,
        own: *mut RawOwn,
        event: *const RawEvent,
        ended: *mut RawCase,
    ) -> u32;
    pub fn nopal_latency_worst(
        latency: *const RawLatency,
        own: *const RawOwn,
        worst: *mut RawCase,
    ) -> bool;
    pub fn nopal_latency_reset(latency: *mut RawLatency);
    pub fn nopal_latency_expire(
        latency: *mut RawLatency,
        clock: u64,
        given_up: *mut RawCase,
    ) -> bool;
    pub fn nopal_histogram_low(bucket: u32) -> u64;
    pub fn nopal_histogram_high(bucket: u32) -> u64;
    pub fn nopal_histogram_merge(sum: *mut Histogram, one: *const Histogram);
    pub fn nopal_histogram_count(histogram: *const Histogram) -> u64;
}
