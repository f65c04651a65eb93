//! Reports of small rule sets.

use super::*;

/// A temporary folder of a test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("margay-analysis-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn config(text: &str) -> Config {
    Config::from_str(&format!("%YAML 1.1\n---\n{text}\n"), "t").unwrap()
}

fn rules(text: &str) -> Vec<Rule> {
    let ctx = margay_rules::Context { available: crate::rules::available(), ..Default::default() };
    let set = margay_rules::load_str(text, "t.rules", &ctx);
    assert!(set.errors.is_empty(), "{:?}", set.errors);
    set.rules.into_iter().chain(set.set_aside).collect()
}

/// The line of one rule.
fn line(options: &str, protocol: &str) -> String {
    let rules = rules(&format!("alert {protocol} any any -> any any ({options} sid:1;)"));
    let mut j = Json::new();
    json::rule(&mut j, &Analysed::of(&rules[0]), &json::Bits::of(&rules));
    String::from_utf8(j.as_bytes().to_vec()).unwrap()
}

#[test]
fn kinds_of_places() {
    let l = line("content:\"one\"; distance:8; within:3;", "tcp");
    assert!(l.contains("\"type\":\"stream\"") && l.contains("\"offset\":8,\"depth\":11"), "{l}");
    assert!(l.contains("\"pkt_engines\":[{\"name\":\"payload\",\"is_mpm\":true}]"), "{l}");
    let l = line("http.uri; content:\"/x\"; startswith; http.host; dotprefix; content:\".y\";", "http");
    assert!(
        l.contains("\"name\":\"http_uri\",\"direction\":\"toserver\",\"is_mpm\":true,\"app_proto\":\"http2\""),
        "{l}"
    );
    assert!(l.contains("\"app_proto\":\"http_any\"") && l.contains("\"transforms\":[{\"name\":\"dotprefix\"}]"), "{l}");
    // An old modifier implies HTTP/1.
    let l = line("content:\"/x\"; http_uri;", "tcp");
    assert!(l.contains("\"app_proto\":\"http\"") && !l.contains("http2"), "{l}");
    // A frame names its protocol, and files belong to several.
    let l = line("frame:http1.request; content:\"a\";", "tcp");
    assert!(l.contains("\"app_proto\":\"http\"") && l.contains("\"requirements\":[\"flow\"]"), "{l}");
    let l = line("fileext:\"pdf\";", "tcp");
    assert!(l.contains("\"app_proto\":\"unknown\"") && l.contains("\"applayer\"") && l.contains("[\"flow\"]"), "{l}");
    let l = line("flow:established; dsize:0;", "tcp");
    assert!(l.contains("\"requirements\":[\"no_payload\",\"flow\"]") && l.contains("\"dsize\":{\"equal\":0}"), "{l}");
}

#[test]
fn literals() {
    let l = line("content:\"A|00|b\\:\"; nocase; content:\"x\"; distance:0;", "tcp");
    assert!(l.contains("\"pattern\":\"a|00|b|3A|\",\"length\":4,\"nocase\":true"), "{l}");
    assert!(l.contains("\"relative_next\":true"), "{l}");
    // A negated literal is marked as such.
    let l = line("content:!\"abc\";", "tcp");
    assert!(l.contains("\"negated_mpm\"") && l.contains("\"no_double_inspect\":false"), "{l}");
    let l = line("content:\"one\"; isdataat:!1,relative;", "udp");
    assert!(l.contains("\"ends_with\":true") && !l.contains("isdataat\""), "{l}");
}

#[test]
fn rules_that_wait_for_others() {
    let all = rules(
        "alert http any any -> any any (http.uri; content:\"a\"; flowbits:set,one; sid:1;)\nalert tcp any any -> any any \
         (flowbits:isset,one|two; sid:2;)\nalert tcp any any -> any any (flowbits:set,two; content:\"b\"; sid:3;)",
    );
    let bits = json::Bits::of(&all);
    let mut j = Json::new();
    for r in &all {
        json::rule(&mut j, &Analysed::of(r), &bits);
    }
    let lines = String::from_utf8(j.as_bytes().to_vec()).unwrap();
    let waits: Vec<&str> = lines.lines().filter(|l| l.contains("dependencies")).collect();
    assert_eq!(waits.len(), 1, "{lines}");
    assert!(waits[0].contains("\"sids\":[1],\"names\":[\"one\"]"), "{lines}");
}

#[test]
fn files_of_a_run() {
    let dir = Folder::new("run");
    let all = rules("alert tcp any any -> any 80 (msg:\"m\"; content:\"abc\"; sid:7;)");
    write(&config("engine-analysis:\n  rules-fast-pattern: no"), &dir.0, &all).unwrap();
    assert!(dir.read("rules.json").starts_with("{\"raw\":\"alert tcp any any -> any 80 (msg:"));
    assert!(dir.read("rules_analysis.txt").contains("== Sid: 7 ==") && dir.read("patterns.json").contains("\"abc\""));
    assert!(!dir.0.join("rules_fast_pattern.txt").exists() && !dir.0.join("flowbits.json").exists());
    write(&config("x: y"), &dir.0, &all).unwrap();
    let literals = dir.read("rules_fast_pattern.txt");
    assert!(literals.contains("Final content: abc") && literals.contains("number of patterns 1"), "{literals}");
}

#[test]
fn firewall_rules_have_a_file_of_their_own() {
    let dir = Folder::new("firewall");
    let ctx = margay_rules::Context { available: crate::rules::available(), ..Default::default() };
    let mut loader = margay_rules::Loader::new(&ctx);
    let text =
        "accept:hook tcp:all any any <> any 80 (sid:1;)\naccept:hook http1:request_line any any -> any any (sid:2;)\n";
    loader.load_firewall_bytes(text.as_bytes(), "fw.rules");
    loader.load_str("alert tcp any any -> any any (content:\"abc\"; sid:3;)", "td.rules");
    let set = loader.finish();
    assert!(set.errors.is_empty(), "{:?}", set.errors);
    write(&config("x: y"), &dir.0, &set.rules).unwrap();
    let (own, all) = (dir.read("firewall.json"), dir.read("rules.json"));
    assert_eq!((own.lines().count(), all.lines().count()), (2, 3));
    let hook = own.lines().find(|l| l.contains("request_line")).unwrap();
    assert!(hook.contains("\"toserver\"") && !hook.contains("\"toclient\""), "{hook}");
    assert!(!own.contains("ip_only"), "{own}");
}

#[test]
fn groups_of_ports() {
    let dir = Folder::new("groups");
    let text = "detect:\n  profiling:\n    grouping:\n      dump-to-disk: yes\n      include-rules: yes";
    let all = rules(
        "alert tcp any any -> any any (flow:to_server; content:\"abc\"; sid:1;)\nalert tcp any any -> any 445 \
         (flow:to_server; content:\"abc\"; sid:2;)\nalert tcp any any -> any 81 (flow:to_server; content:\"abc\"; sid:3;)",
    );
    let settings = GroupSettings::of(&config(text)).unwrap();
    assert!(settings.dump);
    write_groups(&settings, &dir.0, all.iter()).unwrap();
    let report = dir.read("rule_group.json");
    // A priority port first, then groups by descending number of rules; groups with the same rules have the same id.
    let ports: Vec<&str> = report.split("{\"port\":").skip(1).map(|p| p.split(",\"stats\"").next().unwrap()).collect();
    assert_eq!(
        ports,
        [
            "445,\"port2\":445,\"rulegroup\":{\"id\":0,\"rules\":[{\"sig_id\":1},{\"sig_id\":2}]",
            "81,\"port2\":81,\"rulegroup\":{\"id\":1,\"rules\":[{\"sig_id\":1},{\"sig_id\":3}]",
            "0,\"port2\":80,\"rulegroup\":{\"id\":2,\"rules\":[{\"sig_id\":1}]",
            "82,\"port2\":444,\"rulegroup\":{\"id\":2,\"rules\":[{\"sig_id\":1}]",
            "446,\"port2\":65535,\"rulegroup\":{\"id\":2,\"rules\":[{\"sig_id\":1}]",
        ],
        "{report}"
    );
    // Groups beyond the limit are merged.
    let few =
        GroupSettings::of(&config(&format!("{text}\n  profile: custom\n  custom-values:\n    toserver-groups: 1")))
            .unwrap();
    write_groups(&few, &dir.0, all.iter()).unwrap();
    let report = dir.read("rule_group.json");
    assert_eq!(report.matches("{\"port\":").count(), 2, "{report}");
    assert!(report.contains("{\"port\":0,\"port2\":65535"), "{report}");
}
