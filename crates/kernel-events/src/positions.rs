//! Samples of the places at which the processors run.

use crate::event::Descriptor;
use crate::ring::Ring;
use anyhow::Result;
use perf_event_open_sys::bindings::PERF_RECORD_SAMPLE;

/// A place at which a processor ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// By the PID namespace of this process; 0 for a processor that does nothing.
    pub process: u32,
    pub address: u64,
}

/// Samples of all processors, until it is dropped.
pub struct Positions(Vec<(Descriptor, Ring)>);

impl Positions {
    /// Begins, paused: `hertz` samples a second of each processor. Needs root or CAP_PERFMON.
    pub fn open(hertz: u64) -> Result<Positions> {
        let numbers = crate::online()?;
        let opened = numbers.into_iter().map(|number| {
            let event = Descriptor::positions(hertz, number)?;
            let ring = Ring::map(&event, 1)?;
            Ok((event, ring))
        });
        Ok(Positions(opened.collect::<Result<_>>()?))
    }

    pub fn go_on(&self) {
        self.0.iter().for_each(|(event, _)| event.enable());
    }

    pub fn pause(&self) {
        self.0.iter().for_each(|(event, _)| event.disable());
    }

    /// Passes on the samples since the last time: of each processor the last 170, if it is not read more often.
    pub fn read(&mut self, mut take: impl FnMut(Position)) {
        for (_, ring) in &mut self.0 {
            let head = ring.head();
            ring.read(head, |record| {
                let is_sample = record.kind == PERF_RECORD_SAMPLE;
                if let Some(position) = position(record.body).filter(|_| is_sample) {
                    take(position);
                }
            });
        }
    }
}

/// The address, the process and the thread.
fn position(body: &[u8]) -> Option<Position> {
    let (address, who) = body.split_first_chunk()?;
    let process = who.first_chunk()?;
    Some(Position {
        process: u32::from_le_bytes(*process),
        address: u64::from_le_bytes(*address),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn a_sample_has_an_address_and_a_process() {
        let body = [7u64, 3 | 4 << 32].map(u64::to_le_bytes).concat();
        let sample = Position {
            process: 3,
            address: 7,
        };
        assert_eq!(position(&body), Some(sample));
        assert_eq!(position(&body[..11]), None);
    }

    #[test]
    fn samples_tell_where_this_process_runs() {
        // Only some may look at all processors.
        let Ok(mut positions) = Positions::open(1000) else {
            let may = rustix::process::geteuid().is_root();
            assert!(!may, "root may not take samples");
            return;
        };
        let own = |positions: &mut Positions| {
            let mut own = 0;
            positions.read(|one| own += u32::from(one.process == std::process::id()));
            own
        };
        let work = || {
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_millis(200) {
                std::hint::black_box(0);
            }
        };
        work();
        assert_eq!(own(&mut positions), 0, "it is paused");
        positions.go_on();
        work();
        assert!(own(&mut positions) > 0);
        positions.pause();
        own(&mut positions);
        work();
        assert_eq!(own(&mut positions), 0, "it is paused again");
    }
}
