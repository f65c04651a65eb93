//! SSL and TLS versions as sent, and their names.

use std::fmt;

/// A version as two bytes: SSL 2.0 is 0x0200, SSL 3.0 is 0x0300, TLS 1.0 is 0x0301.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Version(pub u16);

impl Version {
    /// SSL 2.0.
    pub const SSL2: Version = Version(0x0200);
    /// SSL 3.0 (RFC 6101).
    pub const SSL3: Version = Version(0x0300);
    /// TLS 1.2 (RFC 5246).
    pub const TLS12: Version = Version(0x0303);
    /// TLS 1.3 (RFC 8446).
    pub const TLS13: Version = Version(0x0304);

    /// Whether the version is not known.
    pub const fn is_unknown(self) -> bool {
        self.0 == 0
    }

    /// Whether it is TLS 1.3 or one of its drafts.
    pub const fn is_13(self) -> bool {
        self.0 == 0x0304 || matches!(self.0 >> 8, 0x7f | 0xfb)
    }

    /// Whether it is valid in a record: SSL 3.0 to TLS 1.3, and its drafts.
    pub const fn is_of_record(self) -> bool {
        matches!(self.0, 0x0300..=0x0304) || matches!(self.0 >> 8, 0x7f | 0xfb)
    }

    /// Whether some implementation accepts a record with it. RFC 8446 section 5.1 says to ignore a record's version: OpenSSL
    /// accepts any with the major version 3, and Go any below 0x1000 before the version is negotiated.
    pub const fn is_read(self) -> bool {
        self.0 < 0x1000 || self.is_of_record()
    }

    /// Whether it is a GREASE value (RFC 8701).
    pub const fn is_grease(self) -> bool {
        is_grease(self.0)
    }
}

/// Whether an extension, cipher suite, group or version number is a GREASE value (RFC 8701).
pub const fn is_grease(value: u16) -> bool {
    value & 0x0f0f == 0x0a0a && value >> 8 == value & 0xff
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            0 => "UNDETERMINED",
            0x0200 => "SSLv2",
            0x0300 => "SSLv3",
            0x0301 => "TLSv1",
            0x0302 => "TLS 1.1",
            0x0303 => "TLS 1.2",
            0x0304 => "TLS 1.3",
            // The low byte is the number of the draft. Drafts before 16 share a name.
            0x7f00..=0x7f0f => "TLS 1.3 draft-<16",
            0xfb17 => "TLS 1.3 draft-23-fb",
            0xfb1a => "TLS 1.3 draft-26-fb",
            v if v >> 8 == 0x7f => return write!(f, "TLS 1.3 draft-{}", v & 0xff),
            v => return write!(f, "0x{v:04x}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (v, name) in [
            (0, "UNDETERMINED"),
            (0x0301, "TLSv1"),
            (0x0304, "TLS 1.3"),
            (0x7f0e, "TLS 1.3 draft-<16"),
            (0x7f1c, "TLS 1.3 draft-28"),
            (0x1234, "0x1234"),
        ] {
            assert_eq!(Version(v).to_string(), name);
        }
        assert!(is_grease(0x0a0a) && is_grease(0xfafa) && !is_grease(0x0a1a) && !is_grease(0x1301));
    }
}
