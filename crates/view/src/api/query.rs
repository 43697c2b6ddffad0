//! The parameters of a request. Most values are numbers, or words of letters, digits and `:,`, and need no escapes.

use anyhow::{Context, Result};

pub struct Query<'a> {
    pairs: Vec<(&'a str, &'a str)>,
}

impl<'a> Query<'a> {
    pub fn new(text: &'a str) -> Query<'a> {
        let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
        Query {
            pairs: pairs.collect(),
        }
    }

    pub fn text(&self, name: &str) -> Option<&'a str> {
        let mut pairs = self.pairs.iter();
        pairs.find(|pair| pair.0 == name).map(|pair| pair.1)
    }

    /// A text of any bytes, which are escaped as `%41`.
    pub fn unescaped(&self, name: &str) -> Result<Option<String>> {
        self.text(name).map(unescaped).transpose()
    }

    pub fn number(&self, name: &str) -> Result<u64> {
        let text = self
            .text(name)
            .with_context(|| format!("{name} is missing"))?;
        number(text)
    }

    pub fn numbers(&self, name: &str) -> Result<Vec<u64>> {
        let text = self.text(name).unwrap_or_default();
        text.split(',')
            .filter(|part| !part.is_empty())
            .map(number)
            .collect()
    }
}

pub fn number(text: &str) -> Result<u64> {
    text.parse()
        .with_context(|| format!("{text:?} is not a number"))
}

fn unescaped(text: &str) -> Result<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (code, rest) = part.split_at_checked(2).context("half an escape")?;
        bytes.push(u8::from_str_radix(code, 16).context("no escape")?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).context("not UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_bytes() {
        let of = |text| Query::new(text).unescaped("of");
        assert_eq!(
            of("of=a%2e.b%20%C3%BC").unwrap().as_deref(),
            Some("a..b \u{fc}")
        );
        assert_eq!(of("other=1").unwrap(), None);
        for wrong in ["of=%", "of=%4", "of=%zz", "of=%ff", "of=%C3\u{fc}"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
