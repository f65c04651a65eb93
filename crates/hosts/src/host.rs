//! The host: the kernel's TCP/IP stack in a network namespace of the calling thread, behind a TUN device.
//!
//! The kernel has processed a packet when the write to the device returns, and its answers can be read immediately. So a
//! conversation needs no waiting, and its course depends only on its packets.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::process::Command;

use crate::sys;

/// Where the host listens: without extras; with TCP fast open, which requires no cookie; with a receive buffer of a few
/// kilobytes.
pub const PORTS: [u16; 3] = [80, 81, 82];
/// Receive buffer of the last of these, in bytes. The kernel doubles it.
const SMALL: i32 = 2048;
/// Addresses of the host.
pub const HOST4: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
/// Addresses of the host.
pub const HOST6: Ipv6Addr = Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, 1);
/// Seconds from its first fragment after which the host forgets an incomplete datagram.
pub const FRAGMENT_SECONDS: u64 = 1;

/// Settings of the namespace.
const SYSCTLS: &[(&str, &str)] = &[
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    ("ipv4/tcp_no_metrics_save", "1"),
    // Incomplete connections are discarded soon.
    ("ipv4/tcp_synack_retries", "0"),
    // For client and server; the server requires no cookie.
    ("ipv4/tcp_fastopen", "515"),
    ("ipv4/ipfrag_time", "1"),
    ("ipv6/ip6frag_time", "1"),
    ("ipv4/ipfrag_high_thresh", "67108864"),
    ("ipv6/ip6frag_high_thresh", "67108864"),
    ("ipv6/conf/all/accept_dad", "0"),
    ("ipv6/conf/default/accept_dad", "0"),
    ("ipv6/conf/default/router_solicitations", "0"),
];

/// The host.
#[derive(Debug)]
pub struct Host {
    tun: File,
    listeners: [TcpListener; 3],
    udp: UdpSocket,
    buffer: Vec<u8>,
}

/// Why there is no host.
#[derive(Debug)]
pub enum NoHost {
    /// The process may not create namespaces.
    NotAllowed(io::Error),
    /// Another reason, as a sentence.
    Failed(String),
}

impl std::fmt::Display for NoHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NoHost::NotAllowed(e) => write!(f, "a network namespace and /dev/net/tun need root: {e}"),
            NoHost::Failed(why) => f.write_str(why),
        }
    }
}

fn failed(what: &str) -> impl FnOnce(io::Error) -> NoHost + '_ {
    move |e| NoHost::Failed(format!("{what}: {e}"))
}

fn ip(words: &str) -> Result<(), NoHost> {
    let o = Command::new("ip").args(words.split_whitespace()).output().map_err(failed("ip"))?;
    if o.status.success() {
        return Ok(());
    }
    Err(NoHost::Failed(format!("ip {words}: {}", String::from_utf8_lossy(&o.stderr))))
}

impl Host {
    /// Moves the calling thread to a new namespace and creates the host there.
    ///
    /// # Errors
    /// The missing part: permissions, `ip`, the TUN driver.
    pub fn new() -> Result<Host, NoHost> {
        sys::new_namespace().map_err(NoHost::NotAllowed)?;
        for (key, value) in SYSCTLS {
            std::fs::write(format!("/proc/sys/net/{key}"), value).map_err(failed(key))?;
        }
        let tun = sys::tun("host").map_err(NoHost::NotAllowed)?;
        ip("link set lo up")?;
        ip("link set host up")?;
        ip(&format!("addr add {HOST4}/32 dev host"))?;
        ip(&format!("addr add {HOST6}/128 dev host nodad"))?;
        ip("route add 10.64.0.0/10 dev host")?;
        ip("-6 route add fd64::/16 dev host")?;
        let listen = |port: u16| -> io::Result<TcpListener> {
            let l = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))?;
            l.set_nonblocking(true)?;
            sys::backlog(l.as_fd(), 4096)?;
            if port == PORTS[1] {
                sys::set(l.as_fd(), libc::IPPROTO_TCP, libc::TCP_FASTOPEN, 1024)?;
            }
            if port == PORTS[2] {
                sys::set(l.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, SMALL)?;
            }
            Ok(l)
        };
        let [a, b, c] = PORTS.map(|p| listen(p).map_err(failed("cannot listen")));
        let udp = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, PORTS[0])).map_err(failed("a UDP socket"))?;
        udp.set_nonblocking(true).map_err(failed("a UDP socket"))?;
        sys::set(udp.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, 1 << 22).map_err(failed("a UDP socket"))?;
        Ok(Host { tun, listeners: [a?, b?, c?], udp, buffer: vec![0; 1 << 16] })
    }

    /// Hands the kernel an IP packet. One that the device rejects as invalid counts as not received.
    ///
    /// # Errors
    /// The device is gone.
    pub fn send(&mut self, packet: &[u8]) -> io::Result<()> {
        match self.tun.write(packet) {
            Err(e) if e.raw_os_error() != Some(libc::EINVAL) => Err(e),
            _ => Ok(()),
        }
    }

    /// The next packet that the kernel sends; `None` if there is none.
    ///
    /// # Errors
    /// The device is gone.
    pub fn sent(&mut self) -> io::Result<Option<&[u8]>> {
        match self.tun.read(&mut self.buffer) {
            Ok(n) => Ok(self.buffer.get(..n)),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Accepts the next connection on one of the host's ports, by index; returns it with its remote address.
    pub fn accept(&self, listener: usize) -> Option<(TcpStream, SocketAddr)> {
        self.listeners.get(listener)?.accept().ok()
    }

    /// Reads a datagram; returns its length in bytes and its source.
    pub fn datagram(&self, buffer: &mut [u8]) -> Option<(usize, SocketAddr)> {
        self.udp.recv_from(buffer).ok()
    }
}

/// The address, as IPv4 if it is an IPv4-mapped IPv6 address, and the port.
pub fn plain(address: SocketAddr) -> (IpAddr, u16) {
    (address.ip().to_canonical(), address.port())
}
