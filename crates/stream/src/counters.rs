//! Counters of the stream engine, by their names in Suricata's statistics.

use crate::event::StreamEvent;

/// Counters and gauges of a [`crate::StreamEngine`].
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct StreamCounters {
    pub syn: u64,
    pub synack: u64,
    pub rst: u64,
    pub urg: u64,
    pub active_sessions: u64,
    pub sessions: u64,
    pub ssn_memcap_drop: u64,
    pub ssn_from_cache: u64,
    pub ssn_from_pool: u64,
    /// Pseudo packets that the engine created to flush streams. The engine counts them.
    pub pseudo: u64,
    pub pseudo_failed: u64,
    pub invalid_checksum: u64,
    pub midstream_pickups: u64,
    pub ack_unseen_data: u64,
    pub segment_memcap_drop: u64,
    /// Accepted segments with data.
    pub segments: u64,
    pub stream_depth_reached: u64,
    pub reassembly_gap: u64,
    pub overlap: u64,
    pub overlap_diff_data: u64,
    pub insert_data_normal_fail: u64,
    pub insert_data_overlap_fail: u64,
    pub urgent_oob_data: u64,
    /// Connections resumed after they counted as over.
    pub resumed: u64,
    /// Connections that may be resumed, and those evicted or not stored because their set was full.
    pub resumable: u64,
    pub resumable_forgotten: u64,
    /// Connections that the engine settled ([`crate::TcpSession::settle`]). The engine counts them.
    pub reset_settled: u64,
    pub memuse: u64,
    pub reassembly_memuse: u64,
    /// Counts of each event, by [`StreamEvent`] number.
    pub events: [u64; StreamEvent::ALL.len()],
}

impl Default for StreamCounters {
    fn default() -> Self {
        StreamCounters {
            syn: 0,
            synack: 0,
            rst: 0,
            urg: 0,
            active_sessions: 0,
            sessions: 0,
            ssn_memcap_drop: 0,
            ssn_from_cache: 0,
            ssn_from_pool: 0,
            pseudo: 0,
            pseudo_failed: 0,
            invalid_checksum: 0,
            midstream_pickups: 0,
            ack_unseen_data: 0,
            segment_memcap_drop: 0,
            segments: 0,
            stream_depth_reached: 0,
            reassembly_gap: 0,
            overlap: 0,
            overlap_diff_data: 0,
            insert_data_normal_fail: 0,
            insert_data_overlap_fail: 0,
            urgent_oob_data: 0,
            resumed: 0,
            resumable: 0,
            resumable_forgotten: 0,
            reset_settled: 0,
            memuse: 0,
            reassembly_memuse: 0,
            events: [0; StreamEvent::ALL.len()],
        }
    }
}

impl StreamCounters {
    pub(crate) fn event(&mut self, e: StreamEvent) {
        self.events[e as usize] += 1;
    }

    /// How often `e` occurred.
    pub const fn of(&self, e: StreamEvent) -> u64 {
        self.events[e as usize]
    }

    /// Calls `f` with each name and value.
    pub fn for_each(&self, f: &mut dyn FnMut(&str, u64)) {
        f("tcp.syn", self.syn);
        f("tcp.synack", self.synack);
        f("tcp.rst", self.rst);
        f("tcp.urg", self.urg);
        f("tcp.active_sessions", self.active_sessions);
        f("tcp.sessions", self.sessions);
        f("tcp.ssn_memcap_drop", self.ssn_memcap_drop);
        f("tcp.ssn_from_cache", self.ssn_from_cache);
        f("tcp.ssn_from_pool", self.ssn_from_pool);
        f("tcp.pseudo", self.pseudo);
        f("tcp.pseudo_failed", self.pseudo_failed);
        f("tcp.invalid_checksum", self.invalid_checksum);
        f("tcp.midstream_pickups", self.midstream_pickups);
        f("tcp.ack_unseen_data", self.ack_unseen_data);
        f("tcp.segment_memcap_drop", self.segment_memcap_drop);
        f("tcp.segment_from_cache", 0);
        f("tcp.segment_from_pool", self.segments);
        f("tcp.stream_depth_reached", self.stream_depth_reached);
        f("tcp.reassembly_gap", self.reassembly_gap);
        f("tcp.overlap", self.overlap);
        f("tcp.overlap_diff_data", self.overlap_diff_data);
        f("tcp.insert_data_normal_fail", self.insert_data_normal_fail);
        f("tcp.insert_data_overlap_fail", self.insert_data_overlap_fail);
        f("tcp.urgent_oob_data", self.urgent_oob_data);
        f("tcp.resumed", self.resumed);
        f("tcp.resumable", self.resumable);
        f("tcp.resumable_forgotten", self.resumable_forgotten);
        f("tcp.reset_settled", self.reset_settled);
        f("tcp.memuse", self.memuse);
        f("tcp.reassembly_memuse", self.reassembly_memuse);
        for &e in StreamEvent::ALL {
            f(e.stat_name(), self.of(e));
        }
    }
}
