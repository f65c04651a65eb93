//! A message (RFC 8489 section 5) with the logged attributes (section 14).

use std::net::IpAddr;

use margay_flow::Direction;

use crate::bytes::{be16, be32};

/// Bytes of the header.
pub(super) const HEADER: usize = 20;
/// The magic cookie (section 5).
pub(super) const COOKIE: [u8; 4] = [0x21, 0x12, 0xa4, 0x42];

/// The parts of a message that rules and events need.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) dir: Direction,
    pub(super) class: u8,
    pub(super) method: u16,
    /// The transaction id, without the cookie.
    pub(super) id: [u8; 12],
    pub(super) username: Option<Box<[u8]>>,
    pub(super) realm: Option<Box<[u8]>>,
    pub(super) software: Option<Box<[u8]>>,
    pub(super) error: Option<u16>,
    pub(super) reason: Option<Box<[u8]>>,
    /// The client's address as the server sees it.
    pub(super) mapped: Option<(IpAddr, u16)>,
    pub(super) relayed: Option<(IpAddr, u16)>,
    pub(super) peer: Option<(IpAddr, u16)>,
    /// The attributes are truncated.
    pub(super) is_cut: bool,
}

impl Message {
    /// Reads a message; `None` if it is invalid or shorter than its length says.
    pub(super) fn read(dir: Direction, data: &[u8]) -> Option<Message> {
        let head = data.first_chunk::<HEADER>()?;
        let (kind, len) = (be16(head, 0)?, usize::from(be16(head, 2)?));
        let attributes = data.get(HEADER..HEADER + len)?;
        if kind >> 14 != 0 || !len.is_multiple_of(4) {
            return None;
        }
        let mut m = Message {
            dir,
            class: (kind >> 4 & 1 | kind >> 7 & 2) as u8,
            method: kind & 0xf | kind >> 1 & 0x70 | kind >> 2 & 0xf80,
            id: *head.last_chunk()?,
            username: None,
            realm: None,
            software: None,
            error: None,
            reason: None,
            mapped: None,
            relayed: None,
            peer: None,
            is_cut: false,
        };
        m.is_cut = m.attributes(head, attributes).is_none();
        Some(m)
    }

    fn attributes(&mut self, head: &[u8; HEADER], mut rest: &[u8]) -> Option<()> {
        while !rest.is_empty() {
            let (kind, len) = (be16(rest, 0)?, usize::from(be16(rest, 2)?));
            let value = rest.get(4..4 + len)?;
            rest = rest.get(4 + len.next_multiple_of(4)..).unwrap_or(&[]);
            match kind {
                0x0001 => self.mapped = self.mapped.or(address(value, None)),
                0x0006 => self.username = Some(value.into()),
                0x0009 => {
                    let [_, _, class, number, reason @ ..] = value else { return None };
                    self.error = Some(u16::from(class & 7) * 100 + u16::from(*number % 100));
                    self.reason = Some(reason.into());
                }
                0x0012 => self.peer = address(value, Some(head)),
                0x0014 => self.realm = Some(value.into()),
                0x0016 => self.relayed = address(value, Some(head)),
                0x0020 => self.mapped = address(value, Some(head)),
                0x8022 => self.software = Some(value.into()),
                _ => {}
            }
        }
        Some(())
    }
}

/// Reads an address (sections 14.1 and 14.2). With the message's header, it is XORed with cookie and transaction id.
fn address(value: &[u8], head: Option<&[u8; HEADER]>) -> Option<(IpAddr, u16)> {
    let key: [u8; 16] = head.map_or(Some([0; 16]), |h| h.last_chunk().copied())?;
    let port = be16(value, 2)? ^ be16(&key, 0)?;
    let ip = match value.get(1)? {
        1 => IpAddr::from((be32(value, 4)? ^ be32(&key, 0)?).to_be_bytes()),
        2 => {
            let bytes: [u8; 16] = *value.get(4..)?.first_chunk()?;
            IpAddr::from((u128::from_be_bytes(bytes) ^ u128::from_be_bytes(key)).to_be_bytes())
        }
        _ => return None,
    };
    Some((ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        // RFC 5769 section 2.3.
        let mut head = [0; HEADER];
        head[4..].copy_from_slice(b"\x21\x12\xa4\x42\xb7\xe7\xa7\x01\xbc\x34\xd6\x86\xfa\x87\xdf\xae");
        let value = b"\0\x02\xa1\x47\x01\x13\xa9\xfa\xa5\xd3\xf1\x79\xbc\x25\xf4\xb5\xbe\xd2\xb9\xd9";
        let expected = "2001:db8:1234:5678:11:2233:4455:6677".parse().map(|ip| (ip, 32853)).ok();
        assert_eq!(address(value, Some(&head)), expected);
        assert_eq!(address(b"\0\x01\x00\x50\xc0\0\x02\x01", None), Some((IpAddr::from([192, 0, 2, 1]), 80)));
        assert_eq!(address(b"\0\x03\x00\x50\xc0\0\x02\x01", None), None);
        assert_eq!(address(b"\0\x01\x00\x50\xc0\0\x02", None), None);
    }
}
