//! Conditions on transaction numbers: `VALUE[,WHICH]`, in the syntax that integer keywords share.

use crate::ast::{NumberTest, Which};
use crate::builder::Input;
use crate::error::{Fail, fail};
use crate::number::compare;

/// A number up to `max`, or a name that `named` resolves (in lower case), optionally negated with `!`.
pub(crate) fn integer(
    i: &Input<'_>,
    max: u64,
    named: &dyn Fn(&str) -> Option<u64>,
) -> Result<(NumberTest, Which), Fail> {
    let (value, which) = i.text.split_once(',').map_or((&*i.text, ""), |(v, w)| (v.trim(), w.trim()));
    let Some(which) = self::which(which) else {
        return fail("detect-parse", format!("{}: \"{which}\" is none of all, all1, any, nbN, or a place", i.written));
    };
    let (name, negated) = value.trim().strip_prefix('!').map_or((value.trim(), false), |n| (n.trim(), true));
    if let Some(n) = named(&name.to_ascii_lowercase()) {
        return Ok((NumberTest::OneOf { values: vec![n], negated }, which));
    }
    match compare(value, max) {
        Some(c) => Ok((NumberTest::Compare(c), which)),
        None => fail("detect-parse", format!("invalid value for {}: \"{value}\"", i.written)),
    }
}

fn which(text: &str) -> Option<Which> {
    Some(match text {
        "" | "any" => Which::Any,
        "all" => Which::All,
        "all1" => Which::AllAndSome,
        t => match t.strip_prefix("nb") {
            Some(c) => Which::Count(compare(c, u64::from(u32::MAX))?),
            None => Which::At(t.parse().ok()?),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ast::Compare;

    #[test]
    fn which_ones() {
        for (text, want) in [
            ("", Some(Which::Any)),
            ("all1", Some(Which::AllAndSome)),
            ("-1", Some(Which::At(-1))),
            ("nb>3", Some(Which::Count(Compare::Greater(3)))),
            ("nb", None),
            ("some", None),
        ] {
            assert_eq!(which(text), want, "{text}");
        }
    }
}
