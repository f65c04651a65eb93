//! Parses durations, sizes, rates and shares.

/// A requested rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rate {
    /// Bits of frames a second, counted from the Ethernet header, without FCS, preamble and gap.
    Bits(f64),
    /// Packets a second.
    Packets(f64),
}

fn split(text: &str) -> Option<(f64, String)> {
    let text = text.trim().replace('_', "");
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number = number.parse::<f64>().ok().filter(|n| n.is_finite())?;
    Some((number, unit.trim().to_ascii_lowercase()))
}

fn prefix(unit: &str) -> Option<(f64, &str)> {
    Some(match unit.as_bytes().first()? {
        b'k' => (1e3, &unit[1..]),
        b'm' => (1e6, &unit[1..]),
        b'g' => (1e9, &unit[1..]),
        b't' => (1e12, &unit[1..]),
        _ => (1.0, unit),
    })
}

/// Parses `2Gbps`, `100 Mbit/s`, `100kpps`, `5000 packets/s`.
pub(crate) fn rate(text: &str) -> Result<Rate, String> {
    let fail = || format!("'{text}' is not a rate; write for example 2Gbps, 100Mbit/s or 100kpps");
    let (number, unit) = split(text).ok_or_else(fail)?;
    if number <= 0.0 {
        return Err(format!("'{text}' is no rate at all; it must be more than 0"));
    }
    if matches!(unit.as_str(), "packets/s" | "p/s") {
        return Ok(Rate::Packets(number));
    }
    let (factor, rest) = prefix(&unit).ok_or_else(fail)?;
    match rest {
        "bps" | "bit/s" | "bit" | "b/s" => Ok(Rate::Bits(number * factor)),
        "pps" | "packets/s" | "p/s" => Ok(Rate::Packets(number * factor)),
        _ => Err(fail()),
    }
}

/// Parses a number of bytes: `600MB` (powers of 1000), `1GiB` (powers of 1024).
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let fail = || format!("'{text}' is not a size; write for example 600MB (powers of 1000) or 1GiB (powers of 1024)");
    let (number, unit) = split(text).ok_or_else(fail)?;
    let factor = match unit.as_str() {
        "" | "b" => 1.0,
        "k" | "kb" => 1e3,
        "m" | "mb" => 1e6,
        "g" | "gb" => 1e9,
        "t" | "tb" => 1e12,
        "kib" => 1024.0,
        "mib" => 1_048_576.0,
        "gib" => 1_073_741_824.0,
        "tib" => 1_099_511_627_776.0,
        _ => return Err(fail()),
    };
    let bytes = number * factor;
    if !(1.0..1e17).contains(&bytes) {
        return Err(format!("'{text}' is out of bounds: a size is from 1 byte to 100 PB"));
    }
    Ok(bytes as u64)
}

/// Parses `10s`, `20ms`, `5m`, `1h`, `100us` to nanoseconds. A number without a unit is seconds.
pub(crate) fn duration(text: &str) -> Result<u64, String> {
    let fail = || format!("'{text}' is not a duration; write for example 10s, 20ms or 5m");
    let (number, unit) = split(text).ok_or_else(fail)?;
    let factor = match unit.as_str() {
        "" | "s" | "sec" => 1e9,
        "ms" => 1e6,
        "us" | "µs" => 1e3,
        "ns" => 1.0,
        "m" | "min" => 60e9,
        "h" => 3600e9,
        _ => return Err(fail()),
    };
    let ns = number * factor;
    if !(0.0..=365.0 * 86_400e9).contains(&ns) {
        return Err(format!("'{text}' is out of bounds: a duration is at most a year"));
    }
    Ok(ns as u64)
}

/// Parses a share from 0 to 1: `1%` or `0.01`.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    let fail = || format!("'{text}' is not a share; write for example 1% or 0.01");
    let (number, unit) = split(text).ok_or_else(fail)?;
    let share = match unit.as_str() {
        "%" => number / 100.0,
        "" => number,
        _ => return Err(fail()),
    };
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err(format!("'{text}' is not between 0 and 100 %")) }
}

/// Formats 1234567 as `1.23 M`.
pub(crate) fn short(n: f64) -> String {
    for (factor, name) in [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")] {
        if n >= factor {
            return format!("{:.2} {name}", n / factor);
        }
    }
    format!("{n:.0} ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_people_write_them() {
        assert_eq!(rate("2Gbps"), Ok(Rate::Bits(2e9)));
        assert_eq!(rate("1.5 Mbit/s"), Ok(Rate::Bits(1.5e6)));
        assert_eq!(rate("100kpps"), Ok(Rate::Packets(1e5)));
        assert_eq!(rate("250 packets/s"), Ok(Rate::Packets(250.0)));
        for bad in ["", "fast", "0bps", "-1bps", "10", "10 furlongs", "1e3bps"] {
            assert!(rate(bad).is_err(), "{bad}");
        }
        assert_eq!(size("600MB"), Ok(600_000_000));
        assert_eq!(size("1 KiB"), Ok(1024));
        assert!(size("0").is_err() && size("x").is_err());
        assert_eq!(duration("20ms"), Ok(20_000_000));
        assert_eq!(duration("1.5"), Ok(1_500_000_000));
        assert!(duration("10 days").is_err());
        assert_eq!(share("1%"), Ok(0.01));
        assert_eq!(share("0.5"), Ok(0.5));
        assert!(share("150%").is_err());
    }
}
