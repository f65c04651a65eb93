//! The state of a rule during parsing: the selected buffer, the last content, the known variables.

use std::borrow::Cow;

use crate::ast::{BufferCheck, BufferChecks, Check, Content, Rule, Side, Transform, VARIABLES_MAX};
use crate::buffer::{Buffer, Direction};
use crate::context::Context;
use crate::error::{Fail, Message, Severity, fail};

/// The buffer for payload checks without a sticky buffer.
pub(crate) const PAYLOAD: &str = "payload";

/// A buffer of the rule with its checks.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) checks: BufferChecks,
    /// The buffer's table entry; `None` for the payload.
    pub(crate) info: Option<&'static Buffer>,
    /// Whether a sticky buffer keyword created it. It then needs checks.
    pub(crate) sticky: bool,
}

/// The position of a check on a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(crate) group: usize,
    /// The `base64_decode` whose data the check inspects.
    pub(crate) base64: Option<usize>,
    pub(crate) index: usize,
}

/// The last keyword, for `prefilter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Last {
    Nothing,
    Check(usize),
    Content(Spot),
    Other,
}

/// A keyword's argument.
#[derive(Debug)]
pub(crate) struct Input<'a> {
    /// The keyword as the rule writes it.
    pub(crate) written: &'a str,
    /// Its canonical name.
    pub(crate) name: &'static str,
    /// The value without quotes and without the leading `!`; empty if there is none.
    pub(crate) raw: &'a [u8],
    /// The value as text.
    pub(crate) text: Cow<'a, str>,
    /// Whether the value had a leading `!`.
    pub(crate) negated: bool,
    /// Whether there was a value.
    pub(crate) given: bool,
}

#[derive(Debug)]
pub(crate) struct Builder<'c> {
    pub(crate) ctx: &'c Context,
    pub(crate) rule: Rule,
    pub(crate) warnings: Vec<Message>,
    pub(crate) groups: Vec<Group>,
    /// The selected sticky buffer.
    pub(crate) current: Option<usize>,
    /// The `base64_decode` whose data is selected: group and index.
    pub(crate) base64: Option<(usize, usize)>,
    /// The last `base64_decode` that `base64_data` has not used yet.
    pub(crate) base64_open: Option<(usize, usize)>,
    pub(crate) last: Last,
    pub(crate) last_content: Option<Spot>,
    /// The last content, pcre or byte_* check, to which `relative` refers.
    pub(crate) last_match: Option<Spot>,
    /// Variables: name and the buffer that sets them.
    pub(crate) variables: Vec<(String, usize)>,
    /// Application protocols that all keywords so far allow; `None` for any.
    pub(crate) protocols: Option<Vec<&'static str>>,
    /// Keywords that appear at most once.
    pub(crate) seen: Seen,
    /// Whether the header named the application protocol.
    pub(crate) from_header: bool,
    /// Whether a keyword inspects one packet's own fields (`ttl`, `dsize`, `flags` …).
    pub(crate) packet: bool,
    /// Directions in which the buffers of protocol keywords exist.
    pub(crate) to_server: bool,
    pub(crate) to_client: bool,
}

/// Keywords that appear at most once.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools)]
pub(crate) struct Seen {
    pub(crate) sid: bool,
    pub(crate) rev: bool,
    pub(crate) msg: bool,
    pub(crate) priority: bool,
    pub(crate) class: bool,
    pub(crate) dsize: bool,
    pub(crate) threshold: bool,
    pub(crate) detection_filter: bool,
    pub(crate) app_protocol: bool,
    pub(crate) app_protocol_negated: bool,
}

impl<'c> Builder<'c> {
    pub(crate) fn warn(&mut self, module: &'static str, text: impl Into<String>) {
        self.warnings.push(Message { severity: Severity::Warning, module, text: text.into() });
    }

    /// Records that the rule needs `keyword`, which this build lacks.
    pub(crate) fn missing(&mut self, keyword: &str) {
        if !self.rule.missing.iter().any(|m| m == keyword) {
            self.rule.missing.push(keyword.to_owned());
        }
    }

    /// Adds a check that inspects no buffer.
    pub(crate) fn check(&mut self, check: Check) {
        self.last = Last::Check(self.rule.checks.len());
        self.rule.checks.push(check);
    }

    /// Adds a check on a packet's own fields.
    pub(crate) fn packet_check(&mut self, check: Check) {
        self.packet = true;
        self.check(check);
    }

    /// The payload's group.
    pub(crate) fn payload(&mut self) -> usize {
        self.group_of(PAYLOAD, None)
    }

    /// The first group of a buffer without transforms, created if there is none.
    pub(crate) fn group_of(&mut self, name: &str, info: Option<&'static Buffer>) -> usize {
        let found = self.groups.iter().position(|g| g.checks.buffer == name && g.checks.transforms.is_empty());
        found.unwrap_or_else(|| self.new_group(name, info, false))
    }

    fn new_group(&mut self, name: &str, info: Option<&'static Buffer>, sticky: bool) -> usize {
        let checks = BufferChecks {
            buffer: name.to_owned(),
            app: info.is_some_and(Buffer::is_app),
            transforms: Vec::new(),
            checks: Vec::new(),
            absent: None,
            side: None,
        };
        self.groups.push(Group { checks, info, sticky });
        self.groups.len() - 1
    }

    /// Whether nothing in the rule tests a buffer. `urilen` tests that of its URI.
    pub(crate) fn is_untested(&self, g: &Group) -> bool {
        let length = |c: &Check| match c {
            Check::UriLen { raw, .. } => g.checks.buffer == if *raw { "http.uri.raw" } else { "http.uri" },
            _ => false,
        };
        g.checks.checks.is_empty() && g.checks.absent.is_none() && !self.rule.checks.iter().any(length)
    }

    /// Selects a buffer for the keywords that follow; for one direction if `side` is given.
    pub(crate) fn select(&mut self, info: &'static Buffer, name: &str, side: Option<Side>) -> Result<(), Fail> {
        if self.current.and_then(|c| self.groups.get(c)).is_some_and(|g| self.is_untested(g)) {
            return fail("detect", "previous sticky buffer has no matches");
        }
        self.base64 = None;
        let old = if info.multi {
            None
        } else {
            let same = |g: &Group| g.checks.buffer == name && g.checks.transforms.is_empty() && g.checks.side == side;
            self.groups.iter().position(same)
        };
        let group = match old {
            Some(g) => {
                if let Some(g) = self.groups.get_mut(g) {
                    g.sticky = true;
                }
                g
            }
            None => self.new_group(name, Some(info), true),
        };
        if let Some(g) = self.groups.get_mut(group) {
            g.checks.side = side;
        }
        self.current = Some(group);
        self.note(info)
    }

    /// Records the directions in which the inspected data exists.
    pub(crate) const fn exists(&mut self, direction: Direction) {
        match direction {
            Direction::ToServer => self.to_server = true,
            Direction::ToClient => self.to_client = true,
            Direction::Both => {}
        }
    }

    /// Records a buffer's protocols and directions.
    pub(crate) fn note(&mut self, info: &'static Buffer) -> Result<(), Fail> {
        // SMTP sends mail content to the server. IMAP sends it in both directions, and the rule may name one.
        let either = info.protocols.len() > 1 && self.protocols.as_deref() == Some(&["imap"][..]);
        self.exists(if either { Direction::Both } else { info.direction });
        // Many protocols have files, so only the header can restrict them.
        if info.feature == "file" && !self.from_header {
            return Ok(());
        }
        self.restrict(info.protocols)
    }

    /// Restricts the rule to these application protocols; an empty list allows all.
    pub(crate) fn restrict(&mut self, allowed: &[&'static str]) -> Result<(), Fail> {
        if allowed.is_empty() {
            return Ok(());
        }
        let Some(old) = &self.protocols else {
            self.protocols = Some(allowed.to_vec());
            return Ok(());
        };
        let both: Vec<_> = old.iter().copied().filter(|p| allowed.contains(p)).collect();
        if both.is_empty() {
            let name = |l: &[&'static str]| match l.first() {
                Some(&"http") => "http_any",
                Some(&x) => x,
                None => "unknown",
            };
            if allowed.len() > 1 && allowed.first() != Some(&"http") {
                return fail("detect-parse", "rule contains conflicting protocols");
            }
            return fail(
                "detect-parse",
                format!("can't set rule app proto to {}: already set to {}", name(allowed), name(old)),
            );
        }
        self.protocols = Some(both);
        Ok(())
    }

    /// The last transform of the selected sticky buffer.
    pub(crate) fn last_transform(&self) -> Option<&Transform> {
        self.groups.get(self.current?)?.checks.transforms.last()
    }

    /// Adds a transform to the selected buffer. If the buffer has checks already, this starts a new selection of it.
    pub(crate) fn transform(&mut self, t: Transform) -> Result<(), Fail> {
        let Some(current) = self.current else {
            return fail("detect-parse", "transforms must directly follow stickybuffers");
        };
        let (name, info, old) = match self.groups.get(current) {
            Some(g) if !g.checks.checks.is_empty() => (g.checks.buffer.clone(), g.info, g.checks.transforms.clone()),
            _ => {
                if let Some(g) = self.groups.get_mut(current) {
                    g.checks.transforms.push(t);
                }
                return Ok(());
            }
        };
        let new = self.new_group(&name, info, true);
        if let Some(g) = self.groups.get_mut(new) {
            g.checks.transforms = old;
            g.checks.transforms.push(t);
        }
        self.current = Some(new);
        Ok(())
    }

    /// The group for a keyword: the sticky buffer; otherwise for a relative keyword the last match's buffer; otherwise
    /// the payload.
    pub(crate) fn target(&mut self, relative: bool) -> usize {
        if let Some(c) = self.current {
            return c;
        }
        if relative && let Some(s) = self.last_match {
            return s.group;
        }
        self.payload()
    }

    /// Adds a check to `group`, or to the selected base64 data.
    pub(crate) fn add(&mut self, group: usize, check: BufferCheck) -> Spot {
        let base64 = self.base64.filter(|b| b.0 == group).map(|b| b.1);
        let matches = !matches!(
            check,
            BufferCheck::Bsize(_)
                | BufferCheck::Entropy { .. }
                | BufferCheck::Asn1(_)
                | BufferCheck::Dataset(_)
                | BufferCheck::DataRep(_)
                | BufferCheck::Lua(_)
                | BufferCheck::Judge(_)
                | BufferCheck::Other { .. }
        );
        let content = matches!(check, BufferCheck::Content(_));
        let index = match self.list(group, base64) {
            Some(l) => {
                l.push(check);
                l.len() - 1
            }
            None => 0,
        };
        let spot = Spot { group, base64, index };
        if matches {
            self.last_match = Some(spot);
        }
        if content {
            self.last_content = Some(spot);
            self.last = Last::Content(spot);
        } else {
            self.last = Last::Other;
        }
        spot
    }

    /// The checks of a group, or of base64 data in it.
    pub(crate) fn list(&mut self, group: usize, base64: Option<usize>) -> Option<&mut Vec<BufferCheck>> {
        let checks = &mut self.groups.get_mut(group)?.checks.checks;
        match base64 {
            None => Some(checks),
            Some(i) => match checks.get_mut(i)? {
                BufferCheck::Base64 { data, .. } => Some(data),
                _ => None,
            },
        }
    }

    /// The content at a position.
    pub(crate) fn content_at(&mut self, s: Spot) -> Option<&mut Content> {
        match self.list(s.group, s.base64)?.get_mut(s.index)? {
            BufferCheck::Content(c) => Some(c),
            _ => None,
        }
    }

    /// The content that a modifier refers to: the last one of the selected sticky buffer, otherwise the last of all.
    pub(crate) fn modified(&mut self) -> Option<(Spot, &mut Content)> {
        let s = self.last_content?;
        if self.current.is_some_and(|c| c != s.group) {
            return None;
        }
        let here = self.base64.map(|b| b.1);
        if self.current.is_some() && here != s.base64 {
            return None;
        }
        self.content_at(s).map(|c| (s, c))
    }

    /// A variable that `group` can use: it must be set in a buffer that is inspected at the same stage, packet or
    /// transaction.
    pub(crate) fn variable(&self, name: &str, group: Option<usize>) -> Option<u8> {
        let app = |g: usize| self.groups.get(g).is_some_and(|g| g.checks.app);
        let at = self.variables.iter().position(|v| v.0 == name && group.is_none_or(|g| app(v.1) == app(g)))?;
        u8::try_from(at).ok()
    }

    /// Defines a variable. A second definition with the same name and buffer gets the same index.
    pub(crate) fn define(&mut self, name: &str, group: usize, module: &'static str) -> Result<u8, Fail> {
        if let Some(v) = self.variables.iter().position(|v| v.0 == name && v.1 == group) {
            return Ok(v as u8);
        }
        if self.variables.len() >= VARIABLES_MAX {
            return fail(module, format!("a rule may define at most {VARIABLES_MAX} variables"));
        }
        self.variables.push((name.to_owned(), group));
        Ok((self.variables.len() - 1) as u8)
    }

    /// Moves the last content of the payload to another buffer (old-style modifiers).
    pub(crate) fn move_last_content(&mut self, to: usize) {
        let Some(s) = self.last_content else { return };
        let Some(list) = self.list(s.group, s.base64) else { return };
        if s.index >= list.len() {
            return;
        }
        let moved = list.remove(s.index);
        // Checks after it moved up by one.
        for b in [&mut self.base64_open, &mut self.base64].into_iter().flatten() {
            if b.0 == s.group && b.1 > s.index {
                b.1 -= 1;
            }
        }
        let Some(list) = self.list(to, None) else { return };
        list.push(moved);
        let spot = Spot { group: to, base64: None, index: list.len() - 1 };
        self.last_content = Some(spot);
        self.last_match = Some(spot);
        self.last = Last::Content(spot);
    }
}
