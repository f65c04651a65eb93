//! The state machine of both directions: a banner, then binary packets (RFC 4253 section 6) up to NEWKEYS.
//!
//! The parser consumes packets as they arrive, except KEXINIT if fingerprints are used: the stream then buffers up to
//! [`KEXINIT_MAX`] bytes of it. Up to [`BANNER_MAX`] bytes of a banner wait for the line end.

use std::ops::Range;

use margay_flow::Direction::{self, ToClient, ToServer};

use crate::parser::{Outcome, Parse, Parsed, Parser, Shared};
use crate::proto::AppProto;
use crate::tx::Transaction;

use super::tx::SshTx;
use super::{
    BANNER_DONE, BANNER_WAIT_EOL, DATA_FRAME, EncryptionHandling, Event, HEADER_FRAME, PDU_FRAME, banner, kex,
};

/// The longest valid banner, without its line end (RFC 4253 section 4.2).
const BANNER_LONG: usize = 255;
/// The limit of bytes kept from a line. A longer banner is truncated to this; any other line of that length is an error.
const BANNER_MAX: usize = 1024;
/// The limit of lines that a server may send before its banner; with more, the parser gives up.
const LINES_MAX: u8 = 64;
/// The longest KEXINIT that is read, by its length field; a longer one is skipped.
const KEXINIT_MAX: u32 = 65_535;
/// Size of the packet length, padding length and message number.
const HEADER: usize = 6;

const KEXINIT: u8 = 20;
const NEWKEYS: u8 = 21;

/// The handling of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Packet {
    /// A KEXINIT to read.
    KexInit,
    NewKeys,
    Other,
}

/// The position in a direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Banner,
    /// In the rest of a truncated banner.
    LongBanner,
    /// Before a packet.
    Record,
    /// In a packet, with this many bytes left.
    Body(Packet, u32),
    /// After NEWKEYS.
    Encrypted,
    /// After a gap: packet boundaries are unknown.
    Lost,
}

#[derive(Debug, Default)]
struct Side {
    state: State,
    /// Lines before the banner.
    lines: u8,
}

/// The result of a parsing step.
enum Step {
    /// This many bytes were consumed, at least one; continue.
    Used(usize),
    /// More data is needed.
    More,
    /// Invalid data.
    Failed(Event),
}

/// The SSH parser of a flow.
#[derive(Debug, Default)]
pub(super) struct SshParser {
    /// Created at the first data.
    tx: Option<SshTx>,
    sides: [Side; 2],
}

impl SshParser {
    const fn side(&mut self, dir: Direction) -> &mut Side {
        let [client, server] = &mut self.sides;
        match dir {
            ToServer => client,
            ToClient => server,
        }
    }

    fn step(&mut self, cx: &mut Parse<'_>, dir: Direction, at: usize, data: &[u8]) -> Step {
        match self.side(dir).state {
            State::Banner => self.banner(cx, dir, data),
            State::LongBanner => self.banner_end(dir, data),
            State::Record => self.record(cx, dir, at, data),
            State::Body(packet, left) => self.body(cx, dir, at, data, packet, left),
            State::Encrypted | State::Lost if data.is_empty() => Step::More,
            State::Encrypted | State::Lost => Step::Used(data.len()),
        }
    }

    fn banner(&mut self, cx: &Parse<'_>, dir: Direction, data: &[u8]) -> Step {
        let Some(tx) = &mut self.tx else { return Step::More };
        let [client, server] = &mut self.sides;
        let side = if dir == ToServer { client } else { server };
        let seen = data.get(..BANNER_MAX).unwrap_or(data);
        let end = seen.iter().position(|&b| b == b'\n');
        if !banner::may_begin(end.and_then(|n| seen.get(..n)).unwrap_or(seen)) {
            // A server may send lines before its banner, but few do.
            tx.event(Event::InvalidBanner);
            return match end {
                _ if dir == ToServer => Step::Failed(Event::InvalidBanner),
                Some(n) if side.lines < LINES_MAX => {
                    side.lines += 1;
                    Step::Used(n + 1)
                }
                None if seen.len() < BANNER_MAX => Step::More,
                _ => Step::Failed(Event::InvalidBanner),
            };
        }
        let line = end.and_then(|n| seen.get(..n)).unwrap_or(seen);
        let content = banner::content(line);
        // The last byte may be the CR of a line end.
        let cr = end.is_none() || line.ends_with(b"\r");
        let long = line.len() > BANNER_LONG + usize::from(cr);
        if long {
            tx.event(Event::LongBanner);
            tx.base.advance(dir, BANNER_WAIT_EOL);
        }
        if end.is_none() && !(seen.len() == BANNER_MAX || (long && cx.end)) {
            return Step::More;
        }
        let Some(banner) = banner::parse(content) else { return Step::Failed(Event::InvalidBanner) };
        tx.set_banner(dir, banner);
        if let Some(n) = end {
            side.state = State::Record;
            tx.base.advance(dir, BANNER_DONE);
            return Step::Used(n + 1);
        }
        side.state = State::LongBanner;
        Step::Used(seen.len())
    }

    fn banner_end(&mut self, dir: Direction, data: &[u8]) -> Step {
        if data.is_empty() {
            return Step::More;
        }
        let Some(n) = data.iter().position(|&b| b == b'\n') else { return Step::Used(data.len()) };
        self.side(dir).state = State::Record;
        if let Some(tx) = &mut self.tx {
            tx.base.advance(dir, BANNER_DONE);
        }
        Step::Used(n + 1)
    }

    fn record(&mut self, cx: &mut Parse<'_>, dir: Direction, at: usize, data: &[u8]) -> Step {
        let (Some(&[a, b, c, d, _padding, message]), Some(tx)) = (data.first_chunk::<HEADER>(), &mut self.tx) else {
            return Step::More;
        };
        let length = u32::from_be_bytes([a, b, c, d]);
        // The padding length and the message number are part of the length, and already read.
        let Some(left) = length.checked_sub(2) else { return Step::Failed(Event::InvalidRecord) };
        let packet = match message {
            NEWKEYS => Packet::NewKeys,
            KEXINIT if cx.config.ssh.hassh && tx.of(dir).hassh.is_none() => {
                if length > KEXINIT_MAX {
                    tx.event(Event::LongKexRecord);
                    Packet::Other
                } else {
                    Packet::KexInit
                }
            }
            _ => Packet::Other,
        };
        let frames = &mut cx.shared.frames;
        frames.begin(dir, PDU_FRAME, at, Some(0));
        frames.begin(dir, HEADER_FRAME, at, Some(0));
        frames.end(dir, (at + HEADER) as u64);
        if left > 0 {
            frames.begin(dir, DATA_FRAME, at + HEADER, Some(0));
            self.side(dir).state = State::Body(packet, left);
        } else {
            frames.end(dir, (at + HEADER) as u64);
            self.packet_end(dir, packet, &[]);
        }
        Step::Used(HEADER)
    }

    fn body(&mut self, cx: &mut Parse<'_>, dir: Direction, at: usize, data: &[u8], packet: Packet, left: u32) -> Step {
        let whole = usize::try_from(left).ok().and_then(|n| data.get(..n));
        let Some(body) = whole else {
            if packet == Packet::KexInit || data.is_empty() {
                return Step::More;
            }
            let left = left.saturating_sub(u32::try_from(data.len()).unwrap_or(u32::MAX));
            self.side(dir).state = State::Body(packet, left);
            return Step::Used(data.len());
        };
        // The frame of the data, and that of the packet.
        for _ in 0..2 {
            cx.shared.frames.end(dir, (at + body.len()) as u64);
        }
        self.packet_end(dir, packet, body);
        Step::Used(body.len())
    }

    fn packet_end(&mut self, dir: Direction, packet: Packet, body: &[u8]) {
        self.side(dir).state = if packet == Packet::NewKeys { State::Encrypted } else { State::Record };
        let Some(tx) = &mut self.tx else { return };
        match packet {
            Packet::NewKeys => tx.finish(dir),
            Packet::KexInit => {
                if let Some(hassh) = kex::hassh(body, dir) {
                    tx.of(dir).hassh = Some(hassh);
                    tx.base.touch(dir);
                }
            }
            Packet::Other => {}
        }
    }

    /// The outcome once nothing more has to be read.
    fn goes_on(&self, cx: &mut Parse<'_>, fresh: bool) -> Outcome {
        if self.sides.iter().all(|s| s.state == State::Encrypted) {
            // The packet with the last message still has to be inspected, unless the whole flow is bypassed.
            if fresh && (cx.inline || cx.config.ssh.encryption == EncryptionHandling::TrackOnly) {
                return Outcome::More;
            }
            match cx.config.ssh.encryption {
                EncryptionHandling::TrackOnly => cx.shared.wishes.no_payload = true,
                EncryptionHandling::Bypass => cx.shared.wishes.bypass = true,
                EncryptionHandling::Full => {}
            }
            return Outcome::Done;
        }
        if self.sides.iter().all(|s| matches!(s.state, State::Encrypted | State::Lost)) {
            return Outcome::Done;
        }
        Outcome::More
    }
}

impl Parser for SshParser {
    fn proto(&self) -> AppProto {
        AppProto::Ssh
    }

    fn data(&mut self, cx: &mut Parse<'_>, dir: Direction, data: &[u8]) -> Parsed {
        self.tx.get_or_insert_with(|| SshTx { awaits_hassh: cx.config.ssh.hassh, ..SshTx::default() });
        let encrypted = self.sides.iter().all(|s| s.state == State::Encrypted);
        let mut at = 0;
        loop {
            match self.step(cx, dir, at, data.get(at..).unwrap_or(&[])) {
                Step::Used(n) => at += n,
                Step::More => break,
                Step::Failed(event) => {
                    if let Some(tx) = &mut self.tx {
                        tx.event(event);
                        tx.finish(ToServer);
                        tx.finish(ToClient);
                    }
                    return Parsed { consumed: at, outcome: Outcome::Failed };
                }
            }
        }
        if cx.end
            && let Some(tx) = &mut self.tx
        {
            tx.finish(dir);
        }
        Parsed { consumed: at, outcome: self.goes_on(cx, !encrypted) }
    }

    fn gap(&mut self, cx: &mut Parse<'_>, dir: Direction, len: u64) -> Outcome {
        let side = self.side(dir);
        match side.state {
            State::Encrypted | State::Lost => return Outcome::More,
            State::Body(Packet::Other, left) if len < u64::from(left) => {
                side.state = State::Body(Packet::Other, left - u32::try_from(len).unwrap_or(left));
                return Outcome::More;
            }
            _ => {}
        }
        side.state = State::Lost;
        if let Some(tx) = &mut self.tx {
            tx.finish(dir);
        }
        self.goes_on(cx, true)
    }

    fn truncated(&mut self, _cx: &mut Parse<'_>, dir: Direction) {
        self.side(dir).state = State::Lost;
    }

    fn memory(&mut self) -> u64 {
        self.tx.as_ref().map_or(0, Transaction::held)
    }

    fn txs(&self) -> Range<u64> {
        0..u64::from(self.tx.is_some())
    }

    fn tx(&self, id: u64) -> Option<&dyn Transaction> {
        self.tx.as_ref().filter(|_| id == 0).map(|t| t as &dyn Transaction)
    }

    fn tx_mut(&mut self, id: u64) -> Option<&mut dyn Transaction> {
        self.tx.as_mut().filter(|_| id == 0).map(|t| t as &mut dyn Transaction)
    }

    /// It lives as long as its flow, because alerts on later data show it.
    fn free_tx(&mut self, _shared: &mut Shared, _id: u64) {}
}

#[cfg(test)]
mod tests {
    use margay_flow::FlowCore;
    use margay_json::Json;
    use margay_packet::Time;

    use super::super::{BANNER_DONE, Config, FINISHED, PROTOCOL};
    use super::*;
    use crate::config::{AppConfig, AppLogOptions};
    use crate::parser::FlowRequests;
    use crate::tx::LogFor;

    fn packet(message: u8, body: &[u8], padding: u8) -> Vec<u8> {
        let length = (2 + body.len() + usize::from(padding)) as u32;
        let mut p = length.to_be_bytes().to_vec();
        p.extend_from_slice(&[padding, message]);
        p.extend_from_slice(body);
        p.resize(p.len() + usize::from(padding), 0);
        p
    }

    fn flow() -> FlowCore {
        FlowCore::new(1, 6, ([192, 0, 2, 1].into(), 40_000), ([198, 51, 100, 1].into(), 22), Time(0))
    }

    fn kexinit(list: &str) -> Vec<u8> {
        packet(KEXINIT, &kex::tests::message(&[list; 10]), 6)
    }

    /// A conversation; each entry is sent in pieces of `size` bytes.
    struct Talk {
        config: AppConfig,
        shared: Shared,
        parser: SshParser,
        waiting: [Vec<u8>; 2],
        outcome: Outcome,
        inline: bool,
    }

    impl Talk {
        fn new(ssh: Config) -> Talk {
            Talk {
                config: AppConfig { ssh, ..AppConfig::default() },
                shared: Shared::default(),
                parser: SshParser::default(),
                waiting: [Vec::new(), Vec::new()],
                outcome: Outcome::More,
                inline: false,
            }
        }

        fn feed(&mut self, dir: Direction, bytes: &[u8], size: usize, end: bool) {
            let flow = flow();
            let mut pieces: Vec<&[u8]> = bytes.chunks(size).collect();
            if end {
                pieces.push(&[]);
            }
            for piece in pieces {
                if self.outcome != Outcome::More {
                    return;
                }
                let waiting = &mut self.waiting[dir.index()];
                waiting.extend_from_slice(piece);
                let mut cx = Parse {
                    config: &self.config,
                    shared: &mut self.shared,
                    flow: &flow,
                    time: Time(0),
                    end,
                    inline: self.inline,
                };
                let parsed = self.parser.data(&mut cx, dir, waiting);
                waiting.drain(..parsed.consumed);
                self.outcome = parsed.outcome;
            }
        }

        fn gap(&mut self, dir: Direction, len: u64) {
            let flow = flow();
            let mut cx = Parse {
                config: &self.config,
                shared: &mut self.shared,
                flow: &flow,
                time: Time(0),
                end: false,
                inline: false,
            };
            self.outcome = self.parser.gap(&mut cx, dir, len);
        }

        fn tx(&self) -> &SshTx {
            self.parser.tx.as_ref().unwrap()
        }

        fn events(&self) -> Vec<&str> {
            self.tx().base.events.as_slice().iter().map(|&e| PROTOCOL.events[usize::from(e)]).collect()
        }

        fn log(&self) -> String {
            let mut json = Json::new();
            json.item_object();
            self.tx().log(&mut json, &AppLogOptions::default(), LogFor::Event);
            json.end_object();
            String::from_utf8(json.as_bytes().to_vec()).unwrap()
        }
    }

    const HASSH: Config = Config { hassh: true, encryption: EncryptionHandling::TrackOnly };

    /// The result of a conversation in pieces of `size`.
    fn run(config: Config, talk: &[(Direction, Vec<u8>)], size: usize) -> String {
        let mut t = Talk::new(config);
        for (dir, bytes) in talk {
            t.feed(*dir, bytes, size, false);
        }
        let open = t.tx().is_loggable(false);
        t.feed(ToServer, b"", size, true);
        t.feed(ToClient, b"", size, true);
        let wishes = t.shared.wishes;
        format!("{open} {:?} {:?} {wishes:?} {:?} {}", t.tx().base.progress, t.outcome, t.events(), t.log())
    }

    fn whole(config: Config, talk: &[(Direction, Vec<u8>)]) -> String {
        let whole = run(config, talk, usize::MAX);
        for size in 1..12 {
            assert_eq!(run(config, talk, size), whole, "in pieces of {size}");
        }
        whole
    }

    #[test]
    fn a_session() {
        let talk = [
            (ToServer, [&b"SSH-2.0-client comment\r\n"[..], &kexinit("a,b")].concat()),
            (ToClient, [&b"SSH-1.99-server\r\n"[..], &kexinit("c")].concat()),
            (ToServer, [packet(30, &[1; 32], 4), packet(NEWKEYS, b"", 10), vec![0; 70]].concat()),
            (ToClient, [packet(31, &[1; 99], 4), packet(NEWKEYS, b"", 10), vec![0xff; 70]].concat()),
        ];
        let seen = whole(HASSH, &talk);
        assert!(
            seen.starts_with(
                "true [3, 3] Done FlowRequests { no_payload: true, bypass: false, stream_depth: None } []"
            ),
            "{seen}"
        );
        assert!(seen.contains(r#""string":"a,b;a,b;a,b;a,b""#) && seen.contains(r#""string":"c;c;c;c""#), "{seen}");
        let bypass = Config { hassh: false, encryption: EncryptionHandling::Bypass };
        let seen = whole(bypass, &talk);
        assert!(seen.contains("no_payload: false, bypass: true"), "{seen}");
        let want = r#"{"ssh":{"client":{"proto_version":"2.0","software_version":"client"},"server":{"proto_version":"1.99","software_version":"server"}}}"#;
        assert!(seen.ends_with(want), "{seen}");
        let full = Config { hassh: false, encryption: EncryptionHandling::Full };
        assert!(
            whole(full, &talk).contains("Done FlowRequests { no_payload: false, bypass: false, stream_depth: None }")
        );
    }

    #[test]
    fn banners() {
        let long = |n: usize| [&b"SSH-2.0-"[..], &vec![b'a'; n - 8]].concat();
        let cases = [
            (b"SSH-2.0-x\n".to_vec(), "", true),
            (b"SSH-2.0-x\r".to_vec(), "", false),
            (b"SSH-2.0\r\n".to_vec(), "invalid_banner", false),
            (b"ssh-2.0-x\r\n".to_vec(), "invalid_banner", false),
            (b"hello\r\nSSH-2.0-x\r\n".to_vec(), "invalid_banner", false),
            ([long(255), b"\r\n".to_vec()].concat(), "", true),
            ([long(256), b"\n".to_vec()].concat(), "long_banner", true),
            (long(256), "", false),
            ([b"SSH-2.0-x\r".to_vec(), vec![0; 300], b"\n".to_vec()].concat(), "long_banner", true),
            (long(257), "long_banner", true),
            ([long(5000), b"\n".to_vec(), packet(2, b"abc", 4)].concat(), "long_banner", true),
        ];
        for (bytes, event, known) in cases {
            let seen = whole(HASSH, &[(ToServer, bytes.clone())]);
            let events = if event.is_empty() { "[]".to_owned() } else { format!("[{event:?}]") };
            assert!(seen.contains(&events), "{} {seen}", bytes.escape_ascii());
            assert_eq!(seen.contains("proto_version"), known, "{} {seen}", bytes.escape_ascii());
        }
        let seen = whole(HASSH, &[(ToClient, b"hello\r\nyou\nSSH-2.0-x\r\n".to_vec())]);
        assert!(seen.contains(r#"["invalid_banner"]"#) && seen.contains(r#""software_version":"x""#), "{seen}");
        for lines in [b"a\n".repeat(100), vec![b'a'; 2000]] {
            let seen = whole(HASSH, &[(ToClient, lines), (ToClient, b"\nSSH-2.0-x\r\n".to_vec())]);
            assert!(seen.contains("Failed") && seen.ends_with("{}"), "{seen}");
        }
    }

    #[test]
    fn packets() {
        let with = |bytes: Vec<u8>| whole(HASSH, &[(ToServer, [&b"SSH-2.0-x\n"[..], &bytes, &kexinit("a")].concat())]);
        for short in [vec![0; 6], vec![0, 0, 0, 1, 0, 20]] {
            let seen = with(short);
            assert!(
                seen.contains(r#"["invalid_record"]"#) && seen.contains("Failed") && !seen.contains("hash"),
                "{seen}"
            );
        }
        // An empty KEXINIT, and an invalid one.
        assert!(with(packet(2, b"", 0)).contains("hash"));
        assert!(with(packet(KEXINIT, b"", 0)).contains("hash"));
        let long = packet(KEXINIT, &vec![0; 65_535], 4);
        let mut t = Talk::new(HASSH);
        t.feed(ToServer, &[b"SSH-2.0-x\n".to_vec(), long, kexinit("a")].concat(), 1400, false);
        assert_eq!(t.events(), ["long_kex_record"]);
        assert!(t.log().contains(r#""string":"a;a;a;a""#), "{}", t.log());
        // With two of them, the first counts.
        let twice = with(kexinit("first"));
        assert!(twice.contains("first;first") && !twice.contains("a;a"), "{twice}");
    }

    #[test]
    fn holes() {
        let mut t = Talk::new(HASSH);
        t.feed(ToServer, b"SSH-2.0-x\n", 100, false);
        let start = packet(2, &[0; 100], 4);
        t.feed(ToServer, &start[..50], 100, false);
        t.gap(ToServer, 40);
        t.feed(ToServer, &start[90..], 100, false);
        t.feed(ToServer, &kexinit("a"), 100, false);
        assert!(t.log().contains("a;a;a;a"), "{}", t.log());
        t.gap(ToServer, 1);
        assert_eq!((t.tx().base.progress, t.outcome), ([FINISHED, 0], Outcome::More));
        t.feed(ToClient, b"SSH-2.0-y\n", 100, false);
        assert_eq!(t.tx().base.progress, [FINISHED, BANNER_DONE]);
        t.feed(ToClient, &packet(NEWKEYS, b"", 10), 100, false);
        assert_eq!((t.outcome, t.shared.wishes), (Outcome::Done, FlowRequests::default()));
    }

    #[test]
    fn inline_the_last_message_is_inspected() {
        let mut t = Talk::new(HASSH);
        t.inline = true;
        let last = [&b"SSH-2.0-x\n"[..], &packet(NEWKEYS, b"", 10)].concat();
        t.feed(ToServer, &last, 1000, false);
        t.feed(ToClient, &last, 1000, false);
        assert_eq!((t.outcome, t.shared.wishes), (Outcome::More, FlowRequests::default()));
        t.feed(ToServer, b"x", 1000, false);
        assert_eq!((t.outcome, t.shared.wishes.no_payload), (Outcome::Done, true));
    }

    #[test]
    fn frames() {
        let mut t = Talk::new(HASSH);
        t.shared.frames.wanted = true;
        t.feed(ToServer, &[&b"SSH-2.0-x\n"[..], &packet(30, b"abcd", 4), &packet(2, b"", 0)].concat(), 1000, false);
        let seen: Vec<_> = t.shared.frames.flow.of(ToServer).iter().map(|f| (f.kind, f.offset, f.end)).collect();
        let first = [(PDU_FRAME, 10, Some(24)), (HEADER_FRAME, 10, Some(16)), (DATA_FRAME, 16, Some(24))];
        let second = [(PDU_FRAME, 24, Some(30)), (HEADER_FRAME, 24, Some(30))];
        assert_eq!(seen, [&first[..], &second].concat());
    }
}
