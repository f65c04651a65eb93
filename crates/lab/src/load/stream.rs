//! Sends packet counts to the simulated engine's socket, at fixed times.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::{Order, Sender, Sending, Sent};
use crate::clock::Moment;
use crate::made::Session;
use crate::problem::{Outcome, Problem};
use crate::sim::PACKET;
use crate::stats;

/// A sender to that socket.
pub(crate) struct Stream {
    /// The socket that the engine listens on.
    pub(crate) socket: PathBuf,
    /// The share of packets (0 to 1) that it does not send, to test that this is detected.
    pub(crate) lose: f64,
    /// Highest rate in packets a second, to simulate a limited sender.
    pub(crate) most: Option<f64>,
}

/// Interval between sends. Packets due in an interval are sent together.
const STEP: Duration = Duration::from_millis(2);

struct Working {
    thread: Option<JoinHandle<std::io::Result<Sent>>>,
    sent: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Sender for Stream {
    fn describe(&self) -> String {
        "packets in numbers, over a socket".to_owned()
    }

    fn start(&mut self, order: Order, _: &mut Session) -> Outcome<Box<dyn Sending>> {
        let stream = UnixStream::connect(&self.socket);
        let stream = stream.map_err(|error| Problem::file("connect to", &self.socket, error))?;
        stream
            .set_write_timeout(Some(Duration::from_secs(5)))
            .map_err(|error| Problem::file("use", &self.socket, error))?;
        let (sent, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (lose, most) = (self.lose, self.most);
        let thread = {
            let (sent, stop) = (Arc::clone(&sent), Arc::clone(&stop));
            std::thread::spawn(move || send(stream, order, lose, most, &sent, &stop))
        };
        Ok(Box::new(Working { thread: Some(thread), sent, stop }))
    }
}

fn send(
    mut stream: UnixStream,
    order: Order,
    lose: f64,
    most: Option<f64>,
    sent: &AtomicU64,
    stop: &AtomicBool,
) -> std::io::Result<Sent> {
    let begun = Moment::now();
    let buffer = vec![0; PACKET * 1024];
    let reached = most.map_or(order.rate, |most| order.rate.min(most)) * (1.0 - lose);
    let (mut packets, mut step, mut late) = (0u64, 0u32, Vec::new());
    loop {
        step += 1;
        let due = begun.plus(STEP.saturating_mul(step));
        due.sleep_until();
        late.push(Moment::now().since(due).as_secs_f64());
        let elapsed = Moment::now().since(begun).min(order.time);
        let mut wanted = ((elapsed.as_secs_f64() * reached) as u64).saturating_sub(packets) as usize;
        while wanted > 0 {
            let now = wanted.min(1024);
            stream.write_all(&buffer[..now * PACKET])?;
            wanted -= now;
            packets += now as u64;
            sent.store(packets, Ordering::Relaxed);
        }
        if elapsed >= order.time || stop.load(Ordering::Relaxed) {
            let seconds = Moment::now().since(begun).as_secs_f64();
            return Ok(Sent {
                offered: order.rate * elapsed.as_secs_f64(),
                packets: packets as f64,
                bytes: (packets as usize * PACKET) as f64,
                seconds,
                late: stats::quantile(&late, 0.99),
            });
        }
    }
}

impl Sending for Working {
    fn so_far(&mut self) -> Option<f64> {
        Some(self.sent.load(Ordering::Relaxed) as f64)
    }

    fn done(&mut self) -> Outcome<bool> {
        Ok(self.thread.as_ref().is_none_or(JoinHandle::is_finished))
    }

    fn report(&mut self) -> Outcome<Sent> {
        let failed = |why: String| Problem::Failed(format!("the sender failed: {why}"));
        let Some(thread) = self.thread.take() else { return Err(failed("it was asked twice".to_owned())) };
        match thread.join() {
            Ok(result) => result.map_err(|error| failed(error.to_string())),
            Err(_) => Err(failed("its thread panicked".to_owned())),
        }
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
