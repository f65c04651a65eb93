//! One worker's detection: a packet is looked up, its candidates are checked in order, and what matched is decided on
//! (`decide`).

use std::sync::Arc;

use margay_app::TxBase;
use margay_flow::{CapturedVars, Direction, FlowAction};
use margay_packet::{L3, Packet, PacketSource};
use margay_rules::ast::LuaAt;

use crate::ahead::{AHEAD_MIN, Recipe};
use crate::buffer::PacketBuffer;
use crate::checks::{CheckInput, header};
use crate::counters::DetectCounters;
use crate::dataset::SetHit;
use crate::decide::tx_of_datagram;
use crate::detect::Detect;
use crate::effect::{EffectTarget, TxTarget};
use crate::firewall::FirewallState;
use crate::group::{Group, GroupIds, Has, Needs, Source};
use crate::head::first_of;
use crate::header::{PacketKey, SetCache, payload_of};
use crate::hostvars::HostVars;
use crate::input::{Alert, Input, StreamChunk, Verdict, of_flow};
use crate::inspect::{Before, InspectContext};
use crate::kind::RuleKind;
use crate::lua::WorkerScripts;
use crate::mpm::{MpmError, ScanError, Scratch};
use crate::rule::{ChangesBits, CompiledRule, Inspection};
use crate::shareable::InOrder;
use crate::tag::{Tagged, Tags};
use crate::threshold::ThresholdState;
use crate::transform::TransformScratch;
use crate::tx::TxScratch;
use crate::watch::{At, End, Look, Off, Searched, Watch};

/// A rule that matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Match {
    pub(crate) rule: u32,
    pub(crate) tx_id: Option<u64>,
    pub(crate) stream: bool,
    /// The transaction's parser, by its place.
    pub(crate) parser: u8,
    /// The file, by its place among all of the transaction.
    pub(crate) file: Option<u32>,
    /// The frame, by its number.
    pub(crate) frame: Option<u64>,
    /// Where in [`DetectState::contexts`] it begins what sets say of what was found, and how much it is.
    pub(crate) context: (u32, u8),
}

/// Whether the engine made a packet up, to have what is left of a stream inspected.
pub(crate) fn made_up(p: &Packet<'_>) -> bool {
    matches!(p.source, PacketSource::StreamFlowTimeout | PacketSource::StreamFlush)
}

/// One worker's state.
#[derive(Debug)]
pub(crate) struct State<W = Off> {
    pub(crate) scratch: Scratch,
    pub(crate) context: InspectContext<W>,
    pub(crate) transforms: TransformScratch,
    /// Scripts of rules, in states of this worker.
    pub(crate) scripts: WorkerScripts,
    pub(crate) cache: SetCache,
    pub(crate) candidates: Vec<u32>,
    /// Whether the packet is the first of its flow's direction.
    pub(crate) flow_start: bool,
    /// Stream data is due with the packet, and rules of its groups look at streams.
    stream_due: bool,
    /// Nothing is searched in the packet: what a search would find is not there.
    unsearched: bool,
    pub(crate) matches: Vec<Match>,
    /// The transaction that the packet, a datagram that rules matched in, brought: its parser's place, and its number.
    pub(crate) datagram_tx: Option<(u8, u64)>,
    pub(crate) alerts: Vec<Alert>,
    pub(crate) replacements: Vec<(u32, Arc<[u8]>)>,
    contexts: Vec<SetHit>,
    pub(crate) tx: TxScratch,
    pub(crate) thresholds: ThresholdState,
    pub(crate) tags: Tags,
    pub(crate) hosts: HostVars,
    /// What rules captured of the packet.
    pub(crate) packet_vars: CapturedVars,
    pub(crate) counters: DetectCounters,
    /// What the firewall has of the packet.
    pub(crate) firewall: FirewallState,
    /// Every rule is a candidate for every packet: what the prefilters' answers are compared with.
    #[cfg(test)]
    pub(crate) everything: bool,
}

impl<W: Watch> State<W> {
    /// State for one worker that works with `detect`.
    ///
    /// # Errors
    /// Where the matcher's scratch cannot be allocated.
    pub(crate) fn watched(detect: &Detect, watch: W) -> Result<State<W>, MpmError> {
        let c = &detect.config;
        let mut s = State {
            scratch: detect.scratch()?,
            context: InspectContext::watched(watch),
            transforms: TransformScratch::default(),
            scripts: WorkerScripts::default(),
            cache: SetCache::default(),
            candidates: Vec::with_capacity(1024),
            flow_start: false,
            stream_due: false,
            unsearched: false,
            matches: Vec::with_capacity(256),
            datagram_tx: None,
            alerts: Vec::with_capacity(c.alert_max()),
            replacements: Vec::new(),
            contexts: Vec::new(),
            tx: TxScratch::default(),
            thresholds: ThresholdState::new(c.threshold_memcap, c.threshold_hash_size),
            tags: Tags::new(c.tag_entries),
            hosts: HostVars::new(c.host_entries, c.pair_entries),
            packet_vars: CapturedVars::default(),
            counters: DetectCounters::default(),
            firewall: FirewallState::default(),
            #[cfg(test)]
            everything: false,
        };
        s.tx.prepare(detect.txs.slots());
        s.load_scripts(detect);
        Ok(s)
    }

    /// [`crate::DetectState::share`].
    pub(crate) fn share(&mut self, detect: &Detect) {
        let (counts, hosts) = detect.shared();
        self.thresholds.share(counts);
        self.hosts.share(hosts);
    }

    /// [`crate::DetectState::in_order`].
    pub(crate) fn in_order(&mut self, order: &Arc<dyn InOrder>) {
        self.thresholds.in_order(order);
        self.hosts.in_order(order);
        self.context.order = Some(Arc::clone(order));
    }

    /// [`crate::DetectState::take_over`].
    pub(crate) fn take_over<V: Watch>(&mut self, old: &mut State<V>, keeps_names: bool) {
        self.thresholds.take_over(&mut old.thresholds);
        self.tags.take_over(&mut old.tags);
        if keeps_names {
            self.hosts.take_over(&mut old.hosts);
        }
        self.counters = old.counters;
        self.counters.search_errors += old.scratch.failures().0;
        self.scripts.counters = old.lua_counters();
        self.context.set_full = old.context.set_full;
        self.context.order = self.context.order.take().or(old.context.order.take());
        self.firewall.take_over(&old.firewall);
    }

    /// The alerts of the packet inspected last, in the order of their rules.
    pub(crate) fn alerts(&self) -> &[Alert] {
        &self.alerts
    }

    /// How the first search that failed did so.
    pub(crate) fn search_error(&self) -> Option<ScanError> {
        self.scratch.failures().1
    }

    /// What was counted.
    pub(crate) fn counters(&self) -> DetectCounters {
        let thresholds = self.thresholds.used();
        DetectCounters {
            threshold_memcap: thresholds.evicted,
            threshold_entries: thresholds.entries as u64,
            threshold_memuse: thresholds.memory,
            tag_memcap: self.tags.memcap,
            host_memcap: self.hosts.refused(),
            dataset_memcap: self.context.set_full,
            search_errors: self.counters.search_errors + self.scratch.failures().0,
            lua: self.lua_counters(),
            ..self.counters
        }
    }

    /// Places of the packet's payload that `replace` overwrites, as offset and bytes, where drops are carried out.
    pub(crate) fn replacements(&self) -> &[(u32, Arc<[u8]>)] {
        &self.replacements
    }

    /// What sets say of what was found in them, for an alert of the packet inspected last.
    pub(crate) fn contexts(&self, alert: &Alert) -> &[SetHit] {
        let (from, n) = (alert.context.0 as usize, usize::from(alert.context.1));
        self.contexts.get(from..from + n).unwrap_or_default()
    }

    /// Keeps what sets say of what the rule that just matched found in them.
    pub(crate) fn keep_contexts(&mut self) -> (u32, u8) {
        let hits = self.context.hits();
        if hits.is_empty() {
            return (0, 0);
        }
        let place = (self.contexts.len() as u32, hits.len() as u8);
        self.contexts.extend_from_slice(hits);
        place
    }

    /// Forgets what is known of a flow that ended.
    pub(crate) fn flow_ended(&mut self, id: u64) {
        self.tags.flow_ended(id);
    }

    /// Inspects a packet.
    pub(crate) fn inspect(&mut self, detect: &Detect, input: &mut Input<'_>) -> Verdict {
        self.alerts.clear();
        self.matches.clear();
        self.replacements.clear();
        self.packet_vars.clear();
        self.contexts.clear();
        self.tx.start();
        if let Some(firewall) = &detect.firewall {
            return self.inspect_firewall(detect, firewall, input);
        }
        let flow_action = input.flow.as_ref().map_or(FlowAction::None, |f| f.action);
        let tagged = self.tagged(input);
        if let Some(mut v) = of_flow(flow_action, input.ips) {
            self.context.watch.left_out(input);
            v.tagged = tagged;
            return v;
        }
        let mut verdict = Verdict { tagged, ..Verdict::default() };
        self.counters.packets += 1;
        self.cache.start(&detect.sets);
        let key = PacketKey::new(input.packet, input.dir);
        self.flow_start = !made_up(input.packet) && self.first_of_direction(input);
        self.context.watch.packet(input, &key, self.flow_start);
        self.inspect_packet(detect, input, &key, &mut verdict);
        // Asked before the transactions are inspected, since that clears what says which of them are new.
        self.datagram_tx = if self.matches.is_empty() { None } else { tx_of_datagram(input) };
        self.inspect_app(detect, input, &key, &mut verdict);
        let verdict = self.decide(detect, input, verdict);
        self.context.watch.packet_done();
        verdict
    }

    /// Looks for the rules on packets and streams.
    pub(crate) fn inspect_packet(
        &mut self,
        detect: &Detect,
        input: &mut Input<'_>,
        key: &PacketKey,
        verdict: &mut Verdict,
    ) {
        if self.flow_start {
            self.candidates.clear();
            detect.ip_only.candidates(key, &mut self.candidates);
            #[cfg(test)]
            self.add_everything(detect, true);
            self.run(detect, input, key, verdict, None);
        }
        self.candidates.clear();
        let groups = self.collect(detect, input, key);
        #[cfg(test)]
        self.add_everything(detect, false);
        self.run(detect, input, key, verdict, Some(groups));
        if W::CHECKS {
            while let Some(rule) = self.context.watch.silent().and_then(|n| detect.compiled.get(n as usize)) {
                self.state_holds(detect, rule, input);
            }
        }
    }

    /// Looks for the rules on frames and transactions.
    pub(crate) fn inspect_app(
        &mut self,
        detect: &Detect,
        input: &mut Input<'_>,
        key: &PacketKey,
        verdict: &mut Verdict,
    ) {
        if input.frames.is_some() {
            self.inspect_frames(detect, input, key, verdict);
        }
        if input.txs.is_some() && input.txs_changed {
            self.inspect_txs(detect, input, key, verdict);
        }
    }

    #[cfg(test)]
    fn add_everything(&mut self, detect: &Detect, ip_only: bool) {
        if self.everything {
            let numbered = (0u32..).zip(&detect.compiled);
            self.candidates.extend(numbered.filter(|(_, c)| (c.kind == RuleKind::IpOnly) == ip_only).map(|x| x.0));
        }
    }

    pub(crate) fn subject(input: &Input<'_>) -> Tagged {
        Tagged {
            flow: input.flow.as_ref().map(|f| f.id),
            src: input.packet.src,
            dst: input.packet.dst,
            time: input.packet.time,
            len: input.packet.wire_len,
        }
    }

    pub(crate) fn tagged(&mut self, input: &Input<'_>) -> bool {
        !self.tags.is_empty() && self.tags.packet(&Self::subject(input))
    }

    /// Whether IP-only rules are due: for packets without a flow, and the first of each direction.
    pub(crate) fn first_of_direction(&self, input: &mut Input<'_>) -> bool {
        match (&mut input.flow, input.dir) {
            (Some(flow), Some(dir)) => !std::mem::replace(&mut flow.first_seen[dir.index()], true),
            _ => true,
        }
    }

    /// Gathers the rules that may hold, from the groups of the packet.
    fn collect(&mut self, detect: &Detect, input: &mut Input<'_>, key: &PacketKey) -> GroupIds {
        let packet = input.packet;
        let to_client = input.dir == Some(Direction::ToClient);
        let groups = detect.groups.of(key, to_client, input.app.flow);
        self.stream_due =
            (!input.chunks.is_empty() || input.stream_waits) && detect.groups.each(groups).any(Group::looks_at_streams);
        // The last of the stream before what is encrypted: as in Suricata rules on streams are asked about it, and those on packets
        // about the packet's payload, unless they have a pattern, since nothing is searched.
        self.unsearched = input.no_payload && self.stream_due;
        let search = !self.unsearched;
        input.no_payload &= search;
        let payload = if input.no_payload { &[] } else { payload_of(packet) };
        let has = has::<W>(input, payload);
        let ahead = search && !W::CHECKS && self.searched_ahead(detect, input, groups, payload);
        for group in detect.groups.each(groups) {
            group.always(&has, key, &detect.sets, &mut self.candidates);
            group.waiting(&has, key, &detect.sets, &mut |rule| self.candidates.push(rule));
            if search && !payload.is_empty() && !ahead {
                self.context.watch.searching();
                self.scan(group, Source::Payload, payload);
                if !input.in_stream {
                    self.scan(group, Source::Stream, payload);
                }
                self.context.watch.search_over(false);
            }
            for chunk in input.chunks.iter().filter(|_| search) {
                self.context.watch.searching();
                self.scan_from(group, Source::Stream, chunk.data, chunk.seen);
                self.context.watch.search_over(true);
            }
            self.scan_headers(group, packet);
        }
        self.scratch.forget();
        groups
    }

    /// Takes over what another thread found in the payload, if one looked.
    #[inline]
    fn searched_ahead(&mut self, detect: &Detect, input: &Input<'_>, groups: GroupIds, payload: &[u8]) -> bool {
        let Some(ahead) = input.ahead.filter(|_| payload.len() >= AHEAD_MIN) else { return false };
        ahead.found(Recipe::new(detect, groups, !input.in_stream), payload, &mut self.candidates)
    }

    fn scan(&mut self, group: &Group, source: Source, data: &[u8]) {
        self.scan_from(group, source, data, 0);
    }

    /// Searches data of which the first `seen` bytes were searched before.
    fn scan_from(&mut self, group: &Group, source: Source, data: &[u8], seen: usize) {
        group.scan_from(source, data, seen, &mut self.scratch, &mut self.candidates);
        if W::CHECKS {
            self.context.watch.searched(Searched::Packet(source), Some(data));
        }
    }

    fn scan_headers(&mut self, group: &Group, packet: &Packet<'_>) {
        for h in group.headers() {
            if let Some(data) = PacketBuffer::from_index(h).and_then(|b| b.get(packet)) {
                self.scan(group, Source::Header(h), data);
            }
        }
    }

    /// Checks the candidates in the order of rules; each rule once. `groups` are those that rules may come from besides, when
    /// a rule before them changes bits of the flow.
    fn run(
        &mut self,
        detect: &Detect,
        input: &mut Input<'_>,
        key: &PacketKey,
        verdict: &mut Verdict,
        groups: Option<GroupIds>,
    ) {
        self.candidates.sort_unstable();
        self.candidates.dedup();
        if groups.is_some() {
            self.tx.take_payload(input.app.flow, &mut self.candidates);
        }
        self.counters.candidates += self.candidates.len() as u64;
        let mut candidates = std::mem::take(&mut self.candidates);
        let mut next = 0;
        while let Some(&number) = candidates.get(next) {
            next += 1;
            let Some(rule) = detect.compiled.get(number as usize) else { continue };
            let ways = rule.header.ways(key, &detect.sets, &mut self.cache);
            for _ in 0..ways {
                self.context.watch.begin(number, Look::Packet);
                let held = self.holds(detect, rule, input);
                self.context.watch.end(number, if held.is_some() { End::Match } else { End::Fail });
                self.keep_entropy(input.flow.as_deref_mut());
                if let Some(stream) = held {
                    self.keep_captures(input.flow.as_deref_mut());
                    let before = bits_set(input);
                    self.apply(rule, input, verdict, None);
                    if let Some(groups) = groups
                        && rule.bits != ChangesBits::No
                        && (rule.bits == ChangesBits::Any || bits_set(input) != before)
                    {
                        add_waiting::<W>(detect, groups, input, key, number, &mut candidates, next);
                    }
                    let context = self.keep_contexts();
                    self.matches.push(Match {
                        rule: number,
                        tx_id: None,
                        stream,
                        parser: 0,
                        file: None,
                        frame: None,
                        context,
                    });
                }
            }
        }
        self.candidates = candidates;
    }

    /// What the rule does besides its action; thresholds have no say in it.
    pub(crate) fn apply(
        &mut self,
        rule: &CompiledRule,
        input: &mut Input<'_>,
        verdict: &mut Verdict,
        tx: Option<(&mut TxBase, Direction, Option<u32>, u32)>,
    ) {
        if rule.effects.is_empty() {
            return;
        }
        let mut target = EffectTarget {
            packet: input.packet,
            flow: input.flow.as_deref_mut().map(|f| &mut f.vars),
            hosts: Some(&mut self.hosts),
            bypass: verdict.bypass,
            mark: verdict.mark,
            tx: tx.map(|(base, dir, file, sid)| TxTarget { base, dir, file, sid, files: input.files.as_deref_mut() }),
        };
        for e in &rule.effects {
            e.apply(&mut target);
        }
        (verdict.bypass, verdict.mark) = (target.bypass, target.mark);
    }

    /// Whether all of a rule's checks hold; and whether that was in stream data.
    fn holds(&mut self, detect: &Detect, rule: &CompiledRule, input: &Input<'_>) -> Option<bool> {
        // Nobody sent it: there is nothing in it but the stream that it comes with.
        let of_packet = rule.payload.is_empty() || rule.kind == RuleKind::Packet;
        if of_packet
            && made_up(input.packet)
            && !(input.changing && rule.of_change)
            && !rule.lua.as_ref().is_some_and(|l| l.at == LuaAt::Stream)
        {
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
            stream_due: !input.chunks.is_empty() || input.stream_waits,
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
    fn in_chunk(&mut self, rule: &CompiledRule, chunk: &StreamChunk<'_>) -> bool {
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

    fn all(&mut self, inspections: &[Inspection], data: &[u8]) -> bool {
        let marks = self.context.marks();
        let all = inspections.iter().all(|i| self.matches(i, data));
        if !all {
            self.context.rewind(marks);
        }
        all
    }

    fn matches_payload(&mut self, i: &Inspection, payload: &[u8], ips: bool) -> bool {
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
fn bits_set(input: &Input<'_>) -> usize {
    input.flow.as_ref().map_or(0, |f| f.vars.bits().len())
}

/// Puts rules after `number` for which the flow has the bits among the candidates, those from `next` on: `number` changed some.
fn add_waiting<W: Watch>(
    detect: &Detect,
    groups: GroupIds,
    input: &Input<'_>,
    key: &PacketKey,
    number: u32,
    candidates: &mut Vec<u32>,
    next: usize,
) {
    let payload = if input.no_payload { &[] } else { payload_of(input.packet) };
    let has = has::<W>(input, payload);
    for group in detect.groups.each(groups) {
        group.waiting(&has, key, &detect.sets, &mut |rule| {
            let rest = candidates.get(next..).unwrap_or_default();
            if rule > number
                && let Err(at) = rest.binary_search(&rule)
            {
                candidates.insert(next + at, rule);
            }
        });
    }
}

/// What the packet has that rules without a pattern may need.
fn has<'a, W: Watch>(input: &'a Input<'_>, payload: &[u8]) -> Has<'a> {
    let (packet, tcp) = (input.packet, input.packet.tcp());
    let ip = header::ip_fields(packet);
    let needs = Needs::DATA
        .if_so(!payload.is_empty() || !input.chunks.is_empty() || input.stream_waits)
        .and(Needs::FLOW.if_so(input.flow.is_some()))
        .and(Needs::ESTABLISHED.if_so(input.established))
        .and(Needs::STREAM_EVENT.if_so(input.stream_events != 0))
        .and(Needs::DECODE_EVENT.if_so(!packet.events.is_empty()))
        .and(Needs::PROTOCOL.if_so(input.protocol_due))
        .and(Needs::PROTOCOL_TOLD.if_so(input.protocol_told))
        .and(Needs::APP.if_so(input.app.flow.is_known()))
        .and(Needs::SAME_IP.if_so(packet.is_ip() && packet.src == packet.dst))
        .and(Needs::IP_OPTIONS.if_so(matches!(packet.l3, L3::Ipv4 { options, .. } if options != 0)))
        .and(Needs::FRAGMENT.if_so(ip.fragment & 0xbfff != 0 || packet.fragment))
        .and(Needs::NO_ACK.if_so(tcp.is_some_and(|t| t.ack() == 0)));
    Has {
        needs,
        flags: tcp.map_or(0, |t| t.flags()),
        payload: u32::try_from(payload.len()).unwrap_or(u32::MAX),
        // Who watches wants to be told which check does not hold.
        head: (!W::CHECKS).then(|| first_of(payload)),
        ttl: ip.ttl,
        id: ip.id,
        window: tcp.map_or(0, |t| t.window()),
        vars: input.flow.as_deref().map(|f| &f.vars),
    }
}
