//! nopal beside other tracers, in one run: their cost while off and while recording, their time to attach, their
//! completeness, and the speed of their readers.

mod all;
mod frida;
mod lttng;
mod nopal;
mod tracer;
mod uftrace;
mod uprobes;
mod xray;

use crate::programs::Programs;
use crate::resident::Resident;
use crate::run::{Paths, watch};
use crate::samples::Samples;
use crate::table::Row;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::process::Stdio;
use tracer::{Load, Tracer};

const ROUNDS: usize = 3;

/// The measurements, in the table's order.
const MEASURES: [(&str, &str); 12] = [
    (EMPTY, "ns"),
    (FIB, "ns"),
    (SQLITE, "× untraced"),
    (OBJECTS, "× untraced"),
    (OFF, "ns"),
    (SQLITE_OFF, "× untraced"),
    (ATTACH, "ms"),
    (EMPTY_ATTACHED, "ns"),
    (TOGGLE, "ms"),
    (BYTES, "bytes"),
    (LOST, "%"),
    (REPORT, "M events/s"),
];
const EMPTY: &str = "launched: added to a call of an empty function";
const FIB: &str = "launched: added to a call in fib(32)";
const SQLITE: &str = "launched: SQLite, every function";
const OBJECTS: &str = "launched: a C++ program, every function";
const OFF: &str = "off: added to a call of an empty function";
const SQLITE_OFF: &str = "off: SQLite, every function";
const ATTACH: &str = "attaching to SQLite, every function";
const EMPTY_ATTACHED: &str = "attached: added to a call of an empty function";
const TOGGLE: &str = "SQLite, every function off or on";
const BYTES: &str = "an event's size";
const LOST: &str = "calls of an empty function that are not in the trace";
const REPORT: &str = "report";
const EXPORT: &str = "export for a browser, or as text";

type Figures = BTreeMap<(&'static str, &'static str), Vec<f64>>;

/// The rows of the tracers with the names in `chosen`, or of all if that is empty.
pub fn measure(paths: &Paths, programs: &Programs, chosen: &[String]) -> Result<Vec<Row>> {
    let plain = ["sqlite", "objects"].map(|work| programs.resident(work));
    let [sqlite, objects] = plain;
    let (sqlite, objects) = (sqlite?, objects?);
    let mut rows = Vec::new();
    let mut tracers = Vec::new();
    for made in all::all(paths, programs) {
        match made {
            Ok(tracer) => tracers.push(tracer),
            Err(missing) => rows.push(absent(missing.name, &missing.why)),
        }
    }
    let is_chosen = |name: &str| chosen.iter().any(|one| one == name);
    if tracers.iter().any(|tracer| is_chosen(tracer.name())) {
        tracers.retain(|tracer| is_chosen(tracer.name()));
    }
    let mut figures = Figures::new();
    let mut failures = BTreeMap::new();
    for _ in 0..ROUNDS {
        let untraced = Untraced {
            sqlite: answers(Resident::start(&sqlite, 0, 0)?, Load::Often)?,
            objects: answers(Resident::start(&objects, 0, 0)?, Load::Often)?,
        };
        for tracer in &tracers {
            let name = tracer.name();
            eprintln!("nopal-bench: {name}");
            let mut one_round = Round {
                figures: &mut figures,
                untraced: &untraced,
                tracer: tracer.as_ref(),
            };
            for (part, measured) in [
                ("launched", one_round.launched()),
                ("off", one_round.off()),
                ("attached", one_round.attached(&sqlite)),
                ("what it keeps", one_round.kept()),
            ] {
                if let Err(error) = measured {
                    failures.insert(format!("{name}, {part}"), format!("{error:#}"));
                }
            }
        }
    }
    rows.splice(0..0, table(&tracers, &figures));
    rows.extend(failures.iter().map(|(what, why)| absent(what, why)));
    rows.extend(crate::papers::lttng(paths, programs)?);
    Ok(rows)
}

fn absent(what: &str, why: &str) -> Row {
    Row::new(format!("not measured: {what}"), "", Samples::default())
        .note(why.lines().next().unwrap_or_default())
}

fn table(tracers: &[Box<dyn Tracer + '_>], figures: &Figures) -> Vec<Row> {
    let mut rows = Vec::new();
    let measures = MEASURES.into_iter().chain([(EXPORT, "M events/s")]);
    for (what, unit) in measures {
        let of = |name| {
            figures
                .get(&(what, name))
                .map(|values| Samples::from_iter(values.iter().copied()))
        };
        let ours = of(nopal::NAME);
        for tracer in tracers {
            let name = tracer.name();
            let label = format!("{what}: {name}");
            let Some(theirs) = of(name) else {
                if let Some(why) = tracer.cannot(what) {
                    rows.push(Row::new(label, "", Samples::default()).note(why));
                }
                continue;
            };
            let ratio = ours
                .as_ref()
                .map(|ours| theirs.median() / ours.median())
                .filter(|ratio| name != nopal::NAME && ratio.is_finite() && *ratio > 0.0);
            let mut notes: Vec<String> = ratio
                .map(|ratio| format!("{} × nopal's", crate::table::number(ratio)))
                .into_iter()
                .collect();
            notes.extend(tracer.note(what).map(str::to_owned));
            rows.push(Row::new(label, unit, theirs).note(notes.join("; ")));
        }
    }
    rows
}

/// The answers of a resident program, in nanoseconds.
struct Answers {
    call: f64,
    fib: f64,
    work: f64,
}

struct Untraced {
    sqlite: Answers,
    objects: Answers,
}

fn answers(mut resident: Resident, load: Load) -> Result<Answers> {
    let [call, fib, work] = load.requests();
    let answers = Answers {
        call: resident.request(call)?,
        fib: resident.request(fib)?,
        work: resident.request(work)?,
    };
    resident.end()?;
    Ok(answers)
}

struct Round<'a> {
    figures: &'a mut Figures,
    untraced: &'a Untraced,
    tracer: &'a (dyn Tracer + 'a),
}

impl Round<'_> {
    fn put(&mut self, what: &'static str, value: f64) {
        let key = (what, self.tracer.name());
        self.figures.entry(key).or_default().push(value);
    }

    fn launched(&mut self) -> Result<()> {
        let Some(session) = self.tracer.launch("sqlite", true)? else {
            return Ok(());
        };
        let traced = answers(session.resident, self.tracer.load())?;
        drop(session.rest);
        self.put(EMPTY, traced.call - self.untraced.sqlite.call);
        self.put(FIB, traced.fib - self.untraced.sqlite.fib);
        if self.tracer.cannot(SQLITE).is_none() {
            self.put(SQLITE, traced.work / self.untraced.sqlite.work);
        }
        if let Some(session) = self.tracer.launch("objects", true)? {
            let traced = answers(session.resident, self.tracer.load())?;
            drop(session.rest);
            if self.tracer.cannot(OBJECTS).is_none() {
                self.put(OBJECTS, traced.work / self.untraced.objects.work);
            }
        }
        Ok(())
    }

    fn off(&mut self) -> Result<()> {
        if let Some(session) = self.tracer.launch("sqlite", false)? {
            let traced = answers(session.resident, Load::Often)?;
            drop(session.rest);
            self.put(OFF, traced.call - self.untraced.sqlite.call);
            self.put(SQLITE_OFF, traced.work / self.untraced.sqlite.work);
        }
        Ok(())
    }

    /// Attaches to a running program, which is compiled as the tracer wants it.
    fn attached(&mut self, plain: &std::path::Path) -> Result<()> {
        let program = self.tracer.program("sqlite").unwrap_or(plain);
        let mut resident = Resident::start(program, 0, 0)?;
        let start = std::time::Instant::now();
        if let Some(mut attached) = self.tracer.attach(&resident)? {
            self.put(ATTACH, start.elapsed().as_secs_f64() * 1e3);
            let [call, _, _] = self.tracer.load().requests();
            let call = resident.request(call)?;
            self.put(EMPTY_ATTACHED, call - self.untraced.sqlite.call);
            for time in attached.toggle(&mut resident)? {
                self.put(TOGGLE, time);
            }
        } else {
            for time in self.tracer.toggle(&mut resident)? {
                self.put(TOGGLE, time);
            }
        }
        resident.end()
    }

    /// Measures a recording of a known number of calls.
    fn kept(&mut self) -> Result<()> {
        const CALLS: f64 = 50.0 * 20_000.0;
        let Some(mut session) = self.tracer.launch("objects", true)? else {
            return Ok(());
        };
        let [call, _, _] = self.tracer.load().requests();
        session.resident.request(call)?;
        session.resident.end()?;
        let made = CALLS / self.tracer.load().fewer();
        let Some(kept) = self.tracer.kept(session.rest)? else {
            return Ok(());
        };
        self.put(BYTES, kept.bytes as f64 / kept.events as f64);
        self.put(LOST, 100.0 * (1.0 - kept.calls as f64 / made).max(0.0));
        for (what, command) in [
            (REPORT, self.tracer.report()),
            (EXPORT, self.tracer.export()),
        ] {
            if let Some(mut command) = command {
                let peak = watch(&mut command, Stdio::null()).context(what)?;
                let rate = kept.events as f64 / peak.time.as_secs_f64() / 1e6;
                self.put(what, rate);
            }
        }
        Ok(())
    }
}
