//! Settings of the stream engine, with the defaults of Suricata 8 (`stream:`).

use crate::policy::HostOsPolicies;

/// What to do with urgent data (`stream.reassembly.urgent.policy`, RFC 6093).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum UrgentPolicy {
    /// The byte that the urgent pointer names is out of band: it is removed from the stream.
    #[default]
    Oob,
    /// The byte is ordinary stream data.
    Inline,
    /// Inline, packets with URG are dropped. Passive, the same as [`UrgentPolicy::Oob`].
    Drop,
    /// Data of packets with URG is skipped; the stream has a gap there.
    Gap,
    /// Inline, the urgent pointer is removed from packets, and its byte is ordinary stream data, whatever the host's
    /// application would do with it. Passive, the same as [`UrgentPolicy::Oob`].
    Clear,
}

impl UrgentPolicy {
    /// The policy with that name in the configuration.
    pub fn from_name(name: &str) -> Option<UrgentPolicy> {
        Some(match name {
            "oob" => UrgentPolicy::Oob,
            "inline" => UrgentPolicy::Inline,
            "drop" => UrgentPolicy::Drop,
            "gap" => UrgentPolicy::Gap,
            "clear" => UrgentPolicy::Clear,
            _ => return None,
        })
    }
}

/// Settings of [`crate::StreamEngine`].
#[derive(Debug, Clone)]
pub struct StreamConfig {
    /// Most memory for sessions, in bytes (`stream.memcap`); 0 means no limit.
    pub memcap: u64,
    /// Most memory for stream data, in bytes (`stream.reassembly.memcap`); 0 means no limit.
    pub reassembly_memcap: u64,
    /// Bytes of each direction that are reassembled (`stream.reassembly.depth`); 0 means all.
    pub depth: u64,
    /// Bytes to the server that are inspected together (`stream.reassembly.toserver-chunk-size`).
    pub toserver_chunk_size: u32,
    /// Bytes to the client that are inspected together.
    pub toclient_chunk_size: u32,
    /// Percentage by which chunk sizes vary between sessions (`randomize-chunk-size`, `randomize-chunk-range`). The
    /// session's first sequence number selects the size, so that the same input gives the same chunks; 0 is off.
    pub randomize_chunk_percent: u8,
    /// Bytes of inspected data that the next chunk repeats, so that matches across two chunks are found.
    pub raw_context: u32,
    /// Whether the raw stream is inspected (`stream.reassembly.raw`).
    pub raw: bool,
    /// Whether sessions are picked up midstream (`stream.midstream`).
    pub midstream: bool,
    /// Whether sessions with only one visible side are tracked (`stream.async-oneside`).
    pub async_oneside: bool,
    /// Whether data is inspected before it is acknowledged, and the first data stays (`stream.inline`).
    pub inline: bool,
    /// Whether inline mode drops packets that the session rejects (`stream.drop-invalid`).
    pub drop_invalid: bool,
    /// Whether rejected packets may pass if they have no uninspected data: no data at all, acknowledged data, or the
    /// same bytes as before. A host retransmits data that it considers lost, and waits forever if that is dropped.
    pub spare_harmless: bool,
    /// Most different SYNs stored for a session (`stream.max-syn-queued`).
    pub max_syn_queued: u8,
    /// Most different SYN/ACKs stored for a session (`stream.max-synack-queued`).
    pub max_synack_queued: u8,
    /// Whether timestamps are checked loosely, to accept hosts that answer with odd ones (`stream.liberal-timestamps`).
    pub liberal_timestamps: bool,
    /// Whether packets with a wrong checksum are ignored (`stream.checksum-validation`).
    pub checksum_validation: bool,
    /// Whether anomalies are written for ambiguous data that no rule names ([`crate::StreamEvent::is_ambiguity`],
    /// `stream.reassembly.check-overlap-different-data`).
    pub write_ambiguity: bool,
    /// Whether a flow is bypassed when a direction reached [`StreamConfig::depth`] (`stream.bypass`).
    pub bypass: bool,
    /// Policy for urgent data.
    pub urgent: UrgentPolicy,
    /// Most urgent bytes removed from a direction (`stream.reassembly.urgent.oob-limit`).
    pub urgent_oob_limit: u16,
    /// Policy for urgent data beyond that limit (`stream.reassembly.urgent.oob-limit-policy`).
    pub urgent_oob_limit_policy: UrgentPolicy,
    /// Most timed out connections that are remembered and may be resumed (`margay.resumable-connections`); 0 for none.
    pub remembered: usize,
    /// Most memory of connections that a reset closed and that may go on, in bytes (`margay.reset-memory`); 0 means no
    /// limit. The engine enforces it with [`crate::TcpSession::settle`].
    pub reset_memory: u64,
    /// How hosts reassemble, by network (`host-os-policy`).
    pub os_policies: HostOsPolicies,
}

impl Default for StreamConfig {
    fn default() -> Self {
        StreamConfig {
            memcap: 64 << 20,
            reassembly_memcap: 256 << 20,
            depth: 1 << 20,
            toserver_chunk_size: 2560,
            toclient_chunk_size: 2560,
            randomize_chunk_percent: 0,
            raw_context: 512,
            raw: true,
            midstream: false,
            async_oneside: false,
            inline: false,
            drop_invalid: true,
            spare_harmless: false,
            max_syn_queued: 10,
            max_synack_queued: 5,
            liberal_timestamps: false,
            checksum_validation: true,
            write_ambiguity: false,
            bypass: false,
            urgent: UrgentPolicy::Oob,
            urgent_oob_limit: 64,
            urgent_oob_limit_policy: UrgentPolicy::Drop,
            remembered: 65_536,
            reset_memory: 16 << 20,
            os_policies: HostOsPolicies::default(),
        }
    }
}
