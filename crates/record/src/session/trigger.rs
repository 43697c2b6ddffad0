//! Triggers of a session: they hear of the records as these come, and the session does what they say.

use crate::collecting::notes::counter;
use crate::session::Session;
use anyhow::Result;
use nopal_analysis::triggers::Trigger;
use nopal_control::{Control, SiteKey};

impl Session {
    pub(crate) fn look_for_trigger(
        &mut self,
        name: &str,
        place: String,
        trigger: Trigger<Vec<SiteKey>>,
    ) -> Result<()> {
        let numbers = |sites: Vec<SiteKey>| -> Vec<u32> {
            let numbers = sites.into_iter().filter_map(|site| self.number(site));
            numbers.collect()
        };
        let trigger = trigger.map(numbers);
        if self.subscriber.is_none() {
            let subscriber = self.shared.subscriber();
            let mut writer = self.shared.writer.lock();
            self.subscriber = Some(writer.subscribe(subscriber)?);
        }
        // What is recorded before the session is served is recorded for those that the options ask for.
        let since = if self.is_served { counter() } else { 0 };
        self.shared.triggers().set(name, place, trigger, since)
    }

    pub(crate) fn look_for_trigger_no_more(&mut self, name: &str) {
        let mut triggers = self.shared.triggers();
        triggers.remove(name);
        let none = triggers.is_empty();
        drop(triggers);
        if let Some(subscriber) = self.subscriber.take_if(|_| none) {
            self.shared.writer.lock().unsubscribe(subscriber);
        }
    }

    /// Sets the triggers that the options ask for. An error changes nothing.
    pub(crate) fn begin_triggers(&mut self) -> Result<()> {
        let lines = self.options.triggers();
        if lines.is_empty() {
            return Ok(());
        }
        let (mut control, begun) = self.begin_control();
        let set = begun.and_then(|()| {
            lines.iter().try_for_each(|line| {
                let set = control.command(self, line).map(|_| ());
                set.map_err(|error| anyhow::Error::msg(error.message))
            })
        });
        if set.is_ok() {
            self.control = Some(control);
            self.settings.wanted = None;
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
        if self.subscriber.is_none() {
            return;
        }
        let fired = self.shared.triggers().take_fired();
        for one in fired {
            self.control(|control, engine| {
                control.fired(engine, &one.name, one.counter, &one.description);
            });
        }
    }
}
