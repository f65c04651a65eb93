//! Whole lines, byte for byte. Frames and lines come from Suricata runs, with the additions of version 8 (`ip_v`,
//! `linktype_name`).
#![allow(clippy::unwrap_used)]

use margay_app::AppProto;
use margay_output::eve::metadata_json;
use margay_output::event::*;
use margay_output::fast::FastSettings;
use margay_output::settings::{EveSettings, SinkSettings, StatsOptions, Xff, XffMode};
use margay_output::{OutputSettings, Outputs};
use margay_packet::{DecodeConfig, Decoder, Frame, LinkType, Packet, Time};

const MACS_V4: &str = "0001020304051011121314150800";
const MACS_V6: &str = "00010203040510111213141586dd";

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()).collect()
}

/// Decodes one Ethernet frame; `f` sees every packet in it.
fn decode(hex: &str, number: u64, time: Time, mut f: impl FnMut(&Packet<'_>)) {
    let data = unhex(hex);
    let frame = Frame { data: &data, wire_len: data.len() as u32, time, link: LinkType::ETHERNET, number };
    let config = DecodeConfig { ignore_checksums: true, ..DecodeConfig::default() };
    Decoder::new(config).decode(&frame, &mut |p: &Packet<'_>| f(p));
}

struct Run {
    dir: tempfile::TempDir,
    outputs: Outputs,
}

/// Outputs with every option on. They write to `eve.json` and `fast.log`.
fn run(change: impl FnOnce(&mut EveSettings)) -> Run {
    let dir = tempfile::tempdir().unwrap();
    let types: EventTypes = EventType::all().collect();
    let mut eve = EveSettings::file(dir.path().join("eve.json"), types);
    eve.pcap_file = true;
    eve.community_id = true;
    eve.ethernet = true;
    eve.alert.payload = true;
    eve.alert.payload_printable = true;
    eve.alert.packet = true;
    eve.alert.verdict = true;
    eve.alert.rule_raw = true;
    eve.anomaly.decode = true;
    eve.anomaly.stream = true;
    eve.anomaly.packethdr = true;
    eve.drop.alerts = true;
    eve.drop.all = true;
    eve.drop.verdict = true;
    eve.flow.exception_policy = true;
    change(&mut eve);
    let fast = SinkSettings::file(dir.path().join("fast.log"));
    let specs: Vec<Box<dyn OutputSettings>> = vec![Box::new(eve), Box::new(FastSettings { sink: fast })];
    let outputs = Outputs::new(specs, Time(0), 1).unwrap();
    Run { dir, outputs }
}

impl Run {
    fn read(&mut self, name: &str) -> Vec<String> {
        self.outputs.flush();
        let text = std::fs::read_to_string(self.dir.path().join(name)).unwrap();
        assert!(text.is_empty() || text.ends_with('\n'));
        text.lines().map(String::from).collect()
    }

    fn eve(&mut self) -> Vec<String> {
        let lines = self.read("eve.json");
        for l in &lines {
            serde_json::from_str::<serde_json::Value>(l).unwrap();
        }
        lines
    }
}

/// Golden lines are in UTC. The tests of `time` cover other zones.
fn utc() -> bool {
    let utc = line_of_zero().contains("1970-01-01T00:00:00.000000+0000");
    if !utc {
        println!("not compared: golden lines are in UTC, and the local time is not (set TZ=UTC)");
    }
    utc
}

fn line_of_zero() -> String {
    let mut out = Vec::new();
    margay_output::time::Clock::system().iso(&mut out, Time(0));
    String::from_utf8(out).unwrap()
}

fn any() -> Signature<'static> {
    Signature {
        gid: 1,
        id: 1,
        msg: Some(b"any"),
        priority: 3,
        rule: b"drop ip any any -> any any (sid:1;)",
        ..Signature::default()
    }
}

fn verdict(action: Verdict) -> Option<VerdictInfo<'static>> {
    Some(VerdictInfo { action, reject: None })
}
fn summary(pkts: [u64; 2], bytes: [u64; 2], start: Time, addresses: Addresses) -> FlowSummary {
    FlowSummary { pkts, bytes, start, addresses, dropped: false, passed: false }
}

fn alert<'a>(p: &'a Packet<'a>, signature: Signature<'a>) -> AlertEvent<'a> {
    AlertEvent {
        place: (0, 1),
        header: Header::of(p),
        packet: p,
        signature,
        blocked: false,
        would_drop: false,
        engine: None,
        tx_id: None,
        xff: None,
        context: None,
        progress: None,
        app: None,
        files: None,
        app_protos: AppProtos::default(),
        direction: None,
        flow: None,
        payload: None,
        verdict: verdict(Verdict::Alert),
        capture_file: None,
    }
}

fn drop_line(hex: &str, n: u64, flow: Option<u64>, reason: &str) -> String {
    let mut r = run(|_| ());
    decode(hex, n, Time::new(999 + n as i64, 123), |p| {
        let header = Header { flow_id: flow, pcap_filename: Some("drops.pcap"), ..Header::of(p) };
        r.outputs.dropped(&DropEvent {
            header,
            packet: p,
            reason,
            direction: flow.map(|_| Direction::ToServer),
            first_of_flow: true,
            tx_id: None,
            alert: Some((any(), true)),
            verdict: verdict(Verdict::Drop),
        });
    });
    r.eve().remove(0)
}

const ETHER: &str = r#""ether":{"src_mac":"10:11:12:13:14:15","dest_mac":"00:01:02:03:04:05"}"#;
const TAIL: &str = concat!(
    r#""verdict":{"action":"drop"},"alert":{"action":"blocked","gid":1,"signature_id":1,"rev":0,"signature":"any","#,
    r#""category":"","severity":3},"pcap_filename":"drops.pcap"}"#
);

#[test]
fn drops_show_headers() {
    if !utc() {
        return;
    }
    let icmp = format!("{MACS_V4}450000240001000040010000010101010202020208000000123400076162636465666768");
    assert_eq!(
        drop_line(&icmp, 1, Some(528481597497), "rules"),
        format!(
            r#"{{"timestamp":"1970-01-01T00:16:40.000123+0000","flow_id":528481597497,"pcap_cnt":1,"event_type":"drop","src_ip":"1.1.1.1","dest_ip":"2.2.2.2","proto":"ICMP","ip_v":4,"icmp_type":8,"icmp_code":0,"pkt_src":"wire/pcap",{ETHER},"community_id":"1:S8recDthFFl6KMmgHjdsjS3rnv8=","direction":"to_server","drop":{{"len":36,"tos":0,"ttl":64,"ipid":1,"icmp_id":13330,"icmp_seq":1792,"reason":"rules"}},{TAIL}"#
        )
    );
    let unreachable = format!(
        "{MACS_V4}45000044000100004001000001010102020202020303000000000000450000280001000040110000020202020101010100351388001400006162636465666768696a6b6c"
    );
    assert_eq!(
        drop_line(&unreachable, 3, None, "rules"),
        format!(
            r#"{{"timestamp":"1970-01-01T00:16:42.000123+0000","pcap_cnt":3,"event_type":"drop","src_ip":"1.1.1.2","dest_ip":"2.2.2.2","proto":"ICMP","ip_v":4,"icmp_type":3,"icmp_code":3,"pkt_src":"wire/pcap",{ETHER},"drop":{{"len":68,"tos":0,"ttl":64,"ipid":1,"icmp_id":0,"icmp_seq":0,"reason":"rules"}},{TAIL}"#
        )
    );
    let tcp6 = format!(
        "{MACS_V6}600123450014063f00000000000000000000000000000001000000000000000000000000000000020400005000000007000000095fff03e80000004d"
    );
    assert_eq!(
        drop_line(&tcp6, 8, Some(1970855314279086), "stream error"),
        format!(
            r#"{{"timestamp":"1970-01-01T00:16:47.000123+0000","flow_id":1970855314279086,"pcap_cnt":8,"event_type":"drop","src_ip":"0000:0000:0000:0000:0000:0000:0000:0001","src_port":1024,"dest_ip":"0000:0000:0000:0000:0000:0000:0000:0002","dest_port":80,"proto":"TCP","ip_v":6,"pkt_src":"wire/pcap",{ETHER},"community_id":"1:b2QB6dOuADKD0HR1vMtM2+oA928=","direction":"to_server","drop":{{"len":20,"tc":0,"hoplimit":63,"flowlbl":74565,"tcpseq":7,"tcpack":9,"tcpwin":1000,"syn":true,"ack":true,"psh":true,"rst":true,"urg":true,"fin":true,"tcpres":15,"tcpurgp":77,"reason":"stream error"}},{TAIL}"#
        )
    );
    let udp6 = format!(
        "{MACS_V6}600123450014113f000000000000000000000000000000010000000000000000000000000000000200351388001400006162636465666768696a6b6c"
    );
    assert_eq!(
        drop_line(&udp6, 9, Some(530051409147), "rules"),
        format!(
            r#"{{"timestamp":"1970-01-01T00:16:48.000123+0000","flow_id":530051409147,"pcap_cnt":9,"event_type":"drop","src_ip":"0000:0000:0000:0000:0000:0000:0000:0001","src_port":53,"dest_ip":"0000:0000:0000:0000:0000:0000:0000:0002","dest_port":5000,"proto":"UDP","ip_v":6,"pkt_src":"wire/pcap",{ETHER},"community_id":"1:c1m4s0sWodU7/0VDjgTHNhAeCLY=","direction":"to_server","drop":{{"len":20,"tc":0,"hoplimit":63,"flowlbl":74565,"udplen":20,"reason":"rules"}},{TAIL}"#
        )
    );
}

#[test]
fn only_the_first_drop_of_a_flow_unless_all_are_wanted() {
    let mut r = run(|s| s.drop.all = false);
    decode(&format!("{MACS_V4}450000180001000040fd0000010101090202020200001234"), 1, Time(0), |p| {
        for first_of_flow in [true, false] {
            r.outputs.dropped(&DropEvent {
                header: Header::of(p),
                packet: p,
                reason: "flow drop",
                direction: None,
                first_of_flow,
                tx_id: None,
                alert: None,
                verdict: Some(VerdictInfo {
                    action: Verdict::Drop,
                    reject: Some((RejectTarget::ToClient, &["tcp-reset"])),
                }),
            });
        }
    });
    let lines = r.eve();
    assert_eq!(lines.len(), 1);
    assert!(lines[0].contains(r#""proto":"253","ip_v":4"#), "{}", lines[0]);
    assert!(
        lines[0].contains(r#""verdict":{"action":"drop","reject-target":"to_client","reject":["tcp-reset"]}"#),
        "{}",
        lines[0]
    );
}

#[test]
fn an_alert_with_everything() {
    if !utc() {
        return;
    }
    // ESP in its place would show no payload, so this is the DNS packet with sid 2 of another run, shortened.
    let hex = format!("{MACS_V4}4500002800010000401100000a1001010a10010b003513880014000061626322646566675c696a0a");
    let reference = "https://example.com".to_owned();
    let metadata = metadata_json(&[("b", "1"), ("a", "2"), ("b", "3"), ("c", "4"), ("a", "5")]).unwrap();
    let mut r = run(|s| {
        s.alert.rule_reference = true;
        s.alert.payload_length = true;
        s.xff.alert = Some(Xff { mode: XffMode::ExtraData, forward: true, header: "X-Forwarded-For".into() });
        s.version = Some("8.0.6".into());
        s.sensor_name = Some("lab".into());
    });
    decode(&hex, 7, Time::new(1_464_132_421, 960_780), |p| {
        let mut e = alert(
            p,
            Signature {
                gid: 1,
                id: 2,
                rev: 3,
                msg: Some("test \"udp\" \\ x / y \u{e9}".as_bytes()),
                category: Some("Attempted Administrator Privilege Gain"),
                priority: 1,
                text: None,
                metadata: Some(&metadata),
                references: std::slice::from_ref(&reference),
                rule: b"alert udp any any -> any any (msg:\"test\"; sid:2;)",
                target: Some(Target::Dest),
            },
        );
        e.header.flow_id = Some(42);
        e.header.in_iface = Some("eth0");
        e.header.vars = Vars {
            flowbits: &["abc", "traffic/id/curl", "traffic/label/cli"],
            flowints: &[("foo", 3)],
            pktvars: &[Var::Named("uid", b"0"), Var::KeyValue(b"k\x01\"", b"\xc3v\n")],
            flowvars: &[Var::KeyValue(b"Mozilla", b"5.0")],
            entropy: &[("file_data", 4.150007324019584)],
        };
        e.tx_id = Some((0, true));
        let find = |_: &str, forward: bool| forward.then(|| [10, 2, 2, 2].into());
        e.xff = Some(Forwarded { direction: Direction::ToClient, find: &find });
        e.progress = Some(("request_complete", "response_complete"));
        let app = |j: &mut margay_output::json::Json, n: usize| {
            assert_eq!(n, 0);
            j.object("dns");
            j.uint("version", 3);
            j.end_object();
        };
        e.app = Some(&app);
        e.app_protos.proto = Some("dns");
        e.direction = Some(Direction::ToClient);
        let addresses = Addresses { src: p.dst, sport: p.dport, dst: p.src, dport: p.sport, proto: 17 };
        e.flow = Some(summary([1, 2], [81, 100], Time::new(1_464_132_421, 960_780), addresses));
        e.payload = Some(Payload { data: p.payload(), stream: false });
        r.outputs.alert(&e);
    });
    let want = concat!(
        r#"{"timestamp":"2016-05-24T23:27:01.960780+0000","flow_id":42,"in_iface":"eth0","pcap_cnt":7,"event_type":"alert","src_ip":"10.16.1.1","src_port":53,"dest_ip":"10.16.1.11","dest_port":5000,"proto":"UDP","ip_v":4,"pkt_src":"wire/pcap","#,
        r#""traffic":{"id":["curl"],"label":["cli"]},"metadata":{"flowbits":["abc"],"pktvars":[{"uid":"0"},{"k.\"":".v\n"}],"flowvars":[{"key":"Mozilla"},{"value":"5.0"}],"flowints":{"foo":3},"entropy":{"file_data":4.150007324019584}},"#,
        r#""ether":{"src_mac":"10:11:12:13:14:15","dest_mac":"00:01:02:03:04:05"},"community_id":"#,
    );
    let line = r.eve().remove(0);
    assert_eq!(&line[..want.len()], want);
    let want = concat!(
        r#","tx_id":0,"tx_guessed":true,"alert":{"action":"allowed","gid":1,"signature_id":2,"rev":3,"signature":"test \"udp\" \\ x / y é","category":"Attempted Administrator Privilege Gain","severity":1,"source":{"ip":"10.16.1.1","port":53},"target":{"ip":"10.16.1.11","port":5000},"metadata":{"a":["5","2"],"b":["3","1"],"c":["4"]},"rule":"alert udp any any -> any any (msg:\"test\"; sid:2;)","references":["https://example.com"],"xff":"10.2.2.2"},"#,
        r#""ts_progress":"request_complete","tc_progress":"response_complete","dns":{"version":3},"app_proto":"dns","direction":"to_client","flow":{"pkts_toserver":1,"pkts_toclient":2,"bytes_toserver":81,"bytes_toclient":100,"start":"2016-05-24T23:27:01.960780+0000","src_ip":"10.16.1.11","dest_ip":"10.16.1.1","src_port":5000,"dest_port":53},"#,
        r#""payload":"YWJjImRlZmdcaWoK","payload_length":12,"payload_printable":"abc\"defg\\ij\n","stream":0,"packet":"AAECAwQFEBESExQVCABFAAAoAAEAAEARAAAKEAEBChABCwA1E4gAFAAAYWJjImRlZmdcaWoK","packet_info":{"linktype":1,"linktype_name":"EN10MB"},"verdict":{"action":"alert"},"suricata_version":"8.0.6","host":"lab"}"#,
    );
    assert!(line.ends_with(want), "{line}\n{want}");
}

#[test]
fn a_packet_in_a_tunnel() {
    let hex = "0a00270000010a002700000086dd600000000034047f20010db885a3000000008a2e0370733420010db885a3000000008a2e037073354580003404d200007f06226e0a0100010a010002005000500001f7fa00000000500004005eec000068656c6c6f2c20776f726c64";
    let mut r = run(|_| ());
    decode(hex, 1, Time::new(2, 0), |p| {
        let mut e = alert(p, any());
        e.header.flow_id = Some(5);
        e.payload = Some(Payload { data: p.payload(), stream: false });
        r.outputs.alert(&e);
    });
    let lines = r.eve();
    assert_eq!(lines.len(), 2);
    let inner = r#""event_type":"alert","src_ip":"10.1.0.1","src_port":80,"dest_ip":"10.1.0.2","dest_port":80,"proto":"TCP","ip_v":4,"pkt_src":"ipv6 tunnel","community_id":"1:M7dyinUW4uvztTUmaRLmEQA+qw4=","alert":{"#;
    assert!(lines[0].contains(inner), "{}", lines[0]);
    assert!(!lines[0].contains(r#""flow_id":5,"pcap_cnt""#));
    let tunnel = r#""tunnel":{"src_ip":"2001:0db8:85a3:0000:0000:8a2e:0370:7334","src_port":0,"dest_ip":"2001:0db8:85a3:0000:0000:8a2e:0370:7335","dest_port":0,"proto":"IP-in-IP","depth":1,"pcap_cnt":1,"pkt_src":"wire/pcap"},"payload":"aGVsbG8sIHdvcmxk","payload_printable":"hello, world","stream":0,"packet":"RYAANATSAAB/BiJu"#;
    assert!(lines[0].contains(tunnel), "{}", lines[0]);
    assert!(lines[1].contains(r#""proto":"IP-in-IP","ip_v":6,"pkt_src":"wire/pcap""#), "{}", lines[1]);
}

/// An ICMP error belongs to the flow that it reports on, and shows none of its ports.
#[test]
fn an_error_about_a_flow() {
    let hex = "00112233445566778899aabb08004500003800000000400100000a0000010a00000203030000000000004500001c00000000401100000a0000020a0000011388003500080000";
    let mut r = run(|_| ());
    decode(hex, 1, Time::new(2, 0), |p| {
        let addresses =
            Addresses { src: [10, 0, 0, 2].into(), sport: 5000, dst: [10, 0, 0, 1].into(), dport: 53, proto: 17 };
        let flow = Some(summary([1, 1], [42, 70], Time::new(1, 0), addresses));
        r.outputs.alert(&AlertEvent { flow, ..alert(p, any()) });
    });
    let lines = r.eve();
    assert_eq!(lines.len(), 1);
    assert!(lines[0].contains(r#""src_ip":"10.0.0.2","dest_ip":"10.0.0.1"}"#), "{}", lines[0]);
    assert!(!lines[0].contains("_port"), "{}", lines[0]);
}

#[test]
fn what_is_not_ip() {
    if !utc() {
        return;
    }
    let mut r = run(|_| ());
    decode("000102", 15, Time::new(1014, 123), |p| {
        let mut e = alert(p, Signature { rule: b"r", ..any() });
        e.header.pcap_filename = Some("esc.pcap");
        r.outputs.alert(&e);
        for &event in p.events.as_slice() {
            let mut header = Header::of(p);
            header.pcap_filename = Some("esc.pcap");
            let anomaly = Anomaly::Decode(event.name());
            r.outputs.anomaly(&AnomalyEvent { header, anomaly, tx_id: None, packet: Some(p) });
        }
    });
    assert_eq!(
        r.eve(),
        [
            r#"{"timestamp":"1970-01-01T00:16:54.000123+0000","pcap_cnt":15,"event_type":"alert","pkt_src":"wire/pcap","alert":{"action":"allowed","gid":1,"signature_id":1,"rev":0,"signature":"any","category":"","severity":3,"rule":"r"},"packet":"AAEC","packet_info":{"linktype":1,"linktype_name":"EN10MB"},"verdict":{"action":"alert"},"pcap_filename":"esc.pcap"}"#,
            r#"{"timestamp":"1970-01-01T00:16:54.000123+0000","pcap_cnt":15,"event_type":"anomaly","pkt_src":"wire/pcap","anomaly":{"type":"decode","event":"decoder.ethernet.pkt_too_small"},"packet":"AAEC","packet_info":{"linktype":1,"linktype_name":"EN10MB"},"pcap_filename":"esc.pcap"}"#,
        ]
    );
    assert_eq!(
        r.read("fast.log"),
        [
            "01/01/1970-00:16:54.000123  [**] [1:1:0] any [**] [Classification: (null)] [Priority: 3] [**] [Raw pkt: 00 01 02 ] [pcap file packet: 15]"
        ]
    );
}

#[test]
fn anomalies_of_each_kind_by_option() {
    let mut r = run(|s| s.anomaly.stream = false);
    let e = |anomaly| AnomalyEvent { header: Header::default(), anomaly, tx_id: Some(0), packet: None };
    let app = Anomaly::AppLayer { event: "TRUNCATED_LINE", app_proto: "smtp", layer: "proto_parser" };
    r.outputs.anomaly(&e(Anomaly::Stream("pkt_invalid_timestamp")));
    r.outputs.anomaly(&e(app));
    r.outputs.anomaly(&e(Anomaly::Unknown { kind: AnomalyKind::Decode, code: 250 }));
    let lines = r.eve();
    assert_eq!(lines.len(), 2);
    let want = r#""tx_id":0,"anomaly":{"app_proto":"smtp","type":"applayer","event":"TRUNCATED_LINE","layer":"proto_parser"}}"#;
    assert!(lines[0].ends_with(want), "{}", lines[0]);
    assert!(lines[1].ends_with(r#""anomaly":{"type":"decode","code":250}}"#), "{}", lines[1]);
}

#[test]
fn fast_log() {
    if !utc() {
        return;
    }
    let mut r = run(|_| ());
    let icmp = format!(
        "{MACS_V6}6001234500103a3f000000000000000000000000000000010000000000000000000000000000000280000000123400076162636465666768"
    );
    decode(&icmp, 5, Time::new(1004, 123), |p| {
        r.outputs.alert(&AlertEvent { blocked: true, ..alert(p, any()) });
        r.outputs.alert(&alert(p, Signature { msg: None, ..any() }));
        let category = Some("Misc activity");
        r.outputs
            .alert(&AlertEvent { would_drop: true, ..alert(p, Signature { category, msg: Some(b"a\nb"), ..any() }) });
    });
    let addresses =
        "{IPv6-ICMP} 0000:0000:0000:0000:0000:0000:0000:0001:128 -> 0000:0000:0000:0000:0000:0000:0000:0002:0";
    assert_eq!(
        r.read("fast.log"),
        [
            format!(
                "01/01/1970-00:16:44.000123  [Drop] [**] [1:1:0] any [**] [Classification: (null)] [Priority: 3] {addresses}"
            ),
            format!(
                "01/01/1970-00:16:44.000123  [**] [1:1:0] (null) [**] [Classification: (null)] [Priority: 3] {addresses}"
            ),
            format!(
                "01/01/1970-00:16:44.000123  [wDrop] [**] [1:1:0] a b [**] [Classification: Misc activity] [Priority: 3] {addresses}"
            ),
        ]
    );
}

fn flow<'a>(src: &'a [[u8; 6]], dst: &'a [[u8; 6]]) -> FlowEvent<'a> {
    let addresses = Addresses {
        src: "1.1.1.1".parse().unwrap(),
        sport: 1000,
        dst: "2.2.2.2".parse().unwrap(),
        dport: 80,
        proto: 6,
    };
    FlowEvent {
        header: Header {
            time: Time::new(1000, 123),
            flow_id: Some(528657444521),
            addresses: Some(addresses),
            ether: Ether::Flow { src, dst },
            pcap_filename: Some("esc.pcap"),
            ..Header::default()
        },
        app_protos: AppProtos { proto: Some("http"), ..AppProtos::default() },
        pkts: [4, 3],
        bytes: [284, 200],
        start: Time::new(1000, 123),
        end: Time::new(1006, 123),
        state: "established",
        reason: "shutdown",
        alerted: true,
        action: None,
        emergency: false,
        bypass: None,
        bypassed: None,
        exception_policies: &[],
        tx_cnt: 0,
        elephant: false,
        ttl: [(64, 64), (64, 64)],
        tcp: Some(TcpSummary {
            flags: [0x1a, 0x1a],
            state: Some("established"),
            gap: [false; 2],
            max_regions: [1, 1],
            urgent_oob: [0; 2],
        }),
    }
}

#[test]
fn flows_and_netflows() {
    if !utc() {
        return;
    }
    let (a, b) = ([0x10, 0x11, 0x12, 0x13, 0x14, 0x15], [0, 1, 2, 3, 4, 5]);
    let (src, dst) = ([a, b], [b, a]);
    let mut r = run(|_| ());
    r.outputs.flow(&flow(&src, &dst));
    r.outputs.netflow(&flow(&src, &dst));
    assert_eq!(
        r.eve(),
        [
            r#"{"timestamp":"1970-01-01T00:16:40.000123+0000","flow_id":528657444521,"event_type":"flow","src_ip":"1.1.1.1","src_port":1000,"dest_ip":"2.2.2.2","dest_port":80,"proto":"TCP","ip_v":4,"app_proto":"http","flow":{"pkts_toserver":4,"pkts_toclient":3,"bytes_toserver":284,"bytes_toclient":200,"start":"1970-01-01T00:16:40.000123+0000","end":"1970-01-01T00:16:46.000123+0000","age":6,"state":"established","reason":"shutdown","alerted":true},"ether":{"dest_macs":["00:01:02:03:04:05","10:11:12:13:14:15"],"src_macs":["10:11:12:13:14:15","00:01:02:03:04:05"]},"community_id":"1:Q4YdgPC73uffZyJRUQ9BiPKu3tM=","tcp":{"tcp_flags":"1a","tcp_flags_ts":"1a","tcp_flags_tc":"1a","syn":true,"psh":true,"ack":true,"state":"established","ts_max_regions":1,"tc_max_regions":1},"pcap_filename":"esc.pcap"}"#,
            r#"{"timestamp":"1970-01-01T00:16:40.000123+0000","flow_id":528657444521,"event_type":"netflow","src_ip":"1.1.1.1","src_port":1000,"dest_ip":"2.2.2.2","dest_port":80,"proto":"TCP","ip_v":4,"app_proto":"http","netflow":{"pkts":4,"bytes":284,"start":"1970-01-01T00:16:40.000123+0000","end":"1970-01-01T00:16:46.000123+0000","age":6,"min_ttl":64,"max_ttl":64},"tcp":{"tcp_flags":"1a","syn":true,"psh":true,"ack":true},"ether":{"dest_macs":["00:01:02:03:04:05","10:11:12:13:14:15"],"src_macs":["10:11:12:13:14:15","00:01:02:03:04:05"]},"community_id":"1:Q4YdgPC73uffZyJRUQ9BiPKu3tM=","pcap_filename":"esc.pcap"}"#,
            r#"{"timestamp":"1970-01-01T00:16:40.000123+0000","flow_id":528657444521,"event_type":"netflow","src_ip":"2.2.2.2","src_port":80,"dest_ip":"1.1.1.1","dest_port":1000,"proto":"TCP","ip_v":4,"app_proto":"http","netflow":{"pkts":3,"bytes":200,"start":"1970-01-01T00:16:40.000123+0000","end":"1970-01-01T00:16:46.000123+0000","age":6,"min_ttl":64,"max_ttl":64},"tcp":{"tcp_flags":"1a","syn":true,"psh":true,"ack":true},"ether":{"dest_macs":["10:11:12:13:14:15","00:01:02:03:04:05"],"src_macs":["00:01:02:03:04:05","10:11:12:13:14:15"]},"community_id":"1:Q4YdgPC73uffZyJRUQ9BiPKu3tM=","pcap_filename":"esc.pcap"}"#,
        ]
    );
}

#[test]
fn what_a_flow_rarely_has() {
    let mut r = run(|_| ());
    let mut e = flow(&[], &[]);
    e.bypass = Some("local");
    e.bypassed = Some([(1, 2), (3, 4)]);
    e.state = "bypassed";
    e.action = Some("drop");
    e.exception_policies = &[("stream_midstream", "drop_flow")];
    e.tx_cnt = 22;
    e.elephant = true;
    e.tcp = Some(TcpSummary {
        flags: [0xe4, 0],
        state: Some("closed"),
        gap: [true, false],
        urgent_oob: [0, 9],
        ..Default::default()
    });
    e.header.icmp_response = Some((0, 0));
    r.outputs.flow(&e);
    let v: serde_json::Value = serde_json::from_str(&r.eve()[0]).unwrap();
    assert_eq!(v["flow"]["bypassed"]["bytes_toclient"], 4);
    assert_eq!(v["flow"]["bypass"], "local");
    assert_eq!(v["flow"]["action"], "drop");
    assert_eq!(v["flow"]["exception_policy"][0]["target"], "stream_midstream");
    assert_eq!(v["flow"]["exception_policy"][0]["policy"], "drop_flow");
    assert_eq!(v["flow"]["tx_cnt"], 22);
    assert_eq!(v["flow"]["elephant"], true);
    assert_eq!(v["response_icmp_type"], 0);
    assert_eq!(v["ether"], serde_json::Value::Null);
    let tcp = r#"{"tcp_flags":"e4","tcp_flags_ts":"e4","tcp_flags_tc":"00","rst":true,"urg":true,"ecn":true,"cwr":true,"state":"closed","ts_gap":true,"ts_max_regions":0,"tc_max_regions":0,"tc_urgent_oob_data":9}"#;
    assert_eq!(v["tcp"], serde_json::from_str::<serde_json::Value>(tcp).unwrap());
}

#[test]
fn stats_are_nested() {
    if !utc() {
        return;
    }
    let c = |name, value| Counter { name, value, last: 1 };
    let totals = [
        c("decoder.pkts", 48),
        c("tcp.syn", 0),
        c("decoder.event.ipv4.trunc_pkt", 2),
        c("memcap_pressure", 5),
        c("detect.alert", 43),
        c("decoder.event.ipv4.opt_unknown", 0),
    ];
    let thread = [c("decoder.pkts", 48)];
    let engines = [EngineStats { id: 0, last_reload: Time(0), rules_loaded: 5, rules_failed: 1, rules_skipped: 0 }];
    let e = StatsEvent {
        time: Time(0),
        uptime: 3,
        totals: &totals,
        threads: &[("W#01", &thread)],
        engines: &engines,
        pcap_filename: None,
    };
    let line = |options: StatsOptions| {
        let mut r = run(|s| s.stats = options);
        r.outputs.stats(&e);
        r.eve().remove(0)
    };
    let head = r#"{"timestamp":"1970-01-01T00:00:00.000000+0000","event_type":"stats","stats":{"uptime":3,"#;
    let engines = r#""engines":[{"id":0,"last_reload":"1970-01-01T00:00:00.000000+0000","rules_loaded":5,"rules_failed":1,"rules_skipped":0}],"#;
    assert_eq!(
        line(StatsOptions::default()),
        format!(
            r#"{head}"decoder":{{"pkts":48,"event":{{"ipv4":{{"trunc_pkt":2,"opt_unknown":0}}}}}},"tcp":{{"syn":0}},"memcap_pressure":5,"detect":{{{engines}"alert":43}}}}}}"#
        )
    );
    let options = StatsOptions { totals: true, threads: true, deltas: true, null_values: false };
    assert_eq!(
        line(options),
        format!(
            r#"{head}"decoder":{{"pkts":48,"pkts_delta":47,"event":{{"ipv4":{{"trunc_pkt":2,"trunc_pkt_delta":1}}}}}},"memcap_pressure":5,"memcap_pressure_delta":4,"detect":{{{engines}"alert":43,"alert_delta":42}},"threads":{{"W#01":{{"decoder":{{"pkts":48,"pkts_delta":47}}}}}}}}}}"#
        )
    );
}

#[test]
fn tagged_packets_and_arp_and_protocols() {
    let mut r = run(|s| s.prefix = "@cee: ".into());
    decode(&format!("{MACS_V4}450000180001000040fd0000010101090202020200001234"), 3, Time(0), |p| {
        r.outputs.packet(&PacketEvent { header: Header::of(p), packet: p });
        r.outputs.arp(&ArpEvent {
            header: Header::of(p),
            opcode: 1,
            src_mac: [0, 0x1d, 9, 0xf0, 0x92, 0xab],
            src_ip: [10, 10, 10, 1].into(),
            dest_mac: [0; 6],
            dest_ip: [10, 10, 10, 2].into(),
        });
        r.outputs.app(&AppEvent {
            kind: EventType::App(AppProto::Dns),
            header: Header::of(p),
            tx_id: None,
            direction: None,
            xff: None,
            records: ONE_RECORD,
            fields: &|j, _, _| j.json("dns", b"{}"),
            ask: None,
        });
    });
    let lines = r.read("eve.json");
    let json = |i: usize| serde_json::from_str::<serde_json::Value>(lines[i].strip_prefix("@cee: ").unwrap()).unwrap();
    assert_eq!(json(0)["event_type"], "packet");
    assert_eq!(json(0)["packet_info"]["linktype_name"], "EN10MB");
    let arp = r#"{"hw_type":"ethernet","proto_type":"ipv4","opcode":"request","src_mac":"00:1d:09:f0:92:ab","src_ip":"10.10.10.1","dest_mac":"00:00:00:00:00:00","dest_ip":"10.10.10.2"}"#;
    assert_eq!(json(1)["arp"], serde_json::from_str::<serde_json::Value>(arp).unwrap());
    assert_eq!(json(2)["event_type"], "dns");
    assert_eq!(json(2)["dns"], serde_json::json!({}));
}

#[test]
fn options_are_each_outputs_own_and_types_too() {
    let dir = tempfile::tempdir().unwrap();
    let file =
        |name: &str, types: &[EventType]| EveSettings::file(dir.path().join(name), types.iter().copied().collect());
    let mut alerts = file("alerts", &[EventType::Alert]);
    alerts.alert.payload_printable = true;
    alerts.alert.tagged_packets = false;
    let mut flows = file("flows", &[EventType::Flow]);
    flows.metadata = false;
    let specs = [alerts, flows].map(|s| Box::new(s) as Box<dyn OutputSettings>).into();
    let mut outputs = Outputs::new(specs, Time(0), 1).unwrap();
    assert!(outputs.wants(EventType::Alert) && outputs.wants(EventType::Flow));
    assert!(
        !outputs.wants(EventType::Packet) && !outputs.wants(EventType::App(AppProto::Dns)) && !outputs.wants_pcap()
    );
    let mut worker = outputs.share(1, Time(0), 2).unwrap();
    decode("000102", 1, Time(0), |p| {
        let mut e = alert(p, any());
        e.payload = Some(Payload { data: &[b'x'; 5000], stream: true });
        worker.alert(&e);
        e.payload = Some(Payload { data: &[b'x'; 5000], stream: false });
        outputs.alert(&e);
    });
    outputs.flow(&flow(&[], &[]));
    for o in [&mut worker, &mut outputs] {
        o.end_batch();
        o.finish();
    }
    let read = |n: &str| std::fs::read_to_string(dir.path().join(n)).unwrap();
    let lines = read("alerts");
    let shown: Vec<usize> = lines
        .lines()
        .map(|l| {
            let v: serde_json::Value = serde_json::from_str(l).unwrap();
            v["payload_printable"].as_str().unwrap().len()
        })
        .collect();
    assert_eq!(shown, [4095, 5000]);
    assert_eq!(read("flows").lines().count(), 1);
    assert_eq!(outputs.counters().lost(), 0);
}

/// Two workers, each with a file of its own. The first has written one flow event, the second two.
fn two_with_own_files(dir: &std::path::Path) -> [Outputs; 2] {
    let mut eve = EveSettings::file(dir.join("eve.json"), EventTypes::NONE.with(EventType::Flow));
    eve.threaded = true;
    let mut first = Outputs::new(vec![Box::new(eve)], Time(0), 1).unwrap();
    let mut second = first.share(1, Time(0), 2).unwrap();
    first.flow(&flow(&[], &[]));
    (0..2).for_each(|_| second.flow(&flow(&[], &[])));
    [&mut first, &mut second].into_iter().for_each(Outputs::finish);
    [first, second]
}

#[test]
fn a_file_for_each_worker() {
    let dir = tempfile::tempdir().unwrap();
    two_with_own_files(dir.path());
    let lines = |n: &str| std::fs::read_to_string(dir.path().join(n)).unwrap().lines().count();
    assert_eq!((lines("eve.1.json"), lines("eve.2.json")), (1, 2));
}

#[test]
fn lines_that_any_worker_loses_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    for n in 1..3 {
        std::os::unix::fs::symlink("/dev/full", dir.path().join(format!("eve.{n}.json"))).unwrap();
    }
    assert_eq!(two_with_own_files(dir.path()).map(|o| o.counters().lost()), [3, 3]);
}

proptest::proptest! {
    #[test]
    fn any_bytes_make_one_line_of_json(
        msg: Vec<u8>, payload: Vec<u8>, name: String, value: Vec<u8>, frame: Vec<u8>, stream: bool
    ) {
        let mut r = run(|_| ());
        let data = [&unhex(MACS_V4)[..], &frame].concat();
        let hex: String = data.iter().map(|b| format!("{b:02x}")).collect();
        let (bits, vars) = ([name.as_str()], [Var::Named(&name, &value), Var::KeyValue(&value, &payload)]);
        decode(&hex, 1, Time(0), |p| {
            let mut e = alert(p, Signature { msg: Some(&msg), rule: &value, category: Some(&name), ..any() });
            e.header.vars = Vars { flowbits: &bits, flowints: &[("x", 1)], flowvars: &vars, ..Vars::default() };
            e.header.pcap_filename = Some(&name);
            e.payload = Some(Payload { data: &payload, stream });
            r.outputs.alert(&e);
            r.outputs.dropped(&DropEvent {
                header: e.header,
                packet: p,
                reason: &name,
                direction: None,
                first_of_flow: true,
                tx_id: None,
                alert: None,
                verdict: None,
            });
            r.outputs.packet(&PacketEvent { header: e.header, packet: p });
        });
        proptest::prop_assert!(r.eve().len() >= 3);
    }
}
