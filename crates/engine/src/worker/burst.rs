//! Bursts: one piece of a stream has more transactions than a flow may hold, so the worker takes them in turns.
//!
//! A parser stops when it reaches its limit of transactions ([`margay_app::Outcome::Full`]). The worker inspects the
//! transactions of both directions, logs them and frees them. Then the parser continues with the rest of the data, until all
//! data of the packet is parsed. A burst needs no more memory than the limit allows, and all of it is inspected before the
//! packet's verdict.

use margay_flow::{Direction, Flow, FlowCore};
use margay_packet::{Packet, PacketSource};

use super::app::AppResult;
use super::end::{HEADERS, pseudo};
use super::tcp::{Seen, is_established};
use super::{FlowExt, PacketVerdict, Stages};

/// A flow's parse position, to detect progress.
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

impl Stages {
    /// Parses the rest of a packet's data in turns, because the parser reached its limit of transactions. Verdicts of rules
    /// on these transactions apply to the packet, and the transactions' events have the packet's number.
    #[cold]
    pub(super) fn work_off(
        &mut self,
        packet: &Packet<'_>,
        flow: &mut Flow<FlowExt>,
        dir: Direction,
        seen: &mut Seen,
        fate: &mut PacketVerdict,
    ) {
        // The first turn's transactions were inspected with the packet.
        let mut app_result = AppResult::default();
        loop {
            let before = Mark::of(flow);
            if !self.inspect_burst(packet.number, flow, dir, app_result, fate) {
                return;
            }
            self.log_app(packet, flow, false, fate.inspected);
            self.log_made_up(packet.number, flow, dir.reverse(), fate.inspected);
            app_result = self.feed_tcp(flow, dir, false);
            self.log_recognition(packet, flow, app_result.events);
            seen.bypass |= app_result.bypass;
            let failed = if app_result.full && Mark::of(flow) == before { self.stuck(flow) } else { app_result.failed };
            if let Some(proto) = failed {
                self.parser_failed(proto, flow, fate, seen, packet);
            }
            if !app_result.full || failed.is_some() {
                self.inspect_burst(packet.number, flow, dir, app_result, fate);
                return;
            }
        }
    }

    /// Works off a burst at the end of a flow. Returns the result of the last turn, which is not inspected yet, and whether
    /// rules inspected anything.
    #[cold]
    pub(super) fn work_off_at_end(&mut self, flow: &mut Flow<FlowExt>, mut app_result: AppResult) -> (AppResult, bool) {
        let mut inspected = false;
        loop {
            let before = Mark::of(flow);
            let mut fate = PacketVerdict::default();
            self.inspect_burst(0, flow, Direction::ToClient, app_result, &mut fate);
            inspected |= fate.inspected;
            for d in [Direction::ToServer, Direction::ToClient] {
                self.log_made_up(0, flow, d, fate.inspected);
            }
            app_result = self.feed_tcp(flow, Direction::ToClient, true);
            if app_result.full && Mark::of(flow) == before {
                app_result.failed = self.stuck(flow);
                return (app_result, inspected);
            }
            if !app_result.full {
                return (app_result, inspected);
            }
        }
    }

    /// Inspects the transactions of both directions, with pseudo packets that have the current packet's `number`.
    /// `app_result` is the result of the last turn in direction `dir`. Returns `false` if the packet or its flow is now
    /// dropped.
    fn inspect_burst(
        &mut self,
        number: u64,
        flow: &mut Flow<FlowExt>,
        dir: Direction,
        app_result: AppResult,
        fate: &mut PacketVerdict,
    ) -> bool {
        let passes = (fate.pass || flow.core.action.is_unwatched(self.ips)) && !self.firewall;
        if self.detect.is_none() || passes {
            return true;
        }
        for d in [Direction::ToServer, Direction::ToClient] {
            let app_result = if d == dir { app_result } else { AppResult::default() };
            let mut bytes = [0u8; HEADERS];
            let core = flow.core.clone();
            let packet = self.of_burst(number, &core, d, &mut bytes);
            let established = is_established(flow.core.state);
            let seen = Seen { in_stream: true, established, app_result, ..Seen::default() };
            let mut own = PacketVerdict::default();
            self.detect_in_flow(&packet, flow, d, &seen, &mut own);
            fate.add(own);
            if fate.drop.is_some() {
                return false;
            }
        }
        true
    }

    /// Logs and frees transactions as if with a packet in direction `d`. A file is logged with a packet of its own direction,
    /// and a transaction stays as long as one of its files waits. So each turn needs a packet of each direction.
    fn log_made_up(&mut self, number: u64, flow: &mut Flow<FlowExt>, d: Direction, inspected: bool) {
        let core = flow.core.clone();
        let mut bytes = [0u8; HEADERS];
        let packet = self.of_burst(number, &core, d, &mut bytes);
        self.log_app(&packet, flow, false, inspected);
    }

    /// A pseudo packet in direction `d` for a turn: without payload, with the `number` of the packet that brought the burst.
    fn of_burst<'a>(&self, number: u64, core: &FlowCore, d: Direction, bytes: &'a mut [u8; HEADERS]) -> Packet<'a> {
        Packet { number, source: PacketSource::StreamFlush, ..pseudo(core, d, self.now, bytes) }
    }

    /// Fails a parser that makes no progress because its transactions are not freed.
    fn stuck(&mut self, flow: &mut Flow<FlowExt>) -> Option<margay_app::AppProto> {
        let app = flow.ext.app.as_deref_mut()?;
        self.app.fail(&flow.core, app, self.now);
        app.take_failed()
    }
}
