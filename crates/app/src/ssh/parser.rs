//! The state machine of both directions: a banner, then binary packets (RFC 4253 section 6) up to NEWKEYS.
//!
//! A packet's header is a message, and the rest a body that is handled as it arrives, except that of KEXINIT if fingerprints are
//! used: the stream then buffers up to [`KEXINIT_MAX`] bytes of it. Up to [`BANNER_MAX`] bytes of a banner wait for the line end.

use margay_flow::Direction::{self, ToClient, ToServer};
use margay_flow::FlowCore;
use memchr::memchr;

use crate::config::AppConfig;
use crate::conversation::{Conversation, Framing, Limit, Piece, Turn, Tx};
use crate::parser::{Outcome, Parse};
use crate::proto::AppProto;

use super::tx::SshTx;
use super::{
    BANNER_DONE, BANNER_WAIT_EOL, DATA_FRAME, EncryptionHandling, Event, HEADER_FRAME, PDU_FRAME, banner, kex,
};

/// The longest valid banner, without its line end (RFC 4253 section 4.2).
const BANNER_LONG: usize = 255;
/// The limit of bytes kept from a line. A longer banner is truncated to this; any other line of that length is an error.
const BANNER_MAX: usize = 1024;
/// The limit of lines that a server may send before its banner, as in OpenSSH's client; with more, its side is not read.
const LINES_MAX: u16 = 1024;
/// The longest KEXINIT that is read, by its length field; a longer one is skipped.
const KEXINIT_MAX: u32 = 65_535;
/// Size of the packet length, padding length and message number.
const HEADER: usize = 6;
/// The number of the flow's transaction.
const TX: u64 = 0;

const KEXINIT: u8 = 20;
const NEWKEYS: u8 = 21;

/// The position in a direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before the banner, after this many other lines.
    Banner(u16),
    /// In the rest of a truncated banner.
    LongBanner,
    /// Before a packet, or in the rest of one without a meaning for the parser.
    Record,
    /// In the rest of a KEXINIT to read, of this many bytes.
    KexInit(usize),
    /// In the rest of NEWKEYS.
    NewKeys,
    /// After NEWKEYS.
    Encrypted,
    /// After a gap: packet boundaries are unknown.
    Lost,
}

/// The state of a flow.
#[derive(Debug)]
pub(super) struct Ssh {
    sides: [State; 2],
    /// Both directions are encrypted, and the data with the last message was handled.
    encrypted: bool,
}

impl Conversation for Ssh {
    type Tx = SshTx;
    const PROTO: AppProto = AppProto::Ssh;
    const LIMIT: Limit = Limit::Flow;

    fn new(_config: &AppConfig, _flow: &FlowCore) -> Self {
        Ssh { sides: [State::Banner(0); 2], encrypted: false }
    }

    fn arrives(&mut self, turn: &mut Turn<'_, '_, SshTx>, _dir: Direction) {
        if turn.latest_id().is_none() {
            let awaits_hassh = turn.cx.config.ssh.hassh;
            turn.open(SshTx { awaits_hassh, ..SshTx::default() });
        }
    }

    fn framing(&mut self, dir: Direction, data: &[u8], end: bool) -> Framing {
        match self.sides[dir.index()] {
            State::Banner(_) => {
                let seen = data.get(..BANNER_MAX).unwrap_or(data);
                match memchr(b'\n', seen) {
                    Some(n) => Framing::Message(n + 1),
                    None if seen.len() == BANNER_MAX || end => Framing::Message(seen.len()),
                    None => Framing::More,
                }
            }
            State::LongBanner => Framing::Message(memchr(b'\n', data).map_or(data.len(), |n| n + 1)),
            State::Record | State::NewKeys => Framing::Message(HEADER),
            State::KexInit(len) => Framing::Message(len),
            State::Encrypted | State::Lost => Framing::Pass(u64::MAX),
        }
    }

    fn waits(&mut self, turn: &mut Turn<'_, '_, SshTx>, dir: Direction, data: &[u8]) -> Outcome {
        match self.sides[dir.index()] {
            State::Banner(lines) => self.banner(turn, dir, data, lines),
            _ => Outcome::More,
        }
    }

    fn message(&mut self, turn: &mut Turn<'_, '_, SshTx>, dir: Direction, message: &[u8]) -> Outcome {
        match self.sides[dir.index()] {
            State::Banner(lines) => return self.banner(turn, dir, message, lines),
            State::LongBanner if message.ends_with(b"\n") => self.banner_ends(turn, dir),
            State::Record => return self.header(turn, dir, message),
            // At the end of the stream, it may be truncated.
            State::KexInit(len) if message.len() == len => {
                self.packet_ends(turn, dir, message.len());
                if let Some(tx) = turn.tx(TX)
                    && let Some(hassh) = kex::hassh(message, dir)
                {
                    tx.content.said[dir.index()].hassh = Some(hassh);
                    tx.touch(dir);
                }
            }
            _ => {}
        }
        Outcome::More
    }

    fn body(&mut self, turn: &mut Turn<'_, '_, SshTx>, dir: Direction, piece: Piece<'_>, left: u64) -> Outcome {
        match (self.sides[dir.index()], piece) {
            (State::Lost, _) => {}
            (state, Piece::Gap(len)) if left == 0 || state == State::NewKeys => return self.gap(turn, dir, len),
            (_, Piece::Data(data)) if left == 0 => self.packet_ends(turn, dir, data.len()),
            _ => {}
        }
        Outcome::More
    }

    /// Hides where the next packet begins.
    fn gap(&mut self, turn: &mut Turn<'_, '_, SshTx>, dir: Direction, _len: u64) -> Outcome {
        if matches!(self.sides[dir.index()], State::Encrypted | State::Lost) {
            return Outcome::More;
        }
        self.sides[dir.index()] = State::Lost;
        if let Some(tx) = turn.tx(TX) {
            tx.finish(dir);
        }
        self.goes_on(turn.cx)
    }

    fn ends(&mut self, turn: &mut Turn<'_, '_, SshTx>, dir: Direction) {
        if !turn.cx.end {
            self.sides[dir.index()] = State::Lost;
        } else if let Some(tx) = turn.tx(TX) {
            tx.finish(dir);
        }
    }

    fn handled(&mut self, turn: &mut Turn<'_, '_, SshTx>, _dir: Direction) -> Outcome {
        self.goes_on(turn.cx)
    }
}

impl Ssh {
    /// Handles a line before the banner, or the banner, of which `data` is the beginning if it has no line end.
    fn banner(&mut self, turn: &mut Turn<'_, '_, SshTx>, dir: Direction, data: &[u8], lines: u16) -> Outcome {
        let end = turn.cx.end;
        let Some(tx) = turn.tx(TX) else { return Outcome::More };
        let (line, whole) = data.strip_suffix(b"\n").map_or((data, false), |line| (line, true));
        let is_full = data.len() == BANNER_MAX;
        // An empty line has the beginning of a banner.
        if !banner::may_begin(line) || whole && line.is_empty() {
            // A server may send lines before its banner, but few do.
            tx.event(Event::InvalidBanner as u8);
            if dir == ToServer {
                return fail(tx, Event::InvalidBanner);
            }
            let gives_up = if whole { lines >= LINES_MAX } else { is_full };
            if gives_up {
                // The client's side still shows its software.
                return self.gap(turn, dir, 0);
            }
            self.sides[dir.index()] = State::Banner(lines + u16::from(whole));
            return Outcome::More;
        }
        // The last byte may be the CR of a line end.
        let is_long = line.len() > BANNER_LONG + usize::from(!whole || line.ends_with(b"\r"));
        if is_long {
            tx.event(Event::LongBanner as u8);
            tx.base.advance(dir, BANNER_WAIT_EOL);
        }
        if !(whole || is_full || is_long && end) {
            return Outcome::More;
        }
        let Some(banner) = banner::parse(banner::content(line)) else { return fail(tx, Event::InvalidBanner) };
        tx.content.said[dir.index()].set_banner(banner);
        self.sides[dir.index()] = State::LongBanner;
        if whole {
            self.banner_ends(turn, dir);
        }
        Outcome::More
    }

    fn banner_ends(&mut self, turn: &mut Turn<'_, '_, SshTx>, dir: Direction) {
        self.sides[dir.index()] = State::Record;
        if let Some(tx) = turn.tx(TX) {
            tx.base.advance(dir, BANNER_DONE);
        }
    }

    /// Handles the header of a packet.
    fn header(&mut self, turn: &mut Turn<'_, '_, SshTx>, dir: Direction, header: &[u8]) -> Outcome {
        let reads_hassh = turn.cx.config.ssh.hassh;
        let (Some(&[a, b, c, d, _padding, message]), Some(tx)) = (header.first_chunk::<HEADER>(), turn.tx(TX)) else {
            return Outcome::More;
        };
        let length = u32::from_be_bytes([a, b, c, d]);
        // The padding length and the message number are part of the length, and already read.
        let Some(left) = length.checked_sub(2) else { return fail(tx, Event::InvalidRecord) };
        let state = &mut self.sides[dir.index()];
        match message {
            NEWKEYS => *state = State::NewKeys,
            KEXINIT if reads_hassh && tx.content.said[dir.index()].hassh.is_none() => {
                if length > KEXINIT_MAX {
                    tx.event(Event::LongKexRecord as u8);
                } else if left > 0 {
                    *state = State::KexInit(left as usize);
                }
            }
            _ => {}
        }
        let is_message = matches!(state, State::KexInit(_));
        turn.begin_frame(dir, PDU_FRAME, 0, Some(TX));
        turn.frame(dir, HEADER_FRAME, 0, HEADER, Some(TX));
        if left == 0 {
            self.packet_ends(turn, dir, HEADER);
            return Outcome::More;
        }
        turn.begin_frame(dir, DATA_FRAME, HEADER, Some(TX));
        if !is_message {
            turn.body(dir, left.into());
        }
        Outcome::More
    }

    /// A packet ends at this offset of the message.
    fn packet_ends(&mut self, turn: &mut Turn<'_, '_, SshTx>, dir: Direction, at: usize) {
        // The frame of the data, and that of the packet.
        turn.end_frame(dir, at);
        turn.end_frame(dir, at);
        let state = &mut self.sides[dir.index()];
        if *state != State::NewKeys {
            *state = State::Record;
            return;
        }
        *state = State::Encrypted;
        if let Some(tx) = turn.tx(TX) {
            tx.finish(dir);
        }
    }

    /// The outcome once nothing more has to be read.
    fn goes_on(&mut self, cx: &mut Parse<'_>) -> Outcome {
        if !self.sides.iter().all(|s| matches!(s, State::Encrypted | State::Lost)) {
            return Outcome::More;
        }
        if self.sides == [State::Encrypted; 2] {
            let (handling, wishes) = (cx.config.ssh.encryption, &mut cx.shared.wishes);
            // The packet with the last message still has to be inspected, unless the whole flow is bypassed.
            let is_first = !std::mem::replace(&mut self.encrypted, true);
            if is_first && (cx.inline || handling == EncryptionHandling::TrackOnly) {
                return Outcome::More;
            }
            wishes.no_payload |= handling == EncryptionHandling::TrackOnly;
            wishes.bypass |= handling == EncryptionHandling::Bypass;
        }
        Outcome::Done
    }
}

/// The data is invalid: ends the transaction with an event.
fn fail(tx: &mut Tx<SshTx>, event: Event) -> Outcome {
    tx.event(event as u8);
    tx.finish(ToServer);
    tx.finish(ToClient);
    Outcome::Failed
}
