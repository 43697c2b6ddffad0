//! Files that readers write: there whole or not at all, and compressed if their names say so.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::thread;

use anyhow::{Context, Result};
use flate2::Compression;
use flate2::write::GzEncoder;
use ruzstd::encoding::{CompressionLevel, compress};

const BUFFER: usize = 1 << 16;

/// Gives `write` the content of a file, compressed for names in `.gz` and `.zst`. Only the user can read the file. What
/// is not a plain file, such as a pipe, is written to as it is.
pub fn write(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let name = || path.display().to_string();
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        let file = File::options().write(true).open(path).with_context(name)?;
        return packed(path, file, write).with_context(name);
    }
    let directory = match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        _ => Path::new("."),
    };
    let file = tempfile::Builder::new()
        .prefix(".nopal-")
        .tempfile_in(directory)
        .with_context(name)?;
    let into = file.as_file().try_clone().with_context(name)?;
    packed(path, into, write).with_context(name)?;
    file.persist(path).with_context(name)?;
    Ok(())
}

fn packed(path: &Path, file: File, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let mut out = BufWriter::with_capacity(BUFFER, file);
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("gz") => {
            let mut packer = GzEncoder::new(out, Compression::fast());
            write(&mut packer)?;
            packer.finish()?.flush()?;
        }
        Some("zst") => write_zstd(out, write)?,
        _ => {
            write(&mut out)?;
            out.flush()?;
        }
    }
    Ok(())
}

/// The encoder reads its input: it is a thread at the other end of a pipe.
fn write_zstd<W: Write + Send>(
    out: W,
    write: impl FnOnce(&mut dyn Write) -> Result<()>,
) -> Result<()> {
    let (input, end) = io::pipe()?;
    thread::scope(|scope| {
        let packing = scope.spawn(move || {
            let mut drain = Drain {
                out,
                result: Ok(()),
            };
            compress(input, &mut drain, CompressionLevel::Fastest);
            drain.result.and_then(|()| drain.out.flush())
        });
        let mut end = BufWriter::with_capacity(BUFFER, end);
        let written = write(&mut end).and_then(|()| Ok(end.flush()?));
        drop(end);
        let packed = match packing.join() {
            Ok(packed) => packed,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        written?;
        Ok(packed?)
    })
}

/// Keeps the first error: the encoder takes none.
struct Drain<W> {
    out: W,
    result: io::Result<()>,
}

impl<W: Write> Write for Drain<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.result.is_ok() {
            self.result = self.out.write_all(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;
    use std::io::Read;

    /// What the file has, decompressed.
    fn read(path: &Path) -> Vec<u8> {
        let file = File::open(path).unwrap();
        let mut bytes = Vec::new();
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("gz") => flate2::read::GzDecoder::new(file).read_to_end(&mut bytes),
            Some("zst") => ruzstd::decoding::StreamingDecoder::new(file)
                .unwrap()
                .read_to_end(&mut bytes),
            _ => fs::read(path).map(|read| {
                bytes = read;
                0
            }),
        }
        .unwrap();
        bytes
    }

    #[test]
    fn files_hold_what_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let text: Vec<u8> = (0..300_000u32)
            .flat_map(|number| (number / 7).to_le_bytes())
            .collect();
        for name in ["plain", "packed.gz", "packed.zst"] {
            let path = directory.path().join(name);
            write(&path, |out| {
                for part in text.chunks(1000) {
                    out.write_all(part)?;
                }
                Ok(())
            })
            .unwrap();
            assert!(read(&path) == text, "{name}");
            let is_smaller = fs::metadata(&path).unwrap().len() < text.len() as u64 / 2;
            assert_eq!(is_smaller, name != "plain");
        }
    }

    #[test]
    fn a_file_that_fails_leaves_what_was_there() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["plain", "packed.gz", "packed.zst"] {
            let path = directory.path().join(name);
            fs::write(&path, "old").unwrap();
            let failed = write(&path, |out| {
                out.write_all(&[7; 1 << 20])?;
                bail!("no more")
            });
            assert!(format!("{:#}", failed.unwrap_err()).contains("no more"));
            assert_eq!(fs::read(&path).unwrap(), b"old", "{name}");
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 3);
    }

    #[test]
    fn a_full_disk_is_an_error() {
        let full = Path::new("/dev/full");
        for extension in ["", "gz", "zst"] {
            let link = tempfile::tempdir().unwrap();
            let path = link.path().join("full").with_extension(extension);
            std::os::unix::fs::symlink(full, &path).unwrap();
            let written = write(&path, |out| Ok(out.write_all(&[7; 1 << 20])?));
            assert!(written.is_err(), "{extension}");
        }
    }
}
