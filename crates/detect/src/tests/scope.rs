//! Packets that a rule concerns although they lack its subject, and those that it does not.

use super::*;

/// A rule for IP that only asks for an event of the decoder sees packets without IP.
#[test]
fn events_of_packets_without_ip() {
    let event = |sid, protocol| Rule {
        checks: vec![Check::DecodeEvent("ethernet.unknown_ethertype".into())],
        ..rule(sid, Action::Alert, protocol)
    };
    let mut sized = event(3, Protocol::Ip);
    sized.checks.push(Check::Dsize(Compare::Equal(0)));
    let all = vec![
        event(1, Protocol::Ip),
        event(2, Protocol::PacketHeader),
        sized,
        event(4, Protocol::Tcp),
        rule(5, Action::Alert, Protocol::Ip),
    ];
    let mut lab = Lab::new(all);
    let bytes = tcp_bytes(b"");
    let mut p = Packet { l3: L3::None, l4: L4::None, ..packet(&bytes, Direction::ToServer, 0, 0) };
    p.events.push(margay_packet::DecodeEvent::EthernetUnknownEthertype);
    lab.state.inspect(&lab.detect, &mut Input::new(&p));
    let sids: Vec<u32> = lab.state.alerts().iter().map(|a| lab.detect.rules()[a.rule as usize].sid).collect();
    assert_eq!(sids, [1, 2]);
}

/// A negated size asks for data that may be inspected. As in Suricata, due stream data counts if a rule inspects streams of the
/// packet's direction and server port, whatever else that rule asks for.
#[test]
fn stream_data_counts_if_a_rule_of_the_port_inspects_streams() {
    let size = || Rule { checks: vec![Check::Dsize(Compare::NotEqual(9))], ..rule(1, Action::Alert, Protocol::Tcp) };
    let port = |p: u16| PortSet { ranges: vec![(p, p)], any: false };
    let server = |p| Rule {
        dport: port(p),
        src: AddressSet { v4: vec![(9, 9)], ..AddressSet::default() },
        ..alert(2, b"never")
    };
    let client = |p| Rule { sport: port(p), ..alert(2, b"never") };
    let both = |p| Rule { arrow: Arrow::Both, ..server(p) };
    let app = |name: &str| Rule { protocol: Protocol::App(name.into()), ..alert(2, b"never") };
    // The flow is between ports 40000 and 80.
    for (other, to_server, to_client) in [
        (None, false, false),
        (Some(server(80)), true, true),
        (Some(server(81)), false, true),
        (Some(client(80)), true, true),
        (Some(client(40000)), true, false),
        (Some(both(80)), true, true),
        (Some(app("http")), true, true),
        (Some(rule(2, Action::Alert, Protocol::Tcp)), false, false),
    ] {
        let mut lab = Lab::new(std::iter::once(size()).chain(other.clone()).collect());
        for (dir, want) in [(Direction::ToServer, to_server), (Direction::ToClient, to_client)] {
            let found = lab.send(b"", dir, false, &[b"due"]).0.contains(&1);
            assert_eq!(found, want, "{dir:?} {other:?}");
        }
    }
}
