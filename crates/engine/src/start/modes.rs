//! The beginning of a run: what the log says first, and which modes go together.

use std::path::Path;

use margay_config::{Capture, Config, Level, RuleFiles, RunOptions};
use margay_output::{info, notice, warning};

use crate::exception::Policies;
use crate::profiling::Profiling;
use crate::settings::CONFIGURATION;
use crate::watching::Watching;
use crate::{Failed, info as about, notices, parallel, settings};

/// Logs the version, and what is to be said about the configuration.
pub(super) fn introduce(config: &Config, options: &RunOptions, dir: &Path) {
    notice!("suricata", "{} running in USER mode", about::version());
    for note in config.notes() {
        match note.level {
            Level::Warning => warning!("conf-yaml-loader", "{note}"),
            Level::Info => info!("conf-yaml-loader", "{note}"),
        }
    }
    tell_built_in(config, options, dir);
    notices::say(config, options);
}

/// Logs the settings of a run without a configuration.
pub(super) fn tell_built_in(config: &Config, options: &RunOptions, dir: &Path) {
    const OTHER: &str = "/etc/suricata/suricata.yaml";
    if !config.is_built_in() {
        return;
    }
    let other = if Path::new(OTHER).exists() { format!("; -c {OTHER} takes Suricata's") } else { String::new() };
    info!(
        "conf-yaml-loader",
        "no configuration (-c, {CONFIGURATION}): the built-in one holds, logs go to \"{}\"{other}",
        dir.display()
    );
    let rules = config.node("rule-files").is_some_and(|n| n.values().next().is_some());
    let wanted = !options.disable_detection && options.rules == RuleFiles::Configured && !rules;
    if wanted && !options.firewall && options.firewall_rules.is_none() {
        notice!("rules", "no rules are named: events are logged and nothing alerts; -S FILE loads rules");
    }
}

/// Prints the settings (`--dump-config`).
pub(super) fn dump(config: &Config) -> Result<(), Failed> {
    match config.dump(&mut std::io::stdout().lock()) {
        // A reader that closed the pipe is not an error.
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failed::new("suricata", format!("cannot print the settings: {e}")))
        }
        _ => Ok(()),
    }
}

/// Whether packets come from a queue of Netfilter.
pub(super) const fn is_queue(options: &RunOptions) -> bool {
    matches!(options.capture, Some(Capture::Nfqueue(_)))
}

/// Whether packets come from interfaces or queues, not from a file.
pub(super) const fn is_live(options: &RunOptions) -> bool {
    is_queue(options)
        || matches!(
            options.capture,
            Some(Capture::Interfaces(_) | Capture::AfPacket(_) | Capture::AfXdp(_) | Capture::Pcap(_))
        )
}

/// Rejects modes that do not fit the source of packets.
pub(super) fn check_modes(config: &Config, options: &RunOptions, live: bool, ips: bool) -> Result<(), Failed> {
    if !live && options.runmode.as_deref().or(config.get("runmode")) == Some("workers") {
        warning!(
            "runmodes",
            "the run mode \"workers\" is for interfaces: a capture file has one worker, and several with \"autofp\""
        );
    }
    if live && options.simulate_ips && !is_queue(options) && !crate::live::is_inline(config, options) {
        warning!("suricata", "--simulate-ips: events say what inline mode would drop, and nothing is dropped");
    }
    crate::live::check_answers(config, options)?;
    if !settings::is_firewall(config, options)? {
        return Ok(());
    }
    if !ips {
        return Err(Failed::new("firewall", "firewall mode drops packets: it needs an inline mode, or --simulate-ips"));
    }
    if options.disable_detection {
        return Err(Failed::new("firewall", "firewall mode needs detection: it cannot go with --disable-detection"));
    }
    Ok(())
}

/// The exception policies.
pub(super) fn policies(config: &Config, ips: bool, inline: bool) -> Result<Policies, Failed> {
    let midstream = settings::flag(config, "stream.midstream", false)?;
    let mut policies =
        Policies::from_config(config, ips, midstream).map_err(|e| Failed::new("exception-policy", e.to_string()))?;
    if inline {
        policies.spare_midstream(config);
        notice!("suricata", "running inline: packets are dropped where rules or policies say so");
    }
    Ok(policies)
}

/// The measurements of the run. `alone` says that one worker reads a capture file.
pub(super) fn watching(config: &Config, profiling: Option<&Profiling>, alone: bool) -> Result<Watching, Failed> {
    let costs = parallel::PacketCosts::is_wanted(config);
    if costs && (!alone || profiling.is_some()) {
        let why =
            "margay.packet-costs measures one worker on a capture file (-r, runmode single), and no rules beside it";
        return Err(Failed::new("profiling", why));
    }
    Ok(match profiling {
        Some(p) => Watching::Profile(p.every),
        None if costs => Watching::Packets,
        None => Watching::Nobody,
    })
}
