//! Feeds a flow's application layer with reassembled stream data, or with a datagram.

use margay_app::expect::Carries;
use margay_app::session::ParserError;
use margay_app::{AppSession, Parse, protocol};
use margay_flow::{Direction, Flow, FlowCore};
use margay_packet::{Packet, Time};
use margay_stream::{AppData, TcpSession, TcpState};

use super::app::{AppResult, AppStage, Checksums, DIRECTIONS, FlowApp};
use super::expect::Answer;
use super::{FlowExt, Stages};

/// Limit of the chunks (stretches between gaps) that one packet delivers in one direction.
const PIECES_MAX: usize = 1024;

/// Limit of the bytes before a gap that wait for the data after it. Lines are shorter.
const HELD_MAX: usize = 128 << 10;

struct Feeder<'a> {
    stage: &'a mut AppStage,
    core: &'a FlowCore,
    time: Time,
    inline: bool,
    all: bool,
    midstream: bool,
}

impl Feeder<'_> {
    fn cx(&mut self, end: bool) -> Parse<'_> {
        Parse {
            config: &self.stage.config,
            shared: &mut self.stage.shared,
            flow: self.core,
            time: self.time,
            end,
            inline: self.inline,
        }
    }

    fn session<'s>(&self, tcp: &TcpSession, app: &'s mut Option<Box<FlowApp>>) -> &'s mut FlowApp {
        app.get_or_insert_with(|| {
            let mut app = Box::<FlowApp>::default();
            app.session.set_opened_by(tcp.opened_by());
            if self.midstream {
                app.session.set_midstream();
            }
            app
        })
    }

    /// Feeds the data of one direction. Returns whether the other direction should be offered its data again.
    fn side(&mut self, tcp: &mut TcpSession, app: &mut Option<Box<FlowApp>>, d: Direction) -> bool {
        let mut again = false;
        for _ in 0..PIECES_MAX {
            match tcp.app_data(d, self.all) {
                None => break,
                Some(AppData::Gap(n)) => {
                    if let Some(w) = &mut self.stage.witness {
                        w.app_gap(self.core, d, tcp.first_seq(d), tcp.app_offset(d), n);
                    }
                    self.stage.shared.frames.at = tcp.app_offset(d);
                    tcp.app_notice_gap(d, n);
                    let app = self.session(tcp, app);
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
                    if let Some(w) = &mut self.stage.witness {
                        w.app(self.core, d, tcp.first_seq(d), offset, bytes);
                    }
                    let app = self.session(tcp, app);
                    let end = offset + bytes.len() as u64;
                    self.stage.shared.frames.at = offset.saturating_sub(app.held[d.index()].len() as u64);
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
                    let border = is_border(&app.session, changes);
                    if app.session.is_full() {
                        // This direction's remaining data is offered again once there is room.
                        app.offered[d.index()] = 0;
                        self.consume(tcp, d, fed.consumed as u64);
                        if border {
                            tcp.raw_border();
                        }
                        break;
                    }
                    let waited = if fed.waiting_first { app.offered[d.reverse().index()] } else { 0 };
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
                    if waited > 0 && !self.waiting(tcp, app, d.reverse(), waited) {
                        break;
                    }
                }
            }
        }
        again
    }

    /// Feeds the data of a direction that waited, up to the stream offset `end`, once the other direction's data allows it.
    /// Returns whether the other direction's rest can follow at once.
    #[cold]
    fn waiting(&mut self, tcp: &mut TcpSession, app: &mut FlowApp, d: Direction, end: u64) -> bool {
        for _ in 0..PIECES_MAX {
            if !app.held[d.index()].is_empty() {
                break;
            }
            let Some(AppData::Data { offset, bytes }) = tcp.app_data(d, self.all) else { break };
            let len = usize::try_from(end.saturating_sub(offset)).unwrap_or(usize::MAX).min(bytes.len());
            let Some(bytes) = bytes.get(..len).filter(|b| !b.is_empty()) else { break };
            self.stage.shared.frames.at = offset;
            let changes = app.session.changes();
            let fed = app.session.data(&mut self.cx(false), d, bytes);
            self.consume(tcp, d, fed.consumed as u64);
            if is_border(&app.session, changes) {
                tcp.raw_border();
            }
            if app.session.is_off() || app.session.is_full() || app.session.wants_turn() {
                return false;
            }
            if !fed.again || fed.consumed == 0 {
                app.offered[d.index()] = if fed.again { 0 } else { offset + len as u64 };
                break;
            }
        }
        true
    }

    /// Consumes `n` bytes of a direction. Bytes of frames that rules have not inspected yet stay in the stream.
    fn consume(&self, tcp: &mut TcpSession, d: Direction, n: u64) {
        let frames = &self.stage.shared.frames;
        if !frames.inspected.is_empty() {
            tcp.keep(d, frames.flow.needed(d));
        }
        tcp.app_consume(d, n);
    }

    /// If a direction's data ends at `end` with a permanent gap, takes that data out of the stream so that parsing can
    /// continue after the gap. Returns whether it did.
    fn hold(&mut self, tcp: &mut TcpSession, app: &mut FlowApp, d: Direction, end: u64) -> bool {
        if !tcp.app_gap_at(d, end, self.all) {
            return false;
        }
        let Some(AppData::Data { bytes, .. }) = tcp.app_data(d, self.all) else { return false };
        let held = &mut app.held[d.index()];
        if held.len() + bytes.len() > HELD_MAX {
            *held = Vec::new();
            app.session.fail(&mut self.cx(false), ParserError::Internal);
            return false;
        }
        held.extend_from_slice(bytes);
        let n = bytes.len() as u64;
        self.consume(tcp, d, n);
        true
    }

    /// Feeds the data held before a gap, followed by `bytes` from after the gap. The parser's remainder stays held.
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
            // The parser still has to see the end, though it asked for the other direction's data.
            let ended = !end || app.session.is_ended(d);
            if !fed.again || held.is_empty() && ended || app.session.is_full() {
                break;
            }
        }
        if held.len() > HELD_MAX {
            app.session.fail(&mut self.cx(false), ParserError::Internal);
        } else if !held.is_empty() {
            app.held[d.index()] = held;
        }
        again
    }

    /// Signals the end of a direction to the session, with the remaining data.
    fn end(&mut self, tcp: &mut TcpSession, app: &mut FlowApp, d: Direction) {
        if app.session.is_ended(d) || app.session.is_off() {
            return;
        }
        for _ in 0..PIECES_MAX {
            self.stage.shared.frames.at = tcp.app_offset(d);
            let left = match tcp.app_data(d, self.all) {
                Some(AppData::Data { offset, bytes }) => {
                    if let Some(w) = &mut self.stage.witness {
                        w.app(self.core, d, tcp.first_seq(d), offset, bytes);
                    }
                    bytes
                }
                _ => &[],
            };
            if !app.held[d.index()].is_empty() {
                let n = left.len() as u64;
                self.behind(app, d, left, true);
                return self.consume(tcp, d, n);
            }
            let fed = app.session.data(&mut self.cx(true), d, left);
            self.consume(tcp, d, fed.consumed as u64);
            // The parser has not seen the end yet if the other direction's waiting data comes first.
            if !fed.waiting_first || app.session.is_ended(d) || app.session.is_off() {
                return;
            }
            let waited = app.offered[d.reverse().index()];
            self.waiting(tcp, app, d.reverse(), waited);
        }
    }
}

/// Whether the protocol changed since there were `changes`, and rules on the stream inspect its data separately.
fn is_border(session: &AppSession, changes: u32) -> bool {
    session.changes() != changes && protocol(session.before()).is_none_or(|p| !p.outlives_tls)
}

/// Whether the protocol just changed, and the data before the change is inspected separately.
#[cold]
fn changes_apart(session: &AppSession) -> bool {
    session.is_changing() && protocol(session.before()).is_some_and(|p| p.changes_apart)
}

/// Whether a connection is closed and all its data was acknowledged: the end of its flow brings no more data.
pub(super) fn is_over(tcp: &TcpSession) -> bool {
    tcp.state() == TcpState::Closed
        && !tcp.may_go_on()
        && !tcp.app_unacknowledged(Direction::ToServer)
        && !tcp.app_unacknowledged(Direction::ToClient)
}

/// Whether another connection's parser expects this connection.
enum Announced {
    No,
    /// The connection is expected to carry this protocol. The flag says whether its client is the listening side.
    As(Carries, bool),
    /// It is expected, but its protocol is not known yet.
    Wait,
}

impl Stages {
    /// Whether the receiver of a datagram discards it because of its checksum.
    ///
    /// If a capture is taken at a sender whose network card computes checksums, all checksums of that sender are wrong. Its
    /// datagrams are parsed. One direction of a flow is assumed to be such a sender until a correct checksum arrives. From
    /// then on wrong checksums lead to a discard. The parser's earlier results are logged and dropped, because a decoy may
    /// have misled the parser.
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

    /// Feeds the application layer of a UDP flow with a datagram, unless its receiver discards it ([`Stages::is_discarded`]).
    pub(super) fn feed_udp(&mut self, flow: &mut Flow<FlowExt>, dir: Direction, packet: &Packet<'_>) -> AppResult {
        let data = packet.payload();
        if data.is_empty() || flow.ext.app.as_ref().is_some_and(|a| a.session.is_off()) {
            return AppResult::default();
        }
        if self.is_discarded(flow, dir, packet) {
            return AppResult::default();
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
            stage: &mut self.app,
            core: &flow.core,
            time: self.now,
            inline: self.ips,
            all: false,
            midstream: false,
        };
        feeder.stage.shared.wishes = app.wishes;
        app.session.data(&mut feeder.cx(false), dir, data);
        self.app.account_growth(&flow.core, app, self.now);
        app.wishes = self.app.shared.wishes;
        app.frames = std::mem::take(&mut self.app.shared.frames.flow);
        if app.session.wants_turn() {
            return AppResult { turn: true, ..AppResult::default() };
        }
        AppResult {
            events: app.session.take_events(),
            bypass: app.wishes.bypass,
            failed: app.take_failed(),
            ..AppResult::default()
        }
    }

    /// Whether another connection's parser expects this connection, which carries data for the first time.
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

    /// Drops the application layer of a flow whose stream restarts, so protocol detection starts again. Transactions parsed
    /// so far are logged if `log` is true.
    pub(super) fn restart_app(&mut self, p: &Packet<'_>, flow: &mut Flow<FlowExt>, log: bool) {
        if let Some(w) = &mut self.app.witness {
            w.app_restart(&flow.core, flow.ext.tcp.as_deref());
        }
        if flow.ext.app.is_some() {
            if log {
                self.log_app(p, flow, true, false);
            } else {
                self.discard_app(flow);
            }
        }
        if let Some(app) = flow.ext.app.take() {
            self.app.counted_elsewhere(&app, true);
        }
    }

    /// Feeds the application layer of a TCP flow with the data that a packet of direction `dir` made available. With `all`,
    /// at the end of the flow, it feeds all remaining data.
    #[inline]
    pub(super) fn feed_tcp(&mut self, flow: &mut Flow<FlowExt>, dir: Direction, all: bool) -> AppResult {
        if !all
            && let Some(tcp) = flow.ext.tcp.as_deref()
            && tcp.state() != TcpState::Closed
        {
            if let Some(a) = flow.ext.app.as_deref_mut() {
                // Most packets bring no data: they only acknowledge, wait for an acknowledgment, or exceed the stream depth.
                let idle = |d: Direction| (!tcp.depth_reached(d) || a.session.is_truncated(d)) && a.has_all(tcp, d);
                if a.session.is_off() {
                    return AppResult::default();
                }
                if !a.session.is_full() && DIRECTIONS.into_iter().all(idle) {
                    return AppResult {
                        events: std::mem::take(&mut a.events) | a.session.take_events(),
                        bypass: a.wishes.bypass,
                        ..AppResult::default()
                    };
                }
            } else if DIRECTIONS.into_iter().all(|d| tcp.app_data(d, false).is_none()) {
                return AppResult::default();
            }
        }
        self.feed_tcp_data(flow, dir, all)
    }

    fn feed_tcp_data(&mut self, flow: &mut Flow<FlowExt>, dir: Direction, all: bool) -> AppResult {
        let announced = match self.announced(flow, all) {
            Announced::Wait => return AppResult::default(),
            Announced::No => None,
            Announced::As(carries, reversed) => Some((carries, reversed)),
        };
        let Some(tcp) = flow.ext.tcp.as_deref_mut() else { return AppResult::default() };
        // After a reset, data after a gap is not parsed: nothing will acknowledge it.
        let reset = all && tcp.may_go_on();
        let ended = [dir.reverse(), dir].map(|d| (d, reset && !tcp.app_unacknowledged(d)));
        if all || tcp.state() == TcpState::Closed && !tcp.may_go_on() {
            tcp.finish_streams();
        }
        let app = &mut flow.ext.app;
        if app.as_ref().is_some_and(|a| a.session.is_off()) {
            return AppResult::default();
        }
        self.app.shared.files.flow = app.as_ref().map(|a| a.files).unwrap_or_default();
        self.app.shared.frames.flow = app.as_mut().map(|a| std::mem::take(&mut a.frames)).unwrap_or_default();
        self.app.shared.wishes = app.as_ref().map(|a| a.wishes).unwrap_or_default();
        let midstream = tcp.is_midstream();
        let changes = app.as_ref().map_or(0, |a| a.session.changes());
        let mut feeder =
            Feeder { stage: &mut self.app, core: &flow.core, time: self.now, inline: self.ips, all, midstream };
        if let Some((carries, reversed)) = announced {
            let app = feeder.session(tcp, app);
            app.session.begin(&mut feeder.cx(false), carries, reversed);
        }
        // The data that the packet acknowledges was sent before the packet's own data.
        let order = [dir.reverse(), dir];
        if let Some(app) = app.as_deref_mut()
            && app.session.take_full()
        {
            // The parser may have buffered bytes itself while it had no room.
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
                    return AppResult { turn: true, ..AppResult::default() };
                }
            }
            if !again {
                break;
            }
        }
        let Some(app) = app.as_deref_mut() else { return AppResult::default() };
        for d in order {
            // Rules on the bytes of a message need not wait for more data than the message.
            if app.completed(d) | std::mem::take(&mut feeder.stage.shared.whole[d.index()]) {
                tcp.raw_trigger(d);
            }
        }
        for d in order {
            // The parser was offered all acknowledged data. The rest of this direction is not parsed, even if it lies below the
            // depth and only its acknowledgment is missing: Suricata ends files there too (case filestore-v2.7-stream-depth).
            if tcp.depth_reached(d) {
                app.session.truncate(&mut feeder.cx(false), d);
            }
        }
        if all || tcp.state() == TcpState::Closed && !tcp.may_go_on() {
            for d in order {
                // Data that was not acknowledged before a reset is parsed when the flow ends.
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
            // The rest of the cleartext is due with this packet.
            tcp.raw_trigger(dir);
        }
        app.wishes = wishes;
        self.stream.account(tcp);
        app.events |= app.session.take_events();
        AppResult {
            events: std::mem::take(&mut app.events),
            bypass: wishes.bypass,
            failed: app.take_failed(),
            full: app.session.is_full(),
            changing: app.session.changes() != changes && changes_apart(&app.session),
            ..AppResult::default()
        }
    }
}
