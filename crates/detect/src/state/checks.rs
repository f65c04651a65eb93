//! Evaluates a candidate: its checks, its state and its payload or stream contents.

use margay_flow::Direction;
use margay_rules::ast::LuaAt;

use super::{State, made_up};
use crate::checks::CheckInput;
use crate::detect::Detect;
use crate::header::payload_of;
use crate::input::{Input, StreamChunk};
use crate::inspect::Before;
use crate::kind::RuleKind;
use crate::rule::CompiledRule;
use crate::transform::Inspection;
use crate::watch::{At, Watch};

impl<W: Watch> State<W> {
    /// Whether all checks of a rule hold, and if so whether they held in stream data.
    pub(super) fn holds(&mut self, detect: &Detect, rule: &CompiledRule, input: &Input<'_>) -> Option<bool> {
        // A pseudo packet was never sent: it has nothing but the stream data that it carries, and, once, the flow's
        // addresses (for rules that Suricata does not check once per flow, because an address is negated) and
        // protocol.
        let protocol = input.flow_ends && matches!(rule.kind, RuleKind::AppLayer | RuleKind::LikeIpOnly);
        let of_packet = !protocol && (rule.payload.is_empty() || rule.kind == RuleKind::Packet);
        if of_packet
            && made_up(input.packet)
            && !(input.changing && rule.of_change)
            && !rule.lua.as_ref().is_some_and(|l| l.at == LuaAt::Stream)
        {
            return None;
        }
        self.checks_hold(detect, rule, input)
    }

    /// As [`Self::holds`], also for pseudo packets.
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

    /// Whether a rule's packet and flow checks hold.
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

    /// Whether a rule's header checks hold.
    pub(crate) fn headers_hold(&mut self, rule: &CompiledRule, input: &Input<'_>) -> bool {
        rule.headers.iter().all(|(buffer, inspection)| match crate::buffer::bytes(*buffer, input.packet) {
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

    /// The input of packet and flow checks.
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
            stream_due: self.stream_due,
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

    /// Whether a rule's payload or stream checks hold, and if so whether they held in stream data.
    pub(crate) fn payload_holds(&mut self, rule: &CompiledRule, input: &Input<'_>) -> Option<bool> {
        if self.unsearched && rule.sought {
            self.context.watch.missing(At::Payload, "what follows is encrypted: patterns are not searched any more");
            return None;
        }
        if matches!(rule.kind, RuleKind::Stream | RuleKind::PacketStream | RuleKind::AppTransaction) {
            for chunk in input.chunks.iter().filter(|c| !c.data.is_empty()) {
                self.context.watch.at(At::Stream(chunk.offset));
                if self.in_chunk(rule, chunk, input.ips) && self.scripts_hold(rule, input, Some(chunk.data)) {
                    return Some(true);
                }
            }
            // Over TCP, a transaction's rule looks at the stream alone. In IPS mode a packet's data is inspected at once.
            let only = match rule.kind {
                RuleKind::Stream => input.in_stream,
                RuleKind::AppTransaction => !input.ips && input.packet.is_tcp(),
                _ => false,
            };
            if rule.stream_only || only {
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
        // With stream data, a packet without payload is inspected as well, so that negated contents can match. Packet
        // rules do not see the stream if no stream rule of their group inspects it.
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

    /// Whether a rule's checks hold in the new part of a chunk, or across the border to the old part.
    ///
    /// Offsets from the beginning count from the start of the new part, as in Suricata. At the beginning of the stream,
    /// a literal with an offset may also straddle the border; its offset then counts from the start of the stream.
    ///
    /// In IPS mode, a transaction's rule sees the old part as well, since its other buffers may need more packets.
    pub(super) fn in_chunk(&mut self, rule: &CompiledRule, chunk: &StreamChunk<'_>, ips: bool) -> bool {
        let (Some(seen), Some(new)) = (chunk.data.get(..chunk.seen), chunk.data.get(chunk.seen..)) else {
            return self.all(&rule.payload, chunk.data);
        };
        if seen.is_empty() || (ips && rule.kind == RuleKind::AppTransaction) {
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

    /// Whether the match of a chunk was found with an earlier chunk: it is in the part that both have, and not in the
    /// new part.
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

/// The number of bits that the flow has.
pub(super) fn bits_set(input: &Input<'_>) -> usize {
    input.flow.as_ref().map_or(0, |f| f.vars.bits().len())
}
