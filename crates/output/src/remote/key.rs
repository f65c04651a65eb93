//! Finds the key of an event in its text.
#![cfg_attr(not(feature = "kafka"), allow(dead_code))]

use super::PartitionKey;

/// The key of a line, without quotes. Events write `community_id` and `flow_id` before any data from traffic, and the
/// first occurrence counts. Traffic cannot choose the key, because its quotes are escaped.
pub(super) fn key(line: &[u8], which: PartitionKey) -> Option<&[u8]> {
    match which {
        PartitionKey::CommunityId => member(line, b"\"community_id\":").or_else(|| member(line, b"\"flow_id\":")),
        PartitionKey::FlowId => member(line, b"\"flow_id\":"),
        PartitionKey::None => None,
    }
}

fn member<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let at = memchr::memmem::find(line, name)?;
    let value = line.get(at + name.len()..)?;
    let value = value.strip_prefix(b"\"").unwrap_or(value);
    let end = value.iter().position(|b| matches!(b, b'"' | b',' | b'}'))?;
    value.get(..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_events() {
        let both = br#"{"timestamp":"x","flow_id":123,"community_id":"1:abc=","http":{"hostname":"\"flow_id\":9"}}"#;
        assert_eq!(key(both, PartitionKey::CommunityId), Some(&b"1:abc="[..]));
        assert_eq!(key(both, PartitionKey::FlowId), Some(&b"123"[..]));
        assert_eq!(key(both, PartitionKey::None), None);
        let one = br#"{"timestamp":"x","flow_id":77}"#;
        assert_eq!(key(one, PartitionKey::CommunityId), Some(&b"77"[..]));
        assert_eq!(key(br#"{"event_type":"stats"}"#, PartitionKey::CommunityId), None);
        assert_eq!(key(br#"{"flow_id":"#, PartitionKey::FlowId), None);
    }
}
