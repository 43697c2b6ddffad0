//! LTTng-UST: code by gcc calls a function at each entry and exit. A library of LTTng's, preloaded, defines these
//! functions and has a tracepoint in each.

use super::tracer::{Attached, Built, Kept, Rest, Session, Tracer, bytes_below};
use crate::lttng::Daemon;
use crate::programs::Programs;
use crate::resident::Resident;
use crate::run::Paths;
use anyhow::{Context, Result, ensure};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::Instant;

pub const NAME: &str = "LTTng-UST";
const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/liblttng-ust-cyg-profile-fast.so";
const EVENTS: &str = "lttng_ust_cyg_profile_fast:*";

struct Lttng<'a> {
    paths: &'a Paths,
    daemon: Rc<Daemon>,
    built: Built,
}

pub fn new<'a>(paths: &'a Paths, programs: &Programs) -> Result<Box<dyn Tracer + 'a>> {
    ensure!(
        Path::new(LIBRARY).exists(),
        "apt-get install lttng-tools liblttng-ust-dev"
    );
    let daemon = Rc::new(Daemon::start(paths)?);
    let compile =
        |work: &str| programs.resident_by("gcc", work, "-calls", &["-finstrument-functions"]);
    Ok(Box::new(Lttng {
        paths,
        daemon,
        built: Built::by(compile)?,
    }))
}

/// A session of the daemon.
struct Recording(Rc<Daemon>);

impl Drop for Recording {
    fn drop(&mut self) {
        // If a session is left over, the next one fails and shows that.
        let _ = self.0.destroy();
    }
}

impl Lttng<'_> {
    fn record(&self) -> Result<Recording> {
        self.daemon.create(EVENTS)?;
        Ok(Recording(self.daemon.clone()))
    }
}

impl Tracer for Lttng<'_> {
    fn name(&self) -> &'static str {
        NAME
    }

    fn cannot(&self, what: &str) -> Option<&'static str> {
        what.contains("attach")
            .then_some("its library must be loaded from the start")
            .or_else(|| (what == super::REPORT).then_some("it has none"))
    }

    fn note(&self, what: &str) -> Option<&'static str> {
        match what {
            _ if what.contains("off or on") => Some("lttng start, lttng stop"),
            super::EXPORT => Some("babeltrace2, as text"),
            _ => None,
        }
    }

    fn program(&self, work: &str) -> Option<&Path> {
        Some(self.built.of(work))
    }

    fn launch(&self, work: &str, on: bool) -> Result<Option<Session>> {
        let recording = self.record()?;
        if on {
            self.daemon.command(&["start"])?;
        }
        let mut command = Command::new(self.built.of(work));
        command
            .env("LD_PRELOAD", LIBRARY)
            .env("LTTNG_HOME", &self.daemon.home);
        Session::by(&mut command, Some(Box::new(recording)))
    }

    fn attach(&self, _: &Resident) -> Result<Option<Box<dyn Attached>>> {
        Ok(None)
    }

    fn toggle(&self, _: &mut Resident) -> Result<Vec<f64>> {
        let session = self.launch("sqlite", false)?.context("no session")?;
        let time = |word: &&str| {
            let start = Instant::now();
            self.daemon.command(&[word])?;
            Ok(start.elapsed().as_secs_f64() * 1e3)
        };
        let times = ["start", "stop"].iter().map(time).collect();
        session.resident.end()?;
        times
    }

    fn kept(&self, rest: Rest) -> Result<Option<Kept>> {
        // The end of the session writes buffered events.
        drop(rest);
        let mut reader = self.export().context("no reader")?;
        let mut child = reader
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("apt-get install babeltrace2")?;
        let lines = BufReader::new(child.stdout.take().context("no pipe")?).lines();
        let (mut events, mut entries) = (0, 0);
        for line in lines {
            events += 1;
            entries += u64::from(line?.contains("func_entry"));
        }
        child.wait()?;
        Ok(Some(Kept {
            bytes: bytes_below(&self.paths.peer_trace())?,
            events,
            calls: entries,
        }))
    }

    fn export(&self) -> Option<Command> {
        let mut command = Command::new("babeltrace2");
        command.arg(self.paths.peer_trace());
        Some(command)
    }
}
