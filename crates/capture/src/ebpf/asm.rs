//! An assembler for eBPF: it turns instructions with labels into the kernel's encoding (RFC 9669, BPF Instruction Set Architecture).
//! This is safe code; the kernel's verifier decides whether a program is sound.

/// An instruction in the kernel's encoding (`struct bpf_insn`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Insn {
    code: u8,
    /// Destination in the low four bits, source in the high ones; the other way round on big-endian machines.
    regs: u8,
    off: i16,
    imm: i32,
}

/// A register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Reg {
    /// The result of a call or of the program.
    R0 = 0,
    /// First argument of a call, the context at the start.
    R1,
    R2,
    R3,
    R4,
    R5,
    /// This register and the following ones survive a call.
    R6,
    R7,
    R8,
    R9,
    /// The stack's end: the 512 bytes below it are writable.
    Fp,
}

/// The size of a load or store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    B,
    H,
    W,
    DW,
}

impl Size {
    const fn bits(self) -> u8 {
        match self {
            Size::W => 0x00,
            Size::H => 0x08,
            Size::B => 0x10,
            Size::DW => 0x18,
        }
    }
}

/// An operation on a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Alu {
    Add = 0x00,
    Sub = 0x10,
    Mul = 0x20,
    And = 0x50,
    Lsh = 0x60,
    Rsh = 0x70,
    Xor = 0xa0,
    Mov = 0xb0,
}

/// The condition of a jump. Numbers are compared as unsigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum When {
    Equal = 0x10,
    Greater = 0x20,
    /// The operands have a common bit.
    Bits = 0x40,
    NotEqual = 0x50,
    Less = 0xa0,
}

/// A function of the kernel that programs may call (`enum bpf_func_id`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Helper {
    MapLookup = 1,
    /// Sends a packet out of the interface with this index.
    Redirect = 23,
    /// Copies bytes of a packet to the stack, even if they are not contiguous. Returns 0, or another number if there are too few.
    SkbLoadBytes = 26,
    RedirectMap = 51,
    /// Nanoseconds of the monotonic clock, with the resolution of a tick; since Linux 5.11.
    KtimeCoarse = 160,
}

/// Loads a packet's bytes at an offset in a register, for socket programs.
const LD_IND: u8 = 0x40;
/// Base of offsets from the network header (`SKF_NET_OFF`).
const NETWORK: i32 = -0x10_0000;
const LDX: u8 = 0x61;
const ST: u8 = 0x62;
const STX: u8 = 0x63;
const ALU64: u8 = 0x07;
const ALU32: u8 = 0x04;
const JMP: u8 = 0x05;
const JMP32: u8 = 0x06;
/// The operand is a register.
const X: u8 = 0x08;
const CALL: u8 = 0x80;
const EXIT: u8 = 0x90;
/// Converts to network order, so that bytes from a packet become a number.
const END_BE: u8 = 0xd0 | X;
/// Loads a 64-bit constant; takes two instructions.
const LD_IMM64: u8 = 0x18;
/// The constant is the descriptor of a map.
const PSEUDO_MAP_FD: u8 = 1;

/// A target of jumps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Label(usize);

/// An assembly error: a mistake in this crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AsmError {
    #[error("a jump leads nowhere")]
    Unbound,
    #[error("a jump is too far")]
    Far,
}

/// A program being written.
#[derive(Debug, Default)]
pub(crate) struct Asm {
    code: Vec<Insn>,
    labels: Vec<Option<usize>>,
    jumps: Vec<(usize, Label)>,
}

impl Asm {
    pub(crate) fn new() -> Asm {
        Asm::default()
    }

    fn push(&mut self, code: u8, dst: u8, src: u8, off: i16, imm: i32) {
        let regs = if cfg!(target_endian = "big") { dst << 4 | src } else { src << 4 | dst };
        self.code.push(Insn { code, regs, off, imm });
    }

    /// A new label. [`Asm::bind`] sets its place.
    pub(crate) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Binds the label to the next instruction.
    pub(crate) fn bind(&mut self, label: Label) {
        let here = self.code.len();
        if let Some(l) = self.labels.get_mut(label.0) {
            *l = Some(here);
        }
    }

    /// `dst = dst op src`
    pub(crate) fn alu(&mut self, op: Alu, dst: Reg, src: Reg) {
        self.push(ALU64 | op as u8 | X, dst as u8, src as u8, 0, 0);
    }

    /// `dst = dst op imm`
    pub(crate) fn alu_imm(&mut self, op: Alu, dst: Reg, imm: i32) {
        self.push(ALU64 | op as u8, dst as u8, 0, 0, imm);
    }

    /// `dst = src`
    pub(crate) fn mov(&mut self, dst: Reg, src: Reg) {
        self.alu(Alu::Mov, dst, src);
    }

    /// `dst = imm`
    pub(crate) fn mov_imm(&mut self, dst: Reg, imm: i32) {
        self.alu_imm(Alu::Mov, dst, imm);
    }

    /// `dst = *(src + off)`
    pub(crate) fn load(&mut self, size: Size, dst: Reg, src: Reg, off: i16) {
        self.push(LDX | size.bits(), dst as u8, src as u8, off, 0);
    }

    /// `R0 =` bytes of the packet as a number, at offset `from + off` from the network header. R6 must be the context. R1 to R5 are
    /// overwritten. If the packet is too short, the program ends with 0.
    pub(crate) fn load_packet_at(&mut self, size: Size, from: Reg, off: i32) {
        self.push(LD_IND | size.bits(), 0, from as u8, 0, NETWORK + off);
    }

    /// `*(dst + off) = src`
    pub(crate) fn store(&mut self, size: Size, dst: Reg, off: i16, src: Reg) {
        self.push(STX | size.bits(), dst as u8, src as u8, off, 0);
    }

    /// `*(dst + off) = imm`
    pub(crate) fn store_imm(&mut self, size: Size, dst: Reg, off: i16, imm: i32) {
        self.push(ST | size.bits(), dst as u8, 0, off, imm);
    }

    /// Converts 16 bits that were loaded from a packet to a number.
    pub(crate) fn big_endian16(&mut self, dst: Reg) {
        self.push(ALU32 | END_BE, dst as u8, 0, 0, 16);
    }

    pub(crate) fn jump(&mut self, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.push(JMP, 0, 0, 0, 0);
    }

    /// Jumps if `dst when src`.
    pub(crate) fn jump_if(&mut self, when: When, dst: Reg, src: Reg, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.push(JMP | when as u8 | X, dst as u8, src as u8, 0, 0);
    }

    /// Jumps if the low 32 bits of `dst` are `when imm`.
    pub(crate) fn jump_if_imm(&mut self, when: When, dst: Reg, imm: u32, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.push(JMP32 | when as u8, dst as u8, 0, 0, imm as i32);
    }

    /// Jumps if the 64 bits of `dst` are 0, the result of a lookup without an entry.
    pub(crate) fn jump_if_null(&mut self, dst: Reg, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.push(JMP | When::Equal as u8, dst as u8, 0, 0, 0);
    }

    /// `R0 = helper(R1, …, R5)`. R1 to R5 are overwritten.
    pub(crate) fn call(&mut self, helper: Helper) {
        self.push(JMP | CALL, 0, 0, 0, helper as i32);
    }

    /// Ends the program with R0 as its result.
    pub(crate) fn exit(&mut self) {
        self.push(JMP | EXIT, 0, 0, 0, 0);
    }

    /// `dst` = the map with this descriptor.
    pub(crate) fn map(&mut self, dst: Reg, fd: i32) {
        self.push(LD_IMM64, dst as u8, PSEUDO_MAP_FD, 0, fd);
        self.push(0, 0, 0, 0, 0);
    }

    /// `dst` = a constant of 64 bits.
    pub(crate) fn constant(&mut self, dst: Reg, value: u64) {
        self.push(LD_IMM64, dst as u8, 0, 0, value as u32 as i32);
        self.push(0, 0, 0, 0, (value >> 32) as u32 as i32);
    }

    /// The finished program.
    ///
    /// # Errors
    /// A label that was not bound, or is too far away.
    pub(crate) fn finish(mut self) -> Result<Vec<Insn>, AsmError> {
        for (at, label) in &self.jumps {
            let to = self.labels.get(label.0).copied().flatten().ok_or(AsmError::Unbound)?;
            let off = i16::try_from(to as i64 - *at as i64 - 1).map_err(|_| AsmError::Far)?;
            if let Some(insn) = self.code.get_mut(*at) {
                insn.off = off;
            }
        }
        Ok(self.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(code: &[Insn]) -> Vec<[u8; 8]> {
        let one = |i: &Insn| {
            let (o, m) = (i.off.to_le_bytes(), i.imm.to_le_bytes());
            [i.code, i.regs, o[0], o[1], m[0], m[1], m[2], m[3]]
        };
        code.iter().map(one).collect()
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn instructions_are_encoded_as_the_rfc_says() {
        let mut a = Asm::new();
        let out = a.label();
        a.mov_imm(Reg::R0, 2);
        a.load(Size::W, Reg::R7, Reg::R1, 4);
        a.jump_if(When::Greater, Reg::R7, Reg::R8, out);
        a.jump_if_imm(When::Bits, Reg::R4, 7, out);
        a.store(Size::H, Reg::Fp, -12, Reg::R3);
        a.store_imm(Size::DW, Reg::Fp, -48, 0);
        a.alu_imm(Alu::Lsh, Reg::R3, 2);
        a.big_endian16(Reg::R3);
        a.map(Reg::R1, 9);
        a.call(Helper::MapLookup);
        a.constant(Reg::R2, 0x1122_3344_f566_7788);
        a.bind(out);
        a.exit();
        let want: [[u8; 8]; 14] = [
            [0xb7, 0x00, 0, 0, 2, 0, 0, 0],
            [0x61, 0x17, 4, 0, 0, 0, 0, 0],
            [0x2d, 0x87, 10, 0, 0, 0, 0, 0],
            [0x46, 0x04, 9, 0, 7, 0, 0, 0],
            [0x6b, 0x3a, 0xf4, 0xff, 0, 0, 0, 0],
            [0x7a, 0x0a, 0xd0, 0xff, 0, 0, 0, 0],
            [0x67, 0x03, 0, 0, 2, 0, 0, 0],
            [0xdc, 0x03, 0, 0, 16, 0, 0, 0],
            [0x18, 0x11, 0, 0, 9, 0, 0, 0],
            [0, 0, 0, 0, 0, 0, 0, 0],
            [0x85, 0, 0, 0, 1, 0, 0, 0],
            [0x18, 0x02, 0, 0, 0x88, 0x77, 0x66, 0xf5],
            [0, 0, 0, 0, 0x44, 0x33, 0x22, 0x11],
            [0x95, 0, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(bytes(&a.finish().unwrap()), want);
    }

    #[test]
    fn a_jump_needs_a_place() {
        let mut a = Asm::new();
        let nowhere = a.label();
        a.jump(nowhere);
        assert_eq!(a.finish().unwrap_err(), AsmError::Unbound);
        let mut a = Asm::new();
        let far = a.label();
        a.jump(far);
        (0..40_000).for_each(|_| a.exit());
        a.bind(far);
        assert_eq!(a.finish().unwrap_err(), AsmError::Far);
    }
}
