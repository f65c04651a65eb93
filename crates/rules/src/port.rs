//! Port lists: variables, negation, nesting and ranges, converted to sorted disjoint ranges.

use std::collections::HashMap;

use crate::address::members;
use crate::ast::PortSet;
use crate::error::{Fail, fail};
use crate::ranges::{normalise, subtract};

const MODULE: &str = "detect";
const DEPTH_MAX: usize = 64;
const MEMBERS_MAX: usize = 1 << 16;

/// Parses port lists with a set of variables, and caches the result for each text.
#[derive(Debug, Default)]
pub(crate) struct Ports {
    seen: HashMap<String, PortSet>,
    work: usize,
}

/// Every port.
pub(crate) fn any() -> PortSet {
    PortSet { ranges: vec![(0, u16::MAX)], any: true }
}

impl Ports {
    /// The port set for `text`.
    pub(crate) fn parse(&mut self, text: &str, vars: &HashMap<String, String>) -> Result<PortSet, Fail> {
        if text.eq_ignore_ascii_case("any") {
            return Ok(any());
        }
        if let Some(s) = self.seen.get(text) {
            return Ok(s.clone());
        }
        self.work = 0;
        let ranges = self.resolve(text, vars, 0)?;
        if ranges.is_empty() {
            return fail(MODULE, "no ports left after merging ports with negated ports");
        }
        let set = if ranges == [(0, u16::MAX)] { any() } else { PortSet { ranges, any: false } };
        self.seen.insert(text.to_owned(), set.clone());
        Ok(set)
    }

    fn resolve(&mut self, text: &str, vars: &HashMap<String, String>, depth: usize) -> Result<Vec<(u16, u16)>, Fail> {
        if depth > DEPTH_MAX {
            return fail(MODULE, format!("port list nests more than {DEPTH_MAX} deep; is a variable part of itself?"));
        }
        let (mut wanted, mut unwanted) = (Vec::new(), Vec::new());
        for item in members(text) {
            self.work += 1;
            if self.work > MEMBERS_MAX {
                return fail(MODULE, format!("port list has more than {MEMBERS_MAX} members"));
            }
            let item = item.trim();
            let (item, not) = match item.strip_prefix('!') {
                Some(i) => (i.trim_start(), true),
                None => (item, false),
            };
            let to = if not { &mut unwanted } else { &mut wanted };
            if let Some(inner) = item.strip_prefix('[') {
                let Some(inner) = inner.strip_suffix(']') else {
                    return fail(
                        MODULE,
                        format!("not every port block was properly closed in \"{item}\", missing closing brackets"),
                    );
                };
                to.extend(self.resolve(inner, vars, depth + 1)?);
            } else if let Some(name) = item.strip_prefix('$') {
                let Some(value) = vars.get(name) else {
                    return fail("rule-vars", format!("Variable \"{name}\" is not defined in configuration file"));
                };
                if value.trim().is_empty() {
                    return fail("rule-vars", format!("Variable \"{name}\" is empty in configuration file"));
                }
                let value = value.trim().to_owned();
                to.extend(self.resolve(&value, vars, depth + 1)?);
            } else {
                to.push(port(item)?);
            }
        }
        normalise(&mut unwanted);
        if unwanted == [(0, u16::MAX)] {
            return fail(MODULE, "Complete port space is negated");
        }
        if wanted.is_empty() && !unwanted.is_empty() {
            wanted.push((0, u16::MAX));
        }
        normalise(&mut wanted);
        Ok(subtract(&wanted, &unwanted))
    }
}

/// One port or range.
fn port(text: &str) -> Result<(u16, u16), Fail> {
    if text.eq_ignore_ascii_case("any") {
        return Ok((0, u16::MAX));
    }
    let number = |s: &str| -> Option<u16> {
        let s = s.trim();
        if s.is_empty() || !s.bytes().all(|b| b.is_ascii_digit()) { None } else { s.parse().ok() }
    };
    let r = match text.split_once(':') {
        Some((a, b)) => {
            let a = if a.trim().is_empty() { Some(0) } else { number(a) };
            let b = if b.trim().is_empty() { Some(u16::MAX) } else { number(b) };
            a.zip(b).filter(|(a, b)| a <= b)
        }
        None => number(text).map(|p| (p, p)),
    };
    r.ok_or_else(|| Fail::new(MODULE, format!(" failed to parse port \"{text}\"")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(s: &str) -> Result<PortSet, String> {
        let vars =
            [("HTTP", "80"), ("SHELL", "!80"), ("LOOP", "$LOOP")].map(|(a, b)| (a.to_owned(), b.to_owned())).into();
        Ports::default().parse(s, &vars).map_err(|f| f.messages[0].text.clone())
    }

    #[test]
    fn forms() {
        let r = |s| get(s).unwrap().ranges;
        assert_eq!(r("80"), [(80, 80)]);
        assert_eq!(r("[1,2,!3]"), [(1, 2)]);
        assert_eq!(r("[1:1024,!80]"), [(1, 79), (81, 1024)]);
        assert_eq!(r("$SHELL"), [(0, 79), (81, 65535)]);
        assert_eq!(r("!$SHELL"), [(80, 80)]);
        assert_eq!(r("[1:5,![2,3]]"), [(1, 1), (4, 5)]);
        assert_eq!(r("[1, 2]"), [(1, 2)]);
        assert_eq!(r(":5"), [(0, 5)]);
        assert!(get(":").unwrap().any);
    }

    #[test]
    fn refused() {
        assert_eq!(get("!any").unwrap_err(), "Complete port space is negated");
        assert_eq!(get("!0:").unwrap_err(), "Complete port space is negated");
        assert_eq!(get("[3,!1:5]").unwrap_err(), "no ports left after merging ports with negated ports");
        assert_eq!(get("65536").unwrap_err(), " failed to parse port \"65536\"");
        for bad in ["5:3", "a", "1-5", "-5", "[]", "$NONE", "$LOOP", "", "[1,2", "+5"] {
            assert!(get(bad).is_err(), "{bad}");
        }
    }
}
