//! `nfq:`: the settings of the netfilter queues of `-q`.

use margay_capture::live::{LiveCounters, LiveSource};
use margay_capture::nfqueue::Nfqueue;
use margay_capture::nfqueue::{Mark, Mode, Settings};
use margay_config::{Capture, Config, ConfigError, Node, RunOptions};
use margay_output::{notice, warning};

use super::{Device, RunMode};
use crate::Failed;
use crate::live::cpus::Cpus;
use crate::live::medium::{Counters, Groups, Medium, Opening};

/// The queues of the command line.
pub(in crate::live) fn chosen(
    config: &Config,
    options: &RunOptions,
    mode: RunMode,
    _cpus: &Cpus,
) -> Option<Result<Vec<Device>, Failed>> {
    let Some(Capture::Nfqueue(queues)) = &options.capture else { return None };
    if options.filter.is_some() || options.filter_file.is_some() {
        let why = "no filter goes with -q: netfilter's rules say which packets are queued";
        return Some(Err(Failed::new("nfq", why)));
    }
    Some(devices(config, queues, mode))
}

impl Medium for Settings {
    fn section(&self) -> &'static str {
        "nfq"
    }

    fn capture(&self) -> &'static str {
        "NFQ"
    }

    fn drops(&self) -> bool {
        true
    }

    /// Packets of a queue may come from any interface.
    fn is_of_interface(&self) -> bool {
        false
    }

    fn batch(&self) -> Option<usize> {
        Some(self.batch)
    }

    fn counters(&self) -> Counters {
        counters
    }

    fn open(&self, _at: &Opening<'_>, _groups: &mut Groups) -> Result<Box<dyn LiveSource>, Failed> {
        let source = Nfqueue::open(self.clone()).map_err(|e| Failed::new("nfq", e.to_string()))?;
        Ok(Box::new(source))
    }
}

fn counters(c: &LiveCounters, f: &mut dyn FnMut(&str, u64)) {
    let mut of = |name: &str, n| f(&format!("capture.nfq.{name}"), n);
    of("polls", c.polls);
    of("poll_signal", c.poll_signal);
    of("poll_timeout", c.poll_timeout);
    of("poll_data", c.poll_data);
    of("poll_errors", c.poll_errors);
    of("accepted", c.sent);
    of("dropped", c.dropped);
    of("verdict_errors", c.send_errors);
    of("truncated", c.truncated);
    of("unreadable", c.unreadable);
}

/// A device for each queue, each with one worker.
///
/// # Errors
/// An invalid setting, a queue that is named twice, or several queues in single mode.
fn devices(config: &Config, queues: &[u16], mode: RunMode) -> Result<Vec<Device>, Failed> {
    if mode == RunMode::Single && queues.len() > 1 {
        return Err(Failed::new("runmodes", "the run mode \"single\" takes one queue; there are several"));
    }
    let of_all = settings(config)?;
    let mut devices: Vec<Device> = Vec::with_capacity(queues.len());
    for &queue in queues {
        let name = format!("NFQ#{queue}");
        if devices.iter().any(|d| d.name == name) {
            return Err(Failed::new("nfq", format!("-q: the queue {queue} is named twice")));
        }
        if of_all.mode == Mode::Route(queue) {
            return Err(Failed::new(
                "nfq",
                format!("route-queue: {queue} is one of the queues of -q: packets would go round and round"),
            ));
        }
        let medium = Box::new(Settings { queue, ..of_all.clone() });
        devices.push(Device { name, workers: 1, medium, auto_trust: false, bypass: None });
    }
    match of_all.mode {
        Mode::Accept => notice!("nfq", "accepted packets skip the rest of the chain (mode: accept)"),
        Mode::Repeat => notice!("nfq", "accepted packets start the chain again with a mark (mode: repeat)"),
        Mode::Route(queue) => notice!("nfq", "accepted packets go to the queue {queue} (mode: route)"),
    }
    Ok(devices)
}

/// The section's settings, which apply to all queues.
fn settings(config: &Config) -> Result<Settings, ConfigError> {
    let default = Settings::default();
    let Some(node) = config.node("nfq") else { return Ok(default) };
    let set = |key| {
        Ok::<_, ConfigError>((
            number::<u32>(node, &format!("{key}-mark"))?,
            number::<u32>(node, &format!("{key}-mask"))?,
        ))
    };
    let mark =
        |(value, mask): (Option<u32>, Option<u32>)| value.map(|value| Mark { value, mask: mask.unwrap_or(u32::MAX) });
    let repeat = mark(set("repeat")?);
    let mode = match node.get("mode") {
        None | Some("" | "accept") => Mode::Accept,
        Some("repeat") => Mode::Repeat,
        Some("route") => Mode::Route(match number(node, "route-queue")? {
            Some(queue) => queue,
            None => return Err(node.error("nfq: mode: route needs route-queue: the queue that packets go to")),
        }),
        Some(other) => {
            return Err(node.error(format!("nfq: mode: \"{other}\" is none of accept, repeat and route")));
        }
    };
    if mode == Mode::Repeat && repeat.is_none_or(|m| m.value & m.mask == 0) {
        return Err(node.error(
            "nfq: mode: repeat needs repeat-mark and repeat-mask with a bit in common, by which the rule that queues lets \
             packets past that were inspected; without, they would come again for ever",
        ));
    }
    let batch = match number::<usize>(node, "batchcount")? {
        None => default.batch,
        // Batching is off.
        Some(0) => 1,
        Some(n @ 1..=256) => n,
        Some(n) => return Err(node.error(format!("nfq: batchcount: {n} is not 0 to 256"))),
    };
    let length = match number::<u32>(node, "queue-length")? {
        None => default.length,
        Some(0) => return Err(node.error("nfq: queue-length: a queue needs at least one packet")),
        Some(n) => n,
    };
    let fail_open = node.bool("fail-open")?.unwrap_or(default.fail_open);
    if fail_open && node.node("queue-length").is_some() {
        warning!(
            "nfq",
            "queue-length has no effect with fail-open: the kernel would not count the packets that pass; buffer-size is the limit"
        );
    }
    let buffer_size = match node.size("buffer-size")? {
        None => default.buffer_size,
        // The kernel accepts half of an int's range.
        Some(n) => u32::try_from(n)
            .ok()
            .filter(|n| (1 << 17..1 << 30).contains(n))
            .ok_or_else(|| node.error(format!("nfq: buffer-size: {n} bytes are not 128 KiB to 1 GiB")))?,
    };
    Ok(Settings {
        queue: 0,
        mode,
        repeat: repeat.unwrap_or_default(),
        bypass: mark(set("bypass")?),
        batch,
        fail_open,
        length,
        buffer_size,
        gso: node.bool("gso")?.unwrap_or(default.gso),
    })
}

fn number<T: TryFrom<i64>>(node: Node<'_>, key: &str) -> Result<Option<T>, ConfigError> {
    let Some(n) = node.int(key)? else { return Ok(None) };
    let wrong = || node.node(key).unwrap_or(node).error(format!("nfq: {key}: {n} is out of range"));
    T::try_from(n).map(Some).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, queues: &[u16], mode: RunMode) -> Result<Vec<Settings>, String> {
        let config = Config::from_str(&format!("%YAML 1.1\n---\nnfq:\n{text}\n"), "t").unwrap();
        let all = devices(&config, queues, mode).map_err(|f| f.message)?;
        let one = |d: Device| (&*d.medium as &dyn std::any::Any).downcast_ref::<Settings>().expect("a queue").clone();
        Ok(all.into_iter().map(one).collect())
    }

    #[test]
    fn every_queue_is_served_the_same() {
        let all = read(
            "  mode: repeat\n  repeat-mark: 0x10\n  repeat-mask: 0x30\n  bypass-mark: 4\n  batchcount: 20\n  fail-open: yes\n  \
             buffer-size: 2mb\n  gso: no",
            &[3, 4],
            RunMode::Workers,
        )
        .unwrap();
        assert_eq!(all.iter().map(|s| s.queue).collect::<Vec<_>>(), [3, 4]);
        let s = &all[1];
        assert_eq!((s.mode, s.repeat), (Mode::Repeat, Mark { value: 0x10, mask: 0x30 }));
        assert_eq!(s.bypass, Some(Mark { value: 4, mask: u32::MAX }));
        assert_eq!((s.batch, s.fail_open, s.buffer_size, s.gso), (20, true, 2 << 20, false));
        let plain = read("  mode: accept", &[0], RunMode::Single).unwrap();
        assert_eq!(plain[0], Settings::default());
        assert_eq!(
            read("  mode: route\n  route-queue: 9\n  batchcount: 0", &[0], RunMode::Single).unwrap()[0].mode,
            Mode::Route(9)
        );
    }

    #[test]
    fn what_cannot_be_is_said() {
        for (text, queues, word) in [
            ("mode: perhaps", &[0][..], "none of accept"),
            ("mode: repeat", &[0], "repeat-mark"),
            ("mode: repeat\n  repeat-mark: 2\n  repeat-mask: 1", &[0], "in common"),
            ("mode: route", &[0], "route-queue"),
            ("mode: route\n  route-queue: 1", &[0, 1], "round and round"),
            ("mode: route\n  route-queue: 70000", &[0], "out of range"),
            ("batchcount: 300", &[0], "0 to 256"),
            ("queue-length: 0", &[0], "at least one packet"),
            ("buffer-size: 1kb", &[0], "128 KiB"),
            ("bypass-mark: blue", &[0], "bypass-mark"),
            ("fail-open: perhaps", &[0], "fail-open"),
            ("mode: accept", &[0, 0], "twice"),
        ] {
            let e = read(&format!("  {text}"), queues, RunMode::Workers).unwrap_err();
            assert!(e.contains(word), "{text}: {e}");
        }
        assert!(read("  mode: accept", &[0, 1], RunMode::Single).unwrap_err().contains("single"));
    }
}
