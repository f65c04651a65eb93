//! Tests every row of the table of settings: that it has an effect, has none, or is refused; its default, and its range.
//!
//! The tests write down all settings that the engine derives from a configuration ([`dump`]), once for a base and once with
//! one setting changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Debug, Write};
use std::path::Path;

use margay_config::keys::{self, Effect, Key, Kind};
use margay_config::{Config, RunOptions};

use crate::analysis::GroupSettings;
use crate::checksums::FileChecks;
use crate::exception::Policies;
use crate::parallel;
use crate::profiling::Profiling;
use crate::stats::StatsSettings;
use crate::{files, live, logging, rules, service, settings};

/// The base configuration: lists have entries, and features that are off by default are on.
const BASE: &str = "%YAML 1.1
---
vars:
  address-groups:
    HOME_NET: any
  port-groups:
    HTTP_PORTS: 80
outputs:
  - fast: {enabled: yes}
  - syslog: {enabled: yes}
  - http-log: {enabled: yes, custom: yes, customformat: '%p'}
  - tls-log: {enabled: yes, custom: yes, customformat: '%p'}
  - eve-log:
      enabled: yes
      xff: {enabled: yes, header: X-Forwarded-For}
      types:
        - alert: {}
        - anomaly: {}
        - arp: {}
        - dcerpc: {}
        - dhcp: {}
        - dns: {}
        - doh2: {}
        - drop: {}
        - files: {}
        - flow: {}
        - frame: {}
        - ftp: {}
        - http: {}
        - http2: {}
        - ike: {}
        - mdns: {}
        - metadata: {}
        - mqtt: {}
        - netflow: {}
        - pgsql: {}
        - quic: {}
        - smb: {}
        - smtp: {}
        - ssh: {}
        - stats: {threads: yes}
        - stream: {}
        - tftp: {}
        - tls: {extended: yes}
        - websocket: {}
  - stats: {enabled: yes, threads: yes}
  - alert-debug: {enabled: yes}
  - tcp-data: {enabled: yes}
  - http-body-data: {enabled: yes}
  - pcap-log: {enabled: yes, compression: lz4, conditional: alerts}
  - file-store: {enabled: yes, version: 2, xff: {enabled: yes, header: X-Forwarded-For}}
  - tls-store: {enabled: yes}
  - lua: {enabled: yes, scripts: [base.lua]}
logging:
  outputs:
    - console: {enabled: yes}
    - file: {enabled: yes}
    - syslog: {enabled: yes}
af-packet:
  - interface: lo
    threads: 2
af-xdp:
  - interface: lo
pcap:
  - interface: lo
stream:
  reassembly: {randomize-chunk-size: yes}
nfq:
  route-queue: 9
  repeat-mark: 4
  bypass-mark: 4
app-layer:
  protocols:
    http:
      libhtp:
        default-config:
          swf-decompression: {enabled: yes}
detect:
  sgh-mpm-caching: yes
  profile: custom
reputation-categories-file: categories.txt
firewall: {enabled: yes, rule-files: [base.rules]}
reputation-files: [base.list]
autofp-scheduler: optimistic
threading:
  set-cpu-affinity: yes
  cpu-affinity:
    management-cpu-set: {cpu: [0]}
    worker-cpu-set:
      cpu: [0]
      interface-specific-cpu-set:
        - interface: lo
          cpu: [0]
profiling:
  rules: {enabled: yes, active: yes}
multi-detect:
  enabled: yes
  selector: direct
datasets:
  seen:
    type: string
security:
  landlock: {enabled: yes}
";

fn base() -> Config {
    Config::from_str(BASE, "base").expect("the base")
}

fn line(out: &mut String, name: &str, value: Result<impl Debug, impl ToString>) -> Result<(), String> {
    let value = value.map_err(|e| format!("{name}: {}", e.to_string()))?;
    writeln!(out, "{name}: {value:?}").map_err(|e| e.to_string())
}

/// All settings of the engine, as text.
fn dump(config: &Config, options: &RunOptions) -> Result<String, String> {
    let dir = Path::new("/tmp");
    let mut out = String::new();
    let o = &mut out;
    let all = settings::JaWants { ja3: true, ja4: true, hassh: true };
    for ips in [false, true] {
        line(o, "stream", settings::stream(config, ips))?;
        let policies = Policies::from_config(config, ips, false).map(|mut p| {
            p.spare_midstream(config);
            (p, ips)
        });
        line(o, "policies", policies)?;
    }
    line(o, "checksums", settings::validates(options.checksums, config, true))?;
    line(o, "flow", settings::flow(config))?;
    line(o, "decode", settings::decode(config, false))?;
    line(o, "detect", crate::engines::detection(config, options))?;
    line(o, "recognised", settings::recogniser(config))?;
    let app = settings::app(config).map_err(|e| e.to_string())?;
    let parts: [&dyn Debug; 9] = [
        &app.settings,
        &app.memcap,
        &app.argument_limits,
        &app.collectors,
        &app.http1,
        &app.http2,
        &app.ftp,
        &app.smb,
        &app.smtp,
    ];
    line(o, "app", Ok::<_, String>(parts))?;
    for wants in [settings::JaWants::default(), all] {
        line(o, "tls", settings::tls(config, wants))?;
        line(o, "ssh", settings::ssh(config, wants.hassh))?;
    }
    line(o, "outputs", settings::outputs(config, dir))?;
    line(o, "ethernet", settings::wants_ethernet(config))?;
    line(o, "certificates", settings::certificate_folder(config, dir))?;
    line(o, "writer", settings::writer_thread(config, usize::MAX).map_err(|f| f.message))?;
    line(o, "files", settings::files(config, dir, options))?;
    line(o, "datasets", settings::datasets(config, options, true))?;
    line(o, "sets", settings::configured_sets(config))?;
    line(o, "firewall", settings::is_firewall(config, options))?;
    line(o, "firewall files", Ok::<_, String>(settings::firewall_files(config, options)))?;
    line(o, "firewall policies", settings::firewall_policies(config).map_err(|f| f.message))?;
    line(o, "tenants", settings::tenants(config))?;
    line(o, "stack", settings::stack_size(config))?;
    line(o, "web", settings::web(config, options))?;
    line(o, "groups", GroupSettings::of(config))?;
    line(o, "statistics", StatsSettings::of(config))?;
    line(o, "log", logging::outputs(config, dir).map_err(|f| f.message))?;
    line(o, "log filter", Ok::<_, String>(logging::configured_filter(config)))?;
    line(o, "profiling", Profiling::of(config, dir))?;
    line(o, "packet costs", Ok::<_, String>(parallel::PacketCosts::is_wanted(config)))?;
    line(o, "autofp", parallel::autofp(config, &autofp(options)).map_err(|f| f.message))?;
    line(o, "batches", files::batch_size(config).map_err(|f| f.message))?;
    line(o, "folders", files::folder(config, options, false).map_err(|f| f.message))?;
    line(o, "checksums of files", FileChecks::of(config, options))?;
    line(o, "log folder", Ok::<_, String>(settings::log_folder(config, options)))?;
    line(o, "most rules", rules::max_rules(config, margay_rules::Context::default().max_rules))?;
    rules::shown(config, options, o)?;
    service::shown(config, options, |o| live::access(config, o), o)?;
    live::shown(config, options, o)?;
    Ok(out)
}

/// The options, with the run mode that has several workers for a file.
fn autofp(options: &RunOptions) -> RunOptions {
    let runmode = options.runmode.clone().or(Some("autofp".into()));
    RunOptions { runmode, ..options.clone() }
}

/// Expands a path of the table to paths of the base: list items by number, names of sets one by one.
fn places(path: &str) -> Vec<String> {
    let config = base();
    let mut found = vec![String::new()];
    for part in path.split('.') {
        let names: Vec<String> = match part.strip_prefix('<').and_then(|p| p.strip_suffix('>')) {
            Some(set) => {
                let names = keys::sets().iter().find(|s| s.0 == set).map_or(&[][..], |s| &s.1);
                names.iter().map(|n| (*n).to_owned()).collect()
            }
            None if part == "*" => vec!["SOME".into()],
            None => vec![part.to_owned()],
        };
        let mut next = Vec::new();
        for before in &found {
            for name in &names {
                next.push(if before.is_empty() { name.clone() } else { format!("{before}.{name}") });
            }
        }
        found = next;
    }
    found.into_iter().filter_map(|p| numbered(&config, &p)).collect()
}

/// Replaces every `#` with the number of the entry that has the rest of the path.
fn numbered(config: &Config, path: &str) -> Option<String> {
    let Some(at) = path.find('#') else { return Some(path.to_owned()) };
    let (list, rest) = (path.get(..at)?.trim_end_matches('.'), path.get(at + 1..)?.trim_start_matches('.'));
    let next = rest.split('.').next()?;
    let entries: Vec<_> = config.node(list)?.children().collect();
    let named = entries.iter().position(|e| e.entry().0 == next);
    // A list whose entries are mappings.
    let n = named.or_else(|| entries.iter().position(|e| e.get("interface").is_some()))?;
    numbered(config, &format!("{list}.{n}.{rest}"))
}

/// Values to try instead of the default, or instead of the base's value.
fn values(key: &Key, path: &str) -> Vec<String> {
    let mut all: Vec<String> = key.example.into_iter().map(str::to_owned).collect();
    match key.kind {
        Kind::Flag => all.extend(["no", "yes"].map(String::from)),
        Kind::FlagOr(words) => {
            all.extend(["no", "yes"].map(String::from));
            all.extend(words.iter().map(|w| (*w).to_owned()));
        }
        Kind::Word(words) => all.extend(words.iter().map(|w| (*w).to_owned())),
        Kind::Number { least, most, .. } => all.extend([least, most, least + 1, 3].iter().map(i64::to_string)),
        Kind::Size { least, most } => {
            let some = [least, least + 4096, 1 << 20, 3 << 20, most.min(1 << 31)];
            all.extend(some.iter().map(|n| format!("{n}")));
        }
        Kind::Percent => all.extend(["5", "50"].map(String::from)),
        Kind::Fraction => all.extend(["0.5", "3.5"].map(String::from)),
        Kind::Text(_) | Kind::List(_) | Kind::Section => all.push("other".into()),
    }
    match base().get(path).map(str::to_owned) {
        Some(own) => all.retain(|v| *v != own),
        None => all.retain(|v| !key.is_default(v) || key.default.is_empty() || key.default == "*"),
    }
    all
}

fn with(path: &str, value: &str) -> Result<Config, String> {
    let mut config = base();
    // Lists are set item by item. A plain value would replace the whole list.
    let plain = value.trim();
    match plain.strip_prefix('[').and_then(|v| v.strip_suffix(']')) {
        Some(items) => {
            for (n, item) in items.split(',').enumerate() {
                let item = item.trim().trim_matches('"');
                config.set(&format!("{path}.{n}={item}")).map_err(|e| e.to_string())?;
            }
        }
        None => config.set(&format!("{path}={}", plain.trim_matches('"'))).map_err(|e| e.to_string())?,
    }
    Ok(config)
}

/// Whether any value of the key changes the engine's settings. If none does, the error lists the values tried.
fn acts(path: &str, key: &Key, before: &str) -> Result<(), String> {
    let mut tried = Vec::new();
    for value in values(key, path) {
        match with(path, &value).and_then(|c| dump(&c, &RunOptions::default())) {
            Ok(after) if after != before => return Ok(()),
            Ok(_) => tried.push(format!("{value}: the same")),
            Err(e) => tried.push(format!("{value}: {e}")),
        }
    }
    Err(format!("{path}: nothing changes ({})", tried.join("; ")))
}

fn rows(effect: fn(Effect) -> bool) -> impl Iterator<Item = &'static Key> {
    keys::all().filter(move |k| effect(k.effect))
}

#[test]
fn settings_that_act_change_something() {
    let before = dump(&base(), &RunOptions::default()).unwrap();
    let mut idle = Vec::new();
    for key in rows(|e| e == Effect::Acts).filter(|k| k.shown_by.is_none()) {
        let places = places(key.path);
        if places.is_empty() {
            idle.push(format!("{}: is nowhere in the base", key.path));
        }
        let tried: Vec<Result<(), String>> = places.iter().map(|p| acts(p, key, &before)).collect();
        // One of the names in angle brackets is enough, if not all of them have the setting.
        if tried.iter().all(Result::is_err) {
            idle.extend(tried.into_iter().filter_map(Result::err).take(1));
        }
    }
    assert!(idle.is_empty(), "{} settings act, says the table:\n{}", idle.len(), idle.join("\n"));
}

#[test]
fn settings_without_effect_change_nothing() {
    let before = dump(&base(), &RunOptions::default()).unwrap();
    let mut busy = Vec::new();
    for key in rows(|e| matches!(e, Effect::Ignored(_))).filter(|k| k.kind != Kind::Section) {
        for path in places(key.path) {
            for value in values(key, &path) {
                match with(&path, &value).and_then(|c| dump(&c, &RunOptions::default())) {
                    Ok(after) if after == before => {}
                    Ok(_) => busy.push(format!("{path}={value}")),
                    Err(e) => busy.push(format!("{path}={value}: {e}")),
                }
            }
        }
    }
    assert!(busy.is_empty(), "without effect, says the table:\n{}", busy.join("\n"));
}

#[test]
fn settings_that_are_refused_end_the_start() {
    let mut accepted = Vec::new();
    for key in rows(|e| matches!(e, Effect::Refused(_))).filter(|k| k.kind != Kind::Section) {
        for path in places(key.path) {
            for value in values(key, &path) {
                if with(&path, &value).and_then(|c| dump(&c, &RunOptions::default())).is_ok() {
                    accepted.push(format!("{path}={value}"));
                }
            }
        }
    }
    assert_eq!(accepted, [""; 0]);
}

#[test]
fn defaults_are_as_the_table_says() {
    let before = dump(&base(), &RunOptions::default()).unwrap();
    let mut wrong = Vec::new();
    let simple = |k: &&Key| k.shown_by.is_none() && !k.default.is_empty() && k.default != "*";
    for key in rows(|e| e == Effect::Acts).filter(simple) {
        // Settings of the base are skipped.
        for path in places(key.path).iter().filter(|p| base().node(p).is_none()).take(1) {
            match with(path, key.default).and_then(|c| dump(&c, &RunOptions::default())) {
                Ok(after) if after == before => {}
                Ok(after) => wrong.push(format!("{path}={}: {}", key.default, difference(&before, &after))),
                Err(e) => wrong.push(format!("{path}={}: {e}", key.default)),
            }
        }
    }
    assert!(wrong.is_empty(), "{} defaults:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn ranges_are_as_the_table_says() {
    let mut wrong = Vec::new();
    for key in rows(|e| e == Effect::Acts).filter(|k| k.shown_by.is_none() && !k.lenient) {
        let Some(path) = places(key.path).into_iter().next() else { continue };
        let outside: Vec<String> = match key.kind {
            Kind::Number { least, most, .. } => {
                [least.checked_sub(1), most.checked_add(1)].into_iter().flatten().map(|n| n.to_string()).collect()
            }
            Kind::Size { least, most } => {
                let sides = [least.checked_sub(1), most.checked_add(1)];
                sides.into_iter().flatten().map(|n| n.to_string()).chain(["much".to_owned()]).collect()
            }
            Kind::Flag => vec!["perhaps".into()],
            Kind::FlagOr(_) | Kind::Word(_) | Kind::Percent | Kind::Fraction => vec!["perhaps".into()],
            Kind::Text(_) | Kind::List(_) | Kind::Section => Vec::new(),
        };
        for value in outside {
            if let Ok(Ok(_)) = with(&path, &value).map(|c| dump(&c, &RunOptions::default())) {
                wrong.push(format!("{path}={value} is accepted"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} values:\n{}", wrong.len(), wrong.join("\n"));
}

/// The first line in which two dumps differ, shortened to the difference.
fn difference(a: &str, b: &str) -> String {
    for (a, b) in a.lines().zip(b.lines()) {
        if a != b {
            let at = a.bytes().zip(b.bytes()).take_while(|(x, y)| x == y).count();
            let near = |t: &str| t.chars().skip(at.saturating_sub(60)).take(120).collect::<String>();
            return format!("{} … instead of {}", near(b), near(a));
        }
    }
    "another number of lines".into()
}

#[test]
fn tests_that_are_named_are_there() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut texts: BTreeMap<&str, String> = BTreeMap::new();
    let named: BTreeSet<&str> = keys::all().filter_map(|k| k.shown_by).collect();
    let mut missing = Vec::new();
    for test in named {
        let (file, name) = test.split_once("::").expect("a file and a name");
        let text = texts.entry(file).or_insert_with(|| std::fs::read_to_string(crates.join(file)).unwrap_or_default());
        if !text.contains(&format!("fn {name}(")) && !text.contains(&format!("{name}: inner_")) {
            missing.push(test);
        }
    }
    assert_eq!(missing, [""; 0]);
}

#[test]
fn what_is_asked_for_is_in_the_table() {
    let mut config = base();
    let reads = config.note_reads();
    dump(&config, &RunOptions::default()).unwrap();
    let all = reads.paths();
    assert!(all.len() > 400, "{}", all.len());
    let unknown: Vec<&String> = all.iter().filter(|p| !keys::is_known(p)).collect();
    assert!(unknown.is_empty(), "asked for, and not in the table: {unknown:?}");
}
