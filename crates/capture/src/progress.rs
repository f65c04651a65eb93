//! Shows the progress of reading. Nothing here reads a clock; the caller provides the time, at most once for each batch.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// The progress of reading, as plain numbers that are cheap to copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Bytes taken from files and standard input.
    pub bytes_read: u64,
    /// Total bytes, if known; standard input has none.
    pub total: Option<u64>,
    /// Packets read, including those that the filter rejected.
    pub packets: u64,
    /// Their captured bytes.
    pub packet_bytes: u64,
}

impl Progress {
    /// The completed share, 0 to 1; `None` if the total is unknown.
    pub fn fraction(&self) -> Option<f64> {
        match self.total? {
            0 => Some(1.0),
            total => Some((self.bytes_read as f64 / total as f64).min(1.0)),
        }
    }
}

/// The style of the display.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// One line on a terminal, redrawn ten times a second.
    Terminal,
    /// A new line each second, for logs.
    Log,
}

impl Style {
    /// [`Style::Terminal`] if `out` is a terminal that can redraw a line.
    pub fn of(out: &impl io::IsTerminal) -> Style {
        let dumb = std::env::var_os("TERM").is_some_and(|t| t == "dumb");
        if out.is_terminal() && !dumb { Style::Terminal } else { Style::Log }
    }

    const fn interval(self) -> Duration {
        match self {
            Style::Terminal => Duration::from_millis(100),
            Style::Log => Duration::from_secs(1),
        }
    }
}

/// Width of the bar in characters.
const BAR: usize = 24;
/// Approximate averaging time of rates, in seconds.
const SMOOTH: f64 = 3.0;

/// Draws [`Progress`] to a writer.
#[derive(Debug)]
pub struct ProgressDisplay<W> {
    out: W,
    style: Style,
    started: Instant,
    last: Instant,
    seen: Progress,
    /// Packets, packet bits and file bytes a second.
    rates: Option<[f64; 3]>,
    line: String,
    drawn: usize,
}

impl<W: Write> ProgressDisplay<W> {
    /// A display that begins at `now`.
    pub fn new(out: W, style: Style, now: Instant) -> Self {
        ProgressDisplay {
            out,
            style,
            started: now,
            last: now,
            seen: Progress::default(),
            rates: None,
            line: String::new(),
            drawn: 0,
        }
    }

    /// Draws if the next line is due.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn update(&mut self, progress: &Progress, now: Instant) -> io::Result<()> {
        let since = now.saturating_duration_since(self.last);
        if since < self.style.interval() {
            return Ok(());
        }
        let secs = since.as_secs_f64();
        let new = rates(progress, &self.seen, secs);
        let weight = 1.0 - (-secs / SMOOTH).exp();
        self.rates = Some(match self.rates {
            None => new,
            Some(old) => [0, 1, 2].map(|i| old[i] + (new[i] - old[i]) * weight),
        });
        (self.last, self.seen) = (now, *progress);
        self.draw(progress, now)
    }

    /// Draws the final line, with rates over the whole time, and a line end.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn finish(&mut self, progress: &Progress, now: Instant) -> io::Result<()> {
        let secs = now.saturating_duration_since(self.started).as_secs_f64();
        self.rates = Some(rates(progress, &Progress::default(), secs));
        self.draw(progress, now)?;
        if self.style == Style::Terminal {
            writeln!(self.out)?;
        }
        self.out.flush()
    }

    fn draw(&mut self, progress: &Progress, now: Instant) -> io::Result<()> {
        let mut line = std::mem::take(&mut self.line);
        line.clear();
        let [packets, bits, bytes] = self.rates.unwrap_or_default();
        let fraction = progress.fraction();
        // Writing to a string does not fail.
        if let (Some(f), Style::Terminal) = (fraction, self.style) {
            let full = (f * BAR as f64) as usize;
            let _ = write!(line, "[{:<BAR$}] ", "#".repeat(full.min(BAR)));
        }
        if let Some(f) = fraction {
            let _ = write!(line, "{:3.0}%, ", (f * 100.0).floor());
        }
        let _ = write!(
            line,
            "{}B read, {}packets, {}packets/s, {:.2} Gbit/s",
            scaled(progress.bytes_read as f64),
            scaled(progress.packets as f64),
            scaled(packets),
            bits / 1e9,
        );
        let left = progress.total.map(|t| t.saturating_sub(progress.bytes_read));
        match left {
            Some(left) if left > 0 && bytes > 0.0 => {
                let _ = write!(line, ", {} left", clock(left as f64 / bytes));
            }
            _ => {
                let spent = now.saturating_duration_since(self.started).as_secs_f64();
                let _ = write!(line, ", after {}", clock(spent));
            }
        }
        match self.style {
            Style::Log => writeln!(self.out, "{line}")?,
            Style::Terminal => {
                let pad = self.drawn.saturating_sub(line.len());
                write!(self.out, "\r{line}{:pad$}", "")?;
                self.drawn = line.len();
                self.out.flush()?;
            }
        }
        self.line = line;
        Ok(())
    }
}

fn rates(now: &Progress, before: &Progress, secs: f64) -> [f64; 3] {
    if secs <= 0.0 {
        return [0.0; 3];
    }
    let per_second = |a: u64, b: u64| a.saturating_sub(b) as f64 / secs;
    [
        per_second(now.packets, before.packets),
        per_second(now.packet_bytes, before.packet_bytes) * 8.0,
        per_second(now.bytes_read, before.bytes_read),
    ]
}

/// A number with its decimal prefix and the space before the unit: `1.23 M`.
fn scaled(n: f64) -> String {
    for (limit, prefix) in [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")] {
        if n >= limit {
            return format!("{:.2} {prefix}", n / limit);
        }
    }
    format!("{n:.0} ")
}

fn clock(secs: f64) -> String {
    // `as` stops at the largest number.
    let s = secs.ceil().max(0.0) as u64;
    match (s / 3600, s / 60 % 60, s % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, s) => format!("{m}:{s:02} min"),
        (h, m, _) => format!("{h}:{m:02} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(bytes: u64, total: Option<u64>, packets: u64) -> Progress {
        Progress { bytes_read: bytes, total, packets, packet_bytes: bytes }
    }

    #[test]
    fn a_log_gets_a_line_a_second() {
        let t = Instant::now();
        let mut out = Vec::new();
        let mut d = ProgressDisplay::new(&mut out, Style::Log, t);
        for ms in (0..=2000).step_by(10) {
            let done = ms * 250_000;
            d.update(&at(done, Some(1_000_000_000), ms * 1000), t + Duration::from_millis(ms)).unwrap();
        }
        d.finish(&at(1_000_000_000, Some(1_000_000_000), 4_000_000), t + Duration::from_secs(4)).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                " 25%, 250.00 MB read, 1.00 Mpackets, 1.00 Mpackets/s, 2.00 Gbit/s, 3 s left",
                " 50%, 500.00 MB read, 2.00 Mpackets, 1.00 Mpackets/s, 2.00 Gbit/s, 2 s left",
                "100%, 1.00 GB read, 4.00 Mpackets, 1.00 Mpackets/s, 2.00 Gbit/s, after 4 s",
            ]
        );
    }

    #[test]
    fn a_terminal_gets_one_line_drawn_over() {
        let t = Instant::now();
        let mut out = Vec::new();
        let mut d = ProgressDisplay::new(&mut out, Style::Terminal, t);
        d.update(&at(5_000, Some(10_000), 10), t + Duration::from_millis(100)).unwrap();
        d.update(&at(5_001, Some(10_000), 10), t + Duration::from_millis(120)).unwrap();
        d.finish(&at(10_000, Some(10_000), 20), t + Duration::from_millis(200)).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.matches('\r').count(), 2);
        assert_eq!(text.matches('\n').count(), 1);
        assert!(text.contains("[############            ]  50%, 5.00 kB read, 10 packets, 100 packets/s"), "{text}");
    }

    #[test]
    fn without_a_total_there_is_no_percentage() {
        let t = Instant::now();
        let mut out = Vec::new();
        let mut d = ProgressDisplay::new(&mut out, Style::Log, t);
        d.update(&at(7, None, 1), t + Duration::from_secs(75)).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "7 B read, 1 packets, 0 packets/s, 0.00 Gbit/s, after 1:15 min\n");
    }

    #[test]
    fn odd_numbers_do_no_harm() {
        let t = Instant::now();
        let mut d = ProgressDisplay::new(io::sink(), Style::Log, t);
        d.finish(&at(u64::MAX, Some(0), u64::MAX), t).unwrap();
        d.update(&at(0, Some(u64::MAX), 0), t + Duration::from_secs(5)).unwrap();
        d.update(&at(1, Some(u64::MAX), 0), t + Duration::from_secs(10)).unwrap();
    }
}
