//! A small interpreter for classic BPF programs ("The BSD Packet Filter", McCanne and Jacobson, 1993).
//!
//! libpcap compiles filters, and this module runs them. A program is checked once. After that, each packet costs a few
//! instructions of safe code, without a call into C. Loads are limited to the captured bytes, while `len` is the length on the
//! wire; the binding's own matcher does not distinguish these.

/// One instruction in libpcap's encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Raw {
    pub(crate) code: u16,
    pub(crate) jt: u8,
    pub(crate) jf: u8,
    pub(crate) k: u32,
}

#[derive(Debug, Clone, Copy)]
enum Alu {
    Add,
    Sub,
    Mul,
    Div,
    Or,
    And,
    Lsh,
    Rsh,
    Mod,
    Xor,
}

#[derive(Debug, Clone, Copy)]
enum Cond {
    Eq,
    Gt,
    Ge,
    Set,
}

#[derive(Debug, Clone, Copy)]
enum Size {
    Word,
    Half,
    Byte,
}

#[derive(Debug, Clone, Copy)]
enum Op {
    /// A = the address family of a loopback header, see [`Family`].
    LoadFamily(Family),
    /// A = packet[k], or packet[X + k].
    Load(Size, u32),
    LoadIndexed(Size, u32),
    LoadImm(u32),
    LoadLen,
    LoadMem(u8),
    LoadXImm(u32),
    LoadXLen,
    LoadXMem(u8),
    /// X = 4 * (packet[k] & 15)
    LoadXHeader(u32),
    Store(u8),
    StoreX(u8),
    AluK(Alu, u32),
    AluX(Alu),
    Negate,
    /// Skips this many instructions.
    Jump(u32),
    JumpK(Cond, u32, u8, u8),
    JumpX(Cond, u8, u8),
    ReturnK(u32),
    ReturnA,
    Tax,
    Txa,
}

/// How to read the address family from the four bytes of a loopback header. The compiler does not see the file, so it knows
/// neither the byte order nor which system's number for IPv6 the file uses. Programs are compiled for network byte order and
/// this host's number, and this load converts the file's value to that form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    LittleEndian,
    BigEndian,
}

/// AF_INET6 of NetBSD and OpenBSD, of FreeBSD, and of macOS.
const FOREIGN_INET6: [u32; 3] = [24, 28, 30];
/// AF_INET6 of Linux.
const LINUX_INET6: u32 = 10;

/// Most instructions of a program; libpcap's programs are far shorter.
const MAX_PROGRAM: usize = 65_536;
/// Packet offsets from here on mean "ask the kernel": they have no meaning in a file.
const KERNEL_OFFSETS: u32 = 0xffff_f000;

/// A checked program. All jumps go forwards and stay inside, and the last instruction returns, so it always ends.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    ops: Box<[Op]>,
}

impl Program {
    /// Checks a program. The error names the instruction. With `family`, packets begin with a loopback header.
    pub(crate) fn new(raw: &[Raw], family: Option<Family>) -> Result<Self, String> {
        if raw.is_empty() || raw.len() > MAX_PROGRAM {
            return Err(format!("the compiled filter has {} instructions; 1 to {MAX_PROGRAM} are taken", raw.len()));
        }
        let mut ops = Vec::with_capacity(raw.len());
        for (i, r) in raw.iter().enumerate() {
            let left = raw.len() - 1 - i;
            let op = decode(r, left).ok_or_else(|| {
                format!("instruction {i} of the compiled filter ({:#06x}) has no meaning in a capture file", r.code)
            })?;
            ops.push(match (op, family) {
                (Op::Load(Size::Word, 0), Some(family)) => Op::LoadFamily(family),
                _ => op,
            });
        }
        if !matches!(ops.last(), Some(Op::ReturnK(_) | Op::ReturnA)) {
            return Err("the compiled filter does not end in a return".into());
        }
        Ok(Program { ops: ops.into() })
    }

    /// Runs on a packet of `wire_len` bytes, of which `data` was captured. 0 means no match.
    pub(crate) fn run(&self, data: &[u8], wire_len: u32) -> u32 {
        let (mut a, mut x, mut mem) = (0u32, 0u32, [0u32; 16]);
        let mut pc = 0usize;
        while let Some(op) = self.ops.get(pc) {
            pc += 1;
            match *op {
                Op::Load(size, k) => match load(data, u64::from(k), size) {
                    Some(v) => a = v,
                    None => return 0,
                },
                Op::LoadFamily(family) => match load(data, 0, Size::Word) {
                    Some(v) => {
                        let v = if family == Family::LittleEndian { v.swap_bytes() } else { v };
                        a = if FOREIGN_INET6.contains(&v) { LINUX_INET6 } else { v };
                    }
                    None => return 0,
                },
                Op::LoadIndexed(size, k) => match load(data, u64::from(x) + u64::from(k), size) {
                    Some(v) => a = v,
                    None => return 0,
                },
                Op::LoadImm(k) => a = k,
                Op::LoadLen => a = wire_len,
                Op::LoadMem(i) => a = mem[usize::from(i & 15)],
                Op::LoadXImm(k) => x = k,
                Op::LoadXLen => x = wire_len,
                Op::LoadXMem(i) => x = mem[usize::from(i & 15)],
                Op::LoadXHeader(k) => match load(data, u64::from(k), Size::Byte) {
                    Some(v) => x = (v & 15) * 4,
                    None => return 0,
                },
                Op::Store(i) => mem[usize::from(i & 15)] = a,
                Op::StoreX(i) => mem[usize::from(i & 15)] = x,
                Op::AluK(op, k) => match alu(op, a, k) {
                    Some(v) => a = v,
                    None => return 0,
                },
                Op::AluX(op) => match alu(op, a, x) {
                    Some(v) => a = v,
                    None => return 0,
                },
                Op::Negate => a = a.wrapping_neg(),
                Op::Jump(k) => pc += k as usize,
                Op::JumpK(cond, k, t, f) => pc += usize::from(if test(cond, a, k) { t } else { f }),
                Op::JumpX(cond, t, f) => pc += usize::from(if test(cond, a, x) { t } else { f }),
                Op::ReturnK(k) => return k,
                Op::ReturnA => return a,
                Op::Tax => x = a,
                Op::Txa => a = x,
            }
        }
        0
    }
}

fn load(data: &[u8], at: u64, size: Size) -> Option<u32> {
    let rest = data.get(usize::try_from(at).ok()?..)?;
    Some(match size {
        Size::Word => u32::from_be_bytes(*rest.first_chunk()?),
        Size::Half => u32::from(u16::from_be_bytes(*rest.first_chunk()?)),
        Size::Byte => u32::from(*rest.first()?),
    })
}

fn alu(op: Alu, a: u32, b: u32) -> Option<u32> {
    Some(match op {
        Alu::Add => a.wrapping_add(b),
        Alu::Sub => a.wrapping_sub(b),
        Alu::Mul => a.wrapping_mul(b),
        Alu::Div => a.checked_div(b)?,
        Alu::Mod => a.checked_rem(b)?,
        Alu::Or => a | b,
        Alu::And => a & b,
        Alu::Xor => a ^ b,
        Alu::Lsh => a.checked_shl(b).unwrap_or(0),
        Alu::Rsh => a.checked_shr(b).unwrap_or(0),
    })
}

fn test(cond: Cond, a: u32, b: u32) -> bool {
    match cond {
        Cond::Eq => a == b,
        Cond::Gt => a > b,
        Cond::Ge => a >= b,
        Cond::Set => a & b != 0,
    }
}

/// Decodes an instruction. `left` instructions follow it; a jump over `n` needs at least `n + 1`.
fn decode(r: &Raw, left: usize) -> Option<Op> {
    let (class, k) = (r.code & 7, r.k);
    let size = match r.code & 0x18 {
        0x00 => Some(Size::Word),
        0x08 => Some(Size::Half),
        0x10 => Some(Size::Byte),
        _ => None,
    };
    let slot = u8::try_from(k).ok().filter(|&i| i < 16);
    let with_x = r.code & 0x08 != 0;
    Some(match class {
        0 => match r.code & 0xe0 {
            0x00 => Op::LoadImm(k),
            0x20 if k < KERNEL_OFFSETS => Op::Load(size?, k),
            0x40 if k < KERNEL_OFFSETS => Op::LoadIndexed(size?, k),
            0x60 => Op::LoadMem(slot?),
            0x80 => Op::LoadLen,
            _ => return None,
        },
        1 => match r.code & 0xe0 {
            0x00 => Op::LoadXImm(k),
            0x60 => Op::LoadXMem(slot?),
            0x80 => Op::LoadXLen,
            0xa0 => Op::LoadXHeader(k),
            _ => return None,
        },
        2 => Op::Store(slot?),
        3 => Op::StoreX(slot?),
        4 => {
            let op = match r.code & 0xf0 {
                0x00 => Alu::Add,
                0x10 => Alu::Sub,
                0x20 => Alu::Mul,
                0x30 => Alu::Div,
                0x40 => Alu::Or,
                0x50 => Alu::And,
                0x60 => Alu::Lsh,
                0x70 => Alu::Rsh,
                0x80 => return Some(Op::Negate),
                0x90 => Alu::Mod,
                0xa0 => Alu::Xor,
                _ => return None,
            };
            match op {
                _ if with_x => Op::AluX(op),
                Alu::Div | Alu::Mod if k == 0 => return None,
                _ => Op::AluK(op, k),
            }
        }
        5 => {
            let inside = |n: usize| n < left;
            let cond = match r.code & 0xf0 {
                0x00 => return inside(k as usize).then_some(Op::Jump(k)),
                0x10 => Cond::Eq,
                0x20 => Cond::Gt,
                0x30 => Cond::Ge,
                0x40 => Cond::Set,
                _ => return None,
            };
            if !inside(usize::from(r.jt)) || !inside(usize::from(r.jf)) {
                return None;
            }
            if with_x { Op::JumpX(cond, r.jt, r.jf) } else { Op::JumpK(cond, k, r.jt, r.jf) }
        }
        6 => match r.code & 0x18 {
            0x00 => Op::ReturnK(k),
            0x10 => Op::ReturnA,
            _ => return None,
        },
        _ => match r.code & 0xf8 {
            0x00 => Op::Tax,
            0x80 => Op::Txa,
            _ => return None,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn raw(code: u16, jt: u8, jf: u8, k: u32) -> Raw {
        Raw { code, jt, jf, k }
    }

    #[test]
    fn programs_that_could_leave_or_not_end_are_refused() {
        assert!(Program::new(&[], None).is_err());
        assert!(Program::new(&[raw(0x00, 0, 0, 1)], None).is_err(), "no return");
        assert!(Program::new(&[raw(0x05, 0, 0, 1), raw(0x06, 0, 0, 1)], None).is_err(), "jump past the end");
        assert!(Program::new(&[raw(0x05, 0, 0, u32::MAX), raw(0x06, 0, 0, 1)], None).is_err(), "jump backwards");
        assert!(Program::new(&[raw(0x15, 1, 0, 0), raw(0x06, 0, 0, 1)], None).is_err());
        assert!(Program::new(&[raw(0x34, 0, 0, 0), raw(0x06, 0, 0, 1)], None).is_err(), "division by 0");
        assert!(Program::new(&[raw(0x60, 0, 0, 16), raw(0x06, 0, 0, 1)], None).is_err(), "no such slot");
        assert!(Program::new(&[raw(0x28, 0, 0, 0xffff_f004), raw(0x06, 0, 0, 1)], None).is_err(), "kernel's");
    }

    #[test]
    fn loads_past_the_packet_do_not_match_and_len_is_that_on_the_wire() {
        let program = Program::new(&[raw(0x20, 0, 0, 1), raw(0x06, 0, 0, 9)], None).unwrap();
        assert_eq!(program.run(&[0; 5], 5), 9);
        assert_eq!(program.run(&[0; 4], 5), 0);
        let program = Program::new(&[raw(0x80, 0, 0, 0), raw(0x16, 0, 0, 0)], None).unwrap();
        assert_eq!(program.run(&[], 1500), 1500);
    }

    proptest! {
        #[test]
        fn whatever_is_accepted_ends(
            code in proptest::collection::vec((0u16..0x100, 0u8..4, 0u8..4, prop_oneof![0u32..20, any::<u32>()]), 1..40),
            data in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            let mut raws: Vec<Raw> = code.into_iter().map(|(c, t, f, k)| raw(c, t, f, k)).collect();
            raws.retain(|r| decode(r, usize::MAX).is_some());
            raws.push(raw(0x06, 0, 0, 1));
            if let Ok(program) = Program::new(&raws, None) {
                program.run(&data, 100);
            }
        }
    }
}
