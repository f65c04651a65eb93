//! Checks on files.

use margay_app::file::{File, FileEngine};
use margay_rules::ast::Compare;

use crate::inspect::InspectContext;
use crate::tx::{FileTest, TxRule};
use crate::watch::{At, Watch};

/// The result of testing a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileOutcome {
    Yes,
    No,
    /// Not known yet.
    Later,
}

impl FileTest {
    pub(crate) fn of<W: Watch>(
        &self,
        rule: &TxRule,
        file: &File,
        (number, engine): (u32, Option<&FileEngine>),
        context: &mut InspectContext<W>,
    ) -> FileOutcome {
        let yes = |b| if b { FileOutcome::Yes } else { FileOutcome::No };
        let unknown = if file.ended() { FileOutcome::No } else { FileOutcome::Later };
        match self {
            FileTest::Name(check) => match rule.checks.get(usize::from(*check)) {
                Some(c) => {
                    context.watch.at(At::FileName(number));
                    yes(c.inspect(file.name(), context))
                }
                _ => FileOutcome::No,
            },
            FileTest::Magic(check) => {
                match (rule.checks.get(usize::from(*check)), engine.and_then(|e| file.magic(e))) {
                    (Some(c), Some(magic)) => {
                        context.watch.at(At::FileMagic(number));
                        yes(c.inspect(magic, context))
                    }
                    _ => unknown,
                }
            }
            FileTest::Hash { list, negated } => match file.digest(list.kind()) {
                Some(digest) => yes(list.contains(digest) != *negated),
                None => unknown,
            },
            FileTest::Size(c) if file.size_known() => yes(c.holds(file.size())),
            // A file that was not wholly seen has at least the size of its seen part. As in Suricata, a file is compared when it
            // ends, not when it has grown past the limit, and a file that the flow's end interrupts is not compared.
            FileTest::Size(c @ (Compare::Greater(_) | Compare::GreaterEqual(_)))
                if file.ended() && !file.interrupted() =>
            {
                yes(c.holds(file.size()))
            }
            FileTest::Size(_) => unknown,
        }
    }
}
