//! The files of the page.

use std::io::Read;

use flate2::read::ZlibDecoder;

/// The name, the kind and the length of each.
static FILES: &[(&str, &str, usize)] = include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// Their contents, one behind the other.
static PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/page"));

pub struct File {
    pub kind: &'static str,
    pub content: Vec<u8>,
}

/// A file by its name; the page itself without one.
pub fn file(name: &str) -> Option<File> {
    let name = if name.is_empty() { "index.html" } else { name };
    let at = FILES.iter().position(|(other, ..)| *other == name)?;
    let before: usize = FILES[..at].iter().map(|(.., length)| length).sum();
    let (_, kind, length) = FILES[at];
    let mut content = Vec::new();
    ZlibDecoder::new(PACKED)
        .take((before + length) as u64)
        .read_to_end(&mut content)
        .ok()?;
    let content = content.split_off(before);
    Some(File { kind, content })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_is_as_it_was_packed() {
        for (name, kind, _) in FILES {
            let found = file(name).unwrap();
            let path = format!("{}/page/{name}", env!("CARGO_MANIFEST_DIR"));
            assert_eq!(found.content, std::fs::read(path).unwrap(), "{name}");
            assert_eq!(found.kind, *kind);
        }
        let page = file("").unwrap();
        assert_eq!(page.content, file("index.html").unwrap().content);
        assert!(file("types.js").is_none());
    }
}
