//! Messages of version 1 (RFC 2408) and 2 (RFC 7296 section 3): a header, and payloads that each have the type of the next one.

use crate::bytes::{be16, be32};

/// Bytes of the header.
pub(super) const HEADER: usize = 28;

/// The header of either version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) init_spi: u64,
    pub(super) resp_spi: u64,
    pub(super) first: u8,
    pub(super) major: u8,
    pub(super) minor: u8,
    pub(super) exchange: u8,
    pub(super) flags: u8,
    pub(super) message_id: u32,
}

impl Header {
    /// Reads the header of a datagram of version 1.0 or 2.0. Like in Suricata, its length is not compared with the datagram's.
    pub(super) fn read(data: &[u8]) -> Option<Header> {
        let head = data.first_chunk::<HEADER>()?;
        let be64 = |at: usize| head.get(at..)?.first_chunk().map(|b| u64::from_be_bytes(*b));
        if !matches!(head[17], 0x10 | 0x20) {
            return None;
        }
        Some(Header {
            init_spi: be64(0)?,
            resp_spi: be64(8)?,
            first: head[16],
            major: head[17] >> 4,
            minor: head[17] & 15,
            exchange: head[18],
            flags: head[19],
            message_id: be32(head, 20)?,
        })
    }
}

/// The payloads of a message or of a payload: type, content, and the type of the next one. `Err` if a length is invalid.
pub(super) struct Payloads<'a> {
    next: u8,
    rest: &'a [u8],
}

impl<'a> Payloads<'a> {
    pub(super) const fn new(first: u8, data: &'a [u8]) -> Payloads<'a> {
        Payloads { next: first, rest: data }
    }
}

impl<'a> Iterator for Payloads<'a> {
    type Item = Result<(u8, &'a [u8], u8), ()>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next == 0 || self.rest.is_empty() {
            return None;
        }
        let len = be16(self.rest, 2).map_or(0, usize::from);
        let Some((payload, rest)) = self.rest.split_at_checked(len).filter(|(p, _)| p.len() >= 4) else {
            self.rest = &[];
            return Some(Err(()));
        };
        let (kind, next) = (self.next, payload[0]);
        (self.next, self.rest) = (next, rest);
        Some(Ok((kind, payload.get(4..).unwrap_or(&[]), next)))
    }
}

/// A proposal: its protocol, and the content of its transforms.
#[derive(Debug)]
pub(super) struct Proposal<'a> {
    pub(super) protocol: u8,
    pub(super) transforms: Vec<&'a [u8]>,
}

/// The proposals of a security association. Each transform takes eight bytes, so the message bounds their number.
pub(super) fn proposals(data: &[u8], kind: u8) -> Result<Vec<Proposal<'_>>, ()> {
    let mut all = Vec::new();
    // In both versions, the first byte of a proposal is a proposal's type if another one follows.
    for proposal in Payloads::new(kind, data) {
        let (_, content, _) = proposal?;
        let head = content.first_chunk::<4>().ok_or(())?;
        let transforms = content.get(4 + usize::from(head[2])..).ok_or(())?;
        let transforms: Result<Vec<_>, ()> = Payloads::new(3, transforms)
            .take(usize::from(head[3]))
            .map(|t| t.and_then(|(_, content, _)| if content.len() >= 4 { Ok(content) } else { Err(()) }))
            .collect();
        all.push(Proposal { protocol: head[1], transforms: transforms? });
    }
    Ok(all)
}

/// The attributes of a transform in version 1 (RFC 2408 section 3.3): type and value; for a long value, its lowest 32 bits.
pub(super) fn attributes(transform: &[u8]) -> Result<Vec<(u16, u32)>, ()> {
    let mut rest = transform.get(4..).ok_or(())?;
    let mut all = Vec::new();
    while !rest.is_empty() {
        let (kind, value) = be16(rest, 0).zip(be16(rest, 2)).ok_or(())?;
        rest = rest.get(4..).ok_or(())?;
        let value = if kind & 0x8000 != 0 {
            u32::from(value)
        } else {
            let (long, behind) = rest.split_at_checked(usize::from(value)).ok_or(())?;
            rest = behind;
            long.iter().fold(0, |n, b| n << 8 | u32::from(*b))
        };
        all.push((kind & 0x7fff, value));
    }
    Ok(all)
}
