//! A budget: how much more processor time tracing may take, and the functions that are not timed for its sake.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::site_key::SiteKey;
use crate::syntax::quoted;

/// A part of the processor time that the processes would use without being recorded, in hundredths of a per cent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share(u32);

impl Share {
    /// 100 %.
    const MOST: u32 = 10_000;

    pub fn percent(self) -> f64 {
        f64::from(self.0) / 100.0
    }

    pub fn part(self) -> f64 {
        self.percent() / 100.0
    }
}

/// `5%`, `0.5%`
impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Share, String> {
        let hundredths = || {
            let number = text.strip_suffix('%')?;
            let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
            let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
            if !are_digits(whole) || !are_digits(part) || !(1..=2).contains(&part.len()) {
                return None;
            }
            let whole: u32 = whole.parse().ok()?;
            let part: u32 = format!("{part:0<2}").parse().ok()?;
            let share = whole.checked_mul(100)?.checked_add(part)?;
            (1..=Share::MOST).contains(&share).then_some(Share(share))
        };
        hundredths().ok_or_else(|| {
            format!(
                "expected a share of processor time from 0.01% to 100%, such as 5%, found {}",
                quoted(text)
            )
        })
    }
}

impl fmt::Display for Share {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}%", self.percent())
    }
}

/// Functions that are not timed for a budget's sake.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spared {
    /// Their calls are only counted.
    pub counted: Arc<[SiteKey]>,
    /// Their jumps are out.
    pub off: Arc<[SiteKey]>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_read_as_it_is_written() {
        for text in ["5%", "0.5%", "0.01%", "12.25%", "100%"] {
            assert_eq!(text.parse::<Share>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "%",
            "5",
            "5 %",
            "0%",
            "0.00%",
            "100.01%",
            "-1%",
            "+1%",
            ".%",
            "1.%",
            "1.234%",
            "5%%",
            "99999999999%",
            "1e1%",
        ] {
            let error = text.parse::<Share>().unwrap_err();
            assert!(error.contains("such as 5%"), "{text}: {error}");
        }
    }
}
