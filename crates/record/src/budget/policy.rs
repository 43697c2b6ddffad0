//! Chooses the functions that are recorded within a budget. A pure function of measurements: it knows no clock and no
//! process.

use nopal_analysis::sort;
use std::collections::HashMap;

/// Parts of the budget: the cost above which less is recorded, the cost that then remains, and the cost below which
/// more is recorded again. The distances between them keep functions from going to and fro.
const MOST: f64 = 0.8;
const THEN: f64 = 0.65;
const ROOM: f64 = 0.6;
/// The part of this that timed functions may take where counting the others takes more than they leave.
const TIMED: f64 = 0.5;
/// For functions that are counted again to find out whether there is room for them now, and for pauses of all threads.
const TRIALS: f64 = 0.1;
const PAUSES: f64 = 0.05;
/// Trials may use their unused time from before, up to this many seconds of it.
const TRIALS_SAVED: f64 = 60.0;

/// The least cost of counting a call, as a part of that of recording it: 2 ns of 27 in python3, in which all is called that
/// calls little.
pub const COUNTING: f64 = 0.075;

/// Costs are means over about so many seconds of processor time, of which the begin of a program, whose functions are never
/// called again, is a small part.
const OF_LATE: f64 = 0.2;
/// Functions that together cost no more than this part of the budget are recorded again even where there is no room.
const NEXT_TO_NOTHING: f64 = 0.01;
/// A function's cost is divided by its calls' worth to this power: calls of ten times the worth may cost a quarter
/// more.
const OF_WORTH: f64 = 0.1;

/// Seconds. Nothing is recorded again sooner after less was recorded, and no jump is removed sooner.
const QUIET: f64 = 1.0;
const SETTLED: f64 = 0.1;
/// Between pauses of all threads, at least; and where one costs less than it saves.
const APART: f64 = 1.0;
const APART_TO_SAVE: f64 = 0.25;
/// A function of which more was recorded for less than `SHORT` was raised too soon: it waits twice as long the next time, and
/// half as long for each `STAYED` that it stayed.
const SHORT: f64 = 60.0;
const STAYED: f64 = 300.0;
const MOST_FAILED: u32 = 8;

/// The worth of a call that is too long to be measured, in nanoseconds.
const LONG: f64 = 1e6;

/// The states of a function under a budget, by how much it is spared, from least to most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    Timed,
    /// Its calls are counted.
    Counted,
    /// Its jump is out of the text. All threads stop to take it out, and to put it back.
    Off,
}

/// The cost of a function's calls since the last look.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub site: u32,
    /// In seconds of processor time: of those that were recorded.
    pub recorded: f64,
    /// The same of those that were counted, if they had been recorded.
    pub counted: f64,
    /// The worth of a call: its mean time and how far calls differ from that, together, in nanoseconds.
    pub worth: Option<f64>,
    pub may_be_spared: bool,
}

/// What recording and counting have taken, in seconds, where counting a call takes this part of recording it.
pub fn costs(loads: &[Load], counting: f64) -> [f64; 2] {
    let recorded = loads.iter().map(|load| load.recorded).sum();
    let counted: f64 = loads.iter().map(|load| load.counted).sum();
    [recorded, counted * counting]
}

/// The facts that are kept about a function that is not timed: see [`Policy::kept`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kept {
    /// Counted or off.
    pub state: State,
    pub share: f64,
    pub worth: f64,
    pub failed: u32,
}

/// All in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    pub now: f64,
    /// The processor time that the processes used since the last look, with that of tracing.
    pub used: f64,
    /// The cost of counting a call, as a part of that of recording it.
    pub counting: f64,
    pub loads: &'a [Load],
}

struct Site {
    state: State,
    /// The cost of recording it now, or if it were recorded, as a part of the processor time that the processes use
    /// without: of late, and the most, which is forgotten in about the time that it waits.
    share: f64,
    most: f64,
    worth: f64,
    may_be_spared: bool,
    /// The time at which it was in another state last.
    since: f64,
    /// The time at which more of it was recorded again, if not less since.
    raised: Option<f64>,
    /// The number of times that this was for a short time only, less those that it was for long.
    failed: u32,
}

impl Site {
    fn new(state: State, share: f64, worth: f64) -> Site {
        Site {
            state,
            share,
            most: share,
            worth,
            may_be_spared: true,
            since: 0.0,
            raised: None,
            failed: 0,
        }
    }

    fn wait(&self) -> f64 {
        QUIET * f64::from(1 << self.failed)
    }

    fn is_due(&self, now: f64) -> bool {
        now - self.since >= self.wait()
    }

    /// Begins a look, which counts for `part` of the mean, and is this many seconds after the last one.
    fn fade(&mut self, part: f64, seconds: f64) {
        self.share -= self.share * part;
        // The mean of a program that is nearly idle lasts longer.
        self.most = (self.most * (-2.0 * seconds / self.wait()).exp()).max(self.share);
    }

    fn cost(&mut self, share: f64) {
        self.share += share;
        self.most = self.most.max(self.share);
    }

    fn turn(&mut self, state: State, now: f64) {
        if state < self.state {
            self.raised = Some(now);
        } else if let Some(raised) = self.raised.take() {
            let lasted = now - raised;
            self.failed = match lasted < SHORT {
                true => (self.failed + 1).min(MOST_FAILED),
                false => self.failed.saturating_sub((lasted / STAYED) as u32),
            };
        }
        self.since = now;
        self.state = state;
    }
}

pub struct Policy {
    budget: f64,
    /// As of the last look.
    counting: f64,
    sites: HashMap<u32, Site>,
    /// The cost of tracing of late, as a part of the processor time without it.
    spent: f64,
    looked: f64,
    /// Seconds of processor time that trials may take.
    saved: f64,
    lowered: f64,
    last_pause: f64,
    /// Later by what earlier ones were too soon.
    next_pause: f64,
    /// The time between pauses, as long as they take, and the length of the last one.
    apart: f64,
    pause: f64,
    /// The processor time that counting has taken since, beyond what was left for it.
    excess: f64,
    /// Counting cost too much at the last look, too.
    overruns: bool,
    /// Where the budget cannot be held.
    pub too_much: Option<TooMuch>,
}

/// The function with most cost that may not be spared, its cost, and that of all of these, as parts of the processor time
/// without it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TooMuch {
    pub site: u32,
    pub share: f64,
    pub named: f64,
}

impl Policy {
    pub fn new(budget: f64) -> Policy {
        Policy {
            budget,
            counting: COUNTING,
            sites: HashMap::new(),
            spent: 0.0,
            looked: 0.0,
            saved: 0.0,
            lowered: f64::NEG_INFINITY,
            last_pause: f64::NEG_INFINITY,
            next_pause: f64::NEG_INFINITY,
            apart: APART,
            pause: 0.0,
            excess: 0.0,
            overruns: false,
            too_much: None,
        }
    }

    pub fn set_budget(&mut self, budget: f64) {
        self.budget = budget;
    }

    /// The present cost of tracing, as a part of the processor time without it.
    pub fn spent(&self) -> f64 {
        self.spent
    }

    pub fn state(&self, number: u32) -> State {
        self.sites
            .get(&number)
            .map_or(State::Timed, |site| site.state)
    }

    fn in_state(&self, state: State) -> impl Iterator<Item = (u32, &Site)> {
        let sites = self.sites.iter().map(|(number, site)| (*number, site));
        sites.filter(move |(_, site)| site.state == state)
    }

    /// The functions that are counted or off.
    pub fn untimed(&self) -> impl Iterator<Item = (u32, State)> {
        let counted = self.in_state(State::Counted);
        let untimed = counted.chain(self.in_state(State::Off));
        untimed.map(|(number, site)| (number, site.state))
    }

    /// A function begins in the state that it had when another session of the program ended.
    pub fn begin(&mut self, number: u32, kept: Kept) {
        let mut site = Site::new(kept.state, kept.share, kept.worth);
        site.failed = kept.failed.min(MOST_FAILED);
        // Another program's session may have known it.
        self.sites.entry(number).or_insert(site);
    }

    /// The functions that are not timed, and the facts about them for the policy of another session.
    pub fn kept(&self) -> impl Iterator<Item = (u32, Kept)> {
        let sites = self.sites.iter();
        let untimed = sites.filter(|(_, site)| site.state != State::Timed);
        untimed.map(|(number, site)| {
            let kept = Kept {
                state: site.state,
                share: site.share,
                worth: site.worth,
                failed: site.failed,
            };
            (*number, kept)
        })
    }

    /// All threads were stopped for this many seconds to make the changes of the last look.
    pub fn paused(&mut self, now: f64, pause: f64) {
        self.apart = (pause / (PAUSES * self.budget)).max(APART);
        self.next_pause = self.next_pause.max(now) + self.apart;
        self.last_pause = now;
        self.pause = pause;
        self.excess = 0.0;
    }

    /// Whether any function is to change its state.
    pub fn look(&mut self, look: &Look) -> bool {
        self.counting = look.counting;
        let traced = costs(look.loads, look.counting).iter().sum::<f64>();
        // Part of the time is left, however much of it was tracing.
        let alone = (look.used - traced).max(look.used * 0.05).max(1e-9);
        let part = 1.0 - (-look.used / OF_LATE).exp();
        self.measure(look, alone, part);
        self.spent += part * (traced / alone - self.spent);
        self.saved += look.used * self.budget * TRIALS;
        self.saved = self.saved.min(self.budget * TRIALS * TRIALS_SAVED);
        let (counted, mut changes) = self.remove(look.now, alone);
        let timed = self.timed();
        changes |= match timed + counted > self.budget * MOST {
            true => self.lower(timed, counted, look.now),
            false => {
                self.too_much = None;
                self.raise(timed + counted, look)
            }
        };
        self.looked = look.now;
        changes
    }

    /// Notes the actual or possible costs of functions' calls, in this part of the processor time of late.
    fn measure(&mut self, look: &Look, alone: f64, part: f64) {
        let watched = self.sites.values_mut();
        let watched = watched.filter(|site| site.state != State::Off);
        watched.for_each(|site| site.fade(part, look.now - self.looked));
        for load in look.loads {
            let site = self.sites.entry(load.site).or_insert_with(|| {
                let mut site = Site::new(State::Timed, 0.0, LONG);
                site.since = look.now;
                site
            });
            site.may_be_spared = load.may_be_spared;
            if !site.may_be_spared && site.state != State::Timed {
                // Somebody has named it since.
                site.turn(State::Timed, look.now);
            }
            if site.state == State::Off {
                // Calls that came in late cost nothing more.
                continue;
            }
            site.cost((load.recorded + load.counted) / alone * part);
            if let Some(worth) = load.worth {
                site.worth = worth;
            }
        }
    }

    /// Removes the jumps of functions that are called most, where counting takes more than the timed ones leave it.
    /// Returns the cost of counting the remaining ones, and whether any go.
    ///
    /// `alone`: the processor time since the last look, without tracing. Where counting has overrun by as much as a pause
    /// takes, the next one need not wait for its distance: so both together take at most twice the least.
    fn remove(&mut self, now: f64, alone: f64) -> (f64, bool) {
        let named: f64 = self.named().map(|(_, site)| site.share).sum();
        let timed = self.timed();
        let counted = self.in_state(State::Counted);
        let mut counted: Vec<(u32, f64)> = counted
            .map(|(number, site)| (number, site.share * self.counting))
            .collect();
        let mut cost: f64 = counted.iter().map(|(_, cost)| cost).sum();
        let left =
            |part: f64| self.budget * part - named.max(timed.min(self.budget * part * TIMED));
        // Once may be by chance: a look that comes late sees calls of a longer time than that of the processor.
        let overran = std::mem::replace(&mut self.overruns, cost > left(MOST));
        if !self.overruns {
            return (cost, false);
        }
        self.excess += (cost - left(THEN).max(0.0)) * alone;
        let pays = self.excess >= self.pause && now >= self.last_pause + APART_TO_SAVE;
        sort::by(&mut counted, |a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        counted.retain(|(_, share)| {
            let goes = cost > left(THEN);
            // The cost of a function that waits for a pause is not held against the others.
            if goes {
                cost -= share;
            }
            goes
        });
        let is_settled = |(number, _): &(u32, f64)| now - self.sites[number].since >= SETTLED;
        let (settled, others): (Vec<_>, Vec<_>) = counted.into_iter().partition(is_settled);
        let sum = |sites: &[(u32, f64)]| sites.iter().map(|(_, share)| share).sum::<f64>();
        // A pause for less would delay that for the others.
        let is_worth = sum(&settled) > sum(&others);
        let may_pause = overran && is_worth && (now >= self.next_pause || pays);
        if !may_pause {
            return (cost, false);
        }
        for (number, _) in settled {
            let site = self.sites.get_mut(&number).expect("it is counted");
            site.turn(State::Off, now);
        }
        self.lowered = now;
        (cost, true)
    }

    /// The cost of recording the timed functions.
    fn timed(&self) -> f64 {
        let timed = self.in_state(State::Timed);
        timed.map(|(_, site)| site.share).sum()
    }

    /// Functions that are timed and may not be spared.
    fn named(&self) -> impl Iterator<Item = (u32, &Site)> {
        let timed = self.in_state(State::Timed);
        timed.filter(|(_, site)| !site.may_be_spared)
    }

    /// Has functions counted, those first whose recording costs most for their worth, until the others have room.
    fn lower(&mut self, mut timed: f64, mut counted: f64, now: f64) -> bool {
        let all = self.named().map(|(_, site)| site.share).sum();
        let named = self.named().max_by(|a, b| a.1.share.total_cmp(&b.1.share));
        let named = named.map(|(number, site)| TooMuch {
            site: number,
            share: site.share,
            named: all,
        });
        let fits = |timed: f64, counted: f64| {
            let then = self.budget * THEN;
            timed + counted <= then || timed <= then * TIMED
        };
        let sites = self.in_state(State::Timed);
        let sites = sites.filter(|(_, site)| site.may_be_spared && site.share > 0.0);
        let mut lowered: Vec<(u32, f64, f64)> = sites
            .map(|(number, site)| {
                let dear = site.share / site.worth.max(1.0).powf(OF_WORTH);
                (number, site.share, dear)
            })
            .collect();
        sort::by(&mut lowered, |a, b| b.2.total_cmp(&a.2).then(a.0.cmp(&b.0)));
        lowered.retain(|(_, share, _)| {
            let goes = !fits(timed, counted);
            if goes {
                timed -= share;
                counted += share * self.counting;
            }
            goes
        });
        // The last one may have made more room than it had to.
        lowered.retain(|(_, share, _)| {
            let (more, less) = (timed + share, counted - share * self.counting);
            let stays = fits(more, less);
            if stays {
                (timed, counted) = (more, less);
            }
            !stays
        });
        self.too_much = named.filter(|_| timed > self.budget * MOST);
        for (number, ..) in &lowered {
            let site = self.sites.get_mut(number).expect("it is timed");
            site.turn(State::Counted, now);
        }
        if !lowered.is_empty() {
            self.lowered = now;
        }
        !lowered.is_empty()
    }

    /// Records more of functions for which there is room, and counts one more if its cost may have fallen since.
    fn raise(&mut self, cost: f64, look: &Look) -> bool {
        let now = look.now;
        if now - self.lowered < QUIET {
            return false;
        }
        let mut room = self.budget * ROOM - cost.max(self.spent);
        let may_pause = now >= self.next_pause;
        let mut counted = match may_pause {
            true => self.raise_from(State::Off, &mut room, now),
            false => Vec::new(),
        };
        room = room.max(self.budget * NEXT_TO_NOTHING);
        let timed = self.raise_from(State::Counted, &mut room, now);
        // The one that has waited longest, if its former cost can be afforded until it may be off again.
        if may_pause && counted.is_empty() {
            let due = self.in_state(State::Off);
            let due = due.filter(|(_, site)| site.is_due(now));
            let longest = due.min_by(|a, b| a.1.since.total_cmp(&b.1.since).then(a.0.cmp(&b.0)));
            let rate = look.used / (now - self.looked).max(1e-3);
            if let Some((number, site)) = longest {
                let takes = site.share * self.counting * rate * self.apart;
                if takes <= self.saved {
                    self.saved -= takes;
                    counted.push(number);
                }
            }
        }
        let any = !timed.is_empty() || !counted.is_empty();
        for (numbers, state) in [(timed, State::Timed), (counted, State::Counted)] {
            for number in numbers {
                let site = self.sites.get_mut(&number).expect("it is known");
                site.turn(state, now);
            }
        }
        any
    }

    /// The functions in a state of which more can be recorded, the cheapest first; they take their cost from the room.
    fn raise_from(&self, state: State, room: &mut f64, now: f64) -> Vec<u32> {
        let part = match state {
            State::Off => self.counting,
            _ => 1.0 - self.counting,
        };
        let due = self.in_state(state);
        let mut due: Vec<(u32, f64)> = due
            .filter(|(_, site)| site.is_due(now))
            .map(|(number, site)| (number, site.most * part))
            .collect();
        sort::by(&mut due, |a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
        due.retain(|(_, share)| {
            let fits = *share <= *room;
            if fits {
                *room -= share;
            }
            fits
        });
        due.into_iter().map(|(number, _)| number).collect()
    }
}
