//! Transactions: what a protocol's messages come to, and what is offered to rules and logs.

use std::fmt::Debug;

use margay_flow::Direction;
use margay_json::Json;

use crate::config::AppLogOptions;
use crate::event::AppEvents;
use crate::file::Files;
use crate::registry::AppProto;
use crate::script::Answer;
use crate::tls::store::{CertificateStore, Occasion};
use crate::window::WindowLimits;

/// What a buffer is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BufferKind {
    /// One, complete once its progress is reached.
    Single,
    /// Any number of them, asked for by index from 0 until there is none.
    Multi,
    /// The same, and more of them may come up to the end of the transaction. They are looked at when its progress is reached, and
    /// at the end.
    Growing,
    /// Data that streams by: a window of it now, another one later.
    Stream,
}

impl BufferKind {
    /// Whether there may be several, asked for by index.
    pub const fn is_several(self) -> bool {
        matches!(self, BufferKind::Multi | BufferKind::Growing)
    }

    /// Whether what is not there may come up to the end of the transaction.
    pub const fn grows(self) -> bool {
        matches!(self, BufferKind::Stream | BufferKind::Growing)
    }
}

/// A buffer that a protocol offers to rules.
#[derive(Debug, Clone, Copy)]
pub struct BufferDef {
    /// Name in rules (`http.uri`). The rule language makes a sticky buffer of it, unless a table of keywords says more about it.
    pub name: &'static str,
    /// Other names of that keyword.
    pub also: &'static [&'static str],
    /// Number for [`Transaction::buffer`]; below 64 within a protocol.
    pub id: u8,
    /// By [`Direction::index`]: the progress from which on it is there, `None` where the direction has none. A buffer
    /// is complete when the transaction is past that progress, or at its end; a `Single` or `Multi` one is looked at when
    /// [`TxBase::progress`] is at least this.
    pub progress: [Option<u8>; 2],
    /// What it is like.
    pub kind: BufferKind,
}

/// A number that a protocol offers to rules: a code, a version, a set of bits, or 1 for something that is so.
#[derive(Debug, Clone, Copy)]
pub struct NumberDef {
    /// The keyword's canonical name in rules (`dns.opcode`).
    pub name: &'static str,
    /// Number for [`Transaction::number`].
    pub id: u8,
    /// As [`BufferDef::progress`].
    pub progress: [Option<u8>; 2],
}

impl NumberDef {
    /// Progress of a number that may change with every look, whatever the state: what does not hold may later.
    pub const ANY_STATE: u8 = u8::MAX;
}

/// A buffer's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found<'a> {
    /// The bytes.
    pub data: &'a [u8],
    /// Offset of the first one, for [`BufferKind::Stream`]; else 0.
    pub offset: u64,
    /// Whether nothing will follow.
    pub end: bool,
}

impl<'a> Found<'a> {
    /// A buffer that is whole.
    pub const fn whole(data: &'a [u8]) -> Self {
        Found { data, offset: 0, end: true }
    }
}

/// What detection remembers of a transaction in one direction. Only detection writes it.
#[derive(Debug, Clone, Default)]
pub struct TxDetect {
    /// Buffers (bit = number) that the prefilter has searched for good.
    pub searched: u64,
    /// Rules without a pattern are candidates from some progress on: one more than that up to which they were made such.
    pub begun: u8,
    /// Whether nothing is left to look at.
    pub done: bool,
    /// Rules that hold so far and wait for more, sorted: rule number, and one bit for each of its checks that held.
    pub waiting: Vec<(u32, u64)>,
    /// Rules that matched, or cannot any more, sorted: not to be looked at again.
    pub settled: Vec<u32>,
    /// Rules that match once a file, sorted: rule number, and how many of the files of the direction it is done with.
    pub files: Vec<(u32, u32)>,
}

/// What the firewall remembers of a transaction. Only detection writes it.
#[derive(Debug, Clone, Default)]
pub struct TxFirewall {
    /// A rule accepted all of it.
    pub accepted: bool,
    /// By direction: the first state that is not yet behind the firewall, as a number of [`crate::Protocol::states`].
    pub next: [u8; 2],
    /// By direction: rules of that state that were looked at before, and what of them held.
    pub seen: [Vec<(u32, u64)>; 2],
}

/// What all transactions have.
#[derive(Debug, Clone, Default)]
pub struct TxBase {
    /// Number within the flow, from 0.
    pub id: u64,
    /// Progress by direction, as numbers of [`crate::Protocol::states`]; never goes back.
    pub progress: [u8; 2],
    /// By direction: whether the parser changed something that rules may look at since detection last looked. Set by the
    /// parser, cleared by detection.
    pub updated: [bool; 2],
    /// Events.
    pub events: AppEvents,
    /// Files it carried.
    pub files: Files,
    /// What detection remembers, by direction.
    pub detect: [TxDetect; 2],
    /// Whether its log was written.
    pub logged: bool,
    /// By direction: nothing of it is to be inspected any more (a `pass` rule of the transaction).
    pub passed: [bool; 2],
    /// A `config` rule keeps it out of the log.
    pub no_log: bool,
    /// Whether rules alerted on it.
    pub alerted: bool,
    /// By direction: rules want the certificates of its sender stored (`tls.store`). Who stored them clears it.
    pub store_certificates: [bool; 2],
    /// Bits that rules set (`xbits … track tx`), by number of their name.
    pub bits: Vec<u32>,
    /// What rules added to scores (`score`): the number of the name, and the sum. One entry for each name, at most.
    pub scores: Vec<(u32, u32)>,
    /// The only direction that there is something in ([`TxBase::one_sided`]).
    pub only: Option<Direction>,
    /// What the firewall remembers; nothing without firewall mode.
    pub firewall: Option<Box<TxFirewall>>,
}

impl TxBase {
    /// Says that nothing will ever come in a direction, and that there is nothing to look at: of a message that has no answer, or
    /// whose answer is a transaction of its own. `complete` is the progress of a complete transaction there.
    pub fn one_sided(&mut self, without: Direction, complete: u8) {
        let i = without.index();
        (self.progress[i], self.updated[i], self.detect[i].done) = (complete, false, true);
        self.only = Some(without.reverse());
    }

    /// A score; 0 where no rule added to it.
    pub fn score(&self, name: u32) -> u32 {
        self.scores.iter().find(|(n, _)| *n == name).map_or(0, |(_, sum)| *sum)
    }

    /// Adds to a score.
    pub fn add_score(&mut self, name: u32, add: u32) {
        match self.scores.iter_mut().find(|(n, _)| *n == name) {
            Some((_, sum)) => *sum = sum.saturating_add(add),
            None => self.scores.push((name, add)),
        }
    }

    /// Heap memory in bytes, without the size of the value itself.
    pub fn held(&self) -> u64 {
        let detect = |d: &TxDetect| {
            d.waiting.capacity() * size_of::<(u32, u64)>()
                + d.settled.capacity() * size_of::<u32>()
                + d.files.capacity() * size_of::<(u32, u32)>()
        };
        let firewall = |f: &TxFirewall| {
            size_of::<TxFirewall>() + f.seen.iter().map(|s| s.capacity() * size_of::<(u32, u64)>()).sum::<usize>()
        };
        let own = self.detect.iter().map(detect).sum::<usize>()
            + self.firewall.as_deref().map_or(0, firewall)
            + self.bits.capacity() * size_of::<u32>()
            + self.scores.capacity() * size_of::<(u32, u32)>()
            + self.events.as_slice().len();
        own as u64 + self.files.held()
    }

    /// Sets progress in a direction; what would go back is ignored.
    pub fn advance(&mut self, dir: Direction, progress: u8) {
        if let Some(p) = self.progress.get_mut(dir.index())
            && *p < progress
        {
            *p = progress;
            self.touch(dir);
        }
    }

    /// Says that there is something new to look at.
    pub fn touch(&mut self, dir: Direction) {
        if let Some(u) = self.updated.get_mut(dir.index()) {
            *u = true;
        }
    }
}

/// A number that is not there, in a list whose other places have theirs: no test of a rule holds for it.
pub const ABSENT: u64 = u64::MAX;

/// What a log is written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFor {
    /// The transaction's own event.
    Event,
    /// The context of an alert.
    Alert,
    /// The context of a `fileinfo` event.
    File,
}

/// A request with its response, or whatever a protocol's unit is.
pub trait Transaction: Debug + Send {
    /// What all transactions have.
    fn base(&self) -> &TxBase;

    /// The same, to write to.
    fn base_mut(&mut self) -> &mut TxBase;

    /// The buffer of number `id` in a direction; of several (`BufferKind::Multi`) that of number `index`. `None` where it is
    /// not there (yet), or for a stream where nothing is due. What has to be put together is put together in `scratch`,
    /// which is empty.
    fn buffer<'a>(&'a self, id: u8, dir: Direction, index: usize, scratch: &'a mut Vec<u8>) -> Option<Found<'a>>;

    /// The number `id` in a direction; of several that of place `index`, [`ABSENT`] where that place has none. `None` where there is
    /// none (yet), or no such place.
    fn number(&self, _id: u8, _dir: Direction, _index: usize) -> Option<u64> {
        None
    }

    /// Whether integers of a direction have their lowest byte first, where the protocol leaves that to the sender: what `dce`
    /// means in rules.
    fn little_endian(&self, _dir: Direction) -> bool {
        false
    }

    /// Whether its log can be written: `complete` says that both directions are. A protocol whose transactions last as long
    /// as their flow (TLS, SSH) logs earlier. At the flow's end all is logged that was not.
    fn is_loggable(&self, complete: bool) -> bool {
        complete
    }

    /// Which way the addresses of its events go in an output: to the server they are the flow's own.
    fn direction(&self, _options: &AppLogOptions) -> Direction {
        Direction::ToServer
    }

    /// Whether it counts among the transactions of its protocol (`app_layer.tx.*`): one that stands for all of a flow does not.
    fn is_counted(&self) -> bool {
        true
    }

    /// Bytes that are counted for it among those that transactions of its protocol hold
    /// ([`AppCounters`](crate::AppCounters)); 0 where nobody counts them.
    fn counted(&self) -> u64 {
        0
    }

    /// Heap memory in bytes: texts, buffers and lists, without the size of the value itself.
    fn held(&self) -> u64;

    /// How many events an output makes of it; none keeps it out of that output.
    fn records(&self, _options: &AppLogOptions) -> usize {
        1
    }

    /// As [`Transaction::log`] for [`LogFor::Event`], where there are several events: that of number `record`.
    fn log_record(&self, _record: usize, json: &mut Json, options: &AppLogOptions) {
        self.log(json, options, LogFor::Event);
    }

    /// Detection has looked at all that [`Transaction::buffer`] offers in a direction: streams move on.
    fn inspected(&mut self, dir: Direction);

    /// When data of its files is due for inspection: the limits that [`Transaction::inspected`] moves them on by. Without
    /// a minimum all is looked at that there is.
    fn file_window(&self, _dir: Direction) -> WindowLimits {
        WindowLimits { min: 0, window: 4096 }
    }

    /// Appends the members of its log to an open object's place: `"http":{...}` with its key.
    fn log(&self, json: &mut Json, options: &AppLogOptions, what: LogFor);

    /// A transaction of another protocol within this one. Its event is written beside this one's.
    fn carried(&self) -> Option<(AppProto, &dyn Transaction)> {
        None
    }

    /// Stores the certificates of a direction's sender, which rules asked for ([`TxBase::store_certificates`]).
    fn store_certificates(&self, _dir: Direction, _store: &mut CertificateStore, _occasion: &Occasion<'_>) {}

    /// What a script asks of it by name, as of a transaction of `protocol` (the name of the script's library: `http`, `dns`,
    /// `tls`, `ja3` …), with an argument where it gives one; `get` asks whether it is such a transaction. `None` where it is
    /// not, or knows nothing of the name.
    fn ask(&self, _protocol: &str, _what: &str, _arg: Option<&[u8]>) -> Option<Answer> {
        None
    }

    /// The address of the client as a proxy gives it in a header (`xff`): `header` in any case; the last of a list, or the
    /// first with `forward`.
    fn forwarded_for(&self, _header: &str, _forward: bool) -> Option<std::net::IpAddr> {
        None
    }
}
