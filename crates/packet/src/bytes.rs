//! Reads big-endian numbers from bytes that may be too few: missing bytes read as 0.

/// The byte at `at`.
pub(crate) fn u8_at(b: &[u8], at: usize) -> u8 {
    b.get(at).copied().unwrap_or(0)
}

/// The 16-bit number at `at`, in network byte order.
pub(crate) fn u16_at(b: &[u8], at: usize) -> u16 {
    b.get(at..).and_then(|s| s.first_chunk()).map_or(0, |c| u16::from_be_bytes(*c))
}

/// The 32-bit number at `at`, in network byte order.
pub(crate) fn u32_at(b: &[u8], at: usize) -> u32 {
    b.get(at..).and_then(|s| s.first_chunk()).map_or(0, |c| u32::from_be_bytes(*c))
}

/// The `N` bytes at `at`; zeros if any of them is missing.
pub(crate) fn array_at<const N: usize>(b: &[u8], at: usize) -> [u8; N] {
    b.get(at..).and_then(|s| s.first_chunk()).copied().unwrap_or([0; N])
}
