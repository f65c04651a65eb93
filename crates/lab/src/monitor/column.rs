//! What a column of a sample means.

/// How a column's value comes from what the kernel says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    /// As it is at the time of the sample.
    Gauge,
    /// The kernel counts up; the column is by how much since the last sample.
    Count,
    /// The kernel counts a time, so many to a second; the column is the percentage of the period.
    Share {
        /// What a second is in what the kernel counts.
        second: f64,
    },
}

/// One column of a sample.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Column {
    /// Its name, dotted: `net.eth0.rx_packets`.
    pub(crate) name: String,
    /// See [`Kind`].
    pub(crate) kind: Kind,
    /// In which unit it is: `bytes`, `%`, `packets`…
    pub(crate) unit: &'static str,
}

impl Column {
    pub(super) fn gauge(name: impl Into<String>, unit: &'static str) -> Column {
        Column { name: name.into(), kind: Kind::Gauge, unit }
    }

    pub(super) fn count(name: impl Into<String>, unit: &'static str) -> Column {
        Column { name: name.into(), kind: Kind::Count, unit }
    }

    pub(super) fn share(name: impl Into<String>, second: f64) -> Column {
        Column { name: name.into(), kind: Kind::Share { second }, unit: "%" }
    }
}

/// Where some columns come from.
pub(super) trait Source: Send {
    /// What it can tell, fixed when it was made.
    fn columns(&self) -> Vec<Column>;

    /// Pushes what the kernel says now, a number for each column in the same order; not a number where it says nothing.
    fn read(&mut self, row: &mut Vec<f64>);
}
