//! The view of scripts on a fragment (`suricata.dnp3`): a table of its headers, objects and points.

use margay_flow::Direction;

use super::READ;
use super::message::{Head, Limits, Point, Shown, Visit, walk};
use super::tx::Link;
use crate::script::Answer;

/// The members of a table.
type Table = Vec<(Vec<u8>, Answer)>;

fn number(name: &str, n: impl Into<i64>) -> (Vec<u8>, Answer) {
    (name.into(), Answer::Int(n.into()))
}

fn member(name: &str, value: Answer) -> (Vec<u8>, Answer) {
    (name.into(), value)
}

/// The input for a fragment's table.
#[derive(Debug)]
pub(super) struct Shows<'a> {
    /// The transaction's number.
    pub(super) tx: u64,
    pub(super) dir: Direction,
    pub(super) link: Link,
    /// The whole fragment, and the length of its header.
    pub(super) data: &'a [u8],
    pub(super) header: usize,
    pub(super) limits: Limits,
    pub(super) complete: bool,
    pub(super) indications: Option<u16>,
}

/// Collects the objects of a fragment.
#[derive(Debug, Default)]
struct Objects {
    done: Vec<Answer>,
    object: Table,
    points: Vec<Answer>,
}

impl Visit for Objects {
    fn object(&mut self, head: Head) {
        self.object = vec![number("group", head.group), number("variation", head.variation)];
    }

    fn point(&mut self, point: Point<'_>) {
        let mut fields = vec![number("index", point.index())];
        point.show(|name, value| {
            let value = match value {
                Shown::Uint(n) => Answer::Int(n.cast_signed()),
                Shown::Float(f) => Answer::Number(f),
                Shown::Bytes(b) => Answer::Bytes(b.to_vec()),
            };
            fields.push(member(name, value));
        });
        self.points.push(Answer::Table(fields));
    }

    fn end(&mut self) {
        let mut object = std::mem::take(&mut self.object);
        object.push(member("points", Answer::List(std::mem::take(&mut self.points))));
        self.done.push(Answer::Table(object));
    }
}

/// The table that `dnp3.get_tx()` returns.
pub(super) fn table(s: &Shows<'_>) -> Answer {
    let [control, function, ..] = *s.data else { return Answer::Nothing };
    let mut objects = Objects::default();
    walk(s.data.get(s.header..).unwrap_or(&[]), function == READ, s.limits, &mut objects);
    let link = vec![
        number("len", s.link.len),
        number("control", s.link.control),
        number("dst", s.link.dst),
        number("src", s.link.src),
        number("crc", s.link.crc),
    ];
    let application = vec![number("control", control), number("function_code", function)];
    let mut message = vec![
        member("done", Answer::Bool(true)),
        member("complete", Answer::Bool(s.complete)),
        member("link_header", Answer::Table(link)),
        number("transport_header", s.link.transport),
        member("application_header", Answer::Table(application)),
        member("objects", Answer::List(objects.done)),
    ];
    message.extend(s.indications.map(|bits| number("indicators", bits)));
    let request = s.dir == Direction::ToServer;
    Answer::Table(vec![
        member("tx_num", Answer::Int(s.tx.saturating_add(1).cast_signed())),
        member("is_request", Answer::Bool(request)),
        member(if request { "request" } else { "response" }, Answer::Table(message)),
    ])
}
