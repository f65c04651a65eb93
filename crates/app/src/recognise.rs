//! Which protocol a flow speaks: by patterns, by port and by probing, in both directions.

use margay_flow::{Direction, FlowCore};

use crate::proto::AppProto;

/// How a protocol is recognised.
#[derive(Debug, Clone, Copy)]
pub struct Recognition {
    /// Patterns; any one of them tells it.
    pub patterns: &'static [Pattern],
    /// Probes; asked where the port is one of theirs and no pattern matched.
    pub probes: &'static [Probe],
}

/// A literal that tells a protocol.
#[derive(Debug, Clone, Copy)]
pub struct Pattern {
    /// IP protocol: 6 or 17.
    pub transport: u8,
    /// Direction that it is sent in.
    pub dir: Direction,
    /// The literal.
    pub bytes: &'static [u8],
    /// Whether case does not matter.
    pub nocase: bool,
    /// Where it may begin at the earliest.
    pub offset: u16,
    /// Where it must end at the latest.
    pub depth: u16,
}

/// What a probe says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probed {
    /// It is this protocol; with `reverse` the bytes go the other way than thought.
    Yes {
        /// The flow was picked up the wrong way round.
        reverse: bool,
    },
    /// It is not.
    No,
    /// There is not enough to tell.
    More,
}

/// A function that tells a protocol from the first bytes.
#[derive(Debug, Clone, Copy)]
pub struct Probe {
    /// IP protocol: 6 or 17.
    pub transport: u8,
    /// Ports of the server it is asked for, where the configuration (`detection-ports`) names none; empty for any port.
    pub ports: &'static [u16],
    /// Looks at the first bytes of a direction.
    pub probe: fn(Direction, &[u8]) -> Probed,
}

/// What came of looking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recognised {
    /// It is this protocol.
    Known {
        /// Which.
        proto: AppProto,
        /// The flow was picked up the wrong way round: what looked like the client is the server.
        reverse: bool,
    },
    /// More bytes are needed.
    More,
    /// It is none that is known.
    Failed,
}

/// What is known of one direction of a flow so far.
#[derive(Debug, Clone, Default)]
pub struct RecogniseState {
    /// By direction: no pattern can match any more, no probe is left.
    pub exhausted: [bool; 2],
}

/// What all flows are looked at with.
#[derive(Debug, Default)]
pub struct Recogniser {}

impl Recogniser {
    /// Looks at the first bytes of a direction. `data` is all there is from its start; `end` says that no more will come.
    pub fn recognise(
        &self,
        _state: &mut RecogniseState,
        _flow: &FlowCore,
        _dir: Direction,
        data: &[u8],
        _end: bool,
    ) -> Recognised {
        if data.is_empty() { Recognised::More } else { Recognised::Failed }
    }
}
