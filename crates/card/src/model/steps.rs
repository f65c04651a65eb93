//! The firmware: the choice of a core's next task, and the tasks.

use crate::design::{Assignment, Part};
use crate::trace::{TCP, Work};

use super::{CHUNK, Card, FLOWS, Job, Lock, NEVER, NOBODY, RULES, STREAMS, TABLES, Task};

impl Card<'_> {
    pub(super) fn work(&self, slot: u32) -> Work {
        self.trace.packets[self.slots[slot as usize].packet as usize]
    }

    /// Makes a core work on a stage from `now` to `end`, and then continue with `task`.
    pub(super) fn busy(&mut self, core: usize, stage: usize, now: u64, end: u64, task: Task) {
        self.out.stages[stage] += end - now;
        self.out.cores[core] += end - now;
        let core = &mut self.cores[core];
        core.at = end;
        core.task = task;
    }

    pub(super) fn step(&mut self, core: usize, now: u64) {
        match self.cores[core].task {
            Task::Idle => self.pick(core, now),
            Task::Assign { slot, queue } => {
                self.assigning = false;
                if self.cores[usize::from(queue)].queue.len() < self.design.queue as usize {
                    self.enqueue(slot, queue, now);
                } else {
                    // All later packets wait behind it.
                    self.blocked = Some((slot, queue));
                }
                self.pick(core, now);
            }
            Task::Segment { slot } => self.segment(core, now, slot),
            Task::Packet { slot, copied: 0 } => {
                let flow = FLOWS.wrapping_add(self.work(slot).flow * self.costs.flow as u32);
                let end = self.write(now, flow);
                self.packet(core, end, slot, 0);
            }
            Task::Packet { slot, copied } => self.packet(core, now, slot, copied),
            Task::Match { slot, done } => self.match_software(core, now, slot, done),
            Task::Verify { slot, next } => self.verify(core, now, slot, next),
            Task::Uri { slot } => self.job_done(core, now, slot),
            Task::Notify { slot } => {
                let s = self.slots[slot as usize];
                let work = self.work(slot);
                let latency = now - s.arrived;
                self.out.done += 1;
                self.out.bytes += u64::from(work.bytes);
                if work.alerts > 0 && !s.dropped {
                    self.out.alerts += u64::from(work.alerts);
                    if let Some(barred) = self.barred.get_mut(work.flow as usize) {
                        *barred = true;
                    }
                    if self.design.part == Part::All {
                        self.out.host_work += self.costs.host_packet;
                    }
                }
                self.out.latency += u128::from(latency);
                let quarter = (latency.max(1) as f64).log2() * 4.0;
                self.out.latencies[(quarter as usize).min(255)] += 1;
                self.unused.push(slot);
                self.pick(core, now);
            }
        }
    }

    pub(super) fn enqueue(&mut self, slot: u32, queue: u8, now: u64) {
        self.cores[usize::from(queue)].queue.push_back(slot);
        self.wake_core(usize::from(queue), now);
    }

    /// The next task of a free core: tasks that others wait for, then its own packets, then arrivals.
    pub(super) fn pick(&mut self, core: usize, now: u64) {
        self.cores[core].task = Task::Idle;
        match self.jobs.pop_front() {
            Some(Job::Verify(slot)) => return self.verify(core, now, slot, 0),
            Some(Job::Uri(slot)) => {
                let work = self.work(slot);
                let start = self.code(core, now, 3);
                let instructions =
                    f64::from(work.uris) * self.costs.uri + f64::from(work.uri_bytes) * self.costs.uri_byte;
                let end = self.compute(core, start, instructions);
                return self.busy(core, 4, now, end, Task::Uri { slot });
            }
            None => {}
        }
        if let Some(slot) = self.cores[core].queue.pop_front() {
            if let Some((waiting, queue)) = self.blocked
                && usize::from(queue) == core
            {
                self.blocked = None;
                self.cores[core].queue.push_back(waiting);
            }
            return self.begin_packet(core, now, slot);
        }
        if self.may_assign()
            && let Some((ready, slot)) = self.arrivals.front().copied()
            && ready <= now
        {
            self.arrivals.pop_front();
            return self.assign(core, now, slot);
        }
        self.cores[core].at = NEVER;
        self.idle |= 1 << core;
    }

    pub(super) fn assign(&mut self, core: usize, now: u64, slot: u32) {
        self.assigning = true;
        self.lock(core, Lock::Assign);
        let flow = self.work(slot).flow as usize;
        let cores = self.cores.len();
        let (mut instructions, mut at) = (self.costs.assign, self.code(core, now, 0));
        at = self.read(core, at, self.address(self.slots[slot as usize].packet), 64);
        let queue = if self.design.assignment == Assignment::Static {
            (self.trace.flows[flow] as usize % cores) as u8
        } else {
            instructions += self.costs.assign_table;
            at = self.read(core, at, FLOWS.wrapping_add(flow as u32 * self.costs.flow as u32), 32);
            let shortest = (0..cores).min_by_key(|c| self.cores[*c].queue.len()).unwrap_or(0);
            let mut queue = self.flows[flow];
            if queue == NOBODY {
                queue = shortest as u8;
            } else if self.design.assignment == Assignment::Reassign
                && self.cores[usize::from(queue)].queue.len() >= self.design.full as usize
                && self.cores[shortest].queue.len() <= self.design.empty as usize
            {
                queue = shortest as u8;
                instructions += self.costs.reassign;
                self.out.moved += 1;
                self.slots[slot as usize].split = true;
            }
            self.flows[flow] = queue;
            queue
        };
        let end = self.compute(core, at, instructions);
        self.busy(core, 0, now, end, Task::Assign { slot, queue });
    }

    /// Hardware puts a packet into a queue, once it is in memory at `ready`. If the queue is full, the packet is lost or, if it `may`,
    /// waits, and with it all later packets.
    pub(super) fn steer(&mut self, slot: u32, ready: u64, may: bool) {
        let flow = self.work(slot).flow as usize;
        let queue = (self.trace.flows[flow] as usize % self.cores.len()) as u8;
        if self.cores[usize::from(queue)].queue.len() < self.design.queue as usize {
            self.enqueue(slot, queue, ready);
        } else if may {
            self.blocked = Some((slot, queue));
        } else {
            self.out.lost += 1;
            self.unused.push(slot);
        }
    }

    /// Passes a packet to the host, which does the remaining work.
    fn leave_to_host(&mut self, work: Work) {
        let costs = self.costs;
        let (mut bytes, mut instructions) = (u64::from(work.bytes), costs.host_packet);
        if self.design.part == Part::Filter {
            // For a stream, the reassembled bytes go to the host.
            bytes = bytes.max(u64::from(work.flush));
        } else {
            instructions += f64::from(work.flush) * costs.host_byte;
        }
        instructions += f64::from(work.group) * costs.host_verify;
        instructions += f64::from(work.uris) * costs.uri + f64::from(work.uri_bytes) * costs.uri_byte;
        self.out.host.0 += 1;
        self.out.host.1 += bytes;
        self.out.host_work += instructions;
    }

    /// Whether the packet's flow needs no more work.
    fn enough(&self, slot: u32, work: Work) -> bool {
        self.enough.get(work.flow as usize).is_some_and(|from| self.slots[slot as usize].packet >= *from)
    }

    pub(super) fn begin_packet(&mut self, core: usize, now: u64, slot: u32) {
        let work = self.work(slot);
        let now = now.max(self.slots[slot as usize].ready);
        if self.design.part == Part::Steer {
            self.leave_to_host(work);
            return self.notify(core, now, slot);
        }
        if self.barred.get(work.flow as usize).copied().unwrap_or(false) {
            self.out.dropped += 1;
            self.slots[slot as usize].dropped = true;
            return self.notify(core, now, slot);
        }
        let mut at = self.code(core, now, 1);
        let flow = FLOWS.wrapping_add(work.flow * self.costs.flow as u32);
        at = self.read(core, at, self.address(self.slots[slot as usize].packet), 64);
        at = self.read(core, at, flow, self.costs.flow as u32);
        at = self.compute(
            core,
            at,
            self.costs.packet + if self.slots[slot as usize].split { self.costs.flush } else { 0.0 },
        );
        let follows = self.design.part == Part::Track || self.enough(slot, work);
        let segment = work.flags & TCP != 0 && work.payload > 0 && !follows;
        if segment {
            at = self.compute(core, at, (self.costs.segment - self.costs.tree).max(0.0));
        }
        let next = if segment { Task::Segment { slot } } else { Task::Packet { slot, copied: 0 } };
        self.busy(core, 1, now, at, next);
    }

    /// Inserts a segment into the tree. It takes a lock only when simulated time has reached that point, so that no core gets it early.
    fn segment(&mut self, core: usize, now: u64, slot: u32) {
        let mut start = now;
        if self.design.assignment != Assignment::Reassign {
            // All cores share one tree.
            self.lock(core, Lock::Tree);
            start = now.max(self.tree);
        }
        let end = self.compute(core, start, self.costs.tree);
        self.tree = self.tree.max(end);
        self.busy(core, 1, now, end, Task::Packet { slot, copied: 0 });
    }

    /// Copies the bytes to inspect, one piece at a time.
    pub(super) fn packet(&mut self, core: usize, now: u64, slot: u32, copied: u32) {
        let work = self.work(slot);
        match self.design.part {
            Part::All | Part::Steer => {}
            _ if self.enough(slot, work) => return self.notify(core, now, slot),
            Part::Track => {
                self.leave_to_host(work);
                return self.notify(core, now, slot);
            }
            Part::Filter => {}
        }
        if work.flush == 0 {
            if work.group == 0 && work.uris == 0 {
                return self.notify(core, now, slot);
            }
            // Only rules that inspect no bytes, or bytes that were copied before.
            self.inspect_uris(now, slot, work);
            return self.verify(core, now, slot, 0);
        }
        if !self.design.gather && copied < work.flush {
            let part = (work.flush - copied).min(CHUNK);
            let packet = self.slots[slot as usize].packet;
            // The packet's own bytes are in its buffer, and earlier ones in other buffers.
            let base = if copied < u32::from(work.payload) {
                self.address(packet) + 64
            } else {
                STREAMS + self.address(packet)
            };
            let at = self.read(core, now, base.wrapping_add(copied), part);
            let end = self.compute(core, at, f64::from(part) * self.costs.copy_byte);
            return self.busy(core, 1, now, end, Task::Packet { slot, copied: copied + part });
        }
        self.inspect_uris(now, slot, work);
        if self.design.matcher > 0.0 {
            self.matching.push_back(slot);
            if self.matcher.0 == NEVER {
                self.match_next(now);
            }
            // The descriptor is written after the copy; its instructions are the core's.
            let end = self.compute(core, now, self.costs.flush);
            self.busy(core, 1, now, end, Task::Idle);
        } else {
            let at = self.code(core, now, 2);
            let end = self.compute(core, at, self.costs.flush);
            self.busy(core, 2, now, end, Task::Match { slot, done: 0 });
        }
    }

    /// Queues the remaining work of a packet: its verification, and its URIs if it has any.
    pub(super) fn inspect_uris(&mut self, now: u64, slot: u32, work: Work) {
        let uris = work.uris > 0 && self.design.part == Part::All;
        self.slots[slot as usize].pending = 1 + u8::from(uris);
        if uris {
            self.jobs.push_back(Job::Uri(slot));
            self.wake(now);
        }
    }

    pub(super) fn match_next(&mut self, now: u64) {
        let Some(slot) = self.matching.pop_front() else {
            self.matcher.0 = NEVER;
            return;
        };
        let flush = self.work(slot).flush;
        let mut end = now + (f64::from(flush) * 1e12 / self.design.matcher) as u64;
        if self.design.gather {
            let address = self.address(self.slots[slot as usize].packet);
            end = end.max(self.transfer(now, address, flush));
        }
        self.out.matcher += end - now;
        self.matcher = (end, slot);
    }

    /// Handles the end of a flush in the matcher.
    pub(super) fn matched(&mut self, now: u64) {
        self.jobs.push_back(Job::Verify(self.matcher.1));
        self.wake(now);
        self.match_next(now);
    }

    pub(super) fn match_software(&mut self, core: usize, now: u64, slot: u32, done: u32) {
        let work = self.work(slot);
        if done >= work.flush {
            return self.verify(core, now, slot, 0);
        }
        let part = (work.flush - done).min(CHUNK);
        let looks = (f64::from(part) / self.costs.match_stride) as u32;
        let packet = self.slots[slot as usize].packet;
        let table = (self.costs.match_table as u32).max(1);
        let mut at = now;
        for look in 0..looks {
            let mixed = (packet ^ (done + look).wrapping_mul(0x9e37_79b9)).wrapping_mul(0x85eb_ca6b);
            at = self.read(core, at, TABLES + (mixed >> 8) % table, 4);
        }
        let end = self.compute(core, at, f64::from(part) * self.costs.match_byte);
        self.busy(core, 2, now, end, Task::Match { slot, done: done + part });
    }

    /// Verifies the next reported rule.
    pub(super) fn verify(&mut self, core: usize, now: u64, slot: u32, next: u16) {
        let work = self.work(slot);
        let reports = if self.design.matcher > 0.0 { work.all } else { work.group };
        // A filter only compares ports.
        let next = if self.design.part == Part::Filter { next.max(work.group) } else { next };
        if next >= reports {
            if self.design.part == Part::Filter && (work.group > 0 || work.uris > 0) {
                self.leave_to_host(work);
            }
            return self.job_done(core, now, slot);
        }
        let report = self.trace.reports[work.first as usize + usize::from(next)];
        let (rule, looked) = (report >> 16, report & 0xffff);
        // A report of another group's rule ends with the comparison of ports.
        let looked = if next < work.group { looked } else { 0 };
        let at = self.code(core, now, 2);
        let at = self.read(core, at, RULES + rule * self.costs.rule as u32, self.costs.rule as u32);
        let end = self.compute(core, at, self.costs.verify + f64::from(looked) * self.costs.verify_byte);
        self.out.verified += 1;
        self.busy(core, 3, now, end, Task::Verify { slot, next: next + 1 });
    }

    pub(super) fn job_done(&mut self, core: usize, now: u64, slot: u32) {
        let pending = &mut self.slots[slot as usize].pending;
        *pending -= 1;
        if *pending == 0 {
            self.notify(core, now, slot);
        } else {
            self.pick(core, now);
        }
    }

    pub(super) fn notify(&mut self, core: usize, now: u64, slot: u32) {
        self.lock(core, Lock::Notify);
        let start = now.max(self.notify);
        let end = self.compute(core, start, self.costs.notify);
        self.notify = end;
        self.busy(core, 5, now, end, Task::Notify { slot });
    }
}
