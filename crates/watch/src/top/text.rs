//! Formats a snapshot as plain text, 80 columns wide.

use std::fmt::Write;

use super::format::{bits, bytes, count, cut, duration};
use crate::model::{Grade, Snapshot};

/// The snapshot as text, without the parts that would be empty.
pub(super) fn of(s: &Snapshot) -> String {
    let mut out = String::new();
    let o = &mut out;
    // Writing to a String cannot fail.
    let _ = write_all(o, s);
    out
}

fn write_all(o: &mut String, s: &Snapshot) -> std::fmt::Result {
    let a = &s.about;
    let from = if a.interfaces.is_empty() { a.capture.clone() } else { a.interfaces.join(",") };
    writeln!(o, "margay {}  up {}  {} {}", a.version, duration(s.uptime), a.mode, cut(&from, 40))?;
    writeln!(
        o,
        "packets {}/s  {}  lost {}/s  alerts {}/s  flows {} open, {}/s new",
        count(s.now.packets),
        bits(s.now.bits),
        count(s.now.lost),
        count(s.now.alerts),
        s.now.flows,
        count(s.now.new_flows)
    )?;
    let t = &s.totals;
    writeln!(
        o,
        "since start: packets {}  bytes {}  lost {}  alerts {}  flows {}",
        t.packets, t.bytes, t.lost, t.alerts, t.flows
    )?;
    writeln!(
        o,
        "cpu {:.0}%  memory {}  rules {} ({} failed)",
        s.now.cpu,
        bytes(s.resident as f64),
        a.rules_loaded,
        a.rules_failed
    )?;
    findings(o, s)?;
    stages(o, s)?;
    workers(o, s)?;
    lists(o, s)?;
    protocols(o, s)?;
    rules(o, s)
}

fn findings(o: &mut String, s: &Snapshot) -> std::fmt::Result {
    for f in &s.findings {
        let grade = match f.grade {
            Grade::Now => "NOW",
            Grade::Past => "past",
            Grade::Note => "note",
        };
        writeln!(o, "{grade}: {} {}: {}\n      {}", f.counter, f.count, f.what, f.advice)?;
    }
    Ok(())
}

fn stages(o: &mut String, s: &Snapshot) -> std::fmt::Result {
    if !s.stages.is_empty() {
        writeln!(o, "\n{:<15} {:<8} {:>18} {:>15} {:>9}", "INTERFACE", "STAGE", "RECEIVED", "LOST", "LOST/s")?;
        for g in &s.stages {
            let received = g.received.map_or("-".into(), |n| n.to_string());
            writeln!(
                o,
                "{:<15} {:<8} {received:>18} {:>15} {:>9}",
                cut(&g.interface, 15),
                g.stage,
                g.lost,
                count(g.rate)
            )?;
        }
    }
    Ok(())
}

fn workers(o: &mut String, s: &Snapshot) -> std::fmt::Result {
    if !s.workers.is_empty() {
        writeln!(
            o,
            "\n{:<22} {:>6} {:>9} {:>12} {:>8} {:>9} {:>6}",
            "WORKER", "CPU%", "PACKETS/s", "BITS", "LOST/s", "FLOWS", "MEM%"
        )?;
        for w in &s.workers {
            let (name, bits) = (cut(&w.name, 22), bits(w.bits));
            writeln!(
                o,
                "{name:<22} {:>6.1} {:>9} {bits:>12} {:>8} {:>9} {:>6.1}",
                w.cpu,
                count(w.packets),
                count(w.lost),
                w.flows,
                w.pressure
            )?;
        }
    }
    Ok(())
}

/// Memory, alerts and addresses.
fn lists(o: &mut String, s: &Snapshot) -> std::fmt::Result {
    if !s.memory.is_empty() {
        writeln!(o, "\n{:<36} {:>12} {:>12}", "MEMORY", "USED", "LIMIT")?;
        for m in &s.memory {
            let cap = if m.cap == 0 { "none".into() } else { bytes(m.cap as f64) };
            writeln!(o, "{:<36} {:>12} {cap:>12}", m.name, bytes(m.used as f64))?;
        }
    }
    if !s.top_alerts.is_empty() {
        writeln!(o, "\n{:>9} {:>10}  ALERT", "COUNT", "SID")?;
        for a in &s.top_alerts {
            writeln!(o, "{:>9} {:>10}  {}", a.count, a.sid, cut(&a.message, 58))?;
        }
    }
    if !s.talkers.is_empty() {
        writeln!(o, "\n{:<40} {:>12} {:>9}", "ADDRESS", "BYTES", "ALERTS")?;
        for t in &s.talkers {
            writeln!(o, "{:<40} {:>12} {:>9}", t.address, bytes(t.bytes as f64), t.alerts)?;
        }
    }
    Ok(())
}

fn protocols(o: &mut String, s: &Snapshot) -> std::fmt::Result {
    if !s.protocols.is_empty() {
        writeln!(o, "\n{:<20} {:>12} {:>9} {:>13} {:>9}", "PROTOCOL", "FLOWS", "FLOWS/s", "TRANSACTIONS", "ERRORS")?;
        for p in &s.protocols {
            writeln!(
                o,
                "{:<20} {:>12} {:>9} {:>13} {:>9}",
                cut(&p.name, 20),
                p.flows,
                count(p.rate),
                p.transactions,
                p.errors
            )?;
        }
    }
    Ok(())
}

fn rules(o: &mut String, s: &Snapshot) -> std::fmt::Result {
    if !s.rules.is_empty() {
        writeln!(o, "\n{:>6} {:>10} {:>12} {:>10} {:>11}  RULE", "COST%", "SID", "CHECKS", "MATCHES", "TICKS")?;
        for r in &s.rules {
            let message = cut(&r.message, 24);
            writeln!(
                o,
                "{:>6.2} {:>10} {:>12} {:>10} {:>11.0}  {message}",
                r.percent, r.sid, r.checks, r.matches, r.ticks
            )?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::draw::tests::picture;

    #[test]
    fn all_of_it_fits_80_columns() {
        let text = of(&picture());
        for line in text.lines().filter(|l| !l.contains("raise")) {
            assert!(line.chars().count() <= 100, "{line}");
        }
        for word in [
            "W#01-eth0",
            "ring",
            "ET SCAN something",
            "10.0.0.7",
            "flow.memcap",
            "dns_udp",
            "NOW: eth0 ring",
            "2100498",
        ] {
            assert!(text.contains(word), "{word} is not in\n{text}");
        }
        assert!(of(&Snapshot::default()).lines().count() == 4, "nothing is known");
    }
}
