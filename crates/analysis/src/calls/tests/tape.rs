//! Records made by hand, and the calls that a call rebuilder makes of them.

use nopal_abi as abi;

use crate::calls::{CallRebuilder, Ending, Frame, Sink};

#[derive(Default)]
pub struct Tape {
    pub words: Vec<u64>,
    pub clock: u64,
}

impl Tape {
    pub fn event(&mut self, kind: u32, site: u32, slot: u64) -> &mut Tape {
        self.words
            .push(abi::Word::new(kind, site, slot, self.clock).0);
        self
    }

    pub fn entry(&mut self, site: u32, slot: u64) -> &mut Tape {
        self.event(abi::KIND_ENTRY, site, slot)
    }

    pub fn exit(&mut self, site: u32, slot: u64) -> &mut Tape {
        self.event(abi::KIND_EXIT, site, slot)
    }

    pub fn tail(&mut self, site: u32, slot: u64) -> &mut Tape {
        self.event(abi::KIND_TAIL, site, slot)
    }

    pub fn only(&mut self, site: u32, slot: u64) -> &mut Tape {
        self.event(abi::KIND_ONLY, site, slot)
    }

    pub fn resync(&mut self, reason: u32, slot: u64) -> &mut Tape {
        let resync = abi::Resync::new(self.clock, slot, 0, (0, 0), reason);
        self.words.extend(resync.words());
        self
    }

    pub fn jump(&mut self, slot: u64) -> &mut Tape {
        self.resync(abi::RESYNC_JUMP, slot)
    }

    pub fn word(&mut self, word: u64) -> &mut Tape {
        self.words.push(word);
        self
    }

    pub fn wait(&mut self, ticks: u64) -> &mut Tape {
        self.clock += ticks;
        self
    }

    /// The calls that a call rebuilder makes of the whole tape.
    pub fn describe(&self) -> String {
        let mut text = CallText::default();
        let mut rebuilder = CallRebuilder::default();
        run(&mut rebuilder, &self.words, false, &mut text);
        rebuilder.end(0, &mut text);
        text.text.trim_start().to_string()
    }
}

pub fn run<S: Sink>(rebuilder: &mut CallRebuilder, words: &[u64], lossy: bool, sink: &mut S) {
    rebuilder.begin_words(words, 0, lossy, sink);
    let mut records = abi::Cursor::new(words);
    while rebuilder.step(&mut records, sink) {}
}

/// `+site` at an entry, after a dot for each frame under it, and after `@` with the return address where it is known;
/// `-site:ticks/self` at an end, `?site:least` for a call without one, `!site:least/self` for a stray exit whose least
/// time is known, `~ticks` for a gap, `<` and `>` where the thread leaves frames and comes back to them.
#[derive(Default)]
pub struct CallText {
    pub text: String,
}

impl Sink for CallText {
    fn call_site(&mut self, return_address: u64) {
        self.text.push_str(&format!(" @{return_address:x}"));
    }

    fn enter(&mut self, frames: &[Frame], arguments: Option<[u64; 6]>) -> u32 {
        let [under @ .., frame] = frames else {
            return 0;
        };
        self.text
            .push_str(&format!(" {}+{}", ".".repeat(under.len()), frame.site()));
        if let Some(arguments) = arguments {
            self.text.push_str(&format!("{arguments:?}"));
        }
        0
    }

    fn leave(&mut self, frame: &Frame, ending: Ending, frames: &[Frame]) {
        let ticks = ending.clock - frame.clock;
        let dots = ".".repeat(frames.len());
        self.text.push_str(&format!(
            " {dots}-{}:{ticks}/{}",
            frame.site(),
            ticks - frame.child
        ));
        if let Some(result) = ending.result {
            self.text.push_str(&format!("={result}"));
        }
        if ending.unwound {
            self.text.push('u');
        }
    }

    fn lose(&mut self, frame: &Frame, clock: u64, _counted: bool) {
        let least = clock - frame.clock;
        self.text.push_str(&format!(" ?{}:{least}", frame.site()));
    }

    fn stray(&mut self, frame: &Frame, ending: Ending) {
        self.text.push_str(&format!(" !{}", frame.site()));
        let ticks = ending.clock - frame.clock;
        if ticks > 0 {
            self.text
                .push_str(&format!(":{ticks}/{}", ticks - frame.child));
        }
    }

    fn missing(&mut self, _clock: u64, ticks: u64) {
        self.text.push_str(&format!(" ~{ticks}"));
    }

    fn aside(&mut self, _frames: &[Frame]) {
        self.text.push_str(" <");
    }

    fn resume(&mut self, _frames: &[Frame]) {
        self.text.push_str(" >");
    }
}
