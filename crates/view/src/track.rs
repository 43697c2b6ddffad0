//! Spans of time in lanes: the threads that processors run, and the cases of tracers.

/// A span of time in a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    pub begin: u64,
    pub end: u64,
    /// The place of its name in the track.
    pub label: u32,
    /// A number that leads to further facts, such as the place of a case.
    pub detail: u32,
}

#[derive(Debug, Default)]
pub struct Lane {
    pub name: String,
    /// In order of time, without overlaps.
    pub spans: Vec<Span>,
    /// Times of which nothing is known.
    pub missing: Vec<(u64, u64)>,
}

#[derive(Debug, Default)]
pub struct Track {
    pub lanes: Vec<Lane>,
    pub labels: Vec<String>,
}

/// A column of time in a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// The label of most of it, and its ticks.
    pub label: u32,
    pub most: u64,
    pub covered: u64,
    /// Spans that begin.
    pub begins: u64,
}

impl Lane {
    /// The spans that overlap a time.
    pub fn within(&self, from: u64, until: u64) -> &[Span] {
        let first = self.spans.partition_point(|span| span.end <= from);
        let last = self.spans.partition_point(|span| span.begin < until);
        &self.spans[first.min(last)..last]
    }

    /// The span at a moment.
    pub fn at(&self, clock: u64) -> Option<&Span> {
        let after = self.spans.partition_point(|span| span.begin <= clock);
        let span = self.spans.get(after.checked_sub(1)?)?;
        (clock < span.end || span.begin == clock).then_some(span)
    }

    /// A cell for each pair of neighbours in `bounds`.
    pub fn cells(&self, bounds: &[u64]) -> Vec<Cell> {
        let mut first = self
            .spans
            .partition_point(|span| span.end < bounds.first().copied().unwrap_or(0));
        // Ticks by label, of one column.
        let mut ticks: Vec<(u32, u64)> = Vec::new();
        let mut column = |from: u64, until: u64| {
            let mut cell = Cell::default();
            ticks.clear();
            while let Some(span) = self.spans.get(first)
                && span.begin < until
            {
                let part = span.end.min(until).saturating_sub(span.begin.max(from));
                let begins = span.begin >= from;
                if part > 0 || begins {
                    match ticks.iter_mut().find(|(label, _)| *label == span.label) {
                        Some((_, sum)) => *sum += part,
                        None => ticks.push((span.label, part)),
                    }
                }
                cell.covered += part;
                cell.begins += u64::from(begins);
                if span.end > until {
                    break;
                }
                first += 1;
            }
            let most = ticks.iter().copied().max_by_key(|(_, ticks)| *ticks);
            (cell.label, cell.most) = most.unwrap_or_default();
            cell
        };
        bounds
            .windows(2)
            .map(|pair| column(pair[0], pair[1]))
            .collect()
    }
}

impl Track {
    /// Puts spans that may overlap into as few lanes as possible, at most `most`; the others are left out and counted.
    pub fn of_overlapping(mut spans: Vec<Span>, most: usize, labels: Vec<String>) -> (Track, u64) {
        spans.sort_by_key(|span| (span.begin, std::cmp::Reverse(span.end)));
        let mut lanes: Vec<Lane> = Vec::new();
        let mut left_out = 0;
        for span in spans {
            let is_free = |lane: &Lane| lane.spans.last().is_none_or(|last| last.end <= span.begin);
            match lanes.iter().position(is_free) {
                Some(at) => lanes[at].spans.push(span),
                None if lanes.len() < most => lanes.push(Lane {
                    spans: vec![span],
                    ..Lane::default()
                }),
                None => left_out += 1,
            }
        }
        (Track { lanes, labels }, left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(begin: u64, end: u64, label: u32) -> Span {
        Span {
            begin,
            end,
            label,
            detail: 0,
        }
    }

    /// A generator of a sequence that a seed determines.
    struct Dice(u64);

    impl Dice {
        fn below(&mut self, limit: u64) -> u64 {
            self.0 = self
                .0
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (self.0 >> 33) % limit
        }
    }

    #[test]
    fn each_cell_is_what_a_plain_scan_finds() {
        for seed in 0..200 {
            let mut dice = Dice(seed);
            let mut lane = Lane::default();
            let mut clock = 0;
            for _ in 0..dice.below(60) {
                clock += dice.below(4) * dice.below(9);
                let end = clock + dice.below(3) * dice.below(30);
                lane.spans.push(span(clock, end, dice.below(4) as u32));
                clock = end;
            }
            let mut bounds = vec![dice.below(20)];
            for _ in 0..30 {
                let last = bounds[bounds.len() - 1];
                bounds.push(last + 1 + dice.below(25));
            }
            for (cell, pair) in lane.cells(&bounds).iter().zip(bounds.windows(2)) {
                let part = |span: &Span| {
                    span.end
                        .min(pair[1])
                        .saturating_sub(span.begin.max(pair[0]))
                };
                let begins = |span: &&Span| (pair[0]..pair[1]).contains(&span.begin);
                let covered: u64 = lane.spans.iter().map(part).sum();
                let of = |label| {
                    let spans = lane.spans.iter().filter(move |span| span.label == label);
                    spans.map(part).sum::<u64>()
                };
                let most = (0..4).map(of).max().unwrap_or(0);
                assert_eq!(cell.covered, covered, "seed {seed}, {pair:?}");
                assert_eq!(
                    cell.begins,
                    lane.spans.iter().filter(begins).count() as u64,
                    "seed {seed}, {pair:?}"
                );
                assert_eq!(cell.most, most, "seed {seed}, {pair:?}");
                assert_eq!(of(cell.label), most, "seed {seed}, {pair:?}");
            }
        }
    }

    #[test]
    fn spans_that_overlap_are_in_lanes_of_their_own() {
        let spans = vec![
            span(0, 10, 0),
            span(2, 4, 1),
            span(3, 5, 2),
            span(10, 11, 3),
        ];
        let (track, left_out) = Track::of_overlapping(spans.clone(), 3, Vec::new());
        let lanes: Vec<Vec<u32>> = track
            .lanes
            .iter()
            .map(|lane| lane.spans.iter().map(|span| span.label).collect())
            .collect();
        assert_eq!((lanes, left_out), (vec![vec![0, 3], vec![1], vec![2]], 0));
        assert_eq!(track.lanes[0].at(10).map(|span| span.label), Some(3));
        assert_eq!(track.lanes[1].at(4), None);
        assert_eq!(Track::of_overlapping(spans, 2, Vec::new()).1, 1);
    }
}
