//! Counters of the network card: `ethtool -S`, with the driver's names.

use super::column::{Column, Source};
use crate::ethtool::Ethtool;

/// An interface whose driver has counters.
struct Card {
    ethtool: Ethtool,
    interface: String,
    names: Vec<String>,
}

/// The interfaces of a network namespace that have driver statistics.
pub(super) struct Cards(Vec<Card>);

impl Cards {
    /// Opens the interfaces that now exist in the network namespace of process `pid`, or in our own.
    ///
    /// # Errors
    /// If the namespace cannot be entered, which requires root.
    pub(super) fn open(pid: Option<u32>) -> std::io::Result<Cards> {
        let open = move || {
            let text = std::fs::read_to_string("/proc/thread-self/net/dev")?;
            let names = text.lines().skip(2).filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim());
            let card = |interface: &str| {
                let ethtool = Ethtool::open(interface).ok()?;
                let names = ethtool.statistics_names();
                (!names.is_empty()).then(|| Card { ethtool, interface: interface.to_owned(), names })
            };
            Ok(Cards(names.filter_map(card).collect()))
        };
        let Some(pid) = pid else { return open() };
        // A socket stays in the namespace that it was opened in. A thread enters the namespace, opens the socket, and
        // ends.
        let thread = std::thread::Builder::new().name("namespace".to_owned()).spawn(move || {
            let space = std::fs::File::open(format!("/proc/{pid}/ns/net"))?;
            rustix::thread::move_into_link_name_space(
                std::os::fd::AsFd::as_fd(&space),
                Some(rustix::thread::LinkNameSpaceType::Network),
            )?;
            open()
        })?;
        thread.join().unwrap_or_else(|_| Err(std::io::Error::other("the thread that asks for them failed")))
    }
}

impl Source for Cards {
    fn columns(&self) -> Vec<Column> {
        let of = |card: &Card| {
            let name = |name: &String| Column::count(format!("card.{}.{name}", card.interface), "as the driver says");
            card.names.iter().map(name).collect::<Vec<_>>()
        };
        self.0.iter().flat_map(of).collect()
    }

    fn read(&mut self, row: &mut Vec<f64>) {
        for card in &self.0 {
            let first = row.len();
            row.resize(first + card.names.len(), f64::NAN);
            // A changed number of queues changes the counters, so new counters are not mistaken for the old ones.
            let Some(values) = card.ethtool.statistics().filter(|values| values.len() == card.names.len()) else {
                continue;
            };
            for (column, value) in row[first..].iter_mut().zip(values) {
                *column = value as f64;
            }
        }
    }
}
