//! The kind of a type's values, and the type's name.

use super::*;

impl<'a> Reader<'_, 'a> {
    pub(super) fn kind(&self, entry: &UnitEntry<'_, 'a>) -> ValueKind {
        let (unit, die) = entry;
        let bits = match self.size(entry) {
            Some(size @ 1..=8) => size as u8 * 8,
            _ => return ValueKind::Bits(64),
        };
        match die.tag() {
            dw::DW_TAG_pointer_type
            | dw::DW_TAG_reference_type
            | dw::DW_TAG_rvalue_reference_type
            | dw::DW_TAG_unspecified_type => ValueKind::Address,
            dw::DW_TAG_enumeration_type => self.enumeration(unit, die, bits),
            dw::DW_TAG_base_type => {
                let own = die.attr_value(dw::DW_AT_bit_size);
                let own = own.and_then(|bits| bits.udata_value());
                let bits = match own {
                    Some(own @ 1..=64) => (own as u8).min(bits),
                    _ => bits,
                };
                let is_char = || self.units.name_of(unit, die).as_deref() == Some("char");
                match encoding(die) {
                    Some(dw::DW_ATE_boolean) => ValueKind::Boolean,
                    Some(dw::DW_ATE_UTF) => ValueKind::Character(bits),
                    Some(dw::DW_ATE_signed_char | dw::DW_ATE_unsigned_char) if is_char() => {
                        ValueKind::Character(bits)
                    }
                    Some(dw::DW_ATE_signed | dw::DW_ATE_signed_char) => ValueKind::Signed(bits),
                    Some(dw::DW_ATE_unsigned | dw::DW_ATE_unsigned_char) => {
                        ValueKind::Unsigned(bits)
                    }
                    _ => ValueKind::Bits(bits),
                }
            }
            _ => ValueKind::Bits(bits),
        }
    }

    fn enumeration(&self, unit: &Unit<'a>, die: &Die<'a>, bits: u8) -> ValueKind {
        let named = |one: &Die<'a>| {
            if one.tag() != dw::DW_TAG_enumerator {
                return None;
            }
            let value = match one.attr_value(dw::DW_AT_const_value)? {
                // Its length is that of the form; its sign is not the type's.
                AttributeValue::Data1(value) => i64::from(value),
                AttributeValue::Data2(value) => i64::from(value),
                AttributeValue::Data4(value) => i64::from(value),
                AttributeValue::Data8(value) => value.cast_signed(),
                value => value
                    .sdata_value()
                    .or_else(|| value.udata_value().map(u64::cast_signed))?,
            };
            Some((cut(value, bits), self.units.name_of(unit, one)?))
        };
        let children = self.children(unit, die).unwrap_or_default();
        let enumerators = children.iter().filter_map(named).take(MOST_NAMES);
        ValueKind::Enumeration {
            bits,
            enumerators: Arc::new(enumerators.collect()),
        }
    }

    /// The type of a parameter, or a function's result.
    pub(super) fn type_name(&self, unit: &Unit<'a>, die: &Die<'a>, maker: Maker) -> String {
        let mut name = self.named(self.units.any_type(unit, die), maker, 0);
        if name.len() > LONGEST_TYPE {
            let end = (0..LONGEST_TYPE)
                .rev()
                .find(|at| name.is_char_boundary(*at));
            name.truncate(end.unwrap_or(0));
            name.push('…');
        }
        name
    }

    fn named(&self, entry: Option<UnitEntry<'_, 'a>>, maker: Maker, depth: usize) -> String {
        let Some((unit, die)) = entry else {
            return "void".into();
        };
        if depth == DEEPEST {
            return "…".into();
        }
        let aimed = || self.named(self.units.any_type(unit, &die), maker, depth + 1);
        let own = self.units.name_of(unit, &die);
        let pointer = |sign: &str| {
            let aimed = aimed();
            match aimed.ends_with(['*', '&']) {
                true => aimed + sign,
                false => format!("{aimed} {sign}"),
            }
        };
        match (die.tag(), own) {
            (dw::DW_TAG_const_type, _) => {
                let aimed = aimed();
                match aimed.ends_with('*') {
                    true => aimed + " const",
                    false => format!("const {aimed}"),
                }
            }
            (dw::DW_TAG_volatile_type, _) => format!("volatile {}", aimed()),
            (dw::DW_TAG_restrict_type | dw::DW_TAG_atomic_type, _) => aimed(),
            (dw::DW_TAG_structure_type, Some(own)) if maker.language == Language::C => {
                format!("struct {own}")
            }
            (dw::DW_TAG_union_type, Some(own)) if maker.language == Language::C => {
                format!("union {own}")
            }
            (dw::DW_TAG_enumeration_type, Some(own)) if maker.language == Language::C => {
                format!("enum {own}")
            }
            (_, Some(own)) => own,
            (dw::DW_TAG_pointer_type, _) => pointer("*"),
            (dw::DW_TAG_reference_type, _) => pointer("&"),
            (dw::DW_TAG_rvalue_reference_type, _) => pointer("&&"),
            (dw::DW_TAG_array_type, _) => aimed() + "[]",
            (dw::DW_TAG_subroutine_type, _) => aimed() + " ()",
            (dw::DW_TAG_structure_type, _) => "struct".into(),
            (dw::DW_TAG_class_type, _) => "class".into(),
            (dw::DW_TAG_union_type, _) => "union".into(),
            (dw::DW_TAG_enumeration_type, _) => "enum".into(),
            _ => "?".into(),
        }
    }
}
