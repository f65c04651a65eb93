//! Names of IP protocols and link types, as events show them.

use margay_packet::LinkType;

/// ICMP (RFC 792).
pub const ICMP: u8 = 1;
/// TCP (RFC 9293).
pub const TCP: u8 = 6;
/// UDP (RFC 768).
pub const UDP: u8 = 17;
/// ESP (RFC 4303).
pub const ESP: u8 = 50;
/// ICMP for IPv6 (RFC 4443).
pub const ICMPV6: u8 = 58;
/// SCTP (RFC 9260).
pub const SCTP: u8 = 132;

/// Names of the IP protocols 0 to 143, by number (IANA's Assigned Internet Protocol Numbers, in Suricata's spelling).
#[rustfmt::skip]
static NAMES: [&str; 144] = [
    "HOPOPT", "ICMP", "IGMP", "GGP", "IP-in-IP", "ST", "TCP", "CBT", "EGP", "IGP", "BBN-RCC-MON", "NVP-II", "PUP",
    "ARGUS", "EMCON", "XNET", "CHAOS", "UDP", "MUX", "DCN-MEAS", "HMP", "PRM", "XNS-IDP", "TRUNK-1", "TRUNK-2",
    "LEAF-1", "LEAF-2", "RDP", "IRTP", "ISO-TP4", "NETBLT", "MFE-NSP", "MERIT-INP", "DCCP", "3PC", "IDPR", "XTP",
    "DDP", "IDPR-CMTP", "TP++", "IL", "IPv6", "SDRP", "IPv6-Route", "IPv6-Frag", "IDRP", "RSVP", "GRE", "DSR", "BNA",
    "ESP", "AH", "I-NLSP", "SwIPe", "NARP", "MOBILE", "TLSP", "SKIP", "IPv6-ICMP", "IPv6-NoNxt", "IPv6-Opts", "Any",
    "CFTP", "Any", "SAT-EXPAK", "KRYPTOLAN", "RVD", "IPPC", "Any", "SAT-MON", "VISA", "IPCU", "CPNX", "CPHB", "WSN",
    "PVP", "BR-SAT-MON", "SUN-ND", "WB-MON", "WB-EXPAK", "ISO-IP", "VMTP", "SECURE-VMTP", "VINES", "TTP",
    "NSFNET-IGP", "DGP", "TCF", "EIGRP", "OSPF", "Sprite-RPC", "LARP", "MTP", "AX.25", "OS", "MICP", "SCC-SP",
    "ETHERIP", "ENCAP", "Any", "GMTP", "IFMP", "PNNI", "PIM", "ARIS", "SCPS", "QNX", "A/N", "IPComp", "SNP",
    "Compaq-Peer", "IPX-in-IP", "VRRP", "PGM", "Any", "L2TP", "DDX", "IATP", "STP", "SRP", "UTI", "SMP", "SM", "PTP",
    "IS-IS", "FIRE", "CRTP", "CRUDP", "SSCOPMCE", "IPLT", "SPS", "PIPE", "SCTP", "FC", "RSVP-E2E-IGNORE", "Mobility",
    "UDPLite", "MPLS-in-IP", "manet", "HIP", "Shim6", "WESP", "ROHC", "Ethernet",
];

/// The name of an IP protocol; `None` if events show only its number.
pub fn protocol_name(proto: u8) -> Option<&'static str> {
    NAMES.get(usize::from(proto)).copied()
}

/// Whether events show ports for this protocol.
pub const fn has_ports(proto: u8) -> bool {
    matches!(proto, TCP | UDP | SCTP)
}

/// Whether events show an ICMP type and code for this protocol.
pub const fn is_icmp(proto: u8) -> bool {
    matches!(proto, ICMP | ICMPV6)
}

/// A link type as `packet_info` shows it: libpcap's number on Linux, and the name if there is one.
pub fn link_type(link: LinkType) -> (u32, Option<&'static str>) {
    match link.0 {
        0 => (0, Some("NULL")),
        1 => (1, Some("EN10MB")),
        9 => (9, Some("PPP")),
        12 | 14 | 101 => (12, Some("RAW")),
        50 => (50, Some("PPP_SERIAL")),
        51 => (51, Some("PPP_ETHER")),
        104 => (104, Some("C_HDLC")),
        105 => (105, Some("IEEE802_11")),
        108 => (108, Some("LOOP")),
        113 => (113, Some("LINUX_SLL")),
        228 => (228, Some("IPv4")),
        229 => (229, Some("IPv6")),
        276 => (276, Some("LINUX_SLL2")),
        other => (other, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_at_their_numbers() {
        for (n, name) in
            [(0, "HOPOPT"), (1, "ICMP"), (4, "IP-in-IP"), (6, "TCP"), (17, "UDP"), (41, "IPv6"), (47, "GRE")]
        {
            assert_eq!(protocol_name(n), Some(name));
        }
        for (n, name) in [(50, "ESP"), (51, "AH"), (58, "IPv6-ICMP"), (132, "SCTP"), (143, "Ethernet")] {
            assert_eq!(protocol_name(n), Some(name));
        }
        assert_eq!(protocol_name(144), None);
        assert_eq!(protocol_name(255), None);
    }
}
