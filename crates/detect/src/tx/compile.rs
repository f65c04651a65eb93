//! Compiles rules to plans.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use margay_app::file::{HashKind, HashList};
use margay_app::{BufferDef, BufferKind, NumberDef, Protocol};
use margay_flow::Direction;
use margay_rules::ast::{
    Arrow, BufferCheck, BufferChecks, Check, Effect, FileCheck, FileHash, FileScope, FileSide, Rule, Side, XBitTrack,
};
use margay_rules::{FileBuffer, info};

use super::group::GroupsBuilder;
use super::{FileTest, Gate, Plan, SlotSource, Step, TxGroups, TxRule, TxTrigger, What};
use crate::checks::{CheckEnv, ProtoSet};
use crate::dataset::Datasets;
use crate::fast_pattern;
use crate::head::{long, range};
use crate::header::{Header, TO_CLIENT, TO_SERVER};
use crate::inspect::{CompiledBuffer, InspectLimits, order_counts};
use crate::kind;
use crate::lua;
use crate::mpm::MatcherCache;
use crate::prefilter::Literal;
use crate::rule::Refused;

const DIRECTIONS: [Direction; 2] = [Direction::ToServer, Direction::ToClient];

/// Compiles rules that inspect transactions, and collects what they share.
pub(crate) struct TxBuilder {
    protocols: &'static [&'static Protocol],
    groups: GroupsBuilder,
    lists: HashLists,
}

/// Lists of file digests; each file is read once.
#[derive(Debug, Default)]
struct HashLists {
    /// Folder for lists that are not beside the rules.
    folder: Option<PathBuf>,
    read: HashMap<(PathBuf, HashKind), Arc<HashList>>,
}

impl HashLists {
    /// The list that `rule` names, from beside the rule file or else from the rule folder.
    fn get(&mut self, kind: FileHash, name: &str, rule: &Rule) -> Result<Arc<HashList>, Refused> {
        let kind = match kind {
            FileHash::Md5 => HashKind::Md5,
            FileHash::Sha1 => HashKind::Sha1,
            FileHash::Sha256 => HashKind::Sha256,
        };
        let beside = Path::new(&*rule.place.file).parent().unwrap_or(Path::new("")).join(name);
        let path = match &self.folder {
            Some(folder) if !beside.exists() => folder.join(name),
            _ => beside,
        };
        let key = (path, kind);
        if let Some(list) = self.read.get(&key) {
            return Ok(list.clone());
        }
        let list = HashList::load(&key.0, kind).map_err(|e| Refused::Error(e.to_string()))?;
        Ok(self.read.entry(key).or_insert(Arc::new(list)).clone())
    }
}

/// Where one protocol and direction has a buffer of a rule.
#[derive(Clone, Copy)]
enum Place {
    /// The packet's payload or headers.
    Packet,
    Buffer(&'static BufferDef, u8),
    FileData,
    FileName,
    FileMagic,
    /// `=>`: in the other direction.
    Other,
}

impl TxBuilder {
    /// A builder for the transactions of `protocols`. `folder` has the digest lists that are not beside their rules.
    pub(crate) fn new(protocols: &'static [&'static Protocol], folder: Option<&Path>) -> Self {
        let lists = HashLists { folder: folder.map(Path::to_owned), read: HashMap::new() };
        TxBuilder { protocols, groups: GroupsBuilder::default(), lists }
    }

    /// Compiles the transaction part of `rule`, which has the number `number`.
    pub(crate) fn compile(
        &mut self,
        rule: &Rule,
        number: u32,
        header: &Header,
        env: &mut CheckEnv<'_>,
        limits: &InspectLimits,
    ) -> Result<TxRule, Refused> {
        let both = rule.arrow == Arrow::Transaction;
        let late = rule.checks.iter().any(|c| matches!(c, Check::Score { .. }));
        let mut out = TxRule { plans: Box::default(), checks: Box::default(), both, payload_sought: false, late };
        let mut checks = Vec::new();
        let mut numbers = Vec::with_capacity(rule.buffers.len());
        for b in &rule.buffers {
            numbers.push(match b.app && !b.checks.is_empty() {
                true => {
                    let n = push(&mut checks, b, limits)?;
                    if let Some(c) = checks.last_mut() {
                        c.resolve(&b.buffer, env.names, env.sets)?;
                    }
                    Some(n)
                }
                false => None,
            });
        }
        let files = file_tests(rule, &numbers, &mut checks, &mut self.lists, limits)?;
        let named = match &rule.protocol {
            margay_rules::ast::Protocol::App(name) => Some(ProtoSet::named(name)),
            _ => None,
        };
        let mut plans = Vec::new();
        for protocol in self.protocols.iter().copied().filter(|p| named.is_none_or(|n| n.has(p.proto))) {
            let mut of_protocol = Vec::new();
            for dir in DIRECTIONS {
                let side = if dir == Direction::ToServer { TO_SERVER } else { TO_CLIENT };
                if header.sides & side == 0 && !out.both {
                    continue;
                }
                of_protocol.extend(self.plan(rule, protocol, dir, &numbers, &files, env, limits)?);
            }
            if !out.both || of_protocol.len() == 2 {
                plans.extend(of_protocol);
            }
        }
        if plans.is_empty() {
            return Err(Refused::Unsupported(
                "no protocol of this build has all that the rule asks for in one direction".into(),
            ));
        }
        (out.plans, out.checks) = (plans.into_boxed_slice(), checks.into_boxed_slice());
        // If a rare pattern already makes the rule a candidate, a payload pattern excludes little more.
        let rare = |p: &Plan| matches!(&p.trigger, TxTrigger::Pattern(_, l) if fast_pattern::is_rare(&l.pattern.bytes));
        out.payload_sought = named.is_some()
            && !out.both
            && !rule.firewall
            && !out.plans.iter().all(rare)
            && payload_pattern(rule).is_some();
        // Firewall rules are in the firewall's tables.
        for p in out.plans.iter().filter(|_| !rule.firewall) {
            self.groups.get(p.proto, p.dir).add(number, p, out.payload_sought);
        }
        Ok(out)
    }

    pub(crate) fn finish(self, cache: &mut MatcherCache) -> TxGroups {
        self.groups.finish(cache)
    }

    /// The plan of `rule` for one protocol and direction; `None` if it checks something that does not exist there.
    #[allow(clippy::too_many_arguments)]
    fn plan(
        &mut self,
        rule: &Rule,
        protocol: &'static Protocol,
        dir: Direction,
        numbers: &[Option<u16>],
        files: &Arc<[FileTest]>,
        env: &mut CheckEnv<'_>,
        limits: &InspectLimits,
    ) -> Result<Option<Plan>, Refused> {
        let both = rule.arrow == Arrow::Transaction;
        let complete = protocol.complete()[dir.index()];
        let mut places = Vec::with_capacity(rule.buffers.len());
        for b in &rule.buffers {
            match place(b, protocol, dir, both) {
                Some(p) => places.push(p),
                None => return Ok(None),
            }
        }
        let mut steps: Vec<Step> = Vec::new();
        let mut slots = vec![None; places.len()];
        let group = self.groups.get(protocol.proto, dir);
        let mut payload = false;
        let mut start_streams: Option<u8> = None;
        for (i, (b, place)) in rule.buffers.iter().zip(&places).enumerate() {
            let (source, progress, kind) = match *place {
                Place::Packet => {
                    payload |= kind::is_payload(&b.buffer);
                    continue;
                }
                Place::Other => continue,
                Place::Buffer(def, progress) => (SlotSource::Buffer(def.id), progress, def.kind),
                Place::FileData => (SlotSource::FileData, 0, BufferKind::Stream),
                Place::FileName => (SlotSource::FileName, 0, BufferKind::Multi),
                Place::FileMagic => (SlotSource::FileMagic, 0, BufferKind::Multi),
            };
            let slot = group.slot(source, progress, kind, &b.transforms, limits.pcre)?;
            slots[i] = Some(slot);
            if tests_files(b) {
                continue;
            }
            let check = numbers.get(i).copied().flatten();
            if kind.grows() {
                start_streams = Some(start_streams.map_or(progress, |p: u8| p.min(progress)));
            }
            let scripts = lua::of_buffer(rule, i);
            for number in scripts.clone() {
                steps
                    .push(Step::new(progress, What::Lua { number, buffer: Some((slot, check, kind)), changes: false }));
            }
            if !scripts.is_empty() {
                if b.absent.is_some() {
                    return Err(Refused::Error("absent is not possible with lua".into()));
                }
                continue;
            }
            let what = match (b.absent, check) {
                (None, Some(check)) => What::Buffer { slot, check, kind },
                (None, None) => continue,
                (Some(or_else), check) => What::Absent { slot, or_else: check.filter(|_| or_else), kind },
            };
            let shows = !kind.grows() && numbers.get(i).copied().flatten().is_some() && shows(&b.checks, env.sets);
            steps.push(Step { progress, what, shows, cost: cost(b, kind) });
        }
        if payload {
            steps.push(Step::new(0, What::Payload));
        }
        let mut event = None;
        for c in &rule.checks {
            let what = match c {
                Check::AppEvent(name) => match name.split_once('.') {
                    None => continue,
                    Some((of, name)) => {
                        let number = protocol.events.iter().position(|e| *e == name);
                        // An `ip` rule sees only events of protocols over TCP (observed).
                        let applies = rule.protocol != margay_rules::ast::Protocol::Ip || protocol.transports()[0];
                        let meant = applies && protocol.proto.is_meant_by(of);
                        match number.and_then(|n| u8::try_from(n).ok()).filter(|_| meant) {
                            Some(n) => {
                                event = Some(n);
                                (0, What::Event(n))
                            }
                            None => return Ok(None),
                        }
                    }
                },
                Check::UriLen { value, raw } => match find(protocol, info::uri_buffer(*raw), dir) {
                    Some((def, progress)) => {
                        let slot = group.slot(SlotSource::Buffer(def.id), progress, def.kind, &[], limits.pcre)?;
                        (progress, What::Length { slot, value: *value })
                    }
                    None if both => continue,
                    None => return Ok(None),
                },
                Check::Number { keyword, test, which } => {
                    let def = protocol.numbers.iter().find(|n| n.name == *keyword);
                    match def.and_then(|d| Some((d, d.progress[dir.index()]?))) {
                        Some((def, progress)) => {
                            let changes = progress == NumberDef::ANY_STATE;
                            let progress = if changes { 0 } else { progress };
                            (progress, What::Number { id: def.id, test: test.clone(), which: *which, changes })
                        }
                        None if both && def.is_some() => continue,
                        None => return Ok(None),
                    }
                }
                Check::Interface(test) => {
                    // The buffer with the values has the keyword's name.
                    match find(protocol, info::keyword_of_check(c), dir) {
                        Some((def, progress)) => (progress, What::Interface { id: def.id, test: test.clone() }),
                        None => return Ok(None),
                    }
                }
                // A state name of the other direction means the state with that number here, as in Suricata.
                Check::AppState { state, order } => match state_of(protocol, dir, state)
                    .or_else(|| state_of(protocol, dir.reverse(), state))
                {
                    Some(s) => (if *order == Ordering::Less { 0 } else { s }, What::State { state: s, order: *order }),
                    None => return Ok(None),
                },
                Check::XBit { name, track: XBitTrack::Transaction, set, .. } => {
                    (0, What::Bit { name: env.names.intern(name), set: *set })
                }
                Check::Score { name, least } => (0, What::Score { name: env.names.intern(name), least: *least }),
                _ => continue,
            };
            steps.push(Step::new(what.0, what.1));
        }
        match lua::plan(rule, protocol, dir) {
            Some(scripts) => steps.extend(scripts),
            None if both => {}
            None => return Ok(None),
        }
        let mut hook = None;
        if let Some(h) = &rule.hook {
            let (name, before) = h.strip_prefix('<').map_or((h.as_str(), false), |n| (n, true));
            match state_of(protocol, dir, name) {
                Some(s) if before && !rule.firewall => {
                    steps.push(Step::new(0, What::State { state: s, order: Ordering::Less }))
                }
                Some(s) => {
                    if rule.firewall && steps.iter().any(|x| x.progress > s) {
                        return Err(Refused::Error(format!(
                            "the hook {name} comes before the data that the rule inspects"
                        )));
                    }
                    hook = Some(s);
                    // A script runs from that state on.
                    for step in steps.iter_mut().filter(|x| matches!(x.what, What::Lua { buffer: None, .. })) {
                        step.progress = step.progress.max(s);
                        if let What::Lua { changes, .. } = &mut step.what {
                            *changes = false;
                        }
                    }
                    steps.push(Step::new(s, What::Reached));
                }
                None => return Ok(None),
            }
        }
        let asks_file = (!files.is_empty() || stores_one(rule, dir)) && !(both && dir == Direction::ToServer);
        let scripts = steps.iter().any(|s| matches!(s.what, What::Lua { .. }));
        let looks = !scripts && !rule.buffers.iter().any(|b| order_counts(&b.checks));
        if looks {
            steps.sort_by_key(Step::rank);
        } else {
            steps.sort_by_key(|s| s.progress);
        }
        if asks_file {
            steps.push(Step::new(0, What::File(files.clone())));
        }
        if steps.len() > 60 {
            return Err(Refused::Unsupported("more than 60 checks of buffers in one rule".into()));
        }
        let prefilterable = |i: usize| slots.get(i).is_some_and(|s: &Option<u16>| s.is_some());
        let priority = |i: usize| rule.buffers.get(i).map_or(0, |b| fast_pattern::priority(&b.buffer));
        let pattern = fast_pattern::to_look_for(rule, &prefilterable, &priority)
            .map(|f| (f.buffer, Literal::from(f)))
            .filter(|(_, literal)| literal.is_useful());
        let latest = steps.iter().map(|s| s.progress).max().unwrap_or(0).min(complete);
        let mut streamed = false;
        let trigger = match pattern {
            Some((buffer, literal)) => {
                let slot = slots.get(buffer).copied().flatten().unwrap_or_default();
                streamed = places.get(buffer).is_some_and(|p| match p {
                    Place::Buffer(def, _) => def.kind.grows(),
                    _ => true,
                });
                TxTrigger::Pattern(slot, literal)
            }
            None if steps.is_empty() && both => TxTrigger::Never,
            None => match (asks_file, event, start_streams) {
                (true, ..) => TxTrigger::File,
                (_, Some(e), _) => TxTrigger::Event(e),
                (_, _, Some(p)) => TxTrigger::Progress(p),
                _ => TxTrigger::Progress(latest),
            },
        };
        let gates = if looks && !both && !rule.firewall { gates(rule, &slots, &steps) } else { Box::default() };
        let repeats = hook.filter(|_| matches!(steps.as_slice(), [Step { what: What::Reached, .. }]));
        let full = (1u64 << steps.len()) - 1;
        Ok(Some(Plan {
            proto: protocol.proto,
            dir,
            full,
            streamed,
            repeats,
            trigger,
            gates,
            looks,
            steps: steps.into_boxed_slice(),
        }))
    }
}

/// Cheap conditions that follow from a plan's steps.
fn gates(rule: &Rule, slots: &[Option<u16>], steps: &[Step]) -> Box<[Gate]> {
    let of_lengths = steps.iter().filter_map(|s| match &s.what {
        What::Length { slot, value } => {
            let (from, to) = range(value);
            Some(Gate::of_length(*slot, s.progress, (long(from), long(to))))
        }
        _ => None,
    });
    let progress = |slot: u16| {
        let is = |s: &&Step| matches!(s.what, What::Buffer { slot: n, kind: BufferKind::Single, .. } if n == slot);
        steps.iter().find(is).map(|s| s.progress)
    };
    let of_buffers = rule.buffers.iter().zip(slots).filter(|(b, _)| b.absent.is_none()).filter_map(|(b, slot)| {
        let slot = (*slot)?;
        Some(Gate::of_checks(slot, progress(slot)?, &b.checks))
    });
    of_lengths.chain(of_buffers).take(GATES_MAX).collect()
}

/// Most gates of a plan.
const GATES_MAX: usize = 4;

/// The rare literal that stands for the payload checks of a transaction rule, if there is one.
pub(crate) fn payload_pattern(rule: &Rule) -> Option<Literal> {
    let plain = |i: usize| {
        rule.buffers.get(i).is_some_and(|b| kind::is_payload(&b.buffer) && !b.app && b.transforms.is_empty())
    };
    let found = fast_pattern::to_look_for(rule, &plain, &|_| 0)?;
    fast_pattern::is_rare(&found.bytes).then(|| Literal::from(found)).filter(Literal::is_useful)
}

/// The relative cost of a buffer's checks: literals are cheap to search, and lengths need no search.
fn cost(b: &BufferChecks, kind: BufferKind) -> u8 {
    let asks = |f: &dyn Fn(&BufferCheck) -> bool| b.checks.iter().any(f);
    let of_checks = match () {
        () if asks(&|c| matches!(c, BufferCheck::Bsize(_))) => 1,
        () if asks(&|c| matches!(c, BufferCheck::Content(c) if !c.negated && fast_pattern::is_rare(&c.bytes))) => 2,
        () if !asks(&|c| matches!(c, BufferCheck::Pcre(_))) => 3,
        () if asks(&|c| matches!(c, BufferCheck::Content(c) if !c.negated)) => 4,
        () => 5,
    };
    if kind == BufferKind::Single { of_checks } else { of_checks + 10 }
}

/// Whether alerts show the dataset entry that one of these checks finds.
fn shows(checks: &[BufferCheck], sets: &Datasets) -> bool {
    checks.iter().any(|c| match c {
        BufferCheck::Dataset(d) => sets.get(&d.name).is_some_and(|s| s.has_context()),
        BufferCheck::Base64 { data, .. } => shows(data, sets),
        _ => false,
    })
}

fn push(checks: &mut Vec<CompiledBuffer>, b: &BufferChecks, limits: &InspectLimits) -> Result<u16, Refused> {
    checks.push(CompiledBuffer::compile(b, limits)?);
    u16::try_from(checks.len() - 1).map_err(|_| Refused::Error("more than 65,535 checks in one rule".into()))
}

/// The test of a file's name or type.
fn file_test(buffer: &str, check: u16) -> FileTest {
    match FileBuffer::from_name(buffer) {
        Some(FileBuffer::Name) => FileTest::Name(check),
        _ => FileTest::Magic(check),
    }
}

/// Whether a buffer's checks must all hold for the same file.
fn tests_files(b: &BufferChecks) -> bool {
    matches!(FileBuffer::from_name(&b.buffer), Some(FileBuffer::Name | FileBuffer::Magic))
        && b.transforms.is_empty()
        && b.absent.is_none()
        && !b.checks.iter().any(|c| matches!(c, BufferCheck::Lua(_)))
}

/// The tests that must all hold for one file.
fn file_tests(
    rule: &Rule,
    numbers: &[Option<u16>],
    checks: &mut Vec<CompiledBuffer>,
    lists: &mut HashLists,
    limits: &InspectLimits,
) -> Result<Arc<[FileTest]>, Refused> {
    let mut tests = Vec::new();
    for (b, number) in rule.buffers.iter().zip(numbers) {
        if let Some(check) = number.filter(|_| tests_files(b)) {
            tests.push(file_test(&b.buffer, check));
        }
    }
    for c in &rule.checks {
        let Check::File(f) = c else { continue };
        if let Some(b) = f.as_buffer() {
            tests.push(file_test(&b.buffer, push(checks, &b, limits)?));
            continue;
        }
        tests.push(match f {
            FileCheck::Name { .. } | FileCheck::Extension { .. } | FileCheck::Magic { .. } => continue,
            FileCheck::Hash { kind, list, negated } => {
                FileTest::Hash { list: lists.get(*kind, list, rule)?, negated: *negated }
            }
            FileCheck::Size(c) => FileTest::Size(*c),
        });
    }
    Ok(tests.into())
}

/// Whether the rule stores only the matching file, in this direction. Then a file must match.
fn stores_one(rule: &Rule, dir: Direction) -> bool {
    rule.effects.iter().any(|e| match e {
        Effect::FileStore { side, scope: FileScope::File } => match side {
            None | Some(FileSide::Both) => true,
            Some(FileSide::ToServer) => dir == Direction::ToServer,
            Some(FileSide::ToClient) => dir == Direction::ToClient,
        },
        _ => false,
    })
}

fn find(protocol: &'static Protocol, name: &str, dir: Direction) -> Option<(&'static BufferDef, u8)> {
    let def = protocol.buffers.iter().find(|b| b.name == name)?;
    Some((def, def.progress[dir.index()]?))
}

/// A state's number. The first and the last state also have a name that all protocols share.
pub(crate) fn state_of(protocol: &Protocol, dir: Direction, name: &str) -> Option<u8> {
    let states = protocol.states[dir.index()];
    let ends = [["request_started", "request_complete"], ["response_started", "response_complete"]][dir.index()];
    let place = states.iter().position(|s| *s == name).or_else(|| match ends.iter().position(|e| *e == name)? {
        0 => Some(0),
        _ => states.len().checked_sub(1),
    });
    place.and_then(|n| u8::try_from(n).ok())
}

fn place(b: &BufferChecks, protocol: &'static Protocol, dir: Direction, both: bool) -> Option<Place> {
    if !b.app {
        return Some(Place::Packet);
    }
    let here = |side: Side| (side == Side::ToServer) == (dir == Direction::ToServer);
    if let Some(side) = b.side
        && !here(side)
    {
        return both.then_some(Place::Other);
    }
    // If both directions of a `=>` rule have a buffer and the rule names none, files are the response's, other buffers
    // the request's.
    let name = b.buffer.as_str();
    let found = match FileBuffer::from_name(name) {
        Some(_) if both && b.side.is_none() && dir == Direction::ToServer => None,
        Some(FileBuffer::Data) => {
            Some(find(protocol, name, dir).map_or(Place::FileData, |(def, p)| Place::Buffer(def, p)))
        }
        Some(FileBuffer::Name) => Some(Place::FileName),
        Some(FileBuffer::Magic) => Some(Place::FileMagic),
        None => match find(protocol, name, dir) {
            Some((def, _)) if both && b.side.is_none() && dir == Direction::ToClient && def.progress[0].is_some() => {
                None
            }
            found => found.map(|(def, p)| Place::Buffer(def, p)),
        },
    };
    match found {
        None if both && (find(protocol, &b.buffer, dir.reverse()).is_some() || b.buffer.starts_with("file.")) => {
            Some(Place::Other)
        }
        found => found,
    }
}
