//! Frames, their source, and their sender.
#![allow(dead_code)]

use std::path::Path;
use std::time::{Duration, Instant};

/// The frames of an Ethernet capture file.
pub(crate) fn frames(file: &Path) -> Vec<Vec<u8>> {
    let mut capture = pcap::Capture::from_file(file).expect("a capture");
    let mut all = Vec::new();
    while let Ok(p) = capture.next_packet() {
        all.push(p.data.to_vec());
    }
    assert!(!all.is_empty());
    all
}

/// Sends frames on an interface.
pub(crate) struct Sender(pcap::Capture<pcap::Active>);

impl Sender {
    pub(crate) fn on(name: &str) -> Sender {
        Sender(pcap::Capture::from_device(name).and_then(|c| c.buffer_size(1 << 16).open()).expect("it can be sent to"))
    }

    pub(crate) fn send(&mut self, frames: &[Vec<u8>]) {
        for (n, f) in frames.iter().enumerate() {
            // The other end may be slow.
            let end = Instant::now() + Duration::from_secs(120);
            while let Err(e) = self.0.sendpacket(f.as_slice()) {
                assert!(Instant::now() < end, "{e}");
            }
            if n % 64 == 63 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Sends as many frames as possible now, and returns their number.
    pub(crate) fn try_send(&mut self, frames: &[Vec<u8>]) -> u64 {
        frames.iter().filter(|f| self.0.sendpacket(f.as_slice()).is_ok()).count() as u64
    }
}
