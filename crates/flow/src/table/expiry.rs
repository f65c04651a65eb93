//! Ends flows: the timer wheel, emergency mode and eviction.

use margay_packet::Time;

use super::{EVICT_TRIES, EndReason, Flow, FlowRef, FlowTable, NONE, OVER_MIN, SECOND, SLOTS};
use crate::core::{FlowCore, FlowState};

impl<X> FlowTable<X> {
    /// Handles a changed timeout. A longer one takes effect when the flow's wheel slot comes round.
    pub(super) fn rearm(&mut self, at: u32) {
        let deadline = self.deadline(at);
        let armed = self.slots.get(at).map_or(0, |s| self.slot_time(s.wheel));
        if deadline / SECOND < armed {
            self.unlink(at);
            self.link(at, deadline);
        }
    }

    /// Ends flows that exceeded their timeout at packet time `now`. Inspects at most `budget` flows and returns `false`
    /// if there may be more. The rest of the budget is used for the sweep of emergency mode.
    pub fn expire(&mut self, now: Time, budget: usize, ended: &mut dyn FnMut(Flow<X>, EndReason)) -> bool {
        let now = self.clock.advance(now);
        let mut left = budget;
        let target = now / SECOND;
        // One round of the wheel covers all flows, however far time jumped.
        if target - self.second > SLOTS as i64 {
            self.second = target - SLOTS as i64;
        }
        while self.second < target {
            let w = (self.second % SLOTS as i64) as usize;
            while let Some(&at) = self.wheel.get(w)
                && at != NONE
            {
                if left == 0 {
                    return false;
                }
                left -= 1;
                self.counters.mgr_flows_checked += 1;
                if self.timed_out(at, now) {
                    self.counters.mgr_flows_timeout += 1;
                    self.counters.mgr_flows_evicted += 1;
                    if let Some(flow) = self.remove(at) {
                        ended(flow, EndReason::Timeout);
                    }
                } else {
                    self.counters.mgr_flows_notimeout += 1;
                    let later = (self.second + 1).saturating_mul(SECOND);
                    let deadline = self.deadline(at).max(now.saturating_add(self.ahead(at))).max(later);
                    self.unlink(at);
                    self.link(at, deadline);
                }
            }
            self.second += 1;
        }
        if self.emergency {
            self.sweep_emergency(now, left, ended);
        }
        true
    }

    /// In emergency mode the wheel's slots are too late, so this inspects flows one after the other. Ends emergency
    /// mode once enough flows are free.
    fn sweep_emergency(&mut self, now: i64, budget: usize, ended: &mut dyn FnMut(Flow<X>, EndReason)) {
        for _ in 0..budget.min(self.slots.len()) {
            let at = self.sweep;
            self.sweep = if (at as usize) + 1 < self.slots.len() { at + 1 } else { 0 };
            if self.sweep == 0 {
                self.counters.mgr_full_hash_pass += 1;
            }
            if self.slots.get(at).is_some_and(|s| s.used) {
                self.counters.mgr_flows_checked += 1;
                if self.timed_out(at, now)
                    && let Some(flow) = self.remove(at)
                {
                    self.counters.mgr_flows_timeout += 1;
                    ended(flow, EndReason::Timeout);
                }
            }
        }
        let free = u64::from(self.limit) - self.counters.active.min(u64::from(self.limit));
        if free * 100 >= u64::from(self.limit) * u64::from(self.config.emergency_recovery.clamp(1, 100)) {
            self.emergency = false;
            self.counters.emerg_mode_over += 1;
        }
    }

    /// Evicts a flow: the longest idle one of the next few to time out.
    pub(super) fn evict(&mut self, now: i64, ended: &mut dyn FnMut(Flow<X>, EndReason)) -> bool {
        let mut best: Option<(i64, u32)> = None;
        let mut tries = 0;
        let start = (self.second % SLOTS as i64) as usize;
        'wheel: for i in 0..=SLOTS / 64 {
            let word_at = (start / 64 + i) % (SLOTS / 64);
            let mut word = self.occupied.get(word_at).copied().unwrap_or(0);
            if i == 0 {
                word &= u64::MAX << (start % 64);
            } else if i == SLOTS / 64 {
                word &= !(u64::MAX << (start % 64));
            }
            while word != 0 {
                let w = word_at * 64 + word.trailing_zeros() as usize;
                word &= word - 1;
                let mut at = self.wheel.get(w).copied().unwrap_or(NONE);
                while let Some(slot) = self.slots.get(at) {
                    tries += 1;
                    self.counters.get_used_eval += 1;
                    if best.is_none_or(|(touched, _)| slot.touched < touched) {
                        best = Some((slot.touched, at));
                    }
                    if tries >= EVICT_TRIES {
                        break 'wheel;
                    }
                    at = slot.next;
                }
            }
        }
        let Some((_, at)) = best else {
            self.counters.get_used_failed += 1;
            return false;
        };
        let reason = if self.timed_out(at, now) { EndReason::Timeout } else { EndReason::Forced };
        let Some(flow) = self.remove(at) else { return false };
        self.counters.get_used += 1;
        ended(flow, reason);
        true
    }

    fn timeout(&self, at: u32, emergency: bool) -> i64 {
        self.get(FlowRef(at)).map_or(0, |flow| self.timeout_of(&flow.core, emergency))
    }

    pub(super) fn timeout_of(&self, core: &FlowCore, emergency: bool) -> i64 {
        let pair = self.config.timeouts.of(core.proto);
        let timeouts = if emergency { &pair.emergency } else { &pair.normal };
        let seconds = timeouts.of(core.state);
        let bypassed = matches!(core.state, FlowState::LocalBypassed | FlowState::CaptureBypassed);
        let seconds = if core.over && bypassed { seconds.min(timeouts.closed.max(OVER_MIN)) } else { seconds };
        i64::from(seconds) * SECOND
    }

    pub(super) fn deadline(&self, at: u32) -> i64 {
        let touched = self.slots.get(at).map_or(0, |s| s.touched);
        touched.saturating_add(self.timeout(at, false))
    }

    pub(super) fn timed_out(&self, at: u32, now: i64) -> bool {
        let touched = self.slots.get(at).map_or(0, |s| s.touched);
        touched.saturating_add(self.timeout(at, self.emergency)) <= now && self.ahead(at) == 0
    }

    /// Microseconds of packet time until the flow times out; 0 if it has. They exceed table time if packet time jumped
    /// back within a capture: the flow's packets may continue from there. A flow from before the current capture just
    /// ages.
    fn ahead(&self, at: u32) -> i64 {
        let (Some(slot), Some(flow)) = (self.slots.get(at), self.get(FlowRef(at))) else { return 0 };
        if slot.touched < self.border {
            return 0;
        }
        let end = flow.core.last.0.saturating_add(self.timeout(at, self.emergency));
        end.saturating_sub(self.clock.latest().0).max(0)
    }

    /// Whether the flow's latest packet is too old for a packet at time `now` to belong to it. This uses packet times,
    /// which may have gone back since.
    pub(super) fn silent_before(&self, at: u32, now: Time) -> bool {
        let Some(Flow { core, .. }) = self.get(FlowRef(at)) else { return true };
        if matches!(core.state, FlowState::New | FlowState::Established)
            && now.0.saturating_sub(core.last.0) < self.silence
        {
            return false;
        }
        core.last.0.saturating_add(self.timeout_of(core, self.emergency)) <= now.0
    }

    /// The second at which slot `w` is due.
    pub(super) fn slot_time(&self, w: u16) -> i64 {
        let base = self.second - self.second % SLOTS as i64;
        let t = base + i64::from(w);
        if t < self.second { t + SLOTS as i64 } else { t }
    }

    pub(super) fn link(&mut self, at: u32, deadline: i64) {
        let second = (deadline / SECOND).clamp(self.second, self.second + SLOTS as i64 - 1);
        let w = (second % SLOTS as i64) as usize;
        let Some(head) = self.wheel.get_mut(w) else { return };
        let old = std::mem::replace(head, at);
        if let Some(word) = self.occupied.get_mut(w / 64) {
            *word |= 1 << (w % 64);
        }
        if let Some(next) = self.slots.get_mut(old) {
            next.prev = at;
        }
        if let Some(slot) = self.slots.get_mut(at) {
            slot.prev = NONE;
            slot.next = old;
            slot.wheel = w as u16;
        }
    }

    pub(super) fn unlink(&mut self, at: u32) {
        let Some(slot) = self.slots.get(at) else { return };
        let (prev, next, w) = (slot.prev, slot.next, usize::from(slot.wheel));
        if let Some(n) = self.slots.get_mut(next) {
            n.prev = prev;
        }
        match self.slots.get_mut(prev) {
            Some(p) => p.next = next,
            None => {
                if let Some(head) = self.wheel.get_mut(w) {
                    *head = next;
                }
                if next == NONE
                    && let Some(word) = self.occupied.get_mut(w / 64)
                {
                    *word &= !(1 << (w % 64));
                }
            }
        }
    }
}
