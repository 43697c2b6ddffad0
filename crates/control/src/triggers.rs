//! The triggers of a session: their meaning, and the data that they need of functions.

use anyhow::{Result, bail, ensure};
use nopal_abi::Capture;
use nopal_analysis::triggers::{Action, Event, Trigger};
use nopal_analysis::values::Needs;

use crate::draft::Draft;
use crate::selection::FunctionSelection;
use crate::state::ActiveTrigger;
use crate::syntax::quoted;
use crate::written::written;

/// The data to record of the calls of its functions.
fn capture(trigger: &Trigger<FunctionSelection>) -> Capture {
    let needs = trigger.condition.as_ref().map(|condition| condition.needs);
    let needs = needs.unwrap_or_default();
    Capture {
        arguments: needs.arguments || needs.result,
        ends: matches!(trigger.event, Event::Return(_)),
        call_sites: false,
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
        "{} is known only when the function returns: when return {what}",
        quoted(&condition.to_string())
    );
    Ok(())
}

impl Draft<'_> {
    pub fn set_trigger(
        &mut self,
        trigger: Trigger<FunctionSelection>,
        name: Option<String>,
    ) -> Result<()> {
        let trigger = trigger.map(|what| self.portable(what));
        let name = name.unwrap_or_else(|| self.free_name());
        let mut triggers = self.state.triggers.iter();
        if let Some(active) = triggers.find(|one| one.name == name) {
            ensure!(
                active.trigger == trigger,
                "there is a trigger {} already: {}",
                quoted(&name),
                written(&active.trigger)
            );
            return Ok(());
        }
        let mut held = None;
        match &trigger.event {
            Event::Entry(what) | Event::Return(what) => {
                let capture = capture(&trigger).and(self.lookup.facts().capture);
                held = Some(self.hold(what.clone(), capture)?);
            }
            Event::Marker(name) => self.marker_exists(name)?,
            Event::Probe(name) => drop(self.probe_at(name)?),
        }
        check_condition(&trigger)?;
        self.check_action(&trigger.action)?;
        self.state.triggers.push(ActiveTrigger {
            name,
            trigger,
            held,
            failed: None,
        });
        Ok(())
    }

    fn check_action(&self, action: &Action) -> Result<()> {
        let facts = self.lookup.facts();
        let never = match action {
            Action::Switch { name, .. } => return self.trace_at(name).map(drop),
            Action::Snapshot => facts.no_snapshots,
            Action::Detach => facts.no_detaching,
            Action::Start => facts.no_starting,
            _ => None,
        };
        never.map_or(Ok(()), |why| bail!(why))
    }

    pub fn remove_trigger(&mut self, name: &str) -> Result<()> {
        let triggers = &mut self.state.triggers;
        if let Some(at) = triggers.iter().position(|one| one.name == name) {
            triggers.remove(at);
            return Ok(());
        }
        let names: Vec<&str> = triggers.iter().map(|one| &*one.name).collect();
        match names[..] {
            [] => bail!("there is no trigger {}: none has been set", quoted(name)),
            _ => bail!(
                "there is no trigger {}, only {}",
                quoted(name),
                names.join(", ")
            ),
        }
    }

    /// The lowest number that is no trigger's name.
    fn free_name(&self) -> String {
        let taken = |name: &String| self.state.triggers.iter().any(|one| one.name == *name);
        let mut names = (1u32..).map(|number| number.to_string());
        names.find(|name| !taken(name)).unwrap_or_default()
    }
}
