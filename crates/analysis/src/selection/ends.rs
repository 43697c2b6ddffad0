//! The calls of a thread that are open where a time begins and where it ends.

use anyhow::Result;
use nopal_abi::{Cursor, Event, Style};
use nopal_trace::{Aside, Note, OpenCall, Packet, Place, ThreadInfo, ThreadKey, Trace};

use crate::calls::{CallRebuilder, Ending, Fiber, Frame, Past, Sink};
use crate::filter::Filter;
use crate::range::Start;

/// Called with the number of words that have been read.
type Pause<'p> = &'p mut dyn FnMut(u64) -> Result<()>;

/// Notes of the calls of a thread that are open at the ends of the selected time.
pub fn notes(
    trace: &Trace,
    thread: &ThreadInfo,
    filter: &Filter,
    pause: Pause,
) -> Result<Vec<Note>> {
    let mut notes = Vec::new();
    let checkpoints = filter.checkpoints_of(thread);
    let start = Start::before(filter.from, thread, checkpoints);
    let mut reader = Reader::new(thread, start);
    match filter.from.filter(|from| reader.begins_by(*from)) {
        Some(from) => {
            reader.pass(from, pause)?;
            notes.extend(reader.open(from));
        }
        None => notes.extend(first(thread)),
    }
    let alive = match filter.until {
        Some(until) => reader.alive(until, pause)?,
        None => None,
    };
    match (filter.until, alive) {
        (Some(_), Some(counter)) => notes.push(Note::Alive {
            process: thread.process,
            thread: thread.thread,
            begin: thread.begin,
            since: 0,
            counter,
        }),
        (Some(_), None) => {}
        (None, _) => notes.extend(its_alive(trace, thread.key())),
    }
    Ok(notes)
}

/// The calls that the trace itself knows to be open before the thread's first packet.
fn first(thread: &ThreadInfo) -> Option<Note> {
    let packet = thread.packets().next()?;
    let damaged = packet.gap().is_some_and(|gap| gap.damaged);
    let sequence = packet.missing_before() + u64::from(damaged);
    let calls = packet.open_calls().to_vec();
    let place = packet.place()?.clone();
    Some(open(packet.thread(), sequence, calls, place))
}

fn open(key: ThreadKey, sequence: u64, calls: Vec<OpenCall>, place: Place) -> Note {
    Note::Open {
        process: key.process,
        thread: key.thread,
        begin: key.begin,
        sequence,
        calls,
        place,
    }
}

/// What the trace says of the thread's end, unless it is damaged: then the ends of calls may be missing.
fn its_alive(trace: &Trace, key: ThreadKey) -> Option<Note> {
    let notes = trace.notes().iter().rev();
    let mut notes = notes.filter(|_| trace.damage_count() == 0);
    let own = notes.find(|note| {
        matches!(**note, Note::Alive { process, thread, begin, .. }
            if (ThreadKey { process, thread, begin }) == key)
    });
    own.cloned()
}

/// Reads a thread from one end of a time to the other.
struct Reader<'a> {
    thread: &'a ThreadInfo<'a>,
    /// The packet that is read next, and the words that have been read of the one before it.
    next: usize,
    read: usize,
    rebuilder: CallRebuilder,
    past: Past,
}

impl<'a> Reader<'a> {
    fn new(thread: &'a ThreadInfo<'a>, start: Start) -> Reader<'a> {
        let next = start.packet;
        let (rebuilder, past) = start.into_parts();
        let mut reader = Reader {
            thread,
            next,
            read: 0,
            rebuilder,
            past,
        };
        reader.read = reader.present().map_or(0, |packet| packet.words().len());
        reader
    }

    fn packet(&self, number: usize) -> Option<Packet<'a>> {
        self.thread.packets_in(number..number + 1).next()
    }

    fn present(&self) -> Option<Packet<'a>> {
        self.packet(self.next.checked_sub(1)?)
    }

    fn begins_by(&self, clock: u64) -> bool {
        let first = self.packet(0);
        first.is_some_and(|packet| packet.clock_begin() <= clock)
    }

    fn begin(&mut self, packet: &Packet<'a>) {
        self.next += 1;
        self.read = 0;
        self.rebuilder.begin_packet(packet, &mut self.past);
    }

    /// Reads the present packet up to a word.
    fn read_to(&mut self, packet: &Packet<'a>, end: usize) {
        let words = packet.words().get(self.read..end).unwrap_or_default();
        self.read += words.len();
        self.rebuilder.more(words, &mut self.past);
        if self.read == packet.words().len() {
            packet.release();
        }
    }

    /// Goes on behind the last event that is not after `clock`.
    fn pass(&mut self, clock: u64, pause: Pause) -> Result<()> {
        while let Some(packet) = self.packet(self.next)
            && packet.clock_begin() <= clock
        {
            let next = self.packet(self.next + 1);
            let is_last = next.is_none_or(|next| next.clock_begin() > clock);
            self.begin(&packet);
            let end = match is_last {
                true => packet.words_until(clock),
                false => packet.words().len(),
            };
            self.read_to(&packet, end);
            pause(packet.words().len() as u64)?;
        }
        Ok(())
    }

    /// The present calls of the program, with those on other stacks, and those of the kernel, if the thread is there. No
    /// call is known to have gone on until `from` in a thread that has ended by then.
    fn open(&self, from: u64) -> impl Iterator<Item = Note> + use<'_, 'a> {
        let goes_on = self.thread.clock_end() > from;
        let frames = match goes_on {
            true => self.rebuilder.frames(),
            false => &[],
        };
        let of_program = self.rebuilder.frames_of_program().min(frames.len());
        let (own, kernel) = frames.split_at(of_program);
        let key = self.thread.key();
        let in_kernel = self.present().map_or(key, |packet| packet.thread());
        let mut place = self.rebuilder.position();
        if goes_on {
            let aside = self.rebuilder.aside().into_iter();
            place.aside = aside.map(|fiber| self.aside(fiber)).collect();
        }
        let own = open(key, 0, self.calls(own), place);
        let misses_some = self.rebuilder.misses_kernel_records();
        let kernel = misses_some.filter(|_| goes_on).map(|gaps| {
            let place = Place {
                gaps,
                ..Place::default()
            };
            open(in_kernel, 0, self.calls(kernel), place)
        });
        [own].into_iter().chain(kernel)
    }

    fn aside(&self, fiber: &Fiber) -> Aside {
        Aside {
            calls: self.calls(&fiber.frames),
            since: fiber.since,
            alive: fiber.alive,
        }
    }

    fn calls(&self, frames: &[Frame]) -> Vec<OpenCall> {
        let calls = frames.iter().map(|frame| OpenCall {
            only: frame.style() == Style::Only,
            site: frame.site(),
            tag: frame.tag(),
            tail: frame.style() == Style::Tail,
            clock: frame.clock,
            slot: frame.slot,
            exact: frame.is_exact(),
            arguments: self.past.arguments(frame),
        });
        calls.collect()
    }

    /// Until when all calls are known to have been open that are open at the last event before `until`. None: until that
    /// event.
    fn alive(&mut self, until: u64, pause: Pause) -> Result<Option<u64>> {
        loop {
            if let Some(packet) = self.present() {
                self.read_to(&packet, packet.words_before(until));
                if self.read < packet.words().len() {
                    break;
                }
            }
            let next = self.packet(self.next);
            let Some(packet) = next.filter(|packet| packet.clock_begin() < until) else {
                break;
            };
            self.begin(&packet);
            pause(packet.words().len() as u64)?;
        }
        Ok(self.shown(until))
    }

    /// Whether the next entry or exit shows that the present calls were open at `until`.
    fn shown(&mut self, until: u64) -> Option<u64> {
        let words = self.present().map(|packet| packet.words());
        let words = words.and_then(|words| words.get(self.read..));
        let mut rest = Cursor::new(words.unwrap_or_default());
        let mut end = End {
            past: &mut self.past,
            until,
            is_over: false,
        };
        loop {
            let next = rest.clone().take(self.rebuilder.clock());
            match next.map(|record| record.event) {
                Some(Event::Hole) => return None,
                Some(event) => {
                    self.rebuilder.step(&mut rest, &mut end);
                    if let Event::Entry { .. } | Event::Exit { .. } = event {
                        return (!end.is_over).then_some(until);
                    }
                }
                None if !rest.rest().is_empty() => return None,
                None => {
                    let mut packets = self.thread.packets_in(self.next..self.next + 1);
                    let Some(packet) = packets.next() else {
                        let alive = self.thread.alive_until;
                        let is_open = self.rebuilder.open_until(u64::MAX) == u64::MAX;
                        return (alive > 0 && is_open).then_some(alive.min(until));
                    };
                    if packet.is_behind_loss() || packet.is_behind_unwrapping() {
                        return None;
                    }
                    self.next += 1;
                    rest = self.rebuilder.begin_packet(&packet, &mut end);
                }
            }
        }
    }
}

/// Notices calls that may have been over before `until`.
struct End<'p> {
    past: &'p mut Past,
    until: u64,
    is_over: bool,
}

impl Sink for End<'_> {
    fn enter(&mut self, frames: &[Frame], arguments: Option<[u64; 6]>) -> u32 {
        self.past.enter(frames, arguments)
    }

    fn leave(&mut self, frame: &Frame, ending: Ending, frames: &[Frame]) {
        self.past.leave(frame, ending, frames);
    }

    fn lose(&mut self, _: &Frame, clock: u64, _: bool) {
        self.is_over |= clock < self.until;
    }

    fn stray(&mut self, _: &Frame, _: Ending) {}

    fn aside(&mut self, _: &[Frame]) {
        self.is_over = true;
    }
}
