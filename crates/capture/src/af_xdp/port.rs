//! An interface with the program that hands its packets to sockets.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use margay_packet::LinkType;

use super::Settings;
use crate::af_packet::ring::Socket as Raw;
use crate::ebpf::attach::attach;
use crate::ebpf::sys::{Link, Map, MapType, Program, ProgramType};
use crate::ebpf::{Purpose, XdpMode, programs};
use crate::interface::{Asker, Interface};
use crate::live::LiveError;

/// Default interrupt settings of an interface that is polled.
const DEFER: [u64; 2] = [2_000_000, 2];
/// Capabilities that the program and the sockets need.
const NEEDS: &str = "CAP_BPF, CAP_NET_ADMIN";
const DEFER_FILES: [&str; 2] = ["gro_flush_timeout", "napi_defer_hard_irqs"];

/// An interface, shared by the sources of all its workers.
#[derive(Debug)]
pub struct Port {
    name: String,
    settings: Settings,
    queues: u32,
    /// The program, as long as a source needs it.
    standing: Mutex<Weak<Standing>>,
}

impl Port {
    /// Looks up the interface. The first source attaches the program.
    ///
    /// # Errors
    /// If there is no such interface, or it is not Ethernet.
    pub fn new(name: &str, settings: Settings) -> Result<Port, LiveError> {
        let interface = Interface::find(name)?;
        if interface.link != LinkType::ETHERNET {
            return Err(LiveError::Setting {
                interface: name.to_owned(),
                setting: "interface",
                message: "only interfaces of Ethernet have AF_XDP; AF_PACKET has others too".to_owned(),
            });
        }
        if interface.loopback {
            return Err(LiveError::Setting {
                interface: name.to_owned(),
                setting: "interface",
                message: "AF_XDP would take its packets away from the host itself; AF_PACKET does not".to_owned(),
            });
        }
        let queues = Interface::queues(name);
        Ok(Port { name: name.to_owned(), settings, queues, standing: Mutex::default() })
    }

    /// The interface's files that are written to, to defer interrupts.
    pub fn settings_of(name: &str) -> [PathBuf; 2] {
        DEFER_FILES.map(|f| PathBuf::from("/sys/class/net").join(name).join(f))
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn purpose(&self) -> Purpose<'_> {
        Purpose { interface: &self.name, needs: NEEDS }
    }

    /// The capture settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Number of queues when the port was created, at least 1.
    pub fn queues(&self) -> u32 {
        self.queues
    }

    /// Attaches the program to the interface, unless it is already attached.
    pub(super) fn stand(&self) -> Result<Arc<Standing>, LiveError> {
        let interface = Interface::find(&self.name)?;
        let mut standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(s) = standing.upgrade()
            && s.index == interface.index
        {
            return Ok(s);
        }
        let new = Arc::new(Standing::new(self, &interface)?);
        *standing = Arc::downgrade(&new);
        Ok(new)
    }

    /// Makes the kernel defer the interface's interrupts while it is polled. Returns the failures.
    pub(super) fn defer_interrupts(&self, standing: &Standing) -> Vec<String> {
        let mut changed = standing.changed.lock().unwrap_or_else(PoisonError::into_inner);
        if changed.is_some() || self.settings.busy_poll.is_none() {
            return Vec::new();
        }
        let (mut before, mut said) = (Vec::new(), Vec::new());
        let dir = PathBuf::from("/sys/class/net").join(&self.name);
        // `/sys` may show another network namespace; the interface's index reveals that.
        let read = |file: &str| std::fs::read_to_string(dir.join(file)).unwrap_or_default().trim().to_owned();
        let here = read("ifindex") == standing.index.to_string();
        for (file, value) in DEFER_FILES.iter().zip(self.settings.defer.unwrap_or(DEFER)) {
            let old = read(file);
            let written = match here {
                true if old == value.to_string() => continue,
                true => set(&dir.join(file), value),
                false => Err(std::io::Error::other("/sys is of another network namespace")),
            };
            match written {
                Ok(open) => before.push((open, old)),
                Err(e) => said.push(format!("{}: {file} cannot be set to {value}: {e}; going on without", self.name)),
            }
        }
        *changed = Some(before);
        said
    }
}

/// The attached program. Dropping the last source removes it, in that source's thread; so does the end of the process.
#[derive(Debug)]
pub(super) struct Standing {
    /// Index of the interface.
    pub(super) index: i32,
    pub(super) mtu: u32,
    mode: XdpMode,
    sockets: Map,
    counts: Map,
    /// Changed settings of the interface: their files and old values. The files stay open, since the engine's user may not be
    /// allowed to open them at the end.
    changed: Mutex<Option<Vec<(File, String)>>>,
    _link: Link,
    _promiscuous: Option<Raw>,
}

/// Writes a setting of the interface. Returns the open file.
fn set(path: &Path, value: u64) -> std::io::Result<File> {
    let mut file = File::options().write(true).open(path)?;
    file.write_all(value.to_string().as_bytes())?;
    Ok(file)
}

impl Drop for Standing {
    fn drop(&mut self) {
        let changed = self.changed.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (file, old) in changed.take().unwrap_or_default() {
            // This fails if the interface is gone, and does not matter then.
            let _ = file.write_all_at(old.as_bytes(), 0);
        }
    }
}

impl Standing {
    fn new(port: &Port, interface: &Interface) -> Result<Standing, LiveError> {
        let purpose = port.purpose();
        let failed = |what| move |e| purpose.refused(what, e);
        let queues = port.queues;
        let maps = "cannot have maps for its program";
        let sockets = Map::new(MapType::Xskmap, "sockets", [4, 4], queues, 0).map_err(failed(maps))?;
        let counts = Map::new(MapType::PercpuArray, "packets", [4, 8], queues, 0).map_err(failed(maps))?;
        let code = programs::to_sockets(sockets.fd(), counts.fd())?;
        let program = Program::load(ProgramType::Xdp, "to_sockets", &code)
            .map_err(|r| purpose.not_taken("its program is not taken by the kernel", r))?;
        let promiscuous = match port.settings.promiscuous {
            true => {
                let what = "cannot be made promiscuous";
                let socket = Raw::new().map_err(failed(what))?;
                socket.promiscuous(interface.index).map_err(failed(what))?;
                Some(socket)
            }
            false => None,
        };
        let mtu = Asker::new().and_then(|a| a.mtu(port.name())).map_err(failed("cannot be looked at"))?;
        let (link, mode) = attach(purpose, &program, interface.index, port.settings.mode)?;
        let changed = Mutex::default();
        Ok(Standing {
            index: interface.index,
            mtu,
            mode,
            sockets,
            counts,
            changed,
            _link: link,
            _promiscuous: promiscuous,
        })
    }

    pub(super) fn mode(&self) -> XdpMode {
        self.mode
    }

    /// From now on, hands the queue's packets to a socket.
    pub(super) fn connect(&self, queue: u32, socket: i32) -> std::io::Result<()> {
        self.sockets.update(&queue.to_ne_bytes(), &socket.to_ne_bytes(), false)
    }

    /// Stops handing the queue's packets to a socket.
    pub(super) fn disconnect(&self, queue: u32) {
        // A missing entry is no error.
        let _ = self.sockets.delete(&queue.to_ne_bytes());
    }

    /// Packets of the queue that the program handed to its sockets.
    pub(super) fn packets(&self, queue: u32) -> u64 {
        let mut values = vec![0; self.counts.value_size()];
        match self.counts.lookup(&queue.to_ne_bytes(), &mut values) {
            Ok(true) => values.chunks_exact(8).filter_map(|b| b.try_into().ok()).map(u64::from_ne_bytes).sum(),
            _ => 0,
        }
    }
}
