//! Output of pictures.

use std::io::{self, IsTerminal, Write};

use anyhow::{Context, Result, bail};
use nopal_plot::Picture;

use crate::arguments::PictureOutput;
use crate::output::{self, finish};

/// The format of a picture, by its file name.
#[derive(Clone, Copy)]
enum Format {
    Svg,
    Png,
}

impl PictureOutput {
    /// Checks the name; called before long work, so that an invalid name is reported at once.
    pub fn check(&self) -> Result<()> {
        self.format()?;
        if self.file.is_none() && io::stdout().is_terminal() {
            bail!("a picture cannot be shown in a terminal: name a file with -o");
        }
        Ok(())
    }

    fn format(&self) -> Result<Format> {
        let Some(file) = &self.file else {
            return Ok(Format::Svg);
        };
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("svg") => Ok(Format::Svg),
            Some("png") => Ok(Format::Png),
            _ => bail!(
                "{}: the name of a picture must end in .svg or .png",
                file.display()
            ),
        }
    }

    pub fn write(&self, picture: &Picture) -> Result<()> {
        let bytes = match self.format()? {
            Format::Svg => picture.svg.clone(),
            Format::Png => picture.png()?,
        };
        match &self.file {
            Some(file) => std::fs::write(file, bytes).with_context(|| file.display().to_string()),
            None => {
                let mut out = output::stdout()?;
                let written = out.write_all(&bytes);
                finish(out, written.map_err(Into::into))
            }
        }
    }
}
