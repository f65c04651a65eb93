//! Tests of transaction rules on real protocol bytes, with the real parsers.
#![allow(clippy::expect_used, reason = "a test fails by it")]

use std::path::Path;

use margay_app::file::{FileConfig, FileEngine, FileWants};
use margay_app::{AppConfig, AppProto, Parse, Parser, Shared, protocol};
use margay_detect::{Detect, DetectConfig, DetectState, Environment, Input};
use margay_flow::{Direction, FlowCore, FlowState};
use margay_packet::{Frame, L3, L4, LinkType, Packet, Time};
use margay_rules::{Context, Loader};

const SERVER: Direction = Direction::ToServer;
const CLIENT: Direction = Direction::ToClient;

fn flow() -> FlowCore {
    FlowCore {
        state: FlowState::Established,
        ..FlowCore::new(1, 6, ([10, 0, 0, 1].into(), 40000), ([10, 0, 0, 2].into(), 80), Time(0))
    }
}

/// A flow with its parsers and its detection state. `left` has the unparsed bytes of each direction.
struct Talk {
    detect: Detect,
    state: DetectState,
    config: AppConfig,
    shared: Shared,
    flow: FlowCore,
    parsers: Vec<Box<dyn Parser>>,
    left: [Vec<u8>; 2],
}

impl Talk {
    fn new(rules: &str) -> Talk {
        let available = ["http", "http1", "file", "app-layer"].map(str::to_owned).into();
        let context = Context { available, ..Context::default() };
        let mut loader = Loader::new(&context);
        loader.load_str(rules, "test.rules");
        let loaded = loader.finish();
        assert!(loaded.errors.is_empty() && loaded.set_aside.is_empty(), "{:?}", loaded.errors);
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let environment = Environment { rule_folder: Some(folder), ..Environment::default() };
        let (detect, report) = Detect::compile(loaded.rules, &environment, &DetectConfig::default()).expect("compiles");
        assert_eq!((report.errors, report.set_aside), (vec![], vec![]));
        let state = DetectState::new(&detect).expect("scratch");
        let config = AppConfig::default();
        // The engine keeps HTTP bodies whenever there are rules.
        let wants = FileWants { bodies: true, ..detect.file_wants() };
        let files = FileEngine::new(&FileConfig::default(), wants).expect("files");
        let flow = flow();
        let http = protocol(AppProto::Http1).expect("is there");
        let parsers = vec![(http.parser)(&config, &flow)];
        let shared = Shared { files, ..Shared::default() };
        Talk { detect, state, config, shared, flow, parsers, left: Default::default() }
    }

    /// Sends bytes and returns the resulting alerts.
    fn send(&mut self, dir: Direction, bytes: &[u8]) -> Vec<(u32, Option<u64>)> {
        let Talk { config, shared, flow, parsers, left, .. } = self;
        let left = &mut left[dir.index()];
        left.extend_from_slice(bytes);
        let mut cx = Parse { config, shared, flow, time: Time(0), end: false, inline: false };
        let parsed = parsers[0].data(&mut cx, dir, left);
        left.drain(..parsed.consumed);
        let mut data = vec![0u8; 40];
        data[32] = 0x50;
        data.extend_from_slice(bytes);
        let frame = Frame { data: &data, wire_len: data.len() as u32, time: Time(0), link: LinkType::RAW, number: 1 };
        let mut p = Packet::new(&frame);
        p.l3 = L3::Ipv4 { offset: 0, header_len: 20, options: 0 };
        p.l4 = L4::Tcp { offset: 20, header_len: 20 };
        p.proto = 6;
        (p.src, p.dst, p.sport, p.dport) = match dir {
            SERVER => (self.flow.src, self.flow.dst, 40000, 80),
            CLIENT => (self.flow.dst, self.flow.src, 80, 40000),
        };
        p.payload = (40, bytes.len() as u32);
        let mut input = Input::new(&p);
        input.flow = Some(&mut self.flow);
        input.dir = Some(dir);
        input.established = true;
        input.in_stream = true;
        input.app.flow = AppProto::Http1;
        input.app.side = [AppProto::Http1; 2];
        input.txs = Some(&mut self.parsers);
        input.files = Some(&mut self.shared.files);
        self.state.inspect(&self.detect, &mut input);
        self.state.alerts().iter().map(|a| (self.detect.rules()[a.rule as usize].sid, a.tx_id)).collect()
    }
}

#[test]
fn two_transactions_of_http() {
    let mut t = Talk::new(
        "alert http any any -> any any (http.method; content:\"GET\"; http.uri; content:\"/a\"; sid:1;)
         alert http any any -> any any (http.uri; content:\"/a\"; urilen:2; flow:to_server; sid:2;)
         alert http any any -> any any (http.user_agent; content:\"curl\"; sid:3;)
         alert http any any -> any any (http.host; content:\"evil\"; sid:4;)
         alert http any any -> any any (http.stat_code; content:\"404\"; file.data; content:\"not found\"; sid:5;)
         alert http any any => any any (http.uri; content:\"/b\"; http.stat_code; content:\"404\"; sid:6;)
         alert http any any -> any any (http.host; content:\"host\"; xbits:isset,seen,track tx; sid:7;)
         alert http any any -> any any (http.uri; content:\"/b\"; xbits:set,seen,track tx; noalert; sid:8;)",
    );
    let both = b"GET /a HTTP/1.1\r\nHost: host\r\nUser-Agent: curl/8\r\n\r\nGET /b HTTP/1.1\r\nHost: host\r\n\r\n";
    // In rule order: rules with bits come first.
    assert_eq!(t.send(SERVER, both), [(7, Some(1)), (1, Some(0)), (2, Some(0)), (3, Some(0))]);
    assert_eq!(t.send(CLIENT, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nnot found"), []);
    assert_eq!(t.send(CLIENT, b"HTTP/1.1 404 No\r\nContent-Length: 9\r\n\r\n"), [(6, Some(1))]);
    assert_eq!(t.send(CLIENT, b"not found"), [(5, Some(1))]);
    for id in 0..2 {
        let tx = t.parsers[0].tx(id).expect("is there");
        assert!(tx.base().detect.iter().all(|d| d.done), "{id}");
    }
}

/// The file that is joined from ranges is inspected in addition to the last range.
#[test]
fn file_data_across_ranges() {
    let mut t = Talk::new(
        "alert http any any -> any any (file.data; content:\"cdef\"; sid:1;)
         alert http any any -> any any (file.data; content:\"fg\"; sid:2;)
         alert http any any -> any any (http.stat_code; content:\"206\"; fast_pattern; file.data; content:\"de\"; sid:3;)
         alert http any any -> any any (http.stat_code; content:\"206\"; fast_pattern; file.data; content:\"h\"; sid:4;)
         alert http any any -> any any (http.stat_code; content:\"206\"; filesize:8; sid:5;)
         alert http any any -> any any (file.data; content:\"ef\"; startswith; sid:6;)
         alert http any any -> any any (file.data; content:\"abcd\"; content:!\"gh\"; sid:7;)
         alert http any any -> any any (http.stat_code; content:\"206\"; flow:to_client; sid:8;)",
    );
    let get = b"GET /x.bin HTTP/1.1\r\nHost: host\r\n\r\n";
    let part = |range: &str, data: &str| {
        format!("HTTP/1.1 206 P\r\nContent-Length: 4\r\nContent-Range: bytes {range}/8\r\n\r\n{data}").into_bytes()
    };
    t.send(SERVER, get);
    assert_eq!(t.send(CLIENT, &part("0-3", "abcd")), [(7, Some(0)), (8, Some(0))]);
    t.send(SERVER, get);
    let mut second = t.send(CLIENT, &part("4-7", "efgh"));
    second.sort_unstable();
    assert_eq!(second, [1, 2, 3, 4, 5, 6, 8].map(|sid| (sid, Some(1))));
}

#[test]
fn a_hook_that_no_protocol_has_is_an_error() {
    let context = Context { available: ["http1".into(), "http".into()].into(), ..Context::default() };
    let mut loader = Loader::new(&context);
    loader.load_str(
        "alert http1:request_line any any -> any any (sid:1;)
         alert http1:nothing any any -> any any (sid:2;)",
        "test.rules",
    );
    let (_, report) =
        Detect::compile(loader.finish().rules, &Environment::default(), &DetectConfig::default()).expect("compiles");
    assert_eq!((report.loaded, report.set_aside.len()), (1, 0));
    assert!(report.errors[0].1.contains("nothing"), "{:?}", report.errors);
}

/// Several files that match in one packet make one alert.
#[test]
fn a_packet_with_several_files() {
    let mut t = Talk::new(
        "alert http any any -> any any (fileext:\"bin\"; sid:1;)
         alert http any any -> any any (filename:\"two\"; sid:2;)
         alert http any any -> any any (filesize:>2; fileext:\"bin\"; sid:3;)",
    );
    let file =
        |name: &str| format!("--X\r\nContent-Disposition: form-data; name=f; filename={name}.bin\r\n\r\ndata\r\n");
    let body = format!("{}{}--X--\r\n", file("one"), file("two"));
    let head = "POST / HTTP/1.1\r\nHost: h\r\nContent-Type: multipart/form-data; boundary=X\r\nContent-Length:";
    let request = format!("{head} {}\r\n\r\n{body}", body.len());
    assert_eq!(t.send(SERVER, request.as_bytes()), [1, 2, 3].map(|sid| (sid, Some(0))));
}

/// The size of a file is compared once it has ended, not when it has grown past the limit.
#[test]
fn the_size_of_a_file() {
    let mut t = Talk::new(
        "alert http any any -> any any (filesize:>2; sid:1;)
         alert http any any -> any any (filesize:<90; sid:2;)
         alert http any any -> any any (filesize:>=9; sid:3;)",
    );
    t.send(SERVER, b"GET /x.txt HTTP/1.1\r\nHost: host\r\n\r\n");
    assert_eq!(t.send(CLIENT, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello"), []);
    assert_eq!(t.send(CLIENT, b"more"), [1, 2, 3].map(|sid| (sid, Some(0))));
}

/// Also a rule that stores files of a scope needs a file in the direction that it inspects.
#[test]
fn filestore_needs_a_file() {
    let mut t = Talk::new(
        "alert http any any -> any any (filestore; sid:1;)
         alert http any any -> any any (filestore:to_server,flow; sid:2;)
         alert http any any -> any any (filestore:to_client,file; sid:3;)
         alert http any any -> any any (http.method; content:\"GET\"; filestore:both,tx; sid:4;)
         alert http any any -> any any (http.stat_code; content:\"200\"; filestore:both,flow; sid:5;)",
    );
    assert_eq!(t.send(SERVER, b"GET /x.txt HTTP/1.1\r\nHost: host\r\n\r\n"), []);
    let alerts = t.send(CLIENT, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(alerts, [1, 2, 3, 5].map(|sid| (sid, Some(0))));
}

#[test]
fn digests_of_files() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    // The MD5 of the five bytes "hello".
    std::fs::write(folder.join("hello.md5"), "5d41402abc4b2a76b9719d911017c592  hello\n").expect("can be written");
    let mut t = Talk::new(
        "alert http any any -> any any (filemd5:hello.md5; sid:1;)
         alert http any any -> any any (filemd5:!hello.md5; sid:2;)
         alert http any any -> any any (filesize:5; fileext:\"txt\"; sid:3;)
         alert http any any -> any any (filesize:>1000; sid:4;)",
    );
    t.send(SERVER, b"GET /x.txt HTTP/1.1\r\nHost: host\r\n\r\n");
    assert_eq!(t.send(CLIENT, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel"), []);
    assert_eq!(t.send(CLIENT, b"lo"), [(1, Some(0)), (3, Some(0))]);
    let context = Context { available: ["http".into(), "file".into()].into(), ..Context::default() };
    let mut none = Loader::new(&context);
    none.load_str("alert http any any -> any any (filesha1:nowhere.list; sid:1;)", "test.rules");
    let (_, report) =
        Detect::compile(none.finish().rules, &Environment::default(), &DetectConfig::default()).expect("compiles");
    assert!(report.errors[0].1.contains("nowhere.list"), "{:?}", report.errors);
}
