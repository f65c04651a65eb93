//! Capture files that clients submit.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::json;

use super::Args;
use super::tenants::tenancy;
use crate::control::Control;
use crate::control::message::Answer;
use crate::queue::{Job, Queue};

pub(super) fn pcap_file(control: &Arc<Control>, args: &Args<'_>, continuous: bool) -> Answer {
    let Some(queue) = &control.queue else { return Err("Unknown command".into()) };
    let (file, dir) = (PathBuf::from(args.must("filename")), PathBuf::from(args.must("output-dir")));
    if !file.exists() {
        return Err("filename does not exist".into());
    }
    if !dir.is_dir() {
        return Err("output-dir does not exist".into());
    }
    let tenant = match args.number("tenant") {
        None => 0,
        Some(n) => u32::try_from(n).map_err(|_| "tenant is a tenant's id".to_owned())?,
    };
    if tenant != 0 && tenancy(control)?.tenant(tenant).is_none() {
        return Err(format!("there is no tenant {tenant}"));
    }
    let job = Job { file, dir, tenant, continuous, delete: args.flag("delete-when-done") };
    if queue.push(job) { Ok(json!("Successfully added file to list")) } else { Err("too many files wait".into()) }
}

pub(super) fn pcap_list(control: &Arc<Control>, _: &Args<'_>) -> Answer {
    let files = control.queue.as_ref().map(Queue::waiting).unwrap_or_default();
    Ok(json!({"count": files.len(), "files": files}))
}

pub(super) fn pcap_interrupt(control: &Arc<Control>, _: &Args<'_>) -> Answer {
    if let Some(queue) = &control.queue {
        queue.interrupt.store(true, Ordering::Relaxed);
    }
    Ok(json!("Interrupted"))
}

pub(super) fn pcap_current(control: &Arc<Control>, _: &Args<'_>) -> Answer {
    let current = control.queue.as_ref().and_then(Queue::current);
    Ok(current.map_or_else(|| json!("None"), |c| json!(c)))
}
