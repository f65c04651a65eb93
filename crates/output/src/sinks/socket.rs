//! Sockets: stream sockets take as much as they have room for, datagram sockets take one line at a time.

use std::io::{self, Write};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::time::Duration;

use margay_packet::Time;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::target::{Shared, Target};
use crate::count;
use crate::settings::SinkKind;

/// Connects to a stream socket.
pub(super) fn stream(path: &Path) -> io::Result<UnixStream> {
    // A listener that does not accept must not block the worker.
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let s = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&s, &address)?;
    Ok(UnixStream::from(s))
}

/// Connects to a datagram socket.
pub(super) fn datagram(path: &Path, patient: bool) -> io::Result<UnixDatagram> {
    let s = UnixDatagram::unbound()?;
    s.connect(path)?;
    match patient {
        true => s.set_write_timeout(Some(PATIENCE))?,
        false => s.set_nonblocking(true)?,
    }
    Ok(s)
}

/// How long a capture file waits for a reader of datagrams that reads nothing.
const PATIENCE: Duration = Duration::from_secs(10);

impl Shared {
    pub(super) fn put_stream(&mut self, lines: &[u8]) -> Result<(), (u64, io::Error)> {
        // Pending bytes go first. If the peer is gone they are dropped, because a partial line is of no use to a new
        // peer.
        if !self.pending.is_empty() {
            let pending = std::mem::take(&mut self.pending);
            match self.send(&pending) {
                Ok(n) if n < pending.len() => {
                    self.pending = pending[n..].to_vec();
                    return match count::lines(lines) {
                        0 => Ok(()),
                        lost => Err((lost, io::ErrorKind::WouldBlock.into())),
                    };
                }
                Ok(_) => {}
                Err(e) => {
                    self.lost += count::lines(&pending);
                    self.target = Target::None;
                    if self.connect(Time(0), true).is_err() {
                        return Err((count::lines(lines), e));
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
                    return Err((count::lines(lines), e));
                }
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Sends as much as the socket takes. Returns less than the length of `bytes` if the socket would block.
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

    pub(super) fn put_datagrams(&mut self, lines: &[u8]) -> Result<(), (u64, io::Error)> {
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
        Target::Datagram(s) => s.send(bytes).map(|_| ()).inspect_err(|e| {
            // A reader that hangs is waited for once.
            if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) {
                let _ = s.set_nonblocking(true);
            }
        }),
        _ => Err(io::ErrorKind::NotConnected.into()),
    }
}
