//! `margay lab tune`: what of card, interrupts, processors and kernel matters to a sensor, and what would be better.
//!
//! It reads (`look`) and says (`advice`); it changes nothing. What to change is told as commands, for whoever decides.

mod advice;
mod look;

use std::path::PathBuf;
use std::process::ExitCode;

use crate::problem::{Outcome, Problem};
use advice::Finding;
use look::Root;

/// Look at card, interrupts, cores and kernel, and say what to change for a sensor, and how; nothing is changed
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Interfaces that the sensor reads from; unless told those with hardware
    #[arg(value_name = "INTERFACE")]
    interfaces: Vec<String>,
    /// End with exit status 3 where something is to be changed
    #[arg(long)]
    check: bool,
    /// Only the commands, one on a line, for a shell
    #[arg(long, conflicts_with = "json")]
    commands: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// Where there is no such interface.
pub(crate) fn run(args: &Args) -> Outcome<ExitCode> {
    let root = Root(PathBuf::from("/"));
    let machine = root.machine();
    let mut findings = advice::of_machine(&machine);
    let names = if args.interfaces.is_empty() { root.interfaces() } else { args.interfaces.clone() };
    for name in names {
        let card = root.card(&name);
        let card =
            card.ok_or_else(|| Problem::Usage(format!("there is no interface '{name}' here; 'ip link' lists them")))?;
        findings.extend(advice::of_card(&card.asked(), &machine));
    }
    if args.json {
        println!("{:#}", json(&findings));
    } else if args.commands {
        for command in findings.iter().filter_map(|f| f.change.as_ref()).flat_map(|c| &c.commands) {
            println!("{command}");
        }
    } else {
        print!("{}", text(&findings));
    }
    let open = findings.iter().any(|f| f.change.is_some());
    Ok(if args.check && open { ExitCode::from(3) } else { ExitCode::SUCCESS })
}

fn json(findings: &[Finding]) -> serde_json::Value {
    let one = |f: &Finding| {
        let change = f.change.as_ref().map(|c| serde_json::json!({"why": c.why, "commands": c.commands}));
        serde_json::json!({"of": f.of, "what": f.what, "is": f.is, "change": change})
    };
    findings.iter().map(one).collect()
}

fn text(findings: &[Finding]) -> String {
    let mut out = String::new();
    let mut of = "";
    for f in findings {
        if f.of != of {
            out += &format!("{}\n", f.of);
            of = &f.of;
        }
        out += &format!("  {:22} {}\n", f.what, f.is);
        if let Some(c) = &f.change {
            out += &format!("  {:22} -> {}:\n", "", c.why);
            for command in &c.commands {
                out += &format!("  {:22}    {command}\n", "");
            }
        }
    }
    let open = findings.iter().filter(|f| f.change.is_some()).count();
    match open {
        0 => out += "nothing to change was found\n",
        n => out += &format!("{n} to change; nothing was changed\n"),
    }
    out
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use look::list;

    /// A folder that looks like a machine with one card.
    fn machine() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let net = "sys/class/net/eth0";
        for (path, text) in [
            ("sys/devices/system/cpu/online", "0-3\n"),
            ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n"),
            ("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave\n"),
            ("sys/devices/system/cpu/nohz_full", "(null)\n"),
            ("sys/devices/system/cpu/isolated", "2-3\n"),
            ("sys/devices/system/node/node0/cpulist", "0-3\n"),
            ("proc/net/softnet_stat", "000000ff 00000001 00000000 0\n00000001 00000001 00000002 0\n"),
            ("proc/sys/net/core/netdev_max_backlog", "1000\n"),
            ("proc/77/comm", "irqbalance\n"),
            ("proc/irq/40/smp_affinity_list", "0\n"),
            ("proc/irq/41/smp_affinity_list", "0\n"),
            (&format!("{net}/device/msi_irqs/40"), "msix\n"),
            (&format!("{net}/device/msi_irqs/41"), "msix\n"),
            (&format!("{net}/device/numa_node"), "-1\n"),
            (&format!("{net}/operstate"), "up\n"),
            (&format!("{net}/statistics/rx_missed_errors"), "12\n"),
            ("sys/class/net/lo/operstate", "unknown\n"),
            ("sys/class/net/v0/operstate", "up\n"),
        ] {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        std::os::unix::fs::symlink("../../bus/pci/drivers/ixgbe", dir.path().join(net).join("device/driver")).unwrap();
        dir
    }

    #[test]
    fn a_machine_is_read() {
        let dir = machine();
        let root = Root(dir.path().to_owned());
        let m = root.machine();
        assert_eq!((m.cores.clone(), m.softnet, m.backlog), (list("0-3"), [256, 2, 2], Some(1000)));
        assert_eq!(m.governors["powersave"], [0, 1]);
        assert!(m.irqbalance && m.tickless.is_empty() && m.isolated == "2-3" && m.nodes.len() == 1);
        assert_eq!(root.interfaces(), ["eth0"], "that with hardware");
        assert!(root.card("eth1").is_none() && root.card("../net/eth0").is_none());
        let card = root.card("eth0").unwrap();
        assert_eq!((card.driver.as_str(), card.node, card.missed, card.up), ("ixgbe", None, 12, true));
        assert_eq!(card.interrupts.len(), 2);
        let mut all = advice::of_machine(&m);
        all.extend(advice::of_card(&card, &m));
        let said = text(&all);
        for part in [
            "powersave on 0-1",
            "cpupower",
            "echo 1 > /proc/irq/41/smp_affinity_list",
            "3 to change; nothing was changed",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert_eq!(json(&all).as_array().unwrap().len(), all.len());
    }

    #[test]
    fn nothing_there_is_no_trouble() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root(dir.path().to_owned());
        assert!(root.interfaces().is_empty());
        assert!(text(&advice::of_machine(&root.machine())).contains("nothing to change"));
    }
}
