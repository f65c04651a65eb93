//! Counting.

/// Number of lines.
pub(crate) fn lines(data: &[u8]) -> u64 {
    data.iter().filter(|&&b| b == b'\n').count() as u64
}
