//! The argument of `-r`: a file, standard input, or a folder of captures, as one stream of events.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use margay_packet::LinkType;

use crate::batch::{Batch, Counters};
use crate::error::Error;
use crate::filter::FilterSet;
use crate::progress::Progress;
use crate::reader::{FileFormat, Memory, Opening, Reader};
use crate::sys::{self, Polled};

/// Deepest level of sub folders that is read.
const MAX_DEPTH: usize = 255;
/// Most files of one listing.
const MAX_FILES: usize = 1_000_000;

/// How a folder is read. A single file or standard input ignores these options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirOptions {
    /// Reads sub folders, too, down to 255 levels (`--pcap-file-recursive`). Not together with `continuous`.
    pub recursive: bool,
    /// Does not end when all files are read, but looks for new ones (`--pcap-file-continuous`).
    pub continuous: bool,
    /// With `continuous`: a file is read only after it was not written to for this long (`pcap-file.delay`); 30 s.
    pub delay: Duration,
    /// With `continuous`: the time between two listings (`pcap-file.poll-interval`); 5 s.
    pub poll_interval: Duration,
}

impl Default for DirOptions {
    fn default() -> Self {
        DirOptions {
            recursive: false,
            continuous: false,
            delay: Duration::from_secs(30),
            poll_interval: Duration::from_secs(5),
        }
    }
}

/// Which files the caller deletes once they are read (`--pcap-file-delete`, `pcap-file.delete-when-done`). The source
/// never deletes by itself: see [`delete`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeletePolicy {
    /// Deletes no file.
    #[default]
    Never,
    /// Deletes every file.
    Always,
    /// Deletes files without an alert.
    NonAlerts,
}

impl DeletePolicy {
    /// The policy for a value in the configuration: `false`, `true`/`always`, `non-alerts`.
    pub fn from_name(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "false" | "no" | "off" | "0" => Some(DeletePolicy::Never),
            "true" | "yes" | "on" | "1" | "always" => Some(DeletePolicy::Always),
            "non-alerts" => Some(DeletePolicy::NonAlerts),
            _ => None,
        }
    }

    /// Whether to delete a file that caused `alerts` alerts.
    pub fn applies(self, alerts: u64) -> bool {
        match self {
            DeletePolicy::Never => false,
            DeletePolicy::Always => true,
            DeletePolicy::NonAlerts => alerts == 0,
        }
    }
}

/// Deletes a capture that was read.
///
/// # Errors
/// [`Error::Delete`].
pub fn delete(file: &Path) -> Result<(), Error> {
    fs::remove_file(file).map_err(|source| Error::Delete { file: file.to_owned(), source })
}

/// Files with this many bytes or more are read ahead, if there is a second processor.
const AHEAD_FROM: u64 = 16 << 20;

/// Longest wait for data of a pipe. The caller can react to signals and commands between two waits.
const WAIT: Duration = Duration::from_millis(100);

/// An open file, pipe, or standard input.
#[derive(Debug)]
struct Input {
    file: File,
    /// It is not a regular file, so that reading it may wait for its writer.
    waits: bool,
    /// It had no data the last time.
    silent: bool,
}

impl Input {
    fn open(path: &Path) -> io::Result<Input> {
        let mut options = File::options();
        // Without the flag, opening a pipe waits until it has a writer.
        if fs::metadata(path).is_ok_and(|m| !m.is_file()) {
            options.custom_flags(libc::O_NONBLOCK);
        }
        options.read(true).open(path).and_then(Input::of)
    }

    /// Not [`io::Stdin`], because its buffer may have data when its descriptor has none.
    fn stdin() -> io::Result<Input> {
        io::stdin().as_fd().try_clone_to_owned().map(File::from).and_then(Input::of)
    }

    fn of(file: File) -> io::Result<Input> {
        let waits = !file.metadata()?.is_file();
        Ok(Input { file, waits, silent: false })
    }
}

impl Read for Input {
    /// [`io::ErrorKind::WouldBlock`] if a pipe has no data. The first time it does not wait, so that the caller can first handle
    /// what it has; then it waits up to [`WAIT`].
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.waits {
            let time = if self.silent { WAIT } else { Duration::ZERO };
            let waited = sys::wait(&mut [sys::polled(self.file.as_raw_fd())], time);
            self.silent = matches!(waited, Err(Polled::Timeout | Polled::Signal));
            if self.silent {
                return Err(io::ErrorKind::WouldBlock.into());
            }
        }
        self.file.read(buf)
    }
}

/// The start of a file.
#[derive(Debug, Clone)]
pub struct FileStart {
    /// The path as the user gave it, or the folder and the name; `-` for standard input (`pcap_filename` in events).
    pub file: PathBuf,
    /// Its format.
    pub format: FileFormat,
    /// Its link type, if the file header has it (pcap); pcapng has one for each interface.
    pub link: Option<LinkType>,
    /// Size in bytes, if it is a regular file.
    pub size: Option<u64>,
}

/// The end of a file, with or without an error.
#[derive(Debug)]
pub struct FileEnd {
    /// As in [`FileStart`].
    pub file: PathBuf,
    /// Its counters.
    pub counters: Counters,
    /// Why reading stopped before the end of the file. All whole packets before that were returned.
    pub error: Option<Error>,
}

/// The next event.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A file begins; its batches follow, then [`Event::FileEnd`].
    FileStart(FileStart),
    /// Frames, valid until the next call. Empty if the filter rejected all of them.
    Batch(Batch<'a>),
    /// The file has ended.
    FileEnd(FileEnd),
    /// A file or sub folder could not be opened, or is not a capture. It has no `FileStart` and `FileEnd`, and the other files
    /// follow.
    Failed {
        /// Which.
        file: PathBuf,
        /// Why.
        error: Error,
    },
    /// An entry of the folder that is not read.
    Skipped {
        /// Which.
        file: PathBuf,
        /// Why.
        reason: SkipReason,
    },
    /// Nothing to do now; call again after this time, or not at all to stop. With [`DirOptions::continuous`] the time until the
    /// next listing; zero if a pipe or standard input has no data, because the next call waits for it, for up to 100 ms.
    Wait(Duration),
    /// Everything is read.
    Done,
}

/// Why an entry of a folder is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SkipReason {
    /// A symbolic link, pipe, socket or device.
    NotAFile,
    /// More than 255 folders below the one given.
    TooDeep,
}

impl std::fmt::Display for SkipReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            SkipReason::NotAFile => "is not a regular file",
            SkipReason::TooDeep => "is more than 255 folders deep",
        })
    }
}

#[derive(Debug)]
struct Candidate {
    modified: SystemTime,
    file: PathBuf,
    size: u64,
}

#[derive(Debug)]
enum Origin {
    Stdin,
    File(PathBuf),
    Folder(PathBuf),
}

/// A file, standard input or a folder being read. Call [`CaptureSource::next_event`] until [`Event::Done`].
///
/// A folder's files are read one after the other, by modification time (oldest first) and then by name. Frame numbers continue
/// from file to file, and so do flows, if a capture was split. With [`DirOptions::continuous`], a file counts as new if its
/// modification time is not earlier than that of the last one read.
#[derive(Debug)]
pub struct CaptureSource {
    origin: Origin,
    options: DirOptions,
    filter: Option<FilterSet>,
    memory: Memory,
    /// A file whose header was not read yet, and its size.
    opening: Option<(Opening<Input>, Option<u64>)>,
    current: Option<Reader<Input>>,
    current_size: u64,
    /// Files still to be read, the next one last.
    queue: Vec<Candidate>,
    /// Pending reports, the next one last.
    reports: Vec<Report>,
    scanned: bool,
    /// Modification time of the file that was read last.
    newest: Option<SystemTime>,
    /// Files read that have exactly the modification time `newest`.
    at_newest: HashSet<PathBuf>,
    /// Entries that were reported as skipped or failed, as long as they stay in the folder.
    reported: HashSet<PathBuf>,
    next_number: u64,
    counters: Counters,
    bytes_read: u64,
    total: Option<u64>,
    files: u64,
    preload: bool,
    /// No thread reads ahead; reading happens in the caller's thread.
    direct: bool,
}

#[derive(Debug)]
enum Report {
    Skipped(PathBuf, SkipReason),
    Failed(PathBuf, Error),
}

impl CaptureSource {
    /// Prepares to read `path`: `-` means standard input, a folder means all its files, anything else is one file. The first event
    /// opens the file itself.
    ///
    /// # Errors
    /// [`Error::Open`] if there is no such file or folder, [`Error::Options`] if options exclude each other.
    pub fn open(path: &Path, options: DirOptions, filter: Option<FilterSet>) -> Result<Self, Error> {
        let mut total = None;
        let origin = if path == Path::new("-") {
            Origin::Stdin
        } else {
            let data = fs::metadata(path).map_err(|source| Error::Open { file: path.to_owned(), source })?;
            if data.is_dir() {
                if options.recursive && options.continuous {
                    return Err(Error::Options(
                        "--pcap-file-continuous and --pcap-file-recursive cannot be used together",
                    ));
                }
                Origin::Folder(path.to_owned())
            } else {
                total = data.is_file().then_some(data.len());
                Origin::File(path.to_owned())
            }
        };
        Ok(CaptureSource {
            origin,
            options,
            filter,
            memory: Memory::default(),
            opening: None,
            current: None,
            current_size: 0,
            queue: Vec::new(),
            reports: Vec::new(),
            scanned: false,
            newest: None,
            at_newest: HashSet::new(),
            reported: HashSet::new(),
            next_number: 1,
            counters: Counters::default(),
            bytes_read: 0,
            total,
            files: 0,
            preload: false,
            direct: false,
        })
    }

    /// Whether it is a folder, where a broken file does not prevent reading the others.
    pub fn is_folder(&self) -> bool {
        matches!(self.origin, Origin::Folder(_))
    }

    /// Reads each file into memory as a whole before returning its first packet (`--pcap-preload`), so that inspection never waits
    /// for a disk.
    #[must_use]
    pub fn preloading(self, preload: bool) -> Self {
        CaptureSource { preload, ..self }
    }

    /// For callers that keep buffers ([`Batch::buffer`]): files are read only when events are requested, in the caller's thread.
    #[must_use]
    pub fn direct(self) -> Self {
        CaptureSource { direct: true, ..self }
    }

    /// Whether the next event needs at most `most` lent buffers. If not, requesting it takes one more.
    pub fn has_spare(&self, most: usize) -> bool {
        self.current.as_ref().is_none_or(|r| r.has_spare(most))
    }

    /// The next event, with batches of up to `max` frames. `now` is called only to list a folder with
    /// [`DirOptions::continuous`].
    pub fn next_event(&mut self, max: usize, now: impl FnOnce() -> SystemTime) -> Event<'_> {
        let Some(reader) = self.current.as_mut() else { return self.between(now) };
        match reader.step(max) {
            Ok(Some(ready)) if ready.is_silent() => Event::Wait(Duration::ZERO),
            Ok(Some(ready)) => match &self.current {
                Some(reader) => Event::Batch(reader.batch(ready)),
                None => Event::Done,
            },
            Ok(None) => self.end(None),
            Err(error) => self.end(Some(error)),
        }
    }

    /// Counters of all files so far.
    pub fn counters(&self) -> Counters {
        let mut sum = self.counters;
        if let Some(reader) = &self.current {
            sum.add(&reader.counters());
        }
        sum
    }

    /// Number of files that were read to their end.
    pub fn files(&self) -> u64 {
        self.files
    }

    /// The progress of reading.
    pub fn progress(&self) -> Progress {
        let (bytes, counters) = match &self.current {
            Some(reader) => (reader.bytes_read(), self.counters()),
            None => (0, self.counters),
        };
        Progress {
            bytes_read: self.bytes_read + bytes,
            total: self.total,
            packets: counters.frames + counters.filtered,
            packet_bytes: counters.bytes + counters.filtered_bytes,
        }
    }

    /// No file is open: returns pending reports, opens the next file or looks for more.
    fn between(&mut self, now: impl FnOnce() -> SystemTime) -> Event<'static> {
        if let Some((opening, size)) = self.opening.take() {
            return self.begin(opening, size);
        }
        let mut now = Some(now);
        loop {
            match self.reports.pop() {
                Some(Report::Skipped(file, reason)) => return Event::Skipped { file, reason },
                Some(Report::Failed(file, error)) => return Event::Failed { file, error },
                None => {}
            }
            if let Some(next) = self.queue.pop() {
                self.remember(next.modified, &next.file);
                return self.start(next.file, Some(next.size));
            }
            match (&self.origin, self.scanned) {
                (Origin::Folder(_), true) if self.options.continuous => match now.take() {
                    // This call has already listed the folder, and found nothing.
                    None => return Event::Wait(self.options.poll_interval),
                    Some(now) => self.scan(Some(now())),
                },
                (_, true) => return Event::Done,
                (Origin::Folder(_), false) if self.options.continuous => self.scan(now.take().map(|now| now())),
                (Origin::Folder(_), false) => self.scan(None),
                (Origin::Stdin, false) => {
                    self.scanned = true;
                    return self.start(PathBuf::from("-"), None);
                }
                (Origin::File(file), false) => {
                    self.scanned = true;
                    let (file, size) = (file.clone(), self.total);
                    return self.start(file, size);
                }
            }
        }
    }

    fn start(&mut self, file: PathBuf, size: Option<u64>) -> Event<'static> {
        let stdin = file == Path::new("-") && matches!(self.origin, Origin::Stdin);
        match if stdin { Input::stdin() } else { Input::open(&file) } {
            Ok(input) => {
                let opening = Opening::new(input, &file, self.preload, &mut self.memory);
                self.begin(opening, size)
            }
            Err(source) => self.refuse(file.clone(), size, Error::Open { file, source }),
        }
    }

    /// Reads the header of a file.
    fn begin(&mut self, mut opening: Opening<Input>, size: Option<u64>) -> Event<'static> {
        match opening.read(&mut self.memory) {
            Ok(Some(format)) => {
                let file = opening.name().to_owned();
                let mut reader = opening.done(format, &mut self.memory);
                let several = || std::thread::available_parallelism().is_ok_and(|n| n.get() > 1);
                if size.is_some_and(|n| n >= AHEAD_FROM) && !self.preload && !self.direct && several() {
                    reader = reader.ahead();
                }
                let start = FileStart { format: reader.format(), link: reader.link_type(), size, file };
                self.current_size = size.unwrap_or_default();
                self.current = Some(reader.with_filter(self.filter.take()).with_first_number(self.next_number));
                Event::FileStart(start)
            }
            Ok(None) => {
                self.opening = Some((opening, size));
                Event::Wait(Duration::ZERO)
            }
            Err(error) => self.refuse(opening.name().to_owned(), size, error),
        }
    }

    fn refuse(&mut self, file: PathBuf, size: Option<u64>, error: Error) -> Event<'static> {
        self.total = self.total.map(|t| t.saturating_sub(size.unwrap_or_default()));
        Event::Failed { file, error }
    }

    fn end(&mut self, error: Option<Error>) -> Event<'static> {
        let Some(reader) = self.current.take() else { return Event::Done };
        let end = FileEnd { file: reader.name().to_owned(), counters: reader.counters(), error };
        self.counters.add(&end.counters);
        self.next_number = reader.next_number();
        self.files += u64::from(end.error.is_none());
        let read = reader.bytes_read();
        self.bytes_read += read;
        // A broken file's rest is never read, and a file may have grown meanwhile.
        self.total = self.total.map(|t| t.saturating_sub(self.current_size).saturating_add(read));
        (self.memory, self.filter) = reader.into_parts();
        Event::FileEnd(end)
    }

    fn remember(&mut self, modified: SystemTime, file: &Path) {
        if !self.options.continuous {
            return;
        }
        if self.newest != Some(modified) {
            self.at_newest.clear();
            self.newest = Some(modified);
        }
        self.at_newest.insert(file.to_owned());
    }

    /// Lists the folder into `queue`. With a time, takes only files that were not read yet and were not written to for the delay.
    fn scan(&mut self, now: Option<SystemTime>) {
        self.scanned = true;
        let Origin::Folder(top) = &self.origin else { return };
        let top = top.clone();
        let rested = now.map(|now| now.checked_sub(self.options.delay).unwrap_or(SystemTime::UNIX_EPOCH));
        let mut seen = HashSet::new();
        let mut folders = vec![(top.clone(), 0usize)];
        let mut full = false;
        while let Some((folder, depth)) = folders.pop() {
            let entries = match fs::read_dir(&folder) {
                Ok(entries) => entries,
                Err(source) => {
                    self.report(&mut seen, Report::Failed(folder.clone(), Error::Open { file: folder, source }));
                    continue;
                }
            };
            for entry in entries.flatten() {
                let file = entry.path();
                // The entry was removed after the listing, which needs no report.
                let Ok(kind) = entry.file_type() else { continue };
                if kind.is_dir() {
                    if self.options.recursive && depth >= MAX_DEPTH {
                        self.report(&mut seen, Report::Skipped(file, SkipReason::TooDeep));
                    } else if self.options.recursive {
                        folders.push((file, depth + 1));
                    }
                    continue;
                }
                if !kind.is_file() {
                    self.report(&mut seen, Report::Skipped(file, SkipReason::NotAFile));
                    continue;
                }
                let Ok(data) = entry.metadata() else { continue };
                let modified = data.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                let read = match self.newest {
                    Some(newest) => modified < newest || (modified == newest && self.at_newest.contains(&file)),
                    None => false,
                };
                if read || rested.is_some_and(|rested| modified > rested) {
                    continue;
                }
                if self.queue.len() >= MAX_FILES {
                    full = true;
                    continue;
                }
                self.queue.push(Candidate { modified, file, size: data.len() });
            }
        }
        if full {
            let error = Error::TooManyFiles { folder: top.clone(), limit: MAX_FILES };
            self.report(&mut seen, Report::Failed(top, error));
        }
        self.reported = seen;
        self.reports.reverse();
        self.queue.sort_unstable_by(|a, b| (b.modified, &b.file).cmp(&(a.modified, &a.file)));
        let waiting: u64 = self.queue.iter().map(|c| c.size).sum();
        self.total = Some(self.bytes_read.saturating_add(waiting));
    }

    /// Queues a report, unless it was already made for the previous listing.
    fn report(&mut self, seen: &mut HashSet<PathBuf>, report: Report) {
        let (Report::Skipped(file, _) | Report::Failed(file, _)) = &report;
        let new = !self.reported.contains(file);
        if seen.len() < MAX_FILES && seen.insert(file.clone()) && new {
            self.reports.push(report);
        }
    }
}
