//! Scripts in rules: `lua` and `luaxform`.
//!
//! Compilation loads each script once, in a temporary state. The result of its `init` says what the rule inspects, which
//! decides the rule's kind. Each worker then creates a state for each rule with a script, and one for each script of a
//! transform (`worker`). A script runs when everything else of the rule holds; a [`ScriptView`] (`host`) answers its
//! queries. Scripts see packet, flow and transaction as they are. Flow variables that a script sets are stored after it
//! returns.

mod host;
mod worker;

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use margay_flow::Direction;
use margay_lua::{Host, HostError, Log, Mode, Needs, Script, Settings, Source, Subject, Value};
use margay_rules::ast::{Action, BufferCheck, Check, LuaAt, LuaCheck, Protocol as RuleProtocol, Rule, Transform};

use crate::config::LuaConfig;
use crate::facts::RuleFacts;
use crate::names::Names;
use crate::refused::Refused;

pub use host::{FileView, RuleInfo, ScriptView, ThreadInfo, Write};
pub(crate) use worker::{Loaded, Teller};
pub use worker::{LuaCounters, TransformScripts};

/// Where scripts log messages, and what they may know of the engine.
#[derive(Clone)]
pub struct ScriptEnvironment {
    /// Receives messages.
    pub log: Log,
    /// The log folder.
    pub log_path: Option<String>,
}

impl Default for ScriptEnvironment {
    /// An environment that discards messages.
    fn default() -> Self {
        ScriptEnvironment { log: Arc::new(|_, _| {}), log_path: None }
    }
}

impl fmt::Debug for ScriptEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptEnvironment").field("log_path", &self.log_path).finish_non_exhaustive()
    }
}

/// The meaning of a name in `init`'s table: buffer, direction and protocol.
#[derive(Debug)]
pub(crate) struct Need {
    pub(crate) name: &'static str,
    pub(crate) protocol: &'static str,
    /// Name of the buffer in rules; empty if the script queries the transaction itself.
    pub(crate) buffer: &'static str,
    pub(crate) dir: Option<Direction>,
    /// The question to the transaction that gives the value, instead of the buffer: the part of a body that rules have
    /// inspected may be gone from the buffer.
    pub(crate) asks: &'static str,
}

/// A body as far as it arrived.
const fn body(name: &'static str, buffer: &'static str, asks: &'static str, dir: Option<Direction>) -> Need {
    Need { asks, ..need(name, "http", buffer, dir) }
}

const fn need(name: &'static str, protocol: &'static str, buffer: &'static str, dir: Option<Direction>) -> Need {
    Need { name, protocol, buffer, dir, asks: "" }
}

const REQUEST: Option<Direction> = Some(Direction::ToServer);
const RESPONSE: Option<Direction> = Some(Direction::ToClient);

/// Names that refer to transactions.
const NEEDS: &[Need] = &[
    need("http.uri", "http", "http.uri", REQUEST),
    need("http.uri.raw", "http", "http.uri.raw", REQUEST),
    need("http.request_line", "http", "http.request_line", REQUEST),
    need("http.request_headers", "http", "http.header", REQUEST),
    need("http.request_headers.raw", "http", "http.header.raw", REQUEST),
    need("http.request_cookie", "http", "http.cookie", REQUEST),
    need("http.request_user_agent", "http", "http.user_agent", REQUEST),
    body("http.request_body", "http.request_body", "request_body", REQUEST),
    need("http.response_line", "http", "http.response_line", RESPONSE),
    need("http.response_headers", "http", "http.header", RESPONSE),
    need("http.response_headers.raw", "http", "http.header.raw", RESPONSE),
    need("http.response_cookie", "http", "http.cookie", RESPONSE),
    body("http.response_body", "http.response_body", "response_body", RESPONSE),
    need("dns.rrname", "dns", "dns.queries.rrname", None),
    need("dns.request", "dns", "", REQUEST),
    need("dns.response", "dns", "", RESPONSE),
    need("tls", "tls", "", None),
    need("ssh", "ssh", "", None),
    need("smtp", "smtp", "", None),
    need("dnp3", "dnp3", "", None),
    // TLS and QUIC.
    need("ja3", "", "ja3.hash", REQUEST),
    need("ja3s", "", "ja3s.hash", RESPONSE),
];

pub(crate) fn find_need(name: &str) -> Option<&'static Need> {
    NEEDS.iter().find(|n| n.name == name)
}

/// Whether a rule has a script.
fn has_script(rule: &Rule) -> bool {
    let of_buffers = |b: &BufferCheck| matches!(b, BufferCheck::Lua(_));
    rule.checks.iter().any(|c| matches!(c, Check::Lua(_)))
        || rule
            .buffers
            .iter()
            .any(|b| b.checks.iter().any(of_buffers) || b.transforms.iter().any(|t| matches!(t, Transform::Lua(_))))
}

/// A script of a rule, from which workers create states.
#[derive(Debug)]
pub(crate) struct RuleScript {
    source: Source,
    variables: Vec<String>,
}

/// All scripts of the rules.
#[derive(Debug)]
pub(crate) struct RuleScripts {
    allow: bool,
    pub(crate) settings: Settings,
    pub(crate) rules: Vec<RuleScript>,
    pub(crate) transforms: Vec<Source>,
    numbers: HashMap<PathBuf, u32>,
    sources: HashMap<PathBuf, Source>,
    names: Vec<String>,
    /// Whether a script needs JA3.
    pub(crate) ja3: bool,
    /// Whether a script needs HASSH.
    pub(crate) hassh: bool,
}

impl RuleScripts {
    pub(crate) fn new(config: &LuaConfig, environment: &ScriptEnvironment) -> Self {
        RuleScripts {
            allow: config.allow,
            settings: Settings {
                limits: config.limits,
                mode: if config.restricted { Mode::Open } else { Mode::Sandbox },
                log: environment.log.clone(),
                log_path: environment.log_path.clone(),
            },
            rules: Vec::new(),
            transforms: Vec::new(),
            numbers: HashMap::new(),
            sources: HashMap::new(),
            names: Vec::new(),
            ja3: false,
            hassh: false,
        }
    }

    /// Assigns numbers to the variable names that scripts registered.
    pub(crate) fn intern(&self, names: &mut Names) {
        for name in &self.names {
            names.intern(name);
        }
    }

    /// Loads the scripts of `rule` and stores what their `init` asks for in the rule.
    ///
    /// # Errors
    /// If a script is missing, does not load, or asks for unavailable data; with the script's file and line.
    pub(crate) fn load(&mut self, rule: &mut Rule, folder: Option<&Path>) -> Result<(), String> {
        if !has_script(rule) {
            return Ok(());
        }
        if !self.allow {
            return Err("Lua rules disabled by security configuration: security.lua.allow-rules".into());
        }
        let beside = Path::new(&*rule.place.file).parent().unwrap_or(Path::new("")).to_owned();
        let app = matches!(rule.protocol, RuleProtocol::App(_));
        for c in &mut rule.checks {
            if let Check::Lua(c) = c {
                self.check(c, &beside, folder, false)?;
                // In a rule on a protocol without packet checks, this means the transaction.
                if c.at == LuaAt::Packet && app && c.buffers.is_empty() {
                    c.at = LuaAt::Transaction;
                } else if c.buffers.first() == Some(&PACKET) {
                    c.buffers.clear();
                }
            }
        }
        for b in &mut rule.buffers {
            for c in &mut b.checks {
                if let BufferCheck::Lua(c) = c {
                    self.check(c, &beside, folder, true)?;
                }
            }
            for t in &mut b.transforms {
                if let Transform::Lua(t) = t {
                    let path = find(&t.script, &beside, folder);
                    t.number = Some(match self.numbers.get(&path) {
                        Some(n) => *n,
                        None => {
                            let source = self.source(&path)?;
                            let mut script = Script::load(&source, &self.settings).map_err(|e| e.to_string())?;
                            script.prepare_transform().map_err(|e| e.to_string())?;
                            let n = u32::try_from(self.transforms.len()).map_err(|_| "too many scripts")?;
                            self.transforms.push(source);
                            self.numbers.insert(path, n);
                            n
                        }
                    });
                }
            }
        }
        Ok(())
    }

    /// A script's text, read once.
    fn source(&mut self, path: &Path) -> Result<Source, String> {
        if let Some(s) = self.sources.get(path) {
            return Ok(s.clone());
        }
        let source = Source::load(path)?;
        self.sources.insert(path.to_owned(), source.clone());
        Ok(source)
    }

    fn check(
        &mut self,
        check: &mut LuaCheck,
        beside: &Path,
        folder: Option<&Path>,
        of_buffer: bool,
    ) -> Result<(), String> {
        let source = self.source(&find(&check.script, beside, folder))?;
        let script = RuleScript { source, variables: check.variables.clone() };
        let (_, needs) = script.start(&self.settings).map_err(|e| e.to_string())?;
        self.wanted(check, &needs, of_buffer).map_err(|e| format!("{}: {e}", script.source.name))?;
        let registered = needs.registered;
        self.names.extend(registered.flowvars.into_iter().chain(registered.flowints));
        self.hassh |= registered.hassh;
        self.ja3 |= registered.ja3 || check.buffers.iter().any(|b| b.starts_with("ja3"));
        check.number = Some(u32::try_from(self.rules.len()).map_err(|_| "too many scripts")?);
        self.rules.push(script);
        Ok(())
    }

    /// Stores the needs of `init` in the check.
    fn wanted(&self, check: &mut LuaCheck, needs: &Needs, of_buffer: bool) -> Result<(), String> {
        if let Some((name, value)) = needs.texts.first() {
            return Err(format!("init() has \"{value}\" for {name}: a script of a rule says what it needs with true"));
        }
        check.at = LuaAt::Packet;
        check.buffers.clear();
        for name in &needs.wanted {
            match name.as_str() {
                "buffer" if of_buffer => {}
                "buffer" => return Err("init() asks for \"buffer\": the rule has no sticky buffer before lua".into()),
                "packet" => check.buffers.push(PACKET),
                "payload" => {
                    check.at = LuaAt::Payload;
                    check.buffers.push(PACKET);
                }
                "stream" => {
                    check.at = LuaAt::Stream;
                    check.buffers.push(PACKET);
                }
                name => match find_need(name) {
                    Some(need) => check.buffers.push(need.name),
                    None => return Err(format!("unsupported data type {name}")),
                },
            }
        }
        let wants = |name: &str| needs.wanted.iter().any(|w| w == name);
        (check.packet, check.payload) = (wants("packet"), wants("payload"));
        if check.buffers.iter().any(|b| *b != PACKET) {
            check.buffers.retain(|b| *b != PACKET);
            check.at = LuaAt::Transaction;
        }
        Ok(())
    }
}

/// The name for packet data among the names that a script may ask for.
const PACKET: &str = "packet";

/// The path of a script: next to the rules, else in the rule folder.
fn find(name: &str, beside: &Path, folder: Option<&Path>) -> PathBuf {
    let near = beside.join(name);
    match folder {
        Some(folder) if !near.exists() => folder.join(name),
        _ => near,
    }
}

/// The host while `init` runs: it only knows the rule's variables.
struct Variables<'a>(&'a [String]);

impl Host for Variables<'_> {
    fn ask(&mut self, subject: Subject, what: &str, args: &[Value<'_>]) -> Result<Value<'_>, HostError> {
        let name = args.first().and_then(Value::as_bytes).unwrap_or(&[]);
        match (subject, what) {
            (Subject::ByteVar, "map") if self.0.iter().any(|v| v.as_bytes() == name) => Ok(Value::Bool(true)),
            (Subject::ByteVar, "map") => {
                let name = String::from_utf8_lossy(name);
                Err(HostError::Wrong(format!(
                    "unknown byte_extract or byte_math variable {name}: the rule has none of that name before lua"
                )))
            }
            _ => Err(HostError::Absent("there is no traffic yet".into())),
        }
    }
}

impl RuleScript {
    /// Creates a state with the script, ready for calls, and the script's needs.
    pub(crate) fn start(&self, settings: &Settings) -> Result<(Script, Needs), margay_lua::LuaError> {
        let mut host = Variables(&self.variables);
        let mut script = Script::load(&self.source, settings)?;
        let needs = script.init(&mut host, "match")?;
        script.call_if_there(&mut host, "thread_init")?;
        Ok((script, needs))
    }
}

/// A rule's use of a script.
#[derive(Debug)]
pub(crate) struct Use {
    pub(crate) script: u32,
    pub(crate) negated: bool,
    /// Names of transaction data that the script receives.
    pub(crate) needs: Box<[&'static Need]>,
    /// When the script is called, and the stream data that it receives.
    pub(crate) at: LuaAt,
    /// Whether the script receives the packet.
    pub(crate) packet: bool,
    /// Whether the script receives the packet's payload.
    pub(crate) payload: bool,
    pub(crate) of_buffer: bool,
    /// The index of the rule's header that the script inspects.
    pub(crate) header: Option<u16>,
    pub(crate) variables: Box<[String]>,
    /// The script as the rule writes it.
    pub(crate) shown: String,
}

/// A rule's uses of scripts.
#[derive(Debug)]
pub(crate) struct RuleLua {
    pub(crate) uses: Box<[Use]>,
    pub(crate) info: RuleInfo,
    /// Whether the scripts run with the steps of a transaction.
    pub(crate) of_tx: bool,
    /// Where the scripts run, if not on a transaction.
    pub(crate) at: LuaAt,
}

impl RuleLua {
    /// The script uses of `rule`; `None` if there are none.
    pub(crate) fn compile(rule: &Rule, of_tx: bool) -> Result<Option<RuleLua>, Refused> {
        let mut uses = Vec::new();
        let new = |c: &LuaCheck, of_buffer, header| match c.number {
            Some(script) => Ok(Use {
                script,
                negated: c.negated,
                packet: c.packet,
                payload: c.payload,
                needs: c.buffers.iter().filter_map(|b| find_need(b)).collect(),
                at: c.at,
                of_buffer,
                header,
                variables: c.variables.clone().into(),
                shown: crate::describe::script(c),
            }),
            None => Err(Refused::Unsupported("lua: the script was not loaded".into())),
        };
        for c in &rule.checks {
            if let Check::Lua(c) = c {
                uses.push(new(c, false, None)?);
            }
        }
        let mut headers = 0;
        for b in &rule.buffers {
            let header = !b.app && !crate::kind::is_payload(&b.buffer);
            for c in &b.checks {
                if let BufferCheck::Lua(c) = c {
                    uses.push(new(c, true, header.then_some(headers))?);
                }
            }
            headers += u16::from(header);
        }
        if uses.is_empty() {
            return Ok(None);
        }
        let at = uses.iter().map(|u| u.at).find(|a| matches!(a, LuaAt::Payload | LuaAt::Stream));
        Ok(Some(RuleLua {
            uses: uses.into_boxed_slice(),
            info: RuleInfo::of_tree(rule),
            of_tx: of_tx && !rule.buffers.iter().any(crate::kind::is_frame),
            at: at.unwrap_or_default(),
        }))
    }

    /// Whether the scripts need data: payload or stream.
    pub(crate) fn asks_data(&self) -> bool {
        !self.of_tx && matches!(self.at, LuaAt::Payload | LuaAt::Stream)
    }
}

/// The numbers in [`RuleLua`] of the scripts that inspect buffer number `n` of a rule.
pub(crate) fn of_buffer(rule: &Rule, n: usize) -> Range<u16> {
    let scripts = |checks: &[BufferCheck]| checks.iter().filter(|c| matches!(c, BufferCheck::Lua(_))).count();
    let of_checks = rule.checks.iter().filter(|c| matches!(c, Check::Lua(_))).count();
    let before: usize = of_checks + rule.buffers.iter().take(n).map(|b| scripts(&b.checks)).sum::<usize>();
    let here = rule.buffers.get(n).map_or(0, |b| scripts(&b.checks));
    let number = |n: usize| u16::try_from(n).unwrap_or(u16::MAX);
    number(before)..number(before + here)
}

const fn action_name(action: Action) -> &'static str {
    match action {
        Action::Alert => "alert",
        Action::Pass => "pass",
        Action::Drop => "drop",
        Action::Reject => "reject",
        Action::RejectDst => "rejectdst",
        Action::RejectBoth => "rejectboth",
        Action::Config => "config",
        Action::Accept => "accept",
    }
}

impl RuleInfo {
    /// The facts of a rule that scripts can read.
    pub fn of(rule: &RuleFacts) -> RuleInfo {
        RuleInfo {
            sid: rule.sid,
            gid: rule.gid,
            rev: rule.rev,
            msg: rule.msg.to_string(),
            action: action_name(rule.action),
            class: rule.class.as_ref().map(|c| (c.name.to_string(), c.description.to_string())),
            priority: rule.priority,
        }
    }

    /// The facts of a rule that is being compiled.
    fn of_tree(rule: &Rule) -> RuleInfo {
        RuleInfo {
            sid: rule.sid,
            gid: rule.gid,
            rev: rule.rev,
            msg: rule.msg.clone(),
            action: action_name(rule.action),
            class: rule.class.as_ref().map(|c| (c.name.to_string(), c.description.to_string())),
            priority: rule.priority,
        }
    }
}

/// Script number `n` of a rule, in the order of [`RuleLua`].
pub(crate) fn nth(rule: &Rule, n: u16) -> Option<&LuaCheck> {
    let of_checks = rule.checks.iter().filter_map(|c| if let Check::Lua(l) = c { Some(&**l) } else { None });
    let of_buffers = rule
        .buffers
        .iter()
        .flat_map(|b| &b.checks)
        .filter_map(|c| if let BufferCheck::Lua(l) = c { Some(&**l) } else { None });
    of_checks.chain(of_buffers).nth(usize::from(n))
}
