//! Messages, from their bytes to what rules and logs have of them.

use margay_flow::Direction::{ToClient, ToServer};
use margay_json::Json;
use proptest::prelude::*;

use crate::config::AppLogOptions;
use crate::tx::{LogFor, Transaction};

use super::LogOptions;
use super::events::NAMES;
use super::message::{HEADER, Message, option};
use super::tx::DhcpTx;

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

fn log(tx: &DhcpTx, extended: bool) -> String {
    let options = AppLogOptions { dhcp: LogOptions { extended }, ..AppLogOptions::default() };
    let mut json = Json::new();
    json.item_object();
    tx.log(&mut json, &options, LogFor::Event);
    json.end_object();
    String::from_utf8(json.as_bytes().to_vec()).unwrap()
}

fn events(tx: &DhcpTx) -> Vec<&'static str> {
    tx.base().events.as_slice().iter().map(|e| NAMES[usize::from(*e)]).collect()
}

#[test]
fn an_address_is_given() {
    let options =
        b"\x35\x01\x05\x00\x33\x04\0\0\x0e\x10\x03\x08\xc0\0\x02\x01\xc0\0\x02\x02\x0c\x04nas1\x37\x03\x01\x02\x0f\xff";
    let tx = DhcpTx::new(0, ToClient, Message::read(&reply(options)).unwrap());
    assert!(events(&tx).is_empty());
    assert_eq!(
        (tx.number(option::LEASE_TIME, ToClient, 0), tx.number(option::LEASE_TIME, ToServer, 0)),
        (Some(3600), None)
    );
    assert_eq!(
        log(&tx, false),
        "{\"dhcp\":{\"type\":\"reply\",\"id\":3735928559,\"client_mac\":\"00:11:32:17:49:f0\",\"assigned_ip\":\"192.0.2.7\",\
         \"dhcp_type\":\"ack\"}}"
    );
    let all = log(&tx, true);
    for part in [
        "\"lease_time\":3600",
        "\"routers\":[\"192.0.2.1\",\"192.0.2.2\"]",
        "\"hostname\":\"nas1\"",
        "\"params\":[\"subnet_mask\",\"domain\"]",
        "\"relay_ip\":\"0.0.0.0\"",
    ] {
        assert!(all.contains(part), "{part} in {all}");
    }
    // An offer does not give one yet.
    let offer = DhcpTx::new(0, ToClient, Message::read(&reply(b"\x35\x01\x02\xff")).unwrap());
    assert_eq!((tx.records(&AppLogOptions::default()), offer.records(&AppLogOptions::default())), (1, 0));
}

#[test]
fn what_is_wrong() {
    let of = |bytes: &[u8]| events(&DhcpTx::new(0, ToClient, Message::read(bytes).unwrap()));
    assert_eq!(of(&reply(b"\x35\x01\x05\x0c\x09nas")), ["truncated_options"]);
    assert_eq!(of(&reply(b"")), ["truncated_options"]);
    let mut other = reply(b"\xff");
    other[236] = 0;
    assert_eq!(of(&other), ["malformed_options"]);
    assert!(Message::read(&other[..HEADER - 1]).is_none());
}

proptest! {
    #[test]
    fn any_options(options in prop::collection::vec(any::<u8>(), 0..600)) {
        let tx = DhcpTx::new(0, ToClient, Message::read(&reply(&options)).unwrap());
        let text = log(&tx, true);
        prop_assert!(text.ends_with("}}"));
        prop_assert_eq!(text.matches("\"lease_time\":").count() <= 1, true);
    }
}
