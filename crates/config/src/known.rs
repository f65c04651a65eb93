//! Finds unknown settings of a configuration, and settings without effect.

use crate::error::{Level, Note};
use crate::keys::{self, Effect, Key, Kind};
use crate::tree::{Config, Node};
use crate::typed;

/// Limit of the unknown settings, and of the settings without effect, that are collected.
const NOTES: usize = 1000;

/// A setting of a configuration that has no effect.
#[derive(Clone, Debug)]
pub struct Ignored {
    /// Its path.
    pub path: String,
    /// The reason.
    pub why: &'static str,
    /// Its place.
    pub place: crate::Place,
}

impl Config {
    /// The settings without a row in the table, and invalid values of settings without effect, each with its place, to be
    /// reported as warnings. An unknown section is listed once, not with its content.
    pub fn unknown_keys(&self) -> Vec<Note> {
        let mut found = Found::default();
        walk(self.root(), &[keys::top()], &mut String::new(), &mut found);
        found.unknown
    }

    /// The settings that act, with a value that their row does not allow, each with its place, to be reported as warnings. The
    /// code that reads a setting refuses such a value. This finds the values that nothing reads in a run: those of sections
    /// that are switched off, and of other ways to capture.
    pub fn unfit_values(&self) -> Vec<Note> {
        let mut found = Found::default();
        walk(self.root(), &[keys::top()], &mut String::new(), &mut found);
        found.unfit
    }

    /// The settings without effect, unless their value is the one that causes no notice ([`Key::default`]). Sections that are
    /// switched off (`enabled: no`) are skipped.
    pub fn ignored_keys(&self) -> Vec<Ignored> {
        let mut found = Found::default();
        walk(self.root(), &[keys::top()], &mut String::new(), &mut found);
        found.ignored
    }
}

#[derive(Default)]
struct Found {
    unknown: Vec<Note>,
    ignored: Vec<Ignored>,
    unfit: Vec<Note>,
    /// Whether the walk is inside a section that is switched off.
    off: bool,
}

impl Found {
    /// Whether one of the lists has reached its limit.
    fn is_full(&self) -> bool {
        self.unknown.len() >= NOTES || self.ignored.len() >= NOTES || self.unfit.len() >= NOTES
    }
}

/// Whether a section or an entry of a list is switched off.
fn is_off(node: Node<'_>) -> bool {
    node.peek("enabled").and_then(|n| n.value()).is_some_and(|v| typed::parse_bool(v) == Ok(false))
}

/// Compares the children of `node` with the keys allowed below it. Several rows may match a name, because of `*`.
fn walk(node: Node<'_>, known: &[&'static keys::Level], path: &mut String, found: &mut Found) {
    for child in node.children() {
        if found.is_full() {
            return;
        }
        let name = child.name();
        let length = path.len();
        if length > 0 {
            path.push('.');
        }
        path.push_str(name);
        item(child, known, path, found);
        path.truncate(length);
    }
}

fn item(child: Node<'_>, known: &[&'static keys::Level], path: &mut String, found: &mut Found) {
    let name = child.name();
    let index = name.bytes().all(|b| b.is_ascii_digit());
    let alone = child.children().next().is_none();
    let below: Vec<&'static keys::Level> = known.iter().flat_map(|k| k.of(name)).collect();
    if index && alone {
        // A value in a list: its reader checks it. A value that is a name, such as an event type, may have no effect.
        let named: Vec<&'static keys::Level> = below.iter().flat_map(|k| k.of(child.text())).collect();
        if let Some(row) = named.iter().find(|l| l.is_section()).and_then(|l| l.row) {
            ignored(row, format!("{path}.{}", child.text()), child, found);
        }
        return;
    }
    if below.is_empty() {
        let mut message = format!("nothing knows the setting '{path}'");
        match similar(name, known) {
            Some(other) => message.push_str(&format!("; did you mean '{other}'?")),
            None => message.push_str("; is it misspelt?"),
        }
        found.unknown.push(Note { level: Level::Warning, place: child.place(), message });
        return;
    }
    if is_off(child) {
        // A switch without effect is reported.
        let switch = below.iter().flat_map(|k| k.of("enabled")).find_map(|l| l.row);
        if let (Some(row), Some(enabled)) = (switch, child.peek("enabled"))
            && !row.is_default("no")
        {
            ignored(row, format!("{path}.enabled"), enabled, found);
        }
        return unknown_only(child, &below, path, found);
    }
    if let Some(row) = below.iter().find(|l| l.is_section()).and_then(|l| l.row) {
        return ignored(row, path.clone(), child, found);
    }
    if let Some(row) = below.iter().find_map(|l| l.row) {
        let same = match alone {
            true => row.is_default(child.text()),
            false => {
                row.default == "*" || row.is_default(&format!("[{}]", child.values().collect::<Vec<_>>().join(", ")))
            }
        };
        if !same {
            ignored(row, path.clone(), child, found);
            if let Some(value) = child.value().filter(|_| alone) {
                unfit(row, path, value, child, found);
            }
        }
    }
    walk(child, &below, path, found);
}

/// Collects unknown settings and values that do not fit, for a section that is switched off: mistakes are reported there too.
fn unknown_only(node: Node<'_>, known: &[&'static keys::Level], path: &mut String, found: &mut Found) {
    if known.iter().any(|l| l.is_section()) {
        return;
    }
    let (ignored, off) = (std::mem::take(&mut found.ignored), std::mem::replace(&mut found.off, true));
    walk(node, known, path, found);
    (found.ignored, found.off) = (ignored, off);
}

/// Collects a value that the row of a setting does not allow.
fn unfit(row: &'static Key, path: &str, value: &str, node: Node<'_>, found: &mut Found) {
    // If the row's example does not fit its kind, the kind is not all that the setting takes.
    let open = row.example.is_some_and(|e| misfit(row.kind, e).is_some());
    // The reader of a lenient row warns by itself, if its section is on.
    if row.effect != Effect::Acts || (row.lenient && !found.off) || open {
        return;
    }
    if let Some(allowed) = misfit(row.kind, value) {
        let message = format!("'{path}' cannot be '{value}': write {allowed}");
        found.unfit.push(Note { level: Level::Warning, place: node.place(), message });
    }
}

/// The values that a kind of setting takes, in words, or `None` if `value` is one of them.
fn misfit(kind: Kind, value: &str) -> Option<String> {
    let is_bool = || typed::parse_bool(value).is_ok();
    let is_one = |words: &[&str]| words.iter().any(|w| w.eq_ignore_ascii_case(value));
    let (fits, allowed) = match kind {
        Kind::Flag | Kind::FlagOr([]) => (is_bool(), "yes or no".to_owned()),
        Kind::FlagOr(more) => (is_bool() || is_one(more), format!("yes, no or {}", more.join(" or "))),
        Kind::Word(words) => (is_one(words), words.join(" or ")),
        Kind::Number { least, most, .. } => (
            typed::parse_int(value).is_ok_and(|n| (least..=most).contains(&n)),
            format!("a number from {least} to {most}"),
        ),
        Kind::Size { least, most: u64::MAX } => {
            let allowed = if least == 0 { String::new() } else { format!(", at least {least}") };
            (typed::parse_size(value).is_ok_and(|n| n >= least), format!("a number of bytes such as 64mb{allowed}"))
        }
        Kind::Size { least, most } => {
            (typed::parse_size(value).is_ok_and(|n| (least..=most).contains(&n)), format!("{least} to {most} bytes"))
        }
        Kind::Fraction => (typed::parse_float(value).is_ok(), "a number".to_owned()),
        Kind::Percent => (typed::parse_percent(value).is_ok(), "a percentage from 0 to 100".to_owned()),
        Kind::Text(_) | Kind::List(_) | Kind::Section => return None,
    };
    (!fits).then_some(allowed)
}

fn ignored(row: &'static Key, path: String, node: Node<'_>, found: &mut Found) {
    if let Effect::Ignored(why) = row.effect {
        if let Some(value) = node.value().filter(|v| !is_valid(row.kind, v)) {
            let message = format!("'{path}' has no effect here, but Suricata does not take the value '{value}'");
            found.unknown.push(Note { level: Level::Warning, place: node.place(), message });
        }
        found.ignored.push(Ignored { path, why, place: node.place() });
    }
}

/// Whether a value is one of a setting without effect. Nothing else reads it, so nothing else finds a mistake in it.
fn is_valid(kind: Kind, value: &str) -> bool {
    match kind {
        Kind::Flag => typed::parse_bool(value).is_ok(),
        Kind::Word(words) => words.contains(&value),
        Kind::Number { least, most, .. } if least < most => {
            typed::parse_int(value).is_ok_and(|n| (least..=most).contains(&n))
        }
        Kind::Size { .. } => typed::parse_size(value).is_ok(),
        _ => true,
    }
}

/// The most similar known name, if one is similar enough.
fn similar(name: &str, known: &[&'static keys::Level]) -> Option<&'static str> {
    if name.len() > 64 {
        return None;
    }
    let near = |other: &&'static str| crate::cli::distance(name, other) <= 1 + name.len().min(other.len()) / 4;
    known.iter().flat_map(|k| k.names()).filter(near).min_by_key(|other| (crate::cli::distance(name, other), *other))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        Config::from_str(&format!("%YAML 1.1\n---\n{text}"), "t.yaml").unwrap()
    }

    fn unknown(text: &str) -> Vec<String> {
        config(text).unknown_keys().iter().map(ToString::to_string).collect()
    }

    fn ignored(text: &str) -> Vec<String> {
        config(text).ignored_keys().into_iter().map(|i| i.path).collect()
    }

    #[test]
    fn misspelt_settings_are_named_with_their_place() {
        assert_eq!(
            unknown("stream:\n  memcap: 1\n  memkap: 2\nfoobar:\n  a: 1\n  b: {c: 2}\n"),
            [
                "t.yaml:5:3: nothing knows the setting 'stream.memkap'; did you mean 'memcap'?",
                "t.yaml:6:1: nothing knows the setting 'foobar'; is it misspelt?",
            ]
        );
    }

    #[test]
    fn settings_in_lists_are_checked() {
        let text = "outputs:\n  - eve-log:\n      types:\n        - ftp\n        - http:\n            extended: yes\n            extendet: yes\n";
        assert_eq!(
            unknown(text),
            [
                "t.yaml:9:13: nothing knows the setting 'outputs.0.eve-log.types.1.http.extendet'; did you mean 'extended'?"
            ]
        );
    }

    #[test]
    fn what_every_protocol_has_does_not_make_a_protocol() {
        assert_eq!(unknown("app-layer: {protocols: {htpp: {enabled: no}, sip: {enabled: no}}}\n").len(), 1);
    }

    #[test]
    fn wildcards() {
        assert!(unknown("vars: {address-groups: {WHATEVER: any}}\ndpdk: {eal-params: {a: {b: 1}}}\n").is_empty());
        assert!(unknown("host-os-policy: {windows: [0.0.0.0/0]}\nrule-files: [a, b]\n").is_empty());
    }

    #[test]
    fn the_command_line_is_checked_too() {
        let mut config = Config::new();
        config.set("stream.midstraem=true").unwrap();
        assert_eq!(
            config.unknown_keys()[0].to_string(),
            "--set: nothing knows the setting 'stream.midstraem'; did you mean 'midstream'?"
        );
    }

    #[test]
    fn values_of_settings_without_effect_are_checked() {
        let text = "spm-algo: foo\nmax-pending-packets: 70000\nflow: {managers: 0}\ndetect: {sgh-mpm-context: full}\n";
        assert_eq!(
            unknown(text),
            [
                "t.yaml:3:1: 'spm-algo' has no effect here, but Suricata does not take the value 'foo'",
                "t.yaml:4:1: 'max-pending-packets' has no effect here, but Suricata does not take the value '70000'",
                "t.yaml:5:8: 'flow.managers' has no effect here, but Suricata does not take the value '0'",
            ]
        );
    }

    #[test]
    fn values_that_their_row_does_not_allow_are_found_in_sections_that_are_off_too() {
        let text = "outputs:\n  - fast: {enabled: no, append: maybe}\n  - eve-log: {xff: {enabled: no, mode: x}}\n  \
                    - eve-log: {xff: {enabled: yes, mode: x}}\n  - pcap-log: {limit: 1xb, mode: Normal}\n\
                    nfq: {fail-open: 7, repeat-mark: -1}\npcap-file: {checksum-checks: auto}\n\
                    stream: {reassembly: {randomize-chunk-range: 101}}\naf-packet:\n  - interface: a\n    threads: 3\n";
        let found: Vec<String> = config(text).unfit_values().iter().map(ToString::to_string).collect();
        let is =
            |n: usize, begin: &str, end: &str| found.get(n).is_some_and(|f| f.starts_with(begin) && f.ends_with(end));
        assert_eq!(found.len(), 6, "{found:?}");
        assert!(is(0, "t.yaml:4:25: 'outputs.0.fast.append' cannot be 'maybe'", "write yes or no"), "{found:?}");
        assert!(is(1, "t.yaml:5:", "'x': write extra-data or overwrite"), "{found:?}");
        assert!(is(2, "t.yaml:7:", "such as 64mb"), "{found:?}");
        assert!(is(3, "t.yaml:8:", "yes or no"), "{found:?}");
        assert!(is(4, "t.yaml:8:", "a number from 0 to 4294967295"), "{found:?}");
        assert!(is(5, "t.yaml:10:", "a number from 0 to 100"), "{found:?}");
    }

    #[test]
    fn switches_without_effect_are_reported() {
        let ignored = |text: &str| config(text).ignored_keys().into_iter().map(|i| i.path).collect::<Vec<_>>();
        assert_eq!(ignored("decoder: {arp: {enabled: no}, cdp: {enabled: yes}}\n"), ["decoder.arp.enabled"]);
        assert!(
            ignored("decoder: {teredo: {enabled: no}}\noutputs:\n  - syslog: {enabled: no, format: x}\n").is_empty()
        );
        assert_eq!(ignored("outputs:\n  - syslog: {enabled: yes, format: x}\n"), ["outputs.0.syslog.format"]);
    }

    #[test]
    fn what_has_no_effect_is_told_unless_it_is_the_default() {
        let none: [&str; 0] = [];
        assert_eq!(
            ignored("stream: {prealloc-sessions: 2048}\nflow: {managers: 1}\nmax-pending-packets: 1024\n"),
            none
        );
        assert_eq!(
            ignored("stream: {prealloc-sessions: 4k, memcap: 1mb}\nflow: {managers: 2}\n"),
            ["stream.prealloc-sessions", "flow.managers"]
        );
        assert_eq!(ignored("default-packet-size: 1514\ndefrag: {prealloc: true}\n"), none);
        assert_eq!(ignored("plugins:\n  - /a.so\n"), ["plugins"]);
    }

    #[test]
    fn what_is_switched_off_is_not_told() {
        let text = |on| {
            format!(
                "outputs:\n  - alert-syslog: {{enabled: {on}, filename: a}}\nprofiling:\n  locks: {{enabled: {on}}}\n"
            )
        };
        assert_eq!(ignored(&text("no")), [""; 0]);
        assert_eq!(ignored(&text("yes")), ["outputs.0.alert-syslog", "profiling.locks"]);
        assert_eq!(unknown("outputs:\n  - fast: {enabled: no, filenam: a}\n").len(), 1);
    }

    #[test]
    fn types_of_events_that_nothing_writes_are_told() {
        let text = "outputs:\n  - eve-log:\n      enabled: yes\n      types: [alert, {ftp-data: {enabled: no}}, {sdp: {}}, {vars: {enabled: yes}}]\n";
        let paths = ignored(text);
        assert_eq!(paths.len(), 2, "{paths:?}");
        assert!(paths[0].ends_with(".sdp") && paths[1].ends_with(".vars"));
    }
}
