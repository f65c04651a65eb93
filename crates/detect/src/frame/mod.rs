//! Rules that inspect frames: ranges of a stream that a parser marked ([`margay_app::frame`]).
//!
//! All frame checks of a rule must hold in one gap-free part of one frame. Rules with the same protocol, direction and
//! frame type share a [`FrameGroup`] with a matcher for their patterns. A frame is inspected when it is complete, or
//! when at least a stream chunk of new data arrived. A rule that matched a frame matches it again with each later chunk
//! in which it holds, as in Suricata.

use std::fmt;

use margay_app::frame::{Frame, FrameKinds, STREAM};
use margay_app::{AppProto, Protocol};
use margay_flow::Direction;
use margay_rules::ast::{BufferCheck, BufferChecks, Compare, Rule};

use crate::checks::{CheckEnv, ProtoSet};
use crate::fast_pattern;
use crate::header::{Header, TO_CLIENT, TO_SERVER};
use crate::inspect::{CompiledBuffer, InspectLimits};
use crate::kind::is_frame;
use crate::mpm::MatcherCache;
use crate::prefilter::{Literal, Prefilter};
use crate::refused::Refused;
use crate::transform::{CompiledTransforms, Inspection};

/// The bytes of a direction's frames.
pub trait FrameBytes {
    /// Calls `each` with every gap-free part between two offsets, and with the offset at which it begins.
    fn stretches(&self, from: u64, to: u64, each: &mut dyn FnMut(u64, &[u8]));
}

/// The frames of the packet's direction.
pub struct FrameInput<'a> {
    /// The protocol that marked them.
    pub proto: AppProto,
    /// The index of its parser in [`crate::Input::txs`].
    pub parser: u8,
    /// The frames.
    pub frames: &'a mut [Frame],
    /// Their bytes.
    pub bytes: &'a dyn FrameBytes,
    /// Offset up to which the parser consumed the stream. Rules inspect an open frame up to here.
    pub available: u64,
    /// Offset up to which the parser saw the stream, at least `available`. Rules inspect a frame that ends before it.
    pub offered: u64,
    /// Whether no more data will come.
    pub end: bool,
}

impl fmt::Debug for FrameInput<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameInput").field("proto", &self.proto).field("frames", &self.frames).finish_non_exhaustive()
    }
}

/// A rule's checks on a frame.
#[derive(Debug)]
pub(crate) struct FrameRule {
    pub(crate) checks: Box<[Inspection]>,
    /// The checks without sizes, for data after the rule's first match; `None` if the rule can only match at the frame's
    /// start.
    pub(crate) again: Option<Box<[Inspection]>>,
    /// Size conditions, which apply to the frame as far as it arrived.
    pub(crate) sizes: Box<[Compare]>,
    /// Whether the rule can only match in a part that begins where the frame does.
    pub(crate) from_start: bool,
    /// Whether the rule can only match in a part that ends where the frame does.
    pub(crate) to_end: bool,
    /// Whether the rule sees only what is new in a part. As in Suricata, numbers at a fixed place and sizes count from there,
    /// and what must not be there may have been there before.
    pub(crate) new_only: bool,
    prefiltered: bool,
}

impl FrameRule {
    /// Whether the rule has a fast pattern.
    pub(crate) const fn is_prefiltered(&self) -> bool {
        self.prefiltered
    }
}

/// Rules for frames of one type, in one direction.
#[derive(Debug)]
pub(crate) struct FrameGroup {
    proto: AppProto,
    dir: Direction,
    /// As [`margay_app::frame::Frame::kind`].
    kind: u8,
    pub(crate) prefilter: Option<Prefilter>,
    pub(crate) always: Box<[u32]>,
}

/// All groups of frame rules.
#[derive(Debug, Default)]
pub(crate) struct FrameGroups(Vec<FrameGroup>);

impl FrameGroups {
    /// The types that rules inspect.
    pub(crate) fn kinds(&self) -> FrameKinds {
        let mut kinds = FrameKinds::default();
        self.0.iter().for_each(|g| kinds.add(g.proto, g.kind));
        kinds
    }

    pub(crate) fn get(&self, proto: AppProto, dir: Direction, kind: u8) -> Option<&FrameGroup> {
        self.0.iter().find(|g| (g.proto, g.dir, g.kind) == (proto, dir, kind))
    }
}

/// A protocol, direction and type, with the rules for it.
type Place = ((AppProto, Direction, u8), Vec<(u32, Option<Literal>)>);

/// Compiles frame rules and collects the data for their groups.
pub(crate) struct FrameBuilder {
    protocols: &'static [&'static Protocol],
    places: Vec<Place>,
}

impl FrameBuilder {
    pub(crate) const fn new(protocols: &'static [&'static Protocol]) -> Self {
        FrameBuilder { protocols, places: Vec::new() }
    }

    /// Compiles the frame checks of `rule`, which has the number `number`.
    pub(crate) fn compile(
        &mut self,
        rule: &Rule,
        number: u32,
        header: &Header,
        env: &mut CheckEnv<'_>,
        limits: &InspectLimits,
    ) -> Result<FrameRule, Refused> {
        let mut name = None;
        let (mut checks, mut again, mut sizes) = (Vec::new(), Vec::new(), Vec::new());
        let (mut from_start, mut to_end, mut new_only) = (false, false, false);
        for b in rule.buffers.iter().filter(|b| b.app) {
            let Some(frame) = b.buffer.strip_prefix("frame:") else {
                return Err(Refused::Unsupported(format!("a frame and {} in one rule", b.buffer)));
            };
            if name.replace(frame).is_some_and(|n| n != frame) {
                return Err(Refused::Unsupported("frames of two types in one rule".into()));
            }
            if b.absent.is_some() {
                return Err(Refused::Unsupported("absent is not possible for a frame".into()));
            }
            let (start, end) = anchors(b);
            (from_start, to_end) = (from_start || start, to_end || end);
            new_only |= b.transforms.is_empty() && b.checks.iter().any(is_about_new_data);
            let mut compile = |b: &BufferChecks| -> Result<Inspection, Refused> {
                let mut compiled = Inspection {
                    transforms: CompiledTransforms::compile(&b.transforms, limits.pcre)?,
                    checks: CompiledBuffer::compile(b, limits)?,
                };
                compiled.checks.resolve(&b.buffer, env.names, env.sets)?;
                Ok(compiled)
            };
            checks.push(compile(b)?);
            if !start {
                let mut rest = b.clone();
                rest.checks.retain(|c| !matches!(c, BufferCheck::Bsize(_)));
                again.push(compile(&rest)?);
                sizes.extend(
                    b.checks.iter().filter_map(|c| if let BufferCheck::Bsize(c) = c { Some(*c) } else { None }),
                );
            }
        }
        let name = name.unwrap_or_default();
        let kinds = self.kinds(rule, name);
        if kinds.is_empty() {
            // The parser is there, so the name is wrong.
            return Err(match self.parsed(rule, name) {
                Some(p) => Refused::Error(format!("protocol \"{}\" has no frame \"{name}\"", p.rule_name)),
                None => Refused::Unsupported(format!("no protocol of this build has the frame {name}")),
            });
        }
        let pattern = pattern_of(rule);
        for (dir, side) in [(Direction::ToServer, TO_SERVER), (Direction::ToClient, TO_CLIENT)] {
            if header.sides & side == 0 {
                continue;
            }
            for &(proto, kind) in &kinds {
                let key = (proto, dir, kind);
                match self.places.iter_mut().find(|p| p.0 == key) {
                    Some(p) => p.1.push((number, pattern.clone())),
                    None => self.places.push((key, vec![(number, pattern.clone())])),
                }
            }
        }
        Ok(FrameRule {
            checks: checks.into_boxed_slice(),
            again: (!from_start).then(|| again.into_boxed_slice()),
            sizes: sizes.into_boxed_slice(),
            from_start,
            to_end,
            new_only: new_only && !from_start,
            prefiltered: pattern.is_some(),
        })
    }

    /// The protocols that have a frame called `name`, with its number. The name is `protocol.type`, or only the type if
    /// the rule's header names the protocol. The frame of a stream needs TCP: under the header `tcp` or `ip` any protocol
    /// has it. The header `udp` excludes protocols that only use TCP.
    fn kinds(&self, rule: &Rule, name: &str) -> Vec<(AppProto, u8)> {
        use margay_rules::ast::Protocol;
        let (named, carried) = match &rule.protocol {
            Protocol::App(name) => (Some(ProtoSet::named(name)), [true; 2]),
            Protocol::Tcp | Protocol::TcpPacket | Protocol::TcpStream => (None, [true, false]),
            Protocol::Udp => (None, [false, true]),
            _ => (None, [true; 2]),
        };
        let mut kinds = Vec::new();
        for p in self.protocols.iter().filter(|p| named.is_none_or(|n| n.has(p.proto))) {
            let [tcp, udp] = p.transports();
            let (tcp, udp) = (tcp && carried[0], udp && carried[1]);
            let kind = match name.split_once('.') {
                Some((of, kind)) if p.rule_name == of => kind,
                _ => name,
            };
            match p.frames.iter().position(|f| *f == kind) {
                Some(n) if tcp || udp => kinds.push((p.proto, n as u8)),
                None if kind == "stream" && (tcp || named.is_none() && carried[0]) => kinds.push((p.proto, STREAM)),
                _ => {}
            }
        }
        kinds
    }

    /// The first parsed protocol that the rule or the prefix of the frame `name` names.
    fn parsed(&self, rule: &Rule, name: &str) -> Option<&'static Protocol> {
        let of = match (&rule.protocol, name.split_once('.')) {
            (margay_rules::ast::Protocol::App(named), _) => named,
            (_, Some((of, _))) => of,
            _ => return None,
        };
        let mut meant = self.protocols.iter().copied().filter(|p| p.proto.is_meant_by(of));
        self.protocols.iter().copied().find(|p| p.rule_name == of).or_else(|| meant.next())
    }

    pub(crate) fn finish(self, cache: &mut MatcherCache) -> FrameGroups {
        let mut groups = Vec::with_capacity(self.places.len());
        for ((proto, dir, kind), rules) in self.places {
            let patterns: Vec<_> = rules.iter().filter_map(|(n, p)| Some((p.as_ref()?, *n))).collect();
            let prefilter = (!patterns.is_empty()).then(|| Prefilter::new(patterns, cache));
            let always = rules.iter().filter(|(_, p)| p.is_none()).map(|(n, _)| *n).collect();
            groups.push(FrameGroup { proto, dir, kind, prefilter, always });
        }
        FrameGroups(groups)
    }
}

/// The fast pattern of a frame rule.
pub(crate) fn pattern_of(rule: &Rule) -> Option<Literal> {
    let plain = |i: usize| rule.buffers.get(i).is_some_and(|b| is_frame(b) && b.transforms.is_empty());
    fast_pattern::to_look_for(rule, &plain, &|_| 1).map(Literal::from).filter(Literal::is_useful)
}

/// Whether checks are bound to the start of a frame, and to its end.
fn anchors(b: &BufferChecks) -> (bool, bool) {
    if !b.transforms.is_empty() {
        return (true, true);
    }
    b.checks.iter().fold((false, false), |(start, end), c| match c {
        BufferCheck::Content(c) => {
            (start || c.starts_with || c.offset.is_some() || c.depth.is_some(), end || c.ends_with)
        }
        BufferCheck::IsDataAt { relative, negated, .. } => (start, end || (*relative && *negated)),
        // As in Suricata, `bsize` applies to each inspected part: many frames end with their flow.
        BufferCheck::Bsize(_) => (start, end),
        BufferCheck::Base64 { .. }
        | BufferCheck::Entropy { .. }
        | BufferCheck::Asn1(_)
        | BufferCheck::Dataset(_)
        | BufferCheck::DataRep(_) => (true, true),
        BufferCheck::ByteTest(_)
        | BufferCheck::ByteJump(_)
        | BufferCheck::ByteExtract(_)
        | BufferCheck::ByteMath(_)
        | BufferCheck::Pcre(_)
        | BufferCheck::Lua(_)
        | BufferCheck::Judge(_)
        | BufferCheck::Other { .. } => (start, end),
    })
}

/// See [`FrameRule::new_only`].
fn is_about_new_data(check: &BufferCheck) -> bool {
    match check {
        BufferCheck::Content(c) => c.negated,
        BufferCheck::Pcre(p) => p.negated,
        BufferCheck::IsDataAt { relative, .. } => !relative,
        BufferCheck::ByteTest(x) => !x.relative,
        BufferCheck::ByteJump(x) => !x.relative,
        BufferCheck::ByteExtract(x) => !x.relative,
        BufferCheck::ByteMath(x) => !x.relative,
        _ => false,
    }
}
