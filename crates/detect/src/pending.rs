//! Until `checks` is merged.
#![allow(missing_docs)]
use margay_packet::Packet;
use margay_rules::ast::*;

#[derive(Debug)]
pub struct FastPattern {
    pub buffer: usize,
    pub check: usize,
    pub bytes: Vec<u8>,
    pub nocase: bool,
}
pub fn fast_pattern(r: &Rule) -> Option<FastPattern> {
    let mut best: Option<FastPattern> = None;
    for (buffer, b) in r.buffers.iter().enumerate() {
        if !b.transforms.is_empty() {
            continue;
        }
        for (check, c) in b.checks.iter().enumerate() {
            if let BufferCheck::Content(c) = c {
                if !c.negated && (c.fast_pattern || best.as_ref().is_none_or(|x| x.bytes.len() < c.bytes.len())) {
                    best = Some(FastPattern { buffer, check, bytes: c.bytes.clone(), nocase: c.nocase });
                    if c.fast_pattern {
                        return best;
                    }
                }
            }
        }
    }
    best
}
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketBuffer {
    TcpHeader,
}
impl PacketBuffer {
    pub fn from_name(n: &str) -> Option<Self> {
        (n == "tcp.hdr").then_some(Self::TcpHeader)
    }
    pub fn index(self) -> u8 {
        0
    }
    pub fn from_index(_: u8) -> Option<Self> {
        Some(Self::TcpHeader)
    }
    pub fn get<'a>(self, p: &Packet<'a>) -> Option<&'a [u8]> {
        p.tcp().map(|_| p.l4_bytes())
    }
}
