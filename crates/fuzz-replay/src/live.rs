//! Targets for data from the kernel: `ring`, blocks and slots of AF_PACKET, and `nfqueue`, netlink messages.

use margay_capture::af_packet::{Trust, replay as ring_memory};
use margay_capture::nfqueue::replay as queue;
use margay_packet::{DecodeConfig, Decoder, Frame, LinkType, Packet, Time};

fn decode(bytes: &[u8], link: LinkType) {
    let frame = Frame { data: bytes, wire_len: bytes.len() as u32, time: Time::new(1, 0), link, number: 1 };
    Decoder::new(DecodeConfig::default()).decode(&frame, &mut |p: &Packet<'_>| crate::check(p));
}

/// A ring's memory: a byte of options (bits 1 and 2 select the trusted checksums; 4: a TPACKET_V2 slot, otherwise TPACKET_V3
/// blocks), a byte for the size of a block, and the memory. For a slot, the second half is a packet that was too large for it.
pub fn ring(data: &[u8]) {
    let [options, size, memory @ ..] = data else { return };
    let trust = [Trust::Kernel, Trust::Nobody, Trust::Everybody][usize::from(options & 3) % 3];
    let link = LinkType::ETHERNET;
    if options & 4 == 0 {
        let block = 64 * (usize::from(size % 64) + 1);
        let Ok(frames) = ring_memory::blocks(memory, block, trust) else { return };
        assert!(frames.len() <= memory.len(), "more frames than bytes");
        frames.iter().take(16).for_each(|f| decode(f, link));
        return;
    }
    let (slot, beside) = memory.split_at(memory.len() / 2);
    let (mut slot, mut beside) = (slot.to_vec(), beside.to_vec());
    for frame in ring_memory::slot(&mut slot, &mut beside, trust).into_iter().flatten() {
        decode(&frame, link);
    }
}

/// nfnetlink_queue messages.
pub fn nfqueue(data: &[u8]) {
    let packets = queue::messages(&mut data.to_vec());
    assert!(packets.iter().map(Vec::len).sum::<usize>() <= data.len(), "more bytes of packets than there are");
    packets.iter().for_each(|p| decode(p, LinkType::RAW));
}
