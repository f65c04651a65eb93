//! The engine's own data of a flow.

use margay_detect::RulesMark;
use margay_stream::TcpSession;

use super::firewall::FlowDropBy;
use super::{app, closing, detection};
use crate::exception::{Condition, Policy};

/// The engine's own data of a flow. The fields that every packet uses come first: they share a cache line with the end of the
/// flow's own record.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct FlowExt {
    /// The TCP session, from the first packet that creates one.
    pub(crate) tcp: Option<Box<TcpSession>>,
    /// The application layer, from the first data on.
    pub(crate) app: Option<Box<app::FlowApp>>,
    /// The rules that last inspected the flow. The state is stored by their numbers.
    pub(super) rules: RulesMark,
    /// Decides when rules on its protocol alone are due.
    pub(super) protocol_rules: detection::ProtocolRules,
    /// The tenant of the flow.
    pub(super) tenant: u32,
    /// The checksums of its datagrams so far, by direction.
    pub(super) checksums: [app::Checksums; 2],
    /// The cause of the flow's drop, if it is dropped.
    pub(super) dropped_by: FlowDropBy,
    /// Whether a drop was logged, by direction.
    pub(super) drop_logged: [bool; 2],
    /// Signs of the end of a bypassed connection.
    pub(crate) closing: Option<Box<closing::Closing>>,
    /// Exception policies that took effect.
    exceptions: Option<Box<Exceptions>>,
    /// Ethernet addresses, if an output needs them: of packets to the server and to the client.
    pub(crate) macs: Option<Box<[MacList; 2]>>,
    /// The id of the flow that announced this one.
    pub(crate) parent: Option<u64>,
}

/// Exception policies that took effect for a flow, each listed once.
#[derive(Debug, Default)]
struct Exceptions(Vec<(Condition, Policy)>);

// A million idle flows, with their index, should take at most 400 MB.
const _: () = assert!(size_of::<margay_flow::Flow<FlowExt>>() <= 320);

/// Ethernet addresses of one side of a flow, at most ten.
#[derive(Debug, Default)]
pub(crate) struct MacList {
    pub(crate) src: Vec<[u8; 6]>,
}

const MACS_MAX: usize = 10;

impl FlowExt {
    /// The data of a new flow of that tenant.
    pub(super) fn of(tenant: u32) -> FlowExt {
        FlowExt { tenant, ..FlowExt::default() }
    }

    /// Records for the flow's event that an exception policy took effect.
    pub(super) fn note_exception(&mut self, condition: Condition, policy: Policy) {
        let list = &mut self.exceptions.get_or_insert_default().0;
        if !list.contains(&(condition, policy)) {
            list.push((condition, policy));
        }
    }

    /// The exception policies that took effect.
    pub(crate) fn exceptions(&self) -> &[(Condition, Policy)] {
        self.exceptions.as_ref().map_or(&[], |e| &e.0)
    }

    /// Swaps the directions.
    pub(super) fn turn_round(&mut self) {
        if let Some(tcp) = &mut self.tcp {
            tcp.turn_round();
        }
        if let Some(app) = &mut self.app {
            app.turn_round();
        }
        if let Some(macs) = &mut self.macs {
            macs.swap(0, 1);
        }
        self.drop_logged.swap(0, 1);
    }
}

impl MacList {
    pub(super) fn add(&mut self, mac: [u8; 6]) {
        if self.src.len() < MACS_MAX && !self.src.contains(&mac) {
            self.src.push(mac);
        }
    }
}
