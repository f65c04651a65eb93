//! The `Content-Encoding` header (RFC 9110 section 8.4), parsed as leniently as clients do.

use super::{Coding, MAX_LAYERS};

/// The codings in a `Content-Encoding` value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Codings {
    /// Codings in the order of decoding: the last one named is first.
    pub list: Vec<Coding>,
    /// There are more codings than allowed; the rest is dropped (event `too_many_encoding_layers`).
    pub too_many: bool,
    /// A coding is unknown, or only resembles a known one (event `abnormal_ce_header`).
    pub abnormal: bool,
}

fn contains(token: &[u8], name: &[u8]) -> bool {
    token.windows(name.len()).any(|w| w.eq_ignore_ascii_case(name))
}

/// Parses a `Content-Encoding` value; several headers must be joined with commas. Commas and white space separate tokens. A
/// token that contains `gzip` or `deflate` counts as that coding. An unknown one is skipped but counts as a layer. The limit is
/// `max_layers`, and 0 is none but [`MAX_LAYERS`].
pub fn codings(value: &[u8], max_layers: u8) -> Codings {
    let mut found = Codings::default();
    let max = if max_layers == 0 { MAX_LAYERS } else { usize::from(max_layers).min(MAX_LAYERS) };
    let tokens = value.split(|&b| matches!(b, b',' | b' ' | b'\t' | b'\r' | b'\n')).filter(|t| !t.is_empty());
    let mut layers = 0;
    for token in tokens {
        if token.eq_ignore_ascii_case(b"identity") {
            // It does not count as a layer: curl accepts any number of it.
            found.abnormal = true;
            continue;
        }
        if layers == max {
            found.too_many = true;
            break;
        }
        layers += 1;
        let is = |names: &[&str]| names.iter().any(|n| token.eq_ignore_ascii_case(n.as_bytes()));
        let coding = if is(&["gzip", "x-gzip"]) {
            Coding::Gzip
        } else if is(&["deflate", "x-deflate"]) {
            Coding::Deflate
        } else if is(&["br"]) {
            Coding::Brotli
        } else if is(&["lzma"]) {
            Coding::Lzma
        } else if is(&["none", "inflate"]) {
            continue;
        } else {
            found.abnormal = true;
            if contains(token, b"gzip") {
                Coding::Gzip
            } else if contains(token, b"deflate") {
                Coding::Deflate
            } else {
                continue;
            }
        };
        found.list.push(coding);
    }
    found.list.reverse();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use Coding::{Brotli, Deflate, Gzip, Lzma};

    #[test]
    fn values_as_clients_read_them() {
        let cases: [(&[u8], &[Coding], bool, bool); 26] = [
            (b"gzip", &[Gzip], false, false),
            (b"X-GzIp", &[Gzip], false, false),
            (b"x-deflate", &[Deflate], false, false),
            (b" br ", &[Brotli], false, false),
            (b"lzma", &[Lzma], false, false),
            (b"", &[], false, false),
            (b" , ,", &[], false, false),
            (b"none", &[], false, false),
            (b"inflate,gzip", &[Gzip], false, false),
            (b"identity", &[], false, true),
            (b"identity,gzip", &[Gzip], false, true),
            (b"identity,identity,gzip", &[Gzip], false, true),
            (b"gzip,identity", &[Gzip], false, true),
            (b"gzip,", &[Gzip], false, false),
            (b",gzip", &[Gzip], false, false),
            (b"gzip;q=1", &[Gzip], false, true),
            (b"x gzip", &[Gzip], false, true),
            (b": deflate", &[Deflate], false, true),
            (b"\x0bgzip\x0c", &[Gzip], false, true),
            (b"\0gzip", &[Gzip], false, true),
            (b"\"gzip\"", &[Gzip], false, true),
            (b"gzip\r\n ,\r\n deflate", &[Deflate, Gzip], false, false),
            (b"deflate;gzip", &[Gzip], false, true),
            (b"gzip,deflate,gzip", &[Deflate, Gzip], true, false),
            (b"foo,bar,gzip", &[], true, true),
            (b"brotli", &[], false, true),
        ];
        for (value, list, too_many, abnormal) in cases {
            let found = codings(value, 2);
            assert_eq!(found, Codings { list: list.to_vec(), too_many, abnormal }, "{}", value.escape_ascii());
        }
    }

    #[test]
    fn layers_have_a_limit_even_without_one() {
        assert_eq!(codings(b"gzip, gzip, gzip", 0), Codings { list: vec![Gzip; 3], too_many: false, abnormal: false });
        let many = codings(&b"gzip,".repeat(MAX_LAYERS + 1), 0);
        assert_eq!((many.list.len(), many.too_many), (MAX_LAYERS, true));
    }
}
