//! Kernel bypass for one interface, or two that are bridged: records the worker of each bypassed flow, and collects the
//! kernel's counts.
//!
//! A worker adds a flow itself, when it decides to bypass it, and removes it when it ends; both are rare. In between, a
//! separate thread reads the counts ([`look_after`]) and sends each worker those of its active flows. So a flow lives as long
//! as its packets arrive, and its record is always current.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use margay_capture::af_packet::Interface;
use margay_capture::bypass::{Bypass, BypassCount, BypassKey, BypassPort, Place, Refusal};
use margay_capture::ebpf::XdpMode;
use margay_flow::FlowRef;
use margay_output::{error, info, notice, warning};
use margay_packet::fault;

use super::STEP;
use super::settings::Device;
use crate::Failed;
use crate::post::Post;
use crate::service::privileges;
use crate::signals::Signals;
use crate::threads;
use crate::worker::bypass::{Counted, KernelTable};

/// Interval of reading counts, far shorter than any useful flow timeout.
const PERIOD: Duration = Duration::from_secs(1);
/// Limit of the counts sent to a worker at a time.
const TOLD_MAX: usize = 4096;

/// The owner of one direction of a flow.
struct Owner {
    post: Arc<Post>,
    /// The counts that were last sent.
    told: Counted,
}

/// Flows that the kernel bypasses, for one interface or two that are bridged.
pub(crate) struct Table {
    kernel: Bypass,
    owners: Mutex<HashMap<BypassKey, Owner>>,
    /// The full table was logged.
    full: AtomicBool,
    refused: AtomicBool,
    broken: AtomicBool,
    /// The thread that reads counts has stopped.
    unread: AtomicBool,
}

/// Starts the thread that maintains the tables, if there are any, until the engine stops. It is a separate thread because it
/// keeps the capabilities for this.
///
/// # Errors
/// The thread cannot start.
pub(super) fn look_after(tables: Vec<Arc<Table>>, signals: &Arc<Signals>) -> Result<(), Failed> {
    if tables.is_empty() {
        return Ok(());
    }
    let signals = Arc::clone(signals);
    let run = move || {
        if let Err(f) = privileges::keep_for_bypass() {
            error!(f.module, "{}", f.message);
        }
        let looked = threads::persist("who reads what is bypassed", || {
            let mut next = Instant::now() + PERIOD;
            while !signals.stop() {
                std::thread::sleep(STEP);
                if Instant::now() >= next {
                    next = Instant::now() + PERIOD;
                    fault::point("bypass");
                    tables.iter().for_each(|t| t.tick());
                }
            }
        });
        if !looked {
            tables.iter().for_each(|t| t.give_up());
        }
    };
    let thread = std::thread::Builder::new().name("bypass".to_owned()).spawn(run);
    thread.map(drop).map_err(|e| Failed::new("threads", format!("cannot start the thread \"bypass\": {e}")))
}

impl Table {
    /// Attaches the program to the device's interfaces, if the configuration requests it. A failure is logged, and flows are
    /// then bypassed only in user space.
    pub(super) fn of(device: &Device) -> Option<Arc<Table>> {
        let mut mode = device.bypass?;
        let names: Vec<&str> = device.interfaces().collect();
        if names.len() > 1 && mode == XdpMode::Driver && !names.iter().all(|n| Interface::is_physical(n)) {
            warning!(
                "af-packet",
                "{}: xdp-mode: driver: virtual interfaces lose what a program in the driver sends on, unless their other end takes \
                 it so: it stands in the network stack (soft)",
                names.join(", ")
            );
            mode = XdpMode::Generic;
        }
        let to = |n: usize| (names.len() == 2).then(|| names.get(1 - n).map(|s| (*s).to_owned())).flatten();
        let port = |(n, i): (usize, &&str)| BypassPort { interface: (*i).to_owned(), to: to(n) };
        let ports: Vec<BypassPort> = names.iter().enumerate().map(port).collect();
        match Bypass::new(&ports, Some(mode)) {
            Ok(kernel) => {
                if let Some(e) = kernel.instead() {
                    notice!(
                        "af-packet",
                        "bypass: {e}; the program is one of XDP in the network stack, for which the kernel copies every large packet"
                    );
                }
                for (interface, place) in kernel.places() {
                    let tc = place == Some(Place::Ingress);
                    let place = match place {
                        Some(Place::Driver) => "the driver (XDP)",
                        Some(Place::Ingress) => "the network stack (tc)",
                        _ => "the network stack (XDP)",
                    };
                    info!("af-packet", "{interface}: flows that need no more looking are bypassed in {place}");
                    if !tc && Interface::takes_tags_out(&interface) && Interface::is_physical(&interface) {
                        warning!(
                            "af-packet",
                            "{interface}: bypass: the card takes VLAN tags out of frames, so that flows with tags are bypassed in user \
                             space alone: `ethtool -K {interface} rxvlan off` keeps them"
                        );
                    }
                }
                let (owners, full, refused, broken, unread) = Default::default();
                Some(Arc::new(Table { kernel, owners, full, refused, broken, unread }))
            }
            Err(e) => {
                warning!("af-packet", "bypass: {e}; flows are bypassed in user space alone");
                None
            }
        }
    }

    /// The programs and their maps.
    pub(super) fn kernel(&self) -> &Bypass {
        &self.kernel
    }

    /// Adds a flow, which the kernel bypasses from now on.
    ///
    /// # Errors
    /// The kernel refuses.
    fn enter(&self, keys: &[BypassKey; 2], at: FlowRef, flow: u64, post: &Arc<Post>) -> Result<(), Refusal> {
        if self.unread.load(Ordering::Relaxed) {
            return Err(Refusal::Unread);
        }
        self.kernel.enter(keys).inspect_err(|e| {
            let said = if let Refusal::Full = e { &self.full } else { &self.refused };
            if !said.swap(true, Ordering::Relaxed) {
                warning!("af-packet", "bypass: {e}; such flows are bypassed in user space; this is logged once");
            }
        })?;
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        for (direction, key) in keys.iter().enumerate() {
            let told = Counted { at, flow, direction, count: BypassCount::default() };
            owners.insert(*key, Owner { post: Arc::clone(post), told });
        }
        Ok(())
    }

    /// Stops kernel bypass, because the counts can no longer be read. From now on flows are bypassed in user space. A flow
    /// leaves the kernel once its last known packet is older than the timeout of a bypassed flow.
    fn give_up(&self) {
        self.unread.store(true, Ordering::Relaxed);
        error!("af-packet", "bypass: flows are bypassed in user space alone from here on");
    }

    /// Removes a flow. Returns the counts of each direction since the flow was added.
    fn take(&self, keys: &[BypassKey; 2]) -> [BypassCount; 2] {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        keys.iter().for_each(|k| drop(owners.remove(k)));
        drop(owners);
        self.kernel.take(keys)
    }

    /// Sends workers the counts of their flows, and attaches the program again to interfaces that reappeared.
    fn tick(&self) {
        match self.kernel.repair() {
            Ok(back) => {
                self.broken.store(false, Ordering::Relaxed);
                back.iter().for_each(|i| notice!("af-packet", "{i}: flows are bypassed in the kernel again"));
            }
            Err(e) => {
                if !self.broken.swap(true, Ordering::Relaxed) {
                    warning!("af-packet", "bypass: {e}; it is tried again");
                }
            }
        }
        let mut counts = Vec::new();
        if let Err(e) = self.kernel.read(&mut |key, count| counts.push((*key, count))) {
            warning!("af-packet", "bypass: counts of flows cannot be read: {e}");
        }
        self.tell(&counts);
    }

    /// Sends new counts to their owners.
    fn tell(&self, counts: &[(BypassKey, BypassCount)]) {
        let mut news: Vec<(Arc<Post>, Vec<Counted>)> = Vec::new();
        {
            let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
            for (key, count) in counts {
                let Some(owner) = owners.get_mut(key).filter(|o| o.told.count.packets != count.packets) else {
                    continue;
                };
                let told = Counted { count: *count, ..owner.told };
                match news.iter_mut().find(|n| Arc::ptr_eq(&n.0, &owner.post)) {
                    // The remaining counts are sent the next time.
                    Some((_, list)) if list.len() >= TOLD_MAX => continue,
                    Some((_, list)) => list.push(told),
                    None => news.push((Arc::clone(&owner.post), vec![told])),
                }
                owner.told = told;
            }
        }
        for (post, list) in news {
            // A worker that no longer takes requests reads the counts itself when its flows end.
            let _ = post.send(Box::new(move |w, _| w.pipeline.counted_in_kernel(&list)));
        }
    }
}

/// The table for one worker.
pub(super) struct OfWorker {
    pub(super) table: Arc<Table>,
    /// Where the kernel's counts arrive.
    pub(super) post: Arc<Post>,
}

impl KernelTable for OfWorker {
    fn enter(&self, keys: &[BypassKey; 2], at: FlowRef, flow: u64) -> Result<(), Refusal> {
        self.table.enter(keys, at, flow, &self.post)
    }

    fn take(&self, keys: &[BypassKey; 2]) -> [BypassCount; 2] {
        self.table.take(keys)
    }
}
