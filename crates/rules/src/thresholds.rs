//! `threshold.config`: thresholds, rate filters and suppressions by generator and signature id.

use std::collections::HashMap;
use std::sync::Arc;

use crate::address::Addresses;
use crate::ast::{GlobalThreshold, GlobalThresholdKind, NewAction, Place, Track};
use crate::error::{ConfigProblem, Severity};
use crate::keywords::Fields;
use crate::loader::problem;

/// Limit of the entries.
const ENTRIES_MAX: usize = 1 << 20;
/// Longest entry in bytes, with continuation lines joined.
const ENTRY_BYTES_MAX: usize = 1 << 20;

/// Parses `threshold.config` with the address variables. Invalid entries are errors; the others still count.
pub fn parse_thresholds(
    text: &str,
    name: &str,
    variables: &HashMap<String, String>,
) -> (Vec<GlobalThreshold>, Vec<ConfigProblem>) {
    let file: Arc<str> = Arc::from(name);
    let (mut out, mut problems) = (Vec::new(), Vec::new());
    let mut addresses = Addresses::default();
    let mut joined = String::new();
    let mut start = 0;
    let mut take = |entry: &str, line: u32| {
        let entry = entry.trim();
        if entry.is_empty() || entry.starts_with('#') {
            return;
        }
        let parsed = if entry.len() > ENTRY_BYTES_MAX || out.len() >= ENTRIES_MAX {
            Err(format!("more than {ENTRIES_MAX} entries, or one longer than {ENTRY_BYTES_MAX} bytes"))
        } else {
            parse(entry, variables, &mut addresses)
        };
        match parsed {
            Ok((gid, sid, kind)) => {
                let place = Place { file: file.clone(), line, column: 1 };
                out.push(GlobalThreshold { gid, sid, kind, place });
            }
            Err(why) => problems.push(problem(&file, line, Severity::Error, "threshold-config", why)),
        }
    };
    for (n, line) in text.lines().enumerate() {
        let number = u32::try_from(n + 1).unwrap_or(u32::MAX);
        if joined.is_empty() {
            start = number;
        }
        match line.trim_end().strip_suffix('\\') {
            Some(head) if !line.trim_start().starts_with('#') || !joined.is_empty() => {
                if joined.len() <= ENTRY_BYTES_MAX {
                    joined.push_str(head);
                    joined.push(' ');
                }
            }
            _ if joined.is_empty() => take(line, number),
            _ => {
                if joined.len() <= ENTRY_BYTES_MAX {
                    joined.push_str(line);
                }
                take(&std::mem::take(&mut joined), start);
            }
        }
    }
    if !joined.is_empty() {
        take(&joined, start);
    }
    (out, problems)
}

type Entry = (u32, u32, GlobalThresholdKind);

/// The error for an entry that has not the form of one.
fn malformed(entry: &str) -> String {
    format!("pcre2_match parse error, ret -1, string {entry}")
}

fn rate_filter(
    fields: &Fields,
    action: Option<NewAction>,
    timeout: Option<u32>,
    entry: &str,
) -> Result<GlobalThresholdKind, String> {
    let (Some(track), Some(count), Some(seconds), None, Some(new_action), Some(timeout)) =
        (fields.track, fields.count, fields.seconds, fields.kind, action, timeout)
    else {
        return Err(malformed(entry));
    };
    if count == 0 {
        return Err(format!("rate_filter count must be above 0: {entry}"));
    }
    if track == Track::Either {
        return Err(malformed(entry));
    }
    Ok(GlobalThresholdKind::RateFilter { track, count, seconds, new_action, timeout })
}

fn suppress(
    fields: &Fields,
    ip: Option<&str>,
    variables: &HashMap<String, String>,
    addresses: &mut Addresses,
    entry: &str,
) -> Result<GlobalThresholdKind, String> {
    if fields.kind.is_some() || fields.count.is_some() || fields.seconds.is_some() {
        return Err(malformed(entry));
    }
    match (fields.track, ip) {
        (None, None) => Ok(GlobalThresholdKind::Suppress { track: None, addresses: crate::address::any() }),
        (Some(track @ (Track::Source | Track::Destination | Track::Either)), Some(ip)) => {
            let set = addresses.parse(ip, variables).map_err(|f| {
                let why = f.messages.first().map_or("", |m| &m.text);
                format!("failed to parse {ip}: {why}")
            })?;
            Ok(GlobalThresholdKind::Suppress { track: Some(track), addresses: set })
        }
        _ => Err(malformed(entry)),
    }
}

fn parse(entry: &str, variables: &HashMap<String, String>, addresses: &mut Addresses) -> Result<Entry, String> {
    let bad = || malformed(entry);
    let (command, rest) = entry.split_once(|c: char| c.is_ascii_whitespace()).ok_or_else(bad)?;
    let (mut gid, mut sid) = (None, None);
    let mut fields = Fields::default();
    let (mut action, mut timeout, mut ip) = (None, None, None);
    // The address list comes last and may contain commas.
    let rest = match rest.find(" ip ").or_else(|| rest.find(",ip ")) {
        Some(i) if command == "suppress" => {
            let (head, tail) = rest.split_at_checked(i + 1).ok_or_else(bad)?;
            ip = Some(tail.strip_prefix("ip").ok_or_else(bad)?.trim());
            head.trim().strip_suffix(',').unwrap_or(head.trim())
        }
        _ => rest,
    };
    let number = |v: &str| crate::number::decimal(v, u64::from(u32::MAX)).map(|n| n as u32).ok_or_else(bad);
    for part in rest.split(',').map(str::trim) {
        let (name, value) = part.split_once(|c: char| c.is_ascii_whitespace()).ok_or_else(bad)?;
        let value = value.trim();
        match name {
            "gen_id" | "gid" if gid.is_none() => gid = Some(number(value)?),
            "sig_id" | "sid" if sid.is_none() => sid = Some(number(value)?),
            "timeout" if timeout.is_none() => timeout = Some(number(value)?),
            "new_action" if action.is_none() => {
                action = Some(match value {
                    "alert" => NewAction::Alert,
                    "drop" => NewAction::Drop,
                    "pass" => NewAction::Pass,
                    "reject" => NewAction::Reject,
                    "log" | "sdrop" => return Err(format!("new_action \"{value}\" is not supported: {entry}")),
                    _ => return Err(bad()),
                });
            }
            _ => fields.take(part).ok_or_else(bad)?,
        }
    }
    let (gid, sid) = (gid.ok_or_else(bad)?, sid.ok_or_else(bad)?);
    if gid == 0 && sid != 0 {
        return Err(format!("gen_id 0 means every signature, but sig_id is {sid}: use gen_id 1 or sig_id 0: {entry}"));
    }
    let kind = match command {
        "threshold" | "event_filter" => {
            if fields.count == Some(0) {
                return Err(format!("threshold count should be > 0: {entry}"));
            }
            let t = fields.threshold().filter(|_| action.is_none() && timeout.is_none()).ok_or_else(bad)?;
            GlobalThresholdKind::Limit(t)
        }
        "rate_filter" => rate_filter(&fields, action, timeout, entry)?,
        "suppress" if action.is_none() && timeout.is_none() => suppress(&fields, ip, variables, addresses, entry)?,
        _ => return Err(bad()),
    };
    Ok((gid, sid, kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ast::{Threshold, ThresholdKind};

    fn one(s: &str) -> Result<GlobalThresholdKind, String> {
        let vars = [("HOME".to_owned(), "10.0.0.0/8".to_owned())].into();
        let (mut t, p) = parse_thresholds(s, "x", &vars);
        match p.first() {
            Some(p) => Err(p.message.text.clone()),
            None => Ok(t.remove(0).kind),
        }
    }

    #[test]
    fn entries() {
        assert_eq!(
            one("threshold gen_id 1, sig_id 5, type limit, \\\n  track by_src, count 1, seconds 60").unwrap(),
            GlobalThresholdKind::Limit(Threshold {
                kind: ThresholdKind::Limit,
                track: Track::Source,
                count: 1,
                seconds: 60,
                multiplier: 0
            })
        );
        assert!(matches!(
            one("rate_filter gen_id 1, sig_id 2, track by_rule, count 3, seconds 4, new_action drop, timeout 5")
                .unwrap(),
            GlobalThresholdKind::RateFilter { new_action: NewAction::Drop, timeout: 5, .. }
        ));
        assert!(matches!(
            one("rate_filter gen_id 1, sig_id 2, track by_flow, count 3, seconds 4, new_action pass, timeout 5")
                .unwrap(),
            GlobalThresholdKind::RateFilter { track: Track::Flow, new_action: NewAction::Pass, .. }
        ));
        // With a timeout of 0 the action holds for the match that exceeds the rate.
        assert!(matches!(
            one("rate_filter gen_id 1, sig_id 2, track by_rule, count 3, seconds 4, new_action drop, timeout 0")
                .unwrap(),
            GlobalThresholdKind::RateFilter { timeout: 0, .. }
        ));
        assert!(matches!(
            one("suppress gen_id 1, sig_id 2").unwrap(),
            GlobalThresholdKind::Suppress { track: None, .. }
        ));
        for ip in ["1.2.3.4", "[1.2.3.0/24, !1.2.3.4]", "$HOME", "!$HOME"] {
            let k = one(&format!("suppress gen_id 1, sig_id 2, track by_either, ip {ip}")).unwrap();
            assert!(matches!(k, GlobalThresholdKind::Suppress { track: Some(Track::Either), .. }), "{ip}");
        }
    }

    #[test]
    fn refused() {
        for bad in [
            "this is not correct",
            "junk",
            "suppress gen_id 1",
            "suppress gen_id 0, sig_id 2",
            "suppress gen_id 1, sig_id 2, track by_src, ip 1.2.3",
            "suppress gen_id 1, sig_id 2, track by_src",
            "threshold gen_id 1, sig_id 1, type foo, track by_src, count 1, seconds 1",
            "threshold gen_id 1, sig_id 1, type limit, track by_src, count 1",
            "rate_filter gen_id 1, sig_id 2, track by_src, count 0, seconds 3, new_action drop, timeout 5",
            "rate_filter gen_id 1, sig_id 2, track by_src, count 1, seconds 3, new_action foo, timeout 5",
        ] {
            assert!(one(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_thresholds("# x \\\n\n", "x", &HashMap::new()), (vec![], vec![]));
    }
}
