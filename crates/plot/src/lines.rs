//! A field between two axes, and the shapes drawn in it.

use crate::Picture;
use crate::axis::Axis;
use crate::canvas::{
    Anchor, COLORS, Canvas, Caption, FAINT, FONT, INK, PLAIN, SMALL, TITLE, WIDTH, Words, fitting,
    round, text_width,
};

const HEIGHT: f64 = 300.0;
const LEGEND_LINE: f64 = 18.0;
const DOT: f64 = 3.0;
/// The distance of an axis's labels, in pixels.
const BETWEEN_X: f64 = 90.0;
const BETWEEN_Y: f64 = 45.0;

pub struct Labels<'a> {
    pub title: &'a str,
    pub x: &'a str,
    pub y: &'a str,
    /// One for each colour; none for a single series.
    pub legend: Vec<String>,
    pub caption: Vec<String>,
}

pub struct Field {
    canvas: Canvas,
    x: Axis,
    y: Axis,
    left: f64,
    top: f64,
    width: f64,
}

impl Field {
    /// Draws axes and labels.
    pub fn new(x: Axis, y: Axis, labels: &Labels) -> Field {
        let y_ticks = y.ticks((HEIGHT / BETWEEN_Y) as usize);
        let widest = y_ticks
            .iter()
            .map(|(_, name)| text_width(name, PLAIN))
            .fold(0.0, f64::max);
        let left = widest + FONT + 30.0;
        let width = WIDTH - left - 30.0;
        let legend = legend_lines(&labels.legend, width);
        let top = TITLE + legend.len() as f64 * LEGEND_LINE + 6.0;
        let bottom = top + HEIGHT;
        let caption = Caption::new(&labels.caption, WIDTH);
        let height = bottom + 50.0 + caption.height();
        let mut canvas = Canvas::new(WIDTH, height);
        canvas.label(labels.title, &caption);
        let mut field = Field {
            canvas,
            x,
            y,
            left,
            top,
            width,
        };
        field.draw_legend(&legend);
        for (value, name) in &y_ticks {
            let at = field.at_y(*value);
            field.canvas.line((left, at), (left + width, at), FAINT);
            let words = Words {
                anchor: Anchor::End,
                ..PLAIN
            };
            field.canvas.text(left - 6.0, at + 4.0, name, words);
        }
        let mut free_from = 0.0;
        for (value, name) in x.ticks((width / BETWEEN_X) as usize) {
            let at = field.at_x(value);
            field.canvas.line((at, top), (at, bottom + 4.0), FAINT);
            let half = text_width(&name, PLAIN) / 2.0;
            if at - half < free_from {
                continue;
            }
            free_from = at + half + 6.0;
            let words = Words {
                anchor: Anchor::Middle,
                ..PLAIN
            };
            field.canvas.text(at, bottom + 18.0, &name, words);
        }
        field.canvas.line((left, top), (left, bottom), INK);
        field
            .canvas
            .line((left, bottom), (left + width, bottom), INK);
        let middle = Words {
            anchor: Anchor::Middle,
            ..PLAIN
        };
        let x_label = fitting(labels.x, width, middle);
        field
            .canvas
            .text(left + width / 2.0, bottom + 38.0, &x_label, middle);
        let y_label = fitting(labels.y, HEIGHT, middle);
        field
            .canvas
            .text_up(FONT + 6.0, top + HEIGHT / 2.0, &y_label, middle);
        field
    }

    fn draw_legend(&mut self, lines: &[Vec<(usize, String)>]) {
        for (line, entries) in lines.iter().enumerate() {
            let y = TITLE + line as f64 * LEGEND_LINE;
            let mut x = self.left;
            for (number, name) in entries {
                let color = color(*number);
                self.canvas
                    .rectangle(x, y + 3.0, SWATCH, SMALL - 2.0, color);
                self.canvas.text(x + SWATCH + 5.0, y + 11.0, name, PLAIN);
                x += entry_width(name);
            }
        }
    }

    pub fn at_x(&self, value: f64) -> f64 {
        self.left + self.x.place(value) * self.width
    }

    pub fn at_y(&self, value: f64) -> f64 {
        self.top + (1.0 - self.y.place(value)) * HEIGHT
    }

    /// A curve through points, from left to right.
    pub fn curve(&mut self, points: &[(f64, f64)], number: usize) {
        let data = self.path(points);
        self.canvas.curve(data, color(number), 1.5);
    }

    /// Steps: each point's y holds from its x on.
    pub fn steps(&mut self, points: &[(f64, f64)], number: usize) {
        let mut corners = Vec::with_capacity(points.len() * 2);
        for point in points {
            if let Some(&(_, y)) = corners.last() {
                corners.push((point.0, y));
            }
            corners.push(*point);
        }
        self.curve(&corners, number);
    }

    /// The area between two curves over the same x values.
    pub fn band(&mut self, low: &[(f64, f64)], high: &[(f64, f64)], number: usize) {
        let around: Vec<_> = low
            .iter()
            .copied()
            .chain(high.iter().rev().copied())
            .collect();
        let data = format!("{}Z", self.path(&around));
        self.canvas.area(data, color(number), 0.25);
    }

    pub fn dot(&mut self, x: f64, y: f64, number: usize) {
        let (x, y) = (self.at_x(x), self.at_y(y));
        self.canvas
            .rectangle(x - DOT / 2.0, y - DOT / 2.0, DOT, DOT, color(number));
    }

    /// Dots at parts of the field's width and height, as one shape.
    pub fn dots(&mut self, places: impl Iterator<Item = (f64, f64)>, number: usize) {
        let corner = |(x, y): (f64, f64)| {
            let x = self.left + x * self.width - DOT / 2.0;
            let y = self.top + (1.0 - y) * HEIGHT - DOT / 2.0;
            format!("M{} {}h{DOT}v{DOT}h-{DOT}z", round(x), round(y))
        };
        let data: String = places.map(corner).collect();
        if !data.is_empty() {
            self.canvas.area(data, color(number), 1.0);
        }
    }

    /// A bar from one value of x to another, up to `y`.
    pub fn bar(&mut self, from: f64, to: f64, y: f64, number: usize) {
        let (from, to) = (self.at_x(from), self.at_x(to));
        let (top, bottom) = (self.at_y(y), self.top + HEIGHT);
        let gap = if to - from > 4.0 { 1.0 } else { 0.0 };
        let height = (bottom - top).max(if y > 0.0 { 0.7 } else { 0.0 });
        self.canvas.rectangle(
            from + gap / 2.0,
            bottom - height,
            (to - from - gap).max(0.5),
            height,
            color(number),
        );
    }

    fn path(&self, points: &[(f64, f64)]) -> String {
        let mut data = String::new();
        let mut last = None;
        for (x, y) in points {
            let place = (round(self.at_x(*x)), round(self.at_y(*y)));
            if last == Some(place) {
                continue;
            }
            let letter = if last.is_none() { 'M' } else { 'L' };
            data.push_str(&format!("{letter}{} {}", place.0, place.1));
            last = Some(place);
        }
        data
    }

    pub fn finish(self) -> Picture {
        self.canvas.finish()
    }
}

/// The colour of the series with a number.
pub fn color(number: usize) -> &'static str {
    COLORS[number % COLORS.len()]
}

const SWATCH: f64 = 14.0;

fn entry_width(name: &str) -> f64 {
    SWATCH + 5.0 + text_width(name, PLAIN) + 18.0
}

/// Entries of a legend, with their numbers, in lines that fit.
pub fn legend_lines(names: &[String], width: f64) -> Vec<Vec<(usize, String)>> {
    let mut lines: Vec<Vec<(usize, String)>> = Vec::new();
    let mut used = f64::INFINITY;
    for (number, name) in names.iter().enumerate() {
        let name = fitting(name, width - SWATCH - 30.0, PLAIN);
        let needed = entry_width(&name);
        if used + needed > width {
            lines.push(Vec::new());
            used = 0.0;
        }
        used += needed;
        if let Some(line) = lines.last_mut() {
            line.push((number, name));
        }
    }
    lines
}
