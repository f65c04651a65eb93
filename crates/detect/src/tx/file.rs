//! Checks of files: all that a rule has must hold for one and the same file.

use margay_app::file::{File, FileState};
use margay_rules::ast::Compare;

use super::TxRule;
use crate::inspect::InspectContext;

/// A check of one file.
#[derive(Debug)]
pub(crate) enum FileTest {
    /// Checks, by number in [`TxRule::checks`], of its name.
    Name(u16),
    /// Checks of what it is recognised as.
    Magic(u16),
    /// Its size.
    Size(Compare),
}

/// Whether something holds for a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileOutcome {
    Yes,
    No,
    /// It is not known yet.
    Later,
}

impl FileTest {
    pub(crate) fn of(&self, rule: &TxRule, file: &File, context: &mut InspectContext) -> FileOutcome {
        let yes = |b| if b { FileOutcome::Yes } else { FileOutcome::No };
        match self {
            FileTest::Name(check) => match rule.checks.get(usize::from(*check)) {
                Some(c) if !file.name.is_empty() => yes(c.matches(&file.name, context)),
                _ => FileOutcome::No,
            },
            FileTest::Magic(check) => match (rule.checks.get(usize::from(*check)), magic(file)) {
                (Some(c), Some(magic)) => yes(c.matches(magic, context)),
                _ if file.state == FileState::Open => FileOutcome::Later,
                _ => FileOutcome::No,
            },
            FileTest::Size(c) => size(c, file),
        }
    }
}

/// `filesize`: of a file that was not wholly seen only what is bigger can be said.
fn size(c: &Compare, file: &File) -> FileOutcome {
    let holds = c.holds(file.size);
    match file.state {
        FileState::Closed if holds => FileOutcome::Yes,
        FileState::Closed => FileOutcome::No,
        _ if holds && matches!(c, Compare::Greater(_) | Compare::GreaterEqual(_)) => FileOutcome::Yes,
        FileState::Open => FileOutcome::Later,
        _ => FileOutcome::No,
    }
}

/// What a file is recognised as, once that is known.
pub(crate) fn magic(_file: &File) -> Option<&[u8]> {
    None
}

/// What is due of a file's data.
pub(crate) fn due(file: &File) -> Option<(&[u8], u64)> {
    Some(file.window.held())
}
