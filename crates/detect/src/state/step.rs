//! One step of a transaction rule: whether it holds, may hold later, or never will.

use margay_app::{ABSENT, AppProto, BufferKind};
use margay_rules::ast::{NumberTest, Which};

use super::State;
use super::scripts::ScriptCall;
use super::values::{TxScratch, each, slot_of, start_of, whole};
use crate::input::Input;
use crate::rule::CompiledRule;
use crate::tx::{SlotSource, Step, TxRule, View, What};
use crate::watch::{At, Watch};

/// The result of evaluating one step.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Holds,
    Later,
    Never,
}

impl<W: Watch> State<W> {
    // It stays whole: a flat match over the steps.
    pub(super) fn step(&mut self, txr: &TxRule, step: &Step, view: View<'_>) -> Outcome {
        // A failed step may still hold while the transaction is in the state that fills the buffer.
        let grows = matches!(step.what, What::Buffer { kind: BufferKind::Growing, .. });
        let final_look = view.complete || !grows && view.progress > step.progress;
        let not_yet = if final_look { Outcome::Never } else { Outcome::Later };
        let to = |holds| if holds { Outcome::Holds } else { not_yet };
        let State { tx: scratch, context, transforms, .. } = self;
        match &step.what {
            What::Event(e) => match view.tx.base().events.has(*e) {
                true => Outcome::Holds,
                false => Outcome::Later,
            },
            What::Bit { name, set } => match view.tx.base().bits.contains(name) == *set {
                true => Outcome::Holds,
                false => Outcome::Later,
            },
            What::Score { name, least } => match view.tx.base().score(*name) >= *least {
                true => Outcome::Holds,
                false => Outcome::Later,
            },
            What::Reached => Outcome::Holds,
            What::State { state, order } => match view.progress.cmp(state) {
                o if o == *order => Outcome::Holds,
                std::cmp::Ordering::Less => Outcome::Later,
                _ => Outcome::Never,
            },
            What::Number { id, test, which, changes } => match number_holds(view, *id, test, *which) {
                false if *changes && !view.complete => Outcome::Later,
                holds => to(holds),
            },
            What::Interface { id, test } => {
                let mut joined = Vec::new();
                let mut all = (0..).map_while(|i| {
                    joined.clear();
                    view.tx.buffer(*id, view.dir, i, &mut joined).map(|f| test.holds(f.data))
                });
                to(all.any(|h| h))
            }
            What::Length { slot, value } => {
                let Some((def, cached)) = slot_of(view, scratch, *slot) else { return Outcome::Never };
                let found = whole(cached, def, view, context, transforms);
                to(found.is_some_and(|f| value.holds(f.data.len() as u64)))
            }
            What::Buffer { slot, check, kind: BufferKind::Single } => {
                let Some((def, cached)) = slot_of(view, scratch, *slot) else { return Outcome::Never };
                let Some(check) = txr.checks.get(usize::from(*check)) else { return Outcome::Never };
                context.watch.at(At::Slot);
                match whole(cached, def, view, context, transforms) {
                    Some(f) => to(check.inspect(f.data, context)),
                    None => not_yet,
                }
            }
            What::Buffer { slot, check, kind } => {
                let Some(def) = view.group.slots.get(usize::from(*slot)) else { return Outcome::Never };
                let Some(check) = txr.checks.get(usize::from(*check)) else { return Outcome::Never };
                context.watch.at(At::Slot);
                if *kind == BufferKind::Stream && def.is_one() {
                    let Some((def, cached)) = slot_of(view, scratch, *slot) else { return Outcome::Never };
                    return match whole(cached, def, view, context, transforms) {
                        Some(f) if check.inspect_part(f.data, start_of(def, &f), context) => Outcome::Holds,
                        Some(f) if f.end => Outcome::Never,
                        _ if view.complete => Outcome::Never,
                        _ => Outcome::Later,
                    };
                }
                // No data came since the last inspection.
                if grows && !view.complete && view.begun > step.progress {
                    return Outcome::Later;
                }
                let mut found = false;
                let TxScratch { one, slots, .. } = scratch;
                let kept = slots.get_mut(usize::from(*slot));
                each((one, kept), def, view, context, transforms, &mut |f, context| {
                    found = check.inspect_part(f.data, start_of(def, &f), context);
                    found
                });
                match found {
                    true => Outcome::Holds,
                    // More files, or more data of them, may come.
                    false if !view.complete && !matches!(def.source, SlotSource::Buffer(_)) => Outcome::Later,
                    false => not_yet,
                }
            }
            What::Absent { slot, or_else, kind } => {
                let Some(def) = view.group.slots.get(usize::from(*slot)) else { return Outcome::Never };
                let check = or_else.and_then(|c| txr.checks.get(usize::from(c)));
                context.watch.at(At::Slot);
                let mut there = false;
                let mut holds = false;
                if def.is_one() {
                    let Some((def, cached)) = slot_of(view, scratch, *slot) else { return Outcome::Never };
                    if let Some(f) = whole(cached, def, view, context, transforms)
                        && !(*kind == BufferKind::Stream && f.data.is_empty() && f.offset == 0)
                    {
                        there = true;
                        holds = check.is_some_and(|c| c.inspect_part(f.data, start_of(def, &f), context));
                    }
                } else {
                    let TxScratch { one, slots, .. } = scratch;
                    let kept = slots.get_mut(usize::from(*slot));
                    each((one, kept), def, view, context, transforms, &mut |f, context| {
                        there = true;
                        holds = check.is_some_and(|c| c.inspect_part(f.data, start_of(def, &f), context));
                        holds
                    });
                }
                let streams = kind.grows() || !matches!(def.source, SlotSource::Buffer(_));
                match (there, holds) {
                    (true, true) => Outcome::Holds,
                    // Another part of streamed data may pass, but the step must run again to see it.
                    (true, false) if streams && check.is_some() && !view.complete => Outcome::Later,
                    (true, false) => Outcome::Never,
                    (false, _) if view.complete || (!streams && final_look) => Outcome::Holds,
                    (false, _) => Outcome::Later,
                }
            }
            What::Payload | What::File(_) | What::Lua { .. } => Outcome::Later,
        }
    }

    /// Calls a script for a transaction; for a buffer, once for each value that passes the checks before it.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn script_step(
        &mut self,
        rule: &CompiledRule,
        txr: &TxRule,
        proto: AppProto,
        number: u16,
        buffer: Option<(u16, Option<u16>, BufferKind)>,
        view: View<'_>,
        input: &Input<'_>,
    ) -> bool {
        let State { tx: scratch, context, transforms, scripts, .. } = self;
        let mut call = ScriptCall { rule, number, tx: Some((view.tx, proto)), input, offset: 0 };
        let Some((slot, check, _)) = buffer else { return scripts.call(&mut call, None, &context.variables) };
        let Some(def) = view.group.slots.get(usize::from(slot)) else { return false };
        let check = check.and_then(|c| txr.checks.get(usize::from(c)));
        let mut found = false;
        let TxScratch { one, slots, .. } = scratch;
        let kept = slots.get_mut(usize::from(slot));
        each((one, kept), def, view, context, transforms, &mut |f, context| {
            found = check.is_none_or(|c| c.inspect_part(f.data, start_of(def, &f), context));
            if found {
                call.offset = if check.is_some() { context.cursor } else { 0 };
                found = scripts.call(&mut call, Some(f.data), &context.variables);
            }
            found
        });
        found
    }
}

/// Whether a rule's condition on one or several numbers holds.
fn number_holds(view: View<'_>, id: u8, test: &NumberTest, which: Which) -> bool {
    let mut all = (0..).map_while(|i| view.tx.number(id, view.dir, i)).map(|v| v != ABSENT && test.holds(v));
    match which {
        Which::Any => all.any(|h| h),
        Which::All => all.all(|h| h),
        Which::AllAndSome => all.next().is_some_and(|h| h) && all.all(|h| h),
        Which::At(n) => match usize::try_from(n) {
            Ok(n) => all.nth(n).unwrap_or(false),
            Err(_) => {
                let all: Vec<bool> = all.collect();
                let back = n.unsigned_abs() as usize;
                all.len().checked_sub(back).and_then(|i| all.get(i)).is_some_and(|h| *h)
            }
        },
        Which::Count(c) => c.holds(all.filter(|h| *h).count() as u64),
    }
}
