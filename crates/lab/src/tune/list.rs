//! CPU lists and masks in the kernel's format.

/// Highest accepted CPU number; the kernel's own limit is 8192.
const MOST: usize = 8192;

/// Parses `0,2-5` to sorted numbers. Ignores words that are not a number or range, such as `(null)` in `nohz_full`.
pub(crate) fn parse(text: &str) -> Vec<usize> {
    let mut all = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.trim().parse::<usize>(), last.trim().parse::<usize>())
            && last < MOST
        {
            all.extend(first..=last);
        }
    }
    all.sort_unstable();
    all.dedup();
    all
}

/// Writes sorted CPU numbers as `0,2-5`.
pub(crate) fn show(cpus: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *cpu => *last = *cpu,
            _ => ranges.push((*cpu, *cpu)),
        }
    }
    let words = ranges.iter().map(|(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") });
    words.collect::<Vec<_>>().join(",")
}

/// Parses a mask of hexadecimal digits in groups of 32 bits, highest first: `00000001,0000000c`.
pub(crate) fn from_mask(text: &str) -> Vec<usize> {
    let mut all = Vec::new();
    let digits = text.trim().bytes().rev().filter(|b| *b != b',');
    for (at, digit) in digits.enumerate() {
        let bits = (digit as char).to_digit(16).unwrap_or(0);
        all.extend((0..4).filter(|bit| bits >> bit & 1 == 1).map(|bit| at * 4 + bit));
    }
    all
}

/// Writes CPU numbers as such a mask.
pub(crate) fn to_mask(cpus: &[usize]) -> String {
    let groups = cpus.iter().max().map_or(1, |most| most / 32 + 1);
    let mut words = vec![0u32; groups];
    for cpu in cpus {
        words[cpu / 32] |= 1 << (cpu % 32);
    }
    let (last, rest) = (words[groups - 1], &words[..groups - 1]);
    let mut out = format!("{last:x}");
    for word in rest.iter().rev() {
        out += &format!(",{word:08x}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_as_the_kernel_writes_them() {
        for text in ["0", "0-3", "0,2-5,9", ""] {
            assert_eq!(show(&parse(text)), text);
        }
        assert_eq!(parse("0-99999999999,x,3\n"), [3]);
        assert_eq!(parse("(null)"), Vec::<usize>::new());
        assert_eq!(parse("4,1-2"), [1, 2, 4]);
    }

    #[test]
    fn masks_are_as_the_kernel_writes_them() {
        assert_eq!(from_mask("00000001,0000000c\n"), [2, 3, 32]);
        assert_eq!(to_mask(&[2, 3, 32]), "1,0000000c");
        assert_eq!((to_mask(&[]), to_mask(&[0, 1])), ("0".to_owned(), "3".to_owned()));
        assert_eq!(from_mask(&to_mask(&[0, 31, 64, 127])), [0, 31, 64, 127]);
    }
}
