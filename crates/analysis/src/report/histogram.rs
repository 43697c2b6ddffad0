//! Durations counted in buckets whose width is at most 1/64 of their value.
//!
//! Below 64 every value has its bucket; above, each power of two is an octave of 64 equal buckets. A quantile is given
//! as the middle of its bucket, so it is off by at most 1/128, that is 0.8 %. Values from 2^48 on share the last
//! octave. Counts are in pages, one for each octave that occurred, so that a site takes only the memory that it uses.

const SPLIT: u32 = 6;
const BUCKETS: usize = 1 << SPLIT;
const OCTAVES: usize = 48 - SPLIT as usize + 1;

type Page = [u64; BUCKETS];
type Index = [u32; OCTAVES];

/// The histograms of many sites. Number 0 of each vector stands for nothing.
#[derive(Clone, Debug)]
pub struct Histograms {
    indexes: Vec<Index>,
    pages: Vec<Page>,
}

impl Default for Histograms {
    fn default() -> Histograms {
        Histograms {
            indexes: vec![[0; OCTAVES]],
            pages: vec![[0; BUCKETS]],
        }
    }
}

impl Histograms {
    /// Counts `value` in histogram `number`, which is made if it is 0.
    #[inline(always)]
    pub fn add(&mut self, number: &mut u32, value: u64) {
        let (octave, bucket) = place(value);
        let page = match self.indexes.get(*number as usize) {
            Some(index) => index[octave] as usize,
            None => 0,
        };
        let page = if page == 0 {
            self.make_page(number, octave)
        } else {
            page
        };
        if let Some(page) = self.pages.get_mut(page) {
            page[bucket] += 1;
        }
    }

    #[cold]
    fn make_page(&mut self, number: &mut u32, octave: usize) -> usize {
        if *number == 0 {
            *number = self.indexes.len() as u32;
            self.indexes.push([0; OCTAVES]);
        }
        let page = self.pages.len();
        self.pages.push([0; BUCKETS]);
        self.indexes[*number as usize][octave] = page as u32;
        page
    }

    /// The number of values in a bucket.
    fn bucket(&self, number: u32, octave: usize, bucket: usize) -> u64 {
        let page = self.indexes[number as usize][octave];
        self.pages[page as usize][bucket]
    }
}

/// Histograms that are read as one.
#[derive(Clone, Default)]
pub struct Together<'a>(Vec<(&'a Histograms, u32)>);

impl<'a> Together<'a> {
    pub fn add(&mut self, histograms: &'a Histograms, number: u32) {
        self.0.push((histograms, number));
    }

    /// The number of values.
    pub fn count(&self) -> u64 {
        self.buckets().map(|(_, count)| count).sum()
    }

    /// For each of `quantiles`, between 0 and 1, the value that this part of all values does not exceed.
    pub fn quantiles<const N: usize>(&self, quantiles: [f64; N]) -> [u64; N] {
        let total = self.count();
        quantiles.map(|quantile| {
            let rank = ((total as f64 * quantile).ceil() as u64).clamp(1, total.max(1));
            let mut seen = 0;
            let reached = self.buckets().find(|&(_, count)| {
                seen += count;
                seen >= rank
            });
            reached.map_or(0, |(value, _)| value)
        })
    }

    /// The middle of each bucket that may not be empty, ascending, and its count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let occurs = |(all, number): &(&Histograms, u32), octave: usize| {
            all.indexes[*number as usize][octave] != 0
        };
        let octaves =
            (0..OCTAVES).filter(move |octave| self.0.iter().any(|one| occurs(one, *octave)));
        octaves.flat_map(move |octave| {
            (0..BUCKETS).map(move |bucket| {
                let counts = self
                    .0
                    .iter()
                    .map(|(all, number)| all.bucket(*number, octave, bucket));
                (middle(octave, bucket), counts.sum())
            })
        })
    }
}

/// The middle of the bucket that a value falls into.
pub fn bucket_of(value: u64) -> u64 {
    let (octave, bucket) = place(value);
    middle(octave, bucket)
}

#[inline(always)]
fn place(value: u64) -> (usize, usize) {
    let value = value.min((1 << 48) - 1);
    let octave = (u64::BITS - SPLIT - (value | (BUCKETS as u64 - 1)).leading_zeros()) as usize;
    let shift = octave.saturating_sub(1) as u32;
    (octave, (value >> shift) as usize & (BUCKETS - 1))
}

fn middle(octave: usize, bucket: usize) -> u64 {
    match octave {
        0 => bucket as u64,
        _ => ((((BUCKETS + bucket) as u64) << 1) + 1) << (octave - 1) >> 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_within_one_percent_of_its_bucket() {
        let small = 0..100_000u64;
        let large = (17..48).flat_map(|power| {
            [
                (1u64 << power) - 1,
                1 << power,
                (1 << power) + 1,
                3 << (power - 1),
            ]
        });
        for value in small.chain(large) {
            let (octave, bucket) = place(value);
            let error = middle(octave, bucket).abs_diff(value) as f64;
            assert!(
                error <= value as f64 / 128.0,
                "{value}: {octave} {bucket} {}",
                middle(octave, bucket)
            );
        }
        assert_eq!(place(u64::MAX), place((1 << 48) - 1));
        assert!(place(u64::MAX).0 < OCTAVES);
    }

    #[test]
    fn quantiles_of_a_known_distribution() {
        let (mut histograms, mut other) = (Histograms::default(), Histograms::default());
        let (mut number, mut other_number) = (0, 0);
        for value in 1..=500 {
            histograms.add(&mut number, value * 1000);
            other.add(&mut other_number, (value + 500) * 1000);
        }
        let both = Together(vec![(&histograms, number), (&other, other_number)]);
        assert_eq!(both.count(), 1000);
        let [least, half, most, all] = both.quantiles([0.0, 0.5, 0.99, 1.0]);
        for (found, exact) in [
            (least, 1_000u64),
            (half, 500_000),
            (most, 990_000),
            (all, 1_000_000),
        ] {
            assert!(found.abs_diff(exact) <= exact / 100, "{found} for {exact}");
        }
        assert_eq!(Together(vec![(&histograms, 0)]).quantiles([0.5]), [0]);
        assert_eq!(Together::default().quantiles([0.5]), [0]);
    }

    #[test]
    fn sites_do_not_mix() {
        let mut histograms = Histograms::default();
        let mut numbers = [0, 0];
        histograms.add(&mut numbers[0], 5);
        histograms.add(&mut numbers[1], 7);
        assert_eq!(
            numbers.map(|number| Together(vec![(&histograms, number)]).quantiles([0.5])),
            [[5], [7]]
        );
    }
}
