//! Counters of the flow table, by their names in Suricata's statistics.

use crate::FlowState;

/// Counters and gauges of a [`crate::FlowTable`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub struct FlowCounters {
    /// Packets whose flow could not be created because memory ran out.
    pub memcap: u64,
    /// Flows created.
    pub total: u64,
    /// Flows in the table.
    pub active: u64,
    /// Flows that became elephants.
    pub elephant: u64,
    pub tcp: u64,
    pub udp: u64,
    pub icmpv4: u64,
    pub icmpv6: u64,
    /// Flows that ended because a new TCP connection began on their ports.
    pub tcp_reuse: u64,
    /// Flows evicted to make room.
    pub get_used: u64,
    /// Flows inspected to find one to evict.
    pub get_used_eval: u64,
    pub get_used_eval_reject: u64,
    /// Failed searches for a flow to evict.
    pub get_used_failed: u64,
    /// Flows evicted because their bucket was full.
    pub chain_evicted: u64,
    /// Flows that ended, by their last state.
    pub end_state: [u64; 5],
    /// Ended TCP flows by the state of their session; the engine sets it with [`FlowCounters::tcp_end`].
    pub end_tcp_state: [u64; 11],
    /// Ended TCP flows whose data was not checked strictly.
    pub end_tcp_liberal: u64,
    pub mgr_full_hash_pass: u64,
    pub mgr_rows_maxlen: u64,
    pub mgr_flows_checked: u64,
    pub mgr_flows_notimeout: u64,
    pub mgr_flows_timeout: u64,
    pub mgr_flows_evicted: u64,
    /// Flows whose timeout was noticed when the next packet with the same key came.
    pub wrk_flows_evicted: u64,
    /// Allocated but free flows.
    pub spare: u64,
    pub emerg_mode_entered: u64,
    pub emerg_mode_over: u64,
    pub recycled: u64,
    /// Memory in bytes.
    pub memuse: u64,
    /// Packets and bytes of locally bypassed flows.
    pub bypassed_local_pkts: u64,
    pub bypassed_local_bytes: u64,
    /// Packets and bytes that arrived despite a bypass in the capture.
    pub bypassed_capture_pkts: u64,
    pub bypassed_capture_bytes: u64,
    /// Bypassed flows that ended, and their counts.
    pub bypassed_closed: u64,
    pub bypassed_pkts: u64,
    pub bypassed_bytes: u64,
}

/// Names of TCP states, in the order of [`FlowCounters::end_tcp_state`].
pub const TCP_STATES: [&str; 11] = [
    "none",
    "syn_sent",
    "syn_recv",
    "established",
    "fin_wait1",
    "fin_wait2",
    "time_wait",
    "last_ack",
    "close_wait",
    "closing",
    "closed",
];

impl FlowCounters {
    /// Counts a TCP flow that ended with its session in state `state` (index in [`TCP_STATES`]).
    pub fn tcp_end(&mut self, state: usize, liberal: bool) {
        if let Some(c) = self.end_tcp_state.get_mut(state) {
            *c += 1;
        }
        self.end_tcp_liberal += u64::from(liberal);
    }

    pub(crate) const fn state_index(state: FlowState) -> usize {
        match state {
            FlowState::New => 0,
            FlowState::Established => 1,
            FlowState::Closed => 2,
            FlowState::LocalBypassed => 3,
            FlowState::CaptureBypassed => 4,
        }
    }

    /// Calls `f` with each name and value.
    pub fn for_each(&self, f: &mut dyn FnMut(&str, u64)) {
        const STATES: [&str; 5] = [
            "flow.end.state.new",
            "flow.end.state.established",
            "flow.end.state.closed",
            "flow.end.state.local_bypassed",
            "flow.end.state.capture_bypassed",
        ];
        const TCP: [&str; 11] = [
            "flow.end.tcp_state.none",
            "flow.end.tcp_state.syn_sent",
            "flow.end.tcp_state.syn_recv",
            "flow.end.tcp_state.established",
            "flow.end.tcp_state.fin_wait1",
            "flow.end.tcp_state.fin_wait2",
            "flow.end.tcp_state.time_wait",
            "flow.end.tcp_state.last_ack",
            "flow.end.tcp_state.close_wait",
            "flow.end.tcp_state.closing",
            "flow.end.tcp_state.closed",
        ];
        f("flow.memcap", self.memcap);
        f("flow.total", self.total);
        f("flow.active", self.active);
        f("flow.elephant", self.elephant);
        f("flow.tcp", self.tcp);
        f("flow.udp", self.udp);
        f("flow.icmpv4", self.icmpv4);
        f("flow.icmpv6", self.icmpv6);
        f("flow.tcp_reuse", self.tcp_reuse);
        f("flow.get_used", self.get_used);
        f("flow.get_used_eval", self.get_used_eval);
        f("flow.get_used_eval_reject", self.get_used_eval_reject);
        f("flow.get_used_eval_busy", 0);
        f("flow.get_used_failed", self.get_used_failed);
        f("flow.chain_evicted", self.chain_evicted);
        // A table has one owner: threads exchange no flows, and spare flows belong to the table.
        f("flow.wrk.spare_sync_avg", 0);
        f("flow.wrk.spare_sync", 0);
        f("flow.wrk.spare_sync_incomplete", 0);
        f("flow.wrk.spare_sync_empty", 0);
        f("flow.wrk.flows_evicted_needs_work", 0);
        f("flow.wrk.flows_evicted_pkt_inject", 0);
        f("flow.wrk.flows_evicted", self.wrk_flows_evicted);
        f("flow.wrk.flows_injected", 0);
        f("flow.wrk.flows_injected_max", 0);
        for (name, value) in STATES.iter().zip(self.end_state) {
            f(name, value);
        }
        for (name, value) in TCP.iter().zip(self.end_tcp_state) {
            f(name, value);
        }
        f("flow.end.tcp_liberal", self.end_tcp_liberal);
        f("flow.mgr.full_hash_pass", self.mgr_full_hash_pass);
        f("flow.mgr.rows_per_sec", 0);
        f("flow.mgr.rows_maxlen", self.mgr_rows_maxlen);
        f("flow.mgr.flows_checked", self.mgr_flows_checked);
        f("flow.mgr.flows_notimeout", self.mgr_flows_notimeout);
        f("flow.mgr.flows_timeout", self.mgr_flows_timeout);
        f("flow.mgr.flows_evicted", self.mgr_flows_evicted);
        f("flow.mgr.flows_evicted_needs_work", 0);
        f("flow.spare", self.spare);
        f("flow.emerg_mode_entered", self.emerg_mode_entered);
        f("flow.emerg_mode_over", self.emerg_mode_over);
        f("flow.recycler.recycled", self.recycled);
        f("flow.recycler.queue_avg", 0);
        f("flow.recycler.queue_max", 0);
        f("flow.memuse", self.memuse);
        f("flow_bypassed.local_pkts", self.bypassed_local_pkts);
        f("flow_bypassed.local_bytes", self.bypassed_local_bytes);
        f("flow_bypassed.local_capture_pkts", self.bypassed_capture_pkts);
        f("flow_bypassed.local_capture_bytes", self.bypassed_capture_bytes);
        f("flow_bypassed.closed", self.bypassed_closed);
        f("flow_bypassed.pkts", self.bypassed_pkts);
        f("flow_bypassed.bytes", self.bypassed_bytes);
    }
}
