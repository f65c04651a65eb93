//! Reads the data of records, and keeps the relevant part.

use super::message::{Rdata, Reader};
use super::rrtype::types;

/// Reads the data of a record of a given type up to `end`. `None` if it is invalid.
pub(super) fn read(r: &mut Reader<'_>, rrtype: u16, end: usize) -> Option<Rdata> {
    let len = r.rest(end).len();
    Some(match rrtype {
        // Dynamic updates (RFC 2136 section 2.4) have records of any type without data.
        _ if len == 0 => match rrtype {
            types::A | types::AAAA | types::NULL | types::TXT | types::OPT => Rdata::Bytes(r.take(0, end)?),
            types::CNAME | types::NS | types::PTR | types::MX => Rdata::Name(r.take(0, end)?),
            _ => Rdata::None,
        },
        types::A | types::AAAA | types::NULL => Rdata::Bytes(r.take(len, end)?),
        types::CNAME | types::NS | types::PTR => Rdata::Name(r.name(end)?),
        types::MX => {
            r.take(2, end)?;
            Rdata::Name(r.name(end)?)
        }
        types::SOA => {
            let (mname, rname) = (r.name(end)?, r.name(end)?);
            Rdata::Soa { mname, rname, numbers: r.take(20, end)? }
        }
        types::SRV => {
            let head = r.take(6, end)?;
            Rdata::Srv { head, name: r.name(end)? }
        }
        types::TXT if strings(r.rest(end)).any(|s| s.is_none()) => return None,
        types::OPT if options(r.rest(end)).any(|o| o.is_none()) => return None,
        types::SSHFP if len < 2 => return None,
        types::TXT | types::OPT | types::SSHFP => Rdata::Bytes(r.take(len, end)?),
        _ => Rdata::None,
    })
}

/// The strings of a TXT record (RFC 1035 section 3.3.14). A string longer than the data yields `None` and ends them.
pub(super) fn strings(mut data: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    std::iter::from_fn(move || {
        let (&len, rest) = data.split_first()?;
        let string = rest.get(..usize::from(len));
        data = rest.get(usize::from(len)..).unwrap_or(&[]);
        Some(string)
    })
}

/// The options of an OPT record (RFC 6891 section 6.1.2), code and data. An option longer than the data yields `None` and ends
/// them.
pub(super) fn options(mut data: &[u8]) -> impl Iterator<Item = Option<(u16, &[u8])>> {
    std::iter::from_fn(move || {
        if data.is_empty() {
            return None;
        }
        let option = data.first_chunk::<4>().and_then(|head| {
            let (code, len) = (u16::from_be_bytes([head[0], head[1]]), u16::from_be_bytes([head[2], head[3]]));
            Some((code, data.get(4..4 + usize::from(len))?))
        });
        data = option.map_or(&[], |(_, d)| data.get(4 + d.len()..).unwrap_or(&[]));
        Some(option)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_and_options() {
        let of = |d| strings(d).collect::<Vec<_>>();
        assert_eq!(of(b"\x03abc\x00\x01d"), [Some(&b"abc"[..]), Some(b""), Some(b"d")]);
        assert_eq!(of(b"\x01a\x03b"), [Some(&b"a"[..]), None]);
        let of = |d| options(d).collect::<Vec<_>>();
        assert_eq!(of(b"\0\x0a\0\x02ab\0\x03\0\0"), [Some((10, &b"ab"[..])), Some((3, b""))]);
        assert_eq!(of(b"\0\x0a\0\x02a"), [None]);
        assert_eq!(of(b"\0"), [None]);
    }
}
