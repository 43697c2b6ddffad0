//! The files of the page.

pub struct File {
    pub name: &'static str,
    pub kind: &'static str,
    pub content: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

macro_rules! files {
    ($($name:literal: $kind:expr),* $(,)?) => {
        &[$(File {
            name: $name,
            kind: $kind,
            content: include_str!(concat!("../page/", $name)),
        }),*]
    };
}

static FILES: &[File] = files! {
    "index.html": HTML,
    "style.css": CSS,
    "main.js": SCRIPT,
    "api.js": SCRIPT,
    "chart.js": SCRIPT,
    "colors.js": SCRIPT,
    "compare.js": SCRIPT,
    "details.js": SCRIPT,
    "export.js": SCRIPT,
    "graph.js": SCRIPT,
    "histogram.js": SCRIPT,
    "link.js": SCRIPT,
    "text.js": SCRIPT,
    "timeline.js": SCRIPT,
    "trackpanel.js": SCRIPT,
    "tracks.js": SCRIPT,
    "view.js": SCRIPT,
};

/// A file by its name; the page itself without one.
pub fn file(name: &str) -> Option<&'static File> {
    let name = if name.is_empty() { "index.html" } else { name };
    FILES.iter().find(|file| file.name == name)
}
