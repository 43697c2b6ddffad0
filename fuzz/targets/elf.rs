//! Any bytes as an ELF file: all its parts are read, and a plan is made.
#![no_main]

mod common;

use libfuzzer_sys::fuzz_target;
use nopal_plan::Plan;
use nopal_symbols::{Image, Selection};

fuzz_target!(|data: &[u8]| {
    let file = common::File::with(data);
    let Ok(image) = Image::open_with_debug_directories(file.path(), &[]) else {
        return;
    };
    image.identity();
    image.kind();
    image.is_static();
    image.is_go();
    image.interpreter();
    image.soname();
    image.needed();
    image.imports();
    image.pointers().for_each(drop);
    image.stamp();
    image.content_hash();
    image.symbol("main");
    image.exported("g");
    image.markers();
    image.probes();
    let selection = Selection::new(&["a*@b*".into()], &["*c".into()]).unwrap();
    for function in image.functions().into_iter().flatten() {
        let end = function.address.checked_add(function.size).unwrap();
        selection.chooses(&[&function.name], "file");
        image.unwind_rows(function.address);
        image.cfa_changes(function.address..end.min(function.address.saturating_add(64)));
    }
    let Ok(plan) = Plan::make(&image) else {
        return;
    };
    for site in plan.sites.iter().chain(&plan.hooks) {
        let expected = site.expected();
        assert_eq!(image.bytes(site.address, expected.len()), Some(expected));
        let mut code = vec![0; site.body.code().len()];
        let _ = site.body.place(0, 0x1000_0000, &mut code);
    }
});
