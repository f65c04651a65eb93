//! Captures of both formats, whole and broken, from bytes written here.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by it")]

mod common;

use std::path::Path;

use common::{Ng, Owned, Pieces, read_all};
use margay_capture::{Broken, Error, FilterSet, PcapWriter, Reader, Resolution, drain};
use margay_packet::{LinkType, Time};
use proptest::prelude::*;

/// A pcap file of either byte order: records are seconds, fraction, data, wire length.
fn pcap(magic: u32, big: bool, snaplen: u32, link: u32, records: &[(u32, u32, &[u8], u32)]) -> Vec<u8> {
    let u32b = |v: u32| if big { v.to_be_bytes() } else { v.to_le_bytes() };
    let u16b = |v: u16| if big { v.to_be_bytes() } else { v.to_le_bytes() };
    let mut out = u32b(magic).to_vec();
    out.extend(u16b(2));
    out.extend(u16b(4));
    out.extend([0; 8]);
    out.extend(u32b(snaplen));
    out.extend(u32b(link));
    for (secs, fraction, data, wire) in records {
        for v in [*secs, *fraction, data.len() as u32, *wire] {
            out.extend(u32b(v));
        }
        if magic == 0xa1b2_cd34 {
            out.extend([0; 8]);
        }
        out.extend(*data);
    }
    out
}

fn owned(data: &[u8], wire_len: u32, micros: i64, link: u32, number: u64) -> Owned {
    Owned { data: data.to_vec(), wire_len, micros, link, number }
}

#[test]
fn pcap_of_every_magic_and_byte_order() {
    for big in [false, true] {
        for (magic, fraction) in [(0xa1b2_c3d4, 250_000), (0xa1b2_3c4d, 250_000_999), (0xa1b2_cd34, 250_000)] {
            let file = pcap(magic, big, 65535, 113, &[(7, fraction, b"one", 3), (4_000_000_000, 0, b"", 60)]);
            let (frames, error) = read_all(file.as_slice(), 10);
            assert!(error.is_none(), "{error:?}");
            let expected = [owned(b"one", 3, 7_250_000, 113, 1), owned(b"", 60, 4_000_000_000_000_000, 113, 2)];
            assert_eq!(frames, expected, "{magic:x} {big}");
        }
    }
}

#[test]
fn snaplen_cuts_and_absurd_lengths_end() {
    let (frames, error) = read_all(pcap(0xa1b2_c3d4, false, 2, 1, &[(0, 0, b"abcd", 9)]).as_slice(), 10);
    assert!(error.is_none());
    assert_eq!(frames, [owned(b"ab", 9, 0, 1, 1)]);

    let big = vec![7u8; 262_145];
    let file = pcap(0xa1b2_c3d4, false, 0, 1, &[(0, 0, &big[1..], 1), (0, 0, b"x", 1), (0, 0, &big, 1)]);
    let (frames, error) = read_all(file.as_slice(), 10);
    assert_eq!(frames.len(), 2);
    assert_eq!((frames[0].data.len(), frames[0].wire_len), (262_144, 262_144));
    let error = error.unwrap();
    assert!(matches!(
        error,
        Error::Corrupt { offset: 262_201, reason: Broken::PacketLength { claimed: 262_145, .. }, .. }
    ));
    assert_eq!(
        error.to_string(),
        "x.pcap: is corrupt at byte 262201: a packet record claims 262145 captured bytes; no more than 262144 are taken"
    );
}

#[test]
fn old_versions_have_their_lengths_the_other_way_round() {
    let mut file = pcap(0xa1b2_c3d4, false, 65535, 1, &[(0, 0, b"abcd", 9)]);
    for (minor, swap) in [(2, true), (3, true), (3, false), (4, false)] {
        file[6] = minor;
        let lengths: [u32; 2] = if swap { [9, 4] } else { [4, 9] };
        file[32..36].copy_from_slice(&lengths[0].to_le_bytes());
        file[36..40].copy_from_slice(&lengths[1].to_le_bytes());
        assert_eq!(read_all(file.as_slice(), 1).0, [owned(b"abcd", 9, 0, 1, 1)], "2.{minor}");
    }
    file[4] = 9;
    assert!(matches!(read_all(file.as_slice(), 1).1, Some(Error::Version { major: 9, minor: 4, .. })));
}

#[test]
fn frame_check_sequence_bits_are_not_the_link() {
    assert_eq!(read_all(pcap(0xa1b2_c3d4, true, 0, 0x1400_0001, &[(0, 0, b"a", 1)]).as_slice(), 1).0[0].link, 1);
}

/// Two sections of different byte order, several interfaces, every kind of packet block, and blocks to skip.
fn ng_file() -> (Vec<u8>, Vec<Owned>) {
    let mut ng = Ng::default();
    ng.section(false)
        .interface(1, 0, &[])
        .interface(101, 0, &[(2, b"eth1".to_vec()), (9, vec![9])])
        .enhanced(0, 5_000_001, b"first", 5)
        .block(5, &[1; 40])
        .enhanced(1, 5_000_002_999, b"second!", 1500)
        .simple(b"simple", 6)
        .obsolete(1, 6_000_000_000, b"obsolete", 8)
        .section(true);
    let offset = 1_000_000i64.to_be_bytes().to_vec();
    ng.interface(228, 3, &[(9, vec![0x80 | 10]), (14, offset)])
        .block(0x4000_0bad, &vec![0; 3_000_000])
        .enhanced(0, 3 * 1024 + 512, b"third", 5)
        .simple(b"sim", 6)
        .interface(113, 0, &[(9, vec![0])])
        .enhanced(1, 9, b"", 0);
    let expected = vec![
        owned(b"first", 5, 5_000_001, 1, 1),
        owned(b"second!", 1500, 5_000_002, 101, 2),
        owned(b"simple", 6, 5_000_002, 1, 3),
        owned(b"obsolete", 8, 6_000_000, 101, 4),
        owned(b"third", 5, 1_000_003_500_000, 228, 5),
        owned(b"sim", 6, 1_000_003_500_000, 228, 6),
        owned(b"", 0, 9_000_000, 113, 7),
    ];
    (ng.bytes, expected)
}

#[test]
fn pcapng_sections_interfaces_and_blocks() {
    let (bytes, expected) = ng_file();
    for max in [1, 2, 100] {
        let (frames, error) = read_all(bytes.as_slice(), max);
        assert!(error.is_none(), "{error:?}");
        assert_eq!(frames, expected);
    }
    let (counters, error) = drain(&bytes);
    assert!(error.is_none());
    assert_eq!((counters.frames, counters.cut, counters.skipped_blocks), (7, 2, 2));
}

#[test]
fn pcapng_resolutions() {
    for (resolution, ticks, micros) in [
        (3, 1_234, 1_234_000),
        (6, 1_234, 1_234),
        (12, 1_234_567_890, 1_234),
        (25, u64::MAX, 1),
        (26, u64::MAX, 0),
        (127, u64::MAX, 0),
        (0x80, 2, 2_000_000),
        (0x80 | 20, 1 << 19, 500_000),
        (0x80 | 127, u64::MAX, 0),
        (0, u64::MAX, i64::MAX),
    ] {
        let mut ng = Ng::default();
        ng.section(false).interface(1, 0, &[(9, vec![resolution])]).enhanced(0, ticks, b"a", 1);
        assert_eq!(read_all(ng.bytes.as_slice(), 1).0[0].micros, micros, "{resolution:#x}");
    }
}

#[test]
fn broken_pcapng_says_where_and_what() {
    let start = || {
        let mut ng = Ng::default();
        ng.section(false).interface(1, 0, &[]).enhanced(0, 0, b"good", 4);
        ng
    };
    let at = start().bytes.len() as u64;
    let check = |ng: &Ng, want: Broken| {
        let (frames, error) = read_all(ng.bytes.as_slice(), 100);
        assert_eq!(frames.len(), 1, "what is before is delivered");
        match error {
            Some(Error::Corrupt { offset, reason, .. }) => assert_eq!((offset, reason), (at, want)),
            other => panic!("{other:?} instead of {want:?}"),
        }
    };
    let mut ng = start();
    ng.enhanced(3, 0, b"x", 1);
    check(&ng, Broken::Interface { id: 3, known: 1 });

    for length in [0u32, 11, 31, 34, 0x7fff_fffc] {
        let mut ng = start();
        ng.bytes.extend(6u32.to_le_bytes());
        ng.bytes.extend(length.to_le_bytes());
        ng.bytes.extend([0; 64]);
        check(&ng, Broken::BlockLength { kind: 6, length });
    }

    let mut ng = start();
    ng.enhanced(0, 0, b"x", 1);
    let end = ng.bytes.len();
    ng.bytes[end - 4] = 99;
    check(&ng, Broken::BlockTrailer { start: 36, end: 99 });

    // More captured bytes than the block holds.
    let mut ng = start();
    ng.enhanced(0, 0, b"x", 1);
    ng.bytes[at as usize + 20] = 5;
    check(&ng, Broken::BlockLength { kind: 6, length: 36 });

    let mut ng = start();
    ng.block(0x0a0d_0d0a, &[0; 16]);
    check(&ng, Broken::ByteOrder(0));

    let mut ng = start();
    ng.interface(1, 0, &[(14, vec![0; 4])]);
    check(&ng, Broken::Option(14));

    // A skipped block ends with another length. That is detected at its end, so the offset is that of the trailer.
    let mut ng = start();
    ng.block(77, &[0; 8]);
    let end = ng.bytes.len();
    ng.bytes[end - 4] = 99;
    let (_, error) = read_all(ng.bytes.as_slice(), 100);
    assert!(matches!(error, Some(Error::Corrupt { reason: Broken::BlockTrailer { start: 20, end: 99 }, .. })));
}

#[test]
fn what_is_no_capture_is_named() {
    let message = |bytes: &[u8]| read_all(bytes, 1).1.map(|e| e.to_string()).unwrap_or_default();
    assert_eq!(message(b""), "x.pcap: is empty; a capture has at least a file header");
    assert_eq!(message(&[0x1f, 0x8b, 8, 0]), "x.pcap: is compressed with gzip; decompress it first");
    assert_eq!(message(&[0x28, 0xb5, 0x2f, 0xfd, 0]), "x.pcap: is compressed with zstd; decompress it first");
    assert_eq!(
        message(b"text, not packets, but long enough"),
        "x.pcap: is not a capture that can be read: it begins with 74 65 78 74, pcap and pcapng files do not"
    );
    assert!(message(b"snoop\0\0\0").contains("editcap"));
    assert_eq!(
        message(&[0xd4, 0xc3, 0xb2, 0xa1, 2, 0]),
        "x.pcap: is cut short: what begins at byte 0 takes 24 bytes, but the file ends after 6 of them"
    );
    assert!(message(&[0xd4]).contains("takes 24 bytes"));
    assert!(message(&[0x0a, 0x0d, 0x0d, 0x0a, 9]).contains("cut short"));
}

#[test]
fn a_cut_capture_gives_every_whole_packet_first() {
    let pcap_file = pcap(0xa1b2_c3d4, false, 0, 1, &[(1, 0, b"abc", 3), (2, 0, b"defgh", 5)]);
    for keep in 24..=pcap_file.len() {
        let (frames, error) = read_all(&pcap_file[..keep], 100);
        let whole = [24, 43, 64].iter().rposition(|&end| end <= keep).unwrap();
        assert_eq!(frames.len(), whole, "{keep}");
        match error {
            None => assert!([24, 43, 64].contains(&keep)),
            Some(Error::Truncated { offset, got, wanted, .. }) => {
                assert_eq!(offset, [24, 43, 64][whole]);
                assert_eq!(got, keep as u64 - offset);
                assert!(wanted > got);
            }
            Some(other) => panic!("{other}"),
        }
    }
    let (ng, expected) = ng_file();
    let mut ends = 0;
    for keep in (28..600).chain(ng.len() - 120..=ng.len()) {
        let (frames, error) = read_all(&ng[..keep], 100);
        assert_eq!(frames, expected[..frames.len()]);
        match error {
            None => ends += 1,
            Some(Error::Truncated { offset, got, wanted, .. }) => {
                assert_eq!(offset + got, keep as u64);
                assert!(wanted > got, "{keep} {wanted} {got}");
            }
            Some(other) => panic!("{other}"),
        }
    }
    assert!(ends >= 10, "whole at each block's end");
}

#[test]
fn a_filter_takes_frames_out_and_numbers_what_is_left() {
    let mut tcp = vec![0u8; 14 + 20 + 20];
    (tcp[12], tcp[13], tcp[14], tcp[23]) = (8, 0, 0x45, 6);
    let mut udp = tcp.clone();
    udp[23] = 17;
    let records: Vec<(u32, u32, &[u8], u32)> =
        (0..1000).map(|i| (i, 0, if i % 10 == 0 { &udp[..] } else { &tcp[..] }, 54)).collect();
    let file = pcap(0xa1b2_c3d4, false, 0, 1, &records);
    let mut reader = Reader::new(file.as_slice(), Path::new("x")).unwrap().with_filter(Some(FilterSet::new("udp")));
    let mut seen = Vec::new();
    while let Some(batch) = reader.next_batch(64).unwrap() {
        seen.extend(batch.iter().map(|f| (f.number, f.time.secs(), f.data[23])));
    }
    let expected: Vec<_> = (0..100).map(|i| (i + 1, i as i64 * 10, 17)).collect();
    assert_eq!(seen, expected);
    let c = reader.counters();
    assert_eq!((c.frames, c.bytes, c.filtered, c.filtered_bytes), (100, 5400, 900, 48_600));

    // Each link type has its own compiled filter; a bad expression is an error that names the file.
    let mut ng = Ng::default();
    ng.section(false).interface(1, 0, &[]).interface(101, 0, &[]);
    ng.enhanced(0, 0, &udp, 54).enhanced(1, 0, &udp[14..], 40).enhanced(1, 0, &tcp[14..], 40).enhanced(0, 0, &tcp, 54);
    let count = |expression: &str| {
        let filter = Some(FilterSet::new(expression));
        let mut reader = Reader::new(ng.bytes.as_slice(), Path::new("x")).unwrap().with_filter(filter);
        let mut frames = 0;
        while let Some(batch) = reader.next_batch(64).map_err(|e| e.to_string())? {
            frames += batch.len();
        }
        Ok::<usize, String>(frames)
    };
    assert_eq!(count("udp"), Ok(2));
    assert_eq!(count("ip"), Ok(4));
    // Raw IP has no such addresses, so the filter fails. The Ethernet frame before it is still delivered.
    let error = count("ether dst 00:00:00:00:00:00").unwrap_err();
    assert!(error.starts_with("x: filter \"ether dst"), "{error}");
}

#[test]
fn frames_of_a_batch_are_valid_together() {
    let records: Vec<(u32, u32, &[u8], u32)> =
        (0..100).map(|i| (i, 0, &b"0123456789"[..i as usize % 10], 10)).collect();
    let file = pcap(0xa1b2_c3d4, false, 0, 1, &records);
    let mut reader = Reader::new(file.as_slice(), Path::new("x")).unwrap();
    let batch = reader.next_batch(50).unwrap().unwrap();
    let frames: Vec<_> = batch.iter().collect();
    assert_eq!(frames.len(), 50);
    for (i, frame) in frames.iter().enumerate() {
        assert_eq!(frame.data, &b"0123456789"[..i % 10]);
        assert_eq!(batch.get(i).unwrap().data, frame.data);
    }
    assert!(batch.get(50).is_none());
}

#[test]
fn the_writer_keeps_to_the_format() {
    let mut out = Vec::new();
    let mut w = PcapWriter::new(&mut out, LinkType::ETHERNET, 4, Resolution::Nano).unwrap();
    w.write(Time::new(-5, 0), b"abcdef", 6).unwrap();
    w.write(Time(i64::MAX), b"", 0).unwrap();
    assert_eq!(w.bytes(), 24 + 16 + 4 + 16);
    assert_eq!(out.len(), 60);
    let (frames, error) = read_all(out.as_slice(), 10);
    assert!(error.is_none());
    assert_eq!(frames, [owned(b"abcd", 6, 0, 1, 1), owned(b"", 0, i64::from(u32::MAX) * 1_000_000 + 999_999, 1, 2)]);
}

fn frames_strategy() -> impl Strategy<Value = Vec<(u32, u32, Vec<u8>, u32)>> {
    let frame = (any::<u32>(), 0u32..1_000_000, proptest::collection::vec(any::<u8>(), 0..200), 0u32..100);
    proptest::collection::vec(frame, 0..60)
}

proptest! {
    #[test]
    fn pcap_round_trip_whatever_the_reads(
        frames in frames_strategy(),
        nano in any::<bool>(),
        mut sizes in proptest::collection::vec(0usize..40, 1..8),
        max in 0usize..20,
    ) {
        sizes.push(1);
        let resolution = if nano { Resolution::Nano } else { Resolution::Micro };
        let mut out = Vec::new();
        let mut w = PcapWriter::new(&mut out, LinkType::RAW, 65535, resolution).unwrap();
        let mut expected = Vec::new();
        for (i, (secs, micros, data, more)) in frames.iter().enumerate() {
            let wire = data.len() as u32 + more;
            let time = Time::new(i64::from(*secs), i64::from(*micros));
            w.write(time, data, wire).unwrap();
            expected.push(owned(data, wire, time.0, 101, i as u64 + 1));
        }
        let (read, error) = read_all(Pieces { bytes: &out, sizes, turn: 0 }, max);
        prop_assert!(error.is_none());
        prop_assert_eq!(read, expected);
    }

    #[test]
    fn pcapng_round_trip_whatever_the_reads(
        frames in frames_strategy(),
        big in any::<bool>(),
        mut sizes in proptest::collection::vec(0usize..40, 1..8),
        max in 0usize..20,
    ) {
        sizes.push(1);
        let mut ng = Ng::default();
        ng.section(big).interface(1, 0, &[]).interface(101, 0, &[(9, vec![9])]);
        let mut expected = Vec::new();
        for (i, (secs, micros, data, more)) in frames.iter().enumerate() {
            let wire = data.len() as u32 + more;
            let time = Time::new(i64::from(*secs), i64::from(*micros));
            let second = i % 2 == 1;
            ng.enhanced(u32::from(second), time.0 as u64 * if second { 1000 } else { 1 }, data, wire);
            if i % 5 == 0 {
                ng.block(0xbad, data);
            }
            expected.push(owned(data, wire, time.0, if second { 101 } else { 1 }, i as u64 + 1));
        }
        let (read, error) = read_all(Pieces { bytes: &ng.bytes, sizes, turn: 0 }, max);
        prop_assert!(error.is_none());
        prop_assert_eq!(read, expected);
    }

    #[test]
    fn any_bytes_do_no_harm(start in 0usize..4, bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let head: &[u8] = match start {
            0 => &[],
            1 => &[0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0],
            2 => &[0xa1, 0xb2, 0x3c, 0x4d, 0, 2, 0, 4],
            _ => &[
                0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255,
                255, 28, 0, 0, 0,
            ],
        };
        let mut file = head.to_vec();
        file.extend(bytes);
        drain(&file);
    }

    #[test]
    fn a_damaged_file_reads_the_same_however_it_is_cut_up(
        at in 0usize..400,
        with in any::<u8>(),
        mut sizes in proptest::collection::vec(0usize..100, 1..4),
        ng in any::<bool>(),
    ) {
        sizes.push(1);
        let mut file = if ng {
            let mut ng = Ng::default();
            ng.section(false).interface(1, 0, &[(9, vec![9])]);
            for i in 0..5u32 {
                ng.enhanced(0, u64::from(i), b"some packet", 11).block(9, b"other").simple(b"abc", 3);
            }
            ng.bytes
        } else {
            pcap(0xa1b2_c3d4, true, 0, 1, &[(1, 1, &[5; 60], 60), (2, 2, &[6; 90], 100), (3, 3, &[7; 100], 100)])
        };
        let at = at % file.len();
        file[at] = with;
        let (whole, a) = read_all(file.as_slice(), 100);
        let (pieces, b) = read_all(Pieces { bytes: &file, sizes, turn: 0 }, 3);
        prop_assert_eq!(whole, pieces);
        prop_assert_eq!(a.map(|e| e.to_string()), b.map(|e| e.to_string()));
    }
}
