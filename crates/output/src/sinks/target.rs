//! The shared end of an output: the destination of its lines, and the lines that wait.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use margay_packet::Time;

use super::{OpenError, file, socket};
use crate::count;
use crate::log::{Level, log};
use crate::remote::{Remote, RemoteCounters};
use crate::settings::{SYSLOG_SOCKET, SinkKind, SinkSettings};
use crate::time::{Clock, expand};

/// Limit of the time that the process waits at its end for a slow socket.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// The destination of lines.
#[derive(Debug)]
pub(super) enum Target {
    File(File),
    Stream(UnixStream),
    Datagram(UnixDatagram),
    Stdout,
    Stderr,
    Remote(Remote),
    /// Not connected: the socket has no listener, or the file could not be opened.
    None,
}

/// The end that all workers share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) settings: SinkSettings,
    pub(super) target: Target,
    clock: Clock,
    buffer: Vec<u8>,
    /// The bytes that a stream socket did not take; they end in a line feed.
    pub(super) pending: Vec<u8>,
    next_rotation: Option<i64>,
    /// The interval is over since then: the next line begins a new file.
    rotate: Option<Time>,
    /// A partial line remains that could not be removed.
    broken: bool,
    failing: bool,
    pub(super) lost: u64,
    lost_before: u64,
    pub(super) tag: Vec<u8>,
}

impl Shared {
    pub(super) fn open(settings: SinkSettings, now: Time) -> Result<Shared, OpenError> {
        let priority = (settings.facility as u8) << 3 | settings.level as u8;
        let tag = format!("<{priority}>{}[{}]: ", settings.identity, std::process::id()).into_bytes();
        let mut s = Shared {
            settings,
            target: Target::None,
            clock: Clock::system(),
            buffer: Vec::new(),
            pending: Vec::new(),
            next_rotation: None,
            rotate: None,
            broken: false,
            failing: false,
            lost: 0,
            lost_before: 0,
            tag,
        };
        s.schedule(now);
        if let Err(source) = s.connect(now, s.settings.append) {
            let path = s.path(now);
            if matches!(s.settings.kind, SinkKind::Regular | SinkKind::Remote) {
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
            SinkKind::Remote => self.settings.remote.as_ref().map_or_else(PathBuf::new, |r| r.name().into()),
            SinkKind::Regular => expand(&self.settings.path, &self.clock, now),
            _ => self.settings.path.clone(),
        }
    }

    pub(super) fn connect(&mut self, now: Time, append: bool) -> io::Result<()> {
        let path = self.path(now);
        self.target = Target::None;
        self.target = match self.settings.kind {
            SinkKind::Regular => {
                let (file, half) = file::open(&path, append, self.settings.mode)?;
                self.broken |= half;
                Target::File(file)
            }
            SinkKind::UnixStream => Target::Stream(socket::stream(&path)?),
            SinkKind::UnixDgram | SinkKind::Syslog => Target::Datagram(socket::datagram(&path, self.settings.patient)?),
            SinkKind::Stdout => Target::Stdout,
            SinkKind::Stderr => Target::Stderr,
            SinkKind::Remote => match &self.settings.remote {
                Some(settings) => Target::Remote(Remote::start(settings)?),
                None => Target::None,
            },
        };
        Ok(())
    }

    /// Counters of a remote output.
    pub(super) fn remote(&self) -> Option<RemoteCounters> {
        if let Target::Remote(r) = &self.target { Some(r.counters()) } else { None }
    }

    /// Lines that could not be written so far.
    pub(super) fn lost(&self) -> u64 {
        self.remote().map_or(self.lost, |r| r.lost + r.refused)
    }

    fn schedule(&mut self, now: Time) {
        if let Some(interval) = self.settings.rotate_interval.and_then(|i| i64::try_from(i).ok()).filter(|&i| i > 0) {
            let mut left = interval;
            if self.settings.rotate_by_clock {
                let c = self.clock.civil(now);
                let local = c.days * 86_400 + i64::from(c.hour) * 3600 + i64::from(c.minute) * 60 + i64::from(c.second);
                left = interval - local.rem_euclid(interval);
            }
            self.next_rotation = Some(now.secs().saturating_add(left));
        }
    }

    pub(super) fn tick(&mut self, now: Time) {
        if self.next_rotation.is_some_and(|at| now.secs() >= at) {
            self.schedule(now);
            self.flush();
            self.rotate = Some(now);
        }
        if matches!(self.target, Target::None) {
            let _ = self.connect(now, true);
        }
        self.flush();
    }

    pub(super) fn reopen(&mut self, now: Time) {
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
                format_args!("{}: cannot be reopened, its lines are lost: {e}", path.display()),
            );
            self.failing = true;
        }
    }

    pub(super) fn write(&mut self, lines: &[u8]) {
        // A quiet time makes no empty files.
        if let Some(at) = self.rotate.take() {
            self.reopen(at);
        }
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

    pub(super) fn flush(&mut self) {
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

    pub(super) fn finish(&mut self) {
        if let Target::Stream(s) = &self.target {
            let _ = s.set_nonblocking(false).and_then(|()| s.set_write_timeout(Some(LAST_WAIT)));
        }
        self.flush();
        if let Target::Remote(r) = &mut self.target {
            r.finish();
            return;
        }
        if let Target::Stream(s) = &self.target {
            let _ = s.set_nonblocking(true);
        }
        if !self.pending.is_empty() {
            self.lost += count::lines(&self.pending);
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
            Target::File(f) => {
                let repair = std::mem::take(&mut self.broken);
                match file::write_lines(&mut &*f, lines, repair, |half| file::cut(f, half)) {
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
            // The remote output counts and logs its own losses.
            Target::Remote(r) => {
                r.put(lines);
                return;
            }
            Target::None => Err((count::lines(lines), io::ErrorKind::NotConnected.into())),
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
}

fn all(out: &mut impl Write, lines: &[u8]) -> Result<(), (u64, io::Error)> {
    out.write_all(lines).and_then(|()| out.flush()).map_err(|e| (count::lines(lines), e))
}
