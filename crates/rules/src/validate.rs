//! Validates the whole rule: whether its parts fit together, and whether it can ever match.

use crate::ast::{
    Arrow, BufferCheck, Check, Compare, Content, Effect, FlowCheck, Protocol, Rule, Side, Transform, Value,
};
use crate::buffer::Direction;
use crate::builder::{Builder, Group, PAYLOAD};
use crate::error::{Fail, fail};
use crate::forms;
use crate::keywords::{PacketBuffer, uri_buffer};

const M: &str = "detect-parse";

/// Validates a rule after its last option, and stores its buffers.
pub(crate) fn finish(b: &mut Builder<'_>) -> Result<(), Fail> {
    if !b.seen.sid {
        return fail(M, "Signature missing required value \"sid\".");
    }
    let sid = b.rule.sid;
    for g in &b.groups {
        if g.sticky && b.is_untested(g) {
            let name = g.info.map_or(g.checks.buffer.as_str(), |i| i.internal);
            return fail(M, format!("rule {sid} setup buffer {name} but didn't add matches to it"));
        }
    }
    flow_and_direction(b)?;
    packet_or_stream(b)?;
    headers_of_protocol(b)?;
    for g in &b.groups {
        group(g, sid)?;
    }
    sizes(b)?;
    negated_dsize(b);
    forms::fold(b)?;
    frames_of_any_flow(b);
    let groups = std::mem::take(&mut b.groups);
    b.rule.buffers =
        groups.into_iter().map(|g| g.checks).filter(|c| !c.checks.is_empty() || c.absent.is_some()).collect();
    // Many rules are in memory at once, and each of these vectors has spare room for four.
    b.rule.checks.shrink_to_fit();
    b.rule.buffers.shrink_to_fit();
    for buffer in &mut b.rule.buffers {
        buffer.checks.shrink_to_fit();
    }
    b.rule.effects.shrink_to_fit();
    if !b.seen.priority {
        b.rule.priority = b.rule.class.as_ref().map_or(3, |c| c.priority);
    }
    Ok(())
}

fn flow(b: &Builder<'_>) -> FlowCheck {
    b.rule.checks.iter().find_map(|c| if let Check::Flow(f) = c { Some(*f) } else { None }).unwrap_or_default()
}

/// Rejects buffers of one direction in a rule for the other.
fn flow_and_direction(b: &mut Builder<'_>) -> Result<(), Fail> {
    if b.rule.arrow == Arrow::Transaction {
        return both_directions(b);
    }
    let f = flow(b);
    // A transform makes it a different buffer (observed).
    let plain = b.groups.iter().filter(|g| g.checks.transforms.is_empty()).filter_map(|g| g.info);
    // A response body gives a direction by itself, as it is inspected in its own one.
    if f.side.is_none()
        && !b.groups.iter().any(|g| g.info.is_some_and(|i| i.ignores_flow))
        && let Some((module, name)) = plain.filter_map(|i| i.needs_flow.map(|module| (module, i.internal))).next()
    {
        return fail(
            module,
            format!(
                "{name} signature without a flow direction, e.g. flow:to_server for inspecting requests or flow:to_client \
                 for inspecting responses."
            ),
        );
    }
    // Response bodies are inspected in their direction, whatever `flow` says (observed).
    let answers = |g: &Group| g.info.is_some_and(|i| i.is_app() && i.direction == Direction::ToClient);
    let body = |g: &Group| g.info.is_some_and(|i| i.ignores_flow);
    let bodies = b.groups.iter().any(body) && b.groups.iter().filter(|g| answers(g)).all(body);
    if bodies && !b.to_server && f.side == Some(Side::ToServer) {
        for check in &mut b.rule.checks {
            if let Check::Flow(f) = check {
                f.side = None;
            }
        }
        return Ok(());
    }
    let server = b.to_server || f.side == Some(Side::ToServer);
    let client = b.to_client || f.side == Some(Side::ToClient);
    if server && client {
        return fail(M, format!("rule {} mixes keywords with conflicting directions", b.rule.sid));
    }
    Ok(())
}

/// A transaction rule (`=>`) needs buffers of both directions, and no buffer whose direction is ambiguous.
fn both_directions(b: &Builder<'_>) -> Result<(), Fail> {
    if flow(b).side.is_some() {
        return fail(M, format!("rule {} means to use both directions, cannot specify a flow direction", b.rule.sid));
    }
    if !b.to_server || !b.to_client {
        return fail(M, format!("rule {} should use both directions, but does not", b.rule.sid));
    }
    let either =
        |g: &&Group| g.checks.side.is_none() && g.info.is_some_and(|i| i.is_app() && i.direction == Direction::Both);
    match b.groups.iter().find(either) {
        Some(g) => fail(
            M,
            format!(
                "rule {} means to use both directions, cannot have keywords ambiguous about directions: {} is of either",
                b.rule.sid, g.checks.buffer
            ),
        ),
        None => Ok(()),
    }
}

/// Rejects a mix of packet checks and stream checks.
fn packet_or_stream(b: &Builder<'_>) -> Result<(), Fail> {
    let f = flow(b);
    // Header buffers; addresses belong to the flow as well.
    let is_header = |g: &Group| PacketBuffer::from_name(&g.checks.buffer).is_some_and(PacketBuffer::is_header);
    let headers = b.groups.iter().any(|g| is_header(g) && !g.checks.checks.is_empty());
    let packets = b.packet || headers || b.rule.protocol == Protocol::TcpPacket || f.stream == Some(false);
    let stream = b.rule.protocol == Protocol::TcpStream || f.stream == Some(true);
    if packets && stream {
        return fail(M, "can't mix packet keywords with tcp-stream or flow:only_stream.  Invalidating signature.");
    }
    let app = b.groups.iter().any(|g| g.checks.app && !g.checks.checks.is_empty());
    let frame = |g: &Group| g.checks.buffer.starts_with("frame:");
    if b.groups.iter().any(frame) && b.groups.iter().any(|g| g.checks.app && !frame(g)) {
        return fail(M, "rule mixes frames and buffers of transactions");
    }
    let payload = |g: &Group| g.checks.buffer == PAYLOAD && !g.checks.checks.is_empty();
    if b.groups.iter().any(frame) && b.groups.iter().any(payload) {
        return fail(M, "can't mix pure content and frame inspection");
    }
    if packets && (app || checks_state(&b.rule)) {
        return fail(
            M,
            "Signature combines packet specific matches (like dsize, flags, ttl) with stream / state matching by \
             matching on app layer proto (like using http_* keywords).",
        );
    }
    Ok(())
}

/// Whether a check without a buffer inspects transactions or files.
fn checks_state(rule: &Rule) -> bool {
    let transactional = |c: &Check| match c {
        Check::Number { .. } | Check::UriLen { .. } | Check::File(_) | Check::Interface(_) => true,
        Check::AppEvent(name) => name.contains('.'),
        _ => false,
    };
    rule.checks.iter().any(transactional) || rule.effects.iter().any(|e| matches!(e, Effect::FileStore { .. }))
}

/// Rejects header buffers of packets that the rule's protocol excludes.
fn headers_of_protocol(b: &Builder<'_>) -> Result<(), Fail> {
    for g in &b.groups {
        let name = g.checks.buffer.as_str();
        let fits = PacketBuffer::from_name(name).is_none_or(|buffer| buffer.fits(&b.rule.protocol));
        if !fits {
            return fail(M, format!("rule {}: no packet of the rule's protocol has {name}", b.rule.sid));
        }
    }
    Ok(())
}

fn contents(checks: &[BufferCheck]) -> impl Iterator<Item = &Content> {
    checks.iter().filter_map(|c| if let BufferCheck::Content(c) = c { Some(c) } else { None })
}

/// Rejects checks that a buffer's type or its transforms make impossible.
fn group(g: &Group, sid: u32) -> Result<(), Fail> {
    for c in contents(&g.checks.checks) {
        // A negated content that the transform cannot produce is always absent.
        for t in g.checks.transforms.iter().filter(|_| !c.negated) {
            let clash = match t {
                Transform::CompressWhitespace => c
                    .bytes
                    .windows(2)
                    .any(|w| w.iter().all(|b| crate::lexer::is_space(*b)))
                    .then_some("compress_whitespace"),
                Transform::StripWhitespace => {
                    c.bytes.iter().any(|b| crate::lexer::is_space(*b)).then_some("strip_whitespace")
                }
                Transform::ToLowercase => c.bytes.iter().any(u8::is_ascii_uppercase).then_some("to_lowercase"),
                Transform::ToUppercase => c.bytes.iter().any(u8::is_ascii_lowercase).then_some("to_uppercase"),
                _ => None,
            };
            if let Some(name) = clash {
                let text = String::from_utf8_lossy(&c.bytes).into_owned();
                return fail("detect-content", format!("content string \"{text}\" incompatible with {name} transform"));
            }
        }
        if !g.checks.transforms.is_empty() {
            continue;
        }
        if let Some(info) = g.info {
            forms::check(info.form, c, sid)?;
        }
    }
    Ok(())
}

/// The largest length that a comparison allows, or one more; `None` if unlimited, or if Suricata ignores the comparison.
const fn bound(c: &Compare) -> Option<u64> {
    match *c {
        Compare::Equal(n) | Compare::Less(n) | Compare::Between(_, n) => Some(n),
        _ => None,
    }
}

fn number(v: Option<&Value>) -> Option<i64> {
    match v {
        Some(Value::Number(n)) => Some(*n),
        _ => None,
    }
}

/// The length that a buffer needs for its contents to fit, if it exceeds `limit`.
fn required(checks: &[BufferCheck], limit: i64) -> Option<i64> {
    let mut total = 0i64;
    for (n, c) in contents(checks).enumerate() {
        let length = c.bytes.len() as i64;
        let relative = c.distance.is_some() || c.within.is_some();
        if n == 0 {
            // A distance counts even if there is no match before (observed).
            total = length.saturating_add(number(c.distance.as_ref()).unwrap_or(0));
        } else if relative {
            total = total.saturating_add(number(c.distance.as_ref()).unwrap_or(0));
            if c.negated {
                total = total.saturating_add(number(c.within.as_ref()).unwrap_or(0));
                if total > limit {
                    break;
                }
            } else {
                total = total.saturating_add(length);
            }
        }
    }
    if total > limit {
        return Some(total);
    }
    // Contents with an absolute place.
    contents(checks)
        .filter(|c| !c.negated && c.distance.is_none() && c.within.is_none())
        .map(|c| number(c.offset.as_ref()).unwrap_or(0).saturating_add(c.bytes.len() as i64))
        .find(|&n| n > limit)
}

/// `dsize:!N` limits payload contents to the first N bytes, as `dsize:N` does, although the payload is longer: Suricata
/// takes the number as the depth and ignores the negation. Contents relative to another one are not limited.
fn negated_dsize(b: &mut Builder<'_>) {
    let size = b.rule.checks.iter().find_map(|c| match c {
        Check::Dsize(Compare::NotEqual(n)) => i64::try_from(*n).ok(),
        _ => None,
    });
    let Some(limit) = size else { return };
    for c in b.groups.iter_mut().filter(|g| g.checks.buffer == PAYLOAD).flat_map(|g| &mut g.checks.checks) {
        let BufferCheck::Content(c) = c else { continue };
        // `depth` counts from `offset`.
        let offset = match &c.offset {
            None => Some(0),
            offset => number(offset.as_ref()),
        };
        let Some(most) = offset.map(|o| limit.saturating_sub(o)) else { continue };
        let deeper = match &c.depth {
            None => true,
            Some(Value::Number(depth)) => *depth > most,
            Some(_) => false,
        };
        if deeper && c.distance.is_none() && c.within.is_none() {
            c.depth = Some(Value::Number(most));
        }
    }
}

/// Frame rules ignore whether the flow is established: of `flow`, only the direction counts for them, as in Suricata.
fn frames_of_any_flow(b: &mut Builder<'_>) {
    if b.groups.iter().any(|g| g.checks.buffer.starts_with("frame:")) {
        for c in &mut b.rule.checks {
            if let Check::Flow(f) = c {
                (f.established, f.not_established) = (false, false);
            }
        }
    }
}

/// Rejects sizes that no buffer with the rule's contents can have.
fn sizes(b: &Builder<'_>) -> Result<(), Fail> {
    let clamp = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let dsize = b.rule.checks.iter().find_map(|c| if let Check::Dsize(c) = c { Some(*c) } else { None });
    if let Some(limit) = dsize.and_then(|c| if let Compare::NotEqual(n) = c { Some(n) } else { bound(&c) })
        && let Some(payload) = b.groups.iter().find(|g| g.checks.buffer == PAYLOAD)
        && let Some(n) = required(&payload.checks.checks, clamp(limit))
    {
        return fail(
            "detect-content",
            format!("signature can't match as required content length {n} exceeds dsize value {limit}"),
        );
    }
    for g in &b.groups {
        for c in &g.checks.checks {
            let BufferCheck::Bsize(c) = c else { continue };
            let Some(limit) = bound(c) else { continue };
            if !g.checks.transforms.is_empty() {
                continue;
            }
            if let Some(n) = required(&g.checks.checks, clamp(limit)) {
                let what = match c {
                    Compare::Between(lo, hi) => format!("range: {lo}-{hi}"),
                    _ => format!("value: {limit}"),
                };
                return fail(
                    "detect-bsize",
                    format!("signature can't match as required content length {n} exceeds bsize {what}"),
                );
            }
        }
    }
    let urilen = b.rule.checks.iter().find_map(|c| match c {
        Check::UriLen { value, raw } => bound(value).map(|n| (n, *raw)),
        _ => None,
    });
    if let Some((limit, raw)) = urilen {
        let name = uri_buffer(raw);
        for g in b.groups.iter().filter(|g| g.checks.buffer == name && g.checks.transforms.is_empty()) {
            for c in contents(&g.checks.checks).filter(|c| !c.negated) {
                if c.bytes.len() as u64 > limit {
                    return fail(
                        "detect-urilen",
                        format!("depth or urilen {limit} smaller than content len {}", c.bytes.len()),
                    );
                }
            }
        }
    }
    Ok(())
}
