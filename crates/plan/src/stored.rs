//! A plan as bytes: what all sites have of a kind stands together, and is read at once.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::{Body, Fixup, FrameChange, How, LONGEST_WINDOW, Part, Plan, Refused, Site};

/// The bytes of the sites are, in their order, those that are expected and then the code of the body.
#[derive(Serialize, Deserialize)]
struct Stored<'a> {
    identity: &'a str,
    refused: Vec<Refused>,
    /// The sites, and behind them the hooks.
    sites: Vec<StoredSite>,
    hooks: usize,
    bytes: &'a [u8],
    fixups: Vec<Fixup>,
    map: Vec<(u8, u16)>,
    rows: Vec<(u16, FrameChange)>,
}

/// A site, with how many of the following it has of each kind.
#[derive(Serialize, Deserialize)]
struct StoredSite {
    address: u64,
    size: u64,
    how: How,
    reads_return_address: bool,
    window: u8,
    code: u16,
    fixups: u16,
    map: u16,
    rows: u16,
}

pub(crate) fn encode(plan: &Plan) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut stored = Stored {
        identity: &plan.identity,
        refused: plan.refused.clone(),
        sites: Vec::with_capacity(plan.sites.len() + plan.hooks.len()),
        hooks: plan.hooks.len(),
        bytes: &[],
        fixups: Vec::new(),
        map: Vec::new(),
        rows: Vec::new(),
    };
    for site in plan.sites.iter().chain(&plan.hooks) {
        let body = &site.body;
        stored.sites.push(StoredSite {
            address: site.address,
            size: site.size,
            how: site.how,
            reads_return_address: site.reads_return_address,
            window: site.window,
            code: u16::try_from(body.code.len())?,
            fixups: u16::try_from(body.fixups.len())?,
            map: u16::try_from(body.map.len())?,
            rows: u16::try_from(body.rows.len())?,
        });
        bytes.extend_from_slice(site.expected());
        bytes.extend_from_slice(&body.code);
        stored.fixups.extend_from_slice(&body.fixups);
        stored.map.extend_from_slice(&body.map);
        stored.rows.extend_from_slice(&body.rows);
    }
    stored.bytes = &bytes;
    Ok(postcard::to_stdvec(&stored)?)
}

pub(crate) fn decode(bytes: &[u8]) -> Result<Plan> {
    let stored: Stored = postcard::from_bytes(bytes)?;
    let mut bytes = Pool::of(stored.bytes.to_vec());
    let mut fixups = Pool::of(stored.fixups);
    let mut map = Pool::of(stored.map);
    let mut rows = Pool::of(stored.rows);
    let mut sites = Vec::with_capacity(stored.sites.len());
    for site in &stored.sites {
        let window = usize::from(site.window);
        ensure!(window <= LONGEST_WINDOW, "an impossible window");
        let mut expected = [0; LONGEST_WINDOW];
        expected[..window].copy_from_slice(&bytes.next(site.window.into())?);
        sites.push(Site {
            address: site.address,
            size: site.size,
            window: site.window,
            expected,
            how: site.how,
            reads_return_address: site.reads_return_address,
            body: Body {
                code: bytes.next(site.code)?,
                fixups: fixups.next(site.fixups)?,
                map: map.next(site.map)?,
                rows: rows.next(site.rows)?,
            },
        });
    }
    let first_hook = sites.len().checked_sub(stored.hooks);
    let hooks = sites.split_off(first_hook.context("fewer sites than hooks")?);
    Ok(Plan {
        identity: stored.identity.to_owned(),
        sites,
        refused: stored.refused,
        hooks,
    })
}

/// What all sites have of a kind, taken from its start on.
struct Pool<T> {
    all: Arc<Vec<T>>,
    next: u32,
}

impl<T> Pool<T> {
    fn of(all: Vec<T>) -> Pool<T> {
        let all = Arc::new(all);
        Pool { all, next: 0 }
    }

    fn next(&mut self, count: u16) -> Result<Part<T>> {
        let start = self.next;
        self.next = start.checked_add(count.into()).context("a plan too long")?;
        Part::of(&self.all, start..self.next).context("a plan cut short")
    }
}
