//! Measures the reassembly and reading of a connection's segments.
#![allow(clippy::unwrap_used)]

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use margay_flow::Direction;
use margay_packet::tcp::flag::{ACK, PSH, SYN};
use margay_packet::{Frame, L3, L4, LinkType, Packet, Time};
use margay_stream::{AppData, StreamConfig, StreamEngine, TcpSession};

use Direction::{ToClient, ToServer};

fn main() {
    divan::main();
}

const SEGMENTS: u32 = 700;
const PIECE: u32 = 1448;

/// A TCP header and payload.
fn segment(flags: u8, seq: u32, ack: u32, len: u32) -> Vec<u8> {
    let mut bytes = vec![0u8; 20];
    bytes[4..8].copy_from_slice(&seq.to_be_bytes());
    bytes[8..12].copy_from_slice(&ack.to_be_bytes());
    bytes[12] = 0x50;
    bytes[13] = flags;
    bytes[14..16].copy_from_slice(&[0xff; 2]);
    bytes.resize(20 + len as usize, b'x');
    bytes
}

struct Run {
    engine: StreamEngine,
    session: Option<Box<TcpSession>>,
}

impl Run {
    fn send(&mut self, dir: Direction, bytes: &[u8], fresh: bool) {
        let wire_len = bytes.len() as u32;
        let mut p =
            Packet::new(&Frame { data: bytes, wire_len, time: Time::new(1, 0), link: LinkType::RAW, number: 1 });
        p.l3 = L3::Ipv4 { offset: 0, header_len: 20, options: 0 };
        p.l4 = L4::Tcp { offset: 0, header_len: 20 };
        p.proto = 6;
        p.payload = (20, wire_len - 20);
        let out = self.engine.process(&mut self.session, &p, dir, fresh);
        let Some(session) = &mut self.session else { return };
        for d in [ToServer, ToClient] {
            if out.new_data[d.index()] {
                while let Some(data) = session.app_data(d, false) {
                    let n = match data {
                        AppData::Data { bytes, .. } => bytes.len() as u64,
                        AppData::Gap(n) => n,
                    };
                    session.app_consume(d, n);
                }
                while let Some(chunk) = session.raw_chunk(d, false) {
                    let end = chunk.offset + chunk.data.len() as u64;
                    session.raw_done(d, end);
                }
            }
        }
        self.engine.account(session);
    }
}

/// A megabyte from the server, with an acknowledgment for every second segment. In each group of `late` segments, the
/// last two are swapped.
#[divan::bench(args = [("in order", 0), ("every fourth late", 4), ("every second late", 2)])]
fn megabyte(b: Bencher<'_, '_>, (_, late): (&str, usize)) {
    let mut order: Vec<u32> = (0..SEGMENTS).collect();
    if late > 0 {
        order.chunks_exact_mut(late).for_each(|c| c.swap(late - 2, late - 1));
    }
    let data: Vec<Vec<u8>> =
        order.iter().map(|n| segment(ACK | PSH, 5001u32.wrapping_add(n * PIECE), 1001, PIECE)).collect();
    let acks: Vec<Vec<u8>> = (1..=SEGMENTS).map(|n| segment(ACK, 1001, 5001 + n * PIECE, 0)).collect();
    let config = StreamConfig { checksum_validation: false, ..StreamConfig::default() };
    let mut run = Run { engine: StreamEngine::new(config), session: None };
    b.counter(ItemsCount::new(SEGMENTS)).counter(BytesCount::new(SEGMENTS * PIECE)).bench_local(|| {
        if let Some(session) = run.session.take() {
            run.engine.end(&session);
        }
        run.send(ToServer, &segment(SYN, 1000, 0, 0), true);
        run.send(ToClient, &segment(SYN | ACK, 5000, 1001, 0), false);
        run.send(ToServer, &segment(ACK, 1001, 5001, 0), false);
        for (n, bytes) in data.iter().enumerate() {
            run.send(ToClient, bytes, false);
            if n % 2 == 1 {
                run.send(ToServer, &acks[n], false);
            }
        }
    });
}

/// A connection of three packets without data.
#[divan::bench]
fn handshake(b: Bencher<'_, '_>) {
    let mut run = Run { engine: StreamEngine::new(StreamConfig::default()), session: None };
    let [syn, answer, ack] = [segment(SYN, 1000, 0, 0), segment(SYN | ACK, 5000, 1001, 0), segment(ACK, 1001, 5001, 0)];
    b.bench_local(|| {
        if let Some(session) = run.session.take() {
            run.engine.end(&session);
        }
        run.send(ToServer, &syn, true);
        run.send(ToClient, &answer, false);
        run.send(ToServer, &ack, false);
    });
}
