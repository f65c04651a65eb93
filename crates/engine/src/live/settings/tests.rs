use super::*;

fn settings(d: &Device) -> &Settings {
    (&*d.medium as &dyn Any).downcast_ref().expect("passive")
}

fn read(yaml: &str) -> Result<Device, String> {
    let config = Config::from_str(&format!("%YAML 1.1\n---\naf-packet:\n{yaml}\n"), "t").unwrap();
    let entries: Vec<Node<'_>> = config.node("af-packet").iter().flat_map(Node::children).collect();
    let named = |name: &str| entries.iter().find(|e| e.get("interface") == Some(name)).copied();
    let of = Entry { section: "af-packet", own: named("e0"), default: named("default") };
    of.device("e0", RunMode::Workers, None, &Cpus::default()).map_err(|f| f.message)
}

#[test]
fn an_interface_has_what_is_said_of_it_or_of_all() {
    let d = read(
        "  - interface: e0\n    threads: 3\n    cluster-id: 7\n    cluster-type: cluster_qm\n    defrag: no\n    \
         block-size: 1mb\n    ring-size: 8192\n    checksum-checks: auto\n  - interface: default\n    threads: 9\n    \
         disable-promisc: yes\n    bpf-filter: tcp port 80\n    rollover: yes",
    )
    .unwrap();
    let s = settings(&d);
    let fanout = Fanout { id: Some(7), distribution: Distribution::Queue, defrag: false, rollover: true };
    assert_eq!((d.workers, s.fanout, d.auto_trust), (3, Some(fanout), true));
    assert_eq!((s.block_size, s.blocks, s.promiscuous), (1 << 20, 16, false));
    assert_eq!(s.filter.as_deref(), Some("tcp port 80"));
}

#[test]
fn rings() {
    let of = |text: &str| {
        read(&format!("  - interface: e0\n    {text}")).map(|d| {
            let s = settings(&d);
            (s.block_size, s.blocks)
        })
    };
    assert_eq!(of("threads: 1"), Ok((1 << 17, 256)));
    assert_eq!(of("ring-size: 2048"), Ok((1 << 17, 32)));
    assert_eq!(of("ring-size: 10"), Ok((1 << 16, 2)));
    assert_eq!(of("block-size: 32768"), Ok((32768, 1024)));
    assert!(of("block-size: 1000").unwrap_err().contains("pages"));
    assert!(of("ring-size: 0").is_err());
    assert!(of("ring-size: 99999999").unwrap_err().contains("4 GiB"));
}

#[test]
fn what_cannot_be_is_said() {
    for (text, word) in [
        ("cluster-type: cluster_moon", "cluster_flow"),
        ("threads: 0", "1 to 256"),
        ("threads: many", "many"),
        ("checksum-checks: perhaps", "kernel"),
        ("cluster-id: 70000", "out of range"),
        ("ebpf-filter-file: a.o", "not in this release"),
        ("xdp-filter-file: a.o", "bypass: yes"),
        ("xdp-mode: hw", "driver"),
        ("xdp-mode: fast", "soft"),
        ("bypass: yes\n    pinned-maps: yes", "outlives"),
        ("xdp-cpu-redirect: [ 1, 2 ]", "RSS"),
    ] {
        let e = read(&format!(
            "  - interface: e0\n    {text}\n    {}",
            if text.starts_with("threads") { "defrag: no" } else { "threads: 2" }
        ))
        .unwrap_err();
        assert!(e.contains(word), "{text}: {e}");
    }
}

fn bridged(a: &str, b: &str) -> Result<Device, String> {
    let text = format!(
        "%YAML 1.1\n---\naf-packet:\n  - interface: e0\n    {}\n  - interface: e1\n    {}\n",
        a.replace("; ", "\n    "),
        b.replace("; ", "\n    ")
    );
    let config = Config::from_str(&text, "t").unwrap();
    let entries = Entries::of(&config, "af-packet");
    let (of, back) = (entries.of_interface("e0"), entries.of_interface("e1"));
    let message = |e: Failed| e.message;
    let (other, drops) = of.bridged().map_err(|e| e.to_string())?.expect("bridged");
    assert_eq!(other, "e1");
    let cpus = Cpus::default();
    let [mine, theirs] = [of, back].map(|e| e.copies(RunMode::Workers, &cpus).map_err(message));
    bridge((&of, "e0", mine?, drops), (&back, "e1", theirs?)).map_err(message)
}

#[test]
fn two_interfaces_are_bridged() {
    let a = "copy-mode: ips; copy-iface: e1; threads: 2; cluster-id: 7";
    let d = bridged(a, "copy-mode: tap; copy-iface: e0; threads: 2; defrag: yes").expect("a bridge");
    assert_eq!((d.interfaces().collect::<Vec<_>>(), d.workers), (vec!["e0", "e1"], 2));
    let ends = (&*d.medium as &dyn Any).downcast_ref::<Bridged>().map(|b| &b.ends).expect("a bridge");
    assert_eq!(
        ends.each_ref().map(|e| (e.drops, e.settings.fanout.map(|f| f.defrag))),
        [(true, Some(false)), (false, Some(false))]
    );
    assert_eq!((d.drops(), d.groups().collect::<Vec<_>>()), (true, vec![7]));
    for (b, words) in [
        ("threads: 2", "entry with copy-iface: e0"),
        ("copy-mode: ips; copy-iface: e3; threads: 2", "each has to name the other"),
        ("copy-mode: ips; copy-iface: e0; threads: 3", "have to be the same"),
        ("copy-mode: ips; copy-iface: e0; threads: 2; bpf-filter: tcp", "pass rules"),
        ("copy-mode: ips; copy-iface: e0; threads: 2; cluster-type: cluster_rollover", "cluster_flow"),
        ("copy-mode: ips; copy-iface: e0; threads: 2; cluster-type: cluster_qm", "the same"),
        ("copy-mode: ips; threads: 2", "needs copy-iface"),
        ("copy-mode: both; threads: 2", "none of none, ips and tap"),
    ] {
        let e = bridged(a, b).unwrap_err();
        assert!(e.contains(words), "{b}: {e}");
    }
}
