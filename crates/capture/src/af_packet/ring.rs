//! System calls of an AF_PACKET socket, and the memory that it shares with the kernel. All `unsafe` code that only AF_PACKET
//! needs is here and in `send`; safe code reads the content of blocks (`block`).
//!
//! See `Documentation/networking/packet_mmap.rst` of Linux and packet(7).

#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::send::Offload;
use crate::bpf::Raw;
use crate::sys::{self, Map, Polled, check};

/// Offset of a block's status word, after `version` and `offset_to_priv` of `tpacket_block_desc`.
const STATUS: usize = 8;

/// Size and layout of a ring's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// A multiple of the page size.
    pub(crate) block_size: u32,
    pub(crate) blocks: u32,
    /// After this many milliseconds, a block is handed over even if it is not full.
    pub(crate) timeout: u32,
}

/// An AF_PACKET socket.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
}

impl Socket {
    /// A socket that belongs to no interface and receives nothing yet.
    pub(crate) fn new() -> io::Result<Socket> {
        Ok(Socket { fd: sys::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK, 0)? })
    }

    pub(super) fn raw(&self) -> libc::c_int {
        self.fd.as_raw_fd()
    }

    /// `T` is a plain C structure without padding that matters.
    fn set<T>(&self, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
        sys::set(&self.fd, level, name, value)
    }

    pub(crate) fn set_int(&self, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
        self.set(level, name, &value)
    }

    fn get_int(&self, level: libc::c_int, name: libc::c_int) -> io::Result<libc::c_int> {
        let mut value: libc::c_int = 0;
        // SAFETY: any bytes are a number.
        unsafe { sys::get(&self.fd, level, name, &mut value) }?;
        Ok(value)
    }

    /// Makes the kernel run `program` on each packet, and reject packets for which it returns 0. It replaces an earlier program
    /// without a moment in which there is none.
    pub(crate) fn attach(&self, program: &[Raw]) -> io::Result<()> {
        let mut code: Vec<libc::sock_filter> =
            program.iter().map(|r| libc::sock_filter { code: r.code, jt: r.jt, jf: r.jf, k: r.k }).collect();
        let len = libc::c_ushort::try_from(code.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        // The kernel copies the instructions during the call.
        self.set(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &libc::sock_fprog { len, filter: code.as_mut_ptr() })
    }

    /// As [`Socket::attach`], for a program that is already loaded.
    pub(crate) fn attach_loaded(&self, program: libc::c_int) -> io::Result<()> {
        self.set_int(libc::SOL_SOCKET, libc::SO_ATTACH_BPF, program)
    }

    pub(crate) fn detach(&self) -> io::Result<()> {
        self.set_int(libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0)
    }

    /// Makes the interface promiscuous as long as this socket exists.
    pub(crate) fn promiscuous(&self, index: libc::c_int) -> io::Result<()> {
        let request = libc::packet_mreq {
            mr_ifindex: index,
            mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        self.set(libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &request)
    }

    /// Binds the socket to an interface, to receive all of its packets.
    pub(crate) fn bind(&self, index: libc::c_int) -> io::Result<()> {
        self.bind_for(index, libc::ETH_P_ALL as u16)
    }

    /// Binds the socket to an interface, to receive packets of this protocol (`ETH_P_`); none for protocol 0.
    pub(super) fn bind_for(&self, index: libc::c_int, protocol: u16) -> io::Result<()> {
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as libc::c_ushort,
            sll_protocol: protocol.to_be(),
            sll_ifindex: index,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the kernel reads `len` bytes at `address`, which is that large.
        check(unsafe { libc::bind(self.raw(), (&raw const address).cast(), len) }).map(drop)
    }

    /// Joins the fan-out group `id`. Returns the group's number, which differs from `id` if the flags ask for an unused one.
    pub(crate) fn fan_out(&self, id: u16, kind: u32) -> io::Result<u16> {
        let value = u32::from(id) | kind << 16;
        self.set(libc::SOL_PACKET, libc::PACKET_FANOUT, &value)?;
        Ok(self.get_int(libc::SOL_PACKET, libc::PACKET_FANOUT)? as u16)
    }

    /// Packets, drops and freezes since the previous call.
    pub(crate) fn statistics(&self) -> io::Result<[u64; 3]> {
        let mut s = libc::tpacket_stats_v3 { tp_packets: 0, tp_drops: 0, tp_freeze_q_cnt: 0 };
        // SAFETY: any bytes are numbers.
        unsafe { sys::get(&self.fd, libc::SOL_PACKET, libc::PACKET_STATISTICS, &mut s) }?;
        Ok([s.tp_packets, s.tp_drops, s.tp_freeze_q_cnt].map(u64::from))
    }

    /// Packets and drops of a ring of slots since the previous call.
    pub(crate) fn statistics_of_slots(&self) -> io::Result<[u64; 2]> {
        let mut s = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        // SAFETY: any bytes are numbers.
        unsafe { sys::get(&self.fd, libc::SOL_PACKET, libc::PACKET_STATISTICS, &mut s) }?;
        Ok([s.tp_packets, s.tp_drops].map(u64::from))
    }

    /// Takes the socket's pending error, if there is one.
    pub(crate) fn take_error(&self) -> Option<io::Error> {
        match self.get_int(libc::SOL_SOCKET, libc::SO_ERROR) {
            Ok(0) => None,
            Ok(code) => Some(io::Error::from_raw_os_error(code)),
            Err(e) => Some(e),
        }
    }

    /// Waits until there is a block, or an error.
    pub(crate) fn poll(&self, wait: Duration) -> Polled {
        let [polled] = poll_all([Some(self)], wait);
        polled.unwrap_or(Polled::Timeout)
    }

    /// Gives the socket a ring of `shape`, in memory that the kernel and this process share.
    pub(crate) fn into_ring(self, shape: Shape) -> io::Result<Ring> {
        self.set_int(libc::SOL_PACKET, libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V3 as libc::c_int)?;
        // Room before each frame for the tag that the kernel removed.
        self.set_int(libc::SOL_PACKET, libc::PACKET_RESERVE, super::block::VLAN_TAG as libc::c_int)?;
        let frame = 2048.min(shape.block_size);
        let request = libc::tpacket_req3 {
            tp_block_size: shape.block_size,
            tp_block_nr: shape.blocks,
            tp_frame_size: frame,
            tp_frame_nr: shape.block_size / frame * shape.blocks,
            tp_retire_blk_tov: shape.timeout,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        self.set(libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        let len = shape.block_size as usize * shape.blocks as usize;
        let map = self.map(len)?;
        Ok(Ring::new(map, shape.block_size as usize, self))
    }

    fn map(&self, len: usize) -> io::Result<Map> {
        Map::new(self.raw(), len, 0, libc::MAP_SHARED)
    }

    /// Gives the socket a ring of slots, each for one packet (TPACKET_V2), so that a packet is available immediately. The
    /// checksum and segment information precedes each packet (`PACKET_VNET_HDR`). [`SlotRing::receive`] gets packets larger
    /// than a slot.
    ///
    /// `slot` is a power of two of 2 KiB or more; `slots` are rounded up.
    pub(crate) fn into_slots(self, slot: u32, slots: u32) -> io::Result<SlotRing> {
        self.set_int(libc::SOL_PACKET, libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V2 as libc::c_int)?;
        self.set_int(libc::SOL_PACKET, libc::PACKET_RESERVE, super::block::VLAN_TAG as libc::c_int)?;
        self.set_int(libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
        self.set_int(libc::SOL_PACKET, libc::PACKET_COPY_THRESH, 1)?;
        let queue = LARGE_QUEUE;
        if self.set_int(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, queue).is_err() {
            self.set_int(libc::SOL_SOCKET, libc::SO_RCVBUF, queue)?;
        }
        // A block has a whole number of slots, so that slots are contiguous in memory.
        let block = slot.max(1 << 16);
        let blocks = (u64::from(slot) * u64::from(slots)).div_ceil(u64::from(block));
        let blocks = libc::c_uint::try_from(blocks).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?.max(1);
        let request = libc::tpacket_req {
            tp_block_size: block,
            tp_block_nr: blocks,
            tp_frame_size: slot,
            tp_frame_nr: block / slot * blocks,
        };
        self.set(libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        let len = block as usize * blocks as usize;
        let map = self.map(len)?;
        Ok(SlotRing { map, slot: slot as usize, next: 0, taken: 0, socket: self })
    }
}

/// Most bytes of waiting packets that are larger than a slot.
const LARGE_QUEUE: libc::c_int = 32 << 20;

/// The ring of slots: the kernel fills one after the other, and this process releases them in the same order.
#[derive(Debug)]
pub(crate) struct SlotRing {
    map: Map,
    slot: usize,
    /// The slot to give back next, below `len / slot`.
    next: usize,
    /// Number of slots from there on that are taken; `next + taken` is at most `len / slot`.
    taken: usize,
    pub(crate) socket: Socket,
}

impl SlotRing {
    fn status(&self, slot: usize) -> Option<&AtomicU32> {
        let at = slot.checked_mul(self.slot).filter(|at| at + self.slot <= self.map.len)?;
        // SAFETY: the whole slot is in the mapping, as was just seen, and begins with the word, aligned since slots are a
        // power of two of 2 KiB or more. It is looked at here through atomics alone.
        Some(unsafe { AtomicU32::from_ptr(self.map.at.as_ptr().add(at).cast()) })
    }

    /// The status of the next slot that is not taken; `None` if the kernel still has it.
    #[inline]
    pub(crate) fn ready(&self) -> Option<u32> {
        let status = self.status(self.next + self.taken)?.load(Ordering::Acquire);
        (status & libc::TP_STATUS_USER != 0).then_some(status)
    }

    /// Takes the next slot. `None` if the kernel still has it, or at the end of the memory, where the taken slots must be released
    /// first.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<&mut [u8]> {
        self.ready()?;
        let at = (self.next + self.taken) * self.slot;
        self.taken += 1;
        // SAFETY: the slot is in the mapping (`ready` looked), and ours: the kernel does not write to it until it is
        // released, which needs `&mut self`, as this does.
        Some(unsafe { std::slice::from_raw_parts_mut(self.map.at.as_ptr().add(at), self.slot) })
    }

    /// The bytes of all taken slots.
    #[inline]
    pub(crate) fn taken(&self) -> &[u8] {
        // SAFETY: `taken` slots from `next` on are in the mapping and ours until they are released, which needs `&mut self`.
        unsafe { std::slice::from_raw_parts(self.map.at.as_ptr().add(self.next * self.slot), self.taken * self.slot) }
    }

    pub(crate) fn slot_size(&self) -> usize {
        self.slot
    }

    /// Gives all taken slots back.
    pub(crate) fn release(&mut self) {
        for slot in self.next..self.next + self.taken {
            if let Some(s) = self.status(slot) {
                s.store(libc::TP_STATUS_KERNEL, Ordering::Release);
            }
        }
        self.next += self.taken;
        self.taken = 0;
        if (self.next + 1) * self.slot > self.map.len {
            self.next = 0;
        }
    }

    /// Receives the oldest packet that was too large for its slot, with its offload information and its length, which may
    /// exceed `into`. A pending socket error is returned once instead of the packet: it is counted in `errors`, and the
    /// packet is then received.
    ///
    /// # Errors
    /// `WouldBlock` if there is none. Any other error means that the packet is lost.
    pub(crate) fn receive(&self, into: &mut [u8], errors: &mut u64) -> io::Result<(Offload, usize)> {
        for _ in 0..ERRORS_TOGETHER {
            match self.receive_once(into) {
                Err(e) if is_of_the_socket(&e) => *errors += 1,
                other => return other,
            }
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn receive_once(&self, into: &mut [u8]) -> io::Result<(Offload, usize)> {
        let mut offload = Offload::default();
        let mut parts = [
            libc::iovec { iov_base: offload.0.as_mut_ptr().cast(), iov_len: offload.0.len() },
            libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() },
        ];
        // SAFETY: all of it may be zero: no name, no control data.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = parts.len() as _;
        let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        // SAFETY: the kernel writes to the two parts, which have the given sizes and are borrowed only here.
        let got = unsafe { libc::recvmsg(self.socket.raw(), &raw mut message, flags) };
        let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
        Ok((offload, got.saturating_sub(Offload::LEN)))
    }
}

/// Most consecutive socket errors, from an interface that repeatedly went down and came up.
const ERRORS_TOGETHER: u32 = 64;

/// Whether an error belongs to the socket (`SO_ERROR`: its interface went down or disappeared), not to the packet.
fn is_of_the_socket(e: &io::Error) -> bool {
    let own = [libc::ENETDOWN, libc::ENODEV, libc::ENXIO, libc::ENETUNREACH, libc::EINTR];
    e.raw_os_error().is_some_and(|code| own.contains(&code))
}

/// Waits until a socket has data or an error; returns the state of each.
pub(crate) fn poll_all<const N: usize>(sockets: [Option<&Socket>; N], wait: Duration) -> [Option<Polled>; N] {
    let mut all = sockets.map(|s| sys::polled(s.map_or(-1, Socket::raw)));
    let waited = sys::wait(&mut all, wait);
    all.map(|p| match waited {
        _ if p.fd < 0 => None,
        Err(polled) => Some(polled),
        Ok(()) if p.revents & (libc::POLLERR | libc::POLLNVAL | libc::POLLHUP) != 0 => Some(Polled::Error),
        Ok(()) if p.revents != 0 => Some(Polled::Data),
        Ok(()) => Some(Polled::Timeout),
    })
}

/// The ring: blocks that the kernel fills one after the other, and that this process releases in the same order.
#[derive(Debug)]
pub(crate) struct Ring {
    map: Arc<Map>,
    block_size: usize,
    /// Number of whole blocks in the mapping; at least 1.
    blocks: usize,
    /// The block that the kernel hands over next, or has handed over: below `blocks`.
    next: usize,
    /// Blocks before `next` that others may still read, the oldest first.
    lent: VecDeque<Arc<Block>>,
    pub(crate) socket: Socket,
}

/// A block that the kernel has handed over and does not write to, as long as this value exists.
#[derive(Debug)]
pub(crate) struct Block {
    map: Arc<Map>,
    number: usize,
    size: usize,
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `lend` made this value for a whole block of the mapping, which `map` keeps. The block is not released to the
        // kernel, and not borrowed mutably, before this value is gone.
        unsafe { std::slice::from_raw_parts(self.map.at.as_ptr().add(self.number * self.size), self.size) }
    }
}

impl Ring {
    fn new(map: Map, block_size: usize, socket: Socket) -> Ring {
        let blocks = map.len / block_size;
        Ring { map: Arc::new(map), block_size, blocks, next: 0, lent: VecDeque::new(), socket }
    }

    /// A ring over a copy of `bytes`, cut to whole blocks, instead of memory that the kernel writes. Its socket does not work.
    pub(super) fn over(bytes: &[u8], block_size: usize) -> io::Result<Ring> {
        let len = bytes.len() - bytes.len() % block_size.max(1);
        if len == 0 || !block_size.is_multiple_of(4) || block_size <= STATUS + 4 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let map = Map::new(-1, len, 0, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS)?;
        // SAFETY: both are `len` bytes long, and the mapping is new: they do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), map.at.as_ptr(), len) };
        let socket = Socket { fd: std::fs::File::open("/dev/null")?.into() };
        Ok(Ring::new(map, block_size, socket))
    }

    fn base(&self) -> *mut u8 {
        // SAFETY: `next` is below the number of blocks, so that the whole block is in the mapping.
        unsafe { self.map.at.as_ptr().add(self.next * self.block_size) }
    }

    /// The status of a block; of the first one for a number beyond the last.
    fn status(&self, block: usize) -> &AtomicU32 {
        let at = if block < self.blocks { block * self.block_size } else { 0 };
        // SAFETY: `at` is the start of a block in the mapping, as was just computed, and the word is in the block and aligned,
        // since blocks begin at pages; the kernel writes it as one word, and we look at it through atomics alone.
        unsafe { AtomicU32::from_ptr(self.map.at.as_ptr().add(at + STATUS).cast()) }
    }

    /// Whether the next block is ours. If all blocks are lent, the next one is the oldest of them.
    #[inline]
    pub(crate) fn ready(&self) -> bool {
        self.lent.len() < self.blocks && self.status(self.next).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// Whether the block after the next one is ours, too.
    #[inline]
    pub(crate) fn is_next_ready(&self) -> bool {
        self.lent.len() + 1 < self.blocks
            && self.status(self.next + 1).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// The bytes of the next block; empty while the kernel has it.
    #[inline]
    pub(crate) fn block(&self) -> &[u8] {
        if !self.ready() {
            return &[];
        }
        // SAFETY: the block is in the mapping, which outlives the borrow. It is ours: the kernel does not write to it until it
        // is released, which needs `&mut self`, and so cannot be while it is borrowed.
        unsafe { std::slice::from_raw_parts(self.base(), self.block_size) }
    }

    /// As [`Ring::block`], but writable.
    #[inline]
    pub(crate) fn block_mut(&mut self) -> &mut [u8] {
        if !self.ready() {
            return &mut [];
        }
        // SAFETY: as in `block`; `&mut self` makes the borrow unique. A lent block is never the next one (`ready`).
        unsafe { std::slice::from_raw_parts_mut(self.base(), self.block_size) }
    }

    /// Releases the block, and continues with the next one. Does nothing if the kernel has it.
    pub(crate) fn release(&mut self) {
        if !self.ready() {
            return;
        }
        if self.lent.is_empty() {
            self.status(self.next).store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.go_on();
        } else {
            // The kernel wants the earlier blocks first.
            drop(self.lend());
        }
    }

    /// Continues with the next block, while others read this one. It is released once they have dropped it, and all blocks
    /// before it are released ([`Ring::reclaim`]). `None` if the kernel has it.
    pub(crate) fn lend(&mut self) -> Option<Arc<Block>> {
        if !self.ready() {
            return None;
        }
        let block = Arc::new(Block { map: Arc::clone(&self.map), number: self.next, size: self.block_size });
        self.lent.push_back(Arc::clone(&block));
        self.go_on();
        Some(block)
    }

    /// Releases lent blocks that nobody reads any more.
    #[inline]
    pub(crate) fn reclaim(&mut self) {
        while let Some(block) = self.lent.front_mut() {
            // This is the last reference, and `get_mut` has ordered the reads of others before the release.
            let Some(Block { number, .. }) = Arc::get_mut(block) else { break };
            let number = *number;
            self.lent.pop_front();
            self.status(number).store(libc::TP_STATUS_KERNEL, Ordering::Release);
        }
    }

    fn go_on(&mut self) {
        self.next += 1;
        if self.next >= self.blocks {
            self.next = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ring of blocks of 64 bytes that the kernel has filled: block n has bytes n behind its header.
    fn filled(blocks: u8) -> Ring {
        let block = |n: u8| {
            let mut b = vec![n; 64];
            b[STATUS..STATUS + 4].copy_from_slice(&libc::TP_STATUS_USER.to_ne_bytes());
            b
        };
        Ring::over(&(0..blocks).flat_map(block).collect::<Vec<_>>(), 64).unwrap()
    }

    fn released(ring: &Ring) -> Vec<bool> {
        (0..ring.blocks).map(|n| ring.status(n).load(Ordering::Relaxed) == libc::TP_STATUS_KERNEL).collect()
    }

    #[test]
    fn lent_blocks_are_released_in_order() {
        let mut ring = filled(4);
        let (first, second) = (ring.lend().unwrap(), ring.lend().unwrap());
        assert_eq!((first.as_ref().as_ref()[63], second.as_ref().as_ref()[63]), (0, 1));
        // The third is not lent, and waits for the others.
        assert_eq!(ring.block()[63], 2);
        ring.release();
        drop(second);
        ring.reclaim();
        assert_eq!(released(&ring), [false; 4]);
        drop(first);
        ring.reclaim();
        assert_eq!(released(&ring), [true, true, true, false]);
        assert_eq!(ring.block()[63], 3);
    }

    #[test]
    fn a_lent_block_is_not_handed_out_again() {
        let mut ring = filled(2);
        assert!(ring.is_next_ready());
        let lent: Vec<_> = std::iter::from_fn(|| ring.lend()).collect();
        assert_eq!(lent.len(), 2);
        assert!(!ring.ready() && !ring.is_next_ready() && ring.block().is_empty() && ring.block_mut().is_empty());
        ring.release();
        drop(lent);
        ring.reclaim();
        assert_eq!(released(&ring), [true; 2]);
        assert!(!ring.ready());
    }

    #[test]
    fn a_lent_block_outlives_its_ring() {
        let mut ring = filled(1);
        let lent = ring.lend().unwrap();
        drop(ring);
        assert_eq!(lent.as_ref().as_ref()[63], 0);
    }
}
