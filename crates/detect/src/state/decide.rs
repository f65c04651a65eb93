//! Turns the matches of a packet into alerts and a verdict.

use margay_app::Parser;
use margay_flow::{FlowAction, FlowCore};
use margay_rules::ast::{Action, NewAction};

use super::State;
use crate::detect::Detect;
use crate::input::{Alert, DropReason, Input, Reject, Verdict, VerdictAction};
use crate::threshold::{Outcome, Subject};
use crate::watch::{MatchOutcome, Watch};

impl<W: Watch> State<W> {
    /// Sorts the matches and decides: alerts up to the queue's size, the packet's verdict, the flow's action. A `pass`
    /// ends it: rules after it neither alert nor act.
    // It stays whole: one loop over the matches, in which each step depends on the verdict so far.
    pub(crate) fn decide(&mut self, detect: &Detect, input: &mut Input<'_>, mut verdict: Verdict) -> Verdict {
        if self.matches.is_empty() {
            return verdict;
        }
        self.matches.sort_unstable();
        let who = Self::subject(input);
        let subject = Subject { src: who.src, dst: who.dst, flow: who.flow, time: who.time };
        let max = detect.config.alert_max();
        let mut flow_action = FlowAction::None;
        // Whether the drop has a rule that its event names for good.
        let mut shown = verdict.action == VerdictAction::Drop;
        let before = self.alerts.len();
        // For a SYN with data, only the packet is dropped: there is no connection yet.
        let opens = input.packet.tcp().is_some_and(|t| t.flags() & margay_packet::tcp::flag::SYN != 0);
        let guess = if detect.config.guess_tx { only_tx(input) } else { None };
        for i in 0..self.matches.len() {
            let Some(&m) = self.matches.get(i) else { break };
            let Some(rule) = detect.compiled.get(m.rule as usize) else { continue };
            let decision = self.thresholds.decide(&detect.thresholds, m.rule, &subject);
            if decision.outcome == Outcome::Nothing {
                self.context.watch.fate(m.rule, MatchOutcome::Threshold(true));
                self.counters.alerts_suppressed += 1;
                continue;
            }
            let action = decision.new_action.map_or(rule.action, new_action);
            let drops = matches!(action, Action::Drop | Action::Reject | Action::RejectDst | Action::RejectBoth);
            // A `pass` writes no alert, unless a rate filter makes another action of it.
            let writes = !decision.silent
                && match decision.new_action {
                    None => rule.writes,
                    Some(NewAction::Pass) => false,
                    Some(_) => rule.writes || rule.action == Action::Pass,
                };
            if W::ON {
                let outcome = match (writes, decision.outcome) {
                    (false, _) => MatchOutcome::Silent,
                    (_, Outcome::Limited) => MatchOutcome::Threshold(false),
                    _ if self.alerts.len() >= max => MatchOutcome::Overflow,
                    _ => MatchOutcome::Alert,
                };
                self.context.watch.fate(m.rule, outcome);
            }
            let limited = decision.outcome == Outcome::Limited;
            if !writes || limited {
                // A rule without alert counts, too, as in Suricata; a pass that applies does not.
                let passes = matches!(action, Action::Pass | Action::Accept) && !limited;
                self.counters.alerts_suppressed += u64::from(!passes);
            } else if self.alerts.len() >= max {
                self.counters.alert_queue_overflow += 1;
            } else {
                let blocked = drops && (input.ips || action != Action::Drop || decision.new_action.is_some());
                let own = self.datagram_tx.filter(|_| m.tx_id.is_none() && rule.of_protocol);
                let guessed = guess
                    .filter(|_| m.tx_id.is_none() && own.is_none())
                    .filter(|&(parser, tx)| may_name(input, parser, tx, detect.config.guess_limit));
                self.alerts.push(Alert {
                    rule: m.rule,
                    action,
                    blocked,
                    stream: m.stream,
                    tx_id: m.tx_id.or(own.or(guessed).map(|g| g.1)),
                    parser: own.or(guessed).map_or(m.parser, |g| g.0),
                    tx_guessed: guessed.is_some(),
                    frame: m.frame,
                    context: m.context,
                });
            }
            for t in &rule.tags {
                verdict.tagged |= self.tags.set(detect.name_of(m.rule), t, &who);
                verdict.sets_tag = true;
            }
            let whole_flow = rule.acts_on_flow(m.stream && !opens);
            if drops {
                verdict.reject = verdict.reject.or(reject(action));
                if input.ips && verdict.action != VerdictAction::Drop {
                    verdict.action = VerdictAction::Drop;
                    verdict.drop_reason = Some(if decision.new_action.is_some() {
                        DropReason::RulesThreshold
                    } else {
                        DropReason::Rules
                    });
                    verdict.dropped_by = Some(m.rule);
                    shown = writes && !limited;
                } else if input.ips && !shown && writes && !limited {
                    // Of several rules, the event of the drop names one with an alert.
                    verdict.dropped_by = Some(m.rule);
                    shown = true;
                }
                if whole_flow {
                    flow_action = FlowAction::Drop;
                }
            }
            if action == Action::Pass && limited {
                continue;
            }
            if matches!(action, Action::Pass | Action::Accept) {
                // A pass does not undo a drop.
                if verdict.action != VerdictAction::Drop {
                    verdict.action = VerdictAction::Pass;
                    if whole_flow {
                        flow_action = FlowAction::Pass;
                    }
                }
                if W::ON {
                    for later in self.matches.iter().skip(i + 1) {
                        self.context.watch.fate(later.rule, MatchOutcome::Passed(m.rule));
                    }
                }
                break;
            }
        }
        self.counters.alert += (self.alerts.len() - before) as u64;
        if let Some(flow) = &mut input.flow {
            flow.alerted |= !self.alerts.is_empty();
            match flow_action {
                // The firewall still inspects the flow.
                FlowAction::Pass if detect.is_firewall() => flow.td_passed = true,
                action => set_action(flow, action),
            }
            verdict.flow = flow.action;
        }
        verdict
    }
}

/// The only current transaction in the packet's direction, if there is exactly one: the parser's index and the
/// transaction's number.
fn only_tx(input: &Input<'_>) -> Option<(u8, u64)> {
    let (parsers, dir) = (input.txs.as_deref()?, input.dir?);
    let here = |p: &dyn Parser, id| p.tx(id).is_some_and(|t| t.base().only.is_none_or(|d| d == dir));
    let mut all =
        (0u8..).zip(parsers).flat_map(|(n, p)| p.txs().filter(move |&id| here(&**p, id)).map(move |id| (n, id)));
    let first = all.next()?;
    all.next().is_none().then_some(first)
}

/// Whether one more alert may name a transaction that is a guess; counts it.
fn may_name(input: &mut Input<'_>, parser: u8, tx: u64, limit: u8) -> bool {
    let parser = input.txs.as_deref_mut().and_then(|p| p.get_mut(usize::from(parser)));
    let Some(tx) = parser.and_then(|p| p.tx_mut(tx)) else { return false };
    let guesses = &mut tx.base_mut().guesses;
    let may = *guesses < limit;
    *guesses += u8::from(may);
    may
}

/// The transaction that a datagram brought, if any: the parser's index and the transaction's number. A rule whose header
/// names the protocol alerts with it, although the rule inspects only the payload.
pub(crate) fn tx_of_datagram(input: &Input<'_>) -> Option<(u8, u64)> {
    if input.packet.proto != 17 {
        return None;
    }
    let (parsers, dir) = (input.txs.as_deref()?, input.dir?);
    let parser = parsers.last()?;
    let id = parser.txs().end.checked_sub(1)?;
    let base = parser.tx(id)?.base();
    let brought = base.only.is_none_or(|d| d == dir) && base.updated[dir.index()];
    brought.then_some((u8::try_from(parsers.len() - 1).ok()?, id))
}

fn set_action(flow: &mut FlowCore, action: FlowAction) {
    if action != FlowAction::None {
        flow.action = action;
    }
}

const fn new_action(a: NewAction) -> Action {
    match a {
        NewAction::Alert => Action::Alert,
        NewAction::Drop => Action::Drop,
        NewAction::Pass => Action::Pass,
        NewAction::Reject => Action::Reject,
    }
}

const fn reject(a: Action) -> Option<Reject> {
    match a {
        Action::Reject => Some(Reject::Source),
        Action::RejectDst => Some(Reject::Destination),
        Action::RejectBoth => Some(Reject::Both),
        _ => None,
    }
}
