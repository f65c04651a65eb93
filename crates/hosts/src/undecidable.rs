//! Facts that no passive sensor can know: the reasons, each with the condition that a conversation must meet.

use crate::conversation::flag;
use crate::play::Outcome;
use crate::seen::{Difference, How, TOGETHER};

/// It is unknown which fragments a host has, and had when the others arrived. Events, each with its reason.
const FRAGMENTS: &[(&str, &str)] = &[
    ("ipv4.frag_again", "fragment lost behind the sensor"),
    ("ipv6.frag_again", "fragment lost behind the sensor"),
    ("ipv4.frag_late", "fragment at the time at which others are forgotten"),
    ("ipv6.frag_late", "fragment at the time at which others are forgotten"),
    ("ipv4.frag_ignored", "fragments that make no sense"),
    ("ipv6.frag_ignored", "fragments that make no sense"),
    ("ipv4.frag_overlap", "fragments that overlap"),
    ("ipv6.frag_overlap", "fragments that overlap"),
];
/// If a segment is lost behind the sensor, it is unknown which of two versions arrived, and whether an urgent pointer
/// did.
const LOST: &str = "segment lost behind the sensor";
/// The events for an urgent pointer whose byte matters, and for one that a later pointer skipped.
const URGENT_DATA: &str = "reassembly_urgent_data";
const PASSED_OVER: &str = "reassembly_urgent_passed_over";
/// Whether a host accepts the urgent pointer of a retransmitted segment depends on whether it has acknowledged all of
/// the segment.
const AGAIN: &str = "urgent pointer of a segment that came again";
/// A host records the timestamp of a segment only if it had acknowledged all data before it.
const TIME: &str = "timestamp that may be too old";
const OLD_TIME: &str = "pkt_invalid_timestamp";
/// A host may discard either of two versions; the engine keeps the likelier one.
const DOUBTFUL: &str = "both versions are doubtful";
/// Linux checks for an old acknowledgment only outside its fast path, and whether data takes that depends on its
/// memory.
const ACK: &str = "acknowledgment that is too old";
const INVALID_ACK: &str = "pkt_invalid_ack";
/// If a later urgent pointer skips an urgent byte, the host takes that byte out only if its application has read
/// up to it by then.
const URGENT: &str = "urgent byte that was passed over";
/// Of two versions of early data Linux keeps the one that it can merge with its neighbours, which depends on its memory.
const EARLY: &str = "early segments that disagree";
/// Whether a host accepts a segment that reaches beyond its window depends on what its application has read, and on its
/// kernel.
const BEYOND: &str = "segment beyond the window";
/// The events for such segments.
const OUT_OF_WINDOW: &[&str] = &[
    "3whs_wrong_seq_wrong_ack",
    "est_packet_out_of_window",
    "fin_out_of_window",
    "closewait_ack_out_of_window",
    "closewait_fin_out_of_window",
    "fin1_ack_wrong_seq",
    "fin1_fin_wrong_seq",
    "fin2_ack_wrong_seq",
    "fin2_fin_wrong_seq",
    "closing_ack_wrong_seq",
    "lastack_ack_wrong_seq",
    "timewait_ack_wrong_seq",
];
/// If a FIN arrives early, Linux may merge it with the data after it, and then reads that data as if the FIN occupied
/// no sequence number. This depends on its memory.
const FIN: &str = "data behind an early FIN";
/// The engine does not keep the data of a second, different SYN. If the first one is lost, the host may accept it.
const LOST_SYN: &str = "SYN lost behind the sensor";

/// Every reason.
pub const REASONS: &[&str] = &[
    "fragment lost behind the sensor",
    "fragment at the time at which others are forgotten",
    "fragments that make no sense",
    "fragments that overlap",
    LOST,
    DOUBTFUL,
    ACK,
    URGENT,
    AGAIN,
    EARLY,
    BEYOND,
    FIN,
    LOST_SYN,
    TIME,
];

/// The reason why no passive sensor can know of a difference, if there is one. Events and packets must show that it
/// applies.
pub fn reason(d: &Difference, out: &Outcome) -> Option<&'static str> {
    let has = |e: &str| out.events.contains(&e);
    let course = &out.course;
    // The host removes urgent bytes, so the application does not read them.
    let urgent = course.sent.iter().filter(|s| s.urgent.is_some()).count() as i64;
    let first = d.at as i64 + out.first;
    let places = || first..=first + urgent;
    let reached = |place: i64| place <= first + urgent;
    let at = |which: &dyn Fn(&crate::course::Sent) -> bool| places().any(|p| course.any_at(p, which));
    let apart = d.how == How::Apart;
    let other = matches!(d.how, How::Other | How::OtherByParser | How::Apart);
    let differs = other && has("reassembly_overlap_different_data");
    let fragmented = out.datagrams || apart || at(&|s| s.fragments);
    if let Some(f) = FRAGMENTS.iter().find(|f| fragmented && has(f.0)) {
        return Some(f.1);
    }
    let fins = || course.sent.iter().filter(|s| s.flags & flag::FIN != 0 && s.fin_early && !s.lost);
    if has("data_after_fin") && fins().any(|s| reached(s.data.1)) {
        return Some(FIN);
    }
    let arrived = || course.sent.iter().filter(|s| !s.lost).filter_map(|s| s.urgent);
    // If the flow timed out in the meantime, the engine has forgotten the earlier pointer.
    let passed_over = has(PASSED_OVER) || has(URGENT_DATA) && out.waits;
    if (out.lazy || out.waits) && passed_over && arrived().any(|p| reached(p) && arrived().any(|later| later > p)) {
        return Some(URGENT);
    }
    let lost = || course.sent.iter().filter(|s| s.lost);
    // An accepted pointer voids later ones that point at an earlier byte.
    let voids = |u: i64| has(URGENT_DATA) && arrived().any(|p| reached(p) && p < u);
    // A host discards a segment that it has acknowledged completely, but its acknowledgment passes the sensor later.
    let again = || course.sent.iter().any(|s| s.again && s.urgent.is_some_and(|u| reached(u) || voids(u)));
    if has(URGENT_DATA) && again() {
        return Some(AGAIN);
    }
    // For the engine, but not for the host, a lost pointer voids later ones that point at an earlier byte.
    let hidden = |p: i64| lost().any(|s| s.covers(p) || s.urgent.is_some_and(|other| other > p));
    let pointer_lost = || lost().any(|s| s.urgent.is_some_and(reached)) || arrived().any(|p| reached(p) && hidden(p));
    if has(URGENT_DATA) && pointer_lost() {
        return Some(LOST);
    }
    // The application cannot have read up to a pointer if the host lacks data before it.
    let unread = |p: i64| lost().any(|s| s.data.0 < p);
    if has(PASSED_OVER) && arrived().any(|p| reached(p) && unread(p) && arrived().any(|later| later > p)) {
        return Some(LOST);
    }
    if differs && at(&|s| s.lost) {
        return Some(LOST);
    }
    let together = if apart { TOGETHER as i64 } else { 0 };
    if differs && course.contested.iter().any(|c| places().any(|p| (c.0..c.1 + together).contains(&p))) {
        return Some(EARLY);
    }
    let points = || course.sent.iter().any(|s| s.beyond && s.urgent.is_some_and(|u| reached(u) || voids(u)));
    if OUT_OF_WINDOW.iter().any(|e| has(e)) && (at(&|s| s.beyond) || apart && differs || points()) {
        return Some(BEYOND);
    }
    // If the flow timed out in the meantime, the engine has forgotten the later timestamp.
    if differs && (has(OLD_TIME) || out.waits) && at(&|s| s.old_time) {
        return Some(TIME);
    }
    // A pointer at a byte that the application has read has no effect.
    let given = |p: i64| reached(p) && course.any_at(p, |s| s.old_time);
    if has(URGENT_DATA) && has(OLD_TIME) && arrived().any(given) {
        return Some(TIME);
    }
    if differs && places().any(|p| course.doubtful_at(p)) {
        return Some(DOUBTFUL);
    }
    // The host records the timestamp of a segment with an old acknowledgment only if it accepts its data.
    let noted = || course.sent.iter().any(|s| s.old_ack && !s.lost) && at(&|s| s.old_time);
    if has(INVALID_ACK) && (at(&|s| s.old_ack) || noted()) {
        return Some(ACK);
    }
    if lost().any(|s| s.flags & flag::SYN != 0) && has("3whs_synack_with_wrong_ack") {
        return Some(LOST_SYN);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::{Opt, Segment};

    fn segment(at: i64, len: u16) -> Segment {
        Segment { at, len, ..Segment::default() }
    }

    fn urgent(at: i64, urgent: u16, len: u16) -> Segment {
        Segment { flags: flag::ACK | flag::URG, urgent, ..segment(at, len) }
    }

    /// The reason for these segments and events, if byte 5 differs.
    fn why(all: &[Segment], how: How, events: &[&'static str]) -> Option<&'static str> {
        let mut out = Outcome { events: events.to_vec(), ..Outcome::default() };
        out.course.offered(0, 100);
        all.iter().for_each(|s| out.course.note(s));
        reason(&Difference { at: 5, how }, &out)
    }

    #[test]
    fn each_reason_wants_its_event() {
        let other = "reassembly_overlap_different_data";
        let version = |s: Segment| Segment { version: 1, ..s };
        let stamped = |n, s: Segment| Segment { options: vec![Opt::Time(n, None)], ..s };
        let lost = |s: Segment| Segment { lost: true, ..s };
        let fin = |s: Segment| Segment { flags: flag::ACK | flag::FIN, ..s };
        let cases: &[(&str, Vec<Segment>, How, &[&'static str])] = &[
            (LOST, vec![lost(segment(0, 9)), version(segment(0, 9))], How::Other, &[other]),
            (LOST, vec![lost(urgent(0, 90, 0)), urgent(0, 3, 9)], How::Other, &[URGENT_DATA]),
            (LOST, vec![lost(segment(0, 4)), urgent(0, 3, 9)], How::Unseen, &[URGENT_DATA]),
            (AGAIN, vec![segment(0, 9), urgent(0, 3, 9)], How::Other, &[URGENT_DATA]),
            (AGAIN, vec![segment(0, 4), urgent(0, 90, 0), urgent(5, 0, 1)], How::Other, &[URGENT_DATA]),
            (FIN, vec![fin(segment(5, 0)), segment(6, 9), segment(0, 5)], How::Unseen, &["data_after_fin"]),
            (EARLY, vec![segment(5, 9), version(segment(5, 9)), segment(0, 5)], How::Other, &[other]),
            (BEYOND, vec![segment(0, 101)], How::Unseen, &["est_packet_out_of_window"]),
            (BEYOND, vec![urgent(0, 4, 101)], How::Unseen, &["est_packet_out_of_window"]),
            (
                BEYOND,
                vec![urgent(50, 90, 101), urgent(5, 0, 1)],
                How::Unseen,
                &["est_packet_out_of_window", URGENT_DATA],
            ),
            (
                TIME,
                vec![stamped(9, segment(0, 1)), stamped(5, segment(1, 9)), urgent(5, 0, 0)],
                How::Other,
                &[URGENT_DATA, OLD_TIME],
            ),
            (TIME, vec![stamped(9, segment(0, 1)), stamped(5, segment(1, 9))], How::Other, &[other, OLD_TIME]),
            (ACK, vec![Segment { ack: -1, ..segment(0, 9) }], How::Unseen, &[INVALID_ACK]),
        ];
        for (reason, all, how, events) in cases {
            assert_eq!(why(all, *how, events), Some(*reason));
            for one in *events {
                let others: Vec<_> = events.iter().copied().filter(|e| e != one).collect();
                assert_eq!(why(all, *how, &others), None, "{reason} without {one}");
            }
        }
    }

    #[test]
    fn urgent_bytes_that_are_passed_over() {
        let mut out = Outcome { events: vec![URGENT_DATA, PASSED_OVER], lazy: true, ..Outcome::default() };
        [urgent(0, 3, 9), urgent(9, 3, 9)].iter().for_each(|s| out.course.note(s));
        let d = Difference { at: 2, how: How::Other };
        assert_eq!(reason(&d, &out), Some(URGENT));
        // An application that reads at once has read up to the byte. If the flow timed out in between, this is unknown.
        out.lazy = false;
        assert_eq!(reason(&d, &out), None);
        out.waits = true;
        assert_eq!(reason(&d, &out), Some(URGENT));
        out.events = vec![URGENT_DATA];
        assert_eq!(reason(&d, &out), Some(URGENT));
        out.events.clear();
        assert_eq!(reason(&d, &out), None);
        // Urgent bytes explain no difference before the first of them.
        out.events = vec![URGENT_DATA, PASSED_OVER];
        out.course = Default::default();
        [urgent(8, 3, 9), urgent(20, 3, 9)].iter().for_each(|s| out.course.note(s));
        assert_eq!(reason(&Difference { at: 2, how: How::Other }, &out), None);
    }

    #[test]
    fn a_pointer_behind_lost_data_counts_until_a_later_one() {
        let lost = Segment { lost: true, ..segment(0, 5) };
        let (first, second) = (urgent(5, 1, 1), urgent(9, 1, 1));
        let events = &[URGENT_DATA, PASSED_OVER][..];
        let why = |all: &[Segment]| why(all, How::Unseen, events);
        assert_eq!(why(&[lost.clone(), first.clone(), second.clone()]), Some(LOST));
        assert_eq!(why(&[first.clone(), second]), None);
        assert_eq!(why(&[lost, first]), None);
    }
}
