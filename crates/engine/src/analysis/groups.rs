//! `rule_group.json`: the rules that are evaluated for packets of each port.
//!
//! For each transport and direction, the ports are divided where the set of rules changes. The groups with the most rules or
//! traffic come first. The configured number of groups is kept, and the remaining ones form one group.

use std::collections::HashMap;

use margay_config::{Config, ConfigError};
use margay_detect::{RuleKind, fast_pattern};
use margay_json::Json;
use margay_rules::ast::{Arrow, Check, PortSet, Protocol};

use super::model::Analysed;
use crate::settings;

/// The settings of rule groups.
#[derive(Debug, Clone)]
pub(crate) struct GroupSettings {
    /// `detect.profiling.grouping.dump-to-disk`
    pub(crate) dump: bool,
    include_rules: bool,
    include_mpm_stats: bool,
    /// Limits of the groups to the server and to the client.
    max: [usize; 2],
    /// Ports that get a group of their own, for TCP and UDP.
    favoured: [Vec<u16>; 2],
}

impl GroupSettings {
    /// Reads `detect.profile`, `detect.custom-values`, `detect.grouping` and `detect.profiling.grouping`. The numbers of
    /// groups are Suricata's, because the report is Suricata's.
    ///
    /// # Errors
    /// An invalid value.
    pub(crate) fn of(config: &Config) -> Result<GroupSettings, ConfigError> {
        let flag = |key: &str| settings::flag(config, &format!("detect.profiling.grouping.{key}"), false);
        let (client, server) = match config.get("detect.profile") {
            Some("low") => (15, 25),
            Some("high") => (75, 75),
            Some("custom") => {
                let [server, client] = settings::custom_groups(config)?;
                (client, server)
            }
            _ => (20, 40),
        };
        // The name that Suricata 8 uses takes precedence.
        let ports = |transport: &str, default: &[u16]| -> Result<Vec<u16>, ConfigError> {
            let [key, old] = ["priority-ports", "whitelist"].map(|n| format!("detect.grouping.{transport}-{n}"));
            match [key, old].iter().find(|path| config.node(path).is_some()) {
                Some(path) => settings::ports(config, path, 0),
                None => Ok(default.to_vec()),
            }
        };
        Ok(GroupSettings {
            dump: flag("dump-to-disk")?,
            include_rules: flag("include-rules")?,
            include_mpm_stats: flag("include-mpm-stats")?,
            max: [server, client],
            favoured: [
                ports("tcp", &[53, 80, 139, 443, 445, 1433, 3306, 3389, 6666, 6667, 8080])?,
                ports("udp", &[53, 135, 5060])?,
            ],
        })
    }
}

/// Whether a rule applies to TCP, UDP, ICMPv4 and ICMPv6.
fn of(protocol: &Protocol) -> [bool; 4] {
    match protocol {
        Protocol::Ip | Protocol::Ipv4 | Protocol::Ipv6 | Protocol::PacketHeader => [true; 4],
        Protocol::Tcp | Protocol::TcpPacket | Protocol::TcpStream => [true, false, false, false],
        Protocol::Udp => [false, true, false, false],
        Protocol::Icmp => [false, false, true, true],
        Protocol::Icmpv4 => [false, false, true, false],
        Protocol::Icmpv6 => [false, false, false, true],
        Protocol::App(n) => {
            let [tcp, udp] = margay_app::header_transports(n);
            [tcp, udp, false, false]
        }
        Protocol::Sctp | Protocol::Ethernet | Protocol::Arp => [false; 4],
    }
}

/// A range of ports with the same rules.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    first: u16,
    last: u16,
    rules: usize,
    favoured: bool,
}

/// The relevant ports of a rule in a direction.
fn ports(a: &Analysed, to_server: bool) -> Vec<(u16, u16)> {
    let of = |set: &PortSet| if set.any { vec![(0, u16::MAX)] } else { set.ranges.clone() };
    let r = &a.rule;
    let mut all = of(if to_server { &r.dport } else { &r.sport });
    if r.arrow == Arrow::Both {
        all.extend(of(if to_server { &r.sport } else { &r.dport }));
        all.sort_unstable();
        // Overlaps would count a rule twice.
        let mut merged: Vec<(u16, u16)> = Vec::with_capacity(all.len());
        for (first, last) in all {
            match merged.last_mut() {
                Some(m) if first <= m.1 => m.1 = m.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        return merged;
    }
    all
}

/// Divides the ports.
fn stretches(rules: &[(u32, Vec<(u16, u16)>)], favoured: &[u16]) -> Vec<Stretch> {
    // The change in the number of rules at each port.
    let mut change = vec![0i64; usize::from(u16::MAX) + 2];
    let mut single = vec![false; usize::from(u16::MAX) + 1];
    for (first, last) in rules.iter().flat_map(|r| &r.1) {
        if let Some(c) = change.get_mut(usize::from(*first)) {
            *c += 1;
        }
        if let Some(c) = change.get_mut(usize::from(*last) + 1) {
            *c -= 1;
        }
        if first == last
            && favoured.contains(first)
            && let Some(s) = single.get_mut(usize::from(*first))
        {
            *s = true;
        }
    }
    // If one rule ends where another begins, the number may stay the same.
    let mut edges = vec![false; usize::from(u16::MAX) + 2];
    for (first, last) in rules.iter().flat_map(|r| &r.1) {
        for at in [usize::from(*first), usize::from(*last) + 1] {
            if let Some(e) = edges.get_mut(at) {
                *e = true;
            }
        }
    }
    let mut out: Vec<Stretch> = Vec::new();
    let mut count = 0i64;
    for port in 0..=u16::MAX {
        let at = usize::from(port);
        count += change.get(at).copied().unwrap_or(0);
        if edges.get(at).copied().unwrap_or(false) || out.is_empty() {
            let favoured = single.get(at).copied().unwrap_or(false);
            out.push(Stretch { first: port, last: port, rules: usize::try_from(count).unwrap_or(0), favoured });
        } else if let Some(s) = out.last_mut() {
            s.last = port;
        }
    }
    out.retain(|s| s.rules > 0);
    out
}

/// A set of ports, as the number of members below each port.
struct Ports(Vec<u32>);

impl Ports {
    fn of(stretches: &[Stretch]) -> Ports {
        let mut below = vec![0u32; usize::from(u16::MAX) + 2];
        for s in stretches {
            for n in below.iter_mut().skip(usize::from(s.first) + 1).take(usize::from(s.last - s.first) + 1) {
                *n = 1;
            }
        }
        let mut total = 0;
        for n in &mut below {
            total += *n;
            *n = total;
        }
        Ports(below)
    }

    /// Whether any member is in one of these ranges.
    fn meet(&self, ranges: &[(u16, u16)]) -> bool {
        let below = |port: usize| self.0.get(port).copied().unwrap_or(0);
        ranges.iter().any(|(first, last)| below(usize::from(*last) + 1) > below(usize::from(*first)))
    }
}

/// Ids of groups. Groups of a list with the same rules share one.
#[derive(Debug, Default)]
struct Numbers {
    of_list: HashMap<Vec<u32>, u64>,
    next: u64,
}

impl Numbers {
    fn of(&mut self, rules: &[u32]) -> u64 {
        if let Some(n) = self.of_list.get(rules) {
            return *n;
        }
        let n = self.next;
        self.next += 1;
        self.of_list.insert(rules.to_vec(), n);
        n
    }

    /// Starts a new list.
    fn list(&mut self) {
        self.of_list.clear();
    }
}

/// Writes the report.
pub(super) fn report(rules: &[Analysed], settings: &GroupSettings) -> Json {
    let mut numbers = Numbers::default();
    let mut j = Json::new();
    j.item_object();
    for (t, name) in ["tcp", "udp"].into_iter().enumerate() {
        j.name(name);
        j.item_object();
        for (d, side) in ["toserver", "toclient"].into_iter().enumerate() {
            let of_side = members(rules, t, d == 0).into_iter();
            let listed: Vec<(u32, Vec<(u16, u16)>)> =
                of_side.filter_map(|n| Some((n, ports(rules.get(n as usize)?, d == 0)))).collect();
            let empty = Vec::new();
            let mut all = stretches(&listed, settings.favoured.get(t).unwrap_or(&empty));
            all.sort_by_key(|s| (!s.favoured, std::cmp::Reverse(s.rules), s.first));
            let keep = settings.max.get(d).copied().unwrap_or(usize::MAX).min(all.len());
            let (kept, others) = all.split_at(keep);
            numbers.list();
            j.array(side);
            let within = |s: &Stretch, p: &[(u16, u16)]| p.iter().any(|(a, b)| *a <= s.last && s.first <= *b);
            for s in kept {
                let set: Vec<u32> = listed.iter().filter(|r| within(s, &r.1)).map(|r| r.0).collect();
                group(&mut j, rules, &set, numbers.of(&set), settings, Some((s.first, s.last, s.favoured)));
            }
            if !others.is_empty() {
                let ports = Ports::of(others);
                let set: Vec<u32> = listed.iter().filter(|r| ports.meet(&r.1)).map(|r| r.0).collect();
                group(&mut j, rules, &set, numbers.of(&set), settings, Some((0, u16::MAX, false)));
            }
            j.end_array();
        }
        j.end_object();
    }
    numbers.list();
    for (t, name) in [(2, "icmpv4"), (3, "icmpv6")] {
        j.name(name);
        j.item_object();
        for (side, to_server) in [("toserver", true), ("toclient", false)] {
            let set = members(rules, t, to_server);
            if !set.is_empty() {
                j.json(side, b"");
                group(&mut j, rules, &set, numbers.of(&set), settings, None);
            }
        }
        j.end_object();
    }
    j.end_object();
    j.raw(b"\n");
    j
}

/// The rules of a transport and direction, by index. Rules that an address table finds are in no group.
fn members(rules: &[Analysed], transport: usize, to_server: bool) -> Vec<u32> {
    (0u32..)
        .zip(rules)
        .filter(|(_, a)| a.kind != RuleKind::IpOnly)
        .filter(|(_, a)| of(&a.rule.protocol).get(transport).copied().unwrap_or(false))
        .filter(|(_, a)| {
            let number = [6, 17, 1, 58].get(transport).copied().unwrap_or(0);
            a.rule.checks.iter().all(|c| if let Check::IpProto(v) = c { v.holds(number) } else { true })
        })
        .filter(|(_, a)| if to_server { a.scope.to_server } else { a.scope.to_client })
        .map(|(n, _)| n)
        .collect()
}

/// Writes one group: with ports as an array element, or else as an object member.
fn group(
    j: &mut Json,
    rules: &[Analysed],
    set: &[u32],
    id: u64,
    settings: &GroupSettings,
    ports: Option<(u16, u16, bool)>,
) {
    match ports {
        Some((first, last, _)) => {
            j.item_object();
            j.uint("port", u64::from(first));
            j.uint("port2", u64::from(last));
        }
        None => j.raw(b"{"),
    }
    let of_group = || set.iter().filter_map(|n| rules.get(*n as usize));
    j.object("rulegroup");
    j.uint("id", id);
    if settings.include_rules {
        j.array("rules");
        for a in of_group() {
            j.item_object();
            j.uint("sig_id", u64::from(a.rule.sid));
            j.end_object();
        }
        j.end_array();
    }
    statistics(j, of_group, settings.include_mpm_stats);
    // The priority of a group: 111 stands for a port of the configured list.
    j.uint("whitelist", if ports.is_some_and(|p| p.2) { 111 } else { 0 });
    j.end_object();
    j.end_object();
}

fn statistics<'a, I: Iterator<Item = &'a Analysed>>(j: &mut Json, of_group: impl Fn() -> I, mpm_stats: bool) {
    let count = |f: &dyn Fn(&Analysed) -> bool| of_group().filter(|a| f(a)).count() as u64;
    let placed = |a: &Analysed| a.mpm.as_ref().is_some_and(|m| m.content.depth.is_some());
    j.object("stats");
    j.uint("total", count(&|_| true));
    j.object("types");
    j.uint("mpm", count(&|a| a.mpm.is_some()));
    j.uint("non_mpm", count(&|a| a.mpm.is_none()));
    j.uint("mpm_depth", count(&placed));
    j.uint("mpm_endswith", count(&|a| a.mpm.as_ref().is_some_and(|m| m.content.ends_with)));
    j.uint("negated_mpm", count(&|a| a.mpm.as_ref().is_some_and(|m| m.content.negated)));
    j.uint("payload_but_no_mpm", count(&|a| a.has_payload() && a.mpm.is_none()));
    j.uint("prefilter", count(&|a| a.prefilter.is_some()));
    j.uint("syn", count(&|a| a.requirements.contains(&"tcp_flags_init_deinit")));
    let any5 = |a: &Analysed| {
        let r = &a.rule;
        r.src.any
            && r.dst.any
            && r.sport.any
            && r.dport.any
            && matches!(r.protocol, Protocol::Ip | Protocol::PacketHeader)
    };
    j.uint("any5", count(&any5));
    j.end_object();
    // By protocol, and by the literal's buffer.
    type Counted<'s> = Vec<(&'s str, u64)>;
    let mut by_proto: Vec<(&str, u64, Counted<'_>)> = Vec::new();
    for a in of_group() {
        let proto = if a.scope.app_proto == "unknown" { "payload" } else { a.scope.app_proto.as_str() };
        let at = match by_proto.iter().position(|p| p.0 == proto) {
            Some(i) => i,
            None => {
                by_proto.push((proto, 0, Vec::new()));
                by_proto.len() - 1
            }
        };
        let Some(entry) = by_proto.get_mut(at) else { continue };
        entry.1 += 1;
        if let Some(m) = &a.mpm {
            match entry.2.iter_mut().find(|b| b.0 == m.name) {
                Some(b) => b.1 += 1,
                None => entry.2.push((&m.name, 1)),
            }
        }
    }
    for (proto, total, buffers) in &by_proto {
        j.name(proto);
        j.item_object();
        j.uint("total", *total);
        for (name, n) in buffers {
            j.name(name);
            j.item_uint(*n);
        }
        j.end_object();
    }
    if mpm_stats {
        strengths(j, of_group());
    }
    j.end_object();
}

/// Prefilter literals by buffer: their number, strength and length.
fn strengths<'a>(j: &mut Json, rules: impl Iterator<Item = &'a Analysed>) {
    let mut buffers: Vec<(&str, Vec<(u64, usize)>)> = Vec::new();
    for m in rules.filter_map(|a| a.mpm.as_ref()) {
        let strength = u64::from(fast_pattern::literal_strength(&m.bytes, m.content.nocase));
        let entry = (strength, m.bytes.len());
        match buffers.iter_mut().find(|b| b.0 == m.name) {
            Some(b) => b.1.push(entry),
            None => buffers.push((&m.name, vec![entry])),
        }
    }
    j.object("mpm");
    for (name, mut list) in buffers {
        let all = || list.iter().map(|l| l.0);
        let total = list.len() as u64;
        j.name(name);
        j.item_object();
        j.uint("total", total);
        j.uint("avg_strength", all().sum::<u64>() / total.max(1));
        j.uint("min_strength", all().min().unwrap_or(0));
        j.uint("max_strength", all().max().unwrap_or(0));
        list.sort_unstable_by_key(|l| l.1);
        j.array("sizes");
        for of_size in list.chunk_by(|a, b| a.1 == b.1) {
            j.item_object();
            j.uint("size", of_size.first().map_or(0, |l| l.1) as u64);
            j.uint("count", of_size.len() as u64);
            j.end_object();
        }
        j.end_array();
        j.end_object();
    }
    j.end_object();
}
