//! Protocol names in rule headers.

use crate::ast::Protocol;

/// Names of application protocols for headers, each with the protocols that such a rule covers.
fn names() -> impl Iterator<Item = (&'static str, &'static [&'static str])> {
    margay_app::ALL.iter().flat_map(|p| p.header_names())
}

/// The application protocols that a name covers.
pub(crate) fn group(name: &str) -> Option<&'static [&'static str]> {
    names().find(|p| p.0 == name).map(|p| p.1)
}

/// Parses a header's protocol, ignoring case.
pub(crate) fn parse(name: &str) -> Option<Protocol> {
    let name = name.to_ascii_lowercase();
    Some(match name.as_str() {
        "ip" | "any" => Protocol::Ip,
        "ip4" | "ipv4" => Protocol::Ipv4,
        "ip6" | "ipv6" => Protocol::Ipv6,
        "tcp" => Protocol::Tcp,
        "tcp-pkt" => Protocol::TcpPacket,
        "tcp-stream" => Protocol::TcpStream,
        "udp" => Protocol::Udp,
        "icmp" => Protocol::Icmp,
        "icmpv4" | "icmp4" => Protocol::Icmpv4,
        "icmpv6" | "icmp6" => Protocol::Icmpv6,
        "sctp" => Protocol::Sctp,
        "pkthdr" | "decode" => Protocol::PacketHeader,
        "ether" => Protocol::Ethernet,
        "arp" => Protocol::Arp,
        // Old names map to today's.
        "ssl" => Protocol::App("tls".to_owned()),
        "ikev2" => Protocol::App("ike".to_owned()),
        n => {
            group(n)?;
            Protocol::App(name)
        }
    })
}

/// The names of application protocols that a header may use.
pub(crate) fn app_names() -> impl Iterator<Item = &'static str> {
    names().map(|p| p.0)
}
