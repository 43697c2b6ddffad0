//! The parameters of a question. All values are numbers, or words of letters, digits and `:,`; none needs escapes.

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
