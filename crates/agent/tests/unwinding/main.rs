//! Compares the unwind tables of generated code, at every instruction, with what the code does.

#[path = "../common/mod.rs"]
mod common;
mod emulation;
mod table;

use common::{IMAGE_AT, IMMEDIATES, MIRROR, Memory, builder, symbols, target};
use emulation::{CALLEE_SAVED, RBP, RBX, RSP, State, Value};
use nopal_abi::Capture;
use nopal_agent::{Recorder, Stub, Switched};
use nopal_plan::FrameChange;
use std::collections::BTreeMap;
use table::{Rule, Table};
use zydis::Mnemonic;

/// Generated code with its tables, and the states found at its instructions.
struct World {
    memory: Memory,
    tables: Vec<Table>,
    names: BTreeMap<u64, String>,
    seen: BTreeMap<u64, Vec<State>>,
}

impl World {
    fn new() -> World {
        let image = nopal_agent::image(&IMMEDIATES, nopal_agent::ARENA_BYTES);
        let mut memory = Memory::default();
        let end = IMAGE_AT + image.len() as u64;
        let header = IMAGE_AT + nopal_agent::IMAGE_UNWIND_HEADER;
        memory.add(IMAGE_AT, image);
        let tables = vec![Table::new(&memory, IMAGE_AT..end, header)];
        let names = symbols().into_iter().map(|(name, at)| (at, name)).collect();
        World {
            memory,
            tables,
            names,
            seen: BTreeMap::new(),
        }
    }

    fn add_block(&mut self, block: nopal_agent::Block) {
        let range = block.low..block.high;
        self.memory.add(block.low, block.bytes.to_vec());
        self.tables
            .push(Table::new(&self.memory, range, block.header));
    }

    fn describe(&self, address: u64) -> String {
        let name = self.names.range(..=address).next_back();
        name.map_or_else(String::new, |(at, name)| {
            format!("{address:#x} ({name}+{:#x})", address - at)
        })
    }

    fn table(&self, address: u64) -> Option<&Table> {
        self.tables
            .iter()
            .find(|table| table.range.contains(&address))
    }

    /// Compares the row for `address` with `state`.
    fn check(&self, address: u64, state: &State) {
        let place = || self.describe(address);
        let table = self
            .table(address)
            .unwrap_or_else(|| panic!("no table covers {}", place()));
        let row = table
            .row(address)
            .unwrap_or_else(|| panic!("no row for {}", place()));
        let base = state.register(row.cfa.0);
        let Value::Stack(base) = base else {
            panic!(
                "{}: the frame is told from register {}, which holds {base:?}",
                place(),
                row.cfa.0
            )
        };
        assert_eq!(base + row.cfa.1, state.frame, "{}: frame address", place());
        match row.return_address {
            Rule::AtFrame(offset) => {
                let found = state.word(state.frame + offset);
                assert_eq!(found, Value::ReturnAddress, "{}: return address", place());
            }
            Rule::Mirrored(by) => {
                assert_eq!(by, MIRROR - 8, "{}: distance of the mirror", place());
                assert!(
                    state.mirrored,
                    "{}: the mirror holds no return address",
                    place()
                );
            }
            Rule::In(register) => assert_eq!(
                state.register(register),
                Value::ReturnAddress,
                "{}: return address",
                place()
            ),
            Rule::Unchanged => panic!("{}: no rule for the return address", place()),
        }
        for register in CALLEE_SAVED {
            let found = match row.rule(register) {
                Rule::AtFrame(offset) => state.word(state.frame + offset),
                Rule::Unchanged => state.register(register),
                Rule::In(other) => state.register(other),
                Rule::Mirrored(_) => panic!("{}: register {register} in the mirror", place()),
            };
            assert_eq!(
                found,
                Value::Original(register),
                "{}: register {register}",
                place()
            );
        }
    }

    /// Follows all paths from `start`. If an address is reached with more frames than `FRAMES`, %rbp is not taken for a
    /// frame pointer there.
    fn explore(&mut self, start: u64, state: State) {
        // This ends, since joining only forgets.
        let mut todo = vec![(start, state)];
        while let Some((at, state)) = todo.pop() {
            let seen = self.seen.entry(at).or_default();
            let by_rbp = seen.len() < FRAMES;
            let mut before = seen.iter_mut();
            let state = match before.find_map(|old| Some((old.joined(&state, by_rbp)?, old))) {
                Some((joined, old)) if joined == *old => continue,
                Some((joined, old)) => {
                    old.clone_from(&joined);
                    joined
                }
                None => {
                    seen.push(state.clone());
                    state
                }
            };
            assert!(seen.len() < 100, "no end of states at {at:#x}");
            self.check(at, &state);
            todo.extend(self.step(at, state));
        }
    }

    fn step(&self, at: u64, mut state: State) -> Vec<(u64, State)> {
        let instruction = self.memory.instruction(at);
        let next = at + u64::from(instruction.length);
        let goal = target(&instruction, at);
        match instruction.mnemonic {
            Mnemonic::CALL => self
                .after_call(goal, state)
                .into_iter()
                .inspect(|after| self.check(next - 1, after))
                .map(|after| (next, after))
                .collect(),
            Mnemonic::RET => {
                // The stubs of hooks go on to the body, whose address lies below the return address.
                let place = self.describe(at);
                let is_called = CALLED.iter().any(|name| place.contains(name));
                let to_body = place.contains("nopal_stub_") && !is_called;
                let slot = Value::Stack(state.frame - if to_body { 16 } else { 8 });
                assert_eq!(
                    state.register(RSP),
                    slot,
                    "{}: returns from elsewhere",
                    self.describe(at)
                );
                for register in CALLEE_SAVED {
                    assert_eq!(
                        state.register(register),
                        Value::Original(register),
                        "{}",
                        self.describe(at)
                    );
                }
                Vec::new()
            }
            Mnemonic::JMP => match goal {
                Some(goal) if self.table(goal).is_some() => vec![(goal, state)],
                // A jump back into the module, or through a pointer.
                _ => Vec::new(),
            },
            Mnemonic::JB if state.carry.is_some() => {
                let goal = if state.carry == Some(true) {
                    goal.unwrap()
                } else {
                    next
                };
                state.carry = None;
                vec![(goal, state)]
            }
            Mnemonic::UD2 | Mnemonic::INT3 => Vec::new(),
            _ => {
                state.run(&instruction);
                match goal {
                    Some(goal) => vec![(goal, state.clone()), (next, state)],
                    None => vec![(next, state)],
                }
            }
        }
    }

    /// The states after a call to `goal`, or through a pointer if there is none.
    fn after_call(&self, goal: Option<u64>, mut state: State) -> Vec<State> {
        state.returned();
        let name = goal
            .and_then(|goal| self.names.get(&goal))
            .map_or("", String::as_str);
        match name {
            _ if name.starts_with("nopal_entry_only") => {
                state.carry = Some(true);
                vec![state]
            }
            _ if name.starts_with("nopal_entry") => {
                let mut wrapped = state.clone();
                (wrapped.mirrored, wrapped.carry) = (true, Some(false));
                state.carry = Some(true);
                vec![wrapped, state]
            }
            _ if name.starts_with("nopal_exit") => {
                assert!(state.mirrored);
                state.set_word(state.frame - 8, Value::ReturnAddress);
                vec![state]
            }
            _ => vec![state],
        }
    }

    /// Instructions in the ranges of the tables that were never reached, except NOPs and those that `skipped` names.
    fn unseen(&self, table: &Table, skipped: &[&str]) -> Vec<String> {
        let mut unseen = Vec::new();
        for range in table.functions() {
            let mut at = range.start;
            let skip = self
                .names
                .get(&at)
                .is_some_and(|name| skipped.contains(&name.as_str()));
            while at < range.end && !skip {
                let instruction = self.memory.instruction(at);
                if !self.seen.contains_key(&at) && instruction.mnemonic != Mnemonic::NOP {
                    unseen.push(format!("{}: {instruction}", self.describe(at)));
                }
                at += u64::from(instruction.length);
            }
        }
        unseen
    }
}

/// More frames than any address is reached with.
const FRAMES: usize = 8;

/// Stubs that are called, by markers and detours.
const CALLED: [&str; 3] = ["nopal_stub_mark", "nopal_stub_probe", "nopal_stub_fetch"];

/// The state in which a function of the image is entered, if not by a call.
fn entry_state(name: &str) -> State {
    match name {
        "nopal_landing" => State::entered(0, true),
        _ if CALLED.contains(&name) => State::entered(8, false),
        _ if name.starts_with("nopal_stub_") => State::entered(16, false),
        _ => State::entered(8, false),
    }
}

#[test]
fn image_is_described_at_every_instruction() {
    let mut world = World::new();
    let templates = ["nopal_thunk", "nopal_hook"];
    let starts: Vec<u64> = world.tables[0]
        .functions()
        .iter()
        .map(|range| range.start)
        .collect();
    for start in starts {
        let name = world.names[&start].clone();
        // Parts that compilers move out of a function are reached from there.
        if !templates.contains(&name.as_str()) && !name.contains(".cold") {
            world.explore(start, entry_state(&name));
        }
    }
    assert_eq!(world.unseen(&world.tables[0], &templates), [""; 0]);
    for name in [
        "nopal_entry",
        "nopal_exit_result_depth",
        "nopal_landing",
        "nopal_stub_jump",
        "nopal_prepare",
    ] {
        assert!(world.seen.contains_key(&symbols()[name]), "{name}");
    }
}

/// push %rbp; mov %rsp, %rbp; push %rbx; sub $40, %rsp; 200 NOPs; lea -8(%rbp), %rsp; pop %rbx; pop %rbp; ret
fn body() -> (Vec<u8>, Vec<(u16, FrameChange)>) {
    let mut code = vec![0x55, 0x48, 0x89, 0xe5, 0x53, 0x48, 0x83, 0xec, 40];
    code.resize(209, 0x90);
    code.extend([0x48, 0x8d, 0x65, 0xf8, 0x5b, 0x5d, 0xc3]);
    let rows = vec![
        (
            0,
            FrameChange::Cfa {
                register: RSP,
                offset: 8,
            },
        ),
        (
            1,
            FrameChange::Cfa {
                register: RSP,
                offset: 16,
            },
        ),
        (
            1,
            FrameChange::Saved {
                register: RBP,
                offset: -16,
            },
        ),
        (
            4,
            FrameChange::Cfa {
                register: RBP,
                offset: 16,
            },
        ),
        (
            5,
            FrameChange::Saved {
                register: RBX,
                offset: -24,
            },
        ),
        (214, FrameChange::Restored { register: RBX }),
        (215, FrameChange::Restored { register: RBP }),
        (
            215,
            FrameChange::Cfa {
                register: RSP,
                offset: 8,
            },
        ),
    ];
    (code, rows)
}

#[test]
fn blocks_are_described_at_every_instruction() {
    let mut world = World::new();
    let (code, rows) = body();
    let mut block = builder();
    let mut thunks = Vec::new();
    let write = |_: u64, out: &mut [u8]| {
        out.copy_from_slice(&code);
        Ok(())
    };
    for site in 1..=16 {
        let [arguments, ends, limits_depth] = [1, 2, 4].map(|bit| site & bit != 0);
        let recorder = Recorder {
            capture: Capture {
                arguments,
                ends,
                call_sites: site & 8 != 0,
            },
            limits_depth,
        };
        thunks.push(
            block
                .thunk(site, recorder, code.len(), &rows, write)
                .unwrap(),
        );
        let stub = [Stub::Jump, Stub::FindObject, Stub::SystemCall][site as usize % 3];
        thunks.push(block.hook(stub, code.len(), &rows, write).unwrap());
    }
    world.add_block(block.finish(&[]).unwrap());
    for thunk in &thunks {
        world.explore(thunk.entry, State::entered(8, false));
        world.explore(thunk.body, State::entered(8, false));
        if thunk.after_call.is_some() {
            let [_, distance] = thunk.switch(Switched::Counting);
            let counts = thunk.entry + 2 + u64::from(distance);
            world.explore(counts, State::entered(8, false));
        }
    }
    // A thunk that wraps nothing has code behind its call that never runs.
    let table = &world.tables[1];
    let dead = thunks.iter().filter(|thunk| {
        thunk
            .after_call
            .is_some_and(|at| !world.seen.contains_key(&at))
    });
    let dead: Vec<_> = dead.map(|thunk| thunk.entry..thunk.body).collect();
    assert_eq!(dead.len(), 8);
    let mut unseen = world.unseen(table, &[]);
    unseen.retain(|line| {
        let address = u64::from_str_radix(&line[2..line.find(' ').unwrap()], 16).unwrap();
        !dead.iter().any(|range| range.contains(&address))
    });
    assert_eq!(unseen, [""; 0]);
}

/// The rows of a body by themselves: offsets of any size and sign come out as they went in.
#[test]
fn rows_of_bodies_come_out_as_they_went_in() {
    let mut block = builder();
    let rows: Vec<(u16, FrameChange)> = (0..600)
        .step_by(3)
        .map(|at| {
            (
                at,
                FrameChange::Cfa {
                    register: at % 16,
                    offset: (i32::from(at) - 300) * 8 * i32::from(at % 7),
                },
            )
        })
        .collect();
    let recorder = Recorder {
        capture: Capture {
            arguments: false,
            ends: true,
            call_sites: false,
        },
        limits_depth: false,
    };
    let write = |_: u64, out: &mut [u8]| {
        out.fill(0x90);
        Ok(())
    };
    let thunk = block.thunk(1, recorder, 700, &rows, write).unwrap();
    let mut world = World::new();
    world.add_block(block.finish(&[]).unwrap());
    let table = &world.tables[1];
    for pair in rows.windows(2) {
        let (FrameChange::Cfa { register, offset }, next) = (pair[0].1, pair[1].0) else {
            unreachable!()
        };
        for at in pair[0].0..next {
            let row = table.row(thunk.body + u64::from(at)).unwrap();
            assert_eq!(row.cfa, (register, i64::from(offset)), "at {at}");
        }
    }
    assert!(table.row(thunk.body + 699).is_some());
    assert!(table.row(thunk.body + 700).is_none());
    assert!(table.row(thunk.entry - 1).is_none());
}
