//! Two bridged interfaces: packets received at one leave through the other, unless they are dropped (`copy-mode`, `copy-iface`).
//!
//! A worker has a ring on each interface, so it sees both directions of its flows. Packets wait in slots (TPACKET_V2) instead of blocks,
//! since a block is handed over only when it is full or its time is over, which would delay every packet. They are inspected and sent
//! from there: the kernel copies them once, into the packet that it sends. A batch belongs to one end and is sent in order, with one call
//! for many packets.
//!
//! Several workers share a bridge's flows through kernel fan-out groups, one per interface. A flow's hash is the same for both directions
//! and interfaces, and selects a group member by the order of joining. [`Agreement`] gives a worker the same place in both groups, also
//! after an interface was recreated.
//!
//! # Work of a card
//!
//! Packets arrive as the host has them, not as on the wire: without their VLAN tag, without a checksum if the sender leaves it to its
//! card (virtual interfaces do), several in one if the sender leaves cutting to its card (TSO) or the receiver merged them (GRO). The
//! bridge restores the tag. The kernel describes the rest in a header of ten bytes before the frame (`PACKET_VNET_HDR`) and reads it
//! again on sending: it fills in checksums and cuts to the original sizes, or leaves that to the sending card. A merged packet is
//! inspected as one. Packets larger than a slot, mostly merged ones, need a call each (`PACKET_COPY_THRESH`).
//!
//! An unfinished checksum is the sum of the pseudo-header, so it stays unchanged when the payload changes.
//!
//! # Limits
//!
//! | what | limit or policy |
//! | --- | --- |
//! | packets that wait | the ring's slots; the kernel drops and counts those without room ([`LiveCounters::kernel_drops`]) |
//! | packets larger than a slot that wait | 32 MiB; those without room are cut, counted ([`LiveCounters::truncated`]) and not forwarded |
//! | no room to send | tried 20 times in 10 ms for each 64 packets; then lost, [`LiveCounters::send_errors`] |
//! | the other interface is down | packets for it are lost, counted in the same way |

mod post;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::block::{self, Trust, VLAN_TAG};
use super::patience::Patience;
use super::ring::{SlotRing, poll_all};
use super::send::{Offload, Out, Sender};
use super::{NOTHING, Opening, Settings, let_in_others};
use crate::batch::{Batch, Meta};
use crate::bypass::{Bypass, SocketFilter};
use crate::interface::Interface;
use crate::link::{LOOK, State};
use crate::live::{Decisions, LinkChange, LiveCounters, LiveError, LiveSource, Received, Side, Verdict};
use crate::sys::Polled;
use post::Post;

/// Buffer size for a packet that is larger than a slot, and the number of such packets in a batch.
const LARGE: usize = 1 << 17;
const LARGE_TOGETHER: usize = 16;
/// Limit for a loop over waiting packets that are larger than a slot; more never wait.
const LEFT_OVER: usize = 1 << 16;
/// The first and the longest pause after a socket reported packets without having any. The kernel needs no longer to finish
/// writing a packet.
const QUIET: [Duration; 2] = [Duration::from_micros(50), Duration::from_millis(10)];
/// Number of such pauses after which the packets in the socket's queue count as orphaned.
const QUIET_TIMES: u32 = 100;
/// Interval for checking an interface that cannot be sent to.
const LOST: Duration = Duration::from_millis(5);
/// Bytes of a slot before the frame: header, address, room for a VLAN tag.
const BEFORE: u32 = 128;
/// Batches after which a busy worker checks the interfaces.
const BATCHES: u32 = 4096;
/// The same, if an interface is not yet open.
const SOON: u32 = 64;

/// One of the two interfaces.
#[derive(Debug, Clone)]
pub struct BridgeEnd {
    /// Its name.
    pub name: String,
    /// Its capture settings. Number and size of blocks give the ring's memory, which is divided into slots.
    pub settings: Settings,
    /// Whether verdicts apply to packets received here (`copy-mode: ips`). Otherwise, all are forwarded unchanged (`tap`).
    pub drops: bool,
}

/// State shared by the workers of a bridge: the group numbers, and each worker's place.
#[derive(Debug, Clone, Default)]
pub struct Agreement(Arc<Mutex<[Places; 2]>>);

#[derive(Debug, Clone, Copy, Default)]
struct Places {
    /// The interface's index, which changes when it is recreated.
    index: i32,
    /// How many workers have joined.
    taken: usize,
    group: Option<u16>,
}

/// One end of the bridge.
#[derive(Debug)]
struct End {
    name: String,
    settings: Settings,
    drops: bool,
    interface: Interface,
    /// `None` while the interface is gone.
    ring: Option<SlotRing>,
    /// Sends packets received at the other interface.
    sender: Option<Sender>,
    /// Excludes packets that the kernel forwards.
    filter: Option<SocketFilter>,
    state: State,
    /// The socket accepts packets.
    open: bool,
    metas: Vec<Meta>,
    offloads: Vec<Offload>,
    /// The batch has packets larger than a slot, whose bytes are in `beside`.
    large: bool,
    beside: Vec<u8>,
    counters: LiveCounters,
}

/// A worker's part of a bridge: two interfaces, with a ring on each.
#[derive(Debug)]
pub struct Bridge {
    ends: [End; 2],
    /// The end that received the batch.
    current: usize,
    agreement: Agreement,
    /// This worker's place in the groups.
    place: usize,
    /// Number of workers of the bridge.
    workers: usize,
    started: bool,
    looked: Instant,
    /// Batches since `looked`.
    batches: u32,
    /// How long to poll for packets before sleeping.
    patience: Patience,
    /// Consecutive polls that reported packets without having any.
    quiet: u32,
    /// A changed packet with an unfinished checksum.
    patched: Vec<u8>,
}

impl Bridge {
    /// Creates the sockets of one of `workers` workers. They are ready, but accept no packets yet.
    ///
    /// # Errors
    /// [`LiveError`].
    pub fn open(ends: [BridgeEnd; 2], agreement: &Agreement, workers: usize) -> Result<Bridge, LiveError> {
        let [a, b] = ends;
        let patience = Patience::of(a.settings.busy_poll.max(b.settings.busy_poll));
        let (a, b) = (End::new(a)?, End::new(b)?);
        let mut bridge = Bridge {
            ends: [a, b],
            current: 0,
            agreement: agreement.clone(),
            place: 0,
            workers,
            started: false,
            looked: Instant::now(),
            batches: 0,
            patience,
            quiet: 0,
            patched: Vec::new(),
        };
        // Hold the lock, so that no other worker joins in between.
        let agreement = agreement.clone();
        let mut places = agreement.0.lock().unwrap_or_else(PoisonError::into_inner);
        bridge.place = places[0].taken;
        for (end, places) in bridge.ends.iter_mut().zip(&mut *places) {
            end.open_ring(places, bridge.place)?;
        }
        drop(places);
        Ok(bridge)
    }

    /// Keeps packets of flows that the kernel bypasses out of the sockets. Call it before the start.
    pub fn leave_out(&mut self, bypass: &Bypass) {
        for end in &mut self.ends {
            end.filter = bypass.filter(&end.name);
        }
    }

    /// Opens an end again whose interface has reappeared, if it is this worker's turn. Returns whether it did.
    fn open_again(&mut self, at: usize) -> bool {
        let mut places = self.agreement.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some(end), Some(places)) = (self.ends.get_mut(at), places.get_mut(at)) else { return false };
        matches!(end.open_ring(places, self.place), Ok(true))
    }

    /// Accepts packets at the ends that all workers have opened.
    fn let_in(&mut self) -> Result<(), LiveError> {
        let places = *self.agreement.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (end, places) in self.ends.iter_mut().zip(places) {
            let all = places.index == end.interface.index && places.taken >= self.workers;
            if let Some(ring) = &end.ring
                && !end.open
                && all
            {
                let_in_others(&end.name, &ring.socket, end.filter.as_ref())?;
                end.open = true;
            }
        }
        Ok(())
    }

    /// Forwards the accepted packets of the batch.
    fn carry_out(&mut self, decisions: &Decisions) {
        let [a, b] = &mut self.ends;
        let (from, to) = if self.current == 0 { (a, b) } else { (b, a) };
        if from.metas.is_empty() && decisions.is_plain() {
            return;
        }
        let mut post = Post::new(to.sender.as_ref());
        let mut dropped = 0;
        let data = match from.large {
            true => &from.beside[..],
            false => from.ring.as_ref().map_or(&[][..], SlotRing::taken),
        };
        for (i, (meta, &offload)) in from.metas.iter().zip(&from.offloads).enumerate() {
            let verdict = if from.drops { decisions.verdict(i) } else { Verdict::Accept };
            let start = meta.start as usize;
            let own = data.get(start..start + meta.len as usize).unwrap_or(&[]);
            if verdict == Verdict::Drop {
                dropped += 1;
            } else if meta.len < meta.wire_len {
                // A truncated packet cannot be sent.
                post.lost += 1;
            } else if let Some(frame) = decisions.replacement(i).filter(|_| from.drops) {
                match offload.checksum() {
                    // The replacement is shorter and complete: nothing is left to segment, and its checksum is correct.
                    _ if frame.len() < own.len() => post.add(Out { frame, ..Out::default() }),
                    None => post.add(Out { offload, frame }),
                    Some(at) => {
                        post.flush();
                        self.patched.clear();
                        self.patched.extend_from_slice(frame);
                        if let (Some(to), Some(from)) = (self.patched.get_mut(at..at + 2), own.get(at..at + 2)) {
                            to.copy_from_slice(from);
                        }
                        post.one(Out { offload, frame: &self.patched });
                    }
                }
            } else {
                post.add(Out { offload, frame: own });
            }
        }
        post.flush();
        let (sent, lost, gone) = (post.sent, post.lost, post.gone);
        from.counters.dropped += dropped;
        from.counters.sent += sent;
        from.counters.send_errors += lost;
        for (side, frame) in decisions.answers() {
            let end = if side == Side::Source { &mut *from } else { &mut *to };
            let done = end.sender.as_ref().map(|s| s.send(&[Out { frame, ..Out::default() }]));
            match done {
                Some(d) if d.sent == 1 => end.counters.answers += 1,
                _ => end.counters.answer_errors += 1,
            }
        }
        if gone && self.looked.elapsed() >= LOST {
            self.batches = BATCHES;
        }
    }

    /// Releases the batch.
    fn give_back(&mut self) {
        if let Some(end) = self.ends.get_mut(self.current) {
            end.metas.clear();
            end.offloads.clear();
            if let Some(ring) = &mut end.ring {
                ring.release();
            }
        }
    }

    /// Checks the interfaces and returns the first change.
    #[cold]
    fn look(&mut self) -> Option<Received> {
        self.looked = Instant::now();
        self.batches = 0;
        let changed = (0..2).find_map(|at| Some((at, self.look_at(at)?)));
        if self.started && self.ends.iter().any(|e| !e.open) {
            // After a failure, the next check, which is soon, tries again.
            let _ = self.let_in();
            self.batches = BATCHES - SOON;
        }
        let (at, change) = changed?;
        self.current = at;
        Some(Received::Link(change))
    }

    fn look_at(&mut self, at: usize) -> Option<LinkChange> {
        let end = self.ends.get_mut(at)?;
        if end.state.rests(self.looked) {
            return None;
        }
        let here = match Interface::find(&end.name) {
            Ok(i) if end.ring.is_some() && i.index == end.interface.index => return end.state.is_there(i.up),
            Ok(i) if i.up => Some(i),
            _ => None,
        };
        if end.ring.as_ref().is_some_and(|r| r.ready().is_some()) {
            // Earlier packets are inspected first.
            return None;
        }
        end.close();
        if let Some(interface) = here {
            end.interface = interface;
            if self.open_again(at) {
                let end = self.ends.get_mut(at)?;
                end.counters.reopened += 1;
                end.state = State::Up;
                return Some(LinkChange::Back);
            }
        }
        let looked = self.looked;
        self.ends.get_mut(at)?.state.is_gone(looked)
    }

    /// Whether a packet waits.
    #[inline]
    fn ready(&self) -> bool {
        self.ends.iter().any(|e| e.ring.as_ref().is_some_and(|r| r.ready().is_some()))
    }

    /// Polls for packets for a while, if that was useful lately: on a busy link, waking up takes longer than the time between
    /// packets. Returns whether there are any.
    fn look_for_packets(&mut self) -> bool {
        let Some(time) = self.patience.time() else { return false };
        let end = Instant::now() + time;
        loop {
            for _ in 0..SPINS {
                if self.ready() {
                    self.patience.was_worth_it(true);
                    return true;
                }
                std::hint::spin_loop();
            }
            if Instant::now() >= end {
                self.patience.was_worth_it(false);
                return false;
            }
        }
    }

    /// Handles a poll that reported packets although no slot has one: the kernel is still writing it, or it is in the socket's
    /// own queue without a slot. Neither may cause a busy loop.
    #[cold]
    fn calm(&mut self, wait: Duration) -> Option<Received> {
        self.quiet = self.quiet.saturating_add(1);
        match self.quiet {
            1..=4 => std::thread::yield_now(),
            n => std::thread::sleep(QUIET[0].saturating_mul(1 << n.min(12)).min(QUIET[1]).min(wait)),
        }
        if self.quiet < QUIET_TIMES {
            return None;
        }
        self.quiet = 0;
        for end in &mut self.ends {
            let End { ring, beside, counters, .. } = end;
            let Some(ring) = ring.as_ref().filter(|r| r.ready().is_none()) else { continue };
            beside.resize(LARGE * LARGE_TOGETHER, 0);
            for _ in 0..LEFT_OVER {
                if ring.receive(beside, &mut counters.errors).is_err() {
                    break;
                }
            }
        }
        Some(self.look().unwrap_or(Received::Idle))
    }

    /// Waits for packets. Returns a change of the interfaces, or `Idle`, instead of packets.
    #[cold]
    fn wait(&mut self, wait: Duration) -> Option<Received> {
        if self.look_for_packets() {
            self.quiet = 0;
            return None;
        }
        if self.ends.iter().all(|e| e.ring.is_none()) {
            std::thread::sleep(wait);
            return Some(self.look().unwrap_or(Received::Idle));
        }
        let [a, b] = &self.ends;
        let sockets = [a, b].map(|e| e.ring.as_ref().map(|r| &r.socket));
        let polled = poll_all(sockets, wait);
        let (mut idle, mut error) = (true, false);
        for (end, polled) in self.ends.iter_mut().zip(polled) {
            let Some(polled) = polled else { continue };
            end.counters.count_poll(polled);
            match polled {
                Polled::Data | Polled::Signal => idle = false,
                Polled::Timeout => {}
                Polled::Error => {
                    if end.ring.as_ref().is_some_and(|r| r.socket.take_error().is_some()) {
                        end.counters.errors += 1;
                    }
                    error = true;
                }
            }
        }
        let nothing = self.ends.iter().all(|e| e.ring.as_ref().is_none_or(|r| r.ready().is_none()));
        if error {
            let found = self.look();
            if found.is_none() && nothing {
                // Pause, so that an error without a cause does not start a busy loop.
                std::thread::sleep(wait.min(Duration::from_millis(5)));
            }
            return found;
        }
        if nothing && !idle {
            return self.calm(wait);
        }
        self.quiet = 0;
        if idle {
            let due = self.ends.iter().any(|e| e.state != State::Up || (self.started && !e.open));
            if due || self.looked.elapsed() >= LOOK {
                return Some(self.look().unwrap_or(Received::Idle));
            }
        }
        None
    }
}

/// Number of checks of the rings between two readings of the clock.
const SPINS: u32 = 32;

impl End {
    fn new(end: BridgeEnd) -> Result<End, LiveError> {
        let interface = Interface::find(&end.name)?;
        super::check(&end.name, &end.settings)?;
        if interface.loopback || interface.link != margay_packet::LinkType::ETHERNET {
            return Err(LiveError::Setting {
                interface: end.name,
                setting: "copy-mode",
                message: "only interfaces of Ethernet can be bridged".into(),
            });
        }
        Ok(End {
            name: end.name,
            settings: end.settings,
            drops: end.drops,
            state: State::of(interface.up),
            interface,
            ring: None,
            sender: None,
            filter: None,
            open: false,
            metas: Vec::new(),
            offloads: Vec::new(),
            large: false,
            beside: Vec::new(),
            counters: LiveCounters::default(),
        })
    }

    /// Opens socket and ring, and joins the fan-out group. Returns `false` if it is another place's turn.
    fn open_ring(&mut self, places: &mut Places, place: usize) -> Result<bool, LiveError> {
        if places.index != self.interface.index {
            // The group's sockets disappeared with the interface, and with them the group.
            *places = Places { index: self.interface.index, ..Places::default() };
        }
        if places.taken != place {
            return Ok(false);
        }
        let mtu = Interface::mtu(&self.name);
        // Packets of the interface's MTU fit. Larger slots than 16 KiB, for jumbo frames, would need too much memory.
        let slot = (mtu + BEFORE).next_power_of_two().clamp(2048, 1 << 14);
        let bytes = u64::from(self.settings.block_size) * u64::from(self.settings.blocks);
        let slots = u32::try_from(bytes / u64::from(slot)).unwrap_or(u32::MAX).max(64);
        let sender = Sender::new(self.interface.index).map_err(|source| LiveError::System {
            interface: self.name.clone(),
            what: "cannot be sent to",
            source,
        })?;
        let opening = Opening {
            name: &self.name,
            settings: &self.settings,
            interface: &self.interface,
            group: places.group,
            // A forwarded packet must not be received again.
            ignore_outgoing: true,
        };
        let (ring, group) = opening.open(|socket| socket.into_slots(slot, slots), |ring| &ring.socket)?;
        places.group = group;
        places.taken += 1;
        self.ring = Some(ring);
        self.sender = Some(sender);
        self.open = false;
        Ok(true)
    }

    /// Closes the end, because its interface disappeared.
    fn close(&mut self) {
        self.count();
        self.ring = None;
        self.sender = None;
        self.open = false;
        self.metas.clear();
        self.offloads.clear();
    }

    /// Reads the kernel's counters.
    fn count(&mut self) {
        if let Some(ring) = &self.ring
            && let Ok([packets, drops]) = ring.socket.statistics_of_slots()
        {
            self.counters.kernel_packets += packets;
            self.counters.kernel_drops += drops;
            self.counters.freezes += u64::from(drops > 0);
        }
    }

    /// Takes the next batch. Returns whether there is one.
    fn take(&mut self, max: usize) -> bool {
        let Some(ring) = &mut self.ring else { return false };
        let Some(status) = ring.ready() else { return false };
        let (link, trust) = (self.interface.link, self.settings.trust);
        self.large = status & libc::TP_STATUS_COPY != 0;
        let mut taken = 0;
        while taken < max
            && let Some(status) = ring.ready()
            && (status & libc::TP_STATUS_COPY != 0) == self.large
            && (!self.large || taken < LARGE_TOGETHER)
        {
            let found = match self.large {
                false => {
                    let start = taken * ring.slot_size();
                    ring.take().and_then(|s| block::slot(s, link, trust)).map(|s| (s, start))
                }
                true => {
                    if self.beside.is_empty() {
                        self.beside.resize(LARGE * LARGE_TOGETHER, 0);
                    }
                    let head = ring.take().and_then(|s| s.first_chunk().copied()).unwrap_or([0; block::START]);
                    let start = taken * LARGE;
                    let room = self.beside.get_mut(start..start + LARGE);
                    room.and_then(|room| {
                        let (offload, len) = beside(ring, &head, room, &mut self.counters.errors)?;
                        block::beside(&head, room, len, offload, link, trust).map(|s| (s, start))
                    })
                }
            };
            taken += 1;
            let placed = found.and_then(|(s, start)| Some((s, u32::try_from(start).ok()?)));
            let Some((mut s, start)) = placed else {
                self.counters.unreadable += 1;
                continue;
            };
            s.meta.start += start;
            self.counters.bytes += u64::from(s.meta.len);
            self.counters.truncated += u64::from(s.meta.len < s.meta.wire_len);
            self.metas.push(s.meta);
            self.offloads.push(s.offload);
        }
        self.counters.frames += self.metas.len() as u64;
        if self.metas.is_empty()
            && let Some(ring) = &mut self.ring
        {
            ring.release();
        }
        !self.metas.is_empty()
    }
}

/// Receives the packet that was too large for the slot that begins with `head`. Discards packets before it, whose slots no
/// longer exist.
fn beside(ring: &SlotRing, head: &[u8; block::START], room: &mut [u8], errors: &mut u64) -> Option<(Offload, usize)> {
    for _ in 0..LEFT_OVER {
        let (offload, len) = ring.receive(room.get_mut(VLAN_TAG..)?, errors).ok()?;
        if block::is_of(head, room, len) {
            return Some((offload, len));
        }
    }
    None
}

impl LiveSource for Bridge {
    fn receive(&mut self, max: usize, wait: Duration) -> Received {
        // Accept the packets that were not released.
        self.release(&Decisions::default());
        self.batches = self.batches.saturating_add(1);
        if self.batches > BATCHES
            && let Some(found) = self.look()
        {
            return found;
        }
        for again in [true, false] {
            for turn in 1..=2 {
                // Alternate, so that neither end waits for the other.
                let at = (self.current + turn) % 2;
                let Some(end) = self.ends.get_mut(at) else { continue };
                if end.state == State::Down
                    && end.ring.as_ref().is_some_and(|r| r.ready().is_some())
                    && let Some(change) = end.state.has_packets()
                {
                    self.current = at;
                    return Received::Link(change);
                }
                if end.take(max.max(1)) {
                    self.current = at;
                    return Received::Frames;
                }
            }
            if again && let Some(found) = self.wait(wait) {
                return found;
            }
        }
        Received::Idle
    }

    fn batch(&self) -> Batch<'_> {
        let Some(end) = self.ends.get(self.current) else { return Batch::live(&[], &[]) };
        let data = match end.large {
            true => &end.beside[..],
            false => end.ring.as_ref().map_or(&[][..], SlotRing::taken),
        };
        Batch::live(data, &end.metas)
    }

    fn end(&self) -> usize {
        self.current
    }

    fn ends(&self) -> usize {
        2
    }

    fn release(&mut self, decisions: &Decisions) {
        self.carry_out(decisions);
        self.give_back();
    }

    fn is_inline(&self) -> bool {
        true
    }

    fn is_up(&self) -> bool {
        self.ends.iter().all(|e| e.state == State::Up)
    }

    fn trust(&mut self) {
        self.ends.iter_mut().for_each(|e| e.settings.trust = Trust::Everybody);
    }

    fn start(&mut self) -> Result<(), LiveError> {
        self.started = true;
        self.let_in()
    }

    fn stop(&mut self) {
        self.started = false;
        for end in &mut self.ends {
            if let Some(ring) = &end.ring {
                // If this fails, the socket accepts packets until it is closed.
                let _ = ring.socket.attach(&NOTHING);
            }
            end.open = false;
        }
    }

    fn settle(&self) -> Duration {
        Duration::from_millis(20)
    }

    fn counters(&mut self, end: usize) -> LiveCounters {
        let Some(end) = self.ends.get_mut(end) else { return LiveCounters::default() };
        end.count();
        end.counters
    }
}
