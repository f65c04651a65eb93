//! Minimises a conversation that slips past the engine.

use crate::conversation::{Conversation, Piece, Role, Segment, Step, flag};

/// Most rounds; each tries every simplification once.
const ROUNDS: usize = 20;

/// The smallest conversation found, starting with `from`, for which `slips` is true, as it is for `from`.
pub fn shrink(from: &Conversation, slips: &mut dyn FnMut(&Conversation) -> bool) -> Conversation {
    let mut best = from.clone();
    for _ in 0..ROUNDS {
        let before = best.clone();
        fewer_steps(&mut best, slips);
        simpler_steps(&mut best, slips);
        simpler_whole(&mut best, slips);
        if best == before {
            break;
        }
    }
    best
}

fn fewer_steps(best: &mut Conversation, slips: &mut dyn FnMut(&Conversation) -> bool) {
    let mut size = best.steps.len() / 2;
    while size > 0 {
        let mut at = 0;
        while at < best.steps.len() {
            let mut c = best.clone();
            c.steps.drain(at..(at + size).min(c.steps.len()));
            if slips(&c) {
                *best = c;
            } else {
                at += size;
            }
        }
        size /= 2;
    }
}

/// Applies `change` to a copy, and keeps the copy if it differs and `slips` is true for it. Returns whether it was
/// kept.
fn attempt(
    best: &mut Conversation,
    slips: &mut dyn FnMut(&Conversation) -> bool,
    change: impl FnOnce(&mut Conversation),
) -> bool {
    let mut c = best.clone();
    change(&mut c);
    if c != *best && slips(&c) {
        *best = c;
        return true;
    }
    false
}

fn segment(c: &mut Conversation, at: usize, change: impl FnOnce(&mut Segment)) {
    if let Some(Step::Segment(s)) = c.steps.get_mut(at) {
        change(s);
    }
}

fn simpler_steps(best: &mut Conversation, slips: &mut dyn FnMut(&Conversation) -> bool) {
    let plain = Segment::default();
    for at in 0..best.steps.len() {
        let simpler: [fn(&mut Segment); 13] = [
            |s| s.pieces.clear(),
            |s| s.options.clear(),
            |s| s.lost = false,
            |s| s.broken = false,
            |s| s.offset = None,
            |s| s.trailing = 0,
            |s| s.urgent = 0,
            |s| s.ack = 0,
            |s| s.version = 0,
            |s| s.version = s.version.min(1),
            |s| s.len = 0,
            |s| s.len = s.len.min(1),
            |s| s.flags &= !flag::PSH,
        ];
        for change in simpler {
            attempt(best, slips, |c| segment(c, at, change));
        }
        attempt(best, slips, |c| segment(c, at, |s| s.window = plain.window));
        attempt(best, slips, |c| segment(c, at, |s| s.flags = flag::ACK));
        for half in [2, 8] {
            while attempt(best, slips, |c| segment(c, at, |s| s.len -= s.len / half)) {}
        }
        let (options, pieces) = match best.steps.get(at) {
            Some(Step::Segment(s)) => (s.options.len(), s.pieces.len()),
            _ => (0, 0),
        };
        for i in (0..options).rev() {
            attempt(best, slips, |c| segment(c, at, |s| drop(s.options.remove(i))));
        }
        for i in (0..pieces).rev() {
            attempt(best, slips, |c| segment(c, at, |s| _ = s.pieces.remove(i)));
        }
        let simpler: [fn(&mut Piece); 3] = [|p| p.lost = false, |p| p.broken = false, |p| p.version = 0];
        for change in simpler {
            attempt(best, slips, |c| {
                if let Some(Step::Piece(p)) = c.steps.get_mut(at) {
                    change(p);
                }
            });
        }
    }
}

fn simpler_whole(best: &mut Conversation, slips: &mut dyn FnMut(&Conversation) -> bool) {
    let simpler: [fn(&mut Conversation); 7] = [
        |c| c.v6 = false,
        |c| c.http = false,
        |c| c.lazy = false,
        |c| c.oob_inline = false,
        |c| c.port = 0,
        |c| c.isn = 1000,
        |c| c.role = Role::Server,
    ];
    for change in simpler {
        attempt(best, slips, change);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matters_stays() {
        let other = || Step::Segment(Segment { at: 9, len: 80, version: 2, urgent: 3, ..Segment::default() });
        let mut c = Conversation { v6: true, http: true, isn: 77, ..Conversation::default() };
        c.steps = (0..20).map(|_| other()).collect();
        c.steps[7] = Step::Wait(4);
        let small = shrink(&c, &mut |c| {
            let long = |s: &Step| matches!(s, Step::Segment(s) if s.len >= 10 && s.urgent == 3);
            c.steps.contains(&Step::Wait(4)) && c.steps.iter().any(long) && c.v6
        });
        assert_eq!(small.steps.len(), 2);
        assert!(small.v6 && !small.http && small.isn == 1000);
        let kept = small.steps.iter().find_map(|s| match s {
            Step::Segment(s) => Some((s.len, s.version, s.urgent)),
            _ => None,
        });
        assert_eq!(kept, Some((10, 0, 3)));
    }
}
