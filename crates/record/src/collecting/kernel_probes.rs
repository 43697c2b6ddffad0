//! Probes at instructions of the kernel, by its module.

use crate::sites::values::{Surroundings, fields_with_missing, value};
use anyhow::{Context, Error, Result, bail, ensure};
use nopal_agent::Fetch;
use nopal_control::{Fetched, Probe, Spot, Way};
use nopal_kernel::{Device, Symbols};
use nopal_symbols::{Variable, VariablePath};
use nopal_trace::{Field, Note};
use zerocopy::IntoBytes;

/// Places that an error names.
const MOST_NAMED: usize = 8;

/// A probe whose place and values have been found.
pub struct KernelProbe {
    probe: Probe,
    place: Location,
    fetches: Vec<Fetch>,
    fields: Vec<Field>,
}

struct Location {
    address: u64,
    /// `FUNCTION+0xOFFSET@MODULE`
    name: String,
    begins_function: bool,
}

impl KernelProbe {
    /// Parses `WHERE [new NAME] [fetch ARGS]`.
    pub fn parsed(text: &str, symbols: &Symbols) -> Result<KernelProbe> {
        let probe = nopal_control::probe(text).map_err(Error::msg)?;
        let name = probe.name.clone();
        KernelProbe::of(probe, symbols).with_context(|| format!("probe {name}"))
    }

    fn of(probe: Probe, symbols: &Symbols) -> Result<KernelProbe> {
        ensure!(
            probe.way != Way::Return,
            "the return of a function of the kernel is recorded with its calls, and its result with --args"
        );
        ensure!(
            probe.way != Way::Breakpoint,
            "the kernel itself chooses between a breakpoint and a jump"
        );
        let place = find(&probe.place, symbols)?;
        let mut fetches = Vec::new();
        let mut fields = Vec::new();
        let mut values = Vec::new();
        for fetched in &probe.fetched {
            let (found, field) =
                value(fetched, &probe, &place).with_context(|| fetched.source.to_string())?;
            fetches.push(found.fetch);
            values.push(found);
            fields.push(field);
        }
        Ok(KernelProbe {
            probe,
            place,
            fetches,
            fields: fields_with_missing(fields, &values),
        })
    }

    /// Has the module make it, off. Returns its event.
    pub fn make(&self, device: &mut Device) -> Result<u32> {
        let made = device.probe(
            &self.probe.to_string(),
            self.place.address,
            self.fetches.as_bytes(),
            self.fetches.len(),
        );
        made.with_context(|| format!("probe {} at {}", self.probe.name, self.place.name))
    }

    pub fn name(&self) -> &str {
        &self.probe.name
    }

    /// Its note in the trace.
    pub fn note(&self, event: u32, image: u32) -> Note {
        let words: Vec<String> = self.probe.fetched.iter().map(Fetched::to_string).collect();
        Note::Marker {
            event,
            image,
            name: self.probe.name.clone(),
            format: words.join(" "),
            file: self.place.name.clone(),
            line: 0,
            tracepoint: false,
            fields: self.fields.clone(),
        }
    }
}

impl Surroundings for Location {
    fn address(&self) -> u64 {
        self.address
    }

    fn begins_function(&self) -> Result<bool> {
        Ok(self.begins_function)
    }

    fn variable(&self, _: &VariablePath) -> Result<Variable> {
        bail!(
            "of the kernel, registers and memory are fetched ($di, +8($si)): variables are not known"
        )
    }
}

fn find(spot: &Spot, symbols: &Symbols) -> Result<Location> {
    let address = match spot {
        Spot::Line { .. } => bail!(
            "{spot}: a place in the kernel is FUNCTION, FUNCTION+OFFSET, either of them with @MODULE, or an address"
        ),
        Spot::Address(address) => *address,
        Spot::Named {
            name,
            module,
            offset,
        } => named(spot, name, module.as_deref(), *offset, symbols)?,
    };
    let function = symbols
        .span_at(address)
        .and_then(|span| span.names().next());
    let function =
        function.with_context(|| format!("{address:#x} is in no function of the kernel"))?;
    let mut name = function.name.to_owned();
    if address > function.address {
        name += &format!("+{:#x}", address - function.address);
    }
    if !function.module.is_empty() {
        name += &format!("@{}", function.module);
    }
    Ok(Location {
        address,
        name,
        begins_function: address == function.address,
    })
}

fn named(
    spot: &Spot,
    name: &str,
    module: Option<&str>,
    offset: u64,
    symbols: &Symbols,
) -> Result<u64> {
    let is_module = |own: &str| {
        module.is_none_or(|wanted| own == wanted || own.is_empty() && wanted == "kernel")
    };
    let spans = symbols.code();
    let has_name = |span: &nopal_kernel::Span<'_>| {
        span.names()
            .any(|symbol| symbol.name == name && is_module(symbol.module))
    };
    let found: Vec<_> = spans.filter(has_name).collect();
    match found[..] {
        [] => bail!("no function of the kernel is named {spot}"),
        [span] => {
            ensure!(
                span.contains(span.address + offset),
                "{name} is {} bytes long",
                span.end.unwrap_or(span.address) - span.address
            );
            Ok(span.address + offset)
        }
        _ => {
            let places = found.iter().take(MOST_NAMED);
            let places: Vec<String> = places.map(|span| format!("{:#x}", span.address)).collect();
            bail!("{name} is at several places: {}", places.join(" "))
        }
    }
}
