//! Which protocol a flow speaks: by patterns, by port and by probing, in both directions.
//!
//! Each direction is looked at by itself, from its first byte on. Literals ([`Pattern`]) of all protocols are searched
//! together, by one automaton for each transport and direction, no further than the longest of them reaches. Where the
//! port is one of a protocol's, or where it may be on any port, its [`Probe`]s are asked as well. Whichever needs the
//! fewest bytes decides, so that it does not matter in which pieces the bytes arrive: a probe answers [`Probed::More`]
//! for every beginning that is too short, and does not change its mind.
//!
//! A direction is given up ([`Recognised::Failed`]) when it is longer than any pattern and no probe is left. Fewer bytes,
//! even at the stream's end, leave it open.
//!
//! The protocols are those of [`crate::ALL`]: some have a parser ([`crate::PROTOCOLS`]), the others a name in events and rules.

pub(crate) mod named;
mod patterns;
mod settings;

use margay_flow::{Direction, FlowCore};

use crate::registry::{ALL, AppProto, BUILT_IN, Opening, PROTOCOLS, declaration};
use patterns::PatternSets;

pub use settings::{Mode, Ports, ProtocolSettings, RecogniseSettings};

/// IP protocol number of TCP.
pub const TCP: u8 = 6;
/// IP protocol number of UDP.
pub const UDP: u8 = 17;

/// Most bytes of a direction that a probe sees: one that cannot tell by then never will.
pub(crate) const PROBE_MAX: usize = 2048;
/// Most probes of a transport: they are bits of a word. More are an error of the build.
const PROBES_MAX: usize = 64;

/// Evaluated by the compiler, used or not.
#[expect(dead_code, reason = "it only has to be evaluated")]
static PROBES_FIT: () = {
    assert!(probes_of(TCP) <= PROBES_MAX && probes_of(UDP) <= PROBES_MAX, "a flow's probes do not fit in a word");
};

/// How many probes a transport has.
const fn probes_of(transport: u8) -> usize {
    let (mut n, mut i) = (0, 0);
    while i < BUILT_IN.len() {
        n += probes_in(BUILT_IN[i].recognition.probes, transport);
        i += 1;
    }
    n
}

const fn probes_in(probes: &[Probe], transport: u8) -> usize {
    let (mut n, mut i) = (0, 0);
    while i < probes.len() {
        if probes[i].transport == transport {
            n += 1;
        }
        i += 1;
    }
    n
}

/// How a protocol is recognised.
#[derive(Debug, Clone, Copy)]
pub struct Recognition {
    /// Patterns; any one of them tells it.
    pub patterns: &'static [Pattern],
    /// Probes; asked where the port is one of theirs and no pattern matched.
    pub probes: &'static [Probe],
}

/// A literal that tells a protocol.
#[derive(Debug, Clone, Copy)]
pub struct Pattern {
    /// IP protocol: 6 or 17.
    pub transport: u8,
    /// Direction that it is sent in.
    pub dir: Direction,
    /// The literal.
    pub bytes: &'static [u8],
    /// Whether case does not matter.
    pub nocase: bool,
    /// Where it may begin at the earliest.
    pub offset: u16,
    /// Where it must end at the latest.
    pub depth: u16,
}

impl Pattern {
    /// A pattern of TCP that stands at the very beginning of a direction, as it is written.
    pub const fn tcp(dir: Direction, bytes: &'static [u8]) -> Pattern {
        Pattern { transport: TCP, dir, bytes, nocase: false, offset: 0, depth: bytes.len() as u16 }
    }

    /// The same, in any case.
    pub const fn nocase(self) -> Pattern {
        Pattern { nocase: true, ..self }
    }

    /// The same, beginning at `offset`.
    pub const fn at(self, offset: u16) -> Pattern {
        Pattern { offset, depth: offset + self.bytes.len() as u16, ..self }
    }

    /// The same, ending by `depth`.
    pub const fn within(self, depth: u16) -> Pattern {
        Pattern { depth, ..self }
    }
}

/// What a probe says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probed {
    /// It is this protocol; with `reverse` the bytes go the other way than thought.
    Yes {
        /// The flow was picked up the wrong way round.
        reverse: bool,
    },
    /// It is not.
    No,
    /// There is not enough to tell.
    More,
}

/// A function that tells a protocol from the first bytes.
#[derive(Debug, Clone, Copy)]
pub struct Probe {
    /// IP protocol: 6 or 17.
    pub transport: u8,
    /// Ports of the server it is asked for, where the configuration (`detection-ports`) names none; empty for any port.
    pub ports: &'static [u16],
    /// Looks at the first bytes of a direction. More bytes behind those that it said `Yes` or `No` to change nothing.
    pub probe: fn(Direction, &[u8]) -> Probed,
}

/// What came of looking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recognised {
    /// It is this protocol.
    Known {
        /// Which.
        proto: AppProto,
        /// The flow was picked up the wrong way round: what looked like the client is the server.
        reverse: bool,
    },
    /// More bytes are needed.
    More,
    /// It is none that is known.
    Failed,
}

/// What is known of one direction of a flow so far.
#[derive(Debug, Clone, Default)]
struct Side {
    /// Probes still to be asked, a bit each; those of `turned` as if the flow were the other way round.
    probes: u64,
    turned: u64,
    /// Bytes of its beginning that are gone ([`RecogniseState::consumed`]).
    gone: u32,
    /// Whether the probes for its ports were looked up.
    begun: bool,
    /// No pattern can match any more.
    searched: bool,
    /// What it was recognised as.
    found: Option<AppProto>,
}

/// What is known of a flow so far. [`Default`] is the state to begin with, at first and where the protocol changes.
#[derive(Debug, Clone, Default)]
pub struct RecogniseState {
    sides: [Side; 2],
    /// The connection's beginning was not seen.
    midstream: bool,
    /// The flow was turned round already.
    turned: bool,
}

impl RecogniseState {
    /// Bytes of a direction were taken while it was not recognised (the other one was): what [`Recogniser::recognise`]
    /// sees from now on begins behind them.
    pub fn consumed(&mut self, dir: Direction, bytes: usize) {
        let [client, server] = &mut self.sides;
        let side = if dir == Direction::ToServer { client } else { server };
        side.gone = side.gone.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
    }

    /// The beginning of the TCP connection was not seen, or that of a UDP flow need not have been: it may be the wrong way
    /// round. Where this is not said, [`Recognised::Known`] of TCP never has `reverse`, and UDP is not looked at for the
    /// client's port.
    pub const fn set_midstream(&mut self) {
        self.midstream = true;
    }

    /// The flow was turned round: what was sent is looked at anew, and it is not turned again.
    pub fn turn_round(&mut self) {
        *self = RecogniseState { turned: true, ..RecogniseState::default() };
    }

    fn side(&mut self, dir: Direction) -> &mut Side {
        let [client, server] = &mut self.sides;
        if dir == Direction::ToServer { client } else { server }
    }
}

/// A probe with the ports that it is asked for.
#[derive(Debug, Clone)]
struct PortProbe {
    proto: AppProto,
    /// Ports of the server, and of the client; both empty for any port.
    dp: Ports,
    sp: Ports,
    any: bool,
    probe: fn(Direction, &[u8]) -> Probed,
}

/// What all flows are looked at with.
#[derive(Debug, Clone)]
pub struct Recogniser {
    patterns: [PatternSets; 2],
    probes: [Vec<PortProbe>; 2],
    modes: [Mode; 64],
}

impl Default for Recogniser {
    fn default() -> Self {
        Recogniser::new(&RecogniseSettings::default())
    }
}

const fn transport_index(transport: u8) -> Option<usize> {
    match transport {
        TCP => Some(0),
        UDP => Some(1),
        _ => None,
    }
}

impl Recogniser {
    /// Made from what is known of the protocols, and from what the configuration says of them.
    pub fn new(settings: &RecogniseSettings) -> Self {
        let mut modes = [Mode::Off; 64];
        let (mut patterns, mut probes) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        for known in ALL.iter() {
            for (index, transport) in [TCP, UDP].into_iter().enumerate() {
                if !known.transports()[index] {
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
                for p in known.recognition.probes.iter().filter(|p| p.transport == transport) {
                    let by_default = || Ports::of(p.ports);
                    let (dp, sp) = (set.dp.clone().unwrap_or_else(by_default), set.sp.clone().unwrap_or_default());
                    let any = p.ports.is_empty() || dp.is_any();
                    probes[index].push(PortProbe { proto: known.proto, dp, sp, any, probe: p.probe });
                }
            }
        }
        Recogniser { patterns: patterns.map(|p| PatternSets::new(&p)), probes, modes }
    }

    /// What is done with a protocol's flows: [`Mode::On`] where they are parsed.
    pub fn mode(&self, proto: AppProto) -> Mode {
        self.modes.get(proto as usize).copied().unwrap_or_default()
    }

    /// Whether a protocol's flows are parsed, rather than only named.
    pub fn parses(&self, proto: AppProto) -> bool {
        self.mode(proto) == Mode::On && PROTOCOLS.iter().any(|p| p.proto == proto)
    }

    /// Looks at the first bytes of a direction. `data` is all there is from its start (but see
    /// [`RecogniseState::consumed`]), or of UDP one datagram; `end` says that no more will come: a command without a line
    /// end is one then, and what was too short to tell stays unknown.
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
        let (midstream, was_turned) = (state.midstream, state.turned);
        let likely = state.side(dir.reverse()).found;
        let answered = state.side(dir.reverse()).begun;
        let side = state.side(dir);
        if !side.begun {
            side.begun = true;
            (side.probes, side.turned) = candidates(probes, flow, midstream);
        }
        let datagram = flow.proto == UDP;
        let midstream = midstream && !datagram;
        let whole = side.gone == 0;
        // The literal that ends first, if there is one.
        let mut best: Option<(usize, AppProto, bool)> = None;
        if !side.searched {
            let own = sets.of(dir);
            // A flow that was picked up in its middle may be the wrong way round.
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
            // Where the other side is known, this one may yet say what belongs there.
            let depth = if likely.is_some() || midstream { sets.depth() } else { own.depth() };
            side.searched = datagram || data.len().saturating_add(side.gone as usize) >= depth;
        }
        if whole {
            let (seen, last) = match data.get(..PROBE_MAX) {
                Some(first) => (first, true),
                None => (data, datagram),
            };
            ask(probes, side, dir, seen, last, &mut best);
        } else {
            (side.probes, side.turned) = (0, 0);
        }
        match best {
            // A request may have a method that is a command elsewhere: its response tells that it is HTTP.
            // Not where the server spoke first.
            Some((_, proto, false)) if flow.proto == TCP && !answered && begins_with_command(proto, dir) => {
                match request_line(data) {
                    Probed::Yes { .. } => {
                        (side.searched, side.probes, side.turned) = (true, 0, 0);
                        Recognised::Failed
                    }
                    Probed::More if !end => {
                        // The patterns are looked for again in all of it.
                        side.searched = false;
                        Recognised::More
                    }
                    _ => {
                        side.found = Some(proto);
                        Recognised::Known { proto, reverse: false }
                    }
                }
            }
            // The client's beginning is what tells, while there is some hope for it.
            Some((_, proto, _)) if waits_for_client(proto, dir) && likely.is_none() && data.len() < PROBE_MAX => {
                Recognised::More
            }
            Some((_, proto, reverse)) => {
                side.found = Some(proto);
                // Of a connection whose handshake was seen it is known who opened it.
                Recognised::Known { proto, reverse: reverse && !was_turned && (datagram || midstream) }
            }
            None if side.searched && side.probes | side.turned == 0 => Recognised::Failed,
            None => Recognised::More,
        }
    }
}

/// Whether clients of a protocol begin with a line of text whose first word tells the protocol. Servers of HTTP take any word for
/// a method, so that `EHLO / HTTP/1.1` is a request.
fn begins_with_command(proto: AppProto, dir: Direction) -> bool {
    dir == Direction::ToServer && declaration(proto).is_some_and(|p| p.opening == Opening::Command)
}

/// Whether the first line is a request of HTTP/1: its last word is `HTTP/1.` and a digit (RFC 9112 section 3).
fn request_line(data: &[u8]) -> Probed {
    let first = data.get(..PROBE_MAX).unwrap_or(data);
    match memchr::memchr(b'\n', first) {
        Some(end) => {
            let line = first.get(..end).unwrap_or(first).trim_ascii_end();
            let word = line.rsplit(|b| matches!(b, b' ' | b'\t')).next().filter(|w| w.len() < line.len());
            match word {
                Some([h @ .., b'/', b'1', b'.', b'0'..=b'9']) if h.eq_ignore_ascii_case(b"HTTP") => {
                    Probed::Yes { reverse: false }
                }
                _ => Probed::No,
            }
        }
        None if data.len() < PROBE_MAX => Probed::More,
        // No command is that long.
        None => Probed::Yes { reverse: false },
    }
}

/// Whether anything tells a protocol in a direction: what clients of IMAP say begins with anything.
pub fn is_told_in(proto: AppProto, dir: Direction) -> bool {
    ALL.iter()
        .filter(|k| k.proto == proto)
        .any(|k| !k.recognition.probes.is_empty() || k.recognition.patterns.iter().any(|p| p.dir == dir))
}

/// Whether what the sender of a direction begins with says too little by itself.
fn waits_for_client(proto: AppProto, dir: Direction) -> bool {
    dir == Direction::ToClient && declaration(proto).is_some_and(|p| p.opening == Opening::ClientTells)
}

/// The probes to ask for a flow's ports, and those to ask as if the flow were the other way round.
fn candidates(probes: &[PortProbe], flow: &FlowCore, midstream: bool) -> (u64, u64) {
    let (mut straight, mut turned) = (0, 0);
    for (i, p) in probes.iter().enumerate() {
        if p.any || p.dp.contains(flow.dport) || p.sp.contains(flow.sport) {
            straight |= 1 << i;
        } else if midstream && (p.dp.contains(flow.sport) || p.sp.contains(flow.dport)) {
            turned |= 1 << i;
        }
    }
    (straight, turned)
}

/// Asks the probes that are left; what one of them finds in fewer bytes than `best` needed takes its place. With `last`
/// those that cannot tell are not asked again.
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

/// The length of the shortest beginning of `data` that a probe says `Yes` to, as it does to all of it.
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

/// What the configuration may say something of: each protocol that has a key below `app-layer.protocols`, with that key.
pub fn configurable() -> impl Iterator<Item = (AppProto, &'static str)> {
    ALL.iter().filter(|p| !p.config.is_empty()).map(|p| (p.proto, p.config))
}

#[cfg(test)]
mod tests;
