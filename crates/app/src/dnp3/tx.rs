//! The state of a fragment, and its values for rules and events.

use margay_flow::Direction;
use margay_json::Json;

use super::message::{End, Head, Limits, Point, Visit, walk};
use super::script::{Shows, table};
use super::{CONFIRM, Event, INDICATORS, Id, READ, UNSOLICITED};
use crate::config::AppLogOptions;
use crate::conversation::Content;
use crate::script::Answer;
use crate::tx::{Found, LogFor, TxBase};

/// The header of a link frame (clause 9.2.4).
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) len: u8,
    pub(super) control: u8,
    pub(super) dst: u16,
    pub(super) src: u16,
    pub(super) crc: u16,
    /// The transport header after it.
    pub(super) transport: u8,
}

impl Link {
    /// Whether it has user data of a primary station, confirmed or not.
    pub(super) fn has_user_data(self) -> bool {
        self.control & 0x40 != 0 && matches!(self.control & 0x0f, 3 | 4)
    }
}

/// A fragment of the application layer.
#[derive(Debug)]
pub(super) struct Fragment {
    dir: Direction,
    link: Link,
    /// The raw fragment; empty if a frame was invalid.
    data: Box<[u8]>,
    /// Length of its header.
    header: usize,
    limits: Limits,
    /// Whether all of its objects were read.
    complete: bool,
    /// Groups and variations.
    objects: Vec<u16>,
}

impl Visit for Vec<u16> {
    fn object(&mut self, head: Head) {
        self.push(u16::from_be_bytes([head.group, head.variation]));
    }

    fn point(&mut self, _point: Point<'_>) {}

    fn end(&mut self) {}
}

/// Writes objects.
#[derive(Debug)]
struct Log<'a> {
    json: &'a mut Json,
    any: bool,
    points: bool,
}

impl Visit for Log<'_> {
    fn object(&mut self, head: Head) {
        if !std::mem::replace(&mut self.any, true) {
            self.json.array("objects");
        }
        let json = &mut *self.json;
        json.item_object();
        json.uint("group", u64::from(head.group));
        json.uint("variation", u64::from(head.variation));
        json.uint("qualifier", u64::from(head.qualifier));
        json.uint("prefix_code", u64::from(head.prefix_code()));
        json.uint("range_code", u64::from(head.range_code()));
        json.uint("start", u64::from(head.start));
        json.uint("stop", u64::from(head.stop));
        json.uint("count", u64::from(head.count));
        self.points = false;
    }

    fn point(&mut self, point: Point<'_>) {
        if !std::mem::replace(&mut self.points, true) {
            self.json.array("points");
        }
        point.log(self.json);
    }

    fn end(&mut self) {
        if self.points {
            self.json.end_array();
        }
        self.json.end_object();
    }
}

impl Fragment {
    /// A placeholder for an invalid frame: it has an event, and is not logged.
    pub(super) fn without_content() -> Fragment {
        Fragment {
            dir: Direction::ToServer,
            link: Link::default(),
            data: Box::default(),
            header: 0,
            limits: Limits { objects: 0, points: 0 },
            complete: false,
            objects: Vec::new(),
        }
    }

    /// Reads a fragment. `None` if it only confirms, or is too short for its header.
    pub(super) fn read(dir: Direction, link: Link, data: &[u8], limits: Limits) -> Option<(Fragment, Option<Event>)> {
        let header = if dir == Direction::ToServer { 2 } else { 4 };
        let (&function, body) = (data.get(1)?, data.get(header..)?);
        if dir == Direction::ToServer && function == CONFIRM {
            return None;
        }
        let mut objects = Vec::new();
        let end = walk(body, function == READ, limits, &mut objects);
        let event = match end {
            End::Complete | End::Incomplete => None,
            End::Unknown => Some(Event::UnknownObject),
            End::TooManyPoints => Some(Event::TooManyPoints),
            End::TooManyObjects => Some(Event::TooManyObjects),
        };
        let complete = end == End::Complete;
        Some((Fragment { dir, link, data: data.into(), header, limits, complete, objects }, event))
    }

    fn function(&self) -> Option<u8> {
        self.data.get(1).copied()
    }

    /// Internal indications of a response.
    fn indications(&self) -> Option<u16> {
        let bytes = self.data.get(2..4).filter(|_| self.dir == Direction::ToClient)?;
        Some(u16::from_be_bytes(*bytes.first_chunk()?))
    }
}

impl Content for Fragment {
    fn held(&self) -> u64 {
        (self.data.len() + self.objects.capacity() * size_of::<u16>()) as u64
    }

    fn buffer<'a>(&'a self, id: u8, dir: Direction, _index: usize, _scratch: &'a mut Vec<u8>) -> Option<Found<'a>> {
        let is = Id::of(id)? == Id::Data && dir == self.dir && !self.data.is_empty();
        is.then(|| Found::whole(&self.data))
    }

    fn number(&self, id: u8, dir: Direction, index: usize) -> Option<u64> {
        if dir != self.dir {
            return None;
        }
        match Id::of(id)? {
            Id::Function if index == 0 => self.function().map(u64::from),
            Id::Indicators if index == 0 => self.indications().map(u64::from),
            Id::Object => self.objects.get(index).copied().map(u64::from),
            _ => None,
        }
    }

    fn records(&self, _options: &AppLogOptions) -> usize {
        usize::from(!self.data.is_empty())
    }

    fn ask(&self, base: &TxBase, protocol: &str, what: &str, _arg: Option<&[u8]>) -> Option<Answer> {
        if protocol != "dnp3" || self.data.is_empty() {
            return None;
        }
        match what {
            "get" => Some(Answer::Bool(true)),
            "table" => Some(table(&Shows {
                tx: base.id,
                dir: self.dir,
                link: self.link,
                data: &self.data,
                header: self.header,
                limits: self.limits,
                complete: self.complete,
                indications: self.indications(),
            })),
            _ => None,
        }
    }

    fn log(&self, _base: &TxBase, json: &mut Json, _options: &AppLogOptions, _what: LogFor) {
        let [control, function, ..] = *self.data else { return };
        let response = self.dir == Direction::ToClient;
        json.object("dnp3");
        json.word(
            "type",
            match (response, function) {
                (false, _) => "request",
                (true, UNSOLICITED) => "unsolicited_response",
                (true, _) => "response",
            },
        );
        json.object("control");
        json.bool("dir", self.link.control & 0x80 != 0);
        json.bool("pri", self.link.control & 0x40 != 0);
        json.bool("fcb", self.link.control & 0x20 != 0);
        json.bool("fcv", self.link.control & 0x10 != 0);
        json.uint("function_code", u64::from(self.link.control & 0x0f));
        json.end_object();
        json.uint("src", u64::from(self.link.src));
        json.uint("dst", u64::from(self.link.dst));
        json.object("application");
        json.object("control");
        json.bool("fir", control & 0x80 != 0);
        json.bool("fin", control & 0x40 != 0);
        json.bool("con", control & 0x20 != 0);
        json.bool("uns", control & 0x10 != 0);
        json.uint("sequence", u64::from(control & 0x0f));
        json.end_object();
        json.uint("function_code", u64::from(function));
        let mut log = Log { json, any: false, points: false };
        walk(self.data.get(self.header..).unwrap_or(&[]), function == READ, self.limits, &mut log);
        if log.any {
            json.end_array();
        }
        json.bool("complete", self.complete);
        json.end_object();
        if let Some(bits) = self.indications() {
            json.object("iin");
            if bits != 0 {
                json.array("indicators");
                for (name, _) in INDICATORS.iter().filter(|i| u64::from(bits) & i.1 != 0) {
                    json.item_str(name);
                }
                json.end_array();
            }
            json.end_object();
        }
        json.end_object();
    }
}
