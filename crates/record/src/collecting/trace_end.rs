//! Where a trace ends before its recording: at its limit, or where the disk is full.

use anyhow::Result;
use nopal_trace::Writer;

/// The size at which a trace ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    Asked(u64),
    /// Half of what was free when it began.
    Disk(u64),
}

impl Limit {
    pub fn bytes(self) -> u64 {
        match self {
            Limit::Asked(bytes) | Limit::Disk(bytes) => bytes,
        }
    }
}

pub struct TraceEnd {
    /// Bytes of the trace at which it ends.
    pub limit: Option<Limit>,
    /// Why nothing more is written.
    reason: Option<String>,
}

impl TraceEnd {
    pub fn new(limit: Option<Limit>) -> TraceEnd {
        TraceEnd {
            limit,
            reason: None,
        }
    }

    /// Whether nothing more is written.
    pub fn is_reached(&self) -> bool {
        self.reason.is_some()
    }

    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// The trace has so many bytes.
    pub fn weigh(&mut self, bytes: u64) {
        let reached = self.limit.filter(|limit| bytes >= limit.bytes());
        if let Some(limit) = reached {
            let reason = match limit {
                Limit::Asked(_) => "the trace has grown to its limit (--max-size)",
                Limit::Disk(_) => {
                    "the trace has grown to its limit, half of what was free on the disk (--max-size sets another)"
                }
            };
            self.reason.get_or_insert_with(|| reason.into());
        }
    }

    /// An error that says that the disk is full ends the trace, and is none.
    pub fn unless_full(&mut self, written: Result<()>) -> Result<()> {
        match written {
            Err(error) if Writer::is_full(&error) => {
                let why = nopal_symbols::without_numbers(&format!("{error:#}"));
                let reason = format!("{why}: the trace ends here, the program continues");
                self.reason.get_or_insert(reason);
                Ok(())
            }
            other => other,
        }
    }
}
