//! Settings and event types that protocols declare in their folders ([`margay_app::Protocol`]).

use margay_app::declare::Unit;
use margay_app::{ALL, PROTOCOLS, Protocol};

use super::reasons::{NO_EVENTS, NO_PARSER};
use super::{Effect, Key, Kind, U32};

/// Event types of the engine itself, and of files.
const OWN_TYPES: &[&str] =
    &["alert", "anomaly", "arp", "drop", "files", "flow", "frame", "metadata", "netflow", "stats", "stream"];

fn is_parsed(p: &Protocol) -> bool {
    PROTOCOLS.iter().any(|q| q.proto == p.proto)
}

/// Keys below `app-layer.protocols`.
pub(super) fn protocols() -> Vec<&'static str> {
    sorted(ALL.iter().map(|p| p.config).filter(|c| !c.is_empty()).collect())
}

/// Event types that the engine or a parsed protocol writes.
pub(super) fn written_types() -> Vec<&'static str> {
    let of_protocols = ALL.iter().filter(|p| is_parsed(p) && !p.event_key.is_empty()).flat_map(|p| keys(p));
    sorted(OWN_TYPES.iter().copied().chain(of_protocols.filter(|k| *k != "ftp_data")).collect())
}

/// Event types of protocols that are not parsed.
pub(super) fn unwritten_types() -> Vec<&'static str> {
    sorted(ALL.iter().filter(|p| !is_parsed(p) && !p.event_key.is_empty()).flat_map(|p| keys(p)).collect())
}

fn keys(p: &'static Protocol) -> impl Iterator<Item = &'static str> {
    std::iter::once(p.event_key).chain(p.event_aliases.iter().copied())
}

fn sorted(mut names: Vec<&'static str>) -> Vec<&'static str> {
    names.sort_unstable();
    names
}

/// Rows of the settings below `app-layer.protocols`.
pub(super) fn settings() -> impl Iterator<Item = Key> {
    ALL.iter().flat_map(|p| {
        p.settings.iter().map(|s| {
            let path = format!("app-layer.protocols.{}.{}", p.config, s.key);
            key(p, path, s.unit, s.default, s.about, NO_PARSER)
        })
    })
}

/// Rows of the options of event types, and of alerts.
pub(super) fn eve_options() -> impl Iterator<Item = Key> {
    ALL.iter().flat_map(|p| {
        let own = p.eve_options.iter().map(|o| (p.event_key, o));
        own.chain(p.alert_options.iter().map(|o| ("alert", o))).map(|(of, o)| {
            let path = format!("outputs.#.eve-log.types.#.{of}.{}", o.key);
            key(p, path, o.unit, o.default, o.about, NO_EVENTS)
        })
    })
}

/// Makes a row. Its texts are never freed, like those of the constant rows.
fn key(p: &Protocol, path: String, unit: Unit, default: u64, about: &'static str, unparsed: &'static str) -> Key {
    let (kind, default) = match unit {
        Unit::Flag => (Kind::Flag, if default == 0 { "no".to_owned() } else { "yes".to_owned() }),
        Unit::Bytes => (Kind::Size { least: 0, most: u64::MAX }, size(default)),
        Unit::Count => (Kind::Number { least: 0, most: U32, unit: "" }, default.to_string()),
    };
    let row = Key::new(path.leak(), kind, default.leak(), about);
    if is_parsed(p) { row } else { Key { effect: Effect::Ignored(unparsed), ..row } }
}

/// A size with the largest unit that divides it: `64mb`, `4kb`.
fn size(bytes: u64) -> String {
    match bytes {
        0 => "0".to_owned(),
        b if b.is_multiple_of(1 << 20) => format!("{}mb", b >> 20),
        b if b.is_multiple_of(1 << 10) => format!("{}kb", b >> 10),
        b => b.to_string(),
    }
}
