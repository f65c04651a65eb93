//! What DNS and multicast DNS offer to rules.

use margay_flow::Direction;

use crate::tx::{BufferDef, BufferKind, NumberDef};

use super::COMPLETE;
use super::message::Section;
use super::tx::DnsTx;

macro_rules! buffers {
    ($list:ident; $($what:ident $name:literal $request:expr, $response:expr;)*) => {
        /// Buffers for rules; numbers are those of [`Buffer`].
        pub(crate) static $list: &[BufferDef] = &[$(BufferDef {
            name: $name, id: Buffer::$what as u8, kind: BufferKind::Multi, progress: [$request, $response],
        }),*];
    };
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Buffer {
    Query,
    Queries,
    Answers,
    Authorities,
    Additionals,
    Response,
}

/// All of them, by number.
static ALL: &[Buffer] =
    &[Buffer::Query, Buffer::Queries, Buffer::Answers, Buffer::Authorities, Buffer::Additionals, Buffer::Response];

const YES: Option<u8> = Some(COMPLETE);

buffers! { BUFFERS;
    Query "dns.query" YES, None;
    Queries "dns.queries.rrname" YES, YES;
    Answers "dns.answers.rrname" YES, YES;
    Authorities "dns.authorities.rrname" YES, YES;
    Additionals "dns.additionals.rrname" YES, YES;
    Response "dns.response.rrname" None, YES;
}

buffers! { MDNS_BUFFERS;
    Queries "mdns.queries.rrname" YES, YES;
    Answers "mdns.answers.rrname" YES, YES;
    Authorities "mdns.authorities.rrname" YES, YES;
    Additionals "mdns.additionals.rrname" YES, YES;
    Response "mdns.response.rrname" YES, YES;
}

const OPCODE: u8 = 0;
const RCODE: u8 = 1;
const RRTYPE: u8 = 2;

/// Numbers for rules.
pub(crate) static NUMBERS: &[NumberDef] = &[
    NumberDef { name: "dns.opcode", id: OPCODE, progress: [YES, YES] },
    NumberDef { name: "dns.rcode", id: RCODE, progress: [YES, YES] },
    NumberDef { name: "dns.rrtype", id: RRTYPE, progress: [YES, YES] },
];

/// See [`crate::Transaction::buffer`].
pub(super) fn buffer(tx: &DnsTx, id: u8, dir: Direction, index: usize) -> Option<&[u8]> {
    if dir != tx.dir {
        return None;
    }
    let buffer = *ALL.get(usize::from(id))?;
    let owner = |section: Section| tx.message.section(section).get(index).map(|r| r.name);
    let name = match buffer {
        Buffer::Query if dir == Direction::ToServer => owner(Section::Queries)?,
        Buffer::Query => return None,
        Buffer::Queries => owner(Section::Queries)?,
        Buffer::Answers => owner(Section::Answers)?,
        Buffer::Authorities => owner(Section::Authorities)?,
        Buffer::Additionals => owner(Section::Additionals)?,
        Buffer::Response if tx.is_request() => return None,
        Buffer::Response => tx.message.name(index)?,
    };
    Some(tx.message.text(name))
}

/// See [`crate::Transaction::number`].
pub(super) fn number(tx: &DnsTx, id: u8, dir: Direction, index: usize) -> Option<u64> {
    if dir != tx.dir {
        return None;
    }
    match (id, index) {
        (OPCODE, 0) if tx.message.readable => Some(u64::from(tx.message.opcode())),
        (RCODE, 0) if tx.message.readable => Some(u64::from(tx.message.rcode())),
        (RRTYPE, _) => {
            // Of requests the types asked for, of responses those of the answers.
            let section = if dir == Direction::ToServer { Section::Queries } else { Section::Answers };
            Some(u64::from(tx.message.section(section).get(index)?.rrtype))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_places() {
        assert!(ALL.iter().enumerate().all(|(i, b)| *b as usize == i));
        assert_eq!(BUFFERS.len(), ALL.len());
        assert_eq!(MDNS_BUFFERS.iter().map(|b| b.id).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    }
}
