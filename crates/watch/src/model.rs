//! Data about an engine: its counters ([`Sample`]), and the picture that views show ([`Snapshot`]).

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// Names and values of counters, as `stats` events have them.
pub type Counters = Vec<(String, u64)>;

/// The value of a counter; 0 where there is none of that name.
pub fn value(counters: &[(String, u64)], name: &str) -> u64 {
    counters.iter().find(|c| c.0 == name).map_or(0, |c| c.1)
}

/// All that the engine tells of itself at one moment. Counters run from its start.
#[derive(Debug, Clone)]
pub struct Sample {
    /// When, by the clock that only goes forward.
    pub at: Instant,
    /// When, in milliseconds since 1970.
    pub time: u64,
    /// Seconds since the engine started.
    pub uptime: u64,
    /// Data about the engine.
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
    /// Its group.
    pub gid: u32,
    /// Its number.
    pub sid: u32,
    /// Its message; empty where there is none.
    pub message: String,
    /// Its part of the time of all rules, in percent.
    pub percent: f64,
    /// How often it was checked.
    pub checks: u64,
    /// How often it matched.
    pub matches: u64,
    /// Mean cost of a check, in processor ticks.
    pub ticks: f64,
}

/// The picture of an engine, made about once a second. The socket's command `watch` returns it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// When, in milliseconds since 1970.
    pub time: u64,
    /// Seconds since the engine started.
    pub uptime: u64,
    /// Data about the engine.
    pub about: About,
    /// How much, now.
    pub now: Point,
    /// Packets, bytes, alerts and losses since the start.
    pub totals: Totals,
    /// Packets received and lost at each stage.
    pub stages: Vec<Stage>,
    /// Each worker.
    pub workers: Vec<Worker>,
    /// Limits of memory, of all workers together.
    pub memory: Vec<Memory>,
    /// Memory of the process that is in use (resident), in bytes.
    pub resident: u64,
    /// Flows by transport protocol since the start: `tcp`, `udp`, `icmp`.
    pub transports: Vec<(String, u64)>,
    /// Application protocols, those with most flows first.
    pub protocols: Vec<Protocol>,
    /// Rules that alerted most.
    pub top_alerts: Vec<TopAlert>,
    /// Addresses with most bytes in flows that ended.
    pub talkers: Vec<Talker>,
    /// The last alerts, the newest first.
    pub recent: Vec<Recent>,
    /// The cost of rules, the most expensive first; empty unless rules are profiled.
    pub rules: Vec<RuleCost>,
    /// Problems.
    pub findings: Vec<Finding>,
    /// Omissions of this picture.
    pub watched: Watched,
}

/// One second of the last hour. Rates are per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// When, in milliseconds since 1970.
    pub t: u64,
    /// Packets per second.
    pub packets: f64,
    /// Bits per second.
    pub bits: f64,
    /// Packets lost per second, at all stages.
    pub lost: f64,
    /// Alerts per second.
    pub alerts: f64,
    /// New flows per second.
    pub new_flows: f64,
    /// Flows that are open.
    pub flows: u64,
    /// Processor time of all threads, in percent of one processor.
    pub cpu: f64,
    /// That of the busiest worker.
    pub worker_cpu: f64,
    /// How near memory is to a limit, in percent: the stage that is nearest.
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
    /// Packets lost at all stages.
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
    /// Flows that it has open.
    pub flows: u64,
    /// How near its memory is to a limit, in percent.
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
    /// Flows whose parser stopped with an error.
    pub errors: u64,
}

/// A rule that alerted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopAlert {
    /// Its group.
    pub gid: u32,
    /// Its number.
    pub sid: u32,
    /// Its message; empty where none was seen yet.
    pub message: String,
    /// How often it alerted in the window.
    pub count: u64,
    /// By how much `count` may be too high.
    pub error: u64,
}

/// An address.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Talker {
    /// The address.
    pub address: String,
    /// Bytes of its flows that ended in the window, both directions.
    pub bytes: u64,
    /// By how much `bytes` may be too high.
    pub error: u64,
    /// Alerts with it as source or destination, in the window; 0 where it is not among those with most.
    pub alerts: u64,
}

/// An alert, in short.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recent {
    /// Its number in the order of coming, from 1.
    pub n: u64,
    /// When, as in its event.
    pub time: String,
    /// The rule's number.
    pub sid: u64,
    /// The rule's message.
    pub message: String,
    /// The rule's priority; 1 is the highest.
    pub severity: u64,
    /// Where the packet came from, with its port.
    pub source: String,
    /// Where it went, with its port.
    pub destination: String,
    /// Its verdict: `allowed`, `blocked`.
    pub action: String,
}

/// How bad something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Grade {
    /// Worth knowing.
    Note,
    /// It happened since the start, and does not now.
    Past,
    /// It happens now.
    Now,
}

/// Something that is not well.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// How bad it is.
    pub grade: Grade,
    /// The counter's name, with the interface if it belongs to one.
    pub counter: String,
    /// How often since the start.
    pub count: u64,
    /// How often per second, now.
    pub rate: f64,
    /// Its meaning.
    pub what: String,
    /// The remedy: the setting to change.
    pub advice: String,
}

/// Omissions of the picture since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watched {
    /// Alerts rendered as text.
    pub alerts: u64,
    /// Alerts that came too fast for their text to be taken over; logs have them.
    pub alerts_unshown: u64,
    /// Alerts and ends of flows that are in no list of the most frequent.
    pub uncounted: u64,
    /// Workers that did not answer in time at the last look.
    pub late: u64,
}
