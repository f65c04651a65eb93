//! Ways to say one thing in segments.

use crate::bench::raw::{ACK, FIN, PSH, RST, SEGMENT, SYN, Segment, URG, data};

/// A way to say it: what is sent after the handshake, and what the server reads.
pub(crate) struct Trick {
    pub(crate) name: &'static str,
    pub(crate) syn: Segment<'static>,
    pub(crate) segments: Vec<Segment<'static>>,
    pub(crate) read: &'static str,
}

pub(crate) fn trick(name: &'static str, segments: &[Segment<'static>], read: &'static str) -> Trick {
    Trick { name, syn: SEGMENT, segments: segments.to_vec(), read }
}

pub(crate) const HELLO: Segment<'static> = Segment { data: b"hello ", ..SEGMENT };

/// The attack in one piece, and in two, where it comes after the greeting.
pub(crate) const WHOLE: Segment<'static> = Segment { at: 6, data: b"ATTACK-TCP", ..SEGMENT };

pub(crate) const HALVES: [Segment<'static>; 2] =
    [Segment { at: 6, data: b"ATTA", ..SEGMENT }, Segment { at: 10, data: b"CK-TCP", ..SEGMENT }];
/// Something else in the place of it, and of its second half.
pub(crate) const DECOY: Segment<'static> = Segment { at: 6, data: b"benign-txt", ..SEGMENT };
pub(crate) const HALF: Segment<'static> = Segment { at: 10, data: b"benign", ..SEGMENT };

/// A timestamp of the sender (RFC 7323 section 3).
const EARLY: &[u8] = &[1, 1, 8, 10, 0, 0, 0, 5, 0, 0, 0, 0];
const FIRST: &[u8] = &[1, 1, 8, 10, 0, 1, 0, 0, 0, 0, 0, 0];
const LATER: &[u8] = &[1, 1, 8, 10, 0, 1, 0, 1, 0, 0, 0, 0];
/// A signature that nobody asked for (RFC 2385).
const SIGNED: &[u8] = &[19, 18, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 1, 1];
/// A cookie that the server has not given (RFC 7413).
const COOKIE: &[u8] = &[34, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 1];

/// Tricks of which `few` hops are a part.
pub(crate) fn tricks(few: u8) -> Vec<Trick> {
    let lost = |s: Segment<'static>| Segment { ttl: Some(few), ..s };
    let broken = |s: Segment<'static>| Segment { broken: true, ..s };
    let flags = |flags: u8, s: Segment<'static>| Segment { flags, ..s };
    let dated = |options: &'static [u8], s: Segment<'static>| Segment { options, ..s };
    let close = |flags: u8| Segment { flags, at: 6, ..SEGMENT };
    let [first, second] = HALVES;
    let twice = |before: &[Segment<'static>]| [before, &HALVES, &HALVES, &HALVES].concat();
    let mut all = vec![
        trick("nothing special", &[HELLO, DECOY], "hello benign-txt"),
        trick("in one piece", &[HELLO, WHOLE, WHOLE], "hello "),
        trick("in two", &twice(&[HELLO]), "hello ATTA"),
        trick("the second first", &[HELLO, second, first, first], "hello "),
        trick("byte by byte", &[&[HELLO][..], &BYTES].concat(), "hello ATTACK-TC"),
        trick("after one that is lost", &[HELLO, lost(DECOY), WHOLE], "hello benign-txt"),
        trick("a half after one that is lost", &[HELLO, first, lost(HALF), second], "hello ATTAbenign"),
        trick("after a wrong checksum", &[HELLO, broken(DECOY), WHOLE], "hello "),
        trick("a half after a wrong checksum", &[HELLO, first, broken(HALF), second], "hello ATTA"),
        trick("after a reset that is lost", &twice(&[HELLO, lost(close(RST | ACK))]), "hello "),
        trick("after a reset alone that is lost", &twice(&[HELLO, lost(close(RST))]), "hello "),
        trick("after a broken reset", &twice(&[HELLO, broken(close(RST))]), "hello ATTA"),
        trick("after a reset elsewhere", &twice(&[HELLO, Segment { at: 9_000_000, ..close(RST) }]), "hello ATTA"),
        trick("after an end that is lost", &twice(&[HELLO, lost(close(FIN | ACK))]), "hello "),
        trick("after a broken end", &twice(&[HELLO, broken(close(FIN | ACK))]), "hello ATTA"),
        trick("after data far away", &twice(&[HELLO, Segment { at: 9_000_000, ..HALF }]), "hello ATTA"),
        trick("after data of before", &twice(&[HELLO, Segment { at: -4000, ..HALF }]), "hello ATTA"),
        trick("after a keep-alive", &twice(&[HELLO, data(5, b"X")]), "hello ATTA"),
        trick("after data without ACK", &twice(&[HELLO, flags(PSH, DECOY)]), "hello ATTA"),
        trick("after data without flags", &twice(&[HELLO, flags(0, DECOY)]), "hello ATTA"),
        trick("after a SYN with data", &twice(&[HELLO, flags(SYN, DECOY)]), "hello ATTA"),
        trick("after a wrong ACK", &twice(&[HELLO, Segment { ack: 9_000_000, ..DECOY }]), "hello ATTA"),
        trick("with an urgent byte", &[HELLO, Segment { urgent: 4, ..flags(URG | ACK, URGENT) }], "hello ATTXACK-TCP"),
        trick("longer the second time", &[HELLO, DECOY, Segment { data: b"ATTACK-TCP and more", ..WHOLE }], LONGER),
        trick("what is missing comes with more", &[HELLO, HALF, Segment { data: b"ATTACK-TCP-x", ..WHOLE }], MISSING),
        trick("after a signature", &[HELLO, dated(SIGNED, DECOY), WHOLE], ""),
    ];
    let timed = [dated(FIRST, HELLO), dated(EARLY, DECOY), dated(LATER, first), dated(LATER, second)];
    all.push(Trick { syn: dated(FIRST, SEGMENT), ..trick("after an old timestamp", &timed, "hello ATTA") });
    let over = [data(0, b"ATTA"), data(4, b"CK-TCP"), data(4, b"CK-TCP")];
    let syn = Segment { data: b"benign-txt", ..SEGMENT };
    all.push(Trick { syn, ..trick("data with the SYN", &over, "ATTA") });
    all.push(Trick { syn: dated(COOKIE, syn), ..trick("fast open", &over, "ATTA") });
    all
}

const URGENT: Segment<'static> = Segment { data: b"ATTXACK-TCP", ..WHOLE };

const LONGER: &str = "hello benign-txt and more";

const MISSING: &str = "hello ATTAbenign-x";

const BYTES: [Segment<'static>; 10] = {
    const TEXT: &[u8; 10] = b"ATTACK-TCP";
    let mut all = [SEGMENT; 10];
    let mut n = 0;
    while n < 10 {
        let (_, rest) = TEXT.split_at(n);
        all[n] = Segment { at: 6 + n as i64, data: rest.split_at(1).0, ..SEGMENT };
        n += 1;
    }
    all
};
