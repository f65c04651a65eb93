//! Packets without a connection: UDP, ICMP, and IP packets with unusual fields.

use super::{Message, Packets};
use crate::traffic::session::{Header, Session};

/// Nanoseconds between packets.
const APART: u64 = 50_000;
/// Identification of the unusual packets; fragments of one packet share it.
const ID: u16 = 7;

pub(super) fn udp(s: &mut Session<'_>, client: u16, server: u16, say: &[Message]) {
    for message in say {
        s.udp(message.dir(), client, server, &message.data);
        s.wait(APART);
    }
}

/// Sends ICMP messages. Each consists of the type, the code, and the bytes after the checksum.
pub(super) fn icmp(s: &mut Session<'_>, say: &[Message]) {
    for message in say {
        s.icmp(message.dir(), &message.data);
        s.wait(APART);
    }
}

/// Sends IP packets. Each message is the payload of a packet, or of each of its fragments.
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
