//! The transmit ring of a packet socket (Documentation/networking/packet_mmap.rst).

use std::io;
use std::mem::size_of;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};

use super::map::Map;
use super::{align, option};

/// Bytes of a ring. It has several times as many slots as a receiver's backlog, because a virtual interface may still read a
/// slot that was given back. It has no more than that, so that it stays in a processor's cache.
const RING: usize = 4 << 20;
/// Offset in a slot at which the kernel expects the packet (`TPACKET2_HDRLEN` without the address).
const DATA_AT: usize = align(size_of::<libc::tpacket2_hdr>());
/// The kernel's transmit ring.
pub(super) struct Ring {
    map: Map,
    slot: usize,
    slots: usize,
    /// Next slot to fill.
    head: usize,
}

impl Ring {
    pub(super) fn new(fd: &OwnedFd, longest: usize) -> io::Result<Ring> {
        let slot = (DATA_AT + longest).next_power_of_two().max(2048);
        let slots = (RING / slot).max(64);
        let len = slot * slots;
        let version = libc::tpacket_versions::TPACKET_V2 as libc::c_int;
        option(fd, libc::SOL_PACKET, libc::PACKET_VERSION, &version)?;
        // A block is contiguous memory, and small blocks are always available.
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

    /// Memory for the packet in the next slot; `None` if the slot is still the kernel's.
    pub(super) fn place(&mut self) -> Option<&mut [u8]> {
        if self.status(self.head).load(Ordering::Acquire) != libc::TP_STATUS_AVAILABLE {
            return None;
        }
        let room = self.slot - DATA_AT;
        let at = self.map.pointer(self.head * self.slot + DATA_AT, room)?;
        // SAFETY: the slot is ours until its status says otherwise, the range is within the mapping, and the borrow of
        // `self` keeps a second one from being made.
        Some(unsafe { std::slice::from_raw_parts_mut(at, room) })
    }

    pub(super) fn commit(&mut self, len: usize) {
        let Some(header) = self.map.pointer(self.head * self.slot, size_of::<libc::tpacket2_hdr>()) else { return };
        // SAFETY: a slot begins with a tpacket2_hdr, is aligned to 2048, and is ours until the store below.
        unsafe {
            (&raw mut (*header.cast::<libc::tpacket2_hdr>()).tp_len).write(len as u32);
        }
        self.status(self.head).store(libc::TP_STATUS_SEND_REQUEST, Ordering::Release);
        self.head = (self.head + 1) % self.slots;
    }
}
