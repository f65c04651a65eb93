//! Offloads of an interface: changes of packets by card and kernel before capture.
//!
//! LRO and GRO merge received segments into larger packets. TSO and GSO segment the host's own large packets only after they were
//! captured. [`Offloads::disable`] switches these off; dropping the result switches them on again.

use std::io;

use crate::interface::{Asker, ETHTOOL_GFLAGS, Interface};
use crate::live::LiveError;

/// `ETHTOOL_SFLAGS` and the bit of LRO in its number (`include/uapi/linux/ethtool.h`).
const SET_FLAGS: u32 = 0x26;
const FLAG_LRO: u32 = 1 << 15;

/// An offload with the commands that read and set it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Offload {
    /// Its name in `ethtool -K`.
    name: &'static str,
    get: u32,
    set: u32,
    /// Its bit, if the number combines several offloads.
    bit: Option<u32>,
}

/// All offloads, in the order of switching them off. TSO comes before GSO, which it falls back to.
const ALL: [Offload; 4] = [
    Offload { name: "lro", get: ETHTOOL_GFLAGS, set: SET_FLAGS, bit: Some(FLAG_LRO) },
    Offload { name: "gro", get: 0x2b, set: 0x2c, bit: None },
    Offload { name: "tso", get: 0x1e, set: 0x1f, bit: None },
    Offload { name: "gso", get: 0x23, set: 0x24, bit: None },
];

impl Offload {
    /// Whether it is on; `false` if the driver does not know it.
    fn is_on(self, asker: &Asker, interface: &str) -> bool {
        asker.number(interface, self.get).is_ok_and(|n| n & self.bit.unwrap_or(u32::MAX) != 0)
    }

    fn switch(self, asker: &Asker, interface: &str, on: bool) -> io::Result<()> {
        let number = match self.bit {
            None => u32::from(on),
            Some(bit) => {
                let now = asker.number(interface, self.get)?;
                if on { now | bit } else { now & !bit }
            }
        };
        asker.set_number(interface, self.set, number)
    }
}

/// Keeps an interface's offloads off until it is dropped.
#[derive(Debug)]
pub struct Offloads {
    interface: String,
    asker: Asker,
    off: Vec<Offload>,
    /// Offloads that the driver does not switch off.
    fixed: Vec<&'static str>,
}

impl Offloads {
    /// Switches off the offloads that are on. Those that the driver refuses to switch off stay on, and are in [`Offloads::fixed`].
    ///
    /// # Errors
    /// There is no such interface, or the process lacks the permission (`CAP_NET_ADMIN`).
    pub fn disable(interface: &str) -> Result<Offloads, LiveError> {
        Interface::find(interface)?;
        let failed = |what, source| LiveError::System { interface: interface.to_owned(), what, source };
        let asker = Asker::new().map_err(|e| failed("asking for its offloads", e))?;
        let mut made = Offloads { interface: interface.to_owned(), asker, off: Vec::new(), fixed: Vec::new() };
        for offload in ALL {
            if !offload.is_on(&made.asker, interface) {
                continue;
            }
            match offload.switch(&made.asker, interface, false) {
                Ok(()) => made.off.push(offload),
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                    return Err(failed("switching its offloads off (that needs the capability CAP_NET_ADMIN)", e));
                }
                Err(_) => made.fixed.push(offload.name),
            }
        }
        Ok(made)
    }

    /// The interface.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Offloads that were switched off, by the names of `ethtool -K`.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.off.iter().map(|o| o.name)
    }

    /// Offloads that stay on.
    pub fn fixed(&self) -> &[&'static str] {
        &self.fixed
    }

    /// Switches the offloads on again.
    ///
    /// # Errors
    /// The first error. The remaining offloads are still switched on.
    pub fn restore(&mut self) -> Result<(), LiveError> {
        let mut result = Ok(());
        for offload in std::mem::take(&mut self.off).into_iter().rev() {
            if let Err(source) = offload.switch(&self.asker, &self.interface, true) {
                let interface = self.interface.clone();
                result =
                    result.and(Err(LiveError::System { interface, what: "switching its offloads on again", source }));
            }
        }
        result
    }
}

impl Drop for Offloads {
    fn drop(&mut self) {
        // A caller that needs the result calls `restore`.
        let _ = self.restore();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_is_not_there_is_an_error() {
        assert!(matches!(Offloads::disable("no-such-card"), Err(LiveError::NoInterface(_))));
    }
}
