//! Events as EVE JSON and in the other formats.
//!
//! # How it works
//!
//! The engine reports events with the structs of [`event`], whose fields borrow from packets, flows and rules. Before the
//! engine builds an event, it checks [`Outputs::wants`], so that an unwanted event costs one bit test. Each worker has its
//! own [`Outputs`], which hands an event to every output that takes the type. An output is an [`EventSink`]: [`eve`] (JSON
//! lines), [`fast`] (`fast.log`), [`stats_log`] (`stats.log`). [`pcaplog`] (capture files) takes packets instead. This crate
//! only writes: the engine decides what happened, reads the configuration and fills in the options in [`settings`].
//!
//! An event is rendered once, directly into the buffer of a [`sinks::Sink`], with [`json::Json`]. A [`time::Clock`]
//! caches formatted times, and [`eve::signature_json`] renders the description of a rule once. A worker's end of a sink
//! collects lines. At the end of a batch of packets, [`Outputs::end_batch`] takes a lock and hands them to the end that
//! all workers share, which writes them to the file or socket, or into a buffer of `buffer-size`. With
//! [`Outputs::write_aside`] a thread does this and returns the buffers. [`Outputs::tick`] runs about once a second, by
//! wall clock. It flushes, rotates files and reconnects sockets. An event therefore costs no system call, and a batch
//! costs one lock.
//!
//! [`log`] writes the engine's own messages to the console, `suricata.log` and syslog. It is not for the packet path.
//!
//! # What an event looks like
//!
//! Names, order and values of members match what Suricata 7.0.10 was observed to write. Additions of version 8 (`ip_v`,
//! `linktype_name`, `ts_progress`, ...) follow the conformance cases. These details are deliberate, and the same as in
//! Suricata:
//!
//! - `icmp_id` and `icmp_seq` of `drop` are the bytes on the wire read as little-endian numbers.
//! - `community_id` counts protocols without ports as having ports 0, and puts ESP's SPI in their place.
//! - `flowvars` captured with their key are two objects, `{"key":..},{"value":..}`.
//! - Only events of flows have a `community_id`; only captured frames have a `pcap_cnt`.
//!
//! # Limits and failures
//!
//! | what | limit or policy |
//! | --- | --- |
//! | lines a worker holds | handed over at 128 KiB even within a batch |
//! | lines that wait for the writing thread | 16 buffers of up to 128 KiB; a worker with more waits ([`OutputCounters::waits`]) |
//! | lines in a shared buffer | `buffer-size` |
//! | lines that a slow stream socket did not take | one hand-over; newer lines are lost and counted until it is sent |
//! | a file or socket that cannot be written | logged once; lost lines are counted ([`OutputCounters::lost`]); no partial line stays |
//! | a file that cannot be opened at the start | error |
//! | a capture file that cannot be written | logged once; lost packets are counted; the next packet begins a new file |
//! | lines for a remote output | `queue-size` in memory, then `max-size` on disk; then lost and counted, or the worker waits ([`remote`]) |
//! | `pcap-log` mode `sguil` | an error that names the mode |

pub mod alert_debug;
pub mod community_id;
mod count;
pub mod data_log;
pub mod eve;
pub mod event;
pub mod fast;
mod hex;
pub mod lines;
pub mod log;
pub mod names;
pub mod output;
pub mod outputs;
pub mod pcaplog;
pub mod priority;
pub mod remote;
pub mod settings;
pub mod sinks;
pub mod stats_log;
mod writer;

pub use margay_json::{self as json, time};
pub use output::{Event, EventSink, OutputError, OutputSettings};
pub use outputs::Outputs;
pub use sinks::OutputCounters;
