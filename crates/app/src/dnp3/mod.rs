//! DNP3 over TCP (IEEE 1815): each fragment of the application layer is a one-way transaction. Fragments that only confirm are
//! not kept.

mod layout;
mod message;
mod script;
mod tx;

use margay_flow::{Direction, FlowCore};

use crate::config::AppConfig;
use crate::conversation::{Conversation, Framing, Resume, Turn, parser};
use crate::declare::{Keyword, KeywordDirection, NumberCondition, Protocol, Setting, Unit};
use crate::parser::Outcome;
use crate::proto::AppProto;
use crate::recognise::{Mode, Probe, Probed, Recognition, TCP};

use message::Limits;
use tx::{Fragment, Link};

/// The first bytes of a link frame.
const START: &[u8] = b"\x05\x64";
/// Length of a link header with its checksum.
const HEADER: usize = 10;
/// Bytes of user data between checksums.
const BLOCK: usize = 16;
/// The longest fragment: as many frames as the transport layer can number.
const FRAGMENT_MAX: usize = 64 * 249;

pub mod events {
    //! Anomalies, under the names that rules use (`app-layer-event:dnp3.NAME`).

    events! { "DNP3";
        Flooded "flooded";
        LenTooSmall "len_too_small";
        BadLinkCrc "bad_link_crc";
        BadTransportCrc "bad_transport_crc";
        UnknownObject "unknown_object";
        TooManyPoints "too_many_points";
        TooManyObjects "too_many_objects";
        TooLongReassembly "too_long_reassembly";
    }
}
use events::Event;

/// Function codes (clause 4.2.2.5).
const FUNCTIONS: &[(&str, u64)] = &[
    ("confirm", 0),
    ("read", 1),
    ("write", 2),
    ("select", 3),
    ("operate", 4),
    ("direct_operate", 5),
    ("direct_operate_nr", 6),
    ("immed_freeze", 7),
    ("immed_freeze_nr", 8),
    ("freeze_clear", 9),
    ("freeze_clear_nr", 10),
    ("freeze_at_time", 11),
    ("freeze_at_time_nr", 12),
    ("cold_restart", 13),
    ("warm_restart", 14),
    ("initialize_data", 15),
    ("initialize_appl", 16),
    ("start_appl", 17),
    ("stop_appl", 18),
    ("save_config", 19),
    ("enable_unsolicited", 20),
    ("disable_unsolicited", 21),
    ("assign_class", 22),
    ("delay_measure", 23),
    ("record_current_time", 24),
    ("open_file", 25),
    ("close_file", 26),
    ("delete_file", 27),
    ("get_file_info", 28),
    ("authenticate_file", 29),
    ("abort_file", 30),
    ("activate_config", 31),
    ("authenticate_req", 32),
    ("authenticate_err", 33),
    ("response", 129),
    ("unsolicited_response", 130),
    ("authenticate_resp", 131),
];
const CONFIRM: u8 = 0;
const READ: u8 = 1;
const UNSOLICITED: u8 = 130;

/// Internal indications (clause 4.2.2.6): bits of the first byte, then of the second, in the order of events.
const INDICATORS: &[(&str, u64)] = &[
    ("device_restart", 0x8000),
    ("device_trouble", 0x4000),
    ("local_control", 0x2000),
    ("need_time", 0x1000),
    ("class_3_events", 0x0800),
    ("class_2_events", 0x0400),
    ("class_1_events", 0x0200),
    ("all_stations", 0x0100),
    ("reserved_1", 0x0080),
    ("reserved_2", 0x0040),
    ("config_corrupt", 0x0020),
    ("already_executing", 0x0010),
    ("event_buffer_overflow", 0x0008),
    ("parameter_error", 0x0004),
    ("object_unknown", 0x0002),
    ("no_func_code_support", 0x0001),
];

keywords! {
    Data Keyword::buffer(&["dnp3.data", "dnp3_data"], KeywordDirection::Both);
    Function Keyword::words(&["dnp3_func", "dnp3.func"], 255, FUNCTIONS, KeywordDirection::Both);
    Indicators Keyword::own(&["dnp3_ind", "dnp3.ind"], indicators, KeywordDirection::Both);
    Object Keyword::own(&["dnp3_obj", "dnp3.obj"], object, KeywordDirection::Both);
}

/// Reads indicator names, one of which has to be set, or a number with their bits.
fn indicators(text: &str) -> Result<NumberCondition, String> {
    let mut any = 0;
    for word in text.split(',').map(str::trim) {
        let bit = INDICATORS.iter().find(|i| i.0.eq_ignore_ascii_case(word)).map(|i| i.1);
        let number = || match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
            Some(hex) => u16::from_str_radix(hex, 16).ok(),
            None => word.parse().ok(),
        };
        any |= bit.or_else(|| number().map(u64::from)).ok_or_else(|| {
            let known = INDICATORS.iter().map(|i| i.0).collect::<Vec<_>>().join(", ");
            format!("\"{word}\" is not an internal indication; they are {known}")
        })?;
    }
    Ok(NumberCondition::Bits { any, none: 0 })
}

/// Reads a group and a variation.
fn object(text: &str) -> Result<NumberCondition, String> {
    let read = || {
        let (group, variation) = text.split_once(',')?;
        let number = |n: &str| n.trim().parse::<u8>().ok().map(u64::from);
        Some(number(group)? << 8 | number(variation)?)
    };
    match read() {
        Some(object) => Ok(NumberCondition::OneOf { values: vec![object], negated: false }),
        None => Err(format!("\"{text}\" is not an object; write a group and a variation, each up to 255, as in 60,2")),
    }
}

const MAX_TX: usize = 0;
const MAX_POINTS: usize = 1;
const MAX_OBJECTS: usize = 2;

/// DNP3.
pub static PROTOCOL: Protocol = Protocol {
    settings: &[
        Setting {
            key: "max-tx",
            unit: Unit::Count,
            default: 32,
            about: "Most transactions of a flow that are not yet inspected and logged.",
        },
        Setting {
            key: "max-points",
            unit: Unit::Count,
            default: 16384,
            about: "Most points of a message; 0 for any number.",
        },
        Setting {
            key: "max-objects",
            unit: Unit::Count,
            default: 0,
            about: "Most objects of a message; 0 for any number.",
        },
    ],
    mode: Mode::Off,
    recognition: Recognition { patterns: &[], probes: &[Probe { transport: TCP, ports: &[20000], probe }] },
    parser: parser::<Dnp3>,
    keywords: KEYWORDS,
    buffers: &BUFFERS,
    numbers: &NUMBERS,
    events: events::NAMES,
    capital_events: true,
    ..Protocol::new(AppProto::Dnp3, "dnp3").logged()
};

/// Checks the beginning of a link frame.
fn probe(_: Direction, data: &[u8]) -> Probed {
    match data {
        [5, 0x64, len, ..] if *len >= 5 => Probed::Yes { reverse: false },
        [] | [5] | [5, 0x64] => Probed::More,
        _ => Probed::No,
    }
}

/// The checksum of a block (clause 9.2.5.3).
fn crc(data: &[u8]) -> u16 {
    let mut crc = 0u16;
    for b in data {
        crc ^= u16::from(*b);
        for _ in 0..8 {
            crc = if crc & 1 != 0 { crc >> 1 ^ 0xa6bc } else { crc >> 1 };
        }
    }
    !crc
}

/// Splits a block into data and checksum. Returns the data, and whether the checksum is correct.
fn checked(block: &[u8]) -> Option<(&[u8], bool)> {
    let (data, sum) = block.split_last_chunk::<2>()?;
    Some((data, crc(data) == u16::from_le_bytes(*sum)))
}

/// The reassembly of a fragment.
#[derive(Debug, Default)]
struct Assembly {
    /// A fragment has begun and is complete so far.
    open: bool,
    /// Number of the next segment.
    next: u8,
    data: Vec<u8>,
}

/// The state of a flow.
#[derive(Debug)]
struct Dnp3 {
    max_txs: usize,
    limits: Limits,
    assemblies: [Assembly; 2],
}

/// Length of a link frame: its header, and user data with a checksum after each block.
fn frame_len(len: u8) -> usize {
    let user = usize::from(len).saturating_sub(5);
    HEADER + user + 2 * user.div_ceil(BLOCK)
}

impl Conversation for Dnp3 {
    type Tx = Fragment;
    const PROTO: AppProto = AppProto::Dnp3;
    const PROMPT: bool = false;
    const TOO_MANY: Option<u8> = Some(Event::Flooded as u8);

    fn new(config: &AppConfig, _flow: &FlowCore) -> Self {
        let setting = |place| config.settings.get(AppProto::Dnp3, place) as usize;
        Dnp3 {
            max_txs: setting(MAX_TX),
            limits: Limits { objects: setting(MAX_OBJECTS), points: setting(MAX_POINTS) },
            assemblies: Default::default(),
        }
    }

    fn framing(&mut self, _dir: Direction, data: &[u8], _end: bool) -> Framing {
        match data {
            [5, 0x64, len, ..] if *len >= 5 => Framing::Message(frame_len(*len)),
            [5, 0x64, ..] if data.len() > 2 => Framing::Message(3),
            [5] | [5, 0x64] => Framing::More,
            _ => Framing::Broken,
        }
    }

    fn message(&mut self, turn: &mut Turn<'_, '_, Fragment>, dir: Direction, frame: &[u8]) -> Outcome {
        let wrong = |turn: &mut Turn<'_, '_, Fragment>, event: Event| {
            turn.one_way(dir, Fragment::without_content()).event(event as u8);
        };
        let Some(&[_, _, len, control, d0, d1, s0, s1, c0, c1]) = frame.first_chunk::<HEADER>() else {
            if frame.get(2).is_some_and(|len| *len < 5) {
                wrong(turn, Event::LenTooSmall);
                return Outcome::Failed;
            }
            return Outcome::More;
        };
        if frame.len() < frame_len(len) {
            // The stream ends within the frame.
            return Outcome::More;
        }
        let (header, user) = frame.split_at(HEADER.min(frame.len()));
        if !checked(header).is_some_and(|(_, holds)| holds) {
            wrong(turn, Event::BadLinkCrc);
            return Outcome::More;
        }
        let mut link = Link {
            len,
            control,
            dst: u16::from_le_bytes([d0, d1]),
            src: u16::from_le_bytes([s0, s1]),
            crc: u16::from_le_bytes([c0, c1]),
            transport: 0,
        };
        if !link.has_user_data() {
            return Outcome::More;
        }
        if user.is_empty() {
            wrong(turn, Event::LenTooSmall);
            return Outcome::More;
        }
        let mut data = [0; 255];
        let mut used = 0;
        for block in user.chunks(BLOCK + 2) {
            let Some((bytes, true)) = checked(block) else {
                wrong(turn, Event::BadTransportCrc);
                return Outcome::More;
            };
            if let Some(to) = data.get_mut(used..used + bytes.len()) {
                to.copy_from_slice(bytes);
                used += bytes.len();
            }
        }
        if let Some((transport, segment)) = data.get(..used).and_then(|d| d.split_first()) {
            link.transport = *transport;
            self.segment(turn, dir, link, segment);
        }
        Outcome::More
    }

    /// A gap loses the current fragment. The next one begins with a frame.
    const RESUMES: bool = true;

    fn resume(&mut self, _dir: Direction, data: &[u8], _end: bool) -> Resume {
        Resume::search(data, START.len(), |w| w == START)
    }

    fn gap(&mut self, _turn: &mut Turn<'_, '_, Fragment>, dir: Direction, _len: u64) -> Outcome {
        self.assemblies[dir.index()].open = false;
        Outcome::More
    }

    fn max_txs(&self) -> usize {
        self.max_txs
    }

    fn held(&self) -> u64 {
        self.assemblies.iter().map(|a| a.data.capacity() as u64).sum()
    }
}

impl Dnp3 {
    /// Handles a segment of the transport function (clause 8).
    fn segment(&mut self, turn: &mut Turn<'_, '_, Fragment>, dir: Direction, link: Link, segment: &[u8]) {
        let (fin, fir, number) = (link.transport & 0x80 != 0, link.transport & 0x40 != 0, link.transport & 0x3f);
        let assembly = &mut self.assemblies[dir.index()];
        if fir {
            assembly.data.clear();
            assembly.open = true;
        } else if !assembly.open || number != assembly.next {
            assembly.open = false;
            return;
        }
        assembly.next = (number + 1) & 0x3f;
        if assembly.data.len() + segment.len() > FRAGMENT_MAX {
            *assembly = Assembly::default();
            turn.one_way(dir, Fragment::without_content()).event(Event::TooLongReassembly as u8);
            return;
        }
        if fin && assembly.data.is_empty() {
            assembly.open = false;
            self.fragment(turn, dir, link, segment);
            return;
        }
        assembly.data.extend_from_slice(segment);
        if fin {
            let data = std::mem::take(assembly).data;
            self.fragment(turn, dir, link, &data);
        }
    }

    fn fragment(&mut self, turn: &mut Turn<'_, '_, Fragment>, dir: Direction, link: Link, data: &[u8]) {
        let Some((fragment, event)) = Fragment::read(dir, link, data, self.limits) else {
            if data.get(1) != Some(&CONFIRM) {
                turn.one_way(dir, Fragment::without_content()).event(Event::LenTooSmall as u8);
            }
            return;
        };
        let tx = turn.one_way(dir, fragment);
        if let Some(event) = event {
            tx.event(event as u8);
        }
    }
}

#[cfg(test)]
mod tests;
