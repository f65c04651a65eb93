//! Lua scripts that write logs (`outputs: - lua:`). Each script has a Lua state of its own, and is called for what its `init`
//! requests.
//!
//! These scripts are the administrator's own programs, and may open files. Limits of instructions, memory and time apply, far
//! beyond what a log needs. If a script exceeds a limit or fails, it writes nothing for that event. The failure is counted,
//! logged once for each script, and the engine continues.

use std::path::Path;

use margay_app::Transaction;
use margay_app::file::FileEngine;
use margay_detect::Detect;
use margay_detect::checks::AppProtos;
use margay_detect::lua::{FileView, RuleInfo, ScriptView, ThreadInfo};
use margay_flow::{Direction, FlowCore};
use margay_json::time::Clock;
use margay_lua::{Limits, LuaError, Mode, Needs, NoHost, Script, Settings, Source, Value};
use margay_output::event::{Counter, DataEvent, EventType};
use margay_output::{Outputs, error, warning};
use margay_packet::{KeyedMap, Packet};

use super::app::FlowApp;
use crate::scripts::log_of;
use crate::settings::ScriptFiles;

/// Limit of the streams, and of the bodies, that streaming scripts follow at a time. Further ones are not delivered.
const STREAMS_MAX: usize = 65_536;

/// The occasion of a script's call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Occasion {
    Packet,
    Alert,
    Flow,
    Tx,
    File,
    Stream,
    Body,
    Stats,
}

/// One script.
#[derive(Debug)]
struct OutputScript {
    script: Script,
    occasion: Occasion,
    /// For transactions, the protocol, by the name of its Lua library.
    protocol: &'static str,
    told: bool,
}

/// All scripts. Most runs have none, and pay nothing.
#[derive(Debug)]
pub(crate) struct OutputScripts {
    list: Vec<OutputScript>,
    /// The occasions that have scripts, one bit each.
    occasions: u16,
    clock: Clock,
    /// A script uses JA3.
    pub(crate) ja3: bool,
    /// A script uses HASSH.
    pub(crate) hassh: bool,
    /// Calls that failed.
    pub(crate) errors: u64,
    /// Streams and bodies that were not delivered because there were too many.
    pub(crate) refused: u64,
    /// How far each stream was delivered, by flow and direction.
    streams: KeyedMap<(u64, usize), u64>,
    /// How far each body was delivered, by flow, transaction and direction.
    bodies: KeyedMap<(u64, u64, usize), u64>,
}

impl Default for OutputScripts {
    fn default() -> Self {
        OutputScripts {
            list: Vec::new(),
            occasions: 0,
            clock: Clock::utc(),
            ja3: false,
            hassh: false,
            errors: 0,
            refused: 0,
            streams: KeyedMap::default(),
            bodies: KeyedMap::default(),
        }
    }
}

/// The delivery state of a flow's stream and bodies, while the flow moves to another worker.
#[derive(Debug)]
pub(crate) struct HandedOn {
    streams: [Option<u64>; 2],
    /// By transaction and direction.
    bodies: Vec<(u64, usize, u64)>,
}

impl OutputScripts {
    /// Removes the delivery state of a flow that moves to another worker; `None` if nothing was delivered.
    pub(crate) fn flow_leaves(&mut self, id: u64) -> Option<HandedOn> {
        if self.streams.is_empty() && self.bodies.is_empty() {
            return None;
        }
        let streams = [0, 1].map(|dir| self.streams.remove(&(id, dir)));
        let of_flow = self.bodies.extract_if(|k, _| k.0 == id);
        Some(HandedOn { streams, bodies: of_flow.map(|(k, at)| (k.1, k.2, at)).collect() })
    }

    /// Adds the delivery state of a flow that arrives from another worker.
    pub(crate) fn flow_enters(&mut self, id: u64, handed_on: HandedOn) {
        for (dir, at) in handed_on.streams.into_iter().enumerate() {
            if let Some(at) = at {
                self.streams.insert((id, dir), at);
            }
        }
        for (tx, dir, at) in handed_on.bodies {
            self.bodies.insert((id, tx, dir), at);
        }
    }
}

/// The data of a packet and a flow that scripts can read.
#[derive(Clone, Copy, Default)]
pub(crate) struct ScriptContext<'a> {
    pub(crate) packet: Option<&'a Packet<'a>>,
    pub(crate) flow: Option<&'a FlowCore>,
    pub(crate) app: AppProtos,
}

impl<'a> ScriptContext<'a> {
    pub(crate) fn new(packet: Option<&'a Packet<'a>>, flow: Option<&'a FlowCore>, app: Option<&FlowApp>) -> Self {
        ScriptContext { packet, flow, app: app.map(protocols).unwrap_or_default() }
    }
}

/// The protocols of a flow.
pub(crate) fn protocols(app: &FlowApp) -> AppProtos {
    let s = &app.session;
    AppProtos { side: s.side, flow: s.proto, original: s.original }
}

/// The occasion that a script's `init` requests.
fn occasion(needs: &Needs) -> Result<(Occasion, &'static str), String> {
    const PROTOCOLS: [&str; 6] = ["http", "dns", "tls", "ssh", "smtp", "ntp"];
    for (name, _) in &needs.texts {
        if !["type", "protocol", "filter"].contains(&name.as_str()) {
            return Err(format!("init() names \"{name}\": there are type, protocol and filter"));
        }
    }
    let known = |p: &str| PROTOCOLS.into_iter().find(|k| *k == p);
    let (kind, protocol, filter) = (needs.text("type"), needs.text("protocol"), needs.text("filter"));
    Ok(match (kind, protocol, filter) {
        (Some("packet"), None, None) => (Occasion::Packet, ""),
        (Some("packet"), None, Some("alerts")) => (Occasion::Alert, ""),
        (Some("flow"), None, None) => (Occasion::Flow, ""),
        (Some("file"), None, None) => (Occasion::File, ""),
        (Some("stats"), None, None) => (Occasion::Stats, ""),
        (Some("streaming"), None, Some("tcp")) => (Occasion::Stream, ""),
        (Some("streaming"), Some("http"), None) => (Occasion::Body, "http"),
        (None, Some(p), None) => match known(p) {
            Some(p) => (Occasion::Tx, p),
            None => return Err(format!("no script can log {p}; there are {}", PROTOCOLS.join(", "))),
        },
        _ => {
            return Err(
                "init() names no occasion: type packet (filter alerts), flow, file, stats or streaming (filter \
                        tcp, or protocol http), or a protocol"
                    .into(),
            );
        }
    })
}

impl OutputScripts {
    /// Loads the scripts; `dir` is the log folder.
    ///
    /// # Errors
    /// A script is missing, does not load, or requests something unknown.
    pub(crate) fn load(files: &ScriptFiles, dir: &Path) -> Result<OutputScripts, String> {
        let settings = Settings {
            limits: Limits::OUTPUT,
            mode: Mode::Open,
            log: log_of("lua"),
            log_path: Some(dir.display().to_string()),
        };
        let mut all = OutputScripts::default();
        if !files.files.is_empty() {
            all.clock = Clock::system();
        }
        for file in &files.files {
            let source = Source::load(file)?;
            let load = || -> Result<(Script, Needs), LuaError> {
                let mut script = Script::with_path(&source, &settings, files.path.as_deref())?;
                let needs = script.init(&mut NoHost, "log")?;
                Ok((script, needs))
            };
            let (script, needs) = load().map_err(|e| e.to_string())?;
            let (occasion, protocol) = occasion(&needs).map_err(|e| format!("{}: {e}", script.name()))?;
            all.ja3 |= needs.registered.ja3;
            all.hassh |= needs.registered.hassh;
            all.occasions |= 1 << occasion as u8;
            all.list.push(OutputScript { script, occasion, protocol, told: false });
        }
        Ok(all)
    }

    /// Calls `setup` of each script.
    ///
    /// # Errors
    /// A script's `setup` fails.
    pub(crate) fn setup(&mut self) -> Result<(), String> {
        for s in &self.list {
            s.script.call_if_there(&mut NoHost, "setup").map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    /// Calls `deinit` of each script, after the last event.
    pub(crate) fn finish(&mut self) {
        for s in &self.list {
            if let Err(e) = s.script.call_if_there(&mut NoHost, "deinit") {
                self.errors += 1;
                error!("lua", "{e}");
            }
        }
    }

    /// Whether any script is called on this occasion.
    pub(crate) const fn wants(&self, occasion: Occasion) -> bool {
        self.occasions & 1 << occasion as u8 != 0
    }

    /// Also follows streams and bodies for the outputs that write them.
    pub(crate) fn follow_for(&mut self, outputs: &Outputs) {
        for (kind, occasion) in [(EventType::TcpData, Occasion::Stream), (EventType::HttpBodyData, Occasion::Body)] {
            if outputs.wants(kind) {
                self.occasions |= 1 << occasion as u8;
            }
        }
    }

    /// Whether there is any script.
    pub(crate) fn any(&self) -> bool {
        !self.list.is_empty()
    }

    /// Whether any script is called, or an output follows streams or bodies.
    pub(crate) const fn active(&self) -> bool {
        self.occasions != 0
    }

    /// Calls the scripts of an occasion that `fits` accepts.
    #[allow(clippy::too_many_arguments)]
    fn call(
        &mut self,
        occasion: Occasion,
        detect: Option<&Detect>,
        context: ScriptContext<'_>,
        rule: Option<&RuleInfo>,
        tx: Option<&dyn Transaction>,
        file: Option<FileView<'_>>,
        args: &Value<'_>,
    ) {
        let OutputScripts { list, clock, errors, .. } = self;
        for s in list.iter_mut().filter(|s| s.occasion == occasion) {
            if !s.protocol.is_empty() && tx.is_none_or(|tx| tx.ask(s.protocol, "get", None).is_none()) {
                continue;
            }
            let mut view = ScriptView {
                packet: context.packet,
                flow: context.flow,
                app: context.app,
                rule,
                tx,
                file,
                names: detect.map(Detect::names),
                datasets: detect.map(Detect::datasets),
                variables: (&[], &[]),
                writes: None,
                clock,
                thread: &ThreadInfo::current(),
            };
            if let Err(e) = s.script.call_value(&mut view, args) {
                *errors += 1;
                if !std::mem::replace(&mut s.told, true) {
                    warning!("lua", "failed to run script: {e}");
                }
            }
        }
    }

    /// Calls the scripts for a packet.
    pub(crate) fn packet(&mut self, detect: Option<&Detect>, context: ScriptContext<'_>) {
        if self.wants(Occasion::Packet) {
            self.call(Occasion::Packet, detect, context, None, None, None, &NO_ARGS);
        }
    }

    /// Calls the scripts for a packet's alert.
    pub(crate) fn alert(
        &mut self,
        detect: &Detect,
        context: ScriptContext<'_>,
        rule: u32,
        tx: Option<&dyn Transaction>,
    ) {
        if self.wants(Occasion::Alert)
            && let Some(rule) = detect.rules().get(rule as usize)
        {
            self.call(Occasion::Alert, Some(detect), context, Some(&RuleInfo::of(rule)), tx, None, &NO_ARGS);
        }
    }

    /// Calls the scripts for a flow that ended.
    pub(crate) fn flow(&mut self, detect: Option<&Detect>, context: ScriptContext<'_>) {
        if self.wants(Occasion::Flow) {
            self.call(Occasion::Flow, detect, context, None, None, None, &NO_ARGS);
        }
        let Some(flow) = context.flow else { return };
        for dir in [Direction::ToServer, Direction::ToClient] {
            if self.streams.remove(&(flow.id, dir.index())).is_some() {
                let args = Value::Table(vec![(b"stream"[..].into(), stream(&[], false, true, dir))]);
                self.call(Occasion::Stream, detect, context, None, None, None, &args);
            }
        }
        if !self.bodies.is_empty() {
            self.bodies.retain(|k, _| k.0 != flow.id);
        }
    }

    /// Calls the scripts for a complete transaction.
    pub(crate) fn tx(
        &mut self,
        outputs: &mut Outputs,
        detect: Option<&Detect>,
        context: ScriptContext<'_>,
        tx: &dyn Transaction,
    ) {
        for dir in [Direction::ToServer, Direction::ToClient] {
            self.body(outputs, detect, context, (tx, dir), true);
        }
        if self.wants(Occasion::Tx) {
            let args = Value::Table(vec![(b"tx_id"[..].into(), tx.base().id.into())]);
            self.call(Occasion::Tx, detect, context, None, Some(tx), None, &args);
        }
    }

    /// Calls the scripts for a complete file.
    pub(crate) fn file(
        &mut self,
        detect: Option<&Detect>,
        context: ScriptContext<'_>,
        tx: &dyn Transaction,
        index: usize,
        engine: &FileEngine,
    ) {
        let Some(file) = tx.base().files.all().get(index) else { return };
        // The files of each direction are numbered.
        let before = tx.base().files.all().iter().take(index).filter(|f| f.to_client == file.to_client);
        let view = FileView { file, id: before.count() as u64, tx_id: tx.base().id, engine };
        let args = Value::Table(vec![(b"tx_id"[..].into(), tx.base().id.into())]);
        self.call(Occasion::File, detect, context, None, Some(tx), Some(view), &args);
    }

    /// Delivers reassembled TCP data: the new part of `data`, which begins at `offset`.
    pub(crate) fn stream(
        &mut self,
        outputs: &mut Outputs,
        detect: Option<&Detect>,
        context: ScriptContext<'_>,
        dir: Direction,
        (offset, data): (u64, &[u8]),
    ) {
        let Some(flow) = context.flow else { return };
        let key = (flow.id, dir.index());
        let known = self.streams.get(&key).copied();
        let Some(new) = rest(data, offset, known) else { return };
        if known.is_none() && self.streams.len() >= STREAMS_MAX {
            self.refused += 1;
            return;
        }
        self.streams.insert(key, offset + data.len() as u64);
        write(outputs, EventType::TcpData, flow, None, dir, known.is_none(), new);
        let args = Value::Table(vec![(b"stream"[..].into(), stream(new, known.is_none(), false, dir))]);
        self.call(Occasion::Stream, detect, context, None, None, None, &args);
    }

    /// Delivers the new part of a transaction's body; at its `end`, also the end marker.
    pub(crate) fn body(
        &mut self,
        outputs: &mut Outputs,
        detect: Option<&Detect>,
        context: ScriptContext<'_>,
        (tx, dir): (&dyn Transaction, Direction),
        end: bool,
    ) {
        use margay_app::script::Answer;
        let Some(flow) = context.flow.filter(|_| self.wants(Occasion::Body)) else { return };
        let what = if dir == Direction::ToServer { "request_body" } else { "response_body" };
        let key = (flow.id, tx.base().id, dir.index());
        let known = self.bodies.get(&key).copied();
        let held = match tx.ask("http", what, None) {
            Some(Answer::Several(list)) => list,
            _ => Vec::new(),
        };
        let (data, offset): (&[u8], u64) = match held.as_slice() {
            [Answer::List(chunks), Answer::Int(offset), ..] => match chunks.first() {
                Some(Answer::Bytes(b)) => (b, u64::try_from(*offset).unwrap_or(0)),
                _ => (&[], 0),
            },
            _ => (&[], 0),
        };
        let new = rest(data, offset, known).unwrap_or(&[]);
        if new.is_empty() && !(end && known.is_some()) {
            return;
        }
        if known.is_none() && self.bodies.len() >= STREAMS_MAX {
            self.refused += 1;
            return;
        }
        if end {
            self.bodies.remove(&key);
        } else {
            self.bodies.insert(key, offset + data.len() as u64);
        }
        write(outputs, EventType::HttpBodyData, flow, Some(tx.base().id), dir, known.is_none(), new);
        let args = Value::Table(vec![
            (b"tx_id"[..].into(), tx.base().id.into()),
            (b"stream"[..].into(), stream(new, known.is_none(), end, dir)),
        ]);
        self.call(Occasion::Body, detect, context, None, Some(tx), None, &args);
    }

    /// Calls the scripts for statistics.
    pub(crate) fn stats(&mut self, counters: &[Counter<'_>]) {
        if !self.wants(Occasion::Stats) {
            return;
        }
        let rows = counters
            .iter()
            .map(|c| {
                Value::Table(vec![
                    (b"name"[..].into(), Value::text(c.name)),
                    (b"tmname"[..].into(), Value::text("Total")),
                    (b"value"[..].into(), Value::Int(c.value)),
                    (b"pvalue"[..].into(), Value::Int(c.last)),
                ])
            })
            .collect();
        self.call(Occasion::Stats, None, ScriptContext::default(), None, None, None, &Value::List(rows));
    }
}

const NO_ARGS: Value<'static> = Value::Table(Vec::new());

/// The part of `data`, which begins at `offset`, after what was delivered before; `None` if there is no such part.
fn rest(data: &[u8], offset: u64, known: Option<u64>) -> Option<&[u8]> {
    let skip = known.map_or(0, |k| k.saturating_sub(offset));
    data.get(usize::try_from(skip).ok()?..).filter(|d| !d.is_empty())
}

/// Hands new bytes to the outputs that write them.
fn write(
    outputs: &mut Outputs,
    kind: EventType,
    flow: &FlowCore,
    tx_id: Option<u64>,
    dir: Direction,
    first: bool,
    data: &[u8],
) {
    if !data.is_empty() && outputs.wants(kind) {
        let (flow, direction) = (super::log::addresses(flow), super::log::direction(dir));
        outputs.data(&DataEvent { kind, flow, tx_id, direction, first, data });
    }
}

/// The `stream` argument of a call.
fn stream(data: &[u8], open: bool, close: bool, dir: Direction) -> Value<'_> {
    Value::Table(vec![
        (b"data"[..].into(), Value::bytes(data)),
        (b"open"[..].into(), Value::Bool(open)),
        (b"close"[..].into(), Value::Bool(close)),
        (b"toserver"[..].into(), Value::Bool(dir == Direction::ToServer)),
        (b"toclient"[..].into(), Value::Bool(dir == Direction::ToClient)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn occasions() {
        let needs = |texts: &[(&str, &str)]| Needs {
            texts: texts.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect(),
            ..Needs::default()
        };
        let of = |texts: &[(&str, &str)]| occasion(&needs(texts)).ok();
        assert_eq!(of(&[("protocol", "dns")]), Some((Occasion::Tx, "dns")));
        assert_eq!(of(&[("type", "packet"), ("filter", "alerts")]), Some((Occasion::Alert, "")));
        assert_eq!(of(&[("type", "streaming"), ("protocol", "http")]), Some((Occasion::Body, "http")));
        assert_eq!(of(&[("type", "streaming"), ("filter", "tcp")]), Some((Occasion::Stream, "")));
        for bad in [&[][..], &[("type", "x")], &[("protocol", "nfs")], &[("type", "flow"), ("color", "x")]] {
            assert_eq!(of(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn what_is_new() {
        assert_eq!(rest(b"abcd", 10, None), Some(&b"abcd"[..]));
        assert_eq!(rest(b"abcd", 10, Some(12)), Some(&b"cd"[..]));
        assert_eq!((rest(b"abcd", 10, Some(14)), rest(b"abcd", 10, Some(99))), (None, None));
    }
}
