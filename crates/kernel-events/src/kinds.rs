//! The kinds of kernel events.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds {
    switch: bool,
    wakeup: bool,
    functions: bool,
    markers: bool,
}

impl Kinds {
    pub const ALL: Kinds = Kinds {
        switch: true,
        wakeup: true,
        functions: false,
        markers: false,
    };
    /// Functions of the kernel that the traced threads run.
    pub const FUNCTIONS: Kinds = Kinds {
        switch: false,
        wakeup: false,
        functions: true,
        markers: false,
    };
    /// Markers of the kernel's modules, in these threads.
    pub const MARKERS: Kinds = Kinds {
        switch: false,
        wakeup: false,
        functions: false,
        markers: true,
    };

    /// The kinds of a word as users of perf and trace-cmd write it: `sched`, `sched_switch`, `sched:sched_wakeup`, …;
    /// `None`: it means other tracepoints.
    pub fn parse(word: &str) -> Option<Kinds> {
        let none = Kinds::default();
        Some(match word.strip_prefix("sched:").unwrap_or(word) {
            "sched" => Kinds::ALL,
            "sched_switch" => Kinds {
                switch: true,
                ..none
            },
            "sched_wakeup" => Kinds {
                wakeup: true,
                ..none
            },
            _ => return None,
        })
    }

    pub fn is_none(self) -> bool {
        self == Kinds::default()
    }

    pub fn functions(self) -> bool {
        self.functions
    }

    pub fn markers(self) -> bool {
        self.markers
    }

    /// Without the kinds that nopal's module in the kernel records.
    pub fn of_perf(self) -> Kinds {
        Kinds {
            functions: false,
            markers: false,
            ..self
        }
    }

    /// Whether any are of the kernel's scheduler.
    pub fn scheduling(self) -> bool {
        self.switch || self.wakeup
    }

    pub fn switches(self) -> bool {
        self.switch
    }

    /// The names of the kernel's tracepoints.
    pub fn tracepoints(self) -> impl Iterator<Item = &'static str> {
        let switch = self.switch.then_some("sched_switch");
        let wakeup = self.wakeup.then_some(["sched_wakeup", "sched_wakeup_new"]);
        switch.into_iter().chain(wakeup.into_iter().flatten())
    }

    /// The word for it on the command line.
    pub fn word(self) -> Option<&'static str> {
        match (self.switch, self.wakeup) {
            (true, true) => Some("sched"),
            (true, false) => Some("sched_switch"),
            (false, true) => Some("sched_wakeup"),
            (false, false) => None,
        }
    }
}

impl FromIterator<Kinds> for Kinds {
    fn from_iter<I: IntoIterator<Item = Kinds>>(all: I) -> Kinds {
        let sum = |sum: Kinds, one: Kinds| Kinds {
            switch: sum.switch || one.switch,
            wakeup: sum.wakeup || one.wakeup,
            functions: sum.functions || one.functions,
            markers: sum.markers || one.markers,
        };
        all.into_iter().fold(Kinds::default(), sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_other_tools() {
        assert_eq!(Kinds::parse("sched"), Some(Kinds::ALL));
        let two = ["sched_switch", "sched:sched_wakeup"].map(|word| Kinds::parse(word).unwrap());
        assert_eq!(two.into_iter().collect::<Kinds>(), Kinds::ALL);
        assert_eq!(two[0].tracepoints().collect::<Vec<_>>(), ["sched_switch"]);
        assert!(two[0].switches() && !two[1].switches());
        for other in [
            "sched_swich",
            "sched:*",
            "irq",
            "exceptions:page_fault_user",
        ] {
            assert_eq!(Kinds::parse(other), None);
        }
        assert!(Kinds::from_iter([]).is_none());
    }
}
