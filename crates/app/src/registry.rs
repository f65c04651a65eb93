//! What the engine knows of each protocol.

use margay_flow::FlowCore;

use crate::config::AppConfig;
use crate::parser::Parser;
use crate::proto::AppProto;
use crate::recognise::Recognition;
use crate::tx::{BufferDef, NumberDef};

/// A protocol, as the rest of the engine sees it.
#[derive(Debug)]
pub struct Protocol {
    /// Which.
    pub proto: AppProto,
    /// Its key below `app-layer.protocols` in the configuration.
    pub config: &'static str,
    /// How it is recognised.
    pub recognition: Recognition,
    /// Makes a parser for a flow.
    pub parser: fn(&AppConfig, &FlowCore) -> Box<dyn Parser>,
    /// Buffers for rules.
    pub buffers: &'static [BufferDef],
    /// Numbers for rules.
    pub numbers: &'static [NumberDef],
    /// Names of the states of a transaction, by direction, as hooks have them (`request_line` …); progress is the index, and
    /// the last one is that of a complete transaction.
    pub states: [&'static [&'static str]; 2],
    /// Names of events, by number, as rules have them after the dot (`app-layer-event:http.NAME`).
    pub events: &'static [&'static str],
    /// Names of the types of frames that its parser marks, by number ([`crate::frame`]).
    pub frames: &'static [&'static str],
    /// Value of `event_type` of its log; empty where it has none.
    pub log: &'static str,
}

impl Protocol {
    /// Whether rules and policies of the firewall have a say about a state. Others are steps in between that only this
    /// engine tells apart: what is accepted before and behind them is accepted there.
    pub fn is_hook(&self, state: &str) -> bool {
        match self.proto {
            AppProto::Ftp => !matches!(state, "request_line" | "response_line"),
            AppProto::FtpData => !matches!(state, "request_idle" | "response_idle"),
            _ => true,
        }
    }

    /// The progress of a complete transaction, by direction.
    pub const fn complete(&self) -> [u8; 2] {
        [last(self.states[0]), last(self.states[1])]
    }
}

const fn last(states: &[&str]) -> u8 {
    states.len().saturating_sub(1) as u8
}

/// All protocols that have a parser.
pub static PROTOCOLS: &[&Protocol] = &[
    &crate::http1::PROTOCOL,
    &crate::http2::PROTOCOL,
    &crate::http2::DOH2,
    &crate::dns::PROTOCOL,
    &crate::dns::MDNS,
    &crate::ftp::PROTOCOL,
    &crate::ftp_data::PROTOCOL,
    &crate::smb::PROTOCOL,
    &crate::dcerpc::PROTOCOL,
    &crate::smtp::PROTOCOL,
    &crate::ssh::PROTOCOL,
    &crate::tls::PROTOCOL,
    &crate::quic::PROTOCOL,
    &crate::dhcp::PROTOCOL,
    &crate::tftp::PROTOCOL,
];

/// What is known of a protocol that has a parser.
pub fn protocol(proto: AppProto) -> Option<&'static Protocol> {
    PROTOCOLS.iter().copied().find(|p| p.proto == proto)
}
