//! Numbers and comparisons in rule syntax.

use crate::ast::{Compare, FloatCompare};
use crate::size::unsigned;

/// A comparison in the syntax that integer keywords share; `max` is the largest possible value. Also rejects comparisons
/// that no value satisfies, and `>=` or `<=` that every value satisfies.
pub(crate) fn compare(s: &str, max: u64) -> Option<Compare> {
    let s = s.trim();
    let value = |t: &str| unsigned(t).filter(|&v| v <= max);
    let c = if let Some(r) = s.strip_prefix("!=") {
        Compare::NotEqual(value(r)?)
    } else if let Some(r) = s.strip_prefix('!') {
        let r = r.trim_start();
        if let Some((a, b)) = pair(r) {
            let (a, b) = (value(a)?, value(b)?);
            if a >= b {
                return None;
            }
            Compare::NotBetween(a, b)
        } else if let Some(r) = r.strip_prefix('&') {
            match mask(r, max)? {
                Mask::Plain(m) => Compare::BitsClear(m),
                Mask::Equal(m, v) => Compare::BitsNotEqual(m, v),
                Mask::NotEqual(m, v) => Compare::BitsEqual(m, v),
            }
        } else {
            Compare::NotEqual(value(r)?)
        }
    } else if let Some(r) = s.strip_prefix(">=") {
        Compare::GreaterEqual(value(r).filter(|&v| v > 0)?)
    } else if let Some(r) = s.strip_prefix('>') {
        Compare::Greater(value(r).filter(|&v| v < max)?)
    } else if let Some(r) = s.strip_prefix("<=") {
        Compare::LessEqual(value(r).filter(|&v| v < max)?)
    } else if let Some(r) = s.strip_prefix('<') {
        Compare::Less(value(r).filter(|&v| v > 0)?)
    } else if let Some(r) = s.strip_prefix('&') {
        match mask(r, max)? {
            Mask::Plain(m) => Compare::BitsSet(m),
            Mask::Equal(m, v) => Compare::BitsEqual(m, v),
            Mask::NotEqual(m, v) => Compare::BitsNotEqual(m, v),
        }
    } else if let Some((a, b)) = pair(s) {
        let negated = a.trim_end().strip_suffix('!');
        let (a, b) = (value(negated.unwrap_or(a))?, value(b)?);
        if negated.is_some() {
            if a >= b {
                return None;
            }
            Compare::NotBetween(a, b)
        } else {
            // Strictly between: at least one value must fit.
            if b.checked_sub(a)? < 2 {
                return None;
            }
            Compare::Between(a, b)
        }
    } else {
        Compare::Equal(value(s.strip_prefix('=').unwrap_or(s))?)
    };
    Some(c)
}

enum Mask {
    Plain(u64),
    Equal(u64, u64),
    NotEqual(u64, u64),
}

/// A mask with the value of its bits. A value with bits outside of the mask is an error: the comparison would have the same
/// outcome for every number.
fn mask(s: &str, max: u64) -> Option<Mask> {
    let value = |t: &str| unsigned(t).filter(|&v| v <= max);
    let Some((m, v)) = s.split_once('=') else {
        return value(s).map(Mask::Plain);
    };
    let (m, equal) = m.trim_end().strip_suffix('!').map_or((m, true), |m| (m, false));
    let (m, v) = (value(m)?, value(v)?);
    if v & !m != 0 {
        return None;
    }
    Some(if equal { Mask::Equal(m, v) } else { Mask::NotEqual(m, v) })
}

/// The two sides of `a-b` or `a<>b`.
pub(crate) fn pair(s: &str) -> Option<(&str, &str)> {
    s.split_once("<>").or_else(|| s.split_once('-'))
}

/// A comparison of a real number.
pub(crate) fn compare_float(s: &str) -> Option<FloatCompare> {
    let s = s.trim();
    let value = |t: &str| {
        let t = t.trim();
        // Only digits and a decimal point: no infinities, no exponents.
        if t.is_empty() || !t.bytes().all(|b| b.is_ascii_digit() || b == b'.') { None } else { t.parse::<f64>().ok() }
    };
    let range = |t: &str| {
        let (a, b) = pair(t)?;
        let (a, b) = (value(a)?, value(b)?);
        (a < b).then_some((a, b))
    };
    Some(if let Some(r) = s.strip_prefix("!=") {
        FloatCompare::NotEqual(value(r)?)
    } else if let Some(r) = s.strip_prefix('!') {
        match range(r) {
            Some((a, b)) => FloatCompare::NotBetween(a, b),
            None => FloatCompare::NotEqual(value(r)?),
        }
    } else if let Some(r) = s.strip_prefix(">=") {
        FloatCompare::GreaterEqual(value(r)?)
    } else if let Some(r) = s.strip_prefix('>') {
        FloatCompare::Greater(value(r)?)
    } else if let Some(r) = s.strip_prefix("<=") {
        FloatCompare::LessEqual(value(r)?)
    } else if let Some(r) = s.strip_prefix('<') {
        FloatCompare::Less(value(r)?)
    } else if let Some((a, b)) = range(s) {
        FloatCompare::Between(a, b)
    } else {
        FloatCompare::Equal(value(s.strip_prefix('=').unwrap_or(s))?)
    })
}

/// A decimal number with an optional sign, within `low..=high`.
pub(crate) fn signed(s: &str, low: i64, high: i64) -> Option<i64> {
    s.trim().parse::<i64>().ok().filter(|v| (low..=high).contains(v))
}

/// A plain decimal number up to `max`.
pub(crate) fn decimal(s: &str, max: u64) -> Option<u64> {
    if s.is_empty() || !s.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    s.parse().ok().filter(|&v| v <= max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons() {
        let c = |s| compare(s, 255);
        assert_eq!(c("5"), Some(Compare::Equal(5)));
        assert_eq!(c("=0x1f"), Some(Compare::Equal(31)));
        assert_eq!(c(" != 0"), Some(Compare::NotEqual(0)));
        assert_eq!(c("<= 8"), Some(Compare::LessEqual(8)));
        assert_eq!(c("1-5"), Some(Compare::Between(1, 5)));
        assert_eq!(c("1 <> 5"), Some(Compare::Between(1, 5)));
        assert_eq!(c("!1-5"), Some(Compare::NotBetween(1, 5)));
        assert_eq!(c("&0xc0=0x80"), Some(Compare::BitsEqual(0xc0, 0x80)));
        assert_eq!(c("&0xc0 != 0"), Some(Compare::BitsNotEqual(0xc0, 0)));
        assert_eq!(c("!&0x0f"), Some(Compare::BitsClear(15)));
        for bad in [
            "",
            "256",
            "a",
            "5-1",
            "5-6",
            "<0",
            ">255",
            "-5",
            "5-",
            "1 2",
            "&",
            "0x",
            "=",
            "99999999999999999999",
            "&0xc0=2",
            "&0xc0!=2",
            "!&0xc0=2",
        ] {
            assert_eq!(c(bad), None, "{bad}");
        }
        assert_eq!(compare(">10kb", u64::MAX), Some(Compare::Greater(10240)));
        assert_eq!(compare("1GiB", u64::MAX), Some(Compare::Equal(1 << 30)));
    }

    #[test]
    fn reals() {
        assert_eq!(compare_float("> 4.14"), Some(FloatCompare::Greater(4.14)));
        assert_eq!(compare_float("!4-5"), Some(FloatCompare::NotBetween(4.0, 5.0)));
        assert_eq!(compare_float("nan"), None);
        assert_eq!(compare_float("1e5"), None);
    }
}
