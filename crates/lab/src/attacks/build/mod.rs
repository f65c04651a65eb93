//! Turns samples into packets: connections, datagrams, ICMP messages and IP packets. Each sample has its own pair of addresses.

mod datagram;
mod http;
mod tcp;

use std::net::{IpAddr, Ipv4Addr};

pub(super) use http::request;
pub(super) use tcp::flags as tcp_flags;

use crate::traffic::rng::Rng;
use crate::traffic::session::{Place, Session};
use crate::traffic::template::{Dir, Raw};

/// First addresses of the samples, within the home network and outside. Each side has [`MOST`] addresses.
const INSIDE: u32 = 0x0a00_0000;
const OUTSIDE: u32 = 0xc612_0000;
/// Most conversations of a capture.
pub(super) const MOST: u32 = 1 << 17;
/// Default round-trip time in nanoseconds, so short that no time limit of a rule expires.
const RTT: u64 = 100_000;

/// The number of the conversation that an address belongs to; `None` if it belongs to other traffic.
pub(super) fn number(address: IpAddr) -> Option<u32> {
    let IpAddr::V4(address) = address else { return None };
    let address = u32::from(address);
    [INSIDE, OUTSIDE].contains(&(address & !(MOST - 1))).then_some(address & (MOST - 1))
}

/// The protocol that carries a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    Tcp,
    Udp,
    Icmp,
    Ip,
}

impl Over {
    pub(super) fn parse(text: &str) -> Option<Over> {
        Some(match text {
            "tcp" => Over::Tcp,
            "udp" => Over::Udp,
            "icmp" => Over::Icmp,
            "ip" => Over::Ip,
            _ => return None,
        })
    }
}

/// A message from one side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) from_client: bool,
    pub(super) data: Vec<u8>,
}

impl Message {
    /// Parses `>` (from the client) or `<` (from the server), followed by the bytes with escapes (`\x00`).
    pub(super) fn parse(text: &str) -> Result<Message, String> {
        let from_client = match text.as_bytes().first() {
            Some(b'>') => true,
            Some(b'<') => false,
            _ => return Err(format!("a message begins with > or <: '{text}'")),
        };
        Ok(Message { from_client, data: unescaped(&text[1..])? })
    }

    fn dir(&self) -> Dir {
        if self.from_client { Dir::Client } else { Dir::Server }
    }
}

/// The bytes of a text with escapes. Characters from 128 to 255 are one byte, too.
fn unescaped(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    for c in text.chars() {
        bytes.push(u8::try_from(u32::from(c)).map_err(|_| format!("'{c}' is no byte"))?);
    }
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&b) = bytes.get(at) {
        at += 1;
        let next = bytes.get(at).copied();
        let simple = match (b, next) {
            (b'\\', Some(b'n')) => b'\n',
            (b'\\', Some(b'r')) => b'\r',
            (b'\\', Some(b't')) => b'\t',
            (b'\\', Some(b'a')) => 7,
            (b'\\', Some(b'b')) => 8,
            (b'\\', Some(b'v')) => 11,
            (b'\\', Some(b'f')) => 12,
            (b'\\', Some(c @ (b'\\' | b'\'' | b'"'))) => c,
            (b'\\', Some(b'x')) => {
                let digits = bytes.get(at + 1..at + 3).and_then(|d| std::str::from_utf8(d).ok());
                let byte = digits.and_then(|d| u8::from_str_radix(d, 16).ok());
                out.push(byte.ok_or("\\x is followed by two hexadecimal digits")?);
                at += 3;
                continue;
            }
            (b'\\', _) => {
                return Err("a backslash is followed by n, r, t, a, b, v, f, x, a quote or a backslash".to_owned());
            }
            _ => {
                out.push(b);
                continue;
            }
        };
        out.push(simple);
        at += 1;
    }
    Ok(out)
}

/// Unusual fields of IP packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Packets {
    pub(super) proto: u8,
    pub(super) options: Vec<u8>,
    /// Flags and fragment offset of each packet.
    pub(super) flags: Vec<u16>,
    /// The source address equals the destination address.
    pub(super) from_itself: bool,
}

impl Default for Packets {
    fn default() -> Packets {
        Packets { proto: 17, options: Vec::new(), flags: vec![0x4000], from_itself: false }
    }
}

/// A conversation from a declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) over: Over,
    /// The server's port.
    pub(super) port: u16,
    /// The client's port; `None` for a different one each time.
    pub(super) client: Option<u16>,
    pub(super) say: Vec<Message>,
    /// For TCP: segments with these flags, instead of a connection.
    pub(super) flags: Option<Vec<u8>>,
    pub(super) window: u16,
    /// Number of repetitions, and the nanoseconds from the start of one to the next.
    pub(super) times: u16,
    pub(super) apart: u64,
    /// The client is within the home network, and the server outside.
    pub(super) inside: bool,
    pub(super) packets: Packets,
}

/// The packets of a case.
#[derive(Clone, Debug)]
pub(super) enum Conversation {
    /// An HTTP request. Its answer has no content.
    Request(Vec<u8>),
    Sample(Sample),
}

/// A conversation as frames, with the addresses and ports of client and server.
pub(super) struct Built {
    /// Frames in time order, from time 0.
    pub(super) frames: Vec<Raw>,
    pub(super) proto: u8,
    pub(super) client: (IpAddr, u16),
    pub(super) server: (IpAddr, u16),
}

impl Conversation {
    /// Builds the conversation between the addresses of number `n`. The same seed gives the same bytes.
    pub(super) fn build(&self, n: u32, seed: u64) -> Built {
        self.build_at(n, seed, RTT)
    }

    /// The same with this round-trip time in nanoseconds.
    pub(super) fn build_at(&self, n: u32, seed: u64, rtt: u64) -> Built {
        let home = IpAddr::V4(Ipv4Addr::from(INSIDE | n & (MOST - 1)));
        let away = IpAddr::V4(Ipv4Addr::from(OUTSIDE | n & (MOST - 1)));
        let inside = match self {
            Conversation::Request(_) => true,
            Conversation::Sample(sample) => sample.inside,
        };
        let (client, server) = if inside { (home, away) } else { (away, home) };
        let mut rng = Rng::new(seed, u64::from(n));
        let mut s = Session::once(&mut rng, Place { client, server, port: 0 }, rtt);
        let (proto, ports) = match self {
            Conversation::Request(data) => (6, http::exchange(&mut s, n, data)),
            Conversation::Sample(sample) => sample.build(&mut s, n),
        };
        Built { frames: s.frames(), proto, client: (client, ports[0]), server: (server, ports[1]) }
    }

    /// The conversation as readable text. Bytes that are not text are escaped.
    pub(super) fn text(&self) -> String {
        match self {
            Conversation::Request(data) => readable(data, true),
            Conversation::Sample(sample) => sample.text(),
        }
    }
}

/// Most bytes of a readable text.
const TEXT: usize = 3000;

fn readable(data: &[u8], lines: bool) -> String {
    let mut out = String::new();
    for chunk in data.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\r' if lines => {}
                '\n' if lines => out.push('\n'),
                ' '.. if c != '\u{7f}' => out.push(c),
                c => out.extend(c.escape_default()),
            }
        }
        out.extend(chunk.invalid().iter().map(|b| format!("\\x{b:02x}")));
        if out.len() > TEXT {
            let end = (0..=TEXT).rev().find(|end| out.is_char_boundary(*end)).unwrap_or(0);
            out.truncate(end);
            out.push('…');
            break;
        }
    }
    out
}

impl Sample {
    /// Sends all repetitions. Returns the protocol, and the ports of client and server in the first one.
    fn build(&self, s: &mut Session<'_>, n: u32) -> (u8, [u16; 2]) {
        let mut first = 0;
        for i in 0..u32::from(self.times) {
            let begin = s.now;
            let own = 20_000 + (n.wrapping_mul(7).wrapping_add(i) % 40_000) as u16;
            let client = self.client.unwrap_or(own);
            if i == 0 {
                first = client;
            }
            match (self.over, &self.flags) {
                (Over::Tcp, Some(flags)) => tcp::bare(s, self, client, flags),
                (Over::Tcp, None) => tcp::connection(s, client, self.port, &self.say),
                (Over::Udp, _) => datagram::udp(s, client, self.port, &self.say),
                (Over::Icmp, _) => datagram::icmp(s, &self.say),
                (Over::Ip, _) => datagram::ip(s, &self.packets, &self.say),
            }
            s.now = s.now.max(begin + self.apart);
        }
        match self.over {
            Over::Tcp => (6, [first, self.port]),
            Over::Udp => (17, [first, self.port]),
            Over::Icmp => (1, [0, 0]),
            Over::Ip => (self.packets.proto, [0, 0]),
        }
    }

    fn text(&self) -> String {
        use std::fmt::Write as _;
        let mut out = format!("{:?} port {}", self.over, self.port).to_lowercase();
        if let Some(flags) = &self.flags {
            let _ = write!(out, ", flags {flags:02x?}, window {}", self.window);
        }
        if self.times > 1 {
            let _ = write!(out, ", {} times, every {} ms", self.times, self.apart as f64 / 1e6);
        }
        if self.over == Over::Ip {
            let p = &self.packets;
            let _ = write!(out, ", protocol {}, options {:02x?}, fragments {:04x?}", p.proto, p.options, p.flags);
        }
        for message in &self.say {
            let _ = write!(out, "\n{} {}", if message.from_client { '>' } else { '<' }, readable(&message.data, false));
            if out.len() > TEXT {
                out.push_str("\n…");
                break;
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(over: Over, say: &[&str]) -> Sample {
        Sample {
            over,
            port: 445,
            client: None,
            say: say.iter().map(|text| Message::parse(text).unwrap()).collect(),
            flags: None,
            window: 65_535,
            times: 1,
            apart: 1_000_000,
            inside: false,
            packets: Packets::default(),
        }
    }

    #[test]
    fn escapes_are_bytes() {
        assert_eq!(unescaped(r"a\x00\xfF\n\\é").unwrap(), [b'a', 0, 255, 10, b'\\', 0xe9]);
        for wrong in [r"\", r"\x1", r"\xgg", r"\q", "…"] {
            assert!(unescaped(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes() {
        let c = Conversation::Sample(sample(Over::Tcp, &[">hello", "<\\x00you", ">bye"]));
        let bytes = |n, seed| c.build(n, seed).frames.into_iter().map(|raw| (raw.at, raw.frame)).collect::<Vec<_>>();
        assert!(bytes(5, 1) == bytes(5, 1));
        assert!(bytes(5, 1) != bytes(5, 2) && bytes(5, 1) != bytes(6, 1));
    }

    #[test]
    fn addresses_say_whose_packets_they_are() {
        let built = Conversation::Sample(sample(Over::Udp, &[">a", "<b"])).build(77, 1);
        assert_eq!((built.frames.len(), built.proto, built.server.1), (2, 17, 445));
        for raw in &built.frames {
            let (a, b) = crate::traffic::frame::parse(&raw.frame).unwrap().ends(&raw.frame).unwrap();
            assert_eq!((number(a), number(b)), (Some(77), Some(77)));
        }
        assert_eq!(number("16.0.0.1".parse().unwrap()), None);
        assert_eq!(number("10.2.0.0".parse().unwrap()), None);
    }

    #[test]
    fn repeats_are_as_far_apart_as_they_are_to_be() {
        let mut s = sample(Over::Udp, &[">a"]);
        (s.times, s.apart) = (3, 5_000_000);
        let at: Vec<u64> = Conversation::Sample(s).build(0, 1).frames.iter().map(|raw| raw.at).collect();
        assert_eq!(at, [0, 5_000_000, 10_000_000]);
    }

    #[test]
    fn odd_packets_have_their_fields() {
        let mut s = sample(Over::Ip, &[">abcdefgh"]);
        s.packets = Packets { proto: 253, options: vec![1; 4], flags: vec![0x2000, 1], from_itself: true };
        let frames = Conversation::Sample(s).build(3, 1).frames;
        assert_eq!(frames.len(), 2);
        let f = &frames[1].frame;
        assert_eq!((f[14], f[23], &f[20..22], &f[26..30]), (0x46, 253, &[0u8, 1][..], &f[30..34]));
        assert_eq!(&f[34..38], [1; 4]);
        let mut s = sample(Over::Tcp, &[">"]);
        s.flags = Some(vec![tcp::flags("SF").unwrap()]);
        let f = &Conversation::Sample(s).build(3, 1).frames[0].frame;
        assert_eq!(f[47], 3);
        assert!(tcp::flags("SX").is_err());
    }
}
