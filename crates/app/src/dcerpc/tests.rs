//! Test conversations as bytes.

use margay_flow::Direction::{self, ToClient, ToServer};
use margay_flow::FlowCore;
use margay_json::Json;
use margay_packet::Time;

use super::{COMPLETE, MAX_TX, PROTOCOL};
use crate::config::{AppConfig, AppLogOptions};
use crate::parser::{Outcome, Parse, Parser, Shared};
use crate::proto::AppProto;
use crate::reader::Uuid;
use crate::recognise::Probed;
use crate::tx::LogFor;

const UUID: [u8; 16] = [0x81, 0xbb, 0x7a, 0x36, 0x44, 0x98, 0xf1, 0x35, 0xad, 0x32, 0x98, 0xf0, 0x38, 0, 0x10, 3];

fn pdu(kind: u8, flags: u8, call: u32, body: &[u8]) -> Vec<u8> {
    let mut p = vec![5, 0, kind, flags, 0x10, 0, 0, 0];
    p.extend_from_slice(&(16 + body.len() as u16).to_le_bytes());
    p.extend_from_slice(&[0, 0]);
    p.extend_from_slice(&call.to_le_bytes());
    p.extend_from_slice(body);
    p
}

/// Requests the interface in two contexts.
pub(crate) fn bind(flags: u8) -> Vec<u8> {
    let mut body = vec![0xb8, 0x10, 0xb8, 0x10, 0, 0, 0, 0, 2, 0, 0, 0];
    for context in 0..2u8 {
        body.extend_from_slice(&[context, 0, 1, 0]);
        body.extend_from_slice(&UUID);
        body.extend_from_slice(&[2, 0, 0, 0]);
        body.extend_from_slice(&[0; 20]);
    }
    pdu(11, flags, 1, &body)
}

/// Accepts the first context and refuses the second.
pub(crate) fn bind_ack() -> Vec<u8> {
    let mut body = vec![0xb8, 0x10, 0xb8, 0x10, 0, 0, 0, 0, 4, 0];
    body.extend_from_slice(b"135\0\0\0");
    body.extend_from_slice(&[2, 0, 0, 0]);
    for result in [0u8, 2] {
        body.extend_from_slice(&[result, 0, 2, 0]);
        body.extend_from_slice(&[0; 20]);
    }
    pdu(12, 3, 1, &body)
}

pub(crate) fn request(flags: u8, call: u32, context: u8, opnum: u8, stub: &[u8]) -> Vec<u8> {
    pdu(0, flags, call, &[&[0, 0, 0, 0, context, 0, opnum, 0], stub].concat())
}

pub(crate) fn response(flags: u8, call: u32, stub: &[u8]) -> Vec<u8> {
    pdu(2, flags, call, &[&[0; 8], stub].concat())
}

pub(crate) fn auth3(call: u32) -> Vec<u8> {
    pdu(16, 3, call, &[0; 4])
}

struct Talk {
    parser: Box<dyn Parser>,
    config: AppConfig,
    shared: Shared,
    flow: FlowCore,
    waiting: [Vec<u8>; 2],
}

impl Talk {
    fn new(transport: u8) -> Talk {
        Talk::with(transport, AppConfig::default())
    }

    fn with(transport: u8, config: AppConfig) -> Talk {
        let flow = FlowCore::new(1, transport, ([192, 0, 2, 1].into(), 40_000), ([192, 0, 2, 2].into(), 135), Time(0));
        let parser = (PROTOCOL.parser)(&config, &flow);
        Talk { parser, config, shared: Shared::default(), flow, waiting: Default::default() }
    }

    fn say(&mut self, dir: Direction, bytes: &[u8]) -> Outcome {
        let held = &mut self.waiting[dir.index()];
        held.extend_from_slice(bytes);
        let (config, flow) = (&self.config, &self.flow);
        let mut cx = Parse { config, shared: &mut self.shared, flow, time: Time(0), end: false, inline: false };
        let parsed = self.parser.data(&mut cx, dir, held);
        held.drain(..parsed.consumed);
        parsed.outcome
    }

    fn gap(&mut self, dir: Direction, len: u64) {
        let (config, flow) = (&self.config, &self.flow);
        let mut cx = Parse { config, shared: &mut self.shared, flow, time: Time(0), end: false, inline: false };
        self.parser.gap(&mut cx, dir, len);
    }

    fn logs(&self) -> Vec<String> {
        let mut all = Vec::new();
        for tx in self.parser.txs().filter_map(|id| self.parser.tx(id)) {
            let mut json = Json::new();
            tx.log(&mut json, &AppLogOptions::default(), LogFor::Event);
            all.push(String::from_utf8(json.as_bytes().to_vec()).unwrap());
        }
        all
    }

    fn buffer(&self, id: u64, name: &str, dir: Direction, index: usize) -> Option<Vec<u8>> {
        let def = PROTOCOL.buffers.iter().find(|b| b.name == name).unwrap();
        let mut scratch = Vec::new();
        Some(self.parser.tx(id)?.buffer(def.id, dir, index, &mut scratch)?.data.to_vec())
    }
}

/// As in Suricata: a known connection is not checked for the minor version and the representation again, the last message's
/// version is shown, and an interface without an answer has the result 0.
#[test]
fn what_is_accepted() {
    let mut t = Talk::new(6);
    t.say(ToServer, &bind(3));
    assert_eq!(t.logs()[0].matches("\"ack_result\":0").count(), 2);
    let mut ack = bind_ack();
    (ack[1], ack[4], ack[5]) = (1, 0x30, 9);
    let results = ack.len() - 24;
    ack[results + 1] = 1;
    assert_eq!(t.say(ToClient, &ack), Outcome::More);
    assert!(
        t.logs()[0].contains("\"ack_result\":258") && t.logs()[0].contains("\"rpc_version\":\"5.1\""),
        "{:?}",
        t.logs()
    );
}

#[test]
fn a_call() {
    let mut t = Talk::new(6);
    t.say(ToServer, &bind(3));
    t.say(ToClient, &bind_ack());
    t.say(ToServer, &request(3, 7, 0, 15, b"ask"));
    t.say(ToClient, &response(3, 7, b"answer"));
    let uuid = Uuid::read(UUID, true).to_string();
    assert_eq!(uuid, "367abb81-9844-35f1-ad32-98f038001003");
    let [first, second] = t.logs().try_into().unwrap();
    assert_eq!(
        first,
        format!(
            "\"dcerpc\":{{\"request\":\"BIND\",\"response\":\"BINDACK\",\"interfaces\":[{{\"uuid\":\"{uuid}\",\"version\":\
             \"2.0\",\"ack_result\":0}},{{\"uuid\":\"{uuid}\",\"version\":\"2.0\",\"ack_result\":2}}],\"call_id\":1,\
             \"rpc_version\":\"5.0\"}}"
        )
    );
    assert_eq!(
        second,
        format!(
            "\"dcerpc\":{{\"request\":\"REQUEST\",\"response\":\"RESPONSE\",\"req\":{{\"opnum\":15,\"frag_cnt\":1,\
             \"stub_data_size\":3}},\"interfaces\":[{{\"uuid\":\"{uuid}\",\"version\":\"2.0\"}}],\"res\":{{\"frag_cnt\":1,\
             \"stub_data_size\":14}},\"call_id\":7,\"rpc_version\":\"5.0\"}}"
        )
    );
    assert_eq!(t.buffer(1, "dcerpc.stub_data", ToServer, 0).as_deref(), Some(&b"ask"[..]));
    assert!(t.buffer(1, "dcerpc.stub_data", ToClient, 0).unwrap().ends_with(b"answer"));
    let seen = [&Uuid::read(UUID, true).0[..], &[0, 2, 1]].concat();
    for dir in [ToServer, ToClient] {
        assert_eq!(t.buffer(1, "dcerpc.iface", dir, 0), Some(seen.clone()));
        assert_eq!((t.buffer(1, "dcerpc.iface", dir, 1), t.buffer(0, "dcerpc.iface", dir, 0)), (None, None));
        assert_eq!(t.parser.tx(1).unwrap().number(0, dir, 0), Some(15));
    }
    assert!(t.parser.txs().all(|id| t.parser.tx(id).unwrap().base().progress == [COMPLETE; 2]));
}

#[test]
fn fragments() {
    let mut t = Talk::new(6);
    t.say(ToServer, &bind(3));
    t.say(ToClient, &bind_ack());
    t.say(ToServer, &request(1, 2, 0, 4, b"ab"));
    assert_eq!(t.buffer(1, "dcerpc.stub_data", ToServer, 0), None);
    t.say(ToServer, &request(0, 2, 0, 4, b"cd"));
    t.say(ToServer, &request(2, 2, 0, 4, b"ef"));
    assert_eq!(t.buffer(1, "dcerpc.stub_data", ToServer, 0).as_deref(), Some(&b"abcdef"[..]));
    // A request without its first fragment becomes another transaction.
    t.say(ToServer, &request(2, 3, 0, 4, b"gh"));
    assert_eq!(t.buffer(2, "dcerpc.iface", ToServer, 0).unwrap().last(), Some(&0));
    assert!(t.logs()[1].contains("\"frag_cnt\":3,\"stub_data_size\":6"), "{:?}", t.logs());
}

/// The operation and its interface are values of the request. Rules for the response compare them from the request on.
#[test]
fn the_operation_is_there_for_both_directions() {
    let mut t = Talk::new(6);
    t.say(ToServer, &bind(3));
    t.say(ToClient, &bind_ack());
    t.say(ToServer, &request(3, 7, 0, 15, b""));
    let tx = t.parser.tx(1).unwrap();
    assert_eq!((tx.base().progress, tx.base().updated), ([COMPLETE, 0], [true; 2]));
    let interface = PROTOCOL.buffers.iter().find(|b| b.name == "dcerpc.iface").unwrap();
    assert_eq!((interface.progress, PROTOCOL.numbers[0].progress), ([Some(0); 2], [Some(0); 2]));
    assert_eq!(tx.number(PROTOCOL.numbers[0].id, ToClient, 0), Some(15));
    assert!(t.buffer(1, "dcerpc.iface", ToClient, 0).is_some());
    // Empty stub data is none.
    assert_eq!(t.buffer(1, "dcerpc.stub_data", ToServer, 0), None);
}

#[test]
fn what_was_not_agreed_on_is_no_interface() {
    let mut t = Talk::new(6);
    t.say(ToServer, &bind(3));
    t.say(ToClient, &bind_ack());
    t.say(ToServer, &request(3, 2, 1, 4, b"ab"));
    assert_eq!(t.buffer(1, "dcerpc.iface", ToServer, 0), None);
    // A bind without its first fragment binds no interface either.
    let mut t = Talk::new(6);
    t.say(ToServer, &bind(0));
    t.say(ToClient, &bind_ack());
    t.say(ToServer, &request(3, 2, 0, 4, b"ab"));
    assert_eq!(t.buffer(1, "dcerpc.iface", ToServer, 0), None);
}

#[test]
fn a_hole_within_a_message() {
    let mut t = Talk::new(6);
    let lost = request(3, 2, 0, 4, &[b'y'; 100]);
    t.say(ToServer, &lost[..40]);
    t.gap(ToServer, 50);
    t.say(ToServer, &lost[90..]);
    t.say(ToServer, &request(3, 3, 0, 5, b"z"));
    assert!(t.logs()[0].contains("\"opnum\":5"), "{:?}", t.logs());
    // With an unknown length, the parser looks for a message at segment boundaries.
    t.gap(ToServer, 1000);
    t.say(ToServer, b"middle of something else");
    t.say(ToServer, &request(3, 4, 0, 6, b"z"));
    assert!(t.logs()[1].contains("\"opnum\":6"), "{:?}", t.logs());
}

#[test]
fn an_answer_to_what_was_not_seen() {
    let mut t = Talk::new(6);
    t.say(ToClient, &response(3, 9, b"x"));
    assert_eq!(t.parser.tx(0).unwrap().base().progress, [0, COMPLETE]);
    t.say(ToServer, &request(3, 10, 0, 1, b"x"));
    assert_eq!(t.parser.tx(0).unwrap().base().progress, [COMPLETE; 2]);
    assert!(t.logs()[0].contains("\"REQUEST_LOST\""));
}

/// A server of another protocol answers, which is no error: the client's requests are parsed, the server's data is not.
#[test]
fn a_side_with_another_protocol() {
    let mut t = Talk::new(6);
    t.say(ToServer, &request(3, 1, 0, 1, b"x"));
    assert_eq!(t.say(ToClient, b"HTTP/1.1 200 OK\r\n\r\n"), Outcome::More);
    assert_eq!(t.say(ToServer, &request(3, 2, 0, 2, b"x")), Outcome::More);
    assert_eq!(t.say(ToClient, &response(3, 2, b"y")), Outcome::More);
    assert!(t.logs()[1].contains("\"UNREPLIED\""), "{:?}", t.logs());
}

#[test]
fn messages_of_unknown_types_and_without_room_for_their_fields() {
    for (at, value) in [(2, 20), (8, 23)] {
        let mut message = request(3, 1, 0, 1, b"x");
        message[at] = value;
        assert_eq!(Talk::new(6).say(ToServer, &message), Outcome::Failed, "byte {at}");
    }
}

#[test]
fn too_many() {
    let mut config = AppConfig::default();
    config.settings.set(AppProto::Dcerpc, MAX_TX, 2);
    let mut t = Talk::with(6, config);
    for call in 0..4 {
        assert_eq!(t.say(ToServer, &request(3, call, 0, 1, b"x")), Outcome::More);
    }
    assert!(t.parser.tx(0).unwrap().base().events.has(0));
    // The next message waits until some transactions are freed.
    assert_eq!(t.say(ToServer, &request(3, 4, 0, 1, b"x")), Outcome::Full);
    assert_eq!((t.parser.txs().count(), t.waiting[0].len() > 20), (4, true));
    let complete = |t: &Talk, id: &u64| t.parser.tx(*id).unwrap().base().progress == [COMPLETE; 2];
    let gone: Vec<u64> = t.parser.txs().filter(|id| complete(&t, id)).collect();
    assert!(gone.len() >= 2, "{gone:?}");
    gone.into_iter().for_each(|id| t.parser.free_tx(&mut t.shared, id));
    assert_eq!(t.say(ToServer, b""), Outcome::More);
    assert!(t.waiting[0].is_empty() && t.shared.counters.tx_limit[AppProto::Dcerpc as usize] > 1);
}

/// A thousand open calls with the same number: each response finds its call in order, whatever comes in between.
#[test]
fn calls_of_one_number() {
    let mut t = Talk::new(6);
    t.say(ToServer, &bind(1));
    t.say(ToClient, &bind_ack());
    for n in 0..600u16 {
        t.say(ToServer, &request(3, 7, 0, 1, &n.to_le_bytes()));
    }
    for n in 0..600u16 {
        t.say(ToClient, &response(3, 7, &n.to_le_bytes()));
        let id = u64::from(n) + 1;
        assert_eq!(t.parser.tx(id).unwrap().base().progress, [COMPLETE; 2], "{n}");
        assert_eq!(t.parser.tx(id + 1).map_or([COMPLETE, 0], |t| t.base().progress), [COMPLETE, 0], "{n}");
    }
}

#[test]
fn datagrams() {
    let mut d = vec![4, 0, 0, 0, 0x10, 0, 0, 0];
    d.extend_from_slice(&[0; 16]);
    d.extend_from_slice(&UUID);
    d.extend_from_slice(&[7; 16]);
    d.extend_from_slice(&[0, 0, 0, 0, 2, 0, 0, 0, 9, 0, 0, 0, 3, 0, 0xff, 0xff, 0xff, 0xff, 4, 0, 0, 0, 0, 0]);
    d.extend_from_slice(b"stub and more");
    let mut t = Talk::new(17);
    t.say(ToServer, &d);
    d[1] = 2;
    t.say(ToServer, &d);
    assert_eq!(
        t.logs(),
        ["\"dcerpc\":{\"request\":\"REQUEST\",\"req\":{\"opnum\":3,\"frag_cnt\":1,\"stub_data_size\":4},\"response\":\
          \"RESPONSE\",\"res\":{\"frag_cnt\":1,\"stub_data_size\":4},\"activityuuid\":\
          \"07070707-0707-0707-0707-070707070707\",\"seqnum\":9,\"rpc_version\":\"4.0\"}"]
    );
    assert_eq!(t.buffer(0, "dcerpc.stub_data", ToServer, 0).as_deref(), Some(&b"stub"[..]));
    assert_eq!(t.buffer(0, "dcerpc.iface", ToServer, 0).unwrap()[16..], [0, 2, 1]);
    // A response without its request, until that arrives.
    let mut t = Talk::new(17);
    t.say(ToClient, &d);
    let progress = |t: &mut Talk| t.parser.tx(0).unwrap().base().progress;
    assert_eq!(progress(&mut t), [0, 1]);
    d[1] = 0;
    t.say(ToServer, &d);
    assert_eq!(progress(&mut t), [1, 1]);
}

#[test]
fn which_way_it_goes() {
    let [tcp, udp] = PROTOCOL.recognition.probes else { panic!() };
    for (bytes, dir, want) in [
        (bind(3), ToServer, Probed::Yes { reverse: false }),
        (bind_ack(), ToServer, Probed::Yes { reverse: true }),
        (bind_ack(), ToClient, Probed::Yes { reverse: false }),
    ] {
        assert_eq!((tcp.probe)(dir, &bytes), want);
        assert_eq!((tcp.probe)(dir, &bytes[..7]), Probed::More);
    }
    assert_eq!((tcp.probe)(ToServer, b"\x05\x00\x0b\x03\x12\x00\x00\x00"), Probed::No);
    assert_eq!((udp.probe)(ToServer, &[4; 79]), Probed::No);
}
