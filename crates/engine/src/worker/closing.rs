//! The end of bypassed connections.
//!
//! The engine no longer tracks a bypassed connection. If the kernel bypasses it, only packets that may end it (FIN, RST)
//! still arrive. When the connection is over as far as anybody can tell, it is removed from the kernel's table, which returns
//! its counts. Its flow then lives as long as that of any closed connection ([`margay_flow::FlowTable::set_over`]): it
//! absorbs late packets until it was silent for `flow-timeouts.tcp.closed` seconds, and is logged then.
//!
//! Anybody can send a FIN or an RST with spoofed addresses. Hence these rules:
//!
//! | rule | reason |
//! | --- | --- |
//! | A FIN or RST counts only if its sequence number is plausible: up to the bytes counted since the bypass, plus a window, after the session's last position | An attacker who cannot see the connection has to guess the number, as for its hosts. Each guess that counts costs a query to the kernel. |
//! | An RST ends a connection, or a FIN of each side. Both are forgotten if any other packet arrives more than [`LATE`] after them. | A host that rejects an RST continues, and so does the bypass, in the kernel too. |
//! | The flow ends only when it is silent. | No packet of a live connection finds its flow gone. |
//! | A connection without a known session lasts as long as the bypass allows, or until a SYN, and so does one that only one side closed. | Nothing else shows that it is over. |
//!
//! Packets after the end form a new flow, and are inspected: a SYN at once, other packets as a connection that is picked up
//! midstream (`stream.midstream`, `stream.midstream-policy`).

use margay_flow::{Direction, Flow, FlowAction, FlowCore, FlowKey, FlowRef, FlowState};
use margay_packet::tcp::flag;
use margay_packet::{Packet, Time};
use margay_stream::TcpSession;

use super::firewall::FlowDropBy;
use super::{FlowExt, PacketVerdict, Pipeline, Stages};
use crate::exception::Condition;

/// How long packets sent before the end may still be in transit, in microseconds.
const LATE: i64 = 2_000_000;

/// Signs of the end of a bypassed connection: the last one of each direction.
#[derive(Debug, Default)]
pub(crate) struct Closing([Option<Sign>; 2]);

/// A FIN or an RST.
#[derive(Debug, Clone, Copy)]
struct Sign {
    seq: u32,
    reset: bool,
    time: Time,
}

impl Sign {
    /// Whether it may belong to the connection.
    fn fits(&self, core: &FlowCore, session: &TcpSession, direction: Direction) -> bool {
        session.may_be_next(direction, self.seq, core.bypassed[direction.index()].1)
    }
}

impl Closing {
    /// Records a sign. It replaces an earlier one, unless only the earlier one is plausible.
    fn note(&mut self, new: Sign, core: &FlowCore, session: &TcpSession, direction: Direction) {
        let place = &mut self.0[direction.index()];
        let before = place.filter(|s| s.fits(core, session, direction));
        *place = match before {
            Some(s) if !new.fits(core, session, direction) => Some(s),
            Some(s) => Some(Sign { reset: new.reset || s.reset, ..new }),
            None => Some(new),
        };
    }

    /// The time when the connection ended, if it did.
    fn over(&self, core: &FlowCore, session: &TcpSession) -> Option<Time> {
        let of = |d: Direction| self.0[d.index()].filter(|s| s.fits(core, session, d));
        match (of(Direction::ToServer), of(Direction::ToClient)) {
            (Some(a), Some(b)) => Some(a.time.max(b.time)),
            (Some(s), None) | (None, Some(s)) => s.reset.then_some(s.time),
            (None, None) => None,
        }
    }
}

/// Whether a flow's connection is over, after a packet at `time` that is itself no sign of the end.
pub(super) fn is_over(flow: &mut Flow<FlowExt>, time: Time) -> bool {
    let Flow { core, ext } = flow;
    let (Some(closing), Some(session)) = (&ext.closing, &ext.tcp) else { return false };
    let over = closing.over(core, session);
    if over.is_some_and(|end| time.micros_since(end) > LATE) {
        // The connection continues.
        ext.closing = None;
        return false;
    }
    over.is_some()
}

impl Stages {
    /// Checks a packet of a bypassed flow for the end of its connection. Returns the new answer if it has changed.
    pub(super) fn look_for_the_end(
        &self,
        packet: &Packet<'_>,
        flow: &mut Flow<FlowExt>,
        direction: Direction,
    ) -> Option<bool> {
        let tcp = packet.tcp()?;
        let flags = tcp.flags();
        let before = flow.core.over;
        if flags & (flag::FIN | flag::RST) == 0 {
            return (before && !is_over(flow, packet.time)).then_some(false);
        }
        // The receiver discards it.
        if self.stream.config().checksum_validation && packet.l4_checksum_ok() == Some(false) {
            return None;
        }
        let Flow { core, ext } = flow;
        let session = ext.tcp.as_deref()?;
        let sign = Sign { seq: tcp.seq(), reset: flags & flag::RST != 0, time: packet.time };
        let closing = ext.closing.get_or_insert_default();
        closing.note(sign, core, session, direction);
        let over = closing.over(core, session).is_some();
        (over != before).then_some(over)
    }

    /// Whether the engine has no session for a flow and passes none of its packets to the stream engine. Flows that the
    /// firewall dropped are excluded: a repeated SYN must not make it decide again.
    pub(super) fn is_untracked(&self, flow: &Flow<FlowExt>) -> bool {
        let Flow { core, ext } = flow;
        let bypassed = matches!(core.state, FlowState::LocalBypassed | FlowState::CaptureBypassed);
        let dropped = self.ips && core.action == FlowAction::Drop && ext.dropped_by != FlowDropBy::Firewall;
        ext.tcp.is_none() && (bypassed || dropped)
    }
}

/// Records what a flow's session already knows about its end when the bypass begins. Returns whether the connection is over.
pub(super) fn note_known_end(flow: &mut Flow<FlowExt>, time: Time) -> bool {
    let Flow { core, ext } = flow;
    let Some(session) = ext.tcp.as_deref() else { return false };
    for direction in [Direction::ToServer, Direction::ToClient] {
        if let Some((seq, reset)) = session.end_of(direction) {
            let closing = ext.closing.get_or_insert_default();
            closing.note(Sign { seq, reset, time }, core, session, direction);
        }
    }
    ext.closing.as_ref().is_some_and(|closing| closing.over(core, session).is_some())
}

impl Pipeline {
    /// If the connection of a bypassed flow is over, or the connection of a bypassed or dropped flow was never tracked, and
    /// the packet opens a new one, ends the flow and returns the new flow.
    pub(super) fn opened_again(
        &mut self,
        packet: &Packet<'_>,
        key: &FlowKey,
        at: FlowRef,
        fate: &mut PacketVerdict,
    ) -> Option<FlowRef> {
        let Pipeline { flows, stages, policies, .. } = self;
        let over = |f: &Flow<FlowExt>| {
            f.core.over && !matches!(f.core.action, FlowAction::Drop | FlowAction::WouldDrop) || stages.is_untracked(f)
        };
        let flow = flows.get(at).filter(|f| over(f))?;
        let flags = packet.tcp()?.flags();
        let opens = flags & (flag::SYN | flag::ACK | flag::RST | flag::FIN) == flag::SYN;
        let broken = stages.stream.config().checksum_validation && packet.l4_checksum_ok() == Some(false);
        if !opens || broken {
            return None;
        }
        let tenant = flow.ext.tenant;
        let new = flows.replace(at, packet, key, || FlowExt::of(tenant), &mut |f, r| stages.end_flow(f, r));
        if new.is_none() {
            stages.apply(Condition::FlowMemcap, policies.of(Condition::FlowMemcap), packet, fate, None);
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use margay_packet::{Frame, L3, L4, LinkType};
    use margay_stream::{StreamConfig, StreamEngine};

    use super::*;
    use Direction::{ToClient, ToServer};

    const CLIENT: u32 = 1001;
    const SERVER: u32 = 5001;

    /// A bypassed flow whose session knows the initial sequence numbers of both sides.
    fn flow() -> Flow<FlowExt> {
        let end = |n: u8| (std::net::IpAddr::from([10, 0, 0, n]), u16::from(n));
        let core = FlowCore { state: FlowState::CaptureBypassed, ..FlowCore::new(1, 6, end(1), end(2), Time(0)) };
        let mut ext = FlowExt::default();
        let mut engine = StreamEngine::new(StreamConfig { checksum_validation: false, ..StreamConfig::default() });
        let handshake = [
            (ToServer, flag::SYN, CLIENT - 1, 0),
            (ToClient, flag::SYN | flag::ACK, SERVER - 1, CLIENT),
            (ToServer, flag::ACK, CLIENT, SERVER),
        ];
        for (n, (to, flags, seq, ack)) in handshake.into_iter().enumerate() {
            let mut bytes = [0u8; 20];
            bytes[4..8].copy_from_slice(&seq.to_be_bytes());
            bytes[8..12].copy_from_slice(&ack.to_be_bytes());
            (bytes[12], bytes[13]) = (0x50, flags);
            let frame = Frame { data: &bytes, wire_len: 20, time: Time(0), link: LinkType::RAW, number: 1 };
            let packet = Packet {
                l3: L3::Ipv4 { offset: 0, header_len: 20, options: 0 },
                l4: L4::Tcp { offset: 0, header_len: 20 },
                proto: 6,
                payload: (20, 0),
                ..Packet::new(&frame)
            };
            engine.process(&mut ext.tcp, &packet, to, n == 0);
        }
        assert!(ext.tcp.is_some());
        Flow { core, ext }
    }

    fn note(f: &mut Flow<FlowExt>, to: Direction, seq: u32, reset: bool, seconds: i64) -> bool {
        let sign = Sign { seq, reset, time: Time::new(seconds, 0) };
        let session = f.ext.tcp.as_deref().unwrap();
        f.ext.closing.get_or_insert_default().note(sign, &f.core, session, to);
        is_over(f, Time::new(seconds, 0))
    }

    #[test]
    fn both_sides_close_or_one_resets() {
        let f = &mut flow();
        assert!(!note(f, ToServer, CLIENT, false, 10));
        assert!(!note(f, ToServer, CLIENT, false, 11), "again");
        assert!(note(f, ToClient, SERVER, false, 20));
        assert!(note(&mut flow(), ToClient, SERVER, true, 10));
    }

    #[test]
    fn what_goes_on_is_not_over() {
        let f = &mut flow();
        assert!(note(f, ToServer, CLIENT, true, 10));
        assert!(is_over(f, Time::new(12, 0)), "it was on its way");
        assert!(!is_over(f, Time::new(13, 0)));
        assert!(!is_over(f, Time::new(13, 0)) && f.ext.closing.is_none());
        // One side may close long before the other.
        assert!(!note(f, ToServer, CLIENT, false, 20) && !is_over(f, Time::new(90, 0)));
        assert!(note(f, ToClient, SERVER, false, 100));
        // A retransmitted FIN restarts the wait.
        assert!(note(f, ToClient, SERVER, false, 105) && is_over(f, Time::new(106, 0)));
    }

    #[test]
    fn numbers_that_are_guessed_do_not_count() {
        let f = &mut flow();
        let far = SERVER.wrapping_add(10_000_000);
        assert!(!note(f, ToClient, far, true, 10) && !note(f, ToClient, SERVER.wrapping_sub(1), true, 10));
        assert!(!note(f, ToServer, CLIENT, false, 10));
        assert!(note(f, ToClient, SERVER, false, 11), "it takes the place of nothing");
        assert!(note(f, ToClient, far, true, 12), "and keeps it");
        // The kernel's count arrives after the FIN.
        let f = &mut flow();
        assert!(!note(f, ToClient, far, true, 10));
        f.core.bypassed[ToClient.index()].1 = 10_000_000;
        assert!(is_over(f, Time::new(10, 0)));
        // Without a session there is no evidence.
        f.ext.tcp = None;
        assert!(!is_over(f, Time::new(10, 0)));
    }
}
