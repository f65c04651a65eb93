//! Rule reload: the state of flows that survives it.
//!
//! Compiled rules are numbered by their place. A worker stores state of flows, transactions and frames under these
//! numbers. Each rule set has a serial number. It also maps the rules of its last [`ANCESTORS`] predecessors to their
//! places now, if a rule is unchanged. The engine notes with each flow which rule set inspected it last ([`RulesMark`]).
//! Before another set inspects the flow, [`crate::Detect::bring_vars`], [`crate::Detect::bring_tx`] and [`crate::Detect::bring_frames`]
//! convert its state. Idle flows cost nothing: there is no walk over the flow table.
//!
//! A rule is unchanged if its numbers (gid, sid), action, header (with the values of variables), checks, effects and
//! thresholds are equal. Its place, revision, message, class, references and metadata may change. A rule with a script
//! always counts as changed. Then:
//!
//! | state | after the reload |
//! | --- | --- |
//! | flow table, streams, parsers, transactions, files | kept: rules do not affect them |
//! | decisions for a flow (`drop`, `pass`, `bypass`, firewall's `accept`) | kept, whichever rule made them |
//! | flowbits, flowints, `flow:` and entropy variables, `xbits` and `hostbits` of hosts, pairs and transactions | kept by name. A name keeps its number from set to set, used or not, until there are [`NAMES_MAX`] names; then all state is dropped and numbers start again |
//! | rules that wait for more of a transaction, with the checks that held | kept for unchanged rules, else dropped |
//! | rules that matched a transaction or a frame, or finished with files | kept for unchanged rules: none alerts twice |
//! | which buffers of a transaction were searched | dropped: new rules find patterns in data that still exists |
//! | a finished direction of a transaction | stays finished: new rules inspect later data |
//! | first packet of a direction seen (IP-only rules, `flow_start`) | kept: no rule sees it twice |
//! | counts of `threshold`, `detection_filter` and rate filters | kept for rules with unchanged thresholds; others expire |
//! | tags | kept until they end |
//! | datasets | kept if rules or the configuration may change them; others are read again |
//! | variables inside scripts | start again |
//! | memory of matchers and header sets | rebuilt by the thread that loads the rules |
//! | frames that wait for inspection | inspected by the new rules |
//!
//! A flow that is idle through more than [`ANCESTORS`] reloads keeps its variables. Its open transactions forget which
//! rules matched them, so one of those may match again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::facts::RuleFacts;

/// The number of earlier rule sets whose rules can be mapped.
pub const ANCESTORS: usize = 16;
/// Most names of bits and variables that a reload carries over; beyond that, numbers start again.
pub const NAMES_MAX: usize = 1 << 20;
/// The place of a rule that no longer exists.
const GONE: u32 = u32::MAX;

/// The last serial number.
static SERIALS: AtomicU64 = AtomicU64::new(0);
/// Rule sets in memory.
static LIVE: AtomicUsize = AtomicUsize::new(0);

/// Maps the rules of an earlier set to their places in this one.
#[derive(Debug)]
struct Ancestor {
    serial: u64,
    to: Box<[u32]>,
}

/// A rule set's serial number, and its maps of earlier sets.
#[derive(Debug)]
pub(crate) struct Lineage {
    pub(crate) serial: u64,
    /// The rule set that started the current numbering of names.
    pub(crate) names: u64,
    /// Latest first.
    ancestors: Vec<Ancestor>,
}

impl Lineage {
    /// The lineage of a set of `rules` that replaces `previous`; `names` if it keeps the numbers of names.
    pub(crate) fn new(rules: &[RuleFacts], previous: Option<(&Lineage, &[RuleFacts])>, names: bool) -> Lineage {
        LIVE.fetch_add(1, Ordering::Relaxed);
        let serial = SERIALS.fetch_add(1, Ordering::Relaxed) + 1;
        let mut lineage = Lineage { serial, names: serial, ancestors: Vec::new() };
        let Some((old, old_rules)) = previous else { return lineage };
        if names {
            lineage.names = old.names;
        }
        let places: HashMap<(u32, u32), u32> = (0u32..).zip(rules).map(|(n, r)| ((r.gid, r.sid), n)).collect();
        let to = |r: &RuleFacts| {
            let at = places.get(&(r.gid, r.sid)).copied()?;
            let same = |new: &RuleFacts| r.fingerprint.is_some() && new.fingerprint == r.fingerprint;
            rules.get(at as usize).is_some_and(same).then_some(at)
        };
        let direct: Box<[u32]> = old_rules.iter().map(|r| to(r).unwrap_or(GONE)).collect();
        let before = old.ancestors.iter().take(ANCESTORS - 1).map(|a| Ancestor {
            serial: a.serial,
            to: a.to.iter().map(|&n| direct.get(n as usize).copied().unwrap_or(GONE)).collect(),
        });
        let before: Vec<Ancestor> = before.collect();
        lineage.ancestors.push(Ancestor { serial: old.serial, to: direct });
        lineage.ancestors.extend(before);
        lineage
    }

    /// The place in this set of each rule of the previous set.
    pub(crate) fn of_previous(&self) -> &[u32] {
        self.ancestors.first().map_or(&[], |a| &a.to)
    }

    pub(crate) fn ancestor(&self, serial: u64) -> Option<&[u32]> {
        self.ancestors.iter().find(|a| a.serial == serial).map(|a| &*a.to)
    }
}

impl Drop for Lineage {
    fn drop(&mut self) {
        LIVE.fetch_sub(1, Ordering::Relaxed);
    }
}

/// State that is stored under a rule's number.
pub(crate) trait Numbered {
    fn number(&mut self) -> &mut u32;
    fn key(&self) -> u32;
}

impl<T> Numbered for (u32, T) {
    fn number(&mut self) -> &mut u32 {
        &mut self.0
    }
    fn key(&self) -> u32 {
        self.0
    }
}

impl Numbered for u32 {
    fn number(&mut self) -> &mut u32 {
        self
    }
    fn key(&self) -> u32 {
        *self
    }
}

/// Converts the rule numbers of a sorted list; removes rules that no longer exist.
pub(crate) fn renumber<T: Numbered>(list: &mut Vec<T>, to: &[u32]) {
    list.retain_mut(|x| {
        let n = x.number();
        *n = to.get(*n as usize).copied().unwrap_or(GONE);
        *n != GONE
    });
    list.sort_unstable_by_key(Numbered::key);
}

/// Which rule set some state was stored under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RulesMark {
    /// The set's serial number; 0 for none.
    pub serial: u64,
    /// The rule set that started the numbering of names.
    pub(crate) names: u64,
}

/// The number of rule sets in memory: in use, or not freed yet.
pub fn live_sets() -> usize {
    LIVE.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use margay_flow::Direction;
    use margay_packet::Time;

    use super::*;
    use crate::hostvars::HostKey;
    use crate::tx::tests::{Lab, METHOD, REQUEST_BODY, SERVER, URI};

    const ANY: &str = "any any -> any any";

    /// A transaction that began under other rules: waiting rules go on, rules that matched stay quiet, and new rules see
    /// everything.
    #[test]
    fn a_transaction_goes_on() {
        let waits =
            format!("alert http {ANY} (http.uri; content:\"/up\"; http.request_body; content:\"secret\"; sid:1;)");
        let matched = format!("alert http {ANY} (http.method; content:\"POST\"; sid:2; rev:1; msg:\"a\";)");
        let changed = |word: &str| format!("alert http {ANY} (http.method; content:\"{word}\"; sid:3;)");
        let mut l = Lab::new(&format!("{waits}\n{matched}\n{}", changed("POS")));
        l.set(METHOD, "POST").set(URI, "/up");
        assert_eq!(l.at(SERVER, 3), [2, 3]);
        // New rules before them in order: every rule gets another number. A text that affects no match may change.
        let before: String =
            (10..40).map(|n| format!("pass http {ANY} (http.uri; content:\"no\"; sid:{n};)\n")).collect();
        let matched = matched.replace("msg:\"a\"", "msg:\"b\"").replace("rev:1", "rev:2");
        let new = format!("alert http {ANY} (http.uri; content:\"/up\"; sid:4;)");
        l.reload(&format!("{before}{new}\n{}\n{matched}\n{waits}", changed("OST")));
        assert_eq!(l.at(SERVER, 3), [3, 4], "the new one, and the one that is another rule now");
        l.data(REQUEST_BODY, "a secret");
        assert_eq!(l.at(SERVER, 3), [1]);
        assert_eq!(l.at(SERVER, 5), [0u32; 0]);
    }

    #[test]
    fn a_flow_that_slept_through_reloads() {
        let rule = format!("alert http {ANY} (http.method; content:\"POST\"; sid:2;)");
        for (reloads, want) in [(ANCESTORS, &[][..]), (ANCESTORS + 1, &[2][..])] {
            let mut l = Lab::new(&rule);
            l.set(METHOD, "POST");
            assert_eq!(l.at(SERVER, 2), [2]);
            let from = l.detect.mark();
            let slept = l.take_tx();
            for n in 0..reloads {
                l.reload(&format!("alert http {ANY} (http.uri; content:\"x\"; sid:{};)\n{rule}", 100 + n));
            }
            l.give_tx(from, slept);
            assert_eq!(l.at(SERVER, 2), want, "{reloads}");
        }
    }

    #[test]
    fn variables_keep_their_names() {
        let sets = format!(
            "alert http {ANY} (http.uri; content:\"/a\"; flowbits:set,seen; flowint:abc,=,7; xbits:set,x,track ip_src; sid:1;)"
        );
        let asks = format!(
            "alert http {ANY} (http.request_body; content:\"b\"; flowbits:isset,seen; flowint:abc,==,7; xbits:isset,x,track ip_src; sid:2;)"
        );
        let other = format!("alert http {ANY} (http.uri; content:\"z\"; flowbits:set,other; sid:3;)");
        let mut l = Lab::new(&sets);
        l.set(URI, "/a");
        assert_eq!(l.at(SERVER, 3), [1]);
        // A rule set without these rules comes in between.
        l.reload(&other);
        l.reload(&format!("{other}\n{asks}"));
        l.data(REQUEST_BODY, "b");
        assert_eq!(l.at(SERVER, 3), [2]);
        let bit = l.detect.names().number("x").expect("a name");
        let hosts = l.state.hosts();
        assert_eq!(hosts.bits_of(HostKey::Host([10, 0, 0, 1].into()), 9, Time(0)).len(), 1);
        assert!(hosts.is_set(HostKey::Host([10, 0, 0, 1].into()), bit, Time(0)));
        // The marks of an unrelated rule set are not trusted.
        let stranger = Lab::new(&asks);
        assert!(!stranger.detect.keeps_names(l.detect.mark()));
        stranger.detect.bring_vars(l.detect.mark(), &mut l.flow.vars);
        assert!(l.flow.vars.is_empty());
    }

    #[test]
    fn counts_of_thresholds_go_on() {
        let rule = |count: u32| {
            format!(
                "alert tcp {ANY} (content:\"GET\"; threshold:type threshold,track by_src,count {count},seconds 60; sid:1;)"
            )
        };
        let filler =
            format!("alert tcp {ANY} (content:\"no\"; threshold:type limit,track by_src,count 1,seconds 9; sid:5;)");
        let mut l = Lab::new(&rule(3));
        let look = |l: &mut Lab| l.look(Direction::ToServer).len();
        assert_eq!((look(&mut l), look(&mut l)), (0, 0));
        l.reload(&format!("{filler}\n{}", rule(3)));
        assert_eq!(look(&mut l), 1, "the third");
        assert_eq!((look(&mut l), look(&mut l)), (0, 0));
        l.reload(&rule(4));
        assert_eq!(
            (look(&mut l), look(&mut l), look(&mut l), look(&mut l)),
            (0, 0, 0, 1),
            "another threshold counts anew"
        );
    }
}
