//! Values gathered into bars.

use super::Distribution;

/// The widths of bars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Equal widths.
    Linear,
    /// Each bar twice as wide as the one before.
    #[default]
    Log2,
    /// By parts of all values: each bar holds half of the remaining ones.
    Hdr,
}

/// The number of values from `from` to `to`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bar {
    pub from: i64,
    pub to: i64,
    pub count: u64,
}

/// Bars on a linear scale, about.
const LINEAR: i128 = 20;
/// The last of the quantiles that bars on an HDR scale end at.
const QUANTILES: [f64; 12] = [
    0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9999, 0.99999, 1.0,
];

/// Bars without gaps from the least value to the most; empty ones too.
pub fn bars(distribution: &Distribution, scale: Scale) -> Vec<Bar> {
    let mut edges = match scale {
        Scale::Linear => linear(distribution.least(), distribution.most()),
        Scale::Log2 => log2(distribution.least(), distribution.most()),
        Scale::Hdr => quantiles(distribution),
    };
    if let [only] = edges[..] {
        edges.push(only);
    }
    let mut bars: Vec<Bar> = edges
        .windows(2)
        .map(|edge| Bar {
            from: edge[0],
            to: edge[1].saturating_sub(1),
            count: 0,
        })
        .collect();
    if let Some(last) = bars.last_mut() {
        last.to = last.to.max(distribution.most());
    }
    for (value, count) in distribution.values() {
        let value = value.clamp(distribution.least(), distribution.most());
        let at = bars.partition_point(|bar| bar.to < value);
        if let Some(bar) = bars.get_mut(at) {
            bar.count += count;
        }
    }
    bars
}

/// The begins of the bars, and the end of the last one.
fn linear(least: i64, most: i64) -> Vec<i64> {
    let span = i128::from(most) - i128::from(least) + 1;
    let width = nice((span + LINEAR - 1) / LINEAR);
    let mut edges = Vec::new();
    let mut edge = i128::from(least).div_euclid(width) * width;
    while edge <= i128::from(most) {
        edges.push(saturated(edge));
        edge += width;
    }
    edges.push(saturated(edge));
    edges
}

fn saturated(value: i128) -> i64 {
    value.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

/// The next of 1, 2, 5, 10, 20, …
fn nice(width: i128) -> i128 {
    let mut power = 1;
    loop {
        for step in [1, 2, 5] {
            if step * power >= width {
                return step * power;
            }
        }
        power *= 10;
    }
}

/// 0, 1, 2, 4, 8, …, and the same below 0.
fn log2(least: i64, most: i64) -> Vec<i64> {
    let mut edges = vec![i64::MIN];
    edges.extend((0..63).rev().map(|power| -(1i64 << power) + 1));
    edges.extend((0..63).map(|power| 1i64 << power));
    edges.push(i64::MAX);
    let first = edges
        .partition_point(|edge| *edge <= least)
        .saturating_sub(1);
    let last = edges
        .partition_point(|edge| *edge <= most)
        .min(edges.len() - 1);
    edges[first..=last].to_vec()
}

fn quantiles(distribution: &Distribution) -> Vec<i64> {
    let mut edges: Vec<i64> = QUANTILES
        .iter()
        .map(|quantile| distribution.quantile(*quantile).saturating_add(1))
        .collect();
    edges[0] = distribution.least();
    edges.dedup();
    edges
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(values: &[i64], scale: Scale) -> Vec<(i64, i64, u64)> {
        let mut distribution = Distribution::new(3).unwrap();
        values.iter().for_each(|value| distribution.add(*value));
        let bars = bars(&distribution, scale);
        assert_eq!(
            bars.iter().map(|bar| bar.count).sum::<u64>(),
            values.len() as u64
        );
        bars.iter()
            .map(|bar| (bar.from, bar.to, bar.count))
            .collect()
    }

    #[test]
    fn bars_double() {
        let bars = made(&[-3, -1, 0, 1, 1, 2, 3, 4, 9], Scale::Log2);
        assert_eq!(
            bars,
            [
                (-3, -2, 1),
                (-1, -1, 1),
                (0, 0, 1),
                (1, 1, 2),
                (2, 3, 2),
                (4, 7, 1),
                (8, 15, 1)
            ]
        );
    }

    #[test]
    fn a_value_far_from_the_others_has_its_bar() {
        let values: Vec<i64> = (0..1000).chain([1 << 40]).collect();
        let bars = made(&values, Scale::Log2);
        assert_eq!(bars.last(), Some(&(1 << 40, (1 << 41) - 1, 1)));
    }

    #[test]
    fn round_numbers_are_shown_as_they_are() {
        let mut distribution = Distribution::new(3).unwrap();
        let sizes = [-65_536, 4096, 8192, 1 << 30];
        sizes.iter().for_each(|size| distribution.add(*size));
        let values: Vec<i64> = distribution.values().map(|(value, _)| value).collect();
        assert_eq!(values, sizes);
    }

    #[test]
    fn bars_of_one_width() {
        let bars = made(&[5, 17, 99], Scale::Linear);
        assert_eq!(
            (bars.len(), bars[0], bars[18]),
            (19, (5, 9, 1), (95, 99, 1))
        );
        assert_eq!(made(&[7], Scale::Linear), [(7, 7, 1)]);
    }

    #[test]
    fn bars_by_parts_of_all() {
        let values: Vec<i64> = (1..=1000).collect();
        let bars = made(&values, Scale::Hdr);
        assert_eq!((bars[0], bars[1]), ((1, 250, 250), (251, 500, 250)));
        assert_eq!(made(&[7, 7, 7], Scale::Hdr), [(7, 7, 3)]);
    }

    #[test]
    fn extreme_values_have_bars() {
        for scale in [Scale::Linear, Scale::Log2, Scale::Hdr] {
            made(&[i64::MIN, -1, 0, i64::MAX], scale);
            made(&[i64::MAX], scale);
            made(&[i64::MIN], scale);
        }
    }
}
