//! How many traces want each site.

use std::collections::HashMap;

use crate::engine::{Detail, Mode, SiteKey};

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
    /// What is recorded of it, while it is held.
    detail: Detail,
}

impl Sites {
    pub fn number(&mut self, key: SiteKey) -> usize {
        *self.numbers.entry(key).or_insert_with(|| {
            self.sites.push(Site {
                key,
                holders: 0,
                enabled: 0,
                detail: Detail::default(),
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

    /// Those that are to be inserted so that they record `detail`: which are not held, or record less. With what they
    /// are to record then.
    pub fn lacking(&self, numbers: &[usize], detail: Detail) -> Vec<(Detail, Vec<usize>)> {
        let mut lacking: Vec<(Detail, Vec<usize>)> = Vec::new();
        for &number in numbers {
            let site = &self.sites[number];
            let wanted = match site.holders {
                0 => detail,
                _ => site.detail.and(detail),
            };
            if site.holders > 0 && wanted == site.detail {
                continue;
            }
            match lacking.iter_mut().find(|(other, _)| *other == wanted) {
                Some((_, numbers)) => numbers.push(number),
                None => lacking.push((wanted, vec![number])),
            }
        }
        lacking
    }

    /// Those that a trace has on.
    pub fn enabled(&self, numbers: &[usize]) -> Vec<SiteKey> {
        self.chosen(numbers, |site| site.enabled > 0)
    }

    pub fn held_and_idle(&self, numbers: &[usize]) -> Vec<SiteKey> {
        self.chosen(numbers, |site| site.holders > 0 && site.enabled == 0)
    }

    /// All that any trace has, by what is recorded of them.
    pub fn held_by_detail(&self) -> Vec<(Detail, Vec<SiteKey>)> {
        let mut held: Vec<(Detail, Vec<SiteKey>)> = Vec::new();
        for site in self.sites.iter().filter(|site| site.holders > 0) {
            match held.iter_mut().find(|(detail, _)| *detail == site.detail) {
                Some((_, keys)) => keys.push(site.key),
                None => held.push((site.detail, vec![site.key])),
            }
        }
        held
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

    /// They record as much as `detail` while they are held.
    pub fn hold(&mut self, numbers: &[usize], detail: Detail) {
        for &number in numbers {
            let site = &mut self.sites[number];
            site.detail = match site.holders {
                0 => detail,
                _ => site.detail.and(detail),
            };
            site.holders += 1;
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
