//! The `ftp` member of events.

use margay_json::Json;

use super::tx::FtpTx;

/// Appends `"ftp":{...}`.
pub(super) fn log(tx: &FtpTx, json: &mut Json) {
    json.object("ftp");
    if !tx.command.is_empty() {
        json.bytes("command", &tx.command);
    }
    if !tx.data.is_empty() || tx.command_truncated {
        if !tx.data.is_empty() {
            json.bytes("command_data", &tx.data);
        }
        json.bool("command_truncated", tx.command_truncated);
    }
    list(json, "completion_code", tx.codes.iter().map(<[u8; 3]>::as_slice));
    list(json, "reply", tx.replies.iter().map(Vec::as_slice));
    if let Some(port) = tx.port {
        json.uint("dynamic_port", u64::from(port));
        json.str("mode", if tx.active { "active" } else { "passive" });
    }
    json.str("reply_received", if tx.answered { "yes" } else { "no" });
    json.bool("reply_truncated", tx.reply_truncated);
    json.end_object();
}

fn list<'a>(json: &mut Json, key: &'static str, items: impl ExactSizeIterator<Item = &'a [u8]>) {
    if items.len() > 0 {
        json.array(key);
        items.for_each(|item| json.item_bytes(item));
        json.end_array();
    }
}
