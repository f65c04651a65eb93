//! Contents for buffers of digests and serial numbers. Those buffers are in one case and have one form.

use crate::ast::{BufferCheck, Content};
use crate::builder::Builder;
use crate::error::Fail;

/// A buffer whose text is in one case.
struct Digest {
    buffer: &'static str,
    module: &'static str,
    upper: bool,
}

const DIGESTS: &[Digest] = &[
    Digest { buffer: "ja3.hash", module: "detect-tls-ja3-hash", upper: false },
    Digest { buffer: "ja3s.hash", module: "detect-tls-ja3s-hash", upper: false },
    Digest { buffer: "ssh.hassh", module: "detect-ssh-hassh", upper: false },
    Digest { buffer: "ssh.hassh.server", module: "detect-ssh-hassh-server", upper: false },
    Digest { buffer: "tls.cert_fingerprint", module: "detect-tls-cert-fingerprint", upper: false },
    Digest { buffer: "tls.cert_serial", module: "detect-tls-cert-serial", upper: true },
];

/// Digits of a SHA-1 fingerprint with colons between them.
const FINGERPRINT: usize = 59;

/// Converts contents for these buffers to the buffer's case, and rejects contents that can never match.
pub(crate) fn fold(b: &mut Builder<'_>) -> Result<(), Fail> {
    let sid = b.rule.sid;
    let mut redundant = Vec::new();
    for g in b.groups.iter_mut().filter(|g| g.checks.transforms.is_empty()) {
        let Some(d) = DIGESTS.iter().find(|d| d.buffer == g.checks.buffer) else { continue };
        for c in &mut g.checks.checks {
            let BufferCheck::Content(c) = c else { continue };
            if c.nocase {
                redundant.push(d);
            }
            d.check(c, sid)?;
            if d.upper {
                c.bytes.make_ascii_uppercase();
            } else {
                c.bytes.make_ascii_lowercase();
            }
        }
    }
    for d in redundant {
        let case = if d.upper { "uppercased" } else { "lowercased" };
        b.warn(
            d.module,
            format!(
                "rule {sid}: {} should not be used together with nocase, since the rule is automatically {case} anyway \
                 which makes nocase redundant.",
                d.buffer
            ),
        );
    }
    Ok(())
}

impl Digest {
    fn check(&self, c: &Content, sid: u32) -> Result<(), Fail> {
        let never = |what: String| Err(Fail::warned(self.module, format!("rule {sid}: {what}")));
        let length = c.bytes.len();
        let hex = c.bytes.iter().all(u8::is_ascii_hexdigit);
        let colons = c.bytes.contains(&b':');
        let no_colons = || {
            format!(
                "No colon delimiters ':' detected in content after {}. This rule will therefore never match.",
                self.buffer
            )
        };
        match self.buffer {
            "tls.cert_fingerprint" if length != FINGERPRINT => {
                never("Invalid length of the specified fingerprint. This rule will therefore never match.".to_owned())
            }
            "tls.cert_fingerprint" if !colons => never(no_colons()),
            // One byte has no colon.
            "tls.cert_serial" if !colons && length > 2 => never(no_colons()),
            "tls.cert_fingerprint" | "tls.cert_serial" => Ok(()),
            "ja3.hash" | "ja3s.hash" if length != 32 => never(format!(
                "Invalid length of the specified JA3{} hash (should be 32 characters long). This rule will therefore \
                 never match.",
                if self.buffer == "ja3.hash" { "" } else { "S" }
            )),
            "ja3.hash" | "ja3s.hash" if !hex => Err(Fail::new(
                self.module,
                format!("rule {sid}: Invalid {} string: there is a character that is not hexadecimal.", self.buffer),
            )),
            name if length != 32 => never(format!(
                "Invalid length of the specified {name} (should be 32 characters long). This rule will therefore never \
                 match."
            )),
            name if !hex => never(format!(
                "Invalid {name} string (should be string of hexadecimal characters).This rule will therefore never match."
            )),
            _ => Ok(()),
        }
    }
}
