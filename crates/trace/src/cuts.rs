//! Cuts the packets of threads where notes tell of a change: calls were unwrapped, or recording was stopped or started.

use crate::nesting::Parts;
use crate::note::Note;
use crate::packet::PacketId;
use crate::stream_file::StreamFile;
use std::collections::HashMap;

/// Moments in which a process's calls were unwrapped; the tool gives up before it needs as many.
const MOST_UNWRAPPINGS: usize = 64;

/// The times, in order, in which nothing but the exits of calls that had begun before was recorded. The last may have no
/// end. Notes that do not follow from those before them are passed over.
pub(crate) fn stops(notes: &[Note]) -> Vec<(u64, Option<u64>)> {
    let mut stops: Vec<(u64, Option<u64>)> = Vec::new();
    for note in notes {
        match (note, stops.last_mut()) {
            (Note::Started { counter }, Some((from, until @ None))) => {
                *until = Some((*counter).max(*from));
            }
            (Note::Stopped { counter }, None) => stops.push((*counter, None)),
            (Note::Stopped { counter }, Some((_, Some(until)))) => {
                let from = (*counter).max(*until);
                stops.push((from, None));
            }
            _ => {}
        }
    }
    stops
}

pub(crate) struct Cuts {
    /// Clocks by process.
    unwrapped: HashMap<u32, Vec<u64>>,
    stops: Vec<(u64, u64)>,
    /// The clocks of these.
    bounds: Vec<u64>,
}

impl Cuts {
    /// `None`: there is nothing to cut.
    pub fn of(notes: &[Note]) -> Option<Cuts> {
        let mut unwrapped: HashMap<u32, Vec<u64>> = HashMap::new();
        for note in notes {
            if let Note::Unwrapped { process, counter } = note {
                let clocks = unwrapped.entry(*process).or_default();
                if clocks.len() < MOST_UNWRAPPINGS {
                    clocks.push(*counter);
                }
            }
        }
        let stops = stops(notes).into_iter();
        let stops: Vec<(u64, u64)> = stops
            .map(|(from, until)| (from, until.unwrap_or(u64::MAX)))
            .collect();
        let bounds = stops.iter().flat_map(|(from, until)| [*from, *until]);
        let bounds = bounds.collect();
        (!unwrapped.is_empty() || !stops.is_empty()).then_some(Cuts {
            unwrapped,
            stops,
            bounds,
        })
    }

    /// Cuts the packets of a thread, which are in order of time.
    pub fn cut(&self, process: u32, packets: &[PacketId], streams: &[StreamFile]) -> Vec<PacketId> {
        let unwrapped = self.unwrapped.get(&process).map_or(&[][..], Vec::as_slice);
        let mut parts = Vec::with_capacity(packets.len());
        for packet in packets {
            let mut clocks = self.within(unwrapped, packet);
            if clocks.is_empty() {
                parts.push(*packet);
                continue;
            }
            clocks.sort_unstable();
            let mut rest = Parts::new(streams, vec![*packet]);
            for clock in clocks {
                if rest.clock().is_some_and(|next| next < clock) {
                    parts.extend(rest.cut(clock));
                }
            }
            parts.extend(rest.cut(u64::MAX));
        }
        let mut end = 0;
        for part in &mut parts {
            let begin = part.clock_begin;
            part.is_behind_unwrapping = unwrapped
                .iter()
                .any(|clock| (end..=begin).contains(clock) && *clock > end);
            part.stopped_before = match end {
                0 => 0,
                end => self.stopped(end, begin),
            };
            part.is_stopped = self.is_stopped(begin);
            end = part.clock_end;
        }
        parts
    }

    /// The clocks that distinguish a packet's records.
    fn within(&self, unwrapped: &[u64], packet: &PacketId) -> Vec<u64> {
        let (begin, end) = (packet.clock_begin, packet.clock_end);
        let first = self.bounds.partition_point(|clock| *clock <= begin);
        let last = self.bounds.partition_point(|clock| *clock <= end);
        let bounds = self.bounds.get(first..last).unwrap_or_default().iter();
        let unwrapped = unwrapped.iter();
        let unwrapped = unwrapped.filter(|clock| begin < **clock && **clock <= end);
        bounds.chain(unwrapped).copied().collect()
    }

    /// The part of the time between two clocks in which recording was stopped.
    fn stopped(&self, begin: u64, end: u64) -> u64 {
        let first = self.stops.partition_point(|(_, until)| *until <= begin);
        let stops = self.stops[first..].iter();
        let within = stops.take_while(|(from, _)| *from < end);
        let ticks = within.map(|(from, until)| end.min(*until) - begin.max(*from));
        ticks.fold(0, u64::saturating_add)
    }

    fn is_stopped(&self, clock: u64) -> bool {
        let next = self.stops.partition_point(|(_, until)| *until <= clock);
        self.stops.get(next).is_some_and(|(from, _)| *from <= clock)
    }
}
