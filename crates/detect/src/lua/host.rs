//! The data that scripts can read about packet, flow, transaction, file and rule.

use std::borrow::Cow;
use std::net::IpAddr;

use margay_app::file::{File, FileEngine, FileState};
use margay_app::script::Answer;
use margay_app::{AppProto, Transaction};
use margay_flow::FlowCore;
use margay_json::time::Clock;
use margay_lua::{Host, HostError, Subject, Value};
use margay_packet::{L4, Packet, Time};

use crate::checks::AppProtos;
use crate::dataset::{Added, Datasets};
use crate::header::payload_of;
use crate::names::Names;

/// The facts of a rule that scripts can read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleInfo {
    /// Signature id.
    pub sid: u32,
    /// Generator id.
    pub gid: u32,
    /// Revision.
    pub rev: u32,
    /// Message.
    pub msg: String,
    /// Action.
    pub action: &'static str,
    /// Class: name and description.
    pub class: Option<(String, String)>,
    /// Priority.
    pub priority: u32,
}

/// A file, for scripts that write logs.
#[derive(Debug, Clone, Copy)]
pub struct FileView<'a> {
    /// The file.
    pub file: &'a File,
    /// The file's number.
    pub id: u64,
    /// Number of the file's transaction.
    pub tx_id: u64,
    /// The engine that determines the file's type.
    pub engine: &'a FileEngine,
}

/// A variable that a script set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// A text variable of the flow, by number.
    Text(u32, Vec<u8>),
    /// An integer variable of the flow, by number.
    Int(u32, u32),
}

/// A thread, as scripts see it.
#[derive(Debug, Clone)]
pub struct ThreadInfo {
    id: i64,
    thread: std::thread::Thread,
}

impl ThreadInfo {
    /// The calling thread.
    pub fn current() -> ThreadInfo {
        let id = rustix::thread::gettid().as_raw_nonzero().get().into();
        ThreadInfo { id, thread: std::thread::current() }
    }

    /// The system's thread id.
    pub fn id(&self) -> i64 {
        self.id
    }

    /// The worker's name. A single worker runs in the main thread, which has no name of its own.
    pub fn name(&self) -> &str {
        self.thread.name().filter(|n| *n != "main").unwrap_or("W#01")
    }
}

/// Everything that a script sees during one call.
pub struct ScriptView<'a> {
    /// The packet.
    pub packet: Option<&'a Packet<'a>>,
    /// The flow.
    pub flow: Option<&'a FlowCore>,
    /// Application protocols of the flow.
    pub app: AppProtos,
    /// The rule.
    pub rule: Option<&'a RuleInfo>,
    /// The transaction.
    pub tx: Option<&'a dyn Transaction>,
    /// The file.
    pub file: Option<FileView<'a>>,
    /// Names of variables.
    pub names: Option<&'a Names>,
    /// Datasets.
    pub datasets: Option<&'a Datasets>,
    /// The rule's variables: names and values.
    pub variables: (&'a [String], &'a [u64]),
    /// Receives the variables that the script sets, if it may.
    pub writes: Option<&'a mut Vec<Write>>,
    /// Formats times.
    pub clock: &'a mut Clock,
    /// The thread that the script runs in.
    pub thread: &'a ThreadInfo,
}

/// Most variables that one call may set.
const WRITES_MAX: usize = 256;

/// Questions to a transaction for a field by its name.
const NAMED: [&str; 3] = ["request_header", "response_header", "get_mime_field"];

type Answered<'v> = Result<Value<'v>, HostError>;

fn absent<'v>(what: &str) -> Answered<'v> {
    Err(HostError::absent(what))
}

fn unknown<'v>(what: &str) -> Answered<'v> {
    Err(HostError::Wrong(format!("there is nothing called {what}")))
}

fn address(a: IpAddr) -> Value<'static> {
    let mut text = Vec::with_capacity(40);
    margay_json::ip(&mut text, a);
    Value::Bytes(Cow::Owned(text))
}

const fn version(a: IpAddr) -> i64 {
    if a.is_ipv4() { 4 } else { 6 }
}

fn time(clock: &mut Clock, t: Time, iso: bool) -> Value<'static> {
    let mut text = Vec::with_capacity(32);
    if iso {
        clock.iso(&mut text, t);
    } else {
        clock.fast(&mut text, t);
    }
    Value::Bytes(Cow::Owned(text))
}

/// Converts a transaction's answer to a script value.
fn value(a: Answer) -> Value<'static> {
    let all = |l: Vec<Answer>| l.into_iter().map(value).collect();
    match a {
        Answer::Nothing => Value::Nil,
        Answer::Bytes(b) => Value::Bytes(Cow::Owned(b)),
        Answer::Int(n) => Value::Int(n),
        Answer::Number(n) => Value::Number(n),
        Answer::Bool(b) => Value::Bool(b),
        Answer::List(l) => Value::List(all(l)),
        Answer::ListFromZero(l) => Value::ListFromZero(all(l)),
        Answer::Several(l) => Value::Many(all(l)),
        Answer::Table(t) => Value::Table(t.into_iter().map(|(k, v)| (Cow::Owned(k), value(v))).collect()),
    }
}

fn hex(digest: Option<&[u8]>) -> Value<'static> {
    digest.map_or(Value::Nil, |d| Value::owned(d.iter().map(|b| format!("{b:02x}")).collect::<String>()))
}

impl ScriptView<'_> {
    fn of_packet(&mut self, what: &str) -> Answered<'_> {
        let Some(p) = self.packet else { return absent("there is no packet here") };
        let ports = matches!(p.l4, L4::Tcp { .. } | L4::Udp { .. } | L4::Sctp { .. });
        Ok(match what {
            "get" => Value::Bool(true),
            "timestamp" => Value::Many(vec![Value::Int(p.time.secs()), Value::Int(p.time.subsec_micros().into())]),
            "timestring_legacy" => time(self.clock, p.time, false),
            "timestring_iso8601" => time(self.clock, p.time, true),
            "tuple" if !p.is_ip() => return absent("the packet is none of IP"),
            "tuple" => {
                let (first, second) = match p.l4 {
                    L4::Icmpv4 { .. } | L4::Icmpv6 { .. } => (u16::from(p.icmp.0), u16::from(p.icmp.1)),
                    _ => (p.sport, p.dport),
                };
                Value::Many(vec![
                    Value::Int(version(p.src)),
                    address(p.src),
                    address(p.dst),
                    Value::Int(p.proto.into()),
                    first.into(),
                    second.into(),
                ])
            }
            "sp" => ports.then_some(p.sport).into(),
            "dp" => ports.then_some(p.dport).into(),
            "payload" => Value::bytes(payload_of(p)),
            "packet" => Value::bytes(p.data),
            "pcap_cnt" => p.number.into(),
            _ => return unknown(what),
        })
    }

    fn of_flow(&mut self, what: &str) -> Answered<'_> {
        let Some(f) = self.flow else { return absent("there is no flow here") };
        let name = |p: AppProto| Value::text(p.name());
        Ok(match what {
            "get" => Value::Bool(true),
            // First the seconds of both packets, then the microseconds.
            "timestamps" => Value::Many(vec![
                Value::Int(f.start.secs()),
                Value::Int(f.last.secs()),
                Value::Int(f.start.subsec_micros().into()),
                Value::Int(f.last.subsec_micros().into()),
            ]),
            "timestring_legacy" => time(self.clock, f.start, false),
            "timestring_iso8601" => time(self.clock, f.start, true),
            "tuple" => Value::Many(vec![
                Value::Int(version(f.src)),
                address(f.src),
                address(f.dst),
                Value::Int(f.proto.into()),
                f.sport.into(),
                f.dport.into(),
            ]),
            "app_layer_proto" => {
                let a = self.app;
                Value::Many(vec![
                    name(a.flow),
                    name(a.side[0]),
                    name(a.side[1]),
                    name(a.original),
                    name(AppProto::Unknown),
                ])
            }
            "has_alerts" => Value::Bool(f.alerted),
            "id" => f.id.into(),
            "stats" => Value::Many(vec![f.pkts[0].into(), f.bytes[0].into(), f.pkts[1].into(), f.bytes[1].into()]),
            _ => return unknown(what),
        })
    }

    fn of_rule(&self, what: &str) -> Answered<'_> {
        let Some(r) = self.rule else { return absent("there is no rule here") };
        let class = r.class.as_ref();
        Ok(match what {
            "get" => Value::Bool(true),
            "sid" => r.sid.into(),
            "gid" => r.gid.into(),
            "rev" => r.rev.into(),
            "msg" if r.msg.is_empty() => Value::Nil,
            "msg" => Value::text(&r.msg),
            "action" => Value::text(r.action),
            "class_description" => class.map_or(Value::Nil, |c| Value::text(&c.1)),
            "priority" => r.priority.into(),
            "class" => Value::Many(vec![class.map_or(Value::Nil, |c| Value::text(&c.0)), r.priority.into()]),
            _ => return unknown(what),
        })
    }

    fn of_file(&self, what: &str) -> Answered<'_> {
        let Some(f) = self.file else { return absent("there is no file here") };
        Ok(match what {
            "get" => Value::Bool(true),
            "file_id" => f.id.into(),
            "tx_id" => f.tx_id.into(),
            "name" => Value::bytes(f.file.name()),
            "size" => f.file.size().into(),
            "magic" => f.file.magic(f.engine).map_or(Value::Nil, Value::bytes),
            "md5" => hex(f.file.md5().map(|d| &d[..])),
            "sha1" => hex(f.file.sha1().map(|d| &d[..])),
            "sha256" => hex(f.file.sha256().map(|d| &d[..])),
            "get_state" => Value::text(match f.file.state {
                FileState::Open => "OPENED",
                FileState::Closed => "CLOSED",
                FileState::Truncated => "TRUNCATED",
                FileState::Error => "ERROR",
            }),
            "is_stored" => Value::Bool(f.file.stored().is_some()),
            _ => return unknown(what),
        })
    }

    fn of_tx(&self, what: &str, args: &[Value<'_>]) -> Answered<'_> {
        let protocol = args.first().and_then(Value::as_bytes).and_then(|b| std::str::from_utf8(b).ok()).unwrap_or("");
        let Some(tx) = self.tx else { return absent("there is no transaction here") };
        if tx.ask(protocol, "get", None).is_none() {
            return Err(HostError::Absent(format!("the transaction is none of {protocol}")));
        }
        let name = args.get(1).and_then(Value::as_bytes);
        match tx.ask(protocol, what, name) {
            Some(Answer::Nothing) | None if !NAMED.contains(&what) => {
                Err(HostError::Absent(format!("the transaction has no {}", what.trim_start_matches("get_"))))
            }
            Some(Answer::Nothing) | None if name.is_none() => absent("the name is missing"),
            Some(Answer::Nothing) | None => absent("there is no field of that name"),
            Some(answer) => Ok(value(answer)),
        }
    }

    /// The number of a variable's name.
    fn number(&self, args: &[Value<'_>]) -> Result<u32, HostError> {
        let name = args.first().and_then(Value::as_bytes).unwrap_or(&[]);
        let name = String::from_utf8_lossy(name);
        self.names
            .and_then(|n| n.number(&name))
            .ok_or_else(|| HostError::Wrong(format!("no rule has a variable \"{name}\": register it in init()")))
    }

    fn of_variable(&mut self, text: bool, what: &str, args: &[Value<'_>]) -> Answered<'_> {
        let number = self.number(args)?;
        let Some(flow) = self.flow else { return absent("there is no flow here") };
        match (what, text) {
            ("get", true) => {
                let set = self.writes.iter().flat_map(|w| w.iter()).rev().find_map(|w| match w {
                    Write::Text(n, v) if *n == number => Some(v.as_slice()),
                    _ => None,
                });
                Ok(set.or_else(|| flow.vars.captured().get(number)).map_or(Value::Nil, Value::bytes))
            }
            ("get", false) => {
                let set = self.writes.iter().flat_map(|w| w.iter()).rev().find_map(|w| match w {
                    Write::Int(n, v) if *n == number => Some(*v),
                    _ => None,
                });
                Ok(set.or_else(|| flow.vars.int(number)).into())
            }
            ("set", _) => {
                let write = match (args.get(1), text) {
                    (Some(Value::Bytes(b)), true) => Write::Text(number, b.to_vec()),
                    (Some(v), false) if v.as_int().is_some() => Write::Int(number, v.as_int().unwrap_or(0) as u32),
                    _ => return Err(HostError::Wrong("the value to set is no text, or no number".into())),
                };
                let same = |w: &Write| {
                    matches!((w, &write),
                    (Write::Text(a, _), Write::Text(b, _)) | (Write::Int(a, _), Write::Int(b, _)) if a == b)
                };
                let Some(writes) = self.writes.as_deref_mut() else {
                    return absent("scripts that write logs cannot set variables");
                };
                let room = writes.len() < WRITES_MAX;
                match writes.iter_mut().find(|w| same(w)) {
                    Some(w) => *w = write,
                    None if room => writes.push(write),
                    None => return absent("too many variables are set at once"),
                }
                Ok(Value::Bool(true))
            }
            _ => unknown(what),
        }
    }

    fn of_dataset(&self, what: &str, args: &[Value<'_>]) -> Answered<'_> {
        if what == "ready" {
            return Ok(Value::Bool(true));
        }
        let name = String::from_utf8_lossy(args.first().and_then(Value::as_bytes).unwrap_or(&[]));
        let Some(set) = self.datasets.and_then(|d| d.get(&name)) else {
            return Err(HostError::Absent(format!(
                "there is no dataset {name}: a rule or the configuration defines it"
            )));
        };
        match what {
            "get" => Ok(Value::Bool(true)),
            "add" => match set.add(args.get(1).and_then(Value::as_bytes).unwrap_or(&[])) {
                Added::New => Ok(Value::Int(1)),
                Added::There => Ok(Value::Int(0)),
                Added::Unfit => absent("that is no data of the dataset's type"),
                Added::Full => absent("the dataset is full"),
            },
            _ => unknown(what),
        }
    }
}

impl Host for ScriptView<'_> {
    fn ask(&mut self, subject: Subject, what: &str, args: &[Value<'_>]) -> Result<Value<'_>, HostError> {
        match subject {
            Subject::Packet => self.of_packet(what),
            Subject::Flow => self.of_flow(what),
            Subject::Rule => self.of_rule(what),
            Subject::File => self.of_file(what),
            Subject::Tx => self.of_tx(what, args),
            Subject::FlowVar => self.of_variable(true, what, args),
            Subject::FlowInt => self.of_variable(false, what, args),
            Subject::ByteVar if what == "map" => Err(HostError::Wrong("map() is only possible in init()".into())),
            Subject::ByteVar => {
                let name = args.first().and_then(Value::as_bytes).unwrap_or(&[]);
                let (names, values) = self.variables;
                let at = names.iter().position(|n| n.as_bytes() == name);
                Ok(at.and_then(|at| values.get(at)).copied().into())
            }
            Subject::Dataset => self.of_dataset(what, args),
            Subject::Thread => Ok(Value::Many(vec![
                Value::Int(self.thread.id()),
                Value::text(self.thread.name()),
                Value::text("workers"),
            ])),
        }
    }
}
