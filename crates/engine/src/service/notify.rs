//! Notifications to systemd (`sd_notify`): datagrams to the socket that the environment names.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The notification socket, if there is one.
#[derive(Debug, Default)]
pub(super) struct Notify {
    socket: Option<UnixDatagram>,
    /// The longest allowed silence (`WatchdogSec=`).
    pub(super) patience: Option<Duration>,
    /// An error in the environment.
    pub(super) wrong: Option<String>,
}

impl Notify {
    /// Reads the environment: `NOTIFY_SOCKET`, `WATCHDOG_USEC`, `WATCHDOG_PID`.
    pub(super) fn from_environment() -> Notify {
        let Some(name) = std::env::var_os("NOTIFY_SOCKET").filter(|n| !n.is_empty()) else { return Notify::default() };
        let address = match name.as_bytes() {
            [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest),
            [b'/', ..] => SocketAddr::from_pathname(&name),
            _ => Err(std::io::Error::other("neither a path nor an abstract name")),
        };
        let connected = address.and_then(|a| {
            let socket = UnixDatagram::unbound()?;
            socket.connect_addr(&a)?;
            // A manager that does not read must not block the engine.
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
        let ours = number("WATCHDOG_PID").is_none_or(|p| p == u64::from(std::process::id()));
        let patience = number("WATCHDOG_USEC").filter(|u| ours && *u > 0).map(Duration::from_micros);
        match connected {
            Ok(socket) => Notify { socket: Some(socket), patience, wrong: None },
            Err(e) => Notify {
                wrong: Some(format!("NOTIFY_SOCKET={}: cannot be told that the engine is ready: {e}", name.display())),
                ..Notify::default()
            },
        }
    }

    fn say(&self, words: &str) {
        if let Some(socket) = &self.socket {
            // A missing receiver does not matter.
            let _ = socket.send(words.as_bytes());
        }
    }

    /// Reports that the engine runs.
    pub(super) fn ready(&self) {
        self.say("READY=1\nSTATUS=Running");
    }

    /// Reports that rules are reloaded, until [`Notify::ready`].
    pub(super) fn reloading(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let micros = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1000;
        self.say(&format!("RELOADING=1\nMONOTONIC_USEC={micros}\nSTATUS=Loading rules"));
    }

    /// Reports that the engine stops: it inspects packets in flight and closes its files.
    pub(super) fn stopping(&self) {
        self.say("STOPPING=1\nSTATUS=Stopping");
    }

    /// Reports that workers make progress.
    pub(super) fn alive(&self) {
        self.say("WATCHDOG=1");
    }
}
