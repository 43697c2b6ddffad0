//! Quantities for people: three significant digits and a unit.

/// `0 ns`, `999 ns`, `1.00 us`, `12.3 ms`, `4.56 s`, `2.50 min`, `1.00 h`.
pub fn duration(ns: u64) -> String {
    const UNITS: [(f64, f64, &str); 6] = [
        (1.0, 1e3, "ns"),
        (1e3, 1e6, "us"),
        (1e6, 1e9, "ms"),
        (1e9, 6e10, "s"),
        (6e10, 3.6e12, "min"),
        (3.6e12, f64::INFINITY, "h"),
    ];
    if ns < 1000 {
        return format!("{ns} ns");
    }
    scaled(ns as f64, &UNITS)
}

/// A duration; `≥ 7.00 ms` if it is the least possible one.
pub fn bound(ns: u64, is_least: bool) -> String {
    let sign = if is_least { "≥ " } else { "" };
    format!("{sign}{}", duration(ns))
}

/// `≈ 1.24 s ± 0.03`: the error in the same unit, rounded up to the last digit that is shown.
pub fn estimate(ns: u64, error_ns: u64) -> String {
    if ns == 0 {
        return format!("≈ 0 ns ± {}", duration(error_ns));
    }
    let shown = duration(ns);
    let (number, unit) = shown.split_once(' ').unwrap_or((&shown, ""));
    let decimals = number.split_once('.').map_or(0, |(_, after)| after.len());
    let in_unit = number.parse::<f64>().unwrap_or(0.0) / ns.max(1) as f64;
    let last_digit = 10f64.powi(decimals as i32);
    let error = (error_ns as f64 * in_unit * last_digit).ceil() / last_digit;
    format!("≈ {number} {unit} ± {error:.decimals$}")
}

/// `≥ 1,234` if there may be more.
pub fn bound_count(number: u64, is_least: bool) -> String {
    let sign = if is_least { "≥ " } else { "" };
    format!("{sign}{}", count(number))
}

/// `512 B`, `64.0 KiB`, `1.50 GiB`.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [(f64, f64, &str); 5] = [
        (1.0, 1024.0, "B"),
        (1024.0, 1048576.0, "KiB"),
        (1048576.0, 1073741824.0, "MiB"),
        (1073741824.0, 1099511627776.0, "GiB"),
        (1099511627776.0, f64::INFINITY, "TiB"),
    ];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    scaled(bytes as f64, &UNITS)
}

/// A frequency in hertz.
pub fn rate(hertz: u64) -> String {
    const UNITS: [(f64, f64, &str); 4] = [
        (1.0, 1e3, "Hz"),
        (1e3, 1e6, "kHz"),
        (1e6, 1e9, "MHz"),
        (1e9, f64::INFINITY, "GHz"),
    ];
    scaled(hertz as f64, &UNITS)
}

/// With a comma before each three digits.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.char_indices() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 event was lost`, `1,234 events were lost`: a number with what it counts.
pub fn several(value: u64, one: &str, more: &str) -> String {
    let what = if value == 1 { one } else { more };
    format!("{} {what}", count(value))
}

/// The meaning of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    Time,
    /// Written in hexadecimal, as its field is.
    Address,
    Number,
}

impl Quantity {
    pub fn text(self, value: i64) -> String {
        let size = value.unsigned_abs();
        let text = match self {
            Quantity::Time => duration(size),
            Quantity::Address => return format!("{value:#x}"),
            Quantity::Number => count(size),
        };
        if value < 0 { format!("-{text}") } else { text }
    }
}

/// `12.3 %`; 0 of 0 gives 0 %.
pub fn percent(part: u64, whole: u64) -> String {
    let value = if whole == 0 {
        0.0
    } else {
        part as f64 * 100.0 / whole as f64
    };
    format!("{value:.1} %")
}

/// A moment of CLOCK_REALTIME in UTC: `2026-11-21 02:44:00`. Empty for 0.
pub fn date(realtime_ns: u64) -> String {
    if realtime_ns == 0 {
        return String::new();
    }
    let seconds = realtime_ns / 1_000_000_000;
    let (year, month, day) = civil(seconds / 86_400);
    let [hour, minute, second] = [seconds / 3600 % 24, seconds / 60 % 60, seconds % 60];
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// Year, month and day of a day counted from 1970-01-01, after 400-year cycles that begin on the 1st of March.
fn civil(days: u64) -> (u64, u64, u64) {
    const DAYS_BEFORE_1970: u64 = 719_468;
    const CYCLE: u64 = 146_097;
    let days = days + DAYS_BEFORE_1970;
    let (cycle, day) = (days / CYCLE, days % CYCLE);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = (cycle * 400 + year + month / 10, (month + 2) % 12 + 1);
    (year, month, day)
}

fn scaled(value: f64, units: &[(f64, f64, &str)]) -> String {
    for &(unit, limit, name) in units {
        let scaled = value / unit;
        let decimals = match scaled {
            s if s < 9.995 => 2,
            s if s < 99.95 => 1,
            _ => 0,
        };
        let shown = format!("{scaled:.decimals$}");
        if shown.parse().is_ok_and(|shown: f64| shown * unit < limit) {
            return format!("{shown} {name}");
        }
    }
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_three_digits_and_round_into_the_next_unit() {
        let shown = [
            0, 7, 999, 1_000, 9_994, 9_995, 99_949, 99_950, 999_499, 999_500, 1_234_567,
        ]
        .map(duration);
        let expected = [
            "0 ns", "7 ns", "999 ns", "1.00 us", "9.99 us", "10.0 us", "99.9 us", "100 us",
            "999 us", "1.00 ms", "1.23 ms",
        ];
        assert_eq!(shown, expected);
        assert_eq!(duration(59_960_000_000), "1.00 min");
        assert_eq!(duration(59_900_000_000), "59.9 s");
        assert_eq!(duration(3_600_000_000_000), "1.00 h");
        assert_eq!(duration(u64::MAX), "5124096 h");
    }

    #[test]
    fn errors_are_in_the_unit_of_their_estimate() {
        for (ns, error_ns, shown) in [
            (1_240_000_000, 25_000_001, "≈ 1.24 s ± 0.03"),
            (1_240_000_000, 1, "≈ 1.24 s ± 0.01"),
            (98_700_000, 0, "≈ 98.7 ms ± 0.0"),
            (700_000, 12_400, "≈ 700 us ± 13"),
            (12, 15, "≈ 12 ns ± 15"),
            (0, 15, "≈ 0 ns ± 15 ns"),
            (0, 15_100_000_000, "≈ 0 ns ± 15.1 s"),
        ] {
            assert_eq!(estimate(ns, error_ns), shown);
        }
    }

    #[test]
    fn dates() {
        let second = 1_000_000_000;
        assert_eq!(date(951_782_399 * second), "2000-02-28 23:59:59 UTC");
        assert_eq!(date(951_782_400 * second), "2000-02-29 00:00:00 UTC");
        assert_eq!(date(1_700_000_000 * second), "2023-11-14 22:13:20 UTC");
        assert_eq!(date(4_107_542_400 * second), "2100-03-01 00:00:00 UTC");
        assert_eq!(date(1), "1970-01-01 00:00:00 UTC");
        assert_eq!(date(0), "");
    }

    #[test]
    fn other_quantities() {
        assert_eq!(
            [0, 1023, 1024, 65_536, 1_572_864].map(bytes),
            ["0 B", "1023 B", "1.00 KiB", "64.0 KiB", "1.50 MiB"]
        );
        assert_eq!(
            [0, 999, 1_000, 1_234_567].map(count),
            ["0", "999", "1,000", "1,234,567"]
        );
        assert_eq!(rate(2_445_000_000), "2.44 GHz");
        assert_eq!(percent(1, 3), "33.3 %");
        assert_eq!(percent(0, 0), "0.0 %");
    }
}
