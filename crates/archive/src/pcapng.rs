//! Writes and reads the pcapng files of parts (draft-ietf-opsawg-pcapng): one section, an interface for each link type, and
//! enhanced packet blocks with times in microseconds. The format is pcapng because a capture may mix link types, whose packet
//! order matters.

use std::io::{self, BufReader, Read, Seek};

use margay_packet::{Frame, LinkType};

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
/// The largest valid block: a packet of 262,144 bytes, and its framing.
const LONGEST: u32 = (1 << 18) + 64;
/// Limit of a packet's bytes.
const SNAPLEN: u32 = 1 << 18;
/// Limit of the link types in a file.
const MAX_LINKS: usize = 1 << 16;

/// Creates blocks in the caller's buffer.
#[derive(Debug, Default)]
pub struct Blocks {
    links: Vec<LinkType>,
    begun: bool,
}

fn words(out: &mut Vec<u8>, words: &[u32]) {
    words.iter().for_each(|w| out.extend_from_slice(&w.to_le_bytes()));
}

impl Blocks {
    /// Appends the blocks of a packet: the section header before the first packet, and an interface before the first packet
    /// of its link type. A time before 1970 is written as 1970. Returns the length of the packet's own block.
    pub fn packet(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) -> u32 {
        self.put(frame.link, u64::try_from(frame.time.0).unwrap_or(0), frame.wire_len, frame.data, out)
    }

    /// Appends the section header, unless it is there.
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        if !self.begun {
            self.begun = true;
            // Version 1.0, in two halves; the section's length is unspecified.
            words(out, &[SECTION, 28, BYTE_ORDER, 1, u32::MAX, u32::MAX, 28]);
        }
    }

    fn put(&mut self, link: LinkType, micros: u64, wire_len: u32, data: &[u8], out: &mut Vec<u8>) -> u32 {
        self.begin(out);
        let interface = self.links.iter().position(|l| *l == link).unwrap_or_else(|| {
            words(out, &[INTERFACE, 20, link.0 & 0xffff, SNAPLEN, 20]);
            self.links.push(link);
            self.links.len() - 1
        });
        let data = data.get(..SNAPLEN as usize).unwrap_or(data);
        let captured = data.len() as u32;
        let padding = (4 - data.len() % 4) % 4;
        let total = 32 + captured + padding as u32;
        words(
            out,
            &[PACKET, total, interface as u32, (micros >> 32) as u32, micros as u32, captured, wire_len.max(captured)],
        );
        out.extend_from_slice(data);
        out.extend_from_slice(&[0; 3][..padding]);
        words(out, &[total]);
        total
    }
}

/// A packet of a part.
#[derive(Debug, Default)]
pub struct Record {
    link: u32,
    micros: u64,
    wire_len: u32,
    block: Vec<u8>,
    captured: usize,
}

impl Record {
    /// Appends it to another file's packets.
    pub fn append(&self, blocks: &mut Blocks, out: &mut Vec<u8>) {
        let data = self.block.get(20..20 + self.captured).unwrap_or(&[]);
        blocks.put(LinkType(self.link), self.micros, self.wire_len, data, out);
    }
}

/// Reads a part that [`Blocks`] wrote.
#[derive(Debug)]
pub struct Records<R> {
    source: R,
    links: Vec<u32>,
    /// Offset of the next block.
    pub at: u64,
}

/// Why the next packet of a part could not be read.
#[derive(Debug)]
pub enum Stopped {
    /// An I/O error.
    Io(io::Error),
    /// The file was not written by [`Blocks`], or is damaged.
    Broken(&'static str),
}

impl<R: Read> Records<R> {
    /// Reads from the start.
    pub fn new(source: R) -> Self {
        Records { source, links: Vec::new(), at: 0 }
    }

    /// Reads the next packet into `record`; `false` at the end.
    ///
    /// # Errors
    /// [`Stopped`], if the part is truncated, damaged, or from another program.
    pub fn next(&mut self, record: &mut Record) -> Result<bool, Stopped> {
        loop {
            let mut head = [0u8; 8];
            let got = fill(&mut self.source, &mut head).map_err(Stopped::Io)?;
            if got == 0 {
                return Ok(false);
            }
            let word = |at: usize, b: &[u8]| b.get(at..).and_then(|b| b.first_chunk()).map(|b| u32::from_le_bytes(*b));
            let (Some(kind), Some(length), 8) = (word(0, &head), word(4, &head), got) else {
                return Err(Stopped::Broken("it ends in the middle of a block"));
            };
            if !(12..=LONGEST).contains(&length) || !length.is_multiple_of(4) {
                return Err(Stopped::Broken("a block has an impossible length"));
            }
            record.block.resize(length as usize - 8, 0);
            if fill(&mut self.source, &mut record.block).map_err(Stopped::Io)? < record.block.len() {
                return Err(Stopped::Broken("it ends in the middle of a block"));
            }
            let field = |n: usize| word(n * 4, &record.block).ok_or(Stopped::Broken("a block is too short"));
            if word(record.block.len() - 4, &record.block) != Some(length) {
                return Err(Stopped::Broken("the two lengths of a block differ"));
            }
            match kind {
                SECTION if field(0)? == BYTE_ORDER => self.links.clear(),
                INTERFACE if self.links.len() < MAX_LINKS => self.links.push(field(0)? & 0xffff),
                PACKET => {
                    let link = self.links.get(field(0)? as usize);
                    record.link = *link.ok_or(Stopped::Broken("a packet is of an interface that was not described"))?;
                    record.micros = u64::from(field(1)?) << 32 | u64::from(field(2)?);
                    record.captured = field(3)? as usize;
                    record.wire_len = field(4)?;
                    if record.captured > record.block.len().saturating_sub(24) {
                        return Err(Stopped::Broken("a packet is longer than its block"));
                    }
                    self.at += u64::from(length);
                    return Ok(true);
                }
                _ => return Err(Stopped::Broken("a block is of a kind that parts do not have")),
            }
            self.at += u64::from(length);
        }
    }
}

impl<R: Read + Seek> Records<BufReader<R>> {
    /// Skips whole packets without reading them.
    ///
    /// # Errors
    /// [`Stopped::Io`].
    pub fn skip(&mut self, bytes: u64) -> Result<(), Stopped> {
        let by = i64::try_from(bytes).map_err(|_| Stopped::Broken("a packet is too long"))?;
        self.source.seek_relative(by).map_err(Stopped::Io)?;
        self.at = self.at.saturating_add(bytes);
        Ok(())
    }
}

/// Reads until `into` is full or the source ends. Returns the number of bytes.
fn fill(source: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while let Some(rest) = into.get_mut(got..).filter(|r| !r.is_empty()) {
        match source.read(rest) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(got)
}
