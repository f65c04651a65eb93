//! The bpf(2) system call: maps, programs, and links to interfaces. All `unsafe` code of eBPF is here.
//!
//! See bpf(2) and `include/uapi/linux/bpf.h`, whose `union bpf_attr` is written here as bytes: [`Attr`].

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::asm::Insn;

const MAP_CREATE: u32 = 0;
const MAP_LOOKUP: u32 = 1;
const MAP_UPDATE: u32 = 2;
const MAP_DELETE: u32 = 3;
const PROG_LOAD: u32 = 5;
#[cfg(test)]
const PROG_TEST_RUN: u32 = 10;
const MAP_LOOKUP_AND_DELETE: u32 = 21;
const MAP_LOOKUP_BATCH: u32 = 24;
const LINK_CREATE: u32 = 28;
/// An error number of the kernel that user space has no name for.
const ENOTSUPP: i32 = 524;
/// `enum bpf_attach_type`
const ATTACH_XDP: u32 = 37;
const ATTACH_TCX_INGRESS: u32 = 46;
/// `BPF_F_BEFORE`: attaches a program before all others at the same place.
const BEFORE: u32 = 1 << 3;
/// A flag of [`Map::update`]: fails if there is an entry.
const NOEXIST: u64 = 1;
/// Bytes for the verifier's log of a rejected program.
const LOG: usize = 1 << 16;

/// `enum bpf_map_type`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum MapType {
    Array = 2,
    PercpuHash = 5,
    PercpuArray = 6,
    Devmap = 14,
    Xskmap = 17,
}

/// `enum bpf_prog_type`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum ProgramType {
    SocketFilter = 1,
    SchedCls = 3,
    Xdp = 6,
}

/// A hash map allocates its elements when they are added, not all at the start.
pub(crate) const NO_PREALLOC: u32 = 1;

/// `union bpf_attr`. Fields that are not set are zero.
#[repr(C, align(8))]
struct Attr([u8; 128]);

impl Attr {
    fn new() -> Attr {
        Attr([0; 128])
    }

    fn put(mut self, at: usize, bytes: &[u8]) -> Attr {
        if let Some(place) = self.0.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
        self
    }

    fn u32(self, at: usize, n: u32) -> Attr {
        self.put(at, &n.to_ne_bytes())
    }

    fn u64(self, at: usize, n: u64) -> Attr {
        self.put(at, &n.to_ne_bytes())
    }

    fn fd(self, at: usize, fd: &OwnedFd) -> Attr {
        self.put(at, &fd.as_raw_fd().to_ne_bytes())
    }

    /// Sets the address of `data`, which must be as large as the command expects, and live until the command has run.
    fn to(self, at: usize, data: &[u8]) -> Attr {
        self.u64(at, data.as_ptr() as u64)
    }

    /// As [`Attr::to`], for memory that the kernel writes.
    fn out(self, at: usize, data: &mut [u8]) -> Attr {
        self.u64(at, data.as_mut_ptr() as u64)
    }

    fn read_u32(&self, at: usize) -> u32 {
        self.0.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes)
    }

    /// # Safety
    /// Each address that was set points to memory as large as `command` reads or writes there. Memory that it writes has no other
    /// borrow.
    unsafe fn call(&mut self, command: u32) -> io::Result<libc::c_long> {
        // SAFETY: the kernel reads and writes an attribute of the given size, which is this one's. The caller guarantees the memory that
        // it points to.
        let n = unsafe { libc::syscall(libc::SYS_bpf, command, self.0.as_mut_ptr(), self.0.len()) };
        if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n) }
    }

    /// # Safety
    /// As [`Attr::call`]. In addition, the command returns a new descriptor.
    unsafe fn call_fd(&mut self, command: u32) -> io::Result<OwnedFd> {
        // SAFETY: the caller guarantees it.
        let n = unsafe { self.call(command) }?;
        let fd = RawFd::try_from(n).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        // SAFETY: the descriptor is new and has no other owner.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

fn name(text: &str) -> [u8; 15] {
    let mut out = [0; 15];
    out.iter_mut().zip(text.bytes()).for_each(|(to, from)| *to = from);
    out
}

fn wrong_size() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "a key or value of another size than the map's")
}

/// A map that programs and this process share.
#[derive(Debug)]
pub(crate) struct Map {
    fd: OwnedFd,
    key: usize,
    /// Bytes of a value that the kernel reads and writes, with all CPUs' copies if the map is per CPU.
    value: usize,
}

impl Map {
    /// Creates a map. `value` is a value's size for one CPU, a multiple of 8 for a per-CPU map.
    pub(crate) fn new(
        kind: MapType,
        called: &str,
        [key, value]: [u32; 2],
        entries: u32,
        flags: u32,
    ) -> io::Result<Map> {
        let each = matches!(kind, MapType::PercpuHash | MapType::PercpuArray);
        let whole = if each { (value as usize).next_multiple_of(8) * cpus() } else { value as usize };
        let mut attr = Attr::new()
            .u32(0, kind as u32)
            .u32(4, key)
            .u32(8, value)
            .u32(12, entries)
            .u32(16, flags)
            .put(28, &name(called));
        // SAFETY: the command has no addresses, and returns a descriptor.
        let fd = unsafe { attr.call_fd(MAP_CREATE) }?;
        Ok(Map { fd, key: key as usize, value: whole })
    }

    /// Its descriptor, for instructions.
    pub(crate) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Bytes of a value that [`Map::lookup`] returns.
    pub(crate) fn value_size(&self) -> usize {
        self.value
    }

    fn at(&self, key: &[u8]) -> io::Result<Attr> {
        if key.len() != self.key {
            return Err(wrong_size());
        }
        Ok(Attr::new().fd(0, &self.fd).to(8, key))
    }

    /// Adds or replaces an entry. With `new`, only adds.
    pub(crate) fn update(&self, key: &[u8], value: &[u8], new: bool) -> io::Result<()> {
        let attr = self.at(key)?;
        if value.len() != self.value {
            return Err(wrong_size());
        }
        let mut attr = attr.to(16, value).u64(24, if new { NOEXIST } else { 0 });
        // SAFETY: key and value are as large as the map's, and live on.
        unsafe { attr.call(MAP_UPDATE) }.map(drop)
    }

    /// Removes an entry.
    pub(crate) fn delete(&self, key: &[u8]) -> io::Result<()> {
        // SAFETY: the key is as large as the map's, and lives on.
        unsafe { self.at(key)?.call(MAP_DELETE) }.map(drop)
    }

    /// Copies an entry's value to `value`, which has [`Map::value_size`] bytes. Returns whether there is an entry.
    pub(crate) fn lookup(&self, key: &[u8], value: &mut [u8]) -> io::Result<bool> {
        self.get(MAP_LOOKUP, key, value)
    }

    /// As [`Map::lookup`], and removes the entry.
    pub(crate) fn take(&self, key: &[u8], value: &mut [u8]) -> io::Result<bool> {
        match self.get(MAP_LOOKUP_AND_DELETE, key, value) {
            // Before Linux 5.14, some kinds of maps do not support this.
            Err(e) if e.raw_os_error() == Some(ENOTSUPP) || e.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                let found = self.get(MAP_LOOKUP, key, value)?;
                if found {
                    self.delete(key)?;
                }
                Ok(found)
            }
            other => other,
        }
    }

    fn get(&self, command: u32, key: &[u8], value: &mut [u8]) -> io::Result<bool> {
        let attr = self.at(key)?;
        if value.len() != self.value {
            return Err(wrong_size());
        }
        // SAFETY: key and value are as large as the map's, live on, and the value is borrowed for this alone.
        match unsafe { attr.out(16, value).call(command) } {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Copies as many entries as fit to `keys` and `values`, from `cursor` on, which is `None` at the start. Returns their number, and
    /// whether they were the last.
    pub(crate) fn batch(
        &self,
        cursor: &mut Option<u64>,
        keys: &mut [u8],
        values: &mut [u8],
    ) -> io::Result<(usize, bool)> {
        let room = (keys.len() / self.key.max(1)).min(values.len() / self.value.max(1));
        // For a hash map, the kernel writes a bucket number of 32 bits; leave room for more.
        let mut next = [0u8; 64];
        let before = cursor.map(u64::to_ne_bytes);
        let mut attr = Attr::new()
            .out(8, &mut next)
            .out(16, keys)
            .out(24, values)
            .u32(32, u32::try_from(room).unwrap_or(u32::MAX))
            .fd(36, &self.fd);
        if let Some(b) = &before {
            attr = attr.to(0, b);
        }
        // SAFETY: keys and values have room for as many as are asked for, and are borrowed for this alone; for a hash map the
        // kernel reads and writes four bytes of place.
        let result = unsafe { attr.call(MAP_LOOKUP_BATCH) };
        let count = (attr.read_u32(32) as usize).min(room);
        *cursor = next.first_chunk::<8>().map(|b| u64::from_ne_bytes(*b));
        match result {
            Ok(_) => Ok((count, false)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok((count, true)),
            Err(e) => Err(e),
        }
    }
}

/// The clock that programs read ([`super::asm::Helper::KtimeCoarse`]).
pub(crate) fn monotonic() -> std::time::Duration {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one structure, which lives on.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut t) };
    std::time::Duration::new(u64::try_from(t.tv_sec).unwrap_or(0), u32::try_from(t.tv_nsec).unwrap_or(0))
}

/// Number of values in an entry of a per-CPU map, including those of CPUs that may be added later.
pub(crate) fn cpus() -> usize {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    last_cpu(&text).map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), |n| n + 1)
}

/// `0-7`, `0,2-3`
fn last_cpu(text: &str) -> Option<usize> {
    text.trim().split(',').filter_map(|r| r.rsplit('-').next()?.parse().ok()).max()
}

/// A loaded program.
#[derive(Debug)]
pub(crate) struct Program {
    fd: OwnedFd,
}

/// The reason that the kernel rejected a program.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) error: io::Error,
    /// The verifier's log, if there is one.
    pub(crate) log: String,
}

impl Program {
    pub(crate) fn load(kind: ProgramType, called: &str, code: &[Insn]) -> Result<Program, Refused> {
        const LICENSE: &[u8] = b"Apache-2.0\0";
        let count = u32::try_from(code.len()).unwrap_or(u32::MAX);
        let attr = |log: &mut [u8]| {
            let attr = Attr::new()
                .u32(0, kind as u32)
                .u32(4, count)
                .u64(8, code.as_ptr() as u64)
                .to(16, LICENSE)
                .put(48, &name(called));
            match log.len() {
                0 => attr,
                n => attr.u32(24, 1).u32(28, n as u32).out(32, log),
            }
        };
        // SAFETY: there are as many instructions as said, the license ends with a zero, and both live on; there is no log.
        if let Ok(fd) = unsafe { attr(&mut []).call_fd(PROG_LOAD) } {
            return Ok(Program { fd });
        }
        let mut log = vec![0; LOG];
        // SAFETY: as above; the log has as many bytes as said and is borrowed for this alone.
        let result = unsafe { attr(&mut log).call_fd(PROG_LOAD) };
        let end = log.iter().position(|b| *b == 0).unwrap_or(0);
        let log = String::from_utf8_lossy(log.get(..end).unwrap_or_default()).into_owned();
        result.map(|fd| Program { fd }).map_err(|error| Refused { error, log })
    }

    /// Its descriptor, for sockets that run it.
    pub(crate) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Runs it over a packet, as if received, and returns its result.
    #[cfg(test)]
    pub(crate) fn run(&self, packet: &[u8]) -> io::Result<u32> {
        self.run_with(packet, &mut [])
    }

    /// The same with a context (`struct __sk_buff`), which it may change; the interface is the loopback.
    #[cfg(test)]
    pub(crate) fn run_with(&self, packet: &[u8], context: &mut [u8]) -> io::Result<u32> {
        let mut out = vec![0; packet.len() + 256];
        let mut attr = Attr::new()
            .fd(0, &self.fd)
            .u32(8, packet.len() as u32)
            .u32(12, out.len() as u32)
            .to(16, packet)
            .out(24, &mut out);
        let before = context.to_vec();
        if !context.is_empty() {
            let len = context.len() as u32;
            attr = attr.u32(40, len).u32(44, len).to(48, &before).out(56, context);
        }
        // SAFETY: packet, output and contexts are as large as said and live on; what is written to is borrowed for this alone.
        unsafe { attr.call(PROG_TEST_RUN) }?;
        Ok(attr.read_u32(4))
    }
}

/// The mode of an XDP program at an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum XdpMode {
    /// In the network stack, with any driver (`XDP_FLAGS_SKB_MODE`).
    Generic,
    /// In the driver, before the stack has the packet (`XDP_FLAGS_DRV_MODE`).
    Driver,
}

/// Keeps a program attached to an interface until it is dropped. The kernel also removes it when the process ends, however it ends.
#[derive(Debug)]
pub(crate) struct Link {
    _fd: OwnedFd,
}

impl Link {
    /// Attaches the program to the interface with this index. It never replaces another program.
    pub(crate) fn xdp(program: &Program, index: i32, mode: XdpMode) -> io::Result<Link> {
        let flags = match mode {
            XdpMode::Generic => 2,
            XdpMode::Driver => 4,
        };
        let mut attr = Attr::new().fd(0, &program.fd).put(4, &index.to_ne_bytes()).u32(8, ATTACH_XDP).u32(12, flags);
        // SAFETY: the command has no addresses, and returns a descriptor.
        Ok(Link { _fd: unsafe { attr.call_fd(LINK_CREATE) }? })
    }

    /// Attaches the program to the ingress of the interface with this index (tc ingress, TCX: Linux 6.6), before any others.
    pub(crate) fn ingress(program: &Program, index: i32) -> io::Result<Link> {
        let mut attr =
            Attr::new().fd(0, &program.fd).put(4, &index.to_ne_bytes()).u32(8, ATTACH_TCX_INGRESS).u32(12, BEFORE);
        // SAFETY: the command has no addresses, and returns a descriptor.
        Ok(Link { _fd: unsafe { attr.call_fd(LINK_CREATE) }? })
    }
}

#[cfg(test)]
mod tests {
    use super::last_cpu;

    #[test]
    fn cpus_that_may_be() {
        for (text, want) in [("0-7\n", Some(7)), ("0\n", Some(0)), ("0,2-3", Some(3)), ("", None)] {
            assert_eq!(last_cpu(text), want, "{text}");
        }
    }
}
