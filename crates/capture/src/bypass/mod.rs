//! Bypass in the kernel: packets of flows that need no more inspection do not reach the engine.
//!
//! A [`Bypass`] is a program at one interface, or at two bridged ones, and its table of flows ([`crate::ebpf`]). A flow is entered with
//! the keys of both directions ([`Bypass::enter`]). From then on the program drops its packets, or between bridged interfaces forwards
//! them, and counts them per direction and CPU. [`Bypass::read`] reads the counts of all flows, for a thread beside the packet path;
//! [`Bypass::take`] removes a flow and returns its last counts.
//!
//! The program's place ([`Place`]) is XDP, in the driver or in the network stack, where the kernel copies each packet larger than a page
//! for it, of every flow. Bridged interfaces in the network stack have it at tc instead, with a second program at their sockets
//! (`ingress`), and no packet is touched.
//!
//! These packets still reach the engine:
//! - SYN, FIN and RST, so that a flow's end is seen;
//! - fragments, IPv6 with extension headers, anything in a tunnel, more than two VLAN tags;
//! - frames to the interface's own address, multicast and broadcast, so that a host that uses the interface stays reachable. (Packets
//!   that the host bridges or routes have other addresses: bypass is for taps, mirrors and inline pairs.)
//! - between bridged interfaces, packets larger than the other one sends: with XDP also those that the kernel merged (GRO, LRO), at tc
//!   only those that may not be cut.
//!
//! | what | limit or policy |
//! | --- | --- |
//! | flows | [`FLOWS`] for each program; further ones are bypassed in user space ([`Refusal::Full`]) |
//! | an entry | stays until it is taken, so that no count is lost; all disappear with the process |
//! | an interface that is gone | the program goes with it; [`Bypass::repair`] brings it back |

mod ingress;

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use margay_packet::{LinkType, Time};

use crate::ebpf::attach::attach;
use crate::ebpf::passing::{self, Found, key, value};
use crate::ebpf::sys::{Link, Map, MapType, NO_PREALLOC, Program, ProgramType};
use crate::ebpf::{Purpose, XdpMode};
use crate::interface::{Asker, Interface};
use crate::live::LiveError;
use ingress::Ingress;

/// Capacity of a program's table, in flows.
pub const FLOWS: u32 = 65_536;
/// Entries to read at a time.
const CHUNK: usize = 1024;
/// An Ethernet header with two tags: the most that precedes a packet as large as the MTU.
const LINK_HEADER: u32 = 22;
/// Capabilities of the program; the third is for arithmetic with packet addresses.
const NEEDS: &str = "CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON";

/// The key of one direction of a flow, as the program computes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BypassKey([u8; key::LEN]);

impl BypassKey {
    /// The key of packets from `source` to `destination` with these VLAN identifiers, the outer one first. `None` if the program
    /// does not handle such packets: other protocols than TCP and UDP, more than two tags, two address families.
    pub fn new(source: (IpAddr, u16), destination: (IpAddr, u16), protocol: u8, vlans: &[u16]) -> Option<BypassKey> {
        if !matches!(protocol, 6 | 17) || vlans.len() > 2 {
            return None;
        }
        let mut k = [0; key::LEN];
        let mut put = |at: usize, bytes: &[u8]| {
            if let Some(place) = k.get_mut(at..at + bytes.len()) {
                place.copy_from_slice(bytes);
            }
        };
        match (source.0, destination.0) {
            (IpAddr::V4(s), IpAddr::V4(d)) => {
                put(key::SOURCE, &s.octets());
                put(key::DESTINATION, &d.octets());
                put(key::FAMILY, &[4]);
            }
            (IpAddr::V6(s), IpAddr::V6(d)) => {
                put(key::SOURCE, &s.octets());
                put(key::DESTINATION, &d.octets());
                put(key::FAMILY, &[6]);
            }
            _ => return None,
        }
        put(key::SOURCE_PORT, &source.1.to_be_bytes());
        put(key::DESTINATION_PORT, &destination.1.to_be_bytes());
        vlans.iter().enumerate().for_each(|(n, v)| put(key::VLANS + 2 * n, &(v & 0xfff).to_ne_bytes()));
        put(key::PROTOCOL, &[protocol]);
        Some(BypassKey(k))
    }
}

/// The program's counters of one direction of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BypassCount {
    /// Packets.
    pub packets: u64,
    /// Their bytes, from the link layer on.
    pub bytes: u64,
    /// When the last packet arrived; 0 if there was none.
    pub last: Time,
}

/// Why a flow is not bypassed in the kernel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The table is full.
    #[error("{FLOWS} flows are bypassed in the kernel: there is no room for more")]
    Full,
    /// The flow is already in the table.
    #[error("the flow is bypassed already")]
    Twice,
    /// The thread that reads the counters has ended.
    #[error("nobody reads the counts of flows any more")]
    Unread,
    /// The kernel refused the entry.
    #[error("the kernel does not take the flow: {0}")]
    System(#[from] io::Error),
}

/// An interface to bypass at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BypassPort {
    /// The interface.
    pub interface: String,
    /// The interface through which bypassed packets leave, if the two are bridged; with `None`, they are dropped.
    pub to: Option<String>,
}

/// Where a program is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// In the driver (XDP).
    Driver,
    /// In the network stack (XDP).
    Stack,
    /// At the ingress of the network stack (tc), after AF_PACKET sockets, which have a program, too ([`Bypass::filter`]).
    Ingress,
}

impl Place {
    fn of(mode: XdpMode) -> Place {
        match mode {
            XdpMode::Driver => Place::Driver,
            XdpMode::Generic => Place::Stack,
        }
    }
}

/// The program for AF_PACKET sockets that excludes packets of bypassed flows.
#[derive(Debug, Clone)]
pub struct SocketFilter(Arc<Program>);

impl SocketFilter {
    pub(crate) fn fd(&self) -> i32 {
        self.0.fd()
    }
}

/// A program that is attached to its interface.
#[derive(Debug)]
struct Standing {
    index: i32,
    /// Index of the interface through which packets leave.
    to: Option<i32>,
    place: Place,
    _devices: Option<Map>,
    _link: Link,
}

/// The flows that the kernel bypasses, see the module.
#[derive(Debug)]
pub struct Bypass {
    flows: Map,
    ports: Vec<BypassPort>,
    /// The parts at tc for each port; none with XDP programs.
    ingress: Vec<Ingress>,
    instead: Option<LiveError>,
    mode: Option<XdpMode>,
    standing: Mutex<Vec<Option<Standing>>>,
}

impl Bypass {
    /// Attaches the program to the interfaces, as `mode` says; `None` means the driver if possible, otherwise the stack. If the
    /// mode is the stack and all interfaces are bridged, the program goes to tc instead ([`Place::Ingress`]), if the kernel
    /// supports that (Linux 6.6). Then each socket that packets are forwarded from needs [`Bypass::filter`].
    ///
    /// # Errors
    /// [`LiveError`]; the program is then attached to none of them.
    pub fn new(ports: &[BypassPort], mode: Option<XdpMode>) -> Result<Bypass, LiveError> {
        let first = ports.first().map_or("", |p| p.interface.as_str());
        let sizes = [key::LEN as u32, value::LEN as u32];
        let flows = Map::new(MapType::PercpuHash, "bypassed", sizes, FLOWS * 2, NO_PREALLOC).map_err(|e| {
            Purpose { interface: first, needs: NEEDS }.refused("cannot have a table of bypassed flows", e)
        })?;
        let mut bypass = Bypass {
            flows,
            ports: ports.to_vec(),
            ingress: Vec::new(),
            instead: None,
            mode,
            standing: Mutex::default(),
        };
        if mode == Some(XdpMode::Generic) && ports.iter().all(|p| p.to.is_some()) {
            let made: Result<_, _> = ports.iter().map(|p| Ingress::new(&bypass.flows, &p.interface)).collect();
            match made.and_then(|i| bypass.stand_all(i)) {
                Ok(()) => return Ok(bypass),
                Err(e) => bypass.instead = Some(e),
            }
        }
        bypass.stand_all(Vec::new())?;
        Ok(bypass)
    }

    fn stand_all(&mut self, ingress: Vec<Ingress>) -> Result<(), LiveError> {
        self.ingress = ingress;
        let all: Result<Vec<_>, _> = (0..self.ports.len()).map(|at| self.stand(at).map(Some)).collect();
        self.standing = Mutex::new(all.inspect_err(|_| self.hold())?);
        Ok(())
    }

    /// The interfaces, and where the program of each is attached.
    pub fn places(&self) -> Vec<(String, Option<Place>)> {
        let standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |(p, s): (&BypassPort, &Option<Standing>)| (p.interface.clone(), s.as_ref().map(|s| s.place));
        self.ports.iter().zip(standing.iter()).map(of).collect()
    }

    /// The reason that XDP programs are used instead of tc.
    pub fn instead(&self) -> Option<&LiveError> {
        self.instead.as_ref()
    }

    /// The program for AF_PACKET sockets at that interface, which receive packets before tc. `None` without a program at tc.
    /// It is valid as long as this [`Bypass`] exists, also for recreated interfaces.
    pub fn filter(&self, interface: &str) -> Option<SocketFilter> {
        let at = self.ports.iter().position(|p| p.interface == interface)?;
        self.ingress.get(at).map(|i| i.filter.clone())
    }

    /// Makes the kernel drop or forward the packets of a flow, in both directions, from now on.
    ///
    /// # Errors
    /// [`Refusal`]; then neither direction is bypassed.
    pub fn enter(&self, keys: &[BypassKey; 2]) -> Result<(), Refusal> {
        let zeros = vec![0; self.flows.value_size()];
        let [one, other] = keys;
        let add = |k: &BypassKey| {
            self.flows.update(&k.0, &zeros, true).map_err(|e| match e.raw_os_error() {
                Some(libc::E2BIG | libc::ENOMEM | libc::ENOSPC) => Refusal::Full,
                Some(libc::EEXIST) => Refusal::Twice,
                _ => Refusal::System(e),
            })
        };
        add(one)?;
        add(other).inspect_err(|_| {
            // Packets counted in between are lost; the gap is shorter than the time between two packets.
            let _ = self.flows.delete(&one.0);
        })
    }

    /// Ends the bypass of a flow: its packets reach the engine again. Returns the counts of each direction since its entry.
    pub fn take(&self, keys: &[BypassKey; 2]) -> [BypassCount; 2] {
        let clock = Clock::now();
        keys.map(|k| {
            let mut values = vec![0; self.flows.value_size()];
            match self.flows.take(&k.0, &mut values) {
                Ok(true) => sum(&values, &clock),
                _ => BypassCount::default(),
            }
        })
    }

    /// Calls `f` with each direction of a flow and its counts since its entry.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn read(&self, f: &mut dyn FnMut(&BypassKey, BypassCount)) -> io::Result<()> {
        let size = self.flows.value_size();
        let (mut keys, mut values) = (vec![0; CHUNK * key::LEN], vec![0; CHUNK * size]);
        let clock = Clock::now();
        let mut cursor = None;
        loop {
            let (count, last) = self.flows.batch(&mut cursor, &mut keys, &mut values)?;
            let entries = keys.chunks_exact(key::LEN).zip(values.chunks_exact(size.max(1)));
            for (k, v) in entries.take(count) {
                if let Ok(k) = k.try_into() {
                    f(&BypassKey(k), sum(v, &clock));
                }
            }
            if last {
                return Ok(());
            }
        }
    }

    /// Attaches the program again to interfaces that disappeared and came back. Returns these interfaces.
    ///
    /// # Errors
    /// The reason that it cannot be attached to one of them.
    pub fn repair(&self) -> Result<Vec<String>, LiveError> {
        let mut standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut back = Vec::new();
        for (at, (port, place)) in self.ports.iter().zip(standing.iter_mut()).enumerate() {
            let index = |name: &str| Interface::find(name).ok().map(|i| i.index);
            let (here, there) = (index(&port.interface), port.to.as_deref().map(index));
            if place.as_ref().is_some_and(|s| Some(s.index) == here && there.is_none_or(|t| t == s.to)) {
                continue;
            }
            // Until the program is attached again, sockets must receive all packets.
            self.ingress.get(at).inspect(|i| i.hold());
            *place = None;
            if here.is_some() && there.is_none_or(|t| t.is_some()) {
                *place = Some(self.stand(at)?);
                back.push(port.interface.clone());
            }
        }
        Ok(back)
    }

    /// Attaches the program to an interface.
    fn stand(&self, at: usize) -> Result<Standing, LiveError> {
        let Some(port) = self.ports.get(at) else { return Err(LiveError::NoInterface(String::new())) };
        match (self.ingress.get(at), &port.to) {
            (Some(ingress), Some(to)) => ingress.stand(&self.flows, &port.interface, to),
            _ => stand(&self.flows, port, self.mode),
        }
    }

    /// Makes sockets receive all packets.
    fn hold(&self) {
        self.ingress.iter().for_each(Ingress::hold);
    }
}

impl Drop for Bypass {
    fn drop(&mut self) {
        // Sockets may exist for longer.
        self.hold();
    }
}

/// Looks up an Ethernet interface and its address.
fn ethernet(name: &str, asker: &Asker) -> Result<(Interface, [u8; 6]), LiveError> {
    let interface = Interface::find(name)?;
    if interface.link != LinkType::ETHERNET || interface.loopback {
        return Err(LiveError::Setting {
            interface: name.to_owned(),
            setting: "bypass",
            message: "only interfaces of Ethernet can have it".to_owned(),
        });
    }
    let own =
        asker.address(name).map_err(|e| Purpose { interface: name, needs: NEEDS }.refused("cannot be looked at", e))?;
    Ok((interface, own))
}

/// Attaches the XDP program to an interface.
fn stand(flows: &Map, port: &BypassPort, mode: Option<XdpMode>) -> Result<Standing, LiveError> {
    let name = port.interface.as_str();
    let purpose = Purpose { interface: name, needs: NEEDS };
    let failed = |what| move |e| purpose.refused(what, e);
    let asker = Asker::new().map_err(failed("cannot be looked at"))?;
    let (interface, own) = ethernet(name, &asker)?;
    let (mut devices, mut to) = (None, None);
    let found = match &port.to {
        None => Found::Drop,
        Some(peer) => {
            let index = Interface::find(peer)?.index;
            let mtu = asker.mtu(peer).map_err(failed("cannot be looked at"))?;
            let map = Map::new(MapType::Devmap, "peer", [4, 4], 1, 0)
                .and_then(|m| m.update(&[0; 4], &index.to_ne_bytes(), false).map(|()| m))
                .map_err(failed("packets cannot be sent on to its peer (copy-iface)"))?;
            to = Some(index);
            Found::Forward { devices: devices.insert(map).fd(), longest: mtu.saturating_add(LINK_HEADER) }
        }
    };
    let code = passing::bypass(flows.fd(), own, found)?;
    let program = Program::load(ProgramType::Xdp, "bypass", &code)
        .map_err(|r| purpose.not_taken("the program that bypasses flows is not taken by the kernel", r))?;
    let (link, mode) = attach(purpose, &program, interface.index, mode)?;
    Ok(Standing { index: interface.index, to, place: Place::of(mode), _devices: devices, _link: link })
}

/// Sums the counters of all CPUs.
fn sum(values: &[u8], clock: &Clock) -> BypassCount {
    let mut all = BypassCount::default();
    let mut last = 0;
    for v in values.chunks_exact(value::LEN) {
        let number = |at: usize| v.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_ne_bytes);
        all.packets += number(value::PACKETS);
        all.bytes += number(value::BYTES);
        last = last.max(number(value::LAST));
    }
    all.last = if last == 0 { Time::default() } else { clock.time(last) };
    all
}

/// The programs' clock and the packets' clock, read at the same moment.
struct Clock {
    monotonic: Duration,
    real: Duration,
}

impl Clock {
    fn now() -> Clock {
        let t = crate::ebpf::sys::monotonic();
        Clock { monotonic: t, real: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() }
    }

    fn time(&self, nanos: u64) -> Time {
        let ago = self.monotonic.saturating_sub(Duration::from_nanos(nanos));
        let t = self.real.saturating_sub(ago);
        Time::new(t.as_secs().cast_signed(), i64::from(t.subsec_micros()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn v4(n: u8, port: u16) -> (IpAddr, u16) {
        (IpAddr::from([10, 0, 0, n]), port)
    }

    pub(super) fn v6(n: u8, port: u16) -> (IpAddr, u16) {
        let mut a = [0; 16];
        (a[0], a[15]) = (0xfd, n);
        (IpAddr::from(a), port)
    }

    /// An Ethernet frame to 02:00:00:00:00:09.
    pub(super) fn frame(from: (IpAddr, u16), to: (IpAddr, u16), protocol: u8, flags: u8, tags: &[u16]) -> Vec<u8> {
        let mut f = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1];
        for (n, t) in tags.iter().enumerate() {
            f.extend_from_slice(if n == 0 && tags.len() > 1 { &[0x88, 0xa8] } else { &[0x81, 0] });
            f.extend_from_slice(&(t | 0x6000).to_be_bytes());
        }
        let l4 = if protocol == 6 { 20 } else { 8 };
        match (from.0, to.0) {
            (IpAddr::V4(s), IpAddr::V4(d)) => {
                f.extend_from_slice(&[8, 0, 0x45, 0, 0, 20 + l4 + 40, 0, 0, 0x40, 0, 64, protocol, 0, 0]);
                f.extend_from_slice(&s.octets());
                f.extend_from_slice(&d.octets());
            }
            (IpAddr::V6(s), IpAddr::V6(d)) => {
                f.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0, 0, l4 + 40, protocol, 64]);
                f.extend_from_slice(&s.octets());
                f.extend_from_slice(&d.octets());
            }
            _ => unreachable!(),
        }
        f.extend_from_slice(&from.1.to_be_bytes());
        f.extend_from_slice(&to.1.to_be_bytes());
        match protocol {
            6 => f.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags, 0, 0, 0, 0, 0, 0]),
            _ => f.extend_from_slice(&[0, 48, 0, 0]),
        }
        f.extend_from_slice(&[7; 40]);
        f
    }

    pub(super) fn keys(a: (IpAddr, u16), b: (IpAddr, u16), protocol: u8, vlans: &[u16]) -> [BypassKey; 2] {
        [BypassKey::new(a, b, protocol, vlans).unwrap(), BypassKey::new(b, a, protocol, vlans).unwrap()]
    }

    /// The table and the program, without an interface; `None` if the process may not load them.
    pub(super) fn loaded() -> Option<(Bypass, Program)> {
        let sizes = [key::LEN as u32, value::LEN as u32];
        let flows = match Map::new(MapType::PercpuHash, "test", sizes, 8, NO_PREALLOC) {
            Err(e) if matches!(e.raw_os_error(), Some(libc::EPERM | libc::ENOSYS)) => {
                margay_testing::not_run("programs in the kernel need root");
                return None;
            }
            other => other.unwrap(),
        };
        let code = passing::bypass(flows.fd(), [2, 0, 0, 0, 0, 8], Found::Drop).unwrap();
        let program =
            Program::load(ProgramType::Xdp, "test", &code).unwrap_or_else(|r| panic!("{}\n{}", r.error, r.log));
        let (ports, ingress, standing) = Default::default();
        Some((Bypass { flows, ports, ingress, instead: None, mode: None, standing }, program))
    }

    pub(super) const DROP: u32 = 1;
    pub(super) const PASS: u32 = 2;
    pub(super) const ACK: u8 = 0x10;

    #[test]
    fn packets_of_bypassed_flows_are_dropped_and_counted() {
        let Some((bypass, program)) = loaded() else { return };
        let run = |f: &[u8]| program.run(f).unwrap();
        for (a, b, protocol, vlans) in [
            (v4(1, 1000), v4(2, 80), 6, &[][..]),
            (v4(1, 1000), v4(2, 53), 17, &[100]),
            (v6(1, 1000), v6(2, 80), 6, &[7, 9]),
            (v6(1, 65535), v6(2, 1), 17, &[]),
        ] {
            let (there, back) = (frame(a, b, protocol, ACK, vlans), frame(b, a, protocol, ACK, vlans));
            let keys = keys(a, b, protocol, vlans);
            assert_eq!((run(&there), run(&back)), (PASS, PASS), "not entered");
            bypass.enter(&keys).unwrap();
            assert!(matches!(bypass.enter(&keys), Err(Refusal::Twice)));
            assert_eq!((run(&there), run(&there), run(&back)), (DROP, DROP, DROP));
            // Another flow, another network, frames to another host.
            let other = [4; 1].map(|n| frame(a, (b.0, b.1 ^ n), protocol, ACK, vlans));
            assert_eq!(run(&other[0]), PASS);
            assert_eq!(run(&frame(a, b, protocol, ACK, &[101])), PASS);
            assert_eq!(run(&frame(a, b, 23 - protocol, ACK, vlans)), PASS);
            let mut own = there.clone();
            own[5] = 8;
            assert_eq!(run(&own), PASS);
            own[..6].fill(0xff);
            assert_eq!(run(&own), PASS);
            if protocol == 6 {
                for flags in [0x02, 0x12, 0x11, 0x01, 0x04, 0x14] {
                    assert_eq!(run(&frame(a, b, 6, flags, vlans)), PASS, "{flags:#x}");
                }
                assert_eq!(run(&frame(a, b, 6, 0x18, vlans)), DROP);
            }
            // A truncated frame of any length does no harm.
            for n in 14..there.len() {
                run(&there[..n]);
            }
            let mut seen = std::collections::HashMap::new();
            bypass.read(&mut |k, c| _ = seen.insert(*k, c)).unwrap();
            assert_eq!(seen.len(), 2);
            let [to, from] = bypass.take(&keys);
            assert!(to.packets >= 2 && to.bytes >= 2 * there.len() as u64, "{to:?}");
            assert_eq!((from.packets, from.bytes), (1, back.len() as u64));
            // The clocks are read at slightly different times, so the last time differs by some nanoseconds.
            let counted = |c: BypassCount| (c.packets, c.bytes);
            assert_eq!([seen[&keys[0]], seen[&keys[1]]].map(counted), [to, from].map(counted));
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
            assert!((to.last.secs() - now).abs() < 30, "{to:?}");
            assert_eq!(run(&there), PASS, "taken");
            assert_eq!(bypass.take(&keys), [BypassCount::default(); 2]);
        }
    }

    #[test]
    fn fragments_and_the_like_are_not_for_the_program() {
        let Some((bypass, program)) = loaded() else { return };
        let (a, b) = (v4(1, 1), v4(2, 2));
        bypass.enter(&keys(a, b, 17, &[])).unwrap();
        let whole = frame(a, b, 17, 0, &[]);
        assert_eq!(program.run(&whole).unwrap(), DROP);
        for (at, byte) in [(20, 0x20), (21, 1), (14, 0x44), (14, 0x65), (23, 47)] {
            let mut f = whole.clone();
            f[at] = byte;
            assert_eq!(program.run(&f).unwrap(), PASS, "{at}");
        }
        // Options before the ports.
        let mut f = whole.clone();
        f[14] = 0x46;
        f.splice(34..34, [1, 1, 1, 1]);
        assert_eq!(program.run(&f).unwrap(), DROP);
        assert_eq!(program.run(&frame(a, b, 17, 0, &[1, 2, 3])).unwrap(), PASS);
    }

    #[test]
    fn a_full_table_refuses() {
        let Some((bypass, _)) = loaded() else { return };
        let many: Vec<_> = (0..20).map(|n| keys(v4(n, 1), v4(200, 2), 6, &[])).collect();
        let entered = many.iter().filter(|k| bypass.enter(k).is_ok()).count();
        assert!((1..20).contains(&entered), "{entered}");
        assert!(matches!(bypass.enter(&keys(v4(99, 1), v4(200, 2), 6, &[])), Err(Refusal::Full)));
        let mut n = 0;
        bypass.read(&mut |_, _| n += 1).unwrap();
        assert_eq!(n, entered * 2, "both directions or none");
        bypass.take(&many[0]);
        bypass.enter(&many[0]).unwrap();
    }

    #[test]
    fn keys_are_of_what_the_program_knows() {
        let of = |p, v: &[u16]| BypassKey::new(v4(1, 1), v4(2, 2), p, v);
        assert!(of(1, &[]).is_none() && of(6, &[1, 2, 3]).is_none() && of(132, &[]).is_none());
        assert!(BypassKey::new(v4(1, 1), v6(2, 2), 6, &[]).is_none());
        assert_ne!(of(6, &[]), of(17, &[]));
        assert_ne!(of(6, &[1]), of(6, &[2]));
    }
}
