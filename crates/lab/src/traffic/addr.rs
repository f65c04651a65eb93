//! Pools of addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Addresses of one family, in ranges, counted from 0.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    /// Each range's first address and size.
    ranges: Vec<(u128, u64)>,
    len: u64,
    v6: bool,
}

/// Most addresses of a pool. No run begins enough sessions to use more.
const MAX_POOL: u64 = 1 << 32;

fn number(addr: IpAddr) -> u128 {
    match addr {
        IpAddr::V4(a) => u128::from(u32::from(a)),
        IpAddr::V6(a) => u128::from(a),
    }
}

impl Pool {
    /// A pool from the first to the last address, inclusive.
    pub(crate) fn range(first: IpAddr, last: IpAddr) -> Result<Pool, String> {
        let mut pool = Pool { ranges: Vec::new(), len: 0, v6: first.is_ipv6() };
        pool.add(first, last)?;
        Ok(pool)
    }

    fn add(&mut self, first: IpAddr, last: IpAddr) -> Result<(), String> {
        if first.is_ipv6() != self.v6 || last.is_ipv6() != self.v6 {
            return Err(format!("{first} and {last}: IPv4 and IPv6 addresses are mixed in one pool"));
        }
        let (from, to) = (number(first), number(last));
        if to < from {
            return Err(format!("the pool ends at {last}, before it begins at {first}"));
        }
        // A pool may be a whole /64; only its first addresses are used.
        let count = u64::try_from(to - from + 1).unwrap_or(MAX_POOL).min(MAX_POOL);
        self.ranges.push((from, count));
        self.len = (self.len + count).min(MAX_POOL);
        Ok(())
    }

    /// Parses a list of ranges `a-b`, prefixes `a/24` and single addresses, separated by commas.
    pub(crate) fn parse(text: &str) -> Result<Pool, String> {
        let mut pool: Option<Pool> = None;
        for part in text.split(',').map(str::trim) {
            let addr = |t: &str| t.trim().parse::<IpAddr>().map_err(|_| format!("'{}' is not an IP address", t.trim()));
            let (first, last) = if let Some((a, b)) = part.split_once('-') {
                (addr(a)?, addr(b)?)
            } else if let Some((a, bits)) = part.split_once('/') {
                let a = addr(a)?;
                let width = if a.is_ipv6() { 128 } else { 32 };
                let bits = bits
                    .trim()
                    .parse::<u32>()
                    .ok()
                    .filter(|b| *b <= width)
                    .ok_or_else(|| format!("'{part}': the prefix length is from 0 to {width}"))?;
                let host = width - bits;
                let mask = if host >= 128 { u128::MAX } else { (1u128 << host) - 1 };
                let (mut from, mut to) = (number(a) & !mask, number(a) | mask);
                if host >= 2 {
                    // Leave out the network and broadcast addresses.
                    (from, to) = (from + 1, to - 1);
                }
                (address(from, a.is_ipv6()), address(to, a.is_ipv6()))
            } else {
                (addr(part)?, addr(part)?)
            };
            match &mut pool {
                Some(pool) => pool.add(first, last)?,
                None => pool = Some(Pool::range(first, last)?),
            }
        }
        pool.ok_or_else(|| "a pool needs at least one address".to_owned())
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn is_ipv6(&self) -> bool {
        self.v6
    }

    /// Address number `index`; after the last address, the count starts again at the first.
    pub(crate) fn get(&self, index: u64) -> IpAddr {
        let mut at = index % self.len.max(1);
        for &(first, count) in &self.ranges {
            if at < count {
                return address(first + u128::from(at), self.v6);
            }
            at -= count;
        }
        address(self.ranges.first().map_or(0, |r| r.0), self.v6)
    }
}

fn address(n: u128, v6: bool) -> IpAddr {
    if v6 { IpAddr::V6(Ipv6Addr::from(n)) } else { IpAddr::V4(Ipv4Addr::from(n as u32)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools() {
        let pool = Pool::parse("16.0.0.1-16.0.1.255, 17.0.0.9").unwrap();
        assert_eq!(pool.len(), 512);
        assert_eq!(pool.get(0).to_string(), "16.0.0.1");
        assert_eq!(pool.get(510).to_string(), "16.0.1.255");
        assert_eq!(pool.get(511).to_string(), "17.0.0.9");
        assert_eq!(pool.get(512).to_string(), "16.0.0.1");
        let net = Pool::parse("10.0.0.0/30").unwrap();
        assert_eq!((net.len(), net.get(0).to_string()), (2, "10.0.0.1".into()));
        assert_eq!(Pool::parse("2001:db8::/64").unwrap().get(1).to_string(), "2001:db8::2");
        for bad in ["", "x", "1.2.3.4-1.2.3.1", "1.2.3.4/33", "1.2.3.4,::1"] {
            assert!(Pool::parse(bad).is_err(), "{bad}");
        }
    }
}
