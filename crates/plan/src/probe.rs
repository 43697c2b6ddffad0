//! Sites at any instruction of a function: whether a jump there may displace instructions.
//!
//! Unlike at a function's start, the function itself may jump into the bytes that the jump needs. So the targets of its
//! computed jumps must be known: through tables that the sweep has followed, or as addresses in memory. A window of one
//! instruction can have no jump into it.

use std::fmt;

use anyhow::Result;
use gimli::UnwindContext;
use nopal_symbols::{Function, Image};

use crate::arch::{BREAKPOINT, Instructions, Loops, relocate};
use crate::judge::{self, Judge};
use crate::{How, JUMP, LONGEST_WINDOW, Reason, Site};

/// The reason why there can be no probe at an address. Addresses are those in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unprobed {
    /// It is in no function.
    NoFunction,
    /// It is inside an instruction, which begins at `before`; the next one begins at `after`.
    WithinInstruction { before: u64, after: u64 },
    /// The function may not be patched.
    Untouchable(Reason),
    /// The bytes that the jump needs.
    Bytes(Reason),
    /// A computed jump of the function, at this address, may lead into the bytes that the jump needs.
    UnknownTargets { jump: u64 },
    /// A thread may wait in a system call for long, in displaced instructions that could not be freed meanwhile.
    SystemCall,
}

impl fmt::Display for Unprobed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Unprobed::NoFunction => out.write_str("there is no function"),
            Unprobed::WithinInstruction { before, after } => write!(
                out,
                "it is inside an instruction: the nearest ones begin at {before:#x} and {after:#x}"
            ),
            Unprobed::Untouchable(reason) => {
                write!(out, "its function may not be patched: {}", reason.text())
            }
            Unprobed::Bytes(reason) => out.write_str(match reason {
                Reason::TooShort => "the function ends within the bytes that a jump needs",
                Reason::EnteredInside => "a jump leads into the bytes that a jump needs",
                Reason::Undecodable => "the instructions there are unknown",
                Reason::Traps => "an instruction traps",
                Reason::Immovable => "an instruction there cannot run elsewhere",
                Reason::RestartableSequence => "it is in a restartable sequence (rseq)",
                Reason::TextRelocation => "the loader changes these bytes",
                Reason::HandlesFaults => "faults of these instructions are handled as exceptions",
                Reason::Transaction => "a hardware transaction begins there",
                other => other.text(),
            }),
            Unprobed::UnknownTargets { jump } => write!(
                out,
                "the computed jump at {jump:#x} may lead into the bytes that a jump needs"
            ),
            Unprobed::SystemCall => {
                out.write_str("there is a system call, in which a thread may wait for long")
            }
        }
    }
}

impl std::error::Error for Unprobed {}

/// An instruction, and the verdicts on a probe there: by a jump, and by a breakpoint.
pub struct Judged {
    pub address: u64,
    pub site: Result<Site, Unprobed>,
    pub breakpoint: bool,
}

/// Judges places of one file.
pub struct Probes<'a, 'b> {
    judge: &'a Judge<'b>,
}

/// Reads all of the file's code once, and lets `work` query places in it.
pub fn probes<T>(image: &Image, work: impl FnOnce(&Probes) -> Result<T>) -> Result<T> {
    judge::with(image, image.functions()?, |judge| work(&Probes { judge }))
}

impl Probes<'_, '_> {
    /// The site of a jump at an instruction.
    pub fn site(&self, address: u64) -> Result<Site, Unprobed> {
        self.site_of(address, JUMP)
    }

    /// The same for a breakpoint, which needs one byte: the window is one instruction.
    pub fn breakpoint(&self, address: u64) -> Result<Site, Unprobed> {
        self.site_of(address, BREAKPOINT)
    }

    fn site_of(&self, address: u64, least: usize) -> Result<Site, Unprobed> {
        let function = self.function(address)?;
        let code = self.function_code(function);
        code.begins_at(address)?;
        self.judged(function, &code, address, least)
    }

    /// The same for all instructions of the function that has an address.
    pub fn of_function(&self, address: u64) -> Result<Vec<Judged>, Unprobed> {
        let function = self.function(address)?;
        let code = self.function_code(function);
        let judged = code.addresses().map(|address| {
            let site = self.judged(function, &code, address, JUMP);
            // If a jump fits, so does one byte.
            let breakpoint =
                site.is_ok() || self.judged(function, &code, address, BREAKPOINT).is_ok();
            Judged {
                address,
                site,
                breakpoint,
            }
        });
        Ok(judged.collect())
    }

    fn function(&self, address: u64) -> Result<&Function, Unprobed> {
        let found = self.judge.image.function_at(address).ok().flatten();
        found.ok_or(Unprobed::NoFunction)
    }

    /// Its instructions, up to the first that is none.
    fn function_code(&self, function: &Function) -> Instructions {
        let Some(range) = self.judge.code.range(function.address) else {
            return Instructions::default();
        };
        let begin = (function.address - range.address) as usize;
        let size = usize::try_from(function.size.max(1)).unwrap_or(usize::MAX);
        let bytes = &range.bytes[begin..begin.saturating_add(size).min(range.bytes.len())];
        Instructions::of(bytes, function.address)
    }

    fn judged(
        &self,
        function: &Function,
        code: &Instructions,
        address: u64,
        least: usize,
    ) -> Result<Site, Unprobed> {
        let judge = self.judge;
        if let Some(reason) = judge.special(function) {
            return Err(Unprobed::Untouchable(reason));
        }
        if judge.is_resolver(function) {
            return Err(Unprobed::Untouchable(Reason::Resolver));
        }
        let end = function.address.saturating_add(function.size.max(1));
        let window = judge
            .window(address, end - address, least)
            .map_err(Unprobed::Bytes)?;
        let number = judge.code.number(address);
        let number = number.ok_or(Unprobed::Bytes(Reason::Undecodable))?;
        let mut inside = number + 1..number + window.bytes.len();
        if inside.any(|number| judge.flow.reached.get(number)) {
            return Err(Unprobed::Bytes(Reason::EnteredInside));
        }
        if !window.is_one_instruction()
            && let Some(jump) = code.unknown_jump()
        {
            return Err(Unprobed::UnknownTargets { jump });
        }
        if window.waits() {
            return Err(Unprobed::SystemCall);
        }
        judge.refuse_touched(&window).map_err(Unprobed::Bytes)?;
        let rules = judge.frames.rules_within(
            &mut UnwindContext::new(),
            address,
            window.bytes.len() as u64,
        );
        let rules = rules.map_err(Unprobed::Bytes)?;
        let mut expected = [0; LONGEST_WINDOW];
        expected[..window.bytes.len()].copy_from_slice(window.bytes);
        Ok(Site {
            name: "".into(),
            address,
            size: window.bytes.len() as u64,
            window: window.bytes.len() as u8,
            expected,
            how: How::Jump,
            hole: None,
            keeps_frame: false,
            walks_frames: false,
            entries_only: None,
            body: relocate(&window, &rules, Loops::ToSite).map_err(Unprobed::Bytes)?,
        })
    }
}
