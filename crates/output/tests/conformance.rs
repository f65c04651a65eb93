//! A conformance case that compares byte for byte: the file of a `pcap-log` with a filter. The test looks for the cases
//! in `CONFORMANCE_CASES`, then beside the repository.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use margay_capture::Reader;
use margay_output::output::{PacketFate, PcapLogCounters};
use margay_output::pcaplog::{PcapLog, PcapLogSettings};
use margay_packet::Packet;

fn case(name: &str) -> Option<PathBuf> {
    margay_testing::conformance_cases().map(|cases| cases.join(name))
}

#[test]
fn filtered_capture_log() {
    let Some(case) = case("output-pcap-log-filter") else { return };
    let dir = tempfile::tempdir().unwrap();
    let settings = PcapLogSettings {
        limit: 1024 * 1024 * 1024,
        max_files: 1000,
        filter: Some("udp and port 53".into()),
        ..PcapLogSettings::new(dir.path().join("log.pcap"))
    };
    let mut log = PcapLog::new(settings, 1, 1).unwrap();
    let input = std::fs::read(case.join("input.pcap")).unwrap();
    let mut reader = Reader::new(&input[..], Path::new("input.pcap")).unwrap();
    while let Some(batch) = reader.next_batch(64).unwrap() {
        for frame in batch.iter() {
            log.packet(&Packet::new(&frame), PacketFate::default());
        }
    }
    log.finish();
    assert_eq!(log.counters(), PcapLogCounters { written: 8, filtered_bpf: 10, ..Default::default() });
    let name = "log.pcap.1444144603";
    let want = std::fs::read(case.join("expected").join(name)).unwrap();
    assert!(std::fs::read(dir.path().join(name)).unwrap() == want);
}
