//! Messages and the view of rules and logs.

use margay_flow::Direction::{ToClient, ToServer};
use proptest::prelude::*;

use super::message::{HEADER, Message};
use super::*;
use crate::testing::Talk;

/// A server's message with these options.
fn reply(options: &[u8]) -> Vec<u8> {
    let mut m = vec![0; HEADER];
    m[..8].copy_from_slice(&[2, 1, 6, 0, 0xde, 0xad, 0xbe, 0xef]);
    m[16..20].copy_from_slice(&[192, 0, 2, 7]);
    m[28..34].copy_from_slice(&[0, 0x11, 0x32, 0x17, 0x49, 0xf0]);
    m[236..].copy_from_slice(&[0x63, 0x82, 0x53, 0x63]);
    m.extend_from_slice(options);
    m
}

/// The server sends a message.
fn sent(message: &[u8], extended: bool) -> Talk {
    let mut talk = Talk::udp(AppProto::Dhcp, 67);
    talk.options.options.set(AppProto::Dhcp, EXTENDED, u64::from(extended));
    talk.server(message);
    talk
}

#[test]
fn an_address_is_given() {
    let ack = reply(
        b"\x35\x01\x05\x00\x33\x04\0\0\x0e\x10\x03\x08\xc0\0\x02\x01\xc0\0\x02\x02\x0c\x04nas1\x37\x03\x01\x02\x0f\xff",
    );
    let talk = sent(&ack, false);
    assert!(talk.events().is_empty());
    assert_eq!(talk.complete(), [[true, true]]);
    assert_eq!(talk.numbers("dhcp.leasetime", ToClient), [3600]);
    assert!(talk.numbers("dhcp.leasetime", ToServer).is_empty());
    assert!(talk.numbers("dhcp.renewal_time", ToClient).is_empty());
    assert_eq!(
        talk.logs(),
        [
            "{\"dhcp\":{\"type\":\"reply\",\"id\":3735928559,\"client_mac\":\"00:11:32:17:49:f0\",\"assigned_ip\":\"192.0.2.7\",\
          \"dhcp_type\":\"ack\",\"hostname\":\"nas1\"}}"
        ]
    );
    // The client and its renewal time are always there, other options are not.
    let other =
        reply(b"\x35\x01\x05\x3a\x04\0\0\x01\0\x3b\x04\0\0\x02\0\x3d\x07\x01\0\x01\x02\x03\x04\x05\x0c\x00\xff");
    let log = sent(&other, false).logs().concat();
    let tail = "\"dhcp_type\":\"ack\",\"renewal_time\":256,\"client_id\":\"00:01:02:03:04:05\"}}";
    assert!(log.ends_with(tail), "{log}");
    let all = sent(&ack, true).logs().concat();
    for part in [
        "\"lease_time\":3600",
        "\"routers\":[\"192.0.2.1\",\"192.0.2.2\"]",
        "\"hostname\":\"nas1\"",
        "\"params\":[\"subnet_mask\",\"domain\"]",
        "\"relay_ip\":\"0.0.0.0\"",
    ] {
        assert!(all.contains(part), "{part} in {all}");
    }
    let asks = sent(&reply(b"\x35\x01\x01\x37\x05\x01\x23\x42\x96\x99\xff"), true).logs().concat();
    let known = "\"params\":[\"subnet_mask\",\"arp_timeout\",\"tftp_server_name\",\"tftp_server_ip\"]";
    assert!(asks.contains(known), "{asks}");
    // An offer does not assign an address yet.
    let offer = reply(b"\x35\x01\x02\xff");
    assert_eq!((sent(&offer, false).logs().len(), sent(&offer, true).logs().len()), (0, 1));
}

#[test]
fn what_is_wrong() {
    let of = |bytes: &[u8]| sent(bytes, false).events();
    assert_eq!(of(&reply(b"\x35\x01\x05\x0c\x09nas")), ["truncated_options"]);
    assert_eq!(of(&reply(b"")), ["truncated_options"]);
    let mut other = reply(b"\xff");
    other[236] = 0;
    assert_eq!(of(&other), ["malformed_options"]);
    assert_eq!(of(&reply(b"\x35\x01\x05\x33\x02\0\x01\xff")), ["truncated_options"]);
    assert_eq!(of(&reply(b"\x35\x01\x05\x3d\x01\x01\xff")), ["truncated_options"]);
    // The options are shown in spite of the cookie, and a message without a type has none.
    let mut named = reply(b"\x0c\x04nas1\xff");
    (named[0], named[236]) = (9, 0);
    let log = sent(&named, true).logs().concat();
    assert!(log.contains("\"type\":\"<unknown>\"") && log.contains("\"hostname\":\"nas1\""), "{log}");
    assert!(!log.contains("dhcp_type"), "{log}");
    assert!(Message::read(&other[..HEADER - 1]).is_none());
    assert!(sent(&other[..HEADER - 1], true).txs().is_empty());
}

proptest! {
    #[test]
    fn any_options(options in prop::collection::vec(any::<u8>(), 0..600)) {
        let text = sent(&reply(&options), true).logs().concat();
        prop_assert!(text.ends_with("}}"));
        prop_assert_eq!(text.matches("\"lease_time\":").count() <= 1, true);
    }
}
