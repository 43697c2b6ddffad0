//! Functions without room for a jump to a thunk: a short jump at the function's start leads to padding within its reach,
//! the *hole*, which holds the jump to the thunk.

use std::ops::Range;

use gimli::UnwindContext;
use nopal_symbols::Function;

use crate::arch::{self, SHORT_JUMP, Start};
use crate::judge::{Judge, Verdict, page_of};
use crate::{How, JUMP, Reason};

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

impl Judge<'_> {
    /// Gives holes to the functions that have room for a short jump only. The verdicts are those of all `functions`.
    pub(crate) fn use_padding(&self, functions: &[Function], verdicts: &mut [Verdict]) {
        let mut context = UnwindContext::new();
        // In the order of addresses, so the lowest hole that is left is the best for each.
        let mut used = 0;
        for (index, function) in functions.iter().enumerate() {
            let no_room = matches!(
                verdicts[index],
                Verdict::Refused(Reason::TooShort | Reason::TwoPages | Reason::EnteredInside)
            );
            if !no_room {
                continue;
            }
            let frame = arch::frame(self.code, function);
            let site = self.site(&mut context, function, frame, SHORT_JUMP);
            let hole = || self.hole(function.address, functions, verdicts, used);
            if let Ok(mut site) = site
                && let Some(hole) = hole()
            {
                used = hole + JUMP as u64;
                site.how = How::ShortJump;
                site.hole = Some(hole);
                verdicts[index] = Verdict::Possible(site);
            }
        }
    }

    /// The lowest hole that a short jump at `from` reaches, on its page, not below `used`.
    fn hole(
        &self,
        from: u64,
        functions: &[Function],
        verdicts: &[Verdict],
        used: u64,
    ) -> Option<u64> {
        let (lowest, highest) = (reached(from, i8::MIN), reached(from, i8::MAX));
        let page = page_of(from);
        let lowest = lowest.max(used).max(page.start);
        let highest = highest.min(page.end - JUMP as u64);
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
        if end <= address || address >= next || next > range.end() {
            return None;
        }
        let bytes = |part: Range<u64>| {
            &range.bytes[(part.start - range.address) as usize..(part.end - range.address) as usize]
        };
        // A function of unknown size reaches to the next one. If it had data, these could look like padding.
        let inner = address + 1..next;
        let end = match end < next {
            true => end,
            false if self.is_read(inner.clone()) || self.is_taken(inner) => return None,
            false => address + arch::code_length(bytes(address..next)) as u64,
        };
        if end == next {
            return None;
        }
        if !arch::is_padding(bytes(end..next)) || !arch::ends_flow(bytes(address..end)) {
            return None;
        }
        let first = self.code.number(end)?;
        let mut numbers = first..first + (next - end) as usize;
        if numbers.any(|number| self.flow.reached.get(number))
            || self.frames.cover(end)
            || self.frames.cover(next - 1)
            || self.is_read(end..next)
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
