//! AF_XDP in copy mode (Documentation/networking/af_xdp.rst).

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;

use super::map::Map;
use super::{check, option};

/// Chunks of memory for AF_XDP, and entries of its rings; a power of two.
const CHUNKS: usize = 2048;
/// `XDP_MAX_TX_SKB_BUDGET`: the option for the most packets that a call sends.
const MAX_TX_SKB_BUDGET: libc::c_int = 9;

/// An AF_XDP socket's memory and rings.
pub(super) struct Xdp {
    /// Chunks to write frames to; `None` if frames are sent directly from the memory in `place`.
    pub(super) memory: Option<Map>,
    /// Address and length of the memory that frames are sent from, and the address of its first page, where the kernel's offsets start.
    place: (usize, usize, usize),
    tx: Map,
    completed: Map,
    offsets: libc::xdp_mmap_offsets,
    chunk: usize,
    /// Free chunks. The most recently used one is taken first, because it is in the cache.
    free: Vec<u32>,
    /// Number of entries given to the kernel, and of those taken back.
    produced: u32,
    consumed: u32,
}

impl Xdp {
    pub(super) fn new(fd: &OwnedFd, index: i32, queue: u32, longest: usize, from: Option<&[u8]>) -> io::Result<Xdp> {
        let chunk = longest.next_power_of_two().max(2048);
        if chunk > 4096 {
            return Err(io::Error::other(format!("frames of {longest} bytes do not fit into its chunks")));
        }
        // SAFETY: an xdp_umem_reg of zeros is valid: integers.
        let mut region: libc::xdp_umem_reg = unsafe { std::mem::zeroed() };
        let (mut memory, mut place) = (None, (0, 0, 0));
        match from {
            Some(from) => {
                // Register whole pages. The kernel never writes to them, because the fill ring stays empty.
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
        // The kernel requires the fill ring, although nothing is received.
        option(fd, libc::SOL_XDP, libc::XDP_UMEM_FILL_RING, &64i32)?;
        option(fd, libc::SOL_XDP, libc::XDP_UMEM_COMPLETION_RING, &entries)?;
        option(fd, libc::SOL_XDP, libc::XDP_TX_RING, &entries)?;
        // The option exists since Linux 6.17. Without it, a call sends at most 32 packets.
        let _ = option(fd, libc::SOL_XDP, MAX_TX_SKB_BUDGET, &entries);
        // SAFETY: offsets of zeros are valid: integers; the kernel writes at most the given length.
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
            // SAFETY: the address is a sockaddr_xdp of the given length, read during the call.
            let bound = unsafe {
                let len = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
                check(libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len))
            };
            match bound {
                Ok(_) => break,
                // The kernel frees the queue of a closed socket only after a moment.
                Err(e) if e.raw_os_error() == Some(libc::EBUSY) && began.elapsed().as_millis() < 300 => {
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
                Err(e) => return Err(e),
            }
        }
        let free = if from.is_some() { Vec::new() } else { (0..CHUNKS as u32).rev().collect() };
        Ok(Xdp { memory, place, tx, completed, offsets, chunk, free, produced: 0, consumed: 0 })
    }

    pub(super) fn place(&mut self) -> Option<&mut [u8]> {
        if self.free.is_empty() {
            self.reclaim();
        }
        let chunk = *self.free.last()?;
        let at = self.memory.as_ref()?.pointer(chunk as usize * self.chunk, self.chunk)?;
        // SAFETY: a chunk on the list is ours, the range is within the mapping, and the borrow of `self` keeps a second
        // one from being made.
        Some(unsafe { std::slice::from_raw_parts_mut(at, self.chunk) })
    }

    pub(super) fn commit(&mut self, len: usize) {
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

    /// Puts a frame from the memory in `place` into the transmit ring; returns false if the frame is elsewhere.
    pub(super) fn describe_at(&mut self, frame: &[u8]) -> bool {
        let (first, len, page) = self.place;
        let at = frame.as_ptr() as usize;
        if at < first || at + frame.len() > first + len {
            return false;
        }
        self.describe((at - page) as u64, frame.len());
        true
    }

    /// Publishes the new entries. The kernel takes them at the next call.
    pub(super) fn publish(&self) {
        self.tx.word(self.offsets.tx.producer as usize).store(self.produced, Ordering::Release);
    }

    /// Number of entries that the kernel has not taken.
    pub(super) fn waiting(&self) -> usize {
        let taken = self.tx.word(self.offsets.tx.consumer as usize).load(Ordering::Acquire);
        self.produced.wrapping_sub(taken) as usize
    }

    /// Takes back the chunks that the kernel has finished sending.
    pub(super) fn reclaim(&mut self) {
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
