//! The mutable state of one worker, plain or watched.

use std::sync::Arc;

use margay_flow::CapturedVars;

use crate::counters::DetectCounters;
use crate::detect::Detect;
use crate::firewall::{HookOutcome, PacketHook};
use crate::hostvars::HostVars;
use crate::input::{Alert, Input, Verdict};
use crate::inspect::Off;
use crate::lineage::RulesMark;
use crate::mpm::{MpmError, ScanError};
use crate::shareable::InOrder;
use crate::state::State;
use crate::tag::FlowTags;
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
    /// State for a worker that uses `detect`.
    ///
    /// # Errors
    /// If the matcher's scratch space cannot be allocated.
    pub fn new(detect: &Detect) -> Result<DetectState, MpmError> {
        Ok(DetectState(Kind::Plain(Box::new(State::watched(detect, Off)?))))
    }

    /// As [`Self::new`], and records what happens to the rules with these numbers ([`Detect::rules`]), whose trees were
    /// kept. Slower.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn explaining(detect: &Arc<Detect>, rules: &[u32]) -> Result<DetectState, MpmError> {
        Ok(DetectState(Kind::Traced(Box::new(State::watched(detect, Tracer::new(detect, rules))?))))
    }

    /// As [`Self::new`], and measures the cost of each rule with one packet in `every`.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn profiling(detect: &Detect, every: u32) -> Result<DetectState, MpmError> {
        Ok(DetectState(Kind::Profiled(Box::new(State::watched(detect, Profile::new(detect.rules().len(), every))?))))
    }

    /// As [`Self::new`], and measures where the time of each packet goes.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn timing(detect: &Detect) -> Result<DetectState, MpmError> {
        Ok(DetectState(Kind::Profiled(Box::new(State::watched(detect, Profile::of_packets())?))))
    }

    /// The first error of the pattern matcher since this state was created.
    pub fn search_error(&self) -> Option<ScanError> {
        each!(&self.0, s => s.search_error())
    }

    /// Where the packets' time went since the last call; `None` if that is not measured.
    pub fn take_times(&mut self) -> Option<PacketTimes> {
        match &mut self.0 {
            Kind::Profiled(s) => s.context.watch.take_times(),
            _ => None,
        }
    }

    /// What happened to the rules that are being explained; empty if there are none.
    pub fn traces(&self) -> &[RuleTrace] {
        match &self.0 {
            Kind::Traced(s) => s.context.watch.traces(),
            _ => &[],
        }
    }

    /// The cost of each rule, by its number; empty if that is not measured.
    pub fn costs(&self) -> &[RuleCosts] {
        match &self.0 {
            Kind::Profiled(s) => s.context.watch.costs(),
            _ => &[],
        }
    }

    /// Makes counts by address and host bits those of all workers that share `detect`. Call it before the worker's first
    /// packet, if there are several workers.
    pub fn share(&mut self, detect: &Detect) {
        each!(&mut self.0, s => s.share(detect));
    }

    /// Accesses shared state ([`DetectState::share`]) in packet order. For one of several workers that take packets from
    /// one capture stream.
    pub fn in_order(&mut self, order: &Arc<dyn InOrder>) {
        each!(&mut self.0, s => s.in_order(order));
    }

    /// Replaces the worker's state `old`, which was made for the rules that `from` marks, and takes over the state that
    /// outlives them ([`crate::lineage`]). The cost is a few moves however much there is to take over. If costs are
    /// measured, it is one move for each rule.
    pub fn take_over(&mut self, old: &mut DetectState, detect: &Detect, from: RulesMark) {
        let names = detect.keeps_names(from);
        each!(&mut self.0, new => each!(&mut old.0, old => new.take_over(old, names)));
        if let (Kind::Profiled(new), Kind::Profiled(old)) = (&mut self.0, &old.0) {
            new.context.watch.take_over(&old.context.watch, detect.places_of(from));
        }
    }

    /// Host and host pair bits.
    pub fn hosts(&self) -> &HostVars {
        each!(&self.0, s => &s.hosts)
    }

    /// Host and host pair bits, to change.
    pub fn hosts_mut(&mut self) -> &mut HostVars {
        each!(&mut self.0, s => &mut s.hosts)
    }

    /// Inspects a packet.
    pub fn inspect(&mut self, detect: &Detect, input: &mut Input<'_>) -> Verdict {
        each!(&mut self.0, s => s.inspect(detect, input))
    }

    /// Runs the firewall hook before the flow (first of all, for every packet) or before the stream.
    pub fn firewall_hook(&mut self, detect: &Detect, hook: PacketHook, input: &mut Input<'_>) -> HookOutcome {
        each!(&mut self.0, s => s.firewall_hook(detect, hook, input))
    }

    /// Whether a `config` rule keeps the packet out of flow tracking. Called before the flow lookup.
    pub fn untracked(&mut self, detect: &Detect, input: &mut Input<'_>) -> bool {
        each!(&mut self.0, s => s.untracked(detect, input))
    }

    /// The alerts of the last inspected packet, in rule order.
    pub fn alerts(&self) -> &[Alert] {
        each!(&self.0, s => s.alerts())
    }

    /// The worker's counters.
    pub fn counters(&self) -> DetectCounters {
        each!(&self.0, s => s.counters())
    }

    /// Alerts of firewall rules dropped because the packet had too many.
    pub fn discarded_firewall_alerts(&self) -> u64 {
        each!(&self.0, s => s.discarded_firewall_alerts())
    }

    /// Parts of the packet's payload that `replace` overwrites, as offset and bytes. Only in IPS mode.
    pub fn replacements(&self) -> &[(u32, Arc<[u8]>)] {
        each!(&self.0, s => s.replacements())
    }

    /// The context that datasets give an alert of the last inspected packet: name and JSON object.
    pub fn contexts(&self, alert: &Alert) -> impl Iterator<Item = (&str, &[u8])> {
        each!(&self.0, s => s.contexts(alert)).iter().filter_map(crate::dataset::SetHit::context)
    }

    /// Variables of the last inspected packet.
    pub fn packet_vars(&self) -> &CapturedVars {
        each!(&self.0, s => s.packet_vars())
    }

    /// Removes and returns the state of a flow that moves to another worker, if there is some.
    pub fn flow_leaves(&mut self, id: u64) -> Option<FlowTags> {
        each!(&mut self.0, s => s.tags.leave(id))
    }

    /// Adds the state of a flow that comes from another worker.
    pub fn flow_enters(&mut self, id: u64, tags: FlowTags) {
        each!(&mut self.0, s => s.tags.enter(id, tags));
    }

    /// Forgets what is known of a flow that ended.
    pub fn flow_ended(&mut self, id: u64) {
        each!(&mut self.0, s => s.flow_ended(id));
    }
}
