//! Triggers as commands write them.

use nopal_analysis::triggers::{Action, Event, Trigger};

use crate::selection::{FunctionSelection, word};

/// An event as a command writes it.
pub fn place(event: &Event<FunctionSelection>) -> String {
    match event {
        Event::Entry(what) => what.to_string(),
        Event::Return(what) => format!("return {what}"),
        Event::Marker(name) => format!("mark {}", word(name)),
        Event::Probe(name) => format!("probe {}", word(name)),
    }
}

/// The command that sets a trigger, but for its name.
pub fn written(trigger: &Trigger<FunctionSelection>) -> String {
    let place = place(&trigger.event);
    let action = written_action(&trigger.action);
    match &trigger.condition {
        Some(condition) => format!("when {place} if {condition} do {action}"),
        None => format!("when {place} do {action}"),
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
