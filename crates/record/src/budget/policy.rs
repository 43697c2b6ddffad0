//! Chooses the functions that are recorded within a budget. A pure function of what was measured: it knows no clock and no process.

use std::collections::HashMap;

/// Parts of the budget: what recording may cost before functions are switched off, and what it costs then; below what
/// functions are switched on again. The distances are what keeps functions from going to and fro.
const MOST_RECORDED: f64 = 0.8;
const RECORDED_THEN: f64 = 0.65;
const ROOM: f64 = 0.6;
/// The same for the jumps of functions that are switched off.
const MOST_JUMPS: f64 = 0.2;
const JUMPS_THEN: f64 = 0.1;
/// For functions that are recorded again to find out whether there is room for them now, and for pauses of all threads.
const TRIALS: f64 = 0.1;
const PAUSES: f64 = 0.05;
/// Trials may use what they have not used before, so many seconds of it.
const TRIALS_SAVED: f64 = 60.0;

/// The cost of the jumps of a call that is switched off, as a part of that of recording it: 1.5 ns of 27 in python3,
/// in which all is called that calls little.
pub const JUMPS: f64 = 0.06;

/// Seconds. Nothing is switched on sooner after something was switched off, and no jump is removed sooner.
const QUIET: f64 = 1.0;
const SETTLED: f64 = 0.2;
/// Between pauses of all threads, at least.
const APART: f64 = 1.0;
/// A function that is recorded again for less was switched on too soon: it waits twice as long the next time, and half
/// as long for each such time that it was recorded.
const SHORT: f64 = 60.0;
const MOST_FAILED: u32 = 8;

/// What a call tells, in nanoseconds, where it is too long to be measured.
const LONG: f64 = 1e6;

/// What is done for the sake of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Timed,
    /// Switched off: its calls pay two jumps.
    Switched,
    /// Its jump is out of the text, too. All threads stop to take it out, and to put it back.
    Removed,
}

/// What the recording of a function took since the last look.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub site: u32,
    /// In seconds of processor time.
    pub cost: f64,
    /// What a call tells: its mean time and how far calls differ from that, together, in nanoseconds.
    pub worth: Option<f64>,
    pub may_be_off: bool,
}

/// What is known of a function that is off: see [`Policy::kept`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kept {
    pub share: f64,
    pub worth: f64,
    pub failed: u32,
}

/// All in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    pub now: f64,
    /// The processor time that the processes used since the last look, with that of recording.
    pub used: f64,
    pub loads: &'a [Load],
}

struct Site {
    state: State,
    /// What its recording adds to the processor time that the processes use without, while it is timed.
    share: f64,
    worth: f64,
    since: f64,
    /// How often it was timed again for a short time only, less the times that it was for long.
    failed: u32,
    was_off: bool,
}

impl Site {
    fn wait(&self) -> f64 {
        QUIET * f64::from(1 << self.failed)
    }

    fn turn(&mut self, state: State, now: f64) {
        if state == State::Switched && self.state == State::Timed {
            let lasted = (now - self.since) / SHORT;
            self.failed = match self.was_off && lasted < 1.0 {
                true => (self.failed + 1).min(MOST_FAILED),
                false => self.failed.saturating_sub(lasted as u32),
            };
            self.was_off = true;
        }
        // A jump may be removed, and the function waits on.
        if state == State::Timed || self.state == State::Timed {
            self.since = now;
        }
        self.state = state;
    }
}

pub struct Policy {
    budget: f64,
    sites: HashMap<u32, Site>,
    /// The cost of recording of late, as a part of the processor time without it.
    recorded: f64,
    /// The same of the jumps of functions that are off, as they were when they were timed.
    jumps: f64,
    /// Seconds of processor time that trials may take.
    saved: f64,
    switched_off: f64,
    next_pause: f64,
    /// The function with most cost that may not be off, and its share, where the budget cannot be held.
    pub too_much: Option<(u32, f64)>,
}

impl Policy {
    pub fn new(budget: f64) -> Policy {
        Policy {
            budget,
            sites: HashMap::new(),
            recorded: 0.0,
            jumps: 0.0,
            saved: 0.0,
            switched_off: f64::NEG_INFINITY,
            next_pause: f64::NEG_INFINITY,
            too_much: None,
        }
    }

    pub fn set_budget(&mut self, budget: f64) {
        self.budget = budget;
    }

    /// What tracing adds now to the processor time without it.
    pub fn spent(&self) -> f64 {
        self.recorded + self.jumps
    }

    /// The functions that are off.
    pub fn off(&self) -> impl Iterator<Item = (u32, State)> {
        let sites = self.sites.iter();
        let off = sites.filter(|(_, site)| site.state != State::Timed);
        off.map(|(number, site)| (*number, site.state))
    }

    /// A function begins off, as it was when another session of the program ended.
    pub fn begin_off(&mut self, number: u32, kept: Kept) {
        let site = Site {
            state: State::Switched,
            share: kept.share,
            worth: kept.worth,
            since: 0.0,
            failed: kept.failed.min(MOST_FAILED),
            was_off: true,
        };
        self.sites.insert(number, site);
    }

    /// The functions that are off, and what the policy of another session has to know of them.
    pub fn kept(&self) -> impl Iterator<Item = (u32, Kept)> {
        let sites = self.sites.iter();
        let off = sites.filter(|(_, site)| site.state != State::Timed);
        off.map(|(number, site)| {
            let kept = Kept {
                share: site.share,
                worth: site.worth,
                failed: site.failed,
            };
            (*number, kept)
        })
    }

    /// All threads were stopped for so many seconds to bring about what the last look wanted.
    pub fn paused(&mut self, now: f64, pause: f64) {
        let apart = pause / (PAUSES * self.budget);
        self.next_pause = now + apart.max(APART);
    }

    /// Whether any function is to change its state.
    pub fn look(&mut self, look: &Look) -> bool {
        let recorded: f64 = look.loads.iter().map(|load| load.cost).sum();
        // However much of it was recording.
        let alone = (look.used - recorded).max(look.used * 0.02).max(1e-9);
        let shares = self.measure(look.loads, alone, look.now);
        let now: f64 = shares.iter().map(|(_, share, _)| share).sum();
        self.recorded += 0.3 * (now - self.recorded);
        self.saved += look.used * self.budget * TRIALS;
        self.saved = self.saved.min(self.budget * TRIALS * TRIALS_SAVED);
        let mut changes = match now > self.budget * MOST_RECORDED {
            true => self.switch_off(shares, now, look.now),
            false => {
                self.too_much = None;
                self.switch_on(now, look)
            }
        };
        changes |= self.remove(look.now);
        changes
    }

    /// The shares of functions that are timed, and which of these may be off.
    fn measure(&mut self, loads: &[Load], alone: f64, now: f64) -> Vec<(u32, f64, bool)> {
        let timed = self.sites.values_mut();
        timed
            .filter(|site| site.state == State::Timed)
            .for_each(|site| site.share *= 0.5);
        let mut shares = Vec::with_capacity(loads.len());
        for load in loads {
            let share = load.cost / alone;
            let site = self.sites.entry(load.site).or_insert(Site {
                state: State::Timed,
                share: share * 0.5,
                worth: load.worth.unwrap_or(LONG),
                since: now,
                failed: 0,
                was_off: false,
            });
            if site.state != State::Timed {
                // What came in late of one that is off by now costs nothing more.
                if load.may_be_off {
                    continue;
                }
                // Somebody has named it since.
                site.turn(State::Timed, now);
            }
            site.share += share * 0.5;
            if let Some(worth) = load.worth {
                site.worth = worth;
            }
            shares.push((load.site, share, load.may_be_off));
        }
        shares
    }

    /// Switches off those whose calls cost most for what they tell, until the others have room.
    fn switch_off(&mut self, mut shares: Vec<(u32, f64, bool)>, mut cost: f64, now: f64) -> bool {
        let then = self.budget * RECORDED_THEN;
        let named = shares.iter().filter(|(_, _, may_be_off)| !may_be_off);
        let named = named.max_by(|a, b| a.1.total_cmp(&b.1));
        let named = named.map(|(site, share, _)| (*site, *share));
        shares.retain(|(_, _, may_be_off)| *may_be_off);
        let worth = |site: &u32| self.sites[site].worth.max(1.0);
        shares.sort_by(|a, b| (b.1 / worth(&b.0)).total_cmp(&(a.1 / worth(&a.0))));
        let mut off = Vec::new();
        for (site, share, _) in shares {
            if cost <= then {
                break;
            }
            cost -= share;
            off.push((site, share));
        }
        // The last one may have made more room than it had to.
        off.retain(|(_, share)| {
            let fits = cost + share <= then;
            cost += if fits { *share } else { 0.0 };
            !fits
        });
        self.too_much = named.filter(|_| cost > self.budget * MOST_RECORDED);
        for (number, share) in &off {
            let site = self.sites.get_mut(number).expect("it was measured");
            site.share = site.share.max(*share);
            site.turn(State::Switched, now);
        }
        if !off.is_empty() {
            self.switched_off = now;
        }
        !off.is_empty()
    }

    /// Switches on what there is room for, and one more if its cost may have fallen since.
    fn switch_on(&mut self, cost: f64, look: &Look) -> bool {
        if look.now - self.switched_off < QUIET {
            return false;
        }
        let mut room = self.budget * ROOM - cost.max(self.recorded);
        let may_pause = look.now >= self.next_pause;
        let is_due = |site: &Site| {
            let is_there = match site.state {
                State::Timed => false,
                State::Switched => true,
                State::Removed => may_pause,
            };
            is_there && look.now - site.since >= site.wait()
        };
        let sites = self.sites.iter();
        let due = sites.filter(|(_, site)| is_due(site));
        let mut due: Vec<(u32, f64, f64)> = due
            .map(|(number, site)| (*number, site.share, site.since))
            .collect();
        due.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
        let mut on = Vec::new();
        due.retain(|(number, share, _)| {
            let fits = *share <= room;
            if fits {
                room -= share;
                on.push(*number);
            }
            !fits
        });
        // The one that has waited longest, if what it took then can be afforded for the time of a look.
        if on.is_empty()
            && let Some((number, share, _)) = due.iter().min_by(|a, b| a.2.total_cmp(&b.2))
            && share * look.used <= self.saved
        {
            self.saved -= share * look.used;
            on.push(*number);
        }
        for number in &on {
            let site = self.sites.get_mut(number).expect("it is off");
            if site.state == State::Removed {
                self.next_pause = look.now + APART;
            }
            site.turn(State::Timed, look.now);
        }
        !on.is_empty()
    }

    /// Removes the jumps of functions that are off, where all of them together cost too much.
    fn remove(&mut self, now: f64) -> bool {
        let sites = self.sites.iter_mut();
        let mut switched: Vec<&mut Site> = sites
            .map(|(_, site)| site)
            .filter(|site| site.state == State::Switched)
            .collect();
        let jumps = |site: &Site| site.share * JUMPS;
        self.jumps = switched.iter().map(|site| jumps(site)).sum();
        if self.jumps <= self.budget * MOST_JUMPS || now < self.next_pause {
            return false;
        }
        switched.retain(|site| now - site.since >= SETTLED);
        switched.sort_by(|a, b| b.share.total_cmp(&a.share));
        let mut any = false;
        for site in switched {
            if self.jumps <= self.budget * JUMPS_THEN {
                break;
            }
            self.jumps -= jumps(site);
            site.turn(State::Removed, now);
            any = true;
        }
        if any {
            self.next_pause = now + APART;
        }
        any
    }
}
