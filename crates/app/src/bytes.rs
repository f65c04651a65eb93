//! Integers at a place of a message; `None` where it ends before.

/// The two bytes at `at`, the highest first.
pub fn be16(data: &[u8], at: usize) -> Option<u16> {
    data.get(at..)?.first_chunk().map(|b| u16::from_be_bytes(*b))
}

/// The four bytes at `at`, the highest first.
pub fn be32(data: &[u8], at: usize) -> Option<u32> {
    data.get(at..)?.first_chunk().map(|b| u32::from_be_bytes(*b))
}

/// The two bytes at `at`, the lowest first.
pub fn le16(data: &[u8], at: usize) -> Option<u16> {
    data.get(at..)?.first_chunk().map(|b| u16::from_le_bytes(*b))
}

/// The four bytes at `at`, the lowest first.
pub fn le32(data: &[u8], at: usize) -> Option<u32> {
    data.get(at..)?.first_chunk().map(|b| u32::from_le_bytes(*b))
}
