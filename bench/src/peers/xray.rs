//! LLVM XRay: clang leaves room in each function, and the program's own runtime patches it.

use super::tracer::{Built, Kept, Rest, Session, Tracer};
use crate::programs::{Programs, is_installed};
use crate::resident::Resident;
use crate::run::{Paths, output, remove};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

pub const NAME: &str = "XRay";

struct Xray<'a> {
    paths: &'a Paths,
    built: Built,
}

pub fn new<'a>(paths: &'a Paths, programs: &Programs) -> Result<Box<dyn Tracer + 'a>> {
    ensure!(
        is_installed("clang") && is_installed("llvm-xray"),
        "apt-get install clang llvm"
    );
    const FLAGS: &[&str] = &["-fxray-instrument", "-fxray-instruction-threshold=1"];
    let compile = |work: &str| programs.resident_by("clang", work, "-xray", FLAGS);
    Ok(Box::new(Xray {
        paths,
        built: Built::by(compile)?,
    }))
}

impl Xray<'_> {
    fn log(&self) -> Result<PathBuf> {
        let mut files = std::fs::read_dir(self.paths.peer_trace())?;
        Ok(files.next().context("no log was written")??.path())
    }

    fn reading(&self, words: &[&str]) -> Option<Command> {
        let mut command = Command::new("llvm-xray");
        command
            .args(words)
            .arg("-instr_map")
            .arg(self.built.of("objects"));
        command.arg(self.log().ok()?);
        Some(command)
    }
}

impl Tracer for Xray<'_> {
    fn name(&self) -> &'static str {
        NAME
    }

    fn cannot(&self, what: &str) -> Option<&'static str> {
        what.contains("attach")
            .then_some("a program switches it on for itself")
    }

    fn note(&self, what: &str) -> Option<&'static str> {
        match what {
            _ if what.contains("off or on") => Some("by the program itself"),
            _ if what.starts_with("launched") => Some("flight data recorder; compiled by clang"),
            _ => None,
        }
    }

    fn program(&self, work: &str) -> Option<&Path> {
        Some(self.built.of(work))
    }

    fn launch(&self, work: &str, on: bool) -> Result<Option<Session>> {
        let directory = self.paths.peer_trace();
        remove(&directory)?;
        std::fs::create_dir_all(&directory)?;
        let options = format!(
            "patch_premain={on} xray_mode=xray-fdr verbosity=0 xray_logfile_base={}/log.",
            directory.display()
        );
        let mut command = Command::new(self.built.of(work));
        command
            .env("XRAY_OPTIONS", options)
            .env("XRAY_FDR_OPTIONS", "func_duration_threshold_us=0");
        Session::by(&mut command, None)
    }

    fn toggle(&self, resident: &mut Resident) -> Result<Vec<f64>> {
        let times = ["patch", "unpatch"].map(|word| resident.request(word));
        times
            .into_iter()
            .map(|time| {
                let time = time?;
                ensure!(time >= 0.0, "it cannot be switched");
                Ok(time / 1e6)
            })
            .collect()
    }

    fn kept(&self, _: Rest) -> Result<Option<Kept>> {
        let mut account = self
            .reading(&["account", "-format=csv", "-keep-going"])
            .context("its flight data recorder wrote no log, as where the processor's frequency is not told")?;
        let text = output(&mut account)?;
        // funcid,count,…,function
        let row = |line: &str| {
            let calls = line.split(',').nth(1)?.parse::<u64>().ok()?;
            Some((line.ends_with(",\"empty\""), calls))
        };
        let rows: Vec<_> = text.lines().skip(1).filter_map(row).collect();
        Ok(Some(Kept {
            bytes: self.log()?.metadata()?.len(),
            events: 2 * rows.iter().map(|(_, calls)| calls).sum::<u64>(),
            calls: rows
                .iter()
                .find(|(is_empty, _)| *is_empty)
                .map_or(0, |row| row.1),
        }))
    }

    fn report(&self) -> Option<Command> {
        self.reading(&["account", "-keep-going"])
    }

    fn export(&self) -> Option<Command> {
        self.reading(&["convert", "-output-format=trace_event", "-symbolize"])
    }
}
