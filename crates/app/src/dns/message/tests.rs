use proptest::prelude::*;

use super::super::rrtype::types;
use super::*;

/// Encodes a name's labels.
fn labels(name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for label in name.split('.').filter(|l| !l.is_empty()) {
        out.push(label.len() as u8);
        out.extend_from_slice(label.as_bytes());
    }
    out.push(0);
    out
}

fn head(flags: u16, counts: [u16; 4]) -> Vec<u8> {
    let words = [0x1234, flags].into_iter().chain(counts);
    words.flat_map(u16::to_be_bytes).collect()
}

fn query(name: &[u8], rrtype: u16) -> Vec<u8> {
    [name, &rrtype.to_be_bytes(), &[0, 1]].concat()
}

fn record(name: &[u8], rrtype: u16, data: &[u8]) -> Vec<u8> {
    let len = (data.len() as u16).to_be_bytes();
    [name, &rrtype.to_be_bytes(), &[0, 1, 0, 0, 1, 0x2c], &len, data].concat()
}

fn names(m: &Message, section: Section) -> Vec<String> {
    m.section(section).iter().map(|r| String::from_utf8_lossy(m.text(r.name)).into_owned()).collect()
}

fn faults(m: &Message) -> Vec<Event> {
    m.faults.iter().collect()
}

const OWNER: &[u8] = b"\xc0\x0c";

#[test]
fn a_response() {
    let data = [
        head(0x8180, [1, 2, 1, 1]),
        query(&labels("www.example.org"), types::A),
        record(OWNER, types::CNAME, &labels("a.example")),
        record(b"\xc0\x2d", types::A, &[192, 0, 2, 1]),
        record(b"\xc0\x10", types::SOA, &[labels("m.example"), labels("r.example"), vec![7; 20]].concat()),
        record(&labels(""), types::OPT, b"\0\x0a\0\x02ab"),
    ]
    .concat();
    let m = Message::read(&data);
    assert_eq!((m.id, m.flags, m.is_response(), m.opcode(), m.rcode()), (0x1234, 0x8180, true, 0, 0));
    assert!(m.readable && faults(&m).is_empty(), "{:?}", faults(&m));
    assert_eq!(names(&m, Section::Queries), ["www.example.org"]);
    assert_eq!(names(&m, Section::Answers), ["www.example.org", "a.example"]);
    assert_eq!(names(&m, Section::Authorities), ["example.org"]);
    assert_eq!(names(&m, Section::Additionals), [""]);
    let [cname, a] = m.section(Section::Answers) else { panic!() };
    let Rdata::Name(name) = cname.rdata else { panic!() };
    assert_eq!((m.text(name), cname.ttl, cname.class), (&b"a.example"[..], 300, 1));
    let Rdata::Bytes(address) = a.rdata else { panic!() };
    assert_eq!(m.text(address), [192, 0, 2, 1]);
    let all: Vec<_> = (0..).map_while(|i| m.name(i)).map(|n| m.text(n).to_vec()).collect();
    assert_eq!(all.len(), 7);
    assert_eq!(all[5..], [b"a.example".to_vec(), b"m.example".to_vec()]);
}

#[test]
fn pointers_forward_and_round() {
    // A pointer forward.
    let data = [head(0x100, [2, 0, 0, 0]), query(b"\xc0\x12", 1), query(&labels("a.b"), 1)].concat();
    let m = Message::read(&data);
    assert_eq!((names(&m, Section::Queries), faults(&m)), (vec!["a.b".into(), "a.b".into()], vec![]));
    // A pointer to itself, with and without a label in between.
    for name in [&b"\xc0\x0c"[..], b"\x01a\xc0\x0c"] {
        let m = Message::read(&[head(0x100, [1, 0, 0, 0]), query(name, 1)].concat());
        assert!(m.readable && m.section(Section::Queries)[0].name.cut);
        assert_eq!(faults(&m), [Event::NameTooLong, Event::InfiniteLoop, Event::TooManyLabels]);
    }
    // A pointer outside the message, an unused label type, and a truncated label.
    for name in [&b"\xc3\xff"[..], b"\x40a\0", b"\x80a\0", b"\x3fa\0"] {
        let m = Message::read(&[head(0x100, [1, 0, 0, 0]), query(name, 1)].concat());
        assert_eq!((m.readable, faults(&m)), (false, vec![Event::MalformedData]));
    }
}

#[test]
fn long_names() {
    let long = [&b"\x3f"[..], &[b'x'; 63]].concat().repeat(17);
    let m = Message::read(&[head(0x100, [1, 0, 0, 0]), query(&[&long[..], b"\0"].concat(), 1)].concat());
    let name = m.section(Section::Queries)[0].name;
    assert_eq!((m.text(name).len(), name.cut, faults(&m)), (NAME_MAX, true, vec![Event::NameTooLong]));
    let many = b"\x01a".repeat(256);
    let m = Message::read(&[head(0x100, [1, 0, 0, 0]), query(&[&many[..], b"\0"].concat(), 1)].concat());
    let name = m.section(Section::Queries)[0].name;
    assert_eq!((m.text(name).len(), name.cut, faults(&m)), (511, true, vec![Event::NameTooLong, Event::TooManyLabels]));
    assert_eq!(m.section(Section::Queries)[0].rrtype, 1);
}

#[test]
fn names_of_a_message_are_bounded() {
    let long = [&b"\x3f"[..], &[b'x'; 63]].concat().repeat(15);
    let mut data = [head(0x8100, [1, 5000, 0, 0]), query(&[&long[..], b"\0"].concat(), 1)].concat();
    for i in 0..5000u16 {
        // A label and a pointer, so that no two names are equal.
        let name = [&[2][..], &i.to_be_bytes(), OWNER].concat();
        data.extend(record(&name, 99, b""));
    }
    data.truncate(65535);
    let m = Message::read(&data);
    let total: usize = m.records().iter().map(|r| m.text(r.name).len()).sum();
    assert!(total <= BUDGET + m.records().len() * 64, "{total}");
    assert!(m.faults.has(Event::NameTooLong));
}

/// Chains of pointers do not cost the square of the message's length, and names after them are still read.
#[test]
fn pointers_of_a_message_are_bounded() {
    // A chain of pointers in the data of a record, each to the previous one, and names that begin at each of them.
    let start = HEADER + 1 + 10;
    let chain: Vec<u8> = (0..240u16)
        .flat_map(|n| (0xc000 | if n == 0 { HEADER as u16 } else { start as u16 + 2 * (n - 1) }).to_be_bytes())
        .collect();
    let mut data = [head(0x8180, [0, 242, 0, 0]), record(b"\0", 65000, &chain)].concat();
    for n in 0..240u16 {
        data.extend(record(&(0xc000 | (start as u16 + 2 * n)).to_be_bytes(), 99, b""));
    }
    data.extend(record(&labels("evil.example"), 99, b""));
    let m = Message::read(&data);
    assert!(m.readable && m.records().len() == 242, "{:?}", faults(&m));
    let followed: usize = m.records()[1..241].iter().enumerate().filter(|(_, r)| !r.name.cut).map(|(n, _)| n + 1).sum();
    assert!((1..=jumps(data.len())).contains(&followed), "{followed} of {}", 240 * 241 / 2);
    assert_eq!((m.text(m.records()[241].name), faults(&m)), (&b"evil.example"[..], vec![Event::NameTooLong]));
    // A message with the best possible compression is read completely.
    let mut data = [head(0x8180, [1, 4000, 0, 0]), query(&labels("www.example.org"), 1)].concat();
    for n in 0..4000u16 {
        data.extend(record(&[&[2][..], &n.to_be_bytes(), OWNER].concat(), 99, b""));
    }
    let m = Message::read(&data);
    assert!(m.readable && faults(&m).is_empty() && m.records().len() == 4001, "{:?}", faults(&m));
}

#[test]
fn what_is_broken_is_said_and_the_rest_stays() {
    let q = query(&labels("a.b"), 1);
    let good = record(OWNER, types::A, &[1, 2, 3, 4]);
    let cut = &good[..good.len() - 1];
    let bad = record(OWNER, types::TXT, b"\x09abc");
    let cases = [
        (&good[..], cut, [1, 2, 0, 0], Event::MalformedData, [1, 1, 0, 0]),
        (&good, cut, [1, 1, 1, 0], Event::InvalidAuthorities, [1, 1, 0, 0]),
        (&good, cut, [1, 1, 0, 1], Event::InvalidAdditionals, [1, 1, 0, 0]),
        (&bad[..], &good[..], [1, 2, 0, 0], Event::MalformedData, [1, 2, 0, 0]),
        (&bad[..], &good[..], [1, 0, 1, 1], Event::InvalidAuthorities, [1, 0, 1, 1]),
    ];
    for (one, two, counts, event, lens) in cases {
        let m = Message::read(&[&head(0x8180, counts), &q[..], one, two].concat());
        let sections = [Section::Queries, Section::Answers, Section::Authorities, Section::Additionals];
        assert_eq!(sections.map(|s| m.section(s).len()), lens);
        assert_eq!((faults(&m), m.readable), (vec![event], true));
    }
    assert_eq!(faults(&Message::read(b"short")), [Event::MalformedData]);
    let m = Message::read(&[head(0x4840, [1, 0, 0, 0]), q].concat());
    assert_eq!(faults(&m), [Event::ZFlagSet, Event::InvalidOpcode]);
}

#[test]
fn records_without_data() {
    for rrtype in [types::A, types::SOA, types::SRV, types::TXT, types::CNAME, types::MX, types::SSHFP, 255] {
        let m = Message::read(&[head(0x2800, [0, 1, 0, 0]), record(&labels("a"), rrtype, b"")].concat());
        assert_eq!((faults(&m), m.section(Section::Answers).len()), (vec![], 1), "{rrtype}");
    }
}

proptest! {
    /// Arbitrary input does not break the parser, and its memory is bounded.
    #[test]
    fn anything_goes(
        counts in proptest::array::uniform4(0u16..9),
        body in proptest::collection::vec(prop_oneof![Just(0xc0u8), Just(0x0c), Just(0), Just(1), Just(16), any::<u8>()], 0..200),
    ) {
        let m = Message::read(&[head(0x8180, counts), body].concat());
        let n: usize = counts.iter().map(|&c| usize::from(c)).sum();
        prop_assert!(m.records().len() <= n);
        for i in 0..2 * n {
            if let Some(name) = m.name(i) {
                prop_assert!(m.text(name).len() <= NAME_MAX);
            }
        }
    }
}
