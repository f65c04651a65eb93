//! Until `checks` is merged.
#![allow(missing_docs)]
use std::collections::HashMap;
use margay_flow::{Direction, FlowCore};
use margay_packet::Packet;
use margay_rules::ast::*;
use crate::inspect::CompileError;

#[derive(Debug, Default)]
pub struct Names(HashMap<String, u32>);
impl Names {
    fn id(&mut self, n: &str) -> u32 {
        let l = self.0.len() as u32;
        *self.0.entry(n.into()).or_insert(l)
    }
}
pub struct CheckInput<'a> {
    pub packet: &'a Packet<'a>,
    pub flow: Option<&'a FlowCore>,
    pub dir: Option<Direction>,
    pub established: bool,
    pub stream_events: u128,
}
#[derive(Debug)]
pub enum CompiledCheck { Flow(FlowCheck), Bit(Vec<u32>, bool), Dsize(Compare), Flags(u8, FlagMode), Itype(Compare), Ttl(Compare) , Decode(margay_packet::DecodeEvent)}
impl CompiledCheck {
    pub fn compile(c: &Check, n: &mut Names) -> Result<Self, CompileError> {
        Ok(match c {
            Check::Flow(f) => Self::Flow(*f),
            Check::FlowBit { names, set } => Self::Bit(names.iter().map(|x| n.id(x)).collect(), *set),
            Check::Dsize(c) => Self::Dsize(*c),
            Check::TcpFlags { bits, mode, .. } => Self::Flags(*bits, *mode),
            Check::IcmpType(c) => Self::Itype(*c),
            Check::Ttl(c) => Self::Ttl(*c),
            Check::DecodeEvent(e) => Self::Decode(margay_packet::DecodeEvent::from_name(e).unwrap()),
            _ => return Err(CompileError::unsupported("check", "pending")),
        })
    }
    pub fn cost(&self) -> u32 { 1 }
    pub fn holds(&self, i: &CheckInput<'_>) -> bool {
        match self {
            Self::Flow(f) => {
                i.flow.is_some()
                    && (!f.established || i.established)
                    && (!f.not_established || !i.established)
                    && f.side.is_none_or(|s| i.dir == Some(if s == Side::ToServer { Direction::ToServer } else { Direction::ToClient }))
            }
            Self::Bit(ids, set) => i.flow.is_some_and(|f| ids.iter().any(|b| f.vars.bit(*b)) == *set),
            Self::Dsize(c) => c.holds(i.packet.payload().len() as u64),
            Self::Flags(b, FlagMode::All) => i.packet.tcp().is_some_and(|t| t.flags() & b == *b),
            Self::Flags(b, _) => i.packet.tcp().is_some_and(|t| t.flags() == *b),
            Self::Itype(c) => c.holds(i.packet.icmp.0.into()),
            Self::Ttl(_) => true,
            Self::Decode(e) => i.packet.events.contains(*e),
        }
    }
}
#[derive(Debug)]
pub enum CompiledEffect { Bit(Vec<u32>, BitOp), None }
impl CompiledEffect {
    pub fn compile(e: &Effect, n: &mut Names) -> Result<Self, CompileError> {
        Ok(match e {
            Effect::FlowBit { names, op } => Self::Bit(names.iter().map(|x| n.id(x)).collect(), *op),
            _ => Self::None,
        })
    }
    pub fn apply(&self, f: Option<&mut FlowCore>) {
        if let (Self::Bit(v, BitOp::Set), Some(f)) = (self, f) {
            for b in v { f.vars.set_bit(*b) }
        }
    }
}
#[derive(Debug)]
pub struct FastPattern { pub buffer: usize, pub check: usize, pub bytes: Vec<u8>, pub nocase: bool }
pub fn fast_pattern(r: &Rule) -> Option<FastPattern> {
    let mut best: Option<FastPattern> = None;
    for (buffer, b) in r.buffers.iter().enumerate() {
        if !b.transforms.is_empty() { continue }
        for (check, c) in b.checks.iter().enumerate() {
            if let BufferCheck::Content(c) = c {
                if !c.negated && (c.fast_pattern || best.as_ref().is_none_or(|x| x.bytes.len() < c.bytes.len())) {
                    best = Some(FastPattern { buffer, check, bytes: c.bytes.clone(), nocase: c.nocase });
                    if c.fast_pattern { return best }
                }
            }
        }
    }
    best
}
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketBuffer { TcpHeader }
impl PacketBuffer {
    pub fn from_name(n: &str) -> Option<Self> { (n == "tcp.hdr").then_some(Self::TcpHeader) }
    pub fn index(self) -> u8 { 0 }
    pub fn from_index(_: u8) -> Option<Self> { Some(Self::TcpHeader) }
    pub fn get<'a>(self, p: &Packet<'a>) -> Option<&'a [u8]> { p.tcp().map(|_| p.l4_bytes()) }
}
