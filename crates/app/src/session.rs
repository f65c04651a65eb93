//! A flow's application layer: recognition, then the protocol's parser.

use margay_flow::Direction;

use crate::expect::Carries;
use crate::parser::{Outcome, Parse, Parser};
use crate::recognise::{RecogniseState, Recognised, is_told_in};
use crate::registry::{AppProto, Opening, Protocol, declaration, protocol};

/// What is odd about a flow's protocols: events of packets, `app-layer-event:applayer_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum SessionEvent {
    /// The two directions speak different protocols.
    MismatchBothDirections,
    /// The side that spoke first should not have.
    WrongDirectionFirstData,
    /// One direction could not be recognised, the other could.
    OnlyOneDirection,
    /// Recognition was not possible any more.
    DetectionSkipped,
    /// STARTTLS was agreed, and no TLS came.
    NoTlsAfterStarttls,
    /// Another protocol than the expected one came after a change.
    UnexpectedProtocol,
}

impl SessionEvent {
    /// All of them, in the order of their numbers.
    pub const ALL: [SessionEvent; 6] = [
        SessionEvent::MismatchBothDirections,
        SessionEvent::WrongDirectionFirstData,
        SessionEvent::OnlyOneDirection,
        SessionEvent::DetectionSkipped,
        SessionEvent::NoTlsAfterStarttls,
        SessionEvent::UnexpectedProtocol,
    ];

    /// Its name in rules; events have it in capitals.
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

    /// Its bit in sets.
    pub const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// Why a parser gave up on its flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParserError {
    /// Bytes are missing that it cannot do without (`app_layer.error.*.gap`).
    Gap,
    /// It cannot make sense of the bytes (`app_layer.error.*.parser`).
    Parser,
    /// It grew when the application layer had no more memory (`app_layer.error.*.alloc`).
    Alloc,
    /// What it left unused, waiting for more, is longer than the engine keeps (`app_layer.error.*.internal`).
    Internal,
}

/// A flow's application layer.
#[derive(Debug, Default)]
pub struct AppSession {
    /// Protocol by direction.
    pub side: [AppProto; 2],
    /// The flow's protocol.
    pub proto: AppProto,
    /// What it was before it changed.
    pub original: AppProto,
    state: RecogniseState,
    /// The parser, and before it that of the protocol before, while it has transactions.
    parsers: Vec<Box<dyn Parser>>,
    /// Whether the last of `parsers` still parses.
    parsing: bool,
    /// Events not yet taken, one bit each.
    events: u8,
    /// By direction, whether it was given up when the protocol of the flow was known already.
    refuted: [bool; 2],
    /// Which direction's data came first.
    first: Option<Direction>,
    /// Whether a direction was told of its end.
    ended: [bool; 2],
    /// Whether files of a direction were told that no more of it is looked at.
    truncated: [bool; 2],
    /// What was recognised cannot be: nothing is parsed.
    silenced: bool,
    /// The flow is the wrong way round.
    turn: bool,
    /// It was turned round: the client is who sent the second packet.
    turned: bool,
    /// This direction waits: the other one, which spoke before it, is to be parsed first.
    waits: Option<Direction>,
    /// What it was before it last changed.
    before: AppProto,
    /// It changed to a protocol that nothing came of yet.
    fresh: bool,
    /// How often it changed.
    changes: u32,
    /// Nothing more is wanted.
    off: bool,
    /// There are as many transactions as there may be, and bytes that wait for some to go.
    full: bool,
    /// The parser gave up, and nobody asked yet.
    error: Option<ParserError>,
    /// Transactions of parsers that are gone.
    past_txs: u64,
    /// Those of the last of them.
    last_txs: u64,
    told: Told,
}

/// Whether a parser was told something.
#[derive(Debug, Default)]
struct Told {
    /// By direction: since [`AppSession::take_changed`].
    changed: [bool; 2],
    /// Since [`AppSession::take_stirred`].
    stirred: bool,
}

impl Told {
    /// A parser is told something.
    const fn note(&mut self) {
        (self.changed, self.stirred) = ([true; 2], true);
    }
}

/// What came of feeding a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fed {
    /// Bytes that are not needed any more.
    pub consumed: usize,
    /// What is left should be offered again at once: to another protocol.
    pub again: bool,
}

const WAIT: Fed = Fed { consumed: 0, again: false };

impl AppSession {
    /// Bytes of a direction: what was left of the last call and what came since. With [`Parse::end`] no more will come.
    pub fn data(&mut self, cx: &mut Parse<'_>, dir: Direction, data: &[u8]) -> Fed {
        if self.off || self.truncated[dir.index()] {
            return Fed { consumed: data.len(), again: false };
        }
        if !data.is_empty() {
            self.first.get_or_insert(dir);
            self.fresh = false;
        }
        let before = self.proto;
        if self.waits == Some(dir) && !cx.end {
            return WAIT;
        }
        // What made this direction wait is over now.
        let waited = self.waits.take().is_some();
        self.recognise(cx, dir, data);
        if self.turn {
            return WAIT;
        }
        if !self.proto.is_known() {
            if self.side == [AppProto::Failed; 2] || self.silenced {
                self.off = true;
                return Fed { consumed: data.len(), again: false };
            }
            if cx.end && self.original.is_known() && self.side[0] == AppProto::Unknown {
                // What was to come after a change did not come.
                self.proto = AppProto::Failed;
            }
            return WAIT;
        }
        if cx.end {
            self.ended[dir.index()] = true;
        } else if before != self.proto && self.first == Some(dir.reverse()) && self.parsing && cx.flow.proto == 6 {
            // The other direction spoke first, and was not understood until now.
            self.waits = Some(dir);
            return Fed { consumed: 0, again: true };
        }
        let Some(parser) = self.parsers.last_mut().filter(|_| self.parsing) else {
            // Only its name is wanted, of both sides.
            self.off = !self.side.contains(&AppProto::Unknown);
            self.took(dir, data.len());
            return Fed { consumed: data.len(), again: before != self.proto };
        };
        self.told.note();
        let parsed = parser.data(cx, dir, data);
        let consumed = parsed.consumed.min(data.len());
        self.took(dir, consumed);
        if parsed.outcome == Outcome::Full {
            // It will be told of the end when it has taken what is before it.
            self.ended[dir.index()] = false;
        }
        let mut fed = self.went_on(cx, parsed.outcome, consumed);
        // What the other direction held back may be wanted now.
        fed.again |= before != self.proto || waited;
        fed
    }

    fn took(&mut self, dir: Direction, bytes: usize) {
        if self.side[dir.index()] == AppProto::Unknown {
            self.state.consumed(dir, bytes);
        }
    }

    /// Whether recognition found the flow the wrong way round. Nothing was taken then: turn the flow, its stream and this
    /// round ([`AppSession::turn_round`]), and offer what there is again.
    pub const fn wants_turn(&self) -> bool {
        self.turn
    }

    /// The flow was turned round.
    pub fn turn_round(&mut self) {
        (self.turn, self.turned) = (false, !self.turned);
        self.side.swap(0, 1);
        self.refuted.swap(0, 1);
        self.ended.swap(0, 1);
        self.truncated.swap(0, 1);
        self.first = self.first.map(Direction::reverse);
        self.state.turn_round();
    }

    /// The beginning of the TCP connection was not seen, or that of a UDP flow need not have been.
    pub const fn set_midstream(&mut self) {
        self.state.set_midstream();
    }

    /// Bytes of a direction are missing.
    pub fn gap(&mut self, cx: &mut Parse<'_>, dir: Direction, len: u64) {
        self.waits = None;
        if self.off || self.truncated[dir.index()] {
            return;
        }
        match self.parsers.last_mut().filter(|_| self.parsing) {
            Some(parser) => {
                self.told.note();
                match parser.gap(cx, dir, len) {
                    Outcome::Failed => self.parser_failed(cx, ParserError::Gap),
                    outcome => {
                        self.went_on(cx, outcome, 0);
                    }
                }
            }
            // Nothing can be recognised behind a hole, and what was before it is gone.
            None => {
                if self.first == Some(dir) {
                    self.first = None;
                }
                if self.side[dir.index()] == AppProto::Unknown {
                    self.give_up(dir, false);
                }
            }
        }
    }

    /// More bytes wait in a direction than can be kept: nothing more of the flow is looked at, and where it had a parser
    /// that one failed.
    pub fn fail(&mut self, cx: &mut Parse<'_>) {
        if self.parsing {
            self.parser_failed(cx, ParserError::Internal);
        } else {
            self.off = true;
        }
    }

    /// The flow cannot have more memory: nothing more of it is looked at, and where it had a parser that one failed.
    pub fn out_of_memory(&mut self, cx: &mut Parse<'_>) {
        if self.parsing {
            self.parser_failed(cx, ParserError::Alloc);
        } else {
            self.off = true;
        }
    }

    /// How many transactions there are, freed ones between them included.
    pub fn txs_held(&self) -> usize {
        let of = |p: &dyn Parser| {
            let txs = p.txs();
            usize::try_from(txs.end - txs.start).unwrap_or(usize::MAX)
        };
        self.parsers.iter().map(|p| of(&**p)).sum()
    }

    /// Nothing more of the flow is parsed: counts the error, and keeps it for [`AppSession::take_error`].
    fn parser_failed(&mut self, cx: &mut Parse<'_>, error: ParserError) {
        self.told.note();
        (self.off, self.parsing) = (true, false);
        self.error = Some(error);
        cx.shared.counters.failed(cx.flow.proto, self.proto, error);
        // Nothing that they wait for will come.
        for dir in [Direction::ToServer, Direction::ToClient] {
            self.cut_off(cx, dir, true);
        }
    }

    fn went_on(&mut self, cx: &mut Parse<'_>, outcome: Outcome, consumed: usize) -> Fed {
        self.told.note();
        match outcome {
            Outcome::More => Fed { consumed, again: false },
            Outcome::Resume => Fed { consumed, again: true },
            Outcome::Full => {
                self.full = true;
                Fed { consumed, again: false }
            }
            Outcome::Done => {
                (self.off, self.parsing) = (true, false);
                Fed { consumed, again: false }
            }
            // A datagram stands for itself: the next one may be read again.
            Outcome::Failed if cx.flow.proto == 17 => {
                self.error = Some(ParserError::Parser);
                cx.shared.counters.failed(cx.flow.proto, self.proto, ParserError::Parser);
                Fed { consumed, again: false }
            }
            Outcome::Failed => {
                self.parser_failed(cx, ParserError::Parser);
                Fed { consumed, again: false }
            }
            Outcome::Rename(to) => {
                if self.original == AppProto::Unknown {
                    self.original = self.proto;
                }
                (self.proto, self.side) = (to, [to; 2]);
                Self::count_flow(cx, to);
                Fed { consumed, again: false }
            }
            Outcome::Change(to) => {
                let upgrade = cx.shared.upgrade.take();
                if self.original == AppProto::Unknown {
                    self.original = self.proto;
                }
                self.state = RecogniseState::default();
                self.parsing = false;
                (self.side, self.first) = ([AppProto::Unknown; 2], None);
                (self.before, self.proto) = (self.proto, AppProto::Unknown);
                self.changes = self.changes.saturating_add(1);
                if let Some(to) = to {
                    (self.side, self.fresh) = ([to; 2], true);
                    self.start(cx, to);
                    if let (Some(parser), Some(from)) = (self.parsers.last_mut().filter(|_| self.parsing), upgrade) {
                        parser.take_over(cx, from);
                    }
                }
                Fed { consumed, again: true }
            }
        }
    }

    /// Finds out what a direction speaks, where that is not known yet.
    fn recognise(&mut self, cx: &mut Parse<'_>, dir: Direction, data: &[u8]) {
        if self.side[dir.index()] != AppProto::Unknown {
            return;
        }
        match cx.config.recogniser.recognise(&mut self.state, cx.flow, dir, data, cx.end) {
            Recognised::More => {}
            // Datagrams of the other side may have been recognised before this one told who is the client.
            Recognised::Known { proto, reverse: true }
                if self.side == [AppProto::Unknown; 2] && self.parsers.is_empty()
                    || cx.flow.proto == 17 && self.side[dir.reverse().index()] == proto =>
            {
                self.turn = true;
            }
            Recognised::Known { proto, .. } => {
                self.side[dir.index()] = proto;
                let other = self.side[dir.reverse().index()];
                let client_first = declaration(proto).is_some_and(|p| p.opening == Opening::ClientFirst);
                if client_first && self.first == Some(Direction::ToClient) && !other.is_known() {
                    self.events |= SessionEvent::WrongDirectionFirstData.bit();
                    (self.proto, self.silenced) = (AppProto::Failed, true);
                    return;
                }
                if other.is_known() {
                    if other != proto {
                        self.events |= SessionEvent::MismatchBothDirections.bit();
                    }
                    return;
                }
                self.start(cx, proto);
            }
            Recognised::Failed => self.give_up(dir, cx.flow.proto == 17),
        }
    }

    fn give_up(&mut self, dir: Direction, udp: bool) {
        self.side[dir.index()] = AppProto::Failed;
        match self.side[dir.reverse().index()] {
            AppProto::Failed => self.proto = AppProto::Failed,
            // Of datagrams one side that says nothing known is enough to call it that.
            AppProto::Unknown if udp => {
                self.proto = AppProto::Failed;
                self.refuted[dir.index()] = self.opened(dir);
            }
            AppProto::Unknown => {}
            _ if udp => self.refuted[dir.index()] = self.opened(dir),
            other => {
                self.refuted[dir.index()] = is_told_in(other, dir);
                if self.refuted[dir.index()] {
                    self.events |= SessionEvent::OnlyOneDirection.bit();
                }
            }
        }
    }

    /// Whether a direction is that of the flow's first packet.
    fn opened(&self, dir: Direction) -> bool {
        (dir == Direction::ToServer) != self.turned
    }

    /// The protocols of the directions as events show them: over TCP one is shown as failed that was given up when the other was known
    /// already to be of a protocol that can be recognised in both, and over UDP only the direction of the first packet is, unless the flow was turned round.
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

    /// The flow is of a protocol that was announced ([`crate::expect`]): it is not recognised.
    pub fn begin(&mut self, cx: &mut Parse<'_>, carries: Carries, reversed: bool) {
        let proto = carries.proto();
        (self.proto, self.side) = (proto, [proto; 2]);
        Self::count_flow(cx, proto);
        if cx.config.recogniser.parses(proto) {
            self.parsers.push(carries.parser(reversed));
            self.parsing = true;
        }
    }

    /// No more of a direction is looked at (the stream's depth): what its transactions have of it is cut off, and all that
    /// there will be of it. To be called again whenever something came of the other direction.
    pub fn truncate(&mut self, cx: &mut Parse<'_>, dir: Direction) {
        let first = !std::mem::replace(&mut self.truncated[dir.index()], true);
        if let Some(parser) = self.parsers.last_mut().filter(|_| first && self.parsing) {
            parser.truncated(cx, dir);
        }
        self.ended[dir.index()] = true;
        self.told.note();
        // Later those alone are of interest that came since.
        self.cut_off(cx, dir, first);
    }

    /// Ends transactions in a direction, their files cut off: all of them, or those that changed.
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

    /// Whether the protocol changed, and nothing came of what follows yet.
    pub fn is_changing(&self) -> bool {
        self.fresh || (self.proto == AppProto::Unknown && self.changes > 0)
    }

    /// The flow's protocol as rules see it: until something came of what follows, it is what it was.
    pub fn for_rules(&self) -> AppProto {
        if self.is_changing() { self.before } else { self.proto }
    }

    /// The protocol of both directions as rules see it.
    pub fn sides_for_rules(&self) -> [AppProto; 2] {
        if self.is_changing() { [self.before; 2] } else { self.side }
    }

    /// What the protocol was before it last changed.
    pub const fn before(&self) -> AppProto {
        self.before
    }

    /// How often the protocol changed.
    pub const fn changes(&self) -> u32 {
        self.changes
    }

    /// Whether nothing more is wanted.
    pub const fn is_off(&self) -> bool {
        self.off
    }

    /// Whether a direction was told that no more will come.
    pub const fn is_ended(&self, dir: Direction) -> bool {
        self.ended[dir.index()]
    }

    /// Whether no more of a direction is looked at ([`AppSession::truncate`]).
    pub const fn is_truncated(&self, dir: Direction) -> bool {
        self.truncated[dir.index()]
    }

    /// Whether there were as many transactions as there may be since the last call: those that are there are to be inspected,
    /// logged and freed, and both directions offered again, also where the stream has nothing for them.
    pub const fn take_full(&mut self) -> bool {
        std::mem::replace(&mut self.full, false)
    }

    /// Whether [`AppSession::take_full`] will say so.
    pub const fn is_full(&self) -> bool {
        self.full
    }

    /// Bytes of memory that its parsers take: what they hold, and they themselves.
    pub fn memory(&mut self) -> u64 {
        let places = (self.parsers.capacity() * size_of::<Box<dyn Parser>>()) as u64;
        places + self.parsers.iter_mut().map(|p| p.memory() + size_of_val(&**p) as u64).sum::<u64>()
    }

    /// All transactions are to be looked at again.
    pub fn wake(&mut self) {
        self.parsers.iter_mut().for_each(|p| p.wake_txs());
    }

    /// Why the parser gave up, where it did since the last call.
    pub const fn take_error(&mut self) -> Option<ParserError> {
        self.error.take()
    }

    /// Events since the last call, one bit each ([`SessionEvent::bit`]).
    pub const fn take_events(&mut self) -> u8 {
        std::mem::replace(&mut self.events, 0)
    }

    /// The parsers that have transactions: that of the protocol spoken now last.
    pub fn parsers(&self) -> &[Box<dyn Parser>] {
        &self.parsers
    }

    /// The same, to write to.
    pub fn parsers_mut(&mut self) -> &mut [Box<dyn Parser>] {
        &mut self.parsers
    }

    /// Whether a parser was told anything since the last call for that direction: where not, no transaction has changed.
    pub const fn take_changed(&mut self, dir: Direction) -> bool {
        std::mem::replace(&mut self.told.changed[dir.index()], false)
    }

    /// Whether a parser was told anything since the last call, for who looks at both directions.
    pub const fn take_stirred(&mut self) -> bool {
        std::mem::replace(&mut self.told.stirred, false)
    }

    /// Whether there is a transaction.
    pub fn has_txs(&self) -> bool {
        self.parsers.iter().any(|p| !p.txs().is_empty())
    }

    /// Transactions of the protocol that is spoken now (`tx_cnt`): those from before a change of protocol do not count.
    pub fn tx_shown(&self) -> u64 {
        self.parsers.last().map_or(self.last_txs, |p| p.txs().end)
    }

    /// Transactions of the flow so far.
    pub fn tx_count(&self) -> u64 {
        self.past_txs + self.parsers.iter().map(|p| p.txs().end).sum::<u64>()
    }

    /// Frees parsers of protocols that are not spoken any more, where they have no transaction left. Whether there were some.
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
