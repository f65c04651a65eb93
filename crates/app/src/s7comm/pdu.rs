//! A PDU: its header, and the parameters of the request.

use crate::bytes::be16;

/// Length of the header of a job, and of user data; acknowledgements have two more bytes for an error.
const HEADER: usize = 10;
/// The limit of items.
const ITEMS_MAX: usize = 20;

/// Types of PDUs.
pub(super) const JOB: u8 = 1;
pub(super) const ACK: u8 = 2;
pub(super) const ACK_DATA: u8 = 3;
pub(super) const USER_DATA: u8 = 7;

/// A variable that is read or written.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) area: u8,
    /// The data block; 0 in other areas.
    pub(super) db: u16,
    /// Bit address.
    pub(super) bit: u32,
    pub(super) count: u16,
}

/// The parts of a PDU that rules and events need.
#[derive(Debug)]
pub(super) struct Pdu {
    pub(super) kind: u8,
    pub(super) reference: u16,
    pub(super) function: Option<u8>,
    /// For user data: group and function.
    pub(super) user: Option<(u8, u8)>,
    /// User data sent as a request.
    is_asked: bool,
    /// For acknowledgements: error class and code.
    pub(super) error: Option<u16>,
    pub(super) items: Vec<Item>,
    /// The parameters are truncated.
    pub(super) is_cut: bool,
}

impl Pdu {
    /// Reads a PDU; `None` if its header is incomplete.
    pub(super) fn read(data: &[u8]) -> Option<Pdu> {
        let head = data.first_chunk::<HEADER>()?;
        let kind = head[1];
        let mut p = Pdu {
            kind,
            reference: be16(head, 4)?,
            function: None,
            user: None,
            is_asked: false,
            error: None,
            items: Vec::new(),
            is_cut: false,
        };
        let at = match kind {
            ACK | ACK_DATA => {
                p.error = Some(be16(data, HEADER)?);
                HEADER + 2
            }
            _ => HEADER,
        };
        let len = usize::from(be16(head, 6)?);
        match data.get(at..at + len) {
            Some(parameters) => p.is_cut = p.parameters(parameters).is_none(),
            None => p.is_cut = true,
        }
        Some(p)
    }

    fn parameters(&mut self, parameters: &[u8]) -> Option<()> {
        if self.kind == USER_DATA {
            // Three header bytes, a length, the request type, type and group, function, sequence.
            let [_, _, _, _, _, group, function, ..] = *parameters else { return None };
            self.user = Some((group & 0xf, function));
            self.is_asked = group >> 4 == 4;
            return Some(());
        }
        let Some((function, rest)) = parameters.split_first() else {
            // An acknowledgement without data has no parameters.
            return (self.kind == ACK).then_some(());
        };
        self.function = Some(*function);
        if self.kind == JOB && matches!(function, 4 | 5) {
            let (count, rest) = rest.split_first()?;
            self.items(*count, rest)?;
        }
        Some(())
    }

    /// Reads items: `12`, a length, the syntax, and for addresses of any type (`10`) size, count, block, area and bit.
    fn items(&mut self, count: u8, mut rest: &[u8]) -> Option<()> {
        for _ in 0..count {
            let [0x12, len, ..] = *rest else { return None };
            let (item, behind) = rest.split_at_checked(2 + usize::from(len))?;
            // An item of odd length is padded, except the last one.
            rest = behind.get(usize::from(len) % 2..).unwrap_or(&[]);
            if let [_, 10, 0x10, _, c0, c1, d0, d1, area, a, b, c] = *item
                && self.items.len() < ITEMS_MAX
            {
                self.items.push(Item {
                    area,
                    db: u16::from_be_bytes([d0, d1]),
                    bit: u32::from_be_bytes([0, a, b, c]),
                    count: u16::from_be_bytes([c0, c1]),
                });
            }
        }
        Some(())
    }

    /// Whether it expects an acknowledgement.
    pub(super) const fn is_request(&self) -> bool {
        self.kind == JOB || self.kind == USER_DATA && self.is_asked
    }

    /// Heap memory in bytes.
    pub(super) fn held(&self) -> u64 {
        (self.items.capacity() * size_of::<Item>()) as u64
    }
}
