//! Interfaces, and the queues between them and the reader.

use super::column::{Column, Source};
use super::sampled_file::SampledFile;

/// `/proc/net/dev`: packets, bytes and losses of each interface that existed at the start.
pub(super) struct Interfaces {
    file: SampledFile,
    names: Vec<String>,
}

/// The index of a column in `/proc/net/dev`, and our name for it. The kernel adds packets that a card missed for lack of
/// buffers to `drop`.
const FIELDS: [(usize, &str, &str); 9] = [
    (0, "rx_bytes", "bytes"),
    (1, "rx_packets", "packets"),
    (2, "rx_errors", "packets"),
    (3, "rx_dropped", "packets"),
    (4, "rx_fifo", "packets"),
    (8, "tx_bytes", "bytes"),
    (9, "tx_packets", "packets"),
    (10, "tx_errors", "packets"),
    (11, "tx_dropped", "packets"),
];

impl Interfaces {
    /// Opens the interfaces of process `pid`'s network namespace, or of our own.
    pub(super) fn open(pid: Option<u32>) -> std::io::Result<Interfaces> {
        let mut file = match pid {
            Some(pid) => SampledFile::open(format!("/proc/{pid}/net/dev"))?,
            None => SampledFile::open("/proc/net/dev")?,
        };
        let names = file.read().lines().skip(2).filter_map(|line| line.split_once(':'));
        let names = names.map(|(name, _)| name.trim().to_owned()).collect();
        Ok(Interfaces { file, names })
    }
}

impl Source for Interfaces {
    fn columns(&self) -> Vec<Column> {
        let of = |name: &String| {
            let name = name.clone();
            FIELDS.iter().map(move |(_, field, unit)| Column::count(format!("net.{name}.{field}"), unit))
        };
        self.names.iter().flat_map(of).collect()
    }

    fn read(&mut self, row: &mut Vec<f64>) {
        let first = row.len();
        row.resize(first + self.names.len() * FIELDS.len(), f64::NAN);
        for line in self.file.read().lines().skip(2) {
            let Some((name, rest)) = line.split_once(':') else { continue };
            let Some(at) = self.names.iter().position(|known| known == name.trim()) else { continue };
            let mut values = [f64::NAN; 16];
            for (value, word) in values.iter_mut().zip(rest.split_ascii_whitespace()) {
                *value = word.parse().unwrap_or(f64::NAN);
            }
            for (column, (field, _, _)) in FIELDS.iter().enumerate() {
                row[first + at * FIELDS.len() + column] = values[*field];
            }
        }
    }
}

/// `/proc/net/softnet_stat`: packets that the kernel took from the cards, dropped because its queue was full, and
/// deferred because its time was up (squeezed). It covers the whole machine, in any namespace.
pub(super) struct Softnet {
    file: SampledFile,
    cores: Vec<u32>,
}

impl Softnet {
    pub(super) fn open() -> std::io::Result<Softnet> {
        let mut file = SampledFile::open("/proc/net/softnet_stat")?;
        // The thirteenth word of a line is its core. Old kernels omit the word, but then have a line for every core.
        let number = |(at, line): (usize, &str)| {
            let said = line.split(' ').nth(12).and_then(|word| u32::from_str_radix(word, 16).ok());
            said.unwrap_or(at as u32)
        };
        let cores = file.read().lines().enumerate().map(number).collect();
        Ok(Softnet { file, cores })
    }
}

impl Source for Softnet {
    fn columns(&self) -> Vec<Column> {
        let mut columns = Vec::new();
        for (name, unit) in [("processed", "packets"), ("dropped", "packets"), ("squeezed", "times")] {
            columns.push(Column::count(format!("softnet.{name}"), unit));
            columns.extend(self.cores.iter().map(|core| Column::count(format!("softnet.cpu{core}.{name}"), unit)));
        }
        columns
    }

    fn read(&mut self, row: &mut Vec<f64>) {
        let first = row.len();
        let width = self.cores.len() + 1;
        row.resize(first + 3 * width, f64::NAN);
        for (core, line) in self.file.read().lines().take(self.cores.len()).enumerate() {
            for (field, word) in line.split(' ').take(3).enumerate() {
                row[first + field * width + 1 + core] = u32::from_str_radix(word, 16).map_or(f64::NAN, f64::from);
            }
        }
        for field in 0..3 {
            let of = first + field * width;
            row[of] = row[of + 1..of + width].iter().sum();
        }
    }
}
