//! Chooses the literal of a rule for its prefilter.
//!
//! `fast_pattern` in the rule decides. Without it, the longest literal is chosen, and of equally long ones the most
//! varied: common letters count less than rare bytes. Negated literals, literals of buffers that may be `absent`, and
//! those of buffers that cannot be prefiltered do not limit which rules may match, and are never chosen.

use margay_rules::ast::{Arrow, BufferCheck, BufferChecks, Content, Rule, Side, Value};
use margay_rules::info;

use crate::byte_set::ByteSet;
use crate::{commonplace, literals};

/// The chosen literal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FastPattern {
    /// Index in [`Rule::buffers`].
    pub buffer: usize,
    /// Index in that buffer's checks.
    pub check: usize,
    /// The bytes to search for: the whole literal, or the part that `fast_pattern:offset,length` selects.
    pub bytes: Vec<u8>,
    /// Whether letters match in either case.
    pub nocase: bool,
    /// No match of `bytes` starts before this byte of the buffer.
    pub offset: u32,
    /// No match of `bytes` ends after this byte of the buffer, if that is known.
    pub end: Option<u32>,
    /// `fast_pattern:only`: the prefilter's match is sufficient, since the literal has no further condition.
    pub only: bool,
}

/// Chooses the fast pattern of `rule`; `None` if it has no suitable literal. `prefilterable` says whether the prefilter
/// can search a buffer, by its index in [`Rule::buffers`]. `priority` ranks buffers; a buffer with a higher number wins
/// whatever the literal.
pub fn choose(
    rule: &Rule,
    prefilterable: &dyn Fn(usize) -> bool,
    priority: &dyn Fn(usize) -> u8,
) -> Option<FastPattern> {
    let literals = || literals(rule, prefilterable);
    let explicit = literals().find(|(_, _, c)| c.fast_pattern || c.fast_pattern_only || c.fast_pattern_chop.is_some());
    let (buffer, check, content) = explicit.or_else(|| {
        // The first of equals wins; `max_by_key` would take the last.
        let rank = |l: &(usize, usize, &Content)| (priority(l.0), rank(l.2));
        literals().reduce(|best, next| if rank(&next) > rank(&best) { next } else { best })
    })?;
    Some(pattern(buffer, check, content))
}

/// The literals that limit whether `rule` may match, with their places.
fn literals<'r>(
    rule: &'r Rule,
    prefilterable: &dyn Fn(usize) -> bool,
) -> impl Iterator<Item = (usize, usize, &'r Content)> {
    let buffers = rule.buffers.iter().enumerate().filter(|(b, buffer)| buffer.absent.is_none() && prefilterable(*b));
    buffers.flat_map(|(b, buffer)| {
        buffer.checks.iter().enumerate().filter_map(move |(c, check)| match check {
            BufferCheck::Content(content) if !content.negated && !content.bytes.is_empty() => Some((b, c, content)),
            _ => None,
        })
    })
}

/// As [`choose`], for the prefilter. If the chosen literal is in most traffic (it was chosen by its length, or by the
/// rule) and the rule has a rarer one, maybe within a regular expression, this selects the rarer one. The checks verify
/// all literals of a rule in the end, whichever is searched.
pub(crate) fn to_look_for(
    rule: &Rule,
    prefilterable: &dyn Fn(usize) -> bool,
    priority: &dyn Fn(usize) -> u8,
) -> Option<FastPattern> {
    let chosen = choose(rule, prefilterable, priority);
    if chosen.as_ref().is_some_and(|c| !commonplace::is(&c.bytes)) {
        return chosen;
    }
    let least = chosen.as_ref().map_or(0, |c| priority(c.buffer));
    // A rare literal is good even in a buffer of low priority.
    let contents = literals(rule, prefilterable)
        .map(|l| pattern(l.0, l.1, l.2))
        .filter(|f| is_rare(&f.bytes) || (has_place(f) && priority(f.buffer) >= least));
    let rank = |f: &FastPattern| (is_rare(&f.bytes), priority(f.buffer), f.bytes.len(), strength(&f.bytes, f.nocase));
    contents
        .chain(of_expressions(rule, prefilterable))
        .reduce(|best, next| if rank(&next) > rank(&best) { next } else { best })
        .or(chosen)
}

/// Rare literals that every match of the regular expressions of `rule` contains.
fn of_expressions<'r>(
    rule: &'r Rule,
    prefilterable: &'r dyn Fn(usize) -> bool,
) -> impl Iterator<Item = FastPattern> + 'r {
    let buffers = rule.buffers.iter().enumerate().filter(|(b, buffer)| buffer.absent.is_none() && prefilterable(*b));
    let checks = buffers.flat_map(|(b, buffer)| buffer.checks.iter().enumerate().map(move |(c, check)| (b, c, check)));
    checks.flat_map(|(buffer, check, what)| {
        let (all, nocase) = match what {
            BufferCheck::Pcre(p) if !p.negated => literals::of_pattern(&p.pattern, &p.options),
            _ => (Vec::new(), false),
        };
        let rare = all.into_iter().filter(|l| is_rare(l));
        rare.map(move |bytes| FastPattern { buffer, check, bytes, nocase, offset: 0, end: None, only: false })
    })
}

/// Whether a literal probably occurs in little traffic.
pub(crate) fn is_rare(bytes: &[u8]) -> bool {
    bytes.len() >= RARE_MIN && !commonplace::is(bytes)
}

/// A shorter literal is never rare.
const RARE_MIN: usize = 4;

/// Whether a literal has exactly one possible place in its buffer, and is not what most buffers have there.
fn has_place(f: &FastPattern) -> bool {
    let one = f.end.and_then(|e| e.checked_sub(f.offset)).is_some_and(|room| room as usize == f.bytes.len());
    one && f.bytes.iter().any(|&b| !matches!(b, 0 | 0xff))
}

/// The fast pattern of `rule` if all its buffers can be prefiltered. It is in a buffer of a transaction or a frame if
/// the rule has literals there, otherwise in the payload or a header. For a rule on both directions of a transaction,
/// the request is preferred.
pub fn of_rule(rule: &Rule) -> Option<FastPattern> {
    let literal = |c: &BufferCheck| matches!(c, BufferCheck::Content(c) if !c.negated);
    let has = |b: &BufferChecks| b.absent.is_none() && b.checks.iter().any(literal);
    let app = rule.buffers.iter().any(|b| b.app && has(b));
    let request =
        |b: &BufferChecks| info::buffer(&b.buffer).is_none_or(|i| i.to_server) && b.side != Some(Side::ToClient);
    let first = rule.arrow == Arrow::Transaction && rule.buffers.iter().any(|b| b.app == app && has(b) && request(b));
    // The rule's explicit choice may be in any buffer.
    let wanted = |c: &BufferCheck| matches!(c, BufferCheck::Content(c) if c.fast_pattern && !c.negated);
    let explicit = rule.buffers.iter().any(|b| b.checks.iter().any(wanted));
    let buffer = |i: usize| rule.buffers.get(i);
    choose(rule, &|i| buffer(i).is_some_and(|b| explicit || b.app == app && (!first || request(b))), &|i| {
        buffer(i).map_or(0, |b| priority(&b.buffer))
    })
}

/// How selective a literal is: `--engine-analysis` reports this as the strength of a pattern.
pub fn literal_strength(bytes: &[u8], nocase: bool) -> u32 {
    strength(bytes, nocase)
}

/// How selective literals of a buffer are in general: buffers that look alike in nearly every transaction rank low.
pub(crate) fn priority(buffer: &str) -> u8 {
    u8::from(info::buffer(buffer).is_none_or(|b| !b.is_common))
}

/// The rank of a literal: longer first, then more varied.
fn rank(c: &Content) -> (usize, u32) {
    (c.bytes.len(), strength(&c.bytes, c.nocase))
}

/// How rare each byte is.
static WEIGHTS: [u8; 256] = {
    let mut weights = [8; 256];
    let mut b = 0;
    while b < weights.len() {
        weights[b] = match b as u8 {
            0 | 0xff | b' ' => 2,
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => 4,
            0x20..=0x7e | 1 => 6,
            _ => 8,
        };
        b += 1;
    }
    weights
};

/// How rare a literal's bytes are: each distinct byte counts in full once, repetitions count little.
fn strength(bytes: &[u8], nocase: bool) -> u32 {
    let mut seen = ByteSet::EMPTY;
    let mut total = 0;
    for &b in bytes {
        let b = if nocase { b.to_ascii_lowercase() } else { b };
        total += if seen.has(b) { 1 } else { u32::from(WEIGHTS[usize::from(b)]) };
        seen.insert(b);
    }
    total
}

fn pattern(buffer: usize, check: usize, c: &Content) -> FastPattern {
    let number = |v: &Option<Value>| match v {
        Some(Value::Number(n)) => Some(u32::try_from((*n).max(0)).unwrap_or(u32::MAX)),
        _ => None,
    };
    let relative = c.distance.is_some() || c.within.is_some();
    // A variable's value is unknown here, so the place is not limited. Neither is that of a relative literal.
    let offset = if relative { 0 } else { number(&c.offset).unwrap_or(0) };
    let placed_by_variable = matches!(c.offset, Some(Value::Variable(_)));
    let mut end =
        if relative || placed_by_variable { None } else { number(&c.depth).map(|d| offset.saturating_add(d)) };
    if c.starts_with && !relative {
        let whole = offset.saturating_add(u32::try_from(c.bytes.len()).unwrap_or(u32::MAX));
        end = Some(end.map_or(whole, |e| e.min(whole)));
    }
    let mut out =
        FastPattern { buffer, check, bytes: c.bytes.clone(), nocase: c.nocase, offset, end, only: c.fast_pattern_only };
    if let Some((from, len)) = c.fast_pattern_chop {
        let from = usize::from(from);
        if let Some(part) = c.bytes.get(from..from.saturating_add(usize::from(len))).filter(|p| !p.is_empty()) {
            // The selected part starts that much later and ends that much earlier.
            let behind = c.bytes.len() - from - part.len();
            out.bytes = part.to_vec();
            out.offset = offset.saturating_add(from as u32);
            out.end = out.end.map(|e| e.saturating_sub(behind as u32));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use margay_rules::ast::*;
    use std::sync::Arc;

    fn rule(buffers: Vec<(&str, Vec<Content>)>) -> Rule {
        let any = AddressSet { any: true, ..AddressSet::default() };
        let ports = PortSet { any: true, ..PortSet::default() };
        Rule {
            action: Action::Alert,
            protocol: Protocol::Tcp,
            hook: None,
            src: any.clone(),
            sport: ports.clone(),
            arrow: Arrow::Forward,
            dst: any,
            dport: ports,
            sid: 1,
            gid: 1,
            rev: 0,
            msg: String::new(),
            class: None,
            priority: 3,
            target: None,
            noalert: false,
            force_alert: false,
            checks: Vec::new(),
            buffers: buffers
                .into_iter()
                .map(|(name, contents)| BufferChecks {
                    buffer: name.to_owned(),
                    app: false,
                    transforms: Vec::new(),
                    checks: contents.into_iter().map(BufferCheck::Content).collect(),
                    absent: None,
                    side: None,
                })
                .collect(),
            effects: Vec::new(),
            thresholds: Vec::new(),
            prefilter: None,
            missing: Vec::new(),
            firewall: false,
            place: Place { file: Arc::from("t.rules"), line: 1, column: 1 },
            text: Arc::from(""),
        }
    }

    fn c(text: &str) -> Content {
        Content { bytes: text.as_bytes().to_vec(), ..Content::default() }
    }

    fn chosen(r: &Rule) -> FastPattern {
        choose(r, &|_| true, &|_| 0).expect("has one")
    }

    #[test]
    fn longest_then_most_varied_then_first() {
        let r = rule(vec![("payload", vec![c("ab"), c("aaaa"), c("wxyz"), c("qrst")]), ("tcp.hdr", vec![c("abc")])]);
        let f = chosen(&r);
        assert_eq!((f.buffer, f.check, f.bytes.as_slice()), (0, 2, &b"wxyz"[..]));
    }

    #[test]
    fn negated_and_unreachable_ones_are_left_out() {
        let not = Content { negated: true, ..c("long negated literal") };
        let r = rule(vec![("payload", vec![not.clone(), c("ab")]), ("http.uri", vec![c("longer")])]);
        assert_eq!(chosen(&r).bytes, b"longer");
        assert_eq!(choose(&r, &|b| b == 0, &|_| 0).expect("has one").bytes, b"ab");
        let wanted = Content { fast_pattern: true, ..not };
        assert_eq!(choose(&rule(vec![("payload", vec![wanted])]), &|_| true, &|_| 0), None);
        assert_eq!(choose(&rule(vec![("payload", vec![])]), &|_| true, &|_| 0), None);
    }

    #[test]
    fn the_rule_decides() {
        let wanted = Content { fast_pattern: true, nocase: true, ..c("ab") };
        let f = chosen(&rule(vec![("payload", vec![c("longer"), wanted])]));
        assert_eq!((f.bytes.as_slice(), f.nocase, f.only), (&b"ab"[..], true, false));
        let only = Content { fast_pattern_only: true, ..c("ab") };
        assert!(chosen(&rule(vec![("payload", vec![c("longer"), only])])).only);
        let chop = Content {
            fast_pattern_chop: Some((2, 3)),
            offset: Some(Value::Number(4)),
            depth: Some(Value::Number(10)),
            ..c("abcdefgh")
        };
        let f = chosen(&rule(vec![("payload", vec![chop])]));
        assert_eq!((f.bytes.as_slice(), f.offset, f.end), (&b"cde"[..], 6, Some(11)));
    }

    #[test]
    fn places() {
        let at = |c: Content| {
            let f = chosen(&rule(vec![("payload", vec![c])]));
            (f.offset, f.end)
        };
        let n = |n| Some(Value::Number(n));
        assert_eq!(at(c("ab")), (0, None));
        assert_eq!(at(Content { offset: n(3), depth: n(5), ..c("ab") }), (3, Some(8)));
        assert_eq!(at(Content { starts_with: true, depth: n(2), ..c("ab") }), (0, Some(2)));
        assert_eq!(at(Content { offset: Some(Value::Variable(0)), depth: n(5), ..c("ab") }), (0, None));
        assert_eq!(at(Content { depth: Some(Value::Variable(0)), offset: n(1), ..c("ab") }), (1, None));
        assert_eq!(at(Content { distance: n(5), ..c("ab") }), (0, None));
    }
}
