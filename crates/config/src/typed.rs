//! Converts values to booleans, numbers and sizes.

/// Reads `yes`, `true`, `on`, `1` and `no`, `false`, `off`, `0`, in any case.
///
/// # Errors
/// Names the value and the allowed values.
pub fn parse_bool(text: &str) -> Result<bool, String> {
    let is = |words: [&str; 4]| words.iter().any(|w| w.eq_ignore_ascii_case(text));
    if is(["yes", "true", "on", "1"]) {
        Ok(true)
    } else if is(["no", "false", "off", "0"]) {
        Ok(false)
    } else {
        Err(format!("'{text}' is neither yes nor no"))
    }
}

/// Reads a whole number: decimal, or hexadecimal after `0x`.
///
/// # Errors
/// Names the value and the allowed values.
pub fn parse_int(text: &str) -> Result<i64, String> {
    let trimmed = text.trim();
    let (negative, digits) = match trimmed.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, trimmed.strip_prefix('+').unwrap_or(trimmed)),
    };
    let (radix, digits) = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(rest) => (16, rest),
        None => (10, digits),
    };
    let number = if digits.starts_with(['+', '-']) { None } else { i128::from_str_radix(digits, radix).ok() };
    number
        .map(|n| if negative { -n } else { n })
        .and_then(|n| i64::try_from(n).ok())
        .ok_or_else(|| format!("'{text}' is not a whole number"))
}

/// Reads a number of bytes: digits, optionally with a fraction, optionally followed by a unit: `kb`, `mb`, `gb`, `tb`, `KiB`,
/// `MiB`, `GiB`, `TiB` (all powers of 1024, in any case, blanks before it allowed).
///
/// # Errors
/// Names the value and the allowed values.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let fail =
        || format!("invalid size argument '{text}': write a number of bytes, or one with kb, mb or gb as in '64mb'");
    let trimmed = text.trim();
    let end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(end);
    let shift = match unit.trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "kb" | "kib" => 10,
        "mb" | "mib" => 20,
        "gb" | "gib" => 30,
        "tb" | "tib" => 40,
        _ => return Err(fail()),
    };
    let factor = 1u64 << shift;
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor).ok_or_else(|| format!("'{text}' is too large"));
    }
    // A fraction: digits on both sides of one point.
    let (before, after) = number.split_once('.').ok_or_else(fail)?;
    if before.is_empty() || after.is_empty() || after.contains('.') {
        return Err(fail());
    }
    let bytes = number.parse::<f64>().map_err(|_| fail())? * factor as f64;
    if bytes < u64::MAX as f64 { Ok(bytes as u64) } else { Err(format!("'{text}' is too large")) }
}

/// Reads a finite number.
///
/// # Errors
/// Names the value and the allowed values.
pub fn parse_float(text: &str) -> Result<f64, String> {
    text.trim().parse::<f64>().ok().filter(|n| n.is_finite()).ok_or_else(|| format!("'{text}' is not a number"))
}

/// Reads a percentage from 0 to 100, with or without `%`.
///
/// # Errors
/// Names the value and the allowed values.
pub fn parse_percent(text: &str) -> Result<f64, String> {
    let number = text.trim();
    let number = number.strip_suffix('%').unwrap_or(number);
    match parse_float(number) {
        Ok(n) if (0.0..=100.0).contains(&n) => Ok(n),
        _ => Err(format!("'{text}' is not a percentage from 0 to 100")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truth_values() {
        for yes in ["yes", "Yes", "TRUE", "on", "1"] {
            assert_eq!(parse_bool(yes), Ok(true), "{yes}");
        }
        for no in ["no", "False", "OFF", "0"] {
            assert_eq!(parse_bool(no), Ok(false), "{no}");
        }
        assert_eq!(parse_bool("auto"), Err("'auto' is neither yes nor no".into()));
    }

    #[test]
    fn whole_numbers() {
        assert_eq!(parse_int("65535"), Ok(65535));
        assert_eq!(parse_int(" -3 "), Ok(-3));
        assert_eq!(parse_int("0xff"), Ok(255));
        assert_eq!(parse_int("-9223372036854775808"), Ok(i64::MIN));
        for bad in ["", "x", "1.5", "--1", "+-1", "0x", "9223372036854775808", "1 2"] {
            assert!(parse_int(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("64mb", 64 << 20),
            ("1 gb", 1 << 30),
            ("100KB", 100 << 10),
            ("2MiB", 2 << 20),
            ("1.5kb", 1536),
            (" 8kb ", 8192),
            ("1MB", 1 << 20),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for bad in ["", "suricata", "10xb", "-1", "1..5kb", ".5mb", "5.", "kb", "1e3", "99999999999gb", "1mb2", "10k"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn fractions_and_percentages() {
        assert_eq!(parse_float("1.5"), Ok(1.5));
        assert!(parse_float("nan").is_err());
        assert_eq!(parse_percent("30"), Ok(30.0));
        assert_eq!(parse_percent("12.5%"), Ok(12.5));
        assert!(parse_percent("101").is_err());
    }
}
