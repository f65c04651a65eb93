//! Variables of text: what `pcre` captures (`flow:name`, `pkt:name`), what `flowvar` and `pktvar` look at, and the entropy
//! that `entropy` measured, which events show.
//!
//! Captures of a rule are kept once all of it matched; entropy as soon as it was measured, whatever came of it (as the
//! cases have it). Of a rule that waits for more of a transaction, those checks are captured that held with the last look.

use margay_flow::{CapturedVars, FlowCore};
use margay_rules::ast::CaptureKind;

use crate::inspect::{Capture, CaptureRole, InspectContext};
use crate::state::State;
use crate::watch::Watch;

impl<W: Watch> State<W> {
    /// Variables of the packet inspected last.
    pub(crate) fn packet_vars(&self) -> &CapturedVars {
        &self.packet_vars
    }

    /// Keeps what the rule that just matched captured.
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

    /// Keeps the entropy that was measured, for events of the flow; and what scripts set of its variables.
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
