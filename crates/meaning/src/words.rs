//! Lists of words, one a line in a file of their own.

use std::sync::LazyLock;

/// A list that is looked up in.
pub(crate) type List = LazyLock<Words>;

/// Words in lower case.
#[derive(Debug)]
pub(crate) struct Words(Vec<&'static [u8]>);

impl Words {
    /// The lines of a text, which are sorted already: a test holds the files to that.
    pub(crate) fn new(text: &'static str) -> Words {
        Words(text.lines().map(str::as_bytes).collect())
    }

    /// Whether it is one of them.
    pub(crate) fn has(&self, word: &[u8]) -> bool {
        self.0.binary_search(&word).is_ok()
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
            include_str!("../words/sql-names.txt"),
            include_str!("../words/sql-names-weak.txt"),
        ];
        for file in files {
            let words: Vec<_> = file.lines().collect();
            assert!(words.is_sorted_by(|a, b| a < b), "{words:?}");
            assert!(words.iter().all(|w| w.to_ascii_lowercase() == **w), "{words:?}");
        }
    }
}
