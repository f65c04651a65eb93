//! A flow goes on at another worker: with it goes what hangs on it, and what is kept elsewhere by its number.
//!
//! | what | where it is kept | how it goes |
//! | --- | --- | --- |
//! | counts, state, bits, variables, age | flow table | [`FlowTable::leave`](margay_flow::FlowTable::leave) |
//! | TCP session, parsers, transactions, files, frames | with the flow | as they are |
//! | memory of the session, of transactions, of files that are held | counted by the worker | counted by the other one |
//! | tags | state of the rules, by the flow's number | taken out, put in |
//! | how far scripts were handed its stream and bodies | by the flow's number | taken out, put in |
//!
//! What was counted when something happened stays where it was counted: the sum over all workers is what it was. A file that is put
//! together from ranges is of the worker where its first range was; it is not followed.

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
    /// Takes out the flow with these ends, if there is one, to be given to another worker.
    pub(crate) fn flow_leaves(&mut self, ends: &Ends) -> Option<Box<Moving>> {
        let key = self.flows.key_of(ends);
        let mut leaving = self.flows.leave(&key)?;
        let stages = &mut self.stages;
        // Tags are with the rules of its tenant.
        stages.at_flow(&mut leaving.flow);
        stages.moved(&mut leaving.flow, false);
        let id = leaving.flow.core.id;
        let tags = stages.detect.as_mut().and_then(|(_, state)| state.flow_leaves(id));
        let handed_on = stages.scripts.flow_leaves(id);
        Some(Box::new(Moving { leaving, tags, handed_on }))
    }

    /// Whether newer rules looked at a flow than this worker has: it is about to get them.
    pub(crate) fn is_behind(&mut self, moving: &Moving) -> bool {
        let ext = &moving.leaving.flow.ext;
        self.stages.is_older(ext.tenant, ext.rules)
    }

    /// Takes in a flow that another worker gave.
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
    /// A flow leaves for another worker, or comes from there (`enter`): what it holds is counted there.
    fn moved(&mut self, flow: &mut Flow<FlowExt>, enter: bool) {
        if let Some(session) = flow.ext.tcp.as_deref() {
            self.stream.moved(session, enter);
        }
        let Some(app) = flow.ext.app.as_deref_mut() else { return };
        self.app.counted_elsewhere(app, !enter);
        let shared = &mut self.app.shared;
        if !enter {
            // What the other worker does next to a stored file comes after what this one did.
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
