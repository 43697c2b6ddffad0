//! `nopal daemon`: records services, as files tell, for as long as the machine runs.
//!
//! Each service has a `nopal attach` of its own, which is the tool of an ordinary session: `nopal ctl`, `nopal mount`
//! and `nopal detach` reach it. The daemon starts it, passes on its messages, and removes the oldest recordings. A
//! recording ends when the daemon does, however that ends.

pub mod configuration;
mod follow;
pub mod metrics;
mod recordings;

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nopal_analysis::text::several;

use crate::arguments::Daemon;
use crate::message;
use configuration::{Described, Service};
use follow::Followed;
use metrics::Statuses;

/// Between two looks at the services. The end of a recording is noticed at once.
const LOOK: Duration = Duration::from_secs(1);
/// How long recordings may take to end, with the daemon.
const FOR_END: Duration = Duration::from_secs(60);

/// Ends at SIGINT or SIGTERM; reads the files again at SIGHUP.
pub fn run(arguments: &Daemon) -> Result<()> {
    // This comes before other threads, which inherit the mask.
    let signals = Signals::block()?;
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    let made = builder.create(&arguments.directory);
    made.with_context(|| format!("cannot make {}", arguments.directory.display()))?;
    ensure_own(&arguments.directory)?;
    let _lock = lock(&arguments.directory)?;
    recordings::end_all(&arguments.directory);
    let mut wanted = read(&arguments.configuration, &BTreeMap::new())?;
    ensure!(
        !wanted.is_empty(),
        "no service is described in {}",
        arguments.configuration.display()
    );
    let statuses = Statuses::default();
    if let Some(endpoint) = &arguments.metrics {
        metrics::serve(endpoint, &statuses)?;
    }
    let mut followed: BTreeMap<String, Followed> = BTreeMap::new();
    let mut ending: Option<Instant> = None;
    loop {
        follow(&wanted, &mut followed, &arguments.directory);
        *statuses.lock() = followed.values().map(Followed::status).collect();
        match ending {
            Some(_) if followed.is_empty() => return Ok(()),
            Some(since) if since.elapsed() > FOR_END => {
                let names: Vec<&str> = followed.keys().map(String::as_str).collect();
                bail!("recordings do not end: {}", names.join(", "));
            }
            _ => {}
        }
        match signals.wait(LOOK) {
            Some(libc::SIGHUP) if ending.is_none() => match read(&arguments.configuration, &wanted)
            {
                Ok(read) => {
                    wanted = read;
                    followed.values_mut().for_each(Followed::hasten);
                }
                Err(error) => message::write(&format!("{error:#}; nothing changes")),
            },
            Some(libc::SIGINT | libc::SIGTERM) => {
                wanted.clear();
                ending.get_or_insert_with(Instant::now);
            }
            _ => {}
        }
    }
}

/// Follows the described services, and no others. A service whose file has changed is another one.
fn follow(
    wanted: &BTreeMap<String, Service>,
    followed: &mut BTreeMap<String, Followed>,
    directory: &Path,
) {
    followed.retain(|name, one| {
        if wanted.get(name) == Some(&one.service) {
            one.work();
            return true;
        }
        one.end();
        one.notice_end().is_ok() && one.is_recording()
    });
    for (name, service) in wanted {
        if !followed.contains_key(name) {
            let mut one = Followed::new(service.clone(), directory);
            one.work();
            followed.insert(name.clone(), one);
        }
    }
}

/// The described services. Prints errors; a followed service with an error in its file stays `as_before`.
fn read(
    directory: &Path,
    as_before: &BTreeMap<String, Service>,
) -> Result<BTreeMap<String, Service>> {
    let Described { services, wrong } = configuration::read(directory)?;
    let named = services.into_iter().map(|one| (one.name.clone(), one));
    let mut services: BTreeMap<String, Service> = named.collect();
    for (name, line) in wrong {
        message::write(&line);
        let before = as_before.get(&name).cloned();
        services.extend(before.map(|service| (name, service)));
    }
    let names: Vec<&str> = services.keys().map(String::as_str).collect();
    let number = several(names.len() as u64, "service", "services");
    message::write(&match names.is_empty() {
        true => format!("following {number}"),
        false => format!("following {number}: {}", names.join(", ")),
    });
    Ok(services)
}

/// Users who may write to the directory could lead the recordings elsewhere.
fn ensure_own(directory: &Path) -> Result<()> {
    let shown = directory.display();
    let facts = directory.metadata().with_context(|| shown.to_string())?;
    let user = rustix::process::geteuid().as_raw();
    ensure!(
        (facts.uid() == user || facts.uid() == 0) && facts.mode() & 0o022 == 0,
        "{shown} belongs to another user, or others may write to it"
    );
    Ok(())
}

/// Fails if another daemon records into the directory.
fn lock(directory: &Path) -> Result<File> {
    let path = directory.join(".lock");
    let mut options = File::options();
    options.write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(&path);
    let file = file.with_context(|| format!("cannot open {}", path.display()))?;
    ensure!(
        file.try_lock().is_ok(),
        "another daemon records into {}",
        directory.display()
    );
    Ok(file)
}

struct Signals(libc::sigset_t);

impl Signals {
    fn block() -> Result<Signals> {
        // SAFETY: a set that sigemptyset and sigaddset make, and no handlers.
        unsafe {
            // If it were ignored, children would leave no status.
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            // The reader of the messages may go away.
            libc::signal(libc::SIGPIPE, libc::SIG_IGN);
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGCHLD] {
                libc::sigaddset(&mut set, signal);
            }
            let failed = libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            ensure!(failed == 0, "signals cannot be blocked");
            Ok(Signals(set))
        }
    }

    /// The next signal; none if none comes within a time.
    fn wait(&self, most: Duration) -> Option<i32> {
        let most = libc::timespec {
            tv_sec: most.as_secs() as i64,
            tv_nsec: most.subsec_nanos().into(),
        };
        // SAFETY: valid pointers; nothing is wanted of the signal but its number.
        let signal = unsafe { libc::sigtimedwait(&self.0, std::ptr::null_mut(), &most) };
        (signal > 0).then_some(signal)
    }
}
