//! The reasons why the tool plans no site for a function of the kernel.

/// In the order in which they are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    // By where it is.
    NotInstrumented,
    Blacklisted,
    SwitchesTasks,
    NoSite,

    // By its code.
    Undecodable,
    OtherReturn,
    ShortReturn,
    ShortJump,
    ConditionalExit,
    ComputedTail,
    ComputedJump,
    EntersMiddle,
    Unnamed,
    HandsOverRegister,
    StaticCall,
    FrameRemains,
    EnteredInside,
    SharedPart,
    Changed,
}

impl Reason {
    /// One line, for people.
    pub fn text(self) -> &'static str {
        match self {
            Reason::NotInstrumented => {
                "in the part of the kernel where nothing may be traced (noinstr, entry)"
            }
            Reason::Blacklisted => "the kernel forbids probes in it (its blacklist of kprobes)",
            Reason::SwitchesTasks => "begins in one task and ends in another",
            Reason::NoSite => {
                "has no place for ftrace at its begin: notrace, or written in assembly"
            }
            Reason::Undecodable => "an instruction of it is unknown",
            Reason::OtherReturn => {
                "returns in another way than to its caller (iret, sysret, ret imm16)"
            }
            Reason::ShortReturn => "a return of it has less than five bytes",
            Reason::ShortJump => "a jump by which it leaves has less than five bytes",
            Reason::ConditionalExit => "a conditional jump leaves it",
            Reason::ComputedTail => "leaves by a jump to an address in a register",
            Reason::ComputedJump => "jumps to computed addresses within itself",
            Reason::EntersMiddle => "leaves by a jump into the middle of another function",
            Reason::Unnamed => {
                "leaves by a jump to code that is gone (of the kernel's start), or has no name"
            }
            Reason::HandsOverRegister => "leaves by a jump to the address in r10 or r11",
            Reason::StaticCall => "leaves by a static call, which the kernel itself changes",
            Reason::FrameRemains => "its frame is still there where it seems to leave",
            Reason::EnteredInside => "a jump leads into the five bytes of an exit",
            Reason::SharedPart => "its cold part belongs to another function, too",
            Reason::Changed => "nopal traces it now: its exits have been replaced",
        }
    }
}
