//! `-T`: what a start reads of the configuration besides the rules, read without opening or writing anything.

use std::path::Path;
use std::sync::Arc;

use margay_config::{Capture, Config, RunOptions};

use crate::analysis::GroupSettings;
use crate::checksums::FileChecks;
use crate::control::socket;
use crate::engines::EngineSet;
use crate::exception::Policies;
use crate::profiling::Profiling;
use crate::start::{self, Watching};
use crate::stats::StatsSettings;
use crate::{Failed, files, live, logging, parallel, settings};

/// Reads what a run would read before its first packet: settings of workers, of captures and of outputs, and makes a worker as a
/// run does, without its outputs. Interfaces must be there only where the command line asks to capture from them.
///
/// # Errors
/// What would keep a run from starting.
pub(crate) fn test(
    config: &Config,
    options: &RunOptions,
    ips: bool,
    policies: &Policies,
    engines: EngineSet,
    dir: &Path,
) -> Result<(), Failed> {
    let nothing = Watching::Explain(Vec::new());
    start::worker(config, options, ips, policies, Arc::new(engines), dir, &nothing)?;
    settings::certificate_folder(config, dir)?;
    settings::test_scripts(config, dir)?;
    settings::test_remotes(config, dir)?;
    settings::writer_thread(config, usize::MAX)?;
    settings::stack_size(config)?;
    StatsSettings::of(config)?;
    GroupSettings::of(config)?;
    Profiling::of(config, dir)?;
    logging::outputs(config, dir)?;
    socket::wanted(config, options)?;
    files::batch_size(config)?;
    files::folder(config, options, false)?;
    FileChecks::of(config, options)?;
    // A run mode that is for interfaces says nothing of files.
    if !matches!(options.runmode.as_deref().or(config.get("runmode")), Some("workers")) {
        parallel::autofp(config, options)?;
    }
    match &options.capture {
        Some(
            Capture::Interfaces(_) | Capture::AfPacket(_) | Capture::AfXdp(_) | Capture::Pcap(_) | Capture::Nfqueue(_),
        ) => live::Plan::new(config, options).map(drop),
        _ => live::test(config),
    }
}
