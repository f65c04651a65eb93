//! What a driver says of its interface: `ioctl(SIOCETHTOOL)`, `include/uapi/linux/ethtool.h`. Nothing is changed by it.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const SIOCETHTOOL: u64 = 0x8946;
/// Commands, whose structures are the command's number and then numbers of 32 bits.
const GET_RINGS: u32 = 0x10;
const GET_FLAGS: u32 = 0x25;
const GET_GRO: u32 = 0x2b;
const GET_CHANNELS: u32 = 0x3c;
/// `ETH_FLAG_LRO`
const LRO: u32 = 1 << 15;

/// Queues of an interface in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Queues {
    pub(crate) now: u32,
    /// As many as there may be.
    pub(crate) most: u32,
    /// What `ethtool -L` calls them.
    pub(crate) word: &'static str,
}

/// An interface, by its name in this network namespace.
pub(crate) struct Ethtool {
    fd: OwnedFd,
    name: [libc::c_char; libc::IFNAMSIZ],
}

impl Ethtool {
    pub(crate) fn open(name: &str) -> io::Result<Ethtool> {
        // SAFETY: no memory is passed.
        let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nobody else's.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut out = [0; libc::IFNAMSIZ];
        // The last byte stays zero.
        for (to, from) in out.iter_mut().zip(name.bytes().take(libc::IFNAMSIZ - 1)) {
            *to = from as libc::c_char;
        }
        Ok(Ethtool { fd, name: out })
    }

    /// Asks with one of the commands above; `N` is how many numbers its structure has, the command's own among them.
    fn ask<const N: usize>(&self, command: u32) -> Option<[u32; N]> {
        let mut numbers = [0u32; N];
        *numbers.first_mut()? = command;
        // SAFETY: an ifreq of zeros is valid: integers, byte arrays, null pointers.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        request.ifr_name = self.name;
        request.ifr_ifru.ifru_data = (&raw mut numbers).cast();
        // SAFETY: the name ends with NUL; the kernel writes the command's structure, which `numbers` is as large as, lives through
        // the call and is borrowed for nothing else.
        let result = unsafe { libc::ioctl(self.fd.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) };
        (result >= 0).then_some(numbers)
    }

    /// None where the driver does not say.
    pub(crate) fn transmit_queues(&self) -> Option<Queues> {
        self.queues(2, "tx")
    }

    /// None where the driver does not say.
    pub(crate) fn receive_queues(&self) -> Option<Queues> {
        self.queues(1, "rx")
    }

    /// `struct ethtool_channels`: most to receive, to send, for other things, for both; and how many there are of each.
    fn queues(&self, at: usize, word: &'static str) -> Option<Queues> {
        let n = self.ask::<9>(GET_CHANNELS)?;
        let most = n[at].saturating_add(n[4]);
        let now = n[at + 4].saturating_add(n[8]);
        Some(Queues { now, most, word: if n[4] > 0 { "combined" } else { word } })
    }

    /// Descriptors of a receive ring, and as many as there may be: `struct ethtool_ringparam`. None where the driver does not say.
    pub(crate) fn receive_ring(&self) -> Option<(u32, u32)> {
        let n = self.ask::<9>(GET_RINGS)?;
        (n[1] > 0).then_some((n[5], n[1]))
    }

    /// Whether the card merges packets; none where the driver does not say.
    pub(crate) fn lro(&self) -> Option<bool> {
        Some(self.ask::<2>(GET_FLAGS)?[1] & LRO != 0)
    }

    /// Whether the kernel merges packets; none where it does not say.
    pub(crate) fn gro(&self) -> Option<bool> {
        Some(self.ask::<2>(GET_GRO)?[1] != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_asked() {
        let lo = Ethtool::open("lo").unwrap();
        assert_eq!(lo.lro(), Some(false));
        assert_eq!(lo.receive_ring(), None, "it has none");
        let none = Ethtool::open("nosuch0").unwrap();
        assert!(none.gro().is_none() && none.transmit_queues().is_none());
        assert!(Ethtool::open("a name that is longer than any interface's").unwrap().gro().is_none());
    }
}
