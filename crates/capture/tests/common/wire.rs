//! Builds and sends frames, and waits for changes of an interface.
#![allow(dead_code)]

use std::time::{Duration, Instant};

use margay_capture::live::{Decisions, LinkChange, LiveSource, Received};

/// How long to wait for something that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A UDP datagram in an Ethernet frame.
pub(crate) fn udp(from: [u8; 4], sport: u16, to: [u8; 4], dport: u16, payload: &[u8]) -> Vec<u8> {
    let len = 28 + payload.len();
    let mut f = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    f.extend_from_slice(&(len as u16).to_be_bytes());
    f.extend_from_slice(&[0, 0, 0, 0, 64, 17, 0, 0]);
    f.extend_from_slice(&from);
    f.extend_from_slice(&to);
    for n in [sport, dport, len as u16 - 20, 0] {
        f.extend_from_slice(&n.to_be_bytes());
    }
    f.extend_from_slice(payload);
    f
}

/// The frame with tags after its addresses.
pub(crate) fn tagged(frame: &[u8], tags: &[[u8; 4]]) -> Vec<u8> {
    [&frame[..12], &tags.concat()[..], &frame[12..]].concat()
}

pub(crate) struct Sender(pcap::Capture<pcap::Active>);

impl Sender {
    pub(crate) fn on(name: &str) -> Sender {
        Sender(pcap::Capture::from_device(name).and_then(|c| c.buffer_size(1 << 16).open()).expect("it can be sent to"))
    }

    pub(crate) fn send(&mut self, frame: &[u8]) {
        // The socket may be full for a moment.
        let end = Instant::now() + Duration::from_secs(10);
        while let Err(e) = self.0.sendpacket(frame) {
            assert!(Instant::now() < end, "{e}");
        }
    }
}

/// Receives until the interface has changed as expected.
pub(crate) fn until(source: &mut impl LiveSource, change: LinkChange) -> bool {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        if source.receive(64, Duration::from_millis(20)) == Received::Link(change) {
            return true;
        }
        source.release(&Decisions::default());
    }
    false
}
