//! `-T`: reads everything that a start reads from the configuration besides the rules, without opening or writing anything.

use std::path::Path;
use std::sync::Arc;

use margay_config::{Capture, Config, RunOptions};

use crate::analysis::GroupSettings;
use crate::checksums::FileChecks;
use crate::engines::EngineSet;
use crate::exception::Policies;
use crate::profiling::Profiling;
use crate::stats::StatsSettings;
use crate::watching::Watching;
use crate::worker::{test_scripts, worker};
use crate::{Failed, files, live, logging, parallel, settings};

/// Reads the settings that a run reads before its first packet: workers, captures and outputs. Creates a worker as in a run,
/// but without outputs. Interfaces must exist only if the command line captures from them.
///
/// # Errors
/// Anything that would prevent a run from starting.
pub(crate) fn test(
    config: &Config,
    options: &RunOptions,
    ips: bool,
    policies: &Policies,
    engines: EngineSet,
    dir: &Path,
) -> Result<(), Failed> {
    let nothing = Watching::Explain(Vec::new());
    worker(config, options, ips, policies, Arc::new(engines), dir, &nothing)?;
    settings::certificate_folder(config, dir)?;
    test_scripts(config, dir)?;
    settings::test_outputs(config, dir)?;
    settings::writer_thread(config, usize::MAX)?;
    settings::stack_size(config)?;
    StatsSettings::of(config)?;
    GroupSettings::of(config)?;
    Profiling::of(config, dir)?;
    logging::outputs(config, dir)?;
    settings::socket(config, options)?;
    files::batch_size(config)?;
    files::folder(config, options, false)?;
    FileChecks::of(config, options)?;
    // A run mode for interfaces does not apply to files.
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
