//! Files that were damaged, by chance or on purpose: an error or a plan, but no panic and no endless work.

use std::fs;

use nopal_symbols::Image;

use super::{Built, Random, seed};
use crate::{Body, Fixup, Plan, Site};

fn library() -> Built {
    let source = format!(
        "{}\nvoid other(void);\nint choose(int a) {{ switch (a) {{ case 0: return 5; case 1: other(); return 6; case 2:\n
         return 70; case 3: return 1; case 4: return 34; case 5: other(); default: return a; }} }}",
        (0..60).map(|i| format!("int f{i}(int a, int *b) {{ return a * {i} + b[a] / 7; }}\n")).collect::<String>()
    );
    Built::new(
        "hostile.c",
        &source,
        &["-shared", "-fPIC", "-O1", "-nostdlib"],
    )
}

fn plan_of(bytes: &[u8], directory: &std::path::Path) -> Option<(Image, Plan)> {
    let path = directory.join("damaged");
    fs::write(&path, bytes).unwrap();
    let image = Image::open(&path).ok()?;
    let plan = Plan::make(&image).ok()?;
    Some((image, plan))
}

/// Checks the invariants of every plan, whatever the file says.
fn check(image: &Image, plan: &Plan) {
    for site in plan.sites.iter().chain(&plan.hooks) {
        let window = usize::from(site.window);
        assert!((5..=19).contains(&window));
        assert_eq!(image.bytes(site.address, window), Some(site.expected()));
        let code = site.body.code().len();
        assert!((1..=200).contains(&code));
        let inside = |(from, to): (u8, u16)| usize::from(from) <= window && usize::from(to) < code;
        assert!(site.body.map().all(inside) && site.body.map().is_sorted());
        assert!(site.body.rows().is_sorted_by_key(|row| row.0));
        let mut out = vec![0; code];
        // In reach or not: it must not write elsewhere.
        let _ = site
            .body
            .place(0x7f00_0000_0000, 0x7f00_0000_0000 + site.address, &mut out);
    }
}

#[test]
fn damaged_files_do_no_harm() {
    let mut random = Random(seed());
    let library = library();
    let directory = tempfile::tempdir().unwrap();
    let good = fs::read(&library.path).unwrap();
    let (image, plan) = plan_of(&good, directory.path()).unwrap();
    check(&image, &plan);
    assert!(plan.sites.len() > 60);
    let mut planned = 0;
    for round in 0..600 {
        let mut bad = good.clone();
        // The headers, the tables that they lead to, or anything.
        let reach = [64, 0x400, 0x1000, bad.len()][round % 4].min(bad.len());
        for _ in 0..1 + random.below(8) {
            let at = random.below(reach);
            bad[at] = match random.below(3) {
                0 => random.byte(),
                1 => 0xff,
                _ => bad[at] ^ (1 << random.below(8)),
            };
        }
        if random.below(8) == 0 {
            bad.truncate(random.below(bad.len()));
        }
        if let Some((image, plan)) = plan_of(&bad, directory.path()) {
            check(&image, &plan);
            planned += 1;
        }
    }
    println!("{planned} could be planned");
    assert!(planned > 100);
}

/// The end of the file is where the tables for the unwinder, the dynamic section and the symbols lie.
#[test]
fn damaged_tables_do_no_harm() {
    let mut random = Random(seed());
    let library = library();
    let directory = tempfile::tempdir().unwrap();
    let good = fs::read(&library.path).unwrap();
    for _ in 0..300 {
        let mut bad = good.clone();
        let at = random.below(bad.len() - 256);
        (0..1 + random.below(64)).for_each(|i| {
            bad[at + i] = if random.below(2) == 0 {
                random.byte()
            } else {
                0xff
            }
        });
        if let Some((image, plan)) = plan_of(&bad, directory.path()) {
            check(&image, &plan);
        }
    }
}

#[test]
fn a_damaged_plan_cannot_be_placed_outside() {
    let mut random = Random(seed());
    let (image, plan) = {
        let library = library();
        let image = library.image();
        let plan = Plan::make(&image).unwrap();
        (image, plan)
    };
    drop(image);
    for _ in 0..2000 {
        let site: &Site = &plan.sites[random.below(plan.sites.len())];
        let (offset, from) = (random.next() as u16, random.next() as u16);
        let mut fixups: Vec<Fixup> = site.body.fixups().collect();
        fixups.push(match random.below(2) {
            0 => Fixup::Relative {
                offset,
                from,
                target: random.next(),
            },
            _ => Fixup::Absolute {
                offset,
                target: random.next(),
            },
        });
        let code = site.body.code();
        let body = Body::new(code.to_vec(), &fixups, &[], &[]);
        let mut out = vec![0xaa; code.len() + 8];
        let _ = body.place(random.next(), random.next(), &mut out);
        assert_eq!(out[code.len()..], [0xaa; 8]);
    }
}
