//! Events of DHCP.

use std::net::Ipv4Addr;

use margay_json::Json;

use super::message::{Message, option};

/// Names of requested parameters; others are not shown.
const PARAMETERS: &[(u8, &str)] = &[
    (1, "subnet_mask"),
    (3, "router"),
    (6, "dns_server"),
    (15, "domain"),
    (35, "arp_timeout"),
    (42, "ntp_server"),
    (66, "tftp_server_name"),
    (150, "tftp_server_ip"),
];

/// The limit of addresses in a list, and of parameters: what fits in an option.
const LIST_MAX: usize = 255;

/// Options that events always show: the client, and until when its lease is valid.
const ALWAYS: [u8; 3] = [option::HOSTNAME, option::RENEWAL_TIME, option::CLIENT_ID];

/// Appends the member of the event; with `extended`, also addresses of servers and all known options.
pub(super) fn log(m: &Message, json: &mut Json, extended: bool) {
    json.object("dhcp");
    json.str(
        "type",
        match m.op {
            1 => "request",
            2 => "reply",
            _ => "<unknown>",
        },
    );
    json.uint("id", u64::from(m.id));
    json.str("client_mac", &colons(&m.hardware));
    json.ip("assigned_ip", m.assigned.into());
    if extended {
        json.ip("client_ip", m.client.into());
        if m.op == 2 {
            json.ip("relay_ip", m.relay.into());
            json.ip("next_server_ip", m.next_server.into());
        }
    }
    if let Some(kind) = m.kind() {
        json.str("dhcp_type", kind);
    }
    let mut seen = [false; 256];
    for (code, content) in &m.options {
        // An object has each member once.
        if (extended || ALWAYS.contains(code)) && !std::mem::replace(&mut seen[usize::from(*code)], true) {
            option(*code, content, json);
        }
    }
    json.end_object();
}

fn option(code: u8, content: &[u8], json: &mut Json) {
    let addresses = || content.chunks_exact(4).filter_map(|c| c.first_chunk::<4>()).map(|a| Ipv4Addr::from(*a));
    // An address of another length is an empty text, as in Suricata.
    let one = |json: &mut Json, key| match <[u8; 4]>::try_from(content) {
        Ok(address) => json.ip(key, Ipv4Addr::from(address).into()),
        Err(_) => json.str(key, ""),
    };
    let list = |json: &mut Json, key| {
        json.array(key);
        addresses().take(LIST_MAX).for_each(|a| json.item_str(&a.to_string()));
        json.end_array();
    };
    let number = |json: &mut Json, key| {
        if let Some(n) = content.first_chunk() {
            json.uint(key, u64::from(u32::from_be_bytes(*n)));
        }
    };
    match code {
        option::SUBNET_MASK => one(json, "subnet_mask"),
        option::ROUTER => list(json, "routers"),
        option::DNS_SERVER => list(json, "dns_servers"),
        option::HOSTNAME if !content.is_empty() => json.bytes("hostname", content),
        option::REQUESTED_IP => one(json, "requested_ip"),
        option::LEASE_TIME => number(json, "lease_time"),
        option::RENEWAL_TIME => number(json, "renewal_time"),
        option::REBINDING_TIME => number(json, "rebinding_time"),
        option::VENDOR_CLASS if !content.is_empty() => json.bytes("vendor_class_identifier", content),
        option::CLIENT_ID => {
            // The identifier follows its type.
            json.str("client_id", &colons(content.get(1..).unwrap_or(&[])));
        }
        option::PARAMETERS => {
            json.array("params");
            for p in content.iter().take(LIST_MAX) {
                if let Some((_, name)) = PARAMETERS.iter().find(|n| n.0 == *p) {
                    json.item_str(name);
                }
            }
            json.end_array();
        }
        _ => {}
    }
}

/// Formats bytes in hexadecimal with colons.
fn colons(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(":")
}
