//! Memory of the application layer: accounted for each flow and for the worker, with a limit.
//!
//! Each worker has an equal part of `app-layer.memcap`, so workers share no counter. If a flow grows while its worker is at
//! the limit, the flow loses its parser as if the parser had failed (`app_layer.error.*.alloc`). `app-layer.error-policy`
//! applies, and the flow's transactions are freed with the packet. Flows that do not grow keep their parsers.

use margay_app::Parse;
use margay_app::session::ParserError;
use margay_flow::FlowCore;
use margay_packet::Time;

use super::app::{AppStage, FlowApp};

impl AppStage {
    /// Recounts the memory of a flow. Returns whether the flow grew.
    pub(super) fn account(&mut self, app: &mut FlowApp) -> bool {
        let now = app.memory();
        let before = std::mem::replace(&mut app.counted, now);
        let used = &mut self.shared.counters.memory;
        *used = used.saturating_sub(before).saturating_add(now);
        now > before
    }

    /// Recounts the memory of a flow after it was fed. If it grew beyond the limit, its parser is removed.
    pub(super) fn account_growth(&mut self, core: &FlowCore, app: &mut FlowApp, time: Time) {
        let cap = self.config.memcap;
        if self.account(app) && cap != 0 && self.shared.counters.memory > cap {
            self.shared.counters.memcap += 1;
            let mut cx = self.outside(core, time);
            app.session.fail(&mut cx, ParserError::Alloc);
        }
    }

    /// Moves a flow's memory between workers, or ends it: subtracts it here if the flow leaves, and adds it if the flow
    /// arrives.
    pub(super) const fn counted_elsewhere(&mut self, app: &FlowApp, leave: bool) {
        let used = &mut self.shared.counters.memory;
        *used = if leave { used.saturating_sub(app.counted) } else { used.saturating_add(app.counted) };
    }

    /// Stops parsing a flow that the engine cannot continue with.
    pub(super) fn fail(&mut self, core: &FlowCore, app: &mut FlowApp, time: Time) {
        app.session.fail(&mut self.outside(core, time), ParserError::Internal);
    }

    /// The parse context for a call without data.
    fn outside<'a>(&'a mut self, core: &'a FlowCore, time: Time) -> Parse<'a> {
        Parse { config: &self.config, shared: &mut self.shared, flow: core, time, end: false, inline: false }
    }
}
