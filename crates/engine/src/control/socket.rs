//! The unix socket: a thread of its own serves each client.
//!
//! Hostile or broken clients cost little: at most [`CLIENTS_MAX`] at a time, bounded messages, and a time limit for a message
//! that has begun and for an answer that is not read. A client may stay silent between two messages.

use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use margay_output::{info, notice, warning};
use margay_packet::fault;

use super::message::{Broken, Messages, Version, render, version};
use super::{Control, commands};
use crate::service::thread;
use crate::{Failed, threads};

/// Limit of clients at a time.
const CLIENTS_MAX: usize = 16;
/// Limit of the time for a message, from its first byte to its last, and for reading an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Interval of the checks whether the engine stops.
const STEP: Duration = Duration::from_millis(200);

/// A listening socket. Dropping it deletes its file, unless another engine has replaced that.
pub(crate) struct Socket {
    path: PathBuf,
    /// The device and inode of its file; `None` if unknown.
    file: Option<(u64, u64)>,
    clients: Arc<AtomicUsize>,
}

/// Limit of the time that clients have to receive their last answer when the engine ends.
const FAREWELL: Duration = Duration::from_secs(1);

impl Drop for Socket {
    fn drop(&mut self) {
        let end = Instant::now() + FAREWELL;
        while self.clients.load(Ordering::Acquire) > 0 && Instant::now() < end {
            std::thread::sleep(STEP / 20);
        }
        // The file may already be gone, or belong to another engine by now.
        if self.file.is_some() && self.file == identity(&self.path) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// What tells the socket's file from others.
fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().as_ref().map(margay_output::sinks::identity)
}

/// Starts to listen at `path`, in a separate thread.
///
/// # Errors
/// The socket cannot be created.
pub(crate) fn listen(control: &Arc<Control>, path: &Path) -> Result<Socket, Failed> {
    let failed = |what: &str| {
        Failed::new("unix-manager", format!("cannot listen on the unix socket {}: {what}", path.display()))
    };
    if let Some(folder) = path.parent()
        && !folder.exists()
    {
        std::fs::create_dir_all(folder)
            .map_err(|e| failed(&format!("cannot make its folder: {e}{}", crate::service::owner(folder))))?;
    }
    // A socket left by an engine that crashed is removed.
    if let Ok(meta) = std::fs::symlink_metadata(path) {
        if !meta.file_type().is_socket() {
            return Err(failed("there is a file of that name that is no socket"));
        }
        if UnixStream::connect(path).is_ok() {
            return Err(failed("another engine listens there"));
        }
        std::fs::remove_file(path).map_err(|e| failed(&format!("an old socket cannot be removed: {e}")))?;
    }
    let listener = UnixListener::bind(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::PermissionDenied => failed(&format!("{e}{}", crate::service::owner(path))),
        _ => failed(&e.to_string()),
    })?;
    let clients = Arc::new(AtomicUsize::new(0));
    let socket = Socket { path: path.to_owned(), file: identity(path), clients: Arc::clone(&clients) };
    if let Err(e) = std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660)) {
        warning!("unix-manager", "{}: cannot set who may use it: {e}", path.display());
    }
    listener.set_nonblocking(true).map_err(|e| failed(&e.to_string()))?;
    info!("unix-manager", "unix socket '{}'", path.display());
    let control = Arc::clone(control);
    thread("socket", move || {
        threads::persist("the unix socket", || accept(&listener, &control, &clients));
    })?;
    Ok(socket)
}

fn accept(listener: &UnixListener, control: &Arc<Control>, clients: &Arc<AtomicUsize>) {
    while !control.signals.stop() {
        match listener.accept() {
            Ok((mut stream, _)) => {
                fault::point("socket");
                if clients.fetch_add(1, Ordering::AcqRel) >= CLIENTS_MAX {
                    clients.fetch_sub(1, Ordering::AcqRel);
                    // A refused client need not receive the message.
                    let _ = stream.set_nonblocking(true);
                    let _ = stream.write_all(&render(&Err("too many clients".into()), Version::Second));
                    continue;
                }
                let (control, count) = (Arc::clone(control), Arc::clone(clients));
                let served = thread("client", move || {
                    threads::once(|| serve(stream, &control));
                    count.fetch_sub(1, Ordering::AcqRel);
                });
                if let Err(f) = served {
                    clients.fetch_sub(1, Ordering::AcqRel);
                    warning!("unix-manager", "{}", f.message);
                }
            }
            Err(_) => std::thread::sleep(STEP / 4),
        }
    }
}

/// Serves one client until it disconnects.
fn serve(mut stream: UnixStream, control: &Arc<Control>) {
    if stream.set_nonblocking(false).is_err()
        || stream.set_read_timeout(Some(STEP)).is_err()
        || stream.set_write_timeout(Some(PATIENCE)).is_err()
    {
        return;
    }
    let mut messages = Messages::default();
    let mut speaks: Option<Version> = None;
    let mut begun = Instant::now();
    let mut bytes = [0u8; 4096];
    loop {
        match messages.next() {
            Ok(Some(message)) => {
                begun = Instant::now();
                let answer = match speaks {
                    None => {
                        let Some(v) = version(&message) else { return };
                        speaks = Some(v);
                        b"{\"return\":\"OK\"}\n"
                            .get(..if v == Version::Second { 16 } else { 15 })
                            .unwrap_or_default()
                            .to_vec()
                    }
                    Some(v) => {
                        fault::point("client");
                        render(&commands::run(control, &message), v)
                    }
                };
                if stream.write_all(&answer).is_err() {
                    return;
                }
                continue;
            }
            Ok(None) => {}
            Err(e) => {
                let Some(v) = speaks else { return };
                let goes_on = matches!(e, Broken::NoJson(_));
                if stream.write_all(&render(&Err(e.to_string()), v)).is_err() || !goes_on {
                    return;
                }
                begun = Instant::now();
                continue;
            }
        }
        let at_work = speaks.is_none() || messages.is_partial();
        if control.signals.stop() || (at_work && begun.elapsed() > PATIENCE) {
            return;
        }
        match stream.read(&mut bytes) {
            Ok(0) => return,
            Ok(n) => {
                if !messages.is_partial() {
                    begun = Instant::now();
                }
                messages.push(bytes.get(..n).unwrap_or_default());
            }
            Err(e) if matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {}
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// Logs that a command stops the engine.
pub(crate) fn stopping() {
    notice!("unix-manager", "shutdown asked for on the unix socket");
}
