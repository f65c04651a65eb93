//! The targets of rules: `rules`, `inspect`, and `lists` for the files beside them.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, OnceLock};

use margay_app::{AppProto, Parse, Shared};
use margay_detect::dataset::{DatasetsBuilder, DatasetsConfig};
use margay_detect::iprep::{IpReputationBuilder, SCORE_MAX};
use margay_detect::mpm::MpmAlgo;
use margay_detect::{Detect, DetectConfig, DetectState, Environment, Input, StreamChunk};
use margay_flow::{Direction, FlowConfig, FlowTable, Lookup};
use margay_packet::{DecodeConfig, Decoder, Frame, L3, L4, LinkType, Packet, Time};
use margay_rules::Context;
use margay_rules::ast::Rule;
use margay_stream::StreamEvent;

use crate::talk::app_config;

/// Longest input of a target, somewhat more than the longest rule.
const INPUT_MAX: usize = margay_rules::RULE_BYTES_MAX + 4096;

/// Names that the rules of the corpora refer to.
fn context() -> &'static Context {
    static CONTEXT: OnceLock<Context> = OnceLock::new();
    CONTEXT.get_or_init(|| {
        let text = |pairs: &[(&str, &str)]| pairs.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect();
        let classes = "config classification: misc-activity,Misc activity,3\n\
                       config classification: attempted-recon,Attempted Information Leak,2";
        Context {
            addresses: text(&[("HOME_NET", "[10.0.0.0/8,192.168.0.0/16]"), ("EXTERNAL_NET", "!$HOME_NET")]),
            ports: text(&[("HTTP_PORTS", "[80,8080:8090]")]),
            classes: margay_rules::parse_classification(classes, "fuzz")
                .0
                .into_iter()
                .map(|c| (c.name.to_string(), c))
                .collect(),
            references: text(&[("url", "https://"), ("cve", "https://cve.example/")]),
            available: available(),
            inline: true,
            max_rules: 200,
            ..Context::default()
        }
    })
}

/// All protocols and features, except for scripts.
fn available() -> HashSet<String> {
    let recognised = margay_app::configurable().map(|(p, _)| format!("app-layer:{}", p.rule_name()));
    let parsed = margay_app::PROTOCOLS.iter().map(|p| p.proto.rule_name().to_owned());
    let features = margay_rules::FEATURES.iter().map(|(f, _)| (*f).to_owned()).filter(|f| f != "lua");
    features.chain(["http".to_owned()]).chain(parsed).chain(recognised).collect()
}

fn limits(mpm_algo: MpmAlgo) -> DetectConfig {
    DetectConfig { mpm_algo, threshold_memcap: 8192, tag_entries: 64, host_entries: 64, ..DetectConfig::default() }
}

/// An IPv4 packet of `proto` 6 or 17 with `payload`.
fn ip(proto: u8, payload: &[u8]) -> Vec<u8> {
    let header: usize = if proto == 6 { 20 } else { 8 };
    let total = 20 + header + payload.len();
    let mut p = vec![0u8; 20 + header];
    p[0] = 0x45;
    p[2..4].copy_from_slice(&(total as u16).to_be_bytes());
    p[8..10].copy_from_slice(&[64, proto]);
    p[12..20].copy_from_slice(&[10, 0, 0, 1, 192, 168, 0, 2]);
    p[20..24].copy_from_slice(&[0x9c, 0x40, 0, if proto == 6 { 80 } else { 53 }]);
    if proto == 6 {
        p[24..32].copy_from_slice(&[0, 0, 0x10, 0, 0, 0, 0x20, 0]);
        p[32..36].copy_from_slice(&[0x50, 0x18, 0xfa, 0xf0]);
    } else {
        p[24..26].copy_from_slice(&((8 + payload.len()) as u16).to_be_bytes());
    }
    p.extend_from_slice(payload);
    p
}

/// Inspects a packet twice in one flow with each set of rules: first with the payload in the stream, then alone. All sets must
/// give the same alerts.
fn inspected(sets: &[Arc<Detect>], bytes: &[u8], payload: &[u8]) {
    let frame =
        Frame { data: bytes, wire_len: bytes.len() as u32, time: Time::new(5, 0), link: LinkType::RAW, number: 1 };
    let mut decoder = Decoder::new(DecodeConfig::default());
    let mut expected: Option<Vec<(u32, bool)>> = None;
    for detect in sets {
        let mut state = DetectState::new(detect).expect("scratch");
        let mut got = Vec::new();
        decoder.decode(&frame, &mut |p: &Packet<'_>| {
            let config = FlowConfig { hash_size: 1, prealloc: 0, ..FlowConfig::default() };
            let mut flows: FlowTable<()> = FlowTable::new(config);
            let chunks = [StreamChunk { data: payload, offset: 0, seen: 0 }];
            let Some(key) = flows.key(p, 0) else { return };
            let Lookup::Created(at) = flows.lookup(p, &key, || (), &mut |_, _| {}) else { return };
            let Some(flow) = flows.get_mut(at) else { return };
            for in_stream in [true, false] {
                let tcp = in_stream && p.proto == 6;
                let mut input = Input {
                    flow: Some(&mut flow.core),
                    dir: Some(Direction::ToServer),
                    established: true,
                    in_stream: tcp,
                    chunks: if tcp { &chunks } else { &[] },
                    stream_events: 3,
                    ips: true,
                    ..Input::new(p)
                };
                let _ = state.inspect(detect, &mut input);
                got.extend(state.alerts().iter().map(|a| (a.rule, a.stream)));
            }
            let _ = state.inspect(detect, &mut Input::new(p));
            got.extend(state.alerts().iter().map(|a| (a.rule, a.stream)));
            state.flow_ended(flow.core.id);
        });
        match &expected {
            None => expected = Some(got),
            Some(e) => assert_eq!(*e, got, "matchers differ"),
        }
    }
}

/// Compiles rules with the portable matcher and, for a part of the inputs, with the other one too, which is much slower
/// to build.
fn compiled(rules: Vec<Rule>, thresholds: &[margay_rules::ast::GlobalThreshold], both: bool) -> Vec<Arc<Detect>> {
    let event = |name: &str| StreamEvent::from_name(name).map(|e| e as u8);
    let mut reputation = IpReputationBuilder::default();
    let _ = reputation.categories("fuzz", "1,Bad,Bad hosts");
    let _ = reputation.list("fuzz", "10.0.0.1,1,100");
    let reputation = Arc::new(reputation.build());
    let environment = Environment { thresholds, stream_event: &event, reputation, ..Environment::default() };
    let mut algorithms = vec![MpmAlgo::AhoCorasick];
    if both && MpmAlgo::has_hyperscan() {
        algorithms.push(MpmAlgo::Hyperscan);
    }
    algorithms
        .into_iter()
        .map(|a| {
            // Remove entries that rules added to datasets before the next matcher runs.
            let config = DatasetsConfig { memcap: 1 << 20, allow_write: false, ..DatasetsConfig::default() };
            let mut sets = DatasetsBuilder::new(config, None);
            let usable: Vec<Rule> = rules.iter().filter(|r| sets.rule(r)).cloned().collect();
            let environment = Environment { datasets: Arc::new(sets.finish()), ..environment.clone() };
            let count = usable.len();
            let (detect, report) = Detect::compile(usable, &environment, &limits(a)).expect("a matcher");
            assert_eq!(report.loaded + report.errors.len() + report.set_aside.len(), count, "a rule got lost");
            Arc::new(detect)
        })
        .collect()
}

/// Inspects an HTTP/1 conversation, packet by packet. Returns the alerts, by the rule's index, with their transaction.
fn conversation(detect: &Detect, state: &mut DetectState) -> Vec<(u32, Option<u64>)> {
    const TALK: [(Direction, &[u8]); 4] = [
        (Direction::ToServer, b"POST /a/index.php?id=1 HTTP/1.1\r\nHost: www.example.org\r\nUser-Agent: curl/8\r\n"),
        (Direction::ToServer, b"Content-Length: 9\r\n\r\nuser=root"),
        (Direction::ToClient, b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 20\r\n\r\n<html>MZ"),
        (Direction::ToClient, b"uid=0(root)\n"),
    ];
    let config = app_config();
    let mut flow = crate::talk::flow(6, 80);
    let mut shared = Shared::default();
    let mut left = [Vec::new(), Vec::new()];
    let http = margay_app::protocol(AppProto::Http1).expect("HTTP/1 has a parser");
    let mut parsers = [(http.parser)(&config, &flow)];
    let mut found = Vec::new();
    for (n, (dir, bytes)) in TALK.into_iter().enumerate() {
        let waiting = &mut left[dir.index()];
        waiting.extend_from_slice(bytes);
        let end = n + 1 == TALK.len();
        let mut cx = Parse { config: &config, shared: &mut shared, flow: &flow, time: Time(0), end, inline: false };
        let parsed = parsers[0].data(&mut cx, dir, waiting);
        waiting.drain(..parsed.consumed);
        let mut data = vec![0u8; 40];
        data[32] = 0x50;
        data.extend_from_slice(bytes);
        let frame = Frame { data: &data, wire_len: 40, time: Time(n as i64), link: LinkType::RAW, number: n as u64 };
        let mut p = Packet::new(&frame);
        p.l3 = L3::Ipv4 { offset: 0, header_len: 20, options: 0 };
        p.l4 = L4::Tcp { offset: 20, header_len: 20 };
        (p.proto, p.payload) = (6, (40, bytes.len() as u32));
        (p.src, p.dst, p.sport, p.dport) = match dir {
            Direction::ToServer => (flow.src, flow.dst, flow.sport, flow.dport),
            Direction::ToClient => (flow.dst, flow.src, flow.dport, flow.sport),
        };
        let chunks = [StreamChunk { data: bytes, offset: 0, seen: 0 }];
        let mut input = Input {
            flow: Some(&mut flow),
            dir: Some(dir),
            established: true,
            in_stream: true,
            chunks: &chunks,
            txs: Some(&mut parsers),
            files: Some(&mut shared.files),
            ..Input::new(&p)
        };
        input.app.flow = AppProto::Http1;
        input.app.side = [AppProto::Http1; 2];
        let _ = state.inspect(detect, &mut input);
        found.extend(state.alerts().iter().map(|a| (a.rule, a.tx_id)));
    }
    found
}

/// Rules: compiles any text as a rule file with all features of an engine, and inspects packets and a conversation. For a part of
/// the inputs, it also explains the rules: the explanation must find the same alerts, and must cover every packet.
pub fn rules(data: &[u8]) {
    // Rules may name files of lists. Skip files without an end.
    let endless = |w: &[u8]| w == b"/dev" || w.starts_with(b"/pro");
    if data.len() > INPUT_MAX || data.windows(4).any(endless) {
        return;
    }
    let loaded = margay_rules::load_bytes(data, "fuzz", context());
    assert!(loaded.accepted() <= context().max_rules);
    for e in &loaded.errors {
        let _ = e.to_string();
    }
    let explained = data.len().is_multiple_of(4).then(|| compiled(loaded.rules.clone(), &[], false));
    let sets = compiled(loaded.rules, &[], data.len().is_multiple_of(16));
    let mut found = Vec::new();
    for detect in &sets {
        let mut state = DetectState::new(detect).expect("scratch");
        found.push(conversation(detect, &mut state));
    }
    assert!(found.windows(2).all(|w| w[0] == w[1]), "matchers differ: {found:?}");
    for detect in explained.iter().flatten() {
        let all: Vec<u32> = (0..detect.rules().len() as u32).collect();
        let mut state = DetectState::explaining(detect, &all).expect("scratch");
        assert_eq!(found.first(), Some(&conversation(detect, &mut state)), "watched it is another one");
        for t in state.traces() {
            let said: u64 = t.matched + t.reasons.iter().map(|r| r.count).sum::<u64>();
            assert!(said >= t.packets, "{t:?}");
        }
    }
    const HTTP: &[u8] = b"GET /index.html?id=1 HTTP/1.1\r\nHost: example.org\r\nUser-Agent: abc\r\nContent-Length: 12\r\n\r\nuid=0(root)\n";
    const DNS: &[u8] = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03org\x00\x00\x01\x00\x01";
    inspected(&sets, &ip(6, HTTP), HTTP);
    inspected(&sets, &ip(17, DNS), DNS);
}

/// Inspection: the options of one rule up to the first newline, then the payload. The options are text or, if the first byte is
/// below 16, bytes that encode them.
pub fn inspect(data: &[u8]) {
    if data.len() > 16 << 10 {
        return;
    }
    let mut parts = data.splitn(2, |&b| b == b'\n');
    let (options, payload) = (parts.next().unwrap_or(&[]), parts.next().unwrap_or(&[]));
    let mut rule = b"alert ip any any -> any any (".to_vec();
    match options.split_first() {
        Some((0..16, rest)) => rule.extend_from_slice(spelled(rest).as_bytes()),
        _ => rule.extend_from_slice(options),
    }
    rule.extend_from_slice(b"; sid:1;)");
    let loaded = margay_rules::load_bytes(&rule, "fuzz", context());
    if loaded.rules.is_empty() {
        return;
    }
    let sets = compiled(loaded.rules, &[], data.len().is_multiple_of(16));
    inspected(&sets, &ip(17, payload), payload);
    inspected(&sets, &ip(6, payload), payload);
}

/// Decodes a rule's options from a few bytes each, because a fuzzer that changes letters rarely finds valid ones.
fn spelled(bytes: &[u8]) -> String {
    const WORDS: [&str; 12] = ["a", "b", "ab", "aa", "aba", "|00|", "|61 00|", "aaaa", "A", "bA", "|0d 0a|", "1"];
    const PCRE: [&str; 10] = [
        "/a/",
        "/a.*b/R",
        "/(a+)+b/s",
        "/^a/m",
        "/b$/R",
        "/(?=a)/R",
        "/a?/R",
        "/[^a]b/iR",
        "/(a|b){1,4}/R",
        "/(a)(b)/G",
    ];
    let mut out = String::new();
    let mut names = 0u8;
    let mut at = bytes.iter().copied();
    while let Some(kind) = at.next()
        && out.len() < 8000
    {
        let (a, b) = (at.next().unwrap_or(0), at.next().unwrap_or(0));
        let (x, y) = (i32::from(a as i8), i32::from(b as i8));
        let not = if kind & 0x80 != 0 { "!" } else { "" };
        let relative = if kind & 0x40 != 0 { ",relative" } else { "" };
        let endian = if kind & 0x20 != 0 { ",little" } else { "" };
        // A number, or an earlier variable.
        let value = |n: i32| if names > 0 && n & 7 == 7 { format!("v{}", n as u8 % names) } else { n.to_string() };
        let word = WORDS[usize::from(a) % WORDS.len()];
        let separator = if out.is_empty() { "" } else { "; " };
        out.push_str(separator);
        let _ = match kind & 0x0f {
            0 => write!(out, "content:{not}\"{word}\""),
            1 => write!(out, "content:{not}\"{word}\"; distance:{}", value(y)),
            2 => write!(out, "content:{not}\"{word}\"; within:{}", value(y)),
            3 => write!(out, "content:{not}\"{word}\"; distance:{}; within:{}", value(y >> 4), value(y & 15)),
            4 => write!(out, "content:{not}\"{word}\"; offset:{}; depth:{}; nocase", value(y >> 4), value(y & 31)),
            5 => write!(out, "pcre:{not}\"{}\"", PCRE[usize::from(a) % PCRE.len()]),
            6 => write!(out, "isdataat:{not}{}{relative}", value(x)),
            7 => write!(out, "byte_test:{},>,{},{}{relative}{endian}", 1 + (a & 7), b, value(y)),
            8 => write!(
                out,
                "byte_jump:{},{}{relative}{endian}{}",
                1 + (a & 7),
                value(y),
                if a & 8 != 0 { ",from_beginning,post_offset -3" } else { ",multiplier 2" }
            ),
            9 | 10 if names < 6 => {
                names += 1;
                let v = names - 1;
                if kind & 0x0f == 9 {
                    write!(out, "byte_extract:{},{y},v{v}{relative}{endian}", 1 + (a & 7))
                } else {
                    let operator = ['+', '-', '*', '/', '<'][usize::from(a >> 3) % 5];
                    write!(
                        out,
                        "byte_math:bytes {},offset {y},oper {operator}{},rvalue {},result v{v}{relative}",
                        1 + (a & 3),
                        if operator == '<' { "<" } else { "" },
                        u32::from(b) + 1
                    )
                }
            }
            11 => write!(out, "content:{not}\"{word}\"; startswith"),
            12 => write!(out, "content:{not}\"{word}\"; endswith"),
            13 => write!(out, "base64_decode:bytes {},offset {}{relative}; base64_data; content:\"a\"", b, a & 15),
            14 => write!(out, "ipv4.hdr; bsize:{}{}; pkt_data", [">", "<", ""][usize::from(a) % 3], b & 31),
            _ => write!(out, "content:\"{word}\"; fast_pattern"),
        };
    }
    out
}

/// The files that accompany rules; the first byte selects one.
pub fn lists(data: &[u8]) {
    let Some((&which, data)) = data.split_first() else { return };
    let text = String::from_utf8_lossy(data);
    match which % 4 {
        0 => {
            let (classes, _) = margay_rules::parse_classification(&text, "fuzz");
            assert!(classes.len() <= data.len());
        }
        1 => {
            let (references, _) = margay_rules::parse_references(&text, "fuzz");
            assert!(references.len() <= data.len());
        }
        2 => {
            let (thresholds, problems) = margay_rules::parse_thresholds(&text, "fuzz", &context().addresses);
            assert!(thresholds.len() + problems.len() <= data.len());
            let rule = b"alert ip any any -> any any (content:\"a\"; threshold:type limit,track by_src,count 1,seconds 60; sid:1;)\n\
                         alert udp any any -> any any (content:\"b\"; sid:2;)";
            let loaded = margay_rules::load_bytes(rule, "fuzz", context());
            assert_eq!(loaded.rules.len(), 2);
            let sets = compiled(loaded.rules, &thresholds, false);
            inspected(&sets, &ip(17, b"ab"), b"ab");
        }
        _ => reputation(&text),
    }
}

/// IP reputation: categories, then after a line `--` a list.
fn reputation(text: &str) {
    let (categories, list) = text.split_once("\n--\n").unwrap_or(("1,Bad,Bad hosts\n2,Worse,Worse", text));
    let mut builder = IpReputationBuilder::default();
    let _ = builder.categories("fuzz", categories);
    let _ = builder.list("fuzz", list);
    let reputation = builder.build();
    let _ = reputation.category("Bad");
    for id in 0..=u8::MAX {
        for a in [0, 0x0a00_0001, 0x7f00_0001, u32::MAX] {
            let score = reputation.score(id, IpAddr::V4(Ipv4Addr::from(a)));
            assert!(score.is_none_or(|s| s <= SCORE_MAX), "a score of {score:?}");
        }
        let _ = reputation.score(id, IpAddr::from([0xff; 16]));
        let _ = reputation.score(id, IpAddr::from([0; 16]));
    }
}
