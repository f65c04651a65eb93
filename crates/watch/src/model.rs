//! Data about an engine: its counters ([`Sample`]), and the data that views show ([`Snapshot`]).

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// Names and values of counters, as `stats` events have them.
pub type Counters = Vec<(String, u64)>;

/// The value of a counter; 0 if there is no counter with that name.
pub fn value(counters: &[(String, u64)], name: &str) -> u64 {
    counters.iter().find(|c| c.0 == name).map_or(0, |c| c.1)
}

/// Everything that the engine reports about itself at one moment. Counters start with the engine.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Time of the sample, by the monotonic clock.
    pub at: Instant,
    /// Time of the sample, in milliseconds since 1970.
    pub time: u64,
    /// Seconds since the engine started.
    pub uptime: u64,
    /// The engine's version, mode, interfaces and rules.
    pub about: About,
    /// The sums over all workers.
    pub totals: Counters,
    /// Each worker.
    pub workers: Vec<WorkerSample>,
    /// Packets received and lost of each interface, by stage.
    pub interfaces: Vec<(String, Counters)>,
    /// Processor time of all threads of the process.
    pub process_cpu: Duration,
    /// Memory of the process that is in use (resident), in bytes.
    pub resident: u64,
    /// The cost of rules, the most expensive first; empty unless rules are profiled.
    pub rules: Vec<RuleCost>,
    /// Workers that did not answer in time, whose last counters are shown.
    pub late: u64,
}

/// Data about the engine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// Its version.
    pub version: String,
    /// The run mode: `workers`, `autofp`, `single`.
    pub mode: String,
    /// The capture method, as in `capture-mode`.
    pub capture: String,
    /// Interfaces that packets come from.
    pub interfaces: Vec<String>,
    /// Rules in use.
    pub rules_loaded: u64,
    /// Rules that could not be loaded.
    pub rules_failed: u64,
}

/// A worker at one moment.
#[derive(Debug, Clone, Default)]
pub struct WorkerSample {
    /// Its thread's name: `W#01-eth0`.
    pub name: String,
    /// The interface that its packets come from; empty with a capture file.
    pub interface: String,
    /// Processor time of its thread.
    pub cpu: Duration,
    /// Its counters.
    pub counters: Counters,
    /// Its memory.
    pub memory: Vec<Memory>,
}

/// The use of a memory limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// The setting that has the limit: `flow.memcap`.
    pub name: String,
    /// Bytes in use.
    pub used: u64,
    /// The limit in bytes; 0 for none.
    pub cap: u64,
}

/// The cost of a rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RuleCost {
    /// Generator id (`gid`).
    pub gid: u32,
    /// Signature id (`sid`).
    pub sid: u32,
    /// Its message; empty if it has none.
    pub message: String,
    /// Its share of the time of all rules, in percent.
    pub percent: f64,
    /// How often it was checked.
    pub checks: u64,
    /// How often it matched.
    pub matches: u64,
    /// Mean cost of a check, in processor ticks.
    pub ticks: f64,
}

/// The state of an engine as views show it, made about once a second. The socket's command `watch` returns it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Time of the snapshot, in milliseconds since 1970.
    pub time: u64,
    /// Seconds since the engine started.
    pub uptime: u64,
    /// Data about the engine.
    pub about: About,
    /// The current rates.
    pub now: Point,
    /// Packets, bytes, alerts and losses since the start.
    pub totals: Totals,
    /// Packets received and lost at each stage.
    pub stages: Vec<Stage>,
    /// Each worker.
    pub workers: Vec<Worker>,
    /// Memory limits and their use, of all workers together.
    pub memory: Vec<Memory>,
    /// Memory of the process that is in use (resident), in bytes.
    pub resident: u64,
    /// Flows by transport protocol since the start: `tcp`, `udp`, `icmp`.
    pub transports: Vec<(String, u64)>,
    /// Application protocols, those with the most flows first.
    pub protocols: Vec<Protocol>,
    /// The rules with the most alerts in the window: the current period of ten minutes and the previous one.
    pub top_alerts: Vec<TopAlert>,
    /// The addresses with the most bytes in flows that ended in the window.
    pub talkers: Vec<Talker>,
    /// The last alerts, the newest first.
    pub recent: Vec<Recent>,
    /// The cost of rules, the most expensive first; empty unless rules are profiled.
    pub rules: Vec<RuleCost>,
    /// Problems.
    pub findings: Vec<Finding>,
    /// Omissions of this snapshot.
    pub watched: Watched,
}

/// One second of the last hour. Rates are per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Time, in milliseconds since 1970.
    pub t: u64,
    /// Packets per second.
    pub packets: f64,
    /// Bits per second.
    pub bits: f64,
    /// Packets lost per second, at all stages of the interfaces; without `softnet`, which counts the whole host.
    pub lost: f64,
    /// Alerts per second.
    pub alerts: f64,
    /// New flows per second.
    pub new_flows: f64,
    /// Open flows.
    pub flows: u64,
    /// Processor time of all threads, in percent of one processor.
    pub cpu: f64,
    /// That of the busiest worker.
    pub worker_cpu: f64,
    /// The largest share of a memory limit that any worker uses, in percent.
    pub pressure: f64,
}

/// Sums since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Packets decoded.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Alerts.
    pub alerts: u64,
    /// Packets lost at all stages of the interfaces, without `softnet`.
    pub lost: u64,
    /// Flows.
    pub flows: u64,
}

/// Packets received and lost at a stage of an interface, or of the host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// The interface, or `host`.
    pub interface: String,
    /// `card`, `softnet`, `ring`, `queue`, `engine`, `send`.
    pub stage: String,
    /// Packets received since the start; `None` if there is no counter.
    pub received: Option<u64>,
    /// Packets lost since the start.
    pub lost: u64,
    /// Packets lost per second.
    pub rate: f64,
}

/// A worker.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Worker {
    /// Its thread's name.
    pub name: String,
    /// The interface that its packets come from; empty with a capture file.
    pub interface: String,
    /// Processor time, in percent of one processor.
    pub cpu: f64,
    /// Packets per second.
    pub packets: f64,
    /// Bits per second.
    pub bits: f64,
    /// Packets lost in its ring, per second.
    pub lost: f64,
    /// Its open flows.
    pub flows: u64,
    /// The largest share of a memory limit that it uses, in percent.
    pub pressure: f64,
}

/// An application protocol.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Protocol {
    /// Its name, as in `app_layer.flow`.
    pub name: String,
    /// Flows since the start.
    pub flows: u64,
    /// New flows per second.
    pub rate: f64,
    /// Transactions since the start.
    pub transactions: u64,
    /// Flows whose parser found invalid data (`app_layer.error.*.parser`).
    pub errors: u64,
}

/// A rule that alerted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopAlert {
    /// Generator id (`gid`).
    pub gid: u32,
    /// Signature id (`sid`).
    pub sid: u32,
    /// Its message; empty until an alert with text arrives.
    pub message: String,
    /// How often it alerted in the window.
    pub count: u64,
    /// The error of `count`: it is too high by at most this much.
    pub error: u64,
}

/// An address.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Talker {
    /// The address.
    pub address: String,
    /// Bytes of its flows that ended in the window, both directions.
    pub bytes: u64,
    /// The error of `bytes`: they are too high by at most this much.
    pub error: u64,
    /// Alerts with it as source or destination in the window; 0 if it is not among the addresses with the most alerts.
    pub alerts: u64,
}

/// An alert's summary.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recent {
    /// Its number in order of arrival, from 1.
    pub n: u64,
    /// Its time, as in its event.
    pub time: String,
    /// The rule's signature id.
    pub sid: u64,
    /// The rule's message.
    pub message: String,
    /// The rule's priority; 1 is the highest.
    pub severity: u64,
    /// The packet's source address, with the port.
    pub source: String,
    /// The packet's destination address, with the port.
    pub destination: String,
    /// Its verdict: `allowed`, `blocked`.
    pub action: String,
}

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Grade {
    /// Worth knowing.
    Note,
    /// It happened since the start, but does not happen now.
    Past,
    /// It happens now.
    Now,
}

/// A problem.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Its severity.
    pub grade: Grade,
    /// The counter's name, with the interface if it belongs to one.
    pub counter: String,
    /// The count since the start.
    pub count: u64,
    /// The current count per second.
    pub rate: f64,
    /// Its meaning.
    pub what: String,
    /// The remedy: the setting to change.
    pub advice: String,
}

/// Omissions of the views since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watched {
    /// Alerts rendered as text.
    pub alerts: u64,
    /// Alerts without text, because they came too fast or their text is too long. The logs have them.
    pub alerts_unshown: u64,
    /// Alerts and ended flows that the top lists do not include.
    pub uncounted: u64,
    /// Workers that did not answer in time for the last sample.
    pub late: u64,
}
