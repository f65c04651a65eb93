//! Bypass in the kernel, of an interface or two that are bridged: who has which flow there, and what is counted of them.
//!
//! A worker enters a flow itself, when it decides that it needs no more looking, and takes it out when it ends: both are rare.
//! Between them its counts are read by a thread beside the workers ([`look_after`]), which tells each worker of
//! those that went on, so that flows stay as long as their packets come, and their records are true at any time.

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
use crate::control::post::Post;
use crate::service::privileges;
use crate::signals::Signals;
use crate::threads;

/// How often counts are read. Far less than the shortest timeout that makes sense for a flow.
const PERIOD: Duration = Duration::from_secs(1);
/// Most counts told a worker at a time.
const TOLD_MAX: usize = 4096;

/// What the kernel has counted of a direction of a flow since it was entered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counted {
    pub(crate) at: FlowRef,
    pub(crate) flow: u64,
    /// [`margay_flow::Direction::index`].
    pub(crate) direction: usize,
    pub(crate) count: BypassCount,
}

/// Whose a flow's direction is.
struct Owner {
    post: Arc<Post>,
    /// As it was last told.
    told: Counted,
}

/// Flows of an interface, or of two that are bridged, that are bypassed in the kernel.
pub(crate) struct Table {
    kernel: Bypass,
    owners: Mutex<HashMap<BypassKey, Owner>>,
    /// What was said.
    full: AtomicBool,
    refused: AtomicBool,
    broken: AtomicBool,
    /// The thread that reads counts has given up.
    unread: AtomicBool,
}

/// Starts the thread that looks after the tables, if there are any, until the engine is to stop. It is one of its own because it keeps
/// the capabilities that this takes.
///
/// # Errors
/// Where there is none to be had.
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
    /// Brings the program to the device's interfaces, where its configuration wants that. What cannot be is said; flows are
    /// bypassed in user space alone then.
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

    /// The programs and what they look in.
    pub(super) fn kernel(&self) -> &Bypass {
        &self.kernel
    }

    /// Has the kernel bypass a flow from here on.
    ///
    /// # Errors
    /// It does not.
    pub(crate) fn enter(&self, keys: &[BypassKey; 2], at: FlowRef, flow: u64, post: &Arc<Post>) -> Result<(), Refusal> {
        if self.unread.load(Ordering::Relaxed) {
            return Err(Refusal::Unread);
        }
        self.kernel.enter(keys).inspect_err(|e| {
            let said = if let Refusal::Full = e { &self.full } else { &self.refused };
            if !said.swap(true, Ordering::Relaxed) {
                warning!(
                    "af-packet",
                    "bypass: {e}; it is bypassed in user space, and so are others; this is said once"
                );
            }
        })?;
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        for (direction, key) in keys.iter().enumerate() {
            let told = Counted { at, flow, direction, count: BypassCount::default() };
            owners.insert(*key, Owner { post: Arc::clone(post), told });
        }
        Ok(())
    }

    /// Nobody reads the counts any more: flows are bypassed in user space from here on. Those in the kernel leave it when they were
    /// silent, as far as is known, for as long as a bypassed flow may be.
    fn give_up(&self) {
        self.unread.store(true, Ordering::Relaxed);
        error!("af-packet", "bypass: flows are bypassed in user space alone from here on");
    }

    /// Takes a flow out; what was counted of each direction since it was entered.
    pub(crate) fn take(&self, keys: &[BypassKey; 2]) -> [BypassCount; 2] {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        keys.iter().for_each(|k| drop(owners.remove(k)));
        drop(owners);
        self.kernel.take(keys)
    }

    /// Tells workers what the kernel has counted of their flows, and brings the program back to interfaces that were gone.
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

    /// Tells owners what is new to them.
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
                    // The rest is told the next time.
                    Some((_, list)) if list.len() >= TOLD_MAX => continue,
                    Some((_, list)) => list.push(told),
                    None => news.push((Arc::clone(&owner.post), vec![told])),
                }
                owner.told = told;
            }
        }
        for (post, list) in news {
            // One that takes no more orders asks the kernel itself when its flows end.
            let _ = post.send(Box::new(move |w, _| w.pipeline.counted_in_kernel(&list)));
        }
    }
}
