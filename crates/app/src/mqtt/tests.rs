//! Conversations of clients and brokers: complete, in pieces, malformed, too long.

use margay_flow::Direction::{ToClient, ToServer};

use super::*;
use crate::testing::Talk;

/// CONNECT and CONNACK of version 5, from a capture.
const CONNECT5: &[u8] =
    b"\x10\x2f\x00\x04MQTT\x05\xc2\x00\x3c\x03\x21\x00\x14\x00\x13myvoiceismypassport\x00\x04user\x00\x04pass";
const CONNACK5: &[u8] = b"\x20\x06\x00\x00\x03\x22\x00\x0a";
/// CONNECT and CONNACK of version 3.1.
const CONNECT3: &[u8] = b"\x10\x2d\x00\x06MQIsdp\x03\xc2\x00\x3c\x00\x13myvoiceismypassport\x00\x04user\x00\x04pass";
const CONNACK3: &[u8] = b"\x20\x02\x00\x00";

const CONNECT5_EVENT: &str = concat!(
    r#"{"mqtt":{"connect":{"qos":0,"retain":false,"dup":false,"protocol_string":"MQTT","protocol_version":5,"#,
    r#""client_id":"myvoiceismypassport","flags":{"username":true,"password":true,"will_retain":false,"will":false,"clean_session":true},"#,
    r#""username":"user","password":"pass","properties":{"receive_maximum":20}},"#,
    r#""connack":{"qos":0,"retain":false,"dup":false,"session_present":false,"return_code":0,"properties":{"topic_alias_maximum":10}}}}"#,
);

fn connect5() -> Vec<u8> {
    let mut data = CONNECT5.to_vec();
    data[1] = (data.len() - 2) as u8;
    data
}

fn talk5() -> Talk {
    let mut talk = Talk::tcp(AppProto::Mqtt, 1883);
    talk.client(&connect5()).server(CONNACK5);
    talk
}

fn talk3() -> Talk {
    let mut talk = Talk::tcp(AppProto::Mqtt, 1883);
    talk.client(CONNECT3).server(CONNACK3);
    talk
}

#[test]
fn connections() {
    let talk = talk5();
    assert_eq!(talk.logs(), [CONNECT5_EVENT]);
    assert_eq!(talk.complete(), [[true, true]]);
    assert_eq!(talk.events(), [""; 0]);
    assert_eq!(talk.numbers("mqtt.type", ToServer), [1, 2]);
    assert_eq!(talk.numbers("mqtt.type", ToClient), []);
    assert_eq!(talk.numbers("mqtt.reason_code", ToServer), [0]);
    assert_eq!(talk.numbers("mqtt.protocol_version", ToServer), [5]);
    assert_eq!(talk.numbers("mqtt.connect.flags", ToServer), [0xc2]);
    assert_eq!(talk.buffers("mqtt.connect.protocol_string", ToServer), ["MQTT"]);
    assert_eq!(talk.buffers("mqtt.connect.username", ToServer), ["user"]);
    assert_eq!(talk.buffers("mqtt.connect.password", ToServer), ["pass"]);

    // Byte by byte, the result is the same.
    let mut talk = Talk::tcp(AppProto::Mqtt, 1883);
    for b in connect5() {
        assert_eq!(talk.complete(), [[false; 2]; 0]);
        talk.client(&[b]);
    }
    assert_eq!(talk.complete(), [[false, true]]);
    for b in CONNACK5 {
        talk.server(&[*b]);
    }
    assert_eq!(talk.logs(), [CONNECT5_EVENT]);
}

/// Rules do not see empty values.
#[test]
fn empty_values() {
    let mut talk = talk3();
    talk.client(b"\x10\x14\x00\x04MQTT\x04\xc6\x00\x3c\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00");
    talk.client(b"\x30\x02\x00\x00\x82\x09\x00\x01\x00\x00\x00\x00\x01a\x00");
    for name in ["connect.clientid", "connect.willtopic", "connect.willmessage", "publish.topic", "publish.message"] {
        let first = usize::from(name == "connect.clientid");
        assert_eq!(talk.buffers(&format!("mqtt.{name}"), ToServer).len(), first, "{name}");
    }
    assert_eq!(talk.buffers("mqtt.connect.username", ToServer), ["user"]);
    assert_eq!(talk.buffers("mqtt.subscribe.topic", ToServer), ["a"]);
}

#[test]
fn passwords_are_hidden_where_asked() {
    let mut talk = talk3();
    talk.options.options.set(AppProto::Mqtt, 0, 0);
    assert!(!talk.logs()[0].contains("pass\""), "{}", talk.logs()[0]);
}

#[test]
fn publishing() {
    let mut talk = talk3();
    // QoS 2, in version 3.1.
    talk.client(b"\x34\x1a\x00\x06topicX\x00\x01baabaablacksheep").server(b"\x50\x02\x00\x01");
    assert_eq!(talk.complete()[1], [false, true]);
    talk.client(b"\x62\x02\x00\x01").server(b"\x70\x02\x00\x01").client(b"\xe0\x00");
    assert_eq!(
        talk.logs()[1..],
        [
            concat!(
                r#"{"mqtt":{"publish":{"qos":2,"retain":false,"dup":false,"topic":"topicX","message_id":1,"message":"baabaablacksheep"},"#,
                r#""pubrec":{"qos":0,"retain":false,"dup":false,"message_id":1},"pubrel":{"qos":1,"retain":false,"dup":false,"message_id":1},"#,
                r#""pubcomp":{"qos":0,"retain":false,"dup":false,"message_id":1}}}"#,
            ),
            r#"{"mqtt":{"disconnect":{"qos":0,"retain":false,"dup":false}}}"#,
        ]
    );
    assert_eq!(talk.complete(), [[true, true]; 3]);
    assert_eq!(talk.events(), [""; 0]);
    assert_eq!(talk.buffers("mqtt.publish.topic", ToServer), ["topicX"]);

    // Each side has its own identifiers.
    let mut talk = talk3();
    talk.client(b"\x32\x05\x00\x01a\x00\x07").server(b"\x32\x05\x00\x01b\x00\x07");
    talk.server(b"\x40\x02\x00\x07");
    assert_eq!(talk.complete()[1..], [[true, true], [true, false]]);
    talk.client(b"\x40\x02\x00\x07");
    assert_eq!(talk.complete()[1..], [[true, true], [true, true]]);
    assert_eq!(talk.buffers("mqtt.publish.topic", ToClient), ["b"]);
    assert_eq!(talk.events(), [""; 0]);
}

#[test]
fn subscriptions() {
    let mut talk = talk5().set("subscribe-topic-match-limit", 1);
    talk.client(b"\x82\x15\x00\x01\x00\x00\x06topicX\x00\x00\x06topicY\x00").server(b"\x90\x05\x00\x01\x00\x00\x01");
    talk.client(b"\xa2\x0b\x00\x02\x00\x00\x06topicX").server(b"\xb0\x04\x00\x02\x00\x11");
    assert_eq!(
        talk.logs()[1..],
        [
            concat!(
                r#"{"mqtt":{"subscribe":{"qos":1,"retain":false,"dup":false,"message_id":1,"topics":[{"topic":"topicX","qos":0},{"topic":"topicY","qos":0}]},"#,
                r#""suback":{"qos":0,"retain":false,"dup":false,"message_id":1,"qos_granted":[0,1]}}}"#,
            ),
            concat!(
                r#"{"mqtt":{"unsubscribe":{"qos":1,"retain":false,"dup":false,"message_id":2,"topics":["topicX"]},"#,
                r#""unsuback":{"qos":0,"retain":false,"dup":false,"message_id":2,"reason_codes":[17]}}}"#,
            ),
        ]
    );
    assert_eq!(talk.buffers("mqtt.subscribe.topic", ToServer), ["topicX", "topicY"]);
    assert_eq!(talk.buffers("mqtt.unsubscribe.topic", ToServer), ["topicX"]);
    assert_eq!(talk.numbers("mqtt.reason_code", ToServer), [0, 0, 1, 17]);

    talk.options.options.set(AppProto::Mqtt, 1, 0);
    assert!(talk.logs()[1].contains(r#""topicY""#), "0 is no limit: {}", talk.logs()[1]);
    talk.options.options.set(AppProto::Mqtt, 1, 10);
    assert!(
        talk.logs()[1].contains(r#"{"topic":"topi[truncated 2 additional bytes]","qos":0}]"#),
        "{}",
        talk.logs()[1]
    );
}

#[test]
fn rules_see_as_many_topics_as_they_are_allowed() {
    let mut talk = Talk::tcp(AppProto::Mqtt, 1883).set("subscribe-topic-match-limit", 1);
    talk.client(b"\x82\x0a\x00\x01\x00\x01a\x00\x00\x01b\x00");
    assert_eq!(talk.buffers("mqtt.subscribe.topic", ToServer), ["a"]);
}

/// MQTT 5 section 3.4.2.1: a receipt without a reason reports success. MQTT 3 has no reasons.
#[test]
fn a_receipt_without_a_reason_has_the_reason_0() {
    let exchange = |mut talk: Talk, publish: &[u8]| {
        talk.client(publish).server(b"\x50\x02\x00\x07");
        talk.client(b"\x62\x02\x00\x07").server(b"\x70\x02\x00\x07");
        (talk.numbers("mqtt.reason_code", ToServer), talk.logs().concat())
    };
    let (codes, log) = exchange(talk3(), b"\x34\x06\x00\x01t\x00\x07x");
    assert_eq!(codes, [0], "the return code of CONNACK alone");
    assert!(log.contains("pubcomp") && !log.contains("reason_code"), "{log}");
    let (codes, log) = exchange(talk5(), b"\x34\x07\x00\x01t\x00\x07\x00x");
    assert_eq!(codes, [0, 0, 0, 0]);
    for kind in ["pubrec", "pubrel", "pubcomp"] {
        let of = log.split(&format!(r#""{kind}":"#)).nth(1).and_then(|rest| rest.split('}').next());
        assert!(of.is_some_and(|of| of.ends_with(r#""reason_code":0"#)), "{kind}: {log}");
    }
}

#[test]
fn properties() {
    let mut talk = talk5();
    talk.client(
        b"\x32\x5e\x00\x06topicX\x00\x01\x43\x03\x00\x06mytype\x09\x00\x0512345\x02\x00\x00\x00M\x01X\x08\x00\x0fresponse_topic1\
          \x23\x00\x05&\x00\x09userprop3\x00\x08userval3baabaablacksheep",
    );
    talk.server(b"\x40\x03\x00\x01\x10");
    // A user property with a repeated name.
    talk.client(b"\xe0\x0e\x00\x0c\x23\x00\x05&\x00\x01a\x00\x01b\x0b\x01");
    talk.client(b"\xe0\x01\x04").client(b"\xf0\x01\x18");
    assert_eq!(talk.numbers("mqtt.reason_code", ToServer), [0, 16, 0, 0, 0x18]);
    let logs = talk.logs();
    assert!(logs[1].contains(concat!(
        r#""properties":{"content_type":"mytype","correlation_data":"12345","message_expiry_interval":77,"#,
        r#""payload_format_indicator":88,"response_topic":"response_topic1","topic_alias":5,"userprop3":"userval3"}}"#,
        r#","puback":{"qos":0,"retain":false,"dup":false,"message_id":1,"reason_code":16}"#,
    )));
    assert!(
        logs[2].ends_with(r#""reason_code":0,"properties":{"topic_alias":5,"a":"b","subscription_identifier":1}}}}"#),
        "{}",
        logs[2]
    );
}

#[test]
fn what_is_out_of_order() {
    let mut talk = Talk::tcp(AppProto::Mqtt, 1883);
    talk.client(b"\xc0\x00").server(b"\xd0\x00").server(CONNACK3).server(b"\x40\x02\x00\x01");
    talk.server(b"\x90\x03\x00\x01\x00").server(b"\xb0\x02\x00\x01");
    // Only a CONNECT after CONNACK is a second one.
    talk.client(CONNECT3).client(CONNECT3).server(CONNACK3).client(CONNECT3).client(b"\x06\x00");
    assert_eq!(
        talk.events(),
        [
            "unintroduced_message",
            "unintroduced_message",
            "missing_connect",
            "missing_publish",
            "unintroduced_message",
            "missing_subscribe",
            "unintroduced_message",
            "missing_unsubscribe",
            "unintroduced_message",
            "double_connect",
            "unassigned_msg_type",
        ]
    );
    // A refused client may continue.
    let mut talk = Talk::tcp(AppProto::Mqtt, 1883);
    talk.client(CONNECT3).server(b"\x20\x02\x00\x05").client(b"\xc0\x00");
    assert_eq!(talk.events(), [""; 0]);
    let mut talk = talk3();
    talk.client(b"\x36\x05\x00\x01a\x00\x07");
    assert_eq!(talk.events(), ["invalid_qos_level"]);
    // Rules inspect the event although the transaction is incomplete.
    assert_eq!((talk.complete()[1], talk.txs()[1].base().updated), ([false, true], [true, false]));
}

#[test]
fn malformed() {
    // A string, properties, and a property: each exceeds the data. Parsing ends.
    for bad in [
        &b"\x10\x03\x00\x06M"[..],
        b"\x30\x04\x00\x01a\x7f",
        b"\x30\x07\x00\x01a\x03\x03\x00\x05",
        b"\x40\x01\x00",
        b"\x20\x01\x00",
    ] {
        let mut talk = talk5();
        talk.client(bad);
        assert_eq!((talk.events(), talk.outcome), (vec!["malformed_traffic"], Outcome::Failed), "{bad:x?}");
        assert_eq!(talk.logs()[1..], [r#"{"mqtt":{}}"#]);
    }
    // A topic that exceeds the message is left out, with everything behind it.
    let mut talk = talk3();
    talk.client(b"\x82\x0b\x00\x01\x00\x01a\x00\x00\x09abc").client(b"\xa2\x06\x00\x02\x00\x03ab");
    assert_eq!((talk.events(), talk.buffers("mqtt.subscribe.topic", ToServer)), (vec![""; 0], vec!["a".to_owned()]));
    assert!(talk.logs()[2].contains(r#""topics":[]"#), "{}", talk.logs()[2]);
    // Without CONNECT, reason codes of UNSUBACK are shown if there are any.
    let mut talk = Talk::tcp(AppProto::Mqtt, 1883);
    talk.server(b"\xb0\x04\x00\x02\x00\x11").server(b"\xb0\x02\x00\x02");
    assert!(
        talk.logs()[0].contains(r#""reason_codes":[0,17]"#) && !talk.logs()[1].contains("codes"),
        "{:?}",
        talk.logs()
    );
    // Unknown properties are skipped byte by byte.
    let mut talk = talk5();
    talk.client(b"\xe0\x07\x00\x05\x7f\x00\x23\x00\x05");
    assert!(talk.logs()[1].ends_with(r#""properties":{"topic_alias":5}}}}"#), "{}", talk.logs()[1]);
    let mut talk = talk5();
    talk.client(b"\x30\xff\xff\xff\xff\x01");
    assert_eq!((talk.events(), talk.outcome), (vec!["malformed_traffic"], Outcome::Failed));
}

#[test]
fn a_message_that_is_too_long() {
    let mut talk = Talk::tcp(AppProto::Mqtt, 1883).set("max-msg-length", 100);
    talk.client(CONNECT3).server(CONNACK3);
    // 200 bytes, with a gap.
    talk.client(b"\x32\xc8\x01").client(&[b'x'; 50]).gap(ToServer, 100);
    talk.client(&[b'x'; 50]).client(b"\xc0\x00");
    assert_eq!(
        talk.logs()[1..],
        [
            r#"{"mqtt":{"publish":{"qos":1,"retain":false,"dup":false,"truncated":true,"skipped_length":203}}}"#,
            r#"{"mqtt":{"pingreq":{"qos":0,"retain":false,"dup":false}}}"#,
        ]
    );
    talk.gap(ToServer, 1);
    assert_eq!(talk.outcome, Outcome::Failed);
}

#[test]
fn requests_that_nobody_answers_are_bounded() {
    let mut talk = Talk::tcp(AppProto::Mqtt, 1883).set("max-tx", 2);
    for id in 0..10 {
        talk.client(&[0x32, 5, 0, 1, b'a', 0, id]);
    }
    assert!(talk.events().contains(&"too_many_transactions"));
    assert_eq!(talk.txs().len(), 2);
    assert_eq!(talk.outcome, Outcome::Full);
}

#[test]
fn what_is_cut_off() {
    let mut talk = talk3();
    talk.client(b"\x30\x1a\x00\x06topic").end();
    assert_eq!(talk.logs().len(), 1);
}

#[test]
fn recognised() {
    assert_eq!(probe(ToServer, CONNECT3), Probed::Yes { reverse: false });
    assert_eq!(probe(ToServer, b"\x10"), Probed::More);
    assert_eq!(probe(ToServer, b"\x10\xff\xff\xff\xff"), Probed::No);
    assert_eq!(probe(ToServer, b"GET / HTTP/1.1"), Probed::No);
}
