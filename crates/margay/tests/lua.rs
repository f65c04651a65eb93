//! Lua scripts. Every function in Suricata's manual runs in a rule or a log of its own, on `lua/packets.pcap` (from
//! `lua/make-capture.py`).
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by it")]

#[path = "lua/functions.rs"]
mod functions;
#[path = "lua/logs.rs"]
mod logs;
mod process;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use process::{MARGAY, root};

fn folder(name: &str) -> PathBuf {
    process::folder(&format!("lua-{name}"))
}

fn said(o: &Output) -> String {
    String::from_utf8_lossy(&o.stdout).into_owned() + &String::from_utf8_lossy(&o.stderr)
}

fn command(dir: &Path, more: &[&str]) -> Command {
    let etc = |file: &str| root().join("etc").join(file).display().to_string();
    let mut c = Command::new(MARGAY);
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

/// A counter in the last statistics.
fn counter(dir: &Path, object: &str, key: &str) -> Option<u64> {
    let events = std::fs::read_to_string(dir.join("eve.json")).expect("events");
    let line = events.lines().rfind(|l| l.contains("\"event_type\":\"stats\""))?;
    number(line.split(&format!("\"{object}\":{{")).nth(1)?, key)
}

fn write(dir: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = dir.join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    }
}

/// Flow variables persist between calls, and are visible to rules and to other rules' scripts.
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

/// Results that are a match, and forms of a script's text.
#[test]
fn results_and_texts() {
    let dir = folder("results");
    const INIT: &str = "function init() return {payload = true} end\n";
    let results = ["1", "1, 2", "{retval = 1}", "{retval = '1'}", "1.0"];
    let others = ["'1'", "true", "0, 1", "{1}", "{retval = '2'}", "{retval = true}"];
    let mut rules = String::new();
    for (n, value) in results.iter().chain(&others).enumerate() {
        write(&dir, &[(&format!("r{n}.lua"), &format!("{INIT}function match() return {value} end"))]);
        let _ = writeln!(rules, "alert icmp any any -> any any (lua:r{n}.lua; sid:{};)", n + 1);
    }
    for (n, begin) in [(51, "\u{feff}"), (52, "#!/usr/bin/lua\n"), (53, "\u{feff}#!/usr/bin/lua\n")] {
        write(&dir, &[(&format!("t{n}.lua"), &format!("{begin}{INIT}function match() return 1 end"))]);
        let _ = writeln!(rules, "alert icmp any any -> any any (lua:t{n}.lua; sid:{n};)");
    }
    // A rule without msg has none, and map() is for init().
    write(
        &dir,
        &[
            (
                "msg.lua",
                "local r = require('suricata.rule') function init() return {} end function match() return r.get_rule():msg() == nil and SCRuleMsg() == nil and 1 or 0 end",
            ),
            (
                "map.lua",
                "local b = require('suricata.bytevar') function init() return {} end function match(s) b.map(s, 'x') return 1 end",
            ),
        ],
    );
    rules +=
        "alert icmp any any -> any any (lua:msg.lua; sid:60;)\nalert icmp any any -> any any (lua:map.lua; sid:61;)\n";
    write(&dir, &[("my.rules", &rules)]);
    let o = run(&dir, &[]);
    assert!(o.status.success(), "{}", said(&o));
    let sids: Vec<u64> = alerts(&dir).into_keys().collect();
    assert_eq!(sids, [1, 2, 3, 4, 5, 51, 52, 53, 60], "{}", said(&o));
    assert!(said(&o).contains("map() is only possible in init()"), "{}", said(&o));
}

/// The transform script of the manual, and one that returns nothing.
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

/// A script that exceeds a limit is stopped, logged once and counted. The other rules work.
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
    // With unrestricted Lua, two of them succeed.
    let o = run(&dir, &["--set", "security.lua.allow-restricted-functions=yes"]);
    assert!(o.status.success());
    assert_eq!(counter(&dir, "lua", "blocked_function_errors"), Some(0));
}

/// A broken script is an error of its rule, with file and line. A test of the configuration fails.
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
