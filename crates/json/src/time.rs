//! Formats times in the local time zone.
//!
//! The zone is looked up once (`TZ`, otherwise `/etc/localtime`). The clock caches the offset and date of the latest minute, and
//! the text of a few seconds, so that formatting most times only writes the digits of the fraction.

use std::path::{Path, PathBuf};

use jiff::fmt::strtime::{BrokenDownTime, Config};
use jiff::tz::TimeZone;
use margay_packet::Time;

use crate::text::{digits, six, two as pair};

/// Formats times in one time zone. It is not shared: each output has its own.
#[derive(Debug, Clone)]
pub struct Clock {
    zone: TimeZone,
    /// The minute since the epoch, in UTC, that `offset` was looked up for.
    utc_minute: i64,
    /// Seconds that local time is ahead of UTC.
    offset: i64,
    /// The local minute since the epoch that `civil` holds.
    local_minute: i64,
    civil: Civil,
    /// Cached texts of seconds, indexed by a second's lowest bits. There are several, because an event has the time of its packet and
    /// often that of its flow's start.
    seconds: [Second; SECONDS],
}

/// Number of seconds in a [`Clock`]'s cache.
const SECONDS: usize = 8;

/// The text of a second, with the fraction 0.
#[derive(Debug, Clone, Copy)]
struct Second {
    utc: i64,
    text: [u8; ISO],
}

/// Length of `2016-07-13T22:42:07.199672+0000`.
const ISO: usize = 31;
/// Offset of its fraction.
const FRACTION: usize = 20;

/// A local date and time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Civil {
    /// Year, negative before year 0.
    pub year: i64,
    /// 1 to 12.
    pub month: u8,
    /// 1 to 31.
    pub day: u8,
    /// 0 to 23.
    pub hour: u8,
    /// 0 to 59.
    pub minute: u8,
    /// 0 to 59.
    pub second: u8,
    /// Days since 1970-01-01.
    pub days: i64,
}

impl Clock {
    /// A clock for the zone of `TZ` or the system; UTC if neither can be read.
    pub fn system() -> Self {
        Self::new(TimeZone::system())
    }

    /// A clock for UTC.
    pub fn utc() -> Self {
        Self::new(TimeZone::UTC)
    }

    fn new(zone: TimeZone) -> Self {
        let mut clock = Clock {
            zone,
            utc_minute: i64::MIN,
            offset: 0,
            local_minute: i64::MIN,
            civil: Civil::default(),
            seconds: [Second { utc: i64::MIN, text: [0; ISO] }; SECONDS],
        };
        clock.civil(Time(0));
        clock
    }

    /// The local date and time of `time`.
    pub fn civil(&mut self, time: Time) -> Civil {
        let secs = time.secs();
        let utc_minute = secs.div_euclid(60);
        if utc_minute != self.utc_minute {
            self.utc_minute = utc_minute;
            self.offset = jiff::Timestamp::from_second(secs).map_or(0, |t| i64::from(self.zone.to_offset(t).seconds()));
        }
        let local = secs.saturating_add(self.offset);
        let local_minute = local.div_euclid(60);
        if local_minute != self.local_minute {
            self.local_minute = local_minute;
            self.civil = civil(local_minute);
        }
        Civil { second: local.rem_euclid(60) as u8, ..self.civil }
    }

    /// Appends `2016-07-13T22:42:07.199672+0000`.
    #[inline]
    pub fn iso(&mut self, out: &mut Vec<u8>, time: Time) {
        let utc = time.secs();
        let known = self.seconds[utc as usize % SECONDS];
        if known.utc != utc {
            return self.iso_of_new_second(out, time);
        }
        let mut text = known.text;
        text[FRACTION..FRACTION + 6].copy_from_slice(&six(time.subsec_micros()));
        out.extend_from_slice(&text);
    }

    fn iso_of_new_second(&mut self, out: &mut Vec<u8>, time: Time) {
        let c = self.civil(time);
        let from = out.len();
        year(out, c.year);
        out.push(b'-');
        two(out, c.month);
        out.push(b'-');
        two(out, c.day);
        out.push(b'T');
        self.clock_time(out, c, time);
        out.push(if self.offset < 0 { b'-' } else { b'+' });
        let minutes = self.offset.unsigned_abs() / 60;
        two(out, (minutes / 60) as u8);
        two(out, (minutes % 60) as u8);
        // Years of more than four digits are longer and never cached.
        if let Ok(text) = out[from..].try_into() {
            let utc = time.secs();
            self.seconds[utc as usize % SECONDS] = Second { utc, text };
        }
    }

    /// Appends `07/13/2016-22:42:07.199672`, the format of `fast.log`.
    pub fn fast(&mut self, out: &mut Vec<u8>, time: Time) {
        let c = self.civil(time);
        two(out, c.month);
        out.push(b'/');
        two(out, c.day);
        out.push(b'/');
        year(out, c.year);
        out.push(b'-');
        self.clock_time(out, c, time);
    }

    /// Appends `time` in a format of strftime(3). A `%` stays as it is if strftime knows no conversion that begins there.
    pub fn strftime(&self, out: &mut Vec<u8>, time: Time, format: &str) {
        let Ok(timestamp) = jiff::Timestamp::from_second(time.secs()) else { return };
        let parts = BrokenDownTime::from(&timestamp.to_zoned(self.zone.clone()));
        let lenient = Config::new().lenient(true);
        let mut rest = format;
        while let Some((text, one, after)) = split_at_conversion(rest) {
            out.extend_from_slice(text.as_bytes());
            // One conversion at a time, with the C locale for those that depend on one.
            let one = match one {
                "%c" => "%a %b %e %H:%M:%S %Y",
                "%x" => "%m/%d/%y",
                "%X" => "%H:%M:%S",
                "%r" => "%I:%M:%S %p",
                other => other,
            };
            match parts.to_string_with_config(&lenient, one) {
                Ok(text) => out.extend_from_slice(text.as_bytes()),
                Err(_) => out.extend_from_slice(one.as_bytes()),
            }
            rest = after;
        }
        out.extend_from_slice(rest.as_bytes());
    }

    /// Appends `2016-07-13 22:42:07`, the format of `suricata.log`.
    pub fn log(&mut self, out: &mut Vec<u8>, time: Time) {
        let c = self.civil(time);
        year(out, c.year);
        out.push(b'-');
        two(out, c.month);
        out.push(b'-');
        two(out, c.day);
        out.push(b' ');
        hms(out, c);
    }

    /// Appends `7/13/2016 -- 22:42:07`, the format of `stats.log`.
    pub fn stats(&mut self, out: &mut Vec<u8>, time: Time) {
        let c = self.civil(time);
        digits(out, u64::from(c.month));
        out.push(b'/');
        digits(out, u64::from(c.day));
        out.push(b'/');
        year(out, c.year);
        out.extend_from_slice(b" -- ");
        hms(out, c);
    }

    fn clock_time(&self, out: &mut Vec<u8>, c: Civil, time: Time) {
        hms(out, c);
        out.push(b'.');
        out.extend_from_slice(&six(time.subsec_micros()));
    }
}

fn hms(out: &mut Vec<u8>, c: Civil) {
    two(out, c.hour);
    out.push(b':');
    two(out, c.minute);
    out.push(b':');
    two(out, c.second);
}

fn two(out: &mut Vec<u8>, n: u8) {
    out.extend_from_slice(&pair(n));
}

fn year(out: &mut Vec<u8>, y: i64) {
    if y < 0 {
        out.push(b'-');
    }
    let n = y.unsigned_abs();
    for limit in [1000, 100, 10] {
        if n < limit {
            out.push(b'0');
        }
    }
    digits(out, n);
}

/// Date and time of a minute since the epoch, in the proleptic Gregorian calendar.
fn civil(minute: i64) -> Civil {
    let days = minute.div_euclid(1440);
    let of_day = minute.rem_euclid(1440);
    // Count days from 0000-03-01, in eras of 400 years: in years that begin in March, the leap day comes last.
    let shifted = days.saturating_add(719_468);
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    Civil {
        year,
        month: month as u8,
        day: day as u8,
        hour: (of_day / 60) as u8,
        minute: (of_day % 60) as u8,
        second: 0,
        days,
    }
}

/// Splits a format at its first `%`: the text before it, the `%` with the character after it, and the rest.
pub fn split_at_conversion(format: &str) -> Option<(&str, &str, &str)> {
    let (text, from) = format.split_at(format.find('%')?);
    let end = from.char_indices().nth(2).map_or(from.len(), |(at, _)| at);
    let (conversion, rest) = from.split_at(end);
    Some((text, conversion, rest))
}

/// Replaces the conversions of strftime(3) in a file name by the local time.
pub fn expand(path: &Path, clock: &Clock, now: Time) -> PathBuf {
    let Some(text) = path.to_str().filter(|t| t.contains('%')) else { return path.to_owned() };
    let mut out = Vec::with_capacity(text.len() + 16);
    clock.strftime(&mut out, now, text);
    String::from_utf8(out).map_or_else(|_| path.to_owned(), PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn iso(clock: &mut Clock, time: Time) -> String {
        let mut out = Vec::new();
        clock.iso(&mut out, time);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn known_times() {
        let mut c = Clock::utc();
        assert_eq!(iso(&mut c, Time::new(1_468_449_727, 199_672)), "2016-07-13T22:42:07.199672+0000");
        assert_eq!(iso(&mut c, Time(0)), "1970-01-01T00:00:00.000000+0000");
        assert_eq!(iso(&mut c, Time(-1)), "1969-12-31T23:59:59.999999+0000");
        let mut out = Vec::new();
        c.fast(&mut out, Time::new(1_286_290_862, 123_456));
        out.push(b'|');
        c.log(&mut out, Time::new(1_286_290_862, 123_456));
        out.push(b'|');
        c.stats(&mut out, Time::new(1_286_290_862, 123_456));
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "10/05/2010-15:01:02.123456|2010-10-05 15:01:02|10/5/2010 -- 15:01:02"
        );
    }

    #[test]
    fn zones_with_summer_time_and_odd_offsets() {
        let mut c = Clock::new(TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap());
        // 2021-03-28 01:00 UTC: clocks go from 02:00 to 03:00.
        assert_eq!(iso(&mut c, Time::new(1_616_893_199, 0)), "2021-03-28T01:59:59.000000+0100");
        assert_eq!(iso(&mut c, Time::new(1_616_893_200, 0)), "2021-03-28T03:00:00.000000+0200");
        let mut c = Clock::new(TimeZone::posix("NST3:30").unwrap());
        assert_eq!(iso(&mut c, Time::new(0, 0)), "1969-12-31T20:30:00.000000-0330");
    }

    #[test]
    fn seconds_that_share_a_place_are_told_apart() {
        let mut c = Clock::utc();
        let far = 300_000_000_000; // a year of five digits
        for second in [5, 5 + SECONDS as i64, 5, far, 5, far, -3, 5 - SECONDS as i64] {
            for micros in [0, 7, 999_999] {
                let time = Time::new(second, micros);
                assert_eq!(iso(&mut c, time), iso(&mut Clock::utc(), time));
            }
        }
        assert_eq!(iso(&mut c, Time::new(far, 8)), "11476-08-15T05:20:00.000008+0000");
    }

    #[test]
    fn times_in_file_names() {
        let of = |name: &str| expand(Path::new(name), &Clock::utc(), Time::new(1_468_449_727, 0));
        assert_eq!(of("a%Y%m%d-%H%M%S%v%"), Path::new("a20160713-224207%v%"));
        assert_eq!(of("%s"), Path::new("1468449727"));
    }

    #[test]
    fn conversions_are_those_of_c() {
        let text = |format: &str| {
            let mut out = Vec::new();
            Clock::utc().strftime(&mut out, Time::new(1_462_140_005, 7), format);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(text("%a %A %b %B %h|%C %y %Y %G %g"), "Sun Sunday May May May|20 16 2016 2016 16");
        assert_eq!(text("%d %e %j %m %u %w %U %W %V"), "01  1 122 05 7 0 18 17 17");
        assert_eq!(text("%H %I %k %l %M %S %p %P %s"), "22 10 22 10 00 05 PM pm 1462140005");
        assert_eq!(text("%D %F %R %T %z%n%t%%"), "05/01/16 2016-05-01 22:00 22:00:05 +0000\n\t%");
        assert_eq!(text("%c|%x|%X|%r"), "Sun May  1 22:00:05 2016|05/01/16|22:00:05|10:00:05 PM");
        assert_eq!(text("plain, %ü, %"), "plain, %ü, %");
    }

    proptest! {
        #[test]
        fn dates_agree_with_the_library(secs in -62_000_000_000i64..253_000_000_000) {
            let mut c = Clock::utc();
            let want = jiff::Timestamp::from_second(secs).unwrap().to_zoned(TimeZone::UTC);
            let got = c.civil(Time::new(secs, 0));
            prop_assert_eq!(
                (got.year, got.month as i8, got.day as i8, got.hour as i8, got.minute as i8, got.second as i8),
                (i64::from(want.year()), want.month(), want.day(), want.hour(), want.minute(), want.second())
            );
        }

        #[test]
        fn no_time_panics(micros: i64) {
            let mut c = Clock::system();
            let mut out = Vec::new();
            c.iso(&mut out, Time(micros));
            c.fast(&mut out, Time(micros));
        }
    }
}
