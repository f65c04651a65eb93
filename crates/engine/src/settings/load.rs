//! Which configuration a run has, and where its logs go.

use std::path::PathBuf;

use margay_config::{Capture, Config, RunOptions};

use crate::Failed;

/// The configuration file without `-c`.
pub(crate) const CONFIGURATION: &str = "/etc/margay/margay.yaml";

/// The configuration: that of `-c`, or else the installed one, or else the built-in one.
///
/// # Errors
/// A file that cannot be read, or is not a configuration.
pub(crate) fn configuration(options: &RunOptions) -> Result<Config, Failed> {
    let installed = || Some(PathBuf::from(CONFIGURATION)).filter(|p| p.exists());
    let mut config = match options.config.clone().or_else(installed) {
        Some(path) => Config::load_with(path, &options.includes, &options.sets)?,
        None => Config::built_in(&options.includes, &options.sets)?,
    };
    for setting in of_options(options) {
        config.set(&setting)?;
    }
    config.check_reads();
    Ok(config)
}

/// The settings that options of the command line replace, so that `--dump-config` and `conf-get` show the ones in use.
fn of_options(options: &RunOptions) -> Vec<String> {
    let path = |name: &str, path: &Option<PathBuf>| path.as_ref().map(|p| format!("{name}={}", p.display()));
    let socket = match &options.capture {
        Some(Capture::UnixSocket(file)) => path("unix-command.filename", file),
        _ => None,
    };
    [path("default-log-dir", &options.log_dir), path("data-dir", &options.data_dir), socket]
        .into_iter()
        .flatten()
        .collect()
}

/// The log folder of `-l` or the configuration, or else the current folder.
pub(crate) fn log_folder(config: &Config, options: &RunOptions) -> PathBuf {
    options.log_dir.clone().unwrap_or_else(|| PathBuf::from(config.get("default-log-dir").unwrap_or(".")))
}

/// The log folder. A missing folder is created, except for a test of the configuration (`-T`), which writes no log.
///
/// # Errors
/// The folder cannot be created, or the path is not a folder.
pub(crate) fn log_dir(config: &Config, options: &RunOptions) -> Result<PathBuf, Failed> {
    let dir = log_folder(config, options);
    if dir.is_dir() || options.test {
        return Ok(dir);
    }
    std::fs::create_dir_all(&dir).map_err(|e| {
        Failed::new(
            "suricata",
            format!("cannot make the logging directory \"{}\": {e}; name another with -l", dir.display()),
        )
    })?;
    Ok(dir)
}
