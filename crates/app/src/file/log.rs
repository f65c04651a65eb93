//! The members about files in `fileinfo` events and alerts.

use margay_json::Json;

use super::{File, FileState};

/// Options of `fileinfo` events, which show everything known about a file. All outputs share the settings for computed values
/// (`force-magic`, `force-hash`), [`FileConfig::force`](super::FileConfig::force).
#[derive(Debug, Clone, Default)]
pub struct FileLogOptions {}

/// Writes `"fileinfo":{…}` of a file; `tx_id` is the number of its transaction within the flow.
pub fn log(file: &File, tx_id: u64, json: &mut Json, options: &FileLogOptions) {
    json.object("fileinfo");
    members(file, tx_id, json, options);
    json.end_object();
}

/// Writes `"files":[…]` for the files of an alert's transaction. Writes nothing if there are none.
pub fn log_files<'a>(files: impl IntoIterator<Item = &'a File>, tx_id: u64, json: &mut Json, options: &FileLogOptions) {
    let mut files = files.into_iter().peekable();
    if files.peek().is_none() {
        return;
    }
    json.array("files");
    for file in files {
        json.item_object();
        members(file, tx_id, json, options);
        json.end_object();
    }
    json.end_array();
}

fn members(file: &File, tx_id: u64, json: &mut Json, _options: &FileLogOptions) {
    if !file.name.is_empty() {
        json.bytes("filename", &file.name);
    }
    if !file.sids.is_empty() {
        json.array("sid");
        for &sid in &file.sids {
            json.item_uint(u64::from(sid));
        }
        json.end_array();
    }
    if let Some(m) = file.magic.get().filter(|m| !m.is_empty()) {
        json.bytes("magic", m);
    }
    json.bool("gaps", file.gaps);
    let state = match file.state {
        FileState::Open => "UNKNOWN",
        FileState::Closed => "CLOSED",
        FileState::Truncated => "TRUNCATED",
        FileState::Error => "ERROR",
    };
    json.str("state", state);
    let digests = &file.digests;
    if let Some(d) = &digests.md5 {
        json.hex("md5", d);
    }
    if let Some(d) = &digests.sha1 {
        json.hex("sha1", d);
    }
    if let Some(d) = &digests.sha256 {
        json.hex("sha256", d);
    }
    match file.stored() {
        Some(id) => {
            json.bool("stored", true);
            json.uint("file_id", u64::from(id));
        }
        None => {
            json.bool("stored", false);
            if file.storing() {
                json.bool("storing", true);
            }
        }
    }
    json.uint("size", file.size);
    if let Some((start, end)) = file.range {
        json.uint("start", start);
        json.uint("end", end);
    }
    json.uint("tx_id", tx_id);
}
