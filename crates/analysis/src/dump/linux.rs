//! Lines as tracers of Linux write them. A `-` stands for a value that is not recorded.

use std::cell::OnceCell;

use nopal_trace::{Clocks, KernelFlags, Trace, kernel_flag as flag};

use super::Look;
use crate::addresses::Addresses;
use crate::callers::Callers;
use crate::calls::Frame;
use crate::names::{Function, Names};
use crate::text::{push_fraction, push_hex, push_hex_short, push_padded, push_u64};

/// The place in a function, before the function's size.
pub const AT_ENTRY: &str = "+0x0/0x";
pub const SOMEWHERE: &str = "+-/0x";

/// A call that begins: of a site, by another one.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub site: u32,
    /// `None` also where it would be one of which only the entry was recorded: it may have ended before.
    pub caller: Option<u32>,
    /// 0 where it was not recorded.
    pub return_address: u64,
}

impl Entry {
    /// Of a call in others, the outermost of them first.
    pub fn of(frame: &Frame, under: &[Frame], return_address: u64) -> Entry {
        Entry {
            site: frame.site(),
            caller: under
                .last()
                .filter(|frame| frame.has_end())
                .map(Frame::site),
            return_address,
        }
    }
}

/// The state of a thread, where it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// The processor that it runs on.
    pub processor: Option<u32>,
    /// Whether it blocks signals.
    pub signals: Option<bool>,
    /// Whether it is known to be in a handler of a signal.
    pub is_handler: bool,
    /// Locks that it holds.
    pub locks: Option<usize>,
    /// The state of a kernel event's processor, instead of the last three.
    pub kernel: Option<KernelFlags>,
}

/// The kernel's columns: interrupts off, a switch pending, in an interrupt, depth of preemption off.
fn kernel_columns(kernel: KernelFlags) -> String {
    let has = |flag: u8| kernel.flags & flag != 0;
    let interrupts = match (has(flag::IRQS_OFF), has(flag::BH_OFF)) {
        (true, true) => 'D',
        (true, false) => 'd',
        (false, true) => 'b',
        (false, false) => '.',
    };
    let [now, lazy, preempt] = [
        flag::NEED_RESCHED,
        flag::NEED_RESCHED_LAZY,
        flag::PREEMPT_RESCHED,
    ]
    .map(has);
    let pending = match (now, lazy, preempt) {
        (true, true, true) => 'B',
        (true, false, true) => 'N',
        (false, true, true) => 'L',
        (true, true, false) => 'b',
        (true, false, false) => 'n',
        (false, true, false) => 'l',
        (false, false, true) => 'p',
        (false, false, false) => '.',
    };
    let inside = match (has(flag::NMI), has(flag::HARDIRQ), has(flag::SOFTIRQ)) {
        (true, true, _) => 'Z',
        (true, false, _) => 'z',
        (false, true, true) => 'H',
        (false, true, false) => 'h',
        (false, false, true) => 's',
        (false, false, false) => '.',
    };
    // The bits above hold how deep migration is off.
    let depth = match kernel.preempt_count & 0xf {
        0 => ".".to_owned(),
        depth => format!("{depth:x}"),
    };
    format!("{interrupts}{pending}{inside}{depth}")
}

impl Flags {
    /// CPU, signals blocked, a switch pending, in a handler, locks held; `-` for what is not known, `.` for none.
    fn columns(self) -> String {
        if let Some(kernel) = self.kernel {
            return format!("{}{}", self.processor(), kernel_columns(kernel));
        }
        let locks = match self.locks {
            None => '-',
            Some(0) => '.',
            Some(count @ 1..=9) => char::from(b'0' + count as u8),
            Some(_) => '*',
        };
        let signals = match self.signals {
            None => '-',
            Some(false) => '.',
            Some(true) => 'd',
        };
        let handler = if self.is_handler { 'h' } else { '-' };
        format!("{}{signals}-{handler}{locks}", self.processor())
    }

    /// As a number: the kernel's flags, or 1 where signals are blocked, 4 in a handler; `-` where neither is known.
    fn bits(self) -> String {
        if let Some(kernel) = self.kernel {
            return kernel.flags.to_string();
        }
        let bits = match (self.signals, self.is_handler) {
            (None, false) => "-",
            (None | Some(false), true) => "4",
            (Some(false), false) => "0",
            (Some(true), false) => "1",
            (Some(true), true) => "5",
        };
        bits.to_owned()
    }

    /// Locks that are held, or the kernel's count of preemption off.
    fn depth(self) -> Option<u64> {
        let preempt_count = self.kernel.map(|kernel| u64::from(kernel.preempt_count));
        preempt_count.or(self.locks.map(|locks| locks as u64))
    }

    fn processor(self) -> String {
        self.processor
            .map_or_else(|| "-".to_string(), |processor| processor.to_string())
    }
}

/// The time and the place of a line.
pub struct Moment<'a> {
    pub comm: &'a str,
    pub thread: u32,
    pub process: u32,
    /// The line's number, from 0.
    pub number: u64,
    pub clock: u64,
    /// The clock of the next line.
    pub next: u64,
    pub flags: Flags,
}

/// The content of a line of a latency trace.
pub enum LineContent {
    Call(Entry, &'static str),
    /// Text that is printable.
    Text(Vec<u8>),
}

pub struct LineWriter<'a> {
    look: Look,
    names: Names,
    addresses: Addresses,
    trace: &'a Trace,
    /// Once a return address is met.
    callers: OnceCell<Callers<'a>>,
    clocks: &'a Clocks,
    begin_ns: u64,
    /// The file whose functions need no module behind their names. Without it, none have one.
    pub executable: Option<String>,
}

impl<'a> LineWriter<'a> {
    /// Times count from `begin_ns` of CLOCK_MONOTONIC.
    pub fn new(trace: &'a Trace, look: Look, begin_ns: u64) -> LineWriter<'a> {
        LineWriter {
            look,
            names: Names::new(trace),
            trace,
            callers: OnceCell::new(),
            addresses: Addresses::new(trace),
            clocks: trace.clocks(),
            begin_ns,
            executable: None,
        }
    }

    pub fn simple(&self, text: &mut Vec<u8>, moment: &Moment, entry: &Entry) {
        push_simple(text, moment);
        self.push_place(text, moment, entry.site, AT_ENTRY);
        text.extend_from_slice(b" <-- ");
        self.push_caller(text, moment, entry);
    }

    /// As [`LineWriter::simple`], for a line without a call: `content` is printable.
    pub fn simple_text(&self, text: &mut Vec<u8>, moment: &Moment, content: &[u8]) {
        push_simple(text, moment);
        text.extend_from_slice(content);
    }

    /// `comm pid CPU flags locks number [microseconds] since the begin (+until the next): function (caller)`.
    pub fn verbose(&self, text: &mut Vec<u8>, moment: &Moment, content: &LineContent) {
        push_padded(text, 16, |text| {
            text.extend_from_slice(moment.comm.as_bytes());
        });
        text.push(b' ');
        push_padded(text, 5, |text| push_u64(text, u64::from(moment.thread)));
        text.push(b' ');
        text.extend_from_slice(moment.flags.processor().as_bytes());
        text.extend_from_slice(format!(" {} ", moment.flags.bits()).as_bytes());
        match moment.flags.depth() {
            Some(depth) => push_hex_digits(text, depth),
            None => text.push(b'-'),
        }
        text.push(b' ');
        push_hex_digits(text, moment.number);
        let now = self.clocks.monotonic_ns(moment.clock);
        let next = self.clocks.monotonic_ns(moment.next);
        text.extend_from_slice(b" [");
        push_hex_digits(text, now / 1000);
        text.extend_from_slice(b"] ");
        push_fraction(text, now.saturating_sub(self.begin_ns) / 1000);
        text.extend_from_slice(b"ms (+");
        push_fraction(text, next.saturating_sub(now) / 1000);
        text.extend_from_slice(b"ms): ");
        self.push_content(text, moment, content);
    }

    /// `comm-pid flags time and mark: function (caller)`: the mark tells that the next line comes more than 1 us (`+`)
    /// or 100 us (`!`) later.
    pub fn short(&self, text: &mut Vec<u8>, moment: &Moment, content: &LineContent) {
        let comm: String = moment.comm.chars().take(8).collect();
        let thread = moment.thread;
        let [now, next] = [moment.clock, moment.next].map(|clock| self.clocks.monotonic_ns(clock));
        let mark = match next.saturating_sub(now) / 1000 {
            101.. => '!',
            2.. => '+',
            _ => ' ',
        };
        let time = now.saturating_sub(self.begin_ns) / 1000;
        let flags = moment.flags.columns();
        let columns = format!("{comm:>8}-{thread:<5} {flags} {time:>4}us{mark}: ");
        text.extend_from_slice(columns.as_bytes());
        self.push_content(text, moment, content);
    }

    fn push_content(&self, text: &mut Vec<u8>, moment: &Moment, content: &LineContent) {
        match content {
            LineContent::Call(entry, offset) => {
                self.push_place(text, moment, entry.site, offset);
                text.extend_from_slice(b" (");
                self.push_caller(text, moment, entry);
                text.push(b')');
            }
            LineContent::Text(content) => text.extend_from_slice(content),
        }
    }

    fn push_caller(&self, text: &mut Vec<u8>, moment: &Moment, entry: &Entry) {
        let address = entry.return_address;
        let caller = match address {
            0 => None,
            _ => {
                let (process, clock) = (moment.process, moment.clock);
                let callers = self.callers.get_or_init(|| Callers::new(self.trace));
                callers.find(&self.names, process, address, clock)
            }
        };
        match (caller, entry.caller) {
            (Some(caller), _) => {
                let offset = format!("+{:#x}/0x", caller.offset);
                self.push_function(text, &caller.function, &offset, || address);
            }
            (None, Some(caller)) => self.push_place(text, moment, caller, SOMEWHERE),
            (None, None) => text.push(b'-'),
        }
    }

    pub fn push_place(&self, text: &mut Vec<u8>, moment: &Moment, site: u32, offset: &str) {
        let address = || self.addresses.address(moment.process, site, moment.clock);
        self.push_function(text, self.names.function(site), offset, address);
    }

    fn push_function(
        &self,
        text: &mut Vec<u8>,
        function: &Function,
        offset: &str,
        address: impl FnOnce() -> u64,
    ) {
        text.extend_from_slice(function.name.as_bytes());
        text.extend_from_slice(offset.as_bytes());
        push_hex_short(text, function.size);
        if let Some(executable) = &self.executable
            && function.path != *executable
        {
            text.extend_from_slice(format!(" [{}]", function.module).as_bytes());
        }
        if self.look.addresses {
            text.extend_from_slice(b" <");
            match offset {
                SOMEWHERE => text.push(b'-'),
                _ => push_hex_short(text, address()),
            }
            text.push(b'>');
        }
    }
}

/// `CPU 1: comm:thread `
fn push_simple(text: &mut Vec<u8>, moment: &Moment) {
    let processor = moment.flags.processor();
    let (comm, thread) = (moment.comm, moment.thread);
    text.extend_from_slice(format!("CPU {processor}: {comm}:{thread} ").as_bytes());
}

/// Eight hexadecimal digits, the lower ones.
fn push_hex_digits(text: &mut Vec<u8>, value: u64) {
    let begin = text.len();
    push_hex(text, value);
    text.drain(begin..begin + 8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_the_kernels() {
        let columns = |flags, preempt_count| {
            let kernel = Some(KernelFlags {
                flags,
                preempt_count,
            });
            let flags = Flags {
                processor: Some(1),
                signals: Some(true),
                kernel,
                ..Flags::default()
            };
            (flags.columns(), flags.bits(), flags.depth())
        };
        let is = |columns: &str, bits: &str, depth| (columns.into(), bits.into(), Some(depth));
        assert_eq!(columns(0, 0), is("1....", "0", 0));
        assert_eq!(columns(0x01, 1), is("1d..1", "1", 1));
        assert_eq!(columns(0x25, 0x12), is("1dN.2", "37", 0x12));
        assert_eq!(columns(0x98, 0x0f), is("1b.Hf", "152", 15));
        assert_eq!(columns(0x42, 3), is("1.lz3", "66", 3));
    }
}
