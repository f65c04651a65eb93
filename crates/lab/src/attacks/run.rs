//! `margay lab attacks run`: sends a capture of attacks through an engine, and records which were stopped.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use super::eve::{self, Alerts};
use super::live::{self, Arrived};
use super::results::{self, Line, Others, Run, Verdict};
use super::sent::Counted;
use super::truth::{self, Truth};
use crate::command::own_engine;
use crate::engine::{Contract, From, Options, Running};
use crate::made::Session;
use crate::problem::{Outcome, Problem};
use crate::signals;
use crate::traffic::units;

/// Send a capture of attacks through an inline engine, and report what was stopped
#[derive(clap::Args)]
#[command(after_help = "\
The engine stands between two pairs of interfaces that the command makes and removes, in a network namespace of its own (root).
What arrives on the other side decides: an attack is stopped where data of it never arrived and a rule blocked it.

Examples:
  margay lab attacks run mix.pcap -c etc/margay.yaml -S defence/margay-defence.rules -S defence/margay-network.rules
  margay lab attacks run mix.pcap -c etc/margay.yaml -S my.rules --rate 200Mbps --threads 2 -o out
  margay lab attacks run attacks.pcap -c etc/margay.yaml -S my.rules --offline    no interfaces: the engine reads the capture
  margay lab attacks report out -o report.html")]
pub(crate) struct Args {
    /// A capture by `margay lab attacks make`, with its ground truth beside it
    #[arg(value_name = "CAPTURE")]
    capture: PathBuf,
    /// A file with rules; may be repeated
    #[arg(short = 'S', long, value_name = "FILE", required = true)]
    rules: Vec<String>,
    /// The engine's configuration, which writes alerts to eve.json
    #[arg(short = 'c', long, value_name = "FILE")]
    config: Option<String>,
    /// The engine: margay, suricata, or the path of one of them
    #[arg(short, long, value_name = "PROGRAM", default_value = "margay")]
    engine: String,
    /// A setting for the engine
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Sending rate (100Mbps, 20kpps) [default: as captured]
    #[arg(long, value_parser = rate)]
    rate: Option<String>,
    /// Number of the engine's workers for each interface
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: u32,
    /// Send no packets; the engine reads the capture and simulates its verdicts
    #[arg(long, conflicts_with_all = ["rate", "threads"])]
    offline: bool,
    /// The folder for results.jsonl and the engine's output
    #[arg(short, long, value_name = "FOLDER", default_value = "lab-attacks")]
    output: PathBuf,
}

fn rate(text: &str) -> Result<String, String> {
    units::rate(text).map(|_| text.to_owned())
}

impl Args {
    /// The rules as one file, because engines accept only one.
    fn one_file(&self) -> Outcome<String> {
        if let [one] = &self.rules[..] {
            return Ok(one.clone());
        }
        let mut all = Vec::new();
        for file in &self.rules {
            let text = std::fs::read(file).map_err(|error| Problem::file("read", Path::new(file), error))?;
            all.extend(text);
            all.push(b'\n');
        }
        let path = self.output.join("all.rules");
        std::fs::write(&path, all).map_err(|error| Problem::file("write", &path, error))?;
        Ok(path.to_string_lossy().into_owned())
    }

    fn contract(&self) -> Outcome<Contract> {
        let binary = if self.engine == "margay" { own_engine() } else { self.engine.clone() };
        // Some samples are segments without a connection. Do not drop them for that reason alone.
        let mut set = vec!["stream.midstream-policy=ignore".to_owned()];
        let mut args = Vec::new();
        if self.offline {
            args.push("--simulate-ips".to_owned());
        } else {
            for (n, own, other) in [(0, "{interface}", "{peer}"), (1, "{peer}", "{interface}")] {
                for setting in [
                    format!("interface={own}"),
                    "copy-mode=ips".to_owned(),
                    format!("copy-iface={other}"),
                    format!("threads={}", self.threads.max(1)),
                ] {
                    set.push(format!("af-packet.{n}.{setting}"));
                }
            }
            args.extend(["--runmode", "workers"].map(str::to_owned));
        }
        set.extend(self.set.iter().cloned());
        let options = Options { config: self.config.clone(), rules: vec![self.one_file()?], set, args };
        Ok(Contract::suricata("engine", &binary, &options).listed())
    }

    fn offline(&self, truths: &[Truth], run: &mut Run) -> Outcome<Vec<Line>> {
        let mut session = Session::begin()?;
        let dir = self.output.join("engine");
        let short = session.make_folder()?;
        let from = From::Capture(self.capture.clone());
        Running::start(&self.contract()?, &from, &dir, &short, &mut session)?.finish(Duration::from_secs(3600))?;
        let (alerts, sent) = (Alerts::read(&dir.join("eve.json"))?, Counted::of(&self.capture, None)?);
        run.packets = sent.attacks() + sent.others;
        (run.harm, run.policies) = (alerts.harm(), alerts.policies.clone());
        if sent.others > 0 {
            let blocked = alerts.others.len() as u64;
            let sessions = sent.flows.len() as u64;
            run.with =
                Some(Others { packets: sent.others, arrived: sent.others, sessions, blocked, ..Others::default() });
        }
        Ok(truths.iter().map(|truth| line(truth, &alerts, None)).collect())
    }

    fn live(&self, truths: &[Truth], run: &mut Run) -> Outcome<Vec<Line>> {
        let rest = self.output.join("others.pcap");
        let sent = Counted::of(&self.capture, Some(&rest))?;
        let (contract, rate) = (self.contract()?, self.rate.as_deref());
        if sent.others > 0 {
            let without = live::run(&rest, &contract, rate, &self.output.join("without"), &mut run.notes)?;
            run.without = Some(live::others(&sent, &without));
        }
        let _ = std::fs::remove_file(&rest);
        let arrived = live::run(&self.capture, &contract, rate, &self.output.join("with"), &mut run.notes)?;
        run.packets = sent.attacks() + sent.others;
        (run.harm, run.policies) = (arrived.alerts.harm(), arrived.alerts.policies.clone());
        if sent.others > 0 {
            run.with = Some(live::others(&sent, &arrived));
        }
        Ok(truths.iter().map(|truth| line(truth, &arrived.alerts, Some((&sent, &arrived)))).collect())
    }
}

/// The result of one conversation. Offline, a blocked conversation counts as stopped.
fn line(truth: &Truth, alerts: &Alerts, wire: Option<(&Counted, &Arrived)>) -> Line {
    let rules = |of: &std::collections::HashMap<u32, std::collections::BTreeSet<u32>>| -> Vec<u32> {
        of.get(&truth.n).into_iter().flatten().copied().collect()
    };
    let (blocked_by, noticed_by) = (rules(&alerts.blocked), rules(&alerts.noticed));
    let arrived = wire.map(|(sent, arrived)| {
        let of = |counted: &Counted| counted.conversations.get(&truth.n).copied().unwrap_or_default();
        of(sent).matter(of(&arrived.counted))
    });
    let missing = arrived.map_or(!blocked_by.is_empty(), |[sent, arrived]| arrived < sent);
    let verdict = match (missing, blocked_by.is_empty(), noticed_by.is_empty()) {
        (true, false, _) => Verdict::Stopped,
        (true, true, _) => Verdict::Lost,
        (false, _, false) => Verdict::Noticed,
        (false, _, true) => Verdict::Passed,
    };
    let dropped_for = alerts.reasons.get(&truth.n).into_iter().flatten().cloned().collect();
    Line { truth: truth.clone(), verdict, blocked_by, noticed_by, dropped_for, arrived }
}

/// The texts of the rules that the results name.
fn named(rules: &[String], run: &Run, lines: &[Line]) -> Outcome<BTreeMap<u32, String>> {
    let mut texts = eve::rule_texts(rules)?;
    let own = |l: &Line| l.truth.sid..l.truth.sid.saturating_add(l.truth.rules);
    let wanted: std::collections::BTreeSet<u32> =
        lines.iter().flat_map(|l| l.noticed_by.iter().copied().chain(own(l))).chain(run.harm.keys().copied()).collect();
    texts.retain(|sid, _| wanted.contains(sid));
    Ok(texts)
}

/// Runs the command.
///
/// # Errors
/// If a file cannot be read, the engine fails or interfaces cannot be created, or on a request to stop.
pub(super) fn run(args: &Args) -> Outcome<ExitCode> {
    signals::listen();
    let truths = truth::read(&args.capture)?;
    let clear = |path: &Path| match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Problem::file("remove", path, error)),
        _ => Ok(()),
    };
    // Remove alerts of an earlier run.
    for part in ["engine", "with", "without"] {
        clear(&args.output.join(part))?;
    }
    std::fs::create_dir_all(&args.output).map_err(|error| Problem::file("make", &args.output, error))?;
    let mut run = Run {
        engine: args.engine.clone(),
        capture: args.capture.display().to_string(),
        live: !args.offline,
        ..Run::default()
    };
    let lines = match args.offline {
        true => args.offline(&truths, &mut run)?,
        false => args.live(&truths, &mut run)?,
    };
    run.rules = named(&args.rules, &run, &lines)?;
    let path = args.output.join("results.jsonl");
    results::write(&path, &run, &lines)?;
    print!("{}", super::report::text(&run, &lines));
    println!("results: {}", path.display());
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attacks::build::{Conversation, Message, Over, Packets, Sample};
    use crate::attacks::cases::{Case, Must};

    fn truth(n: u32) -> Truth {
        let sample = Sample {
            over: Over::Udp,
            port: 9,
            client: None,
            say: vec![Message { from_client: true, data: vec![1] }],
            flags: None,
            window: 0,
            times: 1,
            apart: 0,
            inside: false,
            packets: Packets::default(),
        };
        let case = Case {
            name: "x".into(),
            sid: 7,
            rules: 1,
            must: Must::Stop,
            class: "c".into(),
            techniques: vec![],
            file: "f".into(),
            conversation: Conversation::Sample(sample),
        };
        Truth::of(n, &case, &case.conversation.build(n, 1), 0)
    }

    #[test]
    fn what_never_arrived_is_stopped_only_where_a_rule_says_so() {
        let mut sent = Counted::default();
        for n in 0..4 {
            sent.conversations.insert(n, crate::attacks::sent::Packets { all: 2, data: 2 });
        }
        let mut arrived = Arrived::default();
        arrived.counted.conversations.insert(2, crate::attacks::sent::Packets { all: 2, data: 2 });
        arrived.counted.conversations.insert(3, crate::attacks::sent::Packets { all: 2, data: 2 });
        let sids = || std::collections::BTreeSet::from([7]);
        arrived.alerts.blocked.insert(0, sids());
        arrived.alerts.noticed.extend([(0, sids()), (2, sids())]);
        let verdict = |n| line(&truth(n), &arrived.alerts, Some((&sent, &arrived))).verdict;
        assert_eq!([0, 1, 2, 3].map(verdict), [Verdict::Stopped, Verdict::Lost, Verdict::Noticed, Verdict::Passed]);
        // Without a wire, the engine's alerts decide.
        assert_eq!(line(&truth(0), &arrived.alerts, None).verdict, Verdict::Stopped);
        assert_eq!(line(&truth(1), &arrived.alerts, None).verdict, Verdict::Passed);
    }
}
