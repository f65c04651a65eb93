//! Names of frame types, errors and settings in rules. Rules may leave out the underscores.

use crate::declare::NumberCondition;

/// Frame types (RFC 9113, section 6).
pub(super) const TYPES: &[(&str, u64)] = &[
    ("data", 0),
    ("headers", 1),
    ("priority", 2),
    ("rst_stream", 3),
    ("rststream", 3),
    ("settings", 4),
    ("push_promise", 5),
    ("pushpromise", 5),
    ("ping", 6),
    ("goaway", 7),
    ("window_update", 8),
    ("windowupdate", 8),
    ("continuation", 9),
];

/// Error codes (RFC 9113, section 7).
pub(super) const ERRORS: &[(&str, u64)] = &[
    ("no_error", 0),
    ("noerror", 0),
    ("protocol_error", 1),
    ("protocolerror", 1),
    ("internal_error", 2),
    ("internalerror", 2),
    ("flow_control_error", 3),
    ("flowcontrolerror", 3),
    ("settings_timeout", 4),
    ("settingstimeout", 4),
    ("stream_closed", 5),
    ("streamclosed", 5),
    ("frame_size_error", 6),
    ("framesizeerror", 6),
    ("refused_stream", 7),
    ("refusedstream", 7),
    ("cancel", 8),
    ("compression_error", 9),
    ("compressionerror", 9),
    ("connect_error", 10),
    ("connecterror", 10),
    ("enhance_your_calm", 11),
    ("enhanceyourcalm", 11),
    ("inadequate_security", 12),
    ("inadequatesecurity", 12),
    ("http_1_1_required", 13),
    ("http11required", 13),
];

/// Settings (RFC 9113, section 6.5.2; RFC 8441, section 3; RFC 9218, section 2.1).
const SETTINGS: [(&str, u32); 8] = [
    ("headertablesize", 1),
    ("enablepush", 2),
    ("maxconcurrentstreams", 3),
    ("initialwindowsize", 4),
    ("maxframesize", 5),
    ("maxheaderlistsize", 6),
    ("enableconnectprotocol", 8),
    ("norfc7540priorities", 9),
];

/// The argument of `http2.settings`: a setting by name or number, with an optional condition on its value
/// (`SETTINGS_HEADER_TABLE_SIZE>1000`).
pub(super) fn settings(text: &str) -> Result<NumberCondition, String> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let plain: String = name.chars().filter(|c| *c != '_').map(|c| c.to_ascii_lowercase()).collect();
    let named = plain.strip_prefix("settings").and_then(|n| SETTINGS.iter().find(|s| s.0 == n)).map(|s| s.1);
    let Some(tag) = named.or_else(|| name.parse::<u16>().ok().map(u32::from)) else {
        return Err(format!("\"{name}\" is no setting"));
    };
    let rest = rest.trim();
    let value = rest.strip_prefix(':').unwrap_or(rest).trim();
    Ok(NumberCondition::Tagged { tag, text: (!rest.is_empty()).then(|| value.to_owned()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_values() {
        let of = |tag, text: Option<&str>| Ok(NumberCondition::Tagged { tag, text: text.map(str::to_owned) });
        for (text, want) in [
            ("SETTINGS_HEADER_TABLE_SIZE>1000", of(1, Some(">1000"))),
            ("SETTINGS_ENABLE_PUSH", of(2, None)),
            ("SETTINGS_MAX_FRAME_SIZE=16384", of(5, Some("=16384"))),
            ("SETTINGS_SOMETHING", Err("\"SETTINGS_SOMETHING\" is no setting".to_owned())),
        ] {
            assert_eq!(settings(text), want, "{text}");
        }
    }
}
