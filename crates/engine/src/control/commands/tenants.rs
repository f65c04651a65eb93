//! Tenants, and the mappings from packets to tenants.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::json;

use super::Args;
use crate::control::Control;
use crate::control::message::Answer;
use crate::engines::EngineSet;
use crate::settings::{Selector, VLAN_MAX, vlan_id};

pub(super) fn tenancy(control: &Control) -> Result<Arc<EngineSet>, String> {
    let set = control.engines();
    if set.multi { Ok(set) } else { Err("multi-tenant support not enabled".into()) }
}

pub(super) fn register_tenant(control: &Arc<Control>, args: &Args<'_>) -> Answer {
    tenancy(control)?;
    let (id, file) = (args.id()?, PathBuf::from(args.must("filename")));
    if !file.exists() {
        return Err("file does not exist".into());
    }
    control.load_tenant(id, Some(file), true).map_err(|f| format!("adding tenant failed: {}", f.message))?;
    Ok(json!("adding tenant succeeded"))
}

pub(super) fn reload_tenant(control: &Arc<Control>, args: &Args<'_>) -> Answer {
    tenancy(control)?;
    let file = args.text("filename").map(PathBuf::from);
    if file.as_ref().is_some_and(|f| !f.exists()) {
        return Err("file does not exist".into());
    }
    control.load_tenant(args.id()?, file, false).map_err(|f| format!("reload tenant failed: {}", f.message))?;
    Ok(json!("reloading tenant succeeded"))
}

pub(super) fn reload_tenants(control: &Arc<Control>, _: &Args<'_>) -> Answer {
    tenancy(control)?;
    control.reload_tenants().map_err(|f| format!("reloading tenants failed: {}", f.message))?;
    Ok(json!("reloading tenants succeeded"))
}

pub(super) fn unregister_tenant(control: &Arc<Control>, args: &Args<'_>) -> Answer {
    tenancy(control)?;
    let id = args.id()?;
    let change = |set: &mut EngineSet| {
        let before = set.tenants.len();
        set.tenants.retain(|t| t.id != id);
        if set.tenants.len() == before { Err("tenant detect engine not found".to_owned()) } else { Ok(()) }
    };
    control.change_tenants(change).map_err(|f| f.message)?;
    Ok(json!("removing tenant succeeded"))
}

/// The VLAN of a handler, or `None` for a handler that needs none.
fn handler(control: &Control, args: &Args<'_>) -> Result<Option<u16>, String> {
    let selector = tenancy(control)?.mappings.selector;
    match (args.must("htype"), selector) {
        ("vlan", _) => {
            let given = args.number("hargs").ok_or("handler \"vlan\" needs the VLAN as \"hargs\"")?;
            let vlan = i64::try_from(given).ok().and_then(vlan_id);
            let vlan = vlan.ok_or_else(|| format!("vlan argument out of range: it is 1 to {VLAN_MAX}"))?;
            if selector == Selector::Vlan {
                return Ok(Some(vlan));
            }
        }
        ("pcap", Selector::Direct) => return Ok(None),
        _ => {}
    }
    Err(format!(
        "handler setup failure: the selector is {}; there are vlan (with vlan) and pcap (with direct)",
        selector.name()
    ))
}

pub(super) fn register_handler(control: &Arc<Control>, args: &Args<'_>) -> Answer {
    let id = args.id()?;
    if let Some(vlan) = handler(control, args)? {
        let change = |set: &mut EngineSet| match set.mappings.vlans.get(&vlan) {
            Some(other) => Err(format!("handler setup failure: VLAN {vlan} belongs to tenant {other}")),
            None => {
                set.mappings.vlans.insert(vlan, id);
                Ok(())
            }
        };
        control.change_tenants(change).map_err(|f| f.message)?;
    }
    Ok(json!("handler added"))
}

pub(super) fn unregister_handler(control: &Arc<Control>, args: &Args<'_>) -> Answer {
    let id = args.id()?;
    if let Some(vlan) = handler(control, args)? {
        let change = |set: &mut EngineSet| {
            if set.mappings.vlans.get(&vlan) != Some(&id) {
                return Err("handler unregister failure".to_owned());
            }
            set.mappings.vlans.remove(&vlan);
            Ok(())
        };
        control.change_tenants(change).map_err(|f| f.message)?;
    }
    Ok(json!("handler removed"))
}
