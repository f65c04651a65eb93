//! Counters of IPS mode.

use margay_detect::DropReason as Detect;

use super::{DropReason, FrameVerdict};
use crate::exception::Condition;

/// `ips.*`: verdicts on captured frames.
#[derive(Debug, Default)]
pub(crate) struct IpsCounters {
    accepted: u64,
    blocked: u64,
    rejected: u64,
    replaced: u64,
    reasons: [u64; REASONS.len()],
    /// `firewall.*`: frames that the firewall accepted, and frames it blocked by reason.
    fw_accepted: u64,
    fw_blocked: u64,
    fw_reasons: [u64; FW_REASONS.len()],
}

const FW_REASONS: [(&str, DropReason); 6] = [
    ("rules", DropReason::Firewall(Detect::FirewallRules)),
    ("default_packet_policy", DropReason::Firewall(Detect::DefaultPacketPolicy)),
    ("default_app_policy", DropReason::Firewall(Detect::DefaultAppPolicy)),
    ("flow_drop", DropReason::FirewallFlowDrop),
    ("pre_flow_hook", DropReason::Firewall(Detect::PreFlowHook)),
    ("pre_stream_hook", DropReason::Firewall(Detect::PreStreamHook)),
];

const REASONS: [(&str, DropReason); 16] = [
    ("applayer_error", DropReason::Exception(Condition::AppLayerError)),
    ("defrag_memcap", DropReason::Exception(Condition::DefragMemcap)),
    ("flow_memcap", DropReason::Exception(Condition::FlowMemcap)),
    ("flow_drop", DropReason::FlowDrop),
    ("exception_policy_flow_drop", DropReason::ExceptionFlowDrop),
    ("rules", DropReason::Rules),
    ("stream_error", DropReason::StreamError),
    ("stream_memcap", DropReason::Exception(Condition::StreamMemcap)),
    ("stream_midstream", DropReason::Exception(Condition::Midstream)),
    ("stream_urgent", DropReason::StreamUrgent),
    ("threshold_detection_filter", DropReason::Threshold),
    ("stream_reassembly", DropReason::Exception(Condition::ReassemblyMemcap)),
    ("defrag_error", DropReason::DefragError),
    ("datagram_drop", DropReason::DatagramDrop),
    ("not_replaced", DropReason::NotReplaced),
    ("tunnel_packet_drop", DropReason::TunnelPacketDrop),
];

impl IpsCounters {
    /// Counts a frame. A frame that the `firewall` blocked was not inspected further.
    pub(crate) fn count(&mut self, verdict: FrameVerdict, firewall: bool) {
        if firewall {
            if let Some(reason @ (DropReason::Firewall(_) | DropReason::FirewallFlowDrop)) = verdict.drop {
                self.fw_blocked += 1;
                if let Some(i) = FW_REASONS.iter().position(|r| r.1 == reason) {
                    self.fw_reasons[i] += 1;
                }
                return;
            }
            self.fw_accepted += 1;
        }
        match verdict.drop {
            None => self.accepted += 1,
            Some(reason) => {
                // As in Suricata, each frame is in one of the three.
                *if verdict.reject { &mut self.rejected } else { &mut self.blocked } += 1;
                if let Some(i) = REASONS.iter().position(|r| r.1 == reason) {
                    self.reasons[i] += 1;
                }
            }
        }
    }

    /// Counts a frame with a changed payload.
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

    /// Calls `f` with the name and value of each firewall counter.
    pub(crate) fn for_each_firewall(&self, discarded_alerts: u64, f: &mut dyn FnMut(&str, u64)) {
        f("firewall.accepted", self.fw_accepted);
        f("firewall.blocked", self.fw_blocked);
        // No firewall rule rejects.
        f("firewall.rejected", 0);
        for ((name, _), n) in FW_REASONS.iter().zip(self.fw_reasons) {
            f(&format!("firewall.drop_reason.{name}"), n);
        }
        f("firewall.discarded_alerts", discarded_alerts);
    }
}
