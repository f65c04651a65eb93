//! Reasons why settings have no effect. The notices at the start are grouped by reason.

/// Tables and buffers.
pub(super) const GROWS: &str = "memory is taken as it is needed, up to the memcap";
/// Tables by host and pair.
pub(super) const HOST_TABLE: &str =
    "hosts and pairs are kept in tables that grow as they are needed, up to the memcap of their section";
/// Threads.
pub(super) const NO_MANAGER: &str = "each worker ends its own flows: there are no flow managers and recyclers";
/// Packets in memory.
pub(super) const NO_POOL: &str = "packets stay where the capture put them: there is no pool of packets";
/// Matching of single patterns and groups.
pub(super) const ONE_SEARCH: &str =
    "all patterns of a packet are found in one search, and single patterns while they are checked";
/// Protocols without a parser.
pub(super) const NO_PARSER: &str = "this release recognises the protocol and does not parse it";
/// Event types without a writer.
pub(super) const NO_EVENTS: &str = "this release does not parse the protocol, so there is nothing to write";
/// Outputs that Margay does not have.
pub(super) const NO_OUTPUT: &str = "this release does not have the output; eve-log writes the same events";
/// Sections of profiling.
pub(super) const NO_PROFILE: &str = "this release measures rules (profiling.rules) and nothing else";
/// Settings of older releases of Suricata.
pub(super) const REMOVED: &str = "Suricata 8 removed it";
/// Programs for Suricata.
pub(super) const PLUGINS: &str = "plugins are programs for Suricata's own interfaces, and cannot be loaded";
/// Settings that describe the file.
pub(super) const INFORMATION: &str = "it says which release the file was written for";
/// Other capture methods, whose sections are read only with an option that is refused.
pub(super) const OTHER_CAPTURE: &str = "this release captures with AF_PACKET, AF_XDP, libpcap and NFQUEUE; the section is read only with the option that is refused";
/// AF_PACKET's older rings.
pub(super) const TPACKET_V3: &str = "packets always come through a memory-mapped ring of TPACKET_V3";
/// BPF programs of users.
pub(super) const OWN_PROGRAMS: &str = "programs of your own are not loaded; those of the engine need no file";
/// Card features.
pub(super) const NO_OFFLOAD: &str = "this release does not support it";
/// Flags of JSON.
pub(super) const JSON_FORM: &str =
    "events have one form, as most of Suricata's have: members in order, compact, in UTF-8";
/// Settings for what Margay always does.
pub(super) const ALWAYS: &str = "Margay always does this";
