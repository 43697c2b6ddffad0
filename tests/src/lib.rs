//! What the end-to-end tests share: programs are compiled, run untraced and traced, and what they did is compared.
//!
//! A test that cannot do its work panics: there is nothing to go on with.

mod case;
mod compile;
mod desk;
mod guest;
pub mod mounted;
mod places;
pub mod process;
mod processors;
mod report;
mod run;
pub mod terminal;

pub use case::{Case, Traced, difference, without_own_words};
pub use compile::{Program, c, compile, compile_copy, copies, cxx, example, library, rust};
pub use desk::Desk;
pub use guest::run_in_guest;
pub use places::{name_without_blanks, nopal, scratch, shell_word, sources, target_directory};
pub use processors::Awake;
pub use report::{Report, announced_calls, expected_calls, passed};
pub use run::{End, Ended, Running, Start};
