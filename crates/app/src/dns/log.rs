//! The `dns` member of events, in both formats, and `mdns`.

use margay_flow::Direction;
use margay_json::Json;

use crate::config::AppLogOptions;
use crate::proto::AppProto;
use crate::tx::LogFor;

use super::message::{Message, Rdata, Record, Section, Text};
use super::rdata::{options as edns, strings};
use super::rrtype::{self, types};
use super::tx::Dns;
use crate::config::dns::{LogOptions, Version};

/// The direction whose addresses an event shows: that of the message; in the older format, that of the flow.
pub(super) fn direction(tx: &Dns, options: &AppLogOptions) -> Direction {
    match options.dns.version {
        Version::V2 if tx.proto == AppProto::Dns => Direction::ToServer,
        _ => tx.dir,
    }
}

/// The number of events for a message.
pub(super) fn records(tx: &Dns, o: &LogOptions) -> usize {
    if !tx.is_sound() {
        return 0;
    }
    if tx.proto == AppProto::Mdns {
        return 1;
    }
    let queries = tx.message.section(Section::Queries);
    let wanted = if tx.is_request() { o.requests } else { o.responses };
    if !wanted {
        return 0;
    }
    let asked = queries.iter().filter(|q| o.wants(q.rrtype)).count();
    match (o.version, tx.is_request()) {
        (Version::V2, true) => asked,
        (Version::V2, false) => usize::from(asked > 0 && asked == queries.len()),
        (Version::V3, _) => usize::from(asked > 0),
    }
}

/// Appends event number `record` of transaction `id`.
pub(super) fn log_record(tx: &Dns, id: u64, record: usize, json: &mut Json, o: &LogOptions) {
    match (tx.proto, o.version, tx.is_request()) {
        (AppProto::Mdns, ..) => mdns(tx, json),
        (_, Version::V3, _) => v3(tx, id, json, o.detailed, o.grouped),
        (_, Version::V2, true) => {
            let queries = tx.message.section(Section::Queries);
            if let Some(query) = queries.iter().filter(|q| o.wants(q.rrtype)).nth(record) {
                v2_query(tx, id, query, json);
            }
        }
        (_, Version::V2, false) => v2_answer(tx, json, o),
    }
}

/// Appends the member for an alert or a file, which has a single format.
pub(super) fn log(tx: &Dns, id: u64, json: &mut Json, o: &LogOptions, what: LogFor) {
    match what {
        LogFor::Event => log_record(tx, id, 0, json, o),
        _ if tx.proto == AppProto::Mdns => mdns(tx, json),
        _ => v3(tx, id, json, true, false),
    }
}

fn v3(tx: &Dns, id: u64, json: &mut Json, detailed: bool, grouped: bool) {
    let m = &tx.message;
    json.object("dns");
    json.uint("version", 3);
    json.str("type", if tx.is_request() { "request" } else { "response" });
    json.uint("tx_id", id);
    json.uint("id", u64::from(m.id));
    flags(m, json);
    json.uint("opcode", u64::from(m.opcode()));
    rcode(m, json);
    queries(m, json);
    let answers = m.section(Section::Answers);
    if detailed {
        section(m, answers, "answers", json);
    }
    if grouped {
        groups(m, answers, json);
    }
    section(m, m.section(Section::Authorities), "authorities", json);
    section(m, m.section(Section::Additionals), "additionals", json);
    json.end_object();
}

fn v2_query(tx: &Dns, id: u64, query: &Record, json: &mut Json) {
    let m = &tx.message;
    json.object("dns");
    json.uint("version", 2);
    json.str("type", "query");
    json.uint("id", u64::from(m.id));
    owner(m, query, json);
    json.uint("tx_id", id);
    if m.flags & 0x0040 != 0 {
        json.bool("z", true);
    }
    json.uint("opcode", u64::from(m.opcode()));
    json.end_object();
}

fn v2_answer(tx: &Dns, json: &mut Json, o: &LogOptions) {
    let m = &tx.message;
    json.object("dns");
    json.uint("version", 2);
    json.str("type", "answer");
    json.uint("id", u64::from(m.id));
    flags(m, json);
    json.uint("opcode", u64::from(m.opcode()));
    if let Some(query) = m.section(Section::Queries).first() {
        owner(m, query, json);
    }
    rcode(m, json);
    let answers = m.section(Section::Answers);
    if o.detailed {
        section(m, answers, "answers", json);
    }
    if o.grouped {
        groups(m, answers, json);
    }
    section(m, m.section(Section::Authorities), "authorities", json);
    json.end_object();
}

/// Names and bits of the flags (RFC 1035 section 4.1.1), except QR, which marks a response.
const FLAGS: [(&str, u16); 5] = [("aa", 0x0400), ("tc", 0x0200), ("rd", 0x0100), ("ra", 0x0080), ("z", 0x0040)];

/// Appends the flags as a number, and a member for each flag that is set.
fn flags(m: &Message, json: &mut Json) {
    let mut digits = [0; 4];
    json.str("flags", hex(m.flags, &mut digits));
    if m.flags & 0x8000 != 0 {
        json.bool("qr", true);
    }
    for (key, bit) in FLAGS {
        if m.flags & bit != 0 {
            json.bool(key, true);
        }
    }
}

/// Formats a number in hexadecimal, without leading zeros.
fn hex(value: u16, digits: &mut [u8; 4]) -> &str {
    let mut at = digits.len();
    let mut left = value;
    while at > 0 {
        at -= 1;
        digits[at] = b"0123456789abcdef"[usize::from(left & 15)];
        left >>= 4;
        if left == 0 {
            break;
        }
    }
    std::str::from_utf8(digits.get(at..).unwrap_or(&[])).unwrap_or_default()
}

fn rcode(m: &Message, json: &mut Json) {
    let mut digits = [0; 5];
    json.str("rcode", rrtype::code_name(m.rcode()).unwrap_or_else(|| decimal(u16::from(m.rcode()), &mut digits)));
}

fn decimal(value: u16, digits: &mut [u8; 5]) -> &str {
    let mut at = digits.len();
    let mut left = value;
    while at > 0 {
        at -= 1;
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    std::str::from_utf8(digits.get(at..).unwrap_or(&[])).unwrap_or_default()
}

/// `rrname` and `rrtype`.
fn owner(m: &Message, record: &Record, json: &mut Json) {
    json.bytes("rrname", m.text(record.name));
    if record.name.cut {
        json.bool("rrname_truncated", true);
    }
    let mut digits = [0; 5];
    json.str("rrtype", rrtype::name(record.rrtype).unwrap_or_else(|| decimal(record.rrtype, &mut digits)));
}

fn queries(m: &Message, json: &mut Json) {
    let queries = m.section(Section::Queries);
    if queries.is_empty() {
        return;
    }
    json.array("queries");
    for q in queries {
        json.item_object();
        owner(m, q, json);
        json.end_object();
    }
    json.end_array();
}

/// Whether a record is logged. An OPT record without options (RFC 6891 section 6.1.2) is not.
fn says_something(m: &Message, r: &Record) -> bool {
    match (r.rrtype, r.rdata) {
        (types::OPT, Rdata::Bytes(text)) => !m.text(text).is_empty(),
        (types::OPT, _) => false,
        _ => true,
    }
}

/// Appends the records of a section; each string of a TXT record becomes a record of its own.
fn section(m: &Message, records: &[Record], key: &'static str, json: &mut Json) {
    if !records.iter().any(|r| says_something(m, r)) {
        return;
    }
    json.array(key);
    for r in records.iter().filter(|r| says_something(m, r)) {
        let head = |json: &mut Json| {
            json.item_object();
            owner(m, r, json);
            json.uint("ttl", u64::from(r.ttl));
        };
        match (r.rrtype, r.rdata) {
            (types::TXT, Rdata::Bytes(text)) if !m.text(text).is_empty() => {
                for s in strings(m.text(text)).flatten() {
                    head(json);
                    json.bytes("rdata", s);
                    json.end_object();
                }
            }
            _ => {
                head(json);
                data(m, r, json);
                json.end_object();
            }
        }
    }
    json.end_array();
}

/// Appends a record's data as a member of its object.
fn data(m: &Message, r: &Record, json: &mut Json) {
    match r.rdata {
        Rdata::None => {}
        Rdata::Name(name) => {
            json.bytes("rdata", m.text(name));
            if name.cut {
                json.bool("rdata_truncated", true);
            }
        }
        Rdata::Bytes(text) => {
            let bytes = m.text(text);
            match r.rrtype {
                types::A | types::AAAA => address(bytes, Some("rdata"), r.rrtype, json),
                types::SSHFP => {
                    json.object("sshfp");
                    sshfp(bytes, json);
                    json.end_object();
                }
                types::OPT => opt(bytes, json),
                _ => json.bytes("rdata", bytes),
            }
        }
        Rdata::Soa { .. } => {
            json.object("soa");
            soa(m, &r.rdata, json);
            json.end_object();
        }
        Rdata::Srv { .. } => {
            json.object("srv");
            srv(m, &r.rdata, json);
            json.end_object();
        }
    }
}

/// Appends the answers grouped by type, in the order in which the types first occur.
fn groups(m: &Message, answers: &[Record], json: &mut Json) {
    /// Types whose data is logged.
    const SHOWN: [u16; 11] = [
        types::A,
        types::NS,
        types::CNAME,
        types::SOA,
        types::NULL,
        types::PTR,
        types::MX,
        types::TXT,
        types::AAAA,
        types::SRV,
        types::SSHFP,
    ];
    if answers.is_empty() {
        return;
    }
    json.object("grouped");
    for kind in SHOWN {
        let of_kind = answers.iter().filter(|r| r.rrtype == kind && r.rdata != Rdata::None);
        let mut open = false;
        for r in of_kind {
            if !open {
                json.array(rrtype::name(kind).unwrap_or_default());
                open = true;
            }
            match r.rdata {
                Rdata::None => {}
                Rdata::Name(name) => json.item_bytes(m.text(name)),
                Rdata::Bytes(text) => group_bytes(m, text, kind, json),
                Rdata::Soa { .. } => {
                    json.item_object();
                    soa(m, &r.rdata, json);
                    json.end_object();
                }
                Rdata::Srv { .. } => {
                    json.item_object();
                    srv(m, &r.rdata, json);
                    json.end_object();
                }
            }
        }
        if open {
            json.end_array();
        }
    }
    json.end_object();
}

fn group_bytes(m: &Message, text: Text, kind: u16, json: &mut Json) {
    let bytes = m.text(text);
    match kind {
        types::A | types::AAAA => address(bytes, None, kind, json),
        types::TXT if bytes.is_empty() => json.item_bytes(bytes),
        types::TXT => strings(bytes).flatten().for_each(|s| json.item_bytes(s)),
        types::SSHFP => {
            json.item_object();
            sshfp(bytes, json);
            json.end_object();
        }
        _ => json.item_bytes(bytes),
    }
}

/// Appends an address as member `key` or as an element; empty if its length is invalid.
fn address(bytes: &[u8], key: Option<&str>, kind: u16, json: &mut Json) {
    let address = match (kind, <[u8; 4]>::try_from(bytes), <[u8; 16]>::try_from(bytes)) {
        (types::A, Ok(a), _) => Some(a.into()),
        (types::AAAA, _, Ok(a)) => Some(a.into()),
        _ => None,
    };
    if let Some(key) = key {
        json.name(key);
    }
    match address {
        Some(a) => json.item_ip(a),
        None => json.item_str(""),
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |n, &b| n << 8 | u64::from(b))
}

fn soa(m: &Message, rdata: &Rdata, json: &mut Json) {
    let Rdata::Soa { mname, rname, numbers } = *rdata else { return };
    json.bytes("mname", m.text(mname));
    if mname.cut {
        json.bool("mname_truncated", true);
    }
    json.bytes("rname", m.text(rname));
    if rname.cut {
        json.bool("rname_truncated", true);
    }
    let keys = ["serial", "refresh", "retry", "expire", "minimum"];
    for (key, bytes) in keys.iter().zip(m.text(numbers).chunks(4)) {
        json.uint(key, number(bytes));
    }
}

fn srv(m: &Message, rdata: &Rdata, json: &mut Json) {
    let Rdata::Srv { head, name } = *rdata else { return };
    for (key, bytes) in ["priority", "weight", "port"].iter().zip(m.text(head).chunks(2)) {
        json.uint(key, number(bytes));
    }
    json.bytes("name", m.text(name));
}

/// RFC 4255 section 3.1.
fn sshfp(bytes: &[u8], json: &mut Json) {
    let [algo, kind, print @ ..] = bytes else { return };
    let mut text = Vec::with_capacity(print.len() * 3);
    for (i, b) in print.iter().enumerate() {
        if i > 0 {
            text.push(b':');
        }
        text.extend([b >> 4, b & 15].map(|n| b"0123456789abcdef"[usize::from(n)]));
    }
    json.bytes("fingerprint", &text);
    json.uint("algo", u64::from(*algo));
    json.uint("type", u64::from(*kind));
}

/// Appends the EDNS options.
fn opt(bytes: &[u8], json: &mut Json) {
    if bytes.is_empty() {
        return;
    }
    json.array("opt");
    for (code, data) in edns(bytes).flatten() {
        json.item_object();
        json.uint("code", u64::from(code));
        json.hex("data", data);
        json.end_object();
    }
    json.end_array();
}

/// Appends `mdns`: type names in lower case, flags as a list of those that are set, and a record's data under its type name.
fn mdns(tx: &Dns, json: &mut Json) {
    let m = &tx.message;
    json.object("mdns");
    json.str("type", if tx.is_request() { "request" } else { "response" });
    json.uint("id", u64::from(m.id));
    if FLAGS.iter().any(|f| m.flags & f.1 != 0) {
        json.array("flags");
        FLAGS.iter().filter(|f| m.flags & f.1 != 0).for_each(|f| json.item_str(f.0));
        json.end_array();
    }
    json.uint("opcode", u64::from(m.opcode()));
    json.uint("rcode", u64::from(m.rcode()));
    let sections = [
        (Section::Queries, "queries"),
        (Section::Answers, "answers"),
        (Section::Authorities, "authorities"),
        (Section::Additionals, "additionals"),
    ];
    for (section, key) in sections {
        let records = m.section(section);
        if !records.iter().any(|r| section == Section::Queries || says_something(m, r)) {
            continue;
        }
        json.array(key);
        for r in records.iter().filter(|r| section == Section::Queries || says_something(m, r)) {
            json.item_object();
            json.bytes("rrname", m.text(r.name));
            if r.name.cut {
                json.bool("rrname_truncated", true);
            }
            let mut digits = [0; 5];
            let name = rrtype::name(r.rrtype).unwrap_or_else(|| decimal(r.rrtype, &mut digits)).to_ascii_lowercase();
            if section == Section::Queries {
                json.str("rrtype", &name);
            } else {
                mdns_data(m, r, &name, json);
            }
            json.end_object();
        }
        json.end_array();
    }
    json.end_object();
}

fn mdns_data(m: &Message, r: &Record, key: &str, json: &mut Json) {
    match r.rdata {
        Rdata::Name(name) => {
            json.name(key);
            json.item_bytes(m.text(name));
        }
        Rdata::Bytes(text) => match r.rrtype {
            types::A | types::AAAA => address(m.text(text), Some(key), r.rrtype, json),
            types::TXT => {
                json.name(key);
                json.item_array();
                strings(m.text(text)).flatten().for_each(|s| json.item_bytes(s));
                json.end_array();
            }
            types::NULL => {
                json.name(key);
                json.item_bytes(m.text(text));
            }
            _ => data(m, r, json),
        },
        _ => data(m, r, json),
    }
}
