//! Records what happens to a few rules, packet by packet (`margay rules explain`).
//!
//! For each rule a [`RuleTrace`] counts the reasons why it did not match. It keeps the first evaluations for each
//! reason, the first matching ones, and the one that got furthest. All of these are bounded, however long the capture
//! is.

use std::sync::Arc;

use margay_app::AppProto;
use margay_flow::FlowAction;
use margay_packet::PacketSource;
use margay_rules::ast::BufferCheck;

use super::hints;
use super::report::{Excerpt, FateCount, Line, LineCame, LookReport, PacketRef, ReasonKind, RuleTrace};
use super::rule::{Current, KEPT, REASONS_MAX, Seen, Way, Work, address, pattern_text, slot_name, source_name};
use super::words::{
    MISSING, WHOLE_REGEX, frame_name, held_lines, misfit_text, regex_line, search_line, side, state_name, step_text,
};
use super::{At, End, Look, MatchOutcome, Searched, StepCame, Watch};
use crate::checks::CheckInput;
use crate::describe::buffer_check;
use crate::detect::Detect;
use crate::group::Source;
use crate::header::PacketKey;
use crate::input::Input;
use crate::inspect::{CheckResult, CompiledBuffer, Observer, Op, OpSeen};
use crate::rule::CompiledRule;
use crate::tx::{Plan, Step, TxTrigger, View, What};

/// Records what happens to some rules.
#[derive(Debug)]
pub(crate) struct Tracer {
    detect: Arc<Detect>,
    traces: Vec<RuleTrace>,
    /// The index of the trace for the current rule.
    active: Option<usize>,
    /// Whether the current evaluation is ignored because it repeats the same bytes.
    muted: bool,
    packet: Option<PacketRef>,
    app: (AppProto, bool),
    first: bool,
}

impl Tracer {
    /// A tracer for the rules with these numbers.
    pub(crate) fn new(detect: &Arc<Detect>, rules: &[u32]) -> Tracer {
        Tracer {
            traces: rules.iter().filter_map(|&r| RuleTrace::new(detect, r)).collect(),
            detect: Arc::clone(detect),
            active: None,
            muted: false,
            packet: None,
            app: (AppProto::Unknown, false),
            first: false,
        }
    }

    pub(crate) fn traces(&self) -> &[RuleTrace] {
        &self.traces
    }

    fn packet_ref(input: &Input<'_>) -> PacketRef {
        let p = input.packet;
        PacketRef {
            number: p.number,
            time: p.time,
            src: p.src,
            sport: p.sport,
            dst: p.dst,
            dport: p.dport,
            proto: p.proto,
            flow: input.flow.as_ref().map(|f| f.id),
            dir: input.dir,
            made_up: matches!(p.source, PacketSource::StreamFlowTimeout | PacketSource::StreamFlush),
        }
    }

    /// The current evaluation, if its rule is traced.
    fn current(&mut self) -> Option<&mut Current> {
        let t = self.traces.get_mut(self.active.filter(|_| !self.muted)?)?;
        t.work.look.as_mut().map(|l| &mut l.1)
    }

    fn subject(look: &Look) -> String {
        match *look {
            Look::Packet => "packet".into(),
            Look::Transaction { proto, dir, id, progress, complete } => format!(
                "transaction {id} of {}, {}, in state {}{}",
                proto.rule_name(),
                side(dir),
                state_name(proto, dir, progress),
                if complete { " (complete)" } else { "" }
            ),
            Look::Frame { proto, kind, id } => {
                format!("frame {id} ({}) of {}", frame_name(proto, kind), proto.rule_name())
            }
        }
    }

    /// Takes the results of the packet and flow checks, which ran only for the report.
    fn take_quick(&mut self) {
        let Some(t) = self.active.take().and_then(|a| self.traces.get_mut(a)) else { return };
        if let (Some(quick), Some((_, current))) = (&mut t.work.quick, t.work.look.take()) {
            *quick = current.lines;
        }
    }

    /// Records for every rule that was not evaluated with this packet why it was not.
    fn explain_silence(&mut self) {
        let Some(packet) = self.packet else { return };
        for t in &mut self.traces {
            close_transaction(t, packet);
            if t.work.told {
                continue;
            }
            let rule = self.detect.rules().get(t.rule as usize).and_then(|r| r.tree());
            let report = |lines: Vec<Line>, depth| {
                let failing = lines.iter().position(|l| l.came == LineCame::Failed);
                LookReport { packet, subject: "packet".into(), lines, depth, failing }
            };
            if let Some(m) = t.work.misfit {
                let text = rule.map_or(String::new(), |r| misfit_text(m, r));
                t.reason(ReasonKind::Header, text, report(Vec::new(), m as u32));
                continue;
            }
            let searches = std::mem::take(&mut t.work.searches);
            let quick = t.work.quick.take().unwrap_or_default();
            let silent = |text: &str| (ReasonKind::NotInspected, text.to_owned());
            let (kind, text) = match &t.own.trigger {
                Way::IpOnly => {
                    silent("an IP-only rule is evaluated once for each direction of a flow, not with this packet")
                }
                Way::Transactions if !self.app.1 => {
                    silent("the packet's flow has no transactions (its protocol is not known, or has none)")
                }
                Way::Transactions => (
                    ReasonKind::NotInspected,
                    format!(
                        "the packet changed no transaction that this rule inspects (the flow's protocol is {})",
                        self.app.0.rule_name()
                    ),
                ),
                Way::Frames(Some(p)) if !searches.is_empty() => (
                    ReasonKind::Prefilter,
                    format!("the fast pattern {} is not in the frame", pattern_text(&p.pattern)),
                ),
                Way::Frames(_) => silent("no frame that this rule inspects was due with the packet"),
                Way::Needs(_) | Way::Regex(..) if quick.iter().any(|l| l.came == LineCame::Failed) => {
                    let failed = quick.iter().find(|l| l.came == LineCame::Failed).map_or("", |l| l.check.as_str());
                    let text = format!("{failed} does not hold");
                    t.reason(ReasonKind::Check, text, report(quick.clone(), 1000 + quick.len() as u32 * 10 - 10));
                    continue;
                }
                Way::Regex(..) if searches.is_empty() => silent(
                    "there is nothing to look for the expression of its pcre in: no payload, and no stream data is due",
                ),
                Way::Regex(_, digits) => {
                    // The search for the expression is skipped if there are too few digits.
                    let by_digits = searches.iter().all(|s| s.0.check != WHOLE_REGEX);
                    let places: Vec<&str> = searches.iter().map(|s| s.0.place.as_str()).collect();
                    let places = places.join(" or ");
                    let text = match by_digits {
                        true => format!(
                            "{WHOLE_REGEX} cannot match: it takes {digits} digits in a row, which are not in {places}"
                        ),
                        false => format!("{WHOLE_REGEX} matches nowhere in {places}"),
                    };
                    (ReasonKind::Prefilter, text)
                }
                Way::Needs(needs) => {
                    let asked: Vec<&str> = needs.names().collect();
                    let text =
                        format!("the packet lacks some of the properties that the rule needs: {}", asked.join(", "));
                    (ReasonKind::Prefilter, text)
                }
                Way::Pattern(..) if searches.is_empty() => {
                    silent("there is nothing to look for the fast pattern in: no payload, and no stream data is due")
                }
                Way::Pattern(_, p) => {
                    let places: Vec<&str> = searches.iter().map(|s| s.0.place.as_str()).collect();
                    (
                        ReasonKind::Prefilter,
                        format!("the fast pattern {} is not in {}", pattern_text(&p.pattern), places.join(" or ")),
                    )
                }
            };
            let depth = 100 + searches.iter().map(|s| s.1).max().unwrap_or(0);
            let depth = if kind == ReasonKind::Prefilter { depth } else { 50 };
            t.reason(kind, text, report(searches.into_iter().map(|s| s.0).collect(), depth));
        }
        self.packet = None;
    }
}

/// Ends a transaction that was inspected, for a rule that was not evaluated on it.
fn close_transaction(t: &mut RuleTrace, packet: PacketRef) {
    let Some((subject, looked)) = t.work.transaction.take() else { return };
    let searches = std::mem::take(&mut t.work.searches);
    if looked {
        return;
    }
    t.work.told = true;
    let found = searches.iter().any(|s| s.0.came == LineCame::Held);
    let (kind, text) = match searches.last() {
        _ if found => (ReasonKind::NotInspected, "the rule has finished with the transaction: it matched before, or can no longer match".to_owned()),
        Some((l, _)) if l.detail == MISSING => {
            (ReasonKind::Prefilter, format!("{} is not there: the transaction has no {}", l.check, l.place))
        }
        Some((l, _)) => (ReasonKind::Prefilter, format!("{} is not in {}", l.check, l.place)),
        None => (
            ReasonKind::NotInspected,
            "the transaction has no new data that would make the rule a candidate: the data was inspected before, or has not arrived yet".to_owned(),
        ),
    };
    let depth = if kind == ReasonKind::Prefilter { 100 + searches.iter().map(|s| s.1).max().unwrap_or(0) } else { 50 };
    let lines: Vec<Line> = searches.into_iter().map(|s| s.0).collect();
    let failing = lines.iter().position(|l| l.came == LineCame::Failed);
    t.reason(kind, text, LookReport { packet, subject, lines, depth, failing });
}

impl Observer for Tracer {
    const ON: bool = true;
    const CHECKS: bool = true;

    fn op(&mut self, buffer: &CompiledBuffer, op: &Op, seen: &OpSeen<'_>) {
        let Some(active) = self.active.filter(|_| !self.muted) else { return };
        let Some(t) = self.traces.get_mut(active) else { return };
        let (Some(own), Some(place)) = (t.own.buffers.get(&address(buffer)), buffer.place_of(op)) else { return };
        let Some(check) = own.check(place) else { return };
        let Some((_, c)) = &mut t.work.look else { return };
        // Checks of base64_data come after the start of base64_decode, which holds only if all of them do.
        let order = match (place, seen.came) {
            ((n, Some(inner)), _) => n as u32 * 1024 + 1 + inner as u32,
            ((n, None), CheckResult::Held(..)) if matches!(check, BufferCheck::Base64 { .. }) => n as u32 * 1024 + 1023,
            ((n, None), _) => n as u32 * 1024,
        };
        c.path.retain(|s| s.order < order);
        match seen.came {
            CheckResult::Held(from, to) => {
                let variable = match check {
                    BufferCheck::ByteExtract(b) => Some(b.variable),
                    BufferCheck::ByteMath(b) => Some(b.result),
                    _ => None,
                };
                let value = variable.and_then(|v| seen.variables.get(usize::from(v)).copied());
                c.path.push(Seen { order, place, from, to, value });
            }
            CheckResult::Failed(_) | CheckResult::Limit => {
                let hint = hints::of(check, seen);
                let rank = |order: u32, tenths: u32| order * 16 + tenths;
                if c.failed.as_ref().is_none_or(|f| rank(order, hint.tenths) > rank(f.0, f.2)) {
                    let within = if place.1.is_some() { "base64_data" } else { "" };
                    let mut line = Line::new(buffer_check(check), LineCame::Failed, within, hint.text);
                    if !seen.data.is_empty() {
                        line.excerpt = Some(Excerpt::of(seen.data, hint.mark));
                    }
                    c.failed = Some((order, line, hint.tenths));
                    c.place.1 = held_lines(own, &c.path);
                }
            }
        }
    }

    fn buffer(&mut self, buffer: &CompiledBuffer, data: &[u8], matched: bool) {
        let Some(active) = self.active.filter(|_| !self.muted) else { return };
        let Some(t) = self.traces.get_mut(active) else { return };
        let Some(own) = t.own.buffers.get(&address(buffer)) else { return };
        let Some((_, c)) = &mut t.work.look else { return };
        let path = std::mem::take(&mut c.path);
        let failed = c.failed.take();
        let before = std::mem::take(&mut c.place.1);
        let place = match c.place.0.as_str() {
            "" => own.name.clone(),
            p if p.starts_with("file ") => format!("{} of {p}", own.name),
            p => p.to_owned(),
        };
        let (mut lines, partial) = match failed.filter(|_| !matched) {
            Some((_, line, partial)) => {
                let mut lines = before;
                lines.push(line);
                (lines, partial)
            }
            None => {
                let mut lines = held_lines(own, &path);
                let last = path.iter().rev().find(|s| s.place.1.is_none() && s.to > s.from);
                if let (Some(s), Some(l)) = (last.or(path.last()), lines.last_mut()) {
                    l.excerpt = (!data.is_empty()).then(|| Excerpt::of(data, (s.from, s.to)));
                }
                (lines, 0)
            }
        };
        for l in &mut lines {
            l.place = if l.place.is_empty() { place.clone() } else { format!("{} of {place}", l.place) };
        }
        match c.collects {
            true => {
                if c.values.len() < 64 {
                    c.values.push((lines, partial));
                }
            }
            false => c.commit(lines, partial),
        }
    }
}

impl Watch for Tracer {
    fn packet(&mut self, input: &Input<'_>, key: &PacketKey, first: bool) {
        let packet = Self::packet_ref(input);
        self.packet = Some(packet);
        self.app = (input.app.flow, input.txs.as_ref().is_some_and(|t| !t.is_empty()));
        self.first = first;
        for t in &mut self.traces {
            t.saw(&packet);
            let misfit =
                self.detect.compiled.get(t.rule as usize).and_then(|r| r.header.misfit(key, &self.detect.sets));
            t.work = Work { misfit, ..Work::default() };
        }
    }

    fn left_out(&mut self, input: &Input<'_>) {
        let packet = Self::packet_ref(input);
        let text = match input.flow.as_ref().map(|f| f.action) {
            Some(FlowAction::Drop) => "the packet's flow is dropped: it is not inspected",
            _ => "a pass rule let the packet's flow pass: it is not inspected",
        };
        for t in &mut self.traces {
            t.saw(&packet);
            let look = LookReport { packet, subject: "packet".into(), lines: Vec::new(), depth: 0, failing: None };
            t.reason(ReasonKind::NotInspected, text.to_owned(), look);
        }
    }

    fn silent(&mut self) -> Option<u32> {
        self.take_quick();
        let is = |t: &RuleTrace| {
            let waits = matches!(t.own.trigger, Way::Needs(_) | Way::Regex(..));
            waits && !t.work.told && t.work.misfit.is_none() && t.work.quick.is_none()
        };
        let at = self.traces.iter().position(is)?;
        let t = self.traces.get_mut(at)?;
        t.work.quick = Some(Vec::new());
        t.work.look = Some((Look::Packet, Current::default()));
        self.active = Some(at);
        Some(t.rule)
    }

    fn packet_done(&mut self) {
        self.explain_silence();
    }

    fn searched(&mut self, place: Searched<'_>, data: Option<&[u8]>) {
        for t in &mut self.traces {
            let compiled = self.detect.compiled.get(t.rule as usize);
            let line = match (place, &t.own.trigger) {
                // Without streams, stream patterns are searched in the payload.
                (Searched::Packet(s), Way::Pattern(sources, p))
                    if sources.contains(&s) || (s == Source::Payload && self.packet.is_some_and(|p| p.proto != 6)) =>
                {
                    search_line(p, source_name(s), data)
                }
                (Searched::Packet(s), Way::Regex(sources, digits))
                    if sources.contains(&s) || (s == Source::Payload && self.packet.is_some_and(|p| p.proto != 6)) =>
                {
                    regex_line(*digits, source_name(s), data.unwrap_or_default())
                }
                (Searched::Slot(proto, dir, n, slot), Way::Transactions) => {
                    let plan = compiled.and_then(|c| c.tx.as_ref()?.plan(proto, dir));
                    match plan.map(|p| &p.trigger) {
                        Some(TxTrigger::Pattern(own, p)) if *own == n => {
                            search_line(p, slot_name(proto, slot.source), data)
                        }
                        _ => continue,
                    }
                }
                (Searched::Frame(proto, kind), Way::Frames(Some(p))) => {
                    search_line(p, format!("frame {}", frame_name(proto, kind)), data)
                }
                _ => continue,
            };
            // Several groups of a packet may be searched; the same place is reported once.
            if !t.work.searches.iter().any(|s| s.0 == line.0) && t.work.searches.len() < 16 {
                t.work.searches.push(line);
            }
        }
    }

    fn transaction(&mut self, proto: AppProto, view: &View<'_>) {
        let Some(packet) = self.packet else { return };
        for t in &mut self.traces {
            close_transaction(t, packet);
            t.work.searches.clear();
            let compiled = self.detect.compiled.get(t.rule as usize);
            let plan = compiled.and_then(|c| c.tx.as_ref()?.plan(proto, view.dir));
            if plan.is_some() && t.work.misfit.is_none() {
                let look = Look::Transaction {
                    proto,
                    dir: view.dir,
                    id: view.tx.base().id,
                    progress: view.progress,
                    complete: view.complete,
                };
                t.work.transaction = Some((Self::subject(&look), false));
            }
        }
    }

    fn begin(&mut self, rule: u32, look: Look) {
        self.active = self.traces.iter().position(|t| t.rule == rule);
        self.muted = false;
        let Some(t) = self.active.and_then(|a| self.traces.get_mut(a)) else { return };
        if let Some(tx) = &mut t.work.transaction {
            tx.1 = true;
        }
        if t.work.look.is_none() {
            let mut current = Current::default();
            let found = t.work.searches.iter().filter(|s| s.0.came == LineCame::Held).map(|s| s.0.clone());
            current.lines = found.collect();
            t.work.look = Some((look, current));
        }
    }

    fn end(&mut self, rule: u32, end: End) {
        let Some(t) = self.active.take().and_then(|a| self.traces.get_mut(a)) else { return };
        let (Some((look, mut current)), Some(packet), true) = (t.work.look.take(), self.packet, t.rule == rule) else {
            return;
        };
        current.settle();
        t.work.told = true;
        // Transaction rules compare addresses and ports before their checks. Only the fast pattern may have been found
        // until then.
        let unchecked = current.lines.iter().all(|l| l.came == LineCame::Held) && end == End::Fail;
        if let (Some(m), true) = (t.work.misfit, unchecked) {
            let rule = self.detect.rules().get(t.rule as usize).and_then(|r| r.tree());
            let text = rule.map_or(String::new(), |r| misfit_text(m, r));
            let subject = Self::subject(&look);
            t.reason(
                ReasonKind::Header,
                text,
                LookReport { packet, subject, lines: current.lines, depth: m as u32, failing: None },
            );
            return;
        }
        t.looks += 1;
        let depth = 1000 + current.best.max(current.base * 10);
        let mut subject = Self::subject(&look);
        if end == End::HalfMatch {
            subject += "; the rule's checks hold in this direction, but not yet in the other one";
        }
        let failing = current.failing.filter(|_| end != End::Match);
        let report = LookReport { packet, subject, lines: current.lines, depth, failing };
        if end == End::Match {
            t.matched += 1;
            if t.matches.len() < KEPT {
                t.matches.push(report);
            }
            return;
        }
        let furthest = report.failing.and_then(|at| report.lines.get(at));
        let telling = |came: LineCame| {
            furthest.filter(|l| l.came == came).or_else(|| report.lines.iter().rev().find(|l| l.came == came))
        };
        let text = |l: &Line| match l.place.is_empty() {
            true => format!("{} does not hold", l.check),
            false => format!("{} does not hold in {}", l.check, l.place.split(',').next().unwrap_or_default()),
        };
        let (kind, text) = match (end, telling(LineCame::Failed), telling(LineCame::NotYet)) {
            (End::HalfMatch, ..) => {
                (ReasonKind::Waiting, "the checks hold in one direction, but not yet in the other one".into())
            }
            (End::Wait, _, Some(l)) => (ReasonKind::Waiting, format!("{} is still to come", l.check)),
            (End::Wait, Some(l), _) => (ReasonKind::Waiting, format!("{} may still hold", l.check)),
            (End::Wait, ..) => (ReasonKind::Waiting, "the transaction is not complete".into()),
            (_, Some(l), _) => (ReasonKind::Check, text(l)),
            (_, _, Some(l)) => (ReasonKind::Check, format!("{} never came", l.check)),
            _ => (ReasonKind::Check, "it does not match".into()),
        };
        t.reason(kind, text, report);
    }

    fn tell(&self, rule: &CompiledRule, input: &CheckInput<'_>, failed: Option<usize>) -> Vec<Line> {
        let Some(t) = self.active.and_then(|a| self.traces.get(a)) else { return Vec::new() };
        let Some(ast) = self.detect.rules().get(t.rule as usize).and_then(|r| r.tree()) else { return Vec::new() };
        let upto = failed.map_or(rule.checks.len(), |f| f + 1);
        let mut lines = Vec::with_capacity(upto);
        for (n, c) in rule.checks.iter().take(upto).enumerate() {
            let (asked, found) = c.told(input, ast, self.detect.names());
            let came = if Some(n) == failed { LineCame::Failed } else { LineCame::Held };
            lines.push(Line::new(asked, came, "", found));
        }
        lines
    }

    fn told(&mut self, lines: Vec<Line>) {
        if let Some(c) = self.current() {
            c.commit(lines, 0);
        }
    }

    fn at(&mut self, place: At) {
        let Some(c) = self.current() else { return };
        let name = match place {
            At::Header(_) | At::Slot => String::new(),
            At::Payload => "the packet's payload".into(),
            At::Stream(offset) => format!("the stream, from byte {offset} on"),
            At::FileName(n) | At::FileMagic(n) => format!("file {n}"),
            At::Frame(offset) => format!("the frame, at byte {offset} of the stream"),
        };
        c.collects = matches!(place, At::Slot | At::FileName(_) | At::FileMagic(_));
        c.place.0 = name;
    }

    fn missing(&mut self, place: At, why: &'static str) {
        let Some(c) = self.current() else { return };
        let name = match place {
            At::Header(b) => b.name(),
            At::Stream(_) => "the stream",
            At::Frame(_) => "the frame",
            _ => "the packet's payload",
        };
        c.commit(vec![Line::new("checks of bytes", LineCame::Failed, name, why)], 0);
    }

    fn found_before(&mut self, before: bool) {
        self.muted = !self.muted;
        if before && let Some(c) = self.current() {
            let why = "an earlier packet already matched: the new data alone does not match";
            c.commit(vec![Line::new("found first with this packet", LineCame::Failed, "the stream", why)], 0);
        }
    }

    fn step(&mut self, rule: u32, plan: &Plan, step: &Step, came: StepCame, view: &View<'_>) {
        let Some(active) = self.active.filter(|_| !self.muted) else { return };
        let Some(t) = self.traces.get_mut(active).filter(|t| t.rule == rule) else { return };
        let (detect, own) = (&self.detect, &t.own);
        let Some((_, c)) = &mut t.work.look else { return };
        let bytes = matches!(step.what, What::Buffer { .. } | What::Payload | What::File(_) | What::Absent { .. });
        if bytes && came != StepCame::HeldBefore && came != StepCame::NotReached {
            let settled = c.settle();
            let whole = matches!(step.what, What::Buffer { .. } | What::Payload);
            if whole && (settled || matches!(step.what, What::Payload)) {
                return;
            }
        }
        let (check, place, mut detail) = step_text(detect, own, t.rule, plan, step, view);
        let line_came = match came {
            StepCame::HeldBefore => LineCame::HeldBefore,
            StepCame::Held => LineCame::Held,
            StepCame::NotReached | StepCame::NotYet => LineCame::NotYet,
            StepCame::Failed => LineCame::Failed,
        };
        match came {
            StepCame::NotReached => {
                detail = format!(
                    "it is evaluated from state {} on; the transaction is in {}",
                    state_name(plan.proto, plan.dir, step.progress),
                    state_name(plan.proto, plan.dir, view.progress)
                );
            }
            StepCame::HeldBefore => detail = "with an earlier packet".into(),
            _ => {}
        }
        c.commit(vec![Line::new(check, line_came, place, detail)], 0);
    }

    fn fate(&mut self, rule: u32, fate: MatchOutcome) {
        let by = |n: u32| self.detect.rules().get(n as usize).map_or(0, |r| r.sid);
        let (text, alert) = match fate {
            MatchOutcome::Alert => ("an alert was written".to_owned(), true),
            MatchOutcome::Silent => {
                ("no alert: the rule writes none (noalert, pass, config, or flowbits:noalert)".into(), false)
            }
            MatchOutcome::Threshold(true) => ("no alert: its threshold has not been reached".into(), false),
            MatchOutcome::Threshold(false) => (
                "no alert: suppressed by threshold, limit or suppress (of the rule or of threshold.config)".into(),
                false,
            ),
            MatchOutcome::Overflow => {
                ("no alert: the packet has too many alerts already (packet-alert-max)".into(), false)
            }
            MatchOutcome::Passed(n) => (format!("no alert: the pass rule {} comes before it", by(n)), false),
        };
        let packet = self.packet;
        let Some(t) = self.traces.iter_mut().find(|t| t.rule == rule) else { return };
        let at = match t.fates.iter().position(|f| f.text == text) {
            Some(at) => at,
            None if t.fates.len() < REASONS_MAX => {
                t.fates.push(FateCount { text, alert, count: 0, first: Vec::new() });
                t.fates.len() - 1
            }
            None => return,
        };
        if let Some(f) = t.fates.get_mut(at) {
            f.count += 1;
            if f.first.len() < KEPT {
                f.first.extend(packet);
            }
        }
    }
}
