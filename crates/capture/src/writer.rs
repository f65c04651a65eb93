//! Writing pcap files.

use std::io::{self, Write};

use margay_packet::{LinkType, Time};

use crate::pcap::{MAGIC_MICRO, MAGIC_NANO};

/// The resolution of times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Resolution {
    /// Microseconds, which every program supports.
    #[default]
    Micro,
    /// Nanoseconds.
    Nano,
}

/// Writes a pcap file of version 2.4, little endian. It makes small writes, so pass a buffered writer.
#[derive(Debug)]
pub struct PcapWriter<W> {
    out: W,
    resolution: Resolution,
    snaplen: u32,
    bytes: u64,
}

/// Length of the file header in bytes.
pub const FILE_HEADER_LEN: u64 = 24;
/// Length of a record's header in bytes.
pub const RECORD_HEADER_LEN: u64 = 16;

impl<W: Write> PcapWriter<W> {
    /// Writes the file header. Packets with more than `snaplen` bytes will be truncated to it.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn new(mut out: W, link: LinkType, snaplen: u32, resolution: Resolution) -> io::Result<Self> {
        let mut header = [0u8; FILE_HEADER_LEN as usize];
        let magic = match resolution {
            Resolution::Micro => MAGIC_MICRO,
            Resolution::Nano => MAGIC_NANO,
        };
        header[0..4].copy_from_slice(&magic.to_le_bytes());
        header[4..6].copy_from_slice(&2u16.to_le_bytes());
        header[6..8].copy_from_slice(&4u16.to_le_bytes());
        header[16..20].copy_from_slice(&snaplen.to_le_bytes());
        header[20..24].copy_from_slice(&link.0.to_le_bytes());
        out.write_all(&header)?;
        Ok(PcapWriter { out, resolution, snaplen, bytes: FILE_HEADER_LEN })
    }

    /// Writes one packet of `wire_len` bytes of which `data` was captured. A time before 1970 or after 2106 is written
    /// as the nearest the format can hold.
    ///
    /// # Errors
    /// Those of `out`. The file then ends with an incomplete record.
    pub fn write(&mut self, time: Time, data: &[u8], wire_len: u32) -> io::Result<()> {
        let (secs, micros) = match u32::try_from(time.secs()) {
            Ok(secs) => (secs, time.subsec_micros()),
            Err(_) if time.secs() < 0 => (0, 0),
            Err(_) => (u32::MAX, 999_999),
        };
        self.write_nanos(secs, micros * 1000, data, wire_len)
    }

    /// [`PcapWriter::write`] with the time as seconds since 1970 and nanoseconds within the second, for packets whose time
    /// is more precise than a microsecond.
    ///
    /// # Errors
    /// As [`PcapWriter::write`].
    pub fn write_nanos(&mut self, secs: u32, nanos: u32, data: &[u8], wire_len: u32) -> io::Result<()> {
        let len = u32::try_from(data.len()).unwrap_or(u32::MAX).min(self.snaplen);
        let fraction = match self.resolution {
            Resolution::Micro => nanos / 1000,
            Resolution::Nano => nanos,
        };
        let wire_len = wire_len.max(u32::try_from(data.len()).unwrap_or(u32::MAX));
        let mut header = [0u8; RECORD_HEADER_LEN as usize];
        for (at, v) in [secs, fraction, len, wire_len].into_iter().enumerate() {
            header[at * 4..at * 4 + 4].copy_from_slice(&v.to_le_bytes());
        }
        let data = data.get(..len as usize).unwrap_or(data);
        self.out.write_all(&header)?;
        self.out.write_all(data)?;
        self.bytes += RECORD_HEADER_LEN + data.len() as u64;
        Ok(())
    }

    /// Bytes written so far, headers included.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes buffered data to the operating system.
    ///
    /// # Errors
    /// Those of the writer given.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Returns the writer without flushing it.
    pub fn into_inner(self) -> W {
        self.out
    }
}
