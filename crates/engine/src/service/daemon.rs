//! `-D`: runs the engine in the background.
//!
//! The starting process waits until the engine is ready or has failed, and exits with its status. Until then, messages still
//! go to the terminal. Afterwards they go only where `logging` sends them.

use std::fs::OpenOptions;
use std::io::{PipeWriter, Read, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid};

use crate::Failed;

/// Reports to the waiting parent process. There is one per process.
static WAITING: Mutex<Option<PipeWriter>> = Mutex::new(None);

fn failed(what: &str, e: impl std::fmt::Display) -> Failed {
    Failed::new("daemon", format!("cannot run in the background (-D): {what}: {e}"))
}

/// Goes into the background, to `folder`. Only the new process returns: the caller waits for it and exits. The calling thread
/// must be the only one.
///
/// # Errors
/// The process cannot be created, or the folder does not exist.
pub(super) fn enter(folder: &Path) -> Result<(), Failed> {
    let (mut told, tell) = std::io::pipe().map_err(|e| failed("no pipe", e))?;
    match fork()? {
        ForkResult::Parent { child } => {
            drop(tell);
            wait(child, &mut told)
        }
        ForkResult::Child => drop(told),
    }
    // This process leads a new session, and ends after the second fork. Its child does not lead the session, so it can never
    // get a controlling terminal.
    rustix::process::setsid().map_err(|e| failed("no new session", e))?;
    if let ForkResult::Parent { .. } = fork()? {
        signal_hook::low_level::exit(0);
    }
    *WAITING.lock().unwrap_or_else(PoisonError::into_inner) = Some(tell);
    std::env::set_current_dir(folder)
        .map_err(|e| failed(&format!("daemon-directory {} cannot be entered", folder.display()), e))?;
    let nothing = OpenOptions::new().read(true).open("/dev/null").map_err(|e| failed("/dev/null", e))?;
    rustix::stdio::dup2_stdin(&nothing).map_err(|e| failed("/dev/null", e))
}

#[allow(unsafe_code)]
fn fork() -> Result<ForkResult, Failed> {
    // SAFETY: the calling thread is the only one of the process (see `enter`): no lock is held by a thread that the new
    // process would not have.
    unsafe { nix::unistd::fork() }.map_err(|e| failed("no process", e))
}

/// Waits for the engine's status, and exits with it.
fn wait(child: Pid, told: &mut impl Read) -> ! {
    // The intermediate process exits at once.
    let _ = waitpid(child, None);
    let mut status = [0u8; 1];
    match told.read_exact(&mut status) {
        Ok(()) => std::process::exit(i32::from(status[0])),
        Err(_) => {
            eprintln!("margay: the engine ended in the background before it was ready");
            std::process::exit(1)
        }
    }
}

/// Reports the start to the waiting parent process, if there is one: 0 for success.
pub(super) fn tell(status: u8) {
    let tell = WAITING.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(mut tell) = tell {
        if status == 0 {
            // The terminal belongs to the user's other programs from now on.
            if let Ok(nothing) = OpenOptions::new().write(true).open("/dev/null") {
                let _ = (rustix::stdio::dup2_stdout(&nothing), rustix::stdio::dup2_stderr(&nothing));
            }
        }
        // The parent may have been stopped in the meantime; the engine continues.
        let _ = tell.write_all(&[status]);
    }
}
