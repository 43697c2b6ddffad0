//! The exception tables of functions (.gcc_except_table): where the unwinder enters functions, and from where.

use std::ops::Range;

use anyhow::{Result, ensure};

use crate::code::Memory;

const OMITTED: u8 = 0xff;

/// Code from which an exception is handled in its own function, at a landing pad.
pub(crate) struct Handled {
    pub code: Range<u64>,
    pub pad: u64,
}

/// The handled code of functions, given the begin and the table of each. An unreadable table ends early.
pub(crate) fn handled(
    memory: &Memory<'_>,
    tables: impl Iterator<Item = (u64, u64)>,
    mut found: impl FnMut(Handled),
) -> Result<()> {
    let mut budget = memory.len();
    for (start, table) in tables {
        let table = memory.from(table).unwrap_or_default();
        for site in of_table(table, start) {
            if site.pad != start {
                found(site);
            }
            ensure!(
                budget > 0,
                "the file claims more call sites than fit into it"
            );
            budget -= 1;
        }
    }
    Ok(())
}

/// The call sites of one table. For those without a landing pad, this is the function's start.
fn of_table(table: &[u8], start: u64) -> impl Iterator<Item = Handled> {
    let mut sites = header(&mut Reader(table));
    std::iter::from_fn(move || {
        let (encoding, sites) = sites.as_mut()?;
        let [begin, length, pad] = call_site(sites, *encoding)?;
        let begin = start.wrapping_add(begin);
        Some(Handled {
            code: begin..begin.saturating_add(length),
            pad: start.wrapping_add(pad),
        })
    })
}

/// The base of landing pads, if it is not the function's start; the types; the call sites.
fn header<'a>(reader: &mut Reader<'a>) -> Option<(u8, Reader<'a>)> {
    if reader.byte()? != OMITTED {
        return None;
    }
    if reader.byte()? != OMITTED {
        reader.number()?;
    }
    let encoding = reader.byte()?;
    let length = usize::try_from(reader.number()?).ok()?;
    Some((encoding, Reader(reader.0.get(..length)?)))
}

/// Start, length, landing pad; behind them the action.
fn call_site(sites: &mut Reader<'_>, encoding: u8) -> Option<[u64; 3]> {
    let site = [
        sites.encoded(encoding)?,
        sites.encoded(encoding)?,
        sites.encoded(encoding)?,
    ];
    sites.number()?;
    Some(site)
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }

    /// LEB128 without a sign.
    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    /// DW_EH_PE_uleb128, udata2, udata4, udata8; with the sign bit the same for values that are never negative.
    fn encoded(&mut self, encoding: u8) -> Option<u64> {
        let bytes = match encoding & 0x7f {
            0x01 => return self.number(),
            0x02 | 0x0a => 2,
            0x03 | 0x0b => 4,
            0x00 | 0x04 | 0x0c => 8,
            _ => return None,
        };
        let (value, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        let mut word = [0; 8];
        word[..bytes].copy_from_slice(value);
        Some(u64::from_le_bytes(word))
    }
}

#[cfg(test)]
mod tests {
    use super::of_table;

    fn pads(table: &[u8]) -> Vec<u64> {
        of_table(table, 0x1000).map(|site| site.pad).collect()
    }

    #[test]
    fn finds_landing_pads() {
        // No base, types at 0x11, LEB128, 8 bytes: [0, 5) without one, [5, 9) with one at 0x80.
        let table = [0xff, 0x9b, 0x11, 0x01, 9, 0, 5, 0, 0, 5, 4, 0x80, 0x01, 1];
        assert_eq!(pads(&table), [0x1000, 0x1080]);
        let codes: Vec<_> = of_table(&table, 0x1000).map(|site| site.code).collect();
        assert_eq!(codes, [0x1000..0x1005, 0x1005..0x1009]);
        let fixed = [
            0xff, 0xff, 0x03, 13, 0, 0, 0, 0, 5, 0, 0, 0, 0x20, 0, 0, 0, 0,
        ];
        assert_eq!(pads(&fixed), [0x1020]);
    }

    #[test]
    fn a_damaged_table_ends_early() {
        let table = [0xff, 0x9b, 0x11, 0x01, 9, 0, 5, 0, 0, 5, 4, 0x80, 0x01, 1];
        for length in 0..table.len() {
            assert!(pads(&table[..length]).is_empty());
        }
        assert!(pads(&[0xff, 0xff, 0x55, 4, 1, 2, 3, 4]).is_empty());
        assert!(
            pads(&[
                0xff, 0xff, 0x01, 12, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
                0x80, 1
            ])
            .is_empty()
        );
    }
}
