//! Rules compiled into groups, prefilters and ordered checks.
//!
//! [`Detect::compile`] turns a list of rules into an immutable structure that all workers share. It sorts the rules
//! (`order`: action, writers and readers of variables, priority, signature number). The order decides everything later,
//! and a rule's place in it is the rule's number. Each rule gets a kind (`kind`), which says where the rule is inspected
//! and how far its action reaches, a header of bit masks and shared address and port sets (`header`), and compiled
//! checks. The syntax tree is dropped then; [`RuleFacts`] keeps the parts that events show. A few threads build all
//! matchers last, in parallel, or load those that an earlier start left on disk ([`mpm`]).
//!
//! [`DetectState`] is the mutable state of one worker. [`DetectState::inspect`] takes a packet through four steps:
//!
//! 1. **Candidates.** IP-only rules come from a table of addresses (`iponly`), for the first packet of each direction of
//!    a flow. The others come from groups (`group`). A rule with a pattern becomes a candidate when a multi-pattern
//!    matcher ([`mpm`]) finds the pattern in the payload, the stream or a header. A rule without a pattern becomes one
//!    when the packet and the flow bits meet its needs.
//! 2. **Checks**, in rule order and cheapest first: header, packet and flow state ([`checks`]), buffers ([`inspect`]).
//!    The effects ([`effect`]) of a matching rule apply at once, so that later rules see them.
//! 3. **Decision**, again in order: thresholds (`threshold`), the alert queue, actions. A matching `pass` rule ends it.
//! 4. **Verdict** for the packet and, for kinds that act on flows, the flow.
//!
//! Stream rules inspect the chunks of stream data that come with a packet. They inspect the packet's payload only if it
//! went into no stream. Transaction rules (`tx`) inspect the transactions of the packet's direction that changed, after
//! the packet's own rules. They use the buffers that exist already and remember which checks held until the other
//! buffers arrive. Their payload and stream checks run only where the packet's search found one of the rule's patterns.
//! Compilation sets aside rules that need a feature missing from this build, and gives the reason.
//!
//! Inspection can be watched (`watch`): every check of one rule, or the time that each rule takes. An unwatched worker
//! runs code compiled without the watching.
//!
//! Steps 1 and 2 do not allocate once the worker is warm. Every table has a limit, a counter and a stated policy. The
//! same packets give the same alerts in the same order: nothing depends on the order in which matchers report or tables
//! are walked. Counts by address (thresholds, host bits) belong to one worker, or to all workers if there are several
//! ([`DetectState::share`]). Tags always belong to one worker. [`lineage`] explains what flows and workers keep across a
//! rule reload.

mod ahead;
mod any_of;
mod base64;
mod bounded;
pub mod buffer;
mod byte_set;
pub mod checks;
mod commonplace;
mod config;
mod counters;
pub mod dataset;
mod describe;
mod detect;
pub mod effect;
mod facts;
pub mod fast_pattern;
pub mod firewall;
mod frame;
pub mod geoip;
mod group;
mod head;
mod header;
pub mod hostvars;
mod input;
pub mod inspect;
mod iponly;
pub mod iprep;
mod kind;
pub mod lineage;
mod literals;
pub mod lua;
pub mod mpm;
mod names;
mod order;
pub mod pcre;
mod prefilter;
mod refused;
mod rule;
mod searcher;
mod shareable;
mod state;
mod tag;
#[cfg(test)]
mod tests;
mod threshold;
pub mod transform;
mod tx;
mod watch;
mod worker;

pub use ahead::{SearchPlan, SearchedAhead};
pub use config::{DetectConfig, LuaConfig, PACKET_ALERT_MAX};
pub use counters::DetectCounters;
pub use detect::{CompileReport, Detect, Environment};
pub use facts::RuleFacts;
pub use frame::{FrameBytes, FrameInput};
pub use group::GroupCounts;
pub use header::payload_of;
pub use input::{Alert, DropReason, Input, Reject, StreamChunk, Verdict, VerdictAction};
pub use kind::{RuleKind, is_of_packet, is_of_transaction, is_payload};
pub use lineage::{RulesMark, live_sets};
pub use order::sort as sort_rules;
pub use searcher::Searcher;
pub use shareable::{About, InOrder};
pub use tag::FlowTags;
pub use watch::profile::{PacketTimes, RuleCosts};
pub use watch::report as explain;
pub use worker::DetectState;
