//! The names of the kernel and of its modules, by their addresses.

use anyhow::{Context, Result, ensure};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::ops::Range;

const SYMBOLS: &str = "/proc/kallsyms";

/// The begin of the kernel's half of the addresses.
const KERNEL: u64 = 1 << 63;
/// A name that is longer is none of the kernel's.
const LONGEST_NAME: usize = 512;

/// The symbols in `/proc/kallsyms`. Nothing in it is believed but names: sizes, and what is code, follow from where the
/// next symbol begins, and from the text itself.
#[derive(Default)]
pub struct Symbols {
    text: String,
    /// In order of their addresses, and of the file where these are the same.
    all: Vec<Entry>,
}

struct Entry {
    address: u64,
    /// In `text`.
    name: Range<u32>,
    /// Empty: the kernel's own.
    module: Range<u32>,
    is_code: bool,
}

/// A symbol of code: a function, or a mark between functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol<'a> {
    pub address: u64,
    pub name: &'a str,
    /// Empty: the kernel's own.
    pub module: &'a str,
}

/// The bytes between two symbols of different addresses.
#[derive(Clone, Copy)]
pub struct Span<'a> {
    symbols: &'a Symbols,
    /// The entries with its address.
    entries: &'a [Entry],
    pub address: u64,
    /// The address of the next symbol; none behind the last one.
    pub end: Option<u64>,
}

/// Whether this process may see the addresses: all are 0 where it may not, and a few are elsewhere.
pub fn are_readable() -> Result<()> {
    let file = File::open(SYMBOLS).context(SYMBOLS)?;
    let lines = BufReader::new(file).lines().take(1000);
    let reported = lines
        .map_while(Result::ok)
        .any(|line| !line.starts_with("0000000000000000"));
    ensure!(
        reported,
        "{SYMBOLS} shows no addresses; run nopal as root, with sysctl kernel.kptr_restrict=0 or 1"
    );
    Ok(())
}

impl Symbols {
    pub fn read() -> Result<Symbols> {
        are_readable()?;
        let text = fs::read(SYMBOLS).context(SYMBOLS)?;
        Ok(Symbols::parse(&text))
    }

    /// Reads lines such as `ffffffff812a6040 T vfs_write` and `ffffffffc0543000 t ext4_sync<TAB>[ext4]`, and skips others.
    pub fn parse(text: &[u8]) -> Symbols {
        let text = String::from_utf8_lossy(text).into_owned();
        let place = |part: &str| -> Range<u32> {
            let begin = part.as_ptr() as usize - text.as_ptr() as usize;
            begin as u32..(begin + part.len()) as u32
        };
        let entry = |line: &str| -> Option<Entry> {
            let (address, rest) = line.split_once(' ')?;
            let (kind, rest) = rest.split_once(' ')?;
            let (name, module) = rest.split_once('\t').unwrap_or(rest.split_at(rest.len()));
            let address = u64::from_str_radix(address, 16).ok()?;
            let module = module.trim_start_matches('[').trim_end_matches(']');
            let is_name = (1..=LONGEST_NAME).contains(&name.len());
            // Kinds `A` and `a` are numbers, and places in the memory of each processor.
            (address >= KERNEL && is_name && !matches!(kind, "A" | "a")).then(|| Entry {
                address,
                name: place(name),
                module: place(module),
                is_code: matches!(kind, "t" | "T" | "w" | "W"),
            })
        };
        let mut all: Vec<Entry> = match u32::try_from(text.len()) {
            Ok(_) => text.lines().filter_map(entry).collect(),
            Err(_) => Vec::new(),
        };
        all.sort_by_key(|entry| entry.address);
        Symbols { text, all }
    }

    fn symbol(&self, entry: &Entry) -> Symbol<'_> {
        let part = |range: &Range<u32>| &self.text[range.start as usize..range.end as usize];
        Symbol {
            address: entry.address,
            name: part(&entry.name),
            module: part(&entry.module),
        }
    }

    /// The function in which an address is, or behind which it is. Of several names, the kernel itself takes the first.
    pub fn at(&self, address: u64) -> Option<Symbol<'_>> {
        let after = self.all.partition_point(|entry| entry.address <= address);
        let last = self.all[..after].iter().rfind(|entry| entry.is_code)?;
        self.span_at(last.address)?.names().next()
    }

    /// The span in which an address lies, whether code or not.
    pub fn span_at(&self, address: u64) -> Option<Span<'_>> {
        let after = self.all.partition_point(|entry| entry.address <= address);
        let address = self.all[..after].last()?.address;
        let first = self.all.partition_point(|entry| entry.address < address);
        Some(Span {
            symbols: self,
            entries: &self.all[first..after],
            address,
            end: self.all.get(after).map(|next| next.address),
        })
    }

    /// The spans that have a symbol of code, in order.
    pub fn code(&self) -> impl Iterator<Item = Span<'_>> {
        let mut spans = self
            .all
            .chunk_by(|one, next| one.address == next.address)
            .peekable();
        let all = std::iter::from_fn(move || {
            let entries = spans.next()?;
            Some(Span {
                symbols: self,
                entries,
                address: entries[0].address,
                end: spans.peek().map(|next| next[0].address),
            })
        });
        all.filter(|span| span.entries.iter().any(|entry| entry.is_code))
    }

    /// The addresses of these symbols of the kernel's own, code or not; of several with one name, the first's.
    pub fn addresses<const N: usize>(&self, names: [&str; N]) -> [Option<u64>; N] {
        let mut found = [None; N];
        for entry in &self.all {
            let symbol = self.symbol(entry);
            if symbol.module.is_empty()
                && let Some(index) = names.iter().position(|name| *name == symbol.name)
            {
                found[index].get_or_insert(symbol.address);
            }
        }
        found
    }
}

impl<'a> Span<'a> {
    /// Its symbols of code, in the order of the kernel, which itself takes the first.
    pub fn names(self) -> impl Iterator<Item = Symbol<'a>> {
        let code = self.entries.iter().filter(|entry| entry.is_code);
        code.map(|entry| self.symbols.symbol(entry))
    }

    pub fn contains(self, address: u64) -> bool {
        address >= self.address && self.end.is_none_or(|end| address < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "0000000000000000 A __per_cpu_start
ffffffff81000000 T _text
ffffffff81000000 T first
ffffffff81000020 t alias
ffffffff81000020 T second
ffffffff81000018 d data
ffffffff81000040 T _etext
ffffffffc0000010 t in_module\t[ext4]
rubbish
ffffffff81000020
0x12 t x
ffffffff810000200 t too_far
ffffffff81000030 t
";

    fn names(symbols: &Symbols, address: u64) -> Option<(&str, &str)> {
        let symbol = symbols.at(address)?;
        Some((symbol.name, symbol.module))
    }

    #[test]
    fn an_address_is_in_the_function_before_it() {
        let symbols = Symbols::parse(TEXT.as_bytes());
        for (address, expected) in [
            (0xffff_ffff_80ff_ffff, None),
            (0xffff_ffff_8100_0000, Some(("_text", ""))),
            (0xffff_ffff_8100_0019, Some(("_text", ""))),
            (0xffff_ffff_8100_003f, Some(("alias", ""))),
            (0xffff_ffff_c000_0010, Some(("in_module", "ext4"))),
        ] {
            assert_eq!(names(&symbols, address), expected, "{address:#x}");
        }
    }

    #[test]
    fn a_function_ends_where_the_next_symbol_begins_whatever_it_is() {
        let symbols = Symbols::parse(TEXT.as_bytes());
        let spans: Vec<(u64, Option<u64>, usize)> = symbols
            .code()
            .map(|span| {
                (
                    span.address & 0xff,
                    span.end.map(|end| end & 0xff),
                    span.names().count(),
                )
            })
            .collect();
        let expected = [
            (0, Some(0x18), 2),
            (0x20, Some(0x40), 2),
            (0x40, Some(0x10), 1),
            (0x10, None, 1),
        ];
        assert_eq!(spans, expected);
        let data = symbols.span_at(0xffff_ffff_8100_0019).unwrap();
        assert_eq!((data.address & 0xff, data.names().count()), (0x18, 0));
        let found = symbols.addresses(["_etext", "data", "in_module", "rubbish"]);
        assert_eq!(
            found.map(|it| it.map(|address| address & 0xff)),
            [Some(0x40), Some(0x18), None, None]
        );
    }

    #[test]
    fn bytes_that_are_no_text_are_no_symbols() {
        let mut text =
            b"ffffffff81000000 T f\xff\xfe\nffffffff81000010 T g\n\0\0 \0 \xf0\n".to_vec();
        text.extend([b'f'; 100]);
        let symbols = Symbols::parse(&text);
        assert_eq!(symbols.code().count(), 2);
        assert_eq!(names(&symbols, 0xffff_ffff_8100_0010), Some(("g", "")));
        assert_eq!(Symbols::parse(b"").at(u64::MAX), None);
    }
}
