//! NTP (RFC 5905), versions 3 and 4: each packet is a transaction.

use margay_flow::{Direction, FlowCore};
use margay_json::Json;

use crate::config::{AppConfig, AppLogOptions};
use crate::conversation::{Content, Conversation, Turn, parser};
use crate::declare::{Keyword, KeywordDirection, Protocol};
use crate::parser::Outcome;
use crate::proto::AppProto;
use crate::recognise::{Probe, Probed, Recognition, UDP};
use crate::script::Answer;
use crate::tx::{Found, LogFor, TxBase};

/// Length of a packet without extensions (section 7.3).
const HEADER: usize = 48;

/// Names of modes (section 7.3, figure 10).
const MODES: &[(&str, u64)] = &[
    ("reserved", 0),
    ("symmetric_active", 1),
    ("symmetric_passive", 2),
    ("client", 3),
    ("server", 4),
    ("broadcast", 5),
    ("control", 6),
    ("private", 7),
];

keywords! {
    Version Keyword::number(&["ntp.version"], 255, KeywordDirection::Both);
    Mode Keyword::words(&["ntp.mode"], 255, MODES, KeywordDirection::Both);
    Stratum Keyword::number(&["ntp.stratum"], 255, KeywordDirection::Both);
    ReferenceId Keyword::buffer(&["ntp.reference_id"], KeywordDirection::Both);
}

/// NTP.
pub static PROTOCOL: Protocol = Protocol {
    recognition: Recognition { patterns: &[], probes: &[Probe { transport: UDP, ports: &[123], probe }] },
    parser: parser::<Ntp>,
    keywords: KEYWORDS,
    buffers: &BUFFERS,
    numbers: &NUMBERS,
    ..Protocol::new(AppProto::Ntp, "ntp").logged()
};

/// Checks version and length.
fn probe(_: Direction, data: &[u8]) -> Probed {
    if Packet::read(Direction::ToServer, data).is_some() { Probed::Yes { reverse: false } } else { Probed::No }
}

/// The state of a flow: nothing is kept between packets.
#[derive(Debug)]
struct Ntp;

impl Conversation for Ntp {
    type Tx = Packet;
    const PROTO: AppProto = AppProto::Ntp;

    fn new(_config: &AppConfig, _flow: &FlowCore) -> Self {
        Ntp
    }

    fn message(&mut self, turn: &mut Turn<'_, '_, Packet>, dir: Direction, message: &[u8]) -> Outcome {
        if let Some(packet) = Packet::read(dir, message) {
            turn.one_way(dir, packet);
        }
        Outcome::More
    }
}

/// The stored part of a packet.
#[derive(Debug, PartialEq, Eq)]
struct Packet {
    dir: Direction,
    version: u8,
    mode: u8,
    stratum: u8,
    reference_id: [u8; 4],
}

impl Packet {
    fn read(dir: Direction, data: &[u8]) -> Option<Packet> {
        let head = data.first_chunk::<HEADER>()?;
        let [first, stratum, ..] = *head;
        let version = first >> 3 & 7;
        let reference_id = *head.get(12..)?.first_chunk()?;
        matches!(version, 3 | 4).then_some(Packet { dir, version, mode: first & 7, stratum, reference_id })
    }
}

impl Content for Packet {
    fn held(&self) -> u64 {
        0
    }

    fn buffer<'a>(&'a self, id: u8, dir: Direction, _index: usize, _scratch: &'a mut Vec<u8>) -> Option<Found<'a>> {
        (Id::of(id)? == Id::ReferenceId && dir == self.dir).then(|| Found::whole(&self.reference_id))
    }

    fn number(&self, id: u8, dir: Direction, index: usize) -> Option<u64> {
        let n = match Id::of(id)? {
            Id::Version => self.version,
            Id::Mode => self.mode,
            Id::Stratum => self.stratum,
            Id::ReferenceId => return None,
        };
        (dir == self.dir && index == 0).then_some(u64::from(n))
    }

    fn direction(&self, _only: Option<Direction>) -> Direction {
        self.dir
    }

    fn ask(&self, _base: &TxBase, protocol: &str, what: &str, _arg: Option<&[u8]>) -> Option<Answer> {
        if protocol != "ntp" {
            return None;
        }
        Some(match what {
            "get" => Answer::Bool(true),
            "version" => Answer::Int(self.version.into()),
            "mode" => Answer::Int(self.mode.into()),
            "stratum" => Answer::Int(self.stratum.into()),
            "reference_id" => Answer::Bytes(self.reference_id.to_vec()),
            _ => return None,
        })
    }

    fn log(&self, _base: &TxBase, json: &mut Json, _options: &AppLogOptions, _what: LogFor) {
        json.object("ntp");
        json.uint("version", u64::from(self.version));
        json.uint("mode", u64::from(self.mode));
        json.uint("stratum", u64::from(self.stratum));
        let [a, b, c, d] = self.reference_id;
        json.str("reference_id", &format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}"));
        json.end_object();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Talk;

    /// A captured request of an Android device, or the answer of a time server.
    fn packet(first: u8, stratum: u8, reference: &[u8; 4]) -> Vec<u8> {
        let mut data = vec![0; HEADER];
        (data[0], data[1]) = (first, stratum);
        data[12..16].copy_from_slice(reference);
        data
    }

    #[test]
    fn a_request_and_its_answer() {
        let mut talk = Talk::udp(AppProto::Ntp, 123);
        talk.client(&packet(0x1b, 0, &[0; 4])).server(&packet(0x1c, 1, b"GOOG"));
        assert_eq!(
            talk.logs(),
            [
                r#"{"ntp":{"version":3,"mode":3,"stratum":0,"reference_id":"00:00:00:00"}}"#,
                r#"{"ntp":{"version":3,"mode":4,"stratum":1,"reference_id":"47:4f:4f:47"}}"#,
            ]
        );
        assert_eq!(talk.numbers("ntp.mode", Direction::ToClient), [4]);
        assert_eq!(talk.buffers("ntp.reference_id", Direction::ToClient), ["GOOG"]);
        assert_eq!(talk.buffers("ntp.reference_id", Direction::ToServer), ["\\x00\\x00\\x00\\x00"]);
    }

    #[test]
    fn what_is_no_packet() {
        for data in [&packet(0x13, 0, &[0; 4])[..], &packet(0x1b, 0, &[0; 4])[..HEADER - 1], b""] {
            assert_eq!(Packet::read(Direction::ToServer, data), None);
        }
    }
}
