//! Records of one thread turned into calls.
//!
//! [`CallRebuilder`] takes the records in order and reports begins and ends of calls to a [`Sink`]. The rules:
//!
//! 1. An exit ends the topmost wrapped frame of equal site and tag. Tail frames above it in the same slot end with it.
//!    Other frames above it were left without an exit, by `longjmp` or for another stack: they are set aside.
//! 2. An exit that matches nothing is looked for among the frames set aside: found there, the thread has gone back to
//!    that stack. Else the call began before tracing: a stray exit.
//! 3. The slot of a frame is known after a RESYNC, and otherwise estimated from its caller's slot downwards by the tag.
//!    The estimate is never below the truth. Slots here count units of 16 bytes.
//! 4. An entry after a jump or a change of stacks, or after loss, belongs to the frames whose nearest slot lies above
//!    its own. Frames below its slot are set aside; they are dead if the entry takes the slot of the outermost of them, as
//!    are frames set aside before.
//! 5. An entry-only frame ends when its slot is entered again or a frame under it ends.
//! 6. Calls in the kernel, which are in packets of their own, nest inside the topmost frame, by the order of their records
//!    alone. Rules 1 to 5 are for calls of the program.
//! 7. Calls that have not ended when the records end are lost: unfinished.
//!
//! Work and memory are bounded for any input: a budget that grows with the records pays for searches and moves
//! among old frames, and frames beyond a limit are lost.

mod arguments;
mod budget;
mod callers;
mod checkpoint;
mod fibers;
mod frame;
mod gaps;
mod kernel;
mod known;
mod past;
mod rebuilder;
mod remaining;
mod runs;
mod slots;
mod stack;
mod stacks;
mod stay;
mod written;

pub use arguments::Arguments;
pub use fibers::Fiber;
pub use frame::{Ending, Frame, Plain, Sink, timed};
pub use nopal_abi::Style;
pub use past::Past;
pub use rebuilder::CallRebuilder;
pub use remaining::Remaining;
pub use runs::RUN;

#[cfg(test)]
mod tests;
