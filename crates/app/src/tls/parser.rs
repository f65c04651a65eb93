//! The records of both directions, and their messages.

use std::ops::Range;

use margay_flow::Direction;

use crate::parser::{Outcome, Parse, Parsed, Parser, Shared};
use crate::proto::AppProto;
use crate::tx::Transaction;

use super::events::Event;
use super::handshake::{self, HEAD_LEN as HEAD_MESSAGE};
use super::record::{HEAD_LEN, Head, RECORD_MAX, kind};
use super::sslv2;
use super::tx::{TlsTx, state};
use super::version::Version;
use super::{
    ALERT_FRAME, CLIENT_CERT, CLIENT_FINISHED, CLIENT_HANDSHAKE, CLIENT_HELLO, DATA_FRAME, HEADER_FRAME,
    HEARTBEAT_FRAME, PDU_FRAME, SERVER_CERT, SERVER_FINISHED, SERVER_HANDSHAKE, SERVER_HELLO, SSLV2_HEADER_FRAME,
    SSLV2_PDU_FRAME,
};
use crate::config::tls::{Config, Encryption};

/// The limit for reassembling a handshake message. A longer one is skipped, with an event.
const MESSAGE_MAX: usize = 128 << 10;
/// The limit of consecutive empty records, as in OpenSSL.
const EMPTY_MAX: u8 = 32;

/// The parser's state for one direction.
#[derive(Debug, Default)]
struct DirectionState {
    /// The frames of the record at the front of the input have begun.
    marked: bool,
    /// Bytes of the current record that are skipped and still to come.
    skip: usize,
    /// A message that continues in the next record.
    message: Vec<u8>,
    /// Bytes of an oversized message that are still to come.
    over: usize,
    /// The rest of this direction is encrypted.
    encrypted: bool,
    /// A ChangeCipherSpec announced the encryption, in a version that has it.
    changed: bool,
    /// A record of SSL 3.0 or TLS was seen.
    tls: bool,
    /// The rest is records of SSL 2.0, whose content is not inspected.
    ssl2: bool,
    /// Consecutive empty records.
    empty: u8,
    /// Length of the last encrypted heartbeat.
    heartbeat: Option<usize>,
    /// The last record was an encrypted alert, which ends a session.
    alerted: bool,
    /// Bytes of an incomplete record, which come again with the rest.
    waiting: usize,
}

/// The result of a parsing step.
enum Step {
    /// This many bytes were consumed; continue.
    Used(usize),
    /// More data is needed.
    More,
    /// This many bytes were consumed, and the parser stops.
    Stop(usize, Outcome),
}

/// A flow's TLS parser.
#[derive(Debug)]
pub(super) struct TlsParser {
    tx: Option<Box<TlsTx>>,
    lanes: [DirectionState; 2],
}

impl TlsParser {
    pub(super) fn new(config: &Config) -> Self {
        let mut tx = Box::<TlsTx>::default();
        tx.client.ja3_wanted = config.ja3;
        tx.server.ja3_wanted = config.ja3;
        tx.ja4 = config.ja4;
        // Rules have data to inspect before the hello is complete.
        tx.base.touch(Direction::ToServer);
        TlsParser { tx: Some(tx), lanes: Default::default() }
    }

    const fn lane(&mut self, dir: Direction) -> &mut DirectionState {
        let [client, server] = &mut self.lanes;
        match dir {
            Direction::ToServer => client,
            Direction::ToClient => server,
        }
    }

    fn event(&mut self, dir: Direction, event: Event) {
        if let Some(tx) = &mut self.tx {
            tx.event(dir, event);
        }
    }

    /// Gives up, with an event.
    fn fail(&mut self, dir: Direction, event: Event) -> Step {
        self.event(dir, event);
        Step::Stop(0, Outcome::Failed)
    }

    /// Parses one record, or the available part of one. `at` is its offset in the parser's input.
    fn step(&mut self, cx: &mut Parse<'_>, dir: Direction, data: &[u8], at: usize) -> Step {
        let lane = self.lane(dir);
        if lane.skip > 0 {
            let n = lane.skip.min(data.len());
            if n == 0 {
                return Step::More;
            }
            lane.skip -= n;
            if lane.skip == 0 {
                end_frames(cx, dir, at + n);
            }
            return Step::Used(n);
        }
        let Some(&first) = data.first() else { return Step::More };
        // A TLS record begins with its type, which has neither of the first two bits set. An SSL 2.0 record begins with its
        // length: the first bit says that no padding follows, and the second one stands in lengths with padding.
        let tls = matches!(first, kind::CHANGE_CIPHER..=kind::HEARTBEAT);
        if !tls && let Some(before) = self.cleared(cx) {
            // The flow continues in cleartext.
            cx.shared.wishes.no_payload = false;
            self.truncated(cx, Direction::ToServer);
            self.truncated(cx, Direction::ToClient);
            return Step::Stop(0, Outcome::Change(Some(before)));
        }
        if self.lane(dir).ssl2 || sslv2::begins_with(first) {
            return self.ssl2(cx, dir, data, at);
        }
        let Some(head) = Head::read(data) else { return Step::More };
        if !head.is_known() {
            return self.fail(dir, Event::InvalidRecordType);
        }
        if !head.version.is_of_record() {
            if !head.version.is_read() {
                return self.fail(dir, Event::InvalidRecordVersion);
            }
            self.event(dir, Event::InvalidRecordVersion);
        }
        if head.len > RECORD_MAX {
            return self.fail(dir, Event::InvalidRecordLength);
        }
        // Only application data may be empty (RFC 8446 section 5.1), but OpenSSL skips 32 empty records of any type.
        if head.len == 0 && head.kind != kind::DATA {
            self.event(dir, Event::InvalidRecordLength);
        }
        self.record(cx, dir, head, data, at)
    }

    fn record(&mut self, cx: &mut Parse<'_>, dir: Direction, head: Head, data: &[u8], at: usize) -> Step {
        let total = HEAD_LEN + head.len;
        if let Some(tx) = &mut self.tx {
            let side = tx.side_mut(dir);
            if side.version.is_unknown() {
                side.version = head.version;
            }
        }
        let lane = self.lane(dir);
        // Wait for complete cleartext records, which are short.
        let clear = !lane.encrypted && head.kind != kind::DATA;
        if !std::mem::replace(&mut lane.marked, true) {
            mark(cx, dir, head, at);
        }
        if clear && data.len() < total {
            if head.kind == kind::HANDSHAKE && dir == Direction::ToClient {
                self.peek(data.get(HEAD_LEN..).unwrap_or(&[]));
            }
            return Step::More;
        }
        let lane = self.lane(dir);
        (lane.tls, lane.marked) = (true, false);
        lane.empty = if head.len == 0 { lane.empty.saturating_add(1) } else { 0 };
        if lane.empty > EMPTY_MAX {
            return self.fail(dir, Event::TooManyRecordsInPacket);
        }
        if !clear {
            self.encrypted(dir, head);
            let there = data.len().min(total);
            self.lane(dir).skip = total - there;
            if there == total {
                end_frames(cx, dir, at + total);
                // The end of the handshake, as far as it can be seen.
                cx.shared.whole[dir.index()] |= head.kind == kind::HANDSHAKE;
            }
            return self.went_on(cx, dir, head, there);
        }
        let body = data.get(HEAD_LEN..total).unwrap_or(&[]);
        match head.kind {
            kind::HANDSHAKE => self.handshake(cx, dir, body),
            _ if body.is_empty() => {}
            kind::CHANGE_CIPHER => self.change_cipher(dir),
            kind::HEARTBEAT => self.heartbeat(dir, body),
            _ => {}
        }
        cx.shared.whole[dir.index()] = true;
        end_frames(cx, dir, at + total);
        Step::Used(total)
    }

    /// A server's hello changes the session's state once it is complete, even if its record is not, as in Suricata.
    fn peek(&mut self, part: &[u8]) {
        let waits = |tx: &TlsTx| tx.base.progress[0] >= CLIENT_HELLO && tx.base.progress[1] < SERVER_HELLO;
        let Some(tx) = self.tx.as_deref_mut().filter(|tx| waits(tx)) else { return };
        let whole = message_len(part).is_some_and(|len| part.len() >= HEAD_MESSAGE + len);
        if whole && self.lanes[1].message.is_empty() && part.first() == Some(&handshake::kind::SERVER_HELLO) {
            tx.set_state(Direction::ToClient, state::SERVER_HELLO);
        }
    }

    /// The protocol that goes on in cleartext, because both sides ended their session.
    fn cleared(&self, cx: &Parse<'_>) -> Option<AppProto> {
        let before = self.tx.as_ref()?.from.filter(|p| cx.config.declared.outlives_tls(*p))?;
        self.lanes.iter().all(|l| l.alerted).then_some(before)
    }

    /// Handles a record whose content is encrypted.
    fn encrypted(&mut self, dir: Direction, head: Head) {
        let lane = self.lane(dir);
        if !lane.encrypted {
            // In TLS 1.3, only the first encrypted record shows that encryption has begun.
            lane.encrypted = true;
            lane.message = Vec::new();
        }
        lane.alerted = head.kind == kind::ALERT;
        if head.kind == kind::HEARTBEAT {
            lane.heartbeat = Some(head.len);
            let other = self.lane(dir.reverse()).heartbeat;
            // A valid response returns the data of the request, no more.
            if other.is_some_and(|asked| head.len > asked) {
                self.event(dir, Event::DataleakHeartbeatMismatch);
            }
        }
        if head.kind == kind::DATA {
            self.begins(dir);
        }
    }

    /// Handles application data: the handshake of this direction has ended, whatever was seen of it. In TLS 1.3 and in a
    /// resumed session, nothing earlier shows that.
    fn begins(&mut self, dir: Direction) {
        let Some(tx) = &mut self.tx else { return };
        let (hello, handshake) = match dir {
            Direction::ToServer => (CLIENT_HELLO, CLIENT_HANDSHAKE),
            Direction::ToClient => (SERVER_HELLO, SERVER_HANDSHAKE),
        };
        if tx.base.progress[dir.index()] < hello {
            return;
        }
        tx.base.advance(dir, handshake);
    }

    fn change_cipher(&mut self, dir: Direction) {
        let Some(tx) = &mut self.tx else { return };
        if dir == Direction::ToServer && tx.server.hello.is_some() {
            tx.goes_on(dir);
        }
        // In TLS 1.3, ChangeCipherSpec has no meaning (RFC 8446 appendix D.4).
        if tx.server.said.is_13() {
            return;
        }
        let lane = self.lane(dir);
        lane.changed = true;
        lane.encrypted = true;
        let both = self.lanes.iter().all(|l| l.changed);
        // Without a certificate, the keys come from an earlier session.
        if let Some(tx) = self.tx.as_mut().filter(|tx| both && tx.server.chain.is_none() && tx.server.hello.is_some()) {
            tx.resumed = true;
        }
    }

    /// Handles a cleartext heartbeat (RFC 6520 section 4).
    fn heartbeat(&mut self, dir: Direction, body: &[u8]) {
        let Some(&[kind, high, low]) = body.first_chunk::<3>() else {
            self.event(dir, Event::InvalidHeartbeatMessage);
            return;
        };
        let payload = usize::from(u16::from_be_bytes([high, low]));
        if !matches!(kind, 1 | 2) {
            self.event(dir, Event::InvalidHeartbeatMessage);
        }
        if 3 + payload > body.len() {
            self.event(dir, Event::OverflowHeartbeatMessage);
        }
    }

    /// Handles the content of a handshake record: messages, or parts of them.
    fn handshake(&mut self, cx: &Parse<'_>, dir: Direction, mut body: &[u8]) {
        let Some(tx) = &mut self.tx else { return };
        let [client, server] = &mut self.lanes;
        let lane = if dir == Direction::ToServer { client } else { server };
        while !body.is_empty() {
            if lane.over > 0 {
                let n = lane.over.min(body.len());
                lane.over -= n;
                body = body.get(n..).unwrap_or(&[]);
                continue;
            }
            // The earlier part lacks its header or its end.
            if !lane.message.is_empty() {
                let want = match message_len(&lane.message) {
                    Some(n) => HEAD_MESSAGE + n,
                    None => HEAD_MESSAGE,
                };
                let n = (want - lane.message.len().min(want)).min(body.len());
                let (more, rest) = body.split_at(n);
                lane.message.extend_from_slice(more);
                body = rest;
                if lane.message.len() < want {
                    return;
                }
            }
            let whole = if lane.message.is_empty() { body } else { &lane.message };
            let Some(len) = message_len(whole) else {
                lane.message = body.to_vec();
                return;
            };
            if whole.first().is_some_and(|k| !handshake::is_known(*k)) {
                // Its length is not reliable either.
                tx.event(dir, Event::InvalidHandshakeMessage);
                lane.message = Vec::new();
                return;
            }
            if len > MESSAGE_MAX {
                tx.event(dir, Event::HandshakeInvalidLength);
                let there = whole.len().min(HEAD_MESSAGE + len);
                lane.over = HEAD_MESSAGE + len - there;
                if lane.message.is_empty() {
                    body = body.get(there..).unwrap_or(&[]);
                }
                lane.message = Vec::new();
                continue;
            }
            let Some(message) = whole.get(..HEAD_MESSAGE + len) else {
                if lane.message.is_empty() {
                    lane.message = body.to_vec();
                    return;
                }
                continue;
            };
            let content = message.get(HEAD_MESSAGE..).unwrap_or(&[]);
            handshake::message(tx, cx, dir, message.first().copied().unwrap_or(0), content);
            if lane.message.is_empty() {
                body = body.get(HEAD_MESSAGE + len..).unwrap_or(&[]);
            } else {
                lane.message = Vec::new();
            }
        }
    }

    /// Parses a record of SSL 2.0. Messages of other types, and all that follow a TLS record, are skipped: a text such as an
    /// HTTP response reads as a long record of that kind.
    fn ssl2(&mut self, cx: &mut Parse<'_>, dir: Direction, data: &[u8], at: usize) -> Step {
        let Some(head) = sslv2::Head::read(data) else { return Step::More };
        let total = head.head + head.len;
        if head.len == 0 {
            self.event(dir, Event::InvalidSslv2Header);
            return self.fail(dir, Event::InvalidSslRecord);
        }
        let there = data.len().min(total);
        if self.lane(dir).ssl2 {
            self.lane(dir).skip = total - there;
            return Step::Used(there);
        }
        let Some(&kind) = data.get(head.head) else { return Step::More };
        let expected = match dir {
            Direction::ToServer => kind == sslv2::kind::CLIENT_HELLO,
            Direction::ToClient => matches!(kind, sslv2::kind::SERVER_HELLO | sslv2::kind::ERROR),
        };
        if !expected || self.lane(dir).tls {
            if kind == sslv2::kind::ERROR {
                self.event(dir, Event::ErrorMessage);
            }
            self.lane(dir).skip = total - there;
            return Step::Used(there);
        }
        if head.len < 3 {
            return self.fail(dir, Event::InvalidSslRecord);
        }
        if data.len() < total {
            return Step::More;
        }
        cx.shared.frames.begin(dir, SSLV2_PDU_FRAME, at, Some(0));
        cx.shared.frames.begin(dir, SSLV2_HEADER_FRAME, at, Some(0));
        cx.shared.frames.end(dir, (at + head.head) as u64);
        cx.shared.frames.end(dir, (at + total) as u64);
        let body = data.get(head.head + 1..total).unwrap_or(&[]);
        self.ssl2_message(cx, dir, kind, body);
        cx.shared.whole[dir.index()] = true;
        Step::Used(total)
    }

    fn ssl2_message(&mut self, cx: &Parse<'_>, dir: Direction, kind: u8, body: &[u8]) {
        let Some(tx) = &mut self.tx else { return };
        match kind {
            sslv2::kind::CLIENT_HELLO => {
                match sslv2::client_hello(body) {
                    Some((version, fits)) => {
                        (tx.client.said, tx.client.version) = (version, version);
                        if !fits {
                            tx.event(dir, Event::InvalidSslv2Header);
                        }
                        // A greeting that offers nothing newer continues with SSL 2.0.
                        self.lanes[0].ssl2 = version == Version::SSL2;
                    }
                    None => tx.event(dir, Event::InvalidSslv2Header),
                }
                if tx.base.progress == [0; 2] && !cx.inline {
                    // As for a hello of TLS.
                    tx.base.touch(Direction::ToClient);
                }
                tx.set_state(dir, state::CLIENT_HELLO);
                tx.base.advance(dir, CLIENT_HELLO);
            }
            sslv2::kind::SERVER_HELLO => {
                if let Some((version, certificate)) = sslv2::server_hello(body) {
                    (tx.server.said, tx.server.version) = (version, version);
                    tx.set_state(dir, state::SERVER_HELLO);
                    tx.base.advance(dir, SERVER_HELLO);
                    if !certificate.is_empty() {
                        let mut events = Vec::new();
                        let chain = super::cert::Chain::of(certificate, &mut |e| events.push(e));
                        tx.server.chain = Some(chain);
                        tx.server.seen = cx.time.0.div_euclid(1_000_000);
                        for e in events {
                            tx.event(dir, e);
                        }
                    }
                    tx.base.advance(dir, SERVER_CERT);
                    tx.base.advance(dir, SERVER_HANDSHAKE);
                    // The client's next message is CLIENT-MASTER-KEY, without a certificate.
                    tx.base.advance(dir.reverse(), CLIENT_CERT);
                } else {
                    tx.event(dir, Event::InvalidSslv2Header);
                }
                self.lanes[1].ssl2 = true;
                self.lanes[0].ssl2 = true;
            }
            _ => {
                tx.event(dir, Event::ErrorMessage);
                self.lanes[1].ssl2 = true;
            }
        }
    }

    /// Applies `encryption-handling` once application data arrives. In TLS 1.3, a record of that type may still carry the end
    /// of the server's handshake, so bypass waits for both directions.
    fn went_on(&mut self, cx: &mut Parse<'_>, dir: Direction, head: Head, used: usize) -> Step {
        let Some(tx) = &mut self.tx else { return Step::Used(used) };
        let done = tx.base.progress[0] >= CLIENT_HANDSHAKE && tx.base.progress[1] >= SERVER_HANDSHAKE;
        if head.kind != kind::DATA || !done && cx.config.tls.encryption == Encryption::Bypass {
            return Step::Used(used);
        }
        if dir == Direction::ToClient || tx.server.hello.is_some() {
            tx.goes_on(dir);
        }
        match cx.config.tls.encryption {
            Encryption::Full => {}
            Encryption::TrackOnly => cx.shared.wishes.no_payload = true,
            Encryption::Bypass => {
                cx.shared.wishes.no_payload = true;
                cx.shared.wishes.bypass = true;
                tx.base.advance(Direction::ToServer, CLIENT_FINISHED);
                tx.base.advance(Direction::ToClient, SERVER_FINISHED);
                return Step::Stop(used, Outcome::Done);
            }
        }
        Step::Used(used)
    }
}

/// The length in a message header.
fn message_len(message: &[u8]) -> Option<usize> {
    let &[_, a, b, c] = message.first_chunk::<HEAD_MESSAGE>()?;
    Some(u32::from_be_bytes([0, a, b, c]) as usize)
}

/// Marks the frames of a record at offset `at` of the parser's input: the record, its header, and its content. The content is
/// `data` unless it is an alert or a heartbeat.
fn mark(cx: &mut Parse<'_>, dir: Direction, head: Head, at: usize) {
    let frames = &mut cx.shared.frames;
    if !frames.wanted {
        return;
    }
    let tx = Some(0);
    frames.begin(dir, PDU_FRAME, at, tx);
    frames.begin(dir, HEADER_FRAME, at, tx);
    frames.end(dir, (at + HEAD_LEN) as u64);
    let content = match head.kind {
        kind::ALERT => ALERT_FRAME,
        kind::HEARTBEAT => HEARTBEAT_FRAME,
        _ => DATA_FRAME,
    };
    frames.begin(dir, content, at + HEAD_LEN, tx);
}

/// Ends the frames of the current record.
fn end_frames(cx: &mut Parse<'_>, dir: Direction, to: usize) {
    if cx.shared.frames.wanted {
        cx.shared.frames.end(dir, to as u64);
        cx.shared.frames.end(dir, to as u64);
    }
}

impl Parser for TlsParser {
    fn proto(&self) -> AppProto {
        AppProto::Tls
    }

    fn comes_after(&mut self, original: AppProto) {
        if let Some(tx) = &mut self.tx {
            tx.from = Some(original);
        }
    }

    fn data(&mut self, cx: &mut Parse<'_>, dir: Direction, data: &[u8]) -> Parsed {
        let mut used = 0;
        let is_new = data.len() > self.lane(dir).waiting;
        if let Some(tx) = self.tx.as_deref_mut().filter(|_| is_new) {
            tx.state = 0;
        }
        loop {
            match self.step(cx, dir, data.get(used..).unwrap_or(&[]), used) {
                Step::Used(n) => used += n,
                Step::More => break,
                Step::Stop(n, outcome) => return Parsed { consumed: used + n, outcome },
            }
        }
        self.lane(dir).waiting = data.len().saturating_sub(used);
        if used > 0
            && let Some(tx) = self.tx.as_deref_mut().filter(|tx| tx.base.firewall.is_some())
        {
            // The firewall decides on encrypted data too, with the tables of the state that the session is in.
            tx.base.touch(dir);
        }
        if cx.end {
            self.truncated(cx, dir);
        }
        Parsed::used(used)
    }

    fn gap(&mut self, _cx: &mut Parse<'_>, dir: Direction, len: u64) -> Outcome {
        let lane = self.lane(dir);
        match usize::try_from(len) {
            // A gap in a skipped record does no harm.
            Ok(n) if n <= lane.skip => {
                lane.skip -= n;
                Outcome::More
            }
            _ => Outcome::Failed,
        }
    }

    fn truncated(&mut self, _cx: &mut Parse<'_>, dir: Direction) {
        if let Some(tx) = &mut self.tx {
            let (handshake, finished) = match dir {
                Direction::ToServer => (CLIENT_HANDSHAKE, CLIENT_FINISHED),
                Direction::ToClient => (SERVER_HANDSHAKE, SERVER_FINISHED),
            };
            if tx.base.progress[dir.index()] < handshake {
                // There was no session for rules to evaluate, so the direction is not marked for inspection.
                tx.base.progress[dir.index()] = finished;
            }
            tx.base.advance(dir, finished);
        }
    }

    fn memory(&mut self) -> u64 {
        let lanes: usize = self.lanes.iter().map(|l| l.message.capacity()).sum();
        self.tx.as_ref().map_or(0, |tx| size_of::<TlsTx>() as u64 + tx.held()) + lanes as u64
    }

    fn txs(&self) -> Range<u64> {
        u64::from(self.tx.is_none())..1
    }

    fn tx(&self, id: u64) -> Option<&dyn Transaction> {
        self.tx.as_deref().filter(|_| id == 0).map(|t| t as &dyn Transaction)
    }

    fn tx_mut(&mut self, id: u64) -> Option<&mut dyn Transaction> {
        self.tx.as_deref_mut().filter(|_| id == 0).map(|t| t as &mut dyn Transaction)
    }

    fn free_tx(&mut self, _shared: &mut Shared, id: u64) {
        if id == 0 {
            self.tx = None;
        }
    }
}
