//! `http-log` and `tls-log`: a line of text for each HTTP request or TLS session.

mod format;

use std::fmt::Debug;

use margay_app::script::Answer;

use crate::event::{Addresses, AppEvent, EventType, EventTypes};
use crate::hex::digits_of;
use crate::json::{digits, ip};
use crate::output::{Event, EventSink, Opening, OutputError, OutputSettings};
use crate::settings::SinkSettings;
use crate::sinks::Sink;
use crate::time::Clock;

pub use format::Format;
use format::Part;

/// The protocol whose transactions are logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineKind {
    /// `http-log`.
    Http,
    /// `tls-log`.
    Tls,
}

impl LineKind {
    /// The output's name, and that of the values that it asks a transaction for.
    pub const fn name(self) -> &'static str {
        match self {
            LineKind::Http => "http-log",
            LineKind::Tls => "tls-log",
        }
    }

    /// The type whose events are logged.
    fn event_type(self) -> Option<EventType> {
        EventType::from_name(match self {
            LineKind::Http => "http",
            LineKind::Tls => "tls",
        })
    }
}

/// The options of `http-log` and `tls-log`.
#[derive(Debug, Clone, PartialEq)]
pub struct LineLogSettings {
    /// The sink.
    pub sink: SinkSettings,
    /// The protocol.
    pub kind: LineKind,
    /// `extended`.
    pub extended: bool,
    /// `session-resumption`: whether resumed TLS sessions are logged.
    pub resumed: bool,
    /// `customformat`, with `custom`.
    pub format: Option<Format>,
}

impl OutputSettings for LineLogSettings {
    fn name(&self) -> &'static str {
        self.kind.name()
    }

    fn open(&self, at: &Opening<'_>) -> Result<Box<dyn EventSink>, OutputError> {
        let sink = Sink::open(self.sink.clone(), at.now)?;
        Ok(Box::new(LineLog { settings: self.clone(), line: Vec::with_capacity(512), clock: Clock::system(), sink }))
    }

    fn sink(&mut self) -> Option<&mut SinkSettings> {
        Some(&mut self.sink)
    }
}

#[derive(Debug)]
struct LineLog {
    settings: LineLogSettings,
    line: Vec<u8>,
    clock: Clock,
    sink: Sink,
}

impl EventSink for LineLog {
    fn types(&self) -> EventTypes {
        self.settings.kind.event_type().into_iter().collect()
    }

    fn event(&mut self, event: Event<'_>) {
        let Event::App(e) = event else { return };
        let (Some(ask), Some(addresses)) = (e.ask, e.header.addresses) else { return };
        let kind = self.settings.kind;
        let tx = Values { event: e, addresses, get: &|what, arg| ask(kind.name(), what, arg) };
        // Other versions of HTTP have the same type, and no such lines.
        if (tx.get)("get", None).is_none() || (!self.settings.resumed && tx.is("resumed")) {
            return;
        }
        self.line.clear();
        match (&self.settings.format, kind) {
            (Some(format), _) => tx.custom(&mut self.line, &self.clock, kind, format),
            (None, LineKind::Http) => tx.http(&mut self.line, &mut self.clock, self.settings.extended),
            (None, LineKind::Tls) => tx.tls(&mut self.line, &mut self.clock, self.settings.extended),
        }
        self.line.push(b'\n');
        self.sink.line(&self.line);
    }

    fn sink(&mut self) -> Option<&mut Sink> {
        Some(&mut self.sink)
    }

    fn beside(&mut self) -> Option<Box<dyn EventSink>> {
        Some(Box::new(LineLog {
            settings: self.settings.clone(),
            line: Vec::with_capacity(512),
            clock: Clock::system(),
            sink: self.sink.share(),
        }))
    }
}

/// Returns a value by its name, and by its argument, such as a header's name.
type Get<'a> = &'a dyn Fn(&str, Option<&[u8]>) -> Option<Answer>;

/// The values of a transaction.
struct Values<'a> {
    event: &'a AppEvent<'a>,
    addresses: Addresses,
    get: Get<'a>,
}

impl Values<'_> {
    fn text(&self, what: &str, arg: Option<&[u8]>) -> Option<Vec<u8>> {
        match (self.get)(what, arg)? {
            Answer::Bytes(b) => Some(b),
            Answer::Int(n) => Some(n.to_string().into_bytes()),
            _ => None,
        }
    }

    fn is(&self, what: &str) -> bool {
        (self.get)(what, None) == Some(Answer::Bool(true))
    }

    fn http(&self, out: &mut Vec<u8>, clock: &mut Clock, extended: bool) {
        const BETWEEN: &[u8] = b"[**]";
        let value = |out: &mut Vec<u8>, what: &str, arg: Option<&[u8]>, missing: &str| {
            match self.text(what, arg) {
                Some(b) => quoted(out, &b),
                None => out.extend_from_slice(missing.as_bytes()),
            }
            out.extend_from_slice(BETWEEN);
        };
        clock.fast(out, self.event.header.time);
        out.push(b' ');
        value(out, "host", None, "<hostname unknown>");
        value(out, "uri", None, "");
        value(out, "request_header", Some(b"user-agent"), "<useragent unknown>");
        if extended {
            value(out, "request_header", Some(b"referer"), "<no referer>");
            value(out, "method", None, "");
            value(out, "protocol", None, "<no protocol>");
            match self.text("status", None) {
                Some(status) => {
                    quoted(out, &status);
                    // The target of a redirection.
                    if matches!(&status[..], b"301" | b"302")
                        && let Some(target) = self.text("response_header", Some(b"location"))
                    {
                        out.extend_from_slice(b" => ");
                        quoted(out, &target);
                    }
                }
                None => out.extend_from_slice(b"<no status>"),
            }
            out.extend_from_slice(BETWEEN);
            out.extend_from_slice(&self.text("length", None).unwrap_or_else(|| b"0".to_vec()));
            out.extend_from_slice(b" bytes");
            out.extend_from_slice(BETWEEN);
        }
        self.addresses.line(out);
    }

    fn tls(&self, out: &mut Vec<u8>, clock: &mut Clock, extended: bool) {
        clock.fast(out, self.event.header.time);
        out.push(b' ');
        self.addresses.line(out);
        out.extend_from_slice(b"  TLS:");
        self.named(out, "Subject", "subject");
        self.named(out, "Issuerdn", "issuer");
        if self.is("resumed") {
            out.extend_from_slice(b" Session='resumed'");
        }
        if extended {
            self.tls_extended(out);
        }
    }

    fn tls_extended(&self, out: &mut Vec<u8>) {
        for (name, what) in [
            ("SHA1", "fingerprint"),
            ("SNI", "sni"),
            ("SERIAL", "serial"),
            ("VERSION", "version"),
            ("NOTBEFORE", "not_before"),
            ("NOTAFTER", "not_after"),
        ] {
            self.named(out, name, what);
        }
    }

    /// Appends ` NAME='value'`, if the value exists.
    fn named(&self, out: &mut Vec<u8>, name: &str, what: &str) {
        if let Some(b) = self.text(what, None) {
            out.push(b' ');
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b"='");
            printable(out, &b);
            out.push(b'\'');
        }
    }

    fn custom(&self, out: &mut Vec<u8>, clock: &Clock, kind: LineKind, format: &Format) {
        for part in format.parts() {
            match part {
                Part::Text(text) => out.extend_from_slice(text.as_bytes()),
                Part::Time(format) => clock.strftime(out, self.event.header.time, format),
                Part::Micros => {
                    out.extend_from_slice(format!("{:06}", self.event.header.time.subsec_micros()).as_bytes());
                }
                Part::Value(letter, arg) => {
                    if !self.value(out, kind, *letter, arg.as_deref().map(str::as_bytes)) {
                        out.push(b'-');
                    }
                }
            }
        }
    }

    /// Appends a value by its letter. Returns whether there is one; only the field of a header may be empty.
    fn value(&self, out: &mut Vec<u8>, kind: LineKind, letter: char, arg: Option<&[u8]>) -> bool {
        let a = &self.addresses;
        let from = out.len();
        match letter {
            'a' => ip(out, a.src),
            'A' => ip(out, a.dst),
            'p' => digits(out, u64::from(a.sport)),
            'P' => digits(out, u64::from(a.dport)),
            _ if kind == LineKind::Http => return self.http_value(out, letter, arg),
            'n' => self.plain(out, "sni"),
            'f' => self.plain(out, "fingerprint"),
            's' => self.plain(out, "subject"),
            'i' => self.plain(out, "issuer"),
            'v' => self.custom_named(out, "VERSION", "version"),
            'd' => self.custom_named(out, "NOTBEFORE", "not_before"),
            'D' => self.custom_named(out, "NOTAFTER", "not_after"),
            'E' => self.tls_extended(out),
            _ => {}
        }
        out.len() > from
    }

    /// As [`Self::value`], of an HTTP request.
    fn http_value(&self, out: &mut Vec<u8>, letter: char, arg: Option<&[u8]>) -> bool {
        let (what, field) = match letter {
            'h' => ("host", false),
            'H' => ("protocol", false),
            'm' => ("method", false),
            'u' => ("uri", false),
            's' => ("status", false),
            'B' => ("length", false),
            'b' => ("request_length", false),
            'C' if arg.is_some() => ("cookie", false),
            'i' if arg.is_some() => ("request_header", true),
            'o' if arg.is_some() => ("response_header", true),
            _ => return false,
        };
        let value = self.text(what, arg);
        quoted(out, value.as_deref().unwrap_or_default());
        value.is_some_and(|v| field || !v.is_empty())
    }

    /// Appends a value alone.
    fn plain(&self, out: &mut Vec<u8>, what: &str) {
        printable(out, &self.text(what, None).unwrap_or_default());
    }

    /// Appends `NAME='value'`. A session without a certificate has the first second of 1970 as its dates.
    fn custom_named(&self, out: &mut Vec<u8>, name: &str, what: &str) {
        let value = self.text(what, None).unwrap_or_else(|| b"1970-01-01T00:00:00".to_vec());
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"='");
        printable(out, &value);
        out.push(b'\'');
    }
}

/// Appends bytes; those that cannot be printed as `\x07`.
fn printable(out: &mut Vec<u8>, bytes: &[u8]) {
    for &b in bytes {
        if matches!(b, b' '..=b'~') {
            out.push(b);
        } else {
            escape(out, b);
        }
    }
}

/// As [`printable`]; quotation marks are escaped too, and backslashes doubled.
fn quoted(out: &mut Vec<u8>, bytes: &[u8]) {
    for &b in bytes {
        match b {
            b'\\' => out.extend_from_slice(b"\\\\"),
            b' '..=b'~' if b != b'"' => out.push(b),
            _ => escape(out, b),
        }
    }
}

fn escape(out: &mut Vec<u8>, b: u8) {
    out.extend_from_slice(b"\\x");
    out.extend_from_slice(&digits_of(b));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Header, ONE_RECORD};
    use margay_packet::Time;

    fn answers(what: &str, arg: Option<&[u8]>) -> Option<Answer> {
        Some(match (what, arg) {
            ("get", _) => Answer::Bool(true),
            ("uri", _) => Answer::text("/a\"\\\u{7}"),
            ("method", _) => Answer::text("GET"),
            ("status", _) => Answer::text("302"),
            ("length", _) => Answer::Int(7),
            ("request_length", _) => Answer::Int(0),
            ("cookie", Some(b"id")) => Answer::text("5;"),
            ("request_header", Some(b"X-A")) => Answer::text("one, two"),
            ("request_header", Some(b"empty")) => Answer::text(""),
            ("response_header", Some(b"location")) => Answer::text("http://new/"),
            ("sni", _) => Answer::text("a.example"),
            ("version", _) => Answer::text("TLS 1.2"),
            ("resumed", _) => Answer::Bool(true),
            _ => Answer::Nothing,
        })
    }

    fn line(f: impl Fn(&Values<'_>, &mut Vec<u8>)) -> String {
        let addresses =
            Addresses { src: [10, 0, 0, 1].into(), sport: 40_000, dst: [10, 0, 0, 2].into(), dport: 80, proto: 6 };
        let event = AppEvent {
            kind: EventType::Alert,
            header: Header { time: Time::new(1_700_000_000, 60_000), ..Header::default() },
            tx_id: None,
            direction: None,
            xff: None,
            records: ONE_RECORD,
            fields: &|_, _, _| {},
            ask: None,
        };
        let mut out = Vec::new();
        f(&Values { event: &event, addresses, get: &answers }, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn http_lines_are_as_in_suricata() {
        let plain = |extended| line(|v, out| v.http(out, &mut Clock::utc(), extended));
        assert_eq!(
            plain(false),
            "11/14/2023-22:13:20.060000 <hostname unknown>[**]/a\\x22\\\\\\x07[**]<useragent unknown>[**]10.0.0.1:40000 -> 10.0.0.2:80"
        );
        assert_eq!(
            plain(true),
            "11/14/2023-22:13:20.060000 <hostname unknown>[**]/a\\x22\\\\\\x07[**]<useragent unknown>[**]<no referer>[**]GET[**]\
             <no protocol>[**]302 => http://new/[**]7 bytes[**]10.0.0.1:40000 -> 10.0.0.2:80"
        );
    }

    #[test]
    fn custom_lines_have_dashes_for_what_is_missing() {
        let custom = |kind, text: &str| {
            let format = Format::parse(text).unwrap();
            line(|v, out| v.custom(out, &Clock::utc(), kind, &format))
        };
        assert_eq!(
            custom(LineKind::Http, "%{%D-%H:%M:%S}t.%z %{X-A}i %h %m %{8}u %s %B %a:%p -> %A:%P"),
            "11/14/23-22:13:20.060000 one, two - GET /a\\x22\\\\\\x07 302 7 10.0.0.1:40000 -> 10.0.0.2:80"
        );
        assert_eq!(custom(LineKind::Http, "%t|%%|%q|%i|%{X-A}o|%{empty}i|%"), "11/14/23-22:13:20|%|-|-|-||-");
        assert_eq!(custom(LineKind::Http, "%b|%{id}C|%{other}C|%C"), "0|5;|-|-");
        assert_eq!(
            custom(LineKind::Tls, "%n %v %d %f|%E|%C"),
            "a.example VERSION='TLS 1.2' NOTBEFORE='1970-01-01T00:00:00' -| SNI='a.example' VERSION='TLS 1.2'|-"
        );
    }

    #[test]
    fn tls_lines_name_their_values() {
        let tls = |extended| line(|v, out| v.tls(out, &mut Clock::utc(), extended));
        let head = "11/14/2023-22:13:20.060000 10.0.0.1:40000 -> 10.0.0.2:80  TLS: Session='resumed'";
        assert_eq!(tls(false), head);
        assert_eq!(tls(true), format!("{head} SNI='a.example' VERSION='TLS 1.2'"));
    }
}
