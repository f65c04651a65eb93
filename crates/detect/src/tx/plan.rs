//! The plan of a rule for the transactions of one protocol and direction: its steps in order, and its trigger.

use std::cmp::Ordering;
use std::sync::Arc;

use margay_app::{BufferDef, BufferKind, NumberDef, Protocol};
use margay_flow::Direction;
use margay_rules::ast::{Arrow, BufferCheck, BufferChecks, Check, Rule, Side, XBitTrack};
use margay_rules::{FileBuffer, info};

use super::compile::{state_of, tests_files};
use super::group::{GroupBuilder, GroupsBuilder};
use super::{FileTest, Gate, Judged, Plan, SlotSource, Step, TxTrigger, What, script};
use crate::any_of;
use crate::checks::CheckEnv;
use crate::dataset::Datasets;
use crate::fast_pattern;
use crate::head::{long, range};
use crate::inspect::{InspectLimits, bytes_needed, judges_bytes, order_counts};
use crate::kind;
use crate::lua;
use crate::prefilter::{AnyOf, Literal};
use crate::refused::Refused;

/// The limit of steps in a plan, whose results are bits of one number.
const STEPS_MAX: usize = 60;
/// Most gates of a plan.
const GATES_MAX: usize = 4;

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

/// A rule and where it is inspected.
pub(super) struct Inspected<'a> {
    pub(super) rule: &'a Rule,
    pub(super) protocol: &'static Protocol,
    pub(super) dir: Direction,
    /// The compiled checks of each buffer, if they are of a transaction.
    pub(super) numbers: &'a [Option<u16>],
    pub(super) files: &'a Arc<[FileTest]>,
    pub(super) limits: &'a InspectLimits,
}

/// A plan as far as it is made.
struct Draft {
    places: Vec<Place>,
    /// The slot of each buffer.
    slots: Vec<Option<u16>>,
    steps: Vec<Step>,
    /// The first state in which a growing buffer has data.
    grows_from: Option<u8>,
    /// The event that the rule asks for.
    event: Option<u8>,
}

/// The result of a check without a buffer.
enum Checked {
    /// It is a step from that progress on.
    Step(u8, What),
    /// Something else decides it, or the other direction.
    Elsewhere,
    /// It can never hold here.
    Never,
}

impl Inspected<'_> {
    /// The plan; `None` if the rule checks something that does not exist here.
    pub(super) fn plan(&self, groups: &mut GroupsBuilder, env: &mut CheckEnv<'_>) -> Result<Option<Plan>, Refused> {
        let (rule, both) = (self.rule, self.is_for_both());
        let places = rule.buffers.iter().map(|b| place(b, self.protocol, self.dir, both)).collect::<Option<Vec<_>>>();
        let Some(places) = places else { return Ok(None) };
        // A group exists only where a rule may inspect something.
        let group = groups.get(self.protocol.proto, self.dir);
        let slots = vec![None; places.len()];
        let mut draft = Draft { places, slots, steps: Vec::new(), grows_from: None, event: None };
        self.buffers(&mut draft, group, env.sets)?;
        for c in &rule.checks {
            match self.check(c, group, env)? {
                Checked::Step(progress, what) => {
                    if let What::Event(n) = what {
                        draft.event = Some(n);
                    }
                    draft.steps.push(Step::new(progress, what));
                }
                Checked::Elsewhere => {}
                Checked::Never => return Ok(None),
            }
        }
        match script::plan(rule, self.protocol, self.dir) {
            Some(scripts) => draft.steps.extend(scripts),
            None if both => {}
            None => return Ok(None),
        }
        let mut hook = None;
        if let Some(name) = &rule.hook
            && !self.hook(name, &mut draft.steps, &mut hook)?
        {
            return Ok(None);
        }
        self.finish(draft, hook).map(Some)
    }

    /// Whether the rule is about both directions (`=>`).
    fn is_for_both(&self) -> bool {
        self.rule.arrow == Arrow::Transaction
    }

    /// Adds the steps of buffers, in the rule's order.
    fn buffers(&self, draft: &mut Draft, group: &mut GroupBuilder, sets: &Datasets) -> Result<(), Refused> {
        let mut payload = false;
        for (i, b) in self.rule.buffers.iter().enumerate() {
            let (source, progress, kind) = match draft.places[i] {
                Place::Packet => {
                    payload |= kind::is_payload(&b.buffer);
                    continue;
                }
                Place::Other => continue,
                Place::Buffer(def, progress) => {
                    if FileBuffer::from_name(def.name) == Some(FileBuffer::Data) {
                        group.file_data = Some(def.id);
                    }
                    (SlotSource::Buffer(def.id), progress, def.kind)
                }
                Place::FileData => (SlotSource::FileData, 0, BufferKind::Stream),
                Place::FileName => (SlotSource::FileName, 0, BufferKind::Multi),
                Place::FileMagic => (SlotSource::FileMagic, 0, BufferKind::Multi),
            };
            let slot = group.slot(source, progress, kind, &b.transforms, self.limits.pcre)?;
            draft.slots[i] = Some(slot);
            // A firewall rule decides in the state of its hook.
            let progress = match draft.places[i] {
                Place::Buffer(def, _) if self.rule.firewall => def.progress[self.dir.index()].unwrap_or(progress),
                _ => progress,
            };
            if tests_files(self.rule, i) {
                continue;
            }
            if kind.grows() {
                draft.grows_from = Some(draft.grows_from.map_or(progress, |p| p.min(progress)));
            }
            let check = self.numbers.get(i).copied().flatten();
            let scripts = lua::of_buffer(self.rule, i);
            for number in scripts.clone() {
                let what = What::Lua { number, buffer: Some((slot, check, kind)), changes: false };
                draft.steps.push(Step::new(progress, what));
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
            let shows = !kind.grows() && check.is_some() && shows(&b.checks, sets);
            draft.steps.push(Step { progress, what, shows, cost: cost(b, kind) });
        }
        if payload {
            draft.steps.push(Step::new(0, What::Payload));
        }
        Ok(())
    }

    /// A check without a buffer.
    fn check(&self, c: &Check, group: &mut GroupBuilder, env: &mut CheckEnv<'_>) -> Result<Checked, Refused> {
        let (protocol, dir, both) = (self.protocol, self.dir, self.is_for_both());
        Ok(match c {
            Check::AppEvent(name) => self.event(name),
            Check::UriLen { value, raw } => match find(protocol, info::uri_buffer(*raw), dir) {
                Some((def, progress)) => {
                    let slot = group.slot(SlotSource::Buffer(def.id), progress, def.kind, &[], self.limits.pcre)?;
                    Checked::Step(progress, What::Length { slot, value: *value })
                }
                None if both => Checked::Elsewhere,
                None => Checked::Never,
            },
            Check::Number { keyword, test, which } => {
                let def = protocol.numbers.iter().find(|n| n.name == *keyword);
                match def.and_then(|d| Some((d, d.progress[dir.index()]?))) {
                    Some((def, progress)) => {
                        let changes = progress == NumberDef::ANY_STATE;
                        let what = What::Number { id: def.id, test: test.clone(), which: *which, changes };
                        Checked::Step(if changes { 0 } else { progress }, what)
                    }
                    None if both && def.is_some() => Checked::Elsewhere,
                    None => Checked::Never,
                }
            }
            // The buffer with the values has the keyword's name.
            Check::Interface(test) => match find(protocol, info::keyword_of_check(c), dir) {
                Some((def, progress)) => Checked::Step(progress, What::Interface { id: def.id, test: test.clone() }),
                None => Checked::Never,
            },
            // A state name of the other direction means the state with that number here, as in Suricata.
            Check::AppState { state, order } => {
                let found = state_of(protocol, dir, state).or_else(|| state_of(protocol, dir.reverse(), state));
                match found {
                    Some(s) => {
                        let progress = if *order == Ordering::Less { 0 } else { s };
                        Checked::Step(progress, What::State { state: s, order: *order })
                    }
                    None => Checked::Never,
                }
            }
            Check::XBit { name, track: XBitTrack::Transaction, set, .. } => {
                Checked::Step(0, What::Bit { name: env.names.intern(name), set: *set })
            }
            Check::Score { name, least } => {
                Checked::Step(0, What::Score { name: env.names.intern(name), least: *least })
            }
            _ => Checked::Elsewhere,
        })
    }

    /// An event of the protocol, by its name in rules.
    fn event(&self, name: &str) -> Checked {
        let Some((of, name)) = name.split_once('.') else { return Checked::Elsewhere };
        let number = self.protocol.events.iter().position(|e| *e == name).and_then(|n| u8::try_from(n).ok());
        // An `ip` rule sees only events of protocols over TCP (observed).
        let applies = self.rule.protocol != margay_rules::ast::Protocol::Ip || self.protocol.transports()[0];
        match number.filter(|_| applies && self.protocol.proto.is_meant_by(of)) {
            Some(n) => Checked::Step(0, What::Event(n)),
            None => Checked::Never,
        }
    }

    /// Adds the step of the rule's hook, and stores the state that it waits for in `waits`. Returns whether it exists here.
    fn hook(&self, hook: &str, steps: &mut Vec<Step>, waits: &mut Option<u8>) -> Result<bool, Refused> {
        let (name, before) = hook.strip_prefix('<').map_or((hook, false), |n| (n, true));
        let Some(s) = state_of(self.protocol, self.dir, name) else { return Ok(false) };
        if before && !self.rule.firewall {
            steps.push(Step::new(0, What::State { state: s, order: Ordering::Less }));
            return Ok(true);
        }
        if self.rule.firewall && steps.iter().any(|x| x.progress > s) {
            return Err(Refused::Error(format!("the hook {name} comes before the data that the rule inspects")));
        }
        *waits = Some(s);
        // A script runs from that state on.
        for step in steps.iter_mut().filter(|x| matches!(x.what, What::Lua { buffer: None, .. })) {
            step.progress = step.progress.max(s);
            if let What::Lua { changes, .. } = &mut step.what {
                *changes = false;
            }
        }
        steps.push(Step::new(s, What::Reached));
        Ok(true)
    }

    /// Whether one of the transaction's files must match: also if the rule stores files, whichever its option names.
    fn asks_file(&self) -> bool {
        !self.files.is_empty() || self.rule.stores_files() && !(self.is_for_both() && self.dir == Direction::ToServer)
    }

    /// Orders the steps, and chooses the trigger and the gates.
    fn finish(&self, mut draft: Draft, hook: Option<u8>) -> Result<Plan, Refused> {
        let (rule, both) = (self.rule, self.is_for_both());
        let scripts = draft.steps.iter().any(|s| matches!(s.what, What::Lua { .. }));
        let looks = !scripts && !rule.buffers.iter().any(|b| order_counts(&b.checks));
        if looks {
            draft.steps.sort_by_key(Step::rank);
        } else {
            draft.steps.sort_by_key(|s| s.progress);
        }
        if self.asks_file() {
            draft.steps.push(Step::new(0, What::File(self.files.clone())));
        }
        if draft.steps.len() > STEPS_MAX {
            return Err(Refused::Unsupported(format!("more than {STEPS_MAX} checks of buffers in one rule")));
        }
        let (trigger, streamed) = self.trigger(&draft, looks);
        let gates = match looks && !both && !rule.firewall {
            true => gates(rule, &draft.slots, &draft.steps),
            false => Box::default(),
        };
        let repeats = hook.filter(|_| matches!(draft.steps.as_slice(), [Step { what: What::Reached, .. }]));
        Ok(Plan {
            proto: self.protocol.proto,
            dir: self.dir,
            full: (1u64 << draft.steps.len()) - 1,
            streamed,
            repeats,
            trigger,
            gates,
            looks,
            steps: draft.steps.into_boxed_slice(),
        })
    }

    /// The rule's trigger, and whether its buffer grows, so that the rule becomes a candidate repeatedly. `looks` as in
    /// [`Plan::looks`].
    fn trigger(&self, draft: &Draft, looks: bool) -> (TxTrigger, bool) {
        let prefilterable = |i: usize| draft.slots.get(i).is_some_and(Option::is_some);
        let priority = |i: usize| self.rule.buffers.get(i).map_or(0, |b| fast_pattern::priority(&b.buffer));
        let pattern = fast_pattern::to_look_for(self.rule, &prefilterable, &priority)
            .map(|f| (f.buffer, Literal::from(f)))
            .filter(|(_, literal)| literal.is_useful());
        if let Some((buffer, literal)) = pattern {
            let slot = draft.slots.get(buffer).copied().flatten().unwrap_or_default();
            return (TxTrigger::Pattern(slot, literal), draft.is_streamed(buffer));
        }
        if draft.steps.is_empty() && self.is_for_both() {
            return (TxTrigger::Never, false);
        }
        let complete = self.protocol.complete()[self.dir.index()];
        let latest = draft.steps.iter().map(|s| s.progress).max().unwrap_or(0).min(complete);
        if self.asks_file() {
            return (TxTrigger::File, false);
        }
        if let Some(e) = draft.event {
            return (TxTrigger::Event(e), false);
        }
        let progress = draft.grows_from.unwrap_or(latest);
        match looks.then(|| self.value(draft, progress)).flatten() {
            Some((buffer, trigger)) => (trigger, draft.is_streamed(buffer)),
            None => (TxTrigger::Progress(progress), false),
        }
    }

    /// The trigger by a value, with the number of its buffer, if the rule can have one.
    fn value(&self, draft: &Draft, progress: u8) -> Option<(usize, TxTrigger)> {
        if !self.is_timeless(draft) {
            return None;
        }
        if let Some((buffer, slot, literals)) = self.expression(draft) {
            let check = self.judged(draft, buffer);
            return Some((buffer, TxTrigger::Value { slot, needed: Some(literals), check, progress }));
        }
        let (buffer, slot, check) =
            self.offered(draft).find_map(|(i, slot, _)| Some((i, slot, self.judged(draft, i)?)))?;
        Some((buffer, TxTrigger::Value { slot, needed: None, check: Some(check), progress }))
    }

    /// The buffers that can make the rule a candidate, with their slots. Data of a growing buffer that came before the rule
    /// was a candidate is gone, so if there is such a buffer it must be that one.
    fn offered(&self, draft: &Draft) -> impl Iterator<Item = (usize, u16, &BufferChecks)> {
        let here = self.rule.buffers.iter().zip(&draft.slots).enumerate();
        let grows = draft.growing();
        here.filter_map(|(i, (b, slot))| Some((i, (*slot)?, b)))
            .filter(move |(_, slot, _)| grows.clone().all(|other| other == *slot))
    }

    /// A buffer's checks, if their result depends only on a value that stays as it is.
    fn judged(&self, draft: &Draft, buffer: usize) -> Option<Judged> {
        let Some(Place::Buffer(def, _)) = draft.places.get(buffer) else { return None };
        let checks = self.rule.buffers.get(buffer)?;
        let alone = def.kind != BufferKind::Stream && checks.absent.is_none() && judges_bytes(&checks.checks);
        let check = self.numbers.get(buffer).copied().flatten().filter(|_| alone)?;
        Some(Judged { check, bytes: bytes_needed(&checks.checks) })
    }

    /// The literals of the most selective expression, with its buffer and slot. The rule cannot match without one of
    /// them.
    fn expression(&self, draft: &Draft) -> Option<(usize, u16, AnyOf)> {
        let checks = self.offered(draft).flat_map(|(i, slot, b)| b.checks.iter().map(move |c| (i, slot, c)));
        let expressions = checks.filter_map(|(i, slot, c)| match c {
            BufferCheck::Pcre(p) if !p.negated => Some((i, slot, any_of::of_pattern(&p.pattern, &p.options)?)),
            _ => None,
        });
        let (i, slot, best) = expressions.min_by(|a, b| a.2.rate.total_cmp(&b.2.rate))?;
        Some((i, slot, AnyOf::new(best.literals, best.nocase)))
    }

    /// Whether the rule matches the same whenever it becomes a candidate: it asks only for values of the transaction, which
    /// stay, and for the direction and the establishment of its flow. A payload or a bit may hold with one packet and not
    /// with another.
    fn is_timeless(&self, draft: &Draft) -> bool {
        let rule = self.rule;
        let lasts = |c: &Check| match c {
            Check::Flow(f) => !f.not_established && f.stream.is_none() && f.frag.is_none(),
            Check::UriLen { .. } | Check::Number { .. } => true,
            _ => false,
        };
        let of_values = |s: &Step| {
            matches!(s.what, What::Buffer { .. } | What::Length { .. } | What::Number { changes: false, .. })
        };
        !self.is_for_both()
            && !rule.firewall
            && rule.checks.iter().all(lasts)
            && draft.steps.iter().all(of_values)
            && draft.growing().count() <= 1
            && !draft.places.iter().any(|p| matches!(p, Place::Packet))
    }
}

impl Draft {
    /// The slots of the steps whose buffer grows.
    fn growing(&self) -> impl Iterator<Item = u16> + Clone {
        self.steps.iter().filter_map(|s| match s.what {
            What::Buffer { slot, kind, .. } if kind.grows() => Some(slot),
            _ => None,
        })
    }

    /// Whether a buffer grows, so that its rule becomes a candidate repeatedly.
    fn is_streamed(&self, buffer: usize) -> bool {
        self.places.get(buffer).is_some_and(|p| match p {
            Place::Buffer(def, _) => def.kind.grows(),
            _ => true,
        })
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

fn find(protocol: &'static Protocol, name: &str, dir: Direction) -> Option<(&'static BufferDef, u8)> {
    let def = protocol.buffers.iter().find(|b| b.name == name)?;
    Some((def, def.begins(dir)?))
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
