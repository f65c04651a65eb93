//! Detection engines: the engine's own rules and those of tenants, loaded and activated together.
//!
//! An [`EngineSet`] never changes. A reload, or a new or removed tenant, creates another set, which workers take between two
//! batches (`worker::engines`). Both sets share the parts that are the same.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use margay_app::Extra;
use margay_app::file::FileWants;
use margay_app::frame::FrameKinds;
use margay_config::{Capture, Config, ConfigError, RunOptions};
use margay_detect::DetectConfig;
use margay_detect::dataset::Datasets;
use margay_output::event::EngineStats;
use margay_output::{info, warning};

use crate::Failed;
use crate::rules::{self, Loaded, Source};
use crate::settings::{self, Mappings, Selector, TenantSettings};

/// A tenant.
#[derive(Debug, Clone)]
pub(crate) struct Tenant {
    pub(crate) id: u32,
    /// Its configuration file.
    pub(crate) yaml: PathBuf,
    pub(crate) loaded: Arc<Loaded>,
}

/// All engines, and the mappings from packets to tenants.
#[derive(Debug, Clone, Default)]
pub(crate) struct EngineSet {
    pub(crate) default: Arc<Loaded>,
    /// Whether there are tenants, or may be later.
    pub(crate) multi: bool,
    /// Whether packets without a tenant are not inspected.
    pub(crate) no_default: bool,
    /// Sorted by id.
    pub(crate) tenants: Vec<Tenant>,
    pub(crate) mappings: Mappings,
}

impl EngineSet {
    /// The tenant with that id.
    pub(crate) fn tenant(&self, id: u32) -> Option<&Tenant> {
        self.tenants.binary_search_by_key(&id, |t| t.id).ok().and_then(|i| self.tenants.get(i))
    }

    /// Adds a tenant, or replaces the one with its id.
    pub(crate) fn put(&mut self, tenant: Tenant) {
        match self.tenants.binary_search_by_key(&tenant.id, |t| t.id) {
            Ok(i) => self.tenants[i] = tenant,
            Err(i) => self.tenants.insert(i, tenant),
        }
    }

    /// All engines with their tenant ids; 0 stands for the engine's own.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, &Arc<Loaded>)> {
        std::iter::once((0, &self.default)).chain(self.tenants.iter().map(|t| (t.id, &t.loaded)))
    }

    /// Engine data for statistics.
    pub(crate) fn stats(&self) -> Vec<EngineStats> {
        let stats = |(id, l): (u32, &Arc<Loaded>)| EngineStats {
            id,
            last_reload: l.at,
            rules_loaded: l.counts.loaded,
            rules_failed: l.counts.failed,
            rules_skipped: l.counts.skipped,
        };
        self.all().map(stats).collect()
    }

    /// The datasets of all engines.
    pub(crate) fn datasets(&self) -> Datasets {
        Datasets::all_of(self.all().filter_map(|(_, l)| l.detect.as_ref()).map(|d| d.datasets()))
    }

    /// The requirements of rules for file analysis.
    pub(crate) fn file_wants(&self) -> FileWants {
        let detects = self.all().filter_map(|(_, l)| l.detect.as_ref());
        detects.map(|d| d.file_wants()).fold(FileWants::NONE, FileWants::or)
    }

    /// The frames that rules inspect.
    pub(crate) fn frame_kinds(&self) -> FrameKinds {
        let mut kinds = FrameKinds::default();
        self.all().filter_map(|(_, l)| l.detect.as_ref()).for_each(|d| kinds.add_all(&d.frame_kinds()));
        kinds
    }

    /// Whether rules need what parsers compute only on demand.
    pub(crate) fn uses(&self, extra: Extra) -> bool {
        self.all().any(|(_, l)| l.detect.as_ref().is_some_and(|d| d.uses(extra)))
    }
}

/// The settings for loading engines, without the previous engines.
#[derive(Clone, Copy)]
pub(crate) struct Loading<'a> {
    pub(crate) config: &'a Config,
    pub(crate) options: &'a RunOptions,
    pub(crate) ips: bool,
    pub(crate) dir: &'a Path,
    /// Whether rule trees are kept.
    pub(crate) trees: bool,
}

/// The detection settings of a run.
pub(crate) fn detection(config: &Config, options: &RunOptions) -> Result<DetectConfig, ConfigError> {
    let mut settings = settings::detect(config)?;
    if options.no_cache {
        settings.cache = None;
    }
    Ok(settings)
}

/// Loads the engine's own rules and those of all tenants: the configured tenants, and the additional ones of `previous`.
///
/// # Errors
/// Any of them cannot be loaded.
pub(crate) fn load(with: &Loading<'_>, previous: Option<&EngineSet>) -> Result<EngineSet, Failed> {
    let Loading { config, options, ips, dir, trees } = *with;
    let settings = detection(config, options)?;
    let tenancy = settings::tenants(config)?;
    if tenancy.enabled && settings::is_firewall(config, options)? {
        return Err(Failed::new("multi-detect", "firewall mode has no tenants: its rules hold for every packet"));
    }
    let pool = previous.map(EngineSet::datasets);
    let source = Source {
        config,
        rules: config,
        options,
        ips,
        settings: &settings,
        dir,
        tenant: false,
        previous: previous.map(|p| &*p.default),
        sets: pool.as_ref(),
        explain: trees,
    };
    let default = Arc::new(rules::load(&source)?);
    let mut set = EngineSet {
        default,
        multi: tenancy.enabled,
        no_default: tenancy.enabled && !tenancy.default,
        tenants: Vec::new(),
        mappings: tenancy.mappings.clone(),
    };
    if tenancy.enabled {
        load_tenants(with, &tenancy, previous, &mut set)?;
    }
    Ok(set)
}

fn load_tenants(
    with: &Loading<'_>,
    tenancy: &TenantSettings,
    previous: Option<&EngineSet>,
    set: &mut EngineSet,
) -> Result<(), Failed> {
    let mut wanted = tenancy.tenants.clone();
    // Tenants that were registered at run time stay, with their mappings.
    if let Some(old) = previous {
        wanted.extend(
            old.tenants.iter().filter(|t| tenancy.tenants.iter().all(|w| w.0 != t.id)).map(|t| (t.id, t.yaml.clone())),
        );
        set.mappings.vlans = old.mappings.vlans.clone();
        set.mappings.vlans.extend(&tenancy.mappings.vlans);
    }
    let mut pool = Datasets::all_of([&set.datasets(), &previous.map(EngineSet::datasets).unwrap_or_default()]);
    for chunk in wanted.chunks(tenancy.loaders) {
        let loaded: Vec<Result<Tenant, Failed>> = std::thread::scope(|scope| {
            let read = |(id, yaml): &(u32, PathBuf)| {
                let (id, yaml) = (*id, yaml.clone());
                let (pool, before) = (&pool, previous.and_then(|p| p.tenant(id)));
                // Scripts are loaded with the rules.
                std::thread::Builder::new()
                    .stack_size(margay_lua::STACK)
                    .spawn_scoped(scope, move || load_tenant(with, id, yaml, before, pool))
            };
            let threads: Vec<_> = chunk.iter().map(read).collect();
            let gone = || Failed::new("multi-detect", "a thread that loads rules stopped");
            let none = |e| Failed::new("multi-detect", format!("cannot start a thread that loads rules: {e}"));
            let wait = |t: std::thread::ScopedJoinHandle<'_, Result<Tenant, Failed>>| t.join();
            threads.into_iter().map(|t| wait(t.map_err(none)?).unwrap_or_else(|_| Err(gone()))).collect()
        });
        for tenant in loaded {
            let mut tenant = tenant?;
            // Datasets with the same name are shared. Tenants that were loaded at the same time did not see each other's
            // datasets, so this tenant is loaded again with them.
            let sets = |t: &Tenant| t.loaded.detect.as_ref().is_some_and(|d| d.datasets().doubles(&pool));
            if sets(&tenant) {
                let before = previous.and_then(|p| p.tenant(tenant.id));
                tenant = load_tenant(with, tenant.id, tenant.yaml, before, &pool)?;
            }
            if let Some(d) = &tenant.loaded.detect {
                pool = Datasets::all_of([&pool, d.datasets()]);
            }
            set.put(tenant);
        }
    }
    let files = matches!(with.options.capture, Some(Capture::File(_) | Capture::UnixSocket(_)));
    if set.mappings.selector == Selector::Device && files && previous.is_none() {
        warning!("multi-detect", "selector device: capture files have no interface: no packet of theirs is a tenant's");
    }
    if set.mappings.vlans.is_empty() && set.mappings.devices.is_empty() && previous.is_none() {
        info!("multi-detect", "there are no mappings: packets belong to no tenant until mappings are registered");
    }
    Ok(())
}

/// Loads a tenant, and replaces `before` if there is one.
///
/// # Errors
/// Its file or its rules cannot be loaded.
pub(crate) fn load_tenant(
    with: &Loading<'_>,
    id: u32,
    yaml: PathBuf,
    before: Option<&Tenant>,
    pool: &Datasets,
) -> Result<Tenant, Failed> {
    let Loading { config, options, ips, dir, trees } = *with;
    let own = settings::tenant_config(id, &yaml, &options.sets)?;
    let settings = detection(config, options)?;
    info!("multi-detect", "loading tenant {id}: {}", yaml.display());
    let source = Source {
        config,
        rules: &own,
        options,
        ips,
        settings: &settings,
        dir,
        tenant: true,
        previous: before.map(|t| &*t.loaded),
        sets: Some(pool),
        explain: trees,
    };
    let loaded = rules::load(&source).map_err(|f| Failed::new(f.module, format!("tenant {id}: {}", f.message)))?;
    Ok(Tenant { id, yaml, loaded: Arc::new(loaded) })
}
