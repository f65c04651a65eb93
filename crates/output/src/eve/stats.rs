//! `stats`: counters with dotted names as nested objects.

use crate::event::{Counter, EventType, Header, StatsEvent};
use crate::settings::StatsOptions;

use super::Out;

impl Out<'_> {
    pub(super) fn stats(&mut self, e: &StatsEvent<'_>) {
        let options = self.settings.stats;
        self.begin(&Header { time: e.time, ..Header::default() }, EventType::Stats);
        self.json.object("stats");
        self.json.uint("uptime", e.uptime);
        if options.totals {
            let counters: Vec<&Counter<'_>> = e.totals.iter().filter(|c| shown(c, options)).collect();
            self.group(&counters, 0, Some(e));
        }
        if options.threads {
            self.json.object("threads");
            for (name, counters) in e.threads {
                let counters: Vec<&Counter<'_>> = counters.iter().filter(|c| shown(c, options)).collect();
                self.json.name(name);
                self.json.item_object();
                self.group(&counters, 0, None);
                self.json.end_object();
            }
            self.json.end_object();
        }
        self.json.end_object();
        self.finish(e.pcap_filename);
    }

    /// Writes members for `counters`, whose names are equal up to `from`. A group appears at the position of its first
    /// counter.
    fn group(&mut self, counters: &[&Counter<'_>], from: usize, engines: Option<&StatsEvent<'_>>) {
        let mut done = vec![false; counters.len()];

        let mut has_detect = false;
        for (i, c) in counters.iter().enumerate() {
            if done[i] {
                continue;
            }
            let Some((key, _)) = rest(c, from).split_once('.') else {
                self.counter(rest(c, from), c);
                continue;
            };
            let mut members = Vec::new();
            for (k, other) in counters.iter().enumerate().skip(i) {
                if !done[k] && rest(other, from).split_once('.').is_some_and(|o| o.0 == key) {
                    done[k] = true;
                    members.push(*other);
                }
            }
            self.json.name(key);
            self.json.item_object();
            if key == "detect"
                && let Some(e) = engines
            {
                has_detect = true;
                self.engines(e);
            }
            self.group(&members, from + key.len() + 1, None);
            self.json.end_object();
        }
        if let (false, Some(e)) = (has_detect || engines.is_some_and(|e| e.engines.is_empty()), engines) {
            self.json.object("detect");
            self.engines(e);
            self.json.end_object();
        }
    }

    fn counter(&mut self, key: &str, c: &Counter<'_>) {
        self.json.name(key);
        self.json.item_int(c.value);
        if self.settings.stats.deltas {
            self.json.name(&format!("{key}_delta"));
            self.json.item_int(c.value.saturating_sub(c.last));
        }
    }

    fn engines(&mut self, e: &StatsEvent<'_>) {
        if e.engines.is_empty() {
            return;
        }
        self.json.array("engines");
        for engine in e.engines {
            let j = &mut *self.json;
            j.item_object();
            j.uint("id", u64::from(engine.id));
            j.time("last_reload", engine.last_reload, self.clock);
            j.uint("rules_loaded", engine.rules_loaded);
            j.uint("rules_failed", engine.rules_failed);
            j.uint("rules_skipped", engine.rules_skipped);
            j.end_object();
        }
        self.json.end_array();
    }
}

fn shown(c: &Counter<'_>, options: StatsOptions) -> bool {
    options.null_values || c.value != 0
}

fn rest<'a>(c: &Counter<'a>, from: usize) -> &'a str {
    c.name.get(from..).unwrap_or_default()
}
