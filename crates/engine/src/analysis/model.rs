//! Analyses one rule for the reports.

use margay_detect::{RuleKind, fast_pattern, is_of_packet, is_of_transaction, is_payload};
use margay_rules::PacketBuffer;
use margay_rules::ast::{
    BufferCheck, BufferChecks, CaptureKind, Check, Compare, Content, Effect, FileCheck, FlowCheck, Protocol, Rule,
    Target, Value,
};
use margay_rules::info::{self, KeywordKind, WrittenOption};

use super::engines::{self, Place, Scope};
use super::items::{self, Item};

/// An engine of transactions or frames, with its checks.
#[derive(Debug, Clone)]
pub(super) struct Engine {
    pub(super) name: String,
    pub(super) place: Place,
    pub(super) is_mpm: bool,
    pub(super) transforms: Vec<&'static str>,
    pub(super) items: Vec<Item>,
}

/// An engine of packets.
#[derive(Debug, Clone)]
pub(super) struct PacketEngine {
    pub(super) name: String,
    pub(super) is_mpm: bool,
    pub(super) transforms: Vec<&'static str>,
    /// Its checks that are in no list.
    pub(super) items: Vec<Item>,
}

/// The literal that the prefilter searches for.
#[derive(Debug, Clone)]
pub(super) struct Mpm {
    /// Index of the buffer in the rule.
    pub(super) buffer: usize,
    /// The buffer's name in reports.
    pub(super) name: String,
    pub(super) content: Content,
    /// The bytes to search for: all, or those of `fast_pattern:offset,length`.
    pub(super) bytes: Vec<u8>,
    pub(super) relative_next: bool,
    /// Whether the buffer is a frame.
    pub(super) frame: bool,
}

/// A rule in the form of the reports.
#[derive(Debug, Clone)]
pub(super) struct Analysed {
    /// The rule, with equivalent spellings normalized.
    pub(super) rule: Rule,
    pub(super) kind: RuleKind,
    /// Whether the rule binds a literal to a place in the payload.
    anchored: bool,
    pub(super) scope: Scope,
    pub(super) requirements: Vec<&'static str>,
    pub(super) flags: Vec<&'static str>,
    pub(super) packet_engines: Vec<PacketEngine>,
    pub(super) frame_engines: Vec<Engine>,
    pub(super) engines: Vec<Engine>,
    pub(super) lists: Vec<(&'static str, Vec<Item>)>,
    pub(super) mpm: Option<Mpm>,
    /// The keyword before the `prefilter` keyword, unless that is a literal.
    pub(super) prefilter: Option<String>,
    pub(super) notes: Vec<String>,
    pub(super) warnings: Vec<String>,
}

const HTTP_NOTE: &str = "pattern looks like it inspects HTTP, use http.request_line or http.method and http.uri instead \
                         for improved performance";

impl Analysed {
    pub(super) fn of(original: &Rule) -> Analysed {
        let kind = match RuleKind::of(original) {
            // The firewall evaluates its rules with every packet.
            RuleKind::IpOnly | RuleKind::LikeIpOnly if original.firewall => RuleKind::Packet,
            kind => kind,
        };
        let written = info::options(&original.text);
        // Old option letters of expressions have no effect beside sticky buffers.
        let sticky = written.iter().any(|o| o.kind == KeywordKind::StickyBuffer);
        let legacy = written.iter().any(|o| {
            o.kind == KeywordKind::Modifier && o.keyword != "http_server_body"
                || o.keyword == "uricontent"
                || o.keyword == "pcre" && !sticky && o.value.as_deref().is_some_and(http_pcre)
        });
        let prefilter = original.prefilter.and_then(|i| original.checks.get(i)).map(|c| items::check(c).name);
        let payload = original.buffers.iter().filter(|b| is_payload(&b.buffer)).flat_map(|b| &b.checks);
        let anchored = payload
            .into_iter()
            .any(|c| matches!(c, BufferCheck::Content(c) if c.starts_with || c.offset.is_some() || c.depth.is_some()));
        let mut rule = original.clone();
        files_as_buffers(&mut rule);
        let converted: Vec<Vec<&'static str>> = rule.buffers.iter_mut().map(|b| first_places(&mut b.checks)).collect();
        let scope = Scope::of(&rule, legacy);
        let mut a = Analysed {
            mpm: if prefilter.is_some() { None } else { choose(&rule) },
            rule,
            kind,
            anchored,
            scope,
            requirements: Vec::new(),
            flags: Vec::new(),
            packet_engines: Vec::new(),
            frame_engines: Vec::new(),
            engines: Vec::new(),
            lists: Vec::new(),
            prefilter,
            notes: Vec::new(),
            warnings: Vec::new(),
        };
        a.requirements = a.requirements();
        a.buffers(&converted, &written);
        a.checks();
        a.lists_of_effects();
        a.flags = a.flags();
        a
    }

    /// Removes the parts that only the report of one rule needs, for reports that hold all rules at once.
    pub(super) fn slim(mut self) -> Analysed {
        self.engines = Vec::new();
        self.frame_engines = Vec::new();
        self.packet_engines = Vec::new();
        self.lists = Vec::new();
        self.notes = Vec::new();
        self.warnings = Vec::new();
        self.rule.checks.retain(|c| matches!(c, Check::IpProto(_)));
        self
    }

    /// Whether the rule inspects a packet's payload or a stream.
    pub(super) fn has_payload(&self) -> bool {
        self.rule.buffers.iter().any(|b| is_payload(&b.buffer))
    }

    /// The `flow:` check, empty by default.
    pub(super) fn flow(&self) -> FlowCheck {
        self.rule.checks.iter().find_map(|c| if let Check::Flow(f) = c { Some(*f) } else { None }).unwrap_or_default()
    }

    /// Whether the rule applies to TCP.
    pub(super) fn is_tcp(&self) -> bool {
        match &self.rule.protocol {
            Protocol::Ip | Protocol::Ipv4 | Protocol::Ipv6 => true,
            Protocol::Tcp | Protocol::TcpPacket | Protocol::TcpStream => true,
            Protocol::App(n) => margay_app::header_transports(n)[0],
            _ => false,
        }
    }

    fn requirements(&self) -> Vec<&'static str> {
        let checks = &self.rule.checks;
        let any = |f: &dyn Fn(&Check) -> bool| checks.iter().any(f);
        let dsize = checks.iter().find_map(|c| if let Check::Dsize(v) = c { Some(*v) } else { None });
        let (mut payload, mut no_payload, mut real) = (self.has_payload(), false, false);
        // Whether the size alone implies a payload, no payload, or neither.
        match dsize {
            Some(Compare::Equal(0)) => no_payload = true,
            Some(Compare::NotEqual(0)) => (payload, real) = (true, true),
            Some(Compare::Equal(_) | Compare::Greater(_) | Compare::Between(..)) => payload = true,
            Some(Compare::GreaterEqual(n)) if n > 0 => payload = true,
            Some(_) => real = true,
            None => {}
        }
        let f = self.flow();
        let state = (f.established || f.not_established || f.stateless) && f.stream != Some(false);
        let flow = self.is_app()
            || state
            || any(&|c| {
                matches!(
                    c,
                    Check::FlowBit { .. }
                        | Check::FlowInt { .. }
                        | Check::FlowAge(_)
                        | Check::FlowPkts { .. }
                        | Check::FlowBytes { .. }
                        | Check::FlowElephant(_)
                        | Check::Variable { kind: CaptureKind::Flow, .. }
                )
            });
        let bits = checks.iter().filter_map(|c| if let Check::TcpFlags { bits, .. } = c { Some(*bits) } else { None });
        let bits = bits.fold(0, |a, b| a | b);
        let dce = self.rule.buffers.iter().any(|b| engines::is_dce(&b.buffer))
            || any(&|c| {
                matches!(c, Check::Number { keyword, .. } if engines::is_dce(keyword))
                    || matches!(c, Check::Interface(_))
            });
        let event = any(&|c| match c {
            Check::DecodeEvent(_) | Check::StreamEvent(_) => true,
            Check::AppEvent(n) => !n.contains('.'),
            _ => false,
        });
        let real = real || any(&|c| matches!(c, Check::TcpFlags { .. }));
        [
            (payload, "payload"),
            (no_payload, "no_payload"),
            (flow, "flow"),
            // FIN, SYN, RST begin or end a connection; URG, ECE and CWR are rare.
            (bits & 0x07 != 0, "tcp_flags_init_deinit"),
            (bits & 0xe0 != 0, "tcp_flags_unusual"),
            (dce, "dcerpc"),
            (event, "engine_event"),
            (real, "real_pkt"),
        ]
        .into_iter()
        .filter(|f| f.0)
        .map(|f| f.1)
        .collect()
    }

    /// Whether it inspects an application protocol, one that it names or any that has files.
    fn is_app(&self) -> bool {
        self.scope.app_proto != "unknown" || self.rule.buffers.iter().any(|b| b.app)
    }

    /// Whether it applies to single packets, apart from streams.
    fn needs_packet(&self) -> bool {
        let headers = |b: &BufferChecks| PacketBuffer::from_name(&b.buffer).is_some_and(PacketBuffer::is_header);
        self.rule.protocol == Protocol::TcpPacket
            || self.rule.buffers.iter().any(headers)
            || self.rule.checks.iter().any(|c| is_of_packet(c) || matches!(c, Check::IpProto(_) | Check::L3Proto(_)))
            || self.flow().stream == Some(false)
            || self.is_tcp()
                && self.flow().stream != Some(true)
                && (self.kind == RuleKind::PacketStream || self.anchored)
    }

    fn flags(&self) -> Vec<&'static str> {
        let r = &self.rule;
        let any = |f: &dyn Fn(&Check) -> bool| r.checks.iter().any(f);
        let stream = self.has_payload()
            && self.is_tcp()
            && matches!(self.kind, RuleKind::Stream | RuleKind::PacketStream | RuleKind::AppTransaction);
        let body =
            |b: &BufferChecks| matches!(b.buffer.as_str(), "file.data" | "http.request_body" | "http.response_body");
        let in_body = r.buffers.iter().any(body);
        let effect = |f: &dyn Fn(&Effect) -> bool| r.effects.iter().any(f);
        let frame = self.frame_engines.iter().any(|e| e.is_mpm);
        [
            (r.src.any, "src_any"),
            (r.dst.any, "dst_any"),
            (r.sport.any, "sp_any"),
            (r.dport.any, "dp_any"),
            (r.noalert, "noalert"),
            (any(&|c| matches!(c, Check::Dsize(_))), "dsize"),
            (self.is_app(), "applayer"),
            (self.needs_packet(), "need_packet"),
            (stream, "need_stream"),
            (self.mpm.as_ref().is_some_and(|m| m.content.negated), "negated_mpm"),
            (in_body && self.has_payload(), "flush"),
            (any(&|c| matches!(c, Check::FlowBit { set: true, .. } | Check::Variable { .. })), "need_flowvar"),
            (self.rule.stores_files(), "filestore"),
            (self.scope.to_server, "toserver"),
            (self.scope.to_client, "toclient"),
            (effect(&|e| matches!(e, Effect::TlsStore)), "tlsstore"),
            (effect(&|e| matches!(e, Effect::Bypass)), "bypass"),
            (self.mpm.is_some() || self.prefilter.is_some() || frame, "prefilter"),
            (r.target == Some(Target::Source), "src_is_target"),
            (r.target == Some(Target::Destination), "dst_is_target"),
        ]
        .into_iter()
        .filter(|f| f.0)
        .map(|f| f.1)
        .collect()
    }

    /// Creates the engines and lists of the buffers.
    fn buffers(&mut self, converted: &[Vec<&'static str>], written: &[WrittenOption]) {
        let rule = self.rule.clone();
        let (mut first, mut rest, mut stream): (Vec<Engine>, Vec<Engine>, Vec<Engine>) = Default::default();
        let (mut payload, mut base64) = (Vec::new(), Vec::new());
        for (i, b) in rule.buffers.iter().enumerate() {
            let mpm = self.mpm.as_ref().filter(|m| m.buffer == i).and_then(|m| position(b, &m.content));
            let is_mpm = mpm.is_some();
            let items = items::buffer(b, mpm);
            let transforms: Vec<_> = b.transforms.iter().map(items::transform).collect();
            for c in &b.checks {
                if let BufferCheck::Base64 { data, .. } = c {
                    base64.extend(items::list(data, None));
                }
            }
            let name = engines::engine_name(b);
            let mut times = 1;
            if b.buffer.starts_with("frame:") {
                let made = self.scope.both().into_iter().map(|place| Engine {
                    name: name.clone(),
                    place,
                    is_mpm,
                    transforms: transforms.clone(),
                    items: items.clone(),
                });
                self.frame_engines.extend(made);
                times = self.frame_engines.len();
            } else if b.app {
                let mut places = self.scope.of_buffer(b);
                times = places.len();
                if is_mpm {
                    places.reverse();
                }
                let made = places.into_iter().map(|place| Engine {
                    name: name.clone(),
                    place,
                    is_mpm,
                    transforms: transforms.clone(),
                    items: items.clone(),
                });
                if is_mpm { first.extend(made) } else { rest.extend(made) }
            } else if !is_payload(&b.buffer) {
                self.packet_engines.push(PacketEngine { name, is_mpm, transforms, items });
            } else if self.kind == RuleKind::AppTransaction {
                let made = self.scope.both().into_iter().map(|place| Engine {
                    name: "stream".to_owned(),
                    place,
                    is_mpm,
                    transforms: transforms.clone(),
                    items: items.clone(),
                });
                stream.extend(made);
            } else {
                self.packet_engines
                    .insert(0, PacketEngine { name: "payload".to_owned(), is_mpm, transforms, items: Vec::new() });
                payload.extend(items);
            }
            self.remarks(b, converted.get(i).map_or(&[], Vec::as_slice), times);
        }
        self.engines = first;
        self.engines.append(&mut rest);
        self.tx_checks(written);
        let settled = self.engines.iter().filter(|e| e.is_mpm).count();
        if let Some(others) = self.engines.get_mut(settled..) {
            let place = |e: &Engine| written.iter().position(|o| names(o, e)).unwrap_or(usize::MAX);
            others.sort_by_cached_key(|e| (e.place.progress, place(e)));
        }
        // The engine of the fast pattern comes first.
        let at = if stream.iter().any(|e| e.is_mpm) { 0 } else { self.engines.len() };
        self.engines.splice(at..at, stream);
        if !payload.is_empty() {
            self.lists.push(("payload", payload));
        }
        if !base64.is_empty() {
            self.lists.push(("base64_data", base64));
        }
        if self.has_payload()
            && self.kind == RuleKind::AppTransaction
            && self.mpm.as_ref().is_some_and(|m| m.name == "file_data")
        {
            self.notes.push("mpm in file_data combined with stream match leads to stream buffering".to_owned());
        }
    }

    /// Adds remarks about the literals of a buffer, once for each engine that has it.
    fn remarks(&mut self, b: &BufferChecks, converted: &[&'static str], times: usize) {
        for _ in 0..times {
            for to in converted {
                let from = if *to == "depth" { "within" } else { "distance" };
                self.notes.push(format!("'{from}' option for pattern w/o previous content was converted to '{to}'"));
            }
            for c in &b.checks {
                match c {
                    BufferCheck::Content(c) => {
                        if c.fast_pattern_only {
                            self.notes.push(
                                "'fast_pattern:only' option is silently ignored and is interpreted as regular \
                                 'fast_pattern'"
                                    .to_owned(),
                            );
                        }
                        if [&b"GET /"[..], b"POST /", b"HTTP/1."].iter().any(|p| c.bytes.starts_with(p)) {
                            match b.buffer.as_str() {
                                "http.request_line" => self.notes.push(HTTP_NOTE.to_owned()),
                                _ => self.warnings.push(HTTP_NOTE.to_owned()),
                            }
                        }
                    }
                    BufferCheck::Pcre(p) if p.raw => {
                        self.notes.push("'/B' (rawbytes) option is a no-op and is silently ignored".to_owned());
                    }
                    _ => {}
                }
            }
        }
    }

    /// Creates the engines of transaction checks without a buffer.
    fn tx_checks(&mut self, written: &[WrittenOption]) {
        let mut made: Vec<Engine> = Vec::new();
        for c in self.rule.checks.iter().filter(|c| is_of_transaction(c) && items::check(c).name != "xbits") {
            let (name, item) = (engines::check_engine(c), items::check(c));
            for place in self.scope.of_check(c) {
                let same = |e: &&mut Engine| e.name == name && e.place == place && e.transforms.is_empty();
                match self.engines.iter_mut().find(same) {
                    // The length check of a buffer is placed among the buffer's other checks, in the order of the rule.
                    Some(e) => {
                        let at = |f: &dyn Fn(&WrittenOption) -> bool| written.iter().position(f);
                        let of_buffer = |o: &WrittenOption| o.buffer.is_some_and(|b| b.internal == name);
                        let first = at(&|o| o.keyword == item.name) < at(&of_buffer);
                        e.items.insert(if first { 0 } else { e.items.len() }, item.clone());
                    }
                    None => add(&mut made, name, place, &item),
                }
            }
        }
        if self.rule.stores_files() {
            let size = Check::File(FileCheck::Size(Compare::GreaterEqual(0)));
            for place in self.scope.of_check(&size) {
                add(&mut made, "files", place, &Item::plain("filestore"));
            }
        }
        self.engines.append(&mut made);
    }

    /// Creates the list of packet checks.
    fn checks(&mut self) {
        let alone = |f: &FlowCheck| FlowCheck { side: None, ..*f } == FlowCheck::default();
        let list: Vec<Item> = self
            .rule
            .checks
            .iter()
            .filter(|c| match c {
                // Directions and protocols are tested before any check.
                Check::Flow(f) => !alone(f),
                Check::IpProto(_) | Check::L3Proto(_) => false,
                c => !is_of_transaction(c) || items::check(c).name == "xbits",
            })
            .map(items::check)
            .collect();
        if !list.is_empty() {
            self.packet_engines.push(PacketEngine {
                name: "packet".to_owned(),
                is_mpm: false,
                transforms: Vec::new(),
                items: Vec::new(),
            });
            self.lists.insert(0, ("packet", list));
        }
    }

    /// Creates the lists of effects.
    fn lists_of_effects(&mut self) {
        let mut post: Vec<Item> = self.rule.effects.iter().filter_map(items::effect).collect();
        let captures = self.rule.buffers.iter().flat_map(|b| &b.checks).any(|c| match c {
            BufferCheck::Pcre(p) => !p.captures.is_empty(),
            _ => false,
        });
        if captures {
            post.push(Item::plain("__flowvar__postmatch__"));
        }
        let tags = self.rule.effects.iter().filter(|e| matches!(e, Effect::Tag(_))).map(|_| Item::plain("tag"));
        let tags: Vec<Item> = tags.collect();
        let thresholds: Vec<Item> =
            self.rule.thresholds.iter().map(|t| Item::plain(items::threshold(t.kind))).collect();
        for (name, list) in [("postmatch", post), ("tag", tags), ("threshold", thresholds)] {
            if !list.is_empty() {
                self.lists.push((name, list));
            }
        }
    }
}

/// Whether an engine belongs to an option of the rule's text.
fn names(o: &WrittenOption, e: &Engine) -> bool {
    e.items.iter().any(|i| i.name == o.keyword) || o.buffer.is_some_and(|b| b.name == e.name || b.internal == e.name)
}

/// Adds a check to the engine with this name and place, which is created if needed.
fn add(engines: &mut Vec<Engine>, name: &str, place: Place, item: &Item) {
    match engines.iter_mut().find(|e| e.name == name && e.place == place) {
        Some(e) => e.items.push(item.clone()),
        None => engines.push(Engine {
            name: name.to_owned(),
            place,
            is_mpm: false,
            transforms: Vec::new(),
            items: vec![item.clone()],
        }),
    }
}

/// Whether an expression selects an HTTP buffer by one of its option letters.
fn http_pcre(value: &str) -> bool {
    let tail = value.trim_end_matches('"').rsplit_once('/').map_or("", |t| t.1);
    tail.split(',').next().unwrap_or_default().contains(['U', 'I', 'P', 'H', 'D', 'M', 'C', 'S', 'Y', 'V', 'W', 'Z'])
}

fn position(b: &BufferChecks, content: &Content) -> Option<usize> {
    b.checks.iter().position(|c| matches!(c, BufferCheck::Content(c) if c == content))
}

/// The rule's prefilter literal. If it has only negated ones, the longest of these.
fn choose(rule: &Rule) -> Option<Mpm> {
    let (buffer, check, bytes) = match fast_pattern::of_rule(rule) {
        Some(f) => (f.buffer, f.check, f.bytes),
        None => {
            let app = rule.buffers.iter().any(|b| b.app);
            let literals =
                rule.buffers.iter().enumerate().filter(|(_, b)| b.app == app && b.absent.is_none()).flat_map(
                    |(i, b)| {
                        b.checks.iter().enumerate().filter_map(move |(k, c)| match c {
                            BufferCheck::Content(c) => Some((i, k, c)),
                            _ => None,
                        })
                    },
                );
            let best = literals.reduce(|a, b| if b.2.bytes.len() > a.2.bytes.len() { b } else { a })?;
            (best.0, best.1, best.2.bytes.clone())
        }
    };
    let b = rule.buffers.get(buffer)?;
    let Some(BufferCheck::Content(content)) = b.checks.get(check) else { return None };
    let name = if is_payload(&b.buffer) { "payload".to_owned() } else { engines::engine_name(b) };
    Some(Mpm {
        buffer,
        name,
        content: content.clone(),
        bytes,
        relative_next: items::relative_next(&b.checks).get(check).copied().unwrap_or(false),
        frame: b.buffer.starts_with("frame:"),
    })
}

/// Rewrites `filename`, `fileext` and `filemagic` as literals in file buffers.
fn files_as_buffers(rule: &mut Rule) {
    let checks = std::mem::take(&mut rule.checks);
    for c in checks {
        let literal = if let Check::File(f) = &c { f.as_buffer() } else { None };
        match literal {
            Some(b) => rule.buffers.push(b),
            None => rule.checks.push(c),
        }
    }
}

/// A relative literal with nothing to be relative to starts at the beginning, and a literal with nothing after it ends the
/// buffer. Returns the resulting keywords, `depth` before `offset`.
fn first_places(checks: &mut Vec<BufferCheck>) -> Vec<&'static str> {
    let mut became = Vec::new();
    let matches = |c: &BufferCheck| {
        !matches!(
            c,
            BufferCheck::Bsize(_)
                | BufferCheck::Entropy { .. }
                | BufferCheck::Asn1(_)
                | BufferCheck::Lua(_)
                | BufferCheck::Judge(_)
                | BufferCheck::Other { .. }
        )
    };
    let first = checks.iter().position(matches);
    if let Some(BufferCheck::Content(c)) = first.and_then(|i| checks.get_mut(i)) {
        let known = |v: &Option<Value>| !matches!(v, Some(Value::Variable(_)));
        if known(&c.distance) && known(&c.within) {
            let number = |v: Option<Value>| if let Some(Value::Number(n)) = v { Some(n) } else { None };
            if let Some(n) = number(c.within.take()) {
                c.depth = Some(Value::Number(n));
                became.push("depth");
            }
            if let Some(n) = number(c.distance.take()) {
                c.offset = (n > 0).then_some(Value::Number(n));
                became.push("offset");
            }
        }
    }
    let mut i = 1;
    while i < checks.len() {
        let ends = matches!(
            checks.get(i),
            Some(BufferCheck::IsDataAt { at: Value::Number(1), relative: true, negated: true })
        );
        match checks.get_mut(i - 1) {
            Some(BufferCheck::Content(c)) if ends => {
                c.ends_with = true;
                checks.remove(i);
            }
            _ => i += 1,
        }
    }
    became
}
