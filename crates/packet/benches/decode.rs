//! Cost of decoding one frame.
#![allow(clippy::unwrap_used)]

use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use margay_packet::{DecodeConfig, Decoder, Frame, LinkType, Packet, Time};

fn main() {
    divan::main();
}

const ETHERNET: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];

fn ipv4(proto: u8, ident: u16, fragment: u16, data: &[u8]) -> Vec<u8> {
    let mut p = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, proto, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    p[2..4].copy_from_slice(&u16::try_from(20 + data.len()).unwrap().to_be_bytes());
    p[4..6].copy_from_slice(&ident.to_be_bytes());
    p[6..8].copy_from_slice(&fragment.to_be_bytes());
    p.extend_from_slice(data);
    p
}

fn tcp(payload: usize) -> Vec<u8> {
    // The timestamp option, as most segments have it.
    let mut p = vec![0x30, 0x39, 0, 80, 0, 0, 0, 1, 0, 0, 0, 1, 0x80, 0x18, 0xff, 0xff, 0, 0, 0, 0];
    p.extend_from_slice(&[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
    p.resize(32 + payload, b'x');
    p
}

fn udp(data: &[u8], port: u16) -> Vec<u8> {
    let mut p = vec![0x30, 0x39, 0, 0, 0, 0, 0, 0];
    p[2..4].copy_from_slice(&port.to_be_bytes());
    p[4..6].copy_from_slice(&u16::try_from(8 + data.len()).unwrap().to_be_bytes());
    p.extend_from_slice(data);
    p
}

fn ethernet(kind: &[u8], data: &[u8]) -> Vec<u8> {
    [&ETHERNET, kind, data].concat()
}

fn frames(name: &str) -> Vec<Vec<u8>> {
    match name {
        "tcp, 1,448 bytes" => vec![ethernet(&[8, 0], &ipv4(6, 1, 0, &tcp(1448)))],
        "tcp, bare" => vec![ethernet(&[8, 0], &ipv4(6, 1, 0, &tcp(0)))],
        "udp" => vec![ethernet(&[8, 0], &ipv4(17, 1, 0, &udp(&[0; 60], 53)))],
        "udp on ipv6 in a vlan" => {
            let data = udp(&[0; 60], 53);
            let mut p = vec![0x60, 0, 0, 0, 0, 0, 17, 64];
            p[4..6].copy_from_slice(&u16::try_from(data.len()).unwrap().to_be_bytes());
            p.extend_from_slice(&[0x20; 32]);
            p.extend_from_slice(&data);
            vec![ethernet(&[0x81, 0, 0, 100, 0x86, 0xdd], &p)]
        }
        "tcp in vxlan" => {
            let inner = ethernet(&[8, 0], &ipv4(6, 1, 0, &tcp(500)));
            let data = [&[8, 0, 0, 0, 0, 0, 1, 0], &inner[..]].concat();
            vec![ethernet(&[8, 0], &ipv4(17, 1, 0, &udp(&data, 4789)))]
        }
        _ => {
            // Two fragments of 1,000 and 500 bytes.
            let data = udp(&[0; 1492], 53);
            let (a, b) = data.split_at(1000);
            vec![ethernet(&[8, 0], &ipv4(17, 7, 0x2000, a)), ethernet(&[8, 0], &ipv4(17, 7, 125, b))]
        }
    }
}

#[divan::bench(args = ["tcp, 1,448 bytes", "tcp, bare", "udp", "udp on ipv6 in a vlan", "tcp in vxlan", "two fragments"])]
fn frame(b: Bencher<'_, '_>, name: &str) {
    let frames = frames(name);
    let mut decoder = Decoder::new(DecodeConfig { ignore_checksums: true, ..DecodeConfig::default() });
    let mut number = 0;
    b.counter(ItemsCount::new(frames.len()))
        .counter(BytesCount::new(frames.iter().map(Vec::len).sum::<usize>()))
        .bench_local(|| {
            for data in &frames {
                number += 1;
                let wire_len = data.len() as u32;
                let frame = Frame { data, wire_len, time: Time::new(1, 0), link: LinkType::ETHERNET, number };
                decoder.decode(&frame, &mut |p: &Packet<'_>| {
                    black_box(p.payload());
                });
            }
        });
}
