//! Symbols, memory and tables that are damaged: an error or a plan, but no panic, and nothing planned that is not there.

use super::*;

/// A number that differs from run to run, printed so that a failure can be repeated with NOPAL_SEED.
fn seed() -> u64 {
    let seed = match std::env::var("NOPAL_SEED") {
        Ok(seed) => seed.parse().expect("NOPAL_SEED is a number"),
        Err(_) => std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .expect("the clock is past 1970")
            .as_nanos() as u64,
    };
    println!("NOPAL_SEED={seed}");
    seed
}

/// splitmix64
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    fn damage(&mut self, bytes: &mut Vec<u8>, times: usize) {
        for _ in 0..self.below(times) {
            let at = self.below(bytes.len());
            match self.below(4) {
                0 if at < bytes.len() => bytes.truncate(at),
                1 if at < bytes.len() => bytes[at] = 0xff,
                2 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
                _ => bytes.insert(at, self.next() as u8),
            }
        }
    }
}

fn small() -> Small {
    let mut small = Small::new();
    let thunk = small.code("__x86_indirect_thunk_rax", &[&RETURN]);
    for index in 0..20u8 {
        let at = small.here();
        let cold = to::<6>(at + 5, &[0x0f, 0x85], at + SLOT);
        small.function(
            &format!("f{index}"),
            &[&cold, &RETURN, &jump(at + 16, thunk)],
        );
        small.code(
            &format!("f{index}.cold"),
            &[&short_jump(at + SLOT, at + 11), &RETURN],
        );
    }
    let at = small.here();
    small.table(
        ["__start___jump_table", "__stop___jump_table"],
        16,
        &[[TEXT + 80, at], [TEXT, at]],
    );
    small.table(
        ["__start_static_call_sites", "__stop_static_call_sites"],
        8,
        &[[at, at]; 3],
    );
    small.unwinding(&[(TEXT, 0), (TEXT + 0x100, 8), (TEXT + 0x120, 0)]);
    small
}

#[test]
fn damaged_kernels_do_no_harm() {
    let mut random = Random(seed());
    let mut planned = 0;
    for round in 0..2000 {
        let mut small = small();
        small.mark("_etext");
        let mut symbols = small.symbols.into_bytes();
        let mut memory = core_bytes(&[(TEXT, &small.text), (DATA, &small.data)]);
        let mut blacklist = b"0xffffffff81000000-0xffffffff81000010\tx\n".to_vec();
        match round % 4 {
            0 => random.damage(&mut symbols, 12),
            1 => random.damage(&mut memory, 6),
            2 => random.damage(&mut blacklist, 6),
            _ => {
                random.damage(&mut symbols, 4);
                random.damage(&mut memory, 4);
            }
        }
        let Ok(memory) = Memory::of(file(&memory)) else {
            continue;
        };
        let symbols = Symbols::parse(&symbols);
        let blacklist = String::from_utf8_lossy(&blacklist);
        let section = random.next();
        let section = |_: &str, _: &str| Some(DATA + section % 64..DATA + section % 96);
        if let Ok(kernel) = Kernel::of(symbols, &memory, &blacklist, section) {
            let plan = Plan::make(&kernel);
            check(&plan, 1 << 63..u64::MAX);
            planned += usize::from(!plan.functions.is_empty());
        }
    }
    println!("{planned} could be planned");
    assert!(planned > 100, "{planned}");
}

#[test]
fn what_is_no_memory_of_a_kernel_is_refused() {
    let good = core_bytes(&[(TEXT, &[0x90; 64])]);
    assert!(Memory::of(file(&good)).is_ok());
    // Shorter; not ELF; 32 bits; big-endian; a program; another processor; other headers; more headers than there are.
    for length in [0, 10, 63, 64, 100] {
        assert!(Memory::of(file(&good[..length])).is_err(), "{length}");
    }
    for (at, byte) in [
        (0, 0),
        (4, 1),
        (5, 2),
        (16, 2),
        (18, 3),
        (54, 32),
        (56, 9),
        (57, 0xff),
        (39, 0xff),
    ] {
        let mut bad = good.clone();
        bad[at] = byte;
        assert!(Memory::of(file(&bad)).is_err(), "{at}");
    }
    let memory = Memory::of(file(&good)).unwrap();
    assert_eq!(memory.read(TEXT + 60, 4).unwrap(), [0x90; 4]);
    for (address, size) in [
        (TEXT - 1, 4),
        (TEXT + 61, 4),
        (u64::MAX, 1),
        (TEXT, u64::MAX),
        (0, 0x1000),
    ] {
        assert!(memory.read(address, size).is_err(), "{address:#x}");
    }
}
