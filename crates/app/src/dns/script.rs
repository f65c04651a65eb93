//! Values that scripts can read from DNS.

use crate::script::Answer;

use super::message::{Message, Rdata, Record, Section};
use super::rdata::strings;
use super::rrtype::{self, types};

/// Answers a script's query.
pub(super) fn answer(message: &Message, what: &str) -> Option<Answer> {
    Some(match what {
        "get" => Answer::Bool(true),
        "queries" => records(message, Section::Queries),
        "answers" => records(message, Section::Answers),
        "authorities" => records(message, Section::Authorities),
        "additionals" => records(message, Section::Additionals),
        "rcode" => Answer::Int(message.rcode().into()),
        "rcode_string" => rrtype::code_name(message.rcode()).map_or(Answer::Nothing, Answer::text),
        "recursion_desired" => Answer::Bool(message.flags & 0x0100 != 0),
        "rrname" => {
            let first = message.section(Section::Queries).first();
            first.map_or(Answer::Nothing, |r| Answer::Bytes(message.text(r.name).to_vec()))
        }
        "txid" => Answer::Int(message.id.into()),
        _ => return None,
    })
}

/// The records of a section.
fn records(message: &Message, section: Section) -> Answer {
    let records = message.section(section);
    let mut rows = Vec::with_capacity(records.len());
    for r in records {
        match r.rdata {
            _ if section == Section::Queries => rows.push(record(message, r, None)),
            // Each string is a record of its own, as in events.
            Rdata::Bytes(text) if r.rrtype == types::TXT && !message.text(text).is_empty() => {
                let each = strings(message.text(text)).flatten();
                rows.extend(each.map(|s| record(message, r, Some(Answer::Bytes(s.to_vec())))));
            }
            _ => rows.push(record(message, r, Some(data(message, r)))),
        }
    }
    Answer::ListFromZero(rows)
}

/// A record; an answer has data.
fn record(message: &Message, r: &Record, data: Option<Answer>) -> Answer {
    let kind = rrtype::name(r.rrtype).map_or_else(|| r.rrtype.to_string(), str::to_owned);
    let mut rows = vec![
        (b"rrname".to_vec(), Answer::Bytes(message.text(r.name).to_vec())),
        (b"type".to_vec(), Answer::text(&kind)),
    ];
    if let Some(data) = data {
        rows.push((b"ttl".to_vec(), Answer::Int(r.ttl.into())));
        rows.push((b"addr".to_vec(), data));
    }
    Answer::Table(rows)
}

fn data(message: &Message, r: &Record) -> Answer {
    let bytes = match r.rdata {
        Rdata::None => return Answer::Nothing,
        Rdata::Name(name) | Rdata::Soa { mname: name, .. } | Rdata::Srv { name, .. } => message.text(name),
        Rdata::Bytes(b) => message.text(b),
    };
    let mut text = Vec::new();
    match (r.rrtype, <[u8; 4]>::try_from(bytes), <[u8; 16]>::try_from(bytes)) {
        (types::A, Ok(a), _) => margay_json::ip(&mut text, a.into()),
        (types::AAAA, _, Ok(a)) => margay_json::ip(&mut text, a.into()),
        // The fingerprint, without algorithm and type.
        (types::SSHFP, ..) => text.extend_from_slice(bytes.get(2..).unwrap_or(&[])),
        _ => text.extend_from_slice(bytes),
    }
    Answer::Bytes(text)
}
