//! The text report.

use std::fmt::Write as _;

use margay_detect::explain::{Excerpt, Line, LineCame, LookReport, PacketRef, ReasonKind};
use margay_flow::Direction;
use margay_json::time::Clock;

use super::Explained;

/// Limit of the reasons shown.
const REASONS: usize = 12;

/// `TCP`, or the number.
fn transport(proto: u8) -> String {
    match proto {
        0 => "no IP".into(),
        1 => "ICMP".into(),
        6 => "TCP".into(),
        17 => "UDP".into(),
        58 => "ICMPv6".into(),
        132 => "SCTP".into(),
        n => format!("IP protocol {n}"),
    }
}

/// Describes a packet in one line.
fn packet(p: &PacketRef, clock: &mut Clock) -> String {
    let mut time = Vec::new();
    clock.iso(&mut time, p.time);
    let end = |a: std::net::IpAddr, port: u16| match (a, port) {
        (a, 0) => a.to_string(),
        (std::net::IpAddr::V6(a), port) => format!("[{a}]:{port}"),
        (a, port) => format!("{a}:{port}"),
    };
    let mut out = match p.made_up {
        true => format!("end of a stream (after packet {})", p.number),
        false => format!("packet {}", p.number),
    };
    let _ = write!(
        out,
        ", {}, {} {} -> {}",
        String::from_utf8_lossy(&time),
        transport(p.proto),
        end(p.src, p.sport),
        end(p.dst, p.dport)
    );
    match (p.flow, p.dir) {
        (Some(flow), Some(dir)) => {
            let way = if dir == Direction::ToServer { "server" } else { "client" };
            let _ = write!(out, ", flow {flow}, to the {way}");
        }
        _ => out.push_str(", no flow"),
    }
    out
}

/// Bytes in hexadecimal and as text, 16 per line, with the relevant ones underlined.
fn excerpt(e: &Excerpt, out: &mut String) {
    for (n, row) in e.bytes.chunks(16).enumerate() {
        let at = e.offset + n * 16;
        let (mut hex, mut plain, mut under, mut below) = (String::new(), String::new(), String::new(), String::new());
        for (i, b) in row.iter().enumerate() {
            let marked = (e.mark.0..e.mark.1).contains(&(at + i));
            let gap = if i == 8 {
                "  "
            } else if i == 0 {
                ""
            } else {
                " "
            };
            let _ = write!(hex, "{gap}{b:02x}");
            let _ = write!(under, "{gap}{}", if marked { "^^" } else { "  " });
            plain.push(if (b' '..=b'~').contains(b) { char::from(*b) } else { '.' });
            below.push(if marked { '^' } else { ' ' });
        }
        let _ = writeln!(out, "           {at:>6}  {hex:<48}  {plain}");
        if under.contains('^') {
            let _ = writeln!(out, "                   {}", format!("{under:<48}  {below}").trim_end());
        }
    }
    let (end, all) = (e.offset + e.bytes.len(), e.size);
    if end < all || e.offset > 0 {
        let _ = writeln!(out, "                   bytes {} to {} of {all}", e.offset, end.saturating_sub(1));
    }
}

fn line(l: &Line, bytes: bool, out: &mut String) {
    let mark = match l.came {
        LineCame::Held => "ok",
        LineCame::HeldBefore => "ok",
        LineCame::NotYet => "wait",
        LineCame::Failed => "FAIL",
    };
    let place = if l.place.is_empty() { String::new() } else { format!("  in {}", l.place) };
    let _ = writeln!(out, "    {mark:<4}  {}{place}", l.check);
    if !l.detail.is_empty() {
        let _ = writeln!(out, "          {}", l.detail);
    }
    if let Some(e) = l.excerpt.as_ref().filter(|_| bytes) {
        excerpt(e, out);
    }
}

fn look(title: &str, l: &LookReport, clock: &mut Clock, out: &mut String) {
    let _ = writeln!(out, "{title}{}", packet(&l.packet, clock));
    if l.subject != "packet" {
        let _ = writeln!(out, "  {}", l.subject);
    }
    // The bytes at the failure; for a match, those of each buffer.
    for x in &l.lines {
        line(x, true, out);
    }
}

fn packets(list: impl Iterator<Item = PacketRef>, count: u64) -> String {
    let mut numbers: Vec<String> = Vec::new();
    for p in list {
        let n = p.number.to_string();
        if numbers.last() != Some(&n) {
            numbers.push(n);
        }
    }
    let more = if count > numbers.len() as u64 { ", …" } else { "" };
    format!("packet{} {}{more}", if numbers.len() == 1 { "" } else { "s" }, numbers.join(", "))
}

fn plural(n: u64, one: &str) -> String {
    format!("{n} {one}{}", if n == 1 { "" } else { "s" })
}

const fn heading(kind: ReasonKind) -> &'static str {
    match kind {
        ReasonKind::Header => "header",
        ReasonKind::NotInspected => "not looked at",
        ReasonKind::Prefilter => "fast pattern",
        ReasonKind::Check => "check",
        ReasonKind::Waiting => "waiting",
    }
}

fn times(n: u64) -> String {
    if n == 1 { "once".into() } else { format!("{n} times") }
}

fn rule(e: &Explained<'_>, clock: &mut Clock, out: &mut String) {
    let (r, t) = (e.rule, e.trace);
    let _ =
        writeln!(out, "rule {}:{} rev {}: {}", r.gid, r.sid, r.rev, if r.msg.is_empty() { "(no msg)" } else { &r.msg });
    let _ = writeln!(out, "  {}:{}, of kind {}", r.place.file, r.place.line, e.kind.map_or("?", |k| k.name()));
    match &t.pattern {
        Some(p) => {
            let _ = writeln!(out, "  looked at where its fast pattern is found: {p}");
        }
        None => out.push_str("  looked at without a fast pattern\n"),
    }
    out.push('\n');
    for (n, m) in t.matches.iter().enumerate() {
        look(&format!("match {}: ", n + 1), m, clock, out);
        out.push('\n');
    }
    if t.matched > t.matches.len() as u64 {
        let _ = writeln!(out, "({} more)\n", t.matched - t.matches.len() as u64);
    }
    let mut reasons: Vec<_> = t.reasons.iter().collect();
    reasons.sort_by_key(|r| std::cmp::Reverse(r.count));
    if !reasons.is_empty() {
        out.push_str("why it did not match, by how often:\n");
        for r in reasons.iter().take(REASONS) {
            let first = packets(r.first.iter().map(|l| l.packet), r.count);
            let _ = writeln!(out, "  {:>8}  {:<13}  {}\n{:27}{first}", r.count, heading(r.kind), r.text, "");
        }
        if reasons.len() > REASONS {
            let rest: u64 = reasons.iter().skip(REASONS).map(|r| r.count).sum();
            let _ = writeln!(out, "  {rest:>8}  other reasons (--json has all)");
        }
        out.push('\n');
    }
    if let Some(n) = &t.nearest
        && t.matched == 0
    {
        look("nearest miss: ", n, clock, out);
        out.push('\n');
    }
    summary(e, clock, out);
}

fn summary(e: &Explained<'_>, clock: &mut Clock, out: &mut String) {
    let t = e.trace;
    let mut inspected = plural(t.packets, "packet");
    if t.made_up > 0 {
        inspected += &format!(" and {} that the engine made up at the end of flows", t.made_up);
    }
    if t.matched > 0 {
        let _ = writeln!(out, "MATCHED {} in {inspected}", times(t.matched));
        for f in &t.fates {
            let _ = writeln!(out, "  {:>8}  {}: {}", f.count, f.text, packets(f.first.iter().copied(), f.count));
        }
        return;
    }
    let _ = writeln!(out, "NO MATCH in {inspected}; its checks were looked at {}", times(t.looks));
    let failing = |l: &LookReport| l.lines.get(l.failing?).cloned();
    match (&t.nearest, t.reasons.iter().max_by_key(|r| r.count)) {
        (Some(n), _) => {
            let before = n.lines.iter().take(n.failing.unwrap_or(n.lines.len()));
            let held = before.filter(|l| matches!(l.came, LineCame::Held | LineCame::HeldBefore)).count();
            if let Some(l) = failing(n) {
                let place = if l.place.is_empty() { String::new() } else { format!(" in {}", l.place) };
                let _ = writeln!(out, "  it got furthest with {}:", packet(&n.packet, clock));
                let _ = writeln!(out, "  {} held, then {}{place}: {}", plural(held as u64, "check"), l.check, l.detail);
            } else {
                let _ = writeln!(out, "  it got furthest with {}:\n  {}", packet(&n.packet, clock), n.subject);
            }
        }
        (None, Some(r)) => {
            let _ = writeln!(out, "  no packet got past its header or came to be looked at; mostly: {}", r.text);
        }
        (None, None) => out.push_str("  no packet was inspected: is there anything in the capture?\n"),
    }
}

pub(super) fn report(all: &[Explained<'_>], notes: &[String]) -> String {
    let mut clock = Clock::system();
    let mut out = String::new();
    for (n, e) in all.iter().enumerate() {
        if n > 0 {
            out.push('\n');
        }
        rule(e, &mut clock, &mut out);
    }
    for n in notes {
        let _ = writeln!(out, "  note: {n}");
    }
    out
}
