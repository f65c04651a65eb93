//! The target `recognise`: the first bytes of a flow's two directions, in pieces and at once.

use std::net::IpAddr;
use std::sync::OnceLock;

use margay_app::AppProto;
use margay_app::configurable;
use margay_app::recognise::{
    Mode, ProtocolSettings, RecogniseSettings, RecogniseState, Recognised, Recogniser, TCP, UDP,
};
use margay_flow::{Direction, FlowCore, FlowState};
use margay_packet::Time;

/// Ports with probing parsers, and some without.
pub(crate) const PORTS: [u16; 32] = [
    53, 5353, 69, 123, 500, 88, 443, 80, 67, 68, 161, 162, 23, 1883, 389, 3268, 3389, 445, 139, 2049, 5432, 502, 20000,
    44818, 5060, 110, 143, 21, 25, 8888, 40000, 0,
];

/// A protocol detector with all protocols enabled, passive or inline.
pub(crate) fn recogniser(inline: bool) -> &'static Recogniser {
    static R: [OnceLock<Recogniser>; 2] = [OnceLock::new(), OnceLock::new()];
    R[usize::from(inline)].get_or_init(|| {
        let mut settings = RecogniseSettings::new(inline);
        for (proto, _) in configurable() {
            for transport in [TCP, UDP] {
                settings.set(
                    proto,
                    transport,
                    ProtocolSettings { mode: Some(Mode::On), ..ProtocolSettings::default() },
                );
            }
        }
        Recogniser::new(&settings)
    })
}

fn flow(transport: u8, sport: u16, dport: u16) -> FlowCore {
    FlowCore {
        pkts: [1, 1],
        state: FlowState::Established,
        ..FlowCore::new(
            1,
            transport,
            (IpAddr::from([192, 0, 2, 1]), sport),
            (IpAddr::from([198, 51, 100, 1]), dport),
            Time(0),
        )
    }
}

/// Feeds the bytes of one direction in pieces of `step`, or all at once for 0.
fn feed(
    recogniser: &Recogniser,
    state: &mut RecogniseState,
    flow: &FlowCore,
    dir: Direction,
    data: &[u8],
    step: usize,
) -> Recognised {
    let mut end = 0;
    while end < data.len() {
        end = if step == 0 { data.len() } else { (end + step).min(data.len()) };
        match recogniser.recognise(state, flow, dir, data.get(..end).unwrap_or(data), end == data.len()) {
            Recognised::More => {}
            said => return said,
        }
    }
    Recognised::More
}

/// The first byte has options (1: UDP, 2: the server speaks first, 4: midstream, 8: consumed data, 16: inline). The second selects the server's port, the third the client's, the fourth the place where the
/// second direction's bytes begin, and the fifth is the size of pieces.
pub fn recognise(data: &[u8]) {
    let [options, server, client, cut, step, data @ ..] = data else { return };
    let port = |i: &u8| PORTS[usize::from(*i) % PORTS.len()];
    let transport = if options & 1 == 0 { TCP } else { UDP };
    let flow = flow(transport, port(client), port(server));
    let (first, second) = data.split_at(usize::from(*cut).min(data.len()));
    let dirs = if options & 2 == 0 {
        [Direction::ToServer, Direction::ToClient]
    } else {
        [Direction::ToClient, Direction::ToServer]
    };
    let recogniser = recogniser(options & 16 != 0);
    let run = |step: usize| {
        let mut state = RecogniseState::default();
        if options & 4 != 0 {
            state.set_midstream();
        }
        if options & 8 != 0 {
            state.consumed(dirs[1], step);
        }
        [
            feed(recogniser, &mut state, &flow, dirs[0], first, step),
            feed(recogniser, &mut state, &flow, dirs[1], second, step),
        ]
    };
    let whole = run(0);
    for said in whole {
        if let Recognised::Known { proto, reverse } = said {
            assert!(proto.is_known() && recogniser.mode(proto) == Mode::On);
            assert!(
                !reverse || transport == UDP || options & 4 != 0,
                "a connection whose beginning was seen is turned"
            );
        }
        assert!(said != Recognised::Known { proto: AppProto::Unknown, reverse: false });
    }
    // Datagrams are not divided; a stream must give the same result in any pieces.
    if transport == TCP && options & 8 == 0 {
        let pieces = run(usize::from(*step % 32) + 1);
        assert_eq!(pieces, whole, "pieces of {} make a difference", *step % 32 + 1);
    }
}
