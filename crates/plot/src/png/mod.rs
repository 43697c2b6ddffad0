//! PNG of the pictures of this crate: of SVG, the rectangles, lines, paths and texts that they consist of, in plain colours.

mod fonts;
mod image;
mod style;

use anyhow::{Context, Result, ensure};
use roxmltree::{Document, Node, ParsingOptions};
use zeno::{Cap, Command, Join, PathData, Stroke, Style, Transform};

use fonts::{Font, Fonts};
use image::{Image, Paint};
use style::{Styles, color, number};

/// Pixels of the PNG for one of the SVG: sharp on paper, too.
const SCALE: f32 = 2.0;
/// The most pixels in one direction: an image may take a gigabyte at most.
pub const MOST: u32 = 16_384;

pub fn png(svg: &[u8]) -> Result<Vec<u8>> {
    let svg = std::str::from_utf8(svg).context("a picture that is no text")?;
    let options = ParsingOptions {
        allow_dtd: true,
        ..ParsingOptions::default()
    };
    let document = Document::parse_with_options(svg, options).context("cannot draw the picture")?;
    let root = document.root_element();
    let side = |name| root.attribute(name).and_then(number).unwrap_or(0.0);
    let (width, height) = (side("width"), side("height"));
    let [columns, rows] = [width, height].map(|length| (length * SCALE).ceil() as u32);
    ensure!(
        columns <= MOST && rows <= MOST,
        "a picture of {columns} by {rows} pixels is too large for a PNG: write an SVG"
    );
    let mut painter = Painter {
        styles: Styles::new(&document),
        fonts: Fonts::installed()?,
        image: Image::white(columns, rows),
    };
    painter.draw(root, Area { left: 0.0, width });
    painter.image.encode()
}

/// The part of the picture that an `svg` element covers.
#[derive(Clone, Copy)]
struct Area {
    left: f32,
    width: f32,
}

impl Area {
    /// A length of the element: a number, or a part of the area's width in percent.
    fn length(&self, node: Node, name: &str) -> f32 {
        let text = node.attribute(name).unwrap_or("0");
        match text.strip_suffix('%') {
            Some(percent) => number(percent).unwrap_or(0.0) / 100.0 * self.width,
            None => number(text).unwrap_or(0.0),
        }
    }
}

struct Painter<'a> {
    styles: Styles<'a>,
    fonts: Fonts,
    image: Image,
}

impl Painter<'_> {
    fn draw(&mut self, parent: Node, area: Area) {
        for node in parent.children() {
            if self.styles.property(node, "display") == Some("none") {
                continue;
            }
            let [x, y, width, height, x1, y1, x2, y2] =
                ["x", "y", "width", "height", "x1", "y1", "x2", "y2"]
                    .map(|name| area.length(node, name));
            match node.tag_name().name() {
                "g" => self.draw(node, area),
                "svg" => {
                    let left = area.left + x;
                    self.draw(node, Area { left, width });
                }
                "rect" => self.path(
                    node,
                    &format!("M{x} {y}h{width}v{height}h{}z", -width),
                    area,
                ),
                "line" => self.path(node, &format!("M{x1} {y1}L{x2} {y2}"), area),
                "path" => self.path(node, node.attribute("d").unwrap_or(""), area),
                "text" => self.text(node, (area.left + x, y)),
                _ => {}
            }
        }
    }

    fn paint(&self, node: Node, property: &str, default: &str) -> Option<Paint> {
        let value = |name| self.styles.property(node, name);
        let opacity = |name| value(name).and_then(number).unwrap_or(1.0);
        Some(Paint {
            color: color(value(property).unwrap_or(default))?,
            opacity: opacity("opacity") * opacity("fill-opacity"),
        })
    }

    fn path(&mut self, node: Node, data: &str, area: Area) {
        let shape: Vec<Command> = data.commands().collect();
        let place = Transform::translation(area.left, 0.0).then_scale(SCALE, SCALE);
        if let Some(paint) = self.paint(node, "fill", "#000000") {
            self.image.draw(&shape, Style::default(), place, paint);
        }
        if let Some(paint) = self.paint(node, "stroke", "none") {
            let width = self.styles.property(node, "stroke-width").and_then(number);
            let mut stroke = Stroke::new(width.unwrap_or(1.0));
            stroke.cap(Cap::Butt).join(Join::Round);
            self.image.draw(&shape, Style::Stroke(stroke), place, paint);
        }
    }

    fn text(&mut self, node: Node, (x, y): (f32, f32)) {
        let property = |name| self.styles.property(node, name);
        let Some(paint) = self.paint(node, "fill", "#000000") else {
            return;
        };
        let font = Font {
            families: property("font-family").unwrap_or("sans-serif"),
            bold: property("font-weight") == Some("bold"),
            size: property("font-size").and_then(number).unwrap_or(12.0),
        };
        let text = node.text().unwrap_or("").trim();
        let (outline, width) = self.fonts.outline(text, &font);
        let before = match property("text-anchor") {
            Some("middle") => width / 2.0,
            Some("end") => width,
            _ => 0.0,
        };
        // The only turn in the pictures is a quarter to the left about the text's place.
        let place = match node.has_attribute("transform") {
            false => Transform::new(1.0, 0.0, 0.0, 1.0, x - before, y),
            true => Transform::new(0.0, -1.0, 1.0, 0.0, x, y + before),
        };
        let place = place.then_scale(SCALE, SCALE);
        self.image.draw(&outline, Style::default(), place, paint);
    }
}
