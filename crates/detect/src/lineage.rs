//! Reload: what flows keep of the rules that were in use before.
//!
//! Compiled rules are numbered by their place, and what a worker keeps with a flow, a transaction or a frame is kept by such
//! numbers. Each set of rules has a serial number, and knows of the last [`ANCESTORS`] sets that it comes from where each of
//! their rules is now, if it is the same rule still. The engine notes with each flow which set last looked at it
//! ([`RulesMark`]); before another set looks at it, [`Detect::bring_vars`], [`Detect::bring_tx`] and [`Detect::bring_frames`]
//! make what is there fit. Flows that nothing comes of cost nothing: there is no walk over the flow table.
//!
//! A rule is the same when its numbers (gid, sid), its action, header (with the values of variables), checks, effects and
//! thresholds are; its place, revision, message, class, references and metadata may change. A rule with a script never is. Then:
//!
//! | what | is kept |
//! | --- | --- |
//! | flow table, streams, parsers, transactions, files | all: rules have no part in them |
//! | what was decided for a flow (`drop`, `pass`, `bypass`, firewall's `accept`) | kept, whichever rule decided it |
//! | flowbits, flowints, `flow:` and entropy variables, `xbits` and `hostbits` of hosts, pairs and transactions | kept by name: a name keeps its number from set to set, used or not, until there are [`NAMES_MAX`] of them; then all are forgotten and numbers begin anew |
//! | a transaction's rules that wait for more, with what of them held | kept for rules that are the same, else dropped |
//! | rules that matched a transaction or a frame, or are done with files | kept for rules that are the same: none alerts twice |
//! | which buffers of a transaction were searched | forgotten: new rules find patterns in what is there still |
//! | a direction of a transaction that is done with | stays so: new rules look at what comes |
//! | first packet of a flow's direction seen (IP-only rules, `flow_start`) | kept: no rule sees it twice |
//! | counts of `threshold`, `detection_filter` and rate filters | kept for rules whose threshold is the same; others run out |
//! | tags | kept to their end |
//! | sets of data | those that rules or the configuration may change live on as they are; others are read anew |
//! | what scripts keep in variables of their own | begins anew |
//! | memory of matchers and header sets | made anew, by who loads the rules |
//! | frames that wait to be looked at | are looked at by the new rules |
//!
//! A flow that slept through more than [`ANCESTORS`] reloads keeps its variables; of its open transactions it is forgotten
//! which rules matched them, so that one may match again.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use margay_app::TxBase;
use margay_app::frame::Frame;
use margay_flow::FlowVars;
use margay_rules::ast::{Check, Rule};

use crate::detect::Detect;
use crate::facts::RuleFacts;

/// Sets before this one whose rules can be found again.
pub const ANCESTORS: usize = 16;
/// Most names of bits and variables that are carried over; with more, numbers begin anew.
pub const NAMES_MAX: usize = 1 << 20;
/// Place of a rule that there is no more.
const GONE: u32 = u32::MAX;

/// Numbers given to sets so far.
static SERIALS: AtomicU64 = AtomicU64::new(0);
/// Sets in memory.
static LIVE: AtomicUsize = AtomicUsize::new(0);

/// Where the rules of an earlier set are in this one.
#[derive(Debug)]
struct Ancestor {
    serial: u64,
    to: Box<[u32]>,
}

/// A set's number, and what it knows of those before it.
#[derive(Debug)]
pub(crate) struct Lineage {
    serial: u64,
    /// The set with which the numbers of names began.
    names: u64,
    /// The latest first.
    ancestors: Vec<Ancestor>,
}

impl Lineage {
    /// Of a set of `rules` that takes the place of `previous`; `names` says that it keeps the numbers of its names.
    pub(crate) fn new(rules: &[RuleFacts], previous: Option<&Detect>, names: bool) -> Lineage {
        LIVE.fetch_add(1, Ordering::Relaxed);
        let serial = SERIALS.fetch_add(1, Ordering::Relaxed) + 1;
        let mut lineage = Lineage { serial, names: serial, ancestors: Vec::new() };
        let Some(old) = previous else { return lineage };
        if names {
            lineage.names = old.lineage.names;
        }
        let places: HashMap<(u32, u32), u32> = (0u32..).zip(rules).map(|(n, r)| ((r.gid, r.sid), n)).collect();
        let to = |r: &RuleFacts| {
            let at = places.get(&(r.gid, r.sid)).copied()?;
            let same = |new: &RuleFacts| r.fingerprint.is_some() && new.fingerprint == r.fingerprint;
            rules.get(at as usize).is_some_and(same).then_some(at)
        };
        let direct: Box<[u32]> = old.rules.iter().map(|r| to(r).unwrap_or(GONE)).collect();
        let before = old.lineage.ancestors.iter().take(ANCESTORS - 1).map(|a| Ancestor {
            serial: a.serial,
            to: a.to.iter().map(|&n| direct.get(n as usize).copied().unwrap_or(GONE)).collect(),
        });
        let before: Vec<Ancestor> = before.collect();
        lineage.ancestors.push(Ancestor { serial: old.lineage.serial, to: direct });
        lineage.ancestors.extend(before);
        lineage
    }

    /// The place here of each rule of the set before this one.
    pub(crate) fn of_previous(&self) -> &[u32] {
        self.ancestors.first().map_or(&[], |a| &a.to)
    }

    fn ancestor(&self, serial: u64) -> Option<&[u32]> {
        self.ancestors.iter().find(|a| a.serial == serial).map(|a| &*a.to)
    }
}

impl Drop for Lineage {
    fn drop(&mut self) {
        LIVE.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A number that two rules share when they match alike and do alike. Of a script that is not known: its text may have changed,
/// and with it what the rule looks at.
pub(crate) fn fingerprint(rule: &Rule) -> Option<u64> {
    if rule.checks.iter().any(|c| matches!(c, Check::Lua(_))) {
        return None;
    }
    let Rule { action, protocol, hook, src, sport, arrow, dst, dport, sid, gid, noalert, force_alert, .. } = rule;
    let Rule { checks, buffers, effects, thresholds, prefilter, firewall, .. } = rule;
    let mut h = DefaultHasher::new();
    (action, protocol, hook, arrow, sid, gid, noalert, force_alert, prefilter, firewall).hash(&mut h);
    (checks, buffers, effects, thresholds, src, sport, dst, dport).hash(&mut h);
    Some(h.finish())
}

/// Something that is kept by a rule's number.
trait Numbered {
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

/// Puts the numbers of rules in a sorted list to what they are now; those that are gone go.
fn renumber<T: Numbered>(list: &mut Vec<T>, to: &[u32]) {
    list.retain_mut(|x| {
        let n = x.number();
        *n = to.get(*n as usize).copied().unwrap_or(GONE);
        *n != GONE
    });
    list.sort_unstable_by_key(Numbered::key);
}

/// Which set of rules something was kept by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RulesMark {
    /// Its serial number; 0 is none's.
    pub serial: u64,
    /// The set with which the numbers of its names began.
    names: u64,
}

impl Detect {
    /// The set's serial number: never 0, and never that of another set of this process.
    pub fn serial(&self) -> u64 {
        self.lineage.serial
    }

    /// Says that something is kept by this set's numbers.
    pub fn mark(&self) -> RulesMark {
        RulesMark { serial: self.lineage.serial, names: self.lineage.names }
    }

    /// Whether names have the same numbers here as in the set that `of` marks.
    pub fn keeps_names(&self, of: RulesMark) -> bool {
        of.names == self.lineage.names
    }

    /// Where each rule of the set that `from` marks is now; nothing where that is not known.
    pub(crate) fn places_of(&self, from: RulesMark) -> &[u32] {
        self.lineage.ancestor(from.serial).unwrap_or(&[])
    }

    /// Makes a flow's variables fit, which rules of the set `from` left.
    pub fn bring_vars(&self, from: RulesMark, vars: &mut FlowVars) {
        if from.names != self.lineage.names && !vars.is_empty() {
            vars.clear();
        }
    }

    /// Makes fit what rules of the set `from` left with a transaction.
    pub fn bring_tx(&self, from: RulesMark, tx: &mut TxBase) {
        if from.names != self.lineage.names {
            tx.bits.clear();
        }
        let to = self.lineage.ancestor(from.serial).unwrap_or(&[]);
        for d in &mut tx.detect {
            (d.searched, d.begun) = (0, 0);
            renumber(&mut d.waiting, to);
            renumber(&mut d.settled, to);
            renumber(&mut d.files, to);
        }
        if let Some(firewall) = &mut tx.firewall {
            for seen in &mut firewall.seen {
                renumber(seen, to);
            }
        }
    }

    /// Makes fit what rules of the set `from` left with the frames of a direction.
    pub fn bring_frames(&self, from: RulesMark, frames: &mut [Frame]) {
        let to = self.lineage.ancestor(from.serial).unwrap_or(&[]);
        for f in frames {
            renumber(&mut f.matched, to);
        }
    }
}

/// How many sets of rules are in memory: in use, or not let go yet.
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

    /// A transaction that began under other rules: what waited goes on, what matched is quiet, what is new sees it all.
    #[test]
    fn a_transaction_goes_on() {
        let waits =
            format!("alert http {ANY} (http.uri; content:\"/up\"; http.request_body; content:\"secret\"; sid:1;)");
        let matched = format!("alert http {ANY} (http.method; content:\"POST\"; sid:2; rev:1; msg:\"a\";)");
        let changed = |word: &str| format!("alert http {ANY} (http.method; content:\"{word}\"; sid:3;)");
        let mut l = Lab::new(&format!("{waits}\n{matched}\n{}", changed("POS")));
        l.set(METHOD, "POST").set(URI, "/up");
        assert_eq!(l.at(SERVER, 3), [2, 3]);
        // Others before them in order: every rule has another number now. Text that matches nothing may change.
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
        // A set that does not know them comes in between.
        l.reload(&other);
        l.reload(&format!("{other}\n{asks}"));
        l.data(REQUEST_BODY, "b");
        assert_eq!(l.at(SERVER, 3), [2]);
        let bit = l.detect.names().number("x").expect("a name");
        let hosts = l.state.hosts();
        assert_eq!(hosts.bits_of(HostKey::Host([10, 0, 0, 1].into()), 9, Time(0)).len(), 1);
        assert!(hosts.is_set(HostKey::Host([10, 0, 0, 1].into()), bit, Time(0)));
        // Of rules that have nothing to do with these nothing is believed.
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
