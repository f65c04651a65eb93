//! SQL statements and queries.

use super::reader::Reader;
use super::token::{Kind, Token};
use super::vocabulary::{CALLS_SURE, is_call};

/// Words behind the name of something that a statement creates or alters.
const DEFINES: &[&str] = &[
    "as",
    "add",
    "drop",
    "alter",
    "modify",
    "change",
    "rename",
    "set",
    "identified",
    "with",
    "without",
    "password",
    "authorization",
    "from",
    "on",
    "for",
    "returns",
    "return",
    "returning",
    "using",
    "is",
    "character",
    "charset",
    "collate",
    "default",
    "engine",
    "like",
    "select",
    "values",
    "type",
    "after",
    "before",
    "instead",
    "to",
    "owner",
    "enable",
    "disable",
    "in",
    "sfunc",
    "external",
    "foreign",
    "cascade",
    "require",
    "begin",
    "increment",
    "minvalue",
    "maxvalue",
    "nocache",
    "cache",
    "datafile",
    "convert",
    "encryption",
    "superuser",
    "nologin",
    "createdb",
    "createrole",
];

impl Reader<'_> {
    /// The weight of `select` with the tokens after it.
    pub(super) fn select(&self, mut j: usize) -> u32 {
        while self.word(
            j,
            &[
                "all",
                "distinct",
                "distinctrow",
                "high_priority",
                "straight_join",
                "sql_no_cache",
                "sql_calc_found_rows",
                "top",
            ],
        ) || self.is(j, "(")
        {
            j += 1;
        }
        // `select -sin(1), 2 from bar`
        while self.at(j).is_some_and(|t| matches!(t.text, b"-" | b"+" | b"~" | b"!"))
            && self.at(j + 1).is_some_and(|t| t.kind == Kind::Number || is_call(t))
        {
            j += 1;
        }
        let Some(first) = self.at(j) else { return if self.broken { 3 } else { 0 } };
        let second = self.at(j + 1);
        match first.kind {
            Kind::Operator if first.is("*") || second.is_some_and(|t| matches!(t.kind, Kind::Number | Kind::Text)) => {
                return 5;
            }
            Kind::Operator => return 3,
            Kind::Text | Kind::Open => return 5,
            Kind::Number
                if !self.broken
                    && self.word(j + 1, &["from"])
                    && self.at(j + 3).is_none()
                    && !first.text.starts_with(b"0x") =>
            {
                return 4;
            }
            // A choice by number, and nothing else: people write that.
            Kind::Number if !self.broken && j == 1 && second.is_none() && !first.text.starts_with(b"0x") => return 4,
            Kind::Number
                if second.is_none_or(|t| {
                    t.is(",") || t.is(")") || t.word(&["from", "where", "union", "and", "or"]) || t.kind != Kind::Word
                }) =>
            {
                return 5;
            }
            Kind::Word if first.text.starts_with(b"@") => return 5,
            Kind::Word if first.word(&["null", "select", "case", "if", "exists", "from"]) => {
                return if first.word(&["from"]) { 3 } else { 5 };
            }
            Kind::Word if second.is_some_and(|t| t.is("(")) => return 5,
            Kind::Word if CALLS_SURE.has(first.text) => return 5,
            Kind::Word
                if second.is_some_and(|t| t.kind == Kind::Operator || t.is(";"))
                    && !second.is_some_and(|t| t.is("-") || t.is("/") || t.is("&")) =>
            {
                return 4;
            }
            _ => {}
        }
        // Columns, up to `from`.
        let mut last_was_operand = false;
        for k in j..self.tokens.len().min(j + 64) {
            let Some(t) = self.at(k) else { break };
            if t.word(&["from"]) {
                let table = self.skip_open(k + 1);
                let named = self.operand(table);
                let after = self.at(table + 1);
                let plain = after.is_none_or(|t| {
                    t.kind != Kind::Word
                        || t.word(&[
                            "where", "limit", "order", "group", "union", "as", "having", "join", "inner", "left",
                            "into",
                        ])
                });
                return match (named, plain) {
                    (true, true) if self.broken => 5,
                    (true, true) if k == j + 1 && j == 1 && after.is_none() => 4,
                    (true, true) => 4,
                    (true, false) => 2,
                    _ => {
                        if self.broken {
                            4
                        } else {
                            2
                        }
                    }
                };
            }
            if t.kind == Kind::Word && last_was_operand && !t.word(&["as", "and", "or", "all"]) {
                return if self.broken { 3 } else { 0 };
            }
            last_was_operand = t.kind == Kind::Word && !t.word(&["as", "and", "or", "all"]);
        }
        if self.broken { 4 } else { u32::from(self.is(j + 1, ",")) * 3 }
    }

    /// The weight of a statement that begins here.
    pub(super) fn statement(&self, i: usize) -> u32 {
        let Some(t) = self.at(i) else { return 0 };
        let next = i + 1;
        let w = |i, list: &[&str]| self.word(i, list);
        let sure = match t.text {
            b"select" => return self.select(next),
            b"insert" => {
                w(next, &["into", "ignore", "delayed"])
                    && (self.is(i + 3, "(")
                        || w(i + 3, &["values", "select", "set", "value"])
                        || w(next, &["ignore", "delayed"]))
            }
            b"replace" => {
                w(next, &["into"]) && self.operand(i + 2)
                    || self.operand(next)
                        && self.is(i + 2, "(")
                        && self.tokens.iter().skip(i + 3).take(32).any(|t| t.word(&["values", "value", "select"]))
            }
            b"update" => self.operand(next) && w(i + 2, &["set"]),
            b"delete" => {
                w(next, &["from"])
                    && self.operand(i + 2)
                    && self.at(i + 3).is_none_or(|t| t.kind != Kind::Word || t.word(&["where", "limit", "order"]))
            }
            b"drop" | b"truncate" | b"alter" | b"create" => {
                let mut j = next;
                while w(j, &["or", "replace", "temporary", "temp", "unique", "global", "public", "external"]) {
                    j += 1;
                }
                w(
                    j,
                    &[
                        "table",
                        "database",
                        "user",
                        "login",
                        "view",
                        "procedure",
                        "function",
                        "trigger",
                        "index",
                        "schema",
                        "column",
                        "role",
                        "assembly",
                        "proc",
                        "sequence",
                        "aggregate",
                        "event",
                        "server",
                        "tablespace",
                        "language",
                        "extension",
                        "type",
                        "domain",
                    ],
                ) && self.operand(j + 1)
                    && (self.broken || i > 0 || self.defines(t, j))
                    || t.is("drop")
                        && self.kind(next, Kind::Word)
                        && (self.commented && i == 0 && self.at(i + 2).is_none()
                            || self.at(i + 2).is_some_and(|t| t.is(";") || t.kind == Kind::Comment))
            }
            b"exec" | b"execute" | b"call" => {
                self.at(next).is_some_and(|t| {
                    t.text.starts_with(b"sp_")
                        || t.text.starts_with(b"xp_")
                        || t.text.starts_with(b"master")
                        || t.text.starts_with(b"@")
                }) || self.is(next, "(") && !self.is(next + 1, ")")
            }
            b"declare" => {
                self.at(next).is_some_and(|t| t.text.starts_with(b"@"))
                    || w(i + 2, &["varchar", "varchar2", "nvarchar", "int", "integer", "cursor", "number", "char"])
            }
            b"set" => self.at(next).is_some_and(|t| t.text.starts_with(b"@")) && self.is(i + 2, "="),
            b"shutdown" => {
                self.at(next).is_none_or(|t| t.kind == Kind::Comment || t.is(";")) && (self.broken || i > 0)
                    || w(next, &["with"])
            }
            b"grant" | b"revoke" => {
                w(next, &["all", "select", "insert", "update", "delete", "execute", "dba", "connect"])
            }
            b"prepare" => self.operand(next) && w(i + 2, &["from"]) && !self.kind(i + 3, Kind::Word),
            b"waitfor" => w(next, &["delay", "time"]),
            b"load" => w(next, &["data"]),
            b"copy" => self.operand(next) && w(i + 2, &["from", "to"]),
            b"backup" | b"restore" => w(next, &["database", "log"]),
            b"handler" => self.operand(next) && w(i + 2, &["open", "read"]),
            b"begin" if self.broken && self.statement_word(next) => true,
            b"if" | b"while"
                if self.broken
                    && self.kind(next, Kind::Number)
                    && self.kind(i + 3, Kind::Number)
                    && self.statement_word(i + 4) =>
            {
                true
            }
            b"begin" | b"commit" | b"rollback" => {
                self.is(next, ";") || w(next, &["transaction", "tran", "declare", "dbms_lock.sleep"])
            }
            b"attach" | b"detach" => w(next, &["database"]),
            b"rename" => w(next, &["table", "user"]),
            b"merge" => w(next, &["into", "using"]),
            b"analyze" | b"vacuum" | b"pragma" => self.broken || i > 0 && self.operand(next),
            b"if" => self.is(next, "(") && i > 0,
            _ => false,
        };
        if sure { 5 } else { 0 }
    }

    /// Whether a statement of definition that begins the value is complete: `drop table dining furniture` has a word too
    /// many, and `create user manual` says nothing about the user.
    fn defines(&self, t: &Token<'_>, kind: usize) -> bool {
        let mut name = kind + 1;
        if self.word(name, &["if"]) {
            name += if self.word(name + 1, &["not"]) { 3 } else { 2 };
            if !self.operand(name) {
                return false;
            }
        }
        while self.is(name + 1, ".") {
            name += 2;
        }
        let behind = self.at(name + 1);
        if t.is("drop") || t.is("truncate") {
            return behind.is_none_or(|t| {
                t.kind != Kind::Word
                    || t.word(&["cascade", "restrict", "purge", "on", "if", "from", "restart", "continue"])
            });
        }
        // `create table x`, `create database x`: nothing else is needed.
        let whole = self
            .word(kind, &["table", "database", "schema", "procedure", "proc", "trigger", "tablespace", "extension"]);
        behind.map_or(whole, |t| t.kind != Kind::Word || DEFINES.iter().any(|w| w.as_bytes() == t.text))
    }

    /// Whether this word can begin a statement.
    pub(super) fn statement_word(&self, i: usize) -> bool {
        self.word(
            i,
            &[
                "insert", "update", "delete", "drop", "alter", "create", "truncate", "exec", "execute", "declare",
                "grant", "shutdown", "replace", "merge", "copy",
            ],
        ) || self.word(i, &["set"]) && self.at(i + 1).is_some_and(|t| t.text.starts_with(b"@"))
    }
}
