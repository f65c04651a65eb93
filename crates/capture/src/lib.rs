//! Where packets come from: capture files, filters.

mod bpf;
mod buffer;
mod error;
mod filter;
mod pcap;
mod pcapng;
mod progress;
mod reader;
mod source;
mod writer;

pub use error::{Broken, Error};
pub use filter::{Filter, FilterError, FilterSet};
pub use progress::{Progress, ProgressDisplay, Style};
pub use reader::{Batch, Counters, FileFormat, Reader, drain};
pub use source::{CaptureSource, DeletePolicy, DirOptions, Event, FileEnd, FileStart, SkipReason, delete};
pub use writer::{FILE_HEADER_LEN, PcapWriter, RECORD_HEADER_LEN, Resolution};
