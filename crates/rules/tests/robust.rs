//! Arbitrary text as a rule file: no panic, no hang, and every rule is accounted for.

use margay_rules::{Context, load_bytes, parse_classification, parse_references, parse_thresholds};
use proptest::prelude::*;

fn context() -> Context {
    let mut c = Context::default();
    c.addresses.insert("HOME_NET".into(), "[10.0.0.0/8,!10.1.0.0/16]".into());
    c.addresses.insert("EXTERNAL_NET".into(), "!$HOME_NET".into());
    c.addresses.insert("A".into(), "[$B,$B,$B,$B,$B,$B,$B,$B]".into());
    c.addresses.insert("B".into(), "[$A,$A,$A,$A,$A,$A,$A,$A]".into());
    c.ports.insert("P".into(), "[$P,$P]".into());
    c
}

/// Fragments of rules, so that random combinations get past the first check.
const PIECES: &[&str] = &[
    "content:\"abc\";",
    "content:!\"a|00 01|b\";",
    "http_uri;",
    "http.uri;",
    "pkt_data;",
    "file.data;",
    "depth:5;",
    "offset:1;",
    "distance:-3;",
    "within:10;",
    "startswith;",
    "endswith;",
    "fast_pattern;",
    "fast_pattern:only;",
    "fast_pattern:0,1;",
    "nocase;",
    "rawbytes;",
    "pcre:\"/a(b)c/Ri,flow:x\";",
    "pcre:\"/[/U\";",
    "byte_test:1,>,v,0;",
    "byte_extract:1,0,v,relative;",
    "byte_math:bytes 1, offset 0, oper +, rvalue v, result w;",
    "byte_jump:2,0,relative;",
    "isdataat:v,relative;",
    "bsize:<5;",
    "base64_decode:bytes 5;",
    "base64_data;",
    "to_md5;",
    "dotprefix;",
    "xor:\"0a\";",
    "absent;",
    "absent:or_else;",
    "prefilter;",
    "dsize:1<>9;",
    "flow:established,to_server;",
    "flags:S,12;",
    "ttl:<5;",
    "threshold:type limit, track by_src, count 1, seconds 2;",
    "tag:session;",
    "flowbits:set,a|b;",
    "flowint:ab,+,1;",
    "xbits:set,a,track ip_src;",
    "requires:version >= 8;",
    "sid:1;",
    "rev:2;",
    "msg:\"x\";",
    "metadata:a b, c;",
    "uricontent:\"x\";",
    "urilen:3;",
    "replace:\"abc\";",
    "entropy:value > 3.5;",
    "config:logging disable, type tx, scope tx;",
    ";",
    "|",
    "\"",
    "\\",
    "http_method;",
    "dce_stub_data;",
    "frame:smb.data;",
    "ip_proto:!6;",
    "app-layer-protocol:!http;",
    "geoip:src,RU;",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_bytes(text in prop::collection::vec(any::<u8>(), 0..400)) {
        load_bytes(&text, "x", &context());
        let text = String::from_utf8_lossy(&text);
        parse_classification(&text, "x");
        parse_references(&text, "x");
        parse_thresholds(&text, "x", &context().addresses);
    }

    #[test]
    fn any_options(pick in prop::collection::vec(0..PIECES.len(), 0..14), header in 0..6usize) {
        let header = [
            "alert tcp $HOME_NET any -> $EXTERNAL_NET any", "alert http any any => any any", "drop ip any any <> any any",
            "alert tcp $A any -> any any", "alert tcp any $P -> any any", "accept:flow,alert dns:<request_complete any any -> any any",
        ][header];
        let body: Vec<_> = pick.into_iter().map(|i| PIECES[i]).collect();
        let l = load_bytes(format!("{header} ({} sid:7;)", body.join(" ")).as_bytes(), "x", &context());
        prop_assert_eq!(l.accepted() + l.errors.len() + l.skipped.len(), 1);
        for e in &l.errors {
            prop_assert!(!e.messages.is_empty());
            prop_assert!(e.silent || e.messages.last().is_some_and(|m| m.text.starts_with("error parsing signature")));
        }
    }

    #[test]
    fn any_header(header in "(alert|pass|[a-z:,]{0,8}) (tcp|ip|[a-z0-9:-]{0,6}) [\\[\\]!$,/:.0-9a-zA-Z -]{0,60}") {
        load_bytes(format!("{header} (sid:1;)").as_bytes(), "x", &context());
    }
}

#[test]
fn long_and_deep() {
    let c = context();
    let deep = format!("alert tcp {}1.2.3.4{} any -> any any (sid:1;)", "[".repeat(5000), "]".repeat(5000));
    assert_eq!(load_bytes(deep.as_bytes(), "x", &c).failed(), 1);
    let long = format!("alert tcp any any -> any any (msg:\"{}\"; sid:1;)", "x".repeat(100_000));
    let l = load_bytes(long.as_bytes(), "x", &c);
    assert_eq!(l.failed(), 1);
    assert!(l.errors[0].messages[0].text.contains("longer than"));
    let many = "\\\n".repeat(100_000);
    load_bytes(many.as_bytes(), "x", &c);
    let joined = format!(
        "alert tcp any any -> any any \\\r\n  (msg:\"a\"; \\\r\n sid:1;)\r\n# x\r\n{}",
        "alert tcp any any -> any any (sid:2;)"
    );
    let l = load_bytes(joined.as_bytes(), "x", &c);
    assert_eq!(l.rules.iter().map(|r| (r.sid, r.place.line)).collect::<Vec<_>>(), [(1, 1), (2, 5)]);
}
