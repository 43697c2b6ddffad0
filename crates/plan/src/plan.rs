use std::borrow::Cow;
use std::ops::Range;

use anyhow::Result;
use nopal_symbols::Image;
use serde::{Deserialize, Serialize};

use crate::body::Name;
use crate::engine;
use crate::holes;
use crate::judge::{self, Verdict};
use crate::{Body, JUMP, LONGEST_WINDOW, Reason};

/// All functions of a file: each is either a site or refused. All by address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub identity: String,
    pub sites: Vec<Site>,
    pub refused: Vec<Refused>,
    /// Sites of functions that are refused by name, for callers that know these functions.
    pub hooks: Vec<Site>,
    /// A runtime finds the frames of this file's functions by a table of return addresses.
    pub finds_frames: bool,
    /// It has functions that copy stacks away and back, where other calls have been meanwhile, or contains V8, which walks
    /// them.
    pub copies_stacks: bool,
    /// It has functions that follow frame pointers to their callers.
    pub walks_frames: bool,
}

/// A function whose first bytes may become a jump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    pub address: u64,
    pub size: u64,
    /// The number of displaced bytes.
    pub window: u8,
    /// The bytes in the file, `window` of them.
    pub expected: [u8; LONGEST_WINDOW],
    pub how: How,
    /// The address of the padding that holds the jump to the thunk, where the function has room for a short one only.
    pub hole: Option<u64>,
    /// The function links its frame to its caller's by the frame pointer.
    pub keeps_frame: bool,
    /// The function follows such links to its callers.
    pub walks_frames: bool,
    /// The reason why its return address must stay in its place, so that only its entries are recorded.
    pub entries_only: Option<Reason>,
    pub body: Body,
    /// The function's name, not demangled; none within a function.
    pub(crate) name: Name,
}

/// The reason why a function's return address must stay in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntriesOnly {
    FoundByTable,
    /// Because of the function's own code.
    Judged(Reason),
    FrameIsWalked,
}

impl EntriesOnly {
    /// One line, for people.
    pub fn text(self) -> String {
        match self {
            EntriesOnly::FoundByTable => {
                "its runtime finds its frames by a table of return addresses".to_owned()
            }
            EntriesOnly::Judged(reason) => reason.text().to_string(),
            EntriesOnly::FrameIsWalked => {
                "keeps a frame pointer, and a function of the program follows frame pointers to return addresses"
                    .to_owned()
            }
        }
    }
}

/// The kind of a window. All kinds are patched in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Ordinary instructions.
    Jump,
    /// NOPs for this purpose, as of `-fpatchable-function-entry` or `-mnop-mcount`.
    PatchableEntry,
    /// A call of `__fentry__`.
    Fentry,
    /// A jump over NOPs, as of `-fxray-instrument`.
    XraySled,
    /// Room for a short jump only.
    ShortJump,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    pub address: u64,
    pub size: u64,
    pub reason: Reason,
}

impl Plan {
    /// The site of the function at an address, or why it has none.
    pub fn site(&self, address: u64) -> Result<&Site, String> {
        let found = self
            .sites
            .binary_search_by_key(&address, |site| site.address);
        found.map(|index| &self.sites[index]).map_err(|_| {
            let refused = self
                .refused
                .binary_search_by_key(&address, |refused| refused.address);
            match refused {
                Ok(index) => self.refused[index].reason.text().to_string(),
                Err(_) => "no function begins there".to_owned(),
            }
        })
    }

    pub fn make(image: &Image) -> Result<Plan> {
        let functions = image.functions()?;
        let judged = judge::all(image, functions)?;
        let mut plan = Plan {
            identity: image.identity(),
            sites: Vec::new(),
            refused: Vec::new(),
            hooks: Vec::new(),
            finds_frames: judged.finds_frames,
            copies_stacks: judged.copies_stacks || engine::has_v8(image),
            walks_frames: judged.walks_frames,
        };
        for (function, verdict) in functions.iter().zip(judged.verdicts) {
            let refused = |reason| Refused {
                address: function.address,
                size: function.size,
                reason,
            };
            match verdict {
                Verdict::Possible(site) => plan.sites.push(site),
                Verdict::Refused(reason) => plan.refused.push(refused(reason)),
                Verdict::Special(reason, site) => {
                    plan.refused.push(refused(reason));
                    plan.hooks.push(site);
                }
            }
        }
        Ok(plan)
    }

    /// The reason why calls of a function may not be wrapped, if there is one; `walked`: the process has functions that
    /// follow frame pointers.
    pub fn entries_only(&self, site: &Site, walked: bool) -> Option<EntriesOnly> {
        if self.finds_frames {
            Some(EntriesOnly::FoundByTable)
        } else if let Some(reason) = site.entries_only {
            Some(EntriesOnly::Judged(reason))
        } else if walked && site.keeps_frame {
            Some(EntriesOnly::FrameIsWalked)
        } else {
            None
        }
    }

    /// The site at a function's address, even if it is refused by name.
    pub fn hook(&self, address: u64) -> Result<&Site, Option<Reason>> {
        let find = |sites: &[Site]| {
            sites
                .binary_search_by_key(&address, |site| site.address)
                .ok()
        };
        if let Some(index) = find(&self.sites) {
            return Ok(&self.sites[index]);
        }
        if let Some(index) = find(&self.hooks) {
            return Ok(&self.hooks[index]);
        }
        let refused = self
            .refused
            .binary_search_by_key(&address, |refused| refused.address)
            .ok();
        Err(refused.map(|index| self.refused[index].reason))
    }
}

impl Site {
    /// The name of the function that begins here, not demangled.
    pub fn name(&self) -> Cow<'_, str> {
        // Much faster than looking for bytes to replace.
        match str::from_utf8(&self.name) {
            Ok(name) => name.into(),
            Err(_) => String::from_utf8_lossy(&self.name),
        }
    }

    /// Whether its jumps need some of these bytes.
    pub fn needs(&self, bytes: &Range<u64>) -> bool {
        let overlaps = |start: u64, length: u64| {
            start < bytes.end && bytes.start < start.saturating_add(length)
        };
        overlaps(self.address, self.window.into())
            || self.hole.is_some_and(|hole| overlaps(hole, JUMP as u64))
    }

    /// The distance of the short jump to the hole, if it has one.
    pub fn reach(&self) -> Option<i8> {
        self.hole.and_then(|hole| holes::reach(self.address, hole))
    }

    pub fn expected(&self) -> &[u8] {
        &self.expected[..usize::from(self.window).min(LONGEST_WINDOW)]
    }
}
