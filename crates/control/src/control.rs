//! Control of a session: the wanted state, the setup of the engine, and the one way from one to the other.

use anyhow::{Context, Result, bail};
use nopal_analysis::dump::Look;

use crate::budget::{Share, Spared};
use crate::command::Command;
use crate::draft::{Draft, refusals};
use crate::engine::{Engine, FoundSite, Lookup, Refused};
use crate::selection::FunctionSelection;
use crate::setup::{Setup, reconcile};
use crate::site_key::SiteKey;
use crate::state::State;

/// Control of a session. Changes go through [`Control::command`] and [`Control::write`].
#[derive(Default)]
pub struct Control {
    pub(crate) state: State,
    pub(crate) setup: Setup,
    /// The results of the last `query` or `testtracein`, or the answers of the last commands written to `ctl`.
    pub(crate) answer: Vec<String>,
    pub(crate) tracing: Tracing,
}

/// The state of the tracing directory that is not in [`State`].
pub(crate) struct Tracing {
    /// The functions that the function tracer records, where there is no trace of that name.
    pub functions: FunctionSelection,
    /// The counter up to which the reader of `trace` wants to see nothing.
    pub emptied: u64,
    /// The counter up to which `trace_pipe` has given all, and the numbers of records and of bytes at that time.
    pub piped: u64,
    pub taken: u64,
    pub bytes: u64,
    /// The counter by which the last of these had been recorded, some of them perhaps after what `trace_pipe` has
    /// given.
    pub grown: u64,
    pub look: Look,
    pub errors: Vec<String>,
}

impl Default for Tracing {
    fn default() -> Tracing {
        Tracing {
            functions: FunctionSelection::of_names([], [], false),
            emptied: 0,
            piped: 0,
            taken: 0,
            bytes: 0,
            grown: 0,
            look: Look::default(),
            errors: Vec::new(),
        }
    }
}

/// Control at work on an engine.
pub(crate) struct Controller<'a> {
    pub control: &'a mut Control,
    pub engine: &'a mut dyn Engine,
}

impl Control {
    pub fn new() -> Control {
        Control::default()
    }

    pub(crate) fn with<'a>(&'a mut self, engine: &'a mut dyn Engine) -> Controller<'a> {
        Controller {
            control: self,
            engine,
        }
    }

    /// Control of a session that begins with these commands. They are checked against the modules of its first process,
    /// and no engine is asked for anything: see [`Control::set_up`].
    pub fn begin(commands: Vec<Command>, lookup: &mut dyn Lookup) -> Result<Control> {
        let mut draft = Draft::new(State::default(), lookup);
        draft.begin(commands)?;
        let (mut state, _) = draft.done();
        state.is_unattended = true;
        Ok(Control {
            state,
            ..Control::default()
        })
    }

    /// Brings the engine to the wanted state. `is_switched`: the sites of the code that came last are in their modes
    /// already.
    pub fn set_up(&mut self, engine: &mut dyn Engine, is_switched: bool) -> Result<()> {
        self.setup.arrived(is_switched);
        let wanted = self.state.setup();
        self.with(engine).set_up(wanted).map(drop)
    }

    /// Modules are about to be loaded into a process, which `lookup` has alone: finds the sites that are wanted in
    /// them. The caller, who loads them, inserts these sites by [`Control::setup`], and calls [`Control::set_up`] then.
    pub fn expect(&mut self, lookup: &mut dyn Lookup) -> Result<()> {
        let mut draft = Draft::new(self.state.clone(), lookup);
        draft.find_more()?;
        (self.state, _) = draft.done();
        self.setup.expect(&self.state.setup());
        Ok(())
    }

    /// Does the same at once, for code that has come before it was expected.
    pub fn refresh(&mut self, engine: &mut dyn Engine) -> Result<()> {
        self.expect(engine)?;
        self.setup.doubt_code();
        self.set_up(engine, false)
    }

    /// The setup that is inserted, or about to be.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// For people: the ends of sections that are measured and that are nothing yet, a line each. They may come with a
    /// library.
    pub fn missing_ends(&self, lookup: &mut dyn Lookup) -> Result<String> {
        Draft::new(self.state.clone(), lookup).all_missing_ends()
    }

    pub fn budget(&self) -> Option<Share> {
        self.state.budget
    }

    /// The functions that are not timed, for the budget's sake.
    pub fn spared(&self) -> &Spared {
        &self.state.spared
    }

    /// Has these functions, and no others, counted or off for the sake of the budget, if there is one. Functions that
    /// it may not spare, see [`Setup::may_spare`], stay as they are.
    pub fn spare(&mut self, engine: &mut dyn Engine, spared: Spared) -> Result<()> {
        if self.state.budget.is_none() {
            return Ok(());
        }
        let changed = self.with(engine).change(|draft| {
            draft.state.spared = spared;
            Ok(())
        });
        changed.map(drop)
    }

    /// Stops recording, as by command.
    pub fn stop(&mut self, engine: &mut dyn Engine) -> Result<()> {
        let stopped = self.with(engine).change(|draft| draft.start(false));
        stopped.map(drop)
    }

    /// The functions that traces mean and that can never be traced.
    pub fn refused(&self) -> impl Iterator<Item = SiteKey> {
        let traces = self.state.traces.iter();
        traces.flat_map(|trace| trace.held.refused.iter().copied())
    }

    /// Has the records that tracers need recorded: a client asks for their findings from now on.
    pub fn attend(&mut self, engine: &mut dyn Engine) -> Result<()> {
        if !self.state.is_unattended {
            return Ok(());
        }
        let attended = self.with(engine).change(|draft| {
            draft.state.is_unattended = false;
            Ok(())
        });
        attended.map(drop)
    }
}

impl Controller<'_> {
    /// Changes the state, and the engine with it, as a whole or not at all. The answer is for a person.
    pub fn change(&mut self, edit: impl FnOnce(&mut Draft) -> Result<()>) -> Result<String> {
        let mut draft = Draft::new(self.control.state.clone(), self.engine);
        edit(&mut draft)?;
        let (state, found) = draft.done();
        self.settle(state, &found)
    }

    /// Brings the engine to `state`, in which `found` are held anew.
    pub fn settle(&mut self, state: State, found: &[Vec<FoundSite>]) -> Result<String> {
        let before = std::mem::replace(&mut self.control.state, state);
        let settled = self
            .set_up(self.control.state.setup())
            .and_then(|(refused, answers)| self.report(&before, found, &refused, answers));
        if settled.is_err() {
            self.control.state = before;
            let back = self.set_up(self.control.state.setup());
            back.context("changes made before the error could not be undone")?;
        }
        settled
    }

    /// Brings the engine to a setup. Returns the sites that could not be inserted, and the answers. After an error the
    /// engine is in between, as `self.control.setup` says.
    fn set_up(&mut self, wanted: Setup) -> Result<(Vec<Refused>, Vec<String>)> {
        self.control.state.instruct_tracers();
        let setup = &mut self.control.setup;
        let wanted = wanted.after(setup);
        let changes = reconcile(setup, &wanted);
        let (mut refused, mut answers) = (Vec::new(), Vec::new());
        for (done, change) in changes.iter().enumerate() {
            match self.engine.apply(change) {
                Ok(applied) => {
                    refused.extend(applied.refused);
                    answers.extend((!applied.answer.is_empty()).then_some(applied.answer));
                }
                Err(error) => {
                    changes[..done].iter().for_each(|change| setup.note(change));
                    setup.doubt(change);
                    return Err(error);
                }
            }
        }
        *setup = wanted;
        Ok((refused, answers))
    }

    /// Leaves out the sites that could not be inserted, and names them. An error if a holder has none left.
    fn report(
        &mut self,
        before: &State,
        found: &[Vec<FoundSite>],
        refused: &[Refused],
        mut answers: Vec<String>,
    ) -> Result<String> {
        let keys: Vec<SiteKey> = refused.iter().map(|refused| refused.key).collect();
        for found in found {
            let answer = refusals(self.engine, found, refused);
            let is_out = |site: &FoundSite| site.is_refused || keys.contains(&site.key);
            if !found.is_empty() && found.iter().all(is_out) {
                bail!(answer);
            }
            answers.extend((!answer.is_empty()).then_some(answer));
        }
        if !keys.is_empty() {
            let control = &mut *self.control;
            control.state.leave_out(&keys, before);
            control.setup.correct(&keys, &control.state.setup());
        }
        Ok(answers.join("\n"))
    }
}
