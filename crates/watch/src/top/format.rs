//! Numbers for people: few digits, with a unit.

/// A count with a prefix of a thousand: `12.3k`.
pub(super) fn count(n: f64) -> String {
    scaled(n, 1000.0, &["", "k", "M", "G", "T", "P"])
}

/// Bytes with a prefix of 1024: `1.5 MiB`.
pub(super) fn bytes(n: f64) -> String {
    scaled(n, 1024.0, &[" B", " KiB", " MiB", " GiB", " TiB", " PiB"])
}

/// Bits per second.
pub(super) fn bits(n: f64) -> String {
    scaled(n, 1000.0, &[" bit/s", " kbit/s", " Mbit/s", " Gbit/s", " Tbit/s"])
}

fn scaled(n: f64, step: f64, units: &[&str]) -> String {
    let mut n = n.max(0.0);
    let mut unit = 0;
    // A value that rounds up to four digits gets the next unit.
    while n >= step - 0.5 && unit + 1 < units.len() {
        n /= step;
        unit += 1;
    }
    let name = units.get(unit).unwrap_or(&"");
    let whole = n.fract() < 0.05 || n >= 99.95;
    if whole && (unit == 0 || n >= 99.95) || n == 0.0 { format!("{n:.0}{name}") } else { format!("{n:.1}{name}") }
}

/// Seconds as days, hours, minutes: `3d 04:05:06`.
pub(super) fn duration(seconds: u64) -> String {
    let (d, h, m, s) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    if d > 0 { format!("{d}d {h:02}:{m:02}:{s:02}") } else { format!("{h:02}:{m:02}:{s:02}") }
}

/// At most `width` characters, with `…` for the cut end; control characters are shown as `·`.
pub(super) fn cut(text: &str, width: usize) -> String {
    let plain = |c: char| if c.is_control() { '·' } else { c };
    if text.chars().count() <= width {
        return text.chars().map(plain).collect();
    }
    let mut out: String = text.chars().take(width.saturating_sub(1)).map(plain).collect();
    out.push('…');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        for (n, want) in [
            (0.0, "0"),
            (7.0, "7"),
            (0.25, "0.2"),
            (999.0, "999"),
            (999.7, "1.0k"),
            (12_345.0, "12.3k"),
            (123_456.0, "123k"),
            (-3.0, "0"),
        ] {
            assert_eq!(count(n), want);
        }
        assert_eq!((bytes(1536.0), bits(2.5e9)), ("1.5 KiB".into(), "2.5 Gbit/s".into()));
        assert_eq!((duration(59), duration(90_061)), ("00:00:59".into(), "1d 01:01:01".into()));
        assert_eq!((cut("abcdef", 4), cut("a\u{1b}[2J", 9)), ("abc…".into(), "a·[2J".into()));
    }
}
