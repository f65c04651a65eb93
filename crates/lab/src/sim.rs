//! `margay lab sim-engine`: an engine whose capacity is known, to check the laboratory with.
//!
//! It takes packets of [`PACKET`] bytes from a stream socket (which loses none), keeps them in a ring of a given size and
//! takes them out at a given rate. What finds the ring full is lost there; a share of packets can be lost at the ring or in
//! the engine on purpose. Only numbers of packets are kept. Those that are there at once count as having come evenly since the last
//! ones did: a busy machine that makes sender or engine wait for a moment changes nothing of what is lost.

use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use crate::clock::Moment;
use crate::problem::{Outcome, Problem};
use crate::signals;

/// The bytes of a packet on the socket.
pub(crate) const PACKET: usize = 64;

/// After so long without a packet there is none to come.
const SILENCE: Duration = Duration::from_millis(100);

/// An engine of known capacity, to check the laboratory with
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The socket to make and read from
    #[arg(long)]
    socket: PathBuf,
    /// Where to write counters
    #[arg(long)]
    counters: PathBuf,
    /// Packets a second
    #[arg(long)]
    capacity: f64,
    /// How many packets wait before more are lost
    #[arg(long, default_value_t = 1000.0)]
    ring: f64,
    /// The share to lose at the ring, in %
    #[arg(long, default_value_t = 0.0)]
    lose_ring: f64,
    /// The share to lose in the engine, in %
    #[arg(long, default_value_t = 0.0)]
    lose_engine: f64,
    /// End by itself after so many packets, badly
    #[arg(long)]
    die_after: Option<f64>,
    /// Never get ready
    #[arg(long)]
    never_ready: bool,
}

/// What the engine has in numbers. Packets may be fractions on the way: shares and rates are.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Simulated {
    /// Packets a second.
    pub(crate) capacity: f64,
    /// What may wait.
    pub(crate) ring: f64,
    /// The share (0 to 1) lost at the ring, whether it is full or not.
    pub(crate) lose_ring: f64,
    /// The share lost in the engine.
    pub(crate) lose_engine: f64,
    /// What waits.
    pub(crate) waiting: f64,
    /// What came.
    pub(crate) received: f64,
    /// What was lost at the ring.
    pub(crate) dropped: f64,
    /// What the engine took and did not lose.
    pub(crate) decoded: f64,
}

impl Simulated {
    /// `packets` arrive evenly over `time`.
    pub(crate) fn arrive(&mut self, packets: f64, time: Duration) {
        // In steps that are small beside the ring, so that the order of coming and going does not matter.
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

    fn write(&self, path: &Path) -> std::io::Result<()> {
        // Renamed into place: a reader sees one state or the other.
        let beside = path.with_extension("new");
        let text = format!(
            "received {}\ndropped {}\ndecoded {}\nwaiting {}\n",
            self.received.round(),
            self.dropped.round(),
            self.decoded.round(),
            self.waiting.round()
        );
        std::fs::write(&beside, text)?;
        std::fs::rename(&beside, path)
    }
}

/// Runs the engine until it is asked to stop.
///
/// # Errors
/// Where the socket cannot be made or the counters cannot be written.
pub(crate) fn run(args: &Args) -> Outcome<ExitCode> {
    signals::listen();
    let mut state = Simulated {
        capacity: args.capacity,
        ring: args.ring,
        lose_ring: args.lose_ring / 100.0,
        lose_engine: args.lose_engine / 100.0,
        ..Simulated::default()
    };
    let listener = UnixListener::bind(&args.socket).map_err(|error| Problem::file("make", &args.socket, error))?;
    let no_wait = listener.set_nonblocking(true);
    no_wait.map_err(|error| Problem::file("use", &args.socket, error))?;
    let wrote = |error| Problem::file("write", &args.counters, error);
    state.write(&args.counters).map_err(wrote)?;
    if !args.never_ready {
        println!("Engine started.");
    }
    let mut stream = None;
    let mut buffer = vec![0; 1 << 20];
    let (mut bytes, mut last, mut written) = (0, Moment::now(), Moment::now());
    while !signals::stop_asked() {
        if let Ok((new, _)) = listener.accept() {
            let wait = new.set_read_timeout(Some(Duration::from_millis(20)));
            wait.map_err(|error| Problem::file("use", &args.socket, error))?;
            stream = Some(new);
        }
        let read = match stream.as_mut().map(|stream| stream.read(&mut buffer)) {
            Some(Ok(0)) => {
                stream = None;
                0
            }
            Some(Ok(read)) => read,
            Some(Err(error)) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => 0,
            Some(Err(_)) => {
                stream = None;
                0
            }
            None => {
                std::thread::sleep(Duration::from_millis(2));
                0
            }
        };
        bytes += read;
        let now = Moment::now();
        if bytes >= PACKET || now.since(last) > SILENCE {
            state.arrive((bytes / PACKET) as f64, now.since(last));
            bytes %= PACKET;
            last = now;
        }
        if now.since(written) >= Duration::from_millis(50) {
            state.write(&args.counters).map_err(wrote)?;
            written = now;
        }
        if args.die_after.is_some_and(|limit| state.received > limit) {
            eprintln!("sim-engine: out of order, as was asked");
            return Ok(ExitCode::from(3));
        }
    }
    state.write(&args.counters).map_err(wrote)?;
    Ok(ExitCode::SUCCESS)
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
            // 500 more than it can take, of which the ring keeps at most 100.
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
