//! A template of sessions: its frames, their times, and the fields that an instance changes.
//!
//! Templates come from captures ([`Template::load`]) and from built-in kinds of session ([`super::session`]). Making a template
//! computes all checksums, so that wrong ones in a capture are not copied. An instance then only updates them for the fields
//! that it changes.

use std::collections::HashMap;
use std::fs::File;
use std::net::IpAddr;
use std::path::Path;

use margay_capture::Reader;

use super::frame::{self, Delta, ICMP, ICMPV6, Layout, TCP, UDP, be16, be32, put};
use super::rng::mix;

/// The sending side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dir {
    Client,
    Server,
}

impl Dir {
    pub(crate) fn other(self) -> Dir {
        match self {
            Dir::Client => Dir::Server,
            Dir::Server => Dir::Client,
        }
    }
}

/// An address or port that stays as it is in the template.
const KEEP: u8 = u8::MAX;
/// Most bytes of a template in memory.
const MAX_BYTES: usize = 512 << 20;

/// An address of the template.
#[derive(Clone, Debug)]
struct Endpoint {
    addr: IpAddr,
    side: Dir,
    /// Number of addresses of the same side before it. An instance replaces it by the pool's address at this distance from its own.
    ordinal: u16,
}

/// One frame of a session.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    /// Nanoseconds since the session began.
    pub(crate) at: u64,
    start: usize,
    pub(crate) len: u32,
    /// Its length on the wire, more than `len` where the capture was cut.
    pub(crate) wire_len: u32,
    pub(crate) dir: Dir,
    layout: Option<Layout>,
    /// Indexes of the endpoints, and slots of the client ports, that an instance replaces; or [`KEEP`].
    src: u8,
    dst: u8,
    sport: u8,
    dport: u8,
    /// TCP: number of the stream.
    stream: u16,
    /// TCP: offset and number of selective acknowledgement blocks.
    sack: (u16, u8),
}

/// Packets that repeat, so that a very long session needs no memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lap {
    /// Indexes of the first packet, and of the packet after the last one.
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// Number of laps.
    pub(crate) times: u64,
    /// The advance of time (nanoseconds) and of both sides' sequence numbers in each lap.
    pub(crate) time: u64,
    pub(crate) seq: [u32; 2],
}

/// A template, see the module.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    pub(crate) packets: Vec<Packet>,
    bytes: Vec<u8>,
    endpoints: Vec<Endpoint>,
    /// Number of client ports of an instance.
    pub(crate) ports: u16,
    /// Number of transport flows (5-tuples).
    pub(crate) flows: u32,
    pub(crate) lap: Option<Lap>,
    pub(crate) v6: bool,
}

/// The values that distinguish an instance of a template from others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    /// Indexes of client and server in their pools.
    pub(crate) client: u64,
    pub(crate) server: u64,
    /// First client port; the others follow, see [`port`].
    pub(crate) port: u16,
    /// Seed for everything else: sequence numbers, identifications.
    pub(crate) key: u64,
}

/// Lowest client port.
pub(crate) const FIRST_PORT: u16 = 1024;
/// Number of client ports.
pub(crate) const PORTS: u64 = 65_536 - FIRST_PORT as u64;

/// Client port number `slot` of an instance whose first port is `first`; wraps around.
pub(crate) fn port(first: u16, slot: u16) -> u16 {
    let n = (u64::from(first.saturating_sub(FIRST_PORT)) + u64::from(slot)) % PORTS;
    FIRST_PORT + n as u16
}

/// The source of an instance's addresses.
pub(crate) trait Addresses {
    /// Address number `index` of a side.
    fn address(&self, side: Dir, v6: bool, index: u64) -> IpAddr;
    /// MAC address of a side.
    fn mac(&self, side: Dir) -> [u8; 6];
}

/// A frame for a template, with its time in nanoseconds.
pub(crate) struct Raw {
    pub(crate) at: u64,
    pub(crate) frame: Vec<u8>,
    pub(crate) wire_len: u32,
}

type Tuple = (u8, [(IpAddr, u16); 2]);

impl Template {
    /// Reads a capture of one session, or of a few that belong together. With `one_client`, all addresses of the client's side
    /// become one address, as TRex does for templates with a plugin.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the file.
    pub(crate) fn load(path: &Path, one_client: bool) -> Result<Template, String> {
        let fail = |e: String| format!("the template {} cannot be used: {e}", path.display());
        let file = File::open(path).map_err(|e| fail(e.to_string()))?;
        if file.metadata().is_ok_and(|m| m.is_dir()) {
            return Err(fail("it is a folder".into()));
        }
        let mut reader = Reader::new(file, path).map_err(|e| fail(e.to_string()))?;
        let mut raw: Vec<Raw> = Vec::new();
        let (mut bytes, mut skipped, mut first) = (0usize, 0u64, None);
        const MACS: [u8; 12] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        while let Some(batch) = reader.next_batch(256).map_err(|e| fail(e.to_string()))? {
            for f in batch.iter() {
                let Some(data) = frame::to_ethernet(f.link, f.data, &MACS) else {
                    skipped += 1;
                    continue;
                };
                bytes += data.len();
                if bytes > MAX_BYTES {
                    return Err(fail(format!(
                        "it has more than {} MB: a template is one session; send a whole capture with 'traffic send'",
                        MAX_BYTES / 1_000_000
                    )));
                }
                let first = *first.get_or_insert(f.time.0);
                let at = u64::try_from(f.time.0.saturating_sub(first)).unwrap_or(0).saturating_mul(1000);
                let extra = f.wire_len.saturating_sub(f.data.len() as u32);
                raw.push(Raw { at, wire_len: data.len() as u32 + extra, frame: data });
            }
        }
        if raw.is_empty() {
            return Err(fail(match skipped {
                0 => "it holds no packets".into(),
                n => format!("none of its {n} packets is Ethernet or IP"),
            }));
        }
        // Times within a session must not decrease.
        let mut latest = 0;
        for r in &mut raw {
            latest = r.at.max(latest);
            r.at = latest;
        }
        Template::new(raw, one_client).map_err(fail)
    }

    /// Makes a template from frames in time order. The first packet's sender is the client, unless the packet is a SYN-ACK.
    pub(crate) fn new(raw: Vec<Raw>, one_client: bool) -> Result<Template, String> {
        let mut t = Template {
            packets: Vec::with_capacity(raw.len()),
            bytes: Vec::new(),
            endpoints: Vec::new(),
            ports: 0,
            flows: 0,
            lap: None,
            v6: false,
        };
        let mut slots: HashMap<(u8, u8, u16), u8> = HashMap::new();
        let mut streams: HashMap<Tuple, u16> = HashMap::new();
        let mut last = Dir::Client;
        for r in raw {
            let Raw { at, mut frame, wire_len } = r;
            let layout = frame::parse(&frame);
            let mut p = Packet {
                at,
                start: t.bytes.len(),
                len: frame.len() as u32,
                wire_len,
                dir: last,
                layout,
                src: KEEP,
                dst: KEEP,
                sport: KEEP,
                dport: KEEP,
                stream: 0,
                sack: (0, 0),
            };
            if let Some(l) = layout
                && let Some((src, dst)) = l.ends(&frame)
            {
                let whole = wire_len as usize <= frame.len();
                if whole {
                    l.fix(&mut frame);
                }
                let ports = l.ports(&frame).unwrap_or((0, 0));
                if t.endpoints.is_empty() {
                    let answer = l.tcp_flags(&frame).is_some_and(|f| f & 0x12 == 0x12);
                    let side = if answer { Dir::Server } else { Dir::Client };
                    t.endpoint(src, side, one_client);
                    t.endpoint(dst, side.other(), one_client);
                }
                let known = |t: &Template, a: IpAddr| t.endpoints.iter().find(|e| e.addr == a).map(|e| e.side);
                let side = known(&t, src).or_else(|| known(&t, dst).map(Dir::other)).unwrap_or(Dir::Client);
                p.src = t.endpoint(src, side, one_client);
                p.dst = t.endpoint(dst, side.other(), one_client);
                p.dir = t.endpoints.get(usize::from(p.src)).map_or(side, |e| e.side);
                last = p.dir;
                t.v6 |= l.v6;
                if l.has_ports() {
                    let mut ends = [(src, ports.0), (dst, ports.1)];
                    ends.sort();
                    let next = streams.len() as u16;
                    p.stream = *streams.entry((l.proto, ends)).or_insert(next);
                    p.sport = t.slot(&mut slots, p.src, l.proto, ports.0);
                    p.dport = t.slot(&mut slots, p.dst, l.proto, ports.1);
                    if l.proto == TCP {
                        p.sack = sack(&frame, &l);
                    }
                }
            }
            t.bytes.extend_from_slice(&frame);
            t.packets.push(p);
        }
        t.flows = streams.len() as u32;
        Ok(t)
    }

    fn endpoint(&mut self, addr: IpAddr, side: Dir, one_client: bool) -> u8 {
        if let Some(at) = self.endpoints.iter().position(|e| e.addr == addr) {
            return at as u8;
        }
        let fixed = match addr {
            IpAddr::V4(a) => a.is_multicast() || a.is_broadcast() || a.is_unspecified(),
            IpAddr::V6(a) => a.is_multicast() || a.is_unspecified(),
        };
        if fixed || self.endpoints.len() >= usize::from(KEEP) {
            return KEEP;
        }
        let before = self.endpoints.iter().filter(|e| e.side == side).count() as u16;
        let ordinal = if one_client && side == Dir::Client { 0 } else { before };
        self.endpoints.push(Endpoint { addr, side, ordinal });
        (self.endpoints.len() - 1) as u8
    }

    /// The slot of a client's port. Ports below 1024 stay, because protocols such as DHCP and NTP use them on the client's side, too.
    fn slot(&mut self, slots: &mut HashMap<(u8, u8, u16), u8>, end: u8, proto: u8, port: u16) -> u8 {
        if port < FIRST_PORT || self.endpoints.get(usize::from(end)).is_none_or(|e| e.side != Dir::Client) {
            return KEEP;
        }
        let next = slots.len();
        if next >= usize::from(KEEP) {
            return slots.get(&(end, proto, port)).copied().unwrap_or(KEEP);
        }
        let slot = *slots.entry((end, proto, port)).or_insert(next as u8);
        self.ports = slots.len() as u16;
        slot
    }

    pub(crate) fn data(&self, p: &Packet) -> &[u8] {
        self.bytes.get(p.start..p.start + p.len as usize).unwrap_or(&[])
    }

    /// Number of packets of an instance, and the bytes of its frames on the wire.
    pub(crate) fn totals(&self) -> (u64, u64) {
        let sum = |p: &[Packet]| p.iter().map(|p| u64::from(p.wire_len)).sum::<u64>();
        let (mut packets, mut bytes) = (self.packets.len() as u64, sum(&self.packets));
        if let Some(lap) = self.lap {
            let again = lap.times.saturating_sub(1);
            let part = self.packets.get(lap.from..lap.to).unwrap_or(&[]);
            packets = packets.saturating_add(again.saturating_mul(part.len() as u64));
            bytes = bytes.saturating_add(again.saturating_mul(sum(part)));
        }
        (packets, bytes)
    }

    /// Duration of an instance, in nanoseconds.
    pub(crate) fn duration(&self) -> u64 {
        let laps = self.lap.map_or(0, |l| l.time.saturating_mul(l.times.saturating_sub(1)));
        self.packets.last().map_or(0, |p| p.at).saturating_add(laps)
    }

    /// Sets new times: `gap` after a packet of the same side, `turn` after a packet of the other side.
    pub(crate) fn pace(&mut self, gap: u64, turn: u64) {
        let (mut now, mut last) = (0, None);
        for p in &mut self.packets {
            now += match last {
                None => 0,
                Some(dir) if dir == p.dir => gap,
                Some(_) => turn,
            };
            p.at = now;
            last = Some(p.dir);
        }
    }

    /// Replaces gaps shorter than `least` by `by`.
    pub(crate) fn min_gap(&mut self, least: u64, by: u64) {
        let (mut now, mut before) = (0, 0);
        for p in &mut self.packets {
            let gap = p.at - before;
            before = p.at;
            now += if gap < least { by } else { gap };
            p.at = now;
        }
    }

    /// Sets the round-trip time: each change of direction takes half of it, and other gaps stay.
    pub(crate) fn round_trip(&mut self, rtt: u64) {
        let (mut now, mut before, mut last) = (0, 0, None);
        for p in &mut self.packets {
            let gap = p.at - before;
            before = p.at;
            now += if last.is_some_and(|d| d != p.dir) { rtt / 2 } else { gap };
            p.at = now;
            last = Some(p.dir);
        }
    }

    /// The flow that identifies an instance: protocol, addresses and ports of its first IP packet (ports 0 if it has none).
    pub(crate) fn first_flow(&self, id: &Identity, pool: &dyn Addresses) -> Option<(u8, IpAddr, u16, IpAddr, u16)> {
        let p = self.packets.iter().find(|p| p.layout.is_some())?;
        let l = p.layout?;
        let (sport, dport) = l.ports(self.data(p)).unwrap_or((0, 0));
        let (src, dst) = l.ends(self.data(p))?;
        let new = |slot: u8, old: u16| if slot == KEEP { old } else { port(id.port, u16::from(slot)) };
        Some((
            l.proto,
            self.new_address(p.src, id, pool).unwrap_or(src),
            new(p.sport, sport),
            self.new_address(p.dst, id, pool).unwrap_or(dst),
            new(p.dport, dport),
        ))
    }

    fn new_address(&self, end: u8, id: &Identity, pool: &dyn Addresses) -> Option<IpAddr> {
        let e = self.endpoints.get(usize::from(end))?;
        let own = if e.side == Dir::Client { id.client } else { id.server };
        Some(pool.address(e.side, e.addr.is_ipv6(), own.wrapping_add(u64::from(e.ordinal))))
    }

    /// Replaces `out` by packet `p` of an instance, in lap number `lap`.
    pub(crate) fn emit(&self, p: &Packet, lap: u64, id: &Identity, pool: &dyn Addresses, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(self.data(p));
        put(out, 0, &pool.mac(p.dir.other()));
        put(out, 6, &pool.mac(p.dir));
        let Some(l) = p.layout else { return };
        let (l3, l4) = (usize::from(l.l3), usize::from(l.l4));
        let (src_at, dst_at, _) = l.addresses();
        let (mut ends, mut ident, mut rest) = (Delta::default(), Delta::default(), Delta::default());
        for (end, at) in [(p.src, src_at), (p.dst, dst_at)] {
            match self.new_address(end, id, pool) {
                Some(IpAddr::V4(a)) => ends.replace(out, at, &a.octets(), l3),
                Some(IpAddr::V6(a)) => ends.replace(out, at, &a.octets(), l3),
                None => {}
            }
        }
        if l.id != 0
            && let Some(old) = be16(out, usize::from(l.id))
        {
            let new = old.wrapping_add(id.key as u16).wrapping_add((lap as u16).wrapping_mul(257));
            ident.replace(out, usize::from(l.id), &new.to_be_bytes(), l3);
        }
        if !l.v6 {
            ends.plus(ident).apply(out, l3 + 10, false);
        }
        if l4 == 0 {
            return;
        }
        for (slot, at) in [(p.sport, l4), (p.dport, l4 + 2)] {
            if slot != KEEP {
                rest.replace(out, at, &port(id.port, u16::from(slot)).to_be_bytes(), l4);
            }
        }
        if l.proto == TCP {
            let lapped = self.lap.map_or([0, 0], |w| w.seq.map(|s| s.wrapping_mul(lap as u32)));
            let start = |d: Dir| {
                let chance = mix(id.key ^ (u64::from(p.stream) << 40) ^ (d as u64 + 1)) as u32;
                chance.wrapping_add(lapped[d as usize])
            };
            let (mine, theirs) = (start(p.dir), start(p.dir.other()));
            let mut add = |out: &mut Vec<u8>, at: usize, n: u32| {
                if let Some(old) = be32(out, at) {
                    rest.replace(out, at, &old.wrapping_add(n).to_be_bytes(), l4);
                }
            };
            add(out, l4 + 4, mine);
            if out.get(l4 + 13).is_some_and(|f| f & 0x10 != 0) {
                add(out, l4 + 8, theirs);
            }
            for block in 0..usize::from(p.sack.1) * 2 {
                add(out, usize::from(p.sack.0) + block * 4, theirs);
            }
        }
        let check = usize::from(l.check);
        if check == 0 {
            return;
        }
        if matches!(l.proto, ICMP | ICMPV6) {
            self.quoted(&l, id, pool, out);
        } else if !(l.proto == UDP && !l.v6 && be16(out, check) == Some(0)) {
            ends.plus(rest).apply(out, check, l.proto == UDP);
        }
    }

    /// Adapts the packet that an ICMP error quotes, and computes the checksum.
    fn quoted(&self, l: &Layout, id: &Identity, pool: &dyn Addresses, out: &mut [u8]) {
        let (l4, end) = (usize::from(l.l4), usize::from(l.end));
        let kind = out.get(l4).copied().unwrap_or(0);
        let error = if l.v6 { kind < 128 } else { matches!(kind, 3 | 4 | 5 | 11 | 12) };
        let inner = l4 + 8;
        if error && !l.v6 && out.get(inner).is_some_and(|b| b >> 4 == 4) && inner + 20 <= end {
            let mut delta = Delta::default();
            for at in [inner + 12, inner + 16] {
                let Some(old) = out.get(at..at + 4).and_then(|b| b.first_chunk::<4>()).map(|b| IpAddr::from(*b)) else {
                    continue;
                };
                let known = self.endpoints.iter().position(|e| e.addr == old);
                if let Some(IpAddr::V4(a)) = known.and_then(|k| self.new_address(k as u8, id, pool)) {
                    delta.replace(out, at, &a.octets(), inner);
                }
            }
            delta.apply(out, inner + 10, false);
        }
        l.fix(out);
    }
}

/// Offset and number of a TCP header's selective acknowledgement blocks (RFC 2018).
fn sack(frame: &[u8], l: &Layout) -> (u16, u8) {
    let l4 = usize::from(l.l4);
    let end = (l4 + frame.get(l4 + 12).map_or(0, |b| usize::from(b >> 4) * 4)).min(usize::from(l.end));
    let mut at = l4 + 20;
    while at < end {
        match frame.get(at) {
            Some(1) => at += 1,
            Some(0) | None => break,
            Some(&kind) => {
                let len = frame.get(at + 1).map_or(0, |b| usize::from(*b));
                if len < 2 || at + len > end {
                    break;
                }
                if kind == 5 {
                    return (u16::try_from(at + 2).unwrap_or(0), ((len - 2) / 8) as u8);
                }
                at += len;
            }
        }
    }
    (0, 0)
}
