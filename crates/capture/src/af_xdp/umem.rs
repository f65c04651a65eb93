//! System calls of an AF_XDP socket, the memory for packets (UMEM), and the rings that pass it between the kernel and this
//! process. All `unsafe` code that only AF_XDP needs is here.
//!
//! See `Documentation/networking/af_xdp.rst` of Linux. The memory consists of chunks of one size. A chunk is the kernel's from
//! when its address enters the fill ring until it appears in the receive ring, and is ours after that.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::sys::{self, Chunks, Map, Place, check};

/// How long to wait for a queue that another socket is just leaving.
const LEFT: Duration = Duration::from_secs(2);
/// The address bits of an entry if chunks may be unaligned. The bits above are the packet's offset in the chunk.
const ADDRESS: u64 = (1 << 48) - 1;

/// The parameters of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    /// Bytes of a chunk: 2048 or 4096.
    pub(super) chunk: u32,
    /// Number of chunks, a power of two.
    pub(super) chunks: u32,
    /// Chunks are in huge pages (`XDP_UMEM_UNALIGNED_CHUNK_FLAG`).
    pub(super) unaligned: bool,
    /// `Some(true)` for `XDP_COPY`, `Some(false)` for `XDP_ZEROCOPY`; with `None`, the kernel decides.
    pub(super) copy: Option<bool>,
}

/// The operation that failed.
#[derive(Debug)]
pub(super) struct Failed(pub(super) &'static str, pub(super) io::Error);

/// A ring of entries of type `T`, a plain structure.
#[derive(Debug)]
struct Ring<T> {
    map: Map,
    offsets: [usize; 4],
    /// The number of entries, which is a power of two, minus one.
    mask: u32,
    /// Number of the next entry on our side.
    next: u32,
    entry: std::marker::PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    fn new(fd: &OwnedFd, entries: u32, of: &libc::xdp_ring_offset, page: libc::off_t) -> io::Result<Ring<T>> {
        let [producer, consumer, flags, desc] = [of.producer, of.consumer, of.flags, of.desc].map(|n| n as usize);
        let len = desc + entries as usize * size_of::<T>();
        let map = Map::new(fd.as_raw_fd(), len, page, libc::MAP_SHARED)?;
        if !desc.is_multiple_of(align_of::<T>()) {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        let entry = std::marker::PhantomData;
        Ok(Ring { map, offsets: [producer, consumer, flags, desc], mask: entries - 1, next: 0, entry })
    }

    fn producer(&self) -> &AtomicU32 {
        self.map.word(self.offsets[0])
    }

    fn consumer(&self) -> &AtomicU32 {
        self.map.word(self.offsets[1])
    }

    /// Whether the kernel needs a call before it continues.
    fn wants_call(&self) -> bool {
        self.map.word(self.offsets[2]).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    fn entry(&self, n: u32) -> *mut T {
        let at = self.offsets[3] + (n & self.mask) as usize * size_of::<T>();
        // SAFETY: `mask` keeps the entry within the mapping, which was made as large as all entries.
        unsafe { self.map.at.as_ptr().add(at).cast() }
    }

    /// Number of entries that the kernel has added.
    fn waiting(&self) -> u32 {
        self.producer().load(Ordering::Acquire).wrapping_sub(self.next)
    }

    /// Takes the next entry. The caller has checked `waiting`.
    fn take(&mut self) -> T {
        // SAFETY: the entry is in the mapping and aligned; the kernel wrote it before it moved the producer, which `waiting`
        // looked at, and does not write it again before the consumer moves.
        let entry = unsafe { self.entry(self.next).read() };
        self.next = self.next.wrapping_add(1);
        entry
    }

    fn took(&self) {
        self.consumer().store(self.next, Ordering::Release);
    }

    /// Adds an entry. The ring must have room.
    fn put(&mut self, value: T) {
        if self.next.wrapping_sub(self.consumer().load(Ordering::Acquire)) > self.mask {
            return;
        }
        // SAFETY: the entry is in the mapping and aligned, and not the kernel's: there is room, as was just looked at.
        unsafe { self.entry(self.next).write(value) };
        self.next = self.next.wrapping_add(1);
    }

    fn publish(&self) {
        self.producer().store(self.next, Ordering::Release);
    }
}

/// An AF_XDP socket with its memory, bound to a queue of an interface.
#[derive(Debug)]
pub(super) struct Socket {
    rx: Ring<libc::xdp_desc>,
    fill: Ring<u64>,
    fd: OwnedFd,
    memory: Map,
    shape: Shape,
    /// Taken chunks, each with a packet.
    held: Vec<Place>,
}

impl Socket {
    /// Creates a socket, and binds it.
    pub(super) fn new(index: i32, queue: u32, shape: Shape) -> Result<Socket, Failed> {
        let at = |what| move |e| Failed(what, e);
        let fd = sys::socket(libc::AF_XDP, libc::SOCK_RAW, 0).map_err(at("cannot open an AF_XDP socket"))?;
        let len = shape.chunk as usize * shape.chunks as usize;
        let mut flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        if shape.unaligned {
            flags |= libc::MAP_HUGETLB;
        }
        let memory = Map::new(-1, len, 0, flags).map_err(at(match shape.unaligned {
            true => {
                "there are not enough huge pages for mem-unaligned (/proc/sys/vm/nr_hugepages; 16 MiB for each queue)"
            }
            false => "there is no memory for its packets",
        }))?;
        // SAFETY: a structure of integers, for which zeros are valid.
        let mut region: libc::xdp_umem_reg = unsafe { std::mem::zeroed() };
        region.addr = memory.at.as_ptr() as u64;
        region.len = len as u64;
        region.chunk_size = shape.chunk;
        if shape.unaligned {
            region.flags = libc::XDP_UMEM_UNALIGNED_CHUNK_FLAG;
        }
        sys::set(&fd, libc::SOL_XDP, libc::XDP_UMEM_REG, &region)
            .map_err(at("memory for its packets cannot be locked (the capability CAP_IPC_LOCK, or ulimit -l)"))?;
        let rings = at("cannot have its rings");
        for name in [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING, libc::XDP_RX_RING] {
            // Nothing is sent, but the kernel requires a completion ring.
            let entries = if name == libc::XDP_UMEM_COMPLETION_RING { 64 } else { shape.chunks };
            sys::set(&fd, libc::SOL_XDP, name, &entries).map_err(rings)?;
        }
        let offsets = offsets(&fd).map_err(rings)?;
        let rx = Ring::new(&fd, shape.chunks, &offsets.rx, libc::XDP_PGOFF_RX_RING).map_err(rings)?;
        let page = libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t;
        let fill = Ring::new(&fd, shape.chunks, &offsets.fr, page).map_err(rings)?;
        let mut socket = Socket { rx, fill, fd, memory, shape, held: Vec::new() };
        (0..shape.chunks).for_each(|n| socket.fill.put(u64::from(n) * u64::from(shape.chunk)));
        socket.fill.publish();
        socket.bind(index, queue).map_err(at(match shape.copy {
            Some(false) => "cannot be bound to without copying (force-bind-mode: zero): its driver may not be able to",
            _ => "cannot be bound to",
        }))?;
        Ok(socket)
    }

    fn bind(&self, index: i32, queue: u32) -> io::Result<()> {
        // SAFETY: a structure of integers, for which zeros are valid.
        let mut address: libc::sockaddr_xdp = unsafe { std::mem::zeroed() };
        address.sxdp_family = libc::AF_XDP as u16;
        address.sxdp_flags = libc::XDP_USE_NEED_WAKEUP
            | match self.shape.copy {
                None => 0,
                Some(true) => libc::XDP_COPY,
                Some(false) => libc::XDP_ZEROCOPY,
            };
        address.sxdp_ifindex = index.cast_unsigned();
        address.sxdp_queue_id = queue;
        let len = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
        let end = Instant::now() + LEFT;
        loop {
            // SAFETY: the kernel reads `len` bytes at `address`, which is that large.
            match check(unsafe { libc::bind(self.fd.as_raw_fd(), (&raw const address).cast(), len) }) {
                Ok(_) => return Ok(()),
                // The kernel frees the queue of a closed socket only after a moment.
                Err(e) if e.raw_os_error() == Some(libc::EBUSY) && Instant::now() < end => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Its descriptor, for a map of sockets.
    pub(super) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Whether packets arrive without a copy.
    pub(super) fn zero_copy(&self) -> bool {
        let mut flags = 0u32;
        // SAFETY: any bytes are a number.
        let got = unsafe { sys::get(&self.fd, libc::SOL_XDP, libc::XDP_OPTIONS, &mut flags) };
        got.is_ok() && flags & libc::XDP_OPTIONS_ZEROCOPY != 0
    }

    /// Makes calls poll the card for `micros` before they wait, with `budget` packets at a time.
    pub(super) fn busy_poll(&self, micros: u32, budget: u32) -> io::Result<()> {
        let number = |n: u32| libc::c_int::try_from(n).unwrap_or(libc::c_int::MAX);
        sys::set(&self.fd, libc::SOL_SOCKET, libc::SO_PREFER_BUSY_POLL, &1 as &libc::c_int)?;
        sys::set(&self.fd, libc::SOL_SOCKET, libc::SO_BUSY_POLL, &number(micros))?;
        sys::set(&self.fd, libc::SOL_SOCKET, libc::SO_BUSY_POLL_BUDGET, &number(budget))
    }

    /// Calls the kernel, which then continues to fill the memory and, with busy polling, checks for packets.
    pub(super) fn call(&self) {
        // SAFETY: no memory is handed over. An error only means that nothing was received.
        unsafe {
            libc::recvfrom(
                self.fd(),
                std::ptr::null_mut(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            )
        };
    }

    /// Number of packets that can be taken.
    #[inline]
    pub(super) fn waiting(&self) -> u32 {
        self.rx.waiting()
    }

    /// Takes at most `max` packets. Returns the number of invalid entries, which are skipped.
    pub(super) fn take(&mut self, max: usize) -> u64 {
        let mut unreadable = 0;
        for _ in 0..self.waiting().min(u32::try_from(max).unwrap_or(u32::MAX)) {
            let d = self.rx.take();
            let (start, chunk) = match self.shape.unaligned {
                true => ((d.addr & ADDRESS) + (d.addr >> 48), d.addr & ADDRESS),
                false => (d.addr, d.addr & !(u64::from(self.shape.chunk) - 1)),
            };
            let end = start.saturating_add(u64::from(d.len));
            match u32::try_from(start) {
                Ok(start) if end <= self.memory.len as u64 => self.held.push(Place { start, len: d.len, chunk }),
                _ => unreadable += 1,
            }
        }
        self.rx.took();
        unreadable
    }

    /// Gives back the taken chunks that `wanted` rejects.
    pub(super) fn keep(&mut self, mut wanted: impl FnMut(&[u8]) -> bool) {
        let Socket { memory, held, fill, .. } = self;
        held.retain(|p| {
            // SAFETY: as in `view`; the chunk is given back after its last use.
            let one = unsafe { Chunks::new(memory, std::slice::from_ref(p)) };
            let keeps = wanted(one.get(0));
            if !keeps {
                fill.put(p.chunk);
            }
            keeps
        });
        fill.publish();
    }

    /// Gives back all taken chunks.
    pub(super) fn give_back(&mut self) {
        if self.held.is_empty() {
            return;
        }
        // There is room: the ring has as many entries as there are chunks.
        for p in self.held.drain(..) {
            self.fill.put(p.chunk);
        }
        self.fill.publish();
        if self.fill.wants_call() {
            self.call();
        }
    }

    /// The taken chunks.
    pub(super) fn held(&self) -> &[Place] {
        &self.held
    }

    /// Read access to the taken chunks.
    pub(super) fn view(&self) -> Chunks<'_> {
        // SAFETY: places were checked when they were taken. Their chunks are ours: the kernel does not write to them until they are
        // given back, which needs `&mut Socket`.
        unsafe { Chunks::new(&self.memory, &self.held) }
    }

    /// The kernel's counters: dropped, invalid descriptors, ring full, no chunk to fill.
    pub(super) fn statistics(&self) -> io::Result<[u64; 4]> {
        // struct xdp_statistics: rx_dropped, rx_invalid_descs, tx_invalid_descs, rx_ring_full, rx_fill_ring_empty_descs,
        // tx_ring_empty_descs.
        let mut s = [0u64; 6];
        // SAFETY: any bytes are numbers.
        unsafe { sys::get(&self.fd, libc::SOL_XDP, libc::XDP_STATISTICS, &mut s) }?;
        Ok([s[0], s[1], s[3], s[4]])
    }
}

fn offsets(fd: &OwnedFd) -> io::Result<libc::xdp_mmap_offsets> {
    // SAFETY: a structure of integers, for which zeros are valid.
    let mut offsets: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
    // SAFETY: a structure of integers.
    let len = unsafe { sys::get(fd, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, &mut offsets) }?;
    // Before Linux 5.4 the structure is shorter, without flags.
    if len != size_of::<libc::xdp_mmap_offsets>() {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "Linux 5.4 is needed"));
    }
    Ok(offsets)
}
