//! Reads the arguments of keywords on versions, states and dates.

use crate::declare::NumberCondition;

use super::buffers::ordered;

/// Names and numbers of versions.
const VERSIONS: &[(&str, u64)] = &[
    ("sslv2", 0x0200),
    ("sslv3", 0x0300),
    ("tls1.0", 0x0301),
    ("tls1.1", 0x0302),
    ("tls1.2", 0x0303),
    ("tls1.3", 0x0304),
];

/// Numbers that mean a version; for TLS 1.3 this includes its drafts.
fn numbers_of(version: u64) -> Vec<u64> {
    let drafts = (version == 0x0304).then_some(0x7f00..=0x7fff);
    std::iter::once(version).chain(drafts.into_iter().flatten()).collect()
}

/// One version as a number or as two bytes: `1.2`, `0x7f12`.
pub(super) fn version(text: &str) -> Result<NumberCondition, String> {
    let text = text.trim();
    let values = match text {
        "1.0" => numbers_of(0x0301),
        "1.1" => numbers_of(0x0302),
        "1.2" => numbers_of(0x0303),
        "1.3" => numbers_of(0x0304),
        t => match t.strip_prefix("0x").and_then(|h| u16::from_str_radix(h, 16).ok()) {
            Some(n) => vec![u64::from(n)],
            None => return Err(format!("\"{text}\" is none of 1.0, 1.1, 1.2, 1.3, or a number as 0x7f12")),
        },
    };
    Ok(NumberCondition::OneOf { values, negated: false })
}

/// Several versions by name; either all have a `!` or none.
pub(super) fn versions(text: &str) -> Result<NumberCondition, String> {
    let (mut values, mut form) = (Vec::new(), None);
    for (n, word) in text.split(',').map(str::trim).enumerate() {
        let (name, negated) = word.strip_prefix('!').map_or((word, false), |w| (w.trim_start(), true));
        let Some((_, number)) = VERSIONS.iter().find(|v| v.0.eq_ignore_ascii_case(name)) else {
            let names: Vec<_> = VERSIONS.iter().map(|v| v.0).collect();
            return Err(format!("\"{name}\" is none of {}", names.join(", ")));
        };
        // A `!` before the first of a list applies to all.
        let negated = negated || (n > 0 && form == Some(true));
        if *form.get_or_insert(negated) != negated {
            return Err("names with and without a ! do not go together".to_owned());
        }
        values.extend(numbers_of(*number));
    }
    Ok(NumberCondition::OneOf { values, negated: form == Some(true) })
}

/// States, by the last handshake message seen: the session must be in one of those listed (`client_hello|server_hello`), and
/// in none with `!`.
pub(super) fn state(text: &str) -> Result<NumberCondition, String> {
    const STATES: [&str; 5] = ["client_hello", "server_hello", "client_keyx", "server_keyx", "unknown"];
    let (mut any, mut none) = (0, 0);
    for word in text.split(['|', ',']).map(str::trim) {
        let (name, negated) = word.strip_prefix('!').map_or((word, false), |w| (w.trim_start(), true));
        let Some(at) = STATES.iter().position(|s| *s == name) else {
            return Err(format!("\"{name}\" is none of {}", STATES.join(", ")));
        };
        *(if negated { &mut none } else { &mut any }) |= 1 << at;
    }
    Ok(NumberCondition::Bits { any, none })
}

/// A date, `>` or `<` a date, or a range, all including the named date (observed).
pub(super) fn date(text: &str) -> Result<NumberCondition, String> {
    let text = text.trim();
    let moment = |t: &str| match seconds(t.trim()) {
        Some(s) => Ok(ordered(s)),
        None => Err(format!("\"{t}\" is no date: write 2015, 2015-10-22 or 2015-10-22T23:59:59")),
    };
    let range = if let Some(t) = text.strip_prefix('>') {
        (moment(t)?, u64::MAX)
    } else if let Some(t) = text.strip_prefix('<') {
        (0, moment(t)?)
    } else if let Some((a, b)) = text.split_once("<>") {
        let (a, b) = (moment(a)?, moment(b)?);
        if b <= a {
            return Err("second value in range must not be smaller than the first".to_owned());
        }
        (a, b)
    } else {
        let exact = moment(text)?;
        (exact, exact)
    };
    Ok(NumberCondition::Ranges(vec![range]))
}

/// Seconds since 1970 (UTC) of a date of any precision; a plain number of more than four digits is already seconds.
fn seconds(text: &str) -> Option<i64> {
    if text.len() > 4 && text.bytes().all(|b| b.is_ascii_digit()) {
        return text.parse().ok();
    }
    let (date, time) = text.split_once(['T', ' ']).map_or((text, ""), |(d, t)| (d, t.trim()));
    // As in Suricata, only the year needs all of its digits.
    let number = |t: &str, len: usize, low: i64, high: i64| {
        let n = t.parse().ok().filter(|n| (low..=high).contains(n));
        let digits = if len > 2 { len..=len } else { 1..=len };
        n.filter(|_| digits.contains(&t.len()) && t.bytes().all(|b| b.is_ascii_digit()))
    };
    let mut parts = date.split('-');
    let year = number(parts.next()?, 4, 0, 9999)?;
    let month = parts.next().map_or(Some(1), |m| number(m, 2, 1, 12))?;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    let day = parts.next().map_or(Some(1), |d| number(d, 2, 1, days))?;
    if parts.next().is_some() {
        return None;
    }
    let mut of_day = 0;
    if !time.is_empty() {
        let mut parts = time.split(':');
        for (most, unit) in [(23, 3600), (59, 60), (59, 1)] {
            match parts.next() {
                Some(p) => of_day += number(p, 2, 0, most)? * unit,
                None => break,
            }
        }
        if parts.next().is_some() {
            return None;
        }
    }
    // Days since 1970 in the civil calendar, with years that begin in March.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, of_era) = (y.div_euclid(400), y.rem_euclid(400));
    let of_year = (153 * m + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    Some(days * 86_400 + of_day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        for (text, want) in [
            ("1970", Some(0)),
            ("2015-02-12T18:07:27", Some(1_423_764_447)),
            ("2000-02-29", Some(951_782_400)),
            ("1969-12-31", Some(-86_400)),
            ("2015-10-22 23:59", Some(1_445_558_340)),
            ("1445471999", Some(1_445_471_999)),
            ("2015-13", None),
            ("2015-02-29", None),
            ("15", None),
            ("2015-1-5T5:6", seconds("2015-01-05T05:06")),
            ("2015-001", None),
            ("2015-1-", None),
            ("2015-01-01T24", None),
            ("", None),
        ] {
            assert_eq!(seconds(text), want, "{text}");
        }
    }

    #[test]
    fn ranges_include_their_ends() {
        let ranges = |text| date(text).map(|c| if let NumberCondition::Ranges(r) = c { r } else { Vec::new() });
        let of = ordered;
        for (text, want) in [
            (">1970", (of(0), u64::MAX)),
            ("<1970-01-01T00:00:09", (0, of(9))),
            ("1969-12-31<>1970", (of(-86_400), of(0))),
            ("1970", (of(0), of(0))),
        ] {
            assert_eq!(ranges(text), Ok(vec![want]), "{text}");
        }
        assert!(ranges("1970<>1969").is_err() && ranges("soon").is_err());
    }

    #[test]
    fn one_negation_is_for_all_versions() {
        let of = |text| versions(text).ok();
        let some = |values, negated| Some(NumberCondition::OneOf { values, negated });
        assert_eq!(of("SSLv3, tls1.0"), some(vec![0x300, 0x301], false));
        assert_eq!(of("!sslv3,tls1.0"), some(vec![0x300, 0x301], true));
        assert_eq!((of("sslv3,!tls1.0"), of("tls9")), (None, None));
    }
}
