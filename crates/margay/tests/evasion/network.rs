//! The network: a host whose packets are made here, the engine, a router, and a server with what it reads.

use std::collections::BTreeMap;
use std::io::Read;
use std::net::{IpAddr, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::bench::raw::{MAC, Raw, Tap};
use crate::bench::{Bench, Engine, Ns, addressed, at, folder, ip, pair, sysctl, wait_for};

/// How packets come to the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// It is between two interfaces.
    Bridged,
    /// It is on a router, and netfilter hands over what that forwards.
    Queued,
}

/// The host whose packets are made here, the engine, a router, and a server, one behind the other.
pub(crate) struct Chain {
    pub(crate) way: Way,
    pub(crate) client: Ns,
    _router: Ns,
    pub(crate) server: Ns,
}

pub(crate) const SERVER4: &str = "10.9.3.2";

pub(crate) const SERVER6: &str = "fd09:3::2";

pub(crate) const SOURCES: [&str; 2] = ["10.9.0.77", "fd09:0::77"];

pub(crate) const NEXT: [u8; 6] = [2, 0, 0, 0, 9, 2];

impl Chain {
    pub(crate) fn new(way: Way) -> Chain {
        sysctl("ipv6/conf/default/disable_ipv6", "1");
        let (client, router, server) = (Ns::new(), Ns::new(), Ns::new());
        for ns in [&client, &router, &server] {
            ns.run(quiet);
        }
        quiet();
        pair("ia", "c0", &client);
        pair("ib", "r0", &router);
        router.run(|| pair("r1", "s0", &server));
        addressed(&router, "r1", 3, 1);
        addressed(&server, "s0", 3, 2);
        router.run(forwards);
        let default = |a: &str, b: &str| {
            ip(&format!("route add default via {a}"));
            ip(&format!("-6 route add default via {b}"));
        };
        server.run(|| default("10.9.3.1", "fd09:3::1"));
        let neighbour = |of: &str| {
            ip(&format!("link set {of} address 02:00:00:00:09:02"));
            let mac = MAC.map(|b| format!("{b:02x}")).join(":");
            SOURCES.iter().for_each(|s| ip(&format!("neigh add {s} lladdr {mac} dev {of}")));
        };
        match way {
            Way::Bridged => {
                addressed(&router, "r0", 0, 2);
                router.run(|| neighbour("r0"));
            }
            Way::Queued => {
                for (interface, net) in [("ia", 0), ("ib", 2)] {
                    sysctl("ipv6/conf/all/disable_ipv6", "0");
                    sysctl(&format!("ipv6/conf/{interface}/disable_ipv6"), "0");
                    ip(&format!("addr add 10.9.{net}.1/24 dev {interface}"));
                    ip(&format!("addr add fd09:{net}::1/64 dev {interface} nodad"));
                }
                forwards();
                addressed(&router, "r0", 2, 2);
                router.run(|| default("10.9.2.1", "fd09:2::1"));
                ip("route add 10.9.3.0/24 via 10.9.2.2");
                ip("-6 route add fd09:3::/64 via fd09:2::2");
                neighbour("ia");
                for tables in ["iptables", "ip6tables"] {
                    let o = Command::new(tables).args(["-A", "FORWARD", "-j", "NFQUEUE", "--queue-num", "0"]).output();
                    let o = o.expect("iptables: tools/setup installs it");
                    assert!(o.status.success(), "{tables}: {}", String::from_utf8_lossy(&o.stderr));
                }
            }
        }
        Chain { way, client, _router: router, server }
    }

    pub(crate) fn engine(&self, name: &str, rules: &str) -> (Engine, PathBuf) {
        let dir = folder(&format!("evasion-{name}-{:?}", self.way));
        let more = match self.way {
            Way::Bridged => Bench::settings(1),
            Way::Queued => vec!["-q".to_owned(), "0".to_owned()],
        };
        (Engine::start(&dir, rules, &more), dir)
    }

    /// The host, of both families.
    pub(crate) fn hosts<'a>(&self, tap: &'a Tap) -> [Raw<'a>; 2] {
        [(SOURCES[0], SERVER4), (SOURCES[1], SERVER6)].map(|(src, to)| Raw {
            tap,
            next: NEXT,
            src: src.parse::<IpAddr>().expect("an address"),
            to: at(to, 80),
            ttl: 64,
            broken: false,
            sizeless: false,
            extensions: &[],
        })
    }

    /// Hops that are enough for the engine, and too few for the server.
    pub(crate) fn few(&self) -> u8 {
        if self.way == Way::Bridged { 1 } else { 2 }
    }
}

fn quiet() {
    for i in ["all", "default"] {
        sysctl(&format!("ipv4/conf/{i}/rp_filter"), "0");
    }
    ip("link set lo up");
}

fn forwards() {
    sysctl("ipv4/ip_forward", "1");
    sysctl("ipv6/conf/all/forwarding", "1");
}

type Streams = Arc<Mutex<BTreeMap<u16, Vec<u8>>>>;

/// The server: what its sockets read, by the port of who sent it.
pub(crate) struct Sink {
    pub(crate) streams: Streams,
    datagrams: Arc<Mutex<Vec<Vec<u8>>>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Sink {
    pub(crate) fn start(ns: &Ns) -> Sink {
        let (tcp, udp) = ns.run(|| {
            let tcp = TcpListener::bind(("::", 80)).expect("a port");
            tcp.set_nonblocking(true).expect("a listener");
            let udp = UdpSocket::bind(("::", 80)).expect("a port");
            udp.set_read_timeout(Some(Duration::from_millis(50))).expect("a socket");
            (tcp, udp)
        });
        let (streams, datagrams, stop) = (Arc::default(), Arc::default(), Arc::<AtomicBool>::default());
        let (all, s): (Streams, _) = (Arc::clone(&streams), Arc::clone(&stop));
        let accepts = std::thread::spawn(move || {
            while !s.load(Ordering::Relaxed) {
                let Ok((mut stream, from)) = tcp.accept() else {
                    std::thread::sleep(Duration::from_millis(2));
                    continue;
                };
                let all = Arc::clone(&all);
                std::thread::spawn(move || {
                    let _ = stream.set_nonblocking(false);
                    let mut buffer = [0; 4096];
                    all.lock().expect("the list").entry(from.port()).or_default();
                    while let Ok(n @ 1..) = stream.read(&mut buffer) {
                        all.lock().expect("the list").entry(from.port()).or_default().extend(&buffer[..n]);
                    }
                });
            }
        });
        let (all, s): (Arc<Mutex<Vec<Vec<u8>>>>, _) = (Arc::clone(&datagrams), Arc::clone(&stop));
        let receives = std::thread::spawn(move || {
            let mut buffer = vec![0; 65536];
            while !s.load(Ordering::Relaxed) {
                if let Ok(n) = udp.recv(&mut buffer) {
                    all.lock().expect("the list").push(buffer[..n].to_vec());
                }
            }
        });
        Sink { streams, datagrams, stop, threads: vec![accepts, receives] }
    }

    /// What was read on the connection from that port.
    pub(crate) fn stream(&self, port: u16) -> String {
        let all = self.streams.lock().expect("the list");
        String::from_utf8_lossy(all.get(&port).map_or(&[], |s| s)).into_owned()
    }

    /// Waits until that was read; returns what it is in the end.
    pub(crate) fn reads(&self, port: u16, words: &str) {
        let end = std::time::Instant::now() + Duration::from_secs(30);
        while self.stream(port) != words {
            assert!(std::time::Instant::now() < end, "port {port}: {:?} instead of {words:?}", self.stream(port));
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub(crate) fn received(&self, words: &[u8]) -> bool {
        let all = self.datagrams.lock().expect("the list");
        all.iter().any(|d| d.windows(words.len()).any(|w| w == words))
    }

    /// Waits until everything that the host sent before has come, if it comes at all.
    pub(crate) fn settled(&self, host: &Raw<'_>, name: &str) {
        let words = format!("settled {name} {}", host.src);
        let mut n = 0;
        wait_for("what was sent comes", || {
            if n % 50 == 0 {
                host.udp(999, words.as_bytes());
            }
            n += 1;
            self.received(words.as_bytes())
        });
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|t| drop(t.join()));
    }
}
