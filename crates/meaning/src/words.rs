//! Word lists, each in a file with one word per line.

use std::ops::Range;
use std::sync::LazyLock;

/// A lazily loaded word list.
pub(crate) type List = LazyLock<Words>;

/// Words in lower case.
#[derive(Debug)]
pub(crate) struct Words {
    words: Vec<&'static [u8]>,
    /// By first byte: the words that begin with it, and a bit for each of their lengths (the highest for 63 and more).
    first: Vec<(Range<usize>, u64)>,
}

/// The bit of a length.
const fn bit(len: usize) -> u64 {
    1 << if len < 63 { len } else { 63 }
}

impl Words {
    /// The lines of a text.
    pub(crate) fn new(text: &'static str) -> Words {
        Words::of(text.lines())
    }

    /// These words, in any order.
    pub(crate) fn of(words: impl IntoIterator<Item = &'static str>) -> Words {
        let mut words: Vec<&[u8]> = words.into_iter().map(str::as_bytes).collect();
        words.sort_unstable();
        let of = |first: u8| {
            let from = words.partition_point(|w| w.first() < Some(&first));
            let to = words.partition_point(|w| w.first() <= Some(&first));
            let same = words.get(from..to).unwrap_or(&[]);
            (from..to, same.iter().fold(0, |lens, w| lens | bit(w.len())))
        };
        let first = (0..=u8::MAX).map(of).collect();
        Words { words, first }
    }

    /// Whether the list contains `word`. For nearly all words the first byte and the length tell that it does not.
    pub(crate) fn has(&self, word: &[u8]) -> bool {
        let Some((range, lens)) = word.first().and_then(|&b| self.first.get(usize::from(b))) else { return false };
        lens & bit(word.len()) != 0 && self.words.get(range.clone()).is_some_and(|w| w.binary_search(&word).is_ok())
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn sorted() {
        let files = [
            include_str!("../words/commands.txt"),
            include_str!("../words/commands-weak.txt"),
            include_str!("../words/sql-calls.txt"),
            include_str!("../words/sql-calls-sure.txt"),
            include_str!("../words/sql-behind.txt"),
            include_str!("../words/sql-names.txt"),
            include_str!("../words/sql-names-weak.txt"),
        ];
        for file in files {
            let words: Vec<_> = file.lines().collect();
            assert!(words.is_sorted_by(|a, b| a < b), "{words:?}");
            assert!(words.iter().all(|w| w.to_ascii_lowercase() == **w), "{words:?}");
            let list = super::Words::new(file);
            for word in words.iter().map(|w| w.as_bytes()) {
                assert!(list.has(word));
                assert!(!list.has(&[word, b"\n"].concat()) && !list.has(&[b"\n", word].concat()));
                let shorter = &word[..word.len() - 1];
                assert_eq!(list.has(shorter), words.iter().any(|w| w.as_bytes() == shorter));
            }
        }
    }
}
