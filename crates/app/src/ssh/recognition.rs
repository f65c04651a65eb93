//! Protocol detection for SSH: by a banner (RFC 4253 section 4.2) at the very beginning of either direction, on any port. It
//! matches in any case, because a lower-case banner is an invalid banner.

use margay_flow::Direction;

use crate::recognise::{Pattern, Recognition};

pub(super) const RECOGNITION: Recognition = Recognition {
    patterns: &[
        Pattern::tcp(Direction::ToServer, b"SSH-").nocase(),
        Pattern::tcp(Direction::ToClient, b"SSH-").nocase(),
    ],
    probes: &[],
};
