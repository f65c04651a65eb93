//! Splits captures into parts, in one pass and in bounded memory.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use margay_capture::{CaptureSource, DirOptions, Event};
use margay_packet::{DecodeConfig, Decoder, Frame, Packet};

use crate::archive::{MANIFEST, Manifest, Source, VERSION, write_json};
use crate::error::Error;
use crate::group::ROWS;
use crate::pair::{Claims, Seen, bucket};
use crate::part::{Open, Whole};

/// Limit of buckets.
pub const MAX_BUCKETS: u16 = 256;
/// The shortest window in microseconds: twice the time that a datagram's fragments are kept, so that they are in one window
/// or two consecutive ones.
pub const SHORTEST_WINDOW: i64 = 120_000_000;
/// Limit of part files.
const MAX_PARTS: usize = 1_000_000;
/// Limit of the bytes that wait to be written, for all buckets.
const WAITING: usize = 64 << 20;
/// Limit of the index entries that are kept individually, for all buckets and both of their open indexes.
const ENTRIES: usize = 4 << 20;
/// Number of frames by which checksums are judged, and the share of wrong ones (one in so many) from which checksums are
/// trusted, as in the engine.
const JUDGED: u64 = 1000;
const RATIO: u64 = 10;
/// Frames in a batch.
const BATCH: usize = 256;

/// Options of a split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The archive's folder, which must not exist.
    pub into: PathBuf,
    /// Buckets, 1 to [`MAX_BUCKETS`].
    pub buckets: u16,
    /// Length of a window in microseconds, at least [`SHORTEST_WINDOW`]; `None` for a single window.
    pub window: Option<i64>,
}

/// The unfinished parts of a bucket.
#[derive(Debug, Default)]
struct Slot {
    open: Option<Open>,
    before: Option<Whole>,
}

struct Splitter<'o> {
    options: &'o Options,
    folder: PathBuf,
    decoder: Decoder,
    claims: Claims,
    slots: Vec<Slot>,
    manifest: Manifest,
    /// Number and start of the window.
    window: (u32, i64),
    seen: Vec<Seen>,
    parts: usize,
    refused: u64,
    /// Packets with a wrong checksum among the first [`JUDGED`] frames.
    wrong: u64,
}

/// Splits `captures`, read in the given order, as one capture. A broken capture is used as far as it can be read and reported
/// in [`Manifest::captures`], and the others follow.
///
/// # Errors
/// [`Error::Options`], [`Error::Exists`], [`Error::Unfinished`], [`Error::Write`], [`Error::TooManyParts`];
/// [`Error::Nothing`] if no packet was read. The output so far is removed.
pub fn split(captures: &[PathBuf], options: &Options) -> Result<Manifest, Error> {
    if !(1..=MAX_BUCKETS).contains(&options.buckets) {
        return Err(Error::Options(format!("--parts must be 1 to {MAX_BUCKETS}, not {}", options.buckets)));
    }
    if options.window.is_some_and(|w| w < SHORTEST_WINDOW) {
        return Err(Error::Options(format!("--by-time must be {} s or more", SHORTEST_WINDOW / 1_000_000)));
    }
    let folder = partial(&options.into)?;
    if options.into.exists() {
        return Err(Error::Exists(options.into.clone()));
    }
    if folder.exists() {
        return Err(Error::Unfinished(folder));
    }
    fs::create_dir_all(&folder).map_err(Error::write(&folder))?;
    let made = into_folder(captures, options, &folder);
    if made.is_err() {
        // Without a manifest the folder cannot be read. A failure to remove it does not matter.
        let _ = fs::remove_dir_all(&folder);
    }
    made
}

/// Where an archive is written until it is complete.
fn partial(into: &Path) -> Result<PathBuf, Error> {
    let name = into.file_name().ok_or_else(|| Error::Options(format!("'{}' names no folder", into.display())))?;
    let mut name = name.to_owned();
    name.push(".partial");
    Ok(into.with_file_name(name))
}

fn into_folder(captures: &[PathBuf], options: &Options, folder: &Path) -> Result<Manifest, Error> {
    let manifest = Manifest {
        version: VERSION,
        buckets: options.buckets,
        window: options.window.unwrap_or(0),
        rows: ROWS,
        packets: 0,
        captures: Vec::new(),
        together: Vec::new(),
        claims_refused: 0,
        fragments_refused: 0,
        checksums_believed: false,
        parts: Vec::new(),
    };
    let mut splitter = Splitter {
        options,
        folder: folder.to_owned(),
        decoder: Decoder::new(DecodeConfig::default()),
        claims: Claims::new(options.buckets),
        slots: (0..options.buckets).map(|_| Slot::default()).collect(),
        manifest,
        window: (0, i64::MIN),
        seen: Vec::new(),
        parts: 0,
        refused: 0,
        wrong: 0,
    };
    for capture in captures {
        splitter.capture(capture)?;
    }
    splitter.finish()
}

impl Splitter<'_> {
    /// Reads one capture, or a folder of captures.
    fn capture(&mut self, path: &Path) -> Result<(), Error> {
        let named = |file: &Path| file.display().to_string();
        let mut source = match CaptureSource::open(path, DirOptions::default(), None) {
            Ok(source) => source,
            Err(e) => {
                self.manifest.captures.push(Source { file: named(path), packets: 0, problem: Some(e.to_string()) });
                return Ok(());
            }
        };
        loop {
            match source.next_event(BATCH, SystemTime::now) {
                Event::Batch(batch) => {
                    for frame in batch.iter() {
                        self.frame(&frame)?;
                    }
                }
                Event::Failed { file, error } => {
                    let problem = Some(error.to_string());
                    self.manifest.captures.push(Source { file: named(&file), packets: 0, problem });
                }
                Event::FileEnd(end) => {
                    let problem = end.error.map(|e| e.to_string());
                    let packets = end.counters.frames;
                    self.manifest.captures.push(Source { file: named(&end.file), packets, problem });
                }
                Event::Done => return Ok(()),
                _ => {}
            }
        }
    }

    fn frame(&mut self, frame: &Frame<'_>) -> Result<(), Error> {
        self.turn(frame.time.0)?;
        let judged = self.manifest.packets < JUDGED;
        let Splitter { seen, refused, wrong, .. } = self;
        seen.clear();
        self.decoder.decode(frame, &mut |p: &Packet<'_>| {
            seen.push(Seen::of(p));
            *refused += u64::from(p.defrag_memcap_hit);
            *wrong += u64::from(judged && p.l4_checksum_ok() == Some(false));
        });
        // The captured packet comes last.
        let pair = self.seen.last().and_then(|s| s.pair);
        let at = bucket(pair, self.options.buckets);
        self.claims.note(at, &self.seen);
        self.manifest.packets += 1;
        let each = usize::from(self.options.buckets);
        let Some(slot) = self.slots.get_mut(usize::from(at)) else { return Ok(()) };
        if slot.open.is_none() {
            self.parts += 1;
            if self.parts > MAX_PARTS {
                return Err(Error::TooManyParts(MAX_PARTS));
            }
        }
        if let Some(before) = slot.before.as_mut().filter(|_| self.seen.iter().any(|s| s.whole)) {
            before.content.note(&self.seen);
        }
        let open = slot.open.get_or_insert_with(|| Open::new(at, self.window.0, ENTRIES / each / 2));
        if open.add(frame, self.manifest.packets, &self.seen) >= (WAITING / each).min(1 << 20) {
            open.flush(&self.folder)?;
        }
        Ok(())
    }

    /// Begins another window if the time requires it: when the current one is over, or when time went back by more than a
    /// window. A few late packets stay in the current one.
    fn turn(&mut self, now: i64) -> Result<(), Error> {
        let Some(length) = self.options.window else { return Ok(()) };
        let start = now.div_euclid(length).saturating_mul(length);
        if self.window.1 == i64::MIN {
            self.window.1 = start;
        }
        if start <= self.window.1 && start >= self.window.1.saturating_sub(length) {
            return Ok(());
        }
        for at in 0..self.slots.len() {
            self.close(at)?;
        }
        self.window = (self.window.0.saturating_add(1), start);
        Ok(())
    }

    /// Closes a bucket's part, and finishes the previous one.
    fn close(&mut self, at: usize) -> Result<(), Error> {
        let Some(slot) = self.slots.get_mut(at) else { return Ok(()) };
        let Some(open) = slot.open.take() else { return Ok(()) };
        let whole = open.close(&self.folder)?;
        if let Some(before) = slot.before.replace(whole) {
            self.manifest.parts.push(before.finish(&self.folder)?);
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Manifest, Error> {
        for at in 0..self.slots.len() {
            self.close(at)?;
            if let Some(before) = self.slots.get_mut(at).and_then(|s| s.before.take()) {
                self.manifest.parts.push(before.finish(&self.folder)?);
            }
        }
        if self.manifest.packets == 0 {
            return Err(Error::Nothing);
        }
        self.manifest.parts.sort_by_key(|p| (p.bucket, p.window));
        self.manifest.together = self.claims.together();
        self.manifest.claims_refused = self.claims.refused;
        self.manifest.fragments_refused = self.refused;
        self.manifest.checksums_believed = self.manifest.packets >= JUDGED && self.wrong * RATIO > JUDGED;
        write_json(&self.folder.join(MANIFEST), &self.manifest)?;
        let synced = File::open(&self.folder).and_then(|f| f.sync_all());
        synced.map_err(Error::write(&self.folder))?;
        fs::rename(&self.folder, &self.options.into).map_err(Error::write(&self.options.into))?;
        Ok(self.manifest)
    }
}
