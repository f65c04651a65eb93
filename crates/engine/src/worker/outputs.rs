//! A worker's outputs, with the scripts that write logs.

use std::path::Path;

use margay_app::AppLogOptions;
use margay_config::Config;
use margay_output::Outputs;
use margay_output::remote::WhenFull;
use margay_output::settings::Xff;

use super::scripts::OutputScripts;
use crate::settings::{JaWants, WORTH, now, open_files, writer_thread};
use crate::{Failed, settings};

/// The opened outputs, with their options for the application layer: `app` and `store_xff` of their settings.
pub(crate) struct Opened {
    pub(crate) outputs: Outputs,
    pub(crate) app: Vec<AppLogOptions>,
    pub(crate) store_xff: Option<Xff>,
    pub(crate) scripts: OutputScripts,
}

impl Opened {
    /// Outputs that write nothing.
    pub(crate) fn nothing() -> Result<Opened, Failed> {
        let outputs = Outputs::new(Vec::new(), now(), 0).map_err(|e| Failed::new("logopenfile", e.to_string()))?;
        Ok(Opened { outputs, app: Vec::new(), store_xff: None, scripts: OutputScripts::default() })
    }
}

/// Reads `outputs:` and opens the enabled outputs.
///
/// # Errors
/// An invalid setting, or an output cannot be opened.
pub(crate) fn open_outputs(config: &Config, dir: &Path) -> Result<Opened, Failed> {
    let mut outputs = open_files(config, dir, 1, WhenFull::Wait)?;
    if writer_thread(config, 1)? {
        outputs.write_aside(WORTH);
    }
    share_outputs(config, dir, outputs)
}

/// Completes a worker's `outputs` with its scripts. The worker's own thread calls this, because scripts cannot leave their
/// thread.
///
/// # Errors
/// A script does not load.
pub(crate) fn share_outputs(config: &Config, dir: &Path, outputs: Outputs) -> Result<Opened, Failed> {
    let specs = settings::outputs(config, dir).map_err(|e| Failed::new("runmodes", e.to_string()))?;
    let mut scripts = OutputScripts::load(&specs.scripts, dir).map_err(|e| Failed::new("lua", e))?;
    scripts.setup().map_err(|e| Failed::new("lua", e))?;
    scripts.follow_for(&outputs);
    Ok(Opened { outputs, app: specs.app, store_xff: specs.store_xff, scripts })
}

/// Loads the scripts that write logs as a run would, and drops them. Returns the fingerprints that they use.
///
/// # Errors
/// A script does not load.
pub(crate) fn test_scripts(config: &Config, dir: &Path) -> Result<JaWants, Failed> {
    let specs = settings::outputs(config, dir).map_err(|e| Failed::new("runmodes", e.to_string()))?;
    let scripts = OutputScripts::load(&specs.scripts, dir).map_err(|e| Failed::new("lua", e))?;
    Ok(JaWants { ja3: scripts.ja3, ja4: false, hassh: scripts.hassh })
}
