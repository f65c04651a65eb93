//! `ioctl(SIOCETHTOOL)`: the structures of `include/uapi/linux/ethtool.h` as bytes. [`crate::tune`] interprets them.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const SIOCETHTOOL: u64 = 0x8946;
const SIOCGIFFLAGS: u64 = 0x8913;
const SIOCSIFFLAGS: u64 = 0x8914;
const GET_CHANNELS: u32 = 0x3c;
const GET_STRINGS: u32 = 0x1b;
const GET_STATISTICS: u32 = 0x1d;
const GET_SET_INFO: u32 = 0x37;
/// The string set with the names of a driver's statistics.
const STATISTICS: u32 = 1;
const STRING: usize = 32;
/// Most statistics of an interface. A driver writes all of its statistics, however small the buffer is.
const MOST_STATISTICS: usize = 8192;

/// The queues of an interface in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Queues {
    pub(crate) now: u32,
    /// Maximum number of queues.
    pub(crate) most: u32,
    /// Name in the output of `ethtool -L`.
    pub(crate) word: &'static str,
}

/// An interface, by its name in this network namespace.
pub(crate) struct Ethtool {
    fd: OwnedFd,
    name: [libc::c_char; libc::IFNAMSIZ],
}

impl Ethtool {
    /// Opens a socket for requests. Rejects a name that is too long for an interface.
    ///
    /// # Errors
    /// `ENODEV` for such a name; otherwise the error of `socket`.
    pub(crate) fn open(name: &str) -> io::Result<Ethtool> {
        if name.len() >= libc::IFNAMSIZ {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        // SAFETY: the call takes no pointer.
        let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut out = [0; libc::IFNAMSIZ];
        // The last byte stays zero.
        for (to, from) in out.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        Ok(Ethtool { fd, name: out })
    }

    fn request(&self) -> libc::ifreq {
        // SAFETY: an ifreq of zeros is valid: integers, byte arrays, null pointers.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        request.ifr_name = self.name;
        request
    }

    /// Passes a command's structure to the driver, which may change it. `data` begins with the command's number. Its
    /// length must be the structure's, including the variable part whose length the structure gives.
    ///
    /// # Errors
    /// The driver's error: `EOPNOTSUPP` if it does not know the command.
    pub(crate) fn call(&self, data: &mut [u8]) -> io::Result<()> {
        let mut request = self.request();
        request.ifr_ifru.ifru_data = data.as_mut_ptr().cast();
        // SAFETY: the name ends with NUL. The kernel reads and writes the command's structure within `data`, which
        // outlives the call and has no other borrow. Callers guarantee that its length is the structure's.
        let result = unsafe { libc::ioctl(self.fd.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// The same with a structure of numbers, which starts with the command's.
    ///
    /// # Errors
    /// As [`Ethtool::call`].
    pub(crate) fn numbers<const N: usize>(&self, numbers: &mut [u32; N]) -> io::Result<()> {
        let mut data: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
        self.call(&mut data)?;
        for (number, bytes) in numbers.iter_mut().zip(data.chunks_exact(4)) {
            *number = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        Ok(())
    }

    /// `IFF_` flags of the interface.
    ///
    /// # Errors
    /// If the interface does not exist.
    pub(crate) fn flags(&self) -> io::Result<u16> {
        let mut request = self.request();
        // SAFETY: as in `call`; the kernel writes the flags, which are within the request.
        let result = unsafe { libc::ioctl(self.fd.as_raw_fd(), SIOCGIFFLAGS as _, &raw mut request) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel wrote this member.
        Ok(unsafe { request.ifr_ifru.ifru_flags } as u16)
    }

    /// Sets the interface's flags.
    ///
    /// # Errors
    /// If the interface does not exist, or the user lacks the permission.
    pub(crate) fn set_flags(&self, flags: u16) -> io::Result<()> {
        let mut request = self.request();
        request.ifr_ifru.ifru_flags = flags as libc::c_short;
        // SAFETY: as in `call`; the kernel reads name and flags.
        let result = unsafe { libc::ioctl(self.fd.as_raw_fd(), SIOCSIFFLAGS as _, &raw mut request) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Number of the driver's statistics; 0 if it has none, or more than the limit.
    fn statistics_count(&self) -> usize {
        // The command, a reserved word, a mask of sets in two words, and a count for each requested set.
        let mut info = [GET_SET_INFO, 0, 0, 0, 0];
        info[if cfg!(target_endian = "little") { 2 } else { 3 }] = 1 << STATISTICS;
        match self.numbers(&mut info) {
            Ok(()) => Some(info[4] as usize).filter(|count| *count <= MOST_STATISTICS).unwrap_or(0),
            Err(_) => 0,
        }
    }

    /// Names of the driver's statistics, as in `ethtool -S`; empty if it has none.
    pub(crate) fn statistics_names(&self) -> Vec<String> {
        let count = self.statistics_count();
        if count == 0 {
            return Vec::new();
        }
        // Leave room for the maximum, because the driver may have more names by now.
        let mut data = vec![0; 12 + MOST_STATISTICS * STRING];
        for (to, word) in data.chunks_exact_mut(4).zip([GET_STRINGS, STATISTICS, count as u32]) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        if self.call(&mut data).is_err() {
            return Vec::new();
        }
        let name = |bytes: &[u8]| {
            let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
            let plain = |byte: &u8| if byte.is_ascii_graphic() && *byte != b',' { char::from(*byte) } else { '_' };
            bytes[..end].iter().map(plain).collect()
        };
        let mut names: Vec<String> = data[12..].chunks_exact(STRING).take(count).map(name).collect();
        // Some drivers use a name twice, but column names are unique.
        let mut seen = std::collections::HashSet::new();
        for (at, name) in names.iter_mut().enumerate() {
            if name.is_empty() || !seen.insert(name.clone()) {
                *name = format!("{name}.{at}");
                seen.insert(name.clone());
            }
        }
        names
    }

    /// The driver's statistics, in the order of their names; `None` if the driver does not support them.
    pub(crate) fn statistics(&self) -> Option<Vec<u64>> {
        let count = self.statistics_count();
        if count == 0 {
            return None;
        }
        let mut data = vec![0; 8 + MOST_STATISTICS * 8];
        data[..4].copy_from_slice(&GET_STATISTICS.to_ne_bytes());
        data[4..8].copy_from_slice(&(count as u32).to_ne_bytes());
        self.call(&mut data).ok()?;
        let value = |bytes: &[u8]| bytes.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
        Some(data[8..].chunks_exact(8).take(count).map(value).collect())
    }

    /// `None` if the driver does not support the request.
    pub(crate) fn transmit_queues(&self) -> Option<Queues> {
        let mut n = [0; 9];
        n[0] = GET_CHANNELS;
        self.numbers(&mut n).ok()?;
        let most = n[2].saturating_add(n[4]);
        let now = n[6].saturating_add(n[8]);
        Some(Queues { now, most, word: if n[4] > 0 { "combined" } else { "tx" } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_asked() {
        let lo = Ethtool::open("lo").unwrap();
        assert_eq!(lo.flags().unwrap() & libc::IFF_LOOPBACK as u16, libc::IFF_LOOPBACK as u16);
        let unsupported = lo.numbers(&mut [0x10, 0, 0, 0, 0, 0, 0, 0, 0]).unwrap_err();
        assert_eq!(unsupported.raw_os_error(), Some(libc::EOPNOTSUPP), "it has no rings");
        assert!(lo.statistics_names().is_empty() && lo.statistics().is_none(), "it counts nothing of its own");
        let none = Ethtool::open("nosuch0").unwrap();
        assert!(none.flags().is_err() && none.transmit_queues().is_none());
        assert!(Ethtool::open("a name that is longer than any interface's").is_err());
    }
}
