//! Interfaces of DCE/RPC.

use super::app::DCE;
use super::{Keyword, need_protocol};
use crate::ast::{Check, Compare, InterfaceTest};
use crate::builder::{Builder, Input};
use crate::error::Fail;

pub(super) const KEYWORDS: &[Keyword] = &[Keyword::value(&["dcerpc.iface", "dce_iface"], iface)
    .about("the interface of DCE/RPC that a call or a binding is for")];

/// The keyword of a check that this file makes.
pub(super) const fn of_check(c: &Check) -> Option<&'static str> {
    Some(match c {
        Check::Interface(_) => "dcerpc.iface",
        _ => return None,
    })
}

/// `UUID[,[<>=!]VERSION][,any_frag]`.
fn iface(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-dce-iface";
    let bad = |what: &str| Fail::new(M, format!("{}: {what}: \"{}\"", i.written, i.text));
    let mut parts = i.text.split(',').map(str::trim);
    let Some(uuid) = parts.next().and_then(uuid) else {
        return Err(bad("there is no UUID such as 367abb81-9844-35f1-ad32-98f038001003"));
    };
    let (mut version, mut any_frag) = (None, false);
    for part in parts {
        if part == "any_frag" && !any_frag {
            any_frag = true;
            continue;
        }
        let Some(op) = part.chars().next().filter(|c| matches!(c, '<' | '>' | '=' | '!')) else {
            return Err(bad("behind the UUID comes a version with <, >, = or ! before it, or any_frag"));
        };
        let Some(n) = part[1..].trim().parse::<u16>().ok().filter(|_| version.is_none() && !any_frag) else {
            return Err(bad("the version is a number up to 65535"));
        };
        let n = u64::from(n);
        version = Some(match op {
            '<' => Compare::Less(n),
            '>' => Compare::Greater(n),
            '!' => Compare::NotEqual(n),
            _ => Compare::Equal(n),
        });
    }
    need_protocol(b, DCE, i.written);
    b.restrict(DCE)?;
    b.check(Check::Interface(InterfaceTest { uuid, version, any_frag }));
    Ok(())
}

/// A UUID's bytes in the order in which they are written.
fn uuid(text: &str) -> Option<[u8; 16]> {
    let groups: Vec<&str> = text.split('-').collect();
    if groups.iter().map(|g| g.len()).ne([8, 4, 4, 4, 12]) || !text.is_ascii() {
        return None;
    }
    let digits: String = groups.concat();
    let mut out = [0; 16];
    for (n, byte) in out.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(2 * n..2 * n + 2)?, 16).ok()?;
    }
    digits.bytes().all(|b| b.is_ascii_hexdigit()).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ast::Rule;
    use crate::context::Context;
    use crate::loader::Loader;

    fn rule(options: &str) -> Option<Rule> {
        let available = ["smb", "dcerpc", "app-layer"].map(str::to_owned).into();
        let context = Context { available, ..Context::default() };
        let mut loader = Loader::new(&context);
        loader.load_str(&format!("alert tcp any any -> any any ({options} sid:1;)\n"), "t.rules");
        loader.finish().rules.pop()
    }

    #[test]
    fn interfaces() {
        const UUID: &str = "367abb81-9844-35f1-ad32-98f038001003";
        for (rest, version, any_frag) in [
            ("", None, false),
            (",any_frag", None, true),
            (",>1", Some(Compare::Greater(1)), false),
            (", !10 ,any_frag", Some(Compare::NotEqual(10)), true),
        ] {
            let r = rule(&format!("dce_iface:{UUID}{rest}; dcerpc.stub_data; content:\"x\";")).unwrap();
            let [Check::Interface(t)] = r.checks.as_slice() else { panic!("{:?}", r.checks) };
            assert_eq!((&t.version, t.any_frag, t.uuid[0], t.uuid[15]), (&version, any_frag, 0x36, 3), "{rest}");
            let seen = |version: u8, first: u8| [&t.uuid[..], &[0, version, first]].concat();
            assert_eq!(t.holds(&seen(2, 0)), any_frag);
            assert!(t.holds(&seen(2, 1)) && !t.holds(&seen(2, 1)[1..]));
            assert_eq!(t.holds(&seen(1, 1)), version != Some(Compare::Greater(1)));
        }
        for bad in
            ["367abb81", "367abb81-9844-35f1-ad32-98f03800100g", &format!("{UUID},1"), &format!("{UUID},any_frag,>1")]
        {
            assert!(rule(&format!("dcerpc.iface:{bad};")).is_none(), "{bad}");
        }
    }
}
