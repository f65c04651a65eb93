//! A simulation of workers that share one stream of packets, from what each packet costs one of them.
//!
//! It is discrete: nothing happens but at events (a list of frames is done, 256 frames were read, a sleeper woke), which are taken in the
//! order of their times; ties go to who asked first. There is no chance in it, so a trace and a machine give one result.
//!
//! What is simulated is what the engine does (`docs/parallel.md`), with its own limits: who has nothing to do takes the reader's place
//! and reads 256 frames at a time until it has 1,024 packets or a queue of 8 lists is full; lists are handed over from 128
//! frames on, or sooner where their worker waits for them; who finds neither packets nor the reader's place sleeps, and wakes late. What reading,
//! steering and inspection cost is measured on one worker; what handing over, waking and moving cost is in [`Machine`].
//!
//! What is left out: that processors share memory and caches (but for a factor that may be measured), and waiting for others where rules touch
//! what all flows share.

mod load;
#[cfg(test)]
mod tests;
mod world;

#[cfg(test)]
pub(crate) use load::Packet;
pub(crate) use load::{Load, Shares};

/// The name of [`Strategy::Study`].
pub(crate) const STUDY: &str = "optimistic, as the study's";

/// How flows come to workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strategy {
    /// Where its hash says.
    Hash,
    /// To the worker that has least to do when the flow begins.
    ShortestQueue,
    /// Also later, when none of its packets is on the way.
    Conservative,
    /// Also while many are on the way: who takes the flow waits until it is given.
    Optimistic,
    /// The same as the study has it: nobody waits, what is left of the flow's stream is looked at before it goes, and effects are put in
    /// order afterwards. The engine has nothing of the kind.
    Study,
    /// Where its hash says; who has nothing to do searches what waits for others.
    Adaptive,
}

impl Strategy {
    /// By the name that the engine has for it; none where it is not simulated.
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

/// What work with several costs, in nanoseconds, and the limits of the engine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Machine {
    /// From when a sleeper is rung to when it works.
    pub(crate) wake: u64,
    /// What ringing costs who rings.
    pub(crate) ring: u64,
    /// Making a list and putting it into a queue; taking it out.
    pub(crate) give: u64,
    pub(crate) take: u64,
    /// A packet whose headers another processor has looked at before.
    pub(crate) far: u64,
    /// A flow that changes its worker: what it costs both.
    pub(crate) give_flow: u64,
    pub(crate) move_flow: u64,
    /// The study's: what of a flow's stream is looked at sooner than it would be when it moves with packets on the way.
    pub(crate) flush: u64,
    /// The study's: a packet that is inspected beside earlier ones of its flow, the buffer that puts their effects in order.
    pub(crate) order: u64,
    /// A packet that is searched for another: a list of what is found, and the word that says so.
    pub(crate) help: u64,
    /// An optimistic flow may move with more of its packets on the way than this (`margay.move-waiting`).
    pub(crate) threshold: u32,
    /// A flow moves where the other queue is half as long, and shorter by so many packets (`margay.move-difference`).
    pub(crate) gain: u64,
    /// How many times as long everything takes while others work beside it.
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
    /// Names of what can be set, as `--machine wake=20000,move=2000` takes them.
    pub(crate) const NAMES: &str =
        "wake, ring, give, take, far, give-flow, move-flow, flush, order, help, threshold, gain, beside";

    /// Sets one of the values.
    ///
    /// # Errors
    /// A sentence, where it is none, or no number.
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

/// What a simulated run came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Simulated {
    /// Nanoseconds from the first packet to the end of the last flow.
    pub(crate) time: u64,
    /// One worker's time over this one.
    pub(crate) speedup: f64,
    /// The share of the packets that the busiest worker had.
    pub(crate) busiest: f64,
    /// Most packets that waited for one.
    pub(crate) longest: u64,
    /// Turns of reading, and those that a full queue ended.
    pub(crate) turns: u64,
    pub(crate) stalls: u64,
    /// Flows that changed their worker.
    pub(crate) moves: u64,
    /// Packets that were searched for another in time.
    pub(crate) helped: u64,
    /// The share of the workers' time that was slept, and that was spent on waiting for a flow.
    pub(crate) idle: f64,
    pub(crate) waited: f64,
    /// Nanoseconds of work by all: inspection with what handing over adds to it, reading, and searching for others.
    pub(crate) inspected: u64,
    pub(crate) read: u64,
    pub(crate) searched: u64,
}

/// Simulates `workers` on `load`.
pub(crate) fn simulate(load: &Load, strategy: Strategy, workers: usize, machine: &Machine) -> Simulated {
    world::World::new(load, strategy, workers.max(1), machine).run()
}
