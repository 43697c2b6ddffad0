//! Shared memory with any contents by the traced process: the tool makes a readable trace of it.
#![no_main]

mod common;

use libfuzzer_sys::fuzz_target;
use nopal_record::{Collector, Keep, Region};
use nopal_trace::synthetic::Recorder;
use nopal_trace::{Session, Writer};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

const CHUNKS: u64 = 3;

/// Two chunks of one thread as the runtime leaves them.
fn whole() -> &'static [Vec<u64>] {
    static WHOLE: OnceLock<Vec<Vec<u64>>> = OnceLock::new();
    WHOLE.get_or_init(|| {
        let mut recorder = Recorder::new(100, 100, 1);
        for call in 0..40 {
            recorder.entry(1000 + call * 10, 1, 0x7ffd_0000_1000);
            recorder.record(
                1001 + call * 10,
                5,
                2,
                0x7ffd_0000_0ff0,
                &[1, 2, 3, 4, 5, 6],
            );
            recorder.record(1002 + call * 10, 8, 2, 0x7ffd_0000_0ff0, &[7]);
            recorder.exit(1003 + call * 10, 1, 0x7ffd_0000_1000);
            if call == 20 {
                recorder.end_chunk();
            }
        }
        recorder.end_chunk();
        recorder.take_full()
    })
}

fuzz_target!(|data: &[u8]| {
    let directory = common::Directory::new();
    let session = Session {
        command: vec!["program".into()],
        ..Session::default()
    };
    let mut writer = Writer::create(directory.path(), session).unwrap();
    let region = Region::create(common::memory(c"region"), CHUNKS << 16, 0, 0, 0).unwrap();
    let keep = if data.first().is_some_and(|byte| byte & 1 != 0) {
        Keep::Newest
    } else {
        Keep::All
    };
    let mut collector = Collector::new(keep, None);
    let file: OwnedFd = region.file().as_fd().try_clone_to_owned().unwrap();
    let file = std::fs::File::from(file);
    let chunks_at = region.bytes() - (CHUNKS << 16);
    let mut states_at = [0; 8];
    file.read_exact_at(&mut states_at, 8).unwrap();
    let states_at = u64::from_le_bytes(states_at);
    for (chunk, words) in whole().iter().enumerate() {
        let at = chunks_at + ((chunk as u64) << 16);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        file.write_all_at(&bytes, at).unwrap();
        const FULL: u32 = 2;
        file.write_all_at(&FULL.to_le_bytes(), states_at + 4 * chunk as u64)
            .unwrap();
    }
    let mut input = common::Input(data.get(1..).unwrap_or(&[]));
    // The process writes, with rounds of the tool between its writes.
    for _ in 0..64 {
        if input.is_empty() {
            break;
        }
        let (part, offset) = (
            u64::from(input.byte()) % (CHUNKS + 1),
            u64::from(input.word()),
        );
        let count = usize::from(input.byte());
        let bytes = input.bytes(count.max(1));
        let at = match part {
            0 => offset % chunks_at,
            chunk => chunks_at + ((chunk - 1) << 16) + offset,
        };
        let at = at.min(region.bytes() - bytes.len() as u64);
        file.write_all_at(bytes, at).unwrap();
        if count & 7 == 0 {
            for request in region.requests() {
                region.answer(&request);
            }
            let _ = collector.round(&region, &mut writer);
            region.lost();
        }
    }
    collector.finish(&region, &mut writer).unwrap();
    writer.sync_metadata().unwrap();
    drop(writer);
    common::read_trace(directory.path());
});
