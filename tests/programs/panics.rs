//! Caught panics, on threads and in destructors, and one that ends the program.

use std::panic::{catch_unwind, resume_unwind};

// calls: 300 fails

struct Counted<'a>(&'a mut u32);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        *self.0 += 1;
    }
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C-unwind" fn fails(n: u32) -> u32 {
    if std::hint::black_box(n) < 1000 {
        std::panic::panic_any(n);
    }
    n
}

#[inline(never)]
fn through(n: u32, dropped: &mut u32) -> u32 {
    let _counted = Counted(dropped);
    fails(n) + 1
}

fn main() {
    // Busy until the file exists, so that a tracer can be attached.
    if let Some(file) = std::env::var_os("HOLD") {
        while !std::path::Path::new(&file).exists() {}
    }
    std::panic::set_hook(Box::new(|_| ()));
    let (mut dropped, mut sum) = (0, 0);
    for n in 0..200 {
        let caught = catch_unwind(std::panic::AssertUnwindSafe(|| through(n, &mut dropped)));
        sum += *caught.unwrap_err().downcast::<u32>().unwrap();
    }
    for n in 0..100 {
        let thread = std::thread::spawn(move || through(n, &mut 0));
        sum += *thread.join().unwrap_err().downcast::<u32>().unwrap();
    }
    println!("{dropped} {sum}");
    if std::env::args().nth(1).is_some() {
        resume_unwind(Box::new("the end"));
    }
}
