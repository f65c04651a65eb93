//! A flow's application layer: recognition, then the protocol's parser.

use margay_flow::Direction;

use crate::parser::{Outcome, Parse, Parser};
use crate::proto::AppProto;
use crate::recognise::{RecogniseState, Recognised};
use crate::registry::protocol;

/// A flow's application layer.
#[derive(Debug, Default)]
pub struct AppSession {
    /// Protocol by direction.
    pub side: [AppProto; 2],
    /// The flow's protocol.
    pub proto: AppProto,
    /// What it was before it changed.
    pub original: AppProto,
    state: RecogniseState,
    /// The parser, and before it that of the protocol before, while it has transactions.
    parsers: Vec<Box<dyn Parser>>,
}

/// What came of feeding a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fed {
    /// Bytes that are not needed any more.
    pub consumed: usize,
    /// The application layer wants no more of this flow.
    pub off: bool,
}

impl AppSession {
    /// Bytes of a direction: what was left of the last call and what came since.
    pub fn data(&mut self, cx: &mut Parse<'_>, dir: Direction, data: &[u8]) -> Fed {
        let _ = (Outcome::More, protocol(AppProto::Unknown));
        match cx.config.recogniser.recognise(&mut self.state, cx.flow, dir, data, cx.end) {
            Recognised::Known { proto, .. } => self.proto = proto,
            Recognised::More => {}
            Recognised::Failed => self.proto = AppProto::Failed,
        }
        Fed { consumed: 0, off: self.proto == AppProto::Failed }
    }

    /// The parsers that have transactions: that of the protocol spoken now last.
    pub fn parsers(&self) -> &[Box<dyn Parser>] {
        &self.parsers
    }

    /// The same, to write to.
    pub fn parsers_mut(&mut self) -> &mut [Box<dyn Parser>] {
        &mut self.parsers
    }
}
