//! Runs a packet through the firewall's tables.

use margay_app::Transaction;
use margay_flow::FlowAction;
use margay_rules::ast::{Action, ActionScope};

use super::transaction::{Due, Eval, MATCHED};
use super::{Match, State};
use crate::detect::Detect;
use crate::firewall::{Entry, Firewall, HookOutcome, PacketHook, Policy};
use crate::header::PacketKey;
use crate::input::{Alert, DropReason, Input, Verdict, VerdictAction, of_flow};
use crate::threshold::{Outcome, Subject};
use crate::tx::View;
use crate::watch::{End, Look, MatchOutcome, Watch};

/// The firewall's state for the current packet; one per worker.
#[derive(Debug, Default)]
pub(crate) struct FirewallState {
    /// Matching rules that write an alert, in the order in which they matched.
    matches: Vec<Match>,
    /// Whether an earlier table accepted the whole packet.
    accepted: bool,
    /// Whether a rule's `pass` makes threat detection skip this packet.
    passed: bool,
    /// Alerts dropped because the packet had too many.
    discarded: u64,
}

impl FirewallState {
    /// Takes over the counters of the old state.
    pub(crate) fn take_over(&mut self, old: &FirewallState) {
        self.discarded = old.discarded;
    }
}

/// The result of one table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TableResult {
    /// Continue with the next table.
    Next,
    /// The firewall accepts the packet; its remaining tables are skipped.
    Accepted,
    /// The packet is dropped for this reason, and by this rule if a rule did it.
    Dropped(DropReason, Option<u32>),
}

impl<W: Watch> State<W> {
    /// Alerts of firewall rules dropped because the packet had too many.
    pub(crate) fn discarded_firewall_alerts(&self) -> u64 {
        self.firewall.discarded
    }

    /// Runs the packet table before the flow (first of all, for every packet) or before the stream.
    pub(crate) fn firewall_hook(&mut self, detect: &Detect, hook: PacketHook, input: &mut Input<'_>) -> HookOutcome {
        let Some(firewall) = &detect.firewall else { return HookOutcome::Next };
        if hook == PacketHook::PreFlow {
            self.firewall.matches.clear();
            (self.firewall.accepted, self.firewall.passed) = (false, false);
        }
        if self.firewall.accepted {
            return HookOutcome::Next;
        }
        self.packet_vars.clear();
        self.cache.start(&detect.sets);
        let key = PacketKey::new(input.packet, input.dir);
        let mut verdict = Verdict::default();
        self.flow_start = false;
        let (result, untracked) = self.packet_table(detect, firewall, hook, input, &key, &mut verdict);
        match result {
            TableResult::Dropped(..) => {
                self.alerts.clear();
                self.matches.clear();
                HookOutcome::Dropped(self.conclude(detect, input, verdict, result, usize::MAX))
            }
            _ => {
                self.firewall.accepted = result == TableResult::Accepted;
                if untracked { HookOutcome::Untracked } else { HookOutcome::Next }
            }
        }
    }

    /// Whether a `config` rule keeps the packet out of flow tracking. Called before the flow lookup.
    pub(crate) fn untracked(&mut self, detect: &Detect, input: &mut Input<'_>) -> bool {
        if detect.before_flow.is_empty() {
            return false;
        }
        self.cache.start(&detect.sets);
        let key = PacketKey::new(input.packet, input.dir);
        let mut verdict = Verdict::default();
        let mut untracked = false;
        for rule in detect.before_flow.iter().filter_map(|&n| detect.compiled.get(n as usize)) {
            if rule.header.ways(&key, &detect.sets, &mut self.cache) != 0
                && self.checks_hold(detect, rule, input).is_some()
            {
                self.apply(rule, input, &mut verdict, None);
                untracked = true;
            }
        }
        untracked
    }

    /// Inspects a packet in firewall mode.
    pub(crate) fn inspect_firewall(&mut self, detect: &Detect, firewall: &Firewall, input: &mut Input<'_>) -> Verdict {
        let tagged = self.tagged(input);
        let (action, flow_passed) = input.flow.as_ref().map_or((FlowAction::None, false), |f| (f.action, f.td_passed));
        if action == FlowAction::Drop
            && let Some(v) = of_flow(action, input.ips)
        {
            self.context.watch.left_out(input);
            return Verdict { tagged, ..v };
        }
        let mut verdict = Verdict { tagged, ..Verdict::default() };
        let key = self.begin(detect, input);
        self.firewall.passed |= flow_passed || input.td_passed || action == FlowAction::Pass;
        let mut result = match action == FlowAction::Accept || self.firewall.accepted || input.let_through {
            true => TableResult::Accepted,
            false => self.packet_table(detect, firewall, PacketHook::Filter, input, &key, &mut verdict).0,
        };
        let early = self.firewall.matches.len();
        if !matches!(result, TableResult::Dropped(..)) {
            if !self.firewall.passed {
                self.inspect_packet(detect, input, &key, &mut verdict);
            }
            if result == TableResult::Next {
                result = self.app_tables(detect, firewall, input, &key, &mut verdict);
            }
        }
        if matches!(result, TableResult::Dropped(..)) || self.firewall.passed {
            self.skip_txs(detect, input);
        } else {
            self.inspect_app(detect, input, &key, &mut verdict);
        }
        let verdict = self.conclude(detect, input, verdict, result, early);
        self.context.watch.packet_done();
        verdict
    }

    /// Runs a packet table; also returns whether the packet stays out of flow tracking.
    fn packet_table(
        &mut self,
        detect: &Detect,
        firewall: &Firewall,
        hook: PacketHook,
        input: &mut Input<'_>,
        key: &PacketKey,
        verdict: &mut Verdict,
    ) -> (TableResult, bool) {
        let (rules, policy) = firewall.table(hook, key.transport);
        let mut untracked = false;
        for &number in rules {
            let (Some(rule), Some(does)) = (detect.compiled.get(number as usize), firewall.rule(number)) else {
                continue;
            };
            if rule.header.ways(key, &detect.sets, &mut self.cache) == 0 {
                continue;
            }
            self.context.watch.begin(number, Look::Packet);
            let held = self.checks_hold(detect, rule, input);
            self.context.watch.end(number, if held.is_some() { End::Match } else { End::Fail });
            self.keep_entropy(input.flow.as_deref_mut());
            let Some(stream) = held else { continue };
            self.keep_captures(input.flow.as_deref_mut());
            self.apply(rule, input, verdict, None);
            if rule.writes {
                let context = self.keep_contexts();
                let m = Match { rule: number, tx_id: None, stream, parser: 0, file: None, frame: None, context };
                self.firewall.matches.push(m);
            }
            untracked |= does.untracked;
            let Some(decided) = does.verdict else { continue };
            self.pass(does.pass, input);
            let reason = match hook {
                PacketHook::PreFlow => DropReason::PreFlowHook,
                PacketHook::PreStream => DropReason::PreStreamHook,
                PacketHook::Filter => DropReason::FirewallRules,
            };
            return (carry_out(decided, input, reason, Some(number)), untracked);
        }
        let reason = match hook {
            PacketHook::PreFlow => DropReason::PreFlowHook,
            PacketHook::PreStream => DropReason::PreStreamHook,
            PacketHook::Filter => DropReason::DefaultPacketPolicy,
        };
        (carry_out(policy, input, reason, None), untracked)
    }

    /// Runs the tables for the transactions of the packet's direction.
    fn app_tables(
        &mut self,
        detect: &Detect,
        firewall: &Firewall,
        input: &mut Input<'_>,
        key: &PacketKey,
        verdict: &mut Verdict,
    ) -> TableResult {
        let (Some(dir), Some(parsers)) = (input.dir, input.txs.take()) else { return TableResult::Next };
        let mut result = TableResult::Next;
        'all: for (number, parser) in (0u8..).zip(parsers.iter_mut()) {
            let proto = parser.proto();
            if firewall.states(proto, dir).is_empty() {
                continue;
            }
            for id in parser.txs() {
                let Some(tx) = parser.tx_mut(id) else { continue };
                let base = tx.base();
                let to_look_at = base.updated[dir.index()] && !base.detect[dir.index()].done;
                if !to_look_at || base.only.is_some_and(|d| d != dir) {
                    continue;
                }
                let complete = base.progress[dir.index()] >= detect.complete(proto)[dir.index()];
                let group = detect.txs.get(proto, dir).unwrap_or(&firewall.no_group);
                let due = Due { detect, group, key, proto, parser: number, id, dir, complete, joined: None };
                result = self.app_table(due, firewall, input, verdict, tx);
                if result != TableResult::Next {
                    break 'all;
                }
            }
        }
        input.txs = Some(parsers);
        result
    }

    /// Runs the tables of the states that a transaction has reached.
    // It stays whole: two nested loops over tables and rules, which end each other.
    fn app_table(
        &mut self,
        due: Due<'_>,
        firewall: &Firewall,
        input: &mut Input<'_>,
        verdict: &mut Verdict,
        tx: &mut dyn Transaction,
    ) -> TableResult {
        let Due { detect, group, key, proto, parser, id, dir, complete, joined } = due;
        let i = dir.index();
        let progress = tx.base().progress[i];
        let mut memory = tx.base_mut().firewall.take().unwrap_or_default();
        let states = firewall.states(proto, dir);
        self.tx.forget();
        let mut result = TableResult::Next;
        while !memory.accepted && memory.next[i] <= progress {
            let state = memory.next[i];
            let Some(table) = states.get(usize::from(state)) else { break };
            let mut decided = (table.policy, DropReason::DefaultAppPolicy, None);
            for &Entry { rule: number, implied } in &table.rules {
                let Some(rule) = detect.compiled.get(number as usize) else { continue };
                let Some(plan) = rule.tx.as_deref().and_then(|t| t.plan(proto, dir)) else { continue };
                self.context.watch.begin(number, Look::Transaction { proto, dir, id, progress, complete });
                if !self.tx_applies(detect, rule, input, key) {
                    self.context.watch.end(number, End::Fail);
                    continue;
                }
                if implied {
                    decided = (Policy::ACCEPT_HOOK, DropReason::FirewallRules, None);
                    break;
                }
                let Some(txr) = rule.tx.as_deref() else { continue };
                let at = memory.seen[i].iter().position(|s| s.0 == number);
                let held = at.and_then(|at| memory.seen[i].get(at)).map_or(0, |s| s.1);
                // A rule that matched before still matches. It only alerts again if the state is its only condition.
                let again = held & MATCHED != 0;
                let mut file = None;
                if !again {
                    let limits = tx.file_window(dir, input.ips);
                    let engine = input.files.as_deref();
                    let view = View { tx: &*tx, group, dir, progress, complete, begun: 0, engine, limits, joined };
                    let eval = self.evaluate(number, rule, txr, plan, held, 0, view, input);
                    self.keep_entropy(input.flow.as_deref_mut());
                    let end = match &eval {
                        Eval::Match(_) => End::Match,
                        Eval::Wait(_) if !complete => End::Wait,
                        _ => End::Fail,
                    };
                    self.context.watch.end(number, end);
                    let bits = match eval {
                        Eval::Match(f) => {
                            file = f;
                            MATCHED
                        }
                        Eval::Wait(bits) => bits,
                        Eval::Fail => held,
                    };
                    match at.and_then(|at| memory.seen[i].get_mut(at)) {
                        Some(s) => s.1 = bits,
                        None if bits != 0 => memory.seen[i].push((number, bits)),
                        None => {}
                    }
                    if bits & MATCHED == 0 {
                        continue;
                    }
                }
                if !again || plan.repeats.is_some() {
                    self.keep_captures(input.flow.as_deref_mut());
                    let sid = detect.rules.get(number as usize).map_or(0, |r| r.sid);
                    let base = tx.base_mut();
                    base.alerted |= rule.writes;
                    self.apply(rule, input, verdict, Some((base, dir, file, sid)));
                    if rule.writes {
                        // A transaction over TCP comes from the stream.
                        let stream = input.packet.is_tcp();
                        let context = self.keep_contexts();
                        let m = Match { rule: number, tx_id: Some(id), stream, parser, file, frame: None, context };
                        self.firewall.matches.push(m);
                    }
                }
                if let Some(does) = firewall.rule(number)
                    && let Some(verdict) = does.verdict
                {
                    self.pass(does.pass, input);
                    decided = (verdict, DropReason::FirewallRules, Some(number));
                    break;
                }
            }
            let (policy, reason, number) = decided;
            if policy == (Policy { accept: true, scope: ActionScope::Transaction }) {
                memory.accepted = true;
                memory.seen = Default::default();
                break;
            }
            result = carry_out(policy, input, reason, number);
            if result != TableResult::Next || state == progress {
                break;
            }
            memory.next[i] = state + 1;
            memory.seen[i].clear();
        }
        tx.base_mut().firewall = Some(memory);
        result
    }

    /// Applies a firewall rule's `pass`: discards the threat detection matches of this packet.
    fn pass(&mut self, scope: Option<ActionScope>, input: &mut Input<'_>) {
        let Some(scope) = scope else { return };
        self.firewall.passed = true;
        self.matches.clear();
        if scope == ActionScope::Flow
            && let Some(flow) = &mut input.flow
        {
            flow.td_passed = true;
        }
    }

    /// Marks new transaction data as inspected without running any rule.
    fn skip_txs(&mut self, detect: &Detect, input: &mut Input<'_>) {
        let (Some(dir), Some(parsers)) = (input.dir, input.txs.as_deref_mut()) else { return };
        let i = dir.index();
        for parser in parsers {
            let complete = detect.complete(parser.proto())[i];
            for id in parser.txs() {
                let Some(tx) = parser.tx_mut(id) else { continue };
                let base = tx.base_mut();
                if std::mem::take(&mut base.updated[i]) && !base.detect[i].done {
                    base.detect[i].done = base.progress[i] >= complete;
                    tx.inspected(dir);
                }
            }
        }
    }

    /// Decides on the alerts of firewall rules, then on the matches of threat detection, and combines both. The
    /// firewall's matches from `early` on come from transactions.
    fn conclude(
        &mut self,
        detect: &Detect,
        input: &mut Input<'_>,
        verdict: Verdict,
        result: TableResult,
        early: usize,
    ) -> Verdict {
        let mut matches = std::mem::take(&mut self.firewall.matches);
        // If a packet rule of threat detection drops the packet, the firewall's transaction tables do not count: they come
        // after that rule.
        let verdict = self.decide(detect, input, verdict);
        let packet_rule = |n: u32| detect.compiled.get(n as usize).is_some_and(|r| r.tx.is_none() && r.frame.is_none());
        let td_dropped = verdict.action == VerdictAction::Drop && verdict.dropped_by.is_some_and(packet_rule);
        if td_dropped {
            matches.truncate(early);
        }
        self.firewall_alerts(detect, input, &matches);
        matches.clear();
        self.firewall.matches = matches;
        (self.firewall.accepted, self.firewall.passed) = (false, false);
        let mut verdict = verdict;
        // If both drop the packet, the firewall is the one reported.
        if let TableResult::Dropped(reason, rule) = result
            && input.ips
        {
            verdict.action = VerdictAction::Drop;
            (verdict.drop_reason, verdict.dropped_by) = (Some(reason), rule);
        }
        if let Some(flow) = &mut input.flow {
            flow.alerted |= !self.alerts.is_empty();
            verdict.flow = flow.action;
        }
        verdict
    }

    /// Puts the alerts of firewall rules before those of threat detection, as many as fit.
    fn firewall_alerts(&mut self, detect: &Detect, input: &Input<'_>, matches: &[Match]) {
        if matches.is_empty() {
            return;
        }
        let who = Self::subject(input);
        let subject = Subject { src: who.src, dst: who.dst, flow: who.flow, time: who.time };
        let max = detect.config.alert_max();
        let mut at = 0;
        for m in matches {
            let Some(rule) = detect.compiled.get(m.rule as usize) else { continue };
            for t in &rule.tags {
                self.tags.set(detect.name_of(m.rule), t, &who);
            }
            if self.thresholds.decide(&detect.thresholds, m.rule, &subject).outcome != Outcome::Alert {
                self.context.watch.fate(m.rule, MatchOutcome::Threshold(false));
                self.counters.alerts_suppressed += 1;
                continue;
            }
            if self.alerts.len() >= max {
                self.context.watch.fate(m.rule, MatchOutcome::Overflow);
                self.firewall.discarded += 1;
                continue;
            }
            self.context.watch.fate(m.rule, MatchOutcome::Alert);
            let alert = Alert {
                rule: m.rule,
                action: rule.action,
                blocked: rule.action == Action::Drop && input.ips,
                stream: m.stream,
                tx_id: m.tx_id,
                parser: m.parser,
                tx_guessed: false,
                frame: None,
                context: m.context,
            };
            self.alerts.insert(at, alert);
            at += 1;
            self.counters.alert += 1;
        }
    }
}

/// Applies a decision to the flow, and returns its meaning for the packet.
fn carry_out(policy: Policy, input: &mut Input<'_>, reason: DropReason, rule: Option<u32>) -> TableResult {
    let action = match (policy.accept, policy.scope) {
        (_, ActionScope::Flow) if policy.accept => FlowAction::Accept,
        (_, ActionScope::Flow) => FlowAction::Drop,
        _ => FlowAction::None,
    };
    if action != FlowAction::None
        && let Some(flow) = &mut input.flow
    {
        flow.action = action;
    }
    match (policy.accept, policy.scope) {
        (true, ActionScope::Hook | ActionScope::Transaction) => TableResult::Next,
        (true, _) => TableResult::Accepted,
        (false, _) => TableResult::Dropped(reason, rule),
    }
}
