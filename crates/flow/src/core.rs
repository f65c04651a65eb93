//! The state of one flow, for all protocols.

use std::net::IpAddr;

use margay_packet::Time;

use crate::rate::Rate;

/// Direction of a packet within its flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the side that opened the flow.
    ToServer,
    /// Back to it.
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
    /// The other one.
    pub const fn reverse(self) -> Direction {
        match self {
            Direction::ToServer => Direction::ToClient,
            Direction::ToClient => Direction::ToServer,
        }
    }
}

/// State of a flow, as `flow.state` in events and timeouts know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum FlowState {
    /// One side seen, or no handshake yet.
    #[default]
    New,
    /// Both sides seen, or the TCP handshake is done.
    Established,
    /// TCP connection closed.
    Closed,
    /// Cut short in user space.
    LocalBypassed,
    /// Cut short in the capture.
    CaptureBypassed,
}

/// The verdict of rules or policies on the rest of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum FlowAction {
    /// Nothing.
    #[default]
    None,
    /// Every further packet is dropped.
    Drop,
    /// An exception policy would drop every further packet, but nothing can be dropped here: events report it, and inspection goes on.
    WouldDrop,
    /// No further packet is inspected.
    Pass,
    /// Every further packet is accepted (firewall mode).
    Accept,
}

impl FlowAction {
    /// Whether rules look at no further packet although all of them go on: those of a flow that passes, and where nothing can be dropped
    /// those of a flow that would be.
    pub const fn is_unwatched(self, inline: bool) -> bool {
        matches!(self, FlowAction::Pass) || (matches!(self, FlowAction::Drop) && !inline)
    }
}

/// Bits and integers that rules keep with a flow, by number of their name (interned when rules are loaded), and what
/// their expressions captured.
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
    /// The bits set, oldest first.
    pub fn bits(&self) -> &[u32] {
        &self.bits
    }
    /// Integer `id`, where set.
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
    /// The integers set, oldest first, as (id, value).
    pub fn ints(&self) -> &[(u32, u32)] {
        &self.ints
    }
    /// Values captured by expressions (`flowvar`).
    pub fn captured(&self) -> &CapturedVars {
        static NONE: CapturedVars = CapturedVars { list: Vec::new(), bytes: 0 };
        self.more.as_ref().map_or(&NONE, |m| &m.captured)
    }
    /// The same, to write to.
    pub fn captured_mut(&mut self) -> &mut CapturedVars {
        &mut self.more.get_or_insert_default().captured
    }
    /// The measures set, oldest first, as (id, value).
    pub fn floats(&self) -> &[(u32, f64)] {
        self.more.as_ref().map_or(&[], |m| &m.floats)
    }
    /// Sets measure `id`; false where the flow has [`CAPTURED_MAX`] of them already.
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
    /// Forgets everything, keeping the memory of bits and integers.
    pub fn clear(&mut self) {
        self.bits.clear();
        self.ints.clear();
        self.more = None;
    }
}

/// Most variables that one flow or packet keeps.
pub const CAPTURED_MAX: usize = 64;
/// Most bytes of keys and values that one flow or packet keeps.
pub const CAPTURED_BYTES_MAX: usize = 16384;

/// A variable that an expression captured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapturedVar {
    /// Number of its name; of one with a key the number of the name that its value has in the rule.
    pub name: u32,
    /// Its key, where that was captured as well.
    pub key: Option<Box<[u8]>>,
    /// Its value.
    pub value: Box<[u8]>,
}

/// Variables of a flow or a packet. A value beyond [`CAPTURED_MAX`] or [`CAPTURED_BYTES_MAX`] is not stored: the earlier
/// ones stay.
#[derive(Debug, Clone, Default)]
pub struct CapturedVars {
    list: Vec<CapturedVar>,
    bytes: usize,
}

impl CapturedVars {
    /// All of them, oldest first.
    pub fn list(&self) -> &[CapturedVar] {
        &self.list
    }

    /// The value of the one without a key that has the name with number `name`.
    pub fn get(&self, name: u32) -> Option<&[u8]> {
        self.list.iter().find(|v| v.name == name && v.key.is_none()).map(|v| &*v.value)
    }

    /// Sets the variable of that name, or of that name and key; false where there is no room for it.
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

    /// Forgets all of them, keeping the memory of the list.
    pub fn clear(&mut self) {
        self.list.clear();
        self.bytes = 0;
    }
}

/// One flow. Addresses and ports are those of its first packet: source is the client.
///
/// The first cache line holds what every packet touches, the second what rules keep with a flow. The rest is for events, and what
/// the engine keeps with the flow follows in a line of its own.
#[derive(Debug, Clone)]
#[repr(C)]
pub struct FlowCore {
    /// Its number in events (`flow_id`): unique in a run.
    pub id: u64,
    /// Time of the latest packet.
    pub last: Time,
    /// Packets, by [`Direction::index`].
    pub pkts: [u64; 2],
    /// Bytes on the wire, by [`Direction::index`].
    pub bytes: [u64; 2],
    /// State.
    pub state: FlowState,
    /// It is bypassed, and what it carried is over: it may be silent no longer than one that is closed
    /// ([`crate::FlowTable::set_over`]).
    pub over: bool,
    /// The verdict on the rest of the flow.
    pub action: FlowAction,
    /// Firewall mode: threat detection rules no longer inspect it; `action` is the firewall's verdict.
    pub td_passed: bool,
    /// Whether a rule alerted on it.
    pub alerted: bool,
    /// Whether IP-only rules and the like have looked at each direction's first packet, by [`Direction::index`].
    pub first_seen: [bool; 2],
    /// TCP flags seen, by [`Direction::index`].
    pub tcp_flags: [u8; 2],
    /// Smallest and largest TTL or hop limit seen, by [`Direction::index`].
    pub ttl: [(u8, u8); 2],
    /// Whether it is an elephant ([`crate::RateConfig`]), by [`Direction::index`]; once it is, it stays one.
    pub elephant: [bool; 2],
    /// IP protocol.
    pub proto: u8,
    /// Bits and integers.
    pub vars: FlowVars,
    /// What it carried of late, where that is asked for.
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
    /// Emergency mode was on when it was made or ended.
    pub emergency: bool,
}

// What every packet touches is one cache line, and what rules touch besides another one.
const _: () = assert!(std::mem::offset_of!(FlowCore, vars) == 64 && std::mem::offset_of!(FlowCore, start) == 128);

impl FlowCore {
    /// A flow of protocol `proto` with its first packet at `time`, of which only the ends are known: client and server, each
    /// with its port.
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

    /// Turns the flow round: its client becomes the server.
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
