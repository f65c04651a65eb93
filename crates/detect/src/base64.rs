//! Base64 as `base64_decode` and `from_base64` read it: bad input ends decoding and keeps the output so far.

use margay_rules::ast::Base64Mode;

const BAD: u8 = 0xff;

const VALUES: [u8; 256] = margay_app::mime::base64_values(BAD);

/// Decodes `input` and appends at most `max` bytes to `out`.
///
/// - `Rfc4648` stops at the first byte outside the alphabet (including padding) and keeps the output before it. A last
///   group of two or three characters gives one or two bytes, padded or not. A last group of one character, which no encoder
///   writes, is an error: then there is no output at all, as in Suricata 8.0.6.
/// - `Rfc2045` skips bytes outside the alphabet; padding ends it.
/// - `Strict` gives nothing unless the input consists of whole, padded groups.
pub(crate) fn decode(input: &[u8], mode: Base64Mode, max: usize, out: &mut Vec<u8>) {
    if mode == Base64Mode::Strict && !strict(input) {
        return;
    }
    let before = out.len();
    let limit = before.saturating_add(max);
    let mut group = 0u32;
    let mut n = 0;
    for &c in input {
        let v = VALUES[usize::from(c)];
        if v == BAD {
            if c != b'=' && mode == Base64Mode::Rfc2045 {
                continue;
            }
            break;
        }
        group = group << 6 | u32::from(v);
        n += 1;
        if n == 4 {
            let [_, a, b, c] = group.to_be_bytes();
            out.extend_from_slice(&[a, b, c]);
            (group, n) = (0, 0);
            if out.len() >= limit {
                break;
            }
        }
    }
    match n {
        2 => out.push((group >> 4) as u8),
        3 => out.extend_from_slice(&[(group >> 10) as u8, (group >> 2) as u8]),
        1 if mode == Base64Mode::Rfc4648 => out.truncate(before),
        _ => {}
    }
    out.truncate(limit);
}

/// Whether the input has only groups of four, with padding only at the end and the unused bits zero.
fn strict(input: &[u8]) -> bool {
    let Some(padding) = input.iter().rev().take(3).position(|&c| c != b'=') else {
        return input.is_empty();
    };
    let body = input.get(..input.len() - padding).unwrap_or(&[]);
    let tail = match (padding, body.last().map(|&c| VALUES[usize::from(c)])) {
        (0, _) => true,
        (1, Some(v)) => v & 0x03 == 0,
        (2, Some(v)) => v & 0x0f == 0,
        _ => false,
    };
    input.len().is_multiple_of(4) && tail && body.iter().all(|&c| VALUES[usize::from(c)] != BAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(s: &str, mode: Base64Mode) -> String {
        let mut out = Vec::new();
        decode(s.as_bytes(), mode, 65536, &mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn rfc4648_keeps_what_came_before() {
        // As Suricata's base64_data shows them.
        for (from, to) in [
            ("aGVsbG8gd29ybGQ=", "hello world"),
            ("aGVsbG8=!d29ybGQ=", "hello"),
            ("aGVs\r\nbG8=", "hel"),
            ("aGVs bG8=", "hel"),
            ("aGV", "he"),
            ("aG", "h"),
            ("a", ""),
            ("!!!!", ""),
            (" aGVsbG8", ""),
            ("aGVsbG8", "hello"),
            ("aGVsb", ""),
            ("aGVs\x00bG8=", "hel"),
            ("aGVsb.G8=", ""),
            ("aGVsbG", "hell"),
            ("", ""),
        ] {
            assert_eq!(run(from, Base64Mode::Rfc4648), to, "{from:?}");
        }
    }

    #[test]
    fn rfc2045_skips_and_strict_refuses() {
        assert_eq!(run("Zm 9v Ym Fy", Base64Mode::Rfc2045), "foobar");
        assert_eq!(run("Zm 9v Ym Fy", Base64Mode::Rfc4648), "f");
        assert_eq!(run("Zm 9v Ym Fy", Base64Mode::Strict), "");
        assert_eq!(run("dGhpc2lzYXRlc3QK", Base64Mode::Strict), "thisisatest\n");
        assert_eq!(run("aGVsbG8=", Base64Mode::Strict), "hello");
        assert_eq!(run("aGVsbG8", Base64Mode::Strict), "");
        assert_eq!(run("aGVsbG9=", Base64Mode::Strict), "");
        assert_eq!(run("aG==bG8=", Base64Mode::Strict), "");
        assert_eq!(run("====", Base64Mode::Strict), "");
    }

    #[test]
    fn output_is_limited() {
        let mut out = b"x".to_vec();
        decode(b"aGVsbG8gd29ybGQ=", Base64Mode::Rfc4648, 4, &mut out);
        assert_eq!(out, b"xhell");
    }
}
