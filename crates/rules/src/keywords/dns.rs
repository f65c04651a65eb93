//! Keywords of DNS that ask for a number.

use super::{Keyword, Takes, number};
use crate::ast::{NumberTest, Which};
use crate::builder::Input;
use crate::error::Fail;

const DNS: &[&str] = &["dns", "doh2"];

pub(super) static KEYWORDS: &[Keyword] = &[
    Keyword::number(&["dns.opcode"], Takes::Value, DNS, opcode),
    Keyword::number(&["dns.rcode"], Takes::Value, DNS, rcode),
    Keyword::number(&["dns.rrtype"], Takes::Value, DNS, rrtype),
];

/// Response codes by their names, in lower case (RFC 1035 section 4.1.1, RFC 2136 section 2.2, RFC 6895 section 2.3).
const RCODES: &[(&str, u64)] = &[
    ("noerror", 0),
    ("formerr", 1),
    ("servfail", 2),
    ("nxdomain", 3),
    ("notimp", 4),
    ("refused", 5),
    ("yxdomain", 6),
    ("yxrrset", 7),
    ("nxrrset", 8),
    ("notauth", 9),
    ("notzone", 10),
    ("badvers", 16),
    ("badsig", 16),
    ("badkey", 17),
    ("badtime", 18),
    ("badmode", 19),
    ("badname", 20),
    ("badalg", 21),
    ("badtrunc", 22),
    ("badcookie", 23),
];

/// Types of records by their names, in lower case (IANA, "Domain Name System (DNS) Parameters").
const RRTYPES: &[(&str, u64)] = &[
    ("a", 1),
    ("ns", 2),
    ("md", 3),
    ("mf", 4),
    ("cname", 5),
    ("soa", 6),
    ("mb", 7),
    ("mg", 8),
    ("mr", 9),
    ("null", 10),
    ("wks", 11),
    ("ptr", 12),
    ("hinfo", 13),
    ("minfo", 14),
    ("mx", 15),
    ("txt", 16),
    ("rp", 17),
    ("afsdb", 18),
    ("x25", 19),
    ("isdn", 20),
    ("rt", 21),
    ("nsap", 22),
    ("nsapptr", 23),
    ("sig", 24),
    ("key", 25),
    ("px", 26),
    ("gpos", 27),
    ("aaaa", 28),
    ("loc", 29),
    ("nxt", 30),
    ("srv", 33),
    ("atma", 34),
    ("naptr", 35),
    ("kx", 36),
    ("cert", 37),
    ("a6", 38),
    ("dname", 39),
    ("opt", 41),
    ("apl", 42),
    ("ds", 43),
    ("sshfp", 44),
    ("ipseckey", 45),
    ("rrsig", 46),
    ("nsec", 47),
    ("dnskey", 48),
    ("dhcid", 49),
    ("nsec3", 50),
    ("nsec3param", 51),
    ("tlsa", 52),
    ("hip", 55),
    ("cds", 59),
    ("cdnskey", 60),
    ("https", 65),
    ("spf", 99),
    ("tkey", 249),
    ("tsig", 250),
    ("maila", 254),
    ("any", 255),
    ("uri", 256),
];

fn named(names: &[(&str, u64)], name: &str) -> Option<u64> {
    names.iter().find(|n| n.0 == name).map(|n| n.1)
}

fn opcode(i: &Input<'_>) -> Result<(NumberTest, Which), Fail> {
    number::integer(i, u64::from(u8::MAX), &|_| None)
}

fn rcode(i: &Input<'_>) -> Result<(NumberTest, Which), Fail> {
    number::integer(i, u64::from(u8::MAX), &|name| named(RCODES, name))
}

fn rrtype(i: &Input<'_>) -> Result<(NumberTest, Which), Fail> {
    number::integer(i, u64::from(u16::MAX), &|name| named(RRTYPES, name))
}
