//! Bits and integers that outlive a packet: `flowbits`, `flowint`, `xbits`, `hostbits`, `flowvar`, `pktvar`, and
//! transaction scores: `score`.

use super::Keyword;
use crate::ast::{BitOp, CaptureKind, Check, Effect, FlowIntCheck, FlowIntOp, FlowIntValue, XBitTrack};
use crate::builder::{Builder, Input};
use crate::error::{Fail, fail};

pub(super) const KEYWORDS: &[Keyword] = &[
    Keyword::value(&["flowbits"], flowbits).about("set, unset, toggle or ask for a bit of the flow"),
    Keyword::value(&["flowint"], flowint).about("change or compare an integer of the flow"),
    Keyword::value(&["score"], score).about("add to a score of the transaction, or ask whether it reaches a number"),
    Keyword::value(&["xbits"], xbits).about("set, unset, toggle or ask for a bit of a host or of a pair of hosts"),
    Keyword::value(&["hostbits"], hostbits).about("set, unset, toggle or ask for a bit of a host"),
    Keyword::value(&["flowvar"], flowvar).negatable().about("the value of a variable of the flow"),
    Keyword::value(&["pktvar"], pktvar).negatable().about("the value of a variable of the packet"),
];

/// The keyword of a check that this file makes.
pub(super) const fn of_check(c: &Check) -> Option<&'static str> {
    Some(match c {
        Check::FlowBit { .. } => "flowbits",
        Check::FlowInt { .. } => "flowint",
        Check::Score { .. } => "score",
        Check::XBit { track, .. } => bit_keyword(*track),
        Check::Variable { kind: CaptureKind::Packet, .. } => "pktvar",
        Check::Variable { .. } => "flowvar",
        _ => return None,
    })
}

/// The keyword of a bit with this owner, as reports name it.
pub(crate) const fn bit_keyword(track: XBitTrack) -> &'static str {
    match track {
        XBitTrack::Both => "hostbits",
        _ => "xbits",
    }
}

/// Default lifetime of an xbit in seconds.
const EXPIRE: u32 = 30;
/// Largest number in `score`.
const SCORE_MAX: u32 = 10_000;
/// Limit of the names joined by `|`.
const NAMES_MAX: usize = 256;

fn flowbits(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-flowbits";
    let (action, names) = match i.text.split_once(',') {
        Some((a, n)) => (a.trim(), Some(n.trim())),
        None => (i.text.trim(), None),
    };
    if action == "noalert" {
        if names.is_some() {
            return fail(M, "flowbits:noalert takes no name");
        }
        b.rule.noalert = true;
        b.rule.force_alert = false;
        return Ok(());
    }
    if !matches!(action, "set" | "unset" | "toggle" | "isset" | "isnotset") {
        return fail(M, format!("ERROR: flowbits action \"{action}\" is not supported."));
    }
    let Some(text) = names.filter(|n| !n.is_empty()) else {
        return fail(M, format!("flowbits:{action} needs a name"));
    };
    let mut names = Vec::new();
    for n in text.split('|').map(str::trim) {
        if n.is_empty() {
            return fail(M, format!("empty flowbit name in \"{text}\""));
        }
        if n.contains(char::is_whitespace) {
            return fail(M, "spaces not allowed in flowbit names");
        }
        if names.len() >= NAMES_MAX {
            return fail(M, format!("more than {NAMES_MAX} names in one flowbits"));
        }
        names.push(n.to_owned());
    }
    if names.len() > 1 && !matches!(action, "isset" | "isnotset") {
        return fail(M, format!("only isset and isnotset take several names: \"{text}\""));
    }
    match action {
        "isset" => b.check(Check::FlowBit { names, set: true }),
        "isnotset" => b.check(Check::FlowBit { names, set: false }),
        "set" => b.rule.effects.push(Effect::FlowBit { names, op: BitOp::Set }),
        "unset" => b.rule.effects.push(Effect::FlowBit { names, op: BitOp::Unset }),
        _ => b.rule.effects.push(Effect::FlowBit { names, op: BitOp::Toggle }),
    }
    Ok(())
}

fn flowint(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-flowint";
    let bad = || Fail::new(M, format!("\"{}\" is not a valid setting for flowint(ret = -1).", i.text));
    let words: Vec<&str> = i.text.split(',').map(str::trim).collect();
    let named = |n: &str| {
        n.len() > 1
            && n.starts_with(|c: char| c.is_ascii_alphabetic())
            && n.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'.' | b'/' | b'-'))
    };
    let (name, op, value) = match *words.as_slice() {
        [n, op] => (n, op, None),
        [n, op, v] => (n, op, Some(v)),
        _ => return Err(bad()),
    };
    if !named(name) {
        return Err(bad());
    }
    let name = name.to_owned();
    if let "isset" | "notset" | "isnotset" = op {
        if value.is_some() {
            return Err(bad());
        }
        let op = if op == "isset" { FlowIntCheck::IsSet } else { FlowIntCheck::IsNotSet };
        b.check(Check::FlowInt { name, op });
        return Ok(());
    }
    let value = value.ok_or_else(bad)?;
    let value = if value.bytes().all(|c| c.is_ascii_digit()) {
        FlowIntValue::Number(value.parse().map_err(|_| bad())?)
    } else if named(value) {
        FlowIntValue::Variable(value.to_owned())
    } else {
        return Err(bad());
    };
    let check = match op {
        "+" => return effect(b, name, FlowIntOp::Add(value)),
        "-" => return effect(b, name, FlowIntOp::Subtract(value)),
        "=" => return effect(b, name, FlowIntOp::Set(value)),
        "<" => FlowIntCheck::Less(value),
        "<=" => FlowIntCheck::LessEqual(value),
        "==" => FlowIntCheck::Equal(value),
        "!=" => FlowIntCheck::NotEqual(value),
        ">=" => FlowIntCheck::GreaterEqual(value),
        ">" => FlowIntCheck::Greater(value),
        _ => return Err(bad()),
    };
    b.check(Check::FlowInt { name, op: check });
    Ok(())
}

#[allow(clippy::unnecessary_wraps)]
fn effect(b: &mut Builder<'_>, name: String, op: FlowIntOp) -> Result<(), Fail> {
    b.rule.effects.push(Effect::FlowInt { name, op });
    Ok(())
}

/// `score:NAME,+N` adds to a transaction score; `score:NAME,>=,N` tests it.
fn score(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-score";
    let number = |text: &str| -> Result<u32, Fail> {
        match text.parse() {
            Ok(n @ 1..=SCORE_MAX) => Ok(n),
            _ => fail(M, format!("score: \"{text}\" is not a number from 1 to {SCORE_MAX}")),
        }
    };
    let words: Vec<&str> = i.text.split(',').map(str::trim).collect();
    let (name, add, least) = match *words.as_slice() {
        [name, add] if add.starts_with('+') => (name, Some(number(add.get(1..).unwrap_or_default())?), None),
        [name, ">=", least] => (name, None, Some(number(least)?)),
        _ => {
            return fail(
                M,
                format!(
                    "score:{}: write \"score:NAME,+N\" to add to a score, or \"score:NAME,>=,N\" to ask for it",
                    i.text
                ),
            );
        }
    };
    let plain = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-' | b'.');
    if name.is_empty() || !name.bytes().all(plain) {
        return fail(M, format!("score: \"{name}\" is not a name: write letters, digits, '_', '-' and '.'"));
    }
    let name = name.to_owned();
    let adds = b.rule.effects.iter().any(|e| matches!(e, Effect::Score { .. })) || add.is_some();
    let asks = b.rule.checks.iter().any(|c| matches!(c, Check::Score { .. })) || least.is_some();
    if adds && asks {
        return fail(
            M,
            "score: a rule adds to scores or asks for one, not both: what it adds would depend on the order of rules",
        );
    }
    match (add, least) {
        (Some(add), _) => b.rule.effects.push(Effect::Score { name, add }),
        (None, Some(least)) => b.check(Check::Score { name, least }),
        (None, None) => {}
    }
    Ok(())
}

/// Adds the check or effect for `set`, `isset` … of an xbit or hostbit.
fn bit(b: &mut Builder<'_>, action: &str, name: &str, track: XBitTrack, expire: u32, hostbits: bool) -> bool {
    let name = name.to_owned();
    let op = match action {
        "isset" | "isnotset" => {
            b.check(Check::XBit { name, track, set: action == "isset", hostbits });
            return true;
        }
        "set" => BitOp::Set,
        "unset" => BitOp::Unset,
        "toggle" => BitOp::Toggle,
        _ => return false,
    };
    b.rule.effects.push(Effect::XBit { name, track, op, expire, hostbits });
    true
}

fn xbits(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-xbits";
    let invalid = || Fail::new(M, format!("\"{}\" is not a valid setting for xbits.", i.text));
    let words: Vec<&str> = i.text.split(',').map(str::trim).collect();
    let (action, name, track, expire) = match *words.as_slice() {
        ["noalert"] => {
            b.rule.noalert = true;
            b.rule.force_alert = false;
            return Ok(());
        }
        // The default side is the source.
        [a, n] => (a, n, "track ip_src", None),
        [a, n, t] => (a, n, t, None),
        [a, n, t, e] => (a, n, t, Some(e)),
        _ => return Err(invalid()),
    };
    if name.is_empty() || name.contains(char::is_whitespace) {
        return Err(invalid());
    }
    let track = match track.split_ascii_whitespace().collect::<Vec<_>>().as_slice() {
        ["track", "ip_src"] => XBitTrack::Source,
        ["track", "ip_dst"] => XBitTrack::Destination,
        ["track", "ip_pair"] => XBitTrack::Pair,
        ["track", "tx"] => XBitTrack::Transaction,
        _ => return Err(invalid()),
    };
    let expire = match expire {
        None => EXPIRE,
        Some(e) => {
            let e = e.strip_prefix("expire").map(str::trim).ok_or_else(invalid)?;
            match e.parse::<u32>() {
                Ok(0) => return fail(M, "expire must be bigger than 0"),
                Ok(n) => n,
                Err(_) => return fail(M, format!("Invalid value for expire: \"{e}\"")),
            }
        }
    };
    if track == XBitTrack::Transaction && !b.ctx.available.contains("app-layer") {
        b.missing("xbits");
    }
    if !bit(b, action, name, track, expire, false) {
        return fail(M, format!("xbits action \"{action}\" is not supported."));
    }
    Ok(())
}

fn hostbits(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-hostbits";
    let words: Vec<&str> = i.text.split(',').map(str::trim).collect();
    let (action, name, track, expire) = match *words.as_slice() {
        ["noalert"] => {
            b.rule.noalert = true;
            b.rule.force_alert = false;
            return Ok(());
        }
        ["noalert", ..] => return fail(M, "hostbits:noalert takes no name"),
        [a, n] => (a, n, "src", None),
        [a, n, t] => (a, n, t, None),
        [a, n, t, e] => (a, n, t, Some(e)),
        _ => return fail(M, format!("\"{}\" is not a valid setting for hostbits.", i.text)),
    };
    let track = match track {
        "src" => XBitTrack::Source,
        "dst" => XBitTrack::Destination,
        "both" => XBitTrack::Both,
        t => return fail(M, format!("hostbits are of \"src\", \"dst\" or \"both\", not \"{t}\"")),
    };
    if name.is_empty() || name.contains(char::is_whitespace) {
        return fail(M, "spaces not allowed in hostbit names");
    }
    let expire = match expire.map(|e| e.parse::<u32>()) {
        None => 300,
        Some(Ok(n)) if n > 0 => n,
        _ => return fail(M, "the expiry of a hostbit is a number of seconds above 0"),
    };
    if !bit(b, action, name, track, expire, true) {
        return fail(M, format!("ERROR: flowbits action \"{action}\" is not supported."));
    }
    Ok(())
}

fn flowvar(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    variable(b, i, CaptureKind::Flow, "detect-flowvar")
}

fn pktvar(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    variable(b, i, CaptureKind::Packet, "detect-pktvar")
}

fn variable(b: &mut Builder<'_>, i: &Input<'_>, kind: CaptureKind, module: &'static str) -> Result<(), Fail> {
    let bad = || Fail::new(module, format!("\"{}\" is not a valid setting for {}.", i.text, i.name));
    let comma = i.raw.iter().position(|&c| c == b',').ok_or_else(bad)?;
    let (name, value) = i.raw.split_at(comma);
    let name = String::from_utf8_lossy(name).trim().to_owned();
    let value = value.get(1..).unwrap_or_default().trim_ascii();
    let value = value.strip_prefix(b"\"").and_then(|v| v.strip_suffix(b"\"")).unwrap_or(value);
    if name.is_empty() || value.is_empty() {
        return Err(bad());
    }
    let value = super::content::decode(value)?;
    b.check(Check::Variable { kind, name, value, negated: i.negated });
    Ok(())
}
