//! Cost of reading packets from a capture file in memory.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use margay_capture::{FilterSet, PcapWriter, Reader, Resolution};
use margay_packet::{LinkType, Time};

fn main() {
    divan::main();
}

const PACKETS: u32 = 20_000;

/// A capture with UDP packets of 60 to 1,514 bytes over IPv4, mostly zeros.
fn file() -> Vec<u8> {
    let mut w = PcapWriter::new(Vec::new(), LinkType::ETHERNET, 65_535, Resolution::Micro).unwrap();
    let mut data = vec![0u8; 1514];
    data[12..14].copy_from_slice(&[8, 0]);
    (data[14], data[23]) = (0x45, 17);
    for n in 0..PACKETS {
        let len = if n % 3 == 0 { 1514 } else { 60 + (n % 200) as usize };
        data[36..38].copy_from_slice(&(n as u16).to_be_bytes());
        w.write(Time::new(i64::from(n / 1000), i64::from(n % 1000)), &data[..len], len as u32).unwrap();
    }
    w.into_inner()
}

#[divan::bench(args = ["", "udp and dst portrange 0-32767"])]
fn pcap(b: Bencher<'_, '_>, filter: &str) {
    let file = file();
    b.counter(ItemsCount::new(PACKETS)).counter(BytesCount::new(file.len())).bench_local(|| {
        let filter = (!filter.is_empty()).then(|| FilterSet::new(filter));
        let mut reader = Reader::new(&file[..], Path::new("memory")).unwrap().with_filter(filter);
        let mut sum = 0;
        while let Some(batch) = reader.next_batch(256).unwrap() {
            sum += batch.iter().map(|f| f.data.len()).sum::<usize>();
        }
        black_box(sum)
    });
}
