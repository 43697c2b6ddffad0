//! An image of pixels, and the painting of shapes on it.

use anyhow::{Context, Result};
use zeno::{Command, Mask, Style, Transform};

use super::MOST;

#[derive(Clone, Copy)]
pub struct Paint {
    pub color: [u8; 3],
    pub opacity: f32,
}

pub struct Image {
    width: usize,
    height: usize,
    pixels: Vec<[u8; 3]>,
}

impl Image {
    pub fn white(width: u32, height: u32) -> Image {
        let (width, height) = (width as usize, height as usize);
        Image {
            width,
            height,
            pixels: vec![[255; 3]; width * height],
        }
    }

    /// Leaves out a shape that reaches far out of the image: the rasteriser counts in 256ths of a pixel, in 32 bits.
    pub fn draw(&mut self, shape: &[Command], style: Style, place: Transform, paint: Paint) {
        const FAR: f32 = 64.0 * MOST as f32;
        let bounds = zeno::bounds(shape, style, Some(place));
        let ends = [bounds.min.x, bounds.min.y, bounds.max.x, bounds.max.y];
        if bounds.is_empty() || ends.iter().any(|end| !(-FAR..FAR).contains(end)) {
            return;
        }
        let (mask, at) = Mask::new(shape)
            .style(style)
            .transform(Some(place))
            .render();
        for (y, row) in (at.top..).zip(mask.chunks_exact(at.width.max(1) as usize)) {
            let Some(pixels) = usize::try_from(y).ok().filter(|y| *y < self.height) else {
                continue;
            };
            let pixels = &mut self.pixels[pixels * self.width..][..self.width];
            for (x, coverage) in (at.left..).zip(row) {
                let pixel = usize::try_from(x).ok().and_then(|x| pixels.get_mut(x));
                let part = f32::from(*coverage) / 255.0 * paint.opacity;
                for (old, new) in pixel.into_iter().flatten().zip(paint.color) {
                    let [below, above] = [*old, new].map(f32::from);
                    *old = (below + (above - below) * part).round() as u8;
                }
            }
        }
    }

    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, self.width as u32, self.height as u32);
        encoder.set_color(png::ColorType::Rgb);
        encoder
            .write_header()
            .and_then(|mut writer| writer.write_image_data(self.pixels.as_flattened()))
            .context("cannot write the PNG")?;
        Ok(file)
    }
}
