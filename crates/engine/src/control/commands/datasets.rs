//! Datasets of rules.

use std::sync::Arc;

use margay_detect::dataset::{Added, DataSet};
use margay_rules::ast::SetKind;
use serde_json::json;

use super::Args;
use crate::control::Control;
use crate::control::message::Answer;

/// The datasets with that name and type in all engines. Mostly it is one that they share.
fn sets(control: &Control, args: &Args<'_>) -> Result<Vec<Arc<DataSet>>, String> {
    let (name, kind) = (args.must("setname"), args.must("settype"));
    let Some(kind) = SetKind::from_name(kind) else { return Err(format!("unknown settype \"{kind}\"")) };
    let engines = control.engines();
    let mut found: Vec<Arc<DataSet>> = Vec::new();
    for d in engines.all().filter_map(|(_, l)| l.detect.as_ref()) {
        if let Some(set) = d.datasets().get(name).filter(|s| s.kind() == kind)
            && found.iter().all(|f| !Arc::ptr_eq(f, set))
        {
            found.push(Arc::clone(set));
        }
    }
    if found.is_empty() { Err("set not found or wrong type".into()) } else { Ok(found) }
}

/// The datasets, and the data in their representation.
fn data(control: &Control, args: &Args<'_>, failed: &str) -> Result<(Vec<Arc<DataSet>>, Vec<u8>), String> {
    let sets = sets(control, args)?;
    let data = sets.first().and_then(|s| s.parse(args.must("datavalue").as_bytes()));
    data.map(|d| (sets, d)).ok_or_else(|| format!("{failed}: it is not of the set's type (text is in base64)"))
}

pub(super) fn dataset_add(control: &Arc<Control>, args: &Args<'_>) -> Answer {
    let (sets, data) = data(control, args, FAILED)?;
    answer(&sets.iter().map(|s| s.add(&data)).collect::<Vec<_>>())
}

/// As [`dataset_add`], with the JSON object that alerts show for the entry.
pub(super) fn dataset_add_json(control: &Arc<Control>, args: &Args<'_>) -> Answer {
    /// As for the objects of files.
    const CONTEXT_MAX: usize = 16 << 10;
    let (sets, data) = data(control, args, FAILED)?;
    let given = args.must("datajson");
    let object = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(given);
    let context = object.ok().and_then(|o| serde_json::to_vec(&o).ok()).filter(|c| c.len() <= CONTEXT_MAX);
    let Some(context) = context else {
        return Err(format!("{FAILED}: datajson is not a JSON object of at most {CONTEXT_MAX} bytes"));
    };
    answer(&sets.iter().map(|s| s.add_json(&data, context.clone())).collect::<Vec<_>>())
}

const FAILED: &str = "failed to add data";

/// The answer for what the sets did with the data.
fn answer(added: &[Added]) -> Answer {
    if added.contains(&Added::Full) {
        Err(format!("{FAILED}: the set is full (memcap)"))
    } else if added.contains(&Added::New) {
        Ok(json!("data added"))
    } else if added.contains(&Added::There) {
        Ok(json!("data already in set"))
    } else {
        Err(FAILED.into())
    }
}

pub(super) fn dataset_remove(control: &Arc<Control>, args: &Args<'_>) -> Answer {
    const FAILED: &str = "failed to remove data";
    let (sets, data) = data(control, args, FAILED)?;
    match sets.iter().filter(|s| s.remove(&data)).count() {
        0 => Err(format!("{FAILED}: it is not in the set")),
        _ => Ok(json!("data removed")),
    }
}

pub(super) fn dataset_lookup(control: &Arc<Control>, args: &Args<'_>) -> Answer {
    let (sets, data) = data(control, args, "failed to look data up")?;
    match sets.iter().any(|s| s.contains(&data)) {
        true => Ok(json!("item found in set")),
        false => Err("item not found in set".into()),
    }
}

pub(super) fn dataset_clear(control: &Arc<Control>, args: &Args<'_>) -> Answer {
    sets(control, args)?.iter().for_each(|s| s.clear());
    Ok(json!("dataset cleared"))
}

pub(super) fn dataset_dump(control: &Arc<Control>, _: &Args<'_>) -> Answer {
    let problems = control.engines().datasets().save();
    if problems.is_empty() { Ok(json!("datasets dump done")) } else { Err(problems.join("; ")) }
}
