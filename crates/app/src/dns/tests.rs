//! From messages to transactions: the view of rules and logs.

use std::net::IpAddr;

use margay_flow::Direction::{self, ToClient, ToServer};
use margay_flow::FlowCore;
use margay_json::Json;
use margay_packet::Time;
use proptest::prelude::*;

use crate::config::{AppConfig, AppLogOptions};
use crate::parser::{Outcome, Parse, Parser, Shared};
use crate::tx::{LogFor, Transaction};

use super::{LogOptions, MDNS, PROTOCOL, Version};

/// `1234`: a query for the addresses of www.example.org.
const QUERY: &[u8] = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03www\x07example\x03org\x00\x00\x01\x00\x01";
/// Its response: an alias, the two addresses of the alias, and the authority.
const ANSWER: &[u8] = b"\x12\x34\x81\x80\x00\x01\x00\x03\x00\x01\x00\x01\x03www\x07example\x03org\x00\x00\x01\x00\x01\
    \xc0\x0c\x00\x05\x00\x01\x00\x00\x0e\x10\x00\x02\xc0\x10\xc0\x10\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\xc0\x00\x02\x01\
    \xc0\x10\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\xc0\x00\x02\x02\
    \xc0\x10\x00\x02\x00\x01\x00\x00\x00\x3c\x00\x05\x02ns\xc0\x10\x00\x00\x29\x04\xd0\x00\x00\x80\x00\x00\x06\x00\x0a\x00\x02ab";

fn flow(proto: u8, port: u16) -> FlowCore {
    FlowCore::new(1, proto, (IpAddr::from([192, 0, 2, 1]), 40_000), (IpAddr::from([198, 51, 100, 1]), port), Time(0))
}

/// A parser with its context, fed as a session does.
struct Talk {
    config: AppConfig,
    flow: FlowCore,
    shared: Shared,
    parser: Box<dyn Parser>,
    waiting: [Vec<u8>; 2],
    outcome: Outcome,
}

impl Talk {
    fn new(proto: u8) -> Talk {
        let (config, flow) = (AppConfig::default(), flow(proto, 53));
        let parser = (PROTOCOL.parser)(&config, &flow);
        Talk { config, flow, shared: Shared::default(), parser, waiting: Default::default(), outcome: Outcome::More }
    }

    fn feed(&mut self, dir: Direction, data: &[u8], end: bool) -> &mut Self {
        let waiting = &mut self.waiting[dir.index()];
        waiting.extend_from_slice(data);
        let mut cx = Parse {
            config: &self.config,
            shared: &mut self.shared,
            flow: &self.flow,
            time: Time(0),
            end,
            inline: false,
        };
        let parsed = self.parser.data(&mut cx, dir, waiting);
        self.outcome = parsed.outcome;
        let used = if self.flow.proto == 17 { waiting.len() } else { parsed.consumed };
        waiting.drain(..used);
        self
    }

    fn gap(&mut self, dir: Direction, len: u64) -> &mut Self {
        let mut cx = Parse {
            config: &self.config,
            shared: &mut self.shared,
            flow: &self.flow,
            time: Time(0),
            end: false,
            inline: false,
        };
        assert_eq!(self.parser.gap(&mut cx, dir, len), Outcome::More);
        self
    }

    fn txs(&self) -> impl Iterator<Item = &dyn Transaction> {
        self.parser.txs().filter_map(|id| self.parser.tx(id))
    }

    /// Identifiers of the messages.
    fn ids(&self) -> Vec<(u64, String)> {
        self.txs().map(|t| (t.base().id, text(t.base().events.as_slice()))).collect()
    }
}

fn text(events: &[u8]) -> String {
    events.iter().map(|&e| super::events::NAMES[usize::from(e)]).collect::<Vec<_>>().join(" ")
}

fn over_tcp(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u16).to_be_bytes()[..], message].concat()
}

fn written(tx: &dyn Transaction, options: &AppLogOptions, what: LogFor) -> Vec<String> {
    let n = if what == LogFor::Event { tx.records(options) } else { 1 };
    let one = |record| {
        let mut json = Json::new();
        json.item_object();
        match what {
            LogFor::Event => tx.log_record(record, &mut json, options),
            _ => tx.log(&mut json, options, what),
        }
        json.end_object();
        String::from_utf8(json.as_bytes().to_vec()).unwrap()
    };
    (0..n).map(one).collect()
}

fn buffers(tx: &dyn Transaction, dir: Direction, name: &str) -> Vec<String> {
    let protocols = [&PROTOCOL, &MDNS];
    let def = protocols.iter().flat_map(|p| p.buffers).find(|b| b.name == name).unwrap();
    let mut scratch = Vec::new();
    let mut all = Vec::new();
    while let Some(found) = tx.buffer(def.id, dir, all.len(), &mut scratch) {
        all.push(String::from_utf8_lossy(found.data).into_owned());
    }
    all
}

fn numbers(tx: &dyn Transaction, dir: Direction, name: &str) -> Vec<u64> {
    let def = PROTOCOL.numbers.iter().find(|n| n.name == name).unwrap();
    (0..).map_while(|i| tx.number(def.id, dir, i)).collect()
}

#[test]
fn a_query_and_its_answer() {
    let mut t = Talk::new(17);
    t.feed(ToServer, QUERY, false).feed(ToClient, ANSWER, false);
    let [query, answer] = &t.txs().collect::<Vec<_>>()[..] else { panic!() };
    assert_eq!((query.base().progress, answer.base().progress), ([1, 1], [1, 1]));
    assert!(query.base().detect[1].done && !query.base().detect[0].done);
    assert!(answer.base().detect[0].done && !answer.base().detect[1].done);

    assert_eq!(buffers(*query, ToServer, "dns.query"), ["www.example.org"]);
    assert_eq!(buffers(*query, ToServer, "dns.queries.rrname"), ["www.example.org"]);
    assert!(buffers(*query, ToClient, "dns.queries.rrname").is_empty());
    assert!(buffers(*answer, ToClient, "dns.query").is_empty());
    assert_eq!(buffers(*answer, ToClient, "dns.answers.rrname"), ["www.example.org", "example.org", "example.org"]);
    assert_eq!(buffers(*answer, ToClient, "dns.authorities.rrname"), ["example.org"]);
    assert_eq!(buffers(*answer, ToClient, "dns.additionals.rrname"), [""]);
    let all = buffers(*answer, ToClient, "dns.response.rrname");
    assert_eq!((all.len(), &all[6..]), (8, &["example.org".to_owned(), "ns.example.org".to_owned()][..]));
    assert_eq!(numbers(*answer, ToClient, "dns.rrtype"), [5, 1, 1]);
    assert_eq!(numbers(*query, ToServer, "dns.rrtype"), [1]);
    assert_eq!(numbers(*query, ToServer, "dns.rcode"), [0]);
    assert_eq!(numbers(*query, ToServer, "dns.opcode"), [0]);
    assert!(numbers(*query, ToClient, "dns.opcode").is_empty());
}

#[test]
fn the_form_of_version_3() {
    let mut t = Talk::new(17);
    t.feed(ToServer, QUERY, false).feed(ToClient, ANSWER, false);
    let [query, answer] = &t.txs().collect::<Vec<_>>()[..] else { panic!() };
    let mut o = AppLogOptions::default();
    assert_eq!(
        written(*query, &o, LogFor::Event),
        [
            r#"{"dns":{"version":3,"type":"request","tx_id":0,"id":4660,"flags":"100","rd":true,"opcode":0,"rcode":"NOERROR","queries":[{"rrname":"www.example.org","rrtype":"A"}]}}"#
        ]
    );
    let head = r#"{"dns":{"version":3,"type":"response","tx_id":1,"id":4660,"flags":"8180","qr":true,"rd":true,"ra":true,"opcode":0,"rcode":"NOERROR","queries":[{"rrname":"www.example.org","rrtype":"A"}],"#;
    let answers = r#""answers":[{"rrname":"www.example.org","rrtype":"CNAME","ttl":3600,"rdata":"example.org"},{"rrname":"example.org","rrtype":"A","ttl":60,"rdata":"192.0.2.1"},{"rrname":"example.org","rrtype":"A","ttl":60,"rdata":"192.0.2.2"}],"#;
    let grouped = r#""grouped":{"A":["192.0.2.1","192.0.2.2"],"CNAME":["example.org"]},"#;
    let tail = r#""authorities":[{"rrname":"example.org","rrtype":"NS","ttl":60,"rdata":"ns.example.org"}],"additionals":[{"rrname":"","rrtype":"OPT","ttl":32768,"opt":[{"code":10,"data":"6162"}]}]}}"#;
    assert_eq!(written(*answer, &o, LogFor::Event), [[head, answers, grouped, tail].concat()]);
    assert_eq!(written(*answer, &o, LogFor::Alert), [[head, answers, tail].concat()]);
    assert_eq!((query.direction(&o), answer.direction(&o)), (ToServer, ToClient));
    o.dns.detailed = false;
    assert_eq!(written(*answer, &o, LogFor::Event), [[head, grouped, tail].concat()]);
    o.dns = LogOptions { types: Some(vec![28]), ..LogOptions::default() };
    assert!(written(*answer, &o, LogFor::Event).is_empty() && written(*query, &o, LogFor::Event).is_empty());
    o.dns = LogOptions { responses: false, ..LogOptions::default() };
    assert_eq!((written(*answer, &o, LogFor::Event).len(), written(*query, &o, LogFor::Event).len()), (0, 1));
}

/// An OPT record without options carries no information (RFC 6891 section 6.1.2). A section with nothing else is not logged.
#[test]
fn a_bare_opt_record() {
    let opt = b"\0\0\x29\x04\xd0\0\0\0\0\0\0";
    let a = b"\x01b\0\0\x01\0\x01\0\0\0\x0a\0\x04\xc0\0\x02\x01";
    for (additional, shown) in [(&[&opt[..]][..], false), (&[&a[..], opt], true)] {
        let mut query = b"\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x00\x00\x01\x00\x01".to_vec();
        query[11] = additional.len() as u8;
        query.extend(additional.concat());
        let mut t = Talk::new(17);
        t.feed(ToServer, &query, false);
        let line = &written(t.txs().next().expect("a query"), &AppLogOptions::default(), LogFor::Event)[0];
        assert!(!line.contains("OPT"), "{line}");
        assert_eq!(line.contains(r#""additionals":[{"rrname":"b","rrtype":"A""#), shown, "{line}");
        assert_eq!(line.contains("additionals"), shown, "{line}");
    }
}

#[test]
fn the_form_of_version_2() {
    let mut t = Talk::new(17);
    let two = b"\x00\x07\x01\x00\x00\x02\x00\x00\x00\x00\x00\x00\x01a\x00\x00\x01\x00\x01\x01b\x00\x00\x1c\x00\x01";
    t.feed(ToServer, two, false).feed(ToClient, ANSWER, false);
    let [query, answer] = &t.txs().collect::<Vec<_>>()[..] else { panic!() };
    let mut o = AppLogOptions::default();
    o.dns.version = Version::V2;
    assert_eq!(
        written(*query, &o, LogFor::Event),
        [
            r#"{"dns":{"version":2,"type":"query","id":7,"rrname":"a","rrtype":"A","tx_id":0,"opcode":0}}"#,
            r#"{"dns":{"version":2,"type":"query","id":7,"rrname":"b","rrtype":"AAAA","tx_id":0,"opcode":0}}"#,
        ]
    );
    let line = &written(*answer, &o, LogFor::Event)[0];
    assert!(line.contains(r#""type":"answer","id":4660,"flags":"8180","qr":true,"rd":true,"ra":true,"opcode":0,"rrname":"www.example.org","rrtype":"A","rcode":"NOERROR","answers":"#), "{line}");
    assert!(!line.contains("queries") && !line.contains("additionals"), "{line}");
    assert_eq!(answer.direction(&o), ToServer);
    o.dns.types = Some(vec![28]);
    assert_eq!((written(*query, &o, LogFor::Event).len(), written(*answer, &o, LogFor::Event).len()), (1, 0));
    // Alerts have a single format.
    assert!(written(*answer, &o, LogFor::Alert)[0].contains(r#""version":3"#));
}

#[test]
fn multicast() {
    let (config, flow) = (AppConfig::default(), flow(17, 5353));
    let mut parser = (MDNS.parser)(&config, &flow);
    let mut shared = Shared::default();
    let mut cx = Parse { config: &config, shared: &mut shared, flow: &flow, time: Time(0), end: false, inline: false };
    let answer = b"\0\0\x84\0\0\0\0\x02\0\0\0\0\x01a\x05local\0\0\x10\0\x01\0\0\0\x0a\0\x06\x01x\x03y=z\xc0\x0e\0\x0c\0\x01\0\0\0\x0a\0\x02\xc0\x0c";
    parser.data(&mut cx, ToServer, answer);
    let tx = parser.tx(0).unwrap();
    assert!(tx.base().events.is_empty());
    assert_eq!(
        written(tx, &AppLogOptions::default(), LogFor::Event),
        [
            r#"{"mdns":{"type":"response","id":0,"flags":["aa"],"opcode":0,"rcode":0,"answers":[{"rrname":"a.local","txt":["x","y=z"]},{"rrname":"local","ptr":"a.local"}]}}"#
        ]
    );
    assert_eq!(buffers(tx, ToServer, "mdns.response.rrname"), ["a.local", "local", "a.local"]);
    assert!(buffers(tx, ToServer, "mdns.queries.rrname").is_empty());
}

#[test]
fn the_wrong_way_and_nonsense() {
    let mut t = Talk::new(17);
    t.feed(ToServer, ANSWER, false).feed(ToClient, QUERY, false).feed(ToServer, b"nonsense", false);
    t.feed(ToServer, b"\x12\x34\x01\x40\x00\x01\x00\x00\x00\x00\x00\x00\x03ww", false);
    let names: Vec<String> = t.ids().into_iter().map(|i| i.1).collect();
    assert_eq!(names, ["not_request", "not_response", "malformed_data", "malformed_data z_flag_set"]);
    let o = AppLogOptions::default();
    assert!(t.txs().all(|tx| written(tx, &o, LogFor::Event).is_empty()));
    assert!(t.txs().all(|tx| written(tx, &o, LogFor::Alert)[0].contains("version")));
}

#[test]
fn over_a_stream_with_holes() {
    let (q, a) = (over_tcp(QUERY), over_tcp(ANSWER));
    // A gap of whole messages, one inside a message, and one from within a message to within the next.
    let mut t = Talk::new(6);
    t.feed(ToServer, &q, false).gap(ToServer, 70).feed(ToServer, &q, false);
    t.feed(ToServer, &q[..9], false).gap(ToServer, 5).feed(ToServer, &[&q[14..], &q[..]].concat(), false);
    t.feed(ToServer, &q[..9], false).gap(ToServer, 50).feed(ToServer, &[0xff; 20], false).feed(ToServer, &q, false);
    assert_eq!(t.ids(), [(0, String::new()), (1, String::new()), (2, String::new()), (3, String::new())]);
    assert_eq!(t.waiting, [Vec::<u8>::new(), Vec::new()]);
    // Two gaps in one message.
    let mut t = Talk::new(6);
    t.feed(ToClient, &a[..9], false).gap(ToClient, 5).gap(ToClient, 2).feed(ToClient, &a[16..20], false);
    t.gap(ToClient, 3).feed(ToClient, &[&a[23..], &a[..]].concat(), false);
    assert_eq!(t.ids(), [(0, String::new())]);
    // The end of the stream truncates a message.
    let mut t = Talk::new(6);
    t.feed(ToServer, &q, false).feed(ToServer, &q[..20], false).feed(ToServer, b"", true);
    assert_eq!(t.ids(), [(0, String::new()), (1, "malformed_data".into())]);
}

#[test]
fn too_many_messages_wait() {
    let mut t = Talk::new(6);
    t.config.dns.max_tx = 10;
    t.parser = (PROTOCOL.parser)(&t.config, &t.flow);
    let q = over_tcp(QUERY);
    t.feed(ToServer, &q.repeat(12), false);
    assert_eq!((t.outcome, t.txs().count(), t.waiting[0].len()), (Outcome::Full, 10, 2 * q.len()));
    assert_eq!(t.shared.counters.tx_limit[PROTOCOL.proto as usize], 1);
    for id in t.parser.txs() {
        t.parser.free_tx(&mut t.shared, id);
    }
    assert!(t.parser.txs().is_empty());
    t.feed(ToServer, &[], false);
    assert_eq!((t.outcome, t.ids()), (Outcome::More, vec![(10, String::new()), (11, String::new())]));
    // Each datagram is inspected before the next one arrives.
    let mut t = Talk::new(17);
    t.config.dns.max_tx = 1;
    t.parser = (PROTOCOL.parser)(&t.config, &t.flow);
    t.feed(ToServer, QUERY, false).feed(ToServer, QUERY, false);
    assert_eq!((t.outcome, t.txs().count()), (Outcome::More, 1));
}

#[test]
fn what_is_not_logged_takes_its_answer_along() {
    let mut t = Talk::new(17);
    t.feed(ToServer, QUERY, false);
    t.parser.tx_mut(0).unwrap().base_mut().no_log = true;
    t.parser.free_tx(&mut t.shared, 0);
    t.feed(ToClient, ANSWER, false).feed(ToClient, ANSWER, false);
    assert_eq!(t.txs().map(|t| t.base().no_log).collect::<Vec<_>>(), [true, false]);
}

/// Everything that rules and logs see of a conversation.
fn seen(t: &Talk) -> Vec<String> {
    let o = AppLogOptions::default();
    let mut out = Vec::new();
    for tx in t.txs() {
        out.push(format!("{} {:?}", tx.base().id, tx.base().events.as_slice()));
        for dir in [ToServer, ToClient] {
            for b in PROTOCOL.buffers {
                out.extend(buffers(tx, dir, b.name));
            }
            out.push(format!("{:?}", numbers(tx, dir, "dns.rrtype")));
        }
        out.extend(written(tx, &o, LogFor::Alert));
    }
    out
}

proptest! {
    /// The segmentation of a stream does not change the result.
    #[test]
    fn pieces_do_not_matter(
        messages in proptest::collection::vec(prop_oneof![
            Just(QUERY.to_vec()), Just(ANSWER.to_vec()), proptest::collection::vec(any::<u8>(), 0..40),
        ], 0..6),
        cut in 0usize..9,
        pieces in proptest::collection::vec(1usize..40, 0..40),
    ) {
        let mut stream: Vec<u8> = messages.iter().flat_map(|m| over_tcp(m)).collect();
        stream.truncate(stream.len().saturating_sub(cut));
        let mut whole = Talk::new(6);
        whole.feed(ToServer, &stream, false).feed(ToServer, b"", true);
        let mut split = Talk::new(6);
        let mut rest = &stream[..];
        for p in pieces {
            let (piece, tail) = rest.split_at(p.min(rest.len()));
            split.feed(ToServer, piece, false);
            rest = tail;
        }
        split.feed(ToServer, rest, false).feed(ToServer, b"", true);
        prop_assert_eq!(seen(&whole), seen(&split));
    }
}
