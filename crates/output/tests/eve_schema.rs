//! docs/eve-schema.json and the declared types of events name the same. tools/eve-schema holds the members to what is written.
#![allow(clippy::expect_used, reason = "a test fails by it")]

use std::collections::BTreeSet;
use std::path::Path;

use margay_output::event::EventType;

#[test]
fn types_are_those_that_are_declared() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/eve-schema.json");
    let text = std::fs::read_to_string(&path).expect("the schema");
    let schema: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let listed = schema["properties"]["event_type"]["enum"].as_array().expect("a list of types");
    let listed: BTreeSet<&str> = listed.iter().filter_map(serde_json::Value::as_str).collect();
    // The engine's own log as JSON has a type as well. `telnet` may be asked for and writes nothing, as in Suricata.
    let declared = EventType::all().map(EventType::name).filter(|name| *name != "telnet").chain(["engine"]);
    let declared: BTreeSet<&str> = declared.collect();
    assert_eq!(listed, declared);
}
