//! The common parts of this crate's tests.

#![allow(dead_code, reason = "each test program uses a part")]

use nopal_trace::synthetic::Recorder;
pub use nopal_trace::synthetic::clock;
use nopal_trace::{Note, Session, Writer};
use std::path::Path;
use std::process::Command;

/// The first counter of the tests: a little before the lower half of the clock wraps.
pub const BEGIN: u64 = (7 << 32) - 1_000_000;

/// A writer of a trace with the sites 1.. of one image, named so.
pub fn writer(directory: &Path, names: &[&str]) -> Writer {
    let session = Session {
        command: vec!["/bin/program".into()],
        hostname: "host".into(),
        ..Session::default()
    };
    let mut writer = Writer::create(directory, session).unwrap();
    writer.note(&clock(BEGIN)).unwrap();
    image(&mut writer, 1, "/bin/program", 1, names);
    writer
}

/// Tells a writer of an image and its sites from `first` on.
pub fn image(writer: &mut Writer, image: u32, path: &str, first: u32, names: &[&str]) {
    writer
        .note(&Note::Image {
            image,
            path: path.into(),
            identity: "1f".into(),
        })
        .unwrap();
    let site =
        |(number, name): (u32, &&str)| (number, u64::from(number) * 0x100, 0x80, name.to_string());
    writer
        .note(&Note::Sites {
            image,
            sites: (first..).zip(names).map(site).collect(),
        })
        .unwrap();
}

pub fn end(writer: &mut Writer, counter: u64) {
    writer.note(&clock(counter)).unwrap();
    writer.sync_metadata().unwrap();
}

/// A call of site `site`, from `clock` on.
pub fn call(recorder: &mut Recorder, clock: u64, site: u32) {
    recorder.entry(clock, site, 0x7ffd_ffff_f008);
    recorder.exit(clock + 10, site, 0x7ffd_ffff_f008);
}

/// The lines that babeltrace2 prints for a trace. It must succeed and say nothing else.
pub fn babeltrace(directory: &Path) -> Vec<String> {
    let (lines, warnings) = babeltrace_with_warnings(directory);
    assert_eq!(warnings, "");
    lines
}

pub fn babeltrace_with_warnings(directory: &Path) -> (Vec<String>, String) {
    let output = Command::new("babeltrace2")
        .args(["--clock-cycles", "--no-delta", "--names", "all"])
        .arg(directory)
        .output()
        .expect("babeltrace2 (Debian package babeltrace2)");
    let warnings = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{warnings}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    (text.lines().map(str::to_owned).collect(), warnings)
}
