//! Blocks of thunks that are alike in several processes: those that were forked from one have their files, and so nopal's
//! code, at the same addresses.

use crate::memory::arena::Arena;
use crate::patch::change::Change;
use crate::sites::chosen::Chosen;
use crate::sites::generate::{Made, Maker};
use anyhow::Result;
use nopal_abi::Capture;
use nopal_agent::Stub;
use std::collections::HashMap;

/// The last block of each file, while many processes are attached to.
#[derive(Default)]
pub struct Blocks(Option<HashMap<u32, Like>>);

impl Blocks {
    /// From now on blocks are kept.
    pub fn keep(&mut self) {
        self.0.get_or_insert_default();
    }

    /// From now on none are.
    pub fn forget(&mut self) {
        self.0 = None;
    }

    /// A block that has the bytes which `maker` would make at the next place of `arena`.
    pub fn like(&self, maker: &Maker, arena: &Arena) -> Option<&Like> {
        let like = self.0.as_ref()?.get(&maker.module.file.index)?;
        (Some(&like.parts) == Parts::of(maker, arena).as_ref()).then_some(like)
    }

    /// Makes a block at the next place of `arena`: see [`Maker::block`].
    pub fn make(
        &mut self,
        maker: &Maker,
        arena: &mut Arena,
        numbers: &[u32],
    ) -> Result<(Made, Vec<Change>)> {
        let kept = self.0.as_mut();
        let Some((kept, parts)) = kept.zip(Parts::of(maker, arena)) else {
            return maker.block(arena, numbers, |_| ());
        };
        let mut bytes = Vec::with_capacity(maker.chosen.bound() as usize);
        let made = maker.block(arena, numbers, |more| bytes.extend_from_slice(more))?;
        let like = Like {
            parts,
            bytes,
            made: made.clone(),
        };
        kept.insert(maker.module.file.index, like);
        Ok(made)
    }
}

/// A block, and what it was made of.
pub struct Like {
    parts: Parts,
    bytes: Vec<u8>,
    made: (Made, Vec<Change>),
}

impl Like {
    /// The same at the next place of `arena`.
    pub fn again(&self, arena: &mut Arena) -> Result<(Made, Vec<Change>)> {
        arena.put(&self.bytes)?;
        Ok(self.made.clone())
    }
}

/// All that decides a block's bytes, besides its file and the session's settings: sites have the same numbers in all
/// processes.
#[derive(PartialEq)]
struct Parts {
    at: u64,
    arena: u64,
    base: u64,
    mirror: i64,
    counted: u64,
    switches: [bool; 3],
    sites: Vec<(u64, Capture)>,
    hooks: Vec<(u64, Stub)>,
    markers: Vec<Change>,
    marker_words: Vec<Change>,
}

impl Parts {
    /// `None`: it has probes, which come and go.
    fn of(maker: &Maker, arena: &Arena) -> Option<Parts> {
        let Maker {
            module,
            mirror,
            counted,
            entry_only,
            walked,
            on,
            ..
        } = *maker;
        let Chosen {
            sites,
            hooks,
            probes,
            markers,
            marker_words,
            ..
        } = maker.chosen;
        let sites = sites.iter().map(|(site, capture)| (site.address, *capture));
        let hooks = hooks.iter().map(|(site, stub)| (site.address, *stub));
        probes.is_empty().then(|| Parts {
            at: arena.next(),
            arena: arena.base,
            base: module.base,
            mirror,
            counted,
            switches: [entry_only, walked, on],
            sites: sites.collect(),
            hooks: hooks.collect(),
            markers: markers.clone(),
            marker_words: marker_words.clone(),
        })
    }
}
