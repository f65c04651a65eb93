//! Multicast DNS (RFC 6762): DNS messages to a group, both queries and answers.

use margay_flow::Direction;

use crate::conversation::parser;
use crate::declare::{Keyword, KeywordDirection, Protocol};
use crate::proto::AppProto;

use super::buffers::{Names, name};
use super::message::Section;
use super::tx::Dns;
use super::{events, parser::DnsFlow, recognition};

keywords! {
    Queries Keyword::buffers(&["mdns.queries.rrname"], KeywordDirection::Both);
    Answers Keyword::buffers(&["mdns.answers.rrname"], KeywordDirection::Both);
    Authorities Keyword::buffers(&["mdns.authorities.rrname"], KeywordDirection::Both);
    Additionals Keyword::buffers(&["mdns.additionals.rrname"], KeywordDirection::Both);
    Response Keyword::buffers(&["mdns.response.rrname"], KeywordDirection::Both);
}

/// Multicast DNS.
pub static PROTOCOL: Protocol = Protocol {
    recognition: recognition::MDNS,
    parser: parser::<DnsFlow<true>>,
    keywords: KEYWORDS,
    buffers: &BUFFERS,
    events: events::NAMES,
    frames: &["pdu"],
    ..Protocol::new(AppProto::Mdns, "mdns").logged()
};

/// See [`crate::Transaction::buffer`].
pub(super) fn buffer(tx: &Dns, id: u8, dir: Direction, index: usize) -> Option<&[u8]> {
    let names = match Id::of(id)? {
        Id::Queries => Names::Of(Section::Queries),
        Id::Answers => Names::Of(Section::Answers),
        Id::Authorities => Names::Of(Section::Authorities),
        Id::Additionals => Names::Of(Section::Additionals),
        Id::Response => Names::OfResponse,
    };
    name(tx, names, dir, index)
}
