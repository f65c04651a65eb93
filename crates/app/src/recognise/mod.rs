//! Protocol detection: by patterns, by port and by probes, in both directions.
//!
//! Each direction is examined separately, from its first byte. One automaton per transport and direction searches the literals
//! ([`Pattern`]) of all protocols, no further than the longest of them reaches. If the port belongs to a protocol, or the
//! protocol may use any port, its [`Probe`]s run too. The match that needs the fewest bytes decides, so the segmentation of the
//! data does not matter: a probe answers [`Probed::More`] for every prefix that is too short, and never changes its answer.
//!
//! Detection gives up on a direction ([`Recognised::Failed`]) when the data exceeds all patterns and no probe is left. Less
//! data leaves it open, even at the end of the stream.
//!
//! The registry passes the protocols (`Detectable`): some have a parser, the others only a name in events and rules.

mod patterns;
mod settings;

use margay_flow::{Direction, FlowCore};

use crate::proto::AppProto;
use patterns::PatternSets;

pub use settings::{Mode, Ports, ProtocolSettings, RecogniseSettings};

/// IP protocol number of TCP.
pub const TCP: u8 = 6;
/// IP protocol number of UDP.
pub const UDP: u8 = 17;

/// The limit of data that a probe sees: more would not help it to decide.
pub(crate) const PROBE_MAX: usize = 2048;
/// The limit of probes for a transport, which are bits of a word. More are a build error.
pub(crate) const PROBES_MAX: usize = 64;

/// The number of probes for a transport.
pub(crate) const fn probes_in(probes: &[Probe], transport: u8) -> usize {
    let (mut n, mut i) = (0, 0);
    while i < probes.len() {
        if probes[i].transport == transport {
            n += 1;
        }
        i += 1;
    }
    n
}

/// The detection rules of a protocol.
#[derive(Debug, Clone, Copy)]
pub struct Recognition {
    /// Patterns; any match is enough.
    pub patterns: &'static [Pattern],
    /// Probes; they run on their ports if no pattern matched.
    pub probes: &'static [Probe],
}

impl Recognition {
    /// Whether the protocol is detected over TCP, and over UDP. A protocol that is only reached from another one counts as TCP.
    pub(crate) fn transports(&self) -> [bool; 2] {
        let over =
            |t: u8| self.patterns.iter().any(|p| p.transport == t) || self.probes.iter().any(|p| p.transport == t);
        [over(TCP) || !over(UDP), over(UDP)]
    }

    /// Whether the protocol can be detected in a direction: data of IMAP clients may begin with anything.
    fn is_told_in(&self, dir: Direction) -> bool {
        !self.probes.is_empty() || self.patterns.iter().any(|p| p.dir == dir)
    }
}

/// How a conversation begins, if protocol detection depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// Either side may begin, with any data.
    Any,
    /// The client speaks first. If the server does, detection does not accept the protocol
    /// (`applayer_wrong_direction_first_data`), and the flow stays unrecognised.
    ClientFirst,
    /// The client begins with a line of text whose first word identifies the protocol.
    Command,
    /// Either side may begin, but only the client's first message identifies the protocol.
    ClientTells,
}

/// The part of a protocol's declaration that detection uses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Detectable {
    pub proto: AppProto,
    /// How its flows are handled by default.
    pub mode: Mode,
    pub opening: Opening,
    pub recognition: Recognition,
    pub inline_probes: &'static [Probe],
    pub has_parser: bool,
}

/// A literal that identifies a protocol.
#[derive(Debug, Clone, Copy)]
pub struct Pattern {
    /// IP protocol: 6 or 17.
    pub transport: u8,
    /// The direction of the data.
    pub dir: Direction,
    /// The literal.
    pub bytes: &'static [u8],
    /// Whether it matches in any case.
    pub nocase: bool,
    /// The first offset at which it may begin.
    pub offset: u16,
    /// The last offset at which it may end.
    pub depth: u16,
}

impl Pattern {
    /// A case-sensitive TCP pattern at the very beginning of a direction.
    pub const fn tcp(dir: Direction, bytes: &'static [u8]) -> Pattern {
        Pattern { transport: TCP, dir, bytes, nocase: false, offset: 0, depth: bytes.len() as u16 }
    }

    /// Makes the pattern match in any case.
    pub const fn nocase(self) -> Pattern {
        Pattern { nocase: true, ..self }
    }

    /// Makes the pattern begin at `offset`.
    pub const fn at(self, offset: u16) -> Pattern {
        Pattern { offset, depth: offset + self.bytes.len() as u16, ..self }
    }

    /// Makes the pattern end by `depth`.
    pub const fn within(self, depth: u16) -> Pattern {
        Pattern { depth, ..self }
    }
}

/// The answer of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probed {
    /// The data is this protocol.
    Yes {
        /// The flow's direction is wrong.
        reverse: bool,
    },
    /// The data is not this protocol.
    No,
    /// More data is needed.
    More,
}

/// A function that identifies a protocol by the first bytes.
#[derive(Debug, Clone, Copy)]
pub struct Probe {
    /// IP protocol: 6 or 17.
    pub transport: u8,
    /// Server ports on which it runs, unless the configuration (`detection-ports`) names others; empty for any port.
    pub ports: &'static [u16],
    /// Examines the first bytes of a direction. Once it answers `Yes` or `No`, more data does not change the answer.
    pub probe: fn(Direction, &[u8]) -> Probed,
}

/// The result of detection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recognised {
    /// The data is this protocol.
    Known {
        /// The protocol.
        proto: AppProto,
        /// The flow's direction is wrong: its client is the server.
        reverse: bool,
    },
    /// More data is needed.
    More,
    /// The data is no known protocol.
    Failed,
}

/// The detection state of one direction.
#[derive(Debug, Clone, Default)]
struct Side {
    /// Probes that are left, one bit each; those of `turned` run as if the flow had the opposite direction.
    probes: u64,
    turned: u64,
    /// Bytes consumed from its beginning ([`RecogniseState::consumed`]).
    gone: u32,
    /// Whether the probes for its ports were selected.
    begun: bool,
    /// Whether the probes of the other direction's protocol were selected, too.
    follows: bool,
    /// No pattern can match any more.
    searched: bool,
    /// The detected protocol.
    found: Option<AppProto>,
    /// After a failure: the probes that accept the data, whatever their ports. They count if the other direction has their protocol.
    accepted: u64,
}

/// The detection state of a flow. [`Default`] is the initial state, also after a protocol change.
#[derive(Debug, Clone, Default)]
pub struct RecogniseState {
    sides: [Side; 2],
    /// The beginning of the connection was not seen.
    midstream: bool,
    /// The flow was turned.
    turned: bool,
}

impl RecogniseState {
    /// Bytes of a direction were consumed before it was detected (the other one was): from now on, [`Recogniser::recognise`]
    /// sees data that begins after them.
    pub fn consumed(&mut self, dir: Direction, bytes: usize) {
        let [client, server] = &mut self.sides;
        let side = if dir == Direction::ToServer { client } else { server };
        side.gone = side.gone.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
    }

    /// The beginning of the flow was not seen, so its direction may be wrong. Call this for every UDP flow too. Without this
    /// call, TCP data never shows that the direction is wrong ([`Recognised::Known`]), and over UDP the client's port selects
    /// no probes of a server.
    pub const fn set_midstream(&mut self) {
        self.midstream = true;
    }

    /// The flow was turned: its data is examined again, and it is not turned a second time.
    pub fn turn_round(&mut self) {
        *self = RecogniseState { turned: true, ..RecogniseState::default() };
    }

    fn side(&mut self, dir: Direction) -> &mut Side {
        let [client, server] = &mut self.sides;
        if dir == Direction::ToServer { client } else { server }
    }
}

/// A probe with its ports.
#[derive(Debug, Clone)]
struct PortProbe {
    proto: AppProto,
    /// Server ports, and client ports; both empty for any port.
    dp: Ports,
    sp: Ports,
    any: bool,
    probe: fn(Direction, &[u8]) -> Probed,
}

/// The probes of a transport.
#[derive(Debug, Clone)]
struct Probes {
    list: Vec<PortProbe>,
    /// The probes for any port, one bit each.
    any: u64,
    /// The ports of the others, one bit each: most flows have none of them.
    ports: Box<[u64]>,
}

impl Probes {
    fn new(list: Vec<PortProbe>) -> Probes {
        let mut probes = Probes { list, any: 0, ports: vec![0; 1 << 10].into_boxed_slice() };
        for (i, p) in probes.list.iter().enumerate() {
            if p.any {
                probes.any |= 1 << i;
                continue;
            }
            for port in p.dp.iter().chain(p.sp.iter()) {
                if let Some(word) = probes.ports.get_mut(usize::from(port >> 6)) {
                    *word |= 1 << (port & 63);
                }
            }
        }
        probes
    }

    /// The probes of a protocol, one bit each.
    fn of(&self, proto: AppProto) -> u64 {
        self.list.iter().enumerate().filter(|(_, p)| p.proto == proto).fold(0, |bits, (i, _)| bits | 1 << i)
    }

    /// Those of some probes that accept data, one bit each.
    fn accept(&self, of: u64, dir: Direction, data: &[u8]) -> u64 {
        let accepts = |p: &PortProbe| matches!((p.probe)(dir, data), Probed::Yes { reverse: false });
        let asked = self.list.iter().enumerate().filter(|(i, _)| of >> i & 1 != 0);
        asked.filter(|(_, p)| accepts(p)).fold(0, |bits, (i, _)| bits | 1 << i)
    }

    /// Whether a probe other than those for any port is for this one.
    fn has(&self, port: u16) -> bool {
        self.ports.get(usize::from(port >> 6)).is_some_and(|word| word >> (port & 63) & 1 != 0)
    }

    /// The probes for a flow's ports, and those to run as if the flow had the opposite direction. Over UDP, probes for any
    /// port check both directions themselves.
    fn candidates(&self, flow: &FlowCore, midstream: bool) -> (u64, u64) {
        let (mut straight, mut turned) = (self.any, if midstream && flow.proto == TCP { self.any } else { 0 });
        if !self.has(flow.sport) && !self.has(flow.dport) {
            return (straight, turned);
        }
        for (i, p) in self.list.iter().enumerate().filter(|(_, p)| !p.any) {
            if p.dp.contains(flow.dport) || p.sp.contains(flow.sport) {
                straight |= 1 << i;
            } else if midstream && (p.dp.contains(flow.sport) || p.sp.contains(flow.dport)) {
                turned |= 1 << i;
            }
        }
        (straight, turned)
    }
}

/// Protocol detection for all flows.
#[derive(Debug, Clone)]
pub struct Recogniser {
    patterns: [PatternSets; 2],
    probes: [Probes; 2],
    modes: [Mode; 64],
    /// By protocol.
    openings: [Opening; 64],
    /// Protocols with a parser, one bit each.
    parsed: u64,
    /// By direction: protocols that can be detected in it, one bit each.
    told: [u64; 2],
}

const fn transport_index(transport: u8) -> Option<usize> {
    match transport {
        TCP => Some(0),
        UDP => Some(1),
        _ => None,
    }
}

impl Recogniser {
    /// Built from all protocols and the configuration.
    pub(crate) fn of(protocols: impl Iterator<Item = Detectable>, settings: &RecogniseSettings) -> Self {
        let (mut modes, mut openings) = ([Mode::Off; 64], [Opening::Any; 64]);
        let (mut parsed, mut told) = (0, [0; 2]);
        let (mut patterns, mut probes) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        for known in protocols {
            if let Some(of) = openings.get_mut(known.proto as usize) {
                *of = known.opening;
            }
            parsed |= u64::from(known.has_parser) << known.proto as u64;
            for (dir, told) in [Direction::ToServer, Direction::ToClient].into_iter().zip(&mut told) {
                *told |= u64::from(known.recognition.is_told_in(dir)) << known.proto as u64;
            }
            for (index, transport) in [TCP, UDP].into_iter().enumerate() {
                if !known.recognition.transports()[index] {
                    continue;
                }
                let set = settings.of(known.proto, transport);
                let mode = set.mode.unwrap_or(known.mode);
                if mode == Mode::Off {
                    continue;
                }
                if let Some(m) = modes.get_mut(known.proto as usize)
                    && *m != Mode::On
                {
                    *m = mode;
                }
                let of = known.recognition.patterns.iter().filter(|p| p.transport == transport);
                patterns[index].extend(of.map(|p| (known.proto, *p)));
                let inline = if settings.inline { known.inline_probes } else { &[] };
                for p in known.recognition.probes.iter().chain(inline).filter(|p| p.transport == transport) {
                    let by_default = || Ports::of(p.ports);
                    let (dp, sp) = (set.dp.clone().unwrap_or_else(by_default), set.sp.clone().unwrap_or_default());
                    let any = p.ports.is_empty() || dp.is_any();
                    probes[index].push(PortProbe { proto: known.proto, dp, sp, any, probe: p.probe });
                }
            }
        }
        let (patterns, probes) = (patterns.map(|p| PatternSets::new(&p)), probes.map(Probes::new));
        Recogniser { patterns, probes, modes, openings, parsed, told }
    }

    /// The mode of a protocol: [`Mode::On`] if its flows are parsed.
    pub fn mode(&self, proto: AppProto) -> Mode {
        self.modes.get(proto as usize).copied().unwrap_or_default()
    }

    /// Whether a protocol's flows are parsed, not just detected.
    pub fn parses(&self, proto: AppProto) -> bool {
        self.mode(proto) == Mode::On && self.parsed >> proto as u64 & 1 != 0
    }

    /// Whether a protocol can be detected in a direction.
    pub(crate) fn is_told_in(&self, proto: AppProto, dir: Direction) -> bool {
        self.told[dir.index()] >> proto as u64 & 1 != 0
    }

    /// Whether clients of a protocol begin with a line of text whose first word identifies the protocol. HTTP servers accept
    /// any word as a method, so `EHLO / HTTP/1.1` is a request.
    fn begins_with_command(&self, proto: AppProto, dir: Direction) -> bool {
        dir == Direction::ToServer && self.openings.get(proto as usize) == Some(&Opening::Command)
    }

    /// Whether the first data in a direction is not enough to decide.
    fn waits_for_client(&self, proto: AppProto, dir: Direction) -> bool {
        dir == Direction::ToClient && self.openings.get(proto as usize) == Some(&Opening::ClientTells)
    }

    /// Whether a direction may still turn out to have a protocol: one of its probes is undecided.
    pub fn may_be(&self, state: &RecogniseState, flow: &FlowCore, dir: Direction, proto: AppProto) -> bool {
        let (Some(t), Some(side)) = (transport_index(flow.proto), state.sides.get(dir.index())) else { return false };
        let left = side.probes | side.turned;
        self.probes[t].list.iter().enumerate().any(|(i, p)| p.proto == proto && left & 1 << i != 0)
    }

    /// Examines the first data of a direction. `data` is all data from its start (but see [`RecogniseState::consumed`]), or one
    /// datagram of UDP. `end` says that no more data follows: a command without a line end is complete then, and data too short
    /// to decide stays unknown.
    // It stays whole: the search, and one match over what it found.
    pub fn recognise(
        &self,
        state: &mut RecogniseState,
        flow: &FlowCore,
        dir: Direction,
        data: &[u8],
        end: bool,
    ) -> Recognised {
        let Some(t) = transport_index(flow.proto) else { return Recognised::Failed };
        if data.is_empty() {
            return Recognised::More;
        }
        let (sets, probes) = (&self.patterns[t], &self.probes[t]);
        // A datagram that turned the flow may have lied: the ports decide in both directions then.
        let (midstream, was_turned) = (state.midstream || state.turned && flow.proto == UDP, state.turned);
        let likely = state.side(dir.reverse()).found;
        let answered = state.side(dir.reverse()).begun;
        let side = state.side(dir);
        if !side.begun {
            side.begun = true;
            (side.probes, side.turned) = probes.candidates(flow, midstream);
        }
        // On any port, this direction may have the other one's protocol.
        if let Some(proto) = likely
            && flow.proto == TCP
            && !side.follows
        {
            (side.follows, side.probes) = (true, side.probes | probes.of(proto));
        }
        let datagram = flow.proto == UDP;
        let midstream = midstream && !datagram;
        let whole = side.gone == 0;
        // The literal that ends first, if any.
        let mut best: Option<(usize, AppProto, bool)> = None;
        if !side.searched {
            let own = sets.of(dir);
            // A flow that was picked up midstream may have the wrong direction.
            let other = midstream.then(|| sets.of(dir.reverse()));
            if whole {
                best = own.find(data, likely).map(|(end, proto)| (end, proto, false));
                let turned = other.and_then(|o| o.find(data, likely)).map(|(end, proto)| (end, proto, true));
                if let Some(found) = turned
                    && best.is_none_or(|b| found.0 < b.0)
                {
                    best = Some(found);
                }
            }
            // If the other side is known, this one may still match that protocol.
            let depth = if likely.is_some() || midstream { sets.depth() } else { own.depth() };
            side.searched = datagram || data.len().saturating_add(side.gone as usize) >= depth;
        }
        if whole {
            let (seen, last) = match data.get(..PROBE_MAX) {
                Some(first) => (first, true),
                None => (data, datagram),
            };
            ask(&probes.list, side, dir, seen, last, &mut best);
        } else {
            (side.probes, side.turned) = (0, 0);
        }
        match best {
            // An HTTP request may have a method that is another protocol's command. A probe shows that it is HTTP, or else the
            // response does. This does not apply if the server spoke first.
            Some((_, proto, false)) if flow.proto == TCP && !answered && self.begins_with_command(proto, dir) => {
                match request_line(data) {
                    Probed::Yes { .. } => {
                        // The line decides: what follows it may come in the same segment or in another.
                        let accepted = probes.accept(side.probes, dir, first_line(data));
                        side.found = probes.list.get(accepted.trailing_zeros() as usize).map(|p| p.proto);
                        (side.searched, side.probes, side.turned) = (true, 0, 0);
                        side.found.map_or(Recognised::Failed, |proto| Recognised::Known { proto, reverse: false })
                    }
                    Probed::More if !end => {
                        // Search all of it for patterns again.
                        side.searched = false;
                        Recognised::More
                    }
                    _ => {
                        side.found = Some(proto);
                        Recognised::Known { proto, reverse: false }
                    }
                }
            }
            // Wait for the client's data, which decides, while it may still come.
            Some((_, proto, _)) if self.waits_for_client(proto, dir) && likely.is_none() && data.len() < PROBE_MAX => {
                // The next data finds it again.
                side.searched = false;
                Recognised::More
            }
            Some((_, proto, reverse)) => {
                side.found = Some(proto);
                // With a TCP handshake, the direction is certain.
                Recognised::Known { proto, reverse: reverse && !was_turned && (datagram || midstream) }
            }
            None if side.searched && side.probes | side.turned == 0 => {
                if flow.proto == TCP && whole && likely.is_none() {
                    side.accepted = probes.accept(u64::MAX, dir, data.get(..PROBE_MAX).unwrap_or(data));
                }
                Recognised::Failed
            }
            None => Recognised::More,
        }
    }

    /// Whether the data of a direction that failed is that protocol's. The ports of its probes do not matter, since the other
    /// direction has the protocol.
    pub(crate) fn is_accepted(&self, state: &RecogniseState, dir: Direction, proto: AppProto) -> bool {
        let accepted = state.sides.get(dir.index()).map_or(0, |s| s.accepted);
        accepted & self.probes[0].of(proto) != 0
    }
}

/// The first line with its line feed, or as much of it as probes see.
fn first_line(data: &[u8]) -> &[u8] {
    let seen = data.get(..PROBE_MAX).unwrap_or(data);
    memchr::memchr(b'\n', seen).and_then(|end| seen.get(..=end)).unwrap_or(seen)
}

/// Whether the first line is an HTTP/1 request: its last word is `HTTP/1.` and a digit (RFC 9112 section 3).
fn request_line(data: &[u8]) -> Probed {
    match first_line(data) {
        [line @ .., b'\n'] if ends_in_http1(line.trim_ascii_end()) => Probed::Yes { reverse: false },
        [.., b'\n'] => Probed::No,
        _ if data.len() < PROBE_MAX => Probed::More,
        // No command is that long.
        _ => Probed::Yes { reverse: false },
    }
}

/// Whether the last of several words of a line is a version of HTTP/1, in any case.
pub(crate) fn ends_in_http1(line: &[u8]) -> bool {
    let last = line.rsplit(|b| matches!(b, b' ' | b'\t')).next().filter(|word| word.len() < line.len());
    matches!(last, Some([name @ .., b'/', b'1', b'.', b'0'..=b'9']) if name.eq_ignore_ascii_case(b"HTTP"))
}

/// Whether a client's first word is one of `words`; `More` if the word is incomplete.
pub(crate) fn begins_with(words: &[&str], data: &[u8]) -> Probed {
    if words.is_empty() {
        return Probed::No;
    }
    let length = data.iter().position(|b| matches!(b, b' ' | b'\r' | b'\n'));
    let word = data.get(..length.unwrap_or(data.len())).unwrap_or(data);
    let fits = |w: &&str| match length {
        Some(_) => w.as_bytes().eq_ignore_ascii_case(word),
        None => w.as_bytes().get(..word.len()).is_some_and(|w| w.eq_ignore_ascii_case(word)),
    };
    match (words.iter().any(fits), length) {
        (true, Some(_)) => Probed::Yes { reverse: false },
        (true, None) => Probed::More,
        (false, _) => Probed::No,
    }
}

/// Runs the remaining probes. A probe that needs fewer bytes than `best` replaces it. With `last`, undecided probes are
/// dropped.
fn ask(
    probes: &[PortProbe],
    side: &mut Side,
    dir: Direction,
    data: &[u8],
    last: bool,
    best: &mut Option<(usize, AppProto, bool)>,
) {
    for turned in [false, true] {
        let mut left = if turned { side.turned } else { side.probes };
        let mut stay = left;
        while left != 0 {
            let i = left.trailing_zeros();
            left &= left - 1;
            let Some(p) = probes.get(i as usize) else { continue };
            let towards = if turned { dir.reverse() } else { dir };
            match (p.probe)(towards, data) {
                Probed::Yes { reverse } => {
                    let needed = needs(p.probe, towards, data);
                    if best.is_none_or(|b| needed < b.0) {
                        *best = Some((needed, p.proto, reverse != turned));
                    }
                }
                Probed::No => stay &= !(1 << i),
                Probed::More if last => stay &= !(1 << i),
                Probed::More => {}
            }
        }
        if turned {
            side.turned = stay;
        } else {
            side.probes = stay;
        }
    }
}

/// The length of the shortest prefix of `data` that a probe accepts. It accepts all of `data`.
fn needs(probe: fn(Direction, &[u8]) -> Probed, dir: Direction, data: &[u8]) -> usize {
    let (mut low, mut high) = (0, data.len());
    while low < high {
        let middle = low + (high - low) / 2;
        match probe(dir, data.get(..middle).unwrap_or(data)) {
            Probed::More => low = middle + 1,
            _ => high = middle,
        }
    }
    low
}

#[cfg(test)]
mod tests;
