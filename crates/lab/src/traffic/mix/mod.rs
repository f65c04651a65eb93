//! Makes a profile's stream of packets, in time order.
//!
//! A heap has the coming events: a source begins a session, a session sends its next packet, a delayed packet is sent. A
//! session in progress is a few numbers and a reference to its template. Memory therefore grows with the number of sessions
//! that are active at the same time, not with the length of the output.

mod impair;
mod source;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use super::attack::ATTACKS;
use super::profile::{Impair, Pools, Profile, What};
use super::rng::{Rng, mix};
use super::session::Place;
use super::template::{Dir, FIRST_PORT, Identity, PORTS, Packet, Template, port};
use source::{Body, OneServer, Running};
pub(crate) use source::{SourceSummary, Tally};

/// Most sessions at a time. Sessions that would exceed the limit do not begin, and are counted in [`Tally::refused`].
const MAX_ACTIVE: usize = 4_000_000;
/// In a pool with more clients than this, a session's port follows from its number, not from its client's last port.
const MAX_COUNTED: u64 = 1 << 22;

struct Active {
    template: Arc<Template>,
    source: u32,
    next: u32,
    lap: u64,
    start: u64,
    id: Identity,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Begin(u32),
    Step(u32),
    Held(u32),
}

/// A packet's time, length and direction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    /// Nanoseconds since the traffic began.
    pub(crate) at: u64,
    pub(crate) wire_len: u32,
    pub(crate) dir: Dir,
}

struct Held {
    frame: Vec<u8>,
    made: Made,
    source: u32,
}

/// The ground truth of one attack session.
#[derive(Clone, Debug)]
pub(crate) struct Truth {
    pub(crate) name: &'static str,
    pub(crate) sid: u32,
    pub(crate) by_source: bool,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) proto: u8,
    pub(crate) client: (IpAddr, u16),
    pub(crate) server: (IpAddr, u16),
}

/// Length and speed of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// Factor for the profile's sessions a second.
    pub(crate) multiplier: f64,
    /// Sessions begin until this time (nanoseconds), and are then finished.
    pub(crate) until: u64,
}

/// The stream of packets, see the module.
pub(crate) struct Mix {
    sources: Vec<Running>,
    heap: BinaryHeap<Reverse<(u64, u64, Event)>>,
    order: u64,
    active: Vec<Option<Active>>,
    free: Vec<u32>,
    held: Vec<Option<Held>>,
    held_free: Vec<u32>,
    /// Remaining fragments of a packet, all sent at the same time.
    ready: VecDeque<(Made, Vec<u8>)>,
    pools: Pools,
    random: bool,
    poisson: bool,
    impair: Impair,
    rng: Rng,
    until: u64,
    /// By address family (IPv4, IPv6): the number of sessions begun, and each client's next port.
    count: [u64; 2],
    ports: [Vec<u16>; 2],
    truths: Vec<Truth>,
}

impl Mix {
    /// Loads and builds the templates of a profile.
    ///
    /// # Errors
    /// A sentence that names the template and what is wrong with it.
    pub(crate) fn new(profile: &Profile, seed: u64) -> Result<Mix, String> {
        let mut sources = Vec::new();
        for (n, spec) in profile.sources.iter().enumerate() {
            sources.push(Running::new(spec, &profile.pools, Rng::new(seed, n as u64 + 1))?);
        }
        let counted = |v6: bool| {
            let n = profile.pools.pool(Dir::Client, v6).len();
            if n <= MAX_COUNTED { vec![0u16; n as usize] } else { Vec::new() }
        };
        let six = profile.sources.iter().any(|s| s.ipv6)
            || sources.iter().any(|s| matches!(&s.body, Body::Fixed(t) if t.iter().any(|t| t.v6)));
        Ok(Mix {
            sources,
            heap: BinaryHeap::new(),
            order: 0,
            active: Vec::new(),
            free: Vec::new(),
            held: Vec::new(),
            held_free: Vec::new(),
            ready: VecDeque::new(),
            random: profile.random,
            poisson: profile.poisson,
            impair: profile.impair,
            rng: Rng::new(seed, 0),
            until: 0,
            count: [0, 0],
            ports: [counted(false), if six { counted(true) } else { Vec::new() }],
            pools: profile.pools.clone(),
            truths: Vec::new(),
        })
    }

    /// Long-run means of the profile as written, a second: bits of frames, packets, sessions.
    pub(crate) fn rates(&self) -> (f64, f64, f64) {
        self.sources.iter().fold((0.0, 0.0, 0.0), |(b, p, c), s| {
            let cps = s.spec.cps;
            (b + cps * s.bytes * 8.0, p + cps * s.packets, c + cps)
        })
    }

    /// A summary of each source.
    pub(crate) fn sources(&self) -> impl Iterator<Item = SourceSummary<'_>> {
        self.sources.iter().map(|s| SourceSummary {
            name: &s.spec.name,
            cps: s.spec.cps,
            packets: s.packets,
            bytes: s.bytes,
            bytes_sd: s.bytes_sd,
            samples: s.samples,
            tally: s.tally,
        })
    }

    /// Whether sessions begin at random times, so that their number is random, too.
    pub(crate) fn by_chance(&self) -> bool {
        self.poisson
    }

    /// Finds a duration within 2 % of `about` (nanoseconds) at which rounding to whole sessions distorts the profile least: first
    /// by the source with the largest relative error, then by the error of all bytes.
    pub(crate) fn fitting(&self, multiplier: f64, about: f64) -> f64 {
        const STEPS: i32 = 400;
        if self.poisson {
            return about;
        }
        let off = |until: f64| {
            self.sources.iter().fold((0.0f64, 0.0), |(worst, bytes), s| {
                let expected = until * s.spec.cps * multiplier / 1e9;
                let off = (expected.round() - expected).abs();
                (worst.max(off / expected), bytes + off * s.bytes)
            })
        };
        let candidates = (-STEPS..=STEPS).map(|k| about * (1.0 + 0.02 * f64::from(k) / f64::from(STEPS)));
        let rated = candidates.map(|until| (off(until), until));
        let best = rated.min_by(|((a, b), _), ((c, d), _)| a.total_cmp(c).then(b.total_cmp(d)));
        best.map_or(about, |(_, until)| until)
    }

    /// Begins the stream. Call it once, before [`Mix::next`].
    pub(crate) fn start(&mut self, plan: &Plan) {
        self.until = plan.until;
        for n in 0..self.sources.len() {
            let s = &mut self.sources[n];
            s.period = 1e9 / (s.spec.cps * plan.multiplier);
            s.phase = s.rng.unit();
            if !self.poisson {
                // Round the profile's number of sessions in this time to a whole number, and spread them evenly.
                let sessions = (plan.until as f64 / s.period).round();
                s.quota = Some(sessions as u64);
                s.period = plan.until as f64 / sessions.max(1.0);
            }
            self.arrive(n);
        }
    }

    fn push(&mut self, at: u64, event: Event) {
        self.order += 1;
        self.heap.push(Reverse((at, self.order, event)));
    }

    /// Plans the next session of a source.
    fn arrive(&mut self, n: usize) {
        let poisson = self.poisson;
        let Some(s) = self.sources.get_mut(n) else { return };
        let at = if poisson {
            let gap = -(1.0 - s.rng.unit()).ln();
            s.phase += gap;
            s.phase * s.period
        } else {
            (s.begun as f64 + s.phase) * s.period
        };
        let due = s.quota.map_or(at < self.until as f64, |quota| s.begun < quota);
        s.begun += 1;
        if due {
            self.push(at as u64, Event::Begin(n as u32));
        }
    }

    /// Attacks that began since the previous call.
    pub(crate) fn truths(&mut self) -> impl Iterator<Item = Truth> {
        self.truths.drain(..)
    }

    /// Sessions in progress.
    pub(crate) fn active(&self) -> usize {
        self.active.len() - self.free.len()
    }

    /// Makes the next packet in `out`; `None` after the last one.
    pub(crate) fn next(&mut self, out: &mut Vec<u8>) -> Option<Made> {
        loop {
            if let Some((made, frame)) = self.ready.pop_front() {
                *out = frame;
                return Some(made);
            }
            let Reverse((at, _, event)) = self.heap.pop()?;
            match event {
                Event::Begin(n) => {
                    self.begin(at, n);
                    self.arrive(n as usize);
                }
                Event::Step(slot) => {
                    if let Some(made) = self.step(at, slot, out) {
                        return Some(made);
                    }
                }
                Event::Held(slot) => {
                    let Some(held) = self.held.get_mut(slot as usize).and_then(Option::take) else { continue };
                    self.held_free.push(slot);
                    *out = held.frame;
                    let made = Made { at, ..held.made };
                    self.count_packet(held.source, &made);
                    return Some(made);
                }
            }
        }
    }

    fn count_packet(&mut self, source: u32, made: &Made) {
        if let Some(s) = self.sources.get_mut(source as usize) {
            s.tally.packets += 1;
            s.tally.bytes += u64::from(made.wire_len);
        }
    }

    fn begin(&mut self, at: u64, n: u32) {
        if self.active() >= MAX_ACTIVE {
            if let Some(s) = self.sources.get_mut(n as usize) {
                s.tally.refused += 1;
            }
            return;
        }
        let Some(s) = self.sources.get_mut(n as usize) else { return };
        let ready = match &s.body {
            // Take the variants in turn, so that the traffic has their mean.
            Body::Fixed(all) => Some(Arc::clone(&all[(s.begun as usize).wrapping_sub(1) % all.len()])),
            Body::Fresh => None,
        };
        let v6 = ready.as_ref().map_or(s.spec.ipv6, |t| t.v6);
        // A kind that is built for each instance has at most three client ports.
        let slots = ready.as_ref().map_or(3, |t| t.ports.max(1));
        let id = self.identity(n as usize, v6, slots);
        let Some(s) = self.sources.get_mut(n as usize) else { return };
        let template = match ready {
            Some(t) => t,
            None => {
                let place = Place {
                    client: self.pools.pool(Dir::Client, v6).get(id.client),
                    server: self.pools.pool(Dir::Server, v6).get(id.server),
                    port: id.port,
                };
                match s.build(place) {
                    Ok(t) => Arc::new(t),
                    Err(_) => return,
                }
            }
        };
        s.tally.sessions += 1;
        s.tally.flows += u64::from(template.flows);
        if let What::Attack(k) = s.spec.what
            && let Some(a) = ATTACKS.get(k)
            && let Some((proto, c, cp, d, dp)) = template.first_flow(&id, &self.pools)
        {
            self.truths.push(Truth {
                name: a.name,
                sid: a.sid,
                by_source: a.by_source(),
                start: at,
                end: at + template.duration(),
                proto,
                client: (c, cp),
                server: (d, dp),
            });
        }
        let first = template.packets.first().map_or(0, |p| p.at);
        let active = Active { template, source: n, next: 0, lap: 0, start: at, id };
        let slot = match self.free.pop() {
            Some(slot) => {
                if let Some(place) = self.active.get_mut(slot as usize) {
                    *place = Some(active);
                }
                slot
            }
            None => {
                self.active.push(Some(active));
                (self.active.len() - 1) as u32
            }
        };
        self.push(at + first, Event::Step(slot));
    }

    /// Chooses the addresses, port and random key of a source's next session.
    fn identity(&mut self, n: usize, v6: bool, slots: u16) -> Identity {
        let clients = self.pools.pool(Dir::Client, v6).len();
        let servers = self.pools.pool(Dir::Server, v6).len();
        let count = self.count[usize::from(v6)];
        let key = self.rng.next();
        let Some(s) = self.sources.get_mut(n) else { return Identity { client: 0, server: 0, port: FIRST_PORT, key } };
        if let Some(limit) = s.spec.limit {
            // The same sessions repeat, so everything is derived from the session's number.
            let k = (s.begun - 1) % limit;
            let key = mix(k ^ ((n as u64) << 48));
            let first = FIRST_PORT + ((k / clients * u64::from(slots)) % PORTS) as u16;
            return Identity { client: k % clients, server: k % servers, port: first, key };
        }
        let (client, mut server) = match &mut s.burst {
            Some((id, left)) if *left > 0 => {
                *left -= 1;
                (id.client, id.server)
            }
            _ => {
                self.count[usize::from(v6)] += 1;
                if self.random {
                    (self.rng.below(clients), self.rng.below(servers))
                } else {
                    (count % clients, count % servers)
                }
            }
        };
        if s.spec.one_server.is_some() {
            // Number 0 is the pool's first server. If the profile names a server, `OneServer` replaces the address.
            server = 0;
        }
        let first = match self.ports[usize::from(v6)].get_mut(client as usize) {
            Some(next) => {
                let first = port(FIRST_PORT, *next);
                *next = ((u64::from(*next) + u64::from(slots)) % PORTS) as u16;
                first
            }
            None => FIRST_PORT + (mix(count) % PORTS) as u16,
        };
        let id = Identity { client, server, port: first, key };
        if s.spec.burst > 1 && s.burst.is_none_or(|(_, left)| left == 0) {
            s.burst = Some((id, s.spec.burst - 1));
        } else if let Some((_, 0)) = s.burst {
            s.burst = None;
        }
        id
    }

    /// Makes a session's next packet; `None` if it is lost or delayed.
    fn step(&mut self, at: u64, slot: u32, out: &mut Vec<u8>) -> Option<Made> {
        let active = self.active.get_mut(slot as usize)?.as_mut()?;
        let template = Arc::clone(&active.template);
        let (id, source, lap) = (active.id, active.source, active.lap);
        let p: &Packet = template.packets.get(active.next as usize)?;
        let one = self.sources.get(source as usize).and_then(|s| s.spec.one_server).flatten();
        match one {
            Some(server) => template.emit(p, lap, &id, &OneServer { pools: &self.pools, server }, out),
            None => template.emit(p, lap, &id, &self.pools, out),
        }
        let made = Made { at, wire_len: p.wire_len, dir: p.dir };

        active.next += 1;
        let mut laps = 0;
        if let Some(w) = template.lap {
            if active.next as usize == w.to && active.lap + 1 < w.times {
                active.lap += 1;
                active.next = w.from as u32;
            }
            laps = active.lap * w.time;
        }
        let follower = template.packets.get(active.next as usize).map(|n| (active.start + n.at + laps, n.dir));
        match follower {
            Some((next, _)) => self.push(next.max(at), Event::Step(slot)),
            None => {
                if let Some(place) = self.active.get_mut(slot as usize) {
                    *place = None;
                }
                self.free.push(slot);
            }
        }
        if self.impair == Impair::default() {
            self.count_packet(source, &made);
            return Some(made);
        }
        self.impaired(made, follower, source, out)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::path::Path;

    use margay_config::Yaml;

    use super::*;
    use crate::traffic::{frame, preset};

    fn profile(text: &str) -> Profile {
        Profile::read(&Yaml::parse(text, "test").unwrap(), Path::new(""), "test".into()).unwrap()
    }

    fn run(profile: &Profile, seed: u64, until: u64) -> Vec<(Made, Vec<u8>)> {
        let mut mix = Mix::new(profile, seed).unwrap();
        mix.start(&Plan { seed, multiplier: 1.0, until });
        let (mut out, mut frame) = (Vec::new(), Vec::new());
        while let Some(made) = mix.next(&mut frame) {
            out.push((made, frame.clone()));
        }
        assert_eq!(mix.active(), 0, "every session was finished");
        out
    }

    /// Checks TCP streams: each segment begins where its side's last one ended, each acknowledgement covers only sent data, and
    /// each stream begins with SYN and ends with a FIN from both sides. Returns the number of streams.
    fn follow(packets: &[(Made, Vec<u8>)]) -> usize {
        struct Side {
            next: u32,
            fin: bool,
        }
        let mut sides: HashMap<(IpAddr, u16, IpAddr, u16), Side> = HashMap::new();
        for (_, f) in packets {
            let l = frame::parse(f).unwrap();
            let mut anew = f.clone();
            l.fix(&mut anew);
            assert_eq!(&anew, f, "checksums are right");
            let Some(flags) = l.tcp_flags(f) else { continue };
            let ((src, dst), (sp, dp)) = (l.ends(f).unwrap(), l.ports(f).unwrap());
            let l4 = usize::from(l.l4);
            let (seq, ack) = (frame::be32(f, l4 + 4).unwrap(), frame::be32(f, l4 + 8).unwrap());
            let data = u32::from(l.end) - u32::from(l.l4) - u32::from(f[l4 + 12] >> 4) * 4;
            if flags & 0x10 != 0 {
                let other = &sides[&(dst, dp, src, sp)];
                assert!(
                    other.next.wrapping_sub(ack) < 1 << 20,
                    "{ack} acknowledges what was not sent ({})",
                    other.next
                );
            }
            let side = sides.entry((src, sp, dst, dp)).or_insert_with(|| {
                assert!(flags & 2 != 0, "a stream begins with SYN");
                Side { next: seq, fin: false }
            });
            assert_eq!(seq, side.next, "no gap, nothing twice: {src}:{sp} {dst}:{dp}");
            side.next = seq.wrapping_add(data + u32::from(flags & 3 != 0));
            side.fin |= flags & 1 != 0;
        }
        assert!(sides.values().all(|s| s.fin), "every stream is closed from both sides");
        sides.len() / 2
    }

    #[test]
    fn sessions_of_every_kind_are_whole() {
        for name in ["office", "ipv6"] {
            let packets = run(&preset::load(name, None).unwrap(), 1, 300_000_000);
            assert!(follow(&packets) > 50, "{name}");
            assert!(packets.is_sorted_by_key(|(m, _)| m.at), "in the order of time");
        }
        let elephant = profile("templates: [{kind: elephant, cps: 1, bytes: 3MB}]");
        let packets = run(&elephant, 1, 1_000_000_000);
        assert_eq!(follow(&packets), 1);
        let bytes: usize = packets.iter().map(|(_, f)| f.len()).sum();
        assert!((3_000_000..3_400_000).contains(&bytes), "{bytes}");
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes() {
        let p = preset::load("attacks", None).unwrap();
        let bytes = |seed| run(&p, seed, 200_000_000).into_iter().flat_map(|(_, f)| f).collect::<Vec<u8>>();
        let one = bytes(5);
        assert!(one == bytes(5));
        assert!(one != bytes(6));
    }

    #[test]
    fn flows_are_different_from_each_other() {
        let p = profile("clients: 16.0.0.1-16.0.0.3\nservers: 48.0.0.1\ntemplates: [{kind: udp, cps: 100000}]");
        let packets = run(&p, 1, 1_000_000_000);
        let mut seen = std::collections::HashSet::new();
        for (_, f) in &packets {
            let l = frame::parse(f).unwrap();
            assert!(seen.insert((l.ends(f), l.ports(f))));
        }
        assert_eq!(packets.len(), 100_000);
    }

    #[test]
    fn counts_are_those_of_the_profile() {
        let p = profile(
            "templates:\n- {kind: dns, cps: 1000}\n- {kind: udp, cps: 333.3}\n- {kind: syn, cps: 10, limit: 4}",
        );
        let mut mix = Mix::new(&p, 1).unwrap();
        mix.start(&Plan { seed: 1, multiplier: 2.0, until: 5_000_000_000 });
        let mut frame = Vec::new();
        let mut syn = std::collections::HashSet::new();
        while mix.next(&mut frame).is_some() {
            let l = frame::parse(&frame).unwrap();
            if l.proto == frame::TCP {
                syn.insert(frame[12..].to_vec());
            }
        }
        let sessions: Vec<u64> = mix.sources().map(|s| s.tally.sessions).collect();
        assert_eq!(sessions, [10_000, 3333, 100]);
        assert_eq!(syn.len(), 4, "the same four again and again");
    }

    #[test]
    fn few_sessions_are_as_many_as_the_profile_has_to_the_nearest() {
        let p = profile("templates:\n- {kind: dns, cps: 10.4}\n- {kind: udp, cps: 0.6}\n- {kind: ping, cps: 0.4}");
        for seed in 0..20 {
            let mut mix = Mix::new(&p, seed).unwrap();
            mix.start(&Plan { seed, multiplier: 1.0, until: 1_000_000_000 });
            let mut frame = Vec::new();
            while mix.next(&mut frame).is_some() {}
            let sessions: Vec<u64> = mix.sources().map(|s| s.tally.sessions).collect();
            assert_eq!(sessions, [10, 1, 0], "seed {seed}");
        }
    }

    #[test]
    fn a_size_is_fitted_to_whole_sessions() {
        // 1000 and 10.4 sessions a second. In one second, 10 of the rare sessions are 4 % too few; in 0.98 s, 2 %.
        let p = profile("templates:\n- {kind: dns, cps: 1000}\n- {kind: udp, cps: 10.4}");
        let mix = Mix::new(&p, 1).unwrap();
        let until = mix.fitting(1.0, 1e9);
        assert!((until / 0.98e9 - 1.0).abs() < 1e-6, "{until}");
        // In 10 / 10.4 = 0.9615 s, there are exactly 10 of the rare sessions.
        let until = mix.fitting(1.0, 0.96e9);
        assert!((until * 10.4 / 1e9 - 10.0).abs() < 0.01, "{until}");
    }

    #[test]
    fn what_goes_wrong_on_the_way() {
        let whole = profile("templates: [{kind: http, cps: 50, bytes: 20kB}]");
        let n = run(&whole, 1, 2_000_000_000).len() as f64;
        let lossy = profile("loss: 10%\ntemplates: [{kind: http, cps: 50, bytes: 20kB}]");
        let left = run(&lossy, 1, 2_000_000_000).len() as f64;
        assert!((left / n - 0.9).abs() < 0.02, "{left} of {n}");

        let cut = profile(
            "fragment: 576\ntemplates:\n- {kind: udp, cps: 10, bytes: 3000}\n- {kind: udp, cps: 10, bytes: 3000, ipv6: yes}",
        );
        let packets = run(&cut, 1, 1_000_000_000);
        let mut bytes: HashMap<(bool, u32), usize> = HashMap::new();
        for (_, f) in &packets {
            let l = frame::parse(f).unwrap();
            assert!(usize::from(l.end) - 14 <= 576 && l.fragment);
            let id = if l.v6 { frame::be32(f, 14 + 44).unwrap() } else { u32::from(frame::be16(f, 18).unwrap()) };
            let head = if l.v6 { 48 } else { 20 };
            *bytes.entry((l.v6, id)).or_default() += usize::from(l.end) - 14 - head;
        }
        assert_eq!(bytes.len(), 20);
        // A frame of 3000 bytes has 2966 bytes after the IPv4 header, or 2946 after the IPv6 header.
        assert!(bytes.iter().all(|((v6, _), n)| *n == if *v6 { 2946 } else { 2966 }), "{bytes:?}");

        let mixed = profile("reorder: 20%\ntemplates: [{kind: http, cps: 20, bytes: 40kB}]");
        let packets = run(&mixed, 1, 1_000_000_000);
        let sorted = run(&profile("templates: [{kind: http, cps: 20, bytes: 40kB}]"), 1, 1_000_000_000);
        assert_eq!(packets.len(), sorted.len(), "nothing is lost");
        assert!(packets.is_sorted_by_key(|(m, _)| m.at));
    }

    #[test]
    fn what_is_wrong_with_a_profile_is_said() {
        let error = |text: &str| {
            let yaml = Yaml::parse(text, "p.yaml").unwrap();
            Profile::read(&yaml, Path::new("dir"), "p".into()).unwrap_err().to_string()
        };
        assert_eq!(
            error("templates:\n- {kind: gopher, cps: 1}"),
            "p.yaml:2:10: 'kind': 'gopher' is no kind of session; there are http, tls, dns, smtp, pop3, ftp, ssh, sip, sql, \
             udp, ping, short, syn, elephant"
        );
        assert!(
            error("templates:\n- {capture: no.pcap, cps: 1}")
                .starts_with("p.yaml:2:13: 'capture': the template 'no.pcap' is not there; looked for dir/no.pcap")
        );
        assert!(error("templates:\n- {kind: dns}").contains("2:3: the template has no 'cps'"));
        assert!(error("templates:\n- {kind: dns, cps: 0}").contains("more than 0"));
        assert!(error("templates:\n- {kind: dns, cps: 1, bits: 3}").contains("'bits' is no setting of a template"));
        assert!(error("clients: 1.2.3.4-1.2.3.1\ntemplates: [{kind: dns, cps: 1}]").contains("before it begins"));
        assert!(error("hello").contains("no profile"));
        assert!(error("- {duration: 1}").contains("no list 'cap_info'"));
        assert!(error("- cap_info: [{name: x.pcap, cps: 1}]").contains("'x.pcap' is not there"));
        assert!(error("attacks: {share: 1%}").contains("below 100 %"));
    }
}
