//! What is known of one flow, whatever its protocol.

use std::net::IpAddr;

use margay_packet::Time;

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

/// What rules or policies decided for the rest of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum FlowAction {
    /// Nothing.
    #[default]
    None,
    /// Every further packet is dropped.
    Drop,
    /// No further packet is inspected.
    Pass,
    /// Every further packet is accepted (firewall mode).
    Accept,
}

/// Bits and integers that rules keep with a flow, by number of their name (interned when rules are loaded).
#[derive(Debug, Clone, Default)]
pub struct FlowVars {
    bits: Vec<u32>,
    ints: Vec<(u32, u32)>,
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
    /// Forgets everything, keeping the memory.
    pub fn clear(&mut self) {
        self.bits.clear();
        self.ints.clear();
    }
}

/// One flow. Addresses and ports are those of its first packet: source is the client.
#[derive(Debug, Clone)]
pub struct FlowCore {
    /// Its number in events (`flow_id`): unique in a run.
    pub id: u64,
    /// Client address.
    pub src: IpAddr,
    /// Server address.
    pub dst: IpAddr,
    /// Client port; for ICMP its type.
    pub sport: u16,
    /// Server port; for ICMP its code.
    pub dport: u16,
    /// IP protocol.
    pub proto: u8,
    /// ESP: security parameters index.
    pub spi: u32,
    /// VLAN tags, 0 where unused.
    pub vlans: margay_packet::Vlans,
    /// Tunnel depth.
    pub recursion: u8,
    /// Time of the first packet.
    pub start: Time,
    /// Time of the latest packet.
    pub last: Time,
    /// Packets, by [`Direction::index`].
    pub pkts: [u64; 2],
    /// Bytes on the wire, by [`Direction::index`].
    pub bytes: [u64; 2],
    /// Packets and bytes seen while bypassed, by [`Direction::index`].
    pub bypassed: [(u64, u64); 2],
    /// State.
    pub state: FlowState,
    /// What was decided for the rest of it.
    pub action: FlowAction,
    /// Whether a rule alerted on it.
    pub alerted: bool,
    /// Whether IP-only rules and the like have looked at each direction's first packet, by [`Direction::index`].
    pub first_seen: [bool; 2],
    /// Bits and integers.
    pub vars: FlowVars,
    /// TCP flags seen, by [`Direction::index`].
    pub tcp_flags: [u8; 2],
    /// Smallest and largest TTL or hop limit seen, by [`Direction::index`].
    pub ttl: [(u8, u8); 2],
    /// Emergency mode was on when it was made or ended.
    pub emergency: bool,
}

impl FlowCore {
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
    }
}
