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
mod png;
pub mod scatter;
pub mod table;
pub mod timeline;

pub use axis::AxisScale;

/// A picture as SVG.
pub struct Picture {
    pub svg: Vec<u8>,
}

impl Picture {
    pub fn png(&self) -> anyhow::Result<Vec<u8>> {
        png::png(&self.svg)
    }
}
