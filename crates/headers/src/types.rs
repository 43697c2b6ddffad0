//! Structures, enumerations and functions: their types, as the compiler describes them in DWARF.

use crate::{Both, Enumeration, Headers, Structure};
use anyhow::{Context, Result, bail, ensure};
use gimli::{AttributeValue, DW_AT_byte_size, DW_AT_const_value, DW_AT_count};
use gimli::{
    DW_AT_data_member_location, DW_AT_encoding, DW_AT_name, DW_AT_type, DW_AT_upper_bound,
};
use gimli::{Dwarf, EndianSlice, LittleEndian, Unit, UnitOffset};
use object::{Object, ObjectSection};
use std::fmt::Write;

type Slice<'a> = EndianSlice<'a, LittleEndian>;
type Entry<'a> = gimli::DebuggingInformationEntry<Slice<'a>>;

pub fn all(file: &object::File, wanted: &Headers, both: &mut Both) -> Result<()> {
    let section = |id: gimli::SectionId| {
        let section = file.section_by_name(id.name());
        let data = section.map_or(Ok(&[][..]), |section| section.data());
        data.map(|data| EndianSlice::new(data, LittleEndian))
    };
    let dwarf = Dwarf::load(section)?;
    let header = dwarf.units().next()?.context("no debug information")?;
    let types = Types {
        unit: dwarf.unit(header)?,
        dwarf: &dwarf,
        wanted,
    };
    for structure in &wanted.structures {
        types.structure(structure, both)?;
    }
    for enumeration in &wanted.enumerations {
        both.rust += &types.enumeration(enumeration)?;
    }
    if !wanted.functions.is_empty() {
        both.rust += "unsafe extern \"C\" {\n";
        for name in &wanted.functions {
            both.rust += &types.function(name)?;
        }
        both.rust += "}\n";
    }
    Ok(())
}

struct Types<'a> {
    unit: Unit<Slice<'a>>,
    dwarf: &'a Dwarf<Slice<'a>>,
    wanted: &'a Headers,
}

/// The position of a type.
#[derive(Clone, Copy, PartialEq)]
enum Position {
    /// In a structure whose pointers are addresses in another process.
    Foreign,
    Own,
    /// Behind a pointer.
    Pointed,
}

impl<'a> Types<'a> {
    fn structure(&self, structure: &Structure, both: &mut Both) -> Result<()> {
        let Structure {
            c,
            rust,
            attributes,
            until,
            ..
        } = structure;
        let place = match structure.foreign {
            true => Position::Foreign,
            false => Position::Own,
        };
        let entry = self.type_of_variable(c)?;
        let mut size = self.number(&entry, DW_AT_byte_size)?;
        let mut fields = Vec::new();
        for member in self.children(&entry)? {
            let name = self.name(&member)?;
            let offset = self.number(&member, DW_AT_data_member_location)?;
            if until.as_deref() == Some(&name) {
                size = offset;
                break;
            }
            fields.push((self.rust(&self.type_of(&member)?, place)?, name, offset));
        }
        let lines = fields
            .iter()
            .map(|(kind, name, _)| format!("    pub {name}: {kind},\n"));
        let lines: String = lines.collect();
        both.rust +=
            &format!("/// `struct {c}`\n{attributes}#[repr(C)]\npub struct {rust} {{\n{lines}}}\n");
        for (_, name, offset) in &fields {
            both.assert(
                &format!("std::mem::offset_of!({rust}, {name})"),
                &format!("offsetof(struct {c}, {name})"),
                offset,
            );
        }
        let c = match until {
            Some(field) => format!("offsetof(struct {c}, {field})"),
            None => format!("sizeof(struct {c})"),
        };
        both.assert(&format!("size_of::<{rust}>()"), &c, size);
        Ok(())
    }

    fn enumeration(&self, enumeration: &Enumeration) -> Result<String> {
        let mut text = format!("pub mod {} {{\n", enumeration.module);
        let entry = self.type_of_variable(&enumeration.c)?;
        for value in self.children(&entry)? {
            let name = self.name(&value)?;
            let number = self.number(&value, DW_AT_const_value)?;
            let name = name.strip_prefix(&enumeration.prefix);
            let name = name.with_context(|| format!("a name of {}", enumeration.c))?;
            writeln!(text, "    pub const {name}: u32 = {number};")?;
        }
        text += "}\n";
        Ok(text)
    }

    fn function(&self, name: &str) -> Result<String> {
        let pointer = self.type_of_variable(name)?;
        let function = self.type_of(&pointer)?;
        let parameters = self.children(&function)?;
        let parameters = parameters.iter().enumerate().map(|(number, parameter)| {
            let kind = self.rust(&self.type_of(parameter)?, Position::Own)?;
            Ok(format!("_{number}: {kind}"))
        });
        let parameters: Result<Vec<String>> = parameters.collect();
        let result = match function.attr(DW_AT_type) {
            Some(_) => format!(
                " -> {}",
                self.rust(&self.type_of(&function)?, Position::Own)?
            ),
            None => String::new(),
        };
        Ok(format!(
            "    pub fn {name}({}){result};\n",
            parameters?.join(", ")
        ))
    }

    /// A type in Rust.
    fn rust(&self, entry: &Entry<'a>, place: Position) -> Result<String> {
        Ok(match entry.tag() {
            gimli::DW_TAG_typedef | gimli::DW_TAG_const_type | gimli::DW_TAG_volatile_type => {
                self.rust(&self.type_of(entry)?, place)?
            }
            gimli::DW_TAG_enumeration_type => "u32".into(),
            gimli::DW_TAG_base_type => self.number_type(entry, place)?,
            gimli::DW_TAG_array_type => {
                let element = self.rust(&self.type_of(entry)?, place)?;
                let lengths = self.children(entry)?;
                let lengths = lengths.iter().rev();
                lengths
                    .map(|length| self.length(length))
                    .try_fold(element, |element, length| {
                        anyhow::Ok(format!("[{element}; {}]", length?))
                    })?
            }
            gimli::DW_TAG_structure_type => {
                let name = self.name(entry)?;
                let known = self.wanted.structures.iter().find(|known| known.c == name);
                match known {
                    Some(known) => known.rust.clone(),
                    None if place == Position::Pointed => "std::ffi::c_void".into(),
                    None => bail!("struct {name} is not known in Rust"),
                }
            }
            gimli::DW_TAG_pointer_type if place == Position::Foreign => "u64".into(),
            gimli::DW_TAG_pointer_type if entry.attr(DW_AT_type).is_none() => {
                "*mut std::ffi::c_void".into()
            }
            gimli::DW_TAG_pointer_type => {
                let target = self.type_of(entry)?;
                let access = match target.tag() {
                    gimli::DW_TAG_const_type => "const",
                    _ => "mut",
                };
                format!("*{access} {}", self.rust(&target, Position::Pointed)?)
            }
            other => bail!("{other} is not known in Rust"),
        })
    }

    fn number_type(&self, entry: &Entry<'a>, place: Position) -> Result<String> {
        let bits = self.number(entry, DW_AT_byte_size)? * 8;
        let encoding = match entry.attr_value(DW_AT_encoding) {
            Some(AttributeValue::Encoding(encoding)) => encoding,
            _ => bail!("a number of unknown kind"),
        };
        Ok(match encoding {
            gimli::DW_ATE_boolean => "bool".into(),
            _ if self.name(entry)? == "char" => match place {
                Position::Pointed => "std::ffi::c_char".into(),
                _ => "u8".into(),
            },
            gimli::DW_ATE_unsigned | gimli::DW_ATE_unsigned_char => format!("u{bits}"),
            gimli::DW_ATE_signed | gimli::DW_ATE_signed_char => format!("i{bits}"),
            _ => bail!("{encoding} is not known in Rust"),
        })
    }

    fn length(&self, range: &Entry<'a>) -> Result<u64> {
        self.number(range, DW_AT_count)
            .or_else(|_| Ok(self.number(range, DW_AT_upper_bound)? + 1))
    }

    /// The type of the variable that stands for `name`.
    fn type_of_variable(&self, name: &str) -> Result<Entry<'a>> {
        let root = self.unit.entry(self.root()?)?;
        for entry in self.children(&root)? {
            if entry.tag() == gimli::DW_TAG_variable
                && self.name(&entry)? == format!("shared_{name}")
            {
                return self.type_of(&entry);
            }
        }
        bail!("{name} is not in the debug information")
    }

    fn root(&self) -> Result<UnitOffset> {
        let mut entries = self.unit.entries();
        Ok(entries.next_dfs()?.context("no entries")?.offset())
    }

    fn type_of(&self, entry: &Entry<'a>) -> Result<Entry<'a>> {
        match entry.attr_value(DW_AT_type) {
            Some(AttributeValue::UnitRef(offset)) => Ok(self.unit.entry(offset)?),
            _ => bail!("something without a type"),
        }
    }

    fn children(&self, entry: &Entry<'a>) -> Result<Vec<Entry<'a>>> {
        let mut tree = self.unit.entries_tree(Some(entry.offset()))?;
        let mut nodes = tree.root()?.children();
        let mut children = Vec::new();
        while let Some(node) = nodes.next()? {
            children.push(node.entry().clone());
        }
        Ok(children)
    }

    fn name(&self, entry: &Entry<'a>) -> Result<String> {
        let name = entry
            .attr_value(DW_AT_name)
            .context("something without a name")?;
        let name = self.dwarf.attr_string(&self.unit, name)?;
        Ok(name.to_string()?.to_owned())
    }

    fn number(&self, entry: &Entry<'a>, attribute: gimli::DwAt) -> Result<u64> {
        let value = entry.attr(attribute).and_then(|value| value.udata_value());
        let value = value.with_context(|| format!("no {attribute}"))?;
        ensure!(value <= u64::from(u32::MAX), "{attribute} is {value}");
        Ok(value)
    }
}
