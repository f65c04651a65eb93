//! Archives of captures: `margay split`.
//!
//! A capture cannot be divided at arbitrary bytes: an alert depends on all packets of its flow. [`split`] divides a capture
//! so that related packets stay together. An engine on each part raises the same alerts as one engine on the whole capture.
//! Beside each part, it writes an index that shows what the part does not contain. [`join`] merges parts again, in capture
//! order.
//!
//! # What stays together
//!
//! A frame's bucket is a hash of the two addresses of its outermost IP header, the same in both directions. So these are in
//! one bucket: both directions of a flow, all flows between two hosts (and with them the connections that FTP announces
//! between the same two), all fragments of a datagram, and a tunnel with its inner packets. An ICMP error that quotes a
//! packet of another flow (destination unreachable, RFC 792) goes to the bucket of that packet. Frames without an IP header
//! are in bucket 0.
//!
//! If the same inner flow travels in tunnels with different outer addresses, its frames may be in several buckets. Splitting
//! detects that ([`pair::Claims`]), and the archive lists the buckets that must be read [`archive::Manifest::together`].
//!
//! # Layout
//!
//! | file | content |
//! | --- | --- |
//! | `archive.json` | [`archive::Manifest`]: the captures, the options, and the list of parts |
//! | `B-W.pcapng` | the packets of bucket B in window W, in order |
//! | `B-W.numbers` | the number of each packet in the whole capture, from 1, 8 bytes each, little endian |
//! | `B-W.groups` | the flow group of each packet, and the length of its block ([`group`]): selects what a hunt for one host reads |
//! | `B-W.index.json` | [`archive::PartIndex`]: times, protocols, counts, checksum, linked groups, and a Bloom filter of addresses, networks and ports |
//!
//! An archive is written to `DIR.partial` and renamed when it is complete, so a partial archive never has the final name.
//!
//! # Limits
//!
//! | what | limit | effect |
//! | --- | --- | --- |
//! | buckets | 256 | refused on the command line |
//! | files of parts | 1,000,000 | [`Error::TooManyParts`] |
//! | bytes that wait to be written | 64 MiB for all buckets | written; only one file is open at a time |
//! | index entries that are kept individually | 4,194,304 for all buckets | they go into a filter of fixed size, which then answers "maybe" more often |
//! | links of groups that an index lists | 2,048 a part | the part is always read whole |
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
