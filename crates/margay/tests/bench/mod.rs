//! The test bench for inline tests: a client, a server and the engine between them, and a link that loses, duplicates
//! and reorders packets. Each has a network namespace of its own that ends with the test.
#![allow(unsafe_code, dead_code)]

#[path = "../process/mod.rs"]
mod process;
pub(crate) mod raw;

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use process::PATIENCE;
#[allow(unused_imports)]
pub(crate) use process::{Engine, events, folder, last_stats, of_type, wait as wait_for};

/// Runs `ip` with these arguments; it has to succeed.
pub(crate) fn ip(words: &str) {
    let o = Command::new("ip").args(words.split_whitespace()).output().expect("ip runs");
    assert!(o.status.success(), "ip {words}: {}", String::from_utf8_lossy(&o.stderr));
}

pub(crate) fn sysctl(key: &str, value: &str) {
    std::fs::write(format!("/proc/sys/net/{key}"), value).unwrap_or_else(|e| panic!("{key}: {e}"));
}

/// A network namespace without a name. It exists while a descriptor of it is open.
#[derive(Clone)]
pub(crate) struct Ns(Arc<File>);

impl Ns {
    pub(crate) fn new() -> Ns {
        let made = std::thread::spawn(|| {
            // SAFETY: the call takes no pointer, and the namespace belongs to this thread only.
            assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0, "a namespace");
            File::open("/proc/thread-self/ns/net").expect("the namespace")
        });
        Ns(Arc::new(made.join().expect("a namespace")))
    }

    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    fn enter(&self) {
        // SAFETY: the call takes no pointer, and the descriptor is open.
        assert_eq!(unsafe { libc::setns(self.0.as_raw_fd(), libc::CLONE_NEWNET) }, 0, "the namespace");
    }

    /// Starts a thread in the namespace.
    pub(crate) fn spawn<T: Send + 'static>(&self, f: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        let ns = self.clone();
        std::thread::spawn(move || {
            ns.enter();
            f()
        })
    }

    /// Runs a function in the namespace.
    pub(crate) fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|s| {
            let ran = s.spawn(|| {
                self.enter();
                f()
            });
            ran.join().unwrap_or_else(|e| std::panic::resume_unwind(e))
        })
    }
}

/// Creates a pair of interfaces and moves the second one to that namespace.
pub(crate) fn pair(a: &str, b: &str, of: &Ns) {
    ip(&format!("link add {a} type veth peer name {b}"));
    ip(&format!("link set {b} netns {}", of.path()));
    ip(&format!("link set {a} up"));
    of.run(|| ip(&format!("link set {b} up")));
}

/// Gives an end of the link its addresses: 10.9.TAG.N and fd09:TAG::N.
pub(crate) fn addressed(ns: &Ns, interface: &str, net: u8, n: u8) {
    ns.run(|| {
        sysctl("ipv6/conf/all/disable_ipv6", "0");
        sysctl(&format!("ipv6/conf/{interface}/disable_ipv6"), "0");
        ip(&format!("addr add 10.9.{net}.{n}/24 dev {interface}"));
        ip(&format!("addr add fd09:{net}::{n}/64 dev {interface} nodad"));
        ip("link set lo up");
    });
}

/// The test bench. The engine has `ia` and `ib` in this namespace; the client has `c0`, the server `s0`.
pub(crate) struct Bench {
    pub(crate) client: Ns,
    pub(crate) server: Ns,
}

pub(crate) const SERVER4: &str = "10.9.0.2";
pub(crate) const SERVER6: &str = "fd09:0::2";

impl Bench {
    pub(crate) fn new() -> Bench {
        Bench::with(|client| pair("ia", "c0", client))
    }

    /// As [`Bench::new`], with another link between the client's `c0` and `ia`.
    pub(crate) fn with(left: impl FnOnce(&Ns)) -> Bench {
        // Only the test sends packets.
        sysctl("ipv6/conf/default/disable_ipv6", "1");
        let (client, server) = (Ns::new(), Ns::new());
        for ns in [&client, &server] {
            ns.run(|| {
                sysctl("ipv4/conf/all/rp_filter", "0");
                sysctl("ipv4/conf/default/rp_filter", "0");
            });
        }
        left(&client);
        pair("ib", "s0", &server);
        // A new bench has the same addresses, so that neighbours need not be resolved again.
        server.run(|| ip("link set s0 address 02:00:00:09:00:02"));
        addressed(&client, "c0", 0, 1);
        addressed(&server, "s0", 0, 2);
        Bench { client, server }
    }

    /// Settings that bridge the two interfaces.
    pub(crate) fn settings(workers: usize) -> Vec<String> {
        let mut all = Vec::new();
        for (n, a, b) in [(0, "ia", "ib"), (1, "ib", "ia")] {
            for (key, value) in [
                ("interface", a),
                ("copy-iface", b),
                ("copy-mode", "ips"),
                ("threads", &workers.to_string()),
                ("defrag", "no"),
            ] {
                all.push("--set".to_owned());
                all.push(format!("af-packet.{n}.{key}={value}"));
            }
        }
        all.push("--af-packet".to_owned());
        all
    }
}

/// The bytes that a server sends for a seed.
pub(crate) fn body(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        out.extend_from_slice(&x.to_le_bytes());
    }
    out.truncate(len);
    out
}

/// An HTTP server for `GET /SEED/LENGTH`. It records the requests.
pub(crate) struct Server {
    pub(crate) asked: Arc<Mutex<Vec<String>>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(ns: &Ns, port: u16) -> Server {
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let stop: Arc<AtomicBool> = Arc::default();
        let (tcp, udp) = ns.run(|| {
            let tcp = TcpListener::bind(("::", port)).expect("a port");
            tcp.set_nonblocking(true).expect("a listener");
            let udp = UdpSocket::bind(("::", port)).expect("a port");
            udp.set_read_timeout(Some(Duration::from_millis(50))).expect("a socket");
            (tcp, udp)
        });
        let (a, s) = (Arc::clone(&asked), Arc::clone(&stop));
        let accepts = std::thread::spawn(move || {
            while !s.load(Ordering::Relaxed) {
                match tcp.accept() {
                    Ok((stream, _)) => {
                        let a = Arc::clone(&a);
                        std::thread::spawn(move || serve(stream, &a));
                    }
                    Err(_) => std::thread::sleep(Duration::from_millis(5)),
                }
            }
        });
        let (a, s) = (Arc::clone(&asked), Arc::clone(&stop));
        let echoes = std::thread::spawn(move || {
            let mut buffer = [0; 65536];
            while !s.load(Ordering::Relaxed) {
                if let Ok((n, from)) = udp.recv_from(&mut buffer) {
                    a.lock().expect("the list").push(String::from_utf8_lossy(&buffer[..n]).into_owned());
                    let _ = udp.send_to(&buffer[..n], from);
                }
            }
        });
        Server { asked, stop, threads: vec![accepts, echoes] }
    }

    pub(crate) fn was_asked(&self, words: &str) -> bool {
        self.asked.lock().expect("the list").iter().any(|a| a.contains(words))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|t| drop(t.join()));
    }
}

fn serve(stream: TcpStream, asked: &Mutex<Vec<String>>) {
    let _ = stream.set_nonblocking(false);
    let _ = stream.set_read_timeout(Some(PATIENCE));
    let mut reader = BufReader::new(stream);
    loop {
        let mut request = String::new();
        loop {
            let mut line = String::new();
            match reader.read_line(&mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) if line == "\r\n" => break,
                Ok(_) => request.push_str(&line),
            }
        }
        asked.lock().expect("the list").push(request.clone());
        let mut numbers = request.split([' ', '/']).filter_map(|w| w.parse::<u64>().ok());
        let (seed, len) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0) as usize);
        let head =
            format!("HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: {len}\r\n\r\n");
        let stream = reader.get_mut();
        if request.contains(" /bulk/") {
            let part = body(seed, BULK);
            let mut sent = stream.write_all(head.as_bytes());
            for _ in 0..len / BULK {
                sent = sent.and_then(|()| stream.write_all(&part));
            }
            if sent.is_err() {
                return;
            }
            continue;
        }
        if stream.write_all(head.as_bytes()).is_err() || stream.write_all(&body(seed, len)).is_err() {
            return;
        }
    }
}

/// Connects to the server, and retries until it succeeds.
pub(crate) fn connect(to: SocketAddr) -> TcpStream {
    let end = Instant::now() + PATIENCE;
    loop {
        match TcpStream::connect_timeout(&to, Duration::from_secs(20)) {
            Ok(s) => {
                s.set_read_timeout(Some(PATIENCE)).expect("a connection");
                s.set_nodelay(true).expect("a connection");
                return s;
            }
            Err(e) => assert!(Instant::now() < end, "{to}: {e}"),
        }
    }
}

pub(crate) fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse::<IpAddr>().expect("an address"), port)
}

/// Sends a request, and checks the response.
pub(crate) fn ask(stream: &mut TcpStream, seed: u64, len: usize) -> Result<(), String> {
    let text = |e: std::io::Error| e.to_string();
    write!(stream, "GET /{seed}/{len} HTTP/1.1\r\nHost: server.example\r\nUser-Agent: bench\r\n\r\n").map_err(text)?;
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).map_err(text)?;
        head.push(byte[0]);
    }
    let mut got = vec![0; len];
    stream.read_exact(&mut got).map_err(text)?;
    if got == body(seed, len) { Ok(()) } else { Err("other bytes than were sent".into()) }
}

/// Size of a bulk response in bytes.
const BULK: usize = 1 << 20;

/// Requests the same megabyte repeatedly, and checks each response.
pub(crate) fn ask_bulk(stream: &mut TcpStream, megabytes: usize) {
    let len = megabytes * BULK;
    write!(stream, "GET /bulk/9/{len} HTTP/1.1\r\nHost: server.example\r\nUser-Agent: bench\r\n\r\n")
        .expect("it is sent");
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).expect("an answer");
        head.push(byte[0]);
    }
    let (part, mut got) = (body(9, BULK), vec![0; BULK]);
    for _ in 0..megabytes {
        stream.read_exact(&mut got).expect("an answer");
        assert!(got == part, "other bytes than were sent");
    }
}

/// Sends a datagram until a response comes. Returns the response, or the error that the socket reports.
pub(crate) fn query(to: SocketAddr, words: &str, tries: usize) -> std::io::Result<Option<String>> {
    let own = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(own)?;
    socket.set_read_timeout(Some(Duration::from_millis(1000)))?;
    socket.connect(to)?;
    let mut buffer = [0; 65536];
    for _ in 0..tries {
        socket.send(words.as_bytes())?;
        match socket.recv(&mut buffer) {
            Ok(n) => return Ok(Some(String::from_utf8_lossy(&buffer[..n]).into_owned())),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(None)
}

impl Engine {
    /// Starts the engine with these rules, and waits until it forwards packets.
    pub(crate) fn start(dir: &Path, rules: &str, more: &[String]) -> Engine {
        std::fs::write(dir.join("a.rules"), rules).expect("rules");
        let settings = format!(
            "%YAML 1.1\n---\ninclude: {}\noutputs:\n  - eve-log:\n      enabled: yes\n      filename: eve.json\n      types:\n        - \
             alert:\n            verdict: yes\n        - drop:\n            alerts: yes\n            flows: all\n        - \
             stats\n        - http\n        - flow\n",
            process::root().join("etc/margay.yaml").display()
        );
        std::fs::write(dir.join("bench.yaml"), settings).expect("settings");
        // A measurement may name another build of the engine.
        let built = std::env::var("MARGAY_BENCH_ENGINE").unwrap_or_else(|_| process::MARGAY.to_owned());
        let mut c = process::engine(built, &dir.join("bench.yaml"), dir);
        c.args(more);
        Engine::spawn(c, dir.join("s.sock")).ready()
    }

    /// Starts any engine that prints `ready` once it is ready.
    pub(crate) fn run(c: Command, dir: &Path, ready: &str) -> Engine {
        let mut e = Engine::spawn(c, dir.join("s.sock"));
        assert!(e.until(ready), "{:?}", e.all);
        e
    }

    /// Stops the engine, and returns its output.
    pub(crate) fn stop(self) -> Vec<String> {
        self.stop_by("INT")
    }
}

/// A deterministic random number generator.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn of(seed: u64) -> Chance {
        Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// True in `n` of 1,000 cases.
    fn permille(&mut self, n: u64) -> bool {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % 1000 < n
    }
}

/// Forwards frames between two interfaces. It loses, duplicates and reorders the given numbers of 1,000.
pub(crate) struct BadLink {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    pub(crate) lost: Arc<AtomicU64>,
    pub(crate) passed: Arc<AtomicU64>,
}

/// A socket for all frames on an interface. Each option is a level, a name and a value.
fn packet_socket(interface: &str, options: &[(libc::c_int, libc::c_int, libc::c_int)]) -> OwnedFd {
    // SAFETY: the calls take numbers, and structures of the given sizes that outlive the calls.
    unsafe {
        let protocol = (libc::ETH_P_ALL as u16).to_be();
        let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0);
        assert!(fd >= 0, "a packet socket");
        let fd = OwnedFd::from_raw_fd(fd);
        for &(level, name, value) in options {
            let set = libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), 4);
            assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
        }
        let name = std::ffi::CString::new(interface).expect("a name");
        let mut to: libc::sockaddr_ll = std::mem::zeroed();
        to.sll_family = libc::AF_PACKET as u16;
        to.sll_protocol = protocol;
        to.sll_ifindex = libc::if_nametoindex(name.as_ptr()) as i32;
        let bound = libc::bind(fd.as_raw_fd(), (&raw const to).cast(), size_of::<libc::sockaddr_ll>() as u32);
        assert_eq!(bound, 0, "{interface}: {}", std::io::Error::last_os_error());
        fd
    }
}

/// Frames that wait at one end of a [`BadLink`], and the times to send them.
type Waiting = std::collections::VecDeque<(Instant, Vec<u8>)>;

impl BadLink {
    pub(crate) fn start(ns: &Ns, a: &'static str, b: &'static str, seed: u64, permille: [u64; 3]) -> BadLink {
        BadLink::slow(ns, a, b, seed, permille, Duration::ZERO)
    }

    /// As [`BadLink::start`], with a delay for each packet.
    pub(crate) fn slow(
        ns: &Ns,
        a: &'static str,
        b: &'static str,
        seed: u64,
        permille: [u64; 3],
        delay: Duration,
    ) -> BadLink {
        let stop: Arc<AtomicBool> = Arc::default();
        let (lost, passed): (Arc<AtomicU64>, Arc<AtomicU64>) = Default::default();
        let (s, l, p) = (Arc::clone(&stop), Arc::clone(&lost), Arc::clone(&passed));
        let [lose, double, swap] = permille;
        let thread = ns.spawn(move || {
            let options = [
                (libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1),
                (libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1),
                (libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 64 << 20),
            ];
            let ends = [packet_socket(a, &options), packet_socket(b, &options)];
            let mut chance = Chance::of(seed);
            let mut held: [Option<Vec<u8>>; 2] = [None, None];
            let mut waiting: [Waiting; 2] = Default::default();
            let mut buffer = vec![0u8; 1 << 17];
            let send_now = |to: &OwnedFd, frame: &[u8]| {
                for _ in 0..1000 {
                    // SAFETY: the frame has the given length.
                    let n = unsafe { libc::send(to.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
                    if n >= 0 {
                        return;
                    }
                    std::thread::sleep(Duration::from_micros(100));
                }
            };
            let send = |waiting: &mut [Waiting; 2], to: usize, frame: &[u8]| {
                if delay.is_zero() {
                    send_now(&ends[to], frame);
                } else {
                    waiting[to].push_back((Instant::now() + delay, frame.to_vec()));
                }
            };
            while !s.load(Ordering::Relaxed) {
                let mut idle = true;
                for (n, from) in ends.iter().enumerate() {
                    let to = 1 - n;
                    for _ in 0..64 {
                        // SAFETY: the buffer has the given length.
                        let got = unsafe { libc::recv(from.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
                        let Ok(got) = usize::try_from(got) else { break };
                        idle = false;
                        let frame = &buffer[..got];
                        // The link never loses neighbour discovery.
                        let plain = frame.get(22..24) == Some(&[8, 6]) || frame.get(30) == Some(&58);
                        if !plain && chance.permille(lose) {
                            l.fetch_add(1, Ordering::Relaxed);
                            continue;
                        }
                        p.fetch_add(1, Ordering::Relaxed);
                        if !plain && held[n].is_none() && chance.permille(swap) {
                            held[n] = Some(frame.to_vec());
                            continue;
                        }
                        send(&mut waiting, to, frame);
                        if !plain && chance.permille(double) {
                            send(&mut waiting, to, frame);
                        }
                        if let Some(late) = held[n].take() {
                            send(&mut waiting, to, &late);
                        }
                    }
                }
                let now = Instant::now();
                for (to, waiting) in ends.iter().zip(&mut waiting) {
                    while waiting.front().is_some_and(|w| w.0 <= now)
                        && let Some((_, frame)) = waiting.pop_front()
                    {
                        send_now(to, &frame);
                    }
                }
                if idle {
                    for (n, late) in held.iter_mut().enumerate() {
                        if let Some(frame) = late.take() {
                            send(&mut waiting, 1 - n, &frame);
                        }
                    }
                    let due = waiting.iter().filter_map(|w| Some(w.front()?.0)).min();
                    let pause = due.map_or(Duration::from_millis(20), |d| d.saturating_duration_since(Instant::now()));
                    let time = libc::timespec { tv_sec: 0, tv_nsec: pause.subsec_nanos().into() };
                    let mut polled =
                        ends.each_ref().map(|e| libc::pollfd { fd: e.as_raw_fd(), events: libc::POLLIN, revents: 0 });
                    // SAFETY: the call gets two structures, and a time.
                    unsafe { libc::ppoll(polled.as_mut_ptr(), 2, &raw const time, std::ptr::null()) };
                }
            }
        });
        BadLink { stop, thread: Some(thread), lost, passed }
    }
}

impl Drop for BadLink {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(t) = self.thread.take() {
            let _ = t.join();
        }
    }
}

/// Makes the interface send packets as a wire would have them: complete, and none larger than its MTU. Some engines need
/// this.
pub(crate) fn offloads_off(ns: &Ns, interface: &str) {
    #[repr(C)]
    struct Request {
        name: [u8; 16],
        data: *mut [u32; 2],
        rest: [u8; 16],
    }
    ns.run(|| {
        // Switches off merged receiving, checksums, scatter, and both kinds of segmentation: ETHTOOL_SGRO, STXCSUM, SSG,
        // STSO, SGSO.
        for command in [0x2c, 0x1f, 0x24, 0x17, 0x19] {
            let mut value = [command, 0u32];
            let mut request = Request { name: [0; 16], data: &raw mut value, rest: [0; 16] };
            request.name.iter_mut().zip(interface.bytes()).for_each(|(to, from)| *to = from);
            // SAFETY: the socket is this function's own. The request is as large as a `struct ifreq`, and points to a
            // `struct ethtool_value`.
            unsafe {
                let fd = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
                assert!(fd >= 0, "a socket");
                let fd = OwnedFd::from_raw_fd(fd);
                let _ = libc::ioctl(fd.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request);
            }
        }
    });
}

/// Round trips of consecutive datagrams in microseconds, sorted.
pub(crate) fn round_trips(client: &Ns, to: SocketAddr, count: usize) -> Vec<f64> {
    client.run(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
        socket.set_read_timeout(Some(Duration::from_secs(5))).expect("a socket");
        socket.connect(to).expect("the server");
        let mut buffer = [0; 200];
        let mut all: Vec<f64> = (0..count)
            .map(|_| {
                let began = Instant::now();
                socket.send(&[b'x'; 64]).expect("it is sent");
                socket.recv(&mut buffer).expect("an answer");
                began.elapsed().as_secs_f64() * 1e6
            })
            .collect();
        all.sort_by(f64::total_cmp);
        all
    })
}

/// Writes the peer's settings to a file.
pub(crate) fn peer_settings(dir: &Path) -> PathBuf {
    let file = dir.join("peer.yaml");
    let mut text = format!(
        "%YAML 1.1\n---\nvars:\n  address-groups:\n    HOME_NET: any\n    EXTERNAL_NET: any\n  port-groups:\n    HTTP_PORTS: 80\n\
         default-log-dir: {0}\nlogging:\n  outputs:\n  - console:\n      enabled: yes\noutputs:\n  - eve-log:\n      enabled: yes\n      \
         filename: eve.json\n      types: [alert, drop]\naf-packet:\n",
        dir.display()
    );
    for (n, a, b) in [(97, "ia", "ib"), (98, "ib", "ia")] {
        text += &format!(
            "  - interface: {a}\n    threads: 1\n    defrag: no\n    cluster-type: cluster_flow\n    cluster-id: {n}\n    copy-mode: \
             ips\n    copy-iface: {b}\n    use-mmap: yes\n    tpacket-v3: no\n    ring-size: 16384\n"
        );
    }
    std::fs::write(&file, text).expect("a file");
    file
}
