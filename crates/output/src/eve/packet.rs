//! `packet`: packets that a `tag` keeps.

use crate::event::{EventType, PacketEvent};

use super::Out;

impl Out<'_> {
    pub(super) fn packet(&mut self, e: &PacketEvent<'_>) {
        self.begin(&e.header, EventType::Packet);
        self.context(&e.header);
        self.packet_bytes(e.packet, e.packet.data);
        self.finish(e.header.pcap_filename);
    }
}
