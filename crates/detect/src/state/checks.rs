//! Whether a candidate holds: its checks, its state and what it looks for in the payload or the stream.

use margay_flow::Direction;
use margay_rules::ast::LuaAt;

use super::{State, made_up};
use crate::checks::CheckInput;
use crate::detect::Detect;
use crate::header::payload_of;
use crate::input::{Input, StreamChunk};
use crate::inspect::Before;
use crate::kind::RuleKind;
use crate::rule::{CompiledRule, Inspection};
use crate::watch::{At, Watch};

impl<W: Watch> State<W> {
    /// Whether all of a rule's checks hold; and whether that was in stream data.
    pub(super) fn holds(&mut self, detect: &Detect, rule: &CompiledRule, input: &Input<'_>) -> Option<bool> {
        // Nobody sent it: there is nothing in it but the stream that it comes with.
        let of_packet = rule.payload.is_empty() || rule.kind == RuleKind::Packet;
        if of_packet && made_up(input.packet) && !rule.lua.as_ref().is_some_and(|l| l.at == LuaAt::Stream) {
            return None;
        }
        self.checks_hold(detect, rule, input)
    }

    /// The same, whoever made the packet.
    pub(crate) fn checks_hold(&mut self, detect: &Detect, rule: &CompiledRule, input: &Input<'_>) -> Option<bool> {
        if !self.state_holds(detect, rule, input) {
            return None;
        }
        self.context.clear_results();
        if !self.headers_hold(rule, input) {
            return None;
        }
        match &rule.lua {
            None if rule.payload.is_empty() => Some(false),
            Some(l) if rule.payload.is_empty() && !l.asks_data() => {
                self.scripts_hold(rule, input, None).then_some(false)
            }
            _ => self.payload_holds(rule, input),
        }
    }

    /// Whether a rule's checks of packet and flow hold.
    pub(crate) fn state_holds(&mut self, detect: &Detect, rule: &CompiledRule, input: &Input<'_>) -> bool {
        if rule.checks.is_empty() {
            return true;
        }
        let check = self.check_input(detect, rule, input);
        if W::CHECKS {
            let failed = rule.checks.iter().position(|c| !c.holds(&check));
            let lines = self.context.watch.tell(rule, &check, failed);
            self.context.watch.told(lines);
            return failed.is_none();
        }
        rule.checks.iter().all(|c| c.holds(&check))
    }

    /// Whether a rule's checks of headers hold.
    pub(crate) fn headers_hold(&mut self, rule: &CompiledRule, input: &Input<'_>) -> bool {
        rule.headers.iter().all(|(buffer, inspection)| match buffer.get(input.packet) {
            Some(data) => {
                self.context.watch.at(At::Header(*buffer));
                self.matches(inspection, data)
            }
            None => {
                self.context.watch.missing(At::Header(*buffer), "the packet has no such header");
                false
            }
        })
    }

    /// What checks of packet and flow look at.
    pub(crate) fn check_input<'s>(
        &'s self,
        detect: &'s Detect,
        rule: &CompiledRule,
        input: &'s Input<'_>,
    ) -> CheckInput<'s> {
        CheckInput {
            packet: input.packet,
            flow: input.flow.as_deref(),
            direction: input.dir.unwrap_or(Direction::ToServer),
            established: input.established,
            stream_data: rule.stream_only && !input.chunks.is_empty(),
            no_payload: input.no_payload,
            stream_sizes: input.stream_sizes,
            stream_events: input.stream_events,
            app: input.app,
            app_events: input.app_events,
            flow_start: self.flow_start,
            hosts: Some(&self.hosts),
            packet_vars: Some(&self.packet_vars),
            reputation: Some(&*detect.reputation),
        }
    }

    /// Whether a rule's checks of payload or stream hold; and whether that was in stream data.
    pub(crate) fn payload_holds(&mut self, rule: &CompiledRule, input: &Input<'_>) -> Option<bool> {
        if self.unsearched && rule.sought {
            self.context.watch.missing(At::Payload, "what follows is encrypted: patterns are not searched any more");
            return None;
        }
        if matches!(rule.kind, RuleKind::Stream | RuleKind::PacketStream | RuleKind::AppTransaction) {
            for chunk in input.chunks.iter().filter(|c| !c.data.is_empty()) {
                self.context.watch.at(At::Stream(chunk.offset));
                if self.in_chunk(rule, chunk) && self.scripts_hold(rule, input, Some(chunk.data)) {
                    return Some(true);
                }
            }
            if rule.stream_only || (input.in_stream && rule.kind == RuleKind::Stream) {
                if input.chunks.is_empty() {
                    self.context.watch.missing(At::Stream(0), "no stream data is due with this packet");
                }
                return None;
            }
        }
        let payload = if input.no_payload { &[] } else { payload_of(input.packet) };
        let before = self.replacements.len();
        match payload.is_empty() {
            true if input.no_payload => self.context.watch.missing(At::Payload, "the payload is encrypted"),
            true => self.context.watch.missing(At::Payload, "the packet has no payload"),
            false => self.context.watch.at(At::Payload),
        }
        // With stream data a packet without payload is inspected as well: what is not to be in it is not. Rules on packets alone do not
        // know of the stream where no rule beside them looks at it.
        let bare = payload.is_empty()
            && (input.no_payload
                || (input.chunks.is_empty() && !input.stream_waits)
                || (rule.kind == RuleKind::Packet && !self.stream_due)
                || rule.payload.is_empty()
                || rule.absent.as_ref().is_some_and(|a| input.chunks.iter().any(|c| a.is_in(c.data))));
        if bare
            || !rule.payload.iter().all(|i| self.matches_payload(i, payload, input.ips))
            || !self.scripts_hold(rule, input, Some(payload))
        {
            self.replacements.truncate(before);
            return None;
        }
        Some(false)
    }

    /// Whether a rule's checks hold in what is new of a chunk, or in what straddles its border.
    ///
    /// Places that are counted from the beginning are counted from where the new part begins, as the peer counts them. At the
    /// beginning of the stream a literal with such a place may straddle the border as well: there its place is that in the stream.
    pub(super) fn in_chunk(&mut self, rule: &CompiledRule, chunk: &StreamChunk<'_>) -> bool {
        let (Some(seen), Some(new)) = (chunk.data.get(..chunk.seen), chunk.data.get(chunk.seen..)) else {
            return self.all(&rule.payload, chunk.data);
        };
        if seen.is_empty() || rule.kind == RuleKind::AppTransaction {
            return self.all(&rule.payload, chunk.data);
        }
        let before = rule.payload.iter().map(|i| i.checks.before()).max().unwrap_or(Before::Other);
        if before == Before::More {
            return self.all(&rule.payload, chunk.data) && !self.was_found(rule, seen, new);
        }
        if self.all(&rule.payload, new) {
            return true;
        }
        let straddles =
            before == Before::Other || (chunk.offset == 0 && rule.payload.iter().any(|i| i.checks.has_literal()));
        straddles && self.all(&rule.payload, chunk.data) && !self.was_found(rule, seen, &[])
    }

    /// Whether a rule that matches a chunk did so with an earlier one: in what both have, and not in what is new.
    fn was_found(&mut self, rule: &CompiledRule, seen: &[u8], new: &[u8]) -> bool {
        self.context.watch.found_before(false);
        let before = self.all(&rule.payload, seen) && (new.is_empty() || !self.all(&rule.payload, new));
        self.context.watch.found_before(before);
        before
    }

    pub(super) fn all(&mut self, inspections: &[Inspection], data: &[u8]) -> bool {
        let marks = self.context.marks();
        let all = inspections.iter().all(|i| self.matches(i, data));
        if !all {
            self.context.rewind(marks);
        }
        all
    }

    pub(super) fn matches_payload(&mut self, i: &Inspection, payload: &[u8], ips: bool) -> bool {
        let replaces = i.checks.replaces();
        if replaces.is_empty() || !ips {
            return self.matches(i, payload);
        }
        let before = self.context.replacements().len();
        let matched = self.matches(i, payload);
        for r in self.context.replacements().iter().skip(before) {
            if let Some(bytes) = replaces.get(usize::from(r.index)) {
                self.replacements.push((r.offset, bytes.clone()));
            }
        }
        matched
    }

    pub(crate) fn matches(&mut self, i: &Inspection, data: &[u8]) -> bool {
        let data = match i.transforms.is_empty() {
            true => data,
            false => i.transforms.apply(data, &mut self.transforms, self.context.pcre_scratch()),
        };
        i.checks.inspect(data, &mut self.context)
    }
}

/// How many bits the flow has.
pub(super) fn bits_set(input: &Input<'_>) -> usize {
    input.flow.as_ref().map_or(0, |f| f.vars.bits().len())
}
