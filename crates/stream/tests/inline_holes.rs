//! Inline, every segment is inspected when it comes, including early ones. Data that fills a hole is inspected together
//! with the data before and after it.
#![allow(clippy::unwrap_used)]

use margay_flow::Direction;
use margay_packet::tcp::flag::{ACK, FIN, SYN};
use margay_packet::{Frame, L3, L4, LinkType, Packet, Time};
use margay_stream::{FlowPrint, Outcome, StreamConfig, StreamEngine, TcpSession};

use Direction::{ToClient, ToServer};

/// An inline connection with chunks of 100 bytes.
struct Inline {
    engine: StreamEngine,
    session: Option<Box<TcpSession>>,
    /// Whether no packet of the flow was seen yet.
    fresh: bool,
}

/// The connection's key for the table of resumable connections.
const PRINT: FlowPrint = FlowPrint { hash: 7, second: false };

impl Inline {
    fn connected() -> Inline {
        Inline::with(StreamConfig {
            inline: true,
            spare_harmless: true,
            midstream: true,
            remembered: 100,
            checksum_validation: false,
            toserver_chunk_size: 100,
            ..StreamConfig::default()
        })
    }

    fn with(config: StreamConfig) -> Inline {
        let mut b = Inline { engine: StreamEngine::new(config), session: None, fresh: true };
        b.send(ToServer, SYN, 999, b"");
        b.send(ToClient, SYN | ACK, 0, b"");
        b.send(ToServer, ACK, 1000, b"");
        b
    }

    /// Sends a packet; the other side has everything acknowledged before.
    fn send(&mut self, to: Direction, flags: u8, number: u32, payload: &[u8]) -> Outcome {
        let (seq, ack) =
            if to == ToServer { (number, 5001) } else { (if flags & SYN == 0 { 5001 } else { 5000 }, 1000 + number) };
        let mut bytes = vec![0u8; 20];
        bytes[4..8].copy_from_slice(&seq.to_be_bytes());
        bytes[8..12].copy_from_slice(&ack.to_be_bytes());
        (bytes[12], bytes[13]) = (0x50, flags);
        bytes[14..16].copy_from_slice(&u16::MAX.to_be_bytes());
        bytes.extend_from_slice(payload);
        let (wire_len, time) = (bytes.len() as u32, Time::new(1, 0));
        let frame = Frame { data: &bytes, wire_len, time, link: LinkType::RAW, number: 1 };
        let mut packet = Packet::new(&frame);
        packet.l3 = L3::Ipv4 { offset: 0, header_len: 20, options: 0 };
        packet.l4 = L4::Tcp { offset: 0, header_len: 20 };
        packet.proto = 6;
        packet.payload = (20, payload.len() as u32);
        if self.session.as_deref().is_none_or(TcpSession::gives_way) {
            self.engine.resume(&mut self.session, &packet, PRINT);
        }
        let fresh = std::mem::take(&mut self.fresh);
        self.engine.process(&mut self.session, &packet, to, fresh)
    }

    fn times_out(&mut self) {
        let session = self.session.take().unwrap();
        self.engine.remember(&session, PRINT, 1000);
        self.engine.end(&session);
        self.fresh = true;
    }

    fn session(&mut self) -> &mut TcpSession {
        self.session.as_deref_mut().unwrap()
    }

    /// Sends a client segment at this place of the stream; returns the data that is inspected with it. A parser reads
    /// the in-order data.
    fn data(&mut self, at: u32, payload: &[u8]) -> Vec<u8> {
        self.send(ToServer, ACK, 1000 + at, payload);
        while let Some(margay_stream::AppData::Data { bytes, .. }) = self.session().app_data(ToServer, false) {
            let n = bytes.len() as u64;
            self.session().app_consume(ToServer, n);
        }
        self.look()
    }

    fn look(&mut self) -> Vec<u8> {
        let Some(c) = self.session().raw_chunk(ToServer, false) else { return Vec::new() };
        let (data, end) = (c.data.to_vec(), c.offset + c.data.len() as u64);
        self.session().raw_done(ToServer, end);
        data
    }

    fn acknowledged(&mut self, to: u32) {
        self.send(ToClient, ACK, to, b"");
    }
}

#[test]
fn what_fills_a_hole_is_looked_at_where_no_parser_is() {
    let mut b = Inline::connected();
    b.data(0, b"hello ");
    b.acknowledged(6);
    b.session().app_disable();
    assert_eq!(b.data(10, b"more"), b"more");
    // The segment before the hole came twice.
    assert_eq!(b.data(5, b" ATTA"), b"hello ATTAmore");
}

#[test]
fn what_is_before_a_hole_is_kept_however_far_the_early_segment_is() {
    let mut b = Inline::connected();
    b.data(0, b"hello ATTA");
    b.acknowledged(10);
    assert_eq!(b.data(5000, b"x"), b"x");
    assert_eq!(b.data(10, b"CK"), b"hello ATTACK");
}

#[test]
fn what_is_before_is_there_when_the_hole_is_closed() {
    let mut b = Inline::connected();
    b.data(0, &[b'a'; 90]);
    b.acknowledged(90);
    b.data(92, &[b'c'; 200]);
    // A chunk's length of the data after it, which was inspected before.
    let seen = b.data(90, b"BB");
    assert_eq!(seen, [&[b'a'; 90][..], b"BB", &[b'c'; 100]].concat());
}

#[test]
fn a_long_segment_that_begins_before_all_that_is_kept() {
    let mut b = Inline::connected();
    b.data(0, &[b'a'; 1000]);
    b.acknowledged(1000);
    b.data(1000, b"b");
    b.acknowledged(1001);
    let seen = b.data(0, &[&[b'a'; 1000][..], b"bATTACK"].concat());
    assert!(seen.ends_with(b"aabATTACK"), "{}", seen.escape_ascii());
}

/// A FIN with data after it: Linux reads that data as if the FIN had no sequence number. Neither is forwarded, whichever
/// side closed first.
#[test]
fn a_fin_with_data_behind_it_on_a_closing_connection() {
    let mut b = Inline::connected();
    b.send(ToClient, FIN | ACK, 0, b"");
    b.data(8, b"ij");
    assert!(b.send(ToServer, FIN | ACK, 1009, b"").drop);
    assert!(!b.send(ToServer, FIN | ACK, 1010, b"").drop);
    b.data(0, b"abcdefgh");
    assert!(!b.send(ToServer, ACK, 1010, b"k").accepted);
}

/// A FIN with missing data before it, and a flow timeout: data after the FIN is still refused.
#[test]
fn data_behind_an_early_fin_when_the_flow_has_timed_out() {
    for closed in [false, true] {
        let mut b = Inline::connected();
        b.send(ToServer, FIN | ACK, 1003, b"");
        if closed {
            b.send(ToClient, FIN | ACK, 0, b"");
        }
        b.times_out();
        assert!(b.send(ToServer, ACK, 1004, b"ef").drop);
        assert_eq!(b.data(0, b"abc"), b"abc");
        // Both FINs come again and pass; a different one does not.
        assert!(!b.send(ToServer, FIN | ACK, 1003, b"").drop);
        assert!(b.send(ToServer, FIN | ACK, 1002, b"").drop);
        assert!(!b.send(ToClient, FIN | ACK, 3, b"").drop);
    }
}

/// A packet with a forged number starts a midstream pickup. Data at the place that the other side acknowledges is
/// inspected.
#[test]
fn a_connection_that_is_picked_up_by_a_made_up_number() {
    for data in [&b""[..], b"x"] {
        let mut b = Inline::connected();
        (b.session, b.fresh) = (None, true);
        b.send(ToServer, ACK, 0xd000_0000, data);
        b.acknowledged(0);
        assert_eq!(b.data(0, b"hello"), b"hello");
    }
}

/// The same where the other side's acknowledgment picked it up: the sender's first packet does not move the place of its
/// data beyond the depth of reassembly.
#[test]
fn a_made_up_number_of_a_side_that_is_known_by_acknowledgments() {
    for data in [&b""[..], b"x"] {
        let mut b = Inline::connected();
        (b.session, b.fresh) = (None, true);
        b.acknowledged(0);
        assert_eq!(b.send(ToServer, ACK, 0xd000_0000, data).drop, !data.is_empty());
        assert_eq!(b.data(0, b"hello"), b"hello", "{data:?}");
    }
}

/// A packet without data resumes a connection wherever it would be picked up.
#[test]
fn an_acknowledgment_resumes_before_it_picks_up() {
    let config = StreamConfig {
        inline: true,
        spare_harmless: true,
        async_oneside: true,
        remembered: 100,
        checksum_validation: false,
        ..StreamConfig::default()
    };
    let mut b = Inline::with(config);
    assert_eq!(b.data(0, b"hello"), b"hello");
    b.acknowledged(5);
    b.times_out();
    b.acknowledged(5);
    assert_eq!(b.engine.counters.resumed, 1);
}
