//! Writing and reading the pcapng of parts (draft-ietf-opsawg-pcapng): one section, an interface for each link type, enhanced packet
//! blocks with times in microseconds. pcapng, because a capture may have packets of several link types, and their order counts.

use std::io::{self, BufReader, Read, Seek};

use margay_packet::{Frame, LinkType};

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
/// The largest block that is taken for one of ours: a packet of 262,144 bytes, and what is around it.
const LONGEST: u32 = (1 << 18) + 64;
/// Most bytes of a packet.
const SNAPLEN: u32 = 1 << 18;
/// Link types of one file.
const MAX_LINKS: usize = 1 << 16;

/// Makes blocks. Bytes go into a buffer of the caller's.
#[derive(Debug, Default)]
pub struct Blocks {
    links: Vec<LinkType>,
    begun: bool,
}

fn words(out: &mut Vec<u8>, words: &[u32]) {
    words.iter().for_each(|w| out.extend_from_slice(&w.to_le_bytes()));
}

impl Blocks {
    /// Appends the blocks of a packet: the section's header before the first, and an interface before the first of its link type.
    /// A time before 1970 is written as 1970. Returns how many bytes the packet's own block has.
    pub fn packet(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) -> u32 {
        self.put(frame.link, u64::try_from(frame.time.0).unwrap_or(0), frame.wire_len, frame.data, out)
    }

    /// Appends the section's header, unless it is there.
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        if !self.begun {
            self.begun = true;
            // Version 1.0, in two halves; the section's length is not told.
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
    /// Appends it to a file of other packets.
    pub fn append(&self, blocks: &mut Blocks, out: &mut Vec<u8>) {
        let data = self.block.get(20..20 + self.captured).unwrap_or(&[]);
        blocks.put(LinkType(self.link), self.micros, self.wire_len, data, out);
    }
}

/// Reads a part that [`Blocks`] has written.
#[derive(Debug)]
pub struct Records<R> {
    source: R,
    links: Vec<u32>,
    /// Where the next block begins.
    pub at: u64,
}

/// Why a part's next packet could not be read.
#[derive(Debug)]
pub enum Stopped {
    /// The system.
    Io(io::Error),
    /// It is not what [`Blocks`] writes.
    Broken(&'static str),
}

impl<R: Read> Records<R> {
    /// From its start.
    pub fn new(source: R) -> Self {
        Records { source, links: Vec::new(), at: 0 }
    }

    /// Reads the next packet into `record`; `false` at the end.
    ///
    /// # Errors
    /// [`Stopped`], where the part is cut, damaged or another program's.
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
    /// Passes over whole packets without reading them.
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

/// Reads until `into` is full or the source ends; returns how many bytes.
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
