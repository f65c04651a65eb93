//! Measures the latency of an inline engine. A probe flow sends a packet every millisecond beside the load, and the
//! kernel timestamps its arrival on the other side.
#![allow(unsafe_code)]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::Pair;
use crate::cpus::Cpus;
use crate::problem::{Outcome, Problem};
use crate::traffic::quick::{self, Interface};

/// Interval between two packets.
const APART: Duration = Duration::from_millis(1);
/// Ports of the flow; 9 is `discard`.
const PORTS: [u16; 2] = [41_009, 9];
/// Size of the Ethernet, IPv4 and UDP headers.
const HEADERS: usize = 42;
/// Bytes of a packet. Its payload is the send time and padding.
const LENGTH: usize = HEADERS + 56;

/// Latency of the probe's packets, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Latency {
    /// Percentiles: 50, 99 and 99.9 %.
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    /// Number of packets that arrived.
    pub(crate) count: f64,
    /// The share of sent packets that did not arrive.
    pub(crate) lost: f64,
}

impl Latency {
    /// Computes the latency, where `sent` packets were sent.
    fn of(mut took: Vec<f64>, sent: usize) -> Option<Latency> {
        took.sort_by(f64::total_cmp);
        let at =
            |share: f64| took.get(((took.len() as f64 * share) as usize).min(took.len().saturating_sub(1))).copied();
        let lost = (sent.saturating_sub(took.len())) as f64 / sent.max(1) as f64;
        Some(Latency { p50: at(0.5)?, p99: at(0.99)?, p999: at(0.999)?, count: took.len() as f64, lost })
    }
}

/// A running probe flow.
pub(crate) struct Probe {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(Vec<f64>, usize)>,
}

impl Probe {
    /// Starts a probe from `near` to the other side, on these CPUs.
    ///
    /// # Errors
    /// If its sockets cannot be opened.
    pub(crate) fn start(near: &str, far: &Pair, cpus: &Cpus) -> Outcome<Probe> {
        let failed = |what: &str, name: &str| {
            let text = format!("{what} '{name}' for the flow whose latency is measured");
            move |error: io::Error| Problem::Failed(format!("{text}: {error}"))
        };
        let find = |name: &str| Interface::find(name).map_err(Problem::Failed);
        let (near_at, far_at) = (find(near)?.index, find(&far.sender)?.index);
        let out = open(near_at, 0).map_err(failed("cannot send on", near))?;
        let into = open(far_at, libc::ETH_P_IP as u16).map_err(failed("cannot listen on", &far.sender))?;
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, cpus) = (Arc::clone(&stop), cpus.clone());
        let thread = std::thread::Builder::new()
            .name("probe".to_owned())
            .spawn(move || {
                cpus.take();
                quick::sleep_exactly();
                quick::first();
                run(&out, &into, &stopped)
            })
            .map_err(|error| Problem::Failed(format!("cannot start a thread: {error}")))?;
        Ok(Probe { stop, thread })
    }

    /// Ends the probe. Returns the latency, `None` if nothing arrived, and the number of packets sent.
    pub(crate) fn end(self) -> (Option<Latency>, f64) {
        self.stop.store(true, Ordering::Relaxed);
        let (took, sent) = self.thread.join().unwrap_or_default();
        (Latency::of(took, sent), sent as f64)
    }
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn set<T>(fd: &OwnedFd, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes at `value`, which has that size and outlives the call.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, std::ptr::from_ref(value).cast(), len) }).map(drop)
}

/// Opens a packet socket on an interface. With a protocol, it receives the probe's packets with the time of their
/// arrival.
fn open(index: i32, protocol: u16) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: the call takes no pointer; the descriptor is new and has no other owner.
    let fd = unsafe { OwnedFd::from_raw_fd(check(libc::socket(libc::AF_PACKET, kind, 0))?) };
    if protocol != 0 {
        set(&fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1i32)?;
        let load = |code: u32, k: usize| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k: k as u32 };
        let (word, byte) = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, libc::BPF_LD | libc::BPF_B | libc::BPF_ABS);
        let unless = |value: u32, past: u8| libc::sock_filter {
            code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
            jt: 0,
            jf: past,
            k: value,
        };
        let give = |k: u32| libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k };
        let ports = u32::from(PORTS[0]) << 16 | u32::from(PORTS[1]);
        // The filter accepts UDP without IP options, with these ports.
        let mut code = [load(byte, 23), unless(17, 3), load(word, 34), unless(ports, 1), give(LENGTH as u32), give(0)];
        let program = libc::sock_fprog { len: code.len() as libc::c_ushort, filter: code.as_mut_ptr() };
        set(&fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)?;
    }
    // SAFETY: an address of zeros is valid.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as libc::c_ushort;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = index;
    let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes at `address`, which has that size.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) })?;
    Ok(fd)
}

/// The probe packet with correct checksums (for UDP: none).
fn packet() -> [u8; LENGTH] {
    let mut p = [0u8; LENGTH];
    p[..6].copy_from_slice(&[2, 0, 0, 0, 0x90, 2]);
    p[6..12].copy_from_slice(&[2, 0, 0, 0, 0x90, 1]);
    p[12..14].copy_from_slice(&[8, 0]);
    let ip = [0x45, 0, 0, (LENGTH - 14) as u8, 0, 0, 0x40, 0, 64, 17, 0, 0, 198, 18, 0, 1, 198, 19, 0, 2];
    p[14..34].copy_from_slice(&ip);
    let sum: u32 = ip.chunks(2).map(|b| u32::from(u16::from_be_bytes([b[0], b[1]]))).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    p[24..26].copy_from_slice(&sum.to_be_bytes());
    p[34..36].copy_from_slice(&PORTS[0].to_be_bytes());
    p[36..38].copy_from_slice(&PORTS[1].to_be_bytes());
    p[38..40].copy_from_slice(&((LENGTH - 34) as u16).to_be_bytes());
    p
}

/// Nanoseconds since 1970, from the clock of packet timestamps.
fn now() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes the structure.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Seconds that each packet took, and the number of packets sent.
fn run(out: &OwnedFd, into: &OwnedFd, stop: &AtomicBool) -> (Vec<f64>, usize) {
    let (mut packet, mut took, mut sent) = (packet(), Vec::new(), 0);
    let mut due = std::time::Instant::now();
    while !stop.load(Ordering::Relaxed) {
        packet[HEADERS..HEADERS + 8].copy_from_slice(&now().to_be_bytes());
        // SAFETY: the kernel reads the packet, which has the given length.
        let result = unsafe { libc::send(out.as_raw_fd(), packet.as_ptr().cast(), packet.len(), libc::MSG_DONTWAIT) };
        sent += usize::from(result > 0);
        due += APART;
        std::thread::sleep(due.saturating_duration_since(std::time::Instant::now()));
        while let Some(seconds) = receive(into) {
            took.push(seconds);
        }
    }
    // Wait for packets in flight.
    std::thread::sleep(Duration::from_millis(200));
    while let Some(seconds) = receive(into) {
        took.push(seconds);
    }
    (took, sent)
}

/// The latency of the next packet, in seconds.
fn receive(into: &OwnedFd) -> Option<f64> {
    let (mut packet, mut control) = ([0u8; LENGTH], [0u64; 16]);
    let mut part = libc::iovec { iov_base: packet.as_mut_ptr().cast(), iov_len: packet.len() };
    // SAFETY: a message of zeros is valid: no name, no parts.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: the kernel writes to the packet and to the control data, which have the given sizes.
    let got = unsafe { libc::recvmsg(into.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
    if got < (HEADERS + 8) as isize {
        return None;
    }
    let sent = u64::from_be_bytes(*packet.get(HEADERS..)?.first_chunk()?);
    // SAFETY: the kernel has filled the message; its control data is still alive, and the macros stay within it.
    let stamp = unsafe {
        let first = libc::CMSG_FIRSTHDR(&raw const message);
        if first.is_null() || (*first).cmsg_type != libc::SCM_TIMESTAMPNS {
            return None;
        }
        std::ptr::read_unaligned(libc::CMSG_DATA(first).cast::<libc::timespec>())
    };
    let arrived = stamp.tv_sec as u64 * 1_000_000_000 + stamp.tv_nsec as u64;
    Some(arrived.saturating_sub(sent) as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packet_has_a_right_checksum() {
        let p = packet();
        let sum: u32 = p[14..34].chunks(2).map(|b| u32::from(u16::from_be_bytes([b[0], b[1]]))).sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
    }

    #[test]
    fn shares_of_what_arrived() {
        let took: Vec<f64> = (1..=1000).rev().map(f64::from).collect();
        let l = Latency::of(took, 1250).unwrap();
        assert_eq!((l.p50, l.p99, l.p999, l.lost), (501.0, 991.0, 1000.0, 0.2));
        assert_eq!(Latency::of(Vec::new(), 3), None);
    }
}
