//! Settings of detection, with the defaults of Suricata 8.

use margay_rules::ast::Action;

use crate::mpm::{CacheSettings, MpmAlgo};

/// Default of `packet-alert-max`.
pub const PACKET_ALERT_MAX: u16 = 15;

/// Settings of detection.
///
/// `detect.prefilter.default`, `detect.grouping`, `detect.sgh-mpm-context` and `spm-algo` have no place here: they tune
/// Suricata's speed and memory and never what matches, and what they tune is built differently here.
#[derive(Debug, Clone, PartialEq)]
pub struct DetectConfig {
    /// `mpm-algo`
    pub mpm_algo: MpmAlgo,
    /// Most alerts that one packet keeps (`packet-alert-max`); 0 stands for the default, [`PACKET_ALERT_MAX`].
    pub packet_alert_max: u16,
    /// `action-order`, first to last. Actions that are not in it come after those that are.
    pub action_order: Vec<Action>,
    /// `detect.inspection-recursion-limit`: most steps of matching within one buffer.
    pub inspection_recursion_limit: u32,
    /// `pcre.match-limit`
    pub pcre_match_limit: u32,
    /// `pcre.match-limit-recursion`
    pub pcre_match_limit_recursion: u32,
    /// `asn1-max-frames`: most outermost elements that `asn1` looks at.
    pub asn1_frames: u32,
    /// `detect.thresholds.memcap`: most bytes of what thresholds count, of all workers that count together.
    pub threshold_memcap: u64,
    /// `detect.thresholds.hash-size`: entries that the table has places for from the start on; it grows.
    pub threshold_hash_size: usize,
    /// Most tagged hosts, and most tagged flows, that a worker keeps.
    pub tag_entries: usize,
    /// Most bits of hosts that a worker keeps; from `host.memcap`.
    pub host_entries: usize,
    /// Most bits of pairs of hosts that a worker keeps; from `ippair.memcap`.
    pub pair_entries: usize,
    /// Most port groups for one transport, to the server and to the client (`detect.profile`). Rules with the widest port
    /// lists move to the group that every packet is looked up in until the number is kept. It changes speed and memory, never
    /// what matches.
    pub port_groups: [usize; 2],
    /// `detect.guess-applayer-tx`: rules without keywords of transactions alert with the one that is going on, where there
    /// is but one.
    pub guess_tx: bool,
    /// `security.lua`
    pub lua: LuaConfig,
    /// Where compiled patterns are kept from one start to the next (`detect.sgh-mpm-caching`).
    pub cache: Option<CacheSettings>,
}

/// What scripts of rules may do (`security.lua`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LuaConfig {
    /// `allow-rules`: without it rules with scripts are errors.
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
