//! The distributed hash table of BitTorrent (BEP 5): bencoded queries, responses and errors over UDP. Each message is a
//! transaction.

mod bencode;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use margay_flow::{Direction, FlowCore};
use margay_json::Json;

use crate::config::{AppConfig, AppLogOptions};
use crate::conversation::{Content, Conversation, Turn, parser};
use crate::declare::Protocol;
use crate::parser::Outcome;
use crate::proto::AppProto;
use crate::recognise::{Pattern, Recognition, UDP};
use crate::tx::{LogFor, TxBase};

use bencode::Value;

/// The first bytes of a message: a query, a response (alone or after the sender's address), an error. Clients use the same port
/// for µTP; its datagrams are not messages and raise no event.
const BEGINNINGS: [&[u8]; 4] = [b"d1:ad", b"d1:rd", b"d2:ip", b"d1:el"];

/// The limit of nodes, and of peers, in an event.
const LIST_MAX: usize = 256;

pub mod events {
    //! Anomalies, under the names that rules use (`app-layer-event:bittorrent-dht.NAME`).

    events! {
        "BitTorrent's DHT";
        MalformedPacket "malformed_packet";
    }
}

const fn query(dir: Direction) -> Pattern {
    Pattern { transport: UDP, ..Pattern::tcp(dir, b"d1:ad2:id20:") }
}

/// BitTorrent's DHT.
pub static PROTOCOL: Protocol = Protocol {
    recognition: Recognition { patterns: &[query(Direction::ToServer), query(Direction::ToClient)], probes: &[] },
    parser: parser::<Dht>,
    events: events::NAMES,
    event_aliases: &["bittorrent-dht"],
    ..Protocol::new(AppProto::BittorrentDht, "bittorrent-dht").logged_as("bittorrent_dht")
};

/// The state of a flow: nothing is kept between messages.
#[derive(Debug)]
struct Dht;

impl Conversation for Dht {
    type Tx = Message;
    const PROTO: AppProto = AppProto::BittorrentDht;

    fn new(_config: &AppConfig, _flow: &FlowCore) -> Self {
        Dht
    }

    fn message(&mut self, turn: &mut Turn<'_, '_, Message>, dir: Direction, message: &[u8]) -> Outcome {
        if message.len() < 6 || !BEGINNINGS.iter().any(|b| message.starts_with(b)) {
            return Outcome::More;
        }
        let complete = Parts::read(message).is_complete;
        let tx = turn.one_way(dir, Message { dir, raw: message.into() });
        if !complete {
            tx.event(events::Event::MalformedPacket as u8);
        }
        if complete { Outcome::More } else { turn.cx.unreadable() }
    }
}

/// A raw message.
#[derive(Debug)]
struct Message {
    dir: Direction,
    raw: Box<[u8]>,
}

/// The parts of a message.
#[derive(Debug, Default)]
struct Parts<'a> {
    transaction_id: &'a [u8],
    client_version: Option<&'a [u8]>,
    query: Option<&'a [u8]>,
    /// The encoded entries of a query.
    arguments: Option<&'a [u8]>,
    /// The encoded entries of a response.
    response: Option<&'a [u8]>,
    /// The encoded items of an error.
    error: Option<&'a [u8]>,
    /// Whether the message is valid and has all members that its type requires.
    is_valid: bool,
    /// Whether it is valid and has a transaction identifier.
    is_complete: bool,
}

impl Parts<'_> {
    fn read(data: &[u8]) -> Parts<'_> {
        let (mut p, mut kind, mut has_id) = (Parts::default(), None, false);
        // Data after the dictionary is ignored.
        let Some((Value::Dictionary(entries), _)) = bencode::value(data) else { return p };
        let read = bencode::entries(entries, |key, value| match (key, value) {
            (b"t", Value::Bytes(id)) => (p.transaction_id, has_id) = (id, true),
            (b"v", Value::Bytes(version)) => p.client_version = Some(version),
            (b"y", Value::Bytes(y)) => kind = Some(y),
            (b"q", Value::Bytes(q)) => p.query = Some(q),
            (b"a", Value::Dictionary(a)) => p.arguments = Some(a),
            (b"r", Value::Dictionary(r)) => p.response = Some(r),
            (b"e", Value::List(e)) => p.error = Some(e),
            _ => {}
        });
        let all = match kind {
            Some(b"q") => p.query.is_some() && p.arguments.is_some(),
            Some(b"r") => p.response.is_some(),
            Some(b"e") => p.error.is_some(),
            _ => false,
        };
        let names_node = |entries: Option<&[u8]>| {
            let mut named = false;
            let read = bencode::entries(entries.unwrap_or(&[]), |key, value| {
                named |= key == b"id" && matches!(value, Value::Bytes(_));
            });
            entries.is_none() || read.is_some() && named
        };
        p.is_valid = read.is_some()
            && all
            && names_node(p.arguments)
            && names_node(p.response)
            && p.query.is_none_or(|q| std::str::from_utf8(q).is_ok());
        p.is_complete = p.is_valid && has_id;
        p
    }
}

impl Content for Message {
    fn held(&self) -> u64 {
        self.raw.len() as u64
    }

    fn direction(&self, _only: Option<Direction>) -> Direction {
        self.dir
    }

    fn log(&self, _base: &TxBase, json: &mut Json, _options: &AppLogOptions, _what: LogFor) {
        // Like in Suricata, nothing of an invalid message is shown, but all of one without an identifier.
        let p = Some(Parts::read(&self.raw)).filter(|p| p.is_valid).unwrap_or_default();
        json.object("bittorrent_dht");
        json.hex("transaction_id", p.transaction_id);
        if let Some(version) = p.client_version {
            json.hex("client_version", version);
        }
        if let Some(query) = p.query {
            json.bytes("request_type", query);
        }
        for (name, entries) in [("request", p.arguments), ("response", p.response)] {
            if let Some(entries) = entries {
                json.object(name);
                log_entries(entries, json);
                json.end_object();
            }
        }
        if let Some(items) = p.error {
            json.object("error");
            let (mut number, mut text) = (None, None);
            let _ = bencode::items(items, |item| match item {
                Value::Int(n) => number = number.or(Some(n)),
                Value::Bytes(b) => text = text.or(Some(b)),
                _ => {}
            });
            if let Some(n) = number {
                json.int("num", n);
            }
            json.bytes("msg", text.unwrap_or_default());
            json.end_object();
        }
        json.end_object();
    }
}

/// Appends the arguments of a query, or the members of a response.
fn log_entries(entries: &[u8], json: &mut Json) {
    // A repeated name is shown once.
    let mut shown = 0u16;
    let mut first = |n: u16| {
        let is = shown & (1 << n) == 0;
        shown |= 1 << n;
        is
    };
    // Entries after an invalid one are not shown.
    let _ = bencode::entries(entries, |key, value| match (key, value) {
        (b"id", Value::Bytes(b)) if first(0) => json.hex("id", b),
        (b"target", Value::Bytes(b)) if first(1) => json.hex("target", b),
        (b"info_hash", Value::Bytes(b)) if first(2) => json.hex("info_hash", b),
        (b"token", Value::Bytes(b)) if first(3) => json.hex("token", b),
        (b"implied_port", Value::Int(n)) if first(4) => json.int("implied_port", n),
        (b"port", Value::Int(n)) if first(5) => json.int("port", n),
        (b"nodes", Value::Bytes(b)) if b.len() >= 26 && first(6) => nodes::<26>("nodes", b, json),
        (b"nodes6", Value::Bytes(b)) if b.len() >= 38 && first(7) => nodes::<38>("nodes6", b, json),
        (b"values", Value::List(items)) if first(8) => {
            json.array("values");
            let mut n = 0;
            let _ = bencode::items(items, |item| {
                if let Value::Bytes(b) = item
                    && let Some((ip, port)) = contact(b)
                    && n < LIST_MAX
                {
                    n += 1;
                    json.item_object();
                    json.ip("ip", ip);
                    json.uint("port", u64::from(port));
                    json.end_object();
                }
            });
            json.end_array();
        }
        _ => {}
    });
}

/// Appends node contacts of `N` bytes each: an identifier of 20 bytes, address and port.
fn nodes<const N: usize>(name: &'static str, data: &[u8], json: &mut Json) {
    json.array(name);
    for node in data.as_chunks::<N>().0.iter().take(LIST_MAX) {
        let Some((id, rest)) = node.split_at_checked(20) else { continue };
        let Some((ip, port)) = contact(rest) else { continue };
        json.item_object();
        json.hex("id", id);
        json.ip("ip", ip);
        json.uint("port", u64::from(port));
        json.end_object();
    }
    json.end_array();
}

/// Reads an address of either family with a port.
fn contact(data: &[u8]) -> Option<(IpAddr, u16)> {
    let (ip, port) = data.split_last_chunk::<2>()?;
    let ip = match (ip.first_chunk::<4>(), ip.first_chunk::<16>()) {
        (Some(ip4), _) if ip.len() == 4 => Ipv4Addr::from(*ip4).into(),
        (_, Some(ip6)) if ip.len() == 16 => Ipv6Addr::from(*ip6).into(),
        _ => return None,
    };
    Some((ip, u16::from_be_bytes(*port)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Talk;

    fn talk(client: &[u8], server: &[u8]) -> Talk {
        let mut talk = Talk::udp(AppProto::BittorrentDht, 6881);
        talk.client(client).server(server);
        talk
    }

    #[test]
    fn an_incomplete_message_is_an_error() {
        let mut talk = Talk::udp(AppProto::BittorrentDht, 6881);
        assert_eq!(talk.client(b"d1:ad2:id20:abcdefghij0123456789e1:q4:ping1:y1:qe").outcome, Outcome::Failed);
        assert_eq!(talk.events(), ["malformed_packet"]);
        // The next datagram is read.
        assert_eq!(talk.client(b"d1:ad2:id20:abcdefghij0123456789e1:q4:ping1:t2:aa1:y1:qe").outcome, Outcome::More);
        assert_eq!(talk.logs().len(), 2);
    }

    #[test]
    fn a_query_and_its_response() {
        let response = [
            &b"d1:rd2:id20:0123456789abcdefghij5:nodes26:0123456789abcdefghij"[..],
            &[192, 0, 2, 1, 0x1a, 0xe1],
            b"e1:t2:aa1:v4:UT011:y1:re",
        ]
        .concat();
        let t = talk(
            b"d1:ad2:id20:abcdefghij01234567896:target20:mnopqrstuvwxyz123456e1:q9:find_node1:t2:aa1:y1:qe",
            &response,
        );
        assert_eq!(
            t.logs(),
            [
                r#"{"bittorrent_dht":{"transaction_id":"6161","request_type":"find_node","request":{"id":"6162636465666768696a30313233343536373839","target":"6d6e6f707172737475767778797a313233343536"}}}"#,
                r#"{"bittorrent_dht":{"transaction_id":"6161","client_version":"55543031","response":{"id":"303132333435363738396162636465666768696a","nodes":[{"id":"303132333435363738396162636465666768696a","ip":"192.0.2.1","port":6881}]}}}"#,
            ]
        );
        assert!(t.events().is_empty());
    }

    #[test]
    fn peers_and_errors() {
        let t = talk(
            b"d1:eli203e16:Malformed Packete1:t2:aa1:y1:ee",
            b"d1:rd2:id1:a5:token1:b6:valuesl6:axje.u6:idhtnm3:bade2:zzi1ee1:t2:aa1:y1:re",
        );
        assert_eq!(
            t.logs(),
            [
                r#"{"bittorrent_dht":{"transaction_id":"6161","error":{"num":203,"msg":"Malformed Packet"}}}"#,
                r#"{"bittorrent_dht":{"transaction_id":"6161","response":{"id":"61","token":"62","values":[{"ip":"97.120.106.101","port":11893},{"ip":"105.100.104.116","port":28269}]}}}"#,
            ]
        );
        assert!(t.events().is_empty());
    }

    #[test]
    fn malformed_messages_have_an_event() {
        // Without a transaction identifier; not bencoded; a query without arguments.
        let t = talk(b"d1:ad2:id20:abcdefghij0123456789e1:q4:ping1:y1:qe", b"d1:ad2:id20:abc");
        assert_eq!(t.events(), ["malformed_packet"; 2]);
        let logs = t.logs();
        assert!(logs[0].contains(r#""transaction_id":"","request_type":"ping","request":{"id":"#), "{}", logs[0]);
        assert!(logs[1].contains(r#"{"transaction_id":""}"#), "{}", logs[1]);
        assert_eq!(
            talk(b"d1:ad2:id1:ae1:t2:aa1:y1:qe", b"d1:rd2:id1:ae1:t2:aa1:y1:xe").events(),
            ["malformed_packet"; 2]
        );
        // Without the node's identifier; a name that is not text.
        assert_eq!(
            talk(b"d1:ad2:ix1:ae1:q4:ping1:t2:aa1:y1:qe", b"d1:rd2:ix1:ae1:t2:aa1:y1:re").events(),
            ["malformed_packet"; 2]
        );
        assert_eq!(talk(b"d1:ad2:id1:ae1:q4:pi\xffg1:t2:aa1:y1:qe", b"").events(), ["malformed_packet"]);
    }

    #[test]
    fn other_datagrams_of_the_port_are_no_messages() {
        let t = talk(b"\x21\0abcdefghijklmnopqrst", b"d1:xbroken");
        assert!(t.logs().is_empty() && t.events().is_empty());
        assert!(talk(b"d1:el", b"i5e").logs().is_empty());
        assert_eq!(talk(b"d1:elX", b"d2:ipX").events(), ["malformed_packet"; 2]);
    }

    #[test]
    fn bytes_behind_a_message_do_not_count() {
        let t = talk(b"d1:ad2:id1:ae1:q4:ping1:t2:aa1:y1:qexx", b"d2:ip6:abcdef1:rd2:id1:ae1:t2:aa1:y1:re");
        assert_eq!(t.logs().len(), 2);
        assert!(t.events().is_empty());
    }
}
