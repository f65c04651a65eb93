//! The path of the unix socket.

use std::path::{Path, PathBuf};

use margay_config::{Capture, Config, ConfigError, RunOptions};

use super::flag;

/// The folder of sockets with a relative name.
pub(crate) const SOCKET_FOLDER: &str = "/run/margay";
/// The socket's default name.
const NAME: &str = "margay-command.socket";

/// The path of a socket that the configuration or the command line names.
pub(crate) fn socket_path(name: Option<&Path>) -> PathBuf {
    Path::new(SOCKET_FOLDER).join(name.unwrap_or(Path::new(NAME)))
}

/// The path of the socket; `None` if it is off. `auto` creates one for live capture, and with `--unix-socket`.
///
/// # Errors
/// An invalid value.
pub(crate) fn socket(config: &Config, options: &RunOptions) -> Result<Option<PathBuf>, ConfigError> {
    let configured = config.get("unix-command.filename").filter(|f| !f.is_empty()).map(Path::new);
    if let Some(Capture::UnixSocket(given)) = &options.capture {
        return Ok(Some(socket_path(given.as_deref().or(configured))));
    }
    let live = !matches!(options.capture, Some(Capture::File(_) | Capture::Erf(_)) | None);
    let on = match config.get("unix-command.enabled") {
        None | Some("" | "auto") => live,
        Some(_) => flag(config, "unix-command.enabled", live)?,
    };
    Ok(on.then(|| socket_path(configured)))
}
