//! A worker's script states, and calls of scripts.

use std::sync::Arc;

use margay_app::script::Answer;
use margay_app::{AppProto, Transaction, protocol};
use margay_flow::{Direction, FlowCore};
use margay_json::time::Clock;
use margay_lua::{ErrorKind, LogLevel, LuaError, Script, Value};
use margay_rules::ast::LuaAt;

use super::State;
use crate::dataset::Datasets;
use crate::detect::Detect;
use crate::input::Input;
use crate::lua::{Loaded, LuaCounters, Need, ScriptView, Teller, ThreadInfo, Write};
use crate::names::Names;
use crate::rule::CompiledRule;
use crate::watch::Watch;
use crate::watch::report::Line;

/// The scripts of rules.
#[derive(Debug, Default)]
pub(crate) struct WorkerScripts {
    scripts: Vec<Loaded>,
    names: Option<Arc<Names>>,
    datasets: Option<Arc<Datasets>>,
    writes: Vec<Write>,
    clock: Option<Clock>,
    pub(crate) counters: LuaCounters,
    teller: Teller,
}

/// One script call.
pub(crate) struct ScriptCall<'a> {
    pub(crate) rule: &'a CompiledRule,
    /// The index among the rule's scripts.
    pub(crate) number: u16,
    pub(crate) tx: Option<(&'a dyn Transaction, AppProto)>,
    pub(crate) input: &'a Input<'a>,
    /// Where the checks before the script left off in its buffer.
    pub(crate) offset: usize,
}

/// The bytes of a transaction buffer that a script asked for by name.
fn needed(need: &Need, tx: &dyn Transaction, proto: AppProto, dir: Direction) -> Value<'static> {
    if !need.asks.is_empty() {
        return first_bytes(tx.ask(need.protocol, need.asks, None)).unwrap_or(Value::Nil);
    }
    if need.buffer.is_empty() {
        return Value::Bool(true);
    }
    let def = protocol(proto).and_then(|p| p.buffers.iter().find(|b| b.name == need.buffer));
    let mut scratch = Vec::new();
    let found = def.and_then(|d| tx.buffer(d.id, need.dir.unwrap_or(dir), 0, &mut scratch));
    found.map_or(Value::Nil, |f| Value::Bytes(f.data.to_vec().into()))
}

/// The first chunk of the first list in an answer.
fn first_bytes(answer: Option<Answer>) -> Option<Value<'static>> {
    let Some(Answer::Several(several)) = answer else { return None };
    let Some(Answer::List(chunks)) = several.into_iter().next() else { return None };
    match chunks.into_iter().next() {
        Some(Answer::Bytes(b)) => Some(Value::Bytes(b.into())),
        _ => None,
    }
}

impl WorkerScripts {
    /// Calls a script with the buffer or data that it inspects; returns whether the result is a match. An error is no
    /// match, negated or not.
    pub(crate) fn call(&mut self, call: &mut ScriptCall<'_>, data: Option<&[u8]>, variables: &[u64]) -> bool {
        let ScriptCall { rule, number, tx, input, offset } = *call;
        let Some(lua) = rule.lua.as_deref() else { return true };
        let Some(used) = lua.uses.get(usize::from(number)) else { return true };
        let WorkerScripts { scripts, names, datasets, writes, clock, counters, teller } = self;
        let Some(Loaded { script: Some(script), told }) = scripts.get_mut(used.script as usize) else {
            counters.count(ErrorKind::Script);
            return false;
        };
        let mut args: Vec<(&str, Value<'_>)> = Vec::with_capacity(4);
        let packet = input.packet;
        if used.of_buffer {
            args.push(("buffer", Value::bytes(data.unwrap_or(&[]))));
            args.push(("offset", Value::Int(i64::try_from(offset).map_or(1, |n| n.saturating_add(1)))));
        }
        if used.packet {
            args.push(("packet", Value::bytes(packet.data)));
        }
        if used.payload {
            args.push(("payload", Value::bytes(crate::header::payload_of(packet))));
        }
        if used.at == LuaAt::Stream {
            args.push(("stream", Value::bytes(data.unwrap_or(&[]))));
            args.push(("offset", Value::Int(1)));
        }
        if let Some((tx, proto)) = tx {
            let dir = input.dir.unwrap_or(Direction::ToServer);
            for need in used.needs.iter() {
                match needed(need, tx, proto, dir) {
                    // The message has no such part, so there is nothing to look at.
                    Value::Nil => return false,
                    value => args.push((need.name, value)),
                }
            }
            if !used.of_buffer && used.needs.iter().any(|n| !n.buffer.is_empty()) {
                args.push(("offset", Value::Int(1)));
            }
        }
        let mut view = ScriptView {
            packet: Some(packet),
            flow: input.flow.as_deref(),
            app: input.app,
            rule: Some(&lua.info),
            tx: tx.map(|t| t.0),
            file: None,
            names: names.as_deref(),
            datasets: datasets.as_deref(),
            variables: (&used.variables, variables),
            writes: Some(writes),
            clock: clock.get_or_insert_with(Clock::system),
            thread: &ThreadInfo::current(),
        };
        match script.call(&mut view, &args) {
            Ok(matched) => matched != used.negated,
            Err(e) => {
                counters.count(e.kind);
                teller.tell(told, &e);
                false
            }
        }
    }
}

impl<W: Watch> State<W> {
    /// Creates states for the scripts of `detect`.
    pub(crate) fn load_scripts(&mut self, detect: &Detect) {
        let all = &detect.scripts;
        let log = all.settings.log.clone();
        let load = |made: Result<Script, LuaError>| match made {
            Ok(script) => Loaded { script: Some(script), told: 0 },
            Err(e) => {
                log(LogLevel::Error, &e.to_string());
                Loaded { script: None, told: 0 }
            }
        };
        let s = &mut self.scripts;
        s.scripts = all.rules.iter().map(|r| load(r.start(&all.settings).map(|s| s.0))).collect();
        (s.names, s.datasets) = (Some(detect.names.clone()), Some(detect.datasets.clone()));
        s.teller.log = log.clone();
        s.clock = (!s.scripts.is_empty()).then(Clock::system);
        let t = &mut self.transforms.lua;
        t.teller.log = log.clone();
        t.scripts = all
            .transforms
            .iter()
            .map(|source| load(Script::load(source, &all.settings).and_then(|mut s| s.prepare_transform().map(|()| s))))
            .collect();
    }

    pub(crate) fn lua_counters(&self) -> LuaCounters {
        self.scripts.counters.and(self.transforms.lua.counters)
    }

    /// Whether the scripts of a packet, stream or frame rule hold. `data` is the payload, or the part of a stream or
    /// frame for which the rest of the rule held.
    pub(crate) fn scripts_hold(&mut self, rule: &CompiledRule, input: &Input<'_>, data: Option<&[u8]>) -> bool {
        let Some(lua) = rule.lua.as_deref().filter(|l| !l.of_tx) else { return true };
        (0u16..).zip(lua.uses.iter()).all(|(number, used)| {
            let mut call = ScriptCall { rule, number, tx: None, input, offset: 0 };
            let held = match used.header {
                Some(h) => self.header_script(&mut call, rule, h),
                None => self.scripts.call(&mut call, data, &self.context.variables),
            };
            if W::CHECKS {
                self.context.watch.told(vec![Line::of_script(&used.shown, held)]);
            }
            held
        })
    }

    fn header_script(&mut self, call: &mut ScriptCall<'_>, rule: &CompiledRule, header: u16) -> bool {
        let Some((buffer, inspection)) = rule.headers.get(usize::from(header)) else { return false };
        let Some(data) = crate::buffer::bytes(*buffer, call.input.packet) else { return false };
        let State { scripts, transforms, context, .. } = self;
        let data = match inspection.transforms.is_empty() {
            true => data,
            false => inspection.transforms.apply(data, transforms, context.pcre_scratch()),
        };
        scripts.call(call, Some(data), &context.variables)
    }

    /// Keeps the flow variables that scripts set.
    pub(crate) fn keep_script_writes(&mut self, flow: Option<&mut FlowCore>) {
        let writes = &mut self.scripts.writes;
        if writes.is_empty() {
            return;
        }
        if let Some(flow) = flow {
            for w in writes.iter() {
                match w {
                    Write::Text(name, value) => {
                        let kept = flow.vars.captured_mut().set(*name, None, value);
                        self.counters.var_memcap += u64::from(!kept);
                    }
                    Write::Int(name, value) => flow.vars.set_int(*name, *value),
                }
            }
        }
        writes.clear();
    }
}
