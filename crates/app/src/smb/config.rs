//! Settings of SMB, and of what its log shows.

use margay_flow::Direction;

/// Settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// `stream-depth`: most bytes of a direction that are followed; 0 for all. It takes the place of `stream.reassembly.depth`.
    pub stream_depth: u64,
    /// `max-read-size`: bytes that a read may be of; more are an event. 0 for no limit.
    pub max_read_size: u32,
    /// `max-write-size`: the same of writes.
    pub max_write_size: u32,
    /// `max-read-queue-size`: most bytes of a flow's reads that wait for what is before them in the file. With more they wait no
    /// longer: what is missing is a hole in the file.
    pub max_read_queue_size: u32,
    /// `max-read-queue-cnt`: most of a flow's reads that wait.
    pub max_read_queue_cnt: u32,
    /// `max-write-queue-size`: as for reads.
    pub max_write_queue_size: u32,
    /// `max-write-queue-cnt`: as for reads.
    pub max_write_queue_cnt: u32,
    /// `max-guid-cache-size`: most open files of a flow whose names are known; the oldest are forgotten.
    pub max_guid_cache_size: u32,
    /// `max-rec-offset-cache-size`: most reads and writes of a flow that wait for their response; likewise.
    pub max_rec_offset_cache_size: u32,
    /// `max-tree-cache-size`: most trees of a flow; likewise.
    pub max_tree_cache_size: u32,
    /// `max-dcerpc-frag-cache-size`: most named pipes of a flow that DCE/RPC is put together for; likewise.
    pub max_dcerpc_frag_cache_size: u32,
    /// `max-session-cache-size`: most requests of a flow that wait for their response; likewise.
    pub max_session_cache_size: u32,
    /// `max-tx`: most transactions of a flow that are not complete. With one more the oldest is at its end
    /// (`too_many_transactions`).
    pub max_tx: u32,
}

impl Config {
    /// Most bytes and chunks of a direction's files that may wait.
    pub(super) fn queue_limits(&self, dir: Direction) -> (usize, u32) {
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

/// Kinds of transactions, as bits of [`LogOptions::kinds`].
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
    /// New names of files.
    pub const RENAME: u16 = 1 << 7;
    /// Properties of files, which deletes them.
    pub const SET_FILE_PATH_INFO: u16 = 1 << 8;
    /// All others.
    pub const GENERIC: u16 = 1 << 9;
    /// All of them, with their names in the configuration.
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

/// What the log shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogOptions {
    /// Which transactions (`types`), bits of [`kinds`].
    pub kinds: u16,
}

impl Default for LogOptions {
    fn default() -> Self {
        LogOptions { kinds: u16::MAX }
    }
}
