//! Pictures of traces: SVG fit for a paper, and PNG made of it.
//!
//! Each kind of picture gathers what it shows from a trace, and draws it.

mod axis;
pub mod bars;
mod canvas;
pub mod cdf;
pub mod flame;

pub mod latency;
mod lines;
#[cfg(feature = "png")]
mod png;
pub mod table;
pub mod timeline;

pub use axis::AxisScale;

/// Makes a PNG of SVG.
pub type PngWriter = fn(&[u8]) -> anyhow::Result<Vec<u8>>;

/// None if nopal is built without the feature `png`.
#[cfg(feature = "png")]
pub const PNG_WRITER: Option<PngWriter> = Some(png::png);
#[cfg(not(feature = "png"))]
pub const PNG_WRITER: Option<PngWriter> = None;

/// A picture as SVG.
pub struct Picture {
    pub svg: Vec<u8>,
}
