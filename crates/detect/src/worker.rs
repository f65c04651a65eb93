//! What one worker writes: inspection as it is, or watched.

use std::sync::Arc;

use margay_flow::CapturedVars;

use crate::counters::DetectCounters;
use crate::detect::Detect;
use crate::firewall::{HookOutcome, PacketHook};
use crate::hostvars::HostVars;
use crate::input::{Alert, Input, Verdict};
use crate::lineage::RulesMark;
use crate::mpm::{MpmError, ScanError};
use crate::shareable::InOrder;
use crate::state::State;
use crate::tag::FlowTags;
use crate::watch::Off;
use crate::watch::profile::{PacketTimes, Profile, RuleCosts};
use crate::watch::report::RuleTrace;
use crate::watch::trace::Tracer;

/// One worker's state.
#[derive(Debug)]
pub struct DetectState(Kind);

#[derive(Debug)]
enum Kind {
    Plain(Box<State<Off>>),
    Traced(Box<State<Tracer>>),
    Profiled(Box<State<Profile>>),
}

macro_rules! each {
    ($of:expr, $s:ident => $do:expr) => {
        match $of {
            Kind::Plain($s) => $do,
            Kind::Traced($s) => $do,
            Kind::Profiled($s) => $do,
        }
    };
}

impl DetectState {
    /// State for one worker that works with `detect`.
    ///
    /// # Errors
    /// Where the matcher's scratch cannot be allocated.
    pub fn new(detect: &Detect) -> Result<DetectState, MpmError> {
        Ok(DetectState(Kind::Plain(Box::new(State::watched(detect, Off)?))))
    }

    /// The same, writing down what becomes of the rules with these numbers ([`Detect::rules`]), of which the trees were
    /// kept; slower.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn explaining(detect: &Arc<Detect>, rules: &[u32]) -> Result<DetectState, MpmError> {
        Ok(DetectState(Kind::Traced(Box::new(State::watched(detect, Tracer::new(detect, rules))?))))
    }

    /// The same, measuring what each rule costs with one packet in `every`.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn profiling(detect: &Detect, every: u32) -> Result<DetectState, MpmError> {
        Ok(DetectState(Kind::Profiled(Box::new(State::watched(detect, Profile::new(detect.rules().len(), every))?))))
    }

    /// The same, measuring where the time of each packet goes.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn timing(detect: &Detect) -> Result<DetectState, MpmError> {
        Ok(DetectState(Kind::Profiled(Box::new(State::watched(detect, Profile::of_packets())?))))
    }

    /// How the pattern matcher failed, where it did: the first time since this state was made.
    pub fn search_error(&self) -> Option<ScanError> {
        each!(&self.0, s => s.search_error())
    }

    /// Where the time of packets went since this was last asked; none where that is not measured.
    pub fn take_times(&mut self) -> Option<PacketTimes> {
        match &mut self.0 {
            Kind::Profiled(s) => s.context.watch.take_times(),
            _ => None,
        }
    }

    /// What became of the rules that are being explained; nothing where none are.
    pub fn traces(&self) -> &[RuleTrace] {
        match &self.0 {
            Kind::Traced(s) => s.context.watch.traces(),
            _ => &[],
        }
    }

    /// What each rule cost, by its number; nothing where that is not measured.
    pub fn costs(&self) -> &[RuleCosts] {
        match &self.0 {
            Kind::Profiled(s) => s.context.watch.costs(),
            _ => &[],
        }
    }

    /// From here on counts by address, and bits of hosts, are those of all workers that share `detect`: for one of several
    /// workers, before its first packet.
    pub fn share(&mut self, detect: &Detect) {
        each!(&mut self.0, s => s.share(detect));
    }

    /// From here on what is shared ([`DetectState::share`]) is looked at in the order of packets: for one of several workers that
    /// have their packets from one stream.
    pub fn in_order(&mut self, order: &Arc<dyn InOrder>) {
        each!(&mut self.0, s => s.in_order(order));
    }

    /// Takes the place of the state `old` of a worker, made for the rules of the set that `from` marks: takes over what
    /// outlives them ([`crate::lineage`]). Costs a few moves, whatever there is to take over; where costs are measured, one
    /// for each rule.
    pub fn take_over(&mut self, old: &mut DetectState, detect: &Detect, from: RulesMark) {
        let names = detect.keeps_names(from);
        each!(&mut self.0, new => each!(&mut old.0, old => new.take_over(old, names)));
        if let (Kind::Profiled(new), Kind::Profiled(old)) = (&mut self.0, &old.0) {
            new.context.watch.take_over(&old.context.watch, detect.places_of(from));
        }
    }

    /// Bits of hosts and pairs of hosts.
    pub fn hosts(&self) -> &HostVars {
        each!(&self.0, s => &s.hosts)
    }

    /// The same, to write to.
    pub fn hosts_mut(&mut self) -> &mut HostVars {
        each!(&mut self.0, s => &mut s.hosts)
    }

    /// Inspects a packet.
    pub fn inspect(&mut self, detect: &Detect, input: &mut Input<'_>) -> Verdict {
        each!(&mut self.0, s => s.inspect(detect, input))
    }

    /// Asks the table of packets before the flow (first of all, for every packet), or before the stream.
    pub fn firewall_hook(&mut self, detect: &Detect, hook: PacketHook, input: &mut Input<'_>) -> HookOutcome {
        each!(&mut self.0, s => s.firewall_hook(detect, hook, input))
    }

    /// Whether a `config` rule wants the packet to belong to no flow; asked before its flow is looked up.
    pub fn untracked(&mut self, detect: &Detect, input: &mut Input<'_>) -> bool {
        each!(&mut self.0, s => s.untracked(detect, input))
    }

    /// The alerts of the packet inspected last, in the order of their rules.
    pub fn alerts(&self) -> &[Alert] {
        each!(&self.0, s => s.alerts())
    }

    /// What was counted.
    pub fn counters(&self) -> DetectCounters {
        each!(&self.0, s => s.counters())
    }

    /// Alerts of firewall rules that were not written because the packet had too many.
    pub fn discarded_firewall_alerts(&self) -> u64 {
        each!(&self.0, s => s.discarded_firewall_alerts())
    }

    /// Places of the packet's payload that `replace` overwrites, as offset and bytes, where drops are carried out.
    pub fn replacements(&self) -> &[(u32, Arc<[u8]>)] {
        each!(&self.0, s => s.replacements())
    }

    /// What sets say of what was found in them, for an alert of the packet inspected last: name and JSON object.
    pub fn contexts(&self, alert: &Alert) -> impl Iterator<Item = (&str, &[u8])> {
        each!(&self.0, s => s.contexts(alert)).iter().filter_map(crate::dataset::SetHit::context)
    }

    /// Variables of the packet inspected last.
    pub fn packet_vars(&self) -> &CapturedVars {
        each!(&self.0, s => s.packet_vars())
    }

    /// Takes out what is kept of a flow that goes on at another worker, if there is something.
    pub fn flow_leaves(&mut self, id: u64) -> Option<FlowTags> {
        each!(&mut self.0, s => s.tags.leave(id))
    }

    /// Takes in what another worker kept of a flow that comes from there.
    pub fn flow_enters(&mut self, id: u64, tags: FlowTags) {
        each!(&mut self.0, s => s.tags.enter(id, tags));
    }

    /// Forgets what is known of a flow that ended.
    pub fn flow_ended(&mut self, id: u64) {
        each!(&mut self.0, s => s.flow_ended(id));
    }
}
