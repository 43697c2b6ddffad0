//! Types of the source, from DWARF: their parts, and the kinds of their values.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::convert::Infallible;
use std::ops::Deref;

use anyhow::{Result, anyhow, bail, ensure};
use gimli::{
    AttributeValue, DebugInfoOffset, DebuggingInformationEntry, DwAt, DwTag, DwarfSections,
    EndianSlice, LittleEndian, SectionId, UnitHeader, UnitOffset, constants as dw,
};

use crate::compressed;
use crate::elf::Elf;
use crate::nearest::{nearest, or_nearest};
use crate::path::Step;

pub(crate) type Slice<'a> = EndianSlice<'a, LittleEndian>;
pub(crate) type Dwarf<'a> = gimli::Dwarf<Slice<'a>>;
pub(crate) type Die<'a> = DebuggingInformationEntry<Slice<'a>>;
pub(crate) type Value<'a> = AttributeValue<Slice<'a>>;

/// The limit of nested types, and of unnamed structures within structures.
const MOST_TYPES: usize = 16;
/// Limits of the members, enumerators and dimensions examined: of one type, and of all types in a search, as types may
/// contain each other.
const MOST_CHILDREN: usize = 1 << 14;
/// Members listed in an error.
const MOST_NAMED: usize = 6;
const POINTER_BYTES: u64 = 8;

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

/// A unit of a file, or one that the file has in common with others.
pub(crate) struct Unit<'a> {
    unit: gimli::Unit<Slice<'a>>,
    is_common: bool,
}

impl<'a> Deref for Unit<'a> {
    type Target = gimli::Unit<Slice<'a>>;

    fn deref(&self) -> &Self::Target {
        &self.unit
    }
}

/// The units of a file. Entries may refer to other units' (LTO, dwz), also to those of a file that dwz has moved there.
pub(crate) struct Units<'a> {
    pub dwarf: Dwarf<'a>,
    /// Each file's in order.
    headers: Vec<UnitHeader<Slice<'a>>>,
    /// The number of the file's own units; those behind them are common ones.
    own: usize,
    /// Units that are needed more than once.
    kept: Vec<OnceCell<Option<Unit<'a>>>>,
}

/// An entry, and the unit that it is in.
pub(crate) type UnitEntry<'u, 'a> = (&'u Unit<'a>, Die<'a>);

/// A type without typedefs and qualifiers.
pub(crate) enum Type<'u, 'a> {
    Entry(UnitEntry<'u, 'a>),
    /// An array's: that of its elements, and how many there are in each dimension, as far as that is known.
    Array(UnitEntry<'u, 'a>, Vec<Option<u64>>),
}

/// The step from a value to its parts.
pub(crate) struct Stepped<'u, 'a> {
    /// The parts are at the address that the value holds.
    pub is_behind: bool,
    /// In bytes.
    pub offset: u64,
    pub kind: Type<'u, 'a>,
}

/// The sections of debug information of a file, and of the one that it has common parts in.
pub(crate) struct Sections<'a> {
    own: DwarfSections<Cow<'a, [u8]>>,
    common: Option<DwarfSections<Cow<'a, [u8]>>>,
}

impl<'a> Sections<'a> {
    pub fn of(elf: &'a Elf, common: Option<&'a Elf>) -> Sections<'a> {
        let load = |elf: &'a Elf| {
            let Ok(sections) = DwarfSections::load(|id: SectionId| {
                let section = elf.section(id.name());
                let bytes = section.and_then(|section| compressed::section_bytes(elf, section));
                Ok::<_, Infallible>(bytes.unwrap_or_default())
            });
            sections
        };
        Sections {
            own: load(elf),
            common: common.map(load),
        }
    }

    pub fn units(&self) -> Units<'_> {
        let common = self.common.as_ref();
        let dwarf = self
            .own
            .borrow_with_sup(common, |section| Slice::new(section, LittleEndian));
        Units::of(dwarf)
    }
}

impl<'a> Units<'a> {
    fn of(dwarf: Dwarf<'a>) -> Units<'a> {
        let mut headers = Vec::new();
        let mut own = 0;
        for (index, dwarf) in std::iter::once(&dwarf).chain(dwarf.sup()).enumerate() {
            let mut all = dwarf.units();
            while let Ok(Some(header)) = all.next() {
                headers.push(header);
            }
            if index == 0 {
                own = headers.len();
            }
        }
        let kept = headers.iter().map(|_| OnceCell::new()).collect();
        Units {
            dwarf,
            headers,
            own,
            kept,
        }
    }

    /// The number of the file's own.
    pub fn count(&self) -> usize {
        self.own
    }

    /// A unit that is to be looked at once.
    pub fn look(&self, index: usize) -> Option<Unit<'a>> {
        let is_common = index >= self.own;
        let unit = self.dwarf_with(is_common).unit(self.headers[index]).ok()?;
        Some(Unit { unit, is_common })
    }

    fn dwarf_with(&self, is_common: bool) -> &Dwarf<'a> {
        self.dwarf
            .sup()
            .filter(|_| is_common)
            .unwrap_or(&self.dwarf)
    }

    pub fn unit(&self, index: usize) -> Option<&Unit<'a>> {
        self.kept[index].get_or_init(|| self.look(index)).as_ref()
    }

    /// The entry that a value of `unit` refers to.
    fn entry<'u>(&'u self, unit: &'u Unit<'a>, reference: Value<'a>) -> Option<UnitEntry<'u, 'a>> {
        let (unit, offset): (_, UnitOffset) = match reference {
            AttributeValue::UnitRef(offset) => (unit, offset),
            AttributeValue::DebugInfoRef(offset) => match offset.to_unit_offset(&unit.header) {
                Some(own) => (unit, own),
                None => self.place(unit.is_common, offset)?,
            },
            AttributeValue::DebugInfoRefSup(offset) => self.place(true, offset)?,
            _ => return None,
        };
        Some((unit, unit.entry(offset).ok()?))
    }

    /// The place of an entry in another unit.
    fn place(&self, is_common: bool, offset: DebugInfoOffset) -> Option<(&Unit<'a>, UnitOffset)> {
        let (own, common) = self.headers.split_at(self.own);
        let (first, headers) = match is_common {
            true => (self.own, common),
            false => (0, own),
        };
        let begins = |header: &UnitHeader<_>| header.debug_info_offset() <= Some(offset);
        let before = headers.partition_point(begins);
        let unit = self.unit(first + before.checked_sub(1)?)?;
        Some((unit, offset.to_unit_offset(&unit.header)?))
    }

    /// The name of the entry, or of the one that it completes.
    pub fn name_of(&self, unit: &Unit<'a>, die: &Die<'a>) -> Option<String> {
        self.text_of(unit, die, dw::DW_AT_name)
    }

    /// The text that an attribute of the entry has, or one of the entry that it completes.
    pub fn text_of(&self, unit: &Unit<'a>, die: &Die<'a>, name: DwAt) -> Option<String> {
        let (unit, value) = self.inherited(unit, die, name)?;
        let text = self
            .dwarf_with(unit.is_common)
            .attr_string(unit, value)
            .ok()?;
        Some(text.to_string_lossy().into_owned())
    }

    fn inherited<'u>(
        &'u self,
        unit: &'u Unit<'a>,
        die: &Die<'a>,
        name: DwAt,
    ) -> Option<(&'u Unit<'a>, Value<'a>)> {
        let mut place = (unit, die.clone());
        for _ in 0..MOST_TYPES {
            let (unit, die) = &place;
            if let Some(value) = die.attr_value(name) {
                return Some((unit, value));
            }
            let origin = die
                .attr_value(dw::DW_AT_abstract_origin)
                .or_else(|| die.attr_value(dw::DW_AT_specification))?;
            place = self.entry(unit, origin)?;
        }
        None
    }

    /// The entry that an attribute refers to.
    pub fn target<'u>(
        &'u self,
        unit: &'u Unit<'a>,
        die: &Die<'a>,
        name: DwAt,
    ) -> Option<UnitEntry<'u, 'a>> {
        self.entry(unit, die.attr_value(name)?)
    }

    /// Whether the entry, or the one that it completes, has the attribute.
    pub fn inherits(&self, unit: &Unit<'a>, die: &Die<'a>, name: DwAt) -> bool {
        self.inherited(unit, die, name).is_some()
    }

    // ---- types ----

    /// The type of a variable, a member or a result, as it is written.
    pub fn any_type<'u>(&'u self, unit: &'u Unit<'a>, die: &Die<'a>) -> Option<UnitEntry<'u, 'a>> {
        let (unit, value) = self.inherited(unit, die, dw::DW_AT_type)?;
        self.entry(unit, value)
    }

    /// The same without typedefs and qualifiers. An array is itself.
    pub fn type_entry<'u>(
        &'u self,
        unit: &'u Unit<'a>,
        die: &Die<'a>,
    ) -> Option<UnitEntry<'u, 'a>> {
        self.plain(self.any_type(unit, die)?)
    }

    /// The type of a variable or a member.
    pub fn type_of<'u>(&'u self, unit: &'u Unit<'a>, die: &Die<'a>) -> Option<Type<'u, 'a>> {
        let (unit, value) = self.inherited(unit, die, dw::DW_AT_type)?;
        let place = self.plain(self.entry(unit, value)?)?;
        if place.1.tag() != dw::DW_TAG_array_type {
            return Some(Type::Entry(place));
        }
        let (unit, die) = place;
        let mut counts = Vec::new();
        for child in children(unit, &die) {
            if child.tag() == dw::DW_TAG_subrange_type {
                let number = |name| child.attr_value(name)?.udata_value();
                let last = || number(dw::DW_AT_upper_bound)?.checked_add(1);
                counts.push(number(dw::DW_AT_count).or_else(last));
            }
        }
        let has_gaps = [dw::DW_AT_byte_stride, dw::DW_AT_bit_stride];
        let has_gaps = has_gaps.iter().any(|name| die.attr(*name).is_some());
        let element = self.aimed_at(unit, &die)?;
        (!has_gaps && !counts.is_empty()).then_some(Type::Array(element, counts))
    }

    /// The type that a type is made of.
    fn aimed_at<'u>(&'u self, unit: &'u Unit<'a>, die: &Die<'a>) -> Option<UnitEntry<'u, 'a>> {
        self.plain(self.entry(unit, die.attr_value(dw::DW_AT_type)?)?)
    }

    fn plain<'u>(&'u self, mut place: UnitEntry<'u, 'a>) -> Option<UnitEntry<'u, 'a>> {
        const NAMES: [DwTag; 5] = [
            dw::DW_TAG_typedef,
            dw::DW_TAG_const_type,
            dw::DW_TAG_volatile_type,
            dw::DW_TAG_restrict_type,
            dw::DW_TAG_atomic_type,
        ];
        for _ in 0..MOST_TYPES {
            let (unit, die) = &place;
            if !NAMES.contains(&die.tag()) {
                return Some(place);
            }
            place = self.entry(unit, die.attr_value(dw::DW_AT_type)?)?;
        }
        None
    }

    /// The size of a value in bytes, if it is known.
    pub fn bytes(&self, kind: &Type<'_, 'a>) -> Option<u64> {
        match kind {
            Type::Entry((_, die)) => {
                let size = die.attr_value(dw::DW_AT_byte_size);
                let size = size.and_then(|size| size.udata_value());
                size.or_else(|| is_pointer(die).then_some(POINTER_BYTES))
            }
            Type::Array((unit, die), counts) => {
                let element = self.bytes(&Type::Entry((unit, die.clone())))?;
                let mut counts = counts.iter();
                counts.try_fold(element, |bytes, count| bytes.checked_mul((*count)?))
            }
        }
    }

    /// Goes from the value named `path` to its part.
    pub fn step<'u>(
        &'u self,
        from: Type<'u, 'a>,
        step: &Step,
        path: &str,
    ) -> Result<Stepped<'u, 'a>> {
        match step {
            Step::Member(name) => self.member(from, name, path),
            Step::Element(index) => self.element(from, *index, path),
        }
    }

    fn element<'u>(
        &'u self,
        from: Type<'u, 'a>,
        index: u64,
        path: &str,
    ) -> Result<Stepped<'u, 'a>> {
        let (is_behind, kind) = match from {
            Type::Array(element, mut counts) => {
                let count = counts.remove(0);
                // An array of no elements stands at a structure's end, and as many elements follow as there was room
                // for.
                if let Some(count) = count.filter(|count| *count > 0) {
                    ensure!(
                        index < count,
                        "{path} has {count} elements, from {path}[0] on"
                    );
                }
                let is_last = counts.is_empty();
                (
                    false,
                    if is_last {
                        Type::Entry(element)
                    } else {
                        Type::Array(element, counts)
                    },
                )
            }
            Type::Entry((unit, die)) if is_pointer(&die) => {
                let aimed = self.type_of(unit, &die);
                (
                    true,
                    aimed.ok_or_else(|| anyhow!("the target of {path} has no type"))?,
                )
            }
            _ => bail!("{path} is not an array"),
        };
        let bytes = self.bytes(&kind).ok_or_else(|| {
            anyhow!("the debug information lacks the size of an element of {path}")
        })?;
        let offset = index
            .checked_mul(bytes)
            .filter(|offset| i64::try_from(*offset).is_ok());
        Ok(Stepped {
            is_behind,
            offset: offset.ok_or_else(|| anyhow!("{path} does not reach so far"))?,
            kind,
        })
    }

    fn member<'u>(&'u self, from: Type<'u, 'a>, name: &str, path: &str) -> Result<Stepped<'u, 'a>> {
        let (is_behind, place) = match from {
            Type::Entry((unit, die)) if is_pointer(&die) => (true, self.aimed_at(unit, &die)),
            Type::Entry(place) => (false, Some(place)),
            Type::Array(..) => bail!("{path} is an array: choose an element, such as {path}[0]"),
        };
        let place = place.filter(|(_, die)| is_structure(die));
        let (unit, die) =
            place.ok_or_else(|| anyhow!("{path} is not a structure, nor a pointer to one"))?;
        ensure!(
            die.attr(dw::DW_AT_declaration).is_none(),
            "the debug information of this source file only declares the type of {path}, without its members"
        );
        let (mut left, mut others) = (MOST_CHILDREN, Vec::new());
        if let Some((offset, kind)) = self.search(unit, &die, name, 0, &mut left, &mut others)? {
            return Ok(Stepped {
                is_behind,
                offset,
                kind,
            });
        }
        match nearest(others.iter().map(String::as_str), name) {
            near if near.is_empty() => {
                bail!("{path} has no member {name}; it has {}", listed(&others))
            }
            near => bail!("{path} has no member {name}{}", or_nearest(&near)),
        }
    }

    /// Searches nameless structures and bases, too. `left`: the number of members that may still be looked at.
    fn search<'u>(
        &'u self,
        unit: &'u Unit<'a>,
        die: &Die<'a>,
        name: &str,
        depth: usize,
        left: &mut usize,
        others: &mut Vec<String>,
    ) -> Result<Option<(u64, Type<'u, 'a>)>> {
        let all = children(unit, die);
        *left = left.checked_sub(all.len() + 1).ok_or_else(|| {
            anyhow!("{name} is not among the first {MOST_CHILDREN} members, counting nested ones")
        })?;
        for child in all {
            let is_base = child.tag() == dw::DW_TAG_inheritance;
            // A member without a place in the structure is a variable.
            let is_static = child.attr(dw::DW_AT_external).is_some();
            if is_static || !(is_base || child.tag() == dw::DW_TAG_member) {
                continue;
            }
            let own = self.name_of(unit, &child);
            let offset = match child.attr_value(dw::DW_AT_data_member_location) {
                None => Some(0),
                Some(value) => value.udata_value(),
            };
            let is_meant = own.as_deref() == Some(name);
            if is_meant {
                for bits in [
                    dw::DW_AT_bit_size,
                    dw::DW_AT_data_bit_offset,
                    dw::DW_AT_bit_offset,
                ] {
                    ensure!(
                        child.attr(bits).is_none(),
                        "{name} is a bit-field, which has no address: fetch the memory that it is in, by a register"
                    );
                }
            }
            let known = || anyhow!("the position of {name} depends on the object (a virtual base)");
            let kind = self.type_of(unit, &child);
            if is_meant {
                let kind = kind.ok_or_else(|| anyhow!("the type of {name} is not known"))?;
                return Ok(Some((offset.ok_or_else(known)?, kind)));
            }
            match (own, kind) {
                (Some(own), _) if !is_base => others.push(own),
                (_, Some(Type::Entry((unit, inner))))
                    if depth < MOST_TYPES && is_structure(&inner) =>
                {
                    if let Some((within, kind)) =
                        self.search(unit, &inner, name, depth + 1, left, others)?
                    {
                        let offset = offset.ok_or_else(known)?.checked_add(within);
                        return Ok(Some((offset.ok_or_else(known)?, kind)));
                    }
                }
                _ => {}
            }
        }
        Ok(None)
    }

    /// The form in which the value named `path` is shown.
    pub fn shown(&self, kind: &Type<'_, 'a>, path: &str) -> Result<VariableKind> {
        let (unit, die) = match kind {
            Type::Entry(place) => place,
            Type::Array((_, element), counts) => match counts.len() == 1 && is_character(element) {
                true => return Ok(VariableKind::Characters),
                false => bail!("{path} is an array: choose an element, such as {path}[0]"),
            },
        };
        let bits = match self.bytes(kind) {
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
                Some(dw::DW_ATE_float) => {
                    bail!(
                        "{path} is a floating-point number of {bits} bits, which probes do not fetch"
                    )
                }
                _ => Ok(VariableKind::Unsigned(bits)),
            },
            (dw::DW_TAG_enumeration_type, Some(bits)) => Ok(self.enumeration(unit, die, bits)),
            _ if is_pointer(die) => match self.aimed_at(unit, die) {
                Some((_, aimed)) if is_character(&aimed) => Ok(VariableKind::Text),
                _ => Ok(VariableKind::Pointer),
            },
            _ if is_structure(die) => {
                let named = |child: Die<'a>| {
                    let is_member = child.tag() == dw::DW_TAG_member;
                    self.name_of(unit, &child).filter(|_| is_member)
                };
                let members: Vec<String> =
                    children(unit, die).into_iter().filter_map(named).collect();
                bail!(
                    "{path} is a structure: choose a member of it: {}",
                    listed(&members)
                )
            }
            _ => bail!("{path} is not a number, address or text"),
        }
    }

    fn enumeration(&self, unit: &Unit<'a>, die: &Die<'a>, bits: u8) -> VariableKind {
        const MOST_NAMES: usize = 256;
        let named = |one: Die<'a>| {
            let value = one.attr_value(dw::DW_AT_const_value)?.sdata_value()?;
            let is_enumerator = one.tag() == dw::DW_TAG_enumerator;
            Some((value, self.name_of(unit, &one).filter(|_| is_enumerator)?))
        };
        let names = children(unit, die).into_iter().filter_map(named);
        let names: Vec<(i64, String)> = names.take(MOST_NAMES).collect();
        let signed = names.iter().any(|(value, _)| *value < 0);
        VariableKind::Enumeration {
            signed,
            bits,
            names,
        }
    }
}

fn is_pointer(die: &Die) -> bool {
    const POINTERS: [DwTag; 3] = [
        dw::DW_TAG_pointer_type,
        dw::DW_TAG_reference_type,
        dw::DW_TAG_rvalue_reference_type,
    ];
    POINTERS.contains(&die.tag())
}

fn is_structure(die: &Die) -> bool {
    const STRUCTURES: [DwTag; 3] = [
        dw::DW_TAG_structure_type,
        dw::DW_TAG_class_type,
        dw::DW_TAG_union_type,
    ];
    STRUCTURES.contains(&die.tag())
}

fn is_character(die: &Die) -> bool {
    let encoding = die.attr_value(dw::DW_AT_encoding);
    encoding == Some(AttributeValue::Encoding(dw::DW_ATE_signed_char))
}

/// The entries right below an entry.
pub(crate) fn children<'a>(unit: &Unit<'a>, die: &Die<'a>) -> Vec<Die<'a>> {
    let mut all = Vec::new();
    if let Ok(mut entries) = unit.entries_at_offset(die.offset()) {
        let _ = entries.next_dfs();
        let mut looked_at = 0;
        while let Ok(Some(one)) = entries.next_dfs() {
            if one.depth() <= 0 || looked_at == MOST_CHILDREN {
                break;
            }
            looked_at += 1;
            if one.depth() == 1 {
                all.push(one.clone());
            }
        }
    }
    all
}

fn listed(names: &[String]) -> String {
    match names {
        [] => "none".to_owned(),
        names => {
            let more = if names.len() > MOST_NAMED {
                ", …"
            } else {
                ""
            };
            names[..names.len().min(MOST_NAMED)].join(", ") + more
        }
    }
}
