//! `rules_analysis.txt` and `rules_fast_pattern.txt`.

use std::collections::HashSet;
use std::fmt::Write as _;

use margay_detect::{RuleKind, is_payload};
use margay_rules::ast::{BufferCheck, Protocol};
use margay_rules::info;

use super::model::{Analysed, Mpm};

const LINE: &str = "-------------------------------------------------------------------\n";

fn heading(title: &str) -> String {
    format!("{LINE}{title}\n{LINE}")
}

/// A literal as text, with `.` for unprintable bytes.
fn shown(bytes: &[u8]) -> String {
    bytes.iter().map(|&b| if b == b' ' || b.is_ascii_graphic() { char::from(b) } else { '.' }).collect()
}

/// The literal's buffer, with a description.
fn buffer(a: &Analysed, m: &Mpm) -> String {
    let b = a.rule.buffers.get(m.buffer);
    match b.filter(|b| !is_payload(&b.buffer)) {
        Some(b) => {
            let description = info::buffer(&b.buffer).map_or("", |i| i.description);
            format!("{description}{}({})", if description.is_empty() { "" } else { " " }, m.name)
        }
        None => match a.kind {
            RuleKind::PacketStream if a.is_tcp() => "payload and reassembled stream".to_owned(),
            RuleKind::Stream => "reassembled stream".to_owned(),
            _ => "payload".to_owned(),
        },
    }
}

const fn sort(kind: RuleKind) -> &'static str {
    match kind {
        RuleKind::IpOnly => "ip only",
        RuleKind::LikeIpOnly => "like ip only",
        RuleKind::ProtocolDetection => "protocol detection only",
        RuleKind::DecodeEvent => "decoder event only",
        RuleKind::Packet => "packet inspecting",
        RuleKind::PacketStream => "packet and stream inspecting",
        RuleKind::Stream => "stream inspecting",
        RuleKind::AppLayer => "app-layer inspecting",
        RuleKind::AppTransaction => "App-layer TX inspecting",
    }
}

/// Suggestions for improving a rule.
fn advice(a: &Analysed) -> Vec<String> {
    let mut out: Vec<String> = a.warnings.clone();
    let payload = || a.rule.buffers.iter().filter(|b| is_payload(&b.buffer)).flat_map(|b| &b.checks);
    let content = |c: &BufferCheck| matches!(c, BufferCheck::Content(_));
    let all = || a.rule.buffers.iter().flat_map(|b| &b.checks);
    if all().any(|c| matches!(c, BufferCheck::Pcre(_))) && !all().any(content) {
        out.push(
            "Rule uses pcre without a content option present.\n             -Consider adding a content to improve \
             performance of this rule."
                .to_owned(),
        );
    }
    let listed = |name: &str| a.lists.iter().any(|l| l.1.iter().any(|i| i.name == name));
    if a.has_payload()
        && a.is_tcp()
        && a.rule.protocol != Protocol::Ip
        && a.flow() == Default::default()
        && !listed("tcp.flags")
    {
        out.push(
            "TCP rule without a flow or flags option.\n             -Consider adding flow or flags to improve \
             performance of this rule."
                .to_owned(),
        );
    }
    let placed = payload().any(|c| matches!(c, BufferCheck::Content(c) if c.offset.is_some() || c.depth.is_some()));
    if a.kind == RuleKind::PacketStream && a.is_tcp() && placed {
        out.push(
            "Rule has depth/offset with raw content keywords.  Please note the offset/depth will be checked against both \
             packet payloads and stream.  If you meant to have the offset/depth checked against just the payload, you can \
             update the signature as \"alert tcp-pkt...\""
                .to_owned(),
        );
    }
    if a.mpm.as_ref().is_some_and(|m| m.bytes.len() < 3 && !m.content.negated) {
        out.push(
            "The literal that the prefilter looks for is shorter than 3 bytes.\n             -Consider a longer content, \
             or fast_pattern on another one."
                .to_owned(),
        );
    }
    if a.scope.to_server
        && a.scope.to_client
        && (a.is_tcp() || a.rule.protocol == Protocol::Udp)
        && a.kind != RuleKind::IpOnly
    {
        out.push("Rule is inspecting both the request and the response.".to_owned());
    }
    if !a.rule.missing.is_empty() {
        out.push(format!("This build does not have {}: the rule is set aside.", a.rule.missing.join(", ")));
    }
    out
}

/// The header of `rules_analysis.txt`.
pub(super) fn rules_heading() -> String {
    heading("Rules: what each one inspects, and what could be better about it")
}

/// The section of a rule in `rules_analysis.txt`.
pub(super) fn rule(a: &Analysed) -> String {
    let mut out = String::new();
    let r = &a.rule;
    let _ = writeln!(out, "== Sid: {} ==\n{}", r.sid, r.text);
    let _ = writeln!(out, "    Rule is {}.", sort(a.kind));
    let tcp_both = a.kind == RuleKind::PacketStream && a.is_tcp();
    if matches!(a.kind, RuleKind::Packet | RuleKind::IpOnly | RuleKind::LikeIpOnly) || tcp_both {
        out.push_str("    Rule matches on packets.\n");
    }
    if a.kind == RuleKind::Stream || tcp_both || a.kind == RuleKind::AppTransaction && a.has_payload() {
        out.push_str("    Rule matches on reassembled stream.\n");
    }
    if a.scope.app_proto != "unknown" {
        let _ = writeln!(out, "    App layer protocol is {}.", a.scope.app_proto);
    }
    if a.has_payload() {
        let count = |app: bool, f: &dyn Fn(&BufferCheck) -> bool| {
            r.buffers.iter().filter(|b| b.app == app).flat_map(|b| &b.checks).filter(|c| f(c)).count()
        };
        let content = |c: &BufferCheck| matches!(c, BufferCheck::Content(_));
        let pcre = |c: &BufferCheck| matches!(c, BufferCheck::Pcre(_));
        let _ = writeln!(
            out,
            "    Rule contains {} content options, {} http content options, {} pcre options, and {} pcre options with \
             http modifiers.",
            count(false, &content),
            count(true, &content),
            count(false, &pcre),
            count(true, &pcre),
        );
    }
    if let Some(m) = &a.mpm {
        let transforms = r.buffers.get(m.buffer).map_or(0, |b| b.transforms.len());
        let with = if transforms > 0 { format!(" (with {transforms} transform(s))") } else { String::new() };
        let _ = writeln!(out, "    Fast Pattern \"{}\" on \"{}\"{with} buffer.", shown(&m.bytes), buffer(a, m));
    }
    if let Some(p) = &a.prefilter {
        let _ = writeln!(out, "    Prefilter on \"{p}\".");
    }
    for n in distinct(&a.notes) {
        let _ = writeln!(out, "    Note: {n}");
    }
    let advice = advice(a);
    for w in distinct(&advice) {
        let _ = writeln!(out, "    Warning: {w}");
    }
    if advice.is_empty() {
        out.push_str("    No warnings for this rule.\n");
    }
    out.push('\n');
    out
}

/// A list without duplicates.
fn distinct(list: &[String]) -> impl Iterator<Item = &String> {
    let mut seen = HashSet::new();
    list.iter().filter(move |s| seen.insert(s.as_str()))
}

/// The header of `rules_fast_pattern.txt`.
pub(super) fn fast_patterns_heading() -> String {
    heading("Fast patterns: the literal of each rule that the prefilter looks for")
}

/// The section of a rule in `rules_fast_pattern.txt`.
pub(super) fn fast_pattern(a: &Analysed) -> String {
    let mut out = String::new();
    let yes = |b: bool| if b { "yes" } else { "no" };
    let _ = writeln!(out, "== Sid: {} ==\n{}\n    Fast Pattern analysis:", a.rule.sid, a.rule.text);
    let Some(m) = &a.mpm else {
        let any = a.rule.buffers.iter().flat_map(|b| &b.checks).any(|c| matches!(c, BufferCheck::Content(_)));
        let why = if any { "No content that can be looked for" } else { "No content present" };
        let _ = writeln!(out, "        {why}\n");
        return out;
    };
    let payload = a.rule.buffers.get(m.buffer).is_none_or(|b| is_payload(&b.buffer));
    let matcher = if payload { "content".to_owned() } else { buffer(a, m) };
    let c = &m.content;
    let flags: Vec<&str> = [
        (c.offset.is_some(), "Offset"),
        (c.depth.is_some(), "Depth"),
        (c.within.is_some(), "Within"),
        (c.distance.is_some(), "Distance"),
        (c.nocase, "Nocase"),
        (c.negated, "Negated"),
    ]
    .into_iter()
    .filter(|f| f.0)
    .map(|f| f.1)
    .collect();
    let flags = if flags.is_empty() { "None".to_owned() } else { flags.join(" ") };
    let _ = writeln!(out, "        Fast pattern matcher: {matcher}");
    let _ = writeln!(out, "        Flags: {flags}");
    let _ = writeln!(out, "        Fast pattern set: {}", yes(c.fast_pattern));
    let _ = writeln!(out, "        Fast pattern only set: {}", yes(c.fast_pattern_only));
    let _ = writeln!(out, "        Fast pattern chop set: {}", yes(c.fast_pattern_chop.is_some()));
    if let Some((offset, length)) = c.fast_pattern_chop {
        let _ = writeln!(out, "        Fast pattern offset, length: {offset}, {length}");
    }
    let _ = writeln!(out, "        Original content: {}", shown(&c.bytes));
    let _ = writeln!(out, "        Final content: {}\n", shown(&m.bytes));
    out
}

/// Lengths of the literals of each buffer.
#[derive(Debug, Default)]
pub(super) struct Summary(Vec<(String, Lengths)>);

#[derive(Debug, Clone, Copy)]
struct Lengths {
    shortest: usize,
    longest: usize,
    total: usize,
    count: usize,
}

impl Summary {
    /// Adds a rule's literal.
    pub(super) fn add(&mut self, a: &Analysed) {
        let Some(m) = &a.mpm else { return };
        let name = if m.name == "payload" { "packet/stream payload".to_owned() } else { buffer(a, m) };
        let n = m.bytes.len();
        match self.0.iter_mut().find(|b| b.0 == name) {
            Some((_, l)) => {
                *l = Lengths {
                    shortest: l.shortest.min(n),
                    longest: l.longest.max(n),
                    total: l.total.saturating_add(n),
                    count: l.count + 1,
                };
            }
            None => self.0.push((name, Lengths { shortest: n, longest: n, total: n, count: 1 })),
        }
    }

    /// The end of `rules_fast_pattern.txt`.
    pub(super) fn report(&self) -> String {
        let mut out = "============\nSummary:\n============\n".to_owned();
        let width = self.0.iter().map(|b| b.0.chars().count()).max().unwrap_or(0);
        for (name, l) in &self.0 {
            let _ = writeln!(
                out,
                "{:<width$} smallest pattern {} byte(s), longest pattern {} byte(s), number of patterns {}, avg pattern \
                 len {:.2} byte(s)",
                format!("{name},"),
                l.shortest,
                l.longest,
                l.count,
                l.total as f64 / l.count.max(1) as f64,
                width = width + 1,
            );
        }
        out
    }
}
