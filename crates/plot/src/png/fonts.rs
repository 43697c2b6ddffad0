//! Fonts of this machine, and outlines of text: letter after letter, without ligatures and the joined forms of some scripts.

use nopal_analysis::sort;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use ttf_parser::{Face, GlyphId, OutlineBuilder};
use zeno::{Command, PathBuilder};

/// Longer texts do not fit any picture.
const LONGEST: usize = 16_384;
/// The deepest nesting of font folders that is searched.
const DEEPEST: usize = 8;
/// The most bytes of fonts that are searched for letters that the chosen font lacks.
const MOST_BYTES: usize = 256 << 20;

pub struct Font<'a> {
    /// Names of families with commas between, the best first.
    pub families: &'a str,
    pub bold: bool,
    pub size: f32,
}

struct File {
    /// The file's name, as letters and digits.
    name: String,
    path: PathBuf,
    /// Read when first needed; none if it is not a font.
    bytes: Option<Vec<u8>>,
}

impl File {
    fn read(&mut self) -> &[u8] {
        let path = &self.path;
        self.bytes
            .get_or_insert_with(|| fs::read(path).unwrap_or_default())
    }

    fn is_plain(&self) -> bool {
        let other = [
            "bold",
            "italic",
            "oblique",
            "light",
            "thin",
            "black",
            "condensed",
        ];
        !other.iter().any(|style| self.name.contains(style))
    }
}

pub struct Fonts {
    files: Vec<File>,
}

impl Fonts {
    pub fn installed() -> Result<Fonts> {
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let of_user = home
            .iter()
            .flat_map(|home| [".fonts", ".local/share/fonts"].map(|folder| home.join(folder)));
        let folders = ["/usr/share/fonts", "/usr/local/share/fonts"].map(PathBuf::from);
        let mut files = Vec::new();
        for folder in folders.into_iter().chain(of_user) {
            find(&folder, DEEPEST, &mut files);
        }
        ensure!(
            !files.is_empty(),
            "a PNG needs a font, and none is installed; on Debian: apt-get install fonts-dejavu-core. An SVG needs none"
        );
        sort::by(&mut files, |a, b| a.path.cmp(&b.path));
        Ok(Fonts { files })
    }

    /// The outline of a line of text that begins at 0, and its width.
    pub fn outline(&mut self, text: &str, font: &Font) -> (Vec<Command>, f32) {
        let mut outline = Vec::new();
        let mut x = 0.0;
        let chosen = self.choose(font);
        for letter in text.chars().take(LONGEST) {
            let Some((face, glyph)) = self.glyph(letter, chosen) else {
                continue;
            };
            let scale = font.size / f32::from(face.units_per_em());
            let mut pen = Pen {
                outline: &mut outline,
                x,
                scale,
            };
            face.outline_glyph(glyph, &mut pen);
            x += scale * f32::from(face.glyph_hor_advance(glyph).unwrap_or(0));
        }
        (outline, x)
    }

    /// The first installed family; else any font that is like the last one by its name; else any.
    fn choose(&self, font: &Font) -> usize {
        let find = |wanted: &dyn Fn(&File) -> bool| self.files.iter().position(wanted);
        let weights = match font.bold {
            true => &["bold", "", "regular"][..],
            false => &["", "regular"],
        };
        let families = || font.families.split(',').map(simplified);
        let named = families().find_map(|family| {
            let mut weights = weights.iter();
            weights.find_map(|weight| find(&|file| file.name == format!("{family}{weight}")))
        });
        let is_mono = font.families.contains("mono");
        let kind = if is_mono { "mono" } else { "sans" };
        let is_like = |file: &File| {
            let name = &file.name;
            file.is_plain() && name.contains(kind) && name.contains("mono") == is_mono
        };
        named
            .or_else(|| find(&is_like))
            .or_else(|| find(&File::is_plain))
            .unwrap_or(0)
    }

    /// The glyph of a letter in the chosen font, or in another one that has it; else that for an unknown letter.
    fn glyph(&mut self, letter: char, chosen: usize) -> Option<(Face<'_>, GlyphId)> {
        let has = |file: &mut File| {
            let face = Face::parse(file.read(), 0).ok()?;
            face.glyph_index(letter).filter(|glyph| glyph.0 != 0)
        };
        let mut at = chosen;
        let mut found = has(&mut self.files[chosen]);
        if found.is_none() {
            let mut bytes = 0;
            for (other, file) in self.files.iter_mut().enumerate() {
                if bytes < MOST_BYTES && file.is_plain() {
                    found = has(file);
                    bytes += file.read().len();
                }
                if found.is_some() {
                    at = other;
                    break;
                }
            }
        }
        let face = Face::parse(self.files[at].read(), 0).ok()?;
        Some((face, found.unwrap_or(GlyphId(0))))
    }
}

fn find(folder: &Path, deeper: usize, files: &mut Vec<File>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let text = |part: Option<&std::ffi::OsStr>| {
            part.unwrap_or_default().to_string_lossy().to_lowercase()
        };
        if path.is_dir() && deeper > 0 {
            find(&path, deeper - 1, files);
        } else if ["ttf", "otf", "ttc"].contains(&&*text(path.extension())) {
            files.push(File {
                name: simplified(&text(path.file_stem())),
                path,
                bytes: None,
            });
        }
    }
}

fn simplified(name: &str) -> String {
    let letters = name.chars().filter(|letter| letter.is_alphanumeric());
    letters.collect::<String>().to_lowercase()
}

/// Writes a glyph at its place in a line; y grows downwards there.
struct Pen<'a> {
    outline: &'a mut Vec<Command>,
    x: f32,
    scale: f32,
}

impl Pen<'_> {
    fn at(&self, x: f32, y: f32) -> [f32; 2] {
        [self.x + x * self.scale, -y * self.scale]
    }
}

impl OutlineBuilder for Pen<'_> {
    fn move_to(&mut self, x: f32, y: f32) {
        self.outline.move_to(self.at(x, y));
    }

    fn line_to(&mut self, x: f32, y: f32) {
        self.outline.line_to(self.at(x, y));
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        self.outline.quad_to(self.at(x1, y1), self.at(x, y));
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        let [first, second, end] = [(x1, y1), (x2, y2), (x, y)].map(|(x, y)| self.at(x, y));
        self.outline.curve_to(first, second, end);
    }

    fn close(&mut self) {
        self.outline.close();
    }
}
