//! Follows the flows of a capture with the engine's own decoder, flow table and stream engine.

use std::path::Path;

use margay_app::{AppConfig, AppProto, AppSession, Parse, Shared};
use margay_capture::Reader;
use margay_flow::{Direction, EndReason, Flow, FlowConfig, FlowTable, Lookup};
use margay_packet::{DecodeConfig, Decoder, Frame, Packet, Time};
use margay_stream::{AppData, StreamConfig, StreamEngine, TcpSession};

use crate::recognise::recogniser;
use crate::talk::Act;

/// Most segments of a flow to use.
const SEGMENTS_MAX: usize = 128;
const DIRECTIONS: [Direction; 2] = [Direction::ToServer, Direction::ToClient];

/// A TCP segment, as the target `stream` needs it.
#[derive(Debug, Clone)]
pub(crate) struct Segment {
    pub(crate) dir: Direction,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) flags: u8,
    pub(crate) window: u16,
    pub(crate) urgent: u16,
    pub(crate) len: usize,
    pub(crate) options: Vec<u8>,
    /// Microseconds since the flow's last segment.
    pub(crate) wait: i64,
}

/// The conversation of a flow.
#[derive(Debug, Clone)]
pub(crate) struct Conversation {
    /// The transport protocol: 6 or 17.
    pub(crate) transport: u8,
    /// Ports of client and server.
    pub(crate) ports: [u16; 2],
    /// The first protocol that was recognised.
    pub(crate) proto: AppProto,
    /// The bytes in order, with holes; for UDP, the datagrams.
    pub(crate) acts: Vec<Act>,
    /// TCP segments in order of arrival.
    pub(crate) segments: Vec<Segment>,
}

/// Limits on the bytes that are kept of each flow, and their form.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keep {
    /// Most bytes.
    pub(crate) bytes: usize,
    /// Whether consecutive bytes of one direction become one step.
    pub(crate) join: bool,
}

#[derive(Debug)]
struct FlowState {
    keep: Keep,
    tcp: Option<Box<TcpSession>>,
    acts: Vec<Act>,
    bytes: usize,
    segments: Vec<Segment>,
    last: Option<Time>,
}

impl FlowState {
    fn new(keep: Keep) -> FlowState {
        FlowState { keep, tcp: None, acts: Vec::new(), bytes: 0, segments: Vec::new(), last: None }
    }

    /// Adds bytes of a stream, or a datagram.
    fn bytes(&mut self, dir: Direction, data: &[u8], is_datagram: bool) {
        let data = data.get(..data.len().min(self.keep.bytes.saturating_sub(self.bytes))).unwrap_or(data);
        let join = self.keep.join && !is_datagram;
        self.bytes += data.len();
        match self.acts.last_mut() {
            _ if data.is_empty() => {}
            Some(Act::Bytes(d, held)) if join && *d == dir => held.extend_from_slice(data),
            _ => self.acts.push(Act::Bytes(dir, data.to_vec())),
        }
    }
}

/// Calls `each` with every frame of a capture, up to where it is broken.
pub(crate) fn frames(capture: &[u8], mut each: impl FnMut(&Frame<'_>)) {
    let Ok(mut reader) = Reader::new(capture, Path::new("(memory)")) else { return };
    while let Ok(Some(batch)) = reader.next_batch(256) {
        batch.iter().for_each(|f| each(&f));
    }
}

/// The conversations of a capture, in the order in which they end. Protocols that are off by default count as well.
pub(crate) fn conversations(capture: &[u8], keep: Keep) -> Vec<Conversation> {
    let config = AppConfig::new(recogniser(false).clone());
    let mut stream =
        StreamEngine::new(StreamConfig { checksum_validation: false, midstream: true, ..Default::default() });
    let mut flows: FlowTable<FlowState> = FlowTable::new(FlowConfig { memcap: 0, ..FlowConfig::default() });
    let mut decoder = Decoder::new(DecodeConfig::default());
    let mut out = Vec::new();
    frames(capture, |f| {
        decoder.decode(f, &mut |p: &Packet<'_>| {
            let mut ended = Vec::new();
            packet(&mut flows, &mut stream, p, keep, &mut |f, _| ended.push(f));
            out.extend(ended.into_iter().filter_map(|f| finish(&config, &mut stream, f)));
        });
    });
    flows.drain(&mut |f, _| out.extend(finish(&config, &mut stream, f)));
    out
}

fn packet(
    flows: &mut FlowTable<FlowState>,
    stream: &mut StreamEngine,
    p: &Packet<'_>,
    keep: Keep,
    ended: &mut dyn FnMut(Flow<FlowState>, EndReason),
) {
    if !matches!(p.proto, 6 | 17) || p.fragment || p.invalid {
        return;
    }
    let Some(key) = flows.key(p, 0) else { return };
    let found = flows.lookup(p, &key, || FlowState::new(keep), ended);
    let (mut at, mut dir) = match found {
        Lookup::Found(at, dir) => (at, dir),
        Lookup::Created(at) => (at, Direction::ToServer),
        Lookup::Unrelated | Lookup::NoMemory => return,
    };
    flows.update(at, p, &key, dir);
    let Some(flow) = flows.get_mut(at) else { return };
    if p.proto == 17 {
        flow.ext.bytes(dir, p.payload(), true);
        return;
    }
    let fresh = matches!(found, Lookup::Created(_));
    let mut said = stream.process(&mut flow.ext.tcp, p, dir, fresh);
    if said.reuse {
        let Some(new) = flows.replace(at, p, &key, || FlowState::new(keep), ended) else { return };
        (at, dir) = (new, Direction::ToServer);
        let Some(flow) = flows.get_mut(at) else { return };
        said = stream.process(&mut flow.ext.tcp, p, dir, true);
    }
    if said.swap {
        flows.swap(at);
        dir = Direction::ToClient;
        if let Some(flow) = flows.get_mut(at) {
            flow.ext.segments.iter_mut().for_each(|s| s.dir = s.dir.reverse());
        }
    }
    if let Some(state) = said.state {
        flows.set_state(at, state);
    }
    let Some(flow) = flows.get_mut(at) else { return };
    note(&mut flow.ext, p, dir);
    take(&mut flow.ext, said.flush);
    if let Some(session) = &mut flow.ext.tcp {
        stream.account(session);
    }
}

/// Keeps the properties of a segment for the target `stream`.
fn note(state: &mut FlowState, p: &Packet<'_>, dir: Direction) {
    let Some(tcp) = p.tcp() else { return };
    if state.segments.len() >= SEGMENTS_MAX {
        return;
    }
    let header = p.l4_bytes();
    let half = |at: usize| header.get(at..).and_then(|h| h.first_chunk()).map_or(0, |b| u16::from_be_bytes(*b));
    let ack = u32::from(half(8)) << 16 | u32::from(half(10));
    let options = header.len().saturating_sub(p.payload().len()).max(20);
    let wait = state.last.map_or(0, |last| p.time.micros_since(last).max(0));
    state.last = Some(p.time);
    state.segments.push(Segment {
        dir,
        seq: tcp.seq(),
        ack,
        flags: tcp.flags(),
        window: half(14),
        urgent: half(18),
        len: p.payload().len(),
        options: header.get(20..options).unwrap_or(&[]).to_vec(),
        wait,
    });
}

/// Takes the in-order data of the stream.
fn take(state: &mut FlowState, all: bool) {
    let Some(mut session) = state.tcp.take() else { return };
    if all {
        session.finish_streams();
    }
    for dir in DIRECTIONS {
        while let Some(data) = session.app_data(dir, all) {
            let n = match data {
                AppData::Data { bytes, .. } => {
                    state.bytes(dir, bytes, false);
                    bytes.len() as u64
                }
                AppData::Gap(n) => {
                    state.acts.push(Act::Gap(dir, n.min(256)));
                    n
                }
            };
            session.app_consume(dir, n);
        }
        while let Some(chunk) = session.raw_chunk(dir, all) {
            let end = chunk.offset + chunk.data.len() as u64;
            session.raw_done(dir, end);
        }
    }
    state.tcp = Some(session);
}

fn finish(config: &AppConfig, stream: &mut StreamEngine, mut flow: Flow<FlowState>) -> Option<Conversation> {
    take(&mut flow.ext, true);
    if let Some(mut session) = flow.ext.tcp.take() {
        stream.account(&mut session);
        stream.end(&session);
    }
    let FlowState { mut acts, mut segments, .. } = flow.ext;
    let mut core = flow.core;
    core.pkts = core.pkts.map(|n| n.max(1));
    let mut proto = AppProto::Unknown;
    for _ in 0..2 {
        let (found, turned) = recognise(config, &core, &acts);
        proto = found;
        if !turned {
            break;
        }
        core.turn_round();
        for act in &mut acts {
            let (Act::Bytes(dir, _) | Act::Gap(dir, _)) = act;
            *dir = dir.reverse();
        }
        segments.iter_mut().for_each(|s| s.dir = s.dir.reverse());
    }
    let used = !acts.is_empty() || !segments.is_empty();
    used.then_some(Conversation { transport: core.proto, ports: [core.sport, core.dport], proto, acts, segments })
}

/// The first protocol of a flow, and whether client and server are swapped.
fn recognise(config: &AppConfig, flow: &margay_flow::FlowCore, acts: &[Act]) -> (AppProto, bool) {
    let (mut session, mut shared) = (AppSession::default(), Shared::default());
    session.set_midstream();
    let mut waiting = [Vec::new(), Vec::new()];
    for act in acts {
        let mut cx = Parse { config, shared: &mut shared, flow, time: Time(0), end: false, inline: false };
        let Act::Bytes(dir, bytes) = act else { continue };
        waiting[dir.index()].extend_from_slice(bytes);
        for dir in [*dir, dir.reverse()] {
            let held: &mut Vec<u8> = &mut waiting[dir.index()];
            let fed = session.data(&mut cx, dir, held);
            if session.wants_turn() {
                return (AppProto::Unknown, true);
            }
            held.drain(..if flow.proto == 17 { held.len() } else { fed.consumed.min(held.len()) });
            let first = if session.original.is_known() { session.original } else { session.proto };
            if first.is_known() {
                return (first, false);
            }
        }
    }
    (AppProto::Unknown, false)
}
