//! Events as EVE JSON and the other formats.
//!
//! # How it works
//!
//! The engine tells what happened with the structs of [`event`], whose fields borrow from packets, flows and rules.
//! Before it makes one it asks [`Outputs::wants`], a bit test, so that what nobody wants costs nothing. [`Outputs`] is
//! what one worker has; it hands an event to each output that wants it, an [`EventSink`]: [`eve`] (JSON lines), [`fast`]
//! (`fast.log`), [`stats_log`] (`stats.log`); and packets to [`pcaplog`] (capture files). Nothing here decides what happened, and
//! nothing here reads the configuration: [`settings`] holds each output's options, which the engine fills in.
//!
//! An event becomes text in the buffer of a [`sinks::Sink`], once and in its place ([`json::Json`]; times from a
//! [`time::Clock`] that remembers them; what a rule says of itself as [`eve::signature_json`] made it the first time). The
//! worker's end of a sink collects lines; at the end of a batch of packets ([`Outputs::end_batch`]) they go to what all
//! workers share, under a lock, and there to the file or socket, or into a buffer of `buffer-size`. With
//! [`Outputs::write_aside`] they are handed over to a thread that does this, and gives the buffers back.
//! [`Outputs::tick`], about once a second and by wall clock, flushes, rotates files, connects to sockets again. So an event
//! costs no system call, and no lock but one a batch.
//!
//! [`log`] is the engine's own voice: console, `suricata.log`, syslog. It is not for the packet path.
//!
//! # What an event looks like
//!
//! Names, order and values of members are what Suricata 7.0.10 writes, observed; what version 8 adds (`ip_v`,
//! `linktype_name`, `ts_progress`, ...) follows the conformance cases. Worth knowing:
//!
//! - `icmp_id` and `icmp_seq` of `drop` are the bytes of the wire read as little-endian numbers, as there.
//! - `community_id` counts protocols without ports as having ports 0, and ESP as having its SPI there, as there.
//! - `flowvars` captured with their key are two objects, `{"key":..},{"value":..}`, as there.
//! - Only events of flows have a `community_id`, only captured frames a `pcap_cnt`.
//!
//! # Limits and failures
//!
//! | what | limit or policy |
//! | --- | --- |
//! | lines a worker holds | handed over at 128 KiB even within a batch |
//! | lines that a thread is to write | 16 buffers of up to 128 KiB; a worker that has more waits ([`OutputCounters::waits`]) |
//! | lines in a shared buffer | `buffer-size` |
//! | what a slow stream socket did not take | one hand-over; new lines are lost and counted until it is sent |
//! | a file or socket that cannot be written | said once; lines lost are counted ([`OutputCounters::lost`]); no half line stays |
//! | a file that cannot be opened at the start | error |
//! | a capture file that cannot be written | said once; packets lost are counted; the next packet begins a new file |
//! | what waits for another machine | `queue-size` in memory, then `max-size` on disk; then lost and counted, or waited for ([`remote`]) |
//! | `pcap-log` mode `sguil` | error that says so |

pub mod community_id;
pub mod eve;
pub mod event;
pub mod fast;
pub mod log;
pub mod names;
pub mod output;
pub mod outputs;
pub mod pcaplog;
pub mod remote;
pub mod settings;
pub mod sinks;
pub mod stats_log;
mod writer;

pub use margay_json::{self as json, time};
pub use output::{Event, EventSink, OutputSettings};
pub use outputs::{OutputError, Outputs};
pub use sinks::OutputCounters;
