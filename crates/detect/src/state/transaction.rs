//! Inspects a transaction: collects candidate rules and evaluates them.

use margay_app::file::File;
use margay_app::{AppProto, BufferKind, Found, Transaction, TxDetect};
use margay_flow::Direction;
use margay_rules::ast::{Action, ActionScope};

use super::file::FileOutcome;
use super::step::Outcome;
use super::values::{TxScratch, each, slot_of, start_of, value, with_whole};
use super::{Match, State};
use crate::detect::Detect;
use crate::header::PacketKey;
use crate::input::{Input, Verdict};
use crate::inspect::InspectContext;
use crate::prefilter::Memo;
use crate::rule::CompiledRule;
use crate::tx::{
    Always, Gate, Plan, Slot, SlotSource, Step, Summary, TxGroup, TxRule, TxSearched, TxTrigger, View, What,
};
use crate::watch::{End, Look, Searched, StepCame, Watch};

/// Bit of [`TxDetect::searched`]: the rules that need a file became candidates. Lower bits are buffer numbers.
const FILES_BEGUN: u64 = 1 << 63;
/// Bit of a rule's state: it matched before, at the state of its hook.
pub(crate) const MATCHED: u64 = 1 << 63;
/// A rule's state: its pattern was found in streamed data, but its header, packet or flow checks did not hold. They are tried
/// again, because the data is not searched again.
const FOUND: u64 = 1 << 62;

/// A transaction that is due for inspection in one direction, and the rules for it.
#[derive(Clone, Copy)]
pub(crate) struct Due<'a> {
    pub(crate) detect: &'a Detect,
    pub(crate) group: &'a TxGroup,
    pub(crate) key: &'a PacketKey,
    pub(crate) proto: AppProto,
    /// The number of its parser among the flow's.
    pub(crate) parser: u8,
    pub(crate) id: u64,
    pub(crate) dir: Direction,
    /// Nothing more follows in this direction.
    pub(crate) complete: bool,
    /// The file that takes the place of the body, by its number, if ranges were joined to one.
    pub(crate) joined: Option<usize>,
}

/// The result of evaluating a rule's steps.
pub(crate) enum Eval {
    /// All steps hold. If the rule tests files: the index of the matching file among all files of the transaction.
    Match(Option<u32>),
    /// No step failed for good; these hold.
    Wait(u64),
    Fail,
}

impl<W: Watch> State<W> {
    /// Inspects the transactions of the packet's direction.
    pub(crate) fn inspect_txs(
        &mut self,
        detect: &Detect,
        input: &mut Input<'_>,
        key: &PacketKey,
        verdict: &mut Verdict,
    ) {
        let Some(dir) = input.dir else { return };
        let Some(parsers) = input.txs.take() else { return };
        for (number, parser) in (0u8..).zip(parsers.iter_mut()) {
            let proto = parser.proto();
            let group = detect.txs.get(proto, dir);
            let complete = detect.complete(proto)[dir.index()];
            let i = dir.index();
            parser.visit_awake(&mut |id, tx| {
                let base = tx.base_mut();
                if !base.updated[i] || base.detect[i].done {
                    return false;
                }
                base.updated[i] = false;
                let end = base.progress[i] >= complete;
                if let Some(group) = group
                    && !base.passed[i]
                {
                    let due = Due { detect, group, key, proto, parser: number, id, dir, complete: end, joined: None };
                    let joined = group.file_data.and_then(|_| joined_file(tx, dir));
                    if joined.is_some() {
                        self.inspect_joined(Due { complete: false, joined, ..due }, input, verdict, tx);
                    }
                    self.inspect_tx(due, input, verdict, tx);
                }
                tx.base_mut().detect[i].done = end;
                tx.inspected(dir);
                false
            });
        }
        input.txs = Some(parsers);
    }

    /// Inspects a file that is joined from ranges in the place of the response's body, which is inspected on its own
    /// afterwards. Only rules that match leave a trace in the transaction.
    fn inspect_joined(&mut self, due: Due<'_>, input: &mut Input<'_>, verdict: &mut Verdict, tx: &mut dyn Transaction) {
        let i = due.dir.index();
        let mut before = tx.base().detect[i].clone();
        let renewed = tx.base().renewed;
        let from = self.matches.len();
        self.inspect_tx(due, input, verdict, tx);
        for m in self.matches.get(from..).unwrap_or_default().iter().filter(|m| m.file.is_none()) {
            before.waiting.retain(|w| w.0 != m.rule);
            if let Err(at) = before.settled.binary_search(&m.rule) {
                before.settled.insert(at, m.rule);
            }
        }
        let now = &mut tx.base_mut().detect[i];
        before.files = std::mem::take(&mut now.files);
        *now = before;
        tx.base_mut().renewed = renewed;
    }

    // It stays whole: one merge of two sorted lists, for each transaction that changed.
    fn inspect_tx(&mut self, due: Due<'_>, input: &mut Input<'_>, verdict: &mut Verdict, tx: &mut dyn Transaction) {
        let Due { detect, group, key, proto, parser, id, dir, complete, joined } = due;
        self.tx.forget();
        let limits = tx.file_window(dir, input.ips);
        self.context.dce_little = tx.little_endian(dir);
        let base = tx.base_mut();
        let progress = base.progress[dir.index()];
        let mut search = TxSearched::of(&base.detect[dir.index()]);
        let renewed = std::mem::take(&mut base.renewed[dir.index()]);
        if renewed != 0 {
            group.search_again(renewed, &mut search);
        }
        let begun = search.begun;
        let mut candidates = std::mem::take(&mut self.tx.candidates);
        candidates.clear();
        let view =
            View { tx: &*tx, group, dir, progress, complete, begun, engine: input.files.as_deref(), limits, joined };
        self.context.watch.transaction(proto, &view);
        let look = Look::Transaction { proto, dir, id, progress, complete };
        self.tx_candidates(&detect.compiled, (proto, look), view, &mut search, &mut candidates);
        let seen = &mut tx.base_mut().detect[dir.index()];
        search.keep(seen);
        if candidates.is_empty() && seen.waiting.is_empty() {
            self.tx.candidates = candidates;
            return;
        }
        let mut seen = std::mem::take(seen);
        candidates.sort_unstable();
        candidates.dedup();
        let mut kept = std::mem::take(&mut self.tx.waiting);
        kept.clear();
        self.counters.candidates += candidates.len() as u64;
        // Both lists are sorted; rules run in order.
        let waiting = std::mem::take(&mut seen.waiting);
        let mut settle = Vec::new();
        // Rules that test a score run after those that add to it, whatever their order.
        let mut later = false;
        let mut asking = false;
        let (mut old, mut new) = (waiting.iter().copied().peekable(), candidates.iter().copied().peekable());
        loop {
            let (number, state, fresh) = match (old.peek().copied(), new.peek().copied()) {
                (Some((o, state)), n) if n.is_none_or(|n| o <= n) => {
                    old.next();
                    if n == Some(o) {
                        new.next();
                    }
                    if state == FOUND { (o, 0, true) } else { (o, state, false) }
                }
                (_, Some(n)) => {
                    new.next();
                    (n, 0, true)
                }
                _ if later && !asking => {
                    asking = true;
                    (old, new) = (waiting.iter().copied().peekable(), candidates.iter().copied().peekable());
                    continue;
                }
                _ => break,
            };
            if fresh && seen.settled.binary_search(&number).is_ok() {
                continue;
            }
            let Some(rule) = detect.compiled.get(number as usize) else { continue };
            let Some(txr) = rule.tx.as_deref() else { continue };
            if txr.late != asking {
                later |= txr.late;
                continue;
            }
            let Some(plan) = txr.plan(proto, dir) else { continue };
            if fresh && !W::CHECKS && !matches!(plan.trigger, TxTrigger::Progress(_)) {
                let engine = input.files.as_deref();
                let view = View { tx: &*tx, group, dir, progress, complete, begun, engine, limits, joined };
                if !self.gates_hold(&plan.gates, view) {
                    if plan.streamed && !complete {
                        settle.push(number);
                    }
                    continue;
                }
            }
            self.context.watch.begin(number, look);
            if fresh && !self.tx_applies(detect, rule, input, key) {
                self.context.watch.end(number, End::Fail);
                if plan.streamed && !complete {
                    kept.push((number, FOUND));
                }
                continue;
            }
            let mut files_from = file_mark(&seen, number);
            let mut state = state;
            loop {
                let engine = input.files.as_deref();
                let view = View { tx: &*tx, group, dir, progress, complete, begun, engine, limits, joined };
                self.context.watch.begin(number, look);
                let eval = self.evaluate(number, rule, txr, plan, state, files_from, view, input);
                self.keep_entropy(input.flow.as_deref_mut());
                if W::ON {
                    let half =
                        |e: &Eval| matches!(e, Eval::Match(_)) && txr.both && !other_half(txr, plan, view, number);
                    let end = match &eval {
                        e if half(e) => End::HalfMatch,
                        Eval::Match(_) => End::Match,
                        Eval::Wait(_) if !complete => End::Wait,
                        _ => End::Fail,
                    };
                    self.context.watch.end(number, end);
                }
                match eval {
                    Eval::Match(_) if txr.both && !other_half(txr, plan, view, number) => {
                        kept.push((number, plan.full));
                    }
                    Eval::Match(file) => {
                        self.keep_captures(input.flow.as_deref_mut());
                        let sid = detect.rules.get(number as usize).map_or(0, |r| r.sid);
                        self.tx_matched(rule, sid, input, verdict, tx, dir, file);
                        // A transaction over TCP comes from the stream.
                        let stream = input.packet.is_tcp();
                        let context = self.keep_contexts();
                        let found = Match { rule: number, tx_id: Some(id), stream, parser, file, frame: None, context };
                        // As in Suricata, a packet alerts once for several files of a transaction. Effects apply to each.
                        if file.is_none() || !self.matches.iter().any(|m| m.is_of(&found)) {
                            self.matches.push(found);
                        }
                        if let Some(f) = file {
                            // Try again from the next file: the other steps held, and more files may be there.
                            files_from = f.saturating_add(1);
                            state = plan.full & !file_bit(plan);
                            set_file_mark(&mut seen, number, files_from);
                            continue;
                        } else if plan.repeats == Some(progress) && !complete {
                            kept.push((number, MATCHED));
                        } else {
                            settle.push(number);
                        }
                    }
                    Eval::Wait(bits) if !complete => kept.push((number, bits)),
                    Eval::Wait(_) | Eval::Fail if plan.streamed && !complete => settle.push(number),
                    Eval::Wait(_) | Eval::Fail => {}
                }
                break;
            }
        }
        if asking {
            kept.sort_unstable();
        }
        seen.waiting = kept;
        if !settle.is_empty() {
            seen.settled.append(&mut settle);
            seen.settled.sort_unstable();
        }
        self.tx.waiting = waiting;
        self.tx.candidates = candidates;
        let base = tx.base_mut();
        base.detect[dir.index()] = seen;
    }

    /// Adds the rules that become candidates through new data of a transaction.
    fn tx_candidates(
        &mut self,
        rules: &[CompiledRule],
        (proto, look): (AppProto, Look),
        view: View<'_>,
        seen: &mut TxSearched,
        out: &mut Vec<u32>,
    ) {
        let View { tx, group, dir, progress, complete, .. } = view;
        let base = tx.base();
        // `begun` is one more than the progress up to which rules were added before.
        let from = group.always.partition_point(|a| a.progress < seen.begun);
        for always in group.always.get(from..).unwrap_or(&[]) {
            if always.progress > progress {
                break;
            }
            if W::CHECKS || self.may_hold(always, proto, view) {
                out.push(always.rule);
            }
        }
        if W::CHECKS {
            let due = group.expressions.iter().filter(|e| (seen.begun..=progress).contains(&e.0));
            out.extend(due.map(|e| e.1));
        }
        seen.begun = seen.begun.max(progress.saturating_add(1));
        let has_files = base.files.of(dir).next().is_some();
        if has_files && seen.searched & FILES_BEGUN == 0 {
            seen.searched |= FILES_BEGUN;
            out.extend_from_slice(&group.files);
        }
        if !group.events.is_empty() && !base.events.is_empty() {
            for &e in base.events.as_slice() {
                let from = group.events.partition_point(|x| x.0 < e);
                let here = group.events.get(from..).unwrap_or(&[]);
                out.extend(here.iter().take_while(|x| x.0 == e).map(|x| x.1));
            }
        }
        let mut searched = 0;
        for &n in &group.searched {
            let Some(slot) = group.slots.get(usize::from(n)) else { continue };
            if slot.progress > progress {
                break;
            }
            if let SlotSource::Buffer(id) = slot.source {
                let bit = 1u64.checked_shl(u32::from(id)).unwrap_or(0);
                if seen.searched & bit != 0 && !(slot.kind == BufferKind::Growing && complete) {
                    continue;
                }
                if slot.kind == BufferKind::Growing
                    || slot.kind != BufferKind::Stream && (complete || progress > slot.progress)
                {
                    searched |= bit;
                }
            } else if !has_files {
                continue;
            }
            if W::CHECKS {
                self.search_all(proto, (n, slot), view, out);
            } else {
                self.search_slot(rules, look, (n, slot), view, out);
            }
        }
        seen.searched |= searched;
    }

    /// Adds the rules that a slot's values make candidates. Most values were seen before: their result is known without a
    /// transform or a search.
    fn search_slot(
        &mut self,
        rules: &[CompiledRule],
        look: Look,
        (n, slot): (u16, &Slot),
        view: View<'_>,
        out: &mut Vec<u32>,
    ) {
        let of = std::ptr::from_ref(slot).addr();
        let State { tx: scratch, context, transforms, scratch: mpm, .. } = self;
        let TxScratch { slots, one, memo, missed, .. } = scratch;
        let Some(cached) = slots.get_mut(usize::from(n)) else { return };
        let source = match slot.source {
            // A script may return something else for the same value.
            SlotSource::Buffer(id) if !slot.transforms.is_empty() && !slot.transforms.runs_scripts() => Some(id),
            _ => None,
        };
        let Some(id) = source else {
            // The previous inspection searched this slot only if it used these rules and the transaction had come so far.
            let known = view.begun > slot.progress;
            let mut take = |found: Found<'_>, context: &mut InspectContext<W>| {
                let data = found.data;
                let seen = if known { found.seen } else { 0 };
                let start = start_of(slot, &found);
                match memo.get(of, data).filter(|_| start == 0) {
                    Some(rules) => out.extend_from_slice(rules),
                    None => {
                        let from = out.len();
                        slot.candidates((data, seen, start), rules, look, context, mpm, out);
                        if seen == 0 && start == 0 {
                            memo.keep(of, data, out.get(from..).unwrap_or_default());
                        }
                    }
                }
                false
            };
            if slot.is_one() {
                with_whole(cached, slot, view, context, transforms, |found, context| {
                    found.map(|found| take(found, context))
                });
                return;
            }
            return each((one, Some(cached)), slot, view, context, transforms, &mut take);
        };
        missed.clear();
        for index in 0.. {
            one.clear();
            let Some(raw) = view.buffer(id, index, one) else { break };
            match memo.get(of, raw.data) {
                Some(known) => out.extend_from_slice(known),
                None => missed.push((index, Memo::takes(raw.data))),
            }
            if slot.is_one() {
                break;
            }
        }
        for &(index, kept) in missed.iter() {
            let from = out.len();
            let Some(data) = value(cached, slot, view, context, transforms, one, index) else { continue };
            slot.candidates((data, 0, 0), rules, look, context, mpm, out);
            one.clear();
            if kept && let Some(raw) = view.buffer(id, index, one) {
                memo.keep(of, raw.data, out.get(from..).unwrap_or_default());
            }
        }
    }

    /// As [`Self::search_slot`] for a watcher of single checks, which sees each search. It evaluates the other rules anyway.
    fn search_all(&mut self, proto: AppProto, (n, slot): (u16, &Slot), view: View<'_>, out: &mut Vec<u32>) {
        let State { tx: scratch, context, transforms, scratch: mpm, .. } = self;
        let TxScratch { slots, one, .. } = scratch;
        let (Some(prefilter), Some(cached)) = (&slot.prefilter, slots.get_mut(usize::from(n))) else { return };
        let place = Searched::Slot(proto, view.dir, n, slot);
        let mut any = false;
        each((one, Some(cached)), slot, view, context, transforms, &mut |f, context| {
            any = true;
            context.watch.searched(place, Some(f.data));
            prefilter.scan(f.data, mpm, out);
            false
        });
        if !any {
            context.watch.searched(place, None);
        }
    }

    /// Whether no cheap condition rules out a rule without a pattern for good.
    fn may_hold(&mut self, always: &Always, proto: AppProto, view: View<'_>) -> bool {
        if always.sought && view.complete && !self.tx.has_payload(always.rule, proto) {
            return false;
        }
        self.gates_hold(&always.gates, view)
    }

    /// Whether no gate rules out the rule for good.
    fn gates_hold(&mut self, gates: &[Gate], view: View<'_>) -> bool {
        let State { tx: scratch, context, transforms, .. } = self;
        gates.iter().all(|gate| {
            if !view.complete && view.progress <= gate.progress {
                return true;
            }
            let Some((def, cached)) = slot_of(view, scratch, gate.slot) else { return true };
            let summary = match cached.summary {
                Some(s) => s,
                None => {
                    let s = with_whole(cached, def, view, context, transforms, |f, _| Summary::of(f.map(|f| f.data)));
                    cached.summary = Some(s);
                    s
                }
            };
            gate.holds(&summary)
        })
    }

    /// Whether a rule's header and its packet and flow checks hold.
    pub(crate) fn tx_applies(
        &mut self,
        detect: &Detect,
        rule: &CompiledRule,
        input: &Input<'_>,
        key: &PacketKey,
    ) -> bool {
        if rule.header.ways(key, &detect.sets, &mut self.cache) == 0 {
            return false;
        }
        if !self.state_holds(detect, rule, input) {
            return false;
        }
        self.context.clear_results();
        // For a `=>` rule, these are headers of the client's packets.
        let other = rule.tx.as_ref().is_some_and(|t| t.both) && input.dir == Some(Direction::ToClient);
        other || self.headers_hold(rule, input)
    }

    /// Applies the effects of a rule that matched a transaction.
    #[allow(clippy::too_many_arguments)]
    fn tx_matched(
        &mut self,
        rule: &CompiledRule,
        sid: u32,
        input: &mut Input<'_>,
        verdict: &mut Verdict,
        tx: &mut dyn Transaction,
        dir: Direction,
        file: Option<u32>,
    ) {
        let base = tx.base_mut();
        base.alerted |= rule.writes;
        if rule.scope == Some(ActionScope::Transaction) && matches!(rule.action, Action::Pass | Action::Accept) {
            base.passed = [true; 2];
        }
        self.apply(rule, input, verdict, Some((base, dir, file, sid)));
    }

    /// Evaluates those steps of a rule that have not held yet.
    // It stays whole: one loop over the steps, for each packet with a candidate.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn evaluate(
        &mut self,
        number: u32,
        rule: &CompiledRule,
        txr: &TxRule,
        plan: &Plan,
        state: u64,
        files_from: u32,
        view: View<'_>,
        input: &Input<'_>,
    ) -> Eval {
        if state & MATCHED != 0 {
            return if plan.repeats == Some(view.progress) { Eval::Match(None) } else { Eval::Fail };
        }
        // Most waiting rules wait for more of the stream. Their other steps run when the pattern comes, if their results
        // cannot change until then.
        if !W::CHECKS && txr.payload_sought && plan.looks && !self.tx.has_payload(number, plan.proto) {
            let stays = |s: &Step| match s.what {
                What::Buffer { kind: BufferKind::Single, .. } | What::Length { .. } => view.progress > s.progress,
                What::Payload => true,
                _ => false,
            };
            if view.complete {
                return Eval::Fail;
            }
            if state == 0 && plan.steps.iter().all(stays) {
                return Eval::Wait(0);
            }
        }
        self.context.clear_results();
        // These checks held when the rule became a candidate; they run again only to get the contexts that alerts show.
        for (buffer, i) in rule.headers.iter().filter(|(_, i)| i.checks.has_context()) {
            if let Some(data) = crate::buffer::bytes(*buffer, input.packet) {
                self.matches(i, data);
            }
        }
        let (mut held, mut shown) = (state, 0);
        let mut file = None;
        for (n, step) in plan.steps.iter().enumerate() {
            let bit = 1u64 << n;
            if held & bit != 0 {
                self.context.watch.step(number, plan, step, StepCame::HeldBefore, &view);
                continue;
            }
            if step.progress > view.progress {
                self.context.watch.step(number, plan, step, StepCame::NotReached, &view);
                // Later steps are not reached either, except those on files.
                continue;
            }
            let outcome = match &step.what {
                What::Payload => {
                    let there = W::CHECKS || !txr.payload_sought || self.tx.has_payload(number, plan.proto);
                    if there && self.payload_holds(rule, input).is_some() { Outcome::Holds } else { Outcome::Later }
                }
                What::File(tests) => {
                    let mut found = Outcome::Later;
                    let files = view.tx.base().files.all().iter().zip(0u32..).skip(files_from as usize);
                    for (f, place) in files.filter(|(f, _)| f.to_client == (view.dir == Direction::ToClient)) {
                        let mut all = FileOutcome::Yes;
                        for t in tests.iter() {
                            match t.of(txr, f, (place, view.engine), &mut self.context) {
                                FileOutcome::Yes => {}
                                other => {
                                    all = other;
                                    if other == FileOutcome::No {
                                        break;
                                    }
                                }
                            }
                        }
                        if all == FileOutcome::Yes {
                            file = Some(place);
                            found = Outcome::Holds;
                            break;
                        }
                    }
                    // The matching file must be known when the rest holds, so this step runs again then.
                    if found == Outcome::Holds {
                        self.context.watch.step(number, plan, step, StepCame::Held, &view);
                        continue;
                    }
                    found
                }
                What::Lua { number, buffer, changes } => {
                    match self.script_step(rule, txr, plan.proto, *number, *buffer, view, input) {
                        true => Outcome::Holds,
                        false if view.complete => Outcome::Never,
                        // More data, or another file, may come.
                        false if *changes || buffer.is_some_and(|b| may_grow(view, b)) => Outcome::Later,
                        false if view.progress > step.progress => Outcome::Never,
                        false => Outcome::Later,
                    }
                }
                _ => self.step(txr, step, view),
            };
            if W::CHECKS {
                let came = match outcome {
                    Outcome::Holds => StepCame::Held,
                    Outcome::Later => StepCame::NotYet,
                    Outcome::Never => StepCame::Failed,
                };
                self.context.watch.step(number, plan, step, came, &view);
            }
            match outcome {
                // The context for alerts must be known when the rest holds, so this step runs again then.
                Outcome::Holds if step.shows => shown |= bit,
                Outcome::Holds => held |= bit,
                Outcome::Later => {}
                Outcome::Never => return Eval::Fail,
            }
        }
        let files = if file.is_some() { file_bit(plan) } else { 0 };
        if (held | shown | files) & plan.full == plan.full { Eval::Match(file) } else { Eval::Wait(held) }
    }
}

/// The index of a file that is joined from ranges and not yet inspected. The data of other files is in a buffer.
fn joined_file(tx: &dyn Transaction, dir: Direction) -> Option<usize> {
    // The files have ended, so the least amount does not matter.
    let limits = tx.file_window(dir, false);
    let to_client = dir == Direction::ToClient;
    let due = |f: &File| f.data(limits).is_some_and(|d| !d.data.is_empty());
    tx.base().files.all().iter().position(|f| f.to_client == to_client && f.ended() && due(f))
}

/// The bit of the step that tests files.
fn file_bit(plan: &Plan) -> u64 {
    plan.steps.iter().position(|s| matches!(s.what, What::File(_))).map_or(0, |n| 1 << n)
}

/// For a `=>` rule: whether its plan for the other direction held.
fn other_half(txr: &TxRule, plan: &Plan, view: View<'_>, rule: u32) -> bool {
    let Some(other) = txr.plan(plan.proto, plan.dir.reverse()) else { return true };
    if other.full == 0 {
        return true;
    }
    let seen = &view.tx.base().detect[other.dir.index()];
    seen.waiting
        .binary_search_by_key(&rule, |w| w.0)
        .is_ok_and(|at| seen.waiting.get(at).is_some_and(|w| w.1 & other.full == other.full))
}

fn file_mark(seen: &TxDetect, rule: u32) -> u32 {
    seen.files.binary_search_by_key(&rule, |f| f.0).ok().and_then(|at| seen.files.get(at)).map_or(0, |f| f.1)
}

fn set_file_mark(seen: &mut TxDetect, rule: u32, done: u32) {
    match seen.files.binary_search_by_key(&rule, |f| f.0) {
        Ok(at) => {
            if let Some(f) = seen.files.to_change().and_then(|files| files.get_mut(at)) {
                f.1 = done;
            }
        }
        Err(at) => seen.files.to_add().insert(at, (rule, done)),
    }
}

/// Whether a buffer of a transaction may get more data, or more values from files, until the transaction is complete.
fn may_grow(view: View<'_>, (slot, _, kind): (u16, Option<u16>, BufferKind)) -> bool {
    let of_files = |def: &Slot| !matches!(def.source, SlotSource::Buffer(_));
    kind.grows() || view.group.slots.get(usize::from(slot)).is_some_and(of_files)
}
