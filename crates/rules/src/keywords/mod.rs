//! The keywords of the language, one file per family. Each file has a table of [`Keyword`]s and their parsers.
//!
//! A new keyword is a line in one of these tables. The table also names the application protocols, or a feature of
//! [`crate::context::FEATURES`], that a keyword needs and a build may lack.

use std::collections::HashMap;
use std::sync::LazyLock;

use margay_app::declare::NumberSyntax;

use crate::ast::{Check, Side};
use crate::buffer::{Buffer, Direction};
use crate::builder::{Builder, Input};
use crate::error::{Fail, fail};
use crate::lexer::RawOption;

mod app;
mod bytes;
mod content;
mod data;
mod dataset;
mod dcerpc;
mod declared;
mod events;
mod flow;
mod http;
mod manual;
mod meta;
mod number;
mod packet;
mod pcre;
mod ssh;
mod threshold;
mod tls;
mod transform;
mod variables;

pub use app::FileBuffer;
pub use content::render as render_content;
pub(crate) use http::uri_buffer;
pub(crate) use meta::requires_unmet;
pub use packet::PacketBuffer;
pub(crate) use threshold::Fields;

const MODULE: &str = "detect-parse";

/// Whether a keyword takes a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Takes {
    Nothing,
    Value,
    Maybe,
}

/// Whether the value is quoted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quotes {
    No,
    Must,
    May,
}

type Parser = fn(&mut Builder<'_>, &Input<'_>) -> Result<(), Fail>;

/// The effect of a keyword.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Does {
    /// Calls this parser
    Parse(Parser),
    /// Selects a buffer
    Select(&'static Buffer),
    /// Moves the last content to a buffer
    Modify(&'static Buffer),
    /// A check on a number that a protocol declares
    Number(&'static [&'static str], NumberSyntax),
}

/// One keyword.
#[derive(Debug)]
pub(crate) struct Keyword {
    /// Its names, the canonical one first.
    pub(crate) names: &'static [&'static str],
    pub(crate) takes: Takes,
    pub(crate) quotes: Quotes,
    /// Whether a `!` may precede the value.
    pub(crate) negatable: bool,
    /// Feature that the keyword needs; empty for none.
    pub(crate) feature: &'static str,
    /// The directions in which the inspected data exists. A buffer keyword uses its buffer's.
    pub(crate) direction: Direction,
    /// What it does, for keyword lists; empty if that follows from its name.
    pub(crate) about: &'static str,
    pub(crate) does: Does,
}

impl Keyword {
    /// A keyword with a plain value.
    pub(crate) const fn value(names: &'static [&'static str], parse: Parser) -> Keyword {
        Keyword {
            names,
            takes: Takes::Value,
            quotes: Quotes::No,
            negatable: false,
            feature: "",
            direction: Direction::Both,
            about: "",
            does: Does::Parse(parse),
        }
    }

    /// A keyword without a value.
    pub(crate) const fn bare(names: &'static [&'static str], parse: Parser) -> Keyword {
        Keyword { takes: Takes::Nothing, ..Keyword::value(names, parse) }
    }

    /// A keyword that may have a value.
    pub(crate) const fn maybe(names: &'static [&'static str], parse: Parser) -> Keyword {
        Keyword { takes: Takes::Maybe, ..Keyword::value(names, parse) }
    }

    /// A keyword with a quoted value.
    pub(crate) const fn quoted(names: &'static [&'static str], parse: Parser) -> Keyword {
        Keyword { quotes: Quotes::Must, ..Keyword::value(names, parse) }
    }

    pub(crate) const fn or_unquoted(self) -> Keyword {
        Keyword { quotes: Quotes::May, ..self }
    }

    pub(crate) const fn negatable(self) -> Keyword {
        Keyword { negatable: true, ..self }
    }

    pub(crate) const fn only(self, direction: Direction) -> Keyword {
        Keyword { direction, ..self }
    }

    pub(crate) const fn about(self, about: &'static str) -> Keyword {
        Keyword { about, ..self }
    }

    pub(crate) const fn needs(self, feature: &'static str) -> Keyword {
        Keyword { feature, ..self }
    }

    /// A sticky buffer.
    pub(crate) const fn sticky(names: &'static [&'static str], buffer: &'static Buffer) -> Keyword {
        Keyword {
            names,
            takes: Takes::Nothing,
            quotes: Quotes::No,
            negatable: false,
            feature: buffer.feature,
            direction: Direction::Both,
            about: "",
            does: Does::Select(buffer),
        }
    }

    /// An old-style content modifier.
    pub(crate) const fn modifier(names: &'static [&'static str], buffer: &'static Buffer) -> Keyword {
        Keyword { does: Does::Modify(buffer), ..Keyword::sticky(names, buffer) }
    }
}

/// The families, each with the page of Suricata's manual for keywords without a page of their own ([`manual`]).
static FAMILIES: &[(&[Keyword], &str)] = &[
    (meta::KEYWORDS, "rules/meta.html"),
    (content::KEYWORDS, "rules/payload-keywords.html"),
    (pcre::KEYWORDS, "rules/payload-keywords.html"),
    (bytes::KEYWORDS, "rules/payload-keywords.html"),
    (data::KEYWORDS, "rules/payload-keywords.html"),
    (dataset::KEYWORDS, "rules/datasets.html"),
    (packet::KEYWORDS, "rules/header-keywords.html"),
    (packet::HEADERS, "rules/header-keywords.html"),
    (flow::KEYWORDS, "rules/flow-keywords.html"),
    (variables::KEYWORDS, "rules/flow-keywords.html"),
    (threshold::KEYWORDS, "rules/thresholding.html"),
    (events::KEYWORDS, "rules/header-keywords.html"),
    (transform::KEYWORDS, "rules/transforms.html"),
    (http::KEYWORDS, "rules/http-keywords.html"),
    (app::KEYWORDS, "rules/index.html"),
    (ssh::KEYWORDS, "rules/ssh-keywords.html"),
    (tls::KEYWORDS, "rules/tls-keywords.html"),
    (dcerpc::KEYWORDS, "rules/dcerpc-keywords.html"),
];

/// The families, followed by the keywords that protocols declare.
fn families() -> impl Iterator<Item = (&'static [Keyword], &'static str)> {
    FAMILIES.iter().copied().chain([(declared::keywords(), "rules/index.html")])
}

/// Every keyword.
fn keywords() -> impl Iterator<Item = &'static Keyword> {
    families().flat_map(|family| family.0)
}

static REGISTRY: LazyLock<HashMap<&'static str, &'static Keyword>> = LazyLock::new(|| {
    let mut all = HashMap::new();
    for k in keywords() {
        for n in k.names {
            all.insert(*n, k);
        }
    }
    all
});

/// The canonical names of all keywords, sorted (`--list-keywords`).
pub fn names() -> Vec<&'static str> {
    let mut v: Vec<_> = keywords().filter_map(|k| k.names.first().copied()).collect();
    v.sort_unstable();
    v
}

/// Whether a keyword with this name or alias exists.
pub fn is_known(name: &str) -> bool {
    REGISTRY.contains_key(name)
}

/// All keywords by family, each with its page of Suricata's manual.
pub(crate) fn all() -> impl Iterator<Item = (&'static Keyword, &'static str)> {
    let page = |k: &Keyword, family| manual::page(k.names.first().copied().unwrap_or_default(), family);
    families().flat_map(move |(table, family)| table.iter().map(move |k| (k, page(k, family))))
}

/// The keyword with a name, ignoring case.
pub(crate) fn find(name: &str) -> Option<&'static Keyword> {
    REGISTRY.get(name).or_else(|| REGISTRY.get(name.to_ascii_lowercase().as_str())).copied()
}

/// The buffer that a keyword selects.
///
/// # Errors
/// If no protocol declares it.
pub(crate) fn buffer(name: &str) -> Result<&'static Buffer, Fail> {
    match REGISTRY.get(name).map(|k| k.does) {
        Some(Does::Select(buffer)) => Ok(buffer),
        _ => fail(MODULE, format!("this build has no buffer {name}")),
    }
}

/// The buffer that an old modifier means.
///
/// # Errors
/// If no protocol declares it.
pub(crate) fn modified(name: &str) -> Result<&'static Buffer, Fail> {
    match REGISTRY.get(name).map(|k| k.does) {
        Some(Does::Modify(buffer)) => Ok(buffer),
        _ => fail(MODULE, format!("this build has no modifier {name}")),
    }
}

/// Whether a keyword transforms a buffer.
pub(crate) fn is_transform(k: &Keyword) -> bool {
    transform::KEYWORDS.iter().any(|t| std::ptr::eq(t, k) || t.names == k.names)
}

/// The keyword of a check. Each file names those of its own.
pub(crate) fn of_check(c: &Check) -> &str {
    match c {
        Check::Number { keyword, .. } => keyword,
        Check::Other { keyword, .. } => keyword,
        c => {
            let families = [
                packet::of_check,
                flow::of_check,
                variables::of_check,
                events::of_check,
                app::of_check,
                http::of_check,
                data::of_check,
                dcerpc::of_check,
            ];
            families.iter().find_map(|of| of(c)).unwrap_or_default()
        }
    }
}

/// Parses one option into the rule.
pub(crate) fn apply(b: &mut Builder<'_>, option: &RawOption<'_>) -> Result<(), Fail> {
    let written = String::from_utf8_lossy(option.name);
    // Keywords ignore case, but few rules use that.
    let Some(keyword) = find(written.as_ref()) else {
        return fail(MODULE, format!("unknown rule keyword '{written}'."));
    };
    let input = argument(keyword, &written, option)?;
    if !keyword.feature.is_empty() && !b.ctx.available.contains(keyword.feature) {
        b.missing(&written);
    }
    let of = |feature: &str| keyword.names.first().is_some_and(|n| n.split('.').any(|part| part.starts_with(feature)));
    if let Some(off) = b.ctx.off.iter().find(|f| of(f)) {
        return fail(MODULE, format!("{written}: {off} support is not enabled"));
    }
    b.exists(keyword.direction);
    match keyword.does {
        Does::Parse(p) => p(b, &input),
        Does::Select(buffer) => {
            need_protocol(b, buffer.protocols, &written);
            let side = side(b, &input)?;
            b.select(buffer, buffer.name, side)
        }
        Does::Modify(buffer) => {
            need_protocol(b, buffer.protocols, &written);
            content::modify_buffer(b, &written, buffer)
        }
        Does::Number(protocols, syntax) => {
            need_protocol(b, protocols, &written);
            b.restrict(protocols)?;
            let (test, which) = declared::test(&input, syntax)?;
            b.check(Check::Number { keyword: input.name, test, which });
            Ok(())
        }
    }
}

/// Whether the keyword selects a buffer that exists in both directions: a transaction rule (`=>`) must then name one.
fn may_name_side(k: &Keyword) -> bool {
    matches!(k.does, Does::Select(buffer) if buffer.is_app() && buffer.direction == Direction::Both)
}

/// The direction that a buffer keyword names: `to_server` or `to_client`; `None` without a value.
fn side(b: &mut Builder<'_>, i: &Input<'_>) -> Result<Option<Side>, Fail> {
    let (direction, side) = match i.text.trim() {
        "" => return Ok(None),
        "to_client" => (Direction::ToClient, Side::ToClient),
        "to_server" => (Direction::ToServer, Side::ToServer),
        t => {
            return fail(MODULE, format!("unexpected option \"{t}\" to {}: to_server or to_client", i.written));
        }
    };
    b.exists(direction);
    Ok(Some(side))
}

/// Records a keyword as missing if none of its protocols is available.
pub(crate) fn need_protocol(b: &mut Builder<'_>, protocols: &[&str], keyword: &str) {
    if !protocols.is_empty() && !protocols.iter().any(|p| b.ctx.available.contains(*p)) {
        b.missing(keyword);
    }
}

/// Checks a value's form, and removes quotes and negation.
fn argument<'a>(k: &'static Keyword, written: &'a str, o: &RawOption<'a>) -> Result<Input<'a>, Fail> {
    let malformed =
        || Fail::new(MODULE, format!("invalid formatting or malformed option to {written} keyword: '{written}'"));
    let mut raw = o.value.unwrap_or_default();
    let given = !raw.is_empty();
    let mut negated = false;
    match k.takes {
        Takes::Nothing if given && !may_name_side(k) => {
            return fail(MODULE, format!("unexpected option to {written} keyword: '{written}'"));
        }
        Takes::Value if !given => return Err(malformed()),
        _ => {}
    }
    if given {
        if k.negatable
            && let Some(rest) = raw.strip_prefix(b"!")
        {
            negated = true;
            raw = rest.trim_ascii_start();
        }
        let quoted = raw.first() == Some(&b'"');
        match k.quotes {
            Quotes::No if quoted => {
                return fail(MODULE, format!("quotes on {written} keyword that doesn't support them: '{written}'"));
            }
            Quotes::Must if !quoted => {
                return fail(
                    MODULE,
                    format!("invalid formatting to {written} keyword: value must be double quoted '{written}'"),
                );
            }
            _ => {}
        }
        if quoted {
            if raw.len() < 2 || raw.last() != Some(&b'"') {
                return fail(
                    MODULE,
                    format!(
                        "bad option value formatting (possible missing semicolon) for keyword {written}: '{}'",
                        String::from_utf8_lossy(raw)
                    ),
                );
            }
            raw = raw.get(1..raw.len() - 1).unwrap_or_default();
            if raw.is_empty() {
                return fail(
                    MODULE,
                    format!("bad input for keyword {written}: '{}\"'", if negated { "!" } else { "" }),
                );
            }
        }
    }
    let name = k.names.first().copied().unwrap_or_default();
    Ok(Input { written, name, raw, text: String::from_utf8_lossy(raw), negated, given })
}

pub use meta::{metadata_of as metadata, references};
pub(crate) use variables::bit_keyword as of_bit;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_belongs_to_one_keyword() {
        let mut seen = HashMap::new();
        for k in keywords() {
            for n in k.names {
                assert!(seen.insert(*n, k.names[0]).is_none(), "{n} is in two tables, or twice in one");
            }
        }
        assert!(is_known("file_data") && is_known("http.uri") && !is_known("foobar"));
    }

    #[test]
    fn every_check_has_the_name_of_its_keyword() {
        let available = ["app-layer", "lua", "iprep", "geoip", "file", "http", "smb", "dcerpc"].map(str::to_owned);
        let context = crate::context::Context { available: available.into(), ..Default::default() };
        let mut wrong = Vec::new();
        for option in [
            "flow:established",
            "flowbits:isset,a",
            "flowint:count,>,1",
            "xbits:isset,a,track ip_src",
            "hostbits:isset,a,both",
            "score:a,>=,1",
            "ttl:1",
            "tos:1",
            "id:1",
            "ip_proto:6",
            "sameip",
            "l3_proto:ipv4",
            "ipopts:rr",
            "fragbits:M",
            "fragoffset:1",
            "tcp.flags:S",
            "tcp.seq:1",
            "tcp.ack:1",
            "tcp.window:1",
            "tcp.mss:1",
            "tcp.wscale:1",
            "itype:1",
            "icode:1",
            "icmp_id:1",
            "icmp_seq:1",
            "icmpv6.mtu:1",
            "igmp.type:1",
            "dsize:1",
            "ipv4-csum:valid",
            "tcpv4-csum:valid",
            "tcpv6-csum:valid",
            "udpv4-csum:valid",
            "udpv6-csum:valid",
            "icmpv4-csum:valid",
            "icmpv6-csum:valid",
            "stream_size:both,>,1",
            "app-layer-protocol:http",
            "decode-event:ipv4.pkt_too_small",
            "stream-event:3whs_ack_in_wrong_dir",
            "app-layer-event:applayer_mismatch_protocol_both_directions",
            "flow.age:1",
            "flow.pkts:either,1",
            "flow.pkts_toserver:1",
            "flow.pkts_toclient:1",
            "flow.bytes:either,1",
            "flow.bytes_toserver:1",
            "flow.bytes_toclient:1",
            "flow.elephant:both",
            "vlan.id:1",
            "vlan.layers:1",
            "iprep:any,a,>,1",
            "geoip:any,DE",
            "rpc:1,*,*",
            "urilen:1",
            "flowvar:a,\"b\"",
            "pktvar:a,\"b\"",
            "filename:\"a\"",
            "fileext:\"a\"",
            "filemagic:\"a\"",
            "filemd5:a",
            "filesha1:a",
            "filesha256:a",
            "filesize:1",
            "app-layer-state:request_complete",
            "lua:a",
            "dcerpc.iface:367abb81-9844-35f1-ad32-98f038001003",
            "smb.version:2",
        ] {
            let text = format!("alert ip any any -> any any ({option}; sid:1;)\n");
            let mut loader = crate::Loader::new(&context);
            loader.load_str(&text, "t.rules");
            let loaded = loader.finish();
            let rule = loaded.rules.first().or_else(|| loaded.set_aside.first());
            let name = option.split(':').next();
            if !rule.is_some_and(|r| r.checks.iter().any(|c| Some(of_check(c)) == name)) {
                wrong.push((option, loaded.errors.first().map(|e| e.messages.clone())));
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}
