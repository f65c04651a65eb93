//! Handshakes: odd ones, ones with data, and ones that the host begins.

use super::Maker;
use super::stream;
use crate::conversation::{Opt, Role, Segment, Step, flag};

/// An odd handshake, then a stream.
pub(super) fn odd(m: &mut Maker<'_>) {
    m.open();
    for _ in 0..m.r.pick(&[1, 1, 2, 3]) {
        one(m);
    }
    let mut steps = m.stream();
    if m.r.chance(40) {
        stream::disagree(m, &mut steps);
    }
    if m.r.chance(20) {
        stream::reorder(m, &mut steps);
    }
    m.c.steps.append(&mut steps);
    m.close();
}

fn one(m: &mut Maker<'_>) {
    let n = m.c.steps.len() as u64;
    let place = m.r.below(n + 1) as usize;
    let mut s = m.data(0, 0);
    match m.r.below(12) {
        // Another SYN: repeated, with another sequence number, with other options.
        0 => (s.at, s.flags) = (-1, flag::SYN),
        1 => (s.at, s.flags) = (m.r.between(-100_000, 100_000), flag::SYN),
        2 => (s.at, s.flags, s.options) = (-1, flag::SYN, m.syn_options()),
        // A wrong acknowledgment.
        3 => s.ack = m.r.pick(&[1, -1, 5000, -5000, 0x7fff_ffff]),
        4 => (s.at, s.ack) = (m.r.between(-5, 5), m.r.pick(&[0, 1])),
        // Data before the handshake is complete.
        5 => (s.len, s.version) = (m.r.between(1, 30) as u16, m.r.pick(&[0, 1])),
        6 => (s.len, s.version, s.ack) = (m.r.between(1, 30) as u16, 1, m.r.pick(&[1, -1, 5000])),
        // A SYN/ACK, FIN or reset from the sender.
        7 => (s.at, s.flags) = (m.r.pick(&[-1, 0]), flag::SYN | flag::ACK),
        8 => s.flags = flag::FIN | flag::ACK,
        9 => (s.at, s.flags) = (m.r.pick(&[-1, 0, 1, 1000]), m.r.pick(&[flag::RST, flag::RST | flag::ACK])),
        10 => (s.flags, s.len, s.version) = (m.r.pick(&[0, flag::PSH, flag::FIN, flag::SYN | flag::FIN]), 8, 1),
        // The last acknowledgment is missing.
        _ => {
            m.c.steps.truncate(1);
            return;
        }
    }
    s.lost = m.r.chance(20);
    s.broken = m.r.chance(15);
    m.c.steps.insert(place, Step::Segment(s));
}

/// Data with the SYN, with and without fast open.
pub(super) fn with_data(m: &mut Maker<'_>) {
    m.c.port = m.r.pick(&[0, 1, 1]);
    m.open();
    let (len, version) = (m.r.between(1, 200) as u16, m.r.pick(&[0, 0, 1]));
    let fast = m.r.pick(&[None, Some(0), Some(8), Some(8), Some(4), Some(7), Some(16)]);
    // Makes room for the fast open option.
    if let Some(Step::Segment(syn)) = m.c.steps.first_mut() {
        (syn.len, syn.version) = (len, version);
        if let Some(n) = fast {
            syn.options.retain(|o| !matches!(o, Opt::SackOk));
            syn.options.push(Opt::FastOpen(n));
        }
    }
    if m.r.chance(40) {
        one(m);
    }
    let mut steps = m.stream();
    if m.r.chance(40) {
        // The stream continues after the data of the SYN.
        let behind = |s: &Step| !matches!(s, Step::Segment(s) if s.end() <= i64::from(len));
        steps.retain(behind);
    }
    if m.r.chance(40) {
        stream::disagree(m, &mut steps);
    }
    if m.r.chance(20) {
        // A retransmission of the SYN.
        let again = m.c.steps[0].clone();
        let place = m.place(&steps);
        steps.insert(place, again);
    }
    m.c.steps.append(&mut steps);
    m.close();
}

/// The sender's answer to a connection that the host opens.
pub(super) fn opened_by_host(m: &mut Maker<'_>) {
    let options = m.syn_options();
    let options: Vec<Opt> =
        options.into_iter().map(|o| if let Opt::Time(n, _) = o { Opt::Time(n, None) } else { o }).collect();
    let answer = Segment { at: -1, flags: flag::SYN | flag::ACK, options, ..Segment::default() };
    if m.r.chance(15) {
        // A simultaneous open: the host answers with a SYN/ACK of its own (RFC 9293 section 3.5).
        m.c.steps.push(Step::Segment(Segment { flags: flag::SYN, ..answer.clone() }));
        if m.r.chance(50) {
            let ack = m.data(0, 0);
            m.c.steps.push(Step::Segment(ack));
            return;
        }
    }
    if m.r.chance(10) {
        // A SYN/ACK with data.
        let (len, version) = (m.r.between(1, 40) as u16, m.r.pick(&[0, 1]));
        m.c.steps.push(Step::Segment(Segment { len, version, ..answer }));
        return;
    }
    if m.r.chance(15) {
        // An answer that the host does not accept comes first.
        let (ack, at) = (m.r.pick(&[1, -1, 70_000]), m.r.pick(&[-1, -1, 500]));
        let flags =
            m.r.pick(&[flag::SYN | flag::ACK, flag::ACK, flag::RST, flag::RST | flag::ACK, flag::FIN | flag::ACK]);
        let lost = m.r.chance(20);
        m.c.steps.push(Step::Segment(Segment { ack, at, flags, lost, ..answer.clone() }));
    }
    m.c.steps.push(Step::Segment(answer));
}

/// The host connects to the sender.
pub(super) fn host_connects(m: &mut Maker<'_>) {
    m.c.role = Role::Client;
    opened_by_host(m);
    let mut steps = m.stream();
    for _ in 0..m.r.pick(&[0, 1, 1, 2]) {
        let change = m.r.pick(&[
            stream::overlap as super::Change,
            stream::disagree,
            stream::reorder,
            stream::reset,
            stream::fin,
            stream::timestamps,
            stream::acknowledgments,
            stream::urgent,
            stream::syn,
            stream::broken,
            stream::window,
        ]);
        change(m, &mut steps);
    }
    if m.r.chance(30) {
        steps.insert(0, Step::Write(40));
    }
    m.c.steps.append(&mut steps);
    m.close();
}
