//! Connections that a reset closed, with a limit for their memory.
//!
//! A host may ignore a reset, or never receive it. Outside IPS mode the engine therefore keeps a connection's
//! unacknowledged data, transactions and context after a reset. If the connection goes on, nothing is missed. Otherwise
//! they are freed when the flow times out, after `flow-timeouts.tcp.closed` seconds. Many connections end with a reset, so
//! `margay.reset-memory` limits what they hold. Beyond it the engine settles the oldest connection: it inspects and logs
//! the rest of its streams as at the end of a flow, and frees its memory, but keeps the flow. If that connection goes on,
//! its protocol is detected again.

use std::collections::VecDeque;

use margay_flow::{Flow, FlowRef};
use margay_stream::TcpSession;

use super::{FlowExt, Pipeline};

/// A worker's connections that were closed by a reset and may go on, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Resets {
    waiting: VecDeque<Waiting>,
    /// Bytes that they held when they were closed.
    held: u64,
}

/// A connection, and the bytes that it held when it was closed.
#[derive(Debug)]
struct Waiting {
    at: FlowRef,
    flow: u64,
    bytes: u64,
}

impl Waiting {
    /// Whether the connection still waits: its flow did not end, and the connection did not go on.
    fn waits(&self, flow: Option<&Flow<FlowExt>>) -> bool {
        let waits =
            |f: &Flow<FlowExt>| f.core.id == self.flow && f.ext.tcp.as_deref().is_some_and(TcpSession::may_go_on);
        flow.is_some_and(waits)
    }
}

impl Resets {
    fn pop(&mut self) {
        if let Some(w) = self.waiting.pop_front() {
            self.held -= w.bytes;
        }
    }
}

impl Pipeline {
    /// After a packet that closed its connection: if a reset did, counts what the connection holds, and settles the
    /// oldest connections beyond the limit.
    pub(super) fn note_reset(&mut self, at: FlowRef) {
        let Pipeline { flows, stages, .. } = self;
        let limit = stages.stream.config().reset_memory;
        let Some(flow) = flows.get(at).filter(|_| limit != 0) else { return };
        let Some(tcp) = flow.ext.tcp.as_deref().filter(|t| t.may_go_on()) else { return };
        let bytes = tcp.held() + flow.ext.app.as_ref().map_or(0, |a| a.counted);
        if bytes > 0 {
            stages.resets.held += bytes;
            stages.resets.waiting.push_back(Waiting { at, flow: flow.core.id, bytes });
        }
        while let Some(oldest) = self.stages.resets.waiting.front() {
            let (at, waits) = (oldest.at, oldest.waits(self.flows.get(oldest.at)));
            if waits && self.stages.resets.held <= limit {
                break;
            }
            self.stages.resets.pop();
            if waits {
                self.settle(at);
            }
        }
    }

    /// Takes the reset of a connection as effective: inspects and logs the rest of its streams, and frees its memory.
    fn settle(&mut self, at: FlowRef) {
        let Pipeline { flows, stages, .. } = self;
        let Some(flow) = flows.get_mut(at) else { return };
        stages.stream.counters.reset_settled += 1;
        stages.at_flow(flow);
        let turned = stages.end_streams(flow);
        if let Some(tcp) = flow.ext.tcp.as_deref_mut() {
            tcp.settle();
            stages.stream.account(tcp);
        }
        if let Some(app) = flow.ext.app.as_deref_mut() {
            stages.app.account(app);
        }
        if turned {
            flows.swapped(at);
        }
    }
}
