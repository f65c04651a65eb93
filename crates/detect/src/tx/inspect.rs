//! Looking at a transaction: which rules may hold, and which do.

use margay_app::file::FileEngine;
use margay_app::window::WindowLimits;
use margay_app::{ABSENT, AppProto, BufferKind, Found, Transaction, TxDetect};
use margay_flow::Direction;
use margay_rules::ast::{Action, ActionScope, NumberTest, Which};

use super::file::FileOutcome;
use super::{Always, Gate, Plan, Slot, SlotSource, Step, Summary, TxGroup, TxRule, TxTrigger, What};
use crate::detect::Detect;
use crate::group::OF_TRANSACTION;
use crate::header::PacketKey;
use crate::input::{Input, Verdict};
use crate::inspect::InspectContext;
use crate::lua::ScriptCall;
use crate::prefilter::Memo;
use crate::rule::CompiledRule;
use crate::state::{Match, State};
use crate::transform::TransformScratch;
use crate::watch::{At, End, Look, Searched, StepCame, Watch};

/// Bit of [`TxDetect::searched`]: rules that need a file were made candidates. Numbers of buffers are below.
const FILES_BEGUN: u64 = 1 << 63;
/// Bit of a rule's state: it matched before, at the state that it is hooked to.
pub(crate) const MATCHED: u64 = 1 << 63;

/// What a slot holds for the transaction at hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Held {
    /// It was not asked for.
    #[default]
    Unknown,
    /// It is not there.
    Absent,
    /// It is in the cache, at this offset, and this is the end of it.
    Cached(u64, bool),
    /// The transaction has it as it is.
    Direct,
}

#[derive(Debug, Default)]
struct Cached {
    held: Held,
    /// What is quick to see of it, once it was asked.
    summary: Option<Summary>,
    raw: Vec<u8>,
    out: Vec<u8>,
    /// Of several that were transformed: where each ends in `out`, once they were.
    ends: Vec<usize>,
}

/// Memory for looking at transactions; one a worker.
#[derive(Debug, Default)]
pub(crate) struct TxScratch {
    slots: Vec<Cached>,
    one: Vec<u8>,
    candidates: Vec<u32>,
    waiting: Vec<(u32, u64)>,
    /// What was found in values of transactions before.
    memo: Memo,
    /// Rules whose pattern is in the payload or the stream of the packet at hand, sorted: of those for which it was looked for
    /// because the flow has the protocol `payload_of`.
    in_payload: Vec<u32>,
    payload_of: Option<AppProto>,
}

impl TxScratch {
    /// Makes room for groups of `slots`.
    pub(crate) fn prepare(&mut self, slots: usize) {
        self.slots.resize_with(slots, Cached::default);
    }

    /// Nothing was looked for in the packet yet.
    pub(crate) const fn start(&mut self) {
        self.payload_of = None;
    }

    /// Takes what was found in a packet of a flow with this protocol off the end of `candidates`, which are sorted.
    pub(crate) fn take_payload(&mut self, proto: AppProto, candidates: &mut Vec<u32>) {
        self.payload_of = Some(proto);
        self.in_payload.clear();
        if candidates.last().is_some_and(|&c| c >= OF_TRANSACTION) {
            let at = candidates.partition_point(|&c| c < OF_TRANSACTION);
            self.in_payload.extend(candidates.drain(at..).map(|c| c & !OF_TRANSACTION));
        }
    }

    /// Whether a rule's pattern may be in the payload or the stream: it is, or it was not looked for with the rules of `proto`.
    fn has_payload(&self, rule: u32, proto: AppProto) -> bool {
        self.payload_of != Some(proto) || self.in_payload.binary_search(&rule).is_ok()
    }

    /// Forgets what was put together for another look at a transaction.
    pub(crate) fn forget(&mut self, group: &TxGroup) {
        for c in self.slots.iter_mut().take(group.slots.len()) {
            c.held = Held::Unknown;
            c.summary = None;
            c.ends.clear();
        }
    }
}

/// One transaction in one direction.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) tx: &'a dyn Transaction,
    pub(crate) group: &'a TxGroup,
    pub(crate) dir: Direction,
    pub(crate) progress: u8,
    pub(crate) complete: bool,
    /// One more than the progress at which it was looked at before.
    pub(crate) begun: u8,
    /// What files are looked at with.
    pub(crate) engine: Option<&'a FileEngine>,
    pub(crate) limits: WindowLimits,
}

/// What came of looking at a rule's steps.
pub(crate) enum Eval {
    /// All hold; with the file that did, by its place among all of the transaction.
    Match(Option<u32>),
    /// Nothing speaks against it; these hold.
    Wait(u64),
    Fail,
}

/// What came of looking at one step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Holds,
    Later,
    Never,
}

impl<W: Watch> State<W> {
    /// Looks at the transactions of the packet's direction.
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
            let mut from = 0;
            while let Some(id) = parser.next_awake(from) {
                from = id + 1;
                let Some(tx) = parser.tx_mut(id) else { continue };
                let base = tx.base_mut();
                let i = dir.index();
                if !base.updated[i] || base.detect[i].done {
                    continue;
                }
                base.updated[i] = false;
                let end = base.progress[i] >= complete;
                if let Some(group) = group
                    && !base.passed[i]
                {
                    self.inspect_tx(detect, group, input, key, verdict, tx, (proto, number, id, dir, end));
                }
                let base = tx.base_mut();
                base.detect[i].done = end;
                tx.inspected(dir);
            }
        }
        input.txs = Some(parsers);
    }

    #[allow(clippy::too_many_arguments)]
    fn inspect_tx(
        &mut self,
        detect: &Detect,
        group: &TxGroup,
        input: &mut Input<'_>,
        key: &PacketKey,
        verdict: &mut Verdict,
        tx: &mut dyn Transaction,
        (proto, parser, id, dir, complete): (AppProto, u8, u64, Direction, bool),
    ) {
        self.tx.forget(group);
        let limits = tx.file_window(dir);
        self.context.dce_little = tx.little_endian(dir);
        let base = tx.base_mut();
        let progress = base.progress[dir.index()];
        let mut seen = std::mem::take(&mut base.detect[dir.index()]);
        let begun = seen.begun;
        let mut candidates = std::mem::take(&mut self.tx.candidates);
        candidates.clear();
        let view = View { tx: &*tx, group, dir, progress, complete, begun, engine: input.files.as_deref(), limits };
        self.context.watch.transaction(proto, &view);
        self.tx_candidates(proto, view, &mut seen, &mut candidates);
        candidates.sort_unstable();
        candidates.dedup();
        let mut kept = std::mem::take(&mut self.tx.waiting);
        kept.clear();
        self.counters.candidates += candidates.len() as u64;
        // Both lists are sorted; rules are looked at in their order.
        let waiting = std::mem::take(&mut seen.waiting);
        let mut settle = Vec::new();
        // Rules that ask for a score come behind those that add to it, whatever their order.
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
                    (o, state, false)
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
                let view =
                    View { tx: &*tx, group, dir, progress, complete, begun, engine: input.files.as_deref(), limits };
                if !self.gates_hold(&plan.gates, view) {
                    if plan.streamed && !complete {
                        settle.push(number);
                    }
                    continue;
                }
            }
            let look = Look::Transaction { proto, dir, id, progress, complete };
            self.context.watch.begin(number, look);
            if fresh && !self.tx_applies(detect, rule, input, key) {
                self.context.watch.end(number, End::Fail);
                continue;
            }
            let mut files_from = file_mark(&seen, number);
            let mut state = state;
            loop {
                let view =
                    View { tx: &*tx, group, dir, progress, complete, begun, engine: input.files.as_deref(), limits };
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
                        // What a transaction over TCP was parsed from is the stream.
                        let stream = input.packet.is_tcp();
                        let context = self.keep_contexts();
                        let found = Match { rule: number, tx_id: Some(id), stream, parser, file, frame: None, context };
                        self.matches.push(found);
                        if let Some(f) = file {
                            // Once a file: the rest has held, and the next file may be there already.
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

    /// The rules that what is new in a transaction makes candidates.
    fn tx_candidates(&mut self, proto: AppProto, view: View<'_>, seen: &mut TxDetect, out: &mut Vec<u32>) {
        let View { tx, group, dir, progress, complete, .. } = view;
        let base = tx.base();
        // One more than the progress up to which it was done before.
        let from = group.always.partition_point(|a| a.progress < seen.begun);
        for always in group.always.get(from..).unwrap_or(&[]) {
            if always.progress > progress {
                break;
            }
            if W::CHECKS || self.may_hold(always, proto, view) {
                out.push(always.rule);
            }
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
            let Some(prefilter) = &slot.prefilter else { continue };
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
            let State { tx: scratch, context, transforms, scratch: mpm, .. } = self;
            let TxScratch { slots, one, memo, .. } = scratch;
            let place = Searched::Slot(proto, dir, n, slot);
            if slot.is_one() {
                let Some(cached) = slots.get_mut(usize::from(n)) else { continue };
                match whole(cached, slot, view, context, transforms) {
                    Some(f) => {
                        context.watch.searched(place, Some(f.data));
                        memo.scan(prefilter, f.data, mpm, out);
                    }
                    None => context.watch.searched(place, None),
                }
            } else {
                let mut any = false;
                let kept = slots.get_mut(usize::from(n));
                each((one, kept), slot, view, context, transforms, &mut |data, _, context| {
                    any = true;
                    context.watch.searched(place, Some(data));
                    memo.scan(prefilter, data, mpm, out);
                    false
                });
                if W::CHECKS && !any {
                    context.watch.searched(place, None);
                }
            }
        }
        seen.searched |= searched;
    }

    /// Whether nothing that is quick to see speaks for good against a rule without a pattern.
    fn may_hold(&mut self, always: &Always, proto: AppProto, view: View<'_>) -> bool {
        if always.sought && view.complete && !self.tx.has_payload(always.rule, proto) {
            return false;
        }
        self.gates_hold(&always.gates, view)
    }

    /// Whether nothing that is quick to see of buffers speaks for good against a rule.
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
                    let s = Summary::of(whole(cached, def, view, context, transforms).map(|f| f.data));
                    cached.summary = Some(s);
                    s
                }
            };
            gate.holds(&summary)
        })
    }

    /// Whether a rule's header, and its checks of packet and flow, hold.
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
        // Of a `=>` rule these are the headers of what the client sent.
        let other = rule.tx.as_ref().is_some_and(|t| t.both) && input.dir == Some(Direction::ToClient);
        other || self.headers_hold(rule, input)
    }

    /// Does what a rule does once it matched a transaction.
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

    /// Looks at those of a rule's steps that have not held yet.
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
        // Most rules that wait wait for more of the stream. What they ask besides is asked when it comes, if it is as it is for good.
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
        // Those held when the rule became a candidate: just what alerts show of them is asked for.
        for (buffer, i) in rule.headers.iter().filter(|(_, i)| i.checks.has_context()) {
            if let Some(data) = buffer.get(input.packet) {
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
                // What is behind it is not there either, but for files.
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
                    // Which file it was must be known when the rest holds: it is looked for again then.
                    if found == Outcome::Holds {
                        self.context.watch.step(number, plan, step, StepCame::Held, &view);
                        continue;
                    }
                    found
                }
                What::Lua { number, buffer, changes } => {
                    match self.script_step(rule, txr, plan.proto, *number, *buffer, view, input) {
                        true => Outcome::Holds,
                        false if *changes && !view.complete => Outcome::Later,
                        false if view.complete || view.progress > step.progress => Outcome::Never,
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
                // What alerts show of it must be known when the rest holds: it is looked for again then.
                Outcome::Holds if step.shows => shown |= bit,
                Outcome::Holds => held |= bit,
                Outcome::Later => {}
                Outcome::Never => return Eval::Fail,
            }
        }
        let files = if file.is_some() { file_bit(plan) } else { 0 };
        if (held | shown | files) & plan.full == plan.full { Eval::Match(file) } else { Eval::Wait(held) }
    }

    fn step(&mut self, txr: &TxRule, step: &Step, view: View<'_>) -> Outcome {
        // What does not hold now may, as long as the transaction is in the state that fills the buffer.
        let grows = matches!(step.what, What::Buffer { kind: BufferKind::Growing, .. });
        let final_look = view.complete || !grows && view.progress > step.progress;
        let not_yet = if final_look { Outcome::Never } else { Outcome::Later };
        let to = |holds| if holds { Outcome::Holds } else { not_yet };
        let State { tx: scratch, context, transforms, .. } = self;
        match &step.what {
            What::Event(e) => match view.tx.base().events.has(*e) {
                true => Outcome::Holds,
                false => Outcome::Later,
            },
            What::Bit { name, set } => match view.tx.base().bits.contains(name) == *set {
                true => Outcome::Holds,
                false => Outcome::Later,
            },
            What::Score { name, least } => match view.tx.base().score(*name) >= *least {
                true => Outcome::Holds,
                false => Outcome::Later,
            },
            What::Reached => Outcome::Holds,
            What::State { state, order } => match view.progress.cmp(state) {
                o if o == *order => Outcome::Holds,
                std::cmp::Ordering::Less => Outcome::Later,
                _ => Outcome::Never,
            },
            What::Number { id, test, which, changes } => match number_holds(view, *id, test, *which) {
                false if *changes && !view.complete => Outcome::Later,
                holds => to(holds),
            },
            What::Interface { id, test } => {
                let mut put_together = Vec::new();
                let mut all = (0..).map_while(|i| {
                    put_together.clear();
                    view.tx.buffer(*id, view.dir, i, &mut put_together).map(|f| test.holds(f.data))
                });
                to(all.any(|h| h))
            }
            What::Length { slot, value } => {
                let Some((def, cached)) = slot_of(view, scratch, *slot) else { return Outcome::Never };
                let found = whole(cached, def, view, context, transforms);
                to(found.is_some_and(|f| value.holds(f.data.len() as u64)))
            }
            What::Buffer { slot, check, kind: BufferKind::Single } => {
                let Some((def, cached)) = slot_of(view, scratch, *slot) else { return Outcome::Never };
                let Some(check) = txr.checks.get(usize::from(*check)) else { return Outcome::Never };
                context.watch.at(At::Slot);
                match whole(cached, def, view, context, transforms) {
                    Some(f) => to(check.inspect(f.data, context)),
                    None => not_yet,
                }
            }
            What::Buffer { slot, check, kind } => {
                let Some(def) = view.group.slots.get(usize::from(*slot)) else { return Outcome::Never };
                let Some(check) = txr.checks.get(usize::from(*check)) else { return Outcome::Never };
                context.watch.at(At::Slot);
                if *kind == BufferKind::Stream && def.is_one() {
                    let Some((def, cached)) = slot_of(view, scratch, *slot) else { return Outcome::Never };
                    return match whole(cached, def, view, context, transforms) {
                        Some(f) if check.inspect(f.data, context) => Outcome::Holds,
                        Some(f) if f.end => Outcome::Never,
                        _ if view.complete => Outcome::Never,
                        _ => Outcome::Later,
                    };
                }
                // Nothing came since they were looked at.
                if grows && !view.complete && view.begun > step.progress {
                    return Outcome::Later;
                }
                let mut found = false;
                let TxScratch { one, slots, .. } = scratch;
                let kept = slots.get_mut(usize::from(*slot));
                each((one, kept), def, view, context, transforms, &mut |data, _, context| {
                    found = check.inspect(data, context);
                    found
                });
                match found {
                    true => Outcome::Holds,
                    // More files, or more of them, may come.
                    false if !view.complete && !matches!(def.source, SlotSource::Buffer(_)) => Outcome::Later,
                    false => not_yet,
                }
            }
            What::Absent { slot, or_else, kind } => {
                let Some(def) = view.group.slots.get(usize::from(*slot)) else { return Outcome::Never };
                let check = or_else.and_then(|c| txr.checks.get(usize::from(c)));
                context.watch.at(At::Slot);
                let mut there = false;
                let mut holds = false;
                if def.is_one() {
                    let Some((def, cached)) = slot_of(view, scratch, *slot) else { return Outcome::Never };
                    if let Some(f) = whole(cached, def, view, context, transforms)
                        && !(*kind == BufferKind::Stream && f.data.is_empty() && f.offset == 0)
                    {
                        there = true;
                        holds = check.is_some_and(|c| c.inspect(f.data, context));
                    }
                } else {
                    let TxScratch { one, slots, .. } = scratch;
                    let kept = slots.get_mut(usize::from(*slot));
                    each((one, kept), def, view, context, transforms, &mut |data, _, context| {
                        there = true;
                        holds = check.is_some_and(|c| c.inspect(data, context));
                        holds
                    });
                }
                let streams = kind.grows() || !matches!(def.source, SlotSource::Buffer(_));
                match (there, holds) {
                    (true, true) => Outcome::Holds,
                    // Of data that streams by another part may hold, but then it must be asked for.
                    (true, false) if streams && check.is_some() && !view.complete => Outcome::Later,
                    (true, false) => Outcome::Never,
                    (false, _) if view.complete || (!streams && final_look) => Outcome::Holds,
                    (false, _) => Outcome::Later,
                }
            }
            What::Payload | What::File(_) | What::Lua { .. } => Outcome::Later,
        }
    }
}

impl<W: Watch> State<W> {
    /// Calls a script for a transaction; with a buffer, for each value of it for which the checks before hold.
    #[allow(clippy::too_many_arguments)]
    fn script_step(
        &mut self,
        rule: &CompiledRule,
        txr: &TxRule,
        proto: AppProto,
        number: u16,
        buffer: Option<(u16, Option<u16>, BufferKind)>,
        view: View<'_>,
        input: &Input<'_>,
    ) -> bool {
        let State { tx: scratch, context, transforms, scripts, .. } = self;
        let mut call = ScriptCall { rule, number, tx: Some((view.tx, proto)), input };
        let Some((slot, check, _)) = buffer else { return scripts.call(&mut call, None, &context.variables) };
        let Some(def) = view.group.slots.get(usize::from(slot)) else { return false };
        let check = check.and_then(|c| txr.checks.get(usize::from(c)));
        if def.is_one() {
            let Some((def, cached)) = slot_of(view, scratch, slot) else { return false };
            return match whole(cached, def, view, context, transforms) {
                Some(f) => {
                    check.is_none_or(|c| c.inspect(f.data, context))
                        && scripts.call(&mut call, Some(f.data), &context.variables)
                }
                None => false,
            };
        }
        let mut found = false;
        let TxScratch { one, slots, .. } = scratch;
        let kept = slots.get_mut(usize::from(slot));
        each((one, kept), def, view, context, transforms, &mut |data, _, context| {
            found = check.is_none_or(|c| c.inspect(data, context))
                && scripts.call(&mut call, Some(data), &context.variables);
            found
        });
        found
    }
}

/// Whether what a rule asks of a number, or of several, holds.
fn number_holds(view: View<'_>, id: u8, test: &NumberTest, which: Which) -> bool {
    let mut all = (0..).map_while(|i| view.tx.number(id, view.dir, i)).map(|v| v != ABSENT && test.holds(v));
    match which {
        Which::Any => all.any(|h| h),
        Which::All => all.all(|h| h),
        Which::AllAndSome => all.next().is_some_and(|h| h) && all.all(|h| h),
        Which::At(n) => match usize::try_from(n) {
            Ok(n) => all.nth(n).unwrap_or(false),
            Err(_) => {
                let all: Vec<bool> = all.collect();
                let back = n.unsigned_abs() as usize;
                all.len().checked_sub(back).and_then(|i| all.get(i)).is_some_and(|h| *h)
            }
        },
        Which::Count(c) => c.holds(all.filter(|h| *h).count() as u64),
    }
}

fn slot_of<'v, 's>(view: View<'v>, scratch: &'s mut TxScratch, slot: u16) -> Option<(&'v Slot, &'s mut Cached)> {
    Some((view.group.slots.get(usize::from(slot))?, scratch.slots.get_mut(usize::from(slot))?))
}

/// The bytes of a slot that there is one of: put together once for a look at a transaction.
fn whole<'x, 'v: 'x, W>(
    cached: &'x mut Cached,
    slot: &Slot,
    view: View<'v>,
    context: &mut InspectContext<W>,
    transforms: &mut TransformScratch,
) -> Option<Found<'x>> {
    let SlotSource::Buffer(id) = slot.source else { return None };
    let Cached { held, raw, out, .. } = cached;
    if *held == Held::Unknown {
        raw.clear();
        out.clear();
        let state = match view.tx.buffer(id, view.dir, 0, raw) {
            None => Held::Absent,
            Some(f) if !slot.transforms.is_empty() => {
                out.extend_from_slice(slot.transforms.apply(f.data, transforms, context.pcre_scratch()));
                Held::Cached(f.offset, f.end)
            }
            Some(f) => {
                // Where it was put together it need not be again.
                let place = (f.data.as_ptr() as usize, f.data.len());
                let (offset, end) = (f.offset, f.end);
                if place == (raw.as_ptr() as usize, raw.len()) && !raw.is_empty() {
                    std::mem::swap(raw, out);
                    Held::Cached(offset, end)
                } else {
                    Held::Direct
                }
            }
        };
        *held = state;
    }
    match *held {
        Held::Absent | Held::Unknown => None,
        Held::Cached(offset, end) => Some(Found { data: out, offset, end }),
        Held::Direct => {
            raw.clear();
            view.tx.buffer(id, view.dir, 0, raw)
        }
    }
}

/// What takes a value of a slot, and whether it is the end of it; true where no other is wanted.
type Take<'t, W> = dyn FnMut(&[u8], bool, &mut InspectContext<W>) -> bool + 't;

/// Calls `f` with each of several values of a slot, and whether it is the end of it, until it returns true. `kept` is where those
/// that are transformed are kept for the next rule of the same look.
fn each<W>(
    (one, kept): (&mut Vec<u8>, Option<&mut Cached>),
    slot: &Slot,
    view: View<'_>,
    context: &mut InspectContext<W>,
    transforms: &mut TransformScratch,
    f: &mut Take<'_, W>,
) {
    let mut give = |data: &[u8], end: bool, context: &mut InspectContext<W>| {
        if slot.transforms.is_empty() {
            f(data, end, context)
        } else {
            let data = slot.transforms.apply(data, transforms, context.pcre_scratch());
            f(data, end, context)
        }
    };
    let files = view.tx.base().files.of(view.dir);
    match slot.source {
        SlotSource::Buffer(id) => {
            if let Some(Cached { held, out, ends, .. }) = kept.filter(|_| !slot.transforms.is_empty()) {
                if *held == Held::Unknown {
                    *held = Held::Absent;
                    out.clear();
                    ends.clear();
                    for index in 0.. {
                        one.clear();
                        let Some(found) = view.tx.buffer(id, view.dir, index, one) else { break };
                        out.extend_from_slice(slot.transforms.apply(found.data, transforms, context.pcre_scratch()));
                        ends.push(out.len());
                    }
                }
                let mut start = 0;
                for &end in ends.iter() {
                    if f(out.get(start..end).unwrap_or(&[]), true, context) {
                        return;
                    }
                    start = end;
                }
                return;
            }
            for index in 0.. {
                one.clear();
                match view.tx.buffer(id, view.dir, index, one) {
                    Some(found) if !give(found.data, found.end, context) => {}
                    _ => return,
                }
            }
        }
        SlotSource::FileData => {
            for file in files {
                if let Some(found) = file.data(view.limits)
                    && !found.data.is_empty()
                    && give(found.data, found.end, context)
                {
                    return;
                }
            }
        }
        SlotSource::FileName => {
            for file in files.filter(|x| !x.name().is_empty()) {
                if give(file.name(), true, context) {
                    return;
                }
            }
        }
        SlotSource::FileMagic => {
            for m in files.filter_map(|x| x.magic(view.engine?)) {
                if give(m, true, context) {
                    return;
                }
            }
        }
    }
}

/// The bit of the step that asks for a file.
fn file_bit(plan: &Plan) -> u64 {
    plan.steps.iter().position(|s| matches!(s.what, What::File(_))).map_or(0, |n| 1 << n)
}

/// Of a `=>` rule: whether what it asks of the other direction held.
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
            if let Some(f) = seen.files.get_mut(at) {
                f.1 = done;
            }
        }
        Err(at) => seen.files.insert(at, (rule, done)),
    }
}
