//! Flows that need no more looking: their packets are counted and no more, or do not come here at all.

use std::collections::HashMap;
use std::sync::Arc;

use margay_capture::bypass::{BypassCount, BypassKey, Refusal};
use margay_flow::{FlowAction, FlowCore, FlowRef, FlowState};

use super::{Pipeline, Stages, closing};
use crate::control::post::Post;
use crate::live::bypass::{Counted, Table};

/// A worker's flows that are bypassed in the kernel.
pub(crate) struct InKernel {
    table: Arc<Table>,
    /// Where the worker is told of counts.
    post: Arc<Post>,
    /// By their identifiers. As many as the table has room for, at most.
    flows: HashMap<u64, Entered>,
    /// Packets and bytes of flows that were counted when they had left the flow table.
    late: (u64, u64),
    /// All packets that the kernel has counted.
    packets: u64,
    /// Of each version of IP, 4 first.
    families: [Family; 2],
}

/// What became of flows of one version of IP that were to be bypassed in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Family {
    /// Flows that are there now.
    pub(crate) there: u64,
    /// Flows that were entered.
    pub(crate) entered: u64,
    /// Flows for which there was no room.
    pub(crate) full: u64,
    /// Flows that the kernel did not take for another reason.
    pub(crate) refused: u64,
}

/// A flow that was entered.
struct Entered {
    keys: [BypassKey; 2],
    /// What the flow has of it already.
    seen: [BypassCount; 2],
}

impl InKernel {
    pub(crate) fn new(table: Arc<Table>, post: Arc<Post>) -> InKernel {
        InKernel { table, post, flows: HashMap::new(), late: (0, 0), packets: 0, families: Default::default() }
    }

    /// Gives its counters.
    pub(crate) fn for_each(&self, f: &mut dyn FnMut(&str, u64)) {
        let [v4, v6] = self.families;
        f("capture.bypass.flows", v4.entered + v6.entered);
        f("capture.bypass.full", v4.full + v6.full);
        f("capture.bypass.refused", v4.refused + v6.refused);
    }

    /// Packets that were bypassed in the kernel.
    pub(crate) fn packets(&self) -> u64 {
        self.packets
    }

    /// What became of flows of IPv4 and of IPv6.
    pub(crate) const fn families(&self) -> [Family; 2] {
        self.families
    }

    /// Enters a flow, which may have been there before (`again`); whether the kernel bypasses it from here on.
    fn enter(&mut self, core: &FlowCore, at: FlowRef, again: bool) -> bool {
        // What is inside a tunnel the program does not see; what is dropped must not be sent on.
        if core.recursion > 0 || matches!(core.action, FlowAction::Drop | FlowAction::WouldDrop) {
            return false;
        }
        let (client, server) = ((core.src, core.sport), (core.dst, core.dport));
        let key = |from, to| BypassKey::new(from, to, core.proto, core.vlans.as_slice());
        let (Some(there), Some(back)) = (key(client, server), key(server, client)) else { return false };
        let keys = [there, back];
        let family = &mut self.families[usize::from(core.src.is_ipv6())];
        match self.table.enter(&keys, at, core.id, &self.post) {
            Ok(()) => {
                family.entered += u64::from(!again);
                family.there += 1;
                self.flows.insert(core.id, Entered { keys, seen: Default::default() });
                true
            }
            Err(Refusal::Full) => {
                family.full += 1;
                false
            }
            Err(_) => {
                family.refused += 1;
                false
            }
        }
    }

    /// Takes a flow out of the kernel, if it is there, and counts what it had; what is new.
    fn take(&mut self, core: &mut FlowCore) -> (u64, u64) {
        let Some(mut entered) = self.flows.remove(&core.id) else { return (0, 0) };
        let counts = self.table.take(&entered.keys);
        let family = &mut self.families[usize::from(core.src.is_ipv6())];
        family.there = family.there.saturating_sub(1);
        let mut new = (0, 0);
        for (direction, count) in counts.into_iter().enumerate() {
            let (packets, bytes) = entered.count(core, direction, count);
            new = (new.0 + packets, new.1 + bytes);
        }
        self.packets += new.0;
        new
    }
}

impl Entered {
    /// Adds to a flow what the kernel has counted since it was last asked; how much that is.
    fn count(&mut self, core: &mut FlowCore, direction: usize, count: BypassCount) -> (u64, u64) {
        let Some(seen) = self.seen.get_mut(direction) else { return (0, 0) };
        let packets = count.packets.saturating_sub(seen.packets);
        let bytes = count.bytes.saturating_sub(seen.bytes);
        if packets == 0 {
            return (0, 0);
        }
        *seen = count;
        core.pkts[direction] += packets;
        core.bytes[direction] += bytes;
        core.bypassed[direction].0 += packets;
        core.bypassed[direction].1 += bytes;
        core.last = core.last.max(count.last);
        (packets, bytes)
    }
}

impl Stages {
    /// How a flow that needs no more looking is bypassed: in the kernel where that can be.
    #[cold]
    pub(super) fn bypass(&mut self, core: &FlowCore, at: FlowRef) -> FlowState {
        match self.kernel.as_mut().is_some_and(|k| k.enter(core, at, false)) {
            true => FlowState::CaptureBypassed,
            false => FlowState::LocalBypassed,
        }
    }

    /// The connection of a bypassed flow is over, or is not after all: the kernel is rid of it, or has it again.
    #[cold]
    pub(super) fn over_in_kernel(&mut self, core: &mut FlowCore, at: FlowRef, over: bool) {
        if core.state == FlowState::CaptureBypassed
            && let Some(kernel) = &mut self.kernel
        {
            match over {
                true => drop(kernel.take(core)),
                // Where there is no room any more its packets come here.
                false if !kernel.flows.contains_key(&core.id) => drop(kernel.enter(core, at, true)),
                false => {}
            }
        }
    }

    /// A flow ends: what the kernel has counted of it is its own.
    pub(super) fn end_in_kernel(&mut self, core: &mut FlowCore) {
        if core.state == FlowState::CaptureBypassed
            && let Some(kernel) = &mut self.kernel
        {
            let (packets, bytes) = kernel.take(core);
            kernel.late.0 += packets;
            kernel.late.1 += bytes;
        }
    }
}

impl Pipeline {
    /// Takes what the kernel has counted of flows.
    pub(crate) fn counted_in_kernel(&mut self, list: &[Counted]) {
        let Some(kernel) = &mut self.stages.kernel else { return };
        for c in list {
            let Some(flow) = self.flows.get_mut(c.at).filter(|f| f.core.id == c.flow) else { continue };
            let Some(entered) = kernel.flows.get_mut(&c.flow) else { continue };
            kernel.packets += entered.count(&mut flow.core, c.direction, c.count).0;
            // With what came a FIN may be one of this connection.
            if flow.ext.closing.is_some() && closing::is_over(flow, c.count.last) {
                kernel.take(&mut flow.core);
                self.flows.set_over(c.at, true);
            }
        }
    }

    /// Adds what was counted of flows after they had left the table.
    pub(super) fn count_late(&mut self) {
        if let Some(kernel) = &mut self.stages.kernel {
            let (packets, bytes) = std::mem::take(&mut kernel.late);
            self.flows.counters.bypassed_pkts += packets;
            self.flows.counters.bypassed_bytes += bytes;
        }
    }
}
