//! Memory that the kernel and this process share.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

/// Memory shared with the kernel.
pub(super) struct Map {
    pub(super) at: NonNull<u8>,
    pub(super) len: usize,
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
    /// Maps a socket's ring, or new memory if there is no socket.
    pub(super) fn new(fd: Option<&OwnedFd>, len: usize, offset: libc::off_t) -> io::Result<Map> {
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

    /// A number that the kernel also reads or writes. `at` is a multiple of 4.
    pub(super) fn word(&self, at: usize) -> &AtomicU32 {
        let at = at.min(self.len.saturating_sub(4)) & !3;
        // SAFETY: within the mapping, which begins at a page; aligned to 4; only ever used as an atomic number. It lives
        // as long as `self`.
        unsafe { AtomicU32::from_ptr(self.at.as_ptr().add(at).cast::<u32>()) }
    }

    /// A pointer to `n` bytes at `at`; `None` unless all of them are within the mapping.
    pub(super) fn pointer(&self, at: usize, n: usize) -> Option<*mut u8> {
        // SAFETY: within the mapping.
        (at.checked_add(n)? <= self.len).then(|| unsafe { self.at.as_ptr().add(at) })
    }
}
