//! Settings of the stream engine, with the defaults of Suricata 8 (`stream:`).

use crate::policy::HostOsPolicies;

/// What to do with urgent data (`stream.reassembly.urgent.policy`, RFC 6093).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum UrgentPolicy {
    /// The byte that the urgent pointer names is out of band: left out of the stream.
    #[default]
    Oob,
    /// It is in the stream like any other.
    Inline,
    /// Packets with URG are dropped.
    Drop,
    /// Data of packets with URG is left out; the stream has a gap there.
    Gap,
    /// Inline, the urgent pointer is taken out of packets, and its byte is in the stream like any other, whatever the host's
    /// application would have had done with it. Where packets cannot be changed as [`UrgentPolicy::Oob`].
    Clear,
}

impl UrgentPolicy {
    /// The policy of that name in the configuration.
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
    /// Bytes of each direction that are put together (`stream.reassembly.depth`); 0 means all.
    pub depth: u64,
    /// Bytes to the server that are looked at together (`stream.reassembly.toserver-chunk-size`).
    pub toserver_chunk_size: u32,
    /// Bytes to the client that are looked at together.
    pub toclient_chunk_size: u32,
    /// Percent by which chunk sizes vary from session to session (`randomize-chunk-size`, `randomize-chunk-range`), by
    /// the session's first sequence number, so that the same input gives the same chunks; 0 is off.
    pub randomize_chunk_percent: u8,
    /// Bytes looked at before that are shown again in front of the next chunk, so that what spans two is found.
    pub raw_context: u32,
    /// Whether the raw stream is looked at (`stream.reassembly.raw`).
    pub raw: bool,
    /// Whether sessions are picked up in the middle (`stream.midstream`).
    pub midstream: bool,
    /// Whether sessions of which only one side is seen are followed (`stream.async-oneside`).
    pub async_oneside: bool,
    /// Whether data is looked at before it is acknowledged, and what came first stays (`stream.inline`).
    pub inline: bool,
    /// Whether packets that the session rejects are dropped in inline mode (`stream.drop-invalid`).
    pub drop_invalid: bool,
    /// Of these, whether those are let through that bring nothing that was not inspected: without data, with data that the
    /// receiver has acknowledged, or with the very bytes that were sent before. A host repeats what it takes for lost, and waits
    /// for ever where that is dropped.
    pub spare_harmless: bool,
    /// SYNs with different contents kept for a session (`stream.max-syn-queued`).
    pub max_syn_queued: u8,
    /// SYN/ACKs with different contents kept for a session (`stream.max-synack-queued`).
    pub max_synack_queued: u8,
    /// Whether timestamps are checked loosely: hosts that answer with odd ones are let pass
    /// (`stream.liberal-timestamps`).
    pub liberal_timestamps: bool,
    /// Whether packets with a wrong checksum are kept out of sessions (`stream.checksum-validation`).
    pub checksum_validation: bool,
    /// Whether anomalies are written for ambiguous data that no rule names ([`crate::StreamEvent::is_ambiguity`],
    /// `stream.reassembly.check-overlap-different-data`).
    pub write_ambiguity: bool,
    /// Whether the flow is to be bypassed when a direction reached [`StreamConfig::depth`] (`stream.bypass`).
    pub bypass: bool,
    /// Urgent data.
    pub urgent: UrgentPolicy,
    /// Urgent bytes taken out of a direction, at most (`stream.reassembly.urgent.oob-limit`).
    pub urgent_oob_limit: u16,
    /// What to do with urgent data past that (`stream.reassembly.urgent.oob-limit-policy`).
    pub urgent_oob_limit_policy: UrgentPolicy,
    /// Connections that timed out, at most, which are remembered and may go on (`margay.resumable-connections`); 0: none.
    pub remembered: usize,
    /// Who reassembles how (`host-os-policy`).
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
            os_policies: HostOsPolicies::default(),
        }
    }
}
