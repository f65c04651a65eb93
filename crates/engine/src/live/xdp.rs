//! `af-xdp:`: the AF_XDP interfaces, their workers, and their settings.

use std::sync::Arc;

use margay_capture::af_packet::{Interface, Trust};
use margay_capture::af_xdp::{AfXdp, BindMode, BusyPoll, Port, Settings};
use margay_capture::ebpf::XdpMode;
use margay_capture::live::{LiveCounters, LiveSource};
use margay_config::{Capture, Config, RunOptions};
use margay_output::{info, warning};

use super::cpus::Cpus;
use super::medium::{Counters, Groups, Medium, Opening};
use super::settings::{Device, Entries, Entry, RunMode};
use crate::Failed;

const SECTION: &str = "af-xdp";

/// The interfaces of the command line, or else all of the configuration.
///
/// # Errors
/// No interface, an interface that does not exist, or an invalid setting.
fn devices(config: &Config, options: &RunOptions, mode: RunMode, cpus: &Cpus) -> Result<Vec<Device>, Failed> {
    let entries = Entries::of(config, SECTION);
    let names = interfaces(config, options);
    if names.is_empty() {
        return Err(Failed::new(SECTION, "no interface: name one (--af-xdp=eth0), or list some under af-xdp"));
    }
    mode.check(&names)?;
    let filter = crate::settings::filter(options, SECTION)?;
    let mut devices: Vec<Device> = Vec::new();
    for name in names {
        if devices.iter().any(|d| d.name == name) {
            return Err(Failed::new(SECTION, format!("{name}: is named twice")));
        }
        let of = entries.of_interface(&name);
        let (settings, auto_trust) = of.xdp_settings(filter.as_deref())?;
        let port = Port::new(&name, settings).map_err(|e| Failed::new(SECTION, e.to_string()))?;
        let workers = of.workers(&name, mode, port.queues() as usize, cpus)?;
        if Interface::takes_tags_out(&name) && Interface::is_physical(&name) {
            warning!(
                SECTION,
                "{name}: the card takes VLAN tags out of frames, and nobody can tell what they were: \
                 `ethtool -K {name} rxvlan off` keeps them"
            );
        }
        devices.push(Device { name, workers, medium: Box::new(Arc::new(port)), auto_trust, bypass: None });
    }
    Ok(devices)
}

/// The interfaces of the command line, or else all of the configuration; empty if AF_XDP is not selected.
pub(super) fn interfaces(config: &Config, options: &RunOptions) -> Vec<String> {
    match &options.capture {
        Some(Capture::AfXdp(names)) if names.is_empty() => Entries::of(config, SECTION).interfaces(),
        Some(Capture::AfXdp(names)) => names.clone(),
        _ => Vec::new(),
    }
}

/// The devices, if the command line selects AF_XDP.
pub(super) fn chosen(
    config: &Config,
    options: &RunOptions,
    mode: RunMode,
    cpus: &Cpus,
) -> Option<Result<Vec<Device>, Failed>> {
    matches!(options.capture, Some(Capture::AfXdp(_))).then(|| devices(config, options, mode, cpus))
}

impl Medium for Arc<Port> {
    fn section(&self) -> &'static str {
        SECTION
    }

    fn capture(&self) -> &'static str {
        "AF_XDP_DEV"
    }

    fn counters(&self) -> Counters {
        counters
    }

    fn open(&self, at: &Opening<'_>, _groups: &mut Groups) -> Result<Box<dyn LiveSource>, Failed> {
        let queues = queues(self, at.nth, at.device.workers);
        let source = AfXdp::open(self, &queues).map_err(|e| Failed::new(SECTION, e.to_string()))?;
        source.remarks().iter().for_each(|r| warning!(SECTION, "{r}"));
        info!(SECTION, "{}: queues {queues:?}: {}", at.thread, source.way());
        Ok(Box::new(source))
    }
}

fn counters(c: &LiveCounters, f: &mut dyn FnMut(&str, u64)) {
    let mut of = |name: &str, n| f(&format!("capture.afxdp.{name}"), n);
    of("poll", c.polls);
    of("poll_timeout", c.poll_timeout);
    of("poll_failed", c.poll_errors);
    of("empty_reads", c.rings.empty);
    of("failed_reads", c.unreadable);
    of("acquire_pkt_failed", 0);
    of("poll_signal", c.poll_signal);
    of("poll_data", c.poll_data);
    of("rx_dropped", c.rings.dropped);
    of("rx_ring_full", c.rings.full);
    of("rx_fill_ring_empty_descs", c.rings.fill_empty);
    of("rx_invalid_descs", c.rings.invalid);
    of("filtered", c.rings.filtered);
    of("reopened", c.reopened);
}

/// The queues of worker `nth` of `workers`.
fn queues(port: &Port, nth: usize, workers: usize) -> Vec<u32> {
    (0..port.queues()).skip(nth).step_by(workers.max(1)).collect()
}

impl Entry<'_> {
    /// The number of workers: one for each queue by default. Fewer workers serve several queues each.
    fn workers(&self, name: &str, mode: RunMode, queues: usize, cpus: &Cpus) -> Result<usize, Failed> {
        let wanted = match (mode, self.text("threads")) {
            (RunMode::Single, _) => 1,
            (RunMode::Workers, None | Some("auto")) => queues.min(cpus.workers(name)),
            (RunMode::Workers, Some(_)) => self.number("threads")?.unwrap_or(1),
        };
        match wanted {
            0 => Err(self.wrong("threads", "0 workers inspect nothing").into()),
            n if n > queues => {
                warning!(
                    SECTION,
                    "{name}: threads: {n}: a queue has one worker, and there are {queues}: {queues} workers \
                     (`ethtool -L {name} combined {n}` makes more queues)"
                );
                Ok(queues)
            }
            n => Ok(n),
        }
    }

    fn xdp_settings(&self, filter: Option<&str>) -> Result<(Settings, bool), Failed> {
        let mode = match self.text("force-xdp-mode") {
            None | Some("none") => None,
            Some("skb") => Some(XdpMode::Generic),
            Some("drv") => Some(XdpMode::Driver),
            Some(other) => {
                return Err(self.wrong("force-xdp-mode", &format!("\"{other}\" is none of none, skb and drv")).into());
            }
        };
        let bind = match self.text("force-bind-mode") {
            None | Some("none") => BindMode::Any,
            Some("zero") => BindMode::Zero,
            Some("copy") => BindMode::Copy,
            Some(other) => {
                return Err(self
                    .wrong("force-bind-mode", &format!("\"{other}\" is none of none, zero and copy"))
                    .into());
            }
        };
        if (mode, bind) == (Some(XdpMode::Generic), BindMode::Zero) {
            let why = "zero needs the program in the driver: remove force-xdp-mode: skb";
            return Err(self.wrong("force-bind-mode", why).into());
        }
        let d = BusyPoll { micros: 20, budget: 64 };
        let busy_poll = match self.flag("enable-busy-poll", true)? {
            true => Some(BusyPoll {
                micros: self.number("busy-poll-time")?.unwrap_or(d.micros),
                budget: self.number("busy-poll-budget")?.unwrap_or(d.budget),
            }),
            false => None,
        };
        if busy_poll.is_some_and(|b| b.budget == 0 || b.budget > u32::from(u16::MAX)) {
            return Err(self.wrong("busy-poll-budget", "is not 1 to 65535 packets").into());
        }
        let (timeout, times) = (self.number("gro-flush-timeout")?, self.number("napi-defer-hard-irq")?);
        let defer = (timeout.is_some() || times.is_some()).then(|| [timeout.unwrap_or(2_000_000), times.unwrap_or(2)]);
        let (trust, auto_trust) = self.trust()?;
        let settings = Settings {
            promiscuous: !self.flag("disable-promisc", false)?,
            mode,
            bind,
            unaligned: self.flag("mem-unaligned", false)?,
            busy_poll,
            defer,
            // Packets that the host itself sends do not arrive here, so the kernel has no information on incomplete
            // checksums.
            trust: if trust == Trust::Kernel { Trust::Nobody } else { trust },
            filter: filter.or_else(|| self.text("bpf-filter")).map(str::to_owned),
        };
        Ok((settings, auto_trust))
    }
}

/// The settings of the first interface, as text.
#[cfg(test)]
pub(super) fn shown(config: &Config, options: &RunOptions) -> Result<String, String> {
    let entries = Entries::of(config, SECTION);
    let of = entries.of_interface(&entries.interfaces().into_iter().next().unwrap_or_default());
    let settings = of.xdp_settings(options.filter.as_deref()).map_err(|f| f.message)?;
    Ok(format!("{settings:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(yaml: &str) -> Result<(Settings, bool), String> {
        let config = Config::from_str(&format!("%YAML 1.1\n---\naf-xdp:\n  - interface: e0\n{yaml}\n"), "t").unwrap();
        Entries::of(&config, SECTION).of_interface("e0").xdp_settings(None).map_err(|f| f.message)
    }

    #[test]
    fn settings_are_those_of_suricata() {
        let (s, auto) = read("").unwrap();
        assert!(!auto && s.promiscuous && s.defer.is_none() && !s.unaligned && s.mode.is_none());
        assert_eq!((s.bind, s.busy_poll), (BindMode::Any, Some(BusyPoll { micros: 20, budget: 64 })));
        let (s, auto) = read(
            "    disable-promisc: yes\n    force-xdp-mode: drv\n    force-bind-mode: copy\n    mem-unaligned: yes\n    \
             busy-poll-time: 30\n    busy-poll-budget: 128\n    gro-flush-timeout: 1000\n    checksum-checks: auto\n    \
             bpf-filter: tcp",
        )
        .unwrap();
        assert!(auto && !s.promiscuous && s.unaligned);
        assert_eq!((s.mode, s.bind), (Some(XdpMode::Driver), BindMode::Copy));
        assert_eq!(s.busy_poll, Some(BusyPoll { micros: 30, budget: 128 }));
        assert_eq!((s.defer, s.filter.as_deref(), s.trust), (Some([1000, 2]), Some("tcp"), Trust::Nobody));
        assert_eq!(read("    enable-busy-poll: no").unwrap().0.busy_poll, None);
    }

    #[test]
    fn what_cannot_be_is_said() {
        for (text, word) in [
            ("force-xdp-mode: driver", "skb"),
            ("force-bind-mode: yes", "copy"),
            ("busy-poll-budget: 0", "65535"),
            ("gro-flush-timeout: soon", "soon"),
            ("checksum-checks: perhaps", "kernel"),
        ] {
            let e = read(&format!("    {text}")).unwrap_err();
            assert!(e.contains(word), "{text}: {e}");
        }
        assert!(read("    force-xdp-mode: skb\n    force-bind-mode: zero").is_err());
    }
}
