//! Sources of packets: capture files, interfaces and queues; and packet filters.
//!
//! # How it works
//!
//! [`CaptureSource`] is the argument of `-r`: a file, standard input or a folder. The caller requests one [`Event`] after the
//! other: a file begins, a batch of frames, a file ends, nothing now, done. The engine drives it, so that the engine alone
//! decides when to log, to expire flows, to delete a file, and to stop.
//!
//! [`Reader`] reads one capture. Bytes go from the kernel into one buffer of 1 MiB (up to 32 MiB if a single pcapng block
//! needs it) and are not copied again: a [`Batch`] is a list of places in that buffer, and its frames borrow from it until
//! the next call. The first bytes determine the format (pcap of any byte order and resolution, or pcapng). Each format is one
//! `fill` function that takes whole records from the front of a byte slice and returns why it stopped; it knows nothing about
//! files. If a record is incomplete, the reader moves the partial record to the front, reads more and calls `fill` again. The
//! sizes of the reads therefore do not affect the result. A batch has only what is already in memory, so a slow source causes
//! small batches, not delays.
//!
//! [`Filter`]: libpcap compiles the expression, and our own small interpreter runs it. The interpreter is safe code without a
//! call into C for each packet. Unlike the binding's matcher, it distinguishes the length on the wire from the captured
//! bytes. [`FilterSet`] compiles an expression once for each link type, because pcapng files may have several.
//!
//! [`Progress`] is plain numbers. [`ProgressDisplay`] draws them; the caller provides the time.
//!
//! A [`live::LiveSource`] delivers packets of interfaces ([`af_packet`], [`af_xdp`]) and packets that netfilter hands over
//! ([`nfqueue`]) in the same batches of borrowed frames. [`ebpf`] has the programs that run in the kernel.
//!
//! # Limits
//!
//! | what | limit | where it is reached |
//! | --- | --- | --- |
//! | captured bytes of a packet | 262,144, as libpcap and Wireshark | [`Broken::PacketLength`]; the file ends there |
//! | pcapng packet or interface block | 16 MiB | [`Broken::BlockLength`]; the file ends there |
//! | interfaces of a pcapng section | 65,536 | [`Broken::TooManyInterfaces`]; the file ends there |
//! | link types with a compiled filter | 64 a run | [`FilterError::TooManyLinks`]; the file ends there |
//! | files listed of a folder at a time | 1,000,000 | [`Error::TooManyFiles`]; with `continuous` later looks find the rest |
//! | depth of sub folders | 255 | [`SkipReason::TooDeep`] |
//!
//! # What Suricata does
//!
//! Observed with Suricata 7.0.10 and `-r`; the engine decides which behaviour to follow. Once Suricata has started, its exit
//! status is 0 whatever the file contains. Here it is 1 if the only file is not a capture, because nothing was inspected then.
//!
//! | input | exit status | what happens | here |
//! | --- | --- | --- | --- |
//! | no such file or folder | 1 | error before start: `pcap file 'x': No such file or directory` | [`CaptureSource::open`] fails with [`Error::Open`] |
//! | `-` | 1 | taken as a file name, which does not exist; `/dev/stdin` works | standard input |
//! | permission denied | 0 | error, `Failed to init pcap file x, skipping` | [`Event::Failed`] |
//! | empty file, cut file header | 0 | error `truncated dump file`, skipped | [`Event::Failed`], [`Error::Empty`], [`Error::Truncated`] |
//! | no capture, compressed | 0 | error `unknown file format`, skipped | [`Event::Failed`], [`Error::UnknownFormat`], [`Error::Compressed`] |
//! | unsupported version | 0 | error, skipped | [`Event::Failed`], [`Error::Version`] |
//! | unknown link type | 0 | error `datalink type 147 not (yet) supported`, skipped | [`FileStart::link`] tells; the decoder knows which it takes |
//! | header, no packet | 0 | error `failed to get first packet timestamp`, skipped | [`Event::FileStart`], [`Event::FileEnd`] |
//! | cut in the middle | 0 | whole packets are processed, error `truncated dump file`; the file is not counted as read | batches, then [`FileEnd::error`] is [`Error::Truncated`] |
//! | record length over 262,144 | 0 | packets before are processed, error `invalid packet capture length` | batches, then [`Error::Corrupt`] |
//! | record longer than the file's snaplen | 0 | cut to the snaplen | the same |
//! | filter that does not compile | 0 | error `bpf compilation error`, skipped | [`FileEnd::error`] is [`Error::Filter`], at the first packet |
//! | filter that lets nothing through | 0 | error `failed to get first packet timestamp`, skipped | a file without frames |
//! | filter file (`-F`) missing | 1 | error before start | [`Filter::from_file`] fails |
//! | filter file and filter arguments | 0 | the arguments are used | the caller chooses |
//! | pcapng with several link types | 0 | libpcap refuses the file's second link type | each frame has its own |
//! | folder | 0 | regular files by modification time, hidden ones too; links and pipes are left out silently; broken files are reported, the others go on; frame numbers count on | the same; [`Event::Skipped`] reports omitted files |
//! | empty folder | 0 | `read 0 files, 0 packets, 0 bytes` | [`Event::Done`] |
//! | `--pcap-file-recursive` and `--pcap-file-continuous` | 1 | error `cannot be used together` | [`Error::Options`] |
//! | `--pcap-file-continuous`, one file | 0 | ends with the file | the same |
//! | `--pcap-file-delete` | 0 | also deletes files that are broken or no captures at all | the caller deletes ([`DeletePolicy`], [`delete`]); better only after [`Event::FileEnd`] |
//!
//! `delete-when-done` takes `false` and `true` in Suricata 8; `non-alerts` is documented for later versions.

#[cfg(target_os = "linux")]
pub mod af_packet;
#[cfg(target_os = "linux")]
pub mod af_xdp;
mod ahead;
mod batch;
mod bpf;
mod buffer;
#[cfg(target_os = "linux")]
pub mod bypass;
#[cfg(target_os = "linux")]
pub mod ebpf;
mod error;
mod filter;
#[cfg(target_os = "linux")]
mod interface;
#[cfg(target_os = "linux")]
pub mod libpcap;
#[cfg(target_os = "linux")]
mod link;
pub mod live;
#[cfg(target_os = "linux")]
pub mod nfqueue;
#[cfg(target_os = "linux")]
pub mod offload;
mod pcap;
mod pcapng;
mod progress;
mod reader;
mod source;
#[cfg(target_os = "linux")]
mod sys;
mod writer;

pub use batch::{Batch, Counters};
pub use error::{Broken, Error, FilterError};
pub use filter::{Filter, FilterSet};
pub use progress::{Progress, ProgressDisplay, Style};
pub use reader::{FileFormat, Reader, drain};
pub use source::{CaptureSource, DeletePolicy, DirOptions, Event, FileEnd, FileStart, SkipReason, delete};
pub use writer::{FILE_HEADER_LEN, PcapWriter, RECORD_HEADER_LEN, Resolution};
