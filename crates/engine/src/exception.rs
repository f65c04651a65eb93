//! Exception policies: decide about a packet or its flow when the engine cannot inspect all of it.

use margay_app::AppProto;
use margay_config::{Config, ConfigError};

/// The action of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) enum Policy {
    /// Continue as far as possible.
    #[default]
    Ignore,
    /// Drop this packet.
    DropPacket,
    /// Drop this packet and the rest of its flow.
    DropFlow,
    /// Drop the flow and answer with a reset or unreachable.
    Reject,
    /// Stop inspecting the flow.
    Bypass,
    /// Let this packet through uninspected.
    PassPacket,
    /// Let the flow through uninspected.
    PassFlow,
}

impl Policy {
    /// Its name in counters and flow records: `drop_flow`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Policy::Ignore => "ignore",
            Policy::DropPacket => "drop_packet",
            Policy::DropFlow => "drop_flow",
            Policy::Reject => "reject",
            Policy::Bypass => "bypass",
            Policy::PassPacket => "pass_packet",
            Policy::PassFlow => "pass_flow",
        }
    }

    fn parse(text: &str) -> Option<Option<Policy>> {
        Some(Some(match text {
            "auto" => return Some(None),
            "ignore" => Policy::Ignore,
            "drop-packet" => Policy::DropPacket,
            "drop-flow" => Policy::DropFlow,
            "reject" => Policy::Reject,
            "bypass" => Policy::Bypass,
            "pass-packet" => Policy::PassPacket,
            "pass-flow" => Policy::PassFlow,
            _ => return None,
        }))
    }

    /// The policy if no flow can be dropped: a flow's policy becomes its packet's.
    const fn for_packet(self) -> Policy {
        match self {
            Policy::DropFlow => Policy::DropPacket,
            Policy::PassFlow => Policy::PassPacket,
            Policy::Bypass => Policy::Ignore,
            other => other,
        }
    }
}

/// The conditions that have a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Condition {
    /// The flow table reached its memory limit.
    FlowMemcap,
    /// The defragmenter reached its memory limit.
    DefragMemcap,
    /// No memory for another TCP session.
    StreamMemcap,
    /// No memory for more stream data.
    ReassemblyMemcap,
    /// A TCP session whose beginning was not seen.
    Midstream,
    /// An application parser failed.
    AppLayerError,
}

impl Condition {
    /// Every condition, in the order of their numbers.
    pub(crate) const ALL: [Condition; 6] = [
        Condition::FlowMemcap,
        Condition::DefragMemcap,
        Condition::StreamMemcap,
        Condition::ReassemblyMemcap,
        Condition::Midstream,
        Condition::AppLayerError,
    ];

    /// Its place in the counters: `exception_policy.` + this + `.drop_flow`.
    pub(crate) const fn counter(self) -> &'static str {
        match self {
            Condition::FlowMemcap => "flow.memcap",
            Condition::DefragMemcap => "defrag.memcap",
            Condition::StreamMemcap => "tcp.ssn_memcap",
            Condition::ReassemblyMemcap => "tcp.reassembly",
            Condition::Midstream => "tcp.midstream",
            Condition::AppLayerError => "app_layer.error",
        }
    }

    /// Its name in flow records (`flow.exception_policy[].target`).
    pub(crate) const fn target(self) -> &'static str {
        match self {
            Condition::FlowMemcap => "flow_memcap",
            Condition::DefragMemcap => "defrag_memcap",
            Condition::StreamMemcap => "stream_memcap",
            Condition::ReassemblyMemcap => "stream_reassembly_memcap",
            Condition::Midstream => "stream_midstream",
            Condition::AppLayerError => "app_layer_error",
        }
    }

    /// Its reason in drop events.
    pub(crate) const fn drop_reason(self) -> &'static str {
        match self {
            Condition::FlowMemcap => "flow memcap",
            Condition::DefragMemcap => "defrag memcap",
            Condition::StreamMemcap => "stream memcap",
            Condition::ReassemblyMemcap => "stream reassembly",
            Condition::Midstream => "stream midstream",
            Condition::AppLayerError => "applayer error",
        }
    }

    const fn setting(self) -> &'static str {
        match self {
            Condition::FlowMemcap => "flow.memcap-policy",
            Condition::DefragMemcap => "defrag.memcap-policy",
            Condition::StreamMemcap => "stream.memcap-policy",
            Condition::ReassemblyMemcap => "stream.reassembly.memcap-policy",
            Condition::Midstream => "stream.midstream-policy",
            Condition::AppLayerError => "app-layer.error-policy",
        }
    }

    const fn index(self) -> usize {
        self as usize
    }
}

/// The policy of every condition.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Policies {
    policies: [Policy; 6],
    /// Whether the midstream policy is configured, instead of implied by the mode.
    pub(crate) midstream_set: bool,
    /// Whether the policy for parser errors is configured.
    error_set: bool,
    /// Whether default policies do not apply to flows that were picked up midstream.
    spares_midstream: bool,
}

impl Policies {
    /// Reads `exception-policy` and the setting of each condition.
    ///
    /// `auto`, the default, is `drop-flow` inline and `ignore` otherwise.
    ///
    /// # Errors
    /// An unknown policy, or one that makes no sense for its condition.
    pub(crate) fn from_config(config: &Config, ips: bool, midstream: bool) -> Result<Policies, ConfigError> {
        let default = match Self::read(config, "exception-policy")? {
            Some(Some(p)) => p,
            _ if ips => Policy::DropFlow,
            _ => Policy::Ignore,
        };
        let mut out = Policies::default();
        for c in Condition::ALL {
            let read = Self::read(config, c.setting())?;
            let set = matches!(read, Some(Some(_)));
            let mut p = match read {
                Some(Some(p)) => p,
                Some(None) if ips => Policy::DropFlow,
                Some(None) => Policy::Ignore,
                None => default,
            };
            match c {
                Condition::Midstream => {
                    out.midstream_set = set;
                    p = Self::midstream(config, p, set, ips, midstream)?;
                }
                Condition::FlowMemcap | Condition::DefragMemcap => p = p.for_packet(),
                Condition::AppLayerError => out.error_set = set,
                _ => {}
            }
            if !ips && matches!(p, Policy::DropPacket | Policy::DropFlow | Policy::Reject) && !set {
                p = Policy::Ignore;
            }
            out.policies[c.index()] = p;
        }
        Ok(out)
    }

    /// On a live network, connections may be older than the engine. By default they are let through, and a parser that fails
    /// on such a connection, because it saw only the rest of a message, does not end it.
    pub(crate) fn spare_midstream(&mut self, config: &Config) {
        if !matches!(config.get("exception-policy"), None | Some("" | "auto")) {
            return;
        }
        self.spares_midstream = true;
        if !self.midstream_set {
            self.policies[Condition::Midstream.index()] = Policy::Ignore;
        }
    }

    /// The policy for a parser that fails, depending on whether the flow was picked up `midstream`.
    pub(crate) const fn of_error(&self, midstream: bool) -> Policy {
        if midstream && self.spares_midstream && !self.error_set {
            return Policy::Ignore;
        }
        self.of(Condition::AppLayerError)
    }

    /// The policy of `condition`.
    pub(crate) const fn of(&self, condition: Condition) -> Policy {
        self.policies[condition.index()]
    }

    fn read(config: &Config, key: &str) -> Result<Option<Option<Policy>>, ConfigError> {
        let Some(node) = config.node(key) else { return Ok(None) };
        let text = node.text();
        if text.is_empty() {
            return Ok(None);
        }
        Policy::parse(text).map(Some).ok_or_else(|| {
            node.error(format!(
                "\"{text}\" is no exception policy; {key} takes auto, ignore, drop-packet, drop-flow, reject, bypass, \
                 pass-packet or pass-flow"
            ))
        })
    }

    /// The midstream policy applies to whole flows: policies for single packets make no sense. With pick-up on, it must not
    /// drop flows that were to be picked up.
    fn midstream(config: &Config, p: Policy, set: bool, ips: bool, enabled: bool) -> Result<Policy, ConfigError> {
        let fits = match (p, enabled) {
            (Policy::Ignore | Policy::PassFlow, _) => true,
            (Policy::Bypass, false) => true,
            // A reset can be sent in every mode that sends packets.
            (Policy::Reject, false) => true,
            (Policy::DropFlow, false) => ips,
            _ => false,
        };
        if fits {
            return Ok(p);
        }
        if !set {
            // The master switch implies this policy. Dropping packets fails closed, bypass is possible, and anything else falls
            // back to pick-up.
            let kept = p == Policy::Bypass || (p == Policy::DropPacket && ips && !enabled);
            return Ok(if kept { p } else { Policy::Ignore });
        }
        let why = match p {
            Policy::DropPacket | Policy::PassPacket => "it judges single packets, and this is about sessions",
            _ if enabled => "stream.midstream is on, which asks for these sessions to be picked up",
            _ => "nothing can be dropped outside inline mode",
        };
        let key = Condition::Midstream.setting();
        let text = config.get(key).unwrap_or_default();
        Err(match config.node(key) {
            Some(n) => n.error(format!("{key} cannot be \"{text}\": {why}")),
            None => ConfigError::new(margay_config::Place::file("command line"), why),
        })
    }
}

/// How often each policy was applied.
#[derive(Debug, Clone)]
pub(crate) struct PolicyCounters {
    counts: [[u64; 7]; 6],
    /// For [`Condition::AppLayerError`], by transport (TCP, UDP) and protocol. A run has only one policy for it.
    errors: [[u64; 64]; 2],
}

impl Default for PolicyCounters {
    fn default() -> Self {
        PolicyCounters { counts: Default::default(), errors: [[0; 64]; 2] }
    }
}

impl PolicyCounters {
    /// Counts one application of a policy.
    pub(crate) fn count(&mut self, condition: Condition, policy: Policy) {
        self.counts[condition.index()][policy as usize] += 1;
    }

    /// Counts one application of a policy to a failed parser of `proto` over a transport (6, 17), in addition to
    /// [`PolicyCounters::count`].
    pub(crate) fn count_error(&mut self, transport: u8, proto: AppProto, policy: Policy) {
        if policy != Policy::Ignore
            && let Some(n) = self.errors[usize::from(transport == 17)].get_mut(proto as usize)
        {
            *n += 1;
        }
    }

    /// How often a policy was applied to a condition.
    pub(crate) const fn of(&self, condition: Condition, policy: Policy) -> u64 {
        self.counts[condition.index()][policy as usize]
    }

    /// How often `app-layer.error-policy` was applied, by transport (TCP, UDP) and protocol.
    pub(crate) const fn errors(&self) -> &[[u64; 64]; 2] {
        &self.errors
    }

    /// Calls `f` with the name and value of each counter that these policies can increment; `ignore` is not counted.
    pub(crate) fn for_each(&self, policies: &Policies, f: &mut dyn FnMut(&str, u64)) {
        for c in Condition::ALL {
            let p = policies.of(c);
            if p != Policy::Ignore {
                f(&format!("exception_policy.{}.{}", c.counter(), p.name()), self.counts[c.index()][p as usize]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policies(text: &str, ips: bool, midstream: bool) -> Result<Policies, ConfigError> {
        let config = Config::from_str(&format!("%YAML 1.1\n---\n{text}\n"), "test")?;
        Policies::from_config(&config, ips, midstream)
    }

    #[test]
    fn defaults_follow_the_mode() {
        assert_eq!(policies("a: b", false, false).unwrap().of(Condition::StreamMemcap), Policy::Ignore);
        assert_eq!(policies("a: b", true, false).unwrap().of(Condition::StreamMemcap), Policy::DropFlow);
        assert_eq!(policies("a: b", true, false).unwrap().of(Condition::FlowMemcap), Policy::DropPacket);
        assert_eq!(policies("a: b", true, true).unwrap().of(Condition::Midstream), Policy::Ignore);
        assert_eq!(policies("exception-policy: ignore", true, false).unwrap().of(Condition::Midstream), Policy::Ignore);
    }

    #[test]
    fn parsers_that_begin_midstream_may_fail_on_the_wire() {
        for (text, spared) in [
            ("a: b", true),
            ("exception-policy: auto", true),
            ("exception-policy: drop-flow", false),
            ("app-layer:\n  error-policy: drop-flow", false),
        ] {
            let config = Config::from_str(&format!("%YAML 1.1\n---\n{text}\n"), "test").unwrap();
            let mut p = Policies::from_config(&config, true, false).unwrap();
            assert_eq!([false, true].map(|m| p.of_error(m)), [Policy::DropFlow; 2], "{text}");
            p.spare_midstream(&config);
            assert_eq!(p.of_error(false), Policy::DropFlow, "{text}");
            assert_eq!(p.of_error(true) == Policy::Ignore, spared, "{text}");
        }
    }

    #[test]
    fn a_master_switch_that_drops_packets_drops_those_of_unknown_sessions() {
        for (ips, midstream, policy) in
            [(true, false, Policy::DropPacket), (true, true, Policy::Ignore), (false, false, Policy::Ignore)]
        {
            let got = policies("exception-policy: drop-packet", ips, midstream).unwrap();
            assert_eq!(got.of(Condition::Midstream), policy, "ips {ips} midstream {midstream}");
        }
    }

    #[test]
    fn midstream_takes_what_makes_sense() {
        for (text, ips, midstream, ok) in [
            ("drop-flow", false, false, false),
            ("pass-packet", false, false, false),
            ("bypass", false, true, false),
            ("drop-flow", false, true, false),
            ("drop-packet", false, true, false),
            ("bypass", false, false, true),
            ("ignore", false, true, true),
            ("pass-flow", false, true, true),
            ("drop-flow", true, false, true),
            ("reject", false, false, true),
            ("reject", false, true, false),
            ("reject", true, true, false),
            ("nonsense", true, true, false),
        ] {
            let got = policies(&format!("stream:\n  midstream-policy: {text}"), ips, midstream);
            assert_eq!(got.is_ok(), ok, "{text} ips {ips} midstream {midstream}");
        }
    }
}
