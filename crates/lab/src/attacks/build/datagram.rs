//! Packets without a connection: UDP, ICMP and packets of IP with odd fields.

use super::{Message, Packets};
use crate::traffic::session::{Header, Session};

/// Nanoseconds from one packet to the next.
const APART: u64 = 50_000;
/// Identification of odd packets: the fragments of one have the same.
const ID: u16 = 7;

pub(super) fn udp(s: &mut Session<'_>, client: u16, server: u16, say: &[Message]) {
    for message in say {
        s.udp(message.dir(), client, server, &message.data);
        s.wait(APART);
    }
}

/// Each message is type, code and what follows the checksum.
pub(super) fn icmp(s: &mut Session<'_>, say: &[Message]) {
    for message in say {
        s.icmp(message.dir(), &message.data);
        s.wait(APART);
    }
}

/// Each message is the payload of a packet, or of each fragment.
pub(super) fn ip(s: &mut Session<'_>, packets: &Packets, say: &[Message]) {
    for message in say {
        for &flags in &packets.flags {
            let (proto, from_itself) = (packets.proto, packets.from_itself);
            let header = Header { proto, options: &packets.options, flags, id: Some(ID), from_itself };
            s.packet(s.now, message.dir(), &header, &message.data);
            s.wait(APART);
        }
    }
}
