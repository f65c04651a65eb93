//! System calls without a safe form in the standard library: a network namespace for a thread, a TUN device, socket
//! options.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::fs::{File, OpenOptions};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

/// Moves the calling thread to a network namespace of its own. It needs root.
///
/// # Errors
/// The kernel's error.
pub(crate) fn new_namespace() -> io::Result<()> {
    // SAFETY: no memory is handed over; only the calling thread changes its namespace.
    check(unsafe { libc::unshare(libc::CLONE_NEWNET) })
}

/// A TUN device of that name in the thread's namespace: each read and write is one IP packet, without a header before it.
///
/// # Errors
/// The kernel's error.
pub(crate) fn tun(name: &str) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
    // SAFETY: all zeros is a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(libc::IFNAMSIZ - 1)) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the descriptor is open, and the request outlives the call.
    check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &request) })?;
    Ok(file)
}

/// Sets an integer option of a socket.
///
/// # Errors
/// The kernel's error.
pub(crate) fn set(socket: BorrowedFd<'_>, level: c_int, option: c_int, value: c_int) -> io::Result<()> {
    set_bytes(socket, level, option, &value.to_ne_bytes())
}

/// Makes `close` reset the connection.
///
/// # Errors
/// The kernel's error.
pub(crate) fn close_resets(socket: BorrowedFd<'_>) -> io::Result<()> {
    // `struct linger`: on, for 0 seconds.
    let (on, seconds): (c_int, c_int) = (1, 0);
    let mut linger = [0; 8];
    linger[..4].copy_from_slice(&on.to_ne_bytes());
    linger[4..].copy_from_slice(&seconds.to_ne_bytes());
    set_bytes(socket, libc::SOL_SOCKET, libc::SO_LINGER, &linger)
}

fn set_bytes(socket: BorrowedFd<'_>, level: c_int, option: c_int, value: &[u8]) -> io::Result<()> {
    let len = value.len() as libc::socklen_t;
    // SAFETY: the descriptor is open; pointer and length are of one slice.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value.as_ptr().cast(), len) })
}

/// Sets how many connections may wait at a listening socket.
///
/// # Errors
/// The kernel's error.
pub(crate) fn backlog(socket: BorrowedFd<'_>, waiting: c_int) -> io::Result<()> {
    // SAFETY: no memory is handed over; the descriptor is open.
    check(unsafe { libc::listen(socket.as_raw_fd(), waiting) })
}

/// Starts a connection: sends its SYN, and does not wait for the answer.
///
/// # Errors
/// The kernel's error.
pub(crate) fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    // SAFETY: no memory is handed over.
    let fd = unsafe { libc::socket(libc::AF_INET6, libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0) };
    check(fd)?;
    // SAFETY: the descriptor is new and has no other owner.
    let stream = TcpStream::from(unsafe { OwnedFd::from_raw_fd(fd) });
    let ip = match to.ip() {
        IpAddr::V4(a) => a.to_ipv6_mapped(),
        IpAddr::V6(a) => a,
    };
    let address = libc::sockaddr_in6 {
        sin6_family: libc::AF_INET6 as libc::sa_family_t,
        sin6_port: to.port().to_be(),
        sin6_flowinfo: 0,
        sin6_addr: libc::in6_addr { s6_addr: ip.octets() },
        sin6_scope_id: 0,
    };
    let len = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
    // SAFETY: the descriptor is open; `len` is the size of the address.
    match check(unsafe { libc::connect(fd, (&raw const address).cast(), len) }) {
        Err(e) if e.raw_os_error() != Some(libc::EINPROGRESS) => Err(e),
        _ => Ok(stream),
    }
}

/// Reads from a socket without waiting; `None` if it has no data yet.
///
/// # Errors
/// The kernel's error, for example if the connection was reset.
pub(crate) fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    // SAFETY: the descriptor is open; pointer and length are of one slice.
    let n = unsafe { libc::recv(socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_DONTWAIT) };
    match usize::try_from(n) {
        Ok(n) => Ok(Some(n)),
        Err(_) => {
            let e = io::Error::last_os_error();
            if e.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(e) }
        }
    }
}

fn check(result: c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
