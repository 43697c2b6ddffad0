//! The contents of the image and of the process structure.

use nopal_agent::{THREADS, thread_place};
use std::path::Path;

/// As `runtime/arch/x86_64/macros.h` finds it: the upper bits of a product.
#[test]
fn threads_are_looked_for_all_over_their_table() {
    assert_eq!(thread_place(0), 0);
    assert_eq!(thread_place(0xabcd_0000_0001), 0x9e37_79b1 >> 18);
    let places = (0..1 << 20).map(|number| thread_place(number * 4096));
    let mut met = vec![false; THREADS];
    places.for_each(|place| met[place] = true);
    assert!(met.iter().all(|met| *met));
}

/// The race points of tests would bring their names into the image.
#[test]
fn race_points_are_not_in_the_image() {
    let core = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../runtime/core");
    let immediates = nopal_agent::Immediates::default();
    let image = nopal_agent::image(&immediates, 0);
    let mut points = 0;
    for entry in std::fs::read_dir(core).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for rest in text.split("port_race_point(\"").skip(1) {
            let name = rest.split('"').next().unwrap();
            let found = image
                .windows(name.len())
                .any(|part| part == name.as_bytes());
            assert!(!found, "{name}");
            points += 1;
        }
    }
    assert!(points > 20, "the sources name {points}");
}
