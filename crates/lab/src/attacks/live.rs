//! Sends a capture over wires with an inline engine between them.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::eve::Alerts;
use super::record::Recorder;
use super::results::Others;
use super::sent::Counted;
use crate::engine::{Contract, From, Running};
use crate::load::Wire;
use crate::made::Session;
use crate::problem::{Outcome, Problem};

/// Longest packet, without the Ethernet header.
const MTU: u32 = 1500;
/// If nothing arrives for this long, the last packet has arrived.
const REST: Duration = Duration::from_millis(1500);

/// Packets that came out of the engine, and its alerts.
#[derive(Debug, Default)]
pub(super) struct Arrived {
    pub(super) counted: Counted,
    pub(super) alerts: Alerts,
    /// The rate that was sent, in packets a second.
    pub(super) rate: f64,
}

/// Starts an engine in `dir`, and sends the capture through it.
///
/// # Errors
/// If interfaces cannot be created, if the engine or the sender fails, or on a request to stop.
pub(super) fn run(
    capture: &Path,
    contract: &Contract,
    rate: Option<&str>,
    dir: &Path,
    notes: &mut Vec<String>,
) -> Outcome<Arrived> {
    // Each engine has its own session, so that its interfaces are removed before the next one starts.
    let mut session = Session::begin()?;
    let short = session.make_folder()?;
    let wire = Wire::make(&mut session, MTU, 1, true)?;
    let (Some(near), Some(far)) = (wire.pairs.first(), &wire.far) else {
        return Err(Problem::Failed("there are no two pairs of interfaces".to_owned()));
    };
    let from = From::wire(&wire);
    let mut running = Running::start(contract, &from, dir, &short, &mut session)?;
    let recorder = Recorder::start(&[&near.sender, &far.sender])?;
    let report = dir.join("traffic.json");
    let mut command = sender(capture, rate, &near.sender, &far.sender, &report)?;
    session.mark(&mut command)?;
    let log = dir.join("traffic.log");
    let out = std::fs::File::create(&log).map_err(|error| Problem::file("make", &log, error))?;
    let too = out.try_clone().map_err(|error| Problem::file("use", &log, error))?;
    let failed = |error: std::io::Error| Problem::Failed(format!("cannot run the sender: {error}"));
    let mut child = command.stdin(Stdio::null()).stdout(out).stderr(too).spawn().map_err(failed)?;
    while child.try_wait().map_err(failed)?.is_none() {
        running.keep(Duration::from_millis(20), "while the capture was sent")?;
    }
    let mut before = u64::MAX;
    while recorder.so_far() != before {
        before = recorder.so_far();
        running.keep(REST, "while the last packets arrived")?;
    }
    let (counted, lost) = recorder.end()?;
    running.stop()?;
    if lost > 0 {
        notes.push(format!(
            "{lost} packets arrived that could not be recorded: they look like losses; a lower --rate helps"
        ));
    }
    let rate = sent(&report, &log, notes)?;
    Ok(Arrived { counted, alerts: Alerts::read(&dir.join("eve.json"))?, rate })
}

fn sender(capture: &Path, rate: Option<&str>, near: &str, far: &str, report: &Path) -> Outcome<Command> {
    let own = crate::command::own_command()?;
    let mut command = Command::new(&own[0]);
    command.args(&own[1..]).args(["traffic", "send", "--quiet", "--interface", near, "--peer", far]);
    match rate {
        Some(rate) => command.args(["--rate", rate]),
        None => command.args(["--multiplier", "1"]),
    };
    command.arg("--report").arg(report).arg(capture);
    Ok(command)
}

/// The rate that was sent, from the sender's report.
fn sent(report: &Path, log: &Path, notes: &mut Vec<String>) -> Outcome<f64> {
    // A sender that missed its rate still writes a report. Without a report, it did not send.
    let Ok(text) = std::fs::read_to_string(report) else {
        let said = std::fs::read_to_string(log).unwrap_or_default();
        let said = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing").to_owned();
        return Err(Problem::Failed(format!("the sender failed: {}", said.trim_start_matches("margay lab: "))));
    };
    let value: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| Problem::file("understand", report, error))?;
    if let Some(error) = value["error"].as_str() {
        return Err(Problem::Failed(format!("the sender failed: {error}")));
    }
    let left_out = value["too_long"].as_u64().unwrap_or(0) + value["foreign"].as_u64().unwrap_or(0);
    if left_out > 0 {
        notes.push(format!("{left_out} packets of the capture do not fit on the wire and count as lost"));
    }
    let number = |name: &str| value[name].as_f64().unwrap_or(0.0);
    Ok(number("packets") / number("seconds").max(1e-9))
}

/// Counts the other traffic: sessions that a rule blocked, and sessions that lost packets for another reason.
pub(super) fn others(sent: &Counted, arrived: &Arrived) -> Others {
    let mut others = Others {
        packets: sent.others,
        arrived: arrived.counted.others.min(sent.others),
        sessions: sent.flows.len() as u64,
        rate: arrived.rate,
        ..Others::default()
    };
    for (flow, packets) in &sent.flows {
        if arrived.alerts.others.contains_key(flow) {
            others.blocked += 1;
        } else if arrived.counted.flows.get(flow).is_none_or(|came| came < packets) {
            others.incomplete += 1;
        }
    }
    others
}
