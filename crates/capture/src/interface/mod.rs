//! Network interfaces, as the kernel describes them.

mod ask;

use margay_packet::LinkType;

use crate::live::LiveError;
pub(crate) use ask::{Asker, ETHTOOL_GFLAGS};

/// An interface, as the kernel knows it now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its number.
    pub index: i32,
    /// The link type of its packets.
    pub link: LinkType,
    /// Whether it is up.
    pub up: bool,
    /// Whether it is the loopback interface.
    pub loopback: bool,
}

impl Interface {
    /// Looks up the interface called `name`.
    ///
    /// # Errors
    /// [`LiveError::Name`], [`LiveError::NoInterface`], [`LiveError::LinkLayer`], [`LiveError::System`].
    pub fn find(name: &str) -> Result<Interface, LiveError> {
        if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains(['/', '\0']) {
            return Err(LiveError::Name(name.to_owned()));
        }
        let failed = |what, source: std::io::Error| match source.raw_os_error() {
            Some(libc::ENODEV) => LiveError::NoInterface(name.to_owned()),
            _ => LiveError::System { interface: name.to_owned(), what, source },
        };
        let asker = Asker::new().map_err(|e| failed("cannot ask for interfaces", e))?;
        let index = asker.index(name).map_err(|e| failed("cannot be looked at", e))?;
        let up = asker.up(name).map_err(|e| failed("cannot be looked at", e))?;
        let hardware = asker.hardware(name).map_err(|e| failed("cannot be looked at", e))?;
        let link = link(hardware).ok_or_else(|| LiveError::LinkLayer { interface: name.to_owned(), hardware })?;
        Ok(Interface { index, link, up, loopback: hardware == libc::ARPHRD_LOOPBACK })
    }

    /// Its MTU: the most bytes of a packet without the link layer; 0 if unknown.
    pub fn mtu(name: &str) -> u32 {
        Asker::new().and_then(|a| a.mtu(name)).unwrap_or(0)
    }

    /// Number of its receive queues, from the driver or the system. At least 1.
    pub fn queues(name: &str) -> u32 {
        let driver = Asker::new().and_then(|a| a.queues(name)).ok().filter(|n| *n > 0);
        let system = || {
            let list = std::fs::read_dir(format!("/sys/class/net/{name}/queues")).ok()?;
            let n = list.flatten().filter(|e| e.file_name().to_string_lossy().starts_with("rx-")).count();
            u32::try_from(n).ok()
        };
        driver.or_else(system).unwrap_or(1).max(1)
    }

    /// Whether its card removes VLAN tags from frames, so that programs before the network stack do not see them.
    /// Virtual interfaces report it too, for tags that were never in the frame: see [`Interface::is_physical`].
    pub fn takes_tags_out(name: &str) -> bool {
        Asker::new().and_then(|a| a.takes_tags_out(name)).unwrap_or(false)
    }

    /// Whether it is hardware.
    pub fn is_physical(name: &str) -> bool {
        std::fs::metadata(format!("/sys/class/net/{name}/device")).is_ok()
    }

    /// The driver's own counters of `name` (`ethtool -S`). Empty if it has none.
    pub fn statistics(name: &str) -> Vec<(String, u64)> {
        Asker::new().and_then(|a| a.statistics(name)).unwrap_or_default()
    }
}

/// The link type of a `SOCK_RAW` socket on an interface with this hardware type.
fn link(hardware: u16) -> Option<LinkType> {
    Some(match hardware {
        libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => LinkType::ETHERNET,
        libc::ARPHRD_NONE
        | libc::ARPHRD_TUNNEL
        | libc::ARPHRD_TUNNEL6
        | libc::ARPHRD_SIT
        | libc::ARPHRD_PPP
        | libc::ARPHRD_RAWHDLC => LinkType::RAW,
        libc::ARPHRD_CISCO => LinkType::CHDLC,
        _ => return None,
    })
}
