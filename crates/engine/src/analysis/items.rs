//! A rule's checks and effects in reports: the keyword's name, and its arguments as JSON.

use margay_json::Json;
use margay_rules::ast::{
    BitOp, BufferCheck, BufferChecks, ByteJump, ByteTest, Check, Compare, Content, Effect, Endian, FileCheck, IpOption,
    NumberFormat, ThresholdKind, Transform, Value,
};
use margay_rules::info;

/// A check: the keyword, and the JSON member with its details, if there are any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) name: String,
    pub(super) detail: Option<(&'static str, Vec<u8>)>,
}

impl Item {
    pub(super) fn plain(name: &str) -> Item {
        Item { name: name.to_owned(), detail: None }
    }

    fn with(name: &str, key: &'static str, fill: impl FnOnce(&mut Json)) -> Item {
        let mut j = Json::new();
        j.item_object();
        fill(&mut j);
        j.end_object();
        Item { name: name.to_owned(), detail: Some((key, j.as_bytes().to_vec())) }
    }

    fn compare(name: &str, key: &'static str, c: &Compare) -> Item {
        Item::with(name, key, |j| compare(j, c))
    }

    /// Appends it as an array element.
    pub(super) fn write(&self, j: &mut Json) {
        j.item_object();
        j.str("name", &self.name);
        if let Some((key, json)) = &self.detail {
            j.json(key, json);
        }
        j.end_object();
    }
}

/// Writes the members of a comparison.
fn compare(j: &mut Json, c: &Compare) {
    let range = |j: &mut Json, key: &'static str, a: u64, b: u64| {
        j.object(key);
        j.uint("min", a);
        j.uint("max", b);
        j.end_object();
    };
    let mask = |j: &mut Json, m: u64, v: u64, negated: bool| {
        j.object(if negated { "negated_bitmask" } else { "bitmask" });
        j.uint("mask", m);
        j.uint("value", v);
        j.end_object();
    };
    match *c {
        Compare::Equal(n) => j.uint("equal", n),
        Compare::NotEqual(n) => j.uint("diff", n),
        Compare::Less(n) => j.uint("lt", n),
        Compare::LessEqual(n) => j.uint("lte", n),
        Compare::Greater(n) => j.uint("gt", n),
        Compare::GreaterEqual(n) => j.uint("gte", n),
        Compare::Between(a, b) => range(j, "range", a, b),
        Compare::NotBetween(a, b) => range(j, "negated_range", a, b),
        Compare::BitsSet(m) => mask(j, m, m, false),
        Compare::BitsClear(m) => mask(j, m, 0, false),
        Compare::BitsEqual(m, v) => mask(j, m, v, false),
        Compare::BitsNotEqual(m, v) => mask(j, m, v, true),
    }
}

fn bits(cmd: &str, names: &[String]) -> Item {
    Item::with("flowbits", "flowbits", |j| {
        j.str("cmd", cmd);
        j.array("names");
        for n in names {
            j.item_str(n);
        }
        j.end_array();
        if names.len() > 1 {
            j.str("operator", "or");
        }
    })
}

/// A check without a buffer.
pub(super) fn check(c: &Check) -> Item {
    let name = info::keyword_of_check(c);
    let compare = |key, v| Item::compare(name, key, v);
    let number = |key, n: u16| Item::with(name, key, |j| j.uint("number", u64::from(n)));
    match c {
        Check::FlowBit { names, set } => bits(if *set { "isset" } else { "isnotset" }, names),
        Check::Score { name: score, least } => Item::with(name, "score", |j| {
            j.str("name", score);
            j.uint("least", u64::from(*least));
        }),
        Check::Ttl(v) => compare("ttl", v),
        Check::Tos { value, negated } => Item::with(name, "tos", |j| {
            j.uint("value", u64::from(*value));
            j.bool("negated", *negated);
        }),
        Check::IpId(n) => number("id", *n),
        Check::IpProto(v) => compare("ip_proto", v),
        Check::IpOption(o) => Item::with(name, "ipopts", |j| j.str("option", ip_option(*o))),
        Check::FragOffset(v) => compare("fragoffset", v),
        Check::TcpSeq(v) => sequence(name, "seq", v),
        Check::TcpAck(v) => sequence(name, "ack", v),
        Check::TcpWindow { value: value @ (Compare::Equal(n) | Compare::NotEqual(n)) } => {
            Item::with(name, "window", |j| {
                j.uint("size", *n);
                j.bool("negated", matches!(value, Compare::NotEqual(_)));
            })
        }
        Check::TcpWindow { value } => compare("window", value),
        Check::TcpMss(v) => compare("tcp_mss", v),
        Check::TcpWscale(v) => compare("tcp_wscale", v),
        Check::IcmpType(v) => compare("itype", v),
        Check::IcmpCode(v) => compare("icode", v),
        Check::IcmpId(n) => number("id", *n),
        Check::IcmpSeq(n) => number("seq", *n),
        Check::Icmpv6Mtu(v) => compare("icmpv6_mtu", v),
        Check::IgmpType(v) => compare("igmp_type", v),
        Check::Dsize(v) => compare("dsize", v),
        Check::StreamSize { value, .. } => compare("stream_size", value),
        Check::FlowAge(v) => compare("flow_age", v),
        Check::FlowPkts { value, .. } => compare("flow_pkts", value),
        Check::FlowBytes { value, .. } => compare("flow_bytes", value),
        Check::VlanId { value, .. } => compare("vlan_id", value),
        Check::VlanLayers(v) => compare("vlan_layers", v),
        Check::UriLen { value, .. } => compare("urilen", value),
        Check::File(FileCheck::Size(v)) => compare("filesize", v),
        _ => Item::plain(name),
    }
}

/// A check of a sequence number. A comparison for equality is written as `number`.
fn sequence(name: &str, key: &'static str, v: &Compare) -> Item {
    match v {
        Compare::Equal(n) => Item::with(name, key, |j| j.uint("number", *n)),
        v => Item::compare(name, key, v),
    }
}

/// The name of an IP option's bit.
fn ip_option(o: IpOption) -> &'static str {
    use margay_packet::ipv4_option as bit;
    const NAMES: &[(u16, &str)] = &[
        (bit::RR, "rr"),
        (bit::EOL, "eol"),
        (bit::NOP, "nop"),
        (bit::TS, "ts"),
        (bit::SEC, "sec"),
        (bit::ESEC, "esec"),
        (bit::LSRR, "lsrr"),
        (bit::SSRR, "ssrr"),
        (bit::SATID, "satid"),
        (bit::RTRALT, "rtralt"),
        (bit::CIPSO, "cipso"),
        (bit::QS, "qs"),
    ];
    match o {
        IpOption::Any => "any",
        IpOption::Bit(b) => NAMES.iter().find(|n| n.0 == b).map_or("other", |n| n.1),
    }
}

/// The effect of a match; `None` if reports have no list for it (actions with a scope).
pub(super) fn effect(e: &Effect) -> Option<Item> {
    Some(match e {
        Effect::FlowBit { names, op } => bits(
            match op {
                BitOp::Set => "set",
                BitOp::Unset => "unset",
                BitOp::Toggle => "toggle",
            },
            names,
        ),
        Effect::FlowInt { .. } => Item::plain("flowint"),
        Effect::Score { name, add } => Item::with("score", "score", |j| {
            j.str("name", name);
            j.uint("add", u64::from(*add));
        }),
        Effect::XBit { track, .. } => Item::plain(info::keyword_of_bit(*track)),
        Effect::Tag(_) | Effect::Action { .. } => return None,
        Effect::Bypass => Item::plain("bypass"),
        Effect::Replace => Item::plain("replace"),
        Effect::NfqMark { .. } => Item::plain("nfq_set_mark"),
        Effect::Config { .. } => Item::plain("config"),
        Effect::FileStore { .. } => Item::plain("__filestore__postmatch__"),
        Effect::TlsStore => Item::plain("tls.store"),
        Effect::Other { keyword, .. } => Item::plain(keyword),
    })
}

pub(super) const fn threshold(kind: ThresholdKind) -> &'static str {
    match kind {
        ThresholdKind::DetectionFilter => "detection_filter",
        _ => "threshold",
    }
}

/// A transform's keyword.
pub(super) const fn transform(t: &Transform) -> &'static str {
    match t {
        Transform::CompressWhitespace => "compress_whitespace",
        Transform::StripWhitespace => "strip_whitespace",
        Transform::StripPseudoHeaders => "strip_pseudo_headers",
        Transform::HeaderLowercase => "header_lowercase",
        Transform::ToLowercase => "to_lowercase",
        Transform::ToUppercase => "to_uppercase",
        Transform::ToMd5 => "to_md5",
        Transform::ToSha1 => "to_sha1",
        Transform::ToSha256 => "to_sha256",
        Transform::DotPrefix => "dotprefix",
        Transform::Domain => "domain",
        Transform::Tld => "tld",
        Transform::UrlDecode => "url_decode",
        Transform::Decode(decoding) => decoding.name(),
        Transform::Xor(_) => "xor",
        Transform::PcreXform(_) => "pcrexform",
        Transform::FromBase64 { .. } => "from_base64",
        Transform::Gunzip { .. } => "gunzip",
        Transform::ZlibDeflate { .. } => "zlib_deflate",
        Transform::Lua(_) => "luaxform",
    }
}

/// A literal in the notation of reports: characters other than letters, digits and plain signs are in hexadecimal.
pub(super) fn pattern(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    let mut hex = false;
    for &b in bytes {
        let plain = b.is_ascii_graphic() && !matches!(b, b'"' | b'\'' | b'/' | b':' | b';' | b'\\' | b'`' | b'|');
        match (plain, hex) {
            (true, true) | (false, false) => out.push('|'),
            (false, true) => out.push(' '),
            (true, false) => {}
        }
        hex = !plain;
        if plain {
            out.push(char::from(b));
        } else {
            out.push_str(&format!("{b:02X}"));
        }
    }
    if hex {
        out.push('|');
    }
    out
}

/// A literal's text, in lower case if case does not matter.
pub(super) fn literal(c: &Content) -> String {
    if c.nocase { pattern(&c.bytes.to_ascii_lowercase()) } else { pattern(&c.bytes) }
}

const fn fixed(v: Option<&Value>) -> Option<i64> {
    match v {
        Some(Value::Number(n)) => Some(*n),
        // A variable's value is known only after a match, so it shows as 0.
        Some(Value::Variable(_)) => Some(0),
        None => None,
    }
}

/// Whether the prefilter's result already decides the literal.
pub(super) fn settled(c: &Content, relative_next: bool) -> bool {
    let placed = c.offset.is_some() || c.depth.is_some() || c.distance.is_some() || c.within.is_some();
    !c.negated && !placed && !relative_next && c.fast_pattern_chop.is_none() && c.replace.is_none()
}

/// Writes the members of a literal.
pub(super) fn content(j: &mut Json, c: &Content, is_mpm: bool, relative_next: bool) {
    j.str("pattern", &literal(c));
    j.uint("length", c.bytes.len() as u64);
    j.bool("nocase", c.nocase);
    j.bool("negated", c.negated);
    j.bool("starts_with", c.starts_with);
    j.bool("ends_with", c.ends_with);
    j.bool("is_mpm", is_mpm);
    j.bool("no_double_inspect", is_mpm && settled(c, relative_next));
    let offset = fixed(c.offset.as_ref());
    if let Some(n) = offset {
        j.int("offset", n);
    }
    if let Some(n) = fixed(c.depth.as_ref()) {
        j.int("depth", n.saturating_add(offset.unwrap_or(0)));
    }
    if let Some(n) = fixed(c.distance.as_ref()) {
        j.int("distance", n);
    }
    if let Some(n) = fixed(c.within.as_ref()) {
        j.int("within", n);
    }
    j.bool("fast_pattern", c.fast_pattern);
    if let Some((offset, length)) = c.fast_pattern_chop {
        j.object("fast_pattern_chop");
        j.uint("offset", u64::from(offset));
        j.uint("length", u64::from(length));
        j.end_object();
    }
    j.bool("relative_next", relative_next);
}

const fn is_relative(c: &BufferCheck) -> bool {
    match c {
        BufferCheck::Content(c) => c.distance.is_some() || c.within.is_some(),
        BufferCheck::Pcre(p) => p.relative,
        BufferCheck::IsDataAt { relative, .. } => *relative,
        BufferCheck::ByteTest(t) => t.relative,
        BufferCheck::ByteJump(t) => t.relative,
        BufferCheck::ByteExtract(t) => t.relative,
        BufferCheck::ByteMath(t) => t.relative,
        _ => false,
    }
}

/// For each check of a list, whether a later one is relative to its end.
pub(super) fn relative_next(checks: &[BufferCheck]) -> Vec<bool> {
    let mut next = vec![false; checks.len()];
    for (i, c) in checks.iter().enumerate() {
        if !is_relative(c) {
            continue;
        }
        let before = checks.iter().take(i).rposition(|c| matches!(c, BufferCheck::Content(_) | BufferCheck::Pcre(_)));
        if let Some(n) = before.and_then(|b| next.get_mut(b)) {
            *n = true;
        }
    }
    next
}

/// The checks of a buffer; `mpm` is the index of the prefilter's literal.
pub(super) fn buffer(b: &BufferChecks, mpm: Option<usize>) -> Vec<Item> {
    let mut items = Vec::with_capacity(b.checks.len() + 1);
    if let Some(or_else) = b.absent {
        items.push(Item::with("absent", "absent", |j| j.bool("or_else", or_else)));
    }
    items.extend(list(&b.checks, mpm));
    items
}

/// A list of checks.
pub(super) fn list(checks: &[BufferCheck], mpm: Option<usize>) -> Vec<Item> {
    let next = relative_next(checks);
    checks
        .iter()
        .zip(next)
        .enumerate()
        .map(|(i, (c, relative_next))| match c {
            BufferCheck::Content(c) => {
                Item::with("content", "content", |j| content(j, c, mpm == Some(i), relative_next))
            }
            BufferCheck::Pcre(p) => Item::with("pcre", "pcre", |j| {
                j.bool("relative", p.relative);
                j.bool("relative_next", relative_next);
                j.bool("nocase", p.options.contains('i'));
                j.bool("negated", p.negated);
            }),
            BufferCheck::IsDataAt { .. } => Item::plain("isdataat"),
            BufferCheck::Bsize(v) => Item::compare("bsize", "bsize", v),
            BufferCheck::ByteTest(t) => byte_test(t),
            BufferCheck::ByteJump(t) => byte_jump(t),
            BufferCheck::ByteExtract(_) => Item::plain("byte_extract"),
            BufferCheck::ByteMath(_) => Item::plain("byte_math"),
            BufferCheck::Base64 { .. } => Item::plain("base64_decode"),
            BufferCheck::Entropy { .. } => Item::plain("entropy"),
            BufferCheck::Lua(_) => Item::plain("lua"),
            BufferCheck::Judge(j) => Item::plain(j.name()),
            BufferCheck::Asn1(_) => Item::plain("asn1"),
            BufferCheck::Other { keyword, .. } => Item::plain(keyword),
            BufferCheck::Dataset(_) => Item::plain("dataset"),
            BufferCheck::DataRep(_) => Item::plain("datarep"),
        })
        .collect()
}

const fn base(f: NumberFormat) -> &'static str {
    match f {
        NumberFormat::Text { base: 8 } => "oct",
        NumberFormat::Text { base: 10 } => "dec",
        NumberFormat::Text { base: 16 } => "hex",
        _ => "unset",
    }
}

fn flags(j: &mut Json, of: &[(bool, &str)]) {
    j.array("flags");
    for (_, name) in of.iter().filter(|f| f.0) {
        j.item_str(name);
    }
    j.end_array();
}

fn byte_test(t: &ByteTest) -> Item {
    Item::with("byte_test", "byte_test", |j| {
        j.int("nbytes", fixed(Some(&t.bytes)).unwrap_or(0));
        j.int("offset", fixed(Some(&t.offset)).unwrap_or(0));
        j.str("base", base(t.format));
        flags(
            j,
            &[
                (t.format == NumberFormat::Binary(Endian::Little), "little_endian"),
                (matches!(t.format, NumberFormat::Text { .. }), "string"),
                (t.relative, "relative"),
                (t.format == NumberFormat::Binary(Endian::Dce), "dce"),
                (t.bitmask.is_some(), "bitmask"),
            ],
        );
    })
}

fn byte_jump(t: &ByteJump) -> Item {
    Item::with("byte_jump", "byte_jump", |j| {
        j.int("nbytes", fixed(Some(&t.bytes)).unwrap_or(0));
        j.int("offset", fixed(Some(&t.offset)).unwrap_or(0));
        j.uint("multiplier", u64::from(t.multiplier));
        j.int("post_offset", fixed(Some(&t.post_offset)).unwrap_or(0));
        j.str("base", base(t.format));
        flags(
            j,
            &[
                (t.from_beginning, "from_beginning"),
                (t.format == NumberFormat::Binary(Endian::Little), "little_endian"),
                (matches!(t.format, NumberFormat::Text { .. }), "string"),
                (t.relative, "relative"),
                (t.align, "align"),
                (t.format == NumberFormat::Binary(Endian::Dce), "dce"),
                (t.from_end, "from_end"),
                (t.bitmask.is_some(), "bitmask"),
            ],
        );
    })
}
