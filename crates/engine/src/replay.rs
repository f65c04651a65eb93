//! A worker without a capture, for the fuzz targets: frames in, events out.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use margay_config::{Config, RuleFiles, RunOptions};
use margay_packet::{Frame, LinkType, Time};

use crate::engines::{self, Loading};
use crate::exception::Policies;
use crate::watching::Watching;
use crate::worker::{self, Worker};

/// A worker with its rules.
pub struct Bed {
    worker: Worker,
    log: PathBuf,
}

impl std::fmt::Debug for Bed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bed").field("log", &self.log).finish_non_exhaustive()
    }
}

impl Bed {
    /// Creates a worker with this configuration, whose outputs are files in `folder`, and these rules. The configuration has
    /// an `eve-log` to the file `eve.json`.
    ///
    /// # Errors
    /// A message about what cannot be read, loaded or opened.
    pub fn new(yaml: &str, rules: &str, folder: &Path) -> Result<Bed, String> {
        let file = folder.join("replay.rules");
        std::fs::write(&file, rules).map_err(|e| format!("{}: {e}", file.display()))?;
        let config = Config::from_str(yaml, "replay.yaml").map_err(|e| e.to_string())?;
        let rules = RuleFiles::Exclusive(file.display().to_string());
        let options = RunOptions { rules, no_cache: true, ..RunOptions::default() };
        let policies = Policies::from_config(&config, false, false).map_err(|e| e.to_string())?;
        let loading = Loading { config: &config, options: &options, ips: false, dir: folder, trees: false };
        let engines = Arc::new(engines::load(&loading, None).map_err(|e| e.to_string())?);
        let worker = worker::worker(&config, &options, false, &policies, engines, folder, &Watching::Nobody);
        Ok(Bed { worker: worker.map_err(|e| e.to_string())?, log: folder.join("eve.json") })
    }

    /// Runs frames of raw IP through the worker, until all flows have ended. Returns the events, one per line.
    ///
    /// # Errors
    /// The events cannot be read.
    pub fn run(&mut self, frames: &[(Time, Vec<u8>)]) -> std::io::Result<String> {
        std::fs::File::options().write(true).truncate(true).open(&self.log)?;
        self.worker.pipeline.flows.begin_capture();
        for ((time, data), number) in frames.iter().zip(1..) {
            let wire_len = u32::try_from(data.len()).unwrap_or(u32::MAX);
            self.worker.frame(&Frame { data, wire_len, time: *time, link: LinkType::RAW, number });
            self.worker.expire();
        }
        self.worker.finish();
        std::fs::read_to_string(&self.log)
    }
}
