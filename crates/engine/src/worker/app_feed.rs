//! Feeds a flow's application layer with what its stream has in order, or with a datagram.

use margay_app::expect::Carries;
use margay_app::{AppProto, Parse};
use margay_flow::{Direction, Flow, FlowCore};
use margay_packet::{Packet, Time};
use margay_stream::{AppData, TcpSession, TcpState};

use super::app::{AppLane, Checksums, DIRECTIONS, FlowApp, Heard};
use super::expect::Answer;
use super::{FlowExt, Rest};

/// Most pieces that one packet hands over in one direction: stretches between holes.
const PIECES_MAX: usize = 1024;

/// Most bytes before a hole that wait for what is behind it: lines are shorter.
const HELD_MAX: usize = 128 << 10;

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
        app.wishes = wishes;
        self.stream.account(tcp);
        app.events |= app.session.take_events();
        Heard {
            events: std::mem::take(&mut app.events),
            bypass: wishes.bypass,
            failed: app.take_failed(),
            full: app.session.is_full(),
            ..Heard::default()
        }
    }
}
