//! A socket that sends: by the kernel's transmit ring, by `sendmmsg`, or by AF_XDP.
//!
//! All of the laboratory's `unsafe` for sending is in this file.
//!
//! - The transmit ring is memory that the kernel and we both write (Documentation/networking/packet_mmap.rst): a slot
//!   belongs to us while its status is `TP_STATUS_AVAILABLE`, and to the kernel from `TP_STATUS_SEND_REQUEST` until it says
//!   available again. Packets leave without a queueing discipline (`PACKET_QDISC_BYPASS`) where the kernel allows it.
//! - AF_XDP (Documentation/networking/af_xdp.rst) in copy mode, which every driver has and which needs no program: a chunk
//!   of memory belongs to the kernel from when it is in the transmit ring until it is in the completion ring.
//! - `sendmmsg` copies from where the packets are.
//!
//! Which is fastest depends on the interface: the ring spares a copy where there is hardware, which costs more than the
//! copy where there is none; AF_XDP has the shortest way through the kernel, but one socket a transmit queue.
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

/// Memory shared with the kernel.
struct Map {
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone; it is not shared between threads, only moved with its owner.
unsafe impl Send for Map {}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: `at` and `len` are those of a mapping that was made in `Map::new` and is unmapped once.
        unsafe {
            libc::munmap(self.at.as_ptr().cast(), self.len);
        }
    }
}

impl Map {
    /// Maps a socket's ring, or fresh memory where there is no socket.
    fn new(fd: Option<&OwnedFd>, len: usize, offset: libc::off_t) -> io::Result<Map> {
        let kind = if fd.is_some() { libc::MAP_SHARED } else { libc::MAP_PRIVATE | libc::MAP_ANONYMOUS };
        let fd = fd.map_or(-1, AsRawFd::as_raw_fd);
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping at an address that the kernel chooses.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, access, kind | libc::MAP_POPULATE, fd, offset) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let at = NonNull::new(at.cast::<u8>()).ok_or_else(|| io::Error::other("memory was mapped at address 0"))?;
        Ok(Map { at, len })
    }

    /// A number that the kernel reads or writes too, at a multiple of 4.
    fn word(&self, at: usize) -> &AtomicU32 {
        let at = at.min(self.len.saturating_sub(4)) & !3;
        // SAFETY: within the mapping, which begins at a page; aligned to 4; only ever used as an atomic number. It lives
        // as long as `self`.
        unsafe { AtomicU32::from_ptr(self.at.as_ptr().add(at).cast::<u32>()) }
    }

    /// The start of `n` bytes at `at`; none where they are not all within the mapping.
    fn pointer(&self, at: usize, n: usize) -> Option<*mut u8> {
        // SAFETY: within the mapping.
        (at.checked_add(n)? <= self.len).then(|| unsafe { self.at.as_ptr().add(at) })
    }
}

/// The kernel's transmit ring.
struct Ring {
    map: Map,
    slot: usize,
    slots: usize,
    /// Next slot to fill.
    head: usize,
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
        let map = Map::new(Some(fd), len, 0)?;
        Ok(Ring { map, slot, slots, head: 0 })
    }

    fn status(&self, slot: usize) -> &AtomicU32 {
        // `tp_status` is the header's first field.
        self.map.word((slot % self.slots) * self.slot)
    }

    /// The packet's place in the next slot; none where it still is the kernel's.
    fn place(&mut self) -> Option<&mut [u8]> {
        if self.status(self.head).load(Ordering::Acquire) != libc::TP_STATUS_AVAILABLE {
            return None;
        }
        let room = self.slot - DATA_AT;
        let at = self.map.pointer(self.head * self.slot + DATA_AT, room)?;
        // SAFETY: the slot is ours until its status says otherwise, the range is within the mapping, and the borrow of
        // `self` keeps a second one from being made.
        Some(unsafe { std::slice::from_raw_parts_mut(at, room) })
    }

    fn commit(&mut self, len: usize) {
        let Some(header) = self.map.pointer(self.head * self.slot, size_of::<libc::tpacket2_hdr>()) else { return };
        // SAFETY: a slot begins with a tpacket2_hdr, is aligned to 2048, and is ours until the store below.
        unsafe {
            (&raw mut (*header.cast::<libc::tpacket2_hdr>()).tp_len).write(len as u32);
        }
        self.status(self.head).store(libc::TP_STATUS_SEND_REQUEST, Ordering::Release);
        self.head = (self.head + 1) % self.slots;
    }
}

/// Chunks of memory for AF_XDP, and entries of its rings; a power of two.
const CHUNKS: usize = 2048;
/// `XDP_MAX_TX_SKB_BUDGET`: how many packets a call may send.
const MAX_TX_SKB_BUDGET: libc::c_int = 9;

/// AF_XDP.
struct Xdp {
    /// Chunks to write frames to; none where they are sent from where they are, which `place` tells.
    memory: Option<Map>,
    /// First address and length of the memory that frames are sent from, and where the kernel's view of it begins.
    place: (usize, usize, usize),
    tx: Map,
    completed: Map,
    offsets: libc::xdp_mmap_offsets,
    chunk: usize,
    /// Chunks that are ours; the one used last is used first, it is in the cache.
    free: Vec<u32>,
    /// Entries given to the kernel, and taken back.
    produced: u32,
    consumed: u32,
}

impl Xdp {
    fn new(fd: &OwnedFd, index: i32, queue: u32, longest: usize, from: Option<&[u8]>) -> io::Result<Xdp> {
        let chunk = longest.next_power_of_two().max(2048);
        if chunk > 4096 {
            return Err(io::Error::other(format!("frames of {longest} bytes do not fit into its chunks")));
        }
        // SAFETY: an xdp_umem_reg of zeros is valid: integers.
        let mut region: libc::xdp_umem_reg = unsafe { std::mem::zeroed() };
        let (mut memory, mut place) = (None, (0, 0, 0));
        match from {
            Some(from) => {
                // Whole pages: the kernel never writes to them, since it is given none to receive into.
                let first = from.as_ptr() as usize;
                let page = first & !4095;
                region.addr = page as u64;
                region.len = (first - page + from.len()).next_multiple_of(4096) as u64;
                region.chunk_size = 4096;
                region.flags = libc::XDP_UMEM_UNALIGNED_CHUNK_FLAG;
                place = (first, from.len(), page);
            }
            None => {
                let map = memory.insert(Map::new(None, chunk * CHUNKS, 0)?);
                region.addr = map.at.as_ptr() as u64;
                region.len = map.len as u64;
                region.chunk_size = chunk as u32;
            }
        }
        option(fd, libc::SOL_XDP, libc::XDP_UMEM_REG, &region)?;
        let entries = CHUNKS as libc::c_int;
        // Nothing is received, but the kernel wants the ring.
        option(fd, libc::SOL_XDP, libc::XDP_UMEM_FILL_RING, &64i32)?;
        option(fd, libc::SOL_XDP, libc::XDP_UMEM_COMPLETION_RING, &entries)?;
        option(fd, libc::SOL_XDP, libc::XDP_TX_RING, &entries)?;
        // Since Linux 6.17; before, a call sends 32.
        let _ = option(fd, libc::SOL_XDP, MAX_TX_SKB_BUDGET, &entries);
        // SAFETY: offsets of zeros are valid: integers; the kernel writes at most the length told.
        let offsets = unsafe {
            let mut offsets: libc::xdp_mmap_offsets = std::mem::zeroed();
            let mut len = size_of::<libc::xdp_mmap_offsets>() as libc::socklen_t;
            let to = (&raw mut offsets).cast();
            check(libc::getsockopt(fd.as_raw_fd(), libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, to, &raw mut len))?;
            offsets
        };
        let tx = offsets.tx.desc as usize + CHUNKS * size_of::<libc::xdp_desc>();
        let tx = Map::new(Some(fd), tx, libc::XDP_PGOFF_TX_RING)?;
        let completed = offsets.cr.desc as usize + CHUNKS * size_of::<u64>();
        let completed = Map::new(Some(fd), completed, libc::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t)?;
        // SAFETY: a sockaddr_xdp of zeros is valid: integers.
        let mut address: libc::sockaddr_xdp = unsafe { std::mem::zeroed() };
        address.sxdp_family = libc::AF_XDP as u16;
        address.sxdp_flags = libc::XDP_COPY;
        address.sxdp_ifindex = index as u32;
        address.sxdp_queue_id = queue;
        let began = std::time::Instant::now();
        loop {
            // SAFETY: the address is a sockaddr_xdp of the length told, read during the call.
            let bound = unsafe {
                let len = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
                check(libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len))
            };
            match bound {
                Ok(_) => break,
                // The kernel lets go of a socket that was closed only after a moment.
                Err(e) if e.raw_os_error() == Some(libc::EBUSY) && began.elapsed().as_millis() < 300 => {
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
                Err(e) => return Err(e),
            }
        }
        let free = if from.is_some() { Vec::new() } else { (0..CHUNKS as u32).rev().collect() };
        Ok(Xdp { memory, place, tx, completed, offsets, chunk, free, produced: 0, consumed: 0 })
    }

    fn place(&mut self) -> Option<&mut [u8]> {
        if self.free.is_empty() {
            self.reclaim();
        }
        let chunk = *self.free.last()?;
        let at = self.memory.as_ref()?.pointer(chunk as usize * self.chunk, self.chunk)?;
        // SAFETY: a chunk on the list is ours, the range is within the mapping, and the borrow of `self` keeps a second
        // one from being made.
        Some(unsafe { std::slice::from_raw_parts_mut(at, self.chunk) })
    }

    fn commit(&mut self, len: usize) {
        if let Some(chunk) = self.free.pop() {
            self.describe(u64::from(chunk) * self.chunk as u64, len);
        }
    }

    /// Puts a frame into the transmit ring, which must have room.
    fn describe(&mut self, addr: u64, len: usize) {
        let entry = self.produced as usize % CHUNKS;
        let at = self.offsets.tx.desc as usize + entry * size_of::<libc::xdp_desc>();
        let Some(at) = self.tx.pointer(at, size_of::<libc::xdp_desc>()) else { return };
        let descriptor = libc::xdp_desc { addr, len: len as u32, options: 0 };
        // SAFETY: the entry is within the ring, aligned to 8 as the kernel lays it out, and not the kernel's: there is room,
        // as the caller says.
        unsafe { at.cast::<libc::xdp_desc>().write(descriptor) };
        self.produced = self.produced.wrapping_add(1);
    }

    /// Puts a frame into the ring that lies in the memory to send from; false where it does not.
    fn describe_at(&mut self, frame: &[u8]) -> bool {
        let (first, len, page) = self.place;
        let at = frame.as_ptr() as usize;
        if at < first || at + frame.len() > first + len {
            return false;
        }
        self.describe((at - page) as u64, frame.len());
        true
    }

    /// Tells the kernel of what was written; it takes it with the next call.
    fn publish(&self) {
        self.tx.word(self.offsets.tx.producer as usize).store(self.produced, Ordering::Release);
    }

    /// Entries that the kernel has not taken.
    fn waiting(&self) -> usize {
        let taken = self.tx.word(self.offsets.tx.consumer as usize).load(Ordering::Acquire);
        self.produced.wrapping_sub(taken) as usize
    }

    /// Takes back the chunks that the kernel is done with.
    fn reclaim(&mut self) {
        let producer = self.completed.word(self.offsets.cr.producer as usize).load(Ordering::Acquire);
        while self.consumed != producer {
            let at = self.offsets.cr.desc as usize + self.consumed as usize % CHUNKS * size_of::<u64>();
            let Some(at) = self.completed.pointer(at, size_of::<u64>()) else { return };
            // SAFETY: the entry is within the ring, aligned to 8, and the kernel wrote it before it moved the producer.
            let address = unsafe { at.cast::<u64>().read() };
            let chunk = (address / self.chunk as u64) as u32;
            if self.memory.is_some() && (chunk as usize) < CHUNKS && self.free.len() < CHUNKS {
                self.free.push(chunk);
            }
            self.consumed = self.consumed.wrapping_add(1);
        }
        self.completed.word(self.offsets.cr.consumer as usize).store(self.consumed, Ordering::Release);
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
    /// Of the interface.
    pub(crate) name: String,
    /// Filled and not yet handed over.
    pub(crate) pending: usize,
    pub(crate) counts: Counts,
}

impl Port {
    /// Opens an interface for frames of up to `longest` bytes. With `from` AF_XDP sends frames from where they are in this
    /// memory, by [`Port::send_from`] only.
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
        // As much as the kernel lets us keep in flight; the privileged option first.
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
        // Protocol 0: nothing is received.
        let fd = socket(libc::SOCK_RAW, libc::AF_PACKET, 0).map_err(denied)?;
        // Where the kernel does not know this, packets go through the queueing discipline.
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
        // SAFETY: the address is a sockaddr_ll of the length told, read during the call.
        let bound = unsafe {
            libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size_of::<libc::sockaddr_ll>() as libc::socklen_t)
        };
        check(bound).map_err(fail("bind"))?;
        Ok(Port { fd, way, name: name.clone(), pending: 0, counts: Counts::default() })
    }

    /// Where the next frame goes; none where there is no place before a [`Port::flush`].
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

    /// The frame of `len` bytes that was written to [`Port::place`] is to be sent.
    pub(crate) fn commit(&mut self, len: usize) {
        match &mut self.way {
            Way::Ring(ring) => ring.commit(len),
            Way::Xdp(xdp) => xdp.commit(len),
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
            Way::Xdp(xdp) => {
                xdp.publish();
                // SAFETY: no memory is passed: the packets are in the ring.
                let sent = unsafe { libc::send(self.fd.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT) };
                let error = (sent < 0).then(io::Error::last_os_error);
                xdp.reclaim();
                self.pending = xdp.waiting();
                match error.as_ref().and_then(io::Error::raw_os_error) {
                    // EAGAIN says that a call has sent as many as it may.
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

    /// Whether [`Port::send_from`] sends without a copy of our own.
    pub(crate) fn sends_from(&self) -> bool {
        match &self.way {
            Way::Mmsg(_) => true,
            Way::Xdp(xdp) => xdp.memory.is_none(),
            Way::Ring(_) => false,
        }
    }

    /// Sends frames from where they are, up to 256 of them; gives how many were taken.
    ///
    /// # Errors
    /// As [`Port::flush`].
    pub(crate) fn send_from(&mut self, frames: &[io::IoSlice<'_>]) -> io::Result<usize> {
        if let Way::Xdp(xdp) = &mut self.way {
            if !frames.iter().all(|f| xdp.describe_at(f)) {
                return Err(io::Error::other("a frame is not in the memory that was shared with the kernel"));
            }
            self.pending = frames.len();
            // The frames are the kernel's until it has taken them all; the ring has room for more than a call's.
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

    /// Waits up to a millisecond until there is room.
    pub(crate) fn wait(&self) {
        let mut poll = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
        // SAFETY: one pollfd that lives through the call.
        unsafe {
            libc::poll(&raw mut poll, 1, 1);
        }
    }
}

/// Asks the kernel for large pages for memory that was not used yet: fewer of them are looked up when it is read.
pub(crate) fn large_pages(memory: &mut [std::mem::MaybeUninit<u8>]) {
    const PAGE: usize = 4096;
    let first = (memory.as_ptr() as usize).next_multiple_of(PAGE);
    let end = (memory.as_ptr() as usize + memory.len()) & !(PAGE - 1);
    if first < end {
        // SAFETY: the range is within `memory`, which nobody else has; the advice changes how it is backed and not what is in it. That
        // the kernel may not know it does not matter.
        unsafe {
            libc::madvise(first as *mut libc::c_void, end - first, libc::MADV_HUGEPAGE);
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
