//! Tests of transaction rules with an artificial protocol: two lines, headers and a body in each direction.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

use margay_app::file::{FileConfig, FileEngine};
use margay_app::{
    AppLogOptions, AppProto, BufferDef, BufferKind, Found, LogFor, Outcome, Parse, Parsed, Parser, Protocol, Shared,
    Transaction, TxBase,
};
use margay_flow::{Direction, FlowCore};
use margay_json::Json;
use margay_rules::{Context, Loader};
use proptest::prelude::*;

use crate::tests::{flow, packet, tcp_bytes};
use crate::{Alert, Detect, DetectConfig, DetectState, Environment, Input, Verdict};

pub(crate) const URI: u8 = 0;
pub(crate) const METHOD: u8 = 1;
const HEADER: u8 = 2;
const REQUEST_HEADER: u8 = 3;
pub(crate) const REQUEST_BODY: u8 = 4;
const STAT_CODE: u8 = 5;
const FILE_DATA: u8 = 6;
const RESPONSE_HEADER: u8 = 7;

const fn def(name: &'static str, id: u8, progress: [Option<u8>; 2], kind: BufferKind) -> BufferDef {
    BufferDef { name, id, progress, kind, ..BufferDef::PLAIN }
}

static FAKE: Protocol = Protocol {
    rule_name: "http1",
    meant_by: &["http"],
    parser: |_, _| Box::new(Fake::default()),
    buffers: &[
        def("http.uri", URI, [Some(1), None], BufferKind::Single),
        def("http.method", METHOD, [Some(1), None], BufferKind::Single),
        def("http.header", HEADER, [Some(2), Some(2)], BufferKind::Single),
        def("http.request_header", REQUEST_HEADER, [Some(2), None], BufferKind::Multi),
        def("http.request_body", REQUEST_BODY, [Some(3), None], BufferKind::Stream),
        def("http.stat_code", STAT_CODE, [None, Some(1)], BufferKind::Single),
        def("http.response_header", RESPONSE_HEADER, [None, Some(2)], BufferKind::Multi),
        def("file.data", FILE_DATA, [None, Some(3)], BufferKind::Stream),
    ],
    states: [
        &["request_started", "request_line", "request_headers", "request_body", "request_trailer", "request_complete"],
        &[
            "response_started",
            "response_line",
            "response_headers",
            "response_body",
            "response_trailer",
            "response_complete",
        ],
    ],
    events: &["odd", "even"],
    ..Protocol::new(AppProto::Http1, "http").logged()
};

static PROTOCOLS: &[&Protocol] = &[&FAKE];

/// A body that arrives in pieces and is inspected in windows.
#[derive(Debug, Default)]
struct Body {
    data: Vec<u8>,
    total: AtomicUsize,
    inspected: AtomicUsize,
    /// Inspected bytes that the next window has too.
    window: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Tx {
    base: TxBase,
    body: Option<Arc<Body>>,
    single: [Option<Vec<u8>>; 8],
    multi: [Vec<Vec<u8>>; 8],
    /// Due stream data.
    stream: [Option<Vec<u8>>; 8],
    looks: Arc<AtomicU32>,
}

impl Transaction for Tx {
    fn held(&self) -> u64 {
        0
    }

    fn base(&self) -> &TxBase {
        &self.base
    }
    fn base_mut(&mut self) -> &mut TxBase {
        &mut self.base
    }
    fn buffer<'a>(&'a self, id: u8, dir: Direction, index: usize, scratch: &'a mut Vec<u8>) -> Option<Found<'a>> {
        let complete = self.base.progress[dir.index()] == 5;
        if id == REQUEST_BODY
            && let Some(body) = &self.body
        {
            let (total, inspected) = (body.total.load(Relaxed), body.inspected.load(Relaxed));
            let from = inspected.saturating_sub(body.window);
            let data = body.data.get(from..total).filter(|_| total > inspected || complete)?;
            return Some(Found { data, offset: from as u64, end: complete, seen: inspected - from });
        }
        let id = usize::from(id);
        if let Some(d) = &self.stream[id] {
            return Some(Found { data: d, offset: 0, end: complete, seen: 0 });
        }
        if let Some(v) = self.multi[id].get(index) {
            return Some(Found::whole(v));
        }
        if id == usize::from(HEADER) {
            // Built on request, like headers.
            self.looks.fetch_add(1, Relaxed);
            scratch.extend_from_slice(self.single[id].as_deref()?);
            return Some(Found::whole(scratch));
        }
        self.single[id].as_deref().map(Found::whole)
    }
    fn inspected(&mut self, _: Direction) {
        self.stream = Default::default();
        if let Some(body) = &self.body {
            body.inspected.store(body.total.load(Relaxed), Relaxed);
        }
    }
    fn log(&self, _: &mut Json, _: &AppLogOptions, _: LogFor) {}
}

#[derive(Debug, Default)]
struct Fake {
    txs: Vec<Tx>,
}

impl Parser for Fake {
    fn memory(&mut self) -> u64 {
        0
    }

    fn proto(&self) -> AppProto {
        AppProto::Http1
    }
    fn data(&mut self, _: &mut Parse<'_>, _: Direction, data: &[u8]) -> Parsed {
        Parsed::used(data.len())
    }
    fn gap(&mut self, _: &mut Parse<'_>, _: Direction, _: u64) -> Outcome {
        Outcome::More
    }
    fn txs(&self) -> Range<u64> {
        0..self.txs.len() as u64
    }
    fn tx(&self, id: u64) -> Option<&dyn Transaction> {
        self.txs.get(id as usize).map(|t| t as &dyn Transaction)
    }
    fn tx_mut(&mut self, id: u64) -> Option<&mut dyn Transaction> {
        self.txs.get_mut(id as usize).map(|t| t as &mut dyn Transaction)
    }
    fn free_tx(&mut self, _: &mut Shared, _: u64) {}
}

pub(crate) const SERVER: Direction = Direction::ToServer;
pub(crate) const CLIENT: Direction = Direction::ToClient;

pub(crate) struct Lab {
    pub(crate) detect: Detect,
    pub(crate) state: DetectState,
    pub(crate) flow: FlowCore,
    tx: Tx,
    ips: bool,
    /// Payload of the packets that trigger inspection.
    payload: Vec<u8>,
    /// The detected protocol of the flow.
    app: AppProto,
    pub(crate) verdict: Verdict,
}

impl Lab {
    pub(crate) fn new(rules: &str) -> Lab {
        Lab::with(None, rules)
    }

    /// A lab in firewall mode, with the built-in policies.
    pub(crate) fn firewall(firewall: &str, rules: &str) -> Lab {
        Lab { ips: true, ..Lab::with(Some(firewall), rules) }
    }

    fn with(firewall: Option<&str>, rules: &str) -> Lab {
        Lab::after(firewall, rules, None)
    }

    /// Replaces the rules, as a worker does.
    pub(crate) fn reload(&mut self, rules: &str) {
        let Lab { detect, mut state, .. } = Lab::after(None, rules, Some(&self.detect));
        let from = self.detect.mark();
        state.take_over(&mut self.state, &detect, from);
        detect.bring_vars(from, &mut self.flow.vars);
        detect.bring_tx(from, &mut self.tx.base);
        (self.detect, self.state) = (detect, state);
    }

    /// Takes the transaction out, so that reloads do not convert it.
    pub(crate) fn take_tx(&mut self) -> Tx {
        std::mem::take(&mut self.tx)
    }

    /// Puts the transaction back; rules of the set `from` inspected it last.
    pub(crate) fn give_tx(&mut self, from: crate::RulesMark, mut tx: Tx) {
        self.detect.bring_tx(from, &mut tx.base);
        self.tx = tx;
    }

    fn context() -> Context {
        let available = ["http", "http1", "file", "app-layer"].map(str::to_owned).into();
        Context { available, ..Context::default() }
    }

    fn after(firewall: Option<&str>, rules: &str, previous: Option<&Detect>) -> Lab {
        let context = Lab::context();
        let mut loader = Loader::new(&context);
        if let Some(text) = firewall {
            loader.load_firewall_bytes(text.as_bytes(), "firewall.rules");
        }
        loader.load_str(rules, "test.rules");
        let loaded = loader.finish();
        assert!(loaded.errors.is_empty(), "{:?}", loaded.errors);
        assert!(loaded.set_aside.is_empty(), "{:?}", loaded.set_aside);
        let config = DetectConfig { packet_alert_max: 100, ..DetectConfig::default() };
        let environment =
            Environment { firewall: firewall.map(|_| Default::default()), previous, ..Environment::default() };
        let (detect, report) = Detect::compile_with(loaded.rules, &environment, &config, PROTOCOLS).expect("compiles");
        assert_eq!((report.errors, report.set_aside), (vec![], vec![]));
        let state = DetectState::new(&detect).expect("scratch");
        let verdict = Verdict::default();
        let (payload, app) = (b"GET".to_vec(), AppProto::Unknown);
        Lab { detect, state, flow: flow(40000, 80), tx: Tx::default(), ips: false, payload, app, verdict }
    }

    /// Sets a buffer.
    pub(crate) fn set(&mut self, id: u8, text: &str) -> &mut Self {
        self.tx.single[usize::from(id)] = Some(text.into());
        self
    }

    fn add(&mut self, id: u8, text: &str) -> &mut Self {
        self.tx.multi[usize::from(id)].push(text.into());
        self
    }

    pub(crate) fn data(&mut self, id: u8, text: &str) -> &mut Self {
        self.tx.stream[usize::from(id)] = Some(text.into());
        let dir = if id == FILE_DATA { CLIENT } else { SERVER };
        self.tx.base.touch(dir);
        self
    }

    /// Advances to a state.
    pub(crate) fn advance(&mut self, dir: Direction, progress: u8) -> &mut Self {
        self.tx.base.advance(dir, progress);
        self
    }

    pub(crate) fn touch(&mut self, dir: Direction) {
        self.tx.base.touch(dir);
    }

    pub(crate) fn look(&mut self, dir: Direction) -> Vec<Alert> {
        let bytes = tcp_bytes(&self.payload);
        let p = packet(&bytes, dir, 40000, 80);
        let body = self.tx.body.clone();
        let mut parsers: Vec<Box<dyn Parser>> = vec![Box::new(Fake { txs: vec![std::mem::take(&mut self.tx)] })];
        let mut input = Input::new(&p);
        input.flow = Some(&mut self.flow);
        input.dir = Some(dir);
        input.established = true;
        input.ips = self.ips;
        input.app.flow = self.app;
        input.txs = Some(&mut parsers);
        self.verdict = self.state.inspect(&self.detect, &mut input);
        // The parser returns its transaction for the next inspection.
        if let Some(tx) = parsers[0].tx_mut(0) {
            let base = tx.base_mut();
            self.tx.base = std::mem::take(base);
            self.tx.body = body;
            let mut scratch = Vec::new();
            for id in 0..8u8 {
                for dir in [SERVER, CLIENT] {
                    scratch.clear();
                    if let Some(f) = tx.buffer(id, dir, 0, &mut scratch) {
                        match id {
                            REQUEST_HEADER | RESPONSE_HEADER => {
                                self.tx.multi[usize::from(id)] = (0..)
                                    .map_while(|i| tx.buffer(id, dir, i, &mut Vec::new()).map(|f| f.data.to_vec()))
                                    .collect();
                            }
                            _ => self.tx.single[usize::from(id)] = Some(f.data.to_vec()),
                        }
                    }
                }
            }
        }
        self.state.alerts().to_vec()
    }

    /// Advances to a state and inspects.
    pub(crate) fn at(&mut self, dir: Direction, progress: u8) -> Vec<u32> {
        self.tx.base.advance(dir, progress);
        self.tx.base.touch(dir);
        let alerts = self.look(dir);
        alerts.iter().map(|a| self.detect.rules()[a.rule as usize].sid).collect()
    }
}

const ANY: &str = "any any -> any any";

fn any_rule() -> impl Strategy<Value = String> {
    let word = || prop_oneof![Just("wxyz"), Just("GET"), Just("/"), Just("evil"), Just("/evil"), Just("EV"), Just("a")];
    let content = move || {
        let more =
            prop_oneof![Just(""), Just(" nocase;"), Just(" startswith;"), Just(" bsize:5;"), Just(" isdataat:5;")];
        (any::<[bool; 3]>(), word(), more).prop_map(|([a, b, c], w, m)| {
            let m = if m == " bsize:5;" && c { "" } else { m };
            format!("content:{}\"{w}\";{m}", if a && b { "!" } else { "" })
        })
    };
    // Some have no literal that they need.
    let pcre = prop_oneof![
        Just("/e.il/"),
        Just("/evil$/i"),
        Just("/^.evil/"),
        Just("/(wx|ev)[yi]/"),
        Just("/^[ae]$/"),
        Just("/[lz]$/"),
        Just("/^(?!e)/"),
    ];
    let check = move || {
        let pcre = (prop_oneof![4 => Just(""), 1 => Just("!")], pcre.clone());
        prop_oneof![
            3 => content(),
            2 => pcre.prop_map(|(not, p)| format!("pcre:{not}\"{p}\";")),
            1 => Just("sqli;".to_owned()),
        ]
    };
    let buffer = prop_oneof![
        Just("http.method"),
        Just("http.uri"),
        Just("http.header"),
        Just("http.request_header"),
        Just("http.request_body"),
    ];
    let transform = prop_oneof![3 => Just(""), 1 => Just(" to_lowercase;"), 1 => Just(" canonicalise;")];
    let part = prop_oneof![
        4 => (buffer, transform, proptest::collection::vec(check(), 1..3))
            .prop_map(|(b, t, c)| format!("{b};{t} {}", c.concat())),
        1 => (5..11).prop_map(|n| format!("urilen:{n};")),
        1 => (0..7).prop_map(|n| format!("urilen:>{n};")),
    ];
    let payload = proptest::collection::vec(content().prop_filter("of a payload", |c| !c.contains("bsize")), 0..2);
    let rule = (payload, proptest::collection::vec(part, 1..4), any::<bool>()).prop_map(|(payload, parts, http)| {
        let proto = if http { "http" } else { "tcp" };
        format!("alert {proto} {ANY} ({} {}", payload.concat(), parts.join(" "))
    });
    rule.prop_filter("no error", |rule| {
        let context = Lab::context();
        let mut loader = Loader::new(&context);
        loader.load_str(&format!("{rule} sid:1;)"), "test.rules");
        loader.finish().errors.is_empty()
    })
}

/// A rule whose patterns are in the request's body.
fn rule_for_bodies() -> impl Strategy<Value = String> {
    let word = || prop_oneof![Just("wxyz"), Just("evil"), Just("EVa"), Just("GET/e"), Just("..."), Just("vil..evil")];
    let more = prop_oneof![4 => Just(""), 1 => Just(" nocase;"), 1 => Just(" offset:3;"), 1 => Just(" depth:40;"), 1 => Just(" offset:5; depth:30;")];
    let second = proptest::option::of(word());
    (word(), more, second).prop_map(|(first, more, second)| {
        let second = second.map(|w| format!("content:\"{w}\";")).unwrap_or_default();
        format!("alert http {ANY} (http.request_body; content:\"{first}\"; fast_pattern;{more} {second}")
    })
}

proptest! {
    /// Gates and the order of steps never change the alerts. A watched lab, which skips gates, gives the same result.
    #[test]
    fn gates_lose_nothing(
        rules in proptest::collection::vec(any_rule(), 1..12),
        lines in (prop_oneof![Just("GET"), Just("POST"), Just("EVIL")], prop_oneof![Just("/"), Just("/evil"), Just("/EVIL/wxyz"), Just("")]),
        header in prop_oneof![Just(None), Just(Some("")), Just(Some("Host: evil GET / wxyz"))],
        fields in proptest::collection::vec(
            prop_oneof![Just("a"), Just("E"), Just("evil"), Just("EVIL wxyz"), Just("GET"), Just("1' or '1'='1")], 0..4),
        looks in proptest::collection::vec(
            (0u8..3, prop_oneof![Just(""), Just("GET /evil"), Just("wxyz"), Just("a")], any::<bool>()), 1..6),
        known: bool,
    ) {
        let numbered: Vec<String> = rules.iter().zip(1..).map(|(r, sid)| format!("{r} sid:{sid};)")).collect();
        let text = numbered.join("\n");
        let mut fast = Lab::new(&text);
        let mut told = Lab::new(&text);
        let all: Vec<u32> = (0..rules.len() as u32).collect();
        told.state = DetectState::explaining(&Arc::new(Lab::new(&text).detect), &all).expect("scratch");
        let mut progress = 0;
        for (on, payload, body) in looks {
            progress = (progress + on).min(5);
            let [a, b] = [&mut fast, &mut told].map(|l| {
                if known {
                    l.app = AppProto::Http1;
                }
                l.payload = payload.into();
                if progress >= 1 {
                    l.set(METHOD, lines.0).set(URI, lines.1);
                }
                if let Some(h) = header.filter(|_| progress >= 2) {
                    l.set(HEADER, h);
                }
                if progress >= 2 && l.tx.multi[usize::from(REQUEST_HEADER)].is_empty() {
                    fields.iter().for_each(|f| {
                        l.add(REQUEST_HEADER, f);
                    });
                }
                if body && progress >= 3 {
                    l.data(REQUEST_BODY, payload);
                }
                l.at(SERVER, progress)
            });
            prop_assert_eq!(a, b, "{}", text);
        }
    }
}

proptest! {
    /// Bytes that the previous window had too are not searched again. That never changes the alerts: they are compared with those
    /// of a lab that explains its rules and therefore searches everything. Half of the rules want a flow bit that may be set long after their pattern was found.
    #[test]
    fn windows_lose_nothing(
        rules in proptest::collection::vec((prop_oneof![any_rule(), rule_for_bodies()], any::<bool>()), 1..12),
        pieces in proptest::collection::vec(
            (prop_oneof![Just("a"), Just("EV"), Just("evil"), Just("GET"), Just("/e"), Just("vil"), Just("wxyz"), Just("  ")], 0..60usize),
            1..12),
        window in prop_oneof![Just(0usize), 1..12usize, 30..200usize],
        bit_at in 0..12usize,
        known: bool,
    ) {
        let numbered: Vec<String> = rules
            .iter()
            .zip(1..)
            .map(|((r, bit), sid)| format!("{r}{} sid:{sid};)", if *bit { " flowbits:isset,b;" } else { "" }))
            .collect();
        let text = format!("alert tcp {ANY} (content:\"SET\"; flowbits:set,b; sid:100;)\n{}", numbered.join("\n"));
        let mut fast = Lab::new(&text);
        let mut told = Lab::new(&text);
        let all: Vec<u32> = (0..=rules.len() as u32).collect();
        told.state = DetectState::explaining(&Arc::new(Lab::new(&text).detect), &all).expect("scratch");
        let data = pieces.iter().map(|(piece, fill)| format!("{piece}{}", ".".repeat(*fill))).collect::<String>();
        for l in [&mut fast, &mut told] {
            if known {
                l.app = AppProto::Http1;
            }
            l.tx.body = Some(Arc::new(Body { data: data.clone().into(), window, ..Body::default() }));
            l.set(METHOD, "POST").set(URI, "/evil").set(HEADER, "Host: evil");
        }
        for (n, (piece, fill)) in pieces.iter().enumerate() {
            let [a, b] = [&mut fast, &mut told].map(|l| {
                l.payload = if n == bit_at { b"SET".to_vec() } else { b"GET".to_vec() };
                if let Some(body) = &l.tx.body {
                    body.total.fetch_add(piece.len() + fill, Relaxed);
                }
                l.at(SERVER, if n + 1 == pieces.len() { 5 } else { 3 })
            });
            prop_assert_eq!(a, b, "{}", text);
        }
    }
}

#[test]
fn buffers_as_they_come() {
    let mut l = Lab::new(&format!(
        "alert http {ANY} (http.method; content:\"POST\"; http.uri; content:\"/up\"; http.request_body; content:\"secret\"; sid:1;)
         alert http {ANY} (http.uri; content:\"/up\"; sid:2;)
         alert http {ANY} (http.uri; content:\"/other\"; sid:3;)
         alert http {ANY} (http.header; content:\"Host\"; content:!\"evil\"; sid:4;)
         alert tcp {ANY} (http.method; content:!\"GET\"; sid:5;)
         alert tcp {ANY} (urilen:3; sid:6;)
         alert tcp {ANY} (urilen:>3; sid:7;)"
    ));
    l.set(METHOD, "POST").set(URI, "/up");
    assert_eq!(l.at(SERVER, 2), [2, 5, 6]);
    // Each rule matches only once.
    assert_eq!(l.at(SERVER, 2), [0u32; 0]);
    l.set(HEADER, "Host: a\r\n");
    assert_eq!(l.at(SERVER, 3), [4]);
    l.data(REQUEST_BODY, "nothing");
    assert_eq!(l.at(SERVER, 3), [0u32; 0]);
    l.data(REQUEST_BODY, "a secret");
    assert_eq!(l.at(SERVER, 3), [1]);
    assert_eq!(l.at(SERVER, 5), [0u32; 0]);
    assert!(l.tx.base.detect[0].done && !l.tx.base.updated[0]);
}

#[test]
fn a_pattern_in_a_later_buffer() {
    // As in the conformance case prefilter-multibuf-multipkts.
    let mut l = Lab::new(&format!(
        "alert http {ANY} (sid:2; http.stat_code; content:\"200\"; fast_pattern; http.response_header; content:\"first\";)
         alert http {ANY} (sid:3; http.stat_code; content:\"200\"; http.response_header; content:\"first\"; fast_pattern;)"
    ));
    l.set(STAT_CODE, "200");
    assert_eq!(l.at(CLIENT, 1), [0u32; 0]);
    l.add(RESPONSE_HEADER, "zero: 0");
    assert_eq!(l.at(CLIENT, 2), [0u32; 0]);
    l.add(RESPONSE_HEADER, "first: 1");
    assert_eq!(l.at(CLIENT, 2), [2, 3]);
    assert_eq!(l.at(CLIENT, 5), [0u32; 0]);
}

#[test]
fn one_of_several_values_must_hold_all() {
    let mut l = Lab::new(&format!(
        "alert http {ANY} (http.request_header; content:\"Key: \"; startswith; content:\"abc\"; sid:1;)
         alert http {ANY} (http.request_header; content:\"Key: \"; startswith; content:\"xyz\"; sid:2;)"
    ));
    l.add(REQUEST_HEADER, "Key: abc").add(REQUEST_HEADER, "Other: xyz");
    assert_eq!(l.at(SERVER, 3), [1]);
    assert_eq!(l.at(SERVER, 5), [0u32; 0]);
}

#[test]
fn absent_buffers() {
    let rules = format!(
        "alert http {ANY} (http.request_body; absent; http.method; content:\"POST\"; sid:1;)
         alert http {ANY} (http.request_body; absent: or_else; content:!\"abc\"; sid:2;)
         alert http {ANY} (http.request_header; absent; sid:3;)
         alert http {ANY} (http.request_header; absent: or_else; content:\"abc\"; sid:4;)
         alert http {ANY} (http.request_body; content:!\"abc\"; sid:5;)"
    );
    let mut l = Lab::new(&rules);
    l.set(METHOD, "POST");
    assert_eq!(l.at(SERVER, 2), [0u32; 0]);
    assert_eq!(l.at(SERVER, 3), [3, 4]);
    assert_eq!(l.at(SERVER, 5), [1, 2]);
    let mut l = Lab::new(&rules);
    l.set(METHOD, "POST").add(REQUEST_HEADER, "X: y").data(REQUEST_BODY, "xabcx");
    assert_eq!(l.at(SERVER, 5), [0u32; 0]);
    let mut l = Lab::new(&rules);
    l.set(METHOD, "POST").add(REQUEST_HEADER, "X: abc").data(REQUEST_BODY, "xyz");
    assert_eq!(l.at(SERVER, 5), [2, 4, 5]);
}

#[test]
fn both_directions() {
    let mut l = Lab::new(
        "alert http 10.0.0.1 any => 10.0.0.2 80 (http.uri; content:\"/up\"; http.stat_code; content:\"500\"; file.data:to_client; content:\"oops\"; sid:1;)
         alert http 10.0.0.1 any => 10.0.0.2 80 (http.uri; content:\"/no\"; http.stat_code; content:\"500\"; sid:2;)
         alert http 10.0.0.2 any => 10.0.0.1 any (http.uri; content:\"/up\"; http.stat_code; content:\"500\"; sid:3;)",
    );
    l.set(URI, "/up");
    assert_eq!(l.at(SERVER, 5), [0u32; 0]);
    l.set(STAT_CODE, "500");
    assert_eq!(l.at(CLIENT, 3), [0u32; 0]);
    l.data(FILE_DATA, "oops!");
    assert_eq!(l.at(CLIENT, 3), [1]);
    l.data(FILE_DATA, "oops!");
    assert_eq!(l.at(CLIENT, 5), [0u32; 0]);
}

#[test]
fn hooks() {
    // As in the conformance case http-body-hook-01.
    let mut l = Lab::new(&format!(
        "alert http1:response_started {ANY} (sid:1;)
         alert http1:response_line {ANY} (sid:2;)
         alert http1:response_headers {ANY} (http.stat_code; content:\"200\"; sid:3;)
         alert http1:response_body {ANY} (sid:4;)
         alert http1:response_complete {ANY} (sid:6;)
         alert http1 {ANY} (app-layer-state:>response_line; http.stat_code; content:\"200\"; sid:7;)"
    ));
    l.set(STAT_CODE, "200");
    assert_eq!(l.at(CLIENT, 1), [1, 2]);
    assert_eq!(l.at(CLIENT, 3), [3, 4, 7]);
    for _ in 0..3 {
        assert_eq!(l.at(CLIENT, 3), [4]);
    }
    assert_eq!(l.at(CLIENT, 5), [6]);
}

#[test]
fn events_bits_and_logs() {
    let mut l = Lab::new(&format!(
        "alert http {ANY} (flow:to_server; app-layer-event:http.odd; sid:1;)
         alert http {ANY} (flow:to_server; app-layer-event:http.even; sid:2;)
         alert http {ANY} (http.uri; content:\"/x\"; xbits:set,a,track tx; sid:3;)
         alert http {ANY} (http.method; content:\"GET\"; xbits:isset,a,track tx; sid:4;)
         config http {ANY} (http.uri; content:\"/x\"; config: logging disable, type tx, scope tx; sid:5;)"
    ));
    l.set(METHOD, "GET").set(URI, "/x");
    l.tx.base.events.add(1);
    assert_eq!(l.at(SERVER, 2), [3, 4, 2]);
    assert!(l.tx.base.no_log);
    l.tx.base.events.add(0);
    assert_eq!(l.at(SERVER, 3), [1]);
    assert_eq!(l.at(SERVER, 5), [0u32; 0]);
}

#[test]
fn files_one_by_one() {
    let mut l = Lab::new(&format!(
        "alert http {ANY} (http.method; content:\"POST\"; filename:\"picture\"; sid:1;)
         alert http {ANY} (fileext:\"jpg\"; filesize:>3; sid:2;)
         alert http {ANY} (file.name; content:\"one\"; sid:3;)
         alert http {ANY} (filename:!\"picture\"; sid:4;)
         alert http {ANY} (file.name; bsize:0; sid:5;)"
    ));
    let (mut engine, config) = (FileEngine::default(), FileConfig::default());
    l.set(METHOD, "POST");
    assert_eq!(l.at(SERVER, 3), [0u32; 0]);
    l.tx.base.files.open(&mut engine, &config, SERVER, b"picture-one.jpg", None);
    assert_eq!(l.at(SERVER, 3), [1, 3]);
    l.tx.base.files.append(&mut engine, &config, SERVER, b"12345");
    assert_eq!(l.at(SERVER, 3), [0u32; 0]);
    l.tx.base.files.close(&mut engine, &config, SERVER, false);
    assert_eq!(l.at(SERVER, 3), [2]);
    l.tx.base.files.open(&mut engine, &config, SERVER, b"picture2.JPG", None);
    assert_eq!(l.at(SERVER, 3), [1]);
    l.tx.base.files.append(&mut engine, &config, SERVER, b"12345");
    // A file in NFS whose client uses a handle from before the capture has no name.
    l.tx.base.files.open(&mut engine, &config, SERVER, b"", None);
    // The second file is not at its end, so its size is not compared.
    assert_eq!(l.at(SERVER, 5), [4, 5]);
}

#[test]
fn what_is_put_together_is_so_once() {
    let rules: String = (1..200)
        .map(|n| format!("alert http {ANY} (http.header; content:\"a{}\"; pcre:\"/x/\"; sid:{n};)\n", n % 5))
        .collect();
    let mut l = Lab::new(&rules);
    l.set(HEADER, "x a0 a1 a2 a3 a4");
    let looks = l.tx.looks.clone();
    l.tx.base.advance(SERVER, 3);
    assert_eq!(l.look(SERVER).len(), 100);
    // Once for the rules, and once for each direction when the test takes the transaction back.
    assert_eq!(looks.load(Relaxed), 3);
}

#[test]
fn scores_add_up_whatever_the_order() {
    // A drop rule runs before alert rules, and the lower sid first. The score test still runs last.
    let mut l = Lab::new(&format!(
        "drop http {ANY} (msg:\"enough\"; flow:to_server; score:web,>=,8; sid:1;)
         alert http {ANY} (http.uri; content:\"/x\"; score:web,+5; noalert; sid:2;)
         alert http {ANY} (http.method; content:\"GET\"; score:web,+3; noalert; sid:3;)
         alert http {ANY} (http.header; content:\"h\"; score:other,+8; noalert; sid:4;)"
    ));
    l.ips = true;
    l.set(METHOD, "GET").set(URI, "/x").set(HEADER, "h");
    assert_eq!(l.at(SERVER, 2), [1]);
    assert_eq!(l.flow.action, margay_flow::FlowAction::Drop);
}

#[test]
fn a_score_is_added_to_once_and_kept_until_it_is_reached() {
    let rules = format!(
        "alert http {ANY} (flow:to_server; score:web,>=,8; sid:1;)
         alert http {ANY} (http.uri; content:\"/x\"; score:web,+5; noalert; sid:2;)
         alert http {ANY} (http.request_body; content:\"body\"; score:web,+3; noalert; sid:3;)"
    );
    let mut l = Lab::new(&rules);
    l.set(METHOD, "GET").set(URI, "/x");
    assert_eq!(l.at(SERVER, 2), [0u32; 0]);
    // The same rule does not add to the score again at the next inspection.
    assert_eq!(l.at(SERVER, 3), [0u32; 0]);
    assert_eq!(l.tx.base.scores.iter().map(|s| s.1).collect::<Vec<_>>(), [5]);
    l.data(REQUEST_BODY, "the body");
    assert_eq!(l.at(SERVER, 3), [1]);
    // A rule that matched does not match again.
    assert_eq!(l.at(SERVER, 5), [0u32; 0]);
    let mut l = Lab::new(&rules);
    l.set(METHOD, "GET").set(URI, "/y");
    l.data(REQUEST_BODY, "the body");
    assert_eq!(l.at(SERVER, 5), [0u32; 0]);
    assert_eq!(l.tx.base.scores.iter().map(|s| s.1).collect::<Vec<_>>(), [3]);
}

#[test]
fn pass_and_drop() {
    let rules = format!(
        "pass http {ANY} (http.uri; content:\"/good\"; sid:1;)
         drop http {ANY} (http.method; content:\"POST\"; sid:2;)
         alert http {ANY} (http.method; content:\"POST\"; sid:3;)"
    );
    let mut l = Lab::new(&rules);
    l.ips = true;
    l.set(METHOD, "POST").set(URI, "/good");
    assert_eq!(l.at(SERVER, 2), [0u32; 0]);
    assert_eq!(l.flow.action, margay_flow::FlowAction::Pass);
    let mut l = Lab::new(&rules);
    l.ips = true;
    l.set(METHOD, "POST").set(URI, "/bad");
    assert_eq!(l.at(SERVER, 2), [2, 3]);
    assert_eq!(l.flow.action, margay_flow::FlowAction::Drop);
}
