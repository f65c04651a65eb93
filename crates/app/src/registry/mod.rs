//! The declarations of all protocols.
//!
//! To add a protocol, make its folder with a `static PROTOCOL: Protocol` and add one line to the list in `proto.rs`. Everything
//! else follows from the declaration: its number and names ([`AppProto`]), its names in rules, detection, keywords, settings,
//! event types, counters, listings, and the generic fuzz target and tests. A protocol of another crate is added at program start
//! ([`add`]).
//!
//! Protocols do not use this module. What they need of each other's declarations, the settings have
//! ([`Declared`](crate::config::Declared)).

mod defaults;

use std::sync::{Mutex, OnceLock, PoisonError};

use crate::declare::Protocol;
use crate::proto::{AppProto, VARIANTS};
use crate::recognise::{PROBES_MAX, TCP, UDP, probes_in};

/// Whether the protocol of a name in a rule's header is detected over TCP, and over UDP. Other protocols that the name covers
/// have the same transports.
pub fn header_transports(name: &str) -> [bool; 2] {
    let named = ALL.iter().find(|p| p.header_names().any(|h| h.0 == name));
    named.map_or([true, false], |p| p.transports())
}

macro_rules! declarations {
    (parsed { $($parsed:ident $($parsed_at:ident)::+;)* } named { $($named:ident $($named_at:ident)::+;)* }) => {
        /// The protocols of this crate, first those with a parser.
        pub(crate) static BUILT_IN: &[&Protocol] = &[$(&crate::$($parsed_at)::+,)* $(&crate::$($named_at)::+,)*];

        /// The number of protocols with a parser.
        const PARSED: usize = [$(AppProto::$parsed,)*].len();
    };
}

protocols!(declarations);

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

/// Checked at compile time.
#[expect(dead_code, reason = "it only has to be evaluated")]
static PROBES_FIT: () = {
    assert!(probes_of(TCP) <= PROBES_MAX && probes_of(UDP) <= PROBES_MAX, "a flow's probes do not fit in a word");
};

/// The number of probes of a transport.
pub(crate) const fn probes_of(transport: u8) -> usize {
    let (mut n, mut i) = (0, 0);
    while i < BUILT_IN.len() {
        n += probes_in(BUILT_IN[i].recognition.probes, transport) + probes_in(BUILT_IN[i].inline_probes, transport);
        i += 1;
    }
    n
}

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

/// The protocols that the configuration can set up, with their keys below `app-layer.protocols`.
pub fn configurable() -> impl Iterator<Item = (AppProto, &'static str)> {
    ALL.iter().filter(|p| !p.config.is_empty()).map(|p| (p.proto, p.config))
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
