//! Simulates workers that share one stream of packets, from the cost of each packet with one worker.
//!
//! This is a discrete-event simulation: state changes only at events (a list of frames is done, 256 frames were read, a
//! sleeper woke), in the order of their times. Simultaneous events keep the order in which they were scheduled. Nothing
//! is random, so a trace and a machine always give the same result.
//!
//! The simulated workers behave like the engine's (`docs/parallel.md`), with its limits. An idle worker becomes the
//! reader. It reads 256 frames at a time until it has 1,024 packets or a queue of 8 lists is full. A list is handed over
//! once it has 128 frames, or earlier if its worker waits for it. A worker that finds neither packets nor the reader's
//! role sleeps, and wakes late. The costs of reading, steering and inspection are measured with one worker. [`Machine`]
//! has the costs of handing over, waking and moving.
//!
//! The simulation ignores that processors share memory and caches (except for a factor that may be measured), and that
//! rules wait for state which all flows share.

mod load;
#[cfg(test)]
mod tests;
mod world;

#[cfg(test)]
pub(crate) use load::Packet;
pub(crate) use load::{Load, Shares};

/// The name of [`Strategy::Study`].
pub(crate) const STUDY: &str = "optimistic, as the study's";

/// How flows are assigned to workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strategy {
    /// By the flow's hash.
    Hash,
    /// To the worker with the least work when the flow begins.
    ShortestQueue,
    /// The same, and again later whenever none of the flow's packets is in flight.
    Conservative,
    /// The same, even while packets are in flight: the new worker waits until the old one releases the flow.
    Optimistic,
    /// The study's variant: no worker waits. Remaining stream data is inspected before the flow moves, and effects are
    /// ordered afterwards. The engine has no such scheduler.
    Study,
    /// By the flow's hash. Idle workers search packets that wait for others.
    Adaptive,
}

impl Strategy {
    /// The strategy with the engine's name for it; `None` if it is not simulated.
    pub(crate) fn of(name: &str) -> Option<Strategy> {
        Some(match name {
            "hash" => Strategy::Hash,
            "shortest-queue" => Strategy::ShortestQueue,
            "conservative" => Strategy::Conservative,
            "optimistic" => Strategy::Optimistic,
            "adaptive" => Strategy::Adaptive,
            STUDY => Strategy::Study,
            _ => return None,
        })
    }

    const fn keeps_to_hash(self) -> bool {
        matches!(self, Strategy::Hash | Strategy::Adaptive)
    }
}

/// The costs of parallel work in nanoseconds, and the engine's limits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Machine {
    /// Time from the wake-up call until a sleeper works.
    pub(crate) wake: u64,
    /// The caller's cost of a wake-up call.
    pub(crate) ring: u64,
    /// The costs of queueing a list, and of taking it out.
    pub(crate) give: u64,
    pub(crate) take: u64,
    /// A packet whose headers another processor touched first.
    pub(crate) far: u64,
    /// Moving a flow, for both workers.
    pub(crate) give_flow: u64,
    pub(crate) move_flow: u64,
    /// Study variant: inspecting stream data early, because the flow moves with packets in flight.
    pub(crate) flush: u64,
    /// Study variant: inspecting a packet in parallel with earlier ones of its flow, and buffering its effects for
    /// ordering.
    pub(crate) order: u64,
    /// Searching a packet for another worker: the result list and the notification.
    pub(crate) help: u64,
    /// An optimistic flow may move with more of its packets in flight than this (`margay.move-waiting`).
    pub(crate) threshold: u32,
    /// A flow moves if the other queue is at most half as long, and shorter by at least this many packets
    /// (`margay.move-difference`).
    pub(crate) gain: u64,
    /// The slowdown factor while other workers are active.
    pub(crate) beside: f64,
}

impl Default for Machine {
    fn default() -> Machine {
        Machine {
            wake: 20_000,
            ring: 2_000,
            give: 150,
            take: 150,
            far: 30,
            give_flow: 1_000,
            move_flow: 2_000,
            flush: 5_000,
            order: 200,
            help: 60,
            threshold: 100,
            gain: 256,
            beside: 1.0,
        }
    }
}

impl Machine {
    /// Names of the parameters, as in `--machine wake=20000,move=2000`.
    pub(crate) const NAMES: &str =
        "wake, ring, give, take, far, give-flow, move-flow, flush, order, help, threshold, gain, beside";

    /// Sets one of the values.
    ///
    /// # Errors
    /// A sentence about an unknown name or an invalid number.
    pub(crate) fn set(&mut self, text: &str) -> Result<(), String> {
        let (name, value) = text.split_once('=').ok_or_else(|| format!("'{text}' is no name=value"))?;
        let number: f64 = value.parse().map_err(|_| format!("'{value}' is no number"))?;
        if !(number.is_finite() && (0.0..=1e12).contains(&number)) {
            return Err(format!("{name}: {value} cannot be"));
        }
        let whole = number as u64;
        match name {
            "wake" => self.wake = whole,
            "ring" => self.ring = whole,
            "give" => self.give = whole,
            "take" => self.take = whole,
            "far" => self.far = whole,
            "give-flow" => self.give_flow = whole,
            "move-flow" => self.move_flow = whole,
            "flush" => self.flush = whole,
            "order" => self.order = whole,
            "help" => self.help = whole,
            "threshold" => self.threshold = u32::try_from(whole).unwrap_or(u32::MAX),
            "gain" => self.gain = whole,
            "beside" => self.beside = number.max(0.01),
            _ => return Err(format!("'{name}' is none of {}", Self::NAMES)),
        }
        Ok(())
    }
}

/// The result of a simulated run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Simulated {
    /// Nanoseconds from the first packet to the end of the last flow.
    pub(crate) time: u64,
    /// One worker's time divided by this one.
    pub(crate) speedup: f64,
    /// The busiest worker's share of the packets.
    pub(crate) busiest: f64,
    /// Most packets that waited for one worker.
    pub(crate) longest: u64,
    /// Reading turns, and those that ended because a queue was full.
    pub(crate) turns: u64,
    pub(crate) stalls: u64,
    /// Flows that moved to another worker.
    pub(crate) moves: u64,
    /// Packets that another worker finished searching in time.
    pub(crate) helped: u64,
    /// The shares of the workers' time spent asleep, and waiting for a flow.
    pub(crate) idle: f64,
    pub(crate) waited: f64,
    /// Total work in nanoseconds: inspection with the costs of handing over, reading, and searching for other workers.
    pub(crate) inspected: u64,
    pub(crate) read: u64,
    pub(crate) searched: u64,
}

/// Simulates `workers` workers on `load`.
pub(crate) fn simulate(load: &Load, strategy: Strategy, workers: usize, machine: &Machine) -> Simulated {
    world::World::new(load, strategy, workers.max(1), machine).run()
}
