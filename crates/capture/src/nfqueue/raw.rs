//! Packets of our own, sent as they are: answers to what is rejected.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Sends IP packets with their headers.
#[derive(Debug)]
pub(super) struct Answerer {
    mark: Option<u32>,
    /// For IPv4 and IPv6, once they are needed.
    sockets: [Option<OwnedFd>; 2],
}

impl Answerer {
    /// Its packets have that mark.
    pub(super) fn new(mark: Option<u32>) -> Answerer {
        let mut all = Answerer { mark, sockets: [None, None] };
        // Now, while it is allowed; where it is not, sending tells.
        all.sockets = [socket(libc::AF_INET, mark).ok(), socket(libc::AF_INET6, mark).ok()];
        all
    }

    /// Sends a whole packet to where it says.
    pub(super) fn send(&mut self, packet: &[u8]) -> io::Result<()> {
        let bad = || io::Error::from(io::ErrorKind::InvalidInput);
        match packet.first().ok_or_else(bad)? >> 4 {
            4 => {
                let to: [u8; 4] = *packet.get(16..).and_then(<[u8]>::first_chunk).ok_or_else(bad)?;
                // SAFETY: a plain C structure for which zero is a value.
                let mut address: libc::sockaddr_in = unsafe { std::mem::zeroed() };
                address.sin_family = libc::AF_INET as libc::sa_family_t;
                address.sin_addr.s_addr = u32::from_ne_bytes(to);
                self.hand_over(0, libc::AF_INET, packet, &address)
            }
            6 => {
                // SAFETY: a plain C structure for which zero is a value.
                let mut address: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
                address.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                address.sin6_addr.s6_addr = *packet.get(24..).and_then(<[u8]>::first_chunk).ok_or_else(bad)?;
                self.hand_over(1, libc::AF_INET6, packet, &address)
            }
            _ => Err(bad()),
        }
    }

    /// `T` is the structure of an address of `family`.
    fn hand_over<T>(&mut self, n: usize, family: libc::c_int, packet: &[u8], to: &T) -> io::Result<()> {
        let place = self.sockets.get_mut(n).ok_or(io::ErrorKind::InvalidInput)?;
        let fd = match place {
            Some(fd) => fd.as_raw_fd(),
            None => place.insert(socket(family, self.mark)?).as_raw_fd(),
        };
        let (flags, len) = (libc::MSG_DONTWAIT, size_of::<T>() as libc::socklen_t);
        // SAFETY: the kernel reads as many bytes of `packet` as it has, and `len` at `to`, which is that large.
        let sent = unsafe {
            libc::sendto(fd, packet.as_ptr().cast(), packet.len(), flags, std::ptr::from_ref(to).cast(), len)
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

fn socket(family: libc::c_int, mark: Option<u32>) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // Of this protocol headers come with the packet.
    // SAFETY: no memory is handed over.
    let fd = unsafe { libc::socket(family, kind, libc::IPPROTO_RAW) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made, and nobody else has it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    if let Some(mark) = mark {
        let len = size_of::<u32>() as libc::socklen_t;
        let (level, name) = (libc::SOL_SOCKET, libc::SO_MARK);
        // SAFETY: the kernel reads `len` bytes at `mark`, which is that large.
        if unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const mark).cast(), len) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(fd)
}
