//! Settings of the decoder and the defragmenter, with the defaults of Suricata 8.

use std::net::IpAddr;

/// Whether an encapsulation inside UDP is decoded, and on which ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UdpTunnel {
    /// Whether it is decoded at all.
    pub enabled: bool,
    /// Ports that carry it, as source or as destination; none means every port.
    pub ports: Vec<u16>,
}

impl UdpTunnel {
    /// On, for one port.
    pub fn on(port: u16) -> Self {
        UdpTunnel { enabled: true, ports: vec![port] }
    }

    /// Whether a datagram between these ports may carry it.
    pub fn matches(&self, sport: u16, dport: u16) -> bool {
        let listed = |port| self.ports.binary_search(&port).is_ok();
        self.enabled && (self.ports.is_empty() || listed(dport) || listed(sport))
    }
}

/// A set of ports that is tested quickly: ports that are equal modulo 1,024 share a bit, so only a negative answer is
/// certain.
#[derive(Debug, Clone)]
pub(crate) struct PortFilter([u64; 16]);

impl PortFilter {
    /// The ports of the enabled encapsulations; all ports if one of them is looked for on every port.
    pub(crate) fn of(tunnels: [&UdpTunnel; 3]) -> PortFilter {
        let mut filter = PortFilter([0; 16]);
        for tunnel in tunnels.into_iter().filter(|t| t.enabled) {
            if tunnel.ports.is_empty() {
                filter.0 = [u64::MAX; 16];
            }
            for port in &tunnel.ports {
                filter.0[usize::from(port >> 6) & 15] |= 1 << (port & 63);
            }
        }
        filter
    }

    /// Whether `port` may be in the set.
    #[inline]
    pub(crate) fn may_have(&self, port: u16) -> bool {
        self.0[usize::from(port >> 6) & 15] >> (port & 63) & 1 != 0
    }
}

/// Settings of [`crate::Decoder`] (`decoder:` and `defrag:` of the configuration).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeConfig {
    /// Decoding stops at this many headers in a frame, inner packets included (`decoder.max-layers`).
    pub max_layers: u8,
    /// VXLAN (RFC 7348).
    pub vxlan: UdpTunnel,
    /// Geneve (RFC 8926).
    pub geneve: UdpTunnel,
    /// Teredo (RFC 4380).
    pub teredo: UdpTunnel,
    /// Whether VN-Tags are decoded (`decoder.vntag.enabled`).
    pub vntag: bool,
    /// Whether ERSPAN type I, which has no header of its own, is decoded (`decoder.erspan.typeI.enabled`).
    pub erspan_type1: bool,
    /// Whether checksums count as right without a check (`-k none`).
    pub ignore_checksums: bool,
    /// The defragmenter's settings.
    pub defrag: DefragConfig,
}

impl Default for DecodeConfig {
    fn default() -> Self {
        DecodeConfig {
            max_layers: 16,
            vxlan: UdpTunnel::on(4789),
            geneve: UdpTunnel::on(6081),
            teredo: UdpTunnel::on(3544),
            vntag: true,
            erspan_type1: true,
            ignore_checksums: false,
            defrag: DefragConfig::default(),
        }
    }
}

/// The overlap policy for fragments: the known behaviour of operating systems
/// (Novak, *Target-Based Fragmentation Reassembly*, 2005), and of Linux today.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Policy {
    /// The bytes that came first.
    First,
    /// The bytes that came last.
    Last,
    /// The earlier fragment if it starts at or before the later one, else the later one.
    #[default]
    Bsd,
    /// The later fragment if the earlier one starts at or before it, else the earlier one.
    BsdRight,
    /// Linux before 4.20: the earlier fragment if it starts before the later one, else the later one.
    OldLinux,
    /// Linux: a fragment within existing data is ignored. If a fragment overlaps data otherwise, is empty, or disagrees
    /// about the datagram's end, the host forgets all fragments of the datagram. It also does so 30 seconds after the
    /// first fragment (60 for IPv6), and if the sender sends more than 64 other fragments between two of the datagram
    /// (IPv4).
    Linux,
    /// The earlier fragment, unless the later one starts before it and reaches its end or further.
    Solaris,
    /// The earlier fragment, unless the later one starts before it and ends after it.
    Windows,
}

impl Policy {
    /// The policy of an operating system as `host-os-policy` names it (`bsd-right`, `old-linux`, …).
    pub fn from_os_name(name: &str) -> Option<Policy> {
        Some(match name {
            "bsd" | "hpux10" | "irix" => Policy::Bsd,
            "bsd-right" | "bsd_right" => Policy::BsdRight,
            "old-linux" | "old_linux" => Policy::OldLinux,
            "linux" => Policy::Linux,
            "solaris" => Policy::Solaris,
            "old-solaris" | "old_solaris" | "hpux11" | "macos" => Policy::First,
            "windows" | "vista" | "windows2k3" => Policy::Windows,
            "first" => Policy::First,
            "last" => Policy::Last,
            _ => return None,
        })
    }
}

/// Settings of the defragmenter (`defrag:` and `host-os-policy:` of the configuration).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefragConfig {
    /// Most bytes of memory that fragments and trackers use (`defrag.memcap`).
    pub memcap: usize,
    /// Buckets of the table of trackers (`defrag.hash-size`); rounded up to a power of two.
    pub hash_size: usize,
    /// Most datagrams in reassembly (`defrag.trackers`).
    pub trackers: usize,
    /// Most stored fragments, of all datagrams together (`defrag.max-frags`).
    pub max_frags: usize,
    /// Seconds of packet time after which an incomplete datagram is discarded (`defrag.timeout`), from its first fragment, or the
    /// destination's own timeout if that is known and shorter ([`Policy::Linux`]). Inline, seconds for which forwarded fragments
    /// are remembered, from the last one: at least as long as any host holds them.
    pub timeout: u32,
    /// Timeouts of destination networks (`defrag.host-config`) as address, prefix length in bits, seconds; the longest prefix
    /// that contains the destination counts.
    pub timeouts: Vec<(IpAddr, u8, u32)>,
    /// Whether VLAN tags tell datagrams apart (`vlan.use-for-tracking`).
    pub vlan_tracking: bool,
    /// Policies of destination networks as address, prefix length in bits, policy; the longest prefix that contains the
    /// destination counts.
    pub hosts: Vec<(IpAddr, u8, Policy)>,
    /// The policy of every other destination.
    pub default_policy: Policy,
    /// Whether IPv4 fragments with a wrong header checksum are ignored, as by hosts (`stream.checksum-validation`,
    /// `-k`). Inline, they are always refused.
    pub checksums: bool,
    /// Inline mode: fragments are forwarded as they arrive, unless refused ([`crate::Packet::refused`]). A fragment
    /// that a host could reassemble differently is refused, and no datagram is evicted to make room for others.
    pub inline: bool,
}

impl Default for DefragConfig {
    fn default() -> Self {
        DefragConfig {
            memcap: 32 << 20,
            hash_size: 65_536,
            trackers: 65_535,
            max_frags: 65_535,
            timeout: 60,
            timeouts: Vec::new(),
            vlan_tracking: true,
            hosts: Vec::new(),
            default_policy: Policy::Bsd,
            checksums: false,
            inline: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_knows_all_of_its_ports() {
        let ports = vec![0, 63, 64, 1023, 1024, 3544, 4789, 65_535];
        let on = |ports: &[u16]| UdpTunnel { enabled: true, ports: ports.to_vec() };
        let off = UdpTunnel { enabled: false, ports: vec![7] };
        let filter = PortFilter::of([&on(&ports), &off, &on(&[6081])]);
        assert!(ports.iter().all(|p| filter.may_have(*p)) && filter.may_have(6081) && !filter.may_have(7));
        let all = PortFilter::of([&on(&[]), &off, &off]);
        assert!((0..=u16::MAX).all(|p| all.may_have(p)));
    }
}
