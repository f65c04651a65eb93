//! The `ftp` member of events.

use margay_json::Json;

use super::tx::{FtpTx, Reply};

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
    if tx.replies.iter().any(|r| r.code.is_some()) {
        json.array("completion_code");
        for code in tx.replies.iter().filter_map(|r| r.code.as_ref()) {
            json.item_bytes(code);
        }
        json.end_array();
    }
    if tx.replies.iter().any(Reply::has_text) {
        json.array("reply");
        for reply in tx.replies.iter().filter(|r| r.has_text()) {
            json.item_bytes(&reply.text);
        }
        json.end_array();
    }
    if let Some(port) = tx.port {
        json.uint("dynamic_port", u64::from(port));
        json.str("mode", if tx.active { "active" } else { "passive" });
    }
    json.str("reply_received", if tx.answered { "yes" } else { "no" });
    json.bool("reply_truncated", tx.reply_truncated);
    json.end_object();
}
