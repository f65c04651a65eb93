//! Counts lost packets at each stage, from the card to the engine.
//!
//! | stage | received | lost | source |
//! | --- | --- | --- | --- |
//! | card | `rx_packets` | errors, missed, no room | `/sys/class/net/IF/statistics`; by name, if the driver has any, `ethtool -S` |
//! | softnet | of the whole host, all interfaces | backlog full | `/proc/net/softnet_stat` |
//! | ring | packets the kernel had for our sockets | no room | `PACKET_STATISTICS`; with AF_XDP our own program's count, and `XDP_STATISTICS` |
//! | queue | instead of a ring: packets netfilter had for a queue | no room | `/proc/net/netfilter/nfnetlink_queue` |
//! | engine | packets taken out of the ring | not decoded | the workers |
//! | send | inline: packets sent out of the other interface | accepted, but not sent | the workers |
//!
//! The sums of ring and engine must agree, and the table says whether they do. The card's count may differ: a filter may
//! exclude packets, and packets that the host itself sends are not received by the card.

use margay_capture::af_packet::Interface;
use margay_capture::live::LiveCounters;

/// Counters of the card and the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Host {
    /// Packets that the interface received.
    pub(crate) received: u64,
    /// Packets that it lost: errors, missed, no room.
    pub(crate) lost: u64,
    /// Driver counters that suggest a loss, under the driver's names.
    pub(crate) driver: Vec<(String, u64)>,
    /// Packets that the host lost between card and socket, on all interfaces.
    pub(crate) softnet: u64,
    /// How often the time slice of softirq processing ended before all packets were handled.
    pub(crate) squeezed: u64,
    /// The source is a netfilter queue, not a card.
    queue: bool,
}

impl Host {
    /// Reads the current counters.
    pub(crate) fn of(interface: &str) -> Host {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        // Sysfs may show another network namespace than this thread's. In that case the interface's index differs.
        let here = |file: &str| read(&format!("/sys/class/net/{interface}/{file}")).trim().parse::<u64>().ok();
        let index = Interface::find(interface).ok().and_then(|i| u64::try_from(i.index).ok());
        let (received, lost) = match here("statistics/rx_packets") {
            Some(received) if index.is_some() && here("ifindex") == index => {
                let lost = ["rx_errors", "rx_missed_errors", "rx_fifo_errors"];
                (received, lost.iter().filter_map(|f| here(&format!("statistics/{f}"))).sum())
            }
            _ => device(&read("/proc/thread-self/net/dev"), interface),
        };
        let (softnet, squeezed) = backlog(&read("/proc/thread-self/net/softnet_stat"));
        let driver = Interface::statistics(interface).into_iter().filter(|(name, _)| sounds_like_loss(name)).collect();
        Host { received, lost, driver, softnet, squeezed, queue: false }
    }

    /// The counters of a queue.
    pub(crate) fn of_queue(_: &str) -> Host {
        let (softnet, squeezed) =
            backlog(&std::fs::read_to_string("/proc/thread-self/net/softnet_stat").unwrap_or_default());
        Host { softnet, squeezed, queue: true, ..Host::default() }
    }

    /// Reads the current counters of the same source.
    pub(crate) fn again(&self, interface: &str) -> Host {
        if self.queue { Host::of_queue(interface) } else { Host::of(interface) }
    }

    /// The difference from `before`. A recreated interface counts from 0.
    pub(crate) fn since(&self, before: &Host) -> Host {
        let step = |now: u64, then: u64| now.checked_sub(then).unwrap_or(now);
        let of = |name: &str| before.driver.iter().find(|d| d.0 == name).map_or(0, |d| d.1);
        Host {
            received: step(self.received, before.received),
            lost: step(self.lost, before.lost),
            driver: self.driver.iter().map(|(n, v)| (n.clone(), step(*v, of(n)))).filter(|d| d.1 > 0).collect(),
            softnet: step(self.softnet, before.softnet),
            squeezed: step(self.squeezed, before.squeezed),
            queue: self.queue,
        }
    }
}

/// `/proc/net/dev`: received and lost packets. Its "drop" column is left out: it mostly counts packets that no protocol of
/// the host wanted, but that our sockets received.
fn device(text: &str, interface: &str) -> (u64, u64) {
    let row = text.lines().find_map(|l| l.trim_start().strip_prefix(interface)?.strip_prefix(':'));
    let numbers: Vec<u64> = row.unwrap_or_default().split_ascii_whitespace().map_while(|n| n.parse().ok()).collect();
    let at = |n: usize| numbers.get(n).copied().unwrap_or(0);
    // bytes packets errs drop fifo
    (at(1), at(2) + at(4))
}

/// `/proc/net/softnet_stat`: a row of hexadecimal numbers for each CPU.
fn backlog(text: &str) -> (u64, u64) {
    let column = |n: usize| {
        let of = |l: &str| l.split_ascii_whitespace().nth(n).and_then(|w| u64::from_str_radix(w, 16).ok());
        text.lines().filter_map(of).sum()
    };
    (column(1), column(2))
}

/// Whether a driver counter's name suggests packets lost on reception.
fn sounds_like_loss(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let lost =
        ["drop", "miss", "discard", "no_buf", "nobuf", "no_buffer", "overrun", "overflow", "error", "fifo", "crc"];
    // An XDP program drops packets on purpose: those of bypassed flows.
    !name.contains("tx") && !name.contains("xdp_drop") && lost.iter().any(|w| name.contains(w))
}

/// A row of the table, for one interface.
#[derive(Debug, Clone, Default)]
pub(crate) struct Row {
    pub(crate) interface: String,
    pub(crate) host: Host,
    pub(crate) live: LiveCounters,
    /// Frames that the engine decoded.
    pub(crate) decoded: u64,
    /// TCP packets with a wrong checksum.
    pub(crate) invalid_checksums: u64,
}

impl Row {
    /// Frames that were taken out of the ring but not decoded.
    pub(crate) fn engine_lost(&self) -> u64 {
        self.live.frames.saturating_sub(self.decoded) + self.live.unreadable
    }

    /// The unexplained difference: received - decoded - lost in the ring - lost in the engine.
    pub(crate) fn unexplained(&self) -> i128 {
        i128::from(self.live.kernel_packets)
            - i128::from(self.decoded)
            - i128::from(self.live.kernel_drops)
            - i128::from(self.engine_lost())
    }

    /// Calls `f` for each counter of an interface's statistics.
    pub(crate) fn for_each(&self, f: &mut dyn FnMut(&str, u64)) {
        if !self.host.queue {
            f("capture.nic.received", self.host.received);
            f("capture.nic.lost", self.host.lost);
        }
        f("capture.kernel_packets", self.live.kernel_packets);
        f("capture.kernel_drops", self.live.kernel_drops);
        f("capture.send.sent", self.live.sent);
        f("capture.send.dropped", self.live.dropped);
        f("capture.send.lost", self.live.send_errors);
        f("capture.engine.received", self.live.frames);
        f("capture.engine.lost", self.engine_lost());
        f("decoder.pkts", self.decoded);
    }
}

/// The lines of the final table.
pub(super) fn table(rows: &[Row]) -> Vec<String> {
    let mut out = Vec::new();
    let line = |interface: &str, stage: &str, received: String, lost: String| {
        format!("{interface:<15}  {stage:<8} {received:>15} {lost:>15}")
    };
    out.push(line("interface", "stage", "received".into(), "lost".into()));
    for r in rows {
        let (name, stage) = if r.host.queue { (r.interface.as_str(), "queue") } else { ("", "ring") };
        if !r.host.queue {
            out.push(line(&r.interface, "card", r.host.received.to_string(), r.host.lost.to_string()));
        }
        for (name, n) in &r.host.driver {
            out.push(line("", "", format!("({name})"), n.to_string()));
        }
        out.push(line(name, stage, r.live.kernel_packets.to_string(), r.live.kernel_drops.to_string()));
        let rings = r.live.rings;
        let shown = [
            ("rx_dropped", rings.dropped),
            ("rx_ring_full", rings.full),
            ("rx_fill_ring_empty_descs", rings.fill_empty),
        ];
        for (name, n) in shown.iter().filter(|s| s.1 > 0) {
            out.push(line("", "", format!("({name})"), n.to_string()));
        }
        out.push(line("", "engine", r.live.frames.to_string(), r.engine_lost().to_string()));
        let c = &r.live;
        if c.sent + c.dropped + c.send_errors > 0 {
            // Packets that arrived on this interface and left through the other one.
            out.push(line("", "send", c.sent.to_string(), c.send_errors.to_string()));
            let sum = match i128::from(c.frames) - i128::from(c.sent + c.dropped + c.send_errors) {
                0 => "inspected = sent + dropped + lost".to_owned(),
                n => format!("inspected is not sent + dropped + lost: {n} packets cannot be explained"),
            };
            out.push(format!("{:<15}  dropped by verdict {}: {sum}", "", c.dropped));
        }
        let sum = match r.unexplained() {
            0 => "received = inspected + lost".to_owned(),
            n => format!("received is not inspected + lost: {n} packets cannot be explained"),
        };
        out.push(format!("{:<15}  inspected {}: {sum}", "", r.decoded));
    }
    if let Some(h) = rows.first().map(|r| &r.host) {
        out.push(line("(all of host)", "softnet", format!("squeezed {}", h.squeezed), h.softnet.to_string()));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_the_host() {
        let dev = "Inter-|   Receive                            |  Transmit\n face |bytes    packets errs drop fifo frame\n    lo: 10 1 0 0 0 0 0 0 10 1\n  eth0: 9000 77 2 3 1 0 0 0 5 5 0 0\n eth01: 1 5 5 5";
        assert_eq!(device(dev, "eth0"), (77, 3));
        assert_eq!(device(dev, "lo"), (1, 0));
        assert_eq!(device(dev, "eth7"), (0, 0));
        assert_eq!(backlog("0000ff 00000010 00000001 0\n00 0000000f 00000002 0\n"), (31, 3));
        for (name, yes) in [
            ("rx_dropped", true),
            ("rx_missed_errors", true),
            ("port.rx_no_buffer_count", true),
            ("tx_dropped", false),
            ("rx_packets", false),
        ] {
            assert_eq!(sounds_like_loss(name), yes, "{name}");
        }
    }

    #[test]
    fn what_is_lost_is_explained() {
        let host = Host { received: 100, driver: vec![("rx_drop".into(), 3)], ..Host::default() };
        let now = Host { received: 130, driver: vec![("rx_drop".into(), 5)], softnet: 4, ..Host::default() };
        let since = now.since(&host);
        assert_eq!((since.received, since.softnet, since.driver.clone()), (30, 4, vec![("rx_drop".to_owned(), 2)]));
        assert_eq!(host.since(&now).received, 100, "made anew");
        let live = LiveCounters { kernel_packets: 30, kernel_drops: 4, frames: 26, ..LiveCounters::default() };
        let mut row = Row { interface: "eth0".into(), host: since, live, decoded: 26, ..Row::default() };
        assert_eq!((row.unexplained(), row.engine_lost()), (0, 0));
        assert!(table(&[row.clone()]).iter().any(|l| l.ends_with("received = inspected + lost")));
        row.decoded = 25;
        assert_eq!((row.unexplained(), row.engine_lost()), (0, 1));
        row.live.kernel_packets = 31;
        assert!(table(&[row]).iter().any(|l| l.contains("1 packets cannot be explained")));
    }
}
