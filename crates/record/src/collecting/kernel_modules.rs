//! Functions of kernel modules that come while a recording runs: they are planned as soon as their module has been loaded.

use anyhow::{Context, Result, anyhow};
use nopal_beside::Mutex;
use nopal_kernel::{Device, Symbols};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle, park_timeout};
use std::time::Duration;

/// How often the module is asked whether others have come.
const LOOK: Duration = Duration::from_millis(100);

/// A function as a note of its site has it.
#[derive(Clone)]
pub struct KernelFunction {
    pub address: u64,
    pub size: u64,
    pub name: String,
}

impl KernelFunction {
    pub fn of(symbols: &Symbols, address: u64) -> KernelFunction {
        // Where a module has gone, the address is behind another function.
        let span = symbols
            .span_at(address)
            .filter(|span| span.address == address);
        let name = span.and_then(|span| span.names().next());
        let size = span.and_then(|span| span.end);
        KernelFunction {
            address,
            size: size.map_or(0, |end| end - address),
            name: name.map_or_else(|| format!("{address:#x}"), |name| name.name.to_owned()),
        }
    }
}

/// By the module's site numbers.
type Named = HashMap<u32, KernelFunction>;

#[derive(Default)]
struct Followed {
    is_ended: AtomicBool,
    named: Mutex<Named>,
    /// While functions are told to the module: some record before they are named.
    coming: Mutex<Option<Arc<Symbols>>>,
}

pub struct Follower {
    followed: Arc<Followed>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Follower {
    pub fn start(device: Device) -> Result<Follower> {
        let followed = Arc::<Followed>::default();
        let of_thread = followed.clone();
        let thread = Builder::new().spawn(move || of_thread.follow(device))?;
        Ok(Follower {
            followed,
            thread: Some(thread),
        })
    }

    /// A function that came later.
    pub fn function(&self, site: u32) -> Option<KernelFunction> {
        self.followed.named.lock().get(&site).cloned()
    }

    /// Names those functions from a site on that are not named yet, or that others told the module of.
    pub fn name(&self, first: u32, addresses: &[u64]) -> Result<()> {
        let coming = self.followed.coming.lock().clone();
        let symbols = &*coming.map_or_else(|| Symbols::read().map(Arc::new), Ok)?;
        let mut named = self.followed.named.lock();
        for (site, address) in (first..).zip(addresses) {
            let unknown = named.entry(site);
            unknown.or_insert_with(|| KernelFunction::of(symbols, *address));
        }
        Ok(())
    }

    /// Afterwards, no functions come any more.
    pub fn end(&mut self) -> Result<()> {
        self.followed.is_ended.store(true, Ordering::Release);
        let Some(thread) = self.thread.take() else {
            return Ok(());
        };
        thread.thread().unpark();
        let joined = thread.join();
        let followed =
            joined.unwrap_or_else(|_| Err(anyhow!("the thread that plans them panicked")));
        followed.context("functions of modules that came later are not recorded")
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

impl Followed {
    fn follow(&self, mut device: Device) -> Result<()> {
        while !self.is_ended.load(Ordering::Acquire) {
            if device.needs_plan()? {
                self.load(&mut device)?;
            }
            park_timeout(LOOK);
        }
        Ok(())
    }

    /// Modules that come meanwhile need another plan.
    fn load(&self, device: &mut Device) -> Result<()> {
        let mut loaded = device.plan(false)?;
        let symbols = Arc::new(std::mem::take(&mut loaded.kernel.symbols));
        *self.coming.lock() = Some(symbols.clone());
        let uploaded = device.upload(&mut loaded);
        let functions = loaded.plan.functions.iter().zip(&loaded.verdicts);
        let functions: Vec<_> = functions
            .filter(|(_, verdict)| verdict.has_site())
            .map(|(function, _)| KernelFunction::of(&symbols, function.address))
            .collect();
        let named = (loaded.first_site..).zip(functions);
        self.named.lock().extend(named);
        *self.coming.lock() = None;
        uploaded.map(drop)
    }
}
