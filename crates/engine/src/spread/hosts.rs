//! The hosts that a frame belongs to, as far as its headers show.

use std::net::IpAddr;

/// An address as numbers.
pub(crate) type Words = [u64; 2];

/// The numbers of a decoded address.
pub(crate) fn words(address: IpAddr) -> Words {
    match address {
        IpAddr::V4(a) => [0, u64::from(u32::from(a))],
        IpAddr::V6(a) => {
            let a = u128::from(a);
            [(a >> 64) as u64, a as u64]
        }
    }
}

/// The hosts of a frame, as far as its headers show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    Hosts(Words, Words),
    AnyHost,
}
