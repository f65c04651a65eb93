//! Compiles rules to plans.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use margay_app::Protocol;
use margay_app::file::{HashKind, HashList};
use margay_flow::Direction;
use margay_rules::FileBuffer;
use margay_rules::ast::{Arrow, BufferCheck, BufferChecks, Check, FileCheck, FileHash, Rule, Side};

use super::group::GroupsBuilder;
use super::plan::Inspected;
use super::{FileTest, Plan, TxGroups, TxRule, TxTrigger};
use crate::checks::{CheckEnv, ProtoSet};
use crate::fast_pattern;
use crate::header::{Header, TO_CLIENT, TO_SERVER};
use crate::inspect::{CompiledBuffer, InspectLimits};
use crate::kind;
use crate::mpm::MatcherCache;
use crate::prefilter::Literal;
use crate::refused::Refused;

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
    problems: Vec<String>,
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
        self.problems.extend(list.skipped(&key.0));
        Ok(self.read.entry(key).or_insert(Arc::new(list)).clone())
    }
}

impl TxBuilder {
    /// A builder for the transactions of `protocols`. `folder` has the digest lists that are not beside their rules.
    pub(crate) fn new(protocols: &'static [&'static Protocol], folder: Option<&Path>) -> Self {
        let lists = HashLists { folder: folder.map(Path::to_owned), ..HashLists::default() };
        TxBuilder { protocols, groups: GroupsBuilder::default(), lists }
    }

    /// Messages about lines of digest lists that were skipped.
    pub(crate) fn list_problems(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lists.problems)
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
        let files = file_tests(rule, &numbers, &mut checks, &mut self.lists, limits, out.both)?;
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
                let inspected =
                    Inspected { rule, protocol, dir, numbers: &numbers, files: &files[dir.index()], limits };
                of_protocol.extend(inspected.plan(&mut self.groups, env)?);
            }
            if !out.both || of_protocol.len() == 2 {
                plans.extend(of_protocol);
            }
        }
        if plans.is_empty() {
            self.check_hook(rule, named)?;
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

    /// Refuses a hook that none of the rule's parsed protocols has.
    fn check_hook(&self, rule: &Rule, named: Option<ProtoSet>) -> Result<(), Refused> {
        let Some(hook) = rule.hook.as_deref() else { return Ok(()) };
        let name = hook.trim_start_matches('<');
        let mut parsed = self.protocols.iter().filter(|p| named.is_some_and(|n| n.has(p.proto))).peekable();
        let Some(first) = parsed.peek().map(|p| p.rule_name) else { return Ok(()) };
        if parsed.any(|p| DIRECTIONS.into_iter().any(|dir| state_of(p, dir, name).is_some())) {
            return Ok(());
        }
        Err(Refused::Error(format!("protocol \"{first}\" has no hook \"{name}\"")))
    }

    pub(crate) fn finish(self, cache: &mut MatcherCache) -> TxGroups {
        self.groups.finish(cache)
    }
}

/// The rare literal that stands for the payload checks of a transaction rule, if there is one.
pub(crate) fn payload_pattern(rule: &Rule) -> Option<Literal> {
    let plain = |i: usize| {
        rule.buffers.get(i).is_some_and(|b| kind::is_payload(&b.buffer) && !b.app && b.transforms.is_empty())
    };
    let found = fast_pattern::to_look_for(rule, &plain, &|_| 0)?;
    fast_pattern::is_rare(&found.bytes).then(|| Literal::from(found)).filter(Literal::is_useful)
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

/// Whether the checks of a rule's buffer must hold for the same file as its other conditions on files. A second name or type may be
/// another file's.
pub(super) fn tests_files(rule: &Rule, index: usize) -> bool {
    let plainly = |b: &BufferChecks| {
        matches!(FileBuffer::from_name(&b.buffer), Some(FileBuffer::Name | FileBuffer::Magic))
            && b.transforms.is_empty()
            && b.absent.is_none()
            && !b.checks.iter().any(|c| matches!(c, BufferCheck::Lua(_)))
    };
    let (before, rest) = rule.buffers.split_at_checked(index).unwrap_or_default();
    rest.first()
        .is_some_and(|b| plainly(b) && !before.iter().any(|o| (&o.buffer, o.side) == (&b.buffer, b.side) && plainly(o)))
}

/// The tests that must all hold for one file, by direction. Those of a `=>` rule are on the response's file, unless they
/// name the request.
fn file_tests(
    rule: &Rule,
    numbers: &[Option<u16>],
    checks: &mut Vec<CompiledBuffer>,
    lists: &mut HashLists,
    limits: &InspectLimits,
    both: bool,
) -> Result<[Arc<[FileTest]>; 2], Refused> {
    let (mut tests, mut of_request) = (Vec::new(), Vec::new());
    for (i, (b, number)) in rule.buffers.iter().zip(numbers).enumerate() {
        if let Some(check) = number.filter(|_| tests_files(rule, i)) {
            let list = if both && b.side == Some(Side::ToServer) { &mut of_request } else { &mut tests };
            list.push(file_test(&b.buffer, check));
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
    let tests: Arc<[FileTest]> = tests.into();
    Ok([if both { of_request.into() } else { tests.clone() }, tests])
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
