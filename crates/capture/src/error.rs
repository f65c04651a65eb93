//! Errors of reading a capture.

use std::io;
use std::path::PathBuf;

use margay_packet::LinkType;

/// Why a filter could not be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FilterError {
    /// libpcap rejects the expression for this link type.
    #[error("filter \"{expression}\" cannot be used with link type {}: {message}", link.0)]
    Compile {
        /// The expression.
        expression: String,
        /// The link type.
        link: LinkType,
        /// libpcap's error.
        message: String,
    },
    /// The filter file cannot be read.
    #[error("{}: filter file cannot be read: {source}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The capture has more link types than filters may be compiled for.
    #[error("more than {0} link types in one run; no further filter is compiled")]
    TooManyLinks(usize),
}

/// Why a capture could not be opened or read to its end. Each error names the file, and errors within the file the byte offset.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system would not open the file, or not list the folder.
    #[error("{}: cannot be opened: {source}", file.display())]
    Open {
        /// The file or folder.
        file: PathBuf,
        /// The system's error: `NotFound`, `PermissionDenied`, ...
        source: io::Error,
    },
    /// A read failed in the middle of the file.
    #[error("{}: reading at byte {offset} failed: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// Offset at which the read began.
        offset: u64,
        /// Why.
        source: io::Error,
    },
    /// The file has no bytes at all.
    #[error("{}: is empty; a capture has at least a file header", file.display())]
    Empty {
        /// The file.
        file: PathBuf,
    },
    /// The file is compressed.
    #[error("{}: is compressed with {with}; decompress it first", file.display())]
    Compressed {
        /// The file.
        file: PathBuf,
        /// The compression: `gzip`, `xz`, ...
        with: &'static str,
    },
    /// Neither pcap nor pcapng.
    #[error(
        "{}: is not a capture that can be read: it begins with {}, pcap and pcapng files do not{}",
        file.display(), Hex(*magic), hint
    )]
    UnknownFormat {
        /// The file.
        file: PathBuf,
        /// Its first four bytes.
        magic: [u8; 4],
        /// Its probable format and the remedy; empty if unknown.
        hint: &'static str,
    },
    /// An undefined version of the format, or a broken header.
    #[error("{}: is a {format} file of version {major}.{minor}, which is not supported", file.display())]
    Version {
        /// The file.
        file: PathBuf,
        /// `pcap` or `pcapng`.
        format: &'static str,
        /// Major version found.
        major: u16,
        /// Minor version found.
        minor: u16,
    },
    /// The file ends inside a header or record. All packets before it were delivered.
    #[error(
        "{}: is cut short: what begins at byte {offset} takes {wanted} bytes, but the file ends after {got} of them",
        file.display()
    )]
    Truncated {
        /// The file.
        file: PathBuf,
        /// Offset of the incomplete record.
        offset: u64,
        /// Bytes that the record needs, as far as is known.
        wanted: u64,
        /// Bytes that the file has.
        got: u64,
    },
    /// A length or number in the file is inconsistent. All packets before it were delivered. None can be found after it, because
    /// the next record's place is unknown.
    #[error("{}: is corrupt at byte {offset}: {reason}", file.display())]
    Corrupt {
        /// The file.
        file: PathBuf,
        /// Offset of the broken record.
        offset: u64,
        /// The error.
        reason: Broken,
    },
    /// The filter does not compile for this file's link type.
    #[error("{}: {source}", file.display())]
    Filter {
        /// The file.
        file: PathBuf,
        /// The filter compiler's error.
        source: FilterError,
    },
    /// Options that exclude each other.
    #[error("{0}")]
    Options(&'static str),
    /// The file could not be deleted after it was read.
    #[error("{}: cannot be deleted: {source}", file.display())]
    Delete {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A folder has more files than a listing may have.
    #[error("{}: holds more than {limit} files; the rest are left out: use sub folders, one run each", folder.display())]
    TooManyFiles {
        /// The folder given.
        folder: PathBuf,
        /// The limit of a listing.
        limit: usize,
    },
}

/// An error in a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Broken {
    /// A record has more bytes than any capture program writes for one packet.
    #[error("a packet record claims {claimed} captured bytes; no more than {limit} are taken")]
    PacketLength {
        /// The length in the record.
        claimed: u32,
        /// The largest accepted length.
        limit: u32,
    },
    /// A pcapng block length that is too small, too large or not a multiple of four.
    #[error("a pcapng block of type {kind:#010x} claims a length of {length} bytes, which cannot be")]
    BlockLength {
        /// The block's type.
        kind: u32,
        /// The length in the block.
        length: u32,
    },
    /// The length at the end of a pcapng block differs from the one at its start.
    #[error("a pcapng block of {start} bytes ends with a length of {end}")]
    BlockTrailer {
        /// Length at the start.
        start: u32,
        /// Length at the end.
        end: u32,
    },
    /// A section header block with an invalid byte-order magic.
    #[error("a pcapng section has the byte-order magic {0:#010x}, which is none")]
    ByteOrder(u32),
    /// A pcapng packet names an interface that was not described.
    #[error("a pcapng packet block names interface {id}, but {known} are described")]
    Interface {
        /// The interface named.
        id: u32,
        /// Number of interfaces described in this section.
        known: u32,
    },
    /// A pcapng section describes more interfaces than the limit.
    #[error("a pcapng section describes more than {0} interfaces")]
    TooManyInterfaces(usize),
    /// A pcapng option that does not fit its block, or has the wrong length.
    #[error("option {0} of a pcapng interface description has a length that cannot be")]
    Option(u16),
    /// A pcapng section of a version that is not defined.
    #[error("a pcapng section has version {0}.{1}, which is not supported")]
    Version(u16, u16),
}

struct Hex([u8; 4]);

impl std::fmt::Display for Hex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [a, b, c, d] = self.0;
        write!(f, "{a:02x} {b:02x} {c:02x} {d:02x}")
    }
}
