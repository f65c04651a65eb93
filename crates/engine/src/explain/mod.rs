//! `margay rules explain SID --pcap FILE`: shows the evaluation of one rule, packet by packet.
//!
//! The capture goes through the engine as in a run, with all rules, so that bits, `pass` rules and thresholds have their
//! normal effect. Only detection is traced ([`DetectState::explaining`](margay_detect::DetectState::explaining)), and nothing
//! else is written: no events, files or datasets. If the rule was not loaded, the command searches the files for the reason.

mod json;
mod text;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use margay_config::{Capture, Checksums, Config, RuleFiles, RunOptions};
use margay_detect::explain::RuleTrace;
use margay_detect::{Detect, DetectConfig, Environment, RuleKind};
use margay_output::log::{self, LogOutput, LogTarget};
use margay_rules::Loader;
use margay_rules::ast::Rule;
use margay_stream::StreamEvent;

use crate::console::say;
use crate::engines::EngineSet;
use crate::exception::Policies;
use crate::post::Post;
use crate::rules::Source;
use crate::signals::Signals;
use crate::stats::Reporter;
use crate::watching::Watching;
use crate::worker::worker;
use crate::{Failed, files, rules, settings, single};

pub(crate) const HELP: &str = "\
Usage: margay rules explain SID --pcap FILE [OPTIONS]

Runs a capture through the engine and shows which checks of one rule matched or
failed, with the packet, the buffer and the bytes.

  --pcap FILE, -r FILE  the capture, or a folder of captures
  -S FILE               the rules (default: those of the configuration); may be a pattern
  -c FILE               the configuration (default: the installed one, or else
                        the built-in one)
  --set NAME=VALUE      change a setting of it
  --gid N               the rule's generator (default: any)
  -k none|all           as in a run: whether checksums are checked
  --simulate-ips        inline: drops are carried out
  --json                one JSON object instead of text
  -h, --help            this text

Exit status: 0 if the rule matched, 1 if it did not, 2 if the command failed (the
rule does not exist or does not load, or the capture cannot be read).
";

/// The options of the command.
#[derive(Debug, Default)]
struct Options {
    sid: u32,
    gid: Option<u32>,
    run: RunOptions,
    pcap: PathBuf,
    json: bool,
}

/// A rule, and its trace.
struct Explained<'a> {
    rule: &'a Rule,
    kind: Option<RuleKind>,
    trace: &'a RuleTrace,
}

fn parse(args: &[OsString]) -> Result<Option<Options>, String> {
    let mut o = Options::default();
    let (mut sid, mut pcap) = (None, None);
    let mut args = args.iter();
    while let Some(a) = args.next() {
        let mut value = |what: &str| args.next().cloned().ok_or_else(|| format!("{what} needs a value"));
        let text = |v: OsString| v.into_string().map_err(|v| format!("{} is not UTF-8 text", v.to_string_lossy()));
        match a.to_str() {
            Some("-h" | "--help") => return Ok(None),
            Some("--json") => o.json = true,
            Some("--simulate-ips") => o.run.simulate_ips = true,
            Some(n @ ("--pcap" | "-r")) => pcap = Some(PathBuf::from(value(n)?)),
            Some("-c") => o.run.config = Some(value("-c")?.into()),
            Some("-S") => o.run.rules = RuleFiles::Exclusive(text(value("-S")?)?),
            Some("--set") => {
                let set = text(value("--set")?)?;
                if !set.contains('=') {
                    return Err("--set needs NAME=VALUE".into());
                }
                o.run.sets.push(set);
            }
            Some("--gid") => {
                o.gid = Some(text(value("--gid")?)?.parse().map_err(|_| "--gid needs a number".to_owned())?);
            }
            Some("-k") => {
                o.run.checksums = Some(match text(value("-k")?)?.as_str() {
                    "none" => Checksums::None,
                    "all" => Checksums::All,
                    other => return Err(format!("-k: '{other}' is neither none nor all")),
                });
            }
            Some(s) if sid.is_none() && !s.starts_with('-') => {
                sid = Some(s.parse().map_err(|_| format!("'{s}' is no signature number"))?);
            }
            _ => return Err(format!("unrecognized argument '{}'", a.to_string_lossy())),
        }
    }
    o.sid = sid.ok_or("name the rule by its signature number")?;
    o.pcap = pcap.ok_or("name a capture with --pcap")?;
    o.run.capture = Some(Capture::File(o.pcap.clone()));
    Ok(Some(o))
}

/// Runs `margay rules explain …`; `args` are the arguments after `explain`.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    let options = match parse(args) {
        Ok(Some(o)) => o,
        Ok(None) => return say(HELP),
        Err(e) => {
            eprintln!("margay rules: {e}\nTry 'margay rules explain --help'.");
            return ExitCode::from(2);
        }
    };
    match explain(&options) {
        Ok(code) => code,
        Err(f) => {
            eprintln!("margay rules: {}", f.message);
            ExitCode::from(2)
        }
    }
}

/// Limits the engine's messages: none while rules load (`rules check` shows problems of other rules), errors afterwards.
fn quiet(loading: bool) {
    let target = if loading { LogTarget::File("/dev/null".into()) } else { LogTarget::Console };
    if let Err(e) =
        log::init(&[LogOutput { target, level: log::Level::Error, json: false, format: None }], log::Level::Error, None)
    {
        eprintln!("margay rules: {e}");
    }
}

/// Prints the explanation. The status is a failure if the rule did not match.
fn explain(o: &Options) -> Result<ExitCode, Failed> {
    quiet(true);
    let config = settings::configuration(&o.run)?;
    let ips = o.run.simulate_ips;
    let source = files::open(&config, &o.run, &o.pcap, false)?;
    let nowhere = std::env::temp_dir();
    let loaded = rules::load(&Source {
        config: &config,
        rules: &config,
        options: &o.run,
        ips,
        settings: &DetectConfig { cache: None, ..settings::detect(&config)? },
        dir: &nowhere,
        tenant: false,
        previous: None,
        sets: None,
        explain: true,
    })?;
    let Some(detect) = loaded.detect.clone() else { return Err(Failed::new("detect", "there are no rules")) };
    let numbered = (0u32..).zip(detect.rules());
    let wanted: Vec<u32> =
        numbered.filter(|(_, r)| r.sid == o.sid && o.gid.is_none_or(|g| g == r.gid)).map(|x| x.0).collect();
    if wanted.is_empty() {
        return Err(Failed::new("detect", whereabouts(&config, o)?));
    }
    let midstream = settings::flag(&config, "stream.midstream", false)?;
    let policies =
        Policies::from_config(&config, ips, midstream).map_err(|e| Failed::new("exception-policy", e.to_string()))?;
    let watching = Watching::Explain(wanted);
    let engines = Arc::new(EngineSet { default: Arc::new(loaded), ..EngineSet::default() });
    let mut worker = worker(&config, &o.run, ips, &policies, engines, &nowhere, &watching)?;
    let mut reporter = Reporter::new(&config, false)?;
    let signals = Signals::install().map_err(|e| Failed::new("suricata", format!("cannot take signals: {e}")))?;
    quiet(false);
    let steering = single::Steering { signals: &signals, post: &Post::default(), queue: None };
    let ran = single::run(
        source,
        &mut worker,
        &mut reporter,
        &steering,
        &mut crate::service::watchdog::Watch::default().join("explain"),
        None,
    );
    if let Some(refused) = ran.refused {
        return Err(refused);
    }
    worker.finish();
    let Some((_, state)) = &worker.pipeline.stages.detect else {
        return Err(Failed::new("detect", "there are no rules"));
    };
    let explained: Vec<Explained<'_>> = state
        .traces()
        .iter()
        .filter_map(|trace| {
            let rule = detect.rules().get(trace.rule as usize)?.tree()?;
            Some(Explained { rule, kind: detect.kind(trace.rule), trace })
        })
        .collect();
    let notes = notes(&worker);
    let said = say(&if o.json { json::report(&explained, &notes) } else { text::report(&explained, &notes) });
    Ok(if explained.iter().any(|e| e.trace.matched > 0) { said } else { ExitCode::FAILURE })
}

/// Reasons in the capture that prevent any rule from matching.
fn notes(worker: &crate::worker::Worker) -> Vec<String> {
    let mut out = Vec::new();
    let wrong = worker.pipeline.stages.stream.counters.invalid_checksum;
    if wrong > 0 {
        out.push(format!(
            "{wrong} TCP packets have a wrong checksum and are kept out of their streams, so that nothing in them is found; \
             -k none takes them in (captures made where packets are sent often have such checksums)"
        ));
    }
    out
}

/// Whether a rule's text has this sid.
fn names(text: &str, sid: u32) -> bool {
    text.match_indices("sid").any(|(at, word)| {
        let rest = text.get(at + word.len()..).unwrap_or("").trim_start();
        let Some(rest) = rest.strip_prefix(':') else { return false };
        let number: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
        number.parse() == Ok(sid)
    })
}

/// Why the rule was not loaded.
fn whereabouts(config: &Config, o: &Options) -> Result<String, Failed> {
    let mut ctx = rules::context(config, &o.run, o.run.simulate_ips);
    rules::classes_and_references(config, config, &mut ctx);
    let (paths, missing) = rules::files(config, &o.run);
    if paths.is_empty() {
        return Ok(match missing.first() {
            Some(m) => format!("there is no rule file {m}"),
            None => "there are no rule files: name one with -S, or in the configuration (rule-files)".into(),
        });
    }
    let mut loader = Loader::new(&ctx);
    for path in &paths {
        let read = loader.load_file(path);
        read.map_err(|e| Failed::new("detect", format!("cannot read {}: {e}", path.display())))?;
    }
    let set = loader.finish();
    let is = |r: &&Rule| r.sid == o.sid && o.gid.is_none_or(|g| g == r.gid);
    let at = |p: &margay_rules::ast::Place| format!("rule {} ({}:{})", o.sid, p.file, p.line);
    if let Some(r) = set.set_aside.iter().find(is) {
        return Ok(format!("{} is set aside: this build does not have {}", at(&r.place), r.missing.join(", ")));
    }
    if let Some(r) = set.rules.iter().find(is) {
        let environment = Environment {
            stream_event: &|name| StreamEvent::from_name(name).map(|e| e as u8),
            rule_folder: config.get("default-rule-path").map(std::path::Path::new),
            ..Environment::default()
        };
        let (_, report) = Detect::compile(vec![r.clone()], &environment, &DetectConfig::default())
            .map_err(|e| Failed::new("detect", e.to_string()))?;
        let (what, list) = match report.set_aside.is_empty() {
            true => ("does not load", &report.errors),
            false => ("is set aside", &report.set_aside),
        };
        let why = list.first().map_or("what it names is not there (see margay -T)", |e| e.1.as_str());
        return Ok(format!("{} {what}: {why}", at(&r.place)));
    }
    if let Some(e) = set.errors.iter().find(|e| names(&e.text, o.sid)) {
        let said: Vec<String> = e
            .messages
            .iter()
            .filter(|m| !m.text.starts_with("error parsing signature"))
            .map(|m| format!("{}: {}", m.module, m.text))
            .collect();
        return Ok(format!("{} does not load, column {}: {}", at(&e.place), e.place.column, said.join("; ")));
    }
    for s in &set.skipped {
        let line = s.place.line.saturating_sub(1) as usize;
        let text = std::fs::read(&*s.place.file).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let whole: Vec<&str> = text.lines().skip(line).take(16).collect();
        let first = whole.iter().position(|l| !l.ends_with('\\')).map_or(whole.len(), |n| n + 1);
        if names(&whole.get(..first).unwrap_or(&whole).join(" "), o.sid) {
            return Ok(format!("{} is skipped: {}", at(&s.place), s.reason));
        }
    }
    Ok(format!("there is no rule with signature number {} in {} rule files", o.sid, set.files))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments() {
        let of = |a: &[&str]| parse(&a.iter().map(OsString::from).collect::<Vec<_>>());
        let o = of(&["7", "--pcap", "x.pcap", "-S", "a.rules", "--json", "-k", "none"]).unwrap().unwrap();
        assert_eq!((o.sid, o.json, o.run.checksums), (7, true, Some(Checksums::None)));
        assert!(of(&["--help"]).unwrap().is_none());
        for bad in [&["7"][..], &["--pcap", "x"], &["x", "--pcap", "x"], &["7", "8", "--pcap", "x"], &["7", "--pcap"]] {
            assert!(of(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn signatures_in_texts() {
        assert!(names("alert ip any any -> any any (sid : 12;)", 12));
        assert!(!names("alert ip any any -> any any (msg:\"sid 12\"; sid:123;)", 12));
    }
}
