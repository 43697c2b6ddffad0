//! The parameters of functions, and in which registers their calls have them, from DWARF, which may be damaged or
//! malicious: an unreadable part counts as unknown.
//!
//! Two things tell where a parameter is at a function's first instruction: the location that the debug information has
//! for it there, and the calling convention of the System V ABI for x86-64 with the parameters' types. Optimisers change
//! the parameters of functions whose callers they all know. So the convention alone is believed only of a function that
//! others may call or that was not optimised, and only while no location contradicts it.

mod convention;
mod kinds;

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

use gimli::{AttributeValue, DwAte, Expression, Operation, constants as dw};

use crate::Function;
use crate::elf::Elf;
use crate::types::{Die, Sections, Slice, Unit, UnitEntry, Units, Value as Attribute, children};

/// Registers for integers and addresses, by their DWARF numbers in the order of the convention.
const INTEGER_REGISTERS: [u16; 6] = [5, 4, 1, 2, 8, 9];
const VECTOR_REGISTERS: std::ops::Range<u16> = 17..33;
const FRAME_POINTER: u16 = 6;
/// Vector registers for arguments.
const VECTORS: u8 = 8;
const WORD: u64 = 8;
/// Larger structures are passed in memory.
const MOST_IN_REGISTERS: u64 = 16;
const MOST_PARAMETERS: usize = 64;
const MOST_NAMES: usize = 256;
/// Limit of types within types.
const DEEPEST: usize = 12;
const LONGEST_TYPE: usize = 200;
/// Limit of entries that are read to understand types: for a file, and more for each of its functions.
const ENTRIES_OF_FILE: usize = 1 << 20;
const ENTRIES_OF_FUNCTION: usize = 1 << 12;

/// A function as its source declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prototype {
    pub parameters: Vec<Parameter>,
    /// It takes further arguments behind the parameters.
    pub is_variadic: bool,
    pub result: Value,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// May be empty.
    pub name: String,
    pub value: Value,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The type as the source writes it, in about the syntax of C; empty for no result.
    pub type_name: String,
    pub kind: ValueKind,
    pub held: Held,
}

/// The place of a value in a call, by the words that nopal records: the six argument registers, and the result's
/// register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held {
    /// In these words, by their indices.
    Words(Vec<u8>),
    /// It has no bytes.
    Nothing,
    /// In a vector register or in memory, which are not recorded.
    Elsewhere,
    /// Its place is not certain.
    Unknown,
}

/// The meaning of the bits of one word. Bits above the named ones mean nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueKind {
    Signed(u8),
    Unsigned(u8),
    Boolean,
    /// A character's code.
    Character(u8),
    Address,
    Enumeration {
        bits: u8,
        enumerators: Arc<Vec<(i64, String)>>,
    },
    /// A structure, or anything else that is not one value.
    Bits(u8),
}

/// The prototypes of those of the functions that the debug information describes, by address.
pub(crate) fn of(
    elf: &Elf,
    common: Option<&Elf>,
    functions: &[&Function],
) -> HashMap<u64, Prototype> {
    let sections = Sections::of(elf, common);
    let units = sections.units();
    let wanted: HashMap<u64, &Function> = functions
        .iter()
        .map(|function| (function.address, *function))
        .collect();
    let reader = Reader {
        units: &units,
        left: Cell::new(ENTRIES_OF_FILE + ENTRIES_OF_FUNCTION * wanted.len()),
    };
    let mut found = HashMap::new();
    for index in 0..units.count() {
        if let Some(unit) = units.look(index) {
            reader.read(&unit, &wanted, &mut found);
        }
    }
    found
}

struct Reader<'u, 'a> {
    units: &'u Units<'a>,
    left: Cell<usize>,
}

/// The compiler and the language of a unit.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Maker {
    language: Language,
    /// By LLVM, which changes the parameters and results of local functions without giving them another name.
    is_llvm: bool,
    /// A compiler that is known to follow the convention.
    is_known: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Language {
    C,
    Cxx,
    Rust,
}

/// A parameter's entry.
struct Declared<'s, 'a> {
    unit: &'s Unit<'a>,
    die: Die<'a>,
    /// Whether the entry is that of the code, which tells where the parameter is.
    has_place: bool,
}

/// The place of a parameter at the first instruction, as its location tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Words(Vec<u8>),
    /// The word is its address.
    Behind(u8),
    /// In vector registers, or in the caller's frame.
    Elsewhere,
    /// In the frame of the function, which is made later. `is_behind`: the frame has its address.
    Kept {
        is_behind: bool,
    },
    /// Nowhere, or in a way that tells nothing.
    Nowhere,
}

/// The way in which values of a type are passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Nothing,
    Integers(u8),
    /// This many vector registers; more or fewer may be taken by other compilers' flags.
    Vectors {
        least: u8,
        most: u8,
    },
    /// One word in an integer register and one in a vector register.
    Mixed,
    Memory,
    /// Passed in memory; returned in a register of the floating-point unit.
    Extended,
    Unknown,
}

impl<'u, 'a> Reader<'u, 'a> {
    fn read(
        &self,
        unit: &Unit<'a>,
        wanted: &HashMap<u64, &Function>,
        found: &mut HashMap<u64, Prototype>,
    ) {
        let mut entries = unit.entries();
        let Ok(Some(root)) = entries.next_dfs() else {
            return;
        };
        let Some(maker) = self.maker(unit, root) else {
            return;
        };
        let mut own = Vec::new();
        let mut is_optimised = false;
        // The depth of the inlined function that an entry is in: some are inlined without optimisation too.
        let mut inlined: Option<isize> = None;
        while let Ok(Some(die)) = entries.next_dfs() {
            inlined = inlined.filter(|depth| die.depth() > *depth);
            match die.tag() {
                dw::DW_TAG_inlined_subroutine => {
                    inlined.get_or_insert(die.depth());
                }
                dw::DW_TAG_subprogram => {
                    let address = self.first_instruction(unit, die);
                    let function = address.and_then(|address| wanted.get(&address));
                    own.extend(function.map(|function| (die.clone(), *function)));
                }
                dw::DW_TAG_formal_parameter | dw::DW_TAG_variable
                    if !is_optimised && inlined.is_none() =>
                {
                    is_optimised = die
                        .attr_value(dw::DW_AT_location)
                        .is_some_and(|location| !self.is_in_memory(unit, location));
                }
                _ => {}
            }
        }
        for (die, function) in own {
            if !found.contains_key(&function.address)
                && let Some(prototype) = self.prototype(unit, &die, maker, function, is_optimised)
            {
                found.insert(function.address, prototype);
            }
        }
    }

    /// Whether a variable is always in memory.
    fn is_in_memory(&self, unit: &Unit<'a>, location: Attribute<'a>) -> bool {
        let is = |expression: Expression<Slice<'a>>| {
            let mut operations = expression.operations(unit.encoding());
            let mut is_first = true;
            while let Ok(Some(operation)) = operations.next() {
                let is_address = match operation {
                    Operation::FrameOffset { .. }
                    | Operation::RegisterOffset { .. }
                    | Operation::Address { .. }
                    | Operation::AddressIndex { .. } => is_first,
                    Operation::Deref { .. } | Operation::PlusConstant { .. } => !is_first,
                    _ => false,
                };
                if !is_address {
                    return false;
                }
                is_first = false;
            }
            true
        };
        if let AttributeValue::Exprloc(expression) = location {
            return is(expression);
        }
        let Ok(Some(mut lists)) = self.units.dwarf.attr_locations(unit, location) else {
            return false;
        };
        while let Ok(Some(one)) = lists.next() {
            if !is(one.data) {
                return false;
            }
        }
        true
    }

    fn maker(&self, unit: &Unit<'a>, root: &Die<'a>) -> Option<Maker> {
        let language = match root.attr_value(dw::DW_AT_language)? {
            AttributeValue::Language(language) => language,
            _ => return None,
        };
        let language = match language {
            dw::DW_LANG_C89
            | dw::DW_LANG_C
            | dw::DW_LANG_C99
            | dw::DW_LANG_C11
            | dw::DW_LANG_C17 => Language::C,
            dw::DW_LANG_C_plus_plus
            | dw::DW_LANG_C_plus_plus_03
            | dw::DW_LANG_C_plus_plus_11
            | dw::DW_LANG_C_plus_plus_14
            | dw::DW_LANG_C_plus_plus_17
            | dw::DW_LANG_C_plus_plus_20 => Language::Cxx,
            dw::DW_LANG_Rust => Language::Rust,
            _ => return None,
        };
        let producer = root.attr_value(dw::DW_AT_producer).and_then(|value| {
            let text = self.units.dwarf.attr_string(unit, value).ok()?;
            Some(text.to_string_lossy().into_owned())
        });
        let producer = producer.unwrap_or_default();
        let is_llvm = producer.contains("clang");
        Some(Maker {
            language,
            is_llvm,
            is_known: is_llvm || producer.starts_with("GNU "),
        })
    }

    fn first_instruction(&self, unit: &Unit<'a>, die: &Die<'a>) -> Option<u64> {
        let dwarf = &self.units.dwarf;
        if let Some(low) = die.attr_value(dw::DW_AT_low_pc)
            && die.attr(dw::DW_AT_ranges).is_none()
        {
            return dwarf.attr_address(unit, low).ok()?;
        }
        let mut ranges = dwarf
            .attr_ranges(unit, die.attr_value(dw::DW_AT_ranges)?)
            .ok()??;
        ranges.next().ok()?.map(|range| range.begin)
    }

    fn prototype(
        &self,
        unit: &Unit<'a>,
        die: &Die<'a>,
        maker: Maker,
        function: &Function,
        is_optimised: bool,
    ) -> Option<Prototype> {
        let is_changed = match die.attr_value(dw::DW_AT_calling_convention) {
            None | Some(AttributeValue::CallingConvention(dw::DW_CC_normal)) => false,
            // The optimiser has removed parameters or the result.
            Some(AttributeValue::CallingConvention(dw::DW_CC_nocall)) => true,
            Some(_) => return None,
        };
        let (declared, is_variadic) = self.parameters(unit, die)?;
        let frame_base = die.attr_value(dw::DW_AT_frame_base);
        let see = |one: &Declared<'_, 'a>| match one.has_place {
            true => self.seen(unit, &one.die, function.address, frame_base),
            false => Seen::Nowhere,
        };
        let seen: Vec<Seen> = declared.iter().map(see).collect();
        let types: Vec<Option<UnitEntry<'_, 'a>>> = declared
            .iter()
            .map(|one| self.units.type_entry(one.unit, &one.die))
            .collect();
        let result = self.units.type_entry(unit, die);
        let has_result = self.units.inherits(unit, die, dw::DW_AT_type);

        // Without optimisation, all variables are kept in frames.
        let has_all_calls = [dw::DW_AT_call_all_calls, dw::DW_AT_GNU_all_call_sites]
            .iter()
            .any(|name| die.attr(*name).is_some());
        let is_kept = |seen: &Seen| matches!(seen, Seen::Kept { .. } | Seen::Elsewhere);
        let is_unoptimised = !is_optimised && !has_all_calls && seen.iter().all(is_kept);
        // GCC gives functions that it changes another name.
        let is_as_written = maker.is_known && (!maker.is_llvm || is_unoptimised || function.global);
        let is_clone = is_changed || self.is_clone(unit, die, function);
        let may_differ = is_clone || (maker.is_llvm && !function.global);

        let result_class = self.returned(result.as_ref(), has_result, maker);
        let expected = self.expected(maker, result_class, &types, &seen);
        let mut last = None;
        let mut is_ascending = true;
        for word in seen.iter().filter_map(Seen::first_word) {
            is_ascending &= last.is_none_or(|last| last < word);
            last = Some(word);
        }
        let pairs = || expected.iter().zip(&seen);
        let contradicts = pairs().any(|(expected, seen)| seen.contradicts(expected));
        let by_convention = !contradicts
            && !is_clone
            && is_as_written
            && (maker.language != Language::Rust || is_unoptimised);
        let held = pairs().map(|(expected, seen)| match seen {
            _ if *expected == Held::Nothing => Held::Nothing,
            Seen::Words(words) => {
                let is_expected = *expected == Held::Words(words.clone());
                let is_believed = is_ascending && (!contradicts || may_differ);
                match is_expected || is_believed {
                    true => Held::Words(words.clone()),
                    false => Held::Unknown,
                }
            }
            Seen::Behind(word) => match is_ascending && (!contradicts || may_differ) {
                true => Held::Words(vec![*word]),
                false => Held::Unknown,
            },
            Seen::Elsewhere => Held::Elsewhere,
            Seen::Kept { .. } if by_convention => expected.clone(),
            Seen::Nowhere | Seen::Kept { .. } => match expected {
                Held::Elsewhere => Held::Elsewhere,
                _ => Held::Unknown,
            },
        });
        let held: Vec<Held> = held.collect();
        let parameters = declared.iter().zip(&types).zip(held).zip(&seen);
        let parameters = parameters.map(|(((one, entry), held), seen)| {
            let is_behind = matches!(seen, Seen::Behind(_) | Seen::Kept { is_behind: true });
            Parameter {
                name: self.units.name_of(one.unit, &one.die).unwrap_or_default(),
                value: Value {
                    type_name: self.type_name(one.unit, &one.die, maker),
                    kind: match entry {
                        _ if is_behind => ValueKind::Address,
                        Some(entry) => self.kind(entry),
                        None => ValueKind::Bits(64),
                    },
                    held,
                },
            }
        });
        let parameters = parameters.collect();
        // An optimiser removes results that no caller uses, and those that it knows to be constant.
        let result_is_kept = !contradicts && !is_clone && is_as_written;
        let result = Value {
            type_name: match has_result {
                true => self.type_name(unit, die, maker),
                false => String::new(),
            },
            kind: match &result {
                Some(entry) => self.kind(entry),
                None => ValueKind::Bits(64),
            },
            held: match result_class {
                Class::Nothing => Held::Nothing,
                Class::Integers(1) if result_is_kept => Held::Words(vec![0]),
                Class::Integers(1) | Class::Unknown => Held::Unknown,
                _ => Held::Elsewhere,
            },
        };
        Some(Prototype {
            parameters,
            is_variadic,
            result,
        })
    }

    /// In the order of the source, and whether more arguments follow. Where the compiler made the function's code from an
    /// abstract description, the code's own entry may have its parameters in another order, twice, or not at all.
    fn parameters<'s>(
        &'s self,
        unit: &'s Unit<'a>,
        die: &Die<'a>,
    ) -> Option<(Vec<Declared<'s, 'a>>, bool)> {
        let is_parameter = |die: &Die<'a>| die.tag() == dw::DW_TAG_formal_parameter;
        let is_rest = |die: &Die<'a>| die.tag() == dw::DW_TAG_unspecified_parameters;
        let children = self.children(unit, die)?;
        let own = || children.iter().filter(|child| is_parameter(child));
        let declare = |unit, die: &Die<'a>, has_place| Declared {
            unit,
            die: die.clone(),
            has_place,
        };
        let mut is_variadic = children.iter().any(is_rest);
        let origin = |die: &Die<'a>| self.units.target(unit, die, dw::DW_AT_abstract_origin);
        let Some((origin_unit, abstract_die)) = origin(die) else {
            let all: Vec<_> = own().map(|die| declare(unit, die, true)).collect();
            return (all.len() <= MOST_PARAMETERS).then_some((all, is_variadic));
        };
        let place =
            |unit: &Unit<'a>, die: &Die<'a>| die.offset().to_debug_info_offset(&unit.header);
        let mut of_origin: HashMap<_, Vec<&Die<'a>>> = HashMap::new();
        for child in own() {
            let (unit, abstract_child) = origin(child)?;
            let place = place(unit, &abstract_child)?;
            of_origin.entry(place).or_default().push(child);
        }
        let mut all = Vec::new();
        for child in self.children(origin_unit, &abstract_die)? {
            is_variadic |= is_rest(&child);
            if !is_parameter(&child) {
                continue;
            }
            let is_artificial = child.attr(dw::DW_AT_artificial).is_some();
            match of_origin.remove(&place(origin_unit, &child)?).as_deref() {
                Some([one]) => all.push(declare(unit, one, true)),
                Some(several) => {
                    let has_place = |die: &&&Die<'a>| die.attr(dw::DW_AT_location).is_some();
                    let mut placed = several.iter().filter(has_place);
                    match (placed.next(), placed.next()) {
                        (Some(one), None) => all.push(declare(unit, one, true)),
                        _ => all.push(declare(origin_unit, &child, false)),
                    }
                }
                // Only some constructors have these.
                None if is_artificial => {}
                None => all.push(declare(origin_unit, &child, false)),
            }
        }
        (all.len() <= MOST_PARAMETERS && of_origin.is_empty()).then_some((all, is_variadic))
    }

    /// Whether the function is a copy that the compiler made of another one, with fewer parameters perhaps.
    fn is_clone(&self, unit: &Unit<'a>, die: &Die<'a>, function: &Function) -> bool {
        let linked = self.units.text_of(unit, die, dw::DW_AT_linkage_name);
        let name = linked.or_else(|| self.units.name_of(unit, die));
        let name = name.as_deref().unwrap_or_default();
        let names = || std::iter::once(&function.name).chain(&function.aliases);
        if names().any(|other| other == name) {
            return false;
        }
        // Such a name has a suffix. Some suffixes only tell names apart.
        let harmless = [".lto_priv.", ".llvm.", ".localalias"];
        !names().any(|other| match other.strip_prefix(name) {
            Some(rest) => harmless.iter().any(|suffix| rest.starts_with(suffix)),
            None => !other.contains('.'),
        })
    }

    // ---- where parameters are seen ----

    fn seen(
        &self,
        unit: &Unit<'a>,
        die: &Die<'a>,
        address: u64,
        frame_base: Option<Attribute<'a>>,
    ) -> Seen {
        let Some(location) = die.attr_value(dw::DW_AT_location) else {
            return Seen::Nowhere;
        };
        let expression = match location {
            AttributeValue::Exprloc(expression) => Some(expression),
            _ => self.first_location(unit, location, address),
        };
        expression
            .and_then(|expression| self.seen_by(unit, expression, frame_base))
            .unwrap_or(Seen::Nowhere)
    }

    /// The location at the function's first instruction. If the parameter has another one there from the first statement
    /// on, which gave it another value, that is not it.
    fn first_location(
        &self,
        unit: &Unit<'a>,
        location: Attribute<'a>,
        address: u64,
    ) -> Option<Expression<Slice<'a>>> {
        let dwarf = &self.units.dwarf;
        let offset = dwarf.attr_locations_offset(unit, location).ok()??;
        let mut raw = dwarf.raw_locations(unit, offset).ok()?;
        let mut converted = dwarf.locations(unit, offset).ok()?;
        while let Ok(Some(one)) = raw.next() {
            // Empty ranges, which the conversion leaves out, are those of values that hold for no instruction.
            let is_empty = match &one {
                gimli::RawLocListEntry::AddressOrOffsetPair { begin, end, .. }
                | gimli::RawLocListEntry::OffsetPair { begin, end, .. }
                | gimli::RawLocListEntry::StartEnd { begin, end, .. } => begin == end,
                gimli::RawLocListEntry::StartLength { length, .. }
                | gimli::RawLocListEntry::StartxLength { length, .. } => *length == 0,
                _ => false,
            };
            let Ok(found) = converted.convert_raw(one) else {
                return None;
            };
            if is_empty {
                return None;
            }
            if let Some(found) = found {
                let is_first = found.range.begin <= address && address < found.range.end;
                return is_first.then_some(found.data);
            }
        }
        None
    }

    fn seen_by(
        &self,
        unit: &Unit<'a>,
        expression: Expression<Slice<'a>>,
        frame_base: Option<Attribute<'a>>,
    ) -> Option<Seen> {
        let mut operations = expression.operations(unit.encoding());
        let first = operations.next().ok()??;
        let second = operations.next().ok()?;
        match (first, second) {
            (Operation::Register { register }, None) => seen_in_register(register.0),
            (Operation::Register { register }, Some(Operation::Piece { .. })) => {
                let mut words = Vec::new();
                let mut register = register.0;
                let mut bits = WORD * 8;
                loop {
                    match seen_in_register(register)? {
                        Seen::Words(word) if bits == WORD * 8 => words.extend(word),
                        Seen::Words(_) => return None,
                        other => return Some(other),
                    }
                    match operations.next().ok()? {
                        None => break,
                        Some(Operation::Register { register: next }) => register = next.0,
                        Some(_) => return None,
                    }
                    match operations.next().ok()? {
                        Some(Operation::Piece {
                            size_in_bits,
                            bit_offset: None,
                        }) => bits = size_in_bits.next_multiple_of(WORD * 8),
                        _ => return None,
                    }
                }
                (words.len() <= 2).then_some(Seen::Words(words))
            }
            (
                Operation::RegisterOffset {
                    register,
                    offset: 0,
                    ..
                },
                None,
            ) if word_of(register.0).is_some() => word_of(register.0).map(Seen::Behind),
            (Operation::FrameOffset { offset }, rest) => {
                let is_behind = match (rest, operations.next().ok()?) {
                    (None, None) => false,
                    (Some(Operation::Deref { size: 8, .. }), None) => true,
                    _ => return None,
                };
                let is_callers = self.begins_callers_frame(unit, frame_base)? <= offset;
                Some(match is_callers {
                    true => Seen::Elsewhere,
                    false => Seen::Kept { is_behind },
                })
            }
            _ => None,
        }
    }

    /// The least offset from the frame base that is in the caller's frame, where the base does not move.
    fn begins_callers_frame(
        &self,
        unit: &Unit<'a>,
        frame_base: Option<Attribute<'a>>,
    ) -> Option<i64> {
        let Some(AttributeValue::Exprloc(expression)) = frame_base else {
            return None;
        };
        let mut operations = expression.operations(unit.encoding());
        match (operations.next().ok()??, operations.next().ok()?) {
            (Operation::CallFrameCFA, None) => Some(0),
            (Operation::Register { register }, None) if register.0 == FRAME_POINTER => Some(16),
            // All offsets from the stack pointer are positive.
            (Operation::Register { .. }, None) => Some(i64::MAX),
            _ => None,
        }
    }

    // ---- where the convention has them ----

    fn expected(
        &self,
        maker: Maker,
        result: Class,
        types: &[Option<UnitEntry<'_, 'a>>],
        seen: &[Seen],
    ) -> Vec<Held> {
        let mut next = match result {
            // Its address comes first.
            Class::Memory => Some(1u8),
            Class::Unknown => None,
            _ => Some(0),
        };
        if !maker.is_known {
            next = None;
        }
        let (mut least, mut most) = (0u8, 0u8);
        let mut all = Vec::new();
        for (entry, seen) in types.iter().zip(seen) {
            let class = match entry {
                Some(entry) => self.passed(entry, seen, maker),
                None => Class::Unknown,
            };
            let Some(free) = next else {
                all.push(match class {
                    Class::Nothing => Held::Nothing,
                    _ => Held::Unknown,
                });
                continue;
            };
            let registers = INTEGER_REGISTERS.len() as u8;
            all.push(match class {
                Class::Nothing => Held::Nothing,
                Class::Integers(count) if free + count <= registers => {
                    next = Some(free + count);
                    Held::Words((free..free + count).collect())
                }
                Class::Integers(1) => Held::Elsewhere,
                // Compilers have treated a last register that alone is not enough in different ways.
                Class::Integers(_) if free < registers => {
                    next = None;
                    Held::Unknown
                }
                Class::Vectors {
                    least: fewest,
                    most: many,
                } => {
                    (least, most) = (least.saturating_add(fewest), most.saturating_add(many));
                    Held::Elsewhere
                }
                Class::Mixed if free < registers && most < VECTORS => {
                    next = Some(free + 1);
                    (least, most) = (least + 1, most + 1);
                    Held::Elsewhere
                }
                Class::Mixed if free < registers && least < VECTORS => {
                    next = None;
                    Held::Elsewhere
                }
                Class::Integers(_) | Class::Mixed | Class::Memory | Class::Extended => {
                    most = most.saturating_add(1);
                    Held::Elsewhere
                }
                Class::Unknown => {
                    next = None;
                    Held::Unknown
                }
            });
        }
        all
    }

    /// None once too many entries have been read.
    fn children(&self, unit: &Unit<'a>, die: &Die<'a>) -> Option<Vec<Die<'a>>> {
        let children = children(unit, die);
        let left = self.left.get().checked_sub(children.len() + 1)?;
        self.left.set(left);
        Some(children)
    }
}

fn is_aggregate(die: &Die) -> bool {
    [
        dw::DW_TAG_structure_type,
        dw::DW_TAG_class_type,
        dw::DW_TAG_union_type,
        dw::DW_TAG_array_type,
    ]
    .contains(&die.tag())
        && die.attr(dw::DW_AT_GNU_vector).is_none()
}

fn encoding(die: &Die) -> Option<DwAte> {
    match die.attr_value(dw::DW_AT_encoding) {
        Some(AttributeValue::Encoding(encoding)) => Some(encoding),
        _ => None,
    }
}

fn word_of(register: u16) -> Option<u8> {
    let position = INTEGER_REGISTERS.iter().position(|one| *one == register)?;
    u8::try_from(position).ok()
}

fn seen_in_register(register: u16) -> Option<Seen> {
    match word_of(register) {
        Some(word) => Some(Seen::Words(vec![word])),
        None if VECTOR_REGISTERS.contains(&register) => Some(Seen::Elsewhere),
        None => None,
    }
}

/// The lower bits of a value, with their sign.
fn cut(value: i64, bits: u8) -> i64 {
    let unused = 64 - u32::from(bits.clamp(1, 64));
    value << unused >> unused
}

impl Seen {
    fn first_word(&self) -> Option<u8> {
        match self {
            Seen::Words(words) => words.first().copied(),
            Seen::Behind(word) => Some(*word),
            _ => None,
        }
    }

    fn contradicts(&self, expected: &Held) -> bool {
        match (expected, self) {
            (Held::Unknown | Held::Nothing, _) | (_, Seen::Nowhere) => false,
            (Held::Words(expected), Seen::Words(words)) => expected != words,
            (Held::Words(expected), Seen::Behind(word)) => expected != &[*word],
            (Held::Words(_), Seen::Elsewhere) => true,
            (Held::Words(_), Seen::Kept { .. }) => false,
            (Held::Elsewhere, Seen::Words(_) | Seen::Behind(_)) => true,
            (Held::Elsewhere, Seen::Elsewhere | Seen::Kept { .. }) => false,
        }
    }
}

impl ValueKind {
    /// The number that the bits of a word mean.
    pub fn number(&self, word: u64) -> i128 {
        match self {
            ValueKind::Signed(bits) | ValueKind::Enumeration { bits, .. } => {
                i128::from(cut(word.cast_signed(), *bits))
            }
            ValueKind::Boolean => i128::from(word as u8),
            ValueKind::Unsigned(bits) | ValueKind::Character(bits) | ValueKind::Bits(bits) => {
                let unused = 64 - u32::from((*bits).clamp(1, 64));
                i128::from(word << unused >> unused)
            }
            ValueKind::Address => i128::from(word),
        }
    }
}
