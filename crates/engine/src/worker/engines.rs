//! A worker's detection engines: chooses the rules for each packet, and replaces them at a reload.
//!
//! The worker keeps the state of each engine. The current packet's engine is in [`Stages::detect`], and the others are parked
//! here. Without tenants there is one engine, and a packet costs one comparison of two numbers: the rule set that last
//! inspected its flow, and the one that will inspect it ([`Stages::at_flow`]). For a reload, the loading thread builds the
//! new state ([`Install`]). The worker moves its own state into it, and returns the rest ([`Retired`]) for another thread to
//! drop.

use std::collections::HashMap;
use std::sync::Arc;

use margay_app::file::FileWants;
use margay_app::frame::FrameKinds;
use margay_detect::{Detect, DetectState, InOrder, RulesMark};
use margay_flow::{Direction, Flow};
use margay_packet::Packet;

use super::{FlowExt, Stages};
use crate::Failed;
use crate::engines::EngineSet;
use crate::rules::RuleTexts;
use crate::settings::Selector;
use crate::watching::{self, Watching};

/// Packet order among workers. It also learns the rules that the worker uses.
pub(crate) trait PacketOrder: InOrder {
    /// The worker uses these rules from now on.
    fn rules(&self, detect: &Arc<Detect>);
}

/// Rules, with a worker's state for matching them.
pub(crate) type Engine = (Arc<Detect>, DetectState);

/// An engine that does not inspect the current packet.
#[derive(Debug, Default)]
struct Parked {
    /// 0 stands for the engine's own rules.
    tenant: u32,
    mark: RulesMark,
    engine: Option<Engine>,
    texts: Arc<RuleTexts>,
}

/// The active engine's owner, and the parked engines.
#[derive(Debug, Default)]
pub(crate) struct Engines {
    /// The set that was last installed.
    pub(crate) set: Arc<EngineSet>,
    /// The rules that inspect the current packet.
    mark: RulesMark,
    /// The engine's own rules first, then tenants in order. The place of the active engine is empty.
    parked: Vec<Parked>,
    current: usize,
    /// Whether there are tenants, or may be later.
    multi: bool,
    /// The tenant of everything, if a capture file was submitted for one tenant.
    pub(crate) direct: u32,
    /// The interface that packets come from, and the interface's tenant.
    interface: Option<String>,
    of_interface: u32,
}

/// Everything a worker needs to switch to another set of engines.
pub(crate) struct Install {
    pub(crate) set: Arc<EngineSet>,
    /// State for new rules, by their serial number.
    pub(crate) states: HashMap<u64, DetectState>,
    /// The requirements of rules for the application layer.
    pub(crate) wants: AppWants,
}

/// The requirements of rules and logs for the application layer.
#[derive(Debug, Clone)]
pub(crate) struct AppWants {
    pub(crate) files: FileWants,
    pub(crate) frames: FrameKinds,
    pub(crate) arguments: bool,
    pub(crate) ssh: margay_app::ssh::Config,
    pub(crate) tls: margay_app::tls::Config,
}

/// Objects that a worker no longer needs, for another thread to drop.
#[derive(Default)]
pub(crate) struct Retired {
    engines: Vec<Engine>,
    states: HashMap<u64, DetectState>,
    texts: Vec<Arc<RuleTexts>>,
    set: Arc<EngineSet>,
}

impl Install {
    /// Builds the state for one worker. With `several` workers, they share counters. `known` says which rules the worker
    /// already has.
    ///
    /// # Errors
    /// A matcher cannot allocate its memory.
    pub(crate) fn new(
        set: Arc<EngineSet>,
        known: &EngineSet,
        wants: AppWants,
        watching: &Watching,
        several: bool,
    ) -> Result<Install, Failed> {
        let mut states = HashMap::new();
        for (_, loaded) in set.all() {
            if let Some(d) = &loaded.detect
                && known.all().all(|(_, l)| !Arc::ptr_eq(l, loaded))
            {
                let mut state = watching::state(d, watching)?;
                if several {
                    state.share(d);
                }
                states.insert(d.serial(), state);
            }
        }
        Ok(Install { set, states, wants })
    }
}

impl Install {
    /// Replaces an install that the worker never took, and keeps its state for rules that both have.
    pub(crate) fn comes_after(&mut self, old: &mut Install) {
        let wanted: Vec<u64> = self.set.all().filter_map(|(_, l)| l.detect.as_ref()).map(|d| d.serial()).collect();
        for serial in wanted {
            if let Some(state) = old.states.remove(&serial) {
                self.states.entry(serial).or_insert(state);
            }
        }
    }
}

impl Engines {
    /// The tenant whose rules are active; 0 for the engine's own rules.
    pub(crate) fn tenant(&self) -> u32 {
        self.parked.get(self.current).map_or(0, |p| p.tenant)
    }

    /// Every engine except the active one.
    pub(crate) fn others(&self) -> impl Iterator<Item = &Engine> {
        self.parked.iter().filter_map(|p| p.engine.as_ref())
    }

    /// The tenant of a packet.
    pub(super) fn tenant_of(&self, packet: &Packet<'_>) -> u32 {
        if self.direct != 0 {
            return self.direct;
        }
        match self.set.mappings.selector {
            Selector::Vlan => {
                let vlan = packet.vlans.as_slice().first();
                vlan.and_then(|v| self.set.mappings.vlans.get(v)).copied().unwrap_or(0)
            }
            // A capture file has no interface.
            Selector::Device => self.of_interface,
            Selector::Direct => 0,
        }
    }
}

impl Engines {
    fn find_interface(&mut self) {
        let tenant = self.interface.as_ref().and_then(|i| self.set.mappings.devices.get(i));
        self.of_interface = tenant.copied().unwrap_or(0);
    }
}

impl Stages {
    /// Sets the interface that packets come from, for tenants that are selected by interface.
    pub(crate) fn set_interface(&mut self, interface: &str) {
        if self.engines.interface.as_deref() == Some(interface) {
            return;
        }
        self.outputs.set_interface(interface);
        let name = self.engines.interface.get_or_insert_default();
        name.clear();
        name.push_str(interface);
        self.engines.find_interface();
    }

    /// Installs another set of engines. This happens between two packets, and only moves values.
    pub(crate) fn install(&mut self, mut new: Install) -> Retired {
        let mut retired = Retired::default();
        let tenant = self.engines.tenant();
        self.park();
        let mut old = std::mem::take(&mut self.engines.parked);
        let mut parked = Vec::with_capacity(1 + new.set.tenants.len());
        for (id, loaded) in new.set.all() {
            let was = old.iter().position(|p| p.tenant == id).map(|i| old.swap_remove(i));
            let mut was = was.unwrap_or(Parked { tenant: id, ..Parked::default() });
            let wanted = loaded.detect.as_ref().filter(|_| id != 0 || !new.set.no_default);
            let same = was.engine.as_ref().map(|(d, _)| d.serial()) == wanted.map(|d| d.serial());
            if !same {
                let mut before = was.engine.take();
                if let Some(d) = wanted
                    && let Some(mut state) = new.states.remove(&d.serial())
                {
                    if let Some((_, b)) = &mut before {
                        state.take_over(b, d, was.mark);
                    }
                    was.engine = Some((Arc::clone(d), state));
                }
                was.mark = was.engine.as_ref().map(|(d, _)| d.mark()).unwrap_or_default();
                retired.engines.extend(before);
            }
            retired.texts.push(std::mem::replace(&mut was.texts, Arc::clone(&loaded.texts)));
            parked.push(was);
        }
        for gone in old {
            retired.engines.extend(gone.engine);
            retired.texts.push(gone.texts);
        }
        retired.states = new.states;
        self.engines.multi = new.set.multi;
        retired.set = std::mem::replace(&mut self.engines.set, new.set);
        self.engines.find_interface();
        self.engines.parked = parked;
        self.engines.current = 0;
        self.unpark();
        self.firewall = self.detect.as_ref().is_some_and(|(d, _)| d.is_firewall());
        self.select(tenant);
        self.want(&new.wants);
        self.keep_order();
        retired
    }

    /// From now on, counters that several workers share are updated in packet order.
    pub(crate) fn set_order(&mut self, order: Arc<dyn PacketOrder>) {
        self.order = Some(order);
        self.keep_order();
    }

    fn keep_order(&mut self) {
        let Some(order) = &self.order else { return };
        if let Some((detect, _)) = &self.detect {
            order.rules(detect);
        }
        let in_order: Arc<dyn InOrder> = Arc::clone(order) as _;
        let parked = self.engines.parked.iter_mut().filter_map(|p| p.engine.as_mut());
        for (_, state) in self.detect.as_mut().into_iter().chain(parked) {
            state.in_order(&in_order);
        }
    }

    fn want(&mut self, wants: &AppWants) {
        let shows_bodies =
            self.app.options.iter().any(|o| o.http_body || o.http_body_printable) || self.scripts.active();
        // A reload may add rules that inspect the beginning of a body.
        let bodies = shows_bodies || self.detect.is_some();
        let files = &mut self.app.shared.files;
        files.wants = FileWants { bodies, ..wants.files };
        files.spare_checksums = !wants.files.events && !self.outputs.wants(margay_output::event::EventType::Anomaly);
        let frames = &mut self.app.shared.frames;
        frames.inspected = wants.frames.clone();
        frames.logged = self.outputs.wants(margay_output::event::EventType::Frame);
        if let Some(config) = Arc::get_mut(&mut self.app.config) {
            config.arguments = wants.arguments.then_some(config.argument_limits);
            config.ssh = wants.ssh;
            config.tls = wants.tls.clone();
        }
    }

    fn park(&mut self) {
        if let Some(p) = self.engines.parked.get_mut(self.engines.current) {
            p.engine = self.detect.take();
            std::mem::swap(&mut p.texts, &mut self.texts);
        }
    }

    fn unpark(&mut self) {
        if let Some(p) = self.engines.parked.get_mut(self.engines.current) {
            self.detect = p.engine.take();
            std::mem::swap(&mut p.texts, &mut self.texts);
            self.engines.mark = p.mark;
            self.outputs.set_tenant(p.tenant);
            self.app.record.set_tenant(p.tenant);
        }
    }

    /// Selects a tenant's rules for the next packets, or the engine's own if there is no such tenant.
    pub(super) fn select(&mut self, tenant: u32) {
        if self.engines.tenant() == tenant {
            return;
        }
        let parked = &self.engines.parked;
        let at = parked.binary_search_by_key(&tenant, |p| p.tenant).unwrap_or(0);
        if at != self.engines.current {
            self.park();
            self.engines.current = at;
            self.unpark();
        }
    }

    /// Selects the rules for a packet without a flow.
    #[inline]
    pub(super) fn at_packet(&mut self, packet: &Packet<'_>) {
        if self.engines.multi {
            let tenant = self.engines.tenant_of(packet);
            self.select(tenant);
        }
    }

    /// Prepares a flow for inspection: selects its tenant's rules. If other rules inspected it last, it converts their state.
    #[inline]
    pub(super) fn at_flow(&mut self, flow: &mut Flow<FlowExt>) {
        if self.engines.multi {
            self.select(flow.ext.tenant);
        }
        if flow.ext.rules.serial != self.engines.mark.serial {
            self.bring(flow);
        }
    }

    /// Whether this worker's rules for a tenant are older than the rules that inspected the flow.
    pub(super) fn is_older(&mut self, tenant: u32, than: RulesMark) -> bool {
        if self.engines.multi {
            self.select(tenant);
        }
        self.engines.mark.serial < than.serial
    }

    #[cold]
    fn bring(&mut self, flow: &mut Flow<FlowExt>) {
        let from = std::mem::replace(&mut flow.ext.rules, self.engines.mark);
        let Some((detect, _)) = &self.detect else { return };
        // A new flow has no state.
        if from.serial == 0 {
            return;
        }
        detect.bring_vars(from, &mut flow.core.vars);
        let Some(app) = flow.ext.app.as_deref_mut() else { return };
        app.mark_all_dirty();
        for parser in app.session.parsers_mut() {
            let mut next = 0;
            while let Some(id) = parser.next_tx(next) {
                next = id + 1;
                if let Some(tx) = parser.tx_mut(id) {
                    detect.bring_tx(from, tx.base_mut());
                }
            }
        }
        for dir in [Direction::ToServer, Direction::ToClient] {
            detect.bring_frames(from, app.frames.of_mut(dir));
        }
        if self.app.shared.frames.inspected.is_empty() && !app.frames.is_empty() {
            // The rules that the frames were kept for are gone.
            app.frames.set_inspected();
            if let Some(tcp) = flow.ext.tcp.as_deref_mut() {
                tcp.keep(Direction::ToServer, None);
                tcp.keep(Direction::ToClient, None);
            }
        }
    }
}

/// Bytes that one bit of a host is assumed to need.
const HOST_BIT: u64 = 256;

impl Stages {
    /// The engine's own rules with their state, even if a tenant's rules are active.
    pub(crate) fn own(&mut self) -> Option<&mut Engine> {
        if self.engines.tenant() == 0 { self.detect.as_mut() } else { self.engines.parked.first_mut()?.engine.as_mut() }
    }

    /// The memory limits for bits of hosts and for bits of pairs, in bytes.
    pub(crate) fn host_memcaps(&self) -> [u64; 2] {
        let any = self.detect.iter().chain(self.engines.others()).next();
        any.map_or([0; 2], |(_, s)| s.hosts().limits().map(|n| n as u64 * HOST_BIT))
    }

    /// Changes one of these limits by its index. Returns `false` if there is no such limit.
    pub(crate) fn set_host_memcap(&mut self, which: usize, bytes: u64) -> bool {
        let limit = usize::try_from(bytes / HOST_BIT).unwrap_or(usize::MAX).max(1);
        let parked = self.engines.parked.iter_mut().filter_map(|p| p.engine.as_mut());
        let mut any = false;
        for (_, state) in self.detect.as_mut().into_iter().chain(parked) {
            let mut limits = state.hosts().limits();
            if let Some(l) = limits.get_mut(which) {
                *l = limit;
                any = true;
            }
            state.hosts_mut().set_limits(limits);
        }
        any
    }
}
