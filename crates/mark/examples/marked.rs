//! A program with markers: `nopal record -M '*' target/release/examples/marked; nopal replay`.

use nopal_mark::mark;

#[inline(never)]
fn step(n: u64, name: &str) -> u64 {
    mark!(
        step,
        "n=%lu name=%s state=%u{even,odd}",
        n,
        name,
        (n % 2) as u32
    );
    n * 3 + 1
}

fn main() {
    let sum: u64 = (0..5).map(|n| step(n, "Grüße")).sum();
    println!("{sum}");
}
