//! Triggers: what is to happen when a place is met.

use std::fmt;

use anyhow::{Context, Result, bail, ensure};
use nopal_analysis::values::{Condition, Needs};

use crate::engine::Place::Names;
use crate::engine::{Awaited, Detail, Engine, Moment, SiteKey, Trigger};
use crate::grammar::{Command, parse, quoted};
use crate::state::{Control, found_or_waiting, marker_exists, refusals};
use crate::what::{What, word};

/// Where a trigger waits, as it is written.
#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    Functions {
        what: What,
        moment: Moment,
    },
    /// By its name: a glob.
    Marker(String),
    Probe(String),
}

/// What a trigger does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Start,
    Stop,
    Switch { name: String, on: bool },
    Snapshot,
    Mark,
    Count,
    Detach,
}

/// `when PLACE if CONDITION do ACTION`
#[derive(Clone, Debug, PartialEq)]
pub struct When {
    pub place: Place,
    pub condition: Option<Condition>,
    pub action: Action,
}

/// A trigger of a session.
pub(crate) struct Waiting {
    pub name: String,
    pub when: When,
    /// The functions that it means: numbers in [`crate::sites::Sites`].
    pub sites: Vec<usize>,
    /// Why it could not do the last time what it is to do.
    pub failed: Option<String>,
}

impl When {
    /// What must be recorded of the calls of its functions.
    fn detail(&self) -> Detail {
        let needs = self.condition.as_ref().map(|condition| condition.needs);
        let needs = needs.unwrap_or_default();
        let at_return = match &self.place {
            Place::Functions { moment, .. } => *moment == Moment::Return,
            Place::Marker(_) | Place::Probe(_) => false,
        };
        Detail {
            arguments: needs.arguments || needs.result,
            ends: at_return,
        }
    }

    /// Refuses a condition that nothing at such a place can meet.
    fn check_condition(&self) -> Result<()> {
        let Some(condition) = &self.condition else {
            return Ok(());
        };
        let needs = condition.needs;
        let Place::Functions { what, moment } = &self.place else {
            ensure!(
                needs == Needs::default(),
                "a marker or a probe has its fields and hits, and no arguments, result or duration"
            );
            return Ok(());
        };
        if let Some(field) = condition.fields().next() {
            bail!(
                "a function has no {}, but arg1 to arg6, result, duration, self and hits",
                quoted(field)
            );
        }
        ensure!(
            *moment == Moment::Return || !(needs.result || needs.end),
            "what {} asks for is known when the function returns: when return {what}",
            quoted(&condition.to_string())
        );
        Ok(())
    }
}

/// Refuses the command of a trigger that no process could make right. Gives the name of the marker that it waits for,
/// if it waits for one.
pub fn marker_awaited(line: &str) -> Result<Option<String>> {
    let Some(Command::When { when, .. }) = parse(line).map_err(anyhow::Error::msg)? else {
        return Ok(None);
    };
    when.check_condition()
        .with_context(|| quoted(line.trim()))?;
    Ok(match when.place {
        Place::Marker(name) => Some(name),
        _ => None,
    })
}

/// The functions that the trigger of a command needs, of which it gives the names, and what of their calls: so they can
/// be recorded from a program's first instruction on.
pub fn needed(line: &str) -> (Vec<String>, Detail) {
    let Ok(Some(Command::When { when, .. })) = parse(line) else {
        return (Vec::new(), Detail::default());
    };
    let names = match &when.place {
        Place::Functions { what, .. } => what.parts().iter(),
        _ => [].iter(),
    };
    let plain = |name: &&String| !name.contains(['*', '?', '[', '{']);
    let names = names.filter_map(|part| match &part.place {
        Names(name) if !part.excluded => Some(name),
        _ => None,
    });
    (names.filter(plain).cloned().collect(), when.detail())
}

impl Control {
    pub(crate) fn wait(
        &mut self,
        engine: &mut dyn Engine,
        when: When,
        name: Option<String>,
    ) -> Result<String> {
        let when = When {
            place: match when.place {
                Place::Functions { what, moment } => Place::Functions {
                    what: crate::state::portable(engine, what),
                    moment,
                },
                event => event,
            },
            ..when
        };
        let name = name.unwrap_or_else(|| self.free_name());
        if let Some(waiting) = self.triggers.iter().find(|one| one.name == name) {
            ensure!(
                waiting.when == when,
                "there is a trigger {} already: when {}",
                quoted(&name),
                waiting.when
            );
            return Ok(String::new());
        }
        self.check(engine, &when)?;
        let mut told = String::new();
        let mut sites = Vec::new();
        if let Place::Functions { what, .. } = &when.place {
            let detail = when.detail().and(engine.detail());
            let (trace, refused) = self.hold(engine, what.clone(), String::new(), detail)?;
            (sites, told) = (trace.sites, refused);
        }
        let waiting = Waiting {
            name,
            when,
            sites,
            failed: None,
        };
        self.sites.listen(&waiting.sites);
        let set = self
            .settle(engine, &waiting.sites)
            .and_then(|()| engine.set_trigger(self.trigger(&waiting)));
        if let Err(error) = set {
            self.leave(engine, &waiting)?;
            return Err(error);
        }
        self.triggers.push(waiting);
        Ok(told)
    }

    /// Whether a command could be obeyed, as far as that can be known without touching a process: of those that set
    /// triggers, nearly all.
    pub fn could_obey(&self, engine: &mut dyn Engine, line: &str) -> Result<()> {
        let command = parse(line).map_err(anyhow::Error::msg)?;
        match command {
            Some(Command::When { when, .. }) => self
                .check(engine, &when)
                .with_context(|| quoted(line.trim())),
            _ => Ok(()),
        }
    }

    fn check(&self, engine: &mut dyn Engine, when: &When) -> Result<()> {
        if let Place::Functions { what, .. } = &when.place {
            let found = found_or_waiting(engine, what)?;
            ensure!(
                found.is_empty() || found.iter().any(|site| site.refused.is_none()),
                "{}",
                refusals(&found, &[])
            );
        }
        if let Place::Marker(name) = &when.place {
            marker_exists(engine, name)?;
        }
        if let Place::Probe(name) = &when.place {
            self.probe_at(name)?;
        }
        when.check_condition()?;
        match &when.action {
            Action::Switch { name, .. } => self.at(name).map(|_| ()),
            Action::Snapshot => engine.may_snapshot(),
            Action::Detach => engine.may_detach(),
            _ => Ok(()),
        }
    }

    pub(crate) fn wait_no_more(&mut self, engine: &mut dyn Engine, name: &str) -> Result<String> {
        let at = self.triggers.iter().position(|one| one.name == name);
        let Some(at) = at else {
            let names: Vec<&str> = self.triggers.iter().map(|one| &*one.name).collect();
            match names[..] {
                [] => bail!("there is no trigger {}: none has been set", quoted(name)),
                _ => bail!(
                    "there is no trigger {}, only {}",
                    quoted(name),
                    names.join(", ")
                ),
            }
        };
        let waiting = self.triggers.remove(at);
        if let Err(error) = self.leave(engine, &waiting) {
            self.triggers.insert(at, waiting);
            return Err(error);
        }
        Ok(String::new())
    }

    /// Gives up the functions of a trigger that no trace holds. Where that fails, the trigger stays.
    fn leave(&mut self, engine: &mut dyn Engine, waiting: &Waiting) -> Result<()> {
        self.sites.ignore(&waiting.sites);
        let left = self
            .settle(engine, &waiting.sites)
            .and_then(|()| engine.remove(&self.sites.held_once(&waiting.sites)));
        if let Err(error) = left {
            self.sites.listen(&waiting.sites);
            self.settle(engine, &waiting.sites)?;
            return Err(error);
        }
        self.sites.release(&waiting.sites);
        engine.remove_trigger(&waiting.name);
        Ok(())
    }

    /// Does what a trigger is to do, which has fired at this value of the counter. `told`: what it met, for people.
    pub fn fired(&mut self, engine: &mut dyn Engine, name: &str, counter: u64, told: &str) {
        let Some(waiting) = self.triggers.iter().find(|one| one.name == name) else {
            return;
        };
        let action = waiting.when.action.clone();
        let done = match action {
            Action::Start => self.start(engine).map(|_| ()),
            Action::Stop => self.stop(engine).map(|_| ()),
            Action::Switch { name, on } => {
                self.at(&name).and_then(|at| self.switch(engine, at, on))
            }
            Action::Mark => engine.write_text(&format!("{}: {told}", word(name)), Some(counter)),
            Action::Detach => engine.detach(),
            // Snapshots are taken by who collects the records, at once.
            Action::Snapshot | Action::Count => Ok(()),
        };
        let waiting = self.triggers.iter_mut().find(|one| one.name == name);
        if let (Err(error), Some(waiting)) = (done, waiting) {
            waiting.failed = Some(format!("{error:#}"));
        }
    }

    /// Finds the functions of all triggers again.
    pub(crate) fn refresh_triggers(&mut self, engine: &mut dyn Engine) -> Result<()> {
        for at in 0..self.triggers.len() {
            let Place::Functions { what, .. } = &self.triggers[at].when.place else {
                continue;
            };
            let found = crate::state::find(engine, what)?;
            let known = self.triggers[at].sites.clone();
            let new = self.new_sites(&found, &known);
            let detail = self.triggers[at].when.detail().and(engine.detail());
            self.sites.hold(&new, detail);
            self.sites.listen(&new);
            self.triggers[at].sites.extend(new);
        }
        Ok(())
    }

    /// Tells the engine of all triggers again: sites have been inserted.
    pub(crate) fn set_triggers(&mut self, engine: &mut dyn Engine) -> Result<()> {
        for waiting in &self.triggers {
            engine.set_trigger(self.trigger(waiting))?;
        }
        Ok(())
    }

    fn trigger(&self, waiting: &Waiting) -> Trigger {
        let spot = match &waiting.when.place {
            Place::Functions { moment, .. } => {
                let keys: Vec<SiteKey> = self.sites.keys(&waiting.sites);
                Awaited::Functions(keys, *moment)
            }
            Place::Marker(name) | Place::Probe(name) => Awaited::Event(name.clone()),
        };
        Trigger {
            name: waiting.name.clone(),
            spot,
            condition: waiting.when.condition.clone(),
            place: waiting.when.place.to_string(),
            action: waiting.when.action.clone(),
        }
    }

    /// The lowest number that is no trigger's name.
    fn free_name(&self) -> String {
        let taken = |name: &String| self.triggers.iter().any(|one| one.name == *name);
        let mut names = (1u32..).map(|number| number.to_string());
        names.find(|name| !taken(name)).unwrap_or_default()
    }
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Functions { what, moment } => match moment {
                Moment::Entry => write!(out, "{what}"),
                Moment::Return => write!(out, "return {what}"),
            },
            Place::Marker(name) => write!(out, "mark {}", word(name)),
            Place::Probe(name) => write!(out, "probe {}", word(name)),
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Action::Start => "start",
            Action::Stop => "stop",
            Action::Switch { name, on } => {
                let on = if *on { "on" } else { "off" };
                return write!(out, "trace {} {on}", word(name));
            }
            Action::Snapshot => "snapshot",
            Action::Mark => "mark",
            Action::Count => "count",
            Action::Detach => "detach",
        })
    }
}

impl fmt::Display for When {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.place)?;
        if let Some(condition) = &self.condition {
            write!(out, " if {condition}")?;
        }
        write!(out, " do {}", self.action)
    }
}
