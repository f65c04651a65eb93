//! The target `meaning`: the content of a request, split, decoded and judged.

use margay_meaning::Judge;
use margay_meaning::args::{ArgLimits, Args};
use margay_meaning::decode::canonical;

/// Limits of a request's arguments here.
const LIMITS: ArgLimits = ArgLimits { count: 64, bytes: 16 << 10 };
/// Types of bodies.
const TYPES: [&[u8]; 6] = [
    b"",
    b"application/x-www-form-urlencoded",
    b"application/json",
    b"text/xml",
    b"multipart/form-data; boundary=b",
    b"text/plain",
];

/// A byte that selects the type, and a body.
pub fn meaning(data: &[u8]) {
    let Some((&kind, body)) = data.split_first() else { return };
    let mut args = Args::new(LIMITS);
    args.body(TYPES[usize::from(kind) % TYPES.len()], body);
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
