//! Triggers of a session: they hear of the records as these come, and the session does what they say.

use crate::collecting::notes;
use crate::collecting::notes::counter;
use crate::session::Session;
use anyhow::{Result, bail};
use nopal_analysis::triggers::{Does, Spot, Trigger};
use nopal_control::{Action, Control, Moment, SiteKey};
use nopal_symbols::Selection;

impl Session {
    pub(crate) fn listen_for(&mut self, trigger: nopal_control::Trigger) -> Result<()> {
        let spot = match trigger.spot {
            nopal_control::Awaited::Functions(sites, moment) => {
                let numbers = |site: &SiteKey| self.number(*site);
                let numbers: Vec<u32> = sites.iter().filter_map(numbers).collect();
                match moment {
                    Moment::Entry => Spot::Entry(numbers),
                    Moment::Return => Spot::Return(numbers),
                }
            }
            nopal_control::Awaited::Event(name) => Spot::Marker(Selection::new(&[name], &[])?),
        };
        if self.listener.is_none() {
            let ear = self.shared.ear();
            let mut writer = notes::lock(&self.shared.writer);
            self.listener = Some(writer.add_listener(ear)?);
        }
        let condition = trigger.condition.as_ref();
        if let (Spot::Marker(name), Some(condition)) = (&spot, condition) {
            let wanted: Vec<&str> = condition.fields().collect();
            if let Some(fields) = self.shared.triggers().lacking(name, &wanted) {
                bail!(
                    "the marker does not have all of {}, but {}",
                    wanted.join(", "),
                    match fields.as_slice() {
                        [] => "no fields".to_owned(),
                        fields => fields.join(", "),
                    }
                );
            }
        }
        self.shared.triggers().set(Trigger {
            name: trigger.name,
            spot,
            condition: trigger.condition,
            // What is recorded before the session is served is recorded for those that the options ask for.
            since: if self.is_served { counter() } else { 0 },
            does: match trigger.action {
                Action::Count => Does::Nothing,
                Action::Mark => Does::Always,
                Action::Snapshot => Does::Snapshot,
                _ => Does::Once,
            },
            place: trigger.place,
        });
        Ok(())
    }

    pub(crate) fn listen_no_more(&mut self, name: &str) {
        let mut triggers = self.shared.triggers();
        triggers.remove(name);
        let none = triggers.is_empty();
        drop(triggers);
        if let Some(listener) = self.listener.take_if(|_| none) {
            notes::lock(&self.shared.writer).remove_listener(listener);
        }
    }

    /// Sets the triggers that the options ask for. An error changes nothing.
    pub(crate) fn begin_triggers(&mut self) -> Result<()> {
        let lines = self.options.triggers();
        if lines.is_empty() {
            return Ok(());
        }
        let functions = self.settings.wanted.functions;
        let (mut control, begun) = self.take_control();
        let set = begun.and_then(|()| {
            lines.iter().try_for_each(|line| {
                let set = control.command(self, line).map(|_| ());
                set.map_err(|error| anyhow::Error::msg(error.message))
            })
        });
        match &set {
            Ok(()) => self.control = Some(control),
            Err(_) => self.settings.wanted.functions = functions,
        }
        set
    }

    /// Whether that will go well, as far as can be known without touching the process.
    pub(crate) fn could_begin_triggers(&mut self) -> Result<()> {
        let lines = self.options.triggers();
        let control = Control::new();
        lines
            .iter()
            .try_for_each(|line| control.could_obey(self, line))
    }

    /// Does what triggers want that have fired.
    pub(crate) fn obey_triggers(&mut self) {
        if self.listener.is_none() {
            return;
        }
        let fired = self.shared.triggers().take_fired();
        for one in fired {
            self.control(|control, engine| {
                control.fired(engine, &one.name, one.counter, &one.told);
            });
        }
    }
}
