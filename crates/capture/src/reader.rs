//! Reads one capture, as batches of frames in the read-ahead buffer.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use margay_packet::LinkType;

use crate::ahead::ReadAhead;
use crate::batch::{Batch, Bounds, Counters, Meta, Stop};
use crate::buffer::Buffer;
use crate::error::Error;
use crate::filter::FilterSet;
use crate::pcap::{self, FILE_HEADER, Pcap};
use crate::pcapng::{self, PcapNg};

/// The format of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileFormat {
    /// pcap, of any byte order and resolution.
    Pcap,
    /// pcapng.
    PcapNg,
}

impl FileFormat {
    /// Its name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            FileFormat::Pcap => "pcap",
            FileFormat::PcapNg => "pcapng",
        }
    }
}

/// The state of the format's reader.
#[derive(Debug)]
pub(crate) enum Format {
    Pcap(Pcap),
    PcapNg(PcapNg),
}

/// The result of a step: the number of bytes used, and the number of its first frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ready {
    used: usize,
    first: u64,
}

impl Ready {
    /// The source had no data: there is nothing to return now.
    pub(crate) fn is_silent(self) -> bool {
        self.used == 0
    }
}

/// Memory that one reader passes to the next.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    buffer: Buffer,
    metas: Vec<Meta>,
}

/// The source of bytes.
#[derive(Debug)]
enum Source<R> {
    Direct(R),
    Ahead(ReadAhead),
}

/// A source whose file header was not read yet.
#[derive(Debug)]
pub(crate) struct Opening<R> {
    source: R,
    name: PathBuf,
    /// The bytes so far, if the whole source is read before the first frame.
    whole: Option<Vec<u8>>,
}

impl<R: Read> Opening<R> {
    /// With `preload`, the whole source is read before its first frame is returned.
    pub(crate) fn new(source: R, name: &Path, preload: bool, memory: &mut Memory) -> Self {
        memory.buffer.reset();
        Opening { source, name: name.to_owned(), whole: preload.then(Vec::new) }
    }

    /// The name, as given.
    pub(crate) fn name(&self) -> &Path {
        &self.name
    }

    /// Reads the file header. `None` if the source has no data now: call it again.
    ///
    /// # Errors
    /// See [`Reader::new`].
    pub(crate) fn read(&mut self, memory: &mut Memory) -> Result<Option<Format>, Error> {
        let buffer = &mut memory.buffer;
        if let Some(bytes) = &mut self.whole {
            // Bytes read before an error are kept.
            return match self.source.read_to_end(bytes) {
                Ok(_) => {
                    let format = detect(bytes.get(..FILE_HEADER.min(bytes.len())).unwrap_or(&[]), &self.name)?;
                    buffer.fill_with(std::mem::take(bytes));
                    Ok(Some(format))
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
                Err(e) => Err(read_error(&self.name, bytes.len() as u64, e)),
            };
        }
        while buffer.data().len() < FILE_HEADER && !buffer.eof() {
            let at = buffer.bytes_read();
            match buffer.refill(&mut self.source) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(e) => return Err(read_error(&self.name, at, e)),
            }
        }
        detect(buffer.data(), &self.name).map(Some)
    }

    /// The reader of the frames after the header.
    pub(crate) fn done(self, format: Format, memory: &mut Memory) -> Reader<R> {
        if let Format::Pcap(_) = format {
            memory.buffer.consume(FILE_HEADER);
        }
        Reader {
            source: Source::Direct(self.source),
            name: self.name,
            memory: std::mem::take(memory),
            format,
            filter: None,
            next_number: 1,
            counters: Counters::default(),
            pending: None,
            done: false,
        }
    }
}

/// Reads one capture from its start to its end, in constant memory.
///
/// ```
/// # use margay_capture::{Reader, PcapWriter, Resolution};
/// # use margay_packet::{LinkType, Time};
/// # let mut file = Vec::new();
/// # let mut w = PcapWriter::new(&mut file, LinkType::ETHERNET, 65535, Resolution::Micro)?;
/// # w.write(Time::new(1, 2), b"frame", 5)?;
/// let mut reader = Reader::new(file.as_slice(), "a.pcap".as_ref())?;
/// while let Some(batch) = reader.next_batch(64)? {
///     for frame in batch.iter() {
///         assert_eq!(frame.data, b"frame");
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Reader<R> {
    source: Source<R>,
    name: PathBuf,
    memory: Memory,
    format: Format,
    filter: Option<FilterSet>,
    /// Number of the next frame.
    next_number: u64,
    counters: Counters,
    /// An error after the frames of the latest batch, to report next.
    pending: Option<Error>,
    done: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the file header. `name` is the source's name in errors.
    ///
    /// # Errors
    /// [`Error::Empty`], [`Error::Compressed`], [`Error::UnknownFormat`], [`Error::Version`], [`Error::Truncated`] for an
    /// incomplete header, [`Error::Read`].
    pub fn new(source: R, name: &Path) -> Result<Self, Error> {
        let mut memory = Memory::default();
        let mut opening = Opening::new(source, name, false, &mut memory);
        match opening.read(&mut memory)? {
            Some(format) => Ok(opening.done(format, &mut memory)),
            None => Err(read_error(name, memory.buffer.bytes_read(), io::ErrorKind::WouldBlock.into())),
        }
    }

    /// Makes a thread read ahead, if it can be started.
    #[must_use]
    pub(crate) fn ahead(self) -> Self
    where
        R: Send + 'static,
    {
        let source = match self.source {
            Source::Direct(source) => ReadAhead::start(source).map_or_else(Source::Direct, Source::Ahead),
            ahead => ahead,
        };
        Reader { source, ..self }
    }

    /// Delivers only frames that match.
    #[must_use]
    pub fn with_filter(mut self, filter: Option<FilterSet>) -> Self {
        self.filter = filter;
        self
    }

    /// Numbers frames from `number` on (default 1), so that numbers continue across a folder's files.
    #[must_use]
    pub fn with_first_number(mut self, number: u64) -> Self {
        self.next_number = number;
        self
    }

    /// Returns up to `max` frames (at least 1), which are valid until the next call. It returns those that are in memory, and does
    /// not wait for a slow source to fill a batch. A batch is empty if the filter rejected all frames in memory, or if the source
    /// has no data now ([`io::ErrorKind::WouldBlock`]). `None` at the end.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::Corrupt`], [`Error::Read`], [`Error::Filter`]; always after all earlier whole frames were
    /// returned. An error is returned once; after it, the result is `None`.
    pub fn next_batch(&mut self, max: usize) -> Result<Option<Batch<'_>>, Error> {
        Ok(self.step(max)?.map(|ready| self.batch(ready)))
    }

    /// The first half of [`Reader::next_batch`]: reads. [`Reader::batch`] then returns the frames.
    pub(crate) fn step(&mut self, max: usize) -> Result<Option<Ready>, Error> {
        if self.done {
            return Ok(None);
        }
        let ready = match self.pending.take() {
            Some(error) => Err(error),
            None => self.advance(max.max(1)),
        };
        self.done = !matches!(ready, Ok(Some(_)));
        ready
    }

    /// The frames of the latest step.
    pub(crate) fn batch(&self, ready: Ready) -> Batch<'_> {
        let buffer = &self.memory.buffer;
        Batch::of_file(buffer.consumed(ready.used), &self.memory.metas, ready.first, buffer.shared(ready.used))
    }

    /// Whether a step needs at most `most` lent buffers, see [`Buffer::has_spare`].
    pub(crate) fn has_spare(&self, most: usize) -> bool {
        self.memory.buffer.has_spare(most)
    }

    fn advance(&mut self, max: usize) -> Result<Option<Ready>, Error> {
        let Memory { buffer, metas } = &mut self.memory;
        loop {
            metas.clear();
            let (used, stop) = match &mut self.format {
                Format::Pcap(f) => f.fill(buffer.data(), metas, Bounds { frames: max }),
                Format::PcapNg(f) => f.fill(buffer.data(), metas, Bounds { frames: max }),
            };
            let at = buffer.offset() + used as u64;
            let big_endian = match &self.format {
                Format::Pcap(f) => f.swapped,
                Format::PcapNg(f) => f.swapped,
            };
            if let Some(filter) = &mut self.filter
                && let Err(source) = filter.retain(buffer.data(), big_endian, metas, &mut self.counters)
            {
                self.pending = Some(Error::Filter { file: self.name.clone(), source });
            }
            buffer.consume(used);
            if let (Stop::Broken(reason), None) = (stop, &self.pending) {
                self.pending = Some(Error::Corrupt { file: self.name.clone(), offset: at, reason });
            }
            for meta in metas.iter() {
                self.counters.bytes += u64::from(meta.len);
                self.counters.cut += u64::from(meta.len < meta.wire_len);
            }
            self.counters.frames += metas.len() as u64;
            let first = self.next_number;
            self.next_number += metas.len() as u64;
            if metas.is_empty()
                && let Some(error) = self.pending.take()
            {
                return Err(error);
            }
            if used > 0 {
                return Ok(Some(Ready { used, first }));
            }
            let Stop::Need(wanted) = stop else { continue };
            if buffer.eof() {
                let partial = match &self.format {
                    Format::PcapNg(f) => f.partial(),
                    Format::Pcap(_) => None,
                };
                let got = buffer.data().len() as u64;
                if got == 0 && partial.is_none() {
                    return Ok(None);
                }
                let (before, wanted) = partial.unwrap_or((0, wanted as u64));
                let (offset, got) = (at - before, before + got);
                return Err(Error::Truncated { file: self.name.clone(), offset, wanted, got });
            }
            let at = buffer.bytes_read();
            let refilled = match &mut self.source {
                Source::Direct(source) => buffer.refill(source),
                Source::Ahead(ahead) => buffer.refill_ahead(ahead),
            };
            match refilled {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(Some(Ready { used: 0, first })),
                Err(e) => return Err(read_error(&self.name, at, e)),
            }
        }
    }

    /// The file's name, as given.
    pub fn name(&self) -> &Path {
        &self.name
    }

    /// Its format.
    pub fn format(&self) -> FileFormat {
        match self.format {
            Format::Pcap(_) => FileFormat::Pcap,
            Format::PcapNg(_) => FileFormat::PcapNg,
        }
    }

    /// The link type. For pcap, it is known from the start. For pcapng it is that of the section's first interface, once read; each
    /// frame has its own.
    pub fn link_type(&self) -> Option<LinkType> {
        match &self.format {
            Format::Pcap(f) => Some(f.link),
            Format::PcapNg(f) => f.first_link(),
        }
    }

    /// Bytes taken from the source, file header included.
    pub fn bytes_read(&self) -> u64 {
        self.memory.buffer.bytes_read()
    }

    /// The counters so far.
    pub fn counters(&self) -> Counters {
        let skipped_blocks = match &self.format {
            Format::PcapNg(f) => f.skipped_blocks,
            Format::Pcap(_) => 0,
        };
        Counters { skipped_blocks, ..self.counters }
    }

    /// Number that the next frame will get.
    pub fn next_number(&self) -> u64 {
        self.next_number
    }

    /// Returns memory and filter for the next file.
    pub(crate) fn into_parts(self) -> (Memory, Option<FilterSet>) {
        (self.memory, self.filter)
    }
}

fn read_error(name: &Path, offset: u64, source: io::Error) -> Error {
    Error::Read { file: name.to_owned(), offset, source }
}

/// Magic numbers of known formats that are not captures.
const COMPRESSED: [(&[u8], &str); 7] = [
    (&[0x1f, 0x8b], "gzip"),
    (&[0xfd, b'7', b'z', b'X', b'Z'], "xz"),
    (&[0x28, 0xb5, 0x2f, 0xfd], "zstd"),
    (&[0x04, 0x22, 0x4d, 0x18], "lz4"),
    (b"BZh", "bzip2"),
    (b"PK\x03\x04", "zip"),
    (b"7z\xbc\xaf", "7-zip"),
];

/// Other programs' captures.
const FOREIGN: [(&[u8], &str); 3] = [
    (b"snoop", "; it looks like a snoop capture: convert it, for example with editcap"),
    (b"GMBU", "; it looks like a Network Monitor capture: convert it, for example with editcap"),
    (b"RTSS", "; it looks like a Network Monitor capture: convert it, for example with editcap"),
];

fn detect(head: &[u8], name: &Path) -> Result<Format, Error> {
    let file = || name.to_owned();
    if head.is_empty() {
        return Err(Error::Empty { file: file() });
    }
    if let Some((_, with)) = COMPRESSED.iter().find(|(m, _)| head.starts_with(m)) {
        return Err(Error::Compressed { file: file(), with });
    }
    let short =
        |wanted: usize| Error::Truncated { file: file(), offset: 0, wanted: wanted as u64, got: head.len() as u64 };
    let Some(&magic) = head.first_chunk::<4>() else { return Err(short(FILE_HEADER)) };
    let number = u32::from_le_bytes(magic);
    if number == pcapng::SECTION {
        return Ok(Format::PcapNg(PcapNg::default()));
    }
    if pcap::byte_order(number).is_none() {
        let hint = FOREIGN.iter().find(|(m, _)| head.starts_with(m)).map_or("", |(_, hint)| hint);
        return Err(Error::UnknownFormat { file: file(), magic, hint });
    }
    let Some(header) = head.first_chunk::<FILE_HEADER>() else { return Err(short(FILE_HEADER)) };
    match Pcap::new(header) {
        Ok(format) => Ok(Format::Pcap(format)),
        Err((major, minor)) => Err(Error::Version { file: file(), format: "pcap", major, minor }),
    }
}

/// Reads all of `bytes` as a capture and touches every frame, for fuzzing. Returns the counters and the error at the end.
pub fn drain(bytes: &[u8]) -> (Counters, Option<Error>) {
    let mut reader = match Reader::new(bytes, Path::new("(memory)")) {
        Ok(reader) => reader,
        Err(error) => return (Counters::default(), Some(error)),
    };
    let mut seen = 0u64;
    loop {
        match reader.next_batch(256) {
            Ok(Some(batch)) => seen += batch.iter().map(|f| f.data.len() as u64).sum::<u64>(),
            end => {
                let error = end.err();
                let counters = reader.counters();
                assert_eq!(seen, counters.bytes, "every frame's bytes are within the batch");
                return (counters, error);
            }
        }
    }
}
