//! More transactions in one piece of a stream than a flow may have: they are worked off in turns.
//!
//! A parser that has as many transactions as its limit allows stops where it is ([`margay_app::Outcome::Full`]). What there is is
//! then inspected in both directions, logged and freed, and the parser goes on with what was left, until all that the packet
//! brought is parsed. So a burst costs no more memory than the limit, and nothing of it goes by unseen.

use margay_flow::{Direction, Flow, FlowAction};
use margay_packet::Packet;

use super::app::Heard;
use super::end::{HEADERS, pseudo};
use super::tcp::{Seen, is_established};
use super::{Fate, FlowExt, Rest};

/// How far a flow's parser is, to see whether it comes any further.
#[derive(Debug, PartialEq, Eq)]
struct Mark {
    made: u64,
    held: usize,
    taken: [u64; 2],
}

impl Mark {
    fn of(flow: &Flow<FlowExt>) -> Mark {
        let app = flow.ext.app.as_deref();
        let tcp = flow.ext.tcp.as_deref();
        let taken = |d| tcp.map_or(0, |t| t.app_offset(d));
        Mark {
            made: app.map_or(0, |a| a.session.tx_count()),
            held: app.map_or(0, |a| a.session.txs_held()),
            taken: [taken(Direction::ToServer), taken(Direction::ToClient)],
        }
    }
}

impl Rest {
    /// Works off what a parser could not take of a packet's data, for it had too many transactions. What rules decide about
    /// these is decided for the packet.
    #[cold]
    pub(super) fn work_off(
        &mut self,
        packet: &Packet<'_>,
        flow: &mut Flow<FlowExt>,
        dir: Direction,
        seen: &mut Seen,
        fate: &mut Fate,
    ) {
        loop {
            let before = Mark::of(flow);
            if !self.inspect_burst(flow, dir, fate) {
                return;
            }
            self.log_app(packet, flow, false, fate.inspected);
            let heard = self.feed_tcp(flow, dir, false);
            seen.bypass |= heard.bypass;
            let failed = if heard.full && Mark::of(flow) == before { self.stuck(flow) } else { heard.failed };
            if let Some(proto) = failed {
                self.parser_failed(proto, flow, fate, seen);
            }
            if !heard.full || failed.is_some() {
                self.inspect_burst(flow, dir, fate);
                return;
            }
        }
    }

    /// The same at the end of a flow, with all that is left of it: whether rules looked at anything.
    #[cold]
    pub(super) fn work_off_at_end(&mut self, flow: &mut Flow<FlowExt>) -> (Heard, bool) {
        let mut inspected = false;
        loop {
            let before = Mark::of(flow);
            let mut fate = Fate::default();
            self.inspect_burst(flow, Direction::ToServer, &mut fate);
            inspected |= fate.inspected;
            let core = flow.core.clone();
            let mut bytes = [0u8; HEADERS];
            self.log_app(&pseudo(&core, Direction::ToServer, self.now, &mut bytes), flow, false, fate.inspected);
            let mut heard = self.feed_tcp(flow, Direction::ToClient, true);
            if heard.full && Mark::of(flow) == before {
                heard.failed = self.stuck(flow);
                return (heard, inspected);
            }
            if !heard.full {
                return (heard, inspected);
            }
        }
    }

    /// Inspects the transactions of both directions with packets made up for it; `false` where the packet at hand, or its
    /// flow, is dropped by now.
    fn inspect_burst(&mut self, flow: &mut Flow<FlowExt>, dir: Direction, fate: &mut Fate) -> bool {
        let passes = (fate.pass || flow.core.action == FlowAction::Pass) && !self.firewall;
        if self.detect.is_none() || passes {
            return true;
        }
        for d in [dir, dir.reverse()] {
            let mut bytes = [0u8; HEADERS];
            let core = flow.core.clone();
            let packet = pseudo(&core, d, self.now, &mut bytes);
            let established = is_established(flow.core.state);
            let seen = Seen { in_stream: true, established, ..Seen::default() };
            let mut own = Fate::default();
            self.detect_in_flow(&packet, flow, d, &seen, &mut own);
            fate.add(own);
            if fate.drop.is_some() {
                return false;
            }
        }
        true
    }

    /// A parser comes no further: its transactions do not go.
    fn stuck(&mut self, flow: &mut Flow<FlowExt>) -> Option<margay_app::AppProto> {
        let app = flow.ext.app.as_deref_mut()?;
        self.app.fail(&flow.core, app, self.now);
        app.take_failed()
    }
}
