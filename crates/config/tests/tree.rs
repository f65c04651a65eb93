//! Compares the configuration tree with the output of Suricata's `--dump-config` for the same text. List items that `--set` adds have a
//! name here.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use margay_config::Config;

fn dump(text: &str, sets: &[&str]) -> String {
    let mut config = Config::new();
    for s in sets {
        config.set(s).unwrap();
    }
    config.read_str(&format!("%YAML 1.1\n---\n{text}"), "test.yaml").unwrap();
    shown(&config)
}

fn shown(config: &Config) -> String {
    let mut out = Vec::new();
    config.dump(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn fails(text: &str) -> String {
    Config::from_str(text, "test.yaml").unwrap_err().to_string()
}

#[test]
fn names_are_paths_and_list_items_are_numbered() {
    let text = "outputs:\n  - fast:\n      enabled: yes\n  - eve-log:\n      types:\n        - alert:\n            tagged-packets: yes\n        - ftp\n        - quic:\n";
    assert_eq!(
        dump(text, &[]),
        "outputs = (null)\noutputs.0 = fast\noutputs.0.fast = (null)\noutputs.0.fast.enabled = yes\n\
         outputs.1 = eve-log\noutputs.1.eve-log = (null)\noutputs.1.eve-log.types = (null)\n\
         outputs.1.eve-log.types.0 = alert\noutputs.1.eve-log.types.0.alert = (null)\n\
         outputs.1.eve-log.types.0.alert.tagged-packets = yes\noutputs.1.eve-log.types.1 = ftp\n\
         outputs.1.eve-log.types.2 = quic\noutputs.1.eve-log.types.2.quic = (null)\n"
    );
}

#[test]
fn a_list_of_mappings_is_named_by_the_first_key() {
    assert_eq!(
        dump("af-packet:\n  - interface: enp10s0\n    cluster-id: 99\n", &[]),
        "af-packet = (null)\naf-packet.0 = interface\naf-packet.0.interface = enp10s0\naf-packet.0.cluster-id = 99\n"
    );
}

#[test]
fn nulls_are_unquoted() {
    let text = "l: [a, ~, null, Null, NULL, \"\", '', \"null\", x]\nk: {a: ~, b: null, e: \"\", g: \"null\", h: '~', k: !foo bar}\ne:\n";
    assert_eq!(
        dump(text, &[]),
        "l = (null)\nl.0 = a\nl.1 = (null)\nl.2 = (null)\nl.3 = (null)\nl.4 = (null)\nl.5 = null\nl.6 = x\n\
         k = (null)\nk.a = (null)\nk.b = (null)\nk.e = \nk.g = null\nk.h = ~\nk.k = bar\ne = (null)\n"
    );
}

#[test]
fn old_spellings_get_dashes_except_for_variables_and_dotted_names() {
    let text = "vars:\n  address_groups:\n    HOME_NET: any\n  x_y: 2\na.b_c: 1\nl:\n  - m_n: {o_p: q}\n";
    assert_eq!(
        dump(text, &[]),
        "vars = (null)\nvars.address-groups = (null)\nvars.address-groups.HOME_NET = any\nvars.x-y = 2\n\
         a = (null)\na.b_c = 1\nl = (null)\nl.0 = m-n\nl.0.m-n = (null)\nl.0.m-n.o-p = q\n"
    );
    let config = Config::from_str("%YAML 1.1\n---\nfoo_bar: 1\n", "t.yaml").unwrap();
    assert_eq!(config.notes()[0].to_string(), "t.yaml:3:1: foo_bar is deprecated. Please use foo-bar");
}

#[test]
fn a_second_definition_replaces_and_a_dotted_one_adds() {
    let text = "l: [1, 2, 3]\nl.0: 9\nl.5: 8\nm:\n  a: 1\n  b: {c: 1}\nm:\n  z: 1\nn: 1\nn: {x: 1}\no: {x: 1}\no: 2\np: {q: {r: 1}}\np.q.s: 2\n";
    assert_eq!(
        dump(text, &[]),
        "l = (null)\nl.0 = 9\nl.1 = 2\nl.2 = 3\nl.5 = 8\nm = (null)\nm.z = 1\nn = (null)\nn.x = 1\no = 2\n\
         p = (null)\np.q = (null)\np.q.r = 1\np.q.s = 2\n"
    );
}

#[test]
fn the_command_line_wins() {
    let text = "m: {a: 1, c: 2}\nm: {a: 3}\np: [1, 2]\nw: 7\no:\n  - eve-log:\n      types: [alert, http: {x: 1}]\n";
    let sets = ["o.0.eve-log.types.1.http.x=2", "o.1.z=1", "o.0 = bla", "m.a=1", "m.a= 2", "p=9", "w.b=3", "v=y=z"];
    assert_eq!(
        dump(text, &sets),
        "o = (null)\no.1 = z\no.1.z = 1\no.0 = bla\no.0.eve-log = (null)\no.0.eve-log.types = (null)\n\
         o.0.eve-log.types.0 = alert\no.0.eve-log.types.1 = http\no.0.eve-log.types.1.http = (null)\n\
         o.0.eve-log.types.1.http.x = 2\nm = (null)\nm.a = 2\nm.c = 2\np = 9\np.0 = 1\np.1 = 2\nw = (null)\n\
         w.b = 3\nv = y=z\n"
    );
}

/// Suricata 7 leaves the new item without a name, and crashes when it reads the list.
#[test]
fn the_command_line_adds_items_to_lists() {
    let text = "o:\n  - eve-log: {x: 1}\na:\n  - interface: e0\n    threads: 1\n";
    let sets = ["o.1.fast.enabled=yes", "a.0.threads=2", "a.1.interface=e1", "a.1.threads=3"];
    let config = dump(text, &sets);
    for line in [
        "o.0 = eve-log",
        "o.1 = fast",
        "o.1.fast.enabled = yes",
        "a.0 = interface",
        "a.0.threads = 2",
        "a.1 = interface",
        "a.1.interface = e1",
        "a.1.threads = 3",
    ] {
        assert!(config.lines().any(|l| l == line), "{line}: {config}");
    }
}

#[test]
fn a_setting_needs_a_name_and_a_value() {
    let mut config = Config::new();
    assert_eq!(config.set("stream").unwrap_err().to_string(), "--set: 'stream' has no '='; write --set name=value");
    for bad in ["=1", "a..b=1", ".a=1", "a.=1", " =1"] {
        assert!(config.set(bad).is_err(), "{bad}");
    }
    let deep = format!("{}x=1", "a.".repeat(200));
    assert!(config.set(&deep).is_err());
    config.set("a.b=").unwrap();
    assert_eq!(config.get("a.b"), Some(""));
}

#[test]
fn the_header_is_required() {
    let need = "test.yaml:1:1: Invalid configuration file. The configuration file must begin with the following two lines: %YAML 1.1 and ---";
    assert_eq!(fails("a: b\n"), need);
    assert_eq!(fails("---\na: b\n"), need);
    assert!(fails("%YAML 1.2\n---\na: b\n").contains("Must be 1.1"));
    assert!(Config::from_str("# only a comment\n", "x").is_ok());
    assert!(Config::from_str("# a comment\n\n%YAML 1.1 # yes\n---\na: b\n", "x").is_ok());
    assert!(fails("%YAML 1.1\n---\na: 1\n---\nb: 2\n").starts_with("test.yaml:4:1: a second YAML document"));
}

#[test]
fn errors_have_their_place() {
    assert!(fails("%YAML 1.1\n---\na: b\n c: d\n").starts_with("test.yaml:4:3: this is not valid YAML: "));
    assert!(fails("%YAML 1.1\n---\n- a\n").starts_with("test.yaml:3:1: the file must hold settings"));
    assert!(fails("%YAML 1.1\n---\na:\n  ? [x]\n  : 1\n").starts_with("test.yaml:4:5: a setting's name"));
    assert!(fails("%YAML 1.1\n---\n\"\": 1\n").starts_with("test.yaml:3:1: a setting's name"));
    assert!(fails("%YAML 1.1\n---\ninclude: {a: b}\n").starts_with("test.yaml:3:10: 'include' takes"));
    let config = Config::from_str("%YAML 1.1\n---\nflow:\n  memcap: lots\n", "t.yaml").unwrap();
    assert_eq!(
        config.size("flow.memcap").unwrap_err().to_string(),
        "t.yaml:4:3: flow.memcap: invalid size argument 'lots': write a number of bytes, or one with kb, mb or gb as in '64mb'"
    );
}

#[test]
fn typed_getters() {
    let config =
        Config::from_str("%YAML 1.1\n---\ns: {i: Yes, d: 1mb, n: 0x10, r: 1.0, p: 30%, z: ~}\n", "t.yaml").unwrap();
    assert_eq!(config.bool("s.i"), Ok(Some(true)));
    assert_eq!(config.bool("s.z"), Ok(None));
    assert_eq!(config.bool("s.missing"), Ok(None));
    assert_eq!(config.size("s.d"), Ok(Some(1 << 20)));
    let s = config.node("s").unwrap();
    assert_eq!(s.int("n"), Ok(Some(16)));
    assert_eq!(s.float("r"), Ok(Some(1.0)));
    assert_eq!(s.percent("p"), Ok(Some(30.0)));
    assert_eq!(s.place().to_string(), "t.yaml:3:1");
}

#[test]
fn nodes_are_walked() {
    let text = "%YAML 1.1\n---\nrule-files: [a.rules, b.rules]\none: c.rules\ntypes:\n  - alert: {x: 1}\n  - ftp\nvars:\n  address-groups: {A: any}\n  port-groups: {P: 80}\n";
    let config = Config::from_str(text, "t.yaml").unwrap();
    let files = config.node("rule-files").unwrap();
    assert!(files.is_sequence());
    assert_eq!(files.values().collect::<Vec<_>>(), ["a.rules", "b.rules"]);
    assert_eq!(config.node("one").unwrap().values().collect::<Vec<_>>(), ["c.rules"]);
    let entries: Vec<_> = config.node("types").unwrap().children().map(|n| n.entry()).collect();
    assert_eq!(entries[0].0, "alert");
    assert_eq!(entries[0].1.unwrap().get("x"), Some("1"));
    assert_eq!((entries[1].0, entries[1].1.is_none()), ("ftp", true));
    assert_eq!(config.address_groups().collect::<Vec<_>>(), [("A", "any")]);
    assert_eq!(config.port_groups().collect::<Vec<_>>(), [("P", "80")]);
}

#[test]
fn items_are_found_by_a_setting() {
    let text =
        "%YAML 1.1\n---\naf-packet:\n  - interface: eth0\n    threads: 2\n  - interface: default\n    threads: 1\n";
    let config = Config::from_str(text, "t.yaml").unwrap();
    let list = config.node("af-packet").unwrap();
    assert_eq!(list.item("interface", "eth0").unwrap().int("threads"), Ok(Some(2)));
    assert_eq!(list.item("interface", "default").unwrap().int("threads"), Ok(Some(1)));
    assert!(list.item("interface", "eth1").is_none());
}

#[test]
fn aliases_stand_for_their_node() {
    let text = "%YAML 1.1\n---\na: &x {b: 1}\nc: *x\nd: &s foo\ne: *s\n";
    let config = Config::from_str(text, "t.yaml").unwrap();
    assert_eq!(shown(&config), "a = (null)\na.b = 1\nc = (null)\nc.b = 1\nd = foo\ne = foo\n");
    assert!(fails("%YAML 1.1\n---\na: &x [*x]\n").contains("refers to a node that contains it"));
}

#[test]
fn laughs_are_limited() {
    let mut text = String::from("%YAML 1.1\n---\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for i in 1..12 {
        let last = format!("*a{}", i - 1);
        text.push_str(&format!("a{i}: &a{i} [{}]\n", [last.as_str(); 10].join(", ")));
    }
    let error = fails(&text);
    assert!(error.contains("more than 1000000 settings"), "{error}");

    let mut text = format!("%YAML 1.1\n---\na: &a {}\nb:\n", "x".repeat(1 << 20));
    text.push_str(&"  - *a\n".repeat(100));
    let error = fails(&text);
    assert!(error.contains("more than 64 MiB"), "{error}");
}

#[test]
fn depth_and_size_are_limited() {
    for text in ["[".repeat(100_000), "{a: ".repeat(100_000), format!("{}b: 1", "a.".repeat(1000))] {
        assert!(Config::from_str(&format!("%YAML 1.1\n---\na: {text}\n"), "t").is_err() || text.ends_with("1"));
        assert!(Config::from_str(&format!("%YAML 1.1\n---\n{text}: 1\n"), "t").is_err());
    }
    let nested: String = (0..200).map(|i| format!("{}a:\n", " ".repeat(i))).collect();
    assert!(fails(&format!("%YAML 1.1\n---\n{nested}")).contains("nested deeper"));
    assert!(fails(&"#".repeat((16 << 20) + 1)).contains("larger than 16 MiB"));
}

#[test]
fn many_settings_at_one_place_are_found_fast() {
    let mut text = String::from("%YAML 1.1\n---\n");
    for i in 0..100_000 {
        text.push_str(&format!("k{i}: {i}\n"));
    }
    let config = Config::from_str(&text, "t").unwrap();
    assert_eq!(config.get("k99999"), Some("99999"));
}

#[test]
fn files_include_files() {
    let dir = tempfile::tempdir().unwrap();
    let write =
        |name: &str, text: &str| std::fs::write(dir.path().join(name), format!("%YAML 1.1\n---\n{text}")).unwrap();
    std::fs::create_dir(dir.path().join("sub")).unwrap();
    write(
        "main.yaml",
        "m: {a: 1}\nvars:\n  address-groups:\n    HOME_NET: any\ninclude: [sub/one.yaml]\nfoo:\n  include:\n    - ./list.yaml\ntypes: !include types.yaml\n",
    );
    write("sub/one.yaml", "include: two.yaml\nvars.address-groups.HOME_NET: 10.10.10.10/32\nm: {z: 1}\n");
    write("sub/two.yaml", "deep: yes\n");
    // Suricata resolves each include from the main file's folder.
    write("sub/three.yaml", "include: sub/two.yaml\n");
    write("three.yaml", "include: sub/three.yaml\n");
    write("list.yaml", "af-packet:\n  - interface: enp10s0\n");
    write("types.yaml", "- alert\n- http: {extended: yes}\n");
    write("loop.yaml", "include: loop.yaml\n");
    write("lost.yaml", "a: 1\ninclude: nowhere.yaml\n");
    write("more.yaml", "m: {y: 2}\n");
    let config = Config::load(dir.path().join("main.yaml")).unwrap();
    assert_eq!(
        shown(&config),
        "m = (null)\nm.z = 1\nvars = (null)\nvars.address-groups = (null)\nvars.address-groups.HOME_NET = 10.10.10.10/32\n\
         deep = yes\nfoo = (null)\nfoo.af-packet = (null)\nfoo.af-packet.0 = interface\nfoo.af-packet.0.interface = enp10s0\n\
         types = (null)\ntypes.0 = alert\ntypes.1 = http\ntypes.1.http = (null)\ntypes.1.http.extended = yes\n"
    );
    assert_eq!(shown(&Config::load(dir.path().join("three.yaml")).unwrap()), "deep = yes\n");
    let error = Config::load(dir.path().join("loop.yaml")).unwrap_err().to_string();
    assert!(error.contains("loop.yaml:3:10: files include each other deeper than 16 levels"), "{error}");
    let error = Config::load(dir.path().join("lost.yaml")).unwrap_err().to_string();
    assert!(error.contains("lost.yaml:4:10: failed to open the configuration include file"), "{error}");
    let error = Config::load(dir.path().join("none.yaml")).unwrap_err().to_string();
    assert!(error.contains("none.yaml: failed to open the configuration file: No such file"), "{error}");

    let includes = [dir.path().join("more.yaml")];
    let config = Config::load_with(dir.path().join("main.yaml"), &includes, &["m.q=5".to_owned()]).unwrap();
    assert_eq!(config.get("m.q"), Some("5"));
    assert_eq!(config.get("m.y"), Some("2"));
}
