//! The events of all threads, in order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use nopal_abi::Cursor;
use nopal_trace::{Packet, ThreadInfo};

use crate::calls::{CallRebuilder, Sink};
use crate::filter::Filter;
use crate::range::Start;
use crate::sort;

/// A sink that makes events of calls.
pub trait EventSource: Sink {
    type Moment;
    /// Takes the oldest event, with its clock.
    fn take(&mut self) -> Option<(u64, Self::Moment)>;
    /// The thread's records have ended, and their last clock.
    fn finish(&mut self, _clock: u64) {}
}

/// The events of one thread, in order of time. Reads no more records than the next event needs.
pub struct ThreadEvents<'a, T> {
    packets: std::vec::IntoIter<Packet<'a>>,
    packet: Option<Packet<'a>>,
    records: Cursor<'a>,
    rebuilder: CallRebuilder,
    source: T,
    alive_until: u64,
    ended: bool,
}

impl<'a, T: EventSource> ThreadEvents<'a, T> {
    pub fn new(packets: impl Iterator<Item = Packet<'a>>, source: T) -> ThreadEvents<'a, T> {
        ThreadEvents {
            packets: packets.collect::<Vec<_>>().into_iter(),
            packet: None,
            records: Cursor::default(),
            rebuilder: CallRebuilder::default(),
            source,
            alive_until: 0,
            ended: false,
        }
    }
}

impl<'a, T: EventSource> ThreadEvents<'a, T> {
    /// The events of a thread from the begin of a filter's time on, or from shortly before.
    pub fn selected(
        thread: &ThreadInfo<'a>,
        filter: &Filter,
        mut source: T,
    ) -> ThreadEvents<'a, T> {
        let start = Start::before(filter.from, thread, filter.checkpoints_of(thread));
        let packets = thread.packets_in(start.packet..usize::MAX);
        let rebuilder = start.reopen(&mut source);
        ThreadEvents {
            rebuilder,
            alive_until: thread.alive_until,
            ..ThreadEvents::new(packets, source)
        }
    }
}

impl<T: EventSource> Iterator for ThreadEvents<'_, T> {
    type Item = (u64, T::Moment);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(moment) = self.source.take() {
                return Some(moment);
            }
            if self.source.takes_runs() {
                self.rebuilder.run(&mut self.records, &mut self.source);
            }
            if self.rebuilder.step(&mut self.records, &mut self.source) {
                continue;
            }
            if let Some(read) = self.packet.take() {
                read.release();
            }
            self.packet = self.packets.next();
            match &self.packet {
                Some(packet) => {
                    self.records = self.rebuilder.begin_packet(packet, &mut self.source)
                }
                None if self.ended => return None,
                None => {
                    self.ended = true;
                    self.rebuilder.end(self.alive_until, &mut self.source);
                    self.source.finish(self.rebuilder.clock());
                }
            }
        }
    }
}

/// Merges threads by time. A thread is opened when its first event is due, so threads that have ended or not begun cost
/// nothing.
pub struct Timeline<'a, I: Iterator, F> {
    unopened: std::iter::Peekable<std::vec::IntoIter<(u64, usize, ThreadInfo<'a>)>>,
    open: F,
    heads: BinaryHeap<Reverse<Head<I>>>,
}

struct Head<I: Iterator> {
    clock: u64,
    stream: usize,
    moment: I::Item,
    rest: I,
}

impl<I: Iterator> PartialEq for Head<I> {
    fn eq(&self, other: &Self) -> bool {
        (self.clock, self.stream) == (other.clock, other.stream)
    }
}

impl<I: Iterator> Eq for Head<I> {}

impl<I: Iterator> PartialOrd for Head<I> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<I: Iterator> Ord for Head<I> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.clock, self.stream).cmp(&(other.clock, other.stream))
    }
}

/// `open` gives the moments of one of `threads`.
pub fn timeline<'a, M, I, F>(threads: &[ThreadInfo<'a>], open: F) -> Timeline<'a, I, F>
where
    I: Iterator<Item = (u64, M)>,
    F: FnMut(usize, &ThreadInfo<'a>) -> I,
{
    let begin = |thread: &ThreadInfo| {
        thread
            .packets()
            .next()
            .map_or(0, |packet| packet.clock_begin())
    };
    let mut unopened: Vec<_> = threads
        .iter()
        .enumerate()
        .map(|(at, thread)| (begin(thread), at, *thread))
        .collect();
    sort::by_key(&mut unopened, |&(begin, at, _)| (begin, at));
    Timeline {
        unopened: unopened.into_iter().peekable(),
        open,
        heads: BinaryHeap::new(),
    }
}

impl<'a, M, I, F> Iterator for Timeline<'a, I, F>
where
    I: Iterator<Item = (u64, M)>,
    F: FnMut(usize, &ThreadInfo<'a>) -> I,
{
    /// The thread's place among all, the clock, and the moment.
    type Item = (usize, u64, M);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let now = self.heads.peek().map(|Reverse(head)| head.clock);
            let begun = self
                .unopened
                .next_if(|&(begin, ..)| now.is_none_or(|now| begin <= now));
            let Some((_, stream, thread)) = begun else {
                break;
            };
            let rest = (self.open)(stream, &thread);
            self.push(stream, rest);
        }
        let Reverse(Head {
            clock,
            stream,
            moment: (_, moment),
            rest,
        }) = self.heads.pop()?;
        self.push(stream, rest);
        Some((stream, clock, moment))
    }
}

impl<M, I: Iterator<Item = (u64, M)>, F> Timeline<'_, I, F> {
    fn push(&mut self, stream: usize, mut rest: I) {
        if let Some(moment) = rest.next() {
            self.heads.push(Reverse(Head {
                clock: moment.0,
                stream,
                moment,
                rest,
            }));
        }
    }
}
