//! Rule files: lines, comments, continuations, duplicates; and the parsing of one rule.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::address::Addresses;
use crate::ast::{Action, ActionScope, Arrow, Effect, Place, Protocol, Rule};
use crate::builder::{Builder, Last, Seen};
use crate::context::Context;
use crate::error::{ConfigProblem, Fail, Message, RuleError, RuleWarning, Severity, fail};
use crate::keywords::{self, requires_unmet};
use crate::lexer::{self, Parts};
use crate::port::Ports;
use crate::{firewall, flowbits, protocol, validate};

/// Longest rule in bytes, with continuation lines joined.
pub const RULE_BYTES_MAX: usize = 64 * 1024;
/// Limit of the errors with text, and of the warnings, that one loader keeps. Further errors have no text, and further
/// warnings are only counted.
const MESSAGES_MAX: usize = 100_000;

/// A rule that was skipped because its `requires` is not met; this is no error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// The rule's place.
    pub place: Place,
    /// The unmet requirement: `the running Suricata version 8.0.6 is less than 10.0.0`.
    pub reason: String,
}

/// The result of loading rule files.
#[derive(Debug, Default)]
pub struct Loaded {
    /// Loaded rules, in file order.
    pub rules: Vec<Rule>,
    /// Valid rules that need keywords missing from this build ([`Rule::missing`]).
    pub set_aside: Vec<Rule>,
    /// Rejected rules with the messages to log, including silent ones.
    pub errors: Vec<RuleError>,
    /// Warnings about loaded rules.
    pub warnings: Vec<RuleWarning>,
    /// Rules whose requirements are not met.
    pub skipped: Vec<Skipped>,
    /// Files read.
    pub files: usize,
    /// Rules replaced by a higher revision.
    pub replaced: usize,
    /// Messages dropped because there were too many.
    pub dropped_messages: u64,
}

impl Loaded {
    /// The number of rules that failed: errors that are not silent.
    pub fn failed(&self) -> usize {
        self.errors.iter().filter(|e| !e.silent).count()
    }

    /// The number of rules without an error: loaded and set aside.
    pub fn accepted(&self) -> usize {
        self.rules.len() + self.set_aside.len()
    }
}

/// The position of the rule with a generator and signature id.
#[derive(Debug, Clone, Copy)]
struct Slot {
    aside: bool,
    index: usize,
    rev: u32,
}

/// An additional check of a rule, which returns the errors to log if it fails.
type Check<'c> = dyn FnMut(&Rule) -> Result<(), Vec<Message>> + 'c;

struct Checker<'c>(Box<Check<'c>>);

impl fmt::Debug for Checker<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Checker")
    }
}

/// Loads rule files in sequence into one set.
#[derive(Debug)]
pub struct Loader<'c> {
    ctx: &'c Context,
    addresses: Addresses,
    ports: Ports,
    loaded: Loaded,
    known: HashMap<(u32, u32), Slot>,
    warned_classes: Vec<String>,
    check: Option<Checker<'c>>,
    /// Whether the current file has firewall rules.
    firewall: bool,
}

impl<'c> Loader<'c> {
    /// A loader without rules.
    pub fn new(ctx: &'c Context) -> Self {
        Loader {
            ctx,
            addresses: Addresses::default(),
            ports: Ports::default(),
            loaded: Loaded::default(),
            known: HashMap::new(),
            warned_classes: Vec::new(),
            check: None,
            firewall: false,
        }
    }

    /// Adds a check that each syntactically valid rule must pass. It can test whether files that the rule names exist. A
    /// rule that it rejects fails with the returned messages.
    #[must_use]
    pub fn with_check(mut self, check: impl FnMut(&Rule) -> Result<(), Vec<Message>> + 'c) -> Self {
        self.check = Some(Checker(Box::new(check)));
        self
    }

    /// Adds the rules of a file. Fails only if it cannot be read.
    pub fn load_file(&mut self, path: &Path) -> io::Result<()> {
        let text = std::fs::read(path)?;
        self.load_bytes(&text, &path.to_string_lossy());
        Ok(())
    }

    /// Adds the firewall rules of a file. Fails only if it cannot be read.
    pub fn load_firewall_file(&mut self, path: &Path) -> io::Result<()> {
        let text = std::fs::read(path)?;
        self.load_firewall_bytes(&text, &path.to_string_lossy());
        Ok(())
    }

    /// Adds the firewall rules of a text.
    pub fn load_firewall_bytes(&mut self, text: &[u8], name: &str) {
        self.firewall = true;
        self.load_bytes(text, name);
        self.firewall = false;
    }

    /// Adds the rules of a text; places show `name` as the file.
    pub fn load_str(&mut self, text: &str, name: &str) {
        self.load_bytes(text.as_bytes(), name);
    }

    /// Adds the rules of a text that need not be UTF-8.
    pub fn load_bytes(&mut self, text: &[u8], name: &str) {
        self.loaded.files += 1;
        let file: Arc<str> = Arc::from(name);
        let mut joined: Vec<u8> = Vec::new();
        let mut start = 0u32;
        for (n, line) in text.split(|&b| b == b'\n').enumerate() {
            let number = u32::try_from(n + 1).unwrap_or(u32::MAX);
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let fresh = joined.is_empty();
            if fresh {
                start = number;
                match line.first() {
                    None | Some(b'#') => continue,
                    // As in Suricata: the rest of a rule of which only the first line is a comment. A rule that begins with white
                    // space counts.
                    Some(&b) if lexer::is_space(b) && !begins_rule(line) => continue,
                    Some(_) => {}
                }
            }
            // Blanks behind the backslash are invisible to the rule's author.
            if let Some(head) = line.trim_ascii_end().strip_suffix(b"\\") {
                // Keeps up to one byte over the limit, so that the end still detects the excess.
                if joined.len() <= RULE_BYTES_MAX {
                    joined.extend_from_slice(head);
                    if joined.is_empty() {
                        joined.push(b' ');
                    }
                }
                continue;
            }
            if fresh {
                self.rule(line.trim_ascii(), &file, start);
            } else {
                if joined.len() <= RULE_BYTES_MAX {
                    joined.extend_from_slice(line);
                }
                let whole = std::mem::take(&mut joined);
                self.rule(whole.trim_ascii(), &file, start);
            }
        }
        if !joined.is_empty() {
            self.rule(joined.trim_ascii(), &file, start);
        }
    }

    /// Returns the set.
    pub fn finish(self) -> Loaded {
        let mut loaded = self.loaded;
        loaded.rules.retain(|r| r.sid != 0);
        loaded.set_aside.retain(|r| r.sid != 0);
        let mut unset = flowbits::never_set(&loaded.rules, &loaded.set_aside);
        let room = MESSAGES_MAX.saturating_sub(loaded.warnings.len());
        loaded.dropped_messages += unset.len().saturating_sub(room) as u64;
        unset.truncate(room);
        loaded.warnings.append(&mut unset);
        loaded
    }

    fn rule(&mut self, bytes: &[u8], file: &Arc<str>, line: u32) {
        if bytes.is_empty() {
            return;
        }
        let shown = bytes.get(..bytes.len().min(RULE_BYTES_MAX)).unwrap_or(bytes);
        let text: Arc<str> = Arc::from(String::from_utf8_lossy(shown));
        let place = |at: usize| {
            // The column counts characters, not bytes.
            let before = bytes.iter().take(at).filter(|b| **b & 0xc0 != 0x80).count();
            Place { file: file.clone(), line, column: u32::try_from(before + 1).unwrap_or(u32::MAX) }
        };
        let mut at = 0;
        let mut warnings = Vec::new();
        let result = if bytes.len() > RULE_BYTES_MAX {
            fail("detect", format!("rule is longer than {RULE_BYTES_MAX} bytes"))
        } else if self.loaded.accepted() >= self.ctx.max_rules {
            fail(
                "detect",
                format!(
                    "more than {} rules: this one and those after it are left out (detect.max-rules)",
                    self.ctx.max_rules
                ),
            )
        } else {
            self.parse(bytes, &text, place(0), &mut at, &mut warnings)
        };
        let result = result.and_then(|r| match r {
            Outcome::Rule(rule) => match &mut self.check {
                Some(check) if rule.missing.is_empty() => {
                    check.0(&rule).map_err(|messages| Fail { messages, silent: false })?;
                    self.keep(*rule, &mut warnings)
                }
                _ => self.keep(*rule, &mut warnings),
            },
            Outcome::Skip(reason) => {
                self.loaded.skipped.push(Skipped { place: place(0), reason });
                Ok(())
            }
        });
        for message in &warnings {
            self.warn(message.clone(), place(at));
        }
        if let Err(mut f) = result {
            if self.loaded.errors.len() >= MESSAGES_MAX {
                self.loaded.dropped_messages += 1;
                // The rule still counts as failed, but its messages and its text are dropped.
                f.messages.clear();
                self.loaded.errors.push(RuleError {
                    place: place(at),
                    messages: Vec::new(),
                    text: Arc::from(""),
                    silent: f.silent,
                    firewall: self.firewall,
                });
                return;
            }
            if !f.silent {
                f.messages.push(Message {
                    severity: Severity::Error,
                    module: "detect",
                    text: format!("error parsing signature \"{text}\" from file {file} at line {line}"),
                });
            }
            self.loaded.errors.push(RuleError {
                place: place(at),
                messages: f.messages,
                text,
                silent: f.silent,
                firewall: self.firewall,
            });
        }
    }

    fn warn(&mut self, message: Message, place: Place) {
        // Warn only once about an unknown class.
        if message.module == "detect-classtype"
            && let Some((_, rest)) = message.text.split_once("unknown classtype: \"")
            && let Some((class, _)) = rest.split_once('"')
        {
            if self.warned_classes.iter().any(|c| c == class) {
                return;
            }
            if self.warned_classes.len() < 1024 {
                self.warned_classes.push(class.to_owned());
            }
        }
        if self.loaded.warnings.len() >= MESSAGES_MAX {
            self.loaded.dropped_messages += 1;
            return;
        }
        self.loaded.warnings.push(RuleWarning { place, message });
    }

    /// Adds a rule, unless one with the same id and the same or a higher revision exists.
    fn keep(&mut self, rule: Rule, warnings: &mut Vec<Message>) -> Result<(), Fail> {
        const M: &str = "detect-parse";
        let key = (rule.gid, rule.sid);
        if let Some(old) = self.known.get(&key).copied() {
            if rule.rev <= old.rev {
                return fail(M, format!("Duplicate signature \"{}\"", rule.text));
            }
            warnings.push(Message {
                severity: Severity::Warning,
                module: M,
                text: format!(
                    "Signature with newer revision, so the older sig replaced by this new signature \"{}\"",
                    rule.text
                ),
            });
            let list = if old.aside { &mut self.loaded.set_aside } else { &mut self.loaded.rules };
            // The slot stays, so that other indexes remain valid; `finish` removes it.
            if let Some(r) = list.get_mut(old.index) {
                r.sid = 0;
            }
            self.loaded.replaced += 1;
        }
        let aside = !rule.missing.is_empty();
        let rev = rule.rev;
        let list = if aside { &mut self.loaded.set_aside } else { &mut self.loaded.rules };
        list.push(rule);
        self.known.insert(key, Slot { aside, index: list.len() - 1, rev });
        Ok(())
    }

    fn parse(
        &mut self,
        bytes: &[u8],
        text: &Arc<str>,
        place: Place,
        at: &mut usize,
        warnings: &mut Vec<Message>,
    ) -> Result<Outcome, Fail> {
        let parts = lexer::split(bytes)?;
        // Check `requires` first: the rest may be invalid for this version.
        let mut unmet = None;
        for o in parts.options.iter().filter(|o| o.name == b"requires") {
            *at = o.at;
            let value = String::from_utf8_lossy(o.value.unwrap_or_default());
            let problem = requires_unmet(&value, self.ctx)?;
            unmet = unmet.or(problem);
        }
        if let Some(reason) = unmet {
            return Ok(Outcome::Skip(reason));
        }
        *at = 0;
        let rule = self.header(&parts, text, place)?;
        let mut b = Builder {
            ctx: self.ctx,
            rule,
            warnings: Vec::new(),
            groups: Vec::new(),
            current: None,
            base64: None,
            base64_open: None,
            last: Last::Nothing,
            last_content: None,
            last_match: None,
            variables: Vec::new(),
            protocols: None,
            seen: Seen::default(),
            from_header: false,
            packet: false,
            to_server: false,
            to_client: false,
        };
        if let Protocol::App(name) = &b.rule.protocol {
            let name = name.clone();
            let group = protocol::group(&name).unwrap_or_default();
            b.from_header = true;
            keywords::need_protocol(&mut b, group, &name);
            b.restrict(group)?;
        }
        firewall::header(&b.rule)?;
        // Parse the sid first: messages of other keywords show it.
        if let Some(v) = parts.options.iter().find(|o| o.name == b"sid").and_then(|o| o.value)
            && let Ok(n) = String::from_utf8_lossy(v).parse()
        {
            b.rule.sid = n;
        }
        for o in &parts.options {
            *at = o.at;
            let r = keywords::apply(&mut b, o);
            if r.is_err() {
                warnings.append(&mut b.warnings);
            }
            r?;
        }
        *at = 0;
        let r = validate::finish(&mut b);
        warnings.append(&mut b.warnings);
        r?;
        Ok(Outcome::Rule(Box::new(b.rule)))
    }

    fn header(&mut self, p: &Parts<'_>, text: &Arc<str>, place: Place) -> Result<Rule, Fail> {
        const M: &str = "detect-parse";
        let s = |b| String::from_utf8_lossy(b);
        let (action, effects) = actions(&s(p.action))?;
        let named = s(p.protocol);
        let (name, hook) = match named.split_once(':') {
            Some((n, h)) => (n, Some(h.to_owned())),
            None => (named.as_ref(), None),
        };
        let Some(protocol) = protocol::parse(name) else {
            return fail(
                M,
                format!(
                    "protocol \"{name}\" cannot be used in a signature.  Either detection for this protocol is not yet \
                     supported OR detection has been disabled for protocol through the yaml option \
                     app-layer.protocols.{name}.detection-enabled"
                ),
            );
        };
        let is_hook = |h: &str| {
            // `<name`: any state before this one.
            let h = h.strip_prefix('<').unwrap_or(h);
            !h.is_empty() && h.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-'))
        };
        if hook.as_ref().is_some_and(|h| !is_hook(h)) {
            return fail(M, format!("protocol \"{name}\" has an invalid hook \"{}\"", hook.unwrap_or_default()));
        }
        // The hooks of application protocols are known where rules are compiled.
        if let Some(h) = &hook
            && !matches!(protocol, Protocol::App(_))
            && !matches!(h.as_str(), "all" | "flow_start" | "pre_flow" | "pre_stream")
        {
            return fail(M, format!("there is no hook \"{h}\" for packets: all, flow_start, pre_flow, pre_stream"));
        }
        let arrow = match p.arrow {
            b"->" => Arrow::Forward,
            b"<>" => Arrow::Both,
            b"=>" => Arrow::Transaction,
            a => {
                return fail(
                    M,
                    format!("\"{}\" is not a valid direction modifier, \"->\" and \"<>\" are supported.", s(a)),
                );
            }
        };
        let ctx = self.ctx;
        Ok(Rule {
            action,
            protocol,
            hook,
            src: self.addresses.parse(&s(p.src), &ctx.addresses)?,
            sport: self.ports.parse(&s(p.sport), &ctx.ports)?,
            arrow,
            dst: self.addresses.parse(&s(p.dst), &ctx.addresses)?,
            dport: self.ports.parse(&s(p.dport), &ctx.ports)?,
            sid: 0,
            gid: 1,
            rev: 0,
            msg: String::new(),
            class: None,
            priority: 3,
            target: None,
            noalert: false,
            force_alert: false,
            checks: Vec::new(),
            buffers: Vec::new(),
            effects,
            thresholds: Vec::new(),
            prefilter: None,
            missing: Vec::new(),
            firewall: self.firewall,
            place,
            text: text.clone(),
        })
    }
}

/// Whether the first word of a line is an action.
fn begins_rule(line: &[u8]) -> bool {
    let line = line.trim_ascii_start();
    let word = line.split(|b| lexer::is_space(*b)).next().unwrap_or_default();
    std::str::from_utf8(word).is_ok_and(|w| !w.is_empty() && actions(w).is_ok())
}

/// The action of a header, and its parts if it has several actions or a scope.
fn actions(text: &str) -> Result<(Action, Vec<Effect>), Fail> {
    let bad = || Fail::new("detect-parse", format!("An invalid action \"{text}\" was given"));
    let lower = text.to_ascii_lowercase();
    let mut effects = Vec::new();
    for part in lower.split(',') {
        let (name, scope) = part.split_once(':').map_or((part, None), |(n, s)| (n, Some(s)));
        let action = match name {
            "alert" => Action::Alert,
            "pass" => Action::Pass,
            "drop" => Action::Drop,
            "reject" | "rejectsrc" => Action::Reject,
            "rejectdst" => Action::RejectDst,
            "rejectboth" => Action::RejectBoth,
            "config" => Action::Config,
            "accept" => Action::Accept,
            _ => return Err(bad()),
        };
        let scope = match scope {
            None => None,
            Some("packet") => Some(ActionScope::Packet),
            Some("flow") => Some(ActionScope::Flow),
            Some("hook") => Some(ActionScope::Hook),
            Some("tx") => Some(ActionScope::Transaction),
            Some(_) => return Err(bad()),
        };
        effects.push(Effect::Action { action, scope });
        if effects.len() > 4 {
            return Err(bad());
        }
    }
    match *effects.as_slice() {
        [Effect::Action { action, scope: None }] => Ok((action, Vec::new())),
        [Effect::Action { action, .. }, ..] => Ok((action, effects)),
        _ => Err(bad()),
    }
}

/// The result of parsing a rule's text.
enum Outcome {
    Rule(Box<Rule>),
    Skip(String),
}

/// Loads one text.
pub fn load_str(text: &str, name: &str, ctx: &Context) -> Loaded {
    load_bytes(text.as_bytes(), name, ctx)
}

/// Loads one text of arbitrary bytes. The fuzz target calls this.
pub fn load_bytes(text: &[u8], name: &str, ctx: &Context) -> Loaded {
    let mut l = Loader::new(ctx);
    l.load_bytes(text, name);
    l.finish()
}

/// A problem at a line of a configuration file.
pub(crate) fn problem(
    file: &Arc<str>,
    line: u32,
    severity: Severity,
    module: &'static str,
    text: String,
) -> ConfigProblem {
    ConfigProblem { place: Place { file: file.clone(), line, column: 1 }, message: Message { severity, module, text } }
}
