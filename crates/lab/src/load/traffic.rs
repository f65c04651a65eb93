//! Sends with `margay lab traffic send`, in a separate process.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::{Interfaces, Order, Sender, Sending, Sent, What};
use crate::cpus::Cpus;
use crate::made::Session;
use crate::problem::{Outcome, Problem};

/// Sends a capture, a profile or a preset onto an interface, repeatedly.
pub(crate) struct Traffic {
    pub(crate) what: What,
    /// Number of simultaneous copies, each with its own addresses.
    pub(crate) copies: u32,
    /// A capture gets new addresses in each round and for each order.
    pub(crate) renew: Option<u32>,
    /// The interfaces to send on.
    pub(crate) interfaces: Vec<String>,
    /// Every packet is sent on each interface; otherwise flows are divided among them.
    pub(crate) same: bool,
    /// The servers' interface, if it is not the clients'.
    pub(crate) peer: Option<String>,
    /// Its CPUs.
    pub(crate) cpus: Cpus,
    /// The folder for its output.
    pub(crate) folder: PathBuf,
}

/// An order rarely has more rounds than this, so the next order gets other flows.
const ROUNDS: u32 = 37;

struct Working {
    child: Child,
    log: PathBuf,
    report: PathBuf,
    order: Order,
    interfaces: Vec<String>,
    before: f64,
    over: bool,
}

impl Sender for Traffic {
    fn describe(&self) -> String {
        let copies = if self.copies > 1 { format!(", {} copies at once", self.copies) } else { String::new() };
        let renew = if self.renew.is_some() { ", each time round with other addresses" } else { "" };
        let over = match (self.interfaces.len(), self.same) {
            (1, _) => String::new(),
            (count, false) => format!(", its flows divided among {count} interfaces"),
            (count, true) => format!(", the same on each of {count} interfaces"),
        };
        format!("{}{copies}{renew}{over}, sent by margay lab traffic send", self.what.describe())
    }

    fn start(&mut self, order: Order, session: &mut Session) -> Outcome<Box<dyn Sending>> {
        let (log, report) = (self.folder.join("traffic.log"), self.folder.join("traffic.json"));
        let _ = std::fs::remove_file(&report);
        let out = File::create(&log).map_err(|error| Problem::file("make", &log, error))?;
        let out_too = out.try_clone().map_err(|error| Problem::file("use", &log, error))?;
        let own = crate::command::own_command()?;
        let mut command = Command::new(&own[0]);
        command.args(&own[1..]).args(["traffic", "send", "--quiet"]);
        for interface in &self.interfaces {
            command.arg("--interface").arg(interface);
        }
        if self.same {
            command.arg("--same");
        }
        match &self.what {
            What::Capture(path) => command.arg(path),
            What::Profile(path) => command.arg("--profile").arg(path),
            What::Preset(name) => command.arg("--preset").arg(name),
        };
        command.arg("--rate").arg(format!("{}pps", order.rate));
        command.arg("--duration").arg(format!("{}ms", order.time.as_millis().max(1)));
        if let Some(peer) = &self.peer {
            command.arg("--peer").arg(peer);
        }
        if let Some(first) = &mut self.renew {
            command.arg(format!("--renew={first}"));
            *first += ROUNDS;
        }
        command.arg("--copies").arg(self.copies.to_string()).arg("--report").arg(&report);
        command.stdin(Stdio::null()).stdout(out).stderr(out_too);
        session.mark(&mut command)?;
        let interfaces: Vec<String> = self.interfaces.iter().chain(&self.peer).cloned().collect();
        let before = sent(&interfaces);
        let child = self
            .cpus
            .spawn(&mut command)
            .map_err(|error| Problem::Failed(format!("cannot start {}: {error}", own[0])))?;
        Ok(Box::new(Working { child, log, report, order, interfaces, before, over: false }))
    }
}

/// Packets that these interfaces sent.
fn sent(interfaces: &[String]) -> f64 {
    let read = Interfaces::read(None);
    interfaces.iter().map(|name| read.sent(name)).sum()
}

impl Sending for Working {
    fn so_far(&mut self) -> Option<f64> {
        Some(sent(&self.interfaces) - self.before)
    }

    fn done(&mut self) -> Outcome<bool> {
        let ended = self.child.try_wait();
        let ended = ended.map_err(|error| Problem::Failed(format!("cannot watch the sender: {error}")))?;
        self.over = ended.is_some();
        // A sender that missed its rate fails, but writes a report. Without a report, it did not work.
        if let Some(status) = ended
            && !status.success()
            && !self.report.exists()
        {
            let said = std::fs::read_to_string(&self.log).unwrap_or_default();
            let said = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
            return Err(Problem::Failed(format!("the sender failed: {}", said.trim_start_matches("margay lab: "))));
        }
        Ok(self.over)
    }

    fn report(&mut self) -> Outcome<Sent> {
        let text = std::fs::read_to_string(&self.report).map_err(|error| Problem::file("read", &self.report, error))?;
        let value: serde_json::Value =
            serde_json::from_str(&text).map_err(|error| Problem::file("understand", &self.report, error))?;
        let number = |name: &str| value[name].as_f64().unwrap_or(f64::NAN);
        if let Some(error) = value["error"].as_str() {
            return Err(Problem::Failed(format!("the sender failed: {error}")));
        }
        let packets = number("packets");
        let offered = self.order.rate * self.order.time.as_secs_f64();
        Ok(Sent {
            // The last packet may be one more or less than fits into the time.
            offered: if (packets - offered).abs() <= 1.0 + offered * 1e-3 { packets } else { offered.max(packets) },
            packets,
            bytes: number("bytes"),
            seconds: number("seconds"),
            late: value["pacing_error_ns"]["p99"].as_f64().map_or(f64::NAN, |late| late / 1e9),
        })
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        if !self.over {
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
            let until = std::time::Instant::now() + std::time::Duration::from_secs(2);
            while std::time::Instant::now() < until && matches!(self.child.try_wait(), Ok(None)) {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
