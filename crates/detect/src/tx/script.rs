//! The steps of scripts.

use margay_app::Protocol;
use margay_flow::Direction;
use margay_rules::ast::{Check, Rule};

use super::{Step, What};
use crate::lua::find_need;

/// The steps for a rule's scripts without a sticky buffer, for transactions of a protocol in a direction; `None` if they
/// need data that does not exist there.
pub(super) fn plan(rule: &Rule, protocol: &'static Protocol, dir: Direction) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    let scripts = rule.checks.iter().filter_map(|c| if let Check::Lua(c) = c { Some(c) } else { None });
    for (number, c) in (0u16..).zip(scripts) {
        let mut progress = 0;
        let mut whole = true;
        for need in c.buffers.iter().filter_map(|b| find_need(b)) {
            let other = !need.protocol.is_empty() && !protocol.proto.is_meant_by(need.protocol);
            if other || need.dir.is_some_and(|d| d != dir) {
                return None;
            }
            if need.buffer.is_empty() {
                whole = false;
                continue;
            }
            let def = protocol.buffers.iter().find(|b| b.name == need.buffer)?;
            progress = progress.max(def.progress[dir.index()]?);
        }
        let changes = !whole || c.buffers.is_empty();
        steps.push(Step::new(progress, What::Lua { number, buffer: None, changes }));
    }
    Some(steps)
}
