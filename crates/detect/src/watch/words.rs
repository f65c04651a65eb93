//! Texts for things that have no name in the rule language.

use margay_app::{AppProto, protocol};
use margay_flow::Direction;
use margay_rules::ast::{BufferCheck, Rule};

use super::hints::{longest_beginning, tenths};
use super::report::{Excerpt, Line, LineCame};
use super::rule::{Buffer, Own, Seen, address, pattern_text, slot_name};
use crate::describe::{self, buffer_check, literal};
use crate::detect::Detect;
use crate::header::Misfit;
use crate::prefilter::{Literal, longest_row};
use crate::tx::{FileTest, Plan, Step, View, What};

pub(super) fn state_name(proto: AppProto, dir: Direction, progress: u8) -> &'static str {
    let states = protocol(proto).map(|p| p.states[dir.index()]);
    states.and_then(|s| s.get(usize::from(progress)).copied()).unwrap_or("?")
}

pub(super) const fn side(dir: Direction) -> &'static str {
    match dir {
        Direction::ToServer => "to the server",
        Direction::ToClient => "to the client",
    }
}

pub(super) fn frame_name(proto: AppProto, kind: u8) -> &'static str {
    protocol(proto).and_then(|p| p.frames.get(usize::from(kind)).copied()).unwrap_or("stream")
}

/// The part of the rule's header that a packet does not fit.
pub(super) fn misfit_text(m: Misfit, rule: &Rule) -> String {
    let ports = |p: &margay_rules::ast::PortSet| {
        let list: Vec<String> =
            p.ranges.iter().take(8).map(|&(a, b)| if a == b { a.to_string() } else { format!("{a}:{b}") }).collect();
        format!("{}{}", list.join(","), if p.ranges.len() > 8 { ",…" } else { "" })
    };
    match m {
        Misfit::Transport | Misfit::Family => {
            let word = rule.text.split_whitespace().nth(1).unwrap_or("another");
            format!("the packet is not of the rule's protocol ({word})")
        }
        Misfit::Direction => "the packet goes the other way than flow asks".into(),
        Misfit::NoPorts => "the rule names ports, and the packet has none".into(),
        Misfit::DestinationPort => format!("the destination port is not {}", ports(&rule.dport)),
        Misfit::SourcePort => format!("the source port is not {}", ports(&rule.sport)),
        Misfit::SourceAddress => "the source address is not one of the rule's".into(),
        Misfit::DestinationAddress => "the destination address is not one of the rule's".into(),
    }
}

/// The text for a buffer that the transaction does not have.
pub(super) const MISSING: &str = "there is no such buffer in the transaction";

/// Describes the search for a pattern, and how much of the pattern was there.
pub(super) fn search_line(l: &Literal, place: String, data: Option<&[u8]>) -> (Line, u32) {
    let p = &l.pattern;
    let check = format!("the fast pattern {}", pattern_text(p));
    let Some(data) = data else { return (Line::new(check, LineCame::Failed, place, MISSING), 0) };
    let place_of_it = (0..data.len()).find(|&start| l.is_at(data, start));
    let (at, len) = match place_of_it {
        Some(at) => (at, p.bytes.len()),
        None => longest_beginning(&p.bytes, data, p.nocase),
    };
    let found = place_of_it.is_some();
    if !found && !p.nocase && len < p.bytes.len() {
        let (at, len) = longest_beginning(&p.bytes, data, true);
        if len == p.bytes.len() {
            let detail =
                format!("not in the {} bytes; in other case it is at byte {at}: nocase would find it", data.len());
            let mut line = Line::new(check, LineCame::Failed, place, detail);
            line.excerpt = Some(Excerpt::of(data, (at, at + len)));
            return (line, 10);
        }
    }
    let detail = match len {
        _ if found => format!("at byte {at} of {}", data.len()),
        n if n == p.bytes.len() => {
            let end = l.end.map_or("the end".to_owned(), |e| format!("byte {}", e.saturating_sub(1)));
            format!("it is at byte {at}; the rule wants it between byte {} and {end}", l.offset)
        }
        0 | 1 => format!("not in the {} bytes", data.len()),
        _ => format!("not in the {} bytes; its first {len} of {} are at byte {at}", data.len(), p.bytes.len()),
    };
    let mut line = Line::new(check, if found { LineCame::Held } else { LineCame::Failed }, place, detail);
    if !data.is_empty() {
        line.excerpt = Some(Excerpt::of(data, (at, at + len)));
    }
    (line, tenths(len, p.bytes.len()) + 1)
}

/// The name of an expression that was searched.
pub(super) const WHOLE_REGEX: &str = "the expression of its pcre";

/// Describes the search for an expression, or why it was skipped: fewer than `digits` digits in a row. Also the share
/// of them that is there, in tenths.
pub(super) fn regex_line(digits: usize, place: String, data: &[u8]) -> (Line, u32) {
    let longest = longest_row(data);
    if longest < digits {
        let detail = match longest {
            0 => format!("there is none in the {} bytes", data.len()),
            n => format!("the longest row in the {} bytes has {n}", data.len()),
        };
        let line = Line::new(format!("{digits} digits in a row"), LineCame::Failed, place, detail);
        return (line, tenths(longest, digits));
    }
    // The matcher reports only matches, no partial ones.
    let line = Line::new(WHOLE_REGEX, LineCame::Failed, place, format!("not in the {} bytes", data.len()));
    (line, tenths(1, 1))
}

pub(super) fn held_lines(own: &Buffer, path: &[Seen]) -> Vec<Line> {
    let line = |s: &Seen| {
        let check = own.check(s.place)?;
        let detail = match (s.value, s.to > s.from, check) {
            (Some(v), ..) => format!("the variable is {v}"),
            (_, true, BufferCheck::ByteJump(_)) => format!("on to byte {}", s.to),
            (_, true, _) if s.to == s.from + 1 => format!("at byte {}", s.from),
            (_, true, _) => format!("at bytes {} to {}", s.from, s.to - 1),
            _ => String::new(),
        };
        let within = if s.place.1.is_some() { "base64_data" } else { "" };
        Some(Line::new(buffer_check(check), LineCame::Held, within, detail))
    };
    path.iter().filter_map(line).collect()
}

/// Describes a step without lines of its own: the condition, its subject, and the actual value.
// It stays whole: a flat match over the steps.
pub(super) fn step_text(
    detect: &Detect,
    own: &Own,
    number: u32,
    plan: &Plan,
    step: &Step,
    view: &View<'_>,
) -> (String, String, String) {
    let slot = |n: u16| {
        view.group.slots.get(usize::from(n)).map_or("a buffer".to_owned(), |s| slot_name(plan.proto, s.source))
    };
    let checks_of = |n: u16| {
        let compiled = detect.compiled.get(number as usize).and_then(|c| c.tx.as_ref()?.checks.get(usize::from(n)));
        compiled.and_then(|c| own.buffers.get(&address(c)))
    };
    let p = protocol(plan.proto);
    match &step.what {
        What::Buffer { slot: s, check, .. } => {
            let name = checks_of(*check).map_or_else(|| slot(*s), |b| b.name.clone());
            let list = checks_of(*check).map(|b| b.checks.iter().map(buffer_check).collect::<Vec<_>>().join("; "));
            (list.unwrap_or_default(), name, MISSING.into())
        }
        What::Absent { slot: s, .. } => ("absent".into(), slot(*s), String::new()),
        What::Length { slot: s, value } => (format!("urilen:{}", describe::compare(value)), slot(*s), String::new()),
        What::Number { id, test, which, .. } => {
            let name = p.and_then(|p| p.numbers.iter().find(|n| n.id == *id)).map_or("number", |n| n.name);
            let there: Vec<String> =
                (0..16).map_while(|i| view.tx.number(*id, view.dir, i)).map(|v| v.to_string()).collect();
            let detail =
                if there.is_empty() { "there is none".to_owned() } else { format!("it is {}", there.join(", ")) };
            (format!("{name}:{}", describe::number_test(test, *which)), String::new(), detail)
        }
        What::Interface { id, test } => {
            let mut joined = Vec::new();
            let mut there = Vec::new();
            for i in 0..16 {
                joined.clear();
                let Some(found) = view.tx.buffer(*id, view.dir, i, &mut joined) else { break };
                there.push(describe::interface(found.data));
            }
            let detail = if there.is_empty() { "it is a call of no interface".to_owned() } else { there.join(", ") };
            (describe::interface_test(test), String::new(), detail)
        }
        What::Event(e) => {
            let name = |e: u8| p.and_then(|p| p.events.get(usize::from(e)).copied()).unwrap_or("?");
            let there: Vec<&str> = view.tx.base().events.as_slice().iter().take(16).map(|&e| name(e)).collect();
            let detail = if there.is_empty() { "the transaction has no events".to_owned() } else { there.join(", ") };
            (format!("app-layer-event:{}.{}", plan.proto.rule_name(), name(*e)), String::new(), detail)
        }
        What::State { state, order } => {
            let sign = match order {
                std::cmp::Ordering::Less => "<",
                std::cmp::Ordering::Equal => "",
                std::cmp::Ordering::Greater => ">",
            };
            let asked = format!("app-layer-state:{sign}{}", state_name(plan.proto, plan.dir, *state));
            (asked, String::new(), format!("the transaction is in {}", state_name(plan.proto, plan.dir, view.progress)))
        }
        What::Reached => (
            format!("hook {}", state_name(plan.proto, plan.dir, step.progress)),
            String::new(),
            "the transaction has come to it".into(),
        ),
        What::Lua { number: n, .. } => {
            let rule = detect.rules.get(number as usize).and_then(|r| r.tree());
            let asked = rule.and_then(|r| crate::lua::nth(r, *n)).map_or_else(|| "lua".to_owned(), describe::script);
            (asked, String::new(), "the script does not match".into())
        }
        What::Payload => ("checks of payload".into(), "payload".into(), String::new()),
        What::Bit { name, set } => {
            let command = if *set { "isset" } else { "isnotset" };
            let bits = view.tx.base().bits.contains(name);
            let asked = format!("xbits:{command},{},track tx", detect.names().name(*name).unwrap_or("?"));
            (asked, String::new(), if bits { "it is set".into() } else { "it is not set".into() })
        }
        What::Score { name, least } => {
            let asked = format!("score:{},>=,{least}", detect.names().name(*name).unwrap_or("?"));
            (asked, String::new(), format!("it is {}", view.tx.base().score(*name)))
        }
        What::File(tests) => {
            let files: Vec<String> = view
                .tx
                .base()
                .files
                .of(view.dir)
                .take(8)
                .map(|f| {
                    let ended = if f.ended() { "" } else { ", still going on" };
                    format!("\"{}\" ({} bytes{ended})", literal(f.name()), f.size())
                })
                .collect();
            let asked: Vec<String> = tests
                .iter()
                .map(|t| match t {
                    FileTest::Name(_) => "name".into(),
                    FileTest::Magic(_) => "magic".into(),
                    FileTest::Hash { negated, .. } => {
                        format!("digest {}in the list", if *negated { "not " } else { "" })
                    }
                    FileTest::Size(c) => format!("filesize:{}", describe::compare(c)),
                })
                .collect();
            let detail = if files.is_empty() { "there is no file".to_owned() } else { files.join(", ") };
            (format!("one file ({})", asked.join(", ")), "files".into(), detail)
        }
    }
}
