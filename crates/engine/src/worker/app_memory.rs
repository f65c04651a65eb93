//! What the application layer holds in memory, counted for each flow and for the worker, and its limit.
//!
//! Each worker has its part of `app-layer.memcap`, so that nothing is shared between them. A flow that grows when its worker
//! holds that much already loses its parser, as if it had failed (`app_layer.error.*.alloc`): `app-layer.error-policy` applies,
//! and its transactions go with the packet. Flows that do not grow keep what they have.

use margay_app::Parse;
use margay_flow::FlowCore;
use margay_packet::Time;

use super::app::{AppStage, FlowApp};

impl AppStage {
    /// Counts anew what a flow holds. Returns whether it is more than before.
    pub(super) fn account(&mut self, app: &mut FlowApp) -> bool {
        let now = app.memory();
        let before = std::mem::replace(&mut app.counted, now);
        let used = &mut self.shared.counters.memory;
        *used = used.saturating_sub(before).saturating_add(now);
        now > before
    }

    /// The same after the flow was told something; where it grew beyond what there may be its parser goes.
    pub(super) fn account_growth(&mut self, core: &FlowCore, app: &mut FlowApp, time: Time) {
        let cap = self.config.memcap;
        if self.account(app) && cap != 0 && self.shared.counters.memory > cap {
            self.shared.counters.memcap += 1;
            let mut cx = self.outside(core, time);
            app.session.out_of_memory(&mut cx);
        }
    }

    /// A flow leaves for another worker (`leave`), or comes from there, or ends: what it holds is counted there.
    pub(super) const fn counted_elsewhere(&mut self, app: &FlowApp, leave: bool) {
        let used = &mut self.shared.counters.memory;
        *used = if leave { used.saturating_sub(app.counted) } else { used.saturating_add(app.counted) };
    }

    /// Nothing more of a flow is parsed, for the engine cannot go on with it.
    pub(super) fn fail(&mut self, core: &FlowCore, app: &mut FlowApp, time: Time) {
        app.session.fail(&mut self.outside(core, time));
    }

    /// What a session is given outside any data.
    fn outside<'a>(&'a mut self, core: &'a FlowCore, time: Time) -> Parse<'a> {
        Parse { config: &self.config, shared: &mut self.shared, flow: core, time, end: false, inline: false }
    }
}
