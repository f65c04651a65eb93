//! One function for each fuzz target. The programs in `fuzz/fuzz_targets` call it with the fuzzer's inputs, and this crate's
//! tests with every file of `fuzz/corpus`. It asserts the properties that every input must have.
#![expect(clippy::expect_used, clippy::panic, reason = "it is part of tests, which fail by it")]

pub mod costs;
mod datasets;
mod decompress;
mod dhcp;
pub mod dictionaries;
mod dns;
mod files;
mod folder;
mod ftp;
mod http1;
mod http2;
mod json;
mod live;
mod lua;
mod meaning;
mod messages;
mod mime;
mod packets;
mod quic;
mod recognise;
mod rules;
pub mod seeds;
mod segments;
mod smb;
mod smtp;
mod ssh;
mod stream;
mod talk;
mod tftp;
mod tls;
mod transforms;

pub use datasets::datasets;
pub use decompress::{brotli, deflate, gzip, layers, lzma};
pub use dhcp::dhcp;
pub use dns::dns;
pub use files::{geoip, include, matcher_cache};
pub use ftp::ftp;
pub use http1::http1;
pub use http2::{hpack, http2};
pub use json::json;
pub use live::{nfqueue, ring};
pub use lua::{lua, lua_pattern};
pub use meaning::meaning;
pub use messages::messages;
pub use mime::mime;
pub use packets::{capture, decode, defrag, filter, fragments};
pub use quic::quic;
pub use recognise::recognise;
pub use rules::{inspect, lists, rules};
pub use segments::segments;
pub use smb::{dcerpc, smb, token};
pub use smtp::smtp;
pub use ssh::ssh;
pub use stream::stream;
pub use tftp::tftp;
pub use tls::{certificate, tls};
pub use transforms::transforms;

use margay_packet::Packet;

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
    ("messages", messages),
    ("datasets", datasets),
    ("fragments", fragments),
    ("filter", filter),
    ("ring", ring),
    ("nfqueue", nfqueue),
    ("include", include),
    ("matcher_cache", matcher_cache),
    ("geoip", geoip),
    ("hpack", hpack),
    ("certificate", certificate),
    ("token", token),
    ("mime", mime),
    ("transforms", transforms),
    ("meaning", meaning),
    ("lua", lua),
    ("lua_pattern", lua_pattern),
    ("json", json),
    ("segments", segments),
];

/// Checks properties of every packet, whatever its bytes.
fn check(p: &Packet<'_>) {
    assert!(p.payload().len() <= p.data.len());
    let _ = (p.l3_bytes(), p.l4_bytes(), p.checksum_ok(), p.tcp().map(|t| (t.seq(), t.flags())));
    assert!(p.vlans.as_slice().len() <= 3);
}

/// The unix socket: the first byte is the size of pieces, which must not affect the messages.
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
    // Includes read files, which this target does not test.
    if text.contains("include") {
        return;
    }
    if let Ok(c) = margay_config::Config::from_str(text, "fuzz") {
        let mut sink = Vec::new();
        let _ = c.dump(&mut sink);
        let _ = c.unknown_keys();
    }
}
