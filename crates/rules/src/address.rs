//! Address lists: variables, negation, nesting, CIDR, netmasks and ranges, converted to sorted disjoint ranges.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::ast::AddressSet;
use crate::error::{Fail, fail};
use crate::ranges::{Bound, complement, intersect, normalise, subtract};

const MODULE: &str = "detect";
/// Maximum nesting of lists and variables.
const DEPTH_MAX: usize = 64;
/// Limit of the ranges of one list, for each address family.
const RANGES_MAX: usize = 1 << 17;
const NEGATED: &str = "Complete IP space negated. Rule address range is NIL. Probably have a !any or an address range \
                       that supplies a NULL address range";

#[derive(Debug, Default, Clone)]
struct Ranges {
    v4: Vec<(u32, u32)>,
    v6: Vec<(u128, u128)>,
}

impl Ranges {
    fn all() -> Ranges {
        Ranges { v4: vec![(0, u32::MAX)], v6: vec![(0, u128::MAX)] }
    }

    fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    fn add(&mut self, o: Ranges) -> Result<(), Fail> {
        self.v4.extend(o.v4);
        self.v6.extend(o.v6);
        if self.v4.len() > RANGES_MAX || self.v6.len() > RANGES_MAX {
            return fail(MODULE, format!("address list expands to more than {RANGES_MAX} ranges"));
        }
        Ok(())
    }

    fn tidy(&mut self) {
        normalise(&mut self.v4);
        normalise(&mut self.v6);
    }
}

/// Parses address lists with a set of variables, and caches the result for each text.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    seen: HashMap<String, AddressSet>,
    work: usize,
}

/// The included and excluded members of a list.
#[derive(Debug, Default)]
struct Parsed {
    wanted: Ranges,
    unwanted: Ranges,
    /// Whether it has a `!`, in nested lists and variables too.
    negated: bool,
}

impl Addresses {
    /// The address set for `text`.
    pub(crate) fn parse(&mut self, text: &str, vars: &HashMap<String, String>) -> Result<AddressSet, Fail> {
        if text.eq_ignore_ascii_case("any") {
            return Ok(any());
        }
        if let Some(s) = self.seen.get(text) {
            return Ok(s.clone());
        }
        self.work = 0;
        let set = self.resolve(text, vars)?;
        self.seen.insert(text.to_owned(), set.clone());
        Ok(set)
    }

    fn resolve(&mut self, text: &str, vars: &HashMap<String, String>) -> Result<AddressSet, Fail> {
        let mut p = Parsed::default();
        self.list(text, false, vars, 0, &mut p)?;
        let negated = p.negated;
        let set = combine(p)?;
        if set.is_empty() {
            return fail(MODULE, "no addresses left after merging addresses and negated addresses");
        }
        let whole = set.v4 == [(0, u32::MAX)] && set.v6 == [(0, u128::MAX)];
        Ok(if whole { any() } else { AddressSet { v4: set.v4, v6: set.v6, any: false, negated } })
    }

    /// Adds the members of a list without its brackets.
    fn list(
        &mut self,
        text: &str,
        negated: bool,
        vars: &HashMap<String, String>,
        depth: usize,
        out: &mut Parsed,
    ) -> Result<(), Fail> {
        if depth > DEPTH_MAX {
            return fail(
                MODULE,
                format!("address list nests more than {DEPTH_MAX} deep; is a variable part of itself?"),
            );
        }
        for item in members(text) {
            self.work += 1;
            if self.work > RANGES_MAX {
                return fail(MODULE, format!("address list has more than {RANGES_MAX} members"));
            }
            let item = item.trim_start();
            let (item, not) = match item.strip_prefix('!') {
                Some(i) => (i.trim_start(), true),
                None => (item, false),
            };
            out.negated |= not;
            let not = not != negated;
            if let Some(inner) = item.strip_prefix('[') {
                let Some(inner) = inner.strip_suffix(']') else {
                    return fail(
                        MODULE,
                        format!("not every address block was properly closed in \"{item}\", missing closing brackets"),
                    );
                };
                self.nested(inner, not, vars, depth, out)?;
            } else if let Some(name) = item.strip_prefix('$') {
                let Some(value) = vars.get(name.trim_end()) else {
                    return fail("rule-vars", format!("Variable \"{name}\" is not defined in configuration file"));
                };
                let value = value.clone();
                let value = value.trim();
                if value.is_empty() {
                    return fail("rule-vars", format!("Variable \"{name}\" is empty in configuration file"));
                }
                self.nested(value, not, vars, depth, out)?;
            } else {
                let one = address(item)?;
                if not { out.unwanted.add(one)? } else { out.wanted.add(one)? }
            }
        }
        Ok(())
    }

    /// A nested list is resolved on its own first, so that its negations do not affect the outer list.
    fn nested(
        &mut self,
        text: &str,
        negated: bool,
        vars: &HashMap<String, String>,
        depth: usize,
        out: &mut Parsed,
    ) -> Result<(), Fail> {
        let mut inner = Parsed::default();
        self.list(text, false, vars, depth + 1, &mut inner)?;
        out.negated |= inner.negated;
        let set = combine(inner)?;
        if negated { out.unwanted.add(set) } else { out.wanted.add(set) }
    }
}

/// Removes the negated members from a list. If a list has only negations of a family, it starts from all of that family
/// and no other: `!192.0.2.0/24` matches no IPv6 address, as in Suricata.
fn combine(mut p: Parsed) -> Result<Ranges, Fail> {
    p.unwanted.tidy();
    if p.unwanted.v4 == [(0, u32::MAX)] && (p.unwanted.v6 == [(0, u128::MAX)] || p.wanted.v6.is_empty()) {
        return fail(MODULE, NEGATED);
    }
    if p.wanted.v4.is_empty() && !p.unwanted.v4.is_empty() {
        p.wanted.v4 = Ranges::all().v4;
    }
    if p.wanted.v6.is_empty() && !p.unwanted.v6.is_empty() {
        p.wanted.v6 = Ranges::all().v6;
    }
    p.wanted.tidy();
    Ok(Ranges { v4: subtract(&p.wanted.v4, &p.unwanted.v4), v6: subtract(&p.wanted.v6, &p.unwanted.v6) })
}

/// Every address.
pub(crate) fn any() -> AddressSet {
    AddressSet { v4: vec![(0, u32::MAX)], v6: vec![(0, u128::MAX)], any: true, negated: false }
}

/// The top-level members of a list; a trailing comma is allowed.
pub(crate) fn members(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0i32;
    let text = text.strip_suffix(',').unwrap_or(text);
    text.split(move |c| {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
    .filter(move |_| !text.is_empty())
}

/// One address, network or range.
fn address(text: &str) -> Result<Ranges, Fail> {
    if text.eq_ignore_ascii_case("any") {
        return Ok(Ranges::all());
    }
    let bad = || Fail::new(MODULE, format!("failed to parse address \"{text}\""));
    let mut r = Ranges::default();
    if text.contains(':') {
        r.v6.push(network6(text).ok_or_else(bad)?);
        return Ok(r);
    }
    if let Some((a, b)) = text.split_once('-') {
        let (a, b) = (v4(a).ok_or_else(bad)?, v4(b).ok_or_else(bad)?);
        if a > b {
            return Err(bad());
        }
        r.v4.push((a, b));
        return Ok(r);
    }
    let Some((a, m)) = text.split_once('/') else {
        let a = v4(text).ok_or_else(bad)?;
        r.v4.push((a, a));
        return Ok(r);
    };
    let a = v4(a).ok_or_else(bad)?;
    let mask = if m.contains('.') {
        let mask = v4(m).ok_or_else(bad)?;
        if mask.leading_ones() != 32 - mask.trailing_zeros().min(32) {
            return Err(Fail::new(
                MODULE,
                format!(
                    "netmask \"{m}\" is not usable. Only netmasks that are compatible with CIDR notation are \
                     supported. See ticket #5168."
                ),
            )
            .and(MODULE, format!("failed to parse address \"{text}\"")));
        }
        mask
    } else {
        let bits: u32 = digits(m).ok_or_else(bad)?;
        match bits {
            0 => 0,
            1..=32 => u32::MAX << (32 - bits),
            _ => return Err(bad()),
        }
    };
    r.v4.push((a & mask, (a & mask) | !mask));
    Ok(r)
}

fn digits(s: &str) -> Option<u32> {
    if s.is_empty() || !s.bytes().all(|b| b.is_ascii_digit()) { None } else { s.parse().ok() }
}

/// Four decimal parts; unlike the standard library's parser, this accepts leading zeros.
fn v4(s: &str) -> Option<u32> {
    if let Ok(a) = s.parse::<Ipv4Addr>() {
        return Some(a.into());
    }
    let mut parts = [0u8; 4];
    let mut it = s.split('.');
    for p in &mut parts {
        *p = u8::try_from(digits(it.next()?)?).ok()?;
    }
    it.next().is_none().then(|| u32::from_be_bytes(parts))
}

fn network6(s: &str) -> Option<(u128, u128)> {
    if let Some((a, b)) = s.split_once('-') {
        let (a, b): (u128, u128) = (a.parse::<Ipv6Addr>().ok()?.into(), b.parse::<Ipv6Addr>().ok()?.into());
        return (a <= b).then_some((a, b));
    }
    let (a, bits) = match s.split_once('/') {
        Some((a, m)) => (a, digits(m)?),
        None => (s, 128),
    };
    let a: u128 = a.parse::<Ipv6Addr>().ok()?.into();
    let mask = match bits {
        0 => 0,
        1..=128 => u128::MAX << (128 - bits),
        _ => return None,
    };
    Some((a & mask, (a & mask) | !mask))
}

/// Whether two sets have an address in common.
pub fn overlap(a: &AddressSet, b: &AddressSet) -> bool {
    a.any || b.any || !intersect(&a.v4, &b.v4).is_empty() || !intersect(&a.v6, &b.v6).is_empty()
}

/// The complement of `a`.
pub fn negate(a: &AddressSet) -> AddressSet {
    if a.any {
        return AddressSet::default();
    }
    let (v4, v6) = (complement(&a.v4), complement(&a.v6));
    let any = v4 == [(u32::LOW, u32::HIGH)] && v6 == [(u128::LOW, u128::HIGH)];
    AddressSet { v4, v6, any, negated: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vars() -> HashMap<String, String> {
        [("HOME", "[192.168.0.0/16,10.0.0.0/8]"), ("EXT", "!$HOME"), ("LOOP", "[$LOOP]"), ("ANY", "any")]
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
            .into()
    }

    fn get(s: &str) -> Result<AddressSet, String> {
        Addresses::default().parse(s, &vars()).map_err(|f| f.messages[0].text.clone())
    }

    #[test]
    fn forms() {
        let v4 = |s| get(s).unwrap().v4;
        let a = |a, b, c, d| u32::from_be_bytes([a, b, c, d]);
        assert_eq!(v4("1.2.3.4"), [(a(1, 2, 3, 4), a(1, 2, 3, 4))]);
        assert_eq!(v4("1.2.3.4/255.255.255.0"), [(a(1, 2, 3, 0), a(1, 2, 3, 255))]);
        assert_eq!(v4("[1.2.3.4, 1.2.3.5,1.2.3.7]"), [(a(1, 2, 3, 4), a(1, 2, 3, 5)), (a(1, 2, 3, 7), a(1, 2, 3, 7))]);
        assert_eq!(v4("[1.2.3.0/24,![1.2.3.4,1.2.3.5]]").len(), 2);
        assert_eq!(v4("1.2.3.4-1.2.3.9"), [(a(1, 2, 3, 4), a(1, 2, 3, 9))]);
        assert_eq!(get("2001::/16").unwrap().v6, [(0x2001 << 112, (0x2002 << 112) - 1)]);
        assert!(get("[0.0.0.0/0,::/0]").unwrap().any);
        assert!(get("$ANY").unwrap().any);
        let ext = get("$EXT").unwrap();
        assert!(!overlap(&ext, &get("$HOME").unwrap()));
        assert_eq!(ext.v6, [], "no IPv6 network is negated");
        let mixed = get("[!192.0.2.0/24,2000::/3]").unwrap();
        assert_eq!((mixed.v4.len(), mixed.v6.len()), (2, 1));
        let both = get("[!192.0.2.0/24,!2001:db8::/32]").unwrap();
        assert_eq!((both.v4.len(), both.v6.len()), (2, 2));
        assert_eq!(negate(&ext).v4, get("$HOME").unwrap().v4);
        assert_eq!(get("!$EXT").unwrap().v4, get("$HOME").unwrap().v4);
    }

    #[test]
    fn refused() {
        let text = |s| get(s).unwrap_err();
        assert!(text("!any").starts_with("Complete IP space negated"));
        assert!(text("!0.0.0.0/0").starts_with("Complete IP space negated"));
        assert!(text("[1.2.3.4,!1.2.3.0/24]").starts_with("no addresses left"));
        assert_eq!(text("$FOO"), "Variable \"FOO\" is not defined in configuration file");
        assert!(text("$LOOP").contains("deep"));
        for bad in ["1.2.3", "1.2.3.4/33", "1.2.3.4-1.2.3.3", "::1/129", "[,1.2.3.4]", "[1.2.3.4 ,5.6.7.8]", "", "[]"] {
            assert!(get(bad).is_err(), "{bad}");
        }
    }
}
