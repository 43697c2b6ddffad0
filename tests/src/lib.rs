//! The common parts of the end-to-end tests: they compile programs, run them untraced and traced, and compare the
//! results.
//!
//! A test that cannot do its work panics: there is nothing to go on with.

mod attached_program;
mod case;
mod compile;
mod guest;
pub mod kernel;
pub mod kernel_cost;
pub mod mounted;
mod node_packages;
mod paths;
pub mod process;
mod processors;
mod report;
mod run;
pub mod terminal;

pub use attached_program::AttachedProgram;
pub use case::{Case, Recording, difference, without_own_words};
pub use compile::{Program, c, compile, compile_copy, copies, cxx, example, library, rust};
pub use guest::{Guest, run_in_guest};
pub use node_packages::node_packages;
pub use paths::{name_without_blanks, nopal, scratch, shell_word, sources, target_directory};
pub use processors::Awake;
pub use report::{Report, announced_calls, expected_calls, passed, wait_for_end};
pub use run::{End, Ended, Running, Start};
