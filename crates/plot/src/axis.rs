//! Axes: positions of values, and their labels.

use nopal_analysis::text::{count, duration};

/// The scale of an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AxisScale {
    /// Logarithmic if values differ much.
    #[default]
    Auto,
    Linear,
    /// By the logarithm of the value plus 1, so that 0 is included; negative values mirrored.
    Log,
}

/// The unit of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Nanoseconds,
    Number,
    /// Written in hexadecimal, at multiples of powers of 2.
    Address,
}

/// Maps values to positions between 0 and 1.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    least: f64,
    most: f64,
    log: bool,
    unit: Unit,
}

/// Values that differ by more than this are shown on a logarithmic axis.
const MUCH: f64 = 500.0;

impl Axis {
    pub fn new(least: f64, most: f64, scale: AxisScale, unit: Unit) -> Axis {
        let log = match scale {
            _ if unit == Unit::Address => false,
            AxisScale::Auto => most.abs().max(least.abs()) > MUCH * least.abs().max(1.0),
            AxisScale::Linear => false,
            AxisScale::Log => true,
        };
        let most = if most > least { most } else { least + 1.0 };
        Axis {
            least,
            most,
            log,
            unit,
        }
    }

    /// An axis for values: from 0 on, or, if logarithmic, from the power of 10 below the least.
    pub fn values(least: f64, most: f64, scale: AxisScale, unit: Unit) -> Axis {
        let axis = Axis::new(least.min(0.0), most, scale, unit);
        if !axis.log || least < 10.0 {
            return axis;
        }
        Axis {
            least: 10f64.powf(least.log10().floor()),
            ..axis
        }
    }

    /// An axis from 0 to a round number that is not less than `most`.
    pub fn counts(most: f64) -> Axis {
        let step = nice(most / 5.0);
        let most = (most / step).ceil() * step;
        Axis::new(0.0, most, AxisScale::Linear, Unit::Number)
    }

    pub fn is_log(&self) -> bool {
        self.log
    }

    fn transformed(&self, value: f64) -> f64 {
        if self.log {
            value.signum() * value.abs().ln_1p()
        } else {
            value
        }
    }

    pub fn place(&self, value: f64) -> f64 {
        let [value, least, most] =
            [value, self.least, self.most].map(|value| self.transformed(value));
        let part = (value - least) / (most - least);
        // The numbers are so large that both ends of the axis are equal.
        if part.is_nan() {
            return 0.0;
        }
        part.clamp(0.0, 1.0)
    }

    /// The labelled values with their labels, at most `room`.
    pub fn ticks(&self, room: usize) -> Vec<(f64, String)> {
        let room = room.max(2);
        let values = match self.unit {
            Unit::Address => binary_steps(self.least, self.most, room),
            _ if self.log => self.powers(room),
            _ => steps(self.least, self.most, room),
        };
        let step = match values.as_slice() {
            [first, second, ..] => second - first,
            _ => 1.0,
        };
        values
            .into_iter()
            .map(|value| (value, self.name(value, step)))
            .collect()
    }

    /// 0 and powers of 10, both signs, as many as there is room for.
    fn powers(&self, room: usize) -> Vec<f64> {
        let positive = (0..19).map(|power| 10f64.powi(power));
        let negative = (0..19).rev().map(|power| -(10f64.powi(power)));
        let all: Vec<f64> = negative
            .chain([0.0])
            .chain(positive)
            .filter(|value| (self.least..=self.most).contains(value))
            .collect();
        if all.len() < 2 {
            return steps(self.least, self.most, room.min(5));
        }
        let every = all.len().div_ceil(room);
        // The choice does not depend on the begin of the axis.
        let chosen = all.iter().filter(|value| {
            let power = value.abs().max(1.0).log10().round() as usize;
            **value == 0.0 || power.is_multiple_of(every)
        });
        chosen.copied().collect()
    }

    fn name(&self, value: f64, step: f64) -> String {
        match self.unit {
            Unit::Nanoseconds if self.log => short_time(value),
            Unit::Nanoseconds => with_unit(value, self.most, step),
            Unit::Number => short_number(value, step),
            Unit::Address => format!("{:#x}", value as i64),
        }
    }
}

/// Times on one axis have one unit: that of the largest.
fn with_unit(ns: f64, most: f64, step: f64) -> String {
    let (unit, name) = time_unit(most);
    format!("{:.*} {name}", decimals(step / unit), ns / unit)
}

/// The unit for a span of nanoseconds.
fn time_unit(ns: f64) -> (f64, &'static str) {
    const UNITS: [(f64, &str); 3] = [(1e9, "s"), (1e6, "ms"), (1e3, "us")];
    let larger = UNITS.into_iter().find(|(unit, _)| ns >= *unit);
    larger.unwrap_or((1.0, "ns"))
}

/// `10 us`: no insignificant digits.
fn short_time(ns: f64) -> String {
    let (unit, name) = time_unit(ns.abs());
    if (ns / unit).fract() == 0.0 {
        format!("{} {name}", ns / unit)
    } else {
        duration(ns.abs() as u64)
    }
}

fn short_number(value: f64, step: f64) -> String {
    if value.abs() >= 1e15 {
        return format!("{value:.0e}");
    }
    let decimals = decimals(step);
    if decimals > 0 {
        return format!("{value:.decimals$}");
    }
    let sign = if value < 0.0 { "-" } else { "" };
    format!("{sign}{}", count(value.abs() as u64))
}

/// The decimals needed to distinguish values that differ by a step.
fn decimals(step: f64) -> usize {
    if step >= 1.0 || step <= 0.0 {
        return 0;
    }
    ((-step.log10() - 1e-9).ceil() as usize).min(9)
}

/// Multiples of 1, 2 or 5 and a power of 10, between two values, `room` at most.
fn steps(least: f64, most: f64, room: usize) -> Vec<f64> {
    multiples(least, most, room, nice)
}

/// Multiples of a power of 2.
fn binary_steps(least: f64, most: f64, room: usize) -> Vec<f64> {
    multiples(least, most, room, |step| step.max(1.0).log2().ceil().exp2())
}

fn multiples(least: f64, most: f64, room: usize, round: impl Fn(f64) -> f64) -> Vec<f64> {
    let step = round((most - least) / (room - 1).max(1) as f64);
    let first = (least / step).ceil() as i64;
    let last = (most / step + 1e-6).floor() as i64;
    (first..=last.min(first.saturating_add(room as i64)))
        .map(|number| number as f64 * step)
        .collect()
}

fn nice(step: f64) -> f64 {
    let step = step.max(1e-9);
    let power = 10f64.powf(step.log10().floor());
    let multiple = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|multiple| multiple * power >= step * (1.0 - 1e-9));
    multiple.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(axis: Axis, room: usize) -> Vec<String> {
        axis.ticks(room).into_iter().map(|(_, name)| name).collect()
    }

    #[test]
    fn linear_axes_name_round_values() {
        let axis = Axis::new(0.0, 1500.0, AxisScale::Auto, Unit::Number);
        assert!(axis.is_log(), "0 to 1500");
        let axis = Axis::new(0.0, 1500.0, AxisScale::Linear, Unit::Number);
        assert_eq!(names(axis, 5), ["0", "500", "1,000", "1,500"]);
        let axis = Axis::new(0.0, 2_500_000.0, AxisScale::Linear, Unit::Nanoseconds);
        assert_eq!(
            names(axis, 6),
            ["0.0 ms", "0.5 ms", "1.0 ms", "1.5 ms", "2.0 ms", "2.5 ms"]
        );
        assert_eq!(axis.place(1_250_000.0), 0.5);
    }

    #[test]
    fn addresses_are_hexadecimal() {
        let (least, most) = (0x7f32_1000_1234u64 as f64, 0x7f32_1007_ffffu64 as f64);
        let axis = Axis::new(least, most, AxisScale::Log, Unit::Address);
        assert_eq!(
            names(axis, 5),
            ["0x7f3210020000", "0x7f3210040000", "0x7f3210060000"]
        );
    }

    #[test]
    fn logarithmic_axes_name_powers_and_zero() {
        let axis = Axis::new(0.0, 2e6, AxisScale::Auto, Unit::Nanoseconds);
        assert_eq!(
            names(axis, 10),
            [
                "0 ns", "1 ns", "10 ns", "100 ns", "1 us", "10 us", "100 us", "1 ms"
            ]
        );
        assert!(axis.place(0.0) == 0.0 && axis.place(2e6) == 1.0);
        let axis = Axis::new(-100.0, 1e6, AxisScale::Log, Unit::Number);
        assert_eq!(
            names(axis, 7),
            ["-100", "-1", "0", "1", "100", "10,000", "1,000,000"]
        );
    }

    #[test]
    fn any_range_has_an_axis() {
        let values = [i64::MIN as f64, -1.0, 0.0, 1.0, 5.0, i64::MAX as f64];
        for (at, least) in values.iter().enumerate() {
            for most in &values[at..] {
                let numbers = [AxisScale::Auto, AxisScale::Linear, AxisScale::Log]
                    .map(|scale| (scale, Unit::Number));
                for (scale, unit) in numbers
                    .into_iter()
                    .chain([(AxisScale::Auto, Unit::Address)])
                {
                    let axis = Axis::new(*least, *most, scale, unit);
                    let ticks = axis.ticks(8);
                    assert!(ticks.len() <= 9, "{least} {most} {scale:?}: {ticks:?}");
                    let places = ticks.iter().map(|(value, _)| axis.place(*value));
                    assert!(places.into_iter().all(|place| (0.0..=1.0).contains(&place)));
                }
            }
        }
    }
}
