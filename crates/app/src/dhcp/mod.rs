//! DHCP (RFC 2131, options of RFC 2132) over UDP: each message is a transaction.

mod log;
pub mod message;
#[cfg(test)]
mod tests;

use margay_flow::{Direction, FlowCore};
use margay_json::Json;

use crate::config::{AppConfig, AppLogOptions};
use crate::conversation::{Content, Conversation, Turn, parser};
use crate::declare::{EveOption, Keyword, KeywordDirection, Protocol, Unit};
use crate::parser::Outcome;
use crate::proto::AppProto;
use crate::recognise::{Probe, Probed, Recognition, UDP};
use crate::tx::{LogFor, TxBase};

use events::Event;
use message::{HEADER, Message, option};

pub mod events {
    //! Anomalies, under the names that rules use (`app-layer-event:dhcp.NAME`).

    events! {
        "DHCP";
        MalformedOptions "malformed_options";
        TruncatedOptions "truncated_options";
    }
}

keywords! {
    LeaseTime Keyword::number(&["dhcp.leasetime"], u64::MAX, KeywordDirection::Both);
    RebindingTime Keyword::number(&["dhcp.rebinding_time"], u64::MAX, KeywordDirection::Both);
    RenewalTime Keyword::number(&["dhcp.renewal_time"], u64::MAX, KeywordDirection::Both);
}

/// Index of `extended` in the options of the event type.
const EXTENDED: usize = 0;

/// DHCP.
pub static PROTOCOL: Protocol = Protocol {
    recognition: Recognition { patterns: &[], probes: &[Probe { transport: UDP, ports: &[67, 68], probe }] },
    parser: parser::<Dhcp>,
    keywords: KEYWORDS,
    numbers: &NUMBERS,
    events: events::NAMES,
    eve_options: &[EveOption {
        key: "extended",
        unit: Unit::Flag,
        default: 0,
        about: "All messages with their options. Without it, only messages that assign an address to a client.",
    }],
    ..Protocol::new(AppProto::Dhcp, "dhcp").logged()
};

/// Checks the size.
fn probe(_: Direction, data: &[u8]) -> Probed {
    if data.len() >= HEADER { Probed::Yes { reverse: false } } else { Probed::No }
}

/// The state of a flow: nothing is kept between messages.
#[derive(Debug)]
struct Dhcp;

impl Conversation for Dhcp {
    type Tx = Sent;
    const PROTO: AppProto = AppProto::Dhcp;

    fn new(_config: &AppConfig, _flow: &FlowCore) -> Self {
        Dhcp
    }

    fn message(&mut self, turn: &mut Turn<'_, '_, Sent>, dir: Direction, message: &[u8]) -> Outcome {
        let Some(message) = Message::read(message) else { return Outcome::More };
        let wrong = [(message.malformed, Event::MalformedOptions), (message.truncated, Event::TruncatedOptions)];
        let tx = turn.one_way(dir, Sent { dir, message });
        for (_, event) in wrong.into_iter().filter(|w| w.0) {
            tx.event(event as u8);
        }
        Outcome::More
    }
}

/// A message with its direction.
#[derive(Debug)]
struct Sent {
    dir: Direction,
    message: Message,
}

impl Content for Sent {
    fn held(&self) -> u64 {
        let options: usize = self.message.options.iter().map(|(_, o)| size_of::<(u8, Vec<u8>)>() + o.capacity()).sum();
        (options + self.message.hardware.capacity()) as u64
    }

    fn number(&self, id: u8, dir: Direction, index: usize) -> Option<u64> {
        let code = match Id::of(id)? {
            Id::LeaseTime => option::LEASE_TIME,
            Id::RebindingTime => option::REBINDING_TIME,
            Id::RenewalTime => option::RENEWAL_TIME,
        };
        if dir != self.dir || index > 0 {
            return None;
        }
        self.message.number(code).map(u64::from)
    }

    fn direction(&self, _only: Option<Direction>) -> Direction {
        self.dir
    }

    /// Without `extended`, only messages that assign an address to a client have an event.
    fn records(&self, options: &AppLogOptions) -> usize {
        usize::from(is_extended(options) || self.message.kind() == Some("ack"))
    }

    fn log(&self, _base: &TxBase, json: &mut Json, options: &AppLogOptions, _what: LogFor) {
        log::log(&self.message, json, is_extended(options));
    }
}

fn is_extended(options: &AppLogOptions) -> bool {
    options.options.get(AppProto::Dhcp, EXTENDED) != 0
}
