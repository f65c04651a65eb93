//! The state of one flow, common to all protocols.

use std::net::IpAddr;

use margay_packet::Time;

use crate::rate::Rate;

/// Direction of a packet within its flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the side that opened the flow.
    ToServer,
    /// To the side that opened the flow.
    ToClient,
}

impl Direction {
    /// 0 to the server, 1 to the client: for arrays of two.
    pub const fn index(self) -> usize {
        match self {
            Direction::ToServer => 0,
            Direction::ToClient => 1,
        }
    }
    /// The opposite direction.
    pub const fn reverse(self) -> Direction {
        match self {
            Direction::ToServer => Direction::ToClient,
            Direction::ToClient => Direction::ToServer,
        }
    }
}

/// State of a flow, as in `flow.state` of events and in the timeouts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum FlowState {
    /// One side seen, or no handshake yet.
    #[default]
    New,
    /// Both sides seen, or the TCP handshake is complete.
    Established,
    /// TCP connection closed.
    Closed,
    /// Bypassed in user space.
    LocalBypassed,
    /// Bypassed in the capture.
    CaptureBypassed,
}

/// The verdict of rules or policies on the rest of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum FlowAction {
    /// No verdict.
    #[default]
    None,
    /// Every further packet is dropped.
    Drop,
    /// An exception policy would drop every further packet, but passive mode cannot drop: events report it, and
    /// inspection continues.
    WouldDrop,
    /// No further packet is inspected.
    Pass,
    /// Every further packet is accepted (firewall mode).
    Accept,
}

impl FlowAction {
    /// Whether rules skip all further packets although the packets are forwarded: in a passed flow, and in passive mode
    /// in a flow with a drop verdict.
    pub const fn is_unwatched(self, inline: bool) -> bool {
        matches!(self, FlowAction::Pass) || (matches!(self, FlowAction::Drop) && !inline)
    }
}

/// Bits and integers that rules store with a flow, by the number of their name (interned when rules are loaded), and
/// captured variables.
#[derive(Debug, Clone, Default)]
pub struct FlowVars {
    bits: Vec<u32>,
    ints: Vec<(u32, u32)>,
    more: Option<Box<MoreVars>>,
}

/// State that few flows have.
#[derive(Debug, Clone, Default)]
struct MoreVars {
    captured: CapturedVars,
    floats: Vec<(u32, f64)>,
}

impl FlowVars {
    /// Whether bit `id` is set.
    pub fn bit(&self, id: u32) -> bool {
        self.bits.contains(&id)
    }
    /// Sets bit `id`.
    pub fn set_bit(&mut self, id: u32) {
        if !self.bit(id) {
            self.bits.push(id);
        }
    }
    /// Clears bit `id`.
    pub fn unset_bit(&mut self, id: u32) {
        self.bits.retain(|&b| b != id);
    }
    /// The bits that are set, oldest first.
    pub fn bits(&self) -> &[u32] {
        &self.bits
    }
    /// Integer `id`, if set.
    pub fn int(&self, id: u32) -> Option<u32> {
        self.ints.iter().find(|i| i.0 == id).map(|i| i.1)
    }
    /// Sets integer `id`.
    pub fn set_int(&mut self, id: u32, value: u32) {
        match self.ints.iter_mut().find(|i| i.0 == id) {
            Some(i) => i.1 = value,
            None => self.ints.push((id, value)),
        }
    }
    /// The integers that are set, oldest first, as (id, value).
    pub fn ints(&self) -> &[(u32, u32)] {
        &self.ints
    }
    /// Values captured by expressions (`flowvar`).
    pub fn captured(&self) -> &CapturedVars {
        static NONE: CapturedVars = CapturedVars { list: Vec::new(), bytes: 0 };
        self.more.as_ref().map_or(&NONE, |m| &m.captured)
    }
    /// Values captured by expressions, to change.
    pub fn captured_mut(&mut self) -> &mut CapturedVars {
        &mut self.more.get_or_insert_default().captured
    }
    /// The floats that are set, oldest first, as (id, value).
    pub fn floats(&self) -> &[(u32, f64)] {
        self.more.as_ref().map_or(&[], |m| &m.floats)
    }
    /// Sets float `id`; returns false if the flow already has [`CAPTURED_MAX`] of them.
    pub fn set_float(&mut self, id: u32, value: f64) -> bool {
        let floats = &mut self.more.get_or_insert_default().floats;
        let full = floats.len() >= CAPTURED_MAX;
        match floats.iter_mut().find(|f| f.0 == id) {
            Some(f) => f.1 = value,
            None if full => return false,
            None => floats.push((id, value)),
        }
        true
    }
    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        self.bits.is_empty() && self.ints.is_empty() && self.more.is_none()
    }
    /// Clears everything, but keeps the memory of bits and integers.
    pub fn clear(&mut self) {
        self.bits.clear();
        self.ints.clear();
        self.more = None;
    }
}

/// Most captured variables of a flow or packet.
pub const CAPTURED_MAX: usize = 64;
/// Most bytes of keys and values of a flow or packet.
pub const CAPTURED_BYTES_MAX: usize = 16384;

/// A variable that an expression captured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapturedVar {
    /// Number of its name; for a variable with a key, the number of the value's name in the rule.
    pub name: u32,
    /// Its key, if one was captured.
    pub key: Option<Box<[u8]>>,
    /// Its value.
    pub value: Box<[u8]>,
}

/// Variables of a flow or a packet. A value beyond [`CAPTURED_MAX`] or [`CAPTURED_BYTES_MAX`] is not stored; earlier
/// ones stay.
#[derive(Debug, Clone, Default)]
pub struct CapturedVars {
    list: Vec<CapturedVar>,
    bytes: usize,
}

impl CapturedVars {
    /// All variables, oldest first.
    pub fn list(&self) -> &[CapturedVar] {
        &self.list
    }

    /// The value of the variable without a key whose name has the number `name`.
    pub fn get(&self, name: u32) -> Option<&[u8]> {
        self.list.iter().find(|v| v.name == name && v.key.is_none()).map(|v| &*v.value)
    }

    /// Sets the variable with that name and key; returns false if there is no room.
    pub fn set(&mut self, name: u32, key: Option<&[u8]>, value: &[u8]) -> bool {
        let full = self.list.len() >= CAPTURED_MAX;
        let old = self.list.iter_mut().find(|v| v.name == name && v.key.as_deref() == key);
        let freed = old.as_ref().map_or(0, |v| v.value.len());
        let added = value.len() + if old.is_none() { key.map_or(0, <[u8]>::len) } else { 0 };
        if self.bytes - freed + added > CAPTURED_BYTES_MAX {
            return false;
        }
        match old {
            Some(v) if *v.value == *value => {}
            Some(v) => v.value = value.into(),
            None if full => return false,
            None => self.list.push(CapturedVar { name, key: key.map(Into::into), value: value.into() }),
        }
        self.bytes = self.bytes - freed + added;
        true
    }

    /// Removes all variables, but keeps the memory of the list.
    pub fn clear(&mut self) {
        self.list.clear();
        self.bytes = 0;
    }
}

/// A flow. Addresses and ports are those of its first packet, whose source is the client.
///
/// The first cache line has the fields that every packet touches, the second the variables of rules. The rest is for
/// events. The engine's extension starts at a cache line of its own.
#[derive(Debug, Clone)]
#[repr(C)]
pub struct FlowCore {
    /// The flow's number in events (`flow_id`), unique in a run.
    pub id: u64,
    /// Time of the latest packet.
    pub last: Time,
    /// Packets, by [`Direction::index`].
    pub pkts: [u64; 2],
    /// Bytes on the wire, by [`Direction::index`].
    pub bytes: [u64; 2],
    /// State.
    pub state: FlowState,
    /// Whether a bypassed flow's connection is over. Its timeout is then that of a closed flow
    /// ([`crate::FlowTable::set_over`]).
    pub over: bool,
    /// The verdict on the rest of the flow.
    pub action: FlowAction,
    /// Firewall mode: threat detection rules no longer inspect the flow; `action` is the firewall's verdict.
    pub td_passed: bool,
    /// Whether a rule alerted on the flow.
    pub alerted: bool,
    /// Whether IP-only rules, and other rules for a direction's first packet, inspected that packet, by
    /// [`Direction::index`].
    pub first_seen: [bool; 2],
    /// TCP flags seen, by [`Direction::index`].
    pub tcp_flags: [u8; 2],
    /// Smallest and largest TTL or hop limit seen, by [`Direction::index`].
    pub ttl: [(u8, u8); 2],
    /// Whether it is an elephant flow ([`crate::RateConfig`]), by [`Direction::index`]; the mark is permanent.
    pub elephant: [bool; 2],
    /// IP protocol.
    pub proto: u8,
    /// Bits, numbers and captured variables that rules set.
    pub vars: FlowVars,
    /// Recent traffic, if rate tracking is on.
    pub rate: Option<Box<Rate>>,
    /// Time of the first packet.
    pub start: Time,
    /// Packets and bytes seen while bypassed, by [`Direction::index`].
    pub bypassed: [(u64, u64); 2],
    /// ESP: security parameters index.
    pub spi: u32,
    /// VLAN tags, 0 where unused.
    pub vlans: margay_packet::Vlans,
    /// Client port; for ICMP its type.
    pub sport: u16,
    /// Server port; for ICMP its code.
    pub dport: u16,
    /// Client address.
    pub src: IpAddr,
    /// Server address.
    pub dst: IpAddr,
    /// Tunnel depth.
    pub recursion: u8,
    /// Whether emergency mode was on when the flow was created or ended.
    pub emergency: bool,
}

// Every packet touches only the first cache line, and rules also touch the second.
const _: () = assert!(std::mem::offset_of!(FlowCore, vars) == 64 && std::mem::offset_of!(FlowCore, start) == 128);

impl FlowCore {
    /// A flow of protocol `proto` with its first packet at `time` and only the ends known: client and server, each with
    /// its port.
    pub fn new(id: u64, proto: u8, client: (IpAddr, u16), server: (IpAddr, u16), time: Time) -> FlowCore {
        FlowCore {
            id,
            src: client.0,
            dst: server.0,
            sport: client.1,
            dport: server.1,
            proto,
            spi: 0,
            vlans: margay_packet::Vlans::default(),
            recursion: 0,
            start: time,
            last: time,
            pkts: [0; 2],
            bytes: [0; 2],
            bypassed: [(0, 0); 2],
            state: FlowState::New,
            over: false,
            action: FlowAction::None,
            td_passed: false,
            alerted: false,
            first_seen: [false; 2],
            vars: FlowVars::default(),
            tcp_flags: [0; 2],
            ttl: [(0, 0); 2],
            emergency: false,
            elephant: [false; 2],
            rate: None,
        }
    }

    /// Swaps the flow's ends: its client becomes the server.
    pub fn turn_round(&mut self) {
        std::mem::swap(&mut self.src, &mut self.dst);
        std::mem::swap(&mut self.sport, &mut self.dport);
        self.pkts.swap(0, 1);
        self.bytes.swap(0, 1);
        self.bypassed.swap(0, 1);
        self.first_seen.swap(0, 1);
        self.tcp_flags.swap(0, 1);
        self.ttl.swap(0, 1);
        self.elephant.swap(0, 1);
        if let Some(rate) = &mut self.rate {
            rate.turn_round();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captured_variables_are_bounded() {
        let mut v = CapturedVars::default();
        assert!(
            v.set(1, None, b"a") && v.set(1, None, b"bc") && v.set(2, Some(b"k"), b"x") && v.set(2, Some(b"l"), b"y")
        );
        assert_eq!((v.get(1), v.get(2), v.list().len(), v.bytes), (Some(&b"bc"[..]), None, 3, 6));
        assert!(!v.set(1, None, &[0; CAPTURED_BYTES_MAX]));
        assert_eq!(v.get(1), Some(&b"bc"[..]));
        for n in 10..200 {
            v.set(n, None, b"");
        }
        assert_eq!(v.list().len(), CAPTURED_MAX);
        assert!(!v.set(500, None, b"") && v.set(10, None, b"again"));
        v.clear();
        assert!(v.set(1, None, &[0; CAPTURED_BYTES_MAX]));
        assert!(!v.set(2, None, b"1") && v.set(1, None, b"1") && v.set(2, None, b"1"));
    }

    #[test]
    fn variables_of_a_flow() {
        let mut v = FlowVars::default();
        assert!(v.is_empty() && v.captured().list().is_empty());
        assert!(v.captured_mut().set(3, None, b"z") && v.set_float(1, 0.5) && v.set_float(1, 1.5));
        assert_eq!((v.captured().get(3), v.floats()), (Some(&b"z"[..]), &[(1, 1.5)][..]));
        v.clear();
        assert!(v.is_empty() && v.floats().is_empty());
    }
}
