//! The Huffman code of HPACK (RFC 7541, appendix B).
//!
//! The code is canonical: codes of the same length are consecutive, in the order of their symbols, and longer codes follow
//! shorter ones. The lengths therefore define the code.

/// Length of each symbol's code, in bits.
const LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28,
    28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12,
    10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6,
    5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22,
    22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20,
    22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28,
    27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28,
    27, 27, 27, 27, 27, 26,
];

/// The longest code of a symbol, in bits.
const LONGEST: usize = 30;

/// The code, by length.
struct Code {
    /// The first code of each length.
    first: [u32; LONGEST + 1],
    /// The number of codes of each length.
    count: [u32; LONGEST + 1],
    /// The index in `symbols` of each length's first code.
    place: [u16; LONGEST + 1],
    /// Symbols in the order of their codes.
    symbols: [u8; 256],
    /// By the next eight bits: symbol and length if a code is that short, otherwise length 0.
    short: [(u8, u8); 256],
}

const CODE: Code = build();

const fn build() -> Code {
    let mut code = Code {
        first: [0; LONGEST + 1],
        count: [0; LONGEST + 1],
        place: [0; LONGEST + 1],
        symbols: [0; 256],
        short: [(0, 0); 256],
    };
    let (mut next, mut place, mut length) = (0u32, 0usize, 1usize);
    while length <= LONGEST {
        next <<= 1;
        code.first[length] = next;
        code.place[length] = place as u16;
        let mut symbol = 0;
        while symbol < 256 {
            if LENGTHS[symbol] as usize == length {
                code.symbols[place] = symbol as u8;
                if length <= 8 {
                    let (mut at, end) = ((next as usize) << (8 - length), (next as usize + 1) << (8 - length));
                    while at < end {
                        code.short[at] = (symbol as u8, length as u8);
                        at += 1;
                    }
                }
                next += 1;
                place += 1;
            }
            symbol += 1;
        }
        code.count[length] = next - code.first[length];
        length += 1;
    }
    code
}

/// Appends the decoded `data`, at most `limit` bytes. Returns false if the code is invalid, the result is longer, or the
/// padding is not a prefix of the end symbol (RFC 7541, section 5.2).
pub(super) fn decode(data: &[u8], limit: usize, out: &mut Vec<u8>) -> bool {
    static TABLE: Code = CODE;
    let (mut bits, mut held) = (0u64, 0usize);
    let mut bytes = data.iter();
    let mut room = limit;
    loop {
        while held <= 56 {
            let Some(b) = bytes.next() else { break };
            bits = bits << 8 | u64::from(*b);
            held += 8;
        }
        if held == 0 {
            return true;
        }
        // Missing bits at the end read as padding.
        let peek = |n: usize| {
            if held >= n {
                (bits >> (held - n)) as u32 & ((1u32 << n) - 1)
            } else {
                ((bits << (n - held)) as u32 | ((1u32 << (n - held)) - 1)) & ((1u32 << n) - 1)
            }
        };
        let short = TABLE.short.get(peek(8) as usize).copied().unwrap_or_default();
        let (symbol, length) = if short.1 > 0 {
            (short.0, usize::from(short.1))
        } else {
            let mut found = None;
            for length in 9..=LONGEST {
                let (Some(first), Some(count)) = (TABLE.first.get(length), TABLE.count.get(length)) else { break };
                if let Some(n) = peek(length).checked_sub(*first)
                    && n < *count
                {
                    let place = TABLE.place.get(length).map_or(0, |p| usize::from(*p)) + n as usize;
                    found = TABLE.symbols.get(place).map(|s| (*s, length));
                    break;
                }
            }
            match found {
                Some(f) => f,
                // The end symbol, or its prefix as padding.
                None => return held < 8 && peek(8) == 0xff,
            }
        };
        if length > held {
            // An incomplete code of ones is padding; nothing else is allowed.
            return held < 8 && bits & ((1 << held) - 1) == (1 << held) - 1;
        }
        if room == 0 {
            return false;
        }
        room -= 1;
        out.push(symbol);
        held -= length;
        bits &= (1u64 << held) - 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes data, for tests.
    pub(crate) fn encode(data: &[u8]) -> Vec<u8> {
        let (mut out, mut bits, mut held) = (Vec::new(), 0u64, 0usize);
        for b in data {
            let length = usize::from(LENGTHS[usize::from(*b)]);
            let place = CODE.symbols.iter().enumerate().position(|(i, s)| {
                s == b
                    && i >= usize::from(CODE.place[length])
                    && i < usize::from(CODE.place[length]) + CODE.count[length] as usize
            });
            let code = CODE.first[length] + (place.unwrap() - usize::from(CODE.place[length])) as u32;
            bits = bits << length | u64::from(code);
            held += length;
            while held >= 8 {
                held -= 8;
                out.push((bits >> held) as u8);
                bits &= (1 << held) - 1;
            }
        }
        if held > 0 {
            out.push((bits << (8 - held)) as u8 | ((1u16 << (8 - held)) - 1) as u8);
        }
        out
    }

    #[test]
    fn the_code_is_complete() {
        // Including the end symbol of 30 bits.
        let sum: u64 = LENGTHS.iter().map(|l| 1u64 << (30 - l)).sum::<u64>() + 1;
        assert_eq!(sum, 1 << 30);
        // Codes of RFC 7541, appendix B.
        for (symbol, code, length) in [
            (b'\n', 0x3fff_fffc, 30),
            (b'\\', 0x7fff0, 19),
            (128, 0xfffe6, 20),
            (255, 0x03ff_ffee, 26),
            (b'a', 3, 5),
            (249, 0x0fff_fffe, 28),
        ] {
            assert_eq!(usize::from(LENGTHS[usize::from(symbol)]), length);
            let place = CODE.symbols.iter().position(|s| *s == symbol).unwrap();
            assert_eq!(CODE.first[length] + (place - usize::from(CODE.place[length])) as u32, code, "{symbol}");
        }
    }

    #[test]
    fn texts_of_the_standard() {
        // RFC 7541, section C.4.1 and C.6.1.
        for (code, text) in [
            (&b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff"[..], &b"www.example.com"[..]),
            (b"\xae\xc3\x77\x1a\x4b", b"private"),
            (
                b"\xd0\x7a\xbe\x94\x10\x54\xd4\x44\xa8\x20\x05\x95\x04\x0b\x81\x66\xe0\x82\xa6\x2d\x1b\xff",
                b"Mon, 21 Oct 2013 20:13:21 GMT",
            ),
        ] {
            let mut out = Vec::new();
            assert!(decode(code, 1000, &mut out));
            assert_eq!(out, text);
            assert_eq!(encode(text), code);
        }
    }

    #[test]
    fn everything_comes_back() {
        let all: Vec<u8> = (0..=255).chain((0..=255).rev()).collect();
        for from in 0..all.len() {
            let mut out = Vec::new();
            assert!(decode(&encode(&all[from..]), usize::MAX, &mut out));
            assert_eq!(out, &all[from..]);
        }
    }

    #[test]
    fn what_is_none() {
        let mut out = Vec::new();
        // Padding with zeros, a whole byte of padding, the end symbol, and a code that is too long.
        for code in [&b"\x18"[..], b"\x1f\xff", b"\xff\xff\xff\xff", b"\xff"] {
            assert!(!decode(code, 100, &mut out), "{code:x?}");
        }
        assert!(decode(b"\x1f", 1, &mut out) && decode(b"", 0, &mut out));
        assert!(!decode(b"\x1f", 0, &mut out));
    }
}
