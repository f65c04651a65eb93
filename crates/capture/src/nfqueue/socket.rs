//! System calls of a netlink socket. All `unsafe` code that only NFQUEUE needs is here and in `raw`; safe code parses the
//! messages (`message`).

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use crate::sys::{self, Polled, check};

/// A NETLINK_NETFILTER socket.
#[derive(Debug)]
pub(super) struct Socket {
    fd: OwnedFd,
    /// Its netlink port.
    pub(super) port: u32,
}

/// Memory for several messages, divided into slots of the same size.
#[derive(Debug)]
pub(super) struct Slots {
    bytes: Vec<u8>,
    size: usize,
    /// Bytes received in each slot that has a message.
    lengths: Vec<usize>,
}

impl Slots {
    pub(super) fn new(count: usize, size: usize) -> Slots {
        Slots { bytes: vec![0; count * size], size, lengths: Vec::with_capacity(count) }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Start and end of the message in slot `n`.
    pub(super) fn filled(&self, n: usize) -> (usize, usize) {
        (n * self.size, n * self.size + self.lengths.get(n).copied().unwrap_or(0))
    }
}

/// Most messages of one call.
pub(super) const AT_ONCE: usize = 256;

impl Socket {
    /// Opens a socket, which has no queue yet.
    pub(super) fn new() -> io::Result<Socket> {
        let fd = sys::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_NONBLOCK, libc::NETLINK_NETFILTER)?;
        let mut socket = Socket { fd, port: 0 };
        let mut address = kernel();
        let mut len = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        // SAFETY: the kernel reads `len` bytes at `address`, which is that large.
        check(unsafe { libc::bind(socket.raw(), (&raw const address).cast(), len) })?;
        // SAFETY: the kernel writes at most `len` bytes to `address`, which is that large and has no invalid values.
        check(unsafe { libc::getsockname(socket.raw(), (&raw mut address).cast(), &raw mut len) })?;
        socket.port = address.nl_pid;
        Ok(socket)
    }

    fn raw(&self) -> libc::c_int {
        self.fd.as_raw_fd()
    }

    fn set(&self, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
        sys::set(&self.fd, level, name, &value)
    }

    /// Sets how many bytes of messages may wait. If the process is privileged, they may exceed the system's limit.
    pub(super) fn room(&self, bytes: u32) -> io::Result<()> {
        let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
        self.set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes)
            .or_else(|_| self.set(libc::SOL_SOCKET, libc::SO_RCVBUF, bytes))
    }

    /// After the socket was full, the kernel continues as soon as there is room. By default, it waits until all messages were read.
    pub(super) fn no_pause(&self) -> io::Result<()> {
        self.set(libc::SOL_NETLINK, libc::NETLINK_NO_ENOBUFS, 1)
    }

    /// Sends messages to the kernel, which processes them before this returns.
    pub(super) fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let to = kernel();
        let len = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        loop {
            // SAFETY: the kernel reads that many bytes at `bytes`, and `len` at `to`, which is that large.
            let sent =
                unsafe { libc::sendto(self.raw(), bytes.as_ptr().cast(), bytes.len(), 0, (&raw const to).cast(), len) };
            if sent >= 0 {
                return Ok(());
            }
            let e = io::Error::last_os_error();
            if e.kind() != io::ErrorKind::Interrupted {
                return Err(e);
            }
        }
    }

    /// Copies the first waiting message to `to`, and leaves it in the socket. Returns its length; `None` if none waits.
    pub(super) fn peek(&self, to: &mut [u8]) -> io::Result<Option<usize>> {
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
        // SAFETY: the kernel writes at most as many bytes to `to` as it has.
        let got = unsafe { libc::recv(self.raw(), to.as_mut_ptr().cast(), to.len(), flags) };
        if got >= 0 {
            return Ok(Some(got as usize));
        }
        match io::Error::last_os_error() {
            e if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            e => Err(e),
        }
    }

    /// Takes waiting messages without blocking, at most `max` and at most one for each slot. Leaves out messages that the kernel
    /// did not send. Returns the number of messages.
    pub(super) fn receive(&self, slots: &mut Slots, max: usize) -> io::Result<usize> {
        slots.lengths.clear();
        let count = (slots.bytes.len() / slots.size).min(max).min(AT_ONCE);
        // SAFETY: these are plain C structures for which zero is a value (null pointers, nothing to be read or written).
        let (mut from, mut parts, mut heads): (
            [libc::sockaddr_nl; AT_ONCE],
            [libc::iovec; AT_ONCE],
            [libc::mmsghdr; AT_ONCE],
        ) = unsafe { std::mem::zeroed() };
        let all = from.iter_mut().zip(&mut parts).zip(&mut heads).zip(slots.bytes.chunks_exact_mut(slots.size));
        for (((from, part), head), slot) in all.take(count) {
            part.iov_base = slot.as_mut_ptr().cast();
            part.iov_len = slot.len();
            head.msg_hdr.msg_name = std::ptr::from_mut(from).cast();
            head.msg_hdr.msg_namelen = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
            head.msg_hdr.msg_iov = part;
            head.msg_hdr.msg_iovlen = 1;
        }
        let flags = libc::MSG_DONTWAIT;
        // SAFETY: the first `count` headers each point to an address and to one piece of memory, of the sizes that they say;
        // all live until the call is over, and no two overlap (`chunks_exact_mut`). No time limit is handed over.
        let got = unsafe {
            libc::recvmmsg(self.raw(), heads.as_mut_ptr(), count as libc::c_uint, flags as _, std::ptr::null_mut())
        };
        let got = check(got)? as usize;
        let lengths = heads.iter().zip(&from).take(got.min(count));
        slots
            .lengths
            .extend(lengths.map(|(h, f)| if f.nl_pid == 0 { (h.msg_len as usize).min(slots.size) } else { 0 }));
        Ok(got)
    }

    /// Waits until there is a message, or an error.
    pub(super) fn poll(&self, wait: Duration) -> Polled {
        sys::poll(&mut [sys::polled(self.raw())], wait)
    }
}

/// The kernel's address. It is also the address to bind to for an automatic port.
fn kernel() -> libc::sockaddr_nl {
    // SAFETY: a plain C structure for which zero is a value.
    let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
    address
}
