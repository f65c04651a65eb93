//! Where packets come from: capture files, interfaces, filters.
//!
//! # How it works
//!
//! [`CaptureSource`] is what `-r` names: a file, standard input or a folder. It is asked for one [`Event`] after the
//! other: a file begins, a batch of frames, a file ends, nothing now, done. The engine drives it, so that it alone decides
//! when to log, to expire flows, to delete a file, to stop.
//!
//! [`Reader`] reads one capture. Bytes go from the kernel into one buffer of 1 MiB (up to 32 MiB where a single pcapng
//! block needs it) and are never copied again: a [`Batch`] is a list of places in that buffer, and its frames borrow from
//! it until the next call. The format (pcap of any byte order and resolution; pcapng) is found from the first bytes. Each
//! format is one `fill` function that takes whole records from the front of a byte slice and says why it stopped; it
//! knows nothing of files. Where a record is not whole the reader moves that rest to the front, reads on and asks again,
//! so that how the reads are cut up changes nothing. Batches hold what is in memory already: a slow source is not waited
//! for.
//!
//! [`Filter`]: libpcap compiles the expression, a small interpreter of our own runs it. It is safe code without a call
//! into C per packet, and it knows the length on the wire beside the captured bytes, which the binding's matcher does
//! not. [`FilterSet`] compiles an expression once per link type, for pcapng files may have several.
//!
//! [`Progress`] is plain numbers; [`ProgressDisplay`] draws them, with the time given by the caller.
//!
//! Packets of interfaces come from a [`live::LiveSource`], in the same batches of borrowed frames: [`af_packet`],
//! [`af_xdp`]. So do those that netfilter hands over: [`nfqueue`]. [`ebpf`] is what runs in the kernel.
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
//! Observed with Suricata 7.0.10 and `-r`; the engine decides what of it to follow. Once the engine has started the exit
//! status is 0 whatever the file holds. Here it is 1 where the one file that was named is no capture, since nothing was inspected then.
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
mod bpf;
mod buffer;
#[cfg(target_os = "linux")]
pub mod bypass;
#[cfg(target_os = "linux")]
pub mod ebpf;
mod error;
mod filter;
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

pub use error::{Broken, Error};
pub use filter::{Filter, FilterError, FilterSet};
pub use progress::{Progress, ProgressDisplay, Style};
pub use reader::{Batch, Counters, FileFormat, Reader, drain};
pub use source::{CaptureSource, DeletePolicy, DirOptions, Event, FileEnd, FileStart, SkipReason, delete};
pub use writer::{FILE_HEADER_LEN, PcapWriter, RECORD_HEADER_LEN, Resolution};
