//! Names of resource record types and response codes (IANA, "Domain Name System (DNS) Parameters"), as events have them.
//!
//! Like Suricata, events show other values as numbers.

/// Types with a name, sorted by number.
static TYPES: &[(u16, &str)] = &[
    (1, "A"),
    (2, "NS"),
    (3, "MD"),
    (4, "MF"),
    (5, "CNAME"),
    (6, "SOA"),
    (7, "MB"),
    (8, "MG"),
    (9, "MR"),
    (10, "NULL"),
    (11, "WKS"),
    (12, "PTR"),
    (13, "HINFO"),
    (14, "MINFO"),
    (15, "MX"),
    (16, "TXT"),
    (17, "RP"),
    (18, "AFSDB"),
    (19, "X25"),
    (20, "ISDN"),
    (21, "RT"),
    (22, "NSAP"),
    (23, "NSAPPTR"),
    (24, "SIG"),
    (25, "KEY"),
    (26, "PX"),
    (27, "GPOS"),
    (28, "AAAA"),
    (29, "LOC"),
    (30, "NXT"),
    (33, "SRV"),
    (34, "ATMA"),
    (35, "NAPTR"),
    (36, "KX"),
    (37, "CERT"),
    (38, "A6"),
    (39, "DNAME"),
    (41, "OPT"),
    (42, "APL"),
    (43, "DS"),
    (44, "SSHFP"),
    (45, "IPSECKEY"),
    (46, "RRSIG"),
    (47, "NSEC"),
    (48, "DNSKEY"),
    (49, "DHCID"),
    (50, "NSEC3"),
    (51, "NSEC3PARAM"),
    (52, "TLSA"),
    (55, "HIP"),
    (59, "CDS"),
    (60, "CDNSKEY"),
    (65, "HTTPS"),
    (99, "SPF"),
    (249, "TKEY"),
    (250, "TSIG"),
    (254, "MAILA"),
    (255, "ANY"),
    (256, "URI"),
];

/// Names of response codes 0 to 10.
static CODES: &[&str] = &[
    "NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED", "YXDOMAIN", "YXRRSET", "NXRRSET", "NOTAUTH",
    "NOTZONE",
];

/// Types that the parser handles.
pub(super) mod types {
    pub(crate) const A: u16 = 1;
    pub(crate) const NS: u16 = 2;
    pub(crate) const CNAME: u16 = 5;
    pub(crate) const SOA: u16 = 6;
    pub(crate) const NULL: u16 = 10;
    pub(crate) const PTR: u16 = 12;
    pub(crate) const MX: u16 = 15;
    pub(crate) const TXT: u16 = 16;
    pub(crate) const AAAA: u16 = 28;
    pub(crate) const SRV: u16 = 33;
    pub(crate) const OPT: u16 = 41;
    pub(crate) const SSHFP: u16 = 44;
}

/// The name of a type.
pub fn name(rrtype: u16) -> Option<&'static str> {
    TYPES.binary_search_by_key(&rrtype, |t| t.0).ok().and_then(|i| TYPES.get(i)).map(|t| t.1)
}

/// The type with this name, in any case.
pub fn from_name(text: &str) -> Option<u16> {
    TYPES.iter().find(|t| t.1.eq_ignore_ascii_case(text)).map(|t| t.0)
}

/// The name of a response code.
pub fn code_name(rcode: u8) -> Option<&'static str> {
    CODES.get(usize::from(rcode)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert!(TYPES.is_sorted_by_key(|t| t.0));
        assert_eq!((name(28), name(40), name(65), name(256)), (Some("AAAA"), None, Some("HTTPS"), Some("URI")));
        assert_eq!((from_name("mx"), from_name("nothing")), (Some(15), None));
        assert_eq!((code_name(3), code_name(10), code_name(11)), (Some("NXDOMAIN"), Some("NOTZONE"), None));
    }
}
