//! A source of a profile: the templates of its sessions, and counters.

use std::net::IpAddr;
use std::sync::Arc;

use crate::traffic::attack;
use crate::traffic::profile::{Pools, Source, Timing, What};
use crate::traffic::rng::Rng;
use crate::traffic::session::{Place, Session};
use crate::traffic::template::{Addresses, Dir, FIRST_PORT, Identity, Template};

/// Counters of a source's output.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) sessions: u64,
    pub(crate) flows: u64,
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) lost: u64,
    /// Sessions that did not begin, because too many were active.
    pub(crate) refused: u64,
}

/// A source's name, expected figures and counters.
pub(crate) struct SourceSummary<'a> {
    pub(crate) name: &'a str,
    /// Sessions a second in the profile.
    pub(crate) cps: f64,
    /// Mean packets and bytes of a session.
    pub(crate) packets: f64,
    pub(crate) bytes: f64,
    /// The standard deviation of a session's bytes, and the number of sessions behind these figures.
    pub(crate) bytes_sd: f64,
    pub(crate) samples: usize,
    pub(crate) tally: Tally,
}

/// The template of a source's sessions.
pub(super) enum Body {
    Fixed(Vec<Arc<Template>>),
    /// Built for each instance.
    Fresh,
}

pub(super) struct Running {
    pub(super) spec: Source,
    pub(super) body: Body,
    pub(super) rng: Rng,
    /// Nanoseconds between two sessions.
    pub(super) period: f64,
    pub(super) phase: f64,
    pub(super) begun: u64,
    /// Total number of sessions; `None` if sessions begin at random times.
    pub(super) quota: Option<u64>,
    /// See [`SourceSummary`].
    pub(super) packets: f64,
    pub(super) bytes: f64,
    pub(super) bytes_sd: f64,
    pub(super) samples: usize,
    /// The identity that a burst shares, and how many of its sessions remain.
    pub(super) burst: Option<(Identity, u64)>,
    pub(super) tally: Tally,
}

impl Running {
    pub(super) fn new(spec: &Source, pools: &Pools, rng: Rng) -> Result<Running, String> {
        let mut s = Running {
            spec: spec.clone(),
            body: Body::Fresh,
            rng,
            period: 0.0,
            phase: 0.0,
            begun: 0,
            quota: None,
            packets: 0.0,
            bytes: 0.0,
            bytes_sd: 0.0,
            samples: 0,
            burst: None,
            tally: Tally::default(),
        };
        let place = || Place {
            client: pools.pool(Dir::Client, spec.ipv6).get(0),
            server: pools.pool(Dir::Server, spec.ipv6).get(0),
            port: FIRST_PORT,
        };
        let samples: Vec<Arc<Template>> = match &spec.what {
            What::Capture(path) => {
                let mut t = Template::load(path, spec.one_client)?;
                match spec.timing {
                    Timing::Template => {}
                    Timing::MinGap(least, by) => t.min_gap(least, by),
                    Timing::Paced { gap, turn } => t.pace(gap, turn),
                    Timing::RoundTrip(rtt) => t.round_trip(rtt),
                }
                vec![Arc::new(t)]
            }
            What::Kind(kind, _) => {
                let n = if kind.per_instance() { 24 } else { spec.variants.unwrap_or(kind.variants()) };
                (0..n).map(|_| s.build(place()).map(Arc::new)).collect::<Result<_, _>>()?
            }
            What::Attack(_) => (0..8).map(|_| s.build(place()).map(Arc::new)).collect::<Result<_, _>>()?,
        };
        let n = samples.len().max(1) as f64;
        for t in &samples {
            let (packets, bytes) = t.totals();
            s.packets += packets as f64 / n;
            s.bytes += bytes as f64 / n;
        }
        let square = samples.iter().map(|t| (t.totals().1 as f64 - s.bytes).powi(2)).sum::<f64>();
        (s.bytes_sd, s.samples) = ((square / (n - 1.0).max(1.0)).sqrt(), samples.len());
        let fresh = matches!(spec.what, What::Kind(kind, _) if kind.per_instance());
        if !fresh {
            s.body = Body::Fixed(samples);
        }
        Ok(s)
    }

    pub(super) fn build(&mut self, place: Place) -> Result<Template, String> {
        let mut session = Session::new(&mut self.rng, place, self.spec.rtt, self.spec.ipv6);
        match &self.spec.what {
            What::Kind(kind, options) => kind.build(&mut session, options),
            What::Attack(n) => {
                if let Some(a) = attack::ATTACKS.get(*n) {
                    a.build(&mut session);
                }
            }
            What::Capture(_) => {}
        }
        let mut t = session.finish()?;
        if let Timing::Paced { gap, turn } = self.spec.timing {
            t.pace(gap, turn);
        }
        Ok(t)
    }
}

/// The pools, with one server's address instead of the servers' pool.
pub(super) struct OneServer<'a> {
    pub(super) pools: &'a Pools,
    pub(super) server: IpAddr,
}

impl Addresses for OneServer<'_> {
    fn address(&self, side: Dir, v6: bool, index: u64) -> IpAddr {
        if side == Dir::Server && self.server.is_ipv6() == v6 {
            return self.server;
        }
        self.pools.address(side, v6, index)
    }
    fn mac(&self, side: Dir) -> [u8; 6] {
        self.pools.mac(side)
    }
}
