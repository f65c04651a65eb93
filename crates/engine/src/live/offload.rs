//! `capture.disable-offloading`: switches the interfaces' offloads off while the engine captures.

use std::sync::mpsc;
use std::thread::JoinHandle;

use margay_capture::offload::Offloads;
use margay_config::Config;
use margay_output::{info, warning};

use crate::Failed;
use crate::service::privileges;
use crate::settings::flag;

/// Offloads that are off. Dropping this switches them on again. A separate thread holds them, which keeps the capability for
/// that.
pub(super) struct Off {
    thread: Option<JoinHandle<()>>,
    end: Option<mpsc::Sender<()>>,
}

/// Switches the offloads of these interfaces off, if the configuration requests it.
///
/// # Errors
/// An interface does not exist, this process may not change it, or the thread cannot start.
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
        // Drops all capabilities except the one that switches the offloads on again.
        let made = privileges::keep_for_interfaces().and(made);
        let (result, mut held) = match made {
            Ok(held) => (Ok(()), held),
            Err(f) => (Err(f), Vec::new()),
        };
        held.iter().for_each(tell);
        // If the receiver is gone, the thread ends at once.
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
            // The thread logs its own errors.
            let _ = thread.join();
        }
    }
}
