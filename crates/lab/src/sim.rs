//! `margay lab sim-engine`: an engine with a known capacity, to test the laboratory with.
//!
//! It takes packets from an interface, or packets of [`PACKET`] bytes from a stream socket (which loses none). It keeps
//! them in a ring of a given size, and removes them at a given rate. Packets that find the ring full are lost there. A
//! share of packets can also be lost on purpose, at the ring or in the engine. Only packet counts are kept. Packets that
//! are read together count as having arrived evenly since the previous read, so that pauses of sender or engine on a
//! busy machine do not change the losses. Packets that the kernel had no room for count as lost at the ring.
//!
//! On several interfaces, each has a ring and the capacity of its own, as if it had a worker. The counters have their sums,
//! and the same for each interface.

use std::io::{ErrorKind, Read};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use margay_capture::af_packet::{AfPacket, Settings};
use margay_capture::live::{Decisions, LiveSource, Received};

use crate::clock::Moment;
use crate::problem::{Outcome, Problem};
use crate::signals;

/// Bytes of a packet on the socket.
pub(crate) const PACKET: usize = 64;

/// After this time without a packet, no more are expected.
const SILENCE: Duration = Duration::from_millis(50);

/// An engine of known capacity, to check the laboratory with
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The socket to create and read from, or interface:NAME,…
    #[arg(long)]
    source: PathBuf,
    /// Where to write counters
    #[arg(long)]
    counters: PathBuf,
    /// Packets a second, of each interface
    #[arg(long)]
    capacity: f64,
    /// Number of packets that wait before more are lost
    #[arg(long, default_value_t = 1000.0)]
    ring: f64,
    /// The share to lose at the ring, in %
    #[arg(long, default_value_t = 0.0)]
    lose_ring: f64,
    /// The share to lose in the engine, in %
    #[arg(long, default_value_t = 0.0)]
    lose_engine: f64,
    /// Fail after this many packets
    #[arg(long)]
    die_after: Option<f64>,
    /// Never get ready
    #[arg(long)]
    never_ready: bool,
}

/// The state of the simulated engine. Packet counts may be fractions, because shares and rates are.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Simulated {
    /// Packets a second.
    pub(crate) capacity: f64,
    /// Capacity of the ring in packets.
    pub(crate) ring: f64,
    /// The share (0 to 1) lost at the ring, whether or not it is full.
    pub(crate) lose_ring: f64,
    /// The share lost in the engine.
    pub(crate) lose_engine: f64,
    /// Packets in the ring.
    pub(crate) waiting: f64,
    /// Packets received.
    pub(crate) received: f64,
    /// Packets lost at the ring.
    pub(crate) dropped: f64,
    /// Packets that the engine decoded.
    pub(crate) decoded: f64,
}

impl Simulated {
    /// Lets `packets` arrive evenly over `time`.
    pub(crate) fn arrive(&mut self, packets: f64, time: Duration) {
        // The steps are small compared with the ring, so that the order of arrivals and departures does not matter.
        let steps = (packets / (self.ring / 8.0).max(1.0)).ceil().clamp(1.0, 100_000.0);
        let (packets, served) = (packets / steps, time.as_secs_f64() * self.capacity / steps);
        for _ in 0..steps as u32 {
            self.received += packets;
            let lost = packets * self.lose_ring;
            self.waiting += packets - lost;
            let taken = served.min(self.waiting);
            self.waiting -= taken;
            self.decoded += taken * (1.0 - self.lose_engine);
            let over = (self.waiting - self.ring).max(0.0);
            self.waiting -= over;
            self.dropped += lost + over;
        }
    }

    /// Counts `packets` that were lost before the ring, for lack of room in the kernel.
    fn lose(&mut self, packets: f64) {
        self.received += packets;
        self.dropped += packets;
    }

    /// Its counts, rounded: received, dropped, decoded, waiting.
    fn counts(&self) -> [f64; 4] {
        [self.received.round(), self.dropped.round(), self.decoded.round(), self.waiting.round()]
    }
}

/// One source with its ring, and the counts of an interface by its name.
struct Lane {
    source: Source,
    name: Option<String>,
    state: Simulated,
}

/// Writes the counters: sums, and each interface's.
fn write(lanes: &[Lane], path: &Path) -> std::io::Result<()> {
    let mut text = String::new();
    for (at, name) in ["received", "dropped", "decoded", "waiting"].into_iter().enumerate() {
        let sum: f64 = lanes.iter().map(|lane| lane.state.counts()[at]).sum();
        text += &format!("{name} {sum}\n");
        for (lane, interface) in lanes.iter().filter_map(|lane| Some((lane, lane.name.as_ref()?))) {
            text += &format!("{name}.{interface} {}\n", lane.state.counts()[at]);
        }
    }
    // Rename the file into place, so that a reader never sees a partial one.
    let beside = path.with_extension("new");
    std::fs::write(&beside, text)?;
    std::fs::rename(&beside, path)
}

/// Runs the engine until it is asked to stop.
///
/// # Errors
/// If the socket cannot be created or the counters cannot be written.
pub(crate) fn run(args: &Args) -> Outcome<ExitCode> {
    signals::listen();
    let state = Simulated {
        capacity: args.capacity,
        ring: args.ring,
        lose_ring: args.lose_ring / 100.0,
        lose_engine: args.lose_engine / 100.0,
        ..Simulated::default()
    };
    let mut lanes = Vec::new();
    for (source, name) in Source::all(&args.source)? {
        lanes.push(Lane { source, name, state });
    }
    let wait = WAIT / lanes.len().max(1) as u32;
    let wrote = |error| Problem::file("write", &args.counters, error);
    write(&lanes, &args.counters).map_err(wrote)?;
    if !args.never_ready {
        println!("Engine started.");
    }
    let mut written = Moment::now();
    let mut last = vec![written; lanes.len()];
    while !signals::stop_asked() {
        for (lane, last) in lanes.iter_mut().zip(&mut last) {
            let packets = lane.source.take(wait)?;
            let now = Moment::now();
            if packets > 0.0 || now.since(*last) > SILENCE {
                lane.state.arrive(packets, now.since(*last));
                *last = now;
            }
        }
        if Moment::now().since(written) >= Duration::from_millis(100) {
            lose(&mut lanes);
            write(&lanes, &args.counters).map_err(wrote)?;
            written = Moment::now();
        }
        let received: f64 = lanes.iter().map(|lane| lane.state.received).sum();
        if args.die_after.is_some_and(|limit| received > limit) {
            eprintln!("sim-engine: out of order, as was asked");
            return Ok(ExitCode::from(3));
        }
    }
    lose(&mut lanes);
    write(&lanes, &args.counters).map_err(wrote)?;
    Ok(ExitCode::SUCCESS)
}

/// Counts what the kernel lost.
fn lose(lanes: &mut [Lane]) {
    for lane in lanes {
        lane.state.lose(lane.source.lost());
    }
}

/// The source of packets.
enum Source {
    Interface {
        ring: Box<AfPacket>,
        /// The kernel's losses so far.
        lost: u64,
    },
    Socket {
        listener: UnixListener,
        stream: Option<UnixStream>,
        buffer: Vec<u8>,
        /// Bytes of an incomplete packet.
        bytes: usize,
    },
}

/// After this many packets, write the counters even if more are waiting.
const MOST: usize = 1_000_000;
/// How long to wait for packets.
const WAIT: Duration = Duration::from_millis(20);

impl Source {
    /// The sources that `name` lists, with the names of interfaces.
    fn all(name: &Path) -> Outcome<Vec<(Source, Option<String>)>> {
        if let Some(interfaces) = name.to_str().and_then(|name| name.strip_prefix("interface:")) {
            let failed = |error| Problem::Failed(format!("cannot read from {error}"));
            let mut all = Vec::new();
            for interface in interfaces.split(',') {
                let mut ring = AfPacket::open(interface, Settings::default()).map_err(failed)?;
                ring.start().map_err(failed)?;
                all.push((Source::Interface { ring: Box::new(ring), lost: 0 }, Some(interface.to_owned())));
            }
            return Ok(all);
        }
        let listener = UnixListener::bind(name).map_err(|error| Problem::file("make", name, error))?;
        listener.set_nonblocking(true).map_err(|error| Problem::file("use", name, error))?;
        Ok(vec![(Source::Socket { listener, stream: None, buffer: vec![0; 1 << 20], bytes: 0 }, None)])
    }

    /// Waits for packets, an interface's at most `most`, and returns their number.
    fn take(&mut self, most: Duration) -> Outcome<f64> {
        match self {
            Source::Interface { ring, .. } => {
                // All packets in the ring arrived since the previous call, however many the ring returns at once.
                let (mut came, mut wait) = (0, most);
                while came < MOST && ring.receive(4096, wait) == Received::Frames {
                    came += ring.batch().iter().count();
                    ring.release(&Decisions::default());
                    wait = Duration::ZERO;
                }
                Ok(came as f64)
            }
            Source::Socket { listener, stream, buffer, bytes } => {
                if let Ok((new, _)) = listener.accept() {
                    let failed = |error| Problem::Failed(format!("cannot use a connection: {error}"));
                    new.set_read_timeout(Some(WAIT)).map_err(failed)?;
                    *stream = Some(new);
                }
                match stream.as_mut().map(|stream| stream.read(buffer)) {
                    Some(Ok(read @ 1..)) => *bytes += read,
                    Some(Err(error)) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                    Some(_) => *stream = None,
                    None => std::thread::sleep(Duration::from_millis(2)),
                }
                let came = *bytes / PACKET;
                *bytes %= PACKET;
                Ok(came as f64)
            }
        }
    }

    /// The kernel's losses since the previous call.
    fn lost(&mut self) -> f64 {
        match self {
            Source::Interface { ring, lost } => {
                let now = ring.counters(0).kernel_drops;
                let new = now.saturating_sub(*lost);
                *lost = now;
                new as f64
            }
            Source::Socket { .. } => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(state: &mut Simulated, packets: f64, steps: u32) {
        for _ in 0..steps {
            state.arrive(packets / f64::from(steps), Duration::from_secs(1) / steps);
        }
    }

    #[test]
    fn loses_nothing_within_capacity_and_what_is_above_it_else() {
        for steps in [1, 7, 1000] {
            let mut state = Simulated { capacity: 1000.0, ring: 100.0, ..Simulated::default() };
            second(&mut state, 900.0, steps);
            assert_eq!(state.dropped, 0.0);
            second(&mut state, 1500.0, steps);
            // 500 packets above capacity, of which the ring keeps at most 100.
            assert!((state.dropped - 400.0).abs() < 30.0, "{state:?}");
            assert!((state.received - state.dropped - state.decoded - state.waiting).abs() < 1e-6);
        }
    }

    #[test]
    fn loses_what_it_is_asked_to_where_it_is_asked() {
        let mut state =
            Simulated { capacity: 1000.0, ring: 100.0, lose_ring: 0.1, lose_engine: 0.25, ..Simulated::default() };
        second(&mut state, 800.0, 100);
        state.arrive(0.0, Duration::from_secs(1));
        assert!((state.dropped - 80.0).abs() < 1e-6 && (state.decoded - 540.0).abs() < 1e-6, "{state:?}");
    }
}
