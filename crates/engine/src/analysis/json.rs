//! `rules.json`, with one line per rule; `patterns.json`, `flowbits.json`.

use std::collections::BTreeMap;

use margay_detect::RuleKind;
use margay_json::Json;
use margay_rules::ast::{BitOp, BufferCheck, Check, Effect, Rule};

use super::items;
use super::model::{Analysed, Engine};

fn strings(j: &mut Json, key: &'static str, list: &[impl AsRef<str>]) {
    j.array(key);
    for s in list {
        j.item_str(s.as_ref());
    }
    j.end_array();
}

fn transforms(j: &mut Json, list: &[&'static str]) {
    if list.is_empty() {
        return;
    }
    j.array("transforms");
    for t in list {
        j.item_object();
        j.str("name", t);
        j.end_object();
    }
    j.end_array();
}

fn matches(j: &mut Json, list: &[items::Item]) {
    j.array("matches");
    for i in list {
        i.write(j);
    }
    j.end_array();
}

fn engine(j: &mut Json, e: &Engine, frame: bool) {
    j.item_object();
    j.str("name", &e.name);
    if frame {
        j.str("direction", if e.place.to_server { "toserver" } else { "toclient" });
        j.bool("is_mpm", e.is_mpm);
    } else {
        j.str("direction", if e.place.to_server { "toserver" } else { "toclient" });
        j.bool("is_mpm", e.is_mpm);
        j.str("app_proto", e.place.app_proto);
        j.uint("progress", u64::from(e.place.progress));
    }
    transforms(j, &e.transforms);
    matches(j, &e.items);
    j.end_object();
}

/// Writes the line of one rule, with its dependencies.
pub(super) fn rule(j: &mut Json, a: &Analysed, bits: &Bits) {
    let r = &a.rule;
    j.item_object();
    j.str("raw", &r.text);
    j.uint("id", u64::from(r.sid));
    j.uint("gid", u64::from(r.gid));
    j.uint("rev", u64::from(r.rev));
    if !r.msg.is_empty() {
        j.str("msg", &r.msg);
    }
    j.str("app_proto", &a.scope.app_proto);
    strings(j, "requirements", &a.requirements);
    j.str("type", a.kind.name());
    strings(j, "flags", &a.flags);
    j.array("pkt_engines");
    for e in &a.packet_engines {
        j.item_object();
        j.str("name", &e.name);
        j.bool("is_mpm", e.is_mpm);
        transforms(j, &e.transforms);
        if !e.items.is_empty() {
            matches(j, &e.items);
        }
        j.end_object();
    }
    j.end_array();
    j.array("frame_engines");
    for e in &a.frame_engines {
        engine(j, e, true);
    }
    j.end_array();
    if !a.engines.is_empty() {
        j.array("engines");
        for e in &a.engines {
            engine(j, e, false);
        }
        j.end_array();
    }
    j.object("lists");
    for (name, list) in &a.lists {
        j.object(name);
        matches(j, list);
        j.end_object();
    }
    j.end_object();
    if let Some(m) = a.mpm.as_ref().filter(|m| !m.frame) {
        j.object("mpm");
        j.str("buffer", &m.name);
        items::content(j, &m.content, true, m.relative_next);
        j.end_object();
    }
    if let Some(name) = &a.prefilter {
        j.object("prefilter");
        j.str("buffer", "packet");
        j.str("name", name);
        j.end_object();
    }
    bits.dependencies(j, a);
    for (key, list) in [("warnings", &a.warnings), ("notes", &a.notes)] {
        if !list.is_empty() {
            strings(j, key, list);
        }
    }
    // Why this build cannot match the rule.
    if !r.missing.is_empty() {
        strings(j, "set_aside", &r.missing);
    }
    j.end_object();
    j.raw(b"\n");
}

/// Limit of the rules in a rule's list of dependencies. Without it, the report could grow with the square of the number of
/// rules.
const SETTERS_MAX: usize = 1000;

/// The rules that use a flowbit, by sid.
#[derive(Debug, Default)]
struct Bit {
    sets: Vec<u32>,
    unsets: Vec<u32>,
    toggles: Vec<u32>,
    isset: Vec<u32>,
    isnotset: Vec<u32>,
    /// Transaction rules that set it.
    set_by_tx: Vec<u32>,
    /// Whether a transaction rule checks it.
    asked_by_tx: bool,
}

/// All flowbits of a rule set, in order of first use.
#[derive(Debug, Default)]
pub(super) struct Bits {
    names: Vec<String>,
    bits: Vec<Bit>,
    index: BTreeMap<String, usize>,
}

impl Bits {
    pub(super) fn of(rules: &[Rule]) -> Bits {
        let mut all = Bits::default();
        let mut in_file: Vec<&Rule> = rules.iter().collect();
        in_file.sort_by(|a, b| (&a.place.file, a.place.line).cmp(&(&b.place.file, b.place.line)));
        for r in in_file {
            let (sid, tx) = (r.sid, RuleKind::of(r) == RuleKind::AppTransaction);
            for c in &r.checks {
                let Check::FlowBit { names, set } = c else { continue };
                for n in names {
                    let Some(bit) = all.bit(n) else { continue };
                    if *set {
                        bit.isset.push(sid)
                    } else {
                        bit.isnotset.push(sid)
                    }
                    bit.asked_by_tx |= tx && *set;
                }
            }
            for e in &r.effects {
                let Effect::FlowBit { names, op } = e else { continue };
                for n in names {
                    let Some(bit) = all.bit(n) else { continue };
                    match op {
                        BitOp::Set => bit.sets.push(sid),
                        BitOp::Unset => bit.unsets.push(sid),
                        BitOp::Toggle => bit.toggles.push(sid),
                    }
                    if tx && *op == BitOp::Set {
                        bit.set_by_tx.push(sid);
                    }
                }
            }
        }
        all
    }

    /// The bit with a name, created if needed.
    fn bit(&mut self, name: &str) -> Option<&mut Bit> {
        let i = match self.index.get(name) {
            Some(&i) => i,
            None => {
                self.index.insert(name.to_owned(), self.bits.len());
                self.names.push(name.to_owned());
                self.bits.push(Bit::default());
                self.bits.len() - 1
            }
        };
        self.bits.get_mut(i)
    }

    /// Transaction rules that a packet or stream rule depends on: they set bits that it checks, and that no transaction rule
    /// checks.
    fn dependencies(&self, j: &mut Json, a: &Analysed) {
        if a.kind == RuleKind::AppTransaction {
            return;
        }
        let mut wanted: Vec<usize> = a
            .rule
            .checks
            .iter()
            .filter_map(|c| if let Check::FlowBit { names, set: true } = c { Some(names) } else { None })
            .flatten()
            .filter_map(|n| self.index.get(n).copied())
            .filter(|&i| self.bits.get(i).is_some_and(|b| !b.set_by_tx.is_empty() && !b.asked_by_tx))
            .collect();
        wanted.sort_unstable();
        wanted.dedup();
        if wanted.is_empty() {
            return;
        }
        j.object("dependencies");
        j.object("flowbits");
        j.object("upstream");
        j.object("state_modifying_rules");
        j.array("sids");
        let setters = wanted.iter().filter_map(|&i| self.bits.get(i)).flat_map(|b| &b.set_by_tx);
        for s in setters.take(SETTERS_MAX) {
            j.item_uint(u64::from(*s));
        }
        j.end_array();
        j.array("names");
        for n in wanted.iter().filter_map(|&i| self.names.get(i)) {
            j.item_str(n);
        }
        j.end_array();
        for _ in 0..4 {
            j.end_object();
        }
    }

    /// `flowbits.json`; `None` without flowbits.
    pub(super) fn report(&self) -> Option<Json> {
        if self.bits.is_empty() {
            return None;
        }
        let mut j = Json::new();
        j.item_object();
        j.array("flowbits");
        for (i, (name, b)) in self.names.iter().zip(&self.bits).enumerate() {
            j.item_object();
            j.str("name", name);
            j.uint("internal_id", i as u64 + 1);
            let lists = [
                ("set_cnt", "sets", &b.sets),
                ("unset_cnt", "unset", &b.unsets),
                ("toggle_cnt", "toggle", &b.toggles),
                ("isset_cnt", "isset", &b.isset),
                ("isnotset_cnt", "isnotset", &b.isnotset),
            ];
            for (count, _, list) in lists {
                j.uint(count, list.len() as u64);
            }
            for (_, key, list) in lists.into_iter().filter(|l| !l.2.is_empty()) {
                j.array(key);
                for s in list {
                    j.item_uint(u64::from(*s));
                }
                j.end_array();
            }
            j.end_object();
        }
        j.end_array();
        j.end_object();
        j.raw(b"\n");
        Some(j)
    }
}

/// The key of a literal in `patterns.json`.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pattern {
    bytes: Vec<u8>,
    nocase: bool,
    negated: bool,
    depth: bool,
    offset: bool,
    ends_with: bool,
}

/// `patterns.json`: the literals of each buffer, with the number of rules that have each, counted once per direction, and the
/// number of those whose prefilter literal it is.
#[derive(Debug, Default)]
pub(super) struct Patterns(BTreeMap<String, BTreeMap<Pattern, [u64; 2]>>);

impl Patterns {
    /// Adds the literals of a rule.
    pub(super) fn add(&mut self, a: &Analysed) {
        let directions = u64::from(a.scope.to_server) + u64::from(a.scope.to_client);
        for (i, b) in a.rule.buffers.iter().enumerate() {
            let payload = margay_detect::is_payload(&b.buffer);
            let name = if payload { "payload".to_owned() } else { super::engines::engine_name(b) };
            let mpm = a.mpm.as_ref().filter(|m| m.buffer == i).map(|m| &m.content);
            let of_buffer = self.0.entry(name).or_default();
            for c in &b.checks {
                let BufferCheck::Content(c) = c else { continue };
                let key = Pattern {
                    bytes: if c.nocase { c.bytes.to_ascii_lowercase() } else { c.bytes.clone() },
                    nocase: c.nocase,
                    negated: c.negated,
                    depth: c.depth.is_some(),
                    offset: c.offset.is_some(),
                    ends_with: c.ends_with,
                };
                let counts = of_buffer.entry(key).or_default();
                counts[0] += directions;
                if mpm == Some(c) {
                    counts[1] += directions;
                }
            }
        }
    }

    /// The report.
    pub(super) fn report(&self) -> Json {
        let buffers = &self.0;
        let mut j = Json::new();
        j.item_object();
        j.array("buffers");
        for (list_id, (name, list)) in buffers.iter().filter(|b| !b.1.is_empty()).enumerate() {
            j.item_object();
            j.str("name", name);
            j.uint("list_id", list_id as u64 + 1);
            j.array("patterns");
            for (p, [count, mpm]) in list {
                j.item_object();
                j.str("pattern", &items::pattern(&p.bytes));
                j.uint("patlen", p.bytes.len() as u64);
                j.uint("cnt", *count);
                j.uint("mpm", *mpm);
                j.object("flags");
                j.bool("nocase", p.nocase);
                j.bool("negated", p.negated);
                j.bool("depth", p.depth);
                j.bool("offset", p.offset);
                j.bool("endswith", p.ends_with);
                j.end_object();
                j.end_object();
            }
            j.end_array();
            j.end_object();
        }
        j.end_array();
        j.end_object();
        j.raw(b"\n");
        j
    }
}
