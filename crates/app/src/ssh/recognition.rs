//! How SSH is recognised: by a banner (RFC 4253 section 4.2) at the very beginning of either direction, on any port. The case
//! does not matter: a banner in small letters is one that is invalid.

use margay_flow::Direction;

use crate::recognise::{Pattern, Recognition};

pub(super) const RECOGNITION: Recognition = Recognition {
    patterns: &[
        Pattern::tcp(Direction::ToServer, b"SSH-").nocase(),
        Pattern::tcp(Direction::ToClient, b"SSH-").nocase(),
    ],
    probes: &[],
};
