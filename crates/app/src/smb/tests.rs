//! Test conversations as bytes.

mod files;
mod smb1;

use margay_flow::Direction::{self, ToClient, ToServer};
use margay_flow::FlowCore;
use margay_json::Json;
use margay_packet::Time;

use super::events::Event;
use super::{COMPLETE, PROTOCOL, kinds};
use crate::config::{AppConfig, AppLogOptions};
use crate::dcerpc::tests as rpc;
use crate::file::FileState;
use crate::parser::{Outcome, Parse, Parser, Shared};
use crate::recognise::Probed;
use crate::tx::LogFor;
use crate::{AppProto, AppSession};

const FILE: [u8; 16] = [0x4d, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0xfe, 0xfe, 0xfe, 0xfe];

/// An SMB2 message in a record.
fn smb2(command: u16, message: u64, response: bool, status: u32, tree: u32, body: &[u8]) -> Vec<u8> {
    record(&head(command, message, response, status, tree, 0, body))
}

fn head(command: u16, message: u64, response: bool, status: u32, tree: u32, next: u32, body: &[u8]) -> Vec<u8> {
    let mut m = b"\xfeSMB\x40\0\0\0".to_vec();
    m.extend_from_slice(&status.to_le_bytes());
    m.extend_from_slice(&command.to_le_bytes());
    m.extend_from_slice(&[1, 0]);
    m.extend_from_slice(&u32::from(response).to_le_bytes());
    m.extend_from_slice(&next.to_le_bytes());
    m.extend_from_slice(&message.to_le_bytes());
    m.extend_from_slice(&[0; 4]);
    m.extend_from_slice(&tree.to_le_bytes());
    m.extend_from_slice(&77u64.to_le_bytes());
    m.extend_from_slice(&[0; 16]);
    m.extend_from_slice(body);
    m
}

fn record(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u32).to_be_bytes(), message].concat()
}

fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

fn tree(message: u64, path: &str) -> Vec<u8> {
    let path = utf16(path);
    smb2(3, message, false, 0, 0, &[&[9, 0, 0, 0, 72, 0, path.len() as u8, 0][..], &path].concat())
}

fn tree_response(message: u64, tree: u32, kind: u8) -> Vec<u8> {
    smb2(3, message, true, 0, tree, &[16, 0, kind, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
}

fn create_body(name: &str) -> Vec<u8> {
    let name = utf16(name);
    let mut b = vec![0; 56];
    (b[0], b[36], b[44], b[46]) = (57, 5, 120, name.len() as u8);
    b.extend_from_slice(&name);
    b
}

fn create_response_body(id: [u8; 16]) -> Vec<u8> {
    let mut b = vec![0; 64];
    b[0] = 89;
    // Ten seconds after the start of 1970.
    b[8..16].copy_from_slice(&(116_444_736_000_000_000u64 + 100_000_000).to_le_bytes());
    b.extend_from_slice(&id);
    b.extend_from_slice(&[0; 8]);
    b
}

fn create(message: u64, tree: u32, name: &str) -> Vec<u8> {
    smb2(5, message, false, 0, tree, &create_body(name))
}

fn created(message: u64, tree: u32) -> Vec<u8> {
    smb2(5, message, true, 0, tree, &create_response_body(FILE))
}

fn write_body(id: [u8; 16], offset: u64, data: &[u8]) -> Vec<u8> {
    let mut b = vec![49, 0, 112, 0];
    b.extend_from_slice(&(data.len() as u32).to_le_bytes());
    b.extend_from_slice(&offset.to_le_bytes());
    b.extend_from_slice(&id);
    b.extend_from_slice(&[0; 16]);
    b.extend_from_slice(data);
    b
}

fn write(message: u64, tree: u32, offset: u64, data: &[u8]) -> Vec<u8> {
    smb2(9, message, false, 0, tree, &write_body(FILE, offset, data))
}

fn read_body(id: [u8; 16], offset: u64, length: u32) -> Vec<u8> {
    let mut b = vec![49, 0, 0, 0];
    b.extend_from_slice(&length.to_le_bytes());
    b.extend_from_slice(&offset.to_le_bytes());
    b.extend_from_slice(&id);
    b.extend_from_slice(&[0; 17]);
    b
}

fn read_response(message: u64, tree: u32, data: &[u8]) -> Vec<u8> {
    let head = [&[17, 0, 80, 0][..], &(data.len() as u32).to_le_bytes(), &[0; 8]].concat();
    smb2(8, message, true, 0, tree, &[&head, data].concat())
}

fn close_body(id: [u8; 16]) -> Vec<u8> {
    [&[24, 0, 0, 0, 0, 0, 0, 0][..], &id].concat()
}

struct Talk {
    parser: Box<dyn Parser>,
    config: AppConfig,
    shared: Shared,
    flow: FlowCore,
    waiting: [Vec<u8>; 2],
    /// The result of the last call.
    outcome: Outcome,
}

impl Talk {
    fn new() -> Talk {
        Talk::with(AppConfig::default())
    }

    /// Of at most three transactions.
    fn small() -> Talk {
        let mut config = AppConfig::default();
        config.smb.max_tx = 3;
        Talk::with(config)
    }

    fn with(config: AppConfig) -> Talk {
        let mut shared = Shared::default();
        (shared.files.wants.data, shared.frames.wanted) = (true, true);
        let flow = FlowCore::new(1, 6, ([192, 0, 2, 1].into(), 40_000), ([192, 0, 2, 2].into(), 445), Time(0));
        Talk {
            parser: (PROTOCOL.parser)(&config, &flow),
            config,
            shared,
            flow,
            waiting: Default::default(),
            outcome: Outcome::More,
        }
    }

    fn say(&mut self, dir: Direction, bytes: &[u8]) {
        let held = &mut self.waiting[dir.index()];
        held.extend_from_slice(bytes);
        let (config, flow) = (&self.config, &self.flow);
        let mut cx = Parse { config, shared: &mut self.shared, flow, time: Time(0), end: false, inline: false };
        let parsed = self.parser.data(&mut cx, dir, held);
        held.drain(..parsed.consumed);
        self.outcome = parsed.outcome;
    }

    fn gap(&mut self, dir: Direction, len: u64) {
        let (config, flow) = (&self.config, &self.flow);
        let mut cx = Parse { config, shared: &mut self.shared, flow, time: Time(0), end: false, inline: false };
        self.parser.gap(&mut cx, dir, len);
    }

    /// Tree 1 for files, 5 for pipes.
    fn connected() -> Talk {
        let mut t = Talk::new();
        t.say(ToServer, &tree(1, "\\\\srv\\data"));
        t.say(ToClient, &tree_response(1, 1, 1));
        t.say(ToServer, &tree(2, "\\\\srv\\IPC$"));
        t.say(ToClient, &tree_response(2, 5, 2));
        t
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

    fn file(&self, tx: u64) -> (Vec<u8>, u64, FileState, bool) {
        let f = &self.parser.tx(tx).unwrap().base().files.all()[0];
        (f.window.held().0.to_vec(), f.size(), f.state, f.gaps)
    }

    fn has(&self, tx: u64, event: Event) -> bool {
        self.parser.tx(tx).unwrap().base().events.has(event as u8)
    }

    fn buffer(&self, tx: u64, name: &str, dir: Direction) -> Option<Vec<u8>> {
        let def = PROTOCOL.buffers.iter().find(|b| b.name == name).unwrap();
        let mut scratch = Vec::new();
        Some(self.parser.tx(tx)?.buffer(def.id, dir, 0, &mut scratch)?.data.to_vec())
    }
}

#[test]
fn shares_and_pipes() {
    let t = Talk::connected();
    assert_eq!(t.buffer(0, "smb.share", ToServer).as_deref(), Some(&b"\\\\srv\\data"[..]));
    assert_eq!(t.buffer(1, "smb.named_pipe", ToServer).as_deref(), Some(&b"\\\\srv\\IPC$"[..]));
    assert_eq!((t.buffer(0, "smb.named_pipe", ToServer), t.buffer(1, "smb.share", ToServer)), (None, None));
    assert_eq!(
        t.logs()[0],
        "\"smb\":{\"id\":1,\"dialect\":\"unknown\",\"command\":\"SMB2_COMMAND_TREE_CONNECT\",\"status\":\"STATUS_SUCCESS\",\
         \"status_code\":\"0x0\",\"session_id\":77,\"tree_id\":1,\"share\":\"\\\\\\\\srv\\\\data\",\"share_type\":\"FILE\"}"
    );
    assert_eq!(t.parser.tx(0).unwrap().number(0, ToClient, 0), Some(2));
    let options = |kinds| {
        let mut o = AppLogOptions::default();
        o.smb.kinds = kinds;
        o
    };
    let tx = t.parser.tx(0).unwrap();
    assert_eq!((tx.records(&options(kinds::TREE_CONNECT)), tx.records(&options(kinds::FILE))), (1, 0));
}

/// Later events show the dialect also if the request of the negotiation was lost.
#[test]
fn a_negotiation_without_its_request() {
    let mut t = Talk::new();
    let body =
        [&[0x41, 0, 1, 0, 0x10, 2, 0, 0][..], &[7; 16], &[0; 4], &[0, 0, 1, 0], &[0, 0, 1, 0], &[0, 0, 1, 0]].concat();
    t.say(ToClient, &smb2(0, 1, true, 0, 0, &body));
    t.say(ToServer, &tree(2, "\\\\srv\\data"));
    t.say(ToClient, &tree_response(2, 1, 1));
    assert_eq!(t.logs().len(), 1);
    assert!(t.logs()[0].contains("\"dialect\":\"2.10\""), "{:?}", t.logs());
}

/// A negotiation has one answer, whatever its number; without one, its identifier is empty.
#[test]
fn a_negotiation_with_another_number() {
    let request = [&[0x24, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0][..], &[5; 16], &[0; 8], &[2, 2]].concat();
    let body =
        [&[0x41, 0, 1, 0, 0x10, 2, 0, 0][..], &[7; 16], &[0; 4], &[0, 0, 1, 0], &[0, 0, 1, 0], &[0, 0, 1, 0]].concat();
    let mut t = Talk::new();
    t.say(ToServer, &smb2(0, 9, false, 0, 0, &request));
    assert!(t.logs()[0].contains("\"server_guid\":\"\""), "{:?}", t.logs());
    t.say(ToClient, &smb2(0, 1, true, 0, 0, &body));
    assert!(
        t.logs()[0].contains("\"dialect\":\"2.10\"") && t.logs()[0].contains("\"server_guid\":\"07"),
        "{:?}",
        t.logs()
    );
    // A tree connect without an answer, and a session setup with a token beyond the message.
    t.say(ToServer, &tree(2, "\\\\srv\\data"));
    assert!(t.logs()[1].contains("\"share_type\":\"UNKNOWN\""), "{:?}", t.logs());
    let setup =
        [&[0x19, 0, 0, 1][..], &[0; 8], &[0x58, 0xff, 0x20, 0], &[0; 8], b"NTLMSSP\0\x03\0\0\0", &[0; 52]].concat();
    t.say(ToServer, &smb2(1, 3, false, 0, 0, &setup));
    assert_eq!((t.logs().len(), t.has(2, Event::MalformedData)), (3, false));
    assert!(t.logs()[2].contains("\"ntlmssp\":{"), "{:?}", t.logs());
    // Rules do not see empty names.
    assert_eq!((t.buffer(2, "smb.ntlmssp_user", ToServer), t.buffer(2, "smb.ntlmssp_domain", ToServer)), (None, None));
}

/// The parser takes the beginning of a response before detection is sure of it.
#[test]
fn a_response_in_two_pieces_is_detected() {
    let request = tree(1, "\\\\srv\\data");
    let response = tree_response(1, 1, 1);
    for cut in 1..response.len() {
        let t = Talk::new();
        let (mut session, mut shared) = (AppSession::default(), Shared::default());
        let mut cx =
            Parse { config: &t.config, shared: &mut shared, flow: &t.flow, time: Time(0), end: false, inline: false };
        session.data(&mut cx, ToServer, &request);
        let used = session.data(&mut cx, ToClient, &response[..cut]).consumed;
        session.data(&mut cx, ToClient, &response[used..]);
        assert_eq!((session.sides_shown(), session.tx_count()), ([AppProto::Smb; 2], 1), "{cut}");
    }
}

#[test]
fn a_file_is_written_out_of_order() {
    let mut t = Talk::connected();
    t.say(ToServer, &create(3, 1, "a.txt"));
    t.say(ToClient, &created(3, 1));
    t.say(ToServer, &write(4, 1, 0, b"one "));
    t.say(ToServer, &write(5, 1, 8, b"three"));
    assert_eq!(t.file(3).1, 4);
    t.say(ToServer, &write(6, 1, 4, b"two "));
    let updated = |t: &Talk| t.parser.tx(3).unwrap().base().updated;
    assert_eq!(updated(&t), [true, false]);
    t.say(ToServer, &write(7, 1, 2, b"overlap that goes on"));
    // Rules on events are inspected with the next packet, whatever its direction.
    assert_eq!((t.has(3, Event::FileOverlap), updated(&t)), (true, [true; 2]));
    t.say(ToServer, &smb2(6, 8, false, 0, 1, &close_body(FILE)));
    let (data, size, state, gaps) = t.file(3);
    assert_eq!((&*data, size, state, gaps), (&b"one two threet goes on"[..], 22, FileState::Closed, false));
    assert!(t.logs()[2].contains("\"created\":10,") && t.logs()[2].contains("\"filename\":\"a.txt\""));
    assert!(t.logs()[3].contains("\"filename\":\"a.txt\",\"share\":\"\\\\\\\\srv\\\\data\",\"fuid\":\"0000004d-0000-"));
    assert_eq!(t.parser.tx(3).unwrap().base().progress, [COMPLETE; 2]);
}

#[test]
fn what_waits_has_a_limit() {
    let mut t = Talk::connected();
    t.config.smb.max_write_queue_cnt = 2;
    t.say(ToServer, &write(4, 1, 0, b"ab"));
    for (n, offset) in [10u64, 20, 30].into_iter().enumerate() {
        t.say(ToServer, &write(5 + n as u64, 1, offset, b"xy"));
    }
    assert!(t.has(2, Event::WriteQueueCntExceeded));
    let (_, size, _, gaps) = t.file(2);
    assert_eq!((size, gaps), (32, true));
}

#[test]
fn a_read_with_a_hole() {
    let mut t = Talk::connected();
    t.say(ToServer, &smb2(8, 3, false, 0, 1, &read_body(FILE, 0, 100)));
    let answer = read_response(3, 1, &[b'r'; 100]);
    t.say(ToClient, &answer[..120]);
    t.gap(ToClient, 30);
    t.say(ToClient, &answer[150..]);
    let (_, size, state, gaps) = t.file(2);
    assert_eq!((size, state, gaps), (100, FileState::Open, true));
    // The next message begins at the expected place.
    t.say(ToClient, &tree_response(9, 1, 1));
    t.say(ToServer, &tree(10, "\\\\srv\\x"));
    assert!(t.logs()[3].contains("TREE_CONNECT"), "{:?}", t.logs());
    // Past the record, the parser searches for a header.
    t.gap(ToServer, 1_000_000);
    t.say(ToServer, b"\0SMBjunk\xfeSM");
    t.say(ToServer, &tree(11, "\\\\srv\\y"));
    assert!(t.logs()[4].contains("srv\\\\y"), "{:?}", t.logs());
}

#[test]
fn a_chain_opens_reads_and_closes() {
    let mut t = Talk::connected();
    let related = |command, message, body: &[u8], next| {
        let mut m = head(command, message, false, 0, u32::MAX, next, body);
        m[16] |= 4;
        m[40..48].fill(0xff);
        m
    };
    let pad = |mut m: Vec<u8>| {
        m.resize(m.len().next_multiple_of(8), 0);
        m
    };
    let first = pad(head(5, 3, false, 0, 1, 0, &create_body("test")));
    let first = pad(head(5, 3, false, 0, 1, first.len() as u32, &create_body("test")));
    let second = pad(related(8, 4, &read_body([0xff; 16], 0, 60), 0));
    let second = pad(related(8, 4, &read_body([0xff; 16], 0, 60), second.len() as u32));
    let third = related(6, 5, &close_body([0xff; 16]), 0);
    t.say(ToServer, &record(&[first, second, third].concat()));
    t.say(ToClient, &created(3, 1));
    t.say(ToClient, &read_response(4, 1, b"content"));
    t.say(ToClient, &smb2(6, 5, true, 0, 1, &[60, 0]));
    let (data, size, state, _) = t.file(4);
    assert_eq!((&*data, size, state), (&b"content"[..], 7, FileState::Closed));
    assert!(t.logs()[4].contains("\"filename\":\"test\""), "{:?}", t.logs());
}

#[test]
fn calls_over_a_pipe() {
    let mut t = Talk::connected();
    t.say(ToServer, &smb2(9, 3, false, 0, 5, &write_body(FILE, 0, &rpc::bind(3))));
    t.say(ToServer, &smb2(8, 4, false, 0, 5, &read_body(FILE, 0, 1024)));
    t.say(ToClient, &read_response(4, 5, &rpc::bind_ack()));
    let code = |data: &[u8], response: bool| {
        let mut b = vec![if response { 49 } else { 57 }, 0, 0, 0, 0x17, 0xc0, 0x11, 0];
        b.extend_from_slice(&FILE);
        let at = if response { 112u32 } else { 120 };
        let lengths = [at, if response { 0 } else { data.len() as u32 }, at, data.len() as u32];
        if response {
            lengths.iter().for_each(|n| b.extend_from_slice(&n.to_le_bytes()));
        } else {
            for n in [at, data.len() as u32, 0, 0, 0, 1024] {
                b.extend_from_slice(&n.to_le_bytes());
            }
        }
        b.resize(if response { 48 } else { 56 }, 0);
        b.extend_from_slice(data);
        b
    };
    t.say(ToServer, &smb2(11, 5, false, 0, 5, &code(&rpc::request(3, 2, 0, 15, b"ask"), false)));
    let answer = rpc::response(3, 2, b"answer");
    // The pipe's buffer overflows, so the client reads the rest.
    t.say(ToClient, &smb2(11, 5, true, 0x8000_0005, 5, &code(&answer[..20], true)));
    t.say(ToServer, &smb2(8, 6, false, 0, 5, &read_body(FILE, 0, 1024)));
    t.say(ToClient, &read_response(6, 5, &answer[20..]));
    // The request of the last response was lost.
    t.say(ToClient, &smb2(11, 7, true, 0, 5, &code(&rpc::response(3, 3, b"alone"), true)));
    let logs = t.logs();
    assert!(logs[4].contains("\"request\":\"REQUEST_LOST\",\"response\":\"RESPONSE\""), "{logs:?}");
    assert!(logs[2].contains("WRITE") && logs[2].contains("\"request\":\"BIND\",\"response\":\"BINDACK\""), "{logs:?}");
    assert!(
        logs[3].contains("IOCTL") && logs[3].contains("\"opnum\":15,\"req\":{\"frag_cnt\":1,\"stub_data_size\":3}")
    );
    assert_eq!(t.buffer(3, "dcerpc.stub_data", ToServer).as_deref(), Some(&b"ask"[..]));
    assert_eq!(t.buffer(3, "dcerpc.stub_data", ToClient).as_deref(), Some(&b"answer"[..]));
    assert_eq!(t.buffer(3, "dcerpc.iface", ToServer).unwrap()[16..], [0, 2, 1]);
    assert_eq!((logs.len(), t.parser.tx(3).unwrap().little_endian(ToServer)), (5, true));
}

/// The answer to the write is none to the call, unless it is a refusal.
#[test]
fn the_status_of_a_call() {
    for (status, shown) in [(0, false), (0xc000_0022, true)] {
        let mut t = Talk::connected();
        t.say(ToServer, &smb2(9, 3, false, 0, 5, &write_body(FILE, 0, &rpc::bind(3))));
        t.say(ToClient, &smb2(9, 3, true, status, 5, &[17, 0]));
        assert_eq!(t.logs()[2].contains("\"status\""), shown, "{:?}", t.logs());
    }
    let mut t = Talk::connected();
    t.say(ToServer, &smb2(9, 3, false, 0, 5, &write_body(FILE, 0, &rpc::bind(3))));
    t.say(ToClient, &smb2(9, 3, true, 0, 5, &[17, 0]));
    t.say(ToServer, &smb2(8, 4, false, 0, 5, &read_body(FILE, 0, 1024)));
    t.say(ToClient, &read_response(4, 5, &rpc::bind_ack()));
    assert!(t.logs()[2].contains("\"status\":\"STATUS_SUCCESS\""), "{:?}", t.logs());
    // A bind's result alone makes no call.
    let mut t = Talk::connected();
    t.say(ToServer, &smb2(8, 4, false, 0, 5, &read_body(FILE, 0, 1024)));
    t.say(ToClient, &read_response(4, 5, &rpc::bind_ack()));
    assert_eq!(t.logs().len(), 2);
}

/// The client's last message of NTLM over a pipe has no response.
#[test]
fn the_third_leg_of_authentication_is_a_call() {
    let mut t = Talk::connected();
    t.say(ToServer, &smb2(9, 3, false, 0, 5, &write_body(FILE, 0, &rpc::bind(3))));
    t.say(ToServer, &smb2(8, 4, false, 0, 5, &read_body(FILE, 0, 1024)));
    t.say(ToClient, &read_response(4, 5, &rpc::bind_ack()));
    t.say(ToServer, &smb2(9, 5, false, 0, 5, &write_body(FILE, 0, &rpc::auth3(1))));
    let logs = t.logs();
    assert!(logs[3].contains("\"request\":\"AUTH3\",\"response\":\"UNREPLIED\""), "{logs:?}");
}

#[test]
fn directories_have_their_own_member() {
    let mut t = Talk::connected();
    for (message, name) in [(3, "sub"), (4, "")] {
        let mut body = create_body(name);
        // FILE_DIRECTORY_FILE (MS-SMB2 section 2.2.13).
        body[40] = 1;
        t.say(ToServer, &smb2(5, message, false, 0, 1, &body));
    }
    let logs = t.logs();
    assert!(logs[2].contains("\"directory\":\"sub\"") && !logs[2].contains("filename"), "{logs:?}");
    assert!(logs[3].contains("\"filename\":\"<share_root>\""), "{logs:?}");
}

/// Impacket's server puts another process into the response.
#[test]
fn a_share_of_smb1_with_another_process_in_the_response() {
    let message = |response: u8, process: u16, tree: u8, body: &[u8]| {
        let mut m = b"\xffSMB\x75\0\0\0\0".to_vec();
        m.extend_from_slice(&[response << 7, 1, 0x40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, tree, 0]);
        m.extend_from_slice(&process.to_le_bytes());
        m.extend_from_slice(&[10, 0, 2, 0]);
        m.extend_from_slice(body);
        record(&m)
    };
    let mut t = Talk::new();
    // The request names no tree, whatever its header has.
    t.say(ToServer, &message(0, 28303, 9, b"\x04\xff\0\0\0\0\0\x01\0\x0a\0\0\\\\s\\O\0A:\0"));
    assert!(t.logs()[0].contains("\"tree_id\":0"), "{:?}", t.logs());
    t.say(ToClient, &message(1, 65534, 1, b"\x03\xff\0\0\0\x01\0\x03\0A:\0"));
    let log = &t.logs()[0];
    assert!(
        log.contains("\"service\":{\"request\":\"A:\",\"response\":\"A:\"}") && log.contains("\"tree_id\":1"),
        "{log}"
    );
}

#[test]
fn new_names_and_deletion() {
    let mut t = Talk::connected();
    t.say(ToServer, &create(3, 1, "old"));
    t.say(ToClient, &created(3, 1));
    let set = |class: u8, data: &[u8]| {
        let mut b = vec![33, 0, 1, class, data.len() as u8, 0, 0, 0, 96, 0, 0, 0, 0, 0, 0, 0];
        b.extend_from_slice(&FILE);
        b.extend_from_slice(data);
        b
    };
    let name = [&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0][..], &utf16("new")].concat();
    t.say(ToServer, &smb2(17, 4, false, 0, 1, &set(10, &name)));
    t.say(ToServer, &smb2(17, 5, false, 0, 1, &set(13, &[1])));
    // Setting a size has no record.
    t.say(ToServer, &smb2(17, 6, false, 0, 1, &set(20, &[0; 8])));
    let logs = t.logs();
    assert!(logs[3].contains("\"rename\":{\"from\":\"old\",\"to\":\"new\"}"), "{logs:?}");
    assert!(logs[4].contains("\"filename\":\"old\",\"access\":\"delete on close\""), "{logs:?}");
    assert_eq!(logs.len(), 5);
}

#[test]
fn answers_that_come_later() {
    let mut t = Talk::connected();
    t.say(ToServer, &smb2(15, 3, false, 0, 1, &[32, 0]));
    t.say(ToClient, &smb2(15, 3, true, 0x103, 0, &[9, 0]));
    assert_eq!(t.parser.tx(2).unwrap().base().progress, [COMPLETE, 0]);
    t.say(ToClient, &smb2(15, 3, true, 0x10c, 0, &[9, 0]));
    assert_eq!(t.parser.tx(2).unwrap().base().progress, [COMPLETE; 2]);
    assert!(t.logs()[2].contains("STATUS_NOTIFY_ENUM_DIR"));
}

#[test]
fn what_is_odd() {
    let mut t = Talk::new();
    t.say(ToServer, &tree_response(1, 1, 1));
    t.say(ToClient, &tree(1, "x"));
    t.say(ToServer, &record(b"\xfeSMB short"));
    let all = [Event::ResponseToServer, Event::RequestToClient, Event::MalformedData];
    for (tx, event) in all.into_iter().enumerate() {
        assert!(t.has(tx as u64, event), "{event:?}");
    }
    // Other dialects and other kinds of records are skipped.
    t.say(ToServer, &record(b"\xf0SMB of the future"));
    t.say(ToServer, &[&[0x77][..], &record(b"\xfeSMB")[1..]].concat());
    t.say(ToServer, &tree(2, "\\\\srv\\again"));
    assert!(t.logs()[3].contains("again"), "{:?}", t.logs());
    assert_eq!(t.logs().len(), 4);
}

/// Parsing ends, and the last transaction has the event.
#[test]
fn what_is_not_smb() {
    for bytes in [record(b"neither of these"), record(b"SMB")] {
        for dir in [ToServer, ToClient] {
            let mut t = Talk::connected();
            assert!(!t.has(1, Event::MalformedData));
            t.say(dir, &bytes);
            assert_eq!((t.outcome, t.has(1, Event::MalformedData), t.logs().len()), (Outcome::Failed, true, 2));
        }
    }
}

/// The record's rest is no data of the write before it.
#[test]
fn what_is_not_smb_after_an_empty_write() {
    let mut t = Talk::connected();
    let body = write_body(FILE, 0, b"");
    let message = head(9, 3, false, 0, 1, 64 + body.len() as u32, &body);
    t.say(ToServer, &record(&[&*message, b"not SMB"].concat()));
    assert_eq!((t.outcome, t.has(2, Event::MalformedData), t.file(2).1), (Outcome::Failed, true, 0));
}

/// A wrong length is noticed at the record's end only; until then the other side is parsed.
#[test]
fn what_is_not_smb_and_not_whole() {
    let mut t = Talk::connected();
    t.say(ToClient, b"\0\0\x01\0this is not SMB");
    t.say(ToServer, &tree(3, "\\\\srv\\still"));
    assert_eq!((t.outcome, t.has(1, Event::MalformedData), t.logs().len()), (Outcome::More, false, 3));
    t.say(ToClient, &[0; 256]);
    assert_eq!((t.outcome, t.has(2, Event::MalformedData)), (Outcome::Failed, true));
    // Records of other types are skipped, whatever they have.
    let mut t = Talk::connected();
    t.say(ToServer, b"\x77\0\0\x08nothing");
    t.say(ToServer, &[&b"!"[..], &tree(3, "\\\\srv\\next")].concat());
    assert_eq!((t.outcome, t.logs().len()), (Outcome::More, 3));
}

/// The client need not wait for a read before it closes the file.
#[test]
fn a_read_that_is_answered_after_the_close() {
    let mut t = Talk::connected();
    t.say(ToServer, &create(3, 1, "late.txt"));
    t.say(ToClient, &created(3, 1));
    t.say(ToServer, &smb2(8, 4, false, 0, 1, &read_body(FILE, 0, 60)));
    t.say(ToServer, &smb2(6, 5, false, 0, 1, &close_body(FILE)));
    t.say(ToClient, &read_response(4, 1, b"content"));
    t.say(ToClient, &smb2(6, 5, true, 0, 1, &[60, 0]));
    assert!(t.logs()[4].contains("\"filename\":\"late.txt\""), "{:?}", t.logs());
    assert_eq!(t.file(4).2, FileState::Closed);
}

/// In a chain, a request may mean the file of the request before, which another chain opened.
#[test]
fn a_chain_continues_with_an_open_file() {
    let mut t = Talk::connected();
    t.say(ToServer, &create(3, 1, "open.txt"));
    t.say(ToClient, &created(3, 1));
    let first = head(9, 4, false, 0, 1, 0, &write_body(FILE, 0, b"contents"));
    let first = head(9, 4, false, 0, 1, first.len() as u32, &write_body(FILE, 0, b"contents"));
    let mut second = head(6, 5, false, 0, 1, 0, &close_body([0xff; 16]));
    second[16] |= 4;
    t.say(ToServer, &record(&[first, second].concat()));
    let (data, _, state, _) = t.file(3);
    assert_eq!((&*data, state), (&b"contents"[..], FileState::Closed));
}

#[test]
fn a_cancelled_request() {
    let mut t = Talk::connected();
    t.say(ToServer, &smb2(15, 3, false, 0, 1, &[32, 0]));
    t.say(ToServer, &smb2(12, 3, false, 0, 1, &[4, 0, 0, 0]));
    t.say(ToClient, &smb2(15, 3, true, 0xc000_0120, 1, &[9, 0]));
    let logs = t.logs();
    assert!(logs[2].contains("CHANGE_NOTIFY") && logs[2].contains("STATUS_CANCELLED"), "{logs:?}");
    assert!(logs[3].contains("SMB2_COMMAND_CANCEL") && !logs[3].contains("status"), "{logs:?}");
}

#[test]
fn files_without_a_name() {
    let mut t = Talk::connected();
    t.say(ToServer, &write(3, 1, 0, b"written"));
    t.say(ToServer, &smb2(8, 4, false, 0, 1, &read_body(FILE, 0, 60)));
    t.say(ToClient, &read_response(4, 1, b"content"));
    let logs = t.logs();
    assert!(logs[2].contains("\"filename\":\"\""), "{logs:?}");
    assert!(logs[3].contains("\"filename\":\"<unknown>\""), "{logs:?}");
}

#[test]
fn too_many() {
    let mut t = Talk::small();
    for n in 0..4 {
        t.say(ToServer, &tree(n, "\\\\srv\\x"));
    }
    // The server was never seen: the parser gave up.
    assert!(t.has(0, Event::TooManyTransactions) && t.parser.txs().count() == 3);
    assert_eq!(t.shared.counters.tx_limit[AppProto::Smb as usize], 1);
    // If it was seen, the oldest request makes room.
    let mut t = Talk::small();
    t.say(ToServer, &tree(0, "\\\\srv\\x"));
    t.say(ToClient, &tree_response(0, 1, 1));
    for n in 1..100 {
        t.say(ToServer, &tree(n, "\\\\srv\\x"));
    }
    assert!(t.has(1, Event::TooManyTransactions) && t.parser.txs().count() <= 6);
}

#[test]
fn which_way_it_goes() {
    let header = PROTOCOL.recognition.probes[0].probe;
    for (bytes, reverse) in [(tree(1, "x"), false), (tree_response(1, 1, 1), true)] {
        assert_eq!(header(ToServer, &bytes), Probed::Yes { reverse });
        assert_eq!(header(ToClient, &bytes), Probed::Yes { reverse: !reverse });
        for cut in 0..20 {
            assert_eq!(header(ToServer, &bytes[..cut]), Probed::More, "{cut}");
        }
    }
    assert_eq!(header(ToServer, b"GET / HT"), Probed::No);
    assert_eq!(header(ToServer, b"\0\0\0\x10\xfeSMX"), Probed::No);
    // NetBIOS sets up a session first.
    let session = PROTOCOL.recognition.probes[2].probe;
    let name = [&b"\x20"[..], &[b'C'; 32], b"\0"].concat();
    let request = [&b"\x81\0\0\x44"[..], &name, &name].concat();
    let accepted = b"\x82\0\0\0".to_vec();
    for (setup, dir, message) in [(request, ToServer, tree(1, "x")), (accepted, ToClient, tree_response(1, 1, 1))] {
        for cut in 0..=setup.len() {
            assert_eq!(session(dir, &setup[..cut]), Probed::More, "{cut}");
        }
        assert_eq!(session(dir, &[&*setup, &*message].concat()), Probed::Yes { reverse: false });
        assert_eq!(session(dir, &[&*setup, b"GET / HTTP/1.1"].concat()), Probed::No);
    }
    assert_eq!(session(ToClient, b"\x83\0\0\x01\x82"), Probed::No);
}

#[test]
fn messages_are_frames() {
    let mut t = Talk::new();
    t.say(ToServer, &tree(1, "x"));
    let seen: Vec<_> = t
        .shared
        .frames
        .flow
        .of(ToServer)
        .iter()
        .filter(|f| f.kind != crate::frame::STREAM)
        .map(|f| (PROTOCOL.frames[usize::from(f.kind)], f.offset, f.end))
        .collect();
    let end = Some(4 + 64 + 10);
    assert_eq!(
        seen,
        [
            ("nbss.pdu", 0, end),
            ("nbss.hdr", 0, Some(4)),
            ("nbss.data", 4, end),
            ("smb2.pdu", 4, end),
            ("smb2.hdr", 4, Some(68)),
            ("smb2.data", 68, end),
        ]
    );
}
