//! Times on the command line.

use std::time::Duration;

/// `10`, `10s`, `500ms`, `20us`, `100ns`, `1.5m`, `2h`, `7d`; seconds without a unit.
pub fn parse(text: &str) -> Result<Duration, String> {
    let digits = text
        .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => {
            return Err(format!(
                "unknown unit {unit:?} (use ns, us, ms, s, m, h or d)"
            ));
        }
    };
    number
        .parse::<f64>()
        .ok()
        .and_then(|number| Duration::try_from_secs_f64(number * seconds).ok())
        .filter(|time| !time.is_zero())
        .ok_or_else(|| "a time such as 500ms, 10s, 5m or 1h is expected".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_understood() {
        for (text, milliseconds) in [
            ("5000000ns", 5),
            ("7000us", 7),
            ("250ms", 250),
            ("10", 10_000),
            ("1.5s", 1500),
            ("2m", 120_000),
            ("7d", 7 * 86_400_000),
            ("1h", 3_600_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(milliseconds)));
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "s",
            "0",
            "-1s",
            "1x",
            "1.2.3s",
            "inf",
            "99999999999999999999999h",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
