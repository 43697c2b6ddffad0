//! Probes as they are written: their places, and the values that they fetch.

use std::fmt;

use nopal_symbols::VariablePath;

use crate::selection::{Location, word};
use crate::syntax::{locations_in, quoted};

/// Values that a probe fetches at most.
pub const MOST_FETCHED: usize = 12;
/// The most loads of memory, each from an address that the one before it found.
pub const MOST_LOADS: usize = 6;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    pub name: String,
    pub place: Spot,
    pub way: Way,
    pub fetched: Vec<Fetched>,
}

/// The way by which the program reaches a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// A jump in place of the instruction.
    Jump,
    /// A breakpoint there, which needs one byte and costs a signal.
    Breakpoint,
    /// A jump where one fits, and else a breakpoint.
    Auto,
    /// The return of the function of the place, by its thunk.
    Return,
}

/// An instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spot {
    Address(u64),
    /// A line of source, by the line table.
    Line {
        file: String,
        line: u32,
    },
    /// So far behind the beginning of a function; or of a module, if no function has this name.
    Named {
        name: String,
        module: Option<String>,
        offset: u64,
    },
}

/// A value and how it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    pub name: String,
    pub source: Source,
    /// `None`: as the source is by itself.
    pub kind: Option<Shown>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// In the processor's numbering.
    Register(u8),
    /// The register of an argument, from 0 on, while its function begins.
    Argument(u8),
    InstructionPointer,
    /// The memory at a number.
    At(u64),
    /// The memory at this distance from the inner source's value.
    Memory(i64, Box<Source>),
    /// A variable, by the debug information.
    Variable(VariablePath),
}

/// Integers with their bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    Signed(u8),
    Unsigned(u8),
    Hexadecimal(u8),
    Text,
}

/// In the processor's numbering; `r8` to `r15` follow.
const REGISTERS: [&str; 8] = ["ax", "cx", "dx", "bx", "sp", "bp", "si", "di"];
/// The registers in which integers and addresses are passed.
const ARGUMENTS: [u8; 6] = [7, 6, 2, 1, 8, 9];

impl Probe {
    /// The probe of a command's parts.
    pub(crate) fn parsed(
        place: &str,
        way: Way,
        name: Option<&str>,
        fetched: &str,
    ) -> Result<Probe, String> {
        let spot = Spot::parsed(place)?;
        let words: Vec<&str> = fetched.split_ascii_whitespace().collect();
        if words.len() > MOST_FETCHED {
            return Err(format!(
                "a probe fetches up to {MOST_FETCHED} values, not {}",
                words.len()
            ));
        }
        let mut all = Vec::with_capacity(words.len());
        for (index, word) in words.iter().enumerate() {
            let value = Fetched::parsed(word, index)?;
            if all.iter().any(|other: &Fetched| other.name == value.name) {
                return Err(format!("two values are named {}", quoted(&value.name)));
            }
            all.push(value);
        }
        let own_name = || match way {
            Way::Return => format!("{spot}:return"),
            Way::Jump | Way::Breakpoint | Way::Auto => spot.to_string(),
        };
        Ok(Probe {
            name: name.map_or_else(own_name, str::to_owned),
            place: spot,
            way,
            fetched: all,
        })
    }
}

impl Spot {
    fn parsed(text: &str) -> Result<Spot, String> {
        let place = match &locations_in(text)[..] {
            [one] if !one.excluded => Some(one.location.clone()),
            _ => None,
        };
        match place {
            Some(Location::Address(address)) => return Ok(Spot::Address(address)),
            Some(Location::Line { file, line }) => return Ok(Spot::Line { file, line }),
            _ => {}
        }
        // NAME[+OFFSET][@MODULE] or NAME[@MODULE][+OFFSET]; operators of C++ have a + in their names.
        let (mut name, mut module, mut offset) = (text, None, 0);
        for _ in 0..2 {
            if let Some((before, number)) = name.rsplit_once('+')
                && let Some(number) = unsigned(number)
            {
                (name, offset) = (before, number);
            } else if module.is_none()
                && let Some((before, file)) = name.rsplit_once('@')
            {
                if let Some((file, number)) = file.rsplit_once('+')
                    && let Some(number) = unsigned(number)
                {
                    (name, module, offset) = (before, Some(file), number);
                } else {
                    (name, module) = (before, Some(file));
                }
            }
        }
        let is_pattern = name.contains(['*', '?', '[', '{', '\\']) && !name.contains("operator");
        if name.is_empty() || is_pattern {
            return Err(format!(
                "{}: a probe is at one place: FUNCTION, FUNCTION+OFFSET, FILE:LINE or an address",
                quoted(text)
            ));
        }
        Ok(Spot::Named {
            name: name.to_owned(),
            module: module.map(str::to_owned),
            offset,
        })
    }
}

impl fmt::Display for Spot {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Spot::Address(address) => write!(out, "{address:#x}"),
            Spot::Line { file, line } => write!(out, "{file}:{line}"),
            Spot::Named {
                name,
                module,
                offset,
            } => {
                out.write_str(name)?;
                if *offset > 0 {
                    write!(out, "+{offset:#x}")?;
                }
                match module {
                    Some(module) => write!(out, "@{module}"),
                    None => Ok(()),
                }
            }
        }
    }
}

impl Fetched {
    /// `[NAME=]VALUE[:TYPE]`; `index` numbers it where it has no name of its own.
    fn parsed(text: &str, index: usize) -> Result<Fetched, String> {
        let bad = |what: &str| format!("{}: {what}", quoted(text));
        let (name, rest) = match text.split_once('=') {
            Some((name, rest)) => (Some(name), rest),
            None => (None, text),
        };
        let (value, kind) = match rest.rsplit_once(':') {
            Some((value, kind)) => {
                let known = Shown::parsed(kind);
                let known = known.ok_or_else(|| {
                    bad("a type is s8, s16, s32, s64, the same with u or x, or string")
                })?;
                (value, Some(known))
            }
            None => (rest, None),
        };
        let source = Source::parsed(value).map_err(|what| bad(&what))?;
        let name = match (name, &source) {
            (Some(name), _) => name.to_owned(),
            (None, Source::Register(_) | Source::Argument(_) | Source::InstructionPointer) => {
                value[1..].to_owned()
            }
            (None, Source::Variable(path)) => path.word(),
            (None, _) => format!("arg{}", index + 1),
        };
        if !is_identifier(&name) {
            return Err(bad("a value's name is of letters, digits and underscores"));
        }
        Ok(Fetched { name, source, kind })
    }
}

impl fmt::Display for Fetched {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}={}", self.name, self.source)?;
        match self.kind {
            Some(kind) => write!(out, ":{kind}"),
            None => Ok(()),
        }
    }
}

impl Source {
    fn parsed(text: &str) -> Result<Source, String> {
        if let Some(name) = text.strip_prefix(['$', '%']) {
            return register(name).ok_or_else(|| {
                "registers are $ax $bx $cx $dx $si $di $bp $sp $r8 to $r15 and $ip; where a function begins, \
                 $arg1 to $arg6; where it returns, $retval"
                    .to_owned()
            });
        }
        if let Some(address) = text.strip_prefix('@') {
            let address = unsigned(address);
            return address
                .map(Source::At)
                .ok_or_else(|| "behind @ stands an address".to_owned());
        }
        if let Some((offset, inner)) = text.split_once('(')
            && let Some(inner) = inner.strip_suffix(')')
        {
            let offset = signed(offset).ok_or("before ( stands an offset, such as +8")?;
            let inner = Source::parsed(inner)?;
            if inner.loads() >= MOST_LOADS {
                return Err(format!("memory is followed up to {MOST_LOADS} times"));
            }
            return Ok(Source::Memory(offset, Box::new(inner)));
        }
        VariablePath::parsed(text).map(Source::Variable).ok_or_else(|| {
            "a value is a register ($di), memory (+8($si)), a variable or a part of it (queue.head->length, values[3])"
                .to_owned()
        })
    }

    /// The number of loads of memory for it.
    fn loads(&self) -> usize {
        match self {
            Source::Memory(_, inner) => inner.loads() + 1,
            Source::At(_) => 1,
            _ => 0,
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Register(number @ 0..8) => write!(out, "${}", REGISTERS[usize::from(*number)]),
            Source::Register(number) => write!(out, "$r{number}"),
            Source::Argument(index) => write!(out, "$arg{}", index + 1),
            Source::InstructionPointer => out.write_str("$ip"),
            Source::At(address) => write!(out, "@{address:#x}"),
            Source::Memory(offset, inner) => write!(out, "{offset:+}({inner})"),
            Source::Variable(path) => write!(out, "{path}"),
        }
    }
}

impl Source {
    /// The register of an argument, from 0 on.
    pub fn register_of_argument(index: u8) -> u8 {
        ARGUMENTS[usize::from(index) % ARGUMENTS.len()]
    }
}

fn register(name: &str) -> Option<Source> {
    if let Some(number) = name.strip_prefix("arg") {
        let number: u8 = number.parse().ok()?;
        return (1..=6)
            .contains(&number)
            .then(|| Source::Argument(number - 1));
    }
    if name == "retval" {
        return Some(Source::Register(0));
    }
    if ["ip", "rip"].contains(&name) {
        return Some(Source::InstructionPointer);
    }
    if let Some(number) = name.strip_prefix('r')
        && let Ok(number) = number.parse::<u8>()
    {
        return (8..16)
            .contains(&number)
            .then_some(Source::Register(number));
    }
    let plain = name.strip_prefix('r').unwrap_or(name);
    let number = REGISTERS.iter().position(|register| *register == plain)?;
    Some(Source::Register(number as u8))
}

impl Shown {
    fn parsed(text: &str) -> Option<Shown> {
        let bits = |text: &str| {
            let bits = text.parse().ok()?;
            [8, 16, 32, 64].contains(&bits).then_some(bits)
        };
        match text.split_at_checked(1)? {
            ("s", "tring") => Some(Shown::Text),
            ("s", rest) => bits(rest).map(Shown::Signed),
            ("u", rest) => bits(rest).map(Shown::Unsigned),
            ("x", rest) => bits(rest).map(Shown::Hexadecimal),
            _ => None,
        }
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shown::Signed(bits) => write!(out, "s{bits}"),
            Shown::Unsigned(bits) => write!(out, "u{bits}"),
            Shown::Hexadecimal(bits) => write!(out, "x{bits}"),
            Shown::Text => out.write_str("string"),
        }
    }
}

/// The text of a command that makes the probe.
impl fmt::Display for Probe {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = word(&self.place.to_string());
        let way = match self.way {
            Way::Jump => "",
            Way::Breakpoint => "breakpoint ",
            Way::Auto => "auto ",
            Way::Return => "return ",
        };
        write!(out, "probe {way}{place} new {}", word(&self.name))?;
        for (index, value) in self.fetched.iter().enumerate() {
            let before = if index == 0 { " fetch " } else { " " };
            write!(out, "{before}{value}")?;
        }
        Ok(())
    }
}

fn is_identifier(text: &str) -> bool {
    let mut letters = text.bytes();
    letters
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == b'_')
}

fn unsigned(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) if !digits.starts_with('+') => u64::from_str_radix(digits, 16).ok(),
        _ if text.starts_with('+') => None,
        _ => text.parse().ok(),
    }
}

fn signed(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let value = match digits {
        "" => 0,
        digits => i64::try_from(unsigned(digits)?).ok()?,
    };
    Some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(text: &str) -> Result<Probe, String> {
        match crate::command::parse(&format!("probe {text}"))? {
            Some(crate::command::Command::Probe(probe)) => Ok(probe),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_probe_reads_back_as_it_was_written() {
        for text in [
            "parse_query+0x1c new p fetch di=$di arg2=+8($si):string",
            "main new p",
            "return parse new r fetch ax=$ax:s32",
            "breakpoint parse+0x3 new b fetch ax=$ax:s32",
            "auto parse+0x3 new a fetch ax=$ax:s32",
            "inflate+0x10@libz.so.1 new z fetch x=-16(+8($bp)):u8 arg1=$arg1",
            "main.c:120 new line fetch count=count queue_head_length=queue.head->length first=values[0]:u8",
            "0x401136 new a fetch where=$ip global=@0x404040:x32",
            "\"operator+(A const&, B)+0x8\" new plus",
        ] {
            let shown = probe(text).unwrap().to_string();
            assert_eq!(shown, format!("probe {text}"));
            assert_eq!(probe(&shown[6..]).unwrap(), probe(text).unwrap());
        }
        let short = probe("f+28@lib fetch %rdi %r9:u8 count")
            .unwrap()
            .to_string();
        assert_eq!(
            short,
            "probe f+0x1c@lib new f+0x1c@lib fetch rdi=$di r9=$r9:u8 count=count"
        );
        let in_it = probe("f fetch request->length").unwrap().to_string();
        assert_eq!(in_it, "probe f new f fetch request_length=request->length");
        assert_eq!(probe("return f").unwrap().name, "f:return");
        assert_eq!(probe("breakpoint f+3").unwrap().name, "f+0x3");
        assert_eq!(probe("f@lib+0x1c"), probe("f+0x1c@lib"));
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_could() {
        for (text, said) in [
            ("*", "one place"),
            ("f fetch $zx", "registers are"),
            ("f fetch $r16", "registers are"),
            ("f fetch $arg7", "registers are"),
            ("f fetch 8($di", "a value is"),
            ("f fetch x(x($di))", "offset"),
            ("f fetch +0(+0(+0(+0(+0(+0(+0($di)))))))", "6 times"),
            ("f fetch request->", "a value is"),
            ("f fetch values[-1]", "a value is"),
            ("f fetch a->b x=a->b a.b", "two values are named \"a_b\""),
            ("f fetch $di:u9", "a type is"),
            ("f fetch a-b=$di", "letters"),
            ("f fetch $di $di", "two values"),
            ("f fetch", "ARGS"),
            ("f new", "NAME"),
            ("", "WHERE"),
            (
                "f fetch $di a=$di b=$di c=$di d=$di e=$di f=$di g=$di h=$di i=$di j=$di k=$di l=$di",
                "up to 12",
            ),
        ] {
            let error = probe(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
