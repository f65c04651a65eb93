//! Sends with `tcpreplay`, if it is installed.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use super::{Order, Sender, Sending, Sent};
use crate::cpus::Cpus;
use crate::made::Session;
use crate::problem::{Outcome, Problem};

/// Sends a capture onto an interface, repeatedly.
pub(crate) struct TcpReplay {
    pub(crate) capture: PathBuf,
    pub(crate) interface: String,
    /// Its CPUs.
    pub(crate) cpus: Cpus,
    /// The folder for its output.
    pub(crate) folder: PathBuf,
}

struct Working {
    child: Child,
    output: PathBuf,
    order: Order,
    interface: String,
    before: f64,
    over: bool,
}

impl Sender for TcpReplay {
    fn describe(&self) -> String {
        format!("tcpreplay of {} onto {}", self.capture.display(), self.interface)
    }

    fn start(&mut self, order: Order, session: &mut Session) -> Outcome<Box<dyn Sending>> {
        let output = self.folder.join("tcpreplay.log");
        let log = File::create(&output).map_err(|error| Problem::file("make", &output, error))?;
        let log_too = log.try_clone().map_err(|error| Problem::file("use", &output, error))?;
        let mut command = Command::new("tcpreplay");
        command.args(["--preload-pcap", "--loop=0", "--timer=nano"]);
        command.arg(format!("--intf1={}", self.interface)).arg(format!("--pps={:.0}", order.rate));
        // `tcpreplay` takes only whole seconds.
        command.arg(format!("--duration={}", order.time.as_secs_f64().ceil())).arg(&self.capture);
        command.stdin(Stdio::null()).stdout(log).stderr(log_too);
        session.mark(&mut command)?;
        let child = self.cpus.spawn(&mut command).map_err(|error| {
            let hint = if error.kind() == std::io::ErrorKind::NotFound { ": it is not installed" } else { "" };
            Problem::Failed(format!("cannot start tcpreplay{hint} ({error})"))
        })?;
        let before = super::Interfaces::read(None).sent(&self.interface);
        Ok(Box::new(Working { child, output, order, interface: self.interface.clone(), before, over: false }))
    }
}

impl Sending for Working {
    fn so_far(&mut self) -> Option<f64> {
        Some(super::Interfaces::read(None).sent(&self.interface) - self.before)
    }

    fn done(&mut self) -> Outcome<bool> {
        let ended = self.child.try_wait();
        let ended = ended.map_err(|error| Problem::Failed(format!("cannot watch tcpreplay: {error}")))?;
        self.over = ended.is_some();
        match ended {
            Some(status) if !status.success() => {
                let said = std::fs::read_to_string(&self.output).unwrap_or_default();
                let said =
                    said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing").to_owned();
                Err(Problem::Failed(format!("tcpreplay failed: {said}")))
            }
            other => Ok(other.is_some()),
        }
    }

    fn report(&mut self) -> Outcome<Sent> {
        let said = std::fs::read_to_string(&self.output).map_err(|error| Problem::file("read", &self.output, error))?;
        let (packets, bytes, seconds) = actual(&said).ok_or_else(|| {
            Problem::Failed(format!("tcpreplay did not say what it sent; see {}", self.output.display()))
        })?;
        let offered = self.order.rate * self.order.time.as_secs_f64().ceil();
        // It counts whole packets, and stops a little after its time.
        Ok(Sent { offered: offered.max(packets), packets, bytes, seconds, late: f64::NAN })
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        if !self.over {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Parses its summary, `Actual: 100 packets (5600 bytes) sent in 1.00 seconds`: packets, bytes, seconds.
fn actual(said: &str) -> Option<(f64, f64, f64)> {
    let line = said.lines().rev().find_map(|line| line.trim().strip_prefix("Actual:"))?;
    let mut numbers = line.split_whitespace().filter_map(|word| word.trim_matches(['(', ')']).parse::<f64>().ok());
    Some((numbers.next()?, numbers.next()?, numbers.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_tcpreplay_says() {
        let said = "Actual: 14261 packets (9216531 bytes) sent in 1.04 seconds\nRated: 8830287.6 Bps, 70.64 Mbps, 13663.33 pps\n";
        assert_eq!(actual(said), Some((14261.0, 9_216_531.0, 1.04)));
        assert_eq!(actual("nothing"), None);
    }
}
