//! Tags of field names: a message is asked for many names that it does not have, so most comparisons must cost little.

/// A value that equal names share, in any case, and few others do: most comparisons need nothing more. It is valid only for
/// names without null bytes.
#[inline]
pub(crate) const fn tag(name: &[u8]) -> u32 {
    let len = name.len();
    if len == 0 {
        return 0;
    }
    (len as u32) << 24 ^ letter(name, 0) << 16 ^ letter(name, len / 2) << 8 ^ letter(name, len - 1)
}

/// The byte at a place, in lower case if it is a letter.
#[inline]
const fn letter(name: &[u8], at: usize) -> u32 {
    if at < name.len() { (name[at] | 0x20) as u32 } else { 0 }
}

/// The bit of a name with this [`tag`] in a set of names. The set of a message may have the bit of an absent name, and always
/// has those of present ones.
#[inline]
pub(crate) const fn bit(tag: u32) -> u64 {
    1 << (tag.wrapping_mul(0x9e37_79b1) >> 26)
}

/// Eight letters in lower case.
pub(crate) const fn lower(word: u64) -> u64 {
    const fn each(b: u8) -> u64 {
        u64::from_le_bytes([b; 8])
    }
    let low = word & each(0x7f);
    // The highest bit of each byte says whether it is at least `A`, and whether it is beyond `Z`.
    let letters = (low + each(0x80 - b'A')) ^ (low + each(0x7f - b'Z'));
    word | (letters & !word & each(0x80)) >> 2
}

/// A text of four to seven bytes as a word: its first four and its last four, which overlap.
#[inline]
fn short(text: &[u8]) -> Option<u64> {
    let (first, last) = (text.first_chunk::<4>()?, text.last_chunk::<4>()?);
    Some(u64::from(u32::from_le_bytes(*first)) << 32 | u64::from(u32::from_le_bytes(*last)))
}

/// Whether two names are equal in any case: a few words each, where a comparison byte by byte takes ten times as long.
#[inline]
pub(crate) fn equal(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let word = |w: &[u8; 8]| lower(u64::from_le_bytes(*w));
    let (Some(last_a), Some(last_b)) = (a.last_chunk::<8>(), b.last_chunk::<8>()) else {
        return match (short(a), short(b)) {
            (Some(a), Some(b)) => lower(a) == lower(b),
            _ => a.eq_ignore_ascii_case(b),
        };
    };
    // The last word overlaps the one before it.
    let (words_a, words_b) = (a.as_chunks::<8>().0, b.as_chunks::<8>().0);
    word(last_a) == word(last_b) && words_a.iter().zip(words_b).all(|(a, b)| word(a) == word(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn equal_is_equal_in_any_case(a in "[aAzZ@\\[`{\\x00é]{0,20}", b in "[aAzZ@\\[`{\\x00é]{0,20}") {
            for (a, b) in [(&a, &b), (&a, &a.to_ascii_uppercase()), (&a, &a.replace('z', "{"))] {
                proptest::prop_assert_eq!(equal(a.as_bytes(), b.as_bytes()), a.eq_ignore_ascii_case(b));
            }
        }
    }

    #[test]
    fn equal_names_have_the_same_tag() {
        for (a, b) in [("Content-Type", "content-type"), ("X", "x"), ("", ""), ("a[b", "A[B"), ("Ab", "aB")] {
            assert_eq!(tag(a.as_bytes()), tag(b.as_bytes()), "{a}");
        }
        assert_ne!(tag(b"Accept-Encoding"), tag(b"Accept-Language"));
    }

    /// The names that the parser asks every message for do not share bits, so that one of them does not hide that another one
    /// is absent.
    #[test]
    fn names_of_the_parser_have_bits_of_their_own() {
        let names: [&[u8]; 8] = [
            b"content-length",
            b"transfer-encoding",
            b"content-encoding",
            b"content-range",
            b"content-disposition",
            b"content-type",
            b"authorization",
            b"host",
        ];
        let bits = names.iter().fold(0u64, |bits, name| bits | bit(tag(name)));
        assert_eq!(bits.count_ones() as usize, names.len());
    }
}
