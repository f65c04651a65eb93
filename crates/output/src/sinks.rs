//! Where lines go: files, sockets, syslog, the console.
//!
//! A [`Sink`] is one worker's end of an output. It collects whole lines and hands them over at the end of a batch of
//! packets ([`Sink::end_batch`]), under a lock that is taken for nothing else; what is behind the lock
//! (`Shared`) writes them, or keeps them up to `buffer-size`. With `Sink::write_aside` a thread does that, and lines are
//! collected until they are worth its while; what is more than writing (flushing, opening anew) waits for it.
//!
//! # When writing fails
//!
//! A line is there as a whole or not at all. If a regular file takes only a part (disk full), the file is cut back to
//! its last whole line; where it cannot be cut, a line feed is written before the next line, and so it is after half a line that
//! was there at the start: of a process that was killed. What does not fit into a
//! stream socket now is kept, no more than one hand-over, and sent before anything else. Lines that could not be
//! written are counted ([`Sink::lost`]) and said once, with the reason, and once more when writing works again; the
//! process goes on. Suricata 7 loses such lines without a word where the disk is full, and tells the number at its
//! end where a socket is missing.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use margay_packet::Time;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::json::Json;
use crate::log::{Level, log};
use crate::settings::{SinkKind, SinkSettings};
use crate::time::{Clock, expand};
use crate::writer::{self, Writer};

/// How much a worker collects before it hands over in the middle of a batch.
const LOCAL_LIMIT: usize = 128 * 1024;
/// Where syslog listens.
const SYSLOG_SOCKET: &str = "/dev/log";
/// How long the end of the process waits for a slow socket.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// Why an output cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("{}: cannot be opened for writing: {source}{}", path.display(), whose(path, source))]
pub struct OpenError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

/// Whose a file is that may not be opened, or else its folder; in brackets, for messages.
fn whose(path: &Path, error: &io::Error) -> String {
    use std::os::unix::fs::MetadataExt;
    if error.kind() != io::ErrorKind::PermissionDenied {
        return String::new();
    }
    let there = [Some(path), path.parent()].into_iter().flatten();
    let Some((at, m)) = there.filter_map(|p| Some((p, std::fs::metadata(p).ok()?))).next() else {
        return String::new();
    };
    let (at, uid) = (at.display(), rustix::process::geteuid().as_raw());
    format!(" ({at} belongs to uid {}, mode {:04o}; this runs as uid {uid})", m.uid(), m.mode() & 0o7777)
}

/// One worker's end of an output.
#[derive(Debug)]
pub struct Sink {
    local: Json,
    shared: Arc<Behind>,
    writer: Option<Arc<Writer>>,
    /// How much is worth handing over at the end of a batch.
    worth: usize,
}

/// What all workers share.
#[derive(Debug)]
struct Behind(Mutex<Shared>);

impl Behind {
    /// A worker that panicked while it wrote leaves whole lines: its lock is as good as any.
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl writer::Target for Behind {
    fn write(&self, lines: &[u8]) {
        self.lock().write(lines);
    }

    fn tick(&self, now: Time) {
        self.lock().tick(now);
    }
}

impl Sink {
    /// Opens what `settings` name. A socket that nobody listens on is no error: it is tried again later.
    ///
    /// # Errors
    /// [`OpenError`] for files.
    pub fn open(settings: SinkSettings, now: Time) -> Result<Sink, OpenError> {
        let shared = Shared::open(settings, now)?;
        Ok(Sink { local: Json::default(), shared: Arc::new(Behind(Mutex::new(shared))), writer: None, worth: 0 })
    }

    /// From here on `writer` writes what is handed over, and the end of a batch does that only with so many bytes.
    pub(crate) fn write_aside(&mut self, writer: &Arc<Writer>, worth: usize) {
        self.hand_over();
        self.worth = worth;
        self.writer = Some(Arc::clone(writer));
    }

    pub(crate) fn worth(&self) -> usize {
        self.worth
    }

    /// Another worker's end of the same output.
    #[must_use]
    pub fn share(&self) -> Sink {
        Sink {
            local: Json::default(),
            shared: Arc::clone(&self.shared),
            writer: self.writer.clone(),
            worth: self.worth,
        }
    }

    /// Adds a line, which ends in a line feed.
    pub fn line(&mut self, line: &[u8]) {
        self.line_with(|json| json.raw(line));
    }

    /// Adds a line that `write` appends, which ends in a line feed.
    #[inline]
    pub fn line_with(&mut self, write: impl FnOnce(&mut Json)) {
        write(&mut self.local);
        if self.local.len() >= LOCAL_LIMIT {
            self.hand_over();
        }
    }

    /// At the end of a batch: hands over what was collected, if it is worth it.
    pub fn end_batch(&mut self) {
        if self.local.len() >= self.worth {
            self.hand_over();
        }
    }

    /// Hands over what was collected.
    pub fn hand_over(&mut self) {
        if self.local.is_empty() {
            return;
        }
        if !self.put_aside(None) {
            self.shared.lock().write(self.local.as_bytes());
            self.local.clear();
        }
    }

    /// Hands over what was collected to the thread that writes, and where there is a time that as well; whether there is
    /// a thread.
    fn put_aside(&mut self, tick: Option<Time>) -> bool {
        let Some(writer) = &self.writer else { return false };
        let target: Arc<dyn writer::Target> = Arc::clone(&self.shared) as _;
        let lines = self.local.replace(Vec::new());
        self.local.replace(writer.put(&target, lines, tick));
        true
    }

    /// What all workers share, when everything that was handed over is written.
    fn settled(&mut self) -> MutexGuard<'_, Shared> {
        self.hand_over();
        if let Some(writer) = &self.writer {
            writer.drain();
        }
        self.shared.lock()
    }

    /// Writes what is buffered, as far as that goes without waiting.
    pub fn flush(&mut self) {
        self.settled().flush();
    }

    /// As [`Sink::flush`], waiting for a slow socket a little: at the end.
    pub fn finish(&mut self) {
        self.settled().finish();
    }

    /// Opens the file anew, after it was moved away.
    pub fn reopen(&mut self, now: Time) {
        self.settled().reopen(now);
    }

    /// For the clock's sake, about once a second: flushes, rotates when `rotate-interval` is over, connects anew.
    pub fn tick(&mut self, now: Time) {
        if !self.put_aside(Some(now)) {
            self.settled().tick(now);
        }
    }

    /// Lines that could not be written so far.
    pub fn lost(&self) -> u64 {
        self.shared.lock().lost
    }
}

#[derive(Debug)]
enum Target {
    File(File),
    Stream(UnixStream),
    Datagram(UnixDatagram),
    Stdout,
    Stderr,
    /// Nobody listens.
    None,
}

#[derive(Debug)]
struct Shared {
    settings: SinkSettings,
    target: Target,
    clock: Clock,
    buffer: Vec<u8>,
    /// The rest of what a stream socket did not take; it ends in a line feed.
    pending: Vec<u8>,
    next_rotation: Option<i64>,
    /// Half a line was left that could not be taken back.
    broken: bool,
    failing: bool,
    lost: u64,
    lost_before: u64,
    tag: Vec<u8>,
}

/// Whether there is such a file, and its last line has no end.
fn ends_within_a_line(path: &Path) -> bool {
    let mut last = [0];
    let mut read = || {
        // A pipe must not even be opened.
        let m = std::fs::metadata(path)?;
        if !m.is_file() || m.len() == 0 {
            return Ok(false);
        }
        File::open(path)?.read_exact_at(&mut last, m.len() - 1)?;
        Ok::<_, io::Error>(last != *b"\n")
    };
    // One that cannot be read is written as it is.
    read().unwrap_or(false)
}

impl Shared {
    fn open(settings: SinkSettings, now: Time) -> Result<Shared, OpenError> {
        let priority = (settings.facility as u8) << 3 | settings.level as u8;
        let tag = format!("<{priority}>{}[{}]: ", settings.identity, std::process::id()).into_bytes();
        let mut s = Shared {
            settings,
            target: Target::None,
            clock: Clock::system(),
            buffer: Vec::new(),
            pending: Vec::new(),
            next_rotation: None,
            broken: false,
            failing: false,
            lost: 0,
            lost_before: 0,
            tag,
        };
        s.schedule(now);
        if let Err(source) = s.connect(now, s.settings.append) {
            let path = s.path(now);
            if s.settings.kind == SinkKind::Regular {
                return Err(OpenError { path, source });
            }
            s.failing = true;
            log(
                Level::Warning,
                "logopenfile",
                format_args!("cannot connect to socket \"{}\": {source} (will keep trying)", path.display()),
            );
        }
        Ok(s)
    }

    fn path(&mut self, now: Time) -> PathBuf {
        match self.settings.kind {
            SinkKind::Syslog if self.settings.path.as_os_str().is_empty() => PathBuf::from(SYSLOG_SOCKET),
            SinkKind::Regular => expand(&self.settings.path, &mut self.clock, now),
            _ => self.settings.path.clone(),
        }
    }

    fn connect(&mut self, now: Time, append: bool) -> io::Result<()> {
        let path = self.path(now);
        self.target = Target::None;
        self.target = match self.settings.kind {
            SinkKind::Regular => {
                if let Some(parent) = path.parent()
                    && !parent.as_os_str().is_empty()
                {
                    std::fs::create_dir_all(parent)?;
                }
                let mut options = OpenOptions::new();
                options.create(true);
                let file = if append {
                    // Who was killed while it wrote may have left half a line.
                    self.broken |= ends_within_a_line(&path);
                    options.append(true).open(&path)?
                } else {
                    let file = options.write(true).truncate(true).open(&path)?;
                    drop(file);
                    // Later writes go to the end even if someone else empties the file.
                    OpenOptions::new().append(true).open(&path)?
                };
                if self.settings.mode != 0 {
                    file.set_permissions(std::fs::Permissions::from_mode(self.settings.mode))?;
                }
                Target::File(file)
            }
            SinkKind::UnixStream => {
                // A listener that does not accept must not hold the worker up.
                let address = SocketAddrUnix::new(&path)?;
                let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
                let s = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
                rustix::net::connect(&s, &address)?;
                Target::Stream(UnixStream::from(s))
            }
            SinkKind::UnixDgram | SinkKind::Syslog => {
                let s = UnixDatagram::unbound()?;
                s.connect(&path)?;
                s.set_nonblocking(true)?;
                Target::Datagram(s)
            }
            SinkKind::Stdout => Target::Stdout,
            SinkKind::Stderr => Target::Stderr,
        };
        Ok(())
    }

    fn schedule(&mut self, now: Time) {
        if let Some(interval) = self.settings.rotate_interval.and_then(|i| i64::try_from(i).ok()).filter(|&i| i > 0) {
            let c = self.clock.civil(now);
            let local = c.days * 86_400 + i64::from(c.hour) * 3600 + i64::from(c.minute) * 60 + i64::from(c.second);
            let left = interval - local.rem_euclid(interval);
            self.next_rotation = Some(now.secs().saturating_add(left));
        }
    }

    fn tick(&mut self, now: Time) {
        if self.next_rotation.is_some_and(|at| now.secs() >= at) {
            self.schedule(now);
            self.reopen(now);
        }
        if matches!(self.target, Target::None) {
            let _ = self.connect(now, true);
        }
        self.flush();
    }

    fn reopen(&mut self, now: Time) {
        self.flush();
        if self.settings.kind != SinkKind::Regular {
            return;
        }
        self.broken = false;
        if let Err(e) = self.connect(now, true) {
            let path = self.path(now);
            log(
                Level::Error,
                "logopenfile",
                format_args!("{}: cannot be opened anew, its lines are lost: {e}", path.display()),
            );
            self.failing = true;
        }
    }

    fn write(&mut self, lines: &[u8]) {
        let size = self.settings.buffer_size;
        if size == 0 {
            return self.put(lines);
        }
        for line in lines.split_inclusive(|&b| b == b'\n') {
            if self.buffer.len() + line.len() > size {
                self.flush();
            }
            if line.len() > size {
                self.put(line);
            } else {
                self.buffer.extend_from_slice(line);
            }
        }
    }

    fn flush(&mut self) {
        if !self.buffer.is_empty() {
            let buffer = std::mem::take(&mut self.buffer);
            self.put(&buffer);
            self.buffer = buffer;
            self.buffer.clear();
        }
        if !self.pending.is_empty() {
            self.put(&[]);
        }
    }

    fn finish(&mut self) {
        if let Target::Stream(s) = &self.target {
            let _ = s.set_nonblocking(false).and_then(|()| s.set_write_timeout(Some(LAST_WAIT)));
        }
        self.flush();
        if let Target::Stream(s) = &self.target {
            let _ = s.set_nonblocking(true);
        }
        if !self.pending.is_empty() {
            self.lost += count(&self.pending);
            self.pending.clear();
        }
        if self.lost > self.lost_before {
            let (path, lost) = (self.settings.path.display(), self.lost - self.lost_before);
            log(Level::Warning, "output", format_args!("{path}: {lost} lines could not be written and are lost"));
            self.lost_before = self.lost;
            self.failing = false;
        }
    }

    /// Writes whole lines now.
    fn put(&mut self, lines: &[u8]) {
        let result = match &mut self.target {
            Target::File(file) => {
                let repair = std::mem::take(&mut self.broken);
                match write_lines(&mut &*file, lines, repair, |half| cut(file, half)) {
                    Ok(()) => Ok(()),
                    Err(f) => {
                        self.broken = f.broken;
                        Err((f.lost, f.error))
                    }
                }
            }
            Target::Stdout => all(&mut io::stdout().lock(), lines),
            Target::Stderr => all(&mut io::stderr().lock(), lines),
            Target::Stream(_) => self.put_stream(lines),
            Target::Datagram(_) => self.put_datagrams(lines),
            Target::None => Err((count(lines), io::ErrorKind::NotConnected.into())),
        };
        match result {
            Ok(()) if self.failing && !lines.is_empty() && self.pending.is_empty() => {
                self.failing = false;
                let (path, lost) = (self.settings.path.display(), self.lost - self.lost_before);
                self.lost_before = self.lost;
                log(Level::Notice, "output", format_args!("{path}: can be written again; {lost} lines were lost"));
            }
            Ok(()) => {}
            Err((lost, error)) => {
                self.lost += lost;
                if !self.failing {
                    self.failing = true;
                    let path = self.settings.path.display();
                    log(
                        Level::Error,
                        "output",
                        format_args!("{path}: cannot be written: {error}; lines are lost until this is over"),
                    );
                }
            }
        }
    }

    fn put_stream(&mut self, lines: &[u8]) -> Result<(), (u64, io::Error)> {
        // What is left from before goes first, unless the other side is gone: half a line is of no use to a new one.
        if !self.pending.is_empty() {
            let pending = std::mem::take(&mut self.pending);
            match self.send(&pending) {
                Ok(n) if n < pending.len() => {
                    self.pending = pending[n..].to_vec();
                    return match count(lines) {
                        0 => Ok(()),
                        lost => Err((lost, io::ErrorKind::WouldBlock.into())),
                    };
                }
                Ok(_) => {}
                Err(e) => {
                    self.lost += count(&pending);
                    self.target = Target::None;
                    if self.connect(Time(0), true).is_err() {
                        return Err((count(lines), e));
                    }
                }
            }
        }
        if lines.is_empty() {
            return Ok(());
        }
        for attempt in 0..2 {
            match self.send(lines) {
                Ok(n) => {
                    if n < lines.len() {
                        self.pending = lines[n..].to_vec();
                    }
                    return Ok(());
                }
                Err(e) if attempt == 1 || self.connect(Time(0), true).is_err() => {
                    self.target = Target::None;
                    return Err((count(lines), e));
                }
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Sends what the socket takes; fewer bytes than given where it would block.
    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Target::Stream(s) = &mut self.target else { return Err(io::ErrorKind::NotConnected.into()) };
        let mut sent = 0;
        while let Some(rest) = bytes.get(sent..).filter(|r| !r.is_empty()) {
            match s.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => sent += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => break,
                Err(e) => return Err(e),
            }
        }
        Ok(sent)
    }

    fn put_datagrams(&mut self, lines: &[u8]) -> Result<(), (u64, io::Error)> {
        let (mut lost, mut why) = (0, None);
        let mut message = Vec::new();
        for line in lines.split_inclusive(|&b| b == b'\n') {
            let bytes = if self.settings.kind == SinkKind::Syslog {
                message.clear();
                message.extend_from_slice(&self.tag);
                message.extend_from_slice(line.strip_suffix(b"\n").unwrap_or(line));
                &message
            } else {
                line
            };
            let mut result = send_datagram(&self.target, bytes);
            if let Err(e) = &result
                && !matches!(e.kind(), io::ErrorKind::WouldBlock)
                && e.raw_os_error() != Some(rustix::io::Errno::MSGSIZE.raw_os_error())
                && self.connect(Time(0), true).is_ok()
            {
                result = send_datagram(&self.target, bytes);
            }
            if let Err(e) = result {
                lost += 1;
                why = Some(e);
            }
        }
        why.map_or(Ok(()), |e| Err((lost, e)))
    }
}

fn send_datagram(target: &Target, bytes: &[u8]) -> io::Result<()> {
    match target {
        Target::Datagram(s) => s.send(bytes).map(|_| ()),
        _ => Err(io::ErrorKind::NotConnected.into()),
    }
}

/// How many lines these are.
fn count(lines: &[u8]) -> u64 {
    lines.iter().filter(|&&b| b == b'\n').count() as u64
}

fn all(out: &mut impl Write, lines: &[u8]) -> Result<(), (u64, io::Error)> {
    out.write_all(lines).and_then(|()| out.flush()).map_err(|e| (count(lines), e))
}

struct Failed {
    lost: u64,
    error: io::Error,
    broken: bool,
}

/// Writes whole lines to a file, or as many of them as it takes. `repair` ends a half line first, `cut` takes the last
/// bytes away again.
fn write_lines(
    file: &mut impl Write,
    lines: &[u8],
    repair: bool,
    cut: impl FnOnce(u64) -> io::Result<()>,
) -> Result<(), Failed> {
    if repair && let Err(error) = file.write_all(b"\n") {
        return Err(Failed { lost: count(lines), error, broken: true });
    }
    let mut done = 0;
    let error = loop {
        let Some(rest) = lines.get(done..).filter(|r| !r.is_empty()) else { return Ok(()) };
        match file.write(rest) {
            Ok(0) => break io::ErrorKind::WriteZero.into(),
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => break e,
        }
    };
    let written = lines.get(..done).unwrap_or(lines);
    let whole = written.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
    let half = (done - whole) as u64;
    let broken = half > 0 && cut(half).is_err();
    Err(Failed { lost: count(lines) - count(written), error, broken })
}

/// Takes the last `bytes` of a regular file away.
fn cut(file: &File, bytes: u64) -> io::Result<()> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    file.set_len(metadata.len().saturating_sub(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixListener;

    fn sink(settings: SinkSettings) -> Sink {
        Sink::open(settings, Time::new(86_400, 0)).unwrap()
    }

    #[test]
    fn a_listener_that_does_not_accept_holds_nobody_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let _listener = UnixListener::bind(&path).unwrap();
        let settings = SinkSettings { kind: SinkKind::UnixStream, ..SinkSettings::file(&path) };
        let sinks: Vec<Sink> = (0..300).map(|_| sink(settings.clone())).collect();
        drop(sinks);
    }

    #[test]
    fn files_are_appended_to_or_emptied() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sub/eve.json");
        for (append, want) in [(true, "a\n"), (true, "a\na\n"), (false, "a\n")] {
            let mut s = sink(SinkSettings { append, mode: 0o640, ..SinkSettings::file(&path) });
            s.line(b"a\n");
            s.flush();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), want);
        }
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(Sink::open(SinkSettings::file(dir.path()), Time(0)).unwrap_err().to_string().contains("cannot be"));
    }

    #[test]
    fn a_buffer_holds_lines_back_until_it_is_full_or_flushed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let mut s = sink(SinkSettings { buffer_size: 10, ..SinkSettings::file(&path) });
        let read = || std::fs::read_to_string(&path).unwrap();
        s.line(b"1234\n");
        s.hand_over();
        assert_eq!(read(), "");
        s.line(b"5678\n");
        s.line(b"9\n");
        s.hand_over();
        assert_eq!(read(), "1234\n5678\n");
        s.line(b"longer than the buffer\n");
        s.hand_over();
        assert_eq!(read(), "1234\n5678\n9\nlonger than the buffer\n");
        s.line(b"x\n");
        s.tick(Time(0));
        assert!(read().ends_with("buffer\nx\n"));
    }

    #[test]
    fn workers_share_a_file_and_write_whole_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let first = sink(SinkSettings::file(&path));
        std::thread::scope(|scope| {
            for t in 0..4 {
                let mut s = first.share();
                scope.spawn(move || {
                    for i in 0..500 {
                        s.line(format!("{t} {i} {}\n", "x".repeat(i)).as_bytes());
                        if i % 7 == 0 {
                            s.hand_over();
                        }
                    }
                    s.finish();
                });
            }
        });
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 2000);
        assert!(text.lines().all(|l| {
            let mut w = l.split(' ');
            let n: usize = w.nth(1).unwrap().parse().unwrap();
            w.next().unwrap().len() == n
        }));
    }

    #[test]
    fn a_thread_writes_and_order_stays() {
        let dir = tempfile::tempdir().unwrap();
        let (path, moved) = (dir.path().join("f"), dir.path().join("f.1"));
        let mut s = sink(SinkSettings::file(&path));
        s.line(b"0\n");
        let writer = Arc::new(Writer::start().unwrap());
        s.write_aside(&writer, 1000);
        let mut want = String::from("0\n");
        let line = |i: usize| format!("{i} {}\n", "x".repeat(i % 300));
        for i in 1..5000 {
            s.line(line(i).as_bytes());
            want += &line(i);
            if i % 10 == 0 {
                s.end_batch();
            }
        }
        // A little waits for more, a flush waits for all.
        s.flush();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), want);
        s.line(b"a\n");
        s.end_batch();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), want);
        std::fs::rename(&path, &moved).unwrap();
        s.reopen(Time(0));
        s.line(b"b\n");
        s.tick(Time(0));
        writer.drain();
        assert_eq!(std::fs::read_to_string(&moved).unwrap(), want + "a\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "b\n");
        let mut full = sink(SinkSettings::file("/dev/full"));
        full.write_aside(&writer, 0);
        full.line(b"{}\n{}\n");
        full.finish();
        assert_eq!(full.lost(), 2);
    }

    #[test]
    fn a_full_disk_loses_lines_and_says_so_once() {
        let mut s = sink(SinkSettings::file("/dev/full"));
        for _ in 0..3 {
            s.line(b"{}\n{}\n");
            s.flush();
        }
        assert_eq!(s.lost(), 6);
        s.finish();
        assert_eq!(s.lost(), 6);
    }

    #[test]
    fn half_lines_are_taken_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "whole\nhal").unwrap();
        let file = OpenOptions::new().append(true).open(&path).unwrap();
        cut(&file, 3).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "whole\n");
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        assert!(cut(&full, 1).is_err());
    }

    /// A disk with room for so many bytes.
    struct Disk(Vec<u8>, usize);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let n = bytes.len().min(self.1 - self.0.len());
            self.0.extend_from_slice(&bytes[..n]);
            if n == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(n) }
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_disk_that_fills_up_within_a_line() {
        let lines = b"first\nsecond\nthird\n";
        for room in 0..lines.len() {
            let whole = lines[..room].iter().filter(|&&b| b == b'\n').count() as u64;
            let mut disk = Disk(Vec::new(), room);
            let mut taken = 0;
            let failed = write_lines(&mut disk, lines, false, |half| {
                taken = half as usize;
                Ok(())
            });
            let failed = failed.err().unwrap();
            assert_eq!((failed.lost, failed.broken), (3 - whole, false));
            disk.0.truncate(disk.0.len() - taken);
            assert!(disk.0.is_empty() || disk.0.ends_with(b"\n"));
            assert_eq!(count(&disk.0), whole);
        }
        // Where nothing can be taken back the next line ends the half one.
        let mut disk = Disk(Vec::new(), 8);
        let cannot = |_| Err(io::ErrorKind::InvalidInput.into());
        assert!(write_lines(&mut disk, lines, false, cannot).err().unwrap().broken);
        disk.1 = 100;
        assert!(write_lines(&mut disk, b"next\n", true, cannot).is_ok());
        assert_eq!(disk.0, b"first\nse\nnext\n");
    }

    #[test]
    fn half_a_line_of_another_process_is_ended() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        for (there, want) in [("whole\nhal", "whole\nhal\nnext\n"), ("whole\n", "whole\nnext\n"), ("", "next\n")] {
            std::fs::write(&path, there).unwrap();
            let mut s = sink(SinkSettings::file(&path));
            s.line(b"next\n");
            s.finish();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), want);
        }
    }

    #[test]
    fn a_moved_file_is_opened_anew() {
        let dir = tempfile::tempdir().unwrap();
        let (path, moved) = (dir.path().join("f"), dir.path().join("f.1"));
        let mut s = sink(SinkSettings::file(&path));
        s.line(b"1\n");
        s.flush();
        std::fs::rename(&path, &moved).unwrap();
        s.line(b"2\n");
        s.reopen(Time(0));
        s.line(b"3\n");
        s.flush();
        assert_eq!(std::fs::read_to_string(&moved).unwrap(), "1\n2\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "3\n");
    }

    #[test]
    fn rotation_by_time_gives_new_names() {
        let dir = tempfile::tempdir().unwrap();
        let settings = SinkSettings { rotate_interval: Some(60), ..SinkSettings::file(dir.path().join("eve-%s.json")) };
        let mut s = Sink::open(settings, Time::new(600, 0)).unwrap();
        s.line(b"1\n");
        s.tick(Time::new(659, 0));
        s.line(b"2\n");
        s.tick(Time::new(660, 5));
        s.line(b"3\n");
        s.tick(Time::new(661, 0));
        let read = |n: &str| std::fs::read_to_string(dir.path().join(n)).unwrap();
        assert_eq!(read("eve-600.json"), "1\n2\n");
        assert_eq!(read("eve-660.json"), "3\n");
    }

    #[test]
    fn stream_sockets_come_and_go() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let settings = SinkSettings { kind: SinkKind::UnixStream, ..SinkSettings::file(&path) };
        // Nobody listens yet.
        let mut s = sink(settings);
        s.line(b"lost\n");
        s.flush();
        assert_eq!(s.lost(), 1);
        let listener = UnixListener::bind(&path).unwrap();
        s.tick(Time(0));
        s.line(b"1\n");
        s.flush();
        let (mut peer, _) = listener.accept().unwrap();
        let mut two = [0; 2];
        peer.read_exact(&mut two).unwrap();
        assert_eq!(&two, b"1\n");
        // The reader goes away and comes back: the line goes to the new one.
        drop(peer);
        s.line(b"2\n");
        s.flush();
        let (mut peer, _) = listener.accept().unwrap();
        peer.read_exact(&mut two).unwrap();
        assert_eq!(&two, b"2\n");
        // It goes away for good.
        drop((peer, listener));
        s.line(b"3\n");
        s.flush();
        assert_eq!(s.lost(), 2);
    }

    #[test]
    fn a_slow_stream_gets_whole_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        let mut s = sink(SinkSettings { kind: SinkKind::UnixStream, ..SinkSettings::file(&path) });
        let (mut peer, _) = listener.accept().unwrap();
        let line = [&[b'x'; 9999][..], b"\n"].concat();
        for _ in 0..200 {
            s.line(&line);
            s.hand_over();
        }
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            peer.read_to_end(&mut all).unwrap();
            all
        });
        s.finish();
        let lost = s.lost();
        assert!(lost > 0);
        drop(s);
        let all = reader.join().unwrap();
        assert_eq!(all.len() % line.len(), 0);
        assert_eq!((all.len() / line.len()) as u64 + lost, 200);
    }

    #[test]
    fn datagrams_and_syslog_are_one_line_each() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d");
        let server = UnixDatagram::bind(&path).unwrap();
        let mut buf = [0u8; 200];
        let mut s = sink(SinkSettings { kind: SinkKind::UnixDgram, ..SinkSettings::file(&path) });
        s.line(b"{\"a\":1}\n");
        s.line(b"{\"b\":2}\n");
        s.flush();
        for want in ["{\"a\":1}\n", "{\"b\":2}\n"] {
            let n = server.recv(&mut buf).unwrap();
            assert_eq!(&buf[..n], want.as_bytes());
        }
        let mut s = sink(SinkSettings { kind: SinkKind::Syslog, ..SinkSettings::file(&path) });
        s.line(b"{}\n");
        s.flush();
        let n = server.recv(&mut buf).unwrap();
        let want = format!("<134>suricata[{}]: {{}}", std::process::id());
        assert_eq!(&buf[..n], want.as_bytes());
        drop(server);
        s.line(b"{}\n");
        s.flush();
        assert_eq!(s.lost(), 1);
    }
}
