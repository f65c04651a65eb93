//! Protocols that are recognised and have no parser yet: they have a name in events and rules, and nothing more.

use margay_flow::Direction;

use super::{Pattern, Probe, Probed, Recognition, TCP, UDP, probes};
use crate::proto::AppProto;

/// A protocol without a parser.
#[derive(Debug)]
pub struct Other {
    /// Which.
    pub proto: AppProto,
    /// Its key below `app-layer.protocols` in the configuration.
    pub config: &'static str,
    /// Whether it is looked for where the configuration says nothing.
    pub on: bool,
    /// How it is recognised.
    pub recognition: Recognition,
}

/// A literal to the server.
const fn ts(bytes: &'static [u8]) -> Pattern {
    Pattern::tcp(Direction::ToServer, bytes)
}

/// A literal to the client.
const fn tc(bytes: &'static [u8]) -> Pattern {
    Pattern::tcp(Direction::ToClient, bytes)
}

const fn udp(pattern: Pattern) -> Pattern {
    Pattern { transport: UDP, ..pattern }
}

const fn on_tcp(ports: &'static [u16], probe: fn(Direction, &[u8]) -> Probed) -> Probe {
    Probe { transport: TCP, ports, probe }
}

const fn on_udp(ports: &'static [u16], probe: fn(Direction, &[u8]) -> Probed) -> Probe {
    Probe { transport: UDP, ports, probe }
}

const fn other(proto: AppProto, config: &'static str, patterns: &'static [Pattern], probes: &'static [Probe]) -> Other {
    Other { proto, config, on: true, recognition: Recognition { patterns, probes } }
}

const fn off(mut other: Other) -> Other {
    other.on = false;
    other
}

/// Each literal of SIP, over both transports and in both directions: either end may be asked.
const SIP: &[Pattern] = &{
    const WORDS: [&[u8]; 15] = [
        b"REGISTER ",
        b"INVITE ",
        b"ACK ",
        b"BYE ",
        b"CANCEL ",
        b"UPDATE ",
        b"REFER ",
        b"PRACK ",
        b"SUBSCRIBE ",
        b"NOTIFY ",
        b"PUBLISH ",
        b"MESSAGE ",
        b"INFO ",
        b"OPTIONS ",
        b"SIP/2.0 ",
    ];
    let mut all = [ts(b""); WORDS.len() * 4];
    let mut i = 0;
    while i < WORDS.len() {
        all[4 * i] = ts(WORDS[i]);
        all[4 * i + 1] = tc(WORDS[i]);
        all[4 * i + 2] = udp(ts(WORDS[i]));
        all[4 * i + 3] = udp(tc(WORDS[i]));
        i += 1;
    }
    all
};

/// The greeting of either side.
const RFB: &[Pattern] = &[ts(b"RFB "), tc(b"RFB ")];

/// All of them, in the order in which they are asked.
pub static OTHERS: &[Other] = &[
    // RFC 9051 section 7.1.
    other(AppProto::Imap, "imap", &[tc(b"* OK ").nocase(), tc(b"* PREAUTH ").nocase(), tc(b"* BYE ").nocase()], &[]),
    // RFC 1939 section 3.
    other(
        AppProto::Pop3,
        "pop3",
        &[
            tc(b"+OK "),
            tc(b"-ERR "),
            ts(b"USER ").nocase(),
            ts(b"PASS ").nocase(),
            ts(b"QUIT").nocase(),
            ts(b"CAPA").nocase(),
            ts(b"APOP ").nocase(),
            ts(b"STLS").nocase(),
        ],
        &[],
    ),
    other(AppProto::Nfs, "nfs", &[], &[on_tcp(&[2049], probes::nfs_tcp), on_udp(&[2049], probes::nfs_udp)]),
    other(AppProto::Ntp, "ntp", &[], &[on_udp(&[123], probes::ntp)]),
    other(AppProto::Ike, "ike", &[], &[on_udp(&[500], probes::ike)]),
    other(AppProto::Krb5, "krb5", &[], &[on_tcp(&[88], probes::krb5_tcp), on_udp(&[88], probes::krb5_udp)]),
    other(AppProto::Snmp, "snmp", &[], &[on_udp(&[161, 162], probes::snmp)]),
    // RFC 3261 section 7, and the methods of its extensions.
    other(AppProto::Sip, "sip", SIP, &[]),
    // RFC 6143 section 7.1.1.
    other(AppProto::Rfb, "rfb", RFB, &[]),
    other(AppProto::Mqtt, "mqtt", &[], &[on_tcp(&[1883], probes::mqtt)]),
    other(AppProto::Telnet, "telnet", &[], &[on_tcp(&[23], probes::telnet)]),
    other(AppProto::Ldap, "ldap", &[], &[on_tcp(&[389, 3268], probes::ldap), on_udp(&[389], probes::ldap)]),
    other(AppProto::Rdp, "rdp", &[], &[on_tcp(&[3389], probes::rdp)]),
    // BEP 5: a query.
    other(AppProto::BittorrentDht, "bittorrent-dht", &[udp(ts(b"d1:ad2:id20:")), udp(tc(b"d1:ad2:id20:"))], &[]),
    off(other(AppProto::Pgsql, "pgsql", &[], &[on_tcp(&[5432], probes::pgsql)])),
    off(other(AppProto::Modbus, "modbus", &[], &[on_tcp(&[502], probes::modbus)])),
    off(other(AppProto::Dnp3, "dnp3", &[], &[on_tcp(&[20000], probes::dnp3)])),
    off(other(AppProto::Enip, "enip", &[], &[on_tcp(&[44818], probes::enip), on_udp(&[44818], probes::enip)])),
];
