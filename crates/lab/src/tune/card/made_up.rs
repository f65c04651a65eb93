//! A simulated machine whose cards behave like real ones: they round values, refuse settings, accept settings without
//! effect, forget key and table when the number of queues changes, and lose their link for a while.
//!
//! A recorded machine describes each card by lines (all but `driver` may be left out; what is left out is not supported):
//!
//! ```text
//! driver i40e version 6.8.0 firmware 9.20 bus 0000:3b:00.0
//! channels rx 0 tx 0 other 1 combined 64        most-channels combined 64 other 1
//! ring rx 512 tx 512                            most-ring rx 4096 tx 4096
//! coalesce adaptive-rx on adaptive-tx on rx-usecs 50 rx-frames 0
//! pause autoneg off rx on tx on
//! feature rx-gro on            feature rx-lro off fixed
//! rss function toeplitz transform none key 3f:0a table 512
//! hash udp4 sd
//! flags up promisc noarp
//! address 192.0.2.1/24         xdp driver
//! route 198.51.100.7                            packets to this address leave here
//! irqs first 120 name i40e-{card}-TxRx-{queue}
//! counter rx_missed_errors 12
//! habit ring-multiple 32       habit usecs-multiple 2     habit keeps-key
//! habit link-away 3            habit ring-resets-coalesce
//! habit refuses rss-key        habit ignores rx-gro
//! ```

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use super::{
    Answer, Cards, Channels, Coalesce, Driver, FLOWS, Feature, Flags, Link, Pause, Refusal, Ring, Rss, Words, key_of,
};
use crate::tune::tree::{Memory, Tree};

/// Side effects and limits of a card.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Habits {
    /// Ring sizes are rounded up to a multiple, `rx-usecs` down.
    pub(crate) ring_multiple: u32,
    pub(crate) usecs_multiple: u32,
    /// Key, function, hash fields and affinity survive a change in the number of queues.
    pub(crate) keeps_key: bool,
    /// A change of the rings resets the coalescing settings.
    pub(crate) ring_resets_coalesce: bool,
    /// After a change of queues, rings or pause, the link is down for this many looks.
    pub(crate) link_away: u32,
    /// Settings whose writing fails with "not supported".
    pub(crate) refuses: BTreeSet<String>,
    /// Features that are accepted without effect.
    pub(crate) ignores: BTreeSet<String>,
}

/// One card.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Card {
    driver: Driver,
    link: Link,
    routes: Vec<String>,
    flags: Flags,
    channels: Option<(Channels, Channels)>,
    ring: Option<(Ring, Ring)>,
    coalesce: Option<(Coalesce, Coalesce)>,
    pause: Option<Pause>,
    features: BTreeMap<String, Feature>,
    rss: Option<Rss>,
    /// The table was set explicitly. Like the kernel, the card then refuses fewer queues than the table names.
    table_chosen: bool,
    hash: BTreeMap<String, String>,
    irqs: Option<(u32, String)>,
    counters: Vec<(String, u64)>,
    pub(crate) habits: Habits,
    /// Looks until the link is back.
    away: u32,
}

/// A simulated machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct MadeUp {
    pub(crate) tree: Memory,
    pub(crate) cards: RefCell<BTreeMap<String, Card>>,
    /// The state of the generator for drivers' random keys.
    drawn: Cell<u64>,
}

fn channels_of(text: &str) -> Option<Channels> {
    let words = Words::of(text)?;
    Some(Channels {
        rx: words.number("rx", 0)?,
        tx: words.number("tx", 0)?,
        other: words.number("other", 0)?,
        combined: words.number("combined", 0)?,
    })
}

fn ring_of(text: &str) -> Option<Ring> {
    let words = Words::of(text)?;
    Some(Ring { rx: words.number("rx", 0)?, tx: words.number("tx", 0)? })
}

fn spread(length: usize, queues: u32) -> Vec<u32> {
    (0..length as u32).map(|at| at % queues.max(1)).collect()
}

impl MadeUp {
    /// Parses a line of a card's description.
    ///
    /// # Errors
    /// The word that makes no sense.
    pub(crate) fn describe(&self, name: &str, line: &str) -> Result<(), String> {
        let mut cards = self.cards.borrow_mut();
        let card = cards
            .entry(name.to_owned())
            .or_insert_with(|| Card { flags: Flags { arp: true, ..Flags::default() }, ..Card::default() });
        let (what, rest) = line.split_once(' ').unwrap_or((line, ""));
        let rest = rest.trim();
        card.describe(what, rest).ok_or_else(|| "no such line of a card".to_owned())
    }

    /// Creates the files that follow from the cards: queues and interrupts.
    pub(crate) fn complete(&self) {
        for (name, card) in self.cards.borrow().iter() {
            self.files_of(name, card);
        }
    }

    /// Creates the files of queues and interrupts, unless they exist.
    fn files_of(&self, name: &str, card: &Card) {
        let Some((now, _)) = card.channels else { return };
        let online = self.tree.text("/sys/devices/system/cpu/online").unwrap_or_else(|| "0".to_owned());
        let absent = |path: &str, text: &str| {
            if !self.tree.exists(path) {
                self.tree.set(path, text);
            }
        };
        let queues = format!("/sys/class/net/{name}/queues");
        for (kind, count, file) in [("rx", now.receive(), "rps_cpus"), ("tx", now.tx + now.combined, "xps_cpus")] {
            for queue in self.tree.names(&queues) {
                let number = queue.strip_prefix(kind).and_then(|rest| rest.strip_prefix('-')?.parse::<u32>().ok());
                if number.is_some_and(|number| number >= count) {
                    self.tree.remove(&format!("{queues}/{queue}"));
                }
            }
            (0..count).for_each(|queue| absent(&format!("{queues}/{kind}-{queue}/{file}"), "0\n"));
        }
        let Some((first, pattern)) = &card.irqs else { return };
        let most = card.channels.map_or(0, |(_, most)| most.receive().max(now.receive()));
        for queue in 0..most {
            let irq = first + queue;
            let action = pattern.replace("{card}", name).replace("{queue}", &queue.to_string());
            if queue < now.receive() {
                self.tree.set_folder(&format!("/proc/irq/{irq}/{action}"));
                absent(&format!("/proc/irq/{irq}/smp_affinity_list"), &format!("{online}\n"));
                absent(&format!("/sys/class/net/{name}/device/msi_irqs/{irq}"), "msix\n");
            } else {
                self.tree.remove(&format!("/proc/irq/{irq}"));
                self.tree.remove(&format!("/sys/class/net/{name}/device/msi_irqs/{irq}"));
            }
        }
    }

    fn draw(&self) -> u64 {
        let next = self.drawn.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.drawn.set(next);
        next >> 33
    }

    /// Advances time: links come back.
    pub(crate) fn look(&self) {
        for (name, card) in self.cards.borrow_mut().iter_mut() {
            if card.away > 0 {
                card.away -= 1;
                if card.away == 0 {
                    self.state(name, true);
                }
            }
        }
    }

    fn state(&self, name: &str, up: bool) {
        for (file, texts) in [("operstate", ["down\n", "up\n"]), ("carrier", ["0\n", "1\n"])] {
            let path = format!("/sys/class/net/{name}/{file}");
            if self.tree.exists(&path) {
                self.tree.set(&path, texts[usize::from(up)]);
            }
        }
    }

    fn link_lost(&self, name: &str, card: &mut Card) {
        if card.habits.link_away > 0 && card.flags.up {
            card.away = card.habits.link_away;
            self.state(name, false);
        }
    }

    fn get<T>(&self, name: &str, of: impl FnOnce(&Card) -> Option<T>) -> Answer<T> {
        let cards = self.cards.borrow();
        of(cards.get(name).ok_or(Refusal::Missing)?).ok_or(Refusal::Unsupported)
    }

    fn change(&self, name: &str, what: &str, with: impl FnOnce(&mut Card) -> Answer<()>) -> Answer<()> {
        let mut cards = self.cards.borrow_mut();
        let card = cards.get_mut(name).ok_or(Refusal::Missing)?;
        if card.habits.refuses.contains(what) {
            return Err(Refusal::Unsupported);
        }
        with(card)
    }
}

impl Card {
    fn describe(&mut self, what: &str, rest: &str) -> Option<()> {
        match what {
            "driver" => {
                let (name, more) = rest.split_once(' ').unwrap_or((rest, ""));
                let words: Vec<&str> = more.split_whitespace().collect();
                let get =
                    |key: &str| words.chunks_exact(2).find(|pair| pair[0] == key).map_or("", |pair| pair[1]).to_owned();
                self.driver = Driver {
                    name: name.to_owned(),
                    version: get("version"),
                    firmware: get("firmware"),
                    bus: get("bus"),
                };
            }
            "channels" => self.channels.get_or_insert_default().0 = channels_of(rest)?,
            "most-channels" => self.channels.get_or_insert_default().1 = channels_of(rest)?,
            "ring" => self.ring.get_or_insert_default().0 = ring_of(rest)?,
            "most-ring" => self.ring.get_or_insert_default().1 = ring_of(rest)?,
            "coalesce" => {
                let words = Words::of(rest)?;
                let set = Coalesce {
                    adaptive_rx: words.switch("adaptive-rx", false)?,
                    adaptive_tx: words.switch("adaptive-tx", false)?,
                    rx_usecs: words.number("rx-usecs", 0)?,
                    rx_frames: words.number("rx-frames", 0)?,
                };
                self.coalesce = Some((set, set));
            }
            "pause" => {
                let words = Words::of(rest)?;
                let switch = |name| words.switch(name, false);
                self.pause = Some(Pause { autoneg: switch("autoneg")?, rx: switch("rx")?, tx: switch("tx")? });
            }
            "feature" => {
                let words: Vec<&str> = rest.split_whitespace().collect();
                let [name, state, more @ ..] = &words[..] else { return None };
                let feature = Feature { on: *state == "on", fixed: more.contains(&"fixed") };
                self.features.insert((*name).to_owned(), feature);
            }
            "rss" => {
                let words: Vec<&str> = rest.split_whitespace().collect();
                let get = |key: &str| words.chunks_exact(2).find(|pair| pair[0] == key).map_or("", |pair| pair[1]);
                let queues = self.channels.map_or(1, |(now, _)| now.receive());
                let key = if get("key").is_empty() { Vec::new() } else { key_of(get("key"))? };
                let table = match get("entries") {
                    "" => spread(get("table").parse().unwrap_or(0), queues),
                    entries => entries.split(',').map(|n| n.parse().ok()).collect::<Option<_>>()?,
                };
                let transform = if get("transform").is_empty() { "none" } else { get("transform") };
                self.rss = Some(Rss { function: get("function").into(), transform: transform.into(), key, table });
            }
            "hash" => {
                let (flow, fields) = rest.split_once(' ')?;
                FLOWS.contains(&flow).then_some(())?;
                self.hash.insert(flow.to_owned(), fields.to_owned());
            }
            "flags" => {
                let has = |word| rest.split_whitespace().any(|known| known == word);
                self.flags = Flags { up: has("up"), promisc: has("promisc"), arp: !has("noarp") };
            }
            "address" => self.link.addresses.push(rest.to_owned()),
            "xdp" => rest.clone_into(&mut self.link.xdp),
            "route" => self.routes.push(rest.to_owned()),
            "irqs" => {
                let words: Vec<&str> = rest.split_whitespace().collect();
                let ["first", first, "name", name] = words[..] else { return None };
                self.irqs = Some((first.parse().ok()?, name.to_owned()));
            }
            "counter" => {
                let (name, value) = rest.split_once(' ')?;
                self.counters.push((name.to_owned(), value.parse().ok()?));
            }
            "habit" => {
                let (habit, more) = rest.split_once(' ').unwrap_or((rest, ""));
                match habit {
                    "ring-multiple" => self.habits.ring_multiple = more.parse().ok()?,
                    "usecs-multiple" => self.habits.usecs_multiple = more.parse().ok()?,
                    "keeps-key" => self.habits.keeps_key = true,
                    "ring-resets-coalesce" => self.habits.ring_resets_coalesce = true,
                    "link-away" => self.habits.link_away = more.parse().ok()?,
                    "refuses" => drop(self.habits.refuses.insert(more.to_owned())),
                    "ignores" => drop(self.habits.ignores.insert(more.to_owned())),
                    _ => return None,
                }
            }
            _ => return None,
        }
        Some(())
    }
}

fn invalid() -> Refusal {
    Refusal::Other("Invalid argument (os error 22)".to_owned())
}

/// Rounds to a multiple of `of`, up or, with `down`, down.
fn rounded(value: u32, of: u32, down: bool) -> u32 {
    match of {
        0 => value,
        of if down => value / of * of,
        of => value.next_multiple_of(of),
    }
}

impl Cards for MadeUp {
    fn driver(&self, name: &str) -> Answer<Driver> {
        self.get(name, |card| Some(card.driver.clone()))
    }

    fn link(&self, name: &str) -> Answer<Link> {
        self.get(name, |card| Some(card.link.clone()))
    }

    fn route_to(&self, address: &str) -> Answer<String> {
        let cards = self.cards.borrow();
        let found = cards.iter().find(|(_, card)| card.routes.iter().any(|route| route == address));
        found.map(|(name, _)| name.clone()).ok_or(Refusal::Missing)
    }

    fn flags(&self, name: &str) -> Answer<Flags> {
        self.get(name, |card| Some(card.flags))
    }

    fn set_flags(&self, name: &str, flags: Flags) -> Answer<()> {
        self.change(name, "flags", |card| {
            card.flags = flags;
            Ok(())
        })
    }

    fn channels(&self, name: &str) -> Answer<(Channels, Channels)> {
        self.get(name, |card| card.channels)
    }

    fn set_channels(&self, name: &str, wanted: Channels) -> Answer<()> {
        self.change(name, "channels", |card| {
            let (now, most) = card.channels.as_mut().ok_or(Refusal::Unsupported)?;
            let wanted = Channels { other: now.other, ..wanted };
            let fits = wanted.rx <= most.rx && wanted.tx <= most.tx && wanted.combined <= most.combined;
            let queues = wanted.receive();
            let named = card.rss.as_ref().and_then(|rss| rss.table.iter().max().copied()).unwrap_or(0);
            if !fits || queues == 0 || (card.table_chosen && named >= queues) {
                return Err(invalid());
            }
            if wanted == *now {
                return Ok(());
            }
            *now = wanted;
            if !card.habits.keeps_key {
                card.table_chosen = false;
                if let Some(rss) = &mut card.rss {
                    rss.key.iter_mut().for_each(|byte| *byte = self.draw() as u8);
                    "none".clone_into(&mut rss.transform);
                }
                for (flow, fields) in &mut card.hash {
                    let default = if flow.starts_with("tcp") { "sdfn" } else { "sd" };
                    default.clone_into(fields);
                }
                // Interrupts are requested again.
                if let Some((first, _)) = card.irqs {
                    (0..most.receive()).for_each(|queue| self.tree.remove(&format!("/proc/irq/{}", first + queue)));
                }
            }
            if !card.table_chosen
                && let Some(rss) = &mut card.rss
            {
                rss.table = spread(rss.table.len(), queues);
            }
            self.link_lost(name, card);
            self.files_of(name, card);
            Ok(())
        })
    }

    fn ring(&self, name: &str) -> Answer<(Ring, Ring)> {
        self.get(name, |card| card.ring)
    }

    fn set_ring(&self, name: &str, wanted: Ring) -> Answer<()> {
        self.change(name, "ring", |card| {
            let (now, most) = card.ring.as_mut().ok_or(Refusal::Unsupported)?;
            if wanted.rx > most.rx || wanted.tx > most.tx {
                return Err(invalid());
            }
            let multiple = card.habits.ring_multiple;
            let wanted = Ring { rx: rounded(wanted.rx, multiple, false), tx: rounded(wanted.tx, multiple, false) };
            if wanted == *now {
                return Ok(());
            }
            *now = wanted;
            if card.habits.ring_resets_coalesce
                && let Some((now, first)) = &mut card.coalesce
            {
                *now = *first;
            }
            self.link_lost(name, card);
            Ok(())
        })
    }

    fn coalesce(&self, name: &str) -> Answer<Coalesce> {
        self.get(name, |card| card.coalesce.map(|(now, _)| now))
    }

    fn set_coalesce(&self, name: &str, wanted: Coalesce) -> Answer<()> {
        self.change(name, "coalesce", |card| {
            let multiple = card.habits.usecs_multiple;
            let now = &mut card.coalesce.as_mut().ok_or(Refusal::Unsupported)?.0;
            *now = Coalesce { rx_usecs: rounded(wanted.rx_usecs, multiple, true), ..wanted };
            Ok(())
        })
    }

    fn pause(&self, name: &str) -> Answer<Pause> {
        self.get(name, |card| card.pause)
    }

    fn set_pause(&self, name: &str, wanted: Pause) -> Answer<()> {
        self.change(name, "pause", |card| {
            let now = card.pause.as_mut().ok_or(Refusal::Unsupported)?;
            if *now != wanted {
                *now = wanted;
                self.link_lost(name, card);
            }
            Ok(())
        })
    }

    fn features(&self, name: &str) -> Answer<BTreeMap<String, Feature>> {
        self.get(name, |card| Some(card.features.clone()))
    }

    fn set_feature(&self, name: &str, feature: &str, on: bool) -> Answer<()> {
        self.change(name, feature, |card| {
            let now = card.features.get_mut(feature).ok_or(Refusal::Unsupported)?;
            if !now.fixed && !card.habits.ignores.contains(feature) {
                now.on = on;
            }
            Ok(())
        })
    }

    fn rss(&self, name: &str) -> Answer<Rss> {
        self.get(name, |card| card.rss.clone())
    }

    fn set_rss_function(&self, name: &str, function: &str) -> Answer<()> {
        self.change(name, "rss-function", |card| {
            function.clone_into(&mut card.rss.as_mut().ok_or(Refusal::Unsupported)?.function);
            Ok(())
        })
    }

    fn set_rss_transform(&self, name: &str, transform: &str) -> Answer<()> {
        self.change(name, "rss-transform", |card| {
            transform.clone_into(&mut card.rss.as_mut().ok_or(Refusal::Unsupported)?.transform);
            Ok(())
        })
    }

    fn set_rss_key(&self, name: &str, key: &[u8]) -> Answer<()> {
        self.change(name, "rss-key", |card| {
            let rss = card.rss.as_mut().ok_or(Refusal::Unsupported)?;
            if rss.key.len() != key.len() {
                return Err(invalid());
            }
            rss.key = key.to_vec();
            Ok(())
        })
    }

    fn set_rss_table(&self, name: &str, table: Option<&[u32]>) -> Answer<()> {
        self.change(name, "rss-table", |card| {
            let queues = card.channels.map_or(1, |(now, _)| now.receive());
            let rss = card.rss.as_mut().ok_or(Refusal::Unsupported)?;
            match table {
                None => rss.table = spread(rss.table.len(), queues),
                Some(table) if table.len() != rss.table.len() || table.iter().any(|queue| *queue >= queues) => {
                    return Err(invalid());
                }
                Some(table) => rss.table = table.to_vec(),
            }
            card.table_chosen = table.is_some();
            Ok(())
        })
    }

    fn hash_fields(&self, name: &str, flow: &str) -> Answer<String> {
        self.get(name, |card| card.hash.get(flow).cloned())
    }

    fn set_hash_fields(&self, name: &str, flow: &str, fields: &str) -> Answer<()> {
        self.change(name, &format!("hash {flow}"), |card| {
            fields.clone_into(card.hash.get_mut(flow).ok_or(Refusal::Unsupported)?);
            Ok(())
        })
    }

    fn counters(&self, name: &str) -> Answer<Vec<(String, u64)>> {
        self.get(name, |card| Some(card.counters.clone()))
    }
}

/// The description of a card by `discover --record`, in the format of [`MadeUp::describe`].
pub(crate) fn described(cards: &dyn Cards, name: &str) -> String {
    let mut out = format!("[card {name}]\n");
    if let Ok(d) = cards.driver(name) {
        out += &format!("driver {}", d.name);
        for (word, value) in [("version", d.version), ("firmware", d.firmware), ("bus", d.bus)] {
            if let Some(first) = value.split_whitespace().next() {
                out += &format!(" {word} {first}");
            }
        }
        out += "\n";
    }
    let all = |c: Channels| format!("rx {} tx {} other {} combined {}", c.rx, c.tx, c.other, c.combined);
    if let Ok((now, most)) = cards.channels(name) {
        out += &format!("channels {}\nmost-channels {}\n", all(now), all(most));
    }
    if let Ok((now, most)) = cards.ring(name) {
        out += &format!("ring {now}\nmost-ring {most}\n");
    }
    if let Ok(coalesce) = cards.coalesce(name) {
        out += &format!("coalesce {coalesce}\n");
    }
    if let Ok(pause) = cards.pause(name) {
        out += &format!("pause {pause}\n");
    }
    for (feature, state) in cards.features(name).unwrap_or_default() {
        let fixed = if state.fixed { " fixed" } else { "" };
        out += &format!("feature {feature} {}{fixed}\n", super::on(state.on));
    }
    if let Ok(rss) = cards.rss(name) {
        let mut line = "rss".to_owned();
        for (word, value) in [("function", &rss.function), ("transform", &rss.transform), ("key", &rss.key_text())] {
            if !value.is_empty() {
                line += &format!(" {word} {value}");
            }
        }
        if !rss.table.is_empty() {
            let entries: Vec<String> = rss.table.iter().map(u32::to_string).collect();
            line += &format!(" entries {}", entries.join(","));
        }
        out += &format!("{line}\n");
    }
    for flow in FLOWS {
        if let Ok(fields) = cards.hash_fields(name, flow) {
            out += &format!("hash {flow} {fields}\n");
        }
    }
    if let Ok(flags) = cards.flags(name) {
        let words = [(flags.up, "up"), (flags.promisc, "promisc"), (!flags.arp, "noarp")];
        let words: Vec<&str> = words.iter().filter(|(is, _)| *is).map(|(_, word)| *word).collect();
        out += &format!("flags {}\n", words.join(" "));
    }
    if let Ok(link) = cards.link(name) {
        link.addresses.iter().for_each(|address| out += &format!("address {address}\n"));
        if !link.xdp.is_empty() {
            out += &format!("xdp {}\n", link.xdp);
        }
    }
    out
}

/// All CPUs in the affinity of a queue's interrupt, if the card has such interrupts.
#[cfg(test)]
pub(crate) fn affinity(machine: &MadeUp, irq: u32) -> Vec<usize> {
    crate::tune::list::parse(&machine.tree.text(&format!("/proc/irq/{irq}/smp_affinity_list")).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::recorded;

    const MACHINE: &str = "/sys/devices/system/cpu/online = 0-7
/sys/class/net/eth1/operstate = up
[card eth1]
driver i40e version 6.8.0 bus 0000:3b:00.0
channels combined 4 other 1
most-channels combined 8 other 1
ring rx 512 tx 512
most-ring rx 4096 tx 4096
coalesce adaptive-rx on adaptive-tx on rx-usecs 50
pause autoneg off rx on tx on
feature rx-gro on
feature rx-lro off fixed
rss function toeplitz key 01:02:03:04 table 16
hash tcp4 sdfn
hash udp4 sd
flags up
address 192.0.2.1/24
irqs first 120 name i40e-{card}-TxRx-{queue}
habit ring-multiple 32
habit usecs-multiple 2
habit link-away 2
habit ring-resets-coalesce
habit refuses rss-function
habit ignores rx-gro
";

    #[test]
    fn a_card_has_its_habits() {
        let m = recorded::read(MACHINE).unwrap();
        assert_eq!((m.ring("eth1").unwrap().0.rx, m.driver("eth1").unwrap().name.as_str()), (512, "i40e"));
        assert_eq!(m.ring("eth2"), Err(Refusal::Missing));
        assert_eq!(affinity(&m, 123), [0, 1, 2, 3, 4, 5, 6, 7]);
        // Rounded and forgotten settings.
        let coalesce = Coalesce { rx_usecs: 125, ..Coalesce::default() };
        m.set_coalesce("eth1", coalesce).unwrap();
        assert_eq!(m.coalesce("eth1").unwrap().rx_usecs, 124);
        m.set_ring("eth1", Ring { rx: 1000, tx: 512 }).unwrap();
        assert_eq!((m.ring("eth1").unwrap().0.rx, m.coalesce("eth1").unwrap().rx_usecs), (1024, 50));
        assert_eq!(m.set_ring("eth1", Ring { rx: 5000, tx: 512 }), Err(invalid()));
        // The link goes down and returns.
        let state = || m.tree.text("/sys/class/net/eth1/operstate").unwrap();
        assert_eq!(state(), "down");
        m.look();
        m.look();
        assert_eq!(state(), "up");
        // More queues change the key and reset the interrupts' affinity.
        m.tree.set("/proc/irq/120/smp_affinity_list", "3\n");
        m.set_rss_key("eth1", &[0x6d, 0x5a, 0x6d, 0x5a]).unwrap();
        m.set_channels("eth1", Channels { combined: 8, ..Channels::default() }).unwrap();
        let rss = m.rss("eth1").unwrap();
        assert!(rss.key != [0x6d, 0x5a, 0x6d, 0x5a] && rss.table_text(8) == "default");
        assert!(affinity(&m, 120).len() == 8 && m.tree.exists("/proc/irq/127"));
        assert_eq!(m.channels("eth1").unwrap().0.other, 1);
        // An explicitly set table forbids fewer queues than it names.
        let table = rss.table.clone();
        m.set_rss_table("eth1", Some(&table)).unwrap();
        let fewer = Channels { combined: 2, ..Channels::default() };
        assert_eq!(m.set_channels("eth1", fewer), Err(invalid()));
        m.set_rss_table("eth1", None).unwrap();
        m.set_channels("eth1", fewer).unwrap();
        assert!(!m.tree.exists("/proc/irq/122") && m.tree.names("/sys/class/net/eth1/queues").len() == 4);
        // Refused and ignored settings.
        assert_eq!(m.set_rss_function("eth1", "xor"), Err(Refusal::Unsupported));
        m.set_feature("eth1", "rx-gro", false).unwrap();
        assert!(m.features("eth1").unwrap()["rx-gro"].on);
    }

    #[test]
    fn a_card_that_is_written_down_is_the_same_card() {
        let m = recorded::read(MACHINE).unwrap();
        let text = described(&m, "eth1");
        let again = recorded::read(&format!("/sys/devices/system/cpu/online = 0-7\n{text}")).unwrap();
        assert_eq!(described(&again, "eth1"), text);
        assert_eq!(again.rss("eth1"), m.rss("eth1"));
        assert!(recorded::read("[card eth1]\nwheels 4\n").is_err());
    }
}
