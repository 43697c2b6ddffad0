//! Static probes of `sys/sdt.h` (USDT), which are chosen as markers are, by `PROVIDER:NAME`, and put in as probes are.

use crate::processes::Processes;
use crate::sites::choose::Loaded;
use crate::sites::markers::Wanted;
use crate::sites::probes::Described;
use crate::sites::values::Value;
use crate::tracee::{PatchContext, Tracee};
use anyhow::Result;
use nopal_agent::{FETCH_CONSTANT, Fetch};
use nopal_symbols::{Argument, Image, Probe};
use nopal_trace::{Field, FieldKind};
use std::collections::HashSet;

/// A static probe of a file.
#[derive(Clone)]
pub struct StaticProbe {
    /// Its own among all probes of the session.
    pub key: String,
    /// The number of its file.
    pub file: u32,
    pub probe: Probe,
}

impl StaticProbe {
    fn new(module: &Loaded, probe: Probe) -> StaticProbe {
        let (file, address) = (module.file.index, probe.address);
        StaticProbe {
            key: format!("{file}:{address:#x}:{}:{}", probe.provider, probe.name),
            file,
            probe,
        }
    }

    pub fn name(&self) -> String {
        named(&self.probe)
    }

    /// Values whose operands are not known are left out; the others keep their numbers.
    pub fn described(&self, image: &Image) -> Described {
        let arguments = self.probe.arguments.iter().enumerate();
        let (mut values, mut fields) = (Vec::new(), Vec::new());
        for (index, argument) in arguments {
            let Some(value) = value(argument, image) else {
                continue;
            };
            values.push(value);
            fields.push(Field {
                name: format!("argument{}", index + 1),
                kind: match argument.signed {
                    true => FieldKind::Signed(argument.bits),
                    false if argument.bits == 64 => FieldKind::Hexadecimal(64),
                    false => FieldKind::Unsigned(argument.bits),
                },
                labels: Vec::new(),
            });
        }
        let words: Vec<String> = self
            .probe
            .arguments
            .iter()
            .map(ToString::to_string)
            .collect();
        Described {
            breaks: false,
            no_jump: None,
            name: self.name(),
            format: words.join(", "),
            line: 0,
            values,
            fields,
            call: None,
            semaphore: self.probe.semaphore,
        }
    }
}

fn named(probe: &Probe) -> String {
    format!("{}:{}", probe.provider, probe.name)
}

/// The selected static probes of a module. A pattern selects static probes only if it has a colon.
fn chosen(wanted: &Wanted, module: &Loaded) -> Vec<StaticProbe> {
    if !wanted.may_choose_static() {
        return Vec::new();
    }
    let probes = module.file.image.probes().into_iter();
    let probes = probes.filter(|probe| wanted.chooses(&named(probe), module));
    probes
        .map(|probe| StaticProbe::new(module, probe))
        .collect()
}

/// The names of those of a module that are wanted.
pub fn names_of_statics(module: &Loaded, wanted: &Wanted) -> impl Iterator<Item = String> {
    chosen(wanted, module).into_iter().map(|probe| probe.name())
}

// ---- operands ----

/// As the assembler wrote it: `%edi`, `16(%rsp)`, `symbol+4(%rip)`, `$5`. No floating point, and no memory by two
/// registers.
fn value(argument: &Argument, image: &Image) -> Option<Value> {
    if argument.float {
        return None;
    }
    let mut fetch = Fetch {
        bytes: argument.bits / 8,
        ..Fetch::default()
    };
    let mut is_relative = false;
    let operand = argument.operand.as_str();
    if let Some(constant) = operand.strip_prefix('$') {
        fetch.source = FETCH_CONSTANT;
        fetch.offset[0] = signed(constant)?.cast_unsigned();
    } else if let Some(name) = operand.strip_prefix('%') {
        fetch.source = register(name)?;
    } else {
        let (offset, inner) = operand.strip_suffix(')')?.split_once('(')?;
        let base = inner.strip_prefix('%')?;
        fetch.loads = 1;
        if base == "rip" {
            let (symbol, offset) = match offset.split_once('+') {
                Some((symbol, offset)) => (symbol, signed(offset)?),
                None => (offset, 0),
            };
            fetch.source = FETCH_CONSTANT;
            fetch.offset[0] = image.symbol(symbol)?.wrapping_add_signed(offset);
            is_relative = true;
        } else {
            fetch.source = register(base).filter(|_| base.starts_with('r'))?;
            fetch.offset[0] = signed(offset)?.cast_unsigned();
        }
    }
    Some(Value { fetch, is_relative })
}

/// In the processor's numbering, of any width. `%ah` and its like are in the midst of a register.
fn register(name: &str) -> Option<u8> {
    const WITH_NAMES: [&str; 8] = ["ax", "cx", "dx", "bx", "sp", "bp", "si", "di"];
    if let Some(digits) = name.strip_prefix('r')
        && let Ok(number) = digits.trim_end_matches(['d', 'w', 'b']).parse()
    {
        return (8..16).contains(&number).then_some(number);
    }
    let is = |plain: &&str| -> bool {
        let (plain, bare) = (*plain, name.strip_prefix(['r', 'e']).unwrap_or(name));
        let low = format!(
            "{}l",
            if plain.ends_with('x') {
                &plain[..1]
            } else {
                plain
            }
        );
        bare == plain || name == low
    };
    let number = WITH_NAMES.iter().position(is)?;
    Some(number as u8)
}

fn signed(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let value = match digits.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok()?,
        None if digits.is_empty() => 0,
        None => digits.parse().ok()?,
    };
    Some(if negative { -value } else { value })
}

// ---- in a session ----

impl PatchContext {
    /// Wants the static probes of `modules` that are chosen.
    pub fn want_statics(&mut self, modules: &[Loaded]) {
        for module in modules {
            for probe in chosen(&self.settings.markers, module) {
                self.files.probes.want_static(probe);
            }
        }
    }

    /// Reports the probes that cannot be placed.
    pub fn report_unplaced(&mut self) {
        for notes in std::mem::take(&mut self.files.unplaced) {
            self.warn_once(notes);
        }
    }
}

impl Processes {
    /// Puts in those that are chosen now, and takes the others out.
    pub fn settle_statics(&mut self, context: &mut PatchContext) -> Result<()> {
        let modules: Vec<Loaded> = self.modules().map(|(_, module)| module.clone()).collect();
        let wanted: Vec<StaticProbe> = modules
            .iter()
            .flat_map(|module| chosen(&context.settings.markers, module))
            .collect();
        let keys: HashSet<&str> = wanted.iter().map(|probe| &*probe.key).collect();
        for key in context.files.probes.statics() {
            if keys.contains(&*key) {
                continue;
            }
            for placed in context.files.probes.switch(&key, false) {
                self.in_all(context, |tracee, context| {
                    tracee.remove_probe(&placed, context)
                })?;
            }
            context.files.probes.forget(&key);
        }
        for probe in &wanted {
            context.files.probes.want_static(probe.clone());
        }
        context
            .files
            .place_probes(&modules, &context.shared.writer)?;
        for probe in &wanted {
            for placed in context.files.probes.switch(&probe.key, true) {
                self.in_all(context, |tracee, context| {
                    if let Err(error) = tracee.insert_probe(&placed, context) {
                        context
                            .warnings
                            .push(format!("{} not traced: {error:#}", probe.name()));
                    }
                    tracee.switch_probe(&placed, true)
                })?;
            }
        }
        self.in_all(context, |tracee, context| {
            context.report_unplaced();
            tracee.settle_semaphores(context)
        })
    }
}

impl Tracee {
    /// Adds itself to the listeners of the probes that are in, and takes itself from those of others: programs look at
    /// these numbers before they work out values.
    pub fn settle_semaphores(&mut self, context: &mut PatchContext) -> Result<()> {
        let mut wanted = HashSet::new();
        for module in &self.modules {
            for placed in context.files.probes.of(&module.file) {
                let at = module.base.wrapping_add(placed.site.address);
                let semaphore = placed.semaphore.filter(|_| placed.is_on());
                if let Some(semaphore) = semaphore.filter(|_| self.probe_sites.contains_key(&at)) {
                    wanted.insert(module.base.wrapping_add(semaphore));
                }
            }
        }
        for gone in self.semaphores.difference(&wanted) {
            self.count(*gone, u16::wrapping_sub)?;
        }
        for new in wanted.difference(&self.semaphores) {
            self.count(*new, u16::wrapping_add)?;
        }
        self.semaphores = wanted;
        Ok(())
    }

    /// Lowers the semaphores.
    pub fn release_semaphores(&mut self) {
        for semaphore in std::mem::take(&mut self.semaphores) {
            // A process that has ended needs it no more.
            let _ = self.count(semaphore, u16::wrapping_sub);
        }
    }

    fn count(&self, semaphore: u64, change: fn(u16, u16) -> u16) -> Result<()> {
        let mut bytes = [0; 2];
        self.memory.read(semaphore, &mut bytes)?;
        let changed = change(u16::from_le_bytes(bytes), 1);
        self.memory.write(semaphore, &changed.to_le_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_of_any_width() {
        for (number, names) in [
            (0, "rax eax ax al"),
            (4, "rsp esp sp spl"),
            (7, "rdi edi di dil"),
            (9, "r9 r9d r9w r9b"),
            (15, "r15"),
        ] {
            for name in names.split(' ') {
                assert_eq!(register(name), Some(number), "{name}");
            }
        }
        for wrong in ["ah", "xmm0", "r16", "r7", "rip", "", "e", "st", "fs"] {
            assert_eq!(register(wrong), None, "{wrong}");
        }
    }
}
