//! Addresses and ports in commands and replies.

use std::net::{IpAddr, Ipv4Addr};

/// Six numbers with commas between them: an address and a port (RFC 959, `PORT`).
pub(super) fn host_port(text: &[u8]) -> Option<(Option<IpAddr>, u16)> {
    let (bytes, _) = six(text.trim_ascii_start())?;
    let [a, b, c, d, high, low] = bytes;
    let port = u16::from_be_bytes([high, low]);
    (port != 0).then_some((Some(IpAddr::V4(Ipv4Addr::new(a, b, c, d))), port))
}

/// The most digits of a number; leading zeros count.
const DIGITS_MAX: usize = 5;

/// Reads six numbers at the front of `text`. Returns them and their length.
fn six(text: &[u8]) -> Option<([u8; 6], usize)> {
    let mut out = [0u8; 6];
    let mut at = 0;
    for (i, o) in out.iter_mut().enumerate() {
        if i > 0 {
            if text.get(at) != Some(&b',') {
                return None;
            }
            at += 1;
        }
        let digits = text.get(at..)?.iter().take(DIGITS_MAX + 1).take_while(|b| b.is_ascii_digit()).count();
        *o = number(text.get(at..at + digits)?)?;
        at += digits;
    }
    Some((out, at))
}

/// The port in a reply to `PASV`. The position of the numbers in the text is not specified (RFC 1123 section 4.1.2.6).
pub(super) fn passive(text: &[u8]) -> Option<u16> {
    // A candidate starts at the first digit of a number only.
    let starts = (0..text.len()).filter(|&i| {
        text.get(i).is_some_and(u8::is_ascii_digit) && (i == 0 || !text.get(i - 1).is_some_and(u8::is_ascii_digit))
    });
    for i in starts {
        if let Some(([.., high, low], _)) = text.get(i..).and_then(six) {
            let port = u16::from_be_bytes([high, low]);
            return (port != 0).then_some(port);
        }
    }
    None
}

/// `|1|132.235.1.2|6275|`, with any character as delimiter (RFC 2428 section 2). A server may use the port although family and
/// address are not as they should be, so the port does not depend on them.
pub(super) fn extended(text: &[u8]) -> Option<(Option<IpAddr>, u16)> {
    let text = text.trim_ascii_start();
    let mark = *text.first()?;
    let mut parts = text.get(1..)?.split(|b| *b == mark);
    let (family, address, port) = (parts.next()?, parts.next()?, parts.next()?);
    // The closing delimiter is mandatory.
    parts.next()?;
    let address = std::str::from_utf8(address).ok().and_then(|a| a.parse::<IpAddr>().ok()).filter(|a| match family {
        b"1" => a.is_ipv4(),
        b"2" => a.is_ipv6(),
        _ => false,
    });
    Some((address, number::<u16>(port).filter(|p| *p != 0)?))
}

/// The port in a reply to `EPSV`: `(|||6446|)` (RFC 2428 section 3).
pub(super) fn extended_passive(text: &[u8]) -> Option<u16> {
    let open = text.iter().rposition(|b| *b == b'(')?;
    let inner = text.get(open + 1..)?;
    let mark = *inner.first()?;
    if inner.get(..3)? != [mark; 3] {
        return None;
    }
    let rest = inner.get(3..)?;
    let digits = rest.iter().position(|b| *b == mark)?;
    number(rest.get(..digits)?.trim_ascii()).filter(|p| *p != 0)
}

fn number<T: TryFrom<u32>>(digits: &[u8]) -> Option<T> {
    if digits.is_empty() || digits.len() > DIGITS_MAX || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    T::try_from(digits.iter().fold(0u32, |n, d| n * 10 + u32::from(d - b'0'))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports() {
        let at = |a: &str, p| Some((Some(a.parse::<IpAddr>().unwrap()), p));
        assert_eq!(host_port(b"192,168,0,13,234,10"), at("192.168.0.13", 59914));
        assert_eq!(host_port(b"192,168,0,13,234"), None);
        assert_eq!(host_port(b"192,168,0,256,1,1"), None);
        assert_eq!(host_port(b"1,2,3,4,0,0"), None);
        assert_eq!(host_port(b"  192,168,0,013,0234,10 "), at("192.168.0.13", 59914));
        assert_eq!(host_port(b"192,168,0,13,000234,10"), None);
        assert_eq!(host_port(b"1234123412341234"), None);
        assert_eq!(extended(b"|1|132.235.1.2|6275|"), at("132.235.1.2", 6275));
        assert_eq!(extended(b"!2!1080::8:800:200C:417A!5282!"), at("1080::8:800:200C:417A", 5282));
        assert_eq!(extended(b" |1|132.235.1.2|6275| "), at("132.235.1.2", 6275));
        assert_eq!(extended(b"|2|132.235.1.2|6275|"), Some((None, 6275)));
        assert_eq!(extended(b"|1||6275|"), Some((None, 6275)));
        assert_eq!(extended(b"|1|132.235.1.2|6275"), None);
        assert_eq!(extended(b"|1|132.235.1.2|62750|"), at("132.235.1.2", 62750));
        assert_eq!(extended(b"|1|132.235.1.2|72750|"), None);
    }

    #[test]
    fn passive_ports() {
        assert_eq!(passive(b"Entering Passive Mode (2,2,2,2,185,13)."), Some(47373));
        assert_eq!(passive(b"2 ways: 10,0,0,1,82,11"), Some(21003));
        assert_eq!(passive(b"Entering Passive Mode"), None);
        assert_eq!(passive(b"1,1,1,1,1,1,1,1"), Some(257));
        assert_eq!(extended_passive(b"Entering Extended Passive Mode (|||58612|)"), Some(58612));
        assert_eq!(extended_passive(b"(||| 58612 |)"), Some(58612));
        assert_eq!(extended_passive(b"(||58612|)"), None);
        assert_eq!(extended_passive(b"(|||0|)"), None);
        assert_eq!(extended_passive(b"(|||"), None);
        assert_eq!(extended_passive(b"("), None);
    }
}
