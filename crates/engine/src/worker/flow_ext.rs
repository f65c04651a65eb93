//! What the engine keeps with a flow.

use margay_detect::RulesMark;
use margay_stream::TcpSession;

use super::firewall::FlowDropBy;
use super::{app, closing, detection};
use crate::exception::{Condition, Policy};

/// What the engine keeps with a flow: first what every packet touches, which shares a cache line with the end of the flow's own
/// record.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct FlowExt {
    /// The TCP session, from the first packet that made one.
    pub(crate) tcp: Option<Box<TcpSession>>,
    /// The application layer, from the first data on.
    pub(crate) app: Option<Box<app::FlowApp>>,
    /// The rules that last looked at it: what they left is in their numbers.
    pub(super) rules: RulesMark,
    /// When rules that ask for its protocol alone are due.
    pub(super) protocol_rules: detection::ProtocolRules,
    /// Whose it is.
    pub(super) tenant: u32,
    /// What the checksums of its datagrams were, by direction.
    pub(super) checksums: [app::Checksums; 2],
    /// Who dropped it, where it is dropped.
    pub(super) dropped_by: FlowDropBy,
    /// Whether a drop was logged, by direction.
    pub(super) drop_logged: [bool; 2],
    /// What was seen of its end while it is bypassed.
    pub(crate) closing: Option<Box<closing::Closing>>,
    /// Exception policies that took effect.
    exceptions: Option<Box<Exceptions>>,
    /// Ethernet addresses, where an output wants them: to the server and to the client.
    pub(crate) macs: Option<Box<[MacList; 2]>>,
    /// Number of the flow that announced this one.
    pub(crate) parent: Option<u64>,
}

/// Exception policies that took effect for a flow, each once.
#[derive(Debug, Default)]
struct Exceptions(Vec<(Condition, Policy)>);

// A million idle flows should not take more than 400 MB with what they are found by.
const _: () = assert!(size_of::<margay_flow::Flow<FlowExt>>() <= 320);

/// Ethernet addresses of one side of a flow, most ten.
#[derive(Debug, Default)]
pub(crate) struct MacList {
    pub(crate) src: Vec<[u8; 6]>,
}

const MACS_MAX: usize = 10;

impl FlowExt {
    /// Of a new flow of that tenant.
    pub(super) fn of(tenant: u32) -> FlowExt {
        FlowExt { tenant, ..FlowExt::default() }
    }

    /// Notes for the flow's record that an exception policy took effect.
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

    /// The flow was turned round.
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
