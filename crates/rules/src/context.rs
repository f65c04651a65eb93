//! The context that rules refer to: variables, classes, references, and the features of this build.

use std::collections::{HashMap, HashSet};
use std::fmt;

use crate::address::Addresses;
use crate::ast::Class;
use crate::port::Ports;
use crate::{Message, Severity};

/// A release, for `requires: version`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u16, pub u16, pub u16);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// Keywords for which an invalid value is an error and not only a warning (`--strict-rule-keywords`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum StrictKeywords {
    /// None: the default
    #[default]
    None,
    /// All
    All,
    /// These
    List(HashSet<String>),
}

impl StrictKeywords {
    /// From the command line's `all` or comma separated list.
    pub fn parse(text: &str) -> StrictKeywords {
        if text.trim() == "all" {
            return StrictKeywords::All;
        }
        StrictKeywords::List(text.split(',').map(|s| s.trim().to_owned()).filter(|s| !s.is_empty()).collect())
    }

    /// Whether `keyword` is strict.
    pub fn has(&self, keyword: &str) -> bool {
        match self {
            StrictKeywords::None => false,
            StrictKeywords::All => true,
            StrictKeywords::List(l) => l.contains(keyword),
        }
    }
}

/// Everything that a rule's meaning depends on, besides its text.
#[derive(Debug, Clone)]
pub struct Context {
    /// `vars.address-groups`: from the name without `$` to the text.
    pub addresses: HashMap<String, String>,
    /// `vars.port-groups`: from the name without `$` to the text.
    pub ports: HashMap<String, String>,
    /// `classification.config`, by lower-case name.
    pub classes: HashMap<String, Class>,
    /// `reference.config`: from the system in lower case to its URL prefix.
    pub references: HashMap<String, String>,
    /// Strict keywords.
    pub strict: StrictKeywords,
    /// The Suricata release whose language this is, for `requires: version`.
    pub version: Version,
    /// Names for `requires: feature`.
    pub features: HashSet<String>,
    /// Families of keywords that a setting turns off (`ja3`, `ja4`): rules that use one are errors.
    pub off: HashSet<&'static str>,
    /// The capabilities of this build: protocols by name (`http`, `tls` …), protocols that are only detected
    /// (`app-layer:tls`), and features from [`FEATURES`]. A rule that needs anything else is set aside.
    pub available: HashSet<String>,
    /// Whether packets can be changed or dropped; otherwise `replace` is accepted with a warning.
    pub inline: bool,
    /// Whether the events of rules must be those that the parsers of this build declare.
    pub check_events: bool,
    /// Limit of the rules of one loader; further ones are errors.
    pub max_rules: usize,
}

/// Names other than protocols that [`Context::available`] may have, and the keywords that need them.
pub const FEATURES: &[(&str, &str)] = &[
    ("app-layer", "app-layer-protocol, app-layer-event:applayer_*, app-layer-state"),
    ("dataset", "dataset, datarep"),
    ("file", "file.*, filestore, filemagic, filemd5 …"),
    ("frame", "frame"),
    ("geoip", "geoip"),
    ("iprep", "iprep"),
    ("lua", "lua, luaxform"),
    ("nfq", "nfq_set_mark"),
];

impl Default for Context {
    fn default() -> Self {
        Context {
            addresses: HashMap::new(),
            ports: HashMap::new(),
            classes: HashMap::new(),
            references: HashMap::new(),
            strict: StrictKeywords::None,
            version: Version(8, 0, 6),
            features: HashSet::new(),
            off: HashSet::new(),
            available: HashSet::new(),
            inline: false,
            check_events: false,
            max_rules: 1 << 20,
        }
    }
}

/// In the error about a list of addresses or ports that excludes everything it includes.
const NOTHING_LEFT: &str = "left after merging";

impl Context {
    /// Errors in the variables, whether or not a rule uses them: one for each variable without valid addresses or ports,
    /// sorted by name. An empty value, or a list that negates all it names, is an error only in a rule that uses it.
    pub fn wrong_variables(&self) -> Vec<Message> {
        let mut wrong = Vec::new();
        let mut say = |kind: &str, name: &str, value: &str, why: Vec<Message>| {
            if value.is_empty() || why.iter().any(|m| m.text.contains(NOTHING_LEFT)) {
                return;
            }
            wrong.extend(why);
            let text = format!("failed to parse {kind} var \"{name}\" with value \"{value}\". Please check its syntax");
            wrong.push(Message { severity: Severity::Error, module: "detect", text });
        };
        let sorted = |map: &HashMap<String, String>| {
            let mut all: Vec<_> = map.iter().map(|(n, v)| (n.clone(), v.clone())).collect();
            all.sort();
            all
        };
        let mut addresses = Addresses::default();
        for (name, value) in sorted(&self.addresses) {
            if let Err(e) = addresses.parse(&format!("${name}"), &self.addresses) {
                say("address", &name, &value, e.messages);
            }
        }
        let mut ports = Ports::default();
        for (name, value) in sorted(&self.ports) {
            if let Err(e) = ports.parse(&format!("${name}"), &self.ports) {
                say("port", &name, &value, e.messages);
            }
        }
        wrong
    }

    /// A context with the variables of Suricata's default configuration, for use without a configuration: a home network
    /// of private addresses, its servers, and the usual ports.
    pub fn customary() -> Context {
        const ADDRESSES: &[(&str, &str)] = &[
            ("HOME_NET", "[192.168.0.0/16,10.0.0.0/8,172.16.0.0/12]"),
            ("EXTERNAL_NET", "!$HOME_NET"),
            ("HTTP_SERVERS", "$HOME_NET"),
            ("SMTP_SERVERS", "$HOME_NET"),
            ("SQL_SERVERS", "$HOME_NET"),
            ("DNS_SERVERS", "$HOME_NET"),
            ("TELNET_SERVERS", "$HOME_NET"),
            ("AIM_SERVERS", "$EXTERNAL_NET"),
            ("DC_SERVERS", "$HOME_NET"),
            ("DNP3_SERVER", "$HOME_NET"),
            ("DNP3_CLIENT", "$HOME_NET"),
            ("MODBUS_CLIENT", "$HOME_NET"),
            ("MODBUS_SERVER", "$HOME_NET"),
            ("ENIP_CLIENT", "$HOME_NET"),
            ("ENIP_SERVER", "$HOME_NET"),
        ];
        const PORTS: &[(&str, &str)] = &[
            ("HTTP_PORTS", "80"),
            ("SHELLCODE_PORTS", "!80"),
            ("ORACLE_PORTS", "1521"),
            ("SSH_PORTS", "22"),
            ("DNP3_PORTS", "20000"),
            ("MODBUS_PORTS", "502"),
            ("FILE_DATA_PORTS", "[$HTTP_PORTS,110,143]"),
            ("FTP_PORTS", "21"),
            ("GENEVE_PORTS", "6081"),
            ("VXLAN_PORTS", "4789"),
            ("TEREDO_PORTS", "3544"),
            ("SIP_PORTS", "[5060, 5061]"),
        ];
        let of = |list: &[(&str, &str)]| list.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        Context { addresses: of(ADDRESSES), ports: of(PORTS), ..Context::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_that_stand_for_nothing() {
        let mut context = Context::customary();
        assert_eq!(context.wrong_variables(), []);
        context.addresses.insert("HOME_NET".into(), "10.0.0.0/33".into());
        context.ports.insert("HTTP_PORTS".into(), "99999".into());
        let said: Vec<String> = context.wrong_variables().into_iter().map(|m| m.text).collect();
        for words in ["address var \"HOME_NET\" with value \"10.0.0.0/33\"", "port var \"HTTP_PORTS\""] {
            assert!(said.iter().any(|s| s.contains(words)), "{said:?}");
        }
        let mut context = Context::customary();
        context.addresses.insert("EMPTY".into(), String::new());
        context.addresses.insert("NONE".into(), "[10.0.0.1,!10.0.0.1]".into());
        context.ports.insert("NONE".into(), "[80,!80]".into());
        assert_eq!(context.wrong_variables(), []);
    }
}
