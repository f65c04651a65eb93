//! Contents that a buffer can never have, because its text always has another form ([`Form`]). `digests` checks those of digests.

use margay_app::Form;

use crate::ast::Content;
use crate::error::{Fail, fail};

/// Rejects a content of rule `sid` that a buffer of this form can never have.
///
/// # Errors
/// The reason.
pub(crate) fn check(form: Form, c: &Content, sid: u32) -> Result<(), Fail> {
    match form {
        Form::Host => host(c, sid),
        Form::Method => method(c),
        Form::Version => version(c),
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

/// A version has no space.
fn version(c: &Content) -> Result<(), Fail> {
    match c.bytes.contains(&b' ') {
        true => fail("detect-http-protocol", "Invalid http.protocol string containing a space"),
        false => Ok(()),
    }
}
