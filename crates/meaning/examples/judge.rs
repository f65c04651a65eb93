//! Reads requests, one per line: fields separated by tabs, with the request in hexadecimal as the last one. Prints for
//! each the judgements of its arguments, and each argument with a judgement.
#![allow(clippy::expect_used, reason = "a test fails by it")]
use margay_meaning::args::{ArgLimits, Args};
use margay_meaning::decode::canonical;
use std::io::Write;

fn main() {
    let text = std::io::read_to_string(std::io::stdin()).expect("text");
    let mut out = std::io::BufWriter::new(std::io::stdout());
    for line in text.lines() {
        let (head, hex) = line.rsplit_once('\t').expect("fields");
        let raw: Vec<u8> =
            (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("digits")).collect();
        let args = arguments(&raw);
        for i in 0..args.len() {
            let mut value = Vec::new();
            canonical(args.get(i).unwrap_or(&[]), &mut value);
            let of = |j: margay_meaning::Judge| u8::from(j.holds(&value));
            let judged =
                [of(margay_meaning::Judge::Sqli), of(margay_meaning::Judge::Xss), of(margay_meaning::Judge::Shell)];
            let [a, b, c] = judged;
            writeln!(out, "{head}\t{a}{b}{c}\t{}", value.escape_ascii()).expect("written");
        }
    }
}

fn arguments(raw: &[u8]) -> Args {
    let end = raw.windows(4).position(|w| w == b"\r\n\r\n").unwrap_or(raw.len());
    let (head, body) = (&raw[..end], raw.get(end + 4..).unwrap_or(&[]));
    let mut lines = head.split(|&b| b == b'\n').map(<[u8]>::trim_ascii);
    let first = lines.next().unwrap_or(&[]);
    let from = first.iter().position(|&b| b == b' ').map_or(0, |i| i + 1);
    let to = first.iter().rposition(|&b| b == b' ').unwrap_or(first.len()).max(from);
    let target = &first[from..to];
    let mut args = Args::new(ArgLimits::default());
    let (path, query) =
        target.iter().position(|&b| b == b'?').map_or((target, &[][..]), |i| (&target[..i], &target[i + 1..]));
    args.path(path);
    args.form(query);
    let mut kind = &b""[..];
    for line in lines {
        let (name, value) =
            line.iter().position(|&b| b == b':').map_or((line, &[][..]), |i| (&line[..i], &line[i + 1..]));
        match name.to_ascii_lowercase().as_slice() {
            b"cookie" => args.cookies(value),
            b"content-type" => kind = value.trim_ascii(),
            _ => {}
        }
    }
    args.body(kind, body);
    args
}
