//! Reads messages in the kernel's format as live capture does, for the fuzz targets. No socket and no
//! privilege is needed.

use super::finish::{fill_in, shorten};
use super::message::{self, PAYLOAD_MAX, Queued, Said, Writer};

/// Reads consecutive netlink messages, and writes a verdict on each packet. Returns the packets as the engine would see them.
///
/// # Panics
/// If a packet is not within its message, the loop over messages does not end, or a verdict is not a valid message.
pub fn messages(bytes: &mut [u8]) -> Vec<Vec<u8>> {
    let (mut at, mut packets, mut writer) = (0, Vec::new(), Writer::default());
    while let Some((said, next)) = message::read(bytes, at) {
        assert!(next >= at + 16, "a message of {} bytes", next - at);
        at = next;
        let Said::Packet(mut q) = said else { continue };
        let packet = bytes.get_mut(q.start..q.start + q.len).expect("a packet within its message");
        if q.full.is_some_and(|full| full as usize > q.len) {
            q.shortened = shorten(packet);
        }
        let mut whole = packet.to_vec();
        fill_in(&mut whole);
        assert_eq!(whole.len(), packet.len());
        verdict(&mut writer, &q, packet);
        packets.push(packet.to_vec());
    }
    // The output consists of messages with their lengths.
    let mut at = 0;
    while let Some((_, next)) = message::read(&writer.bytes, at) {
        at = next;
    }
    assert_eq!(at, writer.bytes.len(), "verdicts that are no messages");
    packets
}

fn verdict(writer: &mut Writer, q: &Queued, packet: &[u8]) {
    let bytes = (q.shortened || q.unfinished).then_some((packet, true));
    let before = writer.bytes.len();
    writer.verdict(1, q.merged, q.id, 1, Some(q.mark), bytes);
    assert!(writer.bytes.len() - before <= PAYLOAD_MAX + 64);
}
