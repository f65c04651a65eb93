//! A flow's application layer: protocol detection, then the protocol's parser.

use margay_flow::Direction;

use crate::declare::{Opening, Protocol};
use crate::expect::Carries;
use crate::first_data::FirstData;
use crate::frame::STREAM;
use crate::parser::{Outcome, Parse, Parser};
use crate::proto::AppProto;
use crate::recognise::{Probed, RecogniseState, Recognised, TCP, begins_with};
use crate::registry::{declaration, protocol};

mod agreed;
mod moved;
mod skipped;

pub use crate::parser::ParserError;

/// Protocol anomalies of a flow. Rules match them as packet events, `app-layer-event:applayer_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum SessionEvent {
    /// The two directions speak different protocols.
    MismatchBothDirections,
    /// The server spoke first in a protocol where the client has to.
    WrongDirectionFirstData,
    /// Protocol detection succeeded in one direction only.
    OnlyOneDirection,
    /// Protocol detection became impossible.
    DetectionSkipped,
    /// The peers agreed on STARTTLS, and no TLS followed.
    NoTlsAfterStarttls,
    /// After a protocol change, the flow did not continue with the expected protocol.
    UnexpectedProtocol,
}

impl SessionEvent {
    /// All events, in the order of their numbers.
    pub const ALL: [SessionEvent; 6] = [
        SessionEvent::MismatchBothDirections,
        SessionEvent::WrongDirectionFirstData,
        SessionEvent::OnlyOneDirection,
        SessionEvent::DetectionSkipped,
        SessionEvent::NoTlsAfterStarttls,
        SessionEvent::UnexpectedProtocol,
    ];

    /// The name in rules; log events have it in capitals.
    pub const fn name(self) -> &'static str {
        match self {
            SessionEvent::MismatchBothDirections => "applayer_mismatch_protocol_both_directions",
            SessionEvent::WrongDirectionFirstData => "applayer_wrong_direction_first_data",
            SessionEvent::OnlyOneDirection => "applayer_detect_protocol_only_one_direction",
            SessionEvent::DetectionSkipped => "applayer_proto_detection_skipped",
            SessionEvent::NoTlsAfterStarttls => "applayer_no_tls_after_starttls",
            SessionEvent::UnexpectedProtocol => "applayer_unexpected_protocol",
        }
    }

    /// The event's bit in a set.
    pub const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A flow's application layer.
#[derive(Debug, Default)]
pub struct AppSession {
    /// Protocol by direction.
    pub side: [AppProto; 2],
    /// The flow's protocol.
    pub proto: AppProto,
    /// The flow's first protocol, if the protocol changed.
    pub original: AppProto,
    state: RecogniseState,
    /// The current parser, after the previous protocol's parser if that one still has transactions.
    parsers: Vec<Box<dyn Parser>>,
    /// Whether the last of `parsers` still parses.
    parsing: bool,
    /// Events not yet taken, one bit each.
    events: u8,
    /// By direction: if detection gave up, [`AppSession::sides_shown`] shows it as failed, not as unknown.
    refuted: [bool; 2],
    first: FirstData,
    /// By direction: the parser has seen the end of the stream.
    ended: [bool; 2],
    /// By direction: files are truncated because inspection stopped at the stream depth.
    truncated: [bool; 2],
    /// Detection found a contradiction, so nothing is parsed.
    silenced: bool,
    /// The flow's direction is wrong: the caller has to turn it.
    turn: bool,
    /// The direction was turned: the client is the peer that sent the second packet.
    turned: bool,
    /// This direction waits until the parser has seen the other one, which spoke first.
    waits: Option<Direction>,
    /// The protocol before the last change, for rules.
    before: AppProto,
    /// The protocol changed, and no data of the new one has arrived yet.
    fresh: bool,
    /// The number of protocol changes.
    changes: u32,
    /// Nothing more of the flow is parsed.
    off: bool,
    /// The parser has finished. The rest only lengthens the frame of the stream, for rules that inspect it.
    passing: bool,
    /// The flow has reached its limit of transactions, and data waits until some are freed.
    full: bool,
    /// The last error of a parser, until the caller takes it.
    error: Option<ParserError>,
    /// The number of transactions that all freed parsers had.
    past_txs: u64,
    /// The number of transactions that the last freed parser had.
    last_txs: u64,
    told: DirtyFlags,
    agreement: Option<agreed::Agreement>,
    expected: AppProto,
}

/// Whether a parser ran since the flags were last taken: if none did, no transaction has changed.
#[derive(Debug, Default)]
struct DirtyFlags {
    /// By direction: a parser ran since [`AppSession::take_changed`].
    changed: [bool; 2],
    /// A parser ran since [`AppSession::take_dirty`].
    dirty: bool,
}

impl DirtyFlags {
    /// Sets the flags: a parser is about to run.
    const fn note(&mut self) {
        (self.changed, self.dirty) = ([true; 2], true);
    }
}

/// The result of feeding data to a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedResult {
    /// Bytes that the caller can drop.
    pub consumed: usize,
    /// The caller has to offer the unconsumed data of both directions again at once: it may be parsed now.
    pub again: bool,
    /// The other direction's data that was offered before and waited comes next, before the rest of this direction: it was
    /// sent first.
    pub waiting_first: bool,
}

impl FeedResult {
    const fn used(consumed: usize) -> Self {
        FeedResult { consumed, again: false, waiting_first: false }
    }
}

const WAIT: FeedResult = FeedResult::used(0);

impl AppSession {
    /// Feeds data of a direction: the unconsumed rest of the last call, followed by new data. [`Parse::end`] marks the end of
    /// the stream.
    pub fn data(&mut self, cx: &mut Parse<'_>, dir: Direction, data: &[u8]) -> FeedResult {
        if self.off || self.passing || self.truncated[dir.index()] {
            self.ended[dir.index()] |= self.passing && cx.end;
            return FeedResult::used(data.len());
        }
        if !data.is_empty() {
            self.first.offered(dir);
            self.fresh = false;
        }
        let before = self.proto;
        if self.waits == Some(dir) && !cx.end {
            return WAIT;
        }
        // The other direction's data, or the end of this one, ends the wait.
        let waited = self.waits.take().is_some();
        let refuted = self.refuted[dir.index()];
        if self.look_after_agreement(cx, dir, data) {
            return WAIT;
        }
        self.recognise(cx, dir, data);
        self.go_on_after_agreement(cx, data);
        if self.turn {
            return WAIT;
        }
        if !self.proto.is_known() {
            self.skip_detection(cx, dir, data.len());
            if self.side == [AppProto::Failed; 2] || self.silenced {
                self.off = true;
                return FeedResult::used(data.len());
            }
            if cx.end && self.original.is_known() && self.side[0] == AppProto::Unknown {
                // The expected protocol did not follow the change.
                self.proto = AppProto::Failed;
            }
            return WAIT;
        }
        if cx.end {
            self.ended[dir.index()] = true;
        } else if before != self.proto && self.first.is(dir.reverse()) && self.parsing && cx.flow.proto == TCP {
            // The other direction spoke first, and its protocol is known only now: parse it first.
            self.waits = Some(dir);
            return FeedResult { again: true, ..WAIT };
        }
        let Some(parser) = self.parsers.last_mut().filter(|_| self.parsing) else {
            // The protocol has no parser. Only its name is needed, for both directions.
            self.off = !self.side.contains(&AppProto::Unknown);
            self.took(cx, dir, data.len());
            return FeedResult { again: before != self.proto, ..FeedResult::used(data.len()) };
        };
        self.told.note();
        cx.shared.frames.enter(self.proto);
        // Each side of a connection is a frame of its own, whatever the parser marks in it.
        if cx.flow.proto == TCP && !data.is_empty() {
            cx.shared.frames.begin_stream(dir);
        }
        let parsed = parser.data(cx, dir, data);
        let consumed = parsed.consumed.min(data.len());
        if parsed.outcome == Outcome::Failed && cx.flow.proto == TCP {
            // As in Suricata: the parser gave up with the same data as detection, so the flow has failed, not the direction.
            self.refuted[dir.index()] = refuted;
        }
        self.took(cx, dir, consumed);
        if matches!(parsed.outcome, Outcome::Full | Outcome::Resume) {
            // The parser sees the end once it has consumed the data before it.
            self.ended[dir.index()] = false;
        } else if cx.end {
            self.last_look(dir);
        }
        let mut fed = self.went_on(cx, parsed.outcome, consumed);
        // The data that the other direction held back can be parsed now.
        fed.again |= before != self.proto || waited;
        fed
    }

    fn took(&mut self, cx: &Parse<'_>, dir: Direction, bytes: usize) {
        if self.side[dir.index()] != AppProto::Unknown || bytes == 0 {
            return;
        }
        // The parser accepted a beginning that is too short for detection, so it is the protocol's.
        if cx.config.recogniser.may_be(&self.state, cx.flow, dir, self.proto) {
            self.side[dir.index()] = self.proto;
        } else {
            self.state.consumed(dir, bytes);
        }
    }

    /// Whether detection found the flow's direction to be wrong. The session consumed nothing then: turn the flow, its stream
    /// and this session ([`AppSession::turn_round`]), and offer the data again.
    pub const fn wants_turn(&self) -> bool {
        self.turn
    }

    /// Turns the session after the caller turned the flow.
    pub fn turn_round(&mut self) {
        (self.turn, self.turned) = (false, !self.turned);
        self.side.swap(0, 1);
        self.refuted.swap(0, 1);
        self.ended.swap(0, 1);
        self.truncated.swap(0, 1);
        self.first.turn_round();
        self.state.turn_round();
    }

    /// Marks a flow whose beginning was not seen. Call this for every UDP flow too.
    pub const fn set_midstream(&mut self) {
        self.state.set_midstream();
    }

    /// Sets the direction whose data arrived first, if that is known. The other direction's data may be offered sooner.
    pub const fn set_opened_by(&mut self, dir: Option<Direction>) {
        self.first.arrived = dir;
    }

    /// Handles a gap in a direction.
    pub fn gap(&mut self, cx: &mut Parse<'_>, dir: Direction, len: u64) {
        (self.waits, self.agreement) = (None, None);
        if self.off || self.passing || self.truncated[dir.index()] {
            return;
        }
        match self.parsers.last_mut().filter(|_| self.parsing) {
            Some(parser) => {
                self.told.note();
                cx.shared.frames.enter(self.proto);
                match parser.gap(cx, dir, len) {
                    Outcome::Failed => self.parser_failed(cx, ParserError::Gap),
                    outcome => {
                        self.went_on(cx, outcome, 0);
                    }
                }
            }
            // Detection needs the data before the gap, which is gone.
            None => {
                self.first.forget(dir);
                if self.side[dir.index()] == AppProto::Unknown {
                    self.give_up(cx, dir);
                }
            }
        }
    }

    /// Gives up on the flow: a direction has more waiting data than the engine buffers ([`ParserError::Internal`]), or it cannot
    /// have more memory ([`ParserError::Alloc`]). If it has a parser, the parser fails.
    pub fn fail(&mut self, cx: &mut Parse<'_>, error: ParserError) {
        if self.parsing {
            self.parser_failed(cx, error);
        } else {
            self.off = true;
        }
    }

    /// The span of transaction numbers, including freed ones in between.
    pub fn txs_held(&self) -> usize {
        let of = |p: &dyn Parser| {
            let txs = p.txs();
            usize::try_from(txs.end - txs.start).unwrap_or(usize::MAX)
        };
        self.parsers.iter().map(|p| of(&**p)).sum()
    }

    /// Stops parsing: counts the error, and keeps it for [`AppSession::take_error`].
    fn parser_failed(&mut self, cx: &mut Parse<'_>, error: ParserError) {
        self.told.note();
        (self.off, self.parsing) = (true, false);
        self.error = Some(error);
        cx.shared.counters.failed(cx.flow.proto, self.proto, error);
        // The data that the transactions wait for will not come.
        for dir in [Direction::ToServer, Direction::ToClient] {
            self.cut_off(cx, dir, true);
        }
    }

    fn went_on(&mut self, cx: &mut Parse<'_>, outcome: Outcome, consumed: usize) -> FeedResult {
        self.told.note();
        match outcome {
            Outcome::More => FeedResult::used(consumed),
            Outcome::Resume => FeedResult { consumed, again: true, waiting_first: true },
            Outcome::Full => {
                self.full = true;
                FeedResult::used(consumed)
            }
            Outcome::Done => {
                let (wishes, watched) = (&cx.shared.wishes, cx.shared.frames.inspects(STREAM));
                self.passing = watched && !wishes.no_payload && !wishes.bypass && cx.flow.proto == TCP;
                (self.off, self.parsing) = (!self.passing, false);
                FeedResult::used(consumed)
            }
            // Datagrams are independent: the parser may understand the next one.
            Outcome::Failed if cx.flow.proto == 17 => {
                self.error = Some(ParserError::Parser);
                cx.shared.counters.failed(cx.flow.proto, self.proto, ParserError::Parser);
                FeedResult::used(consumed)
            }
            Outcome::Failed => {
                self.parser_failed(cx, ParserError::Parser);
                FeedResult::used(consumed)
            }
            Outcome::Rename(to) => {
                if self.original == AppProto::Unknown {
                    self.original = self.proto;
                }
                (self.proto, self.side) = (to, [to; 2]);
                Self::count_flow(cx, to);
                FeedResult::used(consumed)
            }
            Outcome::Change(to) => {
                let upgrade = cx.shared.upgrade.take();
                if self.original == AppProto::Unknown {
                    self.original = self.proto;
                }
                self.state = RecogniseState::default();
                self.parsing = false;
                (self.side, self.first) = ([AppProto::Unknown; 2], FirstData::default());
                (self.before, self.proto) = (self.proto, AppProto::Unknown);
                self.changes = self.changes.saturating_add(1);
                if let Some(to) = to {
                    (self.side, self.fresh) = ([to; 2], true);
                    self.start(cx, to);
                    self.agree(self.before, to);
                    if let (Some(parser), Some(from)) = (self.parsers.last_mut().filter(|_| self.parsing), upgrade) {
                        parser.take_over(cx, from);
                    }
                }
                FeedResult { consumed, again: true, waiting_first: true }
            }
        }
    }

    /// Runs protocol detection for a direction whose protocol is unknown.
    fn recognise(&mut self, cx: &mut Parse<'_>, dir: Direction, data: &[u8]) {
        if self.side[dir.index()] != AppProto::Unknown {
            return;
        }
        let other = self.side[dir.reverse().index()];
        if dir == Direction::ToServer && cx.flow.proto == TCP && other.is_known() {
            match begins_with(declaration(other).map_or(&[], |p| p.first_words), data) {
                Probed::Yes { .. } => {
                    self.side[dir.index()] = other;
                    return;
                }
                Probed::More if !cx.end => return,
                _ => {}
            }
        }
        match cx.config.recogniser.recognise(&mut self.state, cx.flow, dir, data, cx.end) {
            Recognised::More => {}
            // The other side's datagrams may already have a protocol before this one reveals the client.
            Recognised::Known { proto, reverse: true }
                if self.parsers.is_empty()
                    && (self.side == [AppProto::Unknown; 2]
                        || cx.flow.proto == TCP && !self.side.iter().any(|s| s.is_known()))
                    || cx.flow.proto == 17 && self.side[dir.reverse().index()] == proto =>
            {
                self.turn = true;
            }
            Recognised::Known { proto, .. } => {
                self.side[dir.index()] = proto;
                let other = self.side[dir.reverse().index()];
                let client_first = declaration(proto).is_some_and(|p| p.opening == Opening::ClientFirst);
                if client_first && self.first.is(Direction::ToClient) && !other.is_known() {
                    // A server that began with another protocol did not send this one's data in the wrong direction.
                    if dir == Direction::ToClient {
                        self.events |= SessionEvent::WrongDirectionFirstData.bit();
                    }
                    (self.proto, self.silenced) = (AppProto::Failed, true);
                    return;
                }
                if other.is_known() {
                    if other != proto {
                        self.events |= SessionEvent::MismatchBothDirections.bit();
                    }
                    return;
                }
                if other == AppProto::Failed && cx.flow.proto == TCP {
                    let recogniser = &cx.config.recogniser;
                    if recogniser.is_accepted(&self.state, dir.reverse(), proto) {
                        self.side[dir.reverse().index()] = proto;
                    } else if recogniser.is_told_in(proto, dir.reverse()) {
                        self.events |= SessionEvent::OnlyOneDirection.bit();
                    }
                }
                self.start(cx, proto);
            }
            Recognised::Failed => self.give_up(cx, dir),
        }
    }

    fn give_up(&mut self, cx: &mut Parse<'_>, dir: Direction) {
        let udp = cx.flow.proto == 17;
        self.side[dir.index()] = AppProto::Failed;
        match self.side[dir.reverse().index()] {
            AppProto::Failed => self.fail_detection(cx),
            // Over UDP, the flow has failed even if the other direction is still unknown.
            AppProto::Unknown if udp => {
                self.fail_detection(cx);
                self.refuted[dir.index()] = self.opened(dir);
            }
            AppProto::Unknown => {}
            _ if udp => self.refuted[dir.index()] = self.opened(dir),
            other => {
                self.refuted[dir.index()] = cx.config.recogniser.is_told_in(other, dir);
                if self.refuted[dir.index()] {
                    self.events |= SessionEvent::OnlyOneDirection.bit();
                }
            }
        }
    }

    fn fail_detection(&mut self, cx: &mut Parse<'_>) {
        if self.proto != AppProto::Failed {
            self.proto = AppProto::Failed;
            Self::count_flow(cx, AppProto::Failed);
        }
    }

    /// Whether the flow's first packet went in this direction.
    fn opened(&self, dir: Direction) -> bool {
        (dir == Direction::ToServer) != self.turned
    }

    /// The protocols of both directions for events. Over TCP, a direction is shown as failed if detection gave it up when the
    /// other one already had a protocol that both directions can be detected by. Over UDP, only the direction of the flow's
    /// first packet is shown that way.
    pub fn sides_shown(&self) -> [AppProto; 2] {
        let [to_server, to_client] = self.side;
        let shown = |side, refuted: bool| if side == AppProto::Failed && !refuted { AppProto::Unknown } else { side };
        [shown(to_server, self.refuted[0]), shown(to_client, self.refuted[1])]
    }

    fn start(&mut self, cx: &mut Parse<'_>, proto: AppProto) {
        self.proto = proto;
        Self::count_flow(cx, proto);
        if let Some(p) = protocol(proto).filter(|_| cx.config.recogniser.parses(proto)) {
            let mut parser = (p.parser)(cx.config, cx.flow);
            if self.original.is_known() {
                parser.comes_after(self.original);
            }
            self.parsers.push(parser);
            self.parsing = true;
        }
    }

    fn count_flow(cx: &mut Parse<'_>, proto: AppProto) {
        let udp = usize::from(cx.flow.proto == 17);
        if let Some(n) = cx.shared.counters.flows.get_mut(udp).and_then(|f| f.get_mut(proto as usize)) {
            *n += 1;
        }
    }

    /// Starts the announced protocol of an expected flow ([`crate::expect`]), without detection.
    pub fn begin(&mut self, cx: &mut Parse<'_>, carries: Carries, reversed: bool) {
        let proto = carries.proto;
        (self.proto, self.side) = (proto, [proto; 2]);
        Self::count_flow(cx, proto);
        let parser = protocol(proto).and_then(|p| p.expected).filter(|_| cx.config.recogniser.parses(proto));
        if let Some(parser) = parser {
            let dir = carries.direction(reversed);
            self.parsers.push(parser(carries, dir));
            self.parsing = true;
        }
    }

    /// Stops inspection of a direction at the stream depth. Its transactions are truncated there, and so is everything that
    /// follows. Call it again whenever the other direction had data.
    pub fn truncate(&mut self, cx: &mut Parse<'_>, dir: Direction) {
        let first = !std::mem::replace(&mut self.truncated[dir.index()], true);
        if let Some(parser) = self.parsers.last_mut().filter(|_| first && self.parsing) {
            parser.truncated(cx, dir);
        }
        self.ended[dir.index()] = true;
        self.told.note();
        // On later calls, only transactions that changed since need it.
        self.cut_off(cx, dir, first);
    }

    /// The stream ends. Rules inspect what there is of open files, also if that is less than the first inspection needs.
    fn last_look(&mut self, dir: Direction) {
        for parser in &mut self.parsers {
            let waits = |id: &u64| parser.tx(*id).is_some_and(|tx| tx.base().files.waits(dir));
            let waiting: Vec<u64> = parser.txs().filter(waits).collect();
            if !waiting.is_empty() {
                // A transaction rests between its packets. Those without news are not inspected.
                parser.wake_txs();
            }
            for id in waiting {
                let Some(tx) = parser.tx_mut(id) else { continue };
                tx.base_mut().files.last_look(dir);
                tx.base_mut().touch(dir);
            }
        }
    }

    /// Ends transactions in a direction and truncates their files: all of them, or those that changed.
    fn cut_off(&mut self, cx: &mut Parse<'_>, dir: Direction, all: bool) {
        for parser in &mut self.parsers {
            let complete = protocol(parser.proto()).map_or([0; 2], Protocol::complete)[dir.index()];
            if all {
                parser.wake_txs();
            }
            let mut from = 0;
            while let Some(id) = parser.next_awake(from) {
                from = id + 1;
                if let Some(tx) = parser.tx_mut(id) {
                    let base = tx.base_mut();
                    if base.files.is_open(dir) {
                        base.files.close(&mut cx.shared.files, &cx.config.files, dir, true);
                        base.touch(dir);
                    }
                    base.advance(dir, complete);
                }
            }
        }
    }

    /// Whether the protocol changed and no data of the new one has arrived.
    pub fn is_changing(&self) -> bool {
        self.fresh || (self.proto == AppProto::Unknown && self.changes > 0)
    }

    /// The flow's protocol for rules: the previous one, until data of the new one arrives.
    pub fn for_rules(&self) -> AppProto {
        if self.is_changing() { self.before } else { self.proto }
    }

    /// The protocols of both directions for rules.
    pub fn sides_for_rules(&self) -> [AppProto; 2] {
        if self.is_changing() { [self.before; 2] } else { self.side }
    }

    /// The protocol before the last change.
    pub const fn before(&self) -> AppProto {
        self.before
    }

    /// The number of protocol changes.
    pub const fn changes(&self) -> u32 {
        self.changes
    }

    /// Whether nothing more of the flow is parsed.
    pub const fn is_off(&self) -> bool {
        self.off
    }

    /// Whether the parser has seen the end of a direction.
    pub const fn is_ended(&self, dir: Direction) -> bool {
        self.ended[dir.index()]
    }

    /// Whether inspection of a direction stopped ([`AppSession::truncate`]).
    pub const fn is_truncated(&self, dir: Direction) -> bool {
        self.truncated[dir.index()]
    }

    /// Whether the flow reached its limit of transactions since the last call. The caller then inspects, logs and frees
    /// transactions, and offers both directions again, even if the stream has no new data.
    pub const fn take_full(&mut self) -> bool {
        std::mem::replace(&mut self.full, false)
    }

    /// The result that [`AppSession::take_full`] would have.
    pub const fn is_full(&self) -> bool {
        self.full
    }

    /// Bytes of memory of the parsers and of everything they hold.
    pub fn memory(&mut self) -> u64 {
        let places = (self.parsers.capacity() * size_of::<Box<dyn Parser>>()) as u64;
        places + self.parsers.iter_mut().map(|p| p.memory() + size_of_val(&**p) as u64).sum::<u64>()
    }

    /// Marks all transactions for another inspection.
    pub fn wake(&mut self) {
        self.parsers.iter_mut().for_each(|p| p.wake_txs());
    }

    /// The last error of a parser since the last call. Over UDP, the parser may have continued with the next datagram.
    pub const fn take_error(&mut self) -> Option<ParserError> {
        self.error.take()
    }

    /// Events since the last call, one bit each ([`SessionEvent::bit`]).
    pub const fn take_events(&mut self) -> u8 {
        std::mem::replace(&mut self.events, 0)
    }

    /// The parsers that have transactions; the current protocol's is the last.
    pub fn parsers(&self) -> &[Box<dyn Parser>] {
        &self.parsers
    }

    /// As [`AppSession::parsers`], mutable.
    pub fn parsers_mut(&mut self) -> &mut [Box<dyn Parser>] {
        &mut self.parsers
    }

    /// Whether a parser ran since the last call for that direction. If not, no transaction has changed.
    pub const fn take_changed(&mut self, dir: Direction) -> bool {
        std::mem::replace(&mut self.told.changed[dir.index()], false)
    }

    /// Whether a parser ran since the last call, for callers that handle both directions at once.
    pub const fn take_dirty(&mut self) -> bool {
        std::mem::replace(&mut self.told.dirty, false)
    }

    /// Whether there is a transaction.
    pub fn has_txs(&self) -> bool {
        self.parsers.iter().any(|p| !p.txs().is_empty())
    }

    /// The number of transactions of the current protocol (`tx_cnt`), without those from before a protocol change.
    pub fn tx_shown(&self) -> u64 {
        self.parsers.last().map_or(self.last_txs, |p| p.txs().end)
    }

    /// The number of transactions of the flow so far.
    pub fn tx_count(&self) -> u64 {
        self.past_txs + self.parsers.iter().map(|p| p.txs().end).sum::<u64>()
    }

    /// Frees parsers that have finished and have no transactions left: those of previous protocols, and the current one once
    /// it parses no more. Returns whether it freed one.
    pub fn tidy(&mut self) -> bool {
        let before = self.parsers.len();
        let keep = usize::from(self.parsing && self.ended != [true; 2]);
        while self.parsers.len() > keep && self.parsers.first().is_some_and(|p| p.txs().is_empty()) {
            self.last_txs = self.parsers.remove(0).txs().end;
            self.past_txs += self.last_txs;
        }
        self.parsers.len() < before
    }
}
