//! Contents for buffers whose text has a form that its protocol declares ([`Form`]): digests and serial numbers.

use margay_app::Form;

use crate::ast::{BufferCheck, Content};
use crate::builder::Builder;
use crate::error::Fail;

/// Digits of an MD5 digest.
const MD5: usize = 32;
/// Digits of a SHA-1 fingerprint with colons between them.
const FINGERPRINT: usize = 59;

/// Converts contents for these buffers to the buffer's case, and rejects contents that can never match.
pub(crate) fn fold(b: &mut Builder<'_>) -> Result<(), Fail> {
    let sid = b.rule.sid;
    let mut redundant = Vec::new();
    for g in b.groups.iter_mut().filter(|g| g.checks.transforms.is_empty()) {
        let Some(info) = g.info else { continue };
        let Some((module, upper)) = case(info.form) else { continue };
        for c in &mut g.checks.checks {
            let BufferCheck::Content(c) = c else { continue };
            if c.nocase {
                redundant.push((info.name, module, upper));
            }
            check(info.name, info.form, c, sid)?;
            if upper {
                c.bytes.make_ascii_uppercase();
            } else {
                c.bytes.make_ascii_lowercase();
            }
        }
    }
    for (name, module, upper) in redundant {
        let case = if upper { "uppercased" } else { "lowercased" };
        b.warn(
            module,
            format!(
                "rule {sid}: {name} should not be used together with nocase, since the rule is automatically {case} \
                 anyway which makes nocase redundant."
            ),
        );
    }
    Ok(())
}

/// The module for messages, and whether letters are in upper case; `None` if they may be in either.
const fn case(form: Form) -> Option<(&'static str, bool)> {
    match form {
        Form::Any | Form::Host | Form::Method | Form::Version => None,
        Form::Md5 { module, .. } | Form::Fingerprint { module } => Some((module, false)),
        Form::Serial { module } => Some((module, true)),
    }
}

/// Rejects a content that a buffer of this form can never have.
fn check(buffer: &str, form: Form, c: &Content, sid: u32) -> Result<(), Fail> {
    let never = |module, what: String| Err(Fail::warned(module, format!("rule {sid}: {what}")));
    let no_colons = |module| {
        let what = format!(
            "No colon delimiters ':' detected in content after {buffer}. This rule will therefore never match."
        );
        never(module, what)
    };
    let length = c.bytes.len();
    let colons = c.bytes.contains(&b':');
    let hex = c.bytes.iter().all(u8::is_ascii_hexdigit);
    match form {
        Form::Fingerprint { module } if length != FINGERPRINT => never(
            module,
            "Invalid length of the specified fingerprint. This rule will therefore never match.".to_owned(),
        ),
        Form::Fingerprint { module } if !colons => no_colons(module),
        // One byte has no colon.
        Form::Serial { module } if !colons && length > 2 => no_colons(module),
        Form::Md5 { module, called, .. } if length != MD5 => never(
            module,
            format!(
                "Invalid length of the specified {called} (should be 32 characters long). This rule will therefore never \
                 match."
            ),
        ),
        Form::Md5 { module, strict: true, .. } if !hex => Err(Fail::new(
            module,
            format!("rule {sid}: Invalid {buffer} string: there is a character that is not hexadecimal."),
        )),
        Form::Md5 { module, .. } if !hex => never(
            module,
            format!(
                "Invalid {buffer} string (should be string of hexadecimal characters).This rule will therefore never match."
            ),
        ),
        _ => Ok(()),
    }
}
