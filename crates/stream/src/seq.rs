//! Comparison of sequence numbers: 32 bits that wrap (RFC 9293 section 3.4).

/// Whether `a` is before `b`.
#[inline]
pub(crate) const fn lt(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}
/// Whether `a` equals `b` or is before it.
#[inline]
pub(crate) const fn leq(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) <= 0
}
/// Whether `a` is after `b`.
#[inline]
pub(crate) const fn gt(a: u32, b: u32) -> bool {
    lt(b, a)
}
/// Whether `a` equals `b` or is after it.
#[inline]
pub(crate) const fn geq(a: u32, b: u32) -> bool {
    leq(b, a)
}
/// The later one.
#[inline]
pub(crate) const fn max(a: u32, b: u32) -> u32 {
    if lt(a, b) { b } else { a }
}
/// The earlier one.
#[inline]
pub(crate) const fn min(a: u32, b: u32) -> u32 {
    if lt(a, b) { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wraps() {
        assert!(lt(0xffff_fff0, 5) && gt(5, 0xffff_fff0) && leq(7, 7) && geq(7, 7));
        assert_eq!((max(0xffff_fff0, 5), min(5, 0xffff_fff0)), (5, 0xffff_fff0));
    }
}
