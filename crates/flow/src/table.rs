//! The flow table.
//!
//! Buckets hold the number of their first flow; what a lookup compares (key, hash, chain) is apart from what a flow holds,
//! one cache line a flow. Expiry is a timer wheel of one-second slots that is corrected lazily: a packet only notes its
//! time in the flow; when the flow's slot comes round, a flow seen since moves on to where it belongs.

mod expiry;
mod moves;
mod warm;

use margay_packet::{Packet, Time};

use crate::clock::Clock;
use crate::config::FlowConfig;
use crate::core::{Direction, FlowCore, FlowState};
use crate::counters::FlowCounters;
use crate::hash::fold;
use crate::key::{self, FlowHasher, FlowKey, Key};
use crate::rate::{Rate, RateConfig};
use crate::slab::Chunks;
pub use moves::Leaving;
pub use warm::Wanted;

const NONE: u32 = u32::MAX;
/// Slots of the wheel, one second each. Later deadlines wait in the last one and are looked at again.
const SLOTS: usize = 1024;
const SECOND: i64 = 1_000_000;
/// The capture's counts of a flow may arrive a second or two late.
pub const OVER_MIN: u32 = 4;
/// Flows looked at, at most, to find one to evict.
const EVICT_TRIES: usize = 16;

/// Flows that a bucket may have at least, and how many more for each time that the places for flows exceed the buckets. With a
/// hash that nobody can predict a bucket never has as many: that one has 16 where 1 is expected comes once in 10^14.
const CHAIN: u32 = 16;
const CHAIN_LOAD: u32 = 8;

/// Why a flow ended (`flow.reason`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EndReason {
    /// Silent for too long.
    Timeout,
    /// Evicted to make room.
    Forced,
    /// The engine stopped, or the capture was at its end.
    Shutdown,
    /// A new TCP connection began with the same addresses and ports.
    TcpReuse,
    /// None of these.
    Unknown,
}

impl EndReason {
    /// Its name in events.
    pub const fn name(self) -> &'static str {
        match self {
            EndReason::Timeout => "timeout",
            EndReason::Forced => "forced",
            EndReason::Shutdown => "shutdown",
            EndReason::TcpReuse => "tcp_reuse",
            EndReason::Unknown => "unknown",
        }
    }
}

/// A flow's place in its table. Good until the flow ends; used after that it finds nothing, or the flow that took its
/// place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlowRef(u32);

/// One flow and the engine's extension of it, aligned to a cache line.
#[derive(Debug, Clone)]
#[repr(C, align(64))]
pub struct Flow<X> {
    /// The state that every flow has.
    pub core: FlowCore,
    /// The engine's part.
    pub ext: X,
}

/// What [`FlowTable::lookup`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup {
    /// The flow was there.
    Found(FlowRef, Direction),
    /// It was made for this packet.
    Created(FlowRef),
    /// The packet is an ICMP error about no flow we know.
    Unrelated,
    /// There was no room: `flow.memcap-policy` says what to do with the packet.
    NoMemory,
}

/// What a lookup compares, and where the flow hangs.
#[derive(Debug)]
struct Slot {
    key: Key,
    hash: u32,
    /// Next in the bucket, or next free slot.
    chain: u32,
    /// Neighbours in the wheel's slot.
    prev: u32,
    next: u32,
    /// Slot of the wheel.
    wheel: u16,
    client_is_high: bool,
    used: bool,
    /// Table time of the latest packet.
    touched: i64,
}

/// Flows by what their packets have in common.
#[derive(Debug)]
pub struct FlowTable<X> {
    config: FlowConfig,
    buckets: Vec<u32>,
    slots: Chunks<Slot>,
    flows: Chunks<Option<Flow<X>>>,
    free: u32,
    /// Flows that memory allows.
    limit: u32,
    /// Flows that a bucket may have.
    chain_max: u32,
    /// Microseconds for which any flow that is new or established may be silent.
    silence: i64,
    wheel: Vec<u32>,
    /// One bit a slot of the wheel: not empty.
    occupied: [u64; SLOTS / 64],
    /// The second that the wheel has reached.
    second: i64,
    clock: Clock,
    /// Table time at which the capture at hand began, and how many began.
    border: i64,
    captures: u64,
    emergency: bool,
    /// Where the search of emergency mode goes on.
    sweep: u32,
    /// Counters.
    pub counters: FlowCounters,
}

impl<X> FlowTable<X> {
    /// Bytes that one flow takes of `memcap`.
    pub const FLOW_SIZE: u64 = (size_of::<Slot>() + size_of::<Option<Flow<X>>>()) as u64;

    /// The same, with what the settings add to each flow.
    fn flow_size(config: &FlowConfig) -> u64 {
        Self::FLOW_SIZE + config.rate.as_ref().map_or(0, RateConfig::size)
    }

    /// An empty table.
    pub fn new(config: FlowConfig) -> Self {
        let buckets = config.hash_size.max(1) as usize;
        let fixed = buckets as u64 * 4;
        let limit = Self::limit_of(&config, fixed);
        let mut table = FlowTable {
            buckets: vec![NONE; buckets],
            slots: Chunks::new(),
            flows: Chunks::new(),
            free: NONE,
            limit,
            chain_max: CHAIN,
            silence: i64::from(config.timeouts.least()) * SECOND,
            wheel: vec![NONE; SLOTS],
            occupied: [0; SLOTS / 64],
            second: 0,
            clock: Clock::default(),
            border: 0,
            captures: 0,
            emergency: false,
            sweep: 0,
            counters: FlowCounters { memuse: fixed, ..FlowCounters::default() },
            config,
        };
        for _ in 0..table.config.prealloc.min(table.limit) {
            table.grow();
        }
        table
    }

    /// How many flows the settings leave room for.
    fn limit_of(config: &FlowConfig, fixed: u64) -> u32 {
        let limit = match config.memcap {
            0 => u64::from(NONE - 1),
            memcap => memcap.saturating_sub(fixed) / Self::flow_size(config),
        };
        limit.clamp(1, u64::from(NONE - 1)) as u32
    }

    /// The settings.
    pub const fn config(&self) -> &FlowConfig {
        &self.config
    }

    /// Changes the limit of memory, in bytes; 0 means no limit. Flows that are there stay, and places that were made for
    /// flows are used again.
    pub fn set_memcap(&mut self, memcap: u64) {
        self.config.memcap = memcap;
        self.limit = Self::limit_of(&self.config, self.buckets.len() as u64 * 4);
    }

    /// Looks for a flow by its number among `count` places from `from` on. Where it is not there: the place to go on from, if
    /// there are more.
    pub fn find_id(&self, id: u64, from: u32, count: u32) -> Result<&Flow<X>, Option<u32>> {
        let end = (self.slots.len() as u32).min(from.saturating_add(count));
        let found = (from..end).filter_map(|at| self.get(FlowRef(at))).find(|f| f.core.id == id);
        found.ok_or((end < self.slots.len() as u32).then_some(end))
    }
    /// Flows in the table.
    pub const fn len(&self) -> usize {
        self.counters.active as usize
    }
    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.counters.active == 0
    }
    /// Whether emergency mode is on: memory ran out, and has not been freed enough since.
    pub const fn emergency(&self) -> bool {
        self.emergency
    }

    /// Hashes flows as this table does, those of packets that came in on interface 0.
    pub const fn hasher(&self) -> FlowHasher {
        FlowHasher::new(&self.config)
    }

    /// The key of a packet that came in on interface `livedev` (a number of the caller's); `None` where it has no flow.
    pub fn key(&self, packet: &Packet<'_>, livedev: u16) -> Option<FlowKey> {
        key::of(&self.config, packet, livedev)
    }

    #[inline]
    fn bucket(&self, hash: u32) -> usize {
        ((u64::from(hash) * self.buckets.len() as u64) >> 32) as usize
    }

    /// The flow there.
    #[inline]
    pub fn get(&self, at: FlowRef) -> Option<&Flow<X>> {
        self.flows.get(at.0)?.as_ref()
    }
    /// The flow there.
    #[inline]
    pub fn get_mut(&mut self, at: FlowRef) -> Option<&mut Flow<X>> {
        self.flows.get_mut(at.0)?.as_mut()
    }

    /// Another capture begins, whose time may be any.
    pub const fn begin_capture(&mut self) {
        // A packet with exactly this time belongs to the capture before.
        self.border = self.clock.now().saturating_add(1);
        self.captures += 1;
    }

    /// Finds the flow of `packet`, or makes it. A flow found that is silent for too long ends first (`ended`), as does one
    /// evicted to make room.
    pub fn lookup(
        &mut self,
        packet: &Packet<'_>,
        key: &FlowKey,
        make: impl FnOnce() -> X,
        ended: &mut dyn FnMut(Flow<X>, EndReason),
    ) -> Lookup {
        let now = self.clock.advance(packet.time);
        let mut previous_id = 0;
        let mut crowded = false;
        match self.find(key) {
            Ok(at) if self.silent_before(at, packet.time) => {
                self.counters.wrk_flows_evicted += 1;
                if let Some(flow) = self.remove(at) {
                    previous_id = flow.core.id;
                    ended(flow, EndReason::Timeout);
                }
            }
            Ok(at) => {
                if let Some(slot) = self.slots.get_mut(at) {
                    if !key.error {
                        slot.touched = now;
                    }
                    return Lookup::Found(FlowRef(at), key.direction(slot.client_is_high));
                }
            }
            Err(length) => crowded = length >= self.chain_max,
        }
        if key.error {
            return Lookup::Unrelated;
        }
        if crowded {
            self.shorten(key.hash as u32, now, ended);
        }
        match self.insert(packet, key, now, previous_id, make, ended) {
            Some(at) => Lookup::Created(at),
            None => Lookup::NoMemory,
        }
    }

    /// Ends the flow at `at` and makes a new one of the same key for `packet`, which opened a new TCP connection; its
    /// source is the new flow's client. `None` where memory ran out.
    pub fn replace(
        &mut self,
        at: FlowRef,
        packet: &Packet<'_>,
        key: &FlowKey,
        make: impl FnOnce() -> X,
        ended: &mut dyn FnMut(Flow<X>, EndReason),
    ) -> Option<FlowRef> {
        let now = self.clock.now();
        let mut previous_id = 0;
        if let Some(flow) = self.remove(at.0) {
            self.counters.tcp_reuse += 1;
            previous_id = flow.core.id;
            ended(flow, EndReason::TcpReuse);
        }
        self.insert(packet, key, now, previous_id, make, ended)
    }

    /// Turns a flow round: its client becomes the server. For TCP connections that were first seen from the server's side.
    pub fn swap(&mut self, at: FlowRef) {
        if let (Some(slot), Some(Some(flow))) = (self.slots.get_mut(at.0), self.flows.get_mut(at.0)) {
            slot.client_is_high = !slot.client_is_high;
            flow.core.turn_round();
        }
    }

    /// Counts a packet towards its flow, which is returned, and establishes flows other than TCP that were seen from both sides.
    pub fn update(
        &mut self,
        at: FlowRef,
        packet: &Packet<'_>,
        key: &FlowKey,
        direction: Direction,
    ) -> Option<&mut Flow<X>> {
        let flow = self.flows.get_mut(at.0)?.as_mut()?;
        let i = direction.index();
        let core = &mut flow.core;
        let len = u64::from(packet.wire_len);
        core.last = core.last.max(packet.time);
        core.pkts[i] += 1;
        core.bytes[i] += len;
        if let Some(config) = &self.config.rate
            && !core.elephant[i]
        {
            let rate = core.rate.get_or_insert_with(|| Box::new(Rate::new(config, packet.time)));
            if rate.add(config, packet.time, i, len) {
                self.counters.elephant += u64::from(core.elephant == [false; 2]);
                core.elephant[i] = true;
                if core.elephant == [true; 2] {
                    core.rate = None;
                }
            }
        }
        match core.state {
            FlowState::LocalBypassed => {
                core.bypassed[i].0 += 1;
                core.bypassed[i].1 += len;
                self.counters.bypassed_local_pkts += 1;
                self.counters.bypassed_local_bytes += len;
            }
            FlowState::CaptureBypassed => {
                core.bypassed[i].0 += 1;
                core.bypassed[i].1 += len;
                self.counters.bypassed_capture_pkts += 1;
                self.counters.bypassed_capture_bytes += len;
            }
            FlowState::New if core.proto != 6 && !key.error && direction == Direction::ToClient => {
                core.state = FlowState::Established;
            }
            _ => {}
        }
        if let Some(ttl) = packet.ttl() {
            let t = &mut core.ttl[i];
            *t = if core.pkts[i] == 1 { (ttl, ttl) } else { (t.0.min(ttl), t.1.max(ttl)) };
        }
        Some(flow)
    }

    /// Sets a flow's state, with the timeout that goes with it.
    pub fn set_state(&mut self, at: FlowRef, state: FlowState) {
        let Some(Some(flow)) = self.flows.get_mut(at.0) else { return };
        if flow.core.state == state {
            return;
        }
        flow.core.state = state;
        self.rearm(at.0);
    }

    /// Says of a flow that is bypassed whether what it carried is over: then it may be silent no longer than one that is closed
    /// (`flow-timeouts.tcp.closed`, at least [`OVER_MIN`] seconds).
    pub fn set_over(&mut self, at: FlowRef, over: bool) {
        let Some(Some(flow)) = self.flows.get_mut(at.0) else { return };
        if flow.core.over != over {
            flow.core.over = over;
            self.rearm(at.0);
        }
    }

    /// Ends every flow with [`EndReason::Shutdown`], by time of the first packet, then by identifier.
    pub fn drain(&mut self, ended: &mut dyn FnMut(Flow<X>, EndReason)) {
        let mut order: Vec<(Time, u64, u32)> = (0..self.slots.len() as u32)
            .filter_map(|at| self.get(FlowRef(at)).map(|f| (f.core.start, f.core.id, at)))
            .collect();
        order.sort_unstable();
        for (_, _, at) in order {
            if let Some(flow) = self.remove(at) {
                ended(flow, EndReason::Shutdown);
            }
        }
    }

    /// Ends one flow. The caller knows why.
    pub fn end(&mut self, at: FlowRef) -> Option<Flow<X>> {
        self.remove(at.0)
    }

    /// Every flow, in the order of their places.
    pub fn iter(&self) -> impl Iterator<Item = (FlowRef, &Flow<X>)> {
        (0..self.slots.len() as u32).filter_map(|at| self.get(FlowRef(at)).map(|f| (FlowRef(at), f)))
    }

    /// The place of the flow of that key.
    ///
    /// # Errors
    /// There is none: how many flows are in its bucket.
    #[inline]
    fn find(&self, key: &FlowKey) -> Result<u32, u32> {
        let hash = key.hash as u32;
        let mut length = 0;
        let mut at = self.buckets.get(self.bucket(hash)).copied().unwrap_or(NONE);
        while let Some(slot) = self.slots.get(at) {
            if slot.hash == hash && slot.key == key.key {
                return Ok(at);
            }
            length += 1;
            at = slot.chain;
        }
        Err(length)
    }

    /// A bucket has as many flows as it may have: the one that was silent longest ends.
    #[cold]
    fn shorten(&mut self, hash: u32, now: i64, ended: &mut dyn FnMut(Flow<X>, EndReason)) {
        let mut oldest: Option<(i64, u32)> = None;
        let mut at = self.buckets.get(self.bucket(hash)).copied().unwrap_or(NONE);
        while let Some(slot) = self.slots.get(at) {
            if oldest.is_none_or(|(touched, _)| slot.touched < touched) {
                oldest = Some((slot.touched, at));
            }
            at = slot.chain;
        }
        let Some((_, at)) = oldest else { return };
        let reason = if self.timed_out(at, now) { EndReason::Timeout } else { EndReason::Forced };
        if let Some(flow) = self.remove(at) {
            self.counters.chain_evicted += 1;
            ended(flow, reason);
        }
    }

    fn insert(
        &mut self,
        packet: &Packet<'_>,
        key: &FlowKey,
        now: i64,
        previous_id: u64,
        make: impl FnOnce() -> X,
        ended: &mut dyn FnMut(Flow<X>, EndReason),
    ) -> Option<FlowRef> {
        let at = self.free_place(now, ended)?;
        self.fill(at, key.key, key.hash as u32, key.swapped, now)?;
        let emergency = self.emergency;
        // 51 bits: a JSON number keeps them.
        let hash = self.config.id_key.hash(key.key.words());
        let id = fold(hash ^ previous_id.rotate_left(32), packet.time.0 as u64 ^ 0x9e37_79b9_7f4a_7c15) >> 13;
        let mut core = new_core(packet, id.max(1));
        core.emergency = emergency;
        self.put(at, Flow { core, ext: make() });
        let c = &mut self.counters;
        c.total += 1;
        match packet.proto {
            6 => c.tcp += 1,
            17 => c.udp += 1,
            1 => c.icmpv4 += 1,
            58 => c.icmpv6 += 1,
            _ => {}
        }
        Some(FlowRef(at))
    }

    /// A free place, for which a flow may have to end.
    fn free_place(&mut self, now: i64, ended: &mut dyn FnMut(Flow<X>, EndReason)) -> Option<u32> {
        if self.free == NONE && !self.grow() {
            if !self.emergency {
                self.emergency = true;
                self.counters.emerg_mode_entered += 1;
            }
            if !self.evict(now, ended) {
                self.counters.memcap += 1;
                return None;
            }
        }
        Some(self.free)
    }

    /// Takes the free place `at` for a key.
    fn fill(&mut self, at: u32, key: Key, hash: u32, client_is_high: bool, touched: i64) -> Option<()> {
        let bucket = self.bucket(hash);
        let first = self.buckets.get_mut(bucket)?;
        let slot = self.slots.get_mut(at)?;
        self.free = slot.chain;
        slot.key = key;
        slot.hash = hash;
        slot.chain = *first;
        slot.client_is_high = client_is_high;
        slot.used = true;
        slot.touched = touched;
        *first = at;
        Some(())
    }

    /// Puts a flow into a place that was taken for it.
    fn put(&mut self, at: u32, flow: Flow<X>) {
        if let Some(place) = self.flows.get_mut(at) {
            *place = Some(flow);
        }
        let deadline = self.deadline(at);
        self.link(at, deadline);
        self.counters.spare -= 1;
        self.counters.active += 1;
    }

    /// Adds a free place; `false` where memory does not allow one more.
    fn grow(&mut self) -> bool {
        let n = self.slots.len();
        if n >= self.limit as usize {
            return false;
        }
        self.slots.push(Slot {
            key: Key::EMPTY,
            hash: 0,
            chain: self.free,
            prev: NONE,
            next: NONE,
            wheel: 0,
            client_is_high: false,
            used: false,
            touched: 0,
        });
        self.flows.push(None);
        self.free = n as u32;
        let load = u32::try_from(n / self.buckets.len().max(1)).unwrap_or(u32::MAX);
        self.chain_max = load.saturating_mul(CHAIN_LOAD).saturating_add(CHAIN);
        self.counters.spare += 1;
        self.counters.memuse += Self::flow_size(&self.config);
        true
    }

    /// Takes a flow out that ends.
    fn remove(&mut self, at: u32) -> Option<Flow<X>> {
        let flow = self.detach(at)?;
        let c = &mut self.counters;
        c.recycled += 1;
        c.end_state[FlowCounters::state_index(flow.core.state)] += 1;
        if matches!(flow.core.state, FlowState::LocalBypassed | FlowState::CaptureBypassed) {
            c.bypassed_closed += 1;
            c.bypassed_pkts += flow.core.bypassed.iter().map(|b| b.0).sum::<u64>();
            c.bypassed_bytes += flow.core.bypassed.iter().map(|b| b.1).sum::<u64>();
        }
        Some(flow)
    }

    fn detach(&mut self, at: u32) -> Option<Flow<X>> {
        let flow = self.flows.get_mut(at)?.take()?;
        self.unlink(at);
        let slot = self.slots.get_mut(at)?;
        let (hash, after) = (slot.hash, slot.chain);
        slot.used = false;
        slot.chain = self.free;
        self.free = at;
        let bucket = self.bucket(hash);
        let mut walk = *self.buckets.get(bucket)?;
        if walk == at {
            *self.buckets.get_mut(bucket)? = after;
        } else {
            let mut length = 1;
            while let Some(s) = self.slots.get_mut(walk) {
                length += 1;
                if s.chain == at {
                    s.chain = after;
                    break;
                }
                walk = s.chain;
            }
            self.counters.mgr_rows_maxlen = self.counters.mgr_rows_maxlen.max(length);
        }
        self.counters.spare += 1;
        self.counters.active -= 1;
        Some(flow)
    }
}

fn new_core(packet: &Packet<'_>, id: u64) -> FlowCore {
    let icmp = matches!(packet.proto, 1 | 58);
    let (sport, dport) =
        if icmp { (u16::from(packet.icmp.0), u16::from(packet.icmp.1)) } else { (packet.sport, packet.dport) };
    FlowCore {
        spi: key::spi(packet),
        vlans: packet.vlans,
        recursion: packet.recursion,
        ..FlowCore::new(id, packet.proto, (packet.src, sport), (packet.dst, dport), packet.time)
    }
}
