//! Old SSH keywords, which are checks on `ssh.proto` and `ssh.software`.

use super::app::SSH;
use super::{Keyword, buffer, need_protocol};
use crate::ast::{BufferCheck, Check, Compare, Content, NumberTest, Which};
use crate::builder::{Builder, Input};
use crate::error::{Fail, fail};

pub(super) const KEYWORDS: &[Keyword] = &[
    Keyword::value(&["ssh.protoversion"], protoversion).or_unquoted().about("the version of SSH, as ssh.proto"),
    Keyword::value(&["ssh.softwareversion"], softwareversion)
        .or_unquoted()
        .about("the software of an SSH banner, as ssh.software"),
];

/// `2_compat`, for version 2 and compatible ones; or a version as in the banner.
fn protoversion(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    deprecated(b, "ssh.protoversion", "ssh.proto");
    if i.text == "2_compat" {
        need_protocol(b, SSH, "ssh.protoversion");
        b.restrict(SSH)?;
        let test = NumberTest::OneOf { values: vec![1], negated: false };
        b.check(Check::Number { keyword: "ssh.protoversion", test, which: Which::Any });
        return Ok(());
    }
    if !i.text.bytes().all(|c| c.is_ascii_digit() || c == b'.') || !i.text.starts_with(|c: char| c.is_ascii_digit()) {
        return fail(
            "detect-ssh-proto-version",
            format!("ssh.protoversion: \"{}\" is neither a version such as 2.0 nor 2_compat", i.text),
        );
    }
    is(b, "ssh.proto", i.text.as_bytes())
}

/// The software as in the banner: the whole text, case-sensitive.
fn softwareversion(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    deprecated(b, "ssh.softwareversion", "ssh.software");
    if i.text.starts_with('!') {
        return fail("detect-ssh-software-version", "ssh.softwareversion cannot be negated");
    }
    is(b, "ssh.software", i.text.as_bytes())
}

fn deprecated(b: &mut Builder<'_>, old: &str, new: &str) {
    b.warn(
        "detect-parse",
        format!("keyword '{old}' is one of Suricata 7, which Suricata 8 does not have. Use '{new}' instead."),
    );
}

/// Adds the check that the buffer equals `text`. The current sticky buffer stays selected.
fn is(b: &mut Builder<'_>, buffer: &str, text: &[u8]) -> Result<(), Fail> {
    let buffer = self::buffer(buffer)?;
    need_protocol(b, buffer.protocols, buffer.name);
    b.note(buffer)?;
    let group = b.group_of(buffer.name, Some(buffer));
    let content = Content { bytes: text.to_vec(), ends_with: true, ..Content::default() };
    if let Some(list) = b.list(group, None) {
        list.push(BufferCheck::Bsize(Compare::Equal(text.len() as u64)));
        list.push(BufferCheck::Content(content));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ast::Rule;
    use crate::context::Context;
    use crate::loader::Loader;

    fn rule(options: &str) -> Option<Rule> {
        let context = Context { available: ["ssh".to_owned(), "app-layer".to_owned()].into(), ..Context::default() };
        let mut loader = Loader::new(&context);
        loader.load_str(&format!("alert ssh any any -> any any ({options} sid:1;)\n"), "t.rules");
        loader.finish().rules.pop()
    }

    #[test]
    fn versions_are_all_of_a_buffer() {
        for (options, buffer, text) in [
            ("ssh.protoversion:2.0;", "ssh.proto", "2.0"),
            ("ssh.protoversion:\"1\";", "ssh.proto", "1"),
            ("ssh.softwareversion:OpenSSH_7;", "ssh.software", "OpenSSH_7"),
        ] {
            let r = rule(options).unwrap();
            let [b] = r.buffers.as_slice() else { panic!("{options}: {:?}", r.buffers) };
            let [BufferCheck::Bsize(Compare::Equal(n)), BufferCheck::Content(c)] = b.checks.as_slice() else {
                panic!("{options}: {:?}", b.checks);
            };
            assert_eq!((&*b.buffer, &*c.bytes, *n), (buffer, text.as_bytes(), text.len() as u64));
            assert!(c.ends_with && !c.nocase);
        }
        let r = rule("ssh.protoversion:2_compat;").unwrap();
        assert!(matches!(r.checks.as_slice(), [Check::Number { keyword: "ssh.protoversion", .. }]), "{:?}", r.checks);
        // They do not change the sticky buffer.
        let r = rule("ssh.software; ssh.protoversion:2.0; content:\"x\";").unwrap();
        assert_eq!(r.buffers.iter().map(|b| &*b.buffer).collect::<Vec<_>>(), ["ssh.software", "ssh.proto"]);
    }

    #[test]
    fn what_is_none_is_an_error() {
        for options in [
            "ssh.protoversion:>1;",
            "ssh.protoversion:2_Compat;",
            "ssh.protoversion:.5;",
            "ssh.softwareversion:!x;",
            "ssh.softwareversion;",
        ] {
            assert_eq!(rule(options), None, "{options}");
        }
    }
}
