//! Variables of the source and where they are, from DWARF. It may be damaged or made to harm: what cannot be read tells
//! nothing.

use std::borrow::Cow;

use anyhow::{Result, anyhow, bail, ensure};
use gimli::{
    AttributeValue, DebuggingInformationEntry as Entry, DwAt, DwTag, DwarfSections, EndianSlice,
    Expression, LittleEndian, Operation, SectionId, UnitOffset, constants as dw,
};

use crate::elf::Elf;
use crate::nearest::nearest;
use crate::unwind::Cfa;
use crate::{Image, compressed};

type Slice<'a> = EndianSlice<'a, LittleEndian>;
type Dwarf<'a> = gimli::Dwarf<Slice<'a>>;
type Unit<'a> = gimli::Unit<Slice<'a>>;
type Die<'a> = Entry<Slice<'a>>;
type Value<'a> = AttributeValue<Slice<'a>>;

/// Types may be made of types so often.
const MOST_TYPES: usize = 16;

/// A variable at an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    pub base: Base,
    /// Added to the base; then, for each that follows, memory is read at what was found, and it is added to that.
    pub offsets: Vec<i64>,
    /// Whether that is the variable's address, not the variable.
    pub is_address: bool,
    pub kind: VariableKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// By its DWARF number.
    Register(u16),
    /// In the file.
    Address(u64),
    Nothing,
}

/// Integers with their bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VariableKind {
    Signed(u8),
    Unsigned(u8),
    Character,
    Pointer,
    Double,
    /// The address of text.
    Text,
    /// Text itself.
    Characters,
    /// The values have names.
    Enumeration {
        signed: bool,
        bits: u8,
        names: Vec<(i64, String)>,
    },
}

/// The variable of a name at an address; an error says why it cannot be had.
pub(crate) fn find(image: &Image, elf: &Elf, address: u64, name: &str) -> Result<Variable> {
    let sections = DwarfSections::load(|id: SectionId| {
        let section = elf.section(id.name());
        let bytes = section.and_then(|section| compressed::section_bytes(elf, section));
        Ok::<Cow<'_, [u8]>, anyhow::Error>(bytes.unwrap_or_default())
    })?;
    let dwarf = sections.borrow(|section| Slice::new(section, LittleEndian));
    let finder = Finder {
        image,
        dwarf,
        address,
        name,
    };
    finder.find()
}

struct Finder<'a> {
    image: &'a Image,
    dwarf: Dwarf<'a>,
    address: u64,
    name: &'a str,
}

/// A function, a function inlined into it, or a block.
struct Scope<'a> {
    depth: isize,
    /// Whether the address is in it.
    is_here: bool,
    frame_base: Option<Value<'a>>,
}

/// What a unit says of the name.
#[derive(Default)]
struct Said<'a> {
    local: Option<(Die<'a>, Option<Value<'a>>)>,
    global: Option<Die<'a>>,
    others: Vec<String>,
}

impl<'a> Finder<'a> {
    fn find(&self) -> Result<Variable> {
        let mut units = self.dwarf.units();
        let mut own = None;
        let mut others = Vec::new();
        while let Ok(Some(header)) = units.next() {
            let Ok(unit) = self.dwarf.unit(header) else {
                continue;
            };
            match own.is_none() && self.holds(&unit) {
                true => own = Some(unit),
                false => others.push(header),
            }
        }
        let Some(own) = own else {
            bail!(
                "there is no debug information of this code to find {} by",
                self.name
            );
        };
        let said = self.read(&own);
        if let Some((die, frame_base)) = &said.local {
            return self.variable(&own, die, *frame_base);
        }
        if let Some(die) = &said.global {
            return self.variable(&own, die, None);
        }
        for header in others {
            let Ok(unit) = self.dwarf.unit(header) else {
                continue;
            };
            if let Some(die) = &self.read(&unit).global {
                return self.variable(&unit, die, None);
            }
        }
        let names = said.others.iter().map(String::as_str);
        match nearest(names, self.name) {
            near if near.is_empty() => bail!("no variable is named {} here", self.name),
            near => bail!(
                "no variable is named {} here; the nearest are {}",
                self.name,
                near.join(", ")
            ),
        }
    }

    fn holds(&self, unit: &Unit<'a>) -> bool {
        let mut entries = unit.entries();
        matches!(entries.next_dfs(), Ok(Some(root)) if self.is_in(unit, root))
    }

    /// Not by gimli's `die_ranges`, which adds a length to an address without a check.
    fn is_in(&self, unit: &Unit<'a>, die: &Die<'a>) -> bool {
        if let Some(ranges) = die.attr_value(dw::DW_AT_ranges) {
            let Ok(Some(mut ranges)) = self.dwarf.attr_ranges(unit, ranges) else {
                return false;
            };
            while let Ok(Some(range)) = ranges.next() {
                if (range.begin..range.end).contains(&self.address) {
                    return true;
                }
            }
            return false;
        }
        let address = |value| self.dwarf.attr_address(unit, value).ok()?;
        let ends = || {
            let low = address(die.attr_value(dw::DW_AT_low_pc)?)?;
            let high = match die.attr_value(dw::DW_AT_high_pc)? {
                AttributeValue::Udata(length) => low.checked_add(length)?,
                value => address(value)?,
            };
            Some(low..high)
        };
        ends().is_some_and(|range| range.contains(&self.address))
    }

    fn read(&self, unit: &Unit<'a>) -> Said<'a> {
        let mut said = Said::default();
        let mut scopes: Vec<Scope<'a>> = Vec::new();
        let mut entries = unit.entries();
        while let Ok(Some(die)) = entries.next_dfs() {
            let depth = die.depth();
            while scopes.last().is_some_and(|scope| scope.depth >= depth) {
                scopes.pop();
            }
            match die.tag() {
                dw::DW_TAG_subprogram
                | dw::DW_TAG_inlined_subroutine
                | dw::DW_TAG_lexical_block => {
                    let outer = scopes.last();
                    // A block without addresses of its own is where its function is.
                    let has_own = [dw::DW_AT_low_pc, dw::DW_AT_ranges];
                    let has_own = has_own.iter().any(|name| die.attr(*name).is_some());
                    let is_here = match (outer, has_own) {
                        (Some(outer), false) => {
                            outer.is_here && die.tag() == dw::DW_TAG_lexical_block
                        }
                        (outer, _) => {
                            outer.is_none_or(|outer| outer.is_here) && self.is_in(unit, die)
                        }
                    };
                    let frame_base = die
                        .attr_value(dw::DW_AT_frame_base)
                        .or_else(|| outer.and_then(|outer| outer.frame_base));
                    scopes.push(Scope {
                        depth,
                        is_here,
                        frame_base,
                    });
                }
                dw::DW_TAG_variable | dw::DW_TAG_formal_parameter => {
                    let Some(name) = self.name_of(unit, die) else {
                        continue;
                    };
                    match scopes.last() {
                        Some(scope) if scope.is_here && name == self.name => {
                            said.local = Some((die.clone(), scope.frame_base));
                        }
                        Some(scope) if scope.is_here => said.others.push(name),
                        Some(_) => {}
                        None if name == self.name && die.attr(dw::DW_AT_location).is_some() => {
                            said.global = Some(die.clone());
                        }
                        None => {}
                    }
                }
                _ => {}
            }
        }
        said
    }

    /// Of the entry, or of the one that it completes.
    fn name_of(&self, unit: &Unit<'a>, die: &Die<'a>) -> Option<String> {
        let value = self.inherited(unit, die, dw::DW_AT_name)?;
        let text = self.dwarf.attr_string(unit, value).ok()?;
        Some(text.to_string_lossy().into_owned())
    }

    fn inherited(&self, unit: &Unit<'a>, die: &Die<'a>, name: DwAt) -> Option<Value<'a>> {
        let mut die = die.clone();
        for _ in 0..MOST_TYPES {
            if let Some(value) = die.attr_value(name) {
                return Some(value);
            }
            let origin = die
                .attr_value(dw::DW_AT_abstract_origin)
                .or_else(|| die.attr_value(dw::DW_AT_specification))?;
            die = entry(unit, origin)?;
        }
        None
    }

    // ---- where it is ----

    fn variable(
        &self,
        unit: &Unit<'a>,
        die: &Die<'a>,
        frame_base: Option<Value<'a>>,
    ) -> Result<Variable> {
        let gone = || {
            anyhow!(
                "the variable {} is not kept at this instruction: the compiler has optimised it out",
                self.name
            )
        };
        let kind = self.kind(unit, self.inherited(unit, die, dw::DW_AT_type))?;
        if let Some(value) = die.attr_value(dw::DW_AT_const_value) {
            let value = value.sdata_value().ok_or_else(gone)?;
            return Ok(Variable {
                base: Base::Nothing,
                offsets: vec![value],
                is_address: false,
                kind,
            });
        }
        let location = die.attr_value(dw::DW_AT_location).ok_or_else(gone)?;
        let expression = self.expression(unit, location).ok_or_else(gone)?;
        let mut variable = self.evaluate(unit, expression, frame_base)?;
        variable.kind = kind;
        Ok(variable)
    }

    /// The one that holds at the address.
    fn expression(&self, unit: &Unit<'a>, value: Value<'a>) -> Option<Expression<Slice<'a>>> {
        if let AttributeValue::Exprloc(expression) = value {
            return Some(expression);
        }
        let mut lists = self.dwarf.attr_locations(unit, value).ok()??;
        while let Ok(Some(one)) = lists.next() {
            if (one.range.begin..one.range.end).contains(&self.address) {
                return Some(one.data).filter(|data| !data.0.is_empty());
            }
        }
        None
    }

    fn evaluate(
        &self,
        unit: &Unit<'a>,
        expression: Expression<Slice<'a>>,
        frame_base: Option<Value<'a>>,
    ) -> Result<Variable> {
        let mut found: Option<Variable> = None;
        let begin = |base, offset| Variable {
            base,
            offsets: vec![offset],
            is_address: true,
            kind: VariableKind::Pointer,
        };
        let mut operations = expression.operations(unit.encoding());
        while let Some(operation) = operations.next()? {
            let next = match (operation, found.take()) {
                (
                    Operation::RegisterOffset {
                        register, offset, ..
                    },
                    None,
                ) => begin(Base::Register(register.0), offset),
                (Operation::FrameOffset { offset }, None) => {
                    let mut frame = self.frame(unit, frame_base)?;
                    add(&mut frame, offset);
                    frame
                }
                (Operation::CallFrameCFA, None) => self.frame_address()?,
                (Operation::Register { register }, None) => Variable {
                    is_address: false,
                    ..begin(Base::Register(register.0), 0)
                },
                (Operation::Address { address }, None) => begin(Base::Address(address), 0),
                (Operation::AddressIndex { index }, None) => {
                    begin(Base::Address(self.dwarf.address(unit, index)?), 0)
                }
                (Operation::UnsignedConstant { value }, None) => {
                    begin(Base::Nothing, value.cast_signed())
                }
                (Operation::SignedConstant { value }, None) => begin(Base::Nothing, value),
                (Operation::PlusConstant { value }, Some(mut so_far)) => {
                    add(&mut so_far, value.cast_signed());
                    so_far
                }
                (Operation::Deref { size: 8, .. }, Some(mut so_far)) => {
                    so_far.offsets.push(0);
                    so_far
                }
                (Operation::StackValue, Some(so_far)) => Variable {
                    is_address: false,
                    ..so_far
                },
                (Operation::EntryValue { .. }, _) => bail!(
                    "the variable {} is not kept at this instruction: only its caller may know it still",
                    self.name
                ),
                (Operation::Piece { .. }, _) => {
                    bail!("the variable {} is kept in pieces", self.name)
                }
                _ => bail!(
                    "how the variable {} is found is more than nopal can follow",
                    self.name
                ),
            };
            found = Some(next);
        }
        let variable = found.ok_or_else(|| {
            anyhow!(
                "the variable {} is not kept at this instruction: the compiler has optimised it out",
                self.name
            )
        })?;
        if let Base::Register(register) = variable.base {
            ensure!(
                register < 16,
                "the variable {} is in a vector register, which probes do not fetch",
                self.name
            );
        }
        Ok(variable)
    }

    fn frame(&self, unit: &Unit<'a>, frame_base: Option<Value<'a>>) -> Result<Variable> {
        let unknown = || anyhow!("the frame that holds {} is not known", self.name);
        let expression = frame_base.and_then(|base| self.expression(unit, base));
        let mut frame = self.evaluate(unit, expression.ok_or_else(unknown)?, None)?;
        frame.is_address = true;
        Ok(frame)
    }

    fn frame_address(&self) -> Result<Variable> {
        let changes = self.image.cfa_changes(self.address..self.address + 1);
        const FRAME_POINTER: u16 = 6;
        const STACK_POINTER: u16 = 7;
        let (register, offset) = match changes.first().map(|change| change.cfa) {
            Some(Cfa::Rsp(offset)) => (STACK_POINTER, offset),
            Some(Cfa::Rbp(offset)) => (FRAME_POINTER, offset),
            _ => bail!("the frame that holds {} is not known", self.name),
        };
        Ok(Variable {
            base: Base::Register(register),
            offsets: vec![offset],
            is_address: true,
            kind: VariableKind::Pointer,
        })
    }

    // ---- what it is ----

    fn kind(&self, unit: &Unit<'a>, kind: Option<Value<'a>>) -> Result<VariableKind> {
        let Some(die) = self.plain(unit, kind) else {
            bail!("the type of {} is not known", self.name);
        };
        let bytes = die
            .attr_value(dw::DW_AT_byte_size)
            .and_then(|size| size.udata_value());
        let bits = match bytes {
            Some(bytes @ (1 | 2 | 4 | 8)) => Some(bytes as u8 * 8),
            _ => None,
        };
        let encoding = match die.attr_value(dw::DW_AT_encoding) {
            Some(AttributeValue::Encoding(encoding)) => Some(encoding),
            _ => None,
        };
        match (die.tag(), bits) {
            (dw::DW_TAG_base_type, Some(bits)) => match encoding {
                Some(dw::DW_ATE_signed) => Ok(VariableKind::Signed(bits)),
                Some(dw::DW_ATE_signed_char) => Ok(VariableKind::Character),
                Some(dw::DW_ATE_float) if bits == 64 => Ok(VariableKind::Double),
                Some(dw::DW_ATE_float) => bail!(
                    "{} is a number of {bits} bits with a point, which probes do not show",
                    self.name
                ),
                _ => Ok(VariableKind::Unsigned(bits)),
            },
            (dw::DW_TAG_enumeration_type, Some(bits)) => Ok(self.enumeration(unit, &die, bits)),
            (
                dw::DW_TAG_pointer_type
                | dw::DW_TAG_reference_type
                | dw::DW_TAG_rvalue_reference_type,
                _,
            ) => match self.is_character(unit, die.attr_value(dw::DW_AT_type)) {
                true => Ok(VariableKind::Text),
                false => Ok(VariableKind::Pointer),
            },
            (dw::DW_TAG_array_type, _)
                if self.is_character(unit, die.attr_value(dw::DW_AT_type)) =>
            {
                Ok(VariableKind::Characters)
            }
            _ => bail!(
                "{} is more than a number, an address or text: fetch what is in it by registers and offsets",
                self.name
            ),
        }
    }

    /// Without names and qualifiers of its own.
    fn plain(&self, unit: &Unit<'a>, kind: Option<Value<'a>>) -> Option<Die<'a>> {
        const NAMES: [DwTag; 5] = [
            dw::DW_TAG_typedef,
            dw::DW_TAG_const_type,
            dw::DW_TAG_volatile_type,
            dw::DW_TAG_restrict_type,
            dw::DW_TAG_atomic_type,
        ];
        let mut die = entry(unit, kind?)?;
        for _ in 0..MOST_TYPES {
            if !NAMES.contains(&die.tag()) {
                return Some(die);
            }
            die = entry(unit, die.attr_value(dw::DW_AT_type)?)?;
        }
        None
    }

    fn is_character(&self, unit: &Unit<'a>, kind: Option<Value<'a>>) -> bool {
        self.plain(unit, kind).is_some_and(|die| {
            let encoding = die.attr_value(dw::DW_AT_encoding);
            encoding == Some(AttributeValue::Encoding(dw::DW_ATE_signed_char))
        })
    }

    fn enumeration(&self, unit: &Unit<'a>, die: &Die<'a>, bits: u8) -> VariableKind {
        const MOST_NAMES: usize = 256;
        let mut names = Vec::new();
        if let Ok(mut entries) = unit.entries_at_offset(die.offset()) {
            let _ = entries.next_dfs();
            while let Ok(Some(one)) = entries.next_dfs() {
                if one.depth() <= 0 || names.len() == MOST_NAMES {
                    break;
                }
                let value = one.attr_value(dw::DW_AT_const_value);
                let value = value.and_then(|value| value.sdata_value());
                if let (dw::DW_TAG_enumerator, Some(value), Some(name)) =
                    (one.tag(), value, self.name_of(unit, one))
                {
                    names.push((value, name));
                }
            }
        }
        let signed = names.iter().any(|(value, _)| *value < 0);
        VariableKind::Enumeration {
            signed,
            bits,
            names,
        }
    }
}

fn add(variable: &mut Variable, offset: i64) {
    if let Some(last) = variable.offsets.last_mut() {
        *last = last.wrapping_add(offset);
    }
}

fn entry<'a>(unit: &Unit<'a>, reference: Value<'a>) -> Option<Die<'a>> {
    let offset: UnitOffset = match reference {
        AttributeValue::UnitRef(offset) => offset,
        AttributeValue::DebugInfoRef(offset) => offset.to_unit_offset(unit)?,
        _ => return None,
    };
    unit.entry(offset).ok()
}
