//! Programs that make packets of bypassed flows pass the engine by.
//!
//! All of them share the code ([`ask`]) that computes a packet's flow key and looks it up in the table of flows. The XDP program
//! reads the packet in place. The programs in the network stack copy its headers to their stack, because the headers may not be
//! contiguous, and find the outer VLAN tag beside the packet.

use super::asm::{Alu, Asm, Helper, Insn, Label, Reg, Size, When};
use super::programs::{action, context, done, increment};
use crate::live::LiveError;

/// The key of one direction of a flow, which the programs compute from a packet.
pub(crate) mod key {
    /// Its size in bytes.
    pub(crate) const LEN: usize = 44;
    /// An address: 16 bytes, or 4 bytes and zeros.
    pub(crate) const SOURCE: usize = 0;
    pub(crate) const DESTINATION: usize = 16;
    /// A port in network byte order.
    pub(crate) const SOURCE_PORT: usize = 32;
    pub(crate) const DESTINATION_PORT: usize = 34;
    /// Identifiers of two VLAN tags, the outer one first, in the machine's byte order; 0 without a tag.
    pub(crate) const VLANS: usize = 36;
    pub(crate) const PROTOCOL: usize = 40;
    /// 4 or 6.
    pub(crate) const FAMILY: usize = 41;
}

/// The counters of one direction of a flow, for each CPU: 64-bit numbers.
pub(crate) mod value {
    /// Its size in bytes.
    pub(crate) const LEN: usize = 24;
    pub(crate) const PACKETS: usize = 0;
    pub(crate) const BYTES: usize = 8;
    /// Time of the last packet, in nanoseconds of the monotonic clock.
    pub(crate) const LAST: usize = 16;
}

/// The interface's data for programs in the network stack: a map's only entry.
pub(crate) mod port {
    /// Its size in bytes.
    pub(crate) const LEN: usize = 16;
    /// The interface's index while packets may pass by; otherwise 0.
    pub(crate) const INTERFACE: usize = 0;
    /// Length of the longest packet that may pass by, from the network layer on. It does not apply to packets that will be segmented.
    pub(crate) const LONGEST: usize = 4;
    /// The interface's own address, followed by two unused bytes.
    pub(crate) const OWN: usize = 8;
}

/// The XDP program's action on a packet of a bypassed flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// The packet is dropped.
    Drop,
    /// The packet leaves through the first interface in the device map `devices`, unless it has more than `longest` bytes.
    Forward { devices: i32, longest: u32 },
}

/// Offsets of fields in `struct __sk_buff`.
mod skb {
    pub(super) const LEN: i16 = 0;
    pub(super) const VLAN_PRESENT: i16 = 20;
    pub(super) const VLAN_TCI: i16 = 24;
    pub(super) const IFINDEX: i16 = 40;
    /// 20 bytes in the packet for programs.
    pub(super) const CB: i16 = 48;
    /// Size of the segments that the packet will be cut into; 0 for a single packet.
    pub(super) const GSO_SIZE: i16 = 176;
}

/// The result of a tc program that continues with the next one (`TCX_NEXT`).
const NEXT: i32 = -1;

/// Stack offsets of the key, of the copied headers, and of the key of the port's map.
const KEY: i16 = -48;
const HEADERS: i16 = KEY - 40;
const FIRST: i16 = HEADERS - 8;

const fn on_stack(field: usize) -> i16 {
    KEY + field as i16
}

/// The value that a load in the machine's byte order gives for a number in network byte order.
const fn wire16(n: u16) -> u32 {
    n.to_be() as u32
}

/// How a program accesses the packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum View {
    /// In place: R7 is its start, R8 its end, and R9 the current position.
    Direct { own: [u8; 6] },
    /// Copied: R6 is the context, R8 the current offset in the packet, and R9 the copy of the headers from there. R7 is the
    /// [`port`] entry.
    Copied,
}

impl View {
    /// Jumps to `pass` if fewer than `len` bytes follow the position; otherwise they are at R9. Overwrites R0 to R5.
    fn need(self, a: &mut Asm, len: i32, pass: Label) {
        match self {
            View::Direct { .. } => {
                a.mov(Reg::R1, Reg::R9);
                a.alu_imm(Alu::Add, Reg::R1, len);
                a.jump_if(When::Greater, Reg::R1, Reg::R8, pass);
            }
            View::Copied => {
                a.mov(Reg::R1, Reg::R6);
                a.mov(Reg::R2, Reg::R8);
                a.mov(Reg::R3, Reg::R9);
                a.mov_imm(Reg::R4, len);
                a.call(Helper::SkbLoadBytes);
                a.jump_if_imm(When::NotEqual, Reg::R0, 0, pass);
            }
        }
    }

    fn place(self) -> Reg {
        if self == View::Copied { Reg::R8 } else { Reg::R9 }
    }
}

/// `R0 =` the entry of the packet's flow in `flows` (a map of [`key`] to [`value`]). Jumps to `pass` without an entry. It does so,
/// too, for packets that open or end a TCP connection, fragments, packets with extension headers, and frames to a group or to the
/// interface's own address.
fn ask(a: &mut Asm, view: View, flows: i32, pass: Label) {
    (0..6).for_each(|n| a.store_imm(Size::DW, Reg::Fp, KEY + n * 8, 0));
    link_layer(a, view, pass);
    if view == View::Copied {
        // The engine handles packets that the other interface cannot send.
        let fits = a.label();
        a.load(Size::W, Reg::R1, Reg::R6, skb::GSO_SIZE);
        a.jump_if_imm(When::NotEqual, Reg::R1, 0, fits);
        a.load(Size::W, Reg::R1, Reg::R6, skb::LEN);
        a.alu(Alu::Sub, Reg::R1, Reg::R8);
        a.load(Size::W, Reg::R3, Reg::R7, port::LONGEST as i16);
        a.jump_if(When::Greater, Reg::R1, Reg::R3, pass);
        a.bind(fits);
    }
    network_layer(a, view, pass);
    a.map(Reg::R1, flows);
    a.mov(Reg::R2, Reg::Fp);
    a.alu_imm(Alu::Add, Reg::R2, i32::from(KEY));
    a.call(Helper::MapLookup);
    a.jump_if_null(Reg::R0, pass);
}

/// Counts a packet of R8 bytes in the flow's value at R9.
fn count(a: &mut Asm) {
    increment(a, Reg::R9, value::PACKETS as i16);
    a.load(Size::DW, Reg::R1, Reg::R9, value::BYTES as i16);
    a.alu(Alu::Add, Reg::R1, Reg::R8);
    a.store(Size::DW, Reg::R9, value::BYTES as i16, Reg::R1);
    a.call(Helper::KtimeCoarse);
    a.store(Size::DW, Reg::R9, value::LAST as i16, Reg::R0);
}

/// The XDP program for the interface with the address `own`. It counts packets of flows in `flows`, and drops or forwards them as
/// `found` says. All other packets continue into the network stack.
pub(crate) fn bypass(flows: i32, own: [u8; 6], found: Found) -> Result<Vec<Insn>, LiveError> {
    let mut a = Asm::new();
    let pass = a.label();
    a.load(Size::W, Reg::R7, Reg::R1, context::DATA);
    a.load(Size::W, Reg::R8, Reg::R1, context::DATA_END);
    a.mov(Reg::R9, Reg::R7);
    ask(&mut a, View::Direct { own }, flows, pass);
    a.mov(Reg::R9, Reg::R0);
    // R8 = the packet's length
    a.alu(Alu::Sub, Reg::R8, Reg::R7);
    let counted = a.label();
    match found {
        Found::Drop => a.mov_imm(Reg::R7, action::DROP),
        Found::Forward { devices, longest } => {
            a.jump_if_imm(When::Greater, Reg::R8, longest, pass);
            a.map(Reg::R1, devices);
            a.mov_imm(Reg::R2, 0);
            a.mov_imm(Reg::R3, action::PASS);
            a.call(Helper::RedirectMap);
            a.mov(Reg::R7, Reg::R0);
            a.jump_if_imm(When::Equal, Reg::R7, action::REDIRECT, counted);
            a.exit();
        }
    }
    a.bind(counted);
    count(&mut a);
    a.mov(Reg::R0, Reg::R7);
    a.exit();
    a.bind(pass);
    a.mov_imm(Reg::R0, action::PASS);
    a.exit();
    done(a)
}

/// The maps that the two programs in the network stack share, for the [`port`] and for flows, and the mark by which the first
/// passes its decision to the second. The mark is random, so that it differs between engines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shared {
    pub(crate) port: i32,
    pub(crate) flows: i32,
    /// The mark of a packet for the engine; `mark + 1` is that of a packet that passes by.
    pub(crate) mark: u64,
}

impl Shared {
    /// As [`ask`], if packets may pass by at the port. Otherwise jumps to `pass`.
    fn ask(self, a: &mut Asm, pass: Label) {
        a.store_imm(Size::DW, Reg::Fp, FIRST, 0);
        a.map(Reg::R1, self.port);
        a.mov(Reg::R2, Reg::Fp);
        a.alu_imm(Alu::Add, Reg::R2, i32::from(FIRST));
        a.call(Helper::MapLookup);
        a.jump_if_null(Reg::R0, pass);
        a.mov(Reg::R7, Reg::R0);
        a.load(Size::W, Reg::R1, Reg::R7, port::INTERFACE as i16);
        a.load(Size::W, Reg::R2, Reg::R6, skb::IFINDEX);
        a.jump_if(When::NotEqual, Reg::R1, Reg::R2, pass);
        a.mov_imm(Reg::R8, 0);
        a.mov(Reg::R9, Reg::Fp);
        a.alu_imm(Alu::Add, Reg::R9, i32::from(HEADERS));
        ask(a, View::Copied, self.flows, pass);
    }

    fn passes_by(self) -> u64 {
        self.mark.wrapping_add(1)
    }

    /// The program for AF_PACKET sockets, which excludes packets of bypassed flows. It stores its decision in the packet, because
    /// the program at tc ([`Shared::send_on`]) runs later, when the table may have changed.
    pub(crate) fn leave_out(self) -> Result<Vec<Insn>, LiveError> {
        let mut a = Asm::new();
        let pass = a.label();
        a.mov(Reg::R6, Reg::R1);
        self.ask(&mut a, pass);
        a.constant(Reg::R1, self.passes_by());
        a.store(Size::DW, Reg::R6, skb::CB, Reg::R1);
        a.mov_imm(Reg::R0, 0);
        a.exit();
        a.bind(pass);
        a.constant(Reg::R1, self.mark);
        a.store(Size::DW, Reg::R6, skb::CB, Reg::R1);
        // Accept the whole packet.
        a.mov_imm(Reg::R0, -1);
        a.exit();
        done(a)
    }

    /// The program for tc, after the AF_PACKET sockets. It counts packets of bypassed flows and sends them out of the interface
    /// with index `to`. It follows the decision of the socket's program. Without a decision, because the sockets are closed, the
    /// table decides.
    pub(crate) fn send_on(self, to: i32) -> Result<Vec<Insn>, LiveError> {
        let mut a = Asm::new();
        let (next, absent, out) = (a.label(), a.label(), a.label());
        a.mov(Reg::R6, Reg::R1);
        a.load(Size::DW, Reg::R2, Reg::R6, skb::CB);
        a.constant(Reg::R1, self.mark);
        a.jump_if(When::Equal, Reg::R2, Reg::R1, next);
        self.ask(&mut a, absent);
        a.mov(Reg::R9, Reg::R0);
        // R8 = the packet's length on the wire
        a.load(Size::W, Reg::R8, Reg::R6, skb::LEN);
        a.load(Size::W, Reg::R1, Reg::R6, skb::VLAN_PRESENT);
        let untagged = a.label();
        a.jump_if_imm(When::Equal, Reg::R1, 0, untagged);
        a.alu_imm(Alu::Add, Reg::R8, 4);
        a.bind(untagged);
        count(&mut a);
        a.bind(out);
        a.mov_imm(Reg::R1, to);
        a.mov_imm(Reg::R2, 0);
        a.call(Helper::Redirect);
        a.exit();
        a.bind(absent);
        // The entry was removed in between. Forward the packet, because no socket has received it.
        a.load(Size::DW, Reg::R2, Reg::R6, skb::CB);
        a.constant(Reg::R1, self.passes_by());
        a.jump_if(When::Equal, Reg::R2, Reg::R1, out);
        a.bind(next);
        a.mov_imm(Reg::R0, NEXT);
        a.exit();
        done(a)
    }
}

/// Parses Ethernet and up to two tags. Afterwards, the position is behind them, and R2 is the type of the payload.
fn link_layer(a: &mut Asm, view: View, pass: Label) {
    view.need(a, 14, pass);
    // Multicast and broadcast go to the engine.
    a.load(Size::B, Reg::R2, Reg::R9, 0);
    a.jump_if_imm(When::Bits, Reg::R2, 1, pass);
    // So do frames to this host.
    let other = a.label();
    a.load(Size::W, Reg::R2, Reg::R9, 0);
    a.load(Size::H, Reg::R3, Reg::R9, 4);
    match view {
        View::Direct { own: [a0, a1, a2, a3, a4, a5] } => {
            a.jump_if_imm(When::NotEqual, Reg::R2, u32::from_ne_bytes([a0, a1, a2, a3]), other);
            a.jump_if_imm(When::Equal, Reg::R3, u32::from(u16::from_ne_bytes([a4, a5])), pass);
        }
        View::Copied => {
            a.load(Size::W, Reg::R4, Reg::R7, port::OWN as i16);
            a.jump_if(When::NotEqual, Reg::R2, Reg::R4, other);
            a.load(Size::H, Reg::R4, Reg::R7, port::OWN as i16 + 4);
            a.jump_if(When::Equal, Reg::R3, Reg::R4, pass);
        }
    }
    a.bind(other);
    a.load(Size::H, Reg::R2, Reg::R9, 12);
    a.alu_imm(Alu::Add, view.place(), 14);
    let (end, inner) = (a.label(), a.label());
    if view == View::Copied {
        // The kernel removed the outer tag from the frame.
        let untagged = a.label();
        a.load(Size::W, Reg::R3, Reg::R6, skb::VLAN_PRESENT);
        a.jump_if_imm(When::Equal, Reg::R3, 0, untagged);
        a.load(Size::W, Reg::R3, Reg::R6, skb::VLAN_TCI);
        a.alu_imm(Alu::And, Reg::R3, 0xfff);
        a.store(Size::H, Reg::Fp, on_stack(key::VLANS), Reg::R3);
        a.jump(inner);
        a.bind(untagged);
    }
    for tag in 0..2 {
        let tagged = a.label();
        if tag == 1 {
            a.bind(inner);
        }
        a.jump_if_imm(When::Equal, Reg::R2, wire16(0x8100), tagged);
        a.jump_if_imm(When::NotEqual, Reg::R2, wire16(0x88a8), end);
        a.bind(tagged);
        view.need(a, 4, pass);
        a.load(Size::H, Reg::R3, Reg::R9, 0);
        a.big_endian16(Reg::R3);
        a.alu_imm(Alu::And, Reg::R3, 0xfff);
        a.store(Size::H, Reg::Fp, on_stack(key::VLANS + 2 * tag), Reg::R3);
        a.load(Size::H, Reg::R2, Reg::R9, 2);
        a.alu_imm(Alu::Add, view.place(), 4);
    }
    a.bind(end);
}

/// Parses addresses and ports of a payload of type R2, at the current position.
fn network_layer(a: &mut Asm, view: View, pass: Label) {
    let (v4, v6, transport, udp, ports) = (a.label(), a.label(), a.label(), a.label(), a.label());
    a.jump_if_imm(When::Equal, Reg::R2, wire16(0x0800), v4);
    a.jump_if_imm(When::Equal, Reg::R2, wire16(0x86dd), v6);
    a.jump(pass);

    a.bind(v4);
    view.need(a, 20, pass);
    a.load(Size::B, Reg::R3, Reg::R9, 0);
    a.mov(Reg::R4, Reg::R3);
    a.alu_imm(Alu::Rsh, Reg::R4, 4);
    a.jump_if_imm(When::NotEqual, Reg::R4, 4, pass);
    a.alu_imm(Alu::And, Reg::R3, 0xf);
    a.alu_imm(Alu::Lsh, Reg::R3, 2);
    a.jump_if_imm(When::Less, Reg::R3, 20, pass);
    // A fragment: more of them follow, or it is not the first.
    a.load(Size::H, Reg::R4, Reg::R9, 6);
    a.jump_if_imm(When::Bits, Reg::R4, wire16(0x3fff), pass);
    a.load(Size::B, Reg::R5, Reg::R9, 9);
    a.store_imm(Size::B, Reg::Fp, on_stack(key::FAMILY), 4);
    copy(a, 12, key::SOURCE, 1);
    copy(a, 16, key::DESTINATION, 1);
    a.alu(Alu::Add, view.place(), Reg::R3);
    a.jump(transport);

    a.bind(v6);
    view.need(a, 40, pass);
    a.load(Size::B, Reg::R5, Reg::R9, 6);
    a.store_imm(Size::B, Reg::Fp, on_stack(key::FAMILY), 6);
    copy(a, 8, key::SOURCE, 4);
    copy(a, 24, key::DESTINATION, 4);
    a.alu_imm(Alu::Add, view.place(), 40);

    a.bind(transport);
    a.store(Size::B, Reg::Fp, on_stack(key::PROTOCOL), Reg::R5);
    a.jump_if_imm(When::Equal, Reg::R5, 17, udp);
    a.jump_if_imm(When::NotEqual, Reg::R5, 6, pass);
    view.need(a, 20, pass);
    // FIN, SYN, RST
    a.load(Size::B, Reg::R4, Reg::R9, 13);
    a.jump_if_imm(When::Bits, Reg::R4, 7, pass);
    a.jump(ports);
    a.bind(udp);
    view.need(a, 8, pass);
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
