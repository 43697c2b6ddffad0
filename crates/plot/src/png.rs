//! PNG of SVG.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use resvg::{tiny_skia, usvg};

/// Pixels of the PNG for one of the SVG: sharp on paper, too.
const SCALE: f32 = 2.0;
/// The most pixels in one direction: an image may take a gigabyte at most.
const MOST: u32 = 16_384;

pub fn png(svg: &[u8]) -> Result<Vec<u8>> {
    let mut fonts = usvg::fontdb::Database::new();
    fonts.load_system_fonts();
    ensure!(
        !fonts.is_empty(),
        "a PNG needs a font, and none is installed; on Debian: apt-get install fonts-dejavu-core. An SVG needs none"
    );
    // Generic font names of a picture may be any font of that kind.
    let named = |wanted: &dyn Fn(&str) -> bool| {
        let mut names = fonts.faces().filter_map(|face| face.families.first());
        names
            .find(|(name, _)| wanted(name))
            .map(|(name, _)| name.clone())
    };
    let mono = named(&|name| name.contains("Mono"));
    let sans = named(&|name| name.ends_with("Sans"));
    fonts.set_monospace_family(mono.unwrap_or_else(|| "monospace".to_string()));
    let sans = sans.unwrap_or_else(|| "sans-serif".to_string());
    fonts.set_sans_serif_family(&sans);
    let options = usvg::Options {
        fontdb: Arc::new(fonts),
        font_family: sans,
        ..usvg::Options::default()
    };
    let tree = usvg::Tree::from_data(svg, &options).context("cannot draw the picture")?;
    let size = tree.size();
    let [width, height] =
        [size.width(), size.height()].map(|length| (length * SCALE).ceil() as u32);
    ensure!(
        width <= MOST && height <= MOST,
        "a picture of {width} by {height} pixels is too large for a PNG: write an SVG"
    );
    let mut image = tiny_skia::Pixmap::new(width, height).context("no memory for the picture")?;
    image.fill(tiny_skia::Color::WHITE);
    let scale = tiny_skia::Transform::from_scale(SCALE, SCALE);
    resvg::render(&tree, scale, &mut image.as_mut());
    image.encode_png().context("cannot write the PNG")
}
