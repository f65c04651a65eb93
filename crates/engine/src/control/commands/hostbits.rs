//! Host bits, which each worker stores.

use std::sync::Arc;

use margay_detect::hostvars::HostKey;
use serde_json::json;

use super::{Args, ask};
use crate::control::Control;
use crate::control::message::Answer;
use crate::engines::EngineSet;

/// The number of a bit; `None` if no rule names the bit.
fn bit(set: &EngineSet, name: &str) -> Option<u32> {
    set.default.detect.as_ref()?.names().number(name)
}

pub(super) fn add_hostbit(control: &Arc<Control>, args: &Args<'_>) -> Answer {
    let address = args.address()?;
    let seconds = args.number("expire").and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0);
    let seconds = seconds.ok_or("expire is a number of seconds from 1 on")?;
    // Each worker looks up the number in its own rules, because it may not have the newest ones yet.
    let name = args.must("hostbit").to_owned();
    let set = ask(control, move |w, _| {
        let now = w.pipeline.stages.now;
        let Some(bit) = bit(&w.pipeline.stages.engines.set, &name) else { return Err("hostbit not found") };
        let Some((_, state)) = w.pipeline.stages.own() else { return Err("detection is off") };
        match state.hosts_mut().set(HostKey::Host(address), bit, now, seconds) {
            true => Ok(()),
            false => Err("no room for another hostbit (host.memcap)"),
        }
    })?;
    set.into_iter().collect::<Result<(), _>>()?;
    Ok(json!("hostbit added"))
}

pub(super) fn remove_hostbit(control: &Arc<Control>, args: &Args<'_>) -> Answer {
    let address = args.address()?;
    let name = args.must("hostbit").to_owned();
    let removed = ask(control, move |w, _| {
        let bit = bit(&w.pipeline.stages.engines.set, &name).ok_or("hostbit not found")?;
        if let Some((_, state)) = w.pipeline.stages.own() {
            state.hosts_mut().unset(HostKey::Host(address), bit);
        }
        Ok::<(), &str>(())
    })?;
    removed.into_iter().collect::<Result<(), _>>()?;
    Ok(json!("hostbit removed"))
}

pub(super) fn list_hostbit(control: &Arc<Control>, args: &Args<'_>) -> Answer {
    let address = args.address()?;
    let mut found = ask(control, move |w, _| {
        let now = w.pipeline.stages.now;
        let Some((detect, state)) = w.pipeline.stages.own() else { return Vec::new() };
        let names = detect.names();
        let bits = state.hosts().bits_of(HostKey::Host(address), names.len() as u32, now);
        // Bits that rules set without a timeout have a very late expiry.
        let left = |until: margay_packet::Time| until.micros_since(now).max(0) / 1_000_000;
        bits.into_iter().filter_map(|(n, until)| Some((names.name(n)?.to_owned(), left(until)))).collect()
    })?;
    let mut all: Vec<(String, i64)> = found.drain(..).flatten().collect();
    if all.is_empty() {
        return Err("host not found".to_owned());
    }
    all.sort();
    all.dedup_by(|a, b| a.0 == b.0);
    let bits: Vec<_> = all.iter().map(|(name, expire)| json!({"name": name, "expire": expire})).collect();
    Ok(json!({"count": bits.len(), "hostbits": bits}))
}
