//! Keywords about the rule itself: `sid`, `msg`, `classtype`, `reference`, `metadata`, `requires` …

use super::{Keyword, is_known};
use crate::ast::{ConfigKind, ConfigScope, ConfigWhat, Effect, Target};
use crate::builder::{Builder, Input};
use crate::context::{Context, Version};
use crate::error::{Fail, fail};

pub(super) const KEYWORDS: &[Keyword] = &[
    Keyword::value(&["sid"], sid).about("the number of the signature"),
    Keyword::value(&["gid"], gid).about("the group that the signature's number belongs to"),
    Keyword::value(&["rev"], rev).about("the revision of the rule"),
    Keyword::quoted(&["msg"], msg).about("what alerts say"),
    Keyword::value(&["priority"], priority).about("the priority, in place of that of the class"),
    Keyword::value(&["classtype"], classtype).about("the class of the rule, which gives its priority"),
    Keyword::value(&["reference"], reference).about("where more is to be read about what the rule finds"),
    Keyword::value(&["metadata"], metadata).about("keys and values that alerts show"),
    Keyword::value(&["target"], target).about("which end is the target of the attack"),
    Keyword::bare(&["noalert"], noalert).about("match and act, but write no alert"),
    Keyword::bare(&["alert"], alert).about("write an alert, also where the action writes none"),
    Keyword::value(&["requires"], requires).about("load the rule only in this version or with this feature"),
    Keyword::bare(&["bypass"], bypass).about("let the rest of the flow bypass inspection once the rule matched"),
    Keyword::value(&["config"], config).about("turn off logging or tracking of the transaction or flow"),
    Keyword::value(&["nfq_set_mark"], nfq_set_mark).needs("nfq").about("mark the packet in its netfilter queue"),
];

/// Limit of the metadata entries of one rule, and of its references.
const LIST_MAX: usize = 1024;

fn number(i: &Input<'_>, module: &'static str, sign: &str) -> Result<u32, Fail> {
    let t = i.text.trim();
    let body = t.strip_prefix('-').unwrap_or(t);
    if body.is_empty() || !body.bytes().all(|b| b.is_ascii_digit()) {
        return fail(module, format!("invalid character as arg to {} keyword", i.name));
    }
    match t.parse::<u32>() {
        Ok(n) => Ok(n),
        Err(_) => fail(module, format!("{} value {sign} high, max 4294967295", i.name)),
    }
}

fn sid(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-sid";
    let n = number(i, M, "too")?;
    if n == 0 {
        return fail(M, "sid value 0 is invalid");
    }
    if b.seen.sid {
        return fail(M, "duplicated 'sid' keyword detected");
    }
    b.seen.sid = true;
    b.rule.sid = n;
    Ok(())
}

fn gid(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    let n = number(i, "detect-gid", "too")?;
    // As in Suricata, the last one counts.
    b.rule.gid = n;
    Ok(())
}

fn rev(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-rev";
    let n = number(i, M, "to")?;
    if n == 0 {
        return fail(M, "rev value 0 is invalid");
    }
    if b.seen.rev {
        return fail(M, "duplicated 'rev' keyword detected");
    }
    b.seen.rev = true;
    b.rule.rev = n;
    Ok(())
}

fn msg(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    if b.seen.msg {
        return fail("detect-msg", "duplicated 'msg' keyword detected");
    }
    b.seen.msg = true;
    let mut out = String::with_capacity(i.text.len());
    let mut chars = i.text.chars();
    while let Some(c) = chars.next() {
        match c {
            // A backslash escapes any character, as in Suricata.
            '\\' => out.extend(chars.next()),
            c => out.push(c),
        }
    }
    b.rule.msg = out;
    Ok(())
}

fn priority(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-priority";
    let t = i.text.trim();
    let Some(n) = crate::number::decimal(t, u64::from(u32::MAX)) else {
        return fail(M, format!("Invalid Priority in Signature - {t}"));
    };
    let n = n as u32;
    if b.seen.priority {
        b.warn(M, "duplicate priority keyword. Using highest priority in the rule");
        b.rule.priority = b.rule.priority.min(n);
    } else {
        b.rule.priority = n;
    }
    b.seen.priority = true;
    Ok(())
}

fn classtype(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-classtype";
    let name = i.text.trim();
    let first = name.bytes().next().is_some_and(|c| c.is_ascii_alphanumeric());
    if !first || !name.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_')) {
        return fail(
            M,
            format!("invalid value \"{name}\" for classtype: letters, digits, \"-\" and \"_\" are allowed"),
        );
    }
    let key = name.to_ascii_lowercase();
    let Some(class) = b.ctx.classes.get(&key) else {
        if b.ctx.strict.has("classtype") {
            return fail(M, format!("unknown classtype: \"{name}\""));
        }
        b.warn(
            M,
            format!(
                "signature sid:{} uses unknown classtype: \"{name}\", using default priority 3. This message won't \
                     be shown again for this classtype",
                b.rule.sid
            ),
        );
        return Ok(());
    };
    let class = class.clone();
    if b.seen.class {
        b.warn(M, "duplicated 'classtype' keyword detected. Using instance with highest priority");
        if b.rule.class.as_ref().is_some_and(|c| c.priority <= class.priority) {
            return Ok(());
        }
    }
    b.seen.class = true;
    b.rule.class = Some(class);
    Ok(())
}

fn reference(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-reference";
    let bad = || {
        Fail::new(M, format!("Unable to parse \"reference\" keyword argument - \"{}\".   Invalid argument.", i.text))
    };
    let (system, text) = i.text.split_once(',').ok_or_else(bad)?;
    let (system, text) = (system.trim(), text.trim());
    let named =
        !system.is_empty() && system.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.'));
    if !named || text.is_empty() {
        return Err(bad());
    }
    let key = system.to_ascii_lowercase();
    if !b.ctx.references.contains_key(&key) {
        if b.ctx.strict.has("reference") {
            return fail(M, format!("unknown reference key \"{system}\""));
        }
        b.warn(M, format!("unknown reference key \"{system}\""));
        return Ok(());
    }
    Ok(())
}

/// Metadata does not affect matching. [`metadata_of`] reads it from the rule's text.
fn metadata(_: &mut Builder<'_>, _: &Input<'_>) -> Result<(), Fail> {
    Ok(())
}

/// All values of the keyword `name` in the text of a rule.
fn values<'t>(text: &'t str, name: &str) -> Vec<&'t str> {
    let Ok(parts) = crate::lexer::split(text.as_bytes()) else { return Vec::new() };
    let of = |o: &crate::lexer::RawOption<'t>| o.name.eq_ignore_ascii_case(name.as_bytes()).then_some(o.value)?;
    let plain = |v: &'t [u8]| {
        let v = std::str::from_utf8(v).unwrap_or_default();
        v.strip_prefix('"').and_then(|v| v.strip_suffix('"')).unwrap_or(v)
    };
    parts.options.iter().filter_map(of).map(plain).collect()
}

/// The references in the text of a loaded rule, as system in lower case and text: `url`, `example.com/x`. Includes
/// references with an unknown system.
pub fn references(text: &str) -> Vec<(String, String)> {
    let pair = |v: &str| v.split_once(',').map(|(s, t)| (s.trim().to_ascii_lowercase(), t.trim().to_owned()));
    values(text, "reference").into_iter().filter_map(pair).take(LIST_MAX).collect()
}

/// The `metadata` in the text of a loaded rule, as key and value, in order. A key without a value is skipped, as in
/// Suricata.
pub fn metadata_of(text: &str) -> Vec<(String, String)> {
    let pair = |p: &str| {
        let (k, v) = p.trim().split_once(|c: char| c.is_ascii_whitespace())?;
        Some((k.to_owned(), v.trim_start().to_owned()))
    };
    values(text, "metadata").into_iter().flat_map(|v| v.split(',')).filter_map(pair).take(LIST_MAX).collect()
}

fn target(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-target";
    let t = match i.text.trim() {
        "src_ip" => Target::Source,
        "dest_ip" => Target::Destination,
        t => return fail(M, format!("pcre_exec parse error, ret -1, string {t}")),
    };
    if b.rule.target.is_some_and(|old| old != t) {
        return fail(M, "Conflicting values of target keyword");
    }
    b.rule.target = Some(t);
    Ok(())
}

fn noalert(b: &mut Builder<'_>, _: &Input<'_>) -> Result<(), Fail> {
    b.rule.noalert = true;
    b.rule.force_alert = false;
    Ok(())
}

fn alert(b: &mut Builder<'_>, _: &Input<'_>) -> Result<(), Fail> {
    b.rule.force_alert = true;
    b.rule.noalert = false;
    Ok(())
}

fn bypass(b: &mut Builder<'_>, _: &Input<'_>) -> Result<(), Fail> {
    b.rule.effects.push(Effect::Bypass);
    Ok(())
}

fn config(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-config";
    let (mut what, mut kind, mut scope) = (None, None, None);
    for part in i.text.split(',') {
        let mut words = part.split_ascii_whitespace();
        let (k, v) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if words.next().is_some() {
            return fail(M, format!("unexpected words in \"{}\"", part.trim()));
        }
        match k {
            "logging" | "tracking" => {
                if v != "disable" {
                    return fail(M, "only 'disable' supported at this time");
                }
                what = Some(if k == "logging" { ConfigWhat::Logging } else { ConfigWhat::Tracking });
            }
            "type" => {
                kind = Some(match v {
                    "tx" => ConfigKind::Transaction,
                    "flow" => ConfigKind::Flow,
                    _ => return fail(M, "only 'tx' and 'flow' supported at this time"),
                });
            }
            "scope" => {
                scope = Some(match v {
                    "tx" => ConfigScope::Transaction,
                    "flow" => ConfigScope::Flow,
                    "packet" => ConfigScope::Packet,
                    _ => return fail(M, "only 'tx', 'flow' and 'packet' supported at this time"),
                });
            }
            _ => return fail(M, "only 'logging' supported at this time"),
        }
    }
    let (Some(what), Some(kind), Some(scope)) = (what, kind, scope) else {
        return fail(M, format!("config needs a subsystem, a type and a scope: \"{}\"", i.text));
    };
    // Logging always applies to transactions, whatever the type says. Tracking applies to flows, and only with packet
    // scope.
    match (what, kind, scope) {
        (ConfigWhat::Logging, _, ConfigScope::Packet) => {
            return fail(M, "logging can be disabled for scope tx and flow, not for packet");
        }
        (ConfigWhat::Tracking, ConfigKind::Flow, ConfigScope::Packet) | (ConfigWhat::Logging, ..) => {}
        (ConfigWhat::Tracking, ..) => {
            return fail(M, "tracking can be disabled with type flow, scope packet alone");
        }
    }
    if kind == ConfigKind::Transaction && !b.ctx.available.contains("app-layer") {
        b.missing("config");
    }
    b.rule.effects.push(Effect::Config { what, kind, scope });
    Ok(())
}

fn nfq_set_mark(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    let number = |s: &str| crate::size::unsigned(s).and_then(|n| u32::try_from(n).ok());
    let t = i.text.trim();
    let parsed = match t.split_once('/') {
        Some((m, k)) => number(m).zip(number(k)),
        None => number(t).map(|m| (m, u32::MAX)),
    };
    let Some((mark, mask)) = parsed else {
        return fail("detect-mark", format!("pcre_exec parse error, ret -1, string {t}"));
    };
    b.rule.effects.push(Effect::NfqMark { mark, mask });
    Ok(())
}

/// Checked already, before the rest of the rule was parsed.
#[allow(clippy::unnecessary_wraps)]
fn requires(_: &mut Builder<'_>, _: &Input<'_>) -> Result<(), Fail> {
    Ok(())
}

fn version(s: &str) -> Option<Version> {
    let mut parts = s.trim().split('.');
    let mut n = [0u16; 3];
    for (k, slot) in n.iter_mut().enumerate() {
        match parts.next() {
            Some(p) => *slot = p.split('-').next()?.parse().ok()?,
            None if k > 0 => break,
            None => return None,
        }
    }
    parts.next().is_none().then_some(Version(n[0], n[1], n[2]))
}

/// Whether `running` satisfies `>= 7.0.3 < 8 | >= 9`; `Err` gives the reason if not, `None` means a syntax error.
fn version_holds(text: &str, running: Version) -> Option<Result<(), String>> {
    let mut reason = None;
    let mut any = false;
    for alternative in text.split('|') {
        let mut rest = alternative.trim();
        let mut holds = true;
        if rest.is_empty() {
            return None;
        }
        while !rest.is_empty() {
            let op = [">=", "<=", ">", "<"].into_iter().find(|op| rest.starts_with(op))?;
            rest = rest.get(op.len()..)?.trim_start();
            let end = rest.find(|c: char| c.is_ascii_whitespace() || matches!(c, '<' | '>')).unwrap_or(rest.len());
            let (v, r) = rest.split_at_checked(end)?;
            let v = version(v)?;
            rest = r.trim_start();
            let (ok, why) = match op {
                ">=" => (running >= v, "less than"),
                "<=" => (running <= v, "greater than"),
                ">" => (running > v, "less than or equal to"),
                _ => (running < v, "greater than or equal to"),
            };
            if !ok && holds {
                holds = false;
                reason.get_or_insert_with(|| format!("the running Suricata version {running} is {why} {v}"));
            }
        }
        any |= holds;
    }
    Some(if any { Ok(()) } else { Err(reason.unwrap_or_default()) })
}

/// The unmet part of a `requires` argument; `Ok(None)` if all is met.
pub(crate) fn requires_unmet(text: &str, ctx: &Context) -> Result<Option<String>, Fail> {
    let bad = || Fail::new("detect-requires", format!("Failed to parse requires expression: {text}"));
    let mut seen_version = false;
    let mut unmet = None;
    for part in text.split(',') {
        let part = part.trim();
        if part.is_empty() {
            return Err(bad());
        }
        let (what, value) =
            part.split_at(part.find(|c: char| c.is_ascii_whitespace() || matches!(c, '<' | '>')).unwrap_or(part.len()));
        let value = value.trim();
        let problem = match what {
            "version" => {
                if std::mem::replace(&mut seen_version, true) {
                    return Err(bad());
                }
                version_holds(value, ctx.version).ok_or_else(bad)?.err()
            }
            "feature" => (!ctx.features.contains(value))
                .then(|| format!("the running Suricata version does not have feature: [{value}]")),
            "keyword" => (!is_known(value))
                .then(|| format!("the running Suricata version does not support the rule keyword: [{value}]")),
            other => Some(format!("unknown requirement: [{other}]")),
        };
        unmet = unmet.or(problem);
    }
    Ok(unmet)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_text_says() {
        let text = r#"alert tcp any any -> any any (msg:"metadata:no \; reference:url,no"; metadata: a b, key  two words ,alone;
            content:"reference|3a|x"; Reference:URL, example.com/x?a=b,c ; metadata:"q r"; reference:cve,2020-1; sid:1;)"#;
        let pairs = |list: &[(&str, &str)]| -> Vec<(String, String)> {
            list.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
        };
        assert_eq!(metadata_of(text), pairs(&[("a", "b"), ("key", "two words"), ("q", "r")]));
        assert_eq!(references(text), pairs(&[("url", "example.com/x?a=b,c"), ("cve", "2020-1")]));
        for nothing in
            ["", "no rule", "alert tcp any any -> any any (sid:1;)", "alert tcp any any -> any any (metadata;sid:1;)"]
        {
            assert!(metadata_of(nothing).is_empty() && references(nothing).is_empty(), "{nothing}");
        }
        let many = format!("alert tcp any any -> any any ({} sid:1;)", "metadata:a b,c d;".repeat(2000));
        assert_eq!(metadata_of(&many).len(), LIST_MAX);
    }

    #[test]
    fn a_backslash_escapes_any_character() {
        let text = r#"alert tcp any any -> any any (msg:"(c \windows) a\\b AutoDL\/1.0 \;\"\:"; sid:1;)"#;
        let rule = crate::load_str(text, "t", &Context::default()).rules.pop().expect("a rule");
        assert_eq!(rule.msg, r#"(c windows) a\b AutoDL/1.0 ;":"#);
    }

    #[test]
    fn the_last_generator_counts() {
        let text = "alert tcp any any -> any any (gid:2; sid:1; gid:3;)";
        let rule = crate::load_str(text, "t", &Context::default()).rules.pop().expect("a rule");
        assert_eq!(rule.gid, 3);
    }

    #[test]
    fn requirements() {
        let ctx = Context::default();
        let met = |t| requires_unmet(t, &ctx).unwrap().is_none();
        assert!(met("version >= 8"));
        assert!(met("version>=8"));
        assert!(met("version>= 7<9"));
        assert!(!met("version<8"));
        assert!(met("version >= 7.0.3 < 9"));
        assert!(met("version >= 8.0.0, keyword sid"));
        assert!(met("version >= 10 | >= 8"));
        assert!(!met("version >= 7.0.3 < 8 | >= 9.0.99"));
        assert!(!met("version >= 8, keyword foobar"));
        assert!(!met("feature foo"));
        assert!(!met("foo bar"));
        assert!(!met("foo"));
        assert!(requires_unmet("", &ctx).is_err());
        assert!(requires_unmet("version >= x", &ctx).is_err());
        assert!(requires_unmet("version", &ctx).is_err());
        assert!(requires_unmet("version >= 7, version >= 8", &ctx).is_err());
    }

    #[test]
    fn several_requires_must_all_be_met() {
        for (options, loads) in [
            ("requires:version >= 7; requires:keyword sid;", true),
            ("requires:feature foo; requires:version >= 7;", false),
            ("requires:version >= 7; requires:feature foo;", false),
        ] {
            let text = format!("alert tcp any any -> any any ({options} sid:1;)");
            let l = crate::load_str(&text, "t", &Context::default());
            assert_eq!((l.rules.len(), l.errors.len()), (usize::from(loads), 0), "{options}");
        }
    }
}
