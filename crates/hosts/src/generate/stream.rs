//! Changes to a stream.

use super::Maker;
use crate::conversation::{Opt, Piece, Segment, Step, flag};

/// How often a change is made.
fn times(m: &mut Maker<'_>) -> i64 {
    m.r.pick(&[1, 1, 1, 2, 3])
}

/// A random segment of the steps, with its index.
fn any(m: &mut Maker<'_>, steps: &[Step]) -> Option<(usize, Segment)> {
    let all: Vec<usize> = steps.iter().enumerate().filter(|s| matches!(s.1, Step::Segment(_))).map(|s| s.0).collect();
    if all.is_empty() {
        return None;
    }
    let at = m.r.pick(&all);
    match steps.get(at) {
        Some(Step::Segment(s)) => Some((at, s.clone())),
        _ => None,
    }
}

/// The highest end of the sender's ordinary segments before a step.
fn reached(steps: &[Step], place: usize) -> i64 {
    let ends = steps.iter().take(place).filter_map(|s| match s {
        Step::Segment(s) if s.version == 0 => Some(s.end()),
        _ => None,
    });
    ends.max().unwrap_or(0)
}

/// Segments begin earlier and end later, with the same content.
#[expect(clippy::ptr_arg, reason = "every change has this form")]
pub(super) fn overlap(m: &mut Maker<'_>, steps: &mut Vec<Step>) {
    for s in steps.iter_mut() {
        if let Step::Segment(s) = s
            && m.r.chance(40)
        {
            let left = m.r.between(0, 40).min(s.at.max(0));
            s.at -= left;
            s.len = (i64::from(s.len) + left + m.r.between(0, 40)).clamp(0, 1400) as u16;
        }
    }
}

/// A range of the stream is also sent with other content, before or after.
pub(super) fn disagree(m: &mut Maker<'_>, steps: &mut Vec<Step>) {
    for _ in 0..times(m) {
        let (from, to) = m.stretch(steps);
        let mut s = m.data(from, to - from);
        s.version = m.r.pick(&[1, 1, 2]);
        if m.r.chance(10) {
            s.flags |= flag::FIN;
        }
        let place = m.place(steps);
        steps.insert(place, Step::Segment(s));
    }
}

/// Segments are sent again.
pub(super) fn repeat(m: &mut Maker<'_>, steps: &mut Vec<Step>) {
    for _ in 0..times(m) + 1 {
        if let Some((at, s)) = any(m, steps) {
            let later = at + m.r.below((steps.len() - at) as u64 + 1) as usize;
            steps.insert(later, Step::Segment(s));
        }
    }
}

/// Segments are sent in another order.
#[expect(clippy::ptr_arg, reason = "every change has this form")]
pub(super) fn reorder(m: &mut Maker<'_>, steps: &mut Vec<Step>) {
    let n = steps.len();
    if m.r.chance(20) {
        steps.reverse();
        return;
    }
    let reach = m.r.pick(&[2, 3, 5, 20]);
    for i in 0..n {
        if m.r.chance(50) {
            let j = (i + m.r.below(reach) as usize).min(n - 1);
            steps.swap(i, j);
        }
    }
}

/// Urgent data.
pub(super) fn urgent(m: &mut Maker<'_>, steps: &mut Vec<Step>) {
    for _ in 0..times(m) {
        if let Some((at, mut s)) = any(m, steps) {
            s.flags |= flag::URG;
            let len = i64::from(s.len);
            s.urgent = match m.r.below(6) {
                0 => 0,
                1 => len as u16,
                2 => (len + m.r.between(1, 100)) as u16,
                3 => m.r.pick(&[1, u16::MAX, 0x8000]),
                _ => m.r.between(1, len.max(1)) as u16,
            };
            if m.r.chance(20) {
                s.flags &= !flag::URG;
            }
            steps[at] = Step::Segment(s);
        }
    }
    if m.r.chance(50) {
        let place = m.place(steps);
        steps.insert(place, Step::Read);
    }
}

/// Timestamps that are old, far ahead, missing or doubled.
pub(super) fn timestamps(m: &mut Maker<'_>, steps: &mut Vec<Step>) {
    for _ in 0..times(m) + 1 {
        let value = match m.r.below(8) {
            0 => -1,
            1 => -(m.clock + 1 + m.r.between(0, 100)),
            2 => m.r.between(-1_000_000_000, -1),
            3 => m.r.between(1, 1_000_000_000),
            4 => 0x7fff_ffff,
            5 => 0x8000_0000,
            6 => -i64::from(crate::conversation::TIMESTAMP),
            _ => m.r.between(0, m.clock),
        };
        let echo = match m.r.below(3) {
            0 => Some(m.r.bits() as u32),
            1 => Some(0),
            _ => None,
        };
        let time = Opt::Time(value, echo);
        let place = m.place(steps);
        let at = reached(steps, place);
        let (from, to) = m.stretch(steps);
        let mut s = match m.r.below(3) {
            // A bare acknowledgment, in order or at another sequence number.
            0 => Segment { at: at + m.r.pick(&[0, 0, -1, 1, 1_000_000, -100_000]), ..Segment::default() },
            1 => Segment { at: from, len: (to - from).min(1400) as u16, version: 1, ..Segment::default() },
            _ => match any(m, steps) {
                Some((at, mut s)) => {
                    s.options.retain(|o| !matches!(o, Opt::Time(..)));
                    if m.r.chance(60) {
                        s.options.push(time);
                    }
                    steps[at] = Step::Segment(s);
                    continue;
                }
                None => return,
            },
        };
        s.ack = m.r.pick(&[0, 0, 0, 1, 1_000_000, -1, -100_000]);
        s.options = vec![time.clone()];
        if m.r.chance(15) {
            let other = Opt::Time(m.clock, None);
            s.options = if m.r.chance(50) { vec![time, other] } else { vec![other, time] };
        }
        if m.r.chance(10) {
            s.flags = m.r.pick(&[flag::ACK | flag::FIN, flag::RST, flag::ACK | flag::RST, flag::SYN]);
        }
        steps.insert(place, Step::Segment(s));
    }
}

/// Acknowledgments of data that was not sent, old ones, and segments without ACK.
pub(super) fn acknowledgments(m: &mut Maker<'_>, steps: &mut Vec<Step>) {
    for _ in 0..times(m) + 1 {
        let ack = match m.r.below(7) {
            0 => 1,
            1 => -1,
            2 => m.r.between(2, 70_000),
            3 => m.r.between(-70_000, -2),
            4 => m.r.between(70_000, 0x7fff_ffff),
            5 => -m.r.between(70_000, 0x7fff_ffff),
            _ => 0x8000_0000,
        };
        let place = m.place(steps);
        let (from, to) = m.stretch(steps);
        let mut s = m.data(from, to - from);
        s.version = m.r.pick(&[0, 1, 1]);
        s.ack = ack;
        match m.r.below(6) {
            0 => s.flags = 0,
            1 => s.flags = flag::PSH,
            2 => (s.len, s.at) = (0, reached(steps, place)),
            3 => s.flags |= flag::FIN,
            _ => {}
        }
        steps.insert(place, Step::Segment(s));
        if m.r.chance(30) {
            let place = m.place(steps);
            steps.insert(place, Step::Write(m.r.between(1, 3000) as u16));
        }
    }
}

/// Resets of all kinds, after which the stream continues.
pub(super) fn reset(m: &mut Maker<'_>, steps: &mut Vec<Step>) {
    for _ in 0..times(m) {
        let place = m.place(steps);
        let here = reached(steps, place);
        let at = match m.r.below(8) {
            0 => here + 1,
            1 => here - 1,
            2 => here + m.r.between(2, 60_000),
            3 => here - m.r.between(2, 60_000),
            4 => here + m.r.between(100_000, 0x7fff_ffff),
            5 => 0,
            _ => here,
        };
        let mut s = m.data(at, 0);
        s.flags =
            m.r.pick(&[flag::RST, flag::RST | flag::ACK, flag::RST | flag::ACK | flag::FIN, flag::RST | flag::SYN]);
        s.ack = m.r.pick(&[0, 0, 1, -1, 100_000, -100_000]);
        s.len = m.r.pick(&[0, 0, 0, 5]);
        s.lost = m.r.chance(25);
        s.broken = m.r.chance(15);
        if m.r.chance(15) {
            s.options = vec![Opt::Time(m.r.pick(&[-5000, 0, 100_000]), None)];
        } else if m.r.chance(20) {
            s.options.clear();
        }
        steps.insert(place, Step::Segment(s));
    }
    if m.r.chance(40) {
        disagree(m, steps);
    }
}

/// FINs of all kinds, after which the stream continues.
pub(super) fn fin(m: &mut Maker<'_>, steps: &mut Vec<Step>) {
    for _ in 0..times(m) {
        let place = m.place(steps);
        let here = reached(steps, place);
        let at = match m.r.below(8) {
            0 => here + 1,
            1 => here - 1,
            2 => here + m.r.between(2, 500),
            3 => here - m.r.between(2, 500),
            4 => m.total,
            5 => m.r.between(0, m.total),
            _ => here,
        };
        let len = m.r.pick(&[0, 0, 0, 1, 10, 40]);
        let mut s = m.data(at, len);
        s.flags = flag::FIN | m.r.pick(&[flag::ACK, flag::ACK, flag::ACK, 0]);
        s.ack = m.r.pick(&[0, 0, 0, 0, 1, -1, 100_000]);
        s.version = m.r.pick(&[0, 0, 1]);
        s.lost = m.r.chance(15);
        s.broken = m.r.chance(15);
        steps.insert(place, Step::Segment(s));
    }
    if m.r.chance(40) {
        disagree(m, steps);
    }
    if m.r.chance(20) {
        reorder(m, steps);
    }
}

/// SYNs on an existing connection.
pub(super) fn syn(m: &mut Maker<'_>, steps: &mut Vec<Step>) {
    for _ in 0..times(m) {
        let place = m.place(steps);
        let here = reached(steps, place);
        let at = match m.r.below(6) {
            0 => -1,
            1 => here,
            2 => here - 1,
            3 => here + m.r.between(1, 100_000),
            4 => m.r.between(-0x7fff_ffff, 0x7fff_ffff),
            _ => m.r.between(0, m.total),
        };
        let mut s = m.data(at, 0);
        s.flags = flag::SYN | m.r.pick(&[0, 0, flag::ACK, flag::FIN, flag::RST, flag::ACK | flag::PSH]);
        s.ack = m.r.pick(&[0, 0, 1, -1]);
        s.len = m.r.pick(&[0, 0, 10, 30]);
        s.version = m.r.pick(&[0, 1]);
        s.lost = m.r.chance(15);
        steps.insert(place, Step::Segment(s));
    }
    if m.r.chance(30) {
        disagree(m, steps);
    }
}

/// Broken packets: wrong checksums, wrong header lengths, bytes after the end.
pub(super) fn broken(m: &mut Maker<'_>, steps: &mut Vec<Step>) {
    for _ in 0..times(m) + 1 {
        let (from, to) = m.stretch(steps);
        let mut s = m.data(from, to - from);
        s.version = 1;
        match m.r.below(4) {
            0 => s.offset = Some(m.r.pick(&[0, 4, 6, 7, 15])),
            1 => s.trailing = m.r.between(1, 40) as u8,
            _ => s.broken = true,
        }
        if m.r.chance(20) {
            s.flags = m.r.pick(&[
                0,
                flag::FIN | flag::SYN,
                flag::FIN,
                0xff,
                flag::SYN | flag::ACK | flag::URG,
                0xc0 | flag::ACK,
            ]);
        }
        let place = m.place(steps);
        steps.insert(place, Step::Segment(s));
    }
}

/// Data on both sides of the host's window, and odd windows of the sender.
pub(super) fn window(m: &mut Maker<'_>, steps: &mut Vec<Step>) {
    if m.r.chance(40) {
        // The host's window fills up.
        m.c.port = 2;
        m.c.lazy = true;
    }
    for _ in 0..times(m) + 1 {
        let place = m.place(steps);
        let here = reached(steps, place);
        let at = match m.r.below(7) {
            0 => here + m.r.between(60_000, 70_000),
            1 => here + m.r.between(1_000, 8_000),
            2 => here + m.r.between(100_000, 10_000_000),
            3 => here + 0x7fff_0000,
            4 => here - m.r.between(1, 70_000),
            5 => here - 1,
            _ => here,
        };
        let len = m.r.pick(&[1, 1, 10, 500, 1400]);
        let mut s = m.data(at, len);
        s.version = m.r.pick(&[0, 1, 1]);
        s.window = m.r.pick(&[0, 0, 1, 100, 65_535]);
        steps.insert(place, Step::Segment(s));
        if m.r.chance(30) {
            let place = m.place(steps);
            steps.insert(place, Step::Write(2000));
        }
    }
    if m.r.chance(20) {
        // More data than the host has room for.
        let total = m.total;
        for n in 0..m.r.between(3, 12) {
            let s = m.data(total + n * 1400, 1400);
            steps.push(Step::Segment(s));
        }
        m.total += 1400;
    }
}

/// Options that are malformed, doubled or useless, or that change the meaning of later segments.
pub(super) fn options(m: &mut Maker<'_>, steps: &mut Vec<Step>) {
    for _ in 0..times(m) {
        let odd = odd_options(m);
        if m.r.chance(40)
            && let Some(Step::Segment(syn)) = m.c.steps.first_mut()
        {
            syn.options.extend(odd);
        } else if m.r.chance(40)
            && let Some(Step::Segment(syn)) = m.c.steps.first_mut()
        {
            syn.options.splice(0..0, odd);
        } else if let Some((at, mut s)) = any(m, steps) {
            if m.r.chance(50) {
                s.options.clear();
            }
            s.options.extend(odd);
            if m.r.chance(40) {
                s.version = 1;
                steps.insert(at, Step::Segment(s));
            } else {
                steps[at] = Step::Segment(s);
            }
        }
    }
}

/// Odd options.
pub(super) fn odd_options(m: &mut Maker<'_>) -> Vec<Opt> {
    let raw = |bytes: &[u8]| Opt::Raw(bytes.to_vec());
    match m.r.below(13) {
        0 => vec![Opt::Scale(15)],
        1 => vec![Opt::Scale(m.r.between(0, 255) as u8), Opt::Scale(m.r.between(0, 14) as u8)],
        2 => vec![Opt::Time(m.clock, None), Opt::Time(m.clock - 50_000, None)],
        3 => vec![Opt::Time(m.clock - 50_000, None), Opt::Time(m.clock, None)],
        // MD5 (RFC 2385), which the host does not expect.
        4 => vec![raw(&[19, 18, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16])],
        5 => vec![raw(&[0]), Opt::Time(m.clock, None)],
        6 => vec![raw(&[254, 4, 0, 0])],
        7 => vec![raw(&[8, 2])],
        8 => vec![raw(&[8, 40, 1, 2])],
        9 => vec![raw(&[77, 0])],
        10 => vec![raw(&[77, 1])],
        11 => vec![Opt::Mss(m.r.between(0, 100) as u16), Opt::Mss(1460)],
        // Selective acknowledgments of data that was not sent.
        _ => vec![raw(&[1, 1, 5, 10, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xf0])],
    }
}

/// Packets that pass the engine and do not arrive; the original follows, which may have other content.
pub(super) fn lost(m: &mut Maker<'_>, steps: &mut Vec<Step>) {
    for _ in 0..times(m) {
        if let Some((at, mut s)) = any(m, steps) {
            s.lost = true;
            s.version = m.r.pick(&[0, 1, 1]);
            steps.insert(at, Step::Segment(s));
        }
    }
}

/// The host's application shuts down its sending side; the stream continues.
pub(super) fn half_closed(m: &mut Maker<'_>, steps: &mut Vec<Step>) {
    let place = m.place(steps);
    steps.insert(place, Step::Shutdown);
    if m.r.chance(50) {
        fin(m, steps);
    }
    if m.r.chance(50) {
        disagree(m, steps);
    }
    if m.r.chance(20) {
        reset(m, steps);
    }
}

/// The sender pauses for so long that the engine forgets the flow.
pub(super) fn idle(m: &mut Maker<'_>, steps: &mut Vec<Step>) {
    let place = m.place(steps);
    steps.insert(place, Step::Wait(m.r.pick(&[61, 301, 3601, 100_000])));
}

/// Segments are fragmented; fragments overlap, disagree, or are swapped or doubled.
#[expect(clippy::ptr_arg, reason = "every change has this form")]
pub(super) fn fragments(m: &mut Maker<'_>, steps: &mut Vec<Step>) {
    let mut id = 1;
    for s in steps.iter_mut() {
        let Step::Segment(s) = s else { continue };
        if !m.r.chance(40) {
            continue;
        }
        let options: usize = s.options.iter().map(|o| if matches!(o, Opt::Time(..)) { 12 } else { 4 }).sum();
        let whole = 20 + options.min(40) as u16 + s.len;
        s.pieces = super::datagrams::pieces(m.r, id, whole);
        // Sometimes two segments have the same identification.
        if !m.r.chance(10) {
            id += 1;
        }
    }
}

/// A piece with the whole datagram.
pub(super) fn all(id: u16, of: u16) -> Piece {
    Piece { id, of, len: of, ..Piece::default() }
}
