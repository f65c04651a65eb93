//! An engine's alerts and drops, by conversation.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::path::Path;

use serde::Deserialize;

use super::build::number;
use crate::problem::{Outcome, Problem};

/// Addresses and ports of a flow, in ascending order.
pub(super) type Flow = [(IpAddr, u16); 2];

/// The flow between two ends, the same for both directions.
pub(super) fn flow(a: (IpAddr, u16), b: (IpAddr, u16)) -> Flow {
    if b < a { [b, a] } else { [a, b] }
}

#[derive(Deserialize)]
struct Event {
    event_type: String,
    src_ip: Option<IpAddr>,
    dest_ip: Option<IpAddr>,
    #[serde(default)]
    src_port: u16,
    #[serde(default)]
    dest_port: u16,
    alert: Option<Alert>,
    drop: Option<Dropped>,
}

#[derive(Deserialize)]
struct Dropped {
    #[serde(default)]
    reason: String,
}

#[derive(Deserialize)]
struct Alert {
    signature_id: u32,
    action: String,
}

/// Alerts and drops, see the module.
#[derive(Debug, Default)]
pub(super) struct Alerts {
    /// Rules that blocked, and rules that alerted, by the conversation's number.
    pub(super) blocked: HashMap<u32, BTreeSet<u32>>,
    pub(super) noticed: HashMap<u32, BTreeSet<u32>>,
    /// Rules that blocked flows of other traffic.
    pub(super) others: HashMap<Flow, BTreeSet<u32>>,
    /// The engine's reasons for drops without a rule, by the conversation's number.
    pub(super) reasons: HashMap<u32, BTreeSet<String>>,
    /// The same for other traffic: the number of drop events for each reason.
    pub(super) policies: BTreeMap<String, u64>,
}

impl Alerts {
    /// Reads an event log.
    ///
    /// # Errors
    /// If it does not exist or cannot be read.
    pub(super) fn read(path: &Path) -> Outcome<Alerts> {
        let file = std::fs::File::open(path).map_err(|error| {
            Problem::Failed(format!("{}: {error}; the engine is to write its alerts there (eve-log)", path.display()))
        })?;
        let mut alerts = Alerts::default();
        for line in BufReader::new(file).lines() {
            let line = line.map_err(|error| Problem::file("read", path, error))?;
            // Skip other events, which are the majority, and a truncated last line.
            if (line.contains("\"alert\"") || line.contains("\"drop\""))
                && let Ok(event) = serde_json::from_str::<Event>(&line)
            {
                alerts.add(&event);
            }
        }
        Ok(alerts)
    }

    fn add(&mut self, event: &Event) {
        if let (Some(dropped), Some(a), Some(b)) = (&event.drop, event.src_ip, event.dest_ip)
            && event.event_type == "drop"
        {
            // Skip drops by rules, and later packets of a dropped flow, whose first packet gave the reason.
            if ["", "rules", "flow drop", "exception policy flow drop"].contains(&dropped.reason.as_str()) {
                return;
            }
            match number(a).or(number(b)) {
                Some(n) => {
                    self.reasons.entry(n).or_default().insert(dropped.reason.clone());
                }
                None => *self.policies.entry(dropped.reason.clone()).or_default() += 1,
            }
        }
        let (Some(alert), Some(a), Some(b)) = (&event.alert, event.src_ip, event.dest_ip) else { return };
        if event.event_type != "alert" {
            return;
        }
        let blocked = alert.action == "blocked";
        match number(a).or(number(b)) {
            Some(n) => {
                self.noticed.entry(n).or_default().insert(alert.signature_id);
                if blocked {
                    self.blocked.entry(n).or_default().insert(alert.signature_id);
                }
            }
            None if blocked => {
                let flow = flow((a, event.src_port), (b, event.dest_port));
                self.others.entry(flow).or_default().insert(alert.signature_id);
            }
            None => {}
        }
    }

    /// The number of flows of other traffic that each rule blocked.
    pub(super) fn harm(&self) -> BTreeMap<u32, u64> {
        let mut harm = BTreeMap::new();
        for sid in self.others.values().flatten() {
            *harm.entry(*sid).or_default() += 1;
        }
        harm
    }
}

/// The texts of the rules in these files, by sid.
///
/// # Errors
/// If a file cannot be read.
pub(super) fn rule_texts(files: &[String]) -> Outcome<BTreeMap<u32, String>> {
    let mut texts = BTreeMap::new();
    for file in files {
        let text = std::fs::read(file).map_err(|error| Problem::file("read", Path::new(file), error))?;
        for line in String::from_utf8_lossy(&text).lines().filter(|line| !line.trim_start().starts_with('#')) {
            // Take the last `sid:`, because the texts before it may contain another.
            let sid = line.rsplit_once("sid:").and_then(|(_, rest)| rest.split(';').next()?.trim().parse().ok());
            if let Some(sid) = sid {
                texts.insert(sid, line.to_owned());
            }
        }
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alerts_belong_to_conversations_by_their_addresses() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("eve.json");
        let event = |a: &str, b: &str, sid: u32, action: &str| {
            format!(
                "{{\"event_type\":\"alert\",\"src_ip\":\"{a}\",\"src_port\":5,\"dest_ip\":\"{b}\",\"dest_port\":80,\"alert\":{{\"signature_id\":{sid},\"action\":\"{action}\"}}}}\n"
            )
        };
        let text = [
            event("198.18.0.9", "10.0.0.9", 1, "blocked"),
            event("10.0.0.9", "198.18.0.9", 2, "allowed"),
            event("48.0.0.1", "16.0.0.1", 3, "blocked"),
            event("16.0.0.2", "48.0.0.1", 4, "allowed"),
            "{\"event_type\":\"drop\",\"src_ip\":\"10.0.0.8\",\"dest_ip\":\"198.18.0.8\",\"drop\":{\"reason\":\"stream error\"}}\n".to_owned(),
            "{\"event_type\":\"drop\",\"src_ip\":\"16.0.0.8\",\"dest_ip\":\"48.0.0.8\",\"drop\":{\"reason\":\"stream error\"}}\n".to_owned(),
            "{\"event_type\":\"drop\",\"src_ip\":\"10.0.0.9\",\"dest_ip\":\"198.18.0.9\",\"drop\":{\"reason\":\"rules\"}}\n".to_owned(),
            "{\"event_type\":\"alert\",\"src".to_owned(),
        ];
        std::fs::write(&path, text.concat()).unwrap();
        let alerts = Alerts::read(&path).unwrap();
        assert_eq!(alerts.blocked[&9].iter().copied().collect::<Vec<_>>(), [1]);
        assert_eq!(alerts.noticed[&9].iter().copied().collect::<Vec<_>>(), [1, 2]);
        assert!(alerts.reasons[&8].contains("stream error") && !alerts.reasons.contains_key(&9));
        assert_eq!(alerts.policies, BTreeMap::from([("stream error".to_owned(), 1)]));
        assert_eq!(alerts.harm(), BTreeMap::from([(3, 1)]));
        let key = flow(("16.0.0.1".parse().unwrap(), 80), ("48.0.0.1".parse().unwrap(), 5));
        assert!(alerts.others.contains_key(&key));
    }
}
