//! The number of traces that hold each site.

use std::collections::HashMap;

use nopal_abi::Capture;

use crate::engine::{Mode, SiteKey};

/// The sites that traces have had, by a number that stays the same.
#[derive(Default)]
pub struct Sites {
    sites: Vec<Site>,
    numbers: HashMap<SiteKey, usize>,
    unsettled: Unsettled,
}

/// The sites to switch to each mode. Kept, so that a switch needs no new memory.
#[derive(Default)]
pub struct Unsettled {
    pub silent: Vec<SiteKey>,
    pub on: Vec<SiteKey>,
    pub off: Vec<SiteKey>,
}

#[derive(Clone, Copy)]
pub struct Site {
    key: SiteKey,
    /// Traces and triggers that have it: it is inserted while there are any.
    holders: u32,
    /// Traces of them that are on: it is recorded while there are any, and the session runs.
    enabled: u32,
    /// The data to record of it, while it is held.
    capture: Capture,
    /// Its triggers. They see its calls even when these are not recorded.
    subscribers: u32,
    /// Its mode, if it is inserted and the mode is known.
    mode: Option<Mode>,
}

impl Sites {
    pub fn number(&mut self, key: SiteKey) -> usize {
        *self.numbers.entry(key).or_insert_with(|| {
            self.sites.push(Site {
                key,
                holders: 0,
                enabled: 0,
                capture: Capture::default(),
                subscribers: 0,
                mode: None,
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

    /// Those that are to be inserted so that they record `capture`: which are not held, or record less. With what they
    /// are to record then.
    pub fn lacking(&self, numbers: &[usize], capture: Capture) -> Vec<(Capture, Vec<usize>)> {
        let mut lacking: Vec<(Capture, Vec<usize>)> = Vec::new();
        for &number in numbers {
            let site = &self.sites[number];
            let wanted = match site.holders {
                0 => capture,
                _ => site.capture.and(capture),
            };
            if site.holders > 0 && wanted == site.capture {
                continue;
            }
            match lacking.iter_mut().find(|(other, _)| *other == wanted) {
                Some((_, numbers)) => numbers.push(number),
                None => lacking.push((wanted, vec![number])),
            }
        }
        lacking
    }

    /// All that any trace has, by what is recorded of them.
    pub fn held_by_capture(&self) -> Vec<(Capture, Vec<SiteKey>)> {
        let mut held: Vec<(Capture, Vec<SiteKey>)> = Vec::new();
        for site in self.sites.iter().filter(|site| site.holders > 0) {
            match held
                .iter_mut()
                .find(|(capture, _)| *capture == site.capture)
            {
                Some((_, keys)) => keys.push(site.key),
                None => held.push((site.capture, vec![site.key])),
            }
        }
        held
    }

    pub fn is_enabled(&self, key: SiteKey) -> bool {
        self.known(key)
            .is_some_and(|number| self.sites[number].enabled > 0)
    }

    /// What is to be switched to which mode after a `change`, of those that are held and not known to be in it: from
    /// now on they are. `uniform`: whether all that are inserted pay what recorded ones pay.
    pub fn settle(
        &mut self,
        numbers: &[usize],
        started: bool,
        uniform: bool,
        change: impl Fn(&mut Site),
    ) -> &Unsettled {
        let Unsettled { silent, on, off } = &mut self.unsettled;
        let lists = [&mut *silent, &mut *on, &mut *off];
        lists.into_iter().for_each(Vec::clear);
        for &number in numbers {
            let site = &mut self.sites[number];
            change(site);
            let (mode, list) = if started && site.enabled > 0 {
                (Mode::On, &mut *on)
            } else if site.subscribers > 0 || started && uniform {
                (Mode::Silent, &mut *silent)
            } else {
                (Mode::Off, &mut *off)
            };
            if site.holders > 0 && site.mode != Some(mode) {
                site.mode = Some(mode);
                list.push(site.key);
            }
        }
        &self.unsettled
    }

    /// These are inserted anew, switched off.
    pub fn inserted(&mut self, numbers: &[usize]) {
        for &number in numbers {
            self.sites[number].mode = Some(Mode::Off);
        }
    }

    /// It is not known what any of them does.
    pub fn forget_modes(&mut self) {
        self.sites.iter_mut().for_each(|site| site.mode = None);
    }

    /// The sites that exactly one trace or trigger holds.
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

    /// They record as much as `capture` while they are held.
    pub fn hold(&mut self, numbers: &[usize], capture: Capture) {
        for &number in numbers {
            let site = &mut self.sites[number];
            site.capture = match site.holders {
                0 => capture,
                _ => site.capture.and(capture),
            };
            site.holders += 1;
        }
    }

    /// To be called when the sites that nothing holds any more have been removed.
    pub fn release(&mut self, numbers: &[usize]) {
        for &number in numbers {
            let site = &mut self.sites[number];
            site.holders -= 1;
            if site.holders == 0 {
                site.mode = None;
            }
        }
    }

    pub fn subscribe(&mut self, numbers: &[usize]) {
        for &number in numbers {
            self.sites[number].subscribers += 1;
        }
    }

    pub fn ignore(&mut self, numbers: &[usize]) {
        for &number in numbers {
            self.sites[number].subscribers -= 1;
        }
    }

    pub fn enable(&mut self, numbers: &[usize]) {
        for &number in numbers {
            self.sites[number].enable(true);
        }
    }

    /// The numbers of all that anything holds.
    pub fn all(&self) -> Vec<usize> {
        let held = |number: &usize| self.sites[*number].holders > 0;
        (0..self.sites.len()).filter(held).collect()
    }

    /// All that anything holds.
    pub fn held(&self) -> Vec<SiteKey> {
        self.keys(&self.all())
    }
}

impl Site {
    /// One more of the site's traces is on, or one fewer.
    pub fn enable(&mut self, on: bool) {
        match on {
            true => self.enabled += 1,
            false => self.enabled -= 1,
        }
    }
}
