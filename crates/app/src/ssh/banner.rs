//! The banner (RFC 4253 section 4.2): `SSH-protoversion-softwareversion SP comments CR LF`.

/// The first bytes of a banner.
pub(super) const PREFIX: &[u8] = b"SSH-";

/// A banner's parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Banner<'a> {
    /// Protocol version; never empty.
    pub proto: &'a [u8],
    /// The software, without comments; may be empty. If it begins with a space, which is invalid, it includes the rest of the
    /// line.
    pub software: &'a [u8],
}

/// The content of a line, up to the first CR.
pub(super) fn content(line: &[u8]) -> &[u8] {
    line.split(|&b| b == b'\r').next().unwrap_or(line)
}

/// Reads the content of a banner; `None` if it has another beginning, no version, or no second hyphen.
pub(super) fn parse(content: &[u8]) -> Option<Banner<'_>> {
    let rest = content.strip_prefix(PREFIX)?;
    let hyphen = rest.iter().position(|&b| b == b'-').filter(|&n| n > 0)?;
    let (proto, software) = (rest.get(..hyphen)?, rest.get(hyphen + 1..)?);
    let end = software.iter().position(|&b| b == b' ').filter(|&n| n > 0).unwrap_or(software.len());
    Some(Banner { proto, software: software.get(..end)? })
}

/// Whether this data is, or may become, the beginning of a banner.
pub(super) fn may_begin(data: &[u8]) -> bool {
    let n = data.len().min(PREFIX.len());
    data.get(..n) == PREFIX.get(..n)
}

/// Whether a protocol version is 2, or the one that announces 2 as well (RFC 4253 section 5.1).
pub(super) fn is_compatible_with_2(proto: &[u8]) -> bool {
    proto.first() == Some(&b'2') || proto == b"1.99"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts() {
        for (line, want) in [
            (&b"SSH-2.0-OpenSSH_7.4"[..], Some((&b"2.0"[..], &b"OpenSSH_7.4"[..]))),
            (b"SSH-1.99-a-b_c x y", Some((b"1.99", b"a-b_c"))),
            (b"SSH-2.0-", Some((b"2.0", b""))),
            (b"SSH-2.0- y z", Some((b"2.0", b" y z"))),
            (b"SSH- 2-x\0y", Some((b" 2", b"x\0y"))),
            (b"SSH--x", None),
            (b"SSH-", None),
            (b"SSH-2.0", None),
            (b"ssh-2.0-x", None),
            (b"", None),
        ] {
            assert_eq!(parse(line).map(|b| (b.proto, b.software)), want, "{}", line.escape_ascii());
        }
    }

    #[test]
    fn lines() {
        assert_eq!(content(b"SSH-2.0-a\rb\r"), b"SSH-2.0-a");
        assert_eq!(content(b"SSH-2.0-a"), b"SSH-2.0-a");
        assert_eq!(content(b"\r"), b"");
    }

    #[test]
    fn beginnings_and_versions() {
        assert!(may_begin(b"") && may_begin(b"SS") && may_begin(b"SSH-x") && !may_begin(b"SX") && !may_begin(b"ssh-"));
        for (v, want) in [("2.0", true), ("2", true), ("1.99", true), ("1.5", false), ("1.990", false), ("", false)] {
            assert_eq!(is_compatible_with_2(v.as_bytes()), want, "{v}");
        }
    }
}
