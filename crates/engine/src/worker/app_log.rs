//! Logs a flow's transactions, with their files and events, when they are complete, and frees those that are no longer
//! needed.

use margay_app::certificates::Occasion;
use margay_app::session::SessionEvent;
use margay_app::{AppProto, Protocol, Transaction, TxBase, protocol};
use margay_flow::{Direction, Flow, FlowCore};
use margay_output::event::{self, Anomaly, AnomalyEvent, AppEvent, AppProtos, EventType, Forwarded, Header};
use margay_packet::{Packet, PacketSource};

use super::app::{DIRECTIONS, names};
use super::app_feed::is_over;
use super::engines::Engine;
use super::fileinfo::towards;
use super::log::{HeldVars, addresses};
use super::scripts::{self, ScriptContext};
use super::{FlowExt, Stages};

impl Stages {
    /// Logs the protocol detection events of a packet.
    #[inline]
    pub(super) fn log_recognition(&mut self, p: &Packet<'_>, flow: &Flow<FlowExt>, events: u8) {
        if events != 0 && self.outputs.wants(EventType::Anomaly) {
            self.log_session_events(p, flow, events);
        }
    }

    #[cold]
    fn log_session_events(&mut self, p: &Packet<'_>, flow: &Flow<FlowExt>, events: u8) {
        let held = match &self.detect {
            Some((detect, _)) => HeldVars::of(detect, Some(&flow.core), None),
            None => HeldVars::default(),
        };
        let header = Header {
            flow_id: Some(flow.core.id),
            parent_id: flow.ext.parent,
            pcap_filename: self.file.as_deref(),
            vars: held.vars(),
            ..Header::of(p)
        };
        let proto = flow.ext.app.as_ref().and_then(|a| a.names().proto);
        for e in SessionEvent::ALL.iter().filter(|e| events & e.bit() != 0) {
            self.outputs.anomaly(&AnomalyEvent {
                header,
                anomaly: Anomaly::AppLayer {
                    event: &e.name().to_ascii_uppercase(),
                    app_proto: proto.unwrap_or("unknown"),
                    layer: "proto_detect",
                },
                tx_id: None,
                packet: Some(p),
            });
        }
    }

    /// Logs the progress of a flow's transactions, and frees those that are no longer needed; at the `end` of the flow, all
    /// of them. `inspected` says whether rules inspected `p`. Only then do the variables that rules last captured belong to
    /// `p`.
    #[inline]
    pub(super) fn log_app(&mut self, p: &Packet<'_>, flow: &mut Flow<FlowExt>, end: bool, inspected: bool) {
        let passed = flow.core.action.is_unwatched(self.ips);
        let Some(app) = flow.ext.app.as_deref_mut() else { return };
        let detects = self.detect.is_some() && !passed;
        // No later packet can log its files.
        let over = end || flow.ext.tcp.as_deref().is_some_and(is_over);
        if over != std::mem::replace(&mut app.over, over) {
            app.session.wake();
        }
        if !app.session.take_dirty() && app.quiet == Some(detects) && !over {
            return;
        }
        app.quiet = None;
        if app.session.has_txs() {
            self.log_txs(p, flow, (end, over), (detects, inspected));
        }
    }

    /// Like [`Stages::log_app`], for a flow whose transactions may have changed.
    fn log_txs(
        &mut self,
        p: &Packet<'_>,
        flow: &mut Flow<FlowExt>,
        (end, over): (bool, bool),
        (detects, inspected): (bool, bool),
    ) {
        // Over UDP, no packet carries what the end leaves incomplete (as in Suricata).
        let udp = flow.core.proto == 17;
        let closed = end || (over && flow.ext.tcp.as_deref().is_some_and(|t| !t.was_reset()));
        let Some(app) = flow.ext.app.as_deref_mut() else { return };
        let (mut storing, mut freed) = (false, false);
        // Files that are being stored need attention with every packet.
        let mut quiet = self.app.config.files.store.is_none() && self.app.shared.certificates.dir.is_none();
        let (core, parent, protocols) = (&flow.core, flow.ext.parent, scripts::protocols(app));
        // Most packets have nothing to log.
        let shown = app.shown();
        // If the packet has no data of the new protocol, the packet itself supplies the event's fields.
        let flushed = app.session.is_changing() && !end && !p.payload().is_empty();
        let about = || About { core, parent, packet: p, inspected, flushed, shown, protocols };
        let mut gone = std::mem::take(&mut self.scratch.gone);
        for parser in app.session.parsers_mut() {
            let Some(protocol) = protocol(parser.proto()) else { continue };
            let complete = protocol.complete();
            // Returns whether the transaction rests from now on.
            let mut visit = |id: u64, tx: &mut dyn Transaction| {
                let base = tx.base();
                let whole = base.progress[0] >= complete[0] && base.progress[1] >= complete[1];
                let inspected = !detects || base.detect.iter().all(|d| d.done);
                let mut free = end || (whole && inspected);
                if !base.files.is_empty() {
                    storing |= base.files.is_storing();
                    let open = DIRECTIONS.iter().any(|d| base.files.is_open(*d));
                    self.log_tx_files(&about, (core, p), tx, over || (free && open));
                    // A file is logged with a packet of its own direction.
                    let due = tx.base().files.due_for_log().next().is_some();
                    free &= !due;
                    quiet &= !due;
                }
                let base = tx.base();
                let certificates = base.store_certificates != [false; 2];
                // After both FINs, nothing can complete a transaction. After a reset, it is logged at the end of the flow.
                let logs = !base.logged && (closed && (!udp || protocol.is_own) || tx.is_loggable(whole));
                if base.events.has_new() {
                    self.log_tx_events(&about, protocol, tx);
                }
                if certificates {
                    let occasion = Occasion {
                        flow: core,
                        time: p.time,
                        number: Some(p.number).filter(|n| *n > 0 && self.file.is_some()),
                    };
                    for dir in DIRECTIONS {
                        let due = tx.base().store_certificates[dir.index()];
                        if due && tx.store_certificates(dir, &mut self.app.shared.certificates, &occasion) {
                            tx.base_mut().store_certificates[dir.index()] = false;
                        }
                    }
                }
                if logs {
                    self.log_tx(&about(), protocol, tx);
                }
                if free {
                    gone.push(id);
                }
                free || quiet && is_at_rest(tx.base(), detects)
            };
            if end {
                let mut from = 0;
                while let Some(id) = parser.next_tx(from) {
                    from = id + 1;
                    if let Some(tx) = parser.tx_mut(id) {
                        visit(id, tx);
                    }
                }
            } else {
                parser.visit_awake(&mut visit);
            }
            freed |= !gone.is_empty();
            for id in gone.drain(..) {
                parser.free_tx(&mut self.app.shared, id);
            }
        }
        self.scratch.gone = gone;
        // The parser may be gone; its memory is no longer accounted.
        if app.session.tidy() || freed {
            self.app.account(app);
        }
        app.quiet = quiet.then_some(detects);
        if storing && let Some(tcp) = flow.ext.tcp.as_deref_mut() {
            let depth = self.app.config.files.store_depth();
            // A parser's own request for depth applies if it is larger.
            let deepest =
                app.wishes.stream_depth.map_or(depth, |w| if w == 0 || depth == 0 { 0 } else { w.max(depth) });
            tcp.set_depth(deepest);
        }
    }

    /// Frees the remaining transactions of a flow that is over, without logging them.
    pub(super) fn discard_app(&mut self, flow: &mut Flow<FlowExt>) {
        let Some(app) = flow.ext.app.as_deref_mut() else { return };
        for parser in app.session.parsers_mut() {
            let mut from = 0;
            while let Some(id) = parser.next_tx(from) {
                from = id + 1;
                if let Some(tx) = parser.tx_mut(id) {
                    tx.base_mut().files.finish(&mut self.app.shared.files, &self.app.config.files);
                    parser.free_tx(&mut self.app.shared, id);
                }
            }
        }
    }

    /// Logs the progress of a transaction's files: those of the packet's direction, or all files if the transaction is about
    /// to be `free`d.
    fn log_tx_files<'a>(
        &mut self,
        about: &impl Fn() -> About<'a>,
        (core, p): (&FlowCore, &Packet<'_>),
        tx: &mut dyn Transaction,
        free: bool,
    ) {
        let of_client = p.src == core.src && p.sport == core.sport;
        let way = if of_client { Direction::ToServer } else { Direction::ToClient };
        let only = (!free).then_some(way);
        if !self.app.files_due(tx, only) {
            return;
        }
        let about = about();
        let vars = about.vars(self.detect.as_ref());
        let header = about.header(&vars, self.file.as_deref());
        let scripts = (&mut self.scripts, self.detect.as_ref().map(|d| &*d.0), about.context());
        self.app.log_files(&mut self.outputs, &header, about.names().proto, tx, only, scripts);
    }

    /// Logs a transaction's new events.
    fn log_tx_events<'a>(&mut self, about: &impl Fn() -> About<'a>, protocol: &Protocol, tx: &mut dyn Transaction) {
        if !self.outputs.wants(EventType::Anomaly) {
            return;
        }
        let about = about();
        // Anomalies show the addresses of the packet that revealed them.
        let vars = about.vars(self.detect.as_ref());
        let header = about.header(&vars, self.file.as_deref()).with_ends_of(about.packet);
        let base = tx.base_mut();
        let id = base.id;
        if base.logged && protocol.anomalies_end {
            base.events.take_new();
            return;
        }
        for n in base.events.take_new() {
            let name = protocol.events.get(usize::from(*n)).copied().unwrap_or_default();
            self.outputs.anomaly(&AnomalyEvent {
                header,
                anomaly: Anomaly::AppLayer {
                    event: &protocol.anomaly_name(name),
                    app_proto: about.names().proto.unwrap_or_default(),
                    layer: "proto_parser",
                },
                tx_id: Some(id),
                packet: Some(about.packet),
            });
        }
    }

    /// Logs and counts a transaction.
    fn log_tx(&mut self, about: &About<'_>, protocol: &Protocol, tx: &mut dyn Transaction) {
        tx.base_mut().logged = true;
        let tx = &*tx;
        let [tcp, udp] = &mut self.app.shared.counters.txs;
        let txs = if about.core.proto == 17 { udp } else { tcp };
        if tx.is_counted()
            && let Some(n) = txs.get_mut(protocol.proto as usize)
        {
            *n += 1;
        }
        if self.scripts.active() && !tx.base().no_log {
            self.scripts.tx(&mut self.outputs, self.detect.as_ref().map(|d| &*d.0), about.context(), tx);
        }
        if let Some(kind) = protocol.log {
            self.log_as(about, kind, Some(protocol), tx, tx);
        }
        if let Some((kind, carried)) = tx.carried() {
            self.log_as(about, kind, None, tx, carried);
        }
    }

    /// Logs `of`, a transaction or a part of it, as an event of the protocol `kind`. `protocol` is that of the transaction.
    fn log_as(
        &mut self,
        about: &About<'_>,
        kind: AppProto,
        protocol: Option<&Protocol>,
        tx: &dyn Transaction,
        of: &dyn Transaction,
    ) {
        let kind = EventType::App(kind);
        if tx.base().no_log || !self.outputs.wants(kind) {
            return;
        }
        let options = &self.app.options;
        let vars = about.vars(self.detect.as_ref());
        let header = about.header(&vars, self.file.as_deref());
        let at_end = about.packet.source == PacketSource::StreamFlowTimeout;
        for way in [Direction::ToServer, Direction::ToClient] {
            // An output that is not JSON has no options there, and takes the event once.
            let alone = options.is_empty() && way == Direction::ToServer;
            if !alone && options.iter().all(|o| of.direction(o) != way) {
                continue;
            }
            let header = match protocol {
                // The packet made at a flow's end has the direction of the data.
                Some(p) if p.packet_addresses && !(at_end && way == Direction::ToClient) => {
                    header.with_ends_of(about.packet)
                }
                _ => towards(&header, way),
            };
            self.outputs.app(&AppEvent {
                kind,
                header,
                tx_id: protocol.is_some_and(|p| p.shows_tx).then_some((tx.base().id, false)),
                direction: None,
                xff: Some(Forwarded {
                    direction: match way {
                        Direction::ToServer => event::Direction::ToServer,
                        Direction::ToClient => event::Direction::ToClient,
                    },
                    find: &|header, forward| tx.forwarded_for(header, forward),
                }),
                records: &|n| options.get(n).filter(|o| of.direction(o) == way).map_or(0, |o| of.records(o)),
                fields: &|json, n, record| {
                    if let Some(o) = options.get(n) {
                        of.log_record(record, json, o);
                    }
                },
                ask: Some(&|protocol, what, arg| of.ask(protocol, what, arg)),
            });
        }
    }
}

/// Whether a transaction needs no work until its parser changes it: the rules that inspect the flow have inspected its
/// updates, and all its files are logged.
fn is_at_rest(base: &TxBase, detects: bool) -> bool {
    let looked = |d: Direction| !detects || !base.updated[d.index()] || base.detect[d.index()].done;
    DIRECTIONS.into_iter().all(looked) && base.files.due_for_log().next().is_none()
}

/// The data that the events of one packet's transactions share.
struct About<'a> {
    core: &'a FlowCore,
    parent: Option<u64>,
    packet: &'a Packet<'a>,
    /// Rules inspected the packet.
    inspected: bool,
    /// The flow is changing its protocol. Its transactions are logged first, as if with a packet of their own.
    flushed: bool,
    /// The protocols in the form that events show, and the expected one.
    shown: (margay_detect::checks::AppProtos, AppProto),
    /// The protocols in the form that scripts use.
    protocols: margay_detect::checks::AppProtos,
}

impl About<'_> {
    /// The names of the flow's protocols, which few events need.
    fn names(&self) -> AppProtos<'static> {
        names(self.shown)
    }

    /// The context of a script, except the transaction.
    fn context(&self) -> ScriptContext<'_> {
        ScriptContext { packet: Some(self.packet), flow: Some(self.core), app: self.protocols }
    }

    /// Variables that rules captured.
    fn vars<'s>(&'s self, detect: Option<&'s Engine>) -> HeldVars<'s> {
        match detect {
            Some((detect, state)) => {
                let of_packet = self.inspected.then(|| state.packet_vars());
                HeldVars::of(detect, Some(self.core), of_packet)
            }
            None => HeldVars::default(),
        }
    }

    /// The header of a transaction's event, with the addresses of the flow.
    fn header<'s>(&'s self, vars: &'s HeldVars<'_>, file: Option<&'s str>) -> Header<'s> {
        let of_packet = Header::of(self.packet);
        let to_server = self.packet.src == self.core.src && self.packet.sport == self.core.sport;
        let header = Header {
            flow_id: Some(self.core.id),
            parent_id: self.parent,
            pcap_filename: file,
            vars: vars.vars(),
            addresses: Some(addresses(self.core)),
            // They belong to the addresses, whichever side sent the packet.
            ether: if to_server { of_packet.ether } else { of_packet.ether.reversed() },
            ..of_packet
        };
        if self.flushed { header.flushed() } else { header }
    }
}
