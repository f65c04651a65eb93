//! Inspection of frames.

use margay_app::frame::CHUNK;

use super::{Match, State};
use crate::detect::Detect;
use crate::frame::FrameRule;
use crate::header::PacketKey;
use crate::input::{Input, Verdict};
use crate::rule::CompiledRule;
use crate::watch::{At, End, Look, Searched, Watch};

/// The part of a frame that is inspected.
struct Part<'a> {
    data: &'a [u8],
    starts: bool,
    ends: bool,
    /// Leading bytes that were inspected before.
    seen: usize,
    /// Bytes from the frame's start to the part's end.
    size: u64,
}

impl<W: Watch> State<W> {
    /// Inspects the frames that are due.
    // It stays whole: one loop over the frames.
    pub(crate) fn inspect_frames(
        &mut self,
        detect: &Detect,
        input: &mut Input<'_>,
        key: &PacketKey,
        verdict: &mut Verdict,
    ) {
        let (Some(dir), Some(of)) = (input.dir, input.frames.take()) else { return };
        for frame in of.frames.iter_mut().filter(|f| !f.inspected) {
            let complete = frame.end.filter(|e| *e <= of.offered);
            let to = complete.unwrap_or_else(|| frame.end.unwrap_or(u64::MAX).min(of.available));
            let whole = of.end || complete.is_some();
            // Inline, data that is not inspected now leaves uninspected. Otherwise a chunk is due once it arrived, also if the
            // parser left most of it for later, as in Suricata.
            let least = if input.ips { 1 } else { CHUNK };
            if !whole && (to <= frame.seen || of.offered < frame.seen.saturating_add(least)) {
                continue;
            }
            if let Some(group) = detect.frames.get(of.proto, dir, frame.kind) {
                let from = frame.needed();
                let mut candidates = std::mem::take(&mut self.candidates);
                of.bytes.stretches(from, to, &mut |offset, data| {
                    let end = offset + data.len() as u64;
                    let part = Part {
                        data,
                        starts: offset == frame.offset,
                        ends: whole && end == to,
                        seen: usize::try_from(frame.seen.saturating_sub(offset))
                            .map_or(data.len(), |n| n.min(data.len())),
                        size: end - frame.offset,
                    };
                    candidates.clear();
                    candidates.extend_from_slice(&group.always);
                    if let Some(p) = &group.prefilter {
                        p.scan(data, &mut self.scratch, &mut candidates);
                        self.context.watch.searched(Searched::Frame(of.proto, frame.kind), Some(data));
                    }
                    candidates.sort_unstable();
                    candidates.dedup();
                    self.counters.candidates += candidates.len() as u64;
                    for &number in &candidates {
                        let Some(rule) = detect.compiled.get(number as usize) else { continue };
                        let Some(asked) = rule.frame.as_deref() else { continue };
                        let matched = frame.matched.contains(&number);
                        // In one inspection a rule matches a frame once, even if a gap divides it.
                        let now = || self.matches.iter().any(|m| (m.rule, m.frame) == (number, Some(frame.id)));
                        if matched && (asked.again.is_none() && !input.ips || now()) {
                            continue;
                        }
                        self.context
                            .watch
                            .begin(number, Look::Frame { proto: of.proto, kind: frame.kind, id: frame.id });
                        self.context.watch.at(At::Frame(offset));
                        let holds = self.tx_applies(detect, rule, input, key)
                            && self.part_holds(asked, rule, &part, matched, input);
                        self.keep_script_writes(input.flow.as_deref_mut());
                        self.context.watch.end(number, if holds { End::Match } else { End::Fail });
                        if holds {
                            self.keep_captures(input.flow.as_deref_mut());
                            self.apply(rule, input, verdict, None);
                            let context = self.keep_contexts();
                            if !matched {
                                frame.matched.push(number);
                            }
                            let found = Match {
                                rule: number,
                                tx_id: frame.tx,
                                stream: input.packet.is_tcp(),
                                parser: of.parser,
                                file: None,
                                frame: Some(frame.id),
                                context,
                            };
                            self.matches.push(found);
                        }
                    }
                });
                self.candidates = candidates;
            }
            frame.seen = frame.seen.max(to);
            frame.inspected = whole;
        }
    }

    /// Whether a rule holds in a part of a frame. If it matched the frame before, it must hold in the data that came
    /// since; inline, as on the stream, in that data and a chunk before it.
    fn part_holds(
        &mut self,
        asked: &FrameRule,
        rule: &CompiledRule,
        part: &Part<'_>,
        matched: bool,
        input: &Input<'_>,
    ) -> bool {
        // Inline, a packet brings little, so the rule sees it together with what came before.
        let new_only = asked.new_only && part.seen > 0 && !input.ips;
        let window = if input.ips && matched { part.seen.saturating_sub(CHUNK as usize) } else { 0 };
        let again = (matched && !input.ips) || new_only;
        let (checks, data) = match &asked.again {
            Some(checks) if again => (checks, part.data.get(part.seen..).unwrap_or(&[])),
            _ => (&asked.checks, part.data.get(window..).unwrap_or(&[])),
        };
        let starts = part.starts && window == 0 || matched && !input.ips;
        if (asked.from_start && !starts) || (asked.to_end && !part.ends) || data.is_empty() {
            self.context.watch.missing(At::Frame(0), "only part of the frame is there");
            return false;
        }
        self.context.clear_results();
        (!again || asked.sizes.iter().all(|s| s.holds(part.size)))
            && checks.iter().all(|i| self.matches(i, data))
            && (rule.payload.is_empty() || self.payload_holds(rule, input).is_some())
            && (!rule.payload.is_empty() || self.scripts_hold(rule, input, Some(data)))
    }
}
