//! A plan as bytes: the elements of each kind are stored together, all with the same size, so that loading needs almost
//! no work, and most elements are read only when needed.

use std::ops::Range;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::body::{Name, Parts, part};
use crate::elements::{ABSOLUTE, FIXUP, Fields, PLACE, RESTORED, ROW, elements};
use crate::holes;
use crate::{Body, How, LONGEST_WINDOW, Plan, Reason, Refused, Site};

/// The rest is, in little-endian: the sites, followed by the hooks; their fixups, maps, and rows; then the bytes of
/// each site: the expected ones, the code of the body, and the name.
#[derive(Serialize, Deserialize)]
struct Head<'a> {
    identity: &'a str,
    finds_frames: bool,
    copies_stacks: bool,
    walks_frames: bool,
    refused: Vec<Refused>,
    sites: usize,
    hooks: usize,
    fixups: usize,
    map: usize,
    rows: usize,
}

/// Address and size; the numbers of code bytes, name bytes, fixups, map entries and rows; how it begins, its window,
/// flags, why only its entries are recorded: 0, or a reason's number plus 1; and how far its hole is, or 0.
const SITE: usize = 2 * 8 + 5 * 2 + 5;
const KEEPS_FRAME: u8 = 1;
const WALKS_FRAMES: u8 = 2;
pub(crate) fn encode(plan: &Plan) -> Result<Vec<u8>> {
    let sites = || plan.sites.iter().chain(&plan.hooks);
    let bodies = || sites().map(|site| &site.body);
    let head = Head {
        identity: &plan.identity,
        finds_frames: plan.finds_frames,
        copies_stacks: plan.copies_stacks,
        walks_frames: plan.walks_frames,
        refused: plan.refused.clone(),
        sites: plan.sites.len(),
        hooks: plan.hooks.len(),
        fixups: bodies().map(|body| body.fixups().len()).sum(),
        map: bodies().map(|body| body.map().len()).sum(),
        rows: bodies().map(|body| body.rows().len()).sum(),
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
            body.code().len(),
            site.name.len(),
            body.fixups().len(),
            body.map().len(),
            body.rows().len(),
        ];
        for count in counts {
            out.extend(u16::try_from(count)?.to_le_bytes());
        }
        let how = match site.how {
            How::Jump => 0,
            How::PatchableEntry => 1,
            How::Fentry => 2,
            How::XraySled => 3,
            How::ShortJump => 4,
        };
        let flags = [
            (site.keeps_frame, KEEPS_FRAME),
            (site.walks_frames, WALKS_FRAMES),
        ];
        let flags = flags.iter().filter(|(is_set, _)| *is_set);
        let flags = flags.fold(0, |flags, (_, flag)| flags | flag);
        let entries_only = match site.entries_only {
            Some(reason) => reason.number()? + 1,
            None => 0,
        };
        let reach = site.reach().unwrap_or(0);
        out.extend([how, site.window, flags, entries_only, reach as u8]);
    }
    for kind in 0..3 {
        bodies().for_each(|body| out.extend_from_slice(body.stored()[kind]));
    }
    for site in sites() {
        out.extend_from_slice(site.expected());
        out.extend_from_slice(site.body.code());
        out.extend_from_slice(&site.name);
    }
    Ok(out)
}

pub(crate) fn decode(bytes: Vec<u8>) -> Result<Plan> {
    // Parts are known by 32 bits.
    u32::try_from(bytes.len())?;
    let all = &Arc::new(bytes);
    let (head, rest): (Head, _) = postcard::take_from_bytes(all)?;
    let count = head
        .sites
        .checked_add(head.hooks)
        .context("a plan too long")?;
    let mut areas = Areas(all.len() - rest.len()..all.len());
    let stored = areas.take(count, SITE)?;
    let mut fixups = areas.take(head.fixups, FIXUP)?;
    let mut map = areas.take(head.map, PLACE)?;
    let mut rows = areas.take(head.rows, ROW)?;
    let mut text = Area(areas.0);
    let mut kinds_of_fixups = elements::<FIXUP>(&all[fixups.0.clone()]).map(|fixup| fixup[0]);
    let mut kinds_of_rows = elements::<ROW>(&all[rows.0.clone()]).map(|row| row[2]);
    ensure!(
        kinds_of_fixups.all(|kind| kind <= ABSOLUTE) && kinds_of_rows.all(|kind| kind <= RESTORED),
        "an unknown kind of fixup or row"
    );
    let mut sites = Vec::with_capacity(count);
    for stored in elements::<SITE>(&all[stored.0]) {
        let mut stored = Fields(stored);
        let (address, size) = (stored.u64(), stored.u64());
        let [code, name, fixup, place, row] = std::array::from_fn(|_| stored.u16().into());
        let how = match stored.u8() {
            0 => How::Jump,
            1 => How::PatchableEntry,
            2 => How::Fentry,
            3 => How::XraySled,
            4 => How::ShortJump,
            _ => bail!("an unknown kind of site"),
        };
        let window = stored.u8();
        ensure!(
            usize::from(window) <= LONGEST_WINDOW,
            "an impossible window"
        );
        let flags = stored.u8();
        let entries_only = match stored.u8().checked_sub(1) {
            Some(number) => Some(Reason::from_number(number)?),
            None => None,
        };
        let hole = match stored.u8() as i8 {
            0 => None,
            reach => Some(holes::reached(address, reach)),
        };
        ensure!(
            hole.is_some() == (how == How::ShortJump),
            "a short jump without a hole"
        );
        let expected_at = text.next(window.into(), 1)?;
        let mut expected = [0; LONGEST_WINDOW];
        expected[..window.into()].copy_from_slice(part(all, &expected_at));
        let parts = Parts {
            code: text.next(code, 1)?,
            fixups: fixups.next(fixup, FIXUP)?,
            map: map.next(place, PLACE)?,
            rows: rows.next(row, ROW)?,
        };
        sites.push(Site {
            address,
            size,
            window,
            expected,
            how,
            hole,
            keeps_frame: flags & KEEPS_FRAME != 0,
            walks_frames: flags & WALKS_FRAMES != 0,
            entries_only,
            body: Body::among(all, parts),
            name: Name::among(all, text.next(name, 1)?),
        });
    }
    let hooks = sites.split_off(head.sites);
    Ok(Plan {
        identity: head.identity.to_owned(),
        sites,
        refused: head.refused,
        hooks,
        finds_frames: head.finds_frames,
        copies_stacks: head.copies_stacks,
        walks_frames: head.walks_frames,
    })
}

/// The bytes of a plan that are in no area yet.
struct Areas(Range<usize>);

impl Areas {
    /// An area of this many elements.
    fn take(&mut self, count: usize, bytes: usize) -> Result<Area> {
        let bytes = count.checked_mul(bytes).context("a plan too long")?;
        ensure!(bytes <= self.0.len(), "a plan cut short");
        let start = self.0.start;
        self.0.start += bytes;
        Ok(Area(start..self.0.start))
    }
}

/// The elements of a kind that are not assigned to a site yet.
struct Area(Range<usize>);

impl Area {
    /// Takes this many elements.
    fn next(&mut self, count: usize, bytes: usize) -> Result<Range<u32>> {
        let start = self.0.start;
        let end = start + count * bytes;
        ensure!(end <= self.0.end, "a plan cut short");
        self.0.start = end;
        Ok(start as u32..end as u32)
    }
}
