//! The `Content-Encoding` header (RFC 9110 section 8.4), read as generously as clients do.

use super::{Coding, MAX_LAYERS};

/// What a `Content-Encoding` value comes to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Codings {
    /// Codings in the order in which they are to be undone: the last one named first.
    pub list: Vec<Coding>,
    /// More codings than allowed; those behind are left out (event `too_many_encoding_layers`).
    pub too_many: bool,
    /// A coding that is not known, or only looks like one (event `abnormal_ce_header`).
    pub abnormal: bool,
}

fn contains(token: &[u8], name: &[u8]) -> bool {
    token.windows(name.len()).any(|w| w.eq_ignore_ascii_case(name))
}

/// Reads a `Content-Encoding` value; several headers are to be joined with commas in their order. Tokens are separated by
/// commas and white space. What has `gzip` or `deflate` anywhere in it is taken for that; what is not known is skipped, and
/// counts as a layer, of which there are `max_layers` at most (0 stands for [`MAX_LAYERS`]: whoever wants none does not ask).
pub fn codings(value: &[u8], max_layers: u8) -> Codings {
    let mut found = Codings::default();
    let max = if max_layers == 0 { MAX_LAYERS } else { usize::from(max_layers).min(MAX_LAYERS) };
    let tokens = value.split(|&b| matches!(b, b',' | b' ' | b'\t' | b'\r' | b'\n')).filter(|t| !t.is_empty());
    let mut layers = 0;
    for token in tokens {
        if token.eq_ignore_ascii_case(b"identity") {
            // It is no layer: curl takes any number of it.
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
