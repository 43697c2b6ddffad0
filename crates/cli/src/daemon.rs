//! `nopal daemon`: records services, as files tell, for as long as the machine runs.
//!
//! Each service has a `nopal attach` of its own, which is the tool of an ordinary session: `nopal ctl`, `nopal mount` and
//! `nopal detach` reach it. The daemon starts it, says what it says, and removes the oldest recordings. A recording ends
//! when the daemon does, however that ends.

pub mod configuration;
mod follow;
pub mod metrics;
mod recordings;

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nopal_analysis::text::several;

use crate::arguments::Daemon;
use crate::message;
use configuration::Service;
use follow::Followed;
use metrics::Statuses;

/// Between two looks at the services. The end of a recording is noticed at once.
const LOOK: Duration = Duration::from_secs(1);
/// How long recordings may take to end, with the daemon.
const FOR_END: Duration = Duration::from_secs(60);

/// Ends at SIGINT or SIGTERM; reads the files again at SIGHUP.
pub fn run(arguments: &Daemon) -> Result<()> {
    // Before there are other threads, which get the mask of this one.
    let signals = Signals::block()?;
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    let made = builder.create(&arguments.directory);
    made.with_context(|| format!("cannot make {}", arguments.directory.display()))?;
    let _lock = lock(&arguments.directory)?;
    let Some(mut wanted) = read(&arguments.configuration)? else {
        bail!(
            "no service is described in {}",
            arguments.configuration.display()
        );
    };
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
            Some(libc::SIGHUP) if ending.is_none() => match read(&arguments.configuration) {
                Ok(read) => wanted = read.unwrap_or_default(),
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

/// Follows what is wanted, and nothing else. A service whose file has changed is another one.
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

/// The services that are described; none at all is `None`. Says what is wrong.
fn read(directory: &Path) -> Result<Option<BTreeMap<String, Service>>> {
    let (services, wrong) = configuration::read(directory)?;
    wrong.iter().for_each(|line| message::write(line));
    if services.is_empty() {
        return Ok(None);
    }
    let names: Vec<&str> = services.iter().map(|one| one.name.as_str()).collect();
    message::write(&format!(
        "following {}: {}",
        several(names.len() as u64, "service", "services"),
        names.join(", ")
    ));
    let named = services.into_iter().map(|one| (one.name.clone(), one));
    Ok(Some(named.collect()))
}

/// Fails where another daemon records into the directory.
fn lock(directory: &Path) -> Result<File> {
    let path = directory.join("daemon.lock");
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
        // SAFETY: a set that sigemptyset and sigaddset make.
        unsafe {
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

    /// The next one, or none within a time.
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
