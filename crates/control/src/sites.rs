//! How many traces want each site.

use std::collections::HashMap;

use crate::engine::{Mode, SiteKey};

/// The sites that traces have had, by a number that stays the same.
#[derive(Default)]
pub struct Sites {
    sites: Vec<Site>,
    numbers: HashMap<SiteKey, usize>,
}

#[derive(Clone, Copy)]
struct Site {
    key: SiteKey,
    /// Traces that have it: it is inserted while there are any.
    holders: u32,
    /// Those of them that are on: it is recorded while there are any, and the session runs.
    enabled: u32,
}

impl Sites {
    pub fn number(&mut self, key: SiteKey) -> usize {
        *self.numbers.entry(key).or_insert_with(|| {
            self.sites.push(Site {
                key,
                holders: 0,
                enabled: 0,
            });
            self.sites.len() - 1
        })
    }

    pub fn keys(&self, numbers: &[usize]) -> Vec<SiteKey> {
        numbers
            .iter()
            .map(|&number| self.sites[number].key)
            .collect()
    }

    pub fn known(&self, key: SiteKey) -> Option<usize> {
        self.numbers.get(&key).copied()
    }

    pub fn is_held(&self, key: SiteKey) -> bool {
        self.known(key)
            .is_some_and(|number| self.sites[number].holders > 0)
    }

    pub fn is_enabled(&self, key: SiteKey) -> bool {
        self.known(key)
            .is_some_and(|number| self.sites[number].enabled > 0)
    }

    /// Those that no trace has had on until now.
    pub fn not_enabled(&self, numbers: &[usize]) -> Vec<SiteKey> {
        self.chosen(numbers, |site| site.enabled == 0)
    }

    /// Those that one trace alone has on.
    pub fn enabled_once(&self, numbers: &[usize]) -> Vec<SiteKey> {
        self.chosen(numbers, |site| site.enabled == 1)
    }

    /// Those that one trace alone has.
    pub fn held_once(&self, numbers: &[usize]) -> Vec<SiteKey> {
        self.chosen(numbers, |site| site.holders == 1)
    }

    fn chosen(&self, numbers: &[usize], choose: impl Fn(&Site) -> bool) -> Vec<SiteKey> {
        let sites = numbers.iter().map(|&number| &self.sites[number]);
        sites
            .filter(|site| choose(site))
            .map(|site| site.key)
            .collect()
    }

    pub fn hold(&mut self, numbers: &[usize]) {
        for &number in numbers {
            self.sites[number].holders += 1;
        }
    }

    pub fn release(&mut self, numbers: &[usize]) {
        for &number in numbers {
            self.sites[number].holders -= 1;
        }
    }

    pub fn enable(&mut self, numbers: &[usize]) {
        for &number in numbers {
            self.sites[number].enabled += 1;
        }
    }

    pub fn disable(&mut self, numbers: &[usize]) {
        for &number in numbers {
            self.sites[number].enabled -= 1;
        }
    }

    /// All that any trace has.
    pub fn held(&self) -> Vec<SiteKey> {
        let held = self.sites.iter().filter(|site| site.holders > 0);
        held.map(|site| site.key).collect()
    }

    /// All that are in a mode while the session runs.
    pub fn in_mode(&self, mode: Mode, uniform: bool) -> Vec<SiteKey> {
        let held = self.sites.iter().filter(|site| site.holders > 0);
        let idle = if uniform { Mode::Silent } else { Mode::Off };
        held.filter(|site| mode == if site.enabled > 0 { Mode::On } else { idle })
            .map(|site| site.key)
            .collect()
    }
}
