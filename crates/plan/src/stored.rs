//! A plan as bytes: what all sites have of a kind stands together, each element with the same number of bytes, so that
//! nearly nothing is to be done to read it.

use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::{Body, Fixup, FrameChange, How, LONGEST_WINDOW, Part, Plan, Refused, Site};

/// What follows is, little-endian: the sites, and behind them the hooks; their fixups, maps, and rows; then bytes: of
/// each site those that are expected, the code of the body, and the name.
#[derive(Serialize, Deserialize)]
struct Head<'a> {
    identity: &'a str,
    refused: Vec<Refused>,
    sites: usize,
    hooks: usize,
    fixups: usize,
    map: usize,
    rows: usize,
}

/// Address, size, how many it has of bytes of code, of bytes of the name, of fixups, of places in the map, and of rows;
/// how it begins, its window, and whether it reads the return address.
const SITE: usize = 2 * 8 + 5 * 2 + 3;
/// Kind, offset, from, target.
const FIXUP: usize = 1 + 2 * 2 + 8;
const PLACE: usize = 1 + 2;
/// Offset, kind, register, offset.
const ROW: usize = 2 + 1 + 2 + 4;

pub(crate) fn encode(plan: &Plan) -> Result<Vec<u8>> {
    let sites = || plan.sites.iter().chain(&plan.hooks);
    let count = |of: fn(&Body) -> usize| sites().map(|site| of(&site.body)).sum();
    let head = Head {
        identity: &plan.identity,
        refused: plan.refused.clone(),
        sites: plan.sites.len(),
        hooks: plan.hooks.len(),
        fixups: count(|body| body.fixups.len()),
        map: count(|body| body.map.len()),
        rows: count(|body| body.rows.len()),
    };
    let mut out = postcard::to_stdvec(&head)?;
    for site in sites() {
        let body = &site.body;
        out.extend(
            [site.address, site.size]
                .map(u64::to_le_bytes)
                .as_flattened(),
        );
        let counts = [
            body.code.len(),
            site.name.len(),
            body.fixups.len(),
            body.map.len(),
            body.rows.len(),
        ];
        for count in counts {
            out.extend(u16::try_from(count)?.to_le_bytes());
        }
        let how = match site.how {
            How::Jump => 0,
            How::PatchableEntry => 1,
            How::Fentry => 2,
            How::XraySled => 3,
        };
        out.extend([how, site.window, site.reads_return_address.into()]);
    }
    for fixup in sites().flat_map(|site| &*site.body.fixups) {
        let (kind, offset, from, target) = match *fixup {
            Fixup::Relative {
                offset,
                from,
                target,
            } => (0, offset, from, target),
            Fixup::Absolute { offset, target } => (1, offset, 0, target),
        };
        out.push(kind);
        out.extend([offset, from].map(u16::to_le_bytes).as_flattened());
        out.extend(target.to_le_bytes());
    }
    for (from, to) in sites().flat_map(|site| &*site.body.map) {
        out.push(*from);
        out.extend(to.to_le_bytes());
    }
    for (at, change) in sites().flat_map(|site| &*site.body.rows) {
        let (kind, register, offset) = match *change {
            FrameChange::Cfa { register, offset } => (0, register, offset),
            FrameChange::Saved { register, offset } => (1, register, offset),
            FrameChange::Restored { register } => (2, register, 0),
        };
        out.extend(at.to_le_bytes());
        out.push(kind);
        out.extend(register.to_le_bytes());
        out.extend(offset.to_le_bytes());
    }
    for site in sites() {
        out.extend_from_slice(site.expected());
        out.extend_from_slice(&site.body.code);
        out.extend_from_slice(&site.name);
    }
    Ok(out)
}

pub(crate) fn decode(bytes: &[u8]) -> Result<Plan> {
    let (head, mut rest): (Head, _) = postcard::take_from_bytes(bytes)?;
    let count = head
        .sites
        .checked_add(head.hooks)
        .context("a plan too long")?;
    let stored = take::<SITE>(&mut rest, count)?;
    let fixups = take(&mut rest, head.fixups)?.iter().map(fixup);
    let mut fixups = Pool::of(fixups.collect::<Result<_>>()?);
    let mut map = Pool::of(take(&mut rest, head.map)?.iter().map(place).collect());
    let rows = take(&mut rest, head.rows)?.iter().map(row);
    let mut rows = Pool::of(rows.collect::<Result<_>>()?);
    let mut bytes = Pool::of(rest.to_vec());
    let mut sites = Vec::with_capacity(count);
    for stored in stored {
        let mut stored = Fields(stored);
        let (address, size) = (stored.u64(), stored.u64());
        let [code, name, fixup, place, row] = std::array::from_fn(|_| stored.u16());
        let how = match stored.u8() {
            0 => How::Jump,
            1 => How::PatchableEntry,
            2 => How::Fentry,
            3 => How::XraySled,
            _ => bail!("an unknown kind of site"),
        };
        let window = stored.u8();
        let length = usize::from(window);
        ensure!(length <= LONGEST_WINDOW, "an impossible window");
        let mut expected = [0; LONGEST_WINDOW];
        expected[..length].copy_from_slice(&bytes.next(window.into())?);
        sites.push(Site {
            address,
            size,
            window,
            expected,
            how,
            reads_return_address: stored.u8() != 0,
            body: Body {
                code: bytes.next(code)?,
                fixups: fixups.next(fixup)?,
                map: map.next(place)?,
                rows: rows.next(row)?,
            },
            name: bytes.next(name)?,
        });
    }
    let hooks = sites.split_off(head.sites);
    Ok(Plan {
        identity: head.identity.to_owned(),
        sites,
        refused: head.refused,
        hooks,
    })
}

fn fixup(stored: &[u8; FIXUP]) -> Result<Fixup> {
    let mut stored = Fields(stored);
    let kind = stored.u8();
    let (offset, from, target) = (stored.u16(), stored.u16(), stored.u64());
    Ok(match kind {
        0 => Fixup::Relative {
            offset,
            from,
            target,
        },
        1 => Fixup::Absolute { offset, target },
        _ => bail!("an unknown kind of fixup"),
    })
}

fn place(stored: &[u8; PLACE]) -> (u8, u16) {
    let mut stored = Fields(stored);
    (stored.u8(), stored.u16())
}

fn row(stored: &[u8; ROW]) -> Result<(u16, FrameChange)> {
    let mut stored = Fields(stored);
    let (at, kind, register) = (stored.u16(), stored.u8(), stored.u16());
    let offset = i32::from_le_bytes(stored.next());
    let change = match kind {
        0 => FrameChange::Cfa { register, offset },
        1 => FrameChange::Saved { register, offset },
        2 => FrameChange::Restored { register },
        _ => bail!("an unknown kind of row"),
    };
    Ok((at, change))
}

/// So many elements of `N` bytes from the start of `rest`.
fn take<'a, const N: usize>(rest: &mut &'a [u8], count: usize) -> Result<&'a [[u8; N]]> {
    let bytes = count.checked_mul(N).context("a plan too long")?;
    let (taken, behind) = rest.split_at_checked(bytes).context("a plan cut short")?;
    *rest = behind;
    Ok(taken.as_chunks().0)
}

/// The bytes of an element that are not read yet; as many are read as it has.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn next<const N: usize>(&mut self) -> [u8; N] {
        let (next, rest) = self
            .0
            .split_first_chunk()
            .expect("an element has its fields");
        self.0 = rest;
        *next
    }

    fn u8(&mut self) -> u8 {
        let [byte] = self.next();
        byte
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.next())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.next())
    }
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
        let Some(next) = start.checked_add(count.into()) else {
            bail!("a plan too long");
        };
        self.next = next;
        let Some(part) = Part::of(&self.all, start..self.next) else {
            bail!("a plan cut short");
        };
        Ok(part)
    }
}
