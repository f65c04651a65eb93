//! Waits of cores for memory: scratchpad, caches, DRAM, code.

use crate::design::Sharing;

use super::{Card, Lock, PACKETS, TABLES, WRITE_BUFFER};

impl Card<'_> {
    pub(super) fn address(&self, packet: u32) -> u32 {
        packet.wrapping_mul(self.stride) & PACKETS
    }

    /// A hardware assist moves bytes between its buffers and DRAM, one row at a time. Returns the end time.
    pub(super) fn transfer(&mut self, now: u64, address: u32, bytes: u32) -> u64 {
        let row = self.design.dram.row;
        let (mut at, mut left, mut end) = (address, bytes, now);
        while left > 0 {
            let part = left.min(row - at % row);
            end = self.dram.access(now, at, part, 1);
            at = at.wrapping_add(part);
            left -= part;
        }
        end
    }

    /// Executes instructions on a core, with their accesses to scratchpad and data ([`super::pace`]). Returns the end time.
    #[inline]
    pub(super) fn compute(&mut self, core: usize, now: u64, instructions: f64) -> u64 {
        let idle = self.idle.count_ones() as usize;
        let Some((pace, done)) = self.paces.get_mut(idle) else { return now };
        *done += instructions;
        let mut end = now + (instructions * pace.time) as u64;
        if self.cold & 1 << core != 0 {
            self.cold &= !(1 << core);
            end += self.refill.0;
            self.refilled += self.refill.1;
        }
        end
    }

    /// Reads `bytes` from DRAM, through the core's cache if there is one. Returns the end time.
    #[inline]
    pub(super) fn read(&mut self, core: usize, now: u64, address: u32, bytes: u32) -> u64 {
        let block = self.design.block;
        let first = address & !(block - 1);
        let blocks = bytes.div_ceil(block);
        let at = match (self.caches.is_empty(), self.design.sharing) {
            (true, _) => return self.read_words(now, first, blocks),
            (false, Sharing::Shared) => self.read_shared(now, first, blocks),
            (false, Sharing::Private) => self.read_private(core, now, first, blocks),
        };
        self.out.reads.0 += u64::from(blocks);
        at
    }

    /// Without a cache, each word is a separate access.
    fn read_words(&mut self, now: u64, mut address: u32, blocks: u32) -> u64 {
        let block = self.design.block;
        let mut at = now;
        for _ in 0..blocks {
            at = self.dram.access(at, address, block, block / 4);
            address = address.wrapping_add(block);
        }
        at
    }

    fn read_shared(&mut self, now: u64, mut address: u32, blocks: u32) -> u64 {
        let block = self.design.block;
        let (shift, mask) = (block.trailing_zeros(), self.ports.len() - 1);
        let word = self.cycle as u64;
        let all = word * u64::from(block / 4);
        let Some(cache) = self.caches.first_mut() else { return now };
        let (mut at, mut missed) = (now, 0);
        for _ in 0..blocks {
            // The pipeline hides the core's own accesses, but not the wait for other cores' accesses.
            let port = &mut self.ports[(address >> shift) as usize & mask];
            let start = at.max(*port);
            *port = start + all;
            at = start + word;
            if !cache.read(address) {
                missed += 1;
                at = self.dram.access(at, address, block, 1);
            }
            address = address.wrapping_add(block);
        }
        self.out.reads.1 += missed;
        at
    }

    fn read_private(&mut self, core: usize, now: u64, mut address: u32, blocks: u32) -> u64 {
        let block = self.design.block;
        let Some(cache) = self.caches.get_mut(core) else { return now };
        let (mut at, mut missed) = (now, 0);
        for _ in 0..blocks {
            if !cache.read(address) {
                missed += 1;
                at = self.dram.access(at, address, block, 1);
            }
            address = address.wrapping_add(block);
        }
        self.out.reads.1 += missed;
        at
    }

    /// Writes one block as a posted write. Returns the time at which the core continues.
    pub(super) fn write(&mut self, now: u64, address: u32) -> u64 {
        let block = self.design.block;
        let end = self.dram.access(now, address & !(block - 1), block, 1);
        now.max(end.saturating_sub(WRITE_BUFFER))
    }

    pub(super) fn lock(&mut self, core: usize, lock: Lock) {
        if self.design.sharing == Sharing::Private
            && let Some(cache) = self.caches.get_mut(core)
        {
            let owner = &mut self.owners[lock as usize];
            if *owner != core as u8 {
                *owner = core as u8;
                cache.flush();
                self.cold |= 1 << core;
            }
        }
    }

    /// Loads the code of a stage into the instruction cache, unless it is there. Returns the end time.
    pub(super) fn code(&mut self, core: usize, now: u64, stage: u8) -> u64 {
        let code = &mut self.cores[core].code;
        let found = code.iter().position(|s| *s == stage);
        code[..=found.unwrap_or(3)].rotate_right(1);
        code[0] = stage;
        if found.is_some_and(|place| place < self.resident) || self.resident >= 4 && found.is_some() {
            return now;
        }
        let bytes = self.costs.code as u32;
        if bytes == 0 { now } else { self.transfer(now, TABLES - 0x10_0000 + u32::from(stage) * bytes, bytes) }
    }
}
