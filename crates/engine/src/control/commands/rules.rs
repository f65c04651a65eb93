//! Queries about the active rules, and reloads.

use std::sync::Arc;

use margay_output::event::EngineStats;
use margay_output::time::Clock;
use serde_json::{Value, json};

use super::Args;
use crate::control::Control;
use crate::control::message::Answer;

fn time_text(time: margay_packet::Time) -> String {
    let mut text = Vec::new();
    Clock::system().iso(&mut text, time);
    String::from_utf8_lossy(&text).into_owned()
}

pub(super) fn engine(e: &EngineStats) -> Value {
    json!({
        "id": e.id,
        "last_reload": time_text(e.last_reload),
        "rules_loaded": e.rules_loaded,
        "rules_failed": e.rules_failed,
        "rules_skipped": e.rules_skipped,
    })
}

pub(super) fn reload(control: &Arc<Control>, _: &Args<'_>) -> Answer {
    control.reload().map_err(|f| f.message)?;
    let failed: u64 = control.engines().all().map(|(_, l)| l.counts.failed).sum();
    Ok(match failed {
        0 => json!("done"),
        1 => json!("done, but 1 rule does not load: ruleset-failed-rules says which and why"),
        n => json!(format!("done, but {n} rules do not load: ruleset-failed-rules says which and why")),
    })
}

pub(super) fn reload_beside(control: &Arc<Control>, _: &Args<'_>) -> Answer {
    match control.reload_beside() {
        Ok(true) => Ok(json!("done")),
        Ok(false) => Err("a reload is going on already".into()),
        Err(f) => Err(f.message),
    }
}

fn of_engines(control: &Control, f: impl Fn(&EngineStats) -> Value) -> Answer {
    Ok(Value::Array(control.engines().stats().iter().map(f).collect()))
}

pub(super) fn reload_time(control: &Arc<Control>, _: &Args<'_>) -> Answer {
    of_engines(control, |e| json!({"id": e.id, "last_reload": time_text(e.last_reload)}))
}

pub(super) fn ruleset_stats(control: &Arc<Control>, _: &Args<'_>) -> Answer {
    of_engines(
        control,
        |e| json!({"id": e.id, "rules_loaded": e.rules_loaded, "rules_failed": e.rules_failed, "rules_skipped": e.rules_skipped}),
    )
}

pub(super) fn failed_rules(control: &Arc<Control>, _: &Args<'_>) -> Answer {
    let set = control.engines();
    let rules = set.all().flat_map(|(id, l)| {
        l.failed.iter().map(
            move |f| json!({"tenant_id": id, "rule": *f.text, "filename": f.file, "line": f.line, "reason": f.reason}),
        )
    });
    Ok(Value::Array(rules.collect()))
}
