//! Moves a flow to another worker, with its attached state and with the state that is stored elsewhere by its id.
//!
//! | state | where it is stored | how it moves |
//! | --- | --- | --- |
//! | counts, state, bits, variables, age | flow table | [`FlowTable::leave`](margay_flow::FlowTable::leave) |
//! | TCP session, parsers, transactions, files, frames | with the flow | unchanged |
//! | memory of the session, of transactions and of open files | accounted by the worker | accounted by the other worker |
//! | tags | state of the rules, by flow id | removed and inserted |
//! | how much of its stream and bodies the scripts received | by flow id | removed and inserted |
//!
//! Earlier events stay counted at the old worker, so the sum over all workers is unchanged. A file that is reassembled from
//! ranges stays with the worker of its first range.

use margay_detect::FlowTags;
use margay_flow::{EndReason, Ends, Flow, Leaving};

use super::scripts::HandedOn;
use super::{FlowExt, Pipeline, Stages};

/// A flow between two workers.
#[derive(Debug)]
pub(crate) struct Moving {
    leaving: Leaving<FlowExt>,
    tags: Option<FlowTags>,
    handed_on: Option<HandedOn>,
}

impl Pipeline {
    /// Removes the flow with these endpoints, if there is one, for another worker.
    pub(crate) fn flow_leaves(&mut self, ends: &Ends) -> Option<Box<Moving>> {
        let key = self.flows.key_of(ends);
        let mut leaving = self.flows.leave(&key)?;
        let stages = &mut self.stages;
        // Tags are stored with the rules of its tenant.
        stages.at_flow(&mut leaving.flow);
        stages.moved(&mut leaving.flow, false);
        let id = leaving.flow.core.id;
        let tags = stages.detect.as_mut().and_then(|(_, state)| state.flow_leaves(id));
        let handed_on = stages.scripts.flow_leaves(id);
        stages.outputs.pcap_flow_left(id);
        Some(Box::new(Moving { leaving, tags, handed_on }))
    }

    /// Whether newer rules than this worker's inspected the flow. This worker is about to receive them.
    pub(crate) fn is_behind(&mut self, moving: &Moving) -> bool {
        let ext = &moving.leaving.flow.ext;
        self.stages.is_older(ext.tenant, ext.rules)
    }

    /// Adds a flow that another worker gave away.
    pub(crate) fn flow_enters(&mut self, moving: Box<Moving>) {
        let Moving { mut leaving, tags, handed_on } = *moving;
        let Pipeline { flows, stages, .. } = self;
        let flow = &mut leaving.flow;
        stages.at_flow(flow);
        stages.moved(flow, true);
        let id = flow.core.id;
        if let (Some(tags), Some((_, state))) = (tags, &mut stages.detect) {
            state.flow_enters(id, tags);
        }
        if let Some(handed_on) = handed_on {
            stages.scripts.flow_enters(id, handed_on);
        }
        if let Err(flow) = flows.enter(leaving, &mut |f, r| stages.end_flow(f, r)) {
            stages.end_flow(*flow, EndReason::Forced);
        }
    }
}

impl Stages {
    /// Moves the memory accounting of a flow that leaves, or arrives from another worker (`enter`).
    fn moved(&mut self, flow: &mut Flow<FlowExt>, enter: bool) {
        if let Some(session) = flow.ext.tcp.as_deref() {
            self.stream.moved(session, enter);
        }
        let Some(app) = flow.ext.app.as_deref_mut() else { return };
        self.app.counted_elsewhere(app, !enter);
        let shared = &mut self.app.shared;
        if !enter {
            // The other worker's writes to a stored file must come after this worker's.
            shared.files.end_batch();
        }
        for parser in app.session.parsers_mut() {
            shared.counters.moved(&**parser, !enter);
            if !enter {
                continue;
            }
            let mut next = 0;
            while let Some(id) = parser.next_tx(next) {
                next = id + 1;
                if let Some(tx) = parser.tx_mut(id) {
                    tx.base_mut().files.belong_to(&shared.files);
                }
            }
        }
    }
}
