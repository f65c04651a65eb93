//! A Bloom filter of a part's content: it may answer "maybe" for an absent entry, but never "no" for a present one.
//!
//! An entry is a tag and bytes ([`Entry`]). Its hash is 64-bit FNV-1a, mixed once more as in SplitMix64. Bit `i` of eight is
//! `(h + i * g) mod bits`, where `g` is the mixed hash, mixed again and made odd. Other readers of an index need no more than
//! this. The hash has no key: an attacker who creates collisions only causes a part to be read in vain.

use std::collections::HashSet;
use std::net::IpAddr;

/// Bits that an entry sets.
const HASHES: u64 = 8;
/// Minimum bits per entry, rounded up to a power of two in total: at most about one wrong "maybe" in 1,700.
const BITS: usize = 16;
/// Minimum bits of a filter.
const LEAST: usize = 1024;

/// SplitMix64's mixing function.
pub(crate) const fn mix(word: u64) -> u64 {
    let mut z = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// FNV-1a over `bytes`, mixed.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    mix(bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3)))
}

/// The kinds of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// An address, or the network of its first `bits` bits: tag `4` or `6`, `bits`, and the whole bytes of the network.
    Network(IpAddr, u8),
    /// A source or destination port of a transport protocol by number: tag `P`, the protocol, and the port in network order.
    Port(u8, u16),
}

/// Prefix lengths, in bits, for which an IPv4 address is in the filter.
pub const V4: [u8; 4] = [8, 16, 24, 32];
/// Prefix lengths, in bits, for which an IPv6 address is in the filter.
pub const V6: [u8; 4] = [32, 48, 64, 128];

impl Entry {
    /// The entry's hash in a filter.
    pub fn hash(self) -> u64 {
        let mut bytes = [0u8; 18];
        let len = match self {
            Entry::Network(IpAddr::V4(a), bits) => {
                let n = usize::from(bits / 8).min(4);
                (bytes[0], bytes[1]) = (b'4', bits);
                bytes[2..2 + n].copy_from_slice(&a.octets()[..n]);
                2 + n
            }
            Entry::Network(IpAddr::V6(a), bits) => {
                let n = usize::from(bits / 8).min(16);
                (bytes[0], bytes[1]) = (b'6', bits);
                bytes[2..2 + n].copy_from_slice(&a.octets()[..n]);
                2 + n
            }
            Entry::Port(protocol, port) => {
                let [high, low] = port.to_be_bytes();
                bytes[..4].copy_from_slice(&[b'P', protocol, high, low]);
                4
            }
        };
        hash(&bytes[..len])
    }
}

/// Collects the entries of a filter: individually up to a limit, then in a filter sized for four times as many.
#[derive(Debug, Clone)]
pub struct Filter {
    limit: usize,
    few: HashSet<u64>,
    many: Option<Vec<u8>>,
}

impl Filter {
    /// An empty collection that keeps up to `limit` entries individually.
    pub fn new(limit: usize) -> Self {
        Filter { limit: limit.max(1), few: HashSet::new(), many: None }
    }

    /// Adds an entry by its hash.
    pub fn insert(&mut self, hash: u64) {
        if let Some(bits) = &mut self.many {
            return set(bits, hash);
        }
        self.few.insert(hash);
        if self.few.len() > self.limit {
            let mut bits = empty(self.limit.saturating_mul(4));
            self.few.drain().for_each(|h| set(&mut bits, h));
            self.few = HashSet::new();
            self.many = Some(bits);
        }
    }

    /// The filter's bits, lowest bit of each byte first; their number is a power of two.
    pub fn bits(&self) -> Vec<u8> {
        self.many.clone().unwrap_or_else(|| {
            let mut bits = empty(self.few.len());
            self.few.iter().for_each(|&h| set(&mut bits, h));
            bits
        })
    }
}

fn empty(entries: usize) -> Vec<u8> {
    vec![0; entries.saturating_mul(BITS).next_power_of_two().max(LEAST) / 8]
}

fn places(bits: usize, hash: u64) -> impl Iterator<Item = usize> {
    let step = mix(hash) | 1;
    (0..HASHES).map(move |i| (hash.wrapping_add(i.wrapping_mul(step)) % bits as u64) as usize)
}

fn set(bits: &mut [u8], hash: u64) {
    for at in places(bits.len() * 8, hash) {
        if let Some(byte) = bits.get_mut(at / 8) {
            *byte |= 1 << (at % 8);
        }
    }
}

/// Whether a filter with these bits may contain the entry with this hash.
pub fn may_hold(bits: &[u8], hash: u64) -> bool {
    !bits.is_empty()
        && places(bits.len() * 8, hash).all(|at| bits.get(at / 8).is_some_and(|b| b & (1 << (at % 8)) != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_that_readers_elsewhere_compute() {
        // fleet/tests/test_index.py has the same values.
        let v4 = Entry::Network("192.0.2.1".parse().expect("an address"), 32);
        let net = Entry::Network("192.0.2.1".parse().expect("an address"), 24);
        let v6 = Entry::Network("2001:db8::1".parse().expect("an address"), 48);
        let hashes = [v4, net, v6, Entry::Port(6, 443)].map(Entry::hash);
        assert_eq!(hashes, [8868762497323800126, 8656811611009855910, 11091749933735942441, 10885831000786060478]);
    }

    #[test]
    fn what_is_in_is_found_and_little_else() {
        for limit in [100, 10_000] {
            let mut filter = Filter::new(limit);
            (0..1000u64).for_each(|n| filter.insert(mix(n)));
            let bits = filter.bits();
            assert!((0..1000).all(|n| may_hold(&bits, mix(n))));
            let wrong = (1000..101_000).filter(|&n| may_hold(&bits, mix(n))).count();
            // The filter with the small limit is sized for 400 entries, but holds 1000.
            assert!(wrong < if limit == 100 { 10_000 } else { 100 }, "{wrong} of 100000 with limit {limit}");
        }
        assert!(!may_hold(&Filter::new(10).bits(), mix(1)));
    }
}
