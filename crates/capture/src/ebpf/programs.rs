//! Programs that distribute packets to sockets. [`super::passing`] has those that bypass flows.

use super::asm::{Alu, Asm, Helper, Insn, Reg, Size, When};
use crate::live::LiveError;

/// Results of an XDP program (`enum xdp_action`).
pub(super) mod action {
    pub(in crate::ebpf) const DROP: i32 = 1;
    pub(in crate::ebpf) const PASS: i32 = 2;
    pub(in crate::ebpf) const REDIRECT: u32 = 4;
}

/// Offsets of fields in `struct xdp_md`.
pub(super) mod context {
    pub(in crate::ebpf) const DATA: i16 = 0;
    pub(in crate::ebpf) const DATA_END: i16 = 4;
    pub(in crate::ebpf) const QUEUE: i16 = 16;
}

/// Hands a packet to the socket of its receive queue, from `sockets` (a map of AF_XDP sockets by queue), and counts it in
/// `counts` (a 64-bit number for each queue and CPU). Without a socket, the packet continues into the network stack.
pub(crate) fn to_sockets(sockets: i32, counts: i32) -> Result<Vec<Insn>, LiveError> {
    let mut a = Asm::new();
    let out = a.label();
    a.load(Size::W, Reg::R6, Reg::R1, context::QUEUE);
    a.map(Reg::R1, sockets);
    a.mov(Reg::R2, Reg::R6);
    a.mov_imm(Reg::R3, action::PASS);
    a.call(Helper::RedirectMap);
    a.mov(Reg::R7, Reg::R0);
    a.jump_if_imm(When::NotEqual, Reg::R7, action::REDIRECT, out);
    a.store(Size::W, Reg::Fp, -4, Reg::R6);
    a.map(Reg::R1, counts);
    a.mov(Reg::R2, Reg::Fp);
    a.alu_imm(Alu::Add, Reg::R2, -4);
    a.call(Helper::MapLookup);
    a.jump_if_null(Reg::R0, out);
    increment(&mut a, Reg::R0, 0);
    a.bind(out);
    a.mov(Reg::R0, Reg::R7);
    a.exit();
    done(a)
}

pub(super) fn done(a: Asm) -> Result<Vec<Insn>, LiveError> {
    a.finish().map_err(|e| LiveError::System {
        interface: "eBPF".to_owned(),
        what: "a program of this engine is broken; please report it",
        source: std::io::Error::other(e),
    })
}

/// `*(at + off) += 1`; each CPU has its own number, so no atomic is needed.
pub(super) fn increment(a: &mut Asm, at: Reg, off: i16) {
    a.load(Size::DW, Reg::R1, at, off);
    a.alu_imm(Alu::Add, Reg::R1, 1);
    a.store(Size::DW, at, off, Reg::R1);
}

/// Most nested address layers that the fan-out program parses.
const LAYERS: usize = 3;

/// Selects a socket of a fan-out group: the same one for all packets of an address pair, in both directions. For IP-in-IP and
/// GRE it uses the inner addresses, so that a tunnel's traffic is spread. Fragments stay with their flow. Packets without
/// addresses go to the first socket.
// It stays whole: a program, instruction by instruction.
pub(crate) fn spread() -> Result<Vec<Insn>, LiveError> {
    /// Offset in `struct __sk_buff`.
    const PROTOCOL: i16 = 16;
    let mut a = Asm::new();
    let (none, hash) = (a.label(), a.label());
    a.mov(Reg::R6, Reg::R1);
    // R7 = offset of the current header from the network header; R8 = its type; R9 = the sum of the addresses.
    a.mov_imm(Reg::R7, 0);
    a.mov_imm(Reg::R9, 0);
    a.load(Size::W, Reg::R8, Reg::R6, PROTOCOL);
    a.big_endian16(Reg::R8);
    // The kernel removed one tag, so at most two remain.
    for _ in 0..2 {
        let (tagged, untagged) = (a.label(), a.label());
        a.jump_if_imm(When::Equal, Reg::R8, 0x8100, tagged);
        a.jump_if_imm(When::NotEqual, Reg::R8, 0x88a8, untagged);
        a.bind(tagged);
        a.load_packet_at(Size::H, Reg::R7, 2);
        a.mov(Reg::R8, Reg::R0);
        a.alu_imm(Alu::Add, Reg::R7, 4);
        a.bind(untagged);
    }
    for _ in 0..LAYERS {
        let (v4, v6, inner, next) = (a.label(), a.label(), a.label(), a.label());
        a.jump_if_imm(When::Equal, Reg::R8, 0x0800, v4);
        a.jump_if_imm(When::Equal, Reg::R8, 0x86dd, v6);
        a.jump(hash);

        a.bind(v4);
        addresses(&mut a, 12, 1);
        a.load_packet_at(Size::B, Reg::R7, 9);
        a.mov(Reg::R8, Reg::R0);
        // Only the first fragment has an inner header.
        a.load_packet_at(Size::H, Reg::R7, 6);
        a.jump_if_imm(When::Bits, Reg::R0, 0x3fff, hash);
        a.load_packet_at(Size::B, Reg::R7, 0);
        a.alu_imm(Alu::And, Reg::R0, 0xf);
        a.alu_imm(Alu::Lsh, Reg::R0, 2);
        a.alu(Alu::Add, Reg::R7, Reg::R0);
        a.jump(inner);

        a.bind(v6);
        addresses(&mut a, 8, 4);
        a.load_packet_at(Size::B, Reg::R7, 6);
        a.mov(Reg::R8, Reg::R0);
        a.alu_imm(Alu::Add, Reg::R7, 40);

        // R8 = the protocol: it begins another layer, or ends the loop.
        a.bind(inner);
        let (ip4, ip6, gre) = (a.label(), a.label(), a.label());
        a.jump_if_imm(When::Equal, Reg::R8, 4, ip4);
        a.jump_if_imm(When::Equal, Reg::R8, 41, ip6);
        a.jump_if_imm(When::Equal, Reg::R8, 47, gre);
        a.jump(hash);
        a.bind(ip4);
        a.mov_imm(Reg::R8, 0x0800);
        a.jump(next);
        a.bind(ip6);
        a.mov_imm(Reg::R8, 0x86dd);
        a.jump(next);
        a.bind(gre);
        // Only GRE version 0. Checksum, key and sequence number add 4 bytes each.
        a.load_packet_at(Size::H, Reg::R7, 2);
        a.mov(Reg::R8, Reg::R0);
        a.load_packet_at(Size::H, Reg::R7, 0);
        a.jump_if_imm(When::Bits, Reg::R0, 0x4007, hash);
        for bit in [15, 13, 12] {
            a.mov(Reg::R1, Reg::R0);
            a.alu_imm(Alu::Rsh, Reg::R1, bit);
            a.alu_imm(Alu::And, Reg::R1, 1);
            a.alu_imm(Alu::Lsh, Reg::R1, 2);
            a.alu(Alu::Add, Reg::R7, Reg::R1);
        }
        a.alu_imm(Alu::Add, Reg::R7, 4);
        a.bind(next);
    }
    a.bind(hash);
    a.jump_if_null(Reg::R9, none);
    // Mix the sum, so that neighbouring addresses do not select neighbouring sockets.
    a.mov(Reg::R0, Reg::R9);
    for shift in [16, 13] {
        a.mov(Reg::R1, Reg::R0);
        a.alu_imm(Alu::Rsh, Reg::R1, shift);
        a.alu(Alu::Xor, Reg::R0, Reg::R1);
        a.alu_imm(Alu::Mul, Reg::R0, 0x045d_9f3b);
        a.alu_imm(Alu::Lsh, Reg::R0, 32);
        a.alu_imm(Alu::Rsh, Reg::R0, 32);
    }
    a.alu_imm(Alu::Rsh, Reg::R0, 8);
    a.exit();
    a.bind(none);
    a.mov_imm(Reg::R0, 0);
    a.exit();
    done(a)
}

/// `R9 =` the sum of the words of both addresses, which is the same in both directions. It replaces the outer layer's sum.
fn addresses(a: &mut Asm, from: i32, words: i32) {
    a.mov_imm(Reg::R9, 0);
    for n in 0..words * 2 {
        a.load_packet_at(Size::W, Reg::R7, from + n * 4);
        a.alu(Alu::Add, Reg::R9, Reg::R0);
    }
}
