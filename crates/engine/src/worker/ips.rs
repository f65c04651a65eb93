//! Counters of inline mode.

use super::{DropReason, Fate};
use crate::exception::Condition;

/// `ips.*`: what became of captured frames.
#[derive(Debug, Default)]
pub(crate) struct IpsCounters {
    accepted: u64,
    blocked: u64,
    rejected: u64,
    replaced: u64,
    reasons: [u64; REASONS.len()],
}

const REASONS: [(&str, DropReason); 11] = [
    ("applayer_error", DropReason::Exception(Condition::AppLayerError)),
    ("defrag_memcap", DropReason::Exception(Condition::DefragMemcap)),
    ("flow_memcap", DropReason::Exception(Condition::FlowMemcap)),
    ("flow_drop", DropReason::FlowDrop),
    ("rules", DropReason::Rules),
    ("stream_error", DropReason::StreamError),
    ("stream_memcap", DropReason::Exception(Condition::StreamMemcap)),
    ("stream_midstream", DropReason::Exception(Condition::Midstream)),
    ("stream_urgent", DropReason::StreamUrgent),
    ("threshold_detection_filter", DropReason::Threshold),
    ("stream_reassembly", DropReason::Exception(Condition::ReassemblyMemcap)),
];

impl IpsCounters {
    /// Counts a frame.
    pub(crate) fn count(&mut self, fate: Fate) {
        match fate.drop {
            None => self.accepted += 1,
            Some(reason) => {
                if fate.reject {
                    self.rejected += 1;
                }
                self.blocked += 1;
                if let Some(i) = REASONS.iter().position(|r| r.1 == reason) {
                    self.reasons[i] += 1;
                }
            }
        }
    }

    /// Counts a frame whose payload was changed.
    pub(crate) fn replaced(&mut self) {
        self.replaced += 1;
    }

    /// Calls `f` with each counter's name and value.
    pub(crate) fn for_each(&self, f: &mut dyn FnMut(&str, u64)) {
        f("ips.accepted", self.accepted);
        f("ips.blocked", self.blocked);
        f("ips.rejected", self.rejected);
        f("ips.replaced", self.replaced);
        for ((name, _), n) in REASONS.iter().zip(self.reasons) {
            f(&format!("ips.drop_reason.{name}"), n);
        }
    }
}
