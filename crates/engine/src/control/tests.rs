//! Reloads, tenants and the socket, with a worker that is fed packet by packet.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use margay_config::{Capture, Checksums, RunOptions};
use margay_packet::{Frame, LinkType, Time};
use serde_json::{Value, json};

use super::{Control, commands, socket};
use crate::engines;
use crate::exception::Policies;
use crate::post::Post;
use crate::settings;
use crate::signals::Signals;
use crate::stats::Reporter;
use crate::watching::Watching;
use crate::worker;
use crate::worker::{FrameVerdict, Worker};

/// An engine without a capture, in a temporary folder.
struct Bench {
    dir: PathBuf,
    control: Arc<Control>,
    worker: Option<(Worker, Reporter, Arc<Post>)>,
    time: i64,
}

/// The state of a TCP connection.
struct Connection {
    vlan: Option<u16>,
    port: u16,
    seq: [u32; 2],
}

const SYN: u8 = 2;
const ACK: u8 = 16;
const PUSH: u8 = 8;

impl Bench {
    fn new(name: &str, more: &str, rules: &str) -> Bench {
        Bench::with(name, more, rules, &[], false)
    }

    fn with(name: &str, more: &str, rules: &str, files: &[(&str, &str)], queue: bool) -> Bench {
        let dir = std::env::temp_dir().join(format!("margay-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let here = dir.display();
        let yaml = format!(
            "%YAML 1.1\n---\ndefault-rule-path: {here}\nrule-files: [a.rules]\nvars:\n  address-groups:\n    HOME_NET: \
             any\nstats:\n  enabled: no\noutputs:\n- eve-log:\n    enabled: yes\n    filename: eve.json\n    types: [alert, \
             http, flow]\napp-layer:\n  protocols:\n    http:\n      enabled: yes\n{more}\n"
        );
        std::fs::write(dir.join("margay.yaml"), yaml.replace("DIR", &here.to_string())).unwrap();
        std::fs::write(dir.join("a.rules"), rules).unwrap();
        for (name, text) in files {
            std::fs::write(dir.join(name), text.replace("DIR", &here.to_string())).unwrap();
        }
        let options = RunOptions {
            config: Some(dir.join("margay.yaml")),
            log_dir: Some(dir.clone()),
            data_dir: Some(dir.clone()),
            checksums: Some(Checksums::None),
            capture: queue.then_some(Capture::UnixSocket(None)),
            ..RunOptions::default()
        };
        let config = settings::configuration(&options).unwrap();
        let with = engines::Loading { config: &config, options: &options, ips: false, dir: &dir, trees: false };
        let set = Arc::new(engines::load(&with, None).expect("rules load"));
        let signals = Arc::new(Signals::default());
        let control = Control::new(config, options, false, dir.clone(), set, signals, Watching::Nobody).unwrap();
        let mut bench = Bench { dir, control, worker: None, time: 1_700_000_000_000_000 };
        bench.enter();
        bench
    }

    fn enter(&mut self) {
        let c = &self.control;
        let policies = Policies::from_config(&c.config, false, false).unwrap();
        let mut made = None;
        let post = c.enter(|set| {
            made = Some(worker::worker(&c.config, &c.options, false, &policies, set, &self.dir, &Watching::Nobody)?);
            Ok(())
        });
        let reporter = Reporter::new(&c.config, false).unwrap();
        self.worker = made.zip(Some(reporter)).zip(post.ok()).map(|((w, r), p)| (w, r, p));
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.dir.join(name), text).unwrap();
    }

    /// Runs `ask` in another thread, while the worker handles requests.
    fn beside<T: Send + 'static>(&mut self, ask: impl FnOnce(&Arc<Control>) -> T + Send + 'static) -> T {
        let control = Arc::clone(&self.control);
        let (worker, reporter, post) = self.worker.as_mut().expect("a worker");
        let asked = std::thread::spawn(move || ask(&control));
        while !asked.is_finished() {
            post.serve(worker, reporter);
            std::thread::yield_now();
        }
        post.serve(worker, reporter);
        asked.join().expect("no panic")
    }

    fn reload(&mut self) -> Result<(), String> {
        self.beside(|c| c.reload().map_err(|f| f.message))
    }

    fn command(&mut self, name: &str, arguments: Value) -> Result<Value, String> {
        let message = json!({"command": name, "arguments": arguments});
        self.beside(move |c| commands::run(c, message.as_object().expect("an object")))
    }

    /// Sends a packet of a connection, from its client or its server. Returns the verdict on it.
    fn send(&mut self, c: &mut Connection, server: bool, flags: u8, payload: &[u8]) -> FrameVerdict {
        let (from, to) = (usize::from(server), usize::from(!server));
        let mut b = Vec::new();
        b.extend_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
        if let Some(vlan) = c.vlan {
            b.extend_from_slice(&[0x81, 0]);
            b.extend_from_slice(&vlan.to_be_bytes());
        }
        b.extend_from_slice(&[8, 0]);
        let mut ip = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0];
        ip[2..4].copy_from_slice(&(40 + payload.len() as u16).to_be_bytes());
        let (a, z) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        ip.extend_from_slice(if server { &z } else { &a });
        ip.extend_from_slice(if server { &a } else { &z });
        let sum: u32 = ip.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        ip[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
        b.extend_from_slice(&ip);
        let ports = if server { [80, c.port] } else { [c.port, 80] };
        b.extend(ports.iter().flat_map(|p| p.to_be_bytes()));
        b.extend_from_slice(&c.seq[from].to_be_bytes());
        b.extend_from_slice(&(if flags & ACK != 0 { c.seq[to] } else { 0 }).to_be_bytes());
        b.extend_from_slice(&[0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        b.extend_from_slice(payload);
        c.seq[from] += payload.len() as u32 + u32::from(flags & SYN != 0);
        self.time += 1000;
        let frame =
            Frame { data: &b, wire_len: b.len() as u32, time: Time(self.time), link: LinkType::ETHERNET, number: 1 };
        let (worker, ..) = self.worker.as_mut().expect("a worker");
        let verdict = worker.frame(&frame);
        worker.expire();
        verdict
    }

    fn connect(&mut self, port: u16, vlan: Option<u16>) -> Connection {
        let mut c = Connection { vlan, port, seq: [1000, 5000] };
        self.send(&mut c, false, SYN, b"");
        self.send(&mut c, true, SYN | ACK, b"");
        self.send(&mut c, false, ACK, b"");
        c
    }

    fn client(&mut self, c: &mut Connection, text: &str) {
        self.send(c, false, ACK | PUSH, text.as_bytes());
        self.send(c, true, ACK, b"");
        // Each side's data is inspected when the other side has acknowledged it.
        self.send(c, false, ACK, b"");
    }

    /// Ends the capture. Returns all events.
    fn finish(&mut self) -> Vec<Value> {
        let (mut worker, mut reporter, post) = self.worker.take().expect("a worker");
        self.control.leave(&post);
        post.close(&mut worker, &mut reporter);
        worker.finish();
        worker.pipeline.stages.outputs.finish();
        let text = std::fs::read_to_string(self.dir.join("eve.json")).unwrap();
        text.lines().map(|l| serde_json::from_str(l).expect("an event is JSON")).collect()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.control.signals.ask_to_stop();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Ids of the rules that alerted, with the tenant.
fn alerts(events: &[Value]) -> Vec<(u64, Option<u64>)> {
    let of = |e: &Value| {
        let tenant = e["tenant_id"].as_u64();
        assert_eq!(tenant, e["alert"]["tenant_id"].as_u64());
        Some((e["alert"]["signature_id"].as_u64()?, tenant))
    };
    events.iter().filter(|e| e["event_type"] == "alert").filter_map(of).collect()
}

fn sids(events: &[Value]) -> Vec<u64> {
    alerts(events).into_iter().map(|a| a.0).collect()
}

const ANY: &str = "any any -> any any";

#[test]
fn the_end_of_a_flow_is_not_in_the_verdict_on_the_packet_that_notices_it() {
    let rules = format!(
        "alert tcp {ANY} (flow:established,to_server,only_stream; content:\"the unseen end\"; nfq_set_mark:0x7/0xf; bypass; \
         tag:session,9,packets; sid:1;)\n\
         alert tcp-pkt {ANY} (content:\"mark me\"; nfq_set_mark:0x2/0xf; sid:2;)\n"
    );
    let mut b = Bench::new("verdict", "", &rules);
    let mut c = b.connect(1025, None);
    // Nothing acknowledges this data.
    b.send(&mut c, false, ACK | PUSH, b"the unseen end");
    // Long after the first connection timed out, another one uses the same ports.
    b.time += 4_000_000_000;
    let mut c = Connection { vlan: None, port: 1025, seq: [700_000, 900_000] };
    let v = b.send(&mut c, false, SYN, b"");
    assert_eq!((v.mark, v.bypassed, v.drop, v.reject), (None, false, None, false));
    assert_eq!((v.pcap.alerted, v.pcap.tagged, v.pcap.passed), (false, false, false));
    b.send(&mut c, true, SYN | ACK, b"");
    let v = b.send(&mut c, false, ACK | PUSH, b"mark me");
    assert_eq!((v.mark, v.bypassed, v.pcap.alerted), (Some((2, 15)), false, true), "its own verdict it has");
    let v = b.send(&mut c, false, ACK | PUSH, b"nothing");
    assert_eq!((v.mark, v.pcap.alerted), (None, true), "a mark is of one packet, an alert of the flow");
    assert_eq!(sids(&b.finish()), [1, 2]);
}

#[test]
fn a_flow_goes_on_over_a_reload() {
    let both = format!("alert http {ANY} (http.method; content:\"POST\"; flowbits:set,posted; sid:1;)\n");
    let mut b = Bench::new("flow", "", &both);
    let mut c = b.connect(1025, None);
    b.client(&mut c, "POST /first HTTP/1.1\r\nHost: a\r\nContent-Length: 20\r\n\r\n0123456789");
    // The first rule has a new number now, and there are new rules: on earlier data, on later data, and on both.
    let new = format!(
        "pass tcp {ANY} (content:\"never\"; sid:9;)\n{both}\
         alert http {ANY} (http.uri; content:\"/first\"; http.request_body; content:\"the end\"; flowbits:isset,posted; sid:2;)\n\
         alert http {ANY} (http.request_body; content:\"6789the\"; sid:3;)\n\
         alert http {ANY} (flow:established,to_server; http.request_body; content:\"nowhere\"; sid:4;)\n\
         alert tcp {ANY} (flow:established; flowbits:isset,posted; content:\"the end\"; sid:5;)\n"
    );
    b.write("a.rules", &new);
    assert_eq!(b.reload(), Ok(()));
    b.client(&mut c, "the end...");
    let events = b.finish();
    let mut sids = sids(&events);
    sids.sort_unstable();
    assert_eq!(sids, [1, 2, 3, 5]);
    let flows: Vec<_> = events.iter().filter(|e| e["event_type"] == "flow").collect();
    assert_eq!(flows.len(), 1);
    assert_eq!(flows[0]["flow"]["pkts_toserver"], 6);
    assert_eq!(flows[0]["metadata"]["flowbits"], json!(["posted"]));
    assert_eq!(events.iter().filter(|e| e["event_type"] == "http").count(), 1);
}

#[test]
fn rules_that_do_not_load_leave_the_old_ones() {
    let good = format!("alert http {ANY} (http.uri; content:\"/a\"; sid:1;)\n");
    let mut b = Bench::new("broken", "", &good);
    let serial = |b: &Bench| b.control.engines().default.detect.as_ref().unwrap().serial();
    let before = serial(&b);
    b.write("a.rules", "alert nonsense\nalert more nonsense (\n");
    assert!(b.reload().unwrap_err().contains("no rule"));
    let yaml = std::fs::read_to_string(b.dir.join("margay.yaml")).unwrap();
    b.write("a.rules", &good);
    b.write("margay.yaml", "%YAML 1.1\n---\n: : :\n- [");
    assert!(b.command("reload-rules", json!({})).is_err());
    b.write("margay.yaml", &yaml.replace("rule-files: [a.rules]", "mpm-algo: magic"));
    assert!(b.reload().unwrap_err().contains("mpm-algo"));
    for (more, word) in [
        ("firewall:\n  enabled: yes\n", "firewall"),
        ("multi-detect:\n  enabled: yes\n  selector: direct\n", "multi-detect"),
    ] {
        b.write("margay.yaml", &format!("{yaml}{more}"));
        assert!(b.reload().unwrap_err().contains(word));
    }
    assert_eq!(serial(&b), before);
    let mut c = b.connect(1025, None);
    b.client(&mut c, "GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    // The configuration is valid again. It loads in spite of one invalid rule.
    b.write("margay.yaml", &yaml);
    b.write("a.rules", &format!("{good}alert nonsense\n"));
    let answer = json!("done, but 1 rule does not load: ruleset-failed-rules says which and why");
    assert_eq!(b.command("ruleset-reload-rules", json!({})), Ok(answer));
    assert_ne!(serial(&b), before);
    let stats = b.command("ruleset-stats", json!({})).unwrap();
    assert_eq!((&stats[0]["rules_loaded"], &stats[0]["rules_failed"]), (&json!(1), &json!(1)));
    let failed = b.command("ruleset-failed-rules", json!({})).unwrap();
    assert_eq!((&failed[0]["rule"], &failed[0]["line"]), (&json!("alert nonsense"), &json!(2)));
    let reason = failed[0]["reason"].as_str().unwrap();
    assert!(!reason.is_empty() && !reason.contains("error parsing signature"), "{reason}");
    assert_eq!(sids(&b.finish()), [1]);
}

/// Variables, thresholds and datasets are read again; datasets that rules change keep their content.
#[test]
fn all_that_goes_with_rules_is_read_anew() {
    let rules = format!(
        "alert http $HOME_NET any -> any any (http.uri; content:\"/a\"; sid:1;)\n\
         alert http {ANY} (http.host; dataset:isset,hosts,type string,load hosts.lst; sid:2;)\n\
         alert http {ANY} (http.uri; dataset:set,seen,type string; sid:3;)\n\
         alert http {ANY} (http.method; content:\"GET\"; sid:4;)\n"
    );
    let more = "threshold-file: DIR/threshold.config\n";
    let mut b = Bench::with("anew", more, &rules, &[("hosts.lst", "b25l\n"), ("threshold.config", "")], false);
    let get = |b: &mut Bench, port| {
        let mut c = b.connect(port, None);
        b.client(&mut c, "GET /a HTTP/1.1\r\nHost: two\r\n\r\n");
    };
    get(&mut b, 1025);
    let yaml = std::fs::read_to_string(b.dir.join("margay.yaml")).unwrap();
    b.write("margay.yaml", &yaml.replace("HOME_NET: any", "HOME_NET: 192.168.0.0/16"));
    b.write("hosts.lst", "dHdv\n");
    b.write("threshold.config", "suppress gen_id 1, sig_id 4\n");
    assert_eq!(b.reload(), Ok(()));
    let lookup = json!({"setname": "seen", "settype": "string", "datavalue": "L2E="});
    assert!(b.command("dataset-lookup", lookup).is_ok());
    get(&mut b, 1026);
    assert_eq!(b.command("conf-get", json!({"variable": "vars.address-groups.HOME_NET"})), Ok(json!("192.168.0.0/16")));
    assert_eq!(b.command("conf-get", json!({"variable": "no.such"})), Err("Unable to get value".to_owned()));
    assert_eq!(sids(&b.finish()), [1, 3, 4, 2]);
}

/// Without `threshold-file`, the file beside the configuration counts.
#[test]
fn thresholds_beside_the_configuration() {
    let rules = format!(
        "alert http {ANY} (http.uri; content:\"/a\"; sid:1;)\nalert http {ANY} (http.uri; content:\"/a\"; sid:2;)\n"
    );
    let files = [("threshold.config", "suppress gen_id 1, sig_id 1\n")];
    for (more, want) in [("", vec![2]), ("threshold-file: /dev/null\n", vec![1, 2])] {
        let mut b = Bench::with(&format!("beside-{}", want.len()), more, &rules, &files, false);
        let mut c = b.connect(1025, None);
        b.client(&mut c, "GET /a HTTP/1.1\r\nHost: two\r\n\r\n");
        assert_eq!(b.command("version", json!({})), Ok(json!("8.0.6 RELEASE")));
        assert_eq!(sids(&b.finish()), want);
    }
}

#[test]
fn a_thousand_reloads_leave_nothing() {
    let mut b = Bench::new("thousand", "", &format!("alert tcp {ANY} (content:\"x\"; sid:1;)\n"));
    let mut sets: Vec<Weak<margay_detect::Detect>> = Vec::new();
    let mut c = b.connect(1025, None);
    for n in 0..1000 {
        b.write(
            "a.rules",
            &format!("alert tcp {ANY} (content:\"x{n} \"; dsize:<9; flowbits:set,b{}; sid:1;)\n", n % 10),
        );
        assert_eq!(b.reload(), Ok(()), "{n}");
        sets.extend(b.control.engines().default.detect.as_ref().map(Arc::downgrade));
        if n % 50 == 0 {
            b.client(&mut c, &format!("x{n} "));
        }
    }
    assert_eq!(sets.len(), 1000);
    let end = Instant::now() + Duration::from_secs(10);
    let live = || sets.iter().filter(|s| s.strong_count() > 0).count();
    while live() > 1 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(live(), 1, "the one in use");
    let names = b.control.engines().default.detect.as_ref().map(|d| d.names().len());
    assert_eq!(names, Some(10));
    let events = b.finish();
    assert_eq!(sids(&events).len(), 20);
    assert_eq!(events.iter().filter(|e| e["event_type"] == "flow").count(), 1);
}

fn tenants(selector: &str) -> (String, [(&'static str, String); 4]) {
    let more = format!(
        "multi-detect:\n  enabled: yes\n  selector: {selector}\n  loaders: 2\n  config-path: DIR\n  tenants:\n  - id: 1\n    \
         yaml: one.yaml\n  - id: 2\n    yaml: two.yaml\n  mappings:\n  - vlan-id: 100\n    tenant-id: 1\n  - vlan-id: 200\n    \
         tenant-id: 2\n"
    );
    let yaml = |name: &str| {
        format!(
            "%YAML 1.1\n---\ndefault-rule-path: DIR\nrule-files: [{name}.rules]\nvars:\n  address-groups:\n    HOME_NET: \
             10.0.0.{}\n",
            if name == "one" { 1 } else { 9 }
        )
    };
    let rule = |sid: u32| {
        format!(
            "alert http $HOME_NET any -> any any (http.uri; content:\"/a\"; sid:{sid};)\nalert http {ANY} (http.uri; \
             content:\"/a\"; flowbits:isset,other; sid:{};)\nalert http {ANY} (http.uri; content:\"/a\"; flowbits:set,mine; \
             sid:{};)\n",
            sid + 1,
            sid + 2
        )
    };
    let files =
        [("one.yaml", yaml("one")), ("two.yaml", yaml("two")), ("one.rules", rule(10)), ("two.rules", rule(20))];
    (more, files)
}

fn tenant_bench(name: &str, selector: &str) -> Bench {
    let (more, files) = tenants(selector);
    let files: Vec<(&str, &str)> = files.iter().map(|(n, t)| (*n, t.as_str())).collect();
    Bench::with(name, &more, &format!("alert http {ANY} (http.uri; content:\"/a\"; sid:1;)\n"), &files, true)
}

fn get(b: &mut Bench, port: u16, vlan: Option<u16>) {
    let mut c = b.connect(port, vlan);
    b.client(&mut c, "GET /a HTTP/1.1\r\nHost: two\r\n\r\n");
}

#[test]
fn each_tenant_has_its_own_alerts() {
    let mut b = tenant_bench("vlan", "vlan");
    // Addresses and ports are the same; only the VLAN differs.
    for vlan in [Some(100), None, Some(200), Some(300)] {
        get(&mut b, 1025, vlan);
    }
    let one: Vec<_> = [(12, Some(1)), (10, Some(1)), (1, None), (22, Some(2)), (1, None)].into();
    let text = |b: &Bench| std::fs::read_to_string(b.dir.join("eve.json")).unwrap();
    let said = b.command("reopen-log-files", json!({}));
    assert_eq!(said, Ok(json!("done")));
    let so_far: Vec<Value> = text(&b).lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(alerts(&so_far), one);
    // A tenant is added while running, gets a VLAN, is reloaded, and is removed.
    let yaml = b.dir.join("one.yaml").display().to_string();
    let id = json!({"id": 7});
    assert!(b.command("register-tenant-handler", json!({"id": 7, "htype": "vlan", "hargs": 100})).is_err());
    assert!(b.command("register-tenant-handler", json!({"id": 7, "htype": "vlan", "hargs": 5000})).is_err());
    assert!(b.command("register-tenant-handler", json!({"id": 7, "htype": "vlan", "hargs": 300})).is_ok());
    assert!(b.command("register-tenant", json!({"id": 7, "filename": "/nowhere"})).is_err());
    assert!(b.command("register-tenant", json!({"id": 7, "filename": yaml})).is_ok());
    assert!(b.command("register-tenant", json!({"id": 7, "filename": yaml})).is_err());
    get(&mut b, 1026, Some(300));
    b.write("one.rules", &format!("alert http {ANY} (http.uri; content:\"/a\"; sid:30;)\n"));
    assert!(b.command("reload-tenant", id.clone()).is_ok());
    get(&mut b, 1027, Some(300));
    get(&mut b, 1027, Some(100));
    assert!(b.command("reload-tenants", json!({})).is_ok());
    get(&mut b, 1028, Some(100));
    b.write("one.rules", "nonsense\n");
    assert!(b.command("reload-tenants", json!({})).unwrap_err().contains("tenant 1"));
    assert!(b.command("reload-rules", json!({})).is_err());
    assert!(b.command("unregister-tenant", id.clone()).is_ok());
    assert!(b.command("unregister-tenant", id).is_err());
    get(&mut b, 1029, Some(300));
    let stats = b.command("ruleset-stats", json!({})).unwrap();
    let ids: Vec<_> = stats.as_array().unwrap().iter().map(|s| s["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, [0, 1, 2]);
    let events = b.finish();
    let later = [(12, Some(7)), (10, Some(7)), (30, Some(7)), (12, Some(1)), (10, Some(1)), (30, Some(1)), (1, None)];
    assert_eq!(alerts(&events)[one.len()..], later);
    let mut of_flows: Vec<_> =
        events.iter().filter(|e| e["event_type"] == "flow").map(|e| e["tenant_id"].as_u64().unwrap_or(0)).collect();
    of_flows.sort_unstable();
    // Flows of the removed tenant have no tenant.
    assert_eq!(of_flows, [0, 0, 0, 0, 0, 1, 1, 1, 2]);
}

#[test]
fn a_capture_is_handed_over_as_a_tenants() {
    let mut b = tenant_bench("direct", "direct");
    get(&mut b, 1025, Some(100));
    b.worker.as_mut().unwrap().0.pipeline.stages.engines.direct = 2;
    get(&mut b, 1026, Some(100));
    let here = json!(b.dir.display().to_string());
    let of = |tenant: u32| json!({"filename": here, "output-dir": here, "tenant": tenant});
    assert!(b.command("pcap-file", of(9)).unwrap_err().contains("tenant 9"));
    assert!(b.command("pcap-file", of(2)).is_ok());
    assert_eq!(b.command("pcap-file-number", json!({})), Ok(json!(1)));
    assert_eq!(b.command("pcap-file-list", json!({})), Ok(json!({"count": 1, "files": [here]})));
    assert_eq!(b.control.queue.as_ref().unwrap().next(Duration::ZERO).unwrap().tenant, 2);
    assert_eq!(b.command("pcap-current", json!({})), Ok(here));
    assert_eq!(alerts(&b.finish()), [(1, None), (22, Some(2))]);
}

#[test]
fn what_belongs_to_the_worker_is_asked_of_it() {
    let mut b =
        Bench::new("ask", "", &format!("alert tcp {ANY} (hostbits:isset,bad,src; content:\"x\"; dsize:1; sid:1;)\n"));
    let mut c = b.connect(1025, None);
    b.client(&mut c, "x");
    let host = |bit: &str| json!({"ipaddress": "10.0.0.1", "hostbit": bit, "expire": 100});
    assert_eq!(b.command("add-hostbit", host("unheard-of")), Err("hostbit not found".into()));
    assert_eq!(b.command("add-hostbit", host("bad")), Ok(json!("hostbit added")));
    let bits = json!({"count": 1, "hostbits": [{"name": "bad", "expire": 100}]});
    assert_eq!(b.command("list-hostbit", json!({"ipaddress": "10.0.0.1"})), Ok(bits));
    assert!(b.command("list-hostbit", json!({"ipaddress": "host"})).is_err());
    b.client(&mut c, "x");
    assert_eq!(b.command("remove-hostbit", host("bad")), Ok(json!("hostbit removed")));
    b.client(&mut c, "x");
    let id = b.worker.as_ref().unwrap().0.pipeline.flows.iter().next().unwrap().1.core.id;
    let flow = b.command("get-flow-stats-by-id", json!({"flow_id": id})).unwrap();
    assert_eq!((&flow["pkts_toserver"], &flow["pkts_toclient"]), (&json!(8), &json!(4)));
    assert!(b.command("get-flow-stats-by-id", json!({"flow_id": id + 1})).is_err());
    for name in [
        "stream",
        "stream-reassembly",
        "flow",
        "app-layer",
        "applayer-proto-http",
        "applayer-proto-ftp",
        "defrag",
        "ippair",
        "host",
    ] {
        assert!(b.command("memcap-set", json!({"config": name, "memcap": "64mb"})).is_ok(), "{name}");
        assert_eq!(b.command("memcap-show", json!({"config": name})), Ok(json!({"value": "64mb"})), "{name}");
    }
    assert_eq!(b.command("memcap-list", json!({})).unwrap().as_array().unwrap().len(), 9);
    assert!(b.command("memcap-set", json!({"config": "stream", "memcap": "lots"})).is_err());
    let few = b.command("memcap-set", json!({"config": "flow", "memcap": "1"}));
    assert!(few.is_err_and(|e| e.starts_with("memcap value specified for 'flow' is less than the memory in use")));
    let counters = b.command("dump-counters", json!({})).unwrap();
    assert_eq!(counters["decoder"]["pkts"], json!(12));
    assert_eq!(counters["detect"]["engines"][0]["rules_loaded"], json!(1));
    assert_eq!(sids(&b.finish()), [1]);
    assert!(b.control.ask(|_, _| ()).unwrap().is_empty());
}

/// A client. Returns what it reads, until the socket is silent for a while.
fn talk(path: &Path, chunks: &[&[u8]]) -> (String, bool) {
    let mut s = UnixStream::connect(path).expect("somebody listens");
    s.set_read_timeout(Some(Duration::from_millis(1500))).unwrap();
    let mut said = Vec::new();
    let mut bytes = [0u8; 65536];
    for c in chunks {
        if s.write_all(c).is_err() {
            break;
        }
        match s.read(&mut bytes) {
            Ok(0) => return (String::from_utf8_lossy(&said).into_owned(), true),
            Ok(n) => said.extend_from_slice(&bytes[..n]),
            Err(_) => {}
        }
    }
    s.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let closed = loop {
        match s.read(&mut bytes) {
            Ok(0) => break true,
            Ok(n) => said.extend_from_slice(&bytes[..n]),
            Err(e) => break e.kind() == std::io::ErrorKind::ConnectionReset,
        }
    };
    (String::from_utf8_lossy(&said).into_owned(), closed)
}

#[test]
fn clients_of_the_socket() {
    let b = Bench::new("socket", "", &format!("alert tcp {ANY} (content:\"x\"; sid:1;)\n"));
    let path = b.dir.join("s.sock");
    let listening = socket::listen(&b.control, &path).expect("a socket");
    const HELLO: &[u8] = b"{\"version\": \"0.2\"}";
    let ok = "{\"return\":\"OK\"}";
    let (said, closed) = talk(&path, &[HELLO, b"{\"command\": \"running-mode\"}\n", b"{\"command\": \"no\"}\n"]);
    let mut lines = said.lines();
    assert_eq!((lines.next(), closed), (Some(ok), false));
    let answers: Vec<Value> = lines.map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(
        answers,
        [json!({"message": "single", "return": "OK"}), json!({"message": "Unknown command", "return": "NOK"})]
    );
    // An older client gets no line feeds.
    assert_eq!(talk(&path, &[b"{\"version\": \"0.1\"}"]), (ok.to_owned(), false));
    // Clients with an invalid greeting.
    for bad in [&b"{\"version\": \"9\"}"[..], b"{\"command\":\"shutdown\"}", b"GET / HTTP/1.1\r\n\r\n", b"\x00\xff\n"] {
        assert_eq!(talk(&path, &[bad]), (String::new(), true), "{bad:?}");
    }
    // Half a message, then the rest; two at once; an invalid one, then a valid one.
    let (said, _) = talk(&path, &[HELLO, b"{\"comm", b"and\": \"help\"}{\"command\":\"version\"}\n"]);
    assert_eq!(said.matches("\"return\":\"OK\"").count(), 3, "{said}");
    let (said, closed) =
        talk(&path, &[HELLO, b"{]}\n", b"{\"command\": 7}\n", b"{\"command\":\"conf-get\",\"arguments\":[]}\n"]);
    assert_eq!((said.matches("\"NOK\"").count(), closed), (3, false), "{said}");
    let (said, closed) = talk(&path, &[HELLO, b"nonsense\n"]);
    assert!(said.contains("NOK") && closed, "{said}");
    let long = [b"{\"a\":\"".to_vec(), vec![b'x'; 200_000]].concat();
    let (said, closed) = talk(&path, &[HELLO, &long]);
    assert!(closed && said.len() < 1000, "{}", said.len());
    let deep = [b"{\"a\":".repeat(9000), b"}".repeat(9000), b"\n".to_vec()].concat();
    assert!(talk(&path, &[HELLO, &deep]).0.contains("NOK"));
    // Clients beyond the limit are refused, and later ones are served when others leave.
    let crowd: Vec<UnixStream> = (0..40).map(|_| UnixStream::connect(&path).unwrap()).collect();
    let soon = |is: &dyn Fn(&str) -> bool| (0..50).any(|_| is(talk(&path, &[HELLO]).0.trim()));
    assert!(soon(&|said| said.contains("too many clients")));
    drop(crowd);
    assert!(soon(&|said| said == ok));
    // Each socket has one engine. An abandoned socket is replaced.
    assert!(socket::listen(&b.control, &path).err().unwrap().message.contains("another engine"));
    let (said, _) = talk(&path, &[HELLO, b"{\"command\":\"shutdown\"}\n"]);
    assert!(said.contains("Closing") && b.control.signals.stop());
    drop(listening);
    assert!(!path.exists());
    // A file that another engine put there by now is not deleted.
    let listening = socket::listen(&b.control, &path).expect("a socket");
    // Renamed over the first, because a file made after its removal may have the same inode number.
    let elsewhere = path.with_extension("other");
    let other = std::os::unix::net::UnixListener::bind(&elsewhere).expect("another socket");
    std::fs::rename(&elsewhere, &path).expect("the socket's file");
    drop(listening);
    assert!(path.exists());
    drop(other);
}

#[test]
fn ethernet_addresses_of_a_flow_are_counted() {
    let mut b = Bench::new("macs", "", "");
    let count = |b: &mut Bench| {
        let (worker, reporter, _) = b.worker.as_mut().expect("a worker");
        let counters = reporter.counters(worker);
        ["src", "dst"].map(|s| counters.iter().find(|c| c.0 == format!("decoder.max_mac_addrs_{s}")).map(|c| c.1))
    };
    b.connect(1025, None);
    assert_eq!(count(&mut b), [Some(0), Some(0)]);
    let (worker, ..) = b.worker.as_mut().expect("a worker");
    worker.pipeline.stages.ethernet = true;
    // Both sides' frames have the same addresses.
    b.connect(1026, None);
    assert_eq!(count(&mut b), [Some(2), Some(2)]);
}

/// A worker that waits for packets takes the last rules, and none pile up.
#[test]
fn rules_that_were_not_taken_are_let_go() {
    let (more, files) = tenants("vlan");
    let files: Vec<(&str, &str)> = files.iter().map(|(n, t)| (*n, t.as_str())).collect();
    let set = format!("alert http {ANY} (http.uri; content:\"/a\"; flowbits:set,mine; sid:1;)\n");
    let mut b = Bench::with("asleep", &more, &set, &files, false);
    get(&mut b, 1025, Some(100));
    let mut c = b.connect(1026, None);
    b.client(&mut c, "GET /a HTTP/1.1\r\nHost: two\r\n\r\n");
    let mut sets: Vec<Weak<margay_detect::Detect>> = Vec::new();
    for n in 0..20 {
        b.write(
            "a.rules",
            &format!("{set}alert http {ANY} (flowbits:isset,mine; http.uri; content:\"/b\"; sid:{};)\n", 100 + n),
        );
        assert!(b.control.reload().is_ok());
        let one = b.control.engines();
        sets.extend(one.all().filter_map(|(_, l)| l.detect.as_ref()).map(Arc::downgrade));
    }
    let live = sets.iter().filter(|s| s.strong_count() > 0).count();
    assert!(live <= 6, "{live} of {}", sets.len());
    b.client(&mut c, "GET /b HTTP/1.1\r\nHost: two\r\n\r\n");
    assert_eq!(b.command("running-mode", json!({})), Ok(json!("single")));
    b.client(&mut c, "GET /b HTTP/1.1\r\nHost: two\r\n\r\n");
    get(&mut b, 1027, Some(100));
    assert_eq!(sids(&b.finish()), [12, 10, 1, 119, 12, 10]);
}

#[test]
fn reloads_beside_are_one_at_a_time() {
    let mut b = Bench::new("beside", "", &format!("alert tcp {ANY} (content:\"x\"; sid:1;)\n"));
    let seen = Arc::new(AtomicBool::new(false));
    let before = b.control.engines().default.at;
    let none = Arc::clone(&seen);
    b.beside(move |c| {
        let answers: Vec<bool> = (0..50).filter_map(|_| c.reload_beside().ok()).collect();
        none.store(answers.contains(&true), Ordering::Relaxed);
        let end = Instant::now() + Duration::from_secs(10);
        while c.engines().default.at == before && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    assert!(seen.load(Ordering::Relaxed) && b.control.engines().default.at != before);
}
