//! A small reader of capture files, for tests and the `dump` example: pcap and pcapng, either byte order.
#![allow(dead_code, unreachable_pub)]

pub mod fragments;

use margay_packet::{Frame, LinkType, Time};

/// The frames of a capture file.
pub struct Capture {
    data: Vec<u8>,
}

/// Takes a frame: its bytes, its length on the wire, its time, its link type.
type Give<'a> = &'a mut dyn FnMut(&[u8], u64, Time, u64);

fn number(b: &[u8], at: usize, len: usize, big: bool) -> Option<u64> {
    let b = b.get(at..at + len)?;
    let digit = |n: u64, &d: &u8| n << 8 | u64::from(d);
    Some(if big { b.iter().fold(0, digit) } else { b.iter().rev().fold(0, digit) })
}

impl Capture {
    /// A capture file's bytes.
    pub fn new(data: Vec<u8>) -> Self {
        Capture { data }
    }

    /// Calls `f` with each frame, up to the first that is broken.
    pub fn for_each(&self, mut f: impl FnMut(&Frame<'_>)) {
        let mut count = 0;
        let mut give = |data: &[u8], wire_len: u64, time: Time, link: u64| {
            count += 1;
            f(&Frame { data, wire_len: wire_len as u32, time, link: LinkType(link as u32), number: count });
        };
        if self.data.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]) {
            self.pcapng(&mut give);
        } else {
            self.pcap(&mut give);
        }
    }

    fn pcap(&self, give: Give<'_>) -> Option<()> {
        let b = &self.data;
        let (big, unit) = match number(b, 0, 4, false)? {
            0xa1b2_c3d4 => (false, 1),
            0xa1b2_3c4d => (false, 1000),
            0xd4c3_b2a1 => (true, 1),
            0x4d3c_b2a1 => (true, 1000),
            _ => return None,
        };
        let link = number(b, 20, 4, big)? & 0xffff;
        let mut at = 24;
        loop {
            let n = |o| number(b, at + o, 4, big);
            let (secs, sub, len, wire) = (n(0)?, n(4)?, n(8)?, n(12)?);
            let data = b.get(at + 16..at + 16 + len as usize)?;
            give(data, wire, Time::new(secs as i64, (sub / unit) as i64), link);
            at += 16 + len as usize;
        }
    }

    fn pcapng(&self, give: Give<'_>) -> Option<()> {
        let b = &self.data;
        let (mut at, mut big, mut links) = (0, false, Vec::new());
        loop {
            if number(b, at, 4, big)? == 0x0a0d_0d0a {
                big = number(b, at + 8, 4, true)? == 0x1a2b_3c4d;
                links.clear();
            }
            let (kind, len) = (number(b, at, 4, big)?, number(b, at + 4, 4, big)? as usize);
            let body = b.get(at + 8..(at + len).checked_sub(4)?)?;
            match kind {
                1 => links.push((number(body, 0, 2, big)?, resolution(body, big))),
                6 => {
                    let n = |o| number(body, o, 4, big);
                    let (link, per_sec) = *links.get(n(0)? as usize)?;
                    let stamp = (n(4)? << 32 | n(8)?) as u128;
                    let data = body.get(20..20 + n(12)? as usize)?;
                    give(data, n(16)?, Time((stamp * 1_000_000 / u128::from(per_sec)) as i64), link);
                }
                3 => {
                    let wire = number(body, 0, 4, big)?;
                    let (link, _) = *links.first()?;
                    let data = body.get(4..(4 + wire as usize).min(body.len()))?;
                    give(data, wire, Time(0), link);
                }
                _ => {}
            }
            at += len.max(12);
        }
    }
}

/// Units of an interface's time stamps, per second.
fn resolution(body: &[u8], big: bool) -> u64 {
    let mut at = 8;
    while let (Some(code), Some(len)) = (number(body, at, 2, big), number(body, at + 2, 2, big)) {
        if code == 9 {
            let r = body.get(at + 4).copied().unwrap_or(6);
            let exponent = u32::from(r & 0x7f);
            return if r & 0x80 != 0 { 1 << exponent.min(62) } else { 10u64.pow(exponent.min(18)) };
        }
        if code == 0 {
            break;
        }
        at += 4 + (len as usize).next_multiple_of(4);
    }
    1_000_000
}
