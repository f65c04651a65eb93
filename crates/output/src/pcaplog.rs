//! `pcap-log`: packets as capture files.
//!
//! A [`PcapLog`] is one ring of files: of the whole process in mode `normal`, of one worker in mode `multi`. Suricata 8
//! removed mode `sguil`. Only captured frames are written; they contain the packets that were decapsulated from tunnels
//! or reassembled from fragments.
//!
//! The first packet of a file creates it, and the file's name has that packet's time. Only the very first file has the
//! time of the first packet seen, whether or not that packet is written. A file ends before the packet that would exceed
//! `limit`. With `max-files`, the oldest file is then deleted. Files of earlier runs count toward the ring if their
//! names fit. All packets of a file have one link type; a packet with another one begins a new file.

mod held;
mod output;

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use lz4_flex::frame::{BlockMode, FrameEncoder, FrameInfo};
use margay_capture::{FILE_HEADER_LEN, FilterSet, PcapWriter, RECORD_HEADER_LEN, Resolution};
use margay_packet::{LinkType, Packet, PacketSource, Time};

use crate::log::{Level, log};
use crate::output::{PacketFate, PcapLogCounters};
use crate::sinks::identity;

use held::{Held, Record};

/// Smallest `limit`, in bytes.
pub const MIN_LIMIT: u64 = 1024 * 1024;
/// Largest packet that is written without truncation.
const SNAPLEN: u32 = 262_144;

/// `mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PcapMode {
    /// `normal`: one ring of files.
    #[default]
    Normal,
    /// `multi`: one ring for each worker; the names need `%n` or `%i`.
    Multi,
}

impl PcapMode {
    /// The mode with that name.
    ///
    /// # Errors
    /// A message for the user.
    pub fn from_name(name: &str) -> Result<PcapMode, String> {
        match name {
            "normal" => Ok(PcapMode::Normal),
            "multi" => Ok(PcapMode::Multi),
            "sguil" => Err("pcap-log: mode sguil was removed in Suricata 8; use normal or multi".into()),
            _ => Err(format!("pcap-log: mode {name} is none; there are normal and multi")),
        }
    }
}

/// `conditional`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Conditional {
    /// `all`: every packet.
    #[default]
    All,
    /// `alerts`: packets of flows that a rule alerted on, from the alert on, after the packets with the TCP data that
    /// led to it.
    Alerts,
    /// `tag`: packets that a `tag` keeps, after the packets with the TCP data that led to it.
    Tag,
}

/// `compression`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// `none`.
    #[default]
    None,
    /// `lz4`: LZ4 frames, in files named `.lz4`. There is one compression level.
    Lz4 {
        /// `lz4-checksum`: a checksum over the content.
        checksum: bool,
    },
}

/// Options of `pcap-log`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PcapLogSettings {
    /// Folder and file name. `%n` is the worker's number, counted from 1, `%i` the thread's identifier, `%t` the time.
    /// Without `%t`, the time is appended after a full stop.
    pub path: PathBuf,
    /// `mode`.
    pub mode: PcapMode,
    /// Several workers write to one file: mode `normal` with more than one of them.
    pub shared: bool,
    /// `limit`: size of a file in bytes before compression, at least [`MIN_LIMIT`]; 0 is no limit.
    pub limit: u64,
    /// `max-files`; 0 for no limit.
    pub max_files: usize,
    /// `ts-format: usec`: names include microseconds.
    pub usec: bool,
    /// `use-stream-depth`: leave out packets beyond the stream's inspection depth.
    pub use_stream_depth: bool,
    /// `honor-pass-rules`: leave out packets of flows that a `pass` rule matched.
    pub honor_pass_rules: bool,
    /// `conditional`.
    pub conditional: Conditional,
    /// `hold-memcap`: memory for packets that may still lead to an alert.
    pub hold_memcap: u64,
    /// `bpf-filter`.
    pub filter: Option<String>,
    /// `compression`.
    pub compression: Compression,
}

impl PcapLogSettings {
    /// Suricata's defaults.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        PcapLogSettings {
            path: path.into(),
            mode: PcapMode::Normal,
            shared: false,
            limit: 100 * 1024 * 1024,
            max_files: 0,
            usec: false,
            use_stream_depth: false,
            honor_pass_rules: false,
            conditional: Conditional::All,
            hold_memcap: 64 << 20,
            filter: None,
            compression: Compression::None,
        }
    }
}

/// The reason that a `pcap-log` cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PcapLogError {
    /// The limit is too small.
    #[error("pcap-log: limit of {0} bytes is less than the smallest one of {MIN_LIMIT} bytes")]
    Limit(u64),
    /// The name has an unknown option.
    #[error("pcap-log: filename {0}: %{1} is no option; there are %n, %i and %t")]
    Name(String, char),
    /// All workers would use the same name.
    #[error("pcap-log: filename {0} needs %n or %i with mode multi")]
    NeedsNumber(String),
    /// The filter does not compile.
    #[error("pcap-log: {0}")]
    Filter(#[from] margay_capture::FilterError),
    /// The folder cannot be used.
    #[error("pcap-log: folder {} cannot be used: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// One ring of capture files.
#[derive(Debug)]
pub struct PcapLog {
    settings: PcapLogSettings,
    name: Name,
    filter: Option<FilterSet>,
    /// Packets of flows without an alert; `None` if none are held.
    held: Option<Held>,
    open: Option<Open>,
    files: VecDeque<PathBuf>,
    /// Time of the first packet seen, written or not.
    first: Option<Time>,
    /// The time in the latest name, and how many earlier names had the same time.
    last_stamp: String,
    same: u32,
    counters: PcapLogCounters,
    failing: bool,
}

#[derive(Debug)]
struct Open {
    writer: PcapWriter<Writer>,
    link: LinkType,
    path: PathBuf,
    /// Device and inode of the file, because another file may have the name by now.
    identity: (u64, u64),
}

enum Writer {
    Plain(BufWriter<File>),
    Lz4(Box<FrameEncoder<BufWriter<File>>>),
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if matches!(self, Writer::Plain(_)) { "Plain" } else { "Lz4" })
    }
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Writer::Plain(w) => w.write(bytes),
            Writer::Lz4(w) => w.write(bytes),
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Writer::Plain(w) => w.flush(),
            // The frame keeps its buffer, because small blocks compress badly.
            Writer::Lz4(w) => w.get_mut().flush(),
        }
    }
}

impl Open {
    /// Finishes the file.
    fn close(self) -> io::Result<()> {
        match self.writer.into_inner() {
            Writer::Plain(mut w) => w.flush(),
            Writer::Lz4(w) => w.finish().map_err(io::Error::other)?.flush(),
        }
    }
}

/// A file name without the time: the parts before and after it.
#[derive(Debug, Clone)]
struct Name {
    before: String,
    after: String,
}

impl PcapLog {
    /// Creates a ring for worker `number`, whose thread has the identifier `thread`.
    ///
    /// # Errors
    /// [`PcapLogError`].
    pub fn new(settings: PcapLogSettings, number: usize, thread: u64) -> Result<PcapLog, PcapLogError> {
        if settings.limit != 0 && settings.limit < MIN_LIMIT {
            return Err(PcapLogError::Limit(settings.limit));
        }
        let mut name = Name::new(&settings, number, thread)?;
        if settings.compression != Compression::None {
            name.after += ".lz4";
        }
        let filter = settings.filter.as_deref().map(FilterSet::new);
        if let Some(mut set) = filter.clone() {
            // Compile the filter now, so that a wrong expression fails at the start. Most captures are Ethernet.
            set.get(LinkType::ETHERNET, false)?;
        }
        let folder = folder(&settings.path);
        std::fs::create_dir_all(folder).map_err(|source| PcapLogError::Folder { path: folder.to_owned(), source })?;
        let files = if settings.max_files > 0 { name.earlier(folder) } else { VecDeque::new() };
        let holds = settings.conditional != Conditional::All && settings.hold_memcap > 0;
        let held = holds.then(|| Held::new(settings.hold_memcap));
        Ok(PcapLog {
            settings,
            held,
            name,
            filter,
            open: None,
            files,
            first: None,
            last_stamp: String::new(),
            same: 0,
            counters: PcapLogCounters::default(),
            failing: false,
        })
    }

    /// The counters so far.
    pub fn counters(&self) -> PcapLogCounters {
        self.counters
    }

    /// Writes a packet, if the options select it.
    pub fn packet(&mut self, p: &Packet<'_>, fate: PacketFate) {
        if p.recursion != 0 || p.source != PacketSource::Wire {
            return;
        }
        self.first.get_or_insert(p.time);
        let s = &self.settings;
        if (s.use_stream_depth && fate.past_stream_depth) || (s.honor_pass_rules && fate.passed) {
            return;
        }
        let wanted = match s.conditional {
            Conditional::All => true,
            Conditional::Alerts => fate.alerted,
            Conditional::Tag => fate.tagged,
        };
        if let (Some(held), Some(flow)) = (&mut self.held, fate.flow) {
            if wanted {
                self.release(flow);
            } else if fate.has_data {
                self.counters.not_held += u64::from(!held.hold(flow, p));
            }
        }
        if wanted {
            self.record(Record::of(p));
        }
    }

    /// Writes the packets that were held for a flow.
    fn release(&mut self, flow: u64) {
        let packets = self.held.as_mut().map(|h| h.take(flow)).unwrap_or_default();
        packets.iter().for_each(|p| self.record(p.record()));
    }

    /// A flow is over: writes its packets if its last data raised an alert, or forgets them.
    pub fn flow_ended(&mut self, flow: u64, alerted: bool) {
        match &mut self.held {
            Some(_) if alerted && self.settings.conditional == Conditional::Alerts => self.release(flow),
            Some(held) => drop(held.take(flow)),
            None => {}
        }
    }

    /// Writes a packet that the filter accepts.
    fn record(&mut self, r: Record<'_>) {
        if let Some(filter) = &mut self.filter {
            // If the expression does not fit the link type, no packet matches.
            if !filter.get(r.link, false).is_ok_and(|f| f.matches(r.data, r.wire_len)) {
                self.counters.filtered_bpf += 1;
                return;
            }
        }
        match self.write(r) {
            Ok(()) => {
                self.counters.written += 1;
                self.failing = false;
            }
            Err(e) => {
                self.counters.lost += 1;
                // The file ends in a partial record, so a reader could not read anything after it.
                self.open = None;
                if !self.failing {
                    self.failing = true;
                    let path = self.settings.path.display();
                    log(Level::Error, "log-pcap", format_args!("{path}: {e}; packets are lost until this is over"));
                }
            }
        }
    }

    fn write(&mut self, p: Record<'_>) -> io::Result<()> {
        let record = RECORD_HEADER_LEN + p.data.len().min(SNAPLEN as usize) as u64;
        let limit = self.settings.limit;
        let full = |o: &Open| {
            o.link != p.link
                || (limit != 0 && o.writer.bytes() > FILE_HEADER_LEN && o.writer.bytes().saturating_add(record) > limit)
        };
        if self.open.as_ref().is_some_and(full)
            && let Some(old) = self.open.take()
        {
            old.close()?;
        }
        let open = match &mut self.open {
            Some(o) => o,
            None => {
                let open = self.next(p)?;
                self.open.insert(open)
            }
        };
        open.writer.write(p.time, p.data, p.wire_len)
    }

    fn next(&mut self, p: Record<'_>) -> io::Result<Open> {
        let time = if self.last_stamp.is_empty() { self.first.unwrap_or(p.time) } else { p.time };
        let stamp = if self.settings.usec {
            format!("{}.{:06}", time.secs(), time.subsec_micros())
        } else {
            time.secs().to_string()
        };
        // A number distinguishes files with the same time.
        self.same = if stamp == self.last_stamp { self.same + 1 } else { 0 };
        let path = self.name.path(&stamp, self.same);
        self.last_stamp = stamp;
        if self.settings.max_files > 0 {
            self.files.retain(|f| *f != path);
            while self.files.len() >= self.settings.max_files {
                let Some(oldest) = self.files.pop_front() else { break };
                if let Err(e) = std::fs::remove_file(&oldest)
                    && e.kind() != io::ErrorKind::NotFound
                {
                    let path = oldest.display();
                    log(Level::Warning, "log-pcap", format_args!("{path}: cannot be deleted: {e}"));
                }
            }
            self.files.push_back(path.clone());
        }
        let file = File::create(&path)?;
        let identity = identity(&file.metadata()?);
        let file = BufWriter::with_capacity(128 * 1024, file);
        let file = match self.settings.compression {
            Compression::None => Writer::Plain(file),
            Compression::Lz4 { checksum } => {
                let info = FrameInfo::new().block_mode(BlockMode::Linked).content_checksum(checksum);
                Writer::Lz4(Box::new(FrameEncoder::with_frame_info(info, file)))
            }
        };
        Ok(Open { writer: PcapWriter::new(file, p.link, SNAPLEN, Resolution::Micro)?, link: p.link, path, identity })
    }

    /// Hands buffered data to the operating system: periodically, and at the end.
    pub fn flush(&mut self) {
        if let Some(o) = &mut self.open
            && let Err(e) = o.writer.flush()
            && !self.failing
        {
            self.failing = true;
            log(Level::Error, "log-pcap", format_args!("{}: cannot be written: {e}", o.path.display()));
        }
    }
}

impl PcapLog {
    /// Closes the open file if it was moved away; the next packet begins a new one. A file that was not moved stays
    /// open, because its name has a time of its own.
    pub fn reopen(&mut self) {
        let moved = |o: &Open| std::fs::metadata(&o.path).map_or(true, |m| identity(&m) != o.identity);
        if self.open.as_ref().is_some_and(moved) {
            self.finish();
        }
    }

    /// Closes the open file at the end of the run.
    pub fn finish(&mut self) {
        if let Some(o) = self.open.take() {
            let path = o.path.clone();
            if let Err(e) = o.close() {
                log(Level::Error, "log-pcap", format_args!("{}: cannot be written: {e}", path.display()));
            }
        }
    }
}

impl Drop for PcapLog {
    fn drop(&mut self) {
        self.finish();
    }
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    }
}

impl Name {
    fn new(settings: &PcapLogSettings, number: usize, thread: u64) -> Result<Name, PcapLogError> {
        let text = settings.path.to_string_lossy();
        let (mut before, mut after) = (String::new(), None::<String>);
        let mut numbered = false;
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            let part = after.as_mut().unwrap_or(&mut before);
            if c != '%' {
                part.push(c);
                continue;
            }
            match chars.next() {
                Some('n') => {
                    numbered = true;
                    *part += &number.to_string();
                }
                Some('i') => {
                    numbered = true;
                    *part += &thread.to_string();
                }
                Some('t') if after.is_none() => after = Some(String::new()),
                other => return Err(PcapLogError::Name(text.clone().into_owned(), other.unwrap_or('%'))),
            }
        }
        if settings.mode == PcapMode::Multi && !numbered {
            return Err(PcapLogError::NeedsNumber(text.into_owned()));
        }
        let after = after.unwrap_or_else(|| {
            before.push('.');
            String::new()
        });
        Ok(Name { before, after })
    }

    fn path(&self, stamp: &str, same: u32) -> PathBuf {
        let (before, after) = (&self.before, &self.after);
        PathBuf::from(match same {
            0 => format!("{before}{stamp}{after}"),
            n => format!("{before}{stamp}-{n}{after}"),
        })
    }

    /// Files of earlier runs, oldest first.
    fn earlier(&self, folder: &Path) -> VecDeque<PathBuf> {
        let Ok(entries) = std::fs::read_dir(folder) else { return VecDeque::new() };
        let mut found: Vec<((u64, u64, u64), PathBuf)> = Vec::new();
        let start = Path::new(&self.before);
        let Some(prefix) = start.file_name().and_then(|n| n.to_str()).filter(|_| !self.before.ends_with('/')) else {
            return VecDeque::new();
        };
        for entry in entries.flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            let stamp = name.strip_prefix(prefix).and_then(|n| n.strip_suffix(self.after.as_str()));
            if let Some(key) = stamp.and_then(stamp_key) {
                found.push((key, folder_join(&self.before, &name)));
            }
        }
        found.sort();
        found.into_iter().map(|f| f.1).collect()
    }
}

/// Joins the folder and a file name, with the result spelt as by [`Name::path`].
fn folder_join(before: &str, name: &str) -> PathBuf {
    match before.rfind('/') {
        Some(at) => PathBuf::from(format!("{}{name}", before.get(..=at).unwrap_or_default())),
        None => PathBuf::from(name),
    }
}

/// `secs`, `secs.usecs`, either with `-n`.
fn stamp_key(stamp: &str) -> Option<(u64, u64, u64)> {
    let (time, n) = stamp.split_once('-').unwrap_or((stamp, "0"));
    let (secs, usecs) = time.split_once('.').unwrap_or((time, "0"));
    Some((secs.parse().ok()?, usecs.parse().ok()?, n.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::{Opening, OutputSettings as _};
    use margay_packet::Frame;

    fn frame(data: &[u8], secs: i64) -> Packet<'_> {
        Packet::new(&Frame {
            data,
            wire_len: data.len() as u32,
            time: Time::new(secs, 7),
            link: LinkType::ETHERNET,
            number: 1,
        })
    }

    fn listing(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_ring_of_files() {
        let dir = tempfile::tempdir().unwrap();
        let settings =
            PcapLogSettings { limit: 4 << 20, max_files: 3, ..PcapLogSettings::new(dir.path().join("log.pcap")) };
        std::fs::write(dir.path().join("log.pcap.5"), "of an earlier run").unwrap();
        std::fs::write(dir.path().join("log.pcap.other"), "not ours").unwrap();
        let mut log = PcapLog::new(settings, 0, 1).unwrap();
        let data = vec![0u8; 1442];
        for i in 0..20_000 {
            log.packet(&frame(&data, 1000 + i / 1000), PacketFate::default());
        }
        log.flush();
        // Sizes and names of Suricata's files for these packets.
        assert_eq!(listing(dir.path()), ["log.pcap.1011", "log.pcap.1014", "log.pcap.1017", "log.pcap.other"]);
        let size = |n: &str| std::fs::metadata(dir.path().join(n)).unwrap().len();
        assert_eq!(
            [size("log.pcap.1011"), size("log.pcap.1014"), size("log.pcap.1017")],
            [4_193_232, 4_193_232, 4_000_776]
        );
        assert_eq!(log.counters().written, 20_000);
    }

    #[test]
    fn a_file_that_was_moved_away_is_not_written_on() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = PcapLog::new(PcapLogSettings::new(dir.path().join("log.pcap")), 0, 1).unwrap();
        let packet = |log: &mut PcapLog, secs| log.packet(&frame(&[0; 60], secs), PacketFate::default());
        packet(&mut log, 1000);
        log.reopen();
        packet(&mut log, 1001);
        assert_eq!(listing(dir.path()), ["log.pcap.1000"], "it is still there");
        std::fs::rename(dir.path().join("log.pcap.1000"), dir.path().join("away")).unwrap();
        log.reopen();
        packet(&mut log, 1002);
        log.finish();
        assert_eq!(listing(dir.path()), ["away", "log.pcap.1002"]);
        let size = |n: &str| std::fs::metadata(dir.path().join(n)).unwrap().len();
        assert_eq!((size("away"), size("log.pcap.1002")), (24 + 2 * 76, 24 + 76));
    }

    #[test]
    fn two_files_in_one_second_have_two_names() {
        let dir = tempfile::tempdir().unwrap();
        let settings = PcapLogSettings { limit: 4 << 20, ..PcapLogSettings::new(dir.path().join("%n-%i-%t.pcap")) };
        let mut log = PcapLog::new(settings, 3, 77).unwrap();
        let data = vec![0u8; 200_000];
        for _ in 0..50 {
            log.packet(&frame(&data, 1000), PacketFate::default());
        }
        let want = ["3-77-1000-1.pcap", "3-77-1000-2.pcap", "3-77-1000.pcap"];
        assert_eq!(listing(dir.path()), want);
    }

    #[test]
    fn only_what_is_wanted() {
        let dir = tempfile::tempdir().unwrap();
        let with = |name: &str, f: &dyn Fn(&mut PcapLogSettings), fate: PacketFate| {
            let mut s = PcapLogSettings::new(dir.path().join(name));
            f(&mut s);
            let mut log = PcapLog::new(s, 0, 0).unwrap();
            log.packet(&frame(&[0; 60], 1), fate);
            let mut inner = frame(&[0; 60], 1);
            inner.recursion = 1;
            log.packet(&inner, fate);
            log.counters()
        };
        let no = PacketFate::default();
        let yes = PacketFate { past_stream_depth: true, passed: true, alerted: true, tagged: true, ..no };
        assert_eq!(with("a", &|_| (), yes).written, 1);
        assert_eq!(with("b", &|s| s.use_stream_depth = true, yes).written, 0);
        assert_eq!(with("c", &|s| s.honor_pass_rules = true, yes).written, 0);
        assert_eq!(with("d", &|s| s.conditional = Conditional::Alerts, no).written, 0);
        assert_eq!(with("e", &|s| s.conditional = Conditional::Alerts, yes).written, 1);
        assert_eq!(with("f", &|s| s.conditional = Conditional::Tag, no).written, 0);
        let filtered = with("g", &|s| s.filter = Some("udp port 53".into()), no);
        assert_eq!((filtered.written, filtered.filtered_bpf), (0, 1));
        assert_eq!(listing(dir.path()), ["a.1", "e.1"]);
    }

    #[test]
    fn several_workers_share_the_file_of_mode_normal() {
        let dir = tempfile::tempdir().unwrap();
        let mut s = PcapLogSettings::new(dir.path().join("a"));
        assert!(s.for_workers(1).is_none() && s.for_workers(2).is_some());
        let at = Opening { now: Time(0), thread: 1, worker: 1, before: 0, writer: None };
        let mut first = s.open(&at).unwrap();
        let mut second = first.share(&Opening { worker: 2, ..at }).unwrap().unwrap();
        for sink in [&mut first, &mut second] {
            sink.packet(&frame(&[0; 60], 5), PacketFate::default());
            sink.finish();
        }
        assert_eq!(second.capture_file(), dir.path().join("a.5").to_str().map(str::to_owned));
        assert_eq!((first.packet_counters().unwrap().written, second.packet_counters()), (2, None));
        assert_eq!(listing(dir.path()), ["a.5"]);
    }

    #[test]
    fn compressed_files_are_the_same_inside() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, compression| {
            let settings = PcapLogSettings { compression, ..PcapLogSettings::new(dir.path().join(name)) };
            let mut log = PcapLog::new(settings, 1, 1).unwrap();
            for i in 0..2000 {
                log.packet(&frame(&[i as u8; 200], 5), PacketFate::default());
                if i % 100 == 0 {
                    log.flush();
                }
            }
            log.finish();
        };
        write("a", Compression::None);
        write("b", Compression::Lz4 { checksum: true });
        let plain = std::fs::read(dir.path().join("a.5")).unwrap();
        let packed = std::fs::read(dir.path().join("b.5.lz4")).unwrap();
        assert_eq!(plain.len(), 24 + 2000 * 216);
        assert!(packed.len() < plain.len() / 4);
        let mut unpacked = Vec::new();
        std::io::Read::read_to_end(&mut lz4_flex::frame::FrameDecoder::new(&packed[..]), &mut unpacked).unwrap();
        assert!(unpacked == plain);
    }

    #[test]
    fn options_that_cannot_be() {
        let error = |f: &dyn Fn(&mut PcapLogSettings)| {
            let mut s = PcapLogSettings::new("log.pcap");
            f(&mut s);
            PcapLog::new(s, 0, 0).unwrap_err().to_string()
        };
        assert!(error(&|s| s.limit = 1024).contains(&MIN_LIMIT.to_string()));
        assert!(error(&|s| s.path = "a%y".into()).contains("%y"));
        assert!(error(&|s| s.mode = PcapMode::Multi).contains("%n"));
        assert!(error(&|s| s.filter = Some("udp and and".into())).contains("syntax error"));
    }

    #[test]
    fn a_full_disk_is_survived() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("gone");
        let mut log = PcapLog::new(PcapLogSettings::new(folder.join("x")), 0, 0).unwrap();
        std::fs::remove_dir(&folder).unwrap();
        for _ in 0..3 {
            log.packet(&frame(&[0; 60], 1), PacketFate::default());
        }
        assert_eq!((log.counters().written, log.counters().lost), (0, 3));
    }
}
