//! Replaces the active rules.
//!
//! Everything is read and prepared off the packet path: the configuration file (its variables, rule files, datasets,
//! reputation, tenants), the files that it names, the matchers, and each worker's new memory for them. The active rules
//! change only when all of it succeeded. Otherwise the error is logged, and the old rules stay. [`margay_detect::lineage`]
//! describes what flows keep.
//!
//! If there are no more processors than workers, a reload takes time from the workers. It runs at a lower priority, so that
//! it takes little while they need it.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use margay_config::Config;
use margay_output::{error, notice};

use super::{Control, aside, held};
use crate::Failed;
use crate::engines::{self, EngineSet};
use crate::service::thread;
use crate::{settings, threads};

impl Control {
    /// Replaces the active engines with changed ones. Other changes wait. Returns the longest time for which this kept a
    /// worker busy.
    fn change(&self, change: impl FnOnce(&EngineSet) -> Result<EngineSet, Failed> + Send) -> Result<Duration, Failed> {
        let _changing = held(&self.changing);
        aside(|| self.replace(change(&self.engines())?))
    }

    /// Reads the configuration and all rules again, including those of tenants.
    ///
    /// # Errors
    /// The new rules cannot be used. The reason was logged.
    pub(crate) fn reload(&self) -> Result<(), Failed> {
        notice!("detect", "rule reload starting");
        let _reloading = self.service.get().map(|s| s.reloading());
        let reloaded = self.change(|old| {
            if self.options.disable_detection {
                return Err(Failed::new("detect", "detection is off (--disable-detection)"));
            }
            let config = settings::configuration(&self.options)?;
            self.may_become(&config, old)?;
            let new = engines::load(&self.loading(&config), Some(old))?;
            *self.rules_config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
            Ok(new)
        });
        match &reloaded {
            Ok(kept) => {
                let n: u64 = self.engines().all().map(|(_, l)| l.counts.loaded).sum();
                notice!(
                    "detect",
                    "rule reload complete: {n} rules; workers were kept for {} us at most",
                    kept.as_micros()
                );
            }
            Err(f) => error!(f.module, "rule reload failed, the rules in use stay: {}", f.message),
        }
        reloaded.map(drop)
    }

    /// Loads in a separate thread the rules that the start did not wait for. If they cannot be loaded, the engine stops:
    /// without rules, it would look as if nothing happened on the network.
    ///
    /// # Errors
    /// The thread cannot start.
    pub(crate) fn load_beside(self: &Arc<Self>) -> Result<(), Failed> {
        notice!("detect", "packets are not inspected until the rules are loaded (detect.delayed-detect)");
        let control = Arc::clone(self);
        thread("load", move || {
            let config = control.rules_config();
            match control.change(|_| engines::load(&control.loading(&config), None)) {
                Ok(_) => {
                    let n: u64 = control.engines().all().map(|(_, l)| l.counts.loaded).sum();
                    notice!("detect", "{n} rules are loaded: packets are inspected from here on");
                }
                Err(f) => {
                    error!(f.module, "the rules cannot be loaded, the engine stops: {}", f.message);
                    // Only this code sets it.
                    let _ = control.failed.set(f);
                    control.signals.ask_to_stop();
                }
            }
        })
    }

    /// Refuses changes that would need a restart, because they decide how the engine is built.
    fn may_become(&self, config: &Config, old: &EngineSet) -> Result<(), Failed> {
        let stays = |what: &str| {
            Err(Failed::new("detect", format!("{what} cannot be changed by a reload: restart the engine")))
        };
        if settings::is_firewall(config, &self.options)? != settings::is_firewall(&self.config, &self.options)? {
            return stays("firewall mode");
        }
        let tenancy = settings::tenants(config)?;
        if tenancy.enabled != old.multi || tenancy.mappings.selector != old.mappings.selector {
            return stays("multi-detect (enabled, selector)");
        }
        Ok(())
    }

    /// Reloads in the background. Returns `false` if a background reload is already running.
    ///
    /// # Errors
    /// The thread cannot start.
    pub(crate) fn reload_beside(self: &Arc<Self>) -> Result<bool, Failed> {
        if self.reloading.swap(true, Ordering::AcqRel) {
            return Ok(false);
        }
        let control = Arc::clone(self);
        let started = thread("reload", move || {
            // The result was logged.
            threads::once(|| control.reload());
            control.reloading.store(false, Ordering::Release);
        });
        if started.is_err() {
            self.reloading.store(false, Ordering::Release);
        }
        started.map(|()| true)
    }

    /// Loads a new tenant, or reloads one; without a file, from its current file.
    ///
    /// # Errors
    /// It cannot be loaded. Nothing changes in that case.
    pub(crate) fn load_tenant(&self, id: u32, yaml: Option<PathBuf>, new: bool) -> Result<(), Failed> {
        self.change(|old| {
            let before = old.tenant(id);
            let yaml = match (before, yaml, new) {
                (Some(_), _, true) => return Err(Failed::new("detect", format!("tenant {id} is registered already"))),
                (None, _, false) => return Err(Failed::new("detect", format!("there is no tenant {id}"))),
                (_, Some(yaml), _) => yaml,
                (Some(t), None, _) => t.yaml.clone(),
                (None, None, _) => return Err(Failed::new("detect", "a tenant needs a file")),
            };
            let config = self.rules_config();
            let tenant = engines::load_tenant(&self.loading(&config), id, yaml, before, &old.datasets())?;
            let mut set = old.clone();
            set.put(tenant);
            Ok(set)
        })
        .map(drop)
    }

    /// Reloads every tenant.
    ///
    /// # Errors
    /// One cannot be loaded. None changes in that case.
    pub(crate) fn reload_tenants(&self) -> Result<(), Failed> {
        self.change(|old| {
            let config = self.rules_config();
            let mut set = old.clone();
            for t in &old.tenants {
                let sets = set.datasets();
                set.put(engines::load_tenant(&self.loading(&config), t.id, t.yaml.clone(), Some(t), &sets)?);
            }
            Ok(set)
        })
        .map(drop)
    }

    /// Changes tenants or mappings that need no loading.
    ///
    /// # Errors
    /// The error of `change`.
    pub(crate) fn change_tenants(
        &self,
        change: impl FnOnce(&mut EngineSet) -> Result<(), String> + Send,
    ) -> Result<(), Failed> {
        self.change(|old| {
            let mut set = old.clone();
            change(&mut set).map_err(|e| Failed::new("detect", e))?;
            Ok(set)
        })
        .map(drop)
    }

    /// The configuration of the current rules.
    pub(crate) fn rules_config(&self) -> Arc<Config> {
        Arc::clone(&self.rules_config.read().unwrap_or_else(PoisonError::into_inner))
    }
}
