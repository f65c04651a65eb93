//! How hosts reassemble, by their operating system (`host-os-policy:`).

use std::net::IpAddr;

/// Which bytes count if TCP segments overlap with different data. Each policy follows an operating system (Novak and
/// Sturges, *Target-Based TCP Stream Reassembly*, 2007), by the names in `host-os-policy`.
///
/// Each policy copies Suricata's behaviour, tested for every way in which two segments can overlap. In Suricata,
/// `bsd-right`, `hpux10`, `irix`, `macos`, `windows` and `windows2k3` behave as `bsd`, `hpux11` and `old-solaris` as
/// `solaris`, and `vista` as `first`. A test with Linux 6.18 confirmed `linux`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[allow(missing_docs)]
pub enum OsPolicy {
    #[default]
    Bsd,
    BsdRight,
    OldLinux,
    Linux,
    OldSolaris,
    Solaris,
    Hpux10,
    Hpux11,
    Irix,
    MacOs,
    Windows,
    Vista,
    Windows2k3,
    First,
    Last,
}

impl OsPolicy {
    /// All policies.
    pub const ALL: [OsPolicy; 15] = [
        OsPolicy::Bsd,
        OsPolicy::BsdRight,
        OsPolicy::OldLinux,
        OsPolicy::Linux,
        OsPolicy::OldSolaris,
        OsPolicy::Solaris,
        OsPolicy::Hpux10,
        OsPolicy::Hpux11,
        OsPolicy::Irix,
        OsPolicy::MacOs,
        OsPolicy::Windows,
        OsPolicy::Vista,
        OsPolicy::Windows2k3,
        OsPolicy::First,
        OsPolicy::Last,
    ];

    /// The policy's name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            OsPolicy::Bsd => "bsd",
            OsPolicy::BsdRight => "bsd-right",
            OsPolicy::OldLinux => "old-linux",
            OsPolicy::Linux => "linux",
            OsPolicy::OldSolaris => "old-solaris",
            OsPolicy::Solaris => "solaris",
            OsPolicy::Hpux10 => "hpux10",
            OsPolicy::Hpux11 => "hpux11",
            OsPolicy::Irix => "irix",
            OsPolicy::MacOs => "macos",
            OsPolicy::Windows => "windows",
            OsPolicy::Vista => "vista",
            OsPolicy::Windows2k3 => "windows2k3",
            OsPolicy::First => "first",
            OsPolicy::Last => "last",
        }
    }

    /// The policy with that name; `_` counts as `-`, and case is ignored.
    pub fn from_name(name: &str) -> Option<OsPolicy> {
        let name = name.to_ascii_lowercase().replace('_', "-");
        Self::ALL.into_iter().find(|p| p.name() == name)
    }

    /// Whether a later segment may replace bytes of an earlier one at all.
    pub const fn replaces(self) -> bool {
        !matches!(self, OsPolicy::First | OsPolicy::Vista)
    }

    /// Whether a later segment may also replace in-order bytes. Real hosts pass those to the application and discard
    /// repeated data, but Suricata does this for these systems.
    pub const fn replaces_in_order(self) -> bool {
        matches!(
            self,
            OsPolicy::OldLinux | OsPolicy::OldSolaris | OsPolicy::Solaris | OsPolicy::Hpux11 | OsPolicy::Last
        )
    }

    /// Whether a later segment's bytes replace those of an earlier one in their overlap; each is (start, end).
    pub const fn later_wins(self, earlier: (u64, u64), later: (u64, u64)) -> bool {
        match self {
            OsPolicy::First | OsPolicy::Vista => false,
            OsPolicy::Last => true,
            OsPolicy::Bsd
            | OsPolicy::BsdRight
            | OsPolicy::Hpux10
            | OsPolicy::Irix
            | OsPolicy::MacOs
            | OsPolicy::Windows
            | OsPolicy::Windows2k3 => later.0 < earlier.0,
            OsPolicy::OldLinux => later.0 < earlier.0 || (later.0 == earlier.0 && later.1 >= earlier.1),
            OsPolicy::Linux => later.0 < earlier.0 || (later.0 == earlier.0 && later.1 > earlier.1),
            OsPolicy::Solaris | OsPolicy::OldSolaris | OsPolicy::Hpux11 => {
                later.1 > earlier.1 || (later.1 == earlier.1 && later.0 <= earlier.0)
            }
        }
    }
}

/// Networks with the policies of their hosts. The longest prefix counts.
#[derive(Debug, Clone, Default)]
pub struct HostOsPolicies {
    /// Prefix length, network, whether IPv6, policy; longest prefix first.
    entries: Vec<(u8, u128, bool, OsPolicy)>,
    /// The policy of all other hosts.
    pub default: OsPolicy,
}

fn bits(ip: IpAddr) -> (u128, bool) {
    match ip {
        IpAddr::V4(a) => (u128::from(u32::from(a)) << 96, false),
        IpAddr::V6(a) => (u128::from(a), true),
    }
}

const fn mask(prefix: u8) -> u128 {
    if prefix == 0 { 0 } else { u128::MAX << (128 - prefix as u32) }
}

impl HostOsPolicies {
    /// Adds a network; `prefix` is limited to the address length.
    pub fn add(&mut self, network: IpAddr, prefix: u8, policy: OsPolicy) {
        let (b, v6) = bits(network);
        let prefix = prefix.min(if v6 { 128 } else { 32 });
        let at = self.entries.partition_point(|e| e.0 >= prefix);
        self.entries.insert(at, (prefix, b & mask(prefix), v6, policy));
    }
    /// The policy of the receiving host.
    pub fn of(&self, host: IpAddr) -> OsPolicy {
        if self.entries.is_empty() {
            return self.default;
        }
        let (b, v6) = bits(host);
        self.entries.iter().find(|e| e.2 == v6 && b & mask(e.0) == e.1).map_or(self.default, |e| e.3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_counts() {
        let mut p = HostOsPolicies::default();
        p.add(IpAddr::from([10, 0, 0, 0]), 8, OsPolicy::Linux);
        p.add(IpAddr::from([10, 1, 0, 0]), 16, OsPolicy::Windows);
        p.add(IpAddr::from([0, 0, 0, 0]), 0, OsPolicy::Last);
        assert_eq!(p.of(IpAddr::from([10, 1, 2, 3])), OsPolicy::Windows);
        assert_eq!(p.of(IpAddr::from([10, 2, 2, 3])), OsPolicy::Linux);
        assert_eq!(p.of(IpAddr::from([11, 2, 2, 3])), OsPolicy::Last);
        assert_eq!(p.of("::1".parse().unwrap()), OsPolicy::Bsd);
    }

    #[test]
    fn names() {
        for p in OsPolicy::ALL {
            assert_eq!(OsPolicy::from_name(p.name()), Some(p));
        }
        assert_eq!(OsPolicy::from_name("BSD_right"), Some(OsPolicy::BsdRight));
        assert_eq!(OsPolicy::from_name("plan9"), None);
    }
}
