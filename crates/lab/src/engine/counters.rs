//! An engine's own counts of received, lost and decoded packets, read from the file that it writes.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use margay_config::Node;
use serde_json::Value;

/// Format of a counter file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// One JSON object on each line; the last one with the name counts. Names are paths: `stats.decoder.pkts`.
    JsonLines,
    /// One JSON object that the engine rewrites each time.
    Json,
    /// Lines with a name and a number, separated by a blank, `:` or `=`. The last line with a name counts.
    Lines,
    /// Suricata's `stats.log`: `name | thread | value`; the last `Total` of a name counts.
    StatsLog,
}

impl Format {
    /// The format with that name in a contract.
    pub(crate) fn named(name: &str) -> Option<Format> {
        match name {
            "json-lines" | "eve" => Some(Format::JsonLines),
            "json" => Some(Format::Json),
            "lines" => Some(Format::Lines),
            "stats-log" => Some(Format::StatsLog),
            _ => None,
        }
    }
}

/// The counters to read. Each value is the sum of the named counters.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Names {
    /// Packets that reached the engine's queue, including those that it dropped.
    pub(crate) received: Vec<String>,
    /// Packets that found the queue full.
    pub(crate) dropped: Vec<String>,
    /// Packets that the engine took and decoded.
    pub(crate) decoded: Vec<String>,
    /// Gaps in TCP streams.
    pub(crate) gaps: Vec<String>,
    /// Alerts.
    pub(crate) alerts: Vec<String>,
    /// Packets that an inline engine decided not to forward.
    pub(crate) blocked: Vec<String>,
}

/// The counters at one time; NaN if unknown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Counts {
    pub(crate) received: f64,
    pub(crate) dropped: f64,
    pub(crate) decoded: f64,
    pub(crate) gaps: f64,
    pub(crate) alerts: f64,
    pub(crate) blocked: f64,
}

impl Counts {
    /// All values unknown.
    pub(crate) const UNKNOWN: Counts = Counts {
        received: f64::NAN,
        dropped: f64::NAN,
        decoded: f64::NAN,
        gaps: f64::NAN,
        alerts: f64::NAN,
        blocked: f64::NAN,
    };

    /// The values, in the order of [`Counts::NAMES`].
    pub(crate) fn values(&self) -> [f64; 6] {
        [self.received, self.dropped, self.decoded, self.gaps, self.alerts, self.blocked]
    }

    /// The increases since `before`. A counter that did not exist then starts at zero.
    pub(crate) fn since(&self, before: &Counts) -> Counts {
        let grown = |after: f64, before: f64| after - if before.is_finite() { before } else { 0.0 };
        Counts {
            received: grown(self.received, before.received),
            dropped: grown(self.dropped, before.dropped),
            decoded: grown(self.decoded, before.decoded),
            gaps: grown(self.gaps, before.gaps),
            alerts: grown(self.alerts, before.alerts),
            blocked: grown(self.blocked, before.blocked),
        }
    }

    /// Names of the values in tables.
    pub(crate) const NAMES: [&str; 6] = ["received", "dropped", "decoded", "gaps", "alerts", "blocked"];

    /// Whether both are equal. Unknown values are equal to each other.
    pub(crate) fn same(&self, other: &Counts) -> bool {
        self.values().iter().zip(other.values()).all(|(a, b)| a.to_bits() == b.to_bits())
    }
}

/// The counts of one interface.
#[derive(Clone, Debug, PartialEq)]
struct Own {
    interface: String,
    /// Its counters' names. None in a table by thread, where an interface has the threads that end with its name.
    names: Names,
    last: Counts,
}

/// Reads a counter file repeatedly; of a growing file, only the new part.
#[derive(Clone, Debug)]
pub(crate) struct CounterFile {
    path: PathBuf,
    format: Format,
    names: Names,
    offset: u64,
    partial: Vec<u8>,
    /// Time and size of the file at the last reading, for files that are rewritten.
    stamp: Option<(std::time::SystemTime, u64)>,
    last: Counts,
    /// The same by interface, if there are several.
    own: Vec<Own>,
    /// How often new counters were found.
    pub(crate) updates: u64,
}

/// The value of a counter by its name.
type Lookup<'a> = dyn FnMut(&str) -> Option<f64> + 'a;

/// A longer line cannot be a line of counters.
const LONGEST: usize = 4 << 20;

impl CounterFile {
    /// A reader for `path`, which need not exist yet.
    pub(crate) fn new(path: PathBuf, format: Format, names: Names) -> CounterFile {
        CounterFile {
            path,
            format,
            names,
            offset: 0,
            partial: Vec::new(),
            stamp: None,
            last: Counts::UNKNOWN,
            own: Vec::new(),
            updates: 0,
        }
    }

    /// Also reads the counts of each of these interfaces, by `names` with `{interface}`; in Suricata's `stats.log`, by the
    /// interface's threads.
    pub(crate) fn by_interface(mut self, interfaces: &[String], names: &Names) -> CounterFile {
        let own = |interface: &String| {
            let names = match self.format {
                Format::StatsLog => self.names.clone(),
                _ => names.filled(interface),
            };
            Own { interface: interface.clone(), names, last: Counts::UNKNOWN }
        };
        self.own = interfaces.iter().map(own).collect();
        self
    }

    /// The counts of each interface at the last reading.
    pub(crate) fn last_by_interface(&self) -> Vec<Counts> {
        self.own.iter().map(|own| own.last).collect()
    }

    /// The counters as last written. If the file cannot be read now, returns the previous ones.
    pub(crate) fn read(&mut self) -> Counts {
        match self.format {
            Format::Json | Format::Lines => {
                let stamp = std::fs::metadata(&self.path).and_then(|data| Ok((data.modified()?, data.ino())));
                if let (Ok(stamp), Ok(text)) = (stamp, std::fs::read_to_string(&self.path))
                    && self.stamp != Some(stamp)
                {
                    self.stamp = Some(stamp);
                    self.take(&text);
                }
            }
            Format::JsonLines | Format::StatsLog => {
                let Ok(mut file) = File::open(&self.path) else { return self.last };
                if file.metadata().is_ok_and(|data| data.len() < self.offset) {
                    // The file was rewritten.
                    (self.offset, self.partial) = (0, Vec::new());
                }
                if file.seek(SeekFrom::Start(self.offset)).is_err() {
                    return self.last;
                }
                let mut buffer = vec![0; 1 << 16];
                while let Ok(read @ 1..) = file.read(&mut buffer) {
                    self.offset += read as u64;
                    self.partial.extend_from_slice(&buffer[..read]);
                    if let Some(end) = self.partial.iter().rposition(|byte| *byte == b'\n') {
                        let rest = self.partial.split_off(end + 1);
                        let whole = std::mem::replace(&mut self.partial, rest);
                        self.take(&String::from_utf8_lossy(&whole));
                    }
                    if self.partial.len() > LONGEST {
                        self.partial.clear();
                    }
                }
            }
        }
        self.last
    }

    fn take(&mut self, text: &str) {
        let format = self.format;
        let mut lookup: Box<Lookup<'_>> = match format {
            Format::JsonLines => {
                let Some(value) = text.lines().rev().find_map(|line| {
                    // Most lines of an event log have no counters and are not worth parsing.
                    let first = self.names.all().next()?.split('.').next()?;
                    let value = line.contains(first).then(|| serde_json::from_str::<Value>(line).ok()).flatten()?;
                    self.names.all().any(|name| dotted(&value, name).is_some()).then_some(value)
                }) else {
                    return;
                };
                Box::new(move |name| dotted(&value, name))
            }
            Format::Json => {
                let Ok(value) = serde_json::from_str::<Value>(text) else { return };
                Box::new(move |name| dotted(&value, name))
            }
            Format::Lines => Box::new(|name| {
                text.lines().rev().find_map(|line| {
                    let rest = line.trim().strip_prefix(name)?;
                    let value = rest.strip_prefix([' ', '\t', ':', '='])?;
                    value.trim_matches([' ', '\t', ':', '=']).split(' ').next()?.parse().ok()
                })
            }),
            Format::StatsLog => Box::new(|name| {
                text.lines().rev().find_map(|line| {
                    let mut parts = line.split('|').map(str::trim);
                    (parts.next()? == name && parts.next()? == "Total").then(|| parts.next()?.parse().ok()).flatten()
                })
            }),
        };
        self.names.read(&mut self.last, &mut lookup);
        for own in &mut self.own {
            match format {
                Format::StatsLog => {
                    let ending = format!("-{}", own.interface);
                    own.names.read(&mut own.last, &mut |name| threads(text, name, &ending));
                }
                _ => own.names.read(&mut own.last, &mut lookup),
            }
        }
        drop(lookup);
        self.updates += 1;
    }
}

/// The sum of a counter over the threads whose names end with `ending`, each as last written.
fn threads(text: &str, counter: &str, ending: &str) -> Option<f64> {
    let mut found: Vec<(&str, f64)> = Vec::new();
    for line in text.lines().rev() {
        let mut parts = line.split('|').map(str::trim);
        let (Some(name), Some(thread), Some(value)) = (parts.next(), parts.next(), parts.next()) else { continue };
        if name != counter || !thread.ends_with(ending) {
            continue;
        }
        if found.iter().any(|(known, _)| *known == thread) {
            break;
        }
        found.push((thread, value.parse().ok()?));
    }
    (!found.is_empty()).then(|| found.iter().map(|(_, value)| value).sum())
}

impl Names {
    /// Keys of a contract, in the order of [`Counts::NAMES`].
    pub(crate) const KEYS: [&str; 6] = Counts::NAMES;

    /// Reads the lists below `node`.
    pub(crate) fn of(node: Node<'_>) -> Names {
        let list = |key: &str| -> Vec<String> {
            node.child(key).map(|node| node.values().map(str::to_owned).collect()).unwrap_or_default()
        };
        Names {
            received: list("received"),
            dropped: list("dropped"),
            decoded: list("decoded"),
            gaps: list("gaps"),
            alerts: list("alerts"),
            blocked: list("blocked"),
        }
    }

    /// Sets the counts whose counters are found.
    fn read(&self, counts: &mut Counts, lookup: &mut Lookup<'_>) {
        for (of, value) in [
            (&self.received, &mut counts.received),
            (&self.dropped, &mut counts.dropped),
            (&self.decoded, &mut counts.decoded),
            (&self.gaps, &mut counts.gaps),
            (&self.alerts, &mut counts.alerts),
            (&self.blocked, &mut counts.blocked),
        ] {
            let found: Vec<f64> = of.iter().filter_map(|name| lookup(name)).collect();
            if !found.is_empty() {
                *value = found.iter().sum();
            }
        }
    }

    /// The names for one interface.
    fn filled(&self, interface: &str) -> Names {
        let of = |names: &[String]| names.iter().map(|name| name.replace("{interface}", interface)).collect();
        Names {
            received: of(&self.received),
            dropped: of(&self.dropped),
            decoded: of(&self.decoded),
            gaps: of(&self.gaps),
            alerts: of(&self.alerts),
            blocked: of(&self.blocked),
        }
    }

    fn all(&self) -> impl Iterator<Item = &str> {
        let lists = [&self.received, &self.dropped, &self.decoded, &self.gaps, &self.alerts, &self.blocked];
        lists.into_iter().flatten().map(String::as_str)
    }
}

/// The number at a dotted path.
fn dotted(value: &Value, path: &str) -> Option<f64> {
    path.split('.').try_fold(value, |value, part| value.get(part))?.as_f64()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn names(received: &str, decoded: &str) -> Names {
        Names { received: vec![received.to_owned()], decoded: vec![decoded.to_owned()], ..Names::default() }
    }

    #[test]
    fn reads_events_as_they_are_appended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("eve.json");
        let mut counters = CounterFile::new(
            path.clone(),
            Format::JsonLines,
            names("stats.capture.kernel_packets", "stats.decoder.pkts"),
        );
        assert!(counters.read().decoded.is_nan());
        let mut file = File::create(&path).unwrap();
        writeln!(
            file,
            r#"{{"event_type":"stats","stats":{{"capture":{{"kernel_packets":5}},"decoder":{{"pkts":3}}}}}}"#
        )
        .unwrap();
        write!(file, r#"{{"event_type":"alert","alert":{{}}}}"#).unwrap();
        assert_eq!((counters.read().received, counters.read().decoded), (5.0, 3.0));
        write!(file, "\n{{\"stats\":{{\"decoder\":{{\"pkts\":9").unwrap();
        assert_eq!(counters.read().decoded, 3.0);
        writeln!(file, "}}}}}}").unwrap();
        assert_eq!((counters.read().received, counters.read().decoded), (5.0, 9.0));
        assert!(counters.read().gaps.is_nan());
    }

    #[test]
    fn every_number_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("counters");
        std::fs::write(&path, "a 1\nb 2\nc 3\nd 4\ne 5\nf 6\n").unwrap();
        let list = |name: &str| vec![name.to_owned()];
        let names = Names {
            received: list("a"),
            dropped: list("b"),
            decoded: list("c"),
            gaps: list("d"),
            alerts: list("e"),
            blocked: list("f"),
        };
        let mut counters = CounterFile::new(path, Format::Lines, names);
        assert_eq!(counters.read().values(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    }

    #[test]
    fn counts_are_read_by_interface() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("counters");
        let interfaces = ["eth1".to_owned(), "eth11".to_owned()];
        // Two threads of one interface, one of the other, twice; then an incomplete table.
        let table = |n: u32| {
            format!(
                "d | Total | {}\nd | W#01-eth1 | {n}\nd | W#02-eth1 | 1\nd | W#01-eth11 | 7\nd | FM#01 | 9\n---\n",
                n + 8
            )
        };
        std::fs::write(&path, table(2) + &table(5) + "d | To").unwrap();
        let mut file = CounterFile::new(path.clone(), Format::StatsLog, names("r", "d"))
            .by_interface(&interfaces, &Names::default());
        assert!(file.last_by_interface()[0].decoded.is_nan());
        assert_eq!(file.read().decoded, 13.0);
        let decoded: Vec<f64> = file.last_by_interface().iter().map(|counts| counts.decoded).collect();
        assert_eq!(decoded, [6.0, 7.0]);
        assert!(file.last_by_interface()[0].received.is_nan());
        // Another format has names of its own for them.
        std::fs::write(&path, "d 13\nd.eth1 6\nd.eth11 7\n").unwrap();
        let mut file = CounterFile::new(path, Format::Lines, names("r", "d"))
            .by_interface(&interfaces, &names("r.{interface}", "d.{interface}"));
        assert_eq!(file.read().decoded, 13.0);
        assert_eq!(file.last_by_interface().iter().map(|counts| counts.decoded).sum::<f64>(), 13.0);
    }

    #[test]
    fn reads_the_other_formats() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("counters");
        for (format, text) in [
            (Format::Lines, "a.in 7\na.in_other 9\nout: 4\n"),
            (Format::Json, r#"{"a":{"in":7},"out":4}"#),
            (
                Format::StatsLog,
                "Counter | TM Name | Value\na.in | Total | 3\nout | Total | 1\n---\na.in | Total | 7\nout | Total | 4\na.in | W#01 | 2\n",
            ),
        ] {
            std::fs::write(&path, text).unwrap();
            let read = CounterFile::new(path.clone(), format, names("a.in", "out")).read();
            assert_eq!((read.received, read.decoded), (7.0, 4.0), "{format:?}");
        }
    }
}
