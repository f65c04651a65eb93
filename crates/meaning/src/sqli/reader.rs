//! Finds SQL constructs in a token list and weighs them.

use super::THRESHOLD;
use super::token::{Kind, Token};
use super::vocabulary::{BEHIND, CALLS_SURE, COMPARES, JOINS, NAMES, NAMES_WEAK, SESSION, is_call, names_schema};

/// Most tokens from a comment to the end, for the comment to count as cutting off the statement.
const AFTER_COMMENT: usize = 8;

/// Tokens before a comment among which SQL words are searched.
const LOOK_BACK: usize = 64;

/// Largest offset of an `order by name desc` that continues an existing statement.
const ORDER_BY_WITHIN: usize = 16;

/// Distance in tokens within which constructs count together.
pub(super) const NEAR: usize = 16;

pub(super) struct Reader<'a> {
    pub(super) tokens: &'a [Token<'a>],
    /// Whether the value ended an enclosing string.
    pub(super) broken: bool,
    /// Whether that string had content before the end.
    pub(super) before: bool,
    /// Whether there is a closed comment.
    pub(super) commented: bool,
}

impl<'a> Reader<'a> {
    pub(super) fn at(&self, i: usize) -> Option<&Token<'a>> {
        self.tokens.get(i)
    }
    pub(super) fn is(&self, i: usize, text: &str) -> bool {
        self.at(i).is_some_and(|t| t.is(text))
    }
    pub(super) fn word(&self, i: usize, list: &[&str]) -> bool {
        self.at(i).is_some_and(|t| t.word(list))
    }
    pub(super) fn kind(&self, i: usize, kind: Kind) -> bool {
        self.at(i).is_some_and(|t| t.kind == kind)
    }
    pub(super) fn operand(&self, i: usize) -> bool {
        self.at(i).is_some_and(Token::operand)
    }

    /// Whether it is a number, a string, or the beginning of one.
    fn literal(&self, i: usize) -> bool {
        self.at(i).is_some_and(|t| matches!(t.kind, Kind::Number | Kind::Text | Kind::Open))
    }

    /// Skips opening parentheses.
    pub(super) fn skip_open(&self, mut i: usize) -> usize {
        while self.is(i, "(") {
            i += 1;
        }
        i
    }

    pub(super) fn weight(&self) -> u32 {
        if self.fragment() || self.broken && self.is_expression() {
            return THRESHOLD;
        }
        // Weak constructs count only with others near them.
        let mut near = std::collections::VecDeque::new();
        if self.broken {
            near.push_back((0, 1));
        }
        if self.commented {
            near.push_back((0, 1));
        }
        for i in 0..self.tokens.len() {
            let weight = self.construct(i);
            if weight == 0 {
                continue;
            }
            near.push_back((i, weight));
            while near.front().is_some_and(|&(at, _)| at + NEAR < i) {
                near.pop_front();
            }
            if near.iter().map(|(_, w)| w).sum::<u32>() >= THRESHOLD {
                return THRESHOLD;
            }
        }
        near.iter().map(|(_, w)| w).sum()
    }

    /// Whether the value is only a fragment of a condition or call: an operator, or an unfinished condition that the
    /// surrounding statement completes.
    pub(super) fn fragment(&self) -> bool {
        let Some(last) = self.tokens.last() else { return false };
        let count = self.tokens.len();
        if self.broken && self.before {
            return count == 1 && last.is(";");
        }
        // `in (1, 2, …`
        if self.word(0, &["in"]) && self.is(1, "(") && (self.kind(2, Kind::Number) || self.word(2, &["select"])) {
            return true;
        }
        if count > 24 {
            return false;
        }
        // `a`;`: a name that ends with a backtick.
        if last.is(";") && self.kind(count.wrapping_sub(2), Kind::Open) && self.is(count.wrapping_sub(2), "`") {
            return true;
        }
        // `; --`
        if count == 2 && self.is(0, ";") && self.is(1, "--") {
            return true;
        }
        // `* from users -- `: columns of a query that the surrounding statement begins
        if self.is(0, "*") && self.word(1, &["from"]) && self.kind(2, Kind::Word) && self.kind(3, Kind::Comment) {
            return true;
        }
        // `x = (select`
        if last.is("select") && count >= 3 && self.is(count - 2, "(") && self.is(count - 3, "=") {
            return true;
        }
        // `colour like '`
        if (3..=4).contains(&count)
            && self.word(count - 2, &["like", "rlike", "regexp", "ilike"])
            && last.kind == Kind::Open
            && last.is("'")
        {
            return true;
        }
        // `if(2=`
        if self.word(count.wrapping_sub(4), &["if", "iif"])
            && self.is(count - 3, "(")
            && self.kind(count - 2, Kind::Number)
            && last.is("=")
        {
            return true;
        }
        // `/3 and(`, `&& 1==(`
        if (3..=6).contains(&count) && last.is("(") && !self.broken {
            let joined = self.word(count - 2, &["and", "or", "xor"]) && self.kind(count - 3, Kind::Number);
            let compared = self.at(count - 2).is_some_and(|t| matches!(t.text, b"=" | b"==" | b"<" | b">"))
                && self.kind(count - 3, Kind::Number)
                && (self.is(0, "&&") || self.is(0, "||") || self.word(0, &["and", "or"]));
            if joined || compared {
                return true;
            }
        }
        // `and deleted = 0)`: the surrounding statement has the opening parenthesis.
        if (5..=8).contains(&count)
            && self.word(0, &["and", "or"])
            && last.is(")")
            && self.is(2, "=")
            && matches!(self.at(3).map(|t| t.kind), Some(Kind::Number | Kind::Text))
            && !self.tokens.iter().any(|t| t.is("("))
        {
            return true;
        }
        // `set @a`
        if (2..=3).contains(&count)
            && self.word(count - 2, &["set"])
            && last.text.starts_with(b"@")
            && last.text.contains(&b'_')
        {
            return true;
        }
        let compares = |t: &Token<'_>| {
            matches!(
                t.text,
                b"=" | b"=="
                    | b"<"
                    | b">"
                    | b"<>"
                    | b"!="
                    | b"<=>"
                    | b">="
                    | b"<="
                    | b"||"
                    | b"&&"
                    | b"<<"
                    | b">>"
                    | b"->"
            )
        };
        let starts = |i: usize| {
            self.word(i, &["or", "and", "xor", "||", "&&", "not", "having", "where"])
                || self.is(i, "||")
                || self.is(i, "&&")
        };
        let open = last.is("(") || last.kind == Kind::Open || last.kind == Kind::Operator && compares(last);
        match count {
            1 => compares(last) && last.text.len() > 1 && !self.broken,
            2 if self.word(0, &["like", "is", "not"]) => self.word(1, &["null"]),
            2 | 3 if self.word(0, &["or", "xor"]) && self.kind(1, Kind::Number) => true,
            2..=8 if self.is(count - 2, "(") && last.is("select") => true,
            2..=4 if self.is(0, ";") => self.statement_word(1),
            2..=8 if (self.is(0, "&&") || self.is(0, "||")) && self.is(1, "(") && last.is(")") && self.tokens.iter().any(compares) && self.tokens.get(2).is_some_and(|t| t.kind == Kind::Word) => true,
            3 | 4 if self.is(0, "/") && last.word(&["or", "and", "xor"]) => true,
            5..=8 if self.tokens.windows(3).any(|w| matches!(w, [a, b, c] if a.kind == Kind::Text && b.is(",") && (c.text.starts_with(b"0x") || c.is("(")))) => true,
            2 | 3 if self.broken && !self.before && self.word(0, &["alter", "union", "create", "delete", "drop", "truncate", "exec", "execute", "declare"]) => true,
            2..=6 if last.is("(") => {
                // A call without its arguments, whatever is between.
                let name = self.tokens.iter().position(|t| is_call(t) || t.text.len() > 1 && t.word(&["in", "not", "values", "like", "rlike", "regexp"]));
                name.is_some_and(|n| self.tokens.get(n + 1..).is_some_and(|r| r.iter().all(|t| t.kind == Kind::Operator || t.kind == Kind::Mark || t.kind == Kind::Open || t.is("$"))))
                    && !self.broken
            }
            _ => {
                let at = (0..count.min(4)).find(|&i| starts(i));
                let begins = at.is_some_and(|at| at == 0 || self.is(at - 1, ";") || at <= 3);
                let continued = count.checked_sub(2).is_some_and(|i| {
                    last.kind != Kind::Open || self.kind(i, Kind::Operator) || self.is(i, "(") || self.word(i, COMPARES)
                });
                begins && open && continued && count >= 3 && at.is_some_and(|at| count - at >= 3)
            }
        }
    }

    /// The weight of the construct that begins with this token.
    pub(super) fn construct(&self, i: usize) -> u32 {
        let Some(token) = self.at(i) else { return 0 };
        match token.kind {
            Kind::Word => self.of_word(i, token),
            Kind::Comment => self.of_comment(i, token),
            Kind::Mark if token.is(";") => {
                self.statement(i + 1) + u32::from(self.broken && self.at(i + 1).is_none()) * 2
            }
            Kind::Operator => self.of_operator(i, token),
            // `'1'='1'`, `'{"a": 1}' ? 'a'`
            Kind::Text
                if self.kind(i + 2, Kind::Text)
                    && self.at(i + 1).is_some_and(|o| o.is("=") || o.is("==") || o.is("<=>")) =>
            {
                if self.at(i + 2).is_some_and(|t| t.text == token.text) { 5 } else { 2 }
            }
            Kind::Text
                if self.kind(i + 2, Kind::Text)
                    && matches!(token.text.get(..2), Some(b"'{" | b"'["))
                    && self.at(i + 1).is_some_and(|o| matches!(o.text, b"?" | b"<" | b">" | b"@" | b"=")) =>
            {
                5
            }
            _ => 0,
        }
    }

    fn of_word(&self, i: usize, t: &Token<'_>) -> u32 {
        let next = i + 1;
        if self.searches() && (NAMES_WEAK.has(t.text) || NAMES.has(t.text)) {
            return 0;
        }
        if NAMES_WEAK.has(t.text) {
            return 3;
        }
        if NAMES.has(t.text)
            || t.text.starts_with(b"@@")
                && t.text.len() > 3
                && t.text.len() < 32
                && !t.text.iter().any(u8::is_ascii_digit)
        {
            return 5;
        }
        if names_schema(t) {
            return 5;
        }
        if t.word(&["union"]) {
            let mut j = next;
            while self.word(j, &["all", "distinct", "distinctrow"])
                || self.is(j, "(")
                || self.is(j, "*")
                || self.is(j, "@")
            {
                j += 1;
            }
            return match self.word(j, &["select", "values"]) {
                true if self.at(j + 1).is_some_and(|t| t.text.iter().any(|b| *b >= 0x80)) => 0,
                true => 5,
                false => 0,
            };
        }
        if t.word(&["select"]) {
            // `1 and (select top 10 name from users)`
            let nested = i >= 2
                && self.is(i - 1, "(")
                && self.at(i - 2).is_some_and(|t| t.word(JOINS) || t.is("||") || t.is("&&"));
            return self.select(next) + u32::from(nested);
        }
        if t.word(&["values"]) && i == 0 && self.is(next, "(") && self.kind(i + 2, Kind::Text) {
            return 5;
        }
        if self.is(next, "(") && is_call(t) {
            return self.call(i, t);
        }
        if t.word(&["when"]) && self.operand(next) && self.word(i + 2, &["then"]) {
            return if self.kind(next, Kind::Number) || i > 0 && self.is(i - 1, ")") { 5 } else { 2 };
        }
        if t.word(&[
            "or", "and", "xor", "having", "where", "not", "when", "like", "rlike", "regexp", "is", "in", "between",
            "glob", "ilike", "sounds", "div", "mod", "notnull", "isnull",
        ]) {
            return self.condition(i, t);
        }
        if t.word(&["order", "group"]) && self.word(next, &["by"]) {
            let called =
                i == 1 && self.kind(0, Kind::Number) && self.at(i + 2).is_some_and(is_call) && self.is(i + 3, "(");
            let telling = self.kind(i + 2, Kind::Number) && self.goes_on(i + 3) || self.is(i + 2, "(") || called;
            // Deep in a text, it is an example query.
            let sorts = self.word(i + 3, &["having", "limit", "asc", "desc"]) && i <= ORDER_BY_WITHIN;
            return if telling || (self.operand(i + 2) && (self.broken || self.comment_ends() || sorts)) {
                5
            } else {
                1
            };
        }
        if t.word(&["into"]) && self.word(next, &["outfile", "dumpfile"]) && !self.kind(i + 2, Kind::Word) {
            return 5;
        }
        if t.word(&["collate"]) && i == 0 && self.broken && self.operand(next) {
            return 5;
        }
        if t.word(&["exec", "execute"])
            && self.at(next).is_some_and(|t| t.text.starts_with(b"sp_") || t.text.starts_with(b"xp_"))
        {
            return 5;
        }
        if t.word(&["procedure"]) && self.word(next, &["analyse"]) {
            return 5;
        }
        if t.word(&["waitfor"]) && self.word(next, &["delay", "time"]) {
            return 5;
        }
        if t.word(&["execute"]) && self.word(next, &["immediate"]) {
            return 5;
        }
        if t.word(&["except", "intersect", "minus"]) && self.word(self.skip_open(next), &["select", "values", "all"]) {
            return 5;
        }
        if t.word(&["case"]) && self.word(next, &["when"]) {
            return 3;
        }
        if t.word(&["limit"])
            && self.kind(next, Kind::Number)
            && (self.is(i + 2, ",") || self.word(i + 2, &["offset", "procedure", "into"]) || self.broken)
        {
            return 4;
        }
        if t.word(&["from"]) && self.operand(next) {
            let mut j = i + 2;
            while self.is(j, ".") && self.operand(j + 1) {
                j += 2;
            }
            let ends = self.word(j, &["limit"]) && (self.at(j + 1).is_none() || self.kind(j + 1, Kind::Number))
                || self.word(j, &["where", "order", "group"])
                    && (self.word(j + 1, &["by"])
                        || self.at(j + 2).is_some_and(|t| t.kind == Kind::Operator)
                        || self.at(j + 1).is_some_and(|t| is_call(t) || t.text.starts_with(b"`"))
                            && (self.is(j + 2, "(") || self.is(j + 2, ".")));
            // `' a, password from users --`
            let cut = self.broken && self.kind(j, Kind::Comment) && self.at(j + 1).is_none();
            return if ends && (i == 0 || self.broken) || cut { 5 } else { 0 };
        }
        if i == 0 || self.broken && i <= 1 || self.word(i.wrapping_sub(1), &["begin", "then", "else", "do"]) {
            return self.statement(i);
        }
        0
    }

    /// Whether the statement can go on here after an operand: there is no word, or one that SQL has behind operands.
    pub(super) fn goes_on(&self, i: usize) -> bool {
        self.at(i).is_none_or(|t| t.kind != Kind::Word || BEHIND.has(t.text))
    }

    /// The weight of a function call.
    pub(super) fn call(&self, i: usize, t: &Token<'_>) -> u32 {
        let inner = self.skip_open(i + 1);
        let filled = self.operand(inner) || self.is(inner, "*");
        let end = self.end_of_call(i);
        if CALLS_SURE.has(t.text) {
            // `sleep(5) hours`, `while (1) sleep(5)`: a sentence or a program, in which nothing ends a string.
            if !self.broken
                && (!self.goes_on(end) || self.word(end, &["in"]) && !self.is(end + 1, "(") || self.follows_head(i))
            {
                return 1;
            }
            return if filled { 5 } else { 3 };
        }
        let compared = self.at(end).is_some_and(|t| {
            t.is("=")
                || t.is("<")
                || t.is(">")
                || t.is("||")
                || t.word(COMPARES)
                || t.word(&["from", "and", "or", "union"])
        });
        let nested =
            self.at(inner).is_some_and(is_call) && self.is(inner + 1, "(") || self.word(inner, &["select", "case"]);
        // `charset(current_user())`
        if self.word(inner, SESSION) && self.is(inner + 1, "(") && self.is(inner + 2, ")") {
            return 5;
        }
        let hex = |k: usize| self.at(k).is_some_and(|t| t.kind == Kind::Number && t.text.starts_with(b"0x"));
        if hex(inner) && self.is(inner + 1, ",") && self.kind(inner + 2, Kind::Word) && self.is(inner + 3, "(") {
            return 5;
        }
        let whole = i == 0 && self.tokens.len() <= 3 && !filled;
        u32::from(self.broken) * 2 + u32::from(compared) * 2 + u32::from(nested) * 2 + u32::from(whole) * 4 + 1
    }

    /// The token after the call that begins here.
    fn end_of_call(&self, i: usize) -> usize {
        let mut depth = 0_usize;
        for k in i + 1..self.tokens.len().min(i + 64) {
            if self.is(k, "(") {
                depth += 1;
            } else if self.is(k, ")") {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return k + 1;
                }
            }
        }
        i + 1
    }

    /// Whether the head of a loop or a condition of a program is in front: `while (1)`. SQL has an operator there.
    fn follows_head(&self, i: usize) -> bool {
        i.checked_sub(1).is_some_and(|p| self.is(p, ")"))
            && self.word(0, &["if", "while", "for", "switch"])
            && self.is(1, "(")
            && self.end_of_call(0) == i
    }

    /// The weight of a condition or comparison.
    pub(super) fn condition(&self, i: usize, t: &Token<'_>) -> u32 {
        let mut j = self.skip_open(i + 1);
        let joins = t.word(JOINS);
        while self.word(j, &["not", "exists", "binary", "all", "any"])
            || self.is(j, "(")
            || self.is(j, "!")
            || self.is(j, "~")
            || self.is(j, "-")
            || self.is(j, "+")
            || self.is(j, "@")
        {
            j += 1;
        }
        // After a closed string, a number or a parenthesis, the value continues a condition.
        let behind = i == 0 && (self.broken || self.is(i + 1, "("))
            || i.checked_sub(1).is_some_and(|p| {
                self.is(p, ")")
                    || self.kind(p, Kind::Text)
                    || self.kind(p, Kind::Number)
                    || self.is(p, "'")
                    || self.is(p, "\"")
            });
        if t.word(&["notnull", "isnull"]) {
            return if behind && self.at(i + 1).is_none_or(|t| t.kind == Kind::Comment || t.is(")") || t.word(JOINS)) {
                4
            } else {
                0
            };
        }
        if t.word(&["in"]) && !self.is(i + 1, "(") {
            return 0;
        }
        if t.word(&["is"]) {
            let null = self.word(j, &["null", "true", "false", "unknown"]);
            return if (behind || self.broken) && null {
                5
            } else if self.broken && self.comment_ends() {
                4
            } else {
                0
            };
        }
        if t.word(&["like", "rlike", "regexp", "glob", "ilike", "in", "between", "sounds", "div", "mod"]) {
            // `' like a robot on fire`
            let prose = self.kind(j, Kind::Word) && self.kind(j + 1, Kind::Word) && !self.goes_on(j + 1);
            let right = (self.operand(j) || self.is(i + 1, "(")) && !prose;
            return match (behind, right, self.broken) {
                (true, true, true) => 4,
                (true, _, _) if self.kind(j, Kind::Text) || self.kind(j, Kind::Number) || self.word(j, &["null"]) => 3,
                _ if self.kind(j, Kind::Text) || self.kind(j, Kind::Open) => 2,
                _ => 0,
            };
        }
        if !joins || !(self.operand(j) || self.is(j, "*")) {
            return if self.broken
                && i == 0
                && self.at(i + 1).is_none_or(|t| t.kind == Kind::Open || t.kind == Kind::Comment)
            {
                4
            } else {
                0
            };
        }
        // `(1)=(1)`
        let opened = j > i + 1 && self.is(j - 1, "(");
        let closed = if opened { (j + 1..self.tokens.len()).find(|&k| !self.is(k, ")")) } else { None };
        let operator_at = closed.unwrap_or(j + 1);
        let operator = self.at(operator_at);
        let compares = operator.is_some_and(|t| {
            t.kind == Kind::Operator && !matches!(t.text, b"/" | b"-" | b"&" | b"+" | b"%" | b"*") || t.word(COMPARES)
        });
        let literal = |i| self.literal(i) || self.word(i, SESSION);
        // `tier in ["gold"]`: SQL has parentheses there.
        if operator.is_some_and(|t| t.word(&["in"])) && self.is(operator_at + 1, "[") {
            return 0;
        }
        if compares {
            let right = self.skip_open(operator_at + 1);
            let same = self.at(j).zip(self.at(right)).is_some_and(|(a, b)| a.text == b.text);
            // Two conditions are never separated by a comma.
            if self.is(right + 1, ",") && self.word(right + 2, JOINS) {
                return 0;
            }
            if self.kind(right + 1, Kind::Open) && self.kind(right + 2, Kind::Word) {
                return 0;
            }
            let both = literal(j) && (literal(right) || self.at(right).is_none());
            let first = i == 0 || self.is(i.wrapping_sub(1), ")");
            return match () {
                () if both || same => 5,
                () if self.broken && behind => 5,
                () if behind && (literal(j) || literal(right)) => 5,
                () if first && literal(right) => 4,
                () if self.broken => 3,
                () if behind => 3,
                () => 0,
            };
        }
        // `and 60's coats`: no statement goes on with a string behind an operand.
        if self.kind(j, Kind::Number) && operator.is_some_and(|t| t.kind == Kind::Text) {
            return 0;
        }
        if operator.is_some_and(|t| t.is("(")) && self.kind(j, Kind::Word) {
            return if i == 0 || behind { 2 } else { 0 };
        }
        // `' or name` without a closing quote, and nothing before the quote.
        if self.broken
            && !self.before
            && i == 0
            && t.word(&["or", "and", "xor"])
            && self.tokens.len() <= 4
            && !self.tokens.iter().any(|t| matches!(t.kind, Kind::Open | Kind::Text))
        {
            return 4;
        }
        // `' or 1`, `' or true --`, `' or sleep(1)`
        let ends = operator.is_none_or(|t| matches!(t.kind, Kind::Comment | Kind::Open) || t.is(")") || t.is(";"));
        match (self.broken && behind, ends, literal(j)) {
            (true, true, _) => 5,
            (true, false, true) => 4,
            (true, false, false) => 2,
            (false, true, true) if behind => 4,
            _ => 0,
        }
    }

    /// Whether the value is a few words as in a search, without a verb of SQL: `xp_cmdshell disable`.
    fn searches(&self) -> bool {
        const VERBS: &[&str] = &["select", "union", "exec", "execute", "from", "where", "or", "and", "call", "drop"];
        !self.broken
            && (2..=4).contains(&self.tokens.len())
            && self.tokens.iter().all(|t| t.kind == Kind::Word && !t.word(VERBS))
            && self.tokens.iter().all(|t| t.text.iter().all(|b| b.is_ascii_alphabetic() || *b == b'_'))
    }

    /// Whether the value ends with a comment.
    fn comment_ends(&self) -> bool {
        self.tokens.last().is_some_and(|t| t.kind == Kind::Comment)
    }

    fn of_comment(&self, i: usize, t: &Token<'_>) -> u32 {
        if self.kind(i + 1, Kind::Comment) || t.is("#") && self.at(i + 1).is_some() {
            return 0;
        }
        let sql = self.tokens.iter().take(i).rev().take(LOOK_BACK).any(|t| {
            t.word(&[
                "or", "and", "select", "union", "where", "order", "group", "having", "insert", "update", "delete",
                "drop", "exec", "null", "is", "not", "like", "waitfor", "between", "by", "limit", "in", "case",
            ])
        });
        let short = i <= 3;
        match (self.broken, sql) {
            (true, true) if self.tokens.len() - i <= AFTER_COMMENT => 4,
            (true, false) if short && (t.is("--") || t.is("/*")) => 4,
            // `admin' #`
            (true, false) if i == 0 && self.tokens.len() == 1 => 4,
            (true, false) if short => 3,
            (false, true) if self.at(i + 2).is_none() && !t.is("#") => 3,
            _ => 0,
        }
    }

    fn of_operator(&self, i: usize, t: &Token<'_>) -> u32 {
        let next = self.skip_open(i + 1);
        if matches!(t.text, b"@>" | b"<@" | b"#>>" | b"#>" | b"->>" | b"?|" | b"?&") && (i > 0 || self.broken) {
            return if self.kind(next, Kind::Text)
                || self.word(next, &["array"])
                || i.checked_sub(1).is_some_and(|p| self.kind(p, Kind::Text))
            {
                5
            } else {
                0
            };
        }
        if t.is("::")
            && self.word(
                next,
                &["json", "jsonb", "text", "int", "integer", "varchar", "regclass", "numeric", "name", "bytea"],
            )
        {
            return 5;
        }
        let literal = |i| self.literal(i);
        if t.is("||") || t.is("&&") || t.is("|") || t.is("&") {
            let compares = self.at(next + 1).is_some_and(Token::compares);
            if literal(next) && compares && literal(next + 2) && t.text.len() == 2 {
                return 5;
            }
            // `1 || substr(user,1,1) = 'a'`
            if i == 1
                && t.is("||")
                && !self.broken
                && literal(0)
                && self.at(next).is_some_and(is_call)
                && self.is(next + 1, "(")
            {
                return 4;
            }
            if self.broken && i <= 1 && (self.operand(next) || self.at(next).is_none()) {
                return if t.text.len() == 2
                    && (literal(next) || self.at(next + 1).is_none() || self.comment_ends() || self.is(next + 1, "("))
                {
                    4
                } else {
                    2
                };
            }
            return 0;
        }
        if self.broken && i == 0 && !self.before && self.joins_numbers() {
            return 5;
        }
        if self.broken && i == 0 {
            // `'=0`, `'+1`, `'-'`, `'*1`, `'<>'`
            let only = self.tokens.len() <= 4;
            if only
                && (literal(next) || self.at(next).is_none() || self.kind(next, Kind::Comment))
                && !(t.is("-") && self.before)
            {
                return if self.before && self.at(next).is_none() {
                    0
                } else {
                    3 + u32::from(self.kind(next, Kind::Open) || self.kind(next, Kind::Comment) && !self.before)
                };
            }
        }
        0
    }
}
