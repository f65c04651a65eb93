//! Sends the engine's own packets unchanged: the answers of `reject`.

use std::io;
use std::os::fd::OwnedFd;

use crate::sys;

/// Sends IP packets with their headers.
#[derive(Debug)]
pub(super) struct Answerer {
    mark: Option<u32>,
    /// For IPv4 and IPv6; `None` if the socket could not be opened.
    sockets: [Option<OwnedFd>; 2],
}

impl Answerer {
    /// Opens the sockets. Sent packets get the mark.
    pub(super) fn new(mark: Option<u32>) -> Answerer {
        // Open them now, while that is allowed. If it is not, sending reports the error.
        let sockets = [libc::AF_INET, libc::AF_INET6].map(|family| sys::raw_ip(family, mark).ok());
        Answerer { mark, sockets }
    }

    /// Sends a whole packet to its destination.
    pub(super) fn send(&mut self, packet: &[u8]) -> io::Result<()> {
        let family = sys::family(packet).ok_or(io::ErrorKind::InvalidInput)?;
        let [four, six] = &mut self.sockets;
        let place = if family == libc::AF_INET { four } else { six };
        let fd = match place {
            Some(fd) => fd,
            None => place.insert(sys::raw_ip(family, self.mark)?),
        };
        sys::send_ip(fd, packet)
    }
}
