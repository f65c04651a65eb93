//! System calls that ask about interfaces: netdevice(7), and `ethtool` of Linux.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::sys::{self, check};

/// `struct ifreq`: a name, and the request.
#[repr(C)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    value: Value,
}

#[repr(C)]
union Value {
    bytes: [u8; 24],
    flags: libc::c_short,
    index: libc::c_int,
    family: u16,
    data: *mut u8,
}

/// Asks the kernel about interfaces.
#[derive(Debug)]
pub(crate) struct Asker {
    fd: OwnedFd,
}

const SIOCGIFINDEX: libc::c_ulong = 0x8933;
/// Bytes of a statistic's name in `ethtool` (`ETH_GSTRING_LEN`).
const STRING: usize = 32;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSTATS: u32 = 0x1d;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETH_SS_STATS: u32 = 1;
/// Reads the flags of an interface that `ETHTOOL_SFLAGS` sets.
pub(crate) const ETHTOOL_GFLAGS: u32 = 0x25;
const ETH_FLAG_RXVLAN: u32 = 1 << 8;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
/// Limit above any card's number of statistics.
const STATS_MAX: usize = 65_536;

impl Asker {
    pub(crate) fn new() -> io::Result<Asker> {
        // The kernel answers these requests on any socket, and the running engine may create local ones.
        Ok(Asker { fd: sys::socket(libc::AF_UNIX, libc::SOCK_DGRAM, 0)? })
    }

    fn ask(&self, interface: &str, what: libc::c_ulong, value: Value) -> io::Result<Value> {
        let mut request = Request { name: [0; libc::IFNAMSIZ], value };
        let name = request.name.iter_mut().zip(interface.bytes()).take(libc::IFNAMSIZ - 1);
        name.for_each(|(to, from)| *to = from);
        // SAFETY: the kernel reads and writes a `struct ifreq`, which the request is at least as large as. What it points to,
        // where it does, is as large as the command says: see `statistics`.
        check(unsafe { libc::ioctl(self.fd.as_raw_fd(), what as _, &raw mut request) })?;
        Ok(request.value)
    }

    /// The interface's number.
    pub(crate) fn index(&self, interface: &str) -> io::Result<libc::c_int> {
        let v = self.ask(interface, SIOCGIFINDEX, Value { bytes: [0; 24] })?;
        // SAFETY: any bytes are a number.
        Ok(unsafe { v.index })
    }

    /// Whether it is up.
    pub(crate) fn up(&self, interface: &str) -> io::Result<bool> {
        let v = self.ask(interface, libc::SIOCGIFFLAGS, Value { bytes: [0; 24] })?;
        // SAFETY: any bytes are a number.
        Ok(libc::c_int::from(unsafe { v.flags }) & libc::IFF_UP != 0)
    }

    /// Its MTU: the most bytes of a packet without the link layer.
    pub(crate) fn mtu(&self, interface: &str) -> io::Result<u32> {
        let v = self.ask(interface, libc::SIOCGIFMTU, Value { bytes: [0; 24] })?;
        // SAFETY: any bytes are a number.
        Ok(u32::try_from(unsafe { v.index }).unwrap_or(0))
    }

    /// Its hardware type (`ARPHRD_`).
    pub(crate) fn hardware(&self, interface: &str) -> io::Result<u16> {
        let v = self.ask(interface, libc::SIOCGIFHWADDR, Value { bytes: [0; 24] })?;
        // SAFETY: any bytes are a number.
        Ok(unsafe { v.family })
    }

    /// Its Ethernet address; meaningless for other link layers.
    pub(crate) fn address(&self, interface: &str) -> io::Result<[u8; 6]> {
        let v = self.ask(interface, libc::SIOCGIFHWADDR, Value { bytes: [0; 24] })?;
        // SAFETY: any bytes are bytes. The family comes before the address.
        let [_, _, a, b, c, d, e, f, ..] = unsafe { v.bytes };
        Ok([a, b, c, d, e, f])
    }

    /// The driver's number of receive queues.
    pub(crate) fn queues(&self, interface: &str) -> io::Result<u32> {
        // struct ethtool_channels: cmd; at most: rx, tx, other, combined; now: the same.
        let mut c = [0u32; 9];
        c[0] = ETHTOOL_GCHANNELS;
        self.ask(interface, libc::SIOCETHTOOL, Value { data: c.as_mut_ptr().cast() })?;
        Ok(c[5].saturating_add(c[8]))
    }

    /// Whether the card removes VLAN tags from frames.
    pub(crate) fn takes_tags_out(&self, interface: &str) -> io::Result<bool> {
        Ok(self.number(interface, ETHTOOL_GFLAGS)? & ETH_FLAG_RXVLAN != 0)
    }

    /// Runs an `ethtool` command that returns one number (`struct ethtool_value`).
    pub(crate) fn number(&self, interface: &str, command: u32) -> io::Result<u32> {
        let mut v = [command, 0];
        self.ask(interface, libc::SIOCETHTOOL, Value { data: v.as_mut_ptr().cast() })?;
        Ok(v[1])
    }

    /// Runs an `ethtool` command that takes one number.
    pub(crate) fn set_number(&self, interface: &str, command: u32, number: u32) -> io::Result<()> {
        let mut v = [command, number];
        self.ask(interface, libc::SIOCETHTOOL, Value { data: v.as_mut_ptr().cast() }).map(drop)
    }

    /// The driver's own counters. Empty if it has none.
    pub(crate) fn statistics(&self, interface: &str) -> io::Result<Vec<(String, u64)>> {
        let word =
            |b: &[u8], at: usize| b.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes);
        // struct ethtool_sset_info: cmd, reserved, sset_mask (64 bits), then a number for each bit.
        let mut info = [0u8; 24];
        info[..4].copy_from_slice(&ETHTOOL_GSSET_INFO.to_ne_bytes());
        info[8..16].copy_from_slice(&(1u64 << ETH_SS_STATS).to_ne_bytes());
        self.ask(interface, libc::SIOCETHTOOL, Value { data: info.as_mut_ptr() })?;
        let count = word(&info, 16) as usize;
        if count == 0 || count > STATS_MAX {
            return Ok(Vec::new());
        }
        // struct ethtool_gstrings: cmd, string_set, len, then the names. The kernel writes all current names, so leave
        // room for far more than it just reported.
        let room = count * 4 + 4096;
        let mut names = vec![0u8; 12 + room * STRING];
        names[..4].copy_from_slice(&ETHTOOL_GSTRINGS.to_ne_bytes());
        names[4..8].copy_from_slice(&ETH_SS_STATS.to_ne_bytes());
        names[8..12].copy_from_slice(&(count as u32).to_ne_bytes());
        self.ask(interface, libc::SIOCETHTOOL, Value { data: names.as_mut_ptr() })?;
        // struct ethtool_stats: cmd, n_stats, then numbers of 64 bits.
        let mut stats = vec![0u8; 8 + room * 8];
        stats[..4].copy_from_slice(&ETHTOOL_GSTATS.to_ne_bytes());
        stats[4..8].copy_from_slice(&(count as u32).to_ne_bytes());
        self.ask(interface, libc::SIOCETHTOOL, Value { data: stats.as_mut_ptr() })?;
        let names = names[12..].chunks_exact(STRING);
        let values = stats[8..].chunks_exact(8).map(|b| b.try_into().map_or(0, u64::from_ne_bytes));
        let text = |b: &[u8]| String::from_utf8_lossy(b.split(|&b| b == 0).next().unwrap_or(b)).trim().to_owned();
        Ok(names.zip(values).take(count).map(|(n, v)| (text(n), v)).collect())
    }
}
