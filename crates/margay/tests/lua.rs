//! Scripts: every function that Suricata's manual names, in a rule or a log of its own, on the packets of `lua/packets.pcap`
//! (made by `lua/make-capture.py`).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A folder of its own for each test, emptied first.
fn folder(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("lua-{name}"));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("a folder for logs");
    dir
}

fn said(o: &Output) -> String {
    String::from_utf8_lossy(&o.stdout).into_owned() + &String::from_utf8_lossy(&o.stderr)
}

fn command(dir: &Path, more: &[&str]) -> Command {
    let etc = |file: &str| root().join("etc").join(file).display().to_string();
    let mut c = Command::new(env!("CARGO_BIN_EXE_margay"));
    c.args(["-c", &etc("margay.yaml"), "-k", "none", "-S"]).arg(dir.join("my.rules"));
    c.arg("-l").arg(dir);
    c.args(["--set", &format!("classification-file={}", etc("classification.config"))]);
    c.args(["--set", &format!("reference-config-file={}", etc("reference.config"))]);
    c.args(["--set", "packet-alert-max=500", "--set", "stats.enabled=yes"]).args(more);
    c
}

/// Runs on the packets.
fn run(dir: &Path, more: &[&str]) -> Output {
    let capture = root().join("crates/margay/tests/lua/packets.pcap");
    command(dir, more).arg("-r").arg(capture).output().expect("the engine starts")
}

fn number(line: &str, key: &str) -> Option<u64> {
    line.split(&format!("\"{key}\":")).nth(1)?.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// How often each rule alerted.
fn alerts(dir: &Path) -> BTreeMap<u64, usize> {
    let events = std::fs::read_to_string(dir.join("eve.json")).expect("events");
    let mut alerts = BTreeMap::new();
    for line in events.lines().filter(|l| l.contains("\"event_type\":\"alert\"")) {
        *alerts.entry(number(line, "signature_id").expect("a number")).or_default() += 1;
    }
    alerts
}

/// The last statistics: a counter.
fn counter(dir: &Path, object: &str, key: &str) -> Option<u64> {
    let events = std::fs::read_to_string(dir.join("eve.json")).expect("events");
    let line = events.lines().rfind(|l| l.contains("\"event_type\":\"stats\""))?;
    number(line.split(&format!("\"{object}\":{{")).nth(1)?, key)
}

/// Of each rule its header, what its script needs, and what must be true in it; the options before `lua` where there are some.
struct Case {
    header: &'static str,
    options: &'static str,
    needs: &'static str,
    /// What stands before the functions.
    head: &'static str,
    expression: &'static str,
}

const fn case(header: &'static str, needs: &'static str, head: &'static str, expression: &'static str) -> Case {
    Case { header, options: "", needs, head, expression }
}

const ANY: &str = "any any -> any any";

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
            "select(2, flow.get():timestamps()) == 3000 and select(4, flow.get():timestamps()) > 6000",
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
            // The functions of older releases.
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
    // Buffers that init() names.
    for (need, expression) in [
        ("http.uri", "args['http.uri']:find('x.php?q=1', 1, true)"),
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
            "dns.answers()[2].rrname == 'example.org' and dns.answers()[2].type == 'A' and dns.answers()[2].ttl == 60",
            "dns.answers()[1].type == 'CNAME' and dns.answers()[1].addr == 'example.org'",
            "dns.answers()[2].addr == '203.0.113.5'",
            "dns.authorities()[1].type == 'NS' and dns.authorities()[1].ttl == 900",
            "dns.queries()[1].rrname == 'www.example.org' and dns.queries()[1].type == 'A'",
            "dns.rcode() == 3",
            "dns.rcode_string() == 'NXDOMAIN'",
            "dns.recursion_desired() == true",
            "dns.rrname() == 'www.example.org'",
            "dns.txid() == 0x1234",
            "dns.get_tx():rrname() == 'www.example.org'",
            "DnsGetQueries()[1].rrname == 'www.example.org' and DnsGetAnswers()[2].ttl == 60",
            "DnsGetAuthorities()[1].rrname == 'example.org' and DnsGetRcode() == 'NXDOMAIN'",
            "DnsGetRecursionDesired() and DnsGetDnsRrname() == 'www.example.org' and DnsGetTxid() == 0x1234",
        ],
    ));
    all.push(case(
        "alert dns any any -> any 53",
        "['dns.request'] = true",
        dns,
        "dns.answers() == nil and dns.rcode() == 0",
    ));
    all.push(case("alert dns any 53 -> any any", "['dns.response'] = true", dns, "#dns.answers() == 2"));
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
            "tls.get_tx():get_server_cert_chain() and #tls.get_tx():get_server_cert_chain()[1].data == \
             tls.get_tx():get_server_cert_chain()[1].length",
            "(function(version, subject, issuer, print) return version == 'TLS 1.2' and subject:find('=') and \
             issuer:find('=') and #print == 59 end)(tls.get_tx():get_server_cert_info())",
            "(tls.get_tx():get_server_cert_not_after() or 0) > 1000000000",
            "(tls.get_tx():get_server_cert_not_before() or 2 ^ 40) < 2000000000",
            "(tls.get_tx():get_server_serial() or ''):match('^%x%x:')",
            "tls.get_tx():get_client_cert_chain() and #tls.get_tx():get_client_cert_chain() == 1",
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
            "(function() for _, n in pairs(smtp.get_tx():get_mime_list() or {}) do if n == 'X-Sender' then return true \
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
            "SCRuleAction() == 'alert' and SCRuleMsg() == 'a script' and SCRuleClass() == 'misc-activity'",
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
    // The rule's variables.
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
function thread_init() set = dataset.new() end",
            "set:get('seen') == 0 and set:add('one', 3) == 1 and set:add('one', 3) == 0 and \
             select(2, dataset.new():get('unknown'))",
        )
    });
    // Sticky buffers.
    all.push(Case {
        options: r#"http.user_agent; content:"curl";"#,
        ..case("alert http any any -> any any", "buffer = true", "", "args.buffer == 'curl/8.0'")
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
    all.push(case("alert tcp 192.168.1.10 41000 -> any any", "stream = true", "", "args.stream:find('hello=world')"));
    all
}

/// The text of a script: `match` is true where the expression is.
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
        // What does not hold does not match, and negated does.
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
    // 9000 never had anything to put in its set.
    assert!(!alerts.contains_key(&9000));
    assert!(cases.len() > 140, "{}", cases.len());
    let _ = ANY;
}

fn write(dir: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = dir.join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    }
}

/// Variables of a flow, kept from one call to the next and shown to rules and to scripts of other rules.
#[test]
fn variables_of_flows() {
    let dir = folder("variables");
    write(
        &dir,
        &[
            (
                "count.lua",
                r#"local flowint = require("suricata.flowint")
local flowvar = require("suricata.flowvar")
function init() flowint.register("packets") flowvar.register("text") return {payload = true} end
function thread_init() count = flowint.get("packets") text = flowvar.get("text") end
function match()
  if count:value() == nil then count:set(10) end
  count:incr() count:incr() count:decr()
  local value = text:value() or ""
  value = value .. "x"
  text:set(value, #value)
  if text:value() ~= value then return 0 end
  return count:value() == 13 and 1 or 0
end"#,
            ),
            (
                "old.lua",
                r#"function init() return {payload = tostring(true), flowint = {"other", "packets"}, flowvar = {"text"}} end
function match()
  if SCFlowintGet(0) == nil then SCFlowintSet(0, 5) end
  SCFlowintIncr(0) SCFlowintIncr(0) SCFlowintDecr(0)
  return SCFlowintGet(0) >= 7 and (SCFlowintGet(1) or 0) >= 11 and SCFlowvarGet(0):find("x") and 1 or 0
end"#,
            ),
            (
                "set.lua",
                "function init() return {payload = true, flowvar = {'set'}} end function match() SCFlowvarSet(0, 'by a script', 4) return 1 end",
            ),
            (
                "low.lua",
                "local i = require('suricata.flowint') function init() i.register('low') return {payload = true} end function match() local l = i.get('low') return l:decr() == 0 and l:value() == 0 and 1 or 0 end",
            ),
            (
                "my.rules",
                "alert tcp 192.168.1.10 41002 -> any 25 (lua:count.lua; sid:1;)\n\
                 alert tcp 192.168.1.10 41002 -> any 25 (flowint:packets,==,12; dsize:>0; sid:2;)\n\
                 alert tcp 192.168.1.10 41002 -> any 25 (lua:old.lua; sid:3;)\n\
                 alert tcp 192.168.1.10 41002 -> any 25 (lua:set.lua; sid:4;)\n\
                 alert tcp 192.168.1.10 41002 -> any 25 (flowvar:set,\"by a\"; dsize:>0; sid:5;)\n\
                 alert tcp 192.168.1.10 41002 -> any 25 (lua:low.lua; sid:6;)\n",
            ),
        ],
    );
    let o = run(&dir, &[]);
    assert!(o.status.success(), "{}", said(&o));
    let alerts = alerts(&dir);
    assert_eq!(alerts.get(&1), Some(&1), "{alerts:?} {}", said(&o));
    assert!((2..=6).all(|sid| alerts.contains_key(&sid)), "{alerts:?} {}", said(&o));
}

/// The manual's script of a transform, and one that gives nothing.
#[test]
fn transforms() {
    let dir = folder("transforms");
    write(
        &dir,
        &[
            (
                "lua/upper.lua",
                r#"local function get_value(item, key)
  if string.find(item, key) then
    local _, value = string.match(item, "(%a+)%s*(%d*)")
    if value ~= "" then return tonumber(value) end
  end
  return nil
end
function transform(input, args)
  local bytes, offset = #input, 0
  for i, item in ipairs(args) do
    bytes = get_value(item, "bytes") or bytes
    offset = get_value(item, "offset") or offset
  end
  if offset < 0 or offset > #input or bytes < 0 or bytes > #input - offset then return nil end
  return string.upper(string.sub(input, offset + 1, offset + bytes)), bytes
end"#,
            ),
            ("none.lua", "function transform(input) return input .. 'x' end"),
            ("long.lua", "function transform(input) return input, 1 << 40 end"),
            ("first.lua", "function transform(input, args) return args[0], #args[0] end"),
            ("bad.lua", "function transform(input) while true do end end"),
            (
                "my.rules",
                "alert http any any -> any any (http.user_agent; luaxform:./lua/upper.lua; content:\"CURL/8.0\"; startswith; endswith; sid:1;)\n\
                 alert http any any -> any any (http.user_agent; luaxform:lua/upper.lua, bytes 2, offset 1; content:\"UR\"; bsize:2; sid:2;)\n\
                 alert http any any -> any any (http.user_agent; luaxform:lua/upper.lua, bytes 20; content:\"curl/8.0\"; bsize:8; sid:3;)\n\
                 alert http any any -> any any (http.user_agent; luaxform:none.lua; content:\"curl/8.0\"; bsize:8; sid:4;)\n\
                 alert http any any -> any any (http.user_agent; luaxform:long.lua; to_md5; bsize:16; sid:5;)\n\
                 alert http any any -> any any (http.user_agent; luaxform:first.lua, one, two; content:\"one\"; bsize:3; sid:6;)\n\
                 alert http any any -> any any (http.user_agent; luaxform:bad.lua; content:\"curl\"; sid:7;)\n\
                 alert tcp 192.168.1.10 41000 -> any 80 (tcp.hdr; luaxform:lua/upper.lua, bytes 2; content:\"|A0 28|\"; bsize:2; sid:8;)\n\
                 alert http any any -> any any (file.data; luaxform:lua/upper.lua; content:\"THE ANSWER\"; sid:9;)\n",
            ),
        ],
    );
    let o = run(&dir, &[]);
    assert!(o.status.success(), "{}", said(&o));
    let alerts = alerts(&dir);
    assert!((1..=9).all(|sid| alerts.contains_key(&sid)), "{alerts:?} {}", said(&o));
    assert!(counter(&dir, "lua", "instruction_limit_errors").is_some_and(|n| n > 0));
}

/// What goes past a limit is stopped, said once and counted; the other rules work.
#[test]
fn limits_are_counted() {
    let dir = folder("limits");
    let wrap =
        |body: &str| format!("function init() return {{payload = true}} end\nfunction match(args)\n{body}\nend\n");
    let texts = [
        wrap("while true do end"),
        wrap("local s = 'x' while true do s = s .. s end"),
        wrap("setmetatable({}, {})"),
        wrap("return nil .. 'x'"),
        wrap("return io.open('/etc/passwd') and 1"),
        wrap("return ('a'):rep(5000):find(('.-'):rep(12) .. 'b')"),
    ];
    let mut rules = String::new();
    for (text, n) in texts.iter().zip(1..) {
        std::fs::write(dir.join(format!("s{n}.lua")), text).expect("a script");
        let _ = writeln!(rules, "alert tcp any any -> any 25 (lua:s{n}.lua; sid:{n};)");
        let _ = writeln!(rules, "alert tcp any any -> any 25 (lua:!s{n}.lua; sid:{};)", 100 + n);
    }
    rules.push_str("alert tcp any any -> any 25 (dsize:>0; sid:50;)\n");
    std::fs::write(dir.join("my.rules"), rules).expect("rules");
    let o = run(&dir, &["--set", "security.lua.max-instructions=20000"]);
    let said = said(&o);
    assert!(o.status.success(), "{said}");
    let packets = 7;
    assert_eq!(alerts(&dir), BTreeMap::from([(50, packets)]), "{said}");
    let count = |key| counter(&dir, "lua", key).unwrap_or(0);
    let packets = packets as u64;
    assert_eq!(count("errors"), 12 * packets);
    assert_eq!(count("instruction_limit_errors"), 4 * packets);
    assert_eq!(count("memory_limit_errors"), 2 * packets);
    assert_eq!(count("blocked_function_errors"), 2 * packets);
    assert_eq!(said.matches("s1.lua:3: instruction limit exceeded").count(), 2, "{said}");
    assert!(said.contains("Blocked Lua function called: setmetatable"), "{said}");
    // With all of Lua two of them do as they like.
    let o = run(&dir, &["--set", "security.lua.allow-restricted-functions=yes"]);
    assert!(o.status.success());
    assert_eq!(counter(&dir, "lua", "blocked_function_errors"), Some(0));
}

/// Scripts that cannot work are errors of their rules, with file and line; a test of the configuration fails.
#[test]
fn scripts_that_do_not_load() {
    let dir = folder("errors");
    write(
        &dir,
        &[
            ("good.lua", "function init() return {payload = true} end function match() return 0 end"),
            ("syntax.lua", "function init()\nreturn {\nend"),
            ("nonsense.lua", "function init() return {nonsense = true} end function match() end"),
            ("nomatch.lua", "function init() return {} end"),
            ("noinit.lua", "function match() end"),
            ("loop.lua", "while true do end"),
            (
                "bytevar.lua",
                "function init(sig) require('suricata.bytevar').map(sig, 'none') return {} end function match() end",
            ),
            ("buffer.lua", "function init() return {buffer = true} end function match() end"),
            ("notransform.lua", "x = 1"),
        ],
    );
    let rule = |options: &str| format!("alert tcp any any -> any any ({options} sid:1;)\n");
    for (options, want) in [
        ("lua:syntax.lua;", "syntax.lua:3: "),
        ("lua:nonsense.lua;", "nonsense.lua: unsupported data type nonsense"),
        ("lua:nomatch.lua;", "nomatch.lua: there is no function match() in the script"),
        ("lua:noinit.lua;", "noinit.lua: there is no function init() in the script"),
        ("lua:loop.lua;", "loop.lua:1: instruction limit exceeded"),
        ("lua:bytevar.lua;", "bytevar.lua:1: unknown byte_extract or byte_math variable none"),
        ("lua:buffer.lua;", "init() asks for \"buffer\": the rule has no sticky buffer before lua"),
        ("lua:missing.lua;", "couldn't load file: cannot open "),
        ("lua:/;", "is no regular file"),
        ("lua:/dev/zero;", "is no regular file"),
        ("tcp.hdr; luaxform:notransform.lua; content:\"x\";", "notransform.lua: there is no function transform()"),
        ("tcp.hdr; luaxform:missing.lua; content:\"x\";", "couldn't load file: cannot open "),
        ("tcp.hdr; luaxform:x.lua,1,2,3,4,5,6,7,8,9,10,11; content:\"x\";", "at most 10 are possible"),
    ] {
        std::fs::write(dir.join("my.rules"), rule(options)).expect("rules");
        let o = command(&dir, &["-T"]).output().expect("the engine starts");
        let said = said(&o);
        assert!(!o.status.success() && said.contains(want) && said.contains("my.rules"), "{options}: {said}");
        assert!(run(&dir, &[]).status.success());
    }
    std::fs::write(dir.join("my.rules"), rule("lua:good.lua;")).expect("rules");
    assert!(command(&dir, &["-T"]).status().expect("the engine starts").success());
    let o = command(&dir, &["-T", "--set", "security.lua.allow-rules=no"]).output().expect("the engine starts");
    assert!(!o.status.success() && said(&o).contains("security.lua.allow-rules"), "{}", said(&o));
    for bad in ["security.lua.max-bytes=0", "security.lua.max-instructions=-1", "security.lua.allow-rules=perhaps"] {
        let o = command(&dir, &["-T", "--set", bad]).output().expect("the engine starts");
        assert!(!o.status.success(), "{bad}: {}", said(&o));
    }
}

/// A configuration with scripts that write logs.
fn with_outputs(dir: &Path, scripts: &[&str]) -> PathBuf {
    let list: String = scripts.iter().map(|s| format!("        - {s}\n")).collect();
    let text = format!(
        "%YAML 1.1\n---\ninclude: {}\noutputs:\n  - eve-log:\n      enabled: yes\n      filename: eve.json\n      types: [alert, fileinfo, stats]\n  - lua:\n      enabled: yes\n      scripts-dir: {}\n      scripts:\n{list}",
        root().join("etc/margay.yaml").display(),
        dir.display(),
    );
    let path = dir.join("my.yaml");
    std::fs::write(&path, text).expect("a configuration");
    path
}

const LOGGING: &str = r#"local config = require("suricata.config")
function setup(args) file = assert(io.open(config.log_path() .. "/" .. name .. ".log", "a")) end
function deinit(args) file:write("end\n") file:close() end
local function say(...)
  local t = {}
  for i = 1, select('#', ...) do t[i] = tostring((select(i, ...))) end
  file:write(table.concat(t, " ") .. "\n")
  file:flush()
end
"#;

#[test]
fn scripts_that_write_logs() {
    let dir = folder("logs");
    let scripts = [
        (
            "http",
            "protocol = 'http'",
            "local h = require('suricata.http').get_tx() say(args.tx_id, h:request_host(), h:request_line(), (select(5, require('suricata.flow').get():tuple())))",
        ),
        (
            "dns",
            "protocol = 'dns'",
            "local d = require('suricata.dns') say(d.rrname(), d.rcode_string(), d.answers() and #d.answers())",
        ),
        (
            "tls",
            "protocol = 'tls'",
            "local t = require('suricata.tls').get_tx() say(t:get_sni(), t:get_client_version())",
        ),
        (
            "ssh",
            "protocol = 'ssh'",
            "local t = require('suricata.ssh').get_tx() say(t:client_software(), t:server_software())",
        ),
        (
            "smtp",
            "protocol = 'smtp'",
            "local t = require('suricata.smtp').get_tx() if t:get_mail_from() then say(t:get_mime_field('Subject')) end",
        ),
        (
            "packet",
            "type = 'packet'",
            "local p = require('suricata.packet').get() say(p:pcap_cnt(), (select(4, p:tuple())))",
        ),
        (
            "alerts",
            "type = 'packet', filter = 'alerts'",
            "local r = require('suricata.rule').get_rule() say(r:sid(), r:msg(), SCPacketTimeString() ~= nil)",
        ),
        (
            "flow",
            "type = 'flow'",
            "local f = require('suricata.flow').get() say((f:app_layer_proto()), f:has_alerts(), select('#', f:stats()))",
        ),
        (
            "file",
            "type = 'file'",
            "local f = require('suricata.file').get_file() say(f:file_id(), f:tx_id(), f:name(), f:size(), f:get_state(), f:is_stored(), f:magic(), f:md5(), f:sha1() ~= nil, f:sha256() ~= nil, select('#', SCFileInfo()), SCFileState())",
        ),
        (
            "streaming",
            "type = 'streaming', filter = 'tcp'",
            "local s = args.stream if s.data:find('hello=world') or s.data == '' then say(#s.data, s.open, s.close, s.toserver, s.toclient, (select(5, SCFlowTuple()))) end",
        ),
        (
            "body",
            "type = 'streaming', protocol = 'http'",
            "local s = args.stream say((s.data:gsub('%s+$', '')), s.open, s.close, s.toserver, s.toclient)",
        ),
        (
            "stats",
            "type = 'stats'",
            "for n, v in ipairs(args) do if v.name == 'decoder.pkts' then say(v.value, v.pvalue, v.tmname) end end",
        ),
        ("bad", "type = 'flow'", "while true do local x = nil .. 'x' end"),
    ];
    let names: Vec<String> = scripts.iter().map(|s| format!("{}.lua", s.0)).collect();
    for ((name, needs, body), file) in scripts.iter().zip(&names) {
        let text = format!(
            "name = '{name}'\n{LOGGING}function init(args) return {{{needs}}} end\nfunction log(args)\n{body}\nend\n"
        );
        std::fs::write(dir.join(file), text).expect("a script");
    }
    write(
        &dir,
        &[
            (
                "my.rules",
                "alert http any any -> any any (msg:\"one\"; http.uri; content:\"x.php\"; sid:7;)\nalert http any any -> any any (filemagic:\"HTML\"; filemd5:!none; noalert; sid:8;)\n",
            ),
            ("none", ""),
        ],
    );
    let config = with_outputs(&dir, &names.iter().map(String::as_str).collect::<Vec<_>>());
    let config = config.display().to_string();
    let o = run(&dir, &["-c", &config]);
    let said = said(&o);
    assert!(o.status.success(), "{said}");
    let log = |name: &str| -> Vec<String> {
        let text = std::fs::read_to_string(dir.join(format!("{name}.log"))).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    };
    assert_eq!(log("http"), ["0 www.example.org POST /a%2fb/x.php?q=1 HTTP/1.1 41000", "end"], "{said}");
    assert_eq!(log("dns"), ["www.example.org NOERROR nil", "www.example.org NXDOMAIN 2", "end"]);
    assert_eq!(log("tls"), ["tls.example.org TLS 1.2", "end"]);
    assert_eq!(log("ssh"), ["PuTTY_0.80 OpenSSH_9.6", "end"]);
    assert_eq!(log("smtp"), ["hello", "end"]);
    let packets = log("packet");
    assert_eq!((packets.len(), packets[0].as_str(), packets[76].as_str()), (78, "1 17", "77 1"));
    assert_eq!(log("alerts"), ["7 one true", "end"]);
    let flows = log("flow");
    assert_eq!(flows.len(), 7, "{flows:?}");
    assert!(flows.contains(&"http true 4".to_owned()) && flows.contains(&"tls false 4".to_owned()), "{flows:?}");
    assert_eq!(
        log("file").iter().find(|l| l.contains("page.html")).map(String::as_str),
        Some(
            "1 0 page.html 26 CLOSED false HTML document, ASCII text d8cb75ea10c75f7e36dd7eb83def5cf6 false false 8 CLOSED false"
        ),
        "{:?}",
        log("file")
    );
    let streams = log("streaming");
    assert!(streams[0].ends_with("true false true false 41000"), "{streams:?}");
    assert!(streams.contains(&"0 false true false true 41000".to_owned()), "{streams:?}");
    assert_eq!(
        log("body"),
        [
            "hello=world true false true false",
            " false true true false",
            "<html>the answer</html> true true false true",
            "end"
        ]
    );
    assert_eq!(log("stats").last().map(String::as_str), Some("end"));
    assert_eq!(log("stats")[0], "77 0 Total");
    assert_eq!(counter(&dir, "stats", "output_errors"), Some(6), "{said}");
    assert_eq!(said.matches("bad.lua:").count(), 1, "{said}");
}

#[test]
fn outputs_that_do_not_load() {
    let dir = folder("bad-logs");
    write(&dir, &[("my.rules", "")]);
    for (name, text, want) in [
        ("a.lua", "function init() return {type = 'nonsense'} end function log() end", "init() names no occasion"),
        ("b.lua", "function init() return {protocol = 'nfs'} end function log() end", "no script can log nfs"),
        ("c.lua", "function init() return {type = 'flow'} end", "there is no function log()"),
        ("d.lua", "function init( return", "d.lua:1: "),
        ("e.lua", "function init() os.exit(0) end", "Blocked Lua function called: os.exit"),
    ] {
        std::fs::write(dir.join(name), text).expect("a script");
        let config = with_outputs(&dir, &[name]).display().to_string();
        for test in [true, false] {
            let o = if test {
                command(&dir, &["-T", "-c", &config]).output().expect("the engine starts")
            } else {
                run(&dir, &["-c", &config])
            };
            assert!(!o.status.success() && said(&o).contains(want), "{name}: {}", said(&o));
        }
    }
    let config = with_outputs(&dir, &["missing.lua"]).display().to_string();
    let o = command(&dir, &["-T", "-c", &config]).output().expect("the engine starts");
    assert!(!o.status.success() && said(&o).contains("cannot open"), "{}", said(&o));
}
