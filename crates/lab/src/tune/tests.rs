//! Whatever a card does, and whenever power fails: the machine is as it was, or as planned.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::time::Duration;

use proptest::prelude::*;

use super::apply::{Stopped, apply, confirm};
use super::card::made_up::{MadeUp, described};
use super::card::{Answer, Cards, Channels, Refusal, Ring};
use super::discover::{Options, discover};
use super::facts::Facts;
use super::journal::{Begin, Journal, Memory, Store};
use super::knob::{Knob, Machine, Value};
use super::plan::{Goal, Plan, plan};
use super::tree::Tree;
use super::{recorded, undo};

const BOOT: &str = "boot";

fn begin() -> Begin {
    Begin { version: 1, boot: BOOT.into(), limit: Some(60), ..Begin::default() }
}

fn at() -> f64 {
    1.0
}

/// Makes the power fail after a number of moments.
#[derive(Clone, Default)]
struct Fuse(Rc<Cell<Option<usize>>>);

struct PowerGone;

impl Fuse {
    fn after(moments: usize) -> Fuse {
        Fuse(Rc::new(Cell::new(Some(moments))))
    }

    fn is_last(&self) -> bool {
        self.0.get() == Some(0)
    }

    fn burn(&self) {
        match self.0.get() {
            // Unwind silently, because it is not a test failure.
            Some(0) => resume_unwind(Box::new(PowerGone)),
            Some(n) => self.0.set(Some(n - 1)),
            None => {}
        }
    }
}

/// A machine whose power may fail before and after each write.
struct Powered<'a>(&'a MadeUp, Fuse);

impl Machine for Powered<'_> {
    fn tree(&self) -> &dyn Tree {
        self.0.tree()
    }
    fn cards(&self) -> &dyn Cards {
        self.0.cards()
    }
    fn service(&self, name: &str) -> Answer<String> {
        self.0.service(name)
    }
    fn set_service(&self, name: &str, state: &str) -> Answer<()> {
        self.0.set_service(name, state)
    }
    fn wait(&self, time: Duration) {
        self.0.wait(time);
    }
    fn write(&self, knob: &Knob, value: &Value) -> Answer<()> {
        self.1.burn();
        let result = self.0.write(knob, value);
        self.1.burn();
        result
    }
}

/// A disk whose power may fail before, within and after a line.
#[derive(Clone, Default)]
struct Disk(Rc<std::cell::RefCell<Memory>>, Fuse);

impl Store for Disk {
    fn read(&mut self) -> std::io::Result<Vec<u8>> {
        self.0.borrow_mut().read()
    }
    fn append(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.1.burn();
        if self.1.is_last() {
            self.0.borrow_mut().append(&bytes[..bytes.len() * 2 / 3])?;
        }
        self.1.burn();
        self.0.borrow_mut().append(bytes)?;
        self.1.burn();
        Ok(())
    }
    fn cut(&mut self, length: u64) -> std::io::Result<()> {
        self.0.borrow_mut().cut(length)
    }
}

/// Runs a function to its end; `None` if the power fails.
fn until_power_goes<T>(run: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => Some(result),
        Err(payload) if payload.is::<PowerGone>() => None,
        Err(payload) => resume_unwind(payload),
    }
}

/// The visible state of a machine, after its links have settled.
fn seen(machine: &MadeUp) -> BTreeMap<String, String> {
    (0..20).for_each(|_| machine.look());
    let mut out = machine.tree.all();
    // Restarted services have another process identifier.
    let process = |path: &String| {
        let number = path.strip_prefix("/proc/").and_then(|rest| rest.split('/').next());
        number.is_some_and(|number| number.bytes().all(|b| b.is_ascii_digit()))
    };
    out.retain(|path, _| !process(path));
    out.insert("irqbalance".into(), machine.service("irqbalance").unwrap());
    for name in machine.cards.borrow().keys().cloned().collect::<Vec<_>>() {
        out.insert(format!("card {name}"), described(machine, &name));
    }
    out
}

/// The same without keys: no plan controls the keys that drivers draw.
fn without_keys(seen: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let text = |text: &String| {
        let Some((before, rest)) = text.split_once(" key ") else { return text.clone() };
        let (_, after) = rest.split_once(' ').unwrap_or((rest, ""));
        format!("{before} {after}")
    };
    seen.iter().map(|(name, value)| (name.clone(), text(value))).collect()
}

fn difference(a: &BTreeMap<String, String>, b: &BTreeMap<String, String>) -> Vec<String> {
    let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let differing = keys.into_iter().filter(|key| a.get(*key) != b.get(*key));
    differing.map(|key| format!("{key}: {:?} became {:?}", a.get(key), b.get(key))).collect()
}

fn facts(machine: &MadeUp, journal: &[u8]) -> Facts {
    let mut facts = discover(machine, &machine.tree, &Options::default());
    facts.rounded = Journal::open(Memory(journal.to_vec())).unwrap().rounded(BOOT);
    facts
}

fn planned(machine: &MadeUp, goal: &Goal, disk: &Disk) -> Plan {
    plan(&facts(machine, &disk.0.borrow().0), goal)
}

/// Applies a plan while the power fails at some moment; `None` if it failed.
fn applied(machine: &MadeUp, plan: &Plan, disk: &Disk, fuse: Fuse) -> Option<Result<(), Stopped>> {
    let powered = Powered(machine, fuse.clone());
    until_power_goes(|| {
        let mut journal = Journal::open(Disk(disk.0.clone(), fuse)).unwrap();
        apply(&powered, &mut journal, plan, begin(), &at).map(|_| ())
    })
}

/// Restores unfinished changes after a crash, as the watchdog or the next command does.
fn recovered(machine: &MadeUp, disk: &Disk, fuse: Fuse) -> bool {
    let powered = Powered(machine, fuse.clone());
    until_power_goes(|| {
        let mut journal = Journal::open(Disk(disk.0.clone(), fuse)).unwrap();
        undo::recover(&powered, &mut journal, BOOT, "power").unwrap();
    })
    .is_some()
}

fn undone(machine: &MadeUp, disk: &Disk, fuse: Fuse) -> Option<undo::Report> {
    let powered = Powered(machine, fuse.clone());
    until_power_goes(|| {
        let mut journal = Journal::open(Disk(disk.0.clone(), fuse)).unwrap();
        undo::undo(&powered, &mut journal, BOOT).unwrap()
    })
}

/// A machine of 4 CPUs with one card, whose behaviour, state and abilities are random.
#[derive(Clone, Debug)]
struct Drawn {
    text: String,
    goal: Goal,
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let card = (
        (1u32..=8, 1u32..=8, 0u32..=4, any::<bool>(), 0usize..4),
        (prop::sample::select(vec![0u32, 1, 2, 8, 32]), prop::sample::select(vec![0u32, 1, 2, 3, 5])),
        prop::collection::vec(any::<bool>(), 16),
        (
            prop::sample::select(vec![64u32, 100, 256, 512, 1000, 4096]),
            0u32..200,
            prop::sample::select(vec!["i40e", "ice", "virtio_net", "odd"]),
        ),
        prop::sample::subsequence(
            vec![
                "rss-key",
                "rss-function",
                "rss-transform",
                "rss-table",
                "pause",
                "coalesce",
                "ring",
                "channels",
                "hash sctp4",
                "rx-gro",
                "flags",
            ],
            0..=2,
        ),
    );
    card.prop_map(|((now, most, away, inline, queue_cpu), (ring_multiple, usecs_multiple), has, (ring, usecs, driver), refuses)| {
        let now = now.min(most);
        // A ring is always a multiple of the rounding unit.
        let multiple = |n: u32, of: u32| n - n.checked_rem(of).unwrap_or(0);
        let ring = multiple(ring, ring_multiple).max(ring_multiple).max(1);
        let usecs = multiple(usecs, usecs_multiple);
        let names: &[&str] = if inline { &["e1", "e2"] } else { &["e1"] };
        let mut text = "/sys/devices/system/cpu/online = 0-3
/sys/devices/system/cpu/cpu{0-3}/topology/thread_siblings_list = {n}
/sys/devices/system/cpu/cpu{0-3}/cpufreq/scaling_governor = powersave
/sys/devices/system/cpu/cpu{0-3}/cpuidle/state{0-1}/disable = 0
/sys/devices/system/cpu/cpu{0-3}/cpuidle/state0/latency = 2
/sys/devices/system/cpu/cpu{0-3}/cpuidle/state1/latency = 200
/proc/sys/kernel/osrelease = 6.9.0
/proc/sys/net/core/netdev_max_backlog = 1000
/proc/sys/net/core/netdev_budget = 300
/proc/sys/net/core/netdev_budget_usecs = 2000
/proc/sys/vm/swappiness = 60
/proc/meminfo <<
  MemTotal: 8000000 kB
  SwapTotal: 1000 kB
/proc/net/softnet_stat = 00010000 00000001 00001000
/proc/77/comm = irqbalance
/proc/77/cmdline = /usr/sbin/irqbalance --foreground
/run/systemd/system/
/etc/sysctl.d/
/etc/systemd/system/
/etc/margay/
/etc/default/grub.d/
"
        .to_owned();
        for (at, name) in names.iter().enumerate() {
            text += &format!("/sys/class/net/{name}/operstate = up\n/sys/class/net/{name}/device/numa_node = 0\n/proc/sys/net/ipv6/conf/{name}/disable_ipv6 = 0\n");
            text += &format!("[card {name}]\ndriver {driver}\nchannels combined {now} other 1\nmost-channels combined {most} other 1\nflags up\n");
            text += &format!("irqs first {} name {{card}}-TxRx-{{queue}}\n", 100 + 20 * at);
            let mut line = |has: bool, line: String| if has { text += &format!("{line}\n") };
            line(has[0], format!("ring rx {ring} tx 256\nmost-ring rx 4096 tx 4096"));
            line(has[1], format!("coalesce adaptive-rx on adaptive-tx off rx-usecs {usecs} rx-frames 7"));
            line(has[2], "pause autoneg off rx on tx on".into());
            line(has[3], "feature rx-gro on".into());
            line(has[4], "feature rx-lro on".into());
            line(has[5], "feature rx-ntuple-filter off".into());
            line(has[6], "rss function toeplitz key 11:22:33:44:55:66 table 32".into());
            line(has[7], "hash tcp4 sdfn\nhash udp4 sd\nhash sctp4 sd\nhash ah4 sd".into());
            line(has[8], "habit keeps-key".into());
            line(has[9], "habit ring-resets-coalesce".into());
            line(has[10] && has[11], "habit ignores rx-gro".into());
            line(true, format!("habit ring-multiple {ring_multiple}\nhabit usecs-multiple {usecs_multiple}\nhabit link-away {away}"));
            refuses.iter().for_each(|word| line(true, format!("habit refuses {word}")));
            // Interrupts with an affinity set by the operator.
            text += &format!("/proc/irq/{}/smp_affinity_list = {queue_cpu}\n", 100 + 20 * at);
        }
        let goal = Goal {
            mode: if inline { super::plan::Mode::Inline } else { super::plan::Mode::Passive },
            interfaces: names.iter().map(|name| (*name).to_owned()).collect(),
            keep: has[12],
            program: "/usr/bin/margay".into(),
            ..Goal::default()
        };
        Drawn { text, goal }
    })
}

/// Values that no program can restore, because the card forgets them by itself and does not accept writes.
fn lost(text: &str, difference: &[String]) -> bool {
    let forgets = !text.contains("habit keeps-key");
    let refuses = ["rss-key", "rss-transform", "hash", "coalesce"]
        .iter()
        .any(|word| text.contains(&format!("habit refuses {word}")));
    forgets && refuses && difference.iter().all(|line| line.starts_with("card "))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn undo_after_apply_is_the_identity(drawn in drawn()) {
        let machine = recorded::read(&drawn.text).unwrap();
        let before = seen(&machine);
        let disk = Disk::default();
        let plan = planned(&machine, &drawn.goal, &disk);
        match applied(&machine, &plan, &disk, Fuse::default()).unwrap() {
            Ok(()) => {
                // Applying twice changes nothing more.
                let again = planned(&machine, &drawn.goal, &disk);
                let open: Vec<&str> = again.steps().filter(|step| !step.kept).map(|step| step.id.as_str()).collect();
                prop_assert_eq!(open, Vec::<&str>::new());
                let mut journal = Journal::open(disk.clone()).unwrap();
                confirm(&machine, &mut journal, "test", begin(), &at).unwrap();
                prop_assert_eq!(planned(&machine, &drawn.goal, &disk).steps().count(), 0);
                undone(&machine, &disk, Fuse::default()).unwrap();
            }
            // The changes were restored at once.
            Err(Stopped::At { .. }) => {}
            Err(other) => panic!("{other:?}"),
        }
        let differs = difference(&before, &seen(&machine));
        prop_assert!(differs.is_empty() || lost(&drawn.text, &differs), "{differs:#?}");
    }

    #[test]
    fn a_crash_leaves_the_machine_as_it_was_or_as_planned(drawn in drawn(), moment in 0usize..260, again in 0usize..120) {
        let machine = recorded::read(&drawn.text).unwrap();
        let before = seen(&machine);
        // As planned, compared with a twin of the machine whose power does not fail.
        let twin = recorded::read(&drawn.text).unwrap();
        let twins = Disk::default();
        let whole = applied(&twin, &planned(&twin, &drawn.goal, &twins), &twins, Fuse::default()).unwrap().is_ok();
        let after = seen(&twin);
        let disk = Disk::default();
        let plan = planned(&machine, &drawn.goal, &disk);
        let ended = applied(&machine, &plan, &disk, Fuse::after(moment)).is_some();
        // The power may fail again while values are restored, and once more.
        let given = recovered(&machine, &disk, Fuse::after(again));
        if !given {
            recovered(&machine, &disk, Fuse::after(again / 2));
            recovered(&machine, &disk, Fuse::default());
        }
        let now = seen(&machine);
        let journal = Journal::open(disk.clone()).unwrap();
        let waits = journal.sections.last().is_some_and(|section| section.waits());
        let (differs, what) = match waits && whole {
            true => (difference(&without_keys(&after), &without_keys(&now)), "planned"),
            false => (difference(&before, &now), "it was"),
        };
        prop_assert!(differs.is_empty() || lost(&drawn.text, &differs), "not as {what} (ended {ended}): {differs:#?}");
    }

    #[test]
    fn a_crash_in_undo_leaves_nothing_between(drawn in drawn(), moment in 0usize..200) {
        let machine = recorded::read(&drawn.text).unwrap();
        let before = seen(&machine);
        let disk = Disk::default();
        let plan = planned(&machine, &drawn.goal, &disk);
        if applied(&machine, &plan, &disk, Fuse::default()).unwrap().is_ok() {
            let mut journal = Journal::open(disk.clone()).unwrap();
            let _ = confirm(&machine, &mut journal, "test", begin(), &at);
            undone(&machine, &disk, Fuse::after(moment));
            undone(&machine, &disk, Fuse::default()).unwrap();
            let differs = difference(&before, &seen(&machine));
            prop_assert!(differs.is_empty() || lost(&drawn.text, &differs), "{differs:#?}");
        }
    }

    #[test]
    fn what_somebody_changed_since_stays(drawn in drawn(), which in 0usize..4) {
        let machine = recorded::read(&drawn.text).unwrap();
        let before = seen(&machine);
        let disk = Disk::default();
        let plan = planned(&machine, &drawn.goal, &disk);
        if applied(&machine, &plan, &disk, Fuse::default()).unwrap().is_err() {
            return Ok(());
        }
        // One of the operator's own settings.
        let knob = [
            Knob::File("/proc/sys/vm/swappiness".into()),
            Knob::Irq("e1".into(), 0),
            Knob::Arp("e1".into()),
            Knob::Rps("e1".into(), 0),
        ][which].clone();
        let other = ["33", "0-3", "on", "0-1"][which];
        if machine.read(&knob).is_err() || machine.write(&knob, &Some(other.into())).is_err() {
            return Ok(());
        }
        let changed_by_plan = plan.steps().flat_map(|step| &step.writes).any(|write| write.knob == knob && write.changes());
        let written = plan.all.iter().flat_map(|step| &step.writes).find(|write| write.knob == knob).map(|write| write.want.clone());
        let report = undone(&machine, &disk, Fuse::default()).unwrap();
        let now = machine.read(&knob).unwrap();
        let original = recorded::read(&drawn.text).unwrap().read(&knob).unwrap();
        if written.as_deref() != Some(other) && original.as_deref() != Some(other) {
            prop_assert_eq!(now.as_deref(), Some(other), "{}", knob);
            let told = report.foreign.iter().any(|left| left.setting == knob.to_string());
            prop_assert_eq!(told, changed_by_plan, "{}: {:?}", knob, report.foreign);
        }
        // Everything else is as before.
        machine.write(&knob, &original).unwrap();
        let differs = difference(&before, &seen(&machine));
        prop_assert!(differs.is_empty() || lost(&drawn.text, &differs), "{differs:#?}");
    }
}

/// Crashes recorded machines at the moments of a write: small machines at every one.
#[test]
fn recorded_machines_survive_a_crash_at_every_step() {
    for (name, machine, goal) in super::plan::machines() {
        let before = seen(&machine);
        let disk = Disk::default();
        let plan = planned(&machine, &goal, &disk);
        // Count the moments.
        let counter = Fuse::after(usize::MAX);
        applied(&machine, &plan, &disk, counter.clone()).unwrap().unwrap();
        let moments = usize::MAX - counter.0.get().unwrap();
        assert!(moments > 60, "{name}: {moments}");
        let after = seen(&machine);
        assert_eq!(planned(&machine, &goal, &disk).steps().filter(|step| !step.kept).count(), 0, "{name}: twice");
        undone(&machine, &disk, Fuse::default()).unwrap();
        assert_eq!(difference(&before, &seen(&machine)), Vec::<String>::new(), "{name}");
        // Each moment applies and undoes the whole plan, which takes a minute for those of the largest machine. Large ones
        // are tested at some of them, including the first and last.
        let step = if moments <= 400 { 1 } else { moments / 40 };
        for moment in (0..moments).step_by(step).chain(moments.saturating_sub(4)..moments) {
            let disk = Disk::default();
            assert!(applied(&machine, &plan, &disk, Fuse::after(moment)).is_none(), "{name}: {moment}");
            recovered(&machine, &disk, Fuse::default());
            let waits = Journal::open(disk.clone()).unwrap().sections.last().is_some_and(|section| section.waits());
            let now = seen(&machine);
            let differs = match waits {
                true => difference(&without_keys(&after), &without_keys(&now)),
                false => difference(&before, &now),
            };
            assert_eq!(differs, Vec::<String>::new(), "{name}: moment {moment} of {moments}");
            if waits {
                undone(&machine, &disk, Fuse::default()).unwrap();
                assert_eq!(difference(&before, &seen(&machine)), Vec::<String>::new(), "{name}");
            }
        }
    }
}

/// A small machine with one card, as text for tests to change.
const CARD: &str = "/sys/devices/system/cpu/online = 0-3
/sys/class/net/e1/operstate = up
/sys/class/net/e1/device/numa_node = 0
/proc/sys/vm/swappiness = 60
[card e1]
driver i40e
channels combined 4
most-channels combined 4
ring rx 512 tx 512
most-ring rx 4096 tx 4096
pause autoneg off rx on tx on
feature rx-gro on
rss function toeplitz key 11:22:33:44 table 16
flags up
irqs first 100 name {card}-TxRx-{queue}
";

fn small(more: &str) -> (MadeUp, Disk, Goal) {
    let goal = Goal { interfaces: vec!["e1".into()], ..Goal::default() };
    (recorded::read(&format!("{CARD}{more}")).unwrap(), Disk::default(), goal)
}

#[test]
fn the_first_refusal_stops_and_gives_back() {
    let (machine, disk, goal) = small("habit refuses rss-key\nhabit keeps-key\n");
    let before = seen(&machine);
    let stopped = applied(&machine, &planned(&machine, &goal, &disk), &disk, Fuse::default()).unwrap().unwrap_err();
    let Stopped::At { step, why, report } = stopped else { panic!("{stopped:?}") };
    assert_eq!(step, "e1.hash");
    assert!(why.starts_with("ethtool -X e1 hkey 6d:5a:6d:5a was refused: the driver does not support it"), "{why}");
    assert!(report.given_back.contains(&"channels e1".to_owned()) && report.failed.is_empty(), "{report:?}");
    assert_eq!(difference(&before, &seen(&machine)), Vec::<String>::new());
    // Without that step it works.
    let goal = Goal { without: vec!["hash".into()], ..goal };
    applied(&machine, &planned(&machine, &goal, &disk), &disk, Fuse::default()).unwrap().unwrap();
}

#[test]
fn yes_is_not_believed() {
    let (machine, disk, goal) = small("habit ignores rx-gro\n");
    let stopped = applied(&machine, &planned(&machine, &goal, &disk), &disk, Fuse::default()).unwrap().unwrap_err();
    let Stopped::At { step, why, .. } = stopped else { panic!("{stopped:?}") };
    assert_eq!((step.as_str(), why.as_str()), ("e1.merging", "ethtool -K e1 rx-gro off was accepted, and it is on"));
}

#[test]
fn a_link_that_stays_away_is_a_failure() {
    let (machine, disk, goal) = small("habit link-away 100000\n");
    let stopped = applied(&machine, &planned(&machine, &goal, &disk), &disk, Fuse::default()).unwrap().unwrap_err();
    let Stopped::At { why, .. } = stopped else { panic!("{stopped:?}") };
    assert!(why.contains("the link of e1 did not come back"), "{why}");
    assert_eq!(machine.channels("e1").unwrap().0, Channels { combined: 4, ..Channels::default() });
}

#[test]
fn what_drivers_round_is_taken_and_remembered() {
    let (machine, disk, goal) = small("habit ring-multiple 96\n");
    applied(&machine, &planned(&machine, &goal, &disk), &disk, Fuse::default()).unwrap().unwrap();
    // With three queues the cache size is unknown, so 1024 is wanted.
    assert_eq!(machine.ring("e1").unwrap().0, Ring { rx: 1056, tx: 576 });
    let rounded = &facts(&machine, &disk.0.borrow().0).rounded;
    assert_eq!(rounded["ring e1"].wanted, "rx 1024 tx 512");
    assert_eq!(planned(&machine, &goal, &disk).steps().count(), 0, "a second time there is nothing to do");
}

#[test]
fn another_goal_is_a_section_of_its_own() {
    let (machine, disk, goal) = small("");
    let before = seen(&machine);
    applied(&machine, &planned(&machine, &goal, &disk), &disk, Fuse::default()).unwrap().unwrap();
    let first = seen(&machine);
    let mut journal = Journal::open(disk.clone()).unwrap();
    confirm(&machine, &mut journal, "test", begin(), &at).unwrap();
    let other = Goal { workers: Some(2), ..goal };
    applied(&machine, &planned(&machine, &other, &disk), &disk, Fuse::default()).unwrap().unwrap();
    assert_eq!(machine.channels("e1").unwrap().0.combined, 2);
    // Without a confirmation, the earlier section is in effect again.
    let mut journal = Journal::open(disk.clone()).unwrap();
    undo::give_back(&machine, &mut journal, &[1], "watchdog").unwrap();
    assert_eq!(difference(&first, &seen(&machine)), Vec::<String>::new());
    assert!(confirm(&machine, &mut journal, "test", begin(), &at).is_err(), "there is nothing to confirm");
    undone(&machine, &disk, Fuse::default()).unwrap();
    assert_eq!(difference(&before, &seen(&machine)), Vec::<String>::new());
}

#[test]
fn a_restart_gives_back_by_itself_but_not_files() {
    let text = "/etc/sysctl.d/\n/etc/margay/\n/proc/meminfo = SwapTotal: 10 kB\n";
    let (machine, disk, goal) = small(text);
    let goal = Goal { keep: true, ..goal };
    applied(&machine, &planned(&machine, &goal, &disk), &disk, Fuse::default()).unwrap().unwrap();
    assert!(!machine.tree.exists("/etc/sysctl.d/60-margay-tune.conf"), "files wait");
    let mut journal = Journal::open(disk.clone()).unwrap();
    confirm(&machine, &mut journal, "test", begin(), &at).unwrap();
    assert!(machine.tree.text("/etc/sysctl.d/60-margay-tune.conf").unwrap().contains("vm.swappiness = 5"));
    let mut journal = Journal::open(disk).unwrap();
    let report = undo::undo(&machine, &mut journal, "another boot").unwrap();
    assert!(report.by_restart > 3 && report.failed.is_empty() && report.foreign.is_empty(), "{report:?}");
    assert!(report.given_back.iter().all(|name| name.starts_with("own ")), "{report:?}");
    assert!(!machine.tree.exists("/etc/sysctl.d/60-margay-tune.conf") && machine.tree.exists("/etc/sysctl.d"));
}

#[test]
fn a_file_of_ours_that_somebody_changed_stays() {
    let (machine, disk, goal) = small("/etc/margay/\n");
    let goal = Goal { keep: true, ..goal };
    applied(&machine, &planned(&machine, &goal, &disk), &disk, Fuse::default()).unwrap().unwrap();
    let mut journal = Journal::open(disk.clone()).unwrap();
    confirm(&machine, &mut journal, "test", begin(), &at).unwrap();
    machine.tree.set("/etc/margay/tuned.yaml", "mine\n");
    let report = undone(&machine, &disk, Fuse::default()).unwrap();
    assert_eq!(report.foreign.len(), 1);
    assert_eq!(machine.tree.text("/etc/margay/tuned.yaml").as_deref(), Some("mine"));
}

#[test]
fn without_rights_nothing_is_begun() {
    let (machine, disk, goal) = small("/proc/self/status = CapEff:\t0000000000000000\n");
    let stopped = applied(&machine, &planned(&machine, &goal, &disk), &disk, Fuse::default()).unwrap().unwrap_err();
    let Stopped::Before(problem) = stopped else { panic!("{stopped:?}") };
    assert!(problem.to_string().contains("it needs root (CAP_NET_ADMIN)"), "{problem}");
    assert!(disk.0.borrow().0.is_empty());
}

#[test]
fn a_full_disk_stops_before_anything_is_written() {
    struct Full;
    impl Store for Full {
        fn read(&mut self) -> std::io::Result<Vec<u8>> {
            Ok(Vec::new())
        }
        fn append(&mut self, _: &[u8]) -> std::io::Result<()> {
            Err(std::io::Error::from_raw_os_error(libc::ENOSPC))
        }
        fn cut(&mut self, _: u64) -> std::io::Result<()> {
            Ok(())
        }
    }
    let (machine, disk, goal) = small("");
    let before = seen(&machine);
    let plan = planned(&machine, &goal, &disk);
    let mut journal = Journal::open(Full).unwrap();
    let Err(Stopped::Before(problem)) = apply(&machine, &mut journal, &plan, begin(), &at) else { panic!() };
    assert!(problem.to_string().contains("No space left"), "{problem}");
    assert_eq!(difference(&before, &seen(&machine)), Vec::<String>::new());
}

/// A disk that is full after a number of bytes.
struct Filling(Memory, usize);

impl Store for Filling {
    fn read(&mut self) -> std::io::Result<Vec<u8>> {
        self.0.read()
    }
    fn append(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match self.1.checked_sub(1) {
            Some(left) => {
                self.1 = left;
                self.0.append(bytes)
            }
            None => Err(std::io::Error::from_raw_os_error(libc::ENOSPC)),
        }
    }
    fn cut(&mut self, length: u64) -> std::io::Result<()> {
        self.0.cut(length)
    }
}

#[test]
fn a_disk_that_fills_up_leaves_the_machine_as_it_was() {
    for lines in 0.. {
        let (machine, disk, goal) = small("/etc/margay/\n");
        let before = seen(&machine);
        let plan = planned(&machine, &goal, &disk);
        let mut journal = Journal::open(Filling(Memory::default(), lines)).unwrap();
        match apply(&machine, &mut journal, &plan, begin(), &at) {
            Ok(_) => {
                assert!(lines > 20, "{lines}");
                break;
            }
            Err(Stopped::Before(_)) => assert!(lines < 2, "{lines}"),
            Err(Stopped::At { report, .. }) => {
                assert!(report.unwritten.is_some() && report.failed.is_empty(), "{report:?}")
            }
        }
        assert_eq!(difference(&before, &seen(&machine)), Vec::<String>::new(), "{lines} lines");
    }
}

#[test]
fn a_driver_that_is_gone_is_told() {
    let (machine, disk, goal) = small("");
    applied(&machine, &planned(&machine, &goal, &disk), &disk, Fuse::default()).unwrap().unwrap();
    machine.cards.borrow_mut().clear();
    machine.tree.remove("/sys/class/net/e1");
    let report = undone(&machine, &disk, Fuse::default()).unwrap();
    assert!(report.foreign.iter().any(|left| left.setting == "channels e1" && left.is.is_none()), "{report:?}");
    assert_eq!(machine.channels("e1"), Err(Refusal::Missing));
}
