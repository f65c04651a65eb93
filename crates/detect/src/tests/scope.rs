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
