//! Word lists, each in a file with one word per line.

use std::sync::LazyLock;

/// A lazily loaded word list.
pub(crate) type List = LazyLock<Words>;

/// Words in lower case.
#[derive(Debug)]
pub(crate) struct Words(Vec<&'static [u8]>);

impl Words {
    /// Loads the lines of a text. They must be sorted, which a test checks.
    pub(crate) fn new(text: &'static str) -> Words {
        Words(text.lines().map(str::as_bytes).collect())
    }

    /// Whether the list contains `word`.
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
            include_str!("../words/sql-behind.txt"),
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
