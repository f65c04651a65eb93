//! Words of SQL and its dialects, by what they mean for the judgement.

use super::token::{Kind, Token};
use crate::words::{List, Words};

/// Words that join conditions.
pub(super) const JOINS: &[&str] = &[
    "or", "and", "xor", "having", "where", "not", "||", "&&", "|", "&", "div", "mod", "rlike", "like", "regexp",
    "when", "glob",
];

/// Names and functions of the session that a statement runs in.
pub(super) const SESSION: &[&str] =
    &["current_user", "session_user", "system_user", "user", "database", "schema", "version"];

/// Comparison words.
pub(super) const COMPARES: &[&str] = &[
    "like", "rlike", "regexp", "is", "in", "between", "sounds", "glob", "ilike", "similar", "match", "contains", "div",
    "mod", "not",
];

/// Names that only attacks use.
pub(super) static NAMES: List = List::new(|| Words::new(include_str!("../../words/sql-names.txt")));

/// Names that attacks use, but others may too.
pub(super) static NAMES_WEAK: List = List::new(|| Words::new(include_str!("../../words/sql-names-weak.txt")));

/// Functions that only attacks call.
pub(super) static CALLS_SURE: List = List::new(|| Words::new(include_str!("../../words/sql-calls-sure.txt")));

/// Other functions.
pub(super) static CALLS: List = List::new(|| Words::new(include_str!("../../words/sql-calls.txt")));

/// Whether a word is a function name.
pub(super) fn is_call(t: &Token<'_>) -> bool {
    t.kind == Kind::Word && (CALLS.has(t.text) || CALLS_SURE.has(t.text))
}

/// Words that SQL has behind an operand.
pub(super) static BEHIND: List = List::new(|| Words::new(include_str!("../../words/sql-behind.txt")));

/// Words that begin a statement, in a batch of Transact-SQL even without a semicolon.
pub(super) const STATEMENTS: &[&str] = &[
    "alter",
    "backup",
    "begin",
    "call",
    "create",
    "dbcc",
    "declare",
    "delete",
    "drop",
    "exec",
    "execute",
    "go",
    "grant",
    "if",
    "insert",
    "kill",
    "merge",
    "print",
    "raiserror",
    "reconfigure",
    "restore",
    "revoke",
    "select",
    "set",
    "shutdown",
    "truncate",
    "update",
    "use",
    "waitfor",
    "while",
    "with",
];

/// Other words that may follow a string in some dialect.
const FOLLOW: &[&str] = &[
    "at",
    "binary",
    "connect",
    "escape",
    "full",
    "isnull",
    "join",
    "member",
    "model",
    "notnull",
    "operator",
    "option",
    "over",
    "overlaps",
    "partition",
    "pivot",
    "separator",
    "start",
];

/// Whether a word may follow a string that the value has ended: no name does, except one for the string itself
/// ([`names_string`]).
pub(super) fn follows_string(t: &Token<'_>) -> bool {
    BEHIND.has(t.text)
        || CALLS_SURE.has(t.text)
        || t.word(JOINS)
        || t.word(COMPARES)
        || t.word(STATEMENTS)
        || t.word(FOLLOW)
}

/// Whether a word joins conditions or queries.
pub(super) fn joins(t: &Token<'_>) -> bool {
    t.word(JOINS) || t.word(&["union", "order", "group", "limit", "waitfor", "procedure"])
}

/// Whether tokens begin with a name for the string in front of them, as in a list of columns: `' a, password from users --`.
pub(super) fn names_string(tokens: &[Token<'_>]) -> bool {
    tokens.get(1).is_some_and(|t| t.is(",") || t.word(&["from", "into", "union", "where"]))
}

/// Whether a word names something in a schema that only attacks name. Python's module `sys` is none.
pub(super) fn names_schema(word: &Token<'_>) -> bool {
    let of_python = |name: &[u8]| OF_PYTHON.has(name.split(|&b| b == b'.').next().unwrap_or(name));
    SCHEMAS.iter().any(|schema| {
        let name = word.text.strip_prefix(schema.as_bytes()).filter(|name| !name.is_empty());
        name.is_some_and(|name| *schema != "sys." || !of_python(name))
    })
}

/// Schemas that only attacks name.
const SCHEMAS: &[&str] = &[
    "sysibm.",
    "syscat.",
    "information_schema.",
    "pg_catalog.",
    "sys.",
    "mysql.",
    "master.",
    "master..",
    "dbms_",
    "utl_",
    "xp_",
    "sysmaster:",
];

/// Names in Python's module `sys` that no database's schema has.
static OF_PYTHON: List = List::new(|| Words::new(include_str!("../../words/python-sys.txt")));
