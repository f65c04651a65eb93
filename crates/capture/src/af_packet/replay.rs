//! Reads memory in the kernel's format as live capture does, for the fuzz targets. No socket and no
//! privilege is needed.

use std::io;

use margay_packet::LinkType;

use super::block::{self, Cursor, Trust};
use super::ring::Ring;

/// Frames of `memory`, read as a ring of TPACKET_V3 blocks of `block_size` bytes that the kernel has handed over. The code
/// for the kernel's blocks reads each one, then releases it. `block_size` is a multiple of 4.
///
/// # Errors
/// The memory cannot be mapped.
///
/// # Panics
/// If a frame is not within its block.
pub fn blocks(memory: &[u8], block_size: usize, trust: Trust) -> io::Result<Vec<Vec<u8>>> {
    let mut ring = Ring::over(memory, block_size)?;
    let mut frames = Vec::new();
    for _ in 0..memory.len() / block_size {
        if !ring.ready() {
            assert!(ring.block().is_empty() && ring.block_mut().is_empty(), "a block of the kernel's is handed out");
            break;
        }
        let mut cursor = Cursor::of(ring.block());
        let block = ring.block_mut();
        while let Some(meta) = cursor.next(block, LinkType::ETHERNET, trust) {
            let (start, len) = (meta.start as usize, meta.len as usize);
            frames.push(block.get(start..start + len).expect("a frame within its block").to_vec());
        }
        ring.release();
    }
    Ok(frames)
}

/// The frame of a TPACKET_V2 slot, if there is one: read from the slot itself, and read as if it had been too large for the slot.
pub fn slot(slot: &mut [u8], beside: &mut [u8], trust: Trust) -> [Option<Vec<u8>>; 2] {
    let len = beside.len().saturating_sub(block::VLAN_TAG);
    let copy = |bytes: &[u8], s: block::Slot| {
        let (start, len) = (s.meta.start as usize, s.meta.len as usize);
        assert!(s.offload.checksum().is_none_or(|at| at <= usize::from(u16::MAX) * 2));
        bytes.get(start..start + len).expect("a frame within its slot").to_vec()
    };
    let offload =
        block::slot(&mut slot.to_vec(), LinkType::ETHERNET, trust).map_or_else(Default::default, |s| s.offload);
    if let Some(head) = slot.first_chunk() {
        // Whatever the result, it must not read out of bounds.
        let _ = block::is_of(head, beside, len);
    }
    let large = block::beside(slot, beside, len, offload, LinkType::ETHERNET, trust).map(|s| copy(beside, s));
    let small = block::slot(slot, LinkType::ETHERNET, trust).map(|s| copy(slot, s));
    [small, large]
}
