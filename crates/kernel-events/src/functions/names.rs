//! The names of the kernel's functions while modules come and go.

use anyhow::Result;
use nopal_kernel::Symbols;
use std::fs;

const MODULES: &str = "/proc/modules";

pub struct Names {
    symbols: Symbols,
    /// The kernel's own code ends there; modules lie beyond.
    end: u64,
    /// The modules that were loaded then.
    modules: String,
}

impl Names {
    pub fn read() -> Result<Names> {
        // Read before the names: a module that comes in between is found to be new later.
        let modules = fs::read_to_string(MODULES).unwrap_or_default();
        let symbols = Symbols::read()?;
        let [end] = symbols.addresses(["_etext"]);
        Ok(Names {
            symbols,
            end: end.unwrap_or(0),
            modules,
        })
    }

    /// The function that contains an address, if known.
    pub fn at(&mut self, address: u64) -> Option<&str> {
        if address >= self.end {
            self.follow_modules();
        }
        Some(self.symbols.at(address)?.name)
    }

    fn follow_modules(&mut self) {
        let modules = fs::read_to_string(MODULES).unwrap_or_default();
        if modules != self.modules
            && let Ok(names) = Names::read()
        {
            *self = names;
        }
    }
}
