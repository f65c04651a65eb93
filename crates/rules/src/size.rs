//! Numbers with a unit.

/// A decimal or `0x` number with an optional unit (`kb`, `kib`, `mb`, `mib`, `gb`, `gib`).
pub(crate) fn unsigned(s: &str) -> Option<u64> {
    let s = s.trim();
    let (digits, radix) = match s.strip_prefix("0x").or_else(|| s.strip_prefix("0X")) {
        Some(h) => (h, 16),
        None => (s, 10),
    };
    let end = digits.bytes().position(|b| !(b as char).is_digit(radix)).unwrap_or(digits.len());
    let (digits, mut unit) = digits.split_at_checked(end)?;
    // In a hexadecimal number, a `b` is a digit, as in Suricata.
    unit = unit.trim();
    let n = u64::from_str_radix(digits, radix).ok()?;
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" => 1,
        "kb" | "kib" => 1 << 10,
        "mb" | "mib" => 1 << 20,
        "gb" | "gib" => 1 << 30,
        _ => return None,
    };
    n.checked_mul(factor)
}
