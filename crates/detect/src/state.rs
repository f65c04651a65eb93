//! One worker's detection: it collects the candidates of a packet, checks them in order and decides on the matches
//! (`decide`).

mod checks;
mod decide;
mod file;
mod firewall;
mod frame;
mod scripts;
mod step;
mod transaction;
mod values;
mod vars;

use std::sync::Arc;

use margay_app::TxBase;
use margay_flow::{CapturedVars, Direction, FlowAction};
use margay_packet::{L3, Packet, PacketSource};

use crate::ahead::{AHEAD_MIN, SearchPlan};
use crate::buffer::{PacketBuffer, bytes};
use crate::checks::header;
use crate::counters::DetectCounters;
use crate::dataset::SetHit;
use crate::detect::Detect;
use crate::effect::{EffectTarget, TxTarget};
use crate::group::{Group, GroupIds, Has, Needs, Source};
use crate::head::first_of;
use crate::header::{PacketKey, SetCache, payload_of};
use crate::hostvars::HostVars;
use crate::input::{Alert, Input, Verdict, of_flow};
use crate::inspect::{InspectContext, Off};
use crate::mpm::{MpmError, ScanError, Scratch};
use crate::rule::{ChangesBits, CompiledRule};
use crate::shareable::InOrder;
use crate::tag::{Tagged, Tags};
use crate::threshold::ThresholdState;
use crate::transform::TransformScratch;
use crate::watch::{End, Look, Searched, Watch};
use checks::bits_set;
use decide::tx_of_datagram;
use firewall::FirewallState;
use scripts::WorkerScripts;
use values::TxScratch;

/// A rule that matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Match {
    pub(crate) rule: u32,
    pub(crate) tx_id: Option<u64>,
    pub(crate) stream: bool,
    /// The index of the transaction's parser.
    pub(crate) parser: u8,
    /// The index of the file among all files of the transaction.
    pub(crate) file: Option<u32>,
    /// The number of the frame.
    pub(crate) frame: Option<u64>,
    /// Start and length of the dataset contexts in [`DetectState::contexts`].
    pub(crate) context: (u32, u8),
}

impl Match {
    /// Whether the rule matched in the same transaction.
    pub(crate) fn is_of(&self, other: &Match) -> bool {
        (self.rule, self.parser, self.tx_id) == (other.rule, other.parser, other.tx_id)
    }
}

/// Whether this is a pseudo packet, which the engine creates to inspect the rest of a stream.
pub(crate) fn made_up(p: &Packet<'_>) -> bool {
    matches!(p.source, PacketSource::StreamFlowTimeout | PacketSource::StreamFlush)
}

/// One worker's state.
#[derive(Debug)]
pub(crate) struct State<W = Off> {
    pub(crate) scratch: Scratch,
    pub(crate) context: InspectContext<W>,
    pub(crate) transforms: TransformScratch,
    /// This worker's instances of the rule scripts.
    pub(crate) scripts: WorkerScripts,
    pub(crate) cache: SetCache,
    pub(crate) candidates: Vec<u32>,
    /// Whether the packet is the first of its flow in its direction.
    pub(crate) flow_start: bool,
    /// Whether stream data is due with the packet, and a rule for its direction and port inspects streams.
    stream_due: bool,
    /// Whether the packet is not searched. Contents that a search would find then count as absent.
    unsearched: bool,
    pub(crate) matches: Vec<Match>,
    /// The transaction that the packet brought, if it is a datagram that rules matched in: the parser's index and the
    /// transaction's number.
    pub(crate) datagram_tx: Option<(u8, u64)>,
    pub(crate) alerts: Vec<Alert>,
    pub(crate) replacements: Vec<(u32, Arc<[u8]>)>,
    contexts: Vec<SetHit>,
    pub(crate) tx: TxScratch,
    pub(crate) thresholds: ThresholdState,
    pub(crate) tags: Tags,
    pub(crate) hosts: HostVars,
    /// Variables that rules captured from the packet.
    pub(crate) packet_vars: CapturedVars,
    pub(crate) counters: DetectCounters,
    /// The firewall's state for the packet.
    pub(crate) firewall: FirewallState,
    /// Makes every rule a candidate for every packet. Tests compare this with the prefilters' results.
    #[cfg(test)]
    pub(crate) everything: bool,
}

impl<W: Watch> State<W> {
    /// State for a worker that uses `detect`.
    ///
    /// # Errors
    /// If the matcher's scratch space cannot be allocated.
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

    /// The alerts of the last inspected packet, in rule order.
    pub(crate) fn alerts(&self) -> &[Alert] {
        &self.alerts
    }

    /// The error of the first search that failed.
    pub(crate) fn search_error(&self) -> Option<ScanError> {
        self.scratch.failures().1
    }

    /// The worker's counters.
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

    /// Parts of the packet's payload that `replace` overwrites, as offset and bytes. Only in IPS mode.
    pub(crate) fn replacements(&self) -> &[(u32, Arc<[u8]>)] {
        &self.replacements
    }

    /// The dataset contexts of an alert of the last inspected packet.
    pub(crate) fn contexts(&self, alert: &Alert) -> &[SetHit] {
        let (from, n) = (alert.context.0 as usize, usize::from(alert.context.1));
        self.contexts.get(from..from + n).unwrap_or_default()
    }

    /// Keeps the dataset contexts of the rule that just matched.
    pub(crate) fn keep_contexts(&mut self) -> (u32, u8) {
        let hits = self.context.hits();
        if hits.is_empty() {
            return (0, 0);
        }
        let place = (self.contexts.len() as u32, hits.len() as u8);
        self.contexts.extend_from_slice(hits);
        place
    }

    /// Drops the state of a flow that ended.
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
        let key = self.begin(detect, input);
        self.inspect_packet(detect, input, &key, &mut verdict);
        // Determined before the transactions are inspected, since that clears the marks of new ones.
        self.datagram_tx = if self.matches.is_empty() { None } else { tx_of_datagram(input) };
        self.inspect_app(detect, input, &key, &mut verdict);
        let verdict = self.decide(detect, input, verdict);
        self.context.watch.packet_done();
        verdict
    }

    /// Counts a packet that rules see, and prepares what they look up.
    pub(crate) fn begin(&mut self, detect: &Detect, input: &mut Input<'_>) -> PacketKey {
        self.counters.packets += 1;
        self.cache.start(&detect.sets);
        let key = PacketKey::new(input.packet, input.dir);
        self.flow_start = !made_up(input.packet) && self.first_of_direction(input);
        self.context.watch.packet(input, &key, self.flow_start);
        key
    }

    /// Runs the rules on packets and streams.
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

    /// Runs the rules on frames and transactions.
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
            self.candidates
                .extend(numbered.filter(|(_, c)| (c.kind == crate::kind::RuleKind::IpOnly) == ip_only).map(|x| x.0));
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

    /// Whether IP-only rules are due: for a packet without a flow, and for the first packet of each direction.
    pub(crate) fn first_of_direction(&self, input: &mut Input<'_>) -> bool {
        match (&mut input.flow, input.dir) {
            (Some(flow), Some(dir)) => !std::mem::replace(&mut flow.first_seen[dir.index()], true),
            _ => true,
        }
    }

    /// Collects candidate rules from the packet's groups.
    fn collect(&mut self, detect: &Detect, input: &mut Input<'_>, key: &PacketKey) -> GroupIds {
        let packet = input.packet;
        let to_client = input.dir == Some(Direction::ToClient);
        let groups = detect.groups.of(key, to_client, input.app.flow);
        self.stream_due =
            (!input.chunks.is_empty() || input.stream_waits) && detect.groups.look_at_streams(key, to_client);
        // The end of the stream before encryption starts. As in Suricata, stream rules inspect it. Packet rules inspect
        // the packet's payload only if they have no pattern, since nothing is searched.
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

    /// Uses the result of another thread's search in the payload, if there is one.
    #[inline]
    fn searched_ahead(&mut self, detect: &Detect, input: &Input<'_>, groups: GroupIds, payload: &[u8]) -> bool {
        let Some(ahead) = input.ahead.filter(|_| payload.len() >= AHEAD_MIN) else { return false };
        ahead.found(SearchPlan::of(detect.serial(), groups, !input.in_stream), payload, &mut self.candidates)
    }

    fn scan(&mut self, group: &Group, source: Source, data: &[u8]) {
        self.scan_from(group, source, data, 0);
    }

    /// Searches data whose first `seen` bytes were searched before.
    fn scan_from(&mut self, group: &Group, source: Source, data: &[u8], seen: usize) {
        group.scan_from(source, data, seen, &mut self.scratch, &mut self.candidates);
        if W::CHECKS {
            self.context.watch.searched(Searched::Packet(source), Some(data));
        }
    }

    fn scan_headers(&mut self, group: &Group, packet: &Packet<'_>) {
        for h in group.headers() {
            if let Some(data) = PacketBuffer::from_index(h).and_then(|b| bytes(b, packet)) {
                self.scan(group, Source::Header(h), data);
            }
        }
    }

    /// Checks the candidates in rule order, each rule once. When a rule changes flow bits, later rules of `groups` may
    /// become candidates too.
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

    /// Applies the rule's effects besides its action. Thresholds do not affect them.
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
}

/// Adds later rules to the candidates from `next` on, after rule `number` changed flow bits that they wait for.
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

/// The properties of the packet that rules without a pattern may need.
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
        // A watcher must see which check fails, so nothing is filtered by the first bytes then.
        head: (!W::CHECKS).then(|| first_of(payload)),
        ttl: ip.ttl,
        id: ip.id,
        window: tcp.map_or(0, |t| t.window()),
        vars: input.flow.as_deref().map(|f| &f.vars),
    }
}
