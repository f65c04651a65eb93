//! Views of a running engine. Once a second, a sample of its counters ([`model::Sample`]) becomes a snapshot
//! ([`model::Snapshot`]). The terminal view and the live page show the snapshot, and the metrics show the sample.
//!
//! - [`hub`]: takes samples and events. It keeps the last hour, the last alerts and the addresses with most traffic, all of
//!   bounded size.
//! - [`sketch`]: the most frequent keys, with a bounded number of counters.
//! - [`health`]: reports losses and other problems, and the setting to change.
//! - [`metrics`]: every counter as OpenMetrics, and as the text format of Prometheus.
//! - [`web`]: the live page and `/metrics` over HTTP/1.1, read-only.
//! - [`top`]: `margay top`.
//!
//! This crate does not depend on the engine, and does not run on the packet path. A thread of the engine calls
//! [`hub::Hub::take`], and the threads that serve clients read the result. `docs/watch.md` is the user's view.

pub mod health;
pub mod hub;
pub mod metrics;
pub mod model;
pub mod sketch;
pub mod top;
pub mod web;

pub use hub::Hub;
pub use top::{HELP as TOP_HELP, run as run_top};
