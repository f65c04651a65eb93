//! Settings of detection, with the defaults of Suricata 8.

use margay_rules::ast::Action;

use crate::mpm::{CacheSettings, MpmAlgo};

/// Default of `packet-alert-max`.
pub const PACKET_ALERT_MAX: u16 = 15;

/// Settings of detection.
///
/// `detect.prefilter.default`, `detect.grouping`, `detect.sgh-mpm-context` and `spm-algo` are missing here on purpose:
/// they tune Suricata's speed and memory and never change matches. Margay builds these parts differently.
#[derive(Debug, Clone, PartialEq)]
pub struct DetectConfig {
    /// `mpm-algo`
    pub mpm_algo: MpmAlgo,
    /// Most alerts that one packet keeps (`packet-alert-max`); 0 means the default, [`PACKET_ALERT_MAX`].
    pub packet_alert_max: u16,
    /// `action-order`, first to last. Actions missing from the list come last.
    pub action_order: Vec<Action>,
    /// `detect.inspection-recursion-limit`: most matching steps within one buffer.
    pub inspection_recursion_limit: u32,
    /// `pcre.match-limit`
    pub pcre_match_limit: u32,
    /// `pcre.match-limit-recursion`
    pub pcre_match_limit_recursion: u32,
    /// `asn1-max-frames`: most outermost elements that `asn1` inspects.
    pub asn1_frames: u32,
    /// `detect.thresholds.memcap`: most bytes of threshold counts, for all workers that count together.
    pub threshold_memcap: u64,
    /// `detect.thresholds.hash-size`: initial capacity of the table, which grows.
    pub threshold_hash_size: usize,
    /// Most tagged hosts, and most tagged flows, per worker.
    pub tag_entries: usize,
    /// Most host bits per worker; from `host.memcap`.
    pub host_entries: usize,
    /// Most host pair bits per worker; from `ippair.memcap`.
    pub pair_entries: usize,
    /// Most port groups for one transport, to the server and to the client (`detect.profile`). Beyond this number, the
    /// rules with the widest port lists move to the group that every packet is looked up in. This changes speed and
    /// memory, never the matches.
    pub port_groups: [usize; 2],
    /// `detect.guess-applayer-tx`: a rule without transaction keywords alerts with the current transaction, if there is
    /// exactly one.
    pub guess_tx: bool,
    /// `detect.stream-tx-log-limit`: how many such alerts name the same transaction.
    pub guess_limit: u8,
    /// `security.lua`
    pub lua: LuaConfig,
    /// Where compiled matchers are cached between starts (`detect.sgh-mpm-caching`).
    pub cache: Option<CacheSettings>,
}

/// Permissions of rule scripts (`security.lua`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LuaConfig {
    /// `allow-rules`: if off, rules with scripts are errors.
    pub allow: bool,
    /// `max-bytes`, `max-instructions`
    pub limits: margay_lua::Limits,
    /// `allow-restricted-functions`
    pub restricted: bool,
}

impl Default for DetectConfig {
    fn default() -> Self {
        DetectConfig {
            mpm_algo: MpmAlgo::Auto,
            packet_alert_max: PACKET_ALERT_MAX,
            action_order: vec![Action::Pass, Action::Drop, Action::Reject, Action::Alert],
            inspection_recursion_limit: 3000,
            pcre_match_limit: 3500,
            pcre_match_limit_recursion: 1500,
            asn1_frames: crate::inspect::asn1::FRAMES,
            threshold_memcap: 16 << 20,
            threshold_hash_size: 16384,
            tag_entries: 64 * 1024,
            host_entries: 256 * 1024,
            pair_entries: 64 * 1024,
            port_groups: [1024; 2],
            guess_tx: false,
            guess_limit: u8::MAX,
            lua: LuaConfig { allow: true, limits: margay_lua::Limits::RULES, restricted: false },
            cache: None,
        }
    }
}

impl DetectConfig {
    /// [`DetectConfig::packet_alert_max`] with 0 replaced by the default.
    pub const fn alert_max(&self) -> usize {
        if self.packet_alert_max == 0 { PACKET_ALERT_MAX as usize } else { self.packet_alert_max as usize }
    }
}
