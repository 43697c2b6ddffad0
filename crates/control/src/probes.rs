//! The probes of a session: made, switched and removed by name.

use anyhow::{Result, bail, ensure};

use crate::engine::Engine;
use crate::probe::Probe;
use crate::state::Control;
use crate::syntax::quoted;

/// A probe of the session.
pub(crate) struct ActiveProbe {
    pub probe: Probe,
    pub on: bool,
}

impl Control {
    pub(crate) fn make_probe(&mut self, engine: &mut dyn Engine, probe: Probe) -> Result<String> {
        if let Some(known) = self
            .probes
            .iter()
            .find(|active| active.probe.name == probe.name)
        {
            ensure!(
                known.probe == probe,
                "there is a probe {} already: {}",
                quoted(&probe.name),
                known.probe
            );
            return Ok(String::new());
        }
        let answer = engine.insert_probe(&probe)?;
        self.probes.push(ActiveProbe { probe, on: false });
        Ok(answer)
    }

    pub(crate) fn switch_probe(
        &mut self,
        engine: &mut dyn Engine,
        name: &str,
        on: bool,
    ) -> Result<String> {
        let at = self.probe_at(name)?;
        if self.started {
            engine.switch_probe(name, on)?;
        }
        self.probes[at].on = on;
        Ok(String::new())
    }

    pub(crate) fn remove_probe(&mut self, engine: &mut dyn Engine, name: &str) -> Result<String> {
        let at = self.probe_at(name)?;
        engine.remove_probe(name)?;
        self.probes.remove(at);
        Ok(String::new())
    }

    /// Switches those that are on, as the session starts and stops.
    pub(crate) fn switch_probes(&self, engine: &mut dyn Engine, on: bool) -> Result<()> {
        let mut wanted = self.probes.iter().filter(|active| active.on);
        wanted.try_for_each(|active| engine.switch_probe(&active.probe.name, on))
    }

    pub(crate) fn remove_probes(&mut self, engine: &mut dyn Engine) -> Result<()> {
        while let Some(active) = self.probes.last() {
            engine.remove_probe(&active.probe.name)?;
            self.probes.pop();
        }
        Ok(())
    }

    /// Probes that the session began with: they are in, and on.
    pub fn begin_with_probes(&mut self, probes: impl IntoIterator<Item = Probe>) {
        let active = probes
            .into_iter()
            .map(|probe| ActiveProbe { probe, on: true });
        self.probes.extend(active);
    }

    pub(crate) fn probe_at(&self, name: &str) -> Result<usize> {
        let found = self
            .probes
            .iter()
            .position(|active| active.probe.name == name);
        if let Some(at) = found {
            return Ok(at);
        }
        let names: Vec<&str> = self
            .probes
            .iter()
            .map(|active| &*active.probe.name)
            .collect();
        match names[..] {
            [] => bail!("there is no probe {}: none has been made", quoted(name)),
            _ => bail!(
                "there is no probe {}, only {}",
                quoted(name),
                names.join(", ")
            ),
        }
    }
}
