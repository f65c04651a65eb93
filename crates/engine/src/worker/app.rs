//! The application layer: fed with what the stream has in order, its transactions logged when they are complete.

use std::net::IpAddr;
use std::sync::Arc;

use margay_app::expect::Carries;
use margay_app::frame::FlowFrames;
use margay_app::session::SessionEvent;
use margay_app::tls::store::Occasion;
use margay_app::{
    AppConfig, AppLogOptions, AppProto, AppSession, Parse, Parser, Protocol, Shared, Transaction, TxBase, Wishes,
    protocol,
};
use margay_flow::{Direction, Flow, FlowCore};
use margay_output::eve::Record;
use margay_output::event::{self, Anomaly, AnomalyEvent, AppEvent, AppProtos, EventType, Forwarded, Header};
use margay_packet::{Packet, Time};
use margay_stream::{AppData, TcpSession, TcpState};

use super::engines::Engine;
use super::expect::Answer;
use super::log::{HeldVars, addresses};
use super::scripts::{self, Scene};
use super::{FlowExt, Rest};
use crate::witness::Witness;

/// Most pieces that one packet hands over in one direction: stretches between holes.
const PIECES_MAX: usize = 1024;

const DIRECTIONS: [Direction; 2] = [Direction::ToServer, Direction::ToClient];

/// Most bytes before a hole that wait for what is behind it: lines are shorter.
const HELD_MAX: usize = 128 << 10;

/// A worker's application layer.
pub(crate) struct AppLane {
    pub(crate) config: Arc<AppConfig>,
    pub(crate) shared: Shared,
    /// What each `eve-log` output shows, in their order.
    pub(crate) options: Vec<AppLogOptions>,
    /// Makes records of stored files.
    pub(crate) record: Record,
    /// Notes what is inspected; none but in tests.
    pub(crate) witness: Option<Box<Witness>>,
}

/// A flow's application layer, and how far it was fed.
#[derive(Debug, Default)]
pub(crate) struct FlowApp {
    pub(crate) session: AppSession,
    /// By direction, the stream offset up to which data was offered and not all taken.
    offered: [u64; 2],
    /// By direction, what was left before a hole: it goes on behind that.
    held: [Vec<u8>; 2],
    /// By direction, the first transaction of the parser that was not complete when the stream was last told of one.
    complete: [u64; 2],
    /// What rules asked for of its files.
    pub(crate) files: margay_app::file::FlowFiles,
    /// Frames that its parsers marked.
    pub(crate) frames: FlowFrames,
    /// Packet events not yet seen to.
    pub(crate) events: u8,
    /// What its parsers ask of the engine.
    pub(crate) wishes: Wishes,
    /// What follows is encrypted: payload and stream are not inspected any more. Of the packet that told so they are.
    pub(super) encrypted: bool,
    /// Logging left nothing to do with its transactions until they change, and whether rules looked at the flow then.
    quiet: Option<bool>,
    /// Its connection was over when its transactions were last logged.
    over: bool,
    /// Bytes of memory that are counted for it.
    pub(super) counted: u64,
}

/// Checksums of the datagrams of one direction so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Checksums {
    /// None was looked at.
    #[default]
    Unseen,
    /// All were wrong.
    Wrong,
    /// At least one was right.
    Right,
}

/// What a packet's data came to.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Heard {
    /// Events of recognition ([`margay_app::session::SessionEvent::bit`]).
    pub(crate) events: u8,
    /// The flow is the wrong way round, and nothing was taken: it is to be turned, and fed again.
    pub(crate) turn: bool,
    /// Nothing more of the flow is worth a look.
    pub(crate) bypass: bool,
    /// The protocol of a parser that gave up on the flow: `app-layer.error-policy` applies.
    pub(crate) failed: Option<AppProto>,
    /// The parser has as many transactions as it may have, and has not taken all that there is ([`Rest::work_off`]).
    pub(crate) full: bool,
    /// The flow changes its protocol, and the data before that is to be inspected apart ([`Rest::flush_changing`]).
    pub(crate) changing: bool,
}

impl FlowApp {
    /// Prefetches it: reads fields that the next packet needs. The sum means nothing.
    #[inline]
    pub(super) fn warm(&self) -> u64 {
        self.offered[0] ^ self.counted ^ u64::from(self.session.is_off())
    }

    /// The flow was turned round.
    pub(super) fn turn_round(&mut self) {
        self.session.turn_round();
        self.offered = [0; 2];
        self.held.swap(0, 1);
    }

    /// Whether messages of a direction became complete since the last call.
    fn completed(&mut self, d: Direction) -> bool {
        let Some(parser) = self.session.parsers().last().filter(|p| p.is_prompt()) else { return false };
        let Some(complete) = protocol(parser.proto()).map(|p| p.complete()[d.index()]) else { return false };
        let (txs, next) = (parser.txs(), &mut self.complete[d.index()]);
        // Another parser counts from 0 again.
        *next = if *next > txs.end { 0 } else { (*next).max(txs.start) };
        let before = *next;
        while *next < txs.end && parser.tx(*next).is_none_or(|tx| tx.base().progress[d.index()] >= complete) {
            *next += 1;
        }
        *next > before
    }

    /// Whether the stream has nothing in a direction that it was not offered: all that it holds was, and waits for more.
    fn has_all(&self, tcp: &TcpSession, d: Direction) -> bool {
        match tcp.app_data(d, false) {
            None => true,
            Some(AppData::Gap(_)) => false,
            Some(AppData::Data { offset, bytes }) => {
                let end = offset + bytes.len() as u64;
                self.offered[d.index()] == end && !tcp.app_gap_at(d, end, false)
            }
        }
    }

    /// Its transactions may have changed, other than by what parsers were told.
    pub(super) const fn stir(&mut self) {
        self.quiet = None;
    }

    /// The same, and any of them may have.
    pub(super) fn stir_all(&mut self) {
        self.stir();
        self.session.wake();
    }

    /// Whether there is something of a direction that detection did not look at.
    pub(super) fn has_news(&self, d: Direction) -> bool {
        let parsers = self.session.parsers().iter();
        let mut txs = parsers.flat_map(|p| awake(&**p));
        txs.any(|tx| tx.base().updated[d.index()])
    }

    /// The client behind a proxy, from any transaction of the flow.
    pub(crate) fn forwarded_for(&self, header: &str, forward: bool) -> Option<IpAddr> {
        let parsers = self.session.parsers().iter();
        let mut txs = parsers.flat_map(|p| transactions(&**p));
        txs.find_map(|tx| tx.forwarded_for(header, forward))
    }

    /// Bytes of memory that it holds, parsers and all.
    pub(super) fn memory(&mut self) -> u64 {
        let held: usize = self.held.iter().map(Vec::capacity).sum();
        self.session.memory() + (size_of::<FlowApp>() + held) as u64
    }

    /// The protocol of its parser, where that gave up since the last call.
    pub(super) fn take_failed(&mut self) -> Option<AppProto> {
        self.session.take_error().map(|_| self.session.proto)
    }

    /// The flow's protocols, as events name them.
    pub(crate) fn names(&self) -> AppProtos<'static> {
        names(self.shown())
    }

    /// The flow's protocols as events show them, and the one that is expected.
    fn shown(&self) -> (margay_detect::checks::AppProtos, AppProto) {
        let s = &self.session;
        // Until something came of the protocol that follows, the flow has the one before, and is expected to have the other.
        if s.is_changing() {
            let original = if s.changes() > 1 { s.original } else { AppProto::Unknown };
            let side = [AppProto::Unknown; 2];
            return (margay_detect::checks::AppProtos { side, flow: s.before(), original }, s.proto);
        }
        let side = s.sides_shown();
        (margay_detect::checks::AppProtos { side, flow: s.proto, original: s.original }, AppProto::Unknown)
    }
}

/// A flow's protocols, and the one that is expected, as events name them.
fn names((protocols, expected): (margay_detect::checks::AppProtos, AppProto)) -> AppProtos<'static> {
    let name = |p: AppProto| (p != AppProto::Unknown).then(|| p.name());
    AppProtos::new(name(protocols.flow), protocols.side.map(name), name(protocols.original), name(expected))
}

/// The transactions of a parser that were not freed.
fn transactions(parser: &dyn Parser) -> impl Iterator<Item = &dyn Transaction> {
    numbered(parser, |from| parser.next_tx(from))
}

/// Those of them that may have changed since they were last seen to.
pub(super) fn awake(parser: &dyn Parser) -> impl Iterator<Item = &dyn Transaction> {
    numbered(parser, |from| parser.next_awake(from))
}

fn numbered(parser: &dyn Parser, mut next: impl FnMut(u64) -> Option<u64>) -> impl Iterator<Item = &dyn Transaction> {
    let mut from = 0;
    std::iter::from_fn(move || {
        loop {
            let id = next(from)?;
            from = id + 1;
            if let Some(tx) = parser.tx(id) {
                return Some(tx);
            }
        }
    })
}

struct Feeder<'a> {
    lane: &'a mut AppLane,
    core: &'a FlowCore,
    time: Time,
    inline: bool,
    all: bool,
    midstream: bool,
}

impl Feeder<'_> {
    fn cx(&mut self, end: bool) -> Parse<'_> {
        Parse {
            config: &self.lane.config,
            shared: &mut self.lane.shared,
            flow: self.core,
            time: self.time,
            end,
            inline: self.inline,
        }
    }

    fn session<'s>(&self, app: &'s mut Option<Box<FlowApp>>) -> &'s mut FlowApp {
        app.get_or_insert_with(|| {
            let mut app = Box::<FlowApp>::default();
            if self.midstream {
                app.session.set_midstream();
            }
            app
        })
    }

    /// Hands over what a direction has; whether the other direction should be offered what it holds again.
    fn side(&mut self, tcp: &mut TcpSession, app: &mut Option<Box<FlowApp>>, d: Direction) -> bool {
        let mut again = false;
        for _ in 0..PIECES_MAX {
            match tcp.app_data(d, self.all) {
                None => break,
                Some(AppData::Gap(n)) => {
                    if let Some(w) = &mut self.lane.witness {
                        w.app_gap(self.core, d, tcp.first_seq(d), tcp.app_offset(d), n);
                    }
                    self.lane.shared.frames.at = tcp.app_offset(d);
                    let app = self.session(app);
                    app.session.gap(&mut self.cx(false), d, n);
                    if !app.session.proto.is_known() {
                        app.held[d.index()] = Vec::new();
                    }
                    self.consume(tcp, d, n);
                    if app.session.is_off() {
                        break;
                    }
                }
                Some(AppData::Data { offset, bytes }) => {
                    if let Some(w) = &mut self.lane.witness {
                        w.app(self.core, d, tcp.first_seq(d), offset, bytes);
                    }
                    let app = self.session(app);
                    let end = offset + bytes.len() as u64;
                    self.lane.shared.frames.at = offset.saturating_sub(app.held[d.index()].len() as u64);
                    if app.offered[d.index()] == end {
                        if !self.hold(tcp, app, d, end) {
                            break;
                        }
                        continue;
                    }
                    if !app.held[d.index()].is_empty() {
                        let n = bytes.len() as u64;
                        again |= self.behind(app, d, bytes, false);
                        self.consume(tcp, d, n);
                        if app.session.is_off() || app.session.is_full() {
                            break;
                        }
                        continue;
                    }
                    let changes = app.session.changes();
                    let fed = app.session.data(&mut self.cx(false), d, bytes);
                    // FTP's control connection stays one stream when TLS begins in it.
                    let border = app.session.changes() != changes && app.session.before() != AppProto::Ftp;
                    if app.session.is_full() {
                        // Both directions are offered again once there is room.
                        app.offered[d.index()] = 0;
                        self.consume(tcp, d, fed.consumed as u64);
                        if border {
                            tcp.raw_border();
                        }
                        break;
                    }
                    if fed.again {
                        app.offered = [0; 2];
                        again = true;
                    } else {
                        app.offered[d.index()] = end;
                    }
                    if app.session.wants_turn() {
                        app.offered[d.index()] = 0;
                        break;
                    }
                    let left = fed.consumed < bytes.len();
                    let unknown = fed.again && fed.consumed == 0 && !app.session.proto.is_known();
                    self.consume(tcp, d, fed.consumed as u64);
                    if border {
                        tcp.raw_border();
                    }
                    if app.session.is_off() || unknown || (left && !fed.again && !self.hold(tcp, app, d, end)) {
                        break;
                    }
                }
            }
        }
        again
    }

    /// `n` bytes of a direction are taken; what rules have still to look at of its frames stays.
    fn consume(&self, tcp: &mut TcpSession, d: Direction, n: u64) {
        let frames = &self.lane.shared.frames;
        if frames.watched {
            tcp.keep(d, frames.flow.needed(d));
        }
        tcp.app_consume(d, n);
    }

    /// Where what is left of a direction ends at `end` with a hole that stays one: takes it out of the stream, to go on
    /// behind that. Whether it did.
    fn hold(&mut self, tcp: &mut TcpSession, app: &mut FlowApp, d: Direction, end: u64) -> bool {
        if !tcp.app_gap_at(d, end, self.all) {
            return false;
        }
        let Some(AppData::Data { bytes, .. }) = tcp.app_data(d, self.all) else { return false };
        let held = &mut app.held[d.index()];
        if held.len() + bytes.len() > HELD_MAX {
            *held = Vec::new();
            app.session.fail(&mut self.cx(false));
            return false;
        }
        held.extend_from_slice(bytes);
        let n = bytes.len() as u64;
        self.consume(tcp, d, n);
        true
    }

    /// Hands over what was held of a direction, with `bytes` from behind the hole; what is left of it stays held.
    fn behind(&mut self, app: &mut FlowApp, d: Direction, bytes: &[u8], end: bool) -> bool {
        let mut held = std::mem::take(&mut app.held[d.index()]);
        held.extend_from_slice(bytes);
        let mut again = false;
        for _ in 0..PIECES_MAX {
            let fed = app.session.data(&mut self.cx(end), d, &held);
            held.drain(..fed.consumed.min(held.len()));
            again |= fed.again;
            if app.session.is_off() {
                return again;
            }
            if !fed.again || held.is_empty() || app.session.is_full() {
                break;
            }
        }
        if held.len() > HELD_MAX {
            app.session.fail(&mut self.cx(false));
        } else if !held.is_empty() {
            app.held[d.index()] = held;
        }
        again
    }

    /// Tells the session that a direction is at its end, with what it still holds.
    fn end(&mut self, tcp: &mut TcpSession, app: &mut FlowApp, d: Direction) {
        if app.session.is_ended(d) || app.session.is_off() {
            return;
        }
        self.lane.shared.frames.at = tcp.app_offset(d);
        let left = match tcp.app_data(d, self.all) {
            Some(AppData::Data { offset, bytes }) => {
                if let Some(w) = &mut self.lane.witness {
                    w.app(self.core, d, tcp.first_seq(d), offset, bytes);
                }
                bytes
            }
            _ => &[],
        };
        if app.held[d.index()].is_empty() {
            let fed = app.session.data(&mut self.cx(true), d, left);
            self.consume(tcp, d, fed.consumed as u64);
        } else {
            let n = left.len() as u64;
            self.behind(app, d, left, true);
            self.consume(tcp, d, n);
        }
    }
}

/// Whether a connection is closed, and all that was sent on it was acknowledged: nothing is left for its flow's end.
pub(super) fn is_over(tcp: &TcpSession) -> bool {
    tcp.state() == TcpState::Closed
        && !tcp.may_go_on()
        && !tcp.app_unacknowledged(Direction::ToServer)
        && !tcp.app_unacknowledged(Direction::ToClient)
}

/// Whether a connection was announced on another one.
enum Announced {
    No,
    /// As carrying this, and whether its client is who listens.
    As(Carries, bool),
    /// It was, and what it carries is not known yet.
    Wait,
}

impl Rest {
    /// Whether the receiver of a datagram discards it for its checksum.
    ///
    /// In a capture taken at a sender whose card fills checksums in, all of that sender's are wrong, and its datagrams are
    /// parsed. So one direction of a flow is believed to be such a sender until a right checksum comes: from then on wrong ones
    /// are discarded, and what the parser made of those before is logged and dropped, since a decoy may have led it astray.
    fn is_discarded(&mut self, flow: &mut Flow<FlowExt>, dir: Direction, packet: &Packet<'_>) -> bool {
        if !self.stream.config().checksum_validation {
            return false;
        }
        let wrong = packet.checksum_ok() == Some(false);
        if wrong {
            self.counters.udp_invalid_checksum += 1;
            if self.discards_wrong_datagrams {
                return true;
            }
        }
        let seen = flow.ext.checksums[dir.index()];
        match (seen, wrong) {
            (Checksums::Unseen | Checksums::Wrong, true) => flow.ext.checksums[dir.index()] = Checksums::Wrong,
            (Checksums::Right, true) => return true,
            (Checksums::Right, false) => {}
            (Checksums::Unseen, false) => flow.ext.checksums[dir.index()] = Checksums::Right,
            (Checksums::Wrong, false) => {
                flow.ext.checksums[dir.index()] = Checksums::Right;
                self.restart_app(packet, flow, true);
            }
        }
        false
    }

    /// Feeds the application layer of a UDP flow with a datagram, except one that its receiver discards ([`Rest::is_discarded`]).
    pub(super) fn feed_udp(&mut self, flow: &mut Flow<FlowExt>, dir: Direction, packet: &Packet<'_>) -> Heard {
        let data = packet.payload();
        if data.is_empty() || flow.ext.app.as_ref().is_some_and(|a| a.session.is_off()) {
            return Heard::default();
        }
        if self.is_discarded(flow, dir, packet) {
            return Heard::default();
        }
        let midstream = self.stream.config().midstream;
        let app = flow.ext.app.get_or_insert_with(|| {
            let mut app = Box::<FlowApp>::default();
            if midstream {
                app.session.set_midstream();
            }
            app
        });
        self.app.shared.files.flow = app.files;
        self.app.shared.frames.at = 0;
        self.app.shared.frames.flow = std::mem::take(&mut app.frames);
        let mut feeder = Feeder {
            lane: &mut self.app,
            core: &flow.core,
            time: self.now,
            inline: self.ips,
            all: false,
            midstream: false,
        };
        feeder.lane.shared.wishes = app.wishes;
        app.session.data(&mut feeder.cx(false), dir, data);
        self.app.account_growth(&flow.core, app, self.now);
        app.wishes = self.app.shared.wishes;
        app.frames = std::mem::take(&mut self.app.shared.frames.flow);
        if app.session.wants_turn() {
            return Heard { turn: true, ..Heard::default() };
        }
        Heard {
            events: app.session.take_events(),
            bypass: app.wishes.bypass,
            failed: app.take_failed(),
            ..Heard::default()
        }
    }

    /// Whether a connection that speaks for the first time was announced on another one.
    fn announced(&mut self, flow: &mut Flow<FlowExt>, all: bool) -> Announced {
        let Some(tcp) = flow.ext.tcp.as_deref() else { return Announced::No };
        if flow.ext.app.is_some()
            || self.expected.is_empty()
            || [Direction::ToServer, Direction::ToClient].into_iter().all(|d| tcp.app_data(d, all).is_none())
        {
            return Announced::No;
        }
        match self.expected.ask(&flow.core, self.now) {
            Answer::Carries(carries, parent, reversed) => {
                flow.ext.parent = Some(parent);
                Announced::As(carries, reversed)
            }
            Answer::Later if !all => Announced::Wait,
            Answer::Later | Answer::No => Announced::No,
        }
    }

    /// A flow's stream begins anew: what the application layer made of it so far is logged where it was `said`, and what follows is to
    /// be recognised again.
    pub(super) fn restart_app(&mut self, p: &Packet<'_>, flow: &mut Flow<FlowExt>, said: bool) {
        if let Some(w) = &mut self.app.witness {
            w.app_restart(&flow.core, flow.ext.tcp.as_deref());
        }
        if flow.ext.app.is_some() {
            if said {
                self.log_app(p, flow, true, false);
            } else {
                self.discard_app(flow);
            }
        }
        if let Some(app) = flow.ext.app.take() {
            self.app.counted_elsewhere(&app, true);
        }
    }

    /// Feeds the application layer of a TCP flow with what a packet of direction `dir` made available; with `all` with
    /// all that is left, for this is the flow's end.
    #[inline]
    pub(super) fn feed_tcp(&mut self, flow: &mut Flow<FlowExt>, dir: Direction, all: bool) -> Heard {
        if !all
            && let Some(tcp) = flow.ext.tcp.as_deref()
            && tcp.state() != TcpState::Closed
        {
            if let Some(a) = flow.ext.app.as_deref_mut() {
                // Most packets bring nothing: they only acknowledge, wait to be acknowledged, or are past the stream's depth.
                let idle = |d: Direction| (!tcp.depth_reached(d) || a.session.is_truncated(d)) && a.has_all(tcp, d);
                if a.session.is_off() {
                    return Heard::default();
                }
                if !a.session.is_full() && DIRECTIONS.into_iter().all(idle) {
                    return Heard {
                        events: std::mem::take(&mut a.events) | a.session.take_events(),
                        bypass: a.wishes.bypass,
                        ..Heard::default()
                    };
                }
            } else if DIRECTIONS.into_iter().all(|d| tcp.app_data(d, false).is_none()) {
                return Heard::default();
            }
        }
        self.feed_tcp_data(flow, dir, all)
    }

    fn feed_tcp_data(&mut self, flow: &mut Flow<FlowExt>, dir: Direction, all: bool) -> Heard {
        let announced = match self.announced(flow, all) {
            Announced::Wait => return Heard::default(),
            Announced::No => None,
            Announced::As(carries, reversed) => Some((carries, reversed)),
        };
        let Some(tcp) = flow.ext.tcp.as_deref_mut() else { return Heard::default() };
        // Behind a reset nothing is looked at that waits for something before it: nobody will say that it arrived.
        let reset = all && tcp.may_go_on();
        let ended = [dir.reverse(), dir].map(|d| (d, reset && !tcp.app_unacknowledged(d)));
        if all || tcp.state() == TcpState::Closed && !tcp.may_go_on() {
            tcp.finish_streams();
        }
        let app = &mut flow.ext.app;
        if app.as_ref().is_some_and(|a| a.session.is_off()) {
            return Heard::default();
        }
        self.app.shared.files.flow = app.as_ref().map(|a| a.files).unwrap_or_default();
        self.app.shared.frames.flow = app.as_mut().map(|a| std::mem::take(&mut a.frames)).unwrap_or_default();
        self.app.shared.wishes = app.as_ref().map(|a| a.wishes).unwrap_or_default();
        let midstream = tcp.is_midstream();
        let changes = app.as_ref().map_or(0, |a| a.session.changes());
        let mut feeder =
            Feeder { lane: &mut self.app, core: &flow.core, time: self.now, inline: self.ips, all, midstream };
        if let Some((carries, reversed)) = announced {
            let app = feeder.session(app);
            app.session.begin(&mut feeder.cx(false), carries, reversed);
        }
        // What the packet acknowledges was sent before it.
        let order = [dir.reverse(), dir];
        if let Some(app) = app.as_deref_mut()
            && app.session.take_full()
        {
            // A parser may have kept bytes of its own that wait for room.
            for d in order {
                app.session.data(&mut feeder.cx(false), d, &[]);
            }
        }
        if let Some(app) = app.as_deref_mut() {
            for (d, _) in ended.into_iter().filter(|(_, ended)| *ended) {
                feeder.all = false;
                feeder.end(tcp, app, d);
                feeder.all = all;
            }
        }
        for _ in 0..2 {
            let mut again = false;
            for d in order {
                again |= feeder.side(tcp, app, d);
                if app.as_ref().is_some_and(|a| a.session.wants_turn()) {
                    return Heard { turn: true, ..Heard::default() };
                }
            }
            if !again {
                break;
            }
        }
        let Some(app) = app.as_deref_mut() else { return Heard::default() };
        for d in order {
            // Rules that look for bytes of a message should not wait for more than that.
            if app.completed(d) | std::mem::take(&mut feeder.lane.shared.whole[d.index()]) {
                tcp.raw_trigger(d);
            }
        }
        for d in order {
            // What was acknowledged before is taken; what was not will never be.
            if tcp.depth_reached(d) {
                app.session.truncate(&mut feeder.cx(false), d);
            }
        }
        if all || tcp.state() == TcpState::Closed && !tcp.may_go_on() {
            for d in order {
                // What nobody acknowledged before a reset is looked at when the flow ends.
                if all || !tcp.app_unacknowledged(d) {
                    feeder.end(tcp, app, d);
                }
            }
        }
        self.app.account_growth(&flow.core, app, self.now);
        if app.session.is_off() {
            tcp.app_disable();
            if let Some(w) = &mut self.app.witness {
                w.app_off(&flow.core);
            }
        }
        app.frames = std::mem::take(&mut self.app.shared.frames.flow);
        if !self.app.shared.expected.is_empty() {
            let of_interface = self.captured.as_mut().and_then(|c| c.announce.as_mut());
            if let Some(announce) = of_interface.or(self.announce.as_mut()) {
                announce(&self.app.shared.expected, flow.core.vlans, self.now);
            }
            self.expected.note(&mut self.app.shared.expected, flow.core.vlans, self.now);
        }
        let wishes = self.app.shared.wishes;
        if let Some(depth) = wishes.stream_depth
            && app.wishes.stream_depth != wishes.stream_depth
        {
            tcp.set_depth(depth);
        }
        if wishes.no_payload && !app.wishes.no_payload {
            // The rest of the clear text is due with this packet.
            tcp.raw_trigger(dir);
        }
        app.wishes = wishes;
        self.stream.account(tcp);
        app.events |= app.session.take_events();
        Heard {
            events: std::mem::take(&mut app.events),
            bypass: wishes.bypass,
            failed: app.take_failed(),
            full: app.session.is_full(),
            changing: app.session.changes() != changes && app.session.is_changing(),
            ..Heard::default()
        }
    }

    /// Logs the events of recognition that came with a packet.
    #[inline]
    pub(super) fn log_recognition(&mut self, p: &Packet<'_>, flow: &Flow<FlowExt>, events: u8) {
        if events != 0 && self.outputs.wants(EventType::Anomaly) {
            self.log_session_events(p, flow, events);
        }
    }

    #[cold]
    fn log_session_events(&mut self, p: &Packet<'_>, flow: &Flow<FlowExt>, events: u8) {
        let held = match &self.detect {
            Some((detect, _)) => HeldVars::of(detect, Some(&flow.core), None),
            None => HeldVars::default(),
        };
        let header = Header {
            flow_id: Some(flow.core.id),
            parent_id: flow.ext.parent,
            pcap_filename: self.file.as_deref(),
            vars: held.vars(),
            ..Header::of(p)
        };
        let proto = flow.ext.app.as_ref().and_then(|a| a.names().proto);
        for e in SessionEvent::ALL.iter().filter(|e| events & e.bit() != 0) {
            self.outputs.anomaly(&AnomalyEvent {
                header,
                anomaly: Anomaly::AppLayer {
                    event: &e.name().to_ascii_uppercase(),
                    app_proto: proto.unwrap_or("unknown"),
                    layer: "proto_detect",
                },
                tx_id: None,
                packet: Some(p),
            });
        }
    }

    /// Logs what transactions of a flow have come to, and frees those that nobody needs any more; at the flow's `end` all.
    /// `inspected` says whether rules looked at `p`: only then the variables that they last captured are those of `p`.
    #[inline]
    pub(super) fn log_app(&mut self, p: &Packet<'_>, flow: &mut Flow<FlowExt>, end: bool, inspected: bool) {
        let passed = flow.core.action.is_unwatched(self.ips);
        let Some(app) = flow.ext.app.as_deref_mut() else { return };
        let detects = self.detect.is_some() && !passed;
        // Nothing more will come that its files could be logged with.
        let over = end || flow.ext.tcp.as_deref().is_some_and(is_over);
        if over != std::mem::replace(&mut app.over, over) {
            app.session.wake();
        }
        if !app.session.take_stirred() && app.quiet == Some(detects) && !over {
            return;
        }
        app.quiet = None;
        if app.session.has_txs() {
            self.log_txs(p, flow, (end, over), (detects, inspected));
        }
    }

    /// As [`Rest::log_app`], where some may have changed.
    fn log_txs(
        &mut self,
        p: &Packet<'_>,
        flow: &mut Flow<FlowExt>,
        (end, over): (bool, bool),
        (detects, inspected): (bool, bool),
    ) {
        let closed = end || (over && flow.ext.tcp.as_deref().is_some_and(|t| !t.was_reset()));
        let Some(app) = flow.ext.app.as_deref_mut() else { return };
        let (mut storing, mut freed) = (false, false);
        // What is stored is seen to with every packet.
        let mut quiet = self.app.config.files.store.is_none() && self.app.shared.certificates.dir.is_none();
        let (core, parent, protocols) = (&flow.core, flow.ext.parent, scripts::protocols(app));
        // Most packets come without anything to log.
        let shown = app.shown();
        // Without data of what follows, the packet itself is what it is logged with.
        let flushed = app.session.is_changing() && !end && !p.payload().is_empty();
        let about = || About { core, parent, packet: p, inspected, flushed, names: names(shown), protocols };
        for parser in app.session.parsers_mut() {
            let Some(protocol) = protocol(parser.proto()) else { continue };
            let complete = protocol.complete();
            let mut from = 0;
            while let Some(id) = if end { parser.next_tx(from) } else { parser.next_awake(from) } {
                from = id + 1;
                let Some(tx) = parser.tx_mut(id) else { continue };
                let base = tx.base();
                let whole = base.progress[0] >= complete[0] && base.progress[1] >= complete[1];
                let inspected = !detects || base.detect.iter().all(|d| d.done);
                let mut free = end || (whole && inspected);
                if !base.files.is_empty() {
                    storing |= base.files.is_storing();
                    let open = DIRECTIONS.iter().any(|d| base.files.is_open(*d));
                    self.log_tx_files(&about, (core, p), tx, over || (free && open));
                    // Files are logged with a packet of their direction.
                    let due = tx.base().files.due_for_log().next().is_some();
                    free &= !due;
                    quiet &= !due;
                }
                let base = tx.base();
                let certificates = base.store_certificates != [false; 2];
                // Behind both FINs nothing comes that an incomplete one waits for. After a reset it is logged at the flow's end.
                let logs = !base.logged && (closed || tx.is_loggable(whole));
                if base.events.has_new() {
                    self.log_tx_events(&about(), protocol, tx);
                }
                if certificates {
                    let occasion = Occasion {
                        flow: core,
                        time: p.time,
                        number: Some(p.number).filter(|n| *n > 0 && self.file.is_some()),
                    };
                    for dir in DIRECTIONS {
                        if std::mem::take(&mut tx.base_mut().store_certificates[dir.index()]) {
                            tx.store_certificates(dir, &mut self.app.shared.certificates, &occasion);
                        }
                    }
                }
                if logs {
                    self.log_tx(&about(), protocol, tx);
                }
                if free {
                    parser.free_tx(&mut self.app.shared, id);
                    freed = true;
                } else if quiet && is_at_rest(tx.base(), detects) {
                    parser.rest_tx(id);
                }
            }
        }
        // A parser that is gone is not counted any more.
        if app.session.tidy() || freed {
            self.app.account(app);
        }
        app.quiet = quiet.then_some(detects);
        if storing && let Some(tcp) = flow.ext.tcp.as_deref_mut() {
            let depth = self.app.config.files.store_depth();
            // What the parser wished for holds where it is more.
            let deepest =
                app.wishes.stream_depth.map_or(depth, |w| if w == 0 || depth == 0 { 0 } else { w.max(depth) });
            tcp.set_depth(deepest);
        }
    }

    /// Frees what is left of the transactions of a flow that is over, without a word in the log.
    pub(super) fn discard_app(&mut self, flow: &mut Flow<FlowExt>) {
        let Some(app) = flow.ext.app.as_deref_mut() else { return };
        for parser in app.session.parsers_mut() {
            let mut from = 0;
            while let Some(id) = parser.next_tx(from) {
                from = id + 1;
                if let Some(tx) = parser.tx_mut(id) {
                    tx.base_mut().files.finish(&mut self.app.shared.files, &self.app.config.files);
                    parser.free_tx(&mut self.app.shared, id);
                }
            }
        }
    }

    /// Logs what a transaction's files have come to; what goes for the packet's direction only, unless it is `free`d.
    fn log_tx_files<'a>(
        &mut self,
        about: &impl Fn() -> About<'a>,
        (core, p): (&FlowCore, &Packet<'_>),
        tx: &mut dyn Transaction,
        free: bool,
    ) {
        let of_client = p.src == core.src && p.sport == core.sport;
        let way = if of_client { Direction::ToServer } else { Direction::ToClient };
        let only = (!free).then_some(way);
        if !self.app.files_due(tx, only) {
            return;
        }
        let about = about();
        let vars = about.vars(self.detect.as_ref());
        let header = about.header(&vars, self.file.as_deref());
        let scripts = (&mut self.scripts, self.detect.as_ref().map(|d| &*d.0), about.scene());
        self.app.log_files(&mut self.outputs, &header, about.names.proto, tx, only, scripts);
    }

    /// Logs the events of a transaction that are new.
    fn log_tx_events(&mut self, about: &About<'_>, protocol: &Protocol, tx: &mut dyn Transaction) {
        if !self.outputs.wants(EventType::Anomaly) {
            return;
        }
        // Anomalies have the addresses of the packet that they came up with.
        let vars = about.vars(self.detect.as_ref());
        let header = about.header(&vars, self.file.as_deref());
        let header = Header { addresses: Header::of(about.packet).addresses, ..header };
        let base = tx.base_mut();
        let id = base.id;
        for n in base.events.take_new() {
            let name = protocol.events.get(usize::from(*n)).copied().unwrap_or_default();
            self.outputs.anomaly(&AnomalyEvent {
                header,
                anomaly: Anomaly::AppLayer {
                    event: &protocol.anomaly_name(name),
                    app_proto: about.names.proto.unwrap_or_default(),
                    layer: "proto_parser",
                },
                tx_id: Some(id),
                packet: Some(about.packet),
            });
        }
    }

    /// Logs and counts a transaction.
    fn log_tx(&mut self, about: &About<'_>, protocol: &Protocol, tx: &mut dyn Transaction) {
        tx.base_mut().logged = true;
        let tx = &*tx;
        let [tcp, udp] = &mut self.app.shared.counters.txs;
        let txs = if about.core.proto == 17 { udp } else { tcp };
        if tx.is_counted()
            && let Some(n) = txs.get_mut(protocol.proto as usize)
        {
            *n += 1;
        }
        if self.scripts.any() && !tx.base().no_log {
            self.scripts.tx(self.detect.as_ref().map(|d| &*d.0), about.scene(), tx);
        }
        if let Some(kind) = protocol.log {
            self.log_as(about, kind, Some(protocol), tx, tx);
        }
        if let Some((kind, carried)) = tx.carried() {
            self.log_as(about, kind, None, tx, carried);
        }
    }

    /// Logs what `of` has, a transaction or what it carries, as an event of the protocol `kind`; `protocol` is that of a transaction.
    fn log_as(
        &mut self,
        about: &About<'_>,
        kind: AppProto,
        protocol: Option<&Protocol>,
        tx: &dyn Transaction,
        of: &dyn Transaction,
    ) {
        let kind = EventType::App(kind);
        if tx.base().no_log || !self.outputs.wants(kind) {
            return;
        }
        let options = &self.app.options;
        let vars = about.vars(self.detect.as_ref());
        let header = about.header(&vars, self.file.as_deref());
        for way in [Direction::ToServer, Direction::ToClient] {
            if options.iter().all(|o| of.direction(o) != way) {
                continue;
            }
            let addresses = if protocol.is_some_and(|p| p.packet_addresses) {
                Header::of(about.packet).addresses
            } else {
                header.addresses.map(|a| if way == Direction::ToClient { a.reversed() } else { a })
            };
            self.outputs.app(&AppEvent {
                kind,
                header: Header { addresses, ..header },
                tx_id: protocol.is_some_and(|p| p.shows_tx).then_some((tx.base().id, false)),
                direction: None,
                xff: Some(Forwarded {
                    direction: match way {
                        Direction::ToServer => event::Direction::ToServer,
                        Direction::ToClient => event::Direction::ToClient,
                    },
                    find: &|header, forward| tx.forwarded_for(header, forward),
                }),
                records: &|n| options.get(n).filter(|o| of.direction(o) == way).map_or(0, |o| of.records(o)),
                fields: &|json, n, record| {
                    if let Some(o) = options.get(n) {
                        of.log_record(record, json, o);
                    }
                },
            });
        }
    }
}

/// Whether nothing is to be done with a transaction until its parser changes it: rules have looked at what is new, if they look
/// at the flow at all, and no file of it waits.
fn is_at_rest(base: &TxBase, detects: bool) -> bool {
    let looked = |d: Direction| !detects || !base.updated[d.index()] || base.detect[d.index()].done;
    DIRECTIONS.into_iter().all(looked) && base.files.due_for_log().next().is_none()
}

/// What the events of a flow's transactions that come with one packet have in common.
struct About<'a> {
    core: &'a FlowCore,
    parent: Option<u64>,
    packet: &'a Packet<'a>,
    /// Rules looked at the packet.
    inspected: bool,
    /// The flow changes its protocol: what it has is logged before, as if with a packet of its own.
    flushed: bool,
    names: AppProtos<'static>,
    /// The same, for scripts.
    protocols: margay_detect::checks::AppProtos,
}

impl About<'_> {
    /// What scripts see besides the transaction.
    fn scene(&self) -> Scene<'_> {
        Scene { packet: Some(self.packet), flow: Some(self.core), app: self.protocols }
    }

    /// Variables that rules captured.
    fn vars<'s>(&'s self, detect: Option<&'s Engine>) -> HeldVars<'s> {
        match detect {
            Some((detect, state)) => {
                let of_packet = self.inspected.then(|| state.packet_vars());
                HeldVars::of(detect, Some(self.core), of_packet)
            }
            None => HeldVars::default(),
        }
    }

    /// The header of an event of a transaction: with the addresses of the flow.
    fn header<'s>(&'s self, vars: &'s HeldVars<'_>, file: Option<&'s str>) -> Header<'s> {
        let header = Header {
            flow_id: Some(self.core.id),
            parent_id: self.parent,
            pcap_filename: file,
            vars: vars.vars(),
            addresses: Some(addresses(self.core)),
            ..Header::of(self.packet)
        };
        if self.flushed { header.flushed() } else { header }
    }
}
