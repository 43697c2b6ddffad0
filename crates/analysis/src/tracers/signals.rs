//! The signals that a thread blocks, by the calls that change its mask.

use nopal_trace::{Marker, Value};

/// The event of a change, as a probe that `nopal_control` takes.
pub const PROBE: &str =
    "pthread_sigmask@libc.so.6 new nopal:sigmask fetch how=$di:s32 set=$si mask=+0($si):x64";

/// A change of the mask, as the probe records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    how: i64,
    /// The signals blocked, added or removed; `None` if unknown.
    mask: Option<u64>,
}

impl Change {
    pub fn is_marked_by(marker: &Marker) -> bool {
        marker.name == "nopal:sigmask"
    }

    /// `None`: the call only reads the mask.
    pub fn read(marker: &Marker, payload: &[u64]) -> Option<Change> {
        let values = marker.values(payload)?;
        let value = |name: &str| {
            let at = marker.fields.iter().position(|field| field.name == name)?;
            match values.get(at)? {
                Value::Signed(value) => Some(*value as u64),
                Value::Unsigned(value) => Some(*value),
                _ => None,
            }
        };
        let set = value("set")?;
        (set != 0).then_some(Change {
            how: value("how")? as i64,
            mask: value("mask"),
        })
    }
}

/// The known part of a thread's mask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blocked {
    /// The signals whose state is known.
    signals: u64,
    /// Whether anything is.
    is_known: bool,
}

impl Blocked {
    /// Whether any signal is blocked; `None` before the first change.
    pub fn any(&self) -> Option<bool> {
        self.is_known.then_some(self.signals != 0)
    }

    pub fn change(&mut self, change: Change) {
        const BLOCK: i64 = 0;
        const UNBLOCK: i64 = 1;
        const SET: i64 = 2;
        let Some(mask) = change.mask else {
            *self = Blocked::default();
            return;
        };
        // No thread can block these: KILL and STOP, and libc's own signals, CANCEL and SETXID.
        const NEVER: u64 = 1 << 8 | 1 << 18 | 1 << 31 | 1 << 32;
        let mask = mask & !NEVER;
        match change.how {
            BLOCK => self.signals |= mask,
            UNBLOCK => self.signals &= !mask,
            SET => self.signals = mask,
            _ => return,
        }
        self.is_known = true;
    }
}
