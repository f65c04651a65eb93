//! Protocol detection for DNS: on its ports, by a valid header and a valid beginning of the first question. A response in the
//! direction of requests shows that the flow has to be turned.

use margay_flow::Direction;

use crate::recognise::{PROBE_MAX, Probe, Probed, Recognition, TCP, UDP};

pub(super) const DNS: Recognition = Recognition {
    patterns: &[],
    probes: &[Probe { transport: TCP, ports: &[53], probe: tcp }, Probe { transport: UDP, ports: &[53], probe: udp }],
};

pub(super) const MDNS: Recognition =
    Recognition { patterns: &[], probes: &[Probe { transport: UDP, ports: &[5353], probe: mdns }] };

/// The most questions that must be present before the decision; each takes at least five bytes.
const QUESTIONS_SEEN: usize = 16;

/// Checks a message (RFC 1035 section 4.1) of `whole` bytes, with `data` available, by its header and the first label of the
/// first question.
fn message(dir: Direction, data: &[u8], whole: usize) -> Probed {
    let Some(head) = data.first_chunk::<12>() else { return Probed::More };
    let count = |at: usize| usize::from(u16::from_be_bytes([head[at], head[at + 1]]));
    let (questions, records) = (count(4), count(6) + count(8) + count(10));
    let response = head[2] & 0x80 != 0;
    if whole < 12 + 5 * questions {
        return Probed::No;
    }
    // A header without any records is not a valid message alone; in a stream, more may follow.
    if questions == 0 && records == 0 && !response && data.len() < 17 {
        return Probed::More;
    }
    if questions > 0 {
        let Some(label) = data.get(12) else { return Probed::More };
        if matches!(label >> 6, 1 | 2) {
            return Probed::No;
        }
        if data.len() < 12 + 5 * questions.min(QUESTIONS_SEEN) {
            return Probed::More;
        }
    }
    Probed::Yes { reverse: response == (dir == Direction::ToServer) }
}

/// DNS over UDP.
fn udp(dir: Direction, data: &[u8]) -> Probed {
    // Detection sees only the beginning of a longer datagram.
    let whole = if data.len() < PROBE_MAX { data.len() } else { usize::MAX };
    message(dir, data, whole)
}

/// Multicast DNS (RFC 6762): both ends use the same port, and either may send an unsolicited answer.
fn mdns(dir: Direction, data: &[u8]) -> Probed {
    match udp(dir, data) {
        Probed::Yes { .. } => Probed::Yes { reverse: false },
        other => other,
    }
}

/// DNS over TCP (RFC 1035 section 4.2.2): a length, then the message.
pub(super) fn tcp(dir: Direction, data: &[u8]) -> Probed {
    match data.first_chunk::<2>().map(|b| u16::from_be_bytes(*b)) {
        None => Probed::More,
        Some(0..=11) => Probed::No,
        Some(whole) => message(dir, data.get(2..).unwrap_or(&[]), usize::from(whole)),
    }
}
