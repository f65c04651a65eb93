//! Whole lines of application-layer events. They come from a Suricata 7.0.10 run over one `curl` request through two
//! proxies, with the additions of version 8 (`ip_v`).
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by it")]

use margay_app::AppProto;
use margay_output::eve::Record;
use margay_output::event::*;
use margay_output::fast::FastSettings;
use margay_output::json::Json;
use margay_output::settings::{EveSettings, SinkSettings, Xff, XffMode};
use margay_output::{OutputSettings, Outputs};
use margay_packet::{DecodeConfig, Decoder, Frame, LinkType, Packet, Time};

const TO_SERVER: &str = "0015170d06f7d8cb8aeda146080045000034d2c84000400658a10a10010b52a5b19ab6540050d53fda5bffd7a504801000ed873600000101080a105d8a2d150c248c";
const TO_CLIENT: &str = "d8cb8aeda1460015170d06f7080045000034808840003106b9e152a5b19a0a10010b0050b654ffd7a504d53fda5c8011015486ab00000101080a150c24ae105d8a2d";

fn decode(hex: &str, number: u64, time: Time, f: impl Fn(&Packet<'_>, &mut Outputs), outputs: &mut Outputs) {
    let data: Vec<u8> = (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect();
    let frame = Frame { data: &data, wire_len: data.len() as u32, time, link: LinkType::ETHERNET, number };
    let config = DecodeConfig { ignore_checksums: true, ..DecodeConfig::default() };
    let mut seen = 0;
    Decoder::new(config).decode(&frame, &mut |p: &Packet<'_>| {
        seen += 1;
        f(p, outputs);
    });
    assert_eq!(seen, 1);
}

/// Whether lines can be compared: the golden lines are in UTC.
fn utc() -> bool {
    let mut out = Vec::new();
    margay_output::time::Clock::system().iso(&mut out, Time(0));
    let utc = String::from_utf8(out).unwrap().contains("1970-01-01T00:00:00.000000+0000");
    if !utc {
        println!("not compared: golden lines are in UTC, and the local time is not (set TZ=UTC)");
    }
    utc
}

fn xff(mode: XffMode, forward: bool) -> Option<Xff> {
    Some(Xff { mode, forward, header: "X-Forwarded-For".into() })
}

/// Two outputs, `extra` and `over`, that treat the client's address differently, and `fast`.
fn outputs(dir: &std::path::Path) -> Outputs {
    let eve = |name: &str, mode, change: &dyn Fn(&mut EveSettings)| {
        let mut s = EveSettings::file(dir.join(name), EventType::all().collect());
        s.community_id = true;
        s.xff.alert = xff(mode, false);
        s.xff.http = xff(mode, true);
        s.xff.files = xff(mode, false);
        change(&mut s);
        Box::new(s) as Box<dyn OutputSettings>
    };
    let specs = vec![
        eve("extra", XffMode::ExtraData, &|_| ()),
        eve("over", XffMode::Overwrite, &|_| ()),
        eve("none", XffMode::Overwrite, &|s| {
            s.xff = Default::default();
            s.alert.app_layer = false;
            s.alert.flow = false;
        }),
        Box::new(FastSettings { sink: SinkSettings::file(dir.join("fast")) }),
    ];
    Outputs::new(specs, Time(0), 1).unwrap()
}

fn read(dir: &std::path::Path, outputs: &mut Outputs, name: &str) -> Vec<String> {
    outputs.flush();
    let lines: Vec<String> = std::fs::read_to_string(dir.join(name)).unwrap().lines().map(String::from).collect();
    if name != "fast" {
        lines.iter().for_each(|l| drop(serde_json::from_str::<serde_json::Value>(l).unwrap()));
    }
    lines
}

/// The request's header: `10.2.2.2, 10.3.3.3`.
fn find(header: &str, forward: bool) -> Option<std::net::IpAddr> {
    assert_eq!(header, "X-Forwarded-For");
    Some(if forward { [10, 2, 2, 2].into() } else { [10, 3, 3, 3].into() })
}

fn http(j: &mut Json) {
    j.object("http");
    j.str("hostname", "www.testmyids.com");
    j.end_object();
}

#[test]
fn alerts_with_their_transaction() {
    if !utc() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut o = outputs(dir.path());
    let time = Time::new(1_518_814_152, 820_418);
    decode(
        TO_CLIENT,
        9,
        time,
        |p, o| {
            let of_flow = |j: &mut Json, n: usize| {
                assert_ne!(n, 2, "where metadata is off nothing is made");
                http(j);
                j.array("files");
                j.item_object();
                j.str("filename", "/");
                j.end_object();
                j.end_array();
            };
            o.alert(&AlertEvent {
                place: (0, 1),
                header: Header { flow_id: Some(88172089860196), ..Header::of(p) },
                packet: p,
                signature: Signature {
                    gid: 1,
                    id: 1,
                    rev: 1,
                    msg: Some(b"body"),
                    priority: 3,
                    target: Some(Target::Dest),
                    ..Signature::default()
                },
                blocked: false,
                would_drop: false,
                engine: None,
                tx_id: Some((0, true)),
                xff: Some(Forwarded { direction: Direction::ToClient, find: &find }),
                context: None,
                progress: Some(("request_complete", "response_complete")),
                app: Some(&of_flow),
                files: None,
                app_protos: AppProtos::new(Some("http"), [Some("http"), Some("failed")], None, None),
                direction: Some(Direction::ToClient),
                flow: Some(FlowSummary {
                    pkts: [5, 4],
                    bytes: [456, 522],
                    start: Time::new(1_518_814_152, 413_745),
                    addresses: Addresses { src: p.dst, sport: p.dport, dst: p.src, dport: p.sport, proto: 6 },
                    dropped: false,
                    passed: false,
                }),
                payload: None,
                verdict: None,
                capture_file: None,
            });
        },
        &mut o,
    );
    let line = |dest: &str, target: &str, xff: &str, rest: &str| {
        format!(
            r#"{{"timestamp":"2018-02-16T20:49:12.820418+0000","flow_id":88172089860196,"pcap_cnt":9,"event_type":"alert","src_ip":"82.165.177.154","src_port":80,"dest_ip":"{dest}","dest_port":46676,"proto":"TCP","ip_v":4,"pkt_src":"wire/pcap","community_id":"1:OfqJa/tB2MEP1/pGwnAEi9qps2U=","tx_id":0,"tx_guessed":true,"alert":{{"action":"allowed","gid":1,"signature_id":1,"rev":1,"signature":"body","category":"","severity":3,"source":{{"ip":"82.165.177.154","port":80}},"target":{{"ip":"{target}","port":46676}}{xff}}},"ts_progress":"request_complete","tc_progress":"response_complete"{rest}}}"#
        )
    };
    let app = r#","http":{"hostname":"www.testmyids.com"},"files":[{"filename":"/"}],"app_proto":"http","app_proto_tc":"failed","direction":"to_client""#;
    let flow = |client: &str| {
        format!(
            r#"{app},"flow":{{"pkts_toserver":5,"pkts_toclient":4,"bytes_toserver":456,"bytes_toclient":522,"start":"2018-02-16T20:49:12.413745+0000","src_ip":"{client}","dest_ip":"82.165.177.154","src_port":46676,"dest_port":80}}"#
        )
    };
    let (own, proxied, member) = ("10.16.1.11", "10.3.3.3", r#","xff":"10.3.3.3""#);
    assert_eq!(read(dir.path(), &mut o, "extra"), [line(own, own, member, &flow(own))]);
    assert_eq!(read(dir.path(), &mut o, "over"), [line(proxied, proxied, member, &flow(proxied))]);
    assert_eq!(
        read(dir.path(), &mut o, "none"),
        [line(own, own, "", r#","app_proto":"http","app_proto_tc":"failed","direction":"to_client""#)]
    );
    let fast = read(dir.path(), &mut o, "fast");
    assert!(fast[0].ends_with("{TCP} 82.165.177.154:80 -> 10.16.1.11:46676"), "{}", fast[0]);
}

#[test]
fn transactions_and_files() {
    if !utc() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut o = outputs(dir.path());
    let client = |direction| Some(Forwarded { direction, find: &find });
    decode(
        TO_SERVER,
        7,
        Time::new(1_518_814_152, 686_413),
        |p, o| {
            o.app(&AppEvent {
                kind: EventType::App(AppProto::Http1),
                header: Header { flow_id: Some(88172089860196), ..Header::of(p) },
                tx_id: Some((0, false)),
                direction: None,
                xff: client(Direction::ToServer),
                records: ONE_RECORD,
                fields: &|j, _, _| http(j),
                ask: None,
            });
            // DNS has no proxies, so nothing asks for the address.
            o.app(&AppEvent {
                kind: EventType::App(AppProto::Dns),
                header: Header::of(p),
                tx_id: None,
                direction: None,
                xff: Some(Forwarded { direction: Direction::ToServer, find: &|_, _| panic!() }),
                records: ONE_RECORD,
                fields: &|j, _, _| j.json("dns", b"{}"),
                ask: None,
            });
        },
        &mut o,
    );
    decode(
        TO_CLIENT,
        9,
        Time::new(1_518_814_152, 820_418),
        |p, o| {
            o.app(&AppEvent {
                kind: EventType::Fileinfo,
                header: Header { flow_id: Some(88172089860196), ..Header::of(p) },
                tx_id: None,
                direction: None,
                xff: client(Direction::ToClient),
                records: ONE_RECORD,
                fields: &|j, _, _| {
                    http(j);
                    j.str("app_proto", "http");
                    j.json("fileinfo", br#"{"filename":"/"}"#);
                },
                ask: None,
            });
        },
        &mut o,
    );
    let http = |client: &str, xff: &str| {
        format!(
            r#"{{"timestamp":"2018-02-16T20:49:12.686413+0000","flow_id":88172089860196,"pcap_cnt":7,"event_type":"http","src_ip":"{client}","src_port":46676,"dest_ip":"82.165.177.154","dest_port":80,"proto":"TCP","ip_v":4,"pkt_src":"wire/pcap","community_id":"1:OfqJa/tB2MEP1/pGwnAEi9qps2U=","tx_id":0,"http":{{"hostname":"www.testmyids.com"}}{xff}}}"#
        )
    };
    let file = |client: &str, xff: &str| {
        format!(
            r#"{{"timestamp":"2018-02-16T20:49:12.820418+0000","flow_id":88172089860196,"pcap_cnt":9,"event_type":"fileinfo","src_ip":"82.165.177.154","src_port":80,"dest_ip":"{client}","dest_port":46676,"proto":"TCP","ip_v":4,"pkt_src":"wire/pcap","community_id":"1:OfqJa/tB2MEP1/pGwnAEi9qps2U=","http":{{"hostname":"www.testmyids.com"}},"app_proto":"http","fileinfo":{{"filename":"/"}}{xff}}}"#
        )
    };
    let own = "10.16.1.11";
    let mut lines = |name: &str| {
        let mut l = read(dir.path(), &mut o, name);
        assert_eq!(l.len(), 3);
        assert!(l.remove(1).ends_with(r#""dns":{}}"#));
        l
    };
    assert_eq!(lines("extra"), [http(own, r#","xff":"10.2.2.2""#), file(own, r#","xff":"10.3.3.3""#)]);
    assert_eq!(lines("over"), [http("10.2.2.2", ""), file("10.3.3.3", "")]);
    assert_eq!(lines("none"), [http(own, ""), file(own, "")]);
}

#[test]
fn records_of_stored_files() {
    if !utc() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for (mode, client, member) in
        [(XffMode::ExtraData, "10.16.1.11", r#","xff":"10.3.3.3""#), (XffMode::Overwrite, "10.3.3.3", "")]
    {
        let record = std::cell::RefCell::new(Record::new(xff(mode, false)));
        decode(
            TO_CLIENT,
            9,
            Time::new(1_518_814_152, 820_418),
            |p, _| {
                let event = AppEvent {
                    kind: EventType::Fileinfo,
                    header: Header { flow_id: Some(88174638900133), ..Header::of(p) },
                    tx_id: None,
                    direction: None,
                    xff: Some(Forwarded { direction: Direction::ToClient, find: &find }),
                    records: ONE_RECORD,
                    fields: &|j, n, _| {
                        assert_eq!(n, usize::MAX, "a record is of no eve-log");
                        j.json("fileinfo", br#"{"filename":"/"}"#);
                    },
                    ask: None,
                };
                // Render twice, because the buffer is reused.
                record.borrow_mut().render(&event);
                let mut record = record.borrow_mut();
                let line = std::str::from_utf8(record.render(&event)).unwrap();
                assert_eq!(
                    line,
                    format!(
                        r#"{{"timestamp":"2018-02-16T20:49:12.820418+0000","flow_id":88174638900133,"pcap_cnt":9,"event_type":"fileinfo","src_ip":"82.165.177.154","src_port":80,"dest_ip":"{client}","dest_port":46676,"proto":"TCP","ip_v":4,"pkt_src":"wire/pcap","fileinfo":{{"filename":"/"}}{member}}}"#
                    )
                );
            },
            &mut outputs(dir.path()),
        );
    }
}

#[test]
fn anomalies_of_parsers_and_of_recognition() {
    if !utc() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut o = outputs(dir.path());
    decode(
        TO_CLIENT,
        6,
        Time::new(1_703_160_448, 755_527),
        |p, o| {
            let header = Header { flow_id: Some(148250552598876), ..Header::of(p) };
            for (event, layer, tx_id) in [
                ("REQUEST_FIELD_MISSING_COLON", "proto_parser", Some(0)),
                ("APPLAYER_DETECT_PROTOCOL_ONLY_ONE_DIRECTION", "proto_detect", None),
            ] {
                let anomaly = Anomaly::AppLayer { event, app_proto: "http", layer };
                o.anomaly(&AnomalyEvent { header, anomaly, tx_id, packet: Some(p) });
            }
        },
        &mut o,
    );
    let line = |rest: &str| {
        format!(
            r#"{{"timestamp":"2023-12-21T12:07:28.755527+0000","flow_id":148250552598876,"pcap_cnt":6,"event_type":"anomaly","src_ip":"82.165.177.154","src_port":80,"dest_ip":"10.16.1.11","dest_port":46676,"proto":"TCP","ip_v":4,"pkt_src":"wire/pcap","community_id":"1:OfqJa/tB2MEP1/pGwnAEi9qps2U=",{rest}}}"#
        )
    };
    assert_eq!(
        read(dir.path(), &mut o, "extra"),
        [
            line(
                r#""tx_id":0,"anomaly":{"app_proto":"http","type":"applayer","event":"REQUEST_FIELD_MISSING_COLON","layer":"proto_parser"}"#
            ),
            line(
                r#""anomaly":{"app_proto":"http","type":"applayer","event":"APPLAYER_DETECT_PROTOCOL_ONLY_ONE_DIRECTION","layer":"proto_detect"}"#
            ),
        ]
    );
}

#[test]
fn protocols_of_a_flow() {
    let p = AppProtos::new(Some("http"), [Some("http"), Some("ssh")], None, None);
    assert_eq!((p.proto, p.to_server, p.to_client, p.original), (Some("http"), None, Some("ssh"), None));
    let p = AppProtos::new(Some("tls"), [Some("tls"), None], Some("smtp"), Some("tls"));
    assert_eq!((p.to_server, p.to_client, p.original, p.expected), (None, None, Some("smtp"), None));
    let p = AppProtos::new(None, [None; 2], None, None);
    assert_eq!((p.proto, p.to_server), (None, None));
}
