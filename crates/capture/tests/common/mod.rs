//! A small pcapng writer, and helpers.
#![allow(dead_code)]

use std::io::{self, Read};
use std::path::Path;

use margay_capture::{Error, Reader};

/// Writes pcapng blocks in either byte order.
#[derive(Default)]
pub(crate) struct Ng {
    pub(crate) bytes: Vec<u8>,
    pub(crate) big: bool,
}

impl Ng {
    pub(crate) fn u16(&self, v: u16) -> [u8; 2] {
        if self.big { v.to_be_bytes() } else { v.to_le_bytes() }
    }
    pub(crate) fn u32(&self, v: u32) -> [u8; 4] {
        if self.big { v.to_be_bytes() } else { v.to_le_bytes() }
    }
    pub(crate) fn block(&mut self, kind: u32, body: &[u8]) -> &mut Self {
        let length = self.u32((body.len().next_multiple_of(4) + 12) as u32);
        self.bytes.extend(self.u32(kind));
        self.bytes.extend(length);
        self.bytes.extend(body);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self.bytes.extend(length);
        self
    }
    pub(crate) fn section(&mut self, big: bool) -> &mut Self {
        self.big = big;
        let mut body = self.u32(0x1a2b_3c4d).to_vec();
        body.extend(self.u16(1));
        body.extend(self.u16(0));
        body.extend([0xff; 8]);
        // A comment.
        body.extend(self.u16(1));
        body.extend(self.u16(5));
        body.extend(b"hello\0\0\0");
        body.extend([0; 4]);
        self.block(0x0a0d_0d0a, &body)
    }
    pub(crate) fn interface(&mut self, link: u16, snaplen: u32, options: &[(u16, Vec<u8>)]) -> &mut Self {
        let mut body = self.u16(link).to_vec();
        body.extend([0, 0]);
        body.extend(self.u32(snaplen));
        for (code, value) in options {
            body.extend(self.u16(*code));
            body.extend(self.u16(value.len() as u16));
            body.extend(value);
            body.resize(body.len().next_multiple_of(4), 0);
        }
        if !options.is_empty() {
            body.extend([0; 4]);
        }
        self.block(1, &body)
    }
    pub(crate) fn enhanced(&mut self, interface: u32, ticks: u64, data: &[u8], wire: u32) -> &mut Self {
        let mut body = self.u32(interface).to_vec();
        body.extend(self.u32((ticks >> 32) as u32));
        body.extend(self.u32(ticks as u32));
        body.extend(self.u32(data.len() as u32));
        body.extend(self.u32(wire));
        body.extend(data);
        self.block(6, &body)
    }
    pub(crate) fn obsolete(&mut self, interface: u16, ticks: u64, data: &[u8], wire: u32) -> &mut Self {
        let mut body = self.u16(interface).to_vec();
        body.extend([0xff, 0xff]);
        body.extend(self.u32((ticks >> 32) as u32));
        body.extend(self.u32(ticks as u32));
        body.extend(self.u32(data.len() as u32));
        body.extend(self.u32(wire));
        body.extend(data);
        self.block(2, &body)
    }
    pub(crate) fn simple(&mut self, data: &[u8], wire: u32) -> &mut Self {
        let mut body = self.u32(wire).to_vec();
        body.extend(data);
        self.block(3, &body)
    }
}

/// A frame with its bytes owned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owned {
    pub(crate) data: Vec<u8>,
    pub(crate) wire_len: u32,
    pub(crate) micros: i64,
    pub(crate) link: u32,
    pub(crate) number: u64,
}

/// All frames of a source and how it ended.
pub(crate) fn read_all(source: impl Read, max: usize) -> (Vec<Owned>, Option<Error>) {
    let mut frames = Vec::new();
    let mut reader = match Reader::new(source, Path::new("x.pcap")) {
        Ok(reader) => reader,
        Err(error) => return (frames, Some(error)),
    };
    loop {
        match reader.next_batch(max) {
            Ok(Some(batch)) => {
                assert!(batch.len() <= max.max(1));
                frames.extend(batch.iter().map(|f| Owned {
                    data: f.data.to_vec(),
                    wire_len: f.wire_len,
                    micros: f.time.0,
                    link: f.link.0,
                    number: f.number,
                }));
            }
            Ok(None) => return (frames, None),
            Err(error) => {
                assert!(matches!(reader.next_batch(max), Ok(None)), "an error is told once");
                return (frames, Some(error));
            }
        }
    }
}

/// Gives its bytes in pieces of the sizes listed, again and again, with interruptions.
pub(crate) struct Pieces<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) sizes: Vec<usize>,
    pub(crate) turn: usize,
}

impl Read for Pieces<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let size = self.sizes[self.turn % self.sizes.len()];
        self.turn += 1;
        if size == 0 {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let n = size.min(buf.len()).min(self.bytes.len());
        buf[..n].copy_from_slice(&self.bytes[..n]);
        self.bytes = &self.bytes[n..];
        Ok(n)
    }
}
