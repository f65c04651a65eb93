//! `stats.log`: tables of counters for people to read.

use std::io::Write;

use crate::event::{Counter, EventType, EventTypes, StatsEvent};
use crate::output::{Event, EventSink, Opening, OutputError, OutputSettings};
use crate::settings::{SinkSettings, StatsLogSettings, StatsOptions};
use crate::sinks::Sink;
use crate::time::Clock;

const RULE: &[u8] = b"------------------------------------------------------------------------------------\n";

impl OutputSettings for StatsLogSettings {
    fn name(&self) -> &'static str {
        "stats"
    }

    fn open(&self, at: &Opening<'_>) -> Result<Box<dyn EventSink>, OutputError> {
        Ok(Box::new(StatsLog::new(self.options, Sink::open(self.sink.clone(), at.now)?, Clock::system())))
    }

    fn sink(&mut self) -> Option<&mut SinkSettings> {
        Some(&mut self.sink)
    }
}

/// The `stats` output.
#[derive(Debug)]
struct StatsLog {
    options: StatsOptions,
    table: Vec<u8>,
    clock: Clock,
    sink: Sink,
}

impl StatsLog {
    fn new(options: StatsOptions, sink: Sink, clock: Clock) -> Self {
        StatsLog { options, table: Vec::new(), clock, sink }
    }
}

impl EventSink for StatsLog {
    fn types(&self) -> EventTypes {
        EventTypes::NONE.with(EventType::Stats)
    }

    fn event(&mut self, event: Event<'_>) {
        if let Event::Stats(e) = event {
            self.table.clear();
            render(&mut self.table, &mut self.clock, self.options, e);
            self.sink.line(&self.table);
        }
    }

    fn sink(&mut self) -> Option<&mut Sink> {
        Some(&mut self.sink)
    }

    fn beside(&mut self) -> Option<Box<dyn EventSink>> {
        Some(Box::new(StatsLog::new(self.options, self.sink.share(), Clock::system())))
    }
}

fn render(out: &mut Vec<u8>, clock: &mut Clock, options: StatsOptions, e: &StatsEvent<'_>) {
    out.extend_from_slice(RULE);
    out.extend_from_slice(b"Date: ");
    clock.stats(out, e.time);
    let (days, hours) = (e.uptime / 86_400, e.uptime / 3600 % 24);
    let (minutes, seconds) = (e.uptime / 60 % 60, e.uptime % 60);
    // Writing to a Vec does not fail.
    let _ = writeln!(out, " (uptime: {days}d, {hours:02}h {minutes:02}m {seconds:02}s)");
    out.extend_from_slice(RULE);
    row(out, "Counter", "TM Name", "Value");
    out.extend_from_slice(RULE);
    if options.totals {
        rows(out, "Total", e.totals, options);
    }
    if options.threads {
        for (name, counters) in e.threads {
            rows(out, name, counters, options);
        }
    }
}

fn rows(out: &mut Vec<u8>, thread: &str, counters: &[Counter<'_>], options: StatsOptions) {
    for c in counters.iter().filter(|c| options.null_values || c.value != 0) {
        row(out, c.name, thread, c.value);
    }
}

fn row(out: &mut Vec<u8>, name: &str, thread: &str, value: impl std::fmt::Display) {
    let _ = writeln!(out, "{name:<45} | {thread:<25} | {value:<}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use margay_packet::Time;

    #[test]
    fn a_table_as_suricata_writes_it() {
        let counters = [
            Counter { name: "decoder.pkts", value: 48, last: 0 },
            Counter { name: "decoder.ipv6", value: 0, last: 0 },
            Counter { name: "decoder.event.icmpv4.unknown_type_of_a_very_long_name", value: -1, last: 0 },
        ];
        let thread = [Counter { name: "decoder.pkts", value: 48, last: 0 }];
        let e = StatsEvent {
            time: Time::new(1_795_227_143, 5),
            uptime: 90_061,
            totals: &counters,
            threads: &[("W#01", &thread)],
            engines: &[],
            pcap_filename: None,
        };
        let table = |options| {
            let mut out = Vec::new();
            render(&mut out, &mut Clock::utc(), options, &e);
            String::from_utf8(out).unwrap()
        };
        let off = StatsOptions { null_values: false, ..StatsOptions::default() };
        let rule = String::from_utf8(RULE.to_vec()).unwrap();
        let head = format!(
            "{rule}Date: 11/21/2026 -- 02:12:23 (uptime: 1d, 01h 01m 01s)\n{rule}\
             Counter                                       | TM Name                   | Value\n{rule}"
        );
        let long = "decoder.event.icmpv4.unknown_type_of_a_very_long_name | Total                     | -1\n";
        let pkts = "decoder.pkts                                  | Total                     | 48\n";
        assert_eq!(table(off), format!("{head}{pkts}{long}"));
        let threads = StatsOptions { totals: false, threads: true, ..off };
        let row = "decoder.pkts                                  | W#01                      | 48\n";
        assert_eq!(table(threads), format!("{head}{row}"));
        assert!(table(StatsOptions::default()).contains("decoder.ipv6 "));
    }
}
