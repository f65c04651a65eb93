//! The target `stream`: TCP segments of one flow through the flow table and the stream engine.

use margay_flow::{Direction, EndReason, Flow, FlowConfig, FlowHasher, FlowTable, Lookup};
use margay_packet::{DecodeConfig, Decoder, Frame, LinkType, Packet, Time, tcp::flag};
use margay_stream::{
    AppData, FlowPrint, HostOsPolicies, OsPolicy, Outcome, StreamConfig, StreamEngine, TcpSession, UrgentPolicy,
};

/// Most stretches in which one direction is read at a time: no more than there are segments.
const STRETCHES_MAX: usize = 4096;
/// Most segments of one input, because the state after a few segments matters, not their number.
const SEGMENTS_MAX: usize = 1024;
/// Initial sequence numbers: the client's wraps early.
pub(crate) const ISN: [u32; 2] = [0xffff_fe00, 0x1000];

/// Reads the input; returns zeros after its end.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }
    fn be16(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }
    fn be32(&mut self) -> u32 {
        u32::from(self.be16()) << 16 | u32::from(self.be16())
    }
}

/// The state kept with a flow.
#[derive(Default)]
struct FlowState {
    tcp: Option<Box<TcpSession>>,
    /// Payload bytes of packets, by direction.
    sent: [u64; 2],
    /// Bytes that the application layer received, by direction.
    read: [u64; 2],
}

/// Settings from the first two bytes.
fn settings(a: u8, b: u8) -> StreamConfig {
    const URGENT: [UrgentPolicy; 4] = [UrgentPolicy::Oob, UrgentPolicy::Inline, UrgentPolicy::Drop, UrgentPolicy::Gap];
    let policy = OsPolicy::ALL[usize::from(a >> 1 & 15) % OsPolicy::ALL.len()];
    let small = b & 0x10 != 0;
    let mut os_policies = HostOsPolicies::default();
    os_policies.default = policy;
    StreamConfig {
        inline: a & 1 != 0,
        os_policies,
        midstream: a & 0x20 != 0,
        async_oneside: a & 0x40 != 0,
        reassembly_memcap: if a & 0x80 != 0 { 4096 } else { 1 << 20 },
        urgent: URGENT[usize::from(b & 3)],
        urgent_oob_limit: 4,
        urgent_oob_limit_policy: URGENT[usize::from(b >> 2 & 3)],
        depth: if small { 600 } else { 1 << 20 },
        toserver_chunk_size: if small { 40 } else { 2560 },
        toclient_chunk_size: if small { 40 } else { 2560 },
        raw_context: if small { 16 } else { 512 },
        bypass: b & 0x20 != 0,
        drop_invalid: b & 0x40 == 0,
        checksum_validation: false,
        ..StreamConfig::default()
    }
}

/// The TCP options that a segment's byte selects, padded to words.
fn options(which: u8, input: &mut Bytes<'_>) -> Vec<u8> {
    let mut o = Vec::new();
    if which & 1 != 0 {
        o.extend_from_slice(&[1, 1, 8, 10]);
        o.extend_from_slice(&(u32::from(input.byte()) << 4).to_be_bytes());
        o.extend_from_slice(&(u32::from(input.byte()) << 4).to_be_bytes());
    }
    if which & 2 != 0 {
        o.extend_from_slice(&[1, 3, 3, input.byte()]);
    }
    if which & 4 != 0 {
        o.extend_from_slice(&[1, 1, 4, 2]);
    }
    if which & 8 != 0 {
        let [a, b] = input.be16().to_be_bytes();
        o.extend_from_slice(&[34, 4, a, b]);
    }
    if which & 16 != 0 {
        let [a, b] = input.be16().to_be_bytes();
        o.extend_from_slice(&[2, 4, a, b]);
    }
    if which & 32 != 0 {
        o.extend((0..4).map(|_| input.byte()));
    }
    o
}

/// A segment as a raw IPv4 packet from the client (`from` 0) or the server, with its payload's length. `next` has each side's
/// next sequence number.
fn segment(input: &mut Bytes<'_>, from: usize, head: u8, next: &mut [u32; 2]) -> (Vec<u8>, usize) {
    let flags = input.byte();
    let seq = match head >> 1 & 3 {
        0 => next[from],
        1 => next[from].wrapping_add(i32::from(input.byte() as i8) as u32),
        2 => ISN[from].wrapping_add(u32::from(input.be16())),
        _ => input.be32(),
    };
    let ack = match head >> 3 & 3 {
        0 => next[1 - from],
        1 => next[1 - from].wrapping_add(i32::from(input.byte() as i8) as u32),
        2 => 0,
        _ => input.be32(),
    };
    let options = if head & 0x20 != 0 { options(input.byte(), input) } else { Vec::new() };
    let (mut len, mut variant) = (0, 0);
    if head & 0x40 != 0 {
        let l = input.byte();
        len = if l >= 0xf0 { usize::from(l - 0xef) << 10 } else { usize::from(l) };
        variant = input.byte();
    }
    let (window, urgent) = if variant & 0x80 != 0 { (input.be16(), u16::from(input.byte())) } else { (0xfaf0, 0) };
    let header = 20 + options.len();
    let total = 20 + header + len;
    let mut p = vec![0u8; 40];
    p[0] = 0x45;
    p[2..4].copy_from_slice(&(total as u16).to_be_bytes());
    p[8..10].copy_from_slice(&[64, 6]);
    let (src, dst) = if from == 0 { (1, 2) } else { (2, 1) };
    p[12..20].copy_from_slice(&[10, 0, 0, src, 10, 0, 0, dst]);
    let ports: [u16; 2] = if from == 0 { [40000, 80] } else { [80, 40000] };
    p[20..22].copy_from_slice(&ports[0].to_be_bytes());
    p[22..24].copy_from_slice(&ports[1].to_be_bytes());
    p[24..28].copy_from_slice(&seq.to_be_bytes());
    p[28..32].copy_from_slice(&ack.to_be_bytes());
    p[32] = ((header / 4) as u8) << 4;
    p[33] = flags;
    p[34..36].copy_from_slice(&window.to_be_bytes());
    p[38..40].copy_from_slice(&urgent.to_be_bytes());
    p.extend_from_slice(&options);
    // The same sequence number has the same byte, unless the variant differs.
    p.extend((0..len as u32).map(|i| (seq.wrapping_add(i) as u8) ^ (variant & 0x0f)));
    let after = seq
        .wrapping_add(len as u32)
        .wrapping_add(u32::from(flags & flag::SYN != 0))
        .wrapping_add(u32::from(flags & flag::FIN != 0));
    if head >> 1 & 3 != 3 && after.wrapping_sub(next[from]) < 1 << 20 {
        next[from] = after;
    }
    (p, len)
}

const DIRECTIONS: [Direction; 2] = [Direction::ToServer, Direction::ToClient];

/// Reads the session's data as the application layer and raw inspection do, and asserts that this ends.
fn read(session: &mut TcpSession, kept: (&[u64; 2], &mut [u64; 2]), all: bool, take: u8) {
    let (sent, read) = kept;
    for d in DIRECTIONS {
        let i = d.index();
        if take & 1 == 0 || all {
            let mut turns = 0;
            while let Some(data) = session.app_data(d, all) {
                let before = session.app_offset(d);
                let n = match data {
                    AppData::Data { offset, bytes } => {
                        assert_eq!(offset, before, "data from elsewhere than the reader's place");
                        assert!(!bytes.is_empty(), "no data");
                        let n = if take & 4 != 0 { bytes.len().div_ceil(2) } else { bytes.len() } as u64;
                        read[i] += n;
                        n
                    }
                    AppData::Gap(n) => n,
                };
                assert!(n > 0, "nothing to consume");
                session.app_consume(d, n);
                assert_eq!(session.app_offset(d), before + n);
                turns += 1;
                assert!(turns < STRETCHES_MAX, "the application layer's data does not end");
            }
            assert!(read[i] <= sent[i], "{} bytes read of {} sent", read[i], sent[i]);
        }
        if take & 2 == 0 || all {
            if take & 8 != 0 {
                session.raw_trigger(d);
            }
            let mut turns = 0;
            while let Some(c) = session.raw_chunk(d, all) {
                assert!(c.seen <= c.data.len());
                let end = c.offset + c.data.len() as u64;
                assert!(c.data.len() as u64 <= sent[i], "a chunk of {} bytes of {} sent", c.data.len(), sent[i]);
                session.raw_done(d, end);
                assert!(session.raw_offset(d) >= end);
                turns += 1;
                assert!(turns < STRETCHES_MAX, "raw chunks do not end");
            }
        }
    }
}

/// Ends a flow: reads all remaining data, and asserts that nothing is left.
fn end(engine: &mut StreamEngine, hasher: FlowHasher, mut flow: Flow<FlowState>) {
    let Some(mut session) = flow.ext.tcp.take() else { return };
    let (hash, second) = hasher.of(&flow.core);
    engine.remember(&session, FlowPrint { hash, second }, 1);
    session.finish_streams();
    let mut out = Vec::new();
    for d in DIRECTIONS {
        session.payload_with_gaps(d, 0, u64::MAX, 3000, &mut out);
        assert!(out.len() <= 3000);
    }
    read(&mut session, (&flow.ext.sent, &mut flow.ext.read), true, 0);
    for d in DIRECTIONS {
        assert!(!session.needs_flush(d), "data is left that nobody is given");
    }
    engine.account(&mut session);
    engine.end(&session);
}

/// The stream engine: two bytes of settings, then segments.
pub fn stream(data: &[u8]) {
    let mut input = Bytes(data);
    let config = settings(input.byte(), input.byte());
    let memcap = config.reassembly_memcap;
    let mut engine = StreamEngine::new(config);
    let mut flows: FlowTable<FlowState> =
        FlowTable::new(FlowConfig { hash_size: 16, prealloc: 0, memcap: 0, ..FlowConfig::default() });
    let hasher = flows.hasher();
    let mut decoder = Decoder::new(DecodeConfig::default());
    let mut next = ISN;
    let mut now = 1_000_000i64;
    let mut number = 0;
    while !input.0.is_empty() && number < SEGMENTS_MAX as u64 {
        number += 1;
        let head = input.byte();
        let (bytes, _) = segment(&mut input, usize::from(head & 1), head, &mut next);
        let mut take = 0;
        if head & 0x80 != 0 {
            take = input.byte();
            now += i64::from(take >> 4) * 8_000_000;
            if take >> 4 == 15 {
                while !flows.expire(Time(now), 4, &mut |f, _| end(&mut engine, hasher, f)) {}
            }
        }
        let frame = Frame { data: &bytes, wire_len: bytes.len() as u32, time: Time(now), link: LinkType::RAW, number };
        decoder.decode(&frame, &mut |p: &Packet<'_>| packet(&mut flows, &mut engine, p, take));
        // Memory that emptied buffers keep, and one segment, may be on top of the limit.
        assert!(engine.counters.reassembly_memuse <= 4 * memcap + (256 << 10), "memory over the limit");
    }
    flows.drain(&mut |f, _| end(&mut engine, hasher, f));
    assert!(flows.is_empty());
    let c = &engine.counters;
    assert_eq!((c.memuse, c.reassembly_memuse, c.active_sessions), (0, 0, 0), "memory is left after the end");
}

/// Processes a packet as a worker does.
fn packet(flows: &mut FlowTable<FlowState>, engine: &mut StreamEngine, p: &Packet<'_>, take: u8) {
    let Some(key) = flows.key(p, 0) else { return };
    let mut ended = Vec::new();
    let found = flows.lookup(p, &key, FlowState::default, &mut |f: Flow<FlowState>, _: EndReason| ended.push(f));
    let (mut at, mut dir) = match found {
        Lookup::Found(at, dir) => (at, dir),
        Lookup::Created(at) => (at, Direction::ToServer),
        Lookup::Unrelated | Lookup::NoMemory => return,
    };
    let hasher = flows.hasher();
    for f in ended.drain(..) {
        end(engine, hasher, f);
    }
    flows.update(at, p, &key, dir);
    let Some(flow) = flows.get_mut(at) else { return };
    let fresh = matches!(found, Lookup::Created(_));
    let print = FlowPrint { hash: key.hash(), second: key.source_is_second() };
    if let Some(of_client) = engine.resume(&mut flow.ext.tcp, p, print) {
        // A SYN that gave way may have had data.
        (flow.ext.sent, flow.ext.read) = Default::default();
        if of_client != (dir == Direction::ToServer) {
            flows.swap(at);
            dir = dir.reverse();
        }
    }
    let Some(flow) = flows.get_mut(at) else { return };
    let mut out: Outcome = engine.process(&mut flow.ext.tcp, p, dir, fresh);
    if out.reuse {
        let answered = flow.ext.tcp.as_deref().and_then(|old| engine.open_answered(old, p));
        let new = flows.replace(at, p, &key, FlowState::default, &mut |f, _| end(engine, hasher, f));
        at = new.expect("memory without a limit");
        dir = Direction::ToServer;
        if answered.is_some() {
            flows.swap(at);
            dir = Direction::ToClient;
        }
        let Some(flow) = flows.get_mut(at) else { return };
        flow.ext.tcp = answered;
        out = engine.process(&mut flow.ext.tcp, p, dir, true);
        assert!(!out.reuse, "a new flow's packet opens a new flow");
    }
    if out.swap {
        flows.swap(at);
        dir = Direction::ToClient;
        if let Some(flow) = flows.get_mut(at) {
            flow.ext.sent.swap(0, 1);
        }
    }
    let Some(flow) = flows.get_mut(at) else { return };
    flow.ext.sent[dir.index()] += p.payload().len() as u64;
    if out.restart {
        flow.ext.read = [0; 2];
    }
    if let Some(session) = &mut flow.ext.tcp {
        if out.flush {
            session.finish_streams();
        }
        if out.rewrite
            && let Some(seq) = p.tcp().map(|t| t.seq())
        {
            let mut payload = p.payload().to_vec();
            session.rewrite(dir, seq, &mut payload);
            assert!(!session.rewrite(dir, seq, &mut payload), "rewritten twice");
        }
        read(session, (&flow.ext.sent, &mut flow.ext.read), out.flush, take);
        engine.account(session);
        let _ = (session.stream_size(dir), session.max_regions(dir), session.has_gap(dir), session.urgent_bytes(dir));
    }
    if let Some(state) = out.state {
        flows.set_state(at, state);
    }
}
