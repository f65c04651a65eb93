//! Counters of detection.

use crate::lua::LuaCounters;

/// Counters of detection since the worker started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DetectCounters {
    /// Alerts written.
    pub alert: u64,
    /// Alerts dropped because the packet had too many (`packet-alert-max`).
    pub alert_queue_overflow: u64,
    /// Matches without an alert because of a threshold or `noalert`.
    pub alerts_suppressed: u64,
    /// Threshold entries evicted while in use, because the table was full.
    pub threshold_memcap: u64,
    /// Current number of threshold entries.
    pub threshold_entries: u64,
    /// Memory of threshold entries, in bytes.
    pub threshold_memuse: u64,
    /// Tags that were not set because the table was full.
    pub tag_memcap: u64,
    /// Host bits that were not set because the table was full.
    pub host_memcap: u64,
    /// Flow and packet variables dropped because there were too many, or because a value was too long.
    pub var_memcap: u64,
    /// Values not added to a dataset because it was full.
    pub dataset_memcap: u64,
    /// Buffers that the pattern matcher failed to search; the slower fallback was used.
    pub search_errors: u64,
    /// Errors of scripts.
    pub lua: LuaCounters,
    /// Packets inspected.
    pub packets: u64,
    /// Candidate rules, from a pattern or from their kind.
    pub candidates: u64,
}

impl DetectCounters {
    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: DetectCounters) -> DetectCounters {
        DetectCounters {
            alert: self.alert + other.alert,
            alert_queue_overflow: self.alert_queue_overflow + other.alert_queue_overflow,
            alerts_suppressed: self.alerts_suppressed + other.alerts_suppressed,
            threshold_memcap: self.threshold_memcap + other.threshold_memcap,
            threshold_entries: self.threshold_entries + other.threshold_entries,
            threshold_memuse: self.threshold_memuse + other.threshold_memuse,
            tag_memcap: self.tag_memcap + other.tag_memcap,
            host_memcap: self.host_memcap + other.host_memcap,
            var_memcap: self.var_memcap + other.var_memcap,
            dataset_memcap: self.dataset_memcap + other.dataset_memcap,
            search_errors: self.search_errors + other.search_errors,
            lua: self.lua.and(other.lua),
            packets: self.packets + other.packets,
            candidates: self.candidates + other.candidates,
        }
    }

    /// Calls `f` with each counter's name in statistics and its value.
    pub fn for_each(&self, mut f: impl FnMut(&'static str, u64)) {
        f("detect.alert", self.alert);
        f("detect.alert_queue_overflow", self.alert_queue_overflow);
        f("detect.alerts_suppressed", self.alerts_suppressed);
        f("detect.threshold_memcap", self.threshold_memcap);
        f("detect.threshold_entries", self.threshold_entries);
        f("detect.threshold_memuse", self.threshold_memuse);
        f("detect.tag_memcap", self.tag_memcap);
        f("detect.host_memcap", self.host_memcap);
        f("detect.flowvar_memcap", self.var_memcap);
        f("detect.dataset_memcap", self.dataset_memcap);
        f("detect.search_errors", self.search_errors);
        f("detect.lua.errors", self.lua.errors);
        f("detect.lua.blocked_function_errors", self.lua.blocked);
        f("detect.lua.instruction_limit_errors", self.lua.instructions);
        f("detect.lua.memory_limit_errors", self.lua.memory);
    }
}
