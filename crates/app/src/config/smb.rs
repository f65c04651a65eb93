//! Settings of SMB, and of its log.

use margay_flow::Direction;

/// Settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// `stream-depth`: the number of bytes of a direction that are parsed; 0 for all. It replaces `stream.reassembly.depth`.
    pub stream_depth: u64,
    /// `max-read-size`: the limit of a read in bytes; a longer one is an event. 0 for no limit.
    pub max_read_size: u32,
    /// `max-write-size`: the same for writes.
    pub max_write_size: u32,
    /// `max-read-queue-size`: the limit of bytes in a flow's reads that wait for earlier data of the file. Above it, the
    /// missing data becomes a gap in the file.
    pub max_read_queue_size: u32,
    /// `max-read-queue-cnt`: the limit of waiting reads in a flow.
    pub max_read_queue_cnt: u32,
    /// `max-write-queue-size`: as for reads.
    pub max_write_queue_size: u32,
    /// `max-write-queue-cnt`: as for reads.
    pub max_write_queue_cnt: u32,
    /// `max-guid-cache-size`: the limit of open files in a flow whose names are kept; the oldest are evicted.
    pub max_guid_cache_size: u32,
    /// `max-rec-offset-cache-size`: the limit of reads and writes in a flow that wait for their response; the oldest are
    /// evicted.
    pub max_rec_offset_cache_size: u32,
    /// `max-tree-cache-size`: the limit of trees in a flow; the oldest are evicted.
    pub max_tree_cache_size: u32,
    /// `max-dcerpc-frag-cache-size`: the limit of named pipes in a flow whose DCE/RPC is reassembled; the oldest are evicted.
    pub max_dcerpc_frag_cache_size: u32,
    /// `max-session-cache-size`: the limit of requests in a flow that wait for their response; the oldest are evicted.
    pub max_session_cache_size: u32,
    /// `max-tx`: the limit of open transactions in a flow. A further one ends the oldest (`too_many_transactions`).
    pub max_tx: u32,
}

impl Config {
    /// The limits of bytes and chunks that may wait for a direction's files.
    pub(crate) fn queue_limits(&self, dir: Direction) -> (usize, u32) {
        match dir {
            Direction::ToServer => (self.max_write_queue_size as usize, self.max_write_queue_cnt),
            Direction::ToClient => (self.max_read_queue_size as usize, self.max_read_queue_cnt),
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Config {
            stream_depth: 0,
            max_read_size: 16 << 20,
            max_write_size: 16 << 20,
            max_read_queue_size: 64 << 20,
            max_read_queue_cnt: 64,
            max_write_queue_size: 64 << 20,
            max_write_queue_cnt: 64,
            max_guid_cache_size: 1024,
            max_rec_offset_cache_size: 128,
            max_tree_cache_size: 512,
            max_dcerpc_frag_cache_size: 128,
            max_session_cache_size: 512,
            max_tx: 1024,
        }
    }
}

/// Transaction kinds, as bits of [`LogOptions::kinds`].
pub mod kinds {
    /// Reads and writes of files.
    pub const FILE: u16 = 1;
    /// Connections to a share.
    pub const TREE_CONNECT: u16 = 1 << 1;
    /// Negotiation of the dialect.
    pub const NEGOTIATE: u16 = 1 << 2;
    /// DCE/RPC.
    pub const DCERPC: u16 = 1 << 3;
    /// Opening of files and directories.
    pub const CREATE: u16 = 1 << 4;
    /// Authentication.
    pub const SESSION_SETUP: u16 = 1 << 5;
    /// Control codes.
    pub const IOCTL: u16 = 1 << 6;
    /// Renaming of files.
    pub const RENAME: u16 = 1 << 7;
    /// Setting of file properties, including deletion.
    pub const SET_FILE_PATH_INFO: u16 = 1 << 8;
    /// All others.
    pub const GENERIC: u16 = 1 << 9;
    /// All kinds with their names in the configuration.
    pub const NAMES: [(&str, u16); 10] = [
        ("file", FILE),
        ("tree_connect", TREE_CONNECT),
        ("negotiate", NEGOTIATE),
        ("dcerpc", DCERPC),
        ("create", CREATE),
        ("session_setup", SESSION_SETUP),
        ("ioctl", IOCTL),
        ("rename", RENAME),
        ("set_file_path_info", SET_FILE_PATH_INFO),
        ("generic", GENERIC),
    ];
}

/// Settings of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogOptions {
    /// The logged transactions (`types`), bits of [`kinds`].
    pub kinds: u16,
}

impl Default for LogOptions {
    fn default() -> Self {
        LogOptions { kinds: u16::MAX }
    }
}
