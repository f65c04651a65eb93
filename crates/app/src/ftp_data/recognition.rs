//! Detection never finds FTP data: see [`crate::expect`].

use margay_flow::Direction;

use crate::recognise::{Probe, Probed, Recognition, TCP};

/// A probe that marks the protocol as TCP, on a port that no connection has.
pub(super) const RECOGNITION: Recognition =
    Recognition { patterns: &[], probes: &[Probe { transport: TCP, ports: &[0], probe: never }] };

fn never(_: Direction, _: &[u8]) -> Probed {
    Probed::No
}
