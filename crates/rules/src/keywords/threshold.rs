//! Alert limits: `threshold` and `detection_filter`; and `tag`, which logs more packets after an alert.

use super::Keyword;
use crate::ast::{Effect, Tag, TagScope, TagUnit, Threshold, ThresholdKind, Track};
use crate::builder::{Builder, Input};
use crate::error::{Fail, fail};

pub(super) const KEYWORDS: &[Keyword] = &[
    Keyword::value(&["threshold"], threshold).about("how many alerts are written within a time"),
    Keyword::value(&["detection_filter"], detection_filter).about("match only after a number of matches within a time"),
    Keyword::value(&["tag"], tag).about("log further packets of the flow or host once the rule matched"),
];

/// The parts of a threshold, in the keyword and in `threshold.config`.
#[derive(Debug, Default)]
pub(crate) struct Fields {
    pub(crate) kind: Option<ThresholdKind>,
    pub(crate) track: Option<Track>,
    pub(crate) count: Option<u32>,
    pub(crate) seconds: Option<u32>,
    pub(crate) multiplier: Option<u32>,
}

impl Fields {
    /// Parses a `name value` part; `None` if it is unknown or repeated.
    pub(crate) fn take(&mut self, part: &str) -> Option<()> {
        let (name, value) = part.trim().split_once(|c: char| c.is_ascii_whitespace())?;
        let value = value.trim();
        fn once<T>(slot: &mut Option<T>, v: T) -> Option<()> {
            slot.replace(v).is_none().then_some(())
        }
        let number = || crate::number::decimal(value, u64::from(u32::MAX)).map(|n| n as u32);
        match name {
            "type" => once(
                &mut self.kind,
                match value {
                    "limit" => ThresholdKind::Limit,
                    "threshold" => ThresholdKind::Threshold,
                    "both" => ThresholdKind::Both,
                    "backoff" => ThresholdKind::Backoff,
                    _ => return None,
                },
            ),
            "track" => once(
                &mut self.track,
                match value {
                    "by_src" => Track::Source,
                    "by_dst" => Track::Destination,
                    "by_both" => Track::Both,
                    "by_either" => Track::Either,
                    "by_rule" => Track::Rule,
                    "by_flow" => Track::Flow,
                    _ => return None,
                },
            ),
            "count" => once(&mut self.count, number()?),
            "seconds" => once(&mut self.seconds, number()?),
            "multiplier" => once(&mut self.multiplier, number()?),
            _ => None,
        }
    }

    /// The threshold, if all parts that its kind needs are given.
    pub(crate) fn threshold(&self) -> Option<Threshold> {
        let (kind, track, count) = (self.kind?, self.track?, self.count?);
        let backoff = kind == ThresholdKind::Backoff;
        if track == Track::Either || (backoff && track != Track::Flow) {
            return None;
        }
        let (seconds, multiplier) = if backoff {
            (self.seconds.unwrap_or(0), self.multiplier.filter(|&m| m > 0)?)
        } else {
            if self.multiplier.is_some() {
                return None;
            }
            (self.seconds?, 0)
        };
        Some(Threshold { kind, track, count, seconds, multiplier })
    }
}

fn threshold(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-threshold";
    if b.seen.detection_filter {
        return fail(M, "\"detection_filter\" and \"threshold\" are not allowed in the same rule");
    }
    if b.seen.threshold {
        return fail(M, "multiple \"threshold\" options are not allowed in the same rule");
    }
    let bad = || Fail::new(M, format!("pcre_exec parse error, ret -1, string {}", i.text));
    let mut f = Fields::default();
    let text = i.text.trim();
    for part in text.strip_suffix(',').unwrap_or(text).split(',') {
        // Once it is complete, the rest is ignored: mostly an option after a missing `;`.
        let junk = match f.threshold() {
            // Only the kind `backoff` has a multiplier.
            Some(t) => {
                let multiplier = part.trim_start().starts_with("multiplier");
                (multiplier && t.kind != ThresholdKind::Backoff) || f.take(part).is_none()
            }
            None => {
                let mut words = part.split_ascii_whitespace();
                let pair = words.by_ref().take(2).collect::<Vec<_>>().join(" ");
                // As in Suricata, the digits count if letters follow the last number: `seconds 1m`.
                let digits = pair.trim_end_matches(|c: char| c.is_ascii_alphabetic());
                let cut = pair.starts_with("seconds ") && digits.len() < pair.len();
                f.take(if cut { digits } else { &pair }).ok_or_else(bad)?;
                let more = words.next().is_some() || cut;
                if more && f.threshold().is_none() {
                    return Err(bad());
                }
                more
            }
        };
        if junk {
            b.warn(M, format!("ignoring what follows the threshold in \"{text}\"; is a \";\" missing?"));
            break;
        }
    }
    let missing = f.seconds.is_none() && f.multiplier.is_some() && f.kind.is_some_and(|k| k != ThresholdKind::Backoff);
    if missing {
        return fail(M, format!("multiplier is for \"type backoff\" alone, other types need seconds: \"{text}\""));
    }
    let t = f.threshold().ok_or_else(bad)?;
    b.seen.threshold = true;
    b.rule.thresholds.push(t);
    Ok(())
}

fn detection_filter(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-detection-filter";
    if b.seen.threshold {
        return fail(M, "\"detection_filter\" and \"threshold\" are not allowed in the same rule");
    }
    if b.seen.detection_filter {
        return fail(M, "At most one \"detection_filter\" is allowed per rule");
    }
    let bad = || Fail::new(M, format!("pcre_exec parse error, ret -1, string {}", i.text));
    let mut f = Fields::default();
    for part in i.text.split(',') {
        f.take(part).ok_or_else(bad)?;
    }
    let (Some(track), Some(count), Some(seconds), None, None) = (f.track, f.count, f.seconds, f.kind, f.multiplier)
    else {
        return Err(bad());
    };
    // The manual also lists `by_both` and `by_rule`; Suricata 8.0.6 rejects them.
    if !matches!(track, Track::Source | Track::Destination | Track::Flow) {
        return Err(bad());
    }
    if count == 0 || seconds == 0 {
        return fail(M, "found an invalid value");
    }
    b.seen.detection_filter = true;
    b.rule.thresholds.push(Threshold { kind: ThresholdKind::DetectionFilter, track, count, seconds, multiplier: 0 });
    Ok(())
}

/// Packets of a tag without a count.
const TAG_DEFAULT: &str = "256";

fn tag(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-tag";
    let bad = || Fail::new(M, format!("parse error, ret -1, string {}", i.text));
    let words: Vec<&str> = i.text.split(',').map(str::trim).collect();
    let (scope, count, unit, side) = match *words.as_slice() {
        [s] => (s, TAG_DEFAULT, "packets", None),
        [s, n, u] => (s, n, u, None),
        [s, n, u, d] => (s, n, u, Some(d)),
        _ => return Err(bad()),
    };
    let count = crate::number::decimal(count, u64::from(u32::MAX)).ok_or_else(bad)? as u32;
    let unit = match unit {
        "packets" => TagUnit::Packets,
        "seconds" => TagUnit::Seconds,
        "bytes" => TagUnit::Bytes,
        _ => return Err(bad()),
    };
    let scope = match (scope, side) {
        ("session", None) => TagScope::Session,
        ("session", Some("src" | "dst")) => {
            b.warn(M, format!("Argument direction doesn't make sense for type \"session\" ({} [0])", i.text));
            TagScope::Session
        }
        ("host", Some("src")) => TagScope::HostSource,
        ("host", None | Some("dst")) => TagScope::HostDestination,
        _ => return Err(bad()),
    };
    // No packets or bytes: as in Suricata, nothing is tagged. Seconds count as whole ones, so 0 is up to one.
    if count != 0 || unit == TagUnit::Seconds {
        b.rule.effects.push(Effect::Tag(Tag { scope, count, unit }));
    }
    Ok(())
}
