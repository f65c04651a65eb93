//! Transactions: the units that parsers build, rules match and outputs log.

use std::fmt::Debug;

use margay_flow::Direction;
use margay_json::Json;

use crate::answer::Answer;
use crate::certificates::{CertificateStore, Occasion};
use crate::config::AppLogOptions;
use crate::event::AppEvents;
use crate::file::Files;
use crate::proto::AppProto;
use crate::rare::RareVec;
use crate::window::{self, WindowLimits};

pub use crate::buffer::{ABSENT, BufferDef, BufferKind, Extra, Form, Found, NumberDef};

/// Detection's state of a transaction in one direction. Only detection writes it.
#[derive(Debug, Clone, Default)]
pub struct TxDetect {
    /// Buffers (bit = number) that the prefilter has finished.
    pub searched: u64,
    /// The first progress whose rules without a pattern are not candidates yet.
    pub begun: u8,
    /// Whether detection has finished.
    pub done: bool,
    /// Rules whose checks hold so far and need more data, sorted: rule number, and one bit for each successful check.
    pub waiting: Vec<(u32, u64)>,
    /// Rules that matched or can no longer match, sorted. They are not evaluated again.
    pub settled: Vec<u32>,
    /// Rules that match once per file, sorted: rule number, and the number of files in this direction that it has finished.
    pub files: RareVec<(u32, u32)>,
}

/// The firewall's state of a transaction. Only detection writes it.
#[derive(Debug, Clone, Default)]
pub struct TxFirewall {
    /// A rule accepted the whole transaction.
    pub accepted: bool,
    /// By direction: the first state that the firewall has not decided, as an index in [`crate::Protocol::states`].
    pub next: [u8; 2],
    /// By direction: rules of that state that were evaluated, and their checks that held.
    pub seen: [Vec<(u32, u64)>; 2],
}

/// The state that all transactions have.
#[derive(Debug, Clone, Default)]
pub struct TxBase {
    /// Number within the flow, from 0.
    pub id: u64,
    /// Progress by direction, as indexes in [`crate::Protocol::states`]. It never decreases.
    pub progress: [u8; 2],
    /// By direction: the dirty flag. The parser sets it when a value for rules changes; detection clears it.
    pub updated: [bool; 2],
    /// By direction: buffers (bit = number) with more data than when rules inspected them. The parser sets it; detection
    /// searches them again.
    pub renewed: [u64; 2],
    /// Anomalies.
    pub events: AppEvents,
    /// Files.
    pub files: Files,
    /// Detection's state, by direction.
    pub detect: [TxDetect; 2],
    /// Whether it was logged.
    pub logged: bool,
    /// By direction: a `pass` rule of the transaction ended its inspection.
    pub passed: [bool; 2],
    /// A `config` rule keeps it out of the log.
    pub no_log: bool,
    /// Whether a rule alerted on it.
    pub alerted: bool,
    /// Alerts of rules without transaction keywords that named it (`detect.guess-applayer-tx`).
    pub guesses: u8,
    /// By direction: rules want the sender's certificates stored (`tls.store`). Storing them, maybe later, clears the flag.
    pub store_certificates: [bool; 2],
    /// Bits that rules set (`xbits … track tx`), by the number of their name.
    pub bits: RareVec<u32>,
    /// Scores that rules raised (`score`): the number of the name, and the sum. At most one entry per name.
    pub scores: RareVec<(u32, u32)>,
    /// The only direction with data, if there is just one ([`TxBase::one_sided`]).
    pub only: Option<Direction>,
    /// The firewall's state; `None` outside firewall mode.
    pub firewall: Option<Box<TxFirewall>>,
}

impl TxBase {
    /// Completes the direction `without`, which has no data to inspect: the message has no response, or its response is a
    /// transaction of its own. `complete` is the progress of a complete transaction in that direction.
    pub fn one_sided(&mut self, without: Direction, complete: u8) {
        let i = without.index();
        (self.progress[i], self.updated[i], self.detect[i].done) = (complete, false, true);
        self.only = Some(without.reverse());
    }

    /// A score; 0 if no rule raised it.
    pub fn score(&self, name: u32) -> u32 {
        self.scores.iter().find(|(n, _)| *n == name).map_or(0, |(_, sum)| *sum)
    }

    /// Adds to a score.
    pub fn add_score(&mut self, name: u32, add: u32) {
        let scores = self.scores.to_add();
        match scores.iter_mut().find(|(n, _)| *n == name) {
            Some((_, sum)) => *sum = sum.saturating_add(add),
            None => scores.push((name, add)),
        }
    }

    /// Heap memory in bytes, without the size of the value itself.
    pub fn held(&self) -> u64 {
        let detect = |d: &TxDetect| {
            d.waiting.capacity() * size_of::<(u32, u64)>() + d.settled.capacity() * size_of::<u32>() + d.files.held()
        };
        let firewall = |f: &TxFirewall| {
            size_of::<TxFirewall>() + f.seen.iter().map(|s| s.capacity() * size_of::<(u32, u64)>()).sum::<usize>()
        };
        let own = self.detect.iter().map(detect).sum::<usize>()
            + self.firewall.as_deref().map_or(0, firewall)
            + self.bits.held()
            + self.scores.held()
            + self.events.held();
        own as u64 + self.files.held()
    }

    /// Raises the progress of a direction; a lower value is ignored.
    pub fn advance(&mut self, dir: Direction, progress: u8) {
        if let Some(p) = self.progress.get_mut(dir.index())
            && *p < progress
        {
            *p = progress;
            self.touch(dir);
        }
    }

    /// Sets the dirty flag of a direction.
    pub fn touch(&mut self, dir: Direction) {
        if let Some(u) = self.updated.get_mut(dir.index()) {
            *u = true;
        }
    }
}

/// The event that a log is written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFor {
    /// The transaction's own event.
    Event,
    /// The context of an alert.
    Alert,
    /// The context of a `fileinfo` event.
    File,
}

/// A request with its response, or the equivalent unit of a protocol.
pub trait Transaction: Debug + Send {
    /// The state that all transactions have.
    fn base(&self) -> &TxBase;

    /// As [`Transaction::base`], mutable.
    fn base_mut(&mut self) -> &mut TxBase;

    /// The buffer `id` in a direction, or element `index` of a list. `None` if it is not available (yet), or if a stream has no
    /// data to inspect. A value that has to be assembled goes into `scratch`, which is empty.
    fn buffer<'a>(&'a self, id: u8, dir: Direction, index: usize, scratch: &'a mut Vec<u8>) -> Option<Found<'a>>;

    /// The number `id` in a direction, or element `index` of a list; [`ABSENT`] if that element has no number. `None` if it is
    /// not available (yet), or the list ends before `index`.
    fn number(&self, _id: u8, _dir: Direction, _index: usize) -> Option<u64> {
        None
    }

    /// Whether integers in a direction are little endian, in a protocol where the sender chooses: the meaning of `dce` in
    /// rules.
    fn little_endian(&self, _dir: Direction) -> bool {
        false
    }

    /// Whether the event can be written; `complete` means that both directions are complete. A protocol with one transaction
    /// per flow (TLS, SSH) logs earlier. The end of the flow logs all that is left.
    fn is_loggable(&self, complete: bool) -> bool {
        complete
    }

    /// The direction whose addresses an output's events show; to the server, these are the addresses of the flow.
    fn direction(&self, _options: &AppLogOptions) -> Direction {
        Direction::ToServer
    }

    /// Whether the counter `app_layer.tx.*` includes it. A transaction that stands for the whole flow is not counted.
    fn is_counted(&self) -> bool {
        true
    }

    /// The memory counted for it in the protocol's own counter ([`AppCounters`](crate::AppCounters)); 0 if there is none.
    fn counted(&self) -> u64 {
        0
    }

    /// Heap memory in bytes: texts, buffers and lists, without the size of the value itself.
    fn held(&self) -> u64;

    /// The number of events that an output writes for it; 0 excludes it from that output.
    fn records(&self, _options: &AppLogOptions) -> usize {
        1
    }

    /// As [`Transaction::log`] for [`LogFor::Event`], if a transaction has several events: writes number `record`.
    fn log_record(&self, _record: usize, json: &mut Json, options: &AppLogOptions) {
        self.log(json, options, LogFor::Event);
    }

    /// Detection has inspected everything that [`Transaction::buffer`] offers in a direction, so stream windows advance.
    fn inspected(&mut self, dir: Direction);

    /// The inspection limits for file data. [`Transaction::inspected`] advances the windows by those for passive inspection, so
    /// inline the beginning of a file is inspected again until it has passed them.
    fn file_window(&self, _dir: Direction, inline: bool) -> WindowLimits {
        window::file_window(inline)
    }

    /// Appends the members of the event to an open object: `"http":{...}` with its key.
    fn log(&self, json: &mut Json, options: &AppLogOptions, what: LogFor);

    /// Another protocol's transaction that this one carries. Its event is written next to this one's.
    fn carried(&self) -> Option<(AppProto, &dyn Transaction)> {
        None
    }

    /// Stores the certificates of a direction's sender, as rules requested ([`TxBase::store_certificates`]).
    /// Returns whether they have come; if not, they are stored once they come.
    fn store_certificates(&self, _dir: Direction, _store: &mut CertificateStore, _occasion: &Occasion<'_>) -> bool {
        true
    }

    /// Answers a script's query by name. `protocol` is the name of the script's library (`http`, `dns`, `tls`, `ja3` …); `arg`
    /// is the query's argument. The query `get` asks whether the transaction is of that protocol. `None` if it is not, or the
    /// name is unknown.
    fn ask(&self, _protocol: &str, _what: &str, _arg: Option<&[u8]>) -> Option<Answer> {
        None
    }

    /// The client address that a proxy put into a header (`xff`). `header` matches in any case. Takes the last address of a
    /// list, or the first with `forward`.
    fn forwarded_for(&self, _header: &str, _forward: bool) -> Option<std::net::IpAddr> {
        None
    }
}
