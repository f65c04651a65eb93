//! A protocol's declaration.

use std::ops::Range;

use margay_flow::{Direction, FlowCore};

use super::{EveOption, Keyword, Setting};
use crate::buffer::{BufferDef, NumberDef};
use crate::config::{AppConfig, Handover};
use crate::expect::Carries;
use crate::parser::{AppCounters, Outcome, Parse, Parsed, Parser, Shared};
use crate::proto::AppProto;
use crate::recognise::{Mode, Opening, Probe, Probed, Recognition};
use crate::tx::Transaction;

/// Creates the parser of an announced connection, whose content has this direction.
pub(crate) type ExpectedParser = fn(Carries, Direction) -> Box<dyn Parser>;

/// A protocol's declaration.
#[derive(Debug)]
pub struct Protocol {
    /// The protocol.
    pub proto: AppProto,
    /// Name in events and counters (`app_proto`).
    pub name: &'static str,
    /// Name in rules; only HTTP/1 has one that differs from `name`.
    pub rule_name: &'static str,
    /// Names for the header of a rule, each with the protocols that it covers; empty if `rule_name` is the only one.
    pub headers: &'static [(&'static str, &'static [&'static str])],
    /// Other rule names that include this protocol: `http` covers both HTTP versions.
    pub meant_by: &'static [&'static str],
    /// The key below `app-layer.protocols` in the configuration; empty if there is none.
    pub config: &'static str,
    /// How a conversation of another protocol becomes one of this protocol.
    pub follows: &'static [Handover],
    /// When this protocol changes into another, the data before the change is inspected and logged with pseudo packets.
    /// Otherwise the packet with the answer carries it.
    pub changes_apart: bool,
    /// It may go on in cleartext after TLS, with which it shares one stream. Otherwise rules on the stream inspect the data before
    /// and after a change separately.
    pub outlives_tls: bool,
    /// How its flows are handled by default.
    pub mode: Mode,
    /// Whether the protocol is Margay's own. Suricata does not know it, so it is off by default.
    pub is_own: bool,
    /// The server port of most of its traffic. Its rules are searched together with the rules of that port.
    pub usual_port: Option<u16>,
    /// Protocol detection.
    pub recognition: Recognition,
    /// More probes where packets wait for the verdict. Suricata recognises such data only by the answer, after the request
    /// reached the server.
    pub inline_probes: &'static [Probe],
    /// How a conversation begins.
    pub opening: Opening,
    /// Words with which clients may begin once the server's side is this protocol, besides those of `recognition`. Alone they
    /// do not identify the protocol.
    pub first_words: &'static [&'static str],
    /// Whether a client's first data is this protocol's, when another conversation was to become one of it.
    pub client_begins: fn(&[u8]) -> Probed,
    /// As `client_begins`, of a server whose data need not wait for the client's.
    pub server_begins: fn(&[u8]) -> bool,
    /// Creates the parser for a flow.
    pub parser: fn(&AppConfig, &FlowCore) -> Box<dyn Parser>,
    /// Creates the parser of an announced connection that carries this protocol in a direction ([`crate::expect`]); `None` if
    /// no protocol announces it.
    pub expected: Option<ExpectedParser>,
    /// Keywords that are declared here only.
    pub keywords: &'static [Keyword],
    /// Buffers that rules can match.
    pub buffers: &'static [BufferDef],
    /// Numbers that rules can match.
    pub numbers: &'static [NumberDef],
    /// The states of a transaction by direction, named as in hooks (`request_line` …). The progress is the index; the last
    /// state is a complete transaction.
    pub states: [&'static [&'static str]; 2],
    /// States that Suricata does not have. The firewall has no hook for them: it accepts them together with their neighbours.
    pub inner_states: &'static [&'static str],
    /// Event names, by number, as rules have them after the dot (`app-layer-event:http.NAME`).
    pub events: &'static [&'static str],
    /// Whether a transaction shows no anomalies once it was logged; rules still see its events.
    pub anomalies_end: bool,
    /// Whether anomaly events show its event names in capitals, as for the oldest protocols.
    pub capital_events: bool,
    /// Names of frame types, by number ([`crate::frame`]).
    pub frames: &'static [&'static str],
    /// Key of the event type in the configuration (`types:` of an `eve-log`); empty if there is none.
    pub event_key: &'static str,
    /// Other keys that the configuration accepts for the event type.
    pub event_aliases: &'static [&'static str],
    /// Value of `event_type`.
    pub event_type: &'static str,
    /// The protocol whose event type the transactions use; `None` if they write no events.
    pub log: Option<AppProto>,
    /// The protocol whose event type in the configuration includes this one's events.
    pub logged_with: Option<AppProto>,
    /// Whether events may show the client that a proxy names (`xff`).
    pub shows_forwarded: bool,
    /// The worker's counter for the memory of the protocol's transactions.
    pub memory_counter: Option<fn(&mut AppCounters) -> &mut u64>,
    /// Whether events have the transaction number (`tx_id`) at the top level instead of inside the protocol's member.
    pub shows_tx: bool,
    /// Whether events show the addresses of the current packet instead of those of the transaction
    /// ([`crate::Transaction::direction`]). Over TCP, the current packet is the one that acknowledges the data.
    pub packet_addresses: bool,
    /// Settings below `app-layer.protocols.KEY`, by index (`AppConfig.settings`).
    pub settings: &'static [Setting],
    /// Options of the event type, by index (`AppLogOptions.options`).
    pub eve_options: &'static [EveOption],
    /// Options of the protocol's member in alerts; their indexes follow those of `eve_options`.
    pub alert_options: &'static [EveOption],
}

impl Protocol {
    /// A protocol without a parser. A declaration overrides what differs.
    pub const fn new(proto: AppProto, name: &'static str) -> Protocol {
        Protocol {
            proto,
            name,
            rule_name: name,
            headers: &[],
            meant_by: &[],
            config: name,
            mode: Mode::On,
            is_own: false,
            follows: &[],
            changes_apart: true,
            outlives_tls: false,
            usual_port: None,
            recognition: Recognition { patterns: &[], probes: &[] },
            inline_probes: &[],
            opening: Opening::Any,
            first_words: &[],
            client_begins: |_| Probed::Yes { reverse: false },
            server_begins: |_| true,
            parser: name_only,
            expected: None,
            keywords: &[],
            buffers: &[],
            numbers: &[],
            states: PLAIN_STATES,
            inner_states: &[],
            events: &[],
            anomalies_end: false,
            capital_events: false,
            frames: &[],
            event_key: "",
            event_aliases: &[],
            event_type: "",
            log: None,
            logged_with: None,
            shows_forwarded: false,
            memory_counter: None,
            shows_tx: false,
            packet_addresses: false,
            settings: &[],
            eve_options: &[],
            alert_options: &[],
        }
    }

    /// Adds an event type named after the protocol.
    pub const fn logged(self) -> Protocol {
        let name = self.name;
        self.logged_as(name)
    }

    /// Adds an event type with this name.
    pub const fn logged_as(self, name: &'static str) -> Protocol {
        Protocol { event_key: name, event_type: name, log: Some(self.proto), ..self }
    }

    /// Marks a protocol of Margay's own: Suricata does not know it, so it is off by default.
    pub const fn own(self) -> Protocol {
        Protocol { mode: Mode::Off, is_own: true, ..self }
    }

    /// The name of an event in anomaly records.
    pub fn anomaly_name(&self, event: &'static str) -> std::borrow::Cow<'static, str> {
        if self.capital_events { event.to_ascii_uppercase().into() } else { event.into() }
    }

    /// The names of a transaction's states, for events. A protocol with only a start and a complete state shows none.
    pub fn shown_progress(&self, progress: [u8; 2]) -> Option<(&'static str, &'static str)> {
        let [ts, tc] = [0, 1].map(|d| self.states[d].get(usize::from(progress[d])).copied());
        if self.states == PLAIN_STATES { None } else { ts.zip(tc) }
    }

    /// Whether the firewall has a hook for a state.
    pub fn is_hook(&self, state: &str) -> bool {
        !self.inner_states.contains(&state)
    }

    /// The progress of a complete transaction, by direction.
    pub const fn complete(&self) -> [u8; 2] {
        [last(self.states[0]), last(self.states[1])]
    }

    /// Whether the protocol is detected over TCP, and over UDP. A protocol that is only reached from another one counts as TCP.
    pub fn transports(&self) -> [bool; 2] {
        self.recognition.transports()
    }

    /// Names for the header of a rule, each with the protocols that it covers.
    pub fn header_names(&'static self) -> impl Iterator<Item = (&'static str, &'static [&'static str])> {
        let own = (self.rule_name, std::slice::from_ref(&self.rule_name));
        self.headers.iter().copied().chain(self.headers.is_empty().then_some(own))
    }
}

/// The states of a transaction that only starts and completes.
const PLAIN_STATES: [&[&str]; 2] =
    [&["request_started", "request_complete"], &["response_started", "response_complete"]];

const fn last(states: &[&str]) -> u8 {
    states.len().saturating_sub(1) as u8
}

fn name_only(_config: &AppConfig, _flow: &FlowCore) -> Box<dyn Parser> {
    Box::new(NameOnly)
}

/// The parser of a protocol that is only detected: it ends at the first data.
#[derive(Debug)]
struct NameOnly;

impl Parser for NameOnly {
    fn proto(&self) -> AppProto {
        AppProto::Unknown
    }

    fn data(&mut self, _cx: &mut Parse<'_>, _dir: Direction, data: &[u8]) -> Parsed {
        Parsed { consumed: data.len(), outcome: Outcome::Done }
    }

    fn gap(&mut self, _cx: &mut Parse<'_>, _dir: Direction, _len: u64) -> Outcome {
        Outcome::Done
    }

    fn memory(&mut self) -> u64 {
        0
    }

    fn txs(&self) -> Range<u64> {
        0..0
    }

    fn tx(&self, _id: u64) -> Option<&dyn Transaction> {
        None
    }

    fn tx_mut(&mut self, _id: u64) -> Option<&mut dyn Transaction> {
        None
    }

    fn free_tx(&mut self, _shared: &mut Shared, _id: u64) {}
}
