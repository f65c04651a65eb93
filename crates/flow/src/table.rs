//! The flow table.
//!
//! A bucket holds the index of its first flow. The data that a lookup compares (key, hash, chain) is separate from the
//! flow's data and takes one cache line per flow. Expiry is a timer wheel of one-second slots with lazy correction: a
//! packet only records its time in the flow. When the flow's slot comes round, a flow with later packets moves to its
//! right slot.

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
/// Slots of the wheel, one second each. Later deadlines wait in the last slot and are checked again.
const SLOTS: usize = 1024;
const SECOND: i64 = 1_000_000;
/// Minimum timeout, in seconds, of a bypassed flow whose connection is over: the capture's counts for it may arrive one
/// or two seconds late.
pub const OVER_MIN: u32 = 4;
/// Most flows inspected to find one to evict.
const EVICT_TRIES: usize = 16;

/// The limit of flows in a bucket is `CHAIN` + `CHAIN_LOAD` × (allocated flow slots ÷ buckets, rounded down). With an
/// unpredictable hash, no bucket reaches the limit: with 1 expected, 16 occur once in 10^14.
const CHAIN: u32 = 16;
const CHAIN_LOAD: u32 = 8;

/// Why a flow ended (`flow.reason`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EndReason {
    /// Its timeout passed.
    Timeout,
    /// Evicted to make room.
    Forced,
    /// The engine stopped, or the capture ended.
    Shutdown,
    /// A new TCP connection began with the same addresses and ports.
    TcpReuse,
    /// None of the other reasons.
    Unknown,
}

impl EndReason {
    /// The reason's name in events.
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

/// A flow's position in its table. Valid until the flow ends; later it may refer to nothing, or to another flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlowRef(u32);

/// A flow with the engine's extension, aligned to a cache line.
#[derive(Debug, Clone)]
#[repr(C, align(64))]
pub struct Flow<X> {
    /// The state common to all flows.
    pub core: FlowCore,
    /// The engine's extension.
    pub ext: X,
}

/// The result of [`FlowTable::lookup`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup {
    /// The flow existed.
    Found(FlowRef, Direction),
    /// A flow was created for this packet.
    Created(FlowRef),
    /// The packet is an ICMP error without a known flow.
    Unrelated,
    /// The table is full: `flow.memcap-policy` decides on the packet.
    NoMemory,
}

/// The data that a lookup compares, and the flow's list links.
#[derive(Debug)]
struct Slot {
    key: Key,
    hash: u32,
    /// Next flow in the bucket, or next free slot.
    chain: u32,
    /// Neighbours in the wheel slot's list.
    prev: u32,
    next: u32,
    /// The flow's slot of the wheel.
    wheel: u16,
    client_is_high: bool,
    used: bool,
    /// Table time of the latest packet.
    touched: i64,
}

/// Flows by the key that their packets share.
#[derive(Debug)]
pub struct FlowTable<X> {
    config: FlowConfig,
    buckets: Vec<u32>,
    slots: Chunks<Slot>,
    flows: Chunks<Option<Flow<X>>>,
    free: u32,
    /// Most flows that memory allows.
    limit: u32,
    /// Most flows in a bucket.
    chain_max: u32,
    /// Microseconds for which any new or established flow may be idle.
    silence: i64,
    wheel: Vec<u32>,
    /// One bit for each wheel slot: not empty.
    occupied: [u64; SLOTS / 64],
    /// The second that the wheel has reached.
    second: i64,
    clock: Clock,
    /// Table time when the current capture began, and the number of captures begun.
    border: i64,
    captures: u64,
    emergency: bool,
    /// Where the sweep of emergency mode continues.
    sweep: u32,
    /// Counters.
    pub counters: FlowCounters,
}

impl<X> FlowTable<X> {
    /// Bytes of `memcap` that a flow takes.
    pub const FLOW_SIZE: u64 = (size_of::<Slot>() + size_of::<Option<Flow<X>>>()) as u64;

    /// [`Self::FLOW_SIZE`] plus what the settings add to each flow.
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

    /// The flow limit that the settings allow.
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

    /// Changes the memory limit, in bytes; 0 means no limit. Existing flows stay, and allocated slots are reused.
    pub fn set_memcap(&mut self, memcap: u64) {
        self.config.memcap = memcap;
        self.limit = Self::limit_of(&self.config, self.buckets.len() as u64 * 4);
    }

    /// Finds a flow by its number among `count` slots from `from` on. If it is not there, returns the slot to continue
    /// from, if there are more.
    pub fn find_id(&self, id: u64, from: u32, count: u32) -> Result<&Flow<X>, Option<u32>> {
        let end = (self.slots.len() as u32).min(from.saturating_add(count));
        let found = (from..end).filter_map(|at| self.get(FlowRef(at))).find(|f| f.core.id == id);
        found.ok_or((end < self.slots.len() as u32).then_some(end))
    }
    /// The number of flows in the table.
    pub const fn len(&self) -> usize {
        self.counters.active as usize
    }
    /// Whether the table is empty.
    pub const fn is_empty(&self) -> bool {
        self.counters.active == 0
    }
    /// Whether emergency mode is on: memory ran out, and not enough has been freed since.
    pub const fn emergency(&self) -> bool {
        self.emergency
    }

    /// A hasher that hashes flows as this table does, for packets from interface 0.
    pub const fn hasher(&self) -> FlowHasher {
        FlowHasher::new(&self.config)
    }

    /// The key of a packet from interface `livedev` (a number that the caller chooses); `None` if it has no flow.
    pub fn key(&self, packet: &Packet<'_>, livedev: u16) -> Option<FlowKey> {
        key::of(&self.config, packet, livedev)
    }

    #[inline]
    fn bucket(&self, hash: u32) -> usize {
        ((u64::from(hash) * self.buckets.len() as u64) >> 32) as usize
    }

    /// The flow at this position.
    #[inline]
    pub fn get(&self, at: FlowRef) -> Option<&Flow<X>> {
        self.flows.get(at.0)?.as_ref()
    }
    /// The flow at this position, to change.
    #[inline]
    pub fn get_mut(&mut self, at: FlowRef) -> Option<&mut Flow<X>> {
        self.flows.get_mut(at.0)?.as_mut()
    }

    /// Starts another capture, whose packet times may begin anywhere.
    pub const fn begin_capture(&mut self) {
        // A packet with exactly this time belongs to the previous capture.
        self.border = self.clock.now().saturating_add(1);
        self.captures += 1;
    }

    /// Finds the flow of `packet`, or creates it. An existing flow that exceeded its timeout ends first (`ended`), as
    /// does one that is evicted.
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

    /// Ends the flow at `at` and creates a new one with the same key for `packet`, which opened a new TCP connection.
    /// Its source is the new flow's client. `None` if memory ran out.
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

    /// Swaps a flow's ends: its client becomes the server. For TCP connections whose first packet came from the server.
    pub fn swap(&mut self, at: FlowRef) {
        if let Some(Some(flow)) = self.flows.get_mut(at.0) {
            flow.core.turn_round();
            self.swapped(at);
        }
    }

    /// Notes that the ends of a flow were swapped in its [`FlowCore`].
    pub fn swapped(&mut self, at: FlowRef) {
        if let Some(slot) = self.slots.get_mut(at.0) {
            slot.client_is_high = !slot.client_is_high;
        }
    }

    /// Counts a packet for its flow, which is returned. A flow other than TCP becomes established once both sides sent
    /// packets.
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

    /// Sets a flow's state and the corresponding timeout.
    pub fn set_state(&mut self, at: FlowRef, state: FlowState) {
        let Some(Some(flow)) = self.flows.get_mut(at.0) else { return };
        if flow.core.state == state {
            return;
        }
        flow.core.state = state;
        self.rearm(at.0);
    }

    /// Sets whether a bypassed flow's connection is over. If so, its timeout is that of a closed flow
    /// (`flow-timeouts.tcp.closed`, at least [`OVER_MIN`] seconds).
    pub fn set_over(&mut self, at: FlowRef, over: bool) {
        let Some(Some(flow)) = self.flows.get_mut(at.0) else { return };
        if flow.core.over != over {
            flow.core.over = over;
            self.rearm(at.0);
        }
    }

    /// Ends every flow with [`EndReason::Shutdown`], by the time of the first packet, then by identifier.
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

    /// Ends one flow for a reason that the caller knows.
    pub fn end(&mut self, at: FlowRef) -> Option<Flow<X>> {
        self.remove(at.0)
    }

    /// All flows, in slot order.
    pub fn iter(&self) -> impl Iterator<Item = (FlowRef, &Flow<X>)> {
        (0..self.slots.len() as u32).filter_map(|at| self.get(FlowRef(at)).map(|f| (FlowRef(at), f)))
    }

    /// The slot of the flow with that key.
    ///
    /// # Errors
    /// If the flow does not exist: the number of flows in its bucket.
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

    /// Evicts the longest idle flow of a full bucket.
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
        // 51 bits, which fit a JSON number exactly.
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

    /// A free slot, for which a flow may be evicted.
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

    /// Assigns the free slot `at` to a key.
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

    /// Stores a flow in its slot.
    fn put(&mut self, at: u32, flow: Flow<X>) {
        if let Some(place) = self.flows.get_mut(at) {
            *place = Some(flow);
        }
        let deadline = self.deadline(at);
        self.link(at, deadline);
        self.counters.spare -= 1;
        self.counters.active += 1;
    }

    /// Adds a free slot; returns `false` if memory does not allow it.
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

    /// Removes a flow that ends.
    fn remove(&mut self, at: u32) -> Option<Flow<X>> {
        let core = &self.flows.get(at)?.as_ref()?.core;
        let c = &mut self.counters;
        c.recycled += 1;
        c.end_state[FlowCounters::state_index(core.state)] += 1;
        if matches!(core.state, FlowState::LocalBypassed | FlowState::CaptureBypassed) {
            c.bypassed_closed += 1;
            c.bypassed_pkts += core.bypassed.iter().map(|b| b.0).sum::<u64>();
            c.bypassed_bytes += core.bypassed.iter().map(|b| b.1).sum::<u64>();
        }
        self.detach(at)
    }

    fn detach(&mut self, at: u32) -> Option<Flow<X>> {
        self.flows.get(at)?.as_ref()?;
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
        // A flow is large, so it moves only once.
        self.flows.get_mut(at)?.take()
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
