//! The declarations of all protocols, and the list of them.
//!
//! To add a protocol, make its folder with a `static PROTOCOL: Protocol` and add one line to the list below. Everything else
//! follows from the declaration: its number and names ([`AppProto`]), its names in rules, detection, keywords, settings, event
//! types, counters, listings, and the generic fuzz target and tests. A protocol of another crate is added at program start
//! ([`add`]).

use std::ops::Range;
use std::sync::{Mutex, OnceLock, PoisonError};

use margay_flow::{Direction, FlowCore};

use crate::config::AppConfig;
use crate::declare::{EveOption, Keyword, Setting};
use crate::expect::Carries;
use crate::parser::{AppCounters, Outcome, Parse, Parsed, Parser, Shared};
use crate::recognise::{Mode, Recognition, TCP, UDP, named};
use crate::tx::{BufferDef, NumberDef, Transaction};

/// How a conversation begins, if protocol detection depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// Either side may begin, with any data.
    Any,
    /// The client speaks first. If the server does, detection does not accept the protocol
    /// (`applayer_wrong_direction_first_data`), and the flow stays unrecognised.
    ClientFirst,
    /// The client begins with a line of text whose first word identifies the protocol.
    Command,
    /// Either side may begin, but only the client's first message identifies the protocol.
    ClientTells,
}

/// How a conversation of another protocol becomes one of this protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handover {
    /// After a command that secures the connection, such as STARTTLS.
    Secured,
    /// By an HTTP/1 upgrade to this name (RFC 9110, section 7.8). Names ignore case.
    Upgrade(&'static str),
}

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
    /// How its flows are handled by default.
    pub mode: Mode,
    /// Whether the protocol is Margay's own. Suricata does not know it, so it is off by default.
    pub is_own: bool,
    /// The server port of most of its traffic. Its rules are searched together with the rules of that port.
    pub usual_port: Option<u16>,
    /// Protocol detection.
    pub recognition: Recognition,
    /// How a conversation begins.
    pub opening: Opening,
    /// Creates the parser for a flow.
    pub parser: fn(&AppConfig, &FlowCore) -> Box<dyn Parser>,
    /// Creates the parser of an announced connection that carries this protocol in a direction ([`crate::expect`]); `None` if
    /// no protocol announces it.
    pub expected: Option<fn(Carries, Direction) -> Box<dyn Parser>>,
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
            usual_port: None,
            recognition: Recognition { patterns: &[], probes: &[] },
            opening: Opening::Any,
            parser: name_only,
            expected: None,
            keywords: &[],
            buffers: &[],
            numbers: &[],
            states: PLAIN_STATES,
            inner_states: &[],
            events: &[],
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
        let over = |t: u8| {
            self.recognition.patterns.iter().any(|p| p.transport == t)
                || self.recognition.probes.iter().any(|p| p.transport == t)
        };
        [over(TCP) || !over(UDP), over(UDP)]
    }

    /// Names for the header of a rule, each with the protocols that it covers.
    pub fn header_names(&'static self) -> impl Iterator<Item = (&'static str, &'static [&'static str])> {
        let own = (self.rule_name, std::slice::from_ref(&self.rule_name));
        self.headers.iter().copied().chain(self.headers.is_empty().then_some(own))
    }
}

/// Whether the protocol of a name in a rule's header is detected over TCP, and over UDP. Other protocols that the name covers
/// have the same transports.
pub fn header_transports(name: &str) -> [bool; 2] {
    let named = ALL.iter().find(|p| p.header_names().any(|h| h.0 == name));
    named.map_or([true, false], |p| p.transports())
}

/// The states of a transaction that only starts and completes.
const PLAIN_STATES: [&[&str]; 2] =
    [&["request_started", "request_complete"], &["response_started", "response_complete"]];

const fn last(states: &[&str]) -> u8 {
    states.len().saturating_sub(1) as u8
}

/// The list: first the protocols with a parser, then those that are only detected or named.
macro_rules! protocols {
    (parsed { $($parsed:ident $parsed_at:path;)* } named { $($named:ident $named_at:path;)* }) => {
        /// An application protocol, or its absence.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
        #[repr(u8)]
        #[allow(missing_docs)]
        pub enum AppProto {
            /// Not known yet.
            #[default]
            Unknown,
            /// Detection found no protocol.
            Failed,
            $($parsed,)*
            $($named,)*
            /// The first protocol that another crate [added](add).
            Added1,
            /// The second protocol of another crate.
            Added2,
            /// The third protocol of another crate.
            Added3,
            /// The fourth protocol of another crate.
            Added4,
        }

        const VARIANTS: &[AppProto] = &[
            AppProto::Unknown, AppProto::Failed, $(AppProto::$parsed,)* $(AppProto::$named,)*
            AppProto::Added1, AppProto::Added2, AppProto::Added3, AppProto::Added4,
        ];

        /// The protocols of this crate, first those with a parser.
        pub(crate) static BUILT_IN: &[&Protocol] = &[$(&$parsed_at,)* $(&$named_at,)*];

        /// The number of protocols with a parser.
        const PARSED: usize = [$(AppProto::$parsed,)*].len();
    };
}

protocols! {
    parsed {
        Http1 crate::http1::PROTOCOL;
        Http2 crate::http2::PROTOCOL;
        Doh2 crate::http2::DOH2;
        Dns crate::dns::PROTOCOL;
        Mdns crate::dns::MDNS;
        Ftp crate::ftp::PROTOCOL;
        FtpData crate::ftp_data::PROTOCOL;
        Smb crate::smb::PROTOCOL;
        Dcerpc crate::dcerpc::PROTOCOL;
        Smtp crate::smtp::PROTOCOL;
        Ssh crate::ssh::PROTOCOL;
        Tls crate::tls::PROTOCOL;
        Quic crate::quic::PROTOCOL;
        Dhcp crate::dhcp::PROTOCOL;
        Tftp crate::tftp::PROTOCOL;
        Ntp crate::ntp::PROTOCOL;
        BittorrentDht crate::bittorrent_dht::PROTOCOL;
        Sip crate::sip::PROTOCOL;
        Pop3 crate::pop3::PROTOCOL;
        Ike crate::ike::PROTOCOL;
        Rfb crate::rfb::PROTOCOL;
        Snmp crate::snmp::PROTOCOL;
        Krb5 crate::krb5::PROTOCOL;
        Ldap crate::ldap::PROTOCOL;
        Rdp crate::rdp::PROTOCOL;
        Mqtt crate::mqtt::PROTOCOL;
        Telnet crate::telnet::PROTOCOL;
        Pgsql crate::pgsql::PROTOCOL;
        Dnp3 crate::dnp3::PROTOCOL;
        Websocket crate::websocket::PROTOCOL;
        Enip crate::enip::PROTOCOL;
        Nfs crate::nfs::PROTOCOL;
        Modbus crate::modbus::PROTOCOL;
        Stun crate::stun::PROTOCOL;
        Wireguard crate::wireguard::PROTOCOL;
        Openvpn crate::openvpn::PROTOCOL;
        Radius crate::radius::PROTOCOL;
        Syslog crate::syslog::PROTOCOL;
        S7comm crate::s7comm::PROTOCOL;
        Bacnet crate::bacnet::PROTOCOL;
        Iec104 crate::iec104::PROTOCOL;
        Opcua crate::opcua::PROTOCOL;
        Imap crate::imap::PROTOCOL;
        Template crate::template::PROTOCOL;
    }
    named {
        Irc named::IRC;
        Jabber named::JABBER;
    }
}

/// A check at compile time: each declaration has its own number, and a set of protocols fits in 64 bits.
#[expect(dead_code, reason = "it only has to be evaluated")]
static NUMBERS_FIT: () = {
    let mut i = 0;
    while i < BUILT_IN.len() {
        assert!(BUILT_IN[i].proto as usize == i + 2, "a protocol's declaration names another protocol");
        i += 1;
    }
    assert!(VARIANTS.len() <= 64, "there are more protocols than bits in a set of them");
};

/// All protocols with a parser.
pub static PROTOCOLS: &List = &List { of: |lists| &lists.parsed };

/// All protocols, by number.
pub static ALL: &List = &List { of: |lists| &lists.all };

/// A list of protocols: those of this crate, and those that other crates [added](add).
#[derive(Debug)]
pub struct List {
    of: fn(&'static Lists) -> &'static [&'static Protocol],
}

impl std::ops::Deref for List {
    type Target = [&'static Protocol];

    fn deref(&self) -> &Self::Target {
        (self.of)(lists())
    }
}

impl IntoIterator for &'static List {
    type Item = &'static &'static Protocol;
    type IntoIter = std::slice::Iter<'static, &'static Protocol>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[derive(Debug)]
struct Lists {
    all: Vec<&'static Protocol>,
    parsed: Vec<&'static Protocol>,
}

/// Protocols of other crates, until the lists are built.
static ADDED: Mutex<Vec<&'static Protocol>> = Mutex::new(Vec::new());
static LISTS: OnceLock<Lists> = OnceLock::new();

/// The lists, which are built on first use and never change.
fn lists() -> &'static Lists {
    LISTS.get_or_init(|| {
        let added = ADDED.lock().unwrap_or_else(PoisonError::into_inner);
        let built_in = |of: &[&'static Protocol]| of.iter().chain(added.iter()).copied().collect();
        Lists { all: built_in(BUILT_IN), parsed: built_in(BUILT_IN.get(..PARSED).unwrap_or(BUILT_IN)) }
    })
}

/// Adds a protocol of another crate. It works like those of this crate: detected, parsed, logged, listed, with its keywords and
/// settings. Call this at program start, before the first use of the lists. The first added protocol has the number
/// [`AppProto::Added1`], and the next ones follow in the order of the calls.
///
/// # Errors
/// A message: the lists are already in use, or another protocol has the number or the name.
pub fn add(protocol: &'static Protocol) -> Result<(), String> {
    let mut added = ADDED.lock().unwrap_or_else(PoisonError::into_inner);
    let name = protocol.name;
    if LISTS.get().is_some() {
        return Err(format!("{name} is added too late: the protocols are already in use"));
    }
    if protocol.proto as usize != 2 + BUILT_IN.len() + added.len() {
        return Err(format!("{name} has the number of another protocol, {:?}", protocol.proto));
    }
    if BUILT_IN.iter().chain(added.iter()).any(|p| p.name == name || p.rule_name == protocol.rule_name) {
        return Err(format!("there already is a protocol called {name}"));
    }
    added.push(protocol);
    Ok(())
}

/// The declaration of a protocol that has a parser.
pub fn protocol(proto: AppProto) -> Option<&'static Protocol> {
    let at = (proto as usize).checked_sub(2)?;
    lists().all.get(at).copied().filter(|_| at < PARSED || at >= BUILT_IN.len())
}

/// The protocol that follows when `handover` happens.
fn follower(handover: impl Fn(&Handover) -> bool) -> Option<AppProto> {
    ALL.iter().find(|p| p.follows.iter().any(&handover)).map(|p| p.proto)
}

/// The protocol of a connection that a command such as STARTTLS secured.
pub(crate) fn secured() -> Option<AppProto> {
    follower(|h| *h == Handover::Secured)
}

/// The protocol that HTTP/1's `Upgrade` names.
pub(crate) fn upgraded(to: &[u8]) -> Option<AppProto> {
    follower(|h| matches!(h, Handover::Upgrade(name) if to.eq_ignore_ascii_case(name.as_bytes())))
}

/// The declaration of a protocol, with or without a parser.
pub(crate) fn declaration(proto: AppProto) -> Option<&'static Protocol> {
    lists().all.get((proto as usize).checked_sub(2)?).copied()
}

impl AppProto {
    /// All protocols. Each number (`as u8`) is below 64.
    pub fn all() -> impl Iterator<Item = AppProto> {
        VARIANTS.iter().copied().filter(|p| !p.is_known() || declaration(*p).is_some())
    }

    /// Name in events and counters; HTTP/1 is `http`.
    pub fn name(self) -> &'static str {
        declaration(self).map_or(if self == AppProto::Failed { "failed" } else { "unknown" }, |p| p.name)
    }

    /// Name in rules; HTTP/1 is `http1`.
    pub fn rule_name(self) -> &'static str {
        declaration(self).map_or(self.name(), |p| p.rule_name)
    }

    /// Whether it is a protocol, not `Unknown` or `Failed`.
    pub const fn is_known(self) -> bool {
        !matches!(self, AppProto::Unknown | AppProto::Failed)
    }

    /// Whether a rule's protocol name covers it: `http` covers both HTTP versions, `dns` also DNS over HTTP/2, `dcerpc` also
    /// SMB, which carries it.
    pub fn is_meant_by(self, name: &str) -> bool {
        self.rule_name() == name || declaration(self).is_some_and(|p| p.meant_by.contains(&name))
    }

    /// The server port of most of its traffic.
    pub fn usual_port(self) -> Option<u16> {
        declaration(self)?.usual_port
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let mut seen = std::collections::HashSet::new();
        for p in ALL {
            assert!(seen.insert(p.name), "{} is declared twice", p.name);
        }
        let mut headers = std::collections::HashSet::new();
        for (name, _) in ALL.iter().flat_map(|p| p.header_names()) {
            assert!(headers.insert(name), "{name} is the name of two protocols");
        }
        assert_eq!((AppProto::Http1.name(), AppProto::Http1.rule_name()), ("http", "http1"));
        assert_eq!((AppProto::Failed.name(), AppProto::default().rule_name()), ("failed", "unknown"));
    }

    #[test]
    fn protocols_of_one_header_have_the_same_transports() {
        for (name, covered) in ALL.iter().flat_map(|p| p.header_names()) {
            let all = ALL.iter().filter(|p| covered.contains(&p.rule_name)).map(|p| p.transports());
            let all = all.fold([false; 2], |all, t| [all[0] | t[0], all[1] | t[1]]);
            assert_eq!(header_transports(name), all, "{name}");
        }
    }

    #[test]
    fn a_name_may_mean_several() {
        let of = |name| AppProto::all().filter(|p| p.is_meant_by(name)).collect::<Vec<_>>();
        assert_eq!(of("http"), [AppProto::Http1, AppProto::Http2, AppProto::Doh2]);
        assert_eq!(of("dns"), [AppProto::Doh2, AppProto::Dns]);
        assert_eq!(of("dcerpc"), [AppProto::Smb, AppProto::Dcerpc]);
        assert_eq!(of("ssh"), [AppProto::Ssh]);
    }
}
