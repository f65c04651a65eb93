//! Views of a running engine: a sample of its counters once a second ([`model::Sample`]) becomes one picture
//! ([`model::Snapshot`]), which the terminal view, the live page and the metrics show.
//!
//! - [`hub`]: takes samples and events, keeps the last hour, the last alerts and the heaviest addresses, all of bounded size.
//! - [`sketch`]: the most frequent keys, with a bounded number of counters.
//! - [`health`]: what is lost where, and which setting to change.
//! - [`metrics`]: every counter as OpenMetrics, and as the text format of Prometheus.
//! - [`web`]: the live page and `/metrics` over HTTP/1.1, read-only.
//! - [`top`]: `margay top`.
//!
//! Nothing here knows the engine or runs on the packet path: a thread of the engine calls [`hub::Hub::take`], and the
//! servers of clients read the result. A user's view is in `docs/watch.md`.

pub mod health;
pub mod hub;
pub mod metrics;
pub mod model;
pub mod sketch;
pub mod top;
pub mod web;

pub use hub::Hub;
pub use top::{HELP as TOP_HELP, run as run_top};
