//! A Rust program of the ordinary kind: traits, closures, threads, channels, panics caught and carried.

// calls: 500 rusty::collatz
// calls: 100 rusty::may_panic
// calls: 8 rusty::worker
// calls: 60 <rusty::Circle as rusty::Shape>::area
// calls: 60 <rusty::Square as rusty::Shape>::area
// calls: 100 rusty::through_frames

use std::collections::HashMap;
use std::hint::black_box;
use std::panic;
use std::sync::mpsc;
use std::thread;

trait Shape {
    fn area(&self) -> f64;
}

struct Circle(f64);
struct Square(f64);

impl Shape for Circle {
    #[inline(never)]
    fn area(&self) -> f64 {
        3.0 * self.0 * self.0
    }
}

impl Shape for Square {
    #[inline(never)]
    fn area(&self) -> f64 {
        self.0 * self.0
    }
}

#[inline(never)]
fn collatz(mut n: u64) -> u64 {
    let mut steps = 0;
    while n != 1 {
        n = if n % 2 == 0 { n / 2 } else { 3 * n + 1 };
        steps += 1;
    }
    black_box(steps)
}

#[inline(never)]
fn may_panic(n: u32) -> u32 {
    if n % 3 == 0 {
        panic!("{n} is a multiple of 3");
    }
    black_box(n)
}

#[inline(never)]
fn through_frames(n: u32) -> u32 {
    let text = black_box(n.to_string());
    let value = may_panic(n);
    black_box(value + text.len() as u32)
}

#[inline(never)]
fn worker(number: u64, results: mpsc::Sender<(u64, u64)>) {
    results.send((number, number * number)).unwrap();
}

fn main() {
    let longest = (1..=500).max_by_key(|&n| collatz(n)).unwrap();
    println!("longest {longest}");

    let shapes: Vec<Box<dyn Shape>> = (0..120)
        .map(|i| if i % 2 == 0 { Box::new(Circle(i as f64)) as Box<dyn Shape> } else { Box::new(Square(1.0)) })
        .collect();
    println!("area {}", shapes.iter().map(|shape| shape.area()).sum::<f64>());

    panic::set_hook(Box::new(|_| {}));
    let caught = (0..100).filter(|&n| panic::catch_unwind(|| through_frames(n)).is_err()).count();
    println!("caught {caught}");

    let (sender, receiver) = mpsc::channel();
    let threads: Vec<_> = (0..8)
        .map(|number| {
            let sender = sender.clone();
            thread::spawn(move || worker(number, sender))
        })
        .collect();
    drop(sender);
    let squares: HashMap<u64, u64> = receiver.iter().collect();
    for thread in threads {
        thread.join().unwrap();
    }
    println!("squares {}", squares.values().sum::<u64>());
    let carried = thread::spawn(|| may_panic_outside()).join();
    println!("carried {}", carried.is_err());
    std::process::exit(11);
}

#[inline(never)]
fn may_panic_outside() -> u32 {
    let empty: Vec<u32> = black_box(Vec::new());
    empty[black_box(3)]
}
