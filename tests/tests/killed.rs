//! The tool, the guardian or both are killed at each of their ptrace requests and writes to the memory of a process,
//! also soon after Ctrl-C: the program runs on, and if the guardian lives, it restores the program's text.
//!
//! NOPAL_KILLS=all tries all places, NOPAL_KILLS=7,12 those; the default is some, by NOPAL_SEED.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::Once;
use std::time::{Duration, Instant};

use nopal_tests::process::{text_difference, wait_until};
use nopal_tests::{c, nopal};

/// More time than anything takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(100);
/// The number of places that are tried of each scenario, unless all are.
const SOME: usize = 8;

fn killer(directory: &Path) -> PathBuf {
    let library = directory.join("kill.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("killed/kill.c");
    let gcc = Command::new("gcc")
        .args(["-O1", "-Wall", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(source)
        .arg("-ldl")
        .status();
    assert!(gcc.expect("gcc").success());
    library
}

/// Makes this process the parent of a killed tool's children, so that it learns how they end.
fn adopt() {
    static ONCE: Once = Once::new();
    // SAFETY: a flag of our own process.
    ONCE.call_once(|| unsafe { assert_eq!(libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1), 0) });
}

fn status(process: i32) -> Option<i32> {
    let mut status = 0;
    // SAFETY: waits for one child, adopted or not.
    let ended = unsafe { libc::waitpid(process, &raw mut status, libc::WNOHANG) };
    (ended == process).then_some(status)
}

fn state(process: i32) -> char {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = text
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    state.unwrap_or('?')
}

#[derive(Clone, Copy, PartialEq)]
enum How {
    Launched,
    Attached,
}

struct Killing<'a> {
    how: How,
    variables: Vec<(&'a str, String)>,
    guardian_lives: bool,
}

/// The processes whose working directory is this one.
fn working_in(directory: &Path) -> Vec<i32> {
    let processes = std::fs::read_dir("/proc").expect("/proc is mounted");
    let numbers = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let works_there = |process: &i32| {
        std::fs::read_link(format!("/proc/{process}/cwd")).is_ok_and(|place| place == directory)
    };
    numbers.filter(works_there).collect()
}

/// Waits until the guardian of a tool that worked in a directory has ended.
fn await_guardian(directory: &Path) {
    let mut seen = Vec::new();
    wait_until("the guardian ends", || {
        let left = working_in(directory);
        let ended = left.is_empty();
        seen.extend(left);
        ended
    });
    for process in seen {
        status(process);
    }
}

struct Scene {
    directory: tempfile::TempDir,
    killer: PathBuf,
    program: PathBuf,
}

/// A running program with its input and output.
struct Program {
    process: i32,
    input: std::process::ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Program {
    fn of(child: &mut std::process::Child) -> Program {
        let output = child.stdout.take().expect("a pipe");
        Program {
            process: 0,
            input: child.stdin.take().expect("a pipe"),
            output: BufReader::new(output),
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("text");
        line.trim_end().to_owned()
    }

    fn await_ready(&mut self) -> Result<(), String> {
        let line = self.line();
        let number = line.strip_prefix("ready ").and_then(|it| it.parse().ok());
        self.process = number.ok_or(format!("it is not ready: {line:?}"))?;
        Ok(())
    }
}

impl Scene {
    fn new() -> Scene {
        Scene::of("killed")
    }

    fn of(program: &str) -> Scene {
        adopt();
        // LD_PRELOAD takes no path with blanks, as scratch() may return.
        let directory = tempfile::tempdir().expect("a directory");
        Scene {
            killer: killer(directory.path()),
            program: c(program, &["-pthread", "-ldl"]).path,
            directory,
        }
    }

    /// The file of the standard errors of tool and program.
    fn said(&self) -> PathBuf {
        self.directory.path().join("said")
    }

    fn tool(&self, killing: &Killing, directory: &Path) -> Command {
        let mut tool = Command::new(nopal());
        tool.env("LD_PRELOAD", &self.killer)
            .env("XDG_CACHE_HOME", self.directory.path())
            .envs(killing.variables.iter().map(|(name, value)| (name, value)))
            .current_dir(directory)
            .stderr(std::fs::File::create(self.said()).expect("a file"));
        tool
    }

    /// Runs a scenario, and returns a failure if there is one.
    fn run(&self, killing: &Killing) -> Result<(), String> {
        let own = tempfile::tempdir_in(self.directory.path()).expect("a directory");
        let directory = own.path().canonicalize().expect("a directory");
        let run = self.run_in(killing, &directory);
        await_guardian(&directory);
        run
    }

    fn run_in(&self, killing: &Killing, directory: &Path) -> Result<(), String> {
        let mut started;
        let mut tool = self.tool(killing, directory);
        let mut program;
        let tool = match killing.how {
            How::Launched => {
                tool.args(["record", "-o", "trace", "--"]);
                tool.arg(&self.program).arg("first");
                tool.stdin(Stdio::piped()).stdout(Stdio::piped());
                let mut tool = tool.spawn().expect("nopal");
                program = Program::of(&mut tool);
                program.await_ready()?;
                tool
            }
            How::Attached => {
                let mut untraced = Command::new(&self.program);
                untraced.stdin(Stdio::piped()).stdout(Stdio::piped());
                started = untraced.spawn().expect("the program");
                program = Program::of(&mut started);
                program.await_ready()?;
                let process = program.process.to_string();
                tool.args(["attach", "-o", "trace", "--for", "150ms", &process]);
                tool.stdin(Stdio::null()).stdout(Stdio::null());
                let mut tool = tool.spawn().expect("nopal");
                let _ = tool.wait();
                tool
            }
        };
        Scene::check(killing, tool, program)
    }

    fn check(
        killing: &Killing,
        mut tool: std::process::Child,
        program: Program,
    ) -> Result<(), String> {
        let Program {
            process,
            mut input,
            mut output,
        } = program;
        let start = Instant::now();
        std::thread::sleep(Duration::from_millis(50));
        let killed = tool.try_wait().expect("our child").is_some();
        let mut wrong = None;
        // A dead process is reported below.
        let difference = || {
            let lives = !"ZX?".contains(state(process));
            lives.then(|| text_difference(process, "")).flatten()
        };
        if killed && killing.guardian_lives {
            while let Some(found) = difference() {
                if start.elapsed() > PATIENCE {
                    wrong = Some(found);
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        wait_until("the program runs", || "RSDZX".contains(state(process)));
        let _ = input.write_all(b"end\n");
        drop(input);
        let mut last = String::new();
        output.read_line(&mut last).expect("text");
        // A tool that lives ends as the program does.
        let tools = tool.wait().expect("our child");
        let is_passed_on = killing.how == How::Launched && tools.signal().is_none();
        let mut ended = is_passed_on.then_some(tools.into_raw());
        let start = Instant::now();
        while ended.is_none() && start.elapsed() < PATIENCE {
            ended = status(process);
            std::thread::sleep(Duration::from_millis(1));
        }
        if last.trim_end() != "right" || ended != Some(37 << 8) {
            let state = state(process);
            return Err(format!("said {last:?}, ended {ended:?}, state {state}"));
        }
        wrong.map_or(Ok(()), Err)
    }

    /// The number of places in a run in which no process is killed.
    fn count(&self, how: How) -> usize {
        let counts = self.directory.path().join("counts");
        let variables = vec![("KILL_COUNT", counts.display().to_string())];
        let killing = Killing {
            how,
            variables,
            guardian_lives: true,
        };
        assert_eq!(self.run(&killing), Ok(()));
        let count = std::fs::metadata(&counts).expect("counted").len() as usize;
        std::fs::remove_file(counts).expect("counted");
        assert!(count > 50, "{count}");
        count
    }
}

fn random() -> impl FnMut() -> usize {
    let seed = std::env::var("NOPAL_SEED")
        .ok()
        .and_then(|it| it.parse().ok());
    let mut random = seed.unwrap_or_else(|| u64::from(std::process::id())) | 1;
    println!("NOPAL_SEED={random}");
    move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random as usize
    }
}

/// Numbers up to `most`: all, or some.
fn places(most: usize, random: &mut impl FnMut() -> usize) -> Vec<usize> {
    if let Ok(kills) = std::env::var("NOPAL_KILLS") {
        let named = kills.split(',').filter_map(|at| at.parse().ok());
        return match kills.as_str() {
            "all" => (1..=most).collect(),
            _ => named.collect(),
        };
    }
    (0..SOME).map(|_| random() % most + 1).collect()
}

/// The process that dies, and the signal before.
#[derive(Clone, Copy, PartialEq)]
enum Death {
    Tool,
    Both,
    /// The tool, some requests after its SIGINT.
    ToolAfterCtrlC,
}

fn sweep(how: How, death: Death) {
    sweep_over(&Scene::new(), how, death);
}

fn sweep_over(place: &Scene, how: How, death: Death) {
    /// The most requests between Ctrl-C and the end.
    const GRACE: usize = 40;
    let count = place.count(how);
    let mut random = random();
    let mut failures = Vec::new();
    let places = places(count, &mut random);
    for at in &places {
        for after in [false, true] {
            let grace = random() % GRACE;
            let who = if death == Death::Both { "both" } else { "tool" };
            let mut variables = vec![("KILL_WHO", who.to_owned())];
            let mut killed_at = *at;
            if death == Death::ToolAfterCtrlC {
                variables.push(("KILL_INTERRUPT_AT", at.to_string()));
                killed_at += grace;
            }
            variables.push(("KILL_AT", killed_at.to_string()));
            if after {
                variables.push(("KILL_AFTER", String::new()));
            }
            let killing = Killing {
                how,
                variables: variables.clone(),
                guardian_lives: death != Death::Both,
            };
            if let Err(error) = place.run(&killing) {
                let said = std::fs::read_to_string(place.said()).unwrap_or_default();
                failures.push(format!("{variables:?} of {count}: {error}; said: {said:?}"));
                println!("{}", failures[failures.len() - 1]);
            }
        }
    }
    println!(
        "{} places of {count}, {} failures",
        places.len(),
        failures.len()
    );
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn the_tool_while_it_starts_a_program() {
    sweep(How::Launched, Death::Tool);
}

#[test]
fn both_while_they_start_a_program() {
    sweep(How::Launched, Death::Both);
}

#[test]
fn the_tool_while_it_comes_and_goes() {
    sweep(How::Attached, Death::Tool);
}

#[test]
fn both_while_they_come_and_go() {
    sweep(How::Attached, Death::Both);
}

/// Its only thread makes the calls for nopal, and goes back by itself.
#[test]
fn the_tool_while_it_comes_to_a_coroutine_and_goes() {
    sweep_over(&Scene::of("killed_coroutine"), How::Attached, Death::Tool);
}

#[test]
fn the_tool_after_ctrl_c_while_it_starts_a_program() {
    sweep(How::Launched, Death::ToolAfterCtrlC);
}

#[test]
fn the_tool_after_ctrl_c_while_it_comes_and_goes() {
    sweep(How::Attached, Death::ToolAfterCtrlC);
}

/// The tool dies when everything is inserted, and the guardian at each of its own steps.
#[test]
fn the_guardian_while_it_takes_nopal_out() {
    const STEPS: usize = 40;
    let place = Scene::new();
    let count = place.count(How::Attached);
    let mut failures = Vec::new();
    for at in places(STEPS, &mut random()) {
        let killing = Killing {
            how: How::Attached,
            variables: vec![
                ("KILL_WHO", "guardian".to_owned()),
                ("KILL_TOOL_AT", (count * 2 / 3).to_string()),
                ("KILL_AT", at.to_string()),
            ],
            guardian_lives: false,
        };
        if let Err(error) = place.run(&killing) {
            failures.push(format!("at {at}: {error}"));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}
