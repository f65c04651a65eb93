//! Rules compiled into groups, prefilters and ordered checks.
//!
//! [`Detect::compile`] makes of a list of rules what all workers share; nothing in it is written again. Rules are put in
//! their order (`order`: action, who sets and who asks for variables, priority, signature number), which decides
//! everything later: a rule's place is its number. Each gets a kind (`kind`), which says where it is looked at and how
//! far its action reaches, a header of bit masks and shared address and port sets (`header`), and compiled checks. Its tree
//! goes then; what events show of it stays ([`RuleFacts`]). Matchers are made last, all together, by a few threads; those of an
//! earlier start may be on disk ([`mpm`]).
//!
//! [`DetectState`] is what one worker writes. [`DetectState::inspect`] takes a packet through four steps:
//!
//! 1. **Candidates.** IP-only rules come from a table of addresses (`iponly`), for the first packet of a flow's direction.
//!    The others come from groups (`group`): those with a pattern when a multi-pattern matcher ([`mpm`]) finds it in the
//!    payload, the stream or a header; those without when the packet has what they need, and the flow the bits.
//! 2. **Checks**, in the order of rules and cheapest first: header, packet and flow state ([`checks`]), buffers
//!    ([`inspect`]). A rule that matches has its effects ([`effect`]) at once, so that rules after it see them.
//! 3. **Decision**, again in order: thresholds (`threshold`), the alert queue, actions. A `pass` ends it.
//! 4. **Verdict** for the packet and, for kinds that act on flows, the flow.
//!
//! Stream rules look at the chunks of stream data that come with a packet; at the packet's payload only where it went into
//! no stream. Rules on transactions (`tx`) look at those of the packet's direction that changed, after the packet's own
//! rules: with the buffers that are there now, remembering what held for when the others come. What they ask of payload or
//! stream is asked where the search of the packet found a pattern of it. Rules that need what this
//! build does not have are set aside when rules are compiled, with the reason.
//!
//! What happens can be watched (`watch`): for one rule with every check, or for all of them with the time that each takes.
//! A worker that nobody watches has none of that in its code.
//!
//! Steps 1 and 2 allocate nothing once the worker is warm; all tables have a limit, a counter, and a stated policy. Given
//! the same packets the same alerts come in the same order: nothing depends on the order in which matchers report or
//! tables are walked. Counts by address (thresholds, bits of hosts) are a worker's own, or
//! those of all where there are several ([`DetectState::share`]); tags are each worker's own. What flows and workers keep
//! when another set of rules takes the place of this one is the matter of [`lineage`].

mod ahead;
mod bounded;
pub mod buffer;
pub mod checks;
mod commonplace;
mod config;
mod counters;
pub mod dataset;
mod decide;
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
mod order;
pub mod pcre;
mod prefilter;
mod rule;
mod shareable;
mod state;
mod tag;
#[cfg(test)]
mod tests;
mod threshold;
pub mod transform;
mod tx;
mod vars;
mod watch;
mod worker;

pub use ahead::{Recipe, SearchedAhead, Searcher};
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
pub use shareable::{About, InOrder};
pub use tag::FlowTags;
pub use watch::profile::{PacketTimes, RuleCosts};
pub use watch::report as explain;
pub use worker::DetectState;
