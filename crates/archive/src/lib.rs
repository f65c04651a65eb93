//! Archives of captures: `margay split`.
//!
//! A capture is not divisible by bytes: an alert depends on all packets of its flow. [`split`] divides one by what must lie together,
//! so that an engine on each part alerts as one engine on the whole capture does, and writes beside each part an index that says what
//! cannot be in it. [`join`] puts parts together again, in the order of the capture.
//!
//! # What lies together
//!
//! A frame's bucket is a hash of the two addresses of its outermost IP header, the same in both directions. So these are in one bucket:
//! both directions of a flow, all flows between two hosts (and with them the connections that FTP announces between the same two),
//! all fragments of a datagram, and a tunnel with what it carries. An ICMP error that carries a packet of another flow
//! (destination unreachable, RFC 792) goes to the bucket of that packet. Frames without an IP header are in bucket 0.
//!
//! Where the same inner flow travels in tunnels of different outer addresses, its frames may be in several buckets. That is seen while
//! splitting ([`pair::Claims`]): the archive then says that these buckets are to be read [`archive::Manifest::together`].
//!
//! # Layout
//!
//! | file | holds |
//! | --- | --- |
//! | `archive.json` | [`archive::Manifest`]: what was split and how, and the list of parts |
//! | `B-W.pcapng` | the packets of bucket B in window W, in their order |
//! | `B-W.numbers` | for each its number in the whole capture, from 1, 8 bytes each, little endian |
//! | `B-W.groups` | for each its group of flows and the length of its block ([`group`]): what a hunt for one host reads of the part |
//! | `B-W.index.json` | [`archive::PartIndex`]: times, protocols, counts, checksum, linked groups, and a Bloom filter of addresses, networks and ports |
//!
//! An archive is written to `DIR.partial` and renamed when it is whole: there is no half of one under its name.
//!
//! # Limits
//!
//! | what | limit | where it is reached |
//! | --- | --- | --- |
//! | buckets | 256 | refused on the command line |
//! | files of parts | 1,000,000 | [`Error::TooManyParts`] |
//! | bytes that wait to be written | 64 MiB for all buckets | written, and the file closed again: one is open at a time |
//! | entries of an index that are kept one by one | 4,194,304 for all buckets | they go into a filter of fixed size, which then answers "maybe" more often |
//! | links of groups that an index lists | 2,048 a part | the part is read whole, whatever is asked |
//! | inner flows whose bucket is remembered | 1,048,576 | [`archive::Manifest::claims_refused`]; all buckets with tunnels are then read together |

pub mod archive;
pub mod bloom;
pub mod command;
pub mod error;
pub mod group;
pub mod join;
pub mod pair;
pub mod part;
pub mod pcapng;
pub mod split;

pub use command::{help, run};
pub use error::Error;
