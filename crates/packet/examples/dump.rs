//! Prints decoded capture files as JSON: a line for each packet (with `--packets`, or those with
//! events with `--events`), then one with the counters that are not zero.
//!
//! Options: `--vntag`, `--no-erspan-type1`, `--policies` (a policy for each of 10.1.0.0/16, 10.2.0.0/16, …).

#[path = "../tests/common/mod.rs"]
mod common;

use std::fmt::Write as _;

use margay_packet::{DecodeConfig, Decoder, Packet, Policy};

fn hex(b: &[u8]) -> String {
    b.iter().fold(String::new(), |mut s, b| {
        let _ = write!(s, "{b:02x}");
        s
    })
}

fn print(p: &Packet<'_>) {
    let events: Vec<_> = p.events.as_slice().iter().map(|e| format!("\"{}\"", e.name())).collect();
    println!(
        "{{\"n\":{},\"pkt_src\":\"{}\",\"events\":[{}],\"invalid\":{},\"src\":\"{}\",\"dst\":\"{}\",\"proto\":{},\
         \"sport\":{},\"dport\":{},\"vlan\":{:?},\"link\":{},\"fragment\":{},\"payload\":\"{}\",\"packet\":\"{}\",\
         \"checksum\":\"{:?}\",\"ip\":{}}}",
        p.number,
        p.source.name(),
        events.join(","),
        p.invalid,
        p.src,
        p.dst,
        p.proto,
        p.sport,
        p.dport,
        p.vlans.as_slice(),
        p.link.0,
        p.fragment,
        hex(p.payload()),
        hex(p.data),
        p.checksum_ok(),
        p.is_ip(),
    );
}

fn main() {
    let mut config = DecodeConfig::default();
    let (mut packets, mut events) = (false, false);
    for arg in std::env::args().skip(1) {
        match arg.as_str() {
            "--packets" => packets = true,
            "--events" => events = true,
            "--vntag" => config.vntag = true,
            "--no-erspan-type1" => config.erspan_type1 = false,
            "--policies" => {
                let policies = ["windows", "bsd", "bsd-right", "linux", "solaris", "old-linux", "old-solaris"];
                for (n, os) in policies.into_iter().enumerate() {
                    let policy = Policy::from_os_name(os).unwrap_or_default();
                    config.defrag.hosts.push(([10, n as u8 + 1, 0, 0].into(), 16, policy));
                    config.defrag.hosts.push(([0xfd01 + n as u16, 0, 0, 0, 0, 0, 0, 0].into(), 16, policy));
                }
            }
            path => match std::fs::read(path) {
                Ok(data) => {
                    let mut decoder = Decoder::new(config.clone());
                    common::Capture::new(data).for_each(|frame| {
                        decoder.decode(frame, &mut |p: &Packet<'_>| {
                            if packets || events && !p.events.is_empty() {
                                print(p);
                            }
                        });
                    });
                    let mut out = format!("{{\"file\":\"{path}\"");
                    decoder.counters.for_each(&mut |name, value| {
                        if value != 0 {
                            let _ = write!(out, ",\"{name}\":{value}");
                        }
                    });
                    println!("{out}}}");
                }
                Err(e) => {
                    eprintln!("{path}: cannot be read: {e}");
                    std::process::exit(1);
                }
            },
        }
    }
}
