//! Hosts in the `Host` header and the request target, and their comparison.

use std::net::Ipv6Addr;

use super::uri::{Uri, cut, decode_percent, split_authority};

/// The longest host name, in bytes (RFC 1035, section 2.3.4).
const MAX_NAME: usize = 255;
/// The longest label of a name, in bytes.
const MAX_LABEL: usize = 63;

/// Appends the normalised `Host` value (`http.host`): lower case, without port; an IPv6 literal keeps its brackets.
/// Returns the port, if it is valid, and whether host and port are valid (`request_header_host_invalid`).
pub fn normalise_host(raw: &[u8], out: &mut Vec<u8>) -> (Option<u16>, bool) {
    let raw = raw.trim_ascii();
    if raw.first() == Some(&b'[') && !raw.contains(&b']') {
        return (None, false);
    }
    let (host, port) = split_authority(raw);
    let host = host.unwrap_or(&[]);
    let start = out.len();
    out.extend(host.trim_ascii_end().iter().map(u8::to_ascii_lowercase));
    let valid = valid_host(out.get(start..).unwrap_or(&[]));
    let port_number = port.map(parse_port);
    // After an IPv6 literal, only a port is valid.
    let tail = host.first() == Some(&b'[') && port.is_none() && raw.len() > host.len();
    (port_number.flatten(), valid && !tail && port_number != Some(None))
}

/// Appends the normalised host of a request target: percent-decoded, lower case, without trailing dots. Returns its port and
/// whether host and port are valid (`request_uri_host_invalid`). Appends nothing if the target has no host.
pub fn normalise_uri_host(uri: &Uri<'_>, out: &mut Vec<u8>) -> (Option<u16>, bool) {
    let Some(host) = uri.host else { return (None, true) };
    let start = out.len();
    out.extend_from_slice(host);
    decode_percent(out, start, false);
    if let Some(decoded) = out.get_mut(start..) {
        decoded.make_ascii_lowercase();
    }
    if host.first() != Some(&b'[') {
        while out.len() > start && out.last() == Some(&b'.') {
            out.pop();
        }
    }
    let port = uri.port.map(parse_port);
    (port.flatten(), valid_host(out.get(start..).unwrap_or(&[])) && port != Some(None))
}

/// Reads the target of a `CONNECT` request, which is only a host and a port (RFC 9112, section 3.2.3).
pub fn connect(raw: &[u8]) -> Uri<'_> {
    let (host, port) = split_authority(raw);
    Uri { host, port, ..Uri::default() }
}

/// Whether the request target and the `Host` header, both normalised and with their ports, name different hosts
/// (`host_header_ambiguous`). Ports are compared only if both have one.
pub fn ambiguous(uri: (&[u8], Option<u16>), header: (&[u8], Option<u16>)) -> bool {
    !uri.0.eq_ignore_ascii_case(header.0) || matches!((uri.1, header.1), (Some(a), Some(b)) if a != b)
}

/// Reads a port from 1 to 65535, with optional blanks around it.
fn parse_port(text: &[u8]) -> Option<u16> {
    let digits = text.trim_ascii();
    if digits.is_empty() || digits.len() > 10 {
        return None;
    }
    let mut port = 0u64;
    for &digit in digits {
        port = port * 10 + u64::from(digit.is_ascii_digit().then(|| digit - b'0')?);
    }
    u16::try_from(port).ok().filter(|&p| p != 0)
}

/// Whether it is an IPv6 literal in brackets, or dot-separated labels of letters, digits, `-` and `_`.
pub fn valid_host(host: &[u8]) -> bool {
    if let Some(literal) = host.strip_prefix(b"[") {
        return literal
            .strip_suffix(b"]")
            .and_then(|l| std::str::from_utf8(l).ok())
            .is_some_and(|l| l.parse::<Ipv6Addr>().is_ok());
    }
    if host.is_empty() || host.len() > MAX_NAME {
        return false;
    }
    let mut rest = host.strip_suffix(b".").unwrap_or(host);
    loop {
        let (label, after) = cut(rest, b'.').map_or((rest, None), |(l, a)| (l, Some(a)));
        let plain = label.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
        if label.is_empty() || label.len() > MAX_LABEL || !plain {
            return false;
        }
        match after {
            Some(a) => rest = a,
            None => return true,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::uri::split;
    use super::*;

    #[test]
    fn host_headers() {
        // Results of Suricata 7.0.10, but for capital letters, which it keeps in an IPv6 literal and before a port.
        let long = "a".repeat(64);
        for (raw, want, port, valid) in [
            ("Host.COM", "host.com", None, true),
            ("host.com.", "host.com.", None, true),
            ("host.com..", "host.com..", None, false),
            ("h:81", "h", Some(81), true),
            ("h:", "h", None, false),
            ("h:abc", "h", None, false),
            ("h:99999", "h", None, false),
            ("h:0", "h", None, false),
            ("h:+80", "h", None, false),
            ("h:80:80", "h", None, false),
            ("h :80", "h", Some(80), true),
            ("h: 80", "h", Some(80), true),
            ("h:8 0", "h", None, false),
            ("[::1]", "[::1]", None, true),
            ("[::1]:80", "[::1]", Some(80), true),
            ("[::1]x", "[::1]", None, false),
            ("[::1", "", None, false),
            ("[zz]", "[zz]", None, false),
            ("[1.2.3.4]", "[1.2.3.4]", None, false),
            ("[::FFFF:1.2.3.4]", "[::ffff:1.2.3.4]", None, true),
            ("[::1%eth0]", "[::1%eth0]", None, false),
            ("::1", "", None, false),
            (":80", "", Some(80), false),
            ("", "", None, false),
            ("a b", "a b", None, false),
            ("a_b", "a_b", None, true),
            ("-a", "-a", None, true),
            ("a..b", "a..b", None, false),
            (".a", ".a", None, false),
            (".", ".", None, false),
            ("a%41", "a%41", None, false),
            ("user@host", "user@host", None, false),
            ("1.2.3.4", "1.2.3.4", None, true),
            (&long, &long, None, false),
            (long.get(1..).unwrap(), long.get(1..).unwrap(), None, true),
        ] {
            let mut out = Vec::new();
            let got = normalise_host(raw.as_bytes(), &mut out);
            assert_eq!((out.as_slice(), got), (want.as_bytes(), (port, valid)), "{raw}");
        }
    }

    #[test]
    fn hosts_of_targets() {
        for (raw, want, port, valid) in [
            ("http://Host.COM./x", "host.com", None, true),
            ("http://h../x", "h", None, true),
            ("http://[zz]/x", "[zz]", None, false),
            ("http://host:80/x", "host", Some(80), true),
            ("http://h:abc/x", "h", None, false),
            ("http://u:p:q@h/x", "h", None, true),
            ("http://u@v@h/x", "v@h", None, false),
            ("http://%41/x", "a", None, true),
            ("http://a..b/x", "a..b", None, false),
            ("http://a\\b/x", "a\\b", None, false),
            ("http://[::1]:80/x", "[::1]", Some(80), true),
            ("http://[2001:DB8::1]/x", "[2001:db8::1]", None, true),
            ("http:///x", "", None, true),
            ("/x", "", None, true),
        ] {
            let mut out = Vec::new();
            let got = normalise_uri_host(&split(raw.as_bytes()), &mut out);
            assert_eq!((out.as_slice(), got), (want.as_bytes(), (port, valid)), "{raw}");
        }
        for (raw, want, port, valid) in [
            ("h:443", "h", Some(443), true),
            ("H.Com.:443", "h.com", Some(443), true),
            ("u@h:443", "u@h", Some(443), false),
            ("h:443/x?y", "h", None, false),
            ("/x", "/x", None, false),
            ("[::1]:443", "[::1]", Some(443), true),
        ] {
            let mut out = Vec::new();
            let got = normalise_uri_host(&connect(raw.as_bytes()), &mut out);
            assert_eq!((out.as_slice(), got), (want.as_bytes(), (port, valid)), "{raw}");
        }
    }

    #[test]
    fn same_host() {
        assert!(!ambiguous((b"h", None), (b"h", Some(90))));
        assert!(ambiguous((b"h", Some(80)), (b"h", Some(90))));
        assert!(!ambiguous((b"h", Some(80)), (b"h", Some(80))));
        assert!(ambiguous((b"h", None), (b"g", None)));
    }

    proptest! {
        #[test]
        fn never_panics_nor_grows(raw in proptest::collection::vec(any::<u8>(), 0..100)) {
            let mut out = Vec::new();
            normalise_host(&raw, &mut out);
            prop_assert!(out.len() <= raw.len());
        }
    }
}
