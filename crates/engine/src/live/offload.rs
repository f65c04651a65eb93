//! `capture.disable-offloading`: offloads of the interfaces are off while the engine captures.

use std::sync::mpsc;
use std::thread::JoinHandle;

use margay_capture::offload::Offloads;
use margay_config::Config;
use margay_output::{info, warning};

use crate::Failed;
use crate::service::privileges;
use crate::settings::flag;

/// Offloads that are off; they are switched on again when this is dropped. A thread of its own holds them, which keeps the
/// capability to do so.
pub(super) struct Off {
    thread: Option<JoinHandle<()>>,
    end: Option<mpsc::Sender<()>>,
}

/// Switches the offloads of these interfaces off, where the configuration asks for it.
///
/// # Errors
/// An interface that does not exist, or that this process may not change; no thread.
pub(super) fn off(config: &Config, interfaces: &[String]) -> Result<Option<Off>, Failed> {
    if !flag(config, "capture.disable-offloading", false)? {
        return Ok(None);
    }
    let (told, ready) = mpsc::channel();
    let (end, wait) = mpsc::channel::<()>();
    let interfaces = interfaces.to_vec();
    let run = move || {
        let made: Result<Vec<Offloads>, _> = interfaces.iter().map(|i| Offloads::disable(i)).collect();
        let made = made.map_err(|e| Failed::new("ioctl", e.to_string()));
        // Whatever is not needed to switch them on again goes.
        let made = privileges::keep_for_interfaces().and(made);
        let (result, mut held) = match made {
            Ok(held) => (Ok(()), held),
            Err(f) => (Err(f), Vec::new()),
        };
        held.iter().for_each(tell);
        // Who waits has gone where this cannot be told; then it ends at once.
        if told.send(result).is_ok() {
            let _ = wait.recv();
        }
        for offloads in &mut held {
            if let Err(e) = offloads.restore() {
                warning!("ioctl", "{e}");
            }
        }
    };
    let thread = std::thread::Builder::new()
        .name("offload".into())
        .spawn(run)
        .map_err(|e| Failed::new("threads", format!("cannot start the thread \"offload\": {e}")))?;
    ready.recv().unwrap_or_else(|_| Err(Failed::new("threads", "the thread \"offload\" ended before it began")))?;
    Ok(Some(Off { thread: Some(thread), end: Some(end) }))
}

fn tell(offloads: &Offloads) {
    let interface = offloads.interface();
    let names: Vec<&str> = offloads.names().collect();
    if !names.is_empty() {
        info!("ioctl", "{interface}: switched off while the engine runs: {}", names.join(", "));
    }
    if !offloads.fixed().is_empty() {
        warning!("ioctl", "{interface}: the driver does not switch off: {}", offloads.fixed().join(", "));
    }
}

impl Drop for Off {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // It tells what went wrong itself.
            let _ = thread.join();
        }
    }
}
