//! Checks on files: all file checks of a rule must hold for the same file.

use std::sync::Arc;

use margay_app::file::HashList;
use margay_rules::ast::Compare;

/// A test of one file.
#[derive(Debug)]
pub(crate) enum FileTest {
    /// Checks on the name, by number in [`super::TxRule::checks`].
    Name(u16),
    /// Checks on the detected file type.
    Magic(u16),
    /// Whether its digest is in a list (or is not, if negated).
    Hash { list: Arc<HashList>, negated: bool },
    /// Its size.
    Size(Compare),
}
