//! Sizes on the command line.

/// `4096`, `64K`, `64M`, `1G`, `2T`, in powers of 1024; a `B` or `iB` at the end changes nothing.
pub fn parse(text: &str) -> Result<u64, String> {
    let trimmed = text
        .trim()
        .trim_end_matches(['b', 'B'])
        .trim_end_matches('i');
    let digits = trimmed.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let shift = match trimmed[digits.len()..].to_ascii_uppercase().as_str() {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        unit => return Err(format!("unknown unit {unit:?} (use K, M, G or T)")),
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| format!("{digits:?} is not a whole number"))?;
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| "too large".to_string())
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn units() {
        let sizes = ["0", "17", "4K", "64M", "64MiB", "1g", "2T", "100B"].map(parse);
        assert_eq!(
            sizes,
            [0, 17, 4096, 64 << 20, 64 << 20, 1 << 30, 2 << 40, 100].map(Ok)
        );
    }

    #[test]
    fn what_is_no_size() {
        for text in [
            "",
            "M",
            "-1",
            "1.5G",
            "12Q",
            "99999999999999999999",
            "18014398509481985K",
            "éM",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
