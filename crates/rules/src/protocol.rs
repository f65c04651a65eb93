//! Protocol names of rule headers.

use crate::ast::Protocol;

/// Application protocols by name: the name that stands for each, and for groups what they consist of.
const APP: &[(&str, &[&str])] = &[
    ("http", &["http", "http1", "http2"]),
    ("http1", &["http1", "http"]),
    ("http2", &["http2", "http"]),
    ("doh2", &["doh2"]),
    ("dns", &["dns", "doh2"]),
    ("mdns", &["mdns"]),
    ("tls", &["tls"]),
    ("ssl", &["tls"]),
    ("ssh", &["ssh"]),
    ("smtp", &["smtp"]),
    ("imap", &["imap"]),
    ("pop3", &["pop3"]),
    ("ftp", &["ftp"]),
    ("ftp-data", &["ftp-data"]),
    ("smb", &["smb"]),
    ("dcerpc", &["dcerpc", "smb"]),
    ("irc", &["irc"]),
    ("jabber", &["jabber"]),
    ("modbus", &["modbus"]),
    ("enip", &["enip"]),
    ("dnp3", &["dnp3"]),
    ("nfs", &["nfs"]),
    ("ntp", &["ntp"]),
    ("tftp", &["tftp"]),
    ("ike", &["ike"]),
    ("ikev2", &["ike"]),
    ("krb5", &["krb5"]),
    ("quic", &["quic"]),
    ("dhcp", &["dhcp"]),
    ("snmp", &["snmp"]),
    ("sip", &["sip"]),
    ("rfb", &["rfb"]),
    ("mqtt", &["mqtt"]),
    ("pgsql", &["pgsql"]),
    ("telnet", &["telnet"]),
    ("websocket", &["websocket"]),
    ("ldap", &["ldap"]),
    ("template", &["template"]),
    ("rdp", &["rdp"]),
    ("bittorrent-dht", &["bittorrent-dht"]),
];

/// The application protocols that a name covers.
pub(crate) fn group(name: &str) -> Option<&'static [&'static str]> {
    APP.iter().find(|p| p.0 == name).map(|p| p.1)
}

/// A header's protocol, of which case does not matter.
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
        // The names of today.
        "ssl" => Protocol::App("tls".to_owned()),
        "ikev2" => Protocol::App("ike".to_owned()),
        n => {
            group(n)?;
            Protocol::App(name)
        }
    })
}

/// The names of application protocols that a header may have.
pub(crate) fn app_names() -> impl Iterator<Item = &'static str> {
    APP.iter().map(|p| p.0)
}
