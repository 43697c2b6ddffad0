//! Variables of the source and their locations, from DWARF, which may be damaged or malicious: unreadable parts are
//! ignored.

use std::ops::Range;

use anyhow::{Result, anyhow, bail, ensure};
use gimli::{AttributeValue, Expression, Operation, constants as dw};

use crate::Image;
use crate::elf::Elf;
use crate::nearest::{nearest, or_nearest};
use crate::path::VariablePath;
use crate::types::{Die, Sections, Slice, Unit, Units, Value, VariableKind};
use crate::unwind::Cfa;

/// Bytes of a register and of a pointer.
const WORD_BYTES: u64 = 8;

/// A variable at an instruction, or a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    pub base: Base,
    /// The number of bits in the register before it.
    pub shift: u8,
    /// The first is added to the base; for each further one, memory is read at the result, and it is added to that
    /// value.
    pub offsets: Vec<i64>,
    /// Whether the result is the variable's address, not its value.
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

/// Resolves a path at an address; the error says why it cannot.
pub(crate) fn find(
    image: &Image,
    elf: &Elf,
    common: Option<&Elf>,
    address: u64,
    path: &VariablePath,
) -> Result<Variable> {
    let sections = Sections::of(elf, common);
    let finder = Finder {
        image,
        units: sections.units(),
        address,
        path,
        name: &path.variable,
    };
    finder.find()
}

struct Finder<'a> {
    image: &'a Image,
    units: Units<'a>,
    address: u64,
    path: &'a VariablePath,
    /// The path's variable.
    name: &'a str,
}

/// A location; the type gives its meaning.
#[derive(Clone)]
struct Spot {
    base: Base,
    shift: u8,
    offsets: Vec<i64>,
    is_address: bool,
}

/// The location of a variable.
enum Location {
    Whole(Spot),
    /// Pieces behind each other, with their bytes; some may be nowhere.
    Pieces(Vec<(Option<Spot>, u64)>),
}

/// A function, a function inlined into it, or a block.
struct Scope<'a> {
    depth: isize,
    /// Whether the address is in it.
    is_here: bool,
    frame_base: Option<Value<'a>>,
}

/// The variables of a name in a unit.
#[derive(Default)]
struct Said<'a> {
    local: Option<(Die<'a>, Option<Value<'a>>)>,
    global: Option<Die<'a>>,
    others: Vec<String>,
}

impl<'a> Finder<'a> {
    fn find(&self) -> Result<Variable> {
        let all = 0..self.units.count();
        let holds = |index: &usize| {
            let unit = self.units.look(*index);
            unit.is_some_and(|unit| self.holds(&unit))
        };
        let own = all.clone().find(holds);
        let own = own.and_then(|index| Some((index, self.units.unit(index)?)));
        let Some((own_index, own)) = own else {
            bail!(
                "there is no debug information of this code to find {}",
                self.name
            );
        };
        let said = self.read(own);
        if let Some((die, frame_base)) = &said.local {
            return self.variable(own, die, *frame_base);
        }
        if let Some(die) = &said.global {
            return self.variable(own, die, None);
        }
        for index in all.filter(|index| *index != own_index) {
            let Some(unit) = self.units.look(index) else {
                continue;
            };
            if let Some(die) = &self.read(&unit).global {
                return self.variable(&unit, die, None);
            }
        }
        let names = said.others.iter().map(String::as_str);
        let near = or_nearest(&nearest(names, self.name));
        bail!("no variable is named {} here{near}", self.name)
    }

    fn holds(&self, unit: &Unit<'a>) -> bool {
        let mut entries = unit.entries();
        matches!(entries.next_dfs(), Ok(Some(root)) if self.is_in(unit, root))
    }

    /// Not by gimli's `die_ranges`, which adds a length to an address without a check.
    fn is_in(&self, unit: &Unit<'a>, die: &Die<'a>) -> bool {
        if let Some(ranges) = die.attr_value(dw::DW_AT_ranges) {
            let Ok(Some(mut ranges)) = self.units.dwarf.attr_ranges(unit, ranges) else {
                return false;
            };
            while let Ok(Some(range)) = ranges.next() {
                if (range.begin..range.end).contains(&self.address) {
                    return true;
                }
            }
            return false;
        }
        let address = |value| self.units.dwarf.attr_address(unit, value).ok()?;
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
                    let Some(name) = self.units.name_of(unit, die) else {
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

    // ---- where it is ----

    fn variable(
        &self,
        unit: &Unit<'a>,
        die: &Die<'a>,
        frame_base: Option<Value<'a>>,
    ) -> Result<Variable> {
        let kind = self.units.type_of(unit, die);
        let mut kind = kind.ok_or_else(|| anyhow!("the type of {} is not known", self.name))?;
        let mut location = self.location(unit, die, frame_base)?;
        let mut offset = 0u64;
        let mut path = self.name.to_owned();
        for step in &self.path.steps {
            let stepped = self.units.step(kind, step, &path)?;
            if stepped.is_behind {
                location = Location::Whole(self.spot(&location, offset, WORD_BYTES)?.behind());
                offset = 0;
            }
            offset = offset.wrapping_add(stepped.offset);
            kind = stepped.kind;
            path += &step.to_string();
        }
        let shown = self.units.shown(&kind, &path)?;
        let spot = self.spot(&location, offset, self.units.bytes(&kind).unwrap_or(1))?;
        ensure!(
            spot.is_address || shown != VariableKind::Characters,
            "{path} is kept in a register, from which text is not fetched"
        );
        Ok(Variable {
            base: spot.base,
            shift: spot.shift,
            offsets: spot.offsets,
            is_address: spot.is_address,
            kind: shown,
        })
    }

    /// The location of some bytes of the variable, or of its target.
    fn spot(&self, location: &Location, offset: u64, bytes: u64) -> Result<Spot> {
        let (mut spot, within) = match location {
            Location::Whole(spot) => (spot.clone(), offset),
            Location::Pieces(pieces) => {
                let mut begin = 0u64;
                let mut holds = pieces.iter().filter_map(|(spot, length)| {
                    let within = offset.checked_sub(begin);
                    begin = begin.saturating_add(*length);
                    let is_in = offset.saturating_add(bytes) <= begin;
                    within.filter(|_| is_in).map(|within| (spot, within))
                });
                match holds.next() {
                    Some((Some(spot), within)) => (spot.clone(), within),
                    Some((None, _)) => return Err(self.gone()),
                    None => bail!("{} is kept in pieces", self.path),
                }
            }
        };
        if spot.is_address {
            spot.add(within.cast_signed());
        } else if within > 0 {
            // A small structure in a register.
            let is_plain = matches!(spot.base, Base::Register(_)) && spot.offsets == [0];
            ensure!(
                is_plain && within + bytes <= WORD_BYTES,
                "{} is part of a value that is not in memory",
                self.path
            );
            spot.shift = 8 * within as u8;
        }
        Ok(spot)
    }

    fn gone(&self) -> anyhow::Error {
        anyhow!(
            "the variable {} is not kept at this instruction: the compiler has optimised it out",
            self.name
        )
    }

    /// The same, with the instructions nearest to this one at which it is kept.
    fn gone_from(&self, unit: &Unit<'a>, location: Option<Value<'a>>) -> anyhow::Error {
        let lists = location.and_then(|value| self.units.dwarf.attr_locations(unit, value).ok()?);
        let mut nearest: Option<Range<u64>> = None;
        if let Some(mut lists) = lists {
            while let Ok(Some(one)) = lists.next() {
                let range = one.range.begin..one.range.end;
                let is_nearer = |other: &Range<u64>| {
                    range.start.abs_diff(self.address) < other.start.abs_diff(self.address)
                };
                if !range.is_empty()
                    && !one.data.0.is_empty()
                    && nearest.as_ref().is_none_or(is_nearer)
                {
                    nearest = Some(range);
                }
            }
        }
        match nearest {
            Some(range) => anyhow!(
                "{}; it is kept from {} to {}",
                self.gone(),
                self.describe(range.start),
                self.describe(range.end - 1)
            ),
            None => self.gone(),
        }
    }

    /// `FUNCTION+0xOFFSET`
    fn describe(&self, address: u64) -> String {
        match self.image.function_at(address) {
            Ok(Some(function)) => format!("{}+{:#x}", function.name, address - function.address),
            _ => format!("{address:#x}"),
        }
    }

    fn location(
        &self,
        unit: &Unit<'a>,
        die: &Die<'a>,
        frame_base: Option<Value<'a>>,
    ) -> Result<Location> {
        if let Some(value) = die.attr_value(dw::DW_AT_const_value) {
            let value = value.sdata_value().ok_or_else(|| self.gone())?;
            return Ok(Location::Whole(Spot {
                is_address: false,
                ..Spot::at(Base::Nothing, value)
            }));
        }
        let location = die.attr_value(dw::DW_AT_location);
        let expression = location.and_then(|location| self.expression(unit, location));
        let expression = expression.ok_or_else(|| self.gone_from(unit, location))?;
        self.evaluate(unit, expression, frame_base)
    }

    /// The one that holds at the address.
    fn expression(&self, unit: &Unit<'a>, value: Value<'a>) -> Option<Expression<Slice<'a>>> {
        if let AttributeValue::Exprloc(expression) = value {
            return Some(expression);
        }
        let mut lists = self.units.dwarf.attr_locations(unit, value).ok()??;
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
    ) -> Result<Location> {
        let mut found: Option<Spot> = None;
        let mut pieces = Vec::new();
        let mut operations = expression.operations(unit.encoding());
        while let Some(operation) = operations.next()? {
            let next = match (operation, found.take()) {
                (
                    Operation::RegisterOffset {
                        register, offset, ..
                    },
                    None,
                ) => Spot::at(Base::Register(register.0), offset),
                (Operation::FrameOffset { offset }, None) => {
                    let mut frame = self.frame(unit, frame_base)?;
                    frame.add(offset);
                    frame
                }
                (Operation::CallFrameCFA, None) => self.frame_address()?,
                (Operation::Register { register }, None) => Spot {
                    is_address: false,
                    ..Spot::at(Base::Register(register.0), 0)
                },
                (Operation::Address { address }, None) => Spot::at(Base::Address(address), 0),
                (Operation::AddressIndex { index }, None) => {
                    Spot::at(Base::Address(self.units.dwarf.address(unit, index)?), 0)
                }
                (Operation::UnsignedConstant { value }, None) => {
                    Spot::at(Base::Nothing, value.cast_signed())
                }
                (Operation::SignedConstant { value }, None) => Spot::at(Base::Nothing, value),
                (Operation::PlusConstant { value }, Some(mut so_far)) => {
                    so_far.add(value.cast_signed());
                    so_far
                }
                (Operation::Deref { size: 8, .. }, Some(mut so_far)) => {
                    so_far.offsets.push(0);
                    so_far
                }
                (Operation::StackValue, Some(so_far)) => Spot {
                    is_address: false,
                    ..so_far
                },
                (Operation::EntryValue { .. }, _) => bail!(
                    "the variable {} is not kept at this instruction: only the caller may still have it",
                    self.name
                ),
                (
                    Operation::Piece {
                        size_in_bits,
                        bit_offset: None,
                    },
                    so_far,
                ) => {
                    self.ensure_general(&so_far)?;
                    pieces.push((so_far, size_in_bits / 8));
                    continue;
                }
                (Operation::ImplicitPointer { .. }, _) => return Err(self.gone()),
                _ => bail!("the location of the variable {} is too complex", self.name),
            };
            found = Some(next);
        }
        if !pieces.is_empty() {
            return Ok(Location::Pieces(pieces));
        }
        self.ensure_general(&found)?;
        found.map(Location::Whole).ok_or_else(|| self.gone())
    }

    fn ensure_general(&self, spot: &Option<Spot>) -> Result<()> {
        if let Some(Base::Register(register)) = spot.as_ref().map(|spot| spot.base) {
            ensure!(
                register < 16,
                "the variable {} is in a vector register, which probes do not fetch",
                self.name
            );
        }
        Ok(())
    }

    fn frame(&self, unit: &Unit<'a>, frame_base: Option<Value<'a>>) -> Result<Spot> {
        let expression = frame_base.and_then(|base| self.expression(unit, base));
        let frame = expression.map(|expression| self.evaluate(unit, expression, None));
        match frame.transpose()? {
            Some(Location::Whole(frame)) => Ok(Spot {
                is_address: true,
                ..frame
            }),
            _ => bail!("the frame that holds {} is not known", self.name),
        }
    }

    fn frame_address(&self) -> Result<Spot> {
        let changes = self.image.cfa_changes(self.address..self.address + 1);
        const FRAME_POINTER: u16 = 6;
        const STACK_POINTER: u16 = 7;
        let (register, offset) = match changes.first().map(|change| change.cfa) {
            Some(Cfa::Rsp(offset)) => (STACK_POINTER, offset),
            Some(Cfa::Rbp(offset)) => (FRAME_POINTER, offset),
            _ => bail!("the frame that holds {} is not known", self.name),
        };
        Ok(Spot::at(Base::Register(register), offset))
    }
}

impl Spot {
    fn at(base: Base, offset: i64) -> Spot {
        Spot {
            base,
            shift: 0,
            offsets: vec![offset],
            is_address: true,
        }
    }

    fn add(&mut self, offset: i64) {
        if let Some(last) = self.offsets.last_mut() {
            *last = last.wrapping_add(offset);
        }
    }

    /// The target of a pointer at this location.
    fn behind(mut self) -> Spot {
        if self.is_address {
            self.offsets.push(0);
        }
        self.is_address = true;
        self
    }
}
