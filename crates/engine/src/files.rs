//! Opens capture files.

use std::path::Path;
use std::time::Duration;

use margay_capture::{CaptureSource, DeletePolicy, DirOptions, Filter, FilterSet};
use margay_config::{Config, RunOptions};
use margay_output::{error, warning};
use margay_packet::LinkType;

use crate::checksums::FileChecks;
use crate::{Failed, settings};

/// Frames delivered at a time (`margay.batch-size`): the default, and the maximum.
const BATCH: usize = 256;
const BATCH_MAX: usize = 65_536;

/// A source of files, and how to read it.
pub(crate) struct Input {
    pub(crate) source: CaptureSource,
    pub(crate) delete: DeletePolicy,
    pub(crate) batch: usize,
    pub(crate) checks: FileChecks,
}

/// Opens the path of `-r`, with the filter of the command line or of `-F`. With `continuous`, a folder is watched for more
/// files, whatever the settings.
///
/// # Errors
/// A missing path, a filter that does not compile, or incompatible options.
pub(crate) fn open(config: &Config, options: &RunOptions, path: &Path, continuous: bool) -> Result<Input, Failed> {
    let expression = settings::filter(options, "suricata")?;
    if let Some(e) = &expression {
        Filter::compile(e, LinkType::ETHERNET).map_err(|e| Failed::new("pcap", e.to_string()))?;
    }
    let (dir, policy) = folder(config, options, continuous)?;
    let source = CaptureSource::open(path, dir, expression.as_deref().map(FilterSet::new))
        .map_err(|e| Failed::new("suricata", e.to_string()))?
        .preloading(options.pcap_preload);
    Ok(Input { source, delete: policy, batch: batch_size(config)?, checks: FileChecks::of(config, options)? })
}

/// How folders are read, and whether files are deleted afterwards: `pcap-file` and the options of the command line.
///
/// # Errors
/// An invalid value.
pub(crate) fn folder(
    config: &Config,
    options: &RunOptions,
    continuous: bool,
) -> Result<(DirOptions, DeletePolicy), Failed> {
    let defaults = DirOptions::default();
    let seconds = |key: &str, d: Duration| -> Result<Duration, Failed> {
        Ok(Duration::from_secs(settings::number::<u32>(config, key, d.as_secs() as u32)?.into()))
    };
    let dir = DirOptions {
        recursive: options.pcap_file_recursive || config.bool("pcap-file.recursive")?.unwrap_or(false),
        continuous: continuous || options.pcap_file_continuous || config.bool("pcap-file.continuous")?.unwrap_or(false),
        delay: seconds("pcap-file.delay", defaults.delay)?,
        poll_interval: seconds("pcap-file.poll-interval", defaults.poll_interval)?,
    };
    let policy = if options.pcap_file_delete {
        DeletePolicy::Always
    } else {
        match config.get("pcap-file.delete-when-done") {
            None => DeletePolicy::Never,
            Some(t) => DeletePolicy::from_name(t).ok_or_else(|| {
                Failed::new("pcap", format!("pcap-file.delete-when-done: \"{t}\" is none of false, true, non-alerts"))
            })?,
        }
    };
    Ok((dir, policy))
}

/// Frames delivered at a time.
///
/// # Errors
/// An invalid number.
pub(crate) fn batch_size(config: &Config) -> Result<usize, Failed> {
    let batch = settings::number(config, "margay.batch-size", BATCH)?;
    if !(1..=BATCH_MAX).contains(&batch) {
        return Err(settings::wrong(config, "margay.batch-size", "must be between 1 and 65536").into());
    }
    Ok(batch)
}

impl Input {
    /// Sets whether files are deleted after reading, if the settings do not say so.
    pub(crate) fn with(self, delete: bool) -> Input {
        Input { delete: if delete { DeletePolicy::Always } else { self.delete }, ..self }
    }
}

/// Handles a file that is not a capture: it is skipped in a folder, but a single file makes the run fail.
pub(crate) fn refused(in_folder: bool, file: &Path, error: &margay_capture::Error) -> Option<Failed> {
    if !in_folder {
        return Some(Failed::new("pcap", error.to_string()));
    }
    error!("pcap", "{error}");
    warning!("pcap", "{}: skipped", file.display());
    None
}

/// Whether a run over a capture file wrote all its events.
///
/// # Errors
/// Events were lost, so the run must not count as complete.
pub(crate) fn complete(lost: u64) -> Result<(), Failed> {
    match lost {
        0 => Ok(()),
        n => {
            Err(Failed::new("output", format!("{n} events could not be written and are lost: see the messages above")))
        }
    }
}
