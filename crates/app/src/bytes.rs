//! Integers at an offset of a message; `None` if the message ends before them.

/// The two bytes at `at`, big endian.
pub fn be16(data: &[u8], at: usize) -> Option<u16> {
    data.get(at..)?.first_chunk().map(|b| u16::from_be_bytes(*b))
}

/// The four bytes at `at`, big endian.
pub fn be32(data: &[u8], at: usize) -> Option<u32> {
    data.get(at..)?.first_chunk().map(|b| u32::from_be_bytes(*b))
}

/// The two bytes at `at`, little endian.
pub fn le16(data: &[u8], at: usize) -> Option<u16> {
    data.get(at..)?.first_chunk().map(|b| u16::from_le_bytes(*b))
}

/// The four bytes at `at`, little endian.
pub fn le32(data: &[u8], at: usize) -> Option<u32> {
    data.get(at..)?.first_chunk().map(|b| u32::from_le_bytes(*b))
}
