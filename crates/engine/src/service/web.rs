//! The live page's socket.

use std::net::TcpListener;

use margay_config::{Config, RunOptions};

use crate::Failed;
use crate::settings::{WebSettings, web};

/// The live page's socket, created before the process drops the privileges for it.
pub(crate) struct Web {
    pub(crate) listener: TcpListener,
    pub(crate) settings: WebSettings,
}

impl Web {
    /// Listens at the configured address.
    ///
    /// # Errors
    /// An invalid setting, or an address that is not available.
    pub(crate) fn listen(config: &Config, options: &RunOptions) -> Result<Option<Web>, Failed> {
        let Some(mut settings) = web(config, options)? else { return Ok(None) };
        let listener = TcpListener::bind(settings.listen).map_err(|e| {
            Failed::new("web", format!("cannot listen on {}: {e}; name another address with --web", settings.listen))
        })?;
        // Port 0 selects a free port.
        settings.listen = listener.local_addr().unwrap_or(settings.listen);
        Ok(Some(Web { listener, settings }))
    }
}
