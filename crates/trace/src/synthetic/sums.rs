//! Recomputes the checksums of files that a test has changed, so that readers accept them.

use crate::checksum::Sum;
use crate::directory;
use crate::header;
use crate::layout::*;
use crate::session;
use anyhow::Result;
use std::fs;
use std::path::Path;

/// Recomputes the sums of all packets and notes of a trace that can be found.
pub fn sum_again(trace: &Path) -> Result<()> {
    notes_again(trace, |text| text)?;
    let streams = directory::streams(trace)?.into_iter();
    let streams = streams.map(|number| (number, directory::stream_name(number)));
    let processors = directory::processors(trace)?.into_iter();
    let processors = processors.map(|number| (number, directory::processor_name(number)));
    for (number, name) in streams.chain(processors) {
        let path = trace.join(name);
        let bytes = fs::read(&path)?;
        let (words, rest) = bytes.as_chunks::<8>();
        let mut words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        packets_again(&mut words, number);
        let mut again: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        again.extend_from_slice(rest);
        fs::write(&path, again)?;
    }
    Ok(())
}

/// Changes the text of the notes.
pub fn notes_again(trace: &Path, change: impl FnOnce(Vec<u8>) -> Vec<u8>) -> Result<()> {
    let path = trace.join(directory::SESSION);
    let text = change(fs::read(&path)?);
    let lines: Vec<Vec<u8>> = text
        .split(|byte| *byte == b'\n')
        .map(session::sum_again)
        .collect();
    Ok(fs::write(&path, lines.join(&b'\n'))?)
}

fn packets_again(words: &mut [u64], file: u32) {
    let mut position = 0;
    while let Some((first, rest)) = words
        .get_mut(position..)
        .and_then(|words| words.split_first_chunk_mut::<HEADER_WORDS>())
    {
        let mut header = header::read(first);
        let content = usize::try_from(header.content_bits / 64).ok();
        let records = content.and_then(|content| content.checked_sub(HEADER_WORDS));
        let records = records.and_then(|length| rest.get(..length));
        position += match records {
            Some(records) if header.magic == MAGIC => {
                header.checksum = header::checksum(Sum::new().words(records), &header, file);
                header::write(&header, first);
                HEADER_WORDS + records.len()
            }
            _ => 1,
        };
    }
}
