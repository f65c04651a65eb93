//! Nothing recognises FTP's data: see [`crate::expect`].

use margay_flow::Direction;

use crate::recognise::{Probe, Probed, Recognition, TCP};

/// Says that it is over TCP, and is asked for a port that no connection has.
pub(super) const RECOGNITION: Recognition =
    Recognition { patterns: &[], probes: &[Probe { transport: TCP, ports: &[0], probe: never }] };

fn never(_: Direction, _: &[u8]) -> Probed {
    Probed::No
}
