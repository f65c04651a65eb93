//! A socket that sends: by the kernel's transmit ring, by `sendmmsg`, or by AF_XDP.
//!
//! All of the laboratory's `unsafe` for sending is in this folder.
//!
//! - The transmit ring is memory that the kernel and this process both write (Documentation/networking/packet_mmap.rst). A slot
//!   is ours while its status is `TP_STATUS_AVAILABLE`. It is the kernel's from `TP_STATUS_SEND_REQUEST` until the kernel sets
//!   the status back. Packets bypass the queueing discipline (`PACKET_QDISC_BYPASS`) if the kernel allows it.
//! - AF_XDP (Documentation/networking/af_xdp.rst) is used in copy mode, which every driver has and which needs no program. A
//!   chunk of memory is the kernel's while it is in the transmit ring, and until it appears in the completion ring.
//! - `sendmmsg` copies packets from any memory.
//!
//! The fastest method depends on the interface. With hardware, the ring saves a copy; without, its bookkeeping costs more than
//! the copy. AF_XDP has the shortest path through the kernel, but allows only one socket for each transmit queue.
#![allow(unsafe_code)]

mod map;
mod ring;
mod thread;
mod xdp;

use std::ffi::CString;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use ring::Ring;
pub(crate) use thread::{first, realtime, sleep_exactly};
use xdp::Xdp;

/// How packets are handed to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// `PACKET_TX_RING`.
    Ring,
    /// `sendmmsg`.
    Mmsg,
    /// AF_XDP on the transmit queue of this number.
    Xdp(u32),
}

impl Method {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Method::Ring => "transmit ring",
            Method::Mmsg => "sendmmsg",
            Method::Xdp(_) => "AF_XDP",
        }
    }
}

/// Messages of a `sendmmsg` call.
const BATCH: usize = 256;
/// Longest packet that can be sent.
const MAX_FRAME: usize = 65_536;

const fn align(n: usize) -> usize {
    n.next_multiple_of(16)
}

/// A sentence that says why an interface cannot be used.
pub(crate) type Failed = String;

/// An interface to send on.
#[derive(Clone, Debug)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) index: i32,
    /// Largest IP packet.
    pub(crate) mtu: usize,
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn socket(kind: libc::c_int, domain: libc::c_int, protocol: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed; the descriptor is new and has no other owner.
    unsafe {
        let fd = check(libc::socket(domain, kind | libc::SOCK_CLOEXEC, protocol))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

fn option<T>(fd: &OwnedFd, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: `value` is a plain value that the kernel reads `size_of::<T>()` bytes of during the call.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    check(result).map(|_| ())
}

impl Interface {
    /// Looks an interface up in this network namespace.
    pub(crate) fn find(name: &str) -> Result<Interface, Failed> {
        let c = CString::new(name).map_err(|_| format!("'{name}' is no interface name"))?;
        // SAFETY: `c` ends with NUL and lives through the call.
        let index = unsafe { libc::if_nametoindex(c.as_ptr()) };
        if index == 0 || name.len() >= libc::IFNAMSIZ {
            return Err(format!("there is no interface '{name}' here; 'ip link' lists them"));
        }
        let fail = |e: io::Error| format!("the interface '{name}' cannot be asked: {e}");
        let fd = socket(libc::SOCK_DGRAM, libc::AF_INET, 0).map_err(fail)?;
        // SAFETY: an ifreq of zeros is valid: integers, byte arrays, null pointers.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        // SAFETY: the request is an ifreq whose name ends with NUL (zeroed, and shorter than the array); the kernel writes
        // the union's field that is read.
        let (mtu, flags) = unsafe {
            check(libc::ioctl(fd.as_raw_fd(), libc::SIOCGIFMTU as _, &raw mut request)).map_err(fail)?;
            let mtu = request.ifr_ifru.ifru_mtu;
            check(libc::ioctl(fd.as_raw_fd(), libc::SIOCGIFFLAGS as _, &raw mut request)).map_err(fail)?;
            (mtu, libc::c_int::from(request.ifr_ifru.ifru_flags))
        };
        if flags & libc::IFF_UP == 0 {
            return Err(format!("the interface '{name}' is down; 'ip link set {name} up' brings it up"));
        }
        Ok(Interface { name: name.to_owned(), index: index as i32, mtu: usize::try_from(mtu).unwrap_or(1500) })
    }
}

/// Buffers for `sendmmsg`.
struct Messages {
    buffer: Vec<u8>,
    slot: usize,
    lengths: Vec<usize>,
}

enum Way {
    Ring(Ring),
    Mmsg(Messages),
    Xdp(Box<Xdp>),
}

/// Counters of a port.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Times that the kernel refused a packet (ENOBUFS), which was then offered again.
    pub(crate) refused: u64,
    /// Times that the ring or the socket's buffer was full.
    pub(crate) full: u64,
    pub(crate) calls: u64,
}

/// A socket that sends on one interface.
pub(crate) struct Port {
    fd: OwnedFd,
    way: Way,
    /// The interface's name.
    pub(crate) name: String,
    /// Packets that are filled and not yet handed over.
    pub(crate) pending: usize,
    pub(crate) counts: Counts,
}

impl Port {
    /// Opens an interface for frames of up to `longest` bytes. With `from`, AF_XDP sends frames directly from this memory, and
    /// only [`Port::send_from`] may be used.
    pub(crate) fn open(
        interface: &Interface,
        method: Method,
        longest: usize,
        from: Option<&[u8]>,
    ) -> Result<Port, Failed> {
        let name = &interface.name;
        let fail = |what: &str| {
            let what = what.to_owned();
            move |e: io::Error| format!("the interface '{name}' cannot be sent on: {what}: {e}")
        };
        let denied = |e: io::Error| match e.raw_os_error() {
            Some(libc::EPERM) => {
                "sending needs raw sockets, which this user may not open: run as root, or give the program CAP_NET_RAW \
                 (setcap cap_net_raw+ep); 'traffic gen' works without"
                    .to_owned()
            }
            _ => fail("no socket")(e),
        };
        if longest > MAX_FRAME {
            return Err(format!("frames of {longest} bytes are longer than can be sent ({MAX_FRAME})"));
        }
        // Allow as many bytes in flight as possible. Try the privileged option first.
        let buffer = |fd: &OwnedFd| {
            let size: libc::c_int = 64 << 20;
            if option(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &size).is_err() {
                let _ = option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, &size);
            }
        };
        if let Method::Xdp(queue) = method {
            let fd = socket(libc::SOCK_RAW, libc::AF_XDP, 0).map_err(denied)?;
            buffer(&fd);
            let xdp = Xdp::new(&fd, interface.index, queue, longest, from).map_err(fail("no AF_XDP"))?;
            let (way, name) = (Way::Xdp(Box::new(xdp)), name.clone());
            return Ok(Port { fd, way, name, pending: 0, counts: Counts::default() });
        }
        // Protocol 0 receives nothing.
        let fd = socket(libc::SOCK_RAW, libc::AF_PACKET, 0).map_err(denied)?;
        // If the kernel lacks this option, packets go through the queueing discipline.
        let _ = option(&fd, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &1i32);
        buffer(&fd);
        let way = match method {
            Method::Ring => Way::Ring(Ring::new(&fd, longest).map_err(fail("no transmit ring"))?),
            _ => {
                let slot = align(longest.max(64));
                Way::Mmsg(Messages { buffer: vec![0; slot * BATCH], slot, lengths: Vec::with_capacity(BATCH) })
            }
        };
        // SAFETY: a sockaddr_ll of zeros is valid: integers and a byte array.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_ifindex = interface.index;
        // SAFETY: the address is a sockaddr_ll of the given length, read during the call.
        let bound = unsafe {
            libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size_of::<libc::sockaddr_ll>() as libc::socklen_t)
        };
        check(bound).map_err(fail("bind"))?;
        Ok(Port { fd, way, name: name.clone(), pending: 0, counts: Counts::default() })
    }

    /// Memory for the next frame; `None` if a [`Port::flush`] must free some first.
    pub(crate) fn place(&mut self) -> Option<&mut [u8]> {
        match &mut self.way {
            Way::Ring(ring) => ring.place(),
            Way::Xdp(xdp) => xdp.place(),
            Way::Mmsg(m) => {
                let at = m.lengths.len();
                if at >= BATCH { None } else { m.buffer.get_mut(at * m.slot..(at + 1) * m.slot) }
            }
        }
    }

    /// Queues the frame of `len` bytes that was written to [`Port::place`].
    pub(crate) fn commit(&mut self, len: usize) {
        match &mut self.way {
            Way::Ring(ring) => ring.commit(len),
            Way::Xdp(xdp) => xdp.commit(len),
            Way::Mmsg(m) => m.lengths.push(len),
        }
        self.pending += 1;
    }

    /// Hands over the pending frames. Returns whether the kernel took all of them; otherwise, call again.
    ///
    /// # Errors
    /// The interface disappeared or went down, or a frame is invalid.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        if self.pending == 0 {
            return Ok(true);
        }
        self.counts.calls += 1;
        match &mut self.way {
            Way::Ring(_) => {
                // SAFETY: no memory is passed: the packets are in the ring.
                let sent = unsafe { libc::send(self.fd.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT) };
                if sent < 0 {
                    let e = io::Error::last_os_error();
                    return self.refused(e);
                }
                self.pending = 0;
                Ok(true)
            }
            Way::Xdp(xdp) => {
                xdp.publish();
                // SAFETY: no memory is passed: the packets are in the ring.
                let sent = unsafe { libc::send(self.fd.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT) };
                let error = (sent < 0).then(io::Error::last_os_error);
                xdp.reclaim();
                self.pending = xdp.waiting();
                match error.as_ref().and_then(io::Error::raw_os_error) {
                    // EAGAIN means that the call has reached its limit of packets.
                    None | Some(libc::EAGAIN | libc::EINTR | libc::EBUSY) => {}
                    Some(libc::ENOBUFS) => self.counts.refused += 1,
                    Some(e) => return Err(io::Error::from_raw_os_error(e)),
                }
                Ok(self.pending == 0)
            }
            Way::Mmsg(m) => {
                let slot = m.slot;
                let base = m.buffer.as_mut_ptr();
                let mut vectors: [libc::iovec; BATCH] =
                    [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; BATCH];
                // SAFETY: an mmsghdr of zeros is valid: null pointers and lengths of 0.
                let mut messages: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
                let first = m.lengths.len() - self.pending;
                for (k, &len) in m.lengths.iter().enumerate().skip(first) {
                    let at = k - first;
                    // SAFETY: message `k` is within the buffer, which has BATCH slots.
                    vectors[at] = libc::iovec { iov_base: unsafe { base.add(k * slot) }.cast(), iov_len: len };
                    messages[at].msg_hdr.msg_iov = &raw mut vectors[at];
                    messages[at].msg_hdr.msg_iovlen = 1;
                }
                // SAFETY: the first `pending` messages point to vectors, and these to buffers, that live through the call.
                let sent = unsafe {
                    libc::sendmmsg(
                        self.fd.as_raw_fd(),
                        messages.as_mut_ptr(),
                        self.pending as libc::c_uint,
                        libc::MSG_DONTWAIT as _,
                    )
                };
                if sent < 0 {
                    let e = io::Error::last_os_error();
                    return self.refused(e);
                }
                self.pending = self.pending.saturating_sub(sent as usize);
                if self.pending == 0 {
                    m.lengths.clear();
                }
                Ok(self.pending == 0)
            }
        }
    }

    /// Whether [`Port::send_from`] works. It sends without copying frames in this process.
    pub(crate) fn sends_from(&self) -> bool {
        match &self.way {
            Way::Mmsg(_) => true,
            Way::Xdp(xdp) => xdp.memory.is_none(),
            Way::Ring(_) => false,
        }
    }

    /// Sends at most 256 frames from their place in memory. Returns how many the kernel took.
    ///
    /// # Errors
    /// As [`Port::flush`].
    pub(crate) fn send_from(&mut self, frames: &[io::IoSlice<'_>]) -> io::Result<usize> {
        if let Way::Xdp(xdp) = &mut self.way {
            if !frames.iter().all(|f| xdp.describe_at(f)) {
                return Err(io::Error::other("a frame is not in the memory that was shared with the kernel"));
            }
            self.pending = frames.len();
            // Call until the kernel has taken all frames. The ring has room for more than one batch.
            let mut tries = 0u64;
            while !self.flush()? {
                tries += 1;
                if tries > 1_000_000 {
                    return Err(io::Error::other("the interface takes no packets"));
                }
            }
            return Ok(frames.len());
        }
        // SAFETY: an mmsghdr of zeros is valid: null pointers and lengths of 0.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
        let n = frames.len().min(BATCH);
        for (message, frame) in messages.iter_mut().zip(frames) {
            // An IoSlice is an iovec by its definition; the kernel only reads what it names.
            message.msg_hdr.msg_iov = std::ptr::from_ref(frame).cast_mut().cast();
            message.msg_hdr.msg_iovlen = 1;
        }
        self.counts.calls += 1;
        // SAFETY: the first `n` messages point to vectors, and these to frames, that live through the call.
        let sent = unsafe {
            let flags = libc::MSG_DONTWAIT as _;
            libc::sendmmsg(self.fd.as_raw_fd(), messages.as_mut_ptr(), n as libc::c_uint, flags)
        };
        if sent < 0 {
            let e = io::Error::last_os_error();
            self.refused(e)?;
            return Ok(0);
        }
        Ok(sent as usize)
    }

    fn refused(&mut self, e: io::Error) -> io::Result<bool> {
        match e.raw_os_error() {
            Some(libc::ENOBUFS) => self.counts.refused += 1,
            Some(libc::EAGAIN) => {
                self.counts.full += 1;
                self.wait();
            }
            Some(libc::EINTR) => {}
            _ => return Err(e),
        }
        Ok(false)
    }

    /// Waits for room, at most a millisecond.
    pub(crate) fn wait(&self) {
        let mut poll = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
        // SAFETY: one pollfd that lives through the call.
        unsafe {
            libc::poll(&raw mut poll, 1, 1);
        }
    }
}

/// Asks the kernel for large pages for unused memory, so that reading it later causes fewer TLB misses.
pub(crate) fn large_pages(memory: &mut [std::mem::MaybeUninit<u8>]) {
    const PAGE: usize = 4096;
    let first = (memory.as_ptr() as usize).next_multiple_of(PAGE);
    let end = (memory.as_ptr() as usize + memory.len()) & !(PAGE - 1);
    if first < end {
        // SAFETY: the range is within `memory`, which is borrowed exclusively. The advice changes how the range is backed, not its
        // contents. A kernel that does not know the advice ignores it.
        unsafe {
            libc::madvise(first as *mut libc::c_void, end - first, libc::MADV_HUGEPAGE);
        }
    }
}
