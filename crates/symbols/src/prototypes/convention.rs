//! The passing and returning of a type's values, by the System V convention for x86-64.

use super::*;

impl<'a> Reader<'_, 'a> {
    pub(super) fn passed(&self, entry: &UnitEntry<'_, 'a>, seen: &Seen, maker: Maker) -> Class {
        let is_whole = is_aggregate(&entry.1);
        match seen {
            // By reference, as objects that are not copied byte by byte.
            Seen::Behind(_) | Seen::Kept { is_behind: true } if is_whole => Class::Integers(1),
            Seen::Behind(_) | Seen::Kept { is_behind: true } => Class::Unknown,
            _ if maker.language == Language::Rust => self.passed_by_rust(entry, seen),
            Seen::Nowhere if is_whole => match self.is_copied(entry, maker) {
                Some(true) => self.class(entry),
                Some(false) => Class::Integers(1),
                None => Class::Unknown,
            },
            _ => self.class(entry),
        }
    }

    /// Rust's convention is its own; only the part that it has in common with all others is certain.
    fn passed_by_rust(&self, entry: &UnitEntry<'_, 'a>, seen: &Seen) -> Class {
        let (unit, die) = entry;
        if self.size(entry) == Some(0) {
            return Class::Nothing;
        }
        if !is_aggregate(die) {
            return self.class(entry);
        }
        let name = self.units.name_of(unit, die).unwrap_or_default();
        let is_wide =
            name.starts_with('&') || name.starts_with("*const ") || name.starts_with("*mut ");
        match seen {
            Seen::Words(words) => Class::Integers(words.len() as u8),
            _ if is_wide && self.size(entry) == Some(2 * WORD) => Class::Integers(2),
            _ => Class::Unknown,
        }
    }

    pub(super) fn returned(
        &self,
        entry: Option<&UnitEntry<'_, 'a>>,
        has_result: bool,
        maker: Maker,
    ) -> Class {
        let Some(entry) = entry else {
            return match has_result {
                true => Class::Unknown,
                false => Class::Nothing,
            };
        };
        let is_whole = is_aggregate(&entry.1);
        match maker.language {
            Language::Rust if self.size(entry) == Some(0) => Class::Nothing,
            Language::Rust if is_whole => Class::Unknown,
            _ if is_whole => match self.is_copied(entry, maker) {
                Some(true) => self.class(entry),
                Some(false) => Class::Memory,
                None => Class::Unknown,
            },
            _ => self.class(entry),
        }
    }

    /// Whether objects of the type are copied byte by byte, or by functions of their own, as far as that is certain.
    fn is_copied(&self, entry: &UnitEntry<'_, 'a>, maker: Maker) -> Option<bool> {
        let (unit, die) = entry;
        if maker.language == Language::C {
            return Some(true);
        }
        match die.attr_value(dw::DW_AT_calling_convention) {
            Some(AttributeValue::CallingConvention(dw::DW_CC_pass_by_value)) => return Some(true),
            Some(AttributeValue::CallingConvention(dw::DW_CC_pass_by_reference)) => {
                return Some(false);
            }
            Some(_) => return None,
            None => {}
        }
        // From DWARF 5 on, destructors that are only declared as the compiler would make them say so.
        let implied = [dw::DW_AT_defaulted, dw::DW_AT_deleted, dw::DW_AT_artificial];
        let is_destructor = |child: &Die<'a>| {
            child.tag() == dw::DW_TAG_subprogram
                && implied.iter().all(|name| child.attr(*name).is_none())
                && self
                    .units
                    .name_of(unit, child)
                    .is_some_and(|name| name.starts_with('~'))
        };
        if unit.header.version() >= 5 && self.children(unit, die)?.iter().any(is_destructor) {
            return Some(false);
        }
        self.is_plain(entry, 0).then_some(true)
    }

    /// Without functions of its own that may copy or destroy it.
    fn is_plain(&self, (unit, die): &UnitEntry<'_, 'a>, depth: usize) -> bool {
        let own = self.units.name_of(unit, die);
        let own = own
            .as_deref()
            .map(|name| name.split('<').next().unwrap_or(name));
        let Some(children) = self.children(unit, die).filter(|_| depth < DEEPEST) else {
            return false;
        };
        children.iter().all(|child| match child.tag() {
            dw::DW_TAG_subprogram => {
                let name = self.units.name_of(unit, child).unwrap_or_default();
                let is_virtual = child.attr(dw::DW_AT_virtuality).is_some();
                let name = name.split('<').next().unwrap_or_default();
                !is_virtual && !name.starts_with('~') && Some(name) != own
            }
            dw::DW_TAG_member | dw::DW_TAG_inheritance => {
                let is_virtual = child.attr(dw::DW_AT_virtuality).is_some();
                if child.attr(dw::DW_AT_external).is_some() {
                    return true;
                }
                let inner = self.units.type_entry(unit, child);
                let inner = inner.and_then(|inner| self.element(inner));
                !is_virtual
                    && inner.is_some_and(|inner| {
                        !is_aggregate(&inner.1) || self.is_plain(&inner, depth + 1)
                    })
            }
            _ => true,
        })
    }

    /// The elements' type of an array, or the type itself.
    fn element<'s>(&'s self, entry: UnitEntry<'s, 'a>) -> Option<UnitEntry<'s, 'a>> {
        let mut entry = entry;
        for _ in 0..DEEPEST {
            if entry.1.tag() != dw::DW_TAG_array_type {
                return Some(entry);
            }
            entry = self.units.type_entry(entry.0, &entry.1)?;
        }
        None
    }

    /// The class of a value in C.
    fn class(&self, entry: &UnitEntry<'_, 'a>) -> Class {
        let (unit, die) = entry;
        match die.tag() {
            dw::DW_TAG_pointer_type
            | dw::DW_TAG_reference_type
            | dw::DW_TAG_rvalue_reference_type => Class::Integers(1),
            dw::DW_TAG_enumeration_type => match self.size(entry) {
                Some(1..=8) => Class::Integers(1),
                _ => Class::Unknown,
            },
            // The type of nullptr.
            dw::DW_TAG_unspecified_type if self.size(entry) == Some(WORD) => Class::Integers(1),
            dw::DW_TAG_ptr_to_member_type => match self.units.type_entry(unit, die) {
                Some((_, aimed)) if aimed.tag() == dw::DW_TAG_subroutine_type => Class::Integers(2),
                Some(_) => Class::Integers(1),
                None => Class::Unknown,
            },
            dw::DW_TAG_base_type => match (encoding(die), self.size(entry)) {
                (_, Some(0)) => Class::Nothing,
                (Some(encoding), Some(size)) => self.number(unit, die, encoding, size),
                _ => Class::Unknown,
            },
            dw::DW_TAG_structure_type | dw::DW_TAG_class_type | dw::DW_TAG_union_type => {
                match self.size(entry) {
                    None => Class::Unknown,
                    Some(0) => Class::Nothing,
                    Some(size @ 1..=MOST_IN_REGISTERS) => self.structure(entry, size),
                    Some(_) => Class::Memory,
                }
            }
            dw::DW_TAG_array_type if die.attr(dw::DW_AT_GNU_vector).is_some() => {
                Class::Vectors { least: 0, most: 1 }
            }
            _ => Class::Unknown,
        }
    }

    fn number(&self, unit: &Unit<'a>, die: &Die<'a>, encoding: DwAte, size: u64) -> Class {
        match (encoding, size) {
            (dw::DW_ATE_float | dw::DW_ATE_decimal_float, 1..=8) => {
                Class::Vectors { least: 1, most: 1 }
            }
            (dw::DW_ATE_float, 16) => match self.units.name_of(unit, die).as_deref() {
                Some("long double" | "_Float64x") => Class::Extended,
                Some("_Float128" | "__float128") => Class::Vectors { least: 1, most: 1 },
                _ => Class::Unknown,
            },
            (dw::DW_ATE_decimal_float, 16) => Class::Vectors { least: 1, most: 1 },
            (dw::DW_ATE_complex_float, 4 | 8) => Class::Vectors { least: 1, most: 1 },
            (dw::DW_ATE_complex_float, 16) => Class::Vectors { least: 2, most: 2 },
            (dw::DW_ATE_complex_float, 32) => match self.units.name_of(unit, die) {
                Some(name) if name.contains("long double") => Class::Extended,
                _ => Class::Unknown,
            },
            (dw::DW_ATE_float | dw::DW_ATE_decimal_float | dw::DW_ATE_complex_float, _) => {
                Class::Unknown
            }
            (_, 1..=8) => Class::Integers(1),
            (_, 9..=16) => Class::Integers(2),
            _ => Class::Memory,
        }
    }

    /// A structure of at most two words.
    fn structure(&self, entry: &UnitEntry<'_, 'a>, size: u64) -> Class {
        let mut words = [None; 2];
        match self.fields(entry, 0, 0, &mut words) {
            Some(Fields::Fit) => {}
            Some(Fields::InMemory) => return Class::Memory,
            None => return Class::Unknown,
        }
        let count = size.div_ceil(WORD);
        match (words[0], words[1]) {
            (None, None) => Class::Nothing,
            (Some(Register::Integer), None) if count == 1 => Class::Integers(1),
            (Some(Register::Vector), None) if count == 1 => Class::Vectors { least: 1, most: 1 },
            (Some(Register::Integer), Some(Register::Integer)) => Class::Integers(2),
            (Some(Register::Vector), Some(Register::Vector)) => {
                Class::Vectors { least: 1, most: 2 }
            }
            (Some(_), Some(_)) => Class::Mixed,
            // A word of which no field is a part: compilers have changed how they pass it.
            _ => Class::Unknown,
        }
    }

    /// Adds the fields of a type at an offset to the words that they are in.
    fn fields(
        &self,
        entry: &UnitEntry<'_, 'a>,
        offset: u64,
        depth: usize,
        words: &mut [Option<Register>; 2],
    ) -> Option<Fields> {
        let (unit, die) = entry;
        if depth == DEEPEST {
            return None;
        }
        if is_aggregate(die) {
            if die.attr(dw::DW_AT_declaration).is_some() {
                return None;
            }
            for child in self.children(unit, die)? {
                match child.tag() {
                    dw::DW_TAG_member | dw::DW_TAG_inheritance => {}
                    dw::DW_TAG_variant_part => return None,
                    _ => continue,
                }
                if child.attr(dw::DW_AT_external).is_some() {
                    continue;
                }
                if child.attr(dw::DW_AT_virtuality).is_some() {
                    return None;
                }
                let number = |name| child.attr_value(name).and_then(|value| value.udata_value());
                let at = match child.attr_value(dw::DW_AT_data_member_location) {
                    None => 0,
                    Some(value) => value.udata_value()?,
                };
                if child.attr(dw::DW_AT_bit_size).is_some() {
                    // The bits are in one word, since a word holds any type of theirs.
                    let bits = match number(dw::DW_AT_data_bit_offset) {
                        Some(bits) => bits,
                        None => at.checked_mul(8)?,
                    };
                    add(words, offset.checked_add(bits / 8)?, Register::Integer)?;
                    continue;
                }
                let inner = self.units.type_entry(unit, &child)?;
                match self.fields(&inner, offset.checked_add(at)?, depth + 1, words)? {
                    Fields::Fit => {}
                    Fields::InMemory => return Some(Fields::InMemory),
                }
            }
            return Some(Fields::Fit);
        }
        if die.tag() == dw::DW_TAG_array_type {
            if die.attr(dw::DW_AT_GNU_vector).is_some() {
                return None;
            }
            let element = self.units.type_entry(unit, die)?;
            let size = self.size(&element)?;
            let mut count = 1u64;
            for range in self.children(unit, die)? {
                if range.tag() == dw::DW_TAG_subrange_type {
                    let number = |name| range.attr_value(name)?.udata_value();
                    let last = || number(dw::DW_AT_upper_bound)?.checked_add(1);
                    // Without a count it is one of no elements, at a structure's end.
                    let elements = number(dw::DW_AT_count).or_else(last).unwrap_or(0);
                    count = count.checked_mul(elements)?;
                }
            }
            if count > 0 && size == 0 {
                return None;
            }
            for index in 0..count {
                let at = offset.checked_add(index.checked_mul(size)?)?;
                if at >= MOST_IN_REGISTERS {
                    return None;
                }
                match self.fields(&element, at, depth + 1, words)? {
                    Fields::Fit => {}
                    Fields::InMemory => return Some(Fields::InMemory),
                }
            }
            return Some(Fields::Fit);
        }
        let size = match die.tag() {
            dw::DW_TAG_pointer_type
            | dw::DW_TAG_reference_type
            | dw::DW_TAG_rvalue_reference_type => WORD,
            _ => self.size(entry)?,
        };
        let is_complex = encoding(die) == Some(dw::DW_ATE_complex_float);
        let alignment = match is_complex {
            true => size / 2,
            false => size,
        };
        if alignment == 0 || !alignment.is_power_of_two() || alignment > MOST_IN_REGISTERS {
            return None;
        }
        // A packed field.
        if !offset.is_multiple_of(alignment) {
            return Some(Fields::InMemory);
        }
        match (self.class(entry), size) {
            (Class::Integers(1), _) => add(words, offset, Register::Integer)?,
            (Class::Integers(2), _) => {
                add(words, offset, Register::Integer)?;
                add(words, offset + WORD, Register::Integer)?;
            }
            (Class::Vectors { .. }, 1..=8) => add(words, offset, Register::Vector)?,
            (Class::Vectors { .. }, 16) if is_complex => {
                add(words, offset, Register::Vector)?;
                add(words, offset + WORD, Register::Vector)?;
            }
            (Class::Extended, _) => return None,
            _ => return None,
        }
        Some(Fields::Fit)
    }

    pub(super) fn size(&self, entry: &UnitEntry<'_, 'a>) -> Option<u64> {
        let mut entry = (entry.0, entry.1.clone());
        for _ in 0..DEEPEST {
            let size = entry.1.attr_value(dw::DW_AT_byte_size);
            if let Some(size) = size.and_then(|size| size.udata_value()) {
                return Some(size);
            }
            match entry.1.tag() {
                dw::DW_TAG_pointer_type
                | dw::DW_TAG_reference_type
                | dw::DW_TAG_rvalue_reference_type => return Some(WORD),
                dw::DW_TAG_unspecified_type => {
                    let name = self.units.name_of(entry.0, &entry.1)?;
                    return ["decltype(nullptr)", "nullptr_t", "std::nullptr_t"]
                        .contains(&name.as_str())
                        .then_some(WORD);
                }
                dw::DW_TAG_enumeration_type => {
                    entry = self.units.type_entry(entry.0, &entry.1)?;
                }
                _ => return None,
            }
        }
        None
    }

    // ---- what they mean ----
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Register {
    Integer,
    Vector,
}

/// The effect of a structure's fields on its class.
enum Fields {
    Fit,
    /// One is at an address that its type does not have elsewhere.
    InMemory,
}

/// A word is in an integer register as soon as one of its fields would be.
fn add(words: &mut [Option<Register>; 2], offset: u64, register: Register) -> Option<()> {
    let word = words.get_mut(usize::try_from(offset / WORD).ok()?)?;
    if *word != Some(Register::Integer) {
        *word = Some(register);
    }
    Some(())
}
