//! Functions with parameters of Rust's own kinds: each prints its call as nopal must show it.

use std::hint::black_box;

#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(u8)]
enum Mode {
    Off,
    Fast = 200,
}
#[derive(Clone, Copy)]
struct Pair {
    a: u32,
    b: f32,
}
struct Large {
    a: [u64; 4],
}
struct Nothing;

#[inline(never)]
fn numbers(a: i8, b: u8, c: i16, d: u32, e: i64, f: usize) -> i32 {
    println!("numbers(a={a}, b={b}, c={c}, d={d}, e={e}, f={f}) = {}", i32::from(c) - 1);
    i32::from(c) - 1
}
#[inline(never)]
fn letters(yes: bool, letter: char, mode: Mode, nothing: (), none: Nothing, last: u16) -> bool {
    black_box((nothing, none));
    println!("letters(yes={yes}, letter='{letter}', mode={mode:?}, {{}}, {{}}, last={last}) = {}", !yes);
    !yes
}
#[inline(never)]
fn texts(text: &str, numbers: &[u16], one: &u32, last: i32) -> usize {
    println!(
        "texts(text={{{:p}, {:#x}}}, numbers={{{:p}, {:#x}}}, one={:p}, last={last}) = {}",
        text.as_ptr(),
        text.len(),
        numbers.as_ptr(),
        numbers.len(),
        one,
        text.len() + numbers.len()
    );
    text.len() + numbers.len()
}
#[inline(never)]
fn floats(a: f32, first: i32, b: f64, last: i32) -> f64 {
    println!("floats(a=…, first={first}, b=…, last={last}) = …");
    f64::from(a) + b
}
#[inline(never)]
fn structures(pair: Pair, last: u64) -> u64 {
    println!("structures(pair=?, last={last}) = {}", last + 1);
    last + u64::from(pair.a + pair.b as u32 > 0)
}
#[inline(never)]
fn optional(some: Option<u32>, last: u64) -> Option<u32> {
    println!("optional(some=?, last={last}) = ?");
    some.map(|some| some + 1)
}
#[inline(never)]
fn moved(text: String, large: Large, last: i8) -> String {
    println!("moved(text={:p}, large={:p}, last={last}) = ?", &text, &large);
    black_box(&large.a);
    text + "more"
}
#[inline(never)]
fn huge(first: u8, huge: i128, last: i16) -> i128 {
    println!("huge(first={first}, huge={{0xc, 0x0}}, last={last}) = …");
    huge + 1
}
#[inline(never)]
fn boxed(first: Box<u32>, last: i16) -> Box<u32> {
    println!("boxed(first={:p}, last={last}) = {:p}", first, first);
    first
}
#[inline(never)]
fn generic<T: std::fmt::Display>(value: T) {
    println!("generic(value={value})");
}
#[inline(never)]
extern "C" fn foreign(pair: Pair, first: i32, large: Large, last: i32) -> i32 {
    println!("foreign(pair=?, first={first}, large=?, last={last}) = {}", first + last);
    black_box((pair.a, &large.a));
    first + last
}
impl Large {
    #[inline(never)]
    fn method(&mut self, by: u32) -> u32 {
        println!("method(self={:p}, by={by}) = {}", self, by + 1);
        by + 1
    }
}

fn main() {
    let zero = black_box(0u8);
    let one = black_box(1u32);
    numbers(-1 - zero as i8, 250 + zero, -300, u32::MAX - u32::from(zero), i64::MIN + i64::from(zero), 7);
    letters(zero == 0, 'ß', if zero == 0 { Mode::Fast } else { Mode::Off }, (), Nothing, 9 + u16::from(zero));
    texts(black_box("text"), black_box(&[1, 2, 3]), &one, -4);
    floats(1.5, black_box(5), 2.5, black_box(6));
    structures(Pair { a: black_box(1), b: 2.0 }, black_box(7));
    optional(black_box(Some(8)), black_box(9));
    moved(black_box("text".to_owned()), Large { a: black_box([1; 4]) }, black_box(-10));
    huge(black_box(11), black_box(12), black_box(13));
    boxed(black_box(Box::new(14)), black_box(15));
    generic(black_box(16u32));
    generic(black_box(-17i64));
    foreign(Pair { a: black_box(1), b: 2.0 }, black_box(18), Large { a: black_box([2; 4]) }, black_box(19));
    Large { a: black_box([3; 4]) }.method(black_box(20));
}
