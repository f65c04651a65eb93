//! Reports of the counters.

use margay_packet::Time;

/// One counter.
#[derive(Debug, Clone, Copy)]
pub struct Counter<'a> {
    /// Dotted name, such as `decoder.event.ipv4.trunc_pkt`. No name may be a dotted prefix of another.
    pub name: &'a str,
    /// Its value.
    pub value: i64,
    /// Its value in the previous report.
    pub last: i64,
}

/// The state of a detection engine.
#[derive(Debug, Clone, Copy)]
pub struct EngineStats {
    /// Tenant, 0 without tenants.
    pub id: u32,
    /// When the rules were loaded.
    pub last_reload: Time,
    /// Rules in use.
    pub rules_loaded: u64,
    /// Rules with errors.
    pub rules_failed: u64,
    /// Rules skipped because a requirement (`requires`) is not met.
    pub rules_skipped: u64,
}

/// A report of all counters.
#[derive(Debug, Clone, Copy)]
pub struct StatsEvent<'a> {
    /// Time of the report.
    pub time: Time,
    /// Seconds since the start.
    pub uptime: u64,
    /// Sums over all threads, in display order.
    pub totals: &'a [Counter<'a>],
    /// Counters of each thread, with the thread's name.
    pub threads: &'a [(&'a str, &'a [Counter<'a>])],
    /// Detection engines.
    pub engines: &'a [EngineStats],
    /// Capture file.
    pub pcap_filename: Option<&'a str>,
}
