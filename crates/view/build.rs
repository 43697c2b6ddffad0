//! Packs the files of the page: packed, they are a third as long.

use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use std::{env, fs};

use flate2::Compression;
use flate2::write::ZlibEncoder;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

const FILES: [(&str, &str); 18] = [
    ("index.html", HTML),
    ("style.css", CSS),
    ("main.js", SCRIPT),
    ("api.js", SCRIPT),
    ("chart.js", SCRIPT),
    ("colors.js", SCRIPT),
    ("compare.js", SCRIPT),
    ("details.js", SCRIPT),
    ("export.js", SCRIPT),
    ("graph.js", SCRIPT),
    ("histogram.js", SCRIPT),
    ("link.js", SCRIPT),
    ("longest.js", SCRIPT),
    ("text.js", SCRIPT),
    ("timeline.js", SCRIPT),
    ("trackpanel.js", SCRIPT),
    ("tracks.js", SCRIPT),
    ("view.js", SCRIPT),
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=page");
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::best());
    let mut list = String::new();
    for (name, kind) in FILES {
        let content = fs::read_to_string(format!("page/{name}"))?;
        let length = content.len();
        list += &format!("({name:?}, {kind:?}, {length}),");
        packed.write_all(content.as_bytes())?;
    }
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("page"), packed.finish()?)?;
    fs::write(out.join("files.rs"), format!("&[{list}]"))?;
    Ok(())
}
