//! The flows of the attack `flow-collisions` (tools/attacks/network.py): the packets of an attacker who knows the
//! table's key.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by it")]

use std::path::PathBuf;

use margay_flow::{Ends, HashKey};

/// `flow.hash-size` of etc/margay.yaml.
const BUCKETS: u64 = 65_536;
const FLOWS: usize = 1500;

fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../bench/collisions.bin")
}

/// The bucket of a datagram to 192.0.2.2:9 with the key of `--no-random`.
fn bucket(key: &HashKey, host: u32, port: u16) -> u64 {
    let src = [0, u64::from(host)];
    let ends = Ends { src, dst: [0, 0xc000_0202], sport: port, dport: 9, proto: 17, v6: false, vlans: [0; 3] };
    (u64::from(ends.hash(key, true) as u32) * BUCKETS) >> 32
}

#[test]
fn they_share_a_bucket() {
    let list =
        std::fs::read(file()).expect("bench/collisions.bin is made with `cargo test -p margay-flow -- --ignored make`");
    let known = HashKey::fixed(0);
    let all: Vec<u64> = list
        .as_chunks::<6>()
        .0
        .iter()
        .map(|c| bucket(&known, u32::from_be_bytes([c[0], c[1], c[2], c[3]]), u16::from_be_bytes([c[4], c[5]])))
        .collect();
    assert_eq!(all.len(), FLOWS);
    assert!(all.iter().all(|b| *b == all[0]), "the hash is another one: make the list anew");
}

#[test]
#[ignore = "writes bench/collisions.bin: to be run where the hash has changed"]
fn make() {
    let known = HashKey::fixed(0);
    let every = (0x0b00_0000..).flat_map(|host: u32| (1024..=u16::MAX).map(move |port| (host, port)));
    let chosen = every.filter(|&(host, port)| bucket(&known, host, port) == 0).take(FLOWS);
    let bytes: Vec<u8> = chosen.flat_map(|(h, p)| [&h.to_be_bytes()[..], &p.to_be_bytes()].concat()).collect();
    std::fs::write(file(), bytes).unwrap();
}
