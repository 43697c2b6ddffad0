//! Static probes of `sys/sdt.h` (USDT), by their `.note.stapsdt`.

use std::collections::BTreeSet;

use object::LittleEndian as LE;
use object::elf::{self, FileHeader64};
use object::read::elf::NoteIterator;

use crate::Image;
use crate::elf::text;

const OWNER: &[u8] = b"stapsdt";
const VERSION: u32 = 3;
/// More are not accepted.
const MOST_NOTES: usize = 1 << 20;
const MOST_ARGUMENTS: usize = 12;

/// The place of a probe, with a NOP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    pub provider: String,
    pub name: String,
    pub address: u64,
    /// A counter of two bytes: while it is 0 the program may jump around the probe.
    pub semaphore: Option<u64>,
    pub arguments: Vec<Argument>,
}

/// The location of a probe's value, in the assembler's syntax: `-4@%edi`, `8@16(%rsp)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// Bits: 8, 16, 32 or 64.
    pub bits: u8,
    pub signed: bool,
    pub float: bool,
    pub operand: String,
}

pub(crate) fn of(image: &Image) -> Vec<Probe> {
    let elf = image.elf();
    // The address to which the section of this name was linked, and its present one: prelinking has moved the file by
    // the difference.
    let base = elf.section(".stapsdt.base").map(|section| section.address);
    let mut probes = Vec::new();
    let mut seen = BTreeSet::new();
    for section in &elf.sections {
        if section.kind != elf::SHT_NOTE || section.name != ".note.stapsdt" {
            continue;
        }
        let Some(bytes) = elf.section_bytes(section) else {
            continue;
        };
        let Ok(mut notes) = NoteIterator::<FileHeader64<LE>>::new(LE, section.align, bytes) else {
            continue;
        };
        while let Ok(Some(note)) = notes.next() {
            if note.name() != OWNER || note.n_type(LE).0 != VERSION || probes.len() == MOST_NOTES {
                continue;
            }
            let probe =
                parse(note.desc(), base).filter(|probe| image.code().end(probe.address).is_some());
            probes.extend(probe.filter(|probe| seen.insert((probe.address, probe.name.clone()))));
        }
    }
    probes
        .sort_by(|a, b| (&a.provider, &a.name, a.address).cmp(&(&b.provider, &b.name, b.address)));
    probes
}

fn parse(note: &[u8], base_now: Option<u64>) -> Option<Probe> {
    let (words, rest) = note.split_at_checked(24)?;
    let word = |index: usize| {
        let bytes = words[index * 8..].first_chunk()?;
        Some(u64::from_le_bytes(*bytes))
    };
    let (address, base, semaphore) = (word(0)?, word(1)?, word(2)?);
    let moved = base_now.map_or(0, |now| now.wrapping_sub(base));
    let mut strings = rest.split(|byte| *byte == 0).map(text);
    let (provider, name) = (strings.next()?, strings.next()?);
    let arguments = strings.next()?;
    let mut words = arguments.split_whitespace();
    let parsed: Option<Vec<Argument>> = words.by_ref().take(MOST_ARGUMENTS).map(argument).collect();
    Some(Probe {
        provider,
        name,
        address: address.wrapping_add(moved),
        semaphore: (semaphore != 0).then(|| semaphore.wrapping_add(moved)),
        arguments: parsed.unwrap_or_default(),
    })
}

/// `-4@%edi`: size in bytes, negative where signed, with `f` behind it a floating point number.
fn argument(text: &str) -> Option<Argument> {
    let (size, operand) = text.split_once('@')?;
    let (size, float) = match size.strip_suffix('f') {
        Some(size) => (size, true),
        None => (size, false),
    };
    let size: i8 = size.parse().ok()?;
    let bits = match size.unsigned_abs() {
        bytes @ (1 | 2 | 4 | 8) => bytes * 8,
        _ => return None,
    };
    Some(Argument {
        bits,
        signed: size < 0,
        float,
        operand: operand.to_owned(),
    })
}

impl std::fmt::Display for Argument {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        let kind = match (self.float, self.signed) {
            (true, _) => 'f',
            (_, true) => 's',
            (_, false) => 'u',
        };
        write!(formatter, "{kind}{} {}", self.bits, self.operand)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_told_by_size_and_operand() {
        let shown = |text| argument(text).map(|argument| argument.to_string());
        assert_eq!(shown("-4@%edi").as_deref(), Some("s32 %edi"));
        assert_eq!(
            shown("8@-16(%rsp,%rax,8)").as_deref(),
            Some("u64 -16(%rsp,%rax,8)")
        );
        assert_eq!(shown("8f@%xmm0").as_deref(), Some("f64 %xmm0"));
        for wrong in ["", "4", "3@%eax", "x@%eax", "-128@%eax"] {
            assert_eq!(shown(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn notes_that_are_cut_short_are_left_out() {
        let mut note = vec![0; 24];
        note[0] = 0x10;
        note.extend_from_slice(b"provider\0name\0-4@%edi 8@$5\0");
        let probe = parse(&note, None).unwrap();
        assert_eq!(
            (probe.address, probe.semaphore, probe.arguments.len()),
            (0x10, None, 2)
        );
        for length in 0..note.len() - b"-4@%edi 8@$5\0".len() {
            assert!(parse(&note[..length], None).is_none(), "{length}");
        }
        assert_eq!(parse(&note, Some(0x100)).unwrap().address, 0x110);
    }
}
