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
    const UNITS: [(f64, f64, &str); 4] =
        [(1.0, 1e3, "Hz"), (1e3, 1e6, "kHz"), (1e6, 1e9, "MHz"), (1e9, f64::INFINITY, "GHz")];
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

/// `12.3 %`; nothing of nothing is nothing.
pub fn percent(part: u64, whole: u64) -> String {
    let value = if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 };
    format!("{value:.1} %")
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
        let shown = [0, 7, 999, 1_000, 9_994, 9_995, 99_949, 99_950, 999_499, 999_500, 1_234_567].map(duration);
        let expected = [
            "0 ns", "7 ns", "999 ns", "1.00 us", "9.99 us", "10.0 us", "99.9 us", "100 us", "999 us", "1.00 ms",
            "1.23 ms",
        ];
        assert_eq!(shown, expected);
        assert_eq!(duration(59_960_000_000), "1.00 min");
        assert_eq!(duration(59_900_000_000), "59.9 s");
        assert_eq!(duration(3_600_000_000_000), "1.00 h");
        assert_eq!(duration(u64::MAX), "5124096 h");
    }

    #[test]
    fn other_quantities() {
        assert_eq!([0, 1023, 1024, 65_536, 1_572_864].map(bytes), ["0 B", "1023 B", "1.00 KiB", "64.0 KiB", "1.50 MiB"]);
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(rate(2_445_000_000), "2.44 GHz");
        assert_eq!(percent(1, 3), "33.3 %");
        assert_eq!(percent(0, 0), "0.0 %");
    }
}
