//! Where packets were lost between sender and engine.

use crate::engine::Counts;
use crate::load::Sent;

/// A place where packets can be lost, in path order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// They should have been sent and were not.
    Sender,
    /// They were sent, and no later counter has them.
    Link,
    /// The card, or its driver, dropped them.
    Card,
    /// The kernel's queue was full.
    Softnet,
    /// The queue to the engine was full.
    Ring,
    /// The engine received them and did not decode them.
    Engine,
    /// The inline engine passed them, and they did not arrive.
    Forward,
}

impl Stage {
    pub(crate) const ALL: [Stage; 7] =
        [Stage::Sender, Stage::Link, Stage::Card, Stage::Softnet, Stage::Ring, Stage::Engine, Stage::Forward];

    /// The stage's name in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Stage::Sender => "sender",
            Stage::Link => "link",
            Stage::Card => "NIC",
            Stage::Softnet => "softnet",
            Stage::Ring => "ring",
            Stage::Engine => "engine",
            Stage::Forward => "forward",
        }
    }
}

/// Counter increases along the path during a trial; NaN if not counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Counted {
    pub(crate) sent: Sent,
    /// Dropped by the engine's interface.
    pub(crate) card: f64,
    /// Dropped by the kernel's queues on the whole machine.
    pub(crate) softnet: f64,
    /// Received by the engine's interface.
    pub(crate) interface: f64,
    /// The engine's own counters.
    pub(crate) engine: Counts,
    /// Packets sent after the warm-up.
    pub(crate) held_sent: f64,
    /// Increases of the engine's counters, from their last write in the warm-up to the end: packets that reached its
    /// ring, and packets that the ring dropped.
    pub(crate) held_received: f64,
    pub(crate) held_dropped: f64,
    /// Arrived on the other side of an inline engine; NaN for other engines.
    pub(crate) forwarded: f64,
}

/// Losses by stage, as shares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Losses {
    /// In the order of [`Stage::ALL`]: a share of offered packets for the sender, of sent packets for the others.
    pub(crate) share: [f64; Stage::ALL.len()],
    /// New gaps in TCP streams; NaN if they are not counted.
    pub(crate) gaps: f64,
}

impl Losses {
    /// Attributes losses to stages. Ring losses count only after the warm-up, because an empty ring first absorbs
    /// packets that will not fit later. They are relative to the arrivals in the same counters, which are seconds old
    /// when the engine writes them.
    pub(crate) fn of(counted: &Counted) -> Losses {
        let sent = counted.sent.packets;
        let share = |packets: f64, of: f64| if of > 0.0 && packets.is_finite() { (packets / of).max(0.0) } else { 0.0 };
        let known = |value: f64| if value.is_finite() { value } else { 0.0 };
        // If the engine does not count arrivals at its ring, the interface does.
        let arrived = [counted.engine.received, counted.interface, counted.engine.decoded];
        let arrived = arrived.into_iter().find(|value| value.is_finite()).unwrap_or(sent);
        // Losses between sender and ring are one number, divided by the counters of card and kernel. These include other
        // traffic, so their sum is limited to that number.
        let between = (sent - arrived).max(0.0);
        let card = known(counted.card).clamp(0.0, between);
        let softnet = known(counted.softnet).clamp(0.0, between - card);
        let dropped = known(counted.engine.dropped);
        let inside = if counted.engine.received.is_finite() || counted.interface.is_finite() {
            arrived - dropped - counted.engine.decoded
        } else {
            0.0
        };
        let at_ring = if counted.held_received > 0.0 {
            share(counted.held_dropped, counted.held_received) * share(arrived, sent).min(1.0)
        } else {
            share(counted.held_dropped, counted.held_sent)
        };
        Losses {
            share: [
                share(counted.sent.offered - sent, counted.sent.offered),
                share(between - card - softnet, sent),
                share(card, sent),
                share(softnet, sent),
                at_ring,
                share(inside, sent),
                share(counted.engine.decoded - known(counted.engine.blocked) - counted.forwarded, sent),
            ],
            gaps: counted.engine.gaps,
        }
    }

    /// The share of sent packets that the engine did not decode.
    pub(crate) fn total(&self) -> f64 {
        self.share[1..].iter().sum()
    }

    /// A stage's share of losses.
    pub(crate) fn at(&self, stage: Stage) -> f64 {
        self.share[stage as usize]
    }

    /// The stage with the largest loss, if it is at least a ten-thousandth.
    pub(crate) fn worst(&self) -> Option<Stage> {
        let worst = Stage::ALL.into_iter().max_by(|a, b| self.at(*a).total_cmp(&self.at(*b)))?;
        (self.at(worst) >= 1e-4).then_some(worst)
    }

    /// Describes the losses: `ring 3.2 %, engine 0.1 %`, or `none`.
    pub(crate) fn describe(&self) -> String {
        let one = |stage: &Stage| format!("{} {:.2} %", stage.name(), self.at(*stage) * 100.0);
        let mut parts: Vec<String> = Stage::ALL.iter().filter(|stage| self.at(**stage) >= 5e-5).map(one).collect();
        if self.gaps > 0.0 {
            parts.push(format!("{} TCP gaps", self.gaps));
        }
        if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(offered: f64, sent: f64, received: f64, dropped: f64, decoded: f64) -> Counted {
        Counted {
            sent: Sent { offered, packets: sent, bytes: sent * 100.0, seconds: 1.0, late: f64::NAN },
            card: 0.0,
            softnet: 0.0,
            interface: received,
            engine: Counts { received, dropped, decoded, gaps: 0.0, alerts: 0.0, blocked: f64::NAN },
            held_sent: sent,
            held_received: received,
            held_dropped: dropped,
            forwarded: f64::NAN,
        }
    }

    #[test]
    fn the_rings_loss_is_of_the_time_after_the_warm_up_by_the_engines_own_count() {
        // Sends 1000 a second for 2 s and for 10 s more. The engine wrote its first counters after 1 s, while the ring
        // had room; after that, 100 of each 1000 are lost.
        let numbers =
            Counted { held_sent: 10_000.0, held_received: 11_000.0, ..counted(12e3, 12e3, 12e3, 1100.0, 10_900.0) };
        assert!((Losses::of(&numbers).at(Stage::Ring) - 0.1).abs() < 1e-9);
        // An engine that does not count arrivals at its ring.
        let numbers = Counted { held_received: f64::NAN, held_dropped: 1000.0, ..numbers };
        assert!((Losses::of(&numbers).at(Stage::Ring) - 0.1).abs() < 1e-9);
        // Packets lost on the way did not reach the ring.
        let mut numbers = counted(1000.0, 1000.0, 500.0, 250.0, 250.0);
        numbers.held_received = 500.0;
        let losses = Losses::of(&numbers);
        assert!(
            (losses.at(Stage::Link) - 0.5).abs() < 1e-9 && (losses.at(Stage::Ring) - 0.25).abs() < 1e-9,
            "{losses:?}"
        );
        assert!((losses.total() - 0.75).abs() < 1e-9);
    }

    #[test]
    fn each_loss_is_at_its_stage() {
        let none = Losses::of(&counted(1000.0, 1000.0, 1000.0, 0.0, 1000.0));
        assert_eq!((none.total(), none.worst(), none.describe().as_str()), (0.0, None, "none"));
        for (numbers, stage, share) in [
            (counted(1000.0, 950.0, 950.0, 0.0, 950.0), Stage::Sender, 0.05),
            (counted(1000.0, 1000.0, 900.0, 0.0, 900.0), Stage::Link, 0.1),
            (counted(1000.0, 1000.0, 1000.0, 30.0, 970.0), Stage::Ring, 0.03),
            (counted(1000.0, 1000.0, 1000.0, 0.0, 980.0), Stage::Engine, 0.02),
            (Counted { card: 100.0, ..counted(1000.0, 1000.0, 900.0, 0.0, 900.0) }, Stage::Card, 0.1),
            (Counted { forwarded: 960.0, ..counted(1000.0, 1000.0, 1000.0, 0.0, 1000.0) }, Stage::Forward, 0.04),
            (Counted { softnet: 99.0, ..counted(1000.0, 1000.0, 901.0, 0.0, 901.0) }, Stage::Softnet, 0.099),
        ] {
            let losses = Losses::of(&numbers);
            assert_eq!(losses.worst(), Some(stage));
            assert!((losses.at(stage) - share).abs() < 1e-9, "{losses:?}");
            let others: f64 = Stage::ALL.iter().filter(|other| **other != stage).map(|other| losses.at(*other)).sum();
            assert!(others < 1e-9, "{losses:?}");
        }
    }

    #[test]
    fn counters_of_others_are_given_no_more_than_was_lost() {
        // The kernel also dropped packets of other interfaces, and a neighbour's broadcast arrived.
        let losses = Losses::of(&Counted { softnet: 500.0, card: 9.0, ..counted(1000.0, 1000.0, 1003.0, 0.0, 1003.0) });
        assert_eq!(losses.total(), 0.0);
    }

    #[test]
    fn what_the_engine_decided_to_drop_is_not_lost() {
        let mut numbers = Counted { forwarded: 990.0, ..counted(1000.0, 1000.0, 1000.0, 0.0, 1000.0) };
        numbers.engine.blocked = 10.0;
        assert_eq!(Losses::of(&numbers).total(), 0.0);
    }

    #[test]
    fn what_is_not_counted_is_not_lost() {
        let mut numbers = counted(1000.0, 1000.0, f64::NAN, f64::NAN, 990.0);
        numbers.interface = f64::NAN;
        numbers.held_dropped = f64::NAN;
        let losses = Losses::of(&numbers);
        assert_eq!(losses.worst(), Some(Stage::Link));
        assert!((losses.total() - 0.01).abs() < 1e-9);
    }
}
