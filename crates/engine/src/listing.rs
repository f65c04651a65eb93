//! `--list-keywords`, `--list-rule-protos`, `--list-app-layer-hooks`.

use std::fmt::Write as _;

use margay_app::PROTOCOLS;
use margay_config::Keywords;
use margay_rules::info::{self, KeywordInfo, KeywordKind};

/// The manual of the supported Suricata release.
const MANUAL: &str = "https://docs.suricata.io/en/suricata-8.0.6/";

/// A keyword's features, as Suricata names them.
fn features(k: &KeywordInfo) -> Vec<&'static str> {
    let kind = match k.kind {
        KeywordKind::StickyBuffer => Some("sticky buffer"),
        KeywordKind::Modifier => Some("content modifier"),
        KeywordKind::Transform => Some("transform"),
        KeywordKind::Plain => None,
    };
    let list: Vec<_> = (k.takes_value == Some(false)).then_some("No option").into_iter().chain(kind).collect();
    if list.is_empty() { vec!["none"] } else { list }
}

/// The protocols of a keyword; `Unset` for none.
fn app_layer(k: &KeywordInfo) -> String {
    if k.protocols.is_empty() { "Unset".to_owned() } else { k.protocols.join(",") }
}

/// A keyword's details, under its name.
fn details(k: &KeywordInfo, indent: &str) -> String {
    let mut out = format!("{indent}Description: {}\n", k.description());
    if !k.protocols.is_empty() {
        let _ = writeln!(out, "{indent}Protocol: {}", app_layer(k));
    }
    let _ = writeln!(out, "{indent}Features: {}", features(k).join(","));
    if !k.aliases.is_empty() {
        let _ = writeln!(out, "{indent}Other names: {}", k.aliases.join(", "));
    }
    let _ = writeln!(out, "{indent}Documentation: {MANUAL}{}", k.page);
    out
}

/// `--list-keywords`.
pub(crate) fn keywords(what: &Keywords) -> String {
    let all = info::all_keywords();
    match what {
        Keywords::Names => {
            all.iter().fold("=====Supported keywords=====\n".to_owned(), |out, k| out + "- " + k.name + "\n")
        }
        Keywords::All => all.iter().fold(String::new(), |out, k| out + k.name + ":\n" + &details(k, "\t")),
        Keywords::Csv => {
            all.iter().fold("name;description;app layer;features;documentation\n".to_owned(), |mut out, k| {
                let features = features(k).join(":");
                let _ = writeln!(out, "{};{};{};{features};{MANUAL}{};", k.name, k.description(), app_layer(k), k.page);
                out
            })
        }
        Keywords::One(name) => match info::keyword(name) {
            Some(k) => format!("= {} =\n{}", k.name, details(&k, "")),
            None => {
                let near: Vec<&str> =
                    all.iter().map(|k| k.name).filter(|n| n.contains(name.as_str())).take(5).collect();
                let hint = if near.is_empty() { String::new() } else { format!("; there are: {}", near.join(", ")) };
                format!("Non existing keyword: {name}{hint}\n")
            }
        },
    }
}

/// Whether the keyword that `--list-keywords=NAME` asks for exists.
pub(crate) fn is_known(what: &Keywords) -> bool {
    !matches!(what, Keywords::One(name) if info::keyword(name).is_none())
}

/// `--list-rule-protos`: names that a rule's header may have.
pub(crate) fn rule_protocols() -> String {
    const PACKETS: [&str; 17] = [
        "ip",
        "ip4",
        "ipv4",
        "ip6",
        "ipv6",
        "tcp",
        "tcp-pkt",
        "tcp-stream",
        "udp",
        "icmp",
        "icmpv4",
        "icmpv6",
        "sctp",
        "pkthdr",
        "ether",
        "arp",
        "any",
    ];
    let names = PACKETS.into_iter().chain(info::header_protocols());
    names.fold("=========Supported Rule Protocols=========\n".to_owned(), |out, n| out + n + "\n")
}

/// `--list-app-layer-hooks`: states that a rule's header may name after a protocol, by direction.
pub(crate) fn hooks() -> String {
    let mut out = "=========Supported App Layer Hooks=========\n".to_owned();
    for p in PROTOCOLS {
        let _ = writeln!(out, "{}", p.rule_name);
        let ends = [["request_started", "request_complete"], ["response_started", "response_complete"]];
        for (side, (states, ends)) in ["toserver", "toclient"].into_iter().zip(p.states.iter().zip(ends)) {
            let _ = writeln!(out, "\t{side}");
            let last = states.len().saturating_sub(1);
            for (i, state) in states.iter().enumerate() {
                // The first and the last state also have a name that all protocols share.
                let general = match i {
                    0 => Some(ends[0]),
                    i if i == last => Some(ends[1]),
                    _ => None,
                };
                let also = general.filter(|g| g != state).map(|g| format!(" (also {g})")).unwrap_or_default();
                let _ = writeln!(out, "\t\t{state}{also}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_the_list() {
        let names = keywords(&Keywords::Names);
        assert!(names.starts_with("=====Supported keywords=====\n- ") && names.contains("\n- http.uri\n"));
        let csv = keywords(&Keywords::Csv);
        assert!(csv.lines().all(|l| l.matches(';').count() == if l.starts_with("name;") { 4 } else { 5 }), "{csv}");
        let one = keywords(&Keywords::One("flags".to_owned()));
        assert!(one.starts_with("= tcp.flags =\nDescription: ") && one.contains("Other names: flags\n"), "{one}");
        assert!(keywords(&Keywords::One("tcp.fla".to_owned())).contains("tcp.flags"));
        assert!(hooks().contains("http1\n\ttoserver\n\t\trequest_started"));
        assert!(rule_protocols().contains("\nmqtt\n"));
    }
}
