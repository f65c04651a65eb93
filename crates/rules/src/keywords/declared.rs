//! Keywords that protocols declare in their modules ([`margay_app::Protocol::keywords`]).

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use margay_app::declare::{KeywordDirection, KeywordKind, NumberCondition, NumberSyntax};
use margay_app::{BufferDef, BufferKind, Protocol};

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
        let buffers = with_protocols(|p| p.buffers.iter().filter(|b| !known.contains(b.name)), |b| b.name);
        all.extend(buffers.into_iter().flat_map(|(b, protocols)| sticky(b, protocols)));
        all.extend(numbers());
        all
    });
    &ALL
}

/// Each declaration of `of` once by its name, with all protocols that have it, in the order of the protocols.
fn with_protocols<T, I: Iterator<Item = &'static T>>(
    of: impl Fn(&'static Protocol) -> I,
    name: impl Fn(&T) -> &'static str,
) -> Vec<(&'static T, Vec<&'static str>)> {
    let mut all: Vec<(&'static T, Vec<&'static str>)> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for p in margay_app::ALL {
        for one in of(p) {
            let place = *places.entry(name(one)).or_insert_with(|| {
                all.push((one, Vec::new()));
                all.len() - 1
            });
            let Some((_, protocols)) = all.get_mut(place) else { continue };
            // The name of a group of protocols comes first, and before all others the one by which the keyword is called.
            for group in p.headers.first().map(|h| h.0).into_iter().chain([p.rule_name]) {
                if !protocols.contains(&group) {
                    let is_its_own = name(one).split_once('.').is_some_and(|n| n.0 == group);
                    protocols.insert(if is_its_own { 0 } else { protocols.len() }, group);
                }
            }
        }
    }
    all
}

/// The keywords of numbers that are declared with their syntax.
fn numbers() -> impl Iterator<Item = Keyword> {
    let numbers = with_protocols(|p| p.numbers.iter().filter(|n| n.syntax.is_some()), |n| n.name);
    numbers.into_iter().filter_map(|(n, protocols)| {
        let direction = if n.goes_with_both { Direction::Both } else { direction(n.progress) };
        let names: Vec<&str> = std::iter::once(n.name).chain(n.also.iter().copied()).collect();
        Some(of_number(names.leak(), protocols.leak(), direction, n.syntax?))
    })
}

/// The keyword of a number.
const fn of_number(
    names: &'static [&'static str],
    protocols: &'static [&'static str],
    direction: Direction,
    syntax: NumberSyntax,
) -> Keyword {
    Keyword {
        names,
        takes: if matches!(syntax, NumberSyntax::Holds) { Takes::Nothing } else { Takes::Value },
        quotes: Quotes::No,
        negatable: false,
        feature: "",
        direction,
        about: "",
        does: Does::Number(protocols, syntax),
    }
}

/// The directions in which a buffer or a number exists.
const fn direction(progress: [Option<u8>; 2]) -> Direction {
    match progress {
        [Some(_), None] => Direction::ToServer,
        [None, Some(_)] => Direction::ToClient,
        _ => Direction::Both,
    }
}

/// Makes the sticky buffer of a name that one or several protocols declare, and its old modifier.
fn sticky(b: &'static BufferDef, protocols: Vec<&'static str>) -> impl Iterator<Item = Keyword> {
    let direction = direction(b.progress);
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

fn keyword(p: &'static Protocol, k: &'static margay_app::declare::Keyword) -> Keyword {
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
        KeywordKind::Number(syntax) => of_number(k.names, protocols, direction, syntax),
    }
}

/// The condition that a rule puts on a declared number.
pub(super) fn test(i: &Input<'_>, syntax: NumberSyntax) -> Result<(NumberTest, Which), Fail> {
    match syntax {
        NumberSyntax::Compare { max, words } => {
            number::integer(i, max, &|name| words.iter().find(|w| w.0 == name).map(|w| w.1))
        }
        NumberSyntax::Flags { max, words } => flags(i, max, words).map(|c| (NumberTest::Compare(c), Which::Any)),
        NumberSyntax::Own(read) => {
            let condition = read(&i.text).or_else(|why| fail("detect-parse", format!("{}: {why}", i.written)))?;
            Ok((own(i, condition)?, Which::Any))
        }
        NumberSyntax::Holds => Ok((NumberTest::Compare(Compare::Equal(1)), Which::Any)),
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
        NumberCondition::Tagged { tag, text } => {
            let value = text.map_or(Ok(Compare::GreaterEqual(0)), |t| number(&t, u64::from(u32::MAX)))?;
            NumberTest::Tagged { tag, value }
        }
        NumberCondition::Ranges(ranges) => NumberTest::Ranges(ranges),
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
    use crate::ast::Check;
    use crate::context::Context;
    use crate::loader::Loader;

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
        let tagged = |text: &str| own(NumberCondition::Tagged { tag: 2, text: Some(text.into()) });
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

    /// The test on a number that a rule with this option makes.
    fn check(option: &str) -> Option<NumberTest> {
        let available = ["http2", "ftp", "ftp-data", "smb", "dcerpc", "tls", "app-layer"].map(str::to_owned).into();
        let context = Context { available, ..Context::default() };
        let mut loader = Loader::new(&context);
        loader.load_str(&format!("alert tcp any any -> any any ({option} sid:1;)\n"), "t.rules");
        let rule = loader.finish().rules.pop()?;
        rule.checks.into_iter().find_map(|c| if let Check::Number { test, .. } = c { Some(test) } else { None })
    }

    #[test]
    fn numbers_are_keywords_where_they_are_declared() {
        let compare = |c| Some(NumberTest::Compare(c));
        let one = |n, negated| Some(NumberTest::OneOf { values: vec![n], negated });
        let setting = |value| Some(NumberTest::Tagged { tag: 1, value });
        let ranges = |r: &[(u64, u64)]| Some(NumberTest::Ranges(r.to_vec()));
        for (option, want) in [
            ("http2.frametype:GOAWAY;", one(7, false)),
            ("http2.frametype:rst_stream;", one(3, false)),
            ("http2.frametype:RSTSTREAM;", one(3, false)),
            ("http2.frametype:6;", compare(Compare::Equal(6))),
            ("http2.errorcode:INADEQUATE_SECURITY;", one(12, false)),
            ("http2.errorcode:HTTP_1_1_REQUIRED;", one(13, false)),
            ("http2.errorcode:!NO_ERROR;", one(0, true)),
            ("http2.priority:>100;", compare(Compare::Greater(100))),
            ("http2.window:34634;", compare(Compare::Equal(34634))),
            ("http2.size_update:1234;", compare(Compare::Equal(1234))),
            ("http2.settings:SETTINGS_HEADER_TABLE_SIZE>1000;", setting(Compare::Greater(1000))),
            ("http2.settings:SETTINGS_HEADER_TABLE_SIZE;", setting(Compare::GreaterEqual(0))),
            ("http2.settings:SETTINGS_ENABLE_PUSH>x;", None),
            ("grpc.status:not_found;", one(5, false)),
            ("grpc.status:>4;", compare(Compare::Greater(4))),
            ("grpc.status:nothing;", None),
            ("http2.frametype:nothing;", None),
            ("http2.priority:256;", None),
            ("dcerpc.opnum:15;", ranges(&[(15, 15)])),
            ("dce_opnum:12,18-24,5;", ranges(&[(12, 12), (18, 24), (5, 5)])),
            ("dcerpc.opnum:>10;", None),
            ("dcerpc.opnum:70000;", None),
            ("dcerpc.opnum:9-3;", None),
            ("dcerpc.opnum:;", None),
            ("smb.version:2;", compare(Compare::Equal(2))),
            ("smb.version:three;", None),
            ("ftp.mode:Active;", one(1, false)),
            ("ftp.mode:both;", None),
            ("ftp.reply_received:yes; flow:to_server;", one(1, false)),
            ("ftpdata_command:stor;", one(2, false)),
            ("ftpbounce;", compare(Compare::Equal(1))),
            ("ftpbounce:1;", None),
            ("ftpbounce; flow:to_client;", None),
            ("tls_cert_expired;", compare(Compare::Equal(1))),
            ("tls_cert_notafter:<1969; flow:to_server;", None),
        ] {
            assert_eq!(check(option), want, "{option}");
        }
    }
}
