//! The programs themselves.

use super::asm::{Alu, Asm, Helper, Insn, Label, Reg, Size, When};
use crate::live::LiveError;

/// What an XDP program returns (`enum xdp_action`).
mod action {
    pub(super) const DROP: i32 = 1;
    pub(super) const PASS: i32 = 2;
    pub(super) const REDIRECT: u32 = 4;
}

/// Where the fields of `struct xdp_md` are.
mod context {
    pub(super) const DATA: i16 = 0;
    pub(super) const DATA_END: i16 = 4;
    pub(super) const QUEUE: i16 = 16;
}

/// Hands a packet to the socket in `sockets` (a map of AF_XDP sockets by queue) of the queue that it came in on, and counts it
/// in `counts` (a 64-bit number for each queue and CPU). Where there is no socket it goes on its way.
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

fn done(a: Asm) -> Result<Vec<Insn>, LiveError> {
    a.finish().map_err(|e| LiveError::System {
        interface: "XDP".to_owned(),
        what: "a program of this engine is broken; please report it",
        source: std::io::Error::other(e),
    })
}

/// `*(at + off) += 1`; there is one such number for each CPU, and nobody else on this one.
fn increment(a: &mut Asm, at: Reg, off: i16) {
    a.load(Size::DW, Reg::R1, at, off);
    a.alu_imm(Alu::Add, Reg::R1, 1);
    a.store(Size::DW, at, off, Reg::R1);
}

/// The key of a flow's direction, as the bypass program makes it of a packet.
pub(crate) mod key {
    /// Its size in bytes.
    pub(crate) const LEN: usize = 44;
    /// 16 bytes, or 4 and zeros.
    pub(crate) const SOURCE: usize = 0;
    pub(crate) const DESTINATION: usize = 16;
    /// As on the wire.
    pub(crate) const SOURCE_PORT: usize = 32;
    pub(crate) const DESTINATION_PORT: usize = 34;
    /// Identifiers of two VLAN tags, the outer one first, in the machine's order; 0 where there is none.
    pub(crate) const VLANS: usize = 36;
    pub(crate) const PROTOCOL: usize = 40;
    /// 4 or 6.
    pub(crate) const FAMILY: usize = 41;
}

/// What is counted of a flow's direction, on each CPU: 64-bit numbers.
pub(crate) mod value {
    /// Its size in bytes.
    pub(crate) const LEN: usize = 24;
    pub(crate) const PACKETS: usize = 0;
    pub(crate) const BYTES: usize = 8;
    /// Nanoseconds of the monotonic clock.
    pub(crate) const LAST: usize = 16;
}

/// What the bypass program does with what it found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// It goes no further.
    Drop,
    /// It leaves by the first interface of the map (a map of devices), unless it has more than `longest` bytes.
    Forward { devices: i32, longest: u32 },
}

/// The stack: below it is the key.
const KEY: i16 = -48;

const fn on_stack(field: usize) -> i16 {
    KEY + field as i16
}

/// A number of the wire, as a load in the machine's order gives it.
const fn wire16(n: u16) -> u32 {
    n.to_be() as u32
}

/// Looks in `flows` (a map of [`key`] to [`value`]) for the flow of a packet, and where it is there counts the packet and does
/// with it what `found` says. All others go on their way, and so do those that open or end a TCP connection, fragments, what
/// has extension headers, and what is for many or for `own`, the interface's own address.
pub(crate) fn bypass(flows: i32, own: [u8; 6], found: Found) -> Result<Vec<Insn>, LiveError> {
    let mut a = Asm::new();
    let pass = a.label();
    a.load(Size::W, Reg::R7, Reg::R1, context::DATA);
    a.load(Size::W, Reg::R8, Reg::R1, context::DATA_END);
    (0..6).for_each(|n| a.store_imm(Size::DW, Reg::Fp, KEY + n * 8, 0));
    link_layer(&mut a, own, pass);
    network_layer(&mut a, pass);
    a.map(Reg::R1, flows);
    a.mov(Reg::R2, Reg::Fp);
    a.alu_imm(Alu::Add, Reg::R2, i32::from(KEY));
    a.call(Helper::MapLookup);
    a.jump_if_null(Reg::R0, pass);
    a.mov(Reg::R9, Reg::R0);
    // R6 = length
    a.mov(Reg::R6, Reg::R8);
    a.alu(Alu::Sub, Reg::R6, Reg::R7);
    let count = a.label();
    match found {
        Found::Drop => a.mov_imm(Reg::R7, action::DROP),
        Found::Forward { devices, longest } => {
            a.jump_if_imm(When::Greater, Reg::R6, longest, pass);
            a.map(Reg::R1, devices);
            a.mov_imm(Reg::R2, 0);
            a.mov_imm(Reg::R3, action::PASS);
            a.call(Helper::RedirectMap);
            a.mov(Reg::R7, Reg::R0);
            a.jump_if_imm(When::Equal, Reg::R7, action::REDIRECT, count);
            a.exit();
        }
    }
    a.bind(count);
    increment(&mut a, Reg::R9, value::PACKETS as i16);
    a.load(Size::DW, Reg::R1, Reg::R9, value::BYTES as i16);
    a.alu(Alu::Add, Reg::R1, Reg::R6);
    a.store(Size::DW, Reg::R9, value::BYTES as i16, Reg::R1);
    a.call(Helper::KtimeCoarse);
    a.store(Size::DW, Reg::R9, value::LAST as i16, Reg::R0);
    a.mov(Reg::R0, Reg::R7);
    a.exit();
    a.bind(pass);
    a.mov_imm(Reg::R0, action::PASS);
    a.exit();
    done(a)
}

/// Leaves where fewer than `len` bytes follow R9.
fn need(a: &mut Asm, len: i32, pass: Label) {
    a.mov(Reg::R1, Reg::R9);
    a.alu_imm(Alu::Add, Reg::R1, len);
    a.jump_if(When::Greater, Reg::R1, Reg::R8, pass);
}

/// Ethernet and up to two tags: R9 is after them then, R2 the type of what follows.
fn link_layer(a: &mut Asm, own: [u8; 6], pass: Label) {
    a.mov(Reg::R9, Reg::R7);
    need(a, 14, pass);
    // What is for many.
    a.load(Size::B, Reg::R2, Reg::R7, 0);
    a.jump_if_imm(When::Bits, Reg::R2, 1, pass);
    // What is for this host.
    let [a0, a1, a2, a3, a4, a5] = own;
    let other = a.label();
    a.load(Size::W, Reg::R2, Reg::R7, 0);
    a.jump_if_imm(When::NotEqual, Reg::R2, u32::from_ne_bytes([a0, a1, a2, a3]), other);
    a.load(Size::H, Reg::R2, Reg::R7, 4);
    a.jump_if_imm(When::Equal, Reg::R2, u32::from(u16::from_ne_bytes([a4, a5])), pass);
    a.bind(other);
    a.load(Size::H, Reg::R2, Reg::R7, 12);
    a.alu_imm(Alu::Add, Reg::R9, 14);
    let end = a.label();
    for tag in 0..2 {
        let tagged = a.label();
        a.jump_if_imm(When::Equal, Reg::R2, wire16(0x8100), tagged);
        a.jump_if_imm(When::NotEqual, Reg::R2, wire16(0x88a8), end);
        a.bind(tagged);
        need(a, 4, pass);
        a.load(Size::H, Reg::R3, Reg::R9, 0);
        a.big_endian16(Reg::R3);
        a.alu_imm(Alu::And, Reg::R3, 0xfff);
        a.store(Size::H, Reg::Fp, on_stack(key::VLANS + 2 * tag), Reg::R3);
        a.load(Size::H, Reg::R2, Reg::R9, 2);
        a.alu_imm(Alu::Add, Reg::R9, 4);
    }
    a.bind(end);
}

/// Addresses and ports, from R9 and of the type R2.
fn network_layer(a: &mut Asm, pass: Label) {
    let (v4, v6, transport, udp, ports) = (a.label(), a.label(), a.label(), a.label(), a.label());
    a.jump_if_imm(When::Equal, Reg::R2, wire16(0x0800), v4);
    a.jump_if_imm(When::Equal, Reg::R2, wire16(0x86dd), v6);
    a.jump(pass);

    a.bind(v4);
    need(a, 20, pass);
    a.load(Size::B, Reg::R3, Reg::R9, 0);
    a.mov(Reg::R4, Reg::R3);
    a.alu_imm(Alu::Rsh, Reg::R4, 4);
    a.jump_if_imm(When::NotEqual, Reg::R4, 4, pass);
    a.alu_imm(Alu::And, Reg::R3, 0xf);
    a.alu_imm(Alu::Lsh, Reg::R3, 2);
    a.jump_if_imm(When::Less, Reg::R3, 20, pass);
    // More fragments, or not the first one.
    a.load(Size::H, Reg::R4, Reg::R9, 6);
    a.jump_if_imm(When::Bits, Reg::R4, wire16(0x3fff), pass);
    a.load(Size::B, Reg::R5, Reg::R9, 9);
    a.store_imm(Size::B, Reg::Fp, on_stack(key::FAMILY), 4);
    copy(a, 12, key::SOURCE, 1);
    copy(a, 16, key::DESTINATION, 1);
    a.alu(Alu::Add, Reg::R9, Reg::R3);
    a.jump(transport);

    a.bind(v6);
    need(a, 40, pass);
    a.load(Size::B, Reg::R5, Reg::R9, 6);
    a.store_imm(Size::B, Reg::Fp, on_stack(key::FAMILY), 6);
    copy(a, 8, key::SOURCE, 4);
    copy(a, 24, key::DESTINATION, 4);
    a.alu_imm(Alu::Add, Reg::R9, 40);

    a.bind(transport);
    a.store(Size::B, Reg::Fp, on_stack(key::PROTOCOL), Reg::R5);
    a.jump_if_imm(When::Equal, Reg::R5, 17, udp);
    a.jump_if_imm(When::NotEqual, Reg::R5, 6, pass);
    need(a, 20, pass);
    // FIN, SYN, RST
    a.load(Size::B, Reg::R4, Reg::R9, 13);
    a.jump_if_imm(When::Bits, Reg::R4, 7, pass);
    a.jump(ports);
    a.bind(udp);
    need(a, 8, pass);
    a.bind(ports);
    for (from, to) in [(0, key::SOURCE_PORT), (2, key::DESTINATION_PORT)] {
        a.load(Size::H, Reg::R4, Reg::R9, from);
        a.store(Size::H, Reg::Fp, on_stack(to), Reg::R4);
    }
}

/// Copies words of the packet to the key.
fn copy(a: &mut Asm, from: i16, to: usize, words: i16) {
    for n in 0..words {
        a.load(Size::W, Reg::R4, Reg::R9, from + n * 4);
        a.store(Size::W, Reg::Fp, on_stack(to) + n * 4, Reg::R4);
    }
}

/// Layers of addresses in one another that the program of a fan-out group goes through.
const LAYERS: usize = 3;

/// Chooses a socket of a fan-out group for a packet: the same for all of one pair of addresses, whichever way. Those are what is
/// inside of tunnels (IP in IP, GRE), where they can be seen, so that what a tunnel carries is spread too. Fragments go where
/// the rest goes. What has no addresses goes to the first socket.
pub(crate) fn spread() -> Result<Vec<Insn>, LiveError> {
    /// Of `struct __sk_buff`.
    const PROTOCOL: i16 = 16;
    let mut a = Asm::new();
    let (none, hash) = (a.label(), a.label());
    a.mov(Reg::R6, Reg::R1);
    // R7 = where the header is, from the network header on; R8 = its type; R9 = the sum of addresses.
    a.mov_imm(Reg::R7, 0);
    a.mov_imm(Reg::R9, 0);
    a.load(Size::W, Reg::R8, Reg::R6, PROTOCOL);
    a.big_endian16(Reg::R8);
    // The kernel took out one tag.
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
        // What is in a fragment but the first is no header.
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

        // R8 = the protocol: another layer, or the end.
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
        // Version 0 alone; 4 bytes more for each of checksum, key, sequence number.
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
    // Mixed, so that neighbours among addresses are not neighbours among sockets.
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

/// R9 = the sum of the words of both addresses: the same whichever is first. It takes the place of that of the layer before.
fn addresses(a: &mut Asm, from: i32, words: i32) {
    a.mov_imm(Reg::R9, 0);
    for n in 0..words * 2 {
        a.load_packet_at(Size::W, Reg::R7, from + n * 4);
        a.alu(Alu::Add, Reg::R9, Reg::R0);
    }
}
