//! The triggers of a session: what they need of the functions that they mean, and what they do.

use anyhow::{Context, Result, bail, ensure};
use nopal_abi::Capture;
use nopal_analysis::triggers::{Action, Event, Trigger};
use nopal_analysis::values::Needs;

use crate::engine::Engine;
use crate::grammar::{Command, parse};
use crate::selection::Location::Names;
use crate::selection::{FunctionSelection, word};
use crate::state::{Control, found_or_waiting, marker_exists, refusals};
use crate::syntax::quoted;

/// A trigger of the session.
pub(crate) struct ActiveTrigger {
    pub name: String,
    pub trigger: Trigger<FunctionSelection>,
    /// The functions that it means: numbers in [`crate::sites::Sites`].
    pub sites: Vec<usize>,
    /// Why its action failed the last time.
    pub failed: Option<String>,
}

/// The data to record of the calls of its functions.
fn capture(trigger: &Trigger<FunctionSelection>) -> Capture {
    let needs = trigger.condition.as_ref().map(|condition| condition.needs);
    let needs = needs.unwrap_or_default();
    Capture {
        arguments: needs.arguments || needs.result,
        ends: matches!(trigger.event, Event::Return(_)),
    }
}

/// Refuses a condition that can never hold there.
fn check_condition(trigger: &Trigger<FunctionSelection>) -> Result<()> {
    let Some(condition) = &trigger.condition else {
        return Ok(());
    };
    let needs = condition.needs;
    let Some(what) = trigger.event.functions() else {
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
        matches!(trigger.event, Event::Return(_)) || !(needs.result || needs.end),
        "what {} asks for is known when the function returns: when return {what}",
        quoted(&condition.to_string())
    );
    Ok(())
}

/// Refuses the command of a trigger that no process could make right. Gives the name of the marker that it waits for,
/// if it waits for one.
pub fn marker_awaited(line: &str) -> Result<Option<String>> {
    let Some(Command::SetTrigger { trigger, .. }) = parse(line).map_err(anyhow::Error::msg)? else {
        return Ok(None);
    };
    check_condition(&trigger).with_context(|| quoted(line.trim()))?;
    Ok(match trigger.event {
        Event::Marker(name) => Some(name),
        _ => None,
    })
}

/// The functions that the trigger of a command needs, of which it gives the names, and what of their calls: so they can
/// be recorded from a program's first instruction on.
pub fn needed(line: &str) -> (Vec<String>, Capture) {
    let Ok(Some(Command::SetTrigger { trigger, .. })) = parse(line) else {
        return (Vec::new(), Capture::default());
    };
    let names = trigger
        .event
        .functions()
        .map_or(&[][..], FunctionSelection::parts);
    let names = names.iter();
    let plain = |name: &&String| !name.contains(['*', '?', '[', '{']);
    let names = names.filter_map(|part| match &part.place {
        Names(name) if !part.excluded => Some(name),
        _ => None,
    });
    (names.filter(plain).cloned().collect(), capture(&trigger))
}

impl Control {
    pub(crate) fn set_trigger(
        &mut self,
        engine: &mut dyn Engine,
        trigger: Trigger<FunctionSelection>,
        name: Option<String>,
    ) -> Result<String> {
        let trigger = trigger.map(|what| crate::state::portable(engine, what));
        let name = name.unwrap_or_else(|| self.free_name());
        if let Some(active) = self.triggers.iter().find(|one| one.name == name) {
            ensure!(
                active.trigger == trigger,
                "there is a trigger {} already: {}",
                quoted(&name),
                written(&active.trigger)
            );
            return Ok(String::new());
        }
        self.check(engine, &trigger)?;
        let mut answer = String::new();
        let mut sites = Vec::new();
        if let Some(what) = trigger.event.functions() {
            let capture = capture(&trigger).and(engine.capture());
            let (trace, refused) = self.hold(engine, what.clone(), String::new(), capture)?;
            (sites, answer) = (trace.sites, refused);
        }
        let active = ActiveTrigger {
            name,
            trigger,
            sites,
            failed: None,
        };
        self.sites.subscribe(&active.sites);
        let set = self
            .settle(engine, &active.sites)
            .and_then(|()| self.look_for(engine, &active));
        if let Err(error) = set {
            self.leave(engine, &active)?;
            return Err(error);
        }
        self.triggers.push(active);
        Ok(answer)
    }

    /// Whether a command could be obeyed, as far as that can be known without touching a process: of those that set
    /// triggers, nearly all.
    pub fn could_obey(&self, engine: &mut dyn Engine, line: &str) -> Result<()> {
        let command = parse(line).map_err(anyhow::Error::msg)?;
        match command {
            Some(Command::SetTrigger { trigger, .. }) => self
                .check(engine, &trigger)
                .with_context(|| quoted(line.trim())),
            _ => Ok(()),
        }
    }

    fn check(&self, engine: &mut dyn Engine, trigger: &Trigger<FunctionSelection>) -> Result<()> {
        match &trigger.event {
            Event::Entry(what) | Event::Return(what) => {
                let found = found_or_waiting(engine, what)?;
                ensure!(
                    found.is_empty() || found.iter().any(|site| site.refused.is_none()),
                    "{}",
                    refusals(&found, &[])
                );
            }
            Event::Marker(name) => marker_exists(engine, name)?,
            Event::Probe(name) => drop(self.probe_at(name)?),
        }
        check_condition(trigger)?;
        match &trigger.action {
            Action::Switch { name, .. } => self.at(name).map(|_| ()),
            Action::Snapshot => engine.may_snapshot(),
            Action::Detach => engine.may_detach(),
            _ => Ok(()),
        }
    }

    pub(crate) fn remove_trigger(&mut self, engine: &mut dyn Engine, name: &str) -> Result<String> {
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
        let active = self.triggers.remove(at);
        if let Err(error) = self.leave(engine, &active) {
            self.triggers.insert(at, active);
            return Err(error);
        }
        Ok(String::new())
    }

    /// Gives up the functions of a trigger that no trace holds. Where that fails, the trigger stays.
    fn leave(&mut self, engine: &mut dyn Engine, active: &ActiveTrigger) -> Result<()> {
        self.sites.ignore(&active.sites);
        let left = self
            .settle(engine, &active.sites)
            .and_then(|()| engine.remove(&self.sites.held_once(&active.sites)));
        if let Err(error) = left {
            self.sites.subscribe(&active.sites);
            self.settle(engine, &active.sites)?;
            return Err(error);
        }
        self.sites.release(&active.sites);
        engine.remove_trigger(&active.name);
        Ok(())
    }

    /// Does what a trigger is to do, which has fired at this value of the counter. `answer`: what it met, for people.
    pub fn fired(&mut self, engine: &mut dyn Engine, name: &str, counter: u64, answer: &str) {
        let Some(active) = self.triggers.iter().find(|one| one.name == name) else {
            return;
        };
        let action = active.trigger.action.clone();
        let done = match action {
            Action::Start => self.start(engine).map(|_| ()),
            Action::Stop => self.stop(engine).map(|_| ()),
            Action::Switch { name, on } => {
                self.at(&name).and_then(|at| self.switch(engine, at, on))
            }
            Action::Mark => engine.write_text(&format!("{}: {answer}", word(name)), Some(counter)),
            Action::Detach => engine.detach(),
            // The thread that collects records takes snapshots itself, at once.
            Action::Snapshot | Action::Count => Ok(()),
        };
        let active = self.triggers.iter_mut().find(|one| one.name == name);
        if let (Err(error), Some(active)) = (done, active) {
            active.failed = Some(format!("{error:#}"));
        }
    }

    /// Finds the functions of all triggers again.
    pub(crate) fn refresh_triggers(&mut self, engine: &mut dyn Engine) -> Result<()> {
        for at in 0..self.triggers.len() {
            let Some(what) = self.triggers[at].trigger.event.functions() else {
                continue;
            };
            let found = crate::state::find(engine, what)?;
            let known = self.triggers[at].sites.clone();
            let new = self.new_sites(&found, &known);
            let capture = capture(&self.triggers[at].trigger).and(engine.capture());
            self.sites.hold(&new, capture);
            self.sites.subscribe(&new);
            self.triggers[at].sites.extend(new);
        }
        Ok(())
    }

    /// Tells the engine of all triggers again: sites have been inserted.
    pub(crate) fn set_triggers(&mut self, engine: &mut dyn Engine) -> Result<()> {
        self.triggers
            .iter()
            .try_for_each(|active| self.look_for(engine, active))
    }

    fn look_for(&self, engine: &mut dyn Engine, active: &ActiveTrigger) -> Result<()> {
        let trigger = active.trigger.clone();
        let trigger = trigger.map(|_| self.sites.keys(&active.sites));
        engine.set_trigger(&active.name, place(&active.trigger.event), trigger)
    }

    /// The lowest number that is no trigger's name.
    fn free_name(&self) -> String {
        let taken = |name: &String| self.triggers.iter().any(|one| one.name == *name);
        let mut names = (1u32..).map(|number| number.to_string());
        names.find(|name| !taken(name)).unwrap_or_default()
    }
}

/// An event as a command says it.
fn place(event: &Event<FunctionSelection>) -> String {
    match event {
        Event::Entry(what) => what.to_string(),
        Event::Return(what) => format!("return {what}"),
        Event::Marker(name) => format!("mark {}", word(name)),
        Event::Probe(name) => format!("probe {}", word(name)),
    }
}

fn written_action(action: &Action) -> String {
    let word_of_it = match action {
        Action::Start => "start",
        Action::Stop => "stop",
        Action::Switch { name, on } => {
            let on = if *on { "on" } else { "off" };
            return format!("trace {} {on}", word(name));
        }
        Action::Snapshot => "snapshot",
        Action::Mark => "mark",
        Action::Count => "count",
        Action::Detach => "detach",
    };
    word_of_it.to_owned()
}

/// The command that sets a trigger, but for its name.
pub(crate) fn written(trigger: &Trigger<FunctionSelection>) -> String {
    let place = place(&trigger.event);
    let action = written_action(&trigger.action);
    match &trigger.condition {
        Some(condition) => format!("when {place} if {condition} do {action}"),
        None => format!("when {place} do {action}"),
    }
}
