use anyhow::{Result, ensure};
use nopal_symbols::Image;
use std::fmt::Display;

pub fn ensure_not_go(image: &Image, name: &dyn Display) -> Result<()> {
    ensure!(
        !image.is_go(),
        "{name} is a Go program: its stacks move, and its functions jump back to their own entries; it cannot be recorded"
    );
    Ok(())
}
