//! Caches the values of a transaction's buffers, each built once for one inspection of the transaction.

use margay_app::{AppProto, Found};

use crate::byte_set::ByteSet;
use crate::group::OF_TRANSACTION;
use crate::inspect::InspectContext;
use crate::mpm::Scratch;
use crate::prefilter::Memo;
use crate::rule::CompiledRule;
use crate::transform::TransformScratch;
use crate::tx::{Judged, Slot, SlotSource, Summary, View};
use crate::watch::{End, Look, Watch};

/// The state of a slot for the current transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Held {
    /// Not requested yet.
    #[default]
    Unknown,
    /// The buffer does not exist.
    Absent,
    /// In the cache, at this offset; whether the buffer ends here; how many bytes were inspected before.
    Cached(u64, bool, usize),
    /// The transaction holds the bytes unchanged, so they are not copied.
    Direct,
}

#[derive(Debug, Default)]
pub(super) struct Cached {
    /// The inspection ([`Slots::inspection`]) that the rest belongs to.
    of: u64,
    held: Held,
    /// Cheap properties of the buffer, once requested.
    pub(super) summary: Option<Summary>,
    raw: Vec<u8>,
    out: Vec<u8>,
    /// For several transformed values: where each is in `out`, if it was requested.
    spans: Vec<Option<(usize, usize)>>,
    /// The number of values, once it is known.
    count: Option<usize>,
}

impl Cached {
    /// Begins an inspection: nothing was requested yet.
    fn begin(&mut self, inspection: u64) {
        self.of = inspection;
        self.held = Held::Unknown;
        self.summary = None;
        self.spans.clear();
        self.count = None;
    }

    /// A transformed value of a slot with several, built once for one inspection of a transaction.
    fn nth<W>(
        &mut self,
        index: usize,
        (slot, id): (&Slot, u8),
        view: View<'_>,
        context: &mut InspectContext<W>,
        transforms: &mut TransformScratch,
        one: &mut Vec<u8>,
    ) -> Option<&[u8]> {
        let Cached { out, spans, count, .. } = self;
        let (start, end) = match spans.get(index).copied().flatten() {
            Some(span) => span,
            None if count.is_some_and(|n| index >= n) => return None,
            None => {
                one.clear();
                let Some(found) = view.buffer(id, index, one) else {
                    *count = Some(index);
                    return None;
                };
                if spans.is_empty() {
                    out.clear();
                }
                let start = out.len();
                slot.transforms.append(found.data, out, transforms, context.pcre_scratch());
                if spans.len() <= index {
                    spans.resize(index + 1, None);
                }
                *spans.get_mut(index)? = Some((start, out.len()));
                (start, out.len())
            }
        };
        out.get(start..end)
    }
}

/// The values of all slots. A group may have hundreds of slots, of which an inspection asks for a few: each begins again when
/// an inspection first asks for it.
#[derive(Debug, Default)]
pub(super) struct Slots {
    list: Vec<Cached>,
    /// The number of the current inspection.
    inspection: u64,
}

impl Slots {
    /// The values of a slot in the current inspection.
    #[inline]
    pub(super) fn get_mut(&mut self, slot: usize) -> Option<&mut Cached> {
        let cached = self.list.get_mut(slot)?;
        if cached.of != self.inspection {
            cached.begin(self.inspection);
        }
        Some(cached)
    }
}

/// Scratch buffers to inspect transactions; one per worker.
#[derive(Debug, Default)]
pub(crate) struct TxScratch {
    pub(super) slots: Slots,
    pub(super) one: Vec<u8>,
    pub(super) candidates: Vec<u32>,
    pub(super) waiting: Vec<(u32, u64)>,
    /// The rules that recent values made candidates.
    pub(super) memo: Memo,
    /// Indices of the values of a slot that are not in `memo`, and whether it takes them.
    pub(super) missed: Vec<(usize, bool)>,
    /// Rules whose pattern is in the current packet's payload or stream, sorted. The search covered the rules for a flow
    /// of the protocol `payload_of`.
    in_payload: Vec<u32>,
    payload_of: Option<AppProto>,
}

impl TxScratch {
    /// Makes room for groups with up to `slots` slots.
    pub(crate) fn prepare(&mut self, slots: usize) {
        self.slots.list.resize_with(slots, Cached::default);
    }

    /// Starts a new packet, which has not been searched yet.
    pub(crate) const fn start(&mut self) {
        self.payload_of = None;
    }

    /// Moves the results of a search in a packet with this flow protocol from the end of `candidates`, which are sorted.
    pub(crate) fn take_payload(&mut self, proto: AppProto, candidates: &mut Vec<u32>) {
        self.payload_of = Some(proto);
        self.in_payload.clear();
        if candidates.last().is_some_and(|&c| c >= OF_TRANSACTION) {
            let at = candidates.partition_point(|&c| c < OF_TRANSACTION);
            self.in_payload.extend(candidates.drain(at..).map(|c| c & !OF_TRANSACTION));
        }
    }

    /// Whether a rule's pattern may be in the payload or the stream: it was found, or the rules of `proto` were not
    /// searched.
    pub(super) fn has_payload(&self, rule: u32, proto: AppProto) -> bool {
        self.payload_of != Some(proto) || self.in_payload.binary_search(&rule).is_ok()
    }

    /// Drops the cached values before another inspection of a transaction.
    pub(crate) const fn forget(&mut self) {
        self.slots.inspection += 1;
    }
}

/// Calls `f` with the bytes of a single-valued slot, like [`whole`]. A buffer that the transaction holds unchanged is asked for
/// once.
pub(super) fn with_whole<'v, W, R>(
    cached: &mut Cached,
    slot: &Slot,
    view: View<'v>,
    context: &mut InspectContext<W>,
    transforms: &mut TransformScratch,
    f: impl FnOnce(Option<Found<'_>>, &mut InspectContext<W>) -> R,
) -> R {
    let SlotSource::Buffer(id) = slot.source else { return f(None, context) };
    if cached.held != Held::Unknown || !slot.transforms.is_empty() {
        let found = whole(cached, slot, view, context, transforms);
        return f(found, context);
    }
    let Cached { held, raw, out, .. } = cached;
    raw.clear();
    out.clear();
    let found = view.buffer(id, 0, raw);
    let place = found.as_ref().map(Place::of);
    let result = f(found, context);
    *held = place.map_or(Held::Absent, |place| place.held(raw, out));
    result
}

/// Where the bytes of a buffer are, and what is known of them.
struct Place {
    at: usize,
    len: usize,
    found: (u64, bool, usize),
}

impl Place {
    fn of(f: &Found<'_>) -> Place {
        Place { at: f.data.as_ptr() as usize, len: f.data.len(), found: (f.offset, f.end, f.seen) }
    }

    /// If the transaction built the bytes in `raw`, they stay in `out`, so that they need not be built again.
    fn held(self, raw: &mut Vec<u8>, out: &mut Vec<u8>) -> Held {
        if (self.at, self.len) != (raw.as_ptr() as usize, raw.len()) || raw.is_empty() {
            return Held::Direct;
        }
        std::mem::swap(raw, out);
        let (offset, end, seen) = self.found;
        Held::Cached(offset, end, seen)
    }
}

pub(super) fn slot_of<'v, 's>(
    view: View<'v>,
    scratch: &'s mut TxScratch,
    slot: u16,
) -> Option<(&'v Slot, &'s mut Cached)> {
    Some((view.group.slots.get(usize::from(slot))?, scratch.slots.get_mut(usize::from(slot))?))
}

/// The bytes of a single-valued slot, built once for one inspection of a transaction.
pub(super) fn whole<'x, 'v: 'x, W>(
    cached: &'x mut Cached,
    slot: &Slot,
    view: View<'v>,
    context: &mut InspectContext<W>,
    transforms: &mut TransformScratch,
) -> Option<Found<'x>> {
    let SlotSource::Buffer(id) = slot.source else { return None };
    let Cached { held, raw, out, .. } = cached;
    if *held == Held::Unknown {
        raw.clear();
        out.clear();
        let state = match view.buffer(id, 0, raw) {
            None => Held::Absent,
            Some(f) if !slot.transforms.is_empty() => {
                slot.transforms.append(f.data, out, transforms, context.pcre_scratch());
                Held::Cached(f.offset, f.end, 0)
            }
            Some(f) => Place::of(&f).held(raw, out),
        };
        *held = state;
    }
    match *held {
        Held::Absent | Held::Unknown => None,
        Held::Cached(offset, end, seen) => Some(Found { data: out, offset, end, seen }),
        Held::Direct => {
            raw.clear();
            view.buffer(id, 0, raw)
        }
    }
}

/// A transformed value of a slot, by its index.
pub(super) fn value<'x, 'v: 'x, W>(
    cached: &'x mut Cached,
    slot: &Slot,
    view: View<'v>,
    context: &mut InspectContext<W>,
    transforms: &mut TransformScratch,
    one: &mut Vec<u8>,
    index: usize,
) -> Option<&'x [u8]> {
    if slot.is_one() {
        return whole(cached, slot, view, context, transforms).map(|f| f.data);
    }
    let SlotSource::Buffer(id) = slot.source else { return None };
    cached.nth(index, (slot, id), view, context, transforms, one)
}

/// Receives a value of a slot; returns true to stop.
pub(super) type Take<'t, W> = dyn FnMut(Found<'_>, &mut InspectContext<W>) -> bool + 't;

/// Calls `f` with each value of a slot until `f` returns true. `kept` caches values for the next rule of the same inspection.
pub(super) fn each<W>(
    (one, kept): (&mut Vec<u8>, Option<&mut Cached>),
    slot: &Slot,
    view: View<'_>,
    context: &mut InspectContext<W>,
    transforms: &mut TransformScratch,
    f: &mut Take<'_, W>,
) {
    if slot.is_one() {
        if let Some(cached) = kept {
            with_whole(cached, slot, view, context, transforms, |found, context| found.map(|found| f(found, context)));
        }
        return;
    }
    let mut give = |found: Found<'_>, context: &mut InspectContext<W>| {
        if slot.transforms.is_empty() {
            f(found, context)
        } else {
            let data = slot.transforms.apply(found.data, transforms, context.pcre_scratch());
            f(Found { data, seen: 0, ..found }, context)
        }
    };
    let files = view.tx.base().files.of(view.dir);
    match slot.source {
        SlotSource::Buffer(id) => {
            if let Some(cached) = kept.filter(|_| !slot.transforms.is_empty()) {
                for index in 0.. {
                    match cached.nth(index, (slot, id), view, context, transforms, one) {
                        Some(data) if !f(Found::whole(data), context) => {}
                        _ => return,
                    }
                }
                return;
            }
            for index in 0.. {
                one.clear();
                match view.buffer(id, index, one) {
                    Some(found) if !give(found, context) => {}
                    _ => return,
                }
            }
        }
        SlotSource::FileData => {
            for file in files {
                if let Some(found) = file.data(view.limits)
                    && !found.data.is_empty()
                    && give(found, context)
                {
                    return;
                }
            }
        }
        SlotSource::FileName => {
            for file in files {
                if give(Found::whole(file.name()), context) {
                    return;
                }
            }
        }
        SlotSource::FileMagic => {
            for m in files.filter_map(|x| x.magic(view.engine?)) {
                if give(Found::whole(m), context) {
                    return;
                }
            }
        }
    }
}

/// The bytes of a body or file before a part of it. A transformed part stands for itself.
pub(super) fn start_of(slot: &Slot, found: &Found<'_>) -> u64 {
    if slot.transforms.is_empty() { found.offset } else { 0 }
}

impl Slot {
    /// Adds the rules that one value makes candidates, except those that its first `seen` bytes made candidates before. `start`
    /// bytes of a body or file are before the value.
    pub(super) fn candidates<W: Watch>(
        &self,
        (value, seen, start): (&[u8], usize, u64),
        rules: &[CompiledRule],
        look: Look,
        context: &mut InspectContext<W>,
        mpm: &mut Scratch,
        out: &mut Vec<u32>,
    ) {
        let from = out.len();
        let bytes = self.prefilter.as_ref().and_then(|p| p.scan_behind(value, seen, mpm, out));
        if self.every.is_empty() && (self.found.is_empty() || out.len() == from) {
            return;
        }
        let bytes = bytes.unwrap_or_else(|| ByteSet::of(value));
        let mut holds = |rule: u32, judged: &Judged| {
            if judged.bytes.is_some_and(|needed| !needed.meets(&bytes)) {
                return false;
            }
            let compiled = rules.get(rule as usize).and_then(|r| r.tx.as_deref());
            let Some(checks) = compiled.and_then(|t| t.checks.get(usize::from(judged.check))) else { return true };
            context.watch.begin(rule, look);
            let holds = checks.inspect_part(value, start, context);
            if !holds {
                context.watch.end(rule, End::Fail);
            }
            holds
        };
        if !self.found.is_empty() {
            // A rule may be found by several of its literals.
            if let Some(new) = out.get_mut(from..) {
                new.sort_unstable();
            }
            let (mut kept, mut before) = (from, None);
            for at in from..out.len() {
                let Some(&rule) = out.get(at) else { break };
                let judged = self.found.binary_search_by_key(&rule, |f| f.0).ok().and_then(|n| self.found.get(n));
                let stays = before != Some(rule) && judged.is_none_or(|(rule, judged)| holds(*rule, judged));
                before = Some(rule);
                if let Some(place) = out.get_mut(kept).filter(|_| stays) {
                    *place = rule;
                    kept += 1;
                }
            }
            out.truncate(kept);
        }
        out.extend(self.every.iter().filter(|(rule, judged)| holds(*rule, judged)).map(|e| e.0));
    }
}
