//! The pcapng file format (draft-ietf-opsawg-pcapng): blocks, each with its length at both ends.
//!
//! The parser handles packet blocks (enhanced, simple and the obsolete one), section headers and interface descriptions. It
//! skips other blocks without keeping them in memory, whatever their size.

use margay_packet::{LinkType, Time};

use crate::batch::{Bounds, Meta, Stop};
use crate::error::Broken;
use crate::pcap::MAX_PACKET;

/// Block type of the section header; reads the same in either byte order.
pub(crate) const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;

/// The largest packet block or interface description, because these are in memory as a whole.
const MAX_BLOCK: u32 = 16 << 20;
/// Most interfaces of one section. The obsolete packet block cannot name more.
const MAX_INTERFACES: usize = 1 << 16;

/// The unit of an interface's timestamps, for conversion to microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Times(u64),
    DividedBy(u64),
    /// The unit is so small that any timestamp is less than a microsecond.
    Vanishing,
    /// 2 to the minus n seconds.
    Binary(u32),
}

#[derive(Debug, Clone, Copy)]
struct Interface {
    link: LinkType,
    snaplen: u32,
    unit: Unit,
    /// Microseconds to add.
    offset: i64,
}

impl Interface {
    fn time(&self, ticks: u64) -> Time {
        let micros = match self.unit {
            Unit::Times(n) => ticks.saturating_mul(n),
            Unit::DividedBy(n) => ticks / n.max(1),
            Unit::Vanishing => 0,
            Unit::Binary(n) => {
                u64::try_from((u128::from(ticks) * 1_000_000).checked_shr(n).unwrap_or(0)).unwrap_or(u64::MAX)
            }
        };
        Time(i64::try_from(micros).unwrap_or(i64::MAX).saturating_add(self.offset))
    }
}

/// if_tsresol: the top bit chooses between powers of two and of ten.
fn unit(resolution: u8) -> Unit {
    let n = u32::from(resolution & 0x7f);
    if resolution & 0x80 != 0 {
        return Unit::Binary(n);
    }
    match n {
        0..=6 => Unit::Times(10u64.pow(6 - n)),
        7..=25 => Unit::DividedBy(10u64.pow(n - 6)),
        _ => Unit::Vanishing,
    }
}

/// A block that is being skipped.
#[derive(Debug, Clone, Copy)]
struct Skip {
    total: u32,
    left: u32,
}

/// The state of parsing a pcapng file.
#[derive(Debug, Clone, Default)]
pub(crate) struct PcapNg {
    /// Whether the section is big endian.
    pub(crate) swapped: bool,
    interfaces: Vec<Interface>,
    skip: Option<Skip>,
    /// Time of the previous packet, for packets without a time.
    last_time: Time,
    /// Number of skipped blocks.
    pub(crate) skipped_blocks: u64,
}

/// A block's bytes with the section's byte order.
#[derive(Clone, Copy)]
struct Fields<'a> {
    data: &'a [u8],
    swapped: bool,
}

impl Fields<'_> {
    fn u32(self, at: usize) -> Option<u32> {
        let v = u32::from_le_bytes(*self.data.get(at..)?.first_chunk()?);
        Some(if self.swapped { v.swap_bytes() } else { v })
    }
    fn u16(self, at: usize) -> Option<u16> {
        let v = u16::from_le_bytes(*self.data.get(at..)?.first_chunk()?);
        Some(if self.swapped { v.swap_bytes() } else { v })
    }
}

const fn padded(n: u32) -> u64 {
    (n as u64 + 3) & !3
}

impl PcapNg {
    /// For a block that is being skipped: the bytes consumed so far, and its length.
    pub(crate) fn partial(&self) -> Option<(u64, u64)> {
        self.skip.map(|s| (u64::from(s.total - s.left), u64::from(s.total)))
    }

    /// Link type of the current section's first interface.
    pub(crate) fn first_link(&self) -> Option<LinkType> {
        self.interfaces.first().map(|i| i.link)
    }

    /// Takes whole blocks from the front of `data`. Returns the number of bytes, and why it stopped.
    pub(crate) fn fill(&mut self, data: &[u8], out: &mut Vec<Meta>, bounds: Bounds) -> (usize, Stop) {
        let mut at = 0usize;
        while out.len() < bounds.frames {
            let rest = data.get(at..).unwrap_or(&[]);
            match self.block(rest, at, out) {
                Ok(used) => at += used,
                Err(stop) => return (at, stop),
            }
        }
        (at, Stop::Full)
    }

    /// Takes one block, or a part of a skipped one. Returns the number of bytes, which is never 0.
    fn block(&mut self, rest: &[u8], at: usize, out: &mut Vec<Meta>) -> Result<usize, Stop> {
        if let Some(skip) = self.skip {
            return self.step(skip, rest);
        }
        let fields = Fields { data: rest, swapped: self.swapped };
        let (Some(kind), Some(length)) = (fields.u32(0), fields.u32(4)) else { return Err(Stop::Need(8)) };
        if kind == SECTION {
            // All frames of a batch must belong to one section.
            if !out.is_empty() {
                return Err(Stop::Full);
            }
            return self.section(rest);
        }
        let broken = Stop::Broken(Broken::BlockLength { kind, length });
        if length < 12 || length % 4 != 0 {
            return Err(broken);
        }
        let minimum = match kind {
            INTERFACE => 20,
            SIMPLE_PACKET => 16,
            ENHANCED_PACKET | OBSOLETE_PACKET => 32,
            _ => {
                self.skipped_blocks += 1;
                self.skip = Some(Skip { total: length, left: length - 8 });
                return Ok(8);
            }
        };
        if !(minimum..=MAX_BLOCK).contains(&length) {
            return Err(broken);
        }
        let whole = length as usize;
        let Some(block) = rest.get(..whole) else { return Err(Stop::Need(whole)) };
        let fields = Fields { data: block, swapped: self.swapped };
        let end = fields.u32(whole - 4).unwrap_or_default();
        if end != length {
            return Err(Stop::Broken(Broken::BlockTrailer { start: length, end }));
        }
        match kind {
            INTERFACE => self.interface(fields)?,
            _ => {
                let meta = self.packet(kind, fields, at)?;
                self.last_time = meta.time;
                out.push(meta);
            }
        }
        Ok(whole)
    }

    /// Skips a block. Its last four bytes repeat its length.
    fn step(&mut self, skip: Skip, rest: &[u8]) -> Result<usize, Stop> {
        let middle = skip.left.saturating_sub(4);
        if middle > 0 {
            if rest.is_empty() {
                return Err(Stop::Need(1));
            }
            let used = u32::try_from(rest.len()).unwrap_or(u32::MAX).min(middle);
            self.skip = Some(Skip { left: skip.left - used, ..skip });
            return Ok(used as usize);
        }
        let Some(end) = (Fields { data: rest, swapped: self.swapped }).u32(0) else { return Err(Stop::Need(4)) };
        if end != skip.total {
            return Err(Stop::Broken(Broken::BlockTrailer { start: skip.total, end }));
        }
        self.skip = None;
        Ok(4)
    }

    /// Parses a section header. The byte order may change, and interface numbers start again.
    fn section(&mut self, rest: &[u8]) -> Result<usize, Stop> {
        let Some(magic) = (Fields { data: rest, swapped: false }).u32(8) else { return Err(Stop::Need(12)) };
        let swapped = match magic {
            BYTE_ORDER => false,
            m if m.swap_bytes() == BYTE_ORDER => true,
            m => return Err(Stop::Broken(Broken::ByteOrder(m))),
        };
        let fields = Fields { data: rest, swapped };
        let (Some(length), Some(major), Some(minor)) = (fields.u32(4), fields.u16(12), fields.u16(14)) else {
            return Err(Stop::Need(16));
        };
        if length < 28 || length % 4 != 0 {
            return Err(Stop::Broken(Broken::BlockLength { kind: SECTION, length }));
        }
        // Some programs wrote 1.2 by mistake; it is the same as 1.0.
        if major != 1 || !matches!(minor, 0 | 2) {
            return Err(Stop::Broken(Broken::Version(major, minor)));
        }
        self.swapped = swapped;
        self.interfaces.clear();
        self.skip = Some(Skip { total: length, left: length - 16 });
        Ok(16)
    }

    fn interface(&mut self, fields: Fields<'_>) -> Result<(), Stop> {
        if self.interfaces.len() >= MAX_INTERFACES {
            return Err(Stop::Broken(Broken::TooManyInterfaces(MAX_INTERFACES)));
        }
        let mut new = Interface {
            link: LinkType(u32::from(fields.u16(8).unwrap_or_default())),
            snaplen: fields.u32(12).unwrap_or_default(),
            unit: unit(6),
            offset: 0,
        };
        let end = fields.data.len() - 4;
        let mut at = 16usize;
        // Options: code, length, value padded to four bytes; code 0 ends them.
        while at + 4 <= end {
            let (Some(code), Some(length)) = (fields.u16(at), fields.u16(at + 2)) else { break };
            if code == 0 {
                break;
            }
            let value = at + 4;
            let next = value + padded(u32::from(length)) as usize;
            if next > end {
                return Err(Stop::Broken(Broken::Option(code)));
            }
            match (code, length) {
                (9, 1) => new.unit = unit(fields.data.get(value).copied().unwrap_or(6)),
                (14, 8) => {
                    let (a, b) = (fields.u32(value).unwrap_or_default(), fields.u32(value + 4).unwrap_or_default());
                    let (high, low) = if fields.swapped { (a, b) } else { (b, a) };
                    let secs = (u64::from(high) << 32 | u64::from(low)) as i64;
                    new.offset = secs.saturating_mul(1_000_000);
                }
                (9 | 14, _) => return Err(Stop::Broken(Broken::Option(code))),
                _ => {}
            }
            at = next;
        }
        self.interfaces.push(new);
        Ok(())
    }

    fn packet(&self, kind: u32, fields: Fields<'_>, at: usize) -> Result<Meta, Stop> {
        let field = |i| fields.u32(i).unwrap_or_default();
        let length = fields.data.len() as u32;
        let id = match kind {
            ENHANCED_PACKET => field(8),
            OBSOLETE_PACKET => u32::from(fields.u16(8).unwrap_or_default()),
            _ => 0,
        };
        let Some(interface) = self.interfaces.get(id as usize) else {
            let known = self.interfaces.len() as u32;
            return Err(Stop::Broken(Broken::Interface { id, known }));
        };
        // A simple packet block has neither a time nor a captured length; the interface's snaplen limits the packet.
        let (header, captured, wire, time) = if kind == SIMPLE_PACKET {
            let wire = field(8);
            let cut = if interface.snaplen == 0 { wire } else { wire.min(interface.snaplen) };
            (12, cut, wire, self.last_time)
        } else {
            let ticks = u64::from(field(12)) << 32 | u64::from(field(16));
            (28, field(20), field(24), interface.time(ticks))
        };
        if captured > MAX_PACKET {
            return Err(Stop::Broken(Broken::PacketLength { claimed: captured, limit: MAX_PACKET }));
        }
        if padded(captured) > u64::from(length - 4 - header) {
            return Err(Stop::Broken(Broken::BlockLength { kind, length }));
        }
        Ok(Meta {
            start: (at + header as usize) as u32,
            len: captured,
            wire_len: wire.max(captured),
            link: interface.link,
            time,
            trusted: false,
        })
    }
}
