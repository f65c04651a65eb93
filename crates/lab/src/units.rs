//! Parses and formats numbers with units: `250ms`, `10k`, `1.5gbit`.

use std::time::Duration;

/// Parses a duration: a number with `us`, `ms`, `s`, `m` or `h`; without a unit, seconds.
///
/// # Errors
/// A sentence about an invalid duration.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text);
    let scale = match unit {
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("'{text}' is no duration: a number with us, ms, s, m or h is expected")),
    };
    let seconds = number.parse::<f64>().map_err(|_| format!("'{text}' is no duration"))? * scale;
    Duration::try_from_secs_f64(seconds).map_err(|_| format!("'{text}' is no duration"))
}

fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    (&text[..end], text[end..].trim())
}

/// A sending rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rate {
    /// Packets a second.
    Packets(f64),
    /// Bits a second, counted in frames as captured.
    Bits(f64),
    /// A multiple of the recorded speed.
    Times(f64),
}

/// Parses a rate: a number with `pps`, `kpps`, `mpps`, `bit`, `kbit`, `mbit`, `gbit` (or `bps`…), or with `x` for a
/// multiple of the recorded speed. A number without a unit is packets a second, with `k` and `m` for thousands and
/// millions.
///
/// # Errors
/// A sentence about an invalid rate.
pub(crate) fn rate(text: &str) -> Result<Rate, String> {
    let wrong = || format!("'{text}' is no rate: 50kpps, 1.5gbit or 2x are");
    let (number, unit) = split(text);
    let number = number.parse::<f64>().map_err(|_| wrong())?;
    if !(number.is_finite() && number > 0.0) {
        return Err(format!("'{text}' is no rate: it has to be above zero"));
    }
    let unit = unit.to_lowercase();
    if unit == "x" {
        return Ok(Rate::Times(number));
    }
    let (bits, prefix) = match unit.as_str() {
        _ if unit.ends_with("pps") => (false, &unit[..unit.len() - 3]),
        _ if unit.ends_with("bit/s") => (true, &unit[..unit.len() - 5]),
        _ if unit.ends_with("bps") || unit.ends_with("bit") => (true, &unit[..unit.len() - 3]),
        _ => (false, unit.as_str()),
    };
    let scale = match prefix {
        "" => 1.0,
        "k" => 1e3,
        "m" => 1e6,
        "g" => 1e9,
        _ => return Err(wrong()),
    };
    Ok(if bits { Rate::Bits(number * scale) } else { Rate::Packets(number * scale) })
}

/// Formats a count for people: `12.3 k`, `1.50 M`.
pub(crate) fn short(value: f64) -> String {
    let (scale, unit) = match value.abs() {
        v if v >= 1e9 => (1e9, " G"),
        v if v >= 1e6 => (1e6, " M"),
        v if v >= 1e4 => (1e3, " k"),
        _ => (1.0, ""),
    };
    let value = value / scale;
    if value.fract() == 0.0 && value.abs() < 1e4 {
        format!("{value}{unit}")
    } else if value.abs() >= 100.0 {
        format!("{value:.0}{unit}")
    } else if value.abs() >= 10.0 {
        format!("{value:.1}{unit}")
    } else {
        format!("{value:.2}{unit}")
    }
}

/// Formats a time for people.
pub(crate) fn spoken(seconds: f64) -> String {
    match seconds {
        s if s < 90.0 => format!("{s:.0} s"),
        s if s < 5400.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_durations() {
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert!(duration("soon").is_err());
        assert!(duration("-1s").is_err());
        assert!(duration("3 parsecs").is_err());
    }

    #[test]
    fn reads_rates() {
        assert_eq!(rate("50kpps"), Ok(Rate::Packets(50e3)));
        assert_eq!(rate("10 k"), Ok(Rate::Packets(10e3)));
        assert_eq!(rate("1.5Gbit/s"), Ok(Rate::Bits(1.5e9)));
        assert_eq!(rate("100mbps"), Ok(Rate::Bits(100e6)));
        assert_eq!(rate("2x"), Ok(Rate::Times(2.0)));
        assert!(rate("fast").is_err());
        assert!(rate("0").is_err());
        assert!(rate("5 furlongs").is_err());
    }

    #[test]
    fn shortens() {
        assert_eq!(short(950.0), "950");
        assert_eq!(short(12_345.0), "12.3 k");
        assert_eq!(short(1_500_000.0), "1.50 M");
        assert_eq!(short(123_456.0), "123 k");
    }
}
