//! The values of a probe: how each is fetched, and how it is shown.

use anyhow::{Context, Result, ensure};
use nopal_agent::{FETCH_CONSTANT, FETCH_LOADS, Fetch};
use nopal_control::{Fetched, Probe, Shown, Source, Way};
use nopal_symbols::{Base, Variable, VariableKind, VariablePath};
use nopal_trace::{Field, FieldKind};

/// A value, for a file that is loaded at 0.
#[derive(Clone, Copy)]
pub struct Value {
    pub fetch: Fetch,
    /// Whether it begins with an address in the file.
    pub is_relative: bool,
}

impl Value {
    /// The register that it is, if it is nothing but one that can be pushed.
    pub fn plain_register(&self) -> Option<u8> {
        const STACK_POINTER: u8 = 4;
        let fetch = self.fetch;
        let plain = fetch.loads == 0 && fetch.text == 0 && fetch.offset[0] == 0 && fetch.shift == 0;
        let is_register = fetch.source < FETCH_CONSTANT && fetch.source != STACK_POINTER;
        (plain && is_register).then_some(fetch.source)
    }

    fn may_be_missing(&self) -> bool {
        self.fetch.loads > 0 || self.fetch.text > 0
    }
}

/// The place of a probe, as its values see it.
pub trait Surroundings {
    /// In a file that is loaded at 0.
    fn address(&self) -> u64;
    fn begins_function(&self) -> Result<bool>;
    fn variable(&self, path: &VariablePath) -> Result<Variable>;
}

/// The fields, with one that says which of the others could not be read, where that may happen.
pub fn fields_with_missing(mut fields: Vec<Field>, values: &[Value]) -> Vec<Field> {
    if values.iter().any(Value::may_be_missing) {
        fields.push(Field {
            name: "missing".into(),
            kind: FieldKind::Missing,
            labels: Vec::new(),
        });
    }
    fields
}

/// The `shape` of these fields, as `runtime/core/mark.h` lays it out.
pub fn shape(fields: &[Field]) -> u64 {
    const VALUES: usize = 8;
    const FETCHED: u64 = 3;
    let numbered = fields.iter().enumerate();
    numbered.fold(fields.len() as u64, |shape, (index, field)| {
        let kind = if field.kind.has_length() { FETCHED } else { 0 };
        shape | kind << (VALUES + 2 * index)
    })
}

/// A value, and the field that it is in.
pub fn value(
    fetched: &Fetched,
    probe: &Probe,
    place: &impl Surroundings,
) -> Result<(Value, Field)> {
    let mut value = Value {
        fetch: Fetch {
            bytes: 8,
            ..Fetch::default()
        },
        is_relative: false,
    };
    let mut labels = Vec::new();
    let mut own_kind = FieldKind::Hexadecimal(64);
    let mut is_text = fetched.kind == Some(Shown::Text);
    // Text stays where it is: the memory that a command names is the text's address.
    match &fetched.source {
        Source::Memory(offset, inner) if is_text => {
            follow(inner, probe, place, &mut value)?;
            add(&mut value.fetch, *offset);
        }
        Source::At(address) if is_text => {
            value.fetch.source = FETCH_CONSTANT;
            value.fetch.offset[0] = *address;
        }
        Source::Variable(path) => {
            let kind = variable(path, place, &mut value)?;
            is_text |= fetched.kind.is_none()
                && matches!(kind, VariableKind::Text | VariableKind::Characters);
            own_kind = match kind {
                VariableKind::Signed(bits) => FieldKind::Signed(bits),
                VariableKind::Unsigned(bits) => FieldKind::Unsigned(bits),
                VariableKind::Character => FieldKind::Character,
                VariableKind::Double => FieldKind::Double,
                VariableKind::Pointer | VariableKind::Text | VariableKind::Characters => {
                    FieldKind::Hexadecimal(64)
                }
                VariableKind::Enumeration {
                    signed,
                    bits,
                    names,
                } => {
                    labels = names;
                    match signed {
                        true => FieldKind::Signed(bits),
                        false => FieldKind::Unsigned(bits),
                    }
                }
            };
        }
        source => follow(source, probe, place, &mut value)?,
    }
    value.fetch.text = is_text.into();
    let kind = match fetched.kind {
        _ if is_text => FieldKind::Text,
        Some(Shown::Signed(bits)) => FieldKind::Signed(bits),
        Some(Shown::Unsigned(bits)) => FieldKind::Unsigned(bits),
        Some(Shown::Hexadecimal(bits)) => FieldKind::Hexadecimal(bits),
        Some(Shown::Text) | None => own_kind,
    };
    value.fetch.bytes = match kind {
        FieldKind::Signed(bits) | FieldKind::Unsigned(bits) | FieldKind::Hexadecimal(bits) => {
            bits / 8
        }
        FieldKind::Character => 1,
        _ => 8,
    };
    let name = fetched.name.clone();
    Ok((value, Field { name, kind, labels }))
}

/// Begins a value with a variable.
fn variable(
    path: &VariablePath,
    place: &impl Surroundings,
    value: &mut Value,
) -> Result<VariableKind> {
    /// The processor's numbers of DWARF's registers.
    const NUMBERS: [u8; 16] = [0, 2, 1, 3, 6, 7, 5, 4, 8, 9, 10, 11, 12, 13, 14, 15];
    let variable = place.variable(path)?;
    let fetch = &mut value.fetch;
    fetch.source = match variable.base {
        Base::Register(register) => {
            let number = NUMBERS.get(usize::from(register));
            *number.context("it is in a register that is not fetched")?
        }
        Base::Address(_) | Base::Nothing => FETCH_CONSTANT,
    };
    fetch.shift = variable.shift;
    for (index, offset) in variable.offsets.iter().enumerate() {
        if index > 0 {
            load(fetch)?;
        }
        add(fetch, *offset);
    }
    if let Base::Address(address) = variable.base {
        fetch.offset[0] = fetch.offset[0].wrapping_add(address);
        value.is_relative = true;
    }
    if variable.is_address && variable.kind != VariableKind::Characters {
        load(&mut value.fetch)?;
    }
    Ok(variable.kind)
}

fn load(fetch: &mut Fetch) -> Result<()> {
    ensure!(
        usize::from(fetch.loads) < FETCH_LOADS,
        "memory is followed up to {FETCH_LOADS} times"
    );
    fetch.loads += 1;
    Ok(())
}

/// Adds an offset to the value found so far.
fn add(fetch: &mut Fetch, offset: i64) {
    let last = &mut fetch.offset[usize::from(fetch.loads)];
    *last = last.wrapping_add_signed(offset);
}

fn follow(
    source: &Source,
    probe: &Probe,
    place: &impl Surroundings,
    value: &mut Value,
) -> Result<()> {
    const LOST_AT_RETURN: [u8; 2] = [1, 4];
    let fetch = &mut value.fetch;
    match source {
        Source::Register(register) => {
            ensure!(
                !(probe.way == Way::Return && LOST_AT_RETURN.contains(register)),
                "at a return, this register is used by nopal; the result is in $ax and $dx"
            );
            fetch.source = *register;
        }
        Source::Argument(index) => {
            ensure!(
                probe.way != Way::Return && place.begins_function()?,
                "arguments are in their registers only where a function begins"
            );
            fetch.source = Source::register_of_argument(*index);
        }
        Source::InstructionPointer => {
            fetch.source = FETCH_CONSTANT;
            fetch.offset[0] = place.address();
            value.is_relative = true;
        }
        Source::At(address) => {
            fetch.source = FETCH_CONSTANT;
            fetch.offset[0] = *address;
            fetch.loads = 1;
        }
        Source::Memory(offset, inner) => {
            follow(inner, probe, place, value)?;
            add(&mut value.fetch, *offset);
            load(&mut value.fetch)?;
        }
        Source::Variable(path) => drop(variable(path, place, value)?),
    }
    Ok(())
}
