//! Protocol detection that gives up on a connection of which only one side says something.

use margay_flow::Direction;

use super::{AppSession, SessionEvent};
use crate::parser::Parse;
use crate::proto::AppProto;
use crate::recognise::TCP;

/// A side without a protocol waits for the other one to tell it, up to this many bytes, as in Suricata 7.
const ALONE_MAX: usize = 100_000;

impl AppSession {
    /// Gives up if a side that is no protocol's has sent this much and the other one nothing, or too little to decide.
    pub(super) fn skip_detection(&mut self, cx: &mut Parse<'_>, dir: Direction, sent: usize) {
        let undecided =
            self.side[dir.index()] == AppProto::Failed && self.side[dir.reverse().index()] == AppProto::Unknown;
        if undecided && sent > ALONE_MAX && cx.flow.proto == TCP {
            self.events |= SessionEvent::DetectionSkipped.bit();
            self.side = [AppProto::Failed; 2];
            self.fail_detection(cx);
        }
    }
}
