//! The columns of a sample.

/// How a column's value follows from the kernel's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    /// The current value.
    Gauge,
    /// The increase of a kernel counter since the previous sample.
    Count,
    /// The percentage of the period, from a kernel counter of time.
    Share {
        /// The counter's ticks in a second.
        second: f64,
    },
}

/// One column of a sample.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Column {
    /// The dotted name: `net.eth0.rx_packets`.
    pub(crate) name: String,
    /// See [`Kind`].
    pub(crate) kind: Kind,
    /// The unit: `bytes`, `%`, `packets`…
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

/// A source of columns.
pub(super) trait Source: Send {
    /// The columns that it provides, fixed when it was opened.
    fn columns(&self) -> Vec<Column>;

    /// Appends the kernel's current values, one for each column and in the same order; NaN if the kernel has none.
    fn read(&mut self, row: &mut Vec<f64>);
}
