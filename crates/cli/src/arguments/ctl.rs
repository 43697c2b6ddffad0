//! Control of a process, or of the kernel.

use clap::Args;

/// Control the tracing of a process, or of the kernel, by commands
///
/// Without commands, and if standard input is a terminal or empty, this prints the state as commands. Given to
/// `nopal ctl` again, for a process of the same program, they restore the state. For the kernel, `nopal ctl kernel
/// load` comes first: it tells nopal's module which functions the kernel has.
#[derive(Debug, Args)]
pub struct Ctl {
    /// A process that `nopal record` or `nopal attach` traces; or `kernel`, for the running kernel, where nopal's
    /// module is loaded (root only)
    #[arg(value_name = "PID|kernel", value_parser = Whose::parse)]
    pub whose: Whose,

    /// The words of one command; or several commands, if one of the arguments has a space [default: standard input]
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<String>,
}

/// The session that is controlled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    Process(i32),
    Kernel,
}

impl Whose {
    fn parse(word: &str) -> Result<Whose, String> {
        match word.parse() {
            Ok(process) if process > 0 => Ok(Whose::Process(process)),
            _ if word == "kernel" => Ok(Whose::Kernel),
            _ => Err("not a process, nor `kernel`".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::{Arguments, Command};
    use clap::Parser;

    fn whose(word: &str) -> Option<Whose> {
        match Arguments::try_parse_from(["nopal", "ctl", word, "trace", "--", "x"]) {
            Ok(arguments) => match arguments.command {
                Command::Ctl(ctl) => Some(ctl.whose),
                other => panic!("{other:?}"),
            },
            Err(_) => None,
        }
    }

    #[test]
    fn a_process_or_the_kernel_is_controlled() {
        assert_eq!(whose("7"), Some(Whose::Process(7)));
        assert_eq!(whose("kernel"), Some(Whose::Kernel));
        for word in ["0", "-7", "kernels", "", "4294967297"] {
            assert_eq!(whose(word), None, "{word}");
        }
    }
}
