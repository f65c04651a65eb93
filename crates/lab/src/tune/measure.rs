//! Measures losses by stage and CPU time over some seconds, before and after tuning.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::card::{Answer, Cards};
use super::discover::softnet;
use super::list;
use super::tree::{Tree, number};
use crate::engine::counters::{CounterFile, Format, Names};
use crate::problem::{Outcome, Problem};

/// Driver counters with these words count as losses, in addition to the kernel's.
const LOSS: [&str; 6] = ["drop", "discard", "no_buf", "nobuf", "missed", "out_of_buffer"];
/// Usual paths of the engines' counters.
const STATS: [&str; 2] = ["/var/log/margay/stats.log", "/var/log/suricata/stats.log"];

/// Options of a measurement.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct How {
    /// Measure losses by stage and CPU time for this long: 10s
    #[arg(long, value_name = "TIME", value_parser = crate::units::duration)]
    pub(crate) measure: Option<Duration>,
    /// The engine's counters: stats.log, or EVE with stats [default: stats.log in /var/log/margay or /var/log/suricata]
    #[arg(long, value_name = "FILE", requires = "measure")]
    pub(crate) stats: Option<PathBuf>,
    /// A second port, connected to the sensor's, to send traffic on meanwhile
    #[arg(long, value_name = "INTERFACE", requires = "measure")]
    pub(crate) send_on: Option<String>,
    /// The traffic to send: a capture, or a preset of `margay lab traffic gen --list-presets`
    #[arg(long, value_name = "CAPTURE|PRESET", default_value = "office", requires = "send_on")]
    pub(crate) send: String,
    /// The sending rate: 1gbit, 500kpps
    #[arg(long, value_name = "RATE", default_value = "1gbit", requires = "send_on")]
    pub(crate) send_rate: String,
}

/// Counters at one time.
#[derive(Clone, Debug, Default, PartialEq)]
struct Sample {
    /// Packets received by each interface, and those that card and driver lost.
    received: BTreeMap<String, u64>,
    lost: BTreeMap<String, u64>,
    dropped: u64,
    squeezed: u64,
    /// Ticks of each CPU: total, busy, and in soft interrupts.
    cpus: BTreeMap<usize, [u64; 3]>,
}

/// The result of a measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) seconds: f64,
    /// Packets sent, if there was a sender.
    pub(crate) sent: Option<u64>,
    /// For each stage, the packets that reached it and its losses.
    pub(crate) stages: Vec<Stage>,
    /// Times that a CPU deferred packets.
    pub(crate) squeezed: u64,
    /// CPU time in percent: of all CPUs together, and of those that were busy at least a tenth of the time.
    pub(crate) busy: f64,
    pub(crate) softirq: f64,
    pub(crate) busy_cpus: BTreeMap<usize, f64>,
}

/// See [`Measured::stages`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Stage {
    pub(crate) name: String,
    pub(crate) received: Option<u64>,
    pub(crate) lost: u64,
}

fn sample(tree: &dyn Tree, cards: &dyn Cards, interfaces: &[String]) -> Sample {
    let mut out = Sample::default();
    for name in interfaces {
        let count = |file: &str| number::<u64>(tree, &format!("/sys/class/net/{name}/statistics/{file}")).unwrap_or(0);
        out.received.insert(name.clone(), count("rx_packets"));
        let kernel: u64 = ["rx_missed_errors", "rx_fifo_errors", "rx_dropped"].iter().map(|file| count(file)).sum();
        out.lost.insert(name.clone(), kernel + driver_losses(cards.counters(name)));
    }
    let softnet = softnet(tree);
    (out.dropped, out.squeezed) = (softnet.dropped, softnet.squeezed);
    for line in tree.text("/proc/stat").unwrap_or_default().lines() {
        let mut words = line.split_whitespace();
        let cpu = words.next().and_then(|word| word.strip_prefix("cpu")?.parse().ok());
        let Some(cpu) = cpu else { continue };
        // user nice system idle iowait irq softirq steal
        let n: Vec<u64> = words.map(|word| word.parse().unwrap_or(0)).take(8).collect();
        let (all, idle) = (n.iter().sum::<u64>(), n.get(3).unwrap_or(&0) + n.get(4).unwrap_or(&0));
        out.cpus.insert(cpu, [all, all - idle, n.get(6).copied().unwrap_or(0)]);
    }
    out
}

/// Losses that the kernel's counters do not contain. Most drivers count by queue, and some only there.
fn driver_losses(counters: Answer<Vec<(String, u64)>>) -> u64 {
    let mut sum = 0;
    for (name, value) in counters.unwrap_or_default() {
        let name = name.to_ascii_lowercase();
        // The sums are already in the kernel's counters, and transmit counters are no losses here.
        let own = ["rx_dropped", "rx_missed", "rx_missed_errors", "rx_fifo_errors", "rx_discards"];
        let receives = name.starts_with("rx") || name.starts_with("port.rx") || name.contains("rx_");
        if receives
            && !own.contains(&name.as_str())
            && LOSS.iter().any(|word| name.contains(word))
            && !name.contains("xdp")
        {
            sum += value;
        }
    }
    sum
}

fn difference(before: &Sample, after: &Sample, seconds: f64) -> Measured {
    let mut stages = Vec::new();
    for (name, received) in &after.received {
        let received = received.saturating_sub(before.received.get(name).copied().unwrap_or(0));
        let lost = |of: &Sample| of.lost.get(name).copied().unwrap_or(0);
        let lost = lost(after).saturating_sub(lost(before));
        stages.push(Stage { name: format!("card {name}"), received: Some(received + lost), lost });
    }
    let dropped = after.dropped.saturating_sub(before.dropped);
    stages.push(Stage { name: "softnet (of the whole machine)".to_owned(), received: None, lost: dropped });
    let mut out =
        Measured { seconds, stages, squeezed: after.squeezed.saturating_sub(before.squeezed), ..Measured::default() };
    let mut sums = [0u64; 3];
    for (cpu, now) in &after.cpus {
        let then = before.cpus.get(cpu).copied().unwrap_or_default();
        let delta: Vec<u64> = now.iter().zip(then).map(|(now, then)| now.saturating_sub(then)).collect();
        sums.iter_mut().zip(&delta).for_each(|(sum, value)| *sum += value);
        let busy = delta[1] as f64 * 100.0 / delta[0].max(1) as f64;
        if busy >= 10.0 {
            out.busy_cpus.insert(*cpu, (busy * 10.0).round() / 10.0);
        }
    }
    let percent = |part: u64| (part as f64 * 1000.0 / sums[0].max(1) as f64).round() / 10.0;
    (out.busy, out.softirq) = (percent(sums[1]), percent(sums[2]));
    out
}

/// Starts a sender in a separate process.
fn sender(how: &How, time: Duration, report: &Path) -> Outcome<Option<Child>> {
    let Some(interface) = &how.send_on else { return Ok(None) };
    let program = std::env::current_exe().map_err(|e| Problem::Failed(e.to_string()))?;
    let mut command = Command::new(&program);
    // In the engine's command, the laboratory is a subcommand.
    if program.file_name().is_some_and(|name| name != "margay-lab") {
        command.arg("lab");
    }
    command.args(["traffic", "send", "-q", "-i", interface, "--rate", &how.send_rate, "--renew"]);
    command.args(["--duration", &format!("{}ms", time.as_millis())]).arg("--report").arg(report);
    match Path::new(&how.send).exists() {
        true => command.arg(&how.send),
        false => command.args(["--preset", &how.send]),
    };
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
    child.map(Some).map_err(|e| Problem::Failed(format!("cannot send on {interface}: {e}")))
}

/// Measures, if requested.
///
/// # Errors
/// If there is nothing to send with, or a counter file cannot be found.
pub(crate) fn measure(
    tree: &dyn Tree,
    cards: &dyn Cards,
    interfaces: &[String],
    how: &How,
) -> Outcome<Option<Measured>> {
    let Some(time) = how.measure else { return Ok(None) };
    let stats = match &how.stats {
        Some(path) if !path.exists() => return Err(Problem::Usage(format!("there is no file {}", path.display()))),
        Some(path) => Some(path.clone()),
        None => STATS.iter().map(PathBuf::from).find(|path| path.exists()),
    };
    let mut counters = stats.map(|path| {
        let json = path.extension().is_some_and(|kind| kind == "json");
        let (format, before) = if json { (Format::JsonLines, "stats.") } else { (Format::StatsLog, "") };
        let named = |name: &str| vec![format!("{before}{name}")];
        let names = Names {
            received: named("capture.kernel_packets"),
            dropped: named("capture.kernel_drops"),
            decoded: named("decoder.pkts"),
            ..Names::default()
        };
        CounterFile::new(path, format, names)
    });
    let report = std::env::temp_dir().join(format!("margay-tune-{}.json", std::process::id()));
    let first = counters.as_mut().map(CounterFile::read);
    let before = sample(tree, cards, interfaces);
    let begun = std::time::Instant::now();
    let sent = match sender(how, time, &report)? {
        None => {
            std::thread::sleep(time);
            None
        }
        Some(mut child) => {
            let status = child.wait().map_err(|e| Problem::Failed(e.to_string()))?;
            let text = std::fs::read_to_string(&report).unwrap_or_default();
            let _ = std::fs::remove_file(&report);
            if !status.success() {
                return Err(Problem::Failed("the sender failed".to_owned()));
            }
            let json: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
            // Wait for packets in flight.
            std::thread::sleep(Duration::from_millis(200));
            json["packets"].as_u64()
        }
    };
    let after = sample(tree, cards, interfaces);
    let mut out = difference(&before, &after, begun.elapsed().as_secs_f64());
    out.sent = sent;
    if let (Some(counters), Some(first)) = (counters.as_mut(), first) {
        let last = counters.read();
        let added = |now: f64, then: f64| (now.is_finite() && then.is_finite()).then(|| (now - then).max(0.0) as u64);
        if let (Some(received), Some(lost)) = (added(last.received, first.received), added(last.dropped, first.dropped))
        {
            out.stages.push(Stage { name: "ring of the engine".to_owned(), received: Some(received), lost });
        }
    }
    Ok(Some(out))
}

/// Two measurements side by side.
pub(crate) fn table(before: Option<&Measured>, after: &Measured) -> String {
    let mut rows: Vec<(String, Option<String>, String)> = Vec::new();
    let share = |stage: &Stage| match stage.received {
        Some(received) => {
            format!("{} of {received} ({:.3} %)", stage.lost, stage.lost as f64 * 100.0 / received.max(1) as f64)
        }
        None => stage.lost.to_string(),
    };
    let row = |name: String, of: &dyn Fn(&Measured) -> Option<String>| {
        (name, before.and_then(of), of(after).unwrap_or_default())
    };
    rows.push(row("seconds".into(), &|m| Some(format!("{:.1}", m.seconds))));
    if after.sent.is_some() || before.is_some_and(|m| m.sent.is_some()) {
        rows.push(row("packets sent".into(), &|m| m.sent.map(|n| n.to_string())));
    }
    for stage in &after.stages {
        let of = |m: &Measured| m.stages.iter().find(|other| other.name == stage.name).map(share);
        rows.push(row(format!("lost at {}", stage.name), &of));
    }
    rows.push(row("left for later".into(), &|m| Some(m.squeezed.to_string())));
    rows.push(row("CPU, all".into(), &|m| Some(format!("{:.1} %, software interrupts {:.1} %", m.busy, m.softirq))));
    rows.push(row("CPUs over 10 %".into(), &|m| {
        let cpus: Vec<usize> = m.busy_cpus.keys().copied().collect();
        let most = m.busy_cpus.values().copied().fold(0.0, f64::max);
        Some(if cpus.is_empty() {
            "none".to_owned()
        } else {
            format!("{} (the busiest {most:.0} %)", list::show(&cpus))
        })
    }));
    let mut out = String::new();
    let width = rows.iter().map(|(name, ..)| name.len()).max().unwrap_or(0);
    if before.is_some() {
        out += &format!("{:width$}  {:36}  {}\n", "", "before", "now");
    }
    for (name, then, now) in rows {
        match before {
            Some(_) => out += &format!("{name:width$}  {:36}  {now}\n", then.unwrap_or_default()),
            None => out += &format!("{name:width$}  {now}\n"),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::recorded;

    #[test]
    fn losses_are_told_by_stage() {
        let text = |packets: u64, missed: u64, drops: &str, busy: u64, discards: u64| {
            format!(
                "/sys/class/net/e1/statistics/rx_packets = {packets}\n/sys/class/net/e1/statistics/rx_missed_errors = {missed}\n\
                 /proc/net/softnet_stat = 00000010 {drops} 00000003\n/proc/stat <<\n  cpu {busy} 0 0 9 9 9 9 9\n  \
                 cpu0 {busy} 0 0 {} 0 0 10 0\n  cpu1 0 0 0 100 0 0 0 0\n[card e1]\ndriver x\ncounter rx_missed_errors 9999\n\
                 counter rx_queue_0_drops {discards}\ncounter tx_dropped 777\ncounter rx_xdp_drop 888\n",
                100 - busy
            )
        };
        let of = |text: String| {
            let machine = recorded::read(&text).unwrap();
            sample(&machine.tree, &machine, &["e1".to_owned()])
        };
        let before = of(text(1000, 5, "00000001", 0, 0));
        let after = of(text(2000, 15, "0000000b", 50, 7));
        let m = difference(&before, &after, 10.0);
        assert_eq!(m.stages[0], Stage { name: "card e1".into(), received: Some(1017), lost: 17 });
        assert_eq!((m.stages[1].lost, m.squeezed), (10, 0));
        let said = table(Some(&m), &m);
        assert!(said.contains("17 of 1017 (1.672 %)") && said.contains("before"), "{said}");
        assert!(table(None, &m).contains("CPU, all"));
    }
}
