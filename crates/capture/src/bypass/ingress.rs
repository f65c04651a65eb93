//! Bypass between bridged interfaces in the network stack, without touching packets.
//!
//! A program at tc (TCX) counts packets of bypassed flows and makes the kernel send them out of the other interface, with their size,
//! checksum and segment information unchanged. AF_PACKET sockets receive packets before tc, so a program at each of these sockets, with
//! the same table and code, keeps them out.
//!
//! Both programs look up the same packet, and the table may change in between. So that a packet is neither duplicated nor lost, the
//! socket's program stores its decision in the packet (20 bytes of `skb->cb`, free for programs and unused before tc) as a random number
//! that the engine chose, and the program at tc obeys it. It decides itself only on packets that no socket saw, when the engine ends and
//! the sockets are closed.
//!
//! The entry [`port`] tells the programs which interface index may forward. Sockets of a recreated interface have the program from the
//! start and receive all packets until the program at tc is attached again.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use super::{NEEDS, Place, SocketFilter, Standing, ethernet};
use crate::ebpf::Purpose;
use crate::ebpf::passing::{Shared, port};
use crate::ebpf::sys::{Link, Map, MapType, Program, ProgramType};
use crate::interface::{Asker, Interface};
use crate::live::LiveError;

/// The parts of an interface that outlive the program at tc.
#[derive(Debug)]
pub(super) struct Ingress {
    port: Map,
    mark: u64,
    pub(super) filter: SocketFilter,
}

impl Ingress {
    /// The sockets' program for the interface `name`. It excludes nothing yet.
    pub(super) fn new(flows: &Map, name: &str) -> Result<Ingress, LiveError> {
        let purpose = Purpose { interface: name, needs: NEEDS };
        let port_map = Map::new(MapType::Array, "port", [4, port::LEN as u32], 1, 0)
            .map_err(|e| purpose.refused("cannot have a table for its program", e))?;
        let mark = RandomState::new().build_hasher().finish();
        let shared = Shared { port: port_map.fd(), flows: flows.fd(), mark };
        let program = Program::load(ProgramType::SocketFilter, "leave_out", &shared.leave_out()?).map_err(|r| {
            purpose.not_taken("the program that leaves out bypassed flows is not taken by the kernel", r)
        })?;
        Ok(Ingress { port: port_map, mark, filter: SocketFilter(Arc::new(program)) })
    }

    /// Attaches the program at tc of the interface `name`, so that packets of bypassed flows leave through the interface `to`.
    pub(super) fn stand(&self, flows: &Map, name: &str, to: &str) -> Result<Standing, LiveError> {
        let purpose = Purpose { interface: name, needs: NEEDS };
        let failed = |what| move |e| purpose.refused(what, e);
        let asker = Asker::new().map_err(failed("cannot be looked at"))?;
        let (interface, own) = ethernet(name, &asker)?;
        let out = Interface::find(to)?.index;
        let longest = asker.mtu(to).map_err(failed("its peer (copy-iface) cannot be looked at"))?;
        let shared = Shared { port: self.port.fd(), flows: flows.fd(), mark: self.mark };
        let program = Program::load(ProgramType::SchedCls, "send_on", &shared.send_on(out)?)
            .map_err(|r| purpose.not_taken("the program that sends on bypassed flows is not taken by the kernel", r))?;
        self.tell(0, longest, own).map_err(failed("its program cannot be given the interface"))?;
        let link = Link::ingress(&program, interface.index)
            .map_err(failed("a program cannot be put where packets come in (tc with links: Linux 6.6)"))?;
        self.tell(interface.index, longest, own).map_err(failed("its program cannot be given the interface"))?;
        Ok(Standing { index: interface.index, to: Some(out), place: Place::Ingress, _devices: None, _link: link })
    }

    /// Ends all forwarding in the kernel, so that sockets receive every packet.
    pub(super) fn hold(&self) {
        // This fails only if the map is gone, and with it the programs.
        let _ = self.tell(0, 0, [0; 6]);
    }

    fn tell(&self, index: i32, longest: u32, own: [u8; 6]) -> std::io::Result<()> {
        let mut said = [0; port::LEN];
        for (at, bytes) in
            [(port::INTERFACE, &index.to_ne_bytes()[..]), (port::LONGEST, &longest.to_ne_bytes()), (port::OWN, &own)]
        {
            if let Some(place) = said.get_mut(at..at + bytes.len()) {
                place.copy_from_slice(bytes);
            }
        }
        self.port.update(&[0; 4], &said, false)
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::super::tests::{ACK, DROP, PASS, frame, keys, loaded, v4, v6};
    use super::super::{Bypass, BypassCount};
    use super::*;

    /// Index of the interface on which the kernel runs a program for a test.
    const LOOPBACK: i32 = 1;
    /// `struct __sk_buff`, and its area for programs.
    const CONTEXT: usize = 192;
    const CB: usize = 48;
    const TAKEN: u32 = 0;
    const REDIRECT: u32 = 7;

    /// Both programs, loaded as tc programs, because the kernel's test run then gives them whole frames.
    struct Pair {
        bypass: Bypass,
        ingress: Ingress,
        xdp: Program,
        out: Program,
        on: Program,
    }

    impl Pair {
        fn new(longest: u32) -> Option<Pair> {
            let (bypass, xdp) = loaded()?;
            let ingress = Ingress::new(&bypass.flows, "lo").unwrap();
            ingress.tell(LOOPBACK, longest, [2, 0, 0, 0, 0, 8]).unwrap();
            let shared = Shared { port: ingress.port.fd(), flows: bypass.flows.fd(), mark: ingress.mark };
            let load = |code: &[_]| {
                Program::load(ProgramType::SchedCls, "test", code).unwrap_or_else(|r| panic!("{}\n{}", r.error, r.log))
            };
            let (out, on) = (load(&shared.leave_out().unwrap()), load(&shared.send_on(LOOPBACK).unwrap()));
            Some(Pair { bypass, ingress, xdp, out, on })
        }

        /// The program's result for a frame with that mark, and the mark afterwards.
        fn run(program: &Program, f: &[u8], mark: u64) -> (u32, u64) {
            let mut context = vec![0; CONTEXT];
            context[CB..CB + 8].copy_from_slice(&mark.to_ne_bytes());
            let result = program.run_with(f, &mut context).unwrap();
            (result, u64::from_ne_bytes(context[CB..CB + 8].try_into().unwrap()))
        }

        /// Whether a frame passes by. Checks that all three programs agree.
        fn passes_by(&self, f: &[u8]) -> bool {
            let xdp = self.xdp.run(f).unwrap();
            let (out, mark) = Pair::run(&self.out, f, 77);
            let (alone, _) = Pair::run(&self.on, f, 77);
            let (bridged, _) = Pair::run(&self.on, f, mark);
            let own = self.ingress.mark;
            match xdp {
                DROP => assert_eq!((out, mark, alone, bridged), (TAKEN, own.wrapping_add(1), REDIRECT, REDIRECT)),
                _ => assert_eq!((xdp, out, mark, alone, bridged), (PASS, u32::MAX, own, u32::MAX, u32::MAX)),
            }
            xdp == DROP
        }
    }

    #[test]
    fn all_programs_decide_the_same() {
        let Some(p) = Pair::new(1500) else { return };
        let flows: [((IpAddr, u16), _, u8, &[u16]); 4] = [
            (v4(1, 1000), v4(2, 80), 6, &[]),
            (v4(1, 1000), v4(2, 53), 17, &[100]),
            (v6(1, 1000), v6(2, 80), 6, &[7, 9]),
            (v6(1, 65535), v6(2, 1), 17, &[]),
        ];
        for (a, b, protocol, vlans) in flows {
            let (there, back) = (frame(a, b, protocol, ACK, vlans), frame(b, a, protocol, ACK, vlans));
            assert!(!p.passes_by(&there), "not entered");
            let keys = keys(a, b, protocol, vlans);
            p.bypass.enter(&keys).unwrap();
            assert!(p.passes_by(&there) && p.passes_by(&back));
            assert!(!p.passes_by(&frame(a, (b.0, b.1 ^ 4), protocol, ACK, vlans)), "another port");
            assert!(!p.passes_by(&frame(a, b, protocol, ACK, &[101])), "another network");
            assert!(!p.passes_by(&frame(a, b, 23 - protocol, ACK, vlans)), "another protocol");
            for flags in [0x02, 0x12, 0x11, 0x01, 0x04, 0x14] {
                assert_eq!(p.passes_by(&frame(a, b, protocol, flags, vlans)), protocol == 17, "{flags:#x}");
            }
            // Frames to the interface itself, and to a group.
            let mut own = there.clone();
            own[5] = 8;
            assert!(!p.passes_by(&own));
            own[..6].fill(0xff);
            assert!(!p.passes_by(&own));
            // Change each byte, and cut at each length.
            let mut cut = 0;
            for n in 0..there.len() {
                let mut f = there.clone();
                f[n] ^= 0x41;
                p.passes_by(&f);
                // The kernel makes no test packet from fewer bytes.
                if n >= 14 && p.on.run(&there[..n]).is_ok() {
                    p.passes_by(&there[..n]);
                    cut += 1;
                }
            }
            assert!(cut > 40, "{cut}");
            p.bypass.take(&keys);
            assert!(!p.passes_by(&there), "taken");
        }
        let (a, b) = (v4(1, 1), v4(2, 2));
        p.bypass.enter(&keys(a, b, 17, &[])).unwrap();
        let mut options = frame(a, b, 17, 0, &[]);
        options[14] = 0x46;
        options.splice(34..34, [1, 1, 1, 1]);
        assert!(p.passes_by(&options));
        assert!(!p.passes_by(&frame(a, b, 17, 0, &[1, 2, 3])));
    }

    #[test]
    fn the_second_does_what_the_first_decided() {
        let Some(p) = Pair::new(1500) else { return };
        let (a, b) = (v4(1, 1000), v4(2, 80));
        let (f, keys) = (frame(a, b, 6, ACK, &[]), keys(a, b, 6, &[]));
        let [to_engine, by] = [p.ingress.mark, p.ingress.mark.wrapping_add(1)];
        // The entry was removed in between, so the packet is forwarded but not counted.
        assert_eq!(Pair::run(&p.on, &f, by).0, REDIRECT);
        p.bypass.enter(&keys).unwrap();
        // The entry was added in between, so the engine has the packet.
        assert_eq!(Pair::run(&p.on, &f, to_engine).0, u32::MAX);
        assert_eq!(p.bypass.take(&keys), [BypassCount::default(); 2]);
        p.bypass.enter(&keys).unwrap();
        for _ in 0..3 {
            assert_eq!(Pair::run(&p.on, &f, by).0, REDIRECT);
        }
        let [there, back] = p.bypass.take(&keys);
        assert_eq!((there.packets, there.bytes, back.packets), (3, 3 * f.len() as u64, 0));
    }

    #[test]
    fn what_cannot_be_sent_on_is_the_engines() {
        let (a, b) = (v4(1, 1000), v4(2, 80));
        for (longest, fits) in [(80, true), (79, false)] {
            let Some(p) = Pair::new(longest) else { return };
            for vlans in [&[][..], &[7], &[7, 9]] {
                let f = frame(a, b, 6, ACK, vlans);
                assert_eq!(f.len(), 14 + 4 * vlans.len() + 80);
                p.bypass.enter(&keys(a, b, 6, vlans)).unwrap();
                assert_eq!(Pair::run(&p.on, &f, 0).0 == REDIRECT, fits);
                assert_eq!(Pair::run(&p.out, &f, 0).0 == TAKEN, fits);
            }
            // The program is no longer attached, or is attached to another interface with this name.
            let f = frame(a, b, 6, ACK, &[]);
            for index in [0, LOOPBACK + 1] {
                p.ingress.tell(index, 1500, [0; 6]).unwrap();
                assert_eq!(Pair::run(&p.out, &f, 0), (u32::MAX, p.ingress.mark));
            }
            p.ingress.tell(LOOPBACK, 1500, [0; 6]).unwrap();
            assert_eq!(Pair::run(&p.out, &f, 0).0, TAKEN);
            p.ingress.hold();
            assert_eq!(Pair::run(&p.out, &f, 0).0, u32::MAX);
        }
    }
}
