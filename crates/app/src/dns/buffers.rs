//! Buffers and numbers of DNS for rules.

use margay_flow::Direction;

use crate::declare::{Keyword, KeywordDirection};
use crate::tx::{BufferDef, NumberDef};

use super::message::Section;
use super::tx::Dns;
use super::words::{RCODES, RRTYPES};

keywords! {
    Query Keyword::buffers(&["dns.query", "dns_query"], KeywordDirection::ToServer);
    Queries Keyword::buffers(&["dns.queries.rrname"], KeywordDirection::Both);
    Answers Keyword::buffers(&["dns.answers.rrname"], KeywordDirection::Both);
    Authorities Keyword::buffers(&["dns.authorities.rrname"], KeywordDirection::Both);
    Additionals Keyword::buffers(&["dns.additionals.rrname"], KeywordDirection::Both);
    Response Keyword::buffers(&["dns.response.rrname", "dns.response"], KeywordDirection::ToClient);
    Opcode Keyword::number(&["dns.opcode"], 255, KeywordDirection::Both);
    Rcode Keyword::words(&["dns.rcode"], 255, RCODES, KeywordDirection::Both);
    Rrtype Keyword::words(&["dns.rrtype"], 65_535, RRTYPES, KeywordDirection::Both);
}

/// For the declarations of DNS and of protocols that carry it.
pub(super) const ALL_KEYWORDS: &[Keyword] = KEYWORDS;
pub(crate) static ALL_BUFFERS: &[BufferDef] = &BUFFERS;
pub(crate) static ALL_NUMBERS: &[NumberDef] = &NUMBERS;

/// The names of a message that a keyword matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Names {
    /// Names of a section's records.
    Of(Section),
    /// All names of a response.
    OfResponse,
}

/// See [`crate::Transaction::buffer`].
pub(super) fn buffer(tx: &Dns, id: u8, dir: Direction, index: usize) -> Option<&[u8]> {
    let names = match Id::of(id)? {
        Id::Query if dir != Direction::ToServer => return None,
        Id::Query | Id::Queries => Names::Of(Section::Queries),
        Id::Answers => Names::Of(Section::Answers),
        Id::Authorities => Names::Of(Section::Authorities),
        Id::Additionals => Names::Of(Section::Additionals),
        Id::Response => Names::OfResponse,
        Id::Opcode | Id::Rcode | Id::Rrtype => return None,
    };
    name(tx, names, dir, index)
}

/// The name at an index.
pub(super) fn name(tx: &Dns, names: Names, dir: Direction, index: usize) -> Option<&[u8]> {
    if dir != tx.dir {
        return None;
    }
    let name = match names {
        Names::Of(section) => tx.message.section(section).get(index)?.name,
        Names::OfResponse if tx.is_request() => return None,
        Names::OfResponse => tx.message.name(index)?,
    };
    Some(tx.message.text(name))
}

/// See [`crate::Transaction::number`].
pub(super) fn number(tx: &Dns, id: u8, dir: Direction, index: usize) -> Option<u64> {
    if dir != tx.dir {
        return None;
    }
    match (Id::of(id)?, index) {
        (Id::Opcode, 0) if tx.message.readable => Some(u64::from(tx.message.opcode())),
        (Id::Rcode, 0) if tx.message.readable => Some(u64::from(tx.message.rcode())),
        (Id::Rrtype, _) => {
            // For requests, the queried types; for responses, those of the answers.
            let section = if dir == Direction::ToServer { Section::Queries } else { Section::Answers };
            Some(u64::from(tx.message.section(section).get(index)?.rrtype))
        }
        _ => None,
    }
}
