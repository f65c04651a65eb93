//! The "template" protocol of Suricata's developer manual: a message is its length in digits, a colon, and that many bytes
//! (`12:Hello World!`). A response answers each request. The protocol is off by default.
//!
//! It is the shortest example of a request-response protocol on the framework ([`crate::conversation`]).

use margay_flow::{Direction, FlowCore};
use margay_json::Json;

use crate::config::{AppConfig, AppLogOptions};
use crate::conversation::{Content, Conversation, Framing, Turn, parser};
use crate::declare::{Keyword, KeywordDirection, Protocol};
use crate::parser::Outcome;
use crate::proto::AppProto;
use crate::recognise::{Mode, Probe, Probed, Recognition, TCP};
use crate::tx::{Found, LogFor, TxBase};

/// The limit of digits in a length.
const DIGITS_MAX: usize = 5;

pub mod events {
    //! Events, under the names that rules use (`app-layer-event:template.NAME`).

    events! {
        "the template protocol";
        TooManyTransactions "too_many_transactions";
    }
}

keywords! {
    Buffer Keyword::buffer(&["template.buffer"], KeywordDirection::Both);
}

/// The template protocol.
pub static PROTOCOL: Protocol = Protocol {
    mode: Mode::Off,
    recognition: Recognition { patterns: &[], probes: &[Probe { transport: TCP, ports: &[7000], probe }] },
    parser: parser::<Template>,
    keywords: KEYWORDS,
    buffers: &BUFFERS,
    numbers: &NUMBERS,
    events: events::NAMES,
    ..Protocol::new(AppProto::Template, "template").logged()
};

/// The length of the message at the front of `data`, and of the prefix; `None` if more digits may follow.
fn length(data: &[u8]) -> Result<Option<(usize, usize)>, ()> {
    let digits = data.iter().take_while(|b| b.is_ascii_digit()).count();
    match data.get(digits) {
        None if digits <= DIGITS_MAX => Ok(None),
        Some(b':') if (1..=DIGITS_MAX).contains(&digits) => {
            let len = data.iter().take(digits).fold(0, |n, b| n * 10 + usize::from(b - b'0'));
            Ok(Some((digits + 1, len)))
        }
        _ => Err(()),
    }
}

fn probe(_: Direction, data: &[u8]) -> Probed {
    match length(data) {
        Ok(Some(_)) => Probed::Yes { reverse: false },
        Ok(None) => Probed::More,
        Err(()) => Probed::No,
    }
}

/// The state of a flow.
#[derive(Debug)]
struct Template {
    /// The oldest request that may wait for its response.
    open: u64,
}

impl Conversation for Template {
    type Tx = Exchange;
    const PROTO: AppProto = AppProto::Template;
    const TOO_MANY: Option<u8> = Some(events::Event::TooManyTransactions as u8);

    fn new(_config: &AppConfig, _flow: &FlowCore) -> Self {
        Template { open: 0 }
    }

    fn framing(&mut self, _dir: Direction, data: &[u8], _end: bool) -> Framing {
        match length(data) {
            Ok(Some((head, len))) => Framing::Message(head + len),
            Ok(None) => Framing::More,
            Err(()) => Framing::Broken,
        }
    }

    fn message(&mut self, turn: &mut Turn<'_, '_, Exchange>, dir: Direction, message: &[u8]) -> Outcome {
        let head = length(message).ok().flatten().map_or(0, |(head, _)| head);
        let text: Box<[u8]> = message.get(head..).unwrap_or_default().into();
        match dir {
            Direction::ToServer => turn.open(Exchange { request: Some(text), response: None }).finish(dir),
            Direction::ToClient => {
                while turn.latest().is_some_and(|tx| tx.base.id >= self.open) {
                    let id = self.open;
                    self.open += 1;
                    // An abandoned transaction does not wait any more.
                    if let Some(tx) = turn.tx(id).filter(|tx| !tx.is_finished(dir)) {
                        tx.content.response = Some(text);
                        tx.finish(dir);
                        return Outcome::More;
                    }
                }
                // A response without a request.
                let tx = turn.one_way(dir, Exchange { request: None, response: Some(text) });
                self.open = tx.base.id + 1;
            }
        }
        Outcome::More
    }
}

/// A request and its response, if they were seen.
#[derive(Debug)]
struct Exchange {
    request: Option<Box<[u8]>>,
    response: Option<Box<[u8]>>,
}

impl Exchange {
    fn text(&self, dir: Direction) -> Option<&[u8]> {
        match dir {
            Direction::ToServer => self.request.as_deref(),
            Direction::ToClient => self.response.as_deref(),
        }
    }
}

impl Content for Exchange {
    fn held(&self) -> u64 {
        [&self.request, &self.response].into_iter().flatten().map(|t| t.len() as u64).sum()
    }

    fn buffer<'a>(&'a self, id: u8, dir: Direction, index: usize, _scratch: &'a mut Vec<u8>) -> Option<Found<'a>> {
        (Id::of(id)? == Id::Buffer && index == 0).then(|| self.text(dir).map(Found::whole))?
    }

    fn log(&self, _base: &TxBase, json: &mut Json, _options: &AppLogOptions, _what: LogFor) {
        json.object("template");
        for (name, dir) in [("request", Direction::ToServer), ("response", Direction::ToClient)] {
            if let Some(text) = self.text(dir) {
                json.bytes(name, text);
            }
        }
        json.end_object();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Talk;

    #[test]
    fn responses_are_those_of_their_requests() {
        let mut talk = Talk::tcp(AppProto::Template, 7000);
        talk.client(b"12:Hello World!5:again").server(b"3:Bye").server(b"0:").server(b"1:x");
        assert_eq!(
            talk.logs(),
            [
                r#"{"template":{"request":"Hello World!","response":"Bye"}}"#,
                r#"{"template":{"request":"again","response":""}}"#,
                r#"{"template":{"response":"x"}}"#,
            ]
        );
        assert_eq!(talk.buffers("template.buffer", Direction::ToServer), ["Hello World!", "again"]);
        assert_eq!(talk.buffers("template.buffer", Direction::ToClient), ["Bye", "", "x"]);
    }

    #[test]
    fn lengths() {
        assert_eq!(length(b"12:x"), Ok(Some((3, 12))));
        assert_eq!(length(b"12"), Ok(None));
        for broken in [&b":x"[..], b"x", b"-1:x", b"123456:", b"1 :"] {
            assert_eq!(length(broken), Err(()), "{}", broken.escape_ascii());
            assert_eq!(probe(Direction::ToServer, broken), Probed::No);
        }
        assert_eq!(probe(Direction::ToServer, b"12"), Probed::More);
    }
}
