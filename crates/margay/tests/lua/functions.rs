//! Every function in the manual, in a rule script of its own.

use std::fmt::Write as _;

use crate::{alerts, folder, run, said};

/// A rule: its header, its script's needs, the expressions that must be true, and options before `lua` if there are any.
struct Case {
    header: &'static str,
    options: &'static str,
    needs: &'static str,
    /// Lua code before the functions.
    head: &'static str,
    expression: &'static str,
}

const fn case(header: &'static str, needs: &'static str, head: &'static str, expression: &'static str) -> Case {
    Case { header, options: "", needs, head, expression }
}

/// Functions of one library in rules of one kind.
fn cases(header: &'static str, needs: &'static str, head: &'static str, list: &[&'static str]) -> Vec<Case> {
    list.iter().map(|e| case(header, needs, head, e)).collect()
}

fn all() -> Vec<Case> {
    let mut all = Vec::new();
    let packet = r#"local packet = require("suricata.packet")"#;
    let http_request = "alert tcp 192.168.1.10 41000 -> any 80";
    all.extend(cases(
        http_request,
        "payload = true",
        packet,
        &[
            "packet.get() ~= nil",
            "select(1, packet.get():timestamp()) == 1700000000 and select(2, packet.get():timestamp()) == 6000",
            "packet.get():timestring_legacy():match('^%d%d/%d%d/2023%-%d%d:%d%d:20%.006000$')",
            "packet.get():timestring_iso8601():match('^2023%-%d%d%-%d%dT%d%d:%d%d:20%.006000[+-]%d%d%d%d$')",
            "table.concat({packet.get():tuple()}, ' ') == '4 192.168.1.10 203.0.113.5 6 41000 80'",
            "packet.get():sp() == 41000 and packet.get():dp() == 80",
            "packet.get():payload() == args.payload and args.payload:find('POST /', 1, true) == 1",
            "#packet.get():packet() == #args.payload + 54",
            "packet.get():pcap_cnt() == 6",
        ],
    ));
    all.extend(cases(
        "alert icmp any any -> any any",
        "packet = true",
        packet,
        &[
            "table.concat({packet.get():tuple()}, ' ') == '4 192.168.1.10 203.0.113.5 1 8 0'",
            "packet.get():sp() == nil and packet.get():dp() == nil",
            "args.packet == packet.get():packet() and args.packet:sub(-4) == 'ping'",
        ],
    ));
    let flow = r#"local flow = require("suricata.flow")"#;
    all.extend(cases(
        "alert http1:response_complete any any -> any any",
        "",
        flow,
        &[
            "flow.get() ~= nil",
            "select('#', flow.get():timestamps()) == 4 and select(1, flow.get():timestamps()) == 1700000000",
            "select(2, flow.get():timestamps()) == 1700000000 and select(3, flow.get():timestamps()) == 3000",
            "select(4, flow.get():timestamps()) > 6000 and select(3, SCFlowTimestamps()) == 3000",
            "flow.get():timestring_legacy():match('2023%-%d%d:%d%d:20%.003000$')",
            "flow.get():timestring_iso8601():match('^2023%-%d%d%-%d%dT%d%d:%d%d:20%.003000')",
            "table.concat({flow.get():tuple()}, ' ') == '4 192.168.1.10 203.0.113.5 6 41000 80'",
            "table.concat({flow.get():app_layer_proto()}, ' ') == 'http http http unknown unknown'",
            "flow.get():has_alerts() == false or flow.get():has_alerts() == true",
            "math.type(flow.get():id()) == 'integer' and flow.get():id() > 0",
            "(function(a, b, c, d) return a > 2 and b > 200 and c > 1 and d > 200 end)(flow.get():stats())",
        ],
    ));
    let http = r#"local http = require("suricata.http")"#;
    all.extend(cases(
        "alert http1:response_complete any any -> any any",
        "",
        http,
        &[
            "http.get_tx() ~= nil",
            "http.get_tx():request_header('User-Agent') == 'curl/8.0' and http.get_tx():request_header('none') == nil",
            "http.get_tx():response_header('server') == 'nginx'",
            // A missing value is nil, with the reason.
            "select(2, http.get_tx():request_header('none')) == 'there is no field of that name'",
            "select(2, http.get_tx():request_header()) == 'the name is missing'",
            "select(2, HttpGetResponseHeader('none')) and select('#', HttpGetRequestHeader('Host')) == 1",
            "http.get_tx():request_line() == 'POST /a%2fb/x.php?q=1 HTTP/1.1'",
            "http.get_tx():response_line() == 'HTTP/1.1 200 OK'",
            "http.get_tx():request_headers_raw():find('User-Agent: curl/8.0\\r\\n', 1, true)",
            "http.get_tx():response_headers_raw():find('Server: nginx\\r\\n', 1, true)",
            "http.get_tx():request_uri_raw() == '/a%2fb/x.php?q=1'",
            "http.get_tx():request_uri_normalized():find('x.php?q=1', 1, true)",
            "http.get_tx():request_headers()['Host'] == 'www.example.org'",
            "http.get_tx():response_headers()['Set-Cookie'] == 'a=b'",
            "http.get_tx():request_body()[1] == 'hello=world' and select(2, http.get_tx():request_body()) == 0",
            "http.get_tx():response_body()[1]:find('the answer') and select(3, http.get_tx():response_body()) == 26",
            "http.get_tx():request_host() == 'www.example.org'",
            // Functions of older releases.
            "HttpGetRequestBody()[1] == 'hello=world'",
            "HttpGetResponseBody()[1]:find('the answer')",
            "HttpGetRequestHost() == 'www.example.org'",
            "HttpGetRequestHeader('cookie') == 'id=7'",
            "HttpGetResponseHeader('Server') == 'nginx'",
            "HttpGetRequestLine():find('^POST')",
            "HttpGetResponseLine():find('200 OK')",
            "HttpGetRawRequestHeaders():find('curl')",
            "HttpGetRawResponseHeaders():find('nginx')",
            "HttpGetRequestUriRaw() == '/a%2fb/x.php?q=1'",
            "HttpGetRequestUriNormalized():find('x.php', 1, true)",
            "HttpGetRequestHeaders()['User-Agent'] == 'curl/8.0'",
            "HttpGetResponseHeaders()['Content-Type'] == 'text/html'",
        ],
    ));
    // Buffers named in init().
    for (need, expression) in [
        ("http.uri", "args['http.uri']:find('x.php?q=1', 1, true) and args.offset == 1"),
        ("http.uri.raw", "args['http.uri.raw'] == '/a%2fb/x.php?q=1'"),
        ("http.request_line", "args['http.request_line']:find('^POST%s+/.*%.php')"),
        ("http.request_headers", "args['http.request_headers']:find('curl')"),
        ("http.request_headers.raw", "args['http.request_headers.raw']:find('curl')"),
        ("http.request_cookie", "args['http.request_cookie'] == 'id=7'"),
        ("http.request_user_agent", "args['http.request_user_agent'] == 'curl/8.0'"),
        ("http.request_body", "args['http.request_body'] == 'hello=world'"),
        ("http.response_headers", "args['http.response_headers']:find('nginx')"),
        ("http.response_headers.raw", "args['http.response_headers.raw']:find('nginx')"),
        ("http.response_body", "args['http.response_body']:find('the answer')"),
        ("http.response_cookie", "args['http.response_cookie'] == 'a=b'"),
    ] {
        let needs: &'static str = Box::leak(format!("['{need}'] = tostring(true)").into_boxed_str());
        all.push(case("alert http any any -> any any", needs, "", expression));
    }
    let dns = r#"local dns = require("suricata.dns")"#;
    all.extend(cases(
        "alert dns:response_complete any any -> any any",
        "",
        dns,
        &[
            "dns.answers()[1].rrname == 'example.org' and dns.answers()[1].type == 'A' and dns.answers()[1].ttl == 60",
            "dns.answers()[0].type == 'CNAME' and dns.answers()[0].addr == 'example.org'",
            "dns.answers()[1].addr == '203.0.113.5'",
            "dns.authorities()[0].type == 'NS' and dns.authorities()[0].ttl == 900",
            "dns.queries()[0].rrname == 'www.example.org' and dns.queries()[0].type == 'A'",
            "dns.rcode() == 3",
            "dns.rcode_string() == 'NXDOMAIN'",
            "dns.recursion_desired() == true",
            "dns.rrname() == 'www.example.org'",
            "dns.txid() == 0x1234",
            "dns.get_tx():rrname() == 'www.example.org'",
            "DnsGetQueries()[0].rrname == 'www.example.org' and DnsGetAnswers()[1].ttl == 60",
            "DnsGetAuthorities()[0].rrname == 'example.org' and DnsGetRcode() == 'NXDOMAIN'",
            "DnsGetRecursionDesired() and DnsGetDnsRrname() == 'www.example.org' and DnsGetTxid() == 0x1234",
        ],
    ));
    all.push(case(
        "alert dns any any -> any 53",
        "['dns.request'] = true",
        dns,
        "next(dns.answers()) == nil and dns.rcode() == 0",
    ));
    all.push(case(
        "alert dns any 53 -> any any",
        "['dns.response'] = true",
        dns,
        "dns.answers()[1] and not dns.answers()[2]",
    ));
    all.push(case(
        "alert dns any any -> any any",
        "['dns.rrname'] = true",
        "",
        "args['dns.rrname'] == 'www.example.org'",
    ));
    let tls = r#"local tls = require("suricata.tls")"#;
    all.extend(cases(
        "alert tls any any -> any any",
        "tls = true",
        tls,
        &[
            "tls.get_tx():get_sni() == 'tls.example.org'",
            "tls.get_tx():get_client_version() == 'TLS 1.2'",
            "tls.get_tx():get_server_cert_chain() and #tls.get_tx():get_server_cert_chain()[0].data == \
             tls.get_tx():get_server_cert_chain()[0].length",
            "(function(version, subject, issuer, print) return version == 'TLS 1.2' and subject:find('=') and \
             issuer:find('=') and #print == 59 end)(tls.get_tx():get_server_cert_info())",
            "(tls.get_tx():get_server_cert_not_after() or 0) > 1000000000",
            "(tls.get_tx():get_server_cert_not_before() or 2 ^ 40) < 2000000000",
            "(tls.get_tx():get_server_serial() or ''):match('^%x%x:')",
            "tls.get_tx():get_client_cert_chain()[0] and not tls.get_tx():get_client_cert_chain()[1]",
            "select('#', tls.get_tx():get_client_cert_info()) == 4",
            "(tls.get_tx():get_client_cert_not_after() or 0) > 1000000000",
            "(tls.get_tx():get_client_cert_not_before() or 2 ^ 40) < 2000000000",
            "(tls.get_tx():get_client_serial() or ''):match('^%x%x:')",
            "TlsGetSNI() == 'tls.example.org' and TlsGetVersion() == 'TLS 1.2'",
            "TlsGetCertInfo() and TlsGetCertChain() and TlsGetCertNotAfter() and TlsGetCertNotBefore() and TlsGetCertSerial()",
        ],
    ));
    let ja3 = r#"local ja3 = require("suricata.ja3")"#;
    all.extend(cases(
        "alert tls any any -> any any",
        "ja3 = true",
        ja3,
        &[
            "ja3.get_tx():ja3_get_hash():match('^%x+$') and #ja3.get_tx():ja3_get_hash() == 32",
            "ja3.get_tx():ja3_get_string() == '771,49199-156,0,,'",
            "Ja3GetHash() == ja3.get_tx():ja3_get_hash() and Ja3GetString():find('^771,')",
            "args.ja3 == ja3.get_tx():ja3_get_hash()",
        ],
    ));
    all.extend(cases(
        "alert tls any any -> any any",
        "ja3s = true",
        ja3,
        &[
            "#ja3.get_tx():ja3s_get_hash() == 32",
            "ja3.get_tx():ja3s_get_string() == '771,49199,'",
            "Ja3SGetHash() == ja3.get_tx():ja3s_get_hash() and Ja3SGetString() == '771,49199,'",
        ],
    ));
    let ssh = r#"local ssh = require("suricata.ssh")"#;
    all.extend(cases(
        "alert ssh any any -> any any",
        "ssh = true",
        ssh,
        &[
            "ssh.get_tx():server_proto() == '2.0'",
            "ssh.get_tx():client_proto() == '2.0'",
            "ssh.get_tx():server_software() == 'OpenSSH_9.6'",
            "ssh.get_tx():client_software() == 'PuTTY_0.80'",
            "SshGetServerProtoVersion() == '2.0' and SshGetServerSoftwareVersion() == 'OpenSSH_9.6'",
            "SshGetClientProtoVersion() == '2.0' and SshGetClientSoftwareVersion() == 'PuTTY_0.80'",
        ],
    ));
    let smtp = r#"local smtp = require("suricata.smtp")"#;
    all.extend(cases(
        "alert smtp any any -> any any",
        "smtp = true",
        smtp,
        &[
            "smtp.get_tx():get_mime_field('Content-Transfer-Encoding') == '7bit'",
            "smtp.get_tx():get_mime_field('subject') == 'hello' and smtp.get_tx():get_mime_field('X-Sender') == 'test one'",
            "(function() for _, n in pairs(smtp.get_tx():get_mime_list() or {}) do if n == 'x-sender' then return true \
             end end end)()",
            "(smtp.get_tx():get_mail_from() or ''):find('alice@example.com', 1, true)",
            "smtp.get_tx():get_rcpt_list() and smtp.get_tx():get_rcpt_list()[2]:find('carol@example.org', 1, true)",
            "SMTPGetMimeField('Subject') == 'hello' and #SMTPGetMimeList() > 3",
            "SMTPGetMailFrom() and #SMTPGetRcptList() == 2",
        ],
    ));
    let rule = r#"local rule = require("suricata.rule")"#;
    all.extend(cases(
        http_request,
        "payload = true",
        rule,
        &[
            "rule.get_rule():sid() >= 1",
            "rule.get_rule():gid() == 1 and rule.get_rule():rev() == 3",
            "rule.get_rule():action() == 'alert'",
            "rule.get_rule():msg() == 'a script'",
            "rule.get_rule():priority() == 3",
            "rule.get_rule():class_description() == 'Misc activity'",
            "select(1, rule.get_rule():class()) == 'misc-activity' and select(2, rule.get_rule():class()) == 3",
            "SCRuleAction() == 'alert' and SCRuleMsg() == 'a script' and SCRuleClass() == 'Misc activity' and select(2, SCRuleClass()) == 3",
            "select(2, SCRuleIds()) == 3 and select(3, SCRuleIds()) == 1",
        ],
    ));
    let hashing = r#"local hashing = require("suricata.hashing")
local function two(h) h:update("a") h.update("bc") return h end"#;
    let base64 = r#"local base64 = require("suricata.base64")"#;
    all.extend(cases(
        http_request,
        "payload = true",
        hashing,
        &[
            "hashing.md5_hex_digest('abc') == '900150983cd24fb0d6963f7d28e17f72'",
            "#hashing.md5_digest('abc') == 16 and hashing.md5_digest('abc'):byte(1) == 0x90",
            "two(hashing.md5()):finalize_to_hex() == '900150983cd24fb0d6963f7d28e17f72'",
            "hashing.sha1_hex_digest('abc') == 'a9993e364706816aba3e25717850c26c9cd0d89d'",
            "#hashing.sha1_digest('abc') == 20 and two(hashing.sha1()).finalize() == hashing.sha1_digest('abc')",
            "hashing.sha256_hex_digest('abc'):sub(1, 16) == 'ba7816bf8f01cfea'",
            "two(hashing.sha256()):finalize() == hashing.sha256_digest('abc')",
            "two(hashing.sha256()).finalize_to_hex() == hashing.sha256_hex_digest('abc')",
        ],
    ));
    all.extend(cases(
        http_request,
        "payload = true",
        base64,
        &[
            "base64.encode('hello') == 'aGVsbG8=' and base64.decode('aGVsbG8=') == 'hello'",
            "base64.encode_nopad('hello') == 'aGVsbG8' and base64.decode_nopad('aGVsbG8') == 'hello'",
            "base64.decode('aGVsbG8') == nil and base64.decode_nopad('aGVsbG8=') == nil",
        ],
    ));
    all.extend(cases(
        http_request,
        "payload = true",
        r#"local config = require("suricata.config") local util = require("suricata.util") local log = require("suricata.log")"#,
        &[
            "config.log_path():find('lua%-functions') and SCLogPath() == config.log_path()",
            "util.thread_info().group_name == util.thread_info().group and util.thread_info().group ~= nil",
            "math.type(util.thread_info().id) == 'integer' and #util.thread_info().name > 0",
            "select('#', SCThreadInfo()) == 3",
            "log.info('i') == nil and log.notice('n') == nil and log.debug('d') == nil and log.config('c') == nil",
            "log.perf('p') == nil and log.warning('a warning of a script') == nil and log.error('an error of a script') == nil",
            "SCLogInfo('i') == nil and SCLogNotice('n') == nil and SCLogDebug('d') == nil",
        ],
    ));
    all.extend(cases(
        http_request,
        "payload = true",
        "",
        &[
            "select(1, SCPacketTimestamp()) == 1700000000 and SCPacketTimeString():find('2023')",
            "select(5, SCPacketTuple()) == 41000 and SCPacketPayload() == args.payload",
            "select('#', SCFlowTimestamps()) == 4 and SCFlowTimeString():find('2023') and select(6, SCFlowTuple()) == 80",
            "SCFlowAppLayerProto() ~= nil and SCFlowHasAlerts() ~= nil and select('#', SCFlowStats()) == 4 and SCFlowId() > 0",
        ],
    ));
    // The rule's own variables.
    all.push(Case {
        options: r#"content:"POST"; byte_extract:1,0,first,relative; byte_math:bytes 1,offset 0,oper +,rvalue 1,result next;"#,
        ..case(
            http_request,
            "payload = true",
            "local bytevar = require('suricata.bytevar')
function thread_init() first = bytevar.get('first') end
local _map = function(sig) bytevar.map(sig, 'first') bytevar.map(sig, 'next') end",
            "first:value() == 0x20 and bytevar.get('next'):value() == 0x51 and SCByteVarGet(0) == 0x20",
        )
    });
    // A set that a rule defines.
    all.push(Case {
        options: r#"content:"POST";"#,
        ..case(
            http_request,
            "payload = true",
            "local dataset = require('suricata.dataset')
function thread_init() set = dataset.new() early = dataset.new() opened = early:get('seen') end",
            "set:get('seen') == 0 and opened == 0 and early:add('two', 3) ~= nil and set:add('one', 3) == 1 and set:add('one', 3) == 0 and \
             select(2, dataset.new():get('unknown'))",
        )
    });
    // Sticky buffers.
    all.push(Case {
        options: r#"http.user_agent; content:"curl";"#,
        ..case("alert http any any -> any any", "buffer = true", "", "args.buffer == 'curl/8.0' and args.offset == 5")
    });
    all.push(Case {
        options: r#"http.user_agent; content:"/"; content:"c"; offset:0; depth:1;"#,
        ..case(
            "alert http any any -> any any",
            "buffer = true",
            "",
            "args.offset == 2 and args.buffer:sub(args.offset) == 'url/8.0' and args.packet == nil",
        )
    });
    all.push(Case {
        options: "http.user_agent; to_md5;",
        ..case("alert http any any -> any any", "buffer = true", "", "#args.buffer == 16")
    });
    all.push(Case {
        options: "tcp.hdr;",
        ..case(http_request, "buffer = true", "", "#args.buffer == 20 and args.buffer:byte(13) == 0x50")
    });
    all.push(Case {
        options: "http.request_header;",
        ..case("alert http any any -> any any", "buffer = true", "", "args.buffer == 'Cookie: id=7'")
    });
    all.push(case(
        http_request,
        "payload = true, packet = true",
        "",
        "args.packet:sub(-#args.payload) == args.payload and #args.packet == #args.payload + 54",
    ));
    all.push(case("alert tcp 192.168.1.10 41000 -> any any", "stream = true", "", "args.stream:find('hello=world')"));
    all
}

/// The text of a script: `match` returns the value of the expression.
fn script(c: &Case) -> String {
    let enable = if c.needs.starts_with("ja3") { "ja3.enable_ja3()" } else { "" };
    let map = if c.head.contains("_map") { "_map(sig)" } else { "" };
    format!(
        "{}\nfunction init(sig)\n{enable} {map}\nreturn {{{}}}\nend\nfunction match(args)\nif ({}) then return 1 end\nreturn 0\nend\n",
        c.head, c.needs, c.expression
    )
}

#[test]
fn every_function_of_the_manual() {
    let dir = folder("functions");
    let cases = all();
    let mut rules = String::from(
        "alert http any any -> any any (http.uri; content:\"nothing\"; dataset:set,seen,type string; sid:9000;)\n",
    );
    for (c, n) in cases.iter().zip(1..) {
        std::fs::write(dir.join(format!("s{n}.lua")), script(c)).expect("a script");
        let Case { header, options, .. } = c;
        let _ = writeln!(
            rules,
            "{header} (msg:\"a script\"; {options} lua:s{n}.lua; classtype:misc-activity; rev:3; sid:{n};)"
        );
        // An expression that is false does not match, but matches negated.
        let _ = writeln!(rules, "{header} ({options} lua:!s{n}.lua; sid:{};)", 1000 + n);
    }
    std::fs::write(dir.join("my.rules"), rules).expect("rules");
    let o = run(&dir, &[]);
    let said = said(&o);
    assert!(o.status.success(), "{said}");
    let alerts = alerts(&dir);
    let mut wrong: Vec<String> = Vec::new();
    for (c, n) in cases.iter().zip(1u64..) {
        if !alerts.contains_key(&n) {
            wrong.push(format!("{n}: {} ({}): {}", c.header, c.needs, c.expression));
        }
    }
    assert!(wrong.is_empty(), "{said}\n{}", wrong.join("\n"));
    assert!(said.contains("a warning of a script") && said.contains("an error of a script"), "{said}");
    assert!(!said.contains("set aside"), "{said}");
    // Rule 9000 never adds anything to its set.
    assert!(!alerts.contains_key(&9000));
    assert!(cases.len() > 140, "{}", cases.len());
}
