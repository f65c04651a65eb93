//! The commands of the unix socket.
//!
//! [`COMMANDS`] names each with its arguments, in the order in which `margay ctl` takes them. What a command needs of a worker
//! is asked of the worker; what it needs of the engine's rules is read from the engines in use.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use margay_config::Config;
use margay_detect::dataset::{Added, DataSet};
use margay_detect::hostvars::HostKey;
use margay_flow::Direction;
use margay_output::event::EngineStats;
use margay_output::info;
use margay_output::time::Clock;
use margay_rules::ast::SetKind;
use serde_json::{Map, Value, json};

use super::message::Answer;
use super::queue::Job;
use super::{ANSWER, Control, socket};
use crate::engines::EngineSet;
use crate::settings::{self, Selector, VLAN_MAX, vlan_id};
use crate::stats::Reporter;
use crate::worker::Worker;

/// What an argument is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Number,
    Flag,
}

/// An argument of a command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arg {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) required: bool,
}

const fn text(name: &'static str) -> Arg {
    Arg { name, kind: Kind::Text, required: true }
}
const fn whole(name: &'static str) -> Arg {
    Arg { name, kind: Kind::Number, required: true }
}
const fn flag(name: &'static str) -> Arg {
    Arg { name, kind: Kind::Flag, required: false }
}
const fn maybe(arg: Arg) -> Arg {
    Arg { required: false, ..arg }
}

/// A command.
pub(crate) struct Command {
    pub(crate) name: &'static str,
    pub(crate) args: &'static [Arg],
    /// Only where capture files are handed over.
    files: bool,
    run: fn(&Arc<Control>, &Args<'_>) -> Answer,
}

const fn command(name: &'static str, args: &'static [Arg], run: fn(&Arc<Control>, &Args<'_>) -> Answer) -> Command {
    Command { name, args, files: false, run }
}
const fn file_command(
    name: &'static str,
    args: &'static [Arg],
    run: fn(&Arc<Control>, &Args<'_>) -> Answer,
) -> Command {
    Command { name, args, files: true, run }
}

const HANDLER: &[Arg] = &[whole("id"), text("htype"), maybe(whole("hargs"))];
const DATA: &[Arg] = &[text("setname"), text("settype"), text("datavalue")];

/// Every command, in the order in which they are listed.
pub(crate) const COMMANDS: &[Command] = &[
    command("shutdown", &[], shutdown),
    command("command-list", &[], list),
    command("help", &[], list),
    command("version", &[], |_, _| Ok(json!(format!("{} RELEASE", crate::VERSION)))),
    command("uptime", &[], |c, _| Ok(json!(c.started.elapsed().as_secs()))),
    command("running-mode", &[], |c, _| Ok(json!(c.live.get().map_or("single", |l| l.mode)))),
    command("capture-mode", &[], |c, _| {
        Ok(json!(match (c.live.get(), &c.queue) {
            (Some(l), _) => l.capture,
            (None, Some(_)) => "UNIX_SOCKET",
            (None, None) => "PCAP_FILE",
        }))
    }),
    command("iface-list", &[], iface_list),
    command("iface-stat", &[text("iface")], iface_stat),
    command("iface-bypassed-stat", &[], bypassed),
    command("ebpf-bypassed-stat", &[], bypassed),
    command("conf-get", &[text("variable")], conf_get),
    command("dump-counters", &[], dump_counters),
    command("reload-rules", &[], reload),
    command("ruleset-reload-rules", &[], reload),
    command("ruleset-reload-nonblocking", &[], reload_beside),
    command("ruleset-reload-time", &[], reload_time),
    command("ruleset-stats", &[], ruleset_stats),
    command("ruleset-failed-rules", &[], failed_rules),
    command("register-tenant-handler", HANDLER, register_handler),
    command("unregister-tenant-handler", HANDLER, unregister_handler),
    command("register-tenant", &[whole("id"), text("filename")], register_tenant),
    command("reload-tenant", &[whole("id"), maybe(text("filename"))], reload_tenant),
    command("reload-tenants", &[], reload_tenants),
    command("unregister-tenant", &[whole("id")], unregister_tenant),
    command("add-hostbit", &[text("ipaddress"), text("hostbit"), whole("expire")], add_hostbit),
    command("remove-hostbit", &[text("ipaddress"), text("hostbit")], remove_hostbit),
    command("list-hostbit", &[text("ipaddress")], list_hostbit),
    command("reopen-log-files", &[], reopen),
    command("memcap-set", &[text("config"), text("memcap")], memcap_set),
    command("memcap-show", &[text("config")], memcap_show),
    command("memcap-list", &[], memcap_list),
    command("dataset-add", DATA, dataset_add),
    command("dataset-remove", DATA, dataset_remove),
    command("get-flow-stats-by-id", &[whole("flow_id")], flow_stats),
    command("dataset-dump", &[], dataset_dump),
    command("dataset-clear", &[text("setname"), text("settype")], dataset_clear),
    command("dataset-lookup", DATA, dataset_lookup),
    file_command(
        "pcap-file",
        &[text("filename"), text("output-dir"), maybe(whole("tenant")), flag("continuous"), flag("delete-when-done")],
        |c, a| pcap_file(c, a, a.flag("continuous")),
    ),
    file_command(
        "pcap-file-continuous",
        &[text("filename"), text("output-dir"), maybe(whole("tenant")), flag("delete-when-done")],
        |c, a| pcap_file(c, a, true),
    ),
    file_command("pcap-file-number", &[], |c, _| Ok(json!(c.queue.as_ref().map_or(0, |q| q.len())))),
    file_command("pcap-file-list", &[], pcap_list),
    file_command("pcap-last-processed", &[], |c, _| Ok(json!(c.queue.as_ref().map_or(0, |q| q.last())))),
    file_command("pcap-interrupt", &[], pcap_interrupt),
    file_command("pcap-current", &[], pcap_current),
];

/// A command's arguments, as they must be.
pub(crate) struct Args<'a>(&'a Map<String, Value>);

impl<'a> Args<'a> {
    /// Checks that there is all that is required, of the right kind.
    fn new(of: &Command, given: &'a Map<String, Value>) -> Result<Args<'a>, String> {
        let args = Args(given);
        for a in of.args {
            let fits = match a.kind {
                _ if !given.contains_key(a.name) => !a.required,
                Kind::Text => args.text(a.name).is_some(),
                Kind::Number => args.number(a.name).is_some(),
                Kind::Flag => args.as_flag(a.name).is_some(),
            };
            if !fits {
                let what = match a.kind {
                    Kind::Text => "a text",
                    Kind::Number => "a whole number",
                    Kind::Flag => "true or false",
                };
                return Err(format!("{} needs {what} as the argument \"{}\"", of.name, a.name));
            }
        }
        Ok(args)
    }

    fn text(&self, name: &str) -> Option<&'a str> {
        self.0.get(name)?.as_str()
    }

    fn must(&self, name: &str) -> &'a str {
        self.text(name).unwrap_or_default()
    }

    fn number(&self, name: &str) -> Option<u64> {
        let v = self.0.get(name)?;
        v.as_u64().or_else(|| v.as_str()?.parse().ok())
    }

    fn as_flag(&self, name: &str) -> Option<bool> {
        let v = self.0.get(name)?;
        v.as_bool().or_else(|| margay_config::typed::parse_bool(v.as_str()?).ok())
    }

    fn flag(&self, name: &str) -> bool {
        self.as_flag(name).unwrap_or(false)
    }

    fn id(&self) -> Result<u32, String> {
        let id = self.number("id").and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0);
        id.ok_or_else(|| "a tenant's id is a number from 1 on".to_owned())
    }

    fn address(&self) -> Result<IpAddr, String> {
        self.must("ipaddress").parse().map_err(|_| "invalid address string".to_owned())
    }
}

/// Carries out what a message says.
pub(crate) fn run(control: &Arc<Control>, message: &Map<String, Value>) -> Answer {
    let Some(name) = message.get("command").and_then(Value::as_str) else {
        return Err("a message names a command: {\"command\": \"help\"}".into());
    };
    let Some(command) = known(control).find(|c| c.name == name) else {
        return Err("Unknown command".into());
    };
    let none = Map::new();
    let given = match message.get("arguments") {
        None | Some(Value::Null) => &none,
        Some(Value::Object(o)) => o,
        Some(_) => return Err("\"arguments\" is an object".into()),
    };
    (command.run)(control, &Args::new(command, given)?)
}

fn known(control: &Control) -> impl Iterator<Item = &'static Command> {
    let files = control.queue.is_some();
    COMMANDS.iter().filter(move |c| files || !c.files)
}

fn list(control: &Arc<Control>, _: &Args<'_>) -> Answer {
    let names: Vec<_> = known(control).map(|c| c.name).collect();
    Ok(json!({"count": names.len(), "commands": names}))
}

fn shutdown(control: &Arc<Control>, _: &Args<'_>) -> Answer {
    socket::stopping();
    control.signals.ask_to_stop();
    Ok(json!("Closing Margay"))
}

/// Sections of the configuration that a reload reads again.
const OF_RULES: [&str; 11] = [
    "vars",
    "rule-files",
    "default-rule-path",
    "classification-file",
    "reference-config-file",
    "threshold-file",
    "datasets",
    "multi-detect",
    "reputation-files",
    "reputation-categories-file",
    "default-reputation-path",
];

fn conf_get(control: &Arc<Control>, args: &Args<'_>) -> Answer {
    let name = args.must("variable");
    let section = name.split('.').next().unwrap_or_default();
    let value = |config: &Config| match config.node(name).map(|n| n.value().map(str::to_owned)) {
        None => Err("Unable to get value".to_owned()),
        Some(None) => Err("No string value".to_owned()),
        Some(Some(v)) => Ok(json!(v)),
    };
    if OF_RULES.contains(&section) { value(&control.rules_config()) } else { value(&control.config) }
}

fn iface_list(control: &Arc<Control>, _: &Args<'_>) -> Answer {
    let names = control.live.get().map_or(&[][..], |l| &l.interfaces);
    Ok(json!({"count": names.len(), "ifaces": names}))
}

fn iface_stat(control: &Arc<Control>, args: &Args<'_>) -> Answer {
    let name = args.must("iface").to_owned();
    if !control.live.get().is_some_and(|l| l.interfaces.contains(&name)) {
        return Err("iface does not exist".into());
    }
    let of = move |w: &mut Worker, _: &mut Reporter| {
        let ends = w.lane.rest.captured.as_ref().map_or(&[][..], |c| &c.ends);
        let bypassed = w.lane.rest.kernel.as_ref().map_or(0, |k| k.packets());
        ends.iter().find(|e| e.interface == name).map(|e| (e.live, e.invalid_checksums, bypassed))
    };
    let mut sum = margay_capture::live::LiveCounters::default();
    let (mut invalid, mut bypassed) = (0, 0);
    for (live, bad, past) in ask(control, of)?.into_iter().flatten() {
        sum.add(&live);
        invalid += bad;
        bypassed += past;
    }
    let (pkts, drop) = (sum.kernel_packets, sum.kernel_drops);
    Ok(json!({"pkts": pkts, "drop": drop, "bypassed": bypassed, "invalid-checksums": invalid}))
}

/// What was cut short before it came here: nothing is.
fn bypassed(_: &Arc<Control>, _: &Args<'_>) -> Answer {
    Err("No interface using bypass".into())
}

/// Dotted names as nested objects.
fn nest(counters: &[(String, u64)]) -> Value {
    let mut root = Map::new();
    for (name, value) in counters {
        let mut at = &mut root;
        let mut parts = name.split('.').peekable();
        while let Some(part) = parts.next() {
            let entry = at.entry(part).or_insert_with(|| json!({}));
            if parts.peek().is_none() {
                *entry = json!(value);
                break;
            }
            match entry {
                Value::Object(o) => at = o,
                _ => break,
            }
        }
    }
    Value::Object(root)
}

fn dump_counters(control: &Arc<Control>, _: &Args<'_>) -> Answer {
    let mut sum: Vec<(String, u64)> = Vec::new();
    for counters in ask(control, |w, r| r.counters(w))? {
        crate::stats::add(&mut sum, counters);
    }
    sum.push(("uptime".into(), control.started.elapsed().as_secs()));
    sum.push(("watchdog.stuck".into(), control.watch.stuck()));
    sum.push(("detect.rule_sets".into(), margay_detect::live_sets() as u64));
    let mut all = nest(&sum);
    if let Some(Value::Object(detect)) = all.get_mut("detect") {
        detect.insert("engines".into(), Value::Array(control.engines().stats().iter().map(engine).collect()));
    }
    Ok(all)
}

fn time_text(time: margay_packet::Time) -> String {
    let mut text = Vec::new();
    Clock::system().iso(&mut text, time);
    String::from_utf8_lossy(&text).into_owned()
}

fn engine(e: &EngineStats) -> Value {
    json!({
        "id": e.id,
        "last_reload": time_text(e.last_reload),
        "rules_loaded": e.rules_loaded,
        "rules_failed": e.rules_failed,
        "rules_skipped": e.rules_skipped,
    })
}

fn ask<T: Send + 'static>(
    control: &Control,
    ask: impl Fn(&mut Worker, &mut Reporter) -> T + Clone + Send + 'static,
) -> Result<Vec<T>, String> {
    let answers = control.ask(ask).map_err(|e| e.to_string())?;
    if answers.is_empty() { Err("nothing is being captured".into()) } else { Ok(answers) }
}

fn reload(control: &Arc<Control>, _: &Args<'_>) -> Answer {
    control.reload().map(|()| json!("done")).map_err(|f| f.message)
}

fn reload_beside(control: &Arc<Control>, _: &Args<'_>) -> Answer {
    match control.reload_beside() {
        Ok(true) => Ok(json!("done")),
        Ok(false) => Err("a reload is going on already".into()),
        Err(f) => Err(f.message),
    }
}

fn of_engines(control: &Control, f: impl Fn(&EngineStats) -> Value) -> Answer {
    Ok(Value::Array(control.engines().stats().iter().map(f).collect()))
}

fn reload_time(control: &Arc<Control>, _: &Args<'_>) -> Answer {
    of_engines(control, |e| json!({"id": e.id, "last_reload": time_text(e.last_reload)}))
}

fn ruleset_stats(control: &Arc<Control>, _: &Args<'_>) -> Answer {
    of_engines(
        control,
        |e| json!({"id": e.id, "rules_loaded": e.rules_loaded, "rules_failed": e.rules_failed, "rules_skipped": e.rules_skipped}),
    )
}

fn failed_rules(control: &Arc<Control>, _: &Args<'_>) -> Answer {
    let set = control.engines();
    let rules = set.all().flat_map(|(id, l)| {
        l.failed.iter().map(move |f| json!({"tenant_id": id, "rule": *f.text, "filename": f.file, "line": f.line}))
    });
    Ok(Value::Array(rules.collect()))
}

fn tenancy(control: &Control) -> Result<Arc<EngineSet>, String> {
    let set = control.engines();
    if set.multi { Ok(set) } else { Err("multi-tenant support not enabled".into()) }
}

fn register_tenant(control: &Arc<Control>, args: &Args<'_>) -> Answer {
    tenancy(control)?;
    let (id, file) = (args.id()?, PathBuf::from(args.must("filename")));
    if !file.exists() {
        return Err("file does not exist".into());
    }
    control.load_tenant(id, Some(file), true).map_err(|f| format!("adding tenant failed: {}", f.message))?;
    Ok(json!("adding tenant succeeded"))
}

fn reload_tenant(control: &Arc<Control>, args: &Args<'_>) -> Answer {
    tenancy(control)?;
    let file = args.text("filename").map(PathBuf::from);
    if file.as_ref().is_some_and(|f| !f.exists()) {
        return Err("file does not exist".into());
    }
    control.load_tenant(args.id()?, file, false).map_err(|f| format!("reload tenant failed: {}", f.message))?;
    Ok(json!("reloading tenant succeeded"))
}

fn reload_tenants(control: &Arc<Control>, _: &Args<'_>) -> Answer {
    tenancy(control)?;
    control.reload_tenants().map_err(|f| format!("reloading tenants failed: {}", f.message))?;
    Ok(json!("reloading tenants succeeded"))
}

fn unregister_tenant(control: &Arc<Control>, args: &Args<'_>) -> Answer {
    tenancy(control)?;
    let id = args.id()?;
    let change = |set: &mut EngineSet| {
        let before = set.tenants.len();
        set.tenants.retain(|t| t.id != id);
        if set.tenants.len() == before { Err("tenant detect engine not found".to_owned()) } else { Ok(()) }
    };
    control.change_tenants(change).map_err(|f| f.message)?;
    Ok(json!("removing tenant succeeded"))
}

/// The VLAN of a handler, or an answer to one that needs none.
fn handler(control: &Control, args: &Args<'_>) -> Result<Option<u16>, String> {
    let selector = tenancy(control)?.mappings.selector;
    match (args.must("htype"), selector) {
        ("vlan", _) => {
            let given = args.number("hargs").ok_or("handler \"vlan\" needs the VLAN as \"hargs\"")?;
            let vlan = i64::try_from(given).ok().and_then(vlan_id);
            let vlan = vlan.ok_or_else(|| format!("vlan argument out of range: it is 1 to {VLAN_MAX}"))?;
            if selector == Selector::Vlan {
                return Ok(Some(vlan));
            }
        }
        ("pcap", Selector::Direct) => return Ok(None),
        _ => {}
    }
    Err(format!(
        "handler setup failure: the selector is {}; there are vlan (with vlan) and pcap (with direct)",
        selector.name()
    ))
}

fn register_handler(control: &Arc<Control>, args: &Args<'_>) -> Answer {
    let id = args.id()?;
    if let Some(vlan) = handler(control, args)? {
        let change = |set: &mut EngineSet| match set.mappings.vlans.get(&vlan) {
            Some(other) => Err(format!("handler setup failure: VLAN {vlan} belongs to tenant {other}")),
            None => {
                set.mappings.vlans.insert(vlan, id);
                Ok(())
            }
        };
        control.change_tenants(change).map_err(|f| f.message)?;
    }
    Ok(json!("handler added"))
}

fn unregister_handler(control: &Arc<Control>, args: &Args<'_>) -> Answer {
    let id = args.id()?;
    if let Some(vlan) = handler(control, args)? {
        let change = |set: &mut EngineSet| {
            if set.mappings.vlans.get(&vlan) != Some(&id) {
                return Err("handler unregister failure".to_owned());
            }
            set.mappings.vlans.remove(&vlan);
            Ok(())
        };
        control.change_tenants(change).map_err(|f| f.message)?;
    }
    Ok(json!("handler removed"))
}

/// The number of a bit's name, which a rule must have given it.
fn bit(set: &EngineSet, name: &str) -> Option<u32> {
    set.default.detect.as_ref()?.names().number(name)
}

fn add_hostbit(control: &Arc<Control>, args: &Args<'_>) -> Answer {
    let address = args.address()?;
    let seconds = args.number("expire").and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0);
    let seconds = seconds.ok_or("expire is a number of seconds from 1 on")?;
    // The number is of the worker's own rules: others may be on their way to it.
    let name = args.must("hostbit").to_owned();
    let set = ask(control, move |w, _| {
        let now = w.lane.rest.now;
        let Some(bit) = bit(&w.lane.rest.engines.set, &name) else { return Err("hostbit not found") };
        let Some((_, state)) = w.lane.rest.own() else { return Err("detection is off") };
        match state.hosts_mut().set(HostKey::Host(address), bit, now, seconds) {
            true => Ok(()),
            false => Err("no room for another hostbit (host.memcap)"),
        }
    })?;
    set.into_iter().collect::<Result<(), _>>()?;
    Ok(json!("hostbit added"))
}

fn remove_hostbit(control: &Arc<Control>, args: &Args<'_>) -> Answer {
    let address = args.address()?;
    let name = args.must("hostbit").to_owned();
    let removed = ask(control, move |w, _| {
        let bit = bit(&w.lane.rest.engines.set, &name).ok_or("hostbit not found")?;
        if let Some((_, state)) = w.lane.rest.own() {
            state.hosts_mut().unset(HostKey::Host(address), bit);
        }
        Ok::<(), &str>(())
    })?;
    removed.into_iter().collect::<Result<(), _>>()?;
    Ok(json!("hostbit removed"))
}

fn list_hostbit(control: &Arc<Control>, args: &Args<'_>) -> Answer {
    let address = args.address()?;
    let mut found = ask(control, move |w, _| {
        let now = w.lane.rest.now;
        let Some((detect, state)) = w.lane.rest.own() else { return Vec::new() };
        let names = detect.names();
        let bits = state.hosts().bits_of(HostKey::Host(address), names.len() as u32, now);
        // What rules set without an end has a very late one.
        let left = |until: margay_packet::Time| until.micros_since(now).max(0) / 1_000_000;
        bits.into_iter().filter_map(|(n, until)| Some((names.name(n)?.to_owned(), left(until)))).collect()
    })?;
    let mut all: Vec<(String, i64)> = found.drain(..).flatten().collect();
    all.sort();
    all.dedup_by(|a, b| a.0 == b.0);
    let bits: Vec<_> = all.iter().map(|(name, expire)| json!({"name": name, "expire": expire})).collect();
    Ok(json!({"count": bits.len(), "hostbits": bits}))
}

fn reopen(control: &Arc<Control>, _: &Args<'_>) -> Answer {
    margay_output::log::reopen();
    control.ask(|w, _| w.lane.rest.outputs.reopen(settings::now())).map_err(|e| e.to_string())?;
    info!("unix-manager", "log files reopened");
    Ok(json!("done"))
}

/// A limit of memory: its name, its value in a worker (0 for none), and how it is changed; `false` where that cannot be.
type Memcap = (&'static str, fn(&Worker) -> u64, fn(&mut Worker, u64) -> bool);

const MEMCAPS: &[Memcap] = &[
    (
        "stream",
        |w| w.lane.rest.stream.config().memcap,
        |w, n| {
            let data = w.lane.rest.stream.config().reassembly_memcap;
            w.lane.rest.stream.set_memcaps(n, data);
            true
        },
    ),
    (
        "stream-reassembly",
        |w| w.lane.rest.stream.config().reassembly_memcap,
        |w, n| {
            let sessions = w.lane.rest.stream.config().memcap;
            w.lane.rest.stream.set_memcaps(sessions, n);
            true
        },
    ),
    (
        "flow",
        |w| w.lane.flows.config().memcap,
        |w, n| {
            w.lane.flows.set_memcap(n);
            true
        },
    ),
    (
        "applayer-proto-http",
        |w| w.lane.rest.app.config.http1.memcap,
        |w, n| Arc::get_mut(&mut w.lane.rest.app.config).map(|c| c.http1.memcap = n).is_some(),
    ),
    (
        "applayer-proto-ftp",
        |w| w.lane.rest.app.config.ftp.memcap,
        |w, n| Arc::get_mut(&mut w.lane.rest.app.config).map(|c| c.ftp.memcap = n).is_some(),
    ),
    (
        "defrag",
        |w| w.decoder.config().defrag.memcap as u64,
        |w, n| {
            // There is no way to have none.
            n > 0 && usize::try_from(n).map(|n| w.decoder.set_defrag_memcap(n)).is_ok()
        },
    ),
    ("ippair", |w| w.lane.rest.host_memcaps()[1], |w, n| n > 0 && w.lane.rest.set_host_memcap(1, n)),
    ("host", |w| w.lane.rest.host_memcaps()[0], |w, n| n > 0 && w.lane.rest.set_host_memcap(0, n)),
];

fn memcap(name: &str) -> Result<&'static Memcap, String> {
    let found = MEMCAPS.iter().find(|m| m.0 == name);
    found.ok_or_else(|| "Memcap value not found. Use 'memcap-list' to show all".to_owned())
}

/// Whether several workers share what is limited; of the rest each has a part.
fn is_shared(name: &str) -> bool {
    matches!(name, "host" | "ippair")
}

/// The limit of all workers together.
fn together(name: &str, workers: impl Iterator<Item = u64>) -> u64 {
    if is_shared(name) { workers.max().unwrap_or(0) } else { workers.sum() }
}

/// A limit as Suricata shows it.
fn shown(bytes: u64) -> String {
    match bytes {
        0 => "unlimited".into(),
        n if n % (1 << 30) == 0 => format!("{}gb", n >> 30),
        n if n % (1 << 20) == 0 => format!("{}mb", n >> 20),
        n => format!("{}kb", n >> 10),
    }
}

fn memcap_set(control: &Arc<Control>, args: &Args<'_>) -> Answer {
    let &(name, _, set) = memcap(args.must("config"))?;
    let bytes = margay_config::typed::parse_size(args.must("memcap"))
        .map_err(|e| format!("error parsing memcap specified, value not changed: {e}"))?;
    // Workers have a part of it each, but for what they share.
    let parts = if is_shared(name) { 1 } else { control.workers().len().max(1) as u64 };
    let part = if bytes == 0 { 0 } else { (bytes / parts).max(1) };
    match ask(control, move |w, _| set(w, part))?.contains(&false) {
        false => Ok(json!(format!(
            "memcap value for '{name}' updated: {bytes} {}",
            if bytes == 0 { "(unlimited)" } else { "" }
        ))),
        true => Err(format!("memcap value for '{name}' cannot be {bytes}, value not changed")),
    }
}

fn memcap_show(control: &Arc<Control>, args: &Args<'_>) -> Answer {
    let &(name, get, _) = memcap(args.must("config"))?;
    let all = ask(control, move |w, _| get(w))?;
    Ok(json!({"value": shown(together(name, all.into_iter()))}))
}

fn memcap_list(control: &Arc<Control>, _: &Args<'_>) -> Answer {
    let all = ask(control, |w, _| MEMCAPS.iter().map(|m| (m.1)(w)).collect::<Vec<_>>())?;
    let of = |n: usize, name| together(name, all.iter().filter_map(|w| w.get(n).copied()));
    let values = MEMCAPS.iter().enumerate().map(|(n, m)| json!({"name": m.0, "value": shown(of(n, m.0))}));
    Ok(Value::Array(values.collect()))
}

/// The sets of that name and type, of all engines: mostly one, that they share.
fn sets(control: &Control, args: &Args<'_>) -> Result<Vec<Arc<DataSet>>, String> {
    let (name, kind) = (args.must("setname"), args.must("settype"));
    let Some(kind) = SetKind::from_name(kind) else { return Err(format!("unknown settype \"{kind}\"")) };
    let engines = control.engines();
    let mut found: Vec<Arc<DataSet>> = Vec::new();
    for d in engines.all().filter_map(|(_, l)| l.detect.as_ref()) {
        if let Some(set) = d.datasets().get(name).filter(|s| s.kind() == kind)
            && found.iter().all(|f| !Arc::ptr_eq(f, set))
        {
            found.push(Arc::clone(set));
        }
    }
    if found.is_empty() { Err("set not found or wrong type".into()) } else { Ok(found) }
}

/// The sets, and the data as they have it.
fn data(control: &Control, args: &Args<'_>, failed: &str) -> Result<(Vec<Arc<DataSet>>, Vec<u8>), String> {
    let sets = sets(control, args)?;
    let data = sets.first().and_then(|s| s.parse(args.must("datavalue").as_bytes()));
    data.map(|d| (sets, d)).ok_or_else(|| format!("{failed}: it is not of the set's type (text is in base64)"))
}

fn dataset_add(control: &Arc<Control>, args: &Args<'_>) -> Answer {
    const FAILED: &str = "failed to add data";
    let (sets, data) = data(control, args, FAILED)?;
    let added: Vec<Added> = sets.iter().map(|s| s.add(&data)).collect();
    if added.contains(&Added::Full) {
        Err(format!("{FAILED}: the set is full (memcap)"))
    } else if added.contains(&Added::New) {
        Ok(json!("data added"))
    } else if added.contains(&Added::There) {
        Ok(json!("data already in set"))
    } else {
        Err(FAILED.into())
    }
}

fn dataset_remove(control: &Arc<Control>, args: &Args<'_>) -> Answer {
    const FAILED: &str = "failed to remove data";
    let (sets, data) = data(control, args, FAILED)?;
    match sets.iter().filter(|s| s.remove(&data)).count() {
        0 => Err(format!("{FAILED}: it is not in the set")),
        _ => Ok(json!("data removed")),
    }
}

fn dataset_lookup(control: &Arc<Control>, args: &Args<'_>) -> Answer {
    let (sets, data) = data(control, args, "failed to look data up")?;
    match sets.iter().any(|s| s.contains(&data)) {
        true => Ok(json!("item found in set")),
        false => Err("item not found in set".into()),
    }
}

fn dataset_clear(control: &Arc<Control>, args: &Args<'_>) -> Answer {
    sets(control, args)?.iter().for_each(|s| s.clear());
    Ok(json!("dataset cleared"))
}

fn dataset_dump(control: &Arc<Control>, _: &Args<'_>) -> Answer {
    let problems = control.engines().datasets().save();
    if problems.is_empty() { Ok(json!("datasets dump done")) } else { Err(problems.join("; ")) }
}

/// Flows looked at in one go: some tens of microseconds.
const FLOWS_AT_ONCE: u32 = 4096;

fn flow_stats(control: &Arc<Control>, args: &Args<'_>) -> Answer {
    let id = args.number("flow_id").unwrap_or(0);
    let workers = control.workers();
    if workers.is_empty() {
        return Err("nothing is being captured".into());
    }
    for post in workers {
        let mut from = Some(0);
        while let Some(at) = from {
            let found = post.ask(ANSWER, move |w, _| {
                let now = w.lane.rest.now;
                w.lane.flows.find_id(id, at, FLOWS_AT_ONCE).map(|f| {
                    let (server, client) = (Direction::ToServer.index(), Direction::ToClient.index());
                    let c = &f.core;
                    json!({
                        "flow_id": id,
                        "pkts_toserver": c.pkts[server],
                        "pkts_toclient": c.pkts[client],
                        "bytes_toserver": c.bytes[server],
                        "bytes_toclient": c.bytes[client],
                        "age": now.secs().saturating_sub(c.start.secs()),
                    })
                })
            });
            match found.map_err(|e| e.to_string())? {
                Ok(flow) => return Ok(flow),
                Err(next) => from = next,
            }
        }
    }
    Err("Not found".into())
}

fn pcap_file(control: &Arc<Control>, args: &Args<'_>, continuous: bool) -> Answer {
    let Some(queue) = &control.queue else { return Err("Unknown command".into()) };
    let (file, dir) = (PathBuf::from(args.must("filename")), PathBuf::from(args.must("output-dir")));
    if !file.exists() {
        return Err("filename does not exist".into());
    }
    if !dir.is_dir() {
        return Err("output-dir does not exist".into());
    }
    let tenant = match args.number("tenant") {
        None => 0,
        Some(n) => u32::try_from(n).map_err(|_| "tenant is a tenant's id".to_owned())?,
    };
    if tenant != 0 && tenancy(control)?.tenant(tenant).is_none() {
        return Err(format!("there is no tenant {tenant}"));
    }
    let job = Job { file, dir, tenant, continuous, delete: args.flag("delete-when-done") };
    if queue.push(job) { Ok(json!("Successfully added file to list")) } else { Err("too many files wait".into()) }
}

fn pcap_list(control: &Arc<Control>, _: &Args<'_>) -> Answer {
    let files = control.queue.as_ref().map(super::queue::Queue::waiting).unwrap_or_default();
    Ok(json!({"count": files.len(), "files": files}))
}

fn pcap_interrupt(control: &Arc<Control>, _: &Args<'_>) -> Answer {
    if let Some(queue) = &control.queue {
        queue.interrupt.store(true, std::sync::atomic::Ordering::Relaxed);
    }
    Ok(json!("Interrupted"))
}

fn pcap_current(control: &Arc<Control>, _: &Args<'_>) -> Answer {
    let current = control.queue.as_ref().and_then(super::queue::Queue::current);
    Ok(current.map_or_else(|| json!("None"), |c| json!(c)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_nest() {
        let list = [("a.b.c", 1), ("a.b.d", 2), ("e", 3), ("a.f", 4)].map(|(n, v)| (n.to_owned(), v));
        assert_eq!(nest(&list), json!({"a": {"b": {"c": 1, "d": 2}, "f": 4}, "e": 3}));
        // A name that is a group as well breaks nothing.
        let odd = [("a", 1), ("a.b", 2)].map(|(n, v)| (n.to_owned(), v));
        assert_eq!(nest(&odd), json!({"a": 1}));
    }

    #[test]
    fn limits_as_they_are_shown() {
        assert_eq!([0, 3 << 30, 32 << 20, 1 << 10, 1].map(shown), ["unlimited", "3gb", "32mb", "1kb", "0kb"]);
    }

    #[test]
    fn arguments() {
        let command = COMMANDS.iter().find(|c| c.name == "pcap-file").unwrap();
        let of =
            |v: Value| Args::new(command, v.as_object().unwrap()).map(|a| (a.number("tenant"), a.flag("continuous")));
        assert!(of(json!({"filename": "a"})).unwrap_err().contains("output-dir"));
        assert!(of(json!({"filename": 1, "output-dir": "b"})).is_err());
        assert!(of(json!({"filename": "a", "output-dir": "b", "tenant": "x"})).is_err());
        let all = json!({"filename": "a", "output-dir": "b", "tenant": 3, "continuous": "true"});
        assert_eq!(of(all), Ok((Some(3), true)));
    }

    #[test]
    fn every_name_is_there_once() {
        let mut names: Vec<_> = COMMANDS.iter().map(|c| c.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), COMMANDS.len());
    }
}
