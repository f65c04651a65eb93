//! Keywords that protocols declare in their modules ([`margay_app::Protocol::keywords`]).

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use margay_app::declare::{KeywordDirection, KeywordKind, NumberCondition};
use margay_app::{BufferDef, BufferKind};

use super::number;
use super::{Buffer, Direction, Does, Keyword, Quotes, Takes};
use crate::ast::{Compare, NumberTest, Which};
use crate::builder::Input;
use crate::error::{Fail, fail};
use crate::number::compare;

/// All declared keywords, in protocol order.
pub(super) fn keywords() -> &'static [Keyword] {
    static ALL: LazyLock<Vec<Keyword>> = LazyLock::new(|| {
        let mut all: Vec<Keyword> =
            margay_app::ALL.iter().flat_map(|p| p.keywords.iter().map(|k| keyword(p, k))).collect();
        let in_tables = super::FAMILIES.iter().flat_map(|(family, _)| *family);
        let known: HashSet<&str> = in_tables.chain(&all).flat_map(|k| k.names).copied().collect();
        // Each other buffer with the protocols that have it, in the order of the first.
        let mut buffers: Vec<(&'static BufferDef, Vec<&'static str>)> = Vec::new();
        let mut places: HashMap<&str, usize> = HashMap::new();
        for p in margay_app::ALL {
            for b in p.buffers.iter().filter(|b| !known.contains(b.name)) {
                let place = *places.entry(b.name).or_insert_with(|| {
                    buffers.push((b, Vec::new()));
                    buffers.len() - 1
                });
                let Some((_, protocols)) = buffers.get_mut(place) else { continue };
                // The name of a group of protocols comes first.
                for name in p.headers.first().map(|h| h.0).into_iter().chain([p.rule_name]) {
                    if !protocols.contains(&name) {
                        protocols.push(name);
                    }
                }
            }
        }
        all.extend(buffers.into_iter().flat_map(|(b, protocols)| sticky(b, protocols)));
        all
    });
    &ALL
}

/// Makes the sticky buffer of a name that one or several protocols declare, and its old modifier.
fn sticky(b: &'static BufferDef, protocols: Vec<&'static str>) -> impl Iterator<Item = Keyword> {
    let direction = match b.progress {
        [Some(_), None] => Direction::ToServer,
        [None, Some(_)] => Direction::ToClient,
        _ => Direction::Both,
    };
    let names: Vec<&str> = std::iter::once(b.name).chain(b.also.iter().copied()).collect();
    let buffer = buffer(b, protocols.leak(), direction);
    let modifier = b.is_modifier.then(|| Keyword::modifier(vec![buffer.internal].leak(), buffer));
    std::iter::once(Keyword::sticky(names.leak(), buffer)).chain(modifier)
}

/// Makes a buffer. It is never freed, like the constant buffers of the tables.
fn buffer(b: &BufferDef, protocols: &'static [&'static str], direction: Direction) -> &'static Buffer {
    let or = |text: &'static str, other: &[char], with: &str| match text {
        "" => &*b.name.replace(other, with).leak(),
        text => text,
    };
    Box::leak(Box::new(Buffer {
        name: b.name,
        internal: or(b.internal, &['.'], "_"),
        description: or(b.about, &['.', '_'], " "),
        protocols,
        direction,
        multi: b.kind.is_several(),
        form: b.form,
        is_common: b.is_common,
        needs_flow: b.needs_flow,
        ignores_flow: b.ignores_flow,
        ..Buffer::PLAIN
    }))
}

/// The buffer of an option letter of `pcre`.
pub(super) fn of_letter(letter: char) -> Option<&'static Buffer> {
    let b = margay_app::ALL.iter().flat_map(|p| p.buffers).find(|b| b.letter == Some(letter))?;
    super::buffer(b.name).ok()
}

fn keyword(p: &'static margay_app::Protocol, k: &'static margay_app::declare::Keyword) -> Keyword {
    // The first header name also lists the protocols that carry this one, and the keywords apply to those too.
    let protocols = p.headers.first().map_or(std::slice::from_ref(&p.rule_name), |h| h.1);
    let direction = match k.direction {
        KeywordDirection::ToServer => Direction::ToServer,
        KeywordDirection::ToClient => Direction::ToClient,
        KeywordDirection::Both => Direction::Both,
    };
    match k.kind {
        KeywordKind::Buffer { multi } => {
            let name = k.names.first().copied().unwrap_or_default();
            let kind = if multi { BufferKind::Multi } else { BufferKind::Single };
            Keyword::sticky(k.names, buffer(&BufferDef { name, kind, ..BufferDef::PLAIN }, protocols, direction))
        }
        kind => Keyword {
            names: k.names,
            takes: Takes::Value,
            quotes: Quotes::No,
            negatable: false,
            feature: "",
            direction,
            about: "",
            does: Does::Declared(protocols, kind),
        },
    }
}

/// The condition that a rule puts on a declared number.
pub(super) fn test(i: &Input<'_>, kind: KeywordKind) -> Result<(NumberTest, Which), Fail> {
    match kind {
        KeywordKind::Number { max, words } => {
            number::integer(i, max, &|name| words.iter().find(|w| w.0 == name).map(|w| w.1))
        }
        KeywordKind::Flags { max, words } => flags(i, max, words).map(|c| (NumberTest::Compare(c), Which::Any)),
        KeywordKind::Own(read) => {
            let condition = read(&i.text).or_else(|why| fail("detect-parse", format!("{}: {why}", i.written)))?;
            Ok((own(i, condition)?, Which::Any))
        }
        KeywordKind::Buffer { .. } => fail("detect-parse", format!("{} is a buffer and takes no value", i.written)),
    }
}

fn own(i: &Input<'_>, condition: NumberCondition) -> Result<NumberTest, Fail> {
    let number = |text: &str, max| match compare(text, max) {
        Some(c) => Ok(c),
        None => fail("detect-parse", format!("invalid value for {}: \"{text}\"", i.written)),
    };
    Ok(match condition {
        NumberCondition::Compare { text, max } => NumberTest::Compare(number(&text, max)?),
        NumberCondition::OneOf { values, negated } => NumberTest::OneOf { values, negated },
        NumberCondition::Tagged { tag, text } => NumberTest::Tagged { tag, value: number(&text, u64::from(u32::MAX))? },
        NumberCondition::Bits { any, none } => NumberTest::Bits { any, none },
        NumberCondition::Parts(parts) => NumberTest::Parts(
            parts
                .into_iter()
                .map(|p| Ok((p.first, p.bits, number(&p.text, (1u64 << u32::from(p.bits).min(32)) - 1)?)))
                .collect::<Result<_, Fail>>()?,
        ),
    })
}

/// Names of bits that must be set, or clear with `!`; or a comparison of the whole number.
fn flags(i: &Input<'_>, max: u64, words: &[(&str, u64)]) -> Result<Compare, Fail> {
    if let Some(c) = compare(&i.text, max) {
        return Ok(c);
    }
    let (mut mask, mut value) = (0, 0);
    for word in i.text.split(',').map(str::trim) {
        let (name, set) = word.strip_prefix('!').map_or((word, true), |n| (n.trim(), false));
        let Some((_, bit)) = words.iter().find(|w| name.eq_ignore_ascii_case(w.0)) else {
            let known = words.iter().map(|w| w.0).collect::<Vec<_>>().join(", ");
            return fail("detect-parse", format!("{}: \"{word}\" is none of {known}", i.written));
        };
        mask |= bit;
        value |= if set { *bit } else { 0 };
    }
    Ok(Compare::BitsEqual(mask, value))
}

#[cfg(test)]
mod tests {
    use margay_app::declare::NumberPart;

    use super::*;

    fn input(text: &str) -> Input<'_> {
        Input {
            written: "x.flags",
            name: "x.flags",
            raw: text.as_bytes(),
            text: text.into(),
            negated: false,
            given: true,
        }
    }

    #[test]
    fn flags_are_set_or_clear() {
        let words = &[("dup", 8), ("retain", 1)];
        let of = |text| flags(&input(text), 255, words).ok();
        assert_eq!(of("dup, !Retain"), Some(Compare::BitsEqual(9, 8)));
        assert_eq!(of("7"), Some(Compare::Equal(7)));
        assert_eq!(of("dup,other"), None);
        assert_eq!(of(""), None);
    }

    #[test]
    fn conditions_become_tests() {
        let own = |c| own(&input(""), c).ok();
        let tagged = |text: &str| own(NumberCondition::Tagged { tag: 2, text: text.into() });
        assert_eq!(tagged(">3"), Some(NumberTest::Tagged { tag: 2, value: Compare::Greater(3) }));
        assert_eq!(tagged("x"), None);
        let part = |text: &str| NumberPart { first: 8, bits: 4, text: text.into() };
        let parts = |text: &str| own(NumberCondition::Parts(vec![part(text)]));
        let test = parts(">3").unwrap();
        assert!(test.holds(0xf400) && !test.holds(0xf3ff));
        assert_eq!(parts("16"), None);
        let compare = |text: &str, max| own(NumberCondition::Compare { text: text.into(), max });
        assert_eq!((compare("256", 255), compare("2", 255)), (None, Some(NumberTest::Compare(Compare::Equal(2)))));
    }
}
