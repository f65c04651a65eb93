//! Memory limits, which each worker has.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Args, ask};
use crate::control::Control;
use crate::control::message::Answer;
use crate::worker::Worker;

/// A memory limit: its name, its value in a worker (0 for none), and a setter that returns `false` for an impossible value.
type Memcap = (&'static str, fn(&Worker) -> u64, fn(&mut Worker, u64) -> bool);

const MEMCAPS: &[Memcap] = &[
    (
        "stream",
        |w| w.pipeline.stages.stream.config().memcap,
        |w, n| {
            let data = w.pipeline.stages.stream.config().reassembly_memcap;
            w.pipeline.stages.stream.set_memcaps(n, data);
            true
        },
    ),
    (
        "stream-reassembly",
        |w| w.pipeline.stages.stream.config().reassembly_memcap,
        |w, n| {
            let sessions = w.pipeline.stages.stream.config().memcap;
            w.pipeline.stages.stream.set_memcaps(sessions, n);
            true
        },
    ),
    (
        "flow",
        |w| w.pipeline.flows.config().memcap,
        |w, n| {
            w.pipeline.flows.set_memcap(n);
            true
        },
    ),
    (
        "app-layer",
        |w| w.pipeline.stages.app.config.memcap,
        |w, n| Arc::get_mut(&mut w.pipeline.stages.app.config).map(|c| c.memcap = n).is_some(),
    ),
    (
        "applayer-proto-http",
        |w| w.pipeline.stages.app.config.http1.memcap,
        |w, n| Arc::get_mut(&mut w.pipeline.stages.app.config).map(|c| c.http1.memcap = n).is_some(),
    ),
    (
        "applayer-proto-ftp",
        |w| w.pipeline.stages.app.config.ftp.memcap,
        |w, n| Arc::get_mut(&mut w.pipeline.stages.app.config).map(|c| c.ftp.memcap = n).is_some(),
    ),
    (
        "defrag",
        |w| w.decoder.config().defrag.memcap as u64,
        |w, n| {
            // This limit cannot be removed.
            n > 0 && usize::try_from(n).map(|n| w.decoder.set_defrag_memcap(n)).is_ok()
        },
    ),
    ("ippair", |w| w.pipeline.stages.host_memcaps()[1], |w, n| n > 0 && w.pipeline.stages.set_host_memcap(1, n)),
    ("host", |w| w.pipeline.stages.host_memcaps()[0], |w, n| n > 0 && w.pipeline.stages.set_host_memcap(0, n)),
];

fn memcap(name: &str) -> Result<&'static Memcap, String> {
    let found = MEMCAPS.iter().find(|m| m.0 == name);
    found.ok_or_else(|| "Memcap value not found. Use 'memcap-list' to show all".to_owned())
}

/// The memory that a worker uses of a limit, where it is counted.
fn in_use(w: &Worker, name: &str) -> u64 {
    let stream = &w.pipeline.stages.stream.counters;
    match name {
        "stream" => stream.memuse,
        "stream-reassembly" => stream.reassembly_memuse,
        "flow" => w.pipeline.flows.counters.memuse,
        "defrag" => w.decoder.counters.defrag_memuse,
        _ => 0,
    }
}

/// Whether several workers share the limit. Of other limits, each worker has a part.
fn is_shared(name: &str) -> bool {
    matches!(name, "host" | "ippair")
}

/// The limit of all workers together.
fn together(name: &str, workers: impl Iterator<Item = u64>) -> u64 {
    if is_shared(name) { workers.max().unwrap_or(0) } else { workers.sum() }
}

/// A limit in Suricata's format.
fn shown(bytes: u64) -> String {
    match bytes {
        0 => "unlimited".into(),
        n if n % (1 << 30) == 0 => format!("{}gb", n >> 30),
        n if n % (1 << 20) == 0 => format!("{}mb", n >> 20),
        n => format!("{}kb", n >> 10),
    }
}

pub(super) fn memcap_set(control: &Arc<Control>, args: &Args<'_>) -> Answer {
    let &(name, _, set) = memcap(args.must("config"))?;
    let bytes = margay_config::typed::parse_size(args.must("memcap"))
        .map_err(|e| format!("error parsing memcap specified, value not changed: {e}"))?;
    let used: u64 = ask(control, move |w, _| in_use(w, name))?.into_iter().sum();
    // A typing error would leave no room for new flows.
    if bytes != 0 && bytes < used {
        return Err(format!("memcap value specified for '{name}' is less than the memory in use: {}", shown(used)));
    }
    // Each worker gets a part, unless the limit is shared.
    let parts = if is_shared(name) { 1 } else { control.workers().len().max(1) as u64 };
    let part = if bytes == 0 { 0 } else { (bytes / parts).max(1) };
    match ask(control, move |w, _| set(w, part))?.contains(&false) {
        false => Ok(json!(format!(
            "memcap value for '{name}' updated: {bytes} {}",
            if bytes == 0 { "(unlimited)" } else { "" }
        ))),
        true => Err(format!("memcap value for '{name}' cannot be {bytes}, value not changed")),
    }
}

pub(super) fn memcap_show(control: &Arc<Control>, args: &Args<'_>) -> Answer {
    let &(name, get, _) = memcap(args.must("config"))?;
    let all = ask(control, move |w, _| get(w))?;
    Ok(json!({"value": shown(together(name, all.into_iter()))}))
}

pub(super) fn memcap_list(control: &Arc<Control>, _: &Args<'_>) -> Answer {
    let all = ask(control, |w, _| MEMCAPS.iter().map(|m| (m.1)(w)).collect::<Vec<_>>())?;
    let of = |n: usize, name| together(name, all.iter().filter_map(|w| w.get(n).copied()));
    let values = MEMCAPS.iter().enumerate().map(|(n, m)| json!({"name": m.0, "value": shown(of(n, m.0))}));
    Ok(Value::Array(values.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_as_they_are_shown() {
        assert_eq!([0, 3 << 30, 32 << 20, 1 << 10, 1].map(shown), ["unlimited", "3gb", "32mb", "1kb", "0kb"]);
    }
}
