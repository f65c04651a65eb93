//! Bypassed flows: the worker only counts their packets, or the kernel keeps the packets away from it.

use margay_capture::bypass::{BypassCount, BypassKey, Refusal};
use margay_flow::{FlowAction, FlowCore, FlowRef, FlowState};
use margay_packet::KeyedMap;

use super::{Pipeline, Stages, closing};

/// The kernel's counts for one direction of a flow, since the flow was added.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counted {
    pub(crate) at: FlowRef,
    pub(crate) flow: u64,
    /// [`margay_flow::Direction::index`].
    pub(crate) direction: usize,
    pub(crate) count: BypassCount,
}

/// The kernel's table of bypassed flows, for one worker.
pub(crate) trait KernelTable {
    /// Adds a flow, which the kernel bypasses from now on. Its counts arrive at [`Pipeline::counted_in_kernel`].
    ///
    /// # Errors
    /// The kernel refuses.
    fn enter(&self, keys: &[BypassKey; 2], at: FlowRef, flow: u64) -> Result<(), Refusal>;

    /// Removes a flow. Returns the counts of each direction since the flow was added.
    fn take(&self, keys: &[BypassKey; 2]) -> [BypassCount; 2];
}

/// A worker's flows that the kernel bypasses.
pub(crate) struct InKernel {
    table: Box<dyn KernelTable>,
    /// The flows by identifier: at most as many as the kernel's table has room for.
    flows: KeyedMap<u64, Entered>,
    /// Packets and bytes that were counted after their flows had left the flow table.
    late: (u64, u64),
    /// All packets that the kernel counted.
    packets: u64,
    /// Results by IP version, IPv4 first.
    families: [Family; 2],
}

/// Results of kernel bypass for one IP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Family {
    /// Flows in the kernel's table now.
    pub(crate) there: u64,
    /// Flows that were added.
    pub(crate) entered: u64,
    /// Flows that were refused because the table was full.
    pub(crate) full: u64,
    /// Flows that the kernel refused for another reason.
    pub(crate) refused: u64,
}

/// A flow in the kernel's table.
struct Entered {
    keys: [BypassKey; 2],
    /// The counts that were already added to the flow.
    seen: [BypassCount; 2],
}

impl InKernel {
    pub(crate) fn new(table: Box<dyn KernelTable>) -> InKernel {
        InKernel { table, flows: KeyedMap::default(), late: (0, 0), packets: 0, families: Default::default() }
    }

    /// Calls `f` for each counter.
    pub(crate) fn for_each(&self, f: &mut dyn FnMut(&str, u64)) {
        let [v4, v6] = self.families;
        f("capture.bypass.flows", v4.entered + v6.entered);
        f("capture.bypass.full", v4.full + v6.full);
        f("capture.bypass.refused", v4.refused + v6.refused);
    }

    /// Packets that the kernel bypassed.
    pub(crate) fn packets(&self) -> u64 {
        self.packets
    }

    /// The results for IPv4 and IPv6.
    pub(crate) const fn families(&self) -> [Family; 2] {
        self.families
    }

    /// Adds a flow to the kernel's table; `again` if it was there before. Returns whether the kernel bypasses it from now on.
    fn enter(&mut self, core: &FlowCore, at: FlowRef, again: bool) -> bool {
        // The kernel program does not see packets inside a tunnel, and a dropped flow must not be forwarded.
        if core.recursion > 0 || matches!(core.action, FlowAction::Drop | FlowAction::WouldDrop) {
            return false;
        }
        let (client, server) = ((core.src, core.sport), (core.dst, core.dport));
        let key = |from, to| BypassKey::new(from, to, core.proto, core.vlans.as_slice());
        let (Some(there), Some(back)) = (key(client, server), key(server, client)) else { return false };
        let keys = [there, back];
        let family = &mut self.families[usize::from(core.src.is_ipv6())];
        match self.table.enter(&keys, at, core.id) {
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

    /// Removes a flow from the kernel's table, if it is there, and adds its counts to the flow. Returns the new counts.
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
    /// Adds the kernel's new counts to a flow. Returns the difference.
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
    /// Chooses how a flow is bypassed: by the kernel if possible.
    #[cold]
    pub(super) fn bypass(&mut self, core: &FlowCore, at: FlowRef) -> FlowState {
        match self.kernel.as_mut().is_some_and(|k| k.enter(core, at, false)) {
            true => FlowState::CaptureBypassed,
            false => FlowState::LocalBypassed,
        }
    }

    /// Updates the kernel when the connection of a bypassed flow ends, or turns out not to have ended: removes the flow, or
    /// adds it again.
    #[cold]
    pub(super) fn over_in_kernel(&mut self, core: &mut FlowCore, at: FlowRef, over: bool) {
        if core.state == FlowState::CaptureBypassed
            && let Some(kernel) = &mut self.kernel
        {
            match over {
                true => drop(kernel.take(core)),
                // If the kernel's table is full, the worker gets the flow's packets.
                false if !kernel.flows.contains_key(&core.id) => drop(kernel.enter(core, at, true)),
                false => {}
            }
        }
    }

    /// Takes a flow's last counts from the kernel when the flow ends.
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
    /// Applies the kernel's counts to their flows.
    pub(crate) fn counted_in_kernel(&mut self, list: &[Counted]) {
        let Some(kernel) = &mut self.stages.kernel else { return };
        for c in list {
            let Some(flow) = self.flows.get_mut(c.at).filter(|f| f.core.id == c.flow) else { continue };
            let Some(entered) = kernel.flows.get_mut(&c.flow) else { continue };
            kernel.packets += entered.count(&mut flow.core, c.direction, c.count).0;
            // One of the counted packets may have been this connection's FIN.
            if flow.ext.closing.is_some() && closing::is_over(flow, c.count.last) {
                kernel.take(&mut flow.core);
                self.flows.set_over(c.at, true);
            }
        }
    }

    /// Adds counts of flows that had already left the flow table.
    pub(super) fn count_late(&mut self) {
        if let Some(kernel) = &mut self.stages.kernel {
            let (packets, bytes) = std::mem::take(&mut kernel.late);
            self.flows.counters.bypassed_pkts += packets;
            self.flows.counters.bypassed_bytes += bytes;
        }
    }
}
