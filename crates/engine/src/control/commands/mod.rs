//! The commands of the unix socket.
//!
//! [`COMMANDS`] names each with its arguments, in the order in which `margay ctl` takes them. A command sends requests to
//! workers for their state, and reads the rules from the active engines.

mod counters;
mod datasets;
mod files;
mod hostbits;
mod memcaps;
mod rules;
mod tenants;

use std::net::IpAddr;
use std::sync::Arc;

use margay_config::Config;
use margay_output::info;
use serde_json::{Map, Value, json};

use super::message::Answer;
use super::{Control, socket};
use crate::settings;
use crate::stats::Reporter;
use crate::worker::Worker;

/// The type of an argument.
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
    /// Only with `--unix-socket`.
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

/// Every command, in display order.
pub(crate) const COMMANDS: &[Command] = &[
    command("shutdown", &[], shutdown),
    command("command-list", &[], list),
    command("help", &[], list),
    // Tools split it at the blank.
    command("version", &[], |_, _| Ok(json!(format!("{} RELEASE", crate::COMPATIBLE)))),
    command("uptime", &[], |c, _| Ok(json!(c.started.elapsed().as_secs()))),
    command("running-mode", &[], |c, _| Ok(json!(c.live.get().map_or("single", |l| l.mode)))),
    command("capture-mode", &[], |c, _| {
        Ok(json!(match (c.live.get(), &c.queue) {
            (Some(l), _) => l.capture,
            (None, Some(_)) => "UNIX_SOCKET",
            (None, None) => "PCAP_FILE",
        }))
    }),
    command("iface-list", &[], counters::iface_list),
    command("iface-stat", &[text("iface")], counters::iface_stat),
    command("iface-bypassed-stat", &[], counters::bypassed),
    command("ebpf-bypassed-stat", &[], counters::bypassed),
    command("conf-get", &[text("variable")], conf_get),
    command("dump-counters", &[], counters::dump_counters),
    command("watch", &[], counters::watch),
    command("reload-rules", &[], rules::reload),
    command("ruleset-reload-rules", &[], rules::reload),
    command("ruleset-reload-nonblocking", &[], rules::reload_beside),
    command("ruleset-reload-time", &[], rules::reload_time),
    command("ruleset-stats", &[], rules::ruleset_stats),
    command("ruleset-failed-rules", &[], rules::failed_rules),
    command("register-tenant-handler", HANDLER, tenants::register_handler),
    command("unregister-tenant-handler", HANDLER, tenants::unregister_handler),
    command("register-tenant", &[whole("id"), text("filename")], tenants::register_tenant),
    command("reload-tenant", &[whole("id"), maybe(text("filename"))], tenants::reload_tenant),
    command("reload-tenants", &[], tenants::reload_tenants),
    command("unregister-tenant", &[whole("id")], tenants::unregister_tenant),
    command("add-hostbit", &[text("ipaddress"), text("hostbit"), whole("expire")], hostbits::add_hostbit),
    command("remove-hostbit", &[text("ipaddress"), text("hostbit")], hostbits::remove_hostbit),
    command("list-hostbit", &[text("ipaddress")], hostbits::list_hostbit),
    command("reopen-log-files", &[], reopen),
    command("memcap-set", &[text("config"), text("memcap")], memcaps::memcap_set),
    command("memcap-show", &[text("config")], memcaps::memcap_show),
    command("memcap-list", &[], memcaps::memcap_list),
    command("dataset-add", DATA, datasets::dataset_add),
    command(
        "dataset-add-json",
        &[text("setname"), text("settype"), text("datavalue"), text("datajson")],
        datasets::dataset_add_json,
    ),
    command("dataset-remove", DATA, datasets::dataset_remove),
    command("get-flow-stats-by-id", &[whole("flow_id")], counters::flow_stats),
    command("dataset-dump", &[], datasets::dataset_dump),
    command("dataset-clear", &[text("setname"), text("settype")], datasets::dataset_clear),
    command("dataset-lookup", DATA, datasets::dataset_lookup),
    file_command(
        "pcap-file",
        &[text("filename"), text("output-dir"), maybe(whole("tenant")), flag("continuous"), flag("delete-when-done")],
        |c, a| files::pcap_file(c, a, a.flag("continuous")),
    ),
    file_command(
        "pcap-file-continuous",
        &[text("filename"), text("output-dir"), maybe(whole("tenant")), flag("delete-when-done")],
        |c, a| files::pcap_file(c, a, true),
    ),
    file_command("pcap-file-number", &[], |c, _| Ok(json!(c.queue.as_ref().map_or(0, |q| q.len())))),
    file_command("pcap-file-list", &[], files::pcap_list),
    file_command("pcap-last-processed", &[], |c, _| Ok(json!(c.queue.as_ref().map_or(0, |q| q.last())))),
    file_command("pcap-interrupt", &[], files::pcap_interrupt),
    file_command("pcap-current", &[], files::pcap_current),
];

/// The validated arguments of a command.
pub(crate) struct Args<'a>(&'a Map<String, Value>);

impl<'a> Args<'a> {
    /// Checks that all required arguments are present, with the right types.
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

/// Runs the command of a message.
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
    let value = |config: &Config| match config.written(name).map(|n| n.value().map(str::to_owned)) {
        None => Err("Unable to get value".to_owned()),
        Some(None) => Err("No string value".to_owned()),
        Some(Some(v)) => Ok(json!(v)),
    };
    if OF_RULES.contains(&section) { value(&control.rules_config()) } else { value(&control.config) }
}

fn ask<T: Send + 'static>(
    control: &Control,
    ask: impl Fn(&mut Worker, &mut Reporter) -> T + Clone + Send + 'static,
) -> Result<Vec<T>, String> {
    let answers = control.ask(ask).map_err(|e| e.to_string())?;
    if answers.is_empty() { Err("nothing is being captured".into()) } else { Ok(answers) }
}

fn reopen(control: &Arc<Control>, _: &Args<'_>) -> Answer {
    margay_output::log::reopen();
    control.ask(|w, _| w.pipeline.stages.outputs.reopen(settings::now())).map_err(|e| e.to_string())?;
    info!("unix-manager", "log files reopened");
    Ok(json!("done"))
}

#[cfg(test)]
mod tests {
    use super::*;

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
