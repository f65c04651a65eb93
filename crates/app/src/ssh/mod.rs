//! SSH (RFC 4253): banners and the unencrypted start of both directions, up to NEWKEYS.
//!
//! A flow has one transaction, which lasts as long as the flow. The progress of a direction is: nothing, an overlong banner
//! without an end, the banner, NEWKEYS. Data after NEWKEYS is encrypted and not parsed; [`EncryptionHandling`] decides how the
//! engine handles it.

mod banner;
mod kex;
mod parser;
mod recognition;
#[cfg(test)]
mod tests;
mod tx;

use crate::conversation;
use crate::declare::{Opening, Protocol};
use crate::proto::AppProto;
use crate::tx::NumberDef;

pub use crate::config::ssh::{Config, EncryptionHandling};

/// Progress of a transaction: indexes in the states of [`PROTOCOL`].
const BANNER_WAIT_EOL: u8 = 1;
/// See [`BANNER_WAIT_EOL`].
const BANNER_DONE: u8 = 2;
/// See [`BANNER_WAIT_EOL`].
const FINISHED: u8 = 3;

/// Frame types: indexes in the frames of [`PROTOCOL`].
const HEADER_FRAME: u8 = 0;
/// See [`HEADER_FRAME`].
const DATA_FRAME: u8 = 1;
/// See [`HEADER_FRAME`].
const PDU_FRAME: u8 = 2;

/// Anomalies; the numbers are indexes in the events of [`PROTOCOL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Event {
    InvalidBanner,
    LongBanner,
    InvalidRecord,
    LongKexRecord,
}

/// SSH.
pub static PROTOCOL: Protocol = Protocol {
    usual_port: Some(22),
    opening: Opening::Command,
    recognition: recognition::RECOGNITION,
    parser: conversation::parser::<parser::Ssh>,
    buffers: tx::BUFFERS,
    numbers: &[NumberDef { name: "ssh.protoversion", progress: [Some(BANNER_DONE); 2], ..NumberDef::PLAIN }],
    states: [
        &["request_in_progress", "request_banner_wait_eol", "request_banner_done", "request_finished"],
        &["response_in_progress", "response_banner_wait_eol", "response_banner_done", "response_finished"],
    ],
    events: &["invalid_banner", "long_banner", "invalid_record", "long_kex_record"],
    frames: &["record.hdr", "record.data", "record.pdu"],
    ..Protocol::new(AppProto::Ssh, "ssh").logged()
};
