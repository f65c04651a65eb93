//! Creates a worker from the configuration.

use std::path::Path;
use std::sync::Arc;

use margay_app::Extra;
use margay_app::certificates::CertificateStore;
use margay_app::file::FileEngine;
use margay_config::{Checksums, Config, RunOptions};
use margay_flow::FlowTable;
use margay_output::event::EventType;
use margay_output::warning;
use margay_packet::Decoder;
use margay_stream::{StreamConfig, StreamEngine, UrgentPolicy};

use super::engines::{AppWants, Install};
use super::outputs::{Opened, open_outputs};
use super::{AppStage, FrameVerdict, Pipeline, Stages, Worker};
use crate::engines::EngineSet;
use crate::exception::Policies;
use crate::keys::{HashKeys, reads_files};
use crate::watching::Watching;
use crate::{Failed, settings};

/// The requirements of rules and outputs for the application layer.
///
/// # Errors
/// An invalid setting.
pub(crate) fn app_wants(
    config: &Config,
    options: &RunOptions,
    set: &EngineSet,
    shown: settings::JaWants,
) -> Result<AppWants, Failed> {
    let ja = settings::JaWants {
        ja3: set.uses(Extra::Ja3) || shown.ja3,
        ja4: set.uses(Extra::Ja4) || shown.ja4,
        hassh: set.uses(Extra::Hassh) || shown.hassh,
    };
    Ok(AppWants {
        files: match options.disable_hashing {
            true => set.file_wants().without_digests(),
            false => set.file_wants(),
        },
        frames: set.frame_kinds(),
        arguments: set.uses(Extra::Arguments),
        ssh: settings::ssh(config, ja.hassh)?,
        tls: settings::tls(config, ja)?,
    })
}

/// Creates a worker for these engines.
///
/// # Errors
/// An invalid setting, or an output that cannot be opened.
pub(crate) fn worker(
    config: &Config,
    options: &RunOptions,
    ips: bool,
    policies: &Policies,
    engines: Arc<EngineSet>,
    dir: &Path,
    watching: &Watching,
) -> Result<Worker, Failed> {
    let quiet = matches!(watching, Watching::Explain(_));
    let opened = match quiet {
        true => Opened::nothing()?,
        false => open_outputs(config, dir)?,
    };
    let part = Part { opened, files: settings::files(config, dir, options)?, workers: 1 };
    worker_of(config, options, ips, policies, engines, dir, watching, part)
}

/// One worker's share, if there are several workers.
pub(crate) struct Part {
    pub(crate) opened: Opened,
    /// The settings of files, with the file store that all workers share.
    pub(crate) files: margay_app::file::FileConfig,
    /// The number of workers. Memory limits are divided among them.
    pub(crate) workers: u64,
}

impl Part {
    /// A worker's part of a limit; 0 stands for no limit.
    fn of(&self, limit: u64) -> u64 {
        if limit == 0 { 0 } else { (limit / self.workers.max(1)).max(1) }
    }

    fn number(&self, of: u32) -> u32 {
        u32::try_from(self.of(u64::from(of))).unwrap_or(of)
    }
}

/// The store of certificates; with `quiet`, one that stores nothing.
fn certificates(config: &Config, dir: &Path, quiet: bool) -> Result<CertificateStore, Failed> {
    match settings::certificate_folder(config, dir)? {
        Some(folder) if !quiet => CertificateStore::new(folder.clone())
            .map_err(|e| Failed::new("log-tlsstore", format!("cannot make the folder {}: {e}", folder.display()))),
        _ => Ok(CertificateStore::default()),
    }
}

/// The settings of a worker's streams.
fn stream_of(config: &Config, options: &RunOptions, ips: bool, part: &Part) -> Result<StreamConfig, Failed> {
    let mut stream = settings::stream(config, ips)?;
    if ips && !options.simulate_ips {
        // On a live network, harmless irregularities are let pass: hosts retransmit, and half of a connection may take
        // another path.
        stream.spare_harmless = true;
        if config.get("stream.async-oneside").is_none() {
            stream.async_oneside = true;
        }
        if config.get("stream.reassembly.urgent.policy").is_none() {
            // Applications differ in whether and when they remove the urgent byte, and nothing on the wire shows it.
            stream.urgent = UrgentPolicy::Clear;
        }
    }
    stream.remembered = usize::try_from(part.of(stream.remembered as u64)).unwrap_or(usize::MAX);
    stream.checksum_validation = settings::validates(options.checksums, config, stream.checksum_validation)?;
    (stream.memcap, stream.reassembly_memcap) = (part.of(stream.memcap), part.of(stream.reassembly_memcap));
    stream.reset_memory = part.of(stream.reset_memory);
    Ok(stream)
}

/// Creates one of several workers.
///
/// # Errors
/// As [`worker`].
#[allow(clippy::too_many_arguments)]
pub(crate) fn worker_of(
    config: &Config,
    options: &RunOptions,
    ips: bool,
    policies: &Policies,
    engines: Arc<EngineSet>,
    dir: &Path,
    watching: &Watching,
    part: Part,
) -> Result<Worker, Failed> {
    let stream = stream_of(config, options, ips, &part)?;
    let mut flow = settings::flow(config)?;
    let keys = HashKeys::of(options);
    (flow.hash_key, flow.id_key) = (keys.table, keys.ids);
    (flow.memcap, flow.hash_size, flow.prealloc) =
        (part.of(flow.memcap), part.number(flow.hash_size), part.number(flow.prealloc));
    // Checksum keywords see the real checksums, whatever `-k` says.
    let mut decode = settings::decode(config, false)?;
    decode.defrag.checksums = stream.checksum_validation;
    decode.defrag.inline = ips && !options.simulate_ips;
    decode.defrag.memcap = usize::try_from(part.of(decode.defrag.memcap as u64)).unwrap_or(usize::MAX);
    let mut protocols = settings::app(config)?;
    (protocols.http1.memcap, protocols.ftp.memcap) = (part.of(protocols.http1.memcap), part.of(protocols.ftp.memcap));
    protocols.memcap = part.of(protocols.memcap);
    let quiet = matches!(watching, Watching::Explain(_));
    let mut files = part.files.clone();
    files.range_memcap = part.of(files.range_memcap);
    if let Some(store) = &mut files.store {
        store.waits = reads_files(options);
    }
    let (workers, opened) = (part.workers, part.opened);
    let Opened { outputs, app: shown, store_xff, scripts } = opened;
    match (settings::flag(config, "stats.enabled", true)?, outputs.wants(EventType::Stats)) {
        (true, false) if !quiet => warning!("counters", "stats are enabled but no loggers are active"),
        (false, true) if !quiet => warning!("counters", "stats are logged only with stats.enabled: yes"),
        _ => {}
    }
    if quiet {
        files.store = None;
    }
    if let Some(store) = &files.store {
        store.prepare().map_err(|e| Failed::new("filestore", e.to_string()))?;
    }
    let ja4 = shown.iter().any(|o| o.tls.asks_ja4);
    let wants =
        app_wants(config, options, &engines, settings::JaWants { ja3: scripts.ja3, ja4, hassh: scripts.hassh })?;
    settings::check_store(&files, wants.files.store);
    let certificates = certificates(config, dir, quiet)?;
    let shared = margay_app::Shared {
        certificates,
        files: FileEngine::new(&files, wants.files).map_err(|e| Failed::new("files", e.to_string()))?,
        counters: margay_app::AppCounters::default(),
        frames: margay_app::frame::FrameMarks::default(),
        wishes: margay_app::FlowRequests::default(),
        whole: [false; 2],
        expected: Vec::new(),
        upgrade: None,
        scratch: Vec::new(),
    };
    let mut recognise = settings::recogniser(config)?;
    recognise.inline = ips;
    let app = AppStage {
        config: Arc::new(margay_app::AppConfig {
            recogniser: margay_app::recognise::Recogniser::new(&recognise),
            files,
            ..protocols
        }),
        shared,
        record: margay_output::eve::Record::new(store_xff),
        options: shown,
        witness: None,
    };
    let mut stages = Stages::new(ips, StreamEngine::new(stream), app, outputs);
    stages.error_policies = [false, true].map(|midstream| policies.of_error(midstream));
    stages.discards_wrong_datagrams |= options.checksums == Some(Checksums::All);
    stages.scripts = scripts;
    stages.ethernet = settings::wants_ethernet(config)?;
    stages.install(Install::new(engines, &EngineSet::default(), wants, watching, workers > 1)?);
    let flows = FlowTable::new(flow);
    stages.hasher = flows.hasher();
    Ok(Worker {
        decoder: Decoder::new(decode),
        pipeline: Pipeline { policies: *policies, flows, stages, verdict: FrameVerdict::default() },
        unswept: 0,
        swept: 0,
        told: 0,
    })
}
