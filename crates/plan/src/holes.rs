//! Functions without room for a jump to a thunk: a short jump at the function's start leads to bytes within its reach,
//! the *hole*, which holds the jump to the thunk. A hole is padding, or lies in the window of another function, the
//! *host*, behind the jump there: nothing runs these bytes while the host's jump is in place.

use std::ops::Range;

use gimli::UnwindContext;
use nopal_symbols::Function;

use crate::arch::{self, SHORT_JUMP, Start};
use crate::judge::{Judge, Verdict};
use crate::{How, JUMP, LONGEST_WINDOW, Reason, Site};

/// The distance of a short jump from a function's start to its hole, if one reaches it.
pub(crate) fn reach(function: u64, hole: u64) -> Option<i8> {
    let end = function.wrapping_add(SHORT_JUMP as u64);
    i8::try_from(hole.wrapping_sub(end) as i64).ok()
}

/// The opposite of [`reach`].
pub(crate) fn reached(function: u64, reach: i8) -> u64 {
    function
        .wrapping_add(SHORT_JUMP as u64)
        .wrapping_add_signed(reach.into())
}

fn short(site: Site, hole: u64) -> Verdict {
    Verdict::Possible(Site {
        how: How::ShortJump,
        hole: Some(hole),
        ..site
    })
}

impl Judge<'_> {
    /// Gives holes to the functions that have room for a short jump only. The verdicts are those of all `functions`.
    pub(crate) fn use_holes(&self, functions: &[Function], verdicts: &mut [Verdict]) {
        let mut context = UnwindContext::new();
        // In the order of addresses, so the lowest hole that is left is the best for each.
        let mut used = 0;
        let mut left = Vec::new();
        for (index, function) in functions.iter().enumerate() {
            let no_room = matches!(
                verdicts[index],
                Verdict::Refused(Reason::TooShort | Reason::EnteredInside)
            );
            if !no_room {
                continue;
            }
            let frame = arch::frame(self.code, function);
            let Ok(site) = self.site(&mut context, function, frame, SHORT_JUMP) else {
                continue;
            };
            match self.hole(function.address, functions, verdicts, used) {
                Some(hole) => {
                    used = hole + JUMP as u64;
                    verdicts[index] = short(site, hole);
                }
                None => left.push((index, site)),
            }
        }
        // Padding is better: there, a function's jump does not depend on another's.
        let mut unused = 0;
        for (index, site) in left {
            let found = self.host(&mut context, site.address, functions, verdicts, unused);
            if let Some((host, widened, hole)) = found {
                unused = host + 1;
                verdicts[host] = Verdict::Possible(widened);
                verdicts[index] = short(site, hole);
            }
        }
    }

    /// The first function, from number `unused` on, in whose window a short jump at `from` reaches a hole: its number,
    /// its site with a window that is wide enough, and the hole.
    fn host(
        &self,
        context: &mut UnwindContext<usize>,
        from: u64,
        functions: &[Function],
        verdicts: &[Verdict],
        unused: usize,
    ) -> Option<(usize, Site, u64)> {
        let (lowest, highest) = (reached(from, i8::MIN), reached(from, i8::MAX));
        let least = lowest.saturating_sub(LONGEST_WINDOW as u64);
        let first = functions.partition_point(|function| function.address < least);
        let near = functions.iter().enumerate().skip(first.max(unused));
        let mut near = near.take_while(|(_, function)| function.address <= highest);
        near.find_map(|(index, function)| {
            let Verdict::Possible(Site {
                how: How::Jump,
                hole: None,
                ..
            }) = verdicts[index]
            else {
                return None;
            };
            let hole = lowest.max(function.address.checked_add(JUMP as u64)?);
            let reached = hole <= highest;
            let site = reached.then(|| self.widened(context, function, hole));
            Some((index, site??, hole))
        })
    }

    /// The site of a function with a hole in its window, if that is possible.
    fn widened(
        &self,
        context: &mut UnwindContext<usize>,
        function: &Function,
        hole: u64,
    ) -> Option<Site> {
        let start = function.address;
        let least = usize::try_from(hole - start).ok()? + JUMP;
        let window = self.window(start, function.size, least).ok()?;
        let is_own = window.end() <= start.saturating_add(function.size);
        // A NOP may be a marker, which becomes a jump. In a system call, a thread may wait for long.
        if !is_own || window.has_nops() || window.waits() {
            return None;
        }
        // The more bytes, the more computed jumps may lead into them.
        if self.function_code(function).unknown_jump().is_some() {
            return None;
        }
        // A signal may interrupt a thread at the hole. There, unwinders take it for one in this function, and must find
        // its caller by the rules that are valid at a function's start.
        let rules = self.frames.rules(context, start, hole - start).ok()?;
        if rules.iter().any(|(at, _)| *at > 0) || self.frames.has_exceptions(start) {
            return None;
        }
        let frame = arch::frame(self.code, function);
        self.site(context, function, frame, least).ok()
    }

    /// The lowest hole that a short jump at `from` reaches, not below `used`.
    fn hole(
        &self,
        from: u64,
        functions: &[Function],
        verdicts: &[Verdict],
        used: u64,
    ) -> Option<u64> {
        let (lowest, highest) = (reached(from, i8::MIN), reached(from, i8::MAX));
        let lowest = lowest.max(used);
        let after = self.starts.partition_point(|start| start.address <= lowest);
        let pairs = self.starts[after.saturating_sub(1)..].windows(2);
        pairs
            .take_while(|pair| pair[0].address <= highest)
            .find_map(|pair| {
                let padding = self.padding(&pair[0], pair[1].address, functions, verdicts)?;
                let hole = padding.start.max(lowest);
                let fits = hole <= highest && hole.checked_add(JUMP as u64)? <= padding.end;
                fits.then_some(hole)
            })
    }

    /// The bytes between a function and the next one that nothing runs, reads or needs.
    fn padding(
        &self,
        function: &Start,
        next: u64,
        functions: &[Function],
        verdicts: &[Verdict],
    ) -> Option<Range<u64>> {
        let &Start { address, end, .. } = function;
        let range = self.code.range(address)?;
        if end <= address || end >= next || next > range.end() {
            return None;
        }
        let bytes = |part: Range<u64>| {
            &range.bytes[(part.start - range.address) as usize..(part.end - range.address) as usize]
        };
        if !arch::is_padding(bytes(end..next)) || !arch::ends_flow(bytes(address..end)) {
            return None;
        }
        let first = self.code.number(end)?;
        let mut numbers = first..first + (next - end) as usize;
        if numbers.any(|number| self.flow.reached.get(number))
            || self.frames.cover(end)
            || self.frames.cover(next - 1)
            || self.refuse_written(end..next).is_err()
        {
            return None;
        }
        // The function's own jump may need some of them.
        let own = functions.binary_search_by_key(&address, |function| function.address);
        let needed = match own.ok().map(|index| &verdicts[index]) {
            Some(Verdict::Possible(site)) => address + u64::from(site.window),
            // nopal's own hooks, and detours at them.
            Some(Verdict::Special(..)) => return None,
            Some(Verdict::Refused(_)) | None => end,
        };
        Some(needed.max(end)..next)
    }
}
