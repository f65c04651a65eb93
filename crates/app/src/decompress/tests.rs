use std::io::Write;

use super::*;
use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use proptest::prelude::*;

const EICAR: &[u8] = br"X5O!P%@AP[4\PZX54(P^)7CC)7}$EICAR-STANDARD-ANTIVIRUS-TEST-FILE!$H+H*";
const JUNK: &[u8] = b"JUNK behind the end";

pub(super) fn gzip(data: &[u8]) -> Vec<u8> {
    let mut e = GzEncoder::new(Vec::new(), Compression::best());
    e.write_all(data).expect("to memory");
    e.finish().expect("to memory")
}

pub(super) fn zlib(data: &[u8]) -> Vec<u8> {
    let mut e = ZlibEncoder::new(Vec::new(), Compression::best());
    e.write_all(data).expect("to memory");
    e.finish().expect("to memory")
}

pub(super) fn deflate(data: &[u8]) -> Vec<u8> {
    let mut e = DeflateEncoder::new(Vec::new(), Compression::best());
    e.write_all(data).expect("to memory");
    e.finish().expect("to memory")
}

pub(super) fn lzma(data: &[u8], dictionary: u32) -> Vec<u8> {
    let mut options = liblzma::stream::LzmaOptions::new_preset(6).expect("a preset");
    options.dict_size(dictionary);
    let stream = liblzma::stream::Stream::new_lzma_encoder(&options).expect("an encoder");
    let mut e = liblzma::write::XzEncoder::new_stream(Vec::new(), stream);
    e.write_all(data).expect("to memory");
    e.finish().expect("to memory")
}

/// A Brotli stream of one uncompressed block (RFC 7932 section 9.2) and the empty last one.
pub(super) fn brotli(data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    // WBITS 16 (0), ISLAST 0, MNIBBLES 4 (00), MLEN - 1 in 16 bits, ISUNCOMPRESSED 1.
    let head = ((data.len() - 1) as u32) << 4 | 1 << 20;
    out.extend_from_slice(&head.to_le_bytes()[..3]);
    out.extend_from_slice(data);
    out.push(3);
    out
}

fn run_with(codings: &[Coding], limits: Limits, pieces: &[&[u8]]) -> (Vec<u8>, Status) {
    let mut out = Vec::new();
    let mut decoder = Decoder::new(codings, limits);
    let mut sink = |piece: &[u8]| {
        assert!(!piece.is_empty() && piece.len() <= SCRATCH);
        out.extend_from_slice(piece);
        true
    };
    let mut status = Status::Ok;
    for piece in pieces {
        status = status.worse(decoder.push(piece, &mut sink));
    }
    status = status.worse(decoder.finish(&mut sink));
    (out, status)
}

fn run(codings: &[Coding], data: &[u8]) -> (Vec<u8>, Status) {
    let whole = run_with(codings, Limits::default(), &[data]);
    let bytes: Vec<&[u8]> = data.chunks(1).collect();
    let split = run_with(codings, Limits::default(), &bytes);
    assert!(whole == split, "{} bytes {:?}, by byte {} {:?}", whole.0.len(), whole.1, split.0.len(), split.1);
    whole
}

fn text() -> Vec<u8> {
    (0..2000u32).flat_map(|i| format!("{i} line of text {}\n", i.wrapping_mul(2_654_435_761)).into_bytes()).collect()
}

#[test]
fn what_is_said_is_what_there_is() {
    for data in [EICAR.to_vec(), text()] {
        assert_eq!(run(&[Coding::Gzip], &gzip(&data)), (data.clone(), Status::Ok));
        assert_eq!(run(&[Coding::Deflate], &zlib(&data)), (data.clone(), Status::Ok));
        assert_eq!(run(&[Coding::Deflate], &deflate(&data)), (data.clone(), Status::Ok));
        assert_eq!(run(&[Coding::Lzma], &lzma(&data, 1 << 16)), (data.clone(), Status::Ok));
        assert_eq!(run(&[Coding::Brotli], &brotli(&data[..60])), (data[..60].to_vec(), Status::Ok));
        assert_eq!(run(&[Coding::Gzip, Coding::Deflate], &gzip(&deflate(&data))), (data.clone(), Status::Ok));
        assert_eq!(run(&[Coding::Lzma, Coding::Gzip], &lzma(&gzip(&data), 1 << 16)), (data.clone(), Status::Ok));
        assert_eq!(
            run(&[Coding::Gzip, Coding::Deflate, Coding::Gzip], &gzip(&deflate(&gzip(&data)))),
            (data, Status::Ok)
        );
    }
}

#[test]
fn brotli_with_its_dictionary() {
    // Output of the reference encoder at its best level.
    let words = b"The quick brown fox, the quick brown fox and the lazy dog: EICAR-STANDARD-ANTIVIRUS-TEST-FILE!";
    #[rustfmt::skip]
    let data = [
        0x1b, 0x5d, 0x00, 0xe8, 0xad, 0x8f, 0x77, 0xd4, 0xaf, 0x18, 0x45, 0x95, 0xd4, 0xa2, 0x67, 0xe1,
        0xed, 0xe0, 0x9e, 0xae, 0x6e, 0x09, 0x4a, 0xa2, 0x52, 0x45, 0x74, 0x49, 0x66, 0xc6, 0xd6, 0x20,
        0x2c, 0x3a, 0x79, 0xcb, 0x09, 0x2d, 0x43, 0x86, 0xa4, 0xf2, 0x0c, 0x4f, 0xaf, 0xc2, 0xde, 0x1c,
        0xe3, 0x44, 0x07, 0xf3, 0x6b, 0x58, 0x17, 0xdc, 0x71, 0xf1, 0xc1, 0x21, 0x67, 0x72, 0xb3, 0x34,
        0x6b, 0x7b, 0xf9, 0x56, 0x88, 0xf1, 0x1b, 0x5a, 0xa2, 0xc2, 0x74, 0xf7, 0x69, 0x94, 0x23, 0x06,
        0x2e, 0xba, 0x83, 0x65, 0x30, 0xe3, 0x1e, 0x36,
    ];
    assert_eq!(run(&[Coding::Brotli], &data), (words.to_vec(), Status::Ok));
    assert_eq!(run(&[Coding::Brotli], &[0x06]), (Vec::new(), Status::Ok));
    let mut trailing = brotli(b"abc");
    trailing.extend_from_slice(JUNK);
    assert_eq!(run(&[Coding::Brotli], &trailing), (b"abc".to_vec(), Status::Ok));
}

/// A marker, then words of Brotli's dictionary separated by runs of zeros, longer than any window; from the reference encoder
/// at its best level with the largest window. Distances reach across each of the decoder's successive windows, and dictionary
/// words follow the end of each.
const FAR: &str = concat!(
    "cfffff7fe017a1d275754f3ae06ef0341c4751404114e8e080fd67a941c23a212c768c03c673574742907ff90403706ab0ee",
    "6226abbd18a5f1b9c193a3a7c3bab74b630de51f4bfc27967e8721b806047830ee06450906a2ec6c430d0986f85632ecbbda",
    "6e2ef75ce01f671d71c0bbe0298ca3d18006a34f41443aac00e0edab9a0be2a34006478bf33413f6f8b08af178c52fd7ec94",
    "f501",
);

fn far() -> (Vec<u8>, Vec<u8>) {
    let packed = FAR
        .as_bytes()
        .chunks(2)
        .map(|two| u8::from_str_radix(std::str::from_utf8(two).expect("hexadecimal"), 16).expect("hexadecimal"));
    let mark = b"marker !GQ?k!oG]W5QQ5W]Go!k?QG!95o35u?G3]k]3G?u";
    let words = b" the quick development of information technology and the government of the United States";
    let zeros = |n: usize| vec![0; n];
    let data = [&mark[..], &zeros(200_000), mark, words, &zeros(1_100_000), mark, words, &zeros(17_000_000), mark];
    (packed.collect(), data.concat())
}

#[test]
fn brotli_with_a_window_that_grows() {
    let (packed, data) = far();
    let limits = Limits { bomb: u64::MAX, work: 0, ..Limits::default() };
    let (out, status) = run_with(&[Coding::Brotli], limits, &[&packed]);
    assert_eq!(status, Status::Ok);
    assert!(out == data, "{} bytes of {}", out.len(), data.len());
    let bytes: Vec<&[u8]> = packed.chunks(1).collect();
    assert!(run_with(&[Coding::Brotli], limits, &bytes) == (data, Status::Ok), "byte by byte");
}

/// The correct output of a truncated or damaged stream does not depend on the window.
#[test]
fn brotli_that_is_damaged_behind_a_window() {
    let (packed, data) = far();
    let limits = Limits { bomb: u64::MAX, work: 0, ..Limits::default() };
    for len in (60..packed.len()).step_by(3) {
        let (out, _) = run_with(&[Coding::Brotli], limits, &[&packed[..len]]);
        assert!(out == data[..out.len()], "cut at {len}");
    }
    for bit in (0..packed.len() * 8).step_by(5) {
        let mut damaged = packed.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let whole = run_with(&[Coding::Brotli], Limits::default(), &[&damaged]);
        let bytes: Vec<&[u8]> = damaged.chunks(1).collect();
        let split = run_with(&[Coding::Brotli], Limits::default(), &bytes);
        assert!(
            whole == split,
            "bit {bit}: {} bytes {:?}, {} bytes {:?}",
            whole.0.len(),
            whole.1,
            split.0.len(),
            split.1
        );
    }
}

/// A few bytes may declare a window of 16 MiB, and memory follows the wanted output.
#[test]
fn brotli_takes_memory_for_what_is_wanted() {
    let (packed, data) = far();
    for (wanted, most) in [(100_000, 400 << 10), (1_000_000, 3 << 20)] {
        let mut decoder = Decoder::new(&[Coding::Brotli], Limits { bomb: u64::MAX, work: 0, ..Limits::default() });
        let mut out = Vec::new();
        let mut sink = |piece: &[u8]| {
            out.extend_from_slice(piece);
            out.len() < wanted
        };
        decoder.push(&packed, &mut sink);
        assert!(out.len() >= wanted && out == data[..out.len()], "{} bytes", out.len());
        assert!(decoder.memory() < most, "{} bytes of memory for {wanted}", decoder.memory());
    }
}

/// Input before the output is kept only as long as it may be needed again.
#[test]
fn brotli_with_much_that_decodes_to_nothing() {
    // WBITS 24, and blocks of metadata (RFC 7932, section 9.2): ISLAST 0, MNIBBLES 0 (11), 0, MSKIPBYTES 2, MSKIPLEN - 1 = 999.
    let mut bits = Bits::default();
    bits.put(0b1111, 4);
    for _ in 0..2000 {
        bits.put(0, 1);
        bits.put(0b11, 2);
        bits.put(0, 1);
        bits.put(2, 2);
        bits.put(999, 16);
        bits.align();
        bits.bytes.extend_from_slice(&[b'm'; 1000]);
    }
    // One uncompressed block, and the end.
    bits.put(0, 1);
    bits.put(0, 2);
    bits.put(EICAR.len() as u32 - 1, 16);
    bits.put(1, 1);
    bits.align();
    bits.bytes.extend_from_slice(EICAR);
    bits.put(3, 2);
    bits.align();
    let mut decoder = Decoder::new(&[Coding::Brotli], Limits::default());
    let mut out = Vec::new();
    for piece in bits.bytes.chunks(1000) {
        decoder.push(piece, &mut |data| {
            out.extend_from_slice(data);
            true
        });
        assert!(decoder.memory() < 2 * bits.bytes.len() + (400 << 10), "{} bytes", decoder.memory());
    }
    decoder.finish(&mut |data| {
        out.extend_from_slice(data);
        true
    });
    assert_eq!(out, EICAR);
}

/// Bits as Brotli packs them, lowest first.
#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    some: u32,
    count: u32,
}

impl Bits {
    fn put(&mut self, value: u32, bits: u32) {
        for n in 0..bits {
            self.some |= (value >> n & 1) << self.count;
            self.count += 1;
            if self.count == 8 {
                self.align();
            }
        }
    }

    fn align(&mut self) {
        if self.count > 0 {
            self.bytes.push(self.some as u8);
            (self.some, self.count) = (0, 0);
        }
    }
}

#[test]
fn plain_data_is_passed_on() {
    for coding in [Coding::Gzip, Coding::Deflate, Coding::Lzma] {
        assert_eq!(run(&[coding], EICAR), (EICAR.to_vec(), Status::Broken), "{coding:?}");
    }
    assert_eq!(run(&[Coding::Gzip, Coding::Gzip], &gzip(EICAR)), (EICAR.to_vec(), Status::Broken));
    assert_eq!(run(&[Coding::Gzip, Coding::Gzip], EICAR), (EICAR.to_vec(), Status::Broken));
    // Literals of the fixed code make a wrong guess.
    let guess = b"Some text that begins like a block of the fixed code. EICAR-STANDARD-ANTIVIRUS-TEST-FILE";
    assert_eq!(run(&[Coding::Gzip], guess), (guess.to_vec(), Status::Broken));
    let header = [&gzip(EICAR)[..10], b"\x07", EICAR].concat();
    assert_eq!(run(&[Coding::Gzip], &header), (header.clone(), Status::Broken));
    assert_eq!(run(&[Coding::Gzip], b"X"), (b"X".to_vec(), Status::Broken));
    assert_eq!(run(&[Coding::Gzip], b""), (Vec::new(), Status::Ok));
    assert_eq!(run(&[], EICAR), (EICAR.to_vec(), Status::Ok));
}

#[test]
fn one_is_said_and_the_other_sent() {
    assert_eq!(run(&[Coding::Gzip], &deflate(EICAR)), (EICAR.to_vec(), Status::Broken));
    assert_eq!(run(&[Coding::Gzip], &deflate(&text())), (text(), Status::Broken));
    assert_eq!(run(&[Coding::Gzip], &zlib(EICAR)), (EICAR.to_vec(), Status::Ok));
    assert_eq!(run(&[Coding::Deflate], &gzip(EICAR)), (EICAR.to_vec(), Status::Broken));
    assert_eq!(run(&[Coding::Deflate, Coding::Gzip], &gzip(EICAR)), (EICAR.to_vec(), Status::Broken));
    assert_eq!(run(&[Coding::Gzip, Coding::Deflate], &deflate(EICAR)), (EICAR.to_vec(), Status::Broken));
}

#[test]
fn gzip_headers_and_trailers() {
    let (raw, whole) = (deflate(EICAR), gzip(EICAR));
    let trailer = &whole[whole.len() - 8..];
    let with =
        |flags: u8, fields: &[u8]| [&[0x1f, 0x8b, 8, flags, 0, 0, 0, 0, 0, 3], fields, &raw[..], trailer].concat();
    let long = [vec![b'n'; 5000], vec![0]].concat();
    for (flags, fields, status) in [
        (1, &b""[..], Status::Ok),
        (4, b"\0\0", Status::Ok),
        (4, b"\x05\0Ap\x01\0\0", Status::Ok),
        (8, b"name\0", Status::Ok),
        (8, &long, Status::Ok),
        (16, b" \0", Status::Ok),
        (28, b"\x03\0abcname\0comment\0", Status::Ok),
        (2, b"\0\0", Status::Broken),
        (0x20, b"", Status::Broken),
        (0x80, b"", Status::Broken),
    ] {
        assert_eq!(run(&[Coding::Gzip], &with(flags, fields)), (EICAR.to_vec(), status), "flags {flags}");
    }
    for cut in 1..=8 {
        assert_eq!(run(&[Coding::Gzip], &whole[..whole.len() - cut]), (EICAR.to_vec(), Status::Ok), "{cut} bytes cut");
    }
    for at in 1..=8 {
        let mut bad = whole.clone();
        let i = bad.len() - at;
        bad[i] ^= 0x55;
        assert_eq!(run(&[Coding::Gzip], &bad), (EICAR.to_vec(), Status::Broken), "byte {at} from the end is wrong");
    }
    assert_eq!(run(&[Coding::Gzip], &with(4, b"\xff\xff")), (Vec::new(), Status::Ok), "a header without an end");
}

#[test]
fn what_was_decoded_counts_and_the_rest_does_not() {
    let mut e = GzEncoder::new(Vec::new(), Compression::best());
    e.write_all(EICAR).expect("to memory");
    e.flush().expect("to memory");
    let flushed = e.get_ref().clone();
    assert_eq!(run(&[Coding::Gzip], &flushed), (EICAR.to_vec(), Status::Ok), "truncated");
    let damaged = [&flushed[..], b"\x07\xff\xff", JUNK].concat();
    assert_eq!(run(&[Coding::Gzip], &damaged), (EICAR.to_vec(), Status::Broken));
    assert_eq!(run(&[Coding::Deflate], &damaged[10..]), (EICAR.to_vec(), Status::Broken));
    for (coding, data) in
        [(Coding::Gzip, gzip(EICAR)), (Coding::Deflate, zlib(EICAR)), (Coding::Deflate, deflate(EICAR))]
    {
        assert_eq!(run(&[coding], &[&data[..], JUNK].concat()), (EICAR.to_vec(), Status::Ok));
        // Only gzip has members.
        let twice = if data.starts_with(&[0x1f, 0x8b]) { [EICAR, EICAR].concat() } else { EICAR.to_vec() };
        assert_eq!(run(&[coding], &[&data[..], &data[..]].concat()), (twice, Status::Ok), "a second member");
    }
}

#[test]
fn gzip_is_read_member_by_member() {
    let (empty, member) = (gzip(b""), gzip(EICAR));
    let named = [&[0x1f, 0x8b, 8, 8, 0, 0, 0, 0, 0, 3], &b"name\0"[..], &member[10..]].concat();
    let mut wrong_sum = empty.clone();
    wrong_sum[12] ^= 1;
    let cases: &[(&str, Vec<u8>, usize, Status)] = &[
        ("an empty one first", [&empty[..], &member].concat(), 1, Status::Ok),
        ("many empty ones", [&empty.repeat(100)[..], &member].concat(), 1, Status::Ok),
        ("three", member.repeat(3), 3, Status::Ok),
        ("one with a name", [&member[..], &named].concat(), 2, Status::Ok),
        ("padding between", [&member[..], &[0; 700], &member].concat(), 2, Status::Ok),
        ("junk behind", [&member[..], &member, JUNK].concat(), 2, Status::Ok),
        ("junk between", [&member[..], JUNK, &member].concat(), 1, Status::Ok),
        ("half of its first bytes", [&member[..], &[0x1f]].concat(), 1, Status::Ok),
        ("a wrong checksum first", [&wrong_sum[..], &member].concat(), 1, Status::Broken),
        ("cut off", [&member[..], &member[..member.len() - 12]].concat(), 1, Status::Ok),
        ("another method", [&member[..], &[0x1f, 0x8b, 7, 0, 0, 0, 0, 0, 0, 3], JUNK].concat(), 1, Status::Broken),
    ];
    for (what, data, times, status) in cases {
        let (out, said) = run(&[Coding::Gzip], data);
        assert!(out.starts_with(&EICAR.repeat(*times)) && said == *status, "{what}: {} {said:?}", out.escape_ascii());
        let more = out.len() - EICAR.len() * times;
        assert!(more == 0 || (*what == "cut off" && more < EICAR.len()), "{what}: {more} bytes more");
    }
    // After a complete member, nothing is passed on unchanged.
    assert_eq!(run(&[Coding::Gzip], &[&empty[..], &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 7]].concat()).0.len(), 0);
    assert_eq!(run(&[Coding::Gzip, Coding::Gzip], &gzip(&member.repeat(2))), (EICAR.repeat(2), Status::Ok));
}

#[test]
fn lzma_keeps_to_its_memory() {
    let far: Vec<u8> = {
        let mut seed = 1u32;
        let mut noise = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 24) as u8
        };
        let block: Vec<u8> = (0..200_000).map(|_| noise()).collect();
        [&block[..], &block[..]].concat()
    };
    let small = Limits { lzma_memory: 64 << 10, ..Limits::default() };
    // A dictionary of 8 MiB is declared and not needed.
    assert_eq!(run_with(&[Coding::Lzma], small, &[&lzma(EICAR, 8 << 20)]), (EICAR.to_vec(), Status::Ok));
    let (out, status) = run_with(&[Coding::Lzma], small, &[&lzma(&far, 8 << 20)]);
    assert_eq!(status, Status::Memory);
    assert!(out.len() >= 150_000 && far.starts_with(&out[..150_000]));
    let off = Limits { lzma_memory: 0, ..Limits::default() };
    let data = lzma(EICAR, 1 << 16);
    assert_eq!(run_with(&[Coding::Lzma], off, &[&data]), (data.clone(), Status::Ok));
}

#[test]
fn lzma_of_known_length() {
    let mut data = lzma(EICAR, 1 << 16);
    data[5..13].copy_from_slice(&20u64.to_le_bytes());
    assert_eq!(run(&[Coding::Lzma], &data), (EICAR[..20].to_vec(), Status::Ok));
    data[5..13].copy_from_slice(&0u64.to_le_bytes());
    assert_eq!(run(&[Coding::Lzma], &data), (Vec::new(), Status::Ok));
}

#[test]
fn bombs_are_cut() {
    // 1 GiB of zeros in two layers, made of a repeated block.
    let inner = gzip(&vec![0; 64 << 20]);
    let outer = gzip(&inner);
    let limits = Limits { work: 0, ..Limits::default() };
    let (out, status) = run_with(&[Coding::Gzip, Coding::Gzip], limits, &[&outer]);
    assert_eq!(status, Status::Bomb);
    assert!(out.len() > 1 << 20 && out.len() <= (1 << 20) + SCRATCH.max(outer.len() * 2048));
    // One layer cannot expand 2,048 times; the work limit ends it.
    let limits = Limits { work: 2 << 20, ..Limits::default() };
    let (out, status) = run_with(&[Coding::Gzip], limits, &[&inner]);
    assert_eq!((out.len(), status), ((2 << 20) + SCRATCH, Status::Bomb));
    let mut decoder = Decoder::new(&[Coding::Gzip], limits);
    assert_eq!(decoder.push(&inner, &mut |_| true), Status::Bomb);
    assert_eq!(decoder.push(&inner, &mut |_| panic!("nothing more comes out")), Status::Bomb);
}

/// A wrong checksum changes no output, and without one nothing is reported.
#[test]
fn checksums_are_spared() {
    for wrong in [0, 1, 5] {
        let mut data = gzip(EICAR);
        let at = data.len() - 1 - wrong;
        data[at] ^= 1;
        for (spares, status) in [(false, Status::Broken), (true, Status::Ok)] {
            let (mut out, mut decoder) = (Vec::new(), Decoder::new(&[Coding::Gzip], Limits::default()));
            if spares {
                decoder.spare_checksums();
            }
            let mut sink = |piece: &[u8]| {
                out.extend_from_slice(piece);
                true
            };
            let found = decoder.push(&data, &mut sink).worse(decoder.finish(&mut sink));
            assert_eq!((out.as_slice(), found), (EICAR, status));
        }
    }
}

/// Input that decodes to nothing is not kept forever, and data after it is still decoded.
#[test]
fn waiting_for_output_ends() {
    let member = gzip(EICAR);
    let name = [&[0x1f, 0x8b, 8, 8, 0, 0, 0, 0, 0, 3], &[b'n'; 300_000][..], &[0], &member[10..]].concat();
    // Stored blocks without content (RFC 1951 section 3.2.4).
    let blocks = [&member[..10], &b"\0\0\0\xff\xff".repeat(60_000), &member[10..]].concat();
    let bare = [&b"\0\0\0\xff\xff".repeat(60_000)[..], &deflate(EICAR)].concat();
    for (what, coding, data) in
        [("a name", Coding::Gzip, &name), ("blocks", Coding::Gzip, &blocks), ("bare", Coding::Deflate, &bare)]
    {
        let pieces: Vec<&[u8]> = data.chunks(1000).collect();
        let mut decoder = Decoder::new(&[coding], Limits::default());
        let mut out = Vec::new();
        for piece in &pieces {
            decoder.push(piece, &mut |p| {
                out.extend_from_slice(p);
                true
            });
            assert!(decoder.layers[0].hold.len() <= HOLD, "{what}");
        }
        assert_eq!(out, EICAR, "{what}");
        assert_eq!(run_with(&[coding], Limits::default(), &pieces).1, Status::Broken, "{what}");
    }
    let many = [&gzip(b"").repeat(10_000)[..], &member].concat();
    assert_eq!(run(&[Coding::Gzip], &many), (EICAR.to_vec(), Status::Ok), "members without content");
}

fn any_codings() -> impl Strategy<Value = Vec<Coding>> {
    prop::collection::vec(prop::sample::select(vec![Coding::Gzip, Coding::Deflate, Coding::Lzma, Coding::Brotli]), 0..4)
}

/// Data compressed with some of the codings, and optionally damaged.
fn any_body() -> impl Strategy<Value = Vec<u8>> {
    let data = prop_oneof![prop::collection::vec(any::<u8>(), 0..400), Just(text()), Just(EICAR.to_vec())];
    (
        data,
        prop::collection::vec(0..5u8, 0..4),
        prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
    )
        .prop_map(|(mut data, how, damage)| {
            for h in how {
                data = match h {
                    0 => gzip(&data),
                    1 => zlib(&data),
                    2 => deflate(&data),
                    3 => lzma(&data, 1 << 14),
                    _ if (1..60_000).contains(&data.len()) => brotli(&data),
                    _ => data,
                };
            }
            for (at, bits) in damage {
                if !data.is_empty() {
                    let i = at.index(data.len());
                    data[i] ^= bits;
                }
            }
            data
        })
}

proptest! {
    #[test]
    fn any_splitting_gives_the_same(codings in any_codings(), data in any_body(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8)) {
        let whole = run_with(&codings, Limits::default(), &[&data]);
        let mut at: Vec<usize> = cuts.iter().map(|c| c.index(data.len() + 1)).collect();
        at.extend([0, data.len()]);
        at.sort_unstable();
        let pieces: Vec<&[u8]> = at.windows(2).map(|w| &data[w[0]..w[1]]).collect();
        let split = run_with(&codings, Limits::default(), &pieces);
        prop_assert_eq!(whole.0.len(), split.0.len());
        prop_assert_eq!(whole.1, split.1);
        prop_assert!(whole.0 == split.0);
    }

    #[test]
    fn output_is_bounded(codings in any_codings(), data in any_body(), work in 1..100_000u64) {
        let limits = Limits { work, ..Limits::default() };
        let (out, _) = run_with(&codings, limits, &[&data]);
        prop_assert!(out.len() as u64 <= (work + SCRATCH as u64).max(data.len() as u64 + 2 * SCRATCH as u64) + work);
    }
}

#[test]
fn what_nobody_wants_is_not_decoded() {
    for (coding, packed) in [(Coding::Gzip, gzip(&vec![0; 1 << 20])), (Coding::Deflate, zlib(&vec![0; 1 << 20]))] {
        let mut decoder = Decoder::new(&[coding, coding][..1], Limits::default());
        let mut out = 0;
        let mut sink = |piece: &[u8]| {
            out += piece.len();
            out < 100_000
        };
        assert_eq!(decoder.push(&packed, &mut sink), Status::Ok);
        assert_eq!(decoder.push(&packed, &mut sink), Status::Ok);
        assert_eq!(decoder.finish(&mut sink), Status::Ok);
        assert!((100_000..100_000 + SCRATCH).contains(&out), "{out}");
    }
}
