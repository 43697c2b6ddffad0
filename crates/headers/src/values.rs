//! Constants: macros of which the compiler computes the value.

use crate::Both;
use anyhow::{Context, Result, ensure};
use object::{Object, ObjectSection, ObjectSymbol};
use std::fs;

/// The object-like macros that the first header of `includes` defines and gives a value.
pub fn macros(build: &cc::Build, includes: &[String]) -> Result<Vec<String>> {
    let folder = std::env::var_os("OUT_DIR").context("no OUT_DIR")?;
    let source = std::path::Path::new(&folder).join("macros.c");
    let first = includes.first().context("no header")?;
    fs::write(&source, format!("#include \"{first}\"\n"))?;
    let mut build = build.clone();
    let text = build.file(source).flag("-dM").try_expand()?;
    let text = String::from_utf8(text)?;
    let names = text.lines().filter_map(|line| {
        let (name, value) = line.strip_prefix("#define ")?.split_once(' ')?;
        let is_ours = name.starts_with("NOPAL_") && !name.contains('(') && !value.is_empty();
        is_ours.then(|| name.to_owned())
    });
    let mut names: Vec<String> = names.collect();
    names.sort();
    Ok(names)
}

/// C that keeps the value of a macro: how large it is, whether it is below 0, and itself.
pub fn source(name: &str) -> String {
    format!(
        "const unsigned long long shared_value_{name}[3] = \
         {{ sizeof({name}), ({name}) < 0, (unsigned long long)({name}) }};\n"
    )
}

pub fn constant(file: &object::File, name: &str, is_usize: bool, both: &mut Both) -> Result<()> {
    let words = words(file, &format!("shared_value_{name}"))?;
    let [bytes, negative, value] = words;
    let short = name.strip_prefix("NOPAL_").unwrap_or(name);
    let (kind, value) = match (is_usize, bytes, negative) {
        (true, _, 0) => ("usize", value.to_string()),
        (false, 4, 0) => ("u32", (value as u32).to_string()),
        (false, 8, 0) => ("u64", format!("{value:#x}")),
        (false, 4, _) => ("i32", (value as i32).to_string()),
        _ => anyhow::bail!("{name} is no number that Rust may have"),
    };
    both.rust += &format!("pub const {short}: {kind} = {value};\n");
    both.c += &format!("_Static_assert({name} == {value}, \"as in Rust\");\n");
    Ok(())
}

fn words<const N: usize>(file: &object::File, name: &str) -> Result<[u64; N]> {
    let symbol = file.symbols().find(|symbol| symbol.name() == Ok(name));
    let symbol = symbol.with_context(|| format!("{name} was not compiled"))?;
    let section = symbol.section_index().context("a symbol of no section")?;
    let section = file.section_by_index(section)?;
    let data = section.data_range(symbol.address(), 8 * N as u64)?;
    let data = data.with_context(|| format!("{name} has no value"))?;
    ensure!(data.len() == 8 * N, "{name} is cut");
    let mut words = [0; N];
    for (word, bytes) in words.iter_mut().zip(data.as_chunks().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    Ok(words)
}
