//! Header lines, and lines of a trailer.

use margay_flow::Direction;

use super::{Http1Parser, Step};
use crate::config::http1::ServerConfig;
use crate::http1::TRAILER;
use crate::http1::buffers::WITH_TRAILER;
use crate::http1::events::Event;
use crate::http1::headers::{FieldFlags, is_token};
use crate::http1::line::{Ending, is_blank, next_line};
use crate::http1::response::is_status;
use crate::http1::tx::Http1Tx;
use crate::parser::{Outcome, Parse};

/// Whether a line that begins with this byte continues the field before it.
const fn continues(first: u8, dir: Direction) -> bool {
    matches!(first, b' ' | b'\t') || first == 0 && matches!(dir, Direction::ToClient)
}

impl Http1Parser {
    /// Parses a header line.
    // It stays whole: a line's end is decided by tests that build on one another, in this order.
    pub(super) fn headers(&mut self, cx: &mut Parse<'_>, server: &ServerConfig, dir: Direction, data: &[u8]) -> Step {
        let lenient = dir == Direction::ToClient;
        let end = cx.end;
        if let Some(stop) = self.field_end(server, dir, data) {
            return stop;
        }
        let side = self.side(dir);
        let Some(line) = next_line(data, &mut side.scan, lenient, end) else {
            return if data.len() > server.field_limit as usize { self.too_long(dir) } else { Step::More };
        };
        if line.total > server.field_limit as usize {
            return self.too_long(dir);
        }
        let mut total = line.total;
        let last = side.last;
        let content = data.get(..line.content).unwrap_or(&[]);
        let mut over = content.is_empty() && line.ending != Ending::Cr;
        if lenient && !over && line.ending == Ending::CrLf && content.iter().all(|&b| b == b'\r') {
            // At CR CR LF, the fields of a response end for Node.js and curl, but not for browsers: the next bytes decide.
            let rest = data.get(total..).unwrap_or(&[]);
            match rest.iter().find(|&&b| !is_token(&[b])) {
                Some(b':') if rest.first() != Some(&b':') => {}
                // An empty line follows, after which all of them expect the body.
                Some(b'\r' | b'\n') if matches!(rest, [b'\r', b'\n', ..] | [b'\n', ..]) => {}
                Some(b'\r') if rest.len() == 1 && !end => return Step::More,
                None if !end && data.len() <= server.field_limit as usize => return Step::More,
                _ => over = true,
            }
        }
        if over && lenient && last == Ending::LfCr {
            // With LF CR line ends, two empty lines are one.
            match data.get(total..total + 2) {
                Some(b"\r\n") => total += 2,
                None if !end && data.get(total).is_none_or(|&b| b == b'\r') => return Step::More,
                _ => {}
            }
        }
        if lenient && !over && line.ending == Ending::Lf && last == Ending::Lf && is_blank(content) {
            // White space between two bare LFs is an empty line, unless a proper one follows.
            match data.get(total) {
                None if !end => return Step::More,
                Some(b'\n' | b'\r') => {}
                _ => over = true,
            }
        }
        let mut another = false;
        if over && lenient && self.current(dir).is_some_and(|tx| tx.status_line.number == Some(100)) {
            // The length in a `100 Continue` counts only if no response follows at once.
            let rest = data.get(total..).unwrap_or(&[]);
            match is_status(rest) {
                None if !end && data.len() <= server.field_limit as usize => return Step::More,
                found => another = found == Some(true),
            }
        }
        self.side(dir).last = line.ending;
        let limit = server.field_limit as usize;
        let Some(tx) = self.current(dir) else { return Step::Stop(0, Outcome::Failed) };
        let trailer = tx.base.progress.get(dir.index()).is_some_and(|&p| p >= TRAILER);
        let headers = &mut tx.message_mut(dir).headers;
        headers.add_raw(data.get(..total).unwrap_or(&[]));
        if over {
            let flags = headers.finish(server.headers_limit);
            if let Some(stop) = Self::flag(tx, dir, flags) {
                return stop;
            }
            if trailer {
                tx.base.renewed[dir.index()] |= WITH_TRAILER;
                let tail = self.tail(cx, server, dir, data.get(total..).unwrap_or(&[]));
                self.complete(cx, dir);
                return Step::Used(total + tail);
            }
            let outcome = match dir {
                Direction::ToServer => self.request_fields(cx, server),
                Direction::ToClient => self.response_fields(cx, server, another),
            };
            if outcome == Outcome::Change(None) {
                // Empty lines after the fields are not part of the tunnel's data.
                let rest = data.get(total..).unwrap_or(&[]);
                total += rest.iter().take_while(|b| matches!(b, b'\r' | b'\n')).count();
            }
            return if outcome == Outcome::More { Step::Used(total) } else { Step::Stop(total, outcome) };
        }
        if content.is_empty() {
            return Step::Used(total);
        }
        let folded = content.first().is_some_and(|&b| continues(b, dir));
        // Some clients treat a folded line with a colon as a field.
        let own = lenient && folded && headers.has_colon() && content.contains(&b':');
        if folded && !own {
            if headers.pending_len() + content.len() > limit {
                return self.too_long(dir);
            }
            if headers.fold(content, limit) {
                let (more, ending) = headers.fold_lines(data.get(total..).unwrap_or(&[]), limit, lenient);
                if let Some(ending) = ending {
                    self.side(dir).last = ending;
                }
                return Step::Used(total + more);
            }
        }
        let flags = headers.finish(server.headers_limit);
        headers.begin(content.len(), total);
        if folded {
            tx.event(if lenient { Event::ResponseFolding } else { Event::RequestFolding });
        }
        Self::flag(tx, dir, flags).unwrap_or(Step::Used(total))
    }

    /// Ends the current field unless the next line, of which `data` is the beginning, continues it. So rules match the field before
    /// the next line is complete.
    fn field_end(&mut self, server: &ServerConfig, dir: Direction, data: &[u8]) -> Option<Step> {
        let tx = self.current(dir)?;
        let headers = &mut tx.message_mut(dir).headers;
        // As in Suricata, half the end of an empty line in a request is not enough.
        let half = dir == Direction::ToServer && data == b"\r";
        if !headers.has_pending() || half || data.first().is_none_or(|&b| continues(b, dir)) {
            return None;
        }
        let flags = headers.finish(server.headers_limit);
        tx.base.touch(dir);
        Self::flag(tx, dir, flags)
    }

    pub(super) fn flag(tx: &mut Http1Tx, dir: Direction, flags: FieldFlags) -> Option<Step> {
        let one_of = |request, response| if dir == Direction::ToServer { request } else { response };
        if flags.no_colon {
            tx.event(one_of(Event::RequestMissingColon, Event::ResponseMissingColon));
        }
        if flags.invalid {
            tx.event(one_of(Event::RequestHeaderInvalid, Event::ResponseHeaderInvalid));
        }
        if flags.repeated {
            tx.event(one_of(Event::RequestRepetition, Event::ResponseRepetition));
        }
        if flags.too_many {
            tx.event(one_of(Event::RequestTooManyHeaders, Event::ResponseTooManyHeaders));
            tx.base.touch(dir);
            return Some(Step::Stop(0, Outcome::Failed));
        }
        None
    }
}
