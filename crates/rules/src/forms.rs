//! Contents for buffers whose text has a form that its protocol declares ([`Form`]): hosts, methods and versions are checked
//! ([`check`]), digests and serial numbers also brought into the case of the buffer ([`fold`]).

use margay_app::Form;

use crate::ast::{BufferCheck, Content};
use crate::builder::Builder;
use crate::error::{Fail, fail};

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
            digest(info.name, info.form, c, sid)?;
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
        Form::Any | Form::Host | Form::Method | Form::Version | Form::Digest { .. } => None,
        Form::Md5 { module, .. } | Form::Fingerprint { module } => Some((module, false)),
        Form::Serial { module } => Some((module, true)),
    }
}

/// Rejects a content that a digest or serial number can never have.
fn digest(buffer: &str, form: Form, c: &Content, sid: u32) -> Result<(), Fail> {
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

/// Rejects a content of rule `sid` that a buffer of this form can never have; [`fold`] checks digests and serial numbers.
///
/// # Errors
/// The reason.
pub(crate) fn check(form: Form, c: &Content, sid: u32) -> Result<(), Fail> {
    match form {
        Form::Host => host(c, sid),
        Form::Method => method(c),
        Form::Version => version(c),
        Form::Digest { module } => plain_digest(module, c),
        Form::Any | Form::Md5 { .. } | Form::Fingerprint { .. } | Form::Serial { .. } => Ok(()),
    }
}

/// A host is in lower case.
fn host(c: &Content, sid: u32) -> Result<(), Fail> {
    const M: &str = "detect-http-host";
    if c.nocase {
        return Err(Fail::warned(
            M,
            format!(
                "rule {sid}: http.host keyword specified along with \"nocase\". The hostname buffer is normalized to \
                 lowercase, specifying nocase is redundant."
            ),
        ));
    }
    if c.bytes.iter().any(u8::is_ascii_uppercase) {
        return Err(Fail::warned(
            M,
            format!(
                "rule {sid}: A pattern with uppercase characters detected for http.host. The hostname buffer is \
                 normalized to lowercase, please specify a lowercase pattern."
            ),
        ));
    }
    Ok(())
}

/// A method has no space around it.
fn method(c: &Content) -> Result<(), Fail> {
    const M: &str = "detect-http-method";
    if matches!(c.bytes.first(), Some(b' ' | b'\t')) {
        return fail(M, "http_method pattern with leading space");
    }
    if matches!(c.bytes.last(), Some(b' ' | b'\t')) {
        return fail(M, "http_method pattern with trailing space");
    }
    Ok(())
}

/// A digest has 32 hexadecimal digits.
fn plain_digest(module: &'static str, c: &Content) -> Result<(), Fail> {
    if c.bytes.len() != MD5 {
        return fail(
            module,
            "Invalid length of the specified hash (should be 32 characters long). This rule will therefore never match.",
        );
    }
    if !c.bytes.iter().all(u8::is_ascii_hexdigit) {
        return fail(module, "The hash has a character that is not hexadecimal. This rule will therefore never match.");
    }
    Ok(())
}

/// A version has no space.
fn version(c: &Content) -> Result<(), Fail> {
    match c.bytes.contains(&b' ') {
        true => fail("detect-http-protocol", "Invalid http.protocol string containing a space"),
        false => Ok(()),
    }
}
