//! The packets of a stream file, found and checked.

use crate::checksum::Sum;
use crate::header;
use crate::layout::*;
use crate::mapping::Mapping;
use crate::note::{OpenCall, Place, Session};
use crate::thread_key::ThreadKey;
use nopal_abi::*;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Valid chunk sizes of a session.
const CHUNK_SIZES: std::ops::RangeInclusive<u32> = 1 << 12..=1 << 24;

/// The limit of words with wrong sums, in lengths of the file. A malicious file that exceeds it is not read to its end.
const MOST_IN_VAIN: usize = 16;

/// The words of a packet that show where the next one is: its header, and what may be the first record's clock.
const HEAD_WORDS: usize = HEADER_WORDS + RESYNC_WORDS;

/// The words of a file that are read before its memory is released.
const RELEASE_WORDS: usize = 1 << 20;

/// A valid packet. A reader keeps one for each packet of a trace, so it holds only what readers need.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub thread: ThreadKey,
    /// The counter at its first record, and at its last one.
    pub clock_begin: u64,
    pub clock_end: u64,
    /// The position of its records, in words of the file, and their number of words.
    start: usize,
    length: u32,
    /// Packets of its thread that are missing before it, or as many as can be counted here.
    pub missing_before: u32,
    /// Events of its thread that were lost since the thread's previous packet.
    pub lost_before: u64,
    /// Calls that were left out of it.
    pub short_calls: u32,
    /// The bytes before or behind it in the file are invalid.
    pub damage_before: bool,
    pub damage_behind: bool,
    /// The calls that were open before it, where it is the first of its thread. Notes tell them.
    #[serde(skip)]
    pub open: Option<Box<(Vec<OpenCall>, Place)>>,
}

impl Entry {
    /// The position of its records, in words of the file.
    pub fn words(&self) -> Range<usize> {
        self.start..self.start + self.length as usize
    }
}

/// Damage in a stream file, at an offset in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flaw {
    pub offset: u64,
    /// Bytes of the file that are skipped.
    pub bytes: u64,
    pub what: &'static str,
    /// The file ends here, and may still be growing.
    pub at_end: bool,
}

/// The values by which packets belong to a trace.
#[derive(Clone, Copy)]
pub struct Expected {
    pub stream: u32,
    /// The number of the file.
    pub file: u32,
    pub uuid: u128,
    pub packet_words: usize,
    /// Packets have checksums.
    pub sums: bool,
    /// Only the packets' headers are read, and no checksum is compared.
    pub by_headers: bool,
}

impl Expected {
    pub fn new(stream: u32, file: u32, uuid: uuid::Uuid, session: &Session) -> Expected {
        let bytes = if CHUNK_SIZES.contains(&session.chunk_bytes) {
            session.chunk_bytes as usize
        } else {
            CHUNK_BYTES
        };
        Expected {
            stream,
            file,
            uuid: u128::from_le_bytes(*uuid.as_bytes()),
            packet_words: bytes / 8,
            sums: session.has_sums(),
            by_headers: false,
        }
    }
}

/// Whether packets may be those of a file up to a word: they have an order that the file may have, and the first and the
/// last are there. Nothing of them is trusted.
pub fn may_be(file: &Mapping, packets: &[Entry], until: usize, expected: Expected) -> bool {
    let words = file.words();
    let beginning = header::beginning(expected.stream, expected.uuid);
    let (mut end, mut clock) = (0, 0);
    let mut follows = |packet: &Entry| {
        let header = packet.start.checked_sub(HEADER_WORDS);
        let length = packet.length as usize;
        let fits = header.is_some_and(|at| at >= end)
            && packet.start <= until
            && length <= until - packet.start
            && length <= expected.packet_words - HEADER_WORDS
            && packet.clock_begin <= packet.clock_end
            && packet.clock_begin >= clock;
        (end, clock) = (packet.start.saturating_add(length), packet.clock_begin);
        fits
    };
    let is_there = |packet: &Entry| {
        let rest = &words[packet.start - HEADER_WORDS..];
        let head = &rest[..rest.len().min(HEAD_WORDS)];
        look(head, rest.len(), beginning, expected, None).is_ok_and(|found| {
            let Checked {
                header, content, ..
            } = found;
            let clocks = (header.clock_begin, header.clock_end);
            ThreadKey::of(&header) == packet.thread
                && clocks == (packet.clock_begin, packet.clock_end)
                && content - HEADER_WORDS == packet.length as usize
        })
    };
    until <= words.len()
        && packets.iter().all(&mut follows)
        && [packets.first(), packets.last()]
            .into_iter()
            .flatten()
            .all(is_there)
}

/// Finds the packets of a file from a word on, where a packet begins; `packets` has those before. `flaw` is called for
/// each skip or repair. Returns the end of the last whole packet, in words.
pub fn index(
    file: &Mapping,
    from: usize,
    expected: Expected,
    packets: &mut Vec<Entry>,
    mut flaw: impl FnMut(Flaw),
) -> usize {
    let words = file.words();
    let heads = expected.by_headers.then(|| file.reader()).flatten();
    let beginning = header::beginning(expected.stream, expected.uuid);
    let mut previous = packets.last().and_then(|last| self::header(file, last));
    let mut released = from;
    let mut position = from;
    let mut whole = from;
    let mut damage_before = false;
    let mut in_vain = 0;
    while position < words.len() {
        if position - released > RELEASE_WORDS {
            file.release(released..position);
            released = position;
        }
        let offset = position as u64 * 8;
        let rest = &words[position..];
        let mut head = [0; HEAD_WORDS];
        let found = match &heads {
            // Far fewer pages are touched than through the mapping.
            Some(heads) if rest.len() >= HEAD_WORDS && heads.read(offset, &mut head) => {
                look(&head, rest.len(), beginning, expected, previous.as_ref()).map_err(Bad::from)
            }
            _ => check(rest, beginning, expected, previous.as_ref()),
        };
        match found {
            Ok(Checked {
                header,
                content,
                packet,
                flaw: minor,
            }) => {
                if let Some(what) = minor {
                    flaw(Flaw {
                        offset,
                        bytes: 0,
                        what,
                        at_end: packet > words.len() - position,
                    });
                }
                let numbers = previous.map(|last| (last.discarded, last.sequence));
                let (discarded, sequence) = numbers.unwrap_or((0, u64::MAX));
                let missing = header.sequence.saturating_sub(sequence.wrapping_add(1));
                packets.push(Entry {
                    thread: ThreadKey::of(&header),
                    clock_begin: header.clock_begin,
                    clock_end: header.clock_end,
                    start: position + HEADER_WORDS,
                    // No packet is longer than the largest chunk.
                    length: (content - HEADER_WORDS) as u32,
                    missing_before: missing.try_into().unwrap_or(u32::MAX),
                    lost_before: header.discarded.saturating_sub(discarded),
                    short_calls: header.short_calls,
                    damage_before: std::mem::take(&mut damage_before),
                    damage_behind: false,
                    open: None,
                });
                previous = Some(header);
                let is_whole = packet <= words.len() - position;
                position = words.len().min(position + packet);
                if is_whole {
                    whole = position;
                }
            }
            Err(Bad {
                what,
                in_vain: sums,
            }) => {
                in_vain += sums;
                let found = match in_vain > words.len().saturating_mul(MOST_IN_VAIN) {
                    true => words.len(),
                    false => next(file, position + 1, beginning),
                };
                flaw(Flaw {
                    offset,
                    bytes: (found - position) as u64 * 8,
                    what,
                    at_end: found == words.len(),
                });
                damage_before = true;
                if let Some(last) = packets.last_mut() {
                    last.damage_behind = true;
                }
                position = found;
                released = released.max(position.saturating_sub(RELEASE_WORDS));
            }
        }
    }
    file.release(released..position);
    whole
}

/// The header before the records of a packet.
pub fn header(file: &Mapping, packet: &Entry) -> Option<ChunkHeader> {
    let at = packet.start.checked_sub(HEADER_WORDS)?;
    Some(header::read(file.words().get(at..)?.first_chunk()?))
}

/// The word where the next header is, or the end. Holes of the file are not looked at.
fn next(file: &Mapping, from: usize, beginning: [u64; 3]) -> usize {
    let words = file.words();
    let mut at = from;
    while at < words.len() {
        let end = words.len().min(at + RELEASE_WORDS);
        let seen = &words[at..words.len().min(end + beginning.len() - 1)];
        let found = seen
            .windows(beginning.len())
            .position(|words| *words == beginning);
        if let Some(found) = found {
            return at + found;
        }
        file.release(at..end);
        let data = file.data_from(end as u64 * 8) / 8;
        at = words
            .len()
            .min(usize::try_from(data).unwrap_or(end))
            .max(end);
    }
    words.len()
}

struct Checked {
    header: ChunkHeader,
    /// The present words of header and content, and the words of the whole packet.
    content: usize,
    packet: usize,
    flaw: Option<&'static str>,
}

/// The reason why there is no packet.
struct Bad {
    what: &'static str,
    /// Words with a wrong sum.
    in_vain: usize,
}

impl From<&'static str> for Bad {
    fn from(what: &'static str) -> Bad {
        Bad { what, in_vain: 0 }
    }
}

fn check(
    words: &[u64],
    beginning: [u64; 3],
    expected: Expected,
    previous: Option<&ChunkHeader>,
) -> Result<Checked, Bad> {
    let head = &words[..words.len().min(HEAD_WORDS)];
    let checked = look(head, words.len(), beginning, expected, previous)?;
    let records = &words[HEADER_WORDS..checked.content];
    let sum = || header::checksum(Sum::new().words(records), &checked.header, expected.file);
    if expected.sums && !expected.by_headers && sum() != checked.header.checksum {
        return Err(Bad {
            what: "a packet that does not match its checksum",
            in_vain: records.len(),
        });
    }
    Ok(checked)
}

/// The contents of a valid header, which is the first of so many words.
fn look(
    head: &[u64],
    words: usize,
    beginning: [u64; 3],
    expected: Expected,
    previous: Option<&ChunkHeader>,
) -> Result<Checked, &'static str> {
    let Some(first) = head.first_chunk::<HEADER_WORDS>() else {
        return Err("a packet header that is cut short");
    };
    if !first.starts_with(&beginning) {
        return Err("no packet header of this trace");
    }
    let header = header::read(first);
    let sizes = [header.content_bits, header.packet_bits].map(|bits| usize::try_from(bits / 64));
    let [Ok(content), Ok(packet)] = sizes else {
        return Err("an impossible packet size");
    };
    let multiples = header.content_bits.is_multiple_of(64) && header.packet_bits.is_multiple_of(64);
    if !multiples || content < HEADER_WORDS || content > packet || packet > expected.packet_words {
        return Err("an impossible packet size");
    }
    if header.clock_begin > header.clock_end {
        return Err("a packet that ends before it begins");
    }
    if Resync::clock_of(&head[HEADER_WORDS..]).is_some_and(|clock| clock != header.clock_begin) {
        return Err("a packet whose first clock is not its header's");
    }
    if previous.is_some_and(|previous| header.clock_begin < previous.clock_begin) {
        return Err("a packet that is earlier than the one before");
    }
    if previous.is_some_and(|previous| header.sequence <= previous.sequence) {
        return Err("a packet that was there before");
    }
    let mut flaw = None;
    if previous.is_some_and(|previous| header.clock_begin < previous.clock_end) {
        flaw = Some("a packet that begins before the end of the one before");
    }
    if words < packet {
        flaw = Some("a packet that is cut short");
        if expected.sums {
            return Err("a packet that is cut short");
        }
    }
    Ok(Checked {
        header,
        content: content.min(words),
        packet,
        flaw,
    })
}
