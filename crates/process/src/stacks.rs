//! A search of a process's stacks for addresses of code.

use std::ops::Range;

use anyhow::Result;

use crate::{Mapping, Memory, Pages, Position, Stopped, maps};

/// Read at a time.
const PIECE: usize = 256 << 10;

/// Reading this much takes as long as reading the page map.
const FEW_BYTES: u64 = 8 << 10;

/// The factor by which the page map shows an absent page faster than a read.
const WITHOUT_PAGES: u64 = 64;

/// The result of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Search {
    /// Addresses of words, and the words.
    pub found: Vec<(u64, u64)>,
    /// The same for words that are searched only on the current stacks of threads.
    pub live: Vec<(u64, u64)>,
    /// Bytes of memory that may hold stacks and were not searched.
    pub unread: u64,
    /// The used part of a stack that a thread is on, or was made with, could not be read, as in memory of
    /// `memfd_secret`: it is not known which calls return there.
    pub hidden: bool,
}

impl Stopped {
    /// Looks for words that are in one of `ranges`, which are sorted and do not overlap.
    ///
    /// A stack that a thread is on is read from the stack pointer up. Where that is not the stack that the thread was
    /// made with (a signal handler may have its own), that one is read as a whole. Other stacks, of coroutines, may be
    /// anywhere in private writable memory; of that, at most `elsewhere` bytes are read, at about 2 MiB a millisecond.
    /// Memory without pages takes its share of them too: a sanitizer reserves hundreds of terabytes.
    pub fn search_stacks(&self, ranges: &[Range<u64>], elsewhere: u64) -> Result<Search> {
        self.search_stacks_and_live_ones(ranges, elsewhere, &[])
    }

    /// The same, and also looks for words in one of the ranges `live`, in the used parts of stacks.
    pub fn search_stacks_and_live_ones(
        &self,
        ranges: &[Range<u64>],
        elsewhere: u64,
        live: &[Range<u64>],
    ) -> Result<Search> {
        let maps = maps(self.pid())?;
        let mut reader = Reader::new(self.pid(), ranges)?;
        reader.live = live;
        let memory = Memory::open(self.pid())?;
        let mut positions = self.positions()?;
        for position in &mut positions {
            // A control block begins with its own address. A program may have its thread pointer lead elsewhere.
            position.thread_pointer = position
                .thread_pointer
                .filter(|block| memory.read_word(*block).is_ok_and(|word| word == *block));
        }
        let stacks = live_stacks(&maps, &positions);
        for stack in &stacks {
            reader.read(stack.live.clone(), u64::MAX)?;
        }
        reader.search.hidden = reader.search.unread > 0;
        reader.live = &[];
        let known = union(stacks.iter().map(|stack| stack.dead.start..stack.end));
        let mut left = elsewhere;
        let private = |mapping: &&Mapping| is_stack_memory(mapping) && !mapping.shared;
        for mapping in maps.iter().filter(private) {
            for part in without(mapping.start..mapping.end, &known) {
                let end = part.end.min(
                    part.start
                        .saturating_add(left.saturating_mul(WITHOUT_PAGES)),
                );
                let read = reader.read(part.start..end, left)?;
                left -= read.max((end - part.start) / WITHOUT_PAGES);
                reader.search.unread += part.end - end;
            }
        }
        for found in [&mut reader.search.found, &mut reader.search.live] {
            found.sort_unstable();
            found.dedup();
        }
        Ok(reader.search)
    }
}

fn is_stack_memory(mapping: &Mapping) -> bool {
    mapping.readable && mapping.writable
}

/// The used part of a stack, and the unused part below it, which still holds words of returned calls.
struct Stack {
    dead: Range<u64>,
    live: Range<u64>,
    /// The end, with the control block.
    end: u64,
}

/// The most that libc's control block takes at the end of a stack.
const BLOCK: u64 = 4 << 10;

/// The assumed size of a stack whose end is unknown.
const LONGEST_STACK: u64 = 16 << 20;

fn live_stacks(maps: &[Mapping], positions: &[Position]) -> Vec<Stack> {
    let containing = |address: u64| {
        let index = maps.partition_point(|mapping| mapping.end <= address);
        maps.get(index)
            .filter(|mapping| mapping.start <= address && is_stack_memory(mapping))
    };
    let main = maps
        .iter()
        .find(|mapping| mapping.label.as_deref() == Some("[stack]"));
    let mut main_is_used = false;
    let mut stacks = Vec::new();
    for position in positions {
        let from = position.stack & !7;
        // The control block of a thread that libc made stands at the end of its stack.
        let block = position.thread_pointer.map(|address| address & !7);
        let own = block.and_then(containing);
        let on = containing(from);
        let on_own = own.is_some() && on == own && block.is_some_and(|block| from < block);
        if let Some(on) = on {
            let is_main = Some(on) == main;
            main_is_used |= is_main;
            let end = match block {
                Some(block) if on_own => block,
                _ if is_main => on.end,
                _ => on.end.min(from.saturating_add(LONGEST_STACK)),
            };
            let start = if on_own || is_main { on.start } else { from };
            let block = if on_own { BLOCK } else { 0 };
            stacks.push(Stack {
                dead: start..from,
                live: from..end,
                end: on.end.min(end.saturating_add(block)),
            });
        }
        if let (Some(own), Some(block), false) = (own, block, on_own) {
            stacks.push(whole(
                own.start.max(block.saturating_sub(LONGEST_STACK))..block,
            ));
        }
    }
    if let Some(main) = main.filter(|_| !main_is_used) {
        stacks.push(whole(main.start..main.end));
    }
    stacks
}

fn whole(live: Range<u64>) -> Stack {
    Stack {
        dead: live.start..live.start,
        end: live.end,
        live,
    }
}

fn union(parts: impl Iterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let mut parts = parts.collect::<Vec<_>>();
    parts.sort_unstable_by_key(|part| part.start);
    let mut joined = Vec::<Range<u64>>::new();
    for part in parts {
        match joined.last_mut() {
            Some(last) if part.start <= last.end => last.end = last.end.max(part.end),
            _ => joined.push(part),
        }
    }
    joined
}

/// The pieces of `whole` outside of `parts`, which are sorted and do not touch.
fn without(whole: Range<u64>, parts: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut rest = Vec::new();
    let mut at = whole.start;
    let first = parts.partition_point(|part| part.end <= whole.start);
    let within = parts[first..].iter();
    for part in within.take_while(|part| part.start < whole.end) {
        rest.push(at..part.start);
        at = part.end;
    }
    rest.push(at..whole.end);
    rest.retain(|part| part.start < part.end);
    rest
}

struct Reader<'a> {
    memory: Memory,
    pages: Pages,
    ranges: &'a [Range<u64>],
    live: &'a [Range<u64>],
    buffer: Vec<u8>,
    search: Search,
}

impl Reader<'_> {
    fn new(pid: i32, ranges: &[Range<u64>]) -> Result<Reader<'_>> {
        Ok(Reader {
            memory: Memory::open(pid)?,
            pages: Pages::of(pid)?,
            ranges,
            live: &[],
            buffer: vec![0; PIECE],
            search: Search::default(),
        })
    }

    /// Reads at most about `most` bytes of a part; returns how many.
    fn read(&mut self, part: Range<u64>, most: u64) -> Result<u64> {
        let mut done = 0;
        let runs = match part.end - part.start {
            0..=FEW_BYTES if most == u64::MAX => vec![part],
            _ => self.pages.present(part)?,
        };
        for run in runs {
            for start in run.clone().step_by(PIECE) {
                let bytes = (run.end - start).min(PIECE as u64);
                if done + bytes > most {
                    self.search.unread += bytes;
                    continue;
                }
                self.look_through(start, bytes as usize);
                done += bytes;
            }
        }
        Ok(done)
    }

    fn look_through(&mut self, start: u64, bytes: usize) {
        let piece = &mut self.buffer[..bytes];
        if self.memory.read(start, piece).is_err() {
            self.search.unread += bytes as u64;
            return;
        }
        let search = &mut self.search;
        for (ranges, found) in [
            (self.ranges, &mut search.found),
            (self.live, &mut search.live),
        ] {
            let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else {
                continue;
            };
            let (low, span) = (first.start, last.end - first.start);
            let words = piece
                .as_chunks::<8>()
                .0
                .iter()
                .map(|word| u64::from_le_bytes(*word));
            for (index, word) in words.enumerate() {
                if word.wrapping_sub(low) < span && holds(ranges, word) {
                    found.push((start + index as u64 * 8, word));
                }
            }
        }
    }
}

fn holds(ranges: &[Range<u64>], word: u64) -> bool {
    let after = ranges.partition_point(|range| range.start <= word);
    after > 0 && ranges[after - 1].contains(&word)
}
