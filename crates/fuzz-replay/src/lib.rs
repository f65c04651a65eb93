//! One function a fuzz target: `fuzz/fuzz_targets` call them with what the fuzzer makes up, and this crate's tests with
//! every file of `fuzz/corpus`. What must hold for any input is asserted here.

mod datasets;
mod decompress;
mod dhcp;
mod dns;
mod ftp;
mod http1;
mod http2;
mod quic;
mod recognise;
mod rules;
pub mod seeds;
mod smb;
mod smtp;
mod ssh;
mod stream;
mod talk;
mod tftp;
mod tls;

pub use datasets::datasets;
pub use decompress::{brotli, deflate, gzip, layers, lzma};
pub use dhcp::dhcp;
pub use dns::dns;
pub use ftp::ftp;
pub use http1::http1;
pub use http2::http2;
pub use quic::quic;
pub use recognise::recognise;
pub use rules::{inspect, lists, rules};
pub use smb::{dcerpc, smb};
pub use smtp::smtp;
pub use ssh::ssh;
pub use stream::stream;
pub use tftp::tftp;
pub use tls::tls;

use margay_packet::{DecodeConfig, Decoder, Frame, LinkType, Packet, Time};

/// A target: its name, which is its corpus' folder, and its function.
pub type Target = (&'static str, fn(&[u8]));

/// Every target.
pub const TARGETS: &[Target] = &[
    ("capture", capture),
    ("decode", decode),
    ("defrag", defrag),
    ("config", config),
    ("control", control),
    ("stream", stream),
    ("rules", rules),
    ("lists", lists),
    ("inspect", inspect),
    ("gzip", gzip),
    ("deflate", deflate),
    ("lzma", lzma),
    ("brotli", brotli),
    ("layers", layers),
    ("recognise", recognise),
    ("http1", http1),
    ("http2", http2),
    ("ftp", ftp),
    ("smb", smb),
    ("dcerpc", dcerpc),
    ("smtp", smtp),
    ("ssh", ssh),
    ("dns", dns),
    ("tls", tls),
    ("quic", quic),
    ("dhcp", dhcp),
    ("tftp", tftp),
    ("datasets", datasets),
];

/// Capture readers: any bytes as a file.
pub fn capture(data: &[u8]) {
    let (counters, _) = margay_capture::drain(data);
    assert!(counters.frames <= data.len() as u64, "more frames than bytes");
}

/// What every packet must keep to, whatever its bytes.
fn check(p: &Packet<'_>) {
    assert!(p.payload().len() <= p.data.len());
    let _ = (p.l3_bytes(), p.l4_bytes(), p.checksum_ok(), p.tcp().map(|t| (t.seq(), t.flags())));
    assert!(p.vlans.as_slice().len() <= 3);
}

/// Link types by the number that inputs of `decode` have for them.
pub(crate) const LINKS: [LinkType; 11] = [
    LinkType::ETHERNET,
    LinkType::RAW,
    LinkType::NULL,
    LinkType::PPP,
    LinkType::CHDLC,
    LinkType::LOOP,
    LinkType::LINUX_SLL,
    LinkType::LINUX_SLL2,
    LinkType::IPV4,
    LinkType::IPV6,
    LinkType(147),
];

/// The decoder: the first byte chooses the link type, the rest is one frame.
pub fn decode(data: &[u8]) {
    let Some((&first, data)) = data.split_first() else { return };
    let link = LINKS[usize::from(first) % LINKS.len()];
    let mut seen = 0u32;
    let frame = Frame { data, wire_len: data.len() as u32, time: Time::new(1, 0), link, number: 1 };
    let mut decoder = Decoder::new(DecodeConfig { vntag: true, ..DecodeConfig::default() });
    decoder.decode(&frame, &mut |p: &Packet<'_>| {
        check(p);
        seen += 1;
    });
    assert!((1..=64).contains(&seen), "{seen} packets from one frame");
}

/// The defragmenter: many raw IP packets, each behind a byte of length and a byte of time.
pub fn defrag(data: &[u8]) {
    let mut decoder = Decoder::new(DecodeConfig::default());
    let (mut rest, mut now) = (data, 1_000_000i64);
    let mut number = 0;
    while let [len, wait, tail @ ..] = rest {
        let (packet, next) = tail.split_at((usize::from(*len)).min(tail.len()));
        rest = next;
        now += i64::from(*wait) * 250_000;
        number += 1;
        let frame = Frame { data: packet, wire_len: packet.len() as u32, time: Time(now), link: LinkType::RAW, number };
        decoder.decode(&frame, &mut |p: &Packet<'_>| {
            check(p);
            assert!(p.data.len() <= 70_000, "a datagram of {} bytes", p.data.len());
        });
    }
}

/// The unix socket: the first byte says in how large pieces the rest comes, which makes no difference to the messages in it.
pub fn control(data: &[u8]) {
    let Some((&first, data)) = data.split_first() else { return };
    let whole = margay_engine::control_messages([data]);
    let pieces = margay_engine::control_messages(data.chunks(usize::from(first).max(1)));
    assert_eq!(whole, pieces);
    assert!(whole.len() <= data.len(), "more messages than bytes");
}

/// The configuration: any text as YAML.
pub fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // Inclusion reads files: not what is tested here.
    if text.contains("include") {
        return;
    }
    if let Ok(c) = margay_config::Config::from_str(text, "fuzz") {
        let mut sink = Vec::new();
        let _ = c.dump(&mut sink);
        let _ = c.unknown_keys();
    }
}
