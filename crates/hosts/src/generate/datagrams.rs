//! Fragments of UDP datagrams and other packets.

use super::Maker;
use super::stream::all;
use crate::conversation::{Piece, Step};
use crate::random::Random;

/// The fragments of a packet with a payload of `of` bytes, in sending order, with random changes.
pub(super) fn pieces(r: &mut Random, id: u16, of: u16) -> Vec<Piece> {
    let mut out = Vec::new();
    let longest = r.pick(&[8, 16, 64, 256, 1024]);
    let mut from = 0;
    while from < of {
        let len = (r.between(1, longest / 8) * 8).min(i64::from(of - from)) as u16;
        let more = from + len < of;
        out.push(Piece { id, of, from, len, more, ..Piece::default() });
        from += len;
    }
    for _ in 0..r.pick(&[0, 1, 1, 2, 3]) {
        change(r, &mut out, id, of);
    }
    out.truncate(80);
    out
}

fn change(r: &mut Random, out: &mut Vec<Piece>, id: u16, of: u16) {
    if out.is_empty() {
        return;
    }
    let at = r.below(out.len() as u64) as usize;
    let place = r.below(out.len() as u64 + 1) as usize;
    let p = out[at];
    match r.below(14) {
        0 => out.reverse(),
        1 => {
            let last = out.len() - 1;
            out.swap(at, place.min(last));
        }
        2 => out.insert(place, p),
        // Other content: at the same place, or shifted and longer or shorter.
        3 | 4 => out.insert(place, Piece { version: r.pick(&[1, 2, 3]), ..p }),
        5 => {
            let from = (i64::from(p.from) + r.between(-3, 3) * 8).clamp(0, i64::from(of)) as u16;
            let len = (i64::from(p.len) + r.between(-2, 4) * 8).clamp(0, 1400) as u16;
            let more = r.chance(50) || u32::from(from) + u32::from(len) < u32::from(of);
            out.insert(place, Piece { from, len, more, version: r.pick(&[0, 1]), ..p });
        }
        // Another end of the datagram.
        6 => out.insert(place, Piece { more: !p.more, version: r.pick(&[0, 1]), ..p }),
        7 => {
            out.insert(place, Piece { from: of.next_multiple_of(8), len: r.pick(&[0, 8, 16]), more: r.chance(50), ..p })
        }
        // Lengths that are no multiple of eight.
        8 => out.insert(
            place,
            Piece { len: p.len.saturating_sub(r.between(1, 7) as u16), more: true, version: r.pick(&[0, 1]), ..p },
        ),
        9 => out.insert(place, Piece { lost: true, version: r.pick(&[0, 1]), ..p }),
        10 => out.insert(place, Piece { broken: true, version: 1, ..p }),
        11 => out.insert(place, Piece { len: 0, more: r.chance(70), ..p }),
        12 => out.insert(
            place,
            Piece { from: (65_528 - r.between(0, 4) * 8) as u16, len: r.pick(&[8, 16, 64]), more: r.chance(50), ..p },
        ),
        _ => {
            out.remove(at);
            if r.chance(50) {
                out.push(Piece { version: r.pick(&[0, 1]), id, ..p });
            }
        }
    }
}

/// A few UDP datagrams in fragments.
pub(super) fn fragments(m: &mut Maker<'_>) {
    m.c.port = 0;
    (m.c.lazy, m.c.http, m.c.oob_inline) = (false, false, false);
    let mut sent: Vec<Piece> = Vec::new();
    let n = m.r.pick(&[1, 1, 1, 2, 2, 3]);
    for i in 0..n {
        // Sometimes a datagram with the identification of the first one.
        let id = if i > 0 && m.r.chance(30) { 1 } else { i + 1 };
        let of = m.r.pick(&[9, 16, 24, 40, 100, 300, 1500, 4000]) + m.r.between(0, 8) as u16;
        let mut next = if m.r.chance(8) { vec![all(id, of)] } else { pieces(m.r, id, of) };
        if i > 0 && m.r.chance(30) {
            // Fragments of several datagrams are mixed.
            for p in next {
                let at = m.r.below(sent.len() as u64 + 1) as usize;
                sent.insert(at, p);
            }
        } else {
            sent.append(&mut next);
        }
    }
    m.c.steps.extend(sent.into_iter().map(Step::Piece));
}

/// As [`fragments`], with a pause after which hosts have forgotten earlier fragments, or nearly.
pub(super) fn timeouts(m: &mut Maker<'_>) {
    fragments(m);
    // Not close to the time at which a host forgets fragments, which is not known exactly.
    let seconds = if m.c.v6 { m.r.pick(&[20, 50, 61, 70]) } else { m.r.pick(&[20, 27, 33, 50, 61, 70]) };
    let place = m.r.below(m.c.steps.len() as u64 + 1) as usize;
    let mut late = m.c.steps.split_off(place);
    if m.r.chance(60) {
        // Earlier fragments are sent again with other content.
        let again = m.c.steps.iter().filter_map(|s| match s {
            Step::Piece(p) => Some(Step::Piece(Piece { version: p.version ^ 1, lost: false, ..*p })),
            _ => None,
        });
        let again: Vec<Step> = again.collect();
        let at = m.r.below(late.len() as u64 + 1) as usize;
        late.splice(at..at, again);
    }
    m.c.steps.push(Step::Wait(seconds));
    m.c.steps.append(&mut late);
}
