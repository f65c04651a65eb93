//! A packet socket that sends: the kernel's transmit ring, or `sendmmsg` where there is none.
//!
//! All of the laboratory's `unsafe` for sending is in this file. The ring is memory that the kernel and we both write
//! (Documentation/networking/packet_mmap.rst): a slot belongs to us while its status is `TP_STATUS_AVAILABLE`, and to the
//! kernel from `TP_STATUS_SEND_REQUEST` until it says available again. Packets leave without a queueing discipline
//! (`PACKET_QDISC_BYPASS`) where the kernel allows it.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// How packets are handed to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// `PACKET_TX_RING`.
    Ring,
    /// `sendmmsg`.
    Mmsg,
}

/// Bytes of a ring. It has several times the slots of a receiver's backlog, since a virtual interface may still read a
/// slot that was given back; and not more, so that it stays in a processor's cache.
const RING: usize = 4 << 20;
/// Messages of a `sendmmsg` call.
const BATCH: usize = 256;
/// Where a slot's packet begins: where the kernel looks for it (`TPACKET2_HDRLEN` without the address).
const DATA_AT: usize = align(size_of::<libc::tpacket2_hdr>());
/// Longest packet that a slot may be made for.
const MAX_FRAME: usize = 65_536;

const fn align(n: usize) -> usize {
    n.next_multiple_of(16)
}

/// An interface that cannot be sent on: a sentence.
pub(crate) type Failed = String;

/// What of an interface matters here.
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
    // SAFETY: no memory is passed; the descriptor is new and nobody else's.
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

/// The ring's memory.
struct Ring {
    map: NonNull<u8>,
    len: usize,
    slot: usize,
    slots: usize,
    /// Next slot to fill.
    head: usize,
}

// SAFETY: the mapping belongs to this value alone; it is not shared between threads, only moved with its owner.
unsafe impl Send for Ring {}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: `map` and `len` are those of a mapping that was made in `Ring::new` and is unmapped once.
        unsafe {
            libc::munmap(self.map.as_ptr().cast(), self.len);
        }
    }
}

impl Ring {
    fn new(fd: &OwnedFd, longest: usize) -> io::Result<Ring> {
        let slot = (DATA_AT + longest).next_power_of_two().max(2048);
        let slots = (RING / slot).max(64);
        let len = slot * slots;
        let version = libc::tpacket_versions::TPACKET_V2 as libc::c_int;
        option(fd, libc::SOL_PACKET, libc::PACKET_VERSION, &version)?;
        // Blocks are contiguous memory: small ones can always be had.
        let block = slot.max(65_536);
        let request = libc::tpacket_req {
            tp_block_size: block as u32,
            tp_block_nr: (len / block) as u32,
            tp_frame_size: slot as u32,
            tp_frame_nr: slots as u32,
        };
        option(fd, libc::SOL_PACKET, libc::PACKET_TX_RING, &request)?;
        // SAFETY: a fresh mapping of the ring that was just asked for, at an address that the kernel chooses.
        let map = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if map == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let map = NonNull::new(map.cast::<u8>()).ok_or_else(|| io::Error::other("the ring was mapped at address 0"))?;
        Ok(Ring { map, len, slot, slots, head: 0 })
    }

    fn status(&self, slot: usize) -> &AtomicU32 {
        let at = (slot % self.slots) * self.slot;
        // SAFETY: `at` is a slot's start within the mapping, which is aligned to pages and slots to 2048; `tp_status` is the
        // header's first field, a u32 that kernel and we both access, hence atomic. It lives as long as `self`.
        unsafe { AtomicU32::from_ptr(self.map.as_ptr().add(at).cast::<u32>()) }
    }

    /// The packet's place in the next slot; none where it still is the kernel's.
    fn place(&mut self) -> Option<&mut [u8]> {
        if self.status(self.head).load(Ordering::Acquire) != libc::TP_STATUS_AVAILABLE {
            return None;
        }
        let at = self.head * self.slot + DATA_AT;
        // SAFETY: the slot is ours until its status says otherwise, the range is within it and thus within the mapping, and
        // the borrow of `self` keeps a second one from being made.
        Some(unsafe { std::slice::from_raw_parts_mut(self.map.as_ptr().add(at), self.slot - DATA_AT) })
    }

    fn commit(&mut self, len: usize) {
        let at = self.head * self.slot;
        // SAFETY: a slot begins with a tpacket2_hdr; it is ours until the store below.
        unsafe {
            let header = self.map.as_ptr().add(at).cast::<libc::tpacket2_hdr>();
            (&raw mut (*header).tp_len).write(len as u32);
        }
        self.status(self.head).store(libc::TP_STATUS_SEND_REQUEST, Ordering::Release);
        self.head = (self.head + 1) % self.slots;
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
}

/// What happened so far, beyond what was asked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Times that the kernel refused a packet (ENOBUFS): it was offered again.
    pub(crate) refused: u64,
    /// Times that the ring or the socket's buffer was full.
    pub(crate) full: u64,
    pub(crate) calls: u64,
}

/// A socket that sends on one interface.
pub(crate) struct Port {
    fd: OwnedFd,
    way: Way,
    /// Filled and not yet handed over.
    pub(crate) pending: usize,
    pub(crate) counts: Counts,
    pub(crate) bypass: bool,
}

impl Port {
    /// Opens an interface for frames of up to `longest` bytes.
    pub(crate) fn open(interface: &Interface, method: Method, longest: usize) -> Result<Port, Failed> {
        let name = &interface.name;
        let fail = |what: &str| {
            let what = what.to_owned();
            move |e: io::Error| format!("the interface '{name}' cannot be sent on: {what}: {e}")
        };
        // Protocol 0: nothing is received.
        let fd = socket(libc::SOCK_RAW, libc::AF_PACKET, 0).map_err(|e| match e.raw_os_error() {
            Some(libc::EPERM) => {
                "sending needs raw sockets, which this user may not open: run as root, or give the program CAP_NET_RAW \
                 (setcap cap_net_raw+ep); 'traffic gen' works without"
                    .to_owned()
            }
            _ => fail("no packet socket")(e),
        })?;
        if longest > MAX_FRAME {
            return Err(format!("frames of {longest} bytes are longer than can be sent ({MAX_FRAME})"));
        }
        let bypass = option(&fd, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &1i32).is_ok();
        let way = match method {
            Method::Ring => Way::Ring(Ring::new(&fd, longest).map_err(fail("no transmit ring"))?),
            Method::Mmsg => {
                let slot = align(longest.max(64));
                Way::Mmsg(Messages { buffer: vec![0; slot * BATCH], slot, lengths: Vec::with_capacity(BATCH) })
            }
        };
        // As much as the kernel lets us keep in flight; the privileged option first.
        let size: libc::c_int = 64 << 20;
        if option(&fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &size).is_err() {
            let _ = option(&fd, libc::SOL_SOCKET, libc::SO_SNDBUF, &size);
        }
        // SAFETY: a sockaddr_ll of zeros is valid: integers and a byte array.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_ifindex = interface.index;
        // SAFETY: the address is a sockaddr_ll of the length told, read during the call.
        let bound = unsafe {
            libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size_of::<libc::sockaddr_ll>() as libc::socklen_t)
        };
        check(bound).map_err(fail("bind"))?;
        Ok(Port { fd, way, pending: 0, counts: Counts::default(), bypass })
    }

    /// Where the next frame goes; none where there is no place before a [`Port::flush`].
    pub(crate) fn place(&mut self) -> Option<&mut [u8]> {
        match &mut self.way {
            Way::Ring(ring) => ring.place(),
            Way::Mmsg(m) => {
                let at = m.lengths.len();
                if at >= BATCH { None } else { m.buffer.get_mut(at * m.slot..(at + 1) * m.slot) }
            }
        }
    }

    /// The frame of `len` bytes that was written to [`Port::place`] is to be sent.
    pub(crate) fn commit(&mut self, len: usize) {
        match &mut self.way {
            Way::Ring(ring) => ring.commit(len),
            Way::Mmsg(m) => m.lengths.push(len),
        }
        self.pending += 1;
    }

    /// Hands over what is pending. True: everything was taken; false: some of it is still to be taken (call again).
    ///
    /// # Errors
    /// The interface went away or down, or a frame is none.
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

    /// Waits up to a millisecond until there is room.
    pub(crate) fn wait(&self) {
        let mut poll = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
        // SAFETY: one pollfd that lives through the call.
        unsafe {
            libc::poll(&raw mut poll, 1, 1);
        }
    }
}

/// Asks the kernel to wake this thread to the microsecond when it sleeps, instead of within 50.
pub(crate) fn sleep_exactly() {
    // SAFETY: no memory is passed.
    unsafe {
        libc::prctl(
            libc::PR_SET_TIMERSLACK,
            1 as libc::c_ulong,
            0 as libc::c_ulong,
            0 as libc::c_ulong,
            0 as libc::c_ulong,
        );
    }
}

/// Puts this thread before others by its nice value, as far as the user may; gives whether that worked.
pub(crate) fn first() -> bool {
    // SAFETY: no memory is passed; 0 is this thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) == 0 }
}

/// `struct sched_attr` of sched_setattr(2).
#[repr(C)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Reserves most of a processor for this thread (`SCHED_DEADLINE`): 0.94 ms of every millisecond, so that it never waits
/// longer than the rest of one. (`SCHED_FIFO` would be stopped for 50 ms of every second.)
///
/// # Errors
/// The user may not, or the processors' time is promised already.
pub(crate) fn realtime() -> io::Result<()> {
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: 6,
        flags: 0,
        nice: 0,
        priority: 0,
        runtime: 940_000,
        deadline: 1_000_000,
        period: 1_000_000,
    };
    // SAFETY: the attributes are of the size that they tell, and are read during the call; 0 is this thread.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
