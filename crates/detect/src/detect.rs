//! The compiled rules that all workers share.

mod bring;

use std::cell::Cell;
use std::collections::HashSet;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use margay_app::file::FileWants;
use margay_app::frame::FrameKinds;
use margay_app::{AppProto, Extra, PROTOCOLS, Protocol};
use margay_flow::Direction;
use margay_rules::FileBuffer;
use margay_rules::ast::{
    Check, FileCheck, FileHash, GlobalThreshold, Place, Protocol as RuleProtocol, Rule, Threshold,
};

use crate::checks::{CheckEnv, ProtoSet};
use crate::config::DetectConfig;
use crate::dataset::Datasets;
use crate::facts::RuleFacts;
use crate::firewall::{Firewall, FirewallPolicies};
use crate::frame::{FrameBuilder, FrameGroups};
use crate::geoip::Countries;
use crate::group::{GroupCounts, GroupRule, Groups, OF_TRANSACTION, Source, Trigger};
use crate::header::{PacketKey, Sets, SetsBuilder};
use crate::hostvars::Tables;
use crate::inspect::InspectLimits;
use crate::iponly::{IpOnly, IpOnlyRule};
use crate::iprep::IpReputation;
use crate::kind::{RuleKind, is_before_flow};
use crate::lineage::{Lineage, NAMES_MAX};
use crate::lua::{RuleScripts, ScriptEnvironment};
use crate::mpm::{CacheUse, Matcher, MatcherCache, MpmError, Scratch};
use crate::names::Names;
use crate::order;
use crate::pcre::PcreLimits;
use crate::refused::Refused;
use crate::rule::CompiledRule;
use crate::shareable::{SHARDS, Shards, Shared};
use crate::threshold::{Counts, ThresholdState, Thresholds};
use crate::tx::{TxBuilder, TxGroups, payload_pattern};

/// The result of compiling rules.
#[derive(Debug, Default)]
pub struct CompileReport {
    /// Invalid rules, with the place and the reason.
    pub errors: Vec<(Place, String)>,
    /// The texts of these rules, in the same order.
    pub error_texts: Vec<Arc<str>>,
    /// Valid rules that need a feature missing from this build.
    pub set_aside: Vec<(Place, String)>,
    /// The number of firewall rules that did not load: invalid ones and those that need a missing feature.
    pub firewall_errors: usize,
    /// Entries of `threshold.config` without effect on some or all rules that they name, with the reason.
    pub idle_thresholds: Vec<(Place, String)>,
    /// Lines of digest lists that were skipped.
    pub list_problems: Vec<String>,
    /// How many rules were loaded.
    pub loaded: usize,
    /// IP-only rules among them.
    pub ip_only: usize,
    /// Transaction rules among them.
    pub transactions: usize,
    /// Rules with a fast pattern among them.
    pub prefiltered: usize,
    /// Rule groups.
    pub groups: GroupCounts,
    /// Matchers, each for one set of patterns.
    pub matchers: usize,
    /// Patterns in all matchers.
    pub patterns: usize,
    /// Memory of all matchers, in bytes.
    pub matcher_memory: usize,
    /// How often the matcher cache of earlier starts was used.
    pub cache: CacheUse,
}

/// Compiled rules. Immutable; all workers share one.
#[derive(Debug)]
pub struct Detect {
    pub(crate) rules: Vec<RuleFacts>,
    /// The file features that rules need (storing, hashes, magic).
    files: FileWants,
    /// Names of the buffers that rules inspect.
    buffers: HashSet<Box<str>>,
    /// Stream events that rules name, as bits.
    stream_events: u128,
    pub(crate) compiled: Vec<CompiledRule>,
    pub(crate) sets: Sets,
    pub(crate) groups: Groups,
    pub(crate) ip_only: IpOnly,
    pub(crate) txs: TxGroups,
    pub(crate) frames: FrameGroups,
    pub(crate) protocols: &'static [&'static Protocol],
    pub(crate) thresholds: Thresholds,
    pub(crate) matchers: Vec<Matcher>,
    pub(crate) config: DetectConfig,
    pub(crate) reputation: Arc<IpReputation>,
    pub(crate) datasets: Arc<Datasets>,
    pub(crate) lineage: Lineage,
    pub(crate) names: Arc<Names>,
    /// Scripts of rules.
    pub(crate) scripts: RuleScripts,
    /// Present in firewall mode.
    pub(crate) firewall: Option<Box<Firewall>>,
    /// Rules that take packets out of flow tracking.
    pub(crate) before_flow: Box<[u32]>,
    /// Counts and tables that several workers share.
    shared: OnceLock<(Shared<Counts>, Shared<Tables>)>,
}

/// Facts collected while single rules are compiled, for the structures built from all rules.
struct Gathered {
    grouped: Vec<GroupRule>,
    ip_only: Vec<IpOnlyRule>,
    /// Firewall rules, which come first.
    of_firewall: Vec<Rule>,
    before_flow: Vec<u32>,
    /// The thresholds of each rule that has some, with the rule's place.
    thresholds: Vec<(usize, Vec<Threshold>)>,
    files: FileWants,
    buffers: HashSet<Box<str>>,
}

impl Gathered {
    fn new() -> Gathered {
        Gathered {
            grouped: Vec::new(),
            ip_only: Vec::new(),
            of_firewall: Vec::new(),
            before_flow: Vec::new(),
            thresholds: Vec::new(),
            files: FileWants::NONE,
            buffers: HashSet::new(),
        }
    }

    /// Collects the facts of `rule`, which was compiled to `c` and has the place `place`.
    fn gather(&mut self, rule: &Rule, c: &CompiledRule, place: usize) {
        let number = place as u32;
        if is_before_flow(rule) {
            self.before_flow.push(number);
        } else if rule.firewall {
            self.of_firewall.push(rule.clone());
        } else {
            match c.kind {
                RuleKind::IpOnly => self.ip_only.push(IpOnlyRule {
                    rule: number,
                    transports: c.header.transports,
                    src: rule.src.clone(),
                    dst: rule.dst.clone(),
                    sport: rule.sport.clone(),
                    dport: rule.dport.clone(),
                    both: c.header.both,
                }),
                RuleKind::AppTransaction if c.tx.as_ref().is_some_and(|t| t.payload_sought) => {
                    let sources = vec![Source::Payload, Source::Stream];
                    let trigger = payload_pattern(rule).map(|p| Trigger::Pattern(sources, p));
                    self.grouped.extend(trigger.map(|t| grouped(rule, c, number | OF_TRANSACTION, t)));
                }
                RuleKind::AppTransaction => {}
                _ => self.grouped.push(grouped(rule, c, number, c.trigger(rule))),
            }
        }
        if !rule.thresholds.is_empty() {
            self.thresholds.push((place, rule.thresholds.clone()));
        }
        self.files = self.files.or(file_wants(rule));
        for b in &rule.buffers {
            if !self.buffers.contains(b.buffer.as_str()) {
                self.buffers.insert(b.buffer.as_str().into());
            }
        }
    }
}

/// The facts of `rule`, compiled to `c`, that grouping needs.
fn grouped(rule: &Rule, c: &CompiledRule, number: u32, trigger: Trigger) -> GroupRule {
    GroupRule {
        rule: number,
        header: c.header,
        sport: rule.sport.clone(),
        dport: rule.dport.clone(),
        app: match &rule.protocol {
            RuleProtocol::App(name) => Some(ProtoSet::named(name)),
            _ => None,
        },
        of_streams: match c.kind {
            RuleKind::PacketStream | RuleKind::Stream => true,
            RuleKind::AppTransaction => !c.payload.is_empty(),
            _ => false,
        },
        trigger,
    }
}

/// The names to start with: the numbers of the previous rules' names stay the same, unless there are too many. Also whether
/// they do.
fn names_after(previous: Option<&Detect>) -> (Names, bool) {
    let mut names = Names::default();
    let old = previous.map(|d| &d.names).filter(|n| n.len() <= NAMES_MAX);
    for name in (0..).map_while(|n| old.and_then(|o| o.name(n))) {
        names.intern(name);
    }
    (names, old.is_some())
}

impl CompileReport {
    /// Records a rule that does not compile.
    fn refused(&mut self, text: &Arc<str>, place: &Place, firewall: bool, why: String) {
        self.firewall_errors += usize::from(firewall);
        self.error_texts.push(Arc::clone(text));
        self.errors.push((place.clone(), why));
    }

    /// Counts the rules by what they need.
    fn rules(&mut self, compiled: &[CompiledRule], grouped: &[GroupRule]) {
        self.loaded = compiled.len();
        self.transactions = compiled.iter().filter(|c| c.tx.is_some()).count();
        let of_packets = grouped.iter().filter(|g| g.rule < OF_TRANSACTION && g.trigger.is_pattern()).count();
        let of_txs = compiled.iter().filter_map(|c| c.tx.as_ref()).filter(|t| t.is_prefiltered()).count();
        let of_frames = compiled.iter().filter_map(|c| c.frame.as_ref()).filter(|f| f.is_prefiltered()).count();
        self.prefiltered = of_packets + of_txs + of_frames;
    }

    /// Counts the matchers and what they take.
    fn matchers(&mut self, matchers: &[Matcher]) {
        self.matchers = matchers.len();
        self.patterns = matchers.iter().map(Matcher::patterns).sum();
        self.matcher_memory = matchers.iter().map(Matcher::memory).sum();
    }
}

/// The file features that a rule needs.
fn file_wants(rule: &Rule) -> FileWants {
    let mut w = FileWants::NONE;
    for b in rule.buffers.iter().filter(|b| b.app) {
        match FileBuffer::from_name(&b.buffer) {
            Some(FileBuffer::Data) => w.data = true,
            Some(FileBuffer::Magic) => w.magic = true,
            Some(FileBuffer::Name) | None => {}
        }
    }
    for c in &rule.checks {
        match c {
            Check::File(FileCheck::Magic { .. }) => w.magic = true,
            Check::File(FileCheck::Hash { kind: FileHash::Md5, .. }) => w.md5 = true,
            Check::File(FileCheck::Hash { kind: FileHash::Sha1, .. }) => w.sha1 = true,
            Check::File(FileCheck::Hash { kind: FileHash::Sha256, .. }) => w.sha256 = true,
            Check::AppEvent(_) => w.events = true,
            _ => {}
        }
    }
    w.store = rule.stores_files();
    w
}

/// Data outside the rules that compilation refers to.
#[derive(Clone)]
pub struct Environment<'a> {
    /// Entries of `threshold.config`, in their order.
    pub thresholds: &'a [GlobalThreshold],
    /// Reputation of addresses.
    pub reputation: Arc<IpReputation>,
    /// Countries of addresses, where there is a database.
    pub countries: Option<Arc<Countries>>,
    /// The sets that rules name.
    pub datasets: Arc<Datasets>,
    /// The number of a stream event (its bit in [`crate::Input::stream_events`]), by its name without `stream.`.
    pub stream_event: &'a dyn Fn(&str) -> Option<u8>,
    /// Folder for files that rules name and that are not beside the rules (`default-rule-path`).
    pub rule_folder: Option<&'a Path>,
    /// In firewall mode, the default policies for packets that no firewall rule matches.
    pub firewall: Option<FirewallPolicies>,
    /// Where scripts log messages, and the folder for logs that scripts may ask for.
    pub scripts: ScriptEnvironment,
    /// The rules in use before a reload. [`crate::lineage`] says which of their state survives.
    pub previous: Option<&'a Detect>,
    /// Whether to keep the syntax trees of rules ([`RuleFacts::tree`]), which explaining a rule needs.
    pub keep_trees: bool,
}

impl Default for Environment<'_> {
    fn default() -> Self {
        Environment {
            thresholds: &[],
            reputation: Arc::default(),
            countries: None,
            datasets: Arc::default(),
            stream_event: &|_| None,
            rule_folder: None,
            scripts: ScriptEnvironment::default(),
            firewall: None,
            previous: None,
            keep_trees: true,
        }
    }
}

impl Detect {
    /// Allocates the scratch space that one thread needs to search for patterns.
    ///
    /// # Errors
    /// If the matcher's scratch space cannot be allocated.
    pub(crate) fn scratch(&self) -> Result<Scratch, MpmError> {
        let mut scratch = Scratch::default();
        for m in &self.matchers {
            scratch.prepare(m)?;
        }
        Ok(scratch)
    }

    /// The counts and bits that all workers with these rules share.
    pub(crate) fn shared(&self) -> &(Shared<Counts>, Shared<Tables>) {
        let c = &self.config;
        self.shared.get_or_init(|| {
            let part = |entries: usize| entries.div_ceil(SHARDS);
            let hosts = Shards::new(|| Tables::new(part(c.host_entries), part(c.pair_entries)));
            (ThresholdState::shared(c.threshold_memcap, c.threshold_hash_size), hosts)
        })
    }

    /// Compiles `rules`. The report lists the rules that do not compile; the others work.
    ///
    /// # Errors
    /// If the configured pattern matcher cannot be built.
    pub fn compile(
        rules: Vec<Rule>,
        environment: &Environment<'_>,
        config: &DetectConfig,
    ) -> Result<(Detect, CompileReport), MpmError> {
        Self::compile_with(rules, environment, config, PROTOCOLS)
    }

    /// Compiles `rules` for the transactions of `protocols`.
    pub(crate) fn compile_with(
        rules: Vec<Rule>,
        environment: &Environment<'_>,
        config: &DetectConfig,
        protocols: &'static [&'static Protocol],
    ) -> Result<(Detect, CompileReport), MpmError> {
        let mut report = CompileReport::default();
        let limits = InspectLimits {
            recursion: config.inspection_recursion_limit,
            pcre: PcreLimits { steps: config.pcre_match_limit, depth: config.pcre_match_limit_recursion },
            asn1_frames: config.asn1_frames,
        };
        let mut rules = rules;
        let mut scripts = RuleScripts::new(&config.lua, &environment.scripts);
        // Scripts load first: a script decides its rule's kind.
        rules.retain_mut(|rule| match scripts.load(rule, environment.rule_folder) {
            Ok(()) => true,
            Err(e) => {
                report.refused(&rule.text, &rule.place, rule.firewall, e);
                false
            }
        });
        order::sort(&mut rules, &config.action_order);
        let mut sets = SetsBuilder::new();
        let (mut names, names_kept) = names_after(environment.previous);
        scripts.intern(&mut names);
        let reputation = environment.reputation.clone();
        let stream_events = Cell::new(0);
        let stream_event = |name: &str| {
            let number = (environment.stream_event)(name);
            stream_events.set(stream_events.get() | number.and_then(|n| 1u128.checked_shl(n.into())).unwrap_or(0));
            number
        };
        let mut env = CheckEnv {
            names: &mut names,
            stream_event: &stream_event,
            reputation_category: &|name| reputation.category(name),
            sets: &environment.datasets,
            countries: environment.countries.clone(),
        };
        let mut compiled = Vec::with_capacity(rules.len());
        let mut txs = TxBuilder::new(protocols, environment.rule_folder);
        let mut frames = FrameBuilder::new(protocols);
        let mut facts: Vec<RuleFacts> = Vec::with_capacity(rules.len());
        let mut of = Gathered::new();
        // Consuming the rules one by one frees each tree before the next rule is compiled.
        for rule in rules {
            let made =
                CompiledRule::compile(&rule, compiled.len(), &mut env, &mut sets, &mut txs, &mut frames, &limits);
            match made {
                Ok(c) => {
                    of.gather(&rule, &c, facts.len());
                    compiled.push(c);
                    facts.push(RuleFacts::of(rule, environment.keep_trees));
                }
                Err(Refused::Unsupported(e)) if !rule.firewall => report.set_aside.push((rule.place, e)),
                Err(Refused::Error(e) | Refused::Unsupported(e)) => {
                    report.refused(&rule.text, &rule.place, rule.firewall, e);
                }
            }
        }
        facts.shrink_to_fit();
        let Gathered { grouped, ip_only, of_firewall, before_flow, thresholds, files, buffers } = of;
        report.ip_only = ip_only.len();
        report.rules(&compiled, &grouped);
        let mut cache = MatcherCache::new(config.mpm_algo);
        if let Some(settings) = &config.cache {
            cache = cache.with_store(settings);
        }
        let (groups, counts) = Groups::new(&grouped, config.port_groups, &mut cache)?;
        report.groups = counts;
        report.list_problems = txs.list_problems();
        let txs = txs.finish(&mut cache);
        let frames = frames.finish(&mut cache);
        let (matchers, used) = cache.finish()?;
        report.cache = used;
        report.matchers(&matchers);
        let lineage = Lineage::new(&facts, environment.previous.map(|d| (&d.lineage, &*d.rules)), names_kept);
        let before = environment.previous.map(|d| (&d.thresholds, lineage.of_previous()));
        let (thresholds, idle) = Thresholds::new(&facts, &thresholds, environment.thresholds, before);
        report.idle_thresholds = idle.into_iter().map(|(g, reason)| (g.place.clone(), reason)).collect();
        let firewall =
            environment.firewall.as_ref().map(|p| Box::new(Firewall::new(&of_firewall, &compiled, protocols, p)));
        let detect = Detect {
            firewall,
            files,
            buffers,
            stream_events: stream_events.get(),
            before_flow: before_flow.into_boxed_slice(),
            ip_only: IpOnly::new(&ip_only),
            shared: OnceLock::new(),
            txs,
            frames,
            protocols,
            groups,
            thresholds,
            matchers,
            compiled,
            sets: sets.finish(),
            config: config.clone(),
            reputation: environment.reputation.clone(),
            datasets: environment.datasets.clone(),
            lineage,
            names: Arc::new(names),
            scripts,
            rules: facts,
        };
        Ok((detect, report))
    }

    /// Whether this is firewall mode.
    pub fn is_firewall(&self) -> bool {
        self.firewall.is_some()
    }

    /// Whether rules must run before a packet's flow is known ([`crate::DetectState::untracked`]).
    pub fn looks_before_flow(&self) -> bool {
        !self.before_flow.is_empty()
    }

    /// The stream events that rules name, as bits of [`crate::Input::stream_events`].
    pub fn stream_events(&self) -> u128 {
        self.stream_events
    }

    /// The file features that the rules need.
    pub fn file_wants(&self) -> FileWants {
        self.files
    }

    /// The frames that rules inspect.
    pub fn frame_kinds(&self) -> FrameKinds {
        self.frames.kinds()
    }

    /// Whether any rule needs what parsers compute only on demand.
    pub fn uses(&self, extra: Extra) -> bool {
        let asked = match extra {
            Extra::Ja3 => self.scripts.ja3,
            Extra::Hassh => self.scripts.hassh,
            Extra::Ja4 | Extra::Arguments => false,
        };
        let mut buffers = self.protocols.iter().flat_map(|p| p.buffers);
        asked || buffers.any(|b| b.extra == Some(extra) && self.buffers.contains(b.name))
    }

    /// The progress value of a complete transaction, by direction.
    pub(crate) fn complete(&self, proto: AppProto) -> [u8; 2] {
        self.protocols.iter().find(|p| p.proto == proto).map_or([0; 2], |p| p.complete())
    }

    /// The rules in evaluation order. Alerts name a rule by its index here.
    pub fn rules(&self) -> &[RuleFacts] {
        &self.rules
    }

    /// Generator and signature number of the rule at `index`.
    pub(crate) fn name_of(&self, index: u32) -> (u32, u32) {
        self.rules.get(index as usize).map_or((0, 0), |r| (r.gid, r.sid))
    }

    /// The kind of the rule at `index`.
    pub fn kind(&self, index: u32) -> Option<RuleKind> {
        self.compiled.get(index as usize).map(|c| c.kind)
    }

    /// Whether the header of the rule at `index` (protocol, addresses, ports, direction) fits a packet of the IP
    /// protocol `proto` from `from` to `to`. The application protocol of the rule is ignored.
    pub fn fits(&self, index: u32, proto: u8, from: (IpAddr, u16), to: (IpAddr, u16), dir: Option<Direction>) -> bool {
        let key = PacketKey::of_ends(proto, from, to, dir);
        self.compiled.get(index as usize).is_some_and(|c| c.header.misfit(&key, &self.sets).is_none())
    }

    /// Names of flowbits, flowints and the like.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// The datasets that rules look buffers up in.
    pub fn datasets(&self) -> &Datasets {
        &self.datasets
    }

    /// The reputation of addresses.
    pub fn reputation(&self) -> &IpReputation {
        &self.reputation
    }
}
