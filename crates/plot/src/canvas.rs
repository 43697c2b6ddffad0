//! The canvas of pictures. Lengths are pixels of an SVG, y grows downwards.

use svg::Document;
use svg::node::element::{Line, Path, Rectangle, Text};

use crate::Picture;
use nopal_analysis::names::printable;

pub const WIDTH: f64 = 900.0;
pub const FONT: f64 = 12.0;
pub const SMALL: f64 = 10.0;
pub const INK: &str = "#222222";
pub const FAINT: &str = "#dddddd";
pub const GRAY: &str = "#666666";

/// The palette of Okabe and Ito, which colour-blind people can distinguish.
pub const COLORS: [&str; 7] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c564b",
];

const SANS: &str = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif";
/// The font of names, with letters of equal width.
const MONO: &str = "'DejaVu Sans Mono', 'Liberation Mono', Menlo, Consolas, monospace";

/// Widths of letters, as parts of the font's size: those of the widest of the fonts.
const MONO_WIDTH: f64 = 0.61;
const SANS_WIDTH: f64 = 0.62;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

#[derive(Clone, Copy, Debug)]
pub struct Words<'a> {
    pub size: f64,
    pub anchor: Anchor,
    pub mono: bool,
    pub bold: bool,
    pub color: &'a str,
}

pub const PLAIN: Words = Words {
    size: FONT,
    anchor: Anchor::Start,
    mono: false,
    bold: false,
    color: INK,
};

pub struct Canvas {
    document: Document,
    width: f64,
    height: f64,
}

impl Canvas {
    pub fn new(width: f64, height: f64) -> Canvas {
        let mut canvas = Canvas {
            document: Document::new()
                .set("width", round(width))
                .set("height", round(height))
                .set("viewBox", (0, 0, round(width), round(height))),
            width,
            height,
        };
        canvas.rectangle(0.0, 0.0, width, height, "#ffffff");
        canvas
    }

    pub fn text(&mut self, x: f64, y: f64, text: &str, words: Words) {
        self.add_text(x, y, text, words, None);
    }

    /// Text that runs upwards.
    pub fn text_up(&mut self, x: f64, y: f64, text: &str, words: Words) {
        let turn = format!("rotate(-90 {} {})", round(x), round(y));
        self.add_text(x, y, text, words, Some(turn));
    }

    fn add_text(&mut self, x: f64, y: f64, text: &str, words: Words, turn: Option<String>) {
        let mut node = Text::new(printable(text))
            .set("x", round(x))
            .set("y", round(y))
            .set("font-family", if words.mono { MONO } else { SANS })
            .set("font-size", words.size)
            .set("fill", words.color)
            .set(
                "text-anchor",
                match words.anchor {
                    Anchor::Start => "start",
                    Anchor::Middle => "middle",
                    Anchor::End => "end",
                },
            );
        if words.bold {
            node = node.set("font-weight", "bold");
        }
        if let Some(turn) = turn {
            node = node.set("transform", turn);
        }
        self.add(node);
    }

    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), color: &str) {
        self.add(
            Line::new()
                .set("x1", round(from.0))
                .set("y1", round(from.1))
                .set("x2", round(to.0))
                .set("y2", round(to.1))
                .set("stroke", color)
                .set("stroke-width", 1),
        );
    }

    pub fn rectangle(&mut self, x: f64, y: f64, width: f64, height: f64, color: &str) {
        self.add(
            Rectangle::new()
                .set("x", round(x))
                .set("y", round(y))
                .set("width", round(width))
                .set("height", round(height))
                .set("fill", color),
        );
    }

    /// A line through points.
    pub fn curve(&mut self, data: String, color: &str, width: f64) {
        self.add(
            Path::new()
                .set("d", data)
                .set("fill", "none")
                .set("stroke", color)
                .set("stroke-linejoin", "round")
                .set("stroke-width", width),
        );
    }

    pub fn area(&mut self, data: String, color: &str, opacity: f64) {
        self.add(
            Path::new()
                .set("d", data)
                .set("fill", color)
                .set("fill-opacity", opacity),
        );
    }

    fn add(&mut self, node: impl Into<Box<dyn svg::Node>>) {
        svg::Node::append(&mut self.document, node);
    }

    /// A title above, and notes below.
    pub fn label(&mut self, title: &str, caption: &Caption) {
        let middle = self.width / 2.0;
        let bold = Words {
            bold: true,
            size: FONT + 2.0,
            anchor: Anchor::Middle,
            ..PLAIN
        };
        self.text(middle, 22.0, &fitting(title, self.width - 20.0, bold), bold);
        let first = self.height - caption.height() + SMALL;
        for (line, text) in caption.lines.iter().enumerate() {
            let y = first + line as f64 * (SMALL + 4.0);
            self.text(10.0, y, text, CAPTION);
        }
    }

    pub fn finish(self) -> Picture {
        let mut svg = b"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_vec();
        // Writing to memory does not fail.
        let _ = svg::write(&mut svg, &self.document);
        svg.push(b'\n');
        Picture { svg }
    }
}

/// Room above for a title.
pub const TITLE: f64 = 34.0;

const CAPTION: Words = Words {
    size: SMALL,
    color: GRAY,
    ..PLAIN
};

/// Lines below a picture.
pub struct Caption {
    lines: Vec<String>,
}

impl Caption {
    /// Breaks paragraphs into lines for a picture of some width.
    pub fn new(paragraphs: &[String], width: f64) -> Caption {
        let most = ((width - 20.0) / text_width("x", CAPTION)) as usize;
        let mut lines: Vec<String> = Vec::new();
        for paragraph in paragraphs {
            lines.push(String::new());
            for word in paragraph.split_whitespace() {
                let word = fitting(word, width - 20.0, CAPTION);
                let last = lines.last().map_or("", String::as_str);
                let joined = format!("{last} {word}").trim_start().to_string();
                match lines.last_mut() {
                    Some(line) if joined.chars().count() <= most => *line = joined,
                    _ => lines.push(word),
                }
            }
        }
        lines.truncate(MOST_LINES);
        Caption { lines }
    }

    pub fn height(&self) -> f64 {
        self.lines.len() as f64 * (SMALL + 4.0) + 6.0
    }
}

/// A command may have any length.
const MOST_LINES: usize = 6;

/// Tenths of a pixel are enough, and make small files.
pub fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

pub fn text_width(text: &str, words: Words) -> f64 {
    let letter = if words.mono { MONO_WIDTH } else { SANS_WIDTH };
    text.chars().count() as f64 * letter * words.size
}

/// Text without its middle, if it is too long.
pub fn fitting(text: &str, width: f64, words: Words) -> String {
    let letter = text_width("x", words);
    let most = ((width / letter) as usize).max(4);
    let length = text.chars().count();
    if length <= most {
        return text.to_string();
    }
    let head = (most - 1).div_ceil(2);
    let tail = most - 1 - head;
    let end = text.chars().skip(length - tail);
    text.chars().take(head).chain(['…']).chain(end).collect()
}
