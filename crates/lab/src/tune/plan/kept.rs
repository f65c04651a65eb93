//! Settings that outlive a restart. They are files of our own, never changes to other files, and are written once the
//! rest is confirmed.

use super::host::isolation_why;
use super::place::Placement;
use super::sources::{CGROUP, PARAMETERS, says};
use super::{Advice, Draft, Mode, Words};
use crate::tune::knob::Knob;
use crate::tune::list;

const SYSCTL: &str = "/etc/sysctl.d/60-margay-tune.conf";
const UNITS: &str = "/etc/systemd/system";
const UNIT: &str = "/etc/systemd/system/margay-tune.service";
const WANTS: &str = "/etc/systemd/system/multi-user.target.wants";
const WANTED: &str = "/etc/systemd/system/multi-user.target.wants/margay-tune.service";
const SLICE: &str = "/etc/systemd/system/margay.slice";
const DROP_IN_FOLDER: &str = "/etc/systemd/system/margay.service.d";
const DROP_IN: &str = "/etc/systemd/system/margay.service.d/60-margay-tune.conf";
const GRUB: &str = "60-margay-tune.cfg";
const ENGINE_FOLDER: &str = "/etc/margay";
const ENGINE: &str = "/etc/margay/tuned.yaml";
/// A machine with fewer CPUs is not partitioned.
const ENOUGH: usize = 8;
const HEAD: &str = "# Written by `margay tune`; `margay tune undo` removes it.\n";

/// Paths that discovery has to check, and those of folders.
pub(crate) const FILES: [&str; 7] =
    [SYSCTL, UNIT, WANTED, SLICE, DROP_IN, ENGINE, "/etc/default/grub.d/60-margay-tune.cfg"];
pub(crate) const FOLDERS: [&str; 5] = [UNITS, WANTS, DROP_IN_FOLDER, ENGINE_FOLDER, "/etc/sysctl.d"];

pub(super) fn steps(draft: &mut Draft<'_>, placement: &Placement) {
    if placement.ports.is_empty() {
        return;
    }
    let there = |draft: &Draft<'_>, folder: &str| draft.facts.own.contains_key(folder);
    isolation(draft, placement);
    if there(draft, "/etc/sysctl.d") {
        sysctl(draft);
    }
    if draft.facts.host.systemd && there(draft, UNITS) {
        unit(draft, placement);
    }
    if there(draft, ENGINE_FOLDER) {
        let words = Words {
            what: "the engine's settings",
            why: "threads, rings and memory as this plan computes them; `include: tuned.yaml` in the configuration takes them up".to_owned(),
            ..Words::default()
        };
        let text = draft.plan.engine.clone();
        let step = draft.step("machine.engine".to_owned(), words, vec![(Knob::Own(ENGINE.to_owned()), text)]);
        (step.restart, step.is, step.want) = (true, state(&step.is), "as `margay tune plan --engine` shows".to_owned());
    }
}

fn state(is: &str) -> String {
    if is == "not there" { is.to_owned() } else { "another text".to_owned() }
}

/// Kernel settings as a file in `sysctl.d`. The unit sets those of interfaces, because it runs when the interfaces
/// exist.
fn sysctl(draft: &mut Draft<'_>) {
    let mut lines: Vec<String> = Vec::new();
    for write in draft.plan.all.iter().flat_map(|step| &step.writes) {
        let Knob::File(path) = &write.knob else { continue };
        if let Some(name) = path.strip_prefix("/proc/sys/").filter(|name| !name.contains("/conf/")) {
            lines.push(format!("{} = {}", name.replace('/', "."), write.want));
        }
    }
    if lines.is_empty() {
        return;
    }
    let words = Words {
        what: "settings of the kernel at the next start",
        why: "a file of its own in sysctl.d".to_owned(),
        ..Words::default()
    };
    let text = format!("{HEAD}{}\n", lines.join("\n"));
    let step = draft.step("machine.sysctl-file".to_owned(), words, vec![(Knob::Own(SYSCTL.to_owned()), text)]);
    (step.is, step.want) = (state(&step.is), lines.join(", "));
}

/// The command line that makes the same plan at the next boot.
fn command(draft: &Draft<'_>, placement: &Placement) -> String {
    let goal = &draft.plan.goal;
    let mut words = vec![goal.program.clone(), "tune apply --boot --for".to_owned()];
    words.push(if goal.mode == Mode::Inline { "inline" } else { "passive" }.to_owned());
    // Pass the discovered values, because at boot links may not be up yet.
    words.push(format!("--rate {}bit", placement.ports.iter().map(|port| port.rate).sum::<u64>()));
    if !goal.leave.is_empty() {
        words.push(format!("--leave {}", list::show(&goal.leave)));
    }
    if let Some(workers) = goal.workers {
        words.push(format!("--workers {workers}"));
    }
    if let Some(memory) = goal.memory {
        words.push(format!("--memory {memory}"));
    }
    words.extend(goal.without.iter().map(|word| format!("--without {word}")));
    if goal.force {
        words.push("--force".to_owned());
    }
    words.extend(placement.ports.iter().flat_map(|port| port.interfaces.iter().cloned()));
    words.join(" ")
}

fn unit(draft: &mut Draft<'_>, placement: &Placement) {
    let interfaces = placement.ports.iter().flat_map(|port| &port.interfaces);
    // systemd escapes characters other than letters and digits as numbers.
    let escaped = |name: &String| {
        let part = |c: char| {
            if c.is_ascii_alphanumeric() || c == '_' || c == '.' {
                c.to_string()
            } else {
                format!("\\x{:02x}", c as u32)
            }
        };
        format!("sys-subsystem-net-devices-{}.device", name.chars().map(part).collect::<String>())
    };
    let devices: Vec<String> = interfaces.map(escaped).collect();
    let devices = devices.join(" ");
    let command = command(draft, placement);
    let text = format!(
        "{HEAD}[Unit]\nDescription=Card, interrupts and kernel as the sensor wants them\nWants={devices}\n\
         After={devices} network-pre.target irqbalance.service systemd-sysctl.service\nBefore=margay.service suricata.service\n\n\
         [Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart={command}\n\n[Install]\nWantedBy=multi-user.target\n"
    );
    let words = Words {
        what: "the same at the next start",
        why: "a unit of its own runs before the engine's; what drivers and files of /sys were told is forgotten at a restart".to_owned(),
        ..Words::default()
    };
    let mut settings = vec![(Knob::Own(UNIT.to_owned()), text)];
    if !draft.facts.own.contains_key(WANTS) {
        settings.push((Knob::OwnFolder(WANTS.to_owned()), "there".to_owned()));
    }
    settings.push((Knob::OwnLink(WANTED.to_owned()), "../margay-tune.service".to_owned()));
    let changed = |is: String| if is == "not there" { is } else { "another text".to_owned() };
    let step = draft.step("machine.unit".to_owned(), words, settings);
    (step.is, step.want) = (changed(step.is.clone()), command);
}

fn isolation(draft: &mut Draft<'_>, placement: &Placement) {
    let facts = draft.facts;
    let (why, mut sources) = isolation_why(placement);
    let workers = placement.workers();
    if workers.iter().all(|cpu| facts.topology.isolated.contains(cpu)) {
        draft.note(format!("CPUs {} are isolated already", list::show(&facts.topology.isolated)));
        return;
    }
    if facts.topology.cpus.len() < ENOUGH || facts.host.container.is_some() {
        let why = format!("{} CPUs are too few to keep some for workers alone", facts.topology.cpus.len());
        let why =
            if facts.host.container.is_some() { "in a container CPUs are the host's to give".to_owned() } else { why };
        draft.decline("isolcpus, or a partition of CPUs", super::sources::SINGLE_NODE.to_owned(), why);
        return;
    }
    let disagreement = Some(
        "the studies isolate CPUs by the boot line; the kernel's documentation calls that deprecated, since it cannot be changed without \
         a restart. Rule: a partition of CPUs where systemd and version 2 of control groups are there, else the boot line"
            .to_owned(),
    );
    let own = placement.own(facts, &draft.plan.goal.leave);
    let own = own.filter(|_| facts.host.systemd && facts.host.cgroup.partitions && facts.own.contains_key(UNITS));
    if let Some(own) = own {
        let cpus = list::show(&own);
        sources.push(says(CGROUP, "cpuset.cpus.partition"));
        let words = Words { what: "CPUs of the sensor alone", why, sources, disagreement, cuts: None };
        let slice = format!(
            "{HEAD}[Unit]\nDescription=CPUs of the sensor\n\n[Slice]\nAllowedCPUs={}\n",
            cpus.replace(',', " ")
        );
        let drop_in = format!(
            "{HEAD}[Service]\nSlice=margay.slice\n# The threads of the engine are put on their CPUs by itself.\n\
             ExecStartPre=-+/bin/sh -c 'echo root > /sys/fs/cgroup/margay.slice/cpuset.cpus.partition'\n"
        );
        let mut settings = vec![(Knob::Own(SLICE.to_owned()), slice)];
        settings.push((Knob::OwnFolder(DROP_IN_FOLDER.to_owned()), "there".to_owned()));
        settings.push((Knob::Own(DROP_IN.to_owned()), drop_in));
        let step = draft.step("machine.isolation".to_owned(), words, settings);
        let is = if step.changes() { "any program may run on them" } else { "a partition" };
        (step.restart, step.is, step.want) = (true, is.to_owned(), format!("a partition with CPUs {cpus}"));
        return;
    }
    let cpus = list::show(&workers);
    match &facts.host.boot_fragments {
        Some(folder) => {
            let words = Words { what: "CPUs of workers alone", why, sources, disagreement, cuts: None };
            let text = format!("{HEAD}GRUB_CMDLINE_LINUX_DEFAULT=\"$GRUB_CMDLINE_LINUX_DEFAULT isolcpus={cpus}\"\n");
            let knob = Knob::Own(format!("{folder}/{GRUB}"));
            let step = draft.step("machine.isolation".to_owned(), words, vec![(knob, text)]);
            let is = if step.changes() { "any program may run on them" } else { "in the boot line's fragment" };
            (step.reboot, step.is, step.want) = (true, is.to_owned(), format!("isolcpus={cpus}"));
            draft.plan.advice.push(Advice {
                what: "update-grub, then a restart, once the fragment of the boot line is there".to_owned(),
                why: "the boot loader's own file is made by its own tool".to_owned(),
                sources: vec![PARAMETERS.to_owned()],
            });
        }
        None => draft.plan.advice.push(Advice {
            what: format!("add isolcpus={cpus} to the boot line, by the tool of this system (`grubby --update-kernel=ALL --args=…`)"),
            why: format!("{why}; this system has no place for fragments of the boot line, and its own files are not changed here"),
            sources,
        }),
    }
}
