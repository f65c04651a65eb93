//! The BPF filter of the command line.

use margay_capture::Filter;
use margay_config::RunOptions;

use crate::Failed;

/// The filter expression: the words after the options, or else the content of the file of `-F`. Errors name the `section`.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn filter(options: &RunOptions, section: &'static str) -> Result<Option<String>, Failed> {
    match (&options.filter, &options.filter_file) {
        (Some(words), _) => Ok(Some(words.clone())),
        (None, Some(file)) => Filter::from_file(file).map_err(|e| Failed::new(section, e.to_string())),
        (None, None) => Ok(None),
    }
}
