//! Bodies that are longer than a window: nothing is left out, whatever the kind, the lengths and the pieces.

use margay_meaning::args::{ArgLimits, Args};
use margay_meaning::body::Body;
use proptest::prelude::*;

/// A window of a kilobyte.
const LIMITS: ArgLimits = ArgLimits { count: 10_000, bytes: 4 << 10 };

/// The arguments of a body that comes in pieces; with `inspected`, those of a window go once the next one comes.
fn read(content_type: &str, body: &[u8], piece: usize, inspected: bool) -> Vec<Vec<u8>> {
    let (mut args, mut reader) = (Args::new(LIMITS), Body::new(content_type.as_bytes(), LIMITS));
    let mut all = Vec::new();
    for data in body.chunks(piece) {
        if reader.push(data, &mut args) && inspected {
            all.extend((0..args.len()).filter_map(|i| args.get(i).map(<[u8]>::to_vec)));
            args.inspected();
        }
        assert!(reader.memory() < 16 << 10);
    }
    reader.finish(&mut args);
    assert!(!args.is_cut());
    all.extend((0..args.len()).filter_map(|i| args.get(i).map(<[u8]>::to_vec)));
    all
}

const TYPES: [&str; 8] = [
    "application/x-www-form-urlencoded",
    "application/json",
    "text/xml",
    "multipart/form-data; boundary=b",
    "text/plain",
    "",
    "application/grpc",
    "multipart/form-data; boundary=\"b\\c\"",
];

/// A body of some kind with values of these lengths, of which each has a word of its own in its middle.
fn body(kind: usize, lengths: &[usize]) -> String {
    let value = |(i, len): (usize, &usize)| format!("{}needle-{i}-{}", "x".repeat(len / 2), "y".repeat(len - len / 2));
    let values = lengths.iter().enumerate().map(value);
    match kind {
        0 => values.map(|v| format!("a={v}&")).collect(),
        1 => format!("{{\"a\":[{}1]}}", values.map(|v| format!("\"{v}\",")).collect::<String>()),
        2 => format!("<r>{}</r>", values.map(|v| format!("<a b=\"c\">{v}</a>")).collect::<String>()),
        3 => {
            let part = |v| format!("--b\r\nContent-Disposition: form-data; name=a\r\n\r\n{v}\r\n");
            let file = "--b\r\nContent-Disposition: form-data; name=a; filename=f\r\n\r\nxxxx\r\n";
            format!("{}--b--\r\n", values.map(|v| format!("{}{file}", part(v))).collect::<String>())
        }
        _ => values.map(|v| format!("{v}\n")).collect(),
    }
}

proptest! {
    #[test]
    fn pieces_do_not_matter(
        tokens in proptest::collection::vec(prop_oneof![
            Just("--b\r\n"), Just("\r\n"), Just("\n\n"), Just("a=b&"), Just("&"), Just("\""), Just("\\"), Just("{\"a\":\""), Just("\",\""),
            Just("<a b='"), Just("<!--"), Just("<![CDATA["), Just(">"), Just("'"), Just("%27"), Just("content-disposition: form-data; name=a"),
            Just("; filename=\"f\""), Just("content-type: application/json\r\n"), Just("--bc\n"), Just("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"),
            Just("\u{0}\u{1}"), Just("é"), Just("PK\u{3}\u{4}"),
        ], 0..300),
        kind in 0..TYPES.len(),
        piece in 1usize..3000,
    ) {
        let body = tokens.concat();
        let whole = read(TYPES[kind], body.as_bytes(), usize::MAX, false);
        prop_assert_eq!(&whole, &read(TYPES[kind], body.as_bytes(), piece, true));
        prop_assert_eq!(&whole, &read(TYPES[kind], body.as_bytes(), piece, false));
    }

    #[test]
    fn nothing_is_left_out(
        lengths in proptest::collection::vec(prop_oneof![0usize..20, 0usize..3000], 1..60),
        kind in 0usize..7,
        piece in 1usize..3000,
    ) {
        let body = body(kind, &lengths);
        let found = read(TYPES[kind], body.as_bytes(), piece, true);
        for i in 0..lengths.len() {
            let word = format!("needle-{i}-");
            let has = |v: &Vec<u8>| v.windows(word.len()).any(|w| w == word.as_bytes());
            prop_assert!(found.iter().any(has), "{word} of {:?}", TYPES[kind]);
        }
    }
}
