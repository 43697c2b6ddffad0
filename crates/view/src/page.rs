//! The files of the page.

use std::io::Read;
use std::sync::OnceLock;

use anyhow::Result;
use flate2::read::ZlibDecoder;

/// The name, the kind and the length of each.
static FILES: &[(&str, &str, usize)] = include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// Their contents, one behind the other.
static PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/page"));

/// The page itself.
const INDEX: &str = "index.html";

/// The begin of the element of the page that has the descriptions of the traces.
const TRACES: &str = r#"<script type="application/json" id="traces">"#;

pub struct File {
    pub kind: &'static str,
    pub content: Vec<u8>,
}

/// A file by its name; the page itself without one. The page comes with the descriptions of the traces, since each
/// request before the first picture delays it.
pub fn file(name: &str, traces: impl FnOnce() -> Result<String>) -> Result<Option<File>> {
    let name = if name.is_empty() { INDEX } else { name };
    let Some((kind, content)) = packed(name) else {
        return Ok(None);
    };
    let content = match name {
        INDEX => with(content, &traces()?),
        _ => content.to_vec(),
    };
    Ok(Some(File { kind, content }))
}

/// The kind and the content of a file.
fn packed(name: &str) -> Option<(&'static str, &'static [u8])> {
    static UNPACKED: OnceLock<Vec<u8>> = OnceLock::new();
    let all = UNPACKED.get_or_init(|| {
        let mut all = Vec::new();
        // What the build script has packed can be unpacked.
        let _ = ZlibDecoder::new(PACKED).read_to_end(&mut all);
        all
    });
    let at = FILES.iter().position(|(other, ..)| *other == name)?;
    let before: usize = FILES[..at].iter().map(|(.., length)| length).sum();
    let (_, kind, length) = FILES[at];
    Some((kind, all.get(before..before + length)?))
}

/// The page with these descriptions. In JSON, `<` stands in strings only; escaped, it ends no element of the page.
fn with(page: &[u8], traces: &str) -> Vec<u8> {
    let page = String::from_utf8_lossy(page);
    let (before, behind) = page.split_once(TRACES).unwrap_or((&page, ""));
    let traces = traces.replace('<', "\\u003c");
    [before, TRACES, &traces, behind].concat().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_is_as_it_was_packed() {
        for (name, kind, _) in FILES {
            let path = format!("{}/page/{name}", env!("CARGO_MANIFEST_DIR"));
            let (packed_kind, content) = packed(name).unwrap();
            assert_eq!(content, std::fs::read(path).unwrap(), "{name}");
            assert_eq!(packed_kind, *kind);
        }
        let none = || unreachable!();
        assert!(file("types.js", none).unwrap().is_none());
        assert_eq!(file("main.js", none).unwrap().unwrap().kind, FILES[2].1);
    }

    #[test]
    fn the_page_comes_with_the_traces() {
        let traces = || Ok(r#"["</script>"]"#.to_owned());
        let [page, same] = ["", INDEX].map(|name| file(name, traces).unwrap().unwrap().content);
        assert_eq!(page, same);
        let page = String::from_utf8(page).unwrap();
        assert!(page.contains(&format!(r#"{TRACES}["\u003c/script>"]</script>"#)));
        assert!(page.ends_with("</html>\n"));
        let failed = file("", || anyhow::bail!("gone"));
        assert_eq!(failed.err().unwrap().to_string(), "gone");
    }
}
