//! Scripts that write logs.

use std::path::{Path, PathBuf};

use crate::{command, counter, folder, root, run, said, write};

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
            "local d = require('suricata.dns') say(d.rrname(), d.rcode_string(), #d.queries(), #d.answers())",
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
            "local s = args.stream say((s.data:gsub('%s+$', '')), select(2, SCStreamingBuffer())) if SCStreamingBuffer() ~= s.data then say('other') end",
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
    assert_eq!(log("dns"), ["www.example.org NOERROR 0 0", "www.example.org NXDOMAIN 0 1", "end"]);
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
            "0 0 page.html 26 CLOSED false HTML document, ASCII text d8cb75ea10c75f7e36dd7eb83def5cf6 false false 8 CLOSED false"
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
