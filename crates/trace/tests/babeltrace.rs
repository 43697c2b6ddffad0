//! babeltrace2 reads what the writer writes.

mod support;

use nopal_trace::synthetic::Recorder;
use support::*;

#[test]
fn shows_names() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path().join("nopal.data");
    let mut writer = writer(&directory, &["main", "std::map<int, \"q\\\">", "größe"]);
    let mut recorder = Recorder::new(10, 11, BEGIN);
    for site in 1..=3 {
        call(&mut recorder, BEGIN + u64::from(site) * 100, site);
    }
    assert_eq!(recorder.finish(&mut writer).unwrap(), 6);
    end(&mut writer, BEGIN + 1000);
    let lines = babeltrace(&directory);
    for line in &lines {
        println!("{line}");
    }
    println!(
        "{}",
        std::fs::read_to_string(directory.join("metadata")).unwrap()
    );
}
