//! System calls for sockets of all kinds: opening, options, waiting, sending raw packets; and memory shared with the kernel.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

pub(crate) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Opens a socket that child programs do not inherit.
pub(crate) fn socket(family: libc::c_int, kind: libc::c_int, protocol: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: no memory is handed over.
    let fd = check(unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) })?;
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets an option whose value has type `T`, a plain C structure whose padding does not matter.
pub(crate) fn set<T>(fd: &OwnedFd, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
    let (at, len) = (std::ptr::from_ref(value).cast(), size_of::<T>() as libc::socklen_t);
    // SAFETY: the kernel reads `len` bytes at `value`, which is that large and lives on.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, at, len) }).map(drop)
}

/// Reads an option into `value`. Returns the number of bytes that the kernel wrote.
///
/// # Safety
/// `T` must be a plain C structure for which all bytes are valid.
pub(crate) unsafe fn get<T>(fd: &OwnedFd, level: libc::c_int, name: libc::c_int, value: &mut T) -> io::Result<usize> {
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `value`, which is that large and, as the caller says, may hold any.
    check(unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, std::ptr::from_mut(value).cast(), &raw mut len) })?;
    Ok(len as usize)
}

/// Opens a socket of this family that sends whole IP packets, including headers, along the host's routes.
pub(crate) fn raw_ip(family: libc::c_int, mark: Option<u32>) -> io::Result<OwnedFd> {
    // With this protocol, the packet includes its headers.
    let fd = socket(family, libc::SOCK_RAW, libc::IPPROTO_RAW)?;
    if let Some(mark) = mark {
        set(&fd, libc::SOL_SOCKET, libc::SO_MARK, &mark)?;
    }
    Ok(fd)
}

/// The address family of an IP packet.
pub(crate) fn family(packet: &[u8]) -> Option<libc::c_int> {
    match packet.first()? >> 4 {
        4 => Some(libc::AF_INET),
        6 => Some(libc::AF_INET6),
        _ => None,
    }
}

/// Sends a whole IP packet to its destination, with a socket of its family.
pub(crate) fn send_ip(fd: &OwnedFd, packet: &[u8]) -> io::Result<()> {
    let bad = || io::Error::from(io::ErrorKind::InvalidInput);
    if family(packet) == Some(libc::AF_INET) {
        let to: [u8; 4] = *packet.get(16..).and_then(<[u8]>::first_chunk).ok_or_else(bad)?;
        let address = libc::sockaddr_in {
            sin_family: libc::AF_INET as libc::sa_family_t,
            sin_port: 0,
            sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(to) },
            sin_zero: [0; 8],
        };
        send_to(fd, packet, &address)
    } else {
        let to: [u8; 16] = *packet.get(24..).and_then(<[u8]>::first_chunk).ok_or_else(bad)?;
        let address = libc::sockaddr_in6 {
            sin6_family: libc::AF_INET6 as libc::sa_family_t,
            sin6_port: 0,
            sin6_flowinfo: 0,
            sin6_addr: libc::in6_addr { s6_addr: to },
            sin6_scope_id: 0,
        };
        send_to(fd, packet, &address)
    }
}

/// Sends a packet to an address. `T` is the address's C structure.
fn send_to<T>(fd: &OwnedFd, packet: &[u8], to: &T) -> io::Result<()> {
    let (flags, len) = (libc::MSG_DONTWAIT, size_of::<T>() as libc::socklen_t);
    let to = std::ptr::from_ref(to).cast();
    // SAFETY: the kernel reads as many bytes of `packet` as it has, and `len` at `to`, which is that large.
    let sent = unsafe { libc::sendto(fd.as_raw_fd(), packet.as_ptr().cast(), packet.len(), flags, to, len) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The result of waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Polled {
    Data,
    Timeout,
    Signal,
    Error,
}

/// A descriptor to wait on for data. A negative one is ignored.
pub(crate) fn polled(fd: RawFd) -> libc::pollfd {
    libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
}

/// Waits until one of the sockets has data or an error.
///
/// # Errors
/// The reason that the wait ended without either.
pub(crate) fn wait(sockets: &mut [libc::pollfd], wait: Duration) -> Result<(), Polled> {
    let millis = libc::c_int::try_from(wait.as_millis()).unwrap_or(libc::c_int::MAX);
    // SAFETY: there are as many structures as said, and the kernel writes within them.
    match unsafe { libc::poll(sockets.as_mut_ptr(), sockets.len() as libc::nfds_t, millis) } {
        0 => Err(Polled::Timeout),
        n if n < 0 => Err(match io::Error::last_os_error().kind() {
            io::ErrorKind::Interrupted => Polled::Signal,
            _ => Polled::Error,
        }),
        _ => Ok(()),
    }
}

/// As [`wait`]. If one of them has data, errors do not matter.
pub(crate) fn poll(sockets: &mut [libc::pollfd], time: Duration) -> Polled {
    match wait(sockets, time) {
        Err(polled) => polled,
        Ok(()) if sockets.iter().any(|p| p.revents & libc::POLLIN != 0) => Polled::Data,
        Ok(()) => Polled::Error,
    }
}

/// Memory that the kernel also uses.
#[derive(Debug)]
pub(crate) struct Map {
    /// `len` bytes, from `mmap`, until this is dropped.
    pub(crate) at: NonNull<u8>,
    pub(crate) len: usize,
}

// SAFETY: the mapping belongs to this value alone, and is used through its owner's methods alone, which borrow it; the kernel, with
// which it is shared, does not care from which thread.
unsafe impl Send for Map {}
// SAFETY: a shared reference gives atomics ([`Map::word`]) and the address; whoever reads or writes there says why it may.
unsafe impl Sync for Map {}

impl Map {
    /// Maps a socket's memory, or new memory if `fd` is -1.
    pub(crate) fn new(fd: RawFd, len: usize, offset: libc::off_t, flags: libc::c_int) -> io::Result<Map> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping where the kernel likes; nothing of ours is replaced.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags | libc::MAP_POPULATE, fd, offset) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        NonNull::new(at.cast()).map(|at| Map { at, len }).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))
    }

    /// The number at `offset`, which the kernel also reads or writes.
    pub(crate) fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.len, "the kernel's offsets are in its mapping");
        // SAFETY: within the mapping and aligned, as was just looked at; the kernel writes it as one word, and we look at it
        // through atomics alone.
        unsafe { AtomicU32::from_ptr(self.at.as_ptr().add(offset).cast()) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, of that length, and unused: every borrow from it borrows `self`.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.len) };
    }
}

/// A packet in shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// Offset in the memory.
    pub(crate) start: u32,
    pub(crate) len: u32,
    /// The address of its chunk.
    pub(crate) chunk: u64,
}

/// Packets in shared memory, each in its own chunk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chunks<'a> {
    memory: &'a Map,
    places: &'a [Place],
}

impl<'a> Chunks<'a> {
    /// Packets that the kernel has handed over.
    ///
    /// # Safety
    /// Each place is in the memory, and the kernel does not write to it while this is borrowed.
    pub(crate) unsafe fn new(memory: &'a Map, places: &'a [Place]) -> Chunks<'a> {
        Chunks { memory, places }
    }

    /// The packet at `index`.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> &'a [u8] {
        let Some(p) = self.places.get(index) else { return &[] };
        // SAFETY: whoever made this promised that the place is in the mapping and that the kernel does not write to it. The mapping
        // outlives the borrow.
        unsafe { std::slice::from_raw_parts(self.memory.at.as_ptr().add(p.start as usize), p.len as usize) }
    }
}
