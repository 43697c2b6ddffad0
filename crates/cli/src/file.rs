//! Files that readers write: there whole or not at all, and compressed if their names say so.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::thread;

use anyhow::{Context, Result};
use flate2::Compression;
use flate2::write::GzEncoder;
use nopal_export::WholeFile;
use ruzstd::encoding::{CompressionLevel, compress};

const BUFFER: usize = 1 << 18;

/// Gives `write` the content of the file `path`, compressed for names in `.gz` and `.zst`. If it fails, or the disk is
/// full, an older file of that name stays as it was.
pub fn write<T>(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<T>) -> Result<T> {
    let written = || -> Result<T> {
        let whole = WholeFile::open(path)?;
        let value = packed(path, whole.file(), write)?;
        whole.finish(path)?;
        Ok(value)
    };
    written().with_context(|| format!("cannot write {}", path.display()))
}

fn packed<T>(
    path: &Path,
    file: &File,
    write: impl FnOnce(&mut dyn Write) -> Result<T>,
) -> Result<T> {
    let mut out = BufWriter::with_capacity(BUFFER, file);
    let extension = path.extension().and_then(|extension| extension.to_str());
    Ok(match extension {
        Some("gz") => {
            let mut packer = GzEncoder::new(out, Compression::fast());
            let value = write(&mut packer)?;
            packer.finish()?.flush()?;
            value
        }
        Some("zst") => write_zstd(out, write)?,
        _ => {
            let value = write(&mut out)?;
            out.flush()?;
            value
        }
    })
}

/// The encoder reads its input, so it runs in a thread at the other end of a pipe.
fn write_zstd<T, W: Write + Send>(
    out: W,
    write: impl FnOnce(&mut dyn Write) -> Result<T>,
) -> Result<T> {
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
        let written = write(&mut end).and_then(|value| {
            end.flush()?;
            Ok(value)
        });
        drop(end);
        let packed = match packing.join() {
            Ok(packed) => packed,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        let value = written?;
        packed?;
        Ok(value)
    })
}

/// Keeps the first error, since the encoder takes none.
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
    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::PermissionsExt;

    /// The file's contents, decompressed.
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
            let failed = write(&path, |out| -> Result<()> {
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

    #[test]
    fn a_file_is_there_whole_or_not_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let names = || fs::read_dir(directory.path()).unwrap().count();
        let failed = write(&path, |out| -> Result<()> {
            out.write_all(&[7; 1 << 20])?;
            assert_eq!(names(), 0);
            bail!("no more")
        });
        assert!(failed.is_err());
        assert_eq!(names(), 0);
        write(&path, |out| Ok(out.write_all(b"old")?)).unwrap();
        let failed = write(&path, |out| -> Result<()> {
            out.write_all(b"new")?;
            bail!("no more")
        });
        let message = format!("{:#}", failed.unwrap_err());
        assert!(message.contains("file: no more"), "{message}");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        write(&path, |out| Ok(out.write_all(b"new")?)).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names(), 1);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
