//! Small kernels, assembled by hand.

mod exits;
mod hostile;
mod refusals;

use crate::{Exit, Kernel, Memory, Plan, Reason, Symbols};
use std::io::{Seek, Write};
use std::ops::Range;

/// The begin of their text. Each function has 64 bytes.
const TEXT: u64 = 0xffff_ffff_8100_0000;
const SLOT: u64 = 0x40;
/// The place of their data.
const DATA: u64 = 0xffff_ffff_8200_0000;

const NOP: [u8; 5] = [0x0f, 0x1f, 0x44, 0, 0];
const ENDBR: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
const RETURN: [u8; 5] = [0xc3, 0xcc, 0xcc, 0xcc, 0xcc];

/// A kernel in the making.
#[derive(Default)]
struct Small {
    symbols: String,
    text: Vec<u8>,
    data: Vec<u8>,
    blacklist: String,
}

impl Small {
    fn new() -> Small {
        let mut small = Small::default();
        small.mark("_stext");
        small
    }

    fn here(&self) -> u64 {
        TEXT + self.text.len() as u64
    }

    fn mark(&mut self, name: &str) {
        self.symbols += &format!("{:x} T {name}\n", self.here());
    }

    /// Adds code under a name; its address.
    fn code(&mut self, name: &str, parts: &[&[u8]]) -> u64 {
        self.mark(name);
        let address = self.here();
        self.text.extend(parts.concat());
        assert!(self.here() <= address + SLOT, "{name} is too long");
        self.text.resize((address + SLOT - TEXT) as usize, 0xcc);
        address
    }

    /// The same, with ftrace's place before.
    fn function(&mut self, name: &str, parts: &[&[u8]]) -> u64 {
        let parts: Vec<&[u8]> = std::iter::once(&NOP[..])
            .chain(parts.iter().copied())
            .collect();
        self.code(name, &parts)
    }

    /// Adds a table of data between two names; where each row has its first two distances, these addresses.
    fn table(&mut self, [begin, end]: [&str; 2], row: usize, rows: &[[u64; 2]]) {
        let mark = |symbols: &mut String, data: &Vec<u8>, name: &str| {
            *symbols += &format!("{:x} D {name}\n", DATA + data.len() as u64);
        };
        mark(&mut self.symbols, &self.data, begin);
        for addresses in rows {
            let at = self.data.len();
            for (index, address) in addresses.iter().enumerate() {
                let place = DATA + (at + 4 * index) as u64;
                let distance = address.wrapping_sub(place) as i32;
                self.data.extend(distance.to_le_bytes());
            }
            self.data.resize(at + row, 0);
        }
        mark(&mut self.symbols, &self.data, end);
    }

    /// The kernel's table for its unwinder: from each address on, how far the return address is from the stack pointer.
    fn unwinding(&mut self, rows: &[(u64, i16)]) {
        let mark = |symbols: &mut String, data: &Vec<u8>, name: &str| {
            *symbols += &format!("{:x} D {name}\n", DATA + data.len() as u64);
        };
        mark(&mut self.symbols, &self.data, "__start_orc_unwind_ip");
        for (address, _) in rows {
            let place = DATA + self.data.len() as u64;
            self.data
                .extend((address.wrapping_sub(place) as i32).to_le_bytes());
        }
        mark(&mut self.symbols, &self.data, "__stop_orc_unwind_ip");
        mark(&mut self.symbols, &self.data, "__start_orc_unwind");
        for (_, depth) in rows {
            self.data.extend((depth + 8).to_le_bytes());
            self.data.extend([0, 0, 5, 0]);
        }
        mark(&mut self.symbols, &self.data, "__stop_orc_unwind");
    }

    fn kernel(mut self) -> Kernel {
        self.mark("_etext");
        let file = core(&[(TEXT, &self.text), (DATA, &self.data)]);
        let symbols = Symbols::parse(self.symbols.as_bytes());
        let memory = Memory::of(file).unwrap();
        Kernel::of(symbols, &memory, &self.blacklist, |_, _| None).unwrap()
    }

    fn plan(self) -> Plan {
        Plan::make(&self.kernel())
    }
}

/// The memory of a kernel as a file.
fn core_bytes(segments: &[(u64, &[u8])]) -> Vec<u8> {
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    file.extend([4, 0, 62, 0, 1, 0, 0, 0]);
    file.extend(0u64.to_le_bytes());
    file.extend(64u64.to_le_bytes());
    file.resize(52, 0);
    for number in [64u16, 56, segments.len() as u16, 0, 0, 0] {
        file.extend(number.to_le_bytes());
    }
    let mut offset = 64 + 56 * segments.len() as u64;
    for (address, bytes) in segments {
        file.extend([1, 0, 0, 0, 7, 0, 0, 0]);
        let size = bytes.len() as u64;
        for number in [offset, *address, 0, size, size, 0x1000] {
            file.extend(number.to_le_bytes());
        }
        offset += size;
    }
    for (_, bytes) in segments {
        file.extend_from_slice(bytes);
    }
    file
}

fn file(bytes: &[u8]) -> std::fs::File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file.rewind().unwrap();
    file
}

fn core(segments: &[(u64, &[u8])]) -> std::fs::File {
    file(&core_bytes(segments))
}

/// An instruction that ends with its distance to an address, of as many bytes as are left of `N`.
fn to<const N: usize>(at: u64, opcode: &[u8], address: u64) -> [u8; N] {
    let mut bytes = [0; N];
    let distance = address.wrapping_sub(at + N as u64).cast_signed();
    let unused = 64 - 8 * (N - opcode.len());
    assert_eq!(distance << unused >> unused, distance, "it is too far away");
    let distance = distance.to_le_bytes();
    bytes[..opcode.len()].copy_from_slice(opcode);
    bytes[opcode.len()..].copy_from_slice(&distance[..N - opcode.len()]);
    bytes
}

fn jump(at: u64, address: u64) -> [u8; 5] {
    to(at, &[0xe9], address)
}

fn short_jump(at: u64, address: u64) -> [u8; 2] {
    to(at, &[0xeb], address)
}

/// The plan of the function at an address: the kinds of its exits and their distances from its begin; or why there is
/// none.
fn of(plan: &Plan, address: u64) -> Result<Vec<(u32, u64)>, Reason> {
    let found = plan
        .functions
        .iter()
        .find(|function| function.address == address);
    let Some(function) = found else {
        let mut refused = plan.refused.iter();
        let refused = refused.find(|refused| refused.address == address);
        return Err(refused.expect("it is planned or refused").reason);
    };
    let exit = |exit: &Exit| (u32::from(exit.kind), exit.address.wrapping_sub(address));
    Ok(plan.exits_of(function).iter().map(exit).collect())
}

/// Checks the invariants of every plan.
fn check(plan: &Plan, text: Range<u64>) {
    assert!(
        plan.functions
            .is_sorted_by(|one, next| one.address < next.address)
    );
    let mut all: Vec<u64> = Vec::new();
    for function in &plan.functions {
        assert!(text.start <= function.address && function.address < function.end);
        assert!(function.end <= text.end);
        for exit in plan.exits_of(function) {
            assert!(text.start <= exit.address && exit.address + 5 <= text.end);
            let [first, rest @ ..] = exit.expected;
            match (u32::from(exit.kind), first) {
                (crate::EXIT_RETURN, 0xc3) => assert_eq!(rest, [0xcc; 4]),
                (crate::EXIT_TAIL, 0xeb) => assert_eq!(rest[1..], [0xcc; 3]),
                (kind, 0xe9) => assert_eq!(kind == crate::EXIT_TAIL, exit.target != 0),
                other => panic!("{other:?}"),
            }
            all.push(exit.address);
        }
    }
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count, "each exit is one function's");
    assert_eq!(count, plan.exits.len());
}
