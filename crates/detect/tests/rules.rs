//! Tests from rule text to checks: header buffers and payloads of single packets.
//!
//! The second half runs rules of the conformance cases on their captures (CONFORMANCE_CASES, or
//! ../shared/conformance/cases beside the repository) and prints a note if they are missing.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by it")]

use std::collections::BTreeMap;
use std::path::Path;

use margay_detect::buffer::{PacketBuffer, bytes};
use margay_detect::checks::{CheckEnv, CheckInput, CompiledCheck, Names};
use margay_detect::fast_pattern;
use margay_detect::inspect::{CompileError, CompiledBuffer, InspectContext, InspectLimits};
use margay_detect::pcre::PcreLimits;
use margay_detect::transform::{CompiledTransforms, TransformScratch};
use margay_flow::Direction;
use margay_packet::{DecodeConfig, Decoder, Frame, LinkType, Packet, Time};
use margay_rules::ast::{Protocol, Rule};
use margay_rules::{Context, load_str};

struct Compiled {
    sid: u32,
    protocol: Protocol,
    checks: Vec<CompiledCheck>,
    buffers: Vec<(PacketBuffer, CompiledTransforms, CompiledBuffer)>,
}

fn load(text: &str) -> Vec<Rule> {
    let loaded = load_str(text, "test.rules", &Context::default());
    assert!(loaded.errors.is_empty(), "{:?}", loaded.errors);
    loaded.rules
}

fn compile(rule: &Rule) -> Compiled {
    let (mut names, sets) = (Names::default(), margay_detect::dataset::Datasets::default());
    let none = |_: &str| None;
    let mut env =
        CheckEnv { names: &mut names, stream_event: &none, reputation_category: &none, sets: &sets, countries: None };
    Compiled {
        sid: rule.sid,
        protocol: rule.protocol.clone(),
        checks: rule.checks.iter().map(|c| CompiledCheck::compile(c, &mut env).expect("compiles")).collect(),
        buffers: rule
            .buffers
            .iter()
            .map(|b| {
                let transforms = CompiledTransforms::compile(&b.transforms, PcreLimits::default());
                (
                    PacketBuffer::from_name(&b.buffer).expect("a buffer of the packet"),
                    transforms.expect("compiles"),
                    CompiledBuffer::compile(b, &InspectLimits::default()).expect("compiles"),
                )
            })
            .collect(),
    }
}

struct Scratch {
    inspect: InspectContext,
    transform: TransformScratch,
}

fn matches(rule: &Compiled, p: &Packet<'_>, s: &mut Scratch) -> bool {
    let right = match rule.protocol {
        Protocol::Tcp | Protocol::TcpPacket => p.is_tcp(),
        Protocol::Udp => p.proto == 17,
        Protocol::Icmp => matches!(p.proto, 1 | 58),
        _ => true,
    };
    let input = CheckInput::new(p, None, Direction::ToServer);
    s.inspect.variables.fill(0);
    right
        && rule.checks.iter().all(|c| c.holds(&input))
        && rule.buffers.iter().all(|(buffer, transforms, checks)| {
            let Some(data) = bytes(*buffer, p).filter(|d| !d.is_empty()) else { return false };
            let data = transforms.apply(data, &mut s.transform, s.inspect.pcre_scratch());
            checks.matches(data, &mut s.inspect)
        })
}

/// How many packets of these frames each rule matches.
fn count(rules: &[Compiled], link: LinkType, frames: &[Vec<u8>]) -> BTreeMap<u32, u32> {
    let mut decoder = Decoder::new(DecodeConfig::default());
    let mut s = Scratch { inspect: InspectContext::default(), transform: TransformScratch::default() };
    let mut out: BTreeMap<u32, u32> = rules.iter().map(|r| (r.sid, 0)).collect();
    for (i, data) in frames.iter().enumerate() {
        let frame =
            Frame { data, wire_len: data.len() as u32, time: Time::new(i as i64, 0), link, number: i as u64 + 1 };
        decoder.decode(&frame, &mut |p: &Packet<'_>| {
            for r in rules {
                if matches(r, p, &mut s) {
                    *out.entry(r.sid).or_default() += 1;
                }
            }
        });
    }
    out
}

fn udp(payload: &[u8]) -> Vec<u8> {
    let mut p = vec![0x45, 0, 0, 0, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0x30, 0x39, 0, 99, 0, 0, 0, 0];
    p[2..4].copy_from_slice(&(28 + payload.len() as u16).to_be_bytes());
    p[24..26].copy_from_slice(&(8 + payload.len() as u16).to_be_bytes());
    p.extend_from_slice(payload);
    p
}

/// Rule options, a payload, and whether Suricata alerts.
#[test]
fn rule_text_on_payloads() {
    let table: &[(&str, &[u8], bool)] = &[
        ("content:\"|00 05|\"; byte_test:1,^,5,1;", b"\x00\x05\xff", false),
        ("byte_test:1,^,4,1;", b"\x00\x05\xff", true),
        ("byte_jump:1,0,align; content:\"e\"; distance:0; within:1;", b"\x02abcdefgh", true),
        ("byte_jump:0,0,from_end, post_offset -2; content:\"g\"; distance:0; within:1;", b"\x02abcdefgh", true),
        ("byte_extract:1,0,x; content:\"c\"; distance:x; within:1;", b"\x02abcdefgh", true),
        ("byte_extract:1,0,x; content:\"c\"; distance:0; within:x;", b"\x02abcdefgh", false),
        ("byte_math:bytes 1,offset 0,oper +,rvalue 1,result y; content:\"c\"; offset:y; depth:1;", b"\x02abcdef", true),
        ("content:\"x\"; content:!\"A\"; within:1; content:!\"B\"; within:1; isdataat:1,relative;", b"xAxBxAxC", true),
        ("content:\"x\"; content:!\"q\"; content:\"C\"; distance:0; within:1;", b"xAxBxAxC", false),
        ("content:\"abc\"; nocase; startswith; endswith;", b"aBC", true),
        ("content:\"a\"; pcre:\"/^B/Ri\";", b"ab", true),
        ("pcre:\"/A/\"; content:\"C\"; distance:1; within:1;", b"xAxBxAxC", true),
        ("content:\"k=\"; base64_decode:relative; base64_data; content:\"hello\"; startswith;", b"k=aGVsbG8=", true),
        ("content:\"k=\"; base64_decode:relative; base64_data; content:\"hello\";", b"k=aGVs bG8=", false),
        ("udp.hdr; to_sha256; bsize:32;", b"x", true),
        ("udp.hdr; content:\"|00 09|\"; offset:4; depth:2; content:\"|00 00|\"; distance:0; within:2;", b"x", true),
        ("dsize:2<>4; content:\"b\"; offset:1; depth:1;", b"abc", true),
        ("dsize:!3; content:\"b\";", b"abc", false),
        ("ttl:<65; content:\"ab\"; ipv4.hdr; content:\"|40 11|\"; offset:8; depth:2;", b"ab", true),
    ];
    for (options, payload, want) in table {
        let rules = load(&format!("alert udp any any -> any any (msg:\"t\"; {options} sid:1;)"));
        let Some(rule) = rules.first() else { panic!("{options}: not loaded") };
        let got = count(&[compile(rule)], LinkType::RAW, &[udp(payload)]);
        assert_eq!(got[&1] == 1, *want, "{options} on {}", payload.escape_ascii());
    }
}

/// A rule's fast pattern occurs in every payload that the rule matches.
#[test]
fn fast_patterns_of_rule_text() {
    let best = |options: &str| {
        let rules = load(&format!("alert udp any any -> any any (msg:\"t\"; {options} sid:1;)"));
        fast_pattern::choose(&rules[0], &|_| true, &|_| 0).map(|f| String::from_utf8(f.bytes).expect("text"))
    };
    assert_eq!(best("content:\"ab\"; content:\"abcd\"; content:!\"abcdef\";").as_deref(), Some("abcd"));
    assert_eq!(best("content:\"ab\"; fast_pattern; content:\"abcd\";").as_deref(), Some("ab"));
    assert_eq!(best("content:\"abcdef\"; fast_pattern:2,3;").as_deref(), Some("cde"));
    assert_eq!(best("pcre:\"/a/\";"), None);
}

/// The link type and frames of a classic pcap file in either byte order.
fn pcap(path: &Path) -> (LinkType, Vec<Vec<u8>>) {
    let bytes = std::fs::read(path).expect("a capture");
    let little = bytes[0] == 0xd4 || bytes[0] == 0x4d;
    let word = |at: usize| {
        let b: [u8; 4] = bytes[at..at + 4].try_into().expect("four");
        if little { u32::from_le_bytes(b) } else { u32::from_be_bytes(b) }
    };
    let mut frames = Vec::new();
    let mut at = 24;
    while at + 16 <= bytes.len() {
        let n = word(at + 8) as usize;
        frames.push(bytes[at + 16..at + 16 + n].to_vec());
        at += 16 + n;
    }
    (LinkType(word(20)), frames)
}

/// Rules, a capture, and the number of matches of each rule.
type Case = (&'static str, &'static str, &'static [(u32, u32)]);

/// Cases in which every rule inspects single packets: the rules, the capture, and the number of matches of each.
#[test]
fn conformance_cases_of_packets() {
    let Some(dir) = margay_testing::conformance_cases() else { return };
    let table: &[Case] = &[
        (
            "byte-extract-01/test.rules",
            "byte-extract-01/input.pcap",
            &[(1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (6, 1), (7, 1), (8, 1), (9, 1), (10, 1)],
        ),
        ("detect-bytetest-01/test.rules", "byte-extract-01/input.pcap", &[(1, 1), (2, 1), (3, 1), (4, 1), (5, 1)]),
        ("detect-bytemath-add-04/test.rules", "detect-bytemath-01/input.pcap", &[(1, 1), (2, 1), (3, 1)]),
        ("detect-bytemath-sub-03/test.rules", "detect-bytemath-01/input.pcap", &[(1, 1), (2, 1), (3, 1)]),
        ("detect-bytemath-mult-04/test.rules", "detect-bytemath-01/input.pcap", &[(1, 1)]),
        ("detect-bytemath-div-01/test.rules", "detect-bytemath-01/input.pcap", &[(1, 0)]),
        ("ipv4-hdr-keyword/test.rules", "ipv4-hdr-keyword/input.pcap", &[(1234, 1)]),
        ("ipv6-hdr-keyword-01/test.rules", "ipv6-hdr-keyword-01/input.pcap", &[(1234, 1)]),
        ("tcp-hdr-keyword/test.rules", "tcp-hdr-keyword/input.pcap", &[(1234, 1)]),
        ("udp-hdr-keyword/test.rules", "udp-hdr-keyword/input.pcap", &[(1234, 1)]),
        ("icmp-hdr-01/input.rules", "bug-2190/input.pcap", &[(1, 1)]),
        ("icmp-hdr-02/input.rules", "icmp-hdr-02/input.pcap", &[(1, 1)]),
        ("issue-3267-tcphdr/test.rules", "issue-3267-tcphdr/input.pcap", &[(1, 1), (2, 1), (3, 1), (4, 1)]),
    ];
    let mut wrong = Vec::new();
    for (rules, capture, want) in table {
        let Ok(text) = std::fs::read_to_string(dir.join(rules)) else {
            wrong.push(format!("{rules}: not there"));
            continue;
        };
        let Some(capture) = std::fs::read_dir(dir.join(capture).parent().expect("a case"))
            .expect("a case")
            .filter_map(Result::ok)
            .map(|e| e.path())
            .find(|p| p.extension().is_some_and(|e| e == "pcap"))
        else {
            wrong.push(format!("{capture}: not there"));
            continue;
        };
        let compiled: Vec<Compiled> = load(&text).iter().map(compile).collect();
        let (link, frames) = pcap(&capture);
        let got = count(&compiled, link, &frames);
        for (sid, n) in *want {
            if got.get(sid) != Some(n) {
                wrong.push(format!("{rules}: rule {sid} matched {:?}, not {n}", got.get(sid)));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Every rule of the cases compiles, or the error names the feature that this build lacks.
#[test]
fn rules_of_all_cases_compile() {
    let Some(dir) = margay_testing::conformance_cases() else { return };
    let mut ctx = Context::default();
    ctx.available.extend(margay_rules_features());
    let (mut rules, mut buffers, mut unsupported) = (0, 0, BTreeMap::new());
    for case in std::fs::read_dir(dir).expect("cases").filter_map(Result::ok) {
        let Ok(files) = std::fs::read_dir(case.path()) else { continue };
        for file in
            files.filter_map(Result::ok).map(|f| f.path()).filter(|p| p.extension().is_some_and(|e| e == "rules"))
        {
            let Ok(text) = std::fs::read(&file) else { continue };
            let loaded = margay_rules::load_bytes(&text, &file.display().to_string(), &ctx);
            for rule in loaded.rules.iter().chain(&loaded.set_aside) {
                rules += 1;
                let _ = fast_pattern::choose(rule, &|_| true, &|_| 0);
                for b in &rule.buffers {
                    buffers += 1;
                    let result = CompiledTransforms::compile(&b.transforms, PcreLimits::default())
                        .and_then(|_| CompiledBuffer::compile(b, &InspectLimits::default()));
                    match result {
                        Ok(_) => {}
                        Err(CompileError::Unsupported { keyword, .. }) => *unsupported.entry(keyword).or_insert(0) += 1,
                        Err(e) => panic!("{}: rule {}: {e}", file.display(), rule.sid),
                    }
                }
            }
        }
    }
    eprintln!("{rules} rules, {buffers} buffers; not in this build: {unsupported:?}");
    assert!(rules > 1000);
}

fn margay_rules_features() -> impl Iterator<Item = String> {
    margay_rules::FEATURES.iter().map(|f| f.0.to_owned())
}
