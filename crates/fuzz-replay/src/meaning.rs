//! The target `meaning`: the content of a request, split, decoded and judged.

use margay_meaning::Judge;
use margay_meaning::args::{ArgLimits, Args};
use margay_meaning::body::Body;
use margay_meaning::decode::canonical;

/// Limits of a request's arguments here.
const LIMITS: ArgLimits = ArgLimits { count: 64, bytes: 16 << 10 };
/// Types of bodies.
const TYPES: [&[u8]; 8] = [
    b"",
    b"application/x-www-form-urlencoded",
    b"application/json",
    b"text/xml",
    b"multipart/form-data; boundary=b",
    b"text/plain",
    b"application/grpc-web-text",
    b"multipart/form-data; xboundary=c; boundary=\"b\\c\"",
];

/// A byte that selects the type and the size of pieces, and a body. Its pieces make no difference, and no window exceeds the
/// limits.
pub fn meaning(data: &[u8]) {
    let Some((&kind, body)) = data.split_first() else { return };
    let content_type = TYPES[usize::from(kind) % TYPES.len()];
    let of = |piece: usize, inspect: bool| {
        let (mut args, mut reader) = (Args::new(LIMITS), Body::new(content_type, LIMITS));
        let mut all: Vec<Vec<u8>> = Vec::new();
        for data in body.chunks(piece) {
            if reader.push(data, &mut args) && inspect {
                all.extend((0..args.len()).filter_map(|i| args.get(i).map(<[u8]>::to_vec)));
                args.inspected();
            }
        }
        reader.finish(&mut args);
        all.extend((0..args.len()).filter_map(|i| args.get(i).map(<[u8]>::to_vec)));
        (all, args)
    };
    let (whole, _) = of(usize::MAX, false);
    // One byte at a time is as many windows, which replace each other.
    let (pieces, args) = of(1 + usize::from(kind) * 7, true);
    assert_eq!(whole, pieces, "in pieces");
    assert!(args.len() <= LIMITS.count, "{} arguments", args.len());
    let mut bytes = 0;
    for i in 0..args.len() {
        let value = args.get(i).expect("each is there");
        bytes += value.len();
        let mut out = Vec::new();
        canonical(value, &mut out);
        for judge in Judge::ALL {
            assert_eq!(judge.holds(&out), judge.holds(&out), "{} of {}", judge.name(), out.escape_ascii());
        }
    }
    assert!(bytes <= LIMITS.bytes, "{bytes} bytes");
}
