//! Text variables: `pcre` captures (`flow:name`, `pkt:name`), which `flowvar` and `pktvar` read, and the values that
//! `entropy` measured, which events show.
//!
//! A rule's captures are kept once the whole rule matched. Entropy is kept as soon as it is measured, whether or not the
//! check holds (as Suricata's test cases show). A rule that waits for more of a transaction keeps the captures of the
//! checks that held in the last run.

use margay_flow::{CapturedVars, FlowCore};
use margay_rules::ast::CaptureKind;

use super::State;
use crate::inspect::{Capture, CaptureRole, InspectContext};
use crate::watch::Watch;

impl<W: Watch> State<W> {
    /// Variables of the last inspected packet.
    pub(crate) fn packet_vars(&self) -> &CapturedVars {
        &self.packet_vars
    }

    /// Keeps the captures of the rule that just matched.
    pub(crate) fn keep_captures(&mut self, mut flow: Option<&mut FlowCore>) {
        let State { context, packet_vars, counters, .. } = self;
        let mut key: Option<Capture> = None;
        for &c in context.captures() {
            let with = key.take();
            let key = match c.role {
                CaptureRole::Key => {
                    key = Some(c);
                    continue;
                }
                CaptureRole::Value => match with {
                    Some(k) => Some(context.capture_bytes(k)),
                    None => continue,
                },
                CaptureRole::Named => None,
            };
            let vars = match (c.kind, flow.as_deref_mut()) {
                (CaptureKind::Flow, Some(f)) => f.vars.captured_mut(),
                (CaptureKind::Packet, _) => &mut *packet_vars,
                _ => continue,
            };
            counters.var_memcap += u64::from(!vars.set(c.name, key, context.capture_bytes(c)));
        }
    }

    /// Keeps measured entropy for the flow's events, and the variables that scripts set.
    pub(crate) fn keep_entropy(&mut self, mut flow: Option<&mut FlowCore>) {
        self.keep_script_writes(flow.as_deref_mut());
        let InspectContext { measured, .. } = &mut self.context;
        if measured.is_empty() {
            return;
        }
        if let Some(f) = flow {
            for &(name, value) in measured.iter() {
                self.counters.var_memcap += u64::from(!f.vars.set_float(name, value));
            }
        }
        measured.clear();
    }
}
