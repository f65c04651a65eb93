//! The engines that evaluate a rule's checks: one for each buffer, protocol and direction.

use margay_app::PROTOCOLS;
use margay_flow::Direction;
use margay_rules::FileBuffer;
use margay_rules::ast::{Arrow, BufferCheck, BufferChecks, Check, FileCheck, Protocol, Rule, Side};
use margay_rules::info::{self, BufferInfo};

/// The HTTP protocols, by their names in events.
const HTTP: &[&str] = &["http", "http2"];
/// Protocols that carry files, in the report's order for each buffer of a file.
const FILES: &[&str] = &["nfs", "smb", "ftp", "ftp-data", "http", "http2", "smtp"];

/// The facts that determine a rule's engines.
#[derive(Debug, Clone)]
pub(super) struct Scope {
    /// The rule's protocol in reports: `http_any`, `dns`; `unknown` for none.
    pub(super) app_proto: String,
    /// Protocols by their names in events; `None` if the rule does not restrict them.
    protocols: Option<Vec<&'static str>>,
    pub(super) to_server: bool,
    pub(super) to_client: bool,
}

/// One engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) app_proto: &'static str,
    pub(super) to_server: bool,
    pub(super) progress: u8,
}

/// The protocols that a name in a rule's header stands for, by their names in events.
fn of_header(name: &str) -> Vec<&'static str> {
    match name {
        "http" => HTTP.to_vec(),
        "dcerpc" => vec!["dcerpc", "smb"],
        n => event_name(n).into_iter().collect(),
    }
}

fn event_name(rule_name: &str) -> Option<&'static str> {
    margay_app::AppProto::all().find(|p| p.rule_name() == rule_name).map(margay_app::AppProto::name)
}

/// The protocols that have a keyword or buffer, by their names in events.
fn of_keyword(name: &str, protocols: &[&'static str]) -> Vec<&'static str> {
    match (name, protocols.first()) {
        (n, _) if is_file(n) => FILES.to_vec(),
        ("http.start", _) => vec!["http"],
        (_, Some(&"http")) => HTTP.to_vec(),
        (_, Some(&"http2")) => vec!["http2"],
        ("dcerpc.stub_data", _) => vec!["smb", "dcerpc"],
        (_, Some(&"dcerpc")) => vec!["dcerpc", "smb"],
        (n, _) if n.starts_with("ja3") || n.starts_with("ja4") => vec!["tls", "quic"],
        (_, Some(first)) => event_name(first).into_iter().collect(),
        (_, None) => Vec::new(),
    }
}

pub(super) fn is_file(buffer: &str) -> bool {
    FileBuffer::from_name(buffer).is_some()
}

/// Whether a buffer or keyword belongs to DCERPC.
pub(super) fn is_dce(name: &str) -> bool {
    name.starts_with("dcerpc.")
}

/// The name of a buffer's engine.
pub(super) fn engine_name(b: &BufferChecks) -> String {
    if let Some(frame) = b.buffer.strip_prefix("frame:") {
        return frame.to_owned();
    }
    match b.buffer.as_str() {
        "http.response_body" | "file.data" => "file_data".to_owned(),
        "http.request_body" => "http_client_body".to_owned(),
        // Newer buffers have the keyword's name.
        n if [
            "http.location",
            "http.server",
            "ssh.",
            "tls.",
            "ja3",
            "ja4",
            "file.",
            "rfb.",
            "snmp.",
            "mqtt.",
            "ike.",
            "smtp.",
            "email.",
            "ftp.",
            "sip.",
            "sdp.",
            "ldap.",
            "pgsql.",
            "websocket.",
            "enip.",
            "ntp.",
        ]
        .iter()
        .any(|p| n.starts_with(p))
            && n != "ssh.software" =>
        {
            n.to_owned()
        }
        n => info::buffer(n).map_or_else(|| n.to_owned(), |i| i.internal.to_owned()),
    }
}

/// Protocols with calls of DCE/RPC.
const DCERPC: &[&str] = &["dcerpc", "smb"];

/// The name of the engine of a transaction check.
pub(super) fn check_engine(c: &Check) -> &str {
    match c {
        Check::AppEvent(_) => "app-layer-events",
        Check::UriLen { raw: false, .. } => "http_uri",
        Check::UriLen { raw: true, .. } => "http_raw_uri",
        Check::File(FileCheck::Size(_) | FileCheck::Hash { .. }) => "files",
        Check::AppState { .. } => "app-layer-state",
        Check::Number { keyword, .. } if is_dce(keyword) => "dce_generic",
        Check::Number { keyword, .. } => match *keyword {
            "tls.version" | "ssl_version" | "ssl_state" => "tls_generic",
            "tls_cert_notbefore" | "tls_cert_notafter" | "tls_cert_expired" | "tls_cert_valid" => "tls_validity",
            "ftpbounce" => "ftp:request_complete:generic",
            k => k,
        },
        Check::Lua(_) => "lua",
        Check::Interface(_) => "dce_generic",
        Check::Other { keyword, .. } => keyword,
        _ => "packet",
    }
}

/// Protocols and directions of a transaction check without a buffer: to server, to client.
fn of_check(c: &Check) -> (Vec<&'static str>, [bool; 2]) {
    match c {
        Check::AppEvent(n) => match n.split_once('.') {
            // HTTP events without a version belong to HTTP/1.
            Some(("http", _)) => (vec!["http"], [true, true]),
            Some((p, _)) => (of_header(p), [true, true]),
            None => (Vec::new(), [true, true]),
        },
        Check::UriLen { .. } => (HTTP.to_vec(), [true, false]),
        Check::File(_) => (FILES.to_vec(), [true, true]),
        Check::Number { keyword, .. } => {
            let protocols = info::keyword(keyword).map_or(&[][..], |k| k.protocols);
            let known = PROTOCOLS.iter().flat_map(|p| p.numbers).find(|n| n.name == *keyword);
            let sides = known.map_or([true, true], |n| n.progress.map(|p| p.is_some()));
            (of_keyword(keyword, protocols), sides)
        }
        Check::Interface(_) => (of_keyword(info::keyword_of_check(c), DCERPC), [true, true]),
        Check::Other { keyword, .. } => {
            let protocols = info::keyword(keyword).map_or(&[][..], |k| k.protocols);
            (of_keyword(keyword, protocols), [true, true])
        }
        _ => (Vec::new(), [true, true]),
    }
}

impl Scope {
    /// The scope of `rule`. `legacy` says that it uses old modifiers, which imply HTTP/1.
    pub(super) fn of(rule: &Rule, legacy: bool) -> Scope {
        let header = match &rule.protocol {
            Protocol::App(n) => Some(n.as_str()),
            _ => None,
        };
        let mut protocols = header.map(of_header);
        let narrow = |by: Vec<&'static str>, protocols: &mut Option<Vec<&'static str>>| {
            if by.is_empty() {
                return;
            }
            match protocols {
                Some(p) if p.iter().any(|x| by.contains(x)) => p.retain(|x| by.contains(x)),
                Some(_) => {}
                None => *protocols = Some(by),
            }
        };
        let mut named: Option<String> = None;
        let (mut to_server, mut to_client) = (true, true);
        let mut side = |server: bool, client: bool| {
            if rule.arrow != Arrow::Transaction && server != client {
                (to_server, to_client) = (server, client);
            }
        };
        if let Some(hook) = rule.hook.as_deref() {
            let [server, client] = [Direction::ToServer, Direction::ToClient]
                .map(|d| PROTOCOLS.iter().any(|p| p.states[d.index()].contains(&hook)));
            side(server || hook.starts_with("request_"), client || hook.starts_with("response_"));
        }
        for b in rule.buffers.iter().filter(|b| b.app) {
            if let Some(s) = b.side {
                side(s == Side::ToServer, s == Side::ToClient);
            }
            if let Some((name, _)) = b.buffer.strip_prefix("frame:").and_then(|f| f.split_once('.'))
                && margay_app::ALL.iter().any(|p| p.header_names().any(|h| h.0 == name))
            {
                named.get_or_insert_with(|| event_name(name).unwrap_or(name).to_owned());
            }
            let Some(i) = info::buffer(&b.buffer) else { continue };
            side(i.to_server, i.to_client);
            if is_file(&b.buffer) {
                continue;
            }
            let by = of_keyword(i.name, i.protocols);
            if named.is_none() {
                named = keyword_proto(&by, i.protocols);
            }
            narrow(by, &mut protocols);
        }
        for c in &rule.checks {
            match c {
                Check::Flow(f) => {
                    if let Some(s) = f.side {
                        side(s == Side::ToServer, s == Side::ToClient);
                    }
                }
                Check::File(_) => {}
                c => {
                    let (by, [server, client]) = of_check(c);
                    side(server, client);
                    if !by.is_empty() && named.is_none() {
                        let rule_names = match c {
                            Check::AppEvent(_) => &[][..],
                            Check::UriLen { .. } => &["http"][..],
                            Check::Number { keyword, .. } => info::keyword(keyword).map_or(&[][..], |k| k.protocols),
                            Check::Interface(_) => DCERPC,
                            Check::Other { keyword, .. } => info::keyword(keyword).map_or(&[][..], |k| k.protocols),
                            _ => &[][..],
                        };
                        named = match rule_names.is_empty() {
                            true => by.first().map(|p| (*p).to_owned()),
                            false => keyword_proto(&by, rule_names),
                        };
                    }
                    narrow(by, &mut protocols);
                }
            }
        }
        let dce = rule.buffers.iter().flat_map(|b| &b.checks).any(BufferCheck::is_dce);
        let app_proto = match header {
            _ if legacy => "http".to_owned(),
            Some("http") if protocols.as_deref() == Some(&["http"]) => "http".to_owned(),
            Some("http") => "http_any".to_owned(),
            Some(n) => event_name(n).unwrap_or(n).to_owned(),
            None => named.unwrap_or_else(|| if dce { "dcerpc".to_owned() } else { "unknown".to_owned() }),
        };
        if legacy {
            protocols = Some(vec!["http"]);
        }
        Scope { app_proto, protocols, to_server, to_client }
    }

    fn allows(&self, proto: &str) -> bool {
        self.protocols.as_ref().is_none_or(|p| p.contains(&proto))
    }

    fn places(&self, protocols: &[&'static str], sides: [bool; 2], progress: &dyn Fn(&str, bool) -> u8) -> Vec<Place> {
        let mut out = Vec::new();
        for p in protocols.iter().copied().filter(|p| self.allows(p)) {
            for to_server in [true, false] {
                let wanted = if to_server { self.to_server } else { self.to_client };
                if wanted && sides[usize::from(!to_server)] {
                    out.push(Place { app_proto: p, to_server, progress: progress(p, to_server) });
                }
            }
        }
        out
    }

    /// The engines of a buffer, in the order in which protocols are tried.
    pub(super) fn of_buffer(&self, b: &BufferChecks) -> Vec<Place> {
        let fallback = BufferInfo {
            name: "",
            internal: "",
            description: "",
            protocols: &[],
            to_server: true,
            to_client: true,
            multi: false,
            is_common: false,
        };
        let i = info::buffer(&b.buffer).unwrap_or(fallback);
        let sides = [i.to_server && b.side != Some(Side::ToClient), i.to_client && b.side != Some(Side::ToServer)];
        let name = b.buffer.as_str();
        let mut places = self.places(&of_keyword(i.name, i.protocols), sides, &|p, s| progress(p, s, name));
        if is_file(name) {
            // Mail carries files in one direction only.
            places.retain(|p| p.app_proto != "smtp" || p.to_server);
            // Files of one protocol: the response's first.
            places.sort_by_key(|p| (FILES.iter().position(|f| *f == p.app_proto), p.to_server));
        }
        places
    }

    /// The engines of a transaction check.
    pub(super) fn of_check(&self, c: &Check) -> Vec<Place> {
        if matches!(c, Check::AppEvent(_)) {
            return self.both();
        }
        let (protocols, sides) = of_check(c);
        let name = match c {
            Check::UriLen { raw, .. } => info::uri_buffer(*raw),
            Check::File(_) => FileBuffer::Data.name(),
            Check::Number { keyword, .. } => keyword,
            Check::Interface(_) => info::keyword_of_check(c),
            Check::Other { keyword, .. } => keyword,
            _ => "",
        };
        let mut places = self.places(&protocols, sides, &|p, s| progress(p, s, name));
        // Sorted by direction, because such engines are created in that order.
        places.sort_by_key(|p| !p.to_server);
        places
    }

    /// An engine for each direction, without a protocol: for events, and for the stream next to transactions.
    pub(super) fn both(&self) -> Vec<Place> {
        [true, false]
            .into_iter()
            .filter(|s| if *s { self.to_server } else { self.to_client })
            .map(|to_server| Place { app_proto: "unknown", to_server, progress: 0 })
            .collect()
    }
}

/// The protocol that a keyword implies, by its name in reports.
fn keyword_proto(event_names: &[&'static str], rule_names: &[&'static str]) -> Option<String> {
    match (event_names, rule_names.first()) {
        (["http"], _) => Some("http".to_owned()),
        (_, Some(&"http")) => Some("http_any".to_owned()),
        (["tls", "quic"], _) => None,
        (_, Some(&"dcerpc")) | (["smb", "dcerpc"], _) => Some("dcerpc".to_owned()),
        (e, _) => e.first().map(|p| (*p).to_owned()),
    }
}

/// The state of a transaction in which a buffer or number is complete.
fn progress(proto: &str, to_server: bool, name: &str) -> u8 {
    let dir = if to_server { Direction::ToServer } else { Direction::ToClient }.index();
    let of = |n: &str| {
        let p = PROTOCOLS.iter().find(|p| p.proto.name() == proto)?;
        let buffer = p.buffers.iter().find(|b| b.name == n).map(|b| b.progress);
        let number = || {
            let def = p.numbers.iter().find(|d| d.name == n)?;
            Some(def.progress.map(|p| p.filter(|p| *p != margay_app::NumberDef::ANY_STATE)))
        };
        buffer.or_else(number)?.get(dir).copied().flatten()
    };
    match (proto, name) {
        // Suricata numbers the states of an HTTP/2 stream differently.
        ("http2", _) if to_server => 3,
        ("http2", _) => 5,
        ("http", n) if is_file(n) => of(n).unwrap_or(3),
        (_, n) => of(n).unwrap_or(0),
    }
}
