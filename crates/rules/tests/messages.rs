//! Invalid rules, with the log module and text for each.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by it")]

use margay_rules::ast::{BufferCheck, Check, Effect};
use margay_rules::{Context, Loaded, Severity, StrictKeywords, load_str};

fn load(rules: &str) -> Loaded {
    load_str(rules, "x.rules", &Context::default())
}

/// The messages for a rule with these options, without the final line.
fn said(options: &str) -> Vec<(&'static str, String)> {
    let header = if options.starts_with("alert ") { "" } else { "alert tcp any any -> any any " };
    let rule = if header.is_empty() { options.to_owned() } else { format!("{header}({options} sid:1;)") };
    let l = load(&rule);
    let e = l.errors.first().unwrap_or_else(|| panic!("{rule} was taken"));
    let (last, rest) = e.messages.split_last().unwrap();
    assert_eq!(last.module, "detect");
    assert_eq!(last.text, format!("error parsing signature \"{rule}\" from file x.rules at line 1"));
    rest.iter().map(|m| (m.module, m.text.clone())).collect()
}

#[test]
fn keywords_that_a_setting_turns_off() {
    let context = Context { off: ["ja3"].into(), ..Context::default() };
    for (options, loads) in [
        ("ja3.hash; content:\"a\";", false),
        ("ja3s.string; content:\"a\";", false),
        ("ja4.hash; content:\"a\";", true),
    ] {
        let l = load_str(&format!("alert tls any any -> any any ({options} sid:1;)"), "x.rules", &context);
        assert_eq!(l.errors.is_empty(), loads, "{options}");
        assert_eq!(loads, !l.errors.iter().any(|e| e.messages[0].text.ends_with("ja3 support is not enabled")));
    }
}

#[test]
fn content_and_its_modifiers() {
    for (options, module, text) in [
        ("content:\"|1\";", "detect-content", "Invalid hex code assembly in content - |1.  Invalidating signature."),
        ("content:\"a\"\";", "detect-content", "Invalid unescaped double quote within content section."),
        ("content:AA;", "detect-parse", "invalid formatting to content keyword: value must be double quoted 'content'"),
        (
            "content:\"AA\"; content:\"BB\"; within:3; within:3;",
            "detect-within",
            "can't use multiple withins for the same content.",
        ),
        (
            "content:\"AA\"; content:\"BB\"; depth:50; distance:5;",
            "detect-distance",
            "can't use a relative keyword like within/distance with a absolute relative keyword like depth/offset for the same content.",
        ),
        (
            "content:\"a\"; content:!\"b\"; fast_pattern; offset:6;",
            "detect-offset",
            "can't have a relative negated keyword set along with 'fast_pattern'.",
        ),
        (
            "content:\"a\"; content:\"b\"; fast_pattern:only; offset:6;",
            "detect-offset",
            "can't have a relative keyword set along with 'fast_pattern:only;'.",
        ),
        ("content:\"a\"; offset:2; startswith;", "detect-depth", "can't mix offset with startswith."),
        ("content:\" \"; within:1048577;", "detect-within", "invalid value for within: 1048577"),
        ("content:\" \"; distance:-1048577;", "detect-distance", "invalid value for distance: -1048577"),
        ("content:\"Alice\"; depth:d;", "detect-depth", "unknown byte_ keyword var seen in depth - d."),
        (
            "dsize:50; content:\"AA\"; offset:100;",
            "detect-content",
            "signature can't match as required content length 102 exceeds dsize value 50",
        ),
        (
            "dsize:5<>10; content:\"AAAA\"; offset:8;",
            "detect-content",
            "signature can't match as required content length 12 exceeds dsize value 10",
        ),
        (
            "dsize:16; content:\"abcdef\"; startswith; content:!\"a\"; distance:0; content:\"789\"; distance:0; content:!\"c\"; distance:1; within:10;",
            "detect-content",
            "signature can't match as required content length 20 exceeds dsize value 16",
        ),
        (
            "http.uri; content:\"abcdefgh123456\"; bsize:10<>13;",
            "detect-bsize",
            "signature can't match as required content length 14 exceeds bsize range: 10-13",
        ),
        (
            "http.uri; content:\"abc\"; offset:3; depth:3; bsize:3;",
            "detect-bsize",
            "signature can't match as required content length 6 exceeds bsize value: 3",
        ),
        (
            "http.uri; base64_decode; base64_data; content:\"a\"; fast_pattern;",
            "detect-fast-pattern",
            "fast_pattern cannot be used with base64_data",
        ),
        (
            "file.data; strip_whitespace; content:\"a b\";",
            "detect-content",
            "content string \"a b\" incompatible with strip_whitespace transform",
        ),
        (
            "http.uri; pcre:\"/a/P\";",
            "detect-pcre",
            "Expression seen with a sticky buffer still set; either (1) reset sticky buffer with pkt_data or (2) use a sticky buffer providing \"http request body\".",
        ),
        ("pcre:\"/(a/\";", "detect-pcre", "pcre2 compile of \"/(a/\" failed at offset 2: missing closing parenthesis"),
        (
            "ipv4.hdr; byte_math:bytes 1, offset 1, oper <<, rvalue 2, result r, relative;",
            "detect-bytemath",
            "relative specified without previous pattern match",
        ),
        (
            "byte_extract:1,4,len; http.connection; byte_jump:len,0;",
            "detect-bytejump",
            "Unknown byte_extract var seen in byte_jump - len",
        ),
        (
            "http.uri; pcrexform; content:\"a\";",
            "detect-parse",
            "invalid formatting or malformed option to pcrexform keyword: 'pcrexform'",
        ),
        ("foo:bar;", "detect-parse", "unknown rule keyword 'foo'."),
        (
            "flow:to_client; http.uri; content:\"a\";",
            "detect-parse",
            "rule 1 mixes keywords with conflicting directions",
        ),
        ("decode-event:foo;", "detect", "unknown decode event \"decoder.foo\""),
    ] {
        assert_eq!(said(options), [(module, text.to_owned())], "{options}");
    }
}

#[test]
fn headers() {
    for (rule, text) in [
        ("alert smb any any -> any any (ja4.hash; content:\"q\"; sid:1;)", "rule contains conflicting protocols"),
        (
            "alert tcp !any any -> any any (sid:1;)",
            "Complete IP space negated. Rule address range is NIL. Probably have a !any or an address range that supplies a NULL address range",
        ),
        ("alert tcp any any -> any 65536 (sid:1;)", " failed to parse port \"65536\""),
        (
            "alert tcp any any <- any any (sid:1;)",
            "\"<-\" is not a valid direction modifier, \"->\" and \"<>\" are supported.",
        ),
    ] {
        assert_eq!(said(rule)[0].1, text);
    }
}

#[test]
fn an_event_that_is_no_more() {
    let rule = "alert pkthdr any any -> any any (decode-event:udp.hlen_invalid; sid:1;)";
    let text = "decode-event keyword no longer supports event \"decoder.udp.hlen_invalid\"";
    let l = load(rule);
    assert_eq!((l.failed(), l.accepted(), l.errors.len()), (0, 0, 1));
    let m = &l.errors[0].messages;
    assert_eq!((m.len(), m[0].severity, m[0].module, m[0].text.as_str()), (1, Severity::Warning, "detect", text));
    let l = load_str(rule, "x", &Context { strict: StrictKeywords::parse("all"), ..Context::default() });
    assert_eq!((l.failed(), l.errors[0].messages[0].severity), (1, Severity::Error));
}

#[test]
fn a_misspelt_event_is_named() {
    let available = ["app-layer", "http"].map(str::to_owned);
    let context = Context { available: available.into(), check_events: true, ..Context::default() };
    let rule = "alert http any any -> any any (app-layer-event:http.bogus; sid:1;)";
    let l = load_str(rule, "x", &context);
    let m = &l.errors[0].messages[0];
    assert_eq!((l.failed(), m.severity), (0, Severity::Warning));
    assert!(m.text.contains("doesn't have event \"bogus\" registered"), "{}", m.text);
    let strict = Context { strict: StrictKeywords::parse("app-layer-event"), ..context.clone() };
    assert_eq!(load_str(rule, "x", &strict).failed(), 1);
    let known = "alert http any any -> any any (app-layer-event:http.unable_to_match_response_to_request; sid:1;)";
    assert_eq!(load_str(known, "x", &context).rules.len(), 1);
}

#[test]
fn lines_of_a_file() {
    let l = load(
        "alert tcp any any -> any any (ttl:5; \\ \t\n sid:1;)\n\
         # alert tcp any any -> any any (msg:\"old\"; \\\n    ttl:6; sid:2;)\n\
         \talert tcp any any -> any any (ttl:7; sid:3;)\nalert tcp any any -> any any (ttl:8; sid:4;)\n",
    );
    assert_eq!(l.rules.iter().map(|r| r.sid).collect::<Vec<_>>(), [1, 3, 4]);
    assert!(l.errors.is_empty());
}

/// As Suricata 7 takes and refuses them; the manual says nothing.
#[test]
fn lenient_forms() {
    let context = Context { available: ["app-layer", "http"].map(str::to_owned).into(), ..Context::default() };
    for (loads, options) in [
        (true, "http.uri; to_lowercase; content:\"mixed\"; content:!\"MiXeD\";"),
        (false, "http.uri; to_lowercase; content:\"MiXeD\";"),
        (true, "http.uri; strip_whitespace; content:!\"a b\"; content:\"c\";"),
        (true, "http.response_body; content:\"resp\"; http.header.raw; content:\"srv\";"),
        (true, "content:\"a\"; base64_decode:relative,bytes 8; base64_data; content:\"t\";"),
        (false, "content:\"a\"; base64_decode:offset 2,bytes 8; base64_data; content:\"t\";"),
        (true, "content:\"|61, 62|\";"),
        (false, "content:\"|61-62|\";"),
        (true, "content:\"abc\"; fast_pattern:only,1;"),
        (true, "content:\"a\"; threshold:type limit,track by_src,count 1,seconds 1m;"),
        (false, "content:\"a\"; threshold:type limit,track by_src,count 1x,seconds 1;"),
        (true, "content:\"a\"; threshold:type limit,track by_src,count 1,seconds 60,multiplier 2;"),
        (false, "content:\"a\"; threshold:type both,track by_flow,count 5,multiplier 2;"),
        (true, "content:\"a\"; threshold:type backoff,track by_flow,count 5,multiplier 2;"),
        (true, "pcre:\"/abc/i,flow:x\";"),
        (false, "pcre:\"/a(b)c/i,flow:x,flow:y\";"),
        (true, "urilen:6,foo;"),
        (true, "file.data; entropy:7.01;"),
        (false, "file.data; entropy:much;"),
        (true, "content:\"a\"; requires:version>=7;"),
    ] {
        let l = load_str(&format!("alert http any any -> any any ({options} sid:1;)"), "x", &context);
        assert_eq!((l.accepted() == 1, l.failed() == 0), (loads, loads), "{options}: {:?}", l.errors);
    }
}

#[test]
fn the_higher_revision_stays() {
    let l = load(
        "alert tcp any any -> any any (ttl:5; sid:2;)\nalert tcp any any -> any any (ttl:6; sid:2; rev:2;)\n\
         alert tcp any any -> any any (ttl:7; sid:2; rev:1;)\nalert tcp any any -> any any (ttl:8; sid:2; gid:3;)\n",
    );
    assert_eq!(l.rules.iter().map(|r| (r.gid, r.sid, r.rev)).collect::<Vec<_>>(), [(1, 2, 2), (3, 2, 0)]);
    assert_eq!((l.replaced, l.failed()), (1, 1));
    assert!(l.errors[0].messages[0].text.starts_with("Duplicate signature \""));
    assert!(l.warnings[0].message.text.starts_with("Signature with newer revision"));
}

#[test]
fn what_is_required_comes_first() {
    let l = load(
        "alert vxlan any any -> any any (requires: version >= 10; sid:1;)\n\
         alert udp any any -> any any (vxlan_vni:10; requires: version >= 10; sid:2;)\n\
         alert tcp any any -> any any (requires: version >= 8.0.0, keyword sid; sid:3;)\n\
         alert tcp any any -> any any (requires: foo bar; sid:4;)\n",
    );
    assert_eq!((l.rules.len(), l.skipped.len(), l.errors.len()), (1, 3, 0));
}

#[test]
fn buffers_and_old_modifiers() {
    let ctx = Context { available: ["http".to_owned()].into(), ..Context::default() };
    let l = load_str(
        "alert http any any -> any any (content:\"x\"; content:\"/a\"; http_uri; content:\"b\"; http_uri; distance:0; \
         pcre:\"/c/UR\"; http.method; content:\"GET\"; http.uri; content:\"d\"; sid:1;)",
        "x",
        &ctx,
    );
    let r = &l.rules[0];
    let shape: Vec<_> = r.buffers.iter().map(|b| (b.buffer.as_str(), b.checks.len(), b.app)).collect();
    assert_eq!(shape, [("payload", 1, false), ("http.uri", 4, true), ("http.method", 1, true)]);
    assert!(matches!(&r.buffers[1].checks[1], BufferCheck::Content(c) if c.distance.is_some()));
}

#[test]
fn rules_of_what_is_not_here_are_set_aside() {
    let l = load("alert http any any -> any any (http.uri; content:\"a\"; filestore; ttl:5; sid:1;)");
    assert_eq!(l.failed(), 1, "packet and state matches do not mix");
    let l = load("alert http any any -> any any (http.uri; content:\"a\"; filestore; sid:1;)");
    assert_eq!(l.set_aside[0].missing, ["http", "http.uri", "filestore"]);
    assert!(matches!(l.set_aside[0].effects[0], Effect::FileStore { .. }));
}

#[test]
fn prefilter_stands_behind_its_check() {
    let l = load("alert ip any any -> any any (flow:established; ttl:5; prefilter; sid:1;)");
    let r = &l.rules[0];
    assert!(matches!(r.prefilter.and_then(|n| r.checks.get(n)), Some(Check::Ttl(_))));
}

/// Options that Suricata 8 accepts (`+`) and rejects (`-`), from ../shared/differential.
#[test]
fn taken_and_refused() {
    let http = "alert http any any -> any any";
    let both = "alert http any any => any any";
    let tls = "alert tls any any -> any any";
    let tcp = "alert tcp any any -> any any";
    let quic = "alert quic any any -> any any";
    for (header, options) in [
        // Directions of keywords, and of the flow.
        (http, "- flow:to_client; urilen:>5;"),
        (http, "+ flow:to_server; urilen:>5;"),
        (tls, "- flow:to_server; tls_cert_notafter:>2015;"),
        ("alert ike any any -> any any", "- flow:to_server; ike.resp_spi; content:\"a\";"),
        ("alert smb any any -> any any", "- flow:to_client; smb.named_pipe; content:\"a\";"),
        (http, "- http.header.raw; content:\"a\";"),
        (http, "- flow:established; http.uri; content:\"a\"; http.header.raw; content:\"a\";"),
        (http, "+ flow:to_client; http.header.raw; content:\"a\";"),
        (http, "+ http.header.raw; to_lowercase; content:\"a\";"),
        (http, "+ flow:to_server; http.response_body; content:\"a\";"),
        (http, "- flow:to_server; http.response_body; content:\"a\"; http.server; content:\"a\";"),
        // Transaction rules.
        (both, "- http.uri; content:\"a\";"),
        (both, "+ http.uri; content:\"a\"; http.stat_code; content:\"200\";"),
        (both, "- flow:to_server; http.uri; content:\"a\"; http.stat_code; content:\"200\";"),
        (both, "- http.uri; content:\"a\"; http.stat_code; content:\"200\"; http.connection; content:\"a\";"),
        (both, "+ http.uri; content:\"a\"; http.connection: to_client; content:\"a\";"),
        (both, "+ http.connection: to_server; content:\"a\"; http.connection: to_client; content:\"a\";"),
        (both, "+ http.uri; content:\"a\"; filesize: to_client, <100;"),
        (both, "- http.uri; content:\"a\"; http.stat_code; content:\"200\"; filesize:<100;"),
        ("alert tcp any any => any any", "- content:\"a\";"),
        (http, "- frame:http1.request; content:\"a\"; http.uri; content:\"a\";"),
        (http, "- frame:http1.request; content:\"a\"; pkt_data; content:\"a\";"),
        (http, "+ frame:stream; content:\"a\";"),
        (tcp, "- frame:stream; content:\"a\";"),
        (tcp, "+ frame:http1.stream; content:\"a\";"),
        ("alert icmp any any -> any any", "- frame:http1.stream; content:\"a\";"),
        // Numbers.
        (tcp, "- dsize:>=0;"),
        (tcp, "- dsize:<=65535;"),
        (tcp, "+ dsize:<=65534;"),
        (http, "+ urilen:5-5;"),
        (http, "+ urilen:9<>4;"),
        (tcp, "- dsize:5-5;"),
        // Repeated options.
        (tcp, "+ flow:to_server; flow:to_server;"),
        (tcp, "+ flow:to_server; flow:established;"),
        (tcp, "- flow:established; flow:to_server;"),
        (tcp, "- flow:no_frag; flow:no_frag;"),
        (tcp, "+ content:\"abc\"; fast_pattern:0,2; fast_pattern:0,2;"),
        (tcp, "- content:\"abc\"; fast_pattern; fast_pattern;"),
        (tcp, "- content:\"abc\"; fast_pattern; http.uri; content:\"d\"; fast_pattern;"),
        (tcp, "+ http.uri; content:\"abc\"; fast_pattern; content:\"d\"; fast_pattern;"),
        (tcp, "+ http.uri; content:\"abc\"; fast_pattern; http.host; content:\"d\"; fast_pattern;"),
        (tcp, "+ http.uri; content:\"abc\"; fast_pattern; pkt_data; content:\"d\"; fast_pattern;"),
        (tcp, "- content:!\"abc\"; depth:9; fast_pattern:0,2;"),
        (tcp, "+ content:!\"abc\"; fast_pattern:0,2;"),
        (tcp, "- content:\"abc\"; http_uri; rawbytes;"),
        (tcp, "+ content:\"x\"; content:\"abc\"; http_uri; rawbytes;"),
        // Sizes: the distance of the first content counts.
        (http, "- http.uri; content:\"abc\"; distance:2; bsize:4;"),
        (http, "+ http.uri; content:\"abc\"; distance:-2; bsize:2;"),
        (tcp, "- content:\"abc\"; distance:2; dsize:4;"),
        // Header buffers of another protocol.
        ("alert udp any any -> any any", "- tcp.hdr; content:\"a\";"),
        ("alert icmpv6 any any -> any any", "- icmpv4.hdr; content:\"a\";"),
        ("alert icmp any any -> any any", "+ icmpv6.hdr; content:\"a\";"),
        ("alert dns any any -> any any", "+ udp.hdr; content:\"a\";"),
        (http, "- udp.hdr; content:\"a\";"),
        (http, "+ tcp.hdr; content:\"a\";"),
        (http, "- http.uri;"),
        (http, "+ http.uri; urilen:10;"),
        (http, "+ urilen:10,raw; http.uri.raw; http.method; content:\"GET\";"),
        (http, "- http.uri; urilen:10,raw;"),
        // The case of hosts.
        (http, "- pcre:\"/A/W\";"),
        (http, "+ pcre:\"/A/Wi\";"),
        (http, "+ pcre:\"/\\S/W\";"),
        // Relative keywords.
        (tcp, "- byte_extract:1,0,x; pcre:\"/a/R\";"),
        (tcp, "+ content:\"a\"; byte_extract:1,0,x; pcre:\"/a/R\";"),
        (http, "- http.uri; isdataat:5; byte_math:bytes 1, offset 0, oper +, rvalue 1, result y, relative;"),
        // Others.
        ("alert ip any any -> any any", "- ip_proto:6; prefilter;"),
        ("alert pkthdr any any -> any any", "+ ip_proto:6;"),
        ("alert ip any any -> any any", "+ ip_proto:IPv6-ICMP;"),
        ("alert ip any any -> any any", "- ip_proto:IPv6-icmp;"),
        ("alert ip any any -> any any", "- ip_proto:IPv6_ICMP;"),
        ("alert tcp:flow_start any any -> any any", "+"),
        ("alert tcp:nothing any any -> any any", "-"),
        (tcp, "+ content:\"a\"; offset:0x10;"),
        (tcp, "- content:\"a\"; offset:08;"),
        ("alert ip any any -> any any", "- ip_proto:>6; ip_proto:<6;"),
        ("alert ip any any -> any any", "- ip_proto:<4; ip_proto:>6;"),
        ("alert ip any any -> any any", "+ ip_proto:>6; ip_proto:<7;"),
        ("alert ip any any -> any any", "- ip_proto:6; http.uri; content:\"a\";"),
        ("alert ip any any -> any any", "- ip_proto:6; flow:only_stream; content:\"a\";"),
        ("alert ip any any -> any any", "+ ip_proto:6; content:\"a\";"),
        (tcp, "+ app-layer-protocol:failed,direction;"),
        (tcp, "+ xbits:set,a;"),
        (tls, "- ja3.hash; content:\"077d20c3f8c5a1g091dc937c515b69c1\";"),
        (tls, "+ ja3.hash; content:\"077d20c3f8c5a1b091dc937c515b69c1\";"),
        (tls, "- tls.cert_fingerprint; content:\"77d20c3f8c5a1b091dc937c515b69c177d20c3f8c5a1b091dc937c515b6\";"),
        (tls, "- tls.cert_serial; content:\"ABC\";"),
        (tls, "+ tls.cert_serial; content:\"AB\";"),
        (quic, "- quic.cyu.hash; content:!\"a46560d4548108cf99308319b3b8534\"; nocase;"),
        (quic, "- quic.cyu.hash; content:\"a46560d4548108cf99308319b3b8534g\";"),
        (quic, "+ quic.cyu.hash; content:\"A46560d4548108cf99308319b3b85346\";"),
        // Checks on packets beside checks on transactions or files.
        (http, "- urilen:5; dsize:5;"),
        (tls, "- ssl_state:client_hello; flags:S;"),
        ("alert tcp-pkt any any -> any any", "- tls.version:1.2;"),
        (http, "- filesize:1; ttl:5;"),
        (http, "- filestore; dsize:5;"),
        (tcp, "- app-layer-event:http.gzip_decompression_failed; dsize:5;"),
        (tls, "- tls_cert_expired; dsize:5;"),
        (tls, "+ tls_store; dsize:5;"),
        (http, "+ dsize:5;"),
        ("alert tcp-pkt any any -> any any", "+ app-layer-protocol:http;"),
        // Values in other forms.
        (tcp, "+ content:\"a\"; nocase:;"),
        (tcp, "+ flags:PA,12;"),
        (tcp, "- flags:PA,;"),
        (http, "+ filestore:both,file;"),
        (http, "- filestore:both,;"),
        (tcp, "- content:\"a\"; nocase:1;"),
        ("alert tcp Any [ANY] -> [Any] ANY", "+"),
        ("alert ip any any -> any any", "+ ipopts:RR;"),
        ("alert ip any any -> any any", "+ ip_proto:\"tcp\";"),
        ("alert ipv6 any any -> any any", "+ ip_proto:6;"),
        (tcp, "+ app-layer-protocol:!\"http\";"),
        (tcp, "+ app-layer-protocol:unknown;"),
        (tcp, "- app-layer-protocol:!unknown;"),
        (tcp, "+ decode-event:IPV4.pkt_too_small;"),
        (tcp, "+ stream-event:3WHS_ack_in_wrong_dir;"),
        ("alert ssh any any -> any any", "- ssh.hassh; content:\"abc\";"),
        ("alert ssh any any -> any any", "- ssh.hassh.server; content:\"077d20c3f8c5a1g091dc937c515b69c1\";"),
        ("alert ssh any any -> any any", "+ ssh.hassh.server; content:\"077D20c3f8c5a1b091dc937c515b69c1\";"),
    ] {
        let (taken, options) = options.split_at(1);
        let rule = format!("{header} ({options} sid:1;)");
        let loaded = load(&rule);
        let said: Vec<_> = loaded.errors.iter().flat_map(|e| &e.messages).map(|m| &m.text).collect();
        assert_eq!(loaded.errors.is_empty(), taken == "+", "{rule}: {said:?}");
    }
}

#[test]
fn digests_are_in_one_case() {
    let digest = "077D20C3F8C5A1B091DC937C515B69C1";
    for (buffer, content, want) in [
        ("ja3.hash", digest, digest.to_lowercase()),
        ("ja3s.hash", digest, digest.to_lowercase()),
        ("ssh.hassh", digest, digest.to_lowercase()),
        ("ssh.hassh.server", digest, digest.to_lowercase()),
        ("tls.cert_serial", "ab:cd", "AB:CD".to_owned()),
    ] {
        let l = load(&format!("alert tcp any any -> any any ({buffer}; content:\"{content}\"; nocase; sid:1;)"));
        let rule = l.rules.iter().chain(&l.set_aside).next().unwrap_or_else(|| panic!("{buffer}: {:?}", l.errors));
        let Some(BufferCheck::Content(c)) = rule.buffers[0].checks.first() else { panic!("{buffer}: no content") };
        assert_eq!(String::from_utf8_lossy(&c.bytes), want, "{buffer}");
        let warned = l.warnings.iter().any(|w| w.message.text.contains("should not be used together with nocase"));
        assert!(warned, "{buffer}: {:?}", l.warnings);
    }
}

#[test]
fn scores() {
    let usage =
        |v: &str| format!("score:{v}: write \"score:NAME,+N\" to add to a score, or \"score:NAME,>=,N\" to ask for it");
    for (value, text) in [
        ("web", usage("web")),
        ("web,-5", usage("web,-5")),
        ("web,<,5", usage("web,<,5")),
        ("web,+0", "score: \"0\" is not a number from 1 to 10000".to_owned()),
        ("web,>=,x", "score: \"x\" is not a number from 1 to 10000".to_owned()),
        ("we b,+1", "score: \"we b\" is not a name: write letters, digits, '_', '-' and '.'".to_owned()),
    ] {
        let rule = format!("alert http any any -> any any (score:{value}; sid:1;)");
        assert_eq!(said(&rule).first(), Some(&("detect-score", text)), "{value}");
    }
    let both = "alert http any any -> any any (score:a,+1; score:b,>=,2; sid:1;)";
    let text =
        "score: a rule adds to scores or asks for one, not both: what it adds would depend on the order of rules";
    assert_eq!(said(both).first(), Some(&("detect-score", text.to_owned())));
    let loaded = load("alert tcp any any -> any any (msg:\"a\"; score:web,+5; sid:1;)");
    assert!(loaded.errors.is_empty(), "{loaded:?}");
    assert_eq!(
        loaded.rules.first().unwrap_or_else(|| panic!("{loaded:?}")).effects,
        [Effect::Score { name: "web".into(), add: 5 }]
    );
}

/// As Suricata words it: `isset` counts, `isnotset` does not; `set` and `toggle` set the bit, `unset` does not.
#[test]
fn flowbits_that_no_rule_sets_are_warned_of() {
    let rule = |options: &str| format!("alert tcp any any -> any any ({options})\n");
    let rules = [
        "flowbits:isset,nobody; sid:1;",
        "flowbits:isset,nobody; content:\"x\"; sid:2;",
        "flowbits:isnotset,other; sid:3;",
        "flowbits:isset,a|b; sid:4;",
        "flowbits:set,a; sid:5;",
        "flowbits:unset,nobody; sid:6;",
        "flowbits:toggle,t; sid:7;",
        "flowbits:isset,t; sid:8;",
    ]
    .map(rule)
    .concat();
    let l = load(&rules);
    let said: Vec<(u32, &str)> = l.warnings.iter().map(|w| (w.place.line, w.message.text.as_str())).collect();
    assert_eq!(
        said,
        [
            (1, "flowbit 'nobody' is checked but not set. Checked in 1 and 1 other sigs"),
            (4, "flowbit 'b' is checked but not set. Checked in 4 and 0 other sigs"),
        ]
    );
}
