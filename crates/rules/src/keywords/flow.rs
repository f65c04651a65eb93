//! Flow keywords: `flow`, `stream_size`, `flow.*`, `app-layer-protocol`.

use super::Keyword;
use crate::ast::{AppProtoMode, Check, Compare, FlowCheck, FlowSide, Side, StreamSide};
use crate::builder::{Builder, Input};
use crate::error::{Fail, fail};
use crate::number::compare;
use crate::protocol;

pub(super) const KEYWORDS: &[Keyword] = &[
    Keyword::value(&["flow"], flow).about("direction and state of the flow"),
    Keyword::value(&["stream_size"], stream_size).about("how many bytes of the stream there were"),
    Keyword::value(&["flow.age"], flow_age).about("the age of the flow in seconds"),
    Keyword::value(&["flow.pkts"], flow_pkts).about("how many packets the flow had, in one direction or both"),
    Keyword::value(&["flow.pkts_toserver"], flow_pkts_to_server).about("how many packets the flow had to the server"),
    Keyword::value(&["flow.pkts_toclient"], flow_pkts_to_client).about("how many packets the flow had to the client"),
    Keyword::value(&["flow.bytes"], flow_bytes).about("how many bytes the flow had, in one direction or both"),
    Keyword::value(&["flow.bytes_toserver"], flow_bytes_to_server).about("how many bytes the flow had to the server"),
    Keyword::value(&["flow.bytes_toclient"], flow_bytes_to_client).about("how many bytes the flow had to the client"),
    Keyword::value(&["flow.elephant"], flow_elephant).about("the flow is marked as an elephant"),
    Keyword::value(&["app-layer-protocol"], app_layer_protocol)
        .or_unquoted()
        .negatable()
        .about("the application protocol that was detected"),
];

/// The keyword of a check that this file makes.
pub(super) const fn of_check(c: &Check) -> Option<&'static str> {
    Some(match c {
        Check::Flow(_) => "flow",
        Check::StreamSize { .. } => "stream_size",
        Check::FlowAge(_) => "flow.age",
        Check::FlowPkts { side: FlowSide::ToServer, .. } => "flow.pkts_toserver",
        Check::FlowPkts { side: FlowSide::ToClient, .. } => "flow.pkts_toclient",
        Check::FlowPkts { .. } => "flow.pkts",
        Check::FlowBytes { side: FlowSide::ToServer, .. } => "flow.bytes_toserver",
        Check::FlowBytes { side: FlowSide::ToClient, .. } => "flow.bytes_toclient",
        Check::FlowBytes { .. } => "flow.bytes",
        Check::FlowElephant(_) => "flow.elephant",
        Check::AppProto { .. } => "app-layer-protocol",
        _ => return None,
    })
}

// It stays whole: a flat match over the words, most of which exclude others.
fn flow(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-flow";
    // A second `flow` may extend one that sets neither state nor fragments.
    let before = b.rule.checks.iter().position(|c| matches!(c, Check::Flow(_)));
    let mut f = FlowCheck::default();
    let mut stands = FlowCheck::default();
    if let Some(Check::Flow(old)) = before.and_then(|n| b.rule.checks.get(n)) {
        if old.established || old.not_established || old.stateless || old.frag.is_some() {
            return fail(M, "A signature may have only one flow option.");
        }
        stands = *old;
    }
    if i.text.split(',').count() > 3 {
        return fail(M, format!("parse error, ret -1, string {}", i.text));
    }
    for w in i.text.split(',') {
        let w = w.trim();
        let already = |flag: &str| fail(M, format!("{flag} flag is already set"));
        let against = |what: &str, by: &str| fail(M, format!("cannot set {what}, {by} already set"));
        match w.to_ascii_lowercase().as_str() {
            "established" => match (f.established, f.not_established, f.stateless) {
                (true, _, _) => return already("DETECT_FLOW_FLAG_ESTABLISHED"),
                (_, true, _) => return against("DETECT_FLOW_FLAG_ESTABLISHED", "DETECT_FLOW_FLAG_NOT_ESTABLISHED"),
                (_, _, true) => return against("DETECT_FLOW_FLAG_ESTABLISHED", "DETECT_FLOW_FLAG_STATELESS"),
                _ => f.established = true,
            },
            "not_established" => match (f.established, f.not_established) {
                (_, true) => return already("DETECT_FLOW_FLAG_NOT_ESTABLISHED"),
                (true, _) => return against("DETECT_FLOW_FLAG_NOT_ESTABLISHED", "DETECT_FLOW_FLAG_ESTABLISHED"),
                _ => f.not_established = true,
            },
            "stateless" => match (f.established, f.stateless) {
                (_, true) => return already("DETECT_FLOW_FLAG_STATELESS"),
                (true, _) => return against("DETECT_FLOW_FLAG_STATELESS", "DETECT_FLOW_FLAG_ESTABLISHED"),
                _ => f.stateless = true,
            },
            "to_client" | "from_server" => match f.side {
                Some(Side::ToClient) => return fail(M, "cannot set DETECT_FLOW_FLAG_TOCLIENT flag is already set"),
                Some(Side::ToServer) => return against("to_client", "DETECT_FLOW_FLAG_TOSERVER"),
                None => f.side = Some(Side::ToClient),
            },
            "to_server" | "from_client" => match f.side {
                Some(Side::ToServer) => return fail(M, "cannot set DETECT_FLOW_FLAG_TOSERVER flag is already set"),
                Some(Side::ToClient) => return against("to_server", "DETECT_FLOW_FLAG_TOCLIENT"),
                None => f.side = Some(Side::ToServer),
            },
            "only_stream" => match f.stream {
                Some(true) => return already("cannot set only_stream"),
                Some(false) => return against("only_stream flag", "DETECT_FLOW_FLAG_NOSTREAM"),
                None => f.stream = Some(true),
            },
            "no_stream" => match f.stream {
                Some(false) => return already("cannot set no_stream"),
                Some(true) => return against("no_stream flag", "DETECT_FLOW_FLAG_ONLYSTREAM"),
                None => f.stream = Some(false),
            },
            "no_frag" => match f.frag {
                Some(false) => return already("cannot set no_frag"),
                Some(true) => return against("no_frag flag", "only_frag"),
                None => f.frag = Some(false),
            },
            "only_frag" => match f.frag {
                Some(true) => return already("cannot set only_frag"),
                Some(false) => return against("only_frag flag", "no_frag"),
                None => f.frag = Some(true),
            },
            _ => return fail(M, format!("invalid flow option \"{w}\"")),
        }
    }
    match (stands.side, f.side) {
        (Some(a), Some(b)) if a != b => return fail(M, "two flow options of different directions"),
        (side, None) => f.side = side,
        _ => {}
    }
    match (stands.stream, f.stream) {
        (Some(a), Some(b)) if a != b => return fail(M, "two flow options, one of the stream and one of packets"),
        (stream, None) => f.stream = stream,
        _ => {}
    }
    match before.and_then(|n| b.rule.checks.get_mut(n)) {
        Some(check) => *check = Check::Flow(f),
        None => b.check(Check::Flow(f)),
    }
    Ok(())
}

fn stream_size(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-stream_size";
    let bad = || Fail::new(M, format!("invalid stream_size \"{}\": side, operator and number are expected", i.text));
    let words: Vec<&str> = i.text.split(',').map(str::trim).collect();
    let &[side, op, number] = words.as_slice() else { return Err(bad()) };
    let side = match side {
        "server" => StreamSide::Server,
        "client" => StreamSide::Client,
        "both" => StreamSide::Both,
        "either" => StreamSide::Either,
        _ => return Err(bad()),
    };
    let n = crate::size::unsigned(number).filter(|&n| n <= u64::from(u32::MAX)).ok_or_else(bad)?;
    let value = match op {
        "<" => Compare::Less(n),
        "<=" => Compare::LessEqual(n),
        ">" => Compare::Greater(n),
        ">=" => Compare::GreaterEqual(n),
        "=" => Compare::Equal(n),
        "!" | "!=" => Compare::NotEqual(n),
        _ => return Err(bad()),
    };
    b.check(Check::StreamSize { side, value });
    Ok(())
}

fn number(i: &Input<'_>, text: &str, max: u64) -> Result<Compare, Fail> {
    match compare(text, max) {
        Some(c) => Ok(c),
        None => fail("detect-flow", format!("invalid value for {}: \"{text}\"", i.name)),
    }
}

fn side(i: &Input<'_>, text: &str) -> Result<FlowSide, Fail> {
    Ok(match text.trim() {
        "toserver" => FlowSide::ToServer,
        "toclient" => FlowSide::ToClient,
        "both" => FlowSide::Both,
        "either" => FlowSide::Either,
        s => {
            return fail(
                "detect-flow",
                format!("invalid direction \"{s}\" for {}: toserver, toclient, both or either", i.name),
            );
        }
    })
}

/// `direction,number`
fn sided(i: &Input<'_>, max: u64) -> Result<(FlowSide, Compare), Fail> {
    let Some((s, n)) = i.text.split_once(',') else {
        return fail("detect-flow", format!("{} needs a direction and a number: \"{}\"", i.name, i.text));
    };
    Ok((side(i, s)?, number(i, n, max)?))
}

const U32: u64 = u32::MAX as u64;

fn flow_age(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    let c = number(i, &i.text, U32)?;
    b.check(Check::FlowAge(c));
    Ok(())
}

fn flow_pkts(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    let (side, value) = sided(i, U32)?;
    b.check(Check::FlowPkts { side, value });
    Ok(())
}

fn flow_pkts_to_server(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    let value = number(i, &i.text, U32)?;
    b.check(Check::FlowPkts { side: FlowSide::ToServer, value });
    Ok(())
}

fn flow_pkts_to_client(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    let value = number(i, &i.text, U32)?;
    b.check(Check::FlowPkts { side: FlowSide::ToClient, value });
    Ok(())
}

fn flow_bytes(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    let (side, value) = sided(i, u64::MAX)?;
    b.check(Check::FlowBytes { side, value });
    Ok(())
}

fn flow_bytes_to_server(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    let value = number(i, &i.text, u64::MAX)?;
    b.check(Check::FlowBytes { side: FlowSide::ToServer, value });
    Ok(())
}

fn flow_bytes_to_client(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    let value = number(i, &i.text, u64::MAX)?;
    b.check(Check::FlowBytes { side: FlowSide::ToClient, value });
    Ok(())
}

fn flow_elephant(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    let s = side(i, &i.text)?;
    b.check(Check::FlowElephant(s));
    Ok(())
}

fn app_layer_protocol(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-app-layer-protocol";
    let (name, mode) = match i.text.split_once(',') {
        Some((n, m)) => (n.trim(), Some(m.trim())),
        None => (i.text.trim(), None),
    };
    let mode = match mode {
        None | Some("direction") => AppProtoMode::Direction,
        Some("final") => AppProtoMode::Final,
        Some("either") => AppProtoMode::Either,
        Some("to_server") => AppProtoMode::ToServer,
        Some("to_client") => AppProtoMode::ToClient,
        Some("original") => AppProtoMode::Original,
        Some(m) => return fail(M, format!("app-layer-protocol keyword with unknown mode \"{m}\"")),
    };
    let special = matches!(name, "failed" | "unknown");
    if !special && protocol::group(name).is_none() {
        return fail(M, format!("app-layer-protocol keyword supplied with unknown protocol \"{name}\""));
    }
    if name == "unknown" && i.negated {
        return fail(M, "app-layer-protocol:unknown cannot be negated");
    }
    let same_mode =
        b.rule.checks.iter().any(|c| matches!(c, Check::AppProto { mode: m, negated: false, .. } if *m == mode));
    if b.from_header || (same_mode && !i.negated) {
        return fail(
            M,
            "Either we already have the rule match on an app layer protocol set through other keywords that match on \
             this protocol, or have already seen a non-negated app-layer-protocol.",
        );
    }
    if b.seen.app_protocol && i.negated != b.seen.app_protocol_negated {
        return fail(M, "can't mix positive app-layer-protocol match with negated match or match for 'failed'.");
    }
    b.seen.app_protocol = true;
    b.seen.app_protocol_negated = i.negated;
    // Protocol detection is enough; no parser is needed.
    let known = || b.ctx.available.contains(name) || b.ctx.available.contains(&format!("app-layer:{name}"));
    let there = b.ctx.available.contains("app-layer") && (special || i.negated || known());
    if !there {
        b.missing("app-layer-protocol");
    }
    b.check(Check::AppProto { name: name.to_owned(), negated: i.negated, mode });
    Ok(())
}
