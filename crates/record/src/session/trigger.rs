//! Triggers of a session: they get the records as these come, and the session does what they say.

use crate::collecting::notes::counter;
use crate::session::Session;
use anyhow::Result;
use nopal_analysis::triggers::Trigger;
use nopal_control::SiteKey;
use std::sync::Arc;

impl Session {
    pub(crate) fn set_trigger(
        &mut self,
        name: &str,
        place: &str,
        trigger: &Trigger<Arc<[SiteKey]>>,
    ) -> Result<()> {
        let numbers = |sites: Arc<[SiteKey]>| -> Vec<u32> {
            let numbers = sites.iter().filter_map(|site| self.number(*site));
            numbers.collect()
        };
        let trigger = trigger.clone().map(numbers);
        if self.subscribers.of_triggers.is_none() {
            let subscriber = self.context.shared.subscriber();
            let mut writer = self.context.shared.writer.lock();
            self.subscribers.of_triggers = Some(writer.subscribe(subscriber)?);
        }
        // Records from before the session is served are for the triggers of the options.
        let since = if self.service.is_served { counter() } else { 0 };
        let place = place.to_owned();
        self.context
            .shared
            .triggers()
            .set(name, place, trigger, since)
    }

    pub(crate) fn remove_trigger(&mut self, name: &str) {
        let mut triggers = self.context.shared.triggers();
        triggers.remove(name);
        let none = triggers.is_empty();
        drop(triggers);
        if let Some(subscriber) = self.subscribers.of_triggers.take_if(|_| none) {
            self.context.shared.writer.lock().unsubscribe(subscriber);
        }
    }

    /// Does what triggers want that have fired.
    pub(crate) fn obey_triggers(&mut self) {
        if self.subscribers.of_triggers.is_none() {
            return;
        }
        let fired = self.context.shared.triggers().take_fired();
        for one in fired {
            self.control(|control, engine| {
                control.fired(engine, &one.name, one.counter, &one.description);
            });
        }
    }
}
