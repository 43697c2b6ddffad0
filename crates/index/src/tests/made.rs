//! Random small traces.

use nopal_abi as abi;
use nopal_trace::synthetic::{Random, Recorder, clock};
use nopal_trace::{Field, FieldKind, Note, Session, Trace, Writer, event_number};
use tempfile::TempDir;

const TOP: u64 = 0x7ffd_0000_8008;
const BEGIN: u64 = 0x1_ffff_f000;

/// So many seeds and those that have once failed, or the one that a failed test has printed.
pub fn seeds(number: u64, more: &[u64]) -> Vec<u64> {
    match std::env::var("NOPAL_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
    {
        Some(seed) => vec![seed],
        None => (1..number + 1).chain(more.iter().copied()).collect(),
    }
}

struct Thread {
    recorder: Recorder,
    random: Random,
    clock: u64,
    /// Sites of the wrapped calls on the present stack, and on the others.
    stack: Vec<u32>,
    stacks: [Vec<u32>; 4],
    /// The number of the present stack.
    on: usize,
    /// Calls that are open since before a gap.
    hidden: Vec<u32>,
    /// The present limit of its depth.
    most: usize,
    is_only: bool,
    is_wild: bool,
}

impl Thread {
    fn slot(&self, depth: usize) -> u64 {
        TOP - 0x40 * depth as u64 - 0x20_0000 * self.on as u64
    }

    /// Goes to another stack.
    fn switch(&mut self) {
        std::mem::swap(&mut self.stacks[self.on], &mut self.stack);
        self.on = self.random.below(4) as usize;
        std::mem::swap(&mut self.stacks[self.on], &mut self.stack);
        let top = self.stack.len();
        if top > 0 && self.random.below(2) == 0 {
            let slot = self.slot(top - 1);
            self.recorder.resync(self.clock, slot, abi::RESYNC_STACK);
            let site = self.stack.pop().unwrap_or_default();
            self.recorder.exit(self.clock, site, slot);
        } else {
            let (site, slot) = (1 + self.random.below(5) as u32, self.slot(top));
            self.recorder.resync(self.clock, slot, abi::RESYNC_STACK);
            self.recorder.entry(self.clock, site, slot);
            self.stack.push(site);
        }
    }

    fn step(&mut self) {
        self.clock += match self.random.below(40) {
            0 => 1 << 10,
            1 => 1 << 33,
            2..6 => 0,
            _ => self.random.below(50),
        };
        if self.is_wild && self.random.below(40) == 0 {
            self.most = self.random.below(16) as usize;
        }
        let site = 1 + self.random.below(5) as u32;
        let (clock, top) = (self.clock, self.stack.len());
        match self.random.below(60) {
            0 if self.is_wild && top > 1 => {
                // A jump out of some calls.
                self.stack.truncate(self.random.below(top as u64) as usize);
                let slot = self.slot(self.stack.len());
                self.recorder.resync(clock, slot, abi::RESYNC_JUMP);
                self.recorder.entry(clock, site, slot);
                self.stack.push(site);
            }
            1 if self.is_wild => self.recorder.exit(clock, site, self.slot(top)),
            2 if self.is_wild => {
                // To another stack and back.
                let stack = self.random.below(2) as usize;
                let far = self.slot(0x10_0000 + stack * 0x1000);
                self.recorder.resync(clock, far, abi::RESYNC_STACK);
                self.recorder.entry(clock, site, far);
                self.clock += self.random.below(30);
                let slot = self.slot(top);
                self.recorder.resync(self.clock, slot, abi::RESYNC_JUMP);
                self.recorder.entry(self.clock, site, slot);
                self.stack.push(site);
            }
            // Often for some time, and then not.
            3 if self.is_wild && self.clock >> 8 & 1 == 0 => self.switch(),
            4..12 if self.is_wild && self.clock >> 9 & 3 == 0 => self.switch(),
            3 => {
                self.recorder.lose(1 + self.random.below(9));
                self.hidden = std::mem::take(&mut self.stack);
                self.stacks = Default::default();
            }
            4..8 => self.recorder.end_chunk(),
            8..12 if top > 0 && !self.is_only => {
                let slot = self.slot(top - 1);
                self.recorder.record(clock, abi::KIND_TAIL, site, slot, &[]);
            }
            12..16 => {
                let slot = self.slot(top);
                self.recorder.record(clock, abi::KIND_ONLY, site, slot, &[]);
                self.is_only = true;
                return;
            }
            16..20 if top < self.most => {
                let slot = self.slot(top);
                self.recorder
                    .record(clock, abi::KIND_ENTRY_ARGS, site, slot, &[1, 2, 3, 4, 5, 6]);
                self.stack.push(site);
            }
            20..40 if top < self.most => {
                self.recorder.entry(clock, site, self.slot(top));
                self.stack.push(site);
            }
            _ => {
                if let Some(site) = self.stack.pop() {
                    self.recorder.exit(clock, site, self.slot(top - 1));
                } else if self.is_wild
                    && let Some(site) = self.hidden.pop()
                {
                    self.recorder
                        .exit(clock, site, TOP + 0x40 * self.hidden.len() as u64);
                }
            }
        }
        self.is_only = false;
    }
}

/// A thread's markers, and its calls in the kernel, which are in packets of their own.
struct Inside {
    kernel: Recorder,
    random: Random,
    /// Sites of the open calls.
    stack: Vec<u32>,
    marker: u32,
}

impl Inside {
    fn step(&mut self, thread: &mut Thread) {
        match self.random.below(16) {
            0 => {
                let value = self.random.below(100);
                let slot = thread.slot(thread.stack.len());
                thread.clock += self.random.below(20);
                let recorder = &mut thread.recorder;
                recorder.marker(thread.clock, self.marker, &[value], slot);
            }
            1 => {
                self.work(thread);
                // In the program no call is open in the kernel.
                self.stack.clear();
            }
            _ => {}
        }
    }

    fn work(&mut self, thread: &mut Thread) {
        for _ in 0..self.random.below(8) {
            thread.clock += self.random.below(20);
            let (clock, slot) = (thread.clock, TOP - 0x40 * self.stack.len() as u64);
            match self.random.below(20) {
                0 => self.kernel.lose(1),
                1 => self
                    .kernel
                    .exit(clock, 6 + self.random.below(3) as u32, slot),
                2 => self.kernel.marker(clock, self.marker, &[100], slot),
                3..12 => {
                    let site = 6 + self.random.below(3) as u32;
                    self.kernel.entry(clock, site, slot);
                    self.stack.push(site);
                }
                _ => {
                    if let Some(site) = self.stack.pop() {
                        self.kernel.exit(clock, site, slot + 0x40);
                    }
                }
            }
        }
        thread.clock += self.random.below(20);
    }
}

/// A trace of two threads with packets of some records; with jumps, other stacks and exits without entries, if `is_wild`.
pub fn made(seed: u64, is_wild: bool) -> (TempDir, Trace) {
    made_with(seed, is_wild, false)
}

/// The same; with markers and functions of the kernel inside calls, if `has_inside`.
pub fn made_with(seed: u64, is_wild: bool, has_inside: bool) -> (TempDir, Trace) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace");
    let mut writer = Writer::create(&path, Session::default()).unwrap();
    writer.note(&clock(BEGIN)).unwrap();
    let sites = (1..6).map(|site| (site, u64::from(site) * 64, 64, format!("function_{site}")));
    let image = Note::Image {
        image: 1,
        path: "/made".into(),
        identity: "00".into(),
    };
    writer.note(&image).unwrap();
    writer
        .note(&Note::Sites {
            image: 1,
            sites: sites.collect(),
        })
        .unwrap();
    let fields = vec![Field {
        name: "value".into(),
        kind: FieldKind::Signed(64),
        labels: Vec::new(),
    }];
    let marker = event_number(32, &fields);
    if has_inside {
        let kernel = Note::Image {
            image: 2,
            path: "kernel".into(),
            identity: String::new(),
        };
        let sites = (6..9).map(|site| (site, u64::from(site) * 64, 64, format!("kernel_{site}")));
        let sites = Note::Sites {
            image: 2,
            sites: sites.collect(),
        };
        let marker = Note::Marker {
            event: marker,
            image: 1,
            name: "marker".into(),
            format: String::new(),
            fields,
            file: String::new(),
            line: 0,
            tracepoint: false,
        };
        for note in [kernel, sites, marker] {
            writer.note(&note).unwrap();
        }
    }
    let mut end = BEGIN;
    for number in 0..2 {
        let mut thread = Thread {
            recorder: Recorder::new(100, 100 + number, BEGIN),
            random: Random::new(seed << 1 | u64::from(number)),
            clock: BEGIN,
            stack: Vec::new(),
            stacks: Default::default(),
            on: 0,
            hidden: Vec::new(),
            most: 15,
            is_only: false,
            is_wild,
        };
        let mut inside = has_inside.then(|| Inside {
            kernel: Recorder::new(100, 100 + number, BEGIN + 1),
            random: Random::new(!(seed << 1 | u64::from(number))),
            stack: Vec::new(),
            marker,
        });
        for _ in 0..3200 {
            thread.step();
            if let Some(inside) = &mut inside {
                inside.step(&mut thread);
            }
        }
        if let Some(inside) = inside {
            let of_kernel = Note::Thread {
                process: 100,
                thread: 100 + number,
                begin: BEGIN + 1,
                name: "kernel".into(),
                kernel: true,
            };
            writer.note(&of_kernel).unwrap();
            inside.kernel.finish(&mut writer).unwrap();
        }
        thread.recorder.finish(&mut writer).unwrap();
        end = end.max(thread.clock);
    }
    writer.note(&clock(end)).unwrap();
    let why = String::new();
    writer
        .note(&Note::End {
            counter: end,
            complete: true,
            why,
        })
        .unwrap();
    writer.sync_metadata().unwrap();
    drop(writer);
    let trace = Trace::open(&path).unwrap();
    (directory, trace)
}
